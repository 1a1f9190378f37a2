/* What coord.h promises of saves, of stopping and of the end. */
#include "coord_script.h"

static void open_saving(struct script *s, uint32_t pipelines, uint64_t final_version, uint64_t save_every) {
    struct coord_config config = script_config(2 * pipelines, 2, final_version);
    config.save_every = save_every;
    script_open(s, config);
    script_start(s);
}

static void a_due_version_is_saved_in_parts_right_after_its_decision(void **state) {
    (void)state;
    struct script s;
    open_saving(&s, 2, 9, 2);
    assert_null(strstr(script_iterate(&s, 0, 2.0), "SAVE"));
    assert_string_equal(script_iterate(&s, 1, 2.0),
                        "DECIDE view=1 i=1 accept 1 optimistic; DECIDED i=1 accept norm=2 loss=7; "
                        "SAVE[0 1] v=2 0/2; SAVE[2 3] v=2 1/2");
    script_close(&s);
}

static void a_stage_with_a_dead_rank_is_split_among_the_living(void **state) {
    (void)state;
    struct script s;
    open_saving(&s, 3, 9, 1);
    script_exit(&s, 2);
    script_fence_all(&s, 0, -1);
    const char *said = script_iterate(&s, 0, 2.0);
    assert_string_equal(
        strstr(said, "SAVE"),
        "SAVE[0] v=1 0/2; SAVE[1] v=1 0/3; SAVE[3] v=1 1/3; SAVE[4] v=1 1/2; SAVE[5] v=1 2/3");
    script_close(&s);
}

static void a_version_is_durable_when_every_part_of_every_stage_is_written(void **state) {
    (void)state;
    struct script s;
    open_saving(&s, 2, 9, 1);
    script_iterate(&s, 0, 2.0);
    uint64_t version = 99;
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_string_equal(script_saved(&s, rank, 1, rank / 2, 2, true), "");
        assert_false(coord_durable(s.c, &version));
    }
    assert_string_equal(script_saved(&s, 3, 1, 1, 2, true), "DURABLE v=1; DURABLE_AT v=1");
    assert_true(coord_durable(s.c, &version));
    assert_int_equal(version, 1);
    script_close(&s);
}

static void a_failed_part_makes_its_version_never_durable_and_frees_its_place(void **state) {
    (void)state;
    struct script s;
    open_saving(&s, 1, 9, 1);
    script_iterate(&s, 0, 2.0);
    script_iterate(&s, 1, 2.0);
    script_saved(&s, 0, 1, 0, 1, false);
    assert_string_equal(script_saved(&s, 1, 1, 0, 1, true), "FORGET v=1");
    uint64_t version;
    assert_false(coord_durable(s.c, &version));
    assert_string_equal(strstr(script_iterate(&s, 2, 2.0), "SAVE"), "SAVE[0 1] v=3 0/1");
    script_close(&s);
}

static void a_due_version_without_room_is_skipped(void **state) {
    (void)state;
    struct script s;
    open_saving(&s, 1, 9, 1);
    for (uint64_t i = 0; i < 2; i++) assert_non_null(strstr(script_iterate(&s, i, 2.0), "SAVE[0 1]"));
    assert_string_equal(strstr(script_iterate(&s, 2, 2.0), "SKIPPED"), "SKIPPED v=3");
    script_close(&s);
}

static void a_save_that_completes_after_a_newer_one_changes_nothing(void **state) {
    (void)state;
    struct script s;
    open_saving(&s, 1, 9, 1);
    script_iterate(&s, 0, 2.0);
    script_iterate(&s, 1, 2.0);
    script_saved(&s, 0, 2, 0, 1, true);
    assert_string_equal(script_saved(&s, 1, 2, 0, 1, true), "DURABLE v=2; DURABLE_AT v=2");
    script_saved(&s, 0, 1, 0, 1, true);
    assert_string_equal(script_saved(&s, 1, 1, 0, 1, true), "");
    uint64_t version = 0;
    assert_true(coord_durable(s.c, &version));
    assert_int_equal(version, 2);
    script_close(&s);
}

static void parts_that_a_dead_rank_had_written_count(void **state) {
    (void)state;
    struct script s;
    open_saving(&s, 2, 9, 1);
    script_iterate(&s, 0, 2.0);
    script_saved(&s, 0, 1, 0, 2, true);
    script_exit(&s, 0);
    script_saved(&s, 1, 1, 0, 2, true);
    script_saved(&s, 2, 1, 1, 2, true);
    assert_string_equal(script_saved(&s, 3, 1, 1, 2, true), "DURABLE v=1; DURABLE_AT v=1");
    script_close(&s);
}

