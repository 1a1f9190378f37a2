/* What a pass needs in either direction: its workspace, ready queues, and the events that drive it.
 *
 * All that happens at one instant is entered before anybody chooses. O(n log n) for n operations; the heaps
 * are small because micro-batches come nearly in order. Nothing is allocated during a pass. */
#include "plan/list.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- heaps ---- */

void list_heap_push(uint64_t *heap, uint32_t *count, uint64_t item) {
    uint32_t at = (*count)++;
    for (; at > 0 && heap[(at - 1) / 2] > item; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = item;
}

/* Remove the item at `at`. */
uint64_t list_heap_take(uint64_t *heap, uint32_t *count, uint32_t at) {
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

uint64_t list_heap_pop(uint64_t *heap, uint32_t *count) { return list_heap_take(heap, count, 0); }

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

static int queue_count(const struct list_problem *p) {
    if (p->kinds > 3) return LIST_QUEUES;
    return p->reserve ? LIST_FIRST_QUEUE + 1 : LIST_FIRST_QUEUE;
}

/* A worker has one operation running and at most one wake, a cell two messages and a copy under way. */
static size_t event_room(const struct list_problem *p) {
    size_t room = 2 * (size_t)p->workers;
    for (uint32_t c = 0; c < p->chunks; c++)
        if (p->costs->chunk[c].send_forward + p->costs->chunk[c].send_backward > 0) {
            room += 2 * (size_t)p->cells;
            break;
        }
    return p->kinds > 3 ? room + p->cells : room;
}

pawl_code list_pass_open(const struct list_problem *p, struct list_pass *out, struct pawl_error *e) {
    memset(out, 0, sizeof *out);
    out->problem = p;
    bool memory = true;
    for (int k = 0; k < 3; k++) memory &= (out->key[k] = malloc(p->cells * sizeof *out->key[k])) != NULL;
    for (int k = 0; k < queue_count(p); k++)
        memory &= (out->queue[k] = malloc(p->cells * sizeof *out->queue[k])) != NULL;
    out->worker = calloc(p->workers, sizeof *out->worker);
    out->event = malloc(event_room(p) * sizeof *out->event);
    out->dirty = malloc(p->workers * sizeof *out->dirty);
    out->state = calloc(p->cells, sizeof *out->state);
    out->release = calloc(p->workers, sizeof *out->release);
    out->aid = calloc(p->workers, sizeof *out->aid);
    out->scratch =
        malloc((2 * ((size_t)p->workers + p->route->stages) + 3 * (size_t)p->chunks) * sizeof *out->scratch);
    if (memory && out->worker && out->event && out->dirty && out->state && out->release && out->aid &&
        out->scratch)
        return PAWL_OK;
    list_pass_close(out);
    return error_set(e, PAWL_MEMORY, 0, "no memory to schedule %u cells", p->cells);
}

void list_pass_close(struct list_pass *s) {
    for (int k = 0; k < 3; k++) free(s->key[k]);
    for (int k = 0; k < LIST_QUEUES; k++) free(s->queue[k]);
    free(s->worker);
    free(s->event);
    free(s->dirty);
    free(s->state);
    free(s->release);
    free(s->aid);
    free(s->scratch);
    memset(s, 0, sizeof *s);
}

/* Older micro-batches first; of the same age the worker's own first, or its guests. */
void list_keys(struct list_pass *s, bool guests_first) {
    const struct list_problem *p = s->problem;
    uint32_t homes = p->route->pipelines;
    for (uint32_t cell = 0; cell < p->cells; cell++) {
        uint32_t home = cell / (p->chunks * p->microbatches);
        if (!list_is_there(p, cell)) continue;
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
    list_heap_push(s->queue[queue] + s->problem->first[worker], &s->worker[worker].waiting[queue],
                   (uint64_t)s->key[key][cell] << 32 | cell);
    mark(s, worker);
}

void list_log_op(struct list_pass *s, uint32_t code, uint64_t now) {
    struct list_schedule *out = s->out;
    assert(out->count < out->room);
    out->log[out->count++] = code;
    *list_start(s->problem, out, code) = now;
}

void list_start_op(struct list_pass *s, uint32_t worker, uint32_t code, uint64_t now) {
    assert(!s->worker[worker].busy);
    s->worker[worker].busy = true;
    list_log_op(s, code, now);
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

/* Looked at now and then: passes of millions of operations take seconds. */
static bool is_stopped(const struct list_pass *s, uint32_t *instants) {
    return ++*instants % 64 == 0 && s->stop != NULL && __atomic_load_n(s->stop, __ATOMIC_RELAXED);
}

void list_run(struct list_pass *s, const struct list_direction *d) {
    uint32_t instants = 0;
    choose_all(s, d, 0);
    while (s->event_count > 0 && !is_stopped(s, &instants)) {
        uint64_t now = s->event[0].at;
        while (s->event_count > 0 && s->event[0].at == now) enter(s, d, event_pop(s));
        choose_all(s, d, now);
    }
}

void list_send(struct list_pass *s, const struct list_direction *d, uint64_t at, uint64_t delay,
               uint32_t code) {
    if (delay > 0)
        list_event_push(s, at + delay, code);
    else
        d->arrive(s, list_op_of(code), list_cell(code));
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
