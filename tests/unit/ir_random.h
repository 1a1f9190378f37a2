/* Valid plans of every kind that ir.h can express, made at random: several chunks a worker, helpers that hold
 * a neighbour's, dead workers, guests, messages to oneself, fused and split backwards, recompute and offload,
 * pipelines that are not full.
 *
 * A random order of all tasks that respects what each waits for is drawn, and every task is appended to the
 * list of its host as it comes: executed in that order, no list waits for ever. */
#ifndef IR_RANDOM_H
#define IR_RANDOM_H

#include "ir_oracle.h"

struct random_shape {
    uint32_t pipelines, stages, chunks, microbatches;
    uint32_t total;   /* micro-batches; 0: all pipelines are full */
    uint32_t dead;    /* bit per worker; every stage keeps one alive */
    uint32_t helpers; /* workers that hold one chunk more */
    bool v;           /* chunks go down the stages and up again, else round */
    bool memory;      /* some micro-batches are recomputed or offloaded */
};

enum random_path { RANDOM_PLAIN, RANDOM_RECOMPUTED, RANDOM_OFFLOADED };

struct random_cell {
    uint32_t host;
    enum random_path path;
    bool fused;
    bool forward, away, back, input, weight; /* done */
};

struct random_draw {
    struct rng_stream rng;
    struct ir_plan *plan;
    struct random_cell *cells;
    bool *reduced; /* [chunks] */
};

static inline uint32_t random_cell_index(const struct ir_plan *plan, uint32_t home, uint32_t chunk,
                                         uint32_t microbatch) {
    return (home * plan->chunks + chunk) * plan->microbatches + microbatch;
}

static inline void random_append(struct random_draw *d, uint32_t worker, struct ir_instruction in) {
    struct pawl_error e = {0};
    uint32_t stages = d->plan->stages;
    if (ir_plan_append(d->plan, worker / stages, worker % stages, in, &e) != PAWL_OK) fail_msg("%s", e.text);
}

/* Any live worker that holds the chunk. */
static inline uint32_t random_holder(struct random_draw *d, uint32_t chunk) {
    uint32_t workers = d->plan->pipelines * d->plan->stages;
    for (;;) {
        uint32_t w = (uint32_t)rng_below(&d->rng, workers);
        if (ir_plan_holds(d->plan, w, chunk)) return w;
    }
}

static inline void random_holders(struct random_draw *d, const struct random_shape *shape) {
    struct pawl_error e = {0};
    uint32_t workers = shape->pipelines * shape->stages;
    for (uint32_t w = 0; w < workers; w++)
        if (shape->dead >> w & 1) ir_plan_kill(d->plan, w);
    for (uint32_t k = 0; k < shape->chunks; k++) {
        uint32_t stage = k % shape->stages;
        if (shape->v && k / shape->stages % 2 == 1) stage = shape->stages - 1 - stage;
        for (uint32_t p = 0; p < shape->pipelines; p++) {
            uint32_t w = p * shape->stages + stage;
            if (d->plan->workers[w].alive) assert_int_equal(ir_plan_hold(d->plan, w, k, &e), PAWL_OK);
        }
    }
    for (uint32_t i = 0; i < shape->helpers;) {
        uint32_t w = (uint32_t)rng_below(&d->rng, workers);
        if (!d->plan->workers[w].alive) continue;
        uint32_t chunk = (uint32_t)rng_below(&d->rng, shape->chunks);
        assert_int_equal(ir_plan_hold(d->plan, w, chunk, &e), PAWL_OK);
        i++;
    }
}

/* One micro-batch in four goes to any holder, the others to their home's if it lives and holds the chunk. */
static inline void random_routes(struct random_draw *d, const struct random_shape *shape) {
    const struct ir_plan *plan = d->plan;
    for (uint32_t home = 0; home < plan->pipelines; home++) {
        for (uint32_t k = 0; k < plan->chunks; k++) {
            for (uint32_t m = 0; m < plan->microbatches; m++) {
                struct random_cell *cell = &d->cells[random_cell_index(plan, home, k, m)];
                cell->host = random_holder(d, k);
                for (uint32_t s = 0; s < plan->stages && rng_below(&d->rng, 4) > 0; s++)
                    if (ir_plan_holds(plan, home * plan->stages + s, k)) cell->host = home * plan->stages + s;
                cell->fused = rng_below(&d->rng, 2) == 0;
                if (shape->memory) cell->path = (enum random_path)rng_below(&d->rng, 3);
            }
        }
    }
}

static inline struct ir_instruction random_instruction(const struct random_draw *d, enum ir_op op,
                                                       uint32_t home, uint32_t chunk, uint32_t m) {
    const struct ir_plan *plan = d->plan;
    struct ir_instruction in = {op, chunk, home, m, IR_NONE, IR_NONE};
    if (op != IR_F && op != IR_I && op != IR_B) return in;
    uint32_t before = IR_NONE, after = IR_NONE;
    if (chunk > 0) before = d->cells[random_cell_index(plan, home, chunk - 1, m)].host;
    if (chunk + 1 < plan->chunks) after = d->cells[random_cell_index(plan, home, chunk + 1, m)].host;
    in.from = op == IR_F ? before : after;
    in.to = op == IR_F ? after : before;
    return in;
}

