/* Implementation of model/emulated.h. */
#include "model/emulated.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/emulated_message.h"
#include "model/gradsum.h"

#define TENSORS       2u    /* of a chunk, if it has as many parameters: one with weight decay, one without */
#define DEVIATION     0.02f /* of the initial weights, as GPT-2's */
#define HASHED_FLOATS 1024u /* of the parameters, from the front and from the back: which version it was */
#define NAME_BYTES    32u
#define BUFFERS       4u /* of a slot: input, output, grad_in, grad_out */
#define BUFFER_FLOATS (EMULATED_MESSAGE_BYTES / sizeof(float))

struct emulated_slot {
    struct stage_slot base;
    struct emulated_slot *next, *next_free;
    uint64_t in_value, value; /* of the activation that came, and of the one made from it */
    uint64_t grad_value;
    uint64_t stored_bytes;
    bool stored; /* counts as a micro-batch in memory */
    float buffers[BUFFERS * BUFFER_FLOATS];
};

struct emulated {
    struct stage stage;
    struct emulated_config config;
    struct emulated_cost cost;
    struct emulated_device *device;
    struct emulated_slot *slots, *free_slots;
    float *gradient; /* [param_count] */
};

static struct emulated *emulated_of(struct stage *stage) { return (struct emulated *)stage; }

/* ---- time ---- */

static int64_t ns_of(const struct emulated *m, double units) {
    return (int64_t)(units * m->device->ns_per_unit);
}

static int64_t time_of(const struct emulated *m) { return m->device->ns_per_unit > 0 ? clock_now_ns() : 0; }

/* Until `units` after `begin_ns`; returns when that is. */
static int64_t spend(const struct emulated *m, int64_t begin_ns, double units) {
    int64_t end_ns = begin_ns + ns_of(m, units);
    if (m->device->ns_per_unit > 0) clock_sleep_until(end_ns);
    return end_ns;
}

static void pause_for(struct stage *stage, enum stage_pause what) {
    const struct emulated *m = emulated_of(stage);
    double units = what == STAGE_PAUSE_REDUCE ? m->cost.reduce : m->cost.step * m->device->slow;
    spend(m, time_of(m), units);
}

/* ---- memory ---- */

static pawl_code check_memory(const struct emulated *m, const struct stage_slot *slot, struct pawl_error *e) {
    const struct emulated_device *d = m->device;
    bool many = d->microbatches_max > 0 && d->used_microbatches > d->microbatches_max;
    bool large = d->memory_bytes > 0 && d->used_bytes > d->memory_bytes;
    if (!many && !large) return PAWL_OK;
    return error_set(
        e, PAWL_INTERNAL, 0,
        "emulated: chunk %u, step %llu, micro-batch %llu: %u micro-batches and %llu bytes are stored, "
        "allowed are %u (0: any) and %llu",
        m->stage.index, (unsigned long long)slot->step, (unsigned long long)slot->microbatch,
        d->used_microbatches, (unsigned long long)d->used_bytes, d->microbatches_max,
        (unsigned long long)d->memory_bytes);
}

static pawl_code store(struct emulated *m, struct emulated_slot *s, struct pawl_error *e) {
    struct emulated_device *d = m->device;
    s->stored = true;
    s->stored_bytes = m->cost.activation_bytes;
    d->used_bytes += s->stored_bytes;
    d->used_microbatches++;
    if (d->used_microbatches > d->peak_microbatches) d->peak_microbatches = d->used_microbatches;
    return check_memory(m, &s->base, e);
}

/* After the input-gradient only a part is kept, after the weight-gradient nothing. */
static void shrink(struct emulated *m, struct emulated_slot *s) {
    if (!s->stored || m->cost.weight_grad_bytes == 0) return;
    m->device->used_bytes -= s->stored_bytes - m->cost.weight_grad_bytes;
    s->stored_bytes = m->cost.weight_grad_bytes;
}

static void drop(struct emulated *m, struct emulated_slot *s) {
    if (!s->stored) return;
    m->device->used_bytes -= s->stored_bytes;
    m->device->used_microbatches--;
    s->stored = false;
}

/* ---- slots ---- */

static struct emulated_slot *slot_of(struct stage_slot *slot) { return slot->private_data; }