static void a_part_that_died_makes_its_version_never_durable_yet_it_is_outstanding(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(4, 2, 9);
    config.save_every = 1;
    config.saves_max = 1;
    script_open(&s, config);
    script_start(&s);
    script_iterate(&s, 0, 2.0);
    script_exit(&s, 0);
    script_fence_all(&s, 1, -1);
    script_saved(&s, 1, 1, 0, 2, true);
    script_saved(&s, 2, 1, 1, 2, true);
    assert_string_equal(strstr(script_iterate(&s, 1, 2.0), "SKIPPED"), "SKIPPED v=2");
    assert_string_equal(script_saved(&s, 3, 1, 1, 2, true), "FORGET v=1");
    assert_string_equal(strstr(script_iterate(&s, 2, 2.0), "SAVE"),
                        "SAVE[1] v=3 0/2; SAVE[2] v=3 0/1; SAVE[3] v=3 1/2");
    script_close(&s);
}

static void the_last_version_is_saved_and_finish_follows_its_durability(void **state) {
    (void)state;
    struct script s;
    open_saving(&s, 1, 1, 0);
    assert_string_equal(script_iterate(&s, 0, 2.0),
                        "DECIDE view=1 i=0 accept 1 optimistic; DECIDED i=0 accept norm=2 loss=7; "
                        "SAVE[0 1] v=1 0/1");
    assert_string_equal(script_saved(&s, 0, 1, 0, 1, true), "");
    assert_string_equal(script_saved(&s, 1, 1, 0, 1, true), "DURABLE v=1; DURABLE_AT v=1; FINISH v=1");
    assert_string_equal(script_exit(&s, 0), "");
    script_close(&s);
}

static void the_last_version_waits_for_room(void **state) {
    (void)state;
    struct script s;
    open_saving(&s, 1, 3, 1);
    script_iterate(&s, 0, 2.0);
    script_iterate(&s, 1, 2.0);
    assert_string_equal(script_iterate(&s, 2, 2.0),
                        "DECIDE view=1 i=2 accept 1 optimistic; DECIDED i=2 accept norm=2 loss=7");
    script_saved(&s, 0, 1, 0, 1, true);
    assert_string_equal(script_saved(&s, 1, 1, 0, 1, true), "DURABLE v=1; DURABLE_AT v=1; SAVE[0 1] v=3 0/1");
    script_close(&s);
}

static void the_last_version_is_saved_again_in_new_parts_after_a_death(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(3, 1, 1);
    config.save_retries = 0; /* a death is no failed write */
    script_open(&s, config);
    script_start(&s);
    script_iterate(&s, 0, 2.0);
    script_exit(&s, 0);
    script_saved(&s, 1, 1, 1, 3, true);
    assert_string_equal(script_saved(&s, 2, 1, 2, 3, true), "FORGET v=1"); /* not while the fence lasts */
    assert_string_equal(script_fence_all(&s, 1, -1),
                        "GO view=2 v=1 optimistic shift=0; SAVE[1] v=1 0/2; SAVE[2] v=1 1/2");
    script_saved(&s, 1, 1, 0, 2, true);
    assert_string_equal(script_saved(&s, 2, 1, 1, 2, true), "DURABLE v=1; DURABLE_AT v=1; FINISH v=1");
    script_close(&s);
}

static void a_failed_write_of_the_last_version_is_tried_again_a_limited_number_of_times(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(1, 1, 1);
    config.save_retries = 2;
    script_open(&s, config);
    script_start(&s);
    script_iterate(&s, 0, 2.0);
    assert_string_equal(script_saved(&s, 0, 1, 0, 1, false), "FORGET v=1; SAVE[0] v=1 0/1");
    assert_string_equal(script_saved(&s, 0, 1, 0, 1, false), "FORGET v=1; SAVE[0] v=1 0/1");
    assert_string_equal(script_saved(&s, 0, 1, 0, 1, false),
                        "FORGET v=1; STOP IO: the last version could not be saved");
    script_close(&s);
}

