/* Amounts of work: the least time by bisection, the fewest helpers for it, and what each worker does then.
 *
 * At the least T amounts handed on are moved until what stages have left over is even: a schedule that has a
 * little to give everywhere comes nearer to the load. */
#include <stdlib.h>

#include "plan/pool.h"
#include "plan/share_walk.h"
#include "plan/ticks.h"

/* The least time is searched for as exactly as this part of it, or to the tick where it has fewer. */
#define EXACT_ENOUGH 8192u

/* ---- the chosen way ---- */

static void read_way(struct walk *w, uint32_t helpers) {
    enum walk_order order = WALK_TOGETHER;
    for (uint32_t s = w->stages; s-- > 0;) {
        const struct walk_best *b = walk_best(w, s, helpers, order);
        w->used[s] = b->used;
        w->hand_on[s] = b->hand_on;
        w->order[s] = order;
        w->shifted[s] = b->shifted;
        helpers = b->before;
        order = b->from;
    }
}

static struct walk_come come_to(const struct walk *w, uint32_t stage, int64_t handed) {
    if (stage == 0) return (struct walk_come){0, 0, WALK_TOGETHER, false};
    uint32_t lefts = handed < 0 ? w->used[stage - 1] : 0;
    return (struct walk_come){handed, lefts, w->order[stage - 1], w->shifted[stage - 1]};
}

static uint64_t early_at(const struct walk *w, uint32_t stage) {
    struct walk_come come = come_to(w, stage, stage == 0 ? 0 : w->hand_on[stage - 1]);
    return walk_early_ticks(w, stage, walk_early(&come, w->hand_on[stage], w->order[stage]));
}

static int64_t left_over_here(const struct walk *w, uint32_t stage, int64_t handed, int64_t hand_on) {
    struct walk_come come = come_to(w, stage, handed);
    return walk_left_over(w, stage, &come, hand_on);
}

/* Moves one micro-batch over a boundary if after that the giving stage still has half a micro-batch more left
 * over than the other one had, per worker. */
static bool level_one(struct walk *w, uint32_t s, int64_t change) {
    int64_t now = w->hand_on[s], then = now + change;
    if (now == 0 || then == 0 || (now < 0) != (then < 0)) return false;
    int64_t before = s == 0 ? 0 : w->hand_on[s - 1], after = w->hand_on[s + 1];
    int64_t here = left_over_here(w, s, before, then), there = left_over_here(w, s + 1, then, after);
    int64_t was = change > 0 ? left_over_here(w, s + 1, now, after) : left_over_here(w, s, before, now);
    if (here < 0 || there < 0) return false;
    uint32_t givers = w->count[change > 0 ? s : s + 1], takers = w->count[change > 0 ? s + 1 : s];
    if ((change > 0 ? here : there) * takers * 2 <= (was * 2 + 1) * givers) return false;
    w->hand_on[s] = then;
    return true;
}

/* Time to spare is worth most where it is spread: a schedule has something to give everywhere. */
static void level(struct walk *w) {
    bool changed = true;
    for (int64_t round = 0; changed && round < w->all; round++) {
        changed = false;
        for (uint32_t s = 0; s + 1 < w->stages; s++) changed |= level_one(w, s, 1) || level_one(w, s, -1);
    }
}

/* ---- amounts of each worker ---- */

static void share_to(struct walk *w, struct share_work *work, uint32_t stage, enum walk_side side,
                     uint32_t lefts, uint32_t helpers) {
    uint32_t chunk = side == WALK_LEFT ? stage - 1 : stage + 1;
    int64_t pieces = side == WALK_LEFT ? -w->hand_on[stage - 1] : w->hand_on[stage];
    const struct sim_costs *costs = w->request->costs;
    for (uint32_t i = 0; i < helpers; i++) {
        uint32_t worker = walk_helper(w, stage, side, lefts, i);
        uint64_t once = ticks_add(route_once(costs, worker, stage), route_once(costs, worker, chunk));
        w->taker[i] = (struct route_taker){worker, once, route_unit(costs, worker, chunk), 0};
    }
    route_fill(w->taker, helpers, (uint64_t)pieces);
    for (uint32_t i = 0; i < helpers; i++) {
        struct share_work *to = &work[w->taker[i].worker];
        *(side == WALK_LEFT ? &to->left : &to->right) = w->taker[i].take;
    }
}

