/* Which schedule: the parts of the planner. pawl/plan.h is what users see; make.c joins the parts.
 *
 *   request ─► costs ─► normalize (who is dead, who moves) ─► route (who executes what) ─► list ─► search
 *                                                               ▲ share (who holds one chunk more)    │
 *                              bound ──────────────────────────────────────────────────────► gap ◄────┘
 *
 * Roles, not machines: after normalization a role (pipeline, stage) is alive if some machine plays it. All
 * parts are pure and deterministic: the same input and seed give the same plan; only limits on time read a
 * clock, and those who use one say so. Sources: facts on ReCycle (SOSP'24), Zero Bubble (ICLR'24),
 * interleaved 1F1B (SC'21). Tested in tests/unit/plan_* and tests/golden/plan_*. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include <pawl/plan.h>

#include "ir/ir.h"
#include "sim/sim.h"

/* ---- the problem ---- */

/* The micro-batches of an iteration: home h has numbers 0 .. each-1, as far as h * each + number is below
 * total. */
struct plan_batch {
    uint32_t each, total; /* total 0: all pipelines are full */
};
static inline struct plan_batch plan_full(uint32_t each) { return (struct plan_batch){each, 0}; }
static inline uint64_t plan_batch_total(struct plan_batch b, uint32_t pipelines) {
    return b.total > 0 ? b.total : (uint64_t)pipelines * b.each;
}

#define PLAN_ABSENT (IR_NONE - 1) /* host of a micro-batch that there is not */

/* Which worker executes a micro-batch of a chunk, and who holds what. The optimizer's form of a plan: order
 * is not decided yet. */
struct plan_route {
    uint32_t pipelines, stages, chunks, microbatches;
    uint32_t total; /* of the iteration, as ir_plan.total: cells beyond have the host PLAN_ABSENT */
    bool *alive;    /* [workers] roles */
    uint32_t *host; /* [(home * chunks + chunk) * microbatches + number] worker */
    /* Holders besides the executing ones need not be named: who executes a chunk holds it. Every live worker
     * holds its own chunks in any case: */
    const uint32_t *stage_of; /* [chunks] position in the pipeline; null: chunk c at stage c % stages. The
                               * caller's: it outlives the route and its copies */
    uint64_t *early; /* [chunks] ticks by which a stage's gradients are reduced before its time is up, so that
                      * the helpers it shares with a neighbour can reduce theirs then; null: not thought of */
};
pawl_code plan_route_new(uint32_t pipelines, uint32_t stages, uint32_t chunks, uint32_t microbatches,
                         struct plan_route **out,
                         struct pawl_error *e); /* all alive, hosts unset (IR_NONE) */
/* Only so many micro-batches in all; before any host is set. ARGUMENT: not 1..pipelines * microbatches. */
pawl_code plan_route_limit(struct plan_route *route, uint64_t total, struct pawl_error *e);
/* Micro-batches that a home has. */
static inline uint32_t plan_route_count(const struct plan_route *r, uint32_t home) {
    uint64_t before = (uint64_t)home * r->microbatches;
    if (before >= r->total) return 0;
    return r->total - before < r->microbatches ? (uint32_t)(r->total - before) : r->microbatches;
}
pawl_code plan_route_copy(const struct plan_route *route, struct plan_route **out, struct pawl_error *e);
void plan_route_free(struct plan_route *route);
static inline uint64_t plan_route_cell(const struct plan_route *r, uint32_t home, uint32_t chunk,
                                       uint32_t microbatch) {
    return ((uint64_t)home * r->chunks + chunk) * r->microbatches + microbatch;
}
/* An empty plan (no instructions) with the route's sizes, dead and holders: where every scheduler begins.
 * PLAN: a micro-batch has no live host. */
pawl_code plan_route_plan(const struct plan_route *route, struct ir_plan **out, struct pawl_error *e);
/* An instruction of that cell; `from` and `to` of F, I and B are the hosts of its neighbours (IR_NONE at the
 * ends, and for ops without messages). */
struct ir_instruction plan_route_instruction(const struct plan_route *route, enum ir_op op, uint32_t home,
                                             uint32_t chunk, uint32_t microbatch);

/* ---- normalization: which roles stay empty ---- */

struct plan_move {     /* a live machine plays another role from now on; its own becomes empty */
    uint32_t from, to; /* workers (roles) */
};
struct plan_normal {
    bool *alive; /* [workers] roles after the moves */
    struct plan_move *moves;
    uint32_t move_count;
    uint32_t *holes; /* [stages] empty roles of each stage */
};
/* Least over stages of the predicted time with j holes, `time(context, stage, j)` in ticks (j < pipelines),
 * then fewest moves, then least sum, then holes nearest the middle stages. Moves are made only as far as they
 * pay: the fewest that come nearer to the least time than the share `min_gain` of the time with as few moves
 * as can be (0: the least time itself). `dead` is [workers]; `free_failures` more may be placed anywhere
 * (without moves). O(stages * failures * pipelines) for each of a logarithmic number of tries. STAGE_LOST:
 * more failures than stages * (pipelines - 1), or with `no_move` a stage without a live role, named. */
