/* A holding goes from version to version by decided steps only; an undo is exact, versions that others read
 * stay as they are, and sums that count are kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "run_world.h"

static const struct adamw_config adamw = {
    .lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .weight_decay = 0.1f};

struct fixture {
    struct world w;
    struct holding *h;
    float first[WORLD_PARAMETERS]; /* parameters of the version it begins with */
};

static void open_fixture(struct fixture *f) {
    f->w = world_open(1, 1, 1, 9);
    f->h = f->w.rank[0].holdings[0];
    memcpy(f->first, f->h->base->params, sizeof f->first);
}

static void give_grad(struct holding *h, float value) {
    for (uint64_t i = 0; i < h->stage->param_count; i++) h->grad[i] = value;
    h->has_grad = true;
}

static void an_undone_step_leaves_no_trace(void **state) {
    (void)state;
    struct fixture a, b;
    open_fixture(&a);
    open_fixture(&b);
    give_grad(a.h, 0.5f);
    give_grad(b.h, 0.5f);
    WORLD_OK(holding_step(a.h, &adamw, world_e));
    assert_int_equal(holding_current(a.h)->number, a.w.version + 1);
    holding_drop_tentative(a.h);
    assert_memory_equal(a.h->base->params, a.first, sizeof a.first);
    WORLD_OK(holding_settle(a.h, &adamw, COORD_CLIP, 0.25f, world_e));
    WORLD_OK(holding_settle(b.h, &adamw, COORD_CLIP, 0.25f, world_e));
    assert_memory_equal(a.h->base->params, b.h->base->params, sizeof a.first);
    assert_memory_equal(a.h->base->exp_avg, b.h->base->exp_avg, sizeof a.first);
    world_close(&a.w);
    world_close(&b.w);
}

static void a_clipped_step_is_that_of_the_gradient_times_the_factor(void **state) {
    (void)state;
    struct fixture clipped, small;
    open_fixture(&clipped);
    open_fixture(&small);
    give_grad(clipped.h, 0.5f);
    give_grad(small.h, 0.125f);
    WORLD_OK(holding_settle(clipped.h, &adamw, COORD_CLIP, 0.25f, world_e));
    WORLD_OK(holding_settle(small.h, &adamw, COORD_ACCEPT, 0.75f, world_e)); /* which asks for no factor */
    assert_memory_equal(clipped.h->base->params, small.h->base->params, sizeof small.first);
    assert_memory_equal(clipped.h->base->exp_avg, small.h->base->exp_avg, sizeof small.first);
    world_close(&clipped.w);
    world_close(&small.w);
}

static void a_step_that_was_taken_ahead_is_the_one_that_is_accepted(void **state) {
    (void)state;
    struct fixture ahead, after;
    open_fixture(&ahead);
    open_fixture(&after);
    give_grad(ahead.h, 0.5f);
    give_grad(after.h, 0.5f);
    WORLD_OK(holding_step(ahead.h, &adamw, world_e));
    const struct version *made = ahead.h->tentative;
    WORLD_OK(holding_settle(ahead.h, &adamw, COORD_ACCEPT, 1, world_e));
    WORLD_OK(holding_settle(after.h, &adamw, COORD_ACCEPT, 1, world_e));
    assert_ptr_equal(ahead.h->base, made);
    assert_int_equal(ahead.h->base->number, ahead.w.version + 1);
    assert_false(ahead.h->has_grad);
    assert_memory_equal(ahead.h->base->params, after.h->base->params, sizeof ahead.first);
    world_close(&ahead.w);
    world_close(&after.w);
}

static void what_cannot_have_been_decided_is_refused(void **state) {
    (void)state;
    struct fixture f;
    struct pawl_error e = {0};
    open_fixture(&f);
    assert_int_equal(holding_settle(f.h, &adamw, COORD_ACCEPT, 1, &e), PAWL_INTERNAL);
    assert_string_equal(e.text, "chunk 0: iteration 3 was decided without its gradient");
    give_grad(f.h, 0.5f);
    WORLD_OK(holding_step(f.h, &adamw, world_e));
    assert_int_equal(holding_settle(f.h, &adamw, COORD_SKIP, 1, &e), PAWL_INTERNAL);
    assert_string_equal(e.text, "chunk 0: iteration 3 was decided otherwise than a step was taken");
    world_close(&f.w);
}

static void a_skipped_iteration_changes_nothing_but_the_number(void **state) {
    (void)state;
    struct fixture f;
    open_fixture(&f);
    give_grad(f.h, 0.5f);
    WORLD_OK(holding_settle(f.h, &adamw, COORD_SKIP, 1, world_e));
    assert_memory_equal(f.h->base->params, f.first, sizeof f.first);
    assert_int_equal(f.h->base->number, f.w.version + 1);
    assert_int_equal(f.h->base->updates, f.w.version);
    world_close(&f.w);
}

