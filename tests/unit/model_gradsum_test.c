/* What model/gradsum.h promises: sums that do not depend on order or grouping, and that tell of every
 * contribution that did not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/gradsum.h"

#define COUNT 5003u /* no multiple of any vector or block */
#define PARTS 6u

static float *random_floats(uint64_t count, uint64_t seed, float deviation) {
    float *g = malloc(count * sizeof *g);
    assert_non_null(g);
    rng_normal(seed, 7, deviation, g, count);
    return g;
}

static void a_number_is_rounded_to_the_nearest_even_multiple(void **state) {
    (void)state;
    static const float values[] = {0.0f,  -0.0f,  0.25f, 0.5f,   0.75f, 1.5f,          2.5f,           -0.5f,
                                   -1.5f, 1e-30f, 3e9f,  -3e9f,  1e15f, 8388609.0f,    16777217.0f,    -1e15f,
                                   1e17f, -1e17f, 2e18f, -2e18f, 1.0f,  4503599627e6f, -2251799813e6f, 0.1f};
    enum { N = sizeof values / sizeof values[0] };
    for (int32_t exponent = -3; exponent <= 1; exponent++) {
        int64_t sum[N] = {0}, footer[GRADSUM_FOOTER_WORDS] = {0};
        gradsum_add(sum, values, N, exponent, 1, footer);
        for (int i = 0; i < N; i++) {
            int64_t wanted = llrint((double)values[i] * ldexp(1.0, exponent));
            if (sum[i] != wanted)
                fail_msg("%g * 2^%d gave %lld, wanted %lld", (double)values[i], exponent, (long long)sum[i],
                         (long long)wanted);
        }
        assert_int_equal(footer[GRADSUM_OVERFLOW], 0);
        assert_int_equal(footer[GRADSUM_COUNT], 1);
    }
}

static void any_order_and_any_grouping_give_the_same_bits(void **state) {
    (void)state;
    float *g[PARTS];
    for (uint32_t p = 0; p < PARTS; p++) g[p] = random_floats(COUNT, p, powf(10.0f, (float)p - 4));
    int32_t x = gradsum_exponent_first(PARTS);
    int64_t *a = calloc(COUNT, 8), *b = calloc(COUNT, 8), *c = calloc(COUNT, 8);
    int64_t fa[GRADSUM_FOOTER_WORDS] = {0}, fb[GRADSUM_FOOTER_WORDS] = {0};
    for (uint32_t p = 0; p < PARTS; p++) gradsum_add(a, g[p], COUNT, x, PARTS, fa);
    for (uint32_t p = PARTS; p-- > 0;) gradsum_add(p % 2 == 0 ? b : c, g[p], COUNT, x, PARTS, fb);
    gradsum_merge(c, b, COUNT);
    assert_memory_equal(a, c, COUNT * 8);
    assert_memory_equal(fa, fb, sizeof fa);
    float *mean = malloc(COUNT * sizeof *mean);
    gradsum_mean(a, mean, COUNT, x, PARTS);
    for (uint32_t i = 0; i < COUNT; i++) {
        double wanted = 0;
        for (uint32_t p = 0; p < PARTS; p++) wanted += (double)g[p][i] / PARTS;
        assert_true(fabs(mean[i] - wanted) <= fabs(wanted) * 0x1p-23 + ldexp(1.0, -x));
    }
    for (uint32_t p = 0; p < PARTS; p++) free(g[p]);
    free(a);
    free(b);
    free(c);
    free(mean);
}

static void parts_of_a_tensor_add_to_the_whole(void **state) {
    (void)state;
    float *g = random_floats(COUNT, 3, 1.0f);
    int64_t *a = calloc(COUNT, 8), *b = calloc(COUNT, 8), footer[GRADSUM_FOOTER_WORDS] = {0};
    gradsum_add(a, g, COUNT, 40, 4, footer);
    for (uint64_t at = 0; at < COUNT; at += 1001) {
        uint64_t n = COUNT - at < 1001 ? COUNT - at : 1001;
        assert_int_equal(gradsum_add_part(b + at, g + at, n, 40, 4), 0);
    }
    assert_memory_equal(a, b, COUNT * 8);
    free(g);
    free(a);
    free(b);
}

static void what_is_not_finite_is_counted_and_adds_nothing(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++) {
        for (uint32_t at = 0; at < COUNT; at += 1250) {
            float *g = random_floats(COUNT, 1, 1.0f);
            int64_t *sum = calloc(COUNT, 8), footer[GRADSUM_FOOTER_WORDS] = {0};
            g[at] = bad[k];
            gradsum_add(sum, g, COUNT, 30, 1, footer);
            assert_int_equal(footer[GRADSUM_NONFINITE], 1);
            assert_int_equal(footer[GRADSUM_OVERFLOW], 0);
            assert_int_equal(footer[GRADSUM_COUNT], 1);
            assert_int_equal(sum[at], 0);
            uint32_t other = at == 0 ? 1 : at - 1;
            assert_true(sum[other] == llrint((double)g[other] * 0x1p30));
            free(g);
            free(sum);
        }
    }
}

