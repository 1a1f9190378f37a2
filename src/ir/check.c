/* The independent checker, first half: what can be read off the lists in two walks.
 *
 * Walk 1, list by list: every instruction is well-formed, F before I before W of one micro-batch on one
 * worker, each once, the memory limit, R and S last. Then every (home, stage, micro-batch) must be complete.
 * Walk 2: from and to against the hosts that walk 1 found. Then check_run.c executes the lists.
 *
 * Time and memory are O(instructions): a plan with fewer instructions than (home, stage, micro-batch)
 * triples misses some and is refused before a table over the triples is made.
 * Tested in tests/unit/ir_check_test.c, by mutation in tests/unit/ir_mutation_test.c. */
#include "ir/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

pawl_code check_fail(const struct check *c, uint64_t worker, uint32_t position, const char *format, ...) {
    char rule[256];
    va_list args;
    va_start(args, format);
    vsnprintf(rule, sizeof rule, format, args);
    va_end(args);
    return error_set(c->e, PAWL_PLAN, 0, "plan: worker (%u, %u) position %u: %s",
                     (uint32_t)(worker / c->plan->stages), (uint32_t)(worker % c->plan->stages), position,
                     rule);
}

static bool has_microbatch(enum ir_op op) { return op == IR_F || op == IR_I || op == IR_W || op == IR_B; }

/* Fields in range; whether from and to are the right ones is for walk 2. */
static pawl_code check_fields(const struct check *c, uint64_t worker, uint32_t position) {
    const struct ir_plan *plan = c->plan;
    const struct ir_instruction *in = &plan->workers[worker].instructions[position];
    if (!has_microbatch(in->op) && in->op != IR_R && in->op != IR_S)
        return check_fail(c, worker, position, "op %u does not exist", (unsigned)in->op);
    if (!has_microbatch(in->op) && (in->home != IR_NONE || in->microbatch != IR_NONE))
        return check_fail(c, worker, position, "%s names a micro-batch", ir_op_name(in->op));
    if (has_microbatch(in->op) && (in->home >= plan->pipelines || in->microbatch >= plan->microbatches))
        return check_fail(c, worker, position, "%s of micro-batch %u.%u, but there are %u pipelines of %u",
                          ir_op_name(in->op), in->home, in->microbatch, plan->pipelines, plan->microbatches);
    return PAWL_OK;
}

static pawl_code check_forward(struct check *c, uint64_t worker, uint32_t position, uint64_t cell) {
    const struct ir_instruction *in = &c->plan->workers[worker].instructions[position];
    if (c->state[cell] & CHECK_HAS_F)
        return check_fail(c, worker, position,
                          "second forward of micro-batch %u.%u (the first is on pipeline %u)", in->home,
                          in->microbatch, c->host[cell]);
    c->state[cell] = CHECK_HAS_F;
    c->host[cell] = (uint16_t)(worker / c->plan->stages);
    return PAWL_OK;
}

static pawl_code check_gradient(struct check *c, uint64_t worker, uint32_t position, uint64_t cell) {
    const struct ir_instruction *in = &c->plan->workers[worker].instructions[position];
    const char *name = ir_op_name(in->op);
    uint8_t adds = in->op == IR_I ? CHECK_HAS_I : in->op == IR_W ? CHECK_HAS_W : CHECK_HAS_I | CHECK_HAS_W;
    uint8_t had = c->state[cell];
    if (!(had & CHECK_HAS_F) || c->host[cell] != worker / c->plan->stages)
        return check_fail(c, worker, position, "%s of micro-batch %u.%u without its F earlier on this worker",
                          name, in->home, in->microbatch);
    if (had & adds)
        return check_fail(c, worker, position, "%s repeats a gradient of micro-batch %u.%u", name, in->home,
                          in->microbatch);
    if (in->op == IR_W && !(had & CHECK_HAS_I))
        return check_fail(c, worker, position, "W of micro-batch %u.%u before its I", in->home,
                          in->microbatch);
    c->state[cell] = had | adds;
    return PAWL_OK;
}

