/* Implementation of model/foreign.h. */
#include "model/foreign.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define BUFFERS 4u /* of a slot: input, grad_out, output, grad_in */

struct opened {
    uint32_t holders; /* stages of ours over this one of the engine's; 0: it is closed */
    struct pawl_engine_layout layout;
};

struct foreign {
    const struct pawl_engine *engine;
    struct pawl_engine_job job;
    char *module, *options;
    bool open;
    struct opened *stages; /* [job.stages] */
    uint64_t last_key;     /* of a slot; every slot has one of its own, in all stages together */
};

struct foreign_slot {
    struct stage_slot base;
    struct foreign_slot *next, *next_free;
    uint64_t key;
    bool kept; /* the engine has something under the key */
};

struct foreign_stage {
    struct stage stage;
    struct foreign *foreign;
    struct foreign_slot *slots, *free_slots;
    uint64_t *offsets;   /* [tensor_count] */
    const float **grads; /* [tensor_count] room for what a weight_grad sets */
    size_t buffer_bytes; /* of a slot, all together */
};

static struct foreign_stage *foreign_of(struct stage *stage) { return (struct foreign_stage *)stage; }

/* ---- what the engine fails with ---- */

static const char *text_of(struct pawl_error *inner) {
    inner->text[sizeof inner->text - 1] = 0;
    return inner->text[0] != 0 ? inner->text : "it gives no reason";
}

static pawl_code stage_failed(const struct stage *stage, const char *what, struct pawl_error *inner,
                              struct pawl_error *e) {
    return error_set(e, PAWL_USER, 0, "stage %u: %s: %s", stage->index, what, text_of(inner));
}

static pawl_code slot_failed(const struct stage *stage, const struct stage_slot *slot, const char *what,
                             struct pawl_error *inner, struct pawl_error *e) {
    return error_set(e, PAWL_USER, 0, "stage %u, step %llu, micro-batch %llu: %s: %s", stage->index,
                     (unsigned long long)slot->step, (unsigned long long)slot->microbatch, what,
                     text_of(inner));
}

/* ---- the engine ---- */

static const char *missing_function(const struct pawl_engine *g) {
    if (g->open == NULL) return "open";
    if (g->stage_open == NULL) return "stage_open";
    if (g->stage_close == NULL) return "stage_close";
    if (g->init == NULL) return "init";
    if (g->forward == NULL) return "forward";
    if (g->input_grad == NULL) return "input_grad";
    if (g->weight_grad == NULL) return "weight_grad";
    if (g->drop == NULL) return "drop";
    return g->close == NULL ? "close" : NULL;
}

