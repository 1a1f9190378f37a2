/* A second opinion for the tests of ir: slow, naive, and sharing nothing with src/ir but the structs.
 *
 * oracle_judge decides by brute force whether a plan is valid; oracle_makespan executes the lists in unit
 * times (F 1, I 1, W 1, B 2, C 1, all else 0). The rest builds and changes plans. */
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

/* Positions of `op` for one micro-batch of a chunk on one worker: how many, and the last one. */
static inline uint32_t oracle_find(const struct ir_worker *w, enum ir_op op, uint32_t chunk, uint32_t home,
                                   uint32_t microbatch, uint32_t *position) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        const struct ir_instruction *in = &w->instructions[i];
        if (in->op != op || in->chunk != chunk || in->home != home || in->microbatch != microbatch) continue;
        found++;
        *position = i;
    }
    return found;
}

enum oracle_task { ORACLE_NOWHERE, ORACLE_WRONG, ORACLE_WHOLE };

/* What one worker does for a micro-batch of a chunk: nothing, all of it in order, or something wrong. */
static inline enum oracle_task oracle_task(const struct ir_worker *w, uint32_t chunk, uint32_t home,
                                           uint32_t microbatch) {
    uint32_t count[IR_OP_COUNT] = {0}, at[IR_OP_COUNT] = {0}, sum = 0;
    for (int op = 0; op < IR_OP_COUNT; op++)
        sum += count[op] = oracle_find(w, (enum ir_op)op, chunk, home, microbatch, &at[op]);
    if (sum == 0) return ORACLE_NOWHERE;
    bool split = count[IR_I] == 1 && count[IR_W] == 1 && count[IR_B] == 0 && at[IR_I] < at[IR_W];
    bool fused = count[IR_I] == 0 && count[IR_W] == 0 && count[IR_B] == 1;
    uint32_t gradient = fused ? at[IR_B] : at[IR_I];
    bool good = count[IR_F] == 1 && (split || fused) && at[IR_F] < gradient;
    bool recomputes = count[IR_C] == 1 && count[IR_O] + count[IR_L] == 0;
    bool offloads = count[IR_C] == 0 && count[IR_O] == 1 && count[IR_L] == 1;
    bool plain = count[IR_C] + count[IR_O] + count[IR_L] == 0;
    if (recomputes && !(at[IR_F] < at[IR_C] && at[IR_C] < gradient)) good = false;
    if (offloads && !(at[IR_F] < at[IR_O] && at[IR_O] < at[IR_L] && at[IR_L] < gradient)) good = false;
    return good && (plain || recomputes || offloads) ? ORACLE_WHOLE : ORACLE_WRONG;
}

/* The worker that alone executes (home, chunk, microbatch) completely and in order; or IR_NONE. */
static inline uint32_t oracle_host(const struct ir_plan *plan, uint32_t home, uint32_t chunk,
                                   uint32_t microbatch) {
    uint32_t host = IR_NONE;
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
        enum oracle_task task = oracle_task(&plan->workers[w], chunk, home, microbatch);
        if (task == ORACLE_NOWHERE) continue;
        if (host != IR_NONE || task == ORACLE_WRONG || !plan->workers[w].alive) return IR_NONE;
        host = w;
    }
    return host;
}

static inline bool oracle_holds(const struct ir_worker *w, uint32_t chunk) {
    bool found = false;
    for (uint32_t i = 0; i < w->hold_count; i++) found = found || w->holds[i] == chunk;
    return found;
}

static inline bool oracle_holders_are_good(const struct ir_plan *plan) {
    for (uint32_t k = 0; k < plan->chunks; k++) {
        bool held = false;
        for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++)
            held = held || (plan->workers[w].alive && oracle_holds(&plan->workers[w], k));
        if (!held) return false;
    }
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
        const struct ir_worker *worker = &plan->workers[w];
        if (!worker->alive && worker->hold_count + worker->count > 0) return false;
        for (uint32_t i = 0; i < worker->hold_count; i++) {
            if (worker->holds[i] >= plan->chunks) return false;
            if (i > 0 && worker->holds[i - 1] >= worker->holds[i]) return false;
        }
    }
    return true;
}

/* One R and then one S of every chunk that the worker holds, the R after all its gradients. */
static inline bool oracle_chunk_ends_well(const struct ir_worker *w, uint32_t chunk) {
    uint32_t r = IR_NONE, s = IR_NONE, last = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        enum ir_op op = w->instructions[i].op;
        if (w->instructions[i].chunk != chunk) continue;
        if ((op == IR_R && r != IR_NONE) || (op == IR_S && s != IR_NONE)) return false;
        if (op == IR_R) r = i;
        if (op == IR_S) s = i;
        if (op == IR_I || op == IR_W || op == IR_B) last = i;
    }
    return r != IR_NONE && s != IR_NONE && last <= r && r < s;
}

