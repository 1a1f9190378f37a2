/* What sim/sim.h promises of one run on plans whose times are known: closed forms, memory, copies, errors. */
#include "sim_plans.h"

/* Uniform times of F, I and W, no transfers. */
static struct sim_costs uniform(uint32_t pipelines, uint32_t stages, uint64_t f, uint64_t i, uint64_t w) {
    struct sim_costs c = {pipelines, stages, stages, calloc(stages, sizeof *c.chunk), NULL, NULL};
    assert_non_null(c.chunk);
    for (uint32_t s = 0; s < stages; s++)
        c.chunk[s] = (struct sim_chunk){
            .forward = f, .input_grad = i, .weight_grad = w, .full = 1, .kept = 1, .after_input = 1};
    return c;
}

static struct sim_result run(const struct ir_plan *plan, const struct sim_costs *costs, bool staggered) {
    struct sim_result r;
    struct pawl_error e = {0};
    must(sim_run(plan, costs, staggered, NULL, &r, &e), &e);
    must(sim_check(plan, costs, staggered, &r, &e), &e);
    return r;
}

static struct ir_plan *build(enum ir_schedule schedule, uint32_t pipelines, uint32_t stages,
                             uint32_t microbatches) {
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    must(ir_build(schedule, pipelines, stages, microbatches, NULL, &plan, &e), &e);
    return plan;
}

static void gpipe_and_1f1b_take_m_plus_p_minus_1_times(void **state) {
    (void)state;
    for (uint32_t p = 1; p <= 6; p++)
        for (uint32_t m = 1; m <= 12; m++)
            for (int schedule = 0; schedule < IR_SCHEDULE_COUNT; schedule++) {
                struct ir_plan *plan = build((enum ir_schedule)schedule, 2, p, m);
                struct sim_costs costs = uniform(2, p, 3, 4, 2);
                struct sim_result r = run(plan, &costs, false);
                assert_int_equal(r.period, (m + p - 1) * 9);
                assert_int_equal(r.busy[0], m * 9);
                uint32_t stored = schedule == IR_GPIPE || m < p ? m : p;
                assert_int_equal(r.peak[0], stored);
                sim_result_close(&r);
                free(costs.chunk);
                ir_plan_free(plan);
            }
}

/* Without the barrier every stage of 1F1B still waits P-1-s times for the way to the last stage and back: the
 * first stage cannot start its next iteration sooner, and it bounds all. */
static void staggering_does_not_shorten_1f1b_whose_first_stage_waits(void **state) {
    (void)state;
    struct ir_plan *plan = build(IR_1F1B, 1, 4, 6);
    struct sim_costs costs = uniform(1, 4, 1, 1, 1);
    struct sim_result r = run(plan, &costs, true);
    assert_int_equal(r.period, 27);
    assert_int_equal(r.makespan, 27);
    sim_result_close(&r);
    free(costs.chunk);
    ir_plan_free(plan);
}

static void append(struct ir_plan *plan, uint32_t stage, enum ir_op op, uint32_t chunk, uint32_t microbatch,
                   uint32_t from, uint32_t to) {
    struct pawl_error e = {0};
    bool of_chunk = op == IR_R || op == IR_S;
    struct ir_instruction in = {op, chunk, of_chunk ? IR_NONE : 0, of_chunk ? IR_NONE : microbatch, from, to};
    must(ir_plan_append(plan, 0, stage, in, &e), &e);
}

/* Two stages; the first finishes late, the second starts late. Staggered, each takes its own span. */
static void staggered_stages_are_parallelograms(void **state) {
    (void)state;
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    must(ir_plan_new(1, 2, 1, &plan, &e), &e);
    append(plan, 0, IR_F, 0, 0, IR_NONE, 1);
    append(plan, 0, IR_B, 0, 0, 1, IR_NONE);
    append(plan, 1, IR_F, 1, 0, 0, IR_NONE);
    append(plan, 1, IR_I, 1, 0, IR_NONE, 0);
    append(plan, 1, IR_W, 1, 0, IR_NONE, IR_NONE);
    for (uint32_t s = 0; s < 2; s++) {
        append(plan, s, IR_R, s, 0, IR_NONE, IR_NONE);
        append(plan, s, IR_S, s, 0, IR_NONE, IR_NONE);
    }
    struct sim_costs costs = uniform(1, 2, 10, 1, 5);
    costs.chunk[0].send_forward = 3;
    costs.chunk[1].send_backward = 4;
    costs.chunk[0].reduce = 2;
    costs.chunk[0].step = 1;
    struct sim_result r = run(plan, &costs, true);
    /* 0: F 0-10; 1: F 13-23, I 23-24; 0: B 28-34, R 34-36, S 36-37. */
    assert_int_equal(r.period, 37);
    assert_int_equal(r.start[1], 28);
    assert_int_equal(r.start[2], 34);
    assert_int_equal(r.end[3], 37);
    sim_result_close(&r);
    free(costs.chunk);
    ir_plan_free(plan);
}

