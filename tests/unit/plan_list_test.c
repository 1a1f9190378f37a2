/* The list scheduler: whatever it is given, its plans pass the checker under their limits; limits too small
 * are refused by name; the same seed gives the same plan; the search ends when told and is never worse than
 * one pass; chunks, helpers, slow workers, transfers, recompute and offload. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "kit/plan_list_kit.h"

static const struct plan_list_options one_pass = {.backward = PLAN_SPLIT, .staggered = true};

static uint64_t count_ops(const struct ir_plan *plan, enum ir_op op) {
    uint64_t count = 0;
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++)
        for (uint32_t i = 0; i < plan->workers[w].count; i++)
            count += plan->workers[w].instructions[i].op == op;
    return count;
}

/* Judges and frees. */
static uint64_t period_of(const struct kit_setup *s, struct ir_plan *plan, bool staggered) {
    uint64_t period = kit_judge(s, plan, staggered);
    ir_plan_free(plan);
    return period;
}

/* ---- any problem ---- */

static void random_costs(struct rng_stream *r, struct sim_costs *k) {
    uint32_t workers = k->pipelines * k->stages;
    for (uint32_t c = 0; c < k->chunks; c++) {
        struct sim_chunk *s = &k->chunk[c];
        s->forward = rng_below(r, 4) * SIM_TICKS / 2;
        s->input_grad = (1 + rng_below(r, 5)) * SIM_TICKS / 3;
        s->weight_grad = rng_below(r, 5) * SIM_TICKS / 3;
        s->reduce = rng_below(r, 2) * rng_below(r, SIM_TICKS);
        s->step = rng_below(r, 2) * rng_below(r, SIM_TICKS);
        s->send_forward = rng_below(r, 2) * rng_below(r, SIM_TICKS);
        s->send_backward = rng_below(r, 2) * rng_below(r, SIM_TICKS);
        s->offload = rng_below(r, SIM_TICKS), s->load = rng_below(r, SIM_TICKS);
        s->full = 10 + rng_below(r, 30);
        s->kept = 1 + rng_below(r, s->full);
        s->after_input = 1 + rng_below(r, s->full);
    }
    if (rng_below(r, 2) == 0) {
        k->slow = kit_zero(workers, sizeof *k->slow);
        for (uint32_t w = 0; w < workers; w++) k->slow[w] = rng_below(r, 4) == 0 ? 1.7 : 1.0;
    }
}

static void random_limits(struct rng_stream *r, struct sim_costs *k, uint64_t chunks_of_a_worker) {
    uint32_t workers = k->pipelines * k->stages;
    if (rng_below(r, 4) == 0) return;
    k->limit = kit_zero(workers, sizeof *k->limit);
    for (uint32_t w = 0; w < workers; w++)
        k->limit[w] = 40 * chunks_of_a_worker + rng_below(r, 2) * rng_below(r, 200);
}

static struct plan_list_options random_options(struct rng_stream *r) {
    return (struct plan_list_options){
        .backward = (enum plan_backward)rng_below(r, 3),
        .staggered = rng_below(r, 2),
        .recompute = rng_below(r, 2),
        .offload = rng_below(r, 2),
        .seed = rng_next(r),
        .rounds = (uint32_t)(rng_below(r, 3) * rng_below(r, 200)),
    };
}

static void kill_some(struct rng_stream *r, struct kit_setup *s) {
    for (uint32_t stage = 0; stage < s->costs.stages; stage++)
        for (uint32_t p = 1; p < s->costs.pipelines; p++) /* one stays */
            if (rng_below(r, 4) == 0) s->alive[p * s->costs.stages + stage] = false;
}

static void plans_of_any_problem_pass_the_checker(void **state) {
    (void)state;
    struct pawl_error e = {0};
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct rng_stream r = {seed};
        struct kit_case c = {.pipelines = 1 + (uint32_t)rng_below(&r, 4),
                             .stages = 1 + (uint32_t)rng_below(&r, 5),
                             .microbatches = 1 + (uint32_t)rng_below(&r, 9)};
        struct kit_setup s;
        kit_costs(&c, &s);
        random_costs(&r, &s.costs);
        random_limits(&r, &s.costs, 1);
        kill_some(&r, &s);
        if (plan_route_peers(&s.costs, plan_full(c.microbatches), s.alive, rng_below(&r, 2), &s.route, &e) !=
            PAWL_OK)
            fail_msg("seed %llu: %s", (unsigned long long)seed, e.text);
        c.options = random_options(&r);
        period_of(&s, kit_plan(&s, &c.options), c.options.staggered);
        kit_close(&s);
    }
}