/* What a worker has to do before it takes of its own chunk, and by how much it ends early: helpers have
 * something to do until the end. */
static uint64_t load_before(const struct walk *w, const struct share_work *had, uint32_t worker) {
    const struct sim_costs *costs = w->request->costs;
    uint32_t stage = worker % w->stages;
    uint64_t load = route_once(costs, worker, stage);
    if (had->left == 0 && had->right == 0) load += early_at(w, stage);
    if (had->left > 0)
        load += had->left * route_unit(costs, worker, stage - 1) + route_once(costs, worker, stage - 1);
    if (had->right > 0)
        load += had->right * route_unit(costs, worker, stage + 1) + route_once(costs, worker, stage + 1);
    return load;
}

/* What remains of a stage's own chunk goes to its live workers. */
static void share_own(struct walk *w, struct share_work *work, uint32_t stage) {
    uint32_t count = w->count[stage];
    int64_t pieces = w->all;
    if (stage > 0 && w->hand_on[stage - 1] > 0) pieces -= w->hand_on[stage - 1];
    if (w->hand_on[stage] < 0) pieces += w->hand_on[stage];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t worker = walk_worker(w, stage, count - 1 - i); /* helpers last: they get less */
        w->taker[i] = (struct route_taker){worker, load_before(w, &work[worker], worker),
                                           route_unit(w->request->costs, worker, stage), 0};
    }
    route_fill(w->taker, count, (uint64_t)pieces);
    for (uint32_t i = 0; i < count; i++) work[w->taker[i].worker].own = w->taker[i].take;
}

static void give_amounts(struct walk *w, struct share_work *work) {
    for (uint32_t i = 0; i < w->pipelines * w->stages; i++) work[i] = (struct share_work){0};
    for (uint32_t s = 0; s < w->stages; s++) {
        uint32_t lefts = s > 0 && w->hand_on[s - 1] < 0 ? w->used[s - 1] : 0;
        if (lefts > 0) share_to(w, work, s, WALK_LEFT, lefts, lefts);
        if (w->hand_on[s] > 0) share_to(w, work, s, WALK_RIGHT, lefts, w->used[s]);
        share_own(w, work, s);
    }
}

/* Enough time without any helper: each stage alone. */
static uint64_t time_alone(struct walk *w) {
    uint64_t most = 0;
    for (uint32_t s = 0; s < w->stages; s++) {
        for (uint32_t i = 0; i < w->count[s]; i++) {
            uint32_t worker = walk_worker(w, s, i);
            w->taker[i] = (struct route_taker){worker, route_once(w->request->costs, worker, s),
                                               route_unit(w->request->costs, worker, s), 0};
        }
        uint64_t time = route_fill_time(w->taker, w->count[s], (uint64_t)w->all);
        if (time > most) most = time;
    }
    return most;
}

pawl_code share_amounts(const struct share_request *request, struct share_work *work, uint64_t *early,
                        struct pawl_error *e) {
    const struct sim_costs *costs = request->costs;
    struct pool all = {costs, request->alive, 0, costs->stages};
    struct walk w;
    pawl_code code = walk_open(&w, request, e);
    if (code == PAWL_OK) {
        uint64_t high = time_alone(&w), low = pool_time(&all, request->batch);
        if (low > high) low = high;
        while (low < high && high - low >= high / EXACT_ENOUGH) {
            uint64_t middle = low + (high - low) / 2;
            if (walk_time(&w, middle) != IR_NONE)
                high = middle;
            else
                low = middle + 1;
        }
        read_way(&w, walk_time(&w, high));
        level(&w);
        give_amounts(&w, work);
        for (uint32_t s = 0; s < w.stages; s++) early[s] = early_at(&w, s);
    }
    walk_close(&w);
    return code;
}
