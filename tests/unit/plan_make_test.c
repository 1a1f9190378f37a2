/* Requests: what is refused and how, what a plan says of itself, warnings, limits, sharing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <math.h>

#include "ir/ir.h"
#include "kit/near.h"
#include "plan/plan.h"

static struct pawl_plan_request small(enum pawl_policy policy) {
    return (struct pawl_plan_request){.pipelines = 3, .stages = 4, .microbatches = 6, .policy = policy};
}

static struct pawl_plan *made(const struct pawl_plan_request *r) {
    struct pawl_plan *plan = NULL;
    struct pawl_error e = {0};
    if (pawl_plan_make(r, &plan, &e) != PAWL_OK) fail_msg("%s", e.text);
    return plan;
}

static void refused(struct pawl_plan_request r, pawl_code wanted, const char *text) {
    struct pawl_plan *plan = NULL;
    struct pawl_error e = {0};
    pawl_code code = pawl_plan_make(&r, &plan, &e);
    if (code != wanted) fail_msg("%s (%s), wanted %s", pawl_code_name(code), e.text, pawl_code_name(wanted));
    if (strstr(e.text, text) == NULL) fail_msg("\"%s\" does not say \"%s\"", e.text, text);
}

static void impossible_sizes_are_refused(void **state) {
    (void)state;
    struct pawl_plan_request r = small(PAWL_POLICY_PAWL);
    r.pipelines = 0;
    refused(r, PAWL_ARGUMENT, "pipelines: 0: give 1 to 4096");
    r.pipelines = 4097;
    refused(r, PAWL_ARGUMENT, "pipelines: 4097");
    r = small(PAWL_POLICY_PAWL);
    r.stages = 1025;
    refused(r, PAWL_ARGUMENT, "stages: 1025: give 1 to 1024");
    r = small(PAWL_POLICY_PAWL);
    r.microbatches = 0;
    refused(r, PAWL_ARGUMENT, "microbatches: 0");
    r = small(PAWL_POLICY_PAWL);
    r.pipelines = 4096, r.stages = 1024;
    refused(r, PAWL_ARGUMENT, "are 4194304 workers: at most 65536");
    r.pipelines = 64, r.microbatches = 16384;
    refused(r, PAWL_ARGUMENT, "too many");
    r = small(PAWL_POLICY_INTERLEAVED);
    r.chunks_per_stage = 65;
    refused(r, PAWL_ARGUMENT, "chunks_per_stage: 65");
    r = small((enum pawl_policy)99);
    refused(r, PAWL_ARGUMENT, "policy: 99");
}

static void a_total_that_full_pipelines_do_not_hold_is_refused(void **state) {
    (void)state;
    struct pawl_plan_request r = small(PAWL_POLICY_PAWL);
    r.total_microbatches = 19;
    refused(r, PAWL_ARGUMENT, "total_microbatches: 19: 3 pipelines of 6 micro-batches have 18 at most");
    r.total_microbatches = 18;
    pawl_plan_free(made(&r));
}

static void the_dead_are_named_when_they_cannot_be(void **state) {
    (void)state;
    struct pawl_plan_request r = small(PAWL_POLICY_RECYCLE);
    struct pawl_worker_at dead[] = {{0, 2}, {3, 1}, {1, 2}, {2, 2}};
    r.dead = dead;
    r.dead_count = 2;
    refused(r, PAWL_ARGUMENT, "there is no worker 3:1 among 3 pipelines of 4 stages");
    dead[1] = (struct pawl_worker_at){0, 2};
    refused(r, PAWL_ARGUMENT, "worker 0:2 is named twice");
    dead[1] = (struct pawl_worker_at){0, 4};
    refused(r, PAWL_ARGUMENT, "no worker 0:4");
    dead[1] = (struct pawl_worker_at){0, 0};
    r.dead_count = 4;
    refused(r, PAWL_STAGE_LOST, "stage 2 has no live worker");
    r.dead_count = 0;
    r.failures = 9;
    refused(r, PAWL_STAGE_LOST, "9 failures are more than the 8");
    r.pipelines = 1;
    r.failures = 1;
    refused(r, PAWL_STAGE_LOST, "1 failures are more than the 0");
}

static void numbers_out_of_range_are_refused(void **state) {
    (void)state;
    struct pawl_plan_request r = small(PAWL_POLICY_RECYCLE);
    double limits[12];
    r.memory = NAN;
    refused(r, PAWL_ARGUMENT, "memory: nan");
    r.memory = -1;
    refused(r, PAWL_ARGUMENT, "memory: -1");
    r.memory = 0.5;
    refused(r, PAWL_ARGUMENT, "memory: 0.5 of a micro-batch: a worker must have room for at least 1");
    r.memory_in_bytes = true;
    refused(r, PAWL_ARGUMENT, "memory: 0.5 of a byte");
    r.memory = 5;
    r.memory_in_bytes = true;
    refused(r, PAWL_ARGUMENT, "memory in bytes needs a profile");
    r = small(PAWL_POLICY_RECYCLE);
    for (int i = 0; i < 12; i++) limits[i] = 5;
    limits[6] = INFINITY;
    r.worker_memory = limits;
    refused(r, PAWL_ARGUMENT, "memory of worker 1:2: inf");
    limits[6] = 0.99;
    refused(r, PAWL_ARGUMENT, "memory of worker 1:2: 0.99 of a micro-batch");
    r = small(PAWL_POLICY_RECYCLE);
    r.min_gain = 1.5;
    refused(r, PAWL_ARGUMENT, "min_gain: 1.5");
    r = small(PAWL_POLICY_RECYCLE);
    r.time_limit_s = -1;
    refused(r, PAWL_ARGUMENT, "time_limit_s: -1");
    r = small(PAWL_POLICY_RECYCLE);
    r.search_s = NAN;
    refused(r, PAWL_ARGUMENT, "search_s: nan");
    r = small(PAWL_POLICY_1F1B);
    r.exact = true;
    refused(r, PAWL_ARGUMENT, "exact: policy 1f1b has an order of its own");
    r.policy = PAWL_POLICY_RECYCLE;
    r.engine = "gurobi";
    refused(r, PAWL_ARGUMENT, "engine: \"gurobi\"");
}

static void a_profile_that_is_wrong_is_refused(void **state) {
    (void)state;
    struct pawl_profile *p = NULL;
    struct pawl_error e;
    assert_int_equal(pawl_profile_uniform(4, 1, 1, 1, 0, &p, &e), PAWL_OK);
    struct pawl_plan_request r = small(PAWL_POLICY_RECYCLE);
    r.profile = p;
    p->stage[2].input_grad = NAN;
    refused(r, PAWL_ARGUMENT, "stage 2: input_grad is nan");
    p->stage[2].input_grad = 1e12;
    p->stage[1].forward = 1e12;
    refused(r, PAWL_ARGUMENT,
            "costs: forward of chunk 1 is 1e+12: the times of all micro-batches together must stay below "
            "1.15292e+12, in the unit of the costs");
    pawl_profile_free(p);
}

static void every_policy_has_a_name_that_reads_back(void **state) {
    (void)state;
    enum pawl_policy got;
    struct pawl_error e = {0};
    for (int i = 0; i < PAWL_POLICY_COUNT; i++) {
        assert_int_equal(pawl_policy_parse(pawl_policy_name((enum pawl_policy)i), &got, &e), PAWL_OK);
        assert_int_equal(got, i);
    }
    assert_int_equal(pawl_policy_parse("zb-h3", &got, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "\"zb-h3\": there are gpipe"));
    for (int i = 0; i < PAWL_PLAN_FORMAT_COUNT; i++)
        assert_string_not_equal(pawl_plan_format_name((enum pawl_plan_format)i), "?");
}

static void a_plan_says_what_its_workers_do(void **state) {
    (void)state;
    struct pawl_worker_at dead = {1, 2};
    for (int policy = 0; policy < PAWL_POLICY_COUNT; policy++) {
        struct pawl_plan_request r = small((enum pawl_policy)policy);
        r.microbatches = 8; /* interleaved wants a multiple of the stages */
        r.dead = &dead;
        r.dead_count = 1;
        struct pawl_plan *plan = made(&r);
        const struct pawl_plan_summary *s = pawl_plan_summary(plan);
        struct pawl_plan_worker w;
        struct pawl_error e;
        uint64_t count = 0, forwards = 0;
        uint32_t alive = 0;
        for (uint32_t p = 0; p < 3; p++)
            for (uint32_t stage = 0; stage < 4; stage++) {
                assert_int_equal(pawl_plan_worker(plan, p, stage, &w, &e), PAWL_OK);
                count += w.instruction_count;
                alive += w.alive;
                assert_true(w.alive || w.instruction_count == 0);
                double busy = 0;
                for (uint32_t i = 0; i < w.instruction_count; i++) {
                    forwards += w.instructions[i].op == 'F';
                    if (w.instructions[i].op != 'R') busy += w.instructions[i].end - w.instructions[i].start;
                    if (i > 0) assert_true(w.instructions[i].start >= w.instructions[i - 1].end - 1e-9);
                }
                assert_double(busy, w.busy, 1e-6);
                assert_true(!w.alive || w.peak_memory >= 1);
            }
        assert_int_equal(count, s->instructions);
        assert_int_equal(forwards, 3u * s->chunks * 8);
        assert_int_equal(alive, 11);
        assert_int_equal(s->alive, 11);
        assert_true(s->period >= s->lower_bound);
        assert_true(s->period <= s->makespan);
        assert_double(s->gap, (s->period - s->lower_bound) / s->lower_bound, 1e-12);
        assert_true(s->planning_ms >= s->check_ms && s->check_ms > 0);
        assert_true(s->fault_free > 0);
        assert_int_equal(pawl_plan_worker(plan, 3, 0, &w, &e), PAWL_ARGUMENT);
        assert_int_equal(pawl_plan_worker(plan, 0, 4, &w, &e), PAWL_ARGUMENT);
        pawl_plan_free(plan);
    }
}

