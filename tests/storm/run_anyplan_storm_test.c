/* The storm with plans drawn at random in place of planned ones: workers that hold any chunks, both ends of a
 * tied embedding on one of them, helpers, guests, messages to oneself, pipelines that are not full, and moves
 * for no reason. What the planner asks of workers is a small part of what plans can say; here they do all of
 * it, under kills, cuts and takeovers, and their bits are compared all the time.
 *
 * The definitions below stand in for run/replan: the linker finds them first. The rest is run_storm_test.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "run/replan.h"
#include "unit/ir_random.h"

#define TRIES 100 /* for a plan in which every chunk can be somebody's own */

struct replan {
    struct rng_stream rng;
    uint32_t ranks, chunks, total;
};

pawl_code replan_new(const struct spec *spec, uint32_t ranks, bool background, struct replan **out,
                     struct pawl_error *e) {
    (void)background;
    (void)e;
    *out = calloc(1, sizeof **out);
    **out = (struct replan){.rng = {spec->run.seed + 1},
                            .ranks = ranks,
                            .chunks = spec->parallel.stages,
                            .total = (uint32_t)spec_contributions(spec)};
    return PAWL_OK;
}

void replan_free(struct replan *r) { free(r); }

static struct random_shape draw_shape(struct replan *r, uint32_t live) {
    struct random_shape s = {.chunks = r->chunks, .total = r->total};
    do {
        s.stages = 1 + (uint32_t)rng_below(&r->rng, r->chunks);
        s.pipelines = 1 + (uint32_t)rng_below(&r->rng, 4);
    } while (s.stages * s.pipelines > live);
    s.microbatches = (r->total + s.pipelines - 1) / s.pipelines + (uint32_t)rng_below(&r->rng, 2);
    s.helpers = (uint32_t)rng_below(&r->rng, 4);
    s.v = rng_below(&r->rng, 2) == 0;
    for (uint32_t stage = 0; stage < s.stages; stage++) {
        uint32_t kept = (uint32_t)rng_below(&r->rng, s.pipelines);
        for (uint32_t p = 0; p < s.pipelines; p++)
            if (p != kept && rng_below(&r->rng, 5) == 0) s.dead |= 1u << (p * s.stages + stage);
    }
    return s;
}

static void cast_roles(struct replan *r, const struct replan_question *q, struct replan_plan *p) {
    bool *taken = calloc(r->ranks, sizeof *taken);
    for (uint32_t w = 0; w < p->ir->pipelines * p->ir->stages; w++) {
        p->rank_of_role[w] = UINT32_MAX;
        if (!p->ir->workers[w].alive) continue;
        uint32_t rank = (uint32_t)rng_below(&r->rng, r->ranks);
        while (!q->candidates[rank] || taken[rank]) rank = (rank + 1) % r->ranks;
        taken[rank] = true;
        p->rank_of_role[w] = rank;
        for (uint32_t i = 0; i < p->ir->workers[w].hold_count; i++)
            p->holds[rank * r->chunks + p->ir->workers[w].holds[i]] = true;
    }
    free(taken);
}

/* Makes `chunk` the own of some rank, others giving way (augmenting paths). */
static bool give_owner(const struct replan *r, struct replan_plan *p, uint32_t chunk, bool *seen) {
    for (uint32_t rank = 0; rank < r->ranks; rank++) {
        if (!p->holds[rank * r->chunks + chunk] || seen[rank]) continue;
        seen[rank] = true;
        if (p->own[rank] != UINT32_MAX && !give_owner(r, p, p->own[rank], seen)) continue;
        p->own[rank] = chunk;
        return true;
    }
    return false;
}

static bool give_owners(struct replan *r, struct replan_plan *p) {
    bool *seen = calloc(r->ranks, sizeof *seen), all = true;
    for (uint32_t rank = 0; rank < r->ranks; rank++) p->own[rank] = UINT32_MAX;
    for (uint32_t chunk = 0; chunk < r->chunks && all; chunk++) {
        memset(seen, 0, r->ranks * sizeof *seen);
        all = give_owner(r, p, chunk, seen);
    }
    for (uint32_t rank = 0; rank < r->ranks && all; rank++) /* the others save what they hold first */
        for (uint32_t chunk = 0; chunk < r->chunks && p->own[rank] == UINT32_MAX; chunk++)
            if (p->holds[rank * r->chunks + chunk]) p->own[rank] = chunk;
    free(seen);
    return all;
}

static struct replan_plan *draw(struct replan *r, const struct replan_question *q,
                                const struct random_shape *shape) {
    struct replan_plan *p = calloc(1, sizeof *p);
    uint32_t roles = shape->pipelines * shape->stages;
    p->ir = random_plan(rng_next(&r->rng), shape);
    p->rank_of_role = calloc(roles, sizeof *p->rank_of_role);
    p->holds = calloc((size_t)r->ranks * r->chunks, sizeof *p->holds);
    p->own = calloc(r->ranks, sizeof *p->own);
    p->peak = calloc(roles, sizeof *p->peak);
    cast_roles(r, q, p);
    if (give_owners(r, p)) return p;
    replan_plan_free(p);
    return NULL;
}

pawl_code replan_make(struct replan *r, const struct replan_question *q, struct replan_plan **out,
                      uint32_t *need, struct pawl_error *e) {
    uint32_t live = 0;
    for (uint32_t rank = 0; rank < r->ranks; rank++) live += q->candidates[rank];
    *out = NULL;
    *need = live < r->chunks ? r->chunks - live : 0;
    if (*need > 0) return error_set(e, PAWL_STAGE_LOST, 0, "%u workers for %u chunks", live, r->chunks);
    for (int i = 0; i < TRIES && *out == NULL; i++) {
        struct random_shape shape = draw_shape(r, live);
        *out = draw(r, q, &shape);
    }
    struct random_shape plain = {
        .pipelines = 1, .stages = r->chunks, .chunks = r->chunks, .microbatches = r->total};
    if (*out == NULL) *out = draw(r, q, &plain);
    return PAWL_OK;
}

void replan_plan_free(struct replan_plan *p) {
    if (p == NULL) return;
    ir_plan_free(p->ir);
    free(p->rank_of_role);
    free(p->holds);
    free(p->own);
    free(p->peak);
    free(p);
}

void replan_used(struct replan *r, const struct replan_plan *p) {
    (void)r;
    (void)p;
}

pawl_code replan_join(struct replan *r, uint32_t rank, const struct replan_question *q, uint32_t *chunk,
                      struct pawl_error *e) {
    (void)rank;
    (void)q;
    (void)e;
    *chunk = rng_below(&r->rng, 4) == 0 ? UINT32_MAX : (uint32_t)rng_below(&r->rng, r->chunks);
    return PAWL_OK;
}

void replan_measured(struct replan *r, uint32_t rank, const struct measure_report *m) {
    (void)r;
    (void)rank;
    (void)m;
}

void replan_exited(struct replan *r, uint32_t rank) {
    (void)r;
    (void)rank;
}

bool replan_better(struct replan *r) { return rng_below(&r->rng, 8) == 0; }

#include "run_storm_test.c"
