/* Implementation of model/adamw.h. */
#include "model/adamw.h"

#include <math.h>
#include <string.h>

#include "model/gradsum.h"
#include "model/kernels.h"

float adamw_lr(const struct adamw_config *c, uint64_t step) {
    if (step < c->warmup_steps) return (float)((double)c->lr * ((double)step + 1) / (double)c->warmup_steps);
    if (c->decay_steps == 0) return c->lr;
    if (step >= c->decay_steps) return c->lr_min;
    double progress = (double)(step - c->warmup_steps) / (double)(c->decay_steps - c->warmup_steps);
    double share = 0.5 * (1.0 + cos(3.14159265358979323846 * progress));
    return (float)((double)c->lr_min + share * ((double)c->lr - (double)c->lr_min));
}

static struct kernels_adamw constants_of(const struct adamw_config *c, const struct version *from,
                                         float clip) {
    double t = (double)from->updates + 1;
    float lr = adamw_lr(c, from->number);
    return (struct kernels_adamw){
        .beta1 = c->beta1,
        .beta2 = c->beta2,
        .eps = c->eps,
        .lr = lr,
        .weight_decay = c->weight_decay,
        .step_size = (float)((double)lr / (1.0 - pow((double)c->beta1, t))),
        .correction2_sqrt = (float)sqrt(1.0 - pow((double)c->beta2, t)),
        .clip = clip,
    };
}

void adamw_step(const struct stage *stage, const struct adamw_config *config, const struct version *from,
                const float *grad, float clip, struct version *to) {
    const struct kernels *k = kernels_get();
    for (uint32_t i = 0; i < stage->tensor_count; i++) {
        const struct stage_tensor *t = &stage->tensors[i];
        struct kernels_adamw c = constants_of(config, from, clip);
        if ((t->flags & STAGE_DECAY) == 0) c.weight_decay = 0;
        const float *const in[3] = {from->params + t->offset, from->exp_avg + t->offset,
                                    from->exp_avg_sq + t->offset};
        float *const out[3] = {to->params + t->offset, to->exp_avg + t->offset, to->exp_avg_sq + t->offset};
        uint32_t bits = k->adamw(&c, in, grad + t->offset, out, t->count);
        float peak;
        memcpy(&peak, &bits, sizeof peak);
        to->exponents[i] = gradsum_exponent(peak, stage_tensor_contributions(stage, i));
    }
    to->number = from->number + 1;
    to->updates = from->updates + 1;
}

void adamw_skip(const struct stage *stage, const struct version *from, struct version *to) {
    size_t bytes = (size_t)stage->param_count * sizeof(float);
    memcpy(to->params, from->params, bytes);
    memcpy(to->exp_avg, from->exp_avg, bytes);
    memcpy(to->exp_avg_sq, from->exp_avg_sq, bytes);
    memcpy(to->exponents, from->exponents, stage->tensor_count * sizeof *to->exponents);
    to->number = from->number + 1;
    to->updates = from->updates;
}

double adamw_norm2(const struct stage *stage, const float *grad) {
    const struct kernels *k = kernels_get();
    double sum = 0;
    for (uint32_t i = 0; i < stage->tensor_count; i++)
        if ((stage->tensors[i].flags & STAGE_SHARED_COPY) == 0)
            sum += k->norm2(grad + stage->tensors[i].offset, stage->tensors[i].count);
    return sum;
}
