/* Who is alive: exits, beats, progress, suspicion. Silence is judged at a TICK only.
 *
 * Each phase has its limit: start_ns to be READY, stall_ns to answer a fence (whatever the rank's beats
 * say), stall_ns of being busy without progress while iterations run, beat_ns of silence after the start.
 * A coordinator that was itself stopped (suspended machine, SIGSTOP) sees everybody silent at once; the
 * TICK after a gap of more than beat_ns between two steps therefore starts all clocks anew, once in a row.
 *
 * Suspicion kills one rank per view: the most accused, so that a rank cut off from everybody, which
 * accuses everybody, falls itself. The fence that follows forgets the rest. */
#include "coord/state.h"

void coord_progress(struct coord *c, uint32_t rank) {
    c->members[rank].progress_at = c->now_ns;
    c->progress_at = c->now_ns;
}

void coord_clocks_restart(struct coord *c) {
    c->progress_at = c->now_ns;
    c->fence_at = c->now_ns;
    for (uint32_t rank = 0; rank < c->rank_count; rank++) {
        struct coord_member *member = &c->members[rank];
        member->heard_at = member->progress_at = c->now_ns;
        member->busy = false; /* until it says so again */
    }
}

void coord_death(struct coord *c, uint32_t rank, bool exited, const char *why) {
    COORD_MUST(c->live[rank]);
    uint32_t stage = coord_stage_of(c, rank);
    c->live[rank] = false;
    c->has_grad[rank] = false;
    c->stages[stage].live--;
    c->members[rank] = (struct coord_member){0};
    c->died = true;
    c->idle_fences = 0;
    if (!exited) {
        struct coord_action *kill = coord_push(c, COORD_KILL);
        kill->rank = rank;
        kill->why = why;
    }
    struct coord_action *died = coord_push(c, COORD_DIED);
    died->rank = rank;
    died->stage = stage;
    died->why = why;
    if (c->stages[stage].live == 0) {
        struct coord_action *lost = coord_push(c, COORD_LOST);
        lost->stage = stage;
        lost->code = PAWL_STAGE_LOST;
        lost->why = "a stage has no live replica";
        c->phase = PHASE_OVER;
        return;
    }
    coord_saves_died(c, rank);
}

void coord_on_exit(struct coord *c, const struct coord_event *event) {
    coord_death(c, event->rank, true, "its process ended or its channel closed");
}

void coord_on_beat(struct coord *c, const struct coord_event *event) {
    struct coord_member *member = &c->members[event->rank];
    if (event->progress != member->progress)
        coord_progress(c, event->rank);
    else if (event->busy && !member->busy)
        member->progress_at = c->now_ns;
    member->progress = event->progress;
    member->busy = event->busy;
}

void coord_on_suspect(struct coord *c, const struct coord_event *event) {
    if (event->peer >= c->rank_count || event->peer == event->rank) {
        coord_stop(c, PAWL_INTERNAL, "a suspicion of a rank that cannot be a peer");
        return;
    }
    if (c->phase != PHASE_RUNNING || !c->live[event->peer]) return;
    for (size_t i = 0; i < c->suspicion_count; i++) {
        struct coord_suspicion *old = &c->suspicions[i];
        if (old->rank != event->rank || old->peer != event->peer) continue;
        old->again = true;
        return;
    }
    void *list = c->suspicions;
    if (!coord_grow(c, &list, &c->suspicion_room, c->suspicion_count, sizeof *c->suspicions)) return;
    c->suspicions = list;
    c->suspicions[c->suspicion_count++] =
        (struct coord_suspicion){.rank = event->rank, .peer = event->peer, .first_at = c->now_ns};
}

static uint32_t accusers(const struct coord *c, uint32_t peer) {
    uint32_t count = 0;
    for (size_t i = 0; i < c->suspicion_count; i++)
        if (c->suspicions[i].peer == peer) count++;
    return count;
}

static bool confirmed(const struct coord *c, const struct coord_suspicion *s) {
    return s->again || accusers(c, s->peer) > 1 || c->members[s->peer].progress_at <= s->first_at;
}

/* More accusers; then the stage that can spare a rank sooner. */
static bool worse(const struct coord *c, uint32_t a, uint32_t b) {
    uint32_t of_a = accusers(c, a), of_b = accusers(c, b);
    if (of_a != of_b) return of_a > of_b;
    return c->stages[coord_stage_of(c, a)].live > c->stages[coord_stage_of(c, b)].live;
}

static void judge_suspicions(struct coord *c) {
    uint32_t worst = c->rank_count;
    size_t kept = 0;
    for (size_t i = 0; i < c->suspicion_count; i++) {
        const struct coord_suspicion *s = &c->suspicions[i];
        bool due = coord_elapsed(c, s->first_at) >= c->config.suspect_ns;
        if (due && confirmed(c, s) && (worst == c->rank_count || worse(c, s->peer, worst))) worst = s->peer;
    }
    if (worst < c->rank_count) {
        coord_death(c, worst, false, "its peers cannot reach it");
        return;
    }
    for (size_t i = 0; i < c->suspicion_count; i++)
        if (coord_elapsed(c, c->suspicions[i].first_at) < c->config.suspect_ns)
            c->suspicions[kept++] = c->suspicions[i];
    c->suspicion_count = kept;
}

static const char *limit_passed(const struct coord *c, uint32_t rank) {
    const struct coord_member *member = &c->members[rank];
    if (c->phase == PHASE_STARTING) {
        bool late = !member->ready && coord_elapsed(c, c->start_at) >= c->config.start_ns;
        return late ? "it was not ready in time" : NULL;
    }
    if (coord_elapsed(c, member->heard_at) >= c->config.beat_ns) return "no beat";
    if (c->phase == PHASE_FENCING) {
        bool late = !member->fenced && coord_elapsed(c, c->fence_at) >= c->config.stall_ns;
        return late ? "it did not answer the fence" : NULL;
    }
    bool stalled = member->busy && coord_elapsed(c, member->progress_at) >= c->config.stall_ns;
    return stalled ? "busy without progress" : NULL;
}

static bool anybody_busy(const struct coord *c) {
    for (uint32_t rank = 0; rank < c->rank_count; rank++)
        if (c->live[rank] && c->members[rank].busy) return true;
    return false;
}

/* Everybody waits for something that does not come: a message was lost, or a plan is wrong. */
static void judge_idleness(struct coord *c) {
    if (anybody_busy(c) || coord_elapsed(c, c->progress_at) < c->config.stall_ns) return;
    if (c->idle_fences == c->config.idle_fences_max) {
        coord_stop(c, PAWL_TIMEOUT, "nobody is busy and nothing progresses, fence after fence");
        return;
    }
    c->idle_fences++;
    coord_fence_start(c);
}

void coord_on_tick(struct coord *c) {
    bool late = c->late;
    c->late = false;
    if (late && !c->forgiven) {
        c->forgiven = true;
        coord_clocks_restart(c);
        return;
    }
    c->forgiven = late;
    for (uint32_t rank = 0; rank < c->rank_count && !coord_over(c); rank++) {
        const char *why = c->live[rank] ? limit_passed(c, rank) : NULL;
        if (why == NULL) continue;
        coord_death(c, rank, false, why);
    }
    if (coord_over(c) || c->phase != PHASE_RUNNING || c->died) return;
    judge_suspicions(c);
    if (!coord_over(c) && !c->died) judge_idleness(c);
}
