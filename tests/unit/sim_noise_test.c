/* Iterations in a row, with noise and without. */
#include "sim_plans.h"

#include <math.h>

#define ITERATIONS 300u

/* Mean distance of the second half, where the start does not show any more. */
static double mean_distance(const uint64_t *ends) {
    return (double)(ends[ITERATIONS - 1] - ends[ITERATIONS / 2 - 1]) / (ITERATIONS - ITERATIONS / 2);
}

static struct world plain_world(struct rng_stream *r, uint64_t most) {
    struct world_shape shape = world_random_shape(r);
    shape.per_stage = 1;
    shape.helpers = false;
    return world_new(&shape, most, true, r);
}

static void iterations_in_a_row_tend_to_the_period(void **state) {
    (void)state;
    struct rng_stream r = {21};
    for (int turn = 0; turn < 100; turn++) {
        struct world w = plain_world(&r, 1000000);
        struct pawl_error e = {0};
        struct sim_result times;
        uint64_t ends[ITERATIONS];
        must(sim_run(w.plan, &w.costs, true, NULL, &times, &e), &e);
        must(sim_iterations(w.plan, &w.costs, true, NULL, ITERATIONS, ends, &e), &e);
        double mean = mean_distance(ends), period = (double)times.period;
        if (fabs(mean - period) > 0.002 * period + 1)
            fail_msg("turn %d: mean %f, period %f", turn, mean, period);
        assert_int_equal(ends[0], times.makespan);
        sim_result_close(&times);
        world_free(&w);
    }
}

static uint64_t busiest(const struct world *w, const struct sim_result *times) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < w->plan->pipelines * w->plan->stages; i++)
        if (times->busy[i] > most) most = times->busy[i];
    return most;
}

static void they_take_no_longer_than_the_period_and_no_less_than_a_worker(void **state) {
    (void)state;
    struct rng_stream r = {22};
    for (int turn = 0; turn < 200; turn++) {
        struct world_shape shape = world_random_shape(&r);
        struct world w = world_new(&shape, 1000, false, &r);
        struct pawl_error e = {0};
        struct sim_result times;
        uint64_t ends[ITERATIONS];
        must(sim_run(w.plan, &w.costs, true, NULL, &times, &e), &e);
        must(sim_iterations(w.plan, &w.costs, true, NULL, ITERATIONS, ends, &e), &e);
        assert_true(ends[ITERATIONS - 1] <= times.makespan + (ITERATIONS - 1) * times.period);
        assert_true(ends[ITERATIONS - 1] >= ITERATIONS * busiest(&w, &times));
        sim_result_close(&times);
        world_free(&w);
    }
}

static void with_a_barrier_they_are_makespans_in_a_row(void **state) {
    (void)state;
    struct rng_stream r = {23};
    for (int turn = 0; turn < 50; turn++) {
        struct world_shape shape = world_random_shape(&r);
        struct world w = world_new(&shape, 1000, false, &r);
        struct pawl_error e = {0};
        struct sim_result times;
        uint64_t ends[5];
        must(sim_run(w.plan, &w.costs, false, NULL, &times, &e), &e);
        must(sim_iterations(w.plan, &w.costs, false, NULL, 5, ends, &e), &e);
        for (uint32_t i = 0; i < 5; i++) assert_int_equal(ends[i], (i + 1) * times.period);
        sim_result_close(&times);
        world_free(&w);
    }
}

/* One worker, one micro-batch: every iteration is F + I + W, each with its own factor. */
static struct world lone_world(void) {
    struct world_shape shape = {1, 1, 1, 1, false, false, false, false, false};
    struct rng_stream r = {1};
    struct world w = world_new(&shape, 1, true, &r);
    w.costs.chunk[0] = (struct sim_chunk){.forward = 1000000,
                                          .input_grad = 500000,
                                          .weight_grad = 500000,
                                          .full = 1,
                                          .kept = 1,
                                          .after_input = 1};
    return w;
}

static void jitter_has_mean_one_and_the_deviation_asked_for(void **state) {
    (void)state;
    enum { COUNT = 20000 };
    struct world w = lone_world();
    struct sim_noise noise = {.seed = 5, .jitter = 0.2};
    struct pawl_error e = {0};
    uint64_t *ends = calloc(COUNT, sizeof *ends);
    double sum = 0, squares = 0;
    w.costs.chunk[0].input_grad = w.costs.chunk[0].weight_grad = 0;
    must(sim_iterations(w.plan, &w.costs, false, &noise, COUNT, ends, &e), &e);
    for (uint32_t i = 0; i < COUNT; i++) {
        double factor = (double)(ends[i] - (i > 0 ? ends[i - 1] : 0)) / 1e6;
        sum += factor;
        squares += factor * factor;
    }
    double mean = sum / (double)COUNT, deviation = sqrt(squares / (double)COUNT - mean * mean);
    if (fabs(mean - 1) > 0.006) fail_msg("mean %f", mean); /* 4 deviations of the mean */
    if (fabs(deviation - 0.2) > 0.006) fail_msg("deviation %f", deviation);
    free(ends);
    world_free(&w);
}

static void noise_follows_from_its_seed_alone(void **state) {
    (void)state;
    struct rng_stream r = {24};
    struct world w = plain_world(&r, 1000000);
    struct sim_noise noise = {.seed = 1, .jitter = 0.1}, other = {.seed = 2, .jitter = 0.1};
    struct pawl_error e = {0};
    uint64_t a[50], b[50], c[50];
    must(sim_iterations(w.plan, &w.costs, true, &noise, 50, a, &e), &e);
    must(sim_iterations(w.plan, &w.costs, true, &noise, 50, b, &e), &e);
    must(sim_iterations(w.plan, &w.costs, true, &other, 50, c, &e), &e);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, c, sizeof a);
    world_free(&w);
}

static void a_straggler_takes_its_factor_longer(void **state) {
    (void)state;
    struct world w = lone_world();
    double factor = 1.75;
    struct sim_noise noise = {.straggler = &factor};
    struct pawl_error e = {0};
    struct sim_result times;
    must(sim_run(w.plan, &w.costs, true, &noise, &times, &e), &e);
    assert_int_equal(times.period, 3500000);
    assert_int_equal(times.busy[0], 3500000);
    sim_result_close(&times);
    world_free(&w);
}

static void noise_that_is_no_noise_is_refused(void **state) {
    (void)state;
    struct world w = lone_world();
    double factor = -1;
    struct sim_noise wrong[] = {{.jitter = -0.1}, {.jitter = (double)NAN}, {.straggler = &factor}};
    struct pawl_error e = {0};
    struct sim_result times;
    uint64_t end;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(sim_run(w.plan, &w.costs, true, &wrong[i], &times, &e), PAWL_ARGUMENT);
        assert_int_equal(sim_iterations(w.plan, &w.costs, true, &wrong[i], 1, &end, &e), PAWL_ARGUMENT);
    }
    world_free(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(iterations_in_a_row_tend_to_the_period),
        cmocka_unit_test(they_take_no_longer_than_the_period_and_no_less_than_a_worker),
        cmocka_unit_test(with_a_barrier_they_are_makespans_in_a_row),
        cmocka_unit_test(jitter_has_mean_one_and_the_deviation_asked_for),
        cmocka_unit_test(noise_follows_from_its_seed_alone),
        cmocka_unit_test(a_straggler_takes_its_factor_longer),
        cmocka_unit_test(noise_that_is_no_noise_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
