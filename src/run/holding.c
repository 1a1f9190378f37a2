/* Implementation of run/holding.h. */
#include "run/holding.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"

/* Version buffers besides one a save: the base, the tentative one, and one that a peer is being sent. */
#define VERSIONS_BESIDE_SAVES 3u

size_t holding_sums_bytes(const struct holding *h) {
    return (gradsum_words(h->stage->sums, h->stage->param_count) + GRADSUM_FOOTER_WORDS) * sizeof(int64_t);
}

static size_t grad_bytes(const struct holding *h) { return h->stage->param_count * sizeof(float); }

pawl_code holding_new(struct stage *stage, uint32_t saves, struct peers *peers, struct holding **out,
                      struct pawl_error *e) {
    struct holding *h = calloc(1, sizeof *h);
    if (h == NULL) {
        stage->ops->close(stage);
        return error_set(e, PAWL_MEMORY, 0, "no memory for a chunk");
    }
    h->stage = stage;
    h->work = COORD_NO_WORK;
    h->total = stage->contributions;
    pawl_code code = versions_init(&h->versions, stage, saves + VERSIONS_BESIDE_SAVES, e);
    h->sums = mem_alloc(holding_sums_bytes(h));
    h->grad = mem_alloc(grad_bytes(h));
    h->bits = calloc((size_t)(h->total + 7) / 8, 1);
    if (code == PAWL_OK && (h->sums == NULL || h->grad == NULL || h->bits == NULL))
        code = error_set(e, PAWL_MEMORY, 0, "no memory for the sums of chunk %u: %llu parameters",
                         stage->index, (unsigned long long)stage->param_count);
    if (code == PAWL_OK) {
        reduce_init(&h->reduce, stage, peers, h->sums, h->grad);
        *out = h;
    } else {
        holding_free(h);
    }
    return code;
}

void holding_free(struct holding *h) {
    if (h == NULL) return;
    reduce_close(&h->reduce);
    versions_close(&h->versions);
    mem_free(h->sums, holding_sums_bytes(h));
    mem_free(h->grad, grad_bytes(h));
    free(h->bits);
    h->stage->ops->close(h->stage);
    free(h);
}

void holding_drop_tentative(struct holding *h) {
    versions_drop(h->tentative);
    h->tentative = NULL;
}

void holding_drop_work(struct holding *h) { h->work = COORD_NO_WORK; }

void holding_forget(struct holding *h) {
    holding_drop_tentative(h);
    holding_drop_work(h);
    versions_drop(h->base);
    h->base = NULL;
    h->has_grad = false;
}

void holding_begin(struct holding *h, int32_t shift) {
    h->reduce_due = h->step_due = false;
    measure_iteration(&h->measure);
    if (h->keeps_work) {
        h->keeps_work = false;
        return;
    }
    memset(h->sums + gradsum_words(h->stage->sums, h->stage->param_count), 0,
           GRADSUM_FOOTER_WORDS * sizeof *h->sums); /* nothing counts: there are no sums */
    memset(h->bits, 0, (size_t)(h->total + 7) / 8);
    h->work = holding_current(h)->number;
    h->work_shift = shift;
}

pawl_code holding_enter(struct holding *h, uint64_t microbatch, struct pawl_error *e) {
    uint8_t *byte = &h->bits[microbatch / 8], bit = (uint8_t)(1u << (microbatch % 8));
    if (microbatch >= h->total || (*byte & bit) != 0)
        return error_set(e, PAWL_INTERNAL, 0, "second contribution of micro-batch %llu to chunk %u",
                         (unsigned long long)microbatch, holding_chunk(h));
    *byte = (uint8_t)(*byte | bit);
    return PAWL_OK;
}

void holding_adopt(struct holding *h, struct version *version) {
    versions_drop(h->base);
    h->base = version;
}

static void take_step(struct holding *h, const struct adamw_config *adamw, float clip, struct version *next) {
    int64_t begin = clock_now_ns();
    adamw_step(h->stage, adamw, h->base, h->grad, clip, next);
    stage_pause(h->stage, STAGE_PAUSE_STEP);
    measure_add(&h->measure, MEASURE_STEP, clock_now_ns() - begin);
}

pawl_code holding_step(struct holding *h, const struct adamw_config *adamw, struct pawl_error *e) {
    pawl_code code = versions_take(&h->versions, false, &h->tentative, e);
    if (code == PAWL_OK && h->tentative != NULL) {
        take_step(h, adamw, 1.0f, h->tentative);
        fault_arrive(FAULT_STEP_TENTATIVE);
    }
    return code;
}

pawl_code holding_settle(struct holding *h, const struct adamw_config *adamw, enum coord_verdict verdict,
                         float clip, struct pawl_error *e) {
    struct version *next = h->tentative;
    if (!h->has_grad || (next != NULL && verdict != COORD_ACCEPT))
        return error_set(e, PAWL_INTERNAL, 0, "chunk %u: iteration %llu was decided %s", holding_chunk(h),
                         (unsigned long long)h->base->number,
                         h->has_grad ? "otherwise than a step was taken" : "without its gradient");
    if (next == NULL) {
        pawl_code code = versions_take(&h->versions, true, &next, e);
        if (code != PAWL_OK) return code;
        if (verdict == COORD_SKIP)
            adamw_skip(h->stage, h->base, next);
        else
            take_step(h, adamw, verdict == COORD_CLIP ? clip : 1.0f, next);
    }
    fault_arrive(FAULT_STEP_DECIDED);
    h->tentative = NULL;
    h->has_grad = false;
    holding_adopt(h, next);
    return PAWL_OK;
}

pawl_code holding_reduced(struct holding *h, struct pawl_error *e) {
    const int64_t *footer = h->reduce.footer;
    uint64_t count = (uint64_t)footer[GRADSUM_COUNT], contributions = h->stage->contributions;
    if (count % contributions != 0 || count / contributions < h->stage->tensor_count)
        return error_set(
            e, PAWL_INTERNAL, 0, "%llu gradient contributions of %u tensors and %llu micro-batches",
            (unsigned long long)count, h->stage->tensor_count, (unsigned long long)contributions);
    h->report = (struct coord_report){.iteration = h->base->number,
                                      .norm2 = adamw_norm2(h->stage, h->grad),
                                      .loss = footer[GRADSUM_LOSS],
                                      .nonfinite = (uint64_t)footer[GRADSUM_NONFINITE],
                                      .overflow = (uint64_t)footer[GRADSUM_OVERFLOW]};
    h->has_grad = true;
    return PAWL_OK;
}
