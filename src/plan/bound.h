/* Between the files of bound_*.c: the way through all chunks at its fastest, and one worker's bound on it.
 * The reasoning is in bound.c. */
#ifndef PLAN_BOUND_H
#define PLAN_BOUND_H

#include "plan/plan.h"

struct bound_chunk {
    /* Least over those who execute it; fused: back is I and W, weight is 0. */
    uint64_t forward, back, weight, once, send_forward, send_backward;
    /* From chunk 0's F to this F; from this I to chunk 0's, included; from the end of this F to its I. */
    uint64_t down, up, away;
    uint64_t head;        /* the window's begin to the first F */
    uint64_t outer;       /* most over r of head(r,s) + tail(r,s); 0 for the first chunk */
    uint32_t held_before; /* earliest stage whose window R must be in, or the chunk's own: see bound.c */
};
struct bound_way {
    const struct sim_costs *costs;
    const struct plan_list_options *options;
    struct bound_chunk *chunk; /* [chunks] */
};
/* MEMORY, without an error text: bounds have nobody to tell. Close in any case. */
pawl_code bound_way_init(struct bound_way *way, const struct sim_costs *costs,
                         const struct plan_list_options *options);
void bound_way_executes(struct bound_way *way, uint32_t worker, uint32_t chunk);
void bound_way_is_near(struct bound_way *way, uint32_t chunk); /* some host has chunk and chunk + 1 */
/* Somebody of an earlier stage holds the chunk, and all forwards of that stage's own chunk are done there. */
void bound_way_holds_before(struct bound_way *way, uint32_t chunk, uint32_t stage);
/* After every chunk has somebody who executes it. */
void bound_way_finish(struct bound_way *way);
void bound_way_close(struct bound_way *way);

/* What a worker does of all its chunks. */
struct bound_load {
    uint32_t chunk;      /* the first of them */
    uint32_t kinds;      /* how many of them */
    uint64_t n;          /* micro-batches, of the last one */
    uint64_t work, late; /* ticks of F, I, W; of W alone (0: fused) */
    uint64_t once;       /* R and S of what it holds */
};
uint64_t bound_single(const struct bound_way *way, uint32_t worker, uint32_t chunk, uint64_t n);
uint64_t bound_several(const struct bound_way *way, const struct bound_load *load);

#endif
