/* The choice among measured points: least Tw/N within memory and storage, humble on ties, and its words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <pawl/tune.h>

#include "kit/tune_kit.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* Concurrency pays up to 3 in flight. */
static const struct pawl_tune_point points[] = {
    {1, 4, 4 * MIB, 2.0, 0.001}, {1, 8, 4 * MIB, 1.9, 0.001},  {2, 8, 4 * MIB, 2.4, 0.001},
    {3, 8, 4 * MIB, 3.0, 0.001}, {4, 8, 4 * MIB, 3.98, 0.001}, {4, 16, 16 * MIB, 6.0, 0.001},
};
#define COUNT (sizeof points / sizeof points[0])

static struct pawl_tune_choice choose(struct pawl_tune_need need) {
    struct pawl_tune_choice c = {.storage_bytes = 0};
    struct pawl_error e = {0};
    if (pawl_tune_choose(&need, points, COUNT, &c, &e) != PAWL_OK) fail_msg("choose: %s", e.text);
    return c;
}

static struct pawl_tune_need need_of(uint64_t memory_bytes, uint64_t storage_bytes) {
    return (struct pawl_tune_need){
        .bytes = GIB, .iteration_s = 0.1, .memory_bytes = memory_bytes, .storage_bytes = storage_bytes};
}

static void takes_the_least_time_per_save_and_the_fewest_in_flight_of_equals(void **state) {
    (void)state;
    struct pawl_tune_choice c = choose(need_of(0, 0));
    assert_int_equal(c.point.in_flight, 3); /* 1.0 a save; 4 in flight 0.995: no reason for one more */
    assert_int_equal(c.interval.every, 10); /* 3 / (3 * 1.03 * 0.1) = 9.7 */
    assert_near(c.speedup, 1.9, 1e-12);
    assert_int_equal(c.storage_bytes, 4 * GIB);
    assert_int_equal(c.memory_bytes, 3 * GIB);
    assert_int_equal(c.interval.bound, PAWL_BOUND_BANDWIDTH);
}

static void storage_limits_the_saves_in_flight(void **state) {
    (void)state;
    /* N <= S/m - K */
    assert_int_equal(choose(need_of(0, 4 * GIB)).point.in_flight, 3);
    struct pawl_tune_choice c = choose(need_of(0, 4 * GIB - 1));
    assert_int_equal(c.point.in_flight, 2);
    assert_non_null(strstr(c.why, "storage allows no more"));
    assert_int_equal(choose(need_of(0, 2 * GIB)).point.writers, 8);
    struct pawl_tune_need spare = need_of(0, 4 * GIB);
    spare.spare_slots = 1;
    assert_int_equal(choose(spare).point.in_flight, 2);
    spare.spare_slots = 0;
    spare.keep = 3;
    assert_int_equal(choose(spare).point.in_flight, 1);
}

static void memory_limits_the_versions_held(void **state) {
    (void)state;
    assert_int_equal(choose(need_of(3 * GIB, 0)).point.in_flight, 3);
    struct pawl_tune_choice c = choose(need_of(3 * GIB - 1, 0));
    assert_int_equal(c.point.in_flight, 2);
    assert_non_null(strstr(c.why, "memory allows no more"));
}

static void staging_needs_what_is_not_yet_written_and_waits_when_it_is_short(void **state) {
    (void)state;
    struct pawl_tune_need need = need_of(2 * GIB, 0);
    need.staged = true;
    struct pawl_tune_choice c = choose(need);
    assert_int_equal(c.point.in_flight, 3); /* (3 + 1) / 2 */
    assert_int_equal(c.memory_bytes, 2 * GIB);
    assert_near(c.stall_s, 0.001, 1e-12);
    need.memory_bytes = GIB / 4;
    c = choose(need);
    assert_int_equal(c.point.in_flight, 1);
    assert_near(c.stall_s, 0.001 + 0.75 * 1.9, 1e-12); /* 3/4 of it waits for the device */
    assert_int_equal(c.interval.bound, PAWL_BOUND_STALL);
    assert_int_equal(c.interval.every, 476); /* 1.426 / (0.03 * 0.1) = 475.3 */
}