static pawl_code open_engine(struct foreign *f, struct pawl_error *e) {
    struct pawl_error inner = {0};
    if (f->module == NULL || f->options == NULL || f->stages == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for an engine of %u stages", f->job.stages);
    f->job.module = f->module;
    f->job.options = f->options;
    if (f->engine->open(f->engine->context, &f->job, &inner) != PAWL_OK)
        return error_set(e, PAWL_USER, 0, "%s", text_of(&inner));
    f->open = true;
    return PAWL_OK;
}

pawl_code foreign_open(const struct pawl_engine *engine, const struct pawl_engine_job *job,
                       struct foreign **out, struct pawl_error *e) {
    *out = NULL;
    const char *missing = missing_function(engine);
    if (missing != NULL) return error_set(e, PAWL_ARGUMENT, 0, "the engine has no function %s", missing);
    if (job->stages == 0 || job->stages > FOREIGN_STAGES_MAX || job->contributions == 0)
        return error_set(e, PAWL_ARGUMENT, 0, "an engine of %u stages, %llu micro-batches", job->stages,
                         (unsigned long long)job->contributions);
    struct foreign *f = calloc(1, sizeof *f);
    if (f == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for an engine");
    *f = (struct foreign){.engine = engine,
                          .job = *job,
                          .module = strdup(job->module),
                          .options = strdup(job->options),
                          .stages = calloc(job->stages, sizeof *f->stages)};
    pawl_code code = open_engine(f, e);
    if (code == PAWL_OK)
        *out = f;
    else
        foreign_close(f);
    return code;
}

void foreign_close(struct foreign *f) {
    if (f == NULL) return;
    if (f->open) f->engine->close(f->engine->context);
    free(f->module);
    free(f->options);
    free(f->stages);
    free(f);
}

pawl_code foreign_optimizer(struct foreign *f, bool *given, struct pawl_engine_optimizer *out,
                            struct pawl_error *e) {
    struct pawl_error inner = {0};
    *out = (struct pawl_engine_optimizer){0};
    *given = f->engine->optimizer != NULL;
    if (!*given || f->engine->optimizer(f->engine->context, out, &inner) == PAWL_OK) return PAWL_OK;
    return error_set(e, PAWL_USER, 0, "optimizer: %s", text_of(&inner));
}

pawl_code foreign_samples(struct foreign *f, uint64_t *out, struct pawl_error *e) {
    struct pawl_error inner = {0};
    *out = 0;
    if (f->engine->samples == NULL) return PAWL_OK;
    if (f->engine->samples(f->engine->context, out, &inner) != PAWL_OK)
        return error_set(e, PAWL_USER, 0, "samples: %s", text_of(&inner));
    if (*out >= 1 && *out <= FOREIGN_SAMPLES_MAX) return PAWL_OK;
    return error_set(e, PAWL_USER, 0, "samples: the data has %llu: wanted 1 to 2^53",
                     (unsigned long long)*out);
}

/* ---- slots ---- */

static void slot_free(struct foreign_slot *s, const struct stage *stage) {
    mem_free(s->base.input, stage->input_bytes);
    mem_free(s->base.grad_out, stage->input_bytes);
    mem_free(s->base.output, stage->output_bytes);
    mem_free(s->base.grad_in, stage->output_bytes);
    free(s);
}

static pawl_code slot_new(struct foreign_stage *m, struct foreign_slot **out, struct pawl_error *e) {
    const struct stage *stage = &m->stage;
    struct foreign_slot *s = calloc(1, sizeof *s);
    if (s != NULL && stage->input_bytes > 0) {
        s->base.input = mem_alloc(stage->input_bytes);
        s->base.grad_out = mem_alloc(stage->input_bytes);
    }
    if (s != NULL && stage->output_bytes > 0) {
        s->base.output = mem_alloc(stage->output_bytes);
        s->base.grad_in = mem_alloc(stage->output_bytes);
    }
    bool whole = s != NULL &&
                 (stage->input_bytes == 0 || (s->base.input != NULL && s->base.grad_out != NULL)) &&
                 (stage->output_bytes == 0 || (s->base.output != NULL && s->base.grad_in != NULL));
    if (!whole) {
        if (s != NULL) slot_free(s, stage);
        return error_set(e, PAWL_MEMORY, 0, "stage %u: no memory for one more micro-batch: %zu bytes",
                         stage->index, m->buffer_bytes);
    }
    s->base.private_data = s;
    s->key = ++m->foreign->last_key;
    s->next = m->slots;
    m->slots = s;
    *out = s;
    return PAWL_OK;
}

static pawl_code slot_take(struct stage *stage, uint64_t step, uint64_t microbatch, struct stage_slot **out,
                           struct pawl_error *e) {
    struct foreign_stage *m = foreign_of(stage);
    struct foreign_slot *s = m->free_slots;
    *out = NULL;
    pawl_code code = s == NULL ? slot_new(m, &s, e) : PAWL_OK;
    if (code != PAWL_OK) return code;
    if (s == m->free_slots) m->free_slots = s->next_free;
    if (stage->slot_bytes < m->buffer_bytes) stage->slot_bytes = m->buffer_bytes;
    s->base.step = step;
    s->base.microbatch = microbatch;
    s->base.loss = 0;
    s->base.no_input_grad = s->base.no_weight_grad = false;
    *out = &s->base;
    return PAWL_OK;
}

static void drop(struct foreign_stage *m, struct foreign_slot *s) {
    const struct pawl_engine *engine = m->foreign->engine;
    if (s->kept) engine->drop(engine->context, m->stage.index, s->key);
    s->kept = false;
}

static void slot_return(struct stage *stage, struct stage_slot *slot) {
    struct foreign_stage *m = foreign_of(stage);
    struct foreign_slot *s = slot->private_data;
    drop(m, s);
    s->next_free = m->free_slots;
    m->free_slots = s;
}

/* ---- calls ---- */

static struct pawl_engine_call call_of(const struct foreign_stage *m, const struct version *v,
                                       const struct stage_slot *slot) {
    const struct foreign_slot *s = slot->private_data;
    return (struct pawl_engine_call){.stage = m->stage.index,
                                     .slot = s->key,
                                     .version = v->number,
                                     .params = v->params,
                                     .offsets = m->offsets,
                                     .step = slot->step,
                                     .microbatch = slot->microbatch,
                                     .no_input_grad = slot->no_input_grad || slot->grad_out == NULL,
                                     .no_weight_grad = slot->no_weight_grad,
                                     .input = slot->input,
                                     .output = slot->output,
                                     .loss = NAN};
}

/* What people are told of memory: the most that a slot has held. */
static void note_kept(struct stage *stage, uint64_t kept_bytes, size_t buffer_bytes) {
    uint64_t all;
    if (!mem_add(kept_bytes, buffer_bytes, &all) || all > FOREIGN_BYTES_MAX) return; /* nobody has so much */
    if (all > stage->slot_bytes) stage->slot_bytes = (size_t)all;
}

static pawl_code forward(struct stage *stage, const struct version *v, struct stage_slot *slot,
                         struct pawl_error *e) {
    struct foreign_stage *m = foreign_of(stage);
    struct foreign_slot *s = slot->private_data;
    const struct pawl_engine *engine = m->foreign->engine;
    struct pawl_engine_call call = call_of(m, v, slot);
    struct pawl_error inner = {0};
    drop(m, s);
    s->kept = true;
    if (engine->forward(engine->context, &call, &inner) != PAWL_OK)
        return slot_failed(stage, slot, "forward", &inner, e);
    if (slot->output == NULL) slot->loss = call.loss;
    note_kept(stage, call.kept_bytes, m->buffer_bytes);
    return PAWL_OK;
}

static pawl_code input_grad(struct stage *stage, const struct version *v, struct stage_slot *slot,
                            struct pawl_error *e) {
    struct foreign_stage *m = foreign_of(stage);
    const struct pawl_engine *engine = m->foreign->engine;
    struct pawl_engine_call call = call_of(m, v, slot);
    struct pawl_error inner = {0};
    call.grad_in = slot->grad_in;
    call.grad_out = call.no_input_grad ? NULL : slot->grad_out;
    call.loss = slot->loss;
    if (engine->input_grad(engine->context, &call, &inner) != PAWL_OK)
        return slot_failed(stage, slot, "input_grad", &inner, e);
    return PAWL_OK;
}

/* Null: a gradient of zeros, which adds nothing but counts. */
static void add_tensor(const struct foreign_stage *m, uint32_t tensor, int32_t exponent, int64_t *sums,
                       int64_t *footer) {
    const struct stage_tensor *t = &m->stage.tensors[tensor];
    const float *g = m->grads[tensor];
    void *sum = gradsum_at(m->stage.sums, sums, t->offset);
    uint32_t flags = 0;
    if (g != NULL && m->stage.sums == GRADSUM_EXACT)
        flags = gradsum_add_part(sum, g, t->count, exponent, stage_tensor_contributions(&m->stage, tensor));
    else if (g != NULL)
        gradsum_add_float(sum, g, t->count);
    gradsum_count(footer, flags);
}

static pawl_code weight_grad(struct stage *stage, const struct version *v, struct stage_slot *slot,
                             int64_t *sums, int32_t exponent_shift, struct pawl_error *e) {
    struct foreign_stage *m = foreign_of(stage);
    const struct pawl_engine *engine = m->foreign->engine;
    struct pawl_engine_call call = call_of(m, v, slot);
    struct pawl_error inner = {0};
    int64_t *footer = sums + gradsum_words(stage->sums, stage->param_count);
    memset(m->grads, 0, stage->tensor_count * sizeof *m->grads);
    call.grads = m->grads;
    call.loss = slot->loss;
    if (engine->weight_grad(engine->context, &call, &inner) != PAWL_OK)
        return slot_failed(stage, slot, "weight_grad", &inner, e);
    gradsum_clear_empty(stage->sums, sums, stage->param_count);
    for (uint32_t t = 0; t < stage->tensor_count; t++)
        add_tensor(m, t, v->exponents[t] - exponent_shift, sums, footer);
    if (slot->output == NULL) gradsum_add_loss(footer, slot->loss, stage->contributions);
    return PAWL_OK;
}

static pawl_code init_params(struct stage *stage, uint64_t seed, float *params, struct pawl_error *e) {
    (void)seed; /* the job's */
    struct foreign_stage *m = foreign_of(stage);
    const struct pawl_engine *engine = m->foreign->engine;
    struct pawl_error inner = {0};
    if (engine->init(engine->context, stage->index, params, m->offsets, &inner) != PAWL_OK)
        return stage_failed(stage, "init", &inner, e);
    for (uint32_t t = 0; t < stage->tensor_count; t++)
        if (!gradsum_finite(params + stage->tensors[t].offset, stage->tensors[t].count))
            return error_set(e, PAWL_USER, 0, "stage %u: init: a value of %.200s is not finite", stage->index,
                             stage->tensors[t].name);
    return PAWL_OK;
}

/* ---- the stage ---- */

static void let_go(struct foreign *f, uint32_t index) {
    if (--f->stages[index].holders == 0) f->engine->stage_close(f->engine->context, index);
}

static void close_stage(struct stage *stage) {
    struct foreign_stage *m = foreign_of(stage);
    while (m->slots != NULL) {
        struct foreign_slot *next = m->slots->next;
        drop(m, m->slots);
        slot_free(m->slots, stage);
        m->slots = next;
    }
    let_go(m->foreign, stage->index);
    foreign_tensors_free(stage->tensors, stage->tensor_count);
    free(m->offsets);
    free(m->grads);
    free(m);
}

static const struct stage_ops foreign_ops = {
    .close = close_stage,
    .init_params = init_params,
    .slot_take = slot_take,
    .slot_return = slot_return,
    .forward = forward,
    .input_grad = input_grad,
    .weight_grad = weight_grad,
};

/* The engine's stage, opened if nobody holds it. */
static pawl_code hold(struct foreign *f, uint32_t index, struct pawl_error *e) {
    struct opened *o = &f->stages[index];
    struct pawl_error inner = {0};
    if (o->holders == 0) {
        o->layout = (struct pawl_engine_layout){0};
        if (f->engine->stage_open(f->engine->context, index, &o->layout, &inner) != PAWL_OK)
            return error_set(e, PAWL_USER, 0, "stage %u: %s", index, text_of(&inner));
    }
    o->holders++;
    return PAWL_OK;
}

static pawl_code take_layout(struct foreign_stage *m, const struct pawl_engine_layout *layout,
                             struct pawl_error *e) {
    struct stage *stage = &m->stage;
    pawl_code code = foreign_tensors(layout, stage->index, stage->stage_count, &stage->tensors, e);
    if (code != PAWL_OK) return code;
    stage->tensor_count = layout->tensor_count;
    stage->input_bytes = (size_t)layout->input_bytes;
    stage->output_bytes = (size_t)layout->output_bytes;
    m->buffer_bytes = BUFFERS / 2 * (stage->input_bytes + stage->output_bytes);
    m->offsets = calloc(stage->tensor_count, sizeof *m->offsets);
    m->grads = calloc(stage->tensor_count, sizeof *m->grads);
    if (m->offsets == NULL || m->grads == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for %u tensors", stage->tensor_count);
    for (uint32_t t = 0; t < stage->tensor_count; t++) m->offsets[t] = stage->tensors[t].offset;
    const struct stage_tensor *last = &stage->tensors[stage->tensor_count - 1];
    stage->param_count = last->offset + last->count;
    return PAWL_OK;
}

pawl_code foreign_stage_open(struct foreign *f, uint32_t index, struct stage **out, struct pawl_error *e) {
    *out = NULL;
    if (index >= f->job.stages)
        return error_set(e, PAWL_ARGUMENT, 0, "stage %u of an engine of %u", index, f->job.stages);
    pawl_code code = hold(f, index, e);
    if (code != PAWL_OK) return code;
    struct foreign_stage *m = calloc(1, sizeof *m);
    if (m == NULL) {
        let_go(f, index);
        return error_set(e, PAWL_MEMORY, 0, "no memory for stage %u", index);
    }
    m->foreign = f;
    m->stage = (struct stage){.ops = &foreign_ops,
                              .index = index,
                              .stage_count = f->job.stages,
                              .contributions = f->job.contributions};
    code = take_layout(m, &f->stages[index].layout, e);
    if (code == PAWL_OK)
        *out = &m->stage;
    else
        close_stage(&m->stage);
    return code;
}