/* Chunks 0 .. 2P-1 down the workers and up again, or round and round; hosts among the live of the place. */
static void many_chunks(struct rng_stream *r, struct kit_setup *s, uint32_t microbatches,
                        uint32_t *stage_of) {
    struct pawl_error e = {0};
    uint32_t stages = s->costs.stages, chunks = s->costs.chunks;
    bool v = rng_below(r, 2) == 0;
    assert_int_equal(plan_route_new(s->costs.pipelines, stages, chunks, microbatches, &s->route, &e),
                     PAWL_OK);
    memcpy(s->route->alive, s->alive, (size_t)s->costs.pipelines * stages);
    for (uint32_t c = 0; c < chunks; c++)
        stage_of[c] = v && c / stages % 2 == 1 ? stages - 1 - c % stages : c % stages;
    s->route->stage_of = stage_of;
    for (uint32_t home = 0; home < s->costs.pipelines; home++)
        for (uint32_t c = 0; c < chunks; c++)
            for (uint32_t m = 0; m < microbatches; m++) {
                uint32_t p = home;
                while (!s->alive[p * stages + stage_of[c]]) p = (p + 1 + m) % s->costs.pipelines;
                s->route->host[plan_route_cell(s->route, home, c, m)] = p * stages + stage_of[c];
            }
}

static void plans_of_several_chunks_a_worker_pass_the_checker(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 150; seed++) {
        struct rng_stream r = {seed};
        struct kit_setup s;
        uint32_t per_worker = 2 + (uint32_t)rng_below(&r, 2), stage_of[12];
        struct kit_case c = {.pipelines = 1 + (uint32_t)rng_below(&r, 3),
                             .stages = 1 + (uint32_t)rng_below(&r, 4)};
        struct kit_case wide = c;
        wide.stages = c.stages * per_worker; /* as many costs as chunks */
        wide.options = random_options(&r);
        kit_costs(&wide, &s);
        s.costs.stages = c.stages;
        random_costs(&r, &s.costs);
        random_limits(&r, &s.costs, per_worker);
        many_chunks(&r, &s, 1 + (uint32_t)rng_below(&r, 6), stage_of);
        period_of(&s, kit_plan(&s, &wide.options), wide.options.staggered);
        kit_close(&s);
    }
}

/* ---- helpers ---- */

/* Stage 2 of pipeline 0 is dead; worker (1, 1) takes some of its micro-batches, its peers the others. */
static void set_helper(struct kit_setup *s) {
    uint32_t stages = s->costs.stages, n = 0;
    for (uint32_t m = 0; m < s->route->microbatches; m += 3, n++)
        s->route->host[plan_route_cell(s->route, 0, 2, m)] = stages + 1;
    assert_true(n > 0);
}

static void a_worker_that_helps_a_neighbour_stage_reduces_and_steps_both_chunks(void **state) {
    (void)state;
    for (int caps = KIT_UNCAPPED; caps <= KIT_EVEN; caps++)
        for (int staggered = 0; staggered < 2; staggered++) {
            struct kit_case c = {.pipelines = 3, .stages = 4, .microbatches = 9, .caps = (enum kit_caps)caps};
            struct kit_setup s;
            c.dead_count = 1, c.dead_stage[0] = 2;
            kit_open(&c, &s);
            set_helper(&s);
            c.options =
                (struct plan_list_options){.backward = PLAN_SELECTIVE, .staggered = staggered, .rounds = 100};
            struct ir_plan *plan = kit_plan(&s, &c.options);
            assert_true(ir_plan_holds(plan, 5, 1) && ir_plan_holds(plan, 5, 2));
            assert_int_equal(count_ops(plan, IR_R), 12); /* 11 workers, one of them twice */
            assert_int_equal(count_ops(plan, IR_S), 12);
            period_of(&s, plan, staggered);
            kit_close(&s);
        }
}

