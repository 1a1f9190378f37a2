/* Who takes which place, and when: the policy of starting workers.
 *
 * A dead worker's place stays empty unless failure.respawn lets it be started again, or the coordinator has
 * too few (NEED), or somebody joins. A worker that dies soon after it came flaps: its place is held off for
 * 1, 2, 4, ... seconds, so that the others are not fenced again and again. */
#include "base/clock.h"
#include "run/launch_state.h"

/* A death within this time of coming is a flap. */
#define FLAP_NS INT64_C(10000000000)

#define PAUSE_NS     INT64_C(1000000000)
#define PAUSE_NS_MAX (64 * PAUSE_NS)

static int64_t pause_after(uint32_t flaps) {
    int64_t pause = PAUSE_NS;
    for (uint32_t i = 1; i < flaps && pause < PAUSE_NS_MAX; i++) pause *= 2;
    return flaps > 0 ? pause : 0;
}

static bool is_empty(const struct launch *l, uint32_t rank) { return l->workers[rank].process.pid <= 0; }

static void tell_held(struct launch *l, uint32_t rank, int64_t pause_ns) {
    struct json *j = progress_begin(l->progress, "held_off");
    json_i64(j, "rank", rank);
    json_i64(j, "times", l->workers[rank].flaps);
    json_f64(j, "seconds", (double)pause_ns / 1e9);
    progress_end(l->progress,
                 "worker %u died soon after it came, %u times now: its place is held off for %.0f s", rank,
                 l->workers[rank].flaps, (double)pause_ns / 1e9);
}

/* Whether it is to be started again by itself. */
static bool respawns(const struct launch *l, const struct launch_worker *w) {
    if (w->spoiled && !l->stopping) return true; /* each time an older step is tried: that ends */
    return !w->left && !w->leaving && !w->replaced && !l->stopping && w->respawned < l->spec.failure.respawn;
}

void places_exited(struct launch *l, uint32_t rank) {
    struct launch_worker *w = &l->workers[rank];
    int64_t now = clock_now_ns(), pause = pause_after(w->flaps);
    if (w->left || w->leaving) {
        w->flaps = 0;
        return;
    }
    bool flapped = l->going && now - w->came_ns < FLAP_NS + pause;
    /* The first death of a place says nothing yet: it may have come with the run a moment ago. */
    bool first = w->came_ns < l->first_go_ns;
    w->flaps = flapped && !first ? w->flaps + 1 : 0;
    pause = pause_after(w->flaps);
    w->hold_ns = now + pause;
    w->due = respawns(l, w);
    if (pause > 0) tell_held(l, rank, pause);
}

uint32_t places_free(const struct launch *l, int64_t now_ns, int64_t *hold_ns) {
    *hold_ns = 0;
    for (uint32_t r = 0; r < l->ranks; r++) {
        const struct launch_worker *w = &l->workers[r];
        if (!is_empty(l, r) || w->due) continue;
        if (w->hold_ns <= now_ns && !find_holds(l, r)) return r;
        int64_t until = w->hold_ns > now_ns ? w->hold_ns : now_ns;
        if (*hold_ns == 0 || until < *hold_ns) *hold_ns = until;
    }
    return LAUNCH_NONE;
}

static void start(struct launch *l, uint32_t rank, const char *why) {
    struct pawl_error e;
    pawl_code code = fleet_start_worker(l, rank, &e);
    struct json *j = progress_begin(l->progress, code == PAWL_OK ? "worker_started" : "start_failed");
    json_i64(j, "rank", rank);
    json_text(j, "why", why);
    if (code == PAWL_OK)
        progress_end(l->progress, "worker %u is started: %s", rank, why);
    else
        progress_end(l->progress, "worker %u cannot be started: %s", rank, e.text);
}

/* As many as the run began with may be started for each return to a durable step that is allowed. */
static bool may_start(const struct launch *l) {
    return l->need_starts < l->spec.failure.restarts * spec_ranks(&l->spec);
}

/* It takes part, or will. */
static bool is_live(const struct launch *l, uint32_t rank) {
    const struct launch_worker *w = &l->workers[rank];
    return !is_empty(l, rank) && !w->gone && !w->lost && !w->leaving;
}

bool places_awaited(const struct launch *l) {
    for (uint32_t r = 0; r < l->ranks; r++)
        if (is_live(l, r) && !l->workers[r].member) return true;
    return false;
}

/* Up to as many as the run began with. One that hangs is missing though its process is still there. */
static uint32_t missing(const struct launch *l) {
    uint32_t there = 0, start = spec_ranks(&l->spec);
    for (uint32_t r = 0; r < l->ranks; r++) there += is_live(l, r);
    return there < start ? start - there : 0;
}

/* What is started now is for one that hangs, if there is one: respawn is not to start it twice. */
static void replace_lost(struct launch *l) {
    for (uint32_t r = 0; r < l->ranks; r++) {
        struct launch_worker *w = &l->workers[r];
        if (!w->lost || w->replaced || is_empty(l, r)) continue;
        w->replaced = true;
        return;
    }
}

/* Nobody else asks again: what cannot be started now, or dies before the GO, is looked at by every tick. */
static void fill(struct launch *l, int64_t now_ns) {
    int64_t hold_ns;
    while (l->filling && missing(l) > 0 && may_start(l) && !l->stopping && !l->over) {
        uint32_t rank = places_free(l, now_ns, &hold_ns);
        if (rank == LAUNCH_NONE) return; /* taken, or held off */
        l->need_starts++;
        replace_lost(l);
        start(l, rank, "too few workers are left");
    }
}

static const char *awaited(const struct launch *l, uint32_t wanted) {
    if (wanted > 0 && l->stopping) return "nothing";
    return wanted > 0 && !may_start(l) ? "join" : "start";
}

void places_need(struct launch *l, uint32_t count, const char *why) {
    uint32_t wanted = missing(l);
    bool told = l->filling;
    l->filling = true;
    struct json *j = progress_begin(l->progress, "need");
    json_i64(j, "workers", count);
    json_text(j, "why", why);
    json_text(j, "waits_for", awaited(l, wanted));
    if (wanted == 0 && told)
        progress_end(l->progress, NULL);
    else if (wanted == 0)
        progress_end(l->progress, "%s: waiting for those that are starting", why);
    else if (l->stopping)
        progress_end(l->progress, "%s: none is started, as the run is ending", why);
    else if (may_start(l))
        progress_end(l->progress, "%s: starting %u", why, wanted);
    else
        progress_end(l->progress, "%s: waiting %.3g s for pawl join %s", why, l->spec.failure.wait_s,
                     l->spec.run.dir);
    fill(l, clock_now_ns());
}

void places_tick(struct launch *l, int64_t now_ns) {
    for (uint32_t r = 0; r < l->ranks && !l->over; r++) {
        struct launch_worker *w = &l->workers[r];
        if (!w->due || now_ns < w->hold_ns || find_holds(l, r)) continue;
        w->due = false;
        if (!is_empty(l, r) || l->stopping) continue;
        w->respawned += !w->spoiled;
        start(l, r, "in the place of the one that was lost");
    }
    fill(l, now_ns);
}
