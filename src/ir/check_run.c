/* The independent checker: execute the lists.
 *
 * Sends never block, receives wait, and R waits until all live holders of its chunk have come to theirs. A
 * worker runs until its next instruction has to wait; whoever sends to it, or is the last to come to the
 * barrier, puts it back on the list of runnable workers. Every instruction runs once and wakes at most one
 * worker, every barrier its holders once: O(instructions). Workers that do not reach their end wait for each
 * other.
 * Tested in tests/unit/ir_check_test.c and tests/unit/ir_mutation_test.c. */
#include "ir/check.h"

#include <stdlib.h>

struct run {
    struct check *check;
    uint32_t *position;   /* [workers] next instruction */
    bool *queued;         /* [workers] */
    bool *arrived;        /* [workers] its R, at `position`, is counted */
    uint32_t *missing;    /* [chunks] live holders that have not come to their R */
    uint32_t *queue;      /* [workers] a stack: the order does not matter */
    uint32_t queue_count; /* each worker is in it at most once */
};

static void wake(struct run *r, uint32_t worker) {
    if (r->queued[worker]) return;
    r->queued[worker] = true;
    r->queue[r->queue_count++] = worker;
}

static bool input_is_there(const struct run *r, const struct ir_instruction *in) {
    const struct ir_plan *plan = r->check->plan;
    if (check_skips(r->check, in)) return true;
    bool gradient = in->op == IR_I || in->op == IR_B;
    if (in->op == IR_F && in->chunk > 0)
        return r->check->state[check_cell(r->check, in) - plan->total] & CHECK_FORWARD_RAN;
    if (gradient && in->chunk + 1 < plan->chunks)
        return r->check->state[check_cell(r->check, in) + plan->total] & CHECK_INPUT_RAN;
    return true;
}

/* The worker is at its R of the chunk: whether all others are, too, or have been. */
static bool barrier_is_open(struct run *r, uint32_t worker, uint32_t chunk) {
    const struct check *c = r->check;
    if (!r->arrived[worker]) {
        r->arrived[worker] = true;
        r->missing[chunk]--;
        for (uint32_t i = c->first_holder[chunk]; !r->missing[chunk] && i < c->first_holder[chunk + 1]; i++)
            if (c->holder[i] != worker) wake(r, c->holder[i]);
    }
    return r->missing[chunk] == 0;
}

static void execute(struct run *r, uint32_t worker, const struct ir_instruction *in) {
    if (in->op == IR_R) r->arrived[worker] = false;
    if ((in->op != IR_F && in->op != IR_I && in->op != IR_B) || check_skips(r->check, in)) return;
    r->check->state[check_cell(r->check, in)] |= in->op == IR_F ? CHECK_FORWARD_RAN : CHECK_INPUT_RAN;
    if (in->to != IR_NONE && in->to != worker) wake(r, in->to);
}

static void run_worker(struct run *r, uint32_t worker) {
    const struct ir_worker *list = &r->check->plan->workers[worker];
    for (; r->position[worker] < list->count; r->position[worker]++) {
        const struct ir_instruction *in = &list->instructions[r->position[worker]];
        bool ready = in->op == IR_R ? barrier_is_open(r, worker, in->chunk) : input_is_there(r, in);
        if (!ready) return;
        execute(r, worker, in);
    }
}

static bool has_reduced(const struct run *r, uint32_t worker, uint32_t chunk) {
    const struct ir_worker *list = &r->check->plan->workers[worker];
    for (uint32_t i = 0; i < list->count && i <= r->position[worker]; i++)
        if (list->instructions[i].op == IR_R && list->instructions[i].chunk == chunk) return true;
    return false;
}

/* The worker that the given one waits for; both are blocked, perhaps the same. */
static uint32_t waits_for(const struct run *r, uint32_t worker) {
    const struct check *c = r->check;
    const struct ir_instruction *in = check_at(c, worker, r->position[worker]);
    if (in->op != IR_R) return in->from;
    uint32_t i = c->first_holder[in->chunk];
    while (has_reduced(r, c->holder[i], in->chunk)) i++;
    return c->holder[i];
}

