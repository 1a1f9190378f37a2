/* The coordinator's step: take one event, hand it to the file it concerns, say what follows.
 *
 * Order inside a step: what the event itself causes (a decision with its saves, deaths), then the fence that
 * it needs, then what the whole allows (FIND, PLAN, GO, the last save, FINISH, joins and leaves). Events are
 * external: rank and kind are checked here, the rest where it is used. The invariants at the end hold in
 * every build. Tested in tests/unit/coord_*, tests/explore/coord_*. */
#include "coord/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Actions that a typical step emits per rank (SAVE, JOINED); more is grown. */
#define ACTIONS_PER_RANK 2u
#define ACTIONS_MORE     16u

_Noreturn void coord_broken(const char *condition, const char *file, int line) {
    fprintf(stderr, "%s:%d: the coordinator broke its own rule: %s\n", file, line, condition);
    abort();
}

int64_t coord_elapsed(const struct coord *c, int64_t since) {
    int64_t elapsed;
    return __builtin_sub_overflow(c->now_ns, since, &elapsed) ? INT64_MAX : elapsed;
}

bool coord_grow(struct coord *c, void **list, size_t *room, size_t count, size_t entry_bytes) {
    if (count < *room) return true;
    size_t more = *room < 8 ? 8 : *room * 2;
    void *grown = reallocarray(*list, more, entry_bytes);
    if (grown == NULL) {
        c->no_memory = true;
        return false;
    }
    *list = grown;
    *room = more;
    return true;
}

struct coord_action *coord_push(struct coord *c, enum coord_action_kind kind) {
    void *list = c->actions;
    if (coord_grow(c, &list, &c->action_room, c->action_count, sizeof *c->actions)) {
        c->actions = list;
        c->action_count++;
    }
    struct coord_action *action = c->no_memory ? &c->scratch : &c->actions[c->action_count - 1];
    *action = (struct coord_action){
        .kind = kind, .view = c->view, .rank = COORD_NOBODY, .peer = COORD_NOBODY, .chunk = COORD_NOBODY};
    return action;
}

void coord_stop(struct coord *c, pawl_code code, const char *why) {
    if (coord_over(c)) return;
    struct coord_action *stop = coord_push(c, COORD_STOP);
    stop->code = code;
    stop->why = why;
    stop->rank = c->event_rank;
    stop->version = c->final;
    c->phase = PHASE_OVER;
}

const char *coord_keep(struct coord *c, const char *why, const char *otherwise) {
    if (why == NULL || why[0] == 0) return otherwise;
    snprintf(c->why, sizeof c->why, "%s", why);
    return c->why;
}

void coord_finish(struct coord *c) {
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        enum coord_place place = c->ranks[rank].place;
        if (place == PLACE_STARTING || place == PLACE_READY) coord_push(c, COORD_LEAVE)->rank = rank;
    }
    coord_push(c, COORD_FINISH)->version = c->final;
    c->phase = PHASE_OVER;
}

const char *coord_work_name(enum coord_work work) {
    static const char *const names[] = {"step", "load", "save", "compile", "eval"};
    return (unsigned)work < COORD_WORK_COUNT ? names[work] : "unknown";
}

static pawl_code check_counts(const struct coord_config *k, struct pawl_error *e) {
    if (k->chunks == 0) return error_set(e, PAWL_ARGUMENT, 0, "chunks: wanted at least 1, had 0");
    if (k->ranks == COORD_NOBODY || k->chunks == COORD_NOBODY || k->ranks < k->chunks)
        return error_set(e, PAWL_ARGUMENT, 0, "ranks: wanted at least chunks, %u, and fewer than %u, had %u",
                         k->chunks, COORD_NOBODY, k->ranks);
    if (k->saves_max == 0) return error_set(e, PAWL_ARGUMENT, 0, "saves_max: wanted at least 1, had 0");
    if (!isfinite(k->clip_norm) || k->clip_norm < 0)
        return error_set(e, PAWL_ARGUMENT, 0, "clip_norm: wanted a finite number >= 0, had %g", k->clip_norm);
    if (k->save_ns < 0)
        return error_set(e, PAWL_ARGUMENT, 0, "save_ns: wanted at least 0, had %lld", (long long)k->save_ns);
    if (k->recover && k->there == NULL)
        return error_set(e, PAWL_ARGUMENT, 0, "there: wanted who is there, to take over, had nothing");
    return PAWL_OK;
}