static void the_same_request_gives_the_same_plan(void **state) {
    (void)state;
    struct pawl_worker_at dead = {1, 2};
    struct pawl_plan_request r = small(PAWL_POLICY_PAWL);
    r.dead = &dead;
    r.dead_count = 1;
    r.memory = 5;
    struct pawl_plan *a = made(&r), *b = made(&r);
    struct bytes x = {0}, y = {0};
    ir_encode(a->ir, &x);
    ir_encode(b->ir, &y);
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    bytes_close(&x);
    bytes_close(&y);
    pawl_plan_free(a);
    pawl_plan_free(b);
}

static void limits_hold_and_are_counted_in_micro_batches(void **state) {
    (void)state;
    static const enum pawl_policy policies[] = {PAWL_POLICY_DECOUPLED, PAWL_POLICY_RECYCLE, PAWL_POLICY_PAWL};
    struct pawl_worker_at dead = {1, 2};
    for (size_t k = 0; k < 3; k++)
        for (double limit = 4; limit <= 7; limit++) {
            struct pawl_plan_request r = small(policies[k]);
            r.dead = &dead;
            r.dead_count = 1;
            r.memory = limit;
            struct pawl_plan *plan = made(&r);
            assert_string_equal(pawl_plan_summary(plan)->memory_unit, "microbatches");
            for (uint32_t i = 0; i < 12; i++) {
                struct pawl_plan_worker w;
                assert_int_equal(pawl_plan_worker(plan, i / 4, i % 4, &w, NULL), PAWL_OK);
                if (w.peak_memory > limit) fail_msg("worker %u stores %g of %g", i, w.peak_memory, limit);
            }
            pawl_plan_free(plan);
        }
}

