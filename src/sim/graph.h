/* A plan as a graph of what waits for what, in an order in which everything that is waited for comes first.
 *
 * Every node has a duration and at most two predecessors; it starts when the later of them has ended. That
 * is all that timing a plan needs, so a pass over the nodes is one loop without a branch for the kinds of
 * instructions: waits that are no instruction become nodes of no duration.
 *
 *   source    of every worker (and of every chunk, where workers of several stages hold one of them): the
 *             time before which nothing of it starts; the caller sets it, e.g. to another iteration's end
 *   list      an instruction's first predecessor is the one before it in the list
 *   message   F, I, B: its second is what the other end sends, `lag` later where that is another worker
 *   R         all holders of a chunk meet: a chain of waits, whose last is the second predecessor of each R
 *   O, L      a copy is a node beside the list, after the worker's last copy in that direction; O itself, and
 *             the I or B of a loaded micro-batch, come after a wait for it
 *
 * Built once in O(instructions), timed any number of times. Tested in tests/unit/sim_*. */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "sim/sim.h"

struct graph_node {
    uint64_t duration;
    uint64_t lag; /* of what comes from `message` */
    uint32_t before, message;
};

/* The end of a node bounds the last end of a group; groups: stages, then chunks. */
struct graph_mark {
    uint32_t node, group, worker;
};

struct graph {
    const struct ir_plan *plan;
    const struct sim_costs *costs;
    uint32_t workers;
    uint32_t instructions;
    uint32_t *first; /* [workers + 1] a worker's first instruction */
    uint32_t *of;    /* [instructions] their nodes; of O and L the copy */
    bool chunk_sources;
    uint32_t source_count; /* nodes 0 .. workers-1 and, with chunk_sources, one a chunk after them */
    uint32_t count;
    struct graph_node *node;
    struct graph_mark *mark;
    uint32_t mark_count;
};

/* Errors: ARGUMENT (sizes of plan and costs differ, too many instructions), MEMORY, PLAN (a worker is never
 * done: the plan has not passed ir_check). */
pawl_code graph_open(const struct ir_plan *plan, const struct sim_costs *costs, struct graph *out,
                     struct pawl_error *e);
void graph_close(struct graph *g); /* accepts what is empty */

/* The ends of all nodes, given those of the sources. With `origin`: the group of the source that a
 * node's end follows from, given those of the sources. */
void graph_pass(const struct graph *g, uint64_t *end);
void graph_pass_origin(const struct graph *g, uint64_t *end, uint16_t *origin);

#endif
