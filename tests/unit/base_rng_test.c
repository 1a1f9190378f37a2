/* Random numbers: the published vectors of Philox, true permutations, sane normals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/rng.h"

static void philox_gives_its_published_numbers(void **state) {
    (void)state;
    /* Known answers of the algorithm's authors for 10 rounds: zeros, ones, digits of pi. */
    static const struct {
        uint64_t key, low, high;
        uint32_t want[4];
    } cases[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x85a308d3243f6a88,
         0x0370734413198a2e,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct rng_block got = rng_philox(cases[c].key, cases[c].low, cases[c].high);
        for (int i = 0; i < 4; i++) assert_int_equal(got.v[i], cases[c].want[i]);
    }
}

static void a_permutation_hits_every_place_once(void **state) {
    (void)state;
    static const uint64_t counts[] = {1, 2, 3, 4, 5, 16, 17, 1000, 4096, 4097, 65537};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (uint64_t key = 0; key < 3; key++) {
            uint8_t *seen = calloc(counts[c], 1);
            uint64_t moved = 0;
            for (uint64_t i = 0; i < counts[c]; i++) {
                uint64_t to = rng_permute(key, i, counts[c]);
                assert_true(to < counts[c]);
                assert_int_equal(seen[to]++, 0);
                moved += to != i;
            }
            if (counts[c] >= 1000) assert_true(moved > counts[c] * 9 / 10);
            free(seen);
        }
}

static void a_permutation_of_a_huge_range_stays_inside(void **state) {
    (void)state;
    uint64_t count = ((uint64_t)1 << 63) + 12345;
    for (uint64_t i = 0; i < 1000; i++) assert_true(rng_permute(9, count - 1 - i, count) < count);
}

static void normals_have_the_mean_and_deviation_asked_for(void **state) {
    (void)state;
    enum { COUNT = 100003 }; /* not a multiple of the block */
    float *x = malloc(COUNT * sizeof *x);
    rng_normal(1, 2, 0.5f, x, COUNT);
    double sum = 0, squares = 0;
    for (int i = 0; i < COUNT; i++) sum += (double)x[i], squares += (double)x[i] * (double)x[i];
    assert_true(fabs(sum / (double)COUNT) < 0.01);
    assert_true(fabs(sqrt(squares / (double)COUNT) - 0.5) < 0.01);
    float again[7];
    rng_normal(1, 2, 0.5f, again, 7);
    assert_memory_equal(again, x, sizeof again);
    free(x);
}

static void bounded_numbers_stay_below_their_bound_and_reach_all_of_it(void **state) {
    (void)state;
    struct rng_stream s = {3};
    uint32_t seen = 0;
    for (int i = 0; i < 1000; i++) seen |= 1u << rng_below(&s, 7);
    assert_int_equal(seen, 0x7f);
    for (int i = 0; i < 1000; i++) assert_true(rng_unit((uint32_t)rng_next(&s)) < 1.0f);
    assert_true(rng_unit(UINT32_MAX) < 1.0f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_its_published_numbers),
        cmocka_unit_test(a_permutation_hits_every_place_once),
        cmocka_unit_test(a_permutation_of_a_huge_range_stays_inside),
        cmocka_unit_test(normals_have_the_mean_and_deviation_asked_for),
        cmocka_unit_test(bounded_numbers_stay_below_their_bound_and_reach_all_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
