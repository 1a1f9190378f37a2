/* See replan.h; how the parts fit together: replan_state.h. */
#include "run/replan.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "run/replan_state.h"

/* With slow ranks a move changes what the planner was told of a role, so that it is asked again; it ends when
 * nobody moves any more, or here. */
#define TRIES 3u

/* ---- life ---- */

static pawl_code no_memory(const struct replan *r, struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "no memory to plan for %u ranks", r->ranks);
}

static pawl_code open_all(struct replan *r, bool background, struct pawl_error *e) {
    r->role_of_rank = malloc(r->ranks * sizeof *r->role_of_rank);
    r->own = malloc(r->ranks * sizeof *r->own);
    r->candidates = calloc(r->ranks, sizeof *r->candidates);
    r->asked = calloc(r->ranks, sizeof *r->asked);
    r->holds = calloc((size_t)r->ranks * r->stages, sizeof *r->holds);
    if (r->role_of_rank == NULL || r->own == NULL || r->candidates == NULL || r->asked == NULL ||
        r->holds == NULL)
        return no_memory(r, e);
    for (uint32_t i = 0; i < r->ranks; i++) r->role_of_rank[i] = r->own[i] = UINT32_MAX;
    pawl_code code = replan_costs_open(&r->costs, &r->spec, r->ranks, e);
    return code == PAWL_OK && background ? replan_ahead_start(&r->spec, &r->ahead, e) : code;
}

