/* Random small plans that can be executed, and costs for them, for tests of the simulator.
 *
 * A plan is made by executing it: at each turn one of the instructions whose inputs are there is appended to
 * its worker's list. So the lists come in orders that no scheduler would choose, with several chunks on a
 * worker, helpers, dead workers, fused and split backwards, recomputed and offloaded micro-batches. */
#ifndef SIM_PLANS_H
#define SIM_PLANS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "sim/sim.h"

struct world {
    struct ir_plan *plan;
    struct sim_costs costs;
};

struct world_shape {
    uint32_t pipelines, stages, per_stage, microbatches;
    bool v;       /* second chunks in reverse, as zb-v places them */
    bool dead;    /* some workers are */
    bool helpers; /* some workers hold a chunk of a neighbour */
    bool extras;  /* C, or O and L, for some micro-batches */
    bool wander;  /* micro-batches may be executed by any holder, else at home where it lives */
};

static inline void must(pawl_code code, const struct pawl_error *e) {
    if (code != PAWL_OK) fail_msg("%s", e->text);
}

/* ---- who holds what ---- */

static inline uint32_t world_stage_of(const struct world_shape *s, uint32_t chunk) {
    if (s->v && chunk >= s->stages) return s->stages - 1 - chunk % s->stages;
    return chunk % s->stages;
}

static inline void world_hold(const struct world_shape *s, struct ir_plan *plan, struct rng_stream *r) {
    struct pawl_error e = {0};
    for (uint32_t w = 0; w < s->pipelines * s->stages; w++) {
        /* Pipeline 0 always lives, so that every chunk has a holder. */
        if (s->dead && w >= s->stages && rng_below(r, 4) == 0) {
            ir_plan_kill(plan, w);
            continue;
        }
        for (uint32_t c = 0; c < plan->chunks; c++)
            if (world_stage_of(s, c) == w % s->stages || (s->helpers && rng_below(r, 4) == 0))
                must(ir_plan_hold(plan, w, c, &e), &e);
    }
}

static inline uint32_t world_host(const struct world_shape *s, const struct ir_plan *plan, uint32_t home,
                                  uint32_t chunk, struct rng_stream *r) {
    uint32_t own = home * s->stages + world_stage_of(s, chunk);
    if (!s->wander && plan->workers[own].alive) return own;
    for (;;) {
        uint32_t w = (uint32_t)rng_below(r, s->pipelines * s->stages);
        if (plan->workers[w].alive && ir_plan_holds(plan, w, chunk)) return w;
    }
}

/* ---- lists, by executing them ---- */

struct world_cell {
    uint32_t home, chunk, microbatch, host;
    enum ir_op ops[8];
    uint32_t op_count, done;
    bool forward_done, input_done;
};

static inline void world_ops(struct world_cell *c, bool extras, struct rng_stream *r) {
    uint32_t kind = extras ? (uint32_t)rng_below(r, 3) : 0;
    c->ops[c->op_count++] = IR_F;
    if (kind == 1) c->ops[c->op_count++] = IR_C;
    if (kind == 2) c->ops[c->op_count++] = IR_O;
    if (kind == 2) c->ops[c->op_count++] = IR_L;
    if (rng_below(r, 2) == 0) {
        c->ops[c->op_count++] = IR_B;
    } else {
        c->ops[c->op_count++] = IR_I;
        c->ops[c->op_count++] = IR_W;
    }
}

static inline struct world_cell *world_neighbour(const struct ir_plan *plan, struct world_cell *cells,
                                                 const struct world_cell *c, bool next) {
    if (next ? c->chunk + 1 == plan->chunks : c->chunk == 0) return NULL;
    uint32_t chunk = next ? c->chunk + 1 : c->chunk - 1;
    return &cells[((uint64_t)c->home * plan->chunks + chunk) * plan->microbatches + c->microbatch];
}

/* Append the cell's next instruction if its message is there. */
static inline bool world_step(struct ir_plan *plan, struct world_cell *cells, struct world_cell *c) {
    struct pawl_error e = {0};
    if (c->done == c->op_count) return false;
    enum ir_op op = c->ops[c->done];
    bool forward = op == IR_F, backward = op == IR_I || op == IR_B;
    struct world_cell *from = forward || backward ? world_neighbour(plan, cells, c, backward) : NULL;
    struct world_cell *to = forward || backward ? world_neighbour(plan, cells, c, forward) : NULL;
    if (from != NULL && !(forward ? from->forward_done : from->input_done)) return false;
    struct ir_instruction in = {op,
                                c->chunk,
                                c->home,
                                c->microbatch,
                                from == NULL ? IR_NONE : from->host,
                                to == NULL ? IR_NONE : to->host};
    must(ir_plan_append(plan, c->host / plan->stages, c->host % plan->stages, in, &e), &e);
    if (forward) c->forward_done = true;
    if (backward) c->input_done = true;
    c->done++;
    return true;
}

