/* sim_check finds every kind of wrong time: each test takes right times and makes one of them wrong. */
#include "sim_plans.h"

struct fixture {
    struct ir_plan *plan;
    struct sim_costs costs;
    struct sim_result times;
};

static void append(struct ir_plan *plan, uint32_t pipeline, uint32_t stage, struct ir_instruction in) {
    struct pawl_error e = {0};
    must(ir_plan_append(plan, pipeline, stage, in, &e), &e);
}

/* Two pipelines of two stages, two micro-batches each; pipeline 0's first stage offloads both of its own. */
static void open_fixture(struct fixture *f, bool staggered) {
    struct pawl_error e = {0};
    must(ir_plan_new(2, 2, 2, &f->plan, &e), &e);
    for (uint32_t p = 0; p < 2; p++) {
        uint32_t a = 2 * p, b = 2 * p + 1;
        for (uint32_t m = 0; m < 2; m++)
            append(f->plan, p, 0, (struct ir_instruction){IR_F, 0, p, m, IR_NONE, b});
        for (uint32_t m = 0; m < 2 && p == 0; m++)
            append(f->plan, p, 0, (struct ir_instruction){IR_O, 0, p, m, IR_NONE, IR_NONE});
        for (uint32_t m = 0; m < 2 && p == 0; m++)
            append(f->plan, p, 0, (struct ir_instruction){IR_L, 0, p, m, IR_NONE, IR_NONE});
        for (uint32_t m = 0; m < 2; m++)
            append(f->plan, p, 0, (struct ir_instruction){IR_B, 0, p, m, b, IR_NONE});
        for (uint32_t m = 0; m < 2; m++) {
            append(f->plan, p, 1, (struct ir_instruction){IR_F, 1, p, m, a, IR_NONE});
            append(f->plan, p, 1, (struct ir_instruction){IR_I, 1, p, m, IR_NONE, a});
            append(f->plan, p, 1, (struct ir_instruction){IR_W, 1, p, m, IR_NONE, IR_NONE});
        }
        for (uint32_t s = 0; s < 2; s++) {
            append(f->plan, p, s, (struct ir_instruction){IR_R, s, IR_NONE, IR_NONE, IR_NONE, IR_NONE});
            append(f->plan, p, s, (struct ir_instruction){IR_S, s, IR_NONE, IR_NONE, IR_NONE, IR_NONE});
        }
    }
    must(ir_check(f->plan, NULL, NULL, &e), &e);
    f->costs = (struct sim_costs){2, 2, 2, calloc(2, sizeof *f->costs.chunk), NULL, NULL};
    for (uint32_t c = 0; c < 2; c++)
        f->costs.chunk[c] = (struct sim_chunk){.forward = 10,
                                               .input_grad = 8,
                                               .weight_grad = 6,
                                               .reduce = 5,
                                               .step = 4,
                                               .send_forward = 3,
                                               .send_backward = 2,
                                               .offload = 30,
                                               .load = 20,
                                               .full = 2,
                                               .kept = 1,
                                               .after_input = 1};
    must(sim_run(f->plan, &f->costs, staggered, NULL, &f->times, &e), &e);
    must(sim_check(f->plan, &f->costs, staggered, &f->times, &e), &e);
}

static void close_fixture(struct fixture *f) {
    sim_result_close(&f->times);
    free(f->costs.chunk);
    ir_plan_free(f->plan);
}

static uint32_t position(const struct fixture *f, uint32_t worker, enum ir_op op, uint32_t nth) {
    const struct ir_worker *list = &f->plan->workers[worker];
    for (uint32_t i = 0; i < list->count; i++)
        if (list->instructions[i].op == op && nth-- == 0) return (uint32_t)f->times.first[worker] + i;
    fail();
    return 0;
}

static void assert_found(struct fixture *f, bool staggered, const char *what) {
    struct pawl_error e = {0};
    assert_int_equal(sim_check(f->plan, &f->costs, staggered, &f->times, &e), PAWL_PLAN);
    if (strstr(e.text, what) == NULL) fail_msg("wanted \"%s\", had \"%s\"", what, e.text);
}

static void shift(struct fixture *f, uint32_t index, int64_t by) {
    f->times.start[index] += (uint64_t)by;
    f->times.end[index] += (uint64_t)by;
}

/* Move one instruction by `by` in times of a barrier; the error must say `what`. */
static void moved_is_found(uint32_t worker, enum ir_op op, uint32_t nth, int64_t by, const char *what) {
    struct fixture f = {0};
    open_fixture(&f, false);
    shift(&f, position(&f, worker, op, nth), by);
    assert_found(&f, false, what);
    close_fixture(&f);
}

static void an_instruction_that_takes_less_than_it_must_is_found(void **state) {
    (void)state;
    struct fixture f = {0};
    open_fixture(&f, false);
    f.times.end[position(&f, 1, IR_W, 1)] -= 1;
    assert_found(&f, false, "worker (0, 1), position 5, W of chunk 1: from");
    close_fixture(&f);
}