static pawl_code check_times(const struct coord_config *k, struct pawl_error *e) {
    const struct {
        const char *name;
        int64_t ns;
    } times[] = {{"start_ns", k->start_ns},
                 {"beat_ns", k->beat_ns},
                 {"suspect_ns", k->suspect_ns},
                 {"join_ns", k->join_ns},
                 {"need_ns", k->need_ns}};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        if (times[i].ns > 0) continue;
        return error_set(e, PAWL_ARGUMENT, 0, "%s: wanted more than 0, had %lld", times[i].name,
                         (long long)times[i].ns);
    }
    if (k->save_pause_ns < 0 || k->save_pause_ns > INT64_MAX / 64)
        return error_set(e, PAWL_ARGUMENT, 0, "save_pause_ns: wanted 0 to 2^57, had %lld",
                         (long long)k->save_pause_ns);
    for (unsigned work = 0; work < COORD_WORK_COUNT; work++) {
        if (k->stall_ns[work] > 0) continue;
        return error_set(e, PAWL_ARGUMENT, 0, "stall_ns[%s]: wanted more than 0, had %lld",
                         coord_work_name((enum coord_work)work), (long long)k->stall_ns[work]);
    }
    return PAWL_OK;
}

static bool take_memory(struct coord *c) {
    size_t ranks = c->config.ranks, chunks = c->config.chunks, pairs;
    if (__builtin_mul_overflow(ranks, chunks, &pairs)) return false;
    c->action_room = ranks * ACTIONS_PER_RANK + ACTIONS_MORE;
    c->members = calloc(ranks, sizeof *c->members);
    c->candidates = calloc(ranks, sizeof *c->candidates);
    c->ranks = calloc(ranks, sizeof *c->ranks);
    c->has_state = calloc(pairs, sizeof *c->has_state);
    c->pairs = calloc(pairs, sizeof *c->pairs);
    c->holdings = calloc(pairs, sizeof *c->holdings);
    c->chunks = calloc(chunks, sizeof *c->chunks);
    c->actions = calloc(c->action_room, sizeof *c->actions);
    return c->members != NULL && c->candidates != NULL && c->ranks != NULL && c->has_state != NULL &&
           c->pairs != NULL && c->holdings != NULL && c->chunks != NULL && c->actions != NULL;
}

static void take_over(struct coord *c) {
    c->recovering = true;
    c->view = c->config.view;
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        if (!c->config.there[rank]) continue;
        c->ranks[rank].place = PLACE_MEMBER;
        c->ranks[rank].recovered = true;
        c->members[rank] = true;
    }
}

/* By the names that people set them by: a limit that is too short is mended where it stands. */
static void name_limits(struct coord *c) {
    static const char *const names[COORD_WORK_COUNT] = {
        [COORD_WORK_STEP] = "stall_s",      [COORD_WORK_LOAD] = "load_s", [COORD_WORK_SAVE] = "save_s",
        [COORD_WORK_COMPILE] = "compile_s", [COORD_WORK_EVAL] = "eval_s",
    };
    for (int work = 0; work < COORD_WORK_COUNT; work++)
        snprintf(c->stalled[work], sizeof c->stalled[work], "busy without progress for failure.%s = %g s",
                 names[work], (double)c->config.stall_ns[work] * 1e-9);
}

