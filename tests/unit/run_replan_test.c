/* What run/replan.h promises: who plays which role, for whoever is there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "run/replan.h"
#include "run/replan_state.h"

#define NONE UINT32_MAX

static struct spec spec_of(uint32_t pipelines, uint32_t stages, uint32_t microbatches,
                           enum pawl_policy policy) {
    struct spec s = {0};
    s.parallel.pipelines = pipelines;
    s.parallel.stages = stages;
    s.parallel.microbatches = microbatches;
    s.parallel.schedule = policy;
    s.parallel.replan = true;
    return s;
}

/* A run as the conductor sees it: who is there, and who holds what by the last plan. */
struct run {
    struct spec spec;
    uint32_t ranks, stages;
    struct replan *replan;
    bool there[64], has[64 * 16];
    struct replan_plan *plan; /* in use */
};

static void run_open(struct run *r, struct spec spec, bool background) {
    struct pawl_error e = {0};
    *r = (struct run){.spec = spec, .stages = spec.parallel.stages};
    r->ranks = spec_capacity(&spec);
    assert_true(r->ranks <= 64 && r->stages <= 16);
    for (uint32_t i = 0; i < spec_ranks(&spec); i++) r->there[i] = true;
    if (replan_new(&r->spec, r->ranks, background, &r->replan, &e) != PAWL_OK) fail_msg("%s", e.text);
}

static void run_close(struct run *r) {
    replan_free(r->replan);
    replan_plan_free(r->plan);
}

static struct replan_question question_of(const struct run *r) {
    return (struct replan_question){.candidates = r->there, .has_state = r->has};
}

static void assert_sound(const struct run *r, const struct replan_plan *p);

/* Fence, plan, go: everybody has what it holds from now on. */
static const struct replan_plan *fence(struct run *r) {
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

static void dies(struct run *r, uint32_t rank) {
    r->there[rank] = false;
    for (uint32_t s = 0; s < r->stages; s++) r->has[rank * r->stages + s] = false;
    replan_exited(r->replan, rank);
}

static uint32_t role_of(const struct replan_plan *p, uint32_t rank) {
    for (uint32_t i = 0; i < p->ir->pipelines * p->ir->stages; i++)
        if (p->rank_of_role[i] == rank) return i;
    return NONE;
}

/* What any plan must be, whatever the question. */
static void assert_sound(const struct run *r, const struct replan_plan *p) {
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

static void at_the_start_every_rank_plays_the_role_of_its_number(void **state) {
    (void)state;
    for (int policy = 0; policy < PAWL_POLICY_COUNT; policy++) {
        enum pawl_policy p = (enum pawl_policy)policy;
        if (p == PAWL_POLICY_INTERLEAVED || p == PAWL_POLICY_ZB_V) continue; /* the spec has none of them */
        struct run r;
        run_open(&r, spec_of(2, 4, 6, p), false);
        const struct replan_plan *plan = fence(&r);
        for (uint32_t i = 0; i < 8; i++) assert_int_equal(plan->rank_of_role[i], i);
        assert_int_equal(plan->moves, 0);
        run_close(&r);
    }
}

static void a_rank_keeps_its_role_when_another_dies(void **state) {
    (void)state;
    struct run r;
    run_open(&r, spec_of(4, 4, 8, PAWL_POLICY_PAWL), false);
    fence(&r);
    dies(&r, 5);
    const struct replan_plan *plan = fence(&r);
    for (uint32_t i = 0; i < 16; i++) assert_int_equal(plan->rank_of_role[i], i == 5 ? NONE : i);
    assert_int_equal(plan->moves, 0);
    run_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_the_start_every_rank_plays_the_role_of_its_number),
        cmocka_unit_test(a_rank_keeps_its_role_when_another_dies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