static void an_instruction_that_takes_more_than_it_must_is_found(void **state) {
    (void)state;
    struct fixture f = {0};
    open_fixture(&f, false);
    uint32_t last = position(&f, 3, IR_S, 0);
    f.times.end[last] += 1;
    assert_found(&f, false, "worker (1, 1), position 7, S of chunk 1: from");
    close_fixture(&f);
}

static void an_instruction_before_the_end_of_the_last_is_found(void **state) {
    (void)state;
    moved_is_found(2, IR_F, 1, -1, "before the list comes to it");
}

static void an_activation_that_is_not_there_yet_is_found(void **state) {
    (void)state;
    moved_is_found(1, IR_F, 0, -1, "before its message is there");
}

static void a_gradient_that_is_not_there_yet_is_found(void **state) {
    (void)state;
    struct fixture f = {0};
    open_fixture(&f, false);
    uint32_t sender = position(&f, 3, IR_I, 0), receiver = position(&f, 2, IR_B, 0);
    assert_int_equal(f.times.start[receiver], f.times.end[sender] + 2);
    shift(&f, receiver, -1);
    assert_found(&f, false, "before its message is there");
    close_fixture(&f);
}

static void a_reduce_before_the_last_holder_is_found(void **state) {
    (void)state;
    struct fixture f = {0};
    open_fixture(&f, false);
    uint32_t early = position(&f, 2, IR_R, 0); /* pipeline 1 does not offload and waits */
    assert_true(f.times.start[early] > f.times.end[early - 1]);
    shift(&f, early, -1);
    assert_found(&f, false, "before the last holder comes");
    close_fixture(&f);
}

static void a_copy_out_before_its_forward_ends_is_found(void **state) {
    (void)state;
    moved_is_found(0, IR_O, 0, -1, "its copy to the host starts before it ends");
}

static void two_copies_out_at_once_are_found(void **state) {
    (void)state;
    moved_is_found(0, IR_O, 1, -1, "two copies to the host at once");
}

static void going_on_before_the_copy_out_is_done_is_found(void **state) {
    (void)state;
    moved_is_found(0, IR_L, 0, -1, "before the list comes to it");
}

static void two_copies_back_at_once_are_found(void **state) {
    (void)state;
    moved_is_found(0, IR_L, 1, -1, "before the copy before ends");
}

static void a_backward_before_its_copy_is_back_is_found(void **state) {
    (void)state;
    struct fixture f = {0};
    open_fixture(&f, false);
    uint32_t load = position(&f, 0, IR_L, 0), backward = position(&f, 0, IR_B, 0);
    assert_int_equal(f.times.start[backward], f.times.end[load]);
    shift(&f, backward, -1);
    assert_found(&f, false, "before what it needs is loaded");
    close_fixture(&f);
}

static void a_wrong_period_is_found(void **state) {
    (void)state;
    for (int staggered = 0; staggered < 2; staggered++)
        for (int by = -1; by <= 1; by += 2) {
            struct fixture f = {0};
            open_fixture(&f, staggered);
            f.times.period += (uint64_t)(int64_t)by;
            assert_found(&f, staggered, "period");
            close_fixture(&f);
        }
}

/* The first stage of the other pipeline starts an iteration one tick sooner than all of the stage end. */
static void a_stage_that_takes_longer_than_the_period_is_found(void **state) {
    (void)state;
    struct fixture f = {0};
    open_fixture(&f, true);
    for (uint64_t i = 0; i < f.times.first[4]; i++) shift(&f, (uint32_t)i, 1);
    shift(&f, position(&f, 2, IR_F, 0), -1);
    assert_found(&f, true, "stage 0 takes");
    close_fixture(&f);
}

static void lists_without_times_are_found(void **state) {
    (void)state;
    struct fixture f = {0};
    open_fixture(&f, false);
    f.times.first[1]--;
    assert_found(&f, false, "worker (0, 0) has 10 instructions, but 9 times");
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_instruction_that_takes_less_than_it_must_is_found),
        cmocka_unit_test(an_instruction_that_takes_more_than_it_must_is_found),
        cmocka_unit_test(an_instruction_before_the_end_of_the_last_is_found),
        cmocka_unit_test(an_activation_that_is_not_there_yet_is_found),
        cmocka_unit_test(a_gradient_that_is_not_there_yet_is_found),
        cmocka_unit_test(a_reduce_before_the_last_holder_is_found),
        cmocka_unit_test(a_copy_out_before_its_forward_ends_is_found),
        cmocka_unit_test(two_copies_out_at_once_are_found),
        cmocka_unit_test(going_on_before_the_copy_out_is_done_is_found),
        cmocka_unit_test(two_copies_back_at_once_are_found),
        cmocka_unit_test(a_backward_before_its_copy_is_back_is_found),
        cmocka_unit_test(a_wrong_period_is_found),
        cmocka_unit_test(a_stage_that_takes_longer_than_the_period_is_found),
        cmocka_unit_test(lists_without_times_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
