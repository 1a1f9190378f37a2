/* Saves of a worker: parts of its own chunk's versions, written by the checkpoint engine straight from where
 * they lie, and what it has been asked for and not been told the end of. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "run/persist.h"
#include "run/worker_state.h"

#define EVENTS 16 /* taken from the engine at once; more at the next poll */

/* Opening makes durable what a process before this one may have left (flushes): it is done before READY, so
 * that nobody waits for it. */
pawl_code worker_open_ckpt(struct worker *w, struct pawl_error *e) {
    struct ckpt_config config = {
        .in_flight = w->spec.save.in_flight, .keep = w->spec.save.keep, .background = w->env.background};
    memcpy(config.run_id, w->run_id, sizeof config.run_id);
    pawl_code code = persist_sizes(&w->spec, &config, e);
    return code == PAWL_OK ? ckpt_open(&config, w->own_store, &w->ckpt, e) : code;
}

/* Saves under way are given up, and what the worker was asked for: they are of versions that are undone. */
static pawl_code reopen(struct worker *w, struct pawl_error *e) {
    worker_set_work(w, COORD_WORK_SAVE);
    ckpt_close(w->ckpt, 0, NULL);
    w->ckpt = NULL;
    for (uint32_t i = 0; i < w->save_count; i++) versions_drop(w->saves[i].held);
    w->save_count = 0;
    w->save_operations = 0;
    pawl_code code = worker_open_ckpt(w, e);
    worker_set_work(w, COORD_WORK_STEP);
    return code;
}

/* A rank that returns to a step needs nothing newer of what its store holds. One that comes while the others
 * go on must keep newer parts, which a process before it may have written: they count in saves that are not
 * durable yet. */
pawl_code worker_enter_ckpt(struct worker *w, struct pawl_error *e) {
    bool entered = w->incarnation != 0;
    if (entered && !w->go.restore && w->go.incarnation != w->incarnation)
        return error_set(e, PAWL_INTERNAL, 0, "told to go on in incarnation %llu, it saves for %llu",
                         (unsigned long long)w->go.incarnation, (unsigned long long)w->incarnation);
    if (entered && !w->go.restore) return PAWL_OK;
    pawl_code code = entered ? reopen(w, e) : PAWL_OK;
    if (code != PAWL_OK) return code;
    w->incarnation = w->go.incarnation;
    w->has_durable = w->go.durable > 0;
    w->durable = w->go.durable;
    ckpt_enter(w->ckpt, w->go.incarnation, w->go.restore ? w->go.version : 0);
    if (w->has_durable && !w->go.restore) ckpt_durable(w->ckpt, w->durable);
    return PAWL_OK;
}

static pawl_code answer(struct worker *w, const struct worker_save *s, struct message m,
                        const struct pawl_error *why, struct pawl_error *e) {
    m.kind = MESSAGE_SAVED;
    m.version = s->version;
    m.chunk = s->chunk;
    m.part = s->part;
    m.parts = s->parts;
    m.text = m.code == PAWL_OK ? "" : why->text;
    return channel_send(w->env.channel, &m, e);
}

static void remove_save(struct worker *w, uint32_t i) { w->saves[i] = w->saves[--w->save_count]; }

/* The part's fate is known: tell it, and keep it until the worker is told the version's. */
static pawl_code conclude(struct worker *w, uint32_t i, struct message m, const struct pawl_error *why,
                          struct pawl_error *e) {
    struct worker_save *s = &w->saves[i];
    versions_drop(s->held);
    s->held = NULL;
    s->state = SAVE_ANSWERED;
    s->ok = m.code == PAWL_OK;
    pawl_code code = answer(w, s, m, why, e);
    if (s->told_end || (w->has_durable && s->version <= w->durable)) remove_save(w, i);
    return code;
}

/* A queued part whose version is there begins; one whose version has passed by never will. */
static pawl_code start(struct worker *w, uint32_t i, struct pawl_error *e) {
    struct worker_save *s = &w->saves[i];
    const struct holding *h = worker_find(w, s->chunk);
    struct pawl_error why = {.text = "the version is no longer held"};
    bool passed = h == NULL || h->use != HOLDING_PLANNED || (h->base != NULL && h->base->number > s->version);
    if (passed) return conclude(w, i, (struct message){.code = PAWL_CANCELLED}, &why, e);
    if (h->base == NULL || h->base->number < s->version) return PAWL_OK;
    struct persist_part part = {s->part, s->parts, s->tag};
    pawl_code code = persist_save(w->ckpt, &w->spec, h->stage, h->base, part, &why);
    if (code != PAWL_OK) return conclude(w, i, (struct message){.code = code}, &why, e);
    s->state = SAVE_WRITING;
    s->held = h->base;
    versions_hold(h->base);
    return PAWL_OK;
}

