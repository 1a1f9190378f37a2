/* Where the time goes: against closed forms, and against a clock that is moved in tiny steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "fleet/clockwork.h"
#include "kit/fleet_kit.h"

static const struct fleet_saving never = {0};

static void advance(struct clockwork *c, double to_s) {
    assert_int_equal(clockwork_advance(c, to_s, NULL), PAWL_OK);
}

static double sum(const struct clockwork *c) {
    return c->at.useful_s + c->lost_s + c->saving_s + c->stopped_s + c->idle_s;
}

static void work_counts_and_idle_time_does_not(void **state) {
    (void)state;
    struct clockwork c;
    clockwork_init(&c);
    advance(&c, 5);
    clockwork_set(&c, 2, &never);
    advance(&c, 15);
    kit_near(c.idle_s, 5, 0);
    kit_near(c.at.useful_s, 10, 0);
    kit_near(c.at.counted, 20, 0);
    clockwork_close(&c);
}

static void a_stop_stands_still_first_and_a_longer_one_is_not_cut_short(void **state) {
    (void)state;
    struct clockwork c;
    clockwork_init(&c);
    clockwork_set(&c, 1, &never);
    clockwork_stop(&c, 10);
    kit_near(clockwork_runs_at(&c), 10, 0);
    advance(&c, 4);
    clockwork_stop(&c, 3);
    kit_near(clockwork_runs_at(&c), 10, 1e-12);
    clockwork_stop(&c, 8);
    advance(&c, 20);
    kit_near(c.stopped_s, 12, 1e-12);
    kit_near(c.at.useful_s, 8, 1e-12);
    clockwork_close(&c);
}

static void saves_take_their_stall_from_every_cycle(void **state) {
    (void)state;
    struct clockwork c;
    struct fleet_saving saving = {.every_s = 10, .stall_s = 2, .write_s = 2};
    clockwork_init(&c);
    clockwork_set(&c, 1, &saving);
    advance(&c, 11); /* in the first stall */
    kit_near(c.at.useful_s, 10, 1e-12);
    kit_near(c.saving_s, 1, 1e-12);
    advance(&c, 13);
    kit_near(c.at.useful_s, 11, 1e-12);
    kit_near(c.saving_s, 2, 1e-12);
    advance(&c, 125); /* ten cycles and five seconds */
    kit_near(c.at.useful_s, 105, 1e-9);
    kit_near(c.saving_s, 20, 1e-9);
    clockwork_close(&c);
}

static void a_rollback_goes_to_the_newest_save_that_is_durable(void **state) {
    (void)state;
    struct fleet_saving saving = {.every_s = 10, .stall_s = 0, .write_s = 25}; /* three under way */
    static const struct {
        double at_s, back_to_s;
    } cases[] = {{34, 0}, {35, 10}, {44, 10}, {45, 20}, {99, 70}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct clockwork c;
        clockwork_init(&c);
        clockwork_set(&c, 3, &saving);
        for (double t = 7; t < cases[i].at_s; t += 7) advance(&c, t); /* many spans are as one */
        advance(&c, cases[i].at_s);
        clockwork_roll_back(&c);
        kit_near(c.at.useful_s, cases[i].back_to_s, 1e-9);
        kit_near(c.at.counted, 3 * cases[i].back_to_s, 1e-9);
        kit_near(c.lost_s, cases[i].at_s - cases[i].back_to_s, 1e-9);
        advance(&c, cases[i].at_s + 5);
        clockwork_roll_back(&c); /* what was rolled back to stays durable */
        kit_near(c.at.useful_s, cases[i].back_to_s, 1e-9);
        clockwork_close(&c);
    }
}

static void the_work_under_way_is_lost_at_most_since_it_stood_still(void **state) {
    (void)state;
    struct clockwork c;
    clockwork_init(&c);
    clockwork_set(&c, 1, &never);
    advance(&c, 100);
    clockwork_lose(&c, 30);
    kit_near(c.at.counted, 70, 1e-12);
    clockwork_stop(&c, 10);
    advance(&c, 115);
    clockwork_lose(&c, 30);
    kit_near(c.at.counted, 70, 1e-12);
    kit_near(c.lost_s, 35, 1e-12);
    kit_near(sum(&c), 115, 1e-12);
    clockwork_close(&c);
}

