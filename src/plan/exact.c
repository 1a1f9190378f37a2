/* The best plan and the proof: what all engines share.
 *
 *   seed ─► its period; at the bound: done ─► model ─► bound by pruning alone ─► branch ─► engine ─► result
 *
 * Every plan kept has passed ir_check with the limits, and its period is sim_run's. The bound is the largest
 * of the caller's, of what pruning refutes, and of what the engine proved. Recomputation and offloading are
 * not in the model: where the caller allows them and memory could be short, only the caller's bound counts.
 * Tested in tests/unit/plan_exact_test.c. */
#include "plan/exact.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

/* Branching first costs at most this share of the time, and at most so long. */
#define EXACT_BRANCH_SHARE 0.5
#define EXACT_BRANCH_S     20.0

bool exact_run_stopped(const struct exact_run *run) {
    const bool *stop = run->options->list.stop;
    return stop != NULL && __atomic_load_n(stop, __ATOMIC_RELAXED);
}

bool exact_run_over(const struct exact_run *run) {
    return exact_run_stopped(run) || clock_now_ns() >= run->deadline_ns;
}

double exact_run_seconds(const struct exact_run *run) {
    return (double)(clock_now_ns() - run->started_ns) * 1e-9;
}

int64_t exact_run_high(const struct exact_run *run) { return exact_units(run->model, run->period - 1); }

static void tell(const struct exact_run *run) {
    if (run->options->progress == NULL) return;
    run->options->progress(run->options->context, run->period, exact_ticks(run->model, run->low),
                           exact_run_seconds(run));
}

pawl_code exact_run_found(struct exact_run *run, const struct exact_schedule *schedule, int64_t claimed,
                          struct pawl_error *e) {
    struct ir_plan *plan = NULL;
    uint64_t period = 0;
    pawl_code code = exact_plan(run->model, schedule, run->options, &plan, &period, e);
    if (code != PAWL_OK) return code;
    uint64_t most = exact_ticks(run->model, claimed);
    if (period > most)
        code = error_set(e, PAWL_INTERNAL, 0, "exact plan: found a period of %llu ticks, but it takes %llu",
                         (unsigned long long)most, (unsigned long long)period);
    if (code != PAWL_OK || period >= run->period) {
        ir_plan_free(plan);
        return code;
    }
    ir_plan_free(run->best);
    run->best = plan;
    run->period = period;
    memcpy(run->seed.start, schedule->start, run->model->node_count * sizeof *run->seed.start);
    memcpy(run->seed.worker, schedule->worker, run->model->cell_count * sizeof *run->seed.worker);
    run->seed_usable = true;
    tell(run);
    return PAWL_OK;
}

void exact_run_raise(struct exact_run *run, int64_t low) {
    if (low <= run->low) return;
    run->low = low;
    tell(run);
}

/* The least period that pruning does not refute, by bisection: what it refutes grows with the period. */
static pawl_code bound_by_pruning(struct exact_run *run, struct pawl_error *e) {
    struct exact_state *s = NULL, *begin = NULL;
    pawl_code code = exact_state_new(run->model, &begin, e);
    if (code == PAWL_OK) code = exact_state_new(run->model, &s, e);
    int64_t low = run->low, high = exact_run_high(run) + 1;
    while (code == PAWL_OK && low < high && !exact_run_over(run)) {
        int64_t middle = low + (high - low) / 2;
        exact_state_copy(run->model, s, begin);
        if (exact_prune_run(run->prune, middle, s))
            high = middle;
        else
            low = middle + 1;
    }
    if (code == PAWL_OK) exact_run_raise(run, low);
    exact_state_free(s);
    exact_state_free(begin);
    return code;
}

static pawl_code solve(struct exact_run *run, struct pawl_error *e) {
    double branch_s = run->options->time_limit_s * EXACT_BRANCH_SHARE;
    if (branch_s > EXACT_BRANCH_S) branch_s = EXACT_BRANCH_S;
    pawl_code code = bound_by_pruning(run, e);
    if (code == PAWL_OK && !run->engine_only && run->low <= exact_run_high(run))
        code = exact_branch(run, branch_s, e);
    if (code != PAWL_OK || run->low > exact_run_high(run) || exact_run_over(run)) return code;
    return run->options->engine == PLAN_CBC ? exact_cbc(run, e) : exact_z3(run, e);
}

