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