static void a_fixed_order_that_does_not_fit_is_refused_with_the_policy(void **state) {
    (void)state;
    struct pawl_plan_request r = small(PAWL_POLICY_GPIPE);
    r.memory = 4;
    refused(r, PAWL_PLAN, "policy gpipe, whose order is its own: ");
    r.policy = PAWL_POLICY_1F1B;
    pawl_plan_free(made(&r));
}

static void memory_of_chunks_is_shown_in_micro_batches_of_a_stage(void **state) {
    (void)state;
    struct pawl_plan_request r = small(PAWL_POLICY_ZB_V);
    r.pipelines = 1;
    r.microbatches = 12;
    struct pawl_plan *plan = made(&r);
    assert_int_equal(pawl_plan_summary(plan)->chunks, 8);
    struct pawl_plan_worker w;
    for (uint32_t s = 0; s < 4; s++) {
        assert_int_equal(pawl_plan_worker(plan, 0, s, &w, NULL), PAWL_OK);
        if (w.peak_memory > 4) fail_msg("stage %u stores %g micro-batches, zb-v at most 4", s, w.peak_memory);
    }
    pawl_plan_free(plan);
}

static void bytes_come_from_the_device_beside_the_state(void **state) {
    (void)state;
    struct pawl_profile *p = NULL;
    struct pawl_error e;
    assert_int_equal(pawl_profile_uniform(4, 1, 1, 1, 0, &p, &e), PAWL_OK);
    for (uint32_t i = 0; i < 4; i++) {
        p->stage[i].state_bytes = 1000;
        p->stage[i].activation_bytes = 100;
    }
    p->memory_bytes = 1400;
    struct pawl_plan_request r = small(PAWL_POLICY_RECYCLE);
    r.profile = p;
    struct pawl_plan *plan = made(&r);
    assert_string_equal(pawl_plan_summary(plan)->memory_unit, "bytes");
    struct pawl_plan_worker w;
    assert_int_equal(pawl_plan_worker(plan, 0, 0, &w, NULL), PAWL_OK);
    assert_true(w.peak_memory <= 400 && w.peak_memory >= 100);
    pawl_plan_free(plan);
    p->memory_bytes = 1000;
    refused(r, PAWL_PLAN, "worker 0:0: its weights and optimizer take 1000 bytes of a memory of 1000");
    p->memory_bytes = 1099;
    refused(r, PAWL_PLAN, "worker 0:0: memory for micro-batches is 99 bytes, one needs 100");
    r.memory = 2;
    pawl_plan_free(made(&r)); /* what is asked for counts instead of the device */
    pawl_profile_free(p);
}

