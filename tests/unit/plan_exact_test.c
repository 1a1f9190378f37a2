/* What plan/plan.h promises of plan_exact, with every engine that is built in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kit/exact_kit.h"
#include "plan/exact.h"

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

static struct plan_exact_result solve_by(const struct exact_world *w,
                                         const struct plan_exact_options *options, bool engine_only) {
    struct ir_plan *seed = exact_some_plan(w, options->list.backward == PLAN_FUSED);
    struct plan_exact_result result;
    struct pawl_error e;
    pawl_code code = exact_make(w->route, &w->costs, seed, options, engine_only, &result, &e);
    if (code == PAWL_UNSUPPORTED) skip();
    exact_must(code, &e);
    assert_sound(w, seed, options->list.staggered, &result);
    ir_plan_free(seed);
    return result;
}

static struct plan_exact_result solve(const struct exact_world *w, const struct plan_exact_options *options) {
    return solve_by(w, options, false);
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

/* ---- brute force ---- */

struct brute {
    const struct exact_world *w;
    struct ir_plan *plan;
    bool staggered;
    uint64_t best;
    struct ir_memory memory;
};

static void brute_worker(struct brute *b, uint32_t worker);

/* Every order of the rest of the worker's list, from `at` on; R and S stay last. */
static void brute_orders(struct brute *b, uint32_t worker, uint32_t at) {
    struct ir_worker *list = &b->plan->workers[worker];
    if (at + 2 >= list->count) {
        brute_worker(b, worker + 1);
        return;
    }
    for (uint32_t i = at; i + 2 < list->count; i++) {
        struct ir_instruction moved = list->instructions[i];
        list->instructions[i] = list->instructions[at];
        list->instructions[at] = moved;
        bool fits = true; /* F before I before W */
        for (uint32_t k = at + 1; k + 2 < list->count && fits; k++) {
            const struct ir_instruction *later = &list->instructions[k];
            fits = later->home != moved.home || later->microbatch != moved.microbatch || later->op > moved.op;
        }
        if (fits) brute_orders(b, worker, at + 1);
        list->instructions[at] = list->instructions[i];
        list->instructions[i] = moved;
    }
}

static void brute_worker(struct brute *b, uint32_t worker) {
    if (worker < b->plan->pipelines * b->plan->stages) {
        brute_orders(b, worker, 0);
        return;
    }
    struct pawl_error e;
    if (ir_check(b->plan, &b->memory, NULL, &e) != PAWL_OK) return;
    struct sim_result times = {0};
    exact_must(sim_run(b->plan, &b->w->costs, b->staggered, NULL, &times, &e), &e);
    if (times.period < b->best) b->best = times.period;
    sim_result_close(&times);
}

static uint64_t least_of_all_orders(const struct exact_world *w, bool fused, bool staggered) {
    uint64_t *scratch = calloc((size_t)w->costs.chunks * 3, sizeof *scratch);
    struct brute b = {.w = w, .staggered = staggered, .best = UINT64_MAX};
    b.memory = exact_world_memory(&w->costs, scratch);
    b.plan = exact_one_by_one(w, fused);
    brute_worker(&b, 0);
    ir_plan_free(b.plan);
    free(scratch);
    return b.best;
}

