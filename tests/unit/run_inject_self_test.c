/* What a fault does to the process that meets it, each in a child of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/net.h"
#include "run/inject_self.h"
#include "store/store.h"

static char dir[] = PAWL_BINARY_DIR "/inject-self-XXXXXX";

static int begin(void **state) {
    (void)state;
    return mkdtemp(dir) == NULL ? -1 : 0;
}

static int end(void **state) {
    (void)state;
    char command[sizeof dir + 16];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    int failed = system(command);
    memcpy(dir + sizeof dir - 7, "XXXXXX", 6);
    return failed;
}

static bool was_noted(const char *text) {
    struct inject_set set;
    assert_int_equal(inject_set_open(&text, 1, NULL, &set, NULL), PAWL_OK);
    assert_int_equal(inject_set_read(&set, dir, NULL), PAWL_OK);
    bool fired = set.items[0].fired;
    inject_set_close(&set);
    return fired;
}

static struct inject_self *with(const struct inject_targets *targets, const char *text) {
    struct inject_self *s = NULL;
    assert_int_equal(inject_self_new(dir, targets, &s, NULL), PAWL_OK);
    assert_int_equal(inject_self_add(s, text, NULL), PAWL_OK);
    return s;
}

/* A child that begins at `version` and passes the point twice; exit code 3 when nothing ended it. */
static pid_t start_passing(const char *text, uint64_t version, enum fault_point point) {
    pid_t child = fork();
    if (child != 0) return child;
    struct inject_self *s = with(NULL, text);
    inject_self_at(s, version);
    fault_arrive(point);
    fault_arrive(point);
    inject_self_free(s);
    _exit(3);
}

static int status_after(const char *text, uint64_t version, enum fault_point point) {
    int status = 0;
    pid_t child = start_passing(text, version, point);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static bool was_killed(int status, int signal) { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }
static bool was_spared(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 3; }

static void a_kill_waits_for_its_step_and_its_point_and_is_noted_first(void **state) {
    (void)state;
    assert_true(was_spared(status_after("kill:0@3:reduce", 1, FAULT_REDUCE_SENT)));
    assert_true(was_spared(status_after("kill:0@3:reduce", 2, FAULT_AFTER_FORWARD)));
    assert_false(was_noted("kill:0@3:reduce"));
    assert_true(was_killed(status_after("kill:0@3:reduce", 2, FAULT_REDUCE_SENT), SIGKILL));
    assert_true(was_noted("kill:0@3:reduce"));
    assert_true(was_killed(status_after("kill:0@3", 7, FAULT_AFTER_FORWARD), SIGKILL)); /* came late */
}

static void term_and_the_coordinators_end_are_their_signals(void **state) {
    (void)state;
    assert_true(was_killed(status_after("term:0@1", 0, FAULT_AFTER_FORWARD), SIGTERM));
    assert_true(was_killed(status_after("coord@1:coord-plan", 0, FAULT_COORD_PLAN), SIGKILL));
}

static void a_process_that_stops_itself_is_continued(void **state) {
    (void)state;
    int status = 0;
    pid_t child = start_passing("stop:0@1:0.05", 0, FAULT_AFTER_FORWARD);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(was_spared(status));
    assert_true(was_noted("stop:0@1:0.05"));
}

/* What would continue it holds no descriptor of it, and goes with it. */
static void a_stopped_process_that_is_killed_leaves_nothing_behind(void **state) {
    (void)state;
    int status = 0, ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); /* what it leaves behind becomes ours */
    pid_t child = start_passing("stop:0@1:1000", 0, FAULT_AFTER_FORWARD);
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(read(ends[0], &byte, 1), 0); /* else these block for a quarter of an hour */
    assert_true(waitpid(-1, &status, 0) > 0);
    assert_true(was_killed(status, SIGKILL) || status == 0); /* it may have found itself alone before */
    assert_int_equal(waitpid(-1, &status, 0), -1);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    close(ends[0]);
}

static void two_faults_at_one_point_both_happen_and_the_end_comes_last(void **state) {
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        struct inject_self *s = with(NULL, "kill:0@1");
        if (inject_self_add(s, "slow:0@1:2", NULL) != PAWL_OK) _exit(4);
        inject_self_at(s, 0);
        fault_arrive(FAULT_AFTER_FORWARD);
        _exit(3);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(was_killed(status, SIGKILL));
    assert_true(was_noted("kill:0@1"));
    assert_true(was_noted("slow:0@1:2"));
}

static void *arrive(void *point) {
    fault_arrive(*(enum fault_point *)point);
    return NULL;
}

