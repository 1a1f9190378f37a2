/* Failure normalization: how many empty roles each stage carries, and which live machines change roles for
 * it.
 *
 * An iteration takes as long as its slowest stage, so a bottleneck dynamic programme over (stage, holes so
 * far). Its one step, `fit`, knows a limit: each stage may have only holes that it can bear within the limit,
 * and among all ways the one of fewest moves, least sum of times and holes nearest the middle wins (there
 * guests need least memory). All questions are bisections over the limit: the least time at all, the least
 * with as few moves as possible, and between them the fewest moves that come close enough.
 *
 * Which machines, by rule. A filled role is that of the pipeline with most holes. Who fills it comes from the
 * stage with fewest holes that may spare one, there from the pipeline with fewest holes: so holes end up in
 * different pipelines, and the guests of the stages come from different homes. Further failures are placed
 * likewise. Equal: the lowest number. Tested in tests/unit/plan_normalize_test.c. Source: ReCycle (SOSP'24)
 * for the idea; the programme and the rules are own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "plan/ticks.h"

struct way { /* what is least, in this order */
    uint64_t moves, sum, off_middle;
};
static const struct way NO_WAY = {TICKS_NEVER, TICKS_NEVER, TICKS_NEVER};

struct normal {
    const struct plan_normal_request *request;
    uint32_t failures;    /* of roles, in all */
    uint32_t *dead;       /* [stages] before */
    uint64_t *time;       /* [stages * pipelines] with so many holes */
    uint64_t *limits;     /* [stages * pipelines] the same, ascending */
    struct way *way;      /* [(stages + 1) * (failures + 1)] */
    uint32_t *choice;     /* [stages * (failures + 1)] holes of the stage on that way */
    uint32_t *pipe_holes; /* [pipelines] while roles are given out */
};

static uint64_t time_of(const struct normal *n, uint32_t stage, uint32_t holes) {
    return n->time[(uint64_t)stage * n->request->pipelines + holes];
}

static bool way_is_less(const struct way *a, const struct way *b) {
    if (a->moves != b->moves) return a->moves < b->moves;
    if (a->sum != b->sum) return a->sum < b->sum;
    return a->off_middle < b->off_middle;
}

/* `before`, and the stage with so many holes. */
static struct way way_add(const struct normal *n, const struct way *before, uint32_t stage, uint32_t holes) {
    uint32_t dead = n->dead[stage], last = n->request->stages - 1;
    uint64_t off = 2 * stage > last ? 2 * stage - last : last - 2 * stage;
    return (struct way){.moves = before->moves + (dead > holes ? dead - holes : 0),
                        .sum = ticks_add(before->sum, time_of(n, stage, holes)),
                        .off_middle = before->off_middle + off * (holes > dead ? holes - dead : 0)};
}

static void fit_stage(struct normal *n, uint32_t stage, uint64_t limit) {
    uint64_t width = (uint64_t)n->failures + 1;
    const struct way *before = &n->way[stage * width];
    struct way *after = &n->way[(stage + 1) * width];
    uint32_t least = n->request->no_move ? n->dead[stage] : 0;
    for (uint32_t k = 0; k < width; k++) {
        after[k] = NO_WAY;
        for (uint32_t j = least; j < n->request->pipelines && j <= k; j++) {
            if (time_of(n, stage, j) > limit || before[k - j].moves == TICKS_NEVER) continue;
            struct way way = way_add(n, &before[k - j], stage, j);
            if (!way_is_less(&way, &after[k])) continue;
            after[k] = way;
            n->choice[stage * width + k] = j;
        }
    }
}

/* The best way with no stage above the limit; moves = TICKS_NEVER: there is none. */
static struct way fit(struct normal *n, uint64_t limit) {
    uint64_t width = (uint64_t)n->failures + 1;
    for (uint64_t k = 0; k < width; k++) n->way[k] = NO_WAY;
    n->way[0] = (struct way){0, 0, 0};
    for (uint32_t s = 0; s < n->request->stages; s++) fit_stage(n, s, limit);
    return n->way[n->request->stages * width + n->failures];
}

/* The least limit under which so few moves are enough; the caller knows that there is one. */
static uint64_t least_limit(struct normal *n, uint64_t moves) {
    uint64_t low = 0, high = (uint64_t)n->request->stages * n->request->pipelines - 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (fit(n, n->limits[middle]).moves <= moves)
            high = middle;
        else
            low = middle + 1;
    }
    return n->limits[low];
}

