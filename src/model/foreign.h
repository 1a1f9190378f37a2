/* Stages computed by code of the user's: a struct stage over a struct pawl_engine (pawl/engine.h).
 *
 * An engine is opened once a process; a stage of it may be held twice for a while (one is being given up, one
 * is new): the engine's stage is opened with the first and closed with the last. What the engine says of a
 * stage is checked and copied. Slots are this module's: their buffers, their keys, when they are dropped;
 * gradients are read where the engine has them and added tensor by tensor.
 *
 * What the engine fails with becomes a USER error, with stage, step and micro-batch in front. Thread: one.
 * Tested in tests/unit/model_foreign_test.c. */
#ifndef MODEL_FOREIGN_H
#define MODEL_FOREIGN_H

#include "model/stage.h"

/* Bounds of what an engine may say, far beyond any machine: they keep sums of sizes within 64 bits. */
#define FOREIGN_STAGES_MAX  4096u
#define FOREIGN_TENSORS_MAX (1u << 20)          /* of a stage */
#define FOREIGN_NAME_MAX    1024u               /* bytes of a tensor's name */
#define FOREIGN_FLOATS_MAX  ((uint64_t)1 << 48) /* of a stage */
#define FOREIGN_BYTES_MAX   ((uint64_t)1 << 48) /* of a micro-batch between two stages */
#define FOREIGN_SAMPLES_MAX ((uint64_t)1 << 53) /* of the data: what a JSON number holds */

/* Checks a layout as stage `stage` of `stages` (names, ranks, sizes, ends) and copies its tensors, one behind
 * the other; to be freed with foreign_tensors_free. USER, naming stage and tensor; MEMORY. */
pawl_code foreign_tensors(const struct pawl_engine_layout *layout, uint32_t stage, uint32_t stages,
                          struct stage_tensor **out, struct pawl_error *e);
void foreign_tensors_free(struct stage_tensor *tensors, uint32_t count); /* accepts null */

struct foreign;

/* `engine` is borrowed; the job's texts are copied. ARGUMENT: a function is missing; USER: what it says. */
pawl_code foreign_open(const struct pawl_engine *engine, const struct pawl_engine_job *job,
                       struct foreign **out, struct pawl_error *e);
void foreign_close(struct foreign *f); /* after its stages; accepts null */
pawl_code foreign_stage_open(struct foreign *f, uint32_t index, struct stage **out, struct pawl_error *e);
/* *given false: the engine leaves it to the specification. */
pawl_code foreign_optimizer(struct foreign *f, bool *given, struct pawl_engine_optimizer *out,
                            struct pawl_error *e);
/* Of the data; 0: the engine does not say. USER: what it says, or a number out of range. */
pawl_code foreign_samples(struct foreign *f, uint64_t *out, struct pawl_error *e);

#endif
