/* Messages to events, actions to messages: see conduct.h. */
#include "run/conduct.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "run/conduct_state.h"

/* ---- life ---- */

static pawl_code new_coord(struct conduct *c, const struct conduct_config *config, struct pawl_error *e) {
    struct coord_config coord = config->coord;
    coord.ranks = c->ranks;
    coord.chunks = c->chunks;
    coord.recover = config->recover;
    coord.view = config->view;
    coord.there = config->there;
    return coord_new(&coord, &c->coord, e);
}

pawl_code conduct_new(const struct conduct_config *config, struct conduct_hooks hooks, struct conduct **out,
                      struct pawl_error *e) {
    struct conduct *c = calloc(1, sizeof *c);
    if (c == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for the coordinator");
    c->spec = config->spec;
    c->hooks = hooks;
    c->ranks = config->ranks;
    c->chunks = config->spec->parallel.stages;
    c->incarnation = config->incarnation;
    c->recovered = config->recover;
    c->rank = calloc(c->ranks, sizeof *c->rank);
    c->list = calloc(c->ranks, sizeof *c->list);
    c->claims = calloc((size_t)c->ranks * c->chunks, sizeof *c->claims);
    pawl_code code = PAWL_OK;
    if (c->rank == NULL || c->list == NULL || c->claims == NULL)
        code = error_set(e, PAWL_MEMORY, 0, "no memory for %u ranks", c->ranks);
    if (code == PAWL_OK) code = replan_new(c->spec, c->ranks, config->background, &c->replan, e);
    if (code == PAWL_OK) code = new_coord(c, config, e);
    if (code != PAWL_OK) {
        conduct_free(c);
        return code;
    }
    *out = c;
    return PAWL_OK;
}

void conduct_free(struct conduct *c) {
    if (c == NULL) return;
    coord_free(c->coord);
    replan_plan_free(c->plan);
    replan_plan_free(c->used);
    replan_free(c->replan);
    for (uint32_t r = 0; c->rank != NULL && r < c->ranks; r++) bytes_close(&c->rank[r].address);
    for (uint64_t i = 0; c->claims != NULL && i < (uint64_t)c->ranks * c->chunks; i++)
        bytes_close(&c->claims[i].bits);
    free(c->used_done);
    free(c->claims);
    free(c->list);
    free(c->rank);
    free(c);
}

void conduct_end_with(struct conduct *c, enum conduct_end end, pawl_code code, const char *why) {
    if (c->end != CONDUCT_RUNNING) return;
    c->end = end;
    error_set(&c->error, code, 0, "%s", why);
}

void conduct_tell(struct conduct *c, const uint32_t *ranks, uint32_t count, const struct message *m) {
    if (count > 0) c->hooks.send(c->hooks.context, ranks, count, m);
}

/* ---- actions to messages ---- */

/* Into c->list. */
static uint32_t list_members(struct conduct *c) {
    const bool *members = coord_members(c->coord);
    uint32_t count = 0;
    for (uint32_t r = 0; r < c->ranks; r++)
        if (members[r]) c->list[count++] = r;
    return count;
}

static void tell_members(struct conduct *c, const struct message *m) {
    conduct_tell(c, c->list, list_members(c), m);
}

static void tell_prepare(struct conduct *c, const struct coord_action *a) {
    uint32_t both[2] = {a->rank, a->peer};
    struct message m = {.kind = MESSAGE_PREPARE,
                        .rank = a->rank,
                        .peer = a->peer,
                        .chunk = a->chunk,
                        .view = coord_view(c->coord),
                        .version = a->version};
    conduct_introduce(c, both, 2);
    conduct_tell(c, both, 2, &m);
}

static bool somebody_is_new(const struct conduct *c) {
    const bool *members = coord_members(c->coord);
    for (uint32_t r = 0; r < c->ranks; r++)
        if (members[r] && !c->rank[r].had_go) return true;
    return false;
}

/* For people; the coordinator needs no reason. */
static const char *fence_why(const struct conduct *c) {
    if (c->used == NULL) return c->recovered ? "takeover" : "start";
    if (c->since.died) return "a worker died";
    if (c->since.leaving) return "leave";
    if (c->event == COORD_REDUCED) return c->since.overflow ? "redo" : "undo";
    if (somebody_is_new(c)) return "join";
    return c->since.better ? "better plan" : "nobody got on";
}

static void fence(struct conduct *c, const struct coord_action *a) {
    struct message m = {.kind = MESSAGE_FENCE, .view = a->view};
    struct conduct_note note = {.kind = CONDUCT_NOTE_FENCE, .view = a->view, .why = fence_why(c)};
    conduct_claims_clear(c);
    /* Also to nobody: the launcher learns the view, which another coordinator must go beyond. */
    uint32_t count = list_members(c);
    c->hooks.send(c->hooks.context, c->list, count, &m);
    fault_arrive(FAULT_COORD_FENCE);
    c->hooks.note(c->hooks.context, &note);
}

/* Those that go to all members. */
static enum message_kind kind_for_all(enum coord_action_kind kind) {
    switch (kind) {
    case COORD_DECIDE:
        return MESSAGE_DECIDE;
    case COORD_DURABLE:
        return MESSAGE_DURABLE;
    case COORD_FORGET:
        return MESSAGE_FORGET;
    case COORD_FINISH:
        return MESSAGE_FINISH;
    default:
        return MESSAGE_KIND_END;
    }
}

static void carry_out(struct conduct *c, const struct coord_action *a) {
    struct message m = {.kind = kind_for_all(a->kind),
                        .view = a->view,
                        .version = a->version,
                        .iteration = a->iteration,
                        .verdict = a->verdict,
                        .clip = a->clip,
                        .optimistic = a->optimistic,
                        .chunk = a->chunk,
                        .part = a->part,
                        .parts = a->parts};
    switch (a->kind) {
    case COORD_DECIDE:
        fault_arrive(FAULT_COORD_DECIDE);
        tell_members(c, &m);
        fault_arrive(FAULT_COORD_DECIDED);
        return;
    case COORD_DURABLE:
        fault_arrive(FAULT_COORD_DURABLE);
        tell_members(c, &m);
        return;
    case COORD_FORGET:
        tell_members(c, &m);
        return;
    case COORD_FINISH:
        tell_members(c, &m);
        conduct_end_with(c, CONDUCT_FINISHED, PAWL_OK, "");
        return;
    case COORD_FENCE:
        fence(c, a);
        return;
    case COORD_FIND:
        c->hooks.find(c->hooks.context, a->view);
        return;
    case COORD_PLAN:
        fault_arrive(FAULT_COORD_PLAN);
        c->plan_asked = true;
        return;
    case COORD_GO:
        fault_arrive(FAULT_COORD_GO);
        conduct_go(c, a, c->list, list_members(c));
        return;
    case COORD_SAVE:
        m.kind = MESSAGE_SAVE;
        conduct_tell(c, &a->rank, 1, &m);
        fault_arrive(FAULT_COORD_SAVE);
        return;
    case COORD_PREPARE_FOR:
        c->rank[a->rank].asked_join = true;
        return;
    case COORD_PREPARE:
        tell_prepare(c, a);
        return;
    case COORD_KILL:
        c->hooks.kill(c->hooks.context, a->rank, a->why);
        return;
    case COORD_LEAVE:
        m.kind = MESSAGE_LEAVE;
        conduct_tell(c, &a->rank, 1, &m);
        return;
    case COORD_NEED:
        /* The planner knows how many it takes, the coordinator how many at least. */
        c->hooks.need(c->hooks.context, c->need > a->need ? c->need : a->need, a->why);
        return;
    case COORD_STOP:
        conduct_end_with(c, CONDUCT_STOPPED, a->code, a->why != NULL ? a->why : "the run cannot go on");
        return;
    case COORD_DIED:
        c->since.died = true;
        return;
    case COORD_DECIDED:
        c->since.overflow = false;
        c->better = replan_better(c->replan) || c->better;
        return;
    default:
        return;
    }
}

static void one_action(struct conduct *c, const struct coord_action *action) {
    struct conduct_note note = {.kind = CONDUCT_NOTE_ACTION, .action = *action};
    carry_out(c, action);
    c->hooks.note(c->hooks.context, &note);
}

/* A decision is told to people before the workers hear of it: if this process dies between the two it is
 * decided and told again; the other way round a step that was taken would never be told. */
static void one_step(struct conduct *c, const struct coord_event *event) {
    c->event = event->kind;
    c->since.leaving = c->since.leaving || event->kind == COORD_LEAVING;
    c->since.better = c->since.better || event->kind == COORD_REPLAN;
    if (event->kind == COORD_REDUCED && event->report.overflow > 0) c->since.overflow = true;
    const struct coord_action *actions;
    size_t count = coord_step(c->coord, event, &actions);
    for (size_t i = 0; i < count && c->end == CONDUCT_RUNNING; i++) {
        bool decides =
            actions[i].kind == COORD_DECIDE && i + 1 < count && actions[i + 1].kind == COORD_DECIDED;
        if (decides) one_action(c, &actions[i + 1]);
        one_action(c, &actions[i]);
        i += decides;
    }
}

static bool answer_join(struct conduct *c, struct coord_event *event, struct pawl_error *e) {
    struct replan_question question = {coord_candidates(c->coord), coord_has_state(c->coord)};
    for (uint32_t r = 0; r < c->ranks; r++) {
        if (!c->rank[r].asked_join) continue;
        c->rank[r].asked_join = false;
        event->kind = COORD_PREPARE_AS;
        event->rank = r;
        event->chunk = UINT32_MAX;
        pawl_code code = replan_join(c->replan, r, &question, &event->chunk, e);
        if (code != PAWL_OK) conduct_end_with(c, CONDUCT_STOPPED, code, e->text);
        return true;
    }
    return false;
}

/* What the actions of the last step asked for is answered after all of them have been carried out. */
static bool next_event(struct conduct *c, struct coord_event *event, struct pawl_error *e) {
    int64_t now_ns = event->now_ns;
    *event = (struct coord_event){.now_ns = now_ns};
    if (c->plan_asked) {
        c->plan_asked = false;
        conduct_plan(c, event, e);
        return true;
    }
    if (answer_join(c, event, e)) return true;
    if (!c->better) return false;
    c->better = false;
    event->kind = COORD_REPLAN;
    return true;
}

static void step(struct conduct *c, struct coord_event event) {
    struct pawl_error e; /* an event may point to its text */
    do {
        if (c->end != CONDUCT_RUNNING) return;
        one_step(c, &event);
    } while (next_event(c, &event, &e));
}

/* ---- messages to events ---- */

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
    if (m->view == coord_view(c->coord)) conduct_claim_enter(c, rank, &f, &e);
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
        step(c, *event);
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
        step(c, event);
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
    step(c, (struct coord_event){.kind = COORD_STARTED, .now_ns = now_ns, .rank = rank});
}

