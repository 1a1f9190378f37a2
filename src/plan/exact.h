/* Private to the exact engines: the schedule as tasks, arcs and pairs, whole numbers throughout.
 *
 * A node is a task (one F, I, W, B, R or S) or a mark: the first start and the last end of a group, whose
 * distance is what is minimised. Unknown are the start of every node, the order of every pair that shares a
 * worker and is not ordered by arcs, and, with free routes, who executes an orphan (a choice).
 *
 *   arc   start[to] >= start[from] + lag, if its choices (at most two) are made
 *   pair  a ends before b starts, or b before a, if both are on the same worker
 *   group start[last] - start[first] <= the period; a barrier is one group of everything
 *
 * Time is counted in units: `scale` units are the greatest common divisor of all times. With a barrier the
 * best period is a multiple of the divisor (a longest path; scale 1). Staggered, the period of given lists is
 * the largest ratio of a cycle's length and the number q of groups that it passes; a cycle passes each group
 * at most once. With scale the least common multiple of 1..groups all such ratios are whole numbers of units,
 * so that no period lies between two. Of more than 8 groups a period that is no multiple of the divisor is
 * never called proven: for multiples it suffices to refute one unit less, as 1/q of the divisor is at least a
 * unit.
 *
 * Without loss: jobs (micro-batches) that are executed by the same workers at every chunk form a class. Sort
 * the starts of each operation of a class at each chunk and give the k-th to the k-th job. If a_j + d <= b_j
 * for all j, then so it is for the sorted ones; the times at which workers are busy and the number of stored
 * micro-batches stay the same. So in a class every operation goes by the job's number. Likewise W of equal
 * cells of a worker can be exchanged, since only the worker's memory and R wait for them: they go in the
 * order of their I, across classes too.
 * Tested in tests/unit/plan_exact_test.c, against another solver in tests/e2e/plan_exact_test.py. */
#ifndef PLAN_EXACT_H
#define PLAN_EXACT_H

#include "plan/plan.h"

#define EXACT_NONE      UINT32_MAX
#define EXACT_RATIO_MAX 8u /* lcm(1..8) = 840 units */

struct exact_task {
    enum ir_op op;
    uint32_t chunk, home, microbatch; /* home and microbatch: EXACT_NONE of R and S */
    uint32_t worker;                  /* EXACT_NONE: its cell is free */
    uint32_t cell;                    /* EXACT_NONE of R and S */
    int64_t duration;                 /* the least of its choices */
};
struct exact_choice { /* `worker` may execute the orphan `cell` */
    uint32_t cell, worker;
};
struct exact_arc {
    uint32_t from, to;
    int64_t lag;
    uint32_t if_first, if_second; /* choices, or EXACT_NONE */
};
struct exact_pair {
    uint32_t a, b;
    uint32_t literal; /* pairs of one literal have the same order: true is a first */
};
struct exact_shared { /* the pair excludes each other if both choices (or EXACT_NONE) are made */
    uint32_t pair, if_a, if_b;
    int64_t a_length, b_length; /* durations there */
};
struct exact_group {
    uint32_t first, last;  /* nodes */
    uint32_t stage, chunk; /* of the tasks; both EXACT_NONE: all */
};
struct exact_cell {
    uint32_t task;                       /* of its F; I and W, or B, follow */
    uint32_t class, number;              /* number in the class */
    uint32_t choice_first, choice_count; /* count 0: not free */
    uint64_t full, after;                /* stored from F on; from I on */
};
struct exact_store { /* a worker whose memory is limited and whose cells are not one simple sequence */
    uint32_t worker;
    uint32_t cell_count, *cells;
    uint64_t limit;
};
/* One of two must hold: `a` before `b`, or `c` before `d` (memory of a simple sequence). */
struct exact_either {
    uint32_t a, b, c, d;
};

