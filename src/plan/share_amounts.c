/* How much work crosses from stage to stage: a walk along the pipeline, for a time T that is bisected.
 *
 * Within T a worker does so many micro-batches of its own chunk. Walking from the first stage to the last,
 * each stage hands a number to the next: above 0, what its right helpers do of the next chunk; below 0, what
 * is left of its own chunk for the next stage's left helpers. The larger that number the better for all that
 * follows, so of all ways to have used h helpers so far only the best is kept: a dynamic programme over
 * (stage, h). T is feasible if nothing is left at the end. Chains come out of it by themselves: a stage that
 * gives more than it can spare gets help from its other side. The work of a failure so reaches k stages by k
 * - 1 helpers, and each worker's load tends to all their work over all their live workers.
 *
 * Bisection is exact but for one rounding: a helper's time is cut into whole micro-batches of two chunks. At
 * the least T the fewest helpers are taken, and then each amount handed on is reduced as far as
 * what follows allows. Tested in tests/unit/plan_share_test.c against all amounts of small cases. */
#include <stdlib.h>

#include "plan/route.h"
#include "plan/share.h"
#include "plan/ticks.h"

enum side { LEFT, RIGHT };

struct best {        /* way to a stage, with some number of helpers */
    int64_t hand_on; /* see above */
    uint32_t used;   /* helpers between this stage and the next */
    uint32_t before; /* helpers up to the stage before */
    bool possible;
};

struct walk {
    const struct share_request *request;
    uint32_t stages, pipelines;
    int64_t all;       /* micro-batches of a chunk */
    uint32_t *live;    /* [stages * pipelines] live workers of each stage, the preferred helpers first */
    uint32_t *count;   /* [stages] of them */
    uint64_t time;     /* T */
    int64_t *capacity; /* [stages] micro-batches of their own chunk within T, without helping */
    struct best *best; /* [stages * (helpers + 1)] */
    uint32_t *used;    /* [stages] the chosen way */
    int64_t *hand_on;  /* [stages] */
    struct route_taker *taker; /* [pipelines] */
};

static uint32_t worker_at(const struct walk *w, uint32_t stage, uint32_t i) {
    return w->live[(size_t)stage * w->pipelines + i];
}

/* Whole micro-batches in so many ticks; no more than there are. */
static int64_t pieces_in(const struct walk *w, uint64_t ticks, uint32_t worker, uint32_t chunk) {
    uint64_t pieces = ticks / route_unit(w->request->costs, worker, chunk);
    return pieces < (uint64_t)w->all ? (int64_t)pieces : w->all;
}

static uint64_t own_ticks(const struct walk *w, uint32_t worker) {
    return ticks_less(w->time, route_once(w->request->costs, worker, worker % w->stages));
}

/* ... of one that holds `chunk` as well. */
static uint64_t helper_ticks(const struct walk *w, uint32_t worker, uint32_t chunk) {
    return ticks_less(own_ticks(w, worker), route_once(w->request->costs, worker, chunk));
}

static int64_t own_pieces(const struct walk *w, uint32_t worker) {
    return pieces_in(w, own_ticks(w, worker), worker, worker % w->stages);
}

static bool has_room(const struct walk *w, uint32_t worker, uint32_t chunk) {
    const struct share_request *r = w->request;
    return r->room == NULL || r->room[worker] >= r->costs->chunk[chunk].state;
}

/* The i-th of a stage's helpers on a side, or IR_NONE. Those on the left are taken from the front; those on
 * the right are the next ones, so that nobody helps on both sides. */
static uint32_t helper_at(const struct walk *w, uint32_t stage, enum side side, uint32_t lefts, uint32_t i) {
    uint32_t left_seen = 0;
    for (uint32_t k = 0; k < w->count[stage]; k++) {
        uint32_t worker = worker_at(w, stage, k);
        bool is_left = left_seen < lefts && stage > 0 && has_room(w, worker, stage - 1);
        if (is_left) left_seen++;
        bool fits = side == LEFT ? is_left : !is_left && has_room(w, worker, stage + 1);
        if (fits && i-- == 0) return worker;
    }
    return IR_NONE;
}

