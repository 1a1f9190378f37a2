/* The moves of the model in coord_world.h: what may happen next, and what each does.
 *
 * Everything the coordinator says is held against what the workers hold when they hear it, and against what
 * the model knows to be true: who is dead, what is written, which bits a version must have. */
#ifndef TESTS_EXPLORE_COORD_MOVES_H
#define TESTS_EXPLORE_COORD_MOVES_H

#include "coord_world.h"

enum move_kind {
    MOVE_DOWN,    /* a rank takes the next action of its channel */
    MOVE_UP,      /* the coordinator takes the next event of a rank's channel */
    MOVE_REDUCE,  /* a rank has the reduced gradient; argument: outcome */
    MOVE_FETCH,   /* a settling rank gets the gradient from its peer */
    MOVE_WRITTEN, /* a part of a save is written; argument: which */
    MOVE_FAILED,  /* ... or not */
    MOVE_DIE,     /* argument: how many of its undelivered events still arrive */
    MOVE_SILENCE, /* a rank lives, but no beat of it arrives */
    MOVE_STOPPING,
};

struct move {
    uint8_t kind, rank, argument;
};

#define WORLD_MOVES_MAX 128

/* ---- the coordinator's actions ---- */

static inline const char *world_check_durable(const struct world *w, const struct world_scope *scope,
                                              uint8_t version) {
    for (uint32_t stage = 0; stage < scope->config.stages; stage++) {
        uint32_t written = 0, parts = 0;
        for (uint32_t rank = stage; rank < world_ranks(scope); rank += scope->config.stages) {
            uint8_t asked = w->asked[version][rank];
            if (asked == 0) continue;
            if (parts != 0 && parts != asked)
                return "the ranks of a stage were asked for different partitions";
            parts = asked;
            if (w->written[version][rank] > 0) written |= 1u << (w->written[version][rank] - 1);
        }
        if (parts == 0 || written != (1u << parts) - 1) return "durable without every part of every stage";
    }
    return NULL;
}

static inline const char *world_on_decided(struct world *w, const struct world_scope *scope,
                                           const struct coord_action *a) {
    if (a->iteration != w->decided) return "an iteration was decided twice or left out";
    uint8_t redone = w->outcome[a->iteration][0] == OUTCOME_OVERFLOW;
    uint8_t outcome = w->outcome[a->iteration][redone];
    if (outcome == OUTCOME_UNKNOWN || outcome == OUTCOME_OVERFLOW)
        return "decided without a finished iteration";
    if (a->verdict != world_verdict(scope, outcome)) return "another verdict than the gradients ask for";
    w->decided++;
    return NULL;
}

static inline const char *world_send_go(struct world *w, const struct world_scope *scope,
                                        const struct coord *c, const struct coord_action *a) {
    struct world_message m = {.kind = COORD_GO,
                              .view = (uint8_t)a->view,
                              .version = (uint8_t)a->version,
                              .shift = (uint8_t)a->shift,
                              .verdict = (uint8_t)a->verdict,
                              .optimistic = a->optimistic,
                              .settle = a->settle,
                              .has_grad = coord_has_grad(c)[a->rank]};
    if (a->view >= WORLD_VIEWS) return "more views than the model has room for";
    for (uint32_t rank = world_ranks(scope); a->settle && rank-- > 0;) {
        bool peer = world_stage(scope, rank) == world_stage(scope, a->rank);
        if (peer && coord_live(c)[rank] && coord_has_grad(c)[rank]) m.attempt = (uint8_t)(rank + 1);
    }
    if (a->settle && m.attempt == 0) return "GO settles a stage whose gradient nobody holds";
    w->members[a->view] |= (uint8_t)(1u << a->rank);
    if (w->workers[a->rank].alive) world_put(&w->down[a->rank], m);
    return NULL;
}

