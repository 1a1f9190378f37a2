/* What the model does with the coordinator's actions, and what the driver answers: plans, durable steps.
 *
 * Everything the coordinator says is held against what the workers hold at that moment, and against what the
 * model knows to be true: who is dead, what is written, which contributions were made of which bits. */
#ifndef TESTS_EXPLORE_COORD_DRIVER_H
#define TESTS_EXPLORE_COORD_DRIVER_H

#include "coord_world.h"

#define NEVER 255u /* a crash after no action of a step: none */

static inline bool world_on_disk(const struct world *w, const struct world_scope *scope, uint8_t version) {
    for (uint32_t chunk = 0; chunk < world_chunks(scope); chunk++) {
        uint8_t parts = w->parts[version][chunk];
        if (parts == 0 || w->written[version][chunk] != (1u << parts) - 1) return false;
    }
    return true;
}

/* ---- the coordinator's actions ---- */

static inline bool world_can_give(const struct world_worker *k, uint32_t chunk, const struct world_go *g,
                                  uint8_t flags) {
    const struct world_holding *h = &k->holdings[chunk];
    if (!k->alive) return true; /* the coordinator will hear of its death */
    bool grad = (flags & COORD_FETCH_GRAD) || g->settle;
    return h->has && h->version == g->version - g->settle && (!grad || h->grad);
}

static inline bool world_somebody_is_beyond(const struct world *w, const struct world_scope *scope,
                                            uint8_t version) {
    for (uint32_t rank = 0; rank < world_ranks(scope); rank++)
        for (uint32_t chunk = 0; chunk < world_chunks(scope); chunk++)
            if (w->workers[rank].holdings[chunk].has && w->workers[rank].holdings[chunk].version > version)
                return true;
    return false;
}

/* Gradients that are held of some chunks; held of all, and not settled, they are worth nothing. */
static inline uint8_t world_reduced(const struct world *w, const struct world_scope *scope) {
    const struct world_go *g = &w->go;
    uint8_t reduced = 0;
    for (uint32_t rank = 0; rank < world_ranks(scope) && !g->settle && !g->restore; rank++)
        for (uint32_t chunk = 0; chunk < world_chunks(scope); chunk++) {
            const struct world_told *t = &w->told[rank][chunk];
            if (t->has && t->version == g->version && t->grad) reduced |= (uint8_t)(1u << chunk);
        }
    return reduced == (1u << world_chunks(scope)) - 1 ? 0 : reduced;
}

/* Contributions that are done, by chunk: the driver's part of salvage. */
static inline const char *world_share_out(struct world *w, const struct world_scope *scope, uint32_t chunk) {
    struct world_go *g = &w->go;
    uint8_t done = 0, holders = 0, at = 0;
    bool reduced = g->reduced >> chunk & 1;
    for (uint32_t rank = 0; rank < world_ranks(scope); rank++) {
        const struct world_told *t = &w->told[rank][chunk];
        holders += g->pairs[rank][chunk].held;
        if (!g->pairs[rank][chunk].held || !(g->pairs[rank][chunk].flags & COORD_KEEP_WORK)) continue;
        if (t->work != g->version + 1 || t->work_shift != g->shift)
            return "GO keeps work of another iteration";
        if (reduced) return "GO keeps work for a chunk that is reduced";
        if (done & t->set) return "GO keeps a contribution twice";
        done |= t->set;
    }
    if (holders == 0) return "GO without a holder of a chunk";
    for (uint32_t rank = 0; rank < world_ranks(scope); rank++) {
        if (!g->pairs[rank][chunk].held) continue;
        for (uint8_t m = at++; m < scope->microbatches; m = (uint8_t)(m + holders)) {
            g->pairs[rank][chunk].later |= (uint8_t)(1u << m);
            if (!reduced && !(done >> m & 1)) g->pairs[rank][chunk].todo |= (uint8_t)(1u << m);
        }
    }
    return NULL;
}

