/* GPT-2 in plain double-precision loops, for tests: loss and every gradient of one micro-batch. Slow and
 * obvious on purpose; shares no code with src/model but the random numbers. Checked against finite
 * differences in model_gpt_test.c. Parameters lie in canonical order, as in a stage that is the whole model.
 */
#ifndef TESTS_MODEL_REFERENCE_H
#define TESTS_MODEL_REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/gpt.h"

struct ref {
    struct gpt_config c;
    uint64_t step, microbatch; /* key the dropout masks */
    const int32_t *tokens, *targets;
    const double *p; /* parameters */
    double *dp;      /* their gradients; null: loss only */
};

static inline double *ref_zeros(uint64_t n) {
    double *x = calloc(n, sizeof *x);
    if (x == NULL) abort();
    return x;
}

/* --- dropout as the contract defines it: keyed by (seed, step, micro-batch), (layer, which), element --- */

static inline uint64_t ref_low64(struct rng_block b) { return (uint64_t)b.v[1] << 32 | b.v[0]; }

static inline double ref_mask(const struct ref *r, uint32_t layer, uint32_t which, uint64_t element) {
    if (!(r->c.dropout > 0)) return 1.0;
    uint64_t outer = ref_low64(rng_philox(r->c.seed ^ 0x64726f706f757400u, r->step, r->microbatch));
    uint64_t key = ref_low64(rng_philox(outer, layer, which));
    float unit = rng_unit(rng_philox(key, element / 4, 0).v[element % 4]);
    return unit >= r->c.dropout ? 1.0 / (1.0 - (double)r->c.dropout) : 0.0;
}

/* --- pieces: forward, and backward that adds to the gradients --- */

static inline void ref_linear(const double *x, const double *w, const double *b, double *y, uint64_t rows,
                              uint64_t in, uint64_t out) {
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t o = 0; o < out; o++) {
            double sum = b[o];
            for (uint64_t i = 0; i < in; i++) sum += x[r * in + i] * w[i * out + o];
            y[r * out + o] = sum;
        }
}

static inline void ref_linear_back(const double *x, const double *w, const double *dy, double *dx, double *dw,
                                   double *db, uint64_t rows, uint64_t in, uint64_t out) {
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t o = 0; o < out; o++) {
            db[o] += dy[r * out + o];
            for (uint64_t i = 0; i < in; i++) {
                dx[r * in + i] += dy[r * out + o] * w[i * out + o];
                dw[i * out + o] += dy[r * out + o] * x[r * in + i];
            }
        }
}

static inline void ref_norm_stats(const double *x, uint64_t n, double *mean, double *rstd) {
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < n; i++) sum += x[i];
    *mean = sum / (double)n;
    for (uint64_t i = 0; i < n; i++) squares += (x[i] - *mean) * (x[i] - *mean);
    *rstd = 1.0 / sqrt(squares / (double)n + 1e-5);
}

static inline void ref_norm(const double *x, const double *g, const double *b, double *y, uint64_t rows,
                            uint64_t n) {
    for (uint64_t r = 0; r < rows; r++) {
        double mean, rstd;
        ref_norm_stats(x + r * n, n, &mean, &rstd);
        for (uint64_t i = 0; i < n; i++) y[r * n + i] = (x[r * n + i] - mean) * rstd * g[i] + b[i];
    }
}

static inline void ref_norm_back(const double *x, const double *g, const double *dy, double *dx, double *dg,
                                 double *db, uint64_t rows, uint64_t n) {
    for (uint64_t r = 0; r < rows; r++) {
        double mean, rstd, a = 0, b = 0;
        const double *xr = x + r * n, *dr = dy + r * n;
        ref_norm_stats(xr, n, &mean, &rstd);
        for (uint64_t i = 0; i < n; i++) {
            double normal = (xr[i] - mean) * rstd;
            a += dr[i] * g[i] / (double)n;
            b += dr[i] * g[i] * normal / (double)n;
            dg[i] += dr[i] * normal;
            db[i] += dr[i];
        }
        for (uint64_t i = 0; i < n; i++)
            dx[r * n + i] += rstd * (dr[i] * g[i] - a - (xr[i] - mean) * rstd * b);
    }
}

