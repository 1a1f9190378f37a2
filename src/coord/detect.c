/* Who is alive: exits, beats, progress, suspicion. Silence is judged at a TICK only.
 *
 * Each phase has its limit: start_ns to be READY, stall_ns to answer a fence, stall_ns of the work a busy
 * rank says it is at without progress, beat_ns of silence for members, and for READY ranks that have ever
 * beaten. A coordinator that was itself stopped (suspended machine, SIGSTOP) sees everybody silent at once;
 * the TICK after a gap of more than beat_ns between two steps therefore starts all clocks anew, once in a
 * row.
 *
 * Suspicion kills one rank per view: the most accused, so that a rank cut off from everybody, which
 * accuses everybody, falls itself. The fence that follows forgets the rest. A fence because nothing moved is
 * another chance: as they stop, workers tell whom they have not heard in that view (run/worker_greet.c), and
 * again the most accused falls, before anything is planned. */
#include "coord/state.h"

void coord_progress(struct coord *c, uint32_t rank) {
    c->ranks[rank].progress_at = c->now_ns;
    c->progress_at = c->now_ns;
}

void coord_clocks_restart(struct coord *c) {
    c->progress_at = c->now_ns;
    c->fence_at = c->now_ns;
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        struct coord_rank *r = &c->ranks[rank];
        r->heard_at = r->progress_at = c->now_ns;
        r->busy = false; /* until it says so again */
    }
}

void coord_rank_clear(struct coord *c, uint32_t rank) {
    c->ranks[rank] = (struct coord_rank){.own = COORD_NOBODY};
    c->members[rank] = c->candidates[rank] = false;
    for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++) {
        size_t pair = coord_pair_at(c, rank, chunk);
        c->has_state[pair] = false;
        c->pairs[pair] = (struct coord_pair){.source = COORD_NOBODY};
        c->holdings[pair] = (struct coord_holding){0};
    }
}

void coord_death(struct coord *c, uint32_t rank, bool exited, const char *why) {
    bool member = c->members[rank];
    COORD_MUST(c->ranks[rank].place != PLACE_ABSENT && c->ranks[rank].place != PLACE_LEFT);
    coord_rank_clear(c, rank);
    /* One that was to fill a gap is gone, too: the plan is asked for again, and then for another one. */
    c->fence_now = c->fence_now || member || c->phase == PHASE_NEEDING;
    c->idle_fences = 0;
    if (!exited) {
        struct coord_action *kill = coord_push(c, COORD_KILL);
        kill->rank = rank;
        kill->why = why;
    }
    struct coord_action *died = coord_push(c, COORD_DIED);
    died->rank = rank;
    died->why = why;
    coord_saves_died(c, rank);
}

void coord_on_exit(struct coord *c, const struct coord_event *event) {
    if (c->ranks[event->rank].place != PLACE_LEFT) {
        coord_death(c, event->rank, true, "its process ended or its channel closed");
        return;
    }
    coord_rank_clear(c, event->rank);
    coord_push(c, COORD_LEFT)->rank = event->rank;
    /* It may have been counted on to fill a gap, and its place may be the only one that was missing. */
    c->fence_now = c->fence_now || c->phase == PHASE_NEEDING;
}

void coord_on_beat(struct coord *c, const struct coord_event *event) {
    struct coord_rank *r = &c->ranks[event->rank];
    if ((unsigned)event->work >= COORD_WORK_COUNT) {
        coord_stop(c, PAWL_INTERNAL, "a beat of an unknown phase of work");
        return;
    }
    if (event->progress != r->progress) {
        coord_progress(c, event->rank);
    } else if (event->busy && (!r->busy || event->work != r->work)) {
        r->progress_at = c->now_ns;
    }
    r->progress = event->progress;
    r->busy = event->busy;
    r->work = event->work;
    r->beaten = true;
}

void coord_on_suspect(struct coord *c, const struct coord_event *event) {
    if (event->peer >= c->config.ranks || event->peer == event->rank) {
        coord_stop(c, PAWL_INTERNAL, "a suspicion of a rank that cannot be a peer");
        return;
    }
    bool counts = c->phase == PHASE_RUNNING || (c->phase == PHASE_FENCING && c->idle_fence);
    if (!counts || !c->members[event->peer]) return;
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
    return s->again || accusers(c, s->peer) > 1 || c->ranks[s->peer].progress_at <= s->first_at;
}

/* How many hold the chunk that the rank holds, at least; a spare can be spared best. */
static uint32_t holders_beside(const struct coord *c, uint32_t rank) {
    uint32_t least = COORD_NOBODY;
    for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++) {
        if (!c->pairs[coord_pair_at(c, rank, chunk)].held) continue;
        uint32_t holders = 0;
        for (uint32_t r = 0; r < c->config.ranks; r++) holders += c->pairs[coord_pair_at(c, r, chunk)].held;
        if (holders < least) least = holders;
    }
    return least;
}

