/* A model of the coordinator's surroundings: workers, their channels, their saves, their deaths.
 *
 * The coordinator in it is the real one; everything else is a value without pointers, so that a state of the
 * world is hashed and copied as bytes. The model is more permissive than a worker: whatever may
 * happen is a move, and any order of moves is allowed. It remembers the bits of each version as a hash of how
 * it was made, and the bits it must have; and for each sum of gradients which micro-batches are in it, and of
 * which bits of the weights they were computed. Small sizes only: they are the model's bounds, not the
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
#define WORLD_CHUNKS     2
#define WORLD_VIEWS      24
#define WORLD_ITERATIONS 4
#define WORLD_QUEUE      16
#define WORLD_SAVES      4

/* What an iteration's gradients turn out to be; decided when its first pair has reduced it. */
enum world_outcome { OUTCOME_UNKNOWN, OUTCOME_SMALL, OUTCOME_LARGE, OUTCOME_NONFINITE, OUTCOME_OVERFLOW };

struct world_message {
    uint8_t kind; /* of action or event */
    uint8_t view, version, shift;
    uint8_t verdict, optimistic;
    uint8_t chunk, part, parts, attempt, ok, peer;
};

struct world_queue {
    uint8_t count;
    struct world_message at[WORLD_QUEUE];
};

struct world_save {
    uint8_t version, chunk, part, parts, attempt; /* parts == 0: free */
    uint8_t ready;                                /* the version is there */
    uint8_t answered, ok;
    uint8_t forgotten; /* FORGET came first: still to be answered, of no interest to a fence */
};

struct world_sum { /* contributions of micro-batches to a chunk's gradient */
    uint32_t base; /* bits of the version they were computed from */
    uint8_t any, iteration, set, shift;
};

struct world_holding {
    uint32_t bits; /* of its final version */
    uint8_t has, held, version;
    uint8_t grad;         /* of iteration `version` */
    uint8_t tentative;    /* goes on from it */
    uint8_t wait, source; /* COORD_FETCH_STATE...; what GO promised and it has not got yet */
    uint8_t published;    /* its share of iteration `version` + `tentative` is done */
    struct world_sum sum;
};

struct world_worker {
    uint8_t alive;
    uint8_t running; /* between GO and FENCE */
    uint8_t view, version, shift, optimistic;
    uint8_t copying, copy_chunk, copy_peer, copy_version; /* PREPARE */
    struct world_holding holdings[WORLD_CHUNKS];
    struct world_save saves[WORLD_SAVES];
};

struct world_told {                                    /* a pair, as its rank answered the fence */
    uint8_t has, version, grad, work, set, work_shift; /* work: iteration + 1 */
};

struct world_answer { /* to the newest FENCE; older ones are ignored anyway */
    uint8_t shift, optimistic;
    struct world_told pairs[WORLD_CHUNKS];
    struct world_save saves[WORLD_SAVES];
};

struct world_go { /* the newest; there is no other under way */
    uint8_t view, version, settle, verdict, shift, optimistic, restore;
    uint8_t reduced; /* mask: chunks that need no contribution any more */
    struct {
        uint8_t held, flags, source;
        uint8_t todo, later; /* its share of the first iteration, and of those after it */
    } pairs[WORLD_RANKS][WORLD_CHUNKS];
};

struct world_share { /* of a view's iteration, for its chunk's reduction */
    uint32_t base;
    uint8_t there, set, shift;
};

struct world_scope { /* what an exploration allows */
    struct coord_config config;
    uint32_t first_ranks; /* started at the beginning */
    uint8_t microbatches;
    uint8_t durable; /* a step that an earlier run has left on the disk; 0: none */
    uint8_t deaths, save_failures, stoppings, joins, leaves, takeovers, changes, replans;
    uint8_t outcomes; /* bit per world_outcome */
    bool running;     /* begin when everybody has started: the start itself has scopes of its own */
    bool silences;    /* a death may also be a live rank whose beats do not arrive */
    uint32_t states;  /* stop at this many; 0: explore all */
    uint32_t walks;
};

