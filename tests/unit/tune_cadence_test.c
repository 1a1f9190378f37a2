/* The cadence against simulated devices and jobs: it finds the interval that the rule gives, follows steps of
 * bandwidth and iteration time both ways, does not oscillate on noise, and keeps its head when a disk hangs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <pawl/tune.h>

#include "kit/tune_kit.h"
#include "tune/replay.h"

#define T 0.06

struct world { /* factors over time */
    double iteration_at, iteration_factor, iteration_until;
    double device_at, device_factor, device_until;
    double save_noise, iteration_noise;
    struct rng_stream rng;
    uint32_t changes, up, down, stalls;
    uint64_t every, least, most;
    struct pawl_cadence *cadence;
    double settle_s; /* least and most count from here */
    char last[256];
};

static double noisy(struct world *w, double deviation) { return exp(deviation * kit_normal(&w->rng)); }

static uint64_t first_of(const struct pawl_cadence *c) {
    struct pawl_cadence_state state;
    pawl_cadence_state(c, &state);
    return state.every;
}

static double iteration(void *context, double now_s) {
    struct world *w = context;
    struct pawl_cadence_change change;
    if (w->every == 0) w->every = first_of(w->cadence);
    if (pawl_cadence_changed(w->cadence, &change)) {
        w->every = change.after;
        w->changes++;
        w->up += change.after > change.before;
        w->down += change.after < change.before;
        w->stalls += change.stalled;
        memcpy(w->last, change.why, sizeof w->last);
    }
    if (now_s >= w->settle_s) {
        if (w->least == 0 || w->every < w->least) w->least = w->every;
        if (w->every > w->most) w->most = w->every;
    }
    double factor = now_s >= w->iteration_at && now_s < w->iteration_until ? w->iteration_factor : 1;
    return factor * noisy(w, w->iteration_noise);
}

static double device(void *context, double now_s) {
    struct world *w = context;
    return now_s >= w->device_at && now_s < w->device_until ? w->device_factor : 1;
}

static double save_noise(void *context) { return noisy(context, ((struct world *)context)->save_noise); }

static struct pawl_cadence *cadence_of(struct pawl_cadence_config config) {
    struct pawl_cadence *c = NULL;
    struct pawl_error e = {0};
    if (pawl_cadence_new(&config, &c, &e) != PAWL_OK) fail_msg("cadence: %s", e.text);
    return c;
}

/* Plays `seconds` of a job whose saves take `service` alone, with a new cadence. */
static struct replay_result play(struct world *w, struct pawl_cadence_config config, double service,
                                 double speedup, double stall, double seconds) {
    w->cadence = cadence_of(config);
    if (w->rng.state == 0) w->rng.state = 1;
    struct replay_config r = {.seconds = seconds,
                              .iteration_s = T,
                              .service_s = service,
                              .speedup = speedup,
                              .stall_s = stall,
                              .in_flight = config.in_flight,
                              .cadence = w->cadence,
                              .iteration = iteration,
                              .device = device,
                              .noise = save_noise,
                              .context = w};
    struct replay_result out;
    struct pawl_error e = {0};
    if (replay_run(&r, &out, &e) != PAWL_OK) fail_msg("replay: %s", e.text);
    return out;
}

static uint64_t end_of(struct world *w, struct pawl_cadence_state *state) {
    struct pawl_cadence_state own;
    if (state == NULL) state = &own;
    pawl_cadence_state(w->cadence, state);
    uint64_t every = state->every;
    pawl_cadence_free(w->cadence);
    return every;
}

static void settles_at_the_rule_s_interval_from_above_and_from_below(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 4; n++)
        for (int first = 1; first <= 200; first += 199)
            for (double service = 0.02; service < 10; service *= 4) {
                struct world w = {.settle_s = 1e9};
                struct pawl_cadence_state at;
                struct replay_result r =
                    play(&w, (struct pawl_cadence_config){.in_flight = n, .first = (uint64_t)first}, service,
                         1, 0, 600);
                uint64_t every = end_of(&w, &at);
                double need = fmax(1, service / (1.03 * T));
                if ((double)every < need || (double)every > ceil(need * 1.16))
                    fail_msg("N %u, from %d, service %g: every %lu, need %g", n, first, service,
                             (unsigned long)every, need);
                assert_near(at.iteration_s, T, 0.01);
                assert_near(at.write_s / n, service, 0.05);
                assert_true(r.held_s == 0); /* nobody ever waits */
                assert_true(r.in_flight_max <= n);
            }
}

