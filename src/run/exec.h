/* The executor: interprets one worker's instruction list for one iteration after the other.
 *
 * It never blocks: exec_tick does one instruction whose input is there, or says what it waits for. Receives
 * are posted ahead (the next EXEC_AHEAD forwards; every gradient as soon as its forward is done), sends go
 * out as soon as there is something to send, and a micro-batch's slot is returned when its weight-gradient
 * is done and its sends have left. What a worker sends to itself, where it holds neighbouring chunks, is a
 * copy in memory. R and S are the worker's business: the tick stops there and goes on after exec_pass.
 *
 * In an iteration of which contributions exist already (salvage: run/go.h) it steps over what is not needed,
 * and neither sends nor expects what the other end steps over. Each contribution is entered once; a second
 * entry is an internal error, not a wrong sum. Tested in tests/unit/run_exec_test.c, tests/storm, tests/e2e.
 */
#ifndef RUN_EXEC_H
#define RUN_EXEC_H

#include "ir/ir.h"
#include "run/holding.h"

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

struct exec_flight {         /* one micro-batch of one chunk between its first receive and its last send */
    struct stage_slot *slot; /* null: this place is free */
    struct holding *holding;
    uint32_t home, microbatch;
    uint64_t global;
    uint32_t sends;
    int64_t sent_ns[2]; /* when an activation, a gradient was sent; 0: not, or it has left */
    bool needs_input_grad, needs_weight_grad;
    bool input_here, forward_done;
    bool grad_here, input_grad_done, weight_grad_done;
};

struct exec {
    struct peers *peers;          /* borrowed */
    const struct ir_plan *plan;   /* borrowed */
    const uint32_t *rank_of_role; /* borrowed */
    const struct ir_worker *list; /* null: no role */
    struct holding **holdings;    /* [held] borrowed, in the order of list->holds */
    uint32_t at;                  /* index of the next instruction */
    uint64_t iteration;
    int32_t shift;
    const uint8_t *done;     /* borrowed; null: every contribution is missing */
    uint32_t *first_missing; /* [plan->total], of `done` */
    uint32_t *flight_of;     /* [held][plan->total]: index into flights + 1, 0: none in this iteration */
    struct exec_flight *flights;
    uint32_t flight_count;
    uint32_t stored, peak; /* micro-batches between forward and weight-gradient: now, and the most ever */
};

void exec_init(struct exec *x, struct peers *peers);
void exec_close(struct exec *x);
/* Whether workers here can execute the plan, which has passed ir_check: without C, O and L. Errors:
 * UNSUPPORTED, naming the worker. */
pawl_code exec_runs(const struct ir_plan *plan, struct pawl_error *e);
/* A plan that exec_runs accepts, and this worker's role in it; `holdings` are of the chunks that the role
 * holds, ascending. Nothing may be in flight. All borrowed until the next exec_plan or exec_drop. */
pawl_code exec_plan(struct exec *x, const struct ir_plan *plan, const uint32_t *rank_of_role, uint32_t role,
                    struct holding **holdings, struct pawl_error *e);
/* Start iteration `iteration`, the number of every holding's current version, whose sums are ready. `done` as
 * in run/go.h, kept until the next begin. */
void exec_begin(struct exec *x, uint64_t iteration, int32_t shift, const uint8_t *done);
pawl_code exec_tick(struct exec *x, enum exec_state *state, struct pawl_error *e);
/* At R or S: of which chunk it is; step over it. */
struct holding *exec_holding(const struct exec *x);
void exec_pass(struct exec *x);
/* A completion whose owner is PEERS_EXEC_*. */
pawl_code exec_completion(struct exec *x, const struct net_completion *c, struct pawl_error *e);
/* Forget everything in flight, and the plan; the network was fenced before. */
void exec_drop(struct exec *x);
/* The instruction under way, for people; op 255: none. */
struct message_at exec_at(const struct exec *x);

#endif
