/* Kernels over flat arrays: fixed-point sums, norms, AdamW. Part of each kernels_<set>.c. */
#ifndef MODEL_KERNELS_SUMS_H
#define MODEL_KERNELS_SUMS_H

#include "model/kernels_vector.h"

#define ABS_BITS 0x7fffffffu

INLINE uint32_t top_of(vu v) {
    uint32_t top = 0;
    for (int i = 0; i < LANES; i++) top = v[i] > top ? v[i] : top;
    return top;
}

INLINE vu vu_max(vu a, vu b) {
    /* Both are below 2^31, so that the signed comparison that every set has is right. */
    typedef int32_t vi __attribute__((vector_size(4 * LANES)));
    vu larger = (vu)((vi)a > (vi)b);
    return (a & larger) | (b & ~larger);
}

KERNEL static uint32_t peak_bits(const float *x, uint64_t n) {
    vu top[4] = {{0}, {0}, {0}, {0}};
    uint64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int k = 0; k < 4; k++) top[k] = vu_max(top[k], (vu)v_load(x + i + k * LANES) & ABS_BITS);
    for (; i < n; i += LANES) {
        uint64_t part = n - i < LANES ? n - i : LANES;
        top[0] = vu_max(top[0], (vu)v_load_part(x + i, part) & ABS_BITS);
    }
    return top_of(vu_max(vu_max(top[0], top[1]), vu_max(top[2], top[3])));
}

/* Adding 1.5 * 2^52 to a double below 2^51 leaves its rounded value in the low bits of the sum. */
#define ROUNDING      6755399441055744.0
#define ROUNDING_BITS 0x4338000000000000

INLINE vl to_fixed(const float *g, double scale) {
    vh h;
    memcpy(&h, g, sizeof h);
    vd d = __builtin_convertvector(h, vd) * scale + ROUNDING;
    return (vl)d - ROUNDING_BITS;
}

KERNEL static void fixed_add(int64_t *sum, const float *g, uint64_t n, double scale) {
    uint64_t i = 0;
    for (; i + HALF <= n; i += HALF) {
        vl s;
        memcpy(&s, sum + i, sizeof s);
        s += to_fixed(g + i, scale);
        memcpy(sum + i, &s, sizeof s);
    }
    for (; i < n; i++) {
        double d = (double)g[i] * scale + ROUNDING;
        int64_t bits;
        memcpy(&bits, &d, sizeof bits);
        sum[i] += bits - ROUNDING_BITS;
    }
}

KERNEL static void fixed_store(int64_t *sum, const float *g, uint64_t n, double scale) {
    uint64_t i = 0;
    for (; i + HALF <= n; i += HALF) {
        vl s = to_fixed(g + i, scale);
        memcpy(sum + i, &s, sizeof s);
    }
    for (; i < n; i++) {
        double d = (double)g[i] * scale + ROUNDING;
        int64_t bits;
        memcpy(&bits, &d, sizeof bits);
        sum[i] = bits - ROUNDING_BITS;
    }
}

KERNEL static void fixed_merge(int64_t *a, const int64_t *b, uint64_t n) {
    uint64_t i = 0;
    for (; i + HALF <= n; i += HALF) {
        vl x, y;
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        x += y;
        memcpy(a + i, &x, sizeof x);
    }
    for (; i < n; i++) a[i] += b[i];
}

KERNEL static void fixed_mean(const int64_t *sum, float *out, uint64_t n, double scale, double divisor) {
    uint64_t i = 0;
    for (; i + HALF <= n; i += HALF) {
        vl s;
        memcpy(&s, sum + i, sizeof s);
        vh h = __builtin_convertvector(__builtin_convertvector(s, vd) * scale / divisor, vh);
        memcpy(out + i, &h, sizeof h);
    }
    for (; i < n; i++) out[i] = (float)((double)sum[i] * scale / divisor);
}

KERNEL static void float_mean(const float *sum, float *out, uint64_t n, float divisor) {
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES) v_store(out + i, v_load(sum + i) / divisor);
    for (; i < n; i++) out[i] = sum[i] / divisor;
}

KERNEL static double norm2(const float *x, uint64_t n) {
    vd sum = {0};
    uint64_t i = 0;
    for (; i + HALF <= n; i += HALF) {
        vh h;
        memcpy(&h, x + i, sizeof h);
        vd d = __builtin_convertvector(h, vd);
        sum += d * d;
    }
    double total = 0;
    for (int k = 0; k < HALF; k++) total += sum[k];
    for (; i < n; i++) total += (double)x[i] * (double)x[i];
    return total;
}

KERNEL static void add(float *x, const float *y, uint64_t n) {
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES) v_store(x + i, v_load(x + i) + v_load(y + i));
    for (; i < n; i++) x[i] += y[i];
}

KERNEL static void store(float *x, const float *y, uint64_t n) {
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES) v_store(x + i, v_load(y + i) + 0.0f);
    for (; i < n; i++) x[i] = y[i] + 0.0f;
}

KERNEL static float dot(const float *a, const float *b, uint64_t n) {
    vf sum = {0};
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES) sum = V_FMA(v_load(a + i), v_load(b + i), sum);
    if (i < n) sum = V_FMA(v_load_part(a + i, n - i), v_load_part(b + i, n - i), sum);
    return v_sum(sum);
}

/* One vector of torch.optim.AdamW's update, in its order of operations. */
INLINE vf adamw_vector(const struct kernels_adamw *c, vf p, vf *m, vf *v, vf g) {
    g *= c->clip;
    p *= 1.0f - c->lr * c->weight_decay;
    *m += (g - *m) * (1.0f - c->beta1);
    *v = *v * c->beta2 + g * g * (1.0f - c->beta2);
    vf denominator = V_SQRT(*v) / c->correction2_sqrt + c->eps;
    return p - *m / denominator * c->step_size;
}

KERNEL static uint32_t adamw(const struct kernels_adamw *c, const float *const from[3], const float *g,
                             float *const to[3], uint64_t n) {
    vu top = {0};
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf gradient = v_load(g + i), m = v_load(from[1] + i), v = v_load(from[2] + i);
        top = vu_max(top, (vu)gradient & ABS_BITS);
        v_store(to[0] + i, adamw_vector(c, v_load(from[0] + i), &m, &v, gradient));
        v_store(to[1] + i, m);
        v_store(to[2] + i, v);
    }
    if (i < n) {
        uint64_t part = n - i;
        vf gradient = v_load_part(g + i, part), m = v_load_part(from[1] + i, part);
        vf v = v_load_part(from[2] + i, part);
        top = vu_max(top, (vu)gradient & ABS_BITS);
        v_store_part(to[0] + i, adamw_vector(c, v_load_part(from[0] + i, part), &m, &v, gradient), part);
        v_store_part(to[1] + i, m, part);
        v_store_part(to[2] + i, v, part);
    }
    return top_of(top);
}

#endif
