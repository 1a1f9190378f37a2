/* The coordinator's step: take one event, hand it to the file it concerns, say what follows.
 *
 * Order inside a step: what the event itself causes (a decision with its saves), then the deaths it
 * showed, then the fence these need, then what the whole allows (GO, the last save, FINISH). Events are
 * external: rank and kind are checked here, the rest where it is used. The invariants at the end hold in
 * every build. Tested in tests/unit/coord_*, tests/explore/coord_*. */
#include "coord/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Actions that a typical step emits per rank (DECIDE, SAVE, DURABLE, FENCE); more is grown. */
#define ACTIONS_PER_RANK 4u
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
    *action = (struct coord_action){.kind = kind};
    return action;
}

void coord_push_live(struct coord *c, struct coord_action action) {
    for (uint32_t rank = 0; rank < c->rank_count; rank++) {
        if (!c->live[rank]) continue;
        action.rank = rank;
        *coord_push(c, action.kind) = action;
    }
}

void coord_stop(struct coord *c, pawl_code code, const char *why) {
    if (coord_over(c)) return;
    struct coord_action *stop = coord_push(c, COORD_STOP);
    stop->code = code;
    stop->why = why;
    stop->rank = c->event_rank;
    stop->view = c->view;
    stop->version = c->final;
    c->phase = PHASE_OVER;
}

static pawl_code check_counts(const struct coord_config *k, struct pawl_error *e) {
    uint64_t ranks = (uint64_t)k->pipelines * k->stages;
    if (ranks == 0 || ranks > UINT32_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "pipelines * stages: wanted 1..%u ranks, had %u * %u",
                         UINT32_MAX, k->pipelines, k->stages);
    if (k->final_version < k->first_version)
        return error_set(e, PAWL_ARGUMENT, 0, "final_version: wanted at least first_version %llu, had %llu",
                         (unsigned long long)k->first_version, (unsigned long long)k->final_version);
    if (k->saves_max == 0) return error_set(e, PAWL_ARGUMENT, 0, "saves_max: wanted at least 1, had 0");
    if (!isfinite(k->clip_norm) || k->clip_norm < 0)
        return error_set(e, PAWL_ARGUMENT, 0, "clip_norm: wanted a finite number >= 0, had %g", k->clip_norm);
    return PAWL_OK;
}

static pawl_code check_times(const struct coord_config *k, struct pawl_error *e) {
    const struct {
        const char *name;
        int64_t ns;
    } times[] = {{"start_ns", k->start_ns},
                 {"beat_ns", k->beat_ns},
                 {"stall_ns", k->stall_ns},
                 {"suspect_ns", k->suspect_ns}};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        if (times[i].ns > 0) continue;
        return error_set(e, PAWL_ARGUMENT, 0, "%s: wanted more than 0, had %lld", times[i].name,
                         (long long)times[i].ns);
    }
    return PAWL_OK;
}

static bool take_memory(struct coord *c) {
    size_t ranks = c->rank_count;
    c->live = calloc(ranks, sizeof *c->live);
    c->has_grad = calloc(ranks, sizeof *c->has_grad);
    c->members = calloc(ranks, sizeof *c->members);
    c->stages = calloc(c->config.stages, sizeof *c->stages);
    c->action_room = ranks * ACTIONS_PER_RANK + ACTIONS_MORE;
    c->actions = calloc(c->action_room, sizeof *c->actions);
    return c->live != NULL && c->has_grad != NULL && c->members != NULL && c->stages != NULL &&
           c->actions != NULL;
}

pawl_code coord_new(const struct coord_config *config, struct coord **out, struct pawl_error *e) {
    *out = NULL;
    pawl_code code = check_counts(config, e);
    if (code == PAWL_OK) code = check_times(config, e);
    if (code != PAWL_OK) return code;
    uint32_t ranks = config->pipelines * config->stages;
    struct coord *c = calloc(1, sizeof *c);
    if (c != NULL) {
        c->config = *config;
        c->rank_count = ranks;
    }
    if (c == NULL || !take_memory(c)) {
        coord_free(c);
        return error_set(e, PAWL_MEMORY, 0, "coordinator of %u ranks: no memory", ranks);
    }
    c->final = config->first_version;
    c->target = config->final_version;
    c->optimistic = config->clip_norm == 0;
    for (uint32_t rank = 0; rank < ranks; rank++) c->live[rank] = true;
    for (uint32_t stage = 0; stage < config->stages; stage++) c->stages[stage].live = config->pipelines;
    *out = c;
    return PAWL_OK;
}

