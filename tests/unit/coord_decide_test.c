/* What coord.h promises of the start and of decisions. */
#include "coord_script.h"

#include <math.h>

static void everybody_ready_starts_with_a_fence_and_what_was_found(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(4, 2, 9));
    for (uint32_t rank = 0; rank < 4; rank++) assert_string_equal(script_started(&s, rank), "");
    for (uint32_t rank = 0; rank < 3; rank++) assert_string_equal(script_ready(&s, rank), "");
    assert_string_equal(script_ready(&s, 3), "FENCE view=1");
    for (uint32_t rank = 0; rank < 3; rank++) assert_string_equal(script_fenced_empty(&s, rank), "");
    assert_string_equal(script_fenced_empty(&s, 3), "FIND view=1");
    assert_string_equal(script_found(&s, 5), "PLAN view=1");
    assert_string_equal(script_planned(&s), "GO view=1 v=5 restore optimistic shift=0");
    assert_string_equal(script_pairs(&s), "0:0 load; 1:1 load; 2:0 load; 3:1 load");
    assert_int_equal(coord_final(s.c), 5);
    uint64_t version;
    assert_false(coord_durable(s.c, &version));
    script_close(&s);
}

static void the_start_without_a_durable_step_makes_version_0(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(2, 2, 9));
    assert_string_equal(script_start(&s), "GO view=1 v=0 restore optimistic shift=0");
    script_close(&s);
}

static void a_run_that_cannot_be_resumed_stops_with_the_drivers_reason(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(1, 1, 9));
    script_started(&s, 0);
    script_ready(&s, 0);
    script_fenced_empty(&s, 0);
    char why[] = "slot 3: checksum";
    struct coord_event event = {.kind = COORD_FOUND, .view = 1, .code = PAWL_CORRUPT, .why = why};
    assert_string_equal(script_step(&s, event), "STOP CORRUPT: slot 3: checksum");
    script_close(&s);
}

static void begin_starts_with_whoever_is_ready(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(4, 1, 9));
    for (uint32_t rank = 0; rank < 4; rank++) script_started(&s, rank);
    assert_string_equal(script_of(&s, COORD_BEGIN, 0), "");
    assert_string_equal(script_ready(&s, 2), "FENCE view=1");
    assert_true(coord_members(s.c)[2] && !coord_members(s.c)[0]);
    script_close(&s);
}

static void a_rank_that_ends_before_it_is_ready_is_not_waited_for(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(4, 2, 3));
    for (uint32_t rank = 0; rank < 4; rank++) script_started(&s, rank);
    for (uint32_t rank = 0; rank < 3; rank++) script_ready(&s, rank);
    assert_string_equal(script_exit(&s, 3), "DIED[3] its process ended or its channel closed; FENCE view=1");
    script_close(&s);
}

static void a_ready_rank_that_ends_before_the_start_is_left_out(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(4, 2, 3));
    for (uint32_t rank = 0; rank < 4; rank++) script_started(&s, rank);
    for (uint32_t rank = 0; rank < 3; rank++) script_ready(&s, rank);
    assert_string_equal(script_exit(&s, 1), "DIED[1] its process ended or its channel closed");
    assert_string_equal(script_ready(&s, 3), "FENCE view=1");
    assert_false(coord_members(s.c)[1]);
    script_close(&s);
}

static void a_rank_not_ready_in_time_is_killed(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(4, 2, 3));
    for (uint32_t rank = 0; rank < 4; rank++) script_started(&s, rank);
    script_tick(&s);
    for (uint32_t rank = 0; rank < 3; rank++) script_ready(&s, rank);
    assert_string_equal(script_wait(&s, 60, 0, 0),
                        "KILL[3] it was not ready in time; DIED[3] it was not ready in time; FENCE view=1");
    script_close(&s);
}

static void nothing_to_train_after_a_durable_step_finishes_at_once(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(2, 2, 4));
    for (uint32_t rank = 0; rank < 2; rank++) script_started(&s, rank);
    for (uint32_t rank = 0; rank < 2; rank++) script_ready(&s, rank);
    for (uint32_t rank = 0; rank < 2; rank++) script_fenced_empty(&s, rank);
    assert_string_equal(script_found(&s, 4), "FINISH v=4");
    script_close(&s);
}

