/* The planner, asked for roles: a request is what decides its answer, so that equal requests may share one.
 * Tested in tests/unit/run_replan_test.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run/replan_state.h"

/* ---- requests ---- */

static pawl_code no_memory(struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "no memory to ask for a plan");
}

/* The stages of a profile, with no workers of its own. */
static pawl_code copy_profile(const struct pawl_profile *from, uint32_t roles, struct pawl_profile **out,
                              struct pawl_error *e) {
    pawl_code code = pawl_profile_uniform(from->stages, 1, 1, 1, 0, out, e);
    if (code != PAWL_OK) return code;
    memcpy((*out)->stage, from->stage, from->stages * sizeof *from->stage);
    (*out)->memory_bytes = from->memory_bytes;
    (*out)->link_bps = from->link_bps;
    (*out)->host_bps = from->host_bps;
    (*out)->worker = calloc(roles, sizeof *(*out)->worker);
    return (*out)->worker != NULL ? PAWL_OK : no_memory(e);
}

static pawl_code request_alloc(struct replan_request *q, const struct pawl_profile *profile,
                               struct pawl_error *e) {
    q->dead = calloc(q->roles, sizeof *q->dead);
    q->slow = calloc(q->roles, sizeof *q->slow);
    q->memory = calloc(q->roles, sizeof *q->memory);
    q->profile = NULL;
    pawl_code code = q->dead != NULL && q->slow != NULL && q->memory != NULL ? PAWL_OK : no_memory(e);
    if (code == PAWL_OK) code = copy_profile(profile, q->roles, &q->profile, e);
    if (code != PAWL_OK) replan_request_close(q);
    return code;
}

/* Tells the profile who differs. */
static void add_worker(struct replan_request *q, uint32_t role, uint32_t stages) {
    struct pawl_profile *p = q->profile;
    if (!(fabs(q->slow[role] - 1) > 0) && q->memory[role] == 0) return;
    p->worker[p->worker_count++] =
        (struct pawl_worker_cost){role / stages, role % stages, q->slow[role], q->memory[role]};
}

pawl_code replan_request_make(const struct replan_cast *cast, const struct replan_costs *costs,
                              struct replan_request *out, struct pawl_error *e) {
    *out = (struct replan_request){.pipelines = cast->pipelines,
                                   .roles = cast->pipelines * cast->stages,
                                   .generation = costs->generation};
    pawl_code code = request_alloc(out, costs->profile, e);
    if (code != PAWL_OK) return code;
    out->profile->unit_s = costs->unit_s;
    for (uint32_t i = 0; i < out->roles; i++) {
        uint32_t rank = cast->rank_of_role[i];
        out->dead[i] = rank == IR_NONE;
        out->slow[i] = rank == IR_NONE ? 1 : replan_slow(costs, rank);
        out->memory[i] = rank == IR_NONE ? 0 : costs->rank[rank].memory;
        add_worker(out, i, cast->stages);
    }
    return PAWL_OK;
}

void replan_request_close(struct replan_request *q) {
    free(q->dead);
    free(q->slow);
    free(q->memory);
    pawl_profile_free(q->profile);
    *q = (struct replan_request){0};
}

bool replan_request_same(const struct replan_request *a, const struct replan_request *b) {
    return a->pipelines == b->pipelines && a->roles == b->roles && a->generation == b->generation &&
           memcmp(a->dead, b->dead, a->roles * sizeof *a->dead) == 0 &&
           memcmp(a->slow, b->slow, a->roles * sizeof *a->slow) == 0 &&
           memcmp(a->memory, b->memory, a->roles * sizeof *a->memory) == 0;
}

/* ---- answers ---- */

static pawl_code list_dead(const struct replan_request *q, uint32_t stages, struct pawl_worker_at **out,
                           uint32_t *count, struct pawl_error *e) {
    *out = calloc(q->roles, sizeof **out);
    *count = 0;
    if (*out == NULL) return no_memory(e);
    for (uint32_t i = 0; i < q->roles; i++)
        if (q->dead[i]) (*out)[(*count)++] = (struct pawl_worker_at){i / stages, i % stages};
    return PAWL_OK;
}

/* The same global batch, divided over more or fewer pipelines. */
static void divide(const struct spec *spec, struct pawl_plan_request *r) {
    uint64_t all = spec_contributions(spec);
    r->microbatches = (uint32_t)((all + r->pipelines - 1) / r->pipelines);
    r->total_microbatches = (uint32_t)all;
}

