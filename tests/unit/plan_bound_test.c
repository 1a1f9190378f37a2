/* Bounds against every schedule of tiny cases, against the best periods known, and against each other. */
#include "plan_case.h"

#include <stdio.h>
#include <string.h>

static uint64_t route_bound(const struct plan_case *c, const struct plan_list_options *o,
                            uint64_t *of_peers) {
    struct plan_route *r = NULL;
    struct pawl_error e = {0};
    if (plan_route_peers(&c->costs, case_batch(c), c->alive, false, &r, &e) != PAWL_OK)
        fail_msg("%s", e.text);
    uint64_t bound = plan_bound_route(r, &c->costs, o);
    if (of_peers != NULL) *of_peers = plan_bound_peers(&c->costs, case_batch(c), c->alive, o);
    plan_route_free(r);
    return bound;
}

/* ---- every schedule ----
 * All orders of all workers' lists that memory allows; an order is possible within T if the earliest times
 * that respect it, the messages and the windows settle. Knows nothing of the bounds' reasoning, nor of
 * sim_run. */

#define CELLS   8  /* of a worker */
#define LIST    24 /* steps of a worker */
#define WORKERS 6
#define ALL     12 /* cells */

struct step {
    uint32_t cell, op;
};
struct every {
    const struct plan_case *c;
    const struct plan_list_options *o;
    const struct plan_route *route;
    uint32_t cells[WORKERS][CELLS], count[WORKERS]; /* what each executes */
    uint32_t next_op[ALL];                          /* of a cell: 0 F, 1 I or B, 2 W, 3 done */
    struct step list[WORKERS][LIST];
    uint32_t length[WORKERS];
    uint64_t stored[WORKERS];
    uint64_t start[WORKERS][LIST];
    uint64_t end_of[ALL][3]; /* of a cell's ops */
    uint64_t limit;          /* T */
    uint64_t orders;         /* looked at */
};

static uint32_t cell_chunk(const struct every *x, uint32_t cell) {
    return cell / x->route->microbatches % x->route->chunks;
}

static uint32_t ops_of_cell(const struct every *x) { return x->o->backward == PLAN_FUSED ? 2 : 3; }

static uint64_t ticks_of(const struct every *x, uint32_t worker, struct step s) {
    static const enum ir_op split[] = {IR_F, IR_I, IR_W}, fused[] = {IR_F, IR_B};
    return sim_duration(&x->c->costs, worker, cell_chunk(x, s.cell),
                        x->o->backward == PLAN_FUSED ? fused[s.op] : split[s.op]);
}

/* When the input of a step is there. */
static uint64_t input_at(const struct every *x, uint32_t worker, struct step s) {
    uint32_t chunk = cell_chunk(x, s.cell), width = x->route->microbatches;
    const struct sim_chunk *costs = x->c->costs.chunk;
    if (s.op == 0 && chunk > 0) {
        bool same = x->route->host[s.cell - width] == worker;
        return x->end_of[s.cell - width][0] + (same ? 0 : costs[chunk - 1].send_forward);
    }
    if (s.op == 1 && chunk + 1 < x->route->chunks) {
        bool same = x->route->host[s.cell + width] == worker;
        return x->end_of[s.cell + width][1] + (same ? 0 : costs[chunk + 1].send_backward);
    }
    return 0;
}

static bool raise_to(uint64_t *value, uint64_t at_least) {
    if (*value >= at_least) return false;
    *value = at_least;
    return true;
}

/* One pass; `open` is when a chunk's or a stage's window may begin. */
static bool pass_lists(struct every *x, const uint64_t *stage_open, const uint64_t *chunk_open) {
    bool changed = false;
    for (uint32_t w = 0; w < case_workers(x->c); w++) {
        uint64_t now = stage_open[w % x->route->stages];
        for (uint32_t i = 0; i < x->length[w]; i++) {
            struct step s = x->list[w][i];
            uint64_t input = input_at(x, w, s), open = chunk_open[cell_chunk(x, s.cell)];
            now = input > now ? input : now;
            now = open > now ? open : now;
            changed |= raise_to(&x->start[w][i], now);
            now = x->start[w][i] + ticks_of(x, w, s);
            changed |= raise_to(&x->end_of[s.cell][s.op], now);
        }
    }
    return changed;
}

/* Ends of chunks, R and S included. */
static void chunk_ends(const struct every *x, uint64_t *end) {
    for (uint32_t w = 0; w < case_workers(x->c); w++) {
        for (uint32_t i = 0; i < x->length[w]; i++) {
            uint32_t chunk = cell_chunk(x, x->list[w][i].cell);
            uint64_t at = x->end_of[x->list[w][i].cell][x->list[w][i].op];
            at += sim_duration(&x->c->costs, w, chunk, IR_R) + sim_duration(&x->c->costs, w, chunk, IR_S);
            if (at > end[chunk]) end[chunk] = at;
        }
    }
}