pawl_code replan_new(const struct spec *spec, uint32_t ranks, bool background, struct replan **out,
                     struct pawl_error *e) {
    struct replan *r = calloc(1, sizeof *r);
    if (r == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory to plan");
    r->spec = *spec;
    r->ranks = ranks;
    r->stages = spec->parallel.stages;
    pawl_code code = open_all(r, background, e);
    if (code == PAWL_OK)
        *out = r;
    else
        replan_free(r);
    return code;
}

void replan_free(struct replan *r) {
    if (r == NULL) return;
    replan_ahead_stop(r->ahead);
    replan_cache_close(&r->cache);
    replan_costs_close(&r->costs);
    replan_cast_close(&r->cast);
    replan_answer_close(&r->in_use);
    free(r->role_of_rank);
    free(r->own);
    free(r->candidates);
    free(r->asked);
    free(r->holds);
    free(r);
}

void replan_plan_free(struct replan_plan *p) {
    if (p == NULL) return;
    ir_plan_free(p->ir);
    free(p->rank_of_role);
    free(p->holds);
    free(p->own);
    free(p->peak);
    free(p);
}

/* ---- from the question to the answer ---- */

static pawl_code find_kept(struct replan *r, const struct replan_request *q, struct replan_answer *out,
                           bool *ahead, struct pawl_error *e) {
    if (r->ahead != NULL) return replan_ahead_find(r->ahead, q, out, ahead, e);
    return replan_cache_find(&r->cache, q, out, ahead, e);
}

/* Keeps a copy; the answer stays the caller's. */
static void keep_copy(struct replan *r, struct replan_request *q, struct replan_answer *a) {
    struct replan_answer copy;
    struct pawl_error e;
    if (replan_answer_copy(a, &copy, &e) != PAWL_OK) return;
    if (r->ahead != NULL)
        replan_ahead_keep(r->ahead, q, &copy);
    else
        replan_cache_put(&r->cache, q, &copy, false);
}

static pawl_code answer(struct replan *r, const struct replan_cast *cast, struct replan_answer *out,
                        bool *ahead, struct pawl_error *e) {
    struct replan_request q = {0};
    struct replan_budget budget = {0};
    pawl_code code = replan_request_make(cast, &r->costs, &q, e);
    if (code == PAWL_OK) code = find_kept(r, &q, out, ahead, e);
    if (code == PAWL_NOT_FOUND) {
        *ahead = false;
        code = replan_ask(&r->spec, &q, &budget, out, e);
        if (code == PAWL_OK) keep_copy(r, &q, out);
    }
    replan_request_close(&q);
    return code;
}

/* Some rank is not like the others. */
static bool any_special(const struct replan *r, const struct replan_cast *cast) {
    uint32_t first = IR_NONE;
    for (uint32_t i = 0; i < cast->pipelines * cast->stages; i++) {
        uint32_t rank = cast->rank_of_role[i];
        if (rank == IR_NONE) continue;
        if (first == IR_NONE) first = rank;
        if (!replan_alike(&r->costs, first, rank)) return true;
    }
    return false;
}

/* ---- the same roles as before ---- */

static bool plays_the_same(const struct replan *r, const struct replan_cast *cast) {
    size_t roles = (size_t)cast->pipelines * cast->stages;
    return r->in_use.ir != NULL && cast->pipelines == r->cast.pipelines &&
           memcmp(cast->rank_of_role, r->cast.rank_of_role, roles * sizeof *cast->rank_of_role) == 0;
}

pawl_code replan_compare(struct replan *r, const struct replan_cast *cast, struct replan_answer *out,
                         struct pawl_error *e) {
    struct replan_request q = {0};
    struct replan_budget budget = {.in_use = r->in_use.ir};
    bool changed = r->made != r->costs.generation, ahead;
    pawl_code code = replan_request_make(cast, &r->costs, &q, e);
    if (code == PAWL_OK) code = find_kept(r, &q, out, &ahead, e);
    bool compared = code == PAWL_OK && out->former > 0;
    if (changed && !compared && (code == PAWL_OK || code == PAWL_NOT_FOUND)) {
        replan_answer_close(out);
        code = replan_ask(&r->spec, &q, &budget, out, e);
        if (code == PAWL_OK) keep_copy(r, &q, out);
    }
    replan_request_close(&q);
    return code;
}

/* The plan in use stays, unless another is better in earnest: a fence for something else is no occasion to
 * copy state. Without parallel.replan it stays in any case, also at a fence that takes back a clipped step:
 * what was measured by then differs from run to run, and so would the order of float sums. */
static pawl_code stay_or_change(struct replan *r, const struct replan_cast *cast, struct replan_answer *out,
                                struct pawl_error *e) {
    pawl_code code = replan_compare(r, cast, out, e);
    if (code == PAWL_MEMORY) return code;
    if (code == PAWL_OK && r->spec.parallel.replan && replan_answer_better(out)) return code;
    double period = out->former, unit_s = out->unit_s;
    replan_answer_close(out);
    code = replan_answer_copy(&r->in_use, out, e);
    if (code == PAWL_OK && period > 0) out->period = period, out->unit_s = unit_s;
    return code;
}

/* ---- from roles to a plan ---- */

/* The planner's answer for the cast, which plays it afterwards. */
static pawl_code settle(struct replan *r, const struct replan_question *q, struct replan_cast *cast,
                        struct replan_answer *out, bool *ahead, struct pawl_error *e) {
    *ahead = true;
    if (plays_the_same(r, cast)) {
        pawl_code code = stay_or_change(r, cast, out, e);
        if (code != PAWL_OK || out->move_count == 0) return code;
        replan_answer_close(out); /* better with moves: as for anybody else */
    }
    for (uint32_t i = 0; i < TRIES; i++) {
        bool before = *ahead;
        replan_answer_close(out);
        pawl_code code = answer(r, cast, out, ahead, e);
        if (code != PAWL_OK) return code;
        *ahead = *ahead && before;
        replan_cast_move(cast, out->moves, out->move_count, q, &r->costs);
        if (out->move_count == 0 || !any_special(r, cast)) break;
    }
    replan_cast_keep_helpers(cast, out->ir, q, &r->costs);
    return PAWL_OK;
}

uint32_t replan_count(const struct replan *r, const struct replan_question *q) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->ranks; i++) count += q->candidates[i];
    return count;
}

pawl_code replan_cast_for(const struct replan *r, const struct replan_question *q, struct replan_cast *out,
                          struct pawl_error *e) {
    struct replan_casting in = {.ranks = r->ranks,
                                .pipelines = replan_pipelines(&r->spec, replan_count(r, q)),
                                .stages = r->stages,
                                .question = q,
                                .role_of_rank = r->role_of_rank};
    return replan_cast_make(&in, out, e);
}

/* ---- the plan of ranks ---- */

