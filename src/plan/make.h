/* What the files behind pawl_plan_make share: the problem as it is narrowed down, from the request to the
 * plan. Private to make*.c and costs.c. */
#ifndef PLAN_MAKE_H
#define PLAN_MAKE_H

#include "base/bytes.h"
#include "plan/plan.h"

#define PLAN_MIN_GAIN     0.02  /* of a move */
#define PLAN_HELP_GAIN    0.005 /* of more helpers: a copy is paid back within some hundred iterations */
#define PLAN_EXACT_S      60.0
#define PLAN_CHUNKS       2u /* of a stage, interleaved and zb-v */
#define PLAN_CHUNKS_MAX   64u
#define PLAN_WARNINGS_MAX 4096u

/* The ablations of ReCycle and pawl itself order freely; the baselines have an order of their own. */
static inline bool plan_is_listed(enum pawl_policy policy) { return policy >= PAWL_POLICY_ADAPTIVE; }
uint32_t plan_chunks_per_stage(const struct pawl_plan_request *r);

struct make {
    const struct pawl_plan_request *request;
    struct pawl_error *e;
    double min_gain, help_gain;
    uint32_t worker_count;
    struct plan_batch batch;
    bool *dead; /* [workers] as the request names them */
    struct sim_costs *costs;
    uint32_t *stage_of; /* [chunks], or null: chunk c at stage c */
    bool stay;          /* nobody moves in this attempt */
    bool own_stages; /* from here on nobody may execute another stage's chunks, though the policy lets them */
    struct plan_normal normal;
    struct plan_route *route;
    struct plan_helper *helpers;
    uint32_t helper_count;
    struct plan_list_options list;
    struct ir_plan *ir;
    struct sim_result times;
    uint64_t bound;
    bool searched;
    struct plan_exact_result exact;
    bool exact_ran;
    struct bytes warnings;
};

/* A line of pawl_plan_warnings. */
void make_warn(struct make *m, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* make.c. _open: the request checked, its costs. _attempt: from who is dead to a plan, as far as it is
 * ordered without search. _forget: the attempt. */
pawl_code make_open(struct make *m);
pawl_code make_attempt(struct make *m);
void make_forget(struct make *m);
void make_close(struct make *m);
/* make_no_longer.c: the plan in `m`, or that of the policy before it where that is shorter. */
pawl_code make_no_longer(struct make *m);

/* make_check.c: the request as such; ARGUMENT names the field. Also sets the defaults in `m`. */
pawl_code make_check(struct make *m);
/* costs.c: memory of every worker's device, 0: not known; malloc'ed, null without memory. */
uint64_t *plan_device_bytes(const struct pawl_plan_request *request);
bool plan_costs_in_bytes(const struct pawl_plan_request *request);
/* What costs could not say: memory not known, recomputing not possible. Sets what the list may use. */
void plan_costs_warn(struct make *m);

/* make_route.c: who is dead, who moves, who executes what. */
pawl_code make_normalize(struct make *m);
pawl_code make_route(struct make *m);
/* make_order.c: the best order of a route after so many rounds of search, and its times. */
void make_options(struct make *m);
pawl_code make_order(struct make *m, const struct plan_route *route, uint32_t rounds, struct ir_plan **ir,
                     struct sim_result *times);
bool make_is_stopped(const struct make *m); /* what there is must do */
/* Searches for a better order of m->route, as the budget says, if there may be one. */
pawl_code make_search(struct make *m);
bool make_peers_only(const struct make *m); /* nobody executes chunks of another stage than its own */
uint64_t make_bound(const struct make *m);
pawl_code make_exact(struct make *m);
/* Is there time left, and a gap? Then lists may be searched for so long. */
bool make_has_time(struct make *m, int64_t until_ns);
/* make_share.c: stages shared beyond the peers, where that pays. */
pawl_code make_share(struct make *m);
/* So many rounds for each other number of helpers with which the plan may be shorter; the best is kept. *any
 * becomes true if there is one. */
pawl_code make_other_routes(struct make *m, uint32_t rounds, int64_t until_ns, bool *any);
/* make_free.c: period of the same policy without failures. */
pawl_code make_fault_free(struct make *m, uint64_t *out);

#endif
