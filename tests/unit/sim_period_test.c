/* The period of random plans, against a naive oracle: all difference constraints of sim.h written out between
 * the starts of instructions, and relaxed until they hold or provably cannot. A period is right if it can
 * be kept and one tick less cannot. */
#include "sim_plans.h"

struct edge { /* start of b >= start of a + weight */
    uint32_t a, b;
    int64_t weight;
};

struct oracle {
    const struct ir_plan *plan;
    const struct sim_costs *costs;
    uint32_t workers, count;
    uint32_t first[64];
    const struct ir_instruction **in; /* [count] */
    uint32_t *worker;                 /* [count] */
    int64_t *duration;                /* [count] */
    struct edge *edge;
    uint32_t edge_count, edge_room;
};

static void add_edge(struct oracle *o, uint32_t a, uint32_t b, int64_t weight) {
    if (o->edge_count == o->edge_room) {
        o->edge_room = o->edge_room * 2 + 1024;
        o->edge = realloc(o->edge, o->edge_room * sizeof *o->edge);
        assert_non_null(o->edge);
    }
    o->edge[o->edge_count++] = (struct edge){a, b, weight};
}

static void after(struct oracle *o, uint32_t a, uint32_t b, int64_t lag) {
    add_edge(o, a, b, o->duration[a] + lag);
}

static bool same_cell(const struct ir_instruction *a, const struct ir_instruction *b) {
    return a->home == b->home && a->microbatch == b->microbatch;
}

/* What comes before instruction i in its own list. */
static void list_edges(struct oracle *o, uint32_t i) {
    uint32_t f_of_copy = 0; /* an O's place in the queue of copies is its F's */
    for (uint32_t j = o->first[o->worker[i]]; j < o->count && o->worker[j] == o->worker[i]; j++) {
        const struct ir_instruction *a = o->in[j], *b = o->in[i];
        bool cell = b->op != IR_R && b->op != IR_S && a->op != IR_R && a->op != IR_S && same_cell(a, b) &&
                    a->chunk == b->chunk;
        if (b->op == IR_O && a->op == IR_F && cell) f_of_copy = j;
        if (j >= i) continue;
        if (b->op == IR_O ? a->op == IR_F && cell : a->op != IR_L) after(o, j, i, 0);
        if (b->op == IR_L && a->op == IR_L) after(o, j, i, 0);
        if ((b->op == IR_I || b->op == IR_B) && a->op == IR_L && cell) after(o, j, i, 0);
    }
    if (o->in[i]->op != IR_O) return;
    for (uint32_t j = o->first[o->worker[i]]; j < f_of_copy; j++) { /* copies of earlier F */
        if (o->in[j]->op != IR_F) continue;
        for (uint32_t k = j; k < o->count && o->worker[k] == o->worker[i]; k++)
            if (o->in[k]->op == IR_O && same_cell(o->in[k], o->in[j]) && o->in[k]->chunk == o->in[j]->chunk)
                after(o, k, i, 0);
    }
}

static void message_edges(struct oracle *o, uint32_t i) {
    const struct ir_instruction *b = o->in[i];
    for (uint32_t j = 0; j < o->count; j++) {
        const struct ir_instruction *a = o->in[j];
        bool forward = a->op == IR_F && b->op == IR_F && a->chunk + 1 == b->chunk;
        bool backward =
            (a->op == IR_I || a->op == IR_B) && (b->op == IR_I || b->op == IR_B) && a->chunk == b->chunk + 1;
        if ((!forward && !backward) || !same_cell(a, b)) continue;
        const struct sim_chunk *c = &o->costs->chunk[a->chunk];
        uint64_t lag = o->worker[i] == o->worker[j] ? 0 : forward ? c->send_forward : c->send_backward;
        after(o, j, i, (int64_t)lag);
    }
}

