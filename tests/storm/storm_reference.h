/* The undisturbed run, computed plainly: one stage after the other in one thread, no workers, no messages, no
 * tentative steps. The storm compares every worker's versions with it, bit for bit. */
#ifndef STORM_REFERENCE_H
#define STORM_REFERENCE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/adamw.h"
#include "model/gradsum.h"
#include "run/spec.h"

struct reference {
    const struct spec *spec;
    struct data *data;
    struct stage **stages;
    struct version *versions; /* [stages * (steps + 1)], stage-major */
    int64_t **sums;
    float **grads;
};

static struct version *reference_version(const struct reference *r, uint32_t stage, uint64_t number) {
    return &r->versions[stage * (r->spec->run.steps + 1) + number];
}

static void reference_microbatch(struct reference *r, uint64_t step, uint64_t microbatch, int32_t shift) {
    uint32_t count = r->spec->parallel.stages;
    struct stage_slot **slots = calloc(count, sizeof *slots);
    for (uint32_t s = 0; s < count; s++) {
        struct stage *stage = r->stages[s];
        assert_int_equal(stage->ops->slot_take(stage, step, microbatch, &slots[s], NULL), PAWL_OK);
        if (s > 0) memcpy(slots[s]->input, slots[s - 1]->output, stage->input_bytes);
        assert_int_equal(stage->ops->forward(stage, reference_version(r, s, step), slots[s], NULL), PAWL_OK);
    }
    for (uint32_t s = count; s-- > 0;) {
        struct stage *stage = r->stages[s];
        if (s + 1 < count) memcpy(slots[s]->grad_in, slots[s + 1]->grad_out, stage->output_bytes);
        assert_int_equal(stage->ops->input_grad(stage, reference_version(r, s, step), slots[s], NULL),
                         PAWL_OK);
        assert_int_equal(
            stage->ops->weight_grad(stage, reference_version(r, s, step), slots[s], r->sums[s], shift, NULL),
            PAWL_OK);
    }
    for (uint32_t s = 0; s < count; s++) r->stages[s]->ops->slot_return(r->stages[s], slots[s]);
    free(slots);
}

/* Both ends' contributions to the tied embedding belong together. */
static void reference_join_shared(struct reference *r) {
    uint32_t last = r->spec->parallel.stages - 1;
    if (last == 0) return;
    const struct stage_tensor *ends[2] = {NULL, NULL};
    for (int end = 0; end < 2; end++) {
        const struct stage *stage = r->stages[end == 0 ? 0 : last];
        for (uint32_t t = 0; t < stage->tensor_count; t++)
            if (stage->tensors[t].flags & STAGE_SHARED) ends[end] = &stage->tensors[t];
    }
    if (ends[0] == NULL) return;
    gradsum_merge(r->sums[0] + ends[0]->offset, r->sums[last] + ends[1]->offset, ends[0]->count);
    memcpy(r->sums[last] + ends[1]->offset, r->sums[0] + ends[0]->offset, ends[0]->count * sizeof(int64_t));
}

static void reference_gradients(struct reference *r, uint64_t step, int32_t shift) {
    for (uint32_t s = 0; s < r->spec->parallel.stages; s++)
        memset(r->sums[s], 0, (r->stages[s]->param_count + GRADSUM_FOOTER_WORDS) * sizeof(int64_t));
    uint64_t contributions = spec_contributions(r->spec);
    for (uint64_t m = contributions; m-- > 0;)
        reference_microbatch(r, step, m, shift); /* any order will do */
    reference_join_shared(r);
    for (uint32_t s = 0; s < r->spec->parallel.stages; s++)
        for (uint32_t t = 0; t < r->stages[s]->tensor_count; t++) {
            const struct stage_tensor *tensor = &r->stages[s]->tensors[t];
            int32_t exponent = reference_version(r, s, step)->exponents[t] - shift;
            gradsum_mean(r->sums[s] + tensor->offset, r->grads[s] + tensor->offset, tensor->count, exponent,
                         contributions);
        }
}