static inline const char *world_send_go(struct world *w, const struct world_scope *scope,
                                        const struct coord *c, const struct coord_action *a) {
    struct world_go *g = &w->go;
    memset(g, 0, sizeof *g);
    memset(w->shares, 0, sizeof w->shares);
    *g = (struct world_go){.view = (uint8_t)a->view,
                           .version = (uint8_t)a->version,
                           .settle = a->settle,
                           .verdict = (uint8_t)a->verdict,
                           .shift = (uint8_t)a->shift,
                           .optimistic = a->optimistic,
                           .restore = a->restore};
    for (uint32_t rank = 0; rank < world_ranks(scope); rank++)
        for (uint32_t chunk = 0; chunk < world_chunks(scope); chunk++) {
            const struct coord_pair *p = &coord_pairs(c)[rank * world_chunks(scope) + chunk];
            g->pairs[rank][chunk].held = p->held;
            g->pairs[rank][chunk].flags = p->flags;
            g->pairs[rank][chunk].source = (uint8_t)p->source;
            bool fetches = p->flags & (COORD_FETCH_STATE | COORD_FETCH_GRAD);
            if (fetches != (p->source != UINT32_MAX)) return "GO with a source for nothing, or without one";
            if (fetches && p->source == rank) return "GO sends a rank to itself";
            if (fetches && !coord_members(c)[p->source]) return "GO sends a rank to one that is no member";
            if (fetches && !world_can_give(&w->workers[p->source], chunk, g, p->flags))
                return "GO sends a rank to one that does not have it";
            if (p->held && (p->flags & COORD_LOAD) != (a->restore ? COORD_LOAD : 0))
                return "GO loads without a return, or returns without loading";
        }
    if (a->settle) {
        if (a->version != w->final + 1u) return "GO settles an iteration that is not the next";
        uint8_t i = w->final, redone = w->outcome[i][0] == OUTCOME_OVERFLOW;
        uint8_t outcome = w->outcome[i][redone];
        if (outcome == OUTCOME_UNKNOWN || outcome == OUTCOME_OVERFLOW) return "settled without an outcome";
        if (a->verdict != world_verdict(scope, outcome)) return "settled with another verdict";
        w->final++;
    } else if (a->restore) {
        if (a->version != 0 && !(w->on_disk >> a->version & 1))
            return "a return to a step that is not durable";
        w->final = (uint8_t)a->version;
    } else if (a->version != w->final) {
        /* What was settled and reached nobody who lives is not known to who takes over, and is made again. */
        if (!w->taken_over || world_somebody_is_beyond(w, scope, (uint8_t)a->version))
            return "GO starts another version than the final one";
        w->final = (uint8_t)a->version;
    }
    w->taken_over = 0;
    g->reduced = world_reduced(w, scope);
    for (uint32_t chunk = 0; chunk < world_chunks(scope); chunk++) {
        const char *wrong = world_share_out(w, scope, chunk);
        if (wrong != NULL) return wrong;
    }
    w->needing = 0;
    return NULL;
}

static inline const char *world_check_decide(struct world *w, const struct world_scope *scope,
                                             const struct coord_action *a) {
    if (a->iteration != w->final) return "an iteration was decided twice or left out";
    uint8_t redone = w->outcome[a->iteration][0] == OUTCOME_OVERFLOW;
    uint8_t outcome = w->outcome[a->iteration][redone];
    if (outcome == OUTCOME_UNKNOWN || outcome == OUTCOME_OVERFLOW)
        return "decided without a finished iteration";
    if (a->verdict != world_verdict(scope, outcome)) return "another verdict than the gradients ask for";
    w->final++;
    return NULL;
}

static inline void world_count_part(struct world *w, const struct coord_action *a, uint32_t *begun) {
    if (!(*begun >> a->version & 1)) {
        *begun |= 1u << a->version;
        w->attempts[a->version]++;
        w->on_disk &= (uint8_t) ~(1u << a->version);
        memset(w->written[a->version], 0, sizeof w->written[0]);
        memset(w->parts[a->version], 0, sizeof w->parts[0]);
    }
    w->parts[a->version][a->chunk] = (uint8_t)a->parts;
}

static inline const char *world_check_leave(const struct world *w, const struct world_scope *scope,
                                            uint32_t leaver) {
    for (uint32_t chunk = 0; chunk < world_chunks(scope); chunk++)
        if (w->go.pairs[leaver][chunk].held && w->workers[leaver].holdings[chunk].held)
            return "LEAVE to a rank that holds a chunk";
    for (uint32_t rank = 0; rank < world_ranks(scope) && w->go.view == w->newest_view; rank++)
        for (uint32_t chunk = 0; chunk < world_chunks(scope); chunk++)
            if (w->workers[rank].holdings[chunk].wait && w->workers[rank].holdings[chunk].source == leaver &&
                !(w->workers[rank].holdings[chunk].wait & COORD_LOAD))
                return "LEAVE to a rank that somebody fetches from";
    for (uint32_t i = 0; i < WORLD_SAVES; i++)
        if (w->workers[leaver].saves[i].parts != 0 && !w->workers[leaver].saves[i].answered)
            return "LEAVE to a rank that saves";
    return NULL;
}

