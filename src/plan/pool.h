/* How long a set of workers needs at least for a set of chunks, whoever of them executes what. */
#ifndef PLAN_POOL_H
#define PLAN_POOL_H

#include "plan/plan.h"

struct pool {
    const struct sim_costs *costs;
    const bool *alive;                 /* [workers], or null: all */
    uint32_t first_stage, stage_count; /* their live workers, and the chunks c with c % stages among them */
};
/* TICKS_NEVER: nobody lives. 0 where there is no memory to say more. */
uint64_t pool_time(const struct pool *pool, struct plan_batch batch);

#endif
