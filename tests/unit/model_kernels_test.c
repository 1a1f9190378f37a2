/* Every kernel of every set that this processor runs, against plain double-precision loops, for sizes around
 * the widths of vectors; and the same bits at every call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/kernels.h"

static const uint64_t widths[] = {1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 100};
#define WIDTHS (sizeof widths / sizeof widths[0])
#define ROWS   7u

static float *random_floats(uint64_t n, uint64_t seed, float deviation) {
    float *x = malloc((n + 1) * sizeof *x);
    assert_non_null(x);
    rng_normal(seed, 11, deviation, x, n);
    x[n] = 12345.0f; /* a guard: nothing may write or count it */
    return x;
}

static void assert_near(const char *what, const struct kernels *k, uint64_t width, double had, double wanted,
                        double tolerance) {
    if (!(fabs(had - wanted) <= tolerance * (1 + fabs(wanted))))
        fail_msg("%s of %s, width %llu: %.9g, wanted %.9g", what, k->name, (unsigned long long)width, had,
                 wanted);
}

/* Calls `check` for each kernel set and width. */
static void for_all(void (*check)(const struct kernels *k, uint64_t width)) {
    for (uint32_t set = 0; kernels_at(set) != NULL; set++)
        for (size_t w = 0; w < WIDTHS; w++) check(kernels_at(set), widths[w]);
}

