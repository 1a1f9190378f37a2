/* Between the files of replan*.c. Ranks become roles (cast), roles and costs a request, a request an answer
 * of the planner, which the cache keeps: what is asked for in a hurry may have been answered before.
 *
 *   question ─► cast ─► request ─► cache / planner ─► answer ─► moves back into the cast ─► plan
 *                          └─ the same for every single next failure, by the thread (ahead)
 *
 * Pure but for the thread: the same question after the same history gives the same plan. */
#ifndef RUN_REPLAN_STATE_H
#define RUN_REPLAN_STATE_H

#include <pthread.h>

#include "plan/plan.h"
#include "run/replan.h"

/* ---- costs: what is known of stages and ranks (replan_costs.c) ---- */

/* A rank is slow when its time was over SLOW_MIN medians in SLOW_REPORTS reports in a row, and no longer when
 * it was not in as many: one report on a busy machine says little. */
#define REPLAN_SLOW_MIN     1.3
#define REPLAN_SLOW_REPORTS 3u
/* Speeds are told apart in quarters: finer ones are noise, and would keep plans from being found again. */
#define REPLAN_SLOW_STEPS 4.0
/* Measured costs replace measured ones when a stage has become so much faster or slower. */
#define REPLAN_COSTS_CHANGE 0.10
/* A micro-batch of a stage that takes less is no work but the noise of the clock and of messages. */
#define REPLAN_TIME_MIN_NS 20000u

/* The thread has nothing left to do; for tests. */
void replan_settle(struct replan *r);

struct replan_rank {
    bool told;
    struct measure_report last;
    double slow;          /* as judged; 0: not judged yet */
    double slow_profile;  /* as the profile has it */
    uint64_t memory;      /* of the device, likewise; 0: as of all */
    uint32_t over, under; /* reports in a row */
};
struct replan_costs {
    uint32_t stages;
    struct pawl_profile *profile; /* of the stages; no workers */
    double unit_s;                /* 0: not known */
    bool measured;
    uint64_t generation;      /* grows with every change, of speeds too */
    struct replan_rank *rank; /* [ranks] */
};
pawl_code replan_costs_open(struct replan_costs *c, const struct spec *spec, uint32_t ranks,
                            struct pawl_error *e);
void replan_costs_close(struct replan_costs *c);
/* `own` [ranks]: the chunk that each computes, UINT32_MAX: none. */
void replan_costs_told(struct replan_costs *c, const uint32_t *own, uint32_t ranks, uint32_t rank,
                       const struct measure_report *m);
void replan_costs_forget(struct replan_costs *c, uint32_t rank);
double replan_slow(const struct replan_costs *c, uint32_t rank);         /* 1: as fast as its peers */
bool replan_alike(const struct replan_costs *c, uint32_t a, uint32_t b); /* as fast, and as large */

/* ---- who plays which role, before the planner moves anybody (replan_cast.c) ---- */

struct replan_cast {
    uint32_t pipelines, stages;
    uint32_t *rank_of_role; /* [pipelines * stages]; UINT32_MAX: empty */
};
struct replan_casting {
    uint32_t ranks, pipelines, stages; /* of the new layout */
    const struct replan_question *question;
    const uint32_t *role_of_rank; /* [ranks] in the plan in use; UINT32_MAX: none */
};
/* Who has a role that is still there keeps it. The others take empty ones: where they have been at the start
 * if they have that chunk, else of a chunk that they have, else where they would be at the start, else of the
 * stage that lacks most. Then no stage is without a live role: one is taken from the fullest. The candidates
 * are as many as there are stages. MEMORY. */
pawl_code replan_cast_make(const struct replan_casting *in, struct replan_cast *out, struct pawl_error *e);
/* The planner's moves; of the ranks of a stage that are as fast, one goes that has the other chunk already.
 */
void replan_cast_move(struct replan_cast *cast, const struct plan_move *moves, uint32_t count,
                      const struct replan_question *q, const struct replan_costs *costs);
/* Ranks of one stage that are as fast change roles where that spares a helper the copy of its second chunk.
 */
void replan_cast_keep_helpers(struct replan_cast *cast, const struct ir_plan *ir,
                              const struct replan_question *q, const struct replan_costs *costs);
void replan_cast_close(struct replan_cast *cast);
/* The layout for so many: floor(count / stages) pipelines, at least the spec's, at most as many as may be and
 * as there are micro-batches. */
uint32_t replan_pipelines(const struct spec *spec, uint32_t count);

/* ---- the planner, asked (replan_ask.c) ---- */

struct replan_request { /* of roles; what decides an answer */
    uint32_t pipelines, roles;
    uint64_t generation; /* of the costs */
    bool *dead;          /* [roles] */
    double *slow;        /* [roles] */
    uint64_t *memory;    /* [roles] of the device; 0: as the profile says */
    struct pawl_profile *profile;
};
struct replan_answer {
    struct ir_plan *ir;
    struct plan_move *moves;
    uint32_t move_count;
    uint64_t *peak; /* [roles] */
    double period, unit_s;
    double former;                /* period of the plan in use under the same costs; 0: not asked for */
    char instead[REPLAN_WHY_MAX]; /* recycle in place of the spec's schedule: why; empty: as the spec says */
};
pawl_code replan_request_make(const struct replan_cast *cast, const struct replan_costs *costs,
                              struct replan_request *out, struct pawl_error *e);
