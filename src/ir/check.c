/* The independent checker: what can be read off the lists in two walks.
 *
 * Walk 1, list by list: every instruction is well-formed and of a chunk that its worker holds, the tasks of
 * one micro-batch come in order on one worker, each once, and every chunk held ends in its R and S. Then
 * every (home, chunk, micro-batch) must be complete. Walk 2: from and to against the hosts that walk 1 found.
 * Then check_run.c executes the lists and check_memory.c adds up what is stored.
 *
 * Time and memory are O(instructions): a plan with fewer instructions than (home, chunk, micro-batch)
 * triples misses some and is refused before a table over the triples is made.
 * Tested in tests/unit/ir_check_test.c, by mutation in tests/unit/ir_mutation_test.c. */
#include "ir/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

pawl_code check_fail(const struct check *c, uint32_t worker, uint32_t position, const char *format, ...) {
    char rule[256];
    va_list args;
    va_start(args, format);
    vsnprintf(rule, sizeof rule, format, args);
    va_end(args);
    return error_set(c->e, PAWL_PLAN, 0, "plan: worker (%u, %u) position %u: %s", worker / c->plan->stages,
                     worker % c->plan->stages, position, rule);
}

/* What must have come before a task of the same micro-batch, what must not, and what the task adds. */
struct rule {
    uint8_t needs, forbids, adds;
};
static const struct rule rules[IR_OP_COUNT] = {
    [IR_F] = {0, CHECK_F, CHECK_F},
    [IR_I] = {CHECK_F, CHECK_I | CHECK_W, CHECK_I},
    [IR_W] = {CHECK_F | CHECK_I, CHECK_W, CHECK_W},
    [IR_B] = {CHECK_F, CHECK_I | CHECK_W, CHECK_I | CHECK_W},
    [IR_C] = {CHECK_F, CHECK_I | CHECK_W | CHECK_C | CHECK_O, CHECK_C},
    [IR_O] = {CHECK_F, CHECK_I | CHECK_W | CHECK_C | CHECK_O, CHECK_O},
    [IR_L] = {CHECK_F | CHECK_O, CHECK_I | CHECK_W | CHECK_L, CHECK_L},
};

static bool has_microbatch(enum ir_op op) { return op != IR_R && op != IR_S; }

/* The lowest task in a set, for messages. */
static const char *task_name(uint8_t set) {
    static const char *const names[] = {"F", "I", "W", "C", "O", "L"};
    uint32_t i = 0;
    while (i < 5 && !(set >> i & 1)) i++;
    return names[i];
}

/* Fields in range; whether from and to are the right ones is for walk 2. */
static pawl_code check_fields(const struct check *c, uint32_t worker, uint32_t position) {
    const struct ir_plan *plan = c->plan;
    const struct ir_instruction *in = check_at(c, worker, position);
    if ((unsigned)in->op >= IR_OP_COUNT)
        return check_fail(c, worker, position, "op %u does not exist", (unsigned)in->op);
    if (in->chunk >= plan->chunks)
        return check_fail(c, worker, position, "%s of chunk %u, but there are %u", ir_op_name(in->op),
                          in->chunk, plan->chunks);
    if (!(c->chunk[in->chunk] & CHECK_HELD))
        return check_fail(c, worker, position, "%s of chunk %u, which this worker does not hold",
                          ir_op_name(in->op), in->chunk);
    if (!has_microbatch(in->op) && (in->home != IR_NONE || in->microbatch != IR_NONE))
        return check_fail(c, worker, position, "%s names a micro-batch", ir_op_name(in->op));
    if (has_microbatch(in->op) && (in->home >= plan->pipelines || in->microbatch >= plan->microbatches))
        return check_fail(c, worker, position, "%s of micro-batch %u.%u, but there are %u pipelines of %u",
                          ir_op_name(in->op), in->home, in->microbatch, plan->pipelines, plan->microbatches);
    if (has_microbatch(in->op) && (uint64_t)in->home * plan->microbatches + in->microbatch >= plan->total)
        return check_fail(c, worker, position, "%s of micro-batch %u.%u of %u, but there are %u in all",
                          ir_op_name(in->op), in->home, in->microbatch, plan->microbatches, plan->total);
    return PAWL_OK;
}