static inline const char *world_on_death(struct world *w, const struct coord_action *a) {
    const struct world_worker *k = &w->workers[a->rank];
    if (!(w->there >> a->rank & 1)) return "a rank died twice";
    if (a->kind == COORD_KILL) {
        if (w->silent != a->rank + 1) return "a rank was killed without reason";
        world_kill(w, a->rank);
        memset(&w->up[a->rank], 0, sizeof w->up[0]);
        return NULL;
    }
    if (k->alive) return "a rank that lives was declared dead";
    w->there &= (uint8_t) ~(1u << a->rank);
    w->preparing &= (uint8_t) ~(1u << a->rank);
    return NULL;
}

static inline const char *world_on_end(struct world *w, const struct world_scope *scope,
                                       const struct coord *c, const struct coord_action *a) {
    w->end = (uint8_t)(1 + a->kind);
    if (a->kind == COORD_FINISH) {
        uint8_t final = (uint8_t)coord_final(c);
        if (final != scope->config.final_version && !w->may_end_early)
            return "FINISH before the last version";
        return w->on_disk >> final & 1 ? NULL : "FINISH before the last version is durable";
    }
    if (a->code != PAWL_IO) return a->why;
    return w->failed > scope->config.save_retries ? NULL : "STOP before the last save was retried";
}

static inline const char *world_send(struct world *w, uint32_t rank, struct world_message m) {
    if (!w->workers[rank].alive) return NULL;
    if (w->down[rank].count == WORLD_QUEUE) return "a channel longer than the model has room for";
    world_put(&w->down[rank], m);
    return NULL;
}

static inline const char *world_send_all(struct world *w, const struct world_scope *scope,
                                         const struct coord *c, struct world_message m) {
    const char *wrong = NULL;
    for (uint32_t rank = 0; rank < world_ranks(scope) && wrong == NULL; rank++)
        if (coord_members(c)[rank]) wrong = world_send(w, rank, m);
    return wrong;
}

static inline const char *world_on_broadcast(struct world *w, const struct world_scope *scope,
                                             const struct coord *c, const struct coord_action *a) {
    struct world_message m = {.kind = (uint8_t)a->kind,
                              .view = (uint8_t)a->view,
                              .version = (uint8_t)(a->kind == COORD_DECIDE ? a->iteration + 1 : a->version),
                              .verdict = (uint8_t)a->verdict,
                              .optimistic = a->optimistic};
    const char *wrong = NULL;
    if (a->rank != UINT32_MAX) return "a broadcast that names a rank";
    if (a->view >= WORLD_VIEWS) return "more views than the model has room for";
    if (a->kind == COORD_DURABLE && !(w->on_disk >> a->version & 1)) return "durable without every part";
    if (a->kind == COORD_GO) wrong = world_send_go(w, scope, c, a);
    if (a->kind == COORD_DECIDE) wrong = world_check_decide(w, scope, a);
    if (a->kind == COORD_FENCE) {
        w->finding = w->planning = w->needing = 0;
        memset(w->told, 0, sizeof w->told);
    }
    if (a->kind == COORD_FENCE || a->kind == COORD_GO) w->newest_view = (uint8_t)a->view;
    return wrong != NULL ? wrong : world_send_all(w, scope, c, m);
}