void replan_request_close(struct replan_request *q);
bool replan_request_same(const struct replan_request *a, const struct replan_request *b);
/* `search_s` 0: a budget counted in rounds, no clock. `in_use`: also how long that plan takes now, or null.
 * `stop` ends it early: the answer is then not to be kept. */
struct replan_budget {
    double search_s;
    const bool *stop;
    const struct ir_plan *in_use;
};
pawl_code replan_ask(const struct spec *spec, const struct replan_request *q,
                     const struct replan_budget *budget, struct replan_answer *out, struct pawl_error *e);
pawl_code replan_answer_copy(const struct replan_answer *a, struct replan_answer *out, struct pawl_error *e);
/* Than the plan in use, by REPLAN_GAIN at least. */
bool replan_answer_better(const struct replan_answer *a);
void replan_answer_close(struct replan_answer *a);

/* ---- answers kept, the newest used last (replan_cache.c); the caller locks ---- */

#define REPLAN_KEPT_MAX         160u
#define REPLAN_INSTRUCTIONS_MAX (UINT64_C(1) << 23) /* 200 MB of them */

struct replan_kept {
    struct replan_request request;
    struct replan_answer answer;
    uint64_t used;
    bool ahead; /* nobody has waited for it */
};
struct replan_cache {
    struct replan_kept *kept[REPLAN_KEPT_MAX];
    uint32_t count;
    uint64_t clock, instructions;
};
/* A copy of the answer, or NOT_FOUND; MEMORY. *ahead: it had been made by the thread. */
pawl_code replan_cache_find(struct replan_cache *c, const struct replan_request *q, struct replan_answer *out,
                            bool *ahead, struct pawl_error *e);
bool replan_cache_has(const struct replan_cache *c, const struct replan_request *q);
/* Takes both over, in place of an answer to the same request; without memory nothing is kept. */
void replan_cache_put(struct replan_cache *c, struct replan_request *q, struct replan_answer *a, bool ahead);
void replan_cache_close(struct replan_cache *c);

/* ---- the thread (replan_ahead.c) ---- */

enum replan_job_kind {
    REPLAN_JOB_COMPARE, /* is there now something better than `in_use`, which has the same roles? */
    REPLAN_JOB_NEXT,    /* this may be asked for soon */
    REPLAN_JOB_SEARCH   /* the same as COMPARE, by a long search */
};
struct replan_job {
    enum replan_job_kind kind;
    struct replan_request request;
    struct ir_plan *in_use; /* COMPARE, SEARCH */
};
void replan_job_close(struct replan_job *j);

struct replan_ahead;
pawl_code replan_ahead_start(const struct spec *spec, struct replan_ahead **out, struct pawl_error *e);
void replan_ahead_stop(struct replan_ahead *a); /* joins; accepts null */
/* A plan is wanted now, or something has changed: what the thread does, and has to do, is dropped. */
void replan_ahead_pause(struct replan_ahead *a);
/* In this order. Takes over the jobs and their array. */
void replan_ahead_work(struct replan_ahead *a, struct replan_job *jobs, uint32_t count);
/* Something better than the plan in use has been found; asked once. */
bool replan_ahead_better(struct replan_ahead *a);
/* Nothing is left to do: for tests. */
void replan_ahead_settle(struct replan_ahead *a);
pawl_code replan_ahead_find(struct replan_ahead *a, const struct replan_request *q, struct replan_answer *out,
                            bool *ahead, struct pawl_error *e);
/* Takes both over. */
void replan_ahead_keep(struct replan_ahead *a, struct replan_request *q, struct replan_answer *answer);

/* ---- all of it (replan.c; replan_use.c: the plan in use, and what may come after it) ---- */

struct replan {
    struct spec spec;
    uint32_t ranks, stages;
    struct replan_costs costs;
    struct replan_ahead *ahead; /* null: no thread */
    struct replan_cache cache;  /* without it */
    /* The plan in use: */
    uint32_t *role_of_rank; /* [ranks] */
    uint32_t *own;          /* [ranks] */
    bool *candidates;       /* [ranks] with a role, or spare */
    bool *asked;            /* [ranks] of the last question */
    uint64_t asked_generation;
    bool *holds; /* [ranks * stages] */
    struct replan_cast cast;
    struct replan_answer in_use; /* ir null: there is none yet; no moves */
    uint64_t made;               /* generation of the costs it was made or judged by */
    uint64_t generation;         /* of the costs for which ahead works, or for which it was compared */
    uint32_t decided;            /* iterations since */
    uint32_t looked;             /* iterations since ahead was told what to do */
};

pawl_code replan_cast_for(const struct replan *r, const struct replan_question *q, struct replan_cast *out,
                          struct pawl_error *e);
uint32_t replan_count(const struct replan *r, const struct replan_question *q); /* candidates */
/* What there is by today's costs for the roles of the plan in use, compared with it; NOT_FOUND: nothing new.
 */
pawl_code replan_compare(struct replan *r, const struct replan_cast *cast, struct replan_answer *out,
                         struct pawl_error *e);

#endif