static pawl_code fail_task(const struct check *c, uint32_t worker, uint32_t position, uint64_t cell) {
    const struct ir_instruction *in = check_at(c, worker, position);
    const struct rule *rule = &rules[in->op];
    uint8_t had = c->state[cell];
    uint32_t host = had & CHECK_F ? c->host[cell] : worker;
    uint8_t missing = host == worker ? rule->needs & (uint8_t)~had : CHECK_F;
    char name[96];
    snprintf(name, sizeof name, "%s of micro-batch %u.%u of chunk %u", ir_op_name(in->op), in->home,
             in->microbatch, in->chunk);
    if (in->op == IR_F)
        return check_fail(c, worker, position, "%s, but its F was on worker (%u, %u) already", name,
                          host / c->plan->stages, host % c->plan->stages);
    if (missing != 0)
        return check_fail(c, worker, position, "%s without its %s earlier on this worker", name,
                          task_name(missing));
    if (had & rule->forbids)
        return check_fail(c, worker, position, "%s after its %s", name,
                          task_name((uint8_t)(had & rule->forbids)));
    return check_fail(c, worker, position, "%s between its O and its L", name);
}

static pawl_code check_task(struct check *c, uint32_t worker, uint32_t position) {
    const struct ir_instruction *in = check_at(c, worker, position);
    const struct rule *rule = &rules[in->op];
    uint64_t cell = check_cell(c, in);
    uint8_t had = c->state[cell];
    bool away = in->op != IR_L && (had & (CHECK_O | CHECK_L)) == CHECK_O; /* the activation is on the host */
    if (c->chunk[in->chunk] & CHECK_REDUCED)
        return check_fail(c, worker, position, "%s of micro-batch %u.%u after the R of its chunk %u",
                          ir_op_name(in->op), in->home, in->microbatch, in->chunk);
    if (in->op == IR_F && !(had & CHECK_F))
        c->host[cell] = worker;
    else if (away || (had & rule->needs) != rule->needs || (had & rule->forbids) || c->host[cell] != worker)
        return fail_task(c, worker, position, cell);
    c->state[cell] = had | rule->adds;
    return PAWL_OK;
}

static pawl_code check_collective(struct check *c, uint32_t worker, uint32_t position) {
    const struct ir_instruction *in = check_at(c, worker, position);
    uint8_t *had = &c->chunk[in->chunk];
    if (*had & CHECK_STEPPED)
        return check_fail(c, worker, position, "%s of chunk %u after its S", ir_op_name(in->op), in->chunk);
    if (in->op == IR_S && !(*had & CHECK_REDUCED))
        return check_fail(c, worker, position, "S of chunk %u before its R", in->chunk);
    if (in->op == IR_R && (*had & CHECK_REDUCED))
        return check_fail(c, worker, position, "R of chunk %u after its R", in->chunk);
    *had |= in->op == IR_R ? CHECK_REDUCED : CHECK_STEPPED;
    return PAWL_OK;
}

/* Every chunk held was reduced and stepped; the marks are taken back for the next list. */
static pawl_code check_ends(struct check *c, uint32_t worker) {
    const struct ir_worker *w = &c->plan->workers[worker];
    for (uint32_t i = 0; i < w->hold_count; i++) {
        uint8_t had = c->chunk[w->holds[i]];
        c->chunk[w->holds[i]] = 0;
        if (!(had & CHECK_STEPPED))
            return check_fail(c, worker, w->count, "the list ends without %s of chunk %u",
                              had & CHECK_REDUCED ? "S" : "R", w->holds[i]);
    }
    return PAWL_OK;
}

