/* Fence, find, plan: collect where every member stands, and what is needed to go on from there.
 *
 * The verdict of a half-finished iteration is taken after a fence and not before: what the members hold when
 * they have stopped is what counts. Answers are kept as they come and judged when all are there, for only
 * then a coordinator that took over knows which version is the final one. Whatever happens meanwhile starts
 * the fence again with the next view, so an answer, of a rank or of the driver, is either of this view and
 * awaited, or old and ignored, or wrong. */
#include "coord/state.h"

void coord_fence_start(struct coord *c) {
    c->view++;
    c->phase = PHASE_FENCING;
    c->fence_at = c->now_ns;
    c->suspicion_count = 0;
    c->idle_fence = c->idle;
    c->idle = false;
    c->restoring = c->whole = c->replan = false;
    if (c->recovering) coord_saves_drop(c);
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        struct coord_rank *r = &c->ranks[rank];
        if (r->place == PLACE_READY) {
            r->place = PLACE_MEMBER;
            r->entering = c->members[rank] = true;
            r->join = (struct coord_join){0};
            r->heard_at = c->now_ns;
        }
        r->fenced = c->candidates[rank] = false;
        for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++)
            c->holdings[coord_pair_at(c, rank, chunk)] = (struct coord_holding){0};
    }
    coord_push(c, COORD_FENCE);
}

/* The pairs of an answer; false after STOP. */
static bool enter_pairs(struct coord *c, uint32_t rank, const struct coord_fenced *fenced) {
    for (uint32_t i = 0; i < fenced->pair_count; i++) {
        const struct coord_fenced_pair *pair = &fenced->pairs[i];
        struct coord_holding *holding = NULL;
        if (pair->chunk < c->config.chunks) holding = &c->holdings[coord_pair_at(c, rank, pair->chunk)];
        if (holding == NULL || holding->answered) {
            coord_stop(c, PAWL_INTERNAL, "an answer to a fence with a chunk twice, or of no model");
            return false;
        }
        if (pair->has_report && pair->report.iteration != pair->version) {
            coord_stop(c, PAWL_INTERNAL, "a report of an impossible iteration");
            return false;
        }
        *holding = (struct coord_holding){.answered = true, .answer = *pair};
    }
    return true;
}

static void enter_takeover(struct coord *c, uint32_t rank, const struct coord_fenced *fenced) {
    if (fenced->shift < 0 || fenced->shift > COORD_SHIFT_MAX) {
        coord_stop(c, PAWL_INTERNAL, "an answer to a fence with impossible exponents");
        return;
    }
    c->ranks[rank].optimistic = fenced->optimistic;
    c->ranks[rank].shift = fenced->shift;
    for (uint32_t i = 0; i < fenced->save_count && !coord_over(c); i++)
        coord_saves_recover(c, rank, &fenced->saves[i]);
    if (!fenced->has_durable || (c->has_durable && fenced->durable <= c->durable)) return;
    c->has_durable = true;
    c->durable = fenced->durable;
}

void coord_on_fenced(struct coord *c, const struct coord_event *event) {
    if (event->view < c->view) return;
    struct coord_rank *r = &c->ranks[event->rank];
    if (event->view > c->view || c->phase != PHASE_FENCING || r->fenced) {
        coord_stop(c, PAWL_INTERNAL, "an answer to a fence that was not asked for");
        return;
    }
    if (event->fenced == NULL) {
        coord_stop(c, PAWL_INTERNAL, "an answer to a fence that says nothing");
        return;
    }
    if (!enter_pairs(c, event->rank, event->fenced)) return;
    if (c->recovering) enter_takeover(c, event->rank, event->fenced);
    r->fenced = true;
    coord_progress(c, event->rank);
}

/* Decisions go to all before a fence, so the newest version anybody has is the final one. The shift and the
 * optimism are the members'; a rank that only copied a chunk yet says 0 and careful. */
