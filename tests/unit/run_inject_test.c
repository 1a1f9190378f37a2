/* Fault injections: what is understood, what is refused with which words, what fires once, what is drawn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/inject.h"

static const struct inject_limits limits = {.ranks = 8, .stages = 2, .pipelines = 4, .steps = 100};

static struct inject parsed(const char *text) {
    struct inject f;
    struct pawl_error e = {0};
    if (inject_parse(text, &limits, &f, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_string_equal(f.text, text);
    assert_false(f.fired);
    return f;
}

static void every_form_is_understood(void **state) {
    (void)state;
    struct inject f = parsed("kill:3@20");
    assert_int_equal(f.kind, INJECT_KILL);
    assert_int_equal(f.rank, 3);
    assert_int_equal(f.step, 20);
    assert_int_equal(f.point, FAULT_AFTER_FORWARD);
    f = parsed("kill:all@0");
    assert_int_equal(f.rank, INJECT_ALL);
    assert_int_equal(f.step, 1);
    assert_int_equal(f.point, FAULT_LAUNCH_DECIDED);
    f = parsed("term:launcher@7:launch-go");
    assert_int_equal(f.kind, INJECT_TERM);
    assert_int_equal(f.rank, INJECT_LAUNCHER);
    assert_int_equal(f.point, FAULT_LAUNCH_GO);
    f = parsed("stop:1@2:1.5");
    assert_int_equal(f.kind, INJECT_STOP);
    assert_true(f.amount == 1.5);
    f = parsed("slow:1@2:3:reduce");
    assert_int_equal(f.kind, INJECT_SLOW);
    assert_true(f.amount == 3);
    assert_int_equal(f.point, FAULT_REDUCE_SENT);
    f = parsed("net:7@100:0.25:go");
    assert_int_equal(f.kind, INJECT_NET);
    assert_true(f.amount == 0.25);
    f = parsed("coord@5");
    assert_int_equal(f.kind, INJECT_COORD);
    assert_int_equal(f.point, FAULT_COORD_DECIDED);
    f = parsed("coord@5:coord-plan");
    assert_int_equal(f.point, FAULT_COORD_PLAN);
    f = parsed("join@9");
    assert_int_equal(f.kind, INJECT_JOIN);
    assert_int_equal(f.point, FAULT_LAUNCH_DECIDED);
}

static void a_disk_fault_names_its_error_and_how_long(void **state) {
    (void)state;
    struct inject f = parsed("disk:0@1:ENOSPC");
    assert_int_equal(f.os_errno, ENOSPC);
    assert_true(f.amount == 0);
    f = parsed("disk:0@1:EIO:2.5");
    assert_int_equal(f.os_errno, EIO);
    assert_true(f.amount == 2.5);
    assert_int_equal(f.point, FAULT_AFTER_FORWARD);
    f = parsed("disk:0@1:stuck:save-begin");
    assert_int_equal(f.os_errno, 0);
    assert_true(f.amount == 0);
    assert_int_equal(f.point, FAULT_SAVE_BEGIN);
    f = parsed("disk:0@1:EROFS:3:save-data");
    assert_int_equal(f.os_errno, EROFS);
    assert_true(f.amount == 3);
    assert_int_equal(f.point, FAULT_SAVE_DATA_PART);
}

static void each_point_goes_with_the_faults_of_the_process_that_passes_it(void **state) {
    (void)state;
    static const char *const heads[] = {
        [FAULT_WHO_WORKER] = "kill:7@1:", [FAULT_WHO_COORD] = "coord@1:", [FAULT_WHO_LAUNCH] = "kill:all@1:"};
    for (uint32_t p = 1; p < FAULT_COUNT; p++)
        for (size_t who = 0; who < 3; who++) {
            char text[INJECT_TEXT_BYTES];
            struct inject f;
            snprintf(text, sizeof text, "%s%s", heads[who], fault_name((enum fault_point)p));
            bool fits = fault_who((enum fault_point)p) == (enum fault_who)who;
            assert_int_equal(inject_parse(text, &limits, &f, NULL), fits ? PAWL_OK : PAWL_ARGUMENT);
            if (fits) assert_int_equal(f.point, p);
        }
}

static void everything_else_is_refused_and_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *word;
    } wrong[] = {
        {"", "no such fault"},
        {"kill", "RANK@STEP"},
        {"kill:", "RANK@STEP"},
        {"kill:3", "RANK@STEP"},
        {"kill:3@", "RANK@STEP"},
        {"kill:@3", "RANK@STEP"},
        {"kill@3", "RANK@STEP"},
        {"kill:8@1", "0 to 7"},
        {"kill:-1@1", "RANK@STEP"},
        {"kill:1@-1", "RANK@STEP"},
        {"kill:1@1x", "RANK@STEP"},
        {"kill:1@1:", "there are iteration"},
        {"kill:1@1:no", "there are iteration"},
        {"kill:1@1:none", "there are iteration"},
        {"kill:all@1:reduce", "there are launch-fence"},
        {"kill:1@99999999999999999999", "RANK@STEP"},
        {"kill:4294967295@1", "0 to 7"},
        {"kill:1@101", "100 steps"},
        {"term:all@1", "launcher"},
        {"stop:all@1:1", "stop:RANK"},
        {"stop:1@1", "SECONDS"},
        {"stop:1@1:0", "SECONDS"},
        {"stop:1@1:-1", "SECONDS"},
        {"stop:1@1:1.2.3", "SECONDS"},
        {"stop:1@1:1e9", "SECONDS"},
        {"stop:1@1:inf", "SECONDS"},
        {"slow:1@1:0.5", "FACTOR"},
        {"slow:1@1:", "FACTOR"},
        {"slow:1@1:99999", "FACTOR"},
        {"net:1@1:x", "SECONDS"},
        {"disk:1@1", "ERRNO"},
        {"disk:1@1:", "ERRNO"},
        {"disk:1@1:ENOTHING", "ENOTHING"},
        {"disk:1@1:EIO:0", "SECONDS"},
        {"disk:1@1:EIO:0.0000000001", "0.000001 to 1000000"}, /* no nanosecond, which would be for ever */
        {"disk:1@1:5", "ERRNO"},
        {"coord:1@1", "coord@STEP"},
        {"coord@1:forward", "there are coord-fence"},
        {"join@1:forward", "there are launch-fence"},
        {"join", "join@STEP"},
        {"hurricane:1@1", "there are kill"},
        {"killx:1@1", "there are kill"},
        {"kill:1@1:go\n", "no such fault"},
    };
    for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
        struct inject f;
        struct pawl_error e = {0};
        assert_int_equal(inject_parse(wrong[k].text, &limits, &f, &e), PAWL_ARGUMENT);
        assert_non_null(strstr(e.text, "--inject"));
        if (strchr(wrong[k].text, '\n') == NULL) assert_non_null(strstr(e.text, wrong[k].text));
        if (strstr(e.text, wrong[k].word) == NULL) fail_msg("\"%s\" lacks \"%s\"", e.text, wrong[k].word);
    }
    char endless[300];
    struct inject f;
    memset(endless, '1', sizeof endless);
    memcpy(endless, "kill:", 5);
    endless[sizeof endless - 1] = 0;
    assert_int_equal(inject_parse(endless, &limits, &f, NULL), PAWL_ARGUMENT);
}

