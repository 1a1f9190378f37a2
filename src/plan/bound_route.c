/* Bounds of a given route, and of every route in which workers execute their own stage's chunks only.
 *
 * Of a route: the greatest bound of its workers (bound.c). Over all routes: a stage's work is shared out such
 * that the greatest of its workers' bounds is least; each of them grows with the number of micro-batches, so
 * both searches are bisections. Where a stage has several chunks only the load is shared out. */
#include <stdlib.h>

#include "plan/bound.h"
#include "plan/pool.h"
#include "plan/route.h"
#include "plan/ticks.h"

/* ---- a given route ---- */

struct counted {
    const struct plan_route *route;
    struct bound_way *way;
    struct bound_load *load; /* [workers] */
    uint32_t *hosted;        /* [workers] micro-batches of the chunk at hand */
    uint32_t *holder;        /* [workers] who executes the chunk at hand, and whose stage it is */
    uint32_t holder_count;
    bool *helped; /* [chunks] so far: by somebody outside its stage */
};

static void count_chunk(struct counted *k, uint32_t chunk) {
    const struct plan_route *r = k->route;
    uint32_t stage = route_stage_of(r, chunk);
    k->holder_count = 0;
    for (uint32_t h = 0; h < r->pipelines; h++) k->holder[k->holder_count++] = h * r->stages + stage;
    for (uint32_t h = 0; h < r->pipelines; h++) {
        const uint32_t *host = &r->host[plan_route_cell(r, h, chunk, 0)];
        const uint32_t *next = chunk + 1 < r->chunks ? &r->host[plan_route_cell(r, h, chunk + 1, 0)] : NULL;
        bool near = false;
        for (uint32_t m = 0; m < plan_route_count(r, h); m++) {
            bool is_first = k->hosted[host[m]]++ == 0;
            if (is_first && host[m] % r->stages != stage) k->holder[k->holder_count++] = host[m];
            near = near || (next != NULL && next[m] == host[m]);
        }
        if (near) bound_way_is_near(k->way, chunk);
    }
}

/* The chunk at hand is executed outside its stage. */
static bool is_helped(const struct counted *k) {
    const struct plan_route *r = k->route;
    return k->holder_count > r->pipelines;
}

/* Helpers of earlier stages whose own chunk is executed in its stage alone. */
static void find_helpers(struct counted *k, uint32_t chunk) {
    const struct plan_route *r = k->route;
    if (r->chunks != r->stages) return;
    k->helped[chunk] = is_helped(k);
    for (uint32_t i = r->pipelines; i < k->holder_count; i++) {
        uint32_t stage = k->holder[i] % r->stages;
        if (stage < chunk && !k->helped[stage]) bound_way_holds_before(k->way, chunk, stage);
    }
}

static void add_load(struct counted *k, uint32_t worker, uint32_t chunk) {
    const struct sim_costs *costs = k->way->costs;
    struct bound_load *l = &k->load[worker];
    uint64_t n = k->hosted[worker];
    if (!k->route->alive[worker]) return;
    l->once = ticks_add(l->once, route_once(costs, worker, chunk));
    if (n == 0) return;
    bound_way_executes(k->way, worker, chunk);
    if (l->kinds++ == 0) l->chunk = chunk;
    l->n = n;
    l->work = ticks_add(l->work, ticks_mul(n, route_unit(costs, worker, chunk)));
    if (k->way->options->backward != PLAN_FUSED)
        l->late = ticks_add(l->late, ticks_mul(n, sim_duration(costs, worker, chunk, IR_W)));
}

static uint64_t greatest(const struct counted *k) {
    uint64_t bound = 0;
    for (uint32_t w = 0; w < k->route->pipelines * k->route->stages; w++) {
        const struct bound_load *l = &k->load[w];
        bool single = l->kinds == 1 && l->once == route_once(k->way->costs, w, l->chunk);
        uint64_t b = !k->route->alive[w] ? 0
                     : single            ? bound_single(k->way, w, l->chunk, l->n)
                                         : bound_several(k->way, l);
        if (b > bound) bound = b;
    }
    return bound;
}

static uint64_t bound_counted(struct counted *k) {
    for (uint32_t c = 0; c < k->route->chunks; c++) {
        count_chunk(k, c);
        find_helpers(k, c);
        for (uint32_t i = 0; i < k->holder_count; i++) add_load(k, k->holder[i], c);
        for (uint32_t i = 0; i < k->holder_count; i++) k->hosted[k->holder[i]] = 0;
    }
    bound_way_finish(k->way);
    return greatest(k);
}