/* The next task of a micro-batch of a chunk, if what it waits for is done. */
static inline bool random_step(struct random_draw *d, uint32_t home, uint32_t chunk, uint32_t m) {
    const struct ir_plan *plan = d->plan;
    struct random_cell *cell = &d->cells[random_cell_index(plan, home, chunk, m)];
    enum ir_op op;
    if (!cell->forward) {
        if (chunk > 0 && !d->cells[random_cell_index(plan, home, chunk - 1, m)].forward) return false;
        op = IR_F;
        cell->forward = true;
    } else if (cell->path == RANDOM_OFFLOADED && !cell->away) {
        op = IR_O;
        cell->away = true;
    } else if (cell->path != RANDOM_PLAIN && !cell->back) {
        op = cell->path == RANDOM_OFFLOADED ? IR_L : IR_C;
        cell->back = true;
    } else if (!cell->input) {
        if (chunk + 1 < plan->chunks && !d->cells[random_cell_index(plan, home, chunk + 1, m)].input)
            return false;
        op = cell->fused ? IR_B : IR_I;
        cell->input = true;
        cell->weight = cell->fused;
    } else {
        if (cell->weight) return false;
        op = IR_W;
        cell->weight = true;
    }
    random_append(d, cell->host, random_instruction(d, op, home, chunk, m));
    return true;
}

/* R and S of a chunk whose gradients are all done, on all its holders. */
static inline bool random_reduce(struct random_draw *d, uint32_t chunk) {
    const struct ir_plan *plan = d->plan;
    if (d->reduced[chunk]) return false;
    for (uint32_t home = 0; home < plan->pipelines; home++)
        for (uint32_t m = 0; m < plan->microbatches; m++)
            if (home * plan->microbatches + m < plan->total &&
                !d->cells[random_cell_index(plan, home, chunk, m)].weight)
                return false;
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
        if (!ir_plan_holds(plan, w, chunk)) continue;
        random_append(d, w, (struct ir_instruction){IR_R, chunk, IR_NONE, IR_NONE, IR_NONE, IR_NONE});
        random_append(d, w, (struct ir_instruction){IR_S, chunk, IR_NONE, IR_NONE, IR_NONE, IR_NONE});
    }
    d->reduced[chunk] = true;
    return true;
}

static inline struct ir_plan *random_plan(uint64_t seed, const struct random_shape *shape) {
    struct random_draw d = {.rng = {.state = seed}};
    struct pawl_error e = {0};
    uint32_t cells = shape->pipelines * shape->chunks * shape->microbatches;
    if (ir_plan_new_chunks(shape->pipelines, shape->stages, shape->chunks, shape->microbatches, &d.plan,
                           &e) != PAWL_OK)
        fail_msg("%s", e.text);
    if (shape->total > 0) assert_int_equal(ir_plan_limit(d.plan, shape->total, &e), PAWL_OK);
    d.cells = calloc(cells, sizeof *d.cells);
    d.reduced = calloc(shape->chunks, sizeof *d.reduced);
    assert_true(d.cells != NULL && d.reduced != NULL);
    random_holders(&d, shape);
    random_routes(&d, shape);
    for (uint32_t left = shape->chunks; left > 0;) {
        uint32_t chunk = (uint32_t)rng_below(&d.rng, shape->chunks);
        uint32_t home = (uint32_t)rng_below(&d.rng, shape->pipelines);
        uint32_t m = (uint32_t)rng_below(&d.rng, shape->microbatches);
        if (home * shape->microbatches + m < d.plan->total) random_step(&d, home, chunk, m);
        if (random_reduce(&d, chunk)) left--;
    }
    free(d.cells);
    free(d.reduced);
    return d.plan;
}

/* A shape with everything in it, small enough for a naive judge. */
static inline struct random_shape random_any_shape(struct rng_stream *rng) {
    struct random_shape s = {.pipelines = 1 + (uint32_t)rng_below(rng, 4),
                             .stages = 1 + (uint32_t)rng_below(rng, 4),
                             .microbatches = 1 + (uint32_t)rng_below(rng, 4),
                             .helpers = (uint32_t)rng_below(rng, 3),
                             .v = rng_below(rng, 2) == 0,
                             .memory = rng_below(rng, 2) == 0};
    if (rng_below(rng, 2) == 0) s.total = 1 + (uint32_t)rng_below(rng, s.pipelines * s.microbatches);
    s.chunks = s.stages * (1 + (uint32_t)rng_below(rng, 2));
    for (uint32_t stage = 0; stage < s.stages; stage++) {
        uint32_t kept = (uint32_t)rng_below(rng, s.pipelines);
        for (uint32_t p = 0; p < s.pipelines; p++)
            if (p != kept && rng_below(rng, 4) == 0) s.dead |= 1u << (p * s.stages + stage);
    }
    return s;
}

#endif
