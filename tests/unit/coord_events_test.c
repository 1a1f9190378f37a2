/* What coord.h promises of events that should not be: each is refused with one STOP or ignored, and random
 * streams of good and bad events never break the coordinator's rules (its invariants abort if they do). */
#include "coord_script.h"

#include "base/rng.h"

#include <math.h>

static void refuse(struct script *s, struct coord_event event, const char *stop) {
    struct script tried = *s;
    tried.c = coord_copy(s->c);
    assert_non_null(tried.c);
    assert_string_equal(script_step(&tried, event), stop);
    assert_string_equal(script_tick(&tried), "");
    script_close(&tried);
}

static void an_impossible_rank_peer_or_kind_is_refused(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(4, 2, 9));
    script_start(&s);
    const char *no_rank = "STOP INTERNAL: an event of a rank that does not exist";
    refuse(&s, (struct coord_event){.kind = COORD_EXIT, .rank = 4}, no_rank);
    refuse(&s, (struct coord_event){.kind = COORD_BEAT, .rank = UINT32_MAX}, no_rank);
    const char *no_peer = "STOP INTERNAL: a suspicion of a rank that cannot be a peer";
    refuse(&s, (struct coord_event){.kind = COORD_SUSPECT, .rank = 1, .peer = 4}, no_peer);
    refuse(&s, (struct coord_event){.kind = COORD_SUSPECT, .rank = 1, .peer = 1}, no_peer);
    const char *no_kind = "STOP INTERNAL: an event of an unknown kind";
    refuse(&s, (struct coord_event){.kind = COORD_EVENT_COUNT}, no_kind);
    refuse(&s, (struct coord_event){.kind = (enum coord_event_kind)12345}, no_kind);
    refuse(&s, (struct coord_event){.kind = COORD_READY, .rank = 1}, "STOP INTERNAL: a rank was ready twice");
    script_close(&s);
}

static void an_impossible_report_is_refused(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(4, 2, 9));
    struct coord_event event = {.kind = COORD_REDUCED, .report = {.norm2 = 1.0}};
    const char *view = "STOP INTERNAL: a report of a view that has not begun";
    refuse(&s, event, view);
    script_start(&s);
    event.view = 2;
    refuse(&s, event, view);
    event.view = 1;
    event.report.iteration = 1;
    refuse(&s, event, "STOP INTERNAL: a report of an impossible iteration");
    event.report.iteration = 0;
    const double bad[] = {NAN, -1.0, INFINITY, 0x1p321};
    for (size_t i = 0; i < 4; i++) {
        event.report.norm2 = bad[i];
        event.report.nonfinite = 0;
        refuse(&s, event, "STOP INTERNAL: a report with an impossible norm or loss");
        event.report.nonfinite = 1;
        refuse(&s, event, "");
    }
    event.report = (struct coord_report){.norm2 = 1.0, .loss = 1}; /* rank 0 is not of the last stage */
    refuse(&s, event, "STOP INTERNAL: a report with an impossible norm or loss");
    script_reduced(&s, 0, 0, 1.0);
    event.report.loss = 0;
    refuse(&s, event, "STOP INTERNAL: a second report of one iteration");
    script_close(&s);
}

static void an_impossible_answer_to_a_fence_is_refused(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(4, 2, 9));
    script_start(&s);
    const char *not_asked = "STOP INTERNAL: an answer to a fence that was not asked for";
    struct coord_event event = {.kind = COORD_FENCED, .rank = 1, .view = 1};
    refuse(&s, event, not_asked);
    script_exit(&s, 0);
    refuse(&s, event, ""); /* of an older view */
    event.view = 3;
    refuse(&s, event, not_asked);
    event.view = 2;
    refuse(&s, event, "");
    event.has_report = true;
    event.report.iteration = 1;
    refuse(&s, event, "STOP INTERNAL: a report of an impossible iteration");
    script_fenced(&s, 1, 0, -1);
    event.has_report = false;
    refuse(&s, event, not_asked);
    refuse(&s, (struct coord_event){.kind = COORD_REDUCED, .rank = 1, .view = 2},
           "STOP INTERNAL: a report of a view that has not begun");
    script_close(&s);
}

