/* Which micro-batches: amounts of work become a route.
 *
 * Chunk by chunk from the first. A worker that has less of its own to do than its pipeline has gives some
 * away, rather those whose chunk before it does not execute, or its helper of that chunk does; a helper takes
 * rather those of which it executes the neighbouring chunk as well: then nothing is sent in between. All
 * choices are at even distances over the numbers, so that within any stretch of an iteration each worker gets
 * its share: a schedule then reaches the load. The rest goes to the peers in turns. Tested in
 * tests/unit/plan_share_test.c. */
#include <stdlib.h>

#include "plan/route.h"
#include "plan/share.h"

struct place {
    const struct share_request *request;
    const struct share_work *work;
    struct plan_route *route;
    bool *preferred;              /* [orphans] or [microbatches] */
    struct route_orphan *orphans; /* [pipelines * microbatches] */
    uint64_t orphan_count;
    struct route_turn *turn; /* [2 * pipelines] */
};

/* Chooses `wanted` of `count` evenly among the preferred, and if these are too few, all of them and the rest
 * evenly among the others. preferred[i] becomes "is chosen". */
static void choose(bool *preferred, uint64_t count, uint64_t wanted) {
    uint64_t good = 0;
    for (uint64_t i = 0; i < count; i++) good += preferred[i];
    bool enough = wanted <= good;
    uint64_t from = enough ? good : count - good, some = enough ? wanted : wanted - good;
    for (uint64_t i = 0, seen = 0; i < count; i++) {
        if (preferred[i] != enough) continue; /* not chosen, or chosen anyway */
        preferred[i] = route_even(seen, some, from);
        seen++;
    }
}

static uint32_t host_of(const struct place *p, uint32_t home, uint32_t chunk, uint32_t microbatch) {
    return p->route->host[plan_route_cell(p->route, home, chunk, microbatch)];
}

static void set_host(struct place *p, uint32_t home, uint32_t chunk, uint32_t microbatch, uint32_t worker) {
    p->route->host[plan_route_cell(p->route, home, chunk, microbatch)] = worker;
}

/* The worker keeps what it shall do of its own pipeline, as far as there is. */
static void keep_own(struct place *p, uint32_t home, uint32_t chunk) {
    uint32_t count = plan_route_count(p->route, home), worker = home * p->route->stages + chunk;
    uint64_t own = p->work[worker].own, kept = own < count ? own : count;
    if (!p->route->alive[worker]) kept = 0;
    bool gives_right = chunk > 0 && p->work[worker - 1].right > 0;
    for (uint32_t m = 0; m < count; m++) {
        uint32_t before = chunk == 0 ? IR_NONE : host_of(p, home, chunk - 1, m);
        p->preferred[m] = gives_right ? before == worker - 1 : before != worker;
    }
    choose(p->preferred, count, count - kept);
    for (uint32_t m = 0; m < count; m++) set_host(p, home, chunk, m, p->preferred[m] ? IR_NONE : worker);
}

/* A helper takes its part of the orphans; those that are left move up. */
static void take(struct place *p, uint32_t chunk, uint32_t worker, uint64_t wanted) {
    uint32_t stage = worker % p->route->stages;
    for (uint64_t i = 0; i < p->orphan_count; i++) {
        struct route_orphan o = p->orphans[i];
        bool does_next = stage > chunk && o.home == worker / p->route->stages;
        bool did_before = stage < chunk && host_of(p, o.home, chunk - 1, o.microbatch) == worker;
        p->preferred[i] = does_next || did_before;
    }
    choose(p->preferred, p->orphan_count, wanted);
    uint64_t left = 0;
    for (uint64_t i = 0; i < p->orphan_count; i++) {
        struct route_orphan o = p->orphans[i];
        if (p->preferred[i])
            set_host(p, o.home, chunk, o.microbatch, worker);
        else
            p->orphans[left++] = o;
    }
    p->orphan_count = left;
}

static void take_helpers(struct place *p, uint32_t chunk) {
    uint32_t stages = p->route->stages;
    for (uint32_t i = 0; i < p->route->pipelines; i++) {
        uint32_t worker = i * stages + chunk;
        if (chunk > 0 && p->work[worker - 1].right > 0) take(p, chunk, worker - 1, p->work[worker - 1].right);
        if (chunk + 1 < stages && p->work[worker + 1].left > 0)
            take(p, chunk, worker + 1, p->work[worker + 1].left);
    }
}

static void take_peers(struct place *p, uint32_t chunk) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->route->pipelines; i++) {
        uint32_t worker = i * p->route->stages + chunk, mine = plan_route_count(p->route, i);
        uint64_t own = p->work[worker].own;
        p->turn[count++] = (struct route_turn){worker, own > mine ? own - mine : 0, 0};
    }
    struct route_turns turns;
    route_turns_init(&turns, p->turn, count);
    for (uint64_t i = 0; i < p->orphan_count; i++)
        set_host(p, p->orphans[i].home, chunk, p->orphans[i].microbatch, route_turns_next(&turns));
}

pawl_code share_place(const struct share_request *request, const struct share_work *work,
                      struct plan_route *route, struct pawl_error *e) {
    size_t orphans = (size_t)route->pipelines * route->microbatches; /* at most */
    struct place p = {.request = request,
                      .work = work,
                      .route = route,
                      .preferred = malloc(orphans * sizeof *p.preferred),
                      .orphans = malloc(orphans * sizeof *p.orphans),
                      .turn = malloc(route->pipelines * sizeof *p.turn)};
    bool ok = p.preferred != NULL && p.orphans != NULL && p.turn != NULL;
    for (uint32_t c = 0; c < route->chunks && ok; c++) {
        for (uint32_t h = 0; h < route->pipelines; h++) keep_own(&p, h, c);
        p.orphan_count = route_orphans(route, c, p.orphans);
        take_helpers(&p, c);
        take_peers(&p, c);
    }
    free(p.preferred);
    free(p.orphans);
    free(p.turn);
    return ok ? PAWL_OK : error_set(e, PAWL_MEMORY, 0, "plan: no memory to share a stage");
}