static void take_over(struct coord *c) {
    size_t pairs = (size_t)c->config.ranks * c->config.chunks;
    c->recovering = false;
    for (size_t pair = 0; pair < pairs; pair++) {
        const struct coord_holding *holding = &c->holdings[pair];
        if (!holding->answered) continue;
        c->running_once = true;
        if (holding->answer.version > c->final) c->final = holding->answer.version;
    }
    if (c->final > c->config.final_version) {
        coord_stop(c, PAWL_INTERNAL, "a rank's final version is beyond the last one");
        return;
    }
    if (c->has_durable && c->durable > c->final) { /* it turned out to be damaged */
        c->has_durable = false;
        c->durable = 0;
    }
    if (c->stopping && c->running_once && c->final < c->target) c->target = c->final + 1;
    c->optimistic = coord_first_optimistic(c);
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        const struct coord_rank *r = &c->ranks[rank];
        bool has_final = false;
        for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++) {
            const struct coord_holding *holding = &c->holdings[coord_pair_at(c, rank, chunk)];
            has_final = has_final || (holding->answered && holding->answer.version == c->final);
        }
        if (!has_final) continue;
        c->optimistic = c->optimistic || (r->optimistic && !c->config.barrier);
        if (r->shift > c->shift) c->shift = r->shift;
    }
}

/* Who has the final version, and the gradient made of it; false after STOP. */
static bool judge_pair(struct coord *c, uint32_t rank, uint32_t chunk) {
    size_t pair = coord_pair_at(c, rank, chunk);
    struct coord_holding *holding = &c->holdings[pair];
    c->has_state[pair] = false;
    if (!holding->answered) return true;
    c->event_rank = rank;
    if (holding->answer.version > c->final) {
        coord_stop(c, PAWL_INTERNAL, "a rank's final version is newer than the coordinator's");
        return false;
    }
    if (holding->answer.version < c->final) return true;
    c->has_state[pair] = true;
    holding->grad = holding->answer.has_report;
    return !holding->grad || coord_report_enter(c, chunk, &holding->answer.report);
}

static bool is_lost(const struct coord *c, uint32_t chunk) {
    for (uint32_t rank = 0; rank < c->config.ranks; rank++)
        if (c->has_state[coord_pair_at(c, rank, chunk)]) return false;
    return true;
}

static void ask_for_plan(struct coord *c) {
    for (uint32_t rank = 0; rank < c->config.ranks; rank++)
        c->candidates[rank] = c->members[rank] && (c->with_leaving || !c->ranks[rank].leaving);
    c->phase = PHASE_PLANNING;
    coord_push(c, COORD_PLAN);
}

static bool any_is_lost(const struct coord *c) {
    for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++)
        if (is_lost(c, chunk)) return true;
    return false;
}

/* From here on the disks say what is durable: a save that ends now is of the past that is left behind. */
static void find(struct coord *c) {
    coord_saves_drop(c);
    c->phase = PHASE_FINDING;
    coord_push(c, COORD_FIND);
}

static void fence_end(struct coord *c) {
    bool recovering = c->recovering;
    if (recovering) take_over(c);
    if (coord_over(c)) return;
    coord_reports_clear(c);
    for (uint32_t rank = 0; rank < c->config.ranks; rank++)
        for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++)
            if (!judge_pair(c, rank, chunk)) return;
    if (any_is_lost(c)) {
        find(c);
        return;
    }
    if (recovering) coord_saves_recovered(c);
    if (!coord_over(c)) ask_for_plan(c);
}

/* Is this the answer of the driver that is awaited? */
static bool is_awaited(struct coord *c, const struct coord_event *event, enum coord_phase phase) {
    if (event->view < c->view) return false;
    if (event->view == c->view && c->phase == phase) return true;
    coord_stop(c, PAWL_INTERNAL, "an answer of the driver that was not asked for");
    return false;
}

/* Nobody has to load what nothing will be made of. */
static bool ends_at_found(const struct coord *c) {
    return c->restoring && c->found > 0 && (c->stopping || c->found == c->config.final_version);
}