static void an_impossible_answer_to_a_save_is_refused(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(4, 2, 9);
    config.save_every = 1;
    script_open(&s, config);
    script_start(&s);
    const char *stop = "STOP INTERNAL: an answer to a save that was not asked for";
    struct coord_event good = {
        .kind = COORD_SAVED, .rank = 2, .version = 1, .part = 1, .parts = 2, .ok = true};
    refuse(&s, good, stop);
    script_iterate(&s, 0, 1.0);
    refuse(&s, good, "");
    struct coord_event bad = good;
    bad.version = 2;
    refuse(&s, bad, stop);
    bad = good;
    bad.part = 0;
    refuse(&s, bad, stop);
    bad = good;
    bad.parts = 3;
    refuse(&s, bad, stop);
    script_saved(&s, 2, 1, 1, 2, true);
    refuse(&s, good, stop);
    script_close(&s);
}

static void events_of_dead_ranks_are_ignored_whatever_they_say(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(4, 2, 9));
    script_start(&s);
    script_exit(&s, 3);
    for (int kind = 0; kind < COORD_EVENT_COUNT; kind++) {
        struct coord_event event = {.rank = 3, .view = 77, .version = 99, .peer = 1234, .part = 5};
        event.kind = (enum coord_event_kind)kind;
        if (event.kind != COORD_STOPPING) refuse(&s, event, "");
    }
    refuse(&s, (struct coord_event){.kind = COORD_SUSPECT, .rank = 0, .peer = 3}, "");
    script_close(&s);
}

static void a_configuration_that_cannot_be_is_refused_by_name(void **state) {
    (void)state;
    const struct coord_config good = script_config(4, 2, 9);
    struct coord_config bad[11];
    for (size_t i = 0; i < 11; i++) bad[i] = good;
    bad[0].pipelines = 0;
    bad[1].stages = 0;
    bad[2].pipelines = bad[2].stages = 1u << 16;
    bad[3].first_version = 10;
    bad[4].saves_max = 0;
    bad[5].clip_norm = -1;
    bad[6].clip_norm = NAN;
    bad[7].start_ns = 0;
    bad[8].beat_ns = -1;
    bad[9].stall_ns = 0;
    bad[10].suspect_ns = 0;
    const char *const names[] = {"pipelines", "stages",    "pipelines", "final_version",
                                 "saves_max", "clip_norm", "clip_norm", "start_ns",
                                 "beat_ns",   "stall_ns",  "suspect_ns"};
    for (size_t i = 0; i < 11; i++) {
        struct pawl_error e = {0};
        struct coord *c = (struct coord *)&e;
        assert_int_equal(coord_new(&bad[i], &c, &e), PAWL_ARGUMENT);
        assert_null(c);
        if (strstr(e.text, names[i]) == NULL) fail_msg("wanted %s named, had: %s", names[i], e.text);
    }
}

static void a_copy_goes_its_own_way_from_the_same_digest(void **state) {
    (void)state;
    struct script s, t;
    struct coord_config config = script_config(6, 2, 9);
    config.save_every = 1;
    script_open(&s, config);
    script_start(&s);
    script_iterate(&s, 0, 1.0);
    script_suspect(&s, 0, 1);
    t = s;
    t.c = coord_copy(s.c);
    assert_true(coord_digest(t.c) == coord_digest(s.c));
    script_saved(&s, 0, 1, 0, 3, true);
    assert_true(coord_digest(t.c) != coord_digest(s.c));
    script_saved(&t, 0, 1, 0, 3, true);
    assert_true(coord_digest(t.c) == coord_digest(s.c));
    script_close(&s);
    assert_non_null(strstr(script_exit(&t, 1), "FENCE"));
    script_close(&t);
}

/* ---- random streams ---- */

static struct coord_config random_config(struct rng_stream *r) {
    struct coord_config config =
        script_config(1 + (uint32_t)rng_below(r, 4), 1 + (uint32_t)rng_below(r, 3), 0);
    config.first_version = rng_below(r, 2) ? 0 : rng_below(r, 5);
    config.final_version = config.first_version + rng_below(r, 6);
    config.save_every = rng_below(r, 3);
    config.saves_max = 1 + (uint32_t)rng_below(r, 3);
    config.save_retries = (uint32_t)rng_below(r, 3);
    config.clip_norm = rng_below(r, 2) ? 0 : 1.5;
    return config;
}

