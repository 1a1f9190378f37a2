/* pawl_plan_make: joins the parts of the planner, and what users see of a plan.
 *
 *   check ─► costs ─► normalize ─► route ─► order ─► share ─► search ─► exact ─► ir_check ─► plan
 *
 * Every plan passes ir_check before anybody gets it; one that does not is an error of ours, unless a fixed
 * order needs more memory than there is. Tested in tests/unit/plan_make_test.c,
 * tests/golden/plan_facts_test.c and tests/e2e/plan_test.py. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "plan/make.h"

/* ---- names ---- */

static const char *const policy_names[PAWL_POLICY_COUNT] = {
    "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "adaptive", "decoupled", "recycle", "pawl",
};
static const char *const format_names[PAWL_PLAN_FORMAT_COUNT] = {"text",   "json", "svg",
                                                                 "chrome", "csv",  "ir"};

const char *pawl_policy_name(enum pawl_policy policy) {
    return (unsigned)policy < PAWL_POLICY_COUNT ? policy_names[policy] : "?";
}

pawl_code pawl_policy_parse(const char *name, enum pawl_policy *out, struct pawl_error *e) {
    for (int i = 0; i < PAWL_POLICY_COUNT; i++)
        if (strcmp(policy_names[i], name) == 0) {
            *out = (enum pawl_policy)i;
            return PAWL_OK;
        }
    return error_set(e, PAWL_ARGUMENT, 0,
                     "there is no policy \"%.40s\": there are gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, "
                     "adaptive, decoupled, recycle and pawl",
                     name);
}

const char *pawl_plan_format_name(enum pawl_plan_format format) {
    return (unsigned)format < PAWL_PLAN_FORMAT_COUNT ? format_names[format] : "?";
}

/* ---- the steps ---- */

static pawl_code check_plan(struct make *m, double *check_ms) {
    uint32_t chunks = m->costs->chunks;
    uint64_t *memory = malloc(3 * (size_t)chunks * sizeof *memory);
    if (memory == NULL) return error_set(m->e, PAWL_MEMORY, 0, "no memory to check %u chunks", chunks);
    for (uint32_t c = 0; c < chunks; c++) {
        memory[c] = m->costs->chunk[c].full;
        memory[chunks + c] = m->costs->chunk[c].kept;
        memory[2 * chunks + c] = m->costs->chunk[c].after_input;
    }
    struct ir_memory limits = {memory, memory + chunks, memory + 2 * chunks, m->costs->limit};
    int64_t begin = clock_now_ns();
    pawl_code code = ir_check(m->ir, &limits, NULL, m->e);
    *check_ms = (double)(clock_now_ns() - begin) * 1e-6;
    free(memory);
    if (code == PAWL_PLAN && !plan_is_listed(m->request->policy) && m->costs->limit != NULL && m->e != NULL)
        error_wrap(m->e, "policy %s, whose order is its own", pawl_policy_name(m->request->policy));
    return code;
}

pawl_code make_attempt(struct make *m) {
    pawl_code code = make_normalize(m);
    if (code == PAWL_OK) code = make_route(m);
    if (code == PAWL_OK) code = make_order(m, m->route, 0, &m->ir, &m->times);
    if (code != PAWL_OK) return code;
    m->bound = make_bound(m);
    return make_share(m);
}

void make_forget(struct make *m) {
    plan_normal_close(&m->normal);
    plan_route_free(m->route);
    free(m->helpers);
    ir_plan_free(m->ir);
    sim_result_close(&m->times);
    m->route = NULL;
    m->helpers = NULL;
    m->helper_count = 0;
    m->ir = NULL;
}

/* Moves were made for what stages need by themselves; with helpers the same may be had where the failure is.
 * `limit` is what costs allowed before helpers took from it. */
static pawl_code attempt_without_moves(struct make *m, const uint64_t *limit) {
    struct make moved = *m;
    size_t size = m->worker_count * sizeof *limit;
    uint64_t *kept = limit != NULL ? malloc(size) : NULL;
    if (limit != NULL && kept == NULL)
        return error_set(m->e, PAWL_MEMORY, 0, "no memory for %u workers", m->worker_count);
    if (limit != NULL) {
        memcpy(kept, m->costs->limit, size);
        memcpy(m->costs->limit, limit, size);
    }
    m->normal = (struct plan_normal){0};
    m->times = (struct sim_result){0};
    m->route = NULL;
    m->helpers = NULL;
    m->helper_count = 0;
    m->ir = NULL;
    m->stay = true;
    pawl_code code = make_attempt(m);
    bool stays = code == PAWL_OK && (double)moved.times.period > (double)m->times.period * (1 - m->min_gain);
    if (stays) {
        make_forget(&moved);
    } else {
        make_forget(m);
        *m = moved;
        if (limit != NULL) memcpy(m->costs->limit, kept, size);
    }
    free(kept);
    return code == PAWL_STAGE_LOST || code == PAWL_PLAN ? PAWL_OK : code;
}