static inline void world_send_save(struct world *w, const struct coord_action *a, uint32_t *begun) {
    if (!(*begun >> a->version & 1)) {
        *begun |= 1u << a->version;
        w->attempts[a->version]++;
        memset(w->written[a->version], 0, sizeof w->written[0]);
        memset(w->asked[a->version], 0, sizeof w->asked[0]);
    }
    w->asked[a->version][a->rank] = (uint8_t)a->parts;
    struct world_message m = {.kind = COORD_SAVE,
                              .version = (uint8_t)a->version,
                              .part = (uint8_t)a->part,
                              .parts = (uint8_t)a->parts,
                              .attempt = w->attempts[a->version]};
    if (w->workers[a->rank].alive) world_put(&w->down[a->rank], m);
}

static inline const char *world_on_death(struct world *w, const struct coord *c,
                                         const struct coord_action *a) {
    const struct world_worker *k = &w->workers[a->rank];
    if (w->declared_dead >> a->rank & 1) return "a rank died twice";
    if (a->kind == COORD_KILL) {
        bool behind = k->alive && !k->running && k->version + 1u == coord_final(c);
        if (w->silent != a->rank + 1 && !behind) return "a rank was killed without reason";
        if (w->silent != a->rank + 1) w->killed_behind |= (uint8_t)(1u << a->rank);
        world_kill(w, a->rank);
        memset(&w->up[a->rank], 0, sizeof w->up[0]);
        return NULL;
    }
    if (k->alive) return "a rank that lives was declared dead";
    w->declared_dead |= (uint8_t)(1u << a->rank);
    return NULL;
}

static inline const char *world_on_end(struct world *w, const struct world_scope *scope,
                                       const struct coord *c, const struct coord_action *a) {
    w->end = (uint8_t)(1 + a->kind);
    uint64_t durable = 0;
    switch (a->kind) {
    case COORD_FINISH:
        if (coord_final(c) != w->target) return "FINISH at another version than the last";
        if (!coord_durable(c, &durable) || durable != w->target)
            return "FINISH before the last version is durable";
        return NULL;
    case COORD_LOST:
        for (uint32_t rank = a->stage; rank < world_ranks(scope); rank += scope->config.stages)
            if (!(w->declared_dead >> rank & 1)) return "LOST though a replica lives";
        return NULL;
    default:
        if (a->code != PAWL_IO) return a->why;
        return w->failed_last > scope->config.save_retries ? NULL : "STOP before the last save was retried";
    }
}

static inline const char *world_on_action(struct world *w, const struct world_scope *scope,
                                          const struct coord *c, const struct coord_action *a,
                                          uint32_t *begun) {
    bool told = a->kind <= COORD_FORGET || a->kind == COORD_FINISH; /* addressed to a live rank */
    if (told && w->declared_dead >> a->rank & 1) return "an action to a rank that was declared dead";
    if (told) w->started = 1;
    if (told && w->down[a->rank].count == WORLD_QUEUE) return "a channel longer than the model has room for";
    struct world_message m = {.kind = (uint8_t)a->kind, .view = (uint8_t)a->view};
    switch (a->kind) {
    case COORD_FENCE:
        if (w->workers[a->rank].alive) world_put(&w->down[a->rank], m);
        return NULL;
    case COORD_GO:
        return world_send_go(w, scope, c, a);
    case COORD_DECIDE:
        m.version = (uint8_t)(a->iteration + 1);
        m.verdict = (uint8_t)a->verdict;
        m.optimistic = a->optimistic;
        if (w->workers[a->rank].alive) world_put(&w->down[a->rank], m);
        return NULL;
    case COORD_SAVE:
        if (!(*begun >> a->version & 1) && w->attempts[a->version] > 0 && a->version != w->target)
            return "a version before the last was saved twice";
        world_send_save(w, a, begun);
        return NULL;
    case COORD_KILL:
    case COORD_DIED:
        return world_on_death(w, c, a);
    case COORD_DECIDED:
        return world_on_decided(w, scope, a);
    case COORD_DURABLE_AT:
        return world_check_durable(w, scope, (uint8_t)a->version);
    case COORD_SKIPPED:
        return a->version == w->target ? "the last version was skipped" : NULL;
    case COORD_FINISH:
    case COORD_LOST:
    case COORD_STOP:
        return world_on_end(w, scope, c, a);
    default:
        return NULL;
    }
}

