/* What is heard: messages of workers and of the launcher to events of the coordinator. */
#include <stdlib.h>
#include <string.h>

#include "run/conduct_state.h"

static void learn_address(struct conduct *c, uint32_t rank, const struct message *m) {
    struct conduct_rank *r = &c->rank[rank];
    if (r->address_stamp != 0 && r->address.size == m->data_bytes &&
        memcmp(r->address.data, m->data, m->data_bytes) == 0)
        return;
    bytes_clear(&r->address);
    bytes_put(&r->address, m->data, m->data_bytes);
    r->address_stamp = ++c->stamp;
    if (r->address.failed)
        conduct_end_with(c, CONDUCT_STOPPED, PAWL_MEMORY, "no memory for the address of a worker");
}

/* What would happen on every worker alike is the run's failure, not the worker's. A mistake in the code that
 * is trained may be that; the second time at the same step it is. */
static void failed(struct conduct *c, const struct message *m) {
    uint64_t step_now = coord_final(c->coord) + 1;
    bool ours = m->code == PAWL_USER || m->code == PAWL_INTERNAL || m->code == PAWL_DIVERGED;
    bool again = ours && c->failed_at[m->code] == step_now;
    c->failed_at[m->code] = step_now;
    if (pawl_code_next(m->code) == PAWL_NEXT_REJECT) {
        conduct_end_with(c, CONDUCT_STOPPED, m->code, m->text);
    } else if (again && c->end == CONDUCT_RUNNING) {
        c->end = CONDUCT_STOPPED;
        error_set(&c->error, m->code, 0, "%s (twice at step %llu: it is not tried again)", m->text,
                  (unsigned long long)coord_final(c->coord));
    }
}

static void measured(struct conduct *c, uint32_t rank, const struct message *m) {
    struct measure_report report;
    struct pawl_error e;
    if (measure_decode(m->data, m->data_bytes, &report, &e) == PAWL_OK)
        replan_measured(c->replan, rank, &report);
    else
        c->hooks.kill(c->hooks.context, rank, e.text);
}

static void fenced(struct conduct *c, uint32_t rank, const struct message *m, struct coord_event *event) {
    struct fenced f;
    struct pawl_error e;
    if (fenced_decode(m->data, m->data_bytes, &f, &e) != PAWL_OK) {
        fenced_close(&f);
        c->hooks.kill(c->hooks.context, rank, e.text);
        return;
    }
    if (m->view == coord_view(c->coord)) {
        conduct_claim_enter(c, rank, &f, &e);
        if (f.incarnation > c->entered) c->entered = f.incarnation;
    }
    struct coord_fenced_pair *pairs = calloc((size_t)f.pair_count + 1, sizeof *pairs);
    for (uint32_t i = 0; pairs != NULL && i < f.pair_count; i++) pairs[i] = f.pairs[i].pair;
    struct coord_fenced answer = {.pairs = pairs,
                                  .pair_count = f.pair_count,
                                  .saves = f.saves,
                                  .save_count = f.save_count,
                                  .has_durable = f.has_durable,
                                  .durable = f.durable,
                                  .optimistic = f.optimistic,
                                  .shift = f.shift};
    event->kind = COORD_FENCED;
    event->fenced = &answer;
    if (pairs == NULL)
        conduct_end_with(c, CONDUCT_STOPPED, PAWL_MEMORY, "no memory for the answer to a fence");
    else
        conduct_step(c, *event);
    free(pairs);
    fenced_close(&f);
}

/* COORD_EVENT_COUNT: the message is no event by itself. */
static enum coord_event_kind event_of(enum message_kind kind) {
    switch (kind) {
    case MESSAGE_READY:
        return COORD_READY;
    case MESSAGE_BEAT:
        return COORD_BEAT;
    case MESSAGE_REDUCED:
        return COORD_REDUCED;
    case MESSAGE_PREPARED:
        return COORD_PREPARED;
    case MESSAGE_SAVED:
        return COORD_SAVED;
    case MESSAGE_SUSPECT:
        return COORD_SUSPECT;
    case MESSAGE_LEAVING:
        return COORD_LEAVING;
    default:
        return COORD_EVENT_COUNT;
    }
}

