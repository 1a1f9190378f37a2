/* Single passes of the list scheduler, from inside: none gets stuck where its rules promise that, and the
 * times that it reckons with are those of the simulator or later ones, never earlier. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "kit/plan_list_kit.h"
#include "plan/list.h"

struct inside {
    struct plan_list_options options;
    struct kit_setup setup;
    struct list_problem problem;
    struct list_pass pass;
    struct list_schedule schedule;
    uint32_t stage_of[12];
};

static void open_inside(struct inside *in) {
    struct pawl_error e = {0};
    if (list_problem_open(in->setup.route, &in->setup.costs, &in->options, &in->problem, &e) != PAWL_OK)
        fail_msg("problem: %s", e.text);
    assert_int_equal(list_pass_open(&in->problem, &in->pass, &e), PAWL_OK);
    assert_int_equal(list_schedule_open(&in->problem, &in->schedule, &e), PAWL_OK);
}

static void close_inside(struct inside *in) {
    list_schedule_close(&in->schedule);
    list_pass_close(&in->pass);
    list_problem_close(&in->problem);
    kit_close(&in->setup);
}

/* Keys that have nothing to do with what is sensible; the same for all chunks of a micro-batch, as the
 * reversed pass needs where memory is short. */
static void random_keys(struct inside *in, struct rng_stream *r) {
    const struct list_problem *p = &in->problem;
    uint32_t key[64];
    for (size_t i = 0; i < 64; i++) key[i] = (uint32_t)rng_below(r, 1u << 20);
    for (uint32_t cell = 0; cell < p->cells; cell++)
        for (int k = 0; k < 3; k++)
            in->pass.key[k][cell] =
                key[(cell / (p->chunks * p->microbatches) * p->microbatches + cell % p->microbatches) % 64];
}

static struct list_rule random_rule(struct rng_stream *r) {
    return (struct list_rule){.prefer = rng_below(r, 2) ? LIST_BY_KIND : LIST_BY_KEY,
                              .forward_first = rng_below(r, 2),
                              .free_memory_first = rng_below(r, 2)};
}

static void open_peers(struct inside *in, struct rng_stream *r, uint64_t least) {
    struct kit_case c = {.pipelines = 2 + (uint32_t)rng_below(r, 3),
                         .stages = 1 + (uint32_t)rng_below(r, 5),
                         .microbatches = 1 + (uint32_t)rng_below(r, 8),
                         .comm = rng_below(r, 2),
                         .dead_count = 1,
                         .caps = KIT_FIXED,
                         .x = least + rng_below(r, 3)};
    c.dead_stage[0] = (uint32_t)rng_below(r, c.stages);
    kit_open(&c, &in->setup);
    in->options = (struct plan_list_options){.backward = rng_below(r, 2) ? PLAN_SPLIT : PLAN_FUSED,
                                             .staggered = rng_below(r, 2)};
}

static void passes_of_one_chunk_a_worker_never_get_stuck(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct rng_stream r = {seed};
        struct inside in;
        open_peers(&in, &r, 1);
        open_inside(&in);
        random_keys(&in, &r);
        struct list_rule rule = random_rule(&r);
        list_forward(&in.pass, &rule, &in.schedule);
        if (in.schedule.period == LIST_NEVER) fail_msg("seed %llu: forward", (unsigned long long)seed);
        rule = random_rule(&r);
        list_backward(&in.pass, &rule, &in.schedule);
        if (in.schedule.period == LIST_NEVER) fail_msg("seed %llu: backward", (unsigned long long)seed);
        close_inside(&in);
    }
}

/* Down the workers and up again, two chunks each. */
static void open_v(struct inside *in, uint32_t stages, uint32_t microbatches, uint64_t limit) {
    struct kit_case c = {.pipelines = 1, .stages = 2 * stages, .caps = KIT_FIXED, .x = limit};
    struct pawl_error e = {0};
    kit_costs(&c, &in->setup);
    in->setup.costs.stages = stages;
    assert_int_equal(plan_route_new(1, stages, 2 * stages, microbatches, &in->setup.route, &e), PAWL_OK);
    in->setup.route->stage_of = in->stage_of;
    for (uint32_t chunk = 0; chunk < 2 * stages; chunk++) {
        in->stage_of[chunk] = chunk < stages ? chunk : 2 * stages - 1 - chunk;
        for (uint32_t m = 0; m < microbatches; m++)
            in->setup.route->host[plan_route_cell(in->setup.route, 0, chunk, m)] = in->stage_of[chunk];
    }
    in->options = (struct plan_list_options){.backward = PLAN_SPLIT};
}

