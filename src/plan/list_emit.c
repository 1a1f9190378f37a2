/* A schedule as ir_plan: instructions with their neighbours, I and W joined where nobody waits for the I, and
 * R and S.
 *
 * To join more, each W's place in a list goes to the youngest micro-batch that still lacks it: they all take
 * the same time there and free the same memory.
 *
 * A worker's R of a chunk comes after all it executes up to the chunk's last gradient anywhere, before what
 * starts later; chunks in the order in which their gradients end. So an R never waits for something that
 * waits for it: every worker's list is sorted by the schedule's times, and each R has one time for all. */
#include "plan/list.h"

#include <stdlib.h>
#include <string.h>

struct emit {
    const struct list_problem *problem;
    const struct list_schedule *schedule;
    struct ir_plan *plan;
    uint32_t *log;   /* [count] codes, worker by worker */
    uint64_t *at;    /* [count] their starts */
    uint32_t *stack; /* [cells] */
    uint32_t *first; /* [workers + 1] */
    uint64_t *chunk_end;
    uint32_t *rank; /* [chunks] by end */
    uint32_t *held; /* [chunks] a worker's chunks by rank */
};

static pawl_code append(struct emit *m, uint32_t worker, struct ir_instruction in, struct pawl_error *e) {
    uint32_t stages = m->plan->stages;
    return ir_plan_append(m->plan, worker / stages, worker % stages, in, e);
}

static pawl_code append_step(struct emit *m, uint32_t worker, uint32_t chunk, struct pawl_error *e) {
    struct ir_instruction in = {IR_R, chunk, IR_NONE, IR_NONE, IR_NONE, IR_NONE};
    pawl_code code = append(m, worker, in, e);
    in.op = IR_S;
    return code ? code : append(m, worker, in, e);
}

/* An I, the W right after it, and the receiver of the gradient does not start before W's end. */
static bool can_join(const struct emit *m, uint32_t at, uint32_t end) {
    const struct list_problem *p = m->problem;
    uint32_t code = m->log[at], cell = list_cell(code), w = list_code(cell, LIST_W);
    if (p->options->backward != PLAN_SELECTIVE || at + 1 >= end || m->log[at + 1] != w) return false;
    if (p->chunk_of[cell] == 0) return true;
    uint32_t to = cell - p->microbatches;
    if (list_host(p, to) == list_host(p, cell)) return true; /* follows on the same worker in any case */
    uint64_t there = m->at[at] + sim_duration(p->costs, list_host(p, cell), p->chunk_of[cell], IR_B) +
                     list_delay_back(p, cell);
    return there <= *list_start(p, m->schedule, list_code(to, LIST_I));
}

static enum ir_op op_of(const struct emit *m, enum list_op op, bool joined) {
    static const enum ir_op ops[LIST_OPS] = {IR_F, IR_I, IR_W, IR_C, IR_O, IR_L};
    return op == LIST_I && (joined || !m->problem->split) ? IR_B : ops[op];
}

/* What the worker holds, in the order of the chunks' ends. */
static uint32_t sort_holds(struct emit *m, uint32_t worker) {
    const struct ir_worker *holder = &m->plan->workers[worker];
    for (uint32_t i = 0; i < holder->hold_count; i++) {
        uint32_t at = i, rank = m->rank[holder->holds[i]];
        for (; at > 0 && m->rank[m->held[at - 1]] > rank; at--) m->held[at] = m->held[at - 1];
        m->held[at] = holder->holds[i];
    }
    return holder->hold_count;
}

static pawl_code emit_instruction(struct emit *m, uint32_t worker, uint32_t at, bool joined,
                                  struct pawl_error *e) {
    const struct list_problem *p = m->problem;
    uint32_t cell = list_cell(m->log[at]), home = cell / (p->chunks * p->microbatches);
    enum ir_op op = op_of(m, list_op_of(m->log[at]), joined);
    return append(m, worker,
                  plan_route_instruction(p->route, op, home, p->chunk_of[cell], cell % p->microbatches), e);
}

static pawl_code emit_worker(struct emit *m, uint32_t worker, struct pawl_error *e) {
    uint32_t end = m->first[worker + 1], holds = sort_holds(m, worker), stepped = 0;
    pawl_code code = ir_plan_reserve(m->plan, worker, end - m->first[worker] + 2 * holds, e);
    for (uint32_t i = m->first[worker]; !code && i < end; i++) {
        for (; !code && stepped < holds && m->chunk_end[m->held[stepped]] < m->at[i]; stepped++)
            code = append_step(m, worker, m->held[stepped], e);
        bool joined = list_op_of(m->log[i]) == LIST_I && can_join(m, i, end);
        if (!code) code = emit_instruction(m, worker, i, joined, e);
        i += joined;
    }
    for (; !code && stepped < holds; stepped++) code = append_step(m, worker, m->held[stepped], e);
    return code;
}