/* What the ranks would answer: the newest request of each kind. */
struct answers {
    struct coord_action save[12], fence[12];
    bool saves[12], fences[12];
};

static struct coord_report random_report(struct rng_stream *r, const struct script *s, uint32_t rank) {
    struct coord_report report = script_report(s, rank, coord_final(s->c), 1.0);
    uint64_t dice = coord_final(s->c) * 7 % 5; /* equal on all ranks */
    if (dice == 1) report.norm2 = 9.0;
    if (dice == 2) report.nonfinite = 2;
    if (dice == 3) report.overflow = coord_view(s->c) % 2;
    if (rng_below(r, 2000) == 0) report.norm2 = 4.0; /* a replica that differs */
    return report;
}

static struct coord_event random_event(struct rng_stream *r, const struct script *s,
                                       const struct answers *a) {
    uint32_t rank = (uint32_t)rng_below(r, s->config.ranks);
    struct coord_event event = {.rank = rank, .now_ns = s->now_ns, .view = coord_view(s->c)};
    event.report = random_report(r, s, rank);
    static const enum coord_event_kind kinds[] = {COORD_READY,   COORD_READY,  COORD_REDUCED, COORD_REDUCED,
                                                  COORD_REDUCED, COORD_FENCED, COORD_FENCED,  COORD_SAVED,
                                                  COORD_BEAT,    COORD_TICK};
    event.kind = kinds[rng_below(r, sizeof kinds / sizeof kinds[0])];
    if (rng_below(r, 150) == 0) event.kind = (enum coord_event_kind)rng_below(r, COORD_EVENT_COUNT);
    event.version = coord_final(s->c);
    event.has_report = rng_below(r, 3) > 0;
    event.ok = rng_below(r, 10) > 0;
    event.busy = rng_below(r, 2);
    event.progress = rng_next(r);
    event.peer = (uint32_t)rng_below(r, s->config.ranks);
    if (event.kind == COORD_SAVED && a->saves[rank]) {
        event.version = a->save[rank].version;
        event.part = a->save[rank].part;
        event.parts = a->save[rank].parts;
    }
    if (rng_below(r, 3000) == 0) event.view += rng_below(r, 3);
    if (rng_below(r, 3000) == 0) event.version = rng_next(r);
    if (rng_below(r, 3000) == 0) event.rank = (uint32_t)rng_next(r);
    return event;
}

/* Most events that would only stop the run are left out, so that streams get far. */
static bool worthwhile(struct rng_stream *r, const struct script *s, const struct coord_event *event,
                       const struct answers *a) {
    if (rng_below(r, 400) == 0 || event->rank >= s->config.ranks) return true;
    if (event->kind == COORD_SAVED) return a->saves[event->rank];
    if (event->kind == COORD_FENCED) return a->fences[event->rank];
    struct coord *tried = coord_copy(s->c);
    const struct coord_action *actions;
    size_t count = coord_step(tried, event, &actions);
    bool stopped = count > 0 && actions[count - 1].kind == COORD_STOP;
    coord_free(tried);
    return !stopped;
}

static void check_action(const struct script *s, const struct coord_action *a, struct answers *answers) {
    if (script_has_rank(a->kind)) assert_true(a->rank < s->config.ranks);
    if (a->kind == COORD_SAVE) {
        answers->save[a->rank] = *a;
        answers->saves[a->rank] = true;
    }
    if (a->kind == COORD_FENCE) {
        answers->fence[a->rank] = *a;
        answers->fences[a->rank] = true;
    }
    if (a->kind == COORD_GO) answers->fences[a->rank] = false;
}

struct tally {
    uint64_t finished, lost, stopped, durable, settled;
};

