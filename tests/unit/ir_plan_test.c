/* What ir/ir.h promises of plans as containers. */
#include "ir_oracle.h"

static const struct ir_instruction reduce = {IR_R, IR_NONE, IR_NONE, IR_NONE, IR_NONE};

static struct ir_plan *new_plan(uint32_t pipelines, uint32_t stages, uint32_t microbatches) {
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    if (ir_plan_new(pipelines, stages, microbatches, &plan, &e) != PAWL_OK) fail_msg("%s", e.text);
    return plan;
}

static void a_new_plan_has_live_workers_without_instructions(void **state) {
    (void)state;
    struct ir_plan *plan = new_plan(3, 4, 5);
    for (uint32_t p = 0; p < 3; p++) {
        for (uint32_t s = 0; s < 4; s++) {
            assert_true(ir_plan_worker(plan, p, s)->alive);
            assert_int_equal(ir_plan_worker(plan, p, s)->count, 0);
        }
    }
    ir_plan_free(plan);
    ir_plan_free(NULL);
}

static void sizes_outside_their_limits_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        uint32_t sizes[3];
        const char *name;
    } cases[] = {
        {{0, 1, 1}, "pipelines"},
        {{IR_PIPELINES_MAX + 1, 1, 1}, "pipelines"},
        {{1, 0, 1}, "stages"},
        {{1, IR_STAGES_MAX + 1, 1}, "stages"},
        {{1, 1, 0}, "microbatches"},
        {{1, 1, IR_MICROBATCHES_MAX + 1}, "microbatches"},
        {{UINT32_MAX, 1, 1}, "pipelines"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint32_t *n = cases[i].sizes;
        struct ir_plan *plan = NULL;
        struct pawl_error e = {0};
        assert_int_equal(ir_plan_new(n[0], n[1], n[2], &plan, &e), PAWL_ARGUMENT);
        assert_null(plan);
        assert_non_null(strstr(e.text, cases[i].name));
    }
}

static void what_is_appended_reads_back_in_order(void **state) {
    (void)state;
    struct ir_plan *plan = new_plan(2, 2, 1000);
    struct pawl_error e = {0};
    for (uint32_t m = 0; m < 1000; m++) {
        struct ir_instruction in = {IR_F, m % 2, m, IR_NONE, 1};
        if (ir_plan_append(plan, 1, 0, in, &e) != PAWL_OK) fail_msg("%s", e.text);
        if (ir_plan_append(plan, 0, 1, reduce, &e) != PAWL_OK) fail_msg("%s", e.text);
    }
    assert_int_equal(ir_plan_worker(plan, 1, 0)->count, 1000);
    assert_int_equal(ir_plan_worker(plan, 0, 0)->count, 0);
    for (uint32_t m = 0; m < 1000; m++) {
        assert_int_equal(ir_plan_worker(plan, 1, 0)->instructions[m].microbatch, m);
        assert_int_equal(ir_plan_worker(plan, 0, 1)->instructions[m].op, IR_R);
    }
    ir_plan_free(plan);
}

static void instructions_that_no_plan_can_hold_are_refused(void **state) {
    (void)state;
    static const struct ir_instruction bad[] = {
        {IR_OP_COUNT, 0, 0, IR_NONE, IR_NONE},
        {IR_F, 2, 0, IR_NONE, IR_NONE},
        {IR_F, IR_NONE, 0, IR_NONE, IR_NONE},
        {IR_F, 0, 4, IR_NONE, IR_NONE},
        {IR_B, 0, IR_NONE, IR_NONE, IR_NONE},
        {IR_I, 0, 0, 2, IR_NONE},
        {IR_I, 0, 0, IR_NONE, 2},
        {IR_W, 0, 0, 0, IR_NONE},
        {IR_W, 0, 0, IR_NONE, 0},
        {IR_R, 0, IR_NONE, IR_NONE, IR_NONE},
        {IR_S, IR_NONE, 0, IR_NONE, IR_NONE},
        {IR_S, IR_NONE, IR_NONE, IR_NONE, 1},
    };
    struct ir_plan *plan = new_plan(2, 3, 4);
    struct pawl_error e = {0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (ir_plan_append(plan, 1, 2, bad[i], &e) != PAWL_ARGUMENT) fail_msg("instruction %zu was taken", i);
    assert_int_equal(ir_plan_append(plan, 2, 0, reduce, &e), PAWL_ARGUMENT);
    assert_int_equal(ir_plan_append(plan, 0, 3, reduce, &e), PAWL_ARGUMENT);
    plan->workers[0].alive = false;
    assert_int_equal(ir_plan_append(plan, 0, 0, reduce, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "dead"));
    for (uint32_t w = 0; w < 6; w++) assert_int_equal(plan->workers[w].count, 0);
    ir_plan_free(plan);
}

static void ops_and_schedules_have_names(void **state) {
    (void)state;
    const char *names = "FIWBRS";
    for (int op = 0; op < IR_OP_COUNT; op++) {
        assert_int_equal(ir_op_name((enum ir_op)op)[0], names[op]);
        assert_int_equal(ir_op_name((enum ir_op)op)[1], 0);
    }
    assert_string_equal(ir_op_name(IR_OP_COUNT), "?");
    assert_string_equal(ir_schedule_name(IR_GPIPE), "gpipe");
    assert_string_equal(ir_schedule_name(IR_1F1B), "1f1b");
    assert_string_equal(ir_schedule_name(IR_SCHEDULE_COUNT), "?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_plan_has_live_workers_without_instructions),
        cmocka_unit_test(sizes_outside_their_limits_are_refused_by_name),
        cmocka_unit_test(what_is_appended_reads_back_in_order),
        cmocka_unit_test(instructions_that_no_plan_can_hold_are_refused),
        cmocka_unit_test(ops_and_schedules_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
