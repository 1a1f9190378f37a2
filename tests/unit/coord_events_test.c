/* What coord.h promises of events that should not be: each is refused with one STOP or ignored, and streams
 * of noise never break the coordinator's rules (its invariants abort if they do). Streams of good events in
 * any order are the explorer's (tests/explore/coord_explore_test.c). */
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
    refuse(&s, (struct coord_event){.kind = COORD_LEAVING, .rank = 4}, no_rank);
    const char *no_peer = "STOP INTERNAL: a suspicion of a rank that cannot be a peer";
    refuse(&s, (struct coord_event){.kind = COORD_SUSPECT, .rank = 1, .peer = 4}, no_peer);
    refuse(&s, (struct coord_event){.kind = COORD_SUSPECT, .rank = 1, .peer = 1}, no_peer);
    const char *no_kind = "STOP INTERNAL: an event of an unknown kind";
    refuse(&s, (struct coord_event){.kind = COORD_EVENT_COUNT}, no_kind);
    refuse(&s, (struct coord_event){.kind = (enum coord_event_kind)12345}, no_kind);
    refuse(&s, (struct coord_event){.kind = COORD_READY, .rank = 1}, "STOP INTERNAL: a rank was ready twice");
    refuse(&s, (struct coord_event){.kind = COORD_STARTED, .rank = 1},
           "STOP INTERNAL: a process was started at a place that is taken");
    refuse(&s, (struct coord_event){.kind = COORD_BEAT, .rank = 1, .work = COORD_WORK_COUNT},
           "STOP INTERNAL: a beat of an unknown phase of work");
    script_close(&s);
}

static void an_impossible_report_is_refused(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(4, 2, 9));
    script_started(&s, 0);
    struct coord_event event = {.kind = COORD_REDUCED, .report = {.norm2 = 1.0}};
    refuse(&s, event, "STOP INTERNAL: a rank that is no member says what only members can");
    for (uint32_t rank = 1; rank < 4; rank++) script_started(&s, rank);
    for (uint32_t rank = 0; rank < 4; rank++) script_ready(&s, rank);
    for (uint32_t rank = 0; rank < 4; rank++) script_fenced_empty(&s, rank);
    event.view = 1;
    refuse(&s, event, "STOP INTERNAL: a report of a view that has not begun");
    script_found(&s, 0);
    script_planned(&s);
    event.view = 2;
    refuse(&s, event, "STOP INTERNAL: a report of a view that has not begun");
    event.view = 1;
    const char *not_held = "STOP INTERNAL: a report of a chunk that its rank does not hold";
    event.chunk = 1;
    refuse(&s, event, not_held);
    event.chunk = 2;
    refuse(&s, event, not_held);
    event.chunk = 0;
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
    event.report = (struct coord_report){.norm2 = 1.0, .loss = 1}; /* chunk 0 is not the last */
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
    struct coord_fenced_pair pairs[2] = {{.chunk = 1, .work = COORD_NO_WORK}, {.chunk = 1}};
    struct coord_fenced fenced = {.pairs = pairs, .pair_count = 1};
    const char *not_asked = "STOP INTERNAL: an answer to a fence that was not asked for";
    struct coord_event event = {.kind = COORD_FENCED, .rank = 1, .view = 1, .fenced = &fenced};
    refuse(&s, event, not_asked);
    script_exit(&s, 0);
    refuse(&s, event, ""); /* of an older view */
    event.view = 3;
    refuse(&s, event, not_asked);
    event.view = 2;
    refuse(&s, event, "");
    const char *twice = "STOP INTERNAL: an answer to a fence with a chunk twice, or of no model";
    fenced.pair_count = 2;
    refuse(&s, event, twice);
    fenced.pair_count = 1;
    pairs[0].chunk = 2;
    refuse(&s, event, twice);
    pairs[0].chunk = 1;
    pairs[0].has_report = true;
    pairs[0].report.iteration = 1;
    refuse(&s, event, "STOP INTERNAL: a report of an impossible iteration");
    event.fenced = NULL;
    refuse(&s, event, "STOP INTERNAL: an answer to a fence that says nothing");
    script_fenced(&s, 1, 0, -1);
    event.fenced = &fenced;
    refuse(&s, event, not_asked);
    refuse(&s, (struct coord_event){.kind = COORD_REDUCED, .rank = 1, .view = 2},
           "STOP INTERNAL: a report of a view that has not begun");
    script_close(&s);
}

