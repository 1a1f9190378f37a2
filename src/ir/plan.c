/* The container behind ir.h: plans, who holds what, their growing lists, and the names of ops.
 * Tested in tests/unit/ir_plan_test.c. */
#include "ir/ir.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ir/shape.h"

#define LIST_MIN 4u /* a list's first room; it doubles from there */

const char *ir_op_name(enum ir_op op) {
    static const char *const names[IR_OP_COUNT] = {"F", "I", "W", "B", "R", "S", "C", "O", "L"};
    return (unsigned)op < IR_OP_COUNT ? names[op] : "?";
}

const char *ir_schedule_name(enum ir_schedule schedule) {
    static const char *const names[IR_SCHEDULE_COUNT] = {"gpipe", "1f1b"};
    return (unsigned)schedule < IR_SCHEDULE_COUNT ? names[schedule] : "?";
}

static pawl_code check_sizes(uint32_t pipelines, uint32_t stages, uint32_t chunks, uint32_t microbatches,
                             struct pawl_error *e) {
    const struct {
        const char *name;
        uint32_t had, limit;
    } sizes[] = {{"pipelines", pipelines, IR_PIPELINES_MAX},
                 {"stages", stages, IR_STAGES_MAX},
                 {"chunks", chunks, IR_CHUNKS_MAX},
                 {"microbatches", microbatches, IR_MICROBATCHES_MAX}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].had == 0 || sizes[i].had > sizes[i].limit)
            return error_set(e, PAWL_ARGUMENT, 0, "plan: %s must be 1..%u, had %u", sizes[i].name,
                             sizes[i].limit, sizes[i].had);
    if (pipelines * stages > IR_WORKERS_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "plan: pipelines x stages must be at most %u, had %u x %u",
                         IR_WORKERS_MAX, pipelines, stages);
    return PAWL_OK;
}

_Static_assert((uint64_t)IR_PIPELINES_MAX *IR_STAGES_MAX <= UINT32_MAX, "pipelines x stages fits");
_Static_assert((uint64_t)IR_PIPELINES_MAX *IR_MICROBATCHES_MAX <= UINT32_MAX, "the micro-batches fit");

pawl_code ir_plan_new_chunks(uint32_t pipelines, uint32_t stages, uint32_t chunks, uint32_t microbatches,
                             struct ir_plan **out, struct pawl_error *e) {
    *out = NULL;
    pawl_code code = check_sizes(pipelines, stages, chunks, microbatches, e);
    if (code != PAWL_OK) return code;
    struct ir_plan *plan = malloc(sizeof *plan);
    uint32_t worker_count = pipelines * stages;
    struct ir_worker *workers = calloc(worker_count, sizeof *workers);
    if (plan == NULL || workers == NULL) {
        free(plan);
        free(workers);
        return error_set(e, PAWL_MEMORY, 0, "plan: no memory for %u workers", worker_count);
    }
    for (uint32_t w = 0; w < worker_count; w++) workers[w].alive = true;
    *plan = (struct ir_plan){.pipelines = pipelines,
                             .stages = stages,
                             .chunks = chunks,
                             .microbatches = microbatches,
                             .total = pipelines * microbatches,
                             .workers = workers};
    *out = plan;
    return PAWL_OK;
}

pawl_code ir_plan_new(uint32_t pipelines, uint32_t stages, uint32_t microbatches, struct ir_plan **out,
                      struct pawl_error *e) {
    pawl_code code = ir_plan_new_chunks(pipelines, stages, stages, microbatches, out, e);
    if (code != PAWL_OK) return code;
    for (uint32_t w = 0; code == PAWL_OK && w < pipelines * stages; w++)
        code = ir_plan_hold(*out, w, w % stages, e);
    if (code == PAWL_OK) return code;
    ir_plan_free(*out);
    *out = NULL;
    return code;
}

pawl_code ir_plan_limit(struct ir_plan *plan, uint32_t total, struct pawl_error *e) {
    uint32_t most = plan->pipelines * plan->microbatches;
    if (total == 0 || total > most)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "plan: the total of micro-batches must be 1..%u for %u pipelines of %u, had %u",
                         most, plan->pipelines, plan->microbatches, total);
    for (uint32_t w = 0; w < ir_worker_count(plan); w++)
        if (plan->workers[w].count > 0)
            return error_set(
                e, PAWL_ARGUMENT, 0,
                "plan: the total of micro-batches comes before the instructions, worker (%u, %u) "
                "has %u",
                w / plan->stages, w % plan->stages, plan->workers[w].count);
    plan->total = total;
    return PAWL_OK;
}

void ir_plan_free(struct ir_plan *plan) {
    if (plan == NULL) return;
    for (uint32_t w = 0; w < ir_worker_count(plan); w++) {
        free(plan->workers[w].holds);
        free(plan->workers[w].instructions);
    }
    free(plan->workers);
    free(plan);
}

static bool worker_copy(const struct ir_worker *from, struct ir_worker *to) {
    *to = (struct ir_worker){.alive = from->alive};
    if (from->hold_count > 0) to->holds = malloc(from->hold_count * sizeof *to->holds);
    if (from->count > 0) to->instructions = malloc(from->count * sizeof *to->instructions);
    if ((from->hold_count > 0 && to->holds == NULL) || (from->count > 0 && to->instructions == NULL))
        return false;
    if (from->hold_count > 0) memcpy(to->holds, from->holds, from->hold_count * sizeof *to->holds);
    if (from->count > 0) memcpy(to->instructions, from->instructions, from->count * sizeof *to->instructions);
    to->hold_count = from->hold_count;
    to->count = to->room = from->count;
    return true;
}

