/* Instances of the exact planner, and plans to begin with: greedy lists, or one micro-batch after the other.
 */
#ifndef EXACT_KIT_H
#define EXACT_KIT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

struct exact_world {
    struct plan_route *route;
    struct sim_costs costs;
};

static inline void exact_world_close(struct exact_world *w) {
    plan_route_free(w->route);
    free(w->costs.chunk);
    free(w->costs.slow);
    free(w->costs.limit);
    *w = (struct exact_world){0};
}

static inline void exact_must(pawl_code code, const struct pawl_error *e) {
    if (code == PAWL_OK) return;
    fprintf(stderr, "kit: %s\n", e->text);
    abort();
}

/* Every chunk at its stage, all alive, homes at home; the same times and a micro-batch counts 1. */
static inline struct exact_world exact_world_new(uint32_t pipelines, uint32_t stages, uint32_t microbatches,
                                                 const uint64_t times[3]) {
    struct exact_world w = {0};
    struct pawl_error e;
    exact_must(plan_route_new(pipelines, stages, stages, microbatches, &w.route, &e), &e);
    w.costs = (struct sim_costs){.pipelines = pipelines, .stages = stages, .chunks = stages};
    w.costs.chunk = calloc(stages, sizeof *w.costs.chunk);
    for (uint32_t c = 0; c < stages; c++) {
        w.costs.chunk[c] = (struct sim_chunk){.forward = times[0],
                                              .input_grad = times[1],
                                              .weight_grad = times[2],
                                              .full = 1,
                                              .kept = 1,
                                              .after_input = 1};
        for (uint32_t h = 0; h < pipelines; h++)
            for (uint32_t i = 0; i < microbatches; i++)
                w.route->host[plan_route_cell(w.route, h, c, i)] = h * stages + c;
    }
    return w;
}

static inline void exact_world_limit(struct exact_world *w, uint64_t limit) {
    uint32_t workers = w->costs.pipelines * w->costs.stages;
    w->costs.limit = calloc(workers, sizeof *w->costs.limit);
    for (uint32_t i = 0; i < workers; i++) w->costs.limit[i] = limit;
}

/* The worker is dead; its micro-batches go round over the live peers of its stage. */
static inline void exact_world_kill(struct exact_world *w, uint32_t pipeline, uint32_t stage) {
    struct plan_route *r = w->route;
    r->alive[pipeline * r->stages + stage] = false;
    for (uint32_t i = 0; i < r->microbatches; i++) {
        uint32_t turn = i;
        for (uint32_t p = 0;; p = (p + 1) % r->pipelines) {
            if (!r->alive[p * r->stages + stage]) continue;
            if (turn-- > 0) continue;
            r->host[plan_route_cell(r, pipeline, stage, i)] = p * r->stages + stage;
            break;
        }
    }
}

/* ---- plans to begin with ---- */

struct exact_greedy {
    const struct exact_world *w;
    struct ir_plan *plan;
    bool fused;
    uint8_t *done;     /* [cells] 1 F, 2 I or B, 4 W or B */
    uint64_t *end;     /* [cells * 3] */
    uint64_t *free_at; /* [workers] */
    uint64_t *stored;  /* [workers] */
};

static inline bool exact_greedy_ready(const struct exact_greedy *g, uint32_t home, uint32_t chunk, uint32_t i,
                                      enum ir_op op, uint64_t *at) {
    const struct plan_route *r = g->w->route;
    uint64_t cell = plan_route_cell(r, home, chunk, i);
    uint32_t worker = r->host[cell];
    const struct sim_chunk *c = &g->w->costs.chunk[chunk];
    *at = g->free_at[worker];
    uint64_t input = 0;
    if (op == IR_F) {
        if (g->done[cell] & 1) return false;
        if (g->w->costs.limit != NULL && g->stored[worker] + c->full > g->w->costs.limit[worker])
            return false;
        if (chunk > 0) {
            uint64_t before = plan_route_cell(r, home, chunk - 1, i);
            if (!(g->done[before] & 1)) return false;
            input = g->end[before * 3] +
                    (r->host[before] == worker ? 0 : g->w->costs.chunk[chunk - 1].send_forward);
        }
    } else if (op == IR_W) {
        if (!(g->done[cell] & 2) || (g->done[cell] & 4)) return false;
    } else {
        if (!(g->done[cell] & 1) || (g->done[cell] & 2)) return false;
        if (chunk + 1 < r->chunks) {
            uint64_t after = plan_route_cell(r, home, chunk + 1, i);
            if (!(g->done[after] & 2)) return false;
            input = g->end[after * 3 + 1] + (r->host[after] == worker ? 0 : c->send_backward);
        }
    }
    if (input > *at) *at = input;
    return true;
}

