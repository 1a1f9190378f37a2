/* Fence and go: the start, and the one way back after a death, an undo or a redo.
 *
 * A fence collects from every live rank where it stands; GO says where all start. The verdict of a
 * half-finished iteration is taken here and not before: what the live ranks hold when they have stopped
 * is what counts. A rank that GO sent to a peer for its gradient, and that is fenced before it got it, is a
 * version behind and counts as dead: nobody may hold anything but the final version. */
#include "coord/state.h"

/* What a redo lowers the exponents by. */
#define SHIFT_STEP 16

/* No finite gradient can overflow at this shift. Exponents lie below 62 + 149 (the smallest peak of a float
 * is 2^-149); below 62 - 128 - 64 (values up to 2^128, up to 2^64 contributions) every finite float is in
 * range: 211 + 130 = 341, rounded up to a multiple of 16. */
#define SHIFT_MAX 352

static void go(struct coord *c, struct coord_action action) {
    c->phase = PHASE_RUNNING;
    action.kind = COORD_GO;
    action.view = c->view;
    for (uint32_t rank = 0; rank < c->rank_count; rank++) {
        struct coord_member *member = &c->members[rank];
        c->has_grad[rank] = action.settle && c->live[rank] && member->holds;
        member->fetching = action.settle && c->live[rank] && !member->holds;
        member->fenced = member->holds = false;
    }
    coord_clocks_restart(c);
    coord_push_live(c, action);
}

/* Iteration `final` (again) from its beginning. */
static void go_restart(struct coord *c) {
    coord_reports_clear(c);
    go(c, (struct coord_action){
              .version = c->final, .clip = 1.0f, .shift = c->shift, .optimistic = c->optimistic});
}

static void go_settle(struct coord *c, const struct coord_outcome *outcome) {
    go(c, (struct coord_action){.version = c->final + 1,
                                .iteration = c->final,
                                .verdict = outcome->verdict,
                                .clip = outcome->clip,
                                .optimistic = coord_next_optimistic(c, outcome),
                                .settle = true});
    coord_make_final(c, outcome);
}

void coord_on_ready(struct coord *c, const struct coord_event *event) {
    struct coord_member *member = &c->members[event->rank];
    if (c->phase != PHASE_STARTING || member->ready) {
        coord_stop(c, PAWL_INTERNAL, "a rank was ready twice");
        return;
    }
    member->ready = true;
    coord_progress(c, event->rank);
}

void coord_on_fenced(struct coord *c, const struct coord_event *event) {
    if (event->view < c->view) return;
    struct coord_member *member = &c->members[event->rank];
    if (event->view > c->view || c->phase != PHASE_FENCING || member->fenced) {
        coord_stop(c, PAWL_INTERNAL, "an answer to a fence that was not asked for");
        return;
    }
    if (member->fetching && !event->has_report && event->version < c->final &&
        event->version + 1 == c->final) {
        coord_death(c, event->rank, false, "fenced before it had the gradient to settle");
        return;
    }
    if (event->version != c->final) {
        coord_stop(c, PAWL_INTERNAL, "a rank's final version is not the coordinator's");
        return;
    }
    if (event->has_report && !coord_report_enter(c, event->rank, &event->report)) return;
    member->fenced = true;
    member->holds = event->has_report;
    member->fetching = false;
    coord_progress(c, event->rank);
}

void coord_fence_start(struct coord *c) {
    c->view++;
    c->phase = PHASE_FENCING;
    c->fence_at = c->now_ns;
    c->suspicion_count = 0;
    for (uint32_t rank = 0; rank < c->rank_count; rank++) {
        c->members[rank].fenced = false;
        c->members[rank].holds = false;
    }
    coord_push_live(c, (struct coord_action){.kind = COORD_FENCE, .view = c->view});
}

static bool all_fenced(const struct coord *c) {
    for (uint32_t rank = 0; rank < c->rank_count; rank++)
        if (c->live[rank] && !c->members[rank].fenced) return false;
    return true;
}

static bool stage_is_held(const struct coord *c, uint32_t stage) {
    for (uint32_t rank = stage; rank < c->rank_count; rank += c->config.stages)
        if (c->live[rank] && c->members[rank].holds) return true;
    return false;
}

static bool every_stage_is_held(const struct coord *c) {
    for (uint32_t stage = 0; stage < c->config.stages; stage++)
        if (!stage_is_held(c, stage)) return false;
    return true;
}

static void fence_end(struct coord *c) {
    if (c->final == c->target || !every_stage_is_held(c)) {
        go_restart(c);
        return;
    }
    struct coord_outcome outcome = coord_judge(c);
    if (!outcome.redo) {
        go_settle(c, &outcome);
        return;
    }
    if (c->shift + SHIFT_STEP > SHIFT_MAX) {
        coord_stop(c, PAWL_INTERNAL, "gradient sums overflow whatever the exponents");
        return;
    }
    c->shift += SHIFT_STEP;
    c->optimistic = coord_next_optimistic(c, &outcome);
    c->idle_fences = 0;
    go_restart(c);
}

static bool all_ready(const struct coord *c) {
    for (uint32_t rank = 0; rank < c->rank_count; rank++)
        if (c->live[rank] && !c->members[rank].ready) return false;
    return true;
}

static void start(struct coord *c) {
    c->view = 1;
    if (c->final < c->target) {
        go_restart(c);
        return;
    }
    c->phase = PHASE_RUNNING; /* nothing to train: only the last save may be left */
    coord_clocks_restart(c);
}

void coord_fence_advance(struct coord *c) {
    if (c->phase == PHASE_STARTING && all_ready(c)) start(c);
    if (c->phase == PHASE_FENCING && all_fenced(c)) fence_end(c);
}