static void what_never_fits_is_refused_with_need_and_have(void **state) {
    (void)state;
    struct pawl_tune_choice c;
    struct pawl_error e = {0};
    struct pawl_tune_need need = need_of(0, 2 * GIB - 1);
    assert_int_equal(pawl_tune_choose(&need, points, COUNT, &c, &e), PAWL_NO_SPACE);
    assert_non_null(strstr(e.text, "2147483648"));
    assert_non_null(strstr(e.text, "2147483647"));
    need = need_of(GIB - 1, 0);
    assert_int_equal(pawl_tune_choose(&need, points, COUNT, &c, &e), PAWL_MEMORY);
    need = need_of(4 * MIB - 1, 0);
    need.staged = true;
    assert_int_equal(pawl_tune_choose(&need, points, COUNT, &c, &e), PAWL_MEMORY);
    need = need_of(0, 0);
    assert_int_equal(pawl_tune_choose(&need, points, 0, &c, &e), PAWL_ARGUMENT);
    need.bytes = 0;
    assert_int_equal(pawl_tune_choose(&need, points, COUNT, &c, &e), PAWL_ARGUMENT);
    need.bytes = UINT64_MAX / 2; /* slots together overflow */
    need.keep = 2;
    need.storage_bytes = UINT64_MAX - 1;
    assert_int_equal(pawl_tune_choose(&need, points, COUNT, &c, &e), PAWL_NO_SPACE);
}

static void fewer_in_flight_are_named_where_they_would_do(void **state) {
    (void)state;
    struct pawl_tune_need need = need_of(0, 0);
    need.iteration_s = 5;
    struct pawl_tune_choice c = choose(need);
    assert_int_equal(c.interval.every, 1);
    assert_non_null(strstr(c.why, "could also be had with 1 in flight"));
    need.iteration_s = 0.1;
    assert_null(strstr(choose(need).why, "could also"));
}

static void no_smaller_point_within_the_limits_is_faster(void **state) {
    (void)state;
    struct rng_stream s = {5};
    for (int round = 0; round < 2000; round++) {
        struct pawl_tune_point some[12];
        for (int i = 0; i < 12; i++)
            some[i] = (struct pawl_tune_point){(uint32_t)rng_below(&s, 6) + 1, (uint32_t)rng_below(&s, 4) + 1,
                                               MIB, 1 + (double)rng_below(&s, 1000) / 100, 0};
        struct pawl_tune_need need = need_of((1 + rng_below(&s, 7)) * GIB, (2 + rng_below(&s, 7)) * GIB);
        struct pawl_tune_choice c;
        if (pawl_tune_choose(&need, some, 12, &c, NULL) != PAWL_OK) {
            for (int i = 0; i < 12; i++)
                assert_true(some[i].in_flight * GIB > need.memory_bytes ||
                            (some[i].in_flight + 1) * GIB > need.storage_bytes);
            continue;
        }
        assert_true(c.storage_bytes <= need.storage_bytes && c.memory_bytes <= need.memory_bytes);
        double chosen = c.point.write_s / c.point.in_flight;
        for (int i = 0; i < 12; i++) {
            bool fits = some[i].in_flight * GIB <= need.memory_bytes &&
                        (some[i].in_flight + 1) * GIB <= need.storage_bytes;
            double each = some[i].write_s / some[i].in_flight;
            assert_false(fits && each * (1 + PAWL_TUNE_TIE) < chosen);
            assert_false(fits && each <= chosen && some[i].in_flight < c.point.in_flight);
        }
    }
}

static void the_cadence_begins_with_the_choice(void **state) {
    (void)state;
    struct pawl_tune_need need = need_of(0, 0);
    need.mtbf_s = 7200;
    struct pawl_tune_choice c = choose(need);
    struct pawl_cadence_config config = pawl_cadence_of(&need, &c);
    assert_int_equal(config.in_flight, 3);
    assert_int_equal(config.first, c.interval.every);
    assert_near(config.speedup, 1.9, 1e-12);
    assert_near(config.mtbf_s, 7200, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_the_least_time_per_save_and_the_fewest_in_flight_of_equals),
        cmocka_unit_test(storage_limits_the_saves_in_flight),
        cmocka_unit_test(memory_limits_the_versions_held),
        cmocka_unit_test(staging_needs_what_is_not_yet_written_and_waits_when_it_is_short),
        cmocka_unit_test(what_never_fits_is_refused_with_need_and_have),
        cmocka_unit_test(fewer_in_flight_are_named_where_they_would_do),
        cmocka_unit_test(no_smaller_point_within_the_limits_is_faster),
        cmocka_unit_test(the_cadence_begins_with_the_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
