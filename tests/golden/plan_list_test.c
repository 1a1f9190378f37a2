/* The list scheduler against the tables of golden periods: one and two failures, the three techniques one
 * after the other, without and with limits on memory. Where a lower bound is reached the period must be that;
 * where the table's value is only the best that somebody found, at most that. Values that are lower than the
 * table's are pinned at what is reached here, so that they are not lost again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kit/plan_list_kit.h"

enum technique { ADAPTIVE, DECOUPLED, STAGGERED };

static struct kit_case shape(uint32_t pipelines, uint32_t stages, uint32_t microbatches, enum technique t) {
    struct kit_case c = {.pipelines = pipelines, .stages = stages, .microbatches = microbatches};
    c.options.backward = t == ADAPTIVE ? PLAN_FUSED : PLAN_SELECTIVE;
    c.options.staggered = t == STAGGERED;
    c.options.seed = 1;
    return c;
}

static struct kit_case with_dead(struct kit_case c, uint32_t stage) {
    c.dead_stage[c.dead_count++] = stage;
    return c;
}

static struct kit_case searched(struct kit_case c, uint32_t rounds, uint64_t bound) {
    c.options.rounds = rounds;
    c.options.bound = bound * SIM_TICKS;
    return c;
}

static struct kit_case capped(struct kit_case c, enum kit_caps caps, uint64_t x) {
    c.caps = caps, c.x = x;
    return c;
}

static void without_failures_the_fused_barrier_schedule_is_as_long_as_1f1b(void **state) {
    (void)state;
    static const uint32_t shapes[][3] = {{3, 4, 6}, {4, 4, 8}, {4, 8, 16}, {8, 4, 16}, {8, 8, 32}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const uint32_t *s = shapes[i];
        struct kit_case c = shape(s[0], s[1], s[2], ADAPTIVE);
        kit_exactly(&c, (s[2] + s[1] - 1) * 3);
        c = capped(c, KIT_1F1B, 0);
        kit_exactly(&c, (s[2] + s[1] - 1) * 3);
    }
}

static void without_failures_and_with_1f1b_memory_the_period_is_zb_h1_s(void **state) {
    (void)state;
    struct kit_case c = shape(1, 4, 6, STAGGERED);
    c = searched(capped(c, KIT_EVEN, 0), 200, 21);
    kit_at_most(&c, 21);
}

static void one_failure_in_the_small_example(void **state) {
    (void)state;
    static const uint64_t wanted[4][3] = {{29, 27, 27}, {30, 28, 27}, {33, 29, 27}, {36, 30, 27}};
    for (uint32_t stage = 0; stage < 4; stage++)
        for (int t = ADAPTIVE; t <= STAGGERED; t++) {
            struct kit_case c = with_dead(shape(3, 4, 6, (enum technique)t), stage);
            c = searched(c, 300, wanted[stage][t]);
            if (stage == 0 && t == ADAPTIVE)
                kit_at_most(&c, wanted[stage][t]);
            else
                kit_exactly(&c, wanted[stage][t]);
        }
}

static void two_failures_in_the_small_example(void **state) {
    (void)state;
    static const uint64_t same[3] = {60, 56, 54};
    for (uint32_t stage = 0; stage < 4; stage++) {
        struct kit_case c = with_dead(with_dead(shape(3, 4, 6, STAGGERED), stage), stage);
        kit_exactly(&c, 54);
    }
    for (int t = ADAPTIVE; t <= STAGGERED; t++) { /* the table's row is stage 2 */
        struct kit_case c = with_dead(with_dead(shape(3, 4, 6, (enum technique)t), 2), 2);
        c = searched(c, 300, same[t]);
        kit_exactly(&c, same[t]);
    }
    struct kit_case c = with_dead(with_dead(shape(3, 4, 6, STAGGERED), 2), 0);
    kit_exactly(&c, 27);
}

struct larger {
    uint32_t pipelines, stages, microbatches;
    uint64_t fused[3], barrier[3], staggered, two; /* failure in stage 0, P / 2, P - 1 */
};
static const struct larger larger[] = {
    {4, 4, 8, {35, 39, 42}, {33, 35, 36}, 33, 48},
    {4, 8, 16, {71, 78, 87}, {66, 70, 73}, 66, 96},
    {8, 4, 16, {59, 64, 66}, {57, 59, 60}, 57, 66},
    {4, 8, 32, {134, 142, 150}, {129, 133, 136}, 129, 192},
    {8, 8, 32, {119, 126, 132}, {111, 115, 118}, 111, 129},
};
enum { LARGER_COUNT = sizeof larger / sizeof *larger };

