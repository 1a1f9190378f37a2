/* The best order of a route within the budget, its times, its bound, and the solver's word on it. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "plan/make.h"

/* Local search by default: so many instructions are listed again altogether, at most so many times. It is
 * counted, not timed, so that the same request gives the same plan on any machine. One core lists some
 * million of them a second (bench/plan_latency.c). */
#define SEARCH_INSTRUCTIONS 60000u
#define SEARCH_ROUNDS_MAX   200u
/* A guard for machines far slower than any that was thought of. */
#define SEARCH_GUARD_S 10.0
/* Where there is time to search routes too: of the first turn of each. */
#define ROUTE_ROUNDS 256u

static uint64_t instruction_count(const struct make *m) {
    const struct pawl_plan_request *r = m->request;
    return 3 * plan_batch_total(m->batch, r->pipelines) * r->stages * plan_chunks_per_stage(r);
}

void make_options(struct make *m) {
    const struct pawl_plan_request *r = m->request;
    uint64_t rounds = SEARCH_INSTRUCTIONS / instruction_count(m);
    m->list.backward = r->policy == PAWL_POLICY_ADAPTIVE ? PLAN_FUSED : PLAN_SELECTIVE;
    m->list.staggered = plan_policy_staggered(r->policy);
    m->list.seed = r->seed;
    m->list.stop = r->stop;
    m->list.search_s = r->search_s > 0 ? r->search_s : SEARCH_GUARD_S;
    m->list.rounds = rounds < SEARCH_ROUNDS_MAX ? (uint32_t)rounds : SEARCH_ROUNDS_MAX;
    if (r->search_s > 0) m->list.rounds = UINT32_MAX;
    if (r->search_s < 0) m->list.rounds = 0;
}

static pawl_code order(struct make *m, const struct plan_route *route, uint32_t rounds, struct ir_plan **ir) {
    if (!plan_is_listed(m->request->policy))
        return plan_baseline(m->request->policy, route, m->costs, ir, m->e);
    struct plan_list_options options = m->list;
    options.bound = plan_bound_route(route, m->costs, &options);
    options.rounds = rounds;
    return plan_list(route, m->costs, &options, ir, m->e);
}

pawl_code make_order(struct make *m, const struct plan_route *route, uint32_t rounds, struct ir_plan **ir,
                     struct sim_result *times) {
    pawl_code code = order(m, route, rounds, ir);
    if (code == PAWL_OK) code = sim_run(*ir, m->costs, m->list.staggered, NULL, times, m->e);
    if (code == PAWL_OK) return PAWL_OK;
    ir_plan_free(*ir);
    *ir = NULL;
    return code;
}

bool make_is_stopped(const struct make *m) {
    return m->request->stop != NULL && __atomic_load_n(m->request->stop, __ATOMIC_RELAXED);
}

bool make_has_time(struct make *m, int64_t until_ns) {
    int64_t left_ns = until_ns - clock_now_ns();
    m->list.search_s = left_ns > 0 ? (double)left_ns * 1e-9 : 0;
    return left_ns > 0 && m->times.period > m->bound && !make_is_stopped(m);
}

/* Search begins with the list schedule anew, so that it can only be better. */
static pawl_code search_route(struct make *m, uint32_t rounds) {
    struct ir_plan *ir = NULL;
    struct sim_result times = {0};
    pawl_code code = make_order(m, m->route, rounds, &ir, &times);
    if (code != PAWL_OK) return code;
    m->searched = true;
    if (times.period < m->times.period) {
        struct ir_plan *worse = m->ir;
        struct sim_result former = m->times;
        m->ir = ir;
        m->times = times;
        ir = worse;
        times = former;
    }
    ir_plan_free(ir);
    sim_result_close(&times);
    return PAWL_OK;
}

/* The best route so far and others take turns of so many rounds each, then of twice as many, with other
 * random choices: only where it ends depends on the clock. */