/* What begins must not begin earlier than T before the last end of its chunk, or of a chunk that somebody of
 * its stage holds. */
static bool pass_windows(struct every *x, uint64_t *stage_open, uint64_t *chunk_open, uint64_t *last) {
    bool changed = false;
    uint64_t end[WORKERS] = {0};
    chunk_ends(x, end);
    for (uint32_t chunk = 0; chunk < x->route->chunks; chunk++) {
        uint64_t open = end[chunk] > x->limit ? end[chunk] - x->limit : 0;
        if (end[chunk] > *last) *last = end[chunk];
        changed |= raise_to(&chunk_open[chunk], open);
        for (uint32_t w = 0; w < case_workers(x->c); w++) {
            bool holds = x->c->alive[w] && w % x->route->stages == chunk;
            for (uint32_t i = 0; i < x->length[w]; i++) holds |= cell_chunk(x, x->list[w][i].cell) == chunk;
            if (holds) changed |= raise_to(&stage_open[w % x->route->stages], open);
        }
    }
    return changed;
}

/* Earliest times settle after as many passes as there are steps, unless the lists wait for each other. A
 * longest way through the constraints leads through each window once, so windows settle after as many rounds
 * as there are of them, unless T is too short. */
static bool order_fits(struct every *x) {
    uint64_t stage_open[WORKERS] = {0}, chunk_open[WORKERS] = {0}, last = 0;
    uint32_t steps = 0;
    memset(x->start, 0, sizeof x->start);
    memset(x->end_of, 0, sizeof x->end_of);
    for (uint32_t w = 0; w < case_workers(x->c); w++) steps += x->length[w];
    for (uint32_t round = 0; round <= x->route->stages + x->route->chunks; round++) {
        for (uint32_t pass = 0; pass_lists(x, stage_open, chunk_open); pass++)
            if (pass > steps) return false;
        bool moved = pass_windows(x, stage_open, chunk_open, &last);
        if (!x->o->staggered && last > x->limit) return false;
        if (!moved) return true;
    }
    return false;
}

static uint64_t stored_by(const struct every *x, uint32_t cell, uint32_t ops_done) {
    const struct sim_chunk *c = &x->c->costs.chunk[cell_chunk(x, cell)];
    if (ops_done == 0 || ops_done == ops_of_cell(x)) return 0;
    return ops_done == 1 ? c->full : c->after_input;
}

static bool some_order_fits(struct every *x, uint32_t worker);

static bool do_step(struct every *x, uint32_t worker, uint32_t cell) {
    uint32_t done = x->next_op[cell];
    uint64_t stored = x->stored[worker] - stored_by(x, cell, done) + stored_by(x, cell, done + 1);
    if (x->c->costs.limit != NULL && stored > x->c->costs.limit[worker]) return false;
    uint64_t before = x->stored[worker];
    x->stored[worker] = stored;
    x->list[worker][x->length[worker]++] = (struct step){cell, done};
    x->next_op[cell]++;
    bool fits = some_order_fits(x, worker);
    x->next_op[cell]--;
    x->length[worker]--;
    x->stored[worker] = before;
    return fits;
}

/* Micro-batches of a pipeline are alike: worker 0 may begin them in their order. */
static bool is_out_of_turn(const struct every *x, uint32_t worker, uint32_t cell) {
    bool is_first = x->next_op[cell] == 0 && cell % x->route->microbatches > 0;
    return worker == 0 && is_first && x->route->host[cell - 1] == 0 && x->next_op[cell - 1] == 0;
}

static bool some_order_fits(struct every *x, uint32_t worker) {
    if (worker == case_workers(x->c)) return order_fits(x);
    if (x->length[worker] == x->count[worker] * ops_of_cell(x)) return some_order_fits(x, worker + 1);
    for (uint32_t i = 0; i < x->count[worker]; i++) {
        uint32_t cell = x->cells[worker][i];
        if (x->next_op[cell] == ops_of_cell(x) || is_out_of_turn(x, worker, cell)) continue;
        if (do_step(x, worker, cell)) return true;
    }
    return false;
}

