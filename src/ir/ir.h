/* The schedule as data: what every worker executes in one iteration, in which order.
 *
 * A plan has pipelines x stages workers; worker w = pipeline * stages + stage has an ordered instruction
 * list. The model is cut into `chunks` model chunks, computed one after the other; plainly there are as many
 * chunks as stages and worker (p, s) holds chunk s. Interleaved and V-shaped schedules give a worker several;
 * a worker that lends a hand to a neighbour stage holds one more. A micro-batch is named by (home pipeline,
 * number); for each chunk exactly one live worker that holds it executes it (its host). Messages follow from
 * the instructions: `from` and `to` name the worker that hosts the neighbouring chunk, so both ends can post
 * them ahead; a worker may send to itself, which costs nothing.
 *
 *   F  forward           from: host of chunk-1 (activation in)   to: host of chunk+1
 *   I  input-gradient    from: host of chunk+1 (gradient in)     to: host of chunk-1
 *   W  weight-gradient   no messages; after I of the same micro-batch
 *   B  I and W fused     messages as I
 *   C  recompute         the forward again, from its stored input; between F and I
 *   O  offloaded         waits until the copy of the stashed activation to the host,
 *                        begun when F ended, is done; between F and I
 *   L  load              begins the copy back, and goes on at once; I waits for it; after O
 *   R  reduce            sum a chunk's gradients over its live holders; after the chunk's last W/B
 *   S  step              optimizer update of a chunk; after R
 *
 * What a worker stores for a micro-batch of a chunk: `full` from its F on; only `kept` if a C follows, `full`
 * again from C on; `kept` from O on, `full` again from L on; `after_input` from I on; nothing from W or B on.
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
#define IR_CHUNKS_MAX       1024u
#define IR_MICROBATCHES_MAX 16384u
#define IR_WORKERS_MAX      65536u

enum ir_op { IR_F, IR_I, IR_W, IR_B, IR_R, IR_S, IR_C, IR_O, IR_L, IR_OP_COUNT };

const char *ir_op_name(enum ir_op op); /* "F" ... "L" */

struct ir_instruction {
    enum ir_op op;
    uint32_t chunk;      /* of the model */
    uint32_t home;       /* pipeline the micro-batch belongs to; IR_NONE for R and S */
    uint32_t microbatch; /* 0 .. microbatches-1; IR_NONE for R and S */
    uint32_t from;       /* worker that hosts the chunk data comes from, or IR_NONE */
    uint32_t to;         /* worker that hosts the chunk data goes to, or IR_NONE */
};

struct ir_worker {
    bool alive; /* a dead worker has no instructions and holds nothing */
    uint32_t hold_count;
    uint32_t *holds; /* chunks, ascending: it has their weights and takes part in their R and S */
    uint32_t count, room;
    struct ir_instruction *instructions;
};

struct ir_plan {
    uint32_t pipelines;
    uint32_t stages;
    uint32_t chunks;
    uint32_t microbatches;     /* per pipeline and iteration, at most */
    uint32_t total;            /* of the iteration: (home, m) exists if home * microbatches + m is below it */
    struct ir_worker *workers; /* [pipelines * stages], index pipeline * stages + stage */
};

/* An empty plan of as many chunks as stages, every worker alive and without instructions; worker (p, s) holds
 * chunk s. ir_plan_new_chunks: nobody holds anything yet. Errors: ARGUMENT (a size 0 or over its limit),
 * MEMORY. ir_plan_free accepts null. */
pawl_code ir_plan_new(uint32_t pipelines, uint32_t stages, uint32_t microbatches, struct ir_plan **out,
                      struct pawl_error *e);
pawl_code ir_plan_new_chunks(uint32_t pipelines, uint32_t stages, uint32_t chunks, uint32_t microbatches,
                             struct ir_plan **out, struct pawl_error *e);
pawl_code ir_plan_copy(const struct ir_plan *plan, struct ir_plan **out, struct pawl_error *e); /* MEMORY */
void ir_plan_free(struct ir_plan *plan);
/* Fewer micro-batches than pipelines * microbatches, which is the total of a new plan. Errors: ARGUMENT (not
 * in 1..pipelines * microbatches, or there are instructions already). */
pawl_code ir_plan_limit(struct ir_plan *plan, uint32_t total, struct pawl_error *e);
/* The worker holds `chunk` too; more than once is the same as once. Errors: ARGUMENT (no such worker or
 * chunk, a dead worker), MEMORY. */
