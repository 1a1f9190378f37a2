/* The interval: limits, closed forms, the best one for a failure rate against trying all, and the model
 * itself against a simulation of saves in flight. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <pawl/tune.h>

#include "kit/tune_kit.h"
#include "tune/replay.h"

static struct pawl_tune_interval interval_of(struct pawl_tune_rates r) {
    struct pawl_tune_interval i = {0};
    struct pawl_error e = {0};
    if (pawl_tune_interval(&r, &i, &e) != PAWL_OK) fail_msg("interval: %s", e.text);
    return i;
}

static void the_bandwidth_limit_is_the_least_interval_within_the_slow_down(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 8; n++)
        for (double tw = 0.01; tw < 100; tw *= 1.7) {
            struct pawl_tune_rates r = {.iteration_s = 0.06, .write_s = tw, .in_flight = n, .overhead = 0.03};
            struct pawl_tune_interval i = interval_of(r);
            assert_true(pawl_tune_slowdown(&r, i.every) <= 1.03 + 1e-9);
            assert_true(i.every == 1 || pawl_tune_slowdown(&r, i.every - 1) > 1.03);
            assert_int_equal(i.bound, i.every == 1 ? PAWL_BOUND_NONE : PAWL_BOUND_BANDWIDTH);
            assert_near(i.bandwidth_min, tw / (n * 1.03 * 0.06), 1e-12);
        }
}

static void a_stall_lengthens_the_interval_until_it_is_within_the_slow_down(void **state) {
    (void)state;
    struct pawl_tune_rates r = {
        .iteration_s = 0.1, .write_s = 0.5, .in_flight = 2, .overhead = 0.05, .stall_s = 0.052};
    struct pawl_tune_interval i = interval_of(r);
    assert_int_equal(i.every, 11); /* 0.052 / (0.05 * 0.1) = 10.4 */
    assert_int_equal(i.bound, PAWL_BOUND_STALL);
    assert_near(i.slowdown, 1 + 0.052 / 1.1, 1e-12);
}

static void vgg16_of_the_paper_gets_the_slow_down_that_its_formula_gives(void **state) {
    (void)state;
    struct pawl_tune_rates r = {.iteration_s = 0.0634, .write_s = 5.996, .in_flight = 4};
    assert_near(pawl_tune_slowdown(&r, 10), 2.364, 1e-3);
    assert_int_equal(interval_of(r).every, 23); /* 5.996 / (4 * 1.03 * 0.0634) = 22.95 */
}

static void losses_follow_the_recovery_formulas(void **state) {
    (void)state;
    struct pawl_tune_rates r = {.iteration_s = 0.5, .write_s = 9, .in_flight = 2, .load_s = 3};
    /* Tw < N f t: the whole Tw; else no more than N intervals. */
    assert_near(pawl_tune_lost_mean_s(&r, 20), 3 + 20 * 0.5 / 2 + 9.0 / 2, 1e-12);
    assert_near(pawl_tune_lost_worst_s(&r, 20), 3 + 20 * 0.5 + 9, 1e-12);
    assert_near(pawl_tune_lost_mean_s(&r, 4), 3 + 4 * 0.5 / 2 + 2 * 4 * 0.5 / 2, 1e-12);
    assert_near(pawl_tune_lost_worst_s(&r, 4), 3 + 4 * 0.5 + 2 * 4 * 0.5, 1e-12);
}

static void young_and_daly_are_those_of_the_stall(void **state) {
    (void)state;
    struct pawl_tune_rates r = {
        .iteration_s = 1, .write_s = 10, .in_flight = 2, .stall_s = 2, .mtbf_s = 3600, .load_s = 100};
    struct pawl_tune_interval i = interval_of(r);
    assert_near(i.young_s, 120, 1e-12);
    assert_near(i.daly_s, 2 + sqrt(2 * 3700 * 2.0 + 4), 1e-12);
    assert_int_equal(i.every, 120);
    assert_int_equal(i.bound, PAWL_BOUND_FAILURES);
}

static double cost(const struct pawl_tune_rates *r, uint64_t every) {
    return pawl_tune_slowdown(r, every) + pawl_tune_lost_mean_s(r, every) / r->mtbf_s;
}