static pawl_code attempts(struct make *m) {
    size_t size = m->worker_count * sizeof *m->costs->limit;
    bool two = m->request->policy == PAWL_POLICY_PAWL && !m->request->no_move && m->request->dead_count > 0;
    uint64_t *limit = two && m->costs->limit != NULL ? malloc(size) : NULL;
    if (two && m->costs->limit != NULL) {
        if (limit == NULL)
            return error_set(m->e, PAWL_MEMORY, 0, "no memory for %u workers", m->worker_count);
        memcpy(limit, m->costs->limit, size);
    }
    pawl_code code = make_attempt(m);
    bool again = two && m->normal.move_count > 0 && !make_is_stopped(m);
    if (code == PAWL_OK && again) code = attempt_without_moves(m, limit);
    free(limit);
    return code;
}

static pawl_code run(struct make *m, double *check_ms) {
    pawl_code code = make_open(m);
    if (code == PAWL_OK) code = attempts(m);
    if (code == PAWL_OK) code = make_search(m);
    if (code == PAWL_OK) code = make_no_longer(m);
    if (code == PAWL_OK && m->request->exact) code = make_exact(m);
    return code == PAWL_OK ? check_plan(m, check_ms) : code;
}

pawl_code make_open(struct make *m) {
    pawl_code code = make_check(m);
    if (code == PAWL_OK) code = plan_costs(m->request, &m->costs, m->e);
    if (code != PAWL_OK) return code;
    make_options(m);
    plan_costs_warn(m);
    return PAWL_OK;
}

void make_close(struct make *m) {
    make_forget(m);
    free(m->dead);
    plan_costs_free(m->costs);
    free(m->stage_of);
    ir_plan_free(m->exact.plan);
    bytes_close(&m->warnings);
}

/* ---- the plan as users see it ---- */

static double to_time(uint64_t ticks) { return (double)ticks / SIM_TICKS; }

static struct pawl_worker_at worker_at(const struct ir_plan *ir, uint32_t worker) {
    return (struct pawl_worker_at){worker / ir->stages, worker % ir->stages};
}

static void show_instructions(struct pawl_plan *p) {
    uint64_t at = 0;
    uint32_t workers = p->ir->pipelines * p->ir->stages;
    for (uint32_t w = 0; w < workers; w++)
        for (uint32_t i = 0; i < p->ir->workers[w].count; i++, at++) {
            const struct ir_instruction *in = &p->ir->workers[w].instructions[i];
            p->instructions[at] = (struct pawl_instruction){
                ir_op_name(in->op)[0],
                in->chunk,
                in->home,
                in->microbatch,
                in->from,
                in->to,
                to_time(p->times.start[at]),
                to_time(p->times.end[at]),
            };
            p->summary.recomputed += in->op == IR_C;
            p->summary.offloaded += in->op == IR_O;
        }
}

static void show_moves(struct pawl_plan *p) {
    for (uint32_t i = 0; i < p->move_count; i++) {
        uint32_t stage = p->moves[i].to % p->ir->stages;
        uint64_t state = p->costs->chunks == p->costs->stages ? p->costs->chunk[stage].state : 0;
        p->shown_moves[i] = (struct pawl_plan_move){worker_at(p->ir, p->moves[i].from),
                                                    worker_at(p->ir, p->moves[i].to), state};
    }
    for (uint32_t i = 0; i < p->helper_count; i++) {
        const struct plan_helper *h = &p->helpers[i];
        p->shown_shares[i] =
            (struct pawl_plan_shared){worker_at(p->ir, h->worker), h->chunk, p->costs->chunk[h->chunk].state};
    }
}

static pawl_code show(struct make *m, struct pawl_plan *p) {
    uint32_t workers = p->ir->pipelines * p->ir->stages;
    p->summary.instructions = p->times.first[workers];
    p->instructions = calloc(p->summary.instructions, sizeof *p->instructions);
    p->shown_moves = calloc(p->move_count + 1u, sizeof *p->shown_moves);
    p->shown_shares = calloc(p->helper_count + 1u, sizeof *p->shown_shares);
    p->warnings = strndup(m->warnings.size == 0 ? "" : (const char *)m->warnings.data, m->warnings.size);
    if (p->instructions == NULL || p->shown_moves == NULL || p->shown_shares == NULL || p->warnings == NULL)
        return error_set(m->e, PAWL_MEMORY, 0, "no memory for %llu instructions",
                         (unsigned long long)p->summary.instructions);
    show_instructions(p);
    show_moves(p);
    return PAWL_OK;
}

static const char *engine_of(const struct make *m) {
    if (m->exact_ran) return m->request->engine != NULL ? m->request->engine : "z3";
    if (!plan_is_listed(m->request->policy)) return "rule";
    return m->searched ? "list+search" : "list";
}

/* A solver orders the work of live homes where it is, and may place orphans among peers: all that a policy
 * may do, but for pawl where others help, or where slow workers give work of their own away. */
static bool solver_saw_all(const struct make *m) {
    return make_peers_only(m) && (m->request->policy != PAWL_POLICY_PAWL || m->costs->slow == NULL);
}