static bool some_schedule_takes(const struct plan_case *c, const struct plan_route *r,
                                const struct plan_list_options *o, uint64_t limit) {
    struct every *x = calloc(1, sizeof *x);
    assert_non_null(x);
    *x = (struct every){.c = c, .o = o, .route = r, .limit = limit};
    uint32_t cells = r->pipelines * r->chunks * r->microbatches;
    assert_in_range(cells, 1, ALL);
    for (uint32_t cell = 0; cell < cells; cell++) {
        uint32_t w = r->host[cell];
        if (w == PLAN_ABSENT) continue;
        assert_in_range(x->count[w], 0, CELLS - 1);
        x->cells[w][x->count[w]++] = cell;
    }
    bool takes = some_order_fits(x, 0);
    free(x);
    return takes;
}

/* The bound is one, and how often it is reached is counted. */
static void try_case(const struct plan_case *c, const struct plan_route *r, const struct plan_list_options *o,
                     uint32_t *reached) {
    uint64_t bound = plan_bound_route(r, &c->costs, o);
    assert_true(bound > 0);
    if (some_schedule_takes(c, r, o, bound - 1))
        fail_msg("a schedule takes %llu, less than the bound", (unsigned long long)(bound - 1));
    uint64_t within = plan_bound_peers(&c->costs, case_batch(c), c->alive, o);
    uint64_t free = plan_bound_free(&c->costs, case_batch(c), c->alive, o->staggered);
    assert_in_range(within, 0, bound); /* more freedom, lower bound */
    assert_in_range(free, 0, bound);
    *reached += some_schedule_takes(c, r, o, bound);
}

static void random_costs(struct plan_case *c, struct rng_stream *rng, bool once) {
    for (uint32_t s = 0; s < c->costs.stages; s++) {
        struct sim_chunk *k = &c->costs.chunk[s];
        k->forward = 1 + rng_below(rng, 4);
        k->input_grad = 1 + rng_below(rng, 4);
        k->weight_grad = 1 + rng_below(rng, 4);
        k->send_forward = rng_below(rng, 3);
        k->send_backward = rng_below(rng, 3);
        k->reduce = once ? rng_below(rng, 2) : 0;
        k->step = once ? rng_below(rng, 2) : 0;
        k->full = k->kept = 4;
        k->after_input = 1 + rng_below(rng, 4);
    }
    if (rng_below(rng, 3) == 0) return;
    case_limit(c, 0);
    for (uint32_t w = 0; w < case_workers(c); w++) c->costs.limit[w] = 4 + rng_below(rng, 9);
}

static struct plan_list_options random_options(struct rng_stream *rng) {
    static const enum plan_backward backward[] = {PLAN_FUSED, PLAN_SELECTIVE, PLAN_SPLIT};
    return (struct plan_list_options){.backward = backward[rng_below(rng, 3)],
                                      .staggered = rng_below(rng, 2) == 0};
}

static void no_schedule_of_random_tiny_cases_is_below_the_bound(void **state) {
    (void)state;
    static const uint32_t sizes[][4] = {{1, 2, 1}, {1, 2, 2},    {1, 3, 2},    {2, 2, 1},   {2, 3, 1},
                                        {3, 2, 1}, {2, 2, 2, 3}, {3, 2, 1, 2}, {3, 2, 2, 3}};
    struct rng_stream rng = {11};
    uint32_t reached = 0, tried = 0;
    for (; tried < 600; tried++) {
        const uint32_t *size = sizes[rng_below(&rng, 9)];
        struct plan_case c = case_uniform(size[0], size[1], size[2]);
        c.total = size[3];
        random_costs(&c, &rng, true);
        if (size[0] > 1 && rng_below(&rng, 3) > 0) case_kill(&c, size[0] - 1, (uint32_t)rng_below(&rng, 2));
        if (rng_below(&rng, 3) == 0) case_slow(&c, 0, 1, 1.5);
        struct plan_list_options o = random_options(&rng);
        struct plan_route *r = NULL;
        struct pawl_error e = {0};
        assert_int_equal(plan_route_peers(&c.costs, case_batch(&c), c.alive, false, &r, &e), PAWL_OK);
        try_case(&c, r, &o, &reached);
        plan_route_free(r);
        case_close(&c);
    }
    assert_in_range(reached, tried * 3 / 4, tried); /* and it is a tight one */
    print_message("the bound is reached in %u of %u cases\n", reached, tried);
}

/* Orders of all lists together, as if there were no limit. */
static double count_orders(const struct plan_route *r, uint32_t ops) {
    double orders = 1, steps[WORKERS] = {0};
    for (uint32_t cell = 0; cell < r->pipelines * r->chunks * r->microbatches; cell++)
        for (uint32_t op = 1; op <= ops && r->host[cell] != PLAN_ABSENT; op++)
            orders *= ++steps[r->host[cell]] / op; /* a multinomial */
    return orders;
}