/* Fewest left helpers of a stage that can do so many of the chunk before it; IR_NONE: all are too few. */
static uint32_t lefts_needed(const struct walk *w, uint32_t stage, int64_t pieces) {
    uint32_t lefts = 0;
    for (uint32_t k = 0; k < w->count[stage] && pieces > 0; k++) {
        uint32_t worker = worker_at(w, stage, k);
        if (!has_room(w, worker, stage - 1)) continue;
        pieces -= pieces_in(w, helper_ticks(w, worker, stage - 1), worker, stage - 1);
        lefts++;
    }
    return pieces > 0 ? IR_NONE : lefts;
}

/* Change of the stage's own capacity when its left helpers do what was handed to it. */
static int64_t after_lefts(const struct walk *w, uint32_t stage, int64_t pieces, uint32_t lefts) {
    int64_t change = 0;
    for (uint32_t i = 0; i < lefts; i++) {
        uint32_t worker = helper_at(w, stage, LEFT, lefts, i);
        uint64_t ticks = helper_ticks(w, worker, stage - 1);
        int64_t most = pieces_in(w, ticks, worker, stage - 1), share = (pieces + lefts - i - 1) / (lefts - i);
        int64_t rest_can = 0; /* what those after it cannot do it must */
        for (uint32_t k = i + 1; k < lefts; k++) {
            uint32_t later = helper_at(w, stage, LEFT, lefts, k);
            rest_can += pieces_in(w, helper_ticks(w, later, stage - 1), later, stage - 1);
        }
        if (share < pieces - rest_can) share = pieces - rest_can;
        if (share > most) share = most;
        pieces -= share;
        ticks -= (uint64_t)share * route_unit(w->request->costs, worker, stage - 1);
        change += pieces_in(w, ticks, worker, stage) - own_pieces(w, worker);
    }
    return change;
}

/* What right helpers can do of the next chunk, when the stage lacks `lack` of its own without them; -1:
 * nothing, or they would be missed here. */
static int64_t by_rights(const struct walk *w, uint32_t stage, uint32_t lefts, int64_t spare,
                         uint32_t rights) {
    int64_t done = 0, lack;
    for (uint32_t i = 0; i < rights; i++) {
        uint32_t worker = helper_at(w, stage, RIGHT, lefts, i);
        if (worker == IR_NONE) return -1;
        spare -= own_pieces(w, worker);
    }
    lack = spare < 0 ? -spare : 0;
    for (uint32_t i = 0; i < rights; i++) {
        uint32_t worker = helper_at(w, stage, RIGHT, lefts, i);
        uint64_t ticks = helper_ticks(w, worker, stage + 1);
        int64_t most = pieces_in(w, ticks, worker, stage), own = (lack + rights - i - 1) / (rights - i);
        if (own > most) own = most;
        lack -= own;
        ticks -= (uint64_t)own * route_unit(w->request->costs, worker, stage);
        done += pieces_in(w, ticks, worker, stage + 1);
    }
    if (lack > 0 || done <= 0) return -1;
    return done < w->all ? done : w->all;
}

/* What the stage has left (below 0: lacks) of its own chunk's capacity, with what was handed to it. */
static int64_t spare_of(const struct walk *w, uint32_t stage, int64_t handed, uint32_t lefts) {
    int64_t spare = w->capacity[stage] - w->all;
    if (handed > 0) return spare + handed;
    return handed == 0 ? spare : spare + after_lefts(w, stage, -handed, lefts);
}

static void keep_best(struct walk *w, uint32_t stage, uint32_t helpers, const struct best *b) {
    if (helpers > w->request->helpers) return;
    struct best *old = &w->best[(size_t)stage * (w->request->helpers + 1) + helpers];
    if (!old->possible || b->hand_on > old->hand_on) *old = *b;
}

