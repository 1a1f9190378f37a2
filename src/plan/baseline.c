/* The baselines: placement, order, formulas.
 *
 *   policy       chunks a worker  backward   step       stored at most, in micro-batches of a chunk
 *   gpipe        1                fused      barrier    all
 *   1f1b         1                fused      barrier    P - s
 *   interleaved  k                fused      barrier    2 (P - 1 - s) + (k - 1) P + 1
 *   zb-h1        1                split      staggered  P
 *   zb-h2        1                split      staggered  2 P - 1
 *   zb-v         2                split      staggered  2 P
 *
 * Zero Bubble's formulas, as its code counts, are for the largest time from a stage's first F to its last W:
 * the period without a barrier for the optimizer. With one, its schedules would wait for P - 1 forwards more.
 *
 * Without dead workers every pipeline executes the published order, by itself. Zero Bubble's published orders
 * are for equal times; like its own scheduler, which tries several rules and keeps the best, we try list
 * schedules too and keep whichever has the least period in simulation. With dead workers there are only list
 * schedules; machines are alike, so any of them may store what the first stage does. Tested in
 * tests/golden/plan_baseline_test.c. */
#include "plan/baseline.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

bool plan_policy_staggered(enum pawl_policy policy) {
    return policy == PAWL_POLICY_ZB_H1 || policy == PAWL_POLICY_ZB_H2 || policy == PAWL_POLICY_ZB_V ||
           policy == PAWL_POLICY_RECYCLE || policy == PAWL_POLICY_PAWL;
}

static bool is_zero_bubble(enum pawl_policy policy) {
    return policy == PAWL_POLICY_ZB_H1 || policy == PAWL_POLICY_ZB_H2 || policy == PAWL_POLICY_ZB_V;
}

bool baseline_is_fused(enum pawl_policy policy) { return !is_zero_bubble(policy); }

uint32_t baseline_cap(enum pawl_policy policy, uint32_t stages, uint32_t stage, uint32_t chunks_per_stage) {
    switch (policy) {
    case PAWL_POLICY_1F1B:
        return stages - stage;
    case PAWL_POLICY_INTERLEAVED:
        return 2 * (stages - 1 - stage) + (chunks_per_stage - 1) * stages + 1;
    case PAWL_POLICY_ZB_H1:
        return stages;
    case PAWL_POLICY_ZB_H2:
        return 2 * stages - 1;
    case PAWL_POLICY_ZB_V:
        return 2 * stages;
    default:
        return UINT32_MAX;
    }
}

/* ---- placement ---- */

static pawl_code check_chunks(enum pawl_policy policy, uint32_t stages, uint32_t chunks,
                              struct pawl_error *e) {
    if (stages == 0 || chunks == 0)
        return error_set(e, PAWL_ARGUMENT, 0, "placement: %u chunks in %u stages", chunks, stages);
    bool fits = chunks == stages;
    if (policy == PAWL_POLICY_INTERLEAVED) fits = chunks % stages == 0;
    if (policy == PAWL_POLICY_ZB_V) fits = chunks % 2 == 0 && chunks / 2 == stages;
    if (fits) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0, "placement: %u chunks in %u stages; wanted %s", chunks, stages,
                     policy == PAWL_POLICY_ZB_V          ? "2 a stage"
                     : policy == PAWL_POLICY_INTERLEAVED ? "as many in each"
                                                         : "1 a stage");
}

pawl_code plan_placement(enum pawl_policy policy, uint32_t stages, uint32_t chunks, uint32_t **out,
                         struct pawl_error *e) {
    *out = NULL;
    pawl_code code = check_chunks(policy, stages, chunks, e);
    if (code != PAWL_OK) return code;
    uint32_t *stage_of = malloc(chunks * sizeof *stage_of);
    if (stage_of == NULL) return error_set(e, PAWL_MEMORY, 0, "placement: no memory for %u chunks", chunks);
    for (uint32_t c = 0; c < chunks; c++) {
        stage_of[c] = c % stages;
        if (policy == PAWL_POLICY_ZB_V && c >= stages) stage_of[c] = chunks - 1 - c;
    }
    *out = stage_of;
    return PAWL_OK;
}

/* ---- formulas ---- */

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* The first worker can do nothing from the end of the forwards that it may start until the first gradient
 * comes back. */
static uint64_t first_wait(const struct sim_chunk *c, uint64_t stages, uint64_t forwards) {
    uint64_t gradient = stages * c->forward + (stages - 1) * c->input_grad;
    return gradient > forwards * c->forward ? gradient - forwards * c->forward : 0;
}

/* Interleaved 1F1B goes in rounds of as many micro-batches as stages; where the only round is not full, its
 * places stay empty each time but the last that it comes round. */
static uint64_t round_wait(const struct sim_chunk *c, uint64_t stages, uint64_t per_stage,
                           uint64_t microbatches) {
    if (microbatches >= stages) return 0;
    return (per_stage - 1) * (stages - microbatches) * (c->forward + c->input_grad + c->weight_grad);
}

