/* Pruning never loses a schedule: whatever plan there is, its times lie in the windows for its own period, in
 * every view, and its orders are not contradicted. And it refutes what head, load and tail refute. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kit/exact_kit.h"
#include "plan/exact.h"

static void assert_inside(const struct exact_model *m, const struct exact_state *s,
                          const struct exact_schedule *at, uint64_t seed) {
    for (uint32_t g = 0; g < m->group_count; g++) {
        struct exact_view v = exact_view(m, s, g);
        for (uint32_t n = 0; n < m->node_count; n++) {
            int64_t start = at->start[n] - at->start[m->groups[g].first];
            if (start < v.early[n] || start > v.late[n])
                fail_msg("seed %llu: node %u at %lld is outside %lld..%lld in view %u",
                         (unsigned long long)seed, n, (long long)start, (long long)v.early[n],
                         (long long)v.late[n], g);
        }
    }
    for (uint32_t i = 0; i < m->pair_count; i++) {
        const struct exact_pair *pair = &m->pairs[i];
        int order = s->order[pair->literal];
        int64_t a = at->start[pair->a], b = at->start[pair->b];
        if ((order > 0 && a > b) || (order < 0 && b > a))
            fail_msg("seed %llu: tasks %u and %u are put in the wrong order", (unsigned long long)seed,
                     pair->a, pair->b);
    }
}

/* The plan's times, by number in every class, against the windows for its period. */
static void assert_kept(const struct exact_world *w, const struct ir_plan *plan,
                        const struct plan_exact_options *o, uint64_t seed) {
    struct exact_model *m = NULL;
    struct exact_prune *prune = NULL;
    struct exact_state *s = NULL;
    struct exact_schedule at = {0};
    struct sim_result times = {0};
    struct pawl_error e;
    uint64_t period = 0;
    bool usable = false;
    exact_must(exact_model_new(w->route, &w->costs, o, &m, &e), &e);
    exact_must(exact_check(plan, &w->costs, o->list.staggered, &period, &times, &e), &e);
    exact_must(exact_seed(m, plan, &times, &at, &usable, &e), &e);
    exact_must(exact_prune_new(m, &prune, &e), &e);
    exact_must(exact_state_new(m, &s, &e), &e);
    assert_true(usable);
    if (!exact_prune_run(prune, exact_units(m, period), s))
        fail_msg("seed %llu: a period of %llu exists, but is refuted", (unsigned long long)seed,
                 (unsigned long long)period);
    assert_inside(m, s, &at, seed);
    exact_state_free(s);
    exact_prune_free(prune);
    exact_schedule_close(&at);
    sim_result_close(&times);
    exact_model_free(m);
}

static struct exact_world random_world(struct rng_stream *r) {
    uint32_t pipelines = 1 + (uint32_t)rng_below(r, 3), stages = 1 + (uint32_t)rng_below(r, 4);
    uint32_t microbatches = 1 + (uint32_t)rng_below(r, 6 / pipelines);
    static const uint64_t ones[3] = {1, 1, 1};
    struct exact_world w = exact_world_new(pipelines, stages, microbatches, ones);
    for (uint32_t c = 0; c < stages; c++) {
        uint64_t full = 1 + rng_below(r, 4);
        w.costs.chunk[c] = (struct sim_chunk){.forward = 1 + rng_below(r, 9),
                                              .input_grad = 1 + rng_below(r, 9),
                                              .weight_grad = 1 + rng_below(r, 9),
                                              .send_forward = rng_below(r, 4),
                                              .send_backward = rng_below(r, 4),
                                              .reduce = rng_below(r, 3),
                                              .step = rng_below(r, 3),
                                              .full = full,
                                              .kept = full,
                                              .after_input = 1 + rng_below(r, full)};
    }
    if (pipelines > 1 && rng_below(r, 3) > 0) exact_world_kill(&w, 0, (uint32_t)rng_below(r, stages));
    uint64_t one = 4; /* micro-batch must fit, with all its chunks on one worker */
    for (uint64_t i = 0; rng_below(r, 4) == 0 && i < 3; i++) { /* somebody of another stage helps */
        one = 16;
        uint64_t cell = rng_below(r, (uint64_t)pipelines * stages * microbatches);
        uint32_t helper = (uint32_t)rng_below(r, (uint64_t)pipelines * stages);
        if (w.route->alive[helper]) w.route->host[cell] = helper;
    }
    if (rng_below(r, 4) > 0) exact_world_limit(&w, one + rng_below(r, 6));
    return w;
}

static void the_windows_hold_every_plan_of_the_period(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct rng_stream r = {seed};
        struct exact_world w = random_world(&r);
        bool fused = rng_below(&r, 4) == 0;
        struct plan_exact_options o = {
            .time_limit_s = 1,
            .list = {.backward = fused ? PLAN_FUSED : PLAN_SPLIT, .staggered = rng_below(&r, 2) == 0}};
        struct ir_plan *greedy = exact_some_plan(&w, fused), *serial = exact_one_by_one(&w, fused);
        struct plan_exact_result best;
        struct pawl_error e;
        assert_kept(&w, greedy, &o, seed);
        assert_kept(&w, serial, &o, seed);
        pawl_code code = plan_exact(w.route, &w.costs, greedy, &o, &best, &e);
        if (code == PAWL_OK) assert_kept(&w, best.plan, &o, seed);
        ir_plan_free(best.plan);
        ir_plan_free(greedy);
        ir_plan_free(serial);
        exact_world_close(&w);
    }
}

/* The least period that pruning alone does not refute. */
static uint64_t least_kept(const struct exact_world *w, bool staggered) {
    struct plan_exact_options o = {.list = {.backward = PLAN_SPLIT, .staggered = staggered}};
    struct exact_model *m = NULL;
    struct exact_prune *prune = NULL;
    struct pawl_error e;
    uint64_t period = 0;
    exact_must(exact_model_new(w->route, &w->costs, &o, &m, &e), &e);
    exact_must(exact_prune_new(m, &prune, &e), &e);
    for (bool kept = false; !kept; period += !kept) {
        struct exact_state *s = NULL;
        exact_must(exact_state_new(m, &s, &e), &e);
        kept = exact_prune_run(prune, exact_units(m, period), s);
        exact_state_free(s);
    }
    exact_prune_free(prune);
    exact_model_free(m);
    return period;
}

static void head_load_tail_and_memory_are_refuted_without_a_search(void **state) {
    (void)state;
    static const uint64_t ones[3] = {1, 1, 1}, uneven[3] = {2, 3, 2}, large[3] = {137, 211, 119};
    struct exact_world w = exact_world_new(1, 4, 8, ones);
    assert_int_equal(least_kept(&w, false), 27); /* last stage: 3 before it, 24 of its own */
    assert_int_equal(least_kept(&w, true), 24);  /* staggered: its own alone */
    exact_world_close(&w);
    w = exact_world_new(1, 4, 8, uneven);
    exact_world_limit(&w, 5);
    assert_int_equal(least_kept(&w, false), 63);
    exact_world_close(&w);
    w = exact_world_new(1, 4, 8, large);
    exact_world_limit(&w, 5);
    assert_int_equal(least_kept(&w, false), 4304);
    exact_world_close(&w);
    w = exact_world_new(3, 4, 6, ones);
    exact_world_kill(&w, 1, 2);
    assert_int_equal(least_kept(&w, true), 27);
    exact_world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_windows_hold_every_plan_of_the_period),
        cmocka_unit_test(head_load_tail_and_memory_are_refuted_without_a_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
