/* What ir/ir.h promises of ir_check: its words, its limits, and plans written by hand. */
#include "ir_oracle.h"

static struct ir_plan *parse(const char *text) {
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    if (ir_parse(text, strlen(text), &plan, &e) != PAWL_OK) fail_msg("%s", e.text);
    return plan;
}

static void assert_refused(const char *text, const char *words) {
    struct ir_plan *plan = parse(text);
    struct pawl_error e = {0};
    assert_int_equal(ir_check(plan, NULL, NULL, &e), PAWL_PLAN);
    if (strstr(e.text, words) == NULL) fail_msg("had \"%s\", wanted \"%s\"", e.text, words);
    ir_plan_free(plan);
}

static void a_wait_of_two_workers_for_each_other_is_found(void **state) {
    (void)state;
    assert_refused("pawl-plan 1 pipelines=1 stages=2 microbatches=2\n"
                   "0.0: F0.0>0 B0.0<0 F0.1>0 B0.1<0 R S\n"
                   "0.1: F0.0<0 F0.1<0 B0.0>0 B0.1>0 R S\n",
                   "cyclic wait of 2 workers");
}

/* (0, 0) waits for (0, 1), that for (1, 0), that for (1, 1), and that for (0, 0). */
static void a_wait_of_four_workers_in_a_circle_is_found(void **state) {
    (void)state;
    assert_refused("pawl-plan 1 pipelines=2 stages=2 microbatches=2\n"
                   "0.0: F0.0>0 B0.0<0 F0.1>1 B0.1<1 R S\n"
                   "0.1: F1.1<1 F0.0<0 B1.1>1 B0.0>0 R S\n"
                   "1.0: F1.0>1 B1.0<1 F1.1>0 B1.1<0 R S\n"
                   "1.1: F0.1<0 F1.0<1 B0.1>0 B1.0>1 R S\n",
                   "cyclic wait of 4 workers");
}

static void micro_batches_may_be_hosted_by_any_live_peer(void **state) {
    (void)state;
    struct ir_plan *plan = parse("pawl-plan 1 pipelines=2 stages=2 microbatches=1\n"
                                 "0.0: F0.0>1 B0.0<1 R S\n"
                                 "0.1: R S\n"
                                 "1.0: F1.0>1 I1.0<1 W1.0 R S\n"
                                 "1.1: F1.0<1 F0.0<0 I0.0>0 B1.0>1 W0.0 R S\n");
    uint32_t peak[4];
    struct pawl_error e = {0};
    if (ir_check(plan, NULL, peak, &e) != PAWL_OK) fail_msg("%s", e.text);
    static const uint32_t want[] = {1, 0, 1, 2};
    assert_memory_equal(peak, want, sizeof want);
    ir_plan_free(plan);
}

/* Held means F done and W not done: I alone frees nothing. */
static void a_micro_batch_is_held_until_its_weight_gradient(void **state) {
    (void)state;
    struct ir_plan *plan = parse("pawl-plan 1 pipelines=1 stages=1 microbatches=2\n"
                                 "0.0: F0.0 I0.0 F0.1 I0.1 W0.0 W0.1 R S\n");
    uint32_t peak = 0, limit = 1;
    struct pawl_error e = {0};
    assert_int_equal(ir_check(plan, NULL, &peak, &e), PAWL_OK);
    assert_int_equal(peak, 2);
    assert_int_equal(ir_check(plan, &limit, NULL, &e), PAWL_PLAN);
    assert_string_equal(e.text,
                        "plan: worker (0, 0) position 2: holds 2 micro-batches, its memory limit is 1");
    ir_plan_free(plan);
}

static void every_rule_has_its_words(void **state) {
    (void)state;
    static const struct {
        const char *list, *words;
    } cases[] = {
        {"F0.0 B0.0 R S", "position 4: F of micro-batch 0.1 is nowhere at this stage"},
        {"F0.0 F0.1 B0.0 R S", "I of micro-batch 0.1 is nowhere"},
        {"F0.0 F0.1 B0.0 I0.1 R S", "W of micro-batch 0.1 is nowhere"},
        {"F0.0 F0.0 B0.0 B0.1 R S", "position 1: second forward of micro-batch 0.0"},
        {"B0.0 F0.0 F0.1 B0.1 R S", "position 0: B of micro-batch 0.0 without its F"},
        {"F0.0 B0.0 F0.1 B0.1 B0.1 R S", "position 4: B repeats a gradient of micro-batch 0.1"},
        {"F0.0 B0.0 F0.1 W0.1 I0.1 R S", "position 3: W of micro-batch 0.1 before its I"},
        {"F0.0 B0.0 F0.1 R B0.1 S", "position 4: B after R"},
        {"F0.0 B0.0 F0.1 B0.1 S R", "position 4: S before R"},
        {"F0.0 B0.0 F0.1 B0.1 R S S", "position 6: S after S"},
        {"F0.0 B0.0 F0.1 B0.1 R", "position 5: the list ends without S"},
        {"F0.0 B0.0 F0.1 B0.1", "position 4: the list ends without R"},
        {"F0.0>0 B0.0 F0.1 B0.1 R S", "position 0: F: `to` is pipeline 0, the host there is none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes text = {0};
        bytes_printf(&text, "pawl-plan 1 pipelines=1 stages=1 microbatches=2\n0.0: %s\n", cases[i].list);
        assert_refused((const char *)text.data, cases[i].words);
        bytes_close(&text);
    }
}

/* 4096 x 1024 x 16384 micro-batches would need 200 GB of tables; the lists show at once that they are not
 * there. */
static void a_plan_far_larger_than_its_lists_is_refused_without_memory(void **state) {
    (void)state;
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    assert_int_equal(ir_plan_new(IR_PIPELINES_MAX, IR_STAGES_MAX, IR_MICROBATCHES_MAX, &plan, &e), PAWL_OK);
    assert_int_equal(ir_check(plan, NULL, NULL, &e), PAWL_PLAN);
    assert_non_null(strstr(e.text, "68719476736"));
    ir_plan_free(plan);
}

static void sizes_that_no_plan_has_are_refused(void **state) {
    (void)state;
    struct ir_worker worker = {.alive = true};
    struct ir_plan plan = {1, 1, 1, &worker};
    uint32_t *fields[] = {&plan.pipelines, &plan.stages, &plan.microbatches};
    struct pawl_error e = {0};
    for (int f = 0; f < 3; f++) {
        *fields[f] = 0;
        assert_int_equal(ir_check(&plan, NULL, NULL, &e), PAWL_PLAN);
        *fields[f] = UINT32_MAX;
        assert_int_equal(ir_check(&plan, NULL, NULL, &e), PAWL_PLAN);
        *fields[f] = 1;
    }
    plan.workers = NULL;
    assert_int_equal(ir_check(&plan, NULL, NULL, &e), PAWL_PLAN);
    worker.count = 4; /* and no list */
    plan.workers = &worker;
    assert_int_equal(ir_check(&plan, NULL, NULL, &e), PAWL_PLAN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_of_two_workers_for_each_other_is_found),
        cmocka_unit_test(a_wait_of_four_workers_in_a_circle_is_found),
        cmocka_unit_test(micro_batches_may_be_hosted_by_any_live_peer),
        cmocka_unit_test(a_micro_batch_is_held_until_its_weight_gradient),
        cmocka_unit_test(every_rule_has_its_words),
        cmocka_unit_test(a_plan_far_larger_than_its_lists_is_refused_without_memory),
        cmocka_unit_test(sizes_that_no_plan_has_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
