/* What plan.h promises of work shared beyond a stage, against all amounts of small cases. */
#include "plan_case.h"

#include <stdio.h>
#include <string.h>

static struct plan_share share(const struct plan_case *c, uint32_t helpers, const uint64_t *room) {
    struct plan_share s;
    struct pawl_error e = {0};
    if (plan_share_route(&c->costs, plan_full(c->microbatches), c->alive, helpers, room, &s, &e) != PAWL_OK)
        fail_msg("%s", e.text);
    case_assert_whole(s.route);
    assert_in_range(s.helper_count, 0, helpers);
    assert_in_range(s.load, case_busiest(c, s.route), UINT64_MAX); /* more where R of others must wait */
    return s;
}

static bool is_helper(const struct plan_share *s, uint32_t worker, uint32_t chunk) {
    for (uint32_t i = 0; i < s->helper_count; i++)
        if (s->helpers[i].worker == worker && s->helpers[i].chunk == chunk) return true;
    return false;
}

/* Only helpers execute another chunk than their stage's; each helps a neighbour, copied from one who has it.
 */
static void assert_helpers_named(const struct plan_case *c, const struct plan_share *s) {
    for (uint32_t w = 0; w < case_workers(c); w++) {
        for (uint32_t chunk = 0; chunk < c->costs.stages; chunk++) {
            bool foreign = case_hosted(s->route, w, chunk) > 0 && w % c->costs.stages != chunk;
            assert_int_equal(foreign, is_helper(s, w, chunk));
        }
    }
    for (uint32_t i = 0; i < s->helper_count; i++) {
        const struct plan_helper *h = &s->helpers[i];
        uint32_t stage = h->worker % c->costs.stages;
        assert_true(h->chunk + 1 == stage || h->chunk == stage + 1);
        assert_true(c->alive[h->copied_from]);
        assert_int_equal(h->copied_from % c->costs.stages, h->chunk);
        uint32_t nearest = h->worker - stage + h->chunk; /* of its own pipeline */
        if (c->alive[nearest]) assert_int_equal(h->copied_from, nearest);
    }
}

static void a_failure_shared_by_k_stages_costs_a_kth(void **state) {
    (void)state;
    /* 4 x 8 x 64: 64 of 4 stages' workers without failures; 256 / 3, 512 / 7, 1024 / 15, 2048 / 31 */
    static const uint32_t helpers[] = {0, 1, 3, 7}, microbatches[] = {86, 74, 69, 67};
    for (uint32_t stage = 0; stage < 8; stage++) {
        struct plan_case c = case_uniform(4, 8, 64);
        case_kill(&c, 2, stage);
        for (int i = 0; i < 4; i++) {
            struct plan_share s = share(&c, helpers[i], NULL);
            assert_int_equal(s.load, microbatches[i] * 3);
            assert_helpers_named(&c, &s);
            plan_share_close(&s);
        }
        case_close(&c);
    }
}

static void more_helpers_than_help_are_not_taken(void **state) {
    (void)state;
    struct plan_case c = case_uniform(4, 8, 64);
    struct plan_share s = share(&c, 9, NULL);
    assert_int_equal(s.helper_count, 0);
    assert_int_equal(s.load, 64 * 3);
    plan_share_close(&s);
    case_kill(&c, 0, 3);
    s = share(&c, UINT32_MAX, NULL);
    assert_int_equal(s.load, 67 * 3);
    assert_in_range(s.helper_count, 5, 7); /* 65 and 66 are full at once: some stages need no part */
    plan_share_close(&s);
    case_close(&c);
}

static void helpers_have_room_for_the_state_they_copy(void **state) {
    (void)state;
    struct plan_case c = case_uniform(4, 4, 32);
    uint64_t room[16];
    for (uint32_t s = 0; s < 4; s++) c.costs.chunk[s].state = 100;
    for (uint32_t w = 0; w < 16; w++) room[w] = w == 2 * 4 + 1 ? 100 : 99; /* only one may */
    case_kill(&c, 0, 0);
    struct plan_share s = share(&c, 5, room);
    assert_int_equal(s.helper_count, 1);
    assert_int_equal(s.helpers[0].worker, 2 * 4 + 1);
    assert_int_equal(s.helpers[0].chunk, 0);
    plan_share_close(&s);
    room[2 * 4 + 1] = 99;
    s = share(&c, 5, room);
    assert_int_equal(s.helper_count, 0);
    assert_int_equal(s.load, (4 * 32 + 2) / 3 * 3);
    plan_share_close(&s);
    case_close(&c);
}

