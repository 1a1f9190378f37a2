/* The plan in use: what may come after it is planned ahead, and whether another would be better is asked.
 * Tested in tests/unit/run_replan_test.c, tests/unit/run_replan_costs_test.c. */
#include <stdlib.h>
#include <string.h>

#include "run/replan_state.h"

/* Of the likely next failures as many are planned ahead as the cache holds beside what is in use. */
#define NEXT_MAX (REPLAN_KEPT_MAX - 16u)

static void add_job(struct replan *r, const struct replan_cast *cast, enum replan_job_kind kind,
                    struct replan_job *jobs, uint32_t *count) {
    struct replan_job *j = &jobs[*count];
    struct pawl_error e;
    *j = (struct replan_job){.kind = kind};
    pawl_code code = replan_request_make(cast, &r->costs, &j->request, &e);
    if (code == PAWL_OK && kind != REPLAN_JOB_NEXT) code = ir_plan_copy(r->in_use.ir, &j->in_use, &e);
    if (code == PAWL_OK)
        ++*count;
    else
        replan_job_close(j);
}

/* Without `rank`, as the next fence would ask. */
static void add_next(struct replan *r, uint32_t rank, struct replan_job *jobs, uint32_t *count) {
    struct replan_question q = {.candidates = r->candidates, .has_state = r->holds};
    struct replan_cast cast = {0};
    struct pawl_error e;
    r->candidates[rank] = false;
    bool enough = replan_count(r, &q) >= r->stages;
    if (enough && replan_cast_for(r, &q, &cast, &e) == PAWL_OK)
        add_job(r, &cast, REPLAN_JOB_NEXT, jobs, count);
    r->candidates[rank] = true;
    replan_cast_close(&cast);
}

/* Is it better now, what comes next, and a longer search. */
static void look_ahead(struct replan *r) {
    uint32_t count = 0;
    struct replan_job *jobs = calloc(NEXT_MAX + 2, sizeof *jobs);
    r->generation = r->costs.generation;
    r->looked = 0;
    if (jobs == NULL) return;
    if (r->spec.parallel.replan) add_job(r, &r->cast, REPLAN_JOB_COMPARE, jobs, &count);
    for (uint32_t i = 0; i < r->ranks && count <= NEXT_MAX; i++)
        if (r->candidates[i]) add_next(r, i, jobs, &count);
    if (r->spec.parallel.replan && r->spec.parallel.schedule >= PAWL_POLICY_ADAPTIVE)
        add_job(r, &r->cast, REPLAN_JOB_SEARCH, jobs, &count);
    replan_ahead_work(r->ahead, jobs, count);
}

/* Keeps the roles, and what they were made of. */
static pawl_code remember(struct replan *r, const struct replan_plan *p, struct pawl_error *e) {
    uint32_t roles = p->ir->pipelines * p->ir->stages;
    struct replan_cast cast = {.pipelines = p->ir->pipelines, .stages = r->stages};
    struct replan_answer shown = {.ir = p->ir, .peak = p->peak, .period = p->period}, kept;
    cast.rank_of_role = malloc(roles * sizeof *cast.rank_of_role);
    memcpy(shown.instead, p->instead, sizeof shown.instead);
    if (p->period > 0) shown.unit_s = p->period_s / p->period;
    pawl_code code = cast.rank_of_role != NULL
                         ? replan_answer_copy(&shown, &kept, e)
                         : error_set(e, PAWL_MEMORY, 0, "no memory to plan for %u ranks", r->ranks);
    if (code != PAWL_OK) {
        free(cast.rank_of_role);
        return code;
    }
    memcpy(cast.rank_of_role, p->rank_of_role, roles * sizeof *cast.rank_of_role);
    replan_cast_close(&r->cast);
    replan_answer_close(&r->in_use);
    r->cast = cast;
    r->in_use = kept;
    return PAWL_OK;
}

void replan_used(struct replan *r, const struct replan_plan *p) {
    struct pawl_error e;
    for (uint32_t i = 0; i < r->ranks; i++) {
        if (r->own[i] != p->own[i]) r->costs.rank[i].told = false; /* what it told was of another chunk */
        r->own[i] = p->own[i];
        r->role_of_rank[i] = UINT32_MAX;
    }
    for (uint32_t i = 0; i < p->ir->pipelines * p->ir->stages; i++)
        if (p->rank_of_role[i] != UINT32_MAX) r->role_of_rank[p->rank_of_role[i]] = i;
    memcpy(r->holds, p->holds, (size_t)r->ranks * r->stages * sizeof *r->holds);
    memcpy(r->candidates, r->asked, r->ranks * sizeof *r->candidates);
    r->generation = r->made = r->asked_generation;
    r->decided = 0;
    bool known = remember(r, p, &e) == PAWL_OK;
    if (known && r->ahead != NULL) look_ahead(r);
}

void replan_measured(struct replan *r, uint32_t rank, const struct measure_report *m) {
    replan_costs_told(&r->costs, r->own, r->ranks, rank, m);
}

void replan_exited(struct replan *r, uint32_t rank) { replan_costs_forget(&r->costs, rank); }

/* Without the thread: asked here, once for every change of the costs. */
static bool better_now(struct replan *r) {
    struct replan_answer a = {0};
    struct pawl_error e;
    r->generation = r->costs.generation;
    bool better = replan_compare(r, &r->cast, &a, &e) == PAWL_OK && replan_answer_better(&a);
    replan_answer_close(&a);
    return better;
}

bool replan_better(struct replan *r) {
    bool changed = r->generation != r->costs.generation, better = false;
    if (r->in_use.ir == NULL) return false;
    if (++r->looked >= REPLAN_PAUSE && changed && r->ahead != NULL) look_ahead(r);
    if (++r->decided < REPLAN_PAUSE || !r->spec.parallel.replan) return false;
    if (r->ahead != NULL)
        better = replan_ahead_better(r->ahead);
    else if (changed)
        better = better_now(r);
    if (better) r->decided = 0;
    return better;
}

void replan_settle(struct replan *r) {
    if (r->ahead != NULL) replan_ahead_settle(r->ahead);
}
