/* Memory of the GPT: one region a micro-batch in flight, one of scratch a stage, each measured and then laid
 * out by the same code, so that the two cannot disagree. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/gpt_private.h"

/* Buffers start on cache lines. */
#define LINE 64u

struct arena {
    uint8_t *base; /* null while measuring */
    uint64_t used;
    bool overflow;
};

static void *take(struct arena *a, uint64_t count, uint64_t element_bytes) {
    uint64_t bytes, at = a->used;
    if (!mem_mul(count, element_bytes, &bytes) || !mem_add(bytes, LINE, &bytes) ||
        !mem_add(at, bytes & ~(uint64_t)(LINE - 1), &a->used) || a->used > SIZE_MAX / 2) {
        a->overflow = true;
        a->used = at;
        return NULL;
    }
    return a->base == NULL ? NULL : a->base + at;
}

static float *floats(struct arena *a, uint64_t rows, uint64_t columns) {
    uint64_t count;
    if (!mem_mul(rows, columns, &count)) {
        a->overflow = true;
        return NULL;
    }
    return take(a, count, sizeof(float));
}

static void lay_out_layer(struct arena *a, const struct gpt *m, struct gpt_layer_memory *l) {
    uint64_t rows = m->rows, width = m->config.width;
    l->a1 = floats(a, rows, width);
    l->qkv = floats(a, rows, 3 * width);
    l->y = floats(a, rows, width);
    l->x1 = floats(a, rows, width);
    l->a2 = floats(a, rows, width);
    l->h = floats(a, rows, 4 * width);
    l->g = floats(a, rows, 4 * width);
    l->lse = floats(a, rows, m->config.heads);
    l->mean1 = floats(a, rows, 1);
    l->rstd1 = floats(a, rows, 1);
    l->mean2 = floats(a, rows, 1);
    l->rstd2 = floats(a, rows, 1);
    l->dx1 = floats(a, rows, width);
    l->da1 = floats(a, rows, width);
    l->da2 = floats(a, rows, width);
}

static void lay_out_slot(struct arena *a, const struct gpt *m, struct gpt_slot *s) {
    uint64_t rows = m->rows, width = m->config.width;
    for (uint32_t l = 0; l <= m->part.layer_count; l++) {
        s->x[l] = floats(a, rows, width);
        s->dx[l] = floats(a, rows, width);
    }
    for (uint32_t l = 0; l < m->part.layer_count; l++) lay_out_layer(a, m, &s->layers[l]);
    s->tokens = take(a, rows, sizeof *s->tokens);
    s->targets = take(a, rows, sizeof *s->targets);
    if (!m->part.has_head) return;
    s->final = floats(a, rows, width);
    s->mean = floats(a, rows, 1);
    s->rstd = floats(a, rows, 1);
    s->dlogits = floats(a, rows, m->config.vocabulary);
    s->dfinal = floats(a, rows, width);
}

static void set_view(const struct gpt *m, struct gpt_slot *s) {
    uint32_t layers = m->part.layer_count;
    s->base.private_data = s;
    s->base.input = m->part.has_embedding ? NULL : s->x[0];
    s->base.grad_out = m->part.has_embedding ? NULL : s->dx[0];
    s->base.output = m->part.has_head ? NULL : s->x[layers];
    s->base.grad_in = m->part.has_head ? NULL : s->dx[layers];
}

pawl_code gpt_slot_new(struct gpt *m, struct gpt_slot **out, struct pawl_error *e) {
    struct arena a = {0};
    struct gpt_slot *s = calloc(1, sizeof *s);
    if (s == NULL) return error_set(e, PAWL_MEMORY, 0, "model: no memory for a micro-batch");
    s->x = calloc((size_t)m->part.layer_count + 1, sizeof *s->x);
    s->dx = calloc((size_t)m->part.layer_count + 1, sizeof *s->dx);
    s->layers = calloc(m->part.layer_count, sizeof *s->layers);
    if (s->x != NULL && s->dx != NULL && s->layers != NULL) {
        lay_out_slot(&a, m, s);
        a = (struct arena){.base = a.overflow ? NULL : mem_alloc((size_t)a.used), .used = a.used};
    }
    if (a.base == NULL) {
        gpt_slot_free(s);
        return error_set(e, PAWL_MEMORY, 0,
                         "model: no memory for the activations of a micro-batch: %llu bytes",
                         (unsigned long long)a.used);
    }
    s->region = a.base;
    s->bytes = m->stage.slot_bytes = (size_t)a.used;
    a.used = 0;
    lay_out_slot(&a, m, s);
    set_view(m, s);
    *out = s;
    return PAWL_OK;
}

void gpt_slot_free(struct gpt_slot *s) {
    if (s == NULL) return;
    mem_free(s->region, s->bytes);
    free(s->x);
    free(s->dx);
    free(s->layers);
    free(s);
}

static uint64_t longest_row(const struct gpt_config *c) {
    uint64_t longest = 4 * (uint64_t)c->width;
    return longest > GPT_SLAB_FLOATS ? longest : GPT_SLAB_FLOATS;
}

static void lay_out_scratch(struct arena *a, const struct gpt *m, struct gpt_scratch *s) {
    const struct gpt_config *c = &m->config;
    uint64_t stride = gpt_score_stride(c);
    s->wide = floats(a, m->rows, 4 * (uint64_t)c->width);
    for (int i = 0; i < 2; i++) s->narrow[i] = floats(a, m->rows, c->width);
    s->gradient = floats(a, longest_row(c), 2);
    s->scores = floats(a, GPT_QUERY_ROWS, stride);
    s->dscores = floats(a, GPT_QUERY_ROWS, stride);
    s->dropped = floats(a, GPT_QUERY_ROWS, stride);
    s->dqkv = floats(a, c->context, 3 * (uint64_t)(c->width / c->heads));
    s->delta = floats(a, GPT_QUERY_ROWS, 1);
    s->token_first = take(a, c->vocabulary, sizeof *s->token_first);
    s->row_next = take(a, m->rows, sizeof *s->row_next);
}

pawl_code gpt_scratch_open(struct gpt *m, struct pawl_error *e) {
    struct gpt_scratch *s = &m->scratch;
    struct arena a = {0};
    lay_out_scratch(&a, m, s);
    a = (struct arena){.base = a.overflow ? NULL : mem_alloc((size_t)a.used), .used = a.used};
    if (a.base == NULL)
        return error_set(e, PAWL_MEMORY, 0, "model: no memory for scratch: %llu bytes",
                         (unsigned long long)a.used);
    s->region = a.base;
    s->bytes = (size_t)a.used;
    a.used = 0;
    lay_out_scratch(&a, m, s);
    for (uint32_t t = 0; t < m->config.vocabulary; t++) s->token_first[t] = -1;
    return PAWL_OK;
}

void gpt_scratch_close(struct gpt *m) {
    mem_free(m->scratch.region, m->scratch.bytes);
    m->scratch = (struct gpt_scratch){0};
}