static struct inject_set opened(const char *const *texts, uint32_t count) {
    struct inject_set set;
    struct pawl_error e = {0};
    if (inject_set_open(texts, count, &limits, &set, &e) != PAWL_OK) fail_msg("%s", e.text);
    return set;
}

static void faults_are_handed_to_the_processes_they_are_for(void **state) {
    (void)state;
    static const char *const texts[] = {"kill:2@3",   "coord@1",    "join@4",
                                        "stop:2@1:1", "kill:all@9", "slow:0@1:2"};
    struct inject_set set = opened(texts, 6);
    uint32_t at = 0;
    assert_string_equal(inject_for_rank(&set, 2, &at)->text, "kill:2@3");
    assert_string_equal(inject_for_rank(&set, 2, &at)->text, "stop:2@1:1");
    assert_null(inject_for_rank(&set, 2, &at));
    at = 0;
    assert_null(inject_for_rank(&set, 1, &at));
    at = 0;
    assert_string_equal(inject_for_coord(&set, &at)->text, "coord@1");
    assert_null(inject_for_coord(&set, &at));
    inject_set_close(&set);
}

static void what_was_noted_is_not_handed_out_again(void **state) {
    (void)state;
    char dir[] = PAWL_BINARY_DIR "/inject-XXXXXX";
    assert_non_null(mkdtemp(dir));
    static const char *const texts[] = {"kill:2@3", "kill:2@33", "kill:2@3:go"};
    struct inject_set set = opened(texts, 3);
    assert_int_equal(inject_set_read(&set, dir, NULL), PAWL_OK); /* no note yet */
    inject_note(dir, "kill:2@33");
    inject_note(dir, "coord@1");
    assert_int_equal(inject_set_read(&set, dir, NULL), PAWL_OK);
    assert_false(set.items[0].fired);
    assert_true(set.items[1].fired);
    assert_false(set.items[2].fired);
    uint32_t at = 0;
    assert_string_equal(inject_for_rank(&set, 2, &at)->text, "kill:2@3");
    assert_string_equal(inject_for_rank(&set, 2, &at)->text, "kill:2@3:go");
    assert_null(inject_for_rank(&set, 2, &at));
    inject_set_close(&set);
    struct pawl_error e = {0};
    set = opened(texts, 3);
    char path[sizeof dir + 16], command[sizeof dir + 16];
    snprintf(path, sizeof path, "%s/injected", dir);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(inject_set_read(&set, dir, &e), PAWL_IO);
    assert_non_null(strstr(e.text, "injected"));
    inject_set_close(&set);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

struct done {
    char joins[256];
    int ended;
};
static void note_join(void *context, const char *text) {
    strcat(strcat(((struct done *)context)->joins, text), " ");
}
static int tell_fd = -1; /* of a child that ends */
static void note_end(void *context, const char *text) {
    ((struct done *)context)->ended++;
    if (tell_fd >= 0) assert_int_equal(write(tell_fd, text, 1), 1);
}

static void the_launchers_own_faults_strike_once_at_their_step_and_point(void **state) {
    (void)state;
    char dir[] = PAWL_BINARY_DIR "/inject-XXXXXX", command[sizeof dir + 16];
    assert_non_null(mkdtemp(dir));
    static const char *const texts[] = {"join@3", "join@3:launch-go", "join@2:launch-fence", "kill:1@1"};
    struct inject_set set = opened(texts, 4);
    struct done done = {{0}, 0};
    struct inject_launch does = {&done, note_end, note_join, dir};
    inject_launch(&set, FAULT_LAUNCH_GO, 0, &does);
    inject_launch(&set, FAULT_LAUNCH_FENCE, 0, &does);
    inject_launch(&set, FAULT_LAUNCH_DECIDED, 2, &does);
    assert_string_equal(done.joins, "");
    inject_launch(&set, FAULT_LAUNCH_FENCE, 1, &does); /* step 2 has begun */
    assert_string_equal(done.joins, "join@2:launch-fence ");
    inject_launch(&set, FAULT_LAUNCH_FENCE, 1, &does);
    inject_launch(&set, FAULT_LAUNCH_DECIDED, 3, &does); /* step 3 has been taken */
    inject_launch(&set, FAULT_LAUNCH_DECIDED, 4, &does);
    assert_string_equal(done.joins, "join@2:launch-fence join@3 ");
    inject_launch(&set, FAULT_LAUNCH_GO, 7, &does);
    assert_string_equal(done.joins, "join@2:launch-fence join@3 join@3:launch-go ");
    assert_int_equal(done.ended, 0);
    struct inject_set again = opened(texts, 4);
    assert_int_equal(inject_set_read(&again, dir, NULL), PAWL_OK);
    for (uint32_t i = 0; i < 3; i++) assert_true(again.items[i].fired);
    inject_set_close(&again);
    inject_set_close(&set);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

static int status_of_launcher(const char *text, int *killed_others) {
    char dir[] = PAWL_BINARY_DIR "/inject-XXXXXX", command[sizeof dir + 16];
    assert_non_null(mkdtemp(dir));
    int status = 0, ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct inject_set set = opened(&text, 1);
        struct done done = {{0}, 0};
        struct inject_launch does = {&done, note_end, note_join, dir};
        tell_fd = ends[1];
        inject_launch(&set, FAULT_LAUNCH_DECIDED, 4, &does);
        _exit(3);
    }
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    *killed_others = (int)read(ends[0], &byte, 1);
    close(ends[0]);
    struct inject_set set = opened(&text, 1);
    assert_int_equal(inject_set_read(&set, dir, NULL), PAWL_OK);
    assert_true(set.items[0].fired); /* noted before it struck */
    inject_set_close(&set);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
    return status;
}

static void the_launcher_kills_or_ends_itself_and_has_noted_it(void **state) {
    (void)state;
    int others;
    int status = status_of_launcher("kill:launcher@4", &others);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(others, 0);
    status = status_of_launcher("term:launcher@4", &others);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    assert_int_equal(others, 0);
    status = status_of_launcher("kill:all@4", &others);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(others, 1); /* the others first */
}

static void random_faults_are_the_same_for_a_seed_and_leave_one_pipeline_alone(void **state) {
    (void)state;
    uint32_t kinds[INJECT_KIND_COUNT] = {0}, total = 0;
    for (unsigned seed = 0; seed < 40; seed++) {
        char text[64];
        const char *one = text;
        snprintf(text, sizeof text, "random:%u:20", seed);
        struct inject_set set = opened(&one, 1), same = opened(&one, 1);
        bool hit[4] = {false};
        assert_int_equal(set.count, same.count);
        for (uint32_t i = 0; i < set.count; i++) {
            const struct inject *f = &set.items[i];
            assert_string_equal(f->text, same.items[i].text);
            assert_true(f->step >= 1 && f->step <= limits.steps);
            kinds[f->kind]++;
            if (f->kind == INJECT_KILL || f->kind == INJECT_TERM || f->kind == INJECT_STOP ||
                f->kind == INJECT_NET)
                hit[f->rank / limits.stages] = true;
            if (f->kind == INJECT_DISK) assert_true(f->amount > 0);
        }
        assert_false(hit[0] && hit[1] && hit[2] && hit[3]);
        total += set.count;
        inject_set_close(&set);
        inject_set_close(&same);
    }
    assert_in_range(total, 600, 1000); /* 800 expected of 4000 steps: seven deviations to either side */
    for (size_t k = 0; k < INJECT_KIND_COUNT; k++) assert_in_range(kinds[k], 40, 200);
}

static void random_is_refused_with_its_own_form(void **state) {
    (void)state;
    static const char *const wrong[] = {"random",       "random:",    "random:1",     "random:1:0",
                                        "random:1:101", "random:x:1", "random:1:2:3", "randomly:1:2"};
    for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
        struct inject_set set;
        struct pawl_error e = {0};
        assert_int_equal(inject_set_open(&wrong[k], 1, &limits, &set, &e), PAWL_ARGUMENT);
        assert_non_null(strstr(e.text, wrong[k]));
        assert_non_null(strstr(e.text, "random:SEED:RATE"));
        inject_set_close(&set);
    }
}