pawl_code ir_plan_hold(struct ir_plan *plan, uint32_t worker, uint32_t chunk, struct pawl_error *e);
bool ir_plan_holds(const struct ir_plan *plan, uint32_t worker, uint32_t chunk);
/* The worker is dead: it holds nothing, and what instructions it had are dropped. */
void ir_plan_kill(struct ir_plan *plan, uint32_t worker);
/* Room for `count` more instructions of a worker, so that appending them does not allocate. Errors: ARGUMENT
 * (no such worker, a longer list than any can be), MEMORY. */
pawl_code ir_plan_reserve(struct ir_plan *plan, uint32_t worker, uint32_t count, struct pawl_error *e);
/* Amortised O(1). Errors: ARGUMENT (no such worker, a dead one, a field that no plan of these sizes can
 * hold), MEMORY. That the worker holds the chunk, and the order, are for ir_check. */
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

/* What workers store, in any one unit. Null members: full 1, kept and after_input as full, no limit; all of
 * them null: every micro-batch counts 1 from F to W. */
struct ir_memory {
    const uint64_t *full;        /* [chunks] */
    const uint64_t *kept;        /* [chunks] */
    const uint64_t *after_input; /* [chunks] between I and W */
    const uint64_t *limit;       /* [workers] */
};

/* The independent checker: PAWL_OK only if
 *  - every (home, chunk, micro-batch) that exists has its F exactly once, and its I and W exactly once (or
 * one B), all on the same live worker that holds the chunk, in that order; at most one C, or one O and then
 * one L, between F and I;
 *  - `from` and `to` of both ends name each other;
 *  - every live worker has, for every chunk it holds, exactly one R after the chunk's last gradient there and
 *    one S after that, and every chunk has a live holder;
 *  - executing the lists in order, with sends that never block, receives that wait, and R waiting for all
 *    holders of its chunk, every instruction is reached (no cyclic wait);
 *  - no worker stores more than memory->limit allows.
 * The error (PLAN) names the worker, the position and the rule. `peak` (null or [workers]) receives the most
 * that was stored at once. `memory` may be null. O(instructions). */
pawl_code ir_check(const struct ir_plan *plan, const struct ir_memory *memory, uint64_t *peak,
                   struct pawl_error *e);

/* When contributions exist already (salvage): `done` has a bit (little-endian) for each micro-batch of each
 * chunk, [chunks][(total + 7) / 8]. first_missing[home * microbatches + m] is the lowest chunk that still
 * misses it, IR_NONE: none does. Then
 *   F is needed  if first_missing != IR_NONE       C, O, L: as F
 *   I is needed  if first_missing <= chunk
 *   W is needed  if the chunk itself misses it     (of a B: what is needed)
 * Instructions that are not needed are stepped over by everybody alike; what follows of the order stays. What
 * is stored for a micro-batch is freed where its W or B stands at the latest, also if that is stepped over.
 * `first_missing` is [total]; a null `done` means that nothing is done. */
void ir_first_missing(const struct ir_plan *plan, const uint8_t *done, uint32_t *first_missing);
static inline bool ir_is_done(const struct ir_plan *plan, const uint8_t *done, uint32_t chunk, uint64_t m) {
    return done != NULL && (done[(uint64_t)chunk * ((plan->total + 7) / 8) + m / 8] >> (m % 8) & 1) != 0;
}
/* ir_check of the whole plan without its memory limits, then of what is left of it: every missing
 * contribution is made exactly once with all it needs, and none that is done; nothing waits for what does not
 * come; and the limits hold for it. What is needed is found by what needs what, not by ir_first_missing. With
 * a null `done` all is left: ir_check. Errors as ir_check. */
pawl_code ir_check_rest(const struct ir_plan *plan, const struct ir_memory *memory, const uint8_t *done,
                        uint64_t *peak, struct pawl_error *e);

/* Binary form; decode checks every byte but not the rules of ir_check. Errors of decode: FORMAT. */
void ir_encode(const struct ir_plan *plan, struct bytes *out);
pawl_code ir_decode(const void *data, size_t size, struct ir_plan **out, struct pawl_error *e);

/* Text form: a header line, then a line per worker; parse names line and column. */
void ir_print(const struct ir_plan *plan, struct bytes *out);
pawl_code ir_parse(const char *text, size_t size, struct ir_plan **out, struct pawl_error *e);

#endif