static void assert_two_chunks_of_one(uint32_t stage) {
    struct plan_case c = case_uniform(4, 8, 64);
    case_kill(&c, 1, stage);
    struct plan_share s = share(&c, 3, NULL);
    assert_int_equal(s.helper_count, 3);
    for (uint32_t i = 0; i < s.helper_count; i++) {
        const struct plan_helper *h = &s.helpers[i];
        uint32_t own = h->worker % 8, together = 0, all = 0;
        for (uint32_t home = 0; home < 4; home++) {
            for (uint32_t m = 0; m < 64; m++) {
                if (s.route->host[plan_route_cell(s.route, home, h->chunk, m)] != h->worker) continue;
                all++;
                together += s.route->host[plan_route_cell(s.route, home, own, m)] == h->worker;
            }
        }
        uint32_t kept = case_hosted(s.route, h->worker, own), most = all < kept ? all : kept;
        if (together * 10 < most * 9)
            fail_msg("(%u, %u) does %u of chunk %u and %u of its own, %u together", h->worker / 8, own, all,
                     h->chunk, kept, together);
    }
    plan_share_close(&s);
    case_close(&c);
}

static void a_helper_does_two_chunks_of_one_microbatch(void **state) {
    (void)state;
    assert_two_chunks_of_one(0); /* by left helpers */
    assert_two_chunks_of_one(3);
    assert_two_chunks_of_one(7); /* by right helpers */
}

/* Its R of the last chunk is in the window of its own stage, a forward before. */
static void who_is_helped_from_an_earlier_stage_ends_a_forward_earlier(void **state) {
    (void)state;
    struct plan_case c = case_uniform(4, 8, 64);
    case_kill(&c, 1, 7);
    struct plan_share s = share(&c, 1, NULL);
    struct plan_list_options o = {.backward = PLAN_SELECTIVE, .staggered = true};
    assert_int_equal(s.load, 74 * 3);
    assert_int_equal(s.helpers[0].worker % 8, 6);
    assert_int_equal(plan_bound_route(s.route, &c.costs, &o), 74 * 3);
    plan_share_close(&s);
    case_close(&c);
}

/* Nothing is left to do for the slow ones. */
static void neighbours_may_do_all_of_a_chunk(void **state) {
    (void)state;
    struct plan_case c = case_uniform(3, 3, 5);
    for (uint32_t p = 0; p < 3; p++) case_slow(&c, p, 1, 1000);
    struct plan_share s = share(&c, 6, NULL);
    assert_in_range(s.load, 45 * 3 / 6, 8 * 3 + 1); /* 45 by 6 workers */
    plan_share_close(&s);
    case_close(&c);
}

/* In any run of an eighth of the numbers every worker has nearly an eighth of its work. */
static void work_of_each_worker_is_spread_over_the_numbers(void **state) {
    (void)state;
    struct plan_case c = case_uniform(4, 8, 64);
    case_kill(&c, 1, 3);
    struct plan_share s = share(&c, 5, NULL);
    for (uint32_t w = 0; w < 32; w++) {
        for (uint32_t from = 0; from < 64; from += 8) {
            uint32_t n = 0;
            for (uint32_t home = 0; home < 4; home++)
                for (uint32_t chunk = 0; chunk < 8; chunk++)
                    for (uint32_t m = from; m < from + 8; m++)
                        n += s.route->host[plan_route_cell(s.route, home, chunk, m)] == w;
            if (c.alive[w]) assert_in_range(n, 6, 11); /* 67 / 8 = 8.4 */
        }
    }
    plan_share_close(&s);
    case_close(&c);
}

