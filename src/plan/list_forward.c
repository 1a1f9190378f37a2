/* One list schedule in time order.
 *
 * Whenever a worker is free it takes the most urgent operation that is ready and fits its memory; it never
 * waits for something better. Memory cannot block for ever: a later chunk can always go on (list_problem.c),
 * so what an earlier one waits for comes. Stuck passes are recognised all the same. */
#include "plan/list.h"

static bool forward_fits(const struct list_pass *s, uint32_t worker, uint32_t cell) {
    const struct list_problem *p = s->problem;
    if (!p->costs->limit) return true;
    const struct sim_chunk *c = list_chunk(p, cell);
    uint64_t stored = list_drops(s, worker, cell) ? c->kept : list_need(c);
    return stored + list_reserve(p, cell) <= list_room(s, worker);
}

/* A forward that was not stored whole must come back first. */
static bool input_fits(const struct list_pass *s, uint32_t worker, uint32_t cell) {
    return s->state[cell] != LIST_DROPPED || list_aid_fits(s, worker, cell);
}

/* The first of a queue in its order that fits, as its place; the queue's length if there is none. Where all
 * are alike, nobody need look further than the first. */
static uint32_t first_fitting(const struct list_pass *s, uint32_t worker, enum list_op kind) {
    const uint64_t *queue = s->queue[kind] + s->problem->first[worker];
    uint32_t count = s->worker[worker].waiting[kind], best = count;
    bool (*fits)(const struct list_pass *, uint32_t, uint32_t) = kind == LIST_F ? forward_fits : input_fits;
    if (count == 0 || fits(s, worker, (uint32_t)queue[0])) return 0;
    if (kind == LIST_F && !s->problem->several[worker]) return count;
    for (uint32_t i = 1; i < count; i++)
        if ((best == count || queue[i] < queue[best]) && fits(s, worker, (uint32_t)queue[i])) best = i;
    return best;
}

/* What a worker could do now, by kind: the queue and the place in it, or the queue's length. */
struct choice {
    uint32_t queue[3], at[3];
    bool ready[3];
};

/* Forwards of chunk 0 are all there from the beginning, up to thousands; where later chunks compete for the
 * same memory they have a queue of their own, so that the search for one that fits need not pass them. */
static void choose_first(const struct list_pass *s, uint32_t worker, struct choice *c) {
    uint32_t first = s->problem->first[worker];
    if (s->worker[worker].waiting[LIST_FIRST_QUEUE] == 0) return;
    uint64_t own = s->queue[LIST_FIRST_QUEUE][first];
    if (!forward_fits(s, worker, (uint32_t)own)) return;
    if (c->ready[LIST_F] && s->queue[LIST_F][first + c->at[LIST_F]] < own) return;
    c->queue[LIST_F] = LIST_FIRST_QUEUE, c->at[LIST_F] = 0, c->ready[LIST_F] = true;
}

static struct choice choices(const struct list_pass *s, uint32_t worker) {
    const struct list_queue_worker *w = &s->worker[worker];
    struct choice c = {{LIST_F, LIST_I, LIST_W}, {first_fitting(s, worker, LIST_F), 0, 0}, {false}};
    c.at[LIST_I] = w->parted > 0 ? first_fitting(s, worker, LIST_I) : 0;
    for (int k = LIST_F; k <= LIST_W; k++) c.ready[k] = c.at[k] < w->waiting[k];
    choose_first(s, worker, &c);
    return c;
}

static enum list_op choose_by_kind(const struct list_rule *rule, const struct list_queue_worker *w,
                                   const struct choice *c) {
    bool blocked = list_forward_waits(w) && !c->ready[LIST_F];
    if (blocked && rule->free_memory_first && c->ready[LIST_W]) return LIST_W;
    if (rule->forward_first && c->ready[LIST_F]) return LIST_F;
    if (c->ready[LIST_I]) return LIST_I;
    if (c->ready[LIST_F]) return LIST_F;
    return c->ready[LIST_W] ? LIST_W : LIST_OPS;
}

static enum list_op choose_by_key(const struct list_pass *s, uint32_t worker, const struct choice *c) {
    uint64_t lowest = UINT64_MAX;
    enum list_op best = LIST_OPS;
    for (int k = LIST_F; k <= LIST_W; k++) {
        if (!c->ready[k]) continue;
        uint64_t key = s->queue[c->queue[k]][s->problem->first[worker] + c->at[k]] >> 32;
        if (key < lowest || (key == lowest && k == LIST_I)) lowest = key, best = (enum list_op)k;
    }
    return best;
}

