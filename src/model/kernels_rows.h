/* Kernels over rows: biases, GELU, layer norm, cross-entropy, dropout. Part of each kernels_<set>.c. */
#ifndef MODEL_KERNELS_ROWS_H
#define MODEL_KERNELS_ROWS_H

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

#ifndef V_MUL32
#define V_MUL32(a, b) ((a) * (b)) /* both below 2^32 */
#endif

/* Numbers drawn at once: four from each of HALF counters. */
#define DRAWS (4 * HALF)

/* rng_philox(key, block + 0 .. HALF-1, 0), numbers in order. */
INLINE void philox_blocks(uint64_t key, uint64_t block, uint32_t *out) {
    typedef uint64_t vq __attribute__((vector_size(8 * HALF)));
    const vq low = (vq){0} + 0xffffffffu, m0 = (vq){0} + 0xD2511F53u, m1 = (vq){0} + 0xCD9E8D57u;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    vq counter, c1, c2 = {0}, c3 = {0};
    for (int i = 0; i < HALF; i++) counter[i] = block + (uint64_t)i;
    vq c0 = counter & low;
    c1 = counter >> 32;
    for (int round = 0; round < 10; round++) {
        vq p0 = V_MUL32(m0, c0), p1 = V_MUL32(m1, c2);
        c0 = (p1 >> 32) ^ c1 ^ k0;
        c1 = p1 & low;
        c2 = (p0 >> 32) ^ c3 ^ k1;
        c3 = p0 & low;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < HALF; i++) {
        out[4 * i] = (uint32_t)c0[i];
        out[4 * i + 1] = (uint32_t)c1[i];
        out[4 * i + 2] = (uint32_t)c2[i];
        out[4 * i + 3] = (uint32_t)c3[i];
    }
}

KERNEL static void dropout(float *x, uint64_t n, uint64_t first, uint64_t key, float probability) {
    typedef int32_t vi __attribute__((vector_size(4 * LANES)));
    const float scale = 1.0f / (1.0f - probability);
    /* rng_unit(v) >= probability, in whole numbers: v >> 8 against the least 24-bit number that is kept. */
    const int32_t least = (int32_t)ceilf(probability * 0x1p24f);
    uint32_t draws[DRAWS + LANES] = {0};
    uint64_t block = first / 4, skip = first % 4;
    while (n > 0) {
        uint64_t count = DRAWS - skip < n ? DRAWS - skip : n;
        philox_blocks(key, block, draws);
        for (uint64_t i = 0; i < count; i += LANES) {
            vu v;
            memcpy(&v, draws + skip + i, sizeof v);
            vu keep = (vu)((vi)(v >> 8) >= (vi){0} + least);
            v_put(x + i, (vf)((vu)(v_take(x + i, count - i) * scale) & keep), count - i);
        }
        x += count;
        n -= count;
        block += HALF;
        skip = 0;
    }
}

#endif