static void knows_what_more_saves_in_flight_will_gain(void **state) {
    (void)state;
    struct world w = {.settle_s = 1e9};
    struct pawl_cadence_config config = {.in_flight = 4, .speedup = 4, .first = 50};
    (void)play(&w, config, 1.2, 4, 0, 600);
    /* Alone 1.2 s; four at once 0.3 s each: 4.85 iterations. */
    assert_in_range(end_of(&w, NULL), 5, 6);
}

static void a_slower_device_lengthens_and_its_recovery_shortens_the_interval(void **state) {
    (void)state;
    struct world w = {.device_at = 300, .device_until = 900, .device_factor = 0.25, .settle_s = 600};
    (void)play(&w, (struct pawl_cadence_config){.in_flight = 2}, 0.6, 1, 0, 899);
    assert_in_range(w.least, 39, 45); /* 4 * 0.6 / 0.0618 = 38.8 */
    assert_in_range(w.most, 39, 45);
    (void)end_of(&w, NULL);
    struct world back = {.device_at = 300, .device_until = 900, .device_factor = 0.25, .settle_s = 1200};
    (void)play(&back, (struct pawl_cadence_config){.in_flight = 2}, 0.6, 1, 0, 1500);
    assert_in_range(back.least, 10, 11); /* 9.7 */
    assert_in_range(back.most, 10, 11);
    assert_true(back.up >= 1 && back.down >= 1);
    assert_true(back.changes <= 10);
    (void)end_of(&back, NULL);
}

static void slower_iterations_shorten_and_their_recovery_lengthens_the_interval(void **state) {
    (void)state;
    struct world w = {.iteration_at = 300, .iteration_until = 900, .iteration_factor = 3, .settle_s = 600};
    (void)play(&w, (struct pawl_cadence_config){.in_flight = 2}, 1.8, 1, 0, 899);
    assert_in_range(w.least, 10, 11); /* 1.8 / (1.03 * 0.18) = 9.7 */
    assert_in_range(w.most, 10, 11);
    (void)end_of(&w, NULL);
    struct world back = {
        .iteration_at = 300, .iteration_until = 900, .iteration_factor = 3, .settle_s = 1200};
    (void)play(&back, (struct pawl_cadence_config){.in_flight = 2}, 1.8, 1, 0, 1500);
    assert_in_range(back.least, 30, 34); /* 29.1 */
    assert_in_range(back.most, 30, 34);
    (void)end_of(&back, NULL);
}

static void noise_does_not_make_it_oscillate(void **state) {
    (void)state;
    uint32_t most = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct world w = {.save_noise = 0.25, .iteration_noise = 0.1, .rng = {seed * 77}, .settle_s = 300};
        struct replay_result r = play(&w, (struct pawl_cadence_config){.in_flight = 2}, 1.2, 1, 0, 4000);
        if (w.changes > most) most = w.changes;
        assert_true(r.saves > 1500);
        assert_in_range(w.changes, 1, 10);
        assert_in_range(w.least, 14, 24); /* 19.4, and the mean of the noise */
        assert_in_range(w.most, 20, 31);
        assert_true(r.slowdown < 1.03);
        (void)end_of(&w, NULL);
    }
    print_message("at most %u changes in 4000 s\n", most);
}

static void stalls_are_kept_within_the_overhead(void **state) {
    (void)state;
    struct world w = {.settle_s = 500};
    struct replay_result r =
        play(&w, (struct pawl_cadence_config){.in_flight = 2, .overhead = 0.05}, 0.1, 1, 0.045, 2000);
    /* 0.045 / (0.05 * 0.06) = 15 */
    assert_in_range(end_of(&w, NULL), 15, 17);
    assert_true(r.slowdown < 1.052);
}

