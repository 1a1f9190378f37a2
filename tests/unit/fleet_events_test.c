/* Traces and rates as events: places and spares, order, oddities, draws that follow the seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fleet/events_read.h"
#include "kit/fleet_kit.h"

static struct fleet_events parse(const char *text, uint32_t machines) {
    struct fleet_events events = {0};
    struct pawl_error e = {0};
    if (fleet_events_parse(text, strlen(text), machines, 7, &events, &e) != PAWL_OK) fail_msg("%s", e.text);
    return events;
}

/* "-3@1.5" is machine 3 lost at 1.5 s. */
static void expect(const struct fleet_events *events, const char *wanted) {
    char text[1024] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < events->count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%c%u@%g", i > 0 ? " " : "",
                                 events->event[i].joins ? '+' : '-', events->event[i].machine,
                                 events->event[i].at_s);
    assert_string_equal(text, wanted);
}

/* What every list of events promises. */
static void check(const struct fleet_events *events) {
    bool *there = calloc(events->machines, sizeof *there);
    assert_non_null(there);
    for (uint32_t m = 0; m < events->present; m++) there[m] = true;
    for (uint32_t i = 0; i < events->count; i++) {
        const struct fleet_event *x = &events->event[i];
        assert_in_range(x->machine, 0, events->machines - 1);
        assert_true(there[x->machine] != x->joins);
        there[x->machine] = x->joins;
        assert_true(x->at_s >= 0 && (i == 0 || x->at_s >= x[-1].at_s));
    }
    free(there);
}