static void a_slow_worker_gets_less_from_pawl(void **state) {
    (void)state;
    struct pawl_profile *p = NULL;
    struct pawl_error e;
    assert_int_equal(pawl_profile_uniform(2, 1, 1, 1, 0, &p, &e), PAWL_OK);
    struct pawl_worker_cost slow = {.pipeline = 0, .stage = 1, .slow = 2};
    p->worker = &slow;
    p->worker_count = 1;
    struct pawl_plan_request r = {.pipelines = 4, .stages = 2, .microbatches = 14, .profile = p};
    r.policy = PAWL_POLICY_RECYCLE;
    struct pawl_plan *recycle = made(&r);
    r.policy = PAWL_POLICY_PAWL;
    r.no_move = true;
    struct pawl_plan *pawl = made(&r);
    assert_double(pawl_plan_summary(recycle)->period, 14 * 6, 0);
    assert_double(pawl_plan_summary(pawl)->period, 16 * 3, 0); /* 56 over a speed of 3.5 */
    pawl_plan_free(recycle);
    pawl_plan_free(pawl);
    p->worker = NULL;
    p->worker_count = 0;
    pawl_profile_free(p);
}

static void warnings_say_what_was_done(void **state) {
    (void)state;
    struct pawl_profile *p = NULL;
    struct pawl_error e;
    assert_int_equal(pawl_profile_uniform(8, 1, 1, 1, 0, &p, &e), PAWL_OK);
    p->memory_bytes = 1000;
    struct pawl_worker_cost far = {.pipeline = 7, .stage = 7, .slow = 2};
    p->worker = &far;
    p->worker_count = 1;
    struct pawl_plan_request r = small(PAWL_POLICY_RECYCLE);
    struct pawl_plan *plan = made(&r);
    assert_string_equal(pawl_plan_warnings(plan), "");
    pawl_plan_free(plan);
    r.profile = p;
    r.recompute = r.offload = true;
    plan = made(&r);
    const char *text = pawl_plan_warnings(plan);
    assert_non_null(strstr(text, "profile uniform has 8 stages, the plan 4"));
    assert_non_null(strstr(text, "worker 7:7 is not in the plan"));
    assert_non_null(strstr(text, "lacks activation_bytes: memory is not limited"));
    assert_non_null(strstr(text, "recompute is not used"));
    assert_non_null(strstr(text, "offload is not used"));
    assert_double(pawl_plan_summary(plan)->period, 2 * 19, 0); /* two stages in each */
    pawl_plan_free(plan);
    p->worker = NULL;
    p->worker_count = 0;
    pawl_profile_free(p);
}