static pawl_code start_queued(struct worker *w, struct pawl_error *e) {
    if (w->phase == WORKER_FENCED) return PAWL_OK; /* GO says what is held */
    pawl_code code = PAWL_OK;
    for (uint32_t i = w->save_count; i-- > 0 && code == PAWL_OK;)
        if (w->saves[i].state == SAVE_QUEUED) code = start(w, i, e);
    return code;
}

static struct worker_save *same_part(struct worker *w, const struct message *m) {
    for (uint32_t i = 0; i < w->save_count; i++) {
        struct worker_save *s = &w->saves[i];
        if (s->version == m->version && s->chunk == m->chunk && s->part == m->part && s->parts == m->parts &&
            !s->told_end)
            return s;
    }
    return NULL;
}

pawl_code worker_save(struct worker *w, const struct message *m, struct pawl_error *e) {
    if (m->part >= m->parts)
        return error_set(e, PAWL_FORMAT, 0, "told to save part %u of %u", m->part, m->parts);
    struct worker_save *s = same_part(w, m);
    if (s != NULL && s->state == SAVE_ANSWERED && s->ok) return answer(w, s, (struct message){0}, NULL, e);
    if (s != NULL && s->state != SAVE_ANSWERED) return PAWL_OK; /* it will be answered */
    if (s == NULL) {
        if (w->save_count == w->save_room) {
            uint32_t room = w->save_room * 2 + 4;
            struct worker_save *more = realloc(w->saves, room * sizeof *more);
            if (more == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u saves", room);
            w->saves = more;
            w->save_room = room;
        }
        s = &w->saves[w->save_count++];
    }
    *s = (struct worker_save){
        .version = m->version, .tag = ++w->save_tag, .chunk = m->chunk, .part = m->part, .parts = m->parts};
    return start_queued(w, e);
}

static pawl_code take_event(struct worker *w, const struct ckpt_event *event, struct pawl_error *e) {
    for (uint32_t i = 0; i < w->save_count; i++) {
        if (w->saves[i].state != SAVE_WRITING || w->saves[i].tag != event->tag) continue;
        struct message m = {.code = event->code, .bytes = event->bytes, .write_ns = event->total_ns};
        return conclude(w, i, m, &event->error, e);
    }
    return error_set(e, PAWL_INTERNAL, 0, "a save ended that was not begun: step %llu",
                     (unsigned long long)event->step);
}

pawl_code worker_saves_poll(struct worker *w, bool *worked, struct pawl_error *e) {
    pawl_code code = start_queued(w, e);
    if (code != PAWL_OK || w->ckpt == NULL) return code;
    struct ckpt_event events[EVENTS];
    uint32_t count = ckpt_poll(w->ckpt, events, EVENTS);
    uint64_t operations = ckpt_progress(w->ckpt);
    if (operations != w->save_operations) { /* a long save is progress, too */
        w->save_operations = operations;
        atomic_fetch_add_explicit(&w->progress, 1, memory_order_relaxed);
    }
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) code = take_event(w, &events[i], e);
    *worked = *worked || count > 0;
    return code;
}

void worker_saves_durable(struct worker *w, uint64_t version) {
    if (w->has_durable && version <= w->durable) return;
    w->has_durable = true;
    w->durable = version;
    if (w->ckpt != NULL) ckpt_durable(w->ckpt, version);
    for (uint32_t i = w->save_count; i-- > 0;)
        if (w->saves[i].state == SAVE_ANSWERED && w->saves[i].version <= version) remove_save(w, i);
}

void worker_saves_forget(struct worker *w, uint64_t version) {
    if (w->ckpt != NULL) ckpt_forget(w->ckpt, version);
    for (uint32_t i = w->save_count; i-- > 0;) {
        if (w->saves[i].version != version) continue;
        if (w->saves[i].state == SAVE_WRITING)
            w->saves[i].told_end = true;
        else
            remove_save(w, i);
    }
}

bool worker_saves_writing(const struct worker *w) {
    for (uint32_t i = 0; i < w->save_count; i++)
        if (w->saves[i].state == SAVE_WRITING) return true;
    return false;
}
