/* How routes are made, between the files of route_*.c and share_*.c: equal work on unequal workers, and
 * numbers spread evenly. Pure; tested through plan_route_peers and plan_share_route. */
#ifndef PLAN_ROUTE_H
#define PLAN_ROUTE_H

#include "plan/plan.h"

/* The stage at which a chunk lies. */
static inline uint32_t route_stage_of(const struct plan_route *r, uint32_t chunk) {
    return r->stage_of != NULL ? r->stage_of[chunk] : chunk % r->stages;
}

/* Ticks of F, I and W of one micro-batch of a chunk on a worker. */
uint64_t route_unit(const struct sim_costs *costs, uint32_t worker, uint32_t chunk);
/* Ticks of R and S of a chunk on a worker. */
uint64_t route_once(const struct sim_costs *costs, uint32_t worker, uint32_t chunk);

/* One who can take equal pieces of work. */
struct route_taker {
    uint32_t worker;
    uint64_t load; /* ticks it has already */
    uint64_t unit; /* ticks of a piece, > 0 */
    uint64_t take; /* pieces; set by route_fill */
};
/* Least time within which `pieces` fit: the last to end ends first. TICKS_NEVER: no takers. */
uint64_t route_fill_time(const struct route_taker *takers, uint32_t count, uint64_t pieces);
/* Shares out so many pieces by that time; of what fits too much, those later in the array get less. */
void route_fill(struct route_taker *takers, uint32_t count, uint64_t pieces);

/* Is number `i` of `of` among the `chosen` that lie evenly spread? Exactly `chosen` of them are. */
static inline bool route_even(uint64_t i, uint64_t chosen, uint64_t of) {
    return ((2 * i + 2) * chosen + of) / (2 * of) > (2 * i * chosen + of) / (2 * of);
}

/* A sequence in which each worker comes as often as its share, at even distances. */
struct route_turn {
    uint32_t worker;
    uint64_t share, had;
};
struct route_turns { /* a heap, the earliest due first */
    struct route_turn *turn;
    uint32_t count;
};
/* Takes over the array (those with share 0 are dropped); route_turns_next until all shares are had: then
 * IR_NONE. */
void route_turns_init(struct route_turns *t, struct route_turn *turn, uint32_t count);
uint32_t route_turns_next(struct route_turns *t);

/* A micro-batch that nobody executes yet. */
struct route_orphan {
    uint32_t home, microbatch;
};
/* Those of a chunk whose host is IR_NONE, by number; the homes of a number in an order that turns from number
 * to number, so that whoever takes every n-th gets them from all homes. `out` has room for all. */
uint64_t route_orphans(const struct plan_route *route, uint32_t chunk, struct route_orphan *out);

#endif
