/* What plan/plan.h promises of plan_exact, with every engine that is built in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kit/exact_kit.h"

static const uint64_t ONES[3] = {1, 1, 1}, UNEVEN[3] = {2, 3, 2}, LARGE[3] = {137, 211, 119};

static struct plan_exact_options options_of(enum plan_engine engine, enum plan_backward backward,
                                            bool staggered) {
    return (struct plan_exact_options){
        .engine = engine, .time_limit_s = 20, .list = {.backward = backward, .staggered = staggered}};
}

/* The plan passes the checker with the limits, takes what is claimed, and no more than the seed. */
static void assert_sound(const struct exact_world *w, const struct ir_plan *seed, bool staggered,
                         const struct plan_exact_result *result) {
    uint64_t *scratch = calloc((size_t)w->costs.chunks * 3, sizeof *scratch);
    struct ir_memory memory = exact_world_memory(&w->costs, scratch);
    struct sim_result times = {0}, before = {0};
    struct pawl_error e;
    if (ir_check(result->plan, &memory, NULL, &e) != PAWL_OK) fail_msg("%s", e.text);
    exact_must(sim_run(result->plan, &w->costs, staggered, NULL, &times, &e), &e);
    exact_must(sim_run(seed, &w->costs, staggered, NULL, &before, &e), &e);
    assert_int_equal(times.period, result->period);
    assert_true(result->period <= before.period);
    assert_true(result->bound <= result->period);
    assert_int_equal(result->proven, result->bound == result->period);
    sim_result_close(&times);
    sim_result_close(&before);
    free(scratch);
}

static struct plan_exact_result solve(const struct exact_world *w, const struct plan_exact_options *options) {
    struct ir_plan *seed = exact_some_plan(w, options->list.backward == PLAN_FUSED);
    struct plan_exact_result result;
    struct pawl_error e;
    pawl_code code = plan_exact(w->route, &w->costs, seed, options, &result, &e);
    if (code == PAWL_UNSUPPORTED) skip();
    exact_must(code, &e);
    assert_sound(w, seed, options->list.staggered, &result);
    ir_plan_free(seed);
    return result;
}

static void assert_optimum(struct exact_world w, const struct plan_exact_options *options, uint64_t period) {
    struct plan_exact_result result = solve(&w, options);
    assert_int_equal(result.period, period);
    assert_true(result.proven);
    ir_plan_free(result.plan);
    exact_world_close(&w);
}

static struct exact_world limited(uint32_t stages, uint32_t microbatches, const uint64_t times[3],
                                  uint64_t limit) {
    struct exact_world w = exact_world_new(1, stages, microbatches, times);
    exact_world_limit(&w, limit);
    return w;
}

static struct exact_world failed(uint32_t pipelines, uint32_t microbatches, uint32_t stage) {
    struct exact_world w = exact_world_new(pipelines, 4, microbatches, ONES);
    exact_world_kill(&w, pipelines > 2 ? 1 : 0, stage);
    return w;
}

static void one_pipeline_is_proven(enum plan_engine engine) {
    struct plan_exact_options split = options_of(engine, PLAN_SPLIT, false);
    assert_optimum(exact_world_new(1, 4, 8, ONES), &split, 27);
    assert_optimum(limited(4, 8, UNEVEN, 5), &split, 63);
    assert_optimum(limited(4, 8, LARGE, 5), &split, 4304);
    assert_optimum(exact_world_new(1, 4, 8, LARGE), &split, 4147);
}

static void z3_proves_one_pipeline_of_four_stages_and_eight_micro_batches(void **state) {
    (void)state;
    one_pipeline_is_proven(PLAN_Z3);
}

static void cbc_proves_one_pipeline_of_four_stages_and_eight_micro_batches(void **state) {
    (void)state;
    one_pipeline_is_proven(PLAN_CBC);
}

static void rerouted_pipelines_are_proven(enum plan_engine engine) {
    struct plan_exact_options split = options_of(engine, PLAN_SPLIT, false);
    assert_optimum(failed(2, 8, 2), &split, 50);
    assert_optimum(failed(3, 8, 2), &split, 38);
}

static void z3_proves_pipelines_with_a_failed_worker(void **state) {
    (void)state;
    rerouted_pipelines_are_proven(PLAN_Z3);
}

static void cbc_proves_pipelines_with_a_failed_worker(void **state) {
    (void)state;
    rerouted_pipelines_are_proven(PLAN_CBC);
}

/* D=3, P=4, M=6, one worker of the stage dead: fused with a barrier, split with a barrier, staggered. */
static void the_ablations_of_one_failure_are_proven_at_every_stage(void **state) {
    (void)state;
    static const uint64_t fused[4] = {29, 30, 33, 36}, split[4] = {27, 28, 29, 30};
    for (uint32_t stage = 0; stage < 4; stage++) {
        struct plan_exact_options o = options_of(PLAN_Z3, PLAN_FUSED, false);
        if (stage > 0) assert_optimum(failed(3, 6, stage), &o, fused[stage]);
        o.list.backward = PLAN_SPLIT;
        assert_optimum(failed(3, 6, stage), &o, split[stage]);
        o.list.backward = PLAN_SELECTIVE;
        o.list.staggered = true;
        assert_optimum(failed(3, 6, stage), &o, 27);
    }
}
