/* Who plays which role: ranks keep theirs, empty roles are filled, no stage stays without a live role.
 *
 * Whoever is there and has no role takes an empty one, if there is any: one worker more is never worse. Which
 * one, in this order: that of its own number where it has the chunk (the start, and a coordinator that took
 * over and knows no roles), any of a chunk that it has, that of its number, one of the stage that lacks most.
 * Equal: the lowest number. Tested in tests/unit/run_replan_test.c. */
#include <stdlib.h>
#include <string.h>

#include "run/replan_state.h"

struct casting {
    const struct replan_casting *in;
    struct replan_cast *out;
    uint32_t *live; /* [stages] */
    bool *placed;   /* [ranks] */
};

static bool has_state(const struct replan_casting *in, uint32_t rank, uint32_t stage) {
    return in->question->has_state[(size_t)rank * in->stages + stage];
}

static bool has_any_state(const struct replan_casting *in, uint32_t rank) {
    for (uint32_t s = 0; s < in->stages; s++)
        if (has_state(in, rank, s)) return true;
    return false;
}

static bool is_free(const struct casting *c, uint32_t rank) {
    return c->in->question->candidates[rank] && !c->placed[rank];
}

static void place(struct casting *c, uint32_t rank, uint32_t role) {
    c->out->rank_of_role[role] = rank;
    c->placed[rank] = true;
    c->live[role % c->in->stages]++;
}

static void keep_roles(struct casting *c) {
    uint32_t roles = c->in->pipelines * c->in->stages;
    for (uint32_t r = 0; r < c->in->ranks; r++) {
        uint32_t role = c->in->role_of_rank[r];
        if (is_free(c, r) && role < roles && c->out->rank_of_role[role] == IR_NONE) place(c, r, role);
    }
}

static void place_by_number(struct casting *c, bool by_state) {
    uint32_t roles = c->in->pipelines * c->in->stages;
    for (uint32_t r = 0; r < c->in->ranks && r < roles; r++) {
        if (!is_free(c, r) || c->out->rank_of_role[r] != IR_NONE) continue;
        bool fits = by_state ? has_state(c->in, r, r % c->in->stages) : !has_any_state(c->in, r);
        if (fits) place(c, r, r);
    }
}

/* The stage's first empty role; IR_NONE: all are taken. */
static uint32_t empty_role(const struct casting *c, uint32_t stage) {
    for (uint32_t p = 0; p < c->in->pipelines; p++)
        if (c->out->rank_of_role[p * c->in->stages + stage] == IR_NONE) return p * c->in->stages + stage;
    return IR_NONE;
}

/* The stage with fewest live roles, of those whose chunk the rank has, or of all. */
static uint32_t neediest(const struct casting *c, uint32_t rank, bool by_state) {
    uint32_t best = IR_NONE;
    for (uint32_t s = 0; s < c->in->stages; s++) {
        if (c->live[s] == c->in->pipelines || (by_state && !has_state(c->in, rank, s))) continue;
        if (best == IR_NONE || c->live[s] < c->live[best]) best = s;
    }
    return best;
}

static void place_by_need(struct casting *c, bool by_state) {
    for (uint32_t r = 0; r < c->in->ranks; r++) {
        uint32_t stage = is_free(c, r) ? neediest(c, r, by_state) : IR_NONE;
        if (stage != IR_NONE) place(c, r, empty_role(c, stage));
    }
}

/* Of the stage with most live roles the one that has the lost chunk, else the last; its role becomes empty.
 */
static void rescue(struct casting *c, uint32_t lost) {
    const struct replan_casting *in = c->in;
    uint32_t fullest = 0, giver = IR_NONE;
    for (uint32_t s = 1; s < in->stages; s++)
        if (c->live[s] > c->live[fullest]) fullest = s;
    for (uint32_t p = in->pipelines; p-- > 0;) {
        uint32_t role = p * in->stages + fullest, rank = c->out->rank_of_role[role];
        if (rank == IR_NONE) continue;
        bool has = has_state(in, rank, lost);
        if (giver == IR_NONE || has) giver = role;
        if (has) break;
    }
    uint32_t rank = c->out->rank_of_role[giver];
    c->out->rank_of_role[giver] = IR_NONE;
    c->live[fullest]--;
    place(c, rank, giver - fullest + lost);
}

