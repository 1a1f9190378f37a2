/* The input-gradient pass of a stage: from the gradient of its output (or the loss) to that of its input. No
 * parameter gradient is made here; what gpt_weight_grad.c needs for them is left in the slot. */
#include <string.h>

#include "model/gemm.h"
#include "model/gpt_private.h"

/* din (R x inner) = dout (R x columns) W^T */
static void multiply_back(const struct gpt *m, const float *dout, uint64_t columns, const float *weight,
                          uint64_t inner, float *din) {
    gemm_run(&(struct gemm){.m = m->rows,
                            .n = inner,
                            .k = columns,
                            .alpha = 1,
                            .a = dout,
                            .lda = columns,
                            .b = weight,
                            .ldb = columns,
                            .tb = true,
                            .c = din,
                            .ldc = inner});
}

/* The gradient behind a dropout: `dout` itself when there is none, else a masked copy in scratch. */
static const float *masked(const struct gpt *m, const struct gpt_slot *s, uint32_t l, enum gpt_drop which,
                           const float *dout) {
    if (!(m->config.dropout > 0)) return dout;
    float *copy = m->scratch.narrow[0];
    memcpy(copy, dout, m->rows * m->config.width * sizeof *copy);
    gpt_drop_rows(m, s, l, which, copy);
    return copy;
}

/* Keeps the masked form, which the weight gradient needs, in place of the plain one, which nobody does. */
static void keep_masked(const struct gpt *m, const float *from, float *dout) {
    if (from != dout) memcpy(dout, from, m->rows * m->config.width * sizeof *dout);
}

/* dx1 from dx[l + 1] */
static void mlp_grad(struct gpt *m, const struct version *v, struct gpt_slot *s, uint32_t l) {
    struct gpt_layer_memory *a = &s->layers[l];
    uint64_t width = m->config.width;
    float *dout = s->dx[l + 1], *dg = m->scratch.wide;
    struct kernels_norm norm = {m->rows, width,    gpt_layer_param(m, v, l, GPT_NORM2_GAMMA),
                                NULL,    a->mean2, a->rstd2};
    const float *behind = masked(m, s, l, GPT_DROP_PROJ, dout);
    multiply_back(m, behind, width, gpt_layer_param(m, v, l, GPT_PROJ), 4 * width, dg);
    m->k->gelu_grad(a->h, dg, m->rows * 4 * width);
    multiply_back(m, a->h, 4 * width, gpt_layer_param(m, v, l, GPT_FC), width, a->da2);
    m->k->norm_input_grad(&norm, a->x1, a->da2, dout, a->dx1);
    keep_masked(m, behind, dout);
}

/* dx[l] from dx1 */
static void attention_grad(struct gpt *m, const struct version *v, struct gpt_slot *s, uint32_t l) {
    struct gpt_layer_memory *a = &s->layers[l];
    uint64_t width = m->config.width;
    float *dy = m->scratch.narrow[1];
    struct kernels_norm norm = {m->rows, width,    gpt_layer_param(m, v, l, GPT_NORM1_GAMMA),
                                NULL,    a->mean1, a->rstd1};
    const float *behind = masked(m, s, l, GPT_DROP_OUT, a->dx1);
    multiply_back(m, behind, width, gpt_layer_param(m, v, l, GPT_OUT), width, dy);
    gpt_attention_grad(m, s, l, dy);
    multiply_back(m, a->qkv, 3 * width, gpt_layer_param(m, v, l, GPT_QKV), width, a->da1);
    m->k->norm_input_grad(&norm, s->x[l], a->da1, a->dx1, s->dx[l]);
    keep_masked(m, behind, a->dx1);
}

static void head_grad(struct gpt *m, const struct version *v, struct gpt_slot *s) {
    uint64_t width = m->config.width, vocabulary = m->config.vocabulary;
    uint32_t layers = m->part.layer_count;
    struct kernels_norm norm = {m->rows, width,   gpt_param(m, v, m->places.final_gamma),
                                NULL,    s->mean, s->rstd};
    gemm_run(&(struct gemm){.m = m->rows,
                            .n = width,
                            .k = vocabulary,
                            .alpha = 1,
                            .a = s->dlogits,
                            .lda = vocabulary,
                            .b = gpt_param(m, v, gpt_head_index(m)),
                            .ldb = width,
                            .c = s->dfinal,
                            .ldc = width});
    m->k->norm_input_grad(&norm, s->x[layers], s->dfinal, NULL, s->dx[layers]);
}

pawl_code gpt_input_grad(struct stage *stage, const struct version *v, struct stage_slot *slot,
                         struct pawl_error *e) {
    (void)e;
    struct gpt *m = gpt_of(stage);
    struct gpt_slot *s = slot->private_data;
    if (m->part.has_head) head_grad(m, v, s);
    for (uint32_t l = m->part.layer_count; l-- > 0;) {
        mlp_grad(m, v, s, l);
        attention_grad(m, v, s, l);
    }
    if (m->part.has_embedding) gpt_drop_rows(m, s, 0, GPT_DROP_EMBEDDING, s->dx[0]);
    return PAWL_OK;
}