/* Anybody may execute anything; mostly its own stage. */
static void no_schedule_of_random_routes_is_below_the_bound(void **state) {
    (void)state;
    struct rng_stream rng = {5};
    uint32_t reached = 0, tried = 0;
    for (int i = 0; i < 800; i++) {
        uint32_t microbatches = rng_below(&rng, 5) == 0 ? 2 : 1;
        struct plan_case c = case_uniform(2, microbatches == 1 && i % 2 ? 3 : 2, microbatches);
        if (rng_below(&rng, 4) == 0) c.total = 2 * microbatches - 1;
        random_costs(&c, &rng, false);
        if (rng_below(&rng, 2)) case_kill(&c, 1, (uint32_t)rng_below(&rng, 2));
        struct plan_list_options o = random_options(&rng);
        if (microbatches == 2) o.backward = PLAN_FUSED; /* fewer orders */
        struct plan_route *r = NULL;
        struct pawl_error e = {0};
        assert_int_equal(plan_route_peers(&c.costs, case_batch(&c), c.alive, false, &r, &e), PAWL_OK);
        for (uint32_t cell = 0; cell < 2 * r->chunks * microbatches; cell++) {
            uint32_t other = (uint32_t)rng_below(&rng, case_workers(&c));
            if (c.alive[other] && rng_below(&rng, 3) == 0 && r->host[cell] != PLAN_ABSENT)
                r->host[cell] = other;
        }
        if (count_orders(r, o.backward == PLAN_FUSED ? 2 : 3) <= 3000) {
            uint64_t bound = plan_bound_route(r, &c.costs, &o);
            if (some_schedule_takes(&c, r, &o, bound - 1))
                fail_msg("a schedule takes %llu, less than the bound", (unsigned long long)(bound - 1));
            reached += some_schedule_takes(&c, r, &o, bound);
            tried++;
        }
        plan_route_free(r);
        case_close(&c);
    }
    print_message("the bound is reached in %u of %u cases of any route\n", reached, tried);
    assert_in_range(tried, 300, 800);
    assert_in_range(reached, tried / 5, tried);
}

/* Few micro-batches, so that one's own way is what counts; anybody may execute anything, R and S take time.
 */
static void no_schedule_of_whoever_executes_what_is_below_the_free_bound(void **state) {
    (void)state;
    struct rng_stream rng = {23};
    uint32_t reached = 0, tried = 0;
    for (int i = 0; i < 900; i++) {
        struct plan_case c = case_uniform(1 + (uint32_t)i % 2, 2 + (uint32_t)rng_below(&rng, 2), 1);
        if (c.costs.pipelines == 2 && rng_below(&rng, 4) == 0) c.total = 1;
        random_costs(&c, &rng, true);
        if (rng_below(&rng, 2)) c.costs.chunk[rng_below(&rng, c.costs.stages)].weight_grad = 9;
        if (c.costs.pipelines > 1 && rng_below(&rng, 3) == 0) case_kill(&c, 1, 1);
        if (rng_below(&rng, 3) == 0) case_slow(&c, 0, 0, rng_below(&rng, 2) ? 0.5 : 1.5);
        struct plan_list_options o = random_options(&rng);
        struct plan_route *r = NULL;
        struct pawl_error e = {0};
        assert_int_equal(plan_route_peers(&c.costs, case_batch(&c), c.alive, false, &r, &e), PAWL_OK);
        for (uint32_t cell = 0; cell < c.costs.pipelines * r->chunks; cell++) {
            uint32_t other = (uint32_t)rng_below(&rng, case_workers(&c));
            if (c.alive[other] && rng_below(&rng, 3) == 0 && r->host[cell] != PLAN_ABSENT)
                r->host[cell] = other;
        }
        uint64_t bound = plan_bound_free(&c.costs, case_batch(&c), c.alive, o.staggered);
        if (count_orders(r, o.backward == PLAN_FUSED ? 2 : 3) <= 3000) {
            if (some_schedule_takes(&c, r, &o, bound - 1))
                fail_msg("case %d: a schedule takes %llu, less than the bound", i,
                         (unsigned long long)(bound - 1));
            reached += some_schedule_takes(&c, r, &o, bound);
            tried++;
        }
        plan_route_free(r);
        case_close(&c);
    }
    print_message("the free bound is reached in %u of %u cases of any route\n", reached, tried);
    assert_in_range(tried, 500, 900);
    assert_in_range(reached, 10, tried); /* most of these routes are bad ones */
}

/* The worker of stage 0 that has chunk 1 too waits for its sum, a forward after the rest of its stage. That
 * is not said where chunk 0 may begin elsewhere, in another window. */