/* What a stage lacks can be more than one worker does. */
static void several_workers_of_a_stage_help_the_same_neighbour(void **state) {
    (void)state;
    for (uint32_t stage = 0; stage < 2; stage++) {
        struct plan_case c = case_uniform(4, 2, 10);
        for (uint32_t p = 0; p < 3; p++) case_kill(&c, p, stage);
        struct plan_share one = share(&c, 1, NULL), two = share(&c, 2, NULL);
        assert_int_equal(two.helper_count, 2);
        assert_in_range(one.load, 20 * 3, 20 * 3 + 1); /* a forward later helped from an earlier stage */
        assert_in_range(two.load, 16 * 3, 17 * 3);     /* 80 by 5 workers */
        assert_helpers_named(&c, &two);
        plan_share_close(&one);
        plan_share_close(&two);
        case_close(&c);
    }
}

/* One helper, 8 x 2 stages of 64: 1024 by 15 workers, 69 each leave 11 over. */
static void time_to_spare_is_spread_over_the_stages_that_share(void **state) {
    (void)state;
    struct plan_case c = case_uniform(8, 2, 64);
    case_kill(&c, 0, 0);
    struct plan_share s = share(&c, 1, NULL);
    for (uint32_t stage = 0; stage < 2; stage++) {
        uint32_t spare = 0;
        for (uint32_t p = 0; p < 8; p++)
            if (c.alive[p * 2 + stage]) spare += 69 - (uint32_t)(case_load(&c, s.route, p * 2 + stage) / 3);
        assert_in_range(spare, 3, 8);
    }
    plan_share_close(&s);
    case_close(&c);
}

static void uneven_stages_are_evened_out(void **state) {
    (void)state;
    struct plan_case c = case_uniform(2, 3, 30);
    c.costs.chunk[1].forward = 2; /* 3, 4 and 3 ticks: 90, 120, 90 of 100 each */
    struct plan_share s = share(&c, 2, NULL);
    assert_int_equal(s.helper_count, 2);
    assert_in_range(s.load, 100, 104);
    assert_helpers_named(&c, &s);
    plan_share_close(&s);
    case_close(&c);
}

static void a_slow_worker_is_relieved(void **state) {
    (void)state;
    struct plan_case c = case_uniform(2, 3, 30);
    case_slow(&c, 0, 1, 2);
    struct plan_share none = share(&c, 0, NULL), two = share(&c, 2, NULL);
    assert_int_equal(none.load, 40 * 3);                        /* 60 at speeds 1/2 and 1 */
    assert_in_range(two.load, (180 * 2 + 10) / 11 * 3, 34 * 3); /* 180 at speed 5.5 */
    assert_int_equal(case_hosted(two.route, 1, 1) + case_hosted(two.route, 1, 0), 16);
    plan_share_close(&none);
    plan_share_close(&two);
    case_close(&c);
}

static void extra_reductions_and_steps_of_helpers_count(void **state) {
    (void)state;
    struct plan_case c = case_uniform(4, 4, 32);
    case_kill(&c, 0, 0);
    struct plan_share cheap = share(&c, 1, NULL);
    for (uint32_t s = 0; s < 4; s++) c.costs.chunk[s].reduce = 30;
    struct plan_share dear = share(&c, 1, NULL);
    assert_true(dear.load > cheap.load + 30);
    assert_true(dear.load < (128 + 2) / 3 * 3 + 30); /* and yet it helps */
    plan_share_close(&cheap);
    plan_share_close(&dear);
    case_close(&c);
}

/* ---- against all amounts ----
 * Two or three stages of two workers: how many of each chunk each worker does, by trial. */

struct trial {
    const struct plan_case *c;
    uint32_t helpers;
    uint64_t load[6];
    uint32_t done[6][3]; /* of each chunk */
    uint64_t period;     /* least of all amounts and orders of reduction */
};

static uint64_t unit_of(const struct trial *t, uint32_t worker, uint32_t chunk) {
    const struct sim_costs *k = &t->c->costs;
    return sim_duration(k, worker, chunk, IR_F) + sim_duration(k, worker, chunk, IR_I) +
           sim_duration(k, worker, chunk, IR_W);
}

static void try_worker(struct trial *t, uint32_t chunk, uint32_t worker, uint32_t left, uint32_t used);

/* ---- when chunks are reduced ----
 * Stage s begins, and ends, `begin[s]` after the first. A chunk is reduced at once by all who hold it, within
 * the window of each; who holds two reduces one before the other. */

static bool is_held(const struct plan_case *c, uint32_t done[6][3], uint32_t worker, uint32_t chunk) {
    return c->alive[worker] && (worker % c->costs.stages == chunk || done[worker][chunk] > 0);
}