/* A disk that is full for a moment outlasts tries at once. */
static void each_retry_of_the_last_version_comes_after_a_longer_pause(void **state) {
    (void)state;
    static const uint32_t pauses[] = {1, 2, 4, 8, 16, 32, 50, 50};
    const uint32_t count = sizeof pauses / sizeof pauses[0];
    struct script s;
    struct coord_config config = script_config(1, 1, 1);
    config.save_retries = count;
    config.save_pause_ns = SECOND;
    script_open(&s, config);
    script_start(&s);
    script_tick(&s);
    script_iterate(&s, 0, 2.0);
    for (uint32_t i = 0; i < count; i++) {
        assert_string_equal(script_saved(&s, 0, 1, 0, 1, false), "FORGET v=1");
        assert_string_equal(script_wait(&s, pauses[i], 1, 0), "SAVE[0] v=1 0/1");
    }
    assert_string_equal(script_saved(&s, 0, 1, 0, 1, false),
                        "FORGET v=1; STOP IO: the last version could not be saved");
    script_close(&s);
}

static void failed_writes_of_other_versions_do_not_stop_the_run(void **state) {
    (void)state;
    struct script s;
    open_saving(&s, 1, 50, 1);
    for (uint64_t i = 0; i < 20; i++) {
        script_iterate(&s, i, 2.0);
        char forget[40];
        snprintf(forget, sizeof forget, "FORGET v=%d", (int)i + 1);
        assert_string_equal(script_saved(&s, 0, i + 1, 0, 1, false), "");
        assert_string_equal(script_saved(&s, 1, i + 1, 0, 1, false), forget);
    }
    script_close(&s);
}

static void durability_of_the_last_version_finishes_even_during_a_fence(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(2, 1, 1));
    script_start(&s);
    script_iterate(&s, 0, 2.0);
    script_saved(&s, 0, 1, 0, 2, true);
    script_exit(&s, 0);
    assert_string_equal(script_saved(&s, 1, 1, 1, 2, true), "DURABLE v=1; DURABLE_AT v=1; FINISH v=1");
    script_close(&s);
}

static void stopping_ends_at_the_result_of_the_current_iteration(void **state) {
    (void)state;
    struct script s;
    open_saving(&s, 1, 100, 7);
    script_iterate(&s, 0, 2.0);
    script_reduced(&s, 0, 1, 2.0);
    assert_string_equal(script_stopping(&s), "");
    assert_string_equal(script_stopping(&s), "");
    assert_string_equal(script_reduced(&s, 1, 1, 2.0),
                        "DECIDE view=1 i=1 accept 1 optimistic; DECIDED i=1 accept norm=2 loss=7; "
                        "SAVE[0 1] v=2 0/1");
    script_stopping(&s);
    assert_string_equal(script_iterate(&s, 2, 2.0),
                        ""); /* they went on optimistically: no decision any more */
    script_saved(&s, 0, 2, 0, 1, true);
    assert_string_equal(script_saved(&s, 1, 2, 0, 1, true), "DURABLE v=2; DURABLE_AT v=2; FINISH v=2");
    script_close(&s);
}

static void stopping_during_a_fence_ends_at_what_the_fence_settles(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(2, 1, 100));
    script_start(&s);
    script_exit(&s, 0);
    script_stopping(&s);
    assert_string_equal(script_fence_all(&s, 0, 4.0),
                        "GO view=2 v=1 settle accept 1 optimistic shift=0; DECIDED i=0 accept norm=2 "
                        "loss=7; SAVE[1] v=1 0/1");
    script_close(&s);
}

static void stopping_after_the_last_decision_changes_nothing(void **state) {
    (void)state;
    struct script s;
    open_saving(&s, 1, 1, 0);
    script_iterate(&s, 0, 2.0);
    assert_string_equal(script_stopping(&s), "");
    script_saved(&s, 0, 1, 0, 1, true);
    assert_string_equal(script_saved(&s, 1, 1, 0, 1, true), "DURABLE v=1; DURABLE_AT v=1; FINISH v=1");
    script_close(&s);
}

static void a_part_that_takes_too_long_fails_its_save_and_kills_nobody(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(2, 1, 9);
    config.save_every = 1;
    config.save_ns = 30 * SECOND;
    script_open(&s, config);
    script_start(&s);
    script_tick(&s);
    script_iterate(&s, 0, 2.0);
    script_saved(&s, 0, 1, 0, 2, true);
    for (uint64_t i = 0; i < 29; i++) {
        for (uint32_t rank = 0; rank < 2; rank++) script_beat(&s, rank, 10 + i, true);
        assert_string_equal(script_wait(&s, 1, 0, 0), "");
    }
    for (uint32_t rank = 0; rank < 2; rank++) script_beat(&s, rank, 99, true);
    assert_string_equal(script_wait(&s, 1, 0, 0), "LATE[1] v=1; FORGET v=1");
    assert_string_equal(script_saved(&s, 1, 1, 1, 2, true), ""); /* too late to count */
    uint64_t version;
    assert_false(coord_durable(s.c, &version));
    assert_string_equal(script_saved(&s, 1, 1, 1, 2, true),
                        "STOP INTERNAL: an answer to a save that was not asked for");
    script_close(&s);
}

