/* A model of the coordinator's surroundings: workers, their channels, their saves, their deaths.
 *
 * The coordinator in it is the real one; everything else is a value without pointers, so that a state of the
 * world is hashed and copied as bytes. The model is more permissive than a worker: whatever may
 * happen is a move, and any order of moves is allowed. It remembers the bits of each version as a hash of how
 * it was made, and the bits it must have. Small sizes only: they are the model's bounds, not the
 * coordinator's. */
#ifndef TESTS_EXPLORE_COORD_WORLD_H
#define TESTS_EXPLORE_COORD_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "coord/coord.h"

#define WORLD_RANKS      4
#define WORLD_VIEWS      16
#define WORLD_ITERATIONS 5
#define WORLD_QUEUE      10
#define WORLD_SAVES      4

/* What an iteration's gradients turn out to be; decided when its first rank has reduced it. */
enum world_outcome { OUTCOME_UNKNOWN, OUTCOME_SMALL, OUTCOME_LARGE, OUTCOME_NONFINITE, OUTCOME_OVERFLOW };

struct world_message {
    uint8_t kind; /* of action or event */
    uint8_t view, version, shift;
    uint8_t verdict, optimistic, settle, has_grad;
    uint8_t part, parts, attempt, ok;
};

struct world_queue {
    uint8_t count;
    struct world_message at[WORLD_QUEUE];
};

struct world_save {
    uint8_t version, part, parts, attempt; /* parts == 0: free */
};

struct world_worker {
    uint64_t bits; /* of its final version */
    uint8_t alive, left;
    uint8_t running; /* between GO and FENCE */
    uint8_t view, version, shift, optimistic;
    uint8_t has_grad; /* of iteration `version` */
    uint8_t tentative;
    uint8_t fetching, verdict; /* settling: waits for a peer's gradient */
    struct world_save saves[WORLD_SAVES];
};

struct world_scope { /* what an exploration allows */
    struct coord_config config;
    uint8_t deaths, save_failures, stoppings;
    uint8_t outcomes; /* bit per world_outcome */
};

struct world {
    uint8_t deaths, save_failures, stoppings; /* left */
    uint8_t declared_dead;                    /* mask: DIED was said */
    uint8_t killed_behind;                    /* mask: KILL was said */
    uint8_t end;                              /* 0 or 1 + the action kind that ended it */
    uint8_t failed_last;                      /* failed writes of the last version */
    uint8_t decided;                          /* iterations decided so far */
    uint8_t target;
    uint8_t outcome[WORLD_ITERATIONS][2]; /* of the first try and of the redo */
    uint8_t members[WORLD_VIEWS];         /* mask: whom GO of that view went to */
    uint8_t reached[WORLD_VIEWS][WORLD_ITERATIONS];
    uint8_t attempts[WORLD_ITERATIONS + 1];
    uint8_t written[WORLD_ITERATIONS + 1][WORLD_RANKS]; /* part + 1, of the newest attempt */
    uint8_t asked[WORLD_ITERATIONS + 1][WORLD_RANKS];   /* parts */
    struct world_worker workers[WORLD_RANKS];
    struct world_queue down[WORLD_RANKS], up[WORLD_RANKS];
};

enum move_kind {
    MOVE_DOWN,    /* a rank takes the next action of its channel */
    MOVE_UP,      /* the coordinator takes the next event of a rank's channel */
    MOVE_REDUCE,  /* a rank has the reduced gradient; argument: outcome */
    MOVE_FETCH,   /* a settling rank gets the gradient from its peer */
    MOVE_WRITTEN, /* a part of a save is written; argument: which */
    MOVE_FAILED,  /* ... or not */
    MOVE_DIE,     /* argument: how many of its undelivered events still arrive */
    MOVE_STOPPING,
    MOVE_KINDS
};

struct move {
    uint8_t kind, rank, argument;
};

#define WORLD_MOVES_MAX 128

static inline uint32_t world_ranks(const struct world_scope *scope) {
    return scope->config.pipelines * scope->config.stages;
}

static inline uint32_t world_stage(const struct world_scope *scope, uint32_t rank) {
    return rank % scope->config.stages;
}

