/* One list schedule with time reversed: from the end of the iteration to its beginning.
 *
 * Seen backwards a micro-batch goes up the chunks with its input-gradients and down again with its forwards,
 * and a worker's W comes before its I: whatever the end of an iteration must look like (as many W last as
 * memory holds) comes out first here, where a schedule in time order only happens upon it. Memory is taken by
 * W (by B where they are fused) and given back by F.
 *
 * A W can run ahead of its I as long as memory lasts. So that nobody waits for ever for memory held by what
 * ran ahead, workers run ahead in one common order of micro-batches; what arrives out of that order must
 * leave room for the next in it. With several chunks a worker a pass may still get stuck, and is then
 * dropped. */
#include "plan/list.h"

/* The next W in the common order; false: all have run. */
static bool next_in_order(struct list_pass *s, uint32_t worker, uint32_t *cell) {
    struct list_queue_worker *w = &s->worker[worker];
    uint64_t *queue = s->queue[LIST_W] + s->problem->first[worker];
    while (w->waiting[LIST_W] > 0 && s->state[(uint32_t)queue[0]] & LIST_LOADED)
        list_heap_pop(queue, &w->waiting[LIST_W]);
    if (w->waiting[LIST_W] == 0) return false;
    *cell = (uint32_t)queue[0];
    return true;
}

/* The next W of what has arrived. */
static bool next_arrived(struct list_pass *s, uint32_t worker, uint32_t *cell) {
    struct list_queue_worker *w = &s->worker[worker];
    uint64_t *queue = s->queue[LIST_ARRIVED_QUEUE] + s->problem->first[worker];
    while (w->waiting[LIST_ARRIVED_QUEUE] > 0 && s->state[(uint32_t)queue[0]] & LIST_LOADED)
        list_heap_pop(queue, &w->waiting[LIST_ARRIVED_QUEUE]);
    if (w->waiting[LIST_ARRIVED_QUEUE] == 0) return false;
    *cell = (uint32_t)queue[0];
    return true;
}

/* A W that may run now: of what has arrived, else ahead. */
static bool ready_w(struct list_pass *s, uint32_t worker, uint32_t *out) {
    uint32_t ahead = 0, arrived = 0;
    uint64_t left = list_room(s, worker);
    if (!next_in_order(s, worker, &ahead)) return false;
    uint64_t ahead_need = list_need(list_chunk(s->problem, ahead));
    if (next_arrived(s, worker, &arrived)) {
        uint64_t need = list_need(list_chunk(s->problem, arrived));
        *out = arrived;
        if (need <= left && (arrived == ahead || ahead_need <= left - need)) return true;
    }
    *out = ahead;
    return ahead_need <= left;
}

static bool ready_i(const struct list_pass *s, uint32_t worker, uint32_t *out) {
    if (s->worker[worker].waiting[LIST_I] == 0) return false;
    *out = (uint32_t)s->queue[LIST_I][s->problem->first[worker]];
    return s->problem->split || list_need(list_chunk(s->problem, *out)) <= list_room(s, worker);
}

static enum list_op pick(const struct list_pass *s, const bool ready[3], const uint32_t cell[3]) {
    if (s->rule.prefer == LIST_BY_KIND) {
        bool arrived = ready[LIST_W] && s->state[cell[LIST_W]] & LIST_ARRIVED;
        if (s->rule.free_memory_first && arrived && !ready[LIST_F]) return LIST_W;
        return ready[LIST_F] ? LIST_F : ready[LIST_I] ? LIST_I : ready[LIST_W] ? LIST_W : LIST_OPS;
    }
    enum list_op best = LIST_OPS;
    for (int k = LIST_F; k <= LIST_W; k++)
        if (ready[k] && (best == LIST_OPS || s->key[k][cell[k]] < s->key[best][cell[best]]))
            best = (enum list_op)k;
    return best;
}

static void choose(struct list_pass *s, uint32_t worker, uint64_t now) {
    const struct list_problem *p = s->problem;
    struct list_queue_worker *w = &s->worker[worker];
    uint32_t cell[3] = {0};
    bool ready[3] = {w->waiting[LIST_F] > 0, ready_i(s, worker, &cell[LIST_I]),
                     p->split && ready_w(s, worker, &cell[LIST_W])};
    if (ready[LIST_F]) cell[LIST_F] = (uint32_t)s->queue[LIST_F][p->first[worker]];
    enum list_op op = pick(s, ready, cell);
    if (op == LIST_OPS) return;
    if (op == LIST_W)
        s->state[cell[op]] |= LIST_LOADED; /* leaves its queues later */
    else
        list_heap_pop(s->queue[op] + p->first[worker], &w->waiting[op]);
    if (op == (p->split ? LIST_W : LIST_I)) w->used += list_need(list_chunk(p, cell[op]));
    list_start_op(s, worker, list_code(cell[op], op), now);
}

