/* Plans whose last pipelines are not full: the batch of D pipelines divided over more of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "plan/plan.h"

/* What pipelines of `each` had, over one more or fewer. */
static struct pawl_plan_request divided(uint32_t pipelines, uint32_t stages, uint32_t total,
                                        enum pawl_policy policy) {
    return (struct pawl_plan_request){.pipelines = pipelines,
                                      .stages = stages,
                                      .microbatches = (total + pipelines - 1) / pipelines,
                                      .total_microbatches = total,
                                      .policy = policy};
}

static struct pawl_plan *made(const struct pawl_plan_request *r) {
    struct pawl_plan *plan = NULL;
    struct pawl_error e = {0};
    if (pawl_plan_make(r, &plan, &e) != PAWL_OK)
        fail_msg("%s, %u x %u, %u in all: %s", pawl_policy_name(r->policy), r->pipelines, r->stages,
                 r->total_microbatches, e.text);
    return plan;
}

/* Every micro-batch of every chunk once and no other; times that hold; not below the bound. */
static void assert_sound(const struct pawl_plan *plan, uint32_t total) {
    struct pawl_error e = {0};
    uint32_t forwards = 0;
    assert_int_equal(plan->ir->total, total);
    if (ir_check(plan->ir, NULL, NULL, &e) != PAWL_OK) fail_msg("%s", e.text);
    if (sim_check(plan->ir, plan->costs, plan->staggered, &plan->times, &e) != PAWL_OK)
        fail_msg("%s", e.text);
    for (uint32_t w = 0; w < plan->ir->pipelines * plan->ir->stages; w++)
        for (uint32_t i = 0; i < plan->ir->workers[w].count; i++)
            forwards += plan->ir->workers[w].instructions[i].op == IR_F;
    assert_int_equal(forwards, total * plan->ir->chunks);
    assert_true(plan->summary.period >= plan->summary.lower_bound);
}

static void every_policy_plans_pipelines_that_are_not_full(void **state) {
    (void)state;
    struct rng_stream rng = {.state = 5};
    for (int i = 0; i < 400; i++) {
        uint32_t pipelines = 1 + (uint32_t)rng_below(&rng, 5), stages = 1 + (uint32_t)rng_below(&rng, 4);
        uint32_t total = 1 + (uint32_t)rng_below(&rng, pipelines * 6);
        struct pawl_plan_request r =
            divided(pipelines, stages, total, (enum pawl_policy)(i % PAWL_POLICY_COUNT));
        uint32_t most = stages * (pipelines - 1);
        if (most > 0 && rng_below(&rng, 2)) r.failures = (uint32_t)rng_below(&rng, most < 3 ? most + 1 : 4);
        if (rng_below(&rng, 4) == 0) r.microbatches += (uint32_t)rng_below(&rng, 4); /* homes without any */
        struct pawl_plan *plan = made(&r);
        assert_sound(plan, total);
        pawl_plan_free(plan);
    }
}

/* Slow workers, limits and helpers, each with a rest that is odd. */
static void what_else_a_plan_may_have_goes_with_it(void **state) {
    (void)state;
    struct rng_stream rng = {.state = 6};
    for (int i = 0; i < 60; i++) {
        struct pawl_error e = {0};
        struct pawl_profile *profile = NULL;
        struct pawl_plan_request r = divided(3, 4, 16 + (uint32_t)rng_below(&rng, 3), PAWL_POLICY_PAWL);
        assert_int_equal(pawl_profile_uniform(4, 1, 1.2, 0.9, 0.1, &profile, &e), PAWL_OK);
        profile->worker = calloc(1, sizeof *profile->worker);
        assert_non_null(profile->worker);
        profile->worker[0] = (struct pawl_worker_cost){(uint32_t)rng_below(&rng, 3), 1, 1.5, 0};
        profile->worker_count = (uint32_t)rng_below(&rng, 2);
        r.profile = profile;
        r.failures = (uint32_t)rng_below(&rng, 4);
        if (rng_below(&rng, 2)) r.memory = 4 + (double)rng_below(&rng, 3);
        struct pawl_plan *plan = made(&r);
        assert_sound(plan, r.total_microbatches);
        pawl_plan_free(plan);
        pawl_profile_free(profile);
    }
}