static void the_range_ends_where_the_contract_says(void **state) {
    (void)state;
    for (uint64_t contributions = 1; contributions <= 48; contributions *= 3) {
        for (int32_t x = -20; x <= 100; x += 40) {
            float edge = (float)(ldexp(1.0, 62 - x) / (double)contributions);
            if ((double)edge * (double)contributions > ldexp(1.0, 62 - x)) edge = nextafterf(edge, 0);
            float g[2] = {edge, -edge}, beyond = nextafterf(edge, INFINITY);
            int64_t sum[2] = {0}, footer[GRADSUM_FOOTER_WORDS] = {0};
            for (uint64_t i = 0; i < contributions; i++) gradsum_add(sum, g, 2, x, contributions, footer);
            assert_int_equal(footer[GRADSUM_OVERFLOW], 0);
            assert_true(sum[0] == -sum[1] && sum[0] > (int64_t)1 << 61);
            gradsum_add(sum, &beyond, 1, x, contributions, footer);
            assert_int_equal(footer[GRADSUM_OVERFLOW], 1);
        }
    }
}

static void the_first_exponent_accepts_up_to_two_to_the_tenth(void **state) {
    (void)state;
    for (uint64_t contributions = 1; contributions < 3000; contributions += 37) {
        int64_t sum = 0, footer[GRADSUM_FOOTER_WORDS] = {0};
        float g = 0x1p10f, large = 0x1p11f * 1.001f;
        gradsum_add(&sum, &g, 1, gradsum_exponent_first(contributions), contributions, footer);
        assert_int_equal(footer[GRADSUM_OVERFLOW], 0);
        gradsum_add(&sum, &large, 1, gradsum_exponent_first(contributions), contributions, footer);
        assert_int_equal(footer[GRADSUM_OVERFLOW], 1);
    }
}

static void an_exponent_leaves_sixteen_bits_above_the_peak(void **state) {
    (void)state;
    static const float peaks[] = {1e-38f, 1e-20f, 1e-6f, 0.5f, 1.0f, 3.0f, 1e10f};
    for (uint64_t contributions = 1; contributions <= 64; contributions *= 4) {
        for (size_t i = 0; i < sizeof peaks / sizeof peaks[0]; i++) {
            int32_t x = gradsum_exponent(peaks[i], contributions);
            int64_t sum = 0, footer[GRADSUM_FOOTER_WORDS] = {0};
            float g = peaks[i] * 0x1p16f, large = peaks[i] * 0x1p18f;
            gradsum_add(&sum, &g, 1, x, contributions, footer);
            assert_int_equal(footer[GRADSUM_OVERFLOW], 0);
            if (peaks[i] < 1e-30f) continue; /* capped: the range is wider than asked */
            gradsum_add(&sum, &large, 1, x, contributions, footer);
            assert_int_equal(footer[GRADSUM_OVERFLOW], 1);
        }
        assert_int_equal(gradsum_exponent(0, contributions), gradsum_exponent_first(contributions));
        assert_int_equal(gradsum_exponent(NAN, contributions), gradsum_exponent_first(contributions));
    }
}

static void losses_add_up_and_a_bad_one_is_counted(void **state) {
    (void)state;
    int64_t footer[GRADSUM_FOOTER_WORDS] = {0};
    gradsum_add_loss(footer, 2.5, 2);
    gradsum_add_loss(footer, 4.0, 2);
    assert_true(gradsum_loss(footer, 2) == 3.25);
    gradsum_add_loss(footer, (double)NAN, 2);
    assert_int_equal(footer[GRADSUM_NONFINITE], 1);
    int64_t clamped[GRADSUM_FOOTER_WORDS] = {0}; /* no redo could bring it into range */
    gradsum_add_loss(clamped, 0x1p40, 2);
    gradsum_add_loss(clamped, 1.0, 2);
    assert_int_equal(clamped[GRADSUM_OVERFLOW], 0);
    assert_true(gradsum_loss(clamped, 1) == 0x1p21 + 1.0);
    gradsum_add_loss(clamped, -0x1p40, 2);
    assert_true(gradsum_loss(clamped, 1) == 1.0);
    assert_int_equal(footer[GRADSUM_COUNT], 0);
}

