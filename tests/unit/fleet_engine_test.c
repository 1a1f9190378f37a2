/* Whole runs of one policy: rows worked out by hand, and what must hold for every policy on every list of
 * events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kit/fleet_kit.h"

static struct fleet_run run(struct fleet_kit *k, const char *policy, const struct fleet_events *events,
                            double seconds) {
    struct fleet_run out;
    struct pawl_error e = {0};
    if (fleet_engine_run(&k->job, fleet_policy_find(policy), events, seconds, NULL, &out, &e) != PAWL_OK)
        fail_msg("%s", e.text);
    return out;
}

static void open_plain(struct fleet_kit *k) {
    kit_open(k, 2, 2, 4, 2); /* 8 micro-batches in 15 s */
    kit_set(k, "common.node_ready_s=10");
    kit_set(k, "common.price_per_hour=2");
    kit_set(k, "drop-replica.checkpoint_every_s=0");
    kit_set(k, "recycle.checkpoint_every_s=0");
    kit_job(k);
}

static void a_run_of_drop_replica_adds_up(void **state) {
    (void)state;
    struct fleet_kit k;
    struct fleet_event list[] = {{100, 1, false}, {200, 1, true}};
    struct fleet_events events = {.event = list, .count = 2, .machines = 4, .present = 4};
    open_plain(&k);
    struct fleet_run r = run(&k, "drop-replica", &events, 400);
    /* 100 s at 8/15, of which 7.5 are lost; 10 s stop; 100 s at 8/27 until 210; 5 s stop; 185 s at 8/15 */
    double counted = (92.5 + 185) * 8 / 15 + 100.0 * 8 / 27;
    kit_near(r.row.goodput, counted / 400, 1e-9);
    kit_near(r.row.relative, counted / 400 / (8.0 / 15), 1e-9);
    kit_near(r.row.throughput, counted / 377.5, 1e-9);
    kit_near(r.row.lost_s, 7.5, 1e-9);
    kit_near(r.row.stopped_s, 15, 1e-9);
    kit_near(r.row.availability, 385.0 / 400, 1e-9);
    kit_near(r.row.ettr, 377.5 / 400, 1e-9);
    kit_near(r.row.worker_hours, (4 * 400 - 110) / 3600.0, 1e-9); /* three from 100 to 210 */
    kit_near(r.row.cost, r.row.worker_hours * 2 / counted * 1e6, 1e-6);
    assert_int_equal(r.row.failures, 1);
    assert_int_equal(r.row.joins, 1);
    assert_int_equal(r.row.stops, 2);
    assert_int_equal(r.row.rollbacks, 0);
    assert_string_equal(r.row.note, "");
    free(r.samples);
    kit_close(&k);
}

static void samples_show_every_turn(void **state) {
    (void)state;
    struct fleet_kit k;
    struct fleet_event list[] = {{100, 1, false}};
    struct fleet_events events = {.event = list, .count = 1, .machines = 4, .present = 4};
    open_plain(&k);
    struct fleet_run r = run(&k, "drop-replica", &events, 200);
    static const struct {
        double at_s, rate;
        uint32_t alive;
    } wanted[] = {{0, 8.0 / 15, 4}, {100, 0, 3}, {110, 8.0 / 27, 3}, {200, 8.0 / 27, 3}};
    assert_int_equal(r.sample_count, 4);
    for (int i = 0; i < 4; i++) {
        kit_near(r.samples[i].at_s, wanted[i].at_s, 1e-9);
        kit_near(r.samples[i].rate, wanted[i].rate, 1e-9);
        assert_int_equal(r.samples[i].alive, wanted[i].alive);
    }
    assert_int_equal(r.samples[1].counted, (uint64_t)(92.5 * 8 / 15));
    free(r.samples);
    kit_close(&k);
}

static void a_machine_that_goes_before_it_is_ready_was_never_there(void **state) {
    (void)state;
    struct fleet_kit k;
    struct fleet_event list[] = {{100, 1, false}, {150, 1, true}, {155, 1, false}, {190, 1, true}};
    struct fleet_events events = {.event = list, .count = 4, .machines = 4, .present = 4};
    open_plain(&k);
    struct fleet_run r = run(&k, "fault-scaled", &events, 400);
    kit_near(r.row.goodput * 400, (100 + 200) * 8.0 / 15 + 100 * 8.0 / 20, 1e-9);
    assert_int_equal(r.row.failures, 1);
    assert_int_equal(r.row.joins, 1);
    free(r.samples);
    kit_close(&k);
}