struct plan_normal_request {
    uint32_t pipelines, stages;
    const bool *dead; /* [workers], or null */
    uint32_t free_failures;
    bool no_move;
    double min_gain;
    uint64_t (*time)(void *context, uint32_t stage, uint32_t holes);
    void *context;
};
pawl_code plan_normalize(const struct plan_normal_request *request, struct plan_normal *out,
                         struct pawl_error *e);
void plan_normal_close(struct plan_normal *n);

/* ---- routing ---- */

/* Homes stay where they live; orphans go to the live peers of their stage such that the last to finish, at
 * its own speed, finishes first, spread over home pipelines and numbers evenly. `alive` null: all.
 * `free_homes`: a slow worker gives micro-batches of its own away too. Errors: STAGE_LOST names the stage;
 * ARGUMENT, MEMORY. */
pawl_code plan_route_peers(const struct sim_costs *costs, struct plan_batch batch, const bool *alive,
                           bool free_homes, struct plan_route **out, struct pawl_error *e);
/* The same into a route whose `alive` and `stage_of` the caller has set. */
pawl_code plan_route_fill_peers(struct plan_route *route, const struct sim_costs *costs, bool free_homes,
                                struct pawl_error *e);

/* Beyond the stage: some workers hold a neighbouring chunk as well and take part of its micro-batches, while
 * peers of their own stage take some of theirs, such that the load (ticks) of the busiest worker is least
 * with at most `helpers` such workers, and of these the fewest. A helper reduces two chunks one after the
 * other, each together with all who hold it: who must be done before the rest counts as busy the longer by
 * that, and the route says so (early).
 * Each costs one copy of a chunk's state and its memory (never above `room[worker]` bytes; null: not
 * limited). Fewer are used where more would not help, so also where one alone cannot: two failures may need
 * two. Errors: STAGE_LOST; UNSUPPORTED: stages of several chunks. O(stages * helpers) for each of a
 * logarithmic number of tries, and once the micro-batches. */
struct plan_helper {
    uint32_t worker, chunk, copied_from; /* copied_from: a worker that held the chunk */
};
struct plan_share {
    struct plan_route *route;
    struct plan_helper *helpers;
    uint32_t helper_count;
    uint64_t load; /* ticks of the busiest worker */
};
pawl_code plan_share_route(const struct sim_costs *costs, struct plan_batch batch, const bool *alive,
                           uint32_t helpers, const uint64_t *room, struct plan_share *out,
                           struct pawl_error *e);
void plan_share_close(struct plan_share *s);

/* ---- scheduling ---- */

enum plan_backward {
    PLAN_FUSED,     /* B only */
    PLAN_SELECTIVE, /* I and W apart where that helps, else B */
    PLAN_SPLIT,     /* I and W apart everywhere */
};
struct plan_list_options {
    enum plan_backward backward;
    bool staggered;  /* aim at the period, else at the makespan */
    bool recompute;  /* C may be used where memory is short; the search decides: needs rounds */
    bool offload;    /* O and L, likewise */
    uint64_t seed;   /* of the search's random choices */
    double search_s; /* local search at most so long (reads a clock; 0: not limited by time) ... */
    uint32_t rounds; /* ... and so many rounds (each: one more schedule); 0: one schedule, no search. About
                      * ten take most of what there is to gain */
    uint64_t bound;  /* stop when this period is reached */
    const bool
        *stop; /* raised by another thread or a signal handler: end soon, with the best so far; or null */
};
/* The best order found of the route's work, under costs->limit: an ir_plan that passes ir_check with its R
 * and S. PLAN: the limit is below what one micro-batch of a chunk needs (names the worker). */
pawl_code plan_list(const struct plan_route *route, const struct sim_costs *costs,
                    const struct plan_list_options *options, struct ir_plan **out, struct pawl_error *e);

/* ---- bounds ---- */

/* No schedule of this route is shorter: facts 2.4 in general form, head + load + tail of every worker;
 * staggered: load; with limits, also what memory forces (valid for every order, see bound.c). Bounds
 * allocate; without memory they say 0. */
uint64_t plan_bound_route(const struct plan_route *route, const struct sim_costs *costs,
                          const struct plan_list_options *options);
/* ... of any route of whoever is alive, homes free, workers holding neighbours too: all work over all speed,
 * with R and S also of those who must help where a stage's own cannot do it; and of any route where workers
 * execute chunks of their own stage only (UINT64_MAX: a stage nobody lives in). */
uint64_t plan_bound_free(const struct sim_costs *costs, struct plan_batch batch, const bool *alive,
                         bool staggered);