static void refuse(const char *text, const char *why) {
    struct fleet_events events = {0};
    struct pawl_error e = {0};
    if (fleet_events_parse(text, strlen(text), 4, 7, &events, &e) != PAWL_FORMAT) fail_msg("taken: %s", text);
    if (strstr(e.text, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", e.text, why);
}

static void a_job_starts_when_its_places_are_taken(void **state) {
    (void)state;
    struct fleet_events events = parse("0,add,a\n1000,add,b\n2000,add,c\n5000,remove,a\n9000,add,d\n", 2);
    assert_int_equal(events.present, 2);
    kit_near(events.seconds, 8, 1e-12);
    expect(&events, "-0@4 +0@4"); /* c waits since 2 s and takes the place of a; d then waits */
    fleet_events_close(&events);
}

static void a_job_starts_short_when_the_additions_end_before(void **state) {
    (void)state;
    struct fleet_events events = parse("0,add,a\n1000,add,b\n5000,remove,b\n6000,add,c\n7000,add,d\n", 4);
    assert_int_equal(events.present, 2);
    expect(&events, "-1@4 +2@5 +3@6"); /* places that were never taken come first */
    fleet_events_close(&events);
}

static void a_spare_that_goes_while_it_waits_takes_no_place(void **state) {
    (void)state;
    struct fleet_events events =
        parse("0,add,a\n0,add,b\n0,add,c\n0,add,d\n1000,remove,c\n2000,remove,a\n3000,remove,b\n", 2);
    expect(&events, "-0@2 +0@2 -1@3"); /* d, not c */
    fleet_events_close(&events);
}

static void lines_out_of_order_are_sorted_with_a_warning(void **state) {
    (void)state;
    struct fleet_events events = parse("0,add,a\n0,add,b\n9000,remove,a\n4000,remove,b\n", 2);
    expect(&events, "-1@4 -0@9");
    assert_string_equal(events.warnings, "trace, line 4: goes back in time; the lines were sorted\n");
    fleet_events_close(&events);
}

static void who_is_added_or_removed_twice_is_ignored_with_a_warning(void **state) {
    (void)state;
    struct fleet_events events =
        parse("0,add,a\n0,add,b\n1000,add,a\n2000,remove,b\n3000,remove,b\n4000,remove,z\n", 2);
    expect(&events, "-1@2");
    assert_string_equal(events.warnings,
                        "trace, line 3: node a is added twice; ignored\n"
                        "trace, line 5: node b is removed and not there, as others are; ignored\n");
    fleet_events_close(&events);
}

static void what_is_cut_or_empty_is_refused(void **state) {
    (void)state;
    refuse("", "nothing is recorded");
    refuse("0,add,node1\n0,add,node2\n1000,remove,node",
           "line 3: node node never came: the file seems to be cut");
    refuse("0,add,node1\n1000,rem", "line 2");
    refuse("0,remove,a\n", "no machine is ever there");
    refuse(",Time,GPUs\n0,1,0\n1,2,0\n", "no machine is ever there");
    refuse(",Time,GPUs\n0,1,4294967295\n", "line 2: 4294967295 at once");
}

static void counts_become_machines_and_victims_are_drawn_by_the_seed(void **state) {
    (void)state;
    const char *text = ",Time,GPUs\n0,100,16\n1,163,16\n2,226,7\n3,289,12\n4,352,0\n";
    struct fleet_events a = parse(text, 4), b = parse(text, 4), other = {0};
    assert_int_equal(a.present, 4);
    assert_int_equal(a.count, 5); /* 4, 1, 3; the end is no failure */
    kit_near(a.event[0].at_s, 126, 1e-12);
    kit_near(a.seconds, 189, 1e-12);
    check(&a);
    assert_memory_equal(a.event, b.event, a.count * sizeof *a.event);
    bool differs = false;
    for (uint64_t seed = 0; seed < 20 && !differs; seed++) {
        assert_int_equal(fleet_events_parse(text, strlen(text), 4, seed, &other, NULL), PAWL_OK);
        differs = memcmp(a.event, other.event, a.count * sizeof *a.event) != 0;
        fleet_events_close(&other);
    }
    assert_true(differs);
    fleet_events_close(&a);
    fleet_events_close(&b);
}

static void a_fall_of_spares_can_spare_the_job(void **state) {
    (void)state;
    uint32_t losses = 0; /* of 2 out of 8, 4 of them in places: 1 on the average */
    for (uint64_t seed = 0; seed < 400; seed++) {
        const char *text = "2024-01-01, 00:00:00, 8\n2024-01-01, 00:01:00, 6\n";
        struct fleet_events events = {0};
        assert_int_equal(fleet_events_parse(text, strlen(text), 4, seed, &events, NULL), PAWL_OK);
        for (uint32_t i = 0; i < events.count; i++) losses += !events.event[i].joins;
        check(&events);
        fleet_events_close(&events);
    }
    assert_in_range(losses, 340, 460);
}

static void both_recorded_traces_keep_what_events_promise(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t machines, present, lost, joined;
    } cases[] = {{"p3-trace.csv", 32, 32, 167, 145}, {"gpus_trace.csv", 14, 14, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[400];
        struct fleet_events events = {0};
        struct pawl_error e = {0};
        uint32_t lost = 0, joined = 0;
        snprintf(path, sizeof path, "%s/bench/traces/%s", PAWL_SOURCE_DIR, cases[i].name);
        if (fleet_events_read(path, cases[i].machines, 1, &events, &e) != PAWL_OK) fail_msg("%s", e.text);
        for (uint32_t k = 0; k < events.count; k++) events.event[k].joins ? joined++ : lost++;
        check(&events);
        assert_int_equal(events.present, cases[i].present);
        if (cases[i].lost > 0) {
            assert_int_equal(lost, cases[i].lost);
            assert_int_equal(joined, cases[i].joined);
            kit_near(events.seconds, 40920 - 1500, 1e-9);
        }
        assert_null(events.warnings);
        fleet_events_close(&events);
    }
}

static void a_file_that_is_not_there_is_named(void **state) {
    (void)state;
    struct fleet_events events = {0};
    struct pawl_error e = {0};
    assert_int_equal(fleet_events_read("/proc/nonexistent/t.csv", 2, 1, &events, &e), PAWL_NOT_FOUND);
    assert_non_null(strstr(e.text, "/proc/nonexistent/t.csv"));
}

/* ---- rates ---- */

static struct fleet_events draw(const struct fleet_rates *rates) {
    struct fleet_events events = {0};
    struct pawl_error e = {0};
    if (fleet_events_draw(rates, &events, &e) != PAWL_OK) fail_msg("%s", e.text);
    check(&events);
    return events;
}

static void failures_come_evenly_in_bursts_and_machines_return(void **state) {
    (void)state;
    struct fleet_rates rates = {
        .machines = 6, .seconds = 100, .every_s = 30, .repair_s = 40, .burst = 2, .seed = 3};
    struct fleet_events events = draw(&rates);
    char text[400] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < events.count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%c%g ", events.event[i].joins ? '+' : '-',
                                 events.event[i].at_s);
    assert_string_equal(text, "-30 -30 -60 -60 +70 +70 -90 -90 ");
    fleet_events_close(&events);
}

static void nobody_is_left_to_fail_when_all_are_gone(void **state) {
    (void)state;
    struct fleet_rates rates = {.machines = 3, .seconds = 100, .every_s = 10};
    struct fleet_events events = draw(&rates);
    assert_int_equal(events.count, 3);
    fleet_events_close(&events);
}

static void every_machine_fails_once_in_its_mean_time(void **state) {
    (void)state;
    for (uint32_t burst = 1; burst <= 4; burst += 3) {
        struct fleet_rates rates = {
            .machines = 50, .seconds = 1e6, .mtbf_s = 1e4, .repair_s = 1, .burst = burst, .seed = 5};
        struct fleet_events events = draw(&rates);
        uint32_t lost = 0;
        for (uint32_t i = 0; i < events.count; i++) lost += !events.event[i].joins;
        assert_in_range(lost, 4800, 5200); /* 50 * 1e6 / 1e4 */
        fleet_events_close(&events);
    }
}

static void a_share_is_dead_from_the_start_at_least_one(void **state) {
    (void)state;
    static const struct {
        double share;
        uint32_t dead;
    } cases[] = {{0.01, 1}, {0.05, 2}, {0.10, 3}, {0.5, 16}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fleet_rates rates = {.machines = 32, .seconds = 10, .dead_share = cases[i].share};
        struct fleet_events events = draw(&rates);
        assert_int_equal(events.count, cases[i].dead);
        for (uint32_t k = 0; k < events.count; k++) assert_true(events.event[k].at_s == 0);
        fleet_events_close(&events);
    }
}

static bool is_lost(const struct fleet_events *events, uint32_t machine) {
    for (uint32_t i = 0; i < events->count; i++)
        if (events->event[i].machine == machine) return true;
    return false;
}

static void more_dead_include_the_fewer_and_another_seed_has_others(void **state) {
    (void)state;
    bool differs = false;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct fleet_rates rates = {.machines = 16, .seconds = 10, .dead_share = 0.05, .seed = seed};
        struct fleet_events few = draw(&rates);
        for (double share = 0.1; share < 0.95; share += 0.1) {
            rates.dead_share = share;
            struct fleet_events more = draw(&rates);
            assert_true(more.count >= few.count);
            for (uint32_t i = 0; i < few.count; i++)
                if (!is_lost(&more, few.event[i].machine))
                    fail_msg("seed %u: %u is dead of %u, not of %u", (unsigned)seed, few.event[i].machine,
                             few.count, more.count);
            fleet_events_close(&few);
            few = more;
        }
        rates.seed = seed + 1, rates.dead_share = 0.05;
        struct fleet_events other = draw(&rates);
        differs = differs || other.event[0].machine != few.event[0].machine;
        fleet_events_close(&few);
        fleet_events_close(&other);
    }
    assert_true(differs);
}