/* How far a worker's list has come. */
struct progress {
    bool reduced;
    bool stepped;
    uint32_t held;
    uint32_t peak;
};

static pawl_code check_end(const struct check *c, uint64_t worker, uint32_t position, struct progress *at) {
    enum ir_op op = c->plan->workers[worker].instructions[position].op;
    if (at->stepped) return check_fail(c, worker, position, "%s after S", ir_op_name(op));
    if (op == IR_S && !at->reduced) return check_fail(c, worker, position, "S before R");
    if (op != IR_S && at->reduced) return check_fail(c, worker, position, "%s after R", ir_op_name(op));
    if (op == IR_R) at->reduced = true;
    if (op == IR_S) at->stepped = true;
    return PAWL_OK;
}

static pawl_code check_instruction(struct check *c, uint64_t worker, uint32_t position, uint32_t limit,
                                   struct progress *at) {
    const struct ir_instruction *in = &c->plan->workers[worker].instructions[position];
    pawl_code code = check_fields(c, worker, position);
    if (code == PAWL_OK) code = check_end(c, worker, position, at);
    if (code != PAWL_OK || !has_microbatch(in->op)) return code;
    uint64_t cell = check_cell(c, in->home, (uint32_t)(worker % c->plan->stages), in->microbatch);
    if (in->op != IR_F) {
        code = check_gradient(c, worker, position, cell);
        if (code == PAWL_OK && in->op != IR_I) at->held--;
        return code;
    }
    code = check_forward(c, worker, position, cell);
    if (code != PAWL_OK) return code;
    if (++at->held > at->peak) at->peak = at->held;
    if (at->held > limit)
        return check_fail(c, worker, position, "holds %u micro-batches, its memory limit is %u", at->held,
                          limit);
    return PAWL_OK;
}

static pawl_code check_list(struct check *c, uint64_t worker, uint32_t limit, uint32_t *peak) {
    const struct ir_worker *list = &c->plan->workers[worker];
    struct progress at = {0};
    if (!list->alive && list->count > 0) return check_fail(c, worker, 0, "a dead worker has instructions");
    if (list->count > 0 && list->instructions == NULL)
        return check_fail(c, worker, 0, "%u instructions, but no list", list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        pawl_code code = check_instruction(c, worker, i, limit, &at);
        if (code != PAWL_OK) return code;
    }
    if (list->alive && !at.reduced) return check_fail(c, worker, list->count, "the list ends without R");
    if (list->alive && !at.stepped) return check_fail(c, worker, list->count, "the list ends without S");
    if (peak != NULL) *peak = at.peak;
    return PAWL_OK;
}

/* Every micro-batch has all three of its tasks at every stage. */
static pawl_code check_complete(const struct check *c) {
    for (uint64_t cell = 0; cell < c->cells; cell++) {
        uint8_t state = c->state[cell];
        if (state == CHECK_COMPLETE) continue;
        uint64_t at = cell / c->plan->microbatches; /* the home worker's index */
        const char *missing = !(state & CHECK_HAS_F) ? "F" : !(state & CHECK_HAS_I) ? "I" : "W";
        uint64_t worker =
            state & CHECK_HAS_F ? (uint64_t)c->host[cell] * c->plan->stages + at % c->plan->stages : at;
        return check_fail(c, worker, c->plan->workers[worker].count,
                          "%s of micro-batch %u.%u is nowhere at this stage", missing,
                          (uint32_t)(at / c->plan->stages), (uint32_t)(cell % c->plan->microbatches));
    }
    return PAWL_OK;
}

static pawl_code check_neighbour(const struct check *c, uint64_t worker, uint32_t position, const char *field,
                                 uint32_t want) {
    const struct ir_instruction *in = &c->plan->workers[worker].instructions[position];
    uint32_t had = field[0] == 'f' ? in->from : in->to;
    if (had == want) return PAWL_OK;
    char wanted[16] = "none", was[16] = "none";
    if (want != IR_NONE) snprintf(wanted, sizeof wanted, "%u", want);
    if (had != IR_NONE) snprintf(was, sizeof was, "%u", had);
    return check_fail(c, worker, position, "%s: `%s` is pipeline %s, the host there is %s",
                      ir_op_name(in->op), field, was, wanted);
}