static void iterations_slowed_down_beside_saves_count_as_their_cost(void **state) {
    (void)state;
    struct pawl_cadence *c = cadence_of((struct pawl_cadence_config){.in_flight = 1, .overhead = 0.02});
    double now = 0;
    uint64_t step = 0, end_at = 0;
    for (uint64_t begun = 0; step < 20000;) { /* each save is beside 5 iterations and slows each by a half */
        double took = begun != 0 ? 0.15 : 0.1;
        now += took;
        step++;
        pawl_cadence_iteration(c, now, took);
        if (begun != 0 && step == end_at) {
            pawl_cadence_ended(c, begun, now, true);
            begun = 0;
        }
        if (!pawl_cadence_due(c, step)) continue;
        pawl_cadence_begun(c, step, now);
        begun = step;
        end_at = step + 5;
    }
    struct pawl_cadence_state at;
    pawl_cadence_state(c, &at);
    assert_near(at.iteration_s, 0.1, 1e-9);
    assert_near(at.stall_s, 5 * 0.05, 0.25);
    assert_in_range(at.every, 120, 150); /* 0.25 / (0.02 * 0.1) = 125 */
    pawl_cadence_free(c);
}

static void a_disk_that_hangs_holds_nobody_up_and_is_told_once(void **state) {
    (void)state;
    struct world w = {.device_at = 300, .device_until = 600, .device_factor = 0, .settle_s = 100};
    struct replay_result r = play(&w, (struct pawl_cadence_config){.in_flight = 3}, 0.6, 1, 0, 900);
    assert_true(r.held_s == 0);
    assert_int_equal(w.stalls, 1);
    assert_in_range(w.least, 10, 12); /* 9.7, before, while it hangs, and after */
    assert_in_range(w.most, 10, 12);
    struct pawl_cadence_state at;
    (void)end_of(&w, &at);
    assert_false(at.stalled);
    assert_non_null(strstr(w.last, "get on again"));
    /* 600 s of saving at one every 0.6 s, and none in the other 300. */
    assert_in_range(r.saves, 900, 1010);
}

static void after_a_hang_the_next_save_begins_at_once(void **state) {
    (void)state;
    struct pawl_cadence *c = cadence_of((struct pawl_cadence_config){.in_flight = 1, .first = 10});
    pawl_cadence_begun(c, 10, 1);
    for (uint64_t step = 11; step < 500; step++) {
        pawl_cadence_iteration(c, (double)step * T, T);
        assert_false(pawl_cadence_due(c, step));
    }
    pawl_cadence_ended(c, 10, 500 * T, true);
    assert_true(pawl_cadence_due(c, 500));
    pawl_cadence_free(c);
}

static void warm_up_iterations_tell_nothing(void **state) {
    (void)state;
    struct pawl_cadence *c = cadence_of((struct pawl_cadence_config){.in_flight = 1, .warmup = 20});
    struct pawl_cadence_state at;
    for (int i = 0; i < 20; i++) pawl_cadence_iteration(c, i, 30);
    pawl_cadence_state(c, &at);
    assert_true(at.iteration_s == 0);
    for (int i = 0; i < 3; i++) pawl_cadence_iteration(c, 30 + i, 1);
    pawl_cadence_state(c, &at);
    assert_true(at.iteration_s == 1);
    pawl_cadence_free(c);
}

static void every_k_is_kept_whatever_it_costs(void **state) {
    (void)state;
    struct world w = {.settle_s = 0};
    struct replay_result r = play(&w, (struct pawl_cadence_config){.in_flight = 2, .every = 3}, 2, 1, 0, 600);
    struct pawl_cadence_state at;
    assert_int_equal(end_of(&w, &at), 3);
    assert_int_equal(w.changes, w.stalls);
    assert_near(at.slowdown, 2 / (3 * T), 0.15); /* waits alternate: long, none */
    assert_near(r.slowdown, 2 / (3 * T), 0.03);
}

