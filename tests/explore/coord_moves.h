/* The moves of the model in coord_world.h: what may happen next, and what each does. */
#ifndef TESTS_EXPLORE_COORD_MOVES_H
#define TESTS_EXPLORE_COORD_MOVES_H

#include "coord_driver.h"

enum move_kind {
    MOVE_NONE,
    MOVE_DOWN,   /* a rank takes the next action of its channel */
    MOVE_UP,     /* the coordinator takes the next event of a rank's channel; argument: crash after so many */
    MOVE_WORK,   /* a rank adds its share of an iteration of chunk `argument` */
    MOVE_REDUCE, /* a rank has the reduced gradient; argument: chunk * 8 + outcome */
    MOVE_FETCH,  /* a pair gets what GO promised it; argument: chunk */
    MOVE_COPY,   /* a rank that comes in has its copy */
    MOVE_WRITTEN, /* a part of a save is written; argument: which */
    MOVE_FAILED,  /* ... or not */
    MOVE_FIND,    /* the driver answers */
    MOVE_PLAN,    /* argument: variant */
    MOVE_PREPARE, /* rank, argument: chunk, or chunks: a spare */
    MOVE_TICK,
    /* these need not happen */
    MOVE_DIE,     /* argument: how many of its undelivered events still arrive */
    MOVE_SILENCE, /* a rank lives, but no beat of it arrives */
    MOVE_STOPPING,
    MOVE_JOIN,  /* a process is started at an empty place */
    MOVE_LEAVE, /* a rank is told to end */
    MOVE_REPLAN,
    MOVE_TAKEOVER, /* the coordinator is replaced; argument: 1 what was on the way to the old one is lost */
    MOVE_CRASH, /* the same in the midst of the step that rank's event, or a plan (rank WORLD_RANKS), causes;
                   argument: after how many acts */
};

struct move {
    uint8_t kind, rank, argument;
};

#define WORLD_MOVES_MAX 256
#define CRASH_ACTS_MAX  3u

static inline bool world_is_fault(struct move m) { return m.kind >= MOVE_DIE || m.kind == MOVE_FAILED; }

static inline const char *world_on_up(struct world *w, const struct world_scope *scope, struct coord *c,
                                      uint32_t rank, uint32_t acts, bool *crashed) {
    struct coord_fenced_pair pairs[WORLD_CHUNKS];
    struct coord_fenced_save saves[WORLD_SAVES];
    struct coord_fenced fenced = {.pairs = pairs, .saves = saves};
    struct world_message m = world_take(&w->up[rank]);
    struct coord_event event = {.kind = (enum coord_event_kind)m.kind,
                                .rank = rank,
                                .view = m.view,
                                .version = m.version,
                                .chunk = m.chunk,
                                .part = m.part,
                                .parts = m.parts,
                                .ok = m.ok};
    if (m.kind == COORD_LEAVING) w->leavers |= (uint8_t)(1u << rank);
    if (m.kind == COORD_EXIT) w->leavers &= (uint8_t) ~(1u << rank);
    if (m.kind == COORD_REDUCED) event.report = world_report(w, scope, m.chunk, m.version, m.shift);
    if (m.kind == COORD_FENCED) {
        fenced.shift = w->answers[rank].shift;
        fenced.optimistic = w->answers[rank].optimistic;
        if (m.view == w->newest_view)
            fenced.pair_count = world_fenced(w, scope, rank, pairs, saves, &fenced.save_count);
        event.fenced = &fenced;
    }
    return world_feed_crash(w, scope, c, &event, acts, crashed);
}

/* ---- what can happen ---- */

static inline uint8_t world_iteration(const struct world_holding *h) {
    return (uint8_t)(h->version + h->tentative);
}

static inline bool world_can_work(const struct world *w, const struct world_scope *scope, uint32_t rank,
                                  uint32_t chunk) {
    const struct world_worker *k = &w->workers[rank];
    const struct world_holding *h = &k->holdings[chunk];
    if (!k->running || !h->held || h->wait || h->published ||
        world_iteration(h) >= scope->config.final_version)
        return false;
    return h->tentative || !h->grad;
}