static void with_one_pipeline_random_faults_cost_nobody_his_life(void **state) {
    (void)state;
    struct inject_limits one = {.ranks = 2, .stages = 2, .pipelines = 1, .steps = 1000};
    struct inject_set set = {0};
    assert_int_equal(inject_draw(&set, 5, 50, &one, NULL), PAWL_OK);
    assert_true(set.count > 300);
    for (uint32_t i = 0; i < set.count; i++)
        assert_true(set.items[i].kind != INJECT_KILL && set.items[i].kind != INJECT_TERM &&
                    set.items[i].kind != INJECT_STOP && set.items[i].kind != INJECT_NET);
    inject_set_close(&set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_understood),
        cmocka_unit_test(a_disk_fault_names_its_error_and_how_long),
        cmocka_unit_test(each_point_goes_with_the_faults_of_the_process_that_passes_it),
        cmocka_unit_test(everything_else_is_refused_and_named),
        cmocka_unit_test(faults_are_handed_to_the_processes_they_are_for),
        cmocka_unit_test(what_was_noted_is_not_handed_out_again),
        cmocka_unit_test(the_launchers_own_faults_strike_once_at_their_step_and_point),
        cmocka_unit_test(the_launcher_kills_or_ends_itself_and_has_noted_it),
        cmocka_unit_test(random_faults_are_the_same_for_a_seed_and_leave_one_pipeline_alone),
        cmocka_unit_test(random_is_refused_with_its_own_form),
        cmocka_unit_test(with_one_pipeline_random_faults_cost_nobody_his_life),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