static struct emulated_slot *slot_new(struct emulated *m) {
    struct emulated_slot *s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    bool first = m->stage.index == 0, last = m->stage.index + 1 == m->stage.stage_count;
    s->base.input = first ? NULL : s->buffers;
    s->base.grad_out = first ? NULL : s->buffers + BUFFER_FLOATS;
    s->base.output = last ? NULL : s->buffers + 2 * BUFFER_FLOATS;
    s->base.grad_in = last ? NULL : s->buffers + 3 * BUFFER_FLOATS;
    s->base.private_data = s;
    s->next = m->slots;
    m->slots = s;
    m->stage.slot_bytes = sizeof *s;
    return s;
}

static pawl_code slot_take(struct stage *stage, uint64_t step, uint64_t microbatch, struct stage_slot **out,
                           struct pawl_error *e) {
    struct emulated *m = emulated_of(stage);
    struct emulated_slot *s = m->free_slots;
    *out = NULL;
    if (s != NULL)
        m->free_slots = s->next_free;
    else
        s = slot_new(m);
    if (s == NULL) return error_set(e, PAWL_MEMORY, 0, "emulated: no memory for one more micro-batch");
    s->base.step = step;
    s->base.microbatch = microbatch;
    s->base.loss = 0;
    s->base.no_input_grad = s->base.no_weight_grad = false;
    s->in_value = s->value = s->grad_value = 0;
    *out = &s->base;
    return PAWL_OK;
}

static void slot_return(struct stage *stage, struct stage_slot *slot) {
    struct emulated *m = emulated_of(stage);
    struct emulated_slot *s = slot_of(slot);
    drop(m, s);
    s->next_free = m->free_slots;
    m->free_slots = s;
}

/* ---- content ---- */

static uint64_t params_value(const struct emulated *m, const struct version *v) {
    uint64_t count = m->stage.param_count, n = count < HASHED_FLOATS ? count : HASHED_FLOATS;
    uint64_t ends[] = {v->number, hash64(v->params, n * sizeof(float)),
                       hash64(v->params + count - n, n * sizeof(float))};
    return hash64(ends, sizeof ends);
}

static uint64_t value_after(const struct emulated *m, const struct version *v, const struct stage_slot *slot,
                            uint64_t before) {
    uint64_t all[] = {m->config.seed,   m->stage.index, slot->step,
                      slot->microbatch, before,         params_value(m, v)};
    return hash64(all, sizeof all);
}

/* What came, if it is what must have come; nothing where nothing comes. */
static pawl_code receive(const struct emulated *m, const struct stage_slot *slot, const float *buffer,
                         struct emulated_message wanted, struct emulated_message *got, struct pawl_error *e) {
    *got = (struct emulated_message){0};
    if (buffer == NULL) return PAWL_OK;
    wanted.chunk = m->stage.index;
    wanted.step = slot->step;
    wanted.microbatch = slot->microbatch;
    return emulated_message_read(buffer, &wanted, got, e);
}

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

static pawl_code forward(struct stage *stage, const struct version *v, struct stage_slot *slot,
                         struct pawl_error *e) {
    struct emulated *m = emulated_of(stage);
    struct emulated_slot *s = slot_of(slot);
    int64_t begin_ns = time_of(m);
    struct emulated_message came;
    pawl_code code =
        receive(m, slot, slot->input, (struct emulated_message){.kind = EMULATED_ACTIVATION}, &came, e);
    drop(m, s);
    if (code == PAWL_OK) code = store(m, s, e); /* while it is computed at least */
    if (code != PAWL_OK) return code;
    s->in_value = came.value;
    s->value = value_after(m, v, slot, s->in_value);
    int64_t end_ns = spend(m, later(begin_ns, came.ready_ns), m->cost.forward * m->device->slow);
    if (slot->no_input_grad && slot->no_weight_grad) drop(m, s);
    if (slot->output == NULL) {
        slot->loss = 1 + (double)rng_unit((uint32_t)s->value);
        return PAWL_OK;
    }
    struct emulated_message made = {.kind = EMULATED_ACTIVATION,
                                    .chunk = m->stage.index + 1,
                                    .step = slot->step,
                                    .microbatch = slot->microbatch,
                                    .value = s->value,
                                    .ready_ns = end_ns + ns_of(m, m->cost.send_forward)};
    emulated_message_write(&made, slot->output);
    return PAWL_OK;
}