static inline bool world_can_reduce(const struct world *w, const struct world_scope *scope, uint32_t rank,
                                    uint32_t chunk) {
    const struct world_worker *k = &w->workers[rank];
    const struct world_holding *h = &k->holdings[chunk];
    if (!k->running || !h->held || h->wait || h->grad || !h->published) return false;
    for (uint32_t r = 0; r < world_ranks(scope); r++)
        if (w->go.pairs[r][chunk].held && !w->shares[r][chunk][h->version & 1].there) return false;
    return true;
}

static inline bool world_can_fetch(const struct world *w, uint32_t rank, uint32_t chunk) {
    const struct world_worker *k = &w->workers[rank];
    const struct world_holding *h = &k->holdings[chunk];
    if (!k->running || h->wait == 0) return false;
    if (h->wait & COORD_LOAD) return true;
    const struct world_worker *peer = &w->workers[h->source];
    const struct world_holding *there = &peer->holdings[chunk];
    if (!peer->alive || !peer->running || peer->view != k->view || !there->has) return false;
    return there->version >= w->go.version;
}

static inline bool world_can_copy(const struct world *w, uint32_t rank) {
    const struct world_worker *k = &w->workers[rank];
    if (!k->copying) return false;
    const struct world_worker *peer = &w->workers[k->copy_peer];
    return peer->alive && peer->holdings[k->copy_chunk].has &&
           peer->holdings[k->copy_chunk].version >= k->copy_version;
}

static inline uint32_t world_pair_moves(const struct world *w, const struct world_scope *scope, uint32_t rank,
                                        uint32_t chunk, struct move *out) {
    const struct world_worker *k = &w->workers[rank];
    uint32_t n = 0;
    uint8_t r = (uint8_t)rank;
    if (world_can_fetch(w, rank, chunk)) out[n++] = (struct move){MOVE_FETCH, r, (uint8_t)chunk};
    if (world_can_work(w, scope, rank, chunk)) out[n++] = (struct move){MOVE_WORK, r, (uint8_t)chunk};
    if (!world_can_reduce(w, scope, rank, chunk)) return n;
    uint8_t known = w->outcome[k->holdings[chunk].version][k->shift / 16];
    for (uint8_t outcome = 1; outcome <= OUTCOME_OVERFLOW; outcome++) {
        bool allowed = scope->outcomes >> outcome & 1 && (outcome != OUTCOME_OVERFLOW || k->shift == 0);
        if (known == outcome || (known == OUTCOME_UNKNOWN && allowed))
            out[n++] = (struct move){MOVE_REDUCE, r, (uint8_t)(chunk * 8 + outcome)};
    }
    return n;
}

static inline uint32_t world_worker_moves(const struct world *w, const struct world_scope *scope,
                                          uint32_t rank, struct move *out) {
    const struct world_worker *k = &w->workers[rank];
    uint32_t n = 0;
    uint8_t r = (uint8_t)rank;
    if (w->down[rank].count > 0) out[n++] = (struct move){MOVE_DOWN, r, 0};
    if (world_can_copy(w, rank)) out[n++] = (struct move){MOVE_COPY, r, 0};
    for (uint32_t chunk = 0; chunk < world_chunks(scope); chunk++)
        n += world_pair_moves(w, scope, rank, chunk, out + n);
    for (uint8_t i = 0; i < WORLD_SAVES; i++) {
        const struct world_save *s = &k->saves[i];
        if (s->parts == 0 || s->answered) continue;
        if (!s->ready) continue;
        out[n++] = (struct move){MOVE_WRITTEN, r, i};
        if (w->save_failures > 0) out[n++] = (struct move){MOVE_FAILED, r, i};
    }
    return n;
}