/* Both ends name each other because both are compared with the one host that executes the other end. */
static pawl_code check_route(const struct check *c, uint64_t worker, uint32_t position) {
    const struct ir_instruction *in = &c->plan->workers[worker].instructions[position];
    uint32_t stage = (uint32_t)(worker % c->plan->stages);
    uint32_t before = IR_NONE, after = IR_NONE;
    bool speaks = has_microbatch(in->op) && in->op != IR_W;
    if (speaks && stage > 0) before = c->host[check_cell(c, in->home, stage - 1, in->microbatch)];
    if (speaks && stage + 1 < c->plan->stages)
        after = c->host[check_cell(c, in->home, stage + 1, in->microbatch)];
    bool forward = in->op == IR_F;
    pawl_code code = check_neighbour(c, worker, position, "from", forward ? before : after);
    if (code == PAWL_OK) code = check_neighbour(c, worker, position, "to", forward ? after : before);
    return code;
}

static pawl_code check_routes(const struct check *c) {
    for (uint64_t w = 0; w < c->workers; w++) {
        for (uint32_t i = 0; i < c->plan->workers[w].count; i++) {
            pawl_code code = check_route(c, w, i);
            if (code != PAWL_OK) return code;
        }
    }
    return PAWL_OK;
}

static bool size_is_valid(uint32_t value, uint32_t limit) { return value >= 1 && value <= limit; }

/* Sizes, and the tables; they are never larger than the instructions that the plan really has. */
static pawl_code check_open(struct check *c) {
    const struct ir_plan *plan = c->plan;
    if (!size_is_valid(plan->pipelines, IR_PIPELINES_MAX) || !size_is_valid(plan->stages, IR_STAGES_MAX) ||
        !size_is_valid(plan->microbatches, IR_MICROBATCHES_MAX) || plan->workers == NULL)
        return error_set(c->e, PAWL_PLAN, 0, "plan: sizes %u x %u x %u are not in 1..%u x 1..%u x 1..%u",
                         plan->pipelines, plan->stages, plan->microbatches, IR_PIPELINES_MAX, IR_STAGES_MAX,
                         IR_MICROBATCHES_MAX);
    uint64_t instructions = 0;
    c->workers = (uint64_t)plan->pipelines * plan->stages;
    if (!mem_mul(c->workers, plan->microbatches, &c->cells)) c->cells = UINT64_MAX;
    for (uint64_t w = 0; w < c->workers; w++) instructions += plan->workers[w].count;
    if (instructions < c->cells)
        return error_set(c->e, PAWL_PLAN, 0,
                         "plan: %llu instructions in all, but %llu forwards alone are needed",
                         (unsigned long long)instructions, (unsigned long long)c->cells);
    c->host = calloc(c->cells, sizeof *c->host);
    c->state = calloc(c->cells, sizeof *c->state);
    if (c->host == NULL || c->state == NULL)
        return error_set(c->e, PAWL_MEMORY, 0, "plan: no memory to check %llu micro-batches",
                         (unsigned long long)c->cells);
    return PAWL_OK;
}

pawl_code ir_check(const struct ir_plan *plan, const uint32_t *memory_limit, uint32_t *peak,
                   struct pawl_error *e) {
    struct check c = {.plan = plan, .e = e};
    pawl_code code = check_open(&c);
    for (uint64_t w = 0; code == PAWL_OK && w < c.workers; w++)
        code = check_list(&c, w, memory_limit == NULL ? UINT32_MAX : memory_limit[w],
                          peak == NULL ? NULL : &peak[w]);
    if (code == PAWL_OK) code = check_complete(&c);
    if (code == PAWL_OK) code = check_routes(&c);
    if (code == PAWL_OK) code = check_run(&c);
    free(c.host);
    free(c.state);
    return code;
}