static inline bool oracle_exists(const struct ir_plan *plan, uint32_t home, uint32_t microbatch) {
    return home * plan->microbatches + microbatch < plan->total;
}

static inline bool oracle_list_is_good(const struct ir_plan *plan, const struct ir_worker *w) {
    for (uint32_t i = 0; i < w->count; i++) {
        struct ir_instruction in = w->instructions[i];
        bool collective = in.op == IR_R || in.op == IR_S;
        if ((unsigned)in.op >= IR_OP_COUNT || !oracle_holds(w, in.chunk)) return false;
        if (collective && (in.home != IR_NONE || in.microbatch != IR_NONE)) return false;
        if (!collective && (in.home >= plan->pipelines || in.microbatch >= plan->microbatches)) return false;
        if (!collective && !oracle_exists(plan, in.home, in.microbatch)) return false;
    }
    for (uint32_t i = 0; i < w->hold_count; i++)
        if (!oracle_chunk_ends_well(w, w->holds[i])) return false;
    return true;
}

static inline bool oracle_routes_agree(const struct ir_plan *plan, const struct ir_worker *w) {
    for (uint32_t i = 0; i < w->count; i++) {
        struct ir_instruction in = w->instructions[i];
        uint32_t before = IR_NONE, after = IR_NONE;
        bool speaks = in.op == IR_F || in.op == IR_I || in.op == IR_B;
        if (speaks && in.chunk > 0) before = oracle_host(plan, in.home, in.chunk - 1, in.microbatch);
        if (speaks && in.chunk + 1 < plan->chunks)
            after = oracle_host(plan, in.home, in.chunk + 1, in.microbatch);
        uint32_t back = in.op == IR_F ? in.from : in.to, on = in.op == IR_F ? in.to : in.from;
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
    uint32_t *barrier;  /* [workers * chunks] 1 + time of coming to R, 0 before */
};

static inline uint32_t *oracle_cell(const struct oracle_run *r, uint32_t *table,
                                    const struct ir_instruction *in, uint32_t chunk) {
    return &table[((in->home * r->plan->chunks) + chunk) * r->plan->microbatches + in->microbatch];
}

/* 1 + the time at which the last holder came to its R of the chunk; 0 before. */
static inline uint32_t oracle_barrier(const struct oracle_run *r, uint32_t chunk) {
    uint32_t last = 1;
    for (uint32_t w = 0; w < r->plan->pipelines * r->plan->stages; w++) {
        if (!oracle_holds(&r->plan->workers[w], chunk)) continue;
        uint32_t came = r->barrier[w * r->plan->chunks + chunk];
        if (came == 0) return 0;
        if (came > last) last = came;
    }
    return last;
}

/* Executes the worker's next instruction if its input is there. */
static inline bool oracle_advance(struct oracle_run *r, uint32_t worker) {
    static const uint32_t costs[IR_OP_COUNT] = {[IR_F] = 1, [IR_I] = 1, [IR_W] = 1, [IR_B] = 2, [IR_C] = 1};
    const struct ir_plan *plan = r->plan;
    if (r->position[worker] == plan->workers[worker].count) return false;
    const struct ir_instruction *in = &plan->workers[worker].instructions[r->position[worker]];
    uint32_t ready = 1;
    bool gradient = in->op == IR_I || in->op == IR_B;
    if (in->op == IR_F && in->chunk > 0) ready = *oracle_cell(r, r->forward, in, in->chunk - 1);
    if (gradient && in->chunk + 1 < plan->chunks) ready = *oracle_cell(r, r->input, in, in->chunk + 1);
    if (in->op == IR_R) {
        uint32_t *came = &r->barrier[worker * plan->chunks + in->chunk];
        if (*came == 0) *came = r->clock[worker] + 1;
        ready = oracle_barrier(r, in->chunk);
    }
    if (ready == 0) return false;
    if (r->clock[worker] < ready - 1) r->clock[worker] = ready - 1;
    r->clock[worker] += costs[in->op];
    if (in->op == IR_F) *oracle_cell(r, r->forward, in, in->chunk) = r->clock[worker] + 1;
    if (gradient) *oracle_cell(r, r->input, in, in->chunk) = r->clock[worker] + 1;
    r->position[worker]++;
    return true;
}

/* The time at which the last worker ends; IR_NONE when they get stuck. */
static inline uint32_t oracle_makespan(const struct ir_plan *plan) {
    uint32_t workers = plan->pipelines * plan->stages, makespan = 0;
    size_t cells = (size_t)plan->pipelines * plan->chunks * plan->microbatches;
    struct oracle_run r = {.plan = plan};
    r.position = calloc(workers, sizeof *r.position);
    r.clock = calloc(workers, sizeof *r.clock);
    r.forward = calloc(cells, sizeof *r.forward);
    r.input = calloc(cells, sizeof *r.input);
    r.barrier = calloc((size_t)workers * plan->chunks, sizeof *r.barrier);
    assert_true(r.position && r.clock && r.forward && r.input && r.barrier);
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
    free(r.barrier);
    return makespan;
}

static inline enum oracle oracle_judge(const struct ir_plan *plan) {
    if (!oracle_holders_are_good(plan)) return ORACLE_BROKEN;
    for (uint32_t k = 0; k < plan->chunks; k++)
        for (uint32_t p = 0; p < plan->pipelines; p++)
            for (uint32_t m = 0; m < plan->microbatches; m++)
                if (oracle_exists(plan, p, m) && oracle_host(plan, p, k, m) == IR_NONE) return ORACLE_BROKEN;
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++)
        if (!oracle_list_is_good(plan, &plan->workers[w]) || !oracle_routes_agree(plan, &plan->workers[w]))
            return ORACLE_BROKEN;
    return oracle_makespan(plan) == IR_NONE ? ORACLE_STUCK : ORACLE_VALID;
}