static void the_sum_of_a_chunk_is_in_the_window_of_whoever_holds_it(void **state) {
    (void)state;
    struct plan_case c = case_uniform(2, 2, 2);
    struct plan_route *r = NULL;
    struct pawl_error e = {0};
    struct plan_list_options o = {.backward = PLAN_SPLIT, .staggered = true};
    assert_int_equal(plan_route_peers(&c.costs, plan_full(2), c.alive, false, &r, &e), PAWL_OK);
    r->host[plan_route_cell(r, 0, 1, 0)] = 0; /* helps */
    r->host[plan_route_cell(r, 0, 1, 1)] = 3; /* three for (1, 1): 9 ticks */
    assert_int_equal(plan_bound_route(r, &c.costs, &o), 10);
    r->host[plan_route_cell(r, 0, 0, 1)] = 1; /* begins in stage 1 */
    assert_int_equal(plan_bound_route(r, &c.costs, &o), 9);
    plan_route_free(r);
    case_close(&c);
}

/* All 2 stages x 3 micro-batches: the bound is the optimum, with and without little memory. */
static void two_stages_and_three_microbatches_reach_the_bound(void **state) {
    (void)state;
    static const uint64_t limits[] = {0, 1, 2};
    for (int k = 0; k < 12; k++) {
        struct plan_case c = case_uniform(1, 2, 3);
        if (limits[k % 3] > 0) case_limit(&c, limits[k % 3]);
        struct plan_list_options o = {.backward = k >= 6 ? PLAN_FUSED : PLAN_SPLIT, .staggered = k / 3 % 2};
        if (limits[k % 3] == 0 && o.backward == PLAN_SPLIT) c.microbatches = 2; /* else too many orders */
        struct plan_route *r = NULL;
        struct pawl_error e = {0};
        assert_int_equal(plan_route_peers(&c.costs, case_batch(&c), c.alive, false, &r, &e), PAWL_OK);
        uint32_t reached = 0;
        try_case(&c, r, &o, &reached);
        print_message("limit %llu, %s, %s: bound %llu%s\n", (unsigned long long)limits[k % 3],
                      o.backward == PLAN_FUSED ? "fused" : "split", o.staggered ? "staggered" : "barrier",
                      (unsigned long long)plan_bound_route(r, &c.costs, &o), reached ? "" : ", not reached");
        plan_route_free(r);
        case_close(&c);
    }
}

/* ---- closed forms and periods known ---- */

struct known {
    uint32_t pipelines, stages, microbatches, stage; /* one failure in it; stage = stages: none */
    uint32_t fused, split, staggered;                /* bounds */
};

static void closed_forms_of_uniform_stages(void **state) {
    (void)state;
    static const struct known table[] = {
        {3, 4, 6, 4, 27, 21, 19}, /* fault-free 1F1B, ZB-H1; staggered: 7 units until the first gradient is
                                     back */
        {3, 4, 6, 1, 30, 28, 27},     {3, 4, 6, 2, 33, 29, 27},     {3, 4, 6, 3, 36, 30, 27},
        {4, 4, 8, 2, 39, 35, 33},     {4, 4, 8, 3, 42, 36, 33},     {4, 8, 16, 4, 78, 70, 66},
        {4, 8, 16, 7, 87, 73, 66},    {8, 4, 16, 3, 66, 60, 57},    {4, 8, 32, 0, 129, 129, 129},
        {4, 8, 32, 7, 150, 136, 129}, {8, 8, 32, 0, 117, 111, 111}, {8, 8, 32, 7, 132, 118, 111},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const struct known *k = &table[i];
        struct plan_case c = case_uniform(k->pipelines, k->stages, k->microbatches);
        if (k->stage < k->stages) case_kill(&c, 0, k->stage);
        struct plan_list_options fused = {.backward = PLAN_FUSED};
        struct plan_list_options split = {.backward = PLAN_SPLIT};
        struct plan_list_options staggered = {.backward = PLAN_SELECTIVE, .staggered = true};
        uint64_t peers;
        assert_int_equal(route_bound(&c, &fused, &peers), k->fused);
        assert_int_equal(peers, k->fused);
        assert_int_equal(route_bound(&c, &split, &peers), k->split);
        assert_int_equal(peers, k->split);
        assert_int_equal(route_bound(&c, &staggered, &peers), k->staggered);
        assert_int_equal(peers, k->staggered);
        case_close(&c);
    }
}