/* Small enough for all orders: one chunk a stage, transfers, unequal workers, partial memory. */
static struct exact_world random_world(struct rng_stream *r, bool *fused) {
    static const uint32_t shapes[][3] = {{1, 2, 2}, {1, 3, 1}, {2, 2, 1}, {1, 1, 3},
                                         {2, 1, 1}, {3, 1, 1}, {4, 1, 1}};
    const uint32_t *shape = shapes[rng_below(r, 7)];
    struct exact_world w = exact_world_new(shape[0], shape[1], shape[2], ONES);
    uint64_t unit = rng_below(r, 2) == 0 ? 1 : 60; /* 60: halves to fifths of a unit would show */
    *fused = rng_below(r, 4) == 0;
    w.costs.slow = calloc((size_t)shape[0] * shape[1], sizeof *w.costs.slow);
    for (uint32_t i = 0; i < shape[0] * shape[1]; i++) w.costs.slow[i] = rng_below(r, 4) == 0 ? 1.5 : 1;
    for (uint32_t c = 0; c < w.costs.chunks; c++) {
        uint64_t full = 1 + rng_below(r, 4);
        w.costs.chunk[c] = (struct sim_chunk){.forward = unit * (1 + rng_below(r, 9)),
                                              .input_grad = unit * (1 + rng_below(r, 9)),
                                              .weight_grad = unit * (1 + rng_below(r, 9)),
                                              .send_forward = unit * rng_below(r, 4),
                                              .send_backward = unit * rng_below(r, 4),
                                              .reduce = unit * rng_below(r, 3),
                                              .step = unit * rng_below(r, 3),
                                              .full = full,
                                              .kept = full,
                                              .after_input = 1 + rng_below(r, full)};
    }
    if (shape[0] >= 2 && rng_below(r, 3) > 0) exact_world_kill(&w, 0, (uint32_t)rng_below(r, shape[1]));
    if (rng_below(r, 3) > 0) exact_world_limit(&w, 4 + rng_below(r, 5));
    return w;
}

static void assert_least(const struct exact_world *w, const struct plan_exact_options *o, bool engine_only,
                         uint64_t least, uint64_t seed) {
    struct plan_exact_result result = solve_by(w, o, engine_only);
    if (result.period != least || !result.proven)
        fail_msg("seed %llu, engine %d: period %llu, bound %llu, all orders %llu", (unsigned long long)seed,
                 o->engine, (unsigned long long)result.period, (unsigned long long)result.bound,
                 (unsigned long long)least);
    ir_plan_free(result.plan);
}

static void no_order_at_all_is_shorter_than_what_is_proven(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 250; seed++) {
        struct rng_stream r = {seed};
        bool fused;
        struct exact_world w = random_world(&r, &fused);
        bool staggered = rng_below(&r, 2) == 0;
        struct plan_exact_options o = options_of(PLAN_Z3, fused ? PLAN_FUSED : PLAN_SELECTIVE, staggered);
        uint64_t least = least_of_all_orders(&w, fused, staggered);
        assert_least(&w, &o, false, least, seed);
        assert_least(&w, &o, true, least, seed);
        o.engine = PLAN_CBC;
        if (seed % 4 == 0) assert_least(&w, &o, true, least, seed);
        exact_world_close(&w);
    }
}

/* Too many orders to try them all: the engines must agree. Two jobs of other pipelines on a worker, so that
 * memory is a sum there. */
static void all_ways_agree_where_memory_is_a_sum(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 16; seed++) {
        struct rng_stream r = {seed};
        uint64_t times[3] = {1 + rng_below(&r, 4), 1 + rng_below(&r, 4), 1 + rng_below(&r, 4)};
        struct exact_world w = exact_world_new(2, 2, 2, times);
        for (uint32_t c = 0; c < 2; c++) {
            w.costs.chunk[c].full = w.costs.chunk[c].kept = 3;
            w.costs.chunk[c].after_input = 1 + rng_below(&r, 3);
        }
        exact_world_kill(&w, 0, (uint32_t)rng_below(&r, 2));
        if (seed % 3 == 0) w.route->host[plan_route_cell(w.route, 1, 1, 0)] = 2; /* the stage before helps */
        exact_world_limit(&w, (seed % 3 == 0 ? 6 : 4) + rng_below(&r, 5));
        struct plan_exact_options o = options_of(PLAN_Z3, PLAN_SPLIT, rng_below(&r, 2) == 0);
        o.free_route = rng_below(&r, 3) == 0;
        struct plan_exact_result branched = solve_by(&w, &o, false), z3 = solve_by(&w, &o, true);
        o.engine = PLAN_CBC;
        o.time_limit_s = 1; /* of some it proves nothing in a minute */
        struct plan_exact_result cbc = solve_by(&w, &o, true);
        if (!branched.proven || branched.period != z3.period || branched.bound != z3.bound ||
            cbc.period < z3.period || cbc.bound > z3.bound)
            fail_msg("seed %llu: branching %llu, z3 %llu, cbc %llu", (unsigned long long)seed,
                     (unsigned long long)branched.period, (unsigned long long)z3.period,
                     (unsigned long long)cbc.period);
        ir_plan_free(branched.plan);
        ir_plan_free(z3.plan);
        ir_plan_free(cbc.plan);
        exact_world_close(&w);
    }
}

