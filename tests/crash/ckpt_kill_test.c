/* Promise 1 with real processes on a real folder: a child saves in a loop and acknowledges each committed
 * step through a pipe; it dies by SIGKILL at every SAVE_ fault point, at several arrivals each, and at random
 * moments; the parent, which is never killed, then reads the folder: the newest acknowledged step or a newer
 * one, byte for byte. The next child resumes from it in the same folder, so that leftovers of many deaths
 * pile up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/rng.h"
#include "kit/ckpt_kit.h"

#define IN_FLIGHT    3u
#define RANDOM_KILLS 60u

struct plan {               /* how the child dies */
    enum fault_point point; /* FAULT_NONE: by the parent */
    uint32_t nth;
    bool background;
    enum store_kind kind;
};

static _Noreturn void child_fail(const char *what, const struct pawl_error *e) {
    fprintf(stderr, "child: %s: %s\n", what, e->text);
    _exit(3);
}

static void child_poll(struct ckpt *c, struct kit_part **parts, uint64_t first, int acks, uint64_t *done) {
    struct ckpt_event events[IN_FLIGHT];
    if (ckpt_fd(c) >= 0) {
        struct pollfd p = {.fd = ckpt_fd(c), .events = POLLIN};
        (void)poll(&p, 1, 1000);
    }
    uint32_t count = ckpt_poll(c, events, IN_FLIGHT);
    for (uint32_t i = 0; i < count; i++) {
        bool overtaken = events[i].code == PAWL_CANCELLED; /* by newer steps declared below */
        if (events[i].code != PAWL_OK && !overtaken) child_fail("save", &events[i].error);
        if (!overtaken &&
            write(acks, &events[i].step, sizeof events[i].step) != (ssize_t)sizeof events[i].step)
            _exit(4);
        if (!overtaken) ckpt_durable(c, events[i].step);
        kit_part_free(parts[events[i].step - first]);
        parts[events[i].step - first] = NULL;
        ++*done;
    }
}

/* Saves until killed; after `most` steps it ends by itself. */
static _Noreturn void child_main(const char *path, const struct plan *plan, uint64_t resume, int acks) {
    enum { MOST = 400 };
    static struct kit_part *parts[MOST];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct pawl_error e = {0};
    struct store *s = NULL;
    struct ckpt *c = NULL;
    if (store_open(path, plan->kind, false, &s, NULL, &e) != PAWL_OK) child_fail("open", &e);
    struct ckpt_config config = kit_config(resume + 1, resume, IN_FLIGHT, 2);
    config.background = plan->background;
    if (plan->point != FAULT_NONE) fault_arm(plan->point, plan->nth);
    if (ckpt_open(&config, s, &c, &e) != PAWL_OK) child_fail("engine", &e);
    uint64_t begun = 0, done = 0;
    while (done < MOST) {
        while (begun < MOST && ckpt_in_flight(c) < IN_FLIGHT) {
            uint64_t step = resume + 1 + begun;
            parts[begun] = kit_part_new(step, 0, 1);
            struct ckpt_save save = kit_save(parts[begun], step, 0, 1);
            save.staged = step % 3 > 0;
            if (ckpt_save_begin(c, &save, &e) != PAWL_OK) child_fail("begin", &e);
            begun++;
        }
        child_poll(c, parts, resume + 1, acks, &done);
    }
    _exit(0);
}

/* Reads acknowledgements until the child has closed its end; kills it after `kill_after` of them and a random
 * pause. Returns the newest acknowledged step. */
static uint64_t follow_child(int acks, pid_t pid, uint32_t kill_after, struct rng_stream *random) {
    uint64_t newest = 0, step = 0;
    uint32_t count = 0;
    for (;;) {
        ssize_t size = read(acks, &step, sizeof step);
        if (size < 0 && errno == EINTR) continue;
        if (size != (ssize_t)sizeof step) return newest;
        if (step > newest) newest = step;
        if (++count != kill_after) continue;
        struct timespec pause = {0,
                                 (long)rng_below(random, 3000000)}; /* a moment, not a wait for something */
        nanosleep(&pause, NULL);
        kill(pid, SIGKILL);
    }
}

