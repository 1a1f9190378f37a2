/* The state in which a graph is built: indexes made by graph.c, used by graph_build.c. Private to graph.h. */
#ifndef SIM_GRAPH_BUILD_H
#define SIM_GRAPH_BUILD_H

#include "sim/graph.h"

#define GRAPH_NONE UINT32_MAX

struct graph_build {
    struct graph *g;
    const struct ir_plan *plan;
    uint32_t *forward, *backward; /* [cells] instruction F, and I or B */
    uint32_t *offload, *load;     /* [cells] instruction O; node of the copy back; null if there are none */
    struct graph_worker *worker;  /* [workers] */
    struct graph_chunk *chunk;    /* [chunks] */
    uint32_t *touched;            /* [all holds] last node of a worker for a chunk that it holds */
    uint32_t *stack, stack_count; /* workers that can go on; each at most once */
};
struct graph_worker {
    uint32_t cursor;    /* next instruction of its list */
    uint32_t last;      /* node that the next comes after */
    uint32_t waits_for; /* instruction whose message it needs, or GRAPH_NONE */
    uint32_t copy_out;  /* its last copies, or GRAPH_NONE */
    uint32_t copy_in;
    uint32_t touched;    /* its first place in touched */
    uint32_t gate_after; /* next worker that waits at the same gate, or GRAPH_NONE */
};
struct graph_chunk {
    uint32_t missing; /* holders that have not come to their R */
    uint32_t gate;    /* last node of the chain of those who have, or GRAPH_NONE */
    uint32_t waiting; /* first worker that waits there, or GRAPH_NONE */
    uint32_t stage;   /* of a holder, or GRAPH_NONE */
    bool spread;      /* there are holders of other stages */
};

/* Cells, the (home, chunk, micro-batch) of an instruction, are numbered flat, so that both ends of a message
 * are found by an index. */
static inline uint64_t graph_cell(const struct ir_plan *plan, uint32_t home, uint32_t chunk,
                                  uint32_t microbatch) {
    return ((uint64_t)home * plan->chunks + chunk) * plan->microbatches + microbatch;
}

/* Emit the nodes of all instructions. PLAN: a worker waits for ever. */
pawl_code graph_build(struct graph_build *b, struct pawl_error *e);

#endif
