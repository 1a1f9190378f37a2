/* Kernels over rows: biases, GELU, layer norm, cross-entropy, dropout. Part of each kernels_<set>.c. */
#ifndef MODEL_KERNELS_ROWS_H
#define MODEL_KERNELS_ROWS_H

#include "base/rng.h"
#include "model/kernels_vector.h"

/* --- biases and GELU --- */

KERNEL static void bias_add(float *x, const float *bias, uint64_t rows, uint64_t width) {
    for (uint64_t r = 0; r < rows; r++, x += width)
        for (uint64_t i = 0; i < width; i += LANES)
            v_put(x + i, v_take(x + i, width - i) + v_take(bias + i, width - i), width - i);
}

KERNEL static void bias_residual(float *out, const float *residual, const float *bias, uint64_t rows,
                                 uint64_t width) {
    for (uint64_t r = 0; r < rows; r++, out += width, residual += width)
        for (uint64_t i = 0; i < width; i += LANES)
            v_put(out + i, v_take(residual + i, width - i) + v_take(bias + i, width - i), width - i);
}

#define GELU_SLOPE 0.7978845608028654f /* sqrt(2 / pi) */
#define GELU_CUBIC 0.044715f

/* (1 + tanh(u)) / 2 = 1 / (1 + e^-2u), with u = slope * (x + cubic * x^3) */
INLINE vf gelu_gate(vf x) {
    vf u = x * V_FMA(x * x, v_all(GELU_SLOPE * GELU_CUBIC), v_all(GELU_SLOPE));
    return 1.0f / (1.0f + v_exp(u * -2.0f));
}

INLINE vf gelu_slope(vf x) {
    vf gate = gelu_gate(x);
    vf du = V_FMA(x * x, v_all(3 * GELU_SLOPE * GELU_CUBIC), v_all(GELU_SLOPE));
    return V_FMA(x * 2.0f * du * gate, 1.0f - gate, gate);
}

KERNEL static void bias_gelu(float *h, const float *bias, float *g, uint64_t rows, uint64_t width) {
    for (uint64_t r = 0; r < rows; r++, h += width, g += width)
        for (uint64_t i = 0; i < width; i += LANES) {
            vf x = v_take(h + i, width - i) + v_take(bias + i, width - i);
            v_put(h + i, x, width - i);
            v_put(g + i, x * gelu_gate(x), width - i);
        }
}

KERNEL static void gelu_grad(float *h, const float *dg, uint64_t n) {
    for (uint64_t i = 0; i < n; i += LANES)
        v_put(h + i, v_take(dg + i, n - i) * gelu_slope(v_take(h + i, n - i)), n - i);
}

/* Four rows are added to each other first: a quarter of the traffic, and shorter chains of rounding. */
KERNEL static void column_sum(const float *x, float *out, uint64_t rows, uint64_t width) {
    memset(out, 0, width * sizeof *out);
    uint64_t r = 0;
    for (; r + 4 <= rows; r += 4, x += 4 * width)
        for (uint64_t i = 0; i < width; i += LANES) {
            uint64_t left = width - i;
            vf a = v_take(x + i, left) + v_take(x + width + i, left);
            vf b = v_take(x + 2 * width + i, left) + v_take(x + 3 * width + i, left);
            v_put(out + i, v_take(out + i, left) + (a + b), left);
        }
    for (; r < rows; r++, x += width)
        for (uint64_t i = 0; i < width; i++) out[i] += x[i];
}

/* --- layer norm --- */

#define NORM_EPSILON 1e-5f

KERNEL static void norm_forward(const struct kernels_norm *norm, const float *x, float *out) {
    uint64_t width = norm->width;
    for (uint64_t r = 0; r < norm->rows; r++, x += width, out += width) {
        vf sum = {0}, squares = {0};
        for (uint64_t i = 0; i < width; i += LANES) sum += v_take(x + i, width - i);
        float mean = v_sum(sum) / (float)width;
        for (uint64_t i = 0; i < width; i += LANES) {
            vf d = v_take(x + i, width - i) - mean;
            if (width - i < LANES) d = v_select(v_mask(width - i), d, v_all(0));
            squares = V_FMA(d, d, squares);
        }
        float rstd = 1.0f / sqrtf(v_sum(squares) / (float)width + NORM_EPSILON);
        for (uint64_t i = 0; i < width; i += LANES) {
            vf normal = (v_take(x + i, width - i) - mean) * rstd;
            v_put(out + i,
                  V_FMA(normal, v_take(norm->gamma + i, width - i), v_take(norm->beta + i, width - i)),
                  width - i);
        }
        norm->mean[r] = mean;
        norm->rstd[r] = rstd;
    }
}

