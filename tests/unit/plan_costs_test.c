/* A request's costs: chunks that add up to their stage, profiles cut anew, speeds, limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "plan/plan.h"

static struct sim_costs *costs_of(const struct pawl_plan_request *r) {
    struct sim_costs *c = NULL;
    struct pawl_error e = {0};
    if (plan_costs(r, &c, &e) != PAWL_OK) fail_msg("%s", e.text);
    return c;
}

static struct pawl_profile *uniform(uint32_t stages, double time) {
    struct pawl_profile *p = NULL;
    struct pawl_error e = {0};
    if (pawl_profile_uniform(stages, time, time, time, 0.25, &p, &e) != PAWL_OK) fail_msg("%s", e.text);
    return p;
}

static void without_a_profile_everything_costs_1(void **state) {
    (void)state;
    struct pawl_plan_request r = {.pipelines = 2, .stages = 3, .microbatches = 4, .policy = PAWL_POLICY_1F1B};
    struct sim_costs *c = costs_of(&r);
    assert_int_equal(c->chunks, 3);
    assert_null(c->slow);
    assert_null(c->limit);
    for (uint32_t i = 0; i < 3; i++) {
        const struct sim_chunk want = {.forward = SIM_TICKS,
                                       .input_grad = SIM_TICKS,
                                       .weight_grad = SIM_TICKS,
                                       .full = 1,
                                       .kept = 1,
                                       .after_input = 1};
        assert_memory_equal(&c->chunk[i], &want, sizeof want);
    }
    plan_costs_free(c);
}

static void chunks_add_up_to_their_stage(void **state) {
    (void)state;
    struct pawl_profile *p = uniform(2, 1e-6 * 10);
    p->stage[1].forward = 1e-6 * 20;
    for (int i = 0; i < 2; i++) p->stage[i].activation_bytes = 100, p->stage[i].state_bytes = 1000;
    struct pawl_plan_request r = {.pipelines = 1,
                                  .stages = 2,
                                  .microbatches = 4,
                                  .profile = p,
                                  .policy = PAWL_POLICY_INTERLEAVED,
                                  .chunks_per_stage = 3};
    struct sim_costs *c = costs_of(&r);
    assert_int_equal(c->chunks, 6);
    uint64_t forward[2] = {0}, full[2] = {0}, state_bytes[2] = {0};
    for (uint32_t i = 0; i < 6; i++) {
        forward[i % 2] += c->chunk[i].forward;
        full[i % 2] += c->chunk[i].full;
        state_bytes[i % 2] += c->chunk[i].state;
        assert_int_equal(c->chunk[i].send_forward, i < 5 ? 250000 : 0);
        assert_int_equal(c->chunk[i].send_backward, i > 0 ? 250000 : 0);
    }
    assert_int_equal(forward[0], 10);
    assert_int_equal(forward[1], 20);
    assert_int_equal(full[0], 100);
    assert_int_equal(state_bytes[1], 1000);
    plan_costs_free(c);
    r.policy = PAWL_POLICY_ZB_V; /* chunks 0 1 2 3 lie at stages 0 1 1 0 */
    c = costs_of(&r);
    assert_int_equal(c->chunk[0].forward + c->chunk[3].forward, 10);
    assert_int_equal(c->chunk[1].forward + c->chunk[2].forward, 20);
    plan_costs_free(c);
    pawl_profile_free(p);
}

static void a_profile_cut_anew_keeps_its_sums(void **state) {
    (void)state;
    struct pawl_profile *p = uniform(6, 1);
    p->stage[5].forward = 7;
    for (uint32_t stages = 1; stages <= 12; stages++) {
        struct pawl_plan_request r = {
            .pipelines = 1, .stages = stages, .microbatches = 1, .profile = p, .policy = PAWL_POLICY_1F1B};
        struct sim_costs *c = costs_of(&r);
        uint64_t forward = 0;
        for (uint32_t i = 0; i < stages; i++) forward += c->chunk[i].forward;
        if (forward + stages < 12 * SIM_TICKS || forward > 12 * SIM_TICKS + stages)
            fail_msg("%u stages: %lu ticks", stages, (unsigned long)forward);
        assert_true(c->chunk[stages - 1].forward >= c->chunk[0].forward);
        assert_int_equal(c->chunk[stages - 1].send_forward, 0);
        plan_costs_free(c);
    }
    pawl_profile_free(p);
}

