/* Durations, and which costs are refused. */
#include "sim_plans.h"

#include <math.h>

static struct sim_chunk chunks[2];
static double slow[4];

static struct sim_costs some(void) {
    for (int c = 0; c < 2; c++)
        chunks[c] = (struct sim_chunk){.forward = 10,
                                       .input_grad = 7,
                                       .weight_grad = 5,
                                       .reduce = 9,
                                       .step = 3,
                                       .offload = 4,
                                       .load = 6,
                                       .full = 8,
                                       .kept = 2,
                                       .after_input = 5};
    for (int w = 0; w < 4; w++) slow[w] = 1;
    return (struct sim_costs){2, 2, 2, chunks, slow, NULL};
}

static void a_slow_worker_computes_longer_and_copies_as_before(void **state) {
    (void)state;
    struct sim_costs costs = some();
    slow[3] = 1.5;
    assert_int_equal(sim_duration(&costs, 3, 0, IR_F), 15);
    assert_int_equal(sim_duration(&costs, 3, 0, IR_C), 15);
    assert_int_equal(sim_duration(&costs, 3, 0, IR_I), 11); /* 10.5 rounded */
    assert_int_equal(sim_duration(&costs, 3, 0, IR_W), 8);  /* 7.5 rounded */
    assert_int_equal(sim_duration(&costs, 3, 0, IR_B), 19); /* the sum of them */
    assert_int_equal(sim_duration(&costs, 3, 0, IR_S), 5);
    assert_int_equal(sim_duration(&costs, 3, 0, IR_R), 9);
    assert_int_equal(sim_duration(&costs, 3, 0, IR_O), 4);
    assert_int_equal(sim_duration(&costs, 3, 0, IR_L), 6);
    assert_int_equal(sim_duration(&costs, 2, 0, IR_F), 10);
}

static void what_costs_something_takes_a_tick_at_least(void **state) {
    (void)state;
    struct sim_costs costs = some();
    slow[0] = 1e-9;
    chunks[0].weight_grad = 0;
    assert_int_equal(sim_duration(&costs, 0, 0, IR_F), 1);
    assert_int_equal(sim_duration(&costs, 0, 0, IR_W), 0);
    assert_int_equal(sim_duration(&costs, 0, 0, IR_B), 1);
}

static void long_times_stay_exact_without_a_factor(void **state) {
    (void)state;
    struct sim_costs costs = some();
    chunks[1].forward = ((uint64_t)1 << 58) + 1;
    assert_true(sim_duration(&costs, 1, 1, IR_F) == ((uint64_t)1 << 58) + 1);
    costs.slow = NULL;
    assert_true(sim_duration(&costs, 1, 1, IR_F) == ((uint64_t)1 << 58) + 1);
}

static void refused(const struct sim_costs *costs, uint32_t microbatches, const char *what) {
    struct pawl_error e = {0};
    assert_int_equal(sim_costs_check(costs, microbatches, &e), PAWL_ARGUMENT);
    if (strstr(e.text, what) == NULL) fail_msg("wanted \"%s\", had \"%s\"", what, e.text);
}

static void each_field_that_is_too_large_is_named(void **state) {
    (void)state;
    struct {
        uint64_t *field;
        const char *name;
    } fields[] = {
        {&chunks[1].forward, "forward of chunk 1"},
        {&chunks[1].input_grad, "input_grad of chunk 1"},
        {&chunks[1].weight_grad, "weight_grad of chunk 1"},
        {&chunks[1].reduce, "reduce of chunk 1"},
        {&chunks[1].step, "step of chunk 1"},
        {&chunks[1].send_forward, "send_forward of chunk 1"},
        {&chunks[1].send_backward, "send_backward of chunk 1"},
        {&chunks[1].offload, "offload of chunk 1"},
        {&chunks[1].load, "load of chunk 1"},
    };
    struct pawl_error e = {0};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        struct sim_costs costs = some();
        must(sim_costs_check(&costs, 5, &e), &e);
        *fields[i].field = SIM_TICKS_MAX / 4;
        refused(&costs, 5, fields[i].name);
        *fields[i].field = UINT64_MAX;
        refused(&costs, 5, fields[i].name);
    }
}

static void a_slow_worker_counts_in_the_sum_of_times(void **state) {
    (void)state;
    struct sim_costs costs = some();
    struct pawl_error e = {0};
    chunks[0].forward = SIM_TICKS_MAX / 64;
    must(sim_costs_check(&costs, 5, &e), &e);
    slow[2] = 10;
    refused(&costs, 5, "forward of chunk 0");
}

static void memory_that_contradicts_itself_is_refused(void **state) {
    (void)state;
    struct sim_costs costs = some();
    chunks[1].kept = 9;
    refused(&costs, 5, "kept of chunk 1 is 9, more than its full, 8");
    costs = some();
    chunks[0].after_input = 10;
    refused(&costs, 5, "after_input of chunk 0 is 10, more than its full, 8");
    costs = some();
    chunks[0].full = (uint64_t)1 << 60;
    refused(&costs, 5, "full of chunk 0");
}

static void factors_that_are_no_factors_are_refused(void **state) {
    (void)state;
    const double wrong[] = {0, -1, (double)INFINITY, (double)NAN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct sim_costs costs = some();
        slow[3] = wrong[i];
        refused(&costs, 5, "slow of worker (1, 1)");
    }
}

static void sizes_out_of_range_are_refused(void **state) {
    (void)state;
    struct sim_costs costs = some();
    refused(&costs, 0, "microbatches is 0");
    refused(&costs, IR_MICROBATCHES_MAX + 1, "microbatches");
    costs.pipelines = 0;
    refused(&costs, 5, "pipelines is 0");
    costs = some();
    costs.stages = IR_STAGES_MAX + 1;
    refused(&costs, 5, "stages is 1025");
    costs = some();
    costs.chunks = 0;
    refused(&costs, 5, "chunks is 0");
    costs = some();
    costs.pipelines = IR_PIPELINES_MAX;
    costs.stages = IR_STAGES_MAX;
    refused(&costs, 5, "pipelines * stages");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_worker_computes_longer_and_copies_as_before),
        cmocka_unit_test(what_costs_something_takes_a_tick_at_least),
        cmocka_unit_test(long_times_stay_exact_without_a_factor),
        cmocka_unit_test(each_field_that_is_too_large_is_named),
        cmocka_unit_test(a_slow_worker_counts_in_the_sum_of_times),
        cmocka_unit_test(memory_that_contradicts_itself_is_refused),
        cmocka_unit_test(factors_that_are_no_factors_are_refused),
        cmocka_unit_test(sizes_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
