/* What is computed: one stage of a model as a table of functions, so that the executor drives a GPT in C,
 * an emulated device or another framework in the same way.
 *
 * A stage describes its tensors; their values live outside, in version buffers (struct version) that are
 * written once and then only read. A micro-batch in flight is a `stage_slot` of the stage: it owns the
 * activations between forward and weight-gradient, the input buffer that an activation is received
 * into, and the buffers that outputs are sent from. Slots come from a pool that grows on demand and is
 * reused; slot memory is taken once.
 *
 *   forward        slot.input (or tokens)     -> slot.output (or the loss)
 *   input_grad     slot.grad_in (or the loss) -> slot.grad_out; keeps what weight_grad needs
 *   weight_grad    -> gradsum_add (of the stage's kind) into the caller's sums, tensor by tensor; where these
 *                     are empty (gradsum_empty) they are stored
 *
 * All functions are deterministic: the same version, micro-batch and shapes give the same bits, on any
 * worker of one kind of processor. Thread: one at a time per stage. */
#ifndef MODEL_STAGE_H
#define MODEL_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pawl/engine.h>

#include "base/error.h"
#include "model/gradsum.h"

enum stage_tensor_flags {
    STAGE_DECAY = 1,       /* weight decay applies (matrices and embeddings, not biases and norms) */
    STAGE_SHARED = 2,      /* the tied embedding: also on the other end stage; reduced over both */
    STAGE_SHARED_COPY = 4, /* this stage's is the copy (last stage): not saved, not in the norm */
    STAGE_TWICE = 8,       /* the tied embedding, in any cut: a micro-batch contributes to it twice */
};

#define STAGE_RANK_MAX PAWL_ENGINE_RANK_MAX

struct stage_tensor {
    char *name; /* Hugging Face GPT-2 name without "transformer." prefix rules applied by weights.h */
    uint32_t rank;
    uint64_t shape[STAGE_RANK_MAX];
    uint64_t offset; /* in floats, from the start of each of the three sections of a version */
    uint64_t count;  /* floats */
    uint32_t flags;
};

/* One version of a stage's state: three sections of stage.param_count floats, and an exponent a tensor. */
struct version {
    uint64_t number;  /* optimizer updates behind it */
    uint64_t updates; /* AdamW's t: updates not skipped */
    float *params;
    float *exp_avg;
    float *exp_avg_sq;
    int32_t *exponents; /* [tensor_count]: gradsum exponent for the gradients computed from it */
    size_t bytes;       /* of the one region that holds all of it (mem_alloc) */
    void *region;
};

struct stage_slot {      /* buffers are owned by the stage */
    float *input;        /* [input_bytes] null on the first stage */
    float *output;       /* [output_bytes] null on the last stage */
    float *grad_in;      /* [output_bytes] null on the last stage */
    float *grad_out;     /* [input_bytes] null on the first stage */
    double loss;         /* mean over the micro-batch's tokens; last stage, after forward */
    uint64_t step;       /* iteration, keys data and dropout */
    uint64_t microbatch; /* global: home * microbatches per pipeline + number */
    /* Set by whoever took it, before the forward: what will not be computed from it, and need not be stored
     * for. */
    bool no_input_grad, no_weight_grad;
    void *private_data;
};

struct stage {
    const struct stage_ops *ops;
    uint32_t index; /* 0 .. stage_count-1 */
    uint32_t stage_count;
    struct stage_tensor *tensors;
    uint32_t tensor_count;
    uint64_t param_count;
    size_t input_bytes;     /* what a micro-batch brings from the stage before; 0 on the first */
    size_t output_bytes;    /* what it takes to the next; 0 on the last */
    size_t slot_bytes;      /* of a micro-batch in flight; 0 before the first was */
    uint64_t contributions; /* micro-batches of the global batch */
    enum gradsum_kind sums; /* exact, unless whoever opened the stage says otherwise */
};

enum stage_pause { STAGE_PAUSE_REDUCE, STAGE_PAUSE_STEP };

struct stage_ops {
    void (*close)(struct stage *stage);
    /* Initial parameters, keyed by (seed, tensor name): the same for any cut into stages. */
    pawl_code (*init_params)(struct stage *stage, uint64_t seed, float *params, struct pawl_error *e);
    /* A free slot for (step, global micro-batch). Errors: MEMORY, IO (data). */
    pawl_code (*slot_take)(struct stage *stage, uint64_t step, uint64_t microbatch, struct stage_slot **out,
                           struct pawl_error *e);
    void (*slot_return)(struct stage *stage, struct stage_slot *slot);
    /* Errors of these three: USER, the code that is trained has failed; INTERNAL. */
    pawl_code (*forward)(struct stage *stage, const struct version *v, struct stage_slot *slot,
                         struct pawl_error *e);
    pawl_code (*input_grad)(struct stage *stage, const struct version *v, struct stage_slot *slot,
                            struct pawl_error *e);
    /* sums: [gradsum_words], then GRADSUM_FOOTER_WORDS words; also adds the slot's loss on the last stage. An
     * error leaves them as they were. */
    pawl_code (*weight_grad)(struct stage *stage, const struct version *v, struct stage_slot *slot,
                             int64_t *sums, int32_t exponent_shift, struct pawl_error *e);
    /* Null, or called when the chunk's gradients have been reduced and when its step has been made: the time
     * that an emulated device takes for it. It returns when that time has passed. */
    void (*pause)(struct stage *stage, enum stage_pause what);
};

static inline void stage_pause(struct stage *stage, enum stage_pause what) {
    if (stage->ops->pause != NULL) stage->ops->pause(stage, what);
}

/* Contributions to a tensor's sum in a step: micro-batches, twice that where a tensor is used twice. */
uint64_t stage_tensor_contributions(const struct stage *stage, uint32_t tensor);

/* Version buffers for a stage: zeroed, exponents as before any gradient is known; one region, page-aligned,
 * each section on a MEM_ALIGN boundary. */
pawl_code version_init(struct version *v, const struct stage *stage, struct pawl_error *e);
void version_reset(struct version *v, const struct stage *stage); /* a used buffer, as new */
void version_close(struct version *v);

#endif
