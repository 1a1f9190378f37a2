/* A second opinion for the tests of ir: slow, naive, and sharing nothing with src/ir but the structs.
 *
 * oracle_judge decides by brute force whether a plan is valid; oracle_makespan executes the lists in unit
 * times (F 1, I 1, W 1, B 2, messages and R and S 0). The rest builds and changes plans. */
#ifndef IR_ORACLE_H
#define IR_ORACLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "ir/ir.h"

enum oracle { ORACLE_VALID, ORACLE_BROKEN, ORACLE_STUCK };

/* Positions of `op` for one micro-batch on one worker: how many, and the last one. */
static inline uint32_t oracle_find(const struct ir_worker *w, enum ir_op op, uint32_t home,
                                   uint32_t microbatch, uint32_t *position) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        const struct ir_instruction *in = &w->instructions[i];
        if (in->op != op || in->home != home || in->microbatch != microbatch) continue;
        found++;
        *position = i;
    }
    return found;
}

/* The pipeline whose worker alone executes (home, stage, microbatch) completely and in order; or IR_NONE. */
static inline uint32_t oracle_host(const struct ir_plan *plan, uint32_t home, uint32_t stage,
                                   uint32_t microbatch) {
    uint32_t host = IR_NONE;
    for (uint32_t p = 0; p < plan->pipelines; p++) {
        const struct ir_worker *w = ir_plan_worker(plan, p, stage);
        uint32_t f = 0, i = 0, v = 0, b = 0;
        uint32_t forwards = oracle_find(w, IR_F, home, microbatch, &f);
        uint32_t inputs = oracle_find(w, IR_I, home, microbatch, &i);
        uint32_t weights = oracle_find(w, IR_W, home, microbatch, &v);
        uint32_t fused = oracle_find(w, IR_B, home, microbatch, &b);
        if (forwards + inputs + weights + fused == 0) continue;
        bool split_good = forwards == 1 && inputs == 1 && weights == 1 && fused == 0 && f < i && i < v;
        bool fused_good = forwards == 1 && inputs == 0 && weights == 0 && fused == 1 && f < b;
        if (host != IR_NONE || !w->alive || !(split_good || fused_good)) return IR_NONE;
        host = p;
    }
    return host;
}

static inline bool oracle_list_ends_well(const struct ir_worker *w) {
    if (!w->alive) return w->count == 0;
    if (w->count < 2) return false;
    for (uint32_t i = 0; i < w->count; i++) {
        enum ir_op op = w->instructions[i].op;
        if ((op == IR_R) != (i + 2 == w->count) || (op == IR_S) != (i + 1 == w->count)) return false;
        bool bare = w->instructions[i].home == IR_NONE && w->instructions[i].microbatch == IR_NONE;
        bool silent = w->instructions[i].from == IR_NONE && w->instructions[i].to == IR_NONE;
        if ((op == IR_R || op == IR_S) && !(bare && silent)) return false;
        if (op == IR_W && !silent) return false;
    }
    return true;
}

static inline bool oracle_routes_agree(const struct ir_plan *plan, uint32_t stage,
                                       const struct ir_worker *w) {
    for (uint32_t i = 0; i < w->count; i++) {
        struct ir_instruction in = w->instructions[i];
        if (in.op == IR_R || in.op == IR_S || in.op == IR_W) continue;
        if (in.home >= plan->pipelines || in.microbatch >= plan->microbatches) return false;
        uint32_t back = in.op == IR_F ? in.from : in.to, on = in.op == IR_F ? in.to : in.from;
        uint32_t before = stage == 0 ? IR_NONE : oracle_host(plan, in.home, stage - 1, in.microbatch);
        uint32_t after =
            stage + 1 == plan->stages ? IR_NONE : oracle_host(plan, in.home, stage + 1, in.microbatch);
        if (back != before || on != after) return false;
    }
    return true;
}

struct oracle_run {
    const struct ir_plan *plan;
    uint32_t *position; /* [workers] */
    uint32_t *clock;    /* [workers] */
    uint32_t *forward;  /* [cells] 1 + time of the end, 0 before */
    uint32_t *input;    /* [cells] */
};

static inline uint32_t *oracle_cell(const struct oracle_run *r, uint32_t *table,
                                    const struct ir_instruction *in, uint32_t stage) {
    return &table[((in->home * r->plan->stages) + stage) * r->plan->microbatches + in->microbatch];
}

/* Executes the worker's next instruction if its input is there. */
static inline bool oracle_advance(struct oracle_run *r, uint32_t worker) {
    const struct ir_plan *plan = r->plan;
    uint32_t stage = worker % plan->stages;
    if (r->position[worker] == plan->workers[worker].count) return false;
    const struct ir_instruction *in = &plan->workers[worker].instructions[r->position[worker]];
    uint32_t ready = 1, cost = in->op == IR_B ? 2 : 1;
    if (in->op == IR_F && stage > 0) ready = *oracle_cell(r, r->forward, in, stage - 1);
    if ((in->op == IR_I || in->op == IR_B) && stage + 1 < plan->stages)
        ready = *oracle_cell(r, r->input, in, stage + 1);
    for (uint32_t p = 0; in->op == IR_R && p < plan->pipelines; p++) {
        const struct ir_worker *peer = ir_plan_worker(plan, p, stage);
        uint32_t at = r->position[p * plan->stages + stage];
        if (peer->alive && at < peer->count && peer->instructions[at].op != IR_R &&
            peer->instructions[at].op != IR_S)
            ready = 0;
    }
    if (ready == 0) return false;
    if (in->op == IR_R || in->op == IR_S) cost = 0;
    if (r->clock[worker] < ready - 1) r->clock[worker] = ready - 1;
    r->clock[worker] += cost;
    if (in->op == IR_F) *oracle_cell(r, r->forward, in, stage) = r->clock[worker] + 1;
    if (in->op == IR_I || in->op == IR_B) *oracle_cell(r, r->input, in, stage) = r->clock[worker] + 1;
    r->position[worker]++;
    return true;
}

