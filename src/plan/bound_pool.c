/* Bounds that hold for whoever executes what: all work over all speed; and the predictions built on them.
 *
 * A pool's workers execute whole micro-batches of its chunks (F, I and W of one stay together), so within T a
 * worker ends at most (T - its R and S) / its shortest unit of them; and in ticks, the work of the fault-free
 * speed cannot be more than T over each worker's own slowness, summed. Both hold, the greater counts. Without
 * slow workers the second one is exact; with them it is computed in double and rounded down far enough.
 * Without them it also counts R and S of those who must help a stage.
 * Tested in tests/unit/plan_bound_test.c. */
#include "plan/pool.h"

#include <math.h>
#include <stdlib.h>

#include "plan/route.h"
#include "plan/ticks.h"

/* Ticks of F, I and W at speed 1. */
static uint64_t plain_unit(const struct sim_chunk *c) {
    return ticks_add(c->forward, ticks_add(c->input_grad, c->weight_grad));
}

/* What is the same of all workers of one speed: the shortest unit, and how slow they are at best, over the
 * pool's chunks. */
struct speed {
    uint64_t unit;
    double ratio;
};

static struct speed speed_of(const struct pool *pool, uint32_t worker) {
    const struct sim_costs *costs = pool->costs;
    struct speed v = {TICKS_NEVER, INFINITY};
    for (uint32_t s = pool->first_stage; s < pool->first_stage + pool->stage_count; s++) {
        for (uint32_t c = s; c < costs->chunks; c += costs->stages) {
            uint64_t unit = route_unit(costs, worker, c), plain = plain_unit(&costs->chunk[c]);
            if (unit < v.unit) v.unit = unit;
            if (plain > 0 && (double)unit / (double)plain < v.ratio) v.ratio = (double)unit / (double)plain;
        }
    }
    if (isinf(v.ratio)) v.ratio = 1;
    return v;
}

static bool is_as_fast(const struct sim_costs *costs, uint32_t a, uint32_t b) {
    return costs->slow == NULL || !(costs->slow[a] < costs->slow[b] || costs->slow[a] > costs->slow[b]);
}

static struct route_taker taker_of(const struct pool *pool, uint32_t worker, uint64_t unit) {
    const struct sim_costs *costs = pool->costs;
    struct route_taker t = {.worker = worker, .unit = unit};
    for (uint32_t c = worker % costs->stages; c < costs->chunks; c += costs->stages)
        t.load = ticks_add(t.load, route_once(costs, worker, c));
    return t;
}

struct looked {         /* the pool's workers */
    uint32_t pipelines; /* looked at: one is like all where nobody is dead or slow */
    struct route_taker *taker;
    uint32_t count;
    uint64_t once; /* R and S of all of them, ticks */
    double once_scaled, speed;
};

static void look_around(const struct pool *pool, struct looked *l) {
    const struct sim_costs *costs = pool->costs;
    struct speed v = {0};
    uint32_t last = IR_NONE; /* whose speed it is: most workers are alike */
    for (uint32_t p = 0; p < l->pipelines; p++) {
        for (uint32_t s = pool->first_stage; s < pool->first_stage + pool->stage_count; s++) {
            uint32_t worker = p * costs->stages + s;
            if (pool->alive != NULL && !pool->alive[worker]) continue;
            if (last == IR_NONE || !is_as_fast(costs, worker, last)) v = speed_of(pool, worker);
            last = worker;
            struct route_taker *t = &l->taker[l->count++];
            *t = taker_of(pool, worker, v.unit);
            l->once = ticks_add(l->once, t->load);
            l->once_scaled += (double)t->load / v.ratio;
            l->speed += 1 / v.ratio;
        }
    }
}

/* a * b / c, rounded up, without the overflow of a * b for b, c below 2^17. */
static uint64_t scale_up(uint64_t a, uint64_t b, uint64_t c) {
    return ticks_add(ticks_mul(a / c, b), (a % c * b + c - 1) / c);
}

/* By ticks: all work and all R and S over all speed. `work` is of the pipelines looked at, at speed 1. */
static uint64_t by_ticks(const struct pool *pool, const struct looked *l, uint64_t work) {
    if (pool->costs->slow == NULL) return ticks_add(scale_up(work, 1, l->count), l->once / l->count);
    double ticks = ((double)work + l->once_scaled) / l->speed;
    ticks = floor(ticks * (1 - 1e-9));
    return ticks < (double)TICKS_NEVER ? (uint64_t)ticks : 0;
}

