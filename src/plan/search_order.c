/* The second neighbourhood of the search: the workers' lists themselves.
 *
 * A list schedule never lets a worker wait for something better; here one operation of one list is moved a
 * few places, the lists are executed as they are, and waiting comes of itself. A move that breaks
 * dependencies within the worker or its memory is not tried; one that makes workers wait for each other in a
 * circle is noticed in the execution. O(operations) each. */
#include "plan/search.h"

#include <stdlib.h>
#include <string.h>

pawl_code search_order_open(const struct list_problem *p, const struct list_schedule *like,
                            struct search_order *out, struct pawl_error *e) {
    memset(out, 0, sizeof *out);
    out->code = malloc(like->room * sizeof *out->code);
    out->first = malloc(((size_t)p->workers + 2) * sizeof *out->first);
    out->next = malloc(p->workers * sizeof *out->next);
    out->stack = malloc(p->workers * sizeof *out->stack);
    out->queued = malloc(p->workers * sizeof *out->queued);
    out->free_at = malloc(p->workers * sizeof *out->free_at);
    bool memory = out->code && out->first && out->next && out->stack && out->queued && out->free_at;
    if (memory && p->kinds > 3) {
        out->copies_free = malloc(2 * (size_t)p->workers * sizeof *out->copies_free);
        out->copied_at = malloc(p->cells * sizeof *out->copied_at);
        out->parks = malloc(p->cells * sizeof *out->parks);
        memory = out->copies_free && out->copied_at && out->parks;
    }
    if (memory) return PAWL_OK;
    search_order_close(out);
    return error_set(e, PAWL_MEMORY, 0, "no memory to search for a better order of %u cells", p->cells);
}

void search_order_close(struct search_order *o) {
    free(o->code);
    free(o->first);
    free(o->next);
    free(o->stack);
    free(o->queued);
    free(o->free_at);
    free(o->copies_free);
    free(o->copied_at);
    free(o->parks);
    memset(o, 0, sizeof *o);
}

static bool left_out(uint32_t code, uint32_t whole) {
    return list_cell(code) == whole && list_op_of(code) > LIST_W;
}

void search_order_from(const struct list_problem *p, const struct list_schedule *from, uint32_t whole,
                       struct search_order *out) {
    memset(out->first, 0, ((size_t)p->workers + 2) * sizeof *out->first);
    if (out->parks) memset(out->parks, 0, p->cells * sizeof *out->parks);
    for (uint32_t i = 0; i < from->count; i++) {
        uint32_t code = from->log[i];
        if (left_out(code, whole)) continue;
        out->first[list_host(p, list_cell(code)) + 2]++;
        if (list_op_of(code) == LIST_O) out->parks[list_cell(code)] = true;
    }
    for (uint32_t w = 0; w < p->workers; w++) out->first[w + 2] += out->first[w + 1];
    for (uint32_t i = 0; i < from->count; i++)
        if (!left_out(from->log[i], whole))
            out->code[out->first[list_host(p, list_cell(from->log[i])) + 1]++] = from->log[i];
}

/* When the input of an operation is there; LIST_NEVER: not yet known. */
static uint64_t input_at(const struct list_problem *p, const struct list_schedule *s, uint32_t code) {
    uint32_t cell = list_cell(code), from;
    enum list_op op = list_op_of(code);
    uint64_t delay;
    if (op == LIST_F && p->chunk_of[cell] > 0)
        from = cell - p->microbatches, delay = list_delay_forward(p, from);
    else if (op == LIST_I && !list_last_chunk(p, cell))
        from = cell + p->microbatches, delay = list_delay_back(p, from);
    else
        return 0;
    if (*list_start(p, s, list_code(from, op)) == LIST_NEVER) return LIST_NEVER;
    return list_end(p, s, list_code(from, op)) + delay;
}

static void wake(struct search_order *o, uint32_t *count, uint32_t worker) {
    if (o->queued[worker]) return;
    o->queued[worker] = true;
    o->stack[(*count)++] = worker;
}

/* Copies to and from the host: when an operation may start for them, and what it does to them. */
static uint64_t after_copies(struct search_order *o, uint32_t code, uint64_t at) {
    uint32_t cell = list_cell(code);
    enum list_op op = list_op_of(code);
    if (!o->parks || !o->parks[cell] || (op != LIST_O && op != LIST_I)) return at;
    return o->copied_at[cell] > at ? o->copied_at[cell] : at;
}

static void begin_copies(struct search_order *o, const struct list_problem *p, uint32_t worker, uint32_t code,
                         uint64_t end) {
    uint32_t cell = list_cell(code);
    bool out = list_op_of(code) == LIST_F, in = list_op_of(code) == LIST_L;
    if (!o->parks || !o->parks[cell] || !(out || in)) return;
    uint64_t *engine = &o->copies_free[2 * worker + (in ? 1 : 0)];
    *engine =
        (*engine > end ? *engine : end) + (in ? list_chunk(p, cell)->load : list_chunk(p, cell)->offload);
    o->copied_at[cell] = *engine;
}