static uint64_t tail_of(const struct plan_case *c, uint32_t chunk) {
    return c->costs.chunk[chunk].reduce + c->costs.chunk[chunk].step;
}

/* By how much before the end of its stage's window each chunk's last step ends, if they are reduced in the
 * order of `rank`. */
static void find_early(const struct plan_case *c, uint32_t done[6][3], const uint32_t rank[3],
                       const int64_t begin[3], int64_t early[3]) {
    uint32_t stages = c->costs.stages;
    for (uint32_t k = stages; k-- > 0;) {
        uint32_t chunk = rank[k];
        early[chunk] = 0;
        for (uint32_t w = 0; w < case_workers(c); w++) {
            if (!is_held(c, done, w, chunk)) continue;
            int64_t least = begin[chunk] - begin[w % stages];
            if (least > early[chunk]) early[chunk] = least;
            for (uint32_t j = k + 1; j < stages; j++) {
                uint32_t later = rank[j];
                if (!is_held(c, done, w, later)) continue;
                least = early[later] + (int64_t)tail_of(c, later) + begin[chunk] - begin[later];
                if (least > early[chunk]) early[chunk] = least;
            }
        }
    }
}

static uint64_t period_in_order(const struct plan_case *c, uint32_t done[6][3], const uint64_t load[6],
                                const uint32_t rank[3]) {
    uint32_t stages = c->costs.stages;
    int64_t begin[3] = {0}, early[3], period = 0;
    for (uint32_t s = 1; s < stages; s++) begin[s] = begin[s - 1] + (int64_t)c->costs.chunk[s - 1].forward;
    find_early(c, done, rank, begin, early);
    for (uint32_t w = 0; w < case_workers(c); w++) {
        if (!c->alive[w]) continue;
        int64_t least = INT64_MAX; /* from its last step to the end of its window */
        for (uint32_t chunk = 0; chunk < stages; chunk++) {
            int64_t at = early[chunk] - begin[chunk] + begin[w % stages];
            if (is_held(c, done, w, chunk) && at < least) least = at;
        }
        if ((int64_t)load[w] + least > period) period = (int64_t)load[w] + least;
    }
    return (uint64_t)period;
}

static uint64_t least_period(const struct plan_case *c, uint32_t done[6][3], const uint64_t load[6]) {
    static const uint32_t ranks[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 6; i++) {
        if (c->costs.stages == 2 && ranks[i][2] != 2) continue;
        uint64_t period = period_in_order(c, done, load, ranks[i]);
        if (period < least) least = period;
    }
    return least;
}

static void try_chunk(struct trial *t, uint32_t chunk, uint32_t used) {
    if (chunk < t->c->costs.stages) {
        try_worker(t, chunk, 0, t->c->costs.pipelines * t->c->microbatches, used);
        return;
    }
    uint64_t load[6] = {0}, period;
    for (uint32_t w = 0; w < case_workers(t->c); w++) {
        load[w] = t->load[w];
        for (uint32_t k = 0; k < t->c->costs.stages; k++)
            if (is_held(t->c, t->done, w, k)) load[w] += tail_of(t->c, k);
    }
    period = least_period(t->c, t->done, load);
    if (period < t->period) t->period = period;
}

static void try_worker(struct trial *t, uint32_t chunk, uint32_t worker, uint32_t left, uint32_t used) {
    if (worker == case_workers(t->c)) {
        if (left == 0) try_chunk(t, chunk + 1, used);
        return;
    }
    uint32_t stage = worker % t->c->costs.stages;
    bool own = stage == chunk, near = stage + 1 == chunk || chunk + 1 == stage;
    bool may = t->c->alive[worker] && (own || (near && used < t->helpers));
    uint64_t unit = unit_of(t, worker, chunk), before = t->load[worker];
    for (uint32_t n = 0; n <= left && (n == 0 || may); n++) {
        t->load[worker] = before + n * unit;
        t->done[worker][chunk] = n;
        if (t->load[worker] >= t->period) break;
        try_worker(t, chunk, worker + 1, left - n, used + (n > 0 && !own));
    }
    t->load[worker] = before;
    t->done[worker][chunk] = 0;
}