static void forward_passes_of_two_chunks_a_worker_never_get_stuck(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct rng_stream r = {seed};
        struct inside in;
        open_v(&in, 1 + (uint32_t)rng_below(&r, 5), 1 + (uint32_t)rng_below(&r, 8), 2 + rng_below(&r, 3));
        open_inside(&in);
        random_keys(&in, &r);
        struct list_rule rule = random_rule(&r);
        list_forward(&in.pass, &rule, &in.schedule);
        if (in.schedule.period == LIST_NEVER) fail_msg("seed %llu", (unsigned long long)seed);
        close_inside(&in);
    }
}

static void stretch_costs(struct inside *in, struct rng_stream *r) {
    bool uneven = rng_below(r, 2);
    for (uint32_t c = 0; c < in->setup.costs.chunks; c++) {
        struct sim_chunk *k = &in->setup.costs.chunk[c];
        if (uneven) {
            k->forward = (1 + rng_below(r, 5)) * SIM_TICKS;
            k->input_grad = (1 + rng_below(r, 5)) * SIM_TICKS;
            k->weight_grad = (1 + rng_below(r, 5)) * SIM_TICKS;
        }
        k->full = 8 + rng_below(r, 4), k->kept = 1 + rng_below(r, 2), k->after_input = k->full - 1;
        k->offload = rng_below(r, 3 * SIM_TICKS), k->load = rng_below(r, 3 * SIM_TICKS);
    }
}

/* The schedule's own times against those of its plan; true: the same period. */
static bool compare_times(struct inside *in, bool exactly, uint64_t seed) {
    struct pawl_error e = {0};
    struct ir_plan *plan = NULL;
    uint64_t reckoned = in->schedule.period;
    assert_int_equal(list_emit(&in->problem, &in->schedule, &plan, &e), PAWL_OK);
    uint64_t period = kit_judge(&in->setup, plan, in->options.staggered);
    if (exactly ? period != reckoned : period > reckoned)
        fail_msg("seed %llu: reckoned with %llu, simulated %llu", (unsigned long long)seed,
                 (unsigned long long)reckoned, (unsigned long long)period);
    ir_plan_free(plan);
    return period == reckoned;
}

static void a_pass_reckons_with_times_that_the_plan_keeps(void **state) {
    (void)state;
    int staggered = 0, same = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct rng_stream r = {seed};
        struct inside in;
        struct list_rule rule = random_rule(&r);
        int aid = (int)rng_below(&r, LIST_OFFLOAD + 1);
        open_peers(&in, &r, 14);
        stretch_costs(&in, &r);
        in.options.recompute = in.options.offload = true;
        open_inside(&in);
        memset(in.pass.aid, aid, in.problem.workers);
        list_keys(&in.pass, false);
        list_forward(&in.pass, &rule, &in.schedule);
        if (in.schedule.period == LIST_NEVER) fail_msg("seed %llu: stuck", (unsigned long long)seed);
        bool equal = compare_times(&in, !in.options.staggered && aid != LIST_OFFLOAD, seed);
        bool counts = in.options.staggered && aid != LIST_OFFLOAD;
        staggered += counts, same += counts && equal;
        close_inside(&in);
    }
    assert_true(staggered > 100);
    assert_true(same >=
                staggered * 9 / 10); /* starts later than the earliest can shorten a period, but rarely do */
}

static void offloading_passes_do_offload_and_recomputing_ones_recompute(void **state) {
    (void)state;
    for (int aid = LIST_NO_AID; aid <= LIST_OFFLOAD; aid++) {
        struct kit_case c = {.pipelines = 1, .stages = 4, .microbatches = 8, .caps = KIT_FIXED, .x = 25};
        static const struct list_rule rule;
        struct inside in = {.options = {.recompute = true, .offload = true, .backward = PLAN_SPLIT}};
        uint64_t had[LIST_OPS] = {0};
        kit_open(&c, &in.setup);
        for (int k = 0; k < 4; k++)
            in.setup.costs.chunk[k].full = 10,
            in.setup.costs.chunk[k].offload = in.setup.costs.chunk[k].load = 1;
        open_inside(&in);
        memset(in.pass.aid, aid, in.problem.workers);
        list_keys(&in.pass, false);
        list_forward(&in.pass, &rule, &in.schedule);
        for (uint32_t i = 0; i < in.schedule.count; i++) had[list_op_of(in.schedule.log[i])]++;
        assert_int_equal(had[LIST_C] > 0, aid == LIST_RECOMPUTE_LATE || aid == LIST_RECOMPUTE_EARLY);
        assert_int_equal(had[LIST_O] > 0, aid == LIST_OFFLOAD);
        assert_int_equal(had[LIST_O], had[LIST_L]);
        close_inside(&in);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_of_one_chunk_a_worker_never_get_stuck),
        cmocka_unit_test(forward_passes_of_two_chunks_a_worker_never_get_stuck),
        cmocka_unit_test(a_pass_reckons_with_times_that_the_plan_keeps),
        cmocka_unit_test(offloading_passes_do_offload_and_recomputing_ones_recompute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