static inline uint32_t world_fault_moves(const struct world *w, const struct world_scope *scope,
                                         uint32_t rank, struct move *out) {
    const struct world_worker *k = &w->workers[rank];
    uint32_t n = 0;
    uint8_t r = (uint8_t)rank;
    if (w->takeovers > 0 && w->up[rank].count > 0)
        for (uint8_t acts = 1; acts <= CRASH_ACTS_MAX; acts++) out[n++] = (struct move){MOVE_CRASH, r, acts};
    if (w->joins > 0 && !k->alive && !(w->there >> rank & 1) && w->up[rank].count == 0)
        out[n++] = (struct move){MOVE_JOIN, r, 0};
    if (!k->alive) return n;
    if (w->leaves > 0 && w->up[rank].count < WORLD_QUEUE) out[n++] = (struct move){MOVE_LEAVE, r, 0};
    for (uint8_t kept = 0; w->deaths > 0 && kept <= w->up[rank].count; kept++)
        out[n++] = (struct move){MOVE_DIE, r, kept};
    if (scope->silences && w->newest_view > 0 && w->deaths > 0 && !(w->left >> rank & 1) &&
        w->there >> rank & 1)
        out[n++] = (struct move){MOVE_SILENCE, r, 0};
    return n;
}

static inline uint32_t world_moves(const struct world *w, const struct world_scope *scope, struct move *out) {
    uint32_t n = 0;
    if (w->end != 0) return 0;
    for (uint32_t rank = 0; rank < world_ranks(scope); rank++) {
        uint8_t r = (uint8_t)rank;
        if (w->up[rank].count > 0) out[n++] = (struct move){MOVE_UP, r, 0};
        if (w->workers[rank].alive) n += world_worker_moves(w, scope, rank, out + n);
        n += world_fault_moves(w, scope, rank, out + n);
        for (uint8_t chunk = 0; w->preparing >> rank & 1 && chunk <= world_chunks(scope); chunk++)
            if (chunk < world_chunks(scope) || w->changes > 0)
                out[n++] = (struct move){MOVE_PREPARE, r, chunk};
    }
    if (w->finding) out[n++] = (struct move){MOVE_FIND, 0, 0};
    for (uint8_t variant = 0; w->planning && variant <= (w->changes > 0 ? 2 : 0); variant++)
        out[n++] = (struct move){MOVE_PLAN, 0, variant};
    for (uint8_t acts = 1; w->planning && w->takeovers > 0 && acts <= CRASH_ACTS_MAX; acts++)
        out[n++] = (struct move){MOVE_CRASH, WORLD_RANKS, acts};
    out[n++] = (struct move){MOVE_TICK, 0, 0};
    if (w->stoppings > 0) out[n++] = (struct move){MOVE_STOPPING, 0, 0};
    if (w->replans > 0) out[n++] = (struct move){MOVE_REPLAN, 0, 0};
    for (uint8_t lost = 0; w->takeovers > 0 && w->newest_view > 0 && lost <= 1; lost++)
        out[n++] = (struct move){MOVE_TAKEOVER, 0, lost};
    return n;
}

/* ---- what they do ---- */

static inline const char *world_work(struct world *w, uint32_t rank, uint32_t chunk) {
    struct world_worker *k = &w->workers[rank];
    struct world_holding *h = &k->holdings[chunk];
    uint8_t iteration = world_iteration(h);
    uint8_t set = iteration == w->go.version ? w->go.pairs[rank][chunk].todo : w->go.pairs[rank][chunk].later;
    uint8_t shift = h->tentative ? 0 : k->shift;
    uint32_t base = h->tentative ? world_bits_after(h->bits, h->version, k->shift, COORD_ACCEPT) : h->bits;
    if (h->sum.any && (h->sum.iteration != iteration || h->sum.shift != shift || h->sum.base != base))
        return "work was kept that is of another iteration, of other exponents or of other weights";
    if (h->sum.any && h->sum.set & set) return "a contribution is made that is in the sum already";
    if (!h->sum.any && set != 0)
        h->sum = (struct world_sum){.base = base, .any = 1, .iteration = iteration, .shift = shift};
    h->sum.set |= set;
    h->published = 1;
    w->shares[rank][chunk][iteration & 1] =
        (struct world_share){.base = base, .there = 1, .set = h->sum.set, .shift = shift};
    return NULL;
}