static void a_failure_during_a_stop_makes_it_last_longer_and_loses_nothing_more(void **state) {
    (void)state;
    struct fleet_kit k;
    struct fleet_event list[] = {{100, 0, false}, {104, 3, false}};
    struct fleet_events events = {.event = list, .count = 2, .machines = 4, .present = 4};
    open_plain(&k);
    struct fleet_run r = run(&k, "recycle", &events, 200);
    kit_near(r.row.stopped_s, 14, 1e-9); /* 4, then 10 */
    kit_near(r.row.lost_s, 7.5, 1e-9);
    free(r.samples);
    kit_close(&k);
}

static void a_lost_stage_loses_the_work_since_the_newest_durable_save(void **state) {
    (void)state;
    struct fleet_kit k;
    struct fleet_event list[] = {{100, 0, false}, {100, 2, false}};
    struct fleet_events events = {.event = list, .count = 2, .machines = 4, .present = 4};
    kit_open(&k, 2, 2, 4, 2);
    kit_set(&k, "recycle.checkpoint_every_s=30");
    kit_set(&k, "recycle.checkpoint_write_s=4");
    kit_job(&k);
    struct fleet_run r = run(&k, "recycle", &events, 100.001);
    /* saves begin at 30, 64 and 98 s; the one of 64 s, with 60 s of work, is the newest that is durable */
    kit_near(r.row.ettr * 100.001, 60, 1e-6);
    kit_near(r.row.lost_s, 30, 1e-6);
    kit_near(r.row.saving_s, 10, 1e-6);
    assert_int_equal(r.row.rollbacks, 1);
    free(r.samples);
    kit_close(&k);
}

static void who_cannot_run_at_all_says_why(void **state) {
    (void)state;
    struct fleet_kit k;
    struct fleet_events events = {.machines = 4, .present = 4};
    kit_open(&k, 2, 2, 4, 2);
    k.profile.memory_bytes = 1000;
    k.stage[0].state_bytes = 900;
    kit_job(&k);
    struct fleet_run r = run(&k, "bamboo", &events, 100);
    kit_near(r.row.idle_s, 100, 0);
    kit_near(r.row.goodput, 0, 0);
    kit_near(r.row.relative, 0, 0);
    assert_non_null(strstr(r.row.note, "cannot run: out of memory"));
    free(r.samples);
    kit_close(&k);
}

static void who_ran_out_of_machines_says_so(void **state) {
    (void)state;
    struct fleet_kit k;
    struct fleet_event list[] = {{1, 0, false}, {2, 1, false}, {3, 2, false}, {4, 3, false}};
    struct fleet_events events = {.event = list, .count = 4, .machines = 4, .present = 4};
    open_plain(&k);
    for (const char *const *name = pawl_sim_policies(); *name != NULL; name++) {
        struct fleet_run r = run(&k, *name, &events, 100);
        if (r.row.goodput > 0)
            assert_string_equal(r.row.note, "");
        else
            assert_string_equal(r.row.note, "cannot run: no machine is left");
        free(r.samples);
    }
    events.count = 3; /* one is left, of pipelines of two */
    struct fleet_run r = run(&k, "drop-replica", &events, 100);
    assert_string_equal(r.row.note, "cannot run: too few machines");
    free(r.samples);
    events.count = 1; /* the end comes in its stop */
    r = run(&k, "drop-replica", &events, 2);
    assert_string_equal(r.row.note, "nothing counts: it stood still or lost all that it did");
    free(r.samples);
    kit_close(&k);
}

static void a_raised_flag_ends_it(void **state) {
    (void)state;
    struct fleet_kit k;
    struct fleet_event list[] = {{100, 0, false}};
    struct fleet_events events = {.event = list, .count = 1, .machines = 4, .present = 4};
    bool stop = true;
    struct fleet_watch watch = {.stop = &stop};
    struct fleet_run r;
    open_plain(&k);
    assert_int_equal(fleet_engine_run(&k.job, &fleet_oobleck, &events, 200, &watch, &r, NULL),
                     PAWL_CANCELLED);
    assert_null(r.samples);
    kit_close(&k);
}