/* Of the instructions before an R none may have begun after the last gradient of its chunk. */
static void each_r_comes_before_what_begins_after_its_chunk_is_done(void **state) {
    (void)state;
    struct kit_case c = {.pipelines = 3, .stages = 4, .microbatches = 9, .dead_count = 1, .dead_stage = {2}};
    struct kit_setup s;
    struct pawl_error e = {0};
    struct sim_result times;
    uint64_t done[4] = {0}, early = 0;
    kit_open(&c, &s);
    set_helper(&s);
    s.costs.chunk[1].weight_grad = 4 * SIM_TICKS; /* the helper is busy longer than the stage it helps */
    struct plan_list_options o = {.backward = PLAN_SPLIT};
    struct ir_plan *plan = kit_plan(&s, &o);
    assert_int_equal(sim_run(plan, &s.costs, false, NULL, &times, &e), PAWL_OK);
    for (uint32_t w = 0; w < 12; w++)
        for (uint32_t i = 0; i < plan->workers[w].count; i++) {
            const struct ir_instruction *in = &plan->workers[w].instructions[i];
            uint64_t end = times.end[times.first[w] + i];
            if (in->op == IR_W && end > done[in->chunk]) done[in->chunk] = end;
        }
    for (uint32_t w = 0; w < 12; w++)
        for (uint32_t i = 1; i < plan->workers[w].count; i++) {
            const struct ir_instruction *in = &plan->workers[w].instructions[i], *last = in - 1;
            bool work = last->op != IR_R && last->op != IR_S;
            if (in->op == IR_R && work) assert_true(times.start[times.first[w] + i - 1] <= done[in->chunk]);
            early += last->op == IR_S && in->op != IR_R;
        }
    assert_true(early > 0);
    sim_result_close(&times);
    ir_plan_free(plan);
    kit_close(&s);
}

static void a_helper_with_room_for_one_of_each_chunk_does_not_get_stuck(void **state) {
    (void)state;
    struct kit_case c = {.pipelines = 3, .stages = 4, .microbatches = 9, .caps = KIT_FIXED, .x = 2};
    struct kit_setup s;
    c.dead_count = 1, c.dead_stage[0] = 2;
    kit_open(&c, &s);
    set_helper(&s);
    period_of(&s, kit_plan(&s, &one_pass), true);
    kit_close(&s);
}

/* ---- limits ---- */

static void a_limit_below_one_micro_batch_is_refused_with_the_worker_s_name(void **state) {
    (void)state;
    struct kit_case c = {.pipelines = 2, .stages = 3, .microbatches = 4, .caps = KIT_FIXED, .x = 1};
    struct kit_setup s;
    struct pawl_error e = {0};
    struct ir_plan *plan = NULL;
    kit_open(&c, &s);
    period_of(&s, kit_plan(&s, &one_pass), true); /* one is enough */
    s.costs.limit[4] = 0;
    assert_int_equal(plan_list(s.route, &s.costs, &one_pass, &plan, &e), PAWL_PLAN);
    assert_string_equal(e.text,
                        "worker 1:1: its memory limit 0 is below the 1 that one micro-batch of chunk 1 "
                        "needs");
    assert_null(plan);
    kit_close(&s);
}

static void a_limit_below_all_chunks_of_one_micro_batch_is_refused_with_the_worker_s_name(void **state) {
    (void)state;
    struct kit_case c = {.pipelines = 1, .stages = 4, .caps = KIT_FIXED, .x = 1};
    struct kit_setup s;
    struct rng_stream r = {0};
    struct pawl_error e = {0};
    struct ir_plan *plan = NULL;
    uint32_t stage_of[4];
    kit_costs(&c, &s);
    s.costs.stages = 2;
    many_chunks(&r, &s, 3, stage_of);
    assert_int_equal(plan_list(s.route, &s.costs, &one_pass, &plan, &e), PAWL_PLAN);
    assert_non_null(strstr(e.text, "memory limit 1 is below the 2 that micro-batch 0 of pipeline 0 needs"));
    s.costs.limit[0] = s.costs.limit[1] = 2;
    period_of(&s, kit_plan(&s, &one_pass), true);
    kit_close(&s);
}

static void with_room_for_one_micro_batch_they_run_one_after_the_other(void **state) {
    (void)state;
    struct kit_case c = {.pipelines = 1, .stages = 3, .microbatches = 4, .caps = KIT_FIXED, .x = 1};
    c.options = one_pass;
    c.options.staggered = false;
    kit_exactly(&c, 4 * 7); /* 3 F, 3 I, and the W of stage 0 before its next F */
}