KERNEL static void norm_input_grad(const struct kernels_norm *norm, const float *x, const float *dout,
                                   const float *residual, float *dx) {
    uint64_t width = norm->width;
    const float *gamma = norm->gamma;
    for (uint64_t r = 0; r < norm->rows; r++, x += width, dout += width, dx += width) {
        vf sum = {0}, product = {0};
        float mean = norm->mean[r], rstd = norm->rstd[r];
        for (uint64_t i = 0; i < width; i += LANES) { /* a tail's padding has dn = 0 */
            vf dn = v_take(dout + i, width - i) * v_take(gamma + i, width - i);
            sum += dn;
            product = V_FMA(dn, (v_take(x + i, width - i) - mean) * rstd, product);
        }
        float a = v_sum(sum) / (float)width, b = v_sum(product) / (float)width;
        for (uint64_t i = 0; i < width; i += LANES) {
            vf dn = v_take(dout + i, width - i) * v_take(gamma + i, width - i);
            vf normal = (v_take(x + i, width - i) - mean) * rstd;
            vf d = (dn - a - normal * b) * rstd;
            if (residual != NULL) d += v_take(residual + r * width + i, width - i);
            v_put(dx + i, d, width - i);
        }
    }
}

KERNEL static void norm_weight_grad(const struct kernels_norm *norm, const float *x, const float *dout,
                                    float *dgamma, float *dbeta) {
    uint64_t width = norm->width;
    memset(dgamma, 0, width * sizeof *dgamma);
    memset(dbeta, 0, width * sizeof *dbeta);
    for (uint64_t r = 0; r < norm->rows;) {
        uint64_t group = norm->rows - r < 4 ? 1 : 4;
        for (uint64_t i = 0; i < width; i += LANES) {
            uint64_t left = width - i;
            vf g = {0}, b = {0};
            for (uint64_t k = r; k < r + group; k++) {
                vf d = v_take(dout + k * width + i, left);
                b += d;
                g = V_FMA(d, (v_take(x + k * width + i, left) - norm->mean[k]) * norm->rstd[k], g);
            }
            v_put(dgamma + i, v_take(dgamma + i, left) + g, left);
            v_put(dbeta + i, v_take(dbeta + i, left) + b, left);
        }
        r += group;
    }
}

/* --- loss --- */

INLINE float row_top(const float *x, uint64_t n) {
    vf top = v_all(-INFINITY);
    for (uint64_t i = 0; i < n; i += LANES)
        top = V_MAX(top,
                    n - i < LANES ? v_select(v_mask(n - i), v_load_part(x + i, n - i), top) : v_load(x + i));
    return v_top(top);
}

KERNEL static double cross_entropy(float *logits, uint64_t n, uint64_t target, float scale) {
    float top = row_top(logits, n), wanted = logits[target];
    vf sum = {0};
    for (uint64_t i = 0; i < n; i += LANES) {
        vf e = v_exp(v_take(logits + i, n - i) - top);
        if (n - i < LANES) e = v_select(v_mask(n - i), e, v_all(0));
        sum += e;
        v_put(logits + i, e, n - i);
    }
    float total = v_sum(sum), factor = scale / total;
    for (uint64_t i = 0; i < n; i += LANES) v_put(logits + i, v_take(logits + i, n - i) * factor, n - i);
    logits[target] -= scale;
    return (double)top + log((double)total) - (double)wanted;
}

/* --- dropout --- */

KERNEL static void dropout(float *x, uint64_t n, uint64_t first, uint64_t key, float probability) {
    float scale = 1.0f / (1.0f - probability);
    struct rng_block block = {{0}};
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = first + i;
        if (i == 0 || at % 4 == 0) block = rng_philox(key, at / 4, 0);
        x[i] = rng_unit(block.v[at % 4]) >= probability ? x[i] * scale : 0.0f;
    }
}

#endif
