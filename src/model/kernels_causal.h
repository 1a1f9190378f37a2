/* Kernels of causal attention: a block of score rows, each with one valid key more than the row above it.
 * Rows are padded to whole vectors (the stride is a multiple of KERNELS_STRIDE), so that whole vectors are
 * read and what is beyond the valid keys is masked. Part of each kernels_<set>.c. */
#ifndef MODEL_KERNELS_CAUSAL_H
#define MODEL_KERNELS_CAUSAL_H

#include "model/kernels_vector.h"

/* Zero from vector i on to the end of the keys in use. */
INLINE void clear_rest(float *row, uint64_t i, uint64_t keys) {
    for (; i < keys; i += LANES) v_store(row + i, v_all(0));
}

INLINE float causal_top(const float *row, uint64_t valid) {
    vf top = v_all(-INFINITY);
    uint64_t i = 0;
    for (; i + LANES <= valid; i += LANES) top = V_MAX(top, v_load(row + i));
    if (i < valid) top = V_MAX(top, v_select(v_mask(valid - i), v_load(row + i), v_all(-INFINITY)));
    return v_top(top);
}

/* row = e^(row - shift) over the valid keys and 0 over the rest; returns the sum. */
INLINE float causal_exp(float *row, uint64_t valid, uint64_t keys, float shift) {
    vf sum = {0};
    uint64_t i = 0;
    for (; i + LANES <= valid; i += LANES) {
        vf e = v_exp(v_load(row + i) - shift);
        sum += e;
        v_store(row + i, e);
    }
    if (i < valid) {
        vf e = v_select(v_mask(valid - i), v_exp(v_load(row + i) - shift), v_all(0));
        sum += e;
        v_store(row + i, e);
        i += LANES;
    }
    clear_rest(row, i, keys);
    return v_sum(sum);
}

KERNEL static void softmax(const struct kernels_causal *c, float *scores, float *lse) {
    for (uint64_t r = 0; r < c->rows; r++) {
        float *row = scores + r * c->stride;
        uint64_t valid = c->first + r + 1;
        float top = causal_top(row, valid);
        float sum = causal_exp(row, valid, c->keys, top);
        for (uint64_t i = 0; i < valid; i += LANES) v_store(row + i, v_load(row + i) * (1.0f / sum));
        lse[r] = top + logf(sum);
    }
}

KERNEL static void softmax_again(const struct kernels_causal *c, float *scores, const float *lse) {
    for (uint64_t r = 0; r < c->rows; r++)
        (void)causal_exp(scores + r * c->stride, c->first + r + 1, c->keys, lse[r]);
}

KERNEL static void softmax_grad(const struct kernels_causal *c, const float *p, float *dp, const float *delta,
                                float scale) {
    for (uint64_t r = 0; r < c->rows; r++, p += c->stride, dp += c->stride) {
        uint64_t valid = c->first + r + 1, i = 0;
        for (; i + LANES <= valid; i += LANES)
            v_store(dp + i, v_load(p + i) * (v_load(dp + i) - delta[r]) * scale);
        if (i < valid) {
            vf d = v_load(p + i) * (v_load(dp + i) - delta[r]) * scale;
            v_store(dp + i, v_select(v_mask(valid - i), d, v_all(0)));
            i += LANES;
        }
        clear_rest(dp, i, c->keys);
    }
}

#endif