/* The chosen way's choices are in n->choice afterwards. */
static struct way choose_way(struct normal *n) {
    uint64_t least = least_limit(n, TICKS_NEVER - 1);
    uint64_t fewest_moves = fit(n, TICKS_NEVER).moves;
    uint64_t without = least_limit(n, fewest_moves);
    double gain = ceil(n->request->min_gain * (double)without);
    uint64_t margin = gain >= 1 && gain < (double)TICKS_NEVER ? (uint64_t)gain - 1 : 0;
    uint64_t moves = fit(n, ticks_add(least, margin)).moves;
    return fit(n, least_limit(n, moves));
}

static void read_choices(const struct normal *n, uint32_t *holes) {
    uint64_t width = (uint64_t)n->failures + 1;
    uint32_t left = n->failures;
    for (uint32_t s = n->request->stages; s-- > 0;) {
        holes[s] = n->choice[s * width + left];
        left -= holes[s];
    }
}

/* ---- roles ---- */

/* The worker of the stage whose pipeline has most or fewest holes, among those that live, or that do not. */
static uint32_t pick_worker(const struct normal *n, const bool *alive, uint32_t stage, bool live) {
    uint32_t best = IR_NONE;
    for (uint32_t p = 0; p < n->request->pipelines; p++) {
        uint32_t worker = p * n->request->stages + stage;
        if (alive[worker] != live) continue;
        uint32_t had = best == IR_NONE ? 0 : n->pipe_holes[best / n->request->stages];
        bool better = live ? n->pipe_holes[p] < had : n->pipe_holes[p] > had;
        if (best == IR_NONE || better) best = worker;
    }
    return best;
}

static void set_alive(struct normal *n, struct plan_normal *out, uint32_t worker, bool live) {
    out->alive[worker] = live;
    if (live)
        n->pipe_holes[worker / n->request->stages]--;
    else
        n->pipe_holes[worker / n->request->stages]++;
}

/* The stage that has fewer holes than it shall carry, and of those the fewest. */
static uint32_t pick_giver(const struct normal *n, const uint32_t *now, const uint32_t *holes) {
    uint32_t best = IR_NONE;
    for (uint32_t s = 0; s < n->request->stages; s++)
        if (now[s] < holes[s] && (best == IR_NONE || now[s] < now[best])) best = s;
    return best;
}

static void move_one(struct normal *n, struct plan_normal *out, uint32_t *now, uint32_t stage) {
    uint32_t to = pick_worker(n, out->alive, stage, false);
    set_alive(n, out, to, true);
    now[stage]--;
    uint32_t giver = pick_giver(n, now, out->holes);
    uint32_t from = pick_worker(n, out->alive, giver, true);
    set_alive(n, out, from, false);
    now[giver]++;
    out->moves[out->move_count++] = (struct plan_move){from, to};
}

/* Moves, then the failures that may be anywhere. */
static void give_out(struct normal *n, struct plan_normal *out) {
    uint32_t stages = n->request->stages;
    uint32_t *now = n->dead; /* no longer needed as it was */
    for (uint32_t s = 0; s < stages; s++)
        while (now[s] > out->holes[s]) move_one(n, out, now, s);
    for (uint32_t s = 0; s < stages; s++) {
        for (; now[s] < out->holes[s]; now[s]++)
            set_alive(n, out, pick_worker(n, out->alive, s, true), false);
    }
}

/* ---- the request ---- */

static pawl_code count_dead(struct normal *n, struct pawl_error *e) {
    const struct plan_normal_request *r = n->request;
    uint64_t failures = r->free_failures, room = (uint64_t)r->stages * (r->pipelines - 1);
    for (uint32_t w = 0; r->dead != NULL && w < r->pipelines * r->stages; w++) {
        if (!r->dead[w]) continue;
        failures++;
        n->dead[w % r->stages]++;
        n->pipe_holes[w / r->stages]++;
    }
    for (uint32_t s = 0; r->no_move && s < r->stages; s++)
        if (n->dead[s] == r->pipelines)
            return error_set(e, PAWL_STAGE_LOST, 0, "plan: stage %u has no live worker, and nobody may move",
                             s);
    if (failures > room)
        return error_set(
            e, PAWL_STAGE_LOST, 0,
            "plan: %llu failures leave a stage without a live worker; %u pipelines x %u stages bear "
            "%llu",
            (unsigned long long)failures, r->pipelines, r->stages, (unsigned long long)room);
    n->failures = (uint32_t)failures;
    return PAWL_OK;
}