static inline void exact_greedy_do(struct exact_greedy *g, uint32_t home, uint32_t chunk, uint32_t i,
                                   enum ir_op op, uint64_t at) {
    const struct plan_route *r = g->w->route;
    uint64_t cell = plan_route_cell(r, home, chunk, i);
    uint32_t worker = r->host[cell];
    const struct sim_chunk *c = &g->w->costs.chunk[chunk];
    struct pawl_error e;
    uint64_t end = at + sim_duration(&g->w->costs, worker, chunk, op);
    exact_must(ir_plan_append(g->plan, worker / r->stages, worker % r->stages,
                              plan_route_instruction(r, op, home, chunk, i), &e),
               &e);
    g->free_at[worker] = end;
    g->done[cell] |= op == IR_F ? 1 : op == IR_I ? 2 : op == IR_W ? 4 : 6;
    g->end[cell * 3 + (op == IR_F ? 0 : op == IR_W ? 2 : 1)] = end;
    if (op == IR_F) g->stored[worker] += c->full;
    if (op == IR_I) g->stored[worker] -= c->full - c->after_input;
    if (op == IR_W) g->stored[worker] -= c->after_input;
    if (op == IR_B) g->stored[worker] -= c->full;
}

/* What can start first does; I and B before F before W. False: nothing can. */
static inline bool exact_greedy_step(struct exact_greedy *g) {
    const enum ir_op ops[] = {g->fused ? IR_B : IR_I, IR_F, IR_W};
    const struct plan_route *r = g->w->route;
    uint64_t best = UINT64_MAX;
    uint32_t home = 0, chunk = 0, number = 0;
    enum ir_op best_op = IR_F;
    for (size_t o = 0; o < (g->fused ? 2u : 3u); o++)
        for (uint32_t h = 0; h < r->pipelines; h++)
            for (uint32_t c = 0; c < r->chunks; c++)
                for (uint32_t i = 0; i < r->microbatches; i++) {
                    uint64_t at;
                    if (!exact_greedy_ready(g, h, c, i, ops[o], &at) || at >= best) continue;
                    best = at;
                    home = h;
                    chunk = c;
                    number = i;
                    best_op = ops[o];
                }
    if (best == UINT64_MAX) return false;
    exact_greedy_do(g, home, chunk, number, best_op, best);
    return true;
}

static inline void exact_append_ends(struct ir_plan *plan) {
    struct pawl_error e;
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++)
        for (uint32_t i = 0; plan->workers[w].alive && i < plan->workers[w].hold_count; i++)
            for (enum ir_op op = IR_R; op <= IR_S; op++) {
                struct ir_instruction in = {op,     plan->workers[w].holds[i], IR_NONE, IR_NONE, IR_NONE,
                                            IR_NONE};
                exact_must(ir_plan_append(plan, w / plan->stages, w % plan->stages, in, &e), &e);
            }
}

/* Null: the greedy order got stuck in the limits. */
static inline struct ir_plan *exact_greedy(const struct exact_world *w, bool fused) {
    struct exact_greedy g = {.w = w, .fused = fused};
    const struct plan_route *r = w->route;
    uint64_t cells = (uint64_t)r->pipelines * r->chunks * r->microbatches, steps = 0;
    struct pawl_error e;
    exact_must(plan_route_plan(r, &g.plan, &e), &e);
    g.done = calloc(cells, 1);
    g.end = calloc(cells * 3, sizeof *g.end);
    g.free_at = calloc((size_t)r->pipelines * r->stages, sizeof *g.free_at);
    g.stored = calloc((size_t)r->pipelines * r->stages, sizeof *g.stored);
    while (exact_greedy_step(&g)) steps++;
    free(g.done);
    free(g.end);
    free(g.free_at);
    free(g.stored);
    if (steps == cells * (fused ? 2 : 3)) {
        exact_append_ends(g.plan);
        return g.plan;
    }
    ir_plan_free(g.plan);
    return NULL;
}

/* One micro-batch after the other: poor, but within any limit. */
static inline struct ir_plan *exact_one_by_one(const struct exact_world *w, bool fused) {
    const struct plan_route *r = w->route;
    struct ir_plan *plan = NULL;
    struct pawl_error e;
    exact_must(plan_route_plan(r, &plan, &e), &e);
    for (uint32_t h = 0; h < r->pipelines; h++)
        for (uint32_t i = 0; i < r->microbatches; i++)
            for (uint32_t k = 0; k < 2 * r->chunks; k++) {
                uint32_t c = k < r->chunks ? k : 2 * r->chunks - 1 - k;
                uint32_t worker = r->host[plan_route_cell(r, h, c, i)];
                const enum ir_op back[] = {fused ? IR_B : IR_I, IR_W};
                for (uint32_t o = 0; o < (k < r->chunks || fused ? 1u : 2u); o++)
                    exact_must(ir_plan_append(
                                   plan, worker / r->stages, worker % r->stages,
                                   plan_route_instruction(r, k < r->chunks ? IR_F : back[o], h, c, i), &e),
                               &e);
            }
    exact_append_ends(plan);
    return plan;
}

static inline struct ir_plan *exact_some_plan(const struct exact_world *w, bool fused) {
    struct ir_plan *plan = exact_greedy(w, fused);
    return plan != NULL ? plan : exact_one_by_one(w, fused);
}

static inline struct ir_memory exact_world_memory(const struct sim_costs *costs, uint64_t *scratch) {
    for (uint32_t c = 0; c < costs->chunks; c++) {
        scratch[c] = costs->chunk[c].full;
        scratch[costs->chunks + c] = costs->chunk[c].kept;
        scratch[2 * costs->chunks + c] = costs->chunk[c].after_input;
    }
    return (struct ir_memory){scratch, scratch + costs->chunks, scratch + 2 * costs->chunks, costs->limit};
}

#endif
