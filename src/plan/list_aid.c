/* What a worker does, in time order, when only its memory keeps it from running a forward.
 *
 * Recompute: it runs the forward and keeps only the input; the rest is computed again (C) when the gradient
 * is there, or before, when there is nothing else to do. Either only what would not fit whole (LATE), or
 * whatever does not turn round on this worker (EARLY), which leaves room for many more.
 *
 * Offload: it gives up its youngest forward whose copy to the host is complete (O), since that is the last to
 * be needed again, and copies it back (L) when the gradient is there, or before, when no forward waits for
 * the room. Copies run one at a time in each direction, in the order of their forwards and of their L.
 *
 * What is kept of such forwards never leaves less room than one of them needs to come back; all that is
 * stored whole drains by itself; so there is always a way on. */
#include "plan/list.h"

static const struct sim_chunk *chunk(const struct list_pass *s, uint32_t cell) {
    return list_chunk(s->problem, cell);
}

static enum list_state state(const struct list_pass *s, uint32_t cell) {
    return (enum list_state)(s->state[cell] & ~LIST_HERE);
}

static void set_state(struct list_pass *s, uint32_t cell, enum list_state to) {
    s->state[cell] = (uint8_t)((s->state[cell] & LIST_HERE) | to);
}

/* ---- parted: what is stored in part ---- */

static uint64_t part(const struct list_pass *s, uint32_t cell) {
    return list_need(chunk(s, cell)) - chunk(s, cell)->kept;
}

bool list_aid_fits(const struct list_pass *s, uint32_t worker, uint32_t cell) {
    return part(s, cell) <= list_room(s, worker);
}

static bool may_part(const struct list_pass *s, uint32_t worker, uint32_t cell) {
    const struct sim_chunk *c = chunk(s, cell);
    return c->kept < c->full &&
           s->worker[worker].parted_bytes + list_need(c) + list_reserve(s->problem, cell) <=
               list_limit(s->problem, worker);
}

static void add_parted(struct list_pass *s, uint32_t worker, uint32_t cell, enum list_state to) {
    s->worker[worker].parted++;
    s->worker[worker].parted_bytes += chunk(s, cell)->kept;
    set_state(s, cell, to);
}

static void come_back(struct list_pass *s, uint32_t worker, uint32_t cell, enum list_state to) {
    s->worker[worker].parted--;
    s->worker[worker].parted_bytes -= chunk(s, cell)->kept;
    s->worker[worker].used += part(s, cell);
    set_state(s, cell, to);
}

/* The first of a heap that is still in that state; false: none is. */
static bool first_in_state(struct list_pass *s, uint32_t worker, int queue, enum list_state wanted,
                           uint32_t *cell) {
    uint64_t *heap = s->queue[queue] + s->problem->first[worker];
    uint32_t *count = &s->worker[worker].waiting[queue];
    while (*count > 0 && state(s, (uint32_t)heap[0]) != wanted) list_heap_pop(heap, count);
    if (*count == 0) return false;
    *cell = (uint32_t)heap[0];
    return true;
}

/* ---- recompute ---- */

bool list_drops(const struct list_pass *s, uint32_t worker, uint32_t cell) {
    return s->aid[worker] == LIST_RECOMPUTE_EARLY && !list_last_chunk(s->problem, cell) &&
           may_part(s, worker, cell);
}

void list_drop(struct list_pass *s, uint32_t worker, uint32_t cell, uint64_t now) {
    add_parted(s, worker, cell, LIST_DROPPED);
    s->worker[worker].used += chunk(s, cell)->kept;
    list_start_op(s, worker, list_code(cell, LIST_F), now);
    list_queue(s, LIST_RECOMPUTE_QUEUE, LIST_I, cell);
}

static bool drop_blocked(struct list_pass *s, uint32_t worker, uint64_t now) {
    struct list_queue_worker *w = &s->worker[worker];
    if (!list_forward_waits(w)) return false;
    int from = w->waiting[LIST_F] > 0 ? (int)LIST_F : (int)LIST_FIRST_QUEUE;
    uint64_t *queue = s->queue[from] + s->problem->first[worker];
    uint32_t cell = (uint32_t)queue[0];
    if (!may_part(s, worker, cell) || chunk(s, cell)->kept > list_room(s, worker)) return false;
    list_heap_pop(queue, &w->waiting[from]);
    list_drop(s, worker, cell, now);
    return true;
}

void list_recompute(struct list_pass *s, uint32_t worker, uint32_t cell, uint64_t now) {
    come_back(s, worker, cell, LIST_BACK);
    list_start_op(s, worker, list_code(cell, LIST_C), now);
}

static void recompute_ahead(struct list_pass *s, uint32_t worker, uint64_t now) {
    uint32_t cell;
    if (!first_in_state(s, worker, LIST_RECOMPUTE_QUEUE, LIST_DROPPED, &cell)) return;
    if (list_aid_fits(s, worker, cell)) list_recompute(s, worker, cell, now);
}

/* ---- offload ---- */