struct exact_model {
    const struct plan_route *route;
    const struct sim_costs *costs;
    bool fused, staggered, free_route;
    uint32_t task_count, node_count; /* tasks, then marks */
    uint32_t cell_count, arc_count, arc_room, pair_count, pair_room, shared_count, shared_room;
    uint32_t choice_count, group_count, store_count, either_count, either_room, literal_count;
    struct exact_task *tasks;
    struct exact_cell *cells; /* index as plan_route_cell */
    struct exact_arc *arcs;
    struct exact_pair *pairs;
    struct exact_shared *shared;
    struct exact_choice *choices;
    struct exact_group *groups;
    struct exact_store *stores;
    struct exact_either *either;
    uint32_t *pair_of;  /* [a * task_count + b], a < b: index, or EXACT_NONE: not a pair */
    uint64_t *reach;    /* [task] bit set of the tasks that arcs order after it; reach_words each */
    uint32_t *topology; /* [task] rank in an order that all arcs respect */
    uint32_t reach_words;
    uint64_t divisor; /* ticks */
    uint32_t scale;   /* units per divisor */
    int64_t horizon;  /* no start needs to be later */
    uint32_t anchor;  /* group with all forwards of chunk 0; it begins at 0, everything else later */
};

/* ARGUMENT: sizes or hosts of route and costs do not fit; UNSUPPORTED: too large for any exact engine. */
pawl_code exact_model_new(const struct plan_route *route, const struct sim_costs *costs,
                          const struct plan_exact_options *options, struct exact_model **out,
                          struct pawl_error *e);
void exact_model_free(struct exact_model *m);
/* Room for one more in an array of `count` entries of `size` bytes; MEMORY. */
pawl_code exact_grow(void **array, uint32_t count, uint32_t *room, size_t size, struct pawl_error *e);
pawl_code exact_arc_add(struct exact_model *m, struct exact_arc arc, struct pawl_error *e);
pawl_code exact_memory(struct exact_model *m, struct pawl_error *e); /* limits as arcs, either, stores */
pawl_code exact_pairs(struct exact_model *m, struct pawl_error *e);
int64_t exact_duration_on(const struct exact_model *m, uint32_t worker, uint32_t chunk, enum ir_op op);
bool exact_may_run_on(const struct exact_model *m, uint32_t task, uint32_t worker, uint32_t *choice);
/* Is `a` before `b`? By arcs: EXACT_YES or EXACT_NO; else a literal (index) that says so as it is, or
 * negated. Not a pair: EXACT_UNKNOWN. */
enum exact_known { EXACT_YES, EXACT_NO, EXACT_LITERAL, EXACT_NEGATED, EXACT_UNKNOWN };
enum exact_known exact_order(const struct exact_model *m, uint32_t a, uint32_t b, uint32_t *literal);
static inline bool exact_before(const struct exact_model *m, uint32_t a, uint32_t b) {
    return (m->reach[(uint64_t)a * m->reach_words + b / 64] >> (b % 64) & 1) != 0;
}
static inline uint32_t exact_ops(const struct exact_model *m) { return m->fused ? 2 : 3; }
static inline uint64_t exact_ticks(const struct exact_model *m, int64_t units) { /* rounded up */
    return ((uint64_t)units * m->divisor + m->scale - 1) / m->scale;
}
/* The largest number of units that is not more than so many ticks. */
static inline int64_t exact_units(const struct exact_model *m, uint64_t ticks) {
    return (int64_t)(ticks / m->divisor * m->scale + ticks % m->divisor * m->scale / m->divisor);
}

/* What is known of all schedules whose period is at most `period`. Times mean something only in relation to
 * others: each view counts them from the first start of one group, and knows best what is near. */
struct exact_state {
    int64_t *early, *late; /* [groups * nodes] start; the view of group 0, of group 1 ... */
    int8_t *order;         /* [literals] 1: a first, -1: b first, 0: open */
    int8_t *made;          /* [choices] 1, -1 or 0 */
};
struct exact_view {
    int64_t *early, *late; /* [nodes] */
};
static inline struct exact_view exact_view(const struct exact_model *m, const struct exact_state *s,
                                           uint32_t group) {
    uint64_t at = (uint64_t)group * m->node_count;
    return (struct exact_view){s->early + at, s->late + at};
}
pawl_code exact_state_new(const struct exact_model *m, struct exact_state **out, struct pawl_error *e);
void exact_state_copy(const struct exact_model *m, struct exact_state *to, const struct exact_state *from);
void exact_state_free(struct exact_state *s);