static void failures_that_are_counted_are_spread_and_not_moved(void **state) {
    (void)state;
    struct pawl_plan_request r = small(PAWL_POLICY_RECYCLE);
    r.failures = 4;
    struct pawl_plan *plan = made(&r);
    assert_int_equal(pawl_plan_summary(plan)->alive, 8);
    assert_int_equal(pawl_plan_summary(plan)->move_count, 0);
    assert_double(pawl_plan_summary(plan)->period, 27, 0);
    pawl_plan_free(plan);
}

static void a_move_is_shown_with_what_it_copies(void **state) {
    (void)state;
    struct pawl_profile *p = NULL;
    struct pawl_error e;
    assert_int_equal(pawl_profile_uniform(4, 1, 1, 1, 0, &p, &e), PAWL_OK);
    for (uint32_t i = 0; i < 4; i++) p->stage[i].state_bytes = 100 + i;
    const struct pawl_worker_at dead[] = {{0, 1}, {2, 1}};
    struct pawl_plan_request r = small(PAWL_POLICY_RECYCLE);
    r.profile = p;
    r.dead = dead;
    r.dead_count = 2;
    struct pawl_plan *plan = made(&r);
    assert_int_equal(pawl_plan_summary(plan)->move_count, 1);
    const struct pawl_plan_move *move = pawl_plan_moves(plan);
    assert_int_equal(move->to.stage, 1);
    assert_int_not_equal(move->from.stage, 1);
    assert_int_equal(move->bytes, 101);
    pawl_plan_free(plan);
    pawl_profile_free(p);
}

static struct pawl_plan_summary of_model(const char *name, struct pawl_plan_request r) {
    struct pawl_profile *p = NULL;
    struct pawl_error e;
    assert_int_equal(pawl_profile_builtin(name, r.stages, &p, &e), PAWL_OK);
    r.profile = p;
    struct pawl_plan *plan = made(&r);
    struct pawl_plan_summary s = *pawl_plan_summary(plan);
    pawl_plan_free(plan);
    pawl_profile_free(p);
    return s;
}

static void what_may_be_used_where_memory_is_short_never_makes_a_plan_longer(void **state) {
    (void)state;
    struct pawl_worker_at dead = {1, 1};
    for (double memory = 2; memory <= 5; memory++) {
        struct pawl_plan_request r = {.pipelines = 4, .stages = 4, .microbatches = 12, .memory = memory};
        r.policy = PAWL_POLICY_RECYCLE;
        r.dead = &dead;
        r.dead_count = 1;
        struct pawl_plan_summary without = of_model("gpt3-6.7b", r);
        r.recompute = r.offload = true;
        struct pawl_plan_summary with = of_model("gpt3-6.7b", r);
        if (with.period > without.period)
            fail_msg("memory %g: %g with recomputing and offloading, %g without", memory, with.period,
                     without.period);
        assert_int_equal(without.recomputed + without.offloaded, 0);
    }
}

/* The last stage also computes the head: to leave it empty is worst, until others help it. */
static void a_move_is_not_made_where_helpers_do_as_well(void **state) {
    (void)state;
    struct pawl_worker_at dead = {1, 3};
    struct pawl_plan_request r = {
        .pipelines = 4, .stages = 8, .microbatches = 64, .policy = PAWL_POLICY_PAWL};
    r.dead = &dead;
    r.dead_count = 1;
    struct pawl_plan_summary s = of_model("gpt3-6.7b", r);
    assert_int_equal(s.move_count, 0);
    assert_true(s.shared_count > 0);
    r.no_move = true;
    struct pawl_plan_summary alone = of_model("gpt3-6.7b", r);
    if (s.period > 0.98 * alone.period) fail_msg("%g with helpers, %g without", s.period, alone.period);
}

static void a_move_that_pays_is_made_by_pawl_too(void **state) {
    (void)state;
    const struct pawl_worker_at dead[] = {{0, 2}, {1, 2}};
    struct pawl_plan_request r = small(PAWL_POLICY_PAWL);
    r.dead = dead;
    r.dead_count = 2;
    r.memory = 9;
    struct pawl_plan *plan = made(&r);
    assert_int_equal(pawl_plan_summary(plan)->move_count, 1);
    assert_int_equal(pawl_plan_moves(plan)->to.stage, 2);
    if (pawl_plan_summary(plan)->period > 27) fail_msg("period %g", pawl_plan_summary(plan)->period);
    pawl_plan_free(plan);
}

