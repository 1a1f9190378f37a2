/* A profile in memory: its fields and their ranges, a uniform one, the end of one. Reading is in
 * profile_read.c, writing in profile_write.c, the built-in ones in profile_builtin.c. Tested in
 * tests/unit/plan_profile_test.c. */
#include "plan/profile.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/conf.h"
#include "ir/ir.h"

#define STAGE(field, type)                                                                                   \
    { #field, type, offsetof(struct pawl_stage_cost, field) }
#define WORKER(field, type)                                                                                  \
    { #field, type, offsetof(struct pawl_worker_cost, field) }
#define TOP(field, type)                                                                                     \
    { #field, type, offsetof(struct pawl_profile, field) }

const struct profile_field profile_stage_fields[] = {
    STAGE(forward, PROFILE_COST),
    STAGE(input_grad, PROFILE_COST),
    STAGE(weight_grad, PROFILE_COST),
    STAGE(reduce, PROFILE_TIME),
    STAGE(step, PROFILE_TIME),
    STAGE(send_forward, PROFILE_TIME),
    STAGE(send_backward, PROFILE_TIME),
    STAGE(state_bytes, PROFILE_BYTES),
    STAGE(activation_bytes, PROFILE_BYTES),
    STAGE(weight_grad_bytes, PROFILE_BYTES),
    STAGE(input_bytes, PROFILE_BYTES),
    STAGE(layers, PROFILE_COUNT),
};
const struct profile_field profile_worker_fields[] = {
    WORKER(pipeline, PROFILE_COUNT),
    WORKER(stage, PROFILE_COUNT),
    WORKER(slow, PROFILE_FACTOR),
    WORKER(memory_bytes, PROFILE_BYTES),
};
const struct profile_field profile_top_fields[] = {
    TOP(unit_s, PROFILE_TIME),
    TOP(memory_bytes, PROFILE_BYTES),
    TOP(link_bps, PROFILE_RATE),
    TOP(host_bps, PROFILE_RATE),
};
static_assert(sizeof profile_stage_fields / sizeof profile_stage_fields[0] == PROFILE_STAGE_FIELDS, "table");
static_assert(sizeof profile_worker_fields / sizeof profile_worker_fields[0] == PROFILE_WORKER_FIELDS,
              "table");
static_assert(sizeof profile_top_fields / sizeof profile_top_fields[0] == PROFILE_TOP_FIELDS, "table");

/* ---- ranges ---- */

static bool bad(struct profile_problem *p, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool bad(struct profile_problem *p, const char *field, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(p->text, sizeof p->text, format, args);
    va_end(args);
    p->field = field;
    return false;
}

static bool in_range(const struct profile_field *field, double value, double low, double high, bool zero,
                     struct profile_problem *p) {
    if ((zero && value == 0) || (value >= low && value <= high)) return true;
    if (zero) return bad(p, field->name, "is %g: give 0 or a number from %g to %g", value, low, high);
    return bad(p, field->name, "is %g: give a number from %g to %g", value, low, high);
}

static bool field_good(const struct profile_field *field, const void *base, struct profile_problem *p) {
    double real = 0;
    uint64_t whole = 0;
    const char *at = (const char *)base + field->offset;
    switch (field->type) {
    case PROFILE_BYTES:
        memcpy(&whole, at, sizeof whole);
        if (whole <= PROFILE_BYTES_MAX) return true;
        return bad(p, field->name, "is %" PRIu64 ": give at most 2^53 bytes", whole);
    case PROFILE_COUNT:
        return true;
    default:
        memcpy(&real, at, sizeof real);
    }
    if (field->type == PROFILE_FACTOR)
        return real == 0 || in_range(field, real, PROFILE_SLOW_MIN, PROFILE_SLOW_MAX, false, p);
    if (field->type == PROFILE_RATE) return in_range(field, real, 1, PROFILE_RATE_MAX, true, p);
    return in_range(field, real, PROFILE_TIME_MIN, PROFILE_TIME_MAX, field->type == PROFILE_TIME, p);
}

static bool fields_good(const struct profile_field *fields, uint32_t count, const void *base,
                        struct profile_problem *p) {
    for (uint32_t i = 0; i < count; i++)
        if (!field_good(&fields[i], base, p)) return false;
    return true;
}

bool profile_stage_good(const struct pawl_stage_cost *s, struct profile_problem *p) {
    if (!fields_good(profile_stage_fields, PROFILE_STAGE_FIELDS, s, p)) return false;
    if (s->weight_grad_bytes > s->activation_bytes)
        return bad(p, "weight_grad_bytes",
                   "is %" PRIu64 ", more than activation_bytes, %" PRIu64 ", of which it is a part",
                   s->weight_grad_bytes, s->activation_bytes);
    if (s->input_bytes > s->activation_bytes)
        return bad(p, "input_bytes",
                   "is %" PRIu64 ", more than activation_bytes, %" PRIu64
                   ": nothing would be won by dropping what can be computed again",
                   s->input_bytes, s->activation_bytes);
    return true;
}

bool profile_worker_good(const struct pawl_profile *profile, uint32_t index, struct profile_problem *p) {
    const struct pawl_worker_cost *w = &profile->worker[index];
    if (!fields_good(profile_worker_fields, PROFILE_WORKER_FIELDS, w, p)) return false;
    if (w->stage >= profile->stages)
        return bad(p, "stage", "is %u, but there are %u stages, from 0", w->stage, profile->stages);
    if (w->pipeline >= IR_PIPELINES_MAX)
        return bad(p, "pipeline", "is %u: give at most %u", w->pipeline, IR_PIPELINES_MAX - 1);
    for (uint32_t i = 0; i < index; i++)
        if (profile->worker[i].pipeline == w->pipeline && profile->worker[i].stage == w->stage)
            return bad(p, "pipeline", "and stage name worker %u:%u, which entry %u did already", w->pipeline,
                       w->stage, i);
    return true;
}

static bool text_good(const char *field, const char *text, struct profile_problem *p) {
    if (text == NULL) return bad(p, field, "is missing");
    size_t size = strlen(text);
    if (size > PROFILE_TEXT_MAX)
        return bad(p, field, "has %zu bytes: give at most %u", size, PROFILE_TEXT_MAX);
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) return bad(p, field, "has a control character");
    if (conf_utf8_bad(text, size) != size) return bad(p, field, "is not UTF-8");
    return true;
}

bool profile_top_good(const struct pawl_profile *profile, struct profile_problem *p) {
    if (!text_good("name", profile->name, p) || !text_good("unit", profile->unit, p)) return false;
    return fields_good(profile_top_fields, PROFILE_TOP_FIELDS, profile, p);
}

pawl_code pawl_profile_check(const struct pawl_profile *profile, struct pawl_error *e) {
    struct profile_problem p = {0};
    if (profile->stages == 0 || profile->stages > IR_STAGES_MAX || profile->stage == NULL)
        return error_set(e, PAWL_ARGUMENT, 0, "profile: it has %u stages: give 1 to %u", profile->stages,
                         IR_STAGES_MAX);
    if (profile->worker_count > PROFILE_WORKERS_MAX || (profile->worker_count > 0 && profile->worker == NULL))
        return error_set(e, PAWL_ARGUMENT, 0, "profile: it has %u workers: give at most %u",
                         profile->worker_count, PROFILE_WORKERS_MAX);
    if (!profile_top_good(profile, &p))
        return error_set(e, PAWL_ARGUMENT, 0, "profile: %s %s", p.field, p.text);
    for (uint32_t i = 0; i < profile->stages; i++)
        if (!profile_stage_good(&profile->stage[i], &p))
            return error_set(e, PAWL_ARGUMENT, 0, "profile %s: stage %u: %s %s", profile->name, i, p.field,
                             p.text);
    for (uint32_t i = 0; i < profile->worker_count; i++)
        if (!profile_worker_good(profile, i, &p))
            return error_set(e, PAWL_ARGUMENT, 0, "profile %s: workers entry %u: %s %s", profile->name, i,
                             p.field, p.text);
    return PAWL_OK;
}

/* ---- life ---- */

void pawl_profile_free(struct pawl_profile *profile) {
    if (profile == NULL) return;
    free(profile->name);
    free(profile->unit);
    free(profile->stage);
    free(profile->worker);
    free(profile);
}

pawl_code profile_new(const char *name, const char *unit, uint32_t stages, struct pawl_profile **out,
                      struct pawl_error *e) {
    if (stages == 0 || stages > IR_STAGES_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "profile %s: %u stages: give 1 to %u", name, stages,
                         IR_STAGES_MAX);
    struct pawl_profile *p = calloc(1, sizeof *p);
    if (p != NULL) {
        p->name = strdup(name);
        p->unit = strdup(unit);
        p->stages = stages;
        p->stage = calloc(stages, sizeof *p->stage);
    }
    if (p == NULL || p->name == NULL || p->unit == NULL || p->stage == NULL) {
        pawl_profile_free(p);
        return error_set(e, PAWL_MEMORY, 0, "no memory for a profile of %u stages", stages);
    }
    *out = p;
    return PAWL_OK;
}

pawl_code pawl_profile_uniform(uint32_t stages, double forward, double input_grad, double weight_grad,
                               double comm, struct pawl_profile **out, struct pawl_error *e) {
    struct pawl_profile *p = NULL;
    pawl_code code = profile_new("uniform", "", stages, &p, e);
    if (code != PAWL_OK) return code;
    for (uint32_t i = 0; i < stages; i++) {
        p->stage[i].forward = forward;
        p->stage[i].input_grad = input_grad;
        p->stage[i].weight_grad = weight_grad;
        p->stage[i].send_forward = i + 1 < stages ? comm : 0;
        p->stage[i].send_backward = i > 0 ? comm : 0;
    }
    code = pawl_profile_check(p, e);
    if (code == PAWL_OK)
        *out = p;
    else
        pawl_profile_free(p);
    return code;
}
