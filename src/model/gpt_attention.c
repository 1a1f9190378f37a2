/* Causal attention and its gradient, a block of query rows at a time: scores exist for one block only and
 * are made again for the gradient from the kept log-sum of each row (Dao et al. 2022), so that memory does
 * not grow with context squared and what lies above the diagonal blocks is never computed. */
#include <math.h>
#include <string.h>

#include "model/gemm.h"
#include "model/gpt_private.h"

struct head { /* one sequence and head of one layer */
    const struct gpt *m;
    const struct gpt_slot *slot;
    uint32_t layer;
    uint64_t number; /* sequence * heads + head */
    uint64_t size;   /* S */
    uint64_t stride; /* of a row of qkv: 3C */
    float *q, *k, *v, *y, *lse;
    float scale;
};

static struct head head_of(const struct gpt *m, const struct gpt_slot *slot, uint32_t layer,
                           uint64_t number) {
    const struct gpt_config *c = &m->config;
    const struct gpt_layer_memory *l = &slot->layers[layer];
    uint64_t sequence = number / c->heads, head = number % c->heads, size = c->width / c->heads;
    uint64_t first_row = sequence * c->context;
    float *q = l->qkv + first_row * 3 * c->width + head * size;
    return (struct head){
        .m = m,
        .slot = slot,
        .layer = layer,
        .number = number,
        .size = size,
        .stride = 3 * (uint64_t)c->width,
        .q = q,
        .k = q + c->width,
        .v = q + 2 * c->width,
        .y = l->y + first_row * c->width + head * size,
        .lse = l->lse + number * c->context,
        .scale = 1.0f / sqrtf((float)size),
    };
}

static struct kernels_causal block_at(const struct head *h, uint64_t first) {
    uint64_t context = h->m->config.context;
    uint64_t rows = context - first < GPT_QUERY_ROWS ? context - first : GPT_QUERY_ROWS;
    return (struct kernels_causal){
        .rows = rows, .first = first, .keys = first + rows, .stride = gpt_score_stride(&h->m->config)};
}

static void make_scores(const struct head *h, const struct kernels_causal *b) {
    gemm_run(&(struct gemm){.m = b->rows,
                            .n = b->keys,
                            .k = h->size,
                            .alpha = h->scale,
                            .a = h->q + b->first * h->stride,
                            .lda = h->stride,
                            .b = h->k,
                            .ldb = h->stride,
                            .tb = true,
                            .c = h->m->scratch.scores,
                            .ldc = b->stride});
}

/* Mask and scale a block of rows as the forward pass did: element (number, row, key) of the layer. */
static void drop_block(const struct head *h, const struct kernels_causal *b, float *x) {
    const struct gpt_config *c = &h->m->config;
    uint64_t key = gpt_drop_key(h->m, h->slot, h->layer, GPT_DROP_ATTENTION);
    for (uint64_t r = 0; r < b->rows; r++) {
        uint64_t at = (h->number * c->context + b->first + r) * c->context;
        h->m->k->dropout(x + r * b->stride, b->first + r + 1, at, key, c->dropout);
    }
}

static void forward_block(const struct head *h, const struct kernels_causal *b) {
    const struct gpt *m = h->m;
    make_scores(h, b);
    m->k->softmax(b, m->scratch.scores, h->lse + b->first);
    if (m->config.dropout > 0) drop_block(h, b, m->scratch.scores);
    gemm_run(&(struct gemm){.m = b->rows,
                            .n = h->size,
                            .k = b->keys,
                            .alpha = 1,
                            .a = m->scratch.scores,
                            .lda = b->stride,
                            .b = h->v,
                            .ldb = h->stride,
                            .c = h->y + b->first * m->config.width,
                            .ldc = m->config.width});
}

void gpt_attention_forward(struct gpt *m, struct gpt_slot *slot, uint32_t layer) {
    uint64_t heads = (uint64_t)m->config.batch * m->config.heads;
    for (uint64_t n = 0; n < heads; n++) {
        struct head h = head_of(m, slot, layer, n);
        for (uint64_t first = 0; first < m->config.context; first += GPT_QUERY_ROWS) {
            struct kernels_causal b = block_at(&h, first);
            forward_block(&h, &b);
        }
    }
}