/* ---- limits of the run ---- */

/* Three pipelines, little memory, staggered: nobody has proven it within minutes. */
static struct exact_world hard(void) {
    struct exact_world w = failed(3, 6, 2);
    exact_world_limit(&w, 4);
    return w;
}

struct told {
    uint32_t calls;
    uint64_t best, bound;
    bool *stop; /* raised at the first call; or null */
};

static void hear(void *context, uint64_t best, uint64_t bound, double seconds) {
    struct told *t = context;
    assert_true(seconds >= 0);
    assert_true(bound <= best);
    if (t->calls > 0) assert_true(best <= t->best && bound >= t->bound);
    t->calls++;
    t->best = best;
    t->bound = bound;
    if (t->stop != NULL) *t->stop = true;
}

static void the_time_limit_ends_a_hard_search_without_a_false_proof(enum plan_engine engine) {
    struct told told = {0};
    struct plan_exact_options o = options_of(engine, PLAN_SPLIT, true);
    o.time_limit_s = 0.4;
    o.progress = hear;
    o.context = &told;
    struct exact_world w = hard();
    struct plan_exact_result result = solve(&w, &o);
    assert_false(result.proven);
    assert_true(result.bound >= 27);
    assert_true(told.calls > 0);
    assert_int_equal(told.best, result.period);
    ir_plan_free(result.plan);
    exact_world_close(&w);
}

static void z3_ends_in_time(void **state) {
    (void)state;
    the_time_limit_ends_a_hard_search_without_a_false_proof(PLAN_Z3);
}

static void cbc_ends_in_time(void **state) {
    (void)state;
    the_time_limit_ends_a_hard_search_without_a_false_proof(PLAN_CBC);
}

static void a_stop_that_is_raised_before_returns_the_seed(void **state) {
    (void)state;
    bool stop = true;
    struct plan_exact_options o = options_of(PLAN_Z3, PLAN_SPLIT, true);
    o.time_limit_s = 3600;
    o.list.stop = &stop;
    o.bound = 20;
    struct exact_world w = hard();
    struct ir_plan *seed = exact_some_plan(&w, false);
    struct sim_result times = {0};
    struct pawl_error e;
    exact_must(sim_run(seed, &w.costs, true, NULL, &times, &e), &e);
    struct plan_exact_result result = solve(&w, &o);
    assert_int_equal(result.period, times.period);
    assert_int_equal(result.bound, 20);
    assert_false(result.proven);
    sim_result_close(&times);
    ir_plan_free(seed);
    ir_plan_free(result.plan);
    exact_world_close(&w);
}

static void a_stop_on_the_way_keeps_the_best_and_the_bound_so_far(void **state) {
    (void)state;
    bool stop = false;
    struct told told = {.stop = &stop};
    struct plan_exact_options o = options_of(PLAN_Z3, PLAN_SPLIT, true);
    o.time_limit_s = 3600;
    o.list.stop = &stop;
    o.progress = hear;
    o.context = &told;
    struct exact_world w = hard();
    struct plan_exact_result result = solve(&w, &o);
    assert_int_equal(told.calls, 1);
    assert_int_equal(result.bound, told.bound);
    assert_int_equal(result.period, told.best);
    assert_false(result.proven);
    ir_plan_free(result.plan);
    exact_world_close(&w);
}

static void a_seed_at_the_bound_is_proven_without_a_search(void **state) {
    (void)state;
    struct told told = {0};
    struct exact_world w = exact_world_new(1, 4, 8, ONES);
    struct plan_exact_options o = options_of(PLAN_Z3, PLAN_SPLIT, false);
    o.bound = 27;
    o.progress = hear;
    o.context = &told;
    assert_optimum(w, &o, 27);
    assert_int_equal(told.calls, 0);
}

