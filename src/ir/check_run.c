/* The independent checker, second half: execute the lists.
 *
 * Sends never block, receives wait. A worker runs until its next instruction has to wait; whoever sends to it
 * puts it back on the list of runnable workers. Every instruction runs once and wakes at most one worker:
 * O(instructions). Workers that do not reach their end wait for each other.
 *
 * R needs no execution of its own. Nothing but S follows it (check.c), so a worker at its R has sent all that
 * others wait for; hence, if no worker is left at a receive, all have come to their R, every barrier
 * opens, and if some are, a barrier would not have helped them.
 * Tested in tests/unit/ir_check_test.c and tests/unit/ir_mutation_test.c. */
#include "ir/check.h"

#include <stdlib.h>

struct run {
    struct check *check;
    uint32_t *position;   /* [workers] next instruction */
    bool *queued;         /* [workers] */
    uint32_t *queue;      /* [workers] a stack: the order does not matter */
    uint32_t queue_count; /* each worker is in it at most once */
};

static void wake(struct run *r, uint32_t pipeline, uint32_t stage) {
    uint32_t worker = pipeline * r->check->plan->stages + stage;
    if (r->queued[worker]) return;
    r->queued[worker] = true;
    r->queue[r->queue_count++] = worker;
}

/* The stage that `in` receives from; IR_NONE if it receives nothing. */
static uint32_t source_stage(const struct run *r, const struct ir_instruction *in, uint32_t stage) {
    if (in->op == IR_F && stage > 0) return stage - 1;
    if ((in->op == IR_I || in->op == IR_B) && stage + 1 < r->check->plan->stages) return stage + 1;
    return IR_NONE;
}

static bool input_is_there(const struct run *r, const struct ir_instruction *in, uint32_t stage) {
    uint32_t source = source_stage(r, in, stage);
    if (source == IR_NONE) return true;
    uint8_t state = r->check->state[check_cell(r->check, in->home, source, in->microbatch)];
    return state & (in->op == IR_F ? CHECK_FORWARD_RAN : CHECK_INPUT_RAN);
}

static void execute(struct run *r, const struct ir_instruction *in, uint32_t stage) {
    uint8_t ran = in->op == IR_F ? CHECK_FORWARD_RAN : CHECK_INPUT_RAN;
    if (in->op != IR_F && in->op != IR_I && in->op != IR_B) return;
    r->check->state[check_cell(r->check, in->home, stage, in->microbatch)] |= ran;
    if (in->to != IR_NONE) wake(r, in->to, in->op == IR_F ? stage + 1 : stage - 1);
}

static void run_worker(struct run *r, uint32_t worker) {
    const struct ir_worker *list = &r->check->plan->workers[worker];
    uint32_t stage = worker % r->check->plan->stages;
    for (; r->position[worker] < list->count; r->position[worker]++) {
        const struct ir_instruction *in = &list->instructions[r->position[worker]];
        if (!input_is_there(r, in, stage)) return;
        execute(r, in, stage);
    }
}

/* The worker that the given one waits for; both are blocked at a receive. */
static uint32_t waits_for(const struct run *r, uint32_t worker) {
    const struct ir_worker *list = &r->check->plan->workers[worker];
    const struct ir_instruction *in = &list->instructions[r->position[worker]];
    return in->from * r->check->plan->stages + source_stage(r, in, worker % r->check->plan->stages);
}

static pawl_code fail_cyclic(const struct run *r, uint32_t blocked) {
    for (uint64_t i = 0; i < r->check->workers; i++) blocked = waits_for(r, blocked); /* into the cycle */
    uint64_t length = 1;
    uint32_t peer = waits_for(r, blocked);
    for (uint32_t w = peer; w != blocked; w = waits_for(r, w)) length++;
    const struct ir_instruction *in = &r->check->plan->workers[blocked].instructions[r->position[blocked]];
    uint32_t stages = r->check->plan->stages;
    return check_fail(r->check, blocked, r->position[blocked],
                      "cyclic wait of %llu workers: %s of micro-batch %u.%u waits for worker (%u, %u), which "
                      "is blocked at its position %u",
                      (unsigned long long)length, ir_op_name(in->op), in->home, in->microbatch, peer / stages,
                      peer % stages, r->position[peer]);
}

static pawl_code run_all(struct run *r) {
    const struct ir_plan *plan = r->check->plan;
    for (uint32_t w = 0; w < r->check->workers; w++) wake(r, w / plan->stages, w % plan->stages);
    while (r->queue_count > 0) {
        uint32_t worker = r->queue[--r->queue_count];
        r->queued[worker] = false;
        run_worker(r, worker);
    }
    for (uint32_t w = 0; w < r->check->workers; w++)
        if (r->position[w] < plan->workers[w].count) return fail_cyclic(r, w);
    return PAWL_OK;
}

pawl_code check_run(struct check *c) {
    struct run r = {.check = c};
    r.position = calloc(c->workers, sizeof *r.position);
    r.queued = calloc(c->workers, sizeof *r.queued);
    r.queue = calloc(c->workers, sizeof *r.queue);
    pawl_code code;
    if (r.position == NULL || r.queued == NULL || r.queue == NULL)
        code = error_set(c->e, PAWL_MEMORY, 0, "plan: no memory to check %llu workers",
                         (unsigned long long)c->workers);
    else
        code = run_all(&r);
    free(r.position);
    free(r.queued);
    free(r.queue);
    return code;
}