uint64_t pool_time(const struct pool *pool, struct plan_batch batch) {
    const struct sim_costs *costs = pool->costs;
    bool alike = pool->alive == NULL && costs->slow == NULL && batch.total == 0;
    struct looked l = {.pipelines = alike ? 1 : costs->pipelines};
    uint64_t each = plan_batch_total(batch, l.pipelines); /* of a chunk */
    l.taker = malloc((size_t)l.pipelines * pool->stage_count * sizeof *l.taker);
    if (l.taker == NULL) return 0;
    look_around(pool, &l);
    uint64_t work = 0, pieces = 0, time = TICKS_NEVER;
    for (uint32_t s = pool->first_stage; s < pool->first_stage + pool->stage_count; s++) {
        for (uint32_t c = s; c < costs->chunks; c += costs->stages) {
            work = ticks_add(work, ticks_mul(each, plain_unit(&costs->chunk[c])));
            pieces += each;
        }
    }
    if (l.count > 0) {
        time = route_fill_time(l.taker, l.count, pieces);
        uint64_t ticks = by_ticks(pool, &l, work);
        if (ticks > time) time = ticks;
    }
    free(l.taker);
    return time;
}

/* ---- anybody executes anything ---- */

/* IR_NONE: nobody lives. */
static uint32_t fastest(const struct sim_costs *costs, const bool *alive) {
    uint32_t best = IR_NONE;
    for (uint32_t w = 0; w < costs->pipelines * costs->stages; w++) {
        if (alive != NULL && !alive[w]) continue;
        if (best == IR_NONE || (costs->slow != NULL && costs->slow[w] < costs->slow[best])) best = w;
    }
    return best;
}

/* One micro-batch alone, by the fastest: from the window's begin to the last chunk and back up to a chunk,
 * whose W, R and S follow. With a barrier the window begins with chunk 0; staggered, all of a chunk lies in
 * one window, whoever executes it, and that begins with the chunk's own F at the latest. Nothing is sent: one
 * worker might execute neighbours. */
static uint64_t way_alone(const struct sim_costs *costs, const bool *alive, bool staggered) {
    uint32_t worker = fastest(costs, alive);
    uint64_t way = 0, most = 0;
    if (worker == IR_NONE) return 0;
    for (uint32_t c = 0; c < costs->chunks && !staggered; c++)
        way = ticks_add(way, sim_duration(costs, worker, c, IR_F));
    for (uint32_t c = costs->chunks; c-- > 0;) {
        if (staggered) way = ticks_add(way, sim_duration(costs, worker, c, IR_F));
        way = ticks_add(way, sim_duration(costs, worker, c, IR_I));
        uint64_t end =
            ticks_add(way, ticks_add(sim_duration(costs, worker, c, IR_W), route_once(costs, worker, c)));
        if (end > most) most = end;
    }
    return most;
}

/* ---- ... but somebody has to hold it ---- */

/* Live workers of a stage, all alike. */
static uint32_t live_in(const struct sim_costs *costs, const bool *alive, uint32_t stage) {
    uint32_t live = 0;
    for (uint32_t p = 0; p < costs->pipelines; p++) live += alive == NULL || alive[p * costs->stages + stage];
    return live;
}

static uint64_t pieces_within(uint64_t time, uint64_t once, uint64_t unit) {
    return unit == 0 ? TICKS_NEVER : ticks_less(time, once) / unit;
}

/* What a stage's own workers cannot do of its chunk within T takes so many workers of other stages, at least:
 * each has R and S of its own chunk and of this one too. In ticks of R and S; TICKS_NEVER: nobody has time.
 */
static uint64_t helpers_once(const struct sim_costs *costs, const uint32_t *live, uint64_t pieces,
                             uint32_t stage, uint64_t time) {
    uint64_t unit = plain_unit(&costs->chunk[stage]), least = TICKS_NEVER;
    uint64_t once = route_once(costs, stage, stage), own = pieces_within(time, once, unit);
    if (own >= pieces || own * live[stage] >= pieces) return 0;
    for (uint32_t s = 0; s < costs->stages; s++)
        if (s != stage && live[s] > 0 && route_once(costs, s, s) < least) least = route_once(costs, s, s);
    uint64_t each = least == TICKS_NEVER ? 0 : pieces_within(time, ticks_add(least, once), unit);
    if (each == 0) return TICKS_NEVER;
    return ticks_mul((pieces - own * live[stage] + each - 1) / each, once);
}

/* All work, all R and S, and those of the helpers there must be. */
static uint64_t ticks_within(const struct sim_costs *costs, const uint32_t *live, uint64_t pieces,
                             uint64_t time) {
    uint64_t ticks = 0;
    for (uint32_t s = 0; s < costs->stages; s++) {
        ticks = ticks_add(ticks, ticks_mul(pieces, plain_unit(&costs->chunk[s])));
        ticks = ticks_add(ticks, ticks_mul(live[s], route_once(costs, s, s)));
        ticks = ticks_add(ticks, helpers_once(costs, live, pieces, s, time));
    }
    return ticks;
}