uint64_t plan_bound_route(const struct plan_route *route, const struct sim_costs *costs,
                          const struct plan_list_options *options) {
    size_t workers = (size_t)route->pipelines * route->stages;
    struct bound_way way;
    struct counted k = {.route = route,
                        .way = &way,
                        .load = calloc(workers, sizeof *k.load),
                        .hosted = calloc(workers, sizeof *k.hosted),
                        .holder = malloc(workers * sizeof *k.holder),
                        .helped = calloc(route->chunks, sizeof *k.helped)};
    uint64_t bound = 0; /* true of every schedule, when there is no memory to say more */
    bool memory = bound_way_init(&way, costs, options) == PAWL_OK;
    if (memory && k.load != NULL && k.hosted != NULL && k.holder != NULL && k.helped != NULL)
        bound = bound_counted(&k);
    bound_way_close(&way);
    free(k.load);
    free(k.hosted);
    free(k.holder);
    free(k.helped);
    return bound;
}

/* ---- every route within the stages ---- */

static bool lives(const bool *alive, uint32_t worker) { return alive == NULL || alive[worker]; }

/* The most micro-batches with which the worker's bound stays within `time`. */
static uint64_t bearable(const struct bound_way *way, uint32_t worker, uint32_t chunk, uint64_t time,
                         uint64_t enough) {
    uint64_t low = 0, high = enough;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        if (bound_single(way, worker, chunk, middle) <= time)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static bool are_alike(const struct sim_costs *costs, uint32_t a, uint32_t b) {
    if (costs->slow != NULL && (costs->slow[a] < costs->slow[b] || costs->slow[a] > costs->slow[b]))
        return false;
    return costs->limit == NULL || costs->limit[a] == costs->limit[b];
}

static bool stage_bears(const struct bound_way *way, const bool *alive, uint32_t chunk, uint64_t time,
                        uint64_t pieces) {
    uint64_t sum = 0, bears = 0;
    uint32_t last = IR_NONE; /* of what it bears: most workers are alike */
    for (uint32_t p = 0; p < way->costs->pipelines && sum < pieces; p++) {
        uint32_t worker = p * way->costs->stages + chunk;
        if (!lives(alive, worker)) continue;
        if (last == IR_NONE || !are_alike(way->costs, worker, last))
            bears = bearable(way, worker, chunk, time, pieces);
        last = worker;
        sum += bears;
    }
    return sum >= pieces;
}

/* Least time in which a stage of one chunk bears its work. */
static uint64_t stage_time(const struct bound_way *way, const bool *alive, uint32_t chunk, uint64_t pieces) {
    uint64_t low = 0, high = TICKS_NEVER;
    for (uint32_t p = 0; p < way->costs->pipelines; p++) {
        uint32_t worker = p * way->costs->stages + chunk;
        uint64_t alone = lives(alive, worker) ? bound_single(way, worker, chunk, pieces) : TICKS_NEVER;
        if (alone < high) high = alone;
    }
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (stage_bears(way, alive, chunk, middle, pieces))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void way_of_stages(struct bound_way *way, const bool *alive) {
    const struct sim_costs *costs = way->costs;
    for (uint32_t c = 0; c < costs->chunks; c++) {
        for (uint32_t p = 0; p < costs->pipelines; p++) {
            uint32_t worker = p * costs->stages + c % costs->stages;
            if (lives(alive, worker)) bound_way_executes(way, worker, c);
        }
        if (costs->stages == 1 && c + 1 < costs->chunks) bound_way_is_near(way, c);
    }
    bound_way_finish(way);
}

static bool every_stage_lives(const struct sim_costs *costs, const bool *alive) {
    for (uint32_t s = 0; s < costs->stages; s++) {
        bool any = false;
        for (uint32_t p = 0; p < costs->pipelines; p++) any = any || lives(alive, p * costs->stages + s);
        if (!any) return false;
    }
    return true;
}

static uint64_t bound_stages(struct bound_way *way, struct plan_batch batch, const bool *alive) {
    const struct sim_costs *costs = way->costs;
    uint64_t bound = 0, pieces = plan_batch_total(batch, costs->pipelines);
    way_of_stages(way, alive);
    for (uint32_t s = 0; s < costs->stages; s++) {
        struct pool pool = {.costs = costs, .alive = alive, .first_stage = s, .stage_count = 1};
        uint64_t time =
            costs->chunks == costs->stages ? stage_time(way, alive, s, pieces) : pool_time(&pool, batch);
        if (time > bound) bound = time;
    }
    return bound;
}

uint64_t plan_bound_peers(const struct sim_costs *costs, struct plan_batch batch, const bool *alive,
                          const struct plan_list_options *options) {
    if (!every_stage_lives(costs, alive)) return TICKS_NEVER;
    struct bound_way way;
    uint64_t bound = 0;
    if (bound_way_init(&way, costs, options) == PAWL_OK) bound = bound_stages(&way, batch, alive);
    bound_way_close(&way);
    return bound;
}
