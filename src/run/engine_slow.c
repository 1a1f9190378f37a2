/* Implementation of run/engine_slow.h. */
#include "run/engine_slow.h"

#include <stdlib.h>

#include "base/clock.h"

struct face {
    struct stage stage; /* what `inner` says of itself */
    struct stage *inner;
    const double *factor;
};

static struct face *face_of(struct stage *stage) { return (struct face *)stage; }

static int64_t begin_of(const struct face *f) { return *f->factor > 1 ? clock_now_ns() : 0; }

static void prolong(const struct face *f, int64_t begin_ns) {
    if (begin_ns == 0) return;
    int64_t took_ns = clock_now_ns() - begin_ns;
    clock_sleep_until(begin_ns + (int64_t)((double)took_ns * *f->factor));
}

static void close_face(struct stage *stage) {
    struct face *f = face_of(stage);
    f->inner->ops->close(f->inner);
    free(f);
}

static pawl_code init_params(struct stage *stage, uint64_t seed, float *params, struct pawl_error *e) {
    struct stage *inner = face_of(stage)->inner;
    return inner->ops->init_params(inner, seed, params, e);
}

static pawl_code slot_take(struct stage *stage, uint64_t step, uint64_t microbatch, struct stage_slot **out,
                           struct pawl_error *e) {
    struct stage *inner = face_of(stage)->inner;
    pawl_code code = inner->ops->slot_take(inner, step, microbatch, out, e);
    stage->slot_bytes = inner->slot_bytes; /* known from the first slot on */
    return code;
}

static void slot_return(struct stage *stage, struct stage_slot *slot) {
    struct stage *inner = face_of(stage)->inner;
    inner->ops->slot_return(inner, slot);
}

static pawl_code forward(struct stage *stage, const struct version *v, struct stage_slot *slot,
                         struct pawl_error *e) {
    struct face *f = face_of(stage);
    int64_t begin_ns = begin_of(f);
    pawl_code code = f->inner->ops->forward(f->inner, v, slot, e);
    stage->slot_bytes = f->inner->slot_bytes; /* what is kept is known after a forward */
    prolong(f, begin_ns);
    return code;
}

static pawl_code input_grad(struct stage *stage, const struct version *v, struct stage_slot *slot,
                            struct pawl_error *e) {
    struct face *f = face_of(stage);
    int64_t begin_ns = begin_of(f);
    pawl_code code = f->inner->ops->input_grad(f->inner, v, slot, e);
    prolong(f, begin_ns);
    return code;
}

static pawl_code weight_grad(struct stage *stage, const struct version *v, struct stage_slot *slot,
                             int64_t *sums, int32_t exponent_shift, struct pawl_error *e) {
    struct face *f = face_of(stage);
    int64_t begin_ns = begin_of(f);
    pawl_code code = f->inner->ops->weight_grad(f->inner, v, slot, sums, exponent_shift, e);
    prolong(f, begin_ns);
    return code;
}

static void pause_for(struct stage *stage, enum stage_pause what) {
    struct face *f = face_of(stage);
    int64_t begin_ns = begin_of(f);
    stage_pause(f->inner, what);
    prolong(f, begin_ns);
}

static const struct stage_ops face_ops = {
    .close = close_face,
    .init_params = init_params,
    .slot_take = slot_take,
    .slot_return = slot_return,
    .forward = forward,
    .input_grad = input_grad,
    .weight_grad = weight_grad,
    .pause = pause_for,
};

pawl_code engine_slow_face(struct stage *inner, const double *factor, struct stage **out,
                           struct pawl_error *e) {
    struct face *f = malloc(sizeof *f);
    *out = NULL;
    if (f == NULL) {
        inner->ops->close(inner);
        return error_set(e, PAWL_MEMORY, 0, "no memory for a stage");
    }
    *f = (struct face){.stage = *inner, .inner = inner, .factor = factor};
    f->stage.ops = &face_ops;
    *out = &f->stage;
    return PAWL_OK;
}
