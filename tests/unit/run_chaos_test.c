/* pawl_chaos against trainers that break a promise each: every one is noticed, and named. The trainer is a
 * script that writes what a run folder would hold; what it does is said by a file beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/chaos.h"

static char dir[] = PAWL_BINARY_DIR "/chaos-XXXXXX";

static const char spec_text[] = "run: {dir: /proc/nonexistent/chaos, steps: 4, seed: 1}\n"
                                "parallel: {pipelines: 2, stages: 2, microbatches: 2, batch: 1}\n"
                                "model: {layers: 2, heads: 1, width: 8, context: 8, vocabulary: 256}\n"
                                "failure: {timeout_s: 0.5}\n";

/* $CASE is what an undisturbed call does as well, $BAD only a disturbed one. */
static const char trainer_text[] =
    "#!/bin/bash\n"
    "faults=()\n"
    "while [ $# -gt 0 ]; do\n"
    "  case $1 in\n"
    "  --set) case $2 in run.dir=*) dir=${2#run.dir=} ;; esac; shift ;;\n"
    "  --inject) faults+=(\"$2\"); shift ;;\n"
    "  --steps) steps=$2; shift ;;\n"
    "  esac\n"
    "  shift\n"
    "done\n"
    "mkdir -p $dir; cd $dir; new=1; [ -e log.jsonl ] && new=0\n"
    "say() { echo \"{\\\"event\\\":\\\"$1\\\"$2}\" >>log.jsonl; }\n"
    "end() { echo \"{\\\"final_step\\\":$1,\\\"weights_sha256\\\":\\\"$2\\\"}\" >report.json; }\n"
    "steps_of() { for i in $(seq $1 $2); do say step "
    "\",\\\"step\\\":$i,\\\"loss\\\":1.5,\\\"grad_norm\\\":$i\"; done; }\n"
    "plain() { steps_of 1 $steps; say durable \",\\\"step\\\":$steps\"; end $steps aaaa; }\n"
    "say start ',\"resumed_from\":null'\n"
    "if [ ${#faults[@]} = 0 ]; then plain; exit 0; fi\n"
    ". $(dirname $0)/bad\n";