/* Periods found by long searches when every worker may store stages + x micro-batches; 0: not known. */
struct capped {
    uint32_t pipelines, stages, microbatches, stage;
    uint32_t found[5]; /* x = 0..4 */
    bool tight;        /* the bound proves them */
};
static const struct capped capped_table[] = {
    {3, 4, 6, 0, {30, 29, 28, 27, 27}, true},      {3, 4, 6, 1, {29, 27, 27, 27, 27}, false},
    {3, 4, 6, 2, {29, 28, 27, 27, 27}, false},     {3, 4, 6, 3, {30, 29, 28, 27, 27}, true},
    {4, 4, 8, 0, {37, 35, 34, 0, 33}, false},      {4, 4, 8, 2, {35, 34, 33, 0, 33}, false},
    {4, 4, 8, 3, {36, 35, 34, 0, 33}, true},       {4, 8, 16, 0, {74, 72, 71, 0, 69}, false},
    {4, 8, 16, 4, {69, 68, 67, 0, 66}, false},     {4, 8, 16, 7, {73, 72, 71, 0, 69}, true},
    {8, 4, 16, 0, {61, 59, 58, 0, 57}, false},     {8, 4, 16, 2, {59, 58, 57, 0, 57}, false},
    {8, 4, 16, 3, {60, 59, 58, 0, 57}, true},      {4, 8, 32, 0, {138, 136, 134, 0, 132}, false},
    {4, 8, 32, 4, {133, 133, 131, 0, 129}, false}, {4, 8, 32, 7, {136, 135, 134, 0, 132}, true},
    {8, 8, 32, 0, {121, 118, 117, 0, 114}, false}, {8, 8, 32, 4, {117, 115, 114, 0, 112}, false},
    {8, 8, 32, 7, {118, 117, 116, 0, 114}, true},
};

static void little_memory_raises_the_bound_up_to_what_was_found(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof capped_table / sizeof capped_table[0]; i++) {
        const struct capped *k = &capped_table[i];
        for (uint32_t x = 0; x < 5; x++) {
            if (k->found[x] == 0) continue;
            struct plan_case c = case_uniform(k->pipelines, k->stages, k->microbatches);
            case_kill(&c, 0, k->stage);
            case_limit(&c, k->stages + x);
            struct plan_list_options o = {.backward = PLAN_SELECTIVE, .staggered = true};
            uint64_t peers, bound = route_bound(&c, &o, &peers);
            if (bound > k->found[x] || (k->tight && bound < k->found[x]) || peers > bound)
                fail_msg("%u x %u x %u, stage %u, x = %u: bound %llu (peers %llu), found %u", k->pipelines,
                         k->stages, k->microbatches, k->stage, x, (unsigned long long)bound,
                         (unsigned long long)peers, k->found[x]);
            assert_true(bound + 1 >= k->found[x] ||
                        bound * 100 >= (uint64_t)k->found[x] * 95); /* little is open */
            case_close(&c);
        }
    }
}

/* ---- pools and predictions ---- */

static void whoever_executes_what_the_work_takes_all_speed(void **state) {
    (void)state;
    struct plan_case c = case_uniform(4, 8, 64);
    case_kill(&c, 1, 3);
    assert_int_equal(plan_bound_free(&c.costs, plan_full(64), c.alive, true), 67 * 3); /* 2048 / 31 = 66.1 */
    c.costs.chunk[0].forward = 10; /* uneven: ticks count */
    assert_int_equal(plan_bound_free(&c.costs, plan_full(64), c.alive, true), (4 * 64 * (24 + 9) + 30) / 31);
    case_slow(&c, 0, 0, 1e6); /* as good as dead */
    uint64_t bound = plan_bound_free(&c.costs, plan_full(64), c.alive, true), least = 4 * 64 * 33 / 30;
    assert_in_range(bound, least - 1, least + 1);
    case_close(&c);
}

/* A thousand stages and one micro-batch: its way there and back, not the little work of each. */
static void one_microbatch_needs_its_whole_way_whoever_executes_it(void **state) {
    (void)state;
    struct plan_case c = case_uniform(3, 1000, 1);
    case_kill(&c, 1, 3);
    assert_int_equal(plan_bound_free(&c.costs, plan_full(1), c.alive, true), 2001);
    assert_int_equal(plan_bound_free(&c.costs, plan_full(1), c.alive, false), 2001);
    c.costs.chunk[10].weight_grad = 100; /* comes 10 stages before the end of the way */
    assert_int_equal(plan_bound_free(&c.costs, plan_full(1), c.alive, true), 990 + 990 + 100);
    assert_int_equal(plan_bound_free(&c.costs, plan_full(1), c.alive, false), 1000 + 990 + 100);
    c.costs.chunk[990].weight_grad = 5000;
    c.costs.chunk[990].reduce = 7;
    c.costs.chunk[990].step = 4;
    assert_int_equal(plan_bound_free(&c.costs, plan_full(1), c.alive, true), 10 + 10 + 5000 + 11);
    assert_int_equal(plan_bound_free(&c.costs, plan_full(1), c.alive, false), 1000 + 10 + 5000 + 11);
    case_slow(&c, 2, 999, 0.5); /* the fastest might execute all; what is one tick stays one */
    assert_int_equal(plan_bound_free(&c.costs, plan_full(1), c.alive, false), 1000 + 10 + 2500 + 7 + 2);
    case_close(&c);
}

