/* GPT-2 in C over BLAS, cut into stages: Radford et al. 2019; pre-norm blocks, learned positions, GELU by
 * its tanh form, biases, head tied to the embedding or not. float32, OpenBLAS on one thread.
 *
 * Stage 0 holds the embeddings, the last stage the final norm and the head; layers are dealt as evenly as
 * possible, earlier stages getting the extra ones. Bits do not depend on the cut. Checked in
 * tests/unit/model_gpt_* against finite differences in double and a plain reference, and in tests/e2e
 * against PyTorch with transformers. */
#ifndef MODEL_GPT_H
#define MODEL_GPT_H

#include "model/data.h"
#include "model/stage.h"

struct gpt_config {
    uint32_t layers, heads, width, context, vocabulary;
    uint32_t batch; /* sequences in a micro-batch */
    bool tied;      /* head shares the token embedding */
    float dropout;  /* embedding, attention and residual; 0 for none */
    uint64_t seed;  /* initial weights and dropout */
};

/* Checks sizes: width divisible by heads, stages <= layers, nothing 0, products within 64 bits, matrix sides
 * within BLAS's 32.
 * Errors: SPEC, naming the field and the fix. */
pawl_code gpt_config_check(const struct gpt_config *config, uint32_t stage_count, struct pawl_error *e);
uint64_t gpt_param_count(const struct gpt_config *config);

/* A micro-batch in flight takes, in floats, about batch * context * width * (20 a layer + 2), and on the last
 * stage batch * context * vocabulary more.
 *
 * `data` is borrowed and may be null on stages between first and last. `contributions`: micro-batches of
 * the global batch (a step's sample n is step * contributions * batch + microbatch * batch + row). */
pawl_code gpt_stage_open(const struct gpt_config *config, uint32_t index, uint32_t stage_count,
                         const struct data *data, uint64_t contributions, struct stage **out,
                         struct pawl_error *e);

#endif