/* More accusers; then the one that can be spared sooner. */
static bool worse(const struct coord *c, uint32_t a, uint32_t b) {
    uint32_t of_a = accusers(c, a), of_b = accusers(c, b);
    if (of_a != of_b) return of_a > of_b;
    return holders_beside(c, a) > holders_beside(c, b);
}

static void judge_suspicions(struct coord *c) {
    uint32_t worst = c->config.ranks;
    size_t kept = 0;
    for (size_t i = 0; i < c->suspicion_count; i++) {
        const struct coord_suspicion *s = &c->suspicions[i];
        bool due = coord_elapsed(c, s->first_at) >= c->config.suspect_ns;
        if (due && confirmed(c, s) && (worst == c->config.ranks || worse(c, s->peer, worst))) worst = s->peer;
    }
    if (worst < c->config.ranks) {
        coord_death(c, worst, false, "its peers cannot reach it");
        return;
    }
    for (size_t i = 0; i < c->suspicion_count; i++)
        if (coord_elapsed(c, c->suspicions[i].first_at) < c->config.suspect_ns)
            c->suspicions[kept++] = c->suspicions[i];
    c->suspicion_count = kept;
}

/* Whom the others have not heard in a view in which nothing moved, told as they stop. */
bool coord_silent_dies(struct coord *c) {
    uint32_t worst = c->config.ranks;
    for (size_t i = 0; i < c->suspicion_count; i++) {
        uint32_t peer = c->suspicions[i].peer;
        if (c->members[peer] && (worst == c->config.ranks || worse(c, peer, worst))) worst = peer;
    }
    if (!c->idle_fence || worst == c->config.ranks) return false;
    coord_death(c, worst, false, "its peers hear nothing from it");
    return true;
}

static int64_t stall_limit(const struct coord *c, const struct coord_rank *r) {
    int64_t step = c->config.stall_ns[COORD_WORK_STEP], work = c->config.stall_ns[r->work];
    return work > step ? work : step;
}

static const char *limit_passed(const struct coord *c, const struct coord_rank *r) {
    if (r->place == PLACE_STARTING)
        return coord_elapsed(c, r->since) >= c->config.start_ns ? "it was not ready in time" : NULL;
    bool silent = coord_elapsed(c, r->heard_at) >= c->config.beat_ns;
    if (r->place == PLACE_READY) return silent && r->beaten ? "no beat" : NULL;
    if (r->place != PLACE_MEMBER) return NULL;
    if (silent) return "no beat";
    if (c->phase == PHASE_FENCING) {
        bool late = !r->fenced && coord_elapsed(c, c->fence_at) >= stall_limit(c, r);
        return late ? "it did not answer the fence" : NULL;
    }
    if (c->phase != PHASE_RUNNING) return NULL; /* it waits for the driver */
    bool stalled = r->busy && coord_elapsed(c, r->progress_at) >= c->config.stall_ns[r->work];
    return stalled ? c->stalled[r->work] : NULL;
}

static bool anybody_busy(const struct coord *c) {
    for (uint32_t rank = 0; rank < c->config.ranks; rank++)
        if (c->members[rank] && c->ranks[rank].busy) return true;
    return false;
}

/* Everybody waits for something that does not come: a message was lost, or a plan is wrong. At the last
 * version everybody waits for the disks, which have a limit of their own. */
static void judge_idleness(struct coord *c) {
    bool last = c->final == c->target;
    int64_t limit = c->config.stall_ns[last ? COORD_WORK_SAVE : COORD_WORK_STEP];
    if (last && c->config.save_ns > 0) return;
    if (anybody_busy(c) || coord_elapsed(c, c->progress_at) < limit) return;
    if (c->idle_fences == c->config.idle_fences_max) {
        coord_stop(c, PAWL_TIMEOUT, "nobody is busy and nothing progresses, fence after fence");
        return;
    }
    c->idle_fences++;
    c->idle = true;
    c->fence_now = true;
}

/* This process was not running: nobody is to blame for what was not heard. */
static void forgive(struct coord *c) {
    c->forgiven = true;
    coord_clocks_restart(c);
    c->need_at = c->now_ns;
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) c->ranks[rank].since = c->now_ns;
    for (size_t i = 0; i < c->save_count; i++) c->saves[i].since = c->now_ns;
}

void coord_on_tick(struct coord *c) {
    bool late = c->late;
    c->late = false;
    if (late && !c->forgiven) {
        forgive(c);
        return;
    }
    c->forgiven = late;
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        const char *why = limit_passed(c, &c->ranks[rank]);
        if (why != NULL) coord_death(c, rank, false, why);
    }
    if (!coord_over(c)) coord_saves_judge(c);
    if (coord_over(c)) return;
    coord_joins_judge(c);
    if (c->phase == PHASE_NEEDING && coord_elapsed(c, c->need_at) >= c->config.need_ns)
        coord_stop(
            c, PAWL_STAGE_LOST,
            "too few workers are left, and none joined in failure.wait_s; the same command goes on from "
            "the newest durable step");
    if (c->phase != PHASE_RUNNING || c->fence_now) return;
    judge_suspicions(c);
    if (!coord_over(c) && !c->fence_now) judge_idleness(c);
}