static void a_stuck_last_save_is_waited_for_as_often_as_a_failed_one_is_tried(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(1, 1, 1);
    config.save_ns = 30 * SECOND;
    script_open(&s, config);
    script_start(&s);
    script_tick(&s);
    script_iterate(&s, 0, 2.0);
    assert_string_equal(script_wait(&s, 30, 1, 0), "LATE[0] v=1");
    assert_string_equal(script_wait(&s, 29, 1, 0), "");
    assert_string_equal(script_wait(&s, 1, 1, 0),
                        "LATE[0] v=1; STOP IO: the last version could not be saved");
    script_close(&s);
}

static void a_last_save_within_its_limit_is_no_idle_view(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(1, 1, 1);
    config.save_ns = 200 * SECOND; /* longer than any phase may be without progress */
    script_open(&s, config);
    script_start(&s);
    script_tick(&s);
    script_iterate(&s, 0, 2.0);
    assert_string_equal(script_wait(&s, 199, 1, 0), "");
    assert_string_equal(script_wait(&s, 1, 1, 0), "LATE[0] v=1");
    script_close(&s);
}

static void a_stuck_last_save_that_is_written_in_time_after_all_counts(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(1, 1, 1);
    config.save_ns = 30 * SECOND;
    script_open(&s, config);
    script_start(&s);
    script_tick(&s);
    script_iterate(&s, 0, 2.0);
    assert_string_equal(script_wait(&s, 30, 1, 0), "LATE[0] v=1");
    script_wait(&s, 10, 1, 0);
    assert_string_equal(script_saved(&s, 0, 1, 0, 1, true), "DURABLE v=1; DURABLE_AT v=1; FINISH v=1");
    script_close(&s);
}

static void a_return_ends_all_saves_and_a_later_answer_does_not_count(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(3, 2, 9);
    config.save_every = 1;
    script_open(&s, config);
    script_start(&s);
    script_iterate(&s, 0, 2.0);
    script_saved(&s, 1, 1, 0, 1, true);
    script_saved(&s, 0, 1, 0, 2, true);
    script_exit(&s, 1); /* chunk 1 had no other */
    script_fenced(&s, 0, 1, -1);
    assert_string_equal(script_fenced(&s, 2, 1, -1), "FIND view=2");
    assert_string_equal(script_saved(&s, 2, 1, 1, 2, true), ""); /* all parts are written, too late */
    script_found(&s, 0);
    s.own[2] = 1;
    assert_string_equal(script_planned(&s), "RESTORED v=0 from 1; GO view=2 v=0 restore optimistic shift=0");
    assert_string_equal(strstr(script_iterate(&s, 0, 2.0), "SAVE"), "SAVE[0 2] v=1 0/1");
    script_saved(&s, 0, 1, 0, 1, true);
    assert_string_equal(script_saved(&s, 2, 1, 0, 1, true), "DURABLE v=1; DURABLE_AT v=1");
    script_close(&s);
}

static void a_durable_step_that_is_found_damaged_is_made_durable_again(void **state) {
    (void)state;
    struct script s;
    uint64_t durable = 0;
    struct coord_config config = script_config(3, 2, 9);
    config.save_every = 1;
    script_open(&s, config);
    script_start(&s);
    script_iterate(&s, 0, 2.0);
    script_saved(&s, 1, 1, 0, 1, true);
    script_saved(&s, 0, 1, 0, 2, true);
    assert_string_equal(script_saved(&s, 2, 1, 1, 2, true), "DURABLE v=1; DURABLE_AT v=1");
    script_exit(&s, 1); /* chunk 1 had no other */
    script_fenced(&s, 0, 1, -1);
    script_fenced(&s, 2, 1, -1);
    script_found(&s, 0);
    s.own[2] = 1;
    assert_string_equal(script_planned(&s), "RESTORED v=0 from 1; GO view=2 v=0 restore optimistic shift=0");
    assert_false(coord_durable(s.c, &durable));
    script_iterate(&s, 0, 2.0);
    script_saved(&s, 0, 1, 0, 1, true);
    assert_string_equal(script_saved(&s, 2, 1, 0, 1, true), "DURABLE v=1; DURABLE_AT v=1");
    script_close(&s);
}

