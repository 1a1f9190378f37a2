/* The nodes of a graph, by executing the lists without times: a worker's nodes are emitted until its next
 * instruction waits for something that has not been emitted; whoever emits that puts the worker back on a
 * stack. Every instruction is looked at twice at most: O(instructions). */
#include "sim/graph_build.h"

#include "base/error.h"

static uint32_t emit(struct graph_build *b, uint64_t duration, uint32_t before, uint32_t message,
                     uint64_t lag) {
    struct graph *g = b->g;
    g->node[g->count] = (struct graph_node){.duration = duration,
                                            .lag = lag,
                                            .before = before,
                                            .message = message == GRAPH_NONE ? before : message};
    return g->count++;
}

/* A wait of the worker for a node, as a node. */
static void emit_wait(struct graph_build *b, struct graph_worker *w, uint32_t node) {
    w->last = emit(b, 0, w->last, node, 0);
}

static uint32_t *touched_place(struct graph_build *b, uint32_t worker, uint32_t chunk) {
    const struct ir_worker *list = &b->plan->workers[worker];
    uint32_t low = 0, high = list->hold_count;
    while (low + 1 < high) {
        uint32_t middle = low + (high - low) / 2;
        if (list->holds[middle] <= chunk)
            low = middle;
        else
            high = middle;
    }
    return &b->touched[b->worker[worker].touched + low];
}

/* The first of a chunk on a worker waits for the chunk's source. */
static void touch_before(struct graph_build *b, uint32_t worker, uint32_t chunk) {
    if (!b->chunk[chunk].spread || *touched_place(b, worker, chunk) != GRAPH_NONE) return;
    emit_wait(b, &b->worker[worker], b->g->workers + chunk);
}

static void touch_after(struct graph_build *b, uint32_t worker, uint32_t chunk) {
    if (b->chunk[chunk].spread) *touched_place(b, worker, chunk) = b->worker[worker].last;
}

/* ---- instructions ---- */

static void wake(struct graph_build *b, uint32_t worker) { b->stack[b->stack_count++] = worker; }

/* The copy out begins when F has ended, whenever its O comes. */
static void start_copy_out(struct graph_build *b, struct graph_worker *w, const struct ir_instruction *in) {
    if (b->offload == NULL) return;
    uint32_t o = b->offload[graph_cell(b->plan, in->home, in->chunk, in->microbatch)];
    if (o == GRAPH_NONE) return;
    uint32_t before = w->copy_out == GRAPH_NONE ? w->last : w->copy_out;
    w->copy_out = emit(b, b->g->costs->chunk[in->chunk].offload, before, w->last, 0);
    b->g->of[o] = w->copy_out;
}

static void start_copy_in(struct graph_build *b, struct graph_worker *w, const struct ir_instruction *in,
                          uint32_t index) {
    uint32_t before = w->copy_in == GRAPH_NONE ? w->last : w->copy_in;
    w->copy_in = emit(b, b->g->costs->chunk[in->chunk].load, before, w->last, 0);
    b->g->of[index] = w->copy_in;
    b->load[graph_cell(b->plan, in->home, in->chunk, in->microbatch)] = w->copy_in;
}

/* The instruction that sends `in` its input; GRAPH_NONE if nobody does. */
static uint32_t sender(const struct graph_build *b, const struct ir_instruction *in) {
    if (in->from == IR_NONE) return GRAPH_NONE;
    if (in->op == IR_F) return b->forward[graph_cell(b->plan, in->home, in->chunk - 1, in->microbatch)];
    return b->backward[graph_cell(b->plan, in->home, in->chunk + 1, in->microbatch)];
}

static uint64_t lag_of(const struct graph_build *b, uint32_t worker, const struct ir_instruction *in) {
    if (in->from == worker || in->from == IR_NONE) return 0;
    const struct sim_chunk *chunk = b->g->costs->chunk;
    return in->op == IR_F ? chunk[in->chunk - 1].send_forward : chunk[in->chunk + 1].send_backward;
}

