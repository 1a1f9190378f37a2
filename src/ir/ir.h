/* The schedule as data: what every worker executes in one iteration, in which order.
 *
 * A plan has pipelines x stages workers; worker (p, s) has an ordered instruction list. A micro-batch is
 * named by (home pipeline, number); at each stage exactly one live worker of that stage executes it
 * (its host; the home worker when that is alive). Messages follow from the instructions: `from` and `to`
 * name the pipeline of the neighbouring stage's host, so both ends can post them ahead.
 *
 *   F  forward           from: host at stage-1 (activation in)   to: host at stage+1
 *   I  input-gradient    from: host at stage+1 (gradient in)     to: host at stage-1
 *   W  weight-gradient   no messages; after I of the same micro-batch
 *   B  I and W fused     messages as I
 *   R  reduce            sum gradients over the live workers of the stage; after the last W/B
 *   S  step              optimizer update; after R
 *
 * Promise 5 is ir_check: it knows nothing of how plans are built. Plans are immutable once built;
 * sharing one between threads is safe. Formats: docs/formats/plan.md. Tested in tests/unit/ir_*,
 * tests/fuzz/ir_*. Source: facts on PipeDream-Flush (1F1B), GPipe, ReCycle section 2 (re-routing). */
#ifndef IR_IR_H
#define IR_IR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"

#define IR_NONE UINT32_MAX /* no neighbour: first or last stage, or an op without messages */

/* Limits that follow from the message tags of net/net.h. */
#define IR_PIPELINES_MAX    4096u
#define IR_STAGES_MAX       1024u
#define IR_MICROBATCHES_MAX 16384u

enum ir_op { IR_F, IR_I, IR_W, IR_B, IR_R, IR_S, IR_OP_COUNT };

const char *ir_op_name(enum ir_op op); /* "F" ... "S" */

struct ir_instruction {
    enum ir_op op;
    uint32_t home;       /* pipeline the micro-batch belongs to; IR_NONE for R and S */
    uint32_t microbatch; /* 0 .. microbatches-1; IR_NONE for R and S */
    uint32_t from;       /* pipeline of the sending host, or IR_NONE */
    uint32_t to;         /* pipeline of the receiving host, or IR_NONE */
};

struct ir_worker {
    bool alive; /* a dead worker has no instructions */
    uint32_t count;
    struct ir_instruction *instructions;
};

struct ir_plan {
    uint32_t pipelines;
    uint32_t stages;
    uint32_t microbatches;     /* per pipeline and iteration */
    struct ir_worker *workers; /* [pipelines * stages], index pipeline * stages + stage */
};

/* An empty plan, every worker alive and without instructions. Errors: ARGUMENT (a size 0 or over its
 * limit), MEMORY. ir_plan_free accepts null. */
pawl_code ir_plan_new(uint32_t pipelines, uint32_t stages, uint32_t microbatches, struct ir_plan **out,
                      struct pawl_error *e);
void ir_plan_free(struct ir_plan *plan);
pawl_code ir_plan_append(struct ir_plan *plan, uint32_t pipeline, uint32_t stage,
                         struct ir_instruction instruction, struct pawl_error *e);
static inline struct ir_worker *ir_plan_worker(const struct ir_plan *plan, uint32_t pipeline,
                                               uint32_t stage) {
    return &plan->workers[(uint64_t)pipeline * plan->stages + stage];
}

/* Builders. `alive` is [pipelines * stages], or null for all. With dead workers each builder routes the
 * orphaned micro-batches of a stage round robin over its live peers and orders every worker's list so
 * that it cannot deadlock. Errors: STAGE_LOST (names the stage), ARGUMENT, MEMORY. */
enum ir_schedule { IR_GPIPE, IR_1F1B, IR_SCHEDULE_COUNT };
const char *ir_schedule_name(enum ir_schedule schedule); /* "gpipe", "1f1b" */
pawl_code ir_build(enum ir_schedule schedule, uint32_t pipelines, uint32_t stages, uint32_t microbatches,
                   const bool *alive, struct ir_plan **out, struct pawl_error *e);

/* The independent checker: PAWL_OK only if
 *  - every (home, stage, micro-batch) has its F exactly once, and its I and W exactly once (or one B),
 *    all three on the same live worker of that stage, in that order;
 *  - `from` and `to` of both ends name each other;
 *  - every live worker has exactly one R after its last gradient and one S after it, and nothing later;
 *  - executing the lists in order, with sends that never block and receives that wait, every
 *    instruction is reached (no cyclic wait), also with R as a barrier of its stage;
 *  - no worker holds more than memory_limit[w] micro-batches (F done, W not done); null: no limit.
 * The error (PLAN) names the worker, the position and the rule. `peak` (null or [workers]) receives the
 * largest number of micro-batches held. O(instructions). */
pawl_code ir_check(const struct ir_plan *plan, const uint32_t *memory_limit, uint32_t *peak,
                   struct pawl_error *e);

/* Binary form; decode checks every byte but not the rules of ir_check. Errors of decode: FORMAT. */
void ir_encode(const struct ir_plan *plan, struct bytes *out);
pawl_code ir_decode(const void *data, size_t size, struct ir_plan **out, struct pawl_error *e);

/* Text form: a header line, then a line per worker; parse names line and column. */
void ir_print(const struct ir_plan *plan, struct bytes *out);
pawl_code ir_parse(const char *text, size_t size, struct ir_plan **out, struct pawl_error *e);

#endif
