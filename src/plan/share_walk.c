/* How much work crosses from stage to stage: a walk along the pipeline, for a time T.
 *
 * Within T a worker does so many micro-batches of its own chunk. Walking from the first stage to the last,
 * each stage hands a number to the next (share_walk.h). The larger that number the better for all that
 * follows, so of all ways to have used h helpers so far only the best is kept: a dynamic programme over
 * (stage, h). T is feasible if nothing is left at the end. Chains come out of it by themselves: a stage that
 * gives more than it can spare gets help from its other side. The work of a failure so reaches k stages by
 * k - 1 helpers, and each worker's load tends to all their work over all their live workers.
 *
 * A helper reduces two chunks, and all who hold them wait for it, so that of two stages that share one must
 * be done early (walk_order): a large part of an iteration where gradients take long. Along a chain the
 * stages take turns. So of the ways the best of each order is kept. Tested in tests/unit/plan_share_test.c.
 */
#include <stdlib.h>

#include "plan/share_walk.h"
#include "plan/ticks.h"

static void keep_best(struct walk *w, uint32_t stage, uint32_t helpers, enum walk_order order,
                      const struct walk_best *b) {
    if (helpers > w->request->helpers) return;
    struct walk_best *old = walk_best(w, stage, helpers, order);
    if (!old->possible || b->hand_on > old->hand_on) *old = *b;
}

/* More right helpers than can do all that any stage lacks are never needed. */
static uint32_t rights_max(const struct walk *w, uint32_t stage) {
    int64_t lack = 0, least = walk_right_least(w, stage);
    for (uint32_t s = stage + 1; s < w->stages; s++) {
        int64_t capacity = w->capacity[(size_t)s * WALK_SIZES * WALK_SIZES]; /* nothing early */
        if (capacity < w->all) lack += w->all - capacity;
    }
    if (lack == 0) return 0;
    int64_t enough = least > 0 ? lack / least + 2 : w->pipelines;
    return enough < w->count[stage] ? (uint32_t)enough : w->count[stage];
}

/* Left helpers of the next stage do what this one lacks. */
static void hand_lack(struct walk *w, uint32_t stage, uint32_t helpers, const struct walk_come *come,
                      enum walk_order order) {
    struct walk_early early = walk_early(come, -1, order);
    struct walk_best b = {
        .before = helpers, .from = come->order, .shifted = early.in == WALK_LESS, .possible = true};
    b.hand_on = walk_spare(w, stage, come, early);
    struct walk_come next = walk_come(&b, order);
    b.used = walk_lefts(w, stage + 1, &next);
    if (b.used != IR_NONE) keep_best(w, stage, helpers + b.used, order, &b);
}

/* All that the stage can hand on, coming from one way. */
static void walk_on(struct walk *w, uint32_t stage, uint32_t helpers, const struct walk_come *come,
                    uint32_t rights_most) {
    struct walk_early early = walk_early(come, 0, WALK_TOGETHER);
    bool lacks = walk_spare(w, stage, come, early) < 0;
    struct walk_best b = {
        .before = helpers, .from = come->order, .shifted = early.in == WALK_LESS, .possible = true};
    if (!lacks) keep_best(w, stage, helpers, WALK_TOGETHER, &b);
    for (int k = 0; k < WALK_ORDERS && stage + 1 < w->stages; k++) {
        enum walk_order order = (enum walk_order)k;
        if (!walk_may(w, stage, come, lacks ? -1 : 1, order)) continue;
        if (lacks) hand_lack(w, stage, helpers, come, order);
        for (b.used = 1; !lacks && b.used <= rights_most && helpers + b.used <= w->request->helpers;
             b.used++) {
            b.hand_on = walk_rights(w, stage, come, b.used, order);
            if (b.hand_on > 0) keep_best(w, stage, helpers + b.used, order, &b);
        }
    }
}

/* From every way to the stage before. */
static void walk_from(struct walk *w, uint32_t stage, uint32_t helpers, uint32_t rights) {
    for (int k = 0; k < WALK_ORDERS; k++) {
        const struct walk_best *b = walk_best(w, stage - 1, helpers, (enum walk_order)k);
        struct walk_come come = walk_come(b, (enum walk_order)k);
        if (b->possible) walk_on(w, stage, helpers, &come, rights);
    }
}

uint32_t walk_time(struct walk *w, uint64_t time) {
    uint32_t width = w->request->helpers + 1;
    walk_capacities(w, time);
    for (size_t i = 0; i < (size_t)w->stages * width * WALK_ORDERS; i++) w->best[i].possible = false;
    for (uint32_t s = 0; s < w->stages; s++) {
        uint32_t rights = s + 1 < w->stages ? rights_max(w, s) : 0;
        if (s == 0) walk_on(w, 0, 0, &(struct walk_come){0, 0, WALK_TOGETHER, false}, rights);
        for (uint32_t h = 0; s > 0 && h < width; h++) walk_from(w, s, h, rights);
    }
    for (uint32_t h = 0; h < width; h++)
        if (walk_best(w, w->stages - 1, h, WALK_TOGETHER)->possible) return h;
    return IR_NONE;
}

/* ---- the order of helpers ---- */

struct wish { /* the smallest first */
    double slow;
    uint32_t distance; /* from a dead role of its pipeline: what is missing is near, and of the same home */
    uint32_t worker;
};

static int wish_order(const void *a, const void *b) {
    const struct wish *x = a, *y = b;
    if (x->slow < y->slow || x->slow > y->slow) return x->slow < y->slow ? -1 : 1;
    if (x->distance != y->distance) return x->distance < y->distance ? -1 : 1;
    return x->worker < y->worker ? -1 : 1;
}