static uint32_t stage_of(const struct larger *l, int which) {
    return which == 0 ? 0 : which == 1 ? l->stages / 2 : l->stages - 1;
}

static void larger_cases_fused_with_a_barrier_are_not_above_the_table(void **state) {
    (void)state;
    for (int i = 0; i < LARGER_COUNT; i++)
        for (int k = 0; k < 3; k++) {
            const struct larger *l = &larger[i];
            struct kit_case c = shape(l->pipelines, l->stages, l->microbatches, ADAPTIVE);
            c = searched(with_dead(c, stage_of(l, k)), 200, l->fused[k]);
            kit_at_most(&c, l->fused[k]);
        }
}

static void larger_cases_decoupled_are_at_their_bound(void **state) {
    (void)state;
    for (int i = 0; i < LARGER_COUNT; i++)
        for (int k = 0; k < 3; k++) {
            const struct larger *l = &larger[i];
            struct kit_case c = shape(l->pipelines, l->stages, l->microbatches, DECOUPLED);
            c = searched(with_dead(c, stage_of(l, k)), 50, l->barrier[k]);
            kit_exactly(&c, l->barrier[k]);
        }
}

static void larger_cases_staggered_are_at_their_bound_after_one_pass(void **state) {
    (void)state;
    for (int i = 0; i < LARGER_COUNT; i++)
        for (int k = 0; k < 3; k++) {
            const struct larger *l = &larger[i];
            struct kit_case c = shape(l->pipelines, l->stages, l->microbatches, STAGGERED);
            c = with_dead(c, stage_of(l, k));
            kit_exactly(&c, l->staggered);
            c = with_dead(c, stage_of(l, k));
            kit_exactly(&c, l->two);
        }
}

/* What any schedule needs with `cap` micro-batches per worker and `load` of them on a host of `stage`, unit
 * costs: the host runs only forwards until the first gradient comes back, and only the weight-gradients of
 * what it stores after its last input-gradient, which must still travel up to stage 0. */
static uint64_t bound_with_cap(uint64_t stages, uint64_t stage, uint64_t cap_host, uint64_t load) {
    uint64_t first_back = 2 * (stages - stage) - 1, travels = stage == 0 ? 0 : 2 * stage + 1;
    uint64_t head = first_back > cap_host ? first_back - cap_host : 0;
    uint64_t tail = travels > cap_host ? travels - cap_host : 0;
    return 3 * load + (head > tail ? head : tail);
}

static void in_the_small_example_even_caps_cost_less_than_in_the_table(void **state) {
    (void)state;
    static const uint64_t table[4][4] = {
        {30, 29, 28, 27}, {29, 27, 27, 27}, {29, 28, 27, 27}, {30, 29, 28, 27}};
    static const uint64_t reached[4][4] = {
        {30, 29, 28, 27}, {28, 27, 27, 27}, {29, 28, 27, 27}, {30, 29, 28, 27}};
    for (uint32_t stage = 0; stage < 4; stage++)
        for (uint64_t x = 0; x < 4; x++) {
            struct kit_case c = capped(with_dead(shape(3, 4, 6, STAGGERED), stage), KIT_EVEN, x);
            c = searched(c, 400, bound_with_cap(4, stage, 4 + x, 9));
            assert_true(reached[stage][x] <= table[stage][x]);
            kit_at_most(&c, reached[stage][x]);
        }
}

static void in_the_small_example_caps_as_1f1b_has_them_cost_no_more_than_in_the_table(void **state) {
    (void)state;
    static const uint64_t table[5] = {33, 30, 29, 28, 27};
    for (uint64_t x = 0; x < 5; x++) {
        struct kit_case c = capped(with_dead(shape(3, 4, 6, STAGGERED), 2), KIT_1F1B, x);
        c = searched(c, 1000, 27);
        kit_at_most(&c, table[x]);
    }
}

