/* Building the graph of graph.h, and the pass over it.
 *
 * The lists are executed without times: a worker's nodes are emitted until its next instruction waits for
 * something that has not been emitted; whoever emits that puts the worker back on a stack. Cells, the
 * (home, chunk, micro-batch) of an instruction, are numbered flat, so that both ends of a message are found
 * by an index. */
#include "sim/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

#define NONE UINT32_MAX

struct build {
    struct graph *g;
    const struct ir_plan *plan;
    uint32_t *forward, *backward; /* [cells] instruction F, and I or B */
    uint32_t *offload, *load;     /* [cells] instruction O; node of the copy back; null if there are none */
    struct build_worker *worker;  /* [workers] */
    struct build_chunk *chunk;    /* [chunks] */
    uint32_t *touched;            /* [all holds] last node of a worker for a chunk that it holds */
    uint32_t *stack, stack_count; /* workers that can go on; each at most once */
};
struct build_worker {
    uint32_t cursor;     /* next instruction of its list */
    uint32_t last;       /* node that the next comes after */
    uint32_t waits_for;  /* instruction whose message it needs, or NONE */
    uint32_t copy_out;   /* its last copies, or NONE */
    uint32_t copy_in;    /* */
    uint32_t touched;    /* its first place in touched */
    uint32_t gate_after; /* next worker that waits at the same gate, or NONE */
};
struct build_chunk {
    uint32_t missing; /* holders that have not come to their R */
    uint32_t gate;    /* last node of the chain of those who have, or NONE */
    uint32_t waiting; /* first worker that waits there, or NONE */
    uint32_t stage;   /* of a holder, or NONE */
    bool spread;      /* there are holders of other stages */
};

static uint64_t cell_of(const struct ir_plan *plan, uint32_t home, uint32_t chunk, uint32_t microbatch) {
    return ((uint64_t)home * plan->chunks + chunk) * plan->microbatches + microbatch;
}

/* ---- emitting nodes ---- */

static uint32_t emit(struct build *b, uint64_t duration, uint32_t before, uint32_t message, uint64_t lag) {
    struct graph *g = b->g;
    g->node[g->count] = (struct graph_node){
        .duration = duration, .lag = lag, .before = before, .message = message == NONE ? before : message};
    return g->count++;
}

/* A wait of the worker for a node, as a node. */
static void emit_wait(struct build *b, struct build_worker *w, uint32_t node) {
    w->last = emit(b, 0, w->last, node, 0);
}

