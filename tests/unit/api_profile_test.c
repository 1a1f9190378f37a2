/* What workers measured, made into a profile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "api/train_profile.h"
#include "kit/near.h"

/* Three pipelines of two stages; worker 1:1 is twice as slow, worker 2:0 was lost. */
static void fill(struct measure_report r[6]) {
    for (uint32_t i = 0; i < 6; i++)
        r[i] = (struct measure_report){.iterations = 9,
                                       .ns = {1000000, 1100000, 900000, 40000 + i, 7000, 500 + i, 600},
                                       .state_bytes = 1000 + i,
                                       .activation_bytes = 500,
                                       .input_bytes = 20};
    r[3].ns[MEASURE_FORWARD] *= 2;
    r[3].ns[MEASURE_INPUT_GRAD] *= 2;
    r[3].ns[MEASURE_WEIGHT_GRAD] *= 2;
    r[0].ns[MEASURE_SEND_BACKWARD] = r[2].ns[MEASURE_SEND_BACKWARD] = 0;
    r[4] = (struct measure_report){0};
}

static void stages_get_the_median_of_their_workers_and_the_slow_are_named(void **state) {
    (void)state;
    struct measure_report reports[6];
    fill(reports);
    struct launch_measured m = {.name = "gpt", .pipelines = 3, .stages = 2, .layers = 5, .reports = reports};
    struct pawl_profile *p = NULL;
    struct pawl_error e = {0};
    if (train_profile_make(&m, &p, &e) != PAWL_OK) fail_msg("%s", e.text);
    if (pawl_profile_check(p, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_string_equal(p->name, "gpt");
    assert_string_equal(p->unit, "ms");
    assert_double(p->unit_s, 1e-3, 0);
    assert_int_equal(p->stages, 2);
    for (int s = 0; s < 2; s++) {
        assert_double(p->stage[s].forward, 1, 0);
        assert_double(p->stage[s].input_grad, 1.1, 0);
        assert_double(p->stage[s].weight_grad, 0.9, 0);
        assert_double(p->stage[s].step, 0.007, 0);
        assert_int_equal(p->stage[s].activation_bytes, 500);
        assert_int_equal(p->stage[s].input_bytes, 20);
        assert_int_equal(p->stage[s].layers, 3 - s);
    }
    assert_double(p->stage[0].reduce, 0.04, 0);
    assert_double(p->stage[1].reduce, 0.040001, 0);
    assert_double(p->stage[0].send_forward, 0.0005, 0);
    assert_double(p->stage[0].send_backward, 0, 0);
    assert_double(p->stage[1].send_backward, 0.0006, 0);
    assert_int_equal(p->stage[0].state_bytes, 1002);
    assert_int_equal(p->stage[1].state_bytes, 1005);
    assert_int_equal(p->worker_count, 1);
    assert_int_equal(p->worker[0].pipeline, 1);
    assert_int_equal(p->worker[0].stage, 1);
    assert_double(p->worker[0].slow, 2, 1e-12);
    pawl_profile_free(p);
}

static void nothing_measured_is_an_error(void **state) {
    (void)state;
    struct launch_measured m = {.pipelines = 1, .stages = 1};
    struct pawl_profile *p = NULL;
    struct pawl_error e = {0};
    assert_int_equal(train_profile_make(&m, &p, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "nothing was measured"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_get_the_median_of_their_workers_and_the_slow_are_named),
        cmocka_unit_test(nothing_measured_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
