/* Implementation of ir/route.h. */
#include "ir/route.h"

#include <stdlib.h>

/* Stage-major, so that one stage's peers lie together. */
static uint64_t at(const struct ir_route *route, uint32_t pipeline, uint32_t stage) {
    return (uint64_t)stage * route->pipelines + pipeline;
}

void ir_route_close(struct ir_route *route) {
    free(route->live_count);
    free(route->live);
    free(route->rank);
    free(route->alive);
    *route = (struct ir_route){0};
}

static void route_stage(struct ir_route *route, uint32_t stage, const bool *alive) {
    uint32_t live = 0;
    for (uint32_t p = 0; p < route->pipelines; p++) {
        uint64_t worker = at(route, p, stage);
        route->alive[worker] = alive == NULL || alive[(uint64_t)p * route->stages + stage];
        route->rank[worker] = route->alive[worker] ? live : p - live;
        if (route->alive[worker]) route->live[at(route, live++, stage)] = p;
    }
    route->live_count[stage] = live;
}

pawl_code ir_route_init(struct ir_route *route, const struct ir_plan *plan, const bool *alive,
                        struct pawl_error *e) {
    *route = (struct ir_route){
        .pipelines = plan->pipelines, .stages = plan->stages, .microbatches = plan->microbatches};
    size_t workers = (size_t)plan->pipelines * plan->stages;
    route->live_count = calloc(plan->stages, sizeof *route->live_count);
    route->live = calloc(workers, sizeof *route->live);
    route->rank = calloc(workers, sizeof *route->rank);
    route->alive = calloc(workers, sizeof *route->alive);
    if (!route->live_count || !route->live || !route->rank || !route->alive) {
        ir_route_close(route);
        return error_set(e, PAWL_MEMORY, 0, "plan: no memory to route %zu workers", workers);
    }
    for (uint32_t s = 0; s < plan->stages; s++) {
        route_stage(route, s, alive);
        if (route->live_count[s] > 0) continue;
        ir_route_close(route);
        return error_set(e, PAWL_STAGE_LOST, 0, "plan: stage %u has no live worker in any of %u pipelines", s,
                         plan->pipelines);
    }
    return PAWL_OK;
}

uint32_t ir_route_host(const struct ir_route *route, uint32_t home, uint32_t stage, uint32_t microbatch) {
    uint64_t worker = at(route, home, stage);
    if (route->alive[worker]) return home;
    uint32_t live = route->live_count[stage];
    uint64_t orphan = (uint64_t)microbatch * (route->pipelines - live) + route->rank[worker];
    return route->live[at(route, (uint32_t)(orphan % live), stage)];
}

uint32_t ir_route_guests(const struct ir_route *route, uint32_t pipeline, uint32_t stage) {
    uint32_t live = route->live_count[stage];
    uint64_t orphans = (uint64_t)route->microbatches * (route->pipelines - live);
    bool one_more = route->rank[at(route, pipeline, stage)] < orphans % live;
    return (uint32_t)(orphans / live) + (one_more ? 1 : 0);
}