static void a_rate_beyond_all_use_is_refused(void **state) {
    (void)state;
    struct fleet_rates rates = {.machines = 3, .seconds = 1e9, .every_s = 1e-3};
    struct fleet_events events = {0};
    struct pawl_error e = {0};
    assert_int_equal(fleet_events_draw(&rates, &events, &e), PAWL_ARGUMENT);
}

static void a_raised_flag_ends_the_drawing(void **state) {
    (void)state;
    bool stop = true;
    struct fleet_rates rates = {.machines = 3, .seconds = 1e9, .mtbf_s = 1e3, .repair_s = 1, .stop = &stop};
    struct fleet_events events = {0};
    assert_int_equal(fleet_events_draw(&rates, &events, NULL), PAWL_CANCELLED);
    rates.mtbf_s = 0, rates.every_s = 1e3;
    assert_int_equal(fleet_events_draw(&rates, &events, NULL), PAWL_CANCELLED);
    assert_null(events.event);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_starts_when_its_places_are_taken),
        cmocka_unit_test(a_job_starts_short_when_the_additions_end_before),
        cmocka_unit_test(a_spare_that_goes_while_it_waits_takes_no_place),
        cmocka_unit_test(lines_out_of_order_are_sorted_with_a_warning),
        cmocka_unit_test(who_is_added_or_removed_twice_is_ignored_with_a_warning),
        cmocka_unit_test(what_is_cut_or_empty_is_refused),
        cmocka_unit_test(counts_become_machines_and_victims_are_drawn_by_the_seed),
        cmocka_unit_test(a_fall_of_spares_can_spare_the_job),
        cmocka_unit_test(both_recorded_traces_keep_what_events_promise),
        cmocka_unit_test(a_file_that_is_not_there_is_named),
        cmocka_unit_test(failures_come_evenly_in_bursts_and_machines_return),
        cmocka_unit_test(nobody_is_left_to_fail_when_all_are_gone),
        cmocka_unit_test(every_machine_fails_once_in_its_mean_time),
        cmocka_unit_test(a_share_is_dead_from_the_start_at_least_one),
        cmocka_unit_test(more_dead_include_the_fewer_and_another_seed_has_others),
        cmocka_unit_test(a_rate_beyond_all_use_is_refused),
        cmocka_unit_test(a_raised_flag_ends_the_drawing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