struct heard {
    double share;
    uint32_t calls;
    bool stop;
};

static void hear(void *context, double share) {
    struct heard *h = context;
    assert_true(share >= h->share && share <= 1);
    h->share = share;
    h->stop = ++h->calls == 3;
}

static void a_long_run_tells_how_far_it_is_and_can_be_stopped_there(void **state) {
    (void)state;
    enum { CHANGES = 20000 };
    struct fleet_kit k;
    struct fleet_event *list = calloc(CHANGES, sizeof *list);
    assert_non_null(list);
    for (uint32_t i = 0; i < CHANGES; i++) list[i] = (struct fleet_event){100.0 * (i + 1), 1, i % 2 == 1};
    struct fleet_events events = {.event = list, .count = CHANGES, .machines = 4, .present = 4};
    struct heard heard = {0};
    struct fleet_watch watch = {.stop = &heard.stop, .progress = hear, .context = &heard};
    struct fleet_run r;
    open_plain(&k);
    assert_int_equal(
        fleet_engine_run(&k.job, &fleet_fault_scaled, &events, 100.0 * (double)CHANGES, &watch, &r, NULL),
        PAWL_CANCELLED);
    assert_int_equal(heard.calls, 3);
    assert_true(heard.share > 0.1 && heard.share < 0.9);
    kit_close(&k);
    free(list);
}

static void those_who_change_at_one_time_are_one_change_whatever_their_order(void **state) {
    (void)state;
    struct fleet_kit k;
    /* 3 comes at the very time at which 0 and 1 go, 10 s after its event */
    struct fleet_event a[] = {
        {100, 3, false}, {150, 3, true}, {160, 1, false}, {160, 0, false}, {170, 2, false}};
    struct fleet_event b[] = {
        {100, 3, false}, {150, 3, true}, {160, 0, false}, {160, 1, false}, {170, 2, false}};
    struct fleet_events first = {.event = a, .count = 5, .machines = 4, .present = 4}, second = first;
    second.event = b;
    open_plain(&k);
    struct fleet_run x = run(&k, "recycle", &first, 400), y = run(&k, "recycle", &second, 400);
    assert_int_equal(x.sample_count, y.sample_count);
    for (uint32_t i = 0; i < x.sample_count; i++) {
        assert_true(x.samples[i].at_s == y.samples[i].at_s && x.samples[i].rate == y.samples[i].rate);
        assert_int_equal(x.samples[i].alive, y.samples[i].alive);
    }
    assert_int_equal(x.row.failures, 4);
    assert_int_equal(x.row.joins, 1);
    free(x.samples);
    free(y.samples);
    kit_close(&k);
}

/* ---- what holds always ---- */

static struct fleet_events draw(const struct fleet_rates *rates) {
    struct fleet_events events = {0};
    assert_int_equal(fleet_events_draw(rates, &events, NULL), PAWL_OK);
    return events;
}

static void check_row(const struct fleet_run *r, double seconds, uint32_t machines) {
    const struct pawl_sim_row *row = &r->row;
    double useful_s = row->ettr * seconds;
    kit_near(useful_s + row->lost_s + row->saving_s + row->stopped_s + row->idle_s, seconds, 1e-6 * seconds);
    assert_true(useful_s >= 0 && row->lost_s >= 0 && row->saving_s >= 0);
    assert_true(row->stopped_s >= 0 && row->idle_s >= 0 && row->goodput >= 0);
    kit_near(row->goodput * seconds, row->throughput * useful_s, 1e-6 * (1 + row->goodput * seconds));
    assert_true(row->worker_hours <= machines * seconds / 3600 + 1e-9);
    assert_true(r->sample_count >= 2);
    for (uint32_t i = 1; i < r->sample_count; i++) assert_true(r->samples[i].at_s >= r->samples[i - 1].at_s);
}