static void only_the_owners_of_a_chunk_save_it_and_helpers_do_not(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(3, 2, 9);
    config.save_every = 1;
    script_open(&s, config);
    script_start(&s);
    script_exit(&s, 2);
    script_fenced(&s, 0, 0, -1);
    script_fenced(&s, 1, 0, -1);
    script_make_plan(&s);
    s.holds[0 * 2 + 1] = true; /* rank 0 helps with chunk 1 */
    assert_string_equal(script_planned_as(&s), "GO view=2 v=0 optimistic shift=0");
    struct coord_event help = {.kind = COORD_REDUCED, .rank = 0, .chunk = 1, .view = 2};
    help.report = script_report(&s, 1, 0, 2.0);
    assert_string_equal(script_reduced(&s, 0, 0, 2.0), "");
    assert_string_equal(script_reduced(&s, 1, 0, 2.0), ""); /* the helper has not reported */
    assert_string_equal(strstr(script_step(&s, help), "SAVE"), "SAVE[0 1] v=1 0/1");
    script_close(&s);
}

static void stopping_in_a_return_ends_at_the_step_that_was_found(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(1, 1, 100));
    script_started(&s, 0);
    script_ready(&s, 0);
    script_stopping(&s);
    script_fenced_empty(&s, 0);
    assert_string_equal(script_found(&s, 6), "FINISH v=6");
    script_close(&s);
}

static void stopping_before_anything_was_saved_makes_one_version(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(1, 1, 100));
    script_started(&s, 0);
    script_ready(&s, 0);
    script_stopping(&s);
    script_fenced_empty(&s, 0);
    script_found(&s, 0);
    script_planned(&s);
    assert_string_equal(strstr(script_iterate(&s, 0, 2.0), "SAVE"), "SAVE[0] v=1 0/1");
    script_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_due_version_is_saved_in_parts_right_after_its_decision),
        cmocka_unit_test(a_stage_with_a_dead_rank_is_split_among_the_living),
        cmocka_unit_test(a_version_is_durable_when_every_part_of_every_stage_is_written),
        cmocka_unit_test(a_failed_part_makes_its_version_never_durable_and_frees_its_place),
        cmocka_unit_test(a_due_version_without_room_is_skipped),
        cmocka_unit_test(a_save_that_completes_after_a_newer_one_changes_nothing),
        cmocka_unit_test(parts_that_a_dead_rank_had_written_count),
        cmocka_unit_test(a_part_that_died_makes_its_version_never_durable_yet_it_is_outstanding),
        cmocka_unit_test(the_last_version_is_saved_and_finish_follows_its_durability),
        cmocka_unit_test(the_last_version_waits_for_room),
        cmocka_unit_test(the_last_version_is_saved_again_in_new_parts_after_a_death),
        cmocka_unit_test(a_failed_write_of_the_last_version_is_tried_again_a_limited_number_of_times),
        cmocka_unit_test(each_retry_of_the_last_version_comes_after_a_longer_pause),
        cmocka_unit_test(failed_writes_of_other_versions_do_not_stop_the_run),
        cmocka_unit_test(durability_of_the_last_version_finishes_even_during_a_fence),
        cmocka_unit_test(stopping_ends_at_the_result_of_the_current_iteration),
        cmocka_unit_test(stopping_during_a_fence_ends_at_what_the_fence_settles),
        cmocka_unit_test(stopping_after_the_last_decision_changes_nothing),
        cmocka_unit_test(a_part_that_takes_too_long_fails_its_save_and_kills_nobody),
        cmocka_unit_test(a_stuck_last_save_is_waited_for_as_often_as_a_failed_one_is_tried),
        cmocka_unit_test(a_last_save_within_its_limit_is_no_idle_view),
        cmocka_unit_test(a_stuck_last_save_that_is_written_in_time_after_all_counts),
        cmocka_unit_test(a_return_ends_all_saves_and_a_later_answer_does_not_count),
        cmocka_unit_test(a_durable_step_that_is_found_damaged_is_made_durable_again),
        cmocka_unit_test(only_the_owners_of_a_chunk_save_it_and_helpers_do_not),
        cmocka_unit_test(stopping_in_a_return_ends_at_the_step_that_was_found),
        cmocka_unit_test(stopping_before_anything_was_saved_makes_one_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
