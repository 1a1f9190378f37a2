/* The executor: interprets one worker's instruction list for one iteration after the other.
 *
 * It never blocks: exec_tick does one instruction whose input is there, or says what it waits for. Receives
 * are posted ahead (the next EXEC_AHEAD forwards; every gradient as soon as its forward is done), sends go
 * out as soon as there is something to send, and a micro-batch's slot is returned when its weight-gradient
 * is done and its sends have left. R and S are the worker's business: the tick stops there and goes on after
 * exec_pass. Each contribution is entered once; a second entry is an internal error, not a wrong sum.
 * Tested in tests/storm and tests/e2e. */
#ifndef RUN_EXEC_H
#define RUN_EXEC_H

#include "ir/ir.h"
#include "model/stage.h"
#include "run/measure.h"
#include "run/peers.h"

/* Receives posted ahead of the instruction under way: one being received while one is computed, and one in
 * reserve. Each costs one micro-batch's slot. */
#define EXEC_AHEAD 2u

enum exec_state {
    EXEC_WAITING, /* for a message */
    EXEC_WORKED,  /* did an instruction; call again */
    EXEC_AT_REDUCE,
    EXEC_AT_STEP,
    EXEC_ENDED, /* past the last instruction of the iteration */
};

struct exec_flight {         /* one micro-batch between its first receive and its last send */
    struct stage_slot *slot; /* null: this place is free */
    uint32_t home, microbatch;
    uint32_t sends;
    int64_t sent_ns[2]; /* when an activation, a gradient was sent; 0: not, or it has left */
    bool input_here, forward_done;
    bool grad_here, input_grad_done, weight_grad_done;
};

struct exec {
    struct stage *stage;        /* borrowed */
    struct peers *peers;        /* borrowed */
    const struct ir_plan *plan; /* borrowed */
    const struct ir_worker *list;
    uint32_t at; /* index of the next instruction */
    const struct version *version;
    int64_t *sums; /* [param_count + GRADSUM_FOOTER_WORDS] of the worker */
    int32_t shift;
    uint32_t *flight_of; /* [pipelines * microbatches]: index into flights + 1, 0: none in this iteration */
    struct exec_flight *flights;
    uint32_t flight_count;
    struct measure measure;
};

pawl_code exec_init(struct exec *x, struct stage *stage, struct peers *peers, uint32_t microbatches,
                    struct pawl_error *e);
void exec_close(struct exec *x);
/* Whether workers here can execute the plan, which has passed ir_check: one chunk a worker, its stage's (so
 * that a worker's stage and rank say all that a plan's chunk and worker do), without C, O and L. Errors:
 * UNSUPPORTED, naming the worker. */
pawl_code exec_runs(const struct ir_plan *plan, struct pawl_error *e);
/* A new plan that exec_runs accepts, of the sizes given at init; nothing may be in flight. */
void exec_plan(struct exec *x, const struct ir_plan *plan);
/* Start iteration version->number. The sums are zeroed by the caller. */
void exec_begin(struct exec *x, const struct version *version, int64_t *sums, int32_t shift);
pawl_code exec_tick(struct exec *x, enum exec_state *state, struct pawl_error *e);
void exec_pass(struct exec *x); /* step over R or S */
/* A completion whose owner is PEERS_EXEC_*. */
pawl_code exec_completion(struct exec *x, const struct net_completion *c, struct pawl_error *e);
/* Forget everything in flight; the network was fenced before. */
void exec_drop(struct exec *x);

#endif