static inline double ref_gelu(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static inline double ref_gelu_slope(double x) {
    double s = sqrt(2 / 3.14159265358979323846), t = tanh(s * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * s * (1 + 3 * 0.044715 * x * x);
}

/* Probabilities of one query row, before dropout. */
static inline void ref_probabilities(const double *qkv, uint64_t row, uint64_t first, uint64_t width,
                                     uint64_t size, uint64_t at, double *p) {
    double top = -INFINITY, sum = 0;
    for (uint64_t k = first; k <= row; k++) {
        double s = 0;
        for (uint64_t i = 0; i < size; i++)
            s += qkv[row * 3 * width + at + i] * qkv[k * 3 * width + width + at + i];
        p[k - first] = s / sqrt((double)size);
        top = fmax(top, p[k - first]);
    }
    for (uint64_t k = first; k <= row; k++) sum += p[k - first] = exp(p[k - first] - top);
    for (uint64_t k = first; k <= row; k++) p[k - first] /= sum;
}

static inline void ref_attention(const struct ref *r, uint32_t layer, const double *qkv, double *y,
                                 const double *dy, double *dqkv) {
    uint64_t width = r->c.width, size = width / r->c.heads, context = r->c.context;
    double *p = ref_zeros(context), *dpr = ref_zeros(context);
    for (uint64_t row = 0; row < (uint64_t)r->c.batch * context; row++)
        for (uint64_t h = 0; h < r->c.heads; h++) {
            uint64_t first = row / context * context, at = h * size, q = row * 3 * width + at;
            uint64_t element = ((row / context * r->c.heads + h) * context + row % context) * context;
            double dot = 0;
            ref_probabilities(qkv, row, first, width, size, at, p);
            for (uint64_t k = first; k <= row; k++) {
                uint64_t v = k * 3 * width + 2 * width + at;
                double mask = ref_mask(r, layer, 1, element + k - first);
                dpr[k - first] = 0;
                for (uint64_t i = 0; i < size; i++) {
                    if (dy == NULL) {
                        y[row * width + at + i] += p[k - first] * mask * qkv[v + i];
                    } else {
                        dpr[k - first] += dy[row * width + at + i] * qkv[v + i] * mask;
                        dqkv[v + i] += dy[row * width + at + i] * p[k - first] * mask;
                    }
                }
                dot += dpr[k - first] * p[k - first];
            }
            for (uint64_t k = first; dy != NULL && k <= row; k++) {
                uint64_t key = k * 3 * width + width + at;
                double ds = p[k - first] * (dpr[k - first] - dot) / sqrt((double)size);
                for (uint64_t i = 0; i < size; i++) {
                    dqkv[q + i] += ds * qkv[key + i];
                    dqkv[key + i] += ds * qkv[q + i];
                }
            }
        }
    free(p);
    free(dpr);
}

/* --- one layer, recursively with all above it: forward down the call, backward on the way back --- */

enum { REF_LAYER = 12 };

static inline double ref_head(const struct ref *r, const double *x, double *dx) {
    uint64_t width = r->c.width, vocabulary = r->c.vocabulary, rows = (uint64_t)r->c.batch * r->c.context;
    uint64_t layers = r->c.layers, layer = 12 * width * width + 13 * width;
    uint64_t gamma = (vocabulary + r->c.context) * width + layers * layer, beta = gamma + width;
    uint64_t head = r->c.tied ? 0 : beta + width;
    double *a = ref_zeros(rows * width), *da = ref_zeros(rows * width), *z = ref_zeros(vocabulary), loss = 0;
    ref_norm(x, r->p + gamma, r->p + beta, a, rows, width);
    for (uint64_t row = 0; row < rows; row++) {
        double top = -INFINITY, sum = 0;
        for (uint64_t t = 0; t < vocabulary; t++) {
            z[t] = 0;
            for (uint64_t i = 0; i < width; i++) z[t] += a[row * width + i] * r->p[head + t * width + i];
            top = fmax(top, z[t]);
        }
        for (uint64_t t = 0; t < vocabulary; t++) sum += exp(z[t] - top);
        loss += (top + log(sum) - z[r->targets[row]]) / (double)rows;
        for (uint64_t t = 0; r->dp != NULL && t < vocabulary; t++) {
            double dz = (exp(z[t] - top) / sum - ((uint64_t)r->targets[row] == t)) / (double)rows;
            for (uint64_t i = 0; i < width; i++) {
                da[row * width + i] += dz * r->p[head + t * width + i];
                r->dp[head + t * width + i] += dz * a[row * width + i];
            }
        }
    }
    if (r->dp != NULL) ref_norm_back(x, r->p + gamma, da, dx, r->dp + gamma, r->dp + beta, rows, width);
    free(a);
    free(da);
    free(z);
    return loss;
}

static inline double ref_layers(const struct ref *r, uint32_t l, const double *x, double *dx) {
    if (l == r->c.layers) return ref_head(r, x, dx);
    uint64_t n = r->c.width, rows = (uint64_t)r->c.batch * r->c.context, cells = rows * n, at[REF_LAYER];
    const uint64_t sizes[REF_LAYER] = {n, n, 3 * n * n, 3 * n, n * n,     n,
                                       n, n, 4 * n * n, 4 * n, 4 * n * n, n};
    at[0] = (r->c.vocabulary + r->c.context) * n + l * (12 * n * n + 13 * n);
    for (int i = 1; i < REF_LAYER; i++) at[i] = at[i - 1] + sizes[i - 1];
    const double *p = r->p;
    double *m = ref_zeros(cells * 23), *a1 = m, *qkv = a1 + cells, *y = qkv + 3 * cells, *x1 = y + cells;
    double *a2 = x1 + cells, *h = a2 + cells, *g = h + 4 * cells, *out = g + 4 * cells, *dout = out + cells;
    double *dx1 = dout + cells, *da = dx1 + cells, *db = da + cells,
           *dw = db + cells; /* dw: 3 cells at most */

    ref_norm(x, p + at[0], p + at[1], a1, rows, n);
    ref_linear(a1, p + at[2], p + at[3], qkv, rows, n, 3 * n);
    ref_attention(r, l, qkv, y, NULL, NULL);
    ref_linear(y, p + at[4], p + at[5], x1, rows, n, n);
    for (uint64_t i = 0; i < cells; i++) x1[i] = x[i] + x1[i] * ref_mask(r, l, 2, i);
    ref_norm(x1, p + at[6], p + at[7], a2, rows, n);
    ref_linear(a2, p + at[8], p + at[9], h, rows, n, 4 * n);
    for (uint64_t i = 0; i < 4 * cells; i++) g[i] = ref_gelu(h[i]);
    ref_linear(g, p + at[10], p + at[11], out, rows, 4 * n, n);
    for (uint64_t i = 0; i < cells; i++) out[i] = x1[i] + out[i] * ref_mask(r, l, 3, i);
    double loss = ref_layers(r, l + 1, out, dout);
    double *d = r->dp;
    if (d != NULL) {
        double *dg = ref_zeros(cells * 4), *dqkv = ref_zeros(cells * 3);
        for (uint64_t i = 0; i < cells; i++) {
            db[i] = dout[i] * ref_mask(r, l, 3, i);
            dx1[i] = dout[i];
        }
        ref_linear_back(g, p + at[10], db, dg, d + at[10], d + at[11], rows, 4 * n, n);
        for (uint64_t i = 0; i < 4 * cells; i++) dg[i] *= ref_gelu_slope(h[i]);
        ref_linear_back(a2, p + at[8], dg, da, d + at[8], d + at[9], rows, n, 4 * n);
        ref_norm_back(x1, p + at[6], da, dx1, d + at[6], d + at[7], rows, n);
        for (uint64_t i = 0; i < cells; i++) {
            db[i] = dx1[i] * ref_mask(r, l, 2, i);
            dx[i] += dx1[i];
        }
        ref_linear_back(y, p + at[4], db, dw, d + at[4], d + at[5], rows, n, n);
        ref_attention(r, l, qkv, NULL, dw, dqkv);
        memset(da, 0, cells * sizeof *da);
        ref_linear_back(a1, p + at[2], dqkv, da, d + at[2], d + at[3], rows, n, 3 * n);
        ref_norm_back(x, p + at[0], da, dx, d + at[0], d + at[1], rows, n);
        free(dg);
        free(dqkv);
    }
    free(m);
    return loss;
}

/* Mean loss of the micro-batch; adds its gradients to r->dp. */
static inline double ref_run(const struct ref *r) {
    uint64_t n = r->c.width, rows = (uint64_t)r->c.batch * r->c.context, positions = r->c.vocabulary * n;
    double *x = ref_zeros(rows * n), *dx = ref_zeros(rows * n);
    for (uint64_t i = 0; i < rows * n; i++) {
        uint64_t row = i / n, k = i % n;
        x[i] = r->p[(uint64_t)r->tokens[row] * n + k] + r->p[positions + row % r->c.context * n + k];
        x[i] *= ref_mask(r, 0, 0, i);
    }
    double loss = ref_layers(r, 0, x, dx);
    for (uint64_t i = 0; r->dp != NULL && i < rows * n; i++) {
        uint64_t row = i / n, k = i % n;
        double d = dx[i] * ref_mask(r, 0, 0, i);
        r->dp[(uint64_t)r->tokens[row] * n + k] += d;
        r->dp[positions + row % r->c.context * n + k] += d;
    }
    free(x);
    free(dx);
    return loss;
}

#endif
