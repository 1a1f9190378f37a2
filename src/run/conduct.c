/* Life, and what the coordinator decides: actions to messages. See conduct.h. */
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

void conduct_step(struct conduct *c, struct coord_event event) {
    struct pawl_error e; /* an event may point to its text */
    do {
        if (c->end != CONDUCT_RUNNING) return;
        one_step(c, &event);
    } while (next_event(c, &event, &e));
}

enum conduct_end conduct_state(const struct conduct *c) { return c->end; }
const struct pawl_error *conduct_error(const struct conduct *c) { return &c->error; }
const struct coord *conduct_coord(const struct conduct *c) { return c->coord; }