static void limits_are_whole_micro_batches_of_the_stage(void **state) {
    (void)state;
    struct pawl_profile *p = uniform(2, 1);
    p->stage[0].activation_bytes = 100;
    p->stage[1].activation_bytes = 30;
    double limits[4] = {2.5, 2.5, 0, 1};
    struct pawl_plan_request r = {.pipelines = 2,
                                  .stages = 2,
                                  .microbatches = 4,
                                  .profile = p,
                                  .policy = PAWL_POLICY_RECYCLE,
                                  .worker_memory = limits};
    struct sim_costs *c = costs_of(&r);
    assert_int_equal(c->limit[0], 250);
    assert_int_equal(c->limit[1], 75);
    assert_true(c->limit[2] == UINT64_MAX);
    assert_int_equal(c->limit[3], 30);
    plan_costs_free(c);
    r.profile = NULL;
    c = costs_of(&r);
    assert_int_equal(c->limit[0], 2); /* counted: half a micro-batch holds none */
    plan_costs_free(c);
    pawl_profile_free(p);
}

static void what_can_be_dropped_is_all_but_the_input(void **state) {
    (void)state;
    struct pawl_profile *p = uniform(2, 1);
    for (int i = 0; i < 2; i++) {
        p->stage[i].activation_bytes = 1100;
        p->stage[i].weight_grad_bytes = 1000;
        p->stage[i].input_bytes = 100;
    }
    p->host_bps = 2000;
    p->unit_s = 0.5;
    struct pawl_plan_request r = {
        .pipelines = 1, .stages = 2, .microbatches = 1, .profile = p, .policy = PAWL_POLICY_RECYCLE};
    struct sim_costs *c = costs_of(&r);
    assert_int_equal(c->chunk[0].kept, 1100);
    assert_int_equal(c->chunk[0].after_input, 1000);
    plan_costs_free(c);
    r.recompute = true;
    c = costs_of(&r);
    assert_int_equal(c->chunk[0].kept, 100);
    assert_int_equal(c->chunk[0].offload, 0);
    plan_costs_free(c);
    r.recompute = false;
    r.offload = true;
    c = costs_of(&r);
    assert_int_equal(c->chunk[0].kept, 100);
    assert_int_equal(c->chunk[0].offload, SIM_TICKS); /* 1000 bytes in half a second, which is the unit */
    assert_int_equal(c->chunk[0].load, SIM_TICKS);
    plan_costs_free(c);
    pawl_profile_free(p);
}

static void slow_workers_and_small_devices_are_those_that_are_named(void **state) {
    (void)state;
    struct pawl_profile *p = uniform(2, 1);
    struct pawl_worker_cost differ[] = {{1, 0, 2.5, 0}, {0, 1, 0, 700}, {9, 9, 3, 3}};
    for (int i = 0; i < 2; i++) p->stage[i].activation_bytes = 10, p->stage[i].state_bytes = 500;
    p->memory_bytes = 1000;
    p->worker = differ;
    p->worker_count = 3;
    struct pawl_plan_request r = {
        .pipelines = 2, .stages = 2, .microbatches = 1, .profile = p, .policy = PAWL_POLICY_RECYCLE};
    struct sim_costs *c = costs_of(&r);
    const uint64_t want[] = {500, 200, 500, 500};
    for (int w = 0; w < 4; w++) {
        assert_int_equal(c->limit[w], want[w]);
        assert_true(c->slow[w] == (w == 2 ? 2.5 : 1));
    }
    plan_costs_free(c);
    p->worker = NULL;
    p->worker_count = 0;
    pawl_profile_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_profile_everything_costs_1),
        cmocka_unit_test(chunks_add_up_to_their_stage),
        cmocka_unit_test(a_profile_cut_anew_keeps_its_sums),
        cmocka_unit_test(limits_are_whole_micro_batches_of_the_stage),
        cmocka_unit_test(what_can_be_dropped_is_all_but_the_input),
        cmocka_unit_test(slow_workers_and_small_devices_are_those_that_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