static pawl_code input_grad(struct stage *stage, const struct version *v, struct stage_slot *slot,
                            struct pawl_error *e) {
    struct emulated *m = emulated_of(stage);
    struct emulated_slot *s = slot_of(slot);
    int64_t begin_ns = time_of(m);
    struct emulated_message came;
    pawl_code code =
        receive(m, slot, slot->grad_in,
                (struct emulated_message){.kind = EMULATED_GRADIENT, .echo = s->value}, &came, e);
    if (code != PAWL_OK) return code;
    uint64_t before = slot->grad_in != NULL ? came.value : s->value;
    s->grad_value = value_after(m, v, slot, before ^ s->value << 1);
    int64_t end_ns = spend(m, later(begin_ns, came.ready_ns), m->cost.input_grad * m->device->slow);
    if (slot->no_weight_grad)
        drop(m, s);
    else
        shrink(m, s);
    if (slot->grad_out == NULL) return PAWL_OK;
    struct emulated_message made = {.kind = EMULATED_GRADIENT,
                                    .chunk = m->stage.index - 1,
                                    .step = slot->step,
                                    .microbatch = slot->microbatch,
                                    .value = s->grad_value,
                                    .echo = s->in_value,
                                    .ready_ns = end_ns + ns_of(m, m->cost.send_backward)};
    emulated_message_write(&made, slot->grad_out);
    return PAWL_OK;
}

/* Uniform around 0, a stream of its own for each value; the gradient of the whole model has a norm below 1/2,
 * so that it is not clipped unless somebody wants to see that. */
static void fill_gradient(struct emulated *m, uint64_t value) {
    float size = (float)(0.5 / sqrt((double)m->stage.param_count * m->stage.stage_count));
    for (uint64_t i = 0; i < m->stage.param_count; i += 4) {
        struct rng_block block = rng_philox(value, i, m->config.seed);
        for (uint64_t k = 0; k < 4 && i + k < m->stage.param_count; k++)
            m->gradient[i + k] = size * (2 * rng_unit(block.v[k]) - 1);
    }
}

static pawl_code weight_grad(struct stage *stage, const struct version *v, struct stage_slot *slot,
                             int64_t *sums, int32_t exponent_shift, struct pawl_error *e) {
    (void)e;
    struct emulated *m = emulated_of(stage);
    struct emulated_slot *s = slot_of(slot);
    int64_t begin_ns = time_of(m), *footer = sums + gradsum_words(stage->sums, stage->param_count);
    fill_gradient(m, value_after(m, v, slot, s->grad_value));
    gradsum_clear_empty(stage->sums, sums, stage->param_count);
    for (uint32_t t = 0; t < stage->tensor_count; t++) {
        const struct stage_tensor *tensor = &stage->tensors[t];
        void *sum = gradsum_at(stage->sums, sums, tensor->offset);
        uint32_t flags = 0;
        if (stage->sums == GRADSUM_FLOAT)
            gradsum_add_float(sum, m->gradient + tensor->offset, tensor->count);
        else
            flags = gradsum_add_part(sum, m->gradient + tensor->offset, tensor->count,
                                     v->exponents[t] - exponent_shift, stage_tensor_contributions(stage, t));
        gradsum_count(footer, flags);
    }
    if (slot->output == NULL) gradsum_add_loss(footer, slot->loss, stage->contributions);
    drop(m, s);
    spend(m, begin_ns, m->cost.weight_grad * m->device->slow);
    return PAWL_OK;
}

/* ---- the stage ---- */

static pawl_code init_params(struct stage *stage, uint64_t seed, float *params, struct pawl_error *e) {
    (void)e;
    for (uint32_t i = 0; i < stage->tensor_count; i++) {
        const struct stage_tensor *t = &stage->tensors[i];
        rng_normal(seed, hash64(t->name, strlen(t->name)), DEVIATION, params + t->offset, t->count);
    }
    return PAWL_OK;
}

static void free_tensors(struct stage_tensor *tensors, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) free(tensors[i].name);
    free(tensors);
}