static pawl_code summarize(struct make *m, struct pawl_plan *p) {
    const struct pawl_plan_request *r = m->request;
    struct pawl_plan_summary *s = &p->summary;
    uint64_t fault_free = 0, bound = m->bound;
    pawl_code code = make_fault_free(m, &fault_free);
    if (code != PAWL_OK) return code;
    bool whole = m->exact_ran && solver_saw_all(m);
    if (whole && m->exact.bound > bound) bound = m->exact.bound;
    *s = (struct pawl_plan_summary){
        .policy = r->policy,
        .pipelines = r->pipelines,
        .stages = r->stages,
        .chunks = m->costs->chunks,
        .microbatches = r->microbatches,
        .period = to_time(m->times.period),
        .makespan = to_time(m->times.makespan),
        .lower_bound = to_time(bound),
        .fault_free = to_time(fault_free),
        .proven = m->times.period <= bound || (whole && m->exact.proven),
        .exact = m->exact_ran,
        .exact_s = m->exact.seconds,
        .exact_bound = to_time(m->exact.bound),
        .engine = engine_of(m),
        .move_count = m->normal.move_count,
        .shared_count = m->helper_count,
        .unit = r->profile != NULL ? p->unit : "",
        .memory_unit = p->memory_in_bytes ? "bytes" : "microbatches",
    };
    s->gap = bound == 0 ? 0 : (double)(m->times.period - bound) / (double)bound;
    for (uint32_t w = 0; w < m->worker_count; w++) s->alive += m->normal.alive[w];
    return PAWL_OK;
}

/* Hands over what the plan keeps. */
static void take(struct make *m, struct pawl_plan *p) {
    p->staggered = m->list.staggered;
    p->ir = m->ir;
    p->costs = m->costs;
    p->times = m->times;
    p->moves = m->normal.moves;
    p->move_count = m->normal.move_count;
    p->helpers = m->helpers;
    p->helper_count = m->helper_count;
    m->ir = NULL;
    m->costs = NULL;
    m->times = (struct sim_result){0};
    m->normal.moves = NULL;
    m->helpers = NULL;
}

static pawl_code build(struct make *m, struct pawl_plan *p) {
    int64_t begin = clock_now_ns();
    double check_ms = 0;
    pawl_code code = run(m, &check_ms);
    if (code != PAWL_OK) return code;
    const struct pawl_profile *profile = m->request->profile;
    p->memory_in_bytes = plan_costs_in_bytes(m->request);
    p->unit = strdup(profile != NULL ? profile->unit : "");
    if (p->unit == NULL) return error_set(m->e, PAWL_MEMORY, 0, "no memory for a plan");
    code = summarize(m, p);
    if (code != PAWL_OK) return code;
    take(m, p);
    code = show(m, p);
    p->summary.check_ms = check_ms;
    p->summary.planning_ms = (double)(clock_now_ns() - begin) * 1e-6;
    return code;
}

pawl_code pawl_plan_make(const struct pawl_plan_request *request, struct pawl_plan **out,
                         struct pawl_error *e) {
    struct pawl_error own;
    struct make m = {.request = request, .e = e != NULL ? e : &own};
    struct pawl_plan *p = calloc(1, sizeof *p);
    if (p == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a plan");
    pawl_code code = build(&m, p);
    make_close(&m);
    if (code == PAWL_OK)
        *out = p;
    else
        pawl_plan_free(p);
    return code;
}

void pawl_plan_free(struct pawl_plan *plan) {
    if (plan == NULL) return;
    ir_plan_free(plan->ir);
    plan_costs_free(plan->costs);
    sim_result_close(&plan->times);
    free(plan->moves);
    free(plan->helpers);
    free(plan->warnings);
    free(plan->unit);
    free(plan->instructions);
    free(plan->shown_moves);
    free(plan->shown_shares);
    free(plan);
}

const struct pawl_plan_summary *pawl_plan_summary(const struct pawl_plan *plan) { return &plan->summary; }
const char *pawl_plan_warnings(const struct pawl_plan *plan) { return plan->warnings; }
const struct pawl_plan_move *pawl_plan_moves(const struct pawl_plan *plan) { return plan->shown_moves; }
const struct pawl_plan_shared *pawl_plan_shares(const struct pawl_plan *plan) { return plan->shown_shares; }

pawl_code pawl_plan_worker(const struct pawl_plan *plan, uint32_t pipeline, uint32_t stage,
                           struct pawl_plan_worker *out, struct pawl_error *e) {
    const struct ir_plan *ir = plan->ir;
    if (pipeline >= ir->pipelines || stage >= ir->stages)
        return error_set(e, PAWL_ARGUMENT, 0, "there is no worker %u:%u among %u pipelines of %u stages",
                         pipeline, stage, ir->pipelines, ir->stages);
    uint32_t w = pipeline * ir->stages + stage;
    double scale = plan->memory_in_bytes ? 1 : (double)ir->stages / ir->chunks;
    *out = (struct pawl_plan_worker){
        .alive = ir->workers[w].alive,
        .instruction_count = ir->workers[w].count,
        .instructions = plan->instructions + plan->times.first[w],
        .peak_memory = (double)plan->times.peak[w] * scale,
        .busy = to_time(plan->times.busy[w]),
    };
    return PAWL_OK;
}