static int ascending(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void ask_times(struct normal *n) {
    const struct plan_normal_request *r = n->request;
    size_t count = (size_t)r->stages * r->pipelines;
    for (uint32_t s = 0; s < r->stages; s++)
        for (uint32_t j = 0; j < r->pipelines; j++)
            n->time[(size_t)s * r->pipelines + j] = r->time(r->context, s, j);
    memcpy(n->limits, n->time, count * sizeof *n->limits);
    qsort(n->limits, count, sizeof *n->limits, ascending);
}

static pawl_code no_memory(struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "plan: no memory to normalize failures");
}

static pawl_code normal_init(struct normal *n, struct pawl_error *e) {
    size_t stages = n->request->stages, roles = stages * n->request->pipelines;
    n->dead = calloc(stages, sizeof *n->dead);
    n->pipe_holes = calloc(n->request->pipelines, sizeof *n->pipe_holes);
    n->time = malloc(roles * sizeof *n->time);
    n->limits = malloc(roles * sizeof *n->limits);
    if (n->dead == NULL || n->pipe_holes == NULL || n->time == NULL || n->limits == NULL) return no_memory(e);
    pawl_code code = count_dead(n, e);
    if (code != PAWL_OK) return code;
    size_t width = (size_t)n->failures + 1;
    n->way = malloc((stages + 1) * width * sizeof *n->way);
    n->choice = calloc(stages * width, sizeof *n->choice);
    return n->way == NULL || n->choice == NULL ? no_memory(e) : PAWL_OK;
}

static void normal_close(struct normal *n) {
    free(n->dead);
    free(n->pipe_holes);
    free(n->time);
    free(n->limits);
    free(n->way);
    free(n->choice);
}

static pawl_code out_init(const struct normal *n, uint64_t moves, struct plan_normal *out,
                          struct pawl_error *e) {
    size_t stages = n->request->stages, roles = stages * n->request->pipelines;
    out->alive = malloc(roles * sizeof *out->alive);
    out->holes = malloc(stages * sizeof *out->holes);
    out->moves = malloc((moves + 1) * sizeof *out->moves);
    if (out->alive == NULL || out->holes == NULL || out->moves == NULL) return no_memory(e);
    for (size_t w = 0; w < roles; w++) out->alive[w] = n->request->dead == NULL || !n->request->dead[w];
    return PAWL_OK;
}

static pawl_code sizes_check(const struct plan_normal_request *r, struct pawl_error *e) {
    bool fits = r->pipelines >= 1 && r->stages >= 1 && (uint64_t)r->pipelines * r->stages <= IR_WORKERS_MAX;
    if (!fits)
        return error_set(e, PAWL_ARGUMENT, 0, "plan: %u pipelines x %u stages must be 1..%u workers",
                         r->pipelines, r->stages, IR_WORKERS_MAX);
    if (!(r->min_gain >= 0 && r->min_gain <= 1))
        return error_set(e, PAWL_ARGUMENT, 0, "plan: min_gain must be a share 0..1, had %g", r->min_gain);
    return PAWL_OK;
}

pawl_code plan_normalize(const struct plan_normal_request *request, struct plan_normal *out,
                         struct pawl_error *e) {
    *out = (struct plan_normal){0};
    pawl_code code = sizes_check(request, e);
    if (code != PAWL_OK) return code;
    struct normal n = {.request = request};
    code = normal_init(&n, e);
    if (code == PAWL_OK) {
        ask_times(&n);
        struct way way = choose_way(&n);
        code = out_init(&n, way.moves, out, e);
    }
    if (code == PAWL_OK) {
        read_choices(&n, out->holes);
        give_out(&n, out);
    }
    normal_close(&n);
    if (code != PAWL_OK) plan_normal_close(out);
    return code;
}

void plan_normal_close(struct plan_normal *n) {
    free(n->alive);
    free(n->moves);
    free(n->holes);
    *n = (struct plan_normal){0};
}