static uint64_t above_zero(uint64_t plus, uint64_t minus) { return plus > minus ? plus - minus : 0; }

void plan_baseline_formula(enum pawl_policy policy, const struct sim_costs *costs, uint32_t microbatches,
                           uint64_t *bubble, uint64_t *peak) {
    const struct sim_chunk *c = &costs->chunk[0];
    uint64_t stages = costs->stages, per_stage = costs->chunks / stages, m = microbatches;
    uint64_t cap = baseline_cap(policy, costs->stages, 0, (uint32_t)per_stage);
    uint64_t wait = first_wait(c, stages, min_u64(cap, m));
    *peak = min_u64(cap, m * per_stage) * c->full;
    switch (policy) {
    case PAWL_POLICY_ZB_H1:
        *bubble = max_u64(wait, (stages - 1) * above_zero(c->forward + c->input_grad, c->weight_grad));
        break;
    case PAWL_POLICY_ZB_H2:
        *bubble = max_u64(wait, (stages - 1) * above_zero(c->forward + c->input_grad, 2 * c->weight_grad));
        break;
    case PAWL_POLICY_ZB_V:
        *bubble = 0;
        break;
    default:
        *bubble = (stages - 1) * (c->forward + c->input_grad + c->weight_grad) +
                  round_wait(c, stages, per_stage, m);
        break;
    }
}

/* ---- one pipeline ---- */

static uint32_t worker_count(const struct plan_route *route) { return route->pipelines * route->stages; }

/* R and S of every chunk held, in the same order on every worker, so that nobody waits in a circle: from the
 * last chunk on, whose gradients are complete first. */
static pawl_code append_steps(struct ir_plan *plan, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
        for (uint32_t i = plan->workers[w].hold_count; i > 0 && code == PAWL_OK; i--) {
            struct ir_instruction in = {IR_R,   plan->workers[w].holds[i - 1], IR_NONE, IR_NONE, IR_NONE,
                                        IR_NONE};
            code = ir_plan_append(plan, w / plan->stages, w % plan->stages, in, e);
            in.op = IR_S;
            if (code == PAWL_OK) code = ir_plan_append(plan, w / plan->stages, w % plan->stages, in, e);
        }
    }
    return code;
}

/* The problem's schedules so far. */
struct trial {
    enum pawl_policy policy;
    const struct plan_route *route;
    const struct sim_costs *costs;
    struct ir_plan *best;
    uint64_t period;
    struct pawl_error *e;
};

/* Complete `plan` and keep it if it is better than the best so far; takes it over. */
static pawl_code keep_better(struct trial *t, struct ir_plan *plan) {
    struct sim_result times = {0};
    pawl_code code = append_steps(plan, t->e);
    if (code == PAWL_OK) code = sim_run(plan, t->costs, plan_policy_staggered(t->policy), NULL, &times, t->e);
    if (code == PAWL_OK && (t->best == NULL || times.period < t->period)) {
        ir_plan_free(t->best);
        t->best = plan;
        t->period = times.period;
        plan = NULL;
    }
    sim_result_close(&times);
    ir_plan_free(plan);
    return code;
}

static pawl_code try_published(struct trial *t) {
    struct ir_plan *plan = NULL;
    pawl_code code = plan_route_plan(t->route, &plan, t->e);
    if (code == PAWL_OK) code = baseline_published(t->policy, t->route, plan, t->e);
    if (code == PAWL_OK) return keep_better(t, plan);
    ir_plan_free(plan);
    return code;
}

/* Nothing to order: R and S alone. */
static pawl_code step_only(struct trial *t) {
    pawl_code code = plan_route_plan(t->route, &t->best, t->e);
    return code == PAWL_OK ? append_steps(t->best, t->e) : code;
}

static pawl_code try_greedy(struct trial *t, const struct baseline_greedy *options) {
    struct ir_plan *plan = NULL;
    pawl_code code = plan_route_plan(t->route, &plan, t->e);
    if (code == PAWL_OK) code = baseline_greedy(options, t->route, t->costs, plan, t->e);
    if (code == PAWL_OK) return keep_better(t, plan);
    ir_plan_free(plan);
    return code;
}

/* All rules that can make a difference: GPipe does forwards first and has no caps; what is split has the same
 * cap in all stages. */
static pawl_code try_all_greedy(struct trial *t) {
    pawl_code code = PAWL_OK;
    uint32_t rules = t->policy == PAWL_POLICY_GPIPE ? 1 : is_zero_bubble(t->policy) ? 2 : 4;
    for (uint32_t rule = 0; rule < rules && code == PAWL_OK; rule++) {
        struct baseline_greedy options = {t->policy, .forward_first = rule & 1, .even = rule & 2};
        code = try_greedy(t, &options);
    }
    return code;
}

/* ---- without dead workers ---- */

/* Everybody lives and executes its own stage's chunks of its own pipeline. */
static bool is_home(const struct plan_route *route) {
    for (uint32_t w = 0; w < worker_count(route); w++)
        if (!route->alive[w]) return false;
    for (uint32_t p = 0; p < route->pipelines; p++)
        for (uint32_t c = 0; c < route->chunks; c++)
            for (uint32_t m = 0; m < plan_route_count(route, p); m++)
                if (route->host[plan_route_cell(route, p, c, m)] !=
                    p * route->stages + baseline_stage_of(route, c))
                    return false;
    return true;
}