static inline const char *world_feed(struct world *w, const struct world_scope *scope, struct coord *c,
                                     const struct coord_event *event) {
    uint64_t final_before = coord_final(c), durable_before = 0, durable = 0;
    coord_durable(c, &durable_before);
    struct coord_event timed = *event;
    timed.now_ns = w->seconds; /* beat_ns is 1, all other limits are out of reach */
    const struct coord_action *a;
    size_t count = coord_step(c, &timed, &a);
    uint32_t begun = 0;
    for (size_t i = 0; i < count; i++) {
        if (w->end != 0 && w->end != 1 + COORD_FINISH) return "actions after the end";
        const char *wrong = world_on_action(w, scope, c, &a[i], &begun);
        if (wrong != NULL) return wrong;
    }
    coord_durable(c, &durable);
    if (coord_final(c) < final_before || durable < durable_before)
        return "a version that only grows has shrunk";
    if (coord_final(c) != w->decided) return "a version became final without a decision";
    return NULL;
}

static inline const char *world_on_up(struct world *w, const struct world_scope *scope, struct coord *c,
                                      uint32_t rank) {
    struct world_message m = world_take(&w->up[rank]);
    struct coord_event event = {.kind = (enum coord_event_kind)m.kind,
                                .rank = rank,
                                .view = m.view,
                                .version = m.version,
                                .part = m.part,
                                .parts = m.parts,
                                .ok = m.ok,
                                .has_report = m.kind == COORD_FENCED && m.has_grad};
    if (m.kind == COORD_SAVED && !m.ok && m.version == w->target) w->failed_last++;
    if (m.kind == COORD_REDUCED || event.has_report)
        event.report = world_report(w, scope, rank, m.version, m.shift);
    return world_feed(w, scope, c, &event);
}

/* ---- moves ---- */

static inline bool world_can_reduce(const struct world *w, const struct world_scope *scope, uint32_t rank) {
    const struct world_worker *k = &w->workers[rank];
    if (!k->running || k->fetching || k->has_grad || k->version >= scope->config.final_version) return false;
    uint8_t members = w->members[k->view];
    return (w->reached[k->view][k->version] & members) == members;
}

static inline bool world_can_fetch(const struct world *w, uint32_t rank) {
    const struct world_worker *k = &w->workers[rank];
    if (k->fetching == 0) return false;
    const struct world_worker *peer = &w->workers[k->fetching - 1];
    return peer->alive && peer->running && peer->view == k->view && peer->version > k->version;
}

static inline uint32_t world_worker_moves(const struct world *w, const struct world_scope *scope,
                                          uint32_t rank, struct move *out) {
    const struct world_worker *k = &w->workers[rank];
    uint32_t n = 0;
    uint8_t r = (uint8_t)rank;
    if (w->down[rank].count > 0) out[n++] = (struct move){MOVE_DOWN, r, 0};
    if (world_can_fetch(w, rank)) out[n++] = (struct move){MOVE_FETCH, r, 0};
    if (world_can_reduce(w, scope, rank)) {
        uint8_t known = w->outcome[k->version][k->shift / 16];
        for (uint8_t outcome = 1; outcome <= OUTCOME_OVERFLOW; outcome++) {
            bool allowed = scope->outcomes >> outcome & 1 && (outcome != OUTCOME_OVERFLOW || k->shift == 0);
            if (known == outcome || (known == OUTCOME_UNKNOWN && allowed))
                out[n++] = (struct move){MOVE_REDUCE, r, outcome};
        }
    }
    for (uint8_t i = 0; i < WORLD_SAVES; i++) {
        if (k->saves[i].parts == 0 || k->version < k->saves[i].version) continue;
        out[n++] = (struct move){MOVE_WRITTEN, r, i};
        if (w->save_failures > 0) out[n++] = (struct move){MOVE_FAILED, r, i};
    }
    return n;
}