static inline const char *world_reduce(struct world *w, const struct world_scope *scope, uint32_t rank,
                                       uint8_t argument) {
    struct world_worker *k = &w->workers[rank];
    uint32_t chunk = argument / 8;
    struct world_holding *h = &k->holdings[chunk];
    uint8_t sum = 0;
    for (uint32_t r = 0; r < world_ranks(scope); r++) {
        const struct world_share *s = &w->shares[r][chunk][h->version & 1];
        if (!w->go.pairs[r][chunk].held) continue;
        if (s->base != h->bits || s->shift != k->shift) return "a contribution was made of other weights";
        if (sum & s->set) return "a contribution counts twice";
        sum |= s->set;
    }
    if (sum != world_full(scope)) return "a contribution is missing";
    w->outcome[h->version][k->shift / 16] = argument % 8;
    h->grad = 1;
    world_say_reduced(w, rank, chunk);
    if (!k->optimistic) return NULL;
    h->tentative = 1;
    h->published = 0;
    memset(&h->sum, 0, sizeof h->sum);
    return NULL;
}

static inline const char *world_fetch(struct world *w, const struct world_scope *scope, uint32_t rank,
                                      uint32_t chunk) {
    struct world_worker *k = &w->workers[rank];
    struct world_holding *h = &k->holdings[chunk];
    const struct world_go *g = &w->go;
    uint8_t wait = h->wait;
    const char *wrong = NULL;
    h->wait = h->source = 0;
    if (wait & COORD_FETCH_GRAD) h->grad = 1;
    if (wait & (COORD_FETCH_STATE | COORD_LOAD)) {
        h->has = 1;
        h->version = g->version;
        h->bits = world_bits(w, scope, g->version);
        for (uint32_t i = 0; i < WORLD_SAVES; i++) {
            struct world_save *s = &k->saves[i];
            if (s->parts != 0 && s->chunk == chunk && s->version == h->version) s->ready = 1;
        }
    } else if (g->settle) {
        wrong = world_finalize(w, scope, rank, chunk, g->verdict);
    }
    if (h->grad) world_say_reduced(w, rank, chunk);
    return wrong;
}

static inline void world_copy(struct world *w, const struct world_scope *scope, uint32_t rank) {
    struct world_worker *k = &w->workers[rank];
    k->holdings[k->copy_chunk] = (struct world_holding){
        .has = 1, .version = k->copy_version, .bits = world_bits(w, scope, k->copy_version)};
    world_put(&w->up[rank], (struct world_message){
                                .kind = COORD_PREPARED, .chunk = k->copy_chunk, .version = k->copy_version});
    k->copying = k->copy_chunk = k->copy_peer = k->copy_version = 0;
}

static inline void world_answer_save(struct world *w, const struct world_scope *scope, struct move move) {
    struct world_save *save = &w->workers[move.rank].saves[move.argument];
    bool ok = move.kind == MOVE_WRITTEN;
    if (move.kind == MOVE_FAILED) w->save_failures--;
    if (ok && save->attempt == w->attempts[save->version]) {
        w->written[save->version][save->chunk] |= (uint8_t)(1u << save->part);
        if (world_on_disk(w, scope, save->version)) w->on_disk |= (uint8_t)(1u << save->version);
    }
    world_answer(w, move.rank, save, ok);
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
    return wrong != NULL || !coord_members(c)[rank] ? wrong : "a silent rank was not declared dead";
}

static inline const char *world_join(struct world *w, const struct world_scope *scope, struct coord *c,
                                     uint32_t rank) {
    w->joins--;
    w->workers[rank].alive = 1;
    w->there |= (uint8_t)(1u << rank);
    world_put(&w->up[rank], (struct world_message){.kind = COORD_READY});
    return world_feed(w, scope, c, &(struct coord_event){.kind = COORD_STARTED, .rank = rank});
}

/* The coordinator's process is gone, and its driver's memory with it; another one starts. */
static inline const char *world_take_over(struct world *w, const struct world_scope *scope, struct coord **c,
                                          bool lost) {
    struct coord_config config = scope->config;
    bool there[WORLD_RANKS];
    struct pawl_error e;
    w->takeovers--;
    w->taken_over = 1;
    for (uint32_t rank = 0; rank < world_ranks(scope); rank++) {
        if (lost) memset(&w->up[rank], 0, sizeof w->up[0]);
        there[rank] = w->workers[rank].alive || w->up[rank].count > 0;
        if (!there[rank]) w->there &= (uint8_t) ~(1u << rank);
    }
    config.recover = true;
    config.view = w->newest_view;
    config.there = there;
    coord_free(*c);
    if (coord_new(&config, c, &e) != PAWL_OK) return "a coordinator cannot take over";
    w->finding = w->planning = w->needing = w->preparing = w->left = 0;
    memset(w->told, 0, sizeof w->told);
    const char *wrong = NULL;
    if (w->stopped) wrong = world_feed(w, scope, *c, &(struct coord_event){.kind = COORD_STOPPING});
    for (uint32_t rank = 0; rank < world_ranks(scope) && wrong == NULL; rank++) {
        struct coord_event leaving = {.kind = COORD_LEAVING, .rank = rank};
        if (w->leavers >> rank & 1 && there[rank]) wrong = world_feed(w, scope, *c, &leaving);
    }
    return wrong;
}