/* More right helpers than can do all that any stage lacks are never needed. */
static uint32_t rights_max(const struct walk *w, uint32_t stage) {
    int64_t lack = 0, least = w->all;
    for (uint32_t s = stage + 1; s < w->stages; s++)
        if (w->capacity[s] < w->all) lack += w->all - w->capacity[s];
    for (uint32_t k = 0; k < w->count[stage]; k++) {
        uint32_t worker = worker_at(w, stage, k);
        int64_t can = pieces_in(w, helper_ticks(w, worker, stage + 1), worker, stage + 1);
        if (can < least) least = can;
    }
    if (lack == 0) return 0;
    int64_t enough = least > 0 ? lack / least + 2 : w->pipelines;
    return enough < w->count[stage] ? (uint32_t)enough : w->count[stage];
}

/* All that the stage can hand on, coming from one way. */
static void walk_on(struct walk *w, uint32_t stage, uint32_t helpers, int64_t handed, uint32_t lefts,
                    uint32_t rights_most) {
    int64_t spare = spare_of(w, stage, handed, lefts);
    struct best b = {.hand_on = 0, .used = 0, .before = helpers, .possible = true};
    if (spare < 0) {
        if (stage + 1 == w->stages) return;
        b.used = lefts_needed(w, stage + 1, -spare);
        b.hand_on = spare;
        if (b.used != IR_NONE) keep_best(w, stage, helpers + b.used, &b);
        return;
    }
    keep_best(w, stage, helpers, &b);
    for (b.used = 1; b.used <= rights_most && helpers + b.used <= w->request->helpers; b.used++) {
        b.hand_on = by_rights(w, stage, lefts, spare, b.used);
        if (b.hand_on > 0) keep_best(w, stage, helpers + b.used, &b);
    }
}

static uint32_t lefts_of(const struct best *b) { return b->hand_on < 0 ? b->used : 0; }

/* Fewest helpers with which all is done within `time`; IR_NONE: more than there may be. */
static uint32_t walk_time(struct walk *w, uint64_t time) {
    uint32_t width = w->request->helpers + 1;
    w->time = time;
    for (uint32_t s = 0; s < w->stages; s++) {
        w->capacity[s] = 0;
        for (uint32_t k = 0; k < w->count[s]; k++) w->capacity[s] += own_pieces(w, worker_at(w, s, k));
    }
    for (size_t i = 0; i < (size_t)w->stages * width; i++) w->best[i].possible = false;
    for (uint32_t s = 0; s < w->stages; s++) {
        uint32_t rights = s + 1 < w->stages ? rights_max(w, s) : 0;
        if (s == 0) walk_on(w, 0, 0, 0, 0, rights);
        for (uint32_t h = 0; s > 0 && h < width; h++) {
            const struct best *b = &w->best[(size_t)(s - 1) * width + h];
            if (b->possible) walk_on(w, s, h, b->hand_on, lefts_of(b), rights);
        }
    }
    for (uint32_t h = 0; h < width; h++)
        if (w->best[(size_t)(w->stages - 1) * width + h].possible) return h;
    return IR_NONE;
}

/* ---- the chosen way ---- */

static void read_way(struct walk *w, uint32_t helpers) {
    for (uint32_t s = w->stages; s-- > 0;) {
        const struct best *b = &w->best[(size_t)s * (w->request->helpers + 1) + helpers];
        w->used[s] = b->used;
        w->hand_on[s] = b->hand_on;
        helpers = b->before;
    }
}

/* With the same helpers and the amounts to the right as they are: does it end well if `handed` reaches
 * `stage`? Sets what is left for left helpers. */