struct world {
    uint8_t leavers;    /* mask: the launcher has heard that they want to leave */
    uint8_t taken_over; /* by a coordinator that has not said GO yet */
    uint8_t deaths, save_failures, stoppings, joins, leaves, takeovers, changes, replans; /* left */
    uint8_t seconds;                      /* the clock; silences drive it */
    uint8_t silent;                       /* rank + 1 of whom the coordinator must kill now */
    uint8_t there;                        /* mask: a process that the coordinator has not seen end */
    uint8_t left;                         /* mask: LEAVE was said */
    uint8_t end;                          /* 0 or 1 + the action kind that ended it */
    uint8_t failed;                       /* parts of saves */
    uint8_t final;                        /* newest decided version, or what everybody went back to */
    uint8_t stopped;                      /* the user asked */
    uint8_t may_end_early;                /* or a rank may have left that could not be spared */
    uint8_t newest_view;                  /* of FENCE and GO */
    uint8_t finding, planning, needing;   /* questions to the driver: the view */
    uint8_t preparing;                    /* mask: PREPARE_FOR was asked */
    uint8_t incarnation;                  /* of saves: only those of the newest count */
    uint8_t outcome[WORLD_ITERATIONS][2]; /* of the first try and of the redo */
    uint8_t written[WORLD_ITERATIONS + 1][WORLD_CHUNKS]; /* mask of parts, of the newest attempt */
    uint8_t parts[WORLD_ITERATIONS + 1][WORLD_CHUNKS];
    uint8_t attempts[WORLD_ITERATIONS + 1];
    uint8_t on_disk;          /* mask: versions that every chunk is written of */
    uint8_t own[WORLD_RANKS]; /* chunk + 1, of the last plan */
    struct world_told told[WORLD_RANKS][WORLD_CHUNKS];
    struct world_go go;
    struct world_answer answers[WORLD_RANKS];
    struct world_share shares[WORLD_RANKS][WORLD_CHUNKS][2]; /* of view go.view; by parity of the iteration */
    struct world_worker workers[WORLD_RANKS];
    struct world_queue down[WORLD_RANKS], up[WORLD_RANKS];
};

static inline uint32_t world_ranks(const struct world_scope *scope) { return scope->config.ranks; }
static inline uint32_t world_chunks(const struct world_scope *scope) { return scope->config.chunks; }
static inline uint8_t world_full(const struct world_scope *scope) {
    return (uint8_t)((1u << scope->microbatches) - 1);
}

static inline struct coord_report world_report(const struct world *w, const struct world_scope *scope,
                                               uint32_t chunk, uint8_t iteration, uint8_t shift) {
    bool first = chunk == 0, last = chunk == world_chunks(scope) - 1;
    uint8_t outcome = w->outcome[iteration][shift / 16];
    struct coord_report report = {.iteration = iteration, .norm2 = 0.25 + iteration + shift * 0x1p-10};
    if (outcome == OUTCOME_LARGE) report.norm2 += 100;
    report.loss = last ? 7 : 0;
    report.nonfinite = last && outcome == OUTCOME_NONFINITE;
    report.overflow = first && outcome == OUTCOME_OVERFLOW;
    return report;
}

/* The bits after iteration `iteration` made from `bits`. */
static inline uint32_t world_bits_after(uint32_t bits, uint8_t iteration, uint8_t shift,
                                        enum coord_verdict verdict) {
    if (verdict == COORD_SKIP) return bits;
    const uint64_t made_of[] = {bits, iteration, shift, (uint64_t)verdict};
    return (uint32_t)hash64(made_of, sizeof made_of);
}

static inline enum coord_verdict world_verdict(const struct world_scope *scope, uint8_t outcome) {
    if (outcome == OUTCOME_NONFINITE) return COORD_SKIP;
    return outcome == OUTCOME_LARGE && scope->config.clip_norm > 0 ? COORD_CLIP : COORD_ACCEPT;
}