/* Least T from `low` on within which that fits; the longer T, the fewer helpers. */
static uint64_t with_helpers(const struct sim_costs *costs, struct plan_batch batch, const bool *alive,
                             uint64_t low) {
    uint64_t pieces = plan_batch_total(batch, costs->pipelines), high = SIM_TICKS_MAX, count = 0;
    uint32_t *live = malloc(costs->stages * sizeof *live);
    if (live == NULL) return low;
    for (uint32_t s = 0; s < costs->stages; s++) count += live[s] = live_in(costs, alive, s);
    while (low < high && count > 0) {
        uint64_t middle = low + (high - low) / 2;
        if (ticks_within(costs, live, pieces, middle) <= ticks_mul(middle, count))
            high = middle;
        else
            low = middle + 1;
    }
    free(live);
    return low;
}

uint64_t plan_bound_free(const struct sim_costs *costs, struct plan_batch batch, const bool *alive,
                         bool staggered) {
    struct pool all = {.costs = costs, .alive = alive, .first_stage = 0, .stage_count = costs->stages};
    uint64_t time = pool_time(&all, batch);
    uint64_t way = batch.each == 0 ? 0 : way_alone(costs, alive, staggered);
    if (costs->slow == NULL && costs->chunks == costs->stages && time < SIM_TICKS_MAX)
        time = with_helpers(costs, batch, alive, time);
    return way > time ? way : time;
}

/* ---- predictions ---- */

/* A worker of the stage, with all of its chunks as one. */
static struct route_taker whole_stage(const struct sim_costs *costs, uint32_t stage, uint32_t pipeline) {
    struct route_taker t = {.worker = pipeline * costs->stages + stage};
    for (uint32_t c = stage; c < costs->chunks; c += costs->stages) {
        t.load = ticks_add(t.load, route_once(costs, t.worker, c));
        t.unit = ticks_add(t.unit, route_unit(costs, t.worker, c));
    }
    return t;
}

/* The stage's load when its holes' work is shared by its peers. Which of them are the holes is not known, so
 * a worker of average speed is missing: the others do D / (D - holes) times as many micro-batches. */
static uint64_t predict_peers(const struct sim_costs *costs, struct plan_batch batch, uint32_t stage,
                              uint32_t holes) {
    uint32_t pipelines = costs->pipelines;
    uint64_t pieces = scale_up(plan_batch_total(batch, pipelines), pipelines, pipelines - holes);
    if (costs->slow == NULL) {
        struct route_taker any = whole_stage(costs, stage, 0);
        return ticks_add(any.load, ticks_mul(scale_up(pieces, 1, pipelines), any.unit));
    }
    struct route_taker *taker = calloc(pipelines, sizeof *taker);
    if (taker == NULL) return TICKS_NEVER;
    for (uint32_t p = 0; p < pipelines; p++) taker[p] = whole_stage(costs, stage, p);
    uint64_t time = route_fill_time(taker, pipelines, pieces);
    free(taker);
    return time;
}

/* Stages that share end early by R and S of one another, less the distance between their windows. */
static uint64_t early_of(const struct sim_costs *costs, uint32_t stage) {
    uint64_t once = route_once(costs, stage, stage);
    if (stage > 0)
        once = ticks_less(once, costs->chunk[stage - 1].forward + costs->chunk[stage - 1].send_forward);
    return once;
}

/* ... and when the stages beside it take part, two of them: what two workers that hold one chunk more can do.
 */
static uint64_t predict_shared(const struct sim_costs *costs, struct plan_batch batch, uint32_t stage,
                               uint32_t holes) {
    uint32_t first = stage == 0 ? 0 : stage - 1;
    uint32_t last = stage + 1 == costs->stages ? stage : stage + 1;
    if (costs->stages >= 3 && last - first < 2) {
        if (first > 0)
            first--;
        else
            last++;
    }
    uint32_t count = last - first + 1, workers = count * costs->pipelines;
    struct pool pool = {.costs = costs, .first_stage = first, .stage_count = count};
    uint64_t full = pool_time(&pool, batch);
    return ticks_add(scale_up(full, workers, workers - holes), early_of(costs, stage));
}

uint64_t plan_predict_stage(const struct sim_costs *costs, struct plan_batch batch, enum pawl_policy policy,
                            uint32_t stage, uint32_t holes) {
    if (stage >= costs->stages || holes >= costs->pipelines) return TICKS_NEVER;
    uint64_t peers = predict_peers(costs, batch, stage, holes);
    bool shares = policy == PAWL_POLICY_PAWL && costs->chunks == costs->stages;
    if (!shares) return peers;
    uint64_t shared = predict_shared(costs, batch, stage, holes);
    return shared < peers ? shared : peers;
}