static void time_adds_up_for_every_policy_and_any_failures(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct fleet_rates rates = {.machines = 12,
                                    .seconds = 40000,
                                    .mtbf_s = 5000 * (double)(1 + seed % 5),
                                    .repair_s = seed % 3 == 0 ? 0 : 500 * (double)(seed % 7),
                                    .burst = 1 + (uint32_t)(seed % 3),
                                    .seed = seed};
        struct fleet_events events = draw(&rates);
        struct fleet_kit k;
        kit_open(&k, 4, 3, 6, 3);
        kit_job(&k);
        for (const char *const *name = pawl_sim_policies(); *name != NULL; name++) {
            struct fleet_run a = run(&k, *name, &events, rates.seconds),
                             b = run(&k, *name, &events, rates.seconds);
            check_row(&a, rates.seconds, 12);
            assert_memory_equal(&a.row.goodput, &b.row.goodput, sizeof a.row.goodput);
            assert_int_equal(a.sample_count, b.sample_count);
            for (uint32_t i = 0; i < a.sample_count; i++) {
                assert_true(a.samples[i].at_s == b.samples[i].at_s && a.samples[i].rate == b.samples[i].rate);
                assert_int_equal(a.samples[i].counted, b.samples[i].counted);
            }
            free(a.samples);
            free(b.samples);
        }
        fleet_events_close(&events);
        kit_close(&k);
    }
}

static void without_failures_and_saves_everybody_runs_at_full_speed(void **state) {
    (void)state;
    struct fleet_kit k;
    struct fleet_events events = {.machines = 12, .present = 12};
    kit_open(&k, 4, 3, 6, 3);
    for (uint32_t i = 0; i < k.constants.count; i++)
        if (strncmp(k.constants.constant[i].name, "checkpoint_every", 16) == 0)
            k.constants.constant[i].value = 0;
    kit_job(&k);
    for (const char *const *name = pawl_sim_policies(); *name != NULL; name++) {
        struct fleet_run r = run(&k, *name, &events, 10000);
        kit_near(r.row.relative, 1, 1e-12);
        kit_near(r.row.availability, 1, 1e-12);
        free(r.samples);
    }
    kit_close(&k);
}

/* A planner that finds a shorter period with a hole than without: of which a policy that has everybody could
 * make use. */
static pawl_code ask_oddly(void *context, enum pawl_policy policy, const uint32_t *holes,
                           struct fleet_period *out, struct pawl_error *e) {
    pawl_code code = kit_ask(context, policy, holes, out, e);
    uint64_t mixed = holes[0] * 7 + holes[1] * 5 + holes[2] * 3;
    out->ns = out->ns / 2 + (10 + mixed) % 11 * 1000000000u;
    return code;
}

static void check_relative(struct fleet_kit *k, const struct fleet_events *events, double seconds) {
    for (const char *const *name = pawl_sim_policies(); *name != NULL; name++) {
        struct fleet_run r = run(k, *name, events, seconds);
        if (!(r.row.relative >= 0 && r.row.relative <= 1))
            fail_msg("%s makes %.17g of its ideal", *name, r.row.relative);
        for (uint32_t i = 0; i < r.sample_count && r.row.relative > 0; i++)
            if (r.samples[i].rate > r.row.goodput / r.row.relative * (1 + 1e-12))
                fail_msg("%s: its ideal is %.17g, and it went at %.17g", *name,
                         r.row.goodput / r.row.relative, r.samples[i].rate);
        free(r.samples);
    }
}