static void a_durable_step_beyond_the_last_one_is_refused(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(1, 1, 4));
    script_started(&s, 0);
    script_ready(&s, 0);
    script_fenced_empty(&s, 0);
    assert_string_equal(script_found(&s, 5),
                        "STOP ARGUMENT: the newest durable step is beyond the last one that is asked for");
    script_close(&s);
}

static void nothing_to_train_from_the_beginning_saves_version_0(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(2, 2, 0));
    assert_string_equal(script_start(&s), "GO view=1 v=0 restore optimistic shift=0; SAVE[0 1] v=0 0/1");
    script_saved(&s, 0, 0, 0, 1, true);
    assert_string_equal(script_saved(&s, 1, 0, 0, 1, true), "DURABLE v=0; DURABLE_AT v=0; FINISH v=0");
    script_close(&s);
}

static void an_iteration_is_decided_when_all_live_ranks_have_reported(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(4, 2, 3));
    script_start(&s);
    for (uint32_t rank = 0; rank < 3; rank++) assert_string_equal(script_reduced(&s, rank, 0, 2.0), "");
    assert_int_equal(coord_final(s.c), 0);
    assert_string_equal(script_reduced(&s, 3, 0, 2.0),
                        "DECIDE view=1 i=0 accept 1 optimistic; DECIDED i=0 accept norm=2 loss=7");
    assert_int_equal(coord_final(s.c), 1);
    script_close(&s);
}

static void a_run_of_a_thousand_ranks_is_decided_and_saved_like_any_other(void **state) {
    (void)state;
    struct coord_config config = script_config(1152, 9, 1);
    struct coord *c = NULL;
    assert_int_equal(coord_new(&config, &c, NULL), PAWL_OK);
    uint32_t ranks = 128 * 9;
    bool *holds = calloc((size_t)ranks * 9, sizeof *holds);
    uint32_t *own = calloc(ranks, sizeof *own);
    for (uint32_t rank = 0; rank < ranks; rank++) holds[rank * 9 + (own[rank] = rank % 9)] = true;
    uint64_t counts[COORD_ACTION_COUNT] = {0};
    struct coord_fenced nothing = {0};
    for (uint32_t n = 0; n < 5 * ranks + 2; n++) {
        static const enum coord_event_kind kinds[] = {COORD_STARTED, COORD_READY,   COORD_FENCED, COORD_FOUND,
                                                      COORD_PLANNED, COORD_REDUCED, COORD_SAVED};
        bool of_driver = n == 3 * ranks || n == 3 * ranks + 1;
        uint32_t at = of_driver ? n - 3 * ranks + 3 : n < 3 * ranks ? n / ranks : (n - 2) / ranks + 2;
        uint32_t rank = (n < 3 * ranks ? n : n - 2) % ranks;
        struct coord_event event = {.kind = kinds[at],
                                    .rank = rank,
                                    .view = 1,
                                    .chunk = rank % 9,
                                    .fenced = &nothing,
                                    .holds = holds,
                                    .own = own,
                                    .ok = true,
                                    .report = {.norm2 = 1.0}};
        if (event.kind == COORD_SAVED) {
            event.version = 1;
            event.part = rank / 9;
            event.parts = 128;
        }
        const struct coord_action *a;
        size_t count = coord_step(c, &event, &a);
        for (size_t i = 0; i < count; i++) counts[a[i].kind]++;
    }
    static const enum coord_action_kind once[] = {COORD_GO, COORD_DECIDE, COORD_DURABLE, COORD_DECIDED,
                                                  COORD_FINISH};
    for (size_t i = 0; i < 5; i++) assert_int_equal(counts[once[i]], 1);
    assert_int_equal(counts[COORD_SAVE], ranks);
    free(holds);
    free(own);
    coord_free(c);
}

