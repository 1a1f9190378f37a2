/* Computing a pipeline's stages with code of your own under pawl's executor: plans, failures, re-joins, saves
 * and the exact sums are pawl's; forward and gradients are the engine's. Python's pawl.pipeline is one.
 *
 * A worker process registers an engine before pawl_train_worker (pawl/train.h). The executor calls it from
 * one thread, the one that called pawl_train_worker, one call at a time. Of a stage pawl holds the parameters
 * (float32, in versions that are written once and then only read), the optimizer's state and the sums; the
 * engine holds what a micro-batch needs between its forward and its weight-gradient, under the call's `slot`.
 *
 *   forward        input  -> output (or *loss, a mean over the micro-batch, on the last stage)
 *   input_grad     grad_in (or the loss) -> grad_out, by the parameters that the forward had
 *   weight_grad    -> grads: where each tensor's gradient is, float32, dense, in the order of the layout
 *
 * The same parameters, step, micro-batch and input must give the same bits in every process and in any order
 * of calls: what is random is keyed by (seed, stage, step, micro-batch). Nothing else is kept between calls.
 *
 * A function returns PAWL_OK, or fills *e and returns its code: the run then ends as after an error of the
 * user's (it is not retried as a lost machine would be). Texts are copied. Tested in
 * tests/unit/model_foreign_test.c and tests/python/pipeline_test.py. */
#ifndef PAWL_ENGINE_H
#define PAWL_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pawl/error.h>

#define PAWL_ENGINE_RANK_MAX 8u

struct pawl_engine_tensor { /* a parameter of a stage */
    const char *name;       /* unique in the whole model */
    uint32_t rank;
    uint64_t shape[PAWL_ENGINE_RANK_MAX];
    bool decay; /* weight decay applies */
};

struct pawl_engine_layout { /* of one stage; memory is the engine's, valid until the stage is closed */
    const struct pawl_engine_tensor *tensors;
    uint32_t tensor_count;
    uint64_t input_bytes, output_bytes; /* of one micro-batch; 0 at the model's two ends */
};

struct pawl_engine_job { /* what all stages of a run share; texts live until `close` */
    const char *module;  /* torch.module of the specification: a file or a dotted name */
    const char *options; /* torch.options: JSON text for the user's function, "" for none */
    uint64_t seed;
    uint32_t stages;
    uint32_t batch;         /* samples of a micro-batch */
    uint64_t contributions; /* micro-batches of an iteration */
    uint32_t threads;       /* of one operation; part of what decides bits */
};

struct pawl_engine_call { /* one micro-batch in one stage */
    uint32_t stage;
    uint64_t slot;           /* names the micro-batch's memory until `drop`; never 0; reused after it */
    uint64_t version;        /* optimizer updates behind the parameters */
    const float *params;     /* all tensors; tensor i begins at params + offsets[i] */
    const uint64_t *offsets; /* [tensor_count], in floats */
    uint64_t step;           /* of the iteration, from 0 */
    uint64_t microbatch;     /* of the global batch, 0 .. contributions - 1 */
    bool no_input_grad;      /* nobody wants grad_out: grad_out is null then */
    bool no_weight_grad;     /* weight_grad will not be called */
    const void *input;       /* [input_bytes]; null on the first stage */
    void *output;            /* [output_bytes]; null on the last stage */
    const void *grad_in;     /* [output_bytes], in input_grad; null on the last stage */
    void *grad_out;          /* [input_bytes], in input_grad; null on the first stage */
    double loss;             /* set by the last stage's forward */
    const float **grads; /* [tensor_count], in weight_grad: to be set; null: a gradient of zeros. Valid until
                            the next call of the engine */
    uint64_t kept_bytes; /* set by forward: what the slot holds until weight_grad, about; 0: unknown */
};

struct pawl_engine_optimizer { /* AdamW's, as optimizer.* of the specification */
    double lr, beta1, beta2, eps, weight_decay;
};

struct pawl_engine {
    void *context; /* handed to every function */
    /* Once a process, before anything else. */
    pawl_code (*open)(void *context, const struct pawl_engine_job *job, struct pawl_error *e);
    /* A stage is made: when the worker is to hold it, maybe again after stage_close. */
    pawl_code (*stage_open)(void *context, uint32_t stage, struct pawl_engine_layout *out,
                            struct pawl_error *e);
    void (*stage_close)(void *context, uint32_t stage);
    /* Initial values of all parameters, tensor i at params + offsets[i]: the same in every process. */
    pawl_code (*init)(void *context, uint32_t stage, float *params, const uint64_t *offsets,
                      struct pawl_error *e);
    pawl_code (*forward)(void *context, struct pawl_engine_call *call, struct pawl_error *e);
    pawl_code (*input_grad)(void *context, struct pawl_engine_call *call, struct pawl_error *e);
    pawl_code (*weight_grad)(void *context, struct pawl_engine_call *call, struct pawl_error *e);
    /* The slot is free: after the last call for it, or at any moment after a failure. */
    void (*drop)(void *context, uint32_t stage, uint64_t slot);
    void (*close)(void *context);
    /* May be null: the optimizer is as the specification says. Else these values are used, and one that the
     * specification gives otherwise is an error. After `open`; not called in a worker. */
    pawl_code (*optimizer)(void *context, struct pawl_engine_optimizer *out, struct pawl_error *e);
    /* May be null: nothing is compared. Else how many samples the data has, 1 to 2^53, where another number
     * would make the same step one of other samples: kept with the run, and another one in a worker or at a
     * resume is an error (FOREIGN). After `open`. */
    pawl_code (*samples)(void *context, uint64_t *out, struct pawl_error *e);
};

/* Borrowed until the process ends; null takes it back. Before pawl_train_worker, from the same thread. */
void pawl_engine_register(const struct pawl_engine *engine);

/* The whole life of a program that brings an engine (registered before): pawl starts it as
 * `PROGRAM command FD`. "worker": pawl_train_worker(fd). "describe": opens the engine and each of its stages
 * once, and tells what they consist of. "coordinate": pawl_train_coordinator(fd). Returns the exit code. */
int pawl_engine_process(const char *command, int fd);

#endif
