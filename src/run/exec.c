/* Implementation of run/exec.h. */
#include "run/exec.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"

void exec_init(struct exec *x, struct peers *peers) { *x = (struct exec){.peers = peers}; }

void exec_close(struct exec *x) {
    exec_drop(x);
    free(x->first_missing);
    free(x->flight_of);
    free(x->flights);
    *x = (struct exec){0};
}

pawl_code exec_runs(const struct ir_plan *plan, struct pawl_error *e) {
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++)
        for (uint32_t i = 0; i < plan->workers[w].count; i++) {
            enum ir_op op = plan->workers[w].instructions[i].op;
            if (op == IR_C || op == IR_O || op == IR_L)
                return error_set(e, PAWL_UNSUPPORTED, 0,
                                 "plan: worker (%u, %u) position %u: %s cannot be run, only planned",
                                 w / plan->stages, w % plan->stages, i, ir_op_name(op));
        }
    return PAWL_OK;
}

pawl_code exec_plan(struct exec *x, const struct ir_plan *plan, const uint32_t *rank_of_role, uint32_t role,
                    struct holding **holdings, struct pawl_error *e) {
    x->plan = plan;
    x->rank_of_role = rank_of_role;
    x->list = &plan->workers[role];
    x->holdings = holdings;
    free(x->first_missing);
    free(x->flight_of);
    x->first_missing = malloc(plan->total * sizeof *x->first_missing);
    x->flight_of = malloc((size_t)(x->list->hold_count + 1) * plan->total * sizeof *x->flight_of);
    return x->first_missing != NULL && x->flight_of != NULL
               ? PAWL_OK
               : error_set(e, PAWL_MEMORY, 0, "no memory to execute %u micro-batches", plan->total);
}

void exec_begin(struct exec *x, uint64_t iteration, int32_t shift, const uint8_t *done) {
    x->iteration = iteration;
    x->shift = shift;
    x->done = done;
    x->at = 0;
    if (done != NULL) ir_first_missing(x->plan, done, x->first_missing);
    memset(x->flight_of, 0, sizeof *x->flight_of * x->list->hold_count * x->plan->total);
}

void exec_drop(struct exec *x) {
    for (uint32_t i = 0; i < x->flight_count; i++) {
        struct exec_flight *f = &x->flights[i];
        if (f->slot != NULL) f->holding->stage->ops->slot_return(f->holding->stage, f->slot);
        *f = (struct exec_flight){0};
    }
    x->list = NULL;
    x->plan = NULL;
    x->stored = 0;
}

/* ---- what is needed ---- */

static uint64_t global_of(const struct exec *x, uint32_t home, uint32_t microbatch) {
    return (uint64_t)home * x->plan->microbatches + microbatch;
}

static uint32_t first_missing(const struct exec *x, uint64_t global) {
    return x->done == NULL ? 0 : x->first_missing[global];
}

static bool needs_forward(const struct exec *x, uint64_t global) {
    return first_missing(x, global) != IR_NONE;
}

static bool needs_input_grad(const struct exec *x, uint32_t chunk, uint64_t global) {
    return first_missing(x, global) <= chunk;
}

static bool needs_weight_grad(const struct exec *x, uint32_t chunk, uint64_t global) {
    return !ir_is_done(x->plan, x->done, chunk, global);
}

static bool needs(const struct exec *x, const struct ir_instruction *in) {
    if (in->op == IR_R || in->op == IR_S) return true;
    uint64_t global = global_of(x, in->home, in->microbatch);
    if (in->op == IR_F) return needs_forward(x, global);
    return in->op == IR_W ? needs_weight_grad(x, in->chunk, global) : needs_input_grad(x, in->chunk, global);
}

/* ---- flights ---- */

static uint32_t holding_place(const struct exec *x, uint32_t chunk) {
    uint32_t place = 0;
    while (place < x->list->hold_count && x->list->holds[place] != chunk) place++;
    return place; /* ir_check: a worker executes chunks that it holds */
}

static uint32_t *flight_place(const struct exec *x, uint32_t chunk, uint64_t global) {
    return &x->flight_of[(uint64_t)holding_place(x, chunk) * x->plan->total + global];
}

static bool is_finished(const struct exec_flight *f) {
    return f->forward_done && (!f->needs_input_grad || f->input_grad_done) &&
           (!f->needs_weight_grad || f->weight_grad_done);
}