static bool ends_well(struct walk *w, uint32_t stage, int64_t handed, uint32_t lefts, bool set) {
    for (uint32_t s = stage; s < w->stages; s++) {
        int64_t spare = spare_of(w, s, handed, lefts);
        bool to_right = w->hand_on[s] > 0;
        if (to_right && by_rights(w, s, lefts, spare, w->used[s]) < w->hand_on[s]) return false;
        if (!to_right && spare < 0 && (s + 1 == w->stages || w->hand_on[s] == 0)) return false;
        handed = to_right ? w->hand_on[s] : spare < 0 ? spare : 0;
        lefts = to_right ? 0 : w->used[s];
        if (handed < 0 && lefts_needed(w, s + 1, -handed) > lefts) return false;
        if (set) w->hand_on[s] = handed;
    }
    return true;
}

/* What right helpers do beyond need only makes them busy. */
static void reduce(struct walk *w) {
    for (uint32_t s = w->stages - 1; s-- > 0;) {
        if (w->hand_on[s] <= 0) continue;
        int64_t low = 1, high = w->hand_on[s];
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (ends_well(w, s + 1, middle, 0, false))
                high = middle;
            else
                low = middle + 1;
        }
        w->hand_on[s] = low;
    }
    (void)ends_well(w, 0, 0, 0, true);
}

/* ---- amounts of each worker ---- */

static void share_to(struct walk *w, struct share_work *work, uint32_t stage, enum side side, uint32_t lefts,
                     uint32_t helpers) {
    uint32_t chunk = side == LEFT ? stage - 1 : stage + 1;
    int64_t pieces = side == LEFT ? -w->hand_on[stage - 1] : w->hand_on[stage];
    const struct sim_costs *costs = w->request->costs;
    for (uint32_t i = 0; i < helpers; i++) {
        uint32_t worker = helper_at(w, stage, side, lefts, i);
        uint64_t once = ticks_add(route_once(costs, worker, stage), route_once(costs, worker, chunk));
        w->taker[i] = (struct route_taker){worker, once, route_unit(costs, worker, chunk), 0};
    }
    route_fill(w->taker, helpers, (uint64_t)pieces);
    for (uint32_t i = 0; i < helpers; i++) {
        struct share_work *to = &work[w->taker[i].worker];
        *(side == LEFT ? &to->left : &to->right) = w->taker[i].take;
    }
}

/* What remains of a stage's own chunk goes to its live workers, those that help having less time left. */
static void share_own(struct walk *w, struct share_work *work, uint32_t stage) {
    const struct sim_costs *costs = w->request->costs;
    int64_t pieces = w->all;
    if (stage > 0 && w->hand_on[stage - 1] > 0) pieces -= w->hand_on[stage - 1];
    if (w->hand_on[stage] < 0) pieces += w->hand_on[stage];
    for (uint32_t p = 0, i = 0; p < w->pipelines; p++) {
        uint32_t worker = p * w->stages + stage;
        if (!w->request->alive[worker]) continue;
        const struct share_work *had = &work[worker];
        uint64_t load = route_once(costs, worker, stage);
        if (had->left > 0)
            load += had->left * route_unit(costs, worker, stage - 1) + route_once(costs, worker, stage - 1);
        if (had->right > 0)
            load += had->right * route_unit(costs, worker, stage + 1) + route_once(costs, worker, stage + 1);
        w->taker[i++] = (struct route_taker){worker, load, route_unit(costs, worker, stage), 0};
    }
    route_fill(w->taker, w->count[stage], (uint64_t)pieces);
    for (uint32_t i = 0; i < w->count[stage]; i++) work[w->taker[i].worker].own = w->taker[i].take;
}

