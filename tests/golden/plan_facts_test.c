/* Golden periods through the public API: three techniques by stage, two failures before and after a move,
 * fault-free baselines. Uniform costs of 1, no transfers, no optimizer. The values are those of closed forms
 * (largest load, plus the drain where iterations end with a barrier), hence optimal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pawl/plan.h>

#include "kit/near.h"

struct shape {
    uint32_t pipelines, stages, microbatches;
};

static struct pawl_plan_summary planned(struct pawl_plan_request r) {
    struct pawl_plan *plan = NULL;
    struct pawl_error e = {0};
    if (pawl_plan_make(&r, &plan, &e) != PAWL_OK) fail_msg("%s: %s", pawl_policy_name(r.policy), e.text);
    struct pawl_plan_summary s = *pawl_plan_summary(plan);
    pawl_plan_free(plan);
    return s;
}

static struct pawl_plan_request request(struct shape s, enum pawl_policy policy) {
    return (struct pawl_plan_request){
        .pipelines = s.pipelines, .stages = s.stages, .microbatches = s.microbatches, .policy = policy};
}

static void period_is(struct pawl_plan_request r, double want) {
    struct pawl_plan_summary s = planned(r);
    if (s.period != want)
        fail_msg("%ux%ux%u %s, %u dead: period %g (bound %g), wanted %g", r.pipelines, r.stages,
                 r.microbatches, pawl_policy_name(r.policy), r.dead_count, s.period, s.lower_bound, want);
}

static void one_failure(struct shape s, enum pawl_policy policy, uint32_t stage, double want) {
    struct pawl_worker_at dead = {1, stage};
    struct pawl_plan_request r = request(s, policy);
    r.dead = &dead;
    r.dead_count = 1;
    period_is(r, want);
    if (planned(r).move_count != 0) fail_msg("a lone failure was moved");
}

static void the_running_example_by_stage_and_technique(void **state) {
    (void)state;
    static const double want[4][3] = {{29, 27, 27}, {30, 28, 27}, {33, 29, 27}, {36, 30, 27}};
    const struct shape s = {3, 4, 6};
    for (uint32_t stage = 0; stage < 4; stage++) {
        struct pawl_worker_at dead = {1, stage};
        struct pawl_plan_request r = request(s, PAWL_POLICY_ADAPTIVE);
        r.dead = &dead;
        r.dead_count = 1;
        double adaptive =
            planned(r).period; /* at stage 0 the bound, 27, is not reached; 29 is the best known */
        if (stage == 0 ? adaptive > want[0][0] || adaptive < 27 : adaptive != want[stage][0])
            fail_msg("adaptive, stage %u: %g, wanted %g", stage, adaptive, want[stage][0]);
        one_failure(s, PAWL_POLICY_DECOUPLED, stage, want[stage][1]);
        one_failure(s, PAWL_POLICY_RECYCLE, stage, want[stage][2]);
    }
}

/* Shape, then per technique the failure at stage 0, P/2 and P-1; adaptive values that are not at their bound
 * are the best known, so that about as much is good. */
static const struct {
    struct shape shape;
    double adaptive[3], decoupled[3], staggered, two;
} larger[] = {
    {{4, 4, 8}, {35, 39, 42}, {33, 35, 36}, 33, 48},
    {{4, 8, 16}, {71, 78, 87}, {66, 70, 73}, 66, 96},
    {{8, 4, 16}, {59, 64, 66}, {57, 59, 60}, 57, 66},
    {{4, 8, 32}, {134, 142, 150}, {129, 133, 136}, 129, 192},
    {{8, 8, 32}, {119, 126, 132}, {111, 115, 118}, 111, 129},
};
#define LARGER (sizeof larger / sizeof larger[0])

static void one_failure_of_larger_clusters(void **state) {
    (void)state;
    for (size_t i = 0; i < LARGER; i++)
        for (uint32_t k = 0; k < 3; k++) {
            struct shape s = larger[i].shape;
            uint32_t stage = k == 0 ? 0 : k == 1 ? s.stages / 2 : s.stages - 1;
            one_failure(s, PAWL_POLICY_DECOUPLED, stage, larger[i].decoupled[k]);
            one_failure(s, PAWL_POLICY_RECYCLE, stage, larger[i].staggered);
            struct pawl_worker_at dead = {1, stage};
            struct pawl_plan_request r = request(s, PAWL_POLICY_ADAPTIVE);
            r.dead = &dead;
            r.dead_count = 1;
            struct pawl_plan_summary got = planned(r);
            if (got.period > 1.02 * larger[i].adaptive[k] || got.period < got.lower_bound)
                fail_msg("%ux%ux%u adaptive, stage %u: %g, wanted at most %g", s.pipelines, s.stages,
                         s.microbatches, stage, got.period, larger[i].adaptive[k]);
        }
}