void coord_on_found(struct coord *c, const struct coord_event *event) {
    if (!is_awaited(c, event, PHASE_FINDING)) return;
    if (!event->ok) {
        coord_stop(c, event->code != PAWL_OK ? event->code : PAWL_STAGE_LOST,
                   coord_keep(c, event->why, "a chunk has no live holder, and there is no durable step"));
        return;
    }
    if (event->version > c->config.final_version) {
        coord_stop(c, PAWL_ARGUMENT, "the newest durable step is beyond the last one that is asked for");
        return;
    }
    c->found = event->version;
    c->restoring = true;
    if (!ends_at_found(c)) ask_for_plan(c);
}

static bool somebody_leaves(const struct coord *c) {
    for (uint32_t rank = 0; rank < c->config.ranks; rank++)
        if (c->members[rank] && c->ranks[rank].leaving) return true;
    return false;
}

static uint32_t count_at(const struct coord *c, enum coord_place place) {
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) count += c->ranks[rank].place == place;
    return count;
}

/* No plan: with those that came meanwhile, then with those that leave, then with more workers. */
static void do_without_plan(struct coord *c, const struct coord_event *event) {
    if (event->code != PAWL_OK && event->code != PAWL_STAGE_LOST) {
        coord_stop(c, event->code, coord_keep(c, event->why, "there is no plan"));
        return;
    }
    if (count_at(c, PLACE_READY) > 0) {
        c->fence_now = true;
        return;
    }
    if (!c->with_leaving && somebody_leaves(c)) {
        c->with_leaving = true;
        coord_on_stopping(c);
        ask_for_plan(c);
        return;
    }
    uint32_t there = 0;
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) there += c->candidates[rank];
    struct coord_action *need = coord_push(c, COORD_NEED);
    need->need = there < c->config.chunks ? c->config.chunks - there : 1;
    need->why = coord_keep(c, event->why, "too few workers are left");
    if (!c->needing) c->need_at = c->now_ns;
    c->needing = true;
    c->phase = PHASE_NEEDING;
}

static bool is_whole(const struct coord *c, const bool *holds, const uint32_t *own) {
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        bool any = own[rank] != COORD_NOBODY;
        if (any && (own[rank] >= c->config.chunks || !holds[coord_pair_at(c, rank, own[rank])])) return false;
        for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++)
            any = any || holds[coord_pair_at(c, rank, chunk)];
        if (any && !c->candidates[rank]) return false;
    }
    for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++) {
        bool owned = false;
        for (uint32_t rank = 0; rank < c->config.ranks; rank++) owned = owned || own[rank] == chunk;
        if (!owned) return false;
    }
    return true;
}

void coord_on_planned(struct coord *c, const struct coord_event *event) {
    if (!is_awaited(c, event, PHASE_PLANNING)) return;
    if (!event->ok)
        do_without_plan(c, event);
    else if (event->holds == NULL || event->own == NULL || !is_whole(c, event->holds, event->own))
        coord_stop(c, PAWL_INTERNAL, "a plan with a chunk that nobody saves, or a rank that is not there");
    else
        coord_go(c, event->holds, event->own);
}

static bool all_fenced(const struct coord *c) {
    for (uint32_t rank = 0; rank < c->config.ranks; rank++)
        if (c->members[rank] && !c->ranks[rank].fenced) return false;
    return true;
}

/* Whoever was started before may be gone before this coordinator came: then nobody is ever told of, and a
 * fence of nobody asks for workers. */
static bool can_start(const struct coord *c) {
    uint32_t starting = count_at(c, PLACE_STARTING);
    if (starting == 0) return c->ever_started || coord_elapsed(c, c->begun_at) >= c->config.start_ns;
    return c->begin && count_at(c, PLACE_READY) > 0;
}

void coord_fence_advance(struct coord *c) {
    if (ends_at_found(c)) {
        coord_go_back(c);
        c->target = c->final;
        coord_finish(c);
        return;
    }
    if (c->phase == PHASE_STARTING && can_start(c)) coord_fence_start(c);
    if (c->phase == PHASE_NEEDING && count_at(c, PLACE_READY) > 0) coord_fence_start(c);
    if (c->phase != PHASE_FENCING || !all_fenced(c)) return;
    if (coord_silent_dies(c))
        coord_fence_start(c);
    else
        fence_end(c);
}