/* ---- what a plan is made of ---- */

static void fused_plans_have_no_separate_gradients_and_split_ones_no_fused(void **state) {
    (void)state;
    static const uint64_t separate[3][2] = {{0, 0}, {1, 1}, {96, 96}}; /* I at least, at most; 96 cells */
    for (int backward = PLAN_FUSED; backward <= PLAN_SPLIT; backward++) {
        struct kit_case c = {.pipelines = 3, .stages = 4, .microbatches = 8, .dead_count = 1};
        struct kit_setup s;
        c.options = (struct plan_list_options){.backward = (enum plan_backward)backward, .staggered = true};
        kit_open(&c, &s);
        struct ir_plan *plan = kit_plan(&s, &c.options);
        uint64_t inputs = count_ops(plan, IR_I), fused = count_ops(plan, IR_B);
        assert_int_equal(inputs + fused, 96);
        assert_int_equal(count_ops(plan, IR_W), inputs);
        if (backward != PLAN_SELECTIVE) assert_int_equal(inputs, separate[backward][0]);
        if (backward == PLAN_SELECTIVE) assert_true(inputs > 0 && fused > 0);
        period_of(&s, plan, true);
        kit_close(&s);
    }
}

static void selective_plans_are_as_short_as_split_ones(void **state) {
    (void)state;
    for (uint32_t stage = 0; stage < 4; stage++)
        for (int staggered = 0; staggered < 2; staggered++) {
            struct kit_case c = {.pipelines = 3, .stages = 4, .microbatches = 8, .caps = KIT_EVEN};
            c.dead_count = 1, c.dead_stage[0] = stage, c.comm = stage % 2;
            c.options =
                (struct plan_list_options){.backward = PLAN_SPLIT, .staggered = staggered, .rounds = 60};
            uint64_t split = kit_period(&c);
            c.options.backward = PLAN_SELECTIVE;
            assert_int_equal(kit_period(&c), split);
        }
}

static void transfers_between_workers_lengthen_the_chain_and_those_within_do_not(void **state) {
    (void)state;
    struct kit_case c = {.pipelines = 1, .stages = 3, .microbatches = 1, .comm = 5};
    c.options = (struct plan_list_options){.backward = PLAN_SPLIT};
    kit_exactly(&c, 3 + 3 + 1 + 4 * 5);
    struct kit_setup s;
    kit_open(&c, &s);
    for (uint32_t chunk = 0; chunk < 3; chunk++) s.route->host[plan_route_cell(s.route, 0, chunk, 0)] = 1;
    assert_int_equal(period_of(&s, kit_plan(&s, &c.options), false), 9 * SIM_TICKS - 0);
    kit_close(&s);
}

static void a_worker_half_as_fast_with_half_the_work_does_not_lengthen_the_period(void **state) {
    (void)state;
    struct kit_case c = {.pipelines = 3, .stages = 2, .microbatches = 10};
    struct kit_setup s;
    struct pawl_error e = {0};
    kit_costs(&c, &s);
    s.costs.slow = kit_zero(6, sizeof *s.costs.slow);
    for (int w = 0; w < 6; w++) s.costs.slow[w] = w == 1 ? 2 : 1;
    assert_int_equal(plan_route_peers(&s.costs, plan_full(10), s.alive, true, &s.route, &e), PAWL_OK);
    /* 30 micro-batches at speeds 1/2, 1 and 1: 6 + 12 + 12 */
    assert_int_equal(period_of(&s, kit_plan(&s, &one_pass), true), 36 * SIM_TICKS);
    kit_close(&s);
}

/* ---- the search ---- */

static void the_same_seed_gives_the_same_plan(void **state) {
    (void)state;
    struct kit_case c = {.pipelines = 3, .stages = 4, .microbatches = 6, .caps = KIT_EVEN};
    struct kit_setup s;
    struct bytes first = {0}, second = {0};
    c.dead_count = 1, c.dead_stage[0] = 1;
    c.options =
        (struct plan_list_options){.backward = PLAN_SPLIT, .staggered = true, .rounds = 700, .seed = 5};
    kit_open(&c, &s);
    struct ir_plan *plan = kit_plan(&s, &c.options), *again = kit_plan(&s, &c.options);
    ir_encode(plan, &first);
    ir_encode(again, &second);
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, first.size);
    ir_plan_free(plan);
    ir_plan_free(again);
    bytes_close(&first);
    bytes_close(&second);
    kit_close(&s);
}

