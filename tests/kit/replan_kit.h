/* A run as the conductor sees it, for tests of replans: who is there, and who holds what by the last plan. */
#ifndef KIT_REPLAN_KIT_H
#define KIT_REPLAN_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <stdio.h>

#include "base/rng.h"
#include "run/replan.h"
#include "run/replan_state.h"

#define NONE UINT32_MAX

static inline struct spec spec_of(uint32_t pipelines, uint32_t stages, uint32_t microbatches,
                                  enum pawl_policy policy) {
    struct spec s = {0};
    s.parallel.pipelines = pipelines;
    s.parallel.stages = stages;
    s.parallel.microbatches = microbatches;
    s.parallel.schedule = policy;
    s.parallel.replan = true;
    return s;
}

struct run {
    struct spec spec;
    uint32_t ranks, stages;
    struct replan *replan;
    bool there[64], has[64 * 16];
    struct replan_plan *plan; /* in use */
};

static inline void run_open(struct run *r, struct spec spec, bool background) {
    struct pawl_error e = {0};
    *r = (struct run){.spec = spec, .stages = spec.parallel.stages};
    r->ranks = spec_capacity(&spec);
    assert_true(r->ranks <= 64 && r->stages <= 16);
    for (uint32_t i = 0; i < spec_ranks(&spec); i++) r->there[i] = true;
    if (replan_new(&r->spec, r->ranks, background, &r->replan, &e) != PAWL_OK) fail_msg("%s", e.text);
}

static inline void run_close(struct run *r) {
    replan_free(r->replan);
    replan_plan_free(r->plan);
}

static inline struct replan_question question_of(const struct run *r) {
    return (struct replan_question){.candidates = r->there, .has_state = r->has};
}

static inline void assert_sound(const struct run *r, const struct replan_plan *p);