/* F0 F1 O0 O1 L0 L1 B1 B0 on one worker: copies queue, one at a time in each direction, beside the F. */
static void copies_run_beside_the_computation_one_at_a_time(void **state) {
    (void)state;
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    must(ir_plan_new(1, 1, 2, &plan, &e), &e);
    const struct {
        enum ir_op op;
        uint32_t microbatch;
        uint64_t start, end;
    } list[] = {{IR_F, 0, 0, 10},  {IR_F, 1, 10, 20}, {IR_O, 0, 10, 25}, {IR_O, 1, 25, 40},
                {IR_L, 0, 40, 60}, {IR_L, 1, 60, 80}, {IR_B, 1, 80, 89}, {IR_B, 0, 89, 98},
                {IR_R, 0, 98, 98}, {IR_S, 0, 98, 98}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        append(plan, 0, list[i].op, 0, list[i].microbatch, IR_NONE, IR_NONE);
    struct sim_costs costs = uniform(1, 1, 10, 4, 5);
    costs.chunk[0].offload = 15;
    costs.chunk[0].load = 20;
    costs.chunk[0].full = 8;
    costs.chunk[0].kept = 3;
    struct sim_result r = run(plan, &costs, false);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        assert_int_equal(r.start[i], list[i].start);
        assert_int_equal(r.end[i], list[i].end);
    }
    assert_int_equal(r.peak[0], 16);
    assert_int_equal(r.busy[0], 38);
    sim_result_close(&r);
    free(costs.chunk);
    ir_plan_free(plan);
}

static void peaks_are_those_of_the_checker(void **state) {
    (void)state;
    struct rng_stream r = {3};
    for (int turn = 0; turn < 300; turn++) {
        struct world_shape shape = world_random_shape(&r);
        struct world w = world_new(&shape, 5, true, &r);
        uint64_t full[16], kept[16], after[16], peak[64];
        for (uint32_t c = 0; c < w.plan->chunks; c++) {
            full[c] = w.costs.chunk[c].full;
            kept[c] = w.costs.chunk[c].kept;
            after[c] = w.costs.chunk[c].after_input;
        }
        struct ir_memory memory = {full, kept, after, NULL};
        struct pawl_error e = {0};
        must(ir_check(w.plan, &memory, peak, &e), &e);
        struct sim_result times = run(w.plan, &w.costs, turn % 2 == 0);
        for (uint32_t i = 0; i < shape.pipelines * shape.stages; i++)
            assert_int_equal(times.peak[i], peak[i]);
        sim_result_close(&times);
        world_free(&w);
    }
}

static void lists_that_wait_for_each_other_are_an_error(void **state) {
    (void)state;
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    must(ir_plan_new(1, 2, 1, &plan, &e), &e);
    append(plan, 0, IR_B, 0, 0, 1, IR_NONE);
    append(plan, 0, IR_F, 0, 0, IR_NONE, 1);
    append(plan, 1, IR_F, 1, 0, 0, IR_NONE);
    append(plan, 1, IR_B, 1, 0, IR_NONE, 0);
    struct sim_costs costs = uniform(1, 2, 1, 1, 1);
    struct sim_result r;
    assert_int_equal(sim_run(plan, &costs, true, NULL, &r, &e), PAWL_PLAN);
    assert_non_null(strstr(e.text, "worker (0, 0) waits for ever at its instruction 0"));
    free(costs.chunk);
    ir_plan_free(plan);
}

static void costs_of_other_sizes_are_refused(void **state) {
    (void)state;
    struct ir_plan *plan = build(IR_1F1B, 1, 4, 6);
    struct sim_costs costs = uniform(1, 3, 1, 1, 1);
    struct sim_result r;
    struct pawl_error e = {0};
    assert_int_equal(sim_run(plan, &costs, true, NULL, &r, &e), PAWL_ARGUMENT);
    assert_int_equal(sim_check(plan, &costs, true, &r, &e), PAWL_ARGUMENT);
    free(costs.chunk);
    ir_plan_free(plan);
}

static void times_that_could_overflow_are_refused(void **state) {
    (void)state;
    struct ir_plan *plan = build(IR_1F1B, 1, 4, 6);
    struct sim_costs costs = uniform(1, 4, SIM_TICKS_MAX / 4, SIM_TICKS_MAX / 4, 1);
    struct sim_result r;
    struct pawl_error e = {0};
    assert_int_equal(sim_run(plan, &costs, true, NULL, &r, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "too long"));
    free(costs.chunk);
    ir_plan_free(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpipe_and_1f1b_take_m_plus_p_minus_1_times),
        cmocka_unit_test(staggering_does_not_shorten_1f1b_whose_first_stage_waits),
        cmocka_unit_test(staggered_stages_are_parallelograms),
        cmocka_unit_test(copies_run_beside_the_computation_one_at_a_time),
        cmocka_unit_test(peaks_are_those_of_the_checker),
        cmocka_unit_test(lists_that_wait_for_each_other_are_an_error),
        cmocka_unit_test(costs_of_other_sizes_are_refused),
        cmocka_unit_test(times_that_could_overflow_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
