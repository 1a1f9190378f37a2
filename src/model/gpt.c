/* Implementation of model/gpt.h: a stage of the GPT as a struct stage, and its pool of micro-batches. */
#include "model/gpt.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "model/gpt_private.h"

static void close_stage(struct stage *stage) {
    struct gpt *m = gpt_of(stage);
    while (m->slots != NULL) {
        struct gpt_slot *next = m->slots->next;
        gpt_slot_free(m->slots);
        m->slots = next;
    }
    gpt_scratch_close(m);
    gpt_tensors_free(stage->tensors, stage->tensor_count);
    free(m);
}

static pawl_code init_params(struct stage *stage, uint64_t seed, float *params, struct pawl_error *e) {
    (void)e;
    for (uint32_t i = 0; i < stage->tensor_count; i++) {
        const struct stage_tensor *t = &stage->tensors[i];
        float deviation = gpt_init_deviation(&gpt_of(stage)->config, t);
        float *out = params + t->offset;
        if (deviation > 0)
            rng_normal(seed, hash64(t->name, strlen(t->name)), deviation, out, t->count);
        else
            for (uint64_t k = 0; k < t->count; k++) out[k] = deviation < 0 ? 1.0f : 0.0f;
    }
    return PAWL_OK;
}

static pawl_code load_samples(const struct gpt *m, struct gpt_slot *s, struct pawl_error *e) {
    if (!m->part.has_embedding && !m->part.has_head) return PAWL_OK;
    uint64_t first = (s->base.step * m->stage.contributions + s->base.microbatch) * m->config.batch;
    for (uint64_t row = 0; row < m->config.batch; row++) {
        uint64_t at = row * m->config.context;
        pawl_code code = data_sample(m->data, first + row, s->tokens + at, s->targets + at, e);
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

static pawl_code take_free(struct gpt *m, struct gpt_slot **out, struct pawl_error *e) {
    if (m->free_slots == NULL) {
        pawl_code code = gpt_slot_new(m, out, e);
        if (code != PAWL_OK) return code;
        (*out)->next = m->slots;
        m->slots = *out;
        return PAWL_OK;
    }
    *out = m->free_slots;
    m->free_slots = (*out)->next_free;
    return PAWL_OK;
}

static void slot_return(struct stage *stage, struct stage_slot *slot) {
    struct gpt *m = gpt_of(stage);
    struct gpt_slot *s = slot->private_data;
    s->next_free = m->free_slots;
    m->free_slots = s;
}

static pawl_code slot_take(struct stage *stage, uint64_t step, uint64_t microbatch, struct stage_slot **out,
                           struct pawl_error *e) {
    struct gpt_slot *s;
    *out = NULL;
    pawl_code code = take_free(gpt_of(stage), &s, e);
    if (code != PAWL_OK) return code;
    s->base.step = step;
    s->base.microbatch = microbatch;
    s->base.loss = 0;
    code = load_samples(gpt_of(stage), s, e);
    if (code != PAWL_OK) {
        slot_return(stage, &s->base);
        return code;
    }
    *out = &s->base;
    return PAWL_OK;
}

static const struct stage_ops gpt_ops = {
    .close = close_stage,
    .init_params = init_params,
    .slot_take = slot_take,
    .slot_return = slot_return,
    .forward = gpt_forward,
    .input_grad = gpt_input_grad,
    .weight_grad = gpt_weight_grad,
};

static pawl_code check_data(const struct gpt *m, struct pawl_error *e) {
    if (!m->part.has_embedding && !m->part.has_head) return PAWL_OK;
    if (m->data == NULL)
        return error_set(e, PAWL_ARGUMENT, 0, "model: the first and the last stage need the training text");
    if (data_context(m->data) != m->config.context || data_vocabulary(m->data) > m->config.vocabulary)
        return error_set(
            e, PAWL_SPEC, 0,
            "model: context %u and vocabulary %u do not fit the training text's, which are %u and %u",
            m->config.context, m->config.vocabulary, data_context(m->data), data_vocabulary(m->data));
    return PAWL_OK;
}

static pawl_code open_parts(struct gpt *m, struct pawl_error *e) {
    struct stage *stage = &m->stage;
    pawl_code code = check_data(m, e);
    if (code == PAWL_OK)
        code = gpt_tensors_make(&m->config, &m->part, &stage->tensors, &stage->tensor_count, &m->places, e);
    if (code != PAWL_OK) return code;
    const struct stage_tensor *last = &stage->tensors[stage->tensor_count - 1];
    stage->param_count = last->offset + last->count;
    return gpt_scratch_open(m, e);
}

pawl_code gpt_stage_open(const struct gpt_config *config, uint32_t index, uint32_t stage_count,
                         const struct data *data, uint64_t contributions, struct stage **out,
                         struct pawl_error *e) {
    *out = NULL;
    pawl_code code = gpt_config_check(config, stage_count, e);
    if (code != PAWL_OK) return code;
    if (index >= stage_count || contributions == 0)
        return error_set(e, PAWL_ARGUMENT, 0, "model: stage %u of %u with %llu micro-batches", index,
                         stage_count, (unsigned long long)contributions);
    struct gpt *m = calloc(1, sizeof *m);
    if (m == NULL) return error_set(e, PAWL_MEMORY, 0, "model: no memory for stage %u", index);
    m->config = *config;
    m->part = gpt_part_of(config, index, stage_count);
    m->rows = (uint64_t)config->batch * config->context;
    m->k = kernels_get();
    m->data = data;
    size_t boundary_bytes = (size_t)(m->rows * config->width * sizeof(float));
    m->stage = (struct stage){
        .ops = &gpt_ops,
        .index = index,
        .stage_count = stage_count,
        .input_bytes = index == 0 ? 0 : boundary_bytes,
        .output_bytes = index + 1 == stage_count ? 0 : boundary_bytes,
        .contributions = contributions,
    };
    /* Results must not depend on how many threads a product is split over. */
    openblas_set_num_threads(1);
    code = open_parts(m, e);
    if (code != PAWL_OK) {
        close_stage(&m->stage);
        return code;
    }
    *out = &m->stage;
    return PAWL_OK;
}