pawl_code replan_cast_make(const struct replan_casting *in, struct replan_cast *out, struct pawl_error *e) {
    size_t roles = (size_t)in->pipelines * in->stages;
    *out = (struct replan_cast){.pipelines = in->pipelines, .stages = in->stages};
    struct casting c = {.in = in, .out = out};
    out->rank_of_role = malloc(roles * sizeof *out->rank_of_role);
    c.live = calloc(in->stages, sizeof *c.live);
    c.placed = calloc(in->ranks, sizeof *c.placed);
    bool ok = out->rank_of_role != NULL && c.live != NULL && c.placed != NULL;
    if (ok) {
        memset(out->rank_of_role, 0xff, roles * sizeof *out->rank_of_role); /* IR_NONE */
        keep_roles(&c);
        place_by_number(&c, true);
        place_by_need(&c, true);
        place_by_number(&c, false);
        place_by_need(&c, false);
    }
    for (uint32_t s = 0; ok && s < in->stages; s++)
        if (c.live[s] == 0) rescue(&c, s);
    free(c.live);
    free(c.placed);
    return ok ? PAWL_OK : error_set(e, PAWL_MEMORY, 0, "no memory for the roles of %u ranks", in->ranks);
}

void replan_cast_close(struct replan_cast *cast) {
    free(cast->rank_of_role);
    *cast = (struct replan_cast){0};
}

/* Its role becomes that of whoever of the stage has the chunk it moves to. */
static void swap_for_state(struct replan_cast *cast, struct plan_move move, const struct replan_question *q,
                           const struct replan_costs *costs) {
    uint32_t stages = cast->stages, from = move.from % stages, to = move.to % stages;
    uint32_t *mover = &cast->rank_of_role[move.from];
    if (q->has_state[(size_t)*mover * stages + to]) return;
    for (uint32_t p = 0; p < cast->pipelines; p++) {
        uint32_t *other = &cast->rank_of_role[p * stages + from], rank = *other;
        if (rank == IR_NONE || !q->has_state[(size_t)rank * stages + to] ||
            !replan_alike(costs, rank, *mover))
            continue;
        *other = *mover;
        *mover = rank;
        return;
    }
}

void replan_cast_move(struct replan_cast *cast, const struct plan_move *moves, uint32_t count,
                      const struct replan_question *q, const struct replan_costs *costs) {
    for (uint32_t i = 0; i < count; i++) {
        swap_for_state(cast, moves[i], q, costs);
        cast->rank_of_role[moves[i].to] = cast->rank_of_role[moves[i].from];
        cast->rank_of_role[moves[i].from] = IR_NONE;
    }
}

/* The chunk that the role helps with; IR_NONE. */
static uint32_t helped_chunk(const struct ir_plan *ir, uint32_t role) {
    const struct ir_worker *w = &ir->workers[role];
    for (uint32_t i = 0; i < w->hold_count; i++)
        if (w->holds[i] != role % ir->stages) return w->holds[i];
    return IR_NONE;
}

static bool has_chunk(const struct replan_cast *cast, const struct replan_question *q, uint32_t role,
                      uint32_t chunk) {
    uint32_t rank = cast->rank_of_role[role];
    return chunk != IR_NONE && q->has_state[(size_t)rank * cast->stages + chunk];
}

/* Of the role's stage: whoever has the chunk, and does not need what it has where it is. */
static uint32_t find_helper(const struct replan_cast *cast, const struct ir_plan *ir,
                            const struct replan_question *q, const struct replan_costs *costs,
                            uint32_t role) {
    uint32_t chunk = helped_chunk(ir, role);
    for (uint32_t p = 0; p < cast->pipelines; p++) {
        uint32_t other = p * cast->stages + role % cast->stages;
        if (cast->rank_of_role[other] == IR_NONE || !has_chunk(cast, q, other, chunk)) continue;
        bool needed = has_chunk(cast, q, other, helped_chunk(ir, other));
        if (!needed && replan_alike(costs, cast->rank_of_role[role], cast->rank_of_role[other])) return other;
    }
    return IR_NONE;
}

void replan_cast_keep_helpers(struct replan_cast *cast, const struct ir_plan *ir,
                              const struct replan_question *q, const struct replan_costs *costs) {
    for (uint32_t role = 0; role < cast->pipelines * cast->stages; role++) {
        uint32_t chunk = helped_chunk(ir, role), rank = cast->rank_of_role[role];
        if (chunk == IR_NONE || rank == IR_NONE || has_chunk(cast, q, role, chunk)) continue;
        uint32_t other = find_helper(cast, ir, q, costs, role);
        if (other == IR_NONE) continue;
        cast->rank_of_role[role] = cast->rank_of_role[other];
        cast->rank_of_role[other] = rank;
    }
}

uint32_t replan_pipelines(const struct spec *spec, uint32_t count) {
    uint32_t pipelines = count / spec->parallel.stages, most = spec_pipelines_max(spec);
    uint64_t all = spec_contributions(spec);
    if (pipelines > most) pipelines = most;
    if (pipelines > all) pipelines = (uint32_t)all;
    return pipelines > spec->parallel.pipelines ? pipelines : spec->parallel.pipelines;
}