static void an_answer_of_the_driver_that_was_not_asked_for_is_refused(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(4, 2, 9));
    script_start(&s);
    const char *stop = "STOP INTERNAL: an answer of the driver that was not asked for";
    struct coord_event event = {.kind = COORD_FOUND, .view = 1, .ok = true};
    refuse(&s, event, stop);
    event.kind = COORD_PLANNED;
    refuse(&s, event, stop);
    event.view = 0;
    refuse(&s, event, "");
    event.view = 2;
    refuse(&s, event, stop);
    refuse(&s, (struct coord_event){.kind = COORD_PREPARE_AS, .rank = 1, .chunk = 7}, "");
    script_close(&s);
}

static void a_copy_that_was_not_asked_for_is_refused(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(2, 1, 9));
    script_started(&s, 0);
    script_ready(&s, 0);
    script_fenced_empty(&s, 0);
    script_found(&s, 0);
    script_planned(&s);
    script_started(&s, 1);
    const char *stop = "STOP INTERNAL: a copy is complete that was not asked for";
    struct coord_event event = {.kind = COORD_PREPARED, .rank = 1, .version = 1};
    refuse(&s, event, stop);
    script_ready(&s, 1);
    refuse(&s, (struct coord_event){.kind = COORD_PREPARE_AS, .rank = 1, .chunk = 1},
           "STOP INTERNAL: the driver prepares a rank for a chunk that does not exist");
    script_step(&s, (struct coord_event){.kind = COORD_PREPARE_AS, .rank = 1, .chunk = 0});
    script_iterate(&s, 0, 1.0);
    refuse(&s, event, "FENCE view=2");
    event.version = 2;
    refuse(&s, event, stop);
    event.version = 1;
    event.chunk = 1;
    refuse(&s, event, stop);
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
    bad = good;
    bad.chunk = 1;
    refuse(&s, bad, stop);
    script_saved(&s, 2, 1, 1, 2, true);
    refuse(&s, good, stop);
    script_close(&s);
}

static void events_of_absent_ranks_are_ignored_whatever_they_say(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(4, 2, 9));
    script_start(&s);
    script_exit(&s, 3);
    static const enum coord_event_kind kinds[] = {
        COORD_READY,  COORD_EXIT,       COORD_SUSPECT,  COORD_BEAT,  COORD_REDUCED,
        COORD_FENCED, COORD_PREPARE_AS, COORD_PREPARED, COORD_SAVED, COORD_LEAVING};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct coord_event event = {.rank = 3, .view = 77, .version = 99, .peer = 1234, .part = 5};
        event.kind = kinds[i];
        refuse(&s, event, "");
    }
    refuse(&s, (struct coord_event){.kind = COORD_SUSPECT, .rank = 0, .peer = 3}, "");
    script_close(&s);
}