static void two_failures_of_a_stage_cost_double_until_one_moves(void **state) {
    (void)state;
    for (uint32_t stage = 0; stage < 4; stage++) {
        const struct pawl_worker_at dead[] = {{0, stage}, {2, stage}};
        struct pawl_plan_request r = request((struct shape){3, 4, 6}, PAWL_POLICY_RECYCLE);
        r.dead = dead;
        r.dead_count = 2;
        period_is(r, 27);
        struct pawl_plan_summary s = planned(r);
        assert_int_equal(s.move_count, 1);
        assert_int_equal(s.alive, 10);
        r.no_move = true;
        period_is(r, 54);
        assert_int_equal(planned(r).move_count, 0);
    }
    for (size_t i = 0; i < LARGER; i++) {
        const struct pawl_worker_at dead[] = {{0, 1}, {2, 1}};
        struct pawl_plan_request r = request(larger[i].shape, PAWL_POLICY_RECYCLE);
        r.dead = dead;
        r.dead_count = 2;
        r.no_move = true;
        period_is(r, larger[i].two);
        r.no_move = false;
        struct pawl_plan_summary s = planned(r);
        if (s.period < larger[i].staggered || s.period > 1.01 * larger[i].staggered)
            fail_msg("case %zu after a move: %g, wanted about %g", i, s.period, larger[i].staggered);
    }
}

static void two_failures_of_different_stages_cost_nothing_more(void **state) {
    (void)state;
    const struct pawl_worker_at dead[] = {{1, 2}, {2, 0}};
    struct pawl_plan_request r = request((struct shape){3, 4, 6}, PAWL_POLICY_RECYCLE);
    r.dead = dead;
    r.dead_count = 2;
    period_is(r, 27);
    assert_int_equal(planned(r).move_count, 0);
}

static void baselines_without_failures_have_their_periods(void **state) {
    (void)state;
    static const struct shape shapes[] = {{1, 4, 6}, {3, 4, 6}, {2, 4, 8}, {1, 8, 16}, {2, 8, 32}, {1, 1, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct shape s = shapes[i];
        double m = s.microbatches, p = s.stages;
        period_is(request(s, PAWL_POLICY_GPIPE), (m + p - 1) * 3);
        period_is(request(s, PAWL_POLICY_1F1B), (m + p - 1) * 3);
        period_is(request(s, PAWL_POLICY_ZB_H1), 3 * m + p - 1);
        if (m < 2 * p - 1) continue; /* the first gradient comes back when stage 0 has nothing left to do */
        period_is(request(s, PAWL_POLICY_ZB_H2), 3 * m);
        period_is(request(s, PAWL_POLICY_RECYCLE), 3 * m);
    }
}

static void fewer_bubbles_are_lost_where_stages_are_shared(void **state) {
    (void)state;
    const struct pawl_worker_at dead = {1, 3};
    struct pawl_plan_request r = request((struct shape){4, 8, 64}, PAWL_POLICY_RECYCLE);
    r.dead = &dead;
    r.dead_count = 1;
    double fault_free = planned(r).fault_free, recycle = planned(r).period;
    assert_double(fault_free, 192, 0);
    r.policy = PAWL_POLICY_PAWL;
    struct pawl_plan_summary s = planned(r);
    if (s.period - fault_free > (recycle - fault_free) / 2)
        fail_msg("recycle %g, pawl %g with %u helpers, fault-free %g", recycle, s.period, s.shared_count,
                 fault_free);
    assert_true(s.shared_count > 0);
    r.no_move = true;
    assert_int_equal(planned(r).shared_count, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_running_example_by_stage_and_technique),
        cmocka_unit_test(one_failure_of_larger_clusters),
        cmocka_unit_test(two_failures_of_a_stage_cost_double_until_one_moves),
        cmocka_unit_test(two_failures_of_different_stages_cost_nothing_more),
        cmocka_unit_test(baselines_without_failures_have_their_periods),
        cmocka_unit_test(fewer_bubbles_are_lost_where_stages_are_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