/* The bits version `version` must have, whatever happened. */
static inline uint32_t world_bits(const struct world *w, const struct world_scope *scope, uint8_t version) {
    uint32_t bits = 1;
    for (uint8_t i = 0; i < version; i++) {
        uint8_t redone = w->outcome[i][0] == OUTCOME_OVERFLOW;
        bits = world_bits_after(bits, i, (uint8_t)(16 * redone), world_verdict(scope, w->outcome[i][redone]));
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

/* ---- workers ---- */

static inline const char *world_finalize(struct world *w, const struct world_scope *scope, uint32_t rank,
                                         uint32_t chunk, uint8_t verdict) {
    struct world_holding *h = &w->workers[rank].holdings[chunk];
    uint8_t shift = w->outcome[h->version][0] == OUTCOME_OVERFLOW ? 16 : 0;
    h->bits = world_bits_after(h->bits, h->version, shift, (enum coord_verdict)verdict);
    h->version++;
    h->grad = h->tentative = 0;
    if (h->bits != world_bits(w, scope, h->version))
        return "a final version has other bits than without failures";
    for (uint32_t i = 0; i < WORLD_SAVES; i++) {
        struct world_save *s = &w->workers[rank].saves[i];
        if (s->parts != 0 && s->chunk == chunk && s->version == h->version) s->ready = 1;
    }
    return NULL;
}

/* A part that was asked for of a version that will not come to this rank any more. */
static inline bool world_is_hopeless(const struct world_worker *k, const struct world_save *s) {
    const struct world_holding *h = &k->holdings[s->chunk];
    if (s->parts == 0 || s->answered || s->ready) return false;
    return h->wait == 0 || k->version != s->version;
}

static inline void world_answer(struct world *w, uint32_t rank, struct world_save *save, bool ok) {
    world_put(&w->up[rank], (struct world_message){.kind = COORD_SAVED,
                                                   .version = save->version,
                                                   .chunk = save->chunk,
                                                   .part = save->part,
                                                   .parts = save->parts,
                                                   .ok = ok});
    save->answered = 1;
    save->ok = ok;
    if (!ok) w->failed++;
    if (save->forgotten) memset(save, 0, sizeof *save);
}

static inline void world_drop(struct world_holding *h) { memset(h, 0, sizeof *h); }

static inline void world_say_reduced(struct world *w, uint32_t rank, uint32_t chunk) {
    struct world_worker *k = &w->workers[rank];
    world_put(&w->up[rank], (struct world_message){.kind = COORD_REDUCED,
                                                   .view = k->view,
                                                   .version = k->holdings[chunk].version,
                                                   .chunk = (uint8_t)chunk,
                                                   .shift = k->shift});
}

static inline const char *world_go_elsewhere(struct world *w, const struct world_scope *scope, uint32_t rank,
                                             uint32_t chunk) {
    struct world_holding *h = &w->workers[rank].holdings[chunk];
    h->held = 0;
    if (!w->go.settle && !(w->go.reduced >> chunk & 1)) h->grad = 0;
    if (!h->has || h->version != w->go.version - w->go.settle || w->go.restore ||
        (w->go.settle && !h->grad)) {
        world_drop(h);
        return NULL;
    }
    h->tentative = h->published = 0;
    memset(&h->sum, 0, sizeof h->sum);
    return w->go.settle ? world_finalize(w, scope, rank, chunk, w->go.verdict) : NULL;
}

static inline const char *world_go_pair(struct world *w, const struct world_scope *scope, uint32_t rank,
                                        uint32_t chunk) {
    struct world_worker *k = &w->workers[rank];
    struct world_holding *h = &k->holdings[chunk];
    const struct world_go *g = &w->go;
    uint8_t flags = g->pairs[rank][chunk].flags;
    if (!g->pairs[rank][chunk].held) return world_go_elsewhere(w, scope, rank, chunk);
    h->wait = flags & (COORD_FETCH_STATE | COORD_FETCH_GRAD | COORD_LOAD);
    h->source = g->pairs[rank][chunk].source;
    h->published = 0;
    if (!(flags & COORD_KEEP_WORK)) memset(&h->sum, 0, sizeof h->sum);
    if ((flags & COORD_KEEP_WORK) && !h->sum.any) return "GO keeps work that was never done";
    if (h->wait & (COORD_FETCH_STATE | COORD_LOAD)) {
        uint8_t wait = h->wait, source = h->source;
        world_drop(h);
        h->wait = wait;
        h->source = source;
        h->held = 1;
        return NULL;
    }
    if (!h->has || h->version != g->version - (g->settle ? 1 : 0))
        return "GO starts a version the rank does not have";
    h->held = 1;
    if (h->wait) return h->grad ? "GO fetches a gradient for a rank that has it" : NULL;
    if (g->settle)
        return h->grad ? world_finalize(w, scope, rank, chunk, g->verdict) : "GO settles without G";
    h->tentative = 0;
    if (!(g->reduced >> chunk & 1)) h->grad = 0;
    if (g->reduced >> chunk & 1 && !h->grad) return "GO takes a gradient to be where it is not";
    return NULL;
}

/* It has been let go while others went on. */
static inline bool world_leaves(const struct world_queue *q) {
    for (uint32_t i = 0; i < q->count; i++)
        if (q->at[i].kind == COORD_LEAVE) return true;
    return false;
}

static inline const char *world_on_go(struct world *w, const struct world_scope *scope, uint32_t rank,
                                      struct world_message m) {
    struct world_worker *k = &w->workers[rank];
    const struct world_go *g = &w->go;
    if (m.view != g->view) return "two GO under way";
    if (k->running || m.view != k->view) return "GO to a rank that was not fenced for it";
    if (g->settle && g->shift != 0) return "GO settles an iteration and lowers the exponents of the next";
    const char *wrong = NULL;
    for (uint32_t chunk = 0; chunk < world_chunks(scope) && wrong == NULL; chunk++)
        wrong = world_go_pair(w, scope, rank, chunk);
    k->running = 1;
    k->version = g->version;
    k->shift = g->shift;
    k->optimistic = g->optimistic;
    if (g->restore) memset(k->saves, 0, sizeof k->saves);
    for (uint32_t i = 0; i < WORLD_SAVES; i++)
        if (world_is_hopeless(k, &k->saves[i])) world_answer(w, rank, &k->saves[i], false);
    for (uint32_t chunk = 0; chunk < world_chunks(scope) && wrong == NULL; chunk++) {
        struct world_holding *h = &k->holdings[chunk];
        if (h->held && !h->wait && h->grad) world_say_reduced(w, rank, chunk);
    }
    return wrong;
}

static inline const char *world_on_decide(struct world *w, const struct world_scope *scope, uint32_t rank,
                                          struct world_message m) {
    struct world_worker *k = &w->workers[rank];
    if (!k->running || m.view != k->view || m.version != k->version + 1)
        return "DECIDE of another view or iteration than the rank's";
    if (k->optimistic && m.verdict != COORD_ACCEPT) return "DECIDE takes back what was done optimistically";
    for (uint32_t chunk = 0; chunk < world_chunks(scope); chunk++) {
        struct world_holding *h = &k->holdings[chunk];
        if (!h->held) {
            world_drop(h);
            continue;
        }
        if (!h->grad || h->wait) return "DECIDE to a rank without the gradient";
        bool started = h->tentative;
        const char *wrong = world_finalize(w, scope, rank, chunk, m.verdict);
        if (wrong != NULL) return wrong;
        if (!started) {
            h->published = 0;
            memset(&h->sum, 0, sizeof h->sum);
        }
    }
    k->version++;
    k->shift = 0;
    k->optimistic = m.optimistic;
    return NULL;
}

static inline const char *world_on_save(struct world *w, uint32_t rank, struct world_message m) {
    struct world_worker *k = &w->workers[rank];
    const struct world_holding *h = &k->holdings[m.chunk];
    if (!h->held || m.version != k->version) return "SAVE of a version the rank does not have";
    for (uint32_t i = 0; i < WORLD_SAVES; i++) {
        if (k->saves[i].parts != 0) continue;
        k->saves[i] = (struct world_save){.version = m.version,
                                          .chunk = m.chunk,
                                          .part = m.part,
                                          .parts = m.parts,
                                          .attempt = m.attempt,
                                          .ready = h->has && h->version == m.version};
        return NULL;
    }
    return "more saves outstanding than the model has room for";
}

static inline void world_end_saves(struct world_worker *k, uint8_t first, uint8_t last) {
    for (uint32_t i = 0; i < WORLD_SAVES; i++) {
        struct world_save *s = &k->saves[i];
        if (s->parts == 0 || s->version < first || s->version > last) continue;
        if (s->answered)
            memset(s, 0, sizeof *s);
        else if (first == last)
            s->forgotten = 1;
    }
}

static inline const char *world_on_fence(struct world *w, const struct world_scope *scope, uint32_t rank,
                                         struct world_message m) {
    struct world_worker *k = &w->workers[rank];
    struct world_answer *a = &w->answers[rank];
    if (m.view <= k->view) return "FENCE of a view that is not new";
    k->view = m.view;
    k->running = k->copying = k->copy_chunk = k->copy_peer = k->copy_version = 0;
    memset(a, 0, sizeof *a);
    a->shift = k->shift;
    a->optimistic = k->optimistic;
    for (uint32_t chunk = 0; chunk < world_chunks(scope); chunk++) {
        struct world_holding *h = &k->holdings[chunk];
        if (h->wait & (COORD_FETCH_STATE | COORD_LOAD)) world_drop(h);
        h->wait = h->source = 0;
        if (!h->has) continue;
        a->pairs[chunk] = (struct world_told){.has = 1, .version = h->version, .grad = h->grad};
        if (!h->sum.any) continue;
        a->pairs[chunk].work = (uint8_t)(h->sum.iteration + 1);
        a->pairs[chunk].set = h->sum.set;
        a->pairs[chunk].work_shift = h->sum.shift;
    }
    memcpy(a->saves, k->saves, sizeof a->saves);
    world_put(&w->up[rank], (struct world_message){.kind = COORD_FENCED, .view = m.view});
    return NULL;
}

static inline void world_kill(struct world *w, uint32_t rank) {
    memset(&w->workers[rank], 0, sizeof w->workers[rank]);
    memset(&w->down[rank], 0, sizeof w->down[rank]);
}

/* It was told that nothing is left for it to do. */
static inline void world_on_leave(struct world *w, uint32_t rank) {
    world_kill(w, rank);
    world_put(&w->up[rank], (struct world_message){.kind = COORD_EXIT});
}

static inline const char *world_on_down(struct world *w, const struct world_scope *scope, uint32_t rank) {
    struct world_worker *k = &w->workers[rank];
    struct world_message m = world_take(&w->down[rank]);
    if (world_leaves(&w->down[rank])) return NULL;
    switch (m.kind) {
    case COORD_GO:
        return world_on_go(w, scope, rank, m);
    case COORD_DECIDE:
        return world_on_decide(w, scope, rank, m);
    case COORD_SAVE:
        return world_on_save(w, rank, m);
    case COORD_FENCE:
        return world_on_fence(w, scope, rank, m);
    case COORD_DURABLE:
        world_end_saves(k, 0, m.version);
        return NULL;
    case COORD_FORGET:
        world_end_saves(k, m.version, m.version);
        return NULL;
    case COORD_PREPARE:
        k->copying = 1;
        k->copy_chunk = m.chunk;
        k->copy_peer = m.peer;
        k->copy_version = m.version;
        return NULL;
    case COORD_LEAVE:
        world_on_leave(w, rank);
        return NULL;
    default:
        return "an action that no rank expects";
    }
}

#endif