/* An R starts after all that comes before any R of its chunk. */
static void reduce_edges(struct oracle *o, uint32_t i) {
    for (uint32_t r = 0; r < o->count; r++) {
        if (o->in[r]->op != IR_R || o->in[r]->chunk != o->in[i]->chunk) continue;
        for (uint32_t j = o->first[o->worker[r]]; j < r; j++)
            if (o->in[j]->op != IR_L) after(o, j, i, 0);
    }
}

static void period_edges(struct oracle *o, int64_t period) {
    uint32_t stages = o->plan->stages;
    for (uint32_t i = 0; i < o->count; i++)
        for (uint32_t j = 0; j < o->count; j++)
            if (o->worker[i] % stages == o->worker[j] % stages || o->in[i]->chunk == o->in[j]->chunk)
                add_edge(o, i, j, o->duration[i] - period);
}

static void oracle_open(struct oracle *o, const struct world *w) {
    *o =
        (struct oracle){.plan = w->plan, .costs = &w->costs, .workers = w->plan->pipelines * w->plan->stages};
    for (uint32_t i = 0; i < o->workers; i++) o->count += w->plan->workers[i].count;
    o->in = calloc(o->count, sizeof *o->in);
    o->worker = calloc(o->count, sizeof *o->worker);
    o->duration = calloc(o->count, sizeof *o->duration);
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->workers; i++) {
        o->first[i] = n;
        for (uint32_t k = 0; k < w->plan->workers[i].count; k++, n++) {
            o->in[n] = &w->plan->workers[i].instructions[k];
            o->worker[n] = i;
            o->duration[n] = (int64_t)sim_duration(o->costs, i, o->in[n]->chunk, o->in[n]->op);
        }
    }
    for (uint32_t i = 0; i < o->count; i++) {
        list_edges(o, i);
        message_edges(o, i);
        if (o->in[i]->op == IR_R) reduce_edges(o, i);
    }
}

static void oracle_close(struct oracle *o) {
    free(o->in);
    free(o->worker);
    free(o->duration);
    free(o->edge);
}

/* Raise starts until the first `edges` constraints hold; false if they provably cannot. */
static bool relax(const struct oracle *o, uint32_t edges, int64_t *start) {
    bool changed = true;
    for (uint32_t round = 0; changed && round <= o->count; round++) {
        changed = false;
        for (uint32_t i = 0; i < edges; i++) {
            const struct edge *e = &o->edge[i];
            if (start[e->a] + e->weight <= start[e->b]) continue;
            start[e->b] = start[e->a] + e->weight;
            changed = true;
        }
    }
    return !changed;
}

static int64_t last_end(const struct oracle *o, const int64_t *start) {
    int64_t last = 0;
    for (uint32_t i = 0; i < o->count; i++)
        if (start[i] + o->duration[i] > last) last = start[i] + o->duration[i];
    return last;
}

/* Can all constraints, and with `period` >= 0 those of the period, hold? Writes the largest end. */
static bool oracle_holds(struct oracle *o, int64_t period, int64_t *makespan) {
    uint32_t kept = o->edge_count;
    int64_t *start = calloc(o->count, sizeof *start);
    if (period >= 0) period_edges(o, period);
    bool holds = relax(o, o->edge_count, start);
    *makespan = last_end(o, start);
    o->edge_count = kept;
    free(start);
    return holds;
}

/* The next iteration of every worker starts after all of the last in its list, copies back aside. */
static void next_iteration(const struct oracle *o, int64_t *start) {
    int64_t *end = calloc(o->workers, sizeof *end);
    for (uint32_t i = 0; i < o->count; i++)
        if (o->in[i]->op != IR_L && start[i] + o->duration[i] > end[o->worker[i]])
            end[o->worker[i]] = start[i] + o->duration[i];
    for (uint32_t i = 0; i < o->count; i++) start[i] = end[o->worker[i]];
    free(end);
}