/* ---- what a plan may do ---- */

static void a_poor_seed_is_improved_to_the_optimum(void **state) {
    (void)state;
    struct exact_world w = limited(4, 8, UNEVEN, 5);
    struct ir_plan *seed = exact_one_by_one(&w, false);
    struct plan_exact_options o = options_of(PLAN_Z3, PLAN_SPLIT, false);
    struct plan_exact_result result;
    struct pawl_error e;
    pawl_code code = plan_exact(w.route, &w.costs, seed, &o, &result, &e);
    if (code == PAWL_UNSUPPORTED) skip();
    exact_must(code, &e);
    assert_sound(&w, seed, false, &result);
    assert_int_equal(result.period, 63);
    assert_true(result.proven);
    ir_plan_free(result.plan);
    ir_plan_free(seed);
    exact_world_close(&w);
}

static uint32_t count_of(const struct ir_plan *plan, enum ir_op op) {
    uint32_t count = 0;
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++)
        for (uint32_t i = 0; i < plan->workers[w].count; i++)
            count += plan->workers[w].instructions[i].op == op;
    return count;
}

static void selective_is_as_short_as_split_and_fuses_where_that_costs_nothing(void **state) {
    (void)state;
    struct exact_world w = limited(4, 8, UNEVEN, 5);
    struct plan_exact_options o = options_of(PLAN_Z3, PLAN_SELECTIVE, false);
    struct plan_exact_result result = solve(&w, &o);
    assert_int_equal(result.period, 63);
    assert_int_equal(count_of(result.plan, IR_B) + count_of(result.plan, IR_I), 32);
    assert_int_equal(count_of(result.plan, IR_W), count_of(result.plan, IR_I));
    assert_true(count_of(result.plan, IR_B) > 0);
    ir_plan_free(result.plan);
    exact_world_close(&w);
}

/* All orphans at one peer: 2 x 3 micro-batches there. Free, they go half and half. */
static void a_free_route_moves_orphans_to_the_peer_that_has_time(void **state) {
    (void)state;
    for (int engine = PLAN_Z3; engine <= PLAN_CBC; engine++) {
        for (int free_route = 0; free_route < 2; free_route++) {
            struct exact_world w = exact_world_new(3, 2, 2, ONES);
            exact_world_kill(&w, 1, 1);
            for (uint32_t i = 0; i < 2; i++) w.route->host[plan_route_cell(w.route, 1, 1, i)] = 1;
            struct plan_exact_options o = options_of((enum plan_engine)engine, PLAN_SPLIT, true);
            o.free_route = free_route != 0;
            assert_optimum(w, &o, free_route ? 9 : 12);
        }
    }
}

/* A plan may need less memory by recomputing: then what the model proves is no bound for all plans. */
static void where_recomputation_is_allowed_only_the_given_bound_counts(void **state) {
    (void)state;
    struct exact_world w = limited(4, 8, UNEVEN, 10);
    for (uint32_t c = 0; c < 4; c++) {
        w.costs.chunk[c].full = w.costs.chunk[c].after_input = 2;
        w.costs.chunk[c].kept = 1;
    }
    struct plan_exact_options o = options_of(PLAN_Z3, PLAN_SPLIT, false);
    o.bound = 50;
    o.list.recompute = true;
    struct plan_exact_result result = solve(&w, &o);
    assert_int_equal(result.period, 63);
    assert_int_equal(result.bound, 50);
    assert_false(result.proven);
    ir_plan_free(result.plan);
    exact_world_close(&w);
}

/* ---- bad input ---- */

static void assert_refused(struct exact_world *w, const struct plan_exact_options *o, struct ir_plan *seed,
                           pawl_code want, const char *words) {
    struct plan_exact_result result;
    struct pawl_error e = {0};
    pawl_code code = plan_exact(w->route, &w->costs, seed, o, &result, &e);
    assert_string_equal(pawl_code_name(code), pawl_code_name(want));
    if (strstr(e.text, words) == NULL) fail_msg("had \"%s\", wanted \"%s\"", e.text, words);
    assert_null(result.plan);
    ir_plan_free(seed);
    exact_world_close(w);
}