/* Run a worker until it has to wait. */
static void advance(struct search_order *o, const struct list_problem *p, uint32_t worker, uint32_t *count,
                    struct list_schedule *out) {
    for (; o->next[worker] < o->first[worker + 1]; o->next[worker]++) {
        uint32_t code = o->code[o->next[worker]], cell = list_cell(code);
        uint64_t at = input_at(p, out, code);
        if (at == LIST_NEVER) return;
        if (o->free_at[worker] > at) at = o->free_at[worker];
        at = after_copies(o, code, at);
        *list_start(p, out, code) = at;
        o->free_at[worker] = at + list_ticks(p, cell, list_op_of(code));
        out->log[out->count++] = code;
        begin_copies(o, p, worker, code, o->free_at[worker]);
        if (list_op_of(code) == LIST_F && !list_last_chunk(p, cell))
            wake(o, count, list_host(p, cell + p->microbatches));
        if (list_op_of(code) == LIST_I && p->chunk_of[cell] > 0)
            wake(o, count, list_host(p, cell - p->microbatches));
    }
}

void search_order_run(struct search_order *o, struct list_pass *pass, struct list_schedule *out) {
    const struct list_problem *p = pass->problem;
    uint32_t count = 0;
    out->count = 0;
    memset(out->start, 0xff, (size_t)p->cells * p->kinds * sizeof *out->start); /* LIST_NEVER */
    memset(o->free_at, 0, p->workers * sizeof *o->free_at);
    if (o->copies_free) memset(o->copies_free, 0, 2 * (size_t)p->workers * sizeof *o->copies_free);
    memcpy(o->next, o->first, p->workers * sizeof *o->next);
    memset(o->queued, 0, p->workers * sizeof *o->queued);
    for (uint32_t w = p->workers; w-- > 0;) wake(o, &count, w);
    while (count > 0) {
        uint32_t worker = o->stack[--count];
        o->queued[worker] = false;
        advance(o, p, worker, &count, out);
    }
    list_evaluate(pass, out);
}

bool search_order_fits(const struct search_order *o, const struct list_problem *p, uint32_t worker,
                       const struct list_schedule *like) {
    uint64_t used = 0, limit = list_limit(p, worker);
    if (!p->costs->limit) return true;
    for (uint32_t i = o->first[worker]; i < o->first[worker + 1]; i++) {
        uint32_t cell = list_cell(o->code[i]);
        const struct sim_chunk *c = list_chunk(p, cell);
        switch (list_op_of(o->code[i])) {
        case LIST_F:
            used += p->kinds > 3 && *list_start(p, like, list_code(cell, LIST_C)) != LIST_NEVER
                        ? c->kept
                        : list_need(c);
            break;
        case LIST_C:
        case LIST_L:
            used += list_need(c) - c->kept;
            break;
        case LIST_O:
            used -= list_need(c) - c->kept;
            break;
        case LIST_I:
            used -= list_need(c) - (p->split ? c->after_input : 0);
            break;
        default:
            used -= c->after_input;
        }
        if (used > limit) return false;
    }
    return true;
}

static void move(uint32_t *list, uint32_t from, uint32_t to) {
    uint32_t code = list[from];
    if (from < to)
        memmove(list + from, list + from + 1, (to - from) * sizeof *list);
    else
        memmove(list + to + 1, list + to, (from - to) * sizeof *list);
    list[to] = code;
}

/* How far an operation may go towards `to` without passing one of its own micro-batch. */
static uint32_t as_far_as(const uint32_t *list, uint32_t from, uint32_t to) {
    uint32_t cell = list_cell(list[from]), at = from;
    while (at < to && list_cell(list[at + 1]) != cell) at++;
    while (at > to && list_cell(list[at - 1]) != cell) at--;
    return at;
}

bool search_order_move(struct search_order *o, const struct list_problem *p, struct rng_stream *rng,
                       uint32_t worker, const struct list_schedule *like, struct search_move *out) {
    uint32_t first = o->first[worker], count = o->first[worker + 1] - first;
    if (count < 2) return false;
    uint32_t from = first + (uint32_t)rng_below(rng, count), reach = 1 + (uint32_t)rng_below(rng, 6);
    uint32_t to = from;
    if (rng_below(rng, 2) == 0)
        to = from - first < reach ? first : from - reach;
    else
        to = first + count - 1 - from < reach ? first + count - 1 : from + reach;
    to = as_far_as(o->code, from, to);
    if (to == from) return false;
    *out = (struct search_move){from, to};
    move(o->code, from, to);
    if (search_order_fits(o, p, worker, like)) return true;
    move(o->code, to, from);
    return false;
}

void search_order_undo(struct search_order *o, const struct search_move *m) { move(o->code, m->to, m->from); }
