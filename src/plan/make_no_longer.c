/* Each policy may do all that the one before it may: decoupled may leave gradients together as adaptive does,
 * recycle may step as decoupled does, pawl may stay among peers as recycle does. But each goes its own way,
 * by rules that are not the best for every case, so that the simpler policy's plan can come out shorter; then
 * it is taken. It is made only if its bound leaves it a chance, which costs next to nothing to know. */
#include "plan/make.h"

/* The plan of `r` moves into `m`; what it replaces is closed with `r`. */
static void swap_plans(struct make *m, struct make *r) {
    struct make former = *m;
    m->costs = r->costs;
    m->normal = r->normal;
    m->route = r->route;
    m->helpers = r->helpers;
    m->helper_count = r->helper_count;
    m->ir = r->ir;
    m->times = r->times;
    m->searched = r->searched;
    r->costs = former.costs;
    r->normal = former.normal;
    r->route = former.route;
    r->helpers = former.helpers;
    r->helper_count = former.helper_count;
    r->ir = former.ir;
    r->times = former.times;
}

/* The lists stay; when steps are taken, and what is the bound, is for the policy of `m`. */
static pawl_code take(struct make *m, struct make *r) {
    struct sim_result times = {0};
    pawl_code code = sim_run(r->ir, r->costs, m->list.staggered, NULL, &times, m->e);
    if (code != PAWL_OK) return code;
    sim_result_close(&r->times);
    r->times = times;
    swap_plans(m, r);
    m->bound = make_bound(m);
    return PAWL_OK;
}

static pawl_code make_simpler(struct make *r, uint64_t longest) {
    pawl_code code = make_open(r);
    if (code == PAWL_OK) code = make_normalize(r);
    if (code != PAWL_OK) return code;
    uint64_t bound = plan_bound_peers(r->costs, r->batch, r->normal.alive, &r->list);
    plan_normal_close(&r->normal);
    if (bound >= longest) return PAWL_OK;
    code = make_attempt(r);
    if (code == PAWL_OK) code = make_search(r);
    return code == PAWL_OK ? make_no_longer(r) : code;
}

pawl_code make_no_longer(struct make *m) {
    if (m->request->policy <= PAWL_POLICY_ADAPTIVE || m->times.period <= m->bound || make_is_stopped(m))
        return PAWL_OK;
    struct pawl_plan_request request = *m->request;
    struct pawl_error ignored = {0};
    struct make r = {.request = &request, .e = &ignored};
    request.policy = (enum pawl_policy)(m->request->policy - 1);
    pawl_code code = make_simpler(&r, m->times.period);
    bool shorter = code == PAWL_OK && r.ir != NULL && r.times.period < m->times.period;
    if (code == PAWL_MEMORY) error_set(m->e, PAWL_MEMORY, 0, "no memory for a second plan");
    if (shorter) code = take(m, &r);
    make_close(&r);
    /* What the simpler policy cannot do is no fault of the plan that there is. */
    return shorter || code == PAWL_MEMORY ? code : PAWL_OK;
}