static bool has_ended(const struct run *r, uint32_t worker) {
    return r->position[worker] == r->check->plan->workers[worker].count;
}

static pawl_code fail_unsent(const struct run *r, uint32_t blocked) {
    const struct ir_instruction *in = check_at(r->check, blocked, r->position[blocked]);
    return check_fail(r->check, blocked, r->position[blocked],
                      "%s of micro-batch %u.%u of chunk %u waits for what does not come", ir_op_name(in->op),
                      in->home, in->microbatch, in->chunk);
}

/* A whole plan has a task for each message, so that it can only wait in a circle; of a rest it is proven
 * here. */
static pawl_code fail_blocked(const struct run *r, uint32_t blocked) {
    const struct check *c = r->check;
    for (uint32_t i = 0; i < c->workers; i++) { /* into the cycle */
        if (has_ended(r, waits_for(r, blocked))) return fail_unsent(r, blocked);
        blocked = waits_for(r, blocked);
    }
    uint32_t length = 1;
    uint32_t peer = waits_for(r, blocked);
    for (uint32_t w = peer; w != blocked; w = waits_for(r, w)) length++;
    const struct ir_instruction *in = check_at(c, blocked, r->position[blocked]);
    uint32_t stages = c->plan->stages;
    if (in->op == IR_R)
        return check_fail(c, blocked, r->position[blocked],
                          "cyclic wait of %u workers: R of chunk %u waits for worker (%u, %u), which is "
                          "blocked at its position %u",
                          length, in->chunk, peer / stages, peer % stages, r->position[peer]);
    if (length == 1)
        return check_fail(c, blocked, r->position[blocked],
                          "cyclic wait of one worker: %s of micro-batch %u.%u of chunk %u waits for what "
                          "stands behind it in the same list",
                          ir_op_name(in->op), in->home, in->microbatch, in->chunk);
    return check_fail(c, blocked, r->position[blocked],
                      "cyclic wait of %u workers: %s of micro-batch %u.%u of chunk %u waits for worker "
                      "(%u, %u), which is blocked at its position %u",
                      length, ir_op_name(in->op), in->home, in->microbatch, in->chunk, peer / stages,
                      peer % stages, r->position[peer]);
}

static pawl_code run_all(struct run *r) {
    const struct check *c = r->check;
    for (uint32_t k = 0; k < c->plan->chunks; k++)
        r->missing[k] = c->first_holder[k + 1] - c->first_holder[k];
    for (uint32_t w = 0; w < c->workers; w++) wake(r, w);
    while (r->queue_count > 0) {
        uint32_t worker = r->queue[--r->queue_count];
        r->queued[worker] = false;
        run_worker(r, worker);
    }
    for (uint32_t w = 0; w < c->workers; w++)
        if (r->position[w] < c->plan->workers[w].count) return fail_blocked(r, w);
    return PAWL_OK;
}

pawl_code check_run(struct check *c) {
    struct run r = {.check = c};
    r.position = calloc(c->workers, sizeof *r.position);
    r.queued = calloc(c->workers, sizeof *r.queued);
    r.arrived = calloc(c->workers, sizeof *r.arrived);
    r.missing = calloc(c->plan->chunks, sizeof *r.missing);
    r.queue = calloc(c->workers, sizeof *r.queue);
    pawl_code code;
    if (!r.position || !r.queued || !r.arrived || !r.missing || !r.queue)
        code = error_set(c->e, PAWL_MEMORY, 0, "plan: no memory to check %u workers", c->workers);
    else
        code = run_all(&r);
    free(r.position);
    free(r.queued);
    free(r.arrived);
    free(r.missing);
    free(r.queue);
    return code;
}