/* Narrow the state until nothing changes: arcs, pairs, edge finding on every worker, memory. Holds its own
 * scratch memory. False: no such schedule. */
struct exact_prune;
pawl_code exact_prune_new(const struct exact_model *m, struct exact_prune **out, struct pawl_error *e);
void exact_prune_free(struct exact_prune *p);
bool exact_prune_run(struct exact_prune *p, int64_t period, struct exact_state *s);

/* A schedule: start of every node, choice made of every free cell. */
struct exact_schedule {
    int64_t *start;   /* [nodes] */
    uint32_t *worker; /* [cells] */
};
/* Lists by start times, with R and S; ir_check and sim_run decide what it is worth (`period`, ticks). */
pawl_code exact_plan(const struct exact_model *m, const struct exact_schedule *schedule,
                     const struct plan_exact_options *options, struct ir_plan **out, uint64_t *period,
                     struct pawl_error *e);
/* ir_check with the limits, then sim_run: the period; `times` may be null. */
pawl_code exact_check(const struct ir_plan *plan, const struct sim_costs *costs, bool staggered,
                      uint64_t *period, struct sim_result *times, struct pawl_error *e);
/* The seed's times in the model's terms; false in `usable` where it holds what the model does not have
 * (recomputation, offloading). */
pawl_code exact_seed(const struct exact_model *m, const struct ir_plan *seed, const struct sim_result *times,
                     struct exact_schedule *out, bool *usable, struct pawl_error *e);
pawl_code exact_schedule_new(const struct exact_model *m, struct exact_schedule *out, struct pawl_error *e);
void exact_schedule_close(struct exact_schedule *s);

/* The run: what all engines share. */
struct exact_run {
    const struct exact_model *model;
    const struct plan_exact_options *options;
    struct exact_prune *prune;
    struct ir_plan *best;       /* null: the seed */
    uint64_t period;            /* ticks, of the best */
    uint64_t bound;             /* ticks, proven */
    int64_t low;                /* units: no period below */
    struct exact_schedule seed; /* of the best known */
    bool seed_usable, engine_only;
    int64_t started_ns, deadline_ns;
};
/* plan_exact; `engine_only`: without branching first, to test and measure an engine by itself. */
pawl_code exact_make(const struct plan_route *route, const struct sim_costs *costs,
                     const struct ir_plan *seed, const struct plan_exact_options *options, bool engine_only,
                     struct plan_exact_result *out, struct pawl_error *e);
bool exact_run_over(const struct exact_run *run); /* time is up, or stop was raised */
bool exact_run_stopped(const struct exact_run *run);
double exact_run_seconds(const struct exact_run *run);
/* Units that an improvement may have at most; below `low`: nothing is left to improve. */
int64_t exact_run_high(const struct exact_run *run);
/* A schedule of at most `claimed` units was found: keeps it if it is better, and tells. INTERNAL: it is not
 * what it claims. */
pawl_code exact_run_found(struct exact_run *run, const struct exact_schedule *schedule, int64_t claimed,
                          struct pawl_error *e);
/* Nothing below `low` units exists. */
void exact_run_raise(struct exact_run *run, int64_t low);

/* Engines: improve run->best and run->low until they meet or the run is over. */
pawl_code exact_z3(struct exact_run *run, struct pawl_error *e);
pawl_code exact_cbc(struct exact_run *run, struct pawl_error *e);
/* Branch and bound over the pairs by the pruning above alone; at most `seconds`, cheap where memory is
 * tight. */
pawl_code exact_branch(struct exact_run *run, double seconds, struct pawl_error *e);

#endif