static void a_raised_stop_ends_the_search_at_once_with_a_plan(void **state) {
    (void)state;
    bool stop = true;
    struct kit_case c = {.pipelines = 4, .stages = 8, .microbatches = 16, .caps = KIT_EVEN};
    struct plan_list_options pass = one_pass;
    c.dead_count = 1, c.dead_stage[0] = 4;
    c.options = pass;
    uint64_t single = kit_period(&c);
    c.options.rounds = UINT32_MAX, c.options.stop = &stop; /* would take days */
    assert_int_equal(kit_period(&c), single);
}

static void the_search_ends_at_the_bound(void **state) {
    (void)state;
    struct kit_case c = {.pipelines = 3, .stages = 4, .microbatches = 6};
    c.dead_count = 1, c.dead_stage[0] = 2;
    c.options =
        (struct plan_list_options){.backward = PLAN_FUSED, .rounds = UINT32_MAX, .bound = 33 * SIM_TICKS};
    kit_exactly(&c, 33);
}

static void the_search_is_never_worse_than_one_pass_and_often_better(void **state) {
    (void)state;
    int better = 0;
    for (uint32_t stage = 0; stage < 4; stage++)
        for (uint64_t x = 0; x < 3; x++) {
            struct kit_case c = {.pipelines = 4, .stages = 4, .microbatches = 8, .caps = KIT_EVEN, .x = x};
            c.dead_count = 1, c.dead_stage[0] = stage;
            c.options = one_pass;
            uint64_t single = kit_period(&c);
            c.options.rounds = 300;
            uint64_t searched = kit_period(&c);
            assert_true(searched <= single);
            better += searched < single;
        }
    assert_true(better >= 4);
}

/* ---- recompute and offload ---- */

/* One pipeline of four stages; ten bytes a micro-batch, one of them its input. */
static void open_stretched(struct kit_setup *s, uint64_t limit) {
    struct kit_case c = {.pipelines = 1, .stages = 4, .microbatches = 8, .caps = KIT_FIXED, .x = limit};
    kit_open(&c, s);
    for (int k = 0; k < 4; k++) {
        s->costs.chunk[k].full = s->costs.chunk[k].after_input = 10, s->costs.chunk[k].kept = 1;
        s->costs.chunk[k].offload = s->costs.chunk[k].load = SIM_TICKS;
    }
}

static struct plan_list_options stretching(bool recompute, bool offload) {
    return (struct plan_list_options){
        .backward = PLAN_SPLIT, .staggered = true, .rounds = 600, .recompute = recompute, .offload = offload};
}

static void short_memory_is_stretched_where_that_shortens_the_period(void **state) {
    (void)state;
    static const uint64_t limits[] = {20, 25};
    for (size_t i = 0; i < 2; i++) {
        struct kit_setup s;
        struct plan_list_options o = stretching(false, false);
        open_stretched(&s, limits[i]);
        uint64_t plain = period_of(&s, kit_plan(&s, &o), true);
        for (int how = 1; how < 4; how++) {
            o = stretching(how & 1, how & 2);
            struct ir_plan *plan = kit_plan(&s, &o);
            assert_true(count_ops(plan, IR_C) + count_ops(plan, IR_O) > 0);
            if (!o.recompute) assert_int_equal(count_ops(plan, IR_C), 0);
            if (!o.offload) assert_int_equal(count_ops(plan, IR_O), 0);
            assert_int_equal(count_ops(plan, IR_O), count_ops(plan, IR_L));
            assert_true(period_of(&s, plan, true) < plain);
        }
        kit_close(&s);
    }
}

static void enough_memory_is_not_stretched(void **state) {
    (void)state;
    struct kit_setup s;
    struct plan_list_options o = stretching(true, true);
    open_stretched(&s, 80);
    struct ir_plan *plan = kit_plan(&s, &o);
    assert_int_equal(count_ops(plan, IR_C) + count_ops(plan, IR_O), 0);
    period_of(&s, plan, true);
    kit_close(&s);
}

static void copies_that_take_longer_than_the_bubble_are_not_made(void **state) {
    (void)state;
    struct kit_setup s;
    struct plan_list_options o = stretching(false, true);
    open_stretched(&s, 20);
    for (int k = 0; k < 4; k++) s.costs.chunk[k].offload = s.costs.chunk[k].load = 200 * SIM_TICKS;
    struct ir_plan *plan = kit_plan(&s, &o);
    assert_int_equal(count_ops(plan, IR_O), 0);
    period_of(&s, plan, true);
    kit_close(&s);
}

