/* Version buffers (model/stage.h): one region a version, so that a save or a peer can name it whole. */
#include <string.h>

#include "base/mem.h"
#include "model/gradsum.h"
#include "model/stage.h"

uint64_t stage_tensor_contributions(const struct stage *stage, uint32_t tensor) {
    bool twice = (stage->tensors[tensor].flags & (STAGE_TWICE | STAGE_SHARED)) != 0;
    return twice ? 2 * stage->contributions : stage->contributions;
}

pawl_code version_init(struct version *v, const struct stage *stage, struct pawl_error *e) {
    *v = (struct version){0};
    uint64_t section, sections, exponents, total;
    if (!mem_mul(stage->param_count, sizeof(float), &section) || !mem_add(section, MEM_ALIGN, &total) ||
        !mem_mul(section = mem_round_up(section, MEM_ALIGN), 3, &sections) ||
        !mem_mul(stage->tensor_count, sizeof(int32_t), &exponents) || !mem_add(sections, exponents, &total) ||
        total > SIZE_MAX)
        return error_set(e, PAWL_MEMORY, 0, "a version of %llu parameters exceeds the address space",
                         (unsigned long long)stage->param_count);
    uint8_t *region = mem_alloc((size_t)total);
    if (region == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for a version of stage %u: %llu bytes", stage->index,
                         (unsigned long long)total);
    v->region = region;
    v->bytes = (size_t)total;
    v->params = (float *)region;
    v->exp_avg = (float *)(region + section);
    v->exp_avg_sq = (float *)(region + 2 * section);
    v->exponents = (int32_t *)(region + sections);
    version_reset(v, stage);
    return PAWL_OK;
}

void version_reset(struct version *v, const struct stage *stage) {
    v->number = v->updates = 0;
    size_t bytes = (size_t)stage->param_count * sizeof(float);
    memset(v->params, 0, bytes);
    memset(v->exp_avg, 0, bytes);
    memset(v->exp_avg_sq, 0, bytes);
    for (uint32_t t = 0; t < stage->tensor_count; t++)
        v->exponents[t] = gradsum_exponent_first(stage_tensor_contributions(stage, t));
}

void version_close(struct version *v) {
    mem_free(v->region, v->bytes);
    *v = (struct version){0};
}
