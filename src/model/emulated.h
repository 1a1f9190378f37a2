/* The emulated device: a stage that takes the time and the memory that a profile says, and computes next to
 * nothing, so that dozens of workers train in real time on two cores.
 *
 * Time. An operation begins when it is called, or, for a message with a send time, when that has passed; it
 * returns `cost` later by the monotonic clock, having slept. Nothing spins, and with ns_per_unit 0 nothing
 * asks for the time. A send time is kept by the receiver: the message says when it is there, by a clock that
 * all workers of one machine share. Compute and step times grow by the worker's `slow`; reduce and send times
 * do not, as in the simulator.
 *
 * Content. What goes between stages says what it is: step, micro-batch, chunk, which way, and a number made
 * from the seed, the parameters and all that came before. A stage refuses what is not what its neighbour must
 * have made for it; a gradient must bring back the number of the activation it answers. Gradients of the
 * parameters follow from these numbers, so the final weights of a run prove that every contribution came
 * once, from the right version, along the right route. What is wrong fails the operation: INTERNAL.
 *
 * Memory. Micro-batches are counted from their forward to their weight-gradient (or the slot's return), in
 * bytes beside the state of the worker's stages if the profile knows them; beyond the limit is as above.
 * Thread: one a device. Tested in tests/unit/model_emulated_test.c. */
#ifndef MODEL_EMULATED_H
#define MODEL_EMULATED_H

#include "model/stage.h"

#define EMULATED_MESSAGE_BYTES 256u /* of an activation, of a gradient */

struct emulated_config { /* the same for all stages of a run */
    uint64_t seed;
    uint32_t stage_count;
    uint32_t parameters; /* of a chunk */
    uint64_t contributions;
};

struct emulated_cost { /* of one stage, in units; bytes as in struct pawl_stage_cost */
    double forward, input_grad, weight_grad;
    double reduce, step;
    double send_forward, send_backward;
    uint64_t state_bytes, activation_bytes, weight_grad_bytes;
};

struct emulated_device { /* of one worker, shared by its stages; outlives them */
    double ns_per_unit;  /* 0: nothing takes time */
    double slow;         /* factor on compute times */
    uint64_t memory_bytes;
    uint32_t microbatches_max; /* of both, 0: no limit */
    uint64_t used_bytes;
    uint32_t used_microbatches, peak_microbatches; /* stored now, and at most so far */
};

/* Errors: ARGUMENT, MEMORY. */
pawl_code emulated_stage_open(const struct emulated_config *config, const struct emulated_cost *cost,
                              struct emulated_device *device, uint32_t index, struct stage **out,
                              struct pawl_error *e);
/* Tensors of the whole model, chunk by chunk; to be freed with weights_list_free. */
pawl_code emulated_list(const struct emulated_config *config, struct stage_tensor **tensors, uint32_t *count,
                        struct pawl_error *e);

#endif