static void permission_to_stretch_never_makes_a_plan_longer(void **state) {
    (void)state;
    for (uint64_t limit = 10; limit <= 60; limit += 5) {
        struct kit_setup s;
        struct plan_list_options o = stretching(false, false);
        open_stretched(&s, limit);
        for (int k = 0; k < 4; k++) { /* hardly worth it */
            s.costs.chunk[k].forward = 2 * SIM_TICKS;
            s.costs.chunk[k].weight_grad = 3 * SIM_TICKS;
        }
        o.rounds = 20;
        uint64_t plain = period_of(&s, kit_plan(&s, &o), true);
        o = stretching(true, false);
        o.rounds = 40; /* half of them without */
        assert_true(period_of(&s, kit_plan(&s, &o), true) <= plain);
        kit_close(&s);
    }
}

/* Take the n-th C out of the plan; false: there are fewer. */
static bool take_out_recompute(struct ir_plan *plan, uint64_t n) {
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
        struct ir_worker *list = &plan->workers[w];
        for (uint32_t i = 0; i < list->count; i++) {
            if (list->instructions[i].op != IR_C || n-- > 0) continue;
            list->count--;
            memmove(list->instructions + i, list->instructions + i + 1,
                    (list->count - i) * sizeof *list->instructions);
            return true;
        }
    }
    return false;
}

static void no_recomputation_of_a_plan_can_be_left_out(void **state) {
    (void)state;
    struct kit_setup s;
    struct plan_list_options o = stretching(true, false);
    uint64_t full[4] = {10, 10, 10, 10}, kept[4] = {1, 1, 1, 1};
    open_stretched(&s, 25);
    struct ir_memory memory = {full, kept, full, s.costs.limit};
    uint64_t period = period_of(&s, kit_plan(&s, &o), true);
    for (uint64_t n = 0;; n++) {
        struct pawl_error e = {0};
        struct ir_plan *plan = kit_plan(&s, &o);
        bool more = take_out_recompute(plan, n);
        if (more && ir_check(plan, &memory, NULL, &e) == PAWL_OK)
            assert_true(kit_judge(&s, plan, true) > period);
        ir_plan_free(plan);
        if (!more) break;
    }
    kit_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_any_problem_pass_the_checker),
        cmocka_unit_test(plans_of_several_chunks_a_worker_pass_the_checker),
        cmocka_unit_test(a_worker_that_helps_a_neighbour_stage_reduces_and_steps_both_chunks),
        cmocka_unit_test(each_r_comes_before_what_begins_after_its_chunk_is_done),
        cmocka_unit_test(a_helper_with_room_for_one_of_each_chunk_does_not_get_stuck),
        cmocka_unit_test(a_limit_below_one_micro_batch_is_refused_with_the_worker_s_name),
        cmocka_unit_test(a_limit_below_all_chunks_of_one_micro_batch_is_refused_with_the_worker_s_name),
        cmocka_unit_test(with_room_for_one_micro_batch_they_run_one_after_the_other),
        cmocka_unit_test(fused_plans_have_no_separate_gradients_and_split_ones_no_fused),
        cmocka_unit_test(selective_plans_are_as_short_as_split_ones),
        cmocka_unit_test(transfers_between_workers_lengthen_the_chain_and_those_within_do_not),
        cmocka_unit_test(a_worker_half_as_fast_with_half_the_work_does_not_lengthen_the_period),
        cmocka_unit_test(the_same_seed_gives_the_same_plan),
        cmocka_unit_test(a_raised_stop_ends_the_search_at_once_with_a_plan),
        cmocka_unit_test(the_search_ends_at_the_bound),
        cmocka_unit_test(the_search_is_never_worse_than_one_pass_and_often_better),
        cmocka_unit_test(short_memory_is_stretched_where_that_shortens_the_period),
        cmocka_unit_test(enough_memory_is_not_stretched),
        cmocka_unit_test(copies_that_take_longer_than_the_bubble_are_not_made),
        cmocka_unit_test(permission_to_stretch_never_makes_a_plan_longer),
        cmocka_unit_test(no_recomputation_of_a_plan_can_be_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
