/* What ir/ir.h promises of plans as containers. */
#include "ir_random.h"

static const struct ir_instruction reduce = {IR_R, 1, IR_NONE, IR_NONE, IR_NONE, IR_NONE};

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
            for (uint32_t k = 0; k < 4; k++) assert_int_equal(ir_plan_holds(plan, p * 4 + s, k), k == s);
        }
    }
    assert_int_equal(plan->chunks, 4);
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
        {{257, 256, 1}, "pipelines x stages must be at most 65536, had 257 x 256"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint32_t *n = cases[i].sizes;
        struct ir_plan *plan = NULL;
        struct pawl_error e = {0};
        assert_int_equal(ir_plan_new(n[0], n[1], n[2], &plan, &e), PAWL_ARGUMENT);
        assert_null(plan);
        assert_non_null(strstr(e.text, cases[i].name));
    }
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    assert_int_equal(ir_plan_new_chunks(1, 1, 0, 1, &plan, &e), PAWL_ARGUMENT);
    assert_int_equal(ir_plan_new_chunks(1, 1, IR_CHUNKS_MAX + 1, 1, &plan, &e), PAWL_ARGUMENT);
    assert_string_equal(e.text, "plan: chunks must be 1..1024, had 1025");
}

static void a_total_below_full_pipelines_takes_the_last_micro_batches_away(void **state) {
    (void)state;
    struct ir_plan *plan = new_plan(3, 2, 4);
    struct pawl_error e = {0};
    struct ir_instruction in = {IR_W, 1, 1, 2, IR_NONE, IR_NONE};
    assert_int_equal(plan->total, 12);
    assert_int_equal(ir_plan_limit(plan, 0, &e), PAWL_ARGUMENT);
    assert_int_equal(ir_plan_limit(plan, 13, &e), PAWL_ARGUMENT);
    assert_string_equal(e.text,
                        "plan: the total of micro-batches must be 1..12 for 3 pipelines of 4, had 13");
    assert_int_equal(ir_plan_limit(plan, 7, &e), PAWL_OK);
    assert_int_equal(ir_plan_append(plan, 0, 1, in, &e), PAWL_OK); /* number 6 */
    in.microbatch = 3;
    assert_int_equal(ir_plan_append(plan, 0, 1, in, &e), PAWL_ARGUMENT);
    assert_string_equal(e.text, "plan: worker (0, 1) position 1: micro-batch beyond the total");
    assert_int_equal(ir_plan_limit(plan, 12, &e), PAWL_ARGUMENT);
    assert_string_equal(e.text,
                        "plan: the total of micro-batches comes before the instructions, worker (0, 1) "
                        "has 1");
    assert_int_equal(plan->total, 7);
    ir_plan_free(plan);
}

static void a_copy_is_the_same_and_its_own(void **state) {
    (void)state;
    struct rng_stream rng = {.state = 8};
    for (int i = 0; i < 100; i++) {
        struct random_shape shape = random_any_shape(&rng);
        struct ir_plan *plan = random_plan(rng_next(&rng), &shape), *copy = NULL;
        struct pawl_error e = {0};
        struct ir_instruction in = {IR_R, 0, IR_NONE, IR_NONE, IR_NONE, IR_NONE};
        assert_int_equal(ir_plan_copy(plan, &copy, &e), PAWL_OK);
        assert_same_plan(plan, copy);
        for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) ir_plan_kill(plan, w);
        ir_plan_free(plan);
        assert_int_equal(ir_check(copy, NULL, NULL, &e), PAWL_OK);
        for (uint32_t w = 0; w < copy->pipelines * copy->stages; w++)
            if (copy->workers[w].alive) /* and can grow */
                assert_int_equal(ir_plan_append(copy, w / copy->stages, w % copy->stages, in, &e), PAWL_OK);
        ir_plan_free(copy);
    }
}