/* If not, the error names the package. */
static bool is_built_in(enum plan_engine engine, const char *package) {
    struct exact_world w = exact_world_new(1, 2, 3, ONES);
    struct ir_plan *seed = exact_some_plan(&w, false);
    struct plan_exact_options o = options_of(engine, PLAN_SPLIT, false);
    struct plan_exact_result result;
    struct pawl_error e;
    pawl_code code = plan_exact(w.route, &w.costs, seed, &o, &result, &e);
    if (code == PAWL_UNSUPPORTED && strstr(e.text, package) == NULL) fail_msg("had \"%s\"", e.text);
    if (code != PAWL_UNSUPPORTED) exact_must(code, &e);
    ir_plan_free(result.plan);
    ir_plan_free(seed);
    exact_world_close(&w);
    return code == PAWL_OK;
}

static void bad_input_is_named(void **state) {
    (void)state;
    if (!is_built_in(PLAN_Z3, "libz3-dev")) skip();
    struct plan_exact_options o = options_of(PLAN_Z3, PLAN_SPLIT, false);
    struct exact_world w = exact_world_new(1, 2, 3, ONES);
    o.time_limit_s = 0;
    assert_refused(&w, &o, exact_some_plan(&w, false), PAWL_ARGUMENT, "time limit of 0 s");
    o.time_limit_s = 1;
    w = exact_world_new(1, 2, 3, ONES);
    struct ir_plan *seed = exact_some_plan(&w, false);
    exact_world_limit(&w, 1);
    assert_refused(&w, &o, seed, PAWL_PLAN, "limit");
    w = exact_world_new(1, 2, 3, ONES);
    seed = exact_some_plan(&w, false);
    w.route->host[1] = 7;
    assert_refused(&w, &o, seed, PAWL_ARGUMENT, "no live host");
    w = exact_world_new(8, 8, 32, ONES);
    assert_refused(&w, &o, exact_one_by_one(&w, false), PAWL_UNSUPPORTED, "too many");
}

static void an_engine_that_is_not_built_in_names_the_package(void **state) {
    (void)state;
    is_built_in(PLAN_Z3, "libz3-dev");
    is_built_in(PLAN_CBC, "coinor-libcbc-dev");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(z3_proves_one_pipeline_of_four_stages_and_eight_micro_batches),
        cmocka_unit_test(cbc_proves_one_pipeline_of_four_stages_and_eight_micro_batches),
        cmocka_unit_test(z3_proves_pipelines_with_a_failed_worker),
        cmocka_unit_test(cbc_proves_pipelines_with_a_failed_worker),
        cmocka_unit_test(the_ablations_of_one_failure_are_proven_at_every_stage),
        cmocka_unit_test(no_order_at_all_is_shorter_than_what_is_proven),
        cmocka_unit_test(all_ways_agree_where_memory_is_a_sum),
        cmocka_unit_test(z3_ends_in_time),
        cmocka_unit_test(cbc_ends_in_time),
        cmocka_unit_test(a_stop_that_is_raised_before_returns_the_seed),
        cmocka_unit_test(a_stop_on_the_way_keeps_the_best_and_the_bound_so_far),
        cmocka_unit_test(a_seed_at_the_bound_is_proven_without_a_search),
        cmocka_unit_test(a_poor_seed_is_improved_to_the_optimum),
        cmocka_unit_test(selective_is_as_short_as_split_and_fuses_where_that_costs_nothing),
        cmocka_unit_test(a_free_route_moves_orphans_to_the_peer_that_has_time),
        cmocka_unit_test(where_recomputation_is_allowed_only_the_given_bound_counts),
        cmocka_unit_test(bad_input_is_named),
        cmocka_unit_test(an_engine_that_is_not_built_in_names_the_package),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