static void arrive(struct list_pass *s, enum list_op arrival, uint32_t cell) {
    if (arrival == LIST_ARRIVAL_F) {
        list_queue(s, LIST_F, LIST_F, cell);
        return;
    }
    s->state[cell] |= LIST_ARRIVED;
    if (!s->problem->split || s->state[cell] & LIST_RAN)
        list_queue(s, LIST_I, LIST_I, cell);
    else if (!(s->state[cell] & LIST_LOADED))
        list_queue(s, LIST_ARRIVED_QUEUE, LIST_W, cell);
}

static void ended(struct list_pass *s, uint32_t cell, enum list_op op, uint64_t now);
static const struct list_direction backward = {choose, arrive, ended};

static void ended(struct list_pass *s, uint32_t cell, enum list_op op, uint64_t now) {
    const struct list_problem *p = s->problem;
    uint32_t worker = list_host(p, cell), above = cell + p->microbatches, below = cell - p->microbatches;
    list_end_op(s, worker);
    if (op == LIST_W) {
        s->state[cell] |= LIST_RAN;
        if (s->state[cell] & LIST_ARRIVED) list_queue(s, LIST_I, LIST_I, cell);
    } else if (op == LIST_I && list_last_chunk(p, cell)) {
        list_queue(s, LIST_F, LIST_F, cell);
    } else if (op == LIST_I) {
        list_send(s, &backward, now, list_delay_back(p, above), list_code(above, LIST_ARRIVAL_I));
    } else if (op == LIST_F) {
        s->worker[worker].used -= list_need(list_chunk(p, cell));
        if (p->chunk_of[cell] > 0)
            list_send(s, &backward, now, list_delay_forward(p, below), list_code(below, LIST_ARRIVAL_F));
    }
}

/* What a helper holds it reduces last of all, one chunk after the other. */
static uint64_t helper_release(const struct list_problem *p, uint32_t worker, uint64_t own) {
    const struct ir_worker *holder = &p->plan->workers[worker];
    for (uint32_t i = 0; i < holder->hold_count; i++)
        if (p->over[holder->holds[i]] > own) own = p->over[holder->holds[i]];
    return own;
}

/* Staggered, a stage's end may lie as much after the first stage's as its beginning does. Where stages share,
 * R and S have their place too: list_problem.c. */
static void set_releases(struct list_pass *s) {
    const struct list_problem *p = s->problem;
    for (uint32_t w = 0; w < p->workers; w++) {
        bool apart = p->options->staggered && p->chunks == p->route->stages;
        s->release[w] = apart ? p->over[w % p->route->stages] : 0;
        if (p->route->early != NULL && apart) s->release[w] = helper_release(p, w, s->release[w]);
        if (s->release[w] > 0) list_event_push(s, s->release[w], list_code(w, LIST_WAKE));
    }
}

static void turn_round(const struct list_problem *p, struct list_schedule *out) {
    uint64_t span = 0;
    for (uint32_t i = 0; i < out->count; i++) {
        uint64_t end = list_end(p, out, out->log[i]);
        if (end > span) span = end;
    }
    for (uint32_t i = 0; i < out->count; i++)
        *list_start(p, out, out->log[i]) = span - list_end(p, out, out->log[i]);
    for (uint32_t i = 0, j = out->count; i + 1 < j; i++) {
        uint32_t code = out->log[i];
        out->log[i] = out->log[--j];
        out->log[j] = code;
    }
}

void list_backward(struct list_pass *s, const struct list_rule *rule, struct list_schedule *out) {
    const struct list_problem *p = s->problem;
    list_begin(s, rule, out);
    set_releases(s);
    for (uint32_t cell = 0; cell < p->cells; cell++) {
        if (!list_is_there(p, cell)) continue;
        if (p->split) list_queue(s, LIST_W, LIST_W, cell);
        if (p->chunk_of[cell] == 0) arrive(s, LIST_ARRIVAL_I, cell);
    }
    list_run(s, &backward);
    for (uint32_t w = 0; w < p->workers; w++) s->release[w] = 0;
    turn_round(p, out);
    list_evaluate(s, out);
}