static void a_configuration_that_cannot_be_is_refused_by_name(void **state) {
    (void)state;
    const struct coord_config good = script_config(4, 2, 9);
    struct coord_config bad[15];
    for (size_t i = 0; i < 15; i++) bad[i] = good;
    bad[0].ranks = 1;
    bad[1].chunks = 0;
    bad[2].ranks = UINT32_MAX;
    bad[3].saves_max = 0;
    bad[4].clip_norm = -1;
    bad[5].clip_norm = NAN;
    bad[6].start_ns = 0;
    bad[7].beat_ns = -1;
    bad[8].stall_ns[COORD_WORK_STEP] = 0;
    bad[9].stall_ns[COORD_WORK_EVAL] = 0;
    bad[10].suspect_ns = 0;
    bad[11].join_ns = 0;
    bad[12].need_ns = 0;
    bad[13].save_ns = -1;
    bad[14].recover = true;
    const char *const names[] = {"ranks",      "chunks",   "ranks",   "saves_max",      "clip_norm",
                                 "clip_norm",  "start_ns", "beat_ns", "stall_ns[step]", "stall_ns[eval]",
                                 "suspect_ns", "join_ns",  "need_ns", "save_ns",        "there"};
    for (size_t i = 0; i < 15; i++) {
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

/* ---- noise ---- */

static struct coord_config random_config(struct rng_stream *r) {
    uint32_t chunks = 1 + (uint32_t)rng_below(r, 3);
    struct coord_config config =
        script_config(chunks * (1 + (uint32_t)rng_below(r, 3)), chunks, rng_below(r, 6));
    config.save_every = rng_below(r, 3);
    config.saves_max = 1 + (uint32_t)rng_below(r, 3);
    config.save_retries = (uint32_t)rng_below(r, 3);
    config.save_ns = rng_below(r, 2) ? 0 : SECOND;
    config.clip_norm = rng_below(r, 2) ? 0 : 1.5;
    return config;
}

/* Mostly plausible numbers, so that noise gets further than the first check. */
static uint64_t small(struct rng_stream *r, uint64_t usual) {
    return rng_below(r, 60) == 0 ? rng_next(r) : rng_below(r, usual);
}

static void noise(struct rng_stream *r, struct script *s) {
    bool holds[SCRIPT_PAIRS];
    uint32_t own[SCRIPT_PAIRS];
    struct coord_fenced_pair pairs[3] = {0};
    struct coord_fenced_save saves[3] = {0};
    struct coord_fenced fenced = {.pairs = pairs, .saves = saves};
    fenced.pair_count = (uint32_t)rng_below(r, 4);
    fenced.save_count = (uint32_t)(rng_below(r, 4) * rng_below(r, 2));
    fenced.optimistic = rng_below(r, 2);
    fenced.shift = (int32_t)(small(r, 2) * 16);
    for (size_t i = 0; i < 3; i++) {
        pairs[i].chunk = (uint32_t)small(r, s->config.chunks);
        pairs[i].version = small(r, coord_final(s->c) + 1);
        pairs[i].has_report = rng_below(r, 2);
        pairs[i].report.iteration = pairs[i].version;
        pairs[i].work = small(r, 3);
        saves[i].version = small(r, 4);
        saves[i].parts = (uint32_t)small(r, 3);
        saves[i].answered = rng_below(r, 2);
        saves[i].ok = rng_below(r, 2);
    }
    script_make_plan(s);
    memcpy(holds, s->holds, sizeof holds);
    memcpy(own, s->own, sizeof own);
    if (rng_below(r, 20) == 0) holds[rng_below(r, SCRIPT_PAIRS)] = rng_below(r, 2);
    if (rng_below(r, 20) == 0) own[rng_below(r, SCRIPT_PAIRS)] = (uint32_t)small(r, 3);
    s->now_ns += (int64_t)rng_below(r, 200000000);
    struct coord_event event = {.kind = (enum coord_event_kind)rng_below(r, COORD_EVENT_COUNT + 1),
                                .now_ns = rng_below(r, 500) == 0 ? (int64_t)rng_next(r) : s->now_ns,
                                .rank = (uint32_t)small(r, s->config.ranks),
                                .peer = (uint32_t)small(r, s->config.ranks),
                                .chunk = (uint32_t)small(r, s->config.chunks),
                                .view = coord_view(s->c) + small(r, 1),
                                .version = small(r, coord_final(s->c) + 2),
                                .progress = small(r, 5),
                                .work = (enum coord_work)small(r, COORD_WORK_COUNT),
                                .part = (uint32_t)small(r, 2),
                                .parts = 1 + (uint32_t)small(r, 2),
                                .busy = rng_below(r, 2),
                                .ok = rng_below(r, 8) > 0,
                                .fenced = &fenced,
                                .holds = holds,
                                .own = own};
    event.report.iteration = coord_final(s->c);
    event.report.overflow = small(r, 1);
    /* What would only stop the run is left out mostly, so that it gets further. */
    struct coord *tried = coord_copy(s->c);
    const struct coord_action *a;
    size_t count = coord_step(tried, &event, &a);
    bool stops = count > 0 && a[count - 1].kind == COORD_STOP;
    coord_free(tried);
    if (!stops || rng_below(r, 200) == 0) coord_step(s->c, &event, &a);
}

static void streams_of_noise_never_break_the_rules(void **state) {
    (void)state;
    uint64_t versions = 0, views = 0;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        struct rng_stream r = {.state = seed};
        struct script s;
        struct coord_config config = random_config(&r);
        const bool there[SCRIPT_PAIRS] = {true, true, true};
        config.recover = rng_below(&r, 3) == 0;
        config.view = 7;
        config.there = there;
        script_open(&s, config);
        for (int step = 0; step < 400; step++) noise(&r, &s);
        versions += coord_final(s.c);
        views += coord_view(s.c);
        script_close(&s);
    }
    printf("noise made %llu versions in %llu views\n", (unsigned long long)versions,
           (unsigned long long)views);
    assert_true(versions > 100 && views > 1000); /* it gets somewhere */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_impossible_rank_peer_or_kind_is_refused),
        cmocka_unit_test(an_impossible_report_is_refused),
        cmocka_unit_test(an_impossible_answer_to_a_fence_is_refused),
        cmocka_unit_test(an_answer_of_the_driver_that_was_not_asked_for_is_refused),
        cmocka_unit_test(a_copy_that_was_not_asked_for_is_refused),
        cmocka_unit_test(an_impossible_answer_to_a_save_is_refused),
        cmocka_unit_test(events_of_absent_ranks_are_ignored_whatever_they_say),
        cmocka_unit_test(a_configuration_that_cannot_be_is_refused_by_name),
        cmocka_unit_test(a_copy_goes_its_own_way_from_the_same_digest),
        cmocka_unit_test(streams_of_noise_never_break_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