pawl_code coord_new(const struct coord_config *config, struct coord **out, struct pawl_error *e) {
    *out = NULL;
    pawl_code code = check_counts(config, e);
    if (code == PAWL_OK) code = check_times(config, e);
    if (code != PAWL_OK) return code;
    struct coord *c = calloc(1, sizeof *c);
    if (c != NULL) c->config = *config;
    if (c == NULL || !take_memory(c)) {
        coord_free(c);
        return error_set(e, PAWL_MEMORY, 0, "coordinator of %u ranks: no memory", config->ranks);
    }
    name_limits(c);
    c->target = config->final_version;
    c->optimistic = coord_first_optimistic(c);
    for (uint32_t rank = 0; rank < config->ranks; rank++) coord_rank_clear(c, rank);
    if (config->recover) take_over(c);
    c->config.there = NULL;
    *out = c;
    return PAWL_OK;
}

void coord_free(struct coord *c) {
    if (c == NULL) return;
    for (size_t i = 0; i < c->save_count; i++) coord_save_close(&c->saves[i]);
    free(c->saves);
    free(c->suspicions);
    free(c->actions);
    free(c->chunks);
    free(c->holdings);
    free(c->pairs);
    free(c->has_state);
    free(c->ranks);
    free(c->candidates);
    free(c->members);
    free(c);
}

/* The clock never goes back, and starts with the first event. A step that comes later than beat_ns after the
 * one before shows that this process itself was not running. */
static void advance_clock(struct coord *c, int64_t now_ns) {
    if (!c->begun) {
        c->begun = true;
        c->begun_at = c->now_ns = now_ns;
        coord_clocks_restart(c);
        return;
    }
    int64_t before = c->now_ns;
    if (now_ns > c->now_ns) c->now_ns = now_ns;
    if (coord_elapsed(c, before) > c->config.beat_ns) c->late = true;
}

static void handle_of_member(struct coord *c, const struct coord_event *event) {
    switch (event->kind) {
    case COORD_SUSPECT:
        coord_on_suspect(c, event);
        return;
    case COORD_REDUCED:
        coord_on_reduced(c, event);
        return;
    case COORD_FENCED:
        coord_on_fenced(c, event);
        return;
    case COORD_SAVED:
        coord_on_saved(c, event);
        return;
    default:
        coord_stop(c, PAWL_INTERNAL, "an event of an unknown kind");
    }
}

static void handle_of_rank(struct coord *c, const struct coord_event *event) {
    if (event->rank >= c->config.ranks) {
        coord_stop(c, PAWL_INTERNAL, "an event of a rank that does not exist");
        return;
    }
    struct coord_rank *r = &c->ranks[event->rank];
    if (r->place == PLACE_ABSENT && event->kind != COORD_STARTED) return;
    if (r->place == PLACE_LEFT && event->kind != COORD_EXIT) return;
    c->event_rank = event->rank;
    if (event->kind != COORD_PREPARE_AS && event->kind != COORD_STARTED) r->heard_at = c->now_ns;
    switch (event->kind) {
    case COORD_STARTED:
        coord_on_started(c, event);
        return;
    case COORD_READY:
        coord_on_ready(c, event);
        return;
    case COORD_EXIT:
        coord_on_exit(c, event);
        return;
    case COORD_BEAT:
        coord_on_beat(c, event);
        return;
    case COORD_PREPARE_AS:
        coord_on_prepare_as(c, event);
        return;
    case COORD_PREPARED:
        coord_on_prepared(c, event);
        return;
    case COORD_LEAVING:
        coord_on_leaving(c, event);
        return;
    default:
        if (r->place == PLACE_MEMBER)
            handle_of_member(c, event);
        else if (event->kind != COORD_SUSPECT) /* of whom it copies from: join_ns will end that */
            coord_stop(c, PAWL_INTERNAL, "a rank that is no member says what only members can");
    }
}

