/* Between share_stage.c, share_walk.c and share_amounts.c: a walk along the pipeline that hands work on.
 *
 * What a stage hands to the next, in micro-batches: above 0, what its right helpers do of the next chunk;
 * below 0, what is left of its own chunk for the next stage's left helpers. */
#ifndef PLAN_SHARE_WALK_H
#define PLAN_SHARE_WALK_H

#include "plan/route.h"
#include "plan/share.h"

enum walk_side { WALK_LEFT, WALK_RIGHT };

/* A helper executes the R and S of its two chunks one after the other, and an R is a barrier of all who hold
 * the chunk: so one of two stages that share has to be done with its gradients before the other is. */
enum walk_order {
    WALK_TOGETHER,   /* neither: nobody helps, or the later stage ends as much sooner anyway */
    WALK_THIS_FIRST, /* of a stage and the next */
    WALK_NEXT_FIRST,
    WALK_ORDERS
};

struct walk_best {        /* way to a stage, with some number of helpers, and an order there */
    int64_t hand_on;      /* see above */
    uint32_t used;        /* helpers between this stage and the next */
    uint32_t before;      /* helpers up to the stage before, ... */
    enum walk_order from; /* ... and the order there */
    bool shifted;         /* the stage is early already by what is shared before it */
    bool possible;
};

struct walk_come {  /* what a stage has from the one before */
    int64_t handed; /* see above */
    uint32_t lefts; /* of its own workers, to do it */
    enum walk_order order;
    bool shifted;
};

/* By how much the workers of a stage that do not help end early, by what is shared on either side: from not
 * at all to most. */
enum { WALK_NONE, WALK_LESS, WALK_MORE, WALK_MOST, WALK_SIZES };
struct walk_early {
    uint8_t in, out;
};

struct walk {
    const struct share_request *request;
    uint32_t stages, pipelines;
    int64_t all;            /* micro-batches of a chunk */
    uint32_t *live;         /* [stages * pipelines] live workers of each stage, the preferred helpers first */
    uint32_t *count;        /* [stages] of them */
    uint64_t time;          /* T */
    int64_t *capacity;      /* [stages * 4 * 4] micro-batches of their own chunk within T, without helping,
                             * by walk_early */
    uint64_t *late;         /* [stages] it begins later than the one before: by a forward, and its way */
    uint64_t *tail;         /* [stages] R and the slowest S */
    uint64_t *unit, *once;  /* [workers * 3] F, I and W of a micro-batch, R and S; of the chunk before, its
                             * own, the next */
    struct walk_best *best; /* [stages * (helpers + 1) * WALK_ORDERS] */
    uint32_t *used;         /* [stages] the chosen way */
    int64_t *hand_on;       /* [stages] */
    enum walk_order *order; /* [stages] of it and the next */
    bool *shifted;          /* [stages] */
    struct route_taker *taker; /* [pipelines] */
};

static inline uint32_t walk_worker(const struct walk *w, uint32_t stage, uint32_t i) {
    return w->live[(size_t)stage * w->pipelines + i];
}

static inline uint64_t walk_unit(const struct walk *w, uint32_t worker, uint32_t chunk) {
    return w->unit[worker * 3 + 1 + chunk - worker % w->stages];
}
static inline uint64_t walk_once(const struct walk *w, uint32_t worker, uint32_t chunk) {
    return w->once[worker * 3 + 1 + chunk - worker % w->stages];
}

static inline struct walk_come walk_come(const struct walk_best *b, enum walk_order order) {
    return (struct walk_come){b->hand_on, b->hand_on < 0 ? b->used : 0, order, b->shifted};
}

static inline struct walk_best *walk_best(const struct walk *w, uint32_t stage, uint32_t helpers,
                                          enum walk_order order) {
    return &w->best[((size_t)stage * (w->request->helpers + 1) + helpers) * WALK_ORDERS + order];
}

/* MEMORY. Close in any case. */
pawl_code walk_open(struct walk *w, const struct share_request *request, struct pawl_error *e);
void walk_close(struct walk *w);
/* Fewest helpers with which all is done within `time`; IR_NONE: more than there may be. w->best has the ways.
 */
uint32_t walk_time(struct walk *w, uint64_t time);

/* Of a stage that comes from one way and hands on in that order. */
struct walk_early walk_early(const struct walk_come *come, int64_t hand_on, enum walk_order order);
/* ... in ticks. */
uint64_t walk_early_ticks(const struct walk *w, uint32_t stage, struct walk_early early);
/* May a stage hand on in that order, having come from there? */
bool walk_may(const struct walk *w, uint32_t stage, const struct walk_come *come, int64_t hand_on,
              enum walk_order order);

/* The i-th of a stage's helpers on a side, or IR_NONE. Those on the left are taken from the front; those on
 * the right are the next ones, so that nobody helps on both sides. */
uint32_t walk_helper(const struct walk *w, uint32_t stage, enum walk_side side, uint32_t lefts, uint32_t i);
/* Capacities within T, set by walk_time: */
void walk_capacities(struct walk *w, uint64_t time);
/* Fewest left helpers of a stage that can do what is handed to it, whatever their number there; IR_NONE: all
 * are too few. */
uint32_t walk_lefts(const struct walk *w, uint32_t stage, const struct walk_come *come);
/* What the stage can do beyond its own chunk (below 0: lacks), with what was handed to it. */
int64_t walk_spare(const struct walk *w, uint32_t stage, const struct walk_come *come,
                   struct walk_early early);
/* What so many right helpers can do of the next chunk in that order; -1: nothing, or they would be missed
 * here. */
int64_t walk_rights(const struct walk *w, uint32_t stage, const struct walk_come *come, uint32_t rights,
                    enum walk_order order);
/* What right helpers of a stage can do of the next chunk at most, each: the least of them. */
int64_t walk_right_least(const struct walk *w, uint32_t stage);
/* What is left over, in its own micro-batches, when it hands on `hand_on` by w->used[stage] helpers; below 0:
 * it cannot. */
int64_t walk_left_over(const struct walk *w, uint32_t stage, const struct walk_come *come, int64_t hand_on);

#endif