void conduct_begin(struct conduct *c, int64_t now_ns) {
    step(c, (struct coord_event){.kind = COORD_BEGIN, .now_ns = now_ns});
}

void conduct_exit(struct conduct *c, uint32_t rank, int64_t now_ns) {
    if (rank >= c->ranks) return;
    struct conduct_rank *r = &c->rank[rank];
    bytes_clear(&r->address);
    r->address_stamp = r->told_stamp = 0;
    r->asked_join = r->had_go = false;
    replan_exited(c->replan, rank);
    step(c, (struct coord_event){.kind = COORD_EXIT, .now_ns = now_ns, .rank = rank});
}

void conduct_found(struct conduct *c, uint64_t view, uint64_t version, uint64_t resume_incarnation,
                   uint64_t incarnation, pawl_code code, const char *why, int64_t now_ns) {
    if (view == coord_view(c->coord) && code == PAWL_OK) {
        c->incarnation = incarnation;
        c->resume_incarnation = resume_incarnation;
    }
    step(c, (struct coord_event){.kind = COORD_FOUND,
                                 .now_ns = now_ns,
                                 .view = view,
                                 .version = version,
                                 .ok = code == PAWL_OK,
                                 .code = code,
                                 .why = why});
}

void conduct_tick(struct conduct *c, int64_t now_ns) {
    step(c, (struct coord_event){.kind = COORD_TICK, .now_ns = now_ns});
}

void conduct_leave(struct conduct *c, uint32_t rank, int64_t now_ns) {
    step(c, (struct coord_event){.kind = COORD_LEAVING, .now_ns = now_ns, .rank = rank});
}

void conduct_stop(struct conduct *c, int64_t now_ns) {
    step(c, (struct coord_event){.kind = COORD_STOPPING, .now_ns = now_ns});
}

enum conduct_end conduct_state(const struct conduct *c) { return c->end; }
const struct pawl_error *conduct_error(const struct conduct *c) { return &c->error; }
const struct coord *conduct_coord(const struct conduct *c) { return c->coord; }