pawl_code ir_plan_copy(const struct ir_plan *plan, struct ir_plan **out, struct pawl_error *e) {
    pawl_code code =
        ir_plan_new_chunks(plan->pipelines, plan->stages, plan->chunks, plan->microbatches, out, e);
    if (code != PAWL_OK) return code;
    (*out)->total = plan->total;
    for (uint32_t w = 0; w < ir_worker_count(plan); w++) {
        if (worker_copy(&plan->workers[w], &(*out)->workers[w])) continue;
        ir_plan_free(*out);
        *out = NULL;
        return error_set(e, PAWL_MEMORY, 0, "plan: no memory for a copy of %u instructions",
                         plan->workers[w].count);
    }
    return PAWL_OK;
}

/* Where `chunk` is among the worker's, or belongs. */
static uint32_t hold_place(const struct ir_worker *worker, uint32_t chunk) {
    uint32_t low = 0, high = worker->hold_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (worker->holds[middle] < chunk)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool ir_plan_holds(const struct ir_plan *plan, uint32_t worker, uint32_t chunk) {
    assert(worker < ir_worker_count(plan));
    const struct ir_worker *w = &plan->workers[worker];
    uint32_t place = hold_place(w, chunk);
    return place < w->hold_count && w->holds[place] == chunk;
}

static pawl_code no_worker(const struct ir_plan *plan, uint32_t worker, struct pawl_error *e) {
    return error_set(e, PAWL_ARGUMENT, 0, "plan: no worker %u in %u pipelines x %u stages", worker,
                     plan->pipelines, plan->stages);
}

pawl_code ir_plan_hold(struct ir_plan *plan, uint32_t worker, uint32_t chunk, struct pawl_error *e) {
    if (worker >= ir_worker_count(plan)) return no_worker(plan, worker, e);
    struct ir_worker *w = &plan->workers[worker];
    if (chunk >= plan->chunks || !w->alive)
        return error_set(e, PAWL_ARGUMENT, 0, "plan: worker (%u, %u) cannot hold chunk %u: %s",
                         worker / plan->stages, worker % plan->stages, chunk,
                         w->alive ? "there is no such chunk" : "the worker is dead");
    uint32_t place = hold_place(w, chunk);
    if (place < w->hold_count && w->holds[place] == chunk) return PAWL_OK;
    uint32_t *holds = realloc(w->holds, (w->hold_count + 1) * sizeof *holds);
    if (holds == NULL) return error_set(e, PAWL_MEMORY, 0, "plan: no memory for a worker's chunks");
    memmove(&holds[place + 1], &holds[place], (w->hold_count - place) * sizeof *holds);
    holds[place] = chunk;
    w->holds = holds;
    w->hold_count++;
    return PAWL_OK;
}

void ir_plan_kill(struct ir_plan *plan, uint32_t worker) {
    assert(worker < ir_worker_count(plan));
    struct ir_worker *w = &plan->workers[worker];
    free(w->holds);
    free(w->instructions);
    *w = (struct ir_worker){.alive = false};
}

static pawl_code list_grow(struct ir_plan *plan, uint32_t worker, uint32_t room, struct pawl_error *e) {
    struct ir_worker *w = &plan->workers[worker];
    struct ir_instruction *list = realloc(w->instructions, room * sizeof *list);
    if (list == NULL)
        return error_set(e, PAWL_MEMORY, 0, "plan: no memory for %u instructions of worker (%u, %u)", room,
                         worker / plan->stages, worker % plan->stages);
    w->instructions = list;
    w->room = room;
    return PAWL_OK;
}

pawl_code ir_plan_reserve(struct ir_plan *plan, uint32_t worker, uint32_t count, struct pawl_error *e) {
    if (worker >= ir_worker_count(plan)) return no_worker(plan, worker, e);
    struct ir_worker *w = &plan->workers[worker];
    if (count > IR_LIST_MAX - w->count)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "plan: worker (%u, %u) has %u instructions, %u more are over the limit of %u",
                         worker / plan->stages, worker % plan->stages, w->count, count, IR_LIST_MAX);
    if (count <= w->room - w->count) return PAWL_OK;
    /* At least doubled, so that reserving a few at a time is amortised too. */
    uint32_t need = w->count + count, twice = w->room < LIST_MIN ? LIST_MIN : w->room * 2;
    return list_grow(plan, worker, need > twice ? need : twice, e);
}

pawl_code ir_plan_append(struct ir_plan *plan, uint32_t pipeline, uint32_t stage,
                         struct ir_instruction instruction, struct pawl_error *e) {
    if (pipeline >= plan->pipelines || stage >= plan->stages)
        return error_set(e, PAWL_ARGUMENT, 0, "plan: no worker (%u, %u) in %u pipelines x %u stages",
                         pipeline, stage, plan->pipelines, plan->stages);
    struct ir_worker *worker = ir_plan_worker(plan, pipeline, stage);
    if (!worker->alive)
        return error_set(e, PAWL_ARGUMENT, 0, "plan: worker (%u, %u) is dead and takes no instructions",
                         pipeline, stage);
    const char *fault = ir_shape_fault(plan, &instruction);
    if (fault != NULL)
        return error_set(e, PAWL_ARGUMENT, 0, "plan: worker (%u, %u) position %u: %s", pipeline, stage,
                         worker->count, fault);
    if (worker->count == worker->room) {
        pawl_code code = ir_plan_reserve(plan, pipeline * plan->stages + stage, 1, e);
        if (code != PAWL_OK) return code;
    }
    worker->instructions[worker->count++] = instruction;
    return PAWL_OK;
}