/* Weights of 1000, micro-batches of 100, devices of 2500: a helper has room for 500 less 1000 of them. */
static void the_state_that_a_helper_copies_takes_from_its_memory(void **state) {
    (void)state;
    struct pawl_profile *p = NULL;
    struct pawl_error e;
    assert_int_equal(pawl_profile_uniform(4, 1, 1, 1, 0, &p, &e), PAWL_OK);
    for (uint32_t i = 0; i < 4; i++) p->stage[i].state_bytes = 1000, p->stage[i].activation_bytes = 100;
    const struct pawl_worker_at dead[] = {{1, 1}, {2, 1}, {3, 1}};
    struct pawl_plan_request r = {
        .pipelines = 4, .stages = 4, .microbatches = 32, .policy = PAWL_POLICY_PAWL};
    r.profile = p;
    r.dead = dead;
    uint32_t shared = 0;
    for (uint32_t i = 0; i < 30; i++) {
        p->memory_bytes = 2100 + 100 * (i / 3);
        r.dead_count = 1 + i % 3; /* two and three of a stage: moves are made, too */
        struct pawl_plan *plan = made(&r);
        double stored[16];
        for (uint32_t w = 0; w < 16; w++) {
            struct pawl_plan_worker at;
            assert_int_equal(pawl_plan_worker(plan, w / 4, w % 4, &at, NULL), PAWL_OK);
            stored[w] = at.alive ? 1000 + at.peak_memory : 0;
        }
        const struct pawl_plan_shared *s = pawl_plan_shares(plan);
        for (uint32_t k = 0; k < pawl_plan_summary(plan)->shared_count; k++, shared++)
            stored[s[k].worker.pipeline * 4 + s[k].worker.stage] += (double)s[k].bytes;
        for (uint32_t w = 0; w < 16; w++)
            if (stored[w] > (double)p->memory_bytes)
                fail_msg("worker %u stores %g of %lu", w, stored[w], (unsigned long)p->memory_bytes);
        pawl_plan_free(plan);
    }
    assert_true(shared > 0);
    pawl_profile_free(p);
}

static double period_of(struct pawl_plan_request r, enum pawl_policy policy) {
    r.policy = policy;
    struct pawl_plan *plan = made(&r);
    double period = pawl_plan_summary(plan)->period;
    pawl_plan_free(plan);
    return period;
}

/* Uneven stages with sums at their ends, tight memory: places for failures, helpers and orders that look good
 * by rule are not. */
static void no_policy_is_longer_than_the_one_before_it(void **state) {
    (void)state;
    static const char *const models[] = {"gpt3-medium", "gpt3-6.7b", "megatron-39.1b"};
    for (uint32_t i = 0; i < 48; i++) {
        struct pawl_profile *profile = NULL;
        struct pawl_plan_request r = {
            .pipelines = 2 + i % 3, .stages = 2 + 2 * (i % 4), .microbatches = 8 + 8 * (i % 3)};
        struct pawl_worker_at dead[] = {{0, r.stages - 1}, {1, r.stages - 1}};
        if (i % 4 == 3)
            r.memory = 3 + i % 5; /* unit costs */
        else
            assert_int_equal(pawl_profile_builtin(models[i / 16], r.stages, &profile, NULL), PAWL_OK);
        r.profile = profile;
        r.failures = 1 + i % 2;
        if (i % 5 == 4) {
            r.failures = 0;
            r.dead = dead;
            r.dead_count = r.pipelines > 2 ? 2 : 1;
        }
        double before = period_of(r, PAWL_POLICY_ADAPTIVE);
        for (int policy = PAWL_POLICY_DECOUPLED; policy <= PAWL_POLICY_PAWL; policy++) {
            double period = period_of(r, (enum pawl_policy)policy);
            if (period > before)
                fail_msg("case %u, %u x %u x %u: %s %.6f, the policy before it %.6f", i, r.pipelines,
                         r.stages, r.microbatches, pawl_policy_name((enum pawl_policy)policy), period,
                         before);
            before = period;
        }
        pawl_profile_free(profile);
    }
}