/* What no live rank can use any more must not tell states apart. */
static inline void world_forget(struct world *w, const struct world_scope *scope) {
    for (uint32_t rank = 0; rank < world_ranks(scope); rank++) {
        bool awaited = false;
        for (uint32_t i = 0; i < w->up[rank].count; i++)
            awaited = awaited || w->up[rank].at[i].kind == COORD_FENCED;
        if (!awaited && w->workers[rank].running)
            memset(w->answers[rank].saves, 0, sizeof w->answers[rank].saves);
        if (!w->workers[rank].alive && !awaited) memset(&w->answers[rank], 0, sizeof w->answers[rank]);
    }
}

static inline const char *world_move_coordinator(struct world *w, const struct world_scope *scope,
                                                 struct coord **c, struct move move) {
    bool crashed = false;
    const char *wrong = NULL;
    struct coord_event event = {.kind = COORD_TICK, .rank = move.rank};
    switch (move.kind) {
    case MOVE_UP:
        return world_on_up(w, scope, *c, move.rank, NEVER, &crashed);
    case MOVE_CRASH:
        wrong = move.rank == WORLD_RANKS ? world_answer_plan(w, scope, *c, 0, move.argument, &crashed)
                                         : world_on_up(w, scope, *c, move.rank, move.argument, &crashed);
        if (wrong != NULL || !crashed) return wrong;
        return world_take_over(w, scope, c, false);
    case MOVE_FIND:
        event = world_found(w, scope);
        break;
    case MOVE_PLAN:
        if (move.argument > 0) w->changes--;
        return world_answer_plan(w, scope, *c, move.argument, NEVER, &crashed);
    case MOVE_PREPARE:
        w->preparing &= (uint8_t) ~(1u << move.rank);
        event.kind = COORD_PREPARE_AS;
        event.chunk = move.argument < world_chunks(scope) ? move.argument : UINT32_MAX;
        break;
    case MOVE_STOPPING:
        w->stoppings--;
        w->stopped = w->may_end_early = 1;
        event.kind = COORD_STOPPING;
        break;
    case MOVE_REPLAN:
        w->replans--;
        event.kind = COORD_REPLAN;
        break;
    case MOVE_TAKEOVER:
        return world_take_over(w, scope, c, move.argument);
    default:
        break;
    }
    return world_feed(w, scope, *c, &event);
}

static inline const char *world_apply(struct world *w, const struct world_scope *scope, struct coord **c,
                                      struct move move) {
    const char *wrong = NULL;
    for (uint32_t rank = 0; rank < world_ranks(scope); rank++)
        if (w->up[rank].count >= WORLD_QUEUE - 2) return "a channel longer than the model has room for";
    switch (move.kind) {
    case MOVE_DOWN:
        wrong = world_on_down(w, scope, move.rank);
        break;
    case MOVE_WORK:
        wrong = world_work(w, move.rank, move.argument);
        break;
    case MOVE_REDUCE:
        wrong = world_reduce(w, scope, move.rank, move.argument);
        break;
    case MOVE_FETCH:
        wrong = world_fetch(w, scope, move.rank, move.argument);
        break;
    case MOVE_COPY:
        world_copy(w, scope, move.rank);
        break;
    case MOVE_WRITTEN:
    case MOVE_FAILED:
        world_answer_save(w, scope, move);
        break;
    case MOVE_DIE:
        world_die(w, move);
        break;
    case MOVE_SILENCE:
        wrong = world_silence(w, scope, *c, move.rank);
        break;
    case MOVE_JOIN:
        wrong = world_join(w, scope, *c, move.rank);
        break;
    case MOVE_LEAVE:
        w->leaves--;
        world_put(&w->up[move.rank], (struct world_message){.kind = COORD_LEAVING});
        break;
    default:
        wrong = world_move_coordinator(w, scope, c, move);
    }
    world_forget(w, scope);
    return wrong;
}

