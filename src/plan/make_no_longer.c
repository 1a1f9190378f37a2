/* pawl may do all that recycle may, but it goes its own way: other places for failures, helpers,
 * micro-batches given away. Where that did not pay, recycle's plan is the better one, and pawl takes it. It
 * is made only if its bound leaves it a chance, which costs next to nothing to know. */
#include "plan/make.h"

/* The plan of `r` moves into `m`; what it replaces is closed with `r`. */
static void take_plan(struct make *m, struct make *r) {
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
    m->bound = make_bound(m); /* of what pawl may do with these dead */
}

static pawl_code make_recycle(struct make *r, uint64_t longest) {
    pawl_code code = make_open(r);
    if (code == PAWL_OK) code = make_normalize(r);
    if (code != PAWL_OK) return code;
    uint64_t bound = plan_bound_peers(r->costs, r->request->microbatches, r->normal.alive, &r->list);
    plan_normal_close(&r->normal);
    if (bound >= longest) return PAWL_OK;
    code = make_attempt(r);
    return code == PAWL_OK ? make_search(r) : code;
}

pawl_code make_no_longer(struct make *m) {
    struct pawl_plan_request request = *m->request;
    struct pawl_error ignored = {0};
    struct make r = {.request = &request, .e = &ignored};
    request.policy = PAWL_POLICY_RECYCLE;
    pawl_code code = make_recycle(&r, m->times.period);
    if (code == PAWL_OK && r.ir != NULL && r.times.period < m->times.period) take_plan(m, &r);
    make_close(&r);
    if (code == PAWL_MEMORY) return error_set(m->e, PAWL_MEMORY, 0, "no memory for a second plan");
    return PAWL_OK; /* what recycle cannot do is no fault of pawl's plan */
}