static void reductions_and_steps_are_part_of_the_time(void **state) {
    (void)state;
    struct plan_case c = case_uniform(2, 2, 4);
    c.costs.chunk[1].reduce = 5;
    c.costs.chunk[1].step = 2;
    struct plan_list_options o = {.backward = PLAN_SELECTIVE, .staggered = true};
    uint64_t peers;
    assert_int_equal(route_bound(&c, &o, &peers), 12 + 7);
    assert_int_equal(peers, 12 + 7);
    assert_int_equal(plan_predict_stage(&c.costs, plan_full(4), PAWL_POLICY_RECYCLE, 1, 1), 24 + 7);
    assert_int_equal(plan_predict_stage(&c.costs, plan_full(4), PAWL_POLICY_RECYCLE, 0, 1), 24);
    case_close(&c);
}

static void a_lost_stage_has_no_schedule(void **state) {
    (void)state;
    struct plan_case c = case_uniform(2, 2, 4);
    case_kill(&c, 0, 1);
    case_kill(&c, 1, 1);
    struct plan_list_options o = {.backward = PLAN_SELECTIVE, .staggered = true};
    assert_true(plan_bound_peers(&c.costs, plan_full(4), c.alive, &o) == UINT64_MAX);
    assert_true(plan_predict_stage(&c.costs, plan_full(4), PAWL_POLICY_RECYCLE, 1, 2) == UINT64_MAX);
    case_close(&c);
}

static void predictions_are_the_load_of_the_peers(void **state) {
    (void)state;
    struct plan_case c = case_uniform(5, 4, 7);
    for (uint32_t j = 0; j < 5; j++) {
        uint64_t load = (7 * 5 + (5 - j) - 1) / (5 - j) * 3;
        for (int policy = PAWL_POLICY_ADAPTIVE; policy <= PAWL_POLICY_RECYCLE; policy++)
            for (uint32_t s = 0; s < 4; s++)
                assert_int_equal(plan_predict_stage(&c.costs, plan_full(7), (enum pawl_policy)policy, s, j),
                                 load);
        uint64_t shared = plan_predict_stage(&c.costs, plan_full(7), PAWL_POLICY_PAWL, 1, j);
        assert_int_equal(shared, j == 0 ? load : (21 * 15 + (15 - j) - 1) / (15 - j));
    }
    case_slow(&c, 0, 2, 2); /* 4.5 workers' speed of 5 */
    assert_int_equal(plan_predict_stage(&c.costs, plan_full(7), PAWL_POLICY_RECYCLE, 2, 0), 8 * 3);
    case_close(&c);
}

/* 2 x 2 x 6, the second chunk of 6 ticks, R of 10: 108 of work, 40 of R, 37 each. But then two of the first
 * stage must help, or with 40 ticks one: it does 2 of each, the other 10, its peers 5. */
static void those_who_must_help_have_another_sum_to_wait_for(void **state) {
    (void)state;
    struct plan_case c = case_uniform(2, 2, 6);
    c.costs.chunk[1].forward = 4;
    assert_int_equal(plan_bound_free(&c.costs, plan_full(6), c.alive, true), 27);
    c.costs.chunk[0].reduce = c.costs.chunk[1].reduce = 10;
    assert_int_equal(plan_bound_free(&c.costs, plan_full(6), c.alive, true), 40);
    case_close(&c);
}

/* From a chunk's F to its last sum there is a micro-batch's way to the last chunk and back, whoever goes it.
 */
static uint64_t way_of_one(const struct plan_case *c) {
    uint64_t most = 0, way = 0;
    for (uint32_t s = c->costs.stages; s-- > 0;) {
        const struct sim_chunk *chunk = &c->costs.chunk[s];
        way += chunk->forward + chunk->input_grad;
        uint64_t end = way + chunk->weight_grad + chunk->reduce + chunk->step;
        if (end > most) most = end;
    }
    return most;
}

