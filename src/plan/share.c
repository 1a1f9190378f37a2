/* Work shared beyond the stage: amounts, then the route, then who had to copy what.
 *
 * ReCycle leaves the loss of a failure to the peers of its stage; where bubbles are few that costs 1/D of
 * the speed. A worker that holds a neighbour's chunk as well carries a part of it over, at the price of one
 * chunk's state and a copy. Tested in tests/unit/plan_share_test.c; bench/plan_share.c shows what it brings.
 */
#include "plan/share.h"

#include <stdlib.h>
#include <string.h>

#include "plan/route.h"
#include "plan/ticks.h"

static pawl_code check(const struct share_request *r, struct pawl_error *e) {
    for (uint32_t s = 0; s < r->costs->stages; s++) {
        bool any = false;
        for (uint32_t p = 0; p < r->costs->pipelines; p++) any = any || r->alive[p * r->costs->stages + s];
        if (!any) return error_set(e, PAWL_STAGE_LOST, 0, "route: stage %u has no live worker", s);
    }
    return PAWL_OK;
}

/* The one of its own pipeline, else of the next pipeline in which the stage lives. */
static uint32_t copied_from(const struct share_request *r, uint32_t worker, uint32_t stage) {
    uint32_t stages = r->costs->stages, pipelines = r->costs->pipelines;
    for (uint32_t i = 0; i < pipelines; i++) {
        uint32_t from = (worker / stages + i) % pipelines * stages + stage;
        if (r->alive[from]) return from;
    }
    return IR_NONE; /* not reached: every stage lives */
}

static pawl_code list_helpers(const struct share_request *r, const struct share_work *work,
                              struct plan_share *out, struct pawl_error *e) {
    uint32_t workers = r->costs->pipelines * r->costs->stages;
    out->helpers = malloc(((size_t)r->helpers + 1) * sizeof *out->helpers);
    if (out->helpers == NULL) return error_set(e, PAWL_MEMORY, 0, "plan: no memory to share a stage");
    for (uint32_t w = 0; w < workers; w++) {
        uint32_t stage = w % r->costs->stages;
        if (work[w].left > 0)
            out->helpers[out->helper_count++] =
                (struct plan_helper){w, stage - 1, copied_from(r, w, stage - 1)};
        if (work[w].right > 0)
            out->helpers[out->helper_count++] =
                (struct plan_helper){w, stage + 1, copied_from(r, w, stage + 1)};
    }
    return PAWL_OK;
}

static uint64_t load_of(const struct sim_costs *costs, const struct share_work *work, uint32_t worker,
                        uint64_t early) {
    uint32_t stage = worker % costs->stages;
    uint64_t load = ticks_add(work->own * route_unit(costs, worker, stage), route_once(costs, worker, stage));
    if (work->left == 0 && work->right == 0) load = ticks_add(load, early);
    if (work->left > 0)
        load = ticks_add(load, work->left * route_unit(costs, worker, stage - 1) +
                                   route_once(costs, worker, stage - 1));
    if (work->right > 0)
        load = ticks_add(load, work->right * route_unit(costs, worker, stage + 1) +
                                   route_once(costs, worker, stage + 1));
    return load;
}

static pawl_code share(const struct share_request *r, struct share_work *work, struct plan_share *out,
                       struct pawl_error *e) {
    uint64_t *early = calloc(r->costs->stages, sizeof *early);
    out->route->early = early;
    if (early == NULL) return error_set(e, PAWL_MEMORY, 0, "plan: no memory to share a stage");
    pawl_code code = share_amounts(r, work, early, e);
    if (code == PAWL_OK) code = share_place(r, work, out->route, e);
    if (code == PAWL_OK) code = list_helpers(r, work, out, e);
    for (uint32_t w = 0; w < r->costs->pipelines * r->costs->stages && code == PAWL_OK; w++) {
        uint64_t load =
            out->route->alive[w] ? load_of(r->costs, &work[w], w, early[w % r->costs->stages]) : 0;
        if (load > out->load) out->load = load;
    }
    return code;
}

pawl_code plan_share_route(const struct sim_costs *costs, struct plan_batch batch, const bool *alive,
                           uint32_t helpers, const uint64_t *room, struct plan_share *out,
                           struct pawl_error *e) {
    *out = (struct plan_share){0};
    if (costs->chunks != costs->stages)
        return error_set(e, PAWL_UNSUPPORTED, 0, "route: stages of %u chunks in %u stages cannot be shared",
                         costs->chunks, costs->stages);
    size_t workers = (size_t)costs->pipelines * costs->stages;
    pawl_code code =
        plan_route_new(costs->pipelines, costs->stages, costs->chunks, batch.each, &out->route, e);
    if (code != PAWL_OK) return code;
    if (alive != NULL) memcpy(out->route->alive, alive, workers * sizeof *alive);
    if (helpers > workers) helpers = (uint32_t)workers; /* nobody helps on both sides */
    struct share_request r = {costs, batch, out->route->alive, helpers, room};
    struct share_work *work = calloc(workers, sizeof *work);
    code = work == NULL ? error_set(e, PAWL_MEMORY, 0, "plan: no memory to share a stage") : check(&r, e);
    if (code == PAWL_OK) code = plan_route_limit(out->route, plan_batch_total(batch, costs->pipelines), e);
    if (code == PAWL_OK) code = share(&r, work, out, e);
    free(work);
    if (code != PAWL_OK) plan_share_close(out);
    return code;
}

void plan_share_close(struct plan_share *s) {
    plan_route_free(s->route);
    free(s->helpers);
    *s = (struct plan_share){0};
}