static inline void world_steps_at_end(struct ir_plan *plan) {
    struct pawl_error e = {0};
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++)
        for (uint32_t i = 0; i < plan->workers[w].hold_count; i++) {
            struct ir_instruction in = {IR_R, plan->workers[w].holds[i], IR_NONE, IR_NONE, IR_NONE, IR_NONE};
            must(ir_plan_append(plan, w / plan->stages, w % plan->stages, in, &e), &e);
            in.op = IR_S;
            must(ir_plan_append(plan, w / plan->stages, w % plan->stages, in, &e), &e);
        }
}

static inline void world_lists(const struct world_shape *s, struct ir_plan *plan, struct rng_stream *r) {
    uint32_t count = plan->pipelines * plan->chunks * plan->microbatches, left = 0;
    struct world_cell *cells = calloc(count, sizeof *cells);
    assert_non_null(cells);
    for (uint32_t i = 0; i < count; i++) {
        struct world_cell *c = &cells[i];
        c->microbatch = i % plan->microbatches;
        c->chunk = i / plan->microbatches % plan->chunks;
        c->home = i / plan->microbatches / plan->chunks;
        c->host = world_host(s, plan, c->home, c->chunk, r);
        world_ops(c, s->extras, r);
        left += c->op_count;
    }
    while (left > 0)
        if (world_step(plan, cells, &cells[rng_below(r, count)])) left--;
    world_steps_at_end(plan);
    free(cells);
}

/* ---- costs ---- */

/* Times of 0 to `most`, with `even` the same for S of all and without factors. */
static inline void world_costs(struct world *w, uint64_t most, bool even, struct rng_stream *r) {
    struct sim_costs *c = &w->costs;
    uint32_t workers = w->plan->pipelines * w->plan->stages;
    *c = (struct sim_costs){w->plan->pipelines, w->plan->stages, w->plan->chunks, NULL, NULL, NULL};
    c->chunk = calloc(c->chunks, sizeof *c->chunk);
    assert_non_null(c->chunk);
    for (uint32_t i = 0; i < c->chunks; i++) {
        uint64_t *times[] = {&c->chunk[i].forward,       &c->chunk[i].input_grad, &c->chunk[i].weight_grad,
                             &c->chunk[i].reduce,        &c->chunk[i].step,       &c->chunk[i].send_forward,
                             &c->chunk[i].send_backward, &c->chunk[i].offload,    &c->chunk[i].load};
        for (size_t t = 0; t < sizeof times / sizeof *times; t++) *times[t] = rng_below(r, most + 1);
        c->chunk[i].full = 10 + rng_below(r, 10);
        c->chunk[i].kept = rng_below(r, c->chunk[i].full + 1);
        c->chunk[i].after_input = rng_below(r, c->chunk[i].full + 1);
    }
    if (even) return;
    c->slow = calloc(workers, sizeof *c->slow);
    assert_non_null(c->slow);
    for (uint32_t i = 0; i < workers; i++) c->slow[i] = 0.5 + 0.25 * (double)rng_below(r, 7);
}

/* ---- a world ---- */

static inline struct world_shape world_random_shape(struct rng_stream *r) {
    struct world_shape s = {.pipelines = 1 + (uint32_t)rng_below(r, 3),
                            .stages = 1 + (uint32_t)rng_below(r, 4)};
    s.per_stage = 1 + (uint32_t)rng_below(r, 2);
    s.microbatches = 1 + (uint32_t)rng_below(r, 4);
    s.v = rng_below(r, 2) == 0;
    s.dead = rng_below(r, 2) == 0;
    s.helpers = rng_below(r, 2) == 0;
    s.extras = rng_below(r, 2) == 0;
    s.wander = rng_below(r, 2) == 0;
    return s;
}

static inline struct world world_new(const struct world_shape *s, uint64_t most, bool even,
                                     struct rng_stream *r) {
    struct world w = {0};
    struct pawl_error e = {0};
    must(ir_plan_new_chunks(s->pipelines, s->stages, s->stages * s->per_stage, s->microbatches, &w.plan, &e),
         &e);
    world_hold(s, w.plan, r);
    world_lists(s, w.plan, r);
    must(ir_check(w.plan, NULL, NULL, &e), &e);
    world_costs(&w, most, even, r);
    must(sim_costs_check(&w.costs, s->microbatches, &e), &e);
    return w;
}

/* One of any shape, times up to 9, workers of the same or of different speeds. */
static inline struct world world_random(struct rng_stream *r) {
    struct world_shape shape = world_random_shape(r);
    uint64_t most = 1 + rng_below(r, 9);
    bool even = rng_below(r, 2) == 0;
    return world_new(&shape, most, even, r);
}

static inline void world_free(struct world *w) {
    ir_plan_free(w->plan);
    free(w->costs.chunk);
    free(w->costs.slow);
    free(w->costs.limit);
}

#endif