/* --- gradient --- */

/* Where a head's dq, dk, dv are gathered: T rows of 3S, because qkv itself is read until the head is done. */
struct gathered {
    float *dq, *dk, *dv;
    uint64_t stride;
};

/* probabilities -> scores, the dropped ones -> the buffer returned */
static const float *probabilities_again(const struct head *h, const struct kernels_causal *b) {
    const struct gpt_scratch *s = &h->m->scratch;
    make_scores(h, b);
    h->m->k->softmax_again(b, s->scores, h->lse + b->first);
    if (!(h->m->config.dropout > 0)) return s->scores;
    memcpy(s->dropped, s->scores, b->rows * b->stride * sizeof(float));
    drop_block(h, b, s->dropped);
    return s->dropped;
}

static void grad_block(const struct head *h, const struct kernels_causal *b, const float *dy,
                       const struct gathered *d) {
    const struct gpt *m = h->m;
    const struct gpt_scratch *s = &m->scratch;
    uint64_t width = m->config.width;
    const float *used = probabilities_again(h, b);
    for (uint64_t r = 0; r < b->rows; r++)
        s->delta[r] = m->k->dot(dy + (b->first + r) * width, h->y + (b->first + r) * width, h->size);
    gemm_run(&(struct gemm){.m = b->keys,
                            .n = h->size,
                            .k = b->rows,
                            .alpha = 1,
                            .beta = 1,
                            .a = used,
                            .lda = b->stride,
                            .ta = true,
                            .b = dy + b->first * width,
                            .ldb = width,
                            .c = d->dv,
                            .ldc = d->stride});
    gemm_run(&(struct gemm){.m = b->rows,
                            .n = b->keys,
                            .k = h->size,
                            .alpha = 1,
                            .a = dy + b->first * width,
                            .lda = width,
                            .b = h->v,
                            .ldb = h->stride,
                            .tb = true,
                            .c = s->dscores,
                            .ldc = b->stride});
    if (m->config.dropout > 0) drop_block(h, b, s->dscores);
    m->k->softmax_grad(b, s->scores, s->dscores, s->delta, h->scale);
    gemm_run(&(struct gemm){.m = b->rows,
                            .n = h->size,
                            .k = b->keys,
                            .alpha = 1,
                            .a = s->dscores,
                            .lda = b->stride,
                            .b = h->k,
                            .ldb = h->stride,
                            .c = d->dq + b->first * d->stride,
                            .ldc = d->stride});
    gemm_run(&(struct gemm){.m = b->keys,
                            .n = h->size,
                            .k = b->rows,
                            .alpha = 1,
                            .beta = 1,
                            .a = s->dscores,
                            .lda = b->stride,
                            .ta = true,
                            .b = h->q + b->first * h->stride,
                            .ldb = h->stride,
                            .c = d->dk,
                            .ldc = d->stride});
}

static void put_back(const struct head *h, const struct gathered *d) {
    for (uint64_t t = 0; t < h->m->config.context; t++) {
        memcpy(h->q + t * h->stride, d->dq + t * d->stride, h->size * sizeof(float));
        memcpy(h->k + t * h->stride, d->dk + t * d->stride, h->size * sizeof(float));
        memcpy(h->v + t * h->stride, d->dv + t * d->stride, h->size * sizeof(float));
    }
}

void gpt_attention_grad(struct gpt *m, struct gpt_slot *slot, uint32_t layer, const float *dy) {
    uint64_t heads = (uint64_t)m->config.batch * m->config.heads;
    const float *y = slot->layers[layer].y;
    for (uint64_t n = 0; n < heads; n++) {
        struct head h = head_of(m, slot, layer, n);
        float *base = m->scratch.dqkv;
        struct gathered d = {.dq = base, .dk = base + h.size, .dv = base + 2 * h.size, .stride = 3 * h.size};
        memset(base, 0, m->config.context * d.stride * sizeof *base);
        for (uint64_t first = 0; first < m->config.context; first += GPT_QUERY_ROWS) {
            struct kernels_causal b = block_at(&h, first);
            grad_block(&h, &b, dy + (h.y - y), &d);
        }
        put_back(&h, &d);
    }
}
