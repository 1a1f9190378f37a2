/* Small clusters for tests of routes: costs all equal or given, some roles dead. */
#ifndef PLAN_CASE_H
#define PLAN_CASE_H

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "plan/plan.h"

struct plan_case {
    struct sim_costs costs;
    uint32_t microbatches;
    uint32_t total; /* of all pipelines; 0: all are full */
    bool *alive;    /* [workers] */
};

static inline struct plan_batch case_batch(const struct plan_case *c) {
    return (struct plan_batch){c->microbatches, c->total};
}

static inline uint32_t case_workers(const struct plan_case *c) {
    return c->costs.pipelines * c->costs.stages;
}

/* F = I = W = 1, a micro-batch takes 1 of memory from F to W; nobody is dead. */
static inline struct plan_case case_uniform(uint32_t pipelines, uint32_t stages, uint32_t microbatches) {
    struct plan_case c = {.costs = {.pipelines = pipelines, .stages = stages, .chunks = stages},
                          .microbatches = microbatches};
    c.costs.chunk = calloc(stages, sizeof *c.costs.chunk);
    c.alive = malloc(case_workers(&c) * sizeof *c.alive);
    assert_non_null(c.costs.chunk);
    assert_non_null(c.alive);
    for (uint32_t i = 0; i < stages; i++)
        c.costs.chunk[i] = (struct sim_chunk){
            .forward = 1, .input_grad = 1, .weight_grad = 1, .full = 1, .kept = 1, .after_input = 1};
    for (uint32_t w = 0; w < case_workers(&c); w++) c.alive[w] = true;
    return c;
}

static inline void case_kill(struct plan_case *c, uint32_t pipeline, uint32_t stage) {
    c->alive[pipeline * c->costs.stages + stage] = false;
}

/* Everybody may store so many micro-batches. */
static inline void case_limit(struct plan_case *c, uint64_t limit) {
    if (c->costs.limit == NULL) c->costs.limit = malloc(case_workers(c) * sizeof *c->costs.limit);
    assert_non_null(c->costs.limit);
    for (uint32_t w = 0; w < case_workers(c); w++) c->costs.limit[w] = limit;
}

static inline void case_slow(struct plan_case *c, uint32_t pipeline, uint32_t stage, double factor) {
    if (c->costs.slow == NULL) {
        c->costs.slow = malloc(case_workers(c) * sizeof *c->costs.slow);
        assert_non_null(c->costs.slow);
        for (uint32_t w = 0; w < case_workers(c); w++) c->costs.slow[w] = 1;
    }
    c->costs.slow[pipeline * c->costs.stages + stage] = factor;
}

static inline void case_close(struct plan_case *c) {
    free(c->costs.chunk);
    free(c->costs.slow);
    free(c->costs.limit);
    free(c->alive);
}

/* Micro-batches of a chunk that a worker executes. */
static inline uint32_t case_hosted(const struct plan_route *r, uint32_t worker, uint32_t chunk) {
    uint32_t count = 0;
    for (uint32_t h = 0; h < r->pipelines; h++)
        for (uint32_t m = 0; m < r->microbatches; m++)
            if (r->host[plan_route_cell(r, h, chunk, m)] == worker) count++;
    return count;
}

/* F, I and W of all that a worker executes, R and S of all that it holds. */
static inline uint64_t case_load(const struct plan_case *c, const struct plan_route *r, uint32_t worker) {
    uint64_t load = 0;
    for (uint32_t chunk = 0; chunk < r->chunks; chunk++) {
        uint64_t n = case_hosted(r, worker, chunk);
        bool own = worker % r->stages == chunk % r->stages;
        for (int op = IR_F; op <= IR_W; op++)
            load += n * sim_duration(&c->costs, worker, chunk, (enum ir_op)op);
        if (n > 0 || own)
            load +=
                sim_duration(&c->costs, worker, chunk, IR_R) + sim_duration(&c->costs, worker, chunk, IR_S);
    }
    return load;
}

static inline uint64_t case_busiest(const struct plan_case *c, const struct plan_route *r) {
    uint64_t most = 0;
    for (uint32_t w = 0; w < case_workers(c); w++) {
        uint64_t load = r->alive[w] ? case_load(c, r, w) : 0;
        if (load > most) most = load;
    }
    return most;
}

/* Every micro-batch of every chunk has a live host. */
static inline void case_assert_whole(const struct plan_route *r) {
    uint64_t cells = (uint64_t)r->pipelines * r->chunks * r->microbatches;
    for (uint64_t i = 0; i < cells; i++) {
        assert_true(r->host[i] < r->pipelines * r->stages);
        assert_true(r->alive[r->host[i]]);
    }
}

#endif
