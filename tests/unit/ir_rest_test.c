/* What is left of a plan when some contributions exist: against rules applied one by one and a naive
 * executor. */
#include "ir_random.h"

#include <stdio.h>

struct rest {
    struct ir_plan *plan;
    uint8_t *done;
    uint32_t *first_missing; /* [total] */
};

static size_t row_bytes(const struct ir_plan *plan) { return (plan->total + 7) / 8; }

/* `share` of 8 contributions are done, 8: all. */
static struct rest random_rest(struct rng_stream *rng, uint64_t share) {
    struct random_shape shape = random_any_shape(rng);
    struct rest r = {.plan = random_plan(rng_next(rng), &shape)};
    r.done = calloc(r.plan->chunks, row_bytes(r.plan));
    r.first_missing = calloc(r.plan->total, sizeof *r.first_missing);
    assert_true(r.done != NULL && r.first_missing != NULL);
    for (uint32_t c = 0; c < r.plan->chunks; c++)
        for (uint32_t m = 0; m < r.plan->total; m++)
            if (rng_below(rng, 8) < share) r.done[c * row_bytes(r.plan) + m / 8] |= (uint8_t)(1u << m % 8);
    ir_first_missing(r.plan, r.done, r.first_missing);
    return r;
}

static void rest_close(struct rest *r) {
    ir_plan_free(r->plan);
    free(r->done);
    free(r->first_missing);
}

static bool done_at(const struct rest *r, uint32_t chunk, uint32_t m) {
    return r->done[chunk * row_bytes(r->plan) + m / 8] >> m % 8 & 1;
}

/* The rules of ir.h, one by one; of a B what is left of it may be its I alone. */
static bool is_kept(const struct rest *r, const struct ir_instruction *in) {
    if (in->op == IR_R || in->op == IR_S) return true;
    uint32_t m = in->home * r->plan->microbatches + in->microbatch, first = r->first_missing[m];
    if (in->op == IR_I || in->op == IR_B) return first <= in->chunk;
    if (in->op == IR_W) return !done_at(r, in->chunk, m);
    return first != IR_NONE;
}

/* The plan with only what is executed in its lists. */
static struct ir_plan *filtered(const struct rest *r) {
    struct ir_plan *plan = plan_copy(r->plan, 0);
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
        struct ir_worker *list = &plan->workers[w];
        uint32_t kept = 0;
        for (uint32_t i = 0; i < list->count; i++)
            if (is_kept(r, &list->instructions[i])) list->instructions[kept++] = list->instructions[i];
        list->count = kept;
    }
    return plan;
}

static void first_missing_is_the_lowest_chunk_that_misses_it(void **state) {
    (void)state;
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    uint32_t first_missing[9];
    assert_int_equal(ir_plan_new(3, 3, 4, &plan, &e), PAWL_OK);
    assert_int_equal(ir_plan_limit(plan, 9, &e), PAWL_OK);
    static const uint8_t done[3][2] = {{0xff, 0x00}, {0x0f, 0x01}, {0x33, 0x01}};
    static const uint32_t want[9] = {IR_NONE, IR_NONE, 2, 2, 1, 1, 1, 1, 0};
    ir_first_missing(plan, &done[0][0], first_missing);
    for (int m = 0; m < 9; m++) assert_int_equal(first_missing[m], want[m]);
    ir_first_missing(plan, NULL, first_missing);
    for (int m = 0; m < 9; m++) assert_int_equal(first_missing[m], 0);
    ir_plan_free(plan);
}

/* Executed naively, what the rules keep never gets stuck, and has what each missing contribution needs. */
static void what_the_rules_keep_is_enough_and_runs(void **state) {
    (void)state;
    struct rng_stream rng = {.state = 77};
    for (int i = 0; i < 400; i++) {
        struct rest r = random_rest(&rng, rng_below(&rng, 9));
        struct ir_plan *plan = filtered(&r);
        if (oracle_makespan(plan) == IR_NONE) fail_msg("draw %d gets stuck", i);
        for (uint32_t c = 0; c < plan->chunks; c++)
            for (uint32_t m = 0; m < plan->total; m++) {
                uint32_t home = m / plan->microbatches, number = m % plan->microbatches, at;
                uint32_t host = oracle_host(r.plan, home, c, number);
                bool fused = oracle_find(&r.plan->workers[host], IR_B, c, home, number, &at) > 0;
                uint32_t kept = oracle_find(&plan->workers[host], fused ? IR_B : IR_W, c, home, number, &at);
                if (!fused) assert_int_equal(kept, !done_at(&r, c, m));
                if (!done_at(&r, c, m) && kept != 1) fail_msg("draw %d: %u of chunk %u has no W", i, m, c);
            }
        ir_plan_free(plan);
        rest_close(&r);
    }
}

