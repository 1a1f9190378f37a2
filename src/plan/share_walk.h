/* Between share_stage.c, share_walk.c and share_amounts.c: a walk along the pipeline that hands work on.
 *
 * What a stage hands to the next, in micro-batches: above 0, what its right helpers do of the next chunk;
 * below 0, what is left of its own chunk for the next stage's left helpers. */
#ifndef PLAN_SHARE_WALK_H
#define PLAN_SHARE_WALK_H

#include "plan/route.h"
#include "plan/share.h"

enum walk_side { WALK_LEFT, WALK_RIGHT };

struct walk_best {   /* way to a stage, with some number of helpers */
    int64_t hand_on; /* see above */
    uint32_t used;   /* helpers between this stage and the next */
    uint32_t before; /* helpers up to the stage before */
    bool possible;
};

struct walk_come {  /* what a stage has from the one before */
    int64_t handed; /* see above */
    uint32_t lefts; /* of its own workers, to do it */
};

struct walk {
    const struct share_request *request;
    uint32_t stages, pipelines;
    int64_t all;            /* micro-batches of a chunk */
    uint32_t *live;         /* [stages * pipelines] live workers of each stage, the preferred helpers first */
    uint32_t *count;        /* [stages] of them */
    uint64_t time;          /* T */
    int64_t *capacity;      /* [stages] micro-batches of their own chunk within T, without helping */
    int64_t *late_capacity; /* [stages] the same, where they begin late */
    uint64_t *late;         /* [stages] by how much: the first forward of the stage before, and its way */
    struct walk_best *best; /* [stages * (helpers + 1)] */
    uint32_t *used;         /* [stages] the chosen way */
    int64_t *hand_on;       /* [stages] */
    struct route_taker *taker; /* [pipelines] */
};

static inline uint32_t walk_worker(const struct walk *w, uint32_t stage, uint32_t i) {
    return w->live[(size_t)stage * w->pipelines + i];
}

static inline struct walk_come walk_come(int64_t hand_on, uint32_t used) {
    return (struct walk_come){hand_on, hand_on < 0 ? used : 0};
}

/* MEMORY. Close in any case. */
pawl_code walk_open(struct walk *w, const struct share_request *request, struct pawl_error *e);
void walk_close(struct walk *w);
/* Fewest helpers with which all is done within `time`; IR_NONE: more than there may be. w->best has the ways.
 */
uint32_t walk_time(struct walk *w, uint64_t time);

/* The i-th of a stage's helpers on a side, or IR_NONE. Those on the left are taken from the front; those on
 * the right are the next ones, so that nobody helps on both sides. */
uint32_t walk_helper(const struct walk *w, uint32_t stage, enum walk_side side, uint32_t lefts, uint32_t i);
/* Capacities within T, set by walk_time: */
void walk_capacities(struct walk *w, uint64_t time);
/* Fewest left helpers of a stage that can do so many of the chunk before it; IR_NONE: all are too few. */
uint32_t walk_lefts(const struct walk *w, uint32_t stage, int64_t pieces);
/* What the stage can do beyond its own chunk (below 0: lacks), with what was handed to it. */
int64_t walk_spare(const struct walk *w, uint32_t stage, const struct walk_come *come);
/* What so many right helpers can do of the next chunk, where the stage has `spare` without that; -1: nothing,
 * or they would be missed here. */
int64_t walk_rights(const struct walk *w, uint32_t stage, const struct walk_come *come, int64_t spare,
                    uint32_t rights);
/* What right helpers of a stage can do of the next chunk at most, each: the least of them. */
int64_t walk_right_least(const struct walk *w, uint32_t stage);
/* What is left over, in its own micro-batches, when it hands on `hand_on` by w->used[stage] helpers; below 0:
 * it cannot. */
int64_t walk_left_over(const struct walk *w, uint32_t stage, const struct walk_come *come, int64_t hand_on);

#endif
