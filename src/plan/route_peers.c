/* Routes within the stage: the micro-batches of the dead go to their live peers, by speed.
 *
 * Stages are independent of each other. Where a stage holds several chunks, what a worker has got of the
 * first ones counts when the next one is shared out. Tested in tests/unit/plan_route_test.c. Source:
 * ReCycle's adaptive pipelining (SOSP'24); by speed: own. */
#include <stdlib.h>
#include <string.h>

#include "plan/route.h"
#include "plan/ticks.h"

struct peers {
    struct plan_route *route;
    const struct sim_costs *costs;
    bool free_homes;
    uint64_t *load;               /* [workers] ticks given so far */
    struct route_taker *taker;    /* [pipelines] live workers of the stage at hand */
    uint32_t *keep;               /* [pipelines] of their own micro-batches, in the order of `taker` */
    struct route_turn *turn;      /* [pipelines] */
    struct route_orphan *orphans; /* [pipelines * microbatches] */
};

/* Those that live at the chunk's stage, with the load they have. */
static uint32_t takers_find(struct peers *p, uint32_t chunk) {
    const struct plan_route *r = p->route;
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->pipelines; i++) {
        uint32_t worker = i * r->stages + route_stage_of(r, chunk);
        if (!r->alive[worker]) continue;
        p->taker[count++] =
            (struct route_taker){worker, p->load[worker], route_unit(p->costs, worker, chunk), 0};
    }
    return count;
}

/* How many of its own each keeps: all, or as many as it can do while everybody is busy. Returns the sum. */
static uint64_t keep_own(struct peers *p, uint32_t count) {
    uint64_t pieces = p->route->total, sum = 0;
    uint64_t time = p->free_homes ? route_fill_time(p->taker, count, pieces) : TICKS_NEVER;
    for (uint32_t i = 0; i < count; i++) {
        struct route_taker *t = &p->taker[i];
        uint32_t own = plan_route_count(p->route, t->worker / p->route->stages);
        uint64_t most = p->free_homes ? ticks_less(time, t->load) / t->unit : own;
        p->keep[i] = most < own ? (uint32_t)most : own;
        if (p->free_homes) t->load = ticks_add(t->load, p->keep[i] * t->unit);
        sum += p->keep[i];
    }
    return sum;
}

static void host_own(struct peers *p, uint32_t chunk, uint32_t count) {
    struct plan_route *r = p->route;
    for (uint32_t h = 0; h < r->pipelines; h++)
        for (uint32_t m = 0; m < plan_route_count(r, h); m++)
            r->host[plan_route_cell(r, h, chunk, m)] = IR_NONE;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t worker = p->taker[i].worker, home = worker / r->stages, own = plan_route_count(r, home);
        for (uint32_t m = 0; m < own; m++)
            if (route_even(m, p->keep[i], own)) r->host[plan_route_cell(r, home, chunk, m)] = worker;
    }
}

static void host_guests(struct peers *p, uint32_t chunk, uint32_t count) {
    struct plan_route *r = p->route;
    for (uint32_t i = 0; i < count; i++)
        p->turn[i] = (struct route_turn){p->taker[i].worker, p->taker[i].take, 0};
    struct route_turns turns;
    route_turns_init(&turns, p->turn, count);
    uint64_t orphans = route_orphans(r, chunk, p->orphans);
    for (uint64_t i = 0; i < orphans; i++)
        r->host[plan_route_cell(r, p->orphans[i].home, chunk, p->orphans[i].microbatch)] =
            route_turns_next(&turns);
}

static pawl_code share_out(struct peers *p, uint32_t chunk, struct pawl_error *e) {
    const struct plan_route *r = p->route;
    uint32_t count = takers_find(p, chunk);
    if (count == 0)
        return error_set(e, PAWL_STAGE_LOST, 0, "route: stage %u has no live worker",
                         route_stage_of(r, chunk));
    uint64_t kept = keep_own(p, count);
    route_fill(p->taker, count, r->total - kept);
    host_own(p, chunk, count);
    host_guests(p, chunk, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct route_taker *t = &p->taker[i];
        p->load[t->worker] = ticks_add(t->load, ticks_mul(t->take, t->unit));
    }
    return PAWL_OK;
}

/* Homes that stay are a load from the start, whatever chunk is shared out first. */
static void load_homes(struct peers *p) {
    const struct plan_route *r = p->route;
    for (uint32_t c = 0; c < r->chunks && !p->free_homes; c++) {
        for (uint32_t i = 0; i < r->pipelines; i++) {
            uint32_t worker = i * r->stages + route_stage_of(r, c);
            uint64_t own = ticks_mul(plan_route_count(r, i), route_unit(p->costs, worker, c));
            p->load[worker] = ticks_add(p->load[worker], own);
        }
    }
}

static pawl_code peers_init(struct peers *p, struct pawl_error *e) {
    size_t pipelines = p->route->pipelines;
    p->load = calloc(pipelines * p->route->stages, sizeof *p->load);
    p->taker = malloc(pipelines * sizeof *p->taker);
    p->keep = malloc(pipelines * sizeof *p->keep);
    p->turn = malloc(pipelines * sizeof *p->turn);
    p->orphans = malloc(pipelines * p->route->microbatches * sizeof *p->orphans);
    if (p->load == NULL || p->taker == NULL || p->keep == NULL || p->turn == NULL || p->orphans == NULL)
        return error_set(e, PAWL_MEMORY, 0, "route: no memory for %zu pipelines", pipelines);
    return PAWL_OK;
}

static void peers_close(struct peers *p) {
    free(p->load);
    free(p->taker);
    free(p->keep);
    free(p->turn);
    free(p->orphans);
}

pawl_code plan_route_fill_peers(struct plan_route *route, const struct sim_costs *costs, bool free_homes,
                                struct pawl_error *e) {
    if (route->pipelines != costs->pipelines || route->stages != costs->stages ||
        route->chunks != costs->chunks)
        return error_set(
            e, PAWL_ARGUMENT, 0, "route: sizes %u x %u with %u chunks differ from the costs' %u x %u with %u",
            route->pipelines, route->stages, route->chunks, costs->pipelines, costs->stages, costs->chunks);
    struct peers p = {.route = route, .costs = costs, .free_homes = free_homes};
    pawl_code code = peers_init(&p, e);
    if (code == PAWL_OK) load_homes(&p);
    for (uint32_t c = 0; c < route->chunks && code == PAWL_OK; c++) code = share_out(&p, c, e);
    peers_close(&p);
    return code;
}

pawl_code plan_route_peers(const struct sim_costs *costs, struct plan_batch batch, const bool *alive,
                           bool free_homes, struct plan_route **out, struct pawl_error *e) {
    *out = NULL;
    struct plan_route *route = NULL;
    pawl_code code = plan_route_new(costs->pipelines, costs->stages, costs->chunks, batch.each, &route, e);
    if (code != PAWL_OK) return code;
    size_t workers = (size_t)costs->pipelines * costs->stages;
    if (alive != NULL) memcpy(route->alive, alive, workers * sizeof *alive);
    code = plan_route_limit(route, plan_batch_total(batch, costs->pipelines), e);
    if (code == PAWL_OK) code = plan_route_fill_peers(route, costs, free_homes, e);
    if (code == PAWL_OK)
        *out = route;
    else
        plan_route_free(route);
    return code;
}