static void handle(struct coord *c, const struct coord_event *event) {
    switch (event->kind) {
    case COORD_TICK:
        coord_on_tick(c);
        return;
    case COORD_BEGIN:
        c->begin = true;
        return;
    case COORD_STOPPING:
        coord_on_stopping(c);
        return;
    case COORD_REPLAN:
        c->replan = true;
        return;
    case COORD_FOUND:
        coord_on_found(c, event);
        return;
    case COORD_PLANNED:
        coord_on_planned(c, event);
        return;
    default:
        handle_of_rank(c, event);
    }
}

static void check_pairs(const struct coord *c, uint32_t chunk) {
    uint32_t holders = 0, owners = 0;
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        const struct coord_pair *pair = &c->pairs[coord_pair_at(c, rank, chunk)];
        COORD_MUST(!pair->held || c->members[rank]);
        COORD_MUST(pair->source != rank);
        holders += pair->held;
        owners += c->ranks[rank].own == chunk;
    }
    COORD_MUST(holders > 0 && owners > 0);
}

static void check_invariants(const struct coord *c, const struct coord *before) {
    COORD_MUST(c->went_back || c->recovering || before->recovering ||
               (c->final >= before->final && c->final <= before->final + 1));
    COORD_MUST(c->view >= before->view);
    COORD_MUST(c->went_back || before->recovering ||
               (c->has_durable >= before->has_durable && c->durable >= before->durable));
    COORD_MUST(coord_over(c) || !c->has_durable || c->recovering || c->durable <= c->final);
    COORD_MUST(coord_over(c) || c->final <= c->target);
    COORD_MUST(c->save_count <= c->config.saves_max);
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        const struct coord_rank *r = &c->ranks[rank];
        COORD_MUST(c->members[rank] == (r->place == PLACE_MEMBER));
        COORD_MUST(r->own == COORD_NOBODY || c->pairs[coord_pair_at(c, rank, r->own)].held);
    }
    for (uint32_t chunk = 0; chunk < c->config.chunks && c->phase == PHASE_RUNNING; chunk++)
        check_pairs(c, chunk);
}

static size_t stop_without_memory(struct coord *c, const struct coord_action **actions) {
    c->scratch = (struct coord_action){.kind = COORD_STOP,
                                       .code = PAWL_MEMORY,
                                       .why = "the coordinator has no memory left",
                                       .rank = COORD_NOBODY,
                                       .view = c->view,
                                       .version = c->final};
    c->phase = PHASE_OVER;
    *actions = &c->scratch;
    return 1;
}

size_t coord_step(struct coord *c, const struct coord_event *event, const struct coord_action **actions) {
    c->action_count = 0;
    *actions = c->actions;
    if (coord_over(c)) return 0;
    struct coord before = *c;
    c->fence_now = c->went_back = false;
    c->event_rank = COORD_NOBODY;
    advance_clock(c, event->now_ns);
    if (c->recovering && c->phase == PHASE_STARTING) coord_fence_start(c);
    handle(c, event);
    if (!coord_over(c) && c->fence_now && c->phase != PHASE_STARTING) coord_fence_start(c);
    if (!coord_over(c)) coord_fence_advance(c);
    if (!coord_over(c)) coord_saves_advance(c);
    if (!coord_over(c)) coord_changes_advance(c);
    if (c->no_memory) return stop_without_memory(c, actions);
    check_invariants(c, &before);
    *actions = c->actions;
    return c->action_count;
}

const bool *coord_members(const struct coord *c) { return c->members; }
const bool *coord_candidates(const struct coord *c) { return c->candidates; }
const bool *coord_has_state(const struct coord *c) { return c->has_state; }
const struct coord_pair *coord_pairs(const struct coord *c) { return c->pairs; }
bool coord_is_held(const struct coord *c, uint32_t chunk) { return c->chunks[chunk].held; }
uint64_t coord_view(const struct coord *c) { return c->view; }
uint64_t coord_final(const struct coord *c) { return c->final; }

bool coord_durable(const struct coord *c, uint64_t *version) {
    if (c->has_durable) *version = c->durable;
    return c->has_durable;
}