static void under_a_limit_the_first_iteration_is_careful_and_those_after_an_accept_are_not(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(2, 2, 5);
    config.clip_norm = 2.0;
    script_open(&s, config);
    assert_string_equal(script_start(&s), "GO view=1 v=0 restore careful shift=0");
    assert_string_equal(script_iterate(&s, 0, 2.0), /* norm 2: within */
                        "DECIDE view=1 i=0 accept 1 optimistic; DECIDED i=0 accept norm=2 loss=7");
    script_close(&s);
}

static void a_careful_iteration_is_clipped_by_the_decision_alone(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(2, 2, 5);
    config.clip_norm = 2.0;
    script_open(&s, config);
    script_start(&s);
    assert_string_equal(script_iterate(&s, 0, 8.0), /* norm 4 */
                        "DECIDE view=1 i=0 clip 0.5 careful; DECIDED i=0 clip norm=4 loss=7");
    assert_int_equal(coord_final(s.c), 1);
    script_close(&s);
}

static float clip_of(double limit, double norm2) {
    struct script s;
    struct coord_config config = script_config(1, 1, 5);
    config.clip_norm = limit;
    script_open(&s, config);
    script_start(&s);
    struct coord_event event = {.kind = COORD_REDUCED, .view = 1, .report = {.norm2 = norm2}};
    const struct coord_action *a;
    assert_int_equal(coord_step(s.c, &event, &a), 2);
    assert_int_equal(a[0].kind, COORD_DECIDE);
    float clip = a[0].clip;
    script_close(&s);
    return clip;
}

static void the_clip_factor_is_limit_over_norm_plus_a_millionth(void **state) {
    (void)state;
    assert_true(clip_of(1.0, 9.0) == (float)(1.0 / (3.0 + 1e-6)));
    assert_true(clip_of(1e-6, 1e-12 * 4) == (float)(1e-6 / (2e-6 + 1e-6)));
    assert_true(clip_of(3.0, 9.0) == 1.0f);
}

static void a_careful_iteration_with_a_non_finite_contribution_is_skipped(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(2, 2, 5);
    config.clip_norm = 1.0;
    script_open(&s, config);
    script_start(&s);
    struct coord_report report = script_report(&s, 0, 0, 0.0);
    report.nonfinite = 1;
    report.overflow = 1; /* skip comes before redo */
    script_reduced_as(&s, 0, report);
    assert_string_equal(script_reduced(&s, 1, 0, 16.0), /* and before clip */
                        "DECIDE view=1 i=0 skip 1 careful; DECIDED i=0 skip norm=4 loss=7");
    script_close(&s);
}

static void an_optimistic_iteration_that_must_be_skipped_is_fenced_and_settled(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(2, 2, 5));
    script_start(&s);
    struct coord_report report = script_report(&s, 0, 0, 0.0);
    report.nonfinite = 3;
    script_reduced_as(&s, 0, report);
    assert_string_equal(script_reduced(&s, 1, 0, 16.0), "FENCE view=2");
    assert_int_equal(coord_final(s.c), 0);
    script_fenced_as(&s, 0, report);
    assert_string_equal(script_go(&s, script_fenced(&s, 1, 0, 16.0)),
                        "GO view=2 v=1 settle skip 1 optimistic shift=0; DECIDED i=0 skip norm=4 loss=7");
    assert_int_equal(coord_final(s.c), 1);
    script_close(&s);
}

static void an_optimistic_iteration_that_must_be_clipped_is_fenced_and_settled(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(2, 2, 5);
    config.clip_norm = 2.0;
    script_open(&s, config);
    script_start(&s);
    script_iterate(&s, 0, 1.0);
    assert_string_equal(script_iterate(&s, 1, 8.0), "FENCE view=2");
    assert_string_equal(script_fence_all(&s, 1, 8.0),
                        "GO view=2 v=2 settle clip 0.5 careful shift=0; DECIDED i=1 clip norm=4 loss=7");
    script_close(&s);
}

