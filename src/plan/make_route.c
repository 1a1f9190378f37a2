/* Who is dead, who moves, who executes what. */
#include <stdlib.h>
#include <string.h>

#include "plan/make.h"

struct predict {
    const struct sim_costs *costs;
    struct plan_batch batch;
    enum pawl_policy policy;
};

static uint64_t predict(void *context, uint32_t stage, uint32_t holes) {
    const struct predict *p = context;
    return plan_predict_stage(p->costs, p->batch, p->policy, stage, holes);
}

/* ReCycle normalizes stages that lost more than one worker; a lone failure stays where it is, also where its
 * ablations, whose iterations end with a barrier, would run sooner without it there. */
static bool may_move(const struct make *m) {
    const struct pawl_plan_request *r = m->request;
    if (r->no_move || m->stay) return false;
    if (r->policy == PAWL_POLICY_PAWL) return true;
    for (uint32_t s = 0; s < r->stages; s++) {
        uint32_t lost = 0;
        for (uint32_t p = 0; p < r->pipelines; p++) lost += m->dead[p * r->stages + s];
        if (lost > 1) return true;
    }
    return false;
}

pawl_code make_normalize(struct make *m) {
    const struct pawl_plan_request *r = m->request;
    struct predict p = {m->costs, m->batch, r->policy};
    struct sim_costs *plain = NULL;
    if (m->costs->chunks != m->costs->stages) { /* predictions are of whole stages */
        struct pawl_plan_request whole = *r;
        whole.policy = PAWL_POLICY_1F1B;
        pawl_code code = plan_costs(&whole, &plain, m->e);
        if (code != PAWL_OK) return code;
        p.costs = plain;
    }
    struct plan_normal_request n = {
        .pipelines = r->pipelines,
        .stages = r->stages,
        .dead = m->dead,
        .free_failures = r->failures,
        .no_move = !may_move(m),
        .min_gain = m->min_gain,
        .time = predict,
        .context = &p,
    };
    pawl_code code = plan_normalize(&n, &m->normal, m->e);
    plan_costs_free(plain);
    return code;
}

/* Several chunks a stage: placed as the policy has them. */
static pawl_code route_chunks(struct make *m) {
    const struct pawl_plan_request *r = m->request;
    uint32_t chunks = m->costs->chunks;
    pawl_code code = plan_placement(r->policy, r->stages, chunks, &m->stage_of, m->e);
    if (code == PAWL_OK)
        code = plan_route_new(r->pipelines, r->stages, chunks, r->microbatches, &m->route, m->e);
    if (code != PAWL_OK) return code;
    code = plan_route_limit(m->route, plan_batch_total(m->batch, r->pipelines), m->e);
    if (code != PAWL_OK) return code;
    m->route->stage_of = m->stage_of;
    memcpy(m->route->alive, m->normal.alive, m->worker_count * sizeof *m->route->alive);
    return plan_route_fill_peers(m->route, m->costs, false, m->e);
}

pawl_code make_route(struct make *m) {
    if (m->costs->chunks != m->costs->stages) return route_chunks(m);
    bool free_homes = m->request->policy == PAWL_POLICY_PAWL && m->costs->slow != NULL;
    return plan_route_peers(m->costs, m->batch, m->normal.alive, free_homes, &m->route, m->e);
}