/* Whoever executes what, somebody is busy for so long, or a micro-batch on its way. */
static void no_random_route_keeps_everybody_below_the_free_bound(void **state) {
    (void)state;
    struct rng_stream rng = {31};
    uint32_t reached = 0;
    for (int i = 0; i < 300; i++) {
        uint32_t stages = 1 + (uint32_t)rng_below(&rng, 3), microbatches = 1 + (uint32_t)rng_below(&rng, 3);
        struct plan_case c = case_uniform(2, stages, microbatches);
        struct plan_route *r = NULL;
        struct pawl_error e = {0};
        uint64_t least = UINT64_MAX;
        for (uint32_t s = 0; s < stages; s++) {
            c.costs.chunk[s].forward = 1 + rng_below(&rng, 4);
            c.costs.chunk[s].reduce = rng_below(&rng, 5);
            c.costs.chunk[s].step = rng_below(&rng, 2);
        }
        if (rng_below(&rng, 2)) case_kill(&c, 1, (uint32_t)rng_below(&rng, stages));
        assert_int_equal(plan_route_peers(&c.costs, plan_full(microbatches), c.alive, false, &r, &e),
                         PAWL_OK);
        for (int k = 0; k < 400; k++) { /* a walk: somebody gets something else */
            uint32_t cell = (uint32_t)rng_below(&rng, 2 * stages * microbatches);
            uint32_t other = (uint32_t)rng_below(&rng, case_workers(&c)), former = r->host[cell];
            uint64_t before = case_busiest(&c, r);
            if (c.alive[other]) r->host[cell] = other;
            if (case_busiest(&c, r) > before && rng_below(&rng, 4) > 0) r->host[cell] = former;
            if (case_busiest(&c, r) < least) least = case_busiest(&c, r);
        }
        uint64_t bound = plan_bound_free(&c.costs, plan_full(microbatches), c.alive, true);
        if (way_of_one(&c) > least) least = way_of_one(&c);
        assert_in_range(bound, 1, least);
        reached += bound == least;
        plan_route_free(r);
        case_close(&c);
    }
    print_message("the free bound is reached in %u of 300 cases\n", reached);
    assert_in_range(reached, 100, 300);
}

/* Sharing costs R and S of a neighbour, less a forward; and a hole makes no stage faster. */
static void predictions_of_shared_stages_count_what_helpers_reduce(void **state) {
    (void)state;
    struct plan_case c = case_uniform(5, 4, 70);
    for (uint32_t s = 0; s < 4; s++) c.costs.chunk[s].reduce = 20;
    uint64_t peers = plan_predict_stage(&c.costs, plan_full(70), PAWL_POLICY_RECYCLE, 1, 1);
    assert_int_equal(peers, (70 * 5 + 3) / 4 * 3 + 20);
    uint64_t shared = plan_predict_stage(&c.costs, plan_full(70), PAWL_POLICY_PAWL, 1, 1);
    assert_int_equal(shared, ((210 + 20) * 15 + 13) / 14 + 20 - 1);
    for (uint32_t s = 0; s < 4; s++) c.costs.chunk[s].reduce = 60; /* dearer than the peers */
    peers = plan_predict_stage(&c.costs, plan_full(70), PAWL_POLICY_RECYCLE, 1, 1);
    assert_int_equal(plan_predict_stage(&c.costs, plan_full(70), PAWL_POLICY_PAWL, 1, 1), peers);
    c.costs.chunk[3].forward = 9;
    for (uint32_t s = 0; s < 4; s++)
        for (uint32_t j = 1; j < 5; j++)
            assert_true(plan_predict_stage(&c.costs, plan_full(70), PAWL_POLICY_PAWL, s, j) >=
                        plan_predict_stage(&c.costs, plan_full(70), PAWL_POLICY_PAWL, s, j - 1));
    case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_schedule_of_random_tiny_cases_is_below_the_bound),
        cmocka_unit_test(no_schedule_of_random_routes_is_below_the_bound),
        cmocka_unit_test(no_schedule_of_whoever_executes_what_is_below_the_free_bound),
        cmocka_unit_test(the_sum_of_a_chunk_is_in_the_window_of_whoever_holds_it),
        cmocka_unit_test(two_stages_and_three_microbatches_reach_the_bound),
        cmocka_unit_test(closed_forms_of_uniform_stages),
        cmocka_unit_test(little_memory_raises_the_bound_up_to_what_was_found),
        cmocka_unit_test(whoever_executes_what_the_work_takes_all_speed),
        cmocka_unit_test(one_microbatch_needs_its_whole_way_whoever_executes_it),
        cmocka_unit_test(reductions_and_steps_are_part_of_the_time),
        cmocka_unit_test(a_lost_stage_has_no_schedule),
        cmocka_unit_test(predictions_are_the_load_of_the_peers),
        cmocka_unit_test(those_who_must_help_have_another_sum_to_wait_for),
        cmocka_unit_test(no_random_route_keeps_everybody_below_the_free_bound),
        cmocka_unit_test(predictions_of_shared_stages_count_what_helpers_reduce),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