static pawl_code check_list(struct check *c, uint32_t worker) {
    const struct ir_worker *w = &c->plan->workers[worker];
    if (!w->alive && w->count > 0) return check_fail(c, worker, 0, "a dead worker has instructions");
    if (w->count > 0 && w->instructions == NULL)
        return check_fail(c, worker, 0, "%u instructions, but no list", w->count);
    for (uint32_t i = 0; i < w->hold_count; i++) c->chunk[w->holds[i]] = CHECK_HELD;
    for (uint32_t i = 0; i < w->count; i++) {
        pawl_code code = check_fields(c, worker, i);
        if (code != PAWL_OK) return code;
        bool task = has_microbatch(w->instructions[i].op);
        code = task ? check_task(c, worker, i) : check_collective(c, worker, i);
        if (code != PAWL_OK) return code;
    }
    return check_ends(c, worker);
}

/* Who is named for a task that is nowhere: the home's holder of the chunk, else the first one. */
static uint32_t likely_host(const struct check *c, uint32_t home, uint32_t chunk) {
    for (uint32_t i = c->first_holder[chunk]; i < c->first_holder[chunk + 1]; i++)
        if (c->holder[i] / c->plan->stages == home) return c->holder[i];
    return c->holder[c->first_holder[chunk]];
}

static pawl_code fail_incomplete(const struct check *c, uint64_t cell) {
    uint32_t chunk = (uint32_t)(cell / c->plan->total), number = (uint32_t)(cell % c->plan->total);
    uint32_t home = number / c->plan->microbatches;
    uint8_t state = c->state[cell];
    uint32_t worker = state & CHECK_F ? c->host[cell] : likely_host(c, home, chunk);
    return check_fail(
        c, worker, c->plan->workers[worker].count, "%s of micro-batch %u.%u of chunk %u is nowhere",
        task_name((uint8_t)(CHECK_COMPLETE & ~state)), home, number % c->plan->microbatches, chunk);
}

/* Every micro-batch has all three of its tasks at every chunk. */
static pawl_code check_complete(const struct check *c) {
    for (uint64_t cell = 0; cell < c->cells; cell++)
        if ((c->state[cell] & CHECK_COMPLETE) != CHECK_COMPLETE) return fail_incomplete(c, cell);
    return PAWL_OK;
}

static void worker_name(const struct check *c, uint32_t worker, char name[32]) {
    if (worker == IR_NONE)
        snprintf(name, 32, "nobody");
    else
        snprintf(name, 32, "worker (%u, %u)", worker / c->plan->stages, worker % c->plan->stages);
}

static pawl_code fail_neighbour(const struct check *c, uint32_t worker, uint32_t position, const char *field,
                                uint32_t want) {
    const struct ir_instruction *in = check_at(c, worker, position);
    char wanted[32], had[32];
    worker_name(c, want, wanted);
    worker_name(c, field[0] == 'f' ? in->from : in->to, had);
    return check_fail(c, worker, position, "%s: `%s` is %s, the host there is %s", ir_op_name(in->op), field,
                      had, wanted);
}

/* Both ends name each other because both are compared with the one host that executes the other end. */
static pawl_code check_route(const struct check *c, uint32_t worker, uint32_t position) {
    const struct ir_instruction *in = check_at(c, worker, position);
    uint32_t before = IR_NONE, after = IR_NONE;
    if (in->op == IR_F || in->op == IR_I || in->op == IR_B) {
        uint64_t cell = check_cell(c, in);
        if (in->chunk > 0) before = c->host[cell - c->plan->total];
        if (in->chunk + 1 < c->plan->chunks) after = c->host[cell + c->plan->total];
    }
    uint32_t from = in->op == IR_F ? before : after, to = in->op == IR_F ? after : before;
    if (in->from != from) return fail_neighbour(c, worker, position, "from", from);
    return in->to == to ? PAWL_OK : fail_neighbour(c, worker, position, "to", to);
}

