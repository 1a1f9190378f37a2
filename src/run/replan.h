/* The plans of a run: who plays which role and in which order, for whoever is there.
 *
 * Asked at every fence, answered in milliseconds; it remembers the roles of the plan before, so that a rank
 * keeps its role unless a move pays (plan_normalize). Ranks without a role take empty ones, first of the
 * chunk whose state they have already. The layout is `pipelines` x stages, and grows by a pipeline when there
 * are enough live ranks for one more (floor(ranks there / stages)), never below the spec's: the micro-batches
 * of the global batch are then divided anew (ir_plan.total). Ranks beyond the roles are spares. With
 * the same ranks in the same roles the plan in use stays, unless another is better by REPLAN_GAIN and the
 * spec lets it go (parallel.replan).
 *
 * Costs are the spec's profile, or uniform until all live ranks have told what they measured; then measured.
 * Speeds: a rank's factor is its time over the median of those that compute the same chunk; three reports in
 * a row make it slow, or fast again. What is stored is always as the profile has it.
 *
 * Ahead: with `background` a thread plans, while the run goes on, for each single next failure, and searches
 * longer for who is there now. replan_better says that the plan in use should be changed: a measured profile,
 * a changed speed, or a search, promises REPLAN_GAIN or more; at most once in REPLAN_PAUSE decided
 * iterations. Without it everything happens in replan_make, without a clock: deterministic (storm). A plan
 * made ahead is the same plan that would be made now; it only comes sooner.
 *
 * A schedule whose order is its own may need more memory with a failure than without. Where the spec's has no
 * plan within the limits for who is there, recycle's takes its place, which orders under the limits: the run
 * goes on, slower (`instead`), and has the spec's schedule back with the next plan that fits. Too little
 * memory with everybody there is an error of the spec (spec_check).
 *
 * Every plan has passed ir_check under the memory limits before it is returned.
 * Threads: the functions belong to one thread. Tested in tests/unit/run_replan_test.c,
 * tests/unit/run_replan_costs_test.c. */
#ifndef RUN_REPLAN_H
#define RUN_REPLAN_H

#include "ir/ir.h"
#include "run/measure.h"
#include "run/spec.h"

/* A change costs a fence, a fraction of an iteration, and comes once in REPLAN_PAUSE of them at most. */
#define REPLAN_GAIN  0.02
#define REPLAN_PAUSE 20u

#define REPLAN_WHY_MAX sizeof(((struct pawl_error *)0)->text)

struct replan;

struct replan_question {
    const bool *candidates; /* [ranks] */
    const bool *has_state;  /* [ranks * stages] */
};

struct replan_plan {
    struct ir_plan *ir;
    uint32_t *rank_of_role;       /* [ir workers]; UINT32_MAX: empty */
    bool *holds;                  /* [ranks * stages] */
    uint32_t *own;                /* [ranks]; UINT32_MAX: a spare */
    uint64_t *peak;               /* [ir workers] micro-batches stored at most, as planned */
    double period;                /* predicted, in the profile's unit, or in units of a forward; */
    double period_s;              /* in seconds; 0: the costs are not known in seconds */
    uint32_t moves;               /* ranks that change chunk */
    bool ahead;                   /* it had been made before it was needed */
    double planning_ms;           /* what the caller waited */
    char instead[REPLAN_WHY_MAX]; /* planned with recycle, not with the spec's schedule: why; else empty */
};

/* `ranks`: places. Reads the profile that the spec names. */
pawl_code replan_new(const struct spec *spec, uint32_t ranks, bool background, struct replan **out,
                     struct pawl_error *e);
void replan_free(struct replan *r); /* joins the thread; accepts null */
/* STAGE_LOST when the candidates are too few: *need says how many more it takes. PLAN when no schedule fits
 * the memory. */
pawl_code replan_make(struct replan *r, const struct replan_question *q, struct replan_plan **out,
                      uint32_t *need, struct pawl_error *e);
void replan_plan_free(struct replan_plan *p);
/* The plan returned last is in use from now on (GO was sent). */
void replan_used(struct replan *r, const struct replan_plan *p);
/* Which chunk `rank` would hold if it came to those of the plan in use; UINT32_MAX: it would be a spare. */
pawl_code replan_join(struct replan *r, uint32_t rank, const struct replan_question *q, uint32_t *chunk,
                      struct pawl_error *e);
/* `rank` told what it measured (one chunk a report). */
void replan_measured(struct replan *r, uint32_t rank, const struct measure_report *m);
void replan_exited(struct replan *r, uint32_t rank); /* forget its measurements */
/* An iteration was decided; true: fence, and ask again. */
bool replan_better(struct replan *r);

#endif