static inline uint32_t world_moves(const struct world *w, const struct world_scope *scope, struct move *out) {
    uint32_t n = 0;
    if (w->end != 0) return 0;
    for (uint32_t rank = 0; rank < world_ranks(scope); rank++) {
        uint8_t r = (uint8_t)rank;
        if (w->up[rank].count > 0) out[n++] = (struct move){MOVE_UP, r, 0};
        if (!w->workers[rank].alive) continue;
        n += world_worker_moves(w, scope, rank, out + n);
    }
    if (w->stoppings > 0) out[n++] = (struct move){MOVE_STOPPING, 0, 0};
    for (uint32_t rank = 0; rank < world_ranks(scope) && w->deaths > 0; rank++)
        for (uint8_t kept = 0; w->workers[rank].alive && kept <= w->up[rank].count; kept++)
            out[n++] = (struct move){MOVE_DIE, (uint8_t)rank, kept};
    for (uint32_t rank = 0; rank < world_ranks(scope) && scope->silences && w->started && w->deaths > 0;
         rank++)
        if (w->workers[rank].alive) out[n++] = (struct move){MOVE_SILENCE, (uint8_t)rank, 0};
    return n;
}

static inline void world_reduce(struct world *w, const struct world_scope *scope, struct move move) {
    struct world_worker *k = &w->workers[move.rank];
    w->outcome[k->version][k->shift / 16] = move.argument;
    k->has_grad = 1;
    world_put(&w->up[move.rank],
              (struct world_message){
                  .kind = COORD_REDUCED, .view = k->view, .version = k->version, .shift = k->shift});
    if (!k->optimistic) return;
    k->tentative = 1;
    world_begin(w, scope, move.rank);
}

static inline void world_answer_save(struct world *w, struct move move) {
    struct world_save *save = &w->workers[move.rank].saves[move.argument];
    bool ok = move.kind == MOVE_WRITTEN;
    if (!ok) w->save_failures--;
    if (ok && save->attempt == w->attempts[save->version])
        w->written[save->version][move.rank] = (uint8_t)(save->part + 1);
    world_put(&w->up[move.rank], (struct world_message){.kind = COORD_SAVED,
                                                        .version = save->version,
                                                        .part = save->part,
                                                        .parts = save->parts,
                                                        .ok = ok});
    *save = (struct world_save){0};
}

static inline void world_die(struct world *w, struct move move) {
    struct world_queue *up = &w->up[move.rank];
    w->deaths--;
    world_kill(w, move.rank);
    memset(&up->at[move.argument], 0, sizeof up->at[0] * (size_t)(up->count - move.argument));
    up->count = move.argument;
    world_put(up, (struct world_message){.kind = COORD_EXIT});
}

/* Time passes, everybody is heard but `rank`. */
static inline const char *world_silence(struct world *w, const struct world_scope *scope, struct coord *c,
                                        uint32_t rank) {
    w->deaths--;
    w->silent = (uint8_t)(rank + 1);
    const char *wrong = NULL;
    for (int second = 0; second < 2; second++) {
        w->seconds++;
        for (uint32_t other = 0; other < world_ranks(scope) && wrong == NULL; other++) {
            struct coord_event beat = {.kind = COORD_BEAT, .rank = other};
            if (other != rank) wrong = world_feed(w, scope, c, &beat);
        }
    }
    if (wrong == NULL) wrong = world_feed(w, scope, c, &(struct coord_event){.kind = COORD_TICK});
    w->silent = 0;
    return wrong != NULL || w->declared_dead >> rank & 1 ? wrong : "a silent rank was not declared dead";
}