static inline struct coord_report world_report(const struct world *w, const struct world_scope *scope,
                                               uint32_t rank, uint8_t iteration, uint8_t shift) {
    bool first = world_stage(scope, rank) == 0, last = world_stage(scope, rank) == scope->config.stages - 1;
    uint8_t outcome = w->outcome[iteration][shift / 16];
    struct coord_report report = {.iteration = iteration, .norm2 = 0.25 + iteration + shift * 0x1p-10};
    if (outcome == OUTCOME_LARGE) report.norm2 += 100;
    report.loss = last ? 7 : 0;
    report.nonfinite = last && outcome == OUTCOME_NONFINITE;
    report.overflow = first && outcome == OUTCOME_OVERFLOW;
    return report;
}

/* The bits after iteration `iteration` made from `bits`. */
static inline uint64_t world_bits_after(uint64_t bits, uint8_t iteration, uint8_t outcome, uint8_t shift,
                                        enum coord_verdict verdict) {
    if (verdict == COORD_SKIP) return bits;
    const uint64_t made_of[] = {bits, iteration, outcome, shift, (uint64_t)verdict};
    return hash64(made_of, sizeof made_of);
}

static inline enum coord_verdict world_verdict(const struct world_scope *scope, uint8_t outcome) {
    if (outcome == OUTCOME_NONFINITE) return COORD_SKIP;
    return outcome == OUTCOME_LARGE && scope->config.clip_norm > 0 ? COORD_CLIP : COORD_ACCEPT;
}

/* The bits version `version` must have, whatever happened. */
static inline uint64_t world_bits(const struct world *w, const struct world_scope *scope, uint8_t version) {
    uint64_t bits = 1;
    for (uint8_t i = 0; i < version; i++) {
        uint8_t redone = w->outcome[i][0] == OUTCOME_OVERFLOW;
        uint8_t outcome = w->outcome[i][redone];
        bits = world_bits_after(bits, i, outcome, (uint8_t)(16 * redone), world_verdict(scope, outcome));
    }
    return bits;
}

static inline void world_put(struct world_queue *q, struct world_message m) { q->at[q->count++] = m; }

static inline struct world_message world_take(struct world_queue *q) {
    struct world_message m = q->at[0];
    q->count--;
    memmove(q->at, q->at + 1, q->count * sizeof q->at[0]);
    memset(&q->at[q->count], 0, sizeof q->at[0]);
    return m;
}

static inline void world_open(struct world *w, const struct world_scope *scope) {
    memset(w, 0, sizeof *w);
    w->deaths = scope->deaths;
    w->save_failures = scope->save_failures;
    w->stoppings = scope->stoppings;
    w->target = (uint8_t)scope->config.final_version;
    for (uint32_t rank = 0; rank < world_ranks(scope); rank++) {
        w->workers[rank].alive = 1;
        w->workers[rank].bits = 1;
        world_put(&w->up[rank], (struct world_message){.kind = COORD_READY});
    }
}

/* ---- workers ---- */

static inline void world_begin(struct world *w, const struct world_scope *scope, uint32_t rank) {
    const struct world_worker *k = &w->workers[rank];
    uint8_t iteration = (uint8_t)(k->version + k->tentative);
    if (iteration < scope->config.final_version) w->reached[k->view][iteration] |= (uint8_t)(1u << rank);
}

static inline const char *world_finalize(struct world *w, const struct world_scope *scope, uint32_t rank,
                                         uint8_t verdict) {
    struct world_worker *k = &w->workers[rank];
    uint8_t outcome = w->outcome[k->version][k->shift / 16];
    k->bits = world_bits_after(k->bits, k->version, outcome, k->shift, (enum coord_verdict)verdict);
    k->version++;
    k->has_grad = k->shift = k->fetching = k->verdict = 0;
    if (k->bits != world_bits(w, scope, k->version))
        return "a final version has other bits than without failures";
    return NULL;
}

