/* Go: where everybody goes on, and how each pair comes to what it needs there.
 *
 * Three ways on: settle (iteration `final` is decided from the gradients that are held), again (it is made
 * once more, with what is done of it), back (everybody loads a durable step). What a pair lacks it takes from
 * a rank that has it, by preference one that keeps it; a rank that moves away or leaves keeps what it had
 * until all pairs have reported. Contributions count only if they were added for the very iteration that
 * starts, from the very version it reads, with the very exponents it uses: so the sums come out with the bits
 * of a run in which nothing happened. */
#include "coord/state.h"

/* What a redo lowers the exponents by. */
#define SHIFT_STEP 16

/* A rank other than `rank` that has what is wanted of `chunk`: the lowest that is to hold it, else the
 * lowest.
 */
static uint32_t source_of(const struct coord *c, uint32_t rank, uint32_t chunk, bool grad) {
    uint32_t other = COORD_NOBODY;
    for (uint32_t r = 0; r < c->config.ranks; r++) {
        size_t pair = coord_pair_at(c, r, chunk);
        if (r == rank || !(grad ? c->holdings[pair].grad : c->has_state[pair])) continue;
        if (c->pairs[pair].held) return r;
        if (other == COORD_NOBODY) other = r;
    }
    return other;
}

static bool keeps_work(const struct coord *c, size_t pair, const struct coord_action *go) {
    const struct coord_holding *holding = &c->holdings[pair];
    if (!holding->answered || holding->answer.work == COORD_NO_WORK || !c->has_state[pair]) return false;
    if (holding->answer.work != go->version || holding->answer.work_shift != go->shift) return false;
    /* A tentative version is the one that starts if the verdict is what it was made with. */
    return !go->settle || (holding->grad && go->verdict == COORD_ACCEPT);
}

static void fill_pair(struct coord *c, uint32_t rank, uint32_t chunk, const struct coord_action *go) {
    size_t at = coord_pair_at(c, rank, chunk);
    struct coord_pair *pair = &c->pairs[at];
    if (!pair->held) return;
    if (go->restore) {
        pair->flags = COORD_LOAD;
        return;
    }
    bool reduced = c->chunks[chunk].known; /* somebody holds its gradient */
    unsigned flags = 0;
    if (!c->has_state[at]) flags |= COORD_FETCH_STATE;
    if (reduced && !c->holdings[at].grad && (c->has_state[at] || !go->settle)) flags |= COORD_FETCH_GRAD;
    if (flags != 0) {
        pair->source = source_of(c, rank, chunk, reduced);
        COORD_MUST(pair->source != COORD_NOBODY);
    }
    /* Where the gradient is there nothing is added any more; that no pair keeps its sums tells everybody so.
     */
    if ((go->settle || !reduced) && keeps_work(c, at, go)) flags |= COORD_KEEP_WORK;
    pair->flags = (uint8_t)flags;
}

static void fill_pairs(struct coord *c, const bool *holds, const uint32_t *own,
                       const struct coord_action *go) {
    size_t pairs = (size_t)c->config.ranks * c->config.chunks;
    for (size_t pair = 0; pair < pairs; pair++)
        c->pairs[pair] = (struct coord_pair){.held = holds[pair], .source = COORD_NOBODY};
    for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++)
        c->chunks[chunk].held = !go->restore && !go->settle && c->chunks[chunk].known;
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        c->ranks[rank].own = own[rank];
        for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++) fill_pair(c, rank, chunk, go);
    }
    for (size_t pair = 0; pair < pairs; pair++) c->has_state[pair] = holds[pair];
}

static void push_go(struct coord *c, const struct coord_action *go) {
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        struct coord_rank *r = &c->ranks[rank];
        if (r->entering && c->running_once) coord_push(c, COORD_JOINED)->rank = rank;
        r->entering = r->fenced = false;
    }
    struct coord_action *action = coord_push(c, COORD_GO);
    uint64_t view = action->view;
    *action = *go;
    action->kind = COORD_GO;
    action->view = view;
    action->rank = action->peer = action->chunk = COORD_NOBODY;
    c->phase = PHASE_RUNNING;
    c->running_once = true;
    c->restoring = c->needing = false;
    coord_clocks_restart(c);
}

void coord_go_back(struct coord *c) {
    if (c->running_once) {
        struct coord_action *restored = coord_push(c, COORD_RESTORED);
        restored->version = c->found;
        restored->from = c->final;
    }
    c->went_back = true;
    c->final = c->found;
    c->target = c->config.final_version;
    if (c->stopping && c->final < c->target) c->target = c->final + 1;
    c->has_durable = c->has_durable && c->durable <= c->final;
    /* What was found is not told as durable: it is complete, but may not be flushed, and not be kept yet. */
    if (!c->has_durable) c->durable = 0;
    c->shift = 0;
    c->optimistic = coord_first_optimistic(c);
    coord_reports_clear(c);
}

static void go_loading(struct coord *c, const bool *holds, const uint32_t *own) {
    coord_go_back(c);
    struct coord_action go = {
        .version = c->final, .clip = 1.0f, .optimistic = c->optimistic, .restore = true};
    fill_pairs(c, holds, own, &go);
    push_go(c, &go);
}

static void go_again(struct coord *c, const bool *holds, const uint32_t *own) {
    struct coord_action go = {
        .version = c->final, .clip = 1.0f, .shift = c->shift, .optimistic = c->optimistic};
    fill_pairs(c, holds, own, &go);
    coord_reports_clear(c);
    push_go(c, &go);
}

static void go_settled(struct coord *c, const bool *holds, const uint32_t *own,
                       const struct coord_outcome *outcome) {
    struct coord_action go = {.version = c->final + 1,
                              .iteration = c->final,
                              .verdict = outcome->verdict,
                              .clip = outcome->clip,
                              .optimistic = coord_next_optimistic(c, outcome),
                              .settle = true};
    fill_pairs(c, holds, own, &go);
    push_go(c, &go);
    coord_make_final(c, outcome);
}

/* The gradients held overflowed: they are worth nothing, nor is what was added with their exponents. */
static void redo(struct coord *c, const bool *holds, const uint32_t *own,
                 const struct coord_outcome *outcome) {
    if (c->shift + SHIFT_STEP > COORD_SHIFT_MAX) {
        coord_stop(c, PAWL_INTERNAL, "gradient sums overflow whatever the exponents");
        return;
    }
    c->shift += SHIFT_STEP;
    c->optimistic = coord_next_optimistic(c, outcome);
    c->idle_fences = 0;
    coord_reports_clear(c); /* so that none counts as held */
    go_again(c, holds, own);
}

static bool all_known(const struct coord *c) {
    for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++)
        if (!c->chunks[chunk].known) return false;
    return true;
}

void coord_go(struct coord *c, const bool *holds, const uint32_t *own) {
    if (c->restoring) {
        go_loading(c, holds, own);
        return;
    }
    if (!all_known(c)) {
        go_again(c, holds, own);
        return;
    }
    if (c->final == c->target) {
        coord_reports_clear(c); /* held of all chunks, and not settled: everybody drops them */
        go_again(c, holds, own);
        return;
    }
    struct coord_outcome outcome = coord_judge(c);
    if (outcome.redo)
        redo(c, holds, own, &outcome);
    else
        go_settled(c, holds, own, &outcome);
}