static pawl_code check_routes(const struct check *c) {
    for (uint32_t w = 0; w < c->workers; w++) {
        for (uint32_t i = 0; i < c->plan->workers[w].count; i++) {
            pawl_code code = check_route(c, w, i);
            if (code != PAWL_OK) return code;
        }
    }
    return PAWL_OK;
}

static bool size_is_valid(uint32_t value, uint32_t limit) { return value >= 1 && value <= limit; }

static pawl_code check_total(const struct check *c) {
    uint32_t most = c->plan->pipelines * c->plan->microbatches;
    if (size_is_valid(c->plan->total, most)) return PAWL_OK;
    return error_set(c->e, PAWL_PLAN, 0, "plan: %u micro-batches in all: not in 1..%u for %u pipelines of %u",
                     c->plan->total, most, c->plan->pipelines, c->plan->microbatches);
}

static pawl_code check_sizes(struct check *c) {
    const struct ir_plan *plan = c->plan;
    if (size_is_valid(plan->pipelines, IR_PIPELINES_MAX) && size_is_valid(plan->stages, IR_STAGES_MAX) &&
        size_is_valid(plan->chunks, IR_CHUNKS_MAX) &&
        size_is_valid(plan->microbatches, IR_MICROBATCHES_MAX) && plan->workers != NULL &&
        plan->pipelines * plan->stages <= IR_WORKERS_MAX)
        return check_total(c);
    return error_set(c->e, PAWL_PLAN, 0,
                     "plan: %u pipelines x %u stages, %u chunks, %u micro-batches: not in 1..%u x 1..%u "
                     "(%u workers), 1..%u, 1..%u",
                     plan->pipelines, plan->stages, plan->chunks, plan->microbatches, IR_PIPELINES_MAX,
                     IR_STAGES_MAX, IR_WORKERS_MAX, IR_CHUNKS_MAX, IR_MICROBATCHES_MAX);
}

/* The tables; they are never larger than the instructions that the plan really has. */
static pawl_code check_open(struct check *c) {
    const struct ir_plan *plan = c->plan;
    uint64_t instructions = 0;
    c->workers = plan->pipelines * plan->stages;
    c->cells = (uint64_t)plan->chunks * plan->total; /* at most 2^36 */
    for (uint32_t w = 0; w < c->workers; w++) instructions += plan->workers[w].count;
    if (instructions < c->cells)
        return error_set(c->e, PAWL_PLAN, 0,
                         "plan: %llu instructions in all, but %llu forwards alone are needed",
                         (unsigned long long)instructions, (unsigned long long)c->cells);
    c->host = calloc(c->cells, sizeof *c->host);
    c->state = calloc(c->cells, sizeof *c->state);
    c->chunk = calloc(plan->chunks, sizeof *c->chunk);
    if (c->host == NULL || c->state == NULL || c->chunk == NULL)
        return error_set(c->e, PAWL_MEMORY, 0, "plan: no memory to check %llu micro-batches",
                         (unsigned long long)c->cells);
    return check_holders(c);
}

pawl_code check_lists(struct check *c) {
    pawl_code code = check_sizes(c);
    if (code == PAWL_OK) code = check_open(c);
    for (uint32_t w = 0; code == PAWL_OK && w < c->workers; w++) code = check_list(c, w);
    if (code == PAWL_OK) code = check_complete(c);
    if (code == PAWL_OK) code = check_routes(c);
    return code == PAWL_OK ? check_run(c) : code;
}

void check_close(struct check *c) {
    free(c->host);
    free(c->state);
    free(c->needed);
    free(c->chunk);
    free(c->first_holder);
    free(c->holder);
}

pawl_code ir_check(const struct ir_plan *plan, const struct ir_memory *memory, uint64_t *peak,
                   struct pawl_error *e) {
    struct check c = {.plan = plan, .e = e};
    pawl_code code = check_lists(&c);
    if (code == PAWL_OK) code = check_memory(&c, memory, peak);
    check_close(&c);
    return code;
}