static inline const char *world_on_go(struct world *w, const struct world_scope *scope, uint32_t rank,
                                      struct world_message m) {
    struct world_worker *k = &w->workers[rank];
    if (k->running || m.view < k->view || (k->view == 0 && m.view != 1))
        return "GO to a rank that was not fenced";
    if (k->view != 0 && m.view != k->view) return "GO of a view the rank was not fenced for";
    if (m.version != k->version + (m.settle ? 1 : 0)) return "GO starts a version the rank does not have";
    k->view = m.view;
    k->running = 1;
    k->optimistic = m.optimistic;
    const char *wrong = NULL;
    if (!m.settle) {
        k->has_grad = 0;
        k->shift = m.shift;
    } else {
        if (m.shift != 0) return "GO settles an iteration and lowers the exponents of the next";
        if (m.has_grad != k->has_grad) return "GO is wrong about who holds the gradient";
        k->verdict = m.verdict;
        if (!k->has_grad && m.verdict != COORD_SKIP) {
            k->fetching = m.attempt; /* the peer, plus 1 */
            return NULL;
        }
        wrong = world_finalize(w, scope, rank, m.verdict);
    }
    world_begin(w, scope, rank);
    return wrong;
}

static inline const char *world_on_decide(struct world *w, const struct world_scope *scope, uint32_t rank,
                                          struct world_message m) {
    struct world_worker *k = &w->workers[rank];
    if (!k->running || m.view != k->view || m.version != k->version + 1)
        return "DECIDE of another view or iteration than the rank's";
    if (!k->has_grad || k->fetching) return "DECIDE to a rank without the gradient";
    if (k->optimistic && m.verdict != COORD_ACCEPT) return "DECIDE takes back what was done optimistically";
    bool started = k->tentative;
    k->tentative = 0;
    k->optimistic = m.optimistic;
    const char *wrong = world_finalize(w, scope, rank, m.verdict);
    if (!started) world_begin(w, scope, rank);
    return wrong;
}

static inline const char *world_on_save(struct world *w, uint32_t rank, struct world_message m) {
    struct world_worker *k = &w->workers[rank];
    if (m.version != k->version + (k->fetching ? 1 : 0)) return "SAVE of a version the rank does not have";
    for (uint32_t i = 0; i < WORLD_SAVES; i++) {
        if (k->saves[i].parts != 0) continue;
        k->saves[i] = (struct world_save){m.version, m.part, m.parts, m.attempt};
        return NULL;
    }
    return "more saves outstanding than the model has room for";
}

static inline const char *world_on_down(struct world *w, const struct world_scope *scope, uint32_t rank) {
    struct world_worker *k = &w->workers[rank];
    struct world_message m = world_take(&w->down[rank]);
    switch (m.kind) {
    case COORD_GO:
        return world_on_go(w, scope, rank, m);
    case COORD_DECIDE:
        return world_on_decide(w, scope, rank, m);
    case COORD_SAVE:
        return world_on_save(w, rank, m);
    case COORD_FENCE:
        if (m.view <= k->view) return "FENCE of a view that is not new";
        k->view = m.view;
        k->running = k->tentative = k->fetching = k->verdict = 0;
        world_put(&w->up[rank], (struct world_message){.kind = COORD_FENCED,
                                                       .view = m.view,
                                                       .version = k->version,
                                                       .shift = k->shift,
                                                       .has_grad = k->has_grad});
        return NULL;
    default:
        return "an action that no rank expects";
    }
}

static inline void world_kill(struct world *w, uint32_t rank) {
    memset(&w->workers[rank], 0, sizeof w->workers[rank]);
    memset(&w->down[rank], 0, sizeof w->down[rank]);
}

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

static inline const char *world_on_death(struct world *w, const struct coord_action *a) {
    if (w->declared_dead >> a->rank & 1) return "a rank died twice";
    if (a->kind == COORD_KILL) {
        w->killed_behind |= (uint8_t)(1u << a->rank);
        world_kill(w, a->rank);
        memset(&w->up[a->rank], 0, sizeof w->up[0]);
        return NULL;
    }
    if (w->workers[a->rank].alive) return "a rank that lives was declared dead";
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
    bool told = a->kind <= COORD_DURABLE || a->kind == COORD_FINISH; /* addressed to a live rank */
    if (told && w->declared_dead >> a->rank & 1) return "an action to a rank that was declared dead";
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
        return world_on_death(w, a);
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
    const struct coord_action *a;
    size_t count = coord_step(c, event, &a);
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
    default:
        snprintf(out, size, "the user asks to stop");
    }
}

#endif