static double gelu(double x) {
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static void check_gelu(const struct kernels *k, uint64_t n) {
    float *h = random_floats(ROWS * n, 1, 3), *bias = random_floats(n, 2, 1),
          *g = random_floats(ROWS * n, 3, 1);
    float *x = random_floats(ROWS * n, 1, 3), *dg = random_floats(ROWS * n, 4, 1);
    h[0] = x[0] = 60.0f; /* far out on either side the gate is 1 or 0 */
    h[ROWS * n - 1] = x[ROWS * n - 1] = -60.0f;
    k->bias_gelu(h, bias, g, ROWS, n);
    for (uint64_t i = 0; i < ROWS * n; i++) {
        assert_near("bias", k, n, (double)h[i], (double)(x[i] + bias[i % n]), 0);
        assert_near("gelu", k, n, (double)g[i], gelu((double)h[i]), 4e-7);
        x[i] = h[i];
    }
    k->gelu_grad(h, dg, ROWS * n);
    for (uint64_t i = 0; i < ROWS * n; i++) {
        double at = (double)x[i], slope = (gelu(at + 1e-5) - gelu(at - 1e-5)) / 2e-5;
        assert_near("gelu slope", k, n, (double)h[i], slope * (double)dg[i], 3e-6);
    }
    assert_true(h[ROWS * n] == 12345.0f && g[ROWS * n] == 12345.0f);
    free(h);
    free(bias);
    free(g);
    free(x);
    free(dg);
}

static void gelu_and_its_slope_are_the_tanh_form(void **state) {
    (void)state;
    for_all(check_gelu);
}

static void check_sums(const struct kernels *k, uint64_t n) {
    float *x = random_floats(ROWS * n, 1, 1), *out = random_floats(n, 2, 1), *bias = random_floats(n, 3, 1);
    float *y = random_floats(ROWS * n, 4, 1), *z = random_floats(ROWS * n, 5, 1);
    k->column_sum(x, out, ROWS, n);
    for (uint64_t i = 0; i < n; i++) {
        double sum = 0;
        for (uint64_t r = 0; r < ROWS; r++) sum += (double)x[r * n + i];
        assert_near("column sum", k, n, (double)out[i], sum, 1e-6);
    }
    double squares = 0, product = 0;
    for (uint64_t i = 0; i < ROWS * n; i++) {
        squares += (double)x[i] * (double)x[i];
        product += (double)x[i] * (double)y[i];
    }
    assert_near("norm2", k, n, k->norm2(x, ROWS * n), squares, 1e-12);
    assert_near("dot", k, n, (double)k->dot(x, y, ROWS * n), product, 3e-5);
    k->bias_residual(z, x, bias, ROWS, n);
    for (uint64_t i = 0; i < ROWS * n; i++) assert_true(z[i] == x[i] + bias[i % n]);
    k->add(z, y, ROWS * n);
    for (uint64_t i = 0; i < ROWS * n; i++) assert_true(z[i] == x[i] + bias[i % n] + y[i]);
    float *stored = random_floats(ROWS * n, 6, 1), *added = random_floats(ROWS * n, 6, 1);
    memset(added, 0, ROWS * n * sizeof *added);
    for (uint64_t i = 0; i < ROWS * n; i += 2) y[i] = -0.0f;
    k->add(added, y, ROWS * n);
    k->store(stored, y, ROWS * n);
    assert_memory_equal(stored, added, (ROWS * n + 1) * sizeof *stored);
    free(stored);
    free(added);
    memcpy(z, x, ROWS * n * sizeof *z);
    k->bias_add(z, bias, ROWS, n);
    for (uint64_t i = 0; i < ROWS * n; i++) assert_true(z[i] == x[i] + bias[i % n]);
    assert_true(out[n] == 12345.0f && z[ROWS * n] == 12345.0f);
    free(x);
    free(out);
    free(bias);
    free(y);
    free(z);
}

static void sums_and_biases_cover_every_column(void **state) {
    (void)state;
    for_all(check_sums);
}

static void check_peak(const struct kernels *k, uint64_t n) {
    for (uint64_t at = 0; at < n; at++) {
        float *x = random_floats(n, at, 1), values[3] = {-50.0f, -INFINITY, NAN};
        for (int v = 0; v < 3; v++) {
            uint32_t wanted;
            x[at] = values[v];
            memcpy(&wanted, &x[at], sizeof wanted);
            assert_int_equal(k->peak_bits(x, n), wanted & 0x7fffffffu);
        }
        free(x);
    }
}

static void the_peak_is_found_wherever_it_lies(void **state) {
    (void)state;
    for_all(check_peak);
}

static void check_norm(const struct kernels *k, uint64_t n) {
    if (n < 3) return; /* one number has no variance to speak of */
    float *x = random_floats(ROWS * n, 1, 2), *d = random_floats(ROWS * n, 2, 1), *g = random_floats(n, 3, 1);
    float *b = random_floats(n, 4, 1), *out = random_floats(ROWS * n, 5, 1),
          *dx = random_floats(ROWS * n, 6, 1);
    float *residual = random_floats(ROWS * n, 7, 1), *dg = random_floats(n, 8, 1),
          *db = random_floats(n, 9, 1);
    float mean[ROWS], rstd[ROWS];
    double *wanted_g = calloc(n, 8), *wanted_b = calloc(n, 8);
    struct kernels_norm norm = {ROWS, n, g, b, mean, rstd};
    for (uint64_t i = 0; i < ROWS * n; i++) x[i] += 10.0f; /* a mean far from 0 */
    k->norm_forward(&norm, x, out);
    k->norm_input_grad(&norm, x, d, residual, dx);
    k->norm_weight_grad(&norm, x, d, dg, db);
    for (uint64_t r = 0; r < ROWS; r++) {
        double m = 0, v = 0, a = 0, c = 0;
        for (uint64_t i = r * n; i < r * n + n; i++) m += (double)x[i] / (double)n;
        for (uint64_t i = r * n; i < r * n + n; i++) v += ((double)x[i] - m) * ((double)x[i] - m) / (double)n;
        double s = 1 / sqrt(v + 1e-5);
        for (uint64_t i = 0; i < n; i++) {
            double normal = ((double)x[r * n + i] - m) * s, dn = (double)d[r * n + i] * (double)g[i];
            a += dn / (double)n;
            c += dn * normal / (double)n;
            wanted_g[i] += (double)d[r * n + i] * normal;
            wanted_b[i] += (double)d[r * n + i];
            assert_near("norm", k, n, (double)out[r * n + i], normal * (double)g[i] + (double)b[i], 2e-5);
        }
        for (uint64_t i = 0; i < n; i++) {
            double normal = ((double)x[r * n + i] - m) * s, dn = (double)d[r * n + i] * (double)g[i];
            double wanted = s * (dn - a - normal * c) + (double)residual[r * n + i];
            assert_near("norm input gradient", k, n, (double)dx[r * n + i], wanted, 2e-5);
        }
    }
    for (uint64_t i = 0; i < n; i++) {
        assert_near("gamma's gradient", k, n, (double)dg[i], wanted_g[i], 2e-5);
        assert_near("beta's gradient", k, n, (double)db[i], wanted_b[i], 1e-6);
    }
    assert_true(out[ROWS * n] == 12345.0f && dx[ROWS * n] == 12345.0f && dg[n] == 12345.0f &&
                db[n] == 12345.0f);
    float *all[] = {x, d, g, b, out, dx, residual, dg, db};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
    free(wanted_g);
    free(wanted_b);
}

static void layer_norm_and_its_gradients_are_right(void **state) {
    (void)state;
    for_all(check_norm);
}

static void check_cross_entropy(const struct kernels *k, uint64_t n) {
    for (uint64_t target = 0; target < n; target++) {
        float *x = random_floats(n, target, 5), *p = random_floats(n, target, 5);
        double sum = 0, top = -INFINITY;
        if (target == 2) p[0] = x[0] = 1000.0f; /* far above the others */
        for (uint64_t i = 0; i < n; i++) top = fmax(top, (double)x[i]);
        for (uint64_t i = 0; i < n; i++) sum += exp((double)x[i] - top);
        double loss = k->cross_entropy(p, n, target, 0.25f);
        assert_near("loss", k, n, loss, top + log(sum) - (double)x[target], 1e-6);
        for (uint64_t i = 0; i < n; i++)
            assert_near("loss gradient", k, n, (double)p[i],
                        0.25 * (exp((double)x[i] - top) / sum - (i == target)), 1e-6);
        assert_true(p[n] == 12345.0f);
        free(x);
        free(p);
    }
}

static void cross_entropy_and_its_gradient_are_right(void **state) {
    (void)state;
    for_all(check_cross_entropy);
}

static void check_softmax(const struct kernels *k, uint64_t n) {
    enum { BLOCK = 5, STRIDE = 128 };
    struct kernels_causal c = {.rows = BLOCK, .first = n - 1, .keys = n - 1 + BLOCK, .stride = STRIDE};
    float *s = random_floats(BLOCK * STRIDE, 1, 3), *p = random_floats(BLOCK * STRIDE, 1, 3);
    float *again = random_floats(BLOCK * STRIDE, 1, 3), *dp = random_floats(BLOCK * STRIDE, 2, 1);
    float *ds = random_floats(BLOCK * STRIDE, 2, 1), lse[BLOCK], delta[BLOCK];
    for (int r = 0; r < BLOCK; r++)
        s[r * STRIDE + STRIDE - 1] = p[r * STRIDE + STRIDE - 1] = NAN; /* padding */
    k->softmax(&c, p, lse);
    k->softmax_again(&c, again, lse);
    for (uint64_t r = 0; r < BLOCK; r++) {
        double sum = 0, dot = 0;
        const float *row = s + r * STRIDE;
        for (uint64_t i = 0; i < n + r; i++) sum += exp((double)row[i]);
        assert_near("lse", k, n, (double)lse[r], log(sum), 1e-6);
        for (uint64_t i = 0; i < c.keys; i++) {
            double wanted = i < n + r ? exp((double)row[i]) / sum : 0;
            assert_near("probability", k, n, (double)p[r * STRIDE + i], wanted, 1e-6);
            assert_near("probability again", k, n, (double)again[r * STRIDE + i], wanted, 2e-6);
            dot += wanted * (double)dp[r * STRIDE + i];
        }
        delta[r] = (float)dot;
    }
    k->softmax_grad(&c, p, ds, delta, 0.5f);
    for (uint64_t r = 0; r < BLOCK; r++)
        for (uint64_t i = 0; i < c.keys; i++) {
            double probability = (double)p[r * STRIDE + i];
            double wanted = 0.5 * probability * ((double)dp[r * STRIDE + i] - (double)delta[r]);
            assert_near("score gradient", k, n, (double)ds[r * STRIDE + i], i < n + r ? wanted : 0, 1e-6);
        }
    float *all[] = {s, p, again, dp, ds};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
}

static void causal_softmax_ends_at_the_diagonal(void **state) {
    (void)state;
    for_all(check_softmax);
}

static void check_dropout(const struct kernels *k, uint64_t n) {
    static const float probabilities[] = {0.1f, 0.25f, 0.5f, 0.99f};
    static const uint64_t firsts[] = {0, 1, 2, 3, 4, 1001, (uint64_t)1 << 34, ((uint64_t)1 << 34) - 3};
    for (int j = 0; j < 4; j++)
        for (size_t f = 0; f < sizeof firsts / sizeof firsts[0]; f++) {
            float *x = random_floats(n, 1, 1), *y = random_floats(n, 1, 1), p = probabilities[j];
            k->dropout(y, n, firsts[f], 77, p);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t at = firsts[f] + i;
                bool keep = rng_unit(rng_philox(77, at / 4, 0).v[at % 4]) >= p;
                assert_near("dropout", k, n, (double)y[i], keep ? (double)x[i] * (1 / (1 - (double)p)) : 0,
                            1e-6);
            }
            assert_true(y[n] == 12345.0f);
            free(x);
            free(y);
        }
}