/* The time at which the last worker ends; IR_NONE when they get stuck. */
static inline uint32_t oracle_makespan(const struct ir_plan *plan) {
    uint32_t workers = plan->pipelines * plan->stages, makespan = 0;
    size_t cells = (size_t)workers * plan->microbatches;
    struct oracle_run r = {.plan = plan};
    r.position = calloc(workers, sizeof *r.position);
    r.clock = calloc(workers, sizeof *r.clock);
    r.forward = calloc(cells, sizeof *r.forward);
    r.input = calloc(cells, sizeof *r.input);
    assert_true(r.position != NULL && r.clock != NULL && r.forward != NULL && r.input != NULL);
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t w = 0; w < workers; w++)
            while (oracle_advance(&r, w)) moved = true;
    }
    for (uint32_t w = 0; w < workers; w++) {
        if (r.position[w] < plan->workers[w].count) makespan = IR_NONE;
        if (r.clock[w] > makespan) makespan = r.clock[w];
    }
    free(r.position);
    free(r.clock);
    free(r.forward);
    free(r.input);
    return makespan;
}

static inline enum oracle oracle_judge(const struct ir_plan *plan) {
    for (uint32_t s = 0; s < plan->stages; s++)
        for (uint32_t p = 0; p < plan->pipelines; p++)
            for (uint32_t m = 0; m < plan->microbatches; m++)
                if (oracle_host(plan, p, s, m) == IR_NONE) return ORACLE_BROKEN;
    for (uint32_t s = 0; s < plan->stages; s++) {
        for (uint32_t p = 0; p < plan->pipelines; p++) {
            const struct ir_worker *w = ir_plan_worker(plan, p, s);
            if (!oracle_list_ends_well(w) || !oracle_routes_agree(plan, s, w)) return ORACLE_BROKEN;
        }
    }
    return oracle_makespan(plan) == IR_NONE ? ORACLE_STUCK : ORACLE_VALID;
}

/* A copy whose lists have room for `spare` more instructions, for tests that change lists in place. */
static inline struct ir_plan *plan_copy(const struct ir_plan *plan, uint32_t spare) {
    struct ir_plan *copy = NULL;
    struct pawl_error e;
    assert_int_equal(ir_plan_new(plan->pipelines, plan->stages, plan->microbatches, &copy, &e), PAWL_OK);
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
        const struct ir_worker *from = &plan->workers[w];
        struct ir_worker *to = &copy->workers[w];
        *to = (struct ir_worker){.alive = from->alive, .count = from->count};
        to->instructions = malloc((from->count + spare + 1) * sizeof *to->instructions);
        assert_non_null(to->instructions);
        if (from->count > 0)
            memcpy(to->instructions, from->instructions, from->count * sizeof *to->instructions);
    }
    return copy;
}

static inline void list_insert(struct ir_worker *w, uint32_t position, struct ir_instruction in) {
    memmove(&w->instructions[position + 1], &w->instructions[position],
            (w->count - position) * sizeof *w->instructions);
    w->instructions[position] = in;
    w->count++;
}

static inline struct ir_instruction list_remove(struct ir_worker *w, uint32_t position) {
    struct ir_instruction in = w->instructions[position];
    w->count--;
    memmove(&w->instructions[position], &w->instructions[position + 1],
            (w->count - position) * sizeof *w->instructions);
    return in;
}

/* Every B becomes I, and its W comes `delay` instructions later, at the latest before R. */
static inline struct ir_plan *plan_split(const struct ir_plan *plan, uint32_t delay) {
    struct ir_plan *split = plan_copy(plan, plan->pipelines * plan->microbatches);
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
        struct ir_worker *list = &split->workers[w];
        for (uint32_t i = 0; i < list->count; i++) {
            struct ir_instruction in = list->instructions[i];
            if (in.op != IR_B) continue;
            list->instructions[i].op = IR_I;
            in.op = IR_W;
            in.from = in.to = IR_NONE;
            uint32_t at = i + 1 + delay;
            list_insert(list, at < list->count - 2 ? at : list->count - 2, in);
        }
    }
    return split;
}

/* Turns a number below (2^pipelines - 1)^stages into a set of live workers with one in every stage. */
static inline void alive_of_number(uint64_t number, uint32_t pipelines, uint32_t stages, bool *alive) {
    uint64_t sets = (UINT64_C(1) << pipelines) - 1;
    for (uint32_t s = 0; s < stages; s++) {
        uint64_t set = number % sets + 1;
        number /= sets;
        for (uint32_t p = 0; p < pipelines; p++) alive[p * stages + s] = set >> p & 1;
    }
}

static inline void alive_at_random(struct rng_stream *rng, uint32_t pipelines, uint32_t stages, bool *alive) {
    uint64_t dead_in_16 = rng_below(rng, 16);
    for (uint32_t w = 0; w < pipelines * stages; w++) alive[w] = rng_below(rng, 16) >= dead_in_16;
    for (uint32_t s = 0; s < stages; s++) alive[rng_below(rng, pipelines) * stages + s] = true;
}

#endif