static struct trial best_by_trial(const struct plan_case *c, uint32_t helpers) {
    struct trial t = {.c = c, .helpers = helpers, .period = UINT64_MAX};
    try_chunk(&t, 0, 0);
    return t;
}

/* Of the route that was found, as a trial counts it. */
static uint64_t period_of(const struct plan_case *c, const struct plan_route *r) {
    uint32_t done[6][3] = {{0}};
    uint64_t load[6] = {0};
    for (uint32_t w = 0; w < case_workers(c); w++) {
        for (uint32_t chunk = 0; chunk < r->chunks; chunk++) done[w][chunk] = case_hosted(r, w, chunk);
        load[w] = c->alive[w] ? case_load(c, r, w) : 0;
    }
    return least_period(c, done, load);
}

static void no_amounts_of_equal_stages_are_better(void **state) {
    (void)state;
    struct rng_stream rng = {21};
    for (int i = 0; i < 150; i++) {
        struct plan_case c =
            case_uniform(2, 2 + (uint32_t)rng_below(&rng, 2), 1 + (uint32_t)rng_below(&rng, 4));
        case_kill(&c, (uint32_t)rng_below(&rng, 2), (uint32_t)rng_below(&rng, c.costs.stages));
        for (uint32_t helpers = 0; helpers < 3; helpers++) {
            struct plan_share s = share(&c, helpers, NULL);
            assert_int_equal(period_of(&c, s.route), best_by_trial(&c, helpers).period);
            assert_helpers_named(&c, &s);
            plan_share_close(&s);
        }
        case_close(&c);
    }
}

/* Unequal stages and workers: whole micro-batches of two chunks cannot be packed perfectly by a walk; at most
 * one of the dearest more. */
static void amounts_of_unequal_stages_are_near_the_best(void **state) {
    (void)state;
    struct rng_stream rng = {22};
    uint32_t best_reached = 0, tried = 0;
    for (; tried < 150; tried++) {
        struct plan_case c =
            case_uniform(2, 2 + (uint32_t)rng_below(&rng, 2), 1 + (uint32_t)rng_below(&rng, 3));
        for (uint32_t s = 0; s < c.costs.stages; s++) c.costs.chunk[s].forward = 1 + rng_below(&rng, 6);
        case_slow(&c, 0, 0, 1 + (double)rng_below(&rng, 3) / 2);
        if (rng_below(&rng, 2)) case_kill(&c, 1, (uint32_t)rng_below(&rng, c.costs.stages));
        struct plan_share s = share(&c, 2, NULL);
        uint64_t best = best_by_trial(&c, 2).period, dearest = 0;
        for (uint32_t k = 0; k < c.costs.stages; k++)
            if (c.costs.chunk[k].forward + 2 > dearest) dearest = c.costs.chunk[k].forward + 2;
        assert_in_range(s.load, best, best + 2 * dearest);
        best_reached += s.load == best;
        plan_share_close(&s);
        case_close(&c);
    }
    print_message("the best amounts in %u of %u cases\n", best_reached, tried);
    assert_in_range(best_reached, tried * 3 / 4, tried);
}

/* Then it matters who reduces first. Claimed is what the amounts can do. */
static void amounts_are_near_the_best_where_reductions_take_long(void **state) {
    (void)state;
    struct rng_stream rng = {23};
    uint32_t best_reached = 0, honest = 0, tried = 0;
    for (; tried < 150; tried++) {
        struct plan_case c =
            case_uniform(2, 2 + (uint32_t)rng_below(&rng, 2), 2 + (uint32_t)rng_below(&rng, 3));
        for (uint32_t s = 0; s < c.costs.stages; s++) {
            c.costs.chunk[s].reduce = rng_below(&rng, 4);
            c.costs.chunk[s].step = rng_below(&rng, 2);
        }
        case_kill(&c, (uint32_t)rng_below(&rng, 2), (uint32_t)rng_below(&rng, c.costs.stages));
        struct plan_share s = share(&c, 2, NULL);
        uint64_t best = best_by_trial(&c, 2).period, reached = period_of(&c, s.route);
        assert_in_range(reached, best, best + 3); /* a micro-batch */
        assert_in_range(s.load, best, best + 3);
        best_reached += reached == best;
        honest += s.load >= reached;
        plan_share_close(&s);
        case_close(&c);
    }
    print_message("the best amounts in %u of %u cases, %u as claimed\n", best_reached, tried, honest);
    assert_in_range(best_reached, tried * 3 / 4, tried);
    assert_int_equal(honest, tried);
}

