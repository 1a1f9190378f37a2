/* What the same policy needs without failures, for comparison: its plan's period if nobody is dead, else the
 * bound of a plan with nobody dead, under the same limits; for the baselines, whose order is a rule, the
 * period itself. */
#include <stdlib.h>
#include <string.h>

#include "plan/make.h"

static bool any_dead(const struct make *m) {
    for (uint32_t w = 0; w < m->worker_count; w++)
        if (!m->normal.alive[w]) return true;
    return false;
}

/* A pipeline of its own, all alive, each executing its own: with nobody dead all pipelines do the same, and
 * only the gradient sums tie them together. */
static pawl_code own_route(const struct make *m, const struct sim_costs *costs, struct plan_route **out) {
    uint32_t chunks = costs->chunks, microbatches = m->request->microbatches;
    pawl_code code = plan_route_new(1, costs->stages, chunks, microbatches, out, m->e);
    if (code != PAWL_OK) return code;
    (*out)->stage_of = m->stage_of;
    for (uint32_t c = 0; c < chunks; c++)
        for (uint32_t j = 0; j < microbatches; j++)
            (*out)->host[plan_route_cell(*out, 0, c, j)] = m->stage_of == NULL ? c : m->stage_of[c];
    return PAWL_OK;
}

static pawl_code order_by_rule(struct make *m, uint64_t *out) {
    struct sim_costs alone = *m->costs; /* borrows the chunks */
    struct plan_route *route = NULL;
    struct ir_plan *ir = NULL;
    struct sim_result times = {0};
    alone.pipelines = 1;
    alone.slow = NULL;
    alone.limit = NULL;
    pawl_code code = own_route(m, &alone, &route);
    if (code == PAWL_OK) code = plan_baseline(m->request->policy, route, &alone, &ir, m->e);
    if (code == PAWL_OK) code = sim_run(ir, &alone, m->list.staggered, NULL, &times, m->e);
    if (code == PAWL_OK) *out = times.period;
    sim_result_close(&times);
    ir_plan_free(ir);
    plan_route_free(route);
    return code;
}

static pawl_code bound_alive(const struct make *m, uint64_t *out) {
    bool *alive = malloc(m->worker_count * sizeof *alive);
    if (alive == NULL) return error_set(m->e, PAWL_MEMORY, 0, "no memory for %u workers", m->worker_count);
    memset(alive, 1, m->worker_count * sizeof *alive);
    *out = make_peers_only(m) ? plan_bound_peers(m->costs, m->batch, alive, &m->list)
                              : plan_bound_free(m->costs, m->batch, alive, m->list.staggered);
    free(alive);
    return PAWL_OK;
}

pawl_code make_fault_free(struct make *m, uint64_t *out) {
    if (!any_dead(m)) {
        *out = m->times.period;
        return PAWL_OK;
    }
    return plan_is_listed(m->request->policy) ? bound_alive(m, out) : order_by_rule(m, out);
}