static void float_sums_are_plain_additions_and_keep_what_is_not_finite(void **state) {
    (void)state;
    enum gradsum_kind kind = GRADSUM_FLOAT;
    int64_t *words = calloc(gradsum_words(kind, COUNT) + 1, sizeof *words);
    words[gradsum_words(kind, COUNT)] = -7; /* where the footer begins */
    float *wanted = calloc(COUNT, sizeof *wanted), *mean = malloc(COUNT * sizeof *mean);
    for (uint32_t p = 0; p < PARTS; p++) {
        float *g = random_floats(COUNT, p, 3);
        gradsum_add_float(gradsum_at(kind, words, 0), g, COUNT);
        for (uint32_t i = 0; i < COUNT; i++) wanted[i] += g[i];
        free(g);
    }
    assert_memory_equal(gradsum_at(kind, words, 0), wanted, COUNT * sizeof *wanted);
    assert_int_equal(words[gradsum_words(kind, COUNT)], -7);
    gradsum_mean_float(gradsum_at(kind, words, 0), mean, COUNT, PARTS);
    for (uint32_t i = 0; i < COUNT; i++) assert_true(mean[i] == wanted[i] / (float)PARTS);
    assert_true(gradsum_finite(mean, COUNT));
    float bad = -INFINITY;
    gradsum_add_float(gradsum_at(kind, words, COUNT - 1), &bad, 1);
    gradsum_mean_float(gradsum_at(kind, words, 0), mean, COUNT, PARTS);
    assert_true(gradsum_finite(mean, COUNT - 1) && !gradsum_finite(mean, COUNT));
    free(words);
    free(wanted);
    free(mean);
}

static void what_is_stored_is_what_adding_to_zeros_gives(void **state) {
    (void)state;
    float *g = random_floats(COUNT, 3, 1.0f);
    g[0] = -0.0f;
    g[1] = NAN;      /* among those of the first block */
    g[2100] = 1e30f; /* out of range, in the second */
    int64_t *added = calloc(COUNT, 8), *stored = malloc(COUNT * 8);
    memset(stored, 0xa5, COUNT * 8);
    assert_int_equal(gradsum_add_part(added, g, COUNT, 40, 4),
                     GRADSUM_PART_NONFINITE | GRADSUM_PART_OVERFLOW);
    assert_int_equal(gradsum_store_part(stored, g, COUNT, 40, 4),
                     GRADSUM_PART_NONFINITE | GRADSUM_PART_OVERFLOW);
    assert_memory_equal(stored, added, COUNT * 8);
    memset(added, 0, COUNT * 8);
    memset(stored, 0xa5, COUNT * 8);
    gradsum_add_float(gradsum_at(GRADSUM_FLOAT, added, 0), g, COUNT);
    gradsum_store_float(gradsum_at(GRADSUM_FLOAT, stored, 0), g, COUNT);
    assert_memory_equal(stored, added, COUNT * sizeof *g);
    free(g);
    free(added);
    free(stored);
}

static void sums_are_empty_until_something_is_counted(void **state) {
    (void)state;
    for (enum gradsum_kind kind = 0; kind < GRADSUM_KIND_COUNT; kind++) {
        int64_t sums[5 + GRADSUM_FOOTER_WORDS], zeros[5] = {0}, seven[5] = {7, 7, 7, 7, 7};
        uint64_t words = gradsum_words(kind, 5);
        int64_t *footer = sums + words;
        for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) sums[i] = 7;
        footer[GRADSUM_COUNT] = 0;
        assert_true(gradsum_empty(kind, sums, 5));
        gradsum_clear_empty(kind, sums, 5);
        assert_memory_equal(sums, zeros, words * 8);
        assert_int_equal(footer[GRADSUM_LOSS], 7);
        memcpy(sums, seven, words * 8);
        gradsum_count(footer, 0);
        assert_false(gradsum_empty(kind, sums, 5));
        gradsum_clear_empty(kind, sums, 5);
        assert_memory_equal(sums, seven, words * 8);
    }
}

static void sums_of_either_kind_lie_one_behind_the_other(void **state) {
    (void)state;
    int64_t words[4] = {0};
    assert_int_equal(gradsum_words(GRADSUM_EXACT, 3), 3);
    assert_int_equal(gradsum_words(GRADSUM_FLOAT, 3), 2);
    assert_ptr_equal(gradsum_at(GRADSUM_EXACT, words, 3), words + 3);
    assert_ptr_equal(gradsum_at(GRADSUM_FLOAT, words, 3), (float *)words + 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_is_rounded_to_the_nearest_even_multiple),
        cmocka_unit_test(any_order_and_any_grouping_give_the_same_bits),
        cmocka_unit_test(parts_of_a_tensor_add_to_the_whole),
        cmocka_unit_test(what_is_not_finite_is_counted_and_adds_nothing),
        cmocka_unit_test(the_range_ends_where_the_contract_says),
        cmocka_unit_test(the_first_exponent_accepts_up_to_two_to_the_tenth),
        cmocka_unit_test(an_exponent_leaves_sixteen_bits_above_the_peak),
        cmocka_unit_test(losses_add_up_and_a_bad_one_is_counted),
        cmocka_unit_test(float_sums_are_plain_additions_and_keep_what_is_not_finite),
        cmocka_unit_test(what_is_stored_is_what_adding_to_zeros_gives),
        cmocka_unit_test(sums_are_empty_until_something_is_counted),
        cmocka_unit_test(sums_of_either_kind_lie_one_behind_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