static inline void world_print_move(const struct world *w, struct move move, char *out, size_t size) {
    static const char *const actions[] = {"FENCE",   "FIND",   "PLAN",        "GO",      "DECIDE", "SAVE",
                                          "DURABLE", "FORGET", "PREPARE_FOR", "PREPARE", "KILL",   "LEAVE"};
    static const char *const events[] = {"STARTED",    "READY",    "BEGIN",  "EXIT",   "SUSPECT",
                                         "BEAT",       "REDUCED",  "FENCED", "FOUND",  "PLANNED",
                                         "PREPARE_AS", "PREPARED", "SAVED",  "LEAVING"};
    static const char *const outcomes[] = {"?", "small", "large", "not finite", "overflow"};
    static const char *const others[] = {
        [MOVE_FIND] = "the driver looks for the newest durable step",
        [MOVE_TICK] = "the clock ticks",
        [MOVE_STOPPING] = "the user asks to stop",
        [MOVE_REPLAN] = "the driver has a better plan",
    };
    const struct world_message *m;
    uint32_t rank = move.rank, argument = move.argument;
    switch (move.kind) {
    case MOVE_DOWN:
        m = &w->down[rank].at[0];
        snprintf(out, size, "rank %u takes %s view %u version %u", rank, actions[m->kind], m->view,
                 m->version);
        return;
    case MOVE_UP:
    case MOVE_CRASH:
        if (rank == WORLD_RANKS) {
            snprintf(out, size, "the driver plans, and the coordinator ends after %u actions", argument);
            return;
        }
        m = &w->up[rank].at[0];
        snprintf(out, size, "coordinator takes %s of rank %u view %u version %u chunk %u%s", events[m->kind],
                 rank, m->view, m->version, m->chunk, m->ok ? " ok" : "");
        if (move.kind == MOVE_CRASH)
            snprintf(out + strlen(out), size - strlen(out), ", and ends after %u actions", argument);
        return;
    case MOVE_WORK:
        snprintf(out, size, "rank %u adds its share of chunk %u", rank, argument);
        return;
    case MOVE_REDUCE:
        snprintf(out, size, "rank %u reduces chunk %u: %s", rank, argument / 8, outcomes[argument % 8]);
        return;
    case MOVE_FETCH:
        snprintf(out, size, "rank %u gets what it lacks of chunk %u", rank, argument);
        return;
    case MOVE_COPY:
        snprintf(out, size, "rank %u has its copy of chunk %u", rank, w->workers[rank].copy_chunk);
        return;
    case MOVE_WRITTEN:
    case MOVE_FAILED:
        snprintf(out, size, "rank %u %s its part of version %u", rank,
                 move.kind == MOVE_WRITTEN ? "writes" : "fails to write",
                 w->workers[rank].saves[argument].version);
        return;
    case MOVE_PLAN:
        snprintf(out, size, "the driver plans, variant %u", argument);
        return;
    case MOVE_PREPARE:
        snprintf(out, size, "the driver sees rank %u at chunk %u", rank, argument);
        return;
    case MOVE_DIE:
        snprintf(out, size, "rank %u dies, %u of its events still arrive", rank, argument);
        return;
    case MOVE_SILENCE:
        snprintf(out, size, "rank %u lives, but its beats do not arrive", rank);
        return;
    case MOVE_JOIN:
        snprintf(out, size, "a process is started at place %u", rank);
        return;
    case MOVE_LEAVE:
        snprintf(out, size, "rank %u is told to end", rank);
        return;
    case MOVE_TAKEOVER:
        snprintf(out, size, "another coordinator takes over%s",
                 argument ? ", what was on the way is lost" : "");
        return;
    default:
        snprintf(out, size, "%s", others[move.kind]);
    }
}

#endif