static pawl_code search_routes(struct make *m) {
    int64_t until_ns = clock_now_ns() + (int64_t)(m->request->search_s * 1e9);
    pawl_code code = PAWL_OK;
    uint32_t rounds = ROUTE_ROUNDS;
    for (bool any = true; code == PAWL_OK && any && make_has_time(m, until_ns); m->list.seed++) {
        any = plan_bound_route(m->route, m->costs, &m->list) < m->times.period;
        if (any) code = search_route(m, rounds);
        if (code == PAWL_OK) code = make_other_routes(m, rounds, until_ns, &any);
        if (rounds < UINT32_MAX / 2) rounds *= 2;
    }
    m->list.seed = m->request->seed;
    m->list.search_s = m->request->search_s;
    return code;
}

pawl_code make_search(struct make *m) {
    if (!plan_is_listed(m->request->policy) || m->list.rounds == 0 || m->times.period <= m->bound ||
        make_is_stopped(m))
        return PAWL_OK;
    bool others = m->request->search_s > 0 && !make_peers_only(m);
    return others ? search_routes(m) : search_route(m, m->list.rounds);
}

/* Baselines have one order for a route; the ablations may route orphans as they like, among peers; pawl may
 * also share stages, unless nobody may move. */
bool make_peers_only(const struct make *m) {
    return m->request->policy != PAWL_POLICY_PAWL || m->request->no_move || m->own_stages;
}

uint64_t make_bound(const struct make *m) {
    const struct pawl_plan_request *r = m->request;
    if (!plan_is_listed(r->policy)) return plan_bound_route(m->route, m->costs, &m->list);
    if (!make_peers_only(m)) return plan_bound_free(m->costs, m->batch, m->normal.alive, m->list.staggered);
    return plan_bound_peers(m->costs, m->batch, m->normal.alive, &m->list);
}

static void report_progress(void *context, uint64_t best, uint64_t bound, double seconds) {
    const struct pawl_plan_request *r = context;
    r->progress(r->context, (double)best / SIM_TICKS, (double)bound / SIM_TICKS, seconds);
}

static bool has_orphans(const struct make *m) {
    for (uint32_t w = 0; w < m->worker_count; w++)
        if (!m->normal.alive[w]) return true;
    return false;
}

pawl_code make_exact(struct make *m) {
    const struct pawl_plan_request *r = m->request;
    struct pawl_plan_request copy = *r;
    struct pawl_error why = {0};
    struct plan_exact_options options = {
        .engine = r->engine != NULL && strcmp(r->engine, "cbc") == 0 ? PLAN_CBC : PLAN_Z3,
        .list = m->list,
        .time_limit_s = r->time_limit_s == 0 ? PLAN_EXACT_S : r->time_limit_s,
        .free_route = m->helper_count == 0 && has_orphans(m),
        .progress = r->progress != NULL ? report_progress : NULL,
        .context = &copy,
    };
    if (m->helper_count == 0 && !make_peers_only(m)) {
        make_warn(m, "exact: among plans in which everybody executes work of its own stage");
        m->own_stages = true;
        m->bound = make_bound(m);
    }
    options.bound = options.free_route ? plan_bound_peers(m->costs, m->batch, m->normal.alive, &m->list)
                                       : plan_bound_route(m->route, m->costs, &m->list);
    pawl_code code = plan_exact_built(options.engine, m->e);
    if (code != PAWL_OK) return code;
    code = plan_exact(m->route, m->costs, m->ir, &options, &m->exact, &why);
    if (code == PAWL_UNSUPPORTED) { /* too large, for one: the plan that there is stands */
        make_warn(m, "%s", why.text);
        return PAWL_OK;
    }
    if (code != PAWL_OK) {
        *m->e = why;
        return code;
    }
    m->exact_ran = true;
    ir_plan_free(m->ir);
    m->ir = m->exact.plan;
    m->exact.plan = NULL;
    sim_result_close(&m->times);
    return sim_run(m->ir, m->costs, m->list.staggered, NULL, &m->times, m->e);
}
