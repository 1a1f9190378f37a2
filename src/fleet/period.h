/* Private to fleet: the planner's answers, kept.
 *
 * How long an iteration takes depends on how many roles each stage lacks, far more than on which pipelines
 * lack them; so the planner is asked once for each policy and list of holes, with the holes spread over
 * pipelines in a fixed way, and the answer serves every scenario. The question is a function, so that tests
 * can answer by closed forms. Tested in tests/unit/fleet_period_test.c. */
#ifndef FLEET_PERIOD_H
#define FLEET_PERIOD_H

#include "fleet/policy.h"

struct fleet_period {
    uint64_t ns;          /* of an iteration; 0: it cannot run */
    uint32_t *holes;      /* [stages] after the moves that it advises; the callee fills it */
    uint64_t share_bytes; /* most state that one link carries for workers that help a neighbour stage */
};
typedef pawl_code fleet_ask(void *context, enum pawl_policy policy, const uint32_t *holes,
                            struct fleet_period *out, struct pawl_error *e);

pawl_code fleet_periods_open(uint32_t stages, fleet_ask *ask, void *context, struct fleet_periods **out,
                             struct pawl_error *e);
void fleet_periods_close(struct fleet_periods *p); /* accepts null */
/* The answer belongs to `p`. Errors: those of the question. */
pawl_code fleet_periods_get(struct fleet_periods *p, enum pawl_policy policy, const uint32_t *holes,
                            const struct fleet_period **out, struct pawl_error *e);
uint32_t fleet_periods_asked(const struct fleet_periods *p);

/* The question to the planner. */
struct fleet_planner {
    const struct fleet_job *job;
    uint64_t seed;
    const bool *stop;
};
pawl_code fleet_period_plan(void *planner, enum pawl_policy policy, const uint32_t *holes,
                            struct fleet_period *out, struct pawl_error *e);

#endif