static void give_amounts(struct walk *w, struct share_work *work) {
    for (uint32_t i = 0; i < w->pipelines * w->stages; i++) work[i] = (struct share_work){0};
    for (uint32_t s = 0; s < w->stages; s++) {
        uint32_t lefts = s > 0 && w->hand_on[s - 1] < 0 ? w->used[s - 1] : 0;
        if (lefts > 0) share_to(w, work, s, LEFT, lefts, lefts);
        if (w->hand_on[s] > 0) share_to(w, work, s, RIGHT, lefts, w->used[s]);
        share_own(w, work, s);
    }
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

static uint32_t distance_of(const struct walk *w, uint32_t pipeline, uint32_t stage) {
    uint32_t least = w->stages;
    for (uint32_t s = 0; s < w->stages; s++) {
        uint32_t distance = s > stage ? s - stage : stage - s;
        if (!w->request->alive[pipeline * w->stages + s] && distance < least) least = distance;
    }
    return least;
}

static pawl_code order_helpers(struct walk *w, struct pawl_error *e) {
    const struct share_request *r = w->request;
    struct wish *wish = malloc(w->pipelines * sizeof *wish);
    if (wish == NULL) return error_set(e, PAWL_MEMORY, 0, "plan: no memory to share a stage");
    for (uint32_t s = 0; s < w->stages; s++) {
        uint32_t count = 0;
        for (uint32_t p = 0; p < w->pipelines; p++) {
            uint32_t worker = p * w->stages + s;
            double slow = r->costs->slow == NULL ? 1 : r->costs->slow[worker];
            if (r->alive[worker]) wish[count++] = (struct wish){slow, distance_of(w, p, s), worker};
        }
        qsort(wish, count, sizeof *wish, wish_order);
        for (uint32_t i = 0; i < count; i++) w->live[(size_t)s * w->pipelines + i] = wish[i].worker;
        w->count[s] = count;
    }
    free(wish);
    return PAWL_OK;
}

/* ---- all of it ---- */

static pawl_code walk_init(struct walk *w, struct pawl_error *e) {
    size_t stages = w->stages, width = (size_t)w->request->helpers + 1;
    w->live = malloc(stages * w->pipelines * sizeof *w->live);
    w->count = calloc(stages, sizeof *w->count);
    w->capacity = calloc(stages, sizeof *w->capacity);
    w->best = calloc(stages * width, sizeof *w->best);
    w->used = calloc(stages, sizeof *w->used);
    w->hand_on = calloc(stages, sizeof *w->hand_on);
    w->taker = malloc(w->pipelines * sizeof *w->taker);
    if (w->live == NULL || w->count == NULL || w->capacity == NULL || w->best == NULL || w->used == NULL ||
        w->hand_on == NULL || w->taker == NULL)
        return error_set(e, PAWL_MEMORY, 0, "plan: no memory to share a stage");
    return order_helpers(w, e);
}

static void walk_close(struct walk *w) {
    free(w->live);
    free(w->count);
    free(w->capacity);
    free(w->best);
    free(w->used);
    free(w->hand_on);
    free(w->taker);
}

/* Enough time without any helper: each stage alone. */
static uint64_t time_alone(struct walk *w) {
    uint64_t most = 0;
    for (uint32_t s = 0; s < w->stages; s++) {
        for (uint32_t i = 0; i < w->count[s]; i++) {
            uint32_t worker = worker_at(w, s, i);
            w->taker[i] = (struct route_taker){worker, route_once(w->request->costs, worker, s),
                                               route_unit(w->request->costs, worker, s), 0};
        }
        uint64_t time = route_fill_time(w->taker, w->count[s], (uint64_t)w->all);
        if (time > most) most = time;
    }
    return most;
}

pawl_code share_amounts(const struct share_request *request, struct share_work *work, struct pawl_error *e) {
    const struct sim_costs *costs = request->costs;
    struct walk w = {.request = request, .stages = costs->stages, .pipelines = costs->pipelines};
    w.all = (int64_t)costs->pipelines * request->microbatches;
    pawl_code code = walk_init(&w, e);
    if (code == PAWL_OK) {
        uint64_t high = time_alone(&w),
                 low = plan_bound_free(costs, request->microbatches, request->alive, true);
        if (low > high) low = high;
        while (low < high) {
            uint64_t middle = low + (high - low) / 2;
            if (walk_time(&w, middle) != IR_NONE)
                high = middle;
            else
                low = middle + 1;
        }
        read_way(&w, walk_time(&w, low));
        reduce(&w);
        give_amounts(&w, work);
    }
    walk_close(&w);
    return code;
}
