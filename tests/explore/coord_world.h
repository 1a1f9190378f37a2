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
    bool silences;    /* a death may also be a live rank whose beats do not arrive */
};

struct world {
    uint8_t deaths, save_failures, stoppings; /* left */
    uint8_t started;                          /* something was sent to the ranks */
    uint8_t seconds;                          /* the clock; silences drive it */
    uint8_t silent;                           /* rank + 1 of whom the coordinator must kill now */
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

#endif