static uint32_t *touched_place(struct build *b, uint32_t worker, uint32_t chunk) {
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
static void touch_before(struct build *b, uint32_t worker, uint32_t chunk) {
    if (!b->chunk[chunk].spread || *touched_place(b, worker, chunk) != NONE) return;
    emit_wait(b, &b->worker[worker], b->g->workers + chunk);
}

static void touch_after(struct build *b, uint32_t worker, uint32_t chunk) {
    if (b->chunk[chunk].spread) *touched_place(b, worker, chunk) = b->worker[worker].last;
}

/* ---- instructions ---- */

static void wake(struct build *b, uint32_t worker) { b->stack[b->stack_count++] = worker; }

/* The copy out begins when F has ended, whenever its O comes. */
static void start_copy_out(struct build *b, struct build_worker *w, const struct ir_instruction *in) {
    if (b->offload == NULL) return;
    uint32_t o = b->offload[cell_of(b->plan, in->home, in->chunk, in->microbatch)];
    if (o == NONE) return;
    uint32_t before = w->copy_out == NONE ? w->last : w->copy_out;
    w->copy_out = emit(b, b->g->costs->chunk[in->chunk].offload, before, w->last, 0);
    b->g->of[o] = w->copy_out;
}

static void start_copy_in(struct build *b, struct build_worker *w, const struct ir_instruction *in,
                          uint32_t index) {
    uint32_t before = w->copy_in == NONE ? w->last : w->copy_in;
    w->copy_in = emit(b, b->g->costs->chunk[in->chunk].load, before, w->last, 0);
    b->g->of[index] = w->copy_in;
    b->load[cell_of(b->plan, in->home, in->chunk, in->microbatch)] = w->copy_in;
}

/* The instruction that sends `in` its input; NONE if nobody does. */
static uint32_t sender(const struct build *b, const struct ir_instruction *in) {
    if (in->from == IR_NONE) return NONE;
    if (in->op == IR_F) return b->forward[cell_of(b->plan, in->home, in->chunk - 1, in->microbatch)];
    return b->backward[cell_of(b->plan, in->home, in->chunk + 1, in->microbatch)];
}

static uint64_t lag_of(const struct build *b, uint32_t worker, const struct ir_instruction *in) {
    if (in->from == worker || in->from == IR_NONE) return 0;
    const struct sim_chunk *chunk = b->g->costs->chunk;
    return in->op == IR_F ? chunk[in->chunk - 1].send_forward : chunk[in->chunk + 1].send_backward;
}

static void compute(struct build *b, uint32_t worker, const struct ir_instruction *in, uint32_t index,
                    uint32_t message) {
    struct build_worker *w = &b->worker[worker];
    touch_before(b, worker, in->chunk);
    if (b->load != NULL && (in->op == IR_I || in->op == IR_B)) {
        uint32_t copy = b->load[cell_of(b->plan, in->home, in->chunk, in->microbatch)];
        if (copy != NONE) emit_wait(b, w, copy);
    }
    uint64_t duration = sim_duration(b->g->costs, worker, in->chunk, in->op);
    w->last = emit(b, duration, w->last, message, message == NONE ? 0 : lag_of(b, worker, in));
    b->g->of[index] = w->last;
    touch_after(b, worker, in->chunk);
    if (in->op == IR_F) start_copy_out(b, w, in);
    if (in->to != IR_NONE && b->worker[in->to].waits_for == index) {
        b->worker[in->to].waits_for = NONE;
        wake(b, in->to);
    }
}

/* F, I, B: false while the message is not there. */
static bool run_message(struct build *b, uint32_t worker, const struct ir_instruction *in, uint32_t index) {
    uint32_t from = sender(b, in);
    if (from != NONE && b->g->of[from] == NONE) {
        b->worker[worker].waits_for = from;
        return false;
    }
    compute(b, worker, in, index, from == NONE ? NONE : b->g->of[from]);
    return true;
}

static void open_gate(struct build *b, struct build_chunk *c) {
    while (c->waiting != NONE) {
        uint32_t worker = c->waiting;
        c->waiting = b->worker[worker].gate_after;
        wake(b, worker);
    }
}

/* R: a worker that comes adds itself to the chain; the last opens the gate for all. */
static bool run_reduce(struct build *b, uint32_t worker, const struct ir_instruction *in, uint32_t index) {
    struct build_chunk *c = &b->chunk[in->chunk];
    struct build_worker *w = &b->worker[worker];
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

static bool run_one(struct build *b, uint32_t worker, const struct ir_instruction *in, uint32_t index) {
    switch (in->op) {
    case IR_F:
    case IR_I:
    case IR_B:
        return run_message(b, worker, in, index);
    case IR_R:
        return run_reduce(b, worker, in, index);
    case IR_O:
        if (b->g->of[index] == NONE) return false; /* no F before it */
        emit_wait(b, &b->worker[worker], b->g->of[index]);
        return true;
    case IR_L:
        if (b->load == NULL) return false; /* no O before it */
        start_copy_in(b, &b->worker[worker], in, index);
        return true;
    default:
        compute(b, worker, in, index, NONE);
        return true;
    }
}

static void run_worker(struct build *b, uint32_t worker) {
    const struct ir_worker *list = &b->plan->workers[worker];
    struct build_worker *w = &b->worker[worker];
    for (; w->cursor < list->count; w->cursor++)
        if (!run_one(b, worker, &list->instructions[w->cursor], b->g->first[worker] + w->cursor)) return;
}

static pawl_code run_all(struct build *b, struct pawl_error *e) {
    for (uint32_t w = b->g->workers; w > 0; w--) wake(b, w - 1);
    while (b->stack_count > 0) run_worker(b, b->stack[--b->stack_count]);
    for (uint32_t w = 0; w < b->g->workers; w++)
        if (b->worker[w].cursor < b->plan->workers[w].count)
            return error_set(e, PAWL_PLAN, 0,
                             "simulation: worker (%u, %u) waits for ever at its instruction %u",
                             w / b->plan->stages, w % b->plan->stages, b->worker[w].cursor);
    return PAWL_OK;
}

/* ---- indexes ---- */

/* What an instruction adds to the number of nodes, besides itself. */
static void index_list(struct build *b, uint32_t worker, uint32_t *offloads, uint32_t *reduces) {
    const struct ir_worker *list = &b->plan->workers[worker];
    for (uint32_t i = 0; i < list->count; i++) {
        const struct ir_instruction *in = &list->instructions[i];
        uint32_t index = b->g->first[worker] + i;
        if (in->op == IR_F)
            b->forward[cell_of(b->plan, in->home, in->chunk, in->microbatch)] = index;
        else if (in->op == IR_I || in->op == IR_B)
            b->backward[cell_of(b->plan, in->home, in->chunk, in->microbatch)] = index;
        else if (in->op == IR_O)
            ++*offloads;
        else if (in->op == IR_R)
            ++*reduces;
    }
}

static uint32_t *table_new(uint64_t count) {
    uint32_t *table = malloc((count > 0 ? count : 1) * sizeof *table);
    if (table != NULL) memset(table, 0xff, count * sizeof *table); /* all NONE */
    return table;
}

static bool index_offloads(struct build *b, uint64_t cells) {
    b->offload = table_new(cells);
    b->load = table_new(cells);
    if (b->offload == NULL || b->load == NULL) return false;
    for (uint32_t w = 0; w < b->g->workers; w++) {
        const struct ir_worker *list = &b->plan->workers[w];
        for (uint32_t i = 0; i < list->count; i++) {
            const struct ir_instruction *in = &list->instructions[i];
            if (in->op != IR_O) continue;
            b->offload[cell_of(b->plan, in->home, in->chunk, in->microbatch)] = b->g->first[w] + i;
        }
    }
    return true;
}

/* A chunk that workers of one stage hold lies within the spans of that stage; only the others need a source
 * and a span of their own. */
static void find_spread(struct build *b) {
    for (uint32_t w = 0; w < b->g->workers; w++) {
        const struct ir_worker *list = &b->plan->workers[w];
        for (uint32_t i = 0; i < list->hold_count; i++) {
            struct build_chunk *c = &b->chunk[list->holds[i]];
            if (c->stage == NONE) c->stage = w % b->plan->stages;
            if (c->stage != w % b->plan->stages) c->spread = b->g->chunk_sources = true;
        }
    }
}

static bool index_holders(struct build *b) {
    uint32_t holds = 0;
    for (uint32_t c = 0; c < b->plan->chunks; c++)
        b->chunk[c] = (struct build_chunk){0, NONE, NONE, NONE, false};
    for (uint32_t w = 0; w < b->g->workers; w++) {
        const struct ir_worker *list = &b->plan->workers[w];
        b->worker[w] = (struct build_worker){
            .last = w, .waits_for = NONE, .copy_out = NONE, .copy_in = NONE, .touched = holds};
        holds += list->hold_count;
        for (uint32_t i = 0; i < list->hold_count; i++) b->chunk[list->holds[i]].missing++;
    }
    b->touched = table_new(holds);
    b->g->mark = calloc((uint64_t)b->g->workers + holds, sizeof *b->g->mark);
    return b->touched != NULL && b->g->mark != NULL;
}

static bool open_tables(struct build *b) {
    struct graph *g = b->g;
    uint64_t cells = (uint64_t)b->plan->pipelines * b->plan->chunks * b->plan->microbatches;
    uint32_t offloads = 0, reduces = 0;
    b->forward = table_new(cells);
    b->backward = table_new(cells);
    b->worker = calloc(g->workers, sizeof *b->worker);
    b->chunk = calloc(b->plan->chunks, sizeof *b->chunk);
    b->stack = calloc(g->workers, sizeof *b->stack);
    g->of = table_new(g->instructions);
    if (b->forward == NULL || b->backward == NULL || b->worker == NULL || b->chunk == NULL ||
        b->stack == NULL || g->of == NULL || !index_holders(b))
        return false;
    find_spread(b);
    g->source_count = g->workers + (g->chunk_sources ? b->plan->chunks : 0);
    for (uint32_t w = 0; w < g->workers; w++) index_list(b, w, &offloads, &reduces);
    if (offloads > 0 && !index_offloads(b, cells)) return false;
    uint64_t touches = 0;
    for (uint32_t w = 0; g->chunk_sources && w < g->workers; w++) touches += b->plan->workers[w].hold_count;
    g->node =
        malloc((g->source_count + (uint64_t)g->instructions + 2 * (uint64_t)offloads + reduces + touches) *
               sizeof *g->node);
    g->count = g->source_count; /* they have no predecessors, hence no content */
    return g->node != NULL;
}

static void close_tables(struct build *b) {
    free(b->forward);
    free(b->backward);
    free(b->offload);
    free(b->load);
    free(b->worker);
    free(b->chunk);
    free(b->touched);
    free(b->stack);
}

static void mark_ends(struct build *b) {
    struct graph *g = b->g;
    for (uint32_t w = 0; w < g->workers; w++) {
        const struct ir_worker *list = &b->plan->workers[w];
        if (list->count == 0) continue;
        g->mark[g->mark_count++] = (struct graph_mark){b->worker[w].last, w % b->plan->stages, w};
        for (uint32_t i = 0; g->chunk_sources && i < list->hold_count; i++) {
            uint32_t node = b->touched[b->worker[w].touched + i];
            if (node != NONE)
                g->mark[g->mark_count++] = (struct graph_mark){node, b->plan->stages + list->holds[i], w};
        }
    }
}

/* ---- the graph ---- */

static pawl_code count_instructions(struct graph *g, struct pawl_error *e) {
    const struct ir_plan *plan = g->plan;
    if (plan->pipelines != g->costs->pipelines || plan->stages != g->costs->stages ||
        plan->chunks != g->costs->chunks)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "simulation: the plan has %u x %u workers and %u chunks, the costs %u x %u and %u",
                         plan->pipelines, plan->stages, plan->chunks, g->costs->pipelines, g->costs->stages,
                         g->costs->chunks);
    g->workers = plan->pipelines * plan->stages;
    g->first = calloc((uint64_t)g->workers + 1, sizeof *g->first);
    if (g->first == NULL)
        return error_set(e, PAWL_MEMORY, 0, "simulation: no memory for %u workers", g->workers);
    uint64_t sum = 0;
    for (uint32_t w = 0; w < g->workers; w++) {
        sum += plan->workers[w].count;
        if (sum > UINT32_MAX / 4) /* with their waits the nodes stay below NONE */
            return error_set(e, PAWL_ARGUMENT, 0, "simulation: more than %u instructions", UINT32_MAX / 4);
        g->first[w + 1] = (uint32_t)sum;
    }
    g->instructions = (uint32_t)sum;
    return PAWL_OK;
}

pawl_code graph_open(const struct ir_plan *plan, const struct sim_costs *costs, struct graph *out,
                     struct pawl_error *e) {
    *out = (struct graph){.plan = plan, .costs = costs};
    struct build b = {.g = out, .plan = plan};
    pawl_code code = count_instructions(out, e);
    if (code != PAWL_OK) goto done;
    if (!open_tables(&b)) {
        code = error_set(e, PAWL_MEMORY, 0, "simulation: no memory for %u instructions", out->instructions);
        goto done;
    }
    code = run_all(&b, e);
    if (code == PAWL_OK) mark_ends(&b);
done:
    close_tables(&b);
    if (code != PAWL_OK) graph_close(out);
    return code;
}

void graph_close(struct graph *g) {
    free(g->first);
    free(g->of);
    free(g->node);
    free(g->mark);
    *g = (struct graph){0};
}

/* ---- passes ---- */

void graph_pass(const struct graph *g, uint64_t *end) {
    for (uint32_t v = g->source_count; v < g->count; v++) {
        const struct graph_node *n = &g->node[v];
        uint64_t before = end[n->before], message = end[n->message] + n->lag;
        end[v] = (before > message ? before : message) + n->duration;
    }
}

void graph_pass_origin(const struct graph *g, uint64_t *end, uint16_t *origin) {
    for (uint32_t v = g->source_count; v < g->count; v++) {
        const struct graph_node *n = &g->node[v];
        uint64_t before = end[n->before], message = end[n->message] + n->lag;
        bool later = message > before;
        end[v] = (later ? message : before) + n->duration;
        origin[v] = origin[later ? n->message : n->before];
    }
}