static pawl_code plan_alloc(const struct replan *r, uint32_t roles, struct replan_plan **out,
                            struct pawl_error *e) {
    struct replan_plan *p = calloc(1, sizeof *p);
    if (p == NULL) return no_memory(r, e);
    p->rank_of_role = malloc(roles * sizeof *p->rank_of_role);
    p->own = malloc(r->ranks * sizeof *p->own);
    p->holds = calloc((size_t)r->ranks * r->stages, sizeof *p->holds);
    if (p->rank_of_role != NULL && p->own != NULL && p->holds != NULL) {
        *out = p;
        return PAWL_OK;
    }
    replan_plan_free(p);
    return no_memory(r, e);
}

/* Who holds what: the list of each role, and every rank with a role the chunk of its stage. */
static void fill_ranks(const struct replan *r, const struct replan_cast *cast, struct replan_plan *p) {
    for (uint32_t i = 0; i < r->ranks; i++) p->own[i] = UINT32_MAX;
    for (uint32_t i = 0; i < cast->pipelines * cast->stages; i++) {
        uint32_t rank = p->rank_of_role[i] = cast->rank_of_role[i];
        const struct ir_worker *w = &p->ir->workers[i];
        if (rank == IR_NONE) continue;
        p->own[rank] = i % cast->stages;
        for (uint32_t k = 0; k < w->hold_count; k++) p->holds[(size_t)rank * r->stages + w->holds[k]] = true;
        p->moves += r->own[rank] != UINT32_MAX && r->own[rank] != p->own[rank];
    }
}

/* Takes the answer's lists over. */
static pawl_code to_plan(const struct replan *r, const struct replan_cast *cast, struct replan_answer *a,
                         struct replan_plan **out, struct pawl_error *e) {
    pawl_code code = plan_alloc(r, cast->pipelines * cast->stages, out, e);
    if (code != PAWL_OK) return code;
    struct replan_plan *p = *out;
    p->ir = a->ir;
    p->peak = a->peak;
    p->period = a->period;
    p->period_s = a->period * a->unit_s;
    memcpy(p->instead, a->instead, sizeof p->instead);
    a->ir = NULL;
    a->peak = NULL;
    fill_ranks(r, cast, p);
    return PAWL_OK;
}

static pawl_code make(struct replan *r, const struct replan_question *q, struct replan_plan **out,
                      struct pawl_error *e) {
    struct replan_cast cast = {0};
    struct replan_answer a = {0};
    bool ahead = false;
    pawl_code code = replan_cast_for(r, q, &cast, e);
    if (code == PAWL_OK) code = settle(r, q, &cast, &a, &ahead, e);
    if (code == PAWL_OK) code = to_plan(r, &cast, &a, out, e);
    if (code == PAWL_OK) (*out)->ahead = ahead;
    replan_cast_close(&cast);
    replan_answer_close(&a);
    return code;
}

pawl_code replan_make(struct replan *r, const struct replan_question *q, struct replan_plan **out,
                      uint32_t *need, struct pawl_error *e) {
    uint32_t count = replan_count(r, q);
    *out = NULL;
    *need = count < r->stages ? r->stages - count : 0;
    if (*need > 0)
        return error_set(e, PAWL_STAGE_LOST, 0, "%u workers are too few for %u stages: %u more are needed",
                         count, r->stages, *need);
    memcpy(r->asked, q->candidates, r->ranks * sizeof *r->asked);
    r->asked_generation = r->costs.generation;
    int64_t begin = r->ahead != NULL ? clock_now_ns() : 0;
    if (r->ahead != NULL) replan_ahead_pause(r->ahead);
    pawl_code code = make(r, q, out, e);
    if (code == PAWL_OK && r->ahead != NULL) (*out)->planning_ms = (double)(clock_now_ns() - begin) * 1e-6;
    return code;
}

pawl_code replan_join(struct replan *r, uint32_t rank, const struct replan_question *q, uint32_t *chunk,
                      struct pawl_error *e) {
    struct replan_plan *plan = NULL;
    bool *candidates = malloc(r->ranks * sizeof *candidates);
    *chunk = UINT32_MAX;
    if (candidates == NULL) return no_memory(r, e);
    memcpy(candidates, q->candidates, r->ranks * sizeof *candidates);
    candidates[rank] = true;
    struct replan_question joined = {.candidates = candidates, .has_state = q->has_state};
    pawl_code code = make(r, &joined, &plan, e);
    if (code == PAWL_OK) *chunk = plan->own[rank];
    replan_plan_free(plan);
    free(candidates);
    return code;
}