static void start_choice(struct list_pass *s, uint32_t worker, enum list_op op, const struct choice *c,
                         uint64_t now) {
    struct list_queue_worker *w = &s->worker[worker];
    uint64_t *queue = s->queue[c->queue[op]] + s->problem->first[worker];
    uint32_t cell = (uint32_t)queue[c->at[op]];
    if (op == LIST_I && s->state[cell] == LIST_DROPPED) { /* its C first; its I stays in the queue */
        list_recompute(s, worker, cell, now);
        return;
    }
    list_heap_take(queue, &w->waiting[c->queue[op]], c->at[op]);
    if (op == LIST_F && list_drops(s, worker, cell)) {
        list_drop(s, worker, cell, now);
        return;
    }
    if (op == LIST_F) w->used += list_need(list_chunk(s->problem, cell));
    list_start_op(s, worker, list_code(cell, op), now);
}

static void choose(struct list_pass *s, uint32_t worker, uint64_t now) {
    struct list_queue_worker *w = &s->worker[worker];
    if (s->aid[worker] == LIST_OFFLOAD) list_load_arrived(s, worker, now);
    for (;;) {
        struct choice c = choices(s, worker);
        enum list_op op =
            s->rule.prefer == LIST_BY_KEY ? choose_by_key(s, worker, &c) : choose_by_kind(&s->rule, w, &c);
        if (op != LIST_OPS) {
            start_choice(s, worker, op, &c, now);
            return;
        }
        if (s->aid[worker] == LIST_NO_AID || !list_aid(s, worker, now)) return;
    }
}

static void arrive(struct list_pass *s, enum list_op arrival, uint32_t cell) {
    enum list_op kind = arrival == LIST_ARRIVAL_F ? LIST_F : LIST_I;
    if (kind == LIST_I && s->aid[list_host(s->problem, cell)] == LIST_OFFLOAD && !list_is_here(s, cell))
        return;
    list_queue(s, kind, kind, cell);
}

static void ended(struct list_pass *s, uint32_t cell, enum list_op op, uint64_t now);
static const struct list_direction forward = {choose, arrive, ended};

static void ended(struct list_pass *s, uint32_t cell, enum list_op op, uint64_t now) {
    const struct list_problem *p = s->problem;
    const struct sim_chunk *c = list_chunk(p, cell);
    uint32_t worker = list_host(p, cell);
    if (op == LIST_L) { /* the worker did not wait for it */
        list_loaded(s, cell);
        return;
    }
    list_end_op(s, worker);
    if (op == LIST_F && s->aid[worker] == LIST_OFFLOAD) list_may_park(s, worker, cell);
    if (op == LIST_F && list_last_chunk(p, cell))
        arrive(s, LIST_ARRIVAL_I, cell);
    else if (op == LIST_F)
        list_send(s, &forward, now, list_delay_forward(p, cell),
                  list_code(cell + p->microbatches, LIST_ARRIVAL_F));
    if (op == LIST_I) s->worker[worker].used -= list_need(c) - (p->split ? c->after_input : 0);
    if (op == LIST_I && p->split) list_queue(s, LIST_W, LIST_W, cell);
    if (op == LIST_I && p->chunk_of[cell] > 0)
        list_send(s, &forward, now, list_delay_back(p, cell),
                  list_code(cell - p->microbatches, LIST_ARRIVAL_I));
    if (op == LIST_W) s->worker[worker].used -= c->after_input;
}

static void queue_first(struct list_pass *s, uint32_t cell) {
    bool apart = s->problem->reserve && s->problem->several[list_host(s->problem, cell)];
    list_queue(s, apart ? LIST_FIRST_QUEUE : LIST_F, LIST_F, cell);
}

void list_forward(struct list_pass *s, const struct list_rule *rule, struct list_schedule *out) {
    const struct list_problem *p = s->problem;
    list_begin(s, rule, out);
    for (uint32_t home = 0; home < p->route->pipelines; home++)
        for (uint32_t m = 0; m < plan_route_count(p->route, home); m++)
            queue_first(s, home * p->chunks * p->microbatches + m);
    list_run(s, &forward);
    list_evaluate(s, out);
}