/* D pipelines of M became D + 1: the busiest worker has ceil(D M / (D + 1)), and no plan can have less. */
static void one_pipeline_more_takes_its_share_of_the_batch(void **state) {
    (void)state;
    static const uint32_t shapes[][3] = {{2, 4, 12}, {3, 4, 12}, {4, 2, 16},
                                         {1, 4, 16}, {8, 4, 32}, {2, 2, 5}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        uint32_t pipelines = shapes[i][0] + 1, total = shapes[i][0] * shapes[i][2];
        struct pawl_plan_request r = divided(pipelines, shapes[i][1], total, PAWL_POLICY_RECYCLE);
        struct pawl_plan *plan = made(&r);
        double load = 3.0 * ((total + pipelines - 1) / pipelines); /* F, I and W */
        assert_sound(plan, total);
        if (plan->summary.lower_bound < load || plan->summary.period > load || !plan->summary.proven)
            fail_msg("%u x %u, %u in all: period %g, bound %g, wanted %g", pipelines, r.stages, total,
                     plan->summary.period, plan->summary.lower_bound, load);
        pawl_plan_free(plan);
    }
}

static void a_total_of_full_pipelines_changes_nothing(void **state) {
    (void)state;
    for (int p = 0; p < PAWL_POLICY_COUNT; p++) {
        struct pawl_plan_request r = {
            .pipelines = 3, .stages = 4, .microbatches = 6, .failures = 1, .policy = (enum pawl_policy)p};
        struct pawl_plan *plain = made(&r);
        r.total_microbatches = 18;
        struct pawl_plan *said = made(&r);
        struct bytes a = {0}, b = {0};
        ir_encode(plain->ir, &a);
        ir_encode(said->ir, &b);
        assert_int_equal(a.size, b.size);
        assert_memory_equal(a.data, b.data, a.size);
        bytes_close(&a);
        bytes_close(&b);
        pawl_plan_free(plain);
        pawl_plan_free(said);
    }
}

/* A shape that no bound proves: there a solver would have something to do. */
static void a_solver_leaves_it_alone_and_says_so(void **state) {
    (void)state;
    struct pawl_plan *plan = NULL;
    struct pawl_error e = {0};
    struct pawl_plan_request r = {0};
    for (uint32_t i = 0; plan == NULL && i < 60; i++) {
        r = divided(2 + i % 2, 2 + i / 2 % 3, 3 + 2 * (i / 6), PAWL_POLICY_ADAPTIVE);
        if (r.microbatches * r.pipelines == r.total_microbatches) continue;
        r.failures = 1;
        plan = made(&r);
        if (!plan->summary.proven) break;
        pawl_plan_free(plan);
        plan = NULL;
    }
    assert_non_null(plan);
    pawl_plan_free(plan);
    plan = NULL;
    r.exact = true;
    pawl_code code = pawl_plan_make(&r, &plan, &e);
    if (code == PAWL_UNSUPPORTED) return; /* built without a solver */
    assert_int_equal(code, PAWL_OK);
    if (strstr(pawl_plan_warnings(plan), "micro-batches do not fill") == NULL)
        fail_msg("warnings: %s", pawl_plan_warnings(plan));
    assert_false(plan->summary.exact);
    pawl_plan_free(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_policy_plans_pipelines_that_are_not_full),
        cmocka_unit_test(what_else_a_plan_may_have_goes_with_it),
        cmocka_unit_test(one_pipeline_more_takes_its_share_of_the_batch),
        cmocka_unit_test(a_total_of_full_pipelines_changes_nothing),
        cmocka_unit_test(a_solver_leaves_it_alone_and_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