static void the_longest_interval_is_never_exceeded(void **state) {
    (void)state;
    struct world w = {.settle_s = 0};
    (void)play(&w, (struct pawl_cadence_config){.in_flight = 2, .longest = 20, .first = 50}, 6, 1, 0, 600);
    assert_true(w.most <= 20);
    assert_int_equal(end_of(&w, NULL), 20);
}

static void rare_failures_make_saves_rare_where_they_cost(void **state) {
    (void)state;
    struct world w = {.settle_s = 0};
    struct pawl_cadence_config config = {.in_flight = 2, .mtbf_s = 3600};
    (void)play(&w, config, 0.2, 1, 0.01, 3000);
    /* sqrt(2 * 0.01 * 3600) = 8.5 s, 141 iterations; the limit alone would be 6. */
    assert_in_range(end_of(&w, NULL), 120, 165);
}

static void failed_saves_tell_nothing_about_the_device(void **state) {
    (void)state;
    struct pawl_cadence *c = cadence_of((struct pawl_cadence_config){.in_flight = 1});
    struct pawl_cadence_state at;
    for (uint64_t i = 1; i <= 20; i++) {
        pawl_cadence_begun(c, i, (double)i);
        pawl_cadence_ended(c, i, (double)i + 0.001, false);
    }
    pawl_cadence_state(c, &at);
    assert_true(at.write_s == 0);
    assert_int_equal(at.in_flight, 0);
    pawl_cadence_free(c);
}

static void after_going_back_steps_are_due_again(void **state) {
    (void)state;
    struct pawl_cadence *c = cadence_of((struct pawl_cadence_config){.in_flight = 2, .first = 10});
    pawl_cadence_begun(c, 100, 1);
    pawl_cadence_begun(c, 110, 2);
    pawl_cadence_rewind(c, 100);
    struct pawl_cadence_state at;
    pawl_cadence_state(c, &at);
    assert_int_equal(at.in_flight, 1);
    assert_false(pawl_cadence_due(c, 109));
    assert_true(pawl_cadence_due(c, 110));
    pawl_cadence_free(c);
}

static void bad_configurations_are_named(void **state) {
    (void)state;
    struct pawl_cadence *c = NULL;
    struct pawl_error e = {0};
    assert_int_equal(pawl_cadence_new(&(struct pawl_cadence_config){.in_flight = 0}, &c, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "in_flight"));
    assert_int_equal(pawl_cadence_new(&(struct pawl_cadence_config){.in_flight = 33}, &c, &e), PAWL_ARGUMENT);
    assert_int_equal(pawl_cadence_new(&(struct pawl_cadence_config){.in_flight = 2, .speedup = 3}, &c, &e),
                     PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "speedup"));
    assert_int_equal(pawl_cadence_new(&(struct pawl_cadence_config){.in_flight = 2, .overhead = -1}, &c, &e),
                     PAWL_ARGUMENT);
    assert_null(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settles_at_the_rule_s_interval_from_above_and_from_below),
        cmocka_unit_test(knows_what_more_saves_in_flight_will_gain),
        cmocka_unit_test(a_slower_device_lengthens_and_its_recovery_shortens_the_interval),
        cmocka_unit_test(slower_iterations_shorten_and_their_recovery_lengthens_the_interval),
        cmocka_unit_test(noise_does_not_make_it_oscillate),
        cmocka_unit_test(stalls_are_kept_within_the_overhead),
        cmocka_unit_test(iterations_slowed_down_beside_saves_count_as_their_cost),
        cmocka_unit_test(a_disk_that_hangs_holds_nobody_up_and_is_told_once),
        cmocka_unit_test(after_a_hang_the_next_save_begins_at_once),
        cmocka_unit_test(warm_up_iterations_tell_nothing),
        cmocka_unit_test(every_k_is_kept_whatever_it_costs),
        cmocka_unit_test(the_longest_interval_is_never_exceeded),
        cmocka_unit_test(rare_failures_make_saves_rare_where_they_cost),
        cmocka_unit_test(failed_saves_tell_nothing_about_the_device),
        cmocka_unit_test(after_going_back_steps_are_due_again),
        cmocka_unit_test(bad_configurations_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