static void overflow_redoes_the_iteration_with_a_shift_of_16_more_each_time(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(1, 1, 5);
    config.clip_norm = 1.0; /* redo comes before clip; and careful iterations are fenced, too */
    script_open(&s, config);
    script_start(&s);
    struct coord_report over = script_report(&s, 0, 0, 100.0);
    over.overflow = 1;
    for (int shift = 16; shift <= 48; shift += 16) {
        char fence[40], go[60];
        snprintf(fence, sizeof fence, "FENCE view=%d", shift / 16 + 1);
        snprintf(go, sizeof go, "GO view=%d v=0 careful shift=%d", shift / 16 + 1, shift);
        assert_string_equal(script_reduced_as(&s, 0, over), fence);
        assert_string_equal(script_go(&s, script_fenced_as(&s, 0, over)), go);
        assert_int_equal(coord_final(s.c), 0);
    }
    assert_string_equal(script_iterate(&s, 0, 0.25),
                        "DECIDE view=4 i=0 accept 1 optimistic; DECIDED i=0 accept norm=0.5 loss=7");
    script_exit(&s, 0);
    script_close(&s);
}

static void after_a_redo_under_a_limit_the_iteration_is_careful(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(1, 1, 5);
    config.clip_norm = 2.0;
    script_open(&s, config);
    script_start(&s);
    script_iterate(&s, 0, 1.0);
    struct coord_report over = script_report(&s, 0, 1, 0.0);
    over.overflow = 1;
    script_reduced_as(&s, 0, over);
    assert_string_equal(script_go(&s, script_fenced_as(&s, 0, over)), "GO view=2 v=1 careful shift=16");
    script_close(&s);
}

static void the_shift_stays_when_a_death_restarts_the_iteration_and_goes_when_it_is_decided(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(2, 1, 5));
    script_start(&s);
    struct coord_report over = script_report(&s, 0, 0, 0.0);
    over.overflow = 1;
    script_reduced_as(&s, 0, over);
    script_reduced_as(&s, 1, over);
    script_fenced_as(&s, 0, over);
    assert_string_equal(script_go(&s, script_fenced_as(&s, 1, over)), "GO view=2 v=0 optimistic shift=16");
    script_exit(&s, 1);
    assert_string_equal(script_fence_all(&s, 0, -1), "GO view=3 v=0 optimistic shift=16");
    script_iterate(&s, 0, 1.0);
    assert_int_equal(coord_final(s.c), 1);
    over.iteration = 1;
    script_reduced_as(&s, 0, over);
    assert_string_equal(script_go(&s, script_fenced_as(&s, 0, over)), "GO view=4 v=1 optimistic shift=16");
    script_reduced(&s, 0, 1, 1.0);
    struct coord_report bad = script_report(&s, 0, 2, 0.0);
    bad.nonfinite = 1;
    script_reduced_as(&s, 0, bad);
    assert_string_equal(script_go(&s, script_fenced_as(&s, 0, bad)),
                        "GO view=5 v=3 settle skip 1 optimistic shift=0; DECIDED i=2 skip norm=0 loss=7");
    script_close(&s);
}

static void endless_overflow_stops(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(1, 1, 5));
    script_start(&s);
    struct coord_report over = script_report(&s, 0, 0, 0.0);
    over.overflow = 1;
    const char *said = "";
    for (int redone = 0; redone < 1000 && strstr(said, "STOP") == NULL; redone++) {
        script_reduced_as(&s, 0, over);
        said = script_go(&s, script_fenced_as(&s, 0, over));
    }
    assert_string_equal(said, "STOP INTERNAL: gradient sums overflow whatever the exponents");
    script_close(&s);
}

static double norm_of(const double *norm2, uint32_t pipelines) {
    struct script s;
    script_open(&s, script_config(3 * pipelines, 3, 5));
    script_start(&s);
    double norm = -1;
    for (uint32_t n = 0; n < 3 * pipelines; n++) {
        uint32_t rank = 3 * pipelines - 1 - n; /* last stage first: the order of arrival must not matter */
        struct coord_event event = {.kind = COORD_REDUCED,
                                    .rank = rank,
                                    .view = 1,
                                    .chunk = rank % 3,
                                    .report = script_report(&s, rank % 3, 0, norm2[rank % 3])};
        const struct coord_action *a;
        size_t count = coord_step(s.c, &event, &a);
        for (size_t i = 0; i < count; i++)
            if (a[i].kind == COORD_DECIDED) norm = a[i].norm;
    }
    script_close(&s);
    return norm;
}

