/* PCcheck's goodput table: its twelve figures from its formula, its measured throughputs and its trace as
 * recorded; and the replay of the same trace keeps to the bounds that the policies promise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kit/tune_kit.h"
#include "tune/goodput.h"

static struct trace load(const char *name) {
    char path[400];
    size_t size;
    struct trace t;
    struct pawl_error e = {0};
    snprintf(path, sizeof path, "%s/bench/traces/%s", PAWL_SOURCE_DIR, name);
    char *text = kit_read(path, &size);
    if (trace_parse(text, size, &t, &e) != PAWL_OK) fail_msg("%s: %s", name, e.text);
    free(text);
    return t;
}

static void pccheck_s_twelve_figures_come_out_of_its_trace(void **state) {
    (void)state;
    static const double wanted[GOODPUT_SYSTEMS][GOODPUT_INTERVALS] = {
        {15.690597341199657, 2.9218082347356775, 6.976672784383198, 11.999707338861933},
        {15.703728423111512, 6.620947425543189, 10.322307257580645, 12.877309632420706},
        {15.71704474516446, 6.29114014126634, 14.090085346725347, 15.320044894926651},
        {15.71704474516446, 15.698130637465306, 15.669759475916575, 15.622474206668688},
    };
    struct trace t = load("gpus_trace.csv");
    assert_int_equal(trace_changes(&t), 51);
    assert_near(trace_seconds(&t), 13482, 0);
    for (int system = 0; system < GOODPUT_SYSTEMS; system++)
        for (uint32_t at = 0; at < GOODPUT_INTERVALS; at++)
            assert_near(
                goodput_formula((enum goodput_system)system, at, trace_changes(&t), trace_seconds(&t)),
                wanted[system][at], 1e-12);
    trace_free(&t);
}

static void the_trace_has_24_drops_before_its_recording_ends(void **state) {
    (void)state;
    struct trace t = load("gpus_trace.csv");
    double *times = NULL, end_s = 0;
    uint32_t drops = 0;
    assert_int_equal(t.count, 215);
    assert_int_equal(trace_drops(&t, &times, &drops, &end_s, NULL), PAWL_OK);
    assert_int_equal(drops, 24); /* 26, less the fall 48 -> 15 -> 0 at the end */
    assert_near(end_s, 63 * 207, 1e-12);
    assert_near(times[0], 63 * 10, 1e-12); /* 56 x 10, then 36 */
    free(times);
    trace_free(&t);
    t = load("p3-trace.csv");
    assert_int_equal(t.count, 344);
    assert_int_equal(trace_drops(&t, &times, &drops, &end_s, NULL), PAWL_OK);
    assert_int_equal(drops, 79);
    free(times);
    trace_free(&t);
}

static struct replay_result replay(enum goodput_policy policy, uint64_t every) {
    struct trace t = load("gpus_trace.csv");
    struct goodput_job job = goodput_vgg16();
    struct replay_result r;
    struct pawl_error e = {0};
    if (goodput_replay(&job, policy, every, &t, &r, &e) != PAWL_OK) fail_msg("replay: %s", e.text);
    trace_free(&t);
    return r;
}

static void replayed_losses_keep_to_the_worst_case_of_each_policy(void **state) {
    (void)state;
    struct goodput_job job = goodput_vgg16();
    double t = job.iteration_s, service = job.bytes / job.disk_bps;
    for (uint64_t every = 10; every <= 100; every *= 10) {
        struct replay_result sync = replay(POLICY_SYNC, every), one = replay(POLICY_CHECKFREQ, every),
                             many = replay(POLICY_PAWL, every);
        double interval = (double)every * t, queue = fmax(interval, service);
        assert_int_equal(sync.failures, 24);
        /* The state lost began at a save's begin; it takes its interval and its writing to be replaced. */
        assert_true(sync.lost_s_max <=
                    interval + 2 * (service + job.bytes / job.copy_bps) + job.load_s + 1e-9);
        /* A state waits for a save to end, is written (beside others), and is the newest until the next. */
        double copies = 3 * job.bytes / job.copy_bps;
        assert_true(one.lost_s_max <= 3 * queue + job.load_s + copies);
        assert_true(many.lost_s_max <= 2 * queue + job.in_flight * service + job.load_s + copies);
        assert_true(many.goodput > one.goodput);
        assert_true(one.goodput > sync.goodput);
        assert_true(many.goodput < 1 / t);
    }
}

static void the_adaptive_policy_is_as_good_as_the_best_fixed_interval_within_3_percent(void **state) {
    (void)state;
    struct replay_result adaptive = replay(POLICY_PAWL_ADAPTIVE, 0);
    double best = 0;
    for (uint64_t every = 1; every <= 200; every += every < 10 ? 1 : 10)
        best = fmax(best, replay(POLICY_PAWL, every).goodput);
    print_message("adaptive %.4f, best fixed %.4f\n", adaptive.goodput, best);
    assert_true(adaptive.goodput > 0.97 * best);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pccheck_s_twelve_figures_come_out_of_its_trace),
        cmocka_unit_test(the_trace_has_24_drops_before_its_recording_ends),
        cmocka_unit_test(replayed_losses_keep_to_the_worst_case_of_each_policy),
        cmocka_unit_test(the_adaptive_policy_is_as_good_as_the_best_fixed_interval_within_3_percent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