struct outcome {
    uint64_t acknowledged, recovered;
    bool killed;
};

static struct outcome run_child(const char *path, const struct plan *plan, uint64_t resume,
                                uint32_t kill_after, struct rng_stream *random) {
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(pipe_fds[0]);
        child_main(path, plan, resume, pipe_fds[1]);
    }
    close(pipe_fds[1]);
    struct outcome out = {.acknowledged = follow_child(pipe_fds[0], pid, kill_after, random)};
    close(pipe_fds[0]);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    out.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (!out.killed && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
        fail_msg("the child ended with %d", status);
    struct store *s = NULL;
    struct pawl_error e = {0};
    uint32_t damaged = 0;
    if (store_open(path, STORE_AUTO, true, &s, NULL, &e) != PAWL_OK) fail_msg("%s", e.text);
    out.recovered = kit_newest(&s, 1, &damaged);
    store_close(s);
    assert_int_equal(damaged, 0);
    return out;
}

static void at_every_fault_point(enum store_kind kind, bool background) {
    char path[256], command[300];
    snprintf(path, sizeof path, "%s/kill-XXXXXX", PAWL_BINARY_DIR);
    assert_non_null(mkdtemp(path));
    struct rng_stream random = {7};
    uint64_t newest = 0;
    uint32_t kills = 0;
    for (int point = 1; point < FAULT_COUNT; point++) {
        if (strncmp(fault_name((enum fault_point)point), "save-", 5) != 0) continue;
        for (uint32_t nth = 1; nth <= 8; nth += nth < 3 ? 1 : 5) {
            struct plan plan = {(enum fault_point)point, nth, background, kind};
            struct outcome out = run_child(path, &plan, newest, 0, &random);
            if (!out.killed)
                fail_msg("the child never came to %s for the %u. time", fault_name(plan.point), nth);
            if (out.recovered < out.acknowledged || out.recovered < newest)
                fail_msg("%s: %" PRIu64 " was acknowledged, %" PRIu64 " was recovered",
                         fault_name(plan.point), out.acknowledged > newest ? out.acknowledged : newest,
                         out.recovered);
            newest = out.recovered;
            kills++;
        }
    }
    print_message("%u kills at fault points, newest step %" PRIu64 "\n", kills, newest);
    assert_true(kills >= 8 * 4);
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
}

static void at_random_moments(enum store_kind kind, bool background) {
    char path[256], command[300];
    snprintf(path, sizeof path, "%s/kill-XXXXXX", PAWL_BINARY_DIR);
    assert_non_null(mkdtemp(path));
    struct rng_stream random = {11 + (uint64_t)kind};
    uint64_t newest = 0;
    uint32_t kills = 0;
    for (uint32_t i = 0; i < RANDOM_KILLS; i++) {
        struct plan plan = {FAULT_NONE, 0, background, kind};
        struct outcome out = run_child(path, &plan, newest, 1 + (uint32_t)rng_below(&random, 12), &random);
        if (out.recovered < out.acknowledged || out.recovered < newest)
            fail_msg("kill %u: %" PRIu64 " was acknowledged, %" PRIu64 " was recovered", i, out.acknowledged,
                     out.recovered);
        newest = out.recovered;
        kills += out.killed;
    }
    print_message("%u kills at random moments, newest step %" PRIu64 "\n", kills, newest);
    assert_true(kills > RANDOM_KILLS / 2);
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
}

static void every_fault_point_plain(void **state) { (void)state, at_every_fault_point(STORE_PLAIN, false); }
static void every_fault_point_automatic(void **state) { (void)state, at_every_fault_point(STORE_AUTO, true); }
static void random_moments_plain(void **state) { (void)state, at_random_moments(STORE_PLAIN, true); }
static void random_moments_automatic(void **state) { (void)state, at_random_moments(STORE_AUTO, true); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fault_point_plain),
        cmocka_unit_test(every_fault_point_automatic),
        cmocka_unit_test(random_moments_plain),
        cmocka_unit_test(random_moments_automatic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