static void dropout_draws_by_element_number(void **state) {
    (void)state;
    for_all(check_dropout);
}

static void check_fixed(const struct kernels *k, uint64_t n) {
    float *g = random_floats(n, 1, 1), *mean = random_floats(n, 2, 1);
    int64_t *sum = calloc(n, 8), *other = calloc(n, 8);
    for (uint64_t i = 0; i < n; i++) sum[i] = (int64_t)i - 50;
    k->fixed_add(sum, g, n, 0x1p40);
    for (uint64_t i = 0; i < n; i++) assert_true(sum[i] == (int64_t)i - 50 + llrint((double)g[i] * 0x1p40));
    memset(other, 0xa5, n * 8);
    k->fixed_store(other, g, n, 0x1p40);
    for (uint64_t i = 0; i < n; i++) assert_true(other[i] == llrint((double)g[i] * 0x1p40));
    for (uint64_t i = 0; i < n; i++) other[i] = ((int64_t)1 << 60) - (int64_t)i;
    k->fixed_mean(sum, mean, n, 0x1p-40, 3);
    for (uint64_t i = 0; i < n; i++) assert_true(mean[i] == (float)((double)sum[i] * 0x1p-40 / 3));
    k->fixed_merge(sum, other, n);
    for (uint64_t i = 0; i < n; i++)
        assert_true(sum[i] == ((int64_t)1 << 60) - 50 + llrint((double)g[i] * 0x1p40));
    assert_true(mean[n] == 12345.0f);
    free(g);
    free(mean);
    free(sum);
    free(other);
}