struct capped_row {
    uint32_t pipelines, stages, microbatches;
    uint64_t load;
    uint64_t table[3][4], reached[3][4]; /* failure in stage 0, P / 2, P - 1; P + 0, 1, 2, 4 micro-batches */
};
static const struct capped_row capped_rows[] = {
    {4,
     4,
     8,
     11,
     {{37, 35, 34, 33}, {35, 34, 33, 33}, {36, 35, 34, 33}},
     {{36, 35, 34, 33}, {35, 34, 33, 33}, {36, 35, 34, 33}}},
    {4,
     8,
     16,
     22,
     {{74, 72, 71, 69}, {69, 68, 67, 66}, {73, 72, 71, 69}},
     {{73, 72, 71, 69}, {68, 67, 66, 66}, {73, 72, 71, 69}}},
    {8,
     4,
     16,
     19,
     {{61, 59, 58, 57}, {59, 58, 57, 57}, {60, 59, 58, 57}},
     {{60, 59, 58, 57}, {59, 58, 57, 57}, {60, 59, 58, 57}}},
    {4,
     8,
     32,
     43,
     {{138, 136, 134, 132}, {133, 133, 131, 129}, {136, 135, 134, 132}},
     {{136, 135, 134, 132}, {132, 131, 130, 129}, {136, 135, 134, 132}}},
    {8,
     8,
     32,
     37,
     {{121, 118, 117, 114}, {117, 115, 114, 112}, {118, 117, 116, 114}},
     {{118, 117, 116, 114}, {115, 114, 113, 111}, {118, 117, 116, 114}}},
};

static void larger_cases_with_caps_are_at_or_below_the_table(void **state) {
    (void)state;
    static const uint64_t beyond[4] = {0, 1, 2, 4};
    for (size_t i = 0; i < sizeof capped_rows / sizeof *capped_rows; i++)
        for (uint32_t k = 0; k < 3; k++)
            for (int x = 0; x < 4; x++) {
                const struct capped_row *r = &capped_rows[i];
                uint32_t stage = k == 0 ? 0 : k == 1 ? r->stages / 2 : r->stages - 1;
                uint64_t bound = bound_with_cap(r->stages, stage, r->stages + beyond[x], r->load);
                struct kit_case c = shape(r->pipelines, r->stages, r->microbatches, STAGGERED);
                c = capped(with_dead(c, stage), KIT_EVEN, beyond[x]);
                c = searched(c, 1500, bound);
                assert_true(r->reached[k][x] <= r->table[k][x]);
                kit_at_most(&c, r->reached[k][x]);
            }
}

static void small_uneven_cases_reach_their_optimum(void **state) {
    (void)state;
    static const struct {
        uint64_t cost[3], optimum;
    } cases[] = {{{1, 1, 1}, 27}, {{2, 3, 2}, 63}, {{137, 211, 119}, 4304}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kit_case c = shape(1, 4, 8, DECOUPLED);
        c.forward = cases[i].cost[0], c.input_grad = cases[i].cost[1], c.weight_grad = cases[i].cost[2];
        c = searched(capped(c, KIT_FIXED, 5), 3000, 0);
        kit_at_most(&c, cases[i].optimum * 102 / 100);
        c = searched(c, 20000, cases[i].optimum);
        kit_exactly(&c, cases[i].optimum);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_failures_the_fused_barrier_schedule_is_as_long_as_1f1b),
        cmocka_unit_test(without_failures_and_with_1f1b_memory_the_period_is_zb_h1_s),
        cmocka_unit_test(one_failure_in_the_small_example),
        cmocka_unit_test(two_failures_in_the_small_example),
        cmocka_unit_test(larger_cases_fused_with_a_barrier_are_not_above_the_table),
        cmocka_unit_test(larger_cases_decoupled_are_at_their_bound),
        cmocka_unit_test(larger_cases_staggered_are_at_their_bound_after_one_pass),
        cmocka_unit_test(in_the_small_example_even_caps_cost_less_than_in_the_table),
        cmocka_unit_test(in_the_small_example_caps_as_1f1b_has_them_cost_no_more_than_in_the_table),
        cmocka_unit_test(larger_cases_with_caps_are_at_or_below_the_table),
        cmocka_unit_test(small_uneven_cases_reach_their_optimum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