static void write_file(const char *name, const char *text, mode_t mode) {
    char path[sizeof dir + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static int begin(void **state) {
    (void)state;
    if (mkdtemp(dir) == NULL) return -1;
    char text[sizeof spec_text + sizeof dir + 64];
    write_file("text", "some words to learn, more than a context of them, again and again", 0600);
    snprintf(text, sizeof text, "%sdata: {path: %s/text, format: bytes}\n", spec_text, dir);
    write_file("spec.yaml", text, 0600);
    write_file("trainer", trainer_text, 0700);
    return 0;
}

static int end(void **state) {
    (void)state;
    char command[sizeof dir + 16];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    int failed = system(command);
    memcpy(dir + sizeof dir - 7, "XXXXXX", 6);
    return failed;
}

struct heard {
    uint32_t runs;
    char problem[600], faults[2000];
    uint32_t calls, struck, lost, restored, aborted;
    bool kept;
};

static void hear(void *context, const struct pawl_chaos_run *r) {
    struct heard *h = context;
    h->runs++;
    h->calls = r->calls;
    h->struck = r->struck;
    h->lost = r->lost;
    h->restored = r->restored;
    h->aborted = r->aborted;
    h->kept = r->folder != NULL && access(r->folder, F_OK) == 0;
    snprintf(h->problem, sizeof h->problem, "%s", r->problem != NULL ? r->problem : "");
    snprintf(h->faults, sizeof h->faults, "%s", r->faults);
}

static uint32_t first; /* number of the run */

/* One disturbed run of a trainer that does `bad`. */
static pawl_code chaos(const char *bad, struct heard *heard) {
    char spec[sizeof dir + 32], program[sizeof dir + 32];
    struct pawl_chaos_report report;
    struct pawl_error e = {0};
    snprintf(spec, sizeof spec, "%s/spec.yaml", dir);
    snprintf(program, sizeof program, "%s/trainer", dir);
    write_file("bad", bad, 0600);
    *heard = (struct heard){0};
    struct pawl_chaos_options options = {.spec_path = spec,
                                         .runs = 1,
                                         .seed = 3,
                                         .first = first,
                                         .folder = dir,
                                         .program = program,
                                         .context = heard,
                                         .told = hear};
    pawl_code code = pawl_chaos(&options, &report, &e);
    assert_int_equal(report.runs, 1);
    assert_int_equal(report.broken, code != PAWL_OK);
    assert_string_equal(report.weights_sha256, "aaaa");
    assert_int_equal(heard->runs, 1);
    assert_true(heard->faults[0] != 0);
    assert_int_equal(heard->kept, code != PAWL_OK);
    return code;
}

static void good(const char *does, struct heard *h) {
    if (chaos(does, h) != PAWL_OK) fail_msg("%s: %s", does, h->problem);
}

static void broken(const char *bad, const char *word) {
    struct heard h;
    assert_int_equal(chaos(bad, &h), PAWL_INTERNAL);
    if (strstr(h.problem, word) == NULL) fail_msg("%s: \"%s\" lacks \"%s\"", bad, h.problem, word);
}

static void a_run_that_keeps_its_promises_is_good(void **state) {
    (void)state;
    struct heard h;
    good("say worker_lost; say worker_exit ',\"signal\":9'; plain", &h);
    assert_int_equal(h.calls, 1);
    assert_int_equal(h.lost, 1);
    good("plain; printf '{\"event\":\"step\",\"st' >>log.jsonl", &h); /* a torn line is nobody's fault */
}

static void other_weights_are_a_broken_promise(void **state) {
    (void)state;
    broken("plain; end $steps bbbb", "weights bbbb");
    broken("plain; rm report.json", "report.json");
    broken("plain; echo '{' >report.json", "report.json");
}

static void a_step_that_differs_on_the_way_is_told_by_its_number(void **state) {
    (void)state;
    broken("plain; say step ',\"step\":3,\"loss\":1.5000000000000002,\"grad_norm\":3'", "step 3");
    broken("plain; say step ',\"step\":2,\"loss\":1.5,\"grad_norm\":2.5'", "step 2");
    broken("plain; say step ',\"step\":9,\"loss\":1.5,\"grad_norm\":9'", "cannot be");
}

static void an_acknowledged_step_bounds_every_return(void **state) {
    (void)state;
    struct heard h;
    good("say durable ',\"step\":2'; say restored ',\"step\":2'; plain", &h);
    assert_int_equal(h.restored, 1);
    broken("say durable ',\"step\":3'; say restored ',\"step\":2'; plain", "step 3");
    broken("say durable ',\"step\":3'; say start ',\"resumed_from\":1'; plain", "step 3");
    broken("say durable ',\"step\":3'; say start ',\"resumed_from\":null'; plain", "step 3");
    broken("steps_of 1 $steps; say durable ',\"step\":3'; end $steps aaaa",
           "durable"); /* the last one is not */
}

static void an_end_that_no_fault_explains_is_told(void **state) {
    (void)state;
    broken("echo 'pawl: error: out of luck' >&2; exit 70", "out of luck");
    broken("kill -9 $$", "Killed");
    broken("kill -11 $$", "Segmentation");
    broken("end 2 aaaa", "step 2 of 4");
}

/* As UCX 1.13 was seen to print it. */
#define UCX_ASSERTION "; echo \"[vm:12:0:14]      tcp_ep.c:478  Assertion \\`!(ep->flags & TX)' failed\" >&2"

static void a_worker_that_ucx_ends_is_lost_like_any_other(void **state) {
    (void)state;
    struct heard h;
    good("plain; say worker_lost; say worker_exit ',\"signal\":6'" UCX_ASSERTION, &h);
    assert_int_equal(h.lost, 1);
    assert_int_equal(h.aborted, 1);
    good("plain" UCX_ASSERTION, &h); /* it printed, and was killed before it ended */
    assert_int_equal(h.aborted, 0);
}

static void a_worker_that_crashes_or_refuses_its_plan_is_told(void **state) {
    (void)state;
    broken("plain; say worker_exit ',\"signal\":11'", "crashed");
    broken("plain; say worker_crashed ',\"signal\":6'", "crashed");
    broken("plain; say worker_exit ',\"signal\":6'; echo \"pawl: a.c:7: f: Assertion \\`x' failed.\" >&2",
           "crashed");
    broken("plain; say worker_exit ',\"signal\":6'; say worker_exit ',\"signal\":6'" UCX_ASSERTION,
           "crashed");
    broken("plain; say worker_failed ',\"code\":\"PLAN\",\"error\":\"two forwards\"'", "two forwards");
    broken("plain; say worker_failed ',\"code\":\"SPEC\",\"error\":\"no such key\"'", "no such key");
    broken("plain; say kill ',\"why\":\"malformed fenced: order\"'", "malformed fenced");
    broken("plain; say walk_back ',\"step\":2'", "could not be restored");
    struct heard h;
    good("plain; say worker_failed ',\"code\":\"IO\",\"error\":\"full\"'", &h);
}

/* The number of a run that has this among its faults. */
static uint32_t number_with(const char *fault) {
    char path[sizeof dir + 32];
    struct spec spec;
    snprintf(path, sizeof path, "%s/spec.yaml", dir);
    assert_int_equal(spec_load(path, NULL, 0, &spec, NULL), PAWL_OK);
    for (uint32_t n = 0;; n++) {
        struct chaos_plan plan;
        assert_int_equal(chaos_draw(&spec, 3, n, &plan, NULL), PAWL_OK);
        bool found = strstr((char *)plan.text.data, fault) != NULL;
        chaos_plan_close(&plan);
        if (found) return n;
    }
}

static void what_ended_by_a_fault_is_called_again_until_it_is_done(void **state) {
    (void)state;
    struct heard h;
    const char *note =
        "if [ $new = 1 ]; then for f in \"${faults[@]}\"; do echo \"$f\" >>injected; done; %s; fi\n"
        "say durable ',\"step\":1'; plain";
    char text[512];
    first = number_with("kill:launcher");
    snprintf(text, sizeof text, note, "kill -9 $$");
    good(text, &h);
    assert_int_equal(h.calls, 2);
    assert_true(h.struck > 0);
    first = number_with("term:launcher");
    snprintf(text, sizeof text, note, "say durable ',\"step\":1'; end 1 cccc; exit 0");
    broken(text, "resumed from step 0"); /* which was told to be durable */
    snprintf(text, sizeof text, note, "end 1 cccc; exit 0");
    good(text, &h);
    assert_int_equal(h.calls, 2);
    broken("if [ $new = 1 ]; then printf '%s\\n' \"${faults[@]}\" >injected; fi; end 2 cccc",
           "step 2 of 4, told by nobody"); /* the notice was to the call before */
    first = number_with("disk:");
    snprintf(text, sizeof text, note, "exit 74");
    good(text, &h);
    assert_int_equal(h.calls, 2);
    snprintf(text, sizeof text, note, "exit 65");
    broken(text, "exit code 65");
    first = 0;
    broken("exit 74", "exit code 74"); /* no disk was at fault */
}

static void a_call_that_hangs_or_leaves_a_process_behind_is_ended_and_told(void **state) {
    (void)state;
    char program[sizeof dir + 32], run_dir[sizeof dir + 32];
    struct chaos_end found;
    snprintf(program, sizeof program, "%s/trainer", dir);
    snprintf(run_dir, sizeof run_dir, "%s/run", dir);
    struct chaos_plan plan = {.respawn = 0};
    struct inject one;
    assert_int_equal(inject_parse("kill:0@1", NULL, &one, NULL), PAWL_OK);
    assert_int_equal(inject_set_add(&plan.faults, &one, NULL), PAWL_OK);
    bytes_put_u8(&plan.sets, 0);
    struct chaos_call call = {.program = program,
                              .spec_path = "x",
                              .steps = 1,
                              .run_dir = run_dir,
                              .plan = &plan,
                              .limit_s = 0.3,
                              .gone_s = 30};
    write_file("bad", "sleep 1000 & sleep 1000", 0600);
    assert_int_equal(chaos_call(&call, &found, NULL), PAWL_OK);
    assert_true(found.stuck);
    assert_false(found.orphan); /* both were ended */
    call.limit_s = 100, call.gone_s = 0.3;
    write_file("bad", "sleep 1000 & echo first >&2; echo last >&2; exit 5", 0600);
    assert_int_equal(chaos_call(&call, &found, NULL), PAWL_OK);
    assert_false(found.stuck);
    assert_true(found.orphan);
    assert_int_equal(WEXITSTATUS(found.status), 5);
    assert_string_equal(found.last, "last");
    chaos_plan_close(&plan);
}

static void the_faults_of_a_run_follow_from_its_seed_and_number_alone(void **state) {
    (void)state;
    char path[sizeof dir + 32];
    struct spec spec;
    uint32_t kinds[INJECT_KIND_COUNT] = {0}, differ = 0, ends = 0, whole = 0, respawns = 0;
    snprintf(path, sizeof path, "%s/spec.yaml", dir);
    assert_int_equal(spec_load(path, NULL, 0, &spec, NULL), PAWL_OK);
    for (uint32_t n = 0; n < 300; n++) {
        struct chaos_plan a, b, other;
        assert_int_equal(chaos_draw(&spec, 7, n, &a, NULL), PAWL_OK);
        assert_int_equal(chaos_draw(&spec, 7, n, &b, NULL), PAWL_OK);
        assert_int_equal(chaos_draw(&spec, 8, n, &other, NULL), PAWL_OK);
        assert_string_equal((char *)a.text.data, (char *)b.text.data);
        assert_string_equal((char *)a.sets.data, (char *)b.sets.data);
        differ += strcmp((char *)a.text.data, (char *)other.text.data) != 0;
        assert_in_range(a.faults.count, 1, CHAOS_FAULTS_MAX);
        bool stage[2] = {true, true};
        for (uint32_t i = 0; i < a.faults.count; i++) kinds[a.faults.items[i].kind]++;
        for (uint32_t r = 0; r < 4; r++) {
            bool killed = false;
            for (uint32_t i = 0; i < a.faults.count; i++)
                killed |= a.faults.items[i].kind == INJECT_KILL && a.faults.items[i].rank == r;
            stage[r % 2] &= killed;
        }
        whole += stage[0] || stage[1];
        ends += a.ends > 0;
        respawns += a.respawn > 0;
        chaos_plan_close(&a), chaos_plan_close(&b), chaos_plan_close(&other);
    }
    assert_in_range(differ, 295, 300);
    for (size_t k = 0; k < INJECT_KIND_COUNT; k++) assert_in_range(kinds[k], 20, 600);
    assert_in_range(whole, 20, 150); /* a stage without a replica: some runs, not most */
    assert_in_range(ends, 30, 200);
    assert_in_range(respawns, 60, 140);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(a_run_that_keeps_its_promises_is_good),
        TEST(other_weights_are_a_broken_promise),
        TEST(a_step_that_differs_on_the_way_is_told_by_its_number),
        TEST(an_acknowledged_step_bounds_every_return),
        TEST(an_end_that_no_fault_explains_is_told),
        TEST(a_worker_that_ucx_ends_is_lost_like_any_other),
        TEST(a_worker_that_crashes_or_refuses_its_plan_is_told),
        TEST(what_ended_by_a_fault_is_called_again_until_it_is_done),
        TEST(a_call_that_hangs_or_leaves_a_process_behind_is_ended_and_told),
        TEST(the_faults_of_a_run_follow_from_its_seed_and_number_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