/* 4 x 8 x 32, a sum of gradients as long as three micro-batches: R and S of helpers find their place. */
static void schedules_come_near_the_load_where_reductions_take_long(void **state) {
    (void)state;
    for (uint32_t stage = 0; stage < 8; stage++) {
        struct plan_case c = case_uniform(4, 8, 32);
        for (uint32_t s = 0; s < 8; s++)
            c.costs.chunk[s] = (struct sim_chunk){.forward = 10,
                                                  .input_grad = 10,
                                                  .weight_grad = 10,
                                                  .reduce = 90,
                                                  .step = 5,
                                                  .full = 1,
                                                  .kept = 1,
                                                  .after_input = 1};
        case_kill(&c, 0, stage);
        struct plan_share s = share(&c, 3, NULL);
        struct plan_list_options o = {.backward = PLAN_SELECTIVE, .staggered = true, .rounds = 12};
        struct ir_plan *plan = NULL;
        struct sim_result times = {0};
        struct pawl_error e = {0};
        if (plan_list(s.route, &c.costs, &o, &plan, &e) != PAWL_OK) fail_msg("%s", e.text);
        if (ir_check(plan, NULL, NULL, &e) != PAWL_OK) fail_msg("%s", e.text);
        if (sim_run(plan, &c.costs, true, NULL, &times, &e) != PAWL_OK) fail_msg("%s", e.text);
        assert_true(s.load < 43 * 30 + 95); /* the peers alone */
        if (times.period * 100 > s.load * 102)
            fail_msg("stage %u: %llu ticks for a load of %llu", stage, (unsigned long long)times.period,
                     (unsigned long long)s.load);
        assert_true(times.period >= plan_bound_free(&c.costs, plan_full(32), c.alive, true));
        sim_result_close(&times);
        ir_plan_free(plan);
        plan_share_close(&s);
        case_close(&c);
    }
}

static void a_lost_stage_and_stages_of_several_chunks_are_refused(void **state) {
    (void)state;
    struct plan_case c = case_uniform(2, 2, 4);
    case_kill(&c, 0, 1);
    case_kill(&c, 1, 1);
    struct plan_share s;
    struct pawl_error e = {0};
    assert_int_equal(plan_share_route(&c.costs, plan_full(4), c.alive, 3, NULL, &s, &e), PAWL_STAGE_LOST);
    assert_non_null(strstr(e.text, "stage 1"));
    assert_null(s.route);
    c.costs.stages = 1;
    assert_int_equal(plan_share_route(&c.costs, plan_full(4), NULL, 3, NULL, &s, &e), PAWL_UNSUPPORTED);
    c.costs.stages = 2;
    case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_shared_by_k_stages_costs_a_kth),
        cmocka_unit_test(more_helpers_than_help_are_not_taken),
        cmocka_unit_test(helpers_have_room_for_the_state_they_copy),
        cmocka_unit_test(a_helper_does_two_chunks_of_one_microbatch),
        cmocka_unit_test(who_is_helped_from_an_earlier_stage_ends_a_forward_earlier),
        cmocka_unit_test(neighbours_may_do_all_of_a_chunk),
        cmocka_unit_test(work_of_each_worker_is_spread_over_the_numbers),
        cmocka_unit_test(several_workers_of_a_stage_help_the_same_neighbour),
        cmocka_unit_test(time_to_spare_is_spread_over_the_stages_that_share),
        cmocka_unit_test(uneven_stages_are_evened_out),
        cmocka_unit_test(a_slow_worker_is_relieved),
        cmocka_unit_test(extra_reductions_and_steps_of_helpers_count),
        cmocka_unit_test(no_amounts_of_equal_stages_are_better),
        cmocka_unit_test(amounts_of_unequal_stages_are_near_the_best),
        cmocka_unit_test(amounts_are_near_the_best_where_reductions_take_long),
        cmocka_unit_test(schedules_come_near_the_load_where_reductions_take_long),
        cmocka_unit_test(a_lost_stage_and_stages_of_several_chunks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