static void without_failures_is_what_the_policy_can_do_with_nobody_dead(void **state) {
    (void)state;
    for (int policy = PAWL_POLICY_GPIPE; policy < PAWL_POLICY_COUNT; policy++) {
        struct pawl_profile *profile = NULL;
        struct pawl_plan_request r = small((enum pawl_policy)policy);
        assert_int_equal(pawl_profile_uniform(4, 0.5, 1.2, 1, 2, &profile, NULL), PAWL_OK);
        r.profile = profile;
        struct pawl_plan *plan = made(&r);
        double nobody_dead = pawl_plan_summary(plan)->period;
        assert_double(pawl_plan_summary(plan)->fault_free, nobody_dead, 0);
        pawl_plan_free(plan);
        r.failures = 1;
        plan = made(&r);
        double said = pawl_plan_summary(plan)->fault_free;
        if (said > nobody_dead * (1 + 1e-9) || said <= 0)
            fail_msg("%s: %.6f without failures, but with nobody dead %.6f",
                     pawl_policy_name((enum pawl_policy)policy), said, nobody_dead);
        pawl_plan_free(plan);
        pawl_profile_free(profile);
    }
}

static void a_solver_proves_a_plan_only_where_it_saw_all_that_may_be_done(void **state) {
    (void)state;
    struct pawl_worker_at dead = {1, 2};
    struct pawl_plan_request r = small(PAWL_POLICY_RECYCLE);
    r.dead = &dead;
    r.dead_count = 1;
    r.exact = true;
    r.time_limit_s = 5;
    struct pawl_plan *plan = NULL;
    struct pawl_error e = {0};
    pawl_code code = pawl_plan_make(&r, &plan, &e);
    if (code == PAWL_UNSUPPORTED) skip();
    if (code != PAWL_OK) fail_msg("%s", e.text);
    assert_true(pawl_plan_summary(plan)->proven);
    pawl_plan_free(plan);
    struct pawl_plan_request alone = {
        .pipelines = 1, .stages = 4, .microbatches = 8, .policy = PAWL_POLICY_PAWL};
    alone.exact = true;
    alone.memory = 3;
    plan = made(&alone); /* nobody helps: proven among plans of which that is true */
    assert_true(pawl_plan_summary(plan)->proven);
    assert_double(pawl_plan_summary(plan)->lower_bound, pawl_plan_summary(plan)->period, 0);
    assert_non_null(strstr(pawl_plan_warnings(plan), "work of its own stage"));
    pawl_plan_free(plan);
    r.policy = PAWL_POLICY_PAWL; /* with helpers, whose number no solver looks at */
    plan = made(&r);
    const struct pawl_plan_summary *s = pawl_plan_summary(plan);
    assert_true(s->shared_count > 0 && s->period > s->lower_bound);
    assert_double(s->exact_bound, s->period, 0);
    assert_false(s->proven);
    pawl_plan_free(plan);
}

static void what_is_too_large_to_prove_is_planned_all_the_same(void **state) {
    (void)state;
    struct pawl_plan_request r = {
        .pipelines = 8, .stages = 8, .microbatches = 32, .policy = PAWL_POLICY_RECYCLE};
    struct pawl_error e = {0};
    r.memory = 8;
    r.failures = 1;
    r.exact = true;
    r.time_limit_s = 1;
    struct pawl_plan *plan = NULL;
    pawl_code code = pawl_plan_make(&r, &plan, &e);
    if (code == PAWL_UNSUPPORTED) skip(); /* no solver built in */
    if (code != PAWL_OK) fail_msg("%s", e.text);
    const char *warnings = pawl_plan_warnings(plan);
    if (strstr(warnings, "6144 tasks are too many to prove anything") == NULL) fail_msg("\"%s\"", warnings);
    assert_false(pawl_plan_summary(plan)->exact);
    pawl_plan_free(plan);
}

static struct pawl_plan *searched(uint32_t pipelines, double search_s) {
    struct pawl_worker_at dead = {1, 1};
    struct pawl_plan_request r = {.pipelines = pipelines,
                                  .stages = 3,
                                  .microbatches = 8,
                                  .policy = PAWL_POLICY_PAWL,
                                  .dead = &dead,
                                  .dead_count = 1,
                                  .search_s = search_s};
    return made(&r);
}

