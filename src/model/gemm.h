/* Matrix product over BLAS, row-major: c = alpha * op(a) op(b) + beta * c, with op(a) m x k. Sizes are
 * checked once, when the model is opened. */
#ifndef MODEL_GEMM_H
#define MODEL_GEMM_H

#include <cblas.h>
#include <stdbool.h>
#include <stdint.h>

struct gemm {
    uint64_t m, n, k;
    const float *a, *b;
    float *c;
    uint64_t lda, ldb, ldc; /* row lengths as they lie in memory */
    bool ta, tb;            /* a is stored k x m, b is stored n x k */
    float alpha, beta;
};

static inline void gemm_run(const struct gemm *g) {
    cblas_sgemm(CblasRowMajor, g->ta ? CblasTrans : CblasNoTrans, g->tb ? CblasTrans : CblasNoTrans,
                (blasint)g->m, (blasint)g->n, (blasint)g->k, g->alpha, g->a, (blasint)g->lda, g->b,
                (blasint)g->ldb, g->beta, g->c, (blasint)g->ldc);
}

#endif
