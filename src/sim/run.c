/* One iteration of a plan in time: when everything starts and ends, what is stored, who is busy.
 * The graph (graph.h) does the timing, period.h finds the least period of a staggered plan. */
#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "sim/graph.h"
#include "sim/noise.h"
#include "sim/period.h"

static uint64_t latest(const struct graph *g, const uint64_t *end) {
    uint64_t last = 0;
    for (uint32_t i = 0; i < g->mark_count; i++)
        if (end[g->mark[i].node] > last) last = end[g->mark[i].node];
    return last;
}

static void fill_times(const struct graph *g, const uint64_t *end, struct sim_result *out) {
    for (uint32_t w = 0; w <= g->workers; w++) out->first[w] = g->first[w];
    for (uint32_t i = 0; i < g->instructions; i++) {
        out->end[i] = end[g->of[i]];
        out->start[i] = out->end[i] - g->node[g->of[i]].duration;
    }
}

static void fill_busy(const struct graph *g, struct sim_result *out) {
    for (uint32_t w = 0; w < g->workers; w++) {
        const struct ir_worker *list = &g->plan->workers[w];
        for (uint32_t i = 0; i < list->count; i++)
            if (op_computes(list->instructions[i].op))
                out->busy[w] += g->node[g->of[g->first[w] + i]].duration;
    }
}

/* ---- what is stored ---- */

/* Which micro-batches are computed again, so that their F keeps less; null if the plan has no C. */
static pawl_code find_recomputed(const struct ir_plan *plan, uint32_t workers, bool **out,
                                 struct pawl_error *e) {
    uint64_t cells = (uint64_t)plan->pipelines * plan->chunks * plan->microbatches;
    *out = NULL;
    for (uint32_t w = 0; w < workers; w++)
        for (uint32_t i = 0; i < plan->workers[w].count; i++) {
            const struct ir_instruction *in = &plan->workers[w].instructions[i];
            if (in->op != IR_C) continue;
            if (*out == NULL) *out = calloc(cells, sizeof **out);
            if (*out == NULL) return error_set(e, PAWL_MEMORY, 0, "simulation: no memory");
            (*out)[((uint64_t)in->home * plan->chunks + in->chunk) * plan->microbatches + in->microbatch] =
                true;
        }
    return PAWL_OK;
}

/* What is stored after an instruction, from what was before: see ir.h. */
static uint64_t stored_after(const struct sim_chunk *c, enum ir_op op, bool recomputed, uint64_t stored) {
    switch (op) {
    case IR_F:
        return stored + (recomputed ? c->kept : c->full);
    case IR_C:
    case IR_L:
        return stored + (c->full - c->kept);
    case IR_O:
        return stored - (c->full - c->kept);
    case IR_I:
        return stored - (c->full - c->after_input);
    case IR_W:
        return stored - c->after_input;
    case IR_B:
        return stored - c->full;
    default:
        return stored;
    }
}

static pawl_code fill_peaks(const struct graph *g, struct sim_result *out, struct pawl_error *e) {
    const struct ir_plan *plan = g->plan;
    bool *recomputed;
    pawl_code code = find_recomputed(plan, g->workers, &recomputed, e);
    for (uint32_t w = 0; code == PAWL_OK && w < g->workers; w++) {
        const struct ir_worker *list = &plan->workers[w];
        uint64_t stored = 0;
        for (uint32_t i = 0; i < list->count; i++) {
            const struct ir_instruction *in = &list->instructions[i];
            bool less = recomputed != NULL && in->op == IR_F &&
                        recomputed[((uint64_t)in->home * plan->chunks + in->chunk) * plan->microbatches +
                                   in->microbatch];
            stored = stored_after(&g->costs->chunk[in->chunk], in->op, less, stored);
            if (stored > out->peak[w]) out->peak[w] = stored;
        }
    }
    free(recomputed);
    return code;
}

/* ---- one run ---- */

static bool result_open(const struct graph *g, struct sim_result *out) {
    uint64_t n = g->instructions > 0 ? g->instructions : 1;
    *out = (struct sim_result){0};
    out->start = malloc(n * sizeof *out->start);
    out->end = malloc(n * sizeof *out->end);
    out->first = malloc(((uint64_t)g->workers + 1) * sizeof *out->first);
    out->peak = calloc(g->workers, sizeof *out->peak);
    out->busy = calloc(g->workers, sizeof *out->busy);
    return out->start != NULL && out->end != NULL && out->first != NULL && out->peak != NULL &&
           out->busy != NULL;
}