static inline const char *world_on_action(struct world *w, const struct world_scope *scope,
                                          const struct coord *c, const struct coord_action *a,
                                          uint32_t *begun) {
    struct world_message m = {.kind = (uint8_t)a->kind,
                              .version = (uint8_t)a->version,
                              .chunk = (uint8_t)a->chunk,
                              .part = (uint8_t)a->part,
                              .parts = (uint8_t)a->parts,
                              .peer = (uint8_t)a->peer};
    const char *wrong;
    switch (a->kind) {
    case COORD_FENCE:
    case COORD_GO:
    case COORD_DECIDE:
    case COORD_DURABLE:
    case COORD_FORGET:
        return world_on_broadcast(w, scope, c, a);
    case COORD_FIND:
        w->finding = (uint8_t)a->view;
        return NULL;
    case COORD_PLAN:
        w->planning = (uint8_t)a->view;
        return NULL;
    case COORD_NEED:
        w->needing = 1;
        return NULL;
    case COORD_PREPARE_FOR:
        w->preparing |= (uint8_t)(1u << a->rank);
        return NULL;
    case COORD_PREPARE:
        if (a->peer == a->rank || !coord_members(c)[a->peer]) return "PREPARE from one that is no member";
        return world_send(w, a->rank, m);
    case COORD_SAVE:
        world_count_part(w, a, begun);
        m.attempt = w->attempts[a->version];
        return world_send(w, a->rank, m);
    case COORD_KILL:
    case COORD_DIED:
        return world_on_death(w, a);
    case COORD_LEAVE:
        if (w->left >> a->rank & 1) return "LEAVE twice";
        w->left |= (uint8_t)(1u << a->rank);
        wrong = world_check_leave(w, scope, a->rank);
        return wrong != NULL ? wrong : world_send(w, a->rank, m);
    case COORD_LEFT:
        if (!(w->left >> a->rank & 1) || w->workers[a->rank].alive) return "LEFT without leave";
        w->left &= (uint8_t) ~(1u << a->rank);
        w->there &= (uint8_t) ~(1u << a->rank);
        return NULL;
    case COORD_FINISH:
    case COORD_STOP:
        return world_on_end(w, scope, c, a);
    default:
        return NULL;
    }
}

/* One event; the coordinator's process ends after `acts` actions of the step (NEVER: it does not). True in
 * *crashed if it did. */
static inline const char *world_feed_crash(struct world *w, const struct world_scope *scope, struct coord *c,
                                           const struct coord_event *event, uint32_t acts, bool *crashed) {
    uint64_t durable_before = 0, durable = 0, final_before = coord_final(c);
    bool had = coord_durable(c, &durable_before), restored = false;
    struct coord_event timed = *event;
    timed.now_ns = w->seconds; /* beat_ns is 1, all other limits are out of reach */
    const struct coord_action *a;
    size_t count = coord_step(c, &timed, &a);
    uint32_t begun = 0;
    *crashed = acts < count;
    for (size_t i = 0; i < count && i < acts; i++) {
        if (w->end != 0) return "actions after the end";
        restored = restored || a[i].kind == COORD_RESTORED || a[i].restore;
        const char *wrong = world_on_action(w, scope, c, &a[i], &begun);
        if (wrong != NULL) return wrong;
    }
    if (*crashed) return NULL;
    had = coord_durable(c, &durable) || !had;
    if (!restored && (!had || durable < durable_before || coord_final(c) < final_before))
        return "a version that only grows has shrunk";
    return NULL;
}

static inline const char *world_feed(struct world *w, const struct world_scope *scope, struct coord *c,
                                     const struct coord_event *event) {
    bool crashed;
    return world_feed_crash(w, scope, c, event, NEVER, &crashed);
}

static inline const char *world_open(struct world *w, const struct world_scope *scope, struct coord *c) {
    memset(w, 0, sizeof *w);
    w->deaths = scope->deaths;
    w->save_failures = scope->save_failures;
    w->stoppings = scope->stoppings;
    w->joins = scope->joins;
    w->leaves = scope->leaves;
    w->takeovers = scope->takeovers;
    w->changes = scope->changes;
    w->replans = scope->replans;
    w->on_disk = scope->durable > 0 ? (uint8_t)(1u << scope->durable) : 0;
    for (uint8_t i = 0; i < scope->durable; i++) w->outcome[i][0] = OUTCOME_SMALL;
    const char *wrong = NULL;
    for (uint32_t rank = 0; rank < scope->first_ranks && wrong == NULL; rank++) {
        w->workers[rank].alive = 1;
        w->there |= (uint8_t)(1u << rank);
        world_put(&w->up[rank], (struct world_message){.kind = COORD_READY});
        wrong = world_feed(w, scope, c, &(struct coord_event){.kind = COORD_STARTED, .rank = rank});
    }
    return wrong;
}

/* ---- the driver's answers ---- */

static inline struct coord_event world_found(struct world *w, const struct world_scope *scope) {
    struct coord_event event = {.kind = COORD_FOUND, .view = w->finding, .ok = true};
    for (uint8_t version = 0; version <= scope->config.final_version; version++)
        if (w->on_disk >> version & 1) event.version = version;
    for (uint8_t version = 0; version <= scope->config.final_version; version++) {
        w->attempts[version]++; /* what is still being written belongs to the past */
        if (w->on_disk >> version & 1) continue;
        memset(w->written[version], 0, sizeof w->written[0]);
        memset(w->parts[version], 0, sizeof w->parts[0]);
    }
    w->finding = 0;
    return event;
}