void conduct_message(struct conduct *c, uint32_t rank, const struct message *m, int64_t now_ns) {
    struct coord_event event = {.kind = event_of(m->kind),
                                .now_ns = now_ns,
                                .rank = rank,
                                .peer = m->peer,
                                .chunk = m->chunk,
                                .view = m->view,
                                .version = m->version,
                                .progress = m->progress,
                                .work = m->work,
                                .part = m->part,
                                .parts = m->parts,
                                .busy = m->busy,
                                .ok = m->code == PAWL_OK,
                                .report = m->report};
    if (rank >= c->ranks) return;
    if (m->kind == MESSAGE_BEAT) c->rank[rank].at = m->at;
    if (event.kind != COORD_EVENT_COUNT)
        conduct_step(c, event);
    else if (m->kind == MESSAGE_ADDRESS)
        learn_address(c, rank, m);
    else if (m->kind == MESSAGE_FAILED)
        failed(c, m);
    else if (m->kind == MESSAGE_FENCED)
        fenced(c, rank, m, &event);
    else if (m->kind == MESSAGE_MEASURED)
        measured(c, rank, m);
    else
        c->hooks.kill(c->hooks.context, rank, "sent a message that is not a worker's");
}

void conduct_started(struct conduct *c, uint32_t rank, int64_t now_ns) {
    if (rank >= c->ranks) return;
    struct conduct_note known = {.kind = CONDUCT_NOTE_KNOWN, .action = {.rank = rank}};
    c->rank[rank].at = (struct message_at){0};
    c->hooks.note(c->hooks.context, &known);
    conduct_step(c, (struct coord_event){.kind = COORD_STARTED, .now_ns = now_ns, .rank = rank});
}

void conduct_begin(struct conduct *c, int64_t now_ns) {
    conduct_step(c, (struct coord_event){.kind = COORD_BEGIN, .now_ns = now_ns});
}

void conduct_exit(struct conduct *c, uint32_t rank, int64_t now_ns) {
    if (rank >= c->ranks) return;
    struct conduct_rank *r = &c->rank[rank];
    bytes_clear(&r->address);
    r->address_stamp = r->told_stamp = 0;
    r->asked_join = r->had_go = false;
    replan_exited(c->replan, rank);
    conduct_step(c, (struct coord_event){.kind = COORD_EXIT, .now_ns = now_ns, .rank = rank});
}

void conduct_found(struct conduct *c, uint64_t view, uint64_t version, uint64_t resume_incarnation,
                   uint64_t incarnation, pawl_code code, const char *why, int64_t now_ns) {
    if (view == coord_view(c->coord) && code == PAWL_OK) {
        c->incarnation = incarnation;
        c->resume_incarnation = resume_incarnation;
    }
    conduct_step(c, (struct coord_event){.kind = COORD_FOUND,
                                         .now_ns = now_ns,
                                         .view = view,
                                         .version = version,
                                         .ok = code == PAWL_OK,
                                         .code = code,
                                         .why = why});
}

void conduct_tick(struct conduct *c, int64_t now_ns) {
    conduct_step(c, (struct coord_event){.kind = COORD_TICK, .now_ns = now_ns});
}

void conduct_leave(struct conduct *c, uint32_t rank, int64_t now_ns) {
    conduct_step(c, (struct coord_event){.kind = COORD_LEAVING, .now_ns = now_ns, .rank = rank});
}

void conduct_stop(struct conduct *c, int64_t now_ns) {
    conduct_step(c, (struct coord_event){.kind = COORD_STOPPING, .now_ns = now_ns});
}
