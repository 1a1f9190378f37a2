/* What all pictures of a plan ask of it: who is a guest, who helps, where a stage's iteration begins.
 *
 * A view only reads the plan, and lives no longer than it. Thread: caller's. Tested through its users,
 * tests/unit/show_plan_*. */
#ifndef SHOW_VIEW_H
#define SHOW_VIEW_H

#include "plan/plan.h"
#include "show/out.h"

struct view {
    const struct pawl_plan *plan;
    const struct ir_plan *ir;
    uint32_t workers;
    uint64_t instructions;
    uint64_t origin, end;                /* ticks: first start, last end of all */
    uint64_t *stage_first;               /* [stages] ticks: the window of a stage's iteration begins ... */
    uint64_t *stage_last;                /* ... and ends here; both 0 where no worker lives */
    uint32_t dead;                       /* roles nobody plays */
    uint64_t guests, helped;             /* forwards away from home, and for another worker's chunk */
    uint64_t recomputed, offloaded;      /* micro-batches */
    uint64_t timed_reduces, timed_steps; /* that take time */
    uint64_t counts[IR_OP_COUNT];        /* instructions of each kind */
    uint64_t shortest;                   /* ticks of the shortest F, I, W or B that takes any; 0: none */
    double memory_one;                   /* raw memory of what is printed as 1 */
};

pawl_code view_open(struct view *v, const struct pawl_plan *plan, struct pawl_error *e);
void view_close(struct view *v); /* accepts what is all zero */

static inline uint32_t view_stage(const struct view *v, uint32_t worker) { return worker % v->ir->stages; }
static inline uint32_t view_pipeline(const struct view *v, uint32_t worker) { return worker / v->ir->stages; }
/* All pipelines have as many micro-batches. */
static inline bool view_is_full(const struct view *v) {
    return v->ir->total == v->ir->pipelines * v->ir->microbatches;
}
/* For "5 of 6" and a number of workers. */
static inline const char *view_workers_live(const struct view *v) {
    return v->workers == 1 ? "worker lives" : "workers live";
}
static inline uint64_t view_start(const struct view *v, uint32_t worker, uint32_t i) {
    return v->plan->times.start[v->plan->times.first[worker] + i];
}
static inline uint64_t view_end(const struct view *v, uint32_t worker, uint32_t i) {
    return v->plan->times.end[v->plan->times.first[worker] + i];
}
/* The micro-batch belongs to another pipeline. */
static inline bool view_is_guest(const struct view *v, uint32_t worker, const struct ir_instruction *in) {
    return in->home != IR_NONE && in->home != view_pipeline(v, worker);
}
/* The chunk is one that the worker holds besides its own. */
bool view_is_helper(const struct view *v, uint32_t worker, uint32_t chunk);
/* 0 for the first chunk of a worker that has several, 1 for the next ... (c / stages: true of loops and of
 * the V). */
static inline uint32_t view_lap(const struct view *v, uint32_t chunk) { return chunk / v->ir->stages; }

double view_memory(const struct view *v, uint64_t raw);     /* in the plan's unit of memory */
uint64_t view_state(const struct view *v, uint32_t worker); /* bytes of a role's own chunks; 0: not known */
uint64_t view_chunk_state(const struct view *v, uint32_t chunk);
uint64_t view_end_of_window(const struct view *v, uint32_t stage); /* first start and a period */

const char *view_op_words(enum ir_op op); /* "input-gradient" */
/* A percentage that never claims more than is true: "0", "0.04", "12.3", "under 0.01". */
void out_percent(struct out *o, double share);
void out_bytes(struct out *o, double bytes);                        /* "1.3 GB" */
void out_memory(struct out *o, const struct view *v, uint64_t raw); /* "7 micro-batches", "1.3 GB" */
void out_milliseconds(struct out *o, double ms);
/* "27 ms", "27". */
void out_unit_time(struct out *o, const struct view *v, double time);

#endif
