/* Vectors of LANES floats for the kernels: loads that need no alignment, tails padded with zeros, sums over
 * lanes in a fixed order, and exp. Included by each kernels_<set>.c after it has defined KERNEL (the
 * function attribute), LANES and, where the set has better than the plain form, V_FMA, V_MIN, V_MAX, V_SQRT.
 *
 * V_MIN and V_MAX return their second operand when either is a NaN, as the x86 instructions do: exp relies
 * on it to let a NaN through. No include guard against a second set is needed: one set a source file. */
#ifndef MODEL_KERNELS_VECTOR_H
#define MODEL_KERNELS_VECTOR_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model/kernels.h"

#define HALF   (LANES / 2)
#define INLINE KERNEL static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));
typedef float vh __attribute__((vector_size(4 * HALF))); /* half as many floats as a vf */
typedef double vd __attribute__((vector_size(8 * HALF)));
typedef int64_t vl __attribute__((vector_size(8 * HALF)));

INLINE vf v_load(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void v_store(float *p, vf v) { memcpy(p, &v, sizeof v); }

INLINE vf v_load_part(const float *p, uint64_t n) {
    vf v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}

INLINE void v_store_part(float *p, vf v, uint64_t n) { memcpy(p, &v, n * sizeof *p); }

/* A whole vector where `left` floats remain, or what is left of one. */
INLINE vf v_take(const float *p, uint64_t left) { return left >= LANES ? v_load(p) : v_load_part(p, left); }

INLINE void v_put(float *p, vf v, uint64_t left) {
    if (left >= LANES)
        v_store(p, v);
    else
        v_store_part(p, v, left);
}

/* All bits in the first `left` lanes. */
INLINE vu v_mask(uint64_t left) {
    typedef int32_t vi __attribute__((vector_size(4 * LANES)));
    vi lane;
    for (int i = 0; i < LANES; i++) lane[i] = i;
    int32_t bound = left < LANES ? (int32_t)left : LANES;
    return (vu)(lane < (vi){0} + bound);
}

INLINE vf v_all(float x) { return (vf){0} + x; }

INLINE vf v_select(vu mask, vf a, vf b) { return (vf)(((vu)a & mask) | ((vu)b & ~mask)); }

#ifndef V_FMA
#define V_FMA(a, b, c) ((a) * (b) + (c))
#endif
#ifndef V_MIN
#define V_MIN(a, b) v_select((vu)((a) < (b)), a, b)
#define V_MAX(a, b) v_select((vu)((a) > (b)), a, b)
#endif
#ifndef V_SQRT
INLINE vf v_sqrt(vf x) {
    for (int i = 0; i < LANES; i++) x[i] = sqrtf(x[i]);
    return x;
}
#define V_SQRT(a) v_sqrt(a)
#endif

/* Halves are added to halves until one lane is left. */
INLINE float v_sum(vf v) {
    float a[LANES];
    memcpy(a, &v, sizeof a);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) a[i] += a[i + width];
    return a[0];
}

INLINE float v_top(vf v) {
    float top = v[0];
    for (int i = 1; i < LANES; i++) top = v[i] > top ? v[i] : top;
    return top;
}

/* e^x to about 1 ulp in [-87, 88], clamped outside; the method is Cody and Waite's reduction by ln 2 in two
 * parts and Cephes' minimax polynomial. */
INLINE vf v_exp(vf x) {
    const float rounding = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    x = V_MIN(v_all(88.0f), x);
    x = V_MAX(v_all(-87.0f), x);
    vf shifted = V_FMA(x, v_all(1.44269504088896341f), v_all(rounding));
    vf n = shifted - rounding;
    vf r = V_FMA(n, v_all(-0.693359375f), x);
    r = V_FMA(n, v_all(2.12194440e-4f), r);
    vf p = v_all(1.9875691500e-4f);
    p = V_FMA(p, r, v_all(1.3981999507e-3f));
    p = V_FMA(p, r, v_all(8.3334519073e-3f));
    p = V_FMA(p, r, v_all(4.1665795894e-2f));
    p = V_FMA(p, r, v_all(1.6666665459e-1f));
    p = V_FMA(p, r, v_all(5.0000001201e-1f));
    p = V_FMA(p, r * r, r) + 1.0f;
    /* The low bits of `shifted` hold n; 2^n goes straight into the exponent field. */
    return p * (vf)(((vu)shifted + 127) << 23);
}

#endif