static void with_failures_no_allowed_interval_loses_less(void **state) {
    (void)state;
    struct rng_stream s = {7};
    for (int round = 0; round < 3000; round++) {
        struct pawl_tune_rates r = {.iteration_s = 0.05 + (double)rng_below(&s, 100) / 50,
                                    .write_s = 0.1 * exp((double)rng_below(&s, 700) / 100),
                                    .in_flight = (uint32_t)rng_below(&s, 6) + 1,
                                    .stall_s = (double)rng_below(&s, 4) * (double)rng_below(&s, 100) / 100,
                                    .overhead = 0.01 + (double)rng_below(&s, 10) / 50,
                                    .mtbf_s = 60 * exp((double)rng_below(&s, 700) / 100),
                                    .load_s = (double)rng_below(&s, 100)};
        struct pawl_tune_interval i = interval_of(r);
        uint64_t least = (uint64_t)ceil(fmax(1, fmax(i.bandwidth_min, i.stall_min)) - 1e-6);
        assert_true(i.every >= least);
        for (uint64_t every = least; every < 3 * i.every + 100; every++)
            if (cost(&r, every) < cost(&r, i.every) * (1 - 1e-12))
                fail_msg("round %d: %lu costs %.12g, chosen %lu costs %.12g", round, (unsigned long)every,
                         cost(&r, every), (unsigned long)i.every, cost(&r, i.every));
    }
}

static void bad_rates_are_named(void **state) {
    (void)state;
    const struct pawl_tune_rates good = {.iteration_s = 1, .write_s = 1, .in_flight = 1};
    struct pawl_tune_rates bad[] = {good, good, good, good, good};
    const char *names[] = {"iteration_s", "write_s", "stall_s", "in_flight", "mtbf_s"};
    bad[0].iteration_s = 0;
    bad[1].write_s = NAN;
    bad[2].stall_s = -1;
    bad[3].in_flight = 0;
    bad[4].mtbf_s = INFINITY;
    for (int i = 0; i < 5; i++) {
        struct pawl_tune_interval out;
        struct pawl_error e = {0};
        assert_int_equal(pawl_tune_interval(&bad[i], &out, &e), PAWL_ARGUMENT);
        if (strstr(e.text, names[i]) == NULL) fail_msg("\"%s\" does not name %s", e.text, names[i]);
    }
}

/* ---- the model against the simulation ---- */

static double simulated(double t, double service, double speedup, uint32_t n, uint64_t every, double stall) {
    /* Long enough that the filling of the pipe at the start does not show. */
    struct replay_config c = {.seconds = 1000 * fmax(t * (double)every, n * service),
                              .iteration_s = t,
                              .service_s = service,
                              .speedup = speedup,
                              .in_flight = n,
                              .every = every,
                              .stall_s = stall};
    struct replay_result r;
    assert_int_equal(replay_run(&c, &r, NULL), PAWL_OK);
    assert_true(r.in_flight_max <= n);
    return r.slowdown;
}

static void the_model_is_within_2_percent_of_a_simulation(void **state) {
    (void)state;
    double worst = 0;
    for (uint32_t n = 1; n <= 4; n++)
        for (int shared = 0; shared <= 1; shared++)
            for (uint64_t every = 1; every <= 100; every = every * 2 + 1)
                for (double service = 0.02; service < 20; service *= 2.3) {
                    /* Shared: one save alone keeps the device busy. Else N are N times as fast. */
                    double tw = shared ? n * service : service, t = 0.06;
                    double model = fmax(1, tw / (n * (double)every * t));
                    double got = simulated(t, service, shared ? 1 : n, n, every, 0);
                    if (fabs(got / model - 1) > worst) worst = fabs(got / model - 1);
                    if (fabs(got / model - 1) > 0.02)
                        fail_msg("N %u, f %lu, service %g: simulated %g, model %g", n, (unsigned long)every,
                                 service, got, model);
                }
    print_message("largest difference %.2g\n", worst);
}

static void the_model_with_stalls_is_within_2_percent_of_a_simulation(void **state) {
    (void)state;
    for (uint64_t every = 1; every <= 50; every = every * 2 + 1)
        for (double stall = 0.01; stall < 2; stall *= 3) {
            struct pawl_tune_rates r = {
                .iteration_s = 0.06, .write_s = 1.2, .in_flight = 2, .stall_s = stall};
            assert_near(simulated(0.06, 0.6, 1, 2, every, stall), pawl_tune_slowdown(&r, every), 0.02);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bandwidth_limit_is_the_least_interval_within_the_slow_down),
        cmocka_unit_test(a_stall_lengthens_the_interval_until_it_is_within_the_slow_down),
        cmocka_unit_test(vgg16_of_the_paper_gets_the_slow_down_that_its_formula_gives),
        cmocka_unit_test(losses_follow_the_recovery_formulas),
        cmocka_unit_test(young_and_daly_are_those_of_the_stall),
        cmocka_unit_test(with_failures_no_allowed_interval_loses_less),
        cmocka_unit_test(bad_rates_are_named),
        cmocka_unit_test(the_model_is_within_2_percent_of_a_simulation),
        cmocka_unit_test(the_model_with_stalls_is_within_2_percent_of_a_simulation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