static void compute(struct graph_build *b, uint32_t worker, const struct ir_instruction *in, uint32_t index,
                    uint32_t message) {
    struct graph_worker *w = &b->worker[worker];
    touch_before(b, worker, in->chunk);
    if (b->load != NULL && (in->op == IR_I || in->op == IR_B)) {
        uint32_t copy = b->load[graph_cell(b->plan, in->home, in->chunk, in->microbatch)];
        if (copy != GRAPH_NONE) emit_wait(b, w, copy);
    }
    uint64_t duration = sim_duration(b->g->costs, worker, in->chunk, in->op);
    w->last = emit(b, duration, w->last, message, message == GRAPH_NONE ? 0 : lag_of(b, worker, in));
    b->g->of[index] = w->last;
    touch_after(b, worker, in->chunk);
    if (in->op == IR_F) start_copy_out(b, w, in);
    if (in->to != IR_NONE && b->worker[in->to].waits_for == index) {
        b->worker[in->to].waits_for = GRAPH_NONE;
        wake(b, in->to);
    }
}

/* F, I, B: false while the message is not there. */
static bool run_message(struct graph_build *b, uint32_t worker, const struct ir_instruction *in,
                        uint32_t index) {
    uint32_t from = sender(b, in);
    if (from != GRAPH_NONE && b->g->of[from] == GRAPH_NONE) {
        b->worker[worker].waits_for = from;
        return false;
    }
    compute(b, worker, in, index, from == GRAPH_NONE ? GRAPH_NONE : b->g->of[from]);
    return true;
}

static void open_gate(struct graph_build *b, struct graph_chunk *c) {
    while (c->waiting != GRAPH_NONE) {
        uint32_t worker = c->waiting;
        c->waiting = b->worker[worker].gate_after;
        wake(b, worker);
    }
}

/* R: a worker that comes adds itself to the chain; the last opens the gate for all. */
static bool run_reduce(struct graph_build *b, uint32_t worker, const struct ir_instruction *in,
                       uint32_t index) {
    struct graph_chunk *c = &b->chunk[in->chunk];
    struct graph_worker *w = &b->worker[worker];
    if (c->missing > 0) {
        touch_before(b, worker, in->chunk);
        c->gate = emit(b, 0, w->last, c->gate, 0);
        if (--c->missing > 0) {
            w->gate_after = c->waiting;
            c->waiting = worker;
            return false;
        }
        open_gate(b, c);
    }
    w->last = emit(b, sim_duration(b->g->costs, worker, in->chunk, IR_R), w->last, c->gate, 0);
    b->g->of[index] = w->last;
    touch_after(b, worker, in->chunk);
    return true;
}

static bool run_one(struct graph_build *b, uint32_t worker, const struct ir_instruction *in, uint32_t index) {
    switch (in->op) {
    case IR_F:
    case IR_I:
    case IR_B:
        return run_message(b, worker, in, index);
    case IR_R:
        return run_reduce(b, worker, in, index);
    case IR_O:
        if (b->g->of[index] == GRAPH_NONE) return false; /* no F before it */
        emit_wait(b, &b->worker[worker], b->g->of[index]);
        return true;
    case IR_L:
        if (b->load == NULL) return false; /* no O before it */
        start_copy_in(b, &b->worker[worker], in, index);
        return true;
    default:
        compute(b, worker, in, index, GRAPH_NONE);
        return true;
    }
}

static void run_worker(struct graph_build *b, uint32_t worker) {
    const struct ir_worker *list = &b->plan->workers[worker];
    struct graph_worker *w = &b->worker[worker];
    for (; w->cursor < list->count; w->cursor++)
        if (!run_one(b, worker, &list->instructions[w->cursor], b->g->first[worker] + w->cursor)) return;
}

pawl_code graph_build(struct graph_build *b, struct pawl_error *e) {
    for (uint32_t w = b->g->workers; w > 0; w--) wake(b, w - 1);
    while (b->stack_count > 0) run_worker(b, b->stack[--b->stack_count]);
    for (uint32_t w = 0; w < b->g->workers; w++)
        if (b->worker[w].cursor < b->plan->workers[w].count)
            return error_set(e, PAWL_PLAN, 0,
                             "simulation: worker (%u, %u) waits for ever at its instruction %u",
                             w / b->plan->stages, w % b->plan->stages, b->worker[w].cursor);
    return PAWL_OK;
}