static pawl_code time_graph(const struct graph *g, bool staggered, uint64_t *end, struct sim_result *out,
                            struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    memset(end, 0, g->source_count * sizeof *end);
    graph_pass(g, end);
    out->makespan = out->period = latest(g, end);
    if (staggered) code = period_least(g, out->makespan, end, &out->period, e);
    if (code == PAWL_OK) fill_times(g, end, out);
    return code;
}

pawl_code sim_run(const struct ir_plan *plan, const struct sim_costs *costs, bool staggered,
                  const struct sim_noise *noise, struct sim_result *out, struct pawl_error *e) {
    struct graph g;
    uint64_t *end = NULL;
    *out = (struct sim_result){0};
    pawl_code code = graph_open(plan, costs, &g, e);
    if (code != PAWL_OK) return code;
    code = noise_check(noise, g.workers, e);
    if (code == PAWL_OK && !noise_is_none(noise)) code = noise_apply(noise, 0, &g, e);
    if (code != PAWL_OK) goto done;
    end = malloc(g.count * sizeof *end);
    if (end == NULL || !result_open(&g, out)) {
        code = error_set(e, PAWL_MEMORY, 0, "simulation: no memory for %u instructions", g.instructions);
        goto done;
    }
    code = time_graph(&g, staggered, end, out, e);
    if (code == PAWL_OK) code = fill_peaks(&g, out, e);
    if (code == PAWL_OK) fill_busy(&g, out);
done:
    free(end);
    graph_close(&g);
    if (code != PAWL_OK) sim_result_close(out);
    return code;
}

void sim_result_close(struct sim_result *r) {
    free(r->start);
    free(r->end);
    free(r->first);
    free(r->peak);
    free(r->busy);
    *r = (struct sim_result){0};
}

/* ---- many iterations ---- */

/* Where the sources stand for the next iteration: staggered, a worker's is the end of its own list; with a
 * barrier, the end of all. Chunk sources hold nothing back: their steps are in the lists. */
static void next_sources(const struct graph *g, bool staggered, const uint64_t *end, uint64_t *source) {
    uint64_t last = latest(g, end);
    for (uint32_t w = 0; w < g->workers; w++) source[w] = last;
    for (uint32_t i = 0; staggered && i < g->mark_count; i++) {
        const struct graph_mark *m = &g->mark[i];
        if (m->group < g->plan->stages) source[m->worker] = end[m->node];
    }
}

static pawl_code run_iterations(struct graph *g, const struct sim_noise *noise, bool staggered,
                                uint32_t iterations, uint64_t *ends, struct pawl_error *e) {
    uint64_t *end = malloc(g->count * sizeof *end);
    uint64_t *source = calloc(g->source_count, sizeof *source);
    pawl_code code = PAWL_OK;
    if (end == NULL || source == NULL)
        code = error_set(e, PAWL_MEMORY, 0, "simulation: no memory for %u nodes", g->count);
    for (uint32_t i = 0; code == PAWL_OK && i < iterations; i++) {
        if (!noise_is_none(noise)) code = noise_apply(noise, i, g, e);
        if (code != PAWL_OK) break;
        memcpy(end, source, g->source_count * sizeof *end);
        graph_pass(g, end);
        ends[i] = latest(g, end);
        if (ends[i] >= 2 * SIM_TICKS_MAX)
            code = error_set(e, PAWL_ARGUMENT, 0, "simulation: iteration %u ends beyond %llu ticks", i,
                             (unsigned long long)(2 * SIM_TICKS_MAX));
        next_sources(g, staggered, end, source);
    }
    free(end);
    free(source);
    return code;
}

pawl_code sim_iterations(const struct ir_plan *plan, const struct sim_costs *costs, bool staggered,
                         const struct sim_noise *noise, uint32_t iterations, uint64_t *ends,
                         struct pawl_error *e) {
    struct graph g;
    pawl_code code = graph_open(plan, costs, &g, e);
    if (code == PAWL_OK) code = noise_check(noise, g.workers, e);
    if (code == PAWL_OK) code = run_iterations(&g, noise, staggered, iterations, ends, e);
    graph_close(&g);
    return code;
}