static void release_if_done(struct exec_flight *f) {
    if (!is_finished(f) || f->sends > 0) return;
    f->holding->stage->ops->slot_return(f->holding->stage, f->slot);
    *f = (struct exec_flight){0};
}

/* After each part of a flight: what it stores may go. */
static void settle_flight(struct exec *x, struct exec_flight *f) {
    if (!is_finished(f)) return;
    x->stored--;
    release_if_done(f);
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

static bool is_self(const struct exec *x, uint32_t role) { return x->rank_of_role[role] == x->peers->rank; }

struct which { /* a micro-batch of a chunk, and whose activation it takes (a role, or IR_NONE) */
    uint32_t chunk, home, microbatch, from;
};

static struct peers_name name_of(const struct exec *x, enum net_kind kind, struct which which) {
    return (struct peers_name){x->iteration, kind, which.home, which.chunk, which.microbatch};
}

/* The flight of a forward, made at its first mention, with its receive posted. */
static pawl_code open_flight(struct exec *x, struct which which, uint32_t *index, struct pawl_error *e) {
    uint64_t global = global_of(x, which.home, which.microbatch);
    uint32_t *place = flight_place(x, which.chunk, global);
    if (*place != 0) {
        *index = *place - 1;
        return PAWL_OK;
    }
    pawl_code code = free_flight(x, index, e);
    if (code != PAWL_OK) return code;
    struct holding *h = x->holdings[holding_place(x, which.chunk)];
    struct exec_flight f = {.holding = h,
                            .home = which.home,
                            .microbatch = which.microbatch,
                            .global = global,
                            .needs_input_grad = needs_input_grad(x, which.chunk, global),
                            .needs_weight_grad = needs_weight_grad(x, which.chunk, global)};
    code = h->stage->ops->slot_take(h->stage, x->iteration, global, &f.slot, e);
    if (code != PAWL_OK) return code;
    f.slot->no_input_grad = !f.needs_input_grad;
    f.slot->no_weight_grad = !f.needs_weight_grad;
    f.input_here = which.from == IR_NONE;
    x->flights[*index] = f;
    *place = *index + 1;
    if (f.input_here || is_self(x, which.from)) return PAWL_OK;
    return peers_recv(x->peers, name_of(x, NET_ACTIVATION, which), f.slot->input, h->stage->input_bytes,
                      peers_cookie(PEERS_EXEC_INPUT, *index), e);
}

static struct which which_of(const struct ir_instruction *in) {
    return (struct which){in->chunk, in->home, in->microbatch, in->from};
}

static pawl_code post_ahead(struct exec *x, struct pawl_error *e) {
    uint32_t ahead = 0;
    for (uint32_t i = x->at; i < x->list->count && ahead < EXEC_AHEAD; i++) {
        const struct ir_instruction *in = &x->list->instructions[i];
        if (in->op != IR_F || !needs(x, in)) continue;
        uint32_t index;
        pawl_code code = open_flight(x, which_of(in), &index, e);
        if (code != PAWL_OK) return code;
        ahead++;
    }
    return PAWL_OK;
}

/* ---- messages ---- */

/* From one chunk of this worker to its neighbour here. */
static pawl_code hand_over(struct exec *x, uint32_t index, struct which to, enum net_kind kind,
                           struct pawl_error *e) {
    uint32_t there;
    if (kind == NET_ACTIVATION) {
        pawl_code code = open_flight(x, to, &there, e);
        if (code != PAWL_OK) return code;
    } else {
        there = *flight_place(x, to.chunk, global_of(x, to.home, to.microbatch)) - 1;
        if (there == UINT32_MAX || !x->flights[there].forward_done)
            return error_set(e, PAWL_INTERNAL, 0, "gradient of a micro-batch without its forward");
    }
    struct exec_flight *f = &x->flights[index], *g = &x->flights[there]; /* opening may have moved them */
    const struct stage *from = f->holding->stage, *next = g->holding->stage;
    size_t bytes = kind == NET_ACTIVATION ? from->output_bytes : from->input_bytes;
    size_t room = kind == NET_ACTIVATION ? next->input_bytes : next->output_bytes;
    if (bytes != room)
        return error_set(e, PAWL_INTERNAL, 0, "chunk %u gives %zu bytes to chunk %u, which takes %zu",
                         from->index, bytes, next->index, room);
    if (kind == NET_ACTIVATION)
        memcpy(g->slot->input, f->slot->output, bytes), g->input_here = true;
    else
        memcpy(g->slot->grad_in, f->slot->grad_out, bytes), g->grad_here = true;
    return PAWL_OK;
}

static pawl_code send_to(struct exec *x, uint32_t index, const struct ir_instruction *in, enum net_kind kind,
                         struct pawl_error *e) {
    uint32_t chunk = kind == NET_ACTIVATION ? in->chunk + 1 : in->chunk - 1;
    struct which to = {chunk, in->home, in->microbatch, in->to};
    if (is_self(x, in->to)) return hand_over(x, index, to, kind, e);
    struct exec_flight *f = &x->flights[index];
    const struct stage *stage = f->holding->stage;
    struct peers_data data = kind == NET_ACTIVATION
                                 ? (struct peers_data){f->slot->output, stage->output_bytes}
                                 : (struct peers_data){f->slot->grad_out, stage->input_bytes};
    f->sends++;
    f->sent_ns[kind == NET_GRADIENT] = clock_now_ns();
    return peers_send(x->peers, x->rank_of_role[in->to], name_of(x, kind, to), data, PEERS_EXEC_SEND, index,
                      e);
}

/* ---- instructions ---- */

static pawl_code expect_grad(struct exec *x, uint32_t index, const struct ir_instruction *in,
                             struct pawl_error *e) {
    struct exec_flight *f = &x->flights[index];
    if (in->to == IR_NONE) f->grad_here = true;
    if (in->to == IR_NONE || !f->needs_input_grad || is_self(x, in->to)) return PAWL_OK;
    return peers_recv(x->peers, name_of(x, NET_GRADIENT, which_of(in)), f->slot->grad_in,
                      f->holding->stage->output_bytes, peers_cookie(PEERS_EXEC_GRAD, index), e);
}

static pawl_code do_forward(struct exec *x, const struct ir_instruction *in, bool *done,
                            struct pawl_error *e) {
    uint32_t index;
    pawl_code code = open_flight(x, which_of(in), &index, e);
    if (code != PAWL_OK || !x->flights[index].input_here) return code;
    struct exec_flight *f = &x->flights[index];
    if (f->forward_done) return error_set(e, PAWL_INTERNAL, 0, "second forward of one micro-batch");
    struct holding *h = f->holding;
    if (++x->stored > x->peak) x->peak = x->stored;
    int64_t begin = clock_now_ns();
    code = h->stage->ops->forward(h->stage, holding_current(h), f->slot, e);
    if (code != PAWL_OK) return code;
    measure_add(&h->measure, MEASURE_FORWARD, clock_now_ns() - begin);
    f->forward_done = *done = true;
    fault_arrive(FAULT_AFTER_FORWARD);
    code = expect_grad(x, index, in, e);
    if (code == PAWL_OK && in->to != IR_NONE) code = send_to(x, index, in, NET_ACTIVATION, e);
    if (code == PAWL_OK) settle_flight(x, &x->flights[index]);
    return code;
}

static pawl_code flight_after_forward(struct exec *x, const struct ir_instruction *in, uint32_t *index,
                                      struct pawl_error *e) {
    *index = *flight_place(x, in->chunk, global_of(x, in->home, in->microbatch)) - 1;
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
    struct holding *h = f->holding;
    int64_t begin = clock_now_ns();
    code = h->stage->ops->input_grad(h->stage, holding_current(h), f->slot, e);
    if (code != PAWL_OK) return code;
    measure_add(&h->measure, MEASURE_INPUT_GRAD, clock_now_ns() - begin);
    f->input_grad_done = *done = true;
    fault_arrive(FAULT_AFTER_INPUT_GRAD);
    if (in->to != IR_NONE && needs_input_grad(x, in->chunk - 1, f->global))
        code = send_to(x, index, in, NET_GRADIENT, e);
    if (code == PAWL_OK) settle_flight(x, &x->flights[index]);
    return code;
}

static pawl_code do_weight_grad(struct exec *x, const struct ir_instruction *in, struct pawl_error *e) {
    uint32_t index;
    pawl_code code = flight_after_forward(x, in, &index, e);
    if (code != PAWL_OK) return code;
    struct exec_flight *f = &x->flights[index];
    struct holding *h = f->holding;
    if (!f->input_grad_done) return error_set(e, PAWL_INTERNAL, 0, "weight-gradient out of order");
    code = holding_enter(h, f->global, e);
    if (code != PAWL_OK) return code;
    int64_t begin = clock_now_ns();
    code = h->stage->ops->weight_grad(h->stage, holding_current(h), f->slot, h->sums, x->shift, e);
    if (code != PAWL_OK) return code;
    measure_add(&h->measure, MEASURE_WEIGHT_GRAD, clock_now_ns() - begin);
    f->weight_grad_done = true;
    settle_flight(x, f);
    return PAWL_OK;
}

static pawl_code execute(struct exec *x, const struct ir_instruction *in, bool *done, struct pawl_error *e) {
    if (in->op == IR_F) return do_forward(x, in, done, e);
    if (in->op == IR_W) {
        *done = true;
        return do_weight_grad(x, in, e);
    }
    pawl_code code = do_input_grad(x, in, done, e);
    bool both = in->op == IR_B && needs_weight_grad(x, in->chunk, global_of(x, in->home, in->microbatch));
    return code == PAWL_OK && *done && both ? do_weight_grad(x, in, e) : code;
}

pawl_code exec_tick(struct exec *x, enum exec_state *state, struct pawl_error *e) {
    *state = EXEC_ENDED;
    while (x->at < x->list->count && !needs(x, &x->list->instructions[x->at])) x->at++;
    if (x->at >= x->list->count) return PAWL_OK;
    const struct ir_instruction *in = &x->list->instructions[x->at];
    if (in->op == IR_R || in->op == IR_S) {
        *state = in->op == IR_R ? EXEC_AT_REDUCE : EXEC_AT_STEP;
        return PAWL_OK;
    }
    pawl_code code = post_ahead(x, e);
    bool done = false;
    if (code == PAWL_OK) code = execute(x, in, &done, e);
    *state = done ? EXEC_WORKED : EXEC_WAITING;
    if (done) x->at++;
    return code;
}

struct holding *exec_holding(const struct exec *x) {
    return x->holdings[holding_place(x, x->list->instructions[x->at].chunk)];
}

void exec_pass(struct exec *x) { x->at++; }

struct message_at exec_at(const struct exec *x) {
    struct message_at at = {.iteration = x->iteration, .position = x->at, .op = 255};
    if (x->list == NULL || x->at >= x->list->count) return at;
    const struct ir_instruction *in = &x->list->instructions[x->at];
    at.op = (uint8_t)in->op;
    at.chunk = in->chunk;
    at.home = in->home == IR_NONE ? 0 : in->home;
    at.microbatch = in->microbatch == IR_NONE ? 0 : in->microbatch;
    return at;
}

/* ---- completions ---- */

/* A send of the flight has left. Completions do not say which: what was sent first, if both are under way. */
static void measure_send(struct exec_flight *f) {
    int kind = f->sent_ns[0] != 0 ? 0 : 1;
    if (f->sent_ns[kind] != 0)
        measure_add(&f->holding->measure, kind == 0 ? MEASURE_SEND_FORWARD : MEASURE_SEND_BACKWARD,
                    clock_now_ns() - f->sent_ns[kind]);
    f->sent_ns[kind] = 0;
}

pawl_code exec_completion(struct exec *x, const struct net_completion *c, struct pawl_error *e) {
    enum peers_owner owner = peers_owner_of(c->cookie);
    uint32_t index = peers_sent(c->cookie);
    if (index >= x->flight_count || x->flights[index].slot == NULL)
        return error_set(e, PAWL_INTERNAL, 0, "completion of a micro-batch that is not in flight");
    struct exec_flight *f = &x->flights[index];
    if (owner == PEERS_EXEC_SEND) {
        /* A send to a dead peer failed: the coordinator is about to fence this view. */
        f->sends--;
        if (c->code == PAWL_OK) measure_send(f);
        release_if_done(f);
        return PAWL_OK;
    }
    const struct stage *stage = f->holding->stage;
    size_t expected = owner == PEERS_EXEC_INPUT ? stage->input_bytes : stage->output_bytes;
    if (c->code != PAWL_OK || c->bytes != expected)
        return error_set(e, PAWL_FORMAT, 0, "message of %zu bytes for micro-batch %u.%u: expected %zu",
                         c->bytes, f->home, f->microbatch, expected);
    if (owner == PEERS_EXEC_INPUT)
        f->input_here = true;
    else
        f->grad_here = true;
    return PAWL_OK;
}