void coord_free(struct coord *c) {
    if (c == NULL) return;
    for (size_t i = 0; i < c->save_count; i++) coord_save_close(&c->saves[i]);
    free(c->saves);
    free(c->suspicions);
    free(c->actions);
    free(c->stages);
    free(c->members);
    free(c->has_grad);
    free(c->live);
    free(c);
}

/* The clock never goes back, and starts with the first event. A step that comes later than beat_ns after the
 * one before shows that this process itself was not running. */
static void advance_clock(struct coord *c, int64_t now_ns) {
    if (!c->begun) {
        c->begun = true;
        c->now_ns = now_ns;
        c->start_at = now_ns;
        coord_clocks_restart(c);
        return;
    }
    int64_t before = c->now_ns;
    if (now_ns > c->now_ns) c->now_ns = now_ns;
    if (coord_elapsed(c, before) > c->config.beat_ns) c->late = true;
}

static void handle_of_rank(struct coord *c, const struct coord_event *event) {
    if (event->rank >= c->rank_count) {
        coord_stop(c, PAWL_INTERNAL, "an event of a rank that does not exist");
        return;
    }
    if (!c->live[event->rank]) return;
    c->event_rank = event->rank;
    c->members[event->rank].heard_at = c->now_ns;
    switch (event->kind) {
    case COORD_READY:
        coord_on_ready(c, event);
        return;
    case COORD_EXIT:
        coord_on_exit(c, event);
        return;
    case COORD_SUSPECT:
        coord_on_suspect(c, event);
        return;
    case COORD_BEAT:
        coord_on_beat(c, event);
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
        return;
    }
}

static void handle(struct coord *c, const struct coord_event *event) {
    if (event->kind == COORD_TICK)
        coord_on_tick(c);
    else if (event->kind == COORD_STOPPING)
        coord_on_stopping(c);
    else
        handle_of_rank(c, event);
}

static void check_invariants(const struct coord *c, const struct coord *before) {
    COORD_MUST(c->final >= before->final && c->final <= before->final + 1);
    COORD_MUST(c->view >= before->view);
    COORD_MUST(c->has_durable >= before->has_durable && c->durable >= before->durable);
    COORD_MUST(!c->has_durable || c->durable <= c->final);
    COORD_MUST(coord_over(c) || c->final <= c->target);
    COORD_MUST(c->save_count <= c->config.saves_max);
    for (uint32_t stage = 0; stage < c->config.stages && !coord_over(c); stage++)
        COORD_MUST(c->stages[stage].live > 0);
}

static size_t stop_without_memory(struct coord *c, const struct coord_action **actions) {
    c->scratch = (struct coord_action){.kind = COORD_STOP,
                                       .code = PAWL_MEMORY,
                                       .why = "the coordinator has no memory left",
                                       .rank = UINT32_MAX,
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
    c->died = false;
    c->event_rank = UINT32_MAX;
    advance_clock(c, event->now_ns);
    handle(c, event);
    if (!coord_over(c) && c->died && c->phase != PHASE_STARTING) coord_fence_start(c);
    if (!coord_over(c)) coord_fence_advance(c);
    if (!coord_over(c)) coord_saves_advance(c);
    if (c->no_memory) return stop_without_memory(c, actions);
    check_invariants(c, &before);
    *actions = c->actions;
    return c->action_count;
}

const bool *coord_live(const struct coord *c) { return c->live; }
const bool *coord_has_grad(const struct coord *c) { return c->has_grad; }
uint64_t coord_view(const struct coord *c) { return c->view; }
uint64_t coord_final(const struct coord *c) { return c->final; }

bool coord_durable(const struct coord *c, uint64_t *version) {
    if (c->has_durable) *version = c->durable;
    return c->has_durable;
}