pawl_code plan_exact_built(enum plan_engine engine, struct pawl_error *e) {
#ifndef PAWL_Z3
    if (engine == PLAN_Z3)
        return error_set(e, PAWL_UNSUPPORTED, 0,
                         "engine z3 is not built in: install libz3-dev and build again");
#endif
#ifndef PAWL_CBC
    if (engine == PLAN_CBC)
        return error_set(e, PAWL_UNSUPPORTED, 0,
                         "engine cbc is not built in: install coinor-libcbc-dev and build again");
#endif
    if (engine != PLAN_Z3 && engine != PLAN_CBC)
        return error_set(e, PAWL_ARGUMENT, 0, "exact plan: no engine %d", (int)engine);
    return PAWL_OK;
}

/* Could a plan with recomputation or offloading store less than any without? */
static bool has_other_means(const struct sim_costs *costs, const struct plan_list_options *list) {
    if (costs->limit == NULL || (!list->recompute && !list->offload)) return false;
    for (uint32_t c = 0; c < costs->chunks; c++)
        if (costs->chunk[c].kept < costs->chunk[c].full) return true;
    return false;
}

static pawl_code copy_plan(const struct ir_plan *plan, struct ir_plan **out, struct pawl_error *e) {
    struct bytes text = {0};
    ir_encode(plan, &text);
    pawl_code code = ir_decode(text.data, text.size, out, e);
    bytes_close(&text);
    return code;
}

static uint64_t proven_bound(const struct exact_run *run) {
    const struct exact_model *m = run->model;
    uint64_t bound = run->low > exact_run_high(run) ? run->period : exact_ticks(m, run->low);
    if (m->group_count > EXACT_RATIO_MAX && bound % m->divisor != 0)
        bound -= bound % m->divisor; /* exact.h */
    return bound > run->options->bound ? bound : run->options->bound;
}

static pawl_code run_engines(struct exact_run *run, const struct plan_route *route,
                             const struct sim_costs *costs, const struct ir_plan *seed,
                             const struct sim_result *times, struct pawl_error *e) {
    struct exact_model *m = NULL;
    pawl_code code = exact_model_new(route, costs, run->options, &m, e);
    run->model = m;
    if (code == PAWL_OK) code = exact_prune_new(m, &run->prune, e);
    if (code == PAWL_OK) code = exact_seed(m, seed, times, &run->seed, &run->seed_usable, e);
    if (code == PAWL_OK) {
        run->low = exact_units(m, run->options->bound);
        if (exact_ticks(m, run->low) < run->options->bound) run->low++;
        code = solve(run, e);
    }
    if (code == PAWL_OK && !has_other_means(costs, &run->options->list)) run->bound = proven_bound(run);
    exact_schedule_close(&run->seed);
    exact_prune_free(run->prune);
    exact_model_free(m);
    return code;
}

pawl_code plan_exact(const struct plan_route *route, const struct sim_costs *costs,
                     const struct ir_plan *seed, const struct plan_exact_options *options,
                     struct plan_exact_result *out, struct pawl_error *e) {
    return exact_make(route, costs, seed, options, false, out, e);
}

pawl_code exact_make(const struct plan_route *route, const struct sim_costs *costs,
                     const struct ir_plan *seed, const struct plan_exact_options *options, bool engine_only,
                     struct plan_exact_result *out, struct pawl_error *e) {
    *out = (struct plan_exact_result){0};
    pawl_code code = plan_exact_built(options->engine, e);
    if (code != PAWL_OK) return code;
    if (!(options->time_limit_s > 0))
        return error_set(e, PAWL_ARGUMENT, 0, "exact plan: a time limit of %g s, it must be positive",
                         options->time_limit_s);
    struct exact_run run = {.options = options,
                            .engine_only = engine_only,
                            .started_ns = clock_now_ns(),
                            .bound = options->bound};
    run.deadline_ns =
        run.started_ns + (int64_t)((options->time_limit_s < 1e8 ? options->time_limit_s : 1e8) * 1e9);
    struct sim_result times = {0};
    code = exact_check(seed, costs, options->list.staggered, &run.period, &times, e);
    if (code != PAWL_OK) return code;
    if (run.period > options->bound) code = run_engines(&run, route, costs, seed, &times, e);
    sim_result_close(&times);
    if (code == PAWL_OK && run.best == NULL) code = copy_plan(seed, &run.best, e);
    if (code != PAWL_OK) {
        ir_plan_free(run.best);
        return code;
    }
    if (run.bound > run.period) run.bound = run.period;
    *out = (struct plan_exact_result){run.best, run.period, run.bound, run.bound == run.period,
                                      exact_run_seconds(&run)};
    return PAWL_OK;
}