static void split_log(struct emit *m) {
    const struct list_problem *p = m->problem;
    const struct list_schedule *s = m->schedule;
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t cell = list_cell(s->log[i]), chunk = p->chunk_of[cell];
        uint64_t end = list_end(p, s, s->log[i]);
        if (end > m->chunk_end[chunk]) m->chunk_end[chunk] = end;
        m->first[list_host(p, cell) + 1]++;
    }
    for (uint32_t w = 0; w < p->workers; w++) m->first[w + 1] += m->first[w];
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t place = m->first[list_host(p, list_cell(s->log[i]))]++;
        m->log[place] = s->log[i];
        m->at[place] = *list_start(p, s, s->log[i]);
    }
    for (uint32_t w = p->workers; w > 0; w--) m->first[w] = m->first[w - 1];
    m->first[0] = 0;
}

/* Take the youngest of a chunk from the stack. */
static uint32_t youngest(struct emit *m, uint32_t *count, uint16_t chunk) {
    uint32_t at = *count - 1, cell;
    while (m->problem->chunk_of[m->stack[at]] != chunk) at--;
    cell = m->stack[at];
    memmove(m->stack + at, m->stack + at + 1, (--*count - at) * sizeof *m->stack);
    return cell;
}

static void pair_weights(struct emit *m, uint32_t worker) {
    uint32_t count = 0;
    for (uint32_t i = m->first[worker]; i < m->first[worker + 1]; i++) {
        uint32_t cell = list_cell(m->log[i]);
        if (list_op_of(m->log[i]) == LIST_I) m->stack[count++] = cell;
        if (list_op_of(m->log[i]) == LIST_W)
            m->log[i] = list_code(youngest(m, &count, m->problem->chunk_of[cell]), LIST_W);
    }
}

struct chunk_end {
    uint64_t at;
    uint32_t chunk;
};

static int earlier_end(const void *a, const void *b) {
    const struct chunk_end *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->chunk < y->chunk ? -1 : 1;
}

/* Each chunk's place in the order of their ends. */
static pawl_code rank_chunks(struct emit *m, struct pawl_error *e) {
    uint32_t count = m->problem->chunks;
    struct chunk_end *end = malloc(count * sizeof *end);
    if (end == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a plan of %u chunks", count);
    for (uint32_t c = 0; c < count; c++) end[c] = (struct chunk_end){m->chunk_end[c], c};
    qsort(end, count, sizeof *end, earlier_end);
    for (uint32_t i = 0; i < count; i++) m->rank[end[i].chunk] = i;
    free(end);
    return PAWL_OK;
}

pawl_code list_emit(struct list_problem *p, const struct list_schedule *s, struct ir_plan **out,
                    struct pawl_error *e) {
    struct emit m = {.problem = p, .schedule = s, .plan = p->plan};
    pawl_code code = PAWL_OK;
    m.log = malloc(s->count * sizeof *m.log);
    m.at = malloc(s->count * sizeof *m.at);
    m.stack = malloc(p->cells * sizeof *m.stack);
    m.first = calloc((size_t)p->workers + 2, sizeof *m.first);
    m.chunk_end = calloc(p->chunks, sizeof *m.chunk_end);
    m.rank = calloc(p->chunks, sizeof *m.rank);
    m.held = calloc(p->chunks, sizeof *m.held);
    if (!m.log || !m.at || !m.stack || !m.first || !m.chunk_end || !m.rank || !m.held)
        code = error_set(e, PAWL_MEMORY, 0, "no memory for a plan of %u instructions", s->count);
    if (!code) {
        split_log(&m);
        code = rank_chunks(&m, e);
    }
    for (uint32_t w = 0; !code && w < p->workers; w++) {
        if (p->options->backward == PLAN_SELECTIVE) pair_weights(&m, w);
        if (p->route->alive[w]) code = emit_worker(&m, w, e);
    }
    free(m.log);
    free(m.at);
    free(m.stack);
    free(m.first);
    free(m.chunk_end);
    free(m.rank);
    free(m.held);
    if (!code) *out = m.plan, p->plan = NULL;
    return code;
}
