/* The container behind ir.h: plans, their growing lists, and the names of ops.
 *
 * Lists grow by doubling and the capacity is not stored: it is the smallest power of two that holds
 * `count`, but at least LIST_MIN, so a list needs more memory exactly when its count is 0 or a power of
 * two from LIST_MIN on. Every list is filled by ir_plan_append, which keeps that true.
 * Tested in tests/unit/ir_plan_test.c. */
#include "ir/ir.h"

#include <stdlib.h>

#include "ir/shape.h"

#define LIST_MIN 4u

/* A worker executes at most F, I and W of every micro-batch of its stage, R and S:
 * 3 * 4096 * 16384 + 2 < 2^28. Longer lists cannot be valid; the bound keeps sizes far from overflow. */
#define LIST_MAX (UINT32_C(1) << 28)

const char *ir_op_name(enum ir_op op) {
    static const char *const names[IR_OP_COUNT] = {"F", "I", "W", "B", "R", "S"};
    return (unsigned)op < IR_OP_COUNT ? names[op] : "?";
}

const char *ir_schedule_name(enum ir_schedule schedule) {
    static const char *const names[IR_SCHEDULE_COUNT] = {"gpipe", "1f1b"};
    return (unsigned)schedule < IR_SCHEDULE_COUNT ? names[schedule] : "?";
}

static pawl_code size_fault(const char *field, uint32_t had, uint32_t limit, struct pawl_error *e) {
    return error_set(e, PAWL_ARGUMENT, 0, "plan: %s must be 1..%u, had %u", field, limit, had);
}

pawl_code ir_plan_new(uint32_t pipelines, uint32_t stages, uint32_t microbatches, struct ir_plan **out,
                      struct pawl_error *e) {
    *out = NULL;
    if (pipelines == 0 || pipelines > IR_PIPELINES_MAX)
        return size_fault("pipelines", pipelines, IR_PIPELINES_MAX, e);
    if (stages == 0 || stages > IR_STAGES_MAX) return size_fault("stages", stages, IR_STAGES_MAX, e);
    if (microbatches == 0 || microbatches > IR_MICROBATCHES_MAX)
        return size_fault("microbatches", microbatches, IR_MICROBATCHES_MAX, e);
    struct ir_plan *plan = malloc(sizeof *plan);
    size_t worker_count = (size_t)pipelines * stages;
    struct ir_worker *workers = calloc(worker_count, sizeof *workers);
    if (plan == NULL || workers == NULL) {
        free(plan);
        free(workers);
        return error_set(e, PAWL_MEMORY, 0, "plan: no memory for %zu workers", worker_count);
    }
    for (size_t w = 0; w < worker_count; w++) workers[w].alive = true;
    *plan = (struct ir_plan){
        .pipelines = pipelines, .stages = stages, .microbatches = microbatches, .workers = workers};
    *out = plan;
    return PAWL_OK;
}

void ir_plan_free(struct ir_plan *plan) {
    if (plan == NULL) return;
    uint64_t worker_count = ir_worker_count(plan);
    for (uint64_t w = 0; w < worker_count; w++) free(plan->workers[w].instructions);
    free(plan->workers);
    free(plan);
}

const char *ir_shape_fault(const struct ir_plan *plan, const struct ir_instruction *in) {
    if ((unsigned)in->op >= IR_OP_COUNT) return "unknown op";
    bool collective = in->op == IR_R || in->op == IR_S;
    if (collective && (in->home != IR_NONE || in->microbatch != IR_NONE))
        return "R and S have no micro-batch";
    if (!collective && in->home >= plan->pipelines) return "home pipeline out of range";
    if (!collective && in->microbatch >= plan->microbatches) return "micro-batch out of range";
    bool silent = collective || in->op == IR_W;
    if (silent && (in->from != IR_NONE || in->to != IR_NONE)) return "W, R and S have no from and to";
    if (in->from != IR_NONE && in->from >= plan->pipelines) return "from out of range";
    if (in->to != IR_NONE && in->to >= plan->pipelines) return "to out of range";
    return NULL;
}

static bool list_is_full(uint32_t count) {
    return count == 0 || (count >= LIST_MIN && (count & (count - 1)) == 0);
}

static bool list_grow(struct ir_worker *worker) {
    size_t capacity = worker->count == 0 ? LIST_MIN : (size_t)worker->count * 2;
    struct ir_instruction *list = realloc(worker->instructions, capacity * sizeof *list);
    if (list == NULL) return false;
    worker->instructions = list;
    return true;
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
    if (worker->count >= LIST_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "plan: worker (%u, %u) has %u instructions already", pipeline,
                         stage, worker->count);
    if (list_is_full(worker->count) && !list_grow(worker))
        return error_set(e, PAWL_MEMORY, 0, "plan: no memory for instruction %u of worker (%u, %u)",
                         worker->count, pipeline, stage);
    worker->instructions[worker->count++] = instruction;
    return PAWL_OK;
}