static void fixed_point_is_exact(void **state) {
    (void)state;
    for_all(check_fixed);
}

static void check_nan(const struct kernels *k, uint64_t n) {
    for (uint64_t at = 0; at < n; at++) {
        float *x = random_floats(n, 1, 1), *one = random_floats(n, 2, 0), *out = random_floats(n, 3, 1);
        float mean, rstd;
        struct kernels_norm norm = {1, n, one, one, &mean, &rstd};
        x[at] = NAN;
        k->norm_forward(&norm, x, out);
        assert_true(isnan(out[0]));
        memcpy(out, x, n * sizeof *x);
        k->bias_gelu(out, one, one, 1, n);
        assert_true(isnan(one[at]));
        assert_true(isnan(k->cross_entropy(x, n, 0, 1.0f)));
        free(x);
        free(one);
        free(out);
    }
}

static void a_nan_is_never_lost(void **state) {
    (void)state;
    for_all(check_nan);
}

static void a_lesser_set_can_be_asked_for(void **state) {
    (void)state;
    assert_ptr_equal(kernels_get(), kernels_at(0));
    setenv("PAWL_KERNELS", "generic", 1);
    assert_string_equal(kernels_get()->name, "generic");
    setenv("PAWL_KERNELS", "no such set", 1);
    assert_ptr_equal(kernels_get(), kernels_at(0));
    unsetenv("PAWL_KERNELS");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu_and_its_slope_are_the_tanh_form),
        cmocka_unit_test(sums_and_biases_cover_every_column),
        cmocka_unit_test(the_peak_is_found_wherever_it_lies),
        cmocka_unit_test(layer_norm_and_its_gradients_are_right),
        cmocka_unit_test(cross_entropy_and_its_gradient_are_right),
        cmocka_unit_test(causal_softmax_ends_at_the_diagonal),
        cmocka_unit_test(dropout_draws_by_element_number),
        cmocka_unit_test(fixed_point_is_exact),
        cmocka_unit_test(a_nan_is_never_lost),
        cmocka_unit_test(a_lesser_set_can_be_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