static void close_stage(struct stage *stage) {
    struct emulated *m = emulated_of(stage);
    while (m->slots != NULL) {
        struct emulated_slot *next = m->slots->next;
        drop(m, m->slots);
        free(m->slots);
        m->slots = next;
    }
    m->device->used_bytes -= m->cost.state_bytes;
    if (m->gradient != NULL) mem_free(m->gradient, m->stage.param_count * sizeof(float));
    free_tensors(stage->tensors, stage->tensor_count);
    free(m);
}

static const struct stage_ops emulated_ops = {
    .close = close_stage,
    .init_params = init_params,
    .slot_take = slot_take,
    .slot_return = slot_return,
    .forward = forward,
    .input_grad = input_grad,
    .weight_grad = weight_grad,
    .pause = pause_for,
};

/* Appends the tensors of chunks [first, first + count). */
static pawl_code make_tensors(const struct emulated_config *config, uint32_t first, uint32_t chunks,
                              struct stage_tensor **out, uint32_t *count, struct pawl_error *e) {
    uint32_t each = config->parameters < TENSORS ? 1 : TENSORS;
    uint64_t offset = 0;
    *count = 0;
    *out = calloc((size_t)chunks * each, sizeof **out);
    for (uint32_t i = 0; *out != NULL && i < chunks * each; i++) {
        uint64_t decayed = each == 1 ? config->parameters : config->parameters - config->parameters / 4 - 1;
        struct stage_tensor *t = &(*out)[i];
        t->name = malloc(NAME_BYTES);
        if (t->name == NULL) break;
        snprintf(t->name, NAME_BYTES, "chunk.%u.%s", first + i / each, i % each == 0 ? "weight" : "bias");
        t->rank = 1;
        t->count = t->shape[0] = i % each == 0 ? decayed : config->parameters - decayed;
        t->offset = offset;
        t->flags = i % each == 0 ? STAGE_DECAY : 0;
        offset += t->count;
        ++*count;
    }
    if (*count == chunks * each) return PAWL_OK;
    free_tensors(*out, *count);
    *out = NULL;
    return error_set(e, PAWL_MEMORY, 0, "emulated: no memory for the list of tensors");
}

pawl_code emulated_list(const struct emulated_config *config, struct stage_tensor **tensors, uint32_t *count,
                        struct pawl_error *e) {
    return make_tensors(config, 0, config->stage_count, tensors, count, e);
}

pawl_code emulated_stage_open(const struct emulated_config *config, const struct emulated_cost *cost,
                              struct emulated_device *device, uint32_t index, struct stage **out,
                              struct pawl_error *e) {
    *out = NULL;
    if (index >= config->stage_count || config->contributions == 0 || config->parameters == 0)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "emulated: chunk %u of %u with %u parameters, %llu micro-batches", index,
                         config->stage_count, config->parameters, (unsigned long long)config->contributions);
    struct emulated *m = calloc(1, sizeof *m);
    if (m == NULL) return error_set(e, PAWL_MEMORY, 0, "emulated: no memory for chunk %u", index);
    m->config = *config;
    m->cost = *cost;
    m->device = device;
    m->stage = (struct stage){
        .ops = &emulated_ops,
        .index = index,
        .stage_count = config->stage_count,
        .param_count = config->parameters,
        .input_bytes = index == 0 ? 0 : EMULATED_MESSAGE_BYTES,
        .output_bytes = index + 1 == config->stage_count ? 0 : EMULATED_MESSAGE_BYTES,
        .contributions = config->contributions,
    };
    device->used_bytes += cost->state_bytes;
    m->gradient = mem_alloc(config->parameters * sizeof(float));
    pawl_code code = make_tensors(config, index, 1, &m->stage.tensors, &m->stage.tensor_count, e);
    if (code == PAWL_OK && m->gradient == NULL)
        code = error_set(e, PAWL_MEMORY, 0, "emulated: no memory for %u parameters", config->parameters);
    if (code != PAWL_OK) {
        close_stage(&m->stage);
        return code;
    }
    if (device->ns_per_unit > 0) clock_sleep_exactly();
    *out = &m->stage;
    return PAWL_OK;
}