void list_may_park(struct list_pass *s, uint32_t worker, uint32_t cell) {
    struct list_queue_worker *w = &s->worker[worker];
    s->queue[LIST_PARKABLE][s->problem->first[worker] + w->waiting[LIST_PARKABLE]++] = cell;
}

static uint64_t copied_at(const struct list_pass *s, const struct list_queue_worker *w, uint32_t cell) {
    uint64_t end = list_end(s->problem, s->out, list_code(cell, LIST_F));
    return (end > w->out_free ? end : w->out_free) + chunk(s, cell)->offload;
}

static bool can_park(const struct list_pass *s, uint32_t worker, uint32_t cell) {
    const struct list_queue_worker *w = &s->worker[worker];
    return list_end(s->problem, s->out, list_code(cell, LIST_F)) >= w->out_last && may_part(s, worker, cell);
}

/* The youngest forward whose copy is complete, or LIST_NEVER; forgets those that need no parking any more.
 * `soonest`: when the next copy will be. */
static uint64_t youngest_copied(struct list_pass *s, uint32_t worker, uint64_t now, uint64_t *soonest) {
    struct list_queue_worker *w = &s->worker[worker];
    uint64_t *list = s->queue[LIST_PARKABLE] + s->problem->first[worker], found = LIST_NEVER;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->waiting[LIST_PARKABLE]; i++) {
        uint32_t cell = (uint32_t)list[i];
        if (s->state[cell] != LIST_WHOLE) continue;
        list[kept++] = cell;
        if (!can_park(s, worker, cell)) continue;
        uint64_t at = copied_at(s, w, cell);
        if (at <= now)
            found = cell;
        else if (at < *soonest)
            *soonest = at;
    }
    w->waiting[LIST_PARKABLE] = kept;
    return found;
}

static bool park(struct list_pass *s, uint32_t worker, uint64_t now) {
    struct list_queue_worker *w = &s->worker[worker];
    uint64_t soonest = LIST_NEVER, found;
    found = youngest_copied(s, worker, now, &soonest);
    if (found == LIST_NEVER) { /* one wake at a time; whoever wakes the worker before asks again */
        if (soonest != LIST_NEVER && w->wake_at <= now) {
            w->wake_at = soonest;
            list_event_push(s, soonest, list_code(worker, LIST_WAKE));
        }
        return false;
    }
    uint32_t cell = (uint32_t)found;
    w->out_free = copied_at(s, w, cell);
    w->out_last = list_end(s->problem, s->out, list_code(cell, LIST_F));
    w->used -= part(s, cell);
    add_parted(s, worker, cell, LIST_PARKED);
    list_log_op(s, list_code(cell, LIST_O), now);
    list_heap_push(s->queue[LIST_PARKED_QUEUE] + s->problem->first[worker], &w->waiting[LIST_PARKED_QUEUE],
                   (uint64_t)s->key[LIST_I][cell] << 32 | cell);
    return true;
}

static void load(struct list_pass *s, uint32_t worker, uint32_t cell, uint64_t now) {
    struct list_queue_worker *w = &s->worker[worker];
    come_back(s, worker, cell, LIST_LOADING);
    w->in_free = (w->in_free > now ? w->in_free : now) + chunk(s, cell)->load;
    list_log_op(s, list_code(cell, LIST_L), now);
    list_event_push(s, w->in_free, list_code(cell, LIST_L));
}

void list_load_arrived(struct list_pass *s, uint32_t worker, uint64_t now) {
    uint32_t cell;
    while (first_in_state(s, worker, LIST_LOAD_QUEUE, LIST_PARKED, &cell))
        if (list_aid_fits(s, worker, cell))
            load(s, worker, cell, now);
        else if (!park(s, worker, now)) /* something else makes room */
            return;
}

static void load_ahead(struct list_pass *s, uint32_t worker, uint64_t now) {
    uint32_t cell;
    while (!list_forward_waits(&s->worker[worker]) &&
           first_in_state(s, worker, LIST_PARKED_QUEUE, LIST_PARKED, &cell) && list_aid_fits(s, worker, cell))
        load(s, worker, cell, now);
}

bool list_is_here(struct list_pass *s, uint32_t cell) {
    s->state[cell] |= LIST_HERE;
    if (state(s, cell) == LIST_PARKED) list_queue(s, LIST_LOAD_QUEUE, LIST_I, cell);
    return state(s, cell) != LIST_PARKED && state(s, cell) != LIST_LOADING;
}

void list_loaded(struct list_pass *s, uint32_t cell) {
    set_state(s, cell, LIST_BACK);
    if (s->state[cell] & LIST_HERE) list_queue(s, LIST_I, LIST_I, cell);
}

/* ---- either ---- */

bool list_aid(struct list_pass *s, uint32_t worker, uint64_t now) {
    if (s->aid[worker] != LIST_OFFLOAD) {
        if (!drop_blocked(s, worker, now)) recompute_ahead(s, worker, now);
        return false;
    }
    if (list_forward_waits(&s->worker[worker]) && park(s, worker, now)) return true;
    load_ahead(s, worker, now);
    return false;
}
