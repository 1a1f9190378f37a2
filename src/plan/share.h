/* Between the files of share_*.c: how much of which chunk each worker does, then which micro-batches.
 *
 * Only neighbours help: a worker of stage s may do part of chunk s - 1 (left) or of chunk s + 1 (right). */
#ifndef PLAN_SHARE_H
#define PLAN_SHARE_H

#include "plan/plan.h"

struct share_work { /* micro-batches of a worker */
    uint64_t own, left, right;
};
struct share_request {
    const struct sim_costs *costs; /* as many chunks as stages */
    struct plan_batch batch;
    const bool *alive; /* [workers]; every stage has one that lives */
    uint32_t helpers;
    const uint64_t *room; /* [workers] or null */
};

/* Amounts such that the busiest worker's ticks are least with at most so many helpers, and then of those the
 * fewest. `work` is [workers], `early` [stages], see plan_route; both are set by it. */
pawl_code share_amounts(const struct share_request *request, struct share_work *work, uint64_t *early,
                        struct pawl_error *e);

/* A route in which everybody does as much as `work` says: homes stay as far as possible, a helper rather does
 * two chunks of one micro-batch than of two, all at even distances. */
pawl_code share_place(const struct share_request *request, const struct share_work *work,
                      struct plan_route *route, struct pawl_error *e);

#endif