/* Is every chunk where the policy puts it? Published orders rely on it. */
static bool is_placed(enum pawl_policy policy, const struct plan_route *route) {
    for (uint32_t c = 0; c < route->chunks; c++) {
        uint32_t stage = c % route->stages;
        if (policy == PAWL_POLICY_ZB_V && c >= route->stages) stage = route->chunks - 1 - c;
        if (baseline_stage_of(route, c) != stage) return false;
    }
    return true;
}

static bool same_speeds(const struct sim_costs *costs, uint32_t a, uint32_t b) {
    if (costs->slow == NULL) return true;
    return memcmp(costs->slow + (uint64_t)a * costs->stages, costs->slow + (uint64_t)b * costs->stages,
                  costs->stages * sizeof *costs->slow) == 0;
}

/* The best schedule of pipeline p alone, as a plan of one pipeline. One without micro-batches only steps. */
static pawl_code solve_pipeline(enum pawl_policy policy, const struct plan_route *route,
                                const struct sim_costs *costs, uint32_t p, struct ir_plan **out,
                                struct pawl_error *e) {
    struct sim_costs alone = *costs;
    alone.pipelines = 1;
    if (costs->slow != NULL) alone.slow = costs->slow + (uint64_t)p * costs->stages;
    struct plan_route *one = NULL;
    uint32_t count = plan_route_count(route, p);
    pawl_code code = plan_route_new(1, route->stages, route->chunks, count > 0 ? count : 1, &one, e);
    if (code != PAWL_OK) return code;
    one->stage_of = route->stage_of;
    for (uint32_t c = 0; c < route->chunks; c++)
        for (uint32_t m = 0; m < one->microbatches; m++)
            one->host[plan_route_cell(one, 0, c, m)] = baseline_stage_of(route, c);
    struct trial t = {.policy = policy, .route = one, .costs = &alone, .e = e};
    code = count > 0 ? try_published(&t) : step_only(&t);
    if (code == PAWL_OK && count > 0 && is_zero_bubble(policy)) code = try_all_greedy(&t);
    *out = t.best;
    plan_route_free(one);
    return code;
}

/* The lists of a plan of one pipeline as those of pipeline p. */
static pawl_code copy_lists(const struct ir_plan *one, uint32_t p, struct ir_plan *plan,
                            struct pawl_error *e) {
    uint32_t offset = p * plan->stages;
    for (uint32_t s = 0; s < plan->stages; s++) {
        const struct ir_worker *list = &one->workers[s];
        pawl_code code = ir_plan_reserve(plan, offset + s, list->count, e);
        for (uint32_t i = 0; i < list->count && code == PAWL_OK; i++) {
            struct ir_instruction in = list->instructions[i];
            if (in.home != IR_NONE) in.home = p;
            if (in.from != IR_NONE) in.from += offset;
            if (in.to != IR_NONE) in.to += offset;
            code = ir_plan_append(plan, p, s, in, e);
        }
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

static pawl_code solve_home(enum pawl_policy policy, const struct plan_route *route,
                            const struct sim_costs *costs, struct ir_plan *plan, struct pawl_error *e) {
    struct ir_plan *one = NULL;
    pawl_code code = PAWL_OK;
    for (uint32_t p = 0; p < route->pipelines && code == PAWL_OK; p++) {
        bool alike = p > 0 && plan_route_count(route, p - 1) == plan_route_count(route, p);
        if (!alike || !same_speeds(costs, p - 1, p)) {
            ir_plan_free(one);
            one = NULL;
            code = solve_pipeline(policy, route, costs, p, &one, e);
        }
        if (code == PAWL_OK) code = copy_lists(one, p, plan, e);
    }
    ir_plan_free(one);
    return code;
}

/* ---- all of it ---- */

pawl_code plan_baseline(enum pawl_policy policy, const struct plan_route *route,
                        const struct sim_costs *costs, struct ir_plan **out, struct pawl_error *e) {
    *out = NULL;
    if (policy > PAWL_POLICY_ZB_V)
        return error_set(e, PAWL_ARGUMENT, 0, "schedule: policy %d has no published order", (int)policy);
    pawl_code code = check_chunks(policy, route->stages, route->chunks, e);
    if (code != PAWL_OK) return code;
    if (!is_home(route) || !is_placed(policy, route)) {
        struct trial t = {.policy = policy, .route = route, .costs = costs, .e = e};
        code = try_all_greedy(&t);
        if (code == PAWL_OK)
            *out = t.best;
        else
            ir_plan_free(t.best);
        return code;
    }
    struct ir_plan *plan = NULL;
    code = plan_route_plan(route, &plan, e);
    if (code == PAWL_OK) code = solve_home(policy, route, costs, plan, e);
    if (code == PAWL_OK)
        *out = plan;
    else
        ir_plan_free(plan);
    return code;
}
