/* Fault points: names, counting, and what they do to a process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"

static _Atomic int struck;
static void strike(enum fault_point point, void *context) {
    struck = (int)point;
    if (context != NULL) ++*(_Atomic int *)context;
}

static void a_point_strikes_at_the_nth_arrival_and_once(void **state) {
    (void)state;
    fault_arm_call(FAULT_SAVE_FLUSHED, 3, strike, NULL);
    for (int i = 1; i <= 5; i++) {
        struck = 0;
        fault_arrive(FAULT_SAVE_HEADER);
        fault_arrive(FAULT_SAVE_FLUSHED);
        assert_int_equal(struck, i == 3 ? FAULT_SAVE_FLUSHED : 0);
    }
}

static void points_are_armed_each_for_itself_and_disarmed_together(void **state) {
    (void)state;
    _Atomic int forwards = 0, reduces = 0;
    fault_arm_call(FAULT_AFTER_FORWARD, 1, strike, &forwards);
    fault_arm_call(FAULT_REDUCE_SENT, 1, strike, &reduces);
    fault_arrive(FAULT_AFTER_FORWARD);
    assert_int_equal(forwards, 1);
    assert_int_equal(reduces, 0);
    fault_arrive(FAULT_REDUCE_SENT);
    assert_int_equal(reduces, 1);
    fault_arm_call(FAULT_AFTER_FORWARD, 1, strike, &forwards);
    fault_arm_call(FAULT_REDUCE_SENT, 1, strike, &reduces);
    fault_arm(FAULT_NONE, 0);
    fault_arrive(FAULT_AFTER_FORWARD);
    fault_arrive(FAULT_REDUCE_SENT);
    assert_int_equal(forwards + reduces, 2);
}

static void arm_again(enum fault_point point, void *context) {
    ++*(_Atomic int *)context;
    fault_arm_call(point, 1, strike, context);
}

static void what_strikes_may_arm_its_own_point_again(void **state) {
    (void)state;
    _Atomic int times = 0;
    fault_arm_call(FAULT_GO, 1, arm_again, &times);
    for (int i = 0; i < 3; i++) fault_arrive(FAULT_GO);
    assert_int_equal(times, 2);
}

static void names_lead_back_to_their_points(void **state) {
    (void)state;
    assert_int_equal(fault_of_name("save-flushed"), FAULT_SAVE_FLUSHED);
    assert_int_equal(fault_of_name("none"), FAULT_NONE);
    assert_int_equal(fault_of_name("nothing"), FAULT_NONE);
    for (uint32_t p = 1; p < FAULT_COUNT; p++)
        assert_int_equal(fault_of_name(fault_name((enum fault_point)p)), p);
    assert_int_equal(fault_who(FAULT_SETTLE), FAULT_WHO_WORKER);
    assert_int_equal(fault_who(FAULT_COORD_PLAN), FAULT_WHO_COORD);
    assert_int_equal(fault_who(FAULT_LAUNCH_GO), FAULT_WHO_LAUNCH);
}

static int status_of_child_that_passes(int signal) {
    pid_t child = fork();
    if (child == 0) {
        if (signal == SIGKILL)
            fault_arm(FAULT_FENCED, 2);
        else
            fault_arm_signal(FAULT_FENCED, 2, signal);
        fault_arrive(FAULT_FENCED);
        fault_arrive(FAULT_FENCED);
        _exit(3);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    if (!WIFSTOPPED(status)) return status;
    kill(child, SIGCONT);
    int end = 0;
    assert_int_equal(waitpid(child, &end, 0), child);
    assert_true(WIFEXITED(end) && WEXITSTATUS(end) == 3); /* it went on where it was */
    return status;
}

static void a_process_kills_stops_or_ends_itself(void **state) {
    (void)state;
    int status = status_of_child_that_passes(SIGKILL);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    status = status_of_child_that_passes(SIGTERM);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    status = status_of_child_that_passes(SIGSTOP);
    assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
}

static void *arrive_often(void *context) {
    (void)context;
    for (int i = 0; i < 1000; i++) fault_arrive(FAULT_SAVE_BEGIN);
    return NULL;
}

static void of_many_threads_that_arrive_one_is_struck(void **state) {
    (void)state;
    _Atomic int times = 0;
    pthread_t threads[4];
    fault_arm_call(FAULT_SAVE_BEGIN, 1500, strike, &times);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, arrive_often, NULL), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(times, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_point_strikes_at_the_nth_arrival_and_once),
        cmocka_unit_test(points_are_armed_each_for_itself_and_disarmed_together),
        cmocka_unit_test(what_strikes_may_arm_its_own_point_again),
        cmocka_unit_test(names_lead_back_to_their_points),
        cmocka_unit_test(a_process_kills_stops_or_ends_itself),
        cmocka_unit_test(of_many_threads_that_arrive_one_is_struck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