static void assert_least_period(struct rng_stream *r) {
    struct world w = world_random(r);
    struct pawl_error e = {0};
    struct sim_result times;
    struct oracle o;
    int64_t ignored;
    must(sim_run(w.plan, &w.costs, true, NULL, &times, &e), &e);
    oracle_open(&o, &w);
    assert_true(oracle_holds(&o, (int64_t)times.period, &ignored));
    if (times.period > 0 && oracle_holds(&o, (int64_t)times.period - 1, &ignored))
        fail_msg("period %llu, but less is possible", (unsigned long long)times.period);
    oracle_close(&o);
    sim_result_close(&times);
    world_free(&w);
}

static void the_period_can_be_kept_and_no_less(void **state) {
    (void)state;
    struct rng_stream r = {7};
    for (int turn = 0; turn < 250; turn++) assert_least_period(&r);
}

/* One plan in thousands is bound by a cycle through two stages whose mean is no whole number of ticks. These
 * were found by trying. */
static void the_mean_of_a_cycle_through_two_stages_is_rounded_up(void **state) {
    (void)state;
    const uint64_t seeds[] = {18335691717529371802u, 17546029704744275073u, 11656899085203872940u};
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
        struct rng_stream r = {seeds[i]};
        assert_least_period(&r);
    }
}

static void the_makespan_is_that_of_everything_as_soon_as_possible(void **state) {
    (void)state;
    struct rng_stream r = {8};
    for (int turn = 0; turn < 250; turn++) {
        struct world w = world_random(&r);
        struct pawl_error e = {0};
        struct sim_result times[2];
        struct oracle o;
        int64_t makespan;
        must(sim_run(w.plan, &w.costs, false, NULL, &times[0], &e), &e);
        must(sim_run(w.plan, &w.costs, true, NULL, &times[1], &e), &e);
        oracle_open(&o, &w);
        assert_true(oracle_holds(&o, -1, &makespan));
        assert_int_equal(times[0].makespan, makespan);
        assert_int_equal(times[0].period, makespan);
        assert_int_equal(times[1].makespan, makespan);
        oracle_close(&o);
        sim_result_close(&times[0]);
        sim_result_close(&times[1]);
        world_free(&w);
    }
}

static void iterations_in_a_row_follow_from_each_workers_own_list(void **state) {
    (void)state;
    enum { ITERATIONS = 6 };
    struct rng_stream r = {10};
    for (int turn = 0; turn < 150; turn++) {
        struct world w = world_random(&r);
        struct pawl_error e = {0};
        struct oracle o;
        uint64_t ends[ITERATIONS];
        must(sim_iterations(w.plan, &w.costs, true, NULL, ITERATIONS, ends, &e), &e);
        oracle_open(&o, &w);
        int64_t *start = calloc(o.count, sizeof *start);
        for (uint32_t i = 0; i < ITERATIONS; i++) {
            assert_true(relax(&o, o.edge_count, start));
            assert_int_equal(ends[i], last_end(&o, start));
            next_iteration(&o, start);
        }
        free(start);
        oracle_close(&o);
        world_free(&w);
    }
}

static void the_second_opinion_agrees_with_every_run(void **state) {
    (void)state;
    struct rng_stream r = {9};
    for (int turn = 0; turn < 1500; turn++) {
        struct world w = world_random(&r);
        for (int staggered = 0; staggered < 2; staggered++) {
            struct pawl_error e = {0};
            struct sim_result times;
            must(sim_run(w.plan, &w.costs, staggered, NULL, &times, &e), &e);
            if (sim_check(w.plan, &w.costs, staggered, &times, &e) != PAWL_OK)
                fail_msg("turn %d, staggered %d: %s", turn, staggered, e.text);
            sim_result_close(&times);
        }
        world_free(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_period_can_be_kept_and_no_less),
        cmocka_unit_test(the_mean_of_a_cycle_through_two_stages_is_rounded_up),
        cmocka_unit_test(the_makespan_is_that_of_everything_as_soon_as_possible),
        cmocka_unit_test(iterations_in_a_row_follow_from_each_workers_own_list),
        cmocka_unit_test(the_second_opinion_agrees_with_every_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