/* What no live rank can use any more must not tell states apart. */
static inline void world_forget(struct world *w, const struct world_scope *scope) {
    uint8_t oldest = WORLD_VIEWS;
    for (uint32_t rank = 0; rank < world_ranks(scope); rank++)
        if (w->workers[rank].alive && w->workers[rank].view < oldest) oldest = w->workers[rank].view;
    for (uint8_t view = 0; view < oldest; view++) {
        w->members[view] = 0;
        memset(w->reached[view], 0, sizeof w->reached[view]);
    }
}

static inline const char *world_apply(struct world *w, const struct world_scope *scope, struct coord *c,
                                      struct move move) {
    const char *wrong = NULL;
    switch (move.kind) {
    case MOVE_DOWN:
        if (w->up[move.rank].count == WORLD_QUEUE) return "a channel longer than the model has room for";
        wrong = world_on_down(w, scope, move.rank);
        break;
    case MOVE_UP:
        wrong = world_on_up(w, scope, c, move.rank);
        break;
    case MOVE_REDUCE:
        world_reduce(w, scope, move);
        break;
    case MOVE_FETCH:
        wrong = world_finalize(w, scope, move.rank, w->workers[move.rank].verdict);
        world_begin(w, scope, move.rank);
        break;
    case MOVE_WRITTEN:
    case MOVE_FAILED:
        world_answer_save(w, move);
        break;
    case MOVE_DIE:
        world_die(w, move);
        break;
    case MOVE_SILENCE:
        wrong = world_silence(w, scope, c, move.rank);
        break;
    default:
        w->stoppings--;
        if (coord_final(c) < w->target) w->target = (uint8_t)(coord_final(c) + 1);
        wrong = world_feed(w, scope, c, &(struct coord_event){.kind = COORD_STOPPING});
    }
    world_forget(w, scope);
    return wrong;
}

static inline void world_print_move(const struct world *w, struct move move, char *out, size_t size) {
    static const char *const actions[] = {"FENCE", "GO", "DECIDE", "SAVE"};
    static const char *const events[] = {"READY", "EXIT", "SUSPECT", "BEAT", "REDUCED", "FENCED", "SAVED"};
    static const char *const outcomes[] = {"?", "small", "large", "not finite", "overflow"};
    const struct world_message *m;
    switch (move.kind) {
    case MOVE_DOWN:
        m = &w->down[move.rank].at[0];
        snprintf(out, size, "rank %u takes %s view %u version %u%s", move.rank, actions[m->kind], m->view,
                 m->version, m->settle ? " settle" : "");
        return;
    case MOVE_UP:
        m = &w->up[move.rank].at[0];
        snprintf(out, size, "coordinator takes %s of rank %u view %u version %u%s", events[m->kind],
                 move.rank, m->view, m->version,
                 m->has_grad ? " with gradient"
                 : m->ok     ? " ok"
                             : "");
        return;
    case MOVE_REDUCE:
        snprintf(out, size, "rank %u reduces version %u: %s", move.rank, w->workers[move.rank].version,
                 outcomes[move.argument]);
        return;
    case MOVE_FETCH:
        snprintf(out, size, "rank %u gets the gradient from rank %u", move.rank,
                 w->workers[move.rank].fetching - 1u);
        return;
    case MOVE_WRITTEN:
    case MOVE_FAILED:
        snprintf(out, size, "rank %u %s its part of version %u", move.rank,
                 move.kind == MOVE_WRITTEN ? "writes" : "fails to write",
                 w->workers[move.rank].saves[move.argument].version);
        return;
    case MOVE_DIE:
        snprintf(out, size, "rank %u dies, %u of its events still arrive", move.rank, move.argument);
        return;
    case MOVE_SILENCE:
        snprintf(out, size, "rank %u lives, but its beats do not arrive", move.rank);
        return;
    default:
        snprintf(out, size, "the user asks to stop");
    }
}

#endif
