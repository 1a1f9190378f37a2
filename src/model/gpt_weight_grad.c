/* The weight-gradient pass of a stage: every parameter's gradient, from what the other two passes left in the
 * slot, added to the caller's sums. Slabs and rows are cut by the model's sizes alone, so that each number is
 * the same in any cut into stages. */
#include <string.h>

#include "model/gemm.h"
#include "model/gpt_private.h"
#include "model/gradsum.h"

struct target { /* where contributions go */
    struct gpt *m;
    const struct version *v;
    int64_t *sums;
    int32_t shift;
    bool store; /* there are no sums yet */
};

static int64_t *footer_of(const struct target *t) {
    return t->sums + gradsum_words(t->m->stage.sums, t->m->stage.param_count);
}

/* `count` numbers of the tensor's gradient from place `at` on. */
static uint32_t add_part(const struct target *t, uint32_t tensor, uint64_t at, const float *g,
                         uint64_t count) {
    const struct stage *stage = &t->m->stage;
    void *sum = gradsum_at(stage->sums, t->sums, stage->tensors[tensor].offset + at);
    if (stage->sums == GRADSUM_EXACT)
        return (t->store ? gradsum_store_part : gradsum_add_part)(
            sum, g, count, t->v->exponents[tensor] - t->shift, stage_tensor_contributions(stage, tensor));
    (t->store ? gradsum_store_float : gradsum_add_float)(sum, g, count);
    return 0;
}

/* Rows of a slab: as many slabs of one size as keep each within GPT_SLAB_FLOATS; a short one at the end would
 * be slow in BLAS. */
static uint64_t slab_rows(uint64_t inner, uint64_t columns) {
    uint64_t most = columns < GPT_SLAB_FLOATS ? GPT_SLAB_FLOATS / columns : 1;
    uint64_t slabs = (inner + most - 1) / most;
    return (inner + slabs - 1) / slabs;
}

/* dW (inner x columns) = in^T dout, with rows R of `inner` and `columns` floats. */
static void add_matrix(const struct target *t, uint32_t tensor, const float *in, const float *dout) {
    const struct gpt *m = t->m;
    uint64_t inner = m->stage.tensors[tensor].shape[0], columns = m->stage.tensors[tensor].shape[1];
    uint64_t slab = slab_rows(inner, columns);
    uint32_t flags = 0;
    for (uint64_t at = 0; at < inner; at += slab) {
        uint64_t rows = inner - at < slab ? inner - at : slab;
        gemm_run(&(struct gemm){.m = rows,
                                .n = columns,
                                .k = m->rows,
                                .alpha = 1,
                                .a = in + at,
                                .lda = inner,
                                .ta = true,
                                .b = dout,
                                .ldb = columns,
                                .c = m->scratch.gradient,
                                .ldc = columns});
        flags |= add_part(t, tensor, at * columns, m->scratch.gradient, rows * columns);
    }
    gradsum_count(footer_of(t), flags);
}

static void add_vector(const struct target *t, uint32_t tensor, const float *g) {
    gradsum_count(footer_of(t), add_part(t, tensor, 0, g, t->m->stage.tensors[tensor].count));
}

static void add_bias(const struct target *t, uint32_t tensor, const float *dout) {
    t->m->k->column_sum(dout, t->m->scratch.gradient, t->m->rows, t->m->stage.tensors[tensor].count);
    add_vector(t, tensor, t->m->scratch.gradient);
}

/* gamma's tensor is followed by beta's */
static void add_norm(const struct target *t, uint32_t gamma, float *mean, float *rstd, const float *x,
                     const float *dout) {
    uint64_t width = t->m->config.width;
    float *g = t->m->scratch.gradient;
    struct kernels_norm norm = {t->m->rows, width, NULL, NULL, mean, rstd};
    t->m->k->norm_weight_grad(&norm, x, dout, g, g + width);
    add_vector(t, gamma, g);
    add_vector(t, gamma + 1, g + width);
}