static void the_norm_is_summed_in_stage_order_whoever_reports_first(void **state) {
    (void)state;
    const double norm2[] = {3.056, 5.144, 0.293}; /* any other order gives other bits */
    double ordered = norm2[0] + norm2[1] + norm2[2], reversed = norm2[2] + norm2[1] + norm2[0];
    double wanted = sqrt(ordered);
    assert_true(wanted != sqrt(reversed));
    for (uint32_t pipelines = 1; pipelines <= 3; pipelines++) {
        double had = norm_of(norm2, pipelines);
        if (had != wanted) fail_msg("%u pipelines: wanted %a, had %a", pipelines, wanted, had);
    }
}

static void expect_stop(struct coord_report second, const char *stop) {
    struct script s;
    script_open(&s, script_config(4, 2, 5));
    script_start(&s);
    assert_string_equal(script_reduced(&s, 1, 0, 2.0), "");
    assert_string_equal(script_reduced_as(&s, 3, second), stop);
    if (stop[0] != 0) assert_string_equal(script_exit(&s, 0), "");
    script_close(&s);
}

static void replicas_that_disagree_in_any_field_stop_the_run(void **state) {
    (void)state;
    const char *stop = "STOP DIVERGED: replicas of a chunk report different gradients";
    struct coord_report same = {.norm2 = 2.0, .loss = 7}, other = same;
    expect_stop(same, "");
    other.norm2 = 2.0 + 0x1p-51;
    expect_stop(other, stop);
    other = same;
    other.loss = 8;
    expect_stop(other, stop);
    other = same;
    other.nonfinite = 1;
    expect_stop(other, stop);
    other = same;
    other.overflow = 1;
    expect_stop(other, stop);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_ready_starts_with_a_fence_and_what_was_found),
        cmocka_unit_test(the_start_without_a_durable_step_makes_version_0),
        cmocka_unit_test(a_run_that_cannot_be_resumed_stops_with_the_drivers_reason),
        cmocka_unit_test(begin_starts_with_whoever_is_ready),
        cmocka_unit_test(a_rank_that_ends_before_it_is_ready_is_not_waited_for),
        cmocka_unit_test(a_ready_rank_that_ends_before_the_start_is_left_out),
        cmocka_unit_test(a_rank_not_ready_in_time_is_killed),
        cmocka_unit_test(nothing_to_train_after_a_durable_step_finishes_at_once),
        cmocka_unit_test(a_durable_step_beyond_the_last_one_is_refused),
        cmocka_unit_test(nothing_to_train_from_the_beginning_saves_version_0),
        cmocka_unit_test(an_iteration_is_decided_when_all_live_ranks_have_reported),
        cmocka_unit_test(a_run_of_a_thousand_ranks_is_decided_and_saved_like_any_other),
        cmocka_unit_test(under_a_limit_the_first_iteration_is_careful_and_those_after_an_accept_are_not),
        cmocka_unit_test(a_careful_iteration_is_clipped_by_the_decision_alone),
        cmocka_unit_test(the_clip_factor_is_limit_over_norm_plus_a_millionth),
        cmocka_unit_test(a_careful_iteration_with_a_non_finite_contribution_is_skipped),
        cmocka_unit_test(an_optimistic_iteration_that_must_be_skipped_is_fenced_and_settled),
        cmocka_unit_test(an_optimistic_iteration_that_must_be_clipped_is_fenced_and_settled),
        cmocka_unit_test(overflow_redoes_the_iteration_with_a_shift_of_16_more_each_time),
        cmocka_unit_test(after_a_redo_under_a_limit_the_iteration_is_careful),
        cmocka_unit_test(the_shift_stays_when_a_death_restarts_the_iteration_and_goes_when_it_is_decided),
        cmocka_unit_test(endless_overflow_stops),
        cmocka_unit_test(the_norm_is_summed_in_stage_order_whoever_reports_first),
        cmocka_unit_test(replicas_that_disagree_in_any_field_stop_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
