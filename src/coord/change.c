/* Changes that nobody suffers from: who comes, who leaves, a better plan.
 *
 * A change needs a fence, and a fence interrupts. So a rank that comes first copies the state it will hold
 * while the others go on; and no change fences a view in which some pair has not yet got what GO promised it
 * (`whole`), for that would throw half a copy or half a load away. Leaving is not put off: it has a deadline.
 * A fence takes in whoever is READY, and asks for the best plan, so one fence serves all changes that wait.
 */
#include "coord/state.h"

#define COPIES_MAX 2u /* the first, and one more when it was overtaken */

void coord_on_started(struct coord *c, const struct coord_event *event) {
    struct coord_rank *r = &c->ranks[event->rank];
    if (r->place != PLACE_ABSENT) {
        if (!r->recovered) coord_stop(c, PAWL_INTERNAL, "a process was started at a place that is taken");
        return;
    }
    r->place = PLACE_STARTING;
    r->since = r->heard_at = c->now_ns;
    c->ever_started = true;
}

void coord_on_ready(struct coord *c, const struct coord_event *event) {
    struct coord_rank *r = &c->ranks[event->rank];
    if (r->place == PLACE_STARTING) {
        r->place = PLACE_READY;
        r->since = c->now_ns;
        c->progress_at = c->now_ns;
    } else if (!r->recovered) {
        coord_stop(c, PAWL_INTERNAL, "a rank was ready twice");
    }
    r->recovered = false;
}

void coord_on_leaving(struct coord *c, const struct coord_event *event) {
    struct coord_rank *r = &c->ranks[event->rank];
    if (r->leaving) return;
    if (r->place != PLACE_MEMBER) {
        coord_rank_clear(c, event->rank);
        r->place = PLACE_LEFT;
        coord_push(c, COORD_LEAVE)->rank = event->rank;
        return;
    }
    r->leaving = true;
    bool holds = false;
    for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++)
        holds = holds || c->pairs[coord_pair_at(c, event->rank, chunk)].held;
    if (c->phase == PHASE_PLANNING) c->fence_now = true;
    if (c->phase == PHASE_RUNNING && holds && c->final < c->target) c->fence_now = true;
}

/* ---- joins ---- */

void coord_on_prepare_as(struct coord *c, const struct coord_event *event) {
    struct coord_join *join = &c->ranks[event->rank].join;
    if (c->ranks[event->rank].place != PLACE_READY || join->state != JOIN_ASKED) return;
    if (event->chunk != COORD_NOBODY && event->chunk >= c->config.chunks) {
        coord_stop(c, PAWL_INTERNAL, "the driver prepares a rank for a chunk that does not exist");
        return;
    }
    join->state = event->chunk == COORD_NOBODY ? JOIN_DONE : JOIN_TOLD;
    join->chunk = event->chunk;
}

static void copy(struct coord *c, uint32_t rank) {
    struct coord_join *join = &c->ranks[rank].join;
    uint32_t holder = 0;
    while (!c->pairs[coord_pair_at(c, holder, join->chunk)].held) holder++; /* there is one: invariant */
    join->state = JOIN_COPYING;
    join->version = c->final;
    join->copies++;
    struct coord_action *action = coord_push(c, COORD_PREPARE);
    action->rank = rank;
    action->peer = holder;
    action->chunk = join->chunk;
    action->version = c->final;
}

void coord_joins_copy(struct coord *c) {
    if (c->final == c->target) return;
    for (uint32_t rank = 0; rank < c->config.ranks; rank++)
        if (c->ranks[rank].place == PLACE_READY && c->ranks[rank].join.state == JOIN_TOLD) copy(c, rank);
}

void coord_on_prepared(struct coord *c, const struct coord_event *event) {
    struct coord_rank *r = &c->ranks[event->rank];
    struct coord_join *join = &r->join;
    if (r->place == PLACE_MEMBER || join->state == JOIN_DONE) return; /* a fence, or the time, was first */
    if (join->state != JOIN_COPYING || event->chunk != join->chunk || event->version != join->version) {
        coord_stop(c, PAWL_INTERNAL, "a copy is complete that was not asked for");
        return;
    }
    if (join->version < c->final && join->copies < COPIES_MAX && c->phase == PHASE_RUNNING)
        copy(c, event->rank);
    else
        join->state = JOIN_DONE;
}

void coord_joins_judge(struct coord *c) {
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        struct coord_rank *r = &c->ranks[rank];
        if (r->place == PLACE_READY && coord_elapsed(c, r->since) >= c->config.join_ns)
            r->join.state = JOIN_DONE;
    }
}

static void ask_joiners(struct coord *c) {
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        struct coord_rank *r = &c->ranks[rank];
        if (r->place != PLACE_READY || r->join.state != JOIN_NONE) continue;
        r->join.state = JOIN_ASKED;
        coord_push(c, COORD_PREPARE_FOR)->rank = rank;
    }
}

/* Somebody waits to come in, and nobody has to be waited for. */
static bool joins_are_done(const struct coord *c) {
    bool any = false;
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        if (c->ranks[rank].place != PLACE_READY) continue;
        if (c->ranks[rank].join.state != JOIN_DONE) return false;
        any = true;
    }
    return any;
}

static bool somebody_joins(const struct coord *c) {
    for (uint32_t rank = 0; rank < c->config.ranks; rank++)
        if (c->ranks[rank].place == PLACE_READY) return true;
    return false;
}

/* ---- leaves ---- */

static bool is_needed(const struct coord *c, uint32_t rank) {
    for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++)
        if (c->pairs[coord_pair_at(c, rank, chunk)].held) return true;
    return coord_saves_awaited(c, rank);
}

/* The view is whole. */
static void let_go(struct coord *c) {
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        if (!c->members[rank] || !c->ranks[rank].leaving || is_needed(c, rank)) continue;
        coord_rank_clear(c, rank);
        c->ranks[rank].place = PLACE_LEFT;
        coord_push(c, COORD_LEAVE)->rank = rank;
    }
}

void coord_changes_advance(struct coord *c) {
    if (c->phase != PHASE_RUNNING) return;
    if (c->final < c->target) ask_joiners(c);
    /* Broadcasts of this step are for those who are members now: nobody goes or comes in the same step. */
    if (!c->whole || c->action_count > 0) return;
    let_go(c);
    if (c->final == c->target) return;
    if (joins_are_done(c) || (c->replan && !somebody_joins(c))) coord_fence_start(c);
}