static void add_layer(const struct target *t, const struct gpt_slot *s, uint32_t l) {
    struct gpt *m = t->m;
    const struct gpt_layer_memory *a = &s->layers[l];
    add_matrix(t, gpt_layer_index(m, l, GPT_PROJ), a->g, s->dx[l + 1]);
    add_bias(t, gpt_layer_index(m, l, GPT_PROJ_BIAS), s->dx[l + 1]);
    add_matrix(t, gpt_layer_index(m, l, GPT_FC), a->a2, a->h);
    add_bias(t, gpt_layer_index(m, l, GPT_FC_BIAS), a->h);
    add_norm(t, gpt_layer_index(m, l, GPT_NORM2_GAMMA), a->mean2, a->rstd2, a->x1, a->da2);
    add_matrix(t, gpt_layer_index(m, l, GPT_OUT), a->y, a->dx1);
    add_bias(t, gpt_layer_index(m, l, GPT_OUT_BIAS), a->dx1);
    add_matrix(t, gpt_layer_index(m, l, GPT_QKV), a->a1, a->qkv);
    add_bias(t, gpt_layer_index(m, l, GPT_QKV_BIAS), a->qkv);
    add_norm(t, gpt_layer_index(m, l, GPT_NORM1_GAMMA), a->mean1, a->rstd1, s->x[l], a->da1);
}

/* To the token embedding single rows are added: those of other tokens have to be 0. Where the head is the
 * embedding too, its gradient is in all rows already. */
static void clear_token_embedding(const struct target *t) {
    const struct stage *stage = &t->m->stage;
    uint32_t tensor = t->m->places.token_embedding;
    if (t->m->part.has_head && gpt_head_index(t->m) == tensor) return;
    memset(gradsum_at(stage->sums, t->sums, stage->tensors[tensor].offset), 0,
           stage->tensors[tensor].count * gradsum_bytes(stage->sums));
}

/* Only rows of tokens that occur have a gradient: each is summed over its rows in order and added alone. */
static void add_token_embedding(const struct target *t, const struct gpt_slot *s) {
    struct gpt *m = t->m;
    const struct target rows = {.m = m, .v = t->v, .sums = t->sums, .shift = t->shift};
    struct gpt_scratch *scratch = &m->scratch;
    uint64_t width = m->config.width;
    uint32_t flags = 0;
    if (t->store) clear_token_embedding(t);
    for (uint64_t r = m->rows; r-- > 0;) {
        scratch->row_next[r] = scratch->token_first[s->tokens[r]];
        scratch->token_first[s->tokens[r]] = (int32_t)r;
    }
    for (uint64_t r = 0; r < m->rows; r++) {
        int32_t token = s->tokens[r];
        if (scratch->token_first[token] != (int32_t)r) continue;
        memcpy(scratch->gradient, s->dx[0] + r * width, width * sizeof(float));
        for (int32_t next = scratch->row_next[r]; next >= 0; next = scratch->row_next[next])
            m->k->add(scratch->gradient, s->dx[0] + (uint64_t)next * width, width);
        flags |=
            add_part(&rows, m->places.token_embedding, (uint64_t)token * width, scratch->gradient, width);
        scratch->token_first[token] = -1;
    }
    gradsum_count(footer_of(t), flags);
}

static void add_position_embedding(const struct target *t, const struct gpt_slot *s) {
    struct gpt *m = t->m;
    uint64_t width = m->config.width, context = m->config.context;
    float *g = m->scratch.gradient;
    uint32_t flags = 0;
    for (uint64_t p = 0; p < context; p++) {
        memcpy(g, s->dx[0] + p * width, width * sizeof *g);
        for (uint64_t r = p + context; r < m->rows; r += context) m->k->add(g, s->dx[0] + r * width, width);
        flags |= add_part(t, m->places.position_embedding, p * width, g, width);
    }
    gradsum_count(footer_of(t), flags);
}

pawl_code gpt_weight_grad(struct stage *stage, const struct version *v, struct stage_slot *slot,
                          int64_t *sums, int32_t exponent_shift, struct pawl_error *e) {
    (void)e;
    struct gpt *m = gpt_of(stage);
    const struct gpt_slot *s = slot->private_data;
    const struct target t = {.m = m,
                             .v = v,
                             .sums = sums,
                             .shift = exponent_shift,
                             .store = gradsum_empty(stage->sums, sums, stage->param_count)};
    if (m->part.has_head) {
        gradsum_add_loss(footer_of(&t), slot->loss, stage->contributions);
        add_matrix(&t, gpt_head_index(m), s->dlogits, s->final);
        add_norm(&t, m->places.final_gamma, s->mean, s->rstd, s->x[m->part.layer_count], s->dfinal);
    }
    for (uint32_t l = m->part.layer_count; l-- > 0;) add_layer(&t, s, l);
    if (m->part.has_embedding) {
        add_token_embedding(&t, s);
        add_position_embedding(&t, s);
    }
    return PAWL_OK;
}