/* Of what the worker stores in the whole plan, the micro-batches that are computed at all. */
static uint64_t stored_at_most(const struct rest *r, const struct ir_worker *w) {
    uint64_t peak = 0;
    for (uint32_t done = 0; done <= w->count; done++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < w->count; i++)
            if (w->instructions[i].op == IR_F && is_kept(r, &w->instructions[i]))
                sum += oracle_stored(w, done, w->instructions[i], 5, 2, 3);
        if (sum > peak) peak = sum;
    }
    return peak;
}

static void the_rest_of_a_valid_plan_is_valid_and_stores_what_is_needed(void **state) {
    (void)state;
    struct rng_stream rng = {.state = 78};
    uint32_t smaller = 0;
    for (int i = 0; i < 400; i++) {
        struct rest r = random_rest(&rng, rng_below(&rng, 9));
        struct pawl_error e = {0};
        uint32_t workers = r.plan->pipelines * r.plan->stages;
        uint64_t peak[16], whole[16], full[8], kept[8], input[8], limit[16];
        for (int k = 0; k < 8; k++) full[k] = 5, kept[k] = 2, input[k] = 3;
        struct ir_memory memory = {full, kept, input, NULL};
        assert_int_equal(ir_check(r.plan, &memory, whole, &e), PAWL_OK);
        if (ir_check_rest(r.plan, &memory, r.done, peak, &e) != PAWL_OK) fail_msg("draw %d: %s", i, e.text);
        for (uint32_t w = 0; w < workers; w++) {
            assert_int_equal(peak[w], stored_at_most(&r, &r.plan->workers[w]));
            assert_true(peak[w] <= whole[w]);
            if (peak[w] < whole[w]) smaller++;
        }
        uint64_t all_left[16];
        assert_int_equal(ir_check_rest(r.plan, &memory, NULL, all_left, &e), PAWL_OK);
        assert_memory_equal(all_left, whole, workers * sizeof *whole);
        memory.limit = limit;
        memcpy(limit, peak, sizeof limit);
        assert_int_equal(ir_check_rest(r.plan, &memory, r.done, NULL, &e), PAWL_OK);
        for (uint32_t w = 0; w < workers; w++) {
            if (peak[w] == 0) continue;
            limit[w]--;
            assert_int_equal(ir_check_rest(r.plan, &memory, r.done, NULL, &e), PAWL_PLAN);
            assert_non_null(strstr(e.text, "the memory limit is"));
            limit[w]++;
        }
        rest_close(&r);
    }
    assert_true(smaller > 100);
}

static void the_rest_of_a_plan_that_is_not_valid_is_refused(void **state) {
    (void)state;
    struct rng_stream rng = {.state = 79};
    for (int i = 0; i < 50; i++) {
        struct rest r = random_rest(&rng, 8); /* nothing is left of it at all */
        struct pawl_error e = {0};
        assert_int_equal(ir_check_rest(r.plan, NULL, r.done, NULL, &e), PAWL_OK);
        for (uint32_t w = 0; w < r.plan->pipelines * r.plan->stages; w++) {
            struct ir_worker *list = &r.plan->workers[w];
            if (list->count == 0) continue;
            struct ir_instruction last = list->instructions[--list->count];
            assert_int_equal(ir_check_rest(r.plan, NULL, r.done, NULL, &e), PAWL_PLAN);
            list->instructions[list->count++] = last;
        }
        rest_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_missing_is_the_lowest_chunk_that_misses_it),
        cmocka_unit_test(what_the_rules_keep_is_enough_and_runs),
        cmocka_unit_test(the_rest_of_a_valid_plan_is_valid_and_stores_what_is_needed),
        cmocka_unit_test(the_rest_of_a_plan_that_is_not_valid_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