/* [workers] from a dead role of the same pipeline, on either side; where there is none, the stages. */
static void find_distances(const struct walk *w, uint32_t *distance) {
    const bool *alive = w->request->alive;
    for (uint32_t p = 0; p < w->pipelines; p++) {
        uint32_t first = p * w->stages, end = first + w->stages, far = w->stages;
        for (uint32_t i = first; i < end; i++) distance[i] = far = !alive[i] ? 0 : far + (far < w->stages);
        far = w->stages;
        for (uint32_t i = end; i-- > first;) {
            far = !alive[i] ? 0 : far + (far < w->stages);
            if (far < distance[i]) distance[i] = far;
        }
    }
}

static pawl_code order_helpers(struct walk *w, struct pawl_error *e) {
    const struct share_request *r = w->request;
    struct wish *wish = malloc(w->pipelines * sizeof *wish);
    uint32_t *distance = malloc((size_t)w->pipelines * w->stages * sizeof *distance);
    if (wish == NULL || distance == NULL) {
        free(wish);
        free(distance);
        return error_set(e, PAWL_MEMORY, 0, "plan: no memory to share a stage");
    }
    find_distances(w, distance);
    for (uint32_t s = 0; s < w->stages; s++) {
        uint32_t count = 0;
        for (uint32_t p = 0; p < w->pipelines; p++) {
            uint32_t worker = p * w->stages + s;
            double slow = r->costs->slow == NULL ? 1 : r->costs->slow[worker];
            if (r->alive[worker]) wish[count++] = (struct wish){slow, distance[worker], worker};
        }
        qsort(wish, count, sizeof *wish, wish_order);
        for (uint32_t i = 0; i < count; i++) w->live[(size_t)s * w->pipelines + i] = wish[i].worker;
        w->count[s] = count;
    }
    free(wish);
    free(distance);
    return PAWL_OK;
}

/* ---- the walk ---- */

static void find_units(struct walk *w) {
    for (uint32_t worker = 0; worker < w->pipelines * w->stages; worker++)
        for (uint32_t k = 0; k < 3; k++) {
            uint32_t chunk = worker % w->stages + k - 1; /* wraps where there is none before */
            if (chunk >= w->stages) continue;
            w->unit[worker * 3 + k] = route_unit(w->request->costs, worker, chunk);
            w->once[worker * 3 + k] = route_once(w->request->costs, worker, chunk);
        }
}

/* The first forward of the stage before, and its way here; R and S. */
static void find_late(struct walk *w) {
    const struct sim_costs *costs = w->request->costs;
    for (uint32_t s = 1; s < w->stages; s++) {
        uint64_t first = TICKS_NEVER;
        for (uint32_t k = 0; k < w->count[s - 1]; k++) {
            uint64_t forward = sim_duration(costs, walk_worker(w, s - 1, k), s - 1, IR_F);
            if (forward < first) first = forward;
        }
        w->late[s] = first + costs->chunk[s - 1].send_forward;
    }
    for (uint32_t s = 0; s < w->stages; s++)
        for (uint32_t k = 0; k < w->count[s]; k++) {
            uint64_t once = walk_once(w, walk_worker(w, s, k), s);
            if (once > w->tail[s]) w->tail[s] = once;
        }
}

pawl_code walk_open(struct walk *w, const struct share_request *request, struct pawl_error *e) {
    *w = (struct walk){
        .request = request, .stages = request->costs->stages, .pipelines = request->costs->pipelines};
    w->all = (int64_t)plan_batch_total(request->batch, w->pipelines);
    size_t stages = w->stages, width = (size_t)w->request->helpers + 1;
    w->live = malloc(stages * w->pipelines * sizeof *w->live);
    w->count = calloc(stages, sizeof *w->count);
    w->capacity = calloc(stages * WALK_SIZES * WALK_SIZES, sizeof *w->capacity);
    w->tail = calloc(stages, sizeof *w->tail);
    w->unit = calloc(stages * w->pipelines * 3, sizeof *w->unit);
    w->once = calloc(stages * w->pipelines * 3, sizeof *w->once);
    w->order = calloc(stages, sizeof *w->order);
    w->shifted = calloc(stages, sizeof *w->shifted);
    w->late = calloc(stages, sizeof *w->late);
    w->best = calloc(stages * width * WALK_ORDERS, sizeof *w->best);
    w->used = calloc(stages, sizeof *w->used);
    w->hand_on = calloc(stages, sizeof *w->hand_on);
    w->taker = malloc(w->pipelines * sizeof *w->taker);
    if (w->live == NULL || w->count == NULL || w->capacity == NULL || w->tail == NULL || w->unit == NULL ||
        w->once == NULL || w->order == NULL || w->shifted == NULL || w->late == NULL || w->best == NULL ||
        w->used == NULL || w->hand_on == NULL || w->taker == NULL)
        return error_set(e, PAWL_MEMORY, 0, "plan: no memory to share a stage");
    pawl_code code = order_helpers(w, e);
    find_units(w);
    if (code == PAWL_OK) find_late(w);
    return code;
}

void walk_close(struct walk *w) {
    free(w->live);
    free(w->count);
    free(w->capacity);
    free(w->tail);
    free(w->unit);
    free(w->once);
    free(w->order);
    free(w->shifted);
    free(w->late);
    free(w->best);
    free(w->used);
    free(w->hand_on);
    free(w->taker);
}
