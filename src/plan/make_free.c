/* What the same policy needs without failures, for comparison: of one pipeline, since with nobody dead all
 * pipelines do the same, and only the gradient sums tie them together. Baselines and the ablation with fused
 * backward are ordered and timed; for the others it is their bound. */
#include <stdlib.h>
#include <string.h>

#include "plan/make.h"

/* A pipeline of its own, all alive, each executing its own. */
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

static pawl_code order_alone(struct make *m, const struct sim_costs *costs, enum pawl_policy policy,
                             uint64_t *out) {
    struct plan_route *route = NULL;
    struct ir_plan *ir = NULL;
    struct sim_result times = {0};
    pawl_code code = own_route(m, costs, &route);
    if (code == PAWL_OK) code = plan_baseline(policy, route, costs, &ir, m->e);
    if (code == PAWL_OK) code = sim_run(ir, costs, m->list.staggered, NULL, &times, m->e);
    if (code == PAWL_OK) *out = times.period;
    sim_result_close(&times);
    ir_plan_free(ir);
    plan_route_free(route);
    return code;
}

pawl_code make_fault_free(struct make *m, uint64_t *out) {
    struct sim_costs alone = *m->costs; /* borrows the chunks */
    alone.pipelines = 1;
    alone.slow = NULL;
    alone.limit = NULL;
    enum pawl_policy policy = m->request->policy;
    if (policy == PAWL_POLICY_ADAPTIVE) return order_alone(m, &alone, PAWL_POLICY_1F1B, out);
    if (!plan_is_listed(policy)) return order_alone(m, &alone, policy, out);
    bool *alive = malloc(alone.stages * sizeof *alive);
    if (alive == NULL) return error_set(m->e, PAWL_MEMORY, 0, "no memory for %u stages", alone.stages);
    memset(alive, 1, alone.stages * sizeof *alive);
    *out = plan_bound_peers(&alone, m->request->microbatches, alive, &m->list);
    free(alive);
    return PAWL_OK;
}