static void versions_that_others_read_are_not_written_and_a_step_waits_at_the_limit(void **state) {
    (void)state;
    struct fixture f;
    open_fixture(&f); /* of one save: four buffers */
    const struct version *read[3];
    for (int i = 0; i < 3; i++) {
        read[i] = f.h->base;
        versions_hold(read[i]);
        give_grad(f.h, 0.5f);
        WORLD_OK(holding_settle(f.h, &adamw, COORD_ACCEPT, 1, world_e));
    }
    assert_memory_equal(read[0]->params, f.first, sizeof f.first);
    give_grad(f.h, 0.5f);
    WORLD_OK(holding_step(f.h, &adamw, world_e));
    assert_null(f.h->tentative); /* three are read, the fourth is the base */
    WORLD_OK(holding_settle(f.h, &adamw, COORD_ACCEPT, 1, world_e)); /* a decision does not wait */
    assert_int_equal(f.h->base->number, f.w.version + 4);
    versions_drop(read[1]);
    give_grad(f.h, 0.5f);
    WORLD_OK(holding_step(f.h, &adamw, world_e));
    assert_ptr_equal(f.h->tentative, read[1]);
    assert_memory_equal(read[0]->params, f.first, sizeof f.first);
    world_close(&f.w);
}

static void sums_that_are_kept_stay_and_others_are_empty(void **state) {
    (void)state;
    struct fixture f;
    open_fixture(&f);
    holding_begin(f.h, 16);
    assert_int_equal(f.h->work, f.w.version);
    assert_int_equal(f.h->work_shift, 16);
    assert_true(gradsum_empty(GRADSUM_EXACT, f.h->sums, WORLD_PARAMETERS));
    WORLD_OK(holding_enter(f.h, 3, world_e));
    int64_t *footer = f.h->sums + WORLD_PARAMETERS;
    f.h->sums[7] = 42;
    for (int i = 0; i < GRADSUM_FOOTER_WORDS; i++) footer[i] = 9;
    f.h->keeps_work = true;
    holding_begin(f.h, 16);
    assert_int_equal(f.h->sums[7], 42);
    for (int i = 0; i < GRADSUM_FOOTER_WORDS; i++) assert_int_equal(footer[i], 9);
    assert_int_equal(f.h->bits[0], 1 << 3);
    holding_begin(f.h, 0); /* to be kept once */
    assert_true(gradsum_empty(GRADSUM_EXACT, f.h->sums, WORLD_PARAMETERS));
    for (int i = 0; i < GRADSUM_FOOTER_WORDS; i++) assert_int_equal(footer[i], 0);
    assert_int_equal(f.h->bits[0], 0);
    assert_int_equal(f.h->work_shift, 0);
    world_close(&f.w);
}

static void a_sum_that_lacks_a_contribution_is_not_reported(void **state) {
    (void)state;
    struct fixture f;
    struct pawl_error e = {0};
    open_fixture(&f);
    uint32_t tensors = f.h->stage->tensor_count;
    f.h->reduce.footer[GRADSUM_COUNT] = 9 * tensors - 1;
    assert_int_equal(holding_reduced(f.h, &e), PAWL_INTERNAL);
    char words[160];
    snprintf(words, sizeof words, "%u gradient contributions of %u tensors and 9 micro-batches",
             9 * tensors - 1, tensors);
    assert_string_equal(e.text, words);
    f.h->reduce.footer[GRADSUM_COUNT] = 9 * tensors;
    f.h->reduce.footer[GRADSUM_OVERFLOW] = 2;
    WORLD_OK(holding_reduced(f.h, world_e));
    assert_true(f.h->has_grad);
    assert_int_equal(f.h->report.overflow, 2);
    assert_int_equal(f.h->report.iteration, f.w.version);
    world_close(&f.w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_undone_step_leaves_no_trace),
        cmocka_unit_test(a_clipped_step_is_that_of_the_gradient_times_the_factor),
        cmocka_unit_test(a_step_that_was_taken_ahead_is_the_one_that_is_accepted),
        cmocka_unit_test(what_cannot_have_been_decided_is_refused),
        cmocka_unit_test(a_skipped_iteration_changes_nothing_but_the_number),
        cmocka_unit_test(versions_that_others_read_are_not_written_and_a_step_waits_at_the_limit),
        cmocka_unit_test(sums_that_are_kept_stay_and_others_are_empty),
        cmocka_unit_test(a_sum_that_lacks_a_contribution_is_not_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
