/* Who executes what, as a table: the container, and what schedulers derive from it.
 *
 * A route says for each micro-batch of each chunk which worker is its host; messages and holders follow. It
 * knows nothing of order or time. Tested in tests/unit/plan_route_test.c. */
#include "plan/route.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static pawl_code size_fault(const char *field, uint32_t had, uint32_t limit, struct pawl_error *e) {
    return error_set(e, PAWL_ARGUMENT, 0, "route: %s must be 1..%u, had %u", field, limit, had);
}

static pawl_code sizes_check(uint32_t pipelines, uint32_t stages, uint32_t chunks, uint32_t microbatches,
                             struct pawl_error *e) {
    if (pipelines == 0 || pipelines > IR_PIPELINES_MAX)
        return size_fault("pipelines", pipelines, IR_PIPELINES_MAX, e);
    if (stages == 0 || stages > IR_STAGES_MAX) return size_fault("stages", stages, IR_STAGES_MAX, e);
    if (chunks == 0 || chunks > IR_CHUNKS_MAX) return size_fault("chunks", chunks, IR_CHUNKS_MAX, e);
    if (microbatches == 0 || microbatches > IR_MICROBATCHES_MAX)
        return size_fault("microbatches", microbatches, IR_MICROBATCHES_MAX, e);
    if ((uint64_t)pipelines * stages > IR_WORKERS_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "route: %u pipelines x %u stages are more than %u workers",
                         pipelines, stages, IR_WORKERS_MAX);
    return PAWL_OK;
}

static uint64_t cell_count(const struct plan_route *r) {
    return (uint64_t)r->pipelines * r->chunks * r->microbatches;
}

static uint64_t worker_count(const struct plan_route *r) { return (uint64_t)r->pipelines * r->stages; }

/* All alive, hosts not set to anything. */
static pawl_code route_alloc(uint32_t pipelines, uint32_t stages, uint32_t chunks, uint32_t microbatches,
                             struct plan_route **out, struct pawl_error *e) {
    *out = NULL;
    struct plan_route *r = calloc(1, sizeof *r);
    if (r == NULL) return error_set(e, PAWL_MEMORY, 0, "route: no memory");
    *r = (struct plan_route){
        .pipelines = pipelines, .stages = stages, .chunks = chunks, .microbatches = microbatches};
    r->total = pipelines * microbatches;
    r->alive = malloc(worker_count(r) * sizeof *r->alive);
    r->host = malloc(cell_count(r) * sizeof *r->host);
    if (r->alive == NULL || r->host == NULL) {
        uint64_t cells = cell_count(r);
        plan_route_free(r);
        return error_set(e, PAWL_MEMORY, 0, "route: no memory for %llu micro-batches",
                         (unsigned long long)cells);
    }
    memset(r->alive, true, worker_count(r) * sizeof *r->alive);
    *out = r;
    return PAWL_OK;
}

pawl_code plan_route_new(uint32_t pipelines, uint32_t stages, uint32_t chunks, uint32_t microbatches,
                         struct plan_route **out, struct pawl_error *e) {
    *out = NULL;
    pawl_code code = sizes_check(pipelines, stages, chunks, microbatches, e);
    if (code == PAWL_OK) code = route_alloc(pipelines, stages, chunks, microbatches, out, e);
    if (code != PAWL_OK) return code;
    for (uint64_t i = 0; i < cell_count(*out); i++) (*out)->host[i] = IR_NONE;
    return PAWL_OK;
}

pawl_code plan_route_limit(struct plan_route *route, uint64_t total, struct pawl_error *e) {
    uint64_t most = (uint64_t)route->pipelines * route->microbatches;
    if (total == 0 || total > most)
        return error_set(e, PAWL_ARGUMENT, 0, "route: the total of micro-batches must be 1..%llu, had %llu",
                         (unsigned long long)most, (unsigned long long)total);
    route->total = (uint32_t)total;
    for (uint32_t h = 0; h < route->pipelines; h++)
        for (uint32_t c = 0; c < route->chunks; c++)
            for (uint32_t m = plan_route_count(route, h); m < route->microbatches; m++)
                route->host[plan_route_cell(route, h, c, m)] = PLAN_ABSENT;
    return PAWL_OK;
}