/* What the worker stores for one micro-batch of a chunk after `done` of its instructions, by ir.h's words. */
static inline uint64_t oracle_stored(const struct ir_worker *w, uint32_t done, struct ir_instruction of,
                                     uint64_t full, uint64_t kept, uint64_t after_input) {
    uint64_t stored = 0;
    bool recomputes = false;
    for (uint32_t i = 0; i < w->count; i++) {
        struct ir_instruction in = w->instructions[i];
        bool same = in.chunk == of.chunk && in.home == of.home && in.microbatch == of.microbatch;
        if (same && in.op == IR_C) recomputes = true;
    }
    for (uint32_t i = 0; i < done; i++) {
        struct ir_instruction in = w->instructions[i];
        if (in.chunk != of.chunk || in.home != of.home || in.microbatch != of.microbatch) continue;
        if (in.op == IR_F) stored = recomputes ? kept : full;
        if (in.op == IR_C || in.op == IR_L) stored = full;
        if (in.op == IR_O) stored = kept;
        if (in.op == IR_I) stored = after_input;
        if (in.op == IR_W || in.op == IR_B) stored = 0;
    }
    return stored;
}

/* The most that the worker stores at once; all members of `memory` given. */
static inline uint64_t oracle_peak(const struct ir_worker *w, const struct ir_memory *memory) {
    uint64_t peak = 0;
    for (uint32_t done = 0; done <= w->count; done++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < w->count; i++) {
            uint32_t k = w->instructions[i].chunk;
            if (w->instructions[i].op == IR_F)
                sum += oracle_stored(w, done, w->instructions[i], memory->full[k], memory->kept[k],
                                     memory->after_input[k]);
        }
        if (sum > peak) peak = sum;
    }
    return peak;
}

/* A copy whose lists have room for `spare` more instructions, for tests that change lists in place. */
static inline struct ir_plan *plan_copy(const struct ir_plan *plan, uint32_t spare) {
    struct ir_plan *copy = NULL;
    struct pawl_error e;
    assert_int_equal(
        ir_plan_new_chunks(plan->pipelines, plan->stages, plan->chunks, plan->microbatches, &copy, &e),
        PAWL_OK);
    copy->total = plan->total;
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
        const struct ir_worker *from = &plan->workers[w];
        struct ir_worker *to = &copy->workers[w];
        *to = *from;
        to->room = from->count + spare + 1;
        to->instructions = malloc(to->room * sizeof *to->instructions);
        to->holds = malloc((from->hold_count + 1) * sizeof *to->holds);
        assert_true(to->instructions != NULL && to->holds != NULL);
        if (from->count > 0)
            memcpy(to->instructions, from->instructions, from->count * sizeof *to->instructions);
        if (from->hold_count > 0) memcpy(to->holds, from->holds, from->hold_count * sizeof *to->holds);
    }
    return copy;
}

static inline void assert_same_plan(const struct ir_plan *a, const struct ir_plan *b) {
    assert_int_equal(a->pipelines, b->pipelines);
    assert_int_equal(a->stages, b->stages);
    assert_int_equal(a->chunks, b->chunks);
    assert_int_equal(a->microbatches, b->microbatches);
    assert_int_equal(a->total, b->total);
    for (uint32_t w = 0; w < a->pipelines * a->stages; w++) {
        const struct ir_worker *x = &a->workers[w], *y = &b->workers[w];
        assert_int_equal(x->alive, y->alive);
        assert_int_equal(x->hold_count, y->hold_count);
        assert_int_equal(x->count, y->count);
        for (uint32_t i = 0; i < x->hold_count; i++) assert_int_equal(x->holds[i], y->holds[i]);
        for (uint32_t i = 0; i < x->count; i++)
            assert_memory_equal(&x->instructions[i], &y->instructions[i], sizeof *x->instructions);
    }
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
