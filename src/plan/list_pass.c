/* One list schedule in time order.
 *
 * Whenever a worker is free it takes the most urgent operation that is ready and fits its memory; it never
 * waits for something better. All that happens at one instant is entered before anybody chooses.
 * O(n log n) for n operations; the heaps are small because micro-batches come nearly in order.
 *
 * Memory cannot block for ever: a later chunk can always go on (list_problem.c), so what an earlier one waits
 * for comes. Stuck passes are recognised all the same. */
#include "plan/list.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- heaps ---- */

static void heap_push(uint64_t *heap, uint32_t *count, uint64_t item) {
    uint32_t at = (*count)++;
    for (; at > 0 && heap[(at - 1) / 2] > item; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = item;
}

/* Remove the item at `at`. */
static uint64_t heap_take(uint64_t *heap, uint32_t *count, uint32_t at) {
    uint64_t taken = heap[at], last = heap[--*count];
    if (at == *count) return taken;
    for (; at > 0 && heap[(at - 1) / 2] > last; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    for (uint32_t child; (child = 2 * at + 1) < *count; at = child) {
        if (child + 1 < *count && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= last) break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return taken;
}

uint64_t list_heap_pop(uint64_t *heap, uint32_t *count) { return heap_take(heap, count, 0); }

void list_event_push(struct list_pass *s, uint64_t at, uint32_t code) {
    uint32_t i = s->event_count++;
    for (; i > 0 && s->event[(i - 1) / 2].at > at; i = (i - 1) / 2) s->event[i] = s->event[(i - 1) / 2];
    s->event[i] = (struct list_event){at, code};
}

static struct list_event event_pop(struct list_pass *s) {
    struct list_event taken = s->event[0], last = s->event[--s->event_count];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < s->event_count; i = child) {
        if (child + 1 < s->event_count && s->event[child + 1].at < s->event[child].at) child++;
        if (s->event[child].at >= last.at) break;
        s->event[i] = s->event[child];
    }
    if (s->event_count > 0) s->event[i] = last;
    return taken;
}

/* ---- workspace ---- */

pawl_code list_pass_open(const struct list_problem *p, struct list_pass *out, struct pawl_error *e) {
    memset(out, 0, sizeof *out);
    out->problem = p;
    bool memory = true;
    for (int k = 0; k < 3; k++) memory &= (out->key[k] = malloc(p->cells * sizeof *out->key[k])) != NULL;
    for (int k = 0; k < 4; k++) memory &= (out->queue[k] = malloc(p->cells * sizeof *out->queue[k])) != NULL;
    out->worker = calloc(p->workers, sizeof *out->worker);
    out->event = malloc((p->workers + 2 * (size_t)p->cells) * sizeof *out->event);
    out->dirty = malloc(p->workers * sizeof *out->dirty);
    out->state = calloc(p->cells, sizeof *out->state);
    out->release = calloc(p->workers, sizeof *out->release);
    out->recompute = calloc(p->workers, sizeof *out->recompute);
    out->scratch = malloc(2 * ((size_t)p->workers + p->chunks + p->route->stages) * sizeof *out->scratch);
    if (memory && out->worker && out->event && out->dirty && out->state && out->release && out->recompute &&
        out->scratch)
        return PAWL_OK;
    list_pass_close(out);
    return error_set(e, PAWL_MEMORY, 0, "no memory to schedule %u cells", p->cells);
}

void list_pass_close(struct list_pass *s) {
    for (int k = 0; k < 3; k++) free(s->key[k]);
    for (int k = 0; k < 4; k++) free(s->queue[k]);
    free(s->worker);
    free(s->event);
    free(s->dirty);
    free(s->state);
    free(s->release);
    free(s->recompute);
    free(s->scratch);
    memset(s, 0, sizeof *s);
}

/* Older micro-batches first; of the same age the worker's own first, or its guests. */
void list_keys(struct list_pass *s, bool guests_first) {
    const struct list_problem *p = s->problem;
    uint32_t homes = p->route->pipelines;
    for (uint32_t cell = 0; cell < p->cells; cell++) {
        uint32_t home = cell / (p->chunks * p->microbatches);
        uint32_t host = list_host(p, cell) / p->route->stages;
        uint32_t far = home >= host ? home - host : home + homes - host;
        uint32_t key = cell % p->microbatches * homes + (guests_first ? homes - 1 - far : far);
        for (int k = 0; k < 3; k++) s->key[k][cell] = key;
    }
}

void list_begin(struct list_pass *s, const struct list_rule *rule, struct list_schedule *out) {
    const struct list_problem *p = s->problem;
    s->rule = *rule, s->out = out;
    out->count = 0, out->period = LIST_NEVER, out->excess = 0;
    s->event_count = s->dirty_count = 0;
    memset(s->worker, 0, p->workers * sizeof *s->worker);
    memset(s->state, 0, p->cells * sizeof *s->state);
    if (p->kinds > 3)
        for (uint64_t i = 0; i < (uint64_t)p->cells * p->kinds; i++) out->start[i] = LIST_NEVER;
}

/* ---- events ---- */

static void mark(struct list_pass *s, uint32_t worker) {
    struct list_queue_worker *w = &s->worker[worker];
    if (w->dirty || w->busy) return;
    w->dirty = true;
    s->dirty[s->dirty_count++] = worker;
}

void list_queue(struct list_pass *s, uint32_t queue, enum list_op key, uint32_t cell) {
    uint32_t worker = list_host(s->problem, cell);
    heap_push(s->queue[queue] + s->problem->first[worker], &s->worker[worker].waiting[queue],
              (uint64_t)s->key[key][cell] << 32 | cell);
    mark(s, worker);
}

void list_start_op(struct list_pass *s, uint32_t worker, uint32_t code, uint64_t now) {
    struct list_schedule *out = s->out;
    assert(out->count < out->room);
    s->worker[worker].busy = true;
    out->log[out->count++] = code;
    *list_start(s->problem, out, code) = now;
    list_event_push(s, now + list_ticks(s->problem, list_cell(code), list_op_of(code)), code);
}

void list_end_op(struct list_pass *s, uint32_t worker) {
    s->worker[worker].busy = false;
    mark(s, worker);
}

static void choose_all(struct list_pass *s, const struct list_direction *d, uint64_t now) {
    for (uint32_t i = 0; i < s->dirty_count; i++) {
        uint32_t worker = s->dirty[i];
        s->worker[worker].dirty = false;
        if (now >= s->release[worker]) d->choose(s, worker, now);
    }
    s->dirty_count = 0;
}

static void enter(struct list_pass *s, const struct list_direction *d, struct list_event event) {
    enum list_op op = list_op_of(event.code);
    if (op == LIST_WAKE)
        mark(s, list_cell(event.code));
    else if (op == LIST_ARRIVAL_F || op == LIST_ARRIVAL_I)
        d->arrive(s, op, list_cell(event.code));
    else
        d->ended(s, list_cell(event.code), op, event.at);
}

void list_run(struct list_pass *s, const struct list_direction *d) {
    choose_all(s, d, 0);
    while (s->event_count > 0) {
        uint64_t now = s->event[0].at;
        while (s->event_count > 0 && s->event[0].at == now) enter(s, d, event_pop(s));
        choose_all(s, d, now);
    }
}

/* ---- forward ---- */

/* Room that must stay free for the recomputation of what is stored in part. */
static uint64_t room_to_recompute(const struct list_queue_worker *w, const struct sim_chunk *c) {
    return w->dropped > 0 ? list_need(c) - c->kept : 0;
}

static uint64_t room_left(const struct list_pass *s, uint32_t worker) {
    return list_limit(s->problem, worker) - s->worker[worker].used;
}

static bool forward_fits(const struct list_pass *s, uint32_t worker, uint32_t cell) {
    const struct list_problem *p = s->problem;
    if (!p->costs->limit) return true;
    const struct sim_chunk *c = list_chunk(p, cell);
    uint64_t need = list_need(c) + (p->reserve ? p->reserve[cell] : 0);
    return need + room_to_recompute(&s->worker[worker], c) <= room_left(s, worker);
}

static bool input_fits(const struct list_pass *s, uint32_t worker, uint32_t cell) {
    if (s->state[cell] != LIST_DROPPED) return true;
    return list_need(list_chunk(s->problem, cell)) - list_chunk(s->problem, cell)->kept <=
           room_left(s, worker);
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

/* What a worker could do now: by kind, the place in its queue, or the queue's length. */
struct choice {
    uint32_t at[3];
    bool ready[3];
};

static enum list_op choose_by_kind(const struct list_rule *rule, const struct list_queue_worker *w,
                                   const struct choice *c) {
    bool blocked = w->waiting[LIST_F] > 0 && !c->ready[LIST_F];
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
        uint64_t key = s->queue[k][s->problem->first[worker] + c->at[k]] >> 32;
        if (key < lowest || (key == lowest && k == LIST_I)) lowest = key, best = (enum list_op)k;
    }
    return best;
}

/* A worker that would stand still for lack of memory runs a forward that stores only its input. Its C needs
 * the whole room later: that much stays free. */
static bool start_dropping(struct list_pass *s, uint32_t worker, uint64_t now) {
    struct list_queue_worker *w = &s->worker[worker];
    const struct list_problem *p = s->problem;
    if (!s->recompute[worker] || w->waiting[LIST_F] == 0) return false;
    uint64_t *queue = s->queue[LIST_F] + p->first[worker];
    uint32_t cell = (uint32_t)queue[0];
    const struct sim_chunk *c = list_chunk(p, cell);
    if (c->kept >= c->full) return false;
    if (list_need(c) + (p->reserve ? p->reserve[cell] : 0) > room_left(s, worker)) return false;
    list_heap_pop(queue, &w->waiting[LIST_F]);
    s->state[cell] = LIST_DROPPED;
    w->used += c->kept;
    w->dropped++;
    list_queue(s, LIST_C, LIST_I, cell);
    list_start_op(s, worker, list_code(cell, LIST_F), now);
    return true;
}

static void start_recompute(struct list_pass *s, uint32_t worker, uint32_t cell, uint64_t now) {
    const struct sim_chunk *c = list_chunk(s->problem, cell);
    s->state[cell] = LIST_BACK;
    s->worker[worker].used += list_need(c) - c->kept;
    s->worker[worker].dropped--;
    list_start_op(s, worker, list_code(cell, LIST_C), now);
}

/* Nothing else to do: recompute ahead of the gradient, oldest first, if its forward is done. */
static void recompute_ahead(struct list_pass *s, uint32_t worker, uint64_t now) {
    struct list_queue_worker *w = &s->worker[worker];
    uint64_t *queue = s->queue[LIST_C] + s->problem->first[worker];
    while (w->waiting[LIST_C] > 0 && s->state[(uint32_t)queue[0]] != LIST_DROPPED)
        list_heap_pop(queue, &w->waiting[LIST_C]);
    if (w->waiting[LIST_C] == 0 || !input_fits(s, worker, (uint32_t)queue[0])) return;
    start_recompute(s, worker, (uint32_t)list_heap_pop(queue, &w->waiting[LIST_C]), now);
}

static void start_choice(struct list_pass *s, uint32_t worker, enum list_op op, uint32_t at, uint64_t now) {
    struct list_queue_worker *w = &s->worker[worker];
    uint64_t *queue = s->queue[op] + s->problem->first[worker];
    uint32_t cell = (uint32_t)queue[at];
    if (op == LIST_I && s->state[cell] == LIST_DROPPED) { /* its C first; its I stays in the queue */
        start_recompute(s, worker, cell, now);
        return;
    }
    heap_take(queue, &w->waiting[op], at);
    if (op == LIST_F) w->used += list_need(list_chunk(s->problem, cell));
    list_start_op(s, worker, list_code(cell, op), now);
}

static void choose(struct list_pass *s, uint32_t worker, uint64_t now) {
    struct list_queue_worker *w = &s->worker[worker];
    struct choice c = {{first_fitting(s, worker, LIST_F), 0, 0}, {false}};
    c.at[LIST_I] = w->dropped > 0 ? first_fitting(s, worker, LIST_I) : 0;
    for (int k = LIST_F; k <= LIST_W; k++) c.ready[k] = c.at[k] < w->waiting[k];
    enum list_op op =
        s->rule.prefer == LIST_BY_KEY ? choose_by_key(s, worker, &c) : choose_by_kind(&s->rule, w, &c);
    if (op != LIST_OPS)
        start_choice(s, worker, op, c.at[op], now);
    else if (!start_dropping(s, worker, now))
        recompute_ahead(s, worker, now);
}

static void arrive(struct list_pass *s, enum list_op arrival, uint32_t cell) {
    enum list_op kind = arrival == LIST_ARRIVAL_F ? LIST_F : LIST_I;
    list_queue(s, kind, kind, cell);
}

void list_send(struct list_pass *s, const struct list_direction *d, uint64_t at, uint64_t delay,
               uint32_t code) {
    if (delay > 0)
        list_event_push(s, at + delay, code);
    else
        d->arrive(s, list_op_of(code), list_cell(code));
}

static void ended(struct list_pass *s, uint32_t cell, enum list_op op, uint64_t now);
static const struct list_direction forward = {choose, arrive, ended};

static void ended(struct list_pass *s, uint32_t cell, enum list_op op, uint64_t now) {
    const struct list_problem *p = s->problem;
    const struct sim_chunk *c = list_chunk(p, cell);
    uint32_t worker = list_host(p, cell);
    list_end_op(s, worker);
    if (op == LIST_F && list_last_chunk(p, cell))
        list_queue(s, LIST_I, LIST_I, cell);
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

void list_forward(struct list_pass *s, const struct list_rule *rule, struct list_schedule *out) {
    const struct list_problem *p = s->problem;
    list_begin(s, rule, out);
    for (uint32_t home = 0; home < p->route->pipelines; home++)
        for (uint32_t m = 0; m < p->microbatches; m++)
            list_queue(s, LIST_F, LIST_F, home * p->chunks * p->microbatches + m);
    list_run(s, &forward);
    list_evaluate(s, out);
}

/* ---- schedules ---- */

pawl_code list_schedule_open(const struct list_problem *p, struct list_schedule *out, struct pawl_error *e) {
    memset(out, 0, sizeof *out);
    uint64_t room = (uint64_t)p->cells * (p->kinds > 3 ? LIST_OPS : p->split ? 3 : 2);
    out->room = room < UINT32_MAX ? (uint32_t)room : UINT32_MAX;
    out->log = malloc(room * sizeof *out->log);
    out->start = malloc((size_t)p->cells * p->kinds * sizeof *out->start);
    if (out->log && out->start) return PAWL_OK;
    list_schedule_close(out);
    return error_set(e, PAWL_MEMORY, 0, "no memory to schedule %u cells", p->cells);
}

void list_schedule_close(struct list_schedule *s) {
    free(s->log);
    free(s->start);
    memset(s, 0, sizeof *s);
}

void list_schedule_copy(const struct list_problem *p, const struct list_schedule *from,
                        struct list_schedule *to) {
    memcpy(to->log, from->log, from->count * sizeof *to->log);
    memcpy(to->start, from->start, (size_t)p->cells * p->kinds * sizeof *to->start);
    to->count = from->count, to->period = from->period, to->excess = from->excess;
}
