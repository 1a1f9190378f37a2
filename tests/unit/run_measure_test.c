/* What a worker measures of itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "run/measure.h"

static struct measure *fresh(void) {
    struct measure *m = calloc(1, sizeof *m);
    assert_non_null(m);
    return m;
}

static void the_median_is_the_lower_middle_and_the_least_the_least(void **state) {
    (void)state;
    struct measure *m = fresh();
    assert_int_equal(measure_median(m, MEASURE_FORWARD), 0);
    assert_int_equal(measure_least(m, MEASURE_FORWARD), 0);
    const int64_t values[] = {50, 10, 40, 20};
    for (int i = 0; i < 4; i++) measure_add(m, MEASURE_FORWARD, values[i]);
    assert_int_equal(measure_median(m, MEASURE_FORWARD), 20);
    measure_add(m, MEASURE_FORWARD, 30);
    assert_int_equal(measure_median(m, MEASURE_FORWARD), 30);
    assert_int_equal(measure_least(m, MEASURE_FORWARD), 10);
    assert_int_equal(measure_median(m, MEASURE_INPUT_GRAD), 0);
    free(m);
}

static void the_first_iterations_are_forgotten(void **state) {
    (void)state;
    struct measure *m = fresh();
    for (int i = 0; i < 5; i++) {
        measure_iteration(m);
        measure_add(m, MEASURE_STEP, i < 2 ? 1000 : 7);
    }
    assert_int_equal(measure_median(m, MEASURE_STEP), 7);
    assert_int_equal(m->count[MEASURE_STEP], 3);
    free(m);
    m = fresh(); /* a run so short that there is nothing else keeps them */
    measure_iteration(m);
    measure_add(m, MEASURE_STEP, 1000);
    assert_int_equal(measure_median(m, MEASURE_STEP), 1000);
    free(m);
}

static void only_the_newest_are_kept(void **state) {
    (void)state;
    struct measure *m = fresh();
    for (uint32_t i = 0; i < MEASURE_WINDOW; i++) measure_add(m, MEASURE_FORWARD, 1);
    for (uint32_t i = 0; i < MEASURE_WINDOW / 2 + 1; i++) measure_add(m, MEASURE_FORWARD, 9);
    assert_int_equal(measure_median(m, MEASURE_FORWARD), 9);
    for (uint32_t i = 0; i < MEASURE_WINDOW / 2; i++) measure_add(m, MEASURE_FORWARD, 9);
    assert_int_equal(measure_least(m, MEASURE_FORWARD), 9);
    free(m);
}

static void sums_and_sends_are_reported_by_the_least(void **state) {
    (void)state;
    struct measure *m = fresh();
    for (int k = 0; k < MEASURE_KIND_COUNT; k++)
        for (int64_t v = 1; v <= 5; v++) measure_add(m, (enum measure_kind)k, v);
    struct measure_report r = {0};
    measure_times(m, &r);
    const uint64_t want[MEASURE_KIND_COUNT] = {3, 3, 3, 1, 3, 1, 1};
    for (int k = 0; k < MEASURE_KIND_COUNT; k++) assert_int_equal(r.ns[k], want[k]);
    free(m);
}

static void a_report_reads_back_and_no_other_size_is_taken(void **state) {
    (void)state;
    struct measure_report r = {.iterations = 5,
                               .ns = {1, 2, 3, 4, 5, 6, 7},
                               .state_bytes = 1ull << 40,
                               .activation_bytes = 8,
                               .input_bytes = 9,
                               .peak_microbatches = 10},
                          back;
    struct bytes b = {0};
    measure_encode(&r, &b);
    assert_int_equal(b.size, 12 * 8);
    assert_int_equal(measure_decode(b.data, b.size, &back, NULL), PAWL_OK);
    assert_memory_equal(&r, &back, sizeof r);
    assert_int_equal(measure_decode(b.data, b.size - 1, &back, NULL), PAWL_FORMAT);
    bytes_put_u8(&b, 0);
    assert_int_equal(measure_decode(b.data, b.size, &back, NULL), PAWL_FORMAT);
    bytes_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_median_is_the_lower_middle_and_the_least_the_least),
        cmocka_unit_test(the_first_iterations_are_forgotten),
        cmocka_unit_test(only_the_newest_are_kept),
        cmocka_unit_test(sums_and_sends_are_reported_by_the_least),
        cmocka_unit_test(a_report_reads_back_and_no_other_size_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