/* The one helper that pays by the rules reaches its own bound, 30, at once. */
static void with_time_other_numbers_of_helpers_are_searched(void **state) {
    (void)state;
    struct pawl_plan *quick = searched(4, -1), *slow = searched(4, 2);
    assert_double(pawl_plan_summary(quick)->period, 30, 1e-9);
    assert_int_equal(pawl_plan_summary(quick)->shared_count, 1);
    assert_double(pawl_plan_summary(slow)->period, 28, 1e-9);
    assert_int_equal(pawl_plan_summary(slow)->shared_count, 2);
    assert_string_equal(pawl_plan_summary(slow)->engine, "list+search");
    pawl_plan_free(quick);
    pawl_plan_free(slow);
}

/* Else this takes ten minutes. */
static void the_search_ends_when_no_number_of_helpers_may_be_shorter(void **state) {
    (void)state;
    struct pawl_plan *plan = searched(3, 600);
    assert_double(pawl_plan_summary(plan)->period, 28, 1e-9);
    assert_true(pawl_plan_summary(plan)->gap > 0);
    pawl_plan_free(plan);
}

static void what_is_stopped_before_it_begins_is_not_searched(void **state) {
    (void)state;
    bool stop = true;
    struct pawl_worker_at dead = {1, 2};
    struct pawl_plan_request r = small(PAWL_POLICY_PAWL);
    r.dead = &dead, r.dead_count = 1, r.search_s = 600, r.stop = &stop;
    struct pawl_plan *plan = made(&r);
    assert_string_equal(pawl_plan_summary(plan)->engine, "list");
    assert_true(pawl_plan_summary(plan)->gap > 0); /* there was something to search for */
    pawl_plan_free(plan);
}

/* Nothing here takes stages x stages, or tries every number of helpers: with either, minutes. */
static void a_thousand_stages_are_planned_as_well(void **state) {
    (void)state;
    struct pawl_worker_at dead = {3, 500};
    struct pawl_plan_request r = {
        .pipelines = 8, .stages = 1024, .microbatches = 2, .policy = PAWL_POLICY_PAWL, .dead = &dead};
    r.dead_count = 1;
    struct pawl_plan *plan = made(&r);
    assert_in_range((uint64_t)(pawl_plan_summary(plan)->lower_bound + 0.5), 2049, 2056);
    assert_in_range((uint64_t)(pawl_plan_summary(plan)->period + 0.5), 2049, 2070);
    pawl_plan_free(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(a_total_that_full_pipelines_do_not_hold_is_refused),
        cmocka_unit_test(the_dead_are_named_when_they_cannot_be),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(a_profile_that_is_wrong_is_refused),
        cmocka_unit_test(every_policy_has_a_name_that_reads_back),
        cmocka_unit_test(a_plan_says_what_its_workers_do),
        cmocka_unit_test(the_same_request_gives_the_same_plan),
        cmocka_unit_test(limits_hold_and_are_counted_in_micro_batches),
        cmocka_unit_test(a_fixed_order_that_does_not_fit_is_refused_with_the_policy),
        cmocka_unit_test(memory_of_chunks_is_shown_in_micro_batches_of_a_stage),
        cmocka_unit_test(bytes_come_from_the_device_beside_the_state),
        cmocka_unit_test(a_slow_worker_gets_less_from_pawl),
        cmocka_unit_test(warnings_say_what_was_done),
        cmocka_unit_test(failures_that_are_counted_are_spread_and_not_moved),
        cmocka_unit_test(a_move_is_shown_with_what_it_copies),
        cmocka_unit_test(what_may_be_used_where_memory_is_short_never_makes_a_plan_longer),
        cmocka_unit_test(a_move_is_not_made_where_helpers_do_as_well),
        cmocka_unit_test(a_move_that_pays_is_made_by_pawl_too),
        cmocka_unit_test(a_solver_proves_a_plan_only_where_it_saw_all_that_may_be_done),
        cmocka_unit_test(the_state_that_a_helper_copies_takes_from_its_memory),
        cmocka_unit_test(no_policy_is_longer_than_the_one_before_it),
        cmocka_unit_test(without_failures_is_what_the_policy_can_do_with_nobody_dead),
        cmocka_unit_test(what_is_too_large_to_prove_is_planned_all_the_same),
        cmocka_unit_test(with_time_other_numbers_of_helpers_are_searched),
        cmocka_unit_test(the_search_ends_when_no_number_of_helpers_may_be_shorter),
        cmocka_unit_test(what_is_stopped_before_it_begins_is_not_searched),
        cmocka_unit_test(a_thousand_stages_are_planned_as_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