static void what_is_appended_reads_back_in_order(void **state) {
    (void)state;
    struct ir_plan *plan = new_plan(2, 2, 1000);
    struct pawl_error e = {0};
    for (uint32_t m = 0; m < 1000; m++) {
        struct ir_instruction in = {IR_F, 1, m % 2, m, IR_NONE, 3};
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
        {IR_OP_COUNT, 0, 0, 0, IR_NONE, IR_NONE},
        {IR_F, 3, 0, 0, IR_NONE, IR_NONE},
        {IR_R, 3, IR_NONE, IR_NONE, IR_NONE, IR_NONE},
        {IR_S, IR_NONE, IR_NONE, IR_NONE, IR_NONE, IR_NONE},
        {IR_F, 0, 2, 0, IR_NONE, IR_NONE},
        {IR_F, 0, IR_NONE, 0, IR_NONE, IR_NONE},
        {IR_F, 0, 0, 4, IR_NONE, IR_NONE},
        {IR_B, 0, 0, IR_NONE, IR_NONE, IR_NONE},
        {IR_I, 0, 0, 0, 6, IR_NONE},
        {IR_I, 0, 0, 0, IR_NONE, 6},
        {IR_W, 0, 0, 0, 0, IR_NONE},
        {IR_W, 0, 0, 0, IR_NONE, 0},
        {IR_C, 0, 0, 0, IR_NONE, 0},
        {IR_O, 0, 0, 0, 0, IR_NONE},
        {IR_L, 0, 0, 4, IR_NONE, IR_NONE},
        {IR_R, 0, 0, IR_NONE, IR_NONE, IR_NONE},
        {IR_S, 0, IR_NONE, 0, IR_NONE, IR_NONE},
        {IR_S, 0, IR_NONE, IR_NONE, IR_NONE, 1},
    };
    struct ir_plan *plan = new_plan(2, 3, 4);
    struct pawl_error e = {0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (ir_plan_append(plan, 1, 2, bad[i], &e) != PAWL_ARGUMENT) fail_msg("instruction %zu was taken", i);
    assert_int_equal(ir_plan_append(plan, 2, 0, reduce, &e), PAWL_ARGUMENT);
    assert_int_equal(ir_plan_append(plan, 0, 3, reduce, &e), PAWL_ARGUMENT);
    ir_plan_kill(plan, 0);
    assert_int_equal(ir_plan_append(plan, 0, 0, reduce, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "dead"));
    for (uint32_t w = 0; w < 6; w++) assert_int_equal(plan->workers[w].count, 0);
    ir_plan_free(plan);
}

static struct ir_plan *new_chunks(uint32_t chunks) {
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    if (ir_plan_new_chunks(2, 2, chunks, 3, &plan, &e) != PAWL_OK) fail_msg("%s", e.text);
    return plan;
}

static void a_worker_holds_what_it_was_given_in_ascending_order(void **state) {
    (void)state;
    static const uint32_t given[] = {5, 0, 7, 5, 3, 0, 6}, want[] = {0, 3, 5, 6, 7};
    struct ir_plan *plan = new_chunks(8);
    struct pawl_error e = {0};
    for (uint32_t w = 0; w < 4; w++) assert_int_equal(plan->workers[w].hold_count, 0);
    for (size_t i = 0; i < 7; i++) assert_int_equal(ir_plan_hold(plan, 2, given[i], &e), PAWL_OK);
    assert_int_equal(plan->workers[2].hold_count, 5);
    assert_memory_equal(plan->workers[2].holds, want, sizeof want);
    for (uint32_t k = 0; k < 8; k++) assert_int_equal(ir_plan_holds(plan, 2, k), k != 1 && k != 2 && k != 4);
    assert_false(ir_plan_holds(plan, 2, 8));
    assert_int_equal(ir_plan_hold(plan, 2, 8, &e), PAWL_ARGUMENT);
    assert_string_equal(e.text, "plan: worker (1, 0) cannot hold chunk 8: there is no such chunk");
    assert_int_equal(ir_plan_hold(plan, 4, 0, &e), PAWL_ARGUMENT);
    assert_string_equal(e.text, "plan: no worker 4 in 2 pipelines x 2 stages");
    ir_plan_free(plan);
}

static void a_killed_worker_holds_and_does_nothing(void **state) {
    (void)state;
    struct ir_plan *plan = new_plan(2, 2, 3);
    struct pawl_error e = {0};
    assert_int_equal(ir_plan_append(plan, 1, 0, reduce, &e), PAWL_OK);
    ir_plan_kill(plan, 2);
    assert_false(plan->workers[2].alive);
    assert_int_equal(plan->workers[2].count, 0);
    assert_false(ir_plan_holds(plan, 2, 0));
    assert_int_equal(ir_plan_hold(plan, 2, 0, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "dead"));
    ir_plan_free(plan);
}

static void appending_into_reserved_room_moves_nothing(void **state) {
    (void)state;
    struct ir_plan *plan = new_plan(1, 2, 1);
    struct pawl_error e = {0};
    struct ir_worker *w = &plan->workers[1];
    assert_int_equal(ir_plan_append(plan, 0, 1, reduce, &e), PAWL_OK);
    assert_int_equal(ir_plan_reserve(plan, 1, 1000, &e), PAWL_OK);
    const struct ir_instruction *list = w->instructions;
    uint32_t room = w->room;
    assert_true(room >= 1001);
    for (int i = 0; i < 1000; i++) assert_int_equal(ir_plan_append(plan, 0, 1, reduce, &e), PAWL_OK);
    assert_ptr_equal(w->instructions, list);
    assert_int_equal(w->room, room);
    assert_int_equal(w->count, 1001);
    assert_int_equal(ir_plan_reserve(plan, 1, UINT32_MAX, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "worker (0, 1) has 1001 instructions"));
    assert_int_equal(ir_plan_reserve(plan, 2, 1, &e), PAWL_ARGUMENT);
    ir_plan_free(plan);
}

static uint32_t growths(uint32_t (*next)(uint32_t), uint32_t count) {
    struct ir_plan *plan = new_plan(1, 2, 1);
    struct pawl_error e = {0};
    struct ir_worker *w = &plan->workers[1];
    uint32_t grown = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t room = w->room;
        if (next != NULL) assert_int_equal(ir_plan_reserve(plan, 1, next(i), &e), PAWL_OK);
        assert_int_equal(ir_plan_append(plan, 0, 1, reduce, &e), PAWL_OK);
        if (w->room != room) grown++;
    }
    assert_int_equal(w->count, count);
    ir_plan_free(plan);
    return grown;
}

static uint32_t one(uint32_t i) {
    (void)i;
    return 1;
}

/* Doubling: 100000 appends take at most 17 allocations, also when every one is announced. */
static void room_grows_by_doubling(void **state) {
    (void)state;
    assert_in_range(growths(NULL, 100000), 1, 17);
    assert_in_range(growths(one, 100000), 1, 17);
}

static void ops_and_schedules_have_names(void **state) {
    (void)state;
    const char *names = "FIWBRSCOL";
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
        cmocka_unit_test(a_total_below_full_pipelines_takes_the_last_micro_batches_away),
        cmocka_unit_test(a_copy_is_the_same_and_its_own),
        cmocka_unit_test(what_is_appended_reads_back_in_order),
        cmocka_unit_test(instructions_that_no_plan_can_hold_are_refused),
        cmocka_unit_test(a_worker_holds_what_it_was_given_in_ascending_order),
        cmocka_unit_test(a_killed_worker_holds_and_does_nothing),
        cmocka_unit_test(appending_into_reserved_room_moves_nothing),
        cmocka_unit_test(room_grows_by_doubling),
        cmocka_unit_test(ops_and_schedules_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