static void random_run(uint64_t seed, struct tally *tally) {
    struct rng_stream r = {.state = seed};
    struct script s;
    struct answers answers = {0};
    script_open(&s, random_config(&r));
    bool over = false;
    for (int step = 0; step < 3000 && !over; step++) {
        s.now_ns += (int64_t)rng_below(&r, 200000000);
        struct coord_event event = random_event(&r, &s, &answers);
        if (!worthwhile(&r, &s, &event, &answers)) continue;
        if (event.kind == COORD_SAVED && event.rank < s.config.ranks) answers.saves[event.rank] = false;
        if (event.kind == COORD_FENCED && event.rank < s.config.ranks) answers.fences[event.rank] = false;
        const struct coord_action *a;
        size_t count = coord_step(s.c, &event, &a);
        for (size_t i = 0; i < count; i++) {
            check_action(&s, &a[i], &answers);
            tally->finished += a[i].kind == COORD_FINISH && !over;
            tally->lost += a[i].kind == COORD_LOST;
            tally->stopped += a[i].kind == COORD_STOP;
            tally->durable += a[i].kind == COORD_DURABLE_AT;
            tally->settled += a[i].kind == COORD_GO && a[i].settle;
            over = over || a[i].kind == COORD_FINISH || a[i].kind == COORD_LOST || a[i].kind == COORD_STOP;
        }
    }
    if (over) assert_string_equal(script_exit(&s, 0), "");
    script_close(&s);
}

static void random_streams_never_break_the_rules(void **state) {
    (void)state;
    const char *given = getenv("PAWL_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : 1, runs = given != NULL ? 1 : 2000;
    struct tally tally = {0};
    for (uint64_t i = 0; i < runs; i++) random_run(seed + i, &tally);
    printf("seeds %llu..%llu (one of them: PAWL_SEED=n): finished %llu lost %llu stopped %llu durable %llu "
           "settled "
           "%llu\n",
           (unsigned long long)seed, (unsigned long long)(seed + runs - 1),
           (unsigned long long)tally.finished, (unsigned long long)tally.lost,
           (unsigned long long)tally.stopped, (unsigned long long)tally.durable,
           (unsigned long long)tally.settled);
    if (given != NULL) return;
    assert_true(tally.finished > 0 && tally.lost > 0 && tally.stopped > 0); /* the streams reach everything */
    assert_true(tally.durable > 0 && tally.settled > 0);
}

static void streams_of_pure_noise_never_break_the_rules(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct rng_stream r = {.state = seed};
        struct script s;
        script_open(&s, random_config(&r));
        for (int step = 0; step < 200; step++) {
            struct coord_event event;
            unsigned char *bytes = (unsigned char *)&event;
            for (size_t i = 0; i < sizeof event; i++)
                bytes[i] = rng_below(&r, 3) == 0 ? (unsigned char)rng_next(&r) : 0;
            struct coord_event sane = {.kind = (enum coord_event_kind)rng_below(&r, COORD_EVENT_COUNT + 1)};
            sane.now_ns = event.now_ns;
            sane.rank = rng_below(&r, 40) == 0 ? event.rank : (uint32_t)rng_below(&r, s.config.ranks);
            sane.peer = event.peer % 13;
            sane.view = event.view % 4;
            sane.version = event.version;
            sane.progress = event.progress;
            sane.part = event.part;
            sane.parts = event.parts;
            sane.ok = rng_below(&r, 2);
            sane.busy = rng_below(&r, 2);
            sane.has_report = rng_below(&r, 2);
            memcpy(&sane.report, &event.report, sizeof sane.report);
            const struct coord_action *a;
            coord_step(s.c, &sane, &a);
        }
        script_close(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_impossible_rank_peer_or_kind_is_refused),
        cmocka_unit_test(an_impossible_report_is_refused),
        cmocka_unit_test(an_impossible_answer_to_a_fence_is_refused),
        cmocka_unit_test(an_impossible_answer_to_a_save_is_refused),
        cmocka_unit_test(events_of_dead_ranks_are_ignored_whatever_they_say),
        cmocka_unit_test(a_configuration_that_cannot_be_is_refused_by_name),
        cmocka_unit_test(a_copy_goes_its_own_way_from_the_same_digest),
        cmocka_unit_test(random_streams_never_break_the_rules),
        cmocka_unit_test(streams_of_pure_noise_never_break_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