/* How long the plan in use takes by the costs of the new one. */
static pawl_code time_former(const struct pawl_plan *plan, const struct ir_plan *in_use, double *out,
                             struct pawl_error *e) {
    struct sim_result times = {0};
    pawl_code code = sim_run(in_use, plan->costs, plan->staggered, NULL, &times, e);
    if (code == PAWL_OK) *out = (double)times.period / SIM_TICKS;
    sim_result_close(&times);
    return code;
}

/* Takes the lists out of the plan. */
static pawl_code take(struct pawl_plan *plan, struct replan_answer *out, struct pawl_error *e) {
    out->period = plan->summary.period;
    out->ir = plan->ir;
    out->moves = plan->moves;
    out->move_count = plan->move_count;
    plan->ir = NULL;
    plan->moves = NULL;
    out->peak = calloc((size_t)out->ir->pipelines * out->ir->stages, sizeof *out->peak);
    return out->peak != NULL ? ir_check(out->ir, NULL, out->peak, e) : no_memory(e);
}

/* By the spec's schedule, or by recycle where that has no plan within the memory. */
static pawl_code make_plan(struct pawl_plan_request *r, struct pawl_plan **plan, char instead[REPLAN_WHY_MAX],
                           struct pawl_error *e) {
    struct pawl_error first = {0}, last = {0};
    pawl_code code = pawl_plan_make(r, plan, &first);
    if (code == PAWL_PLAN && r->policy != PAWL_POLICY_RECYCLE) {
        r->policy = PAWL_POLICY_RECYCLE;
        code = pawl_plan_make(r, plan, &last);
        if (code == PAWL_OK) memcpy(instead, first.text, REPLAN_WHY_MAX);
    } else {
        last = first;
    }
    if (code == PAWL_PLAN)
        return error_set(
            e, code, 0,
            "no schedule fits the memory (parallel.memory, or the profile's memory_bytes) with who "
            "is there: %s: allow more, or start more workers",
            last.text);
    if (code != PAWL_OK && e != NULL) *e = last;
    return code;
}

pawl_code replan_ask(const struct spec *spec, const struct replan_request *q,
                     const struct replan_budget *budget, struct replan_answer *out, struct pawl_error *e) {
    struct pawl_plan *plan = NULL;
    struct pawl_worker_at *dead = NULL;
    *out = (struct replan_answer){.unit_s = q->profile->unit_s};
    struct pawl_plan_request r = {.pipelines = q->pipelines,
                                  .stages = spec->parallel.stages,
                                  .profile = q->profile,
                                  .policy = spec->parallel.schedule,
                                  .memory = spec->parallel.memory,
                                  .search_s = budget->search_s,
                                  .stop = budget->stop};
    divide(spec, &r);
    pawl_code code = list_dead(q, r.stages, &dead, &r.dead_count, e);
    r.dead = dead;
    if (code == PAWL_OK) code = make_plan(&r, &plan, out->instead, e);
    if (code == PAWL_OK && budget->in_use != NULL && budget->in_use->pipelines == q->pipelines)
        code = time_former(plan, budget->in_use, &out->former, e);
    if (code == PAWL_OK) code = take(plan, out, e);
    pawl_plan_free(plan);
    free(dead);
    if (code != PAWL_OK) replan_answer_close(out);
    return code;
}

bool replan_answer_better(const struct replan_answer *a) {
    return a->former > 0 && a->period <= a->former * (1 - REPLAN_GAIN);
}

void replan_answer_close(struct replan_answer *a) {
    ir_plan_free(a->ir);
    free(a->moves);
    free(a->peak);
    *a = (struct replan_answer){0};
}

pawl_code replan_answer_copy(const struct replan_answer *from, struct replan_answer *out,
                             struct pawl_error *e) {
    size_t roles = (size_t)from->ir->pipelines * from->ir->stages;
    *out = *from;
    out->ir = NULL;
    out->moves = malloc((from->move_count + 1) * sizeof *out->moves);
    out->peak = malloc(roles * sizeof *out->peak);
    pawl_code code = ir_plan_copy(from->ir, &out->ir, e);
    if (code == PAWL_OK && (out->moves == NULL || out->peak == NULL))
        code = error_set(e, PAWL_MEMORY, 0, "no memory for a plan of %zu roles", roles);
    if (code != PAWL_OK) {
        replan_answer_close(out);
        return code;
    }
    if (from->move_count > 0) memcpy(out->moves, from->moves, from->move_count * sizeof *out->moves);
    memcpy(out->peak, from->peak, roles * sizeof *out->peak);
    return PAWL_OK;
}
