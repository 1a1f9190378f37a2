/* The loops outside BLAS, once per instruction set: a table chosen at run time by what the processor has,
 * so that one binary runs on any x86-64 or arm64.
 *
 * All are written once (kernels_*.inc) over vectors of a fixed width and compiled for each width. Sums are
 * taken in a fixed order, so the same table gives the same bits every time; two tables may differ in the
 * last bits. Matrices are row-major and dense; sizes need not be multiples of anything. NaN and infinity
 * pass through. Thread: caller's. Tested in tests/unit/model_kernels_test.c against double precision. */
#ifndef MODEL_KERNELS_H
#define MODEL_KERNELS_H

#include <stdint.h>

struct kernels_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float step_size;        /* lr / (1 - beta1^t) */
    float correction2_sqrt; /* sqrt(1 - beta2^t) */
    float clip;
};

struct kernels_norm { /* one layer norm: rows x width */
    uint64_t rows, width;
    const float *gamma, *beta;
    float *mean, *rstd; /* [rows] */
};

/* Score rows are padded to a multiple of this many floats: the widest vector. */
#define KERNELS_STRIDE 16u

/* A block of `rows` query rows of one causal attention head, the first of them at position `first`; row r
 * has first + r + 1 valid keys in a score row of `stride` floats (a multiple of KERNELS_STRIDE), of which the
 * first `keys` are used. */
struct kernels_causal {
    uint64_t rows, first, keys, stride;
};

struct kernels {
    const char *name; /* "generic", "avx2", "avx512" */

    /* The largest |x| as its bits (they order like the numbers; a NaN is above infinity). */
    uint32_t (*peak_bits)(const float *x, uint64_t n);
    /* sum += round-to-even(g * scale), for |g * scale| < 2^51. */
    void (*fixed_add)(int64_t *sum, const float *g, uint64_t n, double scale);
    void (*fixed_store)(int64_t *sum, const float *g, uint64_t n, double scale); /* the same to a sum of 0 */
    void (*fixed_merge)(int64_t *a, const int64_t *b, uint64_t n);
    /* out = sum * scale / divisor */
    void (*fixed_mean)(const int64_t *sum, float *out, uint64_t n, double scale, double divisor);
    /* out = sum / divisor */
    void (*float_mean)(const float *sum, float *out, uint64_t n, float divisor);
    double (*norm2)(const float *x, uint64_t n);

    void (*add)(float *x, const float *y, uint64_t n);   /* x += y */
    void (*store)(float *x, const float *y, uint64_t n); /* x = 0 + y: a -0 becomes 0 */
    void (*bias_add)(float *x, const float *bias, uint64_t rows, uint64_t width); /* x += bias */
    void (*bias_residual)(float *out, const float *residual, const float *bias, uint64_t rows,
                          uint64_t width);
    /* h += bias; g = gelu(h), the tanh form. */
    void (*bias_gelu)(float *h, const float *bias, float *g, uint64_t rows, uint64_t width);
    /* h = dg * gelu'(h) */
    void (*gelu_grad)(float *h, const float *dg, uint64_t n);
    void (*column_sum)(const float *x, float *out, uint64_t rows, uint64_t width);

    void (*norm_forward)(const struct kernels_norm *norm, const float *x, float *out);
    /* dx = residual + input gradient of the norm; residual may be null or dx itself. */
    void (*norm_input_grad)(const struct kernels_norm *norm, const float *x, const float *dout,
                            const float *residual, float *dx);
    void (*norm_weight_grad)(const struct kernels_norm *norm, const float *x, const float *dout,
                             float *dgamma, float *dbeta);

    /* Rows become probabilities, 0 beyond the valid keys; lse[r] = log of the row's sum of exponentials. */
    void (*softmax)(const struct kernels_causal *c, float *scores, float *lse);
    /* The same probabilities again from the scores and lse. */
    void (*softmax_again)(const struct kernels_causal *c, float *scores, const float *lse);
    /* dp = p * (dp - delta[r]) * scale */
    void (*softmax_grad)(const struct kernels_causal *c, const float *p, float *dp, const float *delta,
                         float scale);
    float (*dot)(const float *a, const float *b, uint64_t n);

    /* One row: logits become scale * (softmax - onehot(target)); returns the loss of the row. */
    double (*cross_entropy)(float *logits, uint64_t n, uint64_t target, float scale);

    /* The next parameters and moments; returns the bits of the largest |g|. */
    uint32_t (*adamw)(const struct kernels_adamw *c, const float *const from[3], const float *g,
                      float *const to[3], uint64_t n);
    /* x *= keep ? scale : 0, drawn from (key, element index from `first` on). */
    void (*dropout)(float *x, uint64_t n, uint64_t first, uint64_t key, float probability);
};

/* The best table for this processor; PAWL_KERNELS=generic|avx2|avx512 in the environment asks for a lesser
 * one (so that unlike machines can be made to agree). */
const struct kernels *kernels_get(void);
/* The nth table that this processor can run, null beyond the last. */
const struct kernels *kernels_at(uint32_t n);

#endif