static void what_is_saved_before_a_stop_is_durable(void **state) {
    (void)state;
    struct clockwork c;
    struct fleet_saving saving = {.every_s = 1000, .stall_s = 1, .write_s = 1};
    clockwork_init(&c);
    clockwork_set(&c, 1, &saving);
    advance(&c, 100);
    clockwork_save(&c);
    clockwork_stop(&c, 10);
    advance(&c, 150);
    clockwork_roll_back(&c);
    kit_near(c.at.counted, 100, 1e-9);
    kit_near(c.lost_s, 40, 1e-9);
    clockwork_close(&c);
}

/* The same rules, a thousandth of a second at a time, with nothing but lists. */
#define STEPS_PER_S 1000
struct slow {
    uint64_t now, stop, stall, until; /* ms */
    uint64_t useful, lost, saving, stopped;
    uint64_t begun_at[4096], begun_useful[4096];
    uint32_t begun;
    uint64_t durable;
};

static void slow_step(struct slow *s, const struct fleet_saving *saving) {
    s->now++;
    if (s->stop > 0) {
        s->stop--, s->stopped++;
        return;
    }
    if (s->stall > 0) {
        s->stall--, s->saving++;
        return;
    }
    s->useful++;
    if (--s->until == 0) {
        s->begun_at[s->begun] = s->now;
        s->begun_useful[s->begun++] = s->useful;
        s->stall = (uint64_t)(saving->stall_s * STEPS_PER_S);
        s->until = (uint64_t)(saving->every_s * STEPS_PER_S);
    }
}

static void slow_roll_back(struct slow *s, const struct fleet_saving *saving) {
    uint64_t write = (uint64_t)(saving->write_s * STEPS_PER_S);
    for (uint32_t i = 0; i < s->begun; i++)
        if (s->begun_at[i] + write <= s->now) s->durable = s->begun_useful[i];
    s->lost += s->useful - s->durable;
    s->useful = s->durable;
    s->begun = 0, s->stall = 0;
    s->until = (uint64_t)(saving->every_s * STEPS_PER_S);
}

static void whole_cycles_at_once_are_as_step_by_step(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct rng_stream rng = {seed};
        struct clockwork c;
        static struct slow s;
        struct fleet_saving saving = {.every_s = (double)(1 + rng_below(&rng, 20)),
                                      .stall_s = (double)rng_below(&rng, 5) / 2};
        saving.write_s = saving.stall_s + (double)rng_below(&rng, 30) + 0.5; /* never exactly at a step */
        memset(&s, 0, sizeof s);
        s.until = (uint64_t)(saving.every_s * STEPS_PER_S);
        clockwork_init(&c);
        clockwork_set(&c, 2, &saving);
        for (int event = 0; event < 12; event++) {
            double to_s = c.now_s + 0.25 + (double)rng_below(&rng, 60) / 4;
            advance(&c, to_s);
            while (s.now < (uint64_t)llround(to_s * STEPS_PER_S)) slow_step(&s, &saving);
            kit_near(c.at.useful_s, (double)s.useful / STEPS_PER_S, 1e-6);
            kit_near(c.saving_s, (double)s.saving / STEPS_PER_S, 1e-6);
            uint64_t what = rng_below(&rng, 3);
            if (what == 0) {
                clockwork_roll_back(&c);
                slow_roll_back(&s, &saving);
            }
            if (what == 1) {
                clockwork_stop(&c, 4);
                if (s.stop < 4 * STEPS_PER_S) s.stop = 4 * STEPS_PER_S;
            }
            kit_near(c.at.useful_s, (double)s.useful / STEPS_PER_S, 1e-6);
            kit_near(c.lost_s, (double)s.lost / STEPS_PER_S, 1e-6);
            kit_near(sum(&c), to_s, 1e-9);
        }
        clockwork_close(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_counts_and_idle_time_does_not),
        cmocka_unit_test(a_stop_stands_still_first_and_a_longer_one_is_not_cut_short),
        cmocka_unit_test(saves_take_their_stall_from_every_cycle),
        cmocka_unit_test(a_rollback_goes_to_the_newest_save_that_is_durable),
        cmocka_unit_test(the_work_under_way_is_lost_at_most_since_it_stood_still),
        cmocka_unit_test(what_is_saved_before_a_stop_is_durable),
        cmocka_unit_test(whole_cycles_at_once_are_as_step_by_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