pawl_code plan_route_copy(const struct plan_route *route, struct plan_route **out, struct pawl_error *e) {
    pawl_code code = route_alloc(route->pipelines, route->stages, route->chunks, route->microbatches, out, e);
    if (code != PAWL_OK) return code;
    (*out)->stage_of = route->stage_of;
    (*out)->total = route->total;
    memcpy((*out)->alive, route->alive, worker_count(route) * sizeof *route->alive);
    memcpy((*out)->host, route->host, cell_count(route) * sizeof *route->host);
    if (route->early == NULL) return PAWL_OK;
    (*out)->early = malloc(route->chunks * sizeof *route->early);
    if ((*out)->early != NULL) {
        memcpy((*out)->early, route->early, route->chunks * sizeof *route->early);
        return PAWL_OK;
    }
    plan_route_free(*out);
    *out = NULL;
    return error_set(e, PAWL_MEMORY, 0, "route: no memory");
}

void plan_route_free(struct plan_route *route) {
    if (route == NULL) return;
    free(route->alive);
    free(route->host);
    free(route->early);
    free(route);
}

/* Every live worker holds the chunks of its stage. */
static pawl_code hold_own(const struct plan_route *r, struct ir_plan *plan, struct pawl_error *e) {
    for (uint32_t c = 0; c < r->chunks; c++) {
        for (uint32_t p = 0; p < r->pipelines; p++) {
            uint32_t worker = p * r->stages + route_stage_of(r, c);
            if (!r->alive[worker]) continue;
            pawl_code code = ir_plan_hold(plan, worker, c, e);
            if (code != PAWL_OK) return code;
        }
    }
    return PAWL_OK;
}

/* Whoever executes a chunk holds it. */
static pawl_code hold_hosted(const struct plan_route *r, struct ir_plan *plan, uint32_t home, uint32_t chunk,
                             struct pawl_error *e) {
    for (uint32_t m = 0; m < plan_route_count(r, home); m++) {
        uint32_t host = r->host[plan_route_cell(r, home, chunk, m)];
        if (host >= worker_count(r) || !r->alive[host])
            return error_set(e, PAWL_PLAN, 0,
                             "route: no live worker executes chunk %u of micro-batch %u of pipeline %u",
                             chunk, m, home);
        if (ir_plan_holds(plan, host, chunk)) continue;
        pawl_code code = ir_plan_hold(plan, host, chunk, e);
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

pawl_code plan_route_plan(const struct plan_route *route, struct ir_plan **out, struct pawl_error *e) {
    *out = NULL;
    struct ir_plan *plan = NULL;
    pawl_code code =
        ir_plan_new_chunks(route->pipelines, route->stages, route->chunks, route->microbatches, &plan, e);
    if (code != PAWL_OK) return code;
    for (uint32_t w = 0; w < worker_count(route); w++)
        if (!route->alive[w]) ir_plan_kill(plan, w);
    code = ir_plan_limit(plan, route->total, e);
    if (code == PAWL_OK) code = hold_own(route, plan, e);
    for (uint32_t h = 0; h < route->pipelines && code == PAWL_OK; h++)
        for (uint32_t c = 0; c < route->chunks && code == PAWL_OK; c++)
            code = hold_hosted(route, plan, h, c, e);
    if (code == PAWL_OK)
        *out = plan;
    else
        ir_plan_free(plan);
    return code;
}

struct ir_instruction plan_route_instruction(const struct plan_route *route, enum ir_op op, uint32_t home,
                                             uint32_t chunk, uint32_t microbatch) {
    struct ir_instruction in = {
        .op = op, .chunk = chunk, .home = home, .microbatch = microbatch, .from = IR_NONE, .to = IR_NONE};
    if (op != IR_F && op != IR_I && op != IR_B) return in;
    uint32_t before = chunk == 0 ? IR_NONE : route->host[plan_route_cell(route, home, chunk - 1, microbatch)];
    uint32_t after = chunk + 1 == route->chunks
                         ? IR_NONE
                         : route->host[plan_route_cell(route, home, chunk + 1, microbatch)];
    in.from = op == IR_F ? before : after;
    in.to = op == IR_F ? after : before;
    return in;
}