/* Fence, plan, go: everybody has what it holds from now on. */
static inline const struct replan_plan *fence(struct run *r) {
    struct pawl_error e = {0};
    struct replan_plan *plan = NULL;
    struct replan_question q = question_of(r);
    uint32_t need = NONE;
    if (replan_make(r->replan, &q, &plan, &need, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(need, 0);
    assert_sound(r, plan);
    replan_used(r->replan, plan);
    replan_plan_free(r->plan);
    r->plan = plan;
    memcpy(r->has, plan->holds, (size_t)r->ranks * r->stages * sizeof *r->has);
    return plan;
}

static inline void dies(struct run *r, uint32_t rank) {
    r->there[rank] = false;
    for (uint32_t s = 0; s < r->stages; s++) r->has[rank * r->stages + s] = false;
    replan_exited(r->replan, rank);
}

static inline uint32_t role_of(const struct replan_plan *p, uint32_t rank) {
    for (uint32_t i = 0; i < p->ir->pipelines * p->ir->stages; i++)
        if (p->rank_of_role[i] == rank) return i;
    return NONE;
}

/* What any plan must be, whatever the question. */
static inline void assert_sound(const struct run *r, const struct replan_plan *p) {
    struct pawl_error e = {0};
    uint32_t roles = p->ir->pipelines * p->ir->stages;
    if (ir_check(p->ir, NULL, NULL, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(p->ir->total, spec_contributions(&r->spec));
    for (uint32_t i = 0; i < roles; i++) {
        uint32_t rank = p->rank_of_role[i];
        assert_int_equal(p->ir->workers[i].alive, rank != NONE);
        if (rank == NONE) continue;
        assert_true(rank < r->ranks && r->there[rank]);
        assert_int_equal(role_of(p, rank), i); /* nobody plays two */
        assert_int_equal(p->own[rank], i % r->stages);
        for (uint32_t s = 0; s < r->stages; s++)
            assert_int_equal(p->holds[rank * r->stages + s], ir_plan_holds(p->ir, i, s));
    }
    for (uint32_t rank = 0; rank < r->ranks; rank++)
        if (role_of(p, rank) == NONE) assert_int_equal(p->own[rank], NONE);
    for (uint32_t s = 0; s < r->stages; s++) {
        bool owned = false;
        for (uint32_t rank = 0; rank < r->ranks; rank++) owned = owned || p->own[rank] == s;
        assert_true(owned);
    }
}

static inline void change_somebody(struct run *r, struct rng_stream *rng) {
    uint32_t rank = (uint32_t)rng_below(rng, r->ranks), live = 0;
    for (uint32_t i = 0; i < r->ranks; i++) live += r->there[i];
    if (!r->there[rank])
        r->there[rank] = true;
    else if (live > r->stages)
        dies(r, rank);
    if (rng_below(rng, 10) == 0) memset(r->has, 0, sizeof r->has); /* everybody goes back to a durable step */
}

static inline void encode(const struct replan_plan *p, uint32_t ranks, struct bytes *out) {
    ir_encode(p->ir, out);
    bytes_put(out, p->rank_of_role, (size_t)p->ir->pipelines * p->ir->stages * sizeof *p->rank_of_role);
    bytes_put(out, p->own, ranks * sizeof *p->own);
    bytes_put(out, p->peak, (size_t)p->ir->pipelines * p->ir->stages * sizeof *p->peak);
}

/* A fence for something else, with everybody still there. */
static inline void assert_nothing_changes(struct run *r) {
    struct bytes before = {0}, after = {0};
    encode(r->plan, r->ranks, &before);
    assert_int_equal(fence(r)->moves, 0);
    encode(r->plan, r->ranks, &after);
    assert_int_equal(before.size, after.size);
    assert_memory_equal(before.data, after.data, after.size);
    bytes_close(&before);
    bytes_close(&after);
}

static inline void a_history(uint64_t seed, bool background, struct bytes *out) {
    struct rng_stream rng = {.state = seed};
    enum pawl_policy policies[] = {PAWL_POLICY_PAWL,  PAWL_POLICY_RECYCLE, PAWL_POLICY_1F1B,
                                   PAWL_POLICY_GPIPE, PAWL_POLICY_ZB_H1,   PAWL_POLICY_ADAPTIVE,
                                   PAWL_POLICY_PAWL};
    struct spec spec = spec_of(1 + (uint32_t)rng_below(&rng, 4), 1 + (uint32_t)rng_below(&rng, 4),
                               1 + (uint32_t)rng_below(&rng, 8), policies[rng_below(&rng, 7)]);
    struct run r;
    spec.parallel.replan = false; /* no long search, which might find better ones */
    run_open(&r, spec, background);
    for (int i = 0; i < 12; i++) {
        encode(fence(&r), r.ranks, out);
        assert_nothing_changes(&r);
        for (uint64_t n = rng_below(&rng, 3); n > 0; n--) change_somebody(&r, &rng);
    }
    run_close(&r);
}

/* All have told `ms` for F, I and W together, in the shares 1:1:1. */
static inline void tell(struct run *r, uint32_t rank, double ms) {
    struct measure_report m = {.iterations = 20};
    m.ns[MEASURE_FORWARD] = m.ns[MEASURE_INPUT_GRAD] = m.ns[MEASURE_WEIGHT_GRAD] = (uint64_t)(ms * 1e6 / 3);
    m.ns[MEASURE_STEP] = 1000;
    replan_measured(r->replan, rank, &m);
}

static inline uint32_t load_of(const struct replan_plan *p, uint32_t rank) {
    uint32_t forwards = 0, role = role_of(p, rank);
    for (uint32_t i = 0; i < p->ir->workers[role].count; i++)
        forwards += p->ir->workers[role].instructions[i].op == IR_F;
    return forwards;
}

static inline bool better_within(struct run *r, uint32_t iterations) {
    for (uint32_t i = 0; i < iterations; i++)
        if (replan_better(r->replan)) return true;
    return false;
}

#endif