static void nobody_is_faster_than_its_ideal_whatever_fails(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct fleet_rates rates = {.machines = 24,
                                    .seconds = 40000,
                                    .mtbf_s = 20000 * (double)(1 + seed % 7),
                                    .repair_s = 400 * (double)(1 + seed % 11),
                                    .burst = 1 + (uint32_t)(seed % 2),
                                    .seed = seed};
        struct fleet_events events = draw(&rates);
        struct fleet_kit k;
        static const uint32_t stages[] = {3, 4, 6, 8};
        kit_open(&k, 24 / stages[seed % 4], stages[seed % 4], 2 + (uint32_t)(seed % 9), 2);
        for (uint32_t s = 0; s < stages[seed % 4]; s++) k.stage[s].forward = 1 + (double)((seed + s) % 3);
        for (uint32_t i = 0; i < k.constants.count; i++) { /* nothing hides a rate that is too high */
            const char *name = k.constants.constant[i].name;
            if (strncmp(name, "checkpoint_every", 16) == 0 || strcmp(name, "ceiling") == 0)
                k.constants.constant[i].value = 0;
            else if (strcmp(name, "fault_threshold") == 0)
                k.constants.constant[i].value = (double)(seed % 3);
        }
        kit_job(&k);
        check_relative(&k, &events, rates.seconds);
        struct fleet_periods *honest = k.job.periods, *odd = NULL;
        assert_int_equal(fleet_periods_open(k.job.stages, ask_oddly, &k.job, &odd, NULL), PAWL_OK);
        k.job.periods = odd;
        check_relative(&k, &events, rates.seconds);
        k.job.periods = honest;
        fleet_periods_close(odd);
        fleet_events_close(&events);
        kit_close(&k);
    }
}

static void longer_stops_and_more_failures_never_help(void **state) {
    (void)state;
    static const char *const stops[] = {"drop-replica.detect_s", "checkpoint-restart.restart_s",
                                        "oobleck.rendezvous_s",  "bamboo.rendezvous_s",
                                        "varuna.stop_s",         "recycle.rebuild_s",
                                        "pawl.detect_s"};
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        char policy[40], assignment[80];
        double last = 1e300;
        snprintf(policy, sizeof policy, "%.*s", (int)strcspn(stops[i], "."), stops[i]);
        for (int factor = 0; factor < 4; factor++) {
            struct fleet_rates rates = {
                .machines = 12, .seconds = 40000, .every_s = 2000, .repair_s = 3000, .seed = 4};
            struct fleet_events events = draw(&rates);
            struct fleet_kit k;
            kit_open(&k, 4, 3, 6, 3);
            snprintf(assignment, sizeof assignment, "%s=%d", stops[i], 40 * factor);
            kit_set(&k, assignment);
            kit_job(&k);
            struct fleet_run r = run(&k, policy, &events, rates.seconds);
            if (!(r.row.goodput < last)) fail_msg("%s: %g after %g", assignment, r.row.goodput, last);
            last = r.row.goodput;
            free(r.samples);
            fleet_events_close(&events);
            kit_close(&k);
        }
    }
    for (const char *const *name = pawl_sim_policies(); *name != NULL; name++) {
        double last = 1e300;
        for (double every_s = 32000; every_s >= 1000; every_s /= 4) {
            struct fleet_rates rates = {.machines = 12, .seconds = 40000, .every_s = every_s, .seed = 4};
            struct fleet_events events = draw(&rates);
            struct fleet_kit k;
            kit_open(&k, 4, 3, 6, 3);
            kit_job(&k);
            struct fleet_run r = run(&k, *name, &events, rates.seconds);
            if (!(r.row.goodput <= last))
                fail_msg("%s every %g s: %g after %g", *name, every_s, r.row.goodput, last);
            last = r.row.goodput;
            free(r.samples);
            fleet_events_close(&events);
            kit_close(&k);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_of_drop_replica_adds_up),
        cmocka_unit_test(samples_show_every_turn),
        cmocka_unit_test(a_machine_that_goes_before_it_is_ready_was_never_there),
        cmocka_unit_test(a_failure_during_a_stop_makes_it_last_longer_and_loses_nothing_more),
        cmocka_unit_test(a_lost_stage_loses_the_work_since_the_newest_durable_save),
        cmocka_unit_test(who_cannot_run_at_all_says_why),
        cmocka_unit_test(who_ran_out_of_machines_says_so),
        cmocka_unit_test(a_raised_flag_ends_it),
        cmocka_unit_test(a_long_run_tells_how_far_it_is_and_can_be_stopped_there),
        cmocka_unit_test(those_who_change_at_one_time_are_one_change_whatever_their_order),
        cmocka_unit_test(time_adds_up_for_every_policy_and_any_failures),
        cmocka_unit_test(without_failures_and_saves_everybody_runs_at_full_speed),
        cmocka_unit_test(nobody_is_faster_than_its_ideal_whatever_fails),
        cmocka_unit_test(longer_stops_and_more_failures_never_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