static void a_disk_fault_strikes_from_any_thread(void **state) {
    (void)state;
    char path[sizeof dir + 16];
    struct inject_targets targets = {.net = NULL};
    struct pawl_error e = {0};
    enum fault_point point = FAULT_SAVE_BEGIN;
    pthread_t thread;
    snprintf(path, sizeof path, "%s/store", dir);
    assert_int_equal(store_open(path, STORE_PLAIN, false, &targets.store, NULL, NULL), PAWL_OK);
    struct inject_self *s = with(&targets, "disk:0@1:ENOSPC:save-begin");
    inject_self_at(s, 0);
    assert_int_equal(store_put(targets.store, "a", "x", 1, &e), PAWL_OK);
    assert_int_equal(pthread_create(&thread, NULL, arrive, &point), 0);
    pthread_join(thread, NULL);
    assert_int_equal(store_put(targets.store, "a", "x", 1, &e), PAWL_NO_SPACE);
    assert_true(was_noted("disk:0@1:ENOSPC:save-begin"));
    inject_self_free(s);
    store_close(targets.store);
}

/* A pair of simulated ends, `from` of which is struck. */
struct wire {
    struct netsim *sim;
    struct net *from, *to;
    int64_t now_ns;
};

static void open_wire(struct wire *w) {
    size_t size;
    *w = (struct wire){.sim = netsim_new(1, (struct netsim_config){1, 2, 0})};
    w->from = netsim_open(w->sim, NULL);
    w->to = netsim_open(w->sim, NULL);
    assert_true(w->from != NULL && w->to != NULL);
    const void *address = net_address(w->to, &size);
    assert_int_equal(net_connect(w->from, 1, address, size, NULL), PAWL_OK);
}

/* Whether a message gets from one end to the other within a few steps of virtual time. */
static bool arrives(struct wire *w, uint64_t name) {
    static uint8_t out = 1, in;
    struct net_completion done;
    uint32_t heard = 0;
    assert_int_equal(net_recv(w->to, name, &in, 1, 1, NULL), PAWL_OK);
    assert_int_equal(net_send(w->from, 1, name, &out, 1, 2, NULL), PAWL_OK);
    for (int i = 0; i < 100; i++) {
        netsim_advance(w->sim, w->now_ns += 10);
        net_poll(w->from, &done, 1);
        heard += net_poll(w->to, &done, 1);
    }
    return heard > 0;
}

/* The network belongs to the owner's thread: a point that another passes waits for the owner's next poll. */
static void a_silence_begins_on_the_owners_thread_and_ends_by_itself(void **state) {
    (void)state;
    struct wire w;
    open_wire(&w);
    struct inject_targets targets = {.net = w.from};
    struct inject_self *s = with(&targets, "net:0@1:0.2:save-begin");
    enum fault_point point = FAULT_SAVE_BEGIN;
    pthread_t thread;
    inject_self_at(s, 0);
    inject_self_poll(s);
    assert_true(arrives(&w, 1));
    assert_int_equal(pthread_create(&thread, NULL, arrive, &point), 0);
    pthread_join(thread, NULL);
    assert_true(was_noted("net:0@1:0.2:save-begin"));
    assert_true(arrives(&w, 2)); /* not touched from there */
    inject_self_poll(s);
    int64_t begin = clock_now_ns();
    assert_false(arrives(&w, 3));
    while (clock_now_ns() - begin < 200000000) inject_self_poll(s);
    inject_self_poll(s);
    assert_true(arrives(&w, 4));
    inject_self_free(s);
    net_close(w.from);
    net_close(w.to);
    netsim_free(w.sim);
}

static void a_freed_one_strikes_no_more(void **state) {
    (void)state;
    struct inject_self *s = with(NULL, "kill:0@1");
    inject_self_at(s, 0);
    inject_self_free(s);
    fault_arrive(FAULT_AFTER_FORWARD);
    assert_false(was_noted("kill:0@1"));
}

static void what_is_no_fault_of_a_process_is_refused(void **state) {
    (void)state;
    struct inject_self *s = NULL;
    assert_int_equal(inject_self_new(dir, NULL, &s, NULL), PAWL_OK);
    static const char *const wrong[] = {"",       "kill:0",          "kill:all@1",
                                        "join@1", "term:launcher@1", "random:1:1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(inject_self_add(s, wrong[i], NULL), PAWL_FORMAT);
    inject_self_free(s);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(a_kill_waits_for_its_step_and_its_point_and_is_noted_first),
        TEST(term_and_the_coordinators_end_are_their_signals),
        TEST(a_process_that_stops_itself_is_continued),
        TEST(a_stopped_process_that_is_killed_leaves_nothing_behind),
        TEST(two_faults_at_one_point_both_happen_and_the_end_comes_last),
        TEST(a_disk_fault_strikes_from_any_thread),
        TEST(a_silence_begins_on_the_owners_thread_and_ends_by_itself),
        TEST(a_freed_one_strikes_no_more),
        TEST(what_is_no_fault_of_a_process_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
