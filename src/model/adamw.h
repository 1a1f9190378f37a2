/* AdamW from version k to version k+1, out of place: k stays as it is, so a step is undone by dropping
 * k+1. Update rule and defaults: Loshchilov and Hutter, ICLR'19, as torch.optim.AdamW computes it.
 * Tested in tests/unit/model_adamw_test.c against a plain double-precision reference. */
#ifndef MODEL_ADAMW_H
#define MODEL_ADAMW_H

#include "model/stage.h"

struct adamw_config {
    float lr, beta1, beta2, eps, weight_decay;
    uint64_t warmup_steps; /* linear from 0: update n = 0, 1, ... takes lr * (n + 1) / warmup_steps */
    uint64_t decay_steps;  /* cosine from the end of warm-up down to lr_min at this step; 0: constant */
    float lr_min;
};

/* Learning rate used by the update that makes version `step`+1 from version `step`. */
float adamw_lr(const struct adamw_config *config, uint64_t step);

/* to = update(from, grad * clip). Also writes to's exponents from the largest |grad| a tensor (before
 * clipping), number = from.number + 1, updates = from.updates + 1. */
/* Per element, float32, in this order (the divisions are divisions):
 *   g = grad * clip
 *   p = p * (1 - lr * weight_decay)                 where STAGE_DECAY
 *   m = m + (g - m) * (1 - beta1)
 *   v = v * beta2 + g * g * (1 - beta2)
 *   p = p - m / (sqrt(v) / sqrt(1 - beta2^t) + eps) * (lr / (1 - beta1^t)),  t = from.updates + 1
 * lr is adamw_lr(from.number). The bias corrections are computed in double and rounded once. */
void adamw_step(const struct stage *stage, const struct adamw_config *config, const struct version *from,
                const float *grad, float clip, struct version *to);
/* A step without update (non-finite gradient): to = from but number + 1. */
void adamw_skip(const struct stage *stage, const struct version *from, struct version *to);

/* Squared norm of the tensors this stage owns (not STAGE_SHARED_COPY), in double, in a fixed order. */
double adamw_norm2(const struct stage *stage, const float *grad);

#endif
