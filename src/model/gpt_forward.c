/* The forward pass of a stage: embedding, layers, head with the loss and its gradient by the logits. */
#include <string.h>

#include "model/gemm.h"
#include "model/gpt_private.h"

/* out (R x columns) = in (R x inner) W + beta * out */
static void multiply(const struct gpt *m, const float *in, uint64_t inner, const float *weight,
                     uint64_t columns, float beta, float *out) {
    gemm_run(&(struct gemm){.m = m->rows,
                            .n = columns,
                            .k = inner,
                            .alpha = 1,
                            .beta = beta,
                            .a = in,
                            .lda = inner,
                            .b = weight,
                            .ldb = columns,
                            .c = out,
                            .ldc = columns});
}

static void embed(const struct gpt *m, const struct version *v, struct gpt_slot *s) {
    uint64_t width = m->config.width, context = m->config.context;
    const float *token = gpt_param(m, v, m->places.token_embedding);
    const float *position = gpt_param(m, v, m->places.position_embedding);
    for (uint64_t r = 0; r < m->rows; r++)
        m->k->bias_residual(s->x[0] + r * width, token + (uint64_t)s->tokens[r] * width,
                            position + r % context * width, 1, width);
    gpt_drop_rows(m, s, 0, GPT_DROP_EMBEDDING, s->x[0]);
}

/* out = residual + drop(in W + bias) */
static void project(const struct gpt *m, const struct gpt_slot *s, uint32_t l, const struct version *v,
                    enum gpt_layer_tensor weight, enum gpt_drop which, const float *in, const float *residual,
                    float *out) {
    uint64_t width = m->config.width, inner = weight == GPT_PROJ ? 4 * width : width;
    const float *w = gpt_layer_param(m, v, l, weight), *bias = gpt_layer_param(m, v, l, weight + 1);
    if (!(m->config.dropout > 0)) {
        m->k->bias_residual(out, residual, bias, m->rows, width);
        multiply(m, in, inner, w, width, 1, out);
        return;
    }
    multiply(m, in, inner, w, width, 0, out);
    m->k->bias_add(out, bias, m->rows, width);
    gpt_drop_rows(m, s, l, which, out);
    m->k->add(out, residual, m->rows * width);
}

static void layer_forward(struct gpt *m, const struct version *v, struct gpt_slot *s, uint32_t l) {
    struct gpt_layer_memory *a = &s->layers[l];
    uint64_t width = m->config.width;
    struct kernels_norm norm1 = {m->rows,
                                 width,
                                 gpt_layer_param(m, v, l, GPT_NORM1_GAMMA),
                                 gpt_layer_param(m, v, l, GPT_NORM1_BETA),
                                 a->mean1,
                                 a->rstd1};
    struct kernels_norm norm2 = {m->rows,
                                 width,
                                 gpt_layer_param(m, v, l, GPT_NORM2_GAMMA),
                                 gpt_layer_param(m, v, l, GPT_NORM2_BETA),
                                 a->mean2,
                                 a->rstd2};
    m->k->norm_forward(&norm1, s->x[l], a->a1);
    multiply(m, a->a1, width, gpt_layer_param(m, v, l, GPT_QKV), 3 * width, 0, a->qkv);
    m->k->bias_add(a->qkv, gpt_layer_param(m, v, l, GPT_QKV_BIAS), m->rows, 3 * width);
    gpt_attention_forward(m, s, l);
    project(m, s, l, v, GPT_OUT, GPT_DROP_OUT, a->y, s->x[l], a->x1);
    m->k->norm_forward(&norm2, a->x1, a->a2);
    multiply(m, a->a2, width, gpt_layer_param(m, v, l, GPT_FC), 4 * width, 0, a->h);
    m->k->bias_gelu(a->h, gpt_layer_param(m, v, l, GPT_FC_BIAS), a->g, m->rows, 4 * width);
    project(m, s, l, v, GPT_PROJ, GPT_DROP_PROJ, a->g, a->x1, s->x[l + 1]);
}

static void head_forward(struct gpt *m, const struct version *v, struct gpt_slot *s) {
    uint64_t width = m->config.width, vocabulary = m->config.vocabulary;
    struct kernels_norm norm = {
        m->rows, width,  gpt_param(m, v, m->places.final_gamma), gpt_param(m, v, m->places.final_beta),
        s->mean, s->rstd};
    m->k->norm_forward(&norm, s->x[m->part.layer_count], s->final);
    gemm_run(&(struct gemm){.m = m->rows,
                            .n = vocabulary,
                            .k = width,
                            .alpha = 1,
                            .a = s->final,
                            .lda = width,
                            .b = gpt_param(m, v, gpt_head_index(m)),
                            .ldb = width,
                            .tb = true,
                            .c = s->dlogits,
                            .ldc = vocabulary});
    double sum = 0;
    for (uint64_t r = 0; r < m->rows; r++)
        sum += m->k->cross_entropy(s->dlogits + r * vocabulary, vocabulary, (uint64_t)s->targets[r],
                                   1.0f / (float)m->rows);
    s->base.loss = sum / (double)m->rows;
}

pawl_code gpt_forward(struct stage *stage, const struct version *v, struct stage_slot *slot,
                      struct pawl_error *e) {
    (void)e;
    struct gpt *m = gpt_of(stage);
    struct gpt_slot *s = slot->private_data;
    if (m->part.has_embedding) embed(m, v, s);
    for (uint32_t l = 0; l < m->part.layer_count; l++) layer_forward(m, v, s, l);
    if (m->part.has_head) head_forward(m, v, s);
    return PAWL_OK;
}