static uint64_t reference_footer(const struct reference *r, enum gradsum_footer word) {
    uint64_t sum = 0;
    for (uint32_t s = 0; s < r->spec->parallel.stages; s++)
        sum += (uint64_t)r->sums[s][r->stages[s]->param_count + word];
    return sum;
}

static void reference_step(struct reference *r, uint64_t step) {
    struct adamw_config adamw = spec_adamw(r->spec);
    int32_t shift = 0;
    reference_gradients(r, step, shift);
    while (reference_footer(r, GRADSUM_NONFINITE) == 0 && reference_footer(r, GRADSUM_OVERFLOW) > 0)
        reference_gradients(r, step, shift += 16);
    double norm2 = 0, limit = r->spec->optimizer.clip_norm;
    for (uint32_t s = 0; s < r->spec->parallel.stages; s++) norm2 += adamw_norm2(r->stages[s], r->grads[s]);
    double norm = sqrt(norm2);
    float clip = limit > 0 && norm > limit ? (float)(limit / (norm + 1e-6)) : 1.0f;
    for (uint32_t s = 0; s < r->spec->parallel.stages; s++) {
        struct version *from = reference_version(r, s, step), *to = reference_version(r, s, step + 1);
        if (reference_footer(r, GRADSUM_NONFINITE) > 0)
            adamw_skip(r->stages[s], from, to);
        else
            adamw_step(r->stages[s], &adamw, from, r->grads[s], clip, to);
    }
}

static void reference_stage(struct reference *r, uint32_t s) {
    const struct spec *spec = r->spec;
    struct gpt_config gpt = spec_gpt(spec);
    assert_int_equal(gpt_stage_open(&gpt, s, spec->parallel.stages, r->data, spec_contributions(spec),
                                    &r->stages[s], NULL),
                     PAWL_OK);
    struct stage *stage = r->stages[s];
    for (uint64_t v = 0; v <= spec->run.steps; v++)
        assert_int_equal(version_init(reference_version(r, s, v), stage, NULL), PAWL_OK);
    struct version *first = reference_version(r, s, 0);
    assert_int_equal(stage->ops->init_params(stage, spec->run.seed, first->params, NULL), PAWL_OK);
    r->sums[s] = mem_alloc((stage->param_count + GRADSUM_FOOTER_WORDS) * sizeof(int64_t));
    r->grads[s] = mem_alloc(stage->param_count * sizeof(float));
}

static void reference_make(struct reference *r, const struct spec *spec) {
    *r = (struct reference){.spec = spec};
    uint32_t count = spec->parallel.stages;
    struct gpt_config gpt = spec_gpt(spec);
    assert_int_equal(data_open(spec->data.path, spec->data.format, gpt.vocabulary, gpt.context,
                               spec->run.seed, &r->data, NULL),
                     PAWL_OK);
    r->stages = calloc(count, sizeof(struct stage *));
    r->sums = calloc(count, sizeof(int64_t *));
    r->grads = calloc(count, sizeof(float *));
    r->versions = calloc(count * (spec->run.steps + 1), sizeof(struct version));
    for (uint32_t s = 0; s < count; s++) reference_stage(r, s);
    for (uint64_t step = 0; step < spec->run.steps; step++) reference_step(r, step);
}

static void reference_close(struct reference *r) {
    for (uint32_t s = 0; s < r->spec->parallel.stages; s++) {
        for (uint64_t v = 0; v <= r->spec->run.steps; v++) version_close(reference_version(r, s, v));
        mem_free(r->sums[s], (r->stages[s]->param_count + GRADSUM_FOOTER_WORDS) * sizeof(int64_t));
        mem_free(r->grads[s], r->stages[s]->param_count * sizeof(float));
        r->stages[s]->ops->close(r->stages[s]);
    }
    data_close(r->data);
    free(r->stages);
    free(r->sums);
    free(r->grads);
    free(r->versions);
}

#endif