static inline uint8_t world_count_of(const struct world *w, const struct world_scope *scope, uint8_t chunk) {
    uint8_t count = 0;
    for (uint32_t rank = 0; rank < world_ranks(scope); rank++)
        if (w->own[rank] == chunk + 1) count++;
    return count;
}

static inline uint8_t world_extreme(const struct world *w, const struct world_scope *scope, bool most) {
    uint8_t best = 0;
    for (uint8_t chunk = 1; chunk < world_chunks(scope); chunk++) {
        uint8_t a = world_count_of(w, scope, chunk), b = world_count_of(w, scope, best);
        if (most ? a > b : a < b) best = chunk;
    }
    return best;
}

/* Each candidate keeps its chunk; new ones take the one that fewest have; if a chunk has nobody, somebody
 * moves there. Variants: 1 one rank more moves to the chunk that fewest have; 2 the first helps with all. */
static inline bool world_plan(struct world *w, const struct world_scope *scope, const bool *candidates,
                              uint8_t variant, bool *holds, uint32_t *own) {
    uint32_t chunks = world_chunks(scope), there = 0, first = UINT32_MAX;
    for (uint32_t rank = 0; rank < world_ranks(scope); rank++) {
        there += candidates[rank];
        if (candidates[rank] && first == UINT32_MAX) first = rank;
        if (!candidates[rank]) w->own[rank] = 0;
    }
    if (there < chunks) return false;
    for (uint32_t rank = 0; rank < world_ranks(scope); rank++)
        if (candidates[rank] && w->own[rank] == 0)
            w->own[rank] = (uint8_t)(world_extreme(w, scope, false) + 1);
    bool more = variant == 1;
    for (;;) {
        uint8_t fewest = world_extreme(w, scope, false), most = world_extreme(w, scope, true);
        if (world_count_of(w, scope, most) < 2 || fewest == most) break;
        if (world_count_of(w, scope, fewest) > 0 && !more) break;
        more = false;
        uint32_t mover = 0;
        while (w->own[mover] != most + 1) mover++;
        w->own[mover] = (uint8_t)(fewest + 1);
    }
    for (uint32_t rank = 0; rank < world_ranks(scope); rank++) {
        own[rank] = w->own[rank] == 0 ? UINT32_MAX : w->own[rank] - 1u;
        for (uint32_t chunk = 0; chunk < chunks; chunk++)
            holds[rank * chunks + chunk] = own[rank] == chunk || (variant == 2 && rank == first);
    }
    return true;
}

static inline const char *world_answer_plan(struct world *w, const struct world_scope *scope, struct coord *c,
                                            uint8_t variant, uint32_t acts, bool *crashed) {
    bool holds[WORLD_RANKS * WORLD_CHUNKS] = {false};
    uint32_t own[WORLD_RANKS];
    struct coord_event event = {.kind = COORD_PLANNED, .view = w->planning, .holds = holds, .own = own};
    event.ok = world_plan(w, scope, coord_candidates(c), variant, holds, own);
    if (!event.ok) event.code = PAWL_STAGE_LOST;
    w->planning = 0;
    if (!event.ok && w->leaves < scope->leaves) w->may_end_early = 1;
    return world_feed_crash(w, scope, c, &event, acts, crashed);
}

static inline uint32_t world_fenced(struct world *w, const struct world_scope *scope, uint32_t rank,
                                    struct coord_fenced_pair *pairs, struct coord_fenced_save *saves,
                                    uint32_t *save_count) {
    uint32_t count = 0;
    const struct world_answer *a = &w->answers[rank];
    for (uint32_t chunk = 0; chunk < world_chunks(scope); chunk++) {
        const struct world_told *t = &a->pairs[chunk];
        w->told[rank][chunk] = *t;
        if (!t->has) continue;
        struct coord_fenced_pair pair = {.chunk = chunk,
                                         .version = t->version,
                                         .has_report = t->grad,
                                         .work = t->work == 0 ? COORD_NO_WORK : t->work - 1u,
                                         .work_shift = t->work_shift};
        if (t->grad) pair.report = world_report(w, scope, chunk, t->version, a->shift);
        pairs[count++] = pair;
    }
    *save_count = 0;
    for (uint32_t i = 0; i < WORLD_SAVES; i++) {
        const struct world_save *s = &a->saves[i];
        if (s->parts == 0 || s->forgotten) continue;
        saves[(*save_count)++] =
            (struct coord_fenced_save){s->version, s->chunk, s->part, s->parts, s->answered, s->ok};
    }
    return count;
}

#endif
