/* Implementation of run/exec.h. */
#include "run/exec.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"

pawl_code exec_init(struct exec *x, struct stage *stage, struct peers *peers, uint32_t microbatches,
                    struct pawl_error *e) {
    *x = (struct exec){.stage = stage, .peers = peers};
    x->flight_of = calloc((size_t)peers->pipelines * microbatches, sizeof *x->flight_of);
    if (x->flight_of == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for the executor");
    return PAWL_OK;
}

void exec_close(struct exec *x) {
    exec_drop(x);
    free(x->flight_of);
    free(x->flights);
    *x = (struct exec){0};
}

static pawl_code check_worker_runs(const struct ir_plan *plan, uint32_t worker, struct pawl_error *e) {
    const struct ir_worker *w = &plan->workers[worker];
    uint32_t pipeline = worker / plan->stages, stage = worker % plan->stages;
    if (w->alive && (w->hold_count != 1 || w->holds[0] != stage))
        return error_set(
            e, PAWL_UNSUPPORTED, 0,
            "plan: worker (%u, %u) holds %u chunks, the first is %u: a running worker holds one, "
            "its stage's",
            pipeline, stage, w->hold_count, w->hold_count > 0 ? w->holds[0] : 0);
    for (uint32_t i = 0; i < w->count; i++) {
        enum ir_op op = w->instructions[i].op;
        if (op == IR_C || op == IR_O || op == IR_L)
            return error_set(e, PAWL_UNSUPPORTED, 0,
                             "plan: worker (%u, %u) position %u: %s cannot be run, only planned", pipeline,
                             stage, i, ir_op_name(op));
    }
    return PAWL_OK;
}

pawl_code exec_runs(const struct ir_plan *plan, struct pawl_error *e) {
    if (plan->chunks != plan->stages)
        return error_set(e, PAWL_UNSUPPORTED, 0,
                         "plan: %u chunks on %u stages: a running worker holds one, its stage's",
                         plan->chunks, plan->stages);
    pawl_code code = PAWL_OK;
    for (uint32_t w = 0; code == PAWL_OK && w < plan->pipelines * plan->stages; w++)
        code = check_worker_runs(plan, w, e);
    return code;
}

void exec_plan(struct exec *x, const struct ir_plan *plan) {
    x->plan = plan;
    x->list = &plan->workers[x->peers->rank];
}

static uint32_t *flight_place(const struct exec *x, uint32_t home, uint32_t microbatch) {
    return &x->flight_of[(uint64_t)home * x->plan->microbatches + microbatch];
}

void exec_begin(struct exec *x, const struct version *version, int64_t *sums, int32_t shift) {
    x->version = version;
    x->sums = sums;
    x->shift = shift;
    x->at = 0;
    memset(x->flight_of, 0, sizeof *x->flight_of * x->plan->pipelines * x->plan->microbatches);
}

void exec_drop(struct exec *x) {
    for (uint32_t i = 0; i < x->flight_count; i++) {
        if (x->flights[i].slot != NULL) x->stage->ops->slot_return(x->stage, x->flights[i].slot);
        x->flights[i] = (struct exec_flight){0};
    }
    x->list = NULL;
}

static void release_if_done(struct exec *x, struct exec_flight *f) {
    if (!f->weight_grad_done || f->sends > 0) return;
    x->stage->ops->slot_return(x->stage, f->slot);
    *f = (struct exec_flight){0};
}

static pawl_code free_flight(struct exec *x, uint32_t *index, struct pawl_error *e) {
    for (uint32_t i = 0; i < x->flight_count; i++)
        if (x->flights[i].slot == NULL) {
            *index = i;
            return PAWL_OK;
        }
    uint32_t count = x->flight_count * 2 + 4;
    struct exec_flight *flights = realloc(x->flights, count * sizeof *flights);
    if (flights == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for %u micro-batches in flight", count);
    memset(flights + x->flight_count, 0, (count - x->flight_count) * sizeof *flights);
    *index = x->flight_count;
    x->flights = flights;
    x->flight_count = count;
    return PAWL_OK;
}

/* The flight of a forward, made at its first mention, with its receive posted. */
static pawl_code open_flight(struct exec *x, const struct ir_instruction *in, uint32_t *index,
                             struct pawl_error *e) {
    uint32_t *place = flight_place(x, in->home, in->microbatch);
    if (*place != 0) {
        *index = *place - 1;
        return PAWL_OK;
    }
    pawl_code code = free_flight(x, index, e);
    if (code != PAWL_OK) return code;
    struct exec_flight f = {.home = in->home, .microbatch = in->microbatch};
    uint64_t global = (uint64_t)in->home * x->plan->microbatches + in->microbatch;
    code = x->stage->ops->slot_take(x->stage, x->version->number, global, &f.slot, e);
    if (code != PAWL_OK) return code;
    x->flights[*index] = f;
    *place = *index + 1;
    if (in->from == IR_NONE) {
        x->flights[*index].input_here = true;
        return PAWL_OK;
    }
    struct peers_name name = {x->version->number, NET_ACTIVATION, in->home, x->peers->stage, in->microbatch};
    return peers_recv(x->peers, name, f.slot->input, x->stage->activation_bytes,
                      peers_cookie(PEERS_EXEC_INPUT, *index), e);
}

static pawl_code post_ahead(struct exec *x, struct pawl_error *e) {
    uint32_t ahead = 0;
    for (uint32_t i = x->at; i < x->list->count && ahead < EXEC_AHEAD; i++) {
        if (x->list->instructions[i].op != IR_F) continue;
        uint32_t index;
        pawl_code code = open_flight(x, &x->list->instructions[i], &index, e);
        if (code != PAWL_OK) return code;
        ahead++;
    }
    return PAWL_OK;
}

static pawl_code send_to(struct exec *x, uint32_t index, const struct ir_instruction *in, enum net_kind kind,
                         struct pawl_error *e) {
    uint32_t stage = kind == NET_ACTIVATION ? x->peers->stage + 1 : x->peers->stage - 1;
    struct exec_flight *f = &x->flights[index];
    struct peers_name name = {x->version->number, kind, in->home, stage, in->microbatch};
    const float *data = kind == NET_ACTIVATION ? f->slot->output : f->slot->grad_out;
    f->sends++;
    f->sent_ns[kind == NET_GRADIENT] = clock_now_ns();
    return peers_send(x->peers, in->to, name, (struct peers_data){data, x->stage->activation_bytes},
                      PEERS_EXEC_SEND, index, e);
}

static pawl_code do_forward(struct exec *x, const struct ir_instruction *in, bool *done,
                            struct pawl_error *e) {
    uint32_t index;
    pawl_code code = open_flight(x, in, &index, e);
    if (code != PAWL_OK || !x->flights[index].input_here) return code;
    struct exec_flight *f = &x->flights[index];
    if (f->forward_done) return error_set(e, PAWL_INTERNAL, 0, "second forward of one micro-batch");
    int64_t begin = clock_now_ns();
    x->stage->ops->forward(x->stage, x->version, f->slot);
    measure_add(&x->measure, MEASURE_FORWARD, clock_now_ns() - begin);
    f->forward_done = *done = true;
    fault_arrive(FAULT_AFTER_FORWARD);
    if (in->to == IR_NONE) {
        f->grad_here = true;
        return PAWL_OK;
    }
    struct peers_name name = {x->version->number, NET_GRADIENT, in->home, x->peers->stage, in->microbatch};
    code = peers_recv(x->peers, name, f->slot->grad_in, x->stage->activation_bytes,
                      peers_cookie(PEERS_EXEC_GRAD, index), e);
    return code != PAWL_OK ? code : send_to(x, index, in, NET_ACTIVATION, e);
}

static pawl_code flight_after_forward(struct exec *x, const struct ir_instruction *in, uint32_t *index,
                                      struct pawl_error *e) {
    *index = *flight_place(x, in->home, in->microbatch) - 1;
    if (*index == UINT32_MAX || !x->flights[*index].forward_done)
        return error_set(e, PAWL_INTERNAL, 0, "gradient of a micro-batch without its forward");
    return PAWL_OK;
}

static pawl_code do_input_grad(struct exec *x, const struct ir_instruction *in, bool *done,
                               struct pawl_error *e) {
    uint32_t index;
    pawl_code code = flight_after_forward(x, in, &index, e);
    if (code != PAWL_OK || !x->flights[index].grad_here) return code;
    struct exec_flight *f = &x->flights[index];
    if (f->input_grad_done) return error_set(e, PAWL_INTERNAL, 0, "second input-gradient of one micro-batch");
    int64_t begin = clock_now_ns();
    x->stage->ops->input_grad(x->stage, x->version, f->slot);
    measure_add(&x->measure, MEASURE_INPUT_GRAD, clock_now_ns() - begin);
    f->input_grad_done = *done = true;
    fault_arrive(FAULT_AFTER_INPUT_GRAD);
    return in->to == IR_NONE ? PAWL_OK : send_to(x, index, in, NET_GRADIENT, e);
}

static pawl_code do_weight_grad(struct exec *x, const struct ir_instruction *in, struct pawl_error *e) {
    uint32_t index;
    pawl_code code = flight_after_forward(x, in, &index, e);
    if (code != PAWL_OK) return code;
    struct exec_flight *f = &x->flights[index];
    if (!f->input_grad_done || f->weight_grad_done)
        return error_set(e, PAWL_INTERNAL, 0, "weight-gradient out of order");
    int64_t begin = clock_now_ns();
    x->stage->ops->weight_grad(x->stage, x->version, f->slot, x->sums, x->shift);
    measure_add(&x->measure, MEASURE_WEIGHT_GRAD, clock_now_ns() - begin);
    f->weight_grad_done = true;
    release_if_done(x, f);
    return PAWL_OK;
}

pawl_code exec_tick(struct exec *x, enum exec_state *state, struct pawl_error *e) {
    *state = EXEC_ENDED;
    if (x->at >= x->list->count) return PAWL_OK;
    const struct ir_instruction *in = &x->list->instructions[x->at];
    if (in->op == IR_R || in->op == IR_S) {
        *state = in->op == IR_R ? EXEC_AT_REDUCE : EXEC_AT_STEP;
        return PAWL_OK;
    }
    pawl_code code = post_ahead(x, e);
    if (code != PAWL_OK) return code;
    bool done = false;
    if (in->op == IR_F) code = do_forward(x, in, &done, e);
    if (in->op == IR_I || in->op == IR_B) code = do_input_grad(x, in, &done, e);
    if (in->op == IR_W || (in->op == IR_B && done && code == PAWL_OK)) {
        code = do_weight_grad(x, in, e);
        done = true;
    }
    *state = done ? EXEC_WORKED : EXEC_WAITING;
    if (done) x->at++;
    return code;
}

void exec_pass(struct exec *x) { x->at++; }

/* A send of the flight has left. Completions do not say which: what was sent first, if both are under way. */
static void measure_send(struct exec *x, struct exec_flight *f) {
    int kind = f->sent_ns[0] != 0 ? 0 : 1;
    if (f->sent_ns[kind] != 0)
        measure_add(&x->measure, kind == 0 ? MEASURE_SEND_FORWARD : MEASURE_SEND_BACKWARD,
                    clock_now_ns() - f->sent_ns[kind]);
    f->sent_ns[kind] = 0;
}

pawl_code exec_completion(struct exec *x, const struct net_completion *c, struct pawl_error *e) {
    uint32_t index = (uint32_t)peers_own(c->cookie);
    enum peers_owner owner = peers_owner_of(c->cookie);
    if (index >= x->flight_count || x->flights[index].slot == NULL)
        return error_set(e, PAWL_INTERNAL, 0, "completion of a micro-batch that is not in flight");
    struct exec_flight *f = &x->flights[index];
    if (owner == PEERS_EXEC_SEND) {
        /* A send to a dead peer failed: the coordinator is about to fence this view. */
        f->sends--;
        if (c->code == PAWL_OK) measure_send(x, f);
        release_if_done(x, f);
        return PAWL_OK;
    }
    if (c->code != PAWL_OK || c->bytes != x->stage->activation_bytes)
        return error_set(e, PAWL_FORMAT, 0, "message of %zu bytes for micro-batch %u.%u: expected %zu",
                         c->bytes, f->home, f->microbatch, x->stage->activation_bytes);
    if (owner == PEERS_EXEC_INPUT)
        f->input_here = true;
    else
        f->grad_here = true;
    return PAWL_OK;
}