uint64_t plan_bound_peers(const struct sim_costs *costs, struct plan_batch batch, const bool *alive,
                          const struct plan_list_options *options);
/* T(s, j): predicted ticks of an iteration whose stage s has j holes: the load of its live workers, by the
 * closed form of the staggered schedule (facts 2.4), whatever the policy: normalization balances load, so
 * ablations differ in their schedules alone, and no single failure is moved. For pawl less, where the stages
 * beside it can take part (three stages share the work). UINT64_MAX: no such stage, or nobody left in it. */
uint64_t plan_predict_stage(const struct sim_costs *costs, struct plan_batch batch, enum pawl_policy policy,
                            uint32_t stage, uint32_t holes);

/* ---- baselines without failures (route all alive), and with failures where the policy has them ---- */

/* Is the policy's period counted without a barrier for the optimizer? Zero Bubble's formulas are. */
bool plan_policy_staggered(enum pawl_policy policy);
/* gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, each in its published order; costs->chunks = stages, or 2
 * stages for zb-v and k stages for interleaved (the costs are a chunk's). Zero Bubble with unequal costs: the
 * published order or a list schedule, whichever is shorter. With the dead, whose work the route has given to
 * others, the order is a list schedule in which any worker may store what the policy's first stage does. The
 * caps are the policy's own, facts 8.1; costs->limit is not looked at. Ends with R and S. Errors: ARGUMENT,
 * MEMORY. */
pawl_code plan_baseline(enum pawl_policy policy, const struct plan_route *route,
                        const struct sim_costs *costs, struct ir_plan **out, struct pawl_error *e);
/* [chunks] position of each chunk: c % stages, or the V of zb-v. malloc'ed. */
pawl_code plan_placement(enum pawl_policy policy, uint32_t stages, uint32_t chunks, uint32_t **out,
                         struct pawl_error *e);
/* Bubble (ticks: period less the work of a worker) and peak memory (of the worker that stores most) by
 * formula, for costs that are the same for all chunks and no transfers; for Zero Bubble F = I = W. Exact for
 * any number of micro-batches but: zb-v, from 2 P - 1 on; interleaved, up to P and for multiples of P
 * (between them the bubble is larger). Facts 8.1. */
void plan_baseline_formula(enum pawl_policy policy, const struct sim_costs *costs, uint32_t microbatches,
                           uint64_t *bubble, uint64_t *peak);

/* ---- exact ---- */

enum plan_engine { PLAN_Z3, PLAN_CBC };
struct plan_exact_options {
    enum plan_engine engine;
    struct plan_list_options list; /* what the schedule may do: backward, staggered */
    double time_limit_s;
    uint64_t bound;  /* known lower bound, ticks */
    bool free_route; /* who executes an orphan is free too (among its stage's live workers) */
    void (*progress)(void *context, uint64_t best, uint64_t bound, double seconds);
    void *context;
};
struct plan_exact_result {
    struct ir_plan *plan;   /* the best known: never worse than the seed */
    uint64_t period, bound; /* ticks; equal: proven optimal */
    bool proven;
    double seconds;
};
/* UNSUPPORTED: built without that engine. */
pawl_code plan_exact_built(enum plan_engine engine, struct pawl_error *e);
/* `seed` is a plan of the route. UNSUPPORTED: built without that engine, or a home is not full. Reads a
 * clock. */
pawl_code plan_exact(const struct plan_route *route, const struct sim_costs *costs,
                     const struct ir_plan *seed, const struct plan_exact_options *options,
                     struct plan_exact_result *out, struct pawl_error *e);

/* ---- joined ---- */

/* costs of a request: ticks by SIM_TICKS, chunks as the policy wants them (a profile's stage cut evenly, or
 * merged), `slow` and `limit` by worker. The caller frees with plan_costs_free. */
pawl_code plan_costs(const struct pawl_plan_request *request, struct sim_costs **out, struct pawl_error *e);
void plan_costs_free(struct sim_costs *costs);

/* The opaque plan of pawl/plan.h. */
struct pawl_plan {
    struct pawl_plan_summary summary;
    struct ir_plan *ir;
    struct sim_costs *costs;
    struct sim_result times;
    struct plan_move *moves;
    uint32_t move_count;
    struct plan_helper *helpers;
    uint32_t helper_count;
    bool staggered;
    /* Else in micro-batches of a stage: where a stage is cut into several chunks, what is stored (limits,
     * peaks) counts its parts, chunks / stages of them to a micro-batch. */
    bool memory_in_bytes;
    char *unit;
    char *warnings; /* lines; "" if there are none */
    /* As pawl/plan.h shows it: */
    struct pawl_instruction *instructions; /* in the order of `times` */
    struct pawl_plan_move *shown_moves;
    struct pawl_plan_shared *shown_shares;
};

#endif
