/* The parts of the baselines; plan.h says what they are. Tested in tests/golden/plan_baseline_test.c. */
#ifndef PLAN_BASELINE_H
#define PLAN_BASELINE_H

#include "plan/plan.h"

/* Micro-batches (of a chunk) that a worker of `stage` may store at once, by the policy; UINT32_MAX: any. */
uint32_t baseline_cap(enum pawl_policy policy, uint32_t stages, uint32_t stage, uint32_t chunks_per_stage);

/* B instead of I and W. */
bool baseline_is_fused(enum pawl_policy policy);

static inline uint32_t baseline_stage_of(const struct plan_route *route, uint32_t chunk) {
    return route->stage_of != NULL ? route->stage_of[chunk] : chunk % route->stages;
}

/* The policy's published order, of a route of one pipeline whose workers all live; the plan is empty so far
 * and gets no R and S. Errors: MEMORY. */
pawl_code baseline_published(enum pawl_policy policy, const struct plan_route *route, struct ir_plan *plan,
                             struct pawl_error *e);

/* A list schedule of any route under the policy's caps, likewise without R and S. */
struct baseline_greedy {
    enum pawl_policy policy;
    bool forward_first; /* an F that may start comes before an I or B that may */
    bool even;          /* every worker may store what the first stage may */
};
pawl_code baseline_greedy(const struct baseline_greedy *options, const struct plan_route *route,
                          const struct sim_costs *costs, struct ir_plan *plan, struct pawl_error *e);

#endif
