/* What coord.h promises of failure detection. */
#include "coord_script.h"

#define ALL4 0xfu

static void open_running(struct script *s) {
    script_open(s, script_config(4, 2, 9));
    script_start(s);
    script_tick(s);
}

static void a_rank_without_a_beat_is_killed_after_beat_ns(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    assert_string_equal(script_wait(&s, 4, 0x7, 0), "");
    assert_string_equal(script_wait(&s, 1, 0x7, 0), "KILL[3] no beat; DIED[3] no beat; FENCE view=2");
    script_close(&s);
}

static void two_silent_ranks_die_before_one_fence(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    assert_string_equal(script_wait(&s, 5, 0x3, 0),
                        "KILL[2] no beat; DIED[2] no beat; KILL[3] no beat; DIED[3] no beat; FENCE view=2");
    script_close(&s);
}

static void silence_before_ready_is_no_fault(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(2, 2, 9));
    for (uint32_t rank = 0; rank < 2; rank++) script_started(&s, rank);
    script_tick(&s);
    assert_string_equal(script_wait(&s, 59, 0, 0), "");
    for (uint32_t rank = 0; rank < 2; rank++) script_ready(&s, rank);
    assert_string_equal(script_wait(&s, 4, 0, 0), ""); /* beats count from the fence on */
    assert_string_equal(script_wait(&s, 1, 2, 0), "KILL[0] no beat; DIED[0] no beat; FENCE view=2");
    script_close(&s);
}

static void a_rank_that_waits_to_come_in_is_killed_for_silence_once_it_has_beaten(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(2, 1, 9));
    script_started(&s, 0);
    script_ready(&s, 0);
    script_fenced_empty(&s, 0);
    script_found(&s, 0);
    script_planned(&s);
    script_started(&s, 1);
    script_ready(&s, 1);
    script_tick(&s);
    assert_string_equal(script_wait(&s, 8, 1, 1), "");
    script_beat(&s, 1, 1, false);
    assert_string_equal(script_wait(&s, 4, 1, 1), "");
    assert_string_equal(script_wait(&s, 1, 1, 1), "KILL[1] no beat; DIED[1] no beat");
    script_close(&s);
}

/* Rank 1 is busy at `work`, never progressing: when is it killed? */
static int64_t killed_after(enum coord_work work) {
    struct script s;
    open_running(&s);
    const char *said = "";
    int64_t begin = s.now_ns;
    for (int second = 0; second < 200 && strstr(said, "KILL") == NULL; second++) {
        script_beat(&s, 0, (uint64_t)second, true);
        for (uint32_t rank = 2; rank < 4; rank++) script_beat(&s, rank, 1, false);
        script_beat_at(&s, 1, 1, true, work);
        s.now_ns += SECOND;
        said = script_tick(&s);
    }
    script_close(&s);
    return (s.now_ns - begin) / SECOND;
}

static void each_phase_of_work_has_its_own_limit(void **state) {
    (void)state;
    assert_int_equal(killed_after(COORD_WORK_STEP), 20);
    assert_int_equal(killed_after(COORD_WORK_LOAD), 100);
    assert_int_equal(killed_after(COORD_WORK_SAVE), 110);
    assert_int_equal(killed_after(COORD_WORK_COMPILE), 120);
    assert_int_equal(killed_after(COORD_WORK_EVAL), 130);
}

static void a_phase_that_begins_has_all_of_its_limit(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    for (int second = 0; second < 105; second++) {
        script_beat_at(&s, 1, 1, true, COORD_WORK_SAVE);
        assert_string_equal(script_wait(&s, 1, 0xd, 0), "");
    }
    for (int second = 0; second < 19; second++) {
        script_beat_at(&s, 1, 1, true, COORD_WORK_STEP);
        assert_string_equal(script_wait(&s, 1, 0xd, 0), "");
    }
    assert_non_null(strstr(script_wait(&s, 1, 0xd, 0), "KILL[1] busy without progress for failure.stall_s"));
    script_close(&s);
}

static void a_rank_at_a_long_phase_may_answer_the_fence_later(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    script_exit(&s, 0);
    script_fenced(&s, 1, 0, -1);
    script_fenced(&s, 2, 0, -1);
    for (int second = 0; second < 99; second++) {
        script_beat_at(&s, 3, 1, true, COORD_WORK_LOAD);
        assert_string_equal(script_wait(&s, 1, 0x6, 0), "");
    }
    script_beat_at(&s, 3, 1, true, COORD_WORK_LOAD);
    assert_string_equal(script_wait(&s, 1, 0x6, 0), "KILL[3] it did not answer the fence; DIED[3] it did not "
                                                    "answer the fence; FENCE view=3");
    script_close(&s);
}

static void waiting_for_the_driver_is_nobodys_stall(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    script_exit(&s, 0);
    for (uint32_t rank = 1; rank < 4; rank++) script_fenced(&s, rank, 0, -1);
    assert_string_equal(script_wait(&s, 200, 0xe, 0), "");
    script_close(&s);
}

static void a_busy_rank_without_progress_is_killed_after_stall_ns(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    assert_string_equal(script_wait(&s, 20, ALL4, 0x2), "");
    assert_string_equal(script_wait(&s, 1, ALL4, 0x2),
                        "KILL[1] busy without progress for failure.stall_s = 20 s; DIED[1] busy without "
                        "progress for failure.stall_s = 20 s; FENCE view=2");
    script_close(&s);
}

static void being_idle_before_being_busy_is_no_stall(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    uint64_t progress = 2;
    for (int i = 0; i < 30; i++) { /* rank 0 works, rank 1 waits for it */
        script_beat(&s, 0, progress++, true);
        assert_string_equal(script_wait(&s, 1, 0xe, 0), "");
    }
    script_beat(&s, 0, progress, false);
    assert_string_equal(script_wait(&s, 19, ALL4, 0x2), "");
    script_close(&s);
}

static void progress_keeps_a_busy_rank_alive(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    for (uint64_t i = 2; i < 100; i++) {
        script_beat(&s, 0, i, true);
        assert_string_equal(script_wait(&s, 1, 0xe, 0), "");
    }
    script_close(&s);
}

static void answer_all_but_one(bool busy) {
    struct script s;
    open_running(&s);
    script_exit(&s, 0);
    script_fenced(&s, 1, 0, -1);
    script_fenced(&s, 2, 0, -1);
    for (uint64_t i = 2; i < 21; i++) {
        script_beat(&s, 3, i, busy);
        assert_string_equal(script_wait(&s, 1, 0x6, 0x6), "");
    }
    script_beat(&s, 3, 100, busy);
    assert_string_equal(script_wait(&s, 1, 0x6, 0x6),
                        "KILL[3] it did not answer the fence; DIED[3] it did not answer the fence; FENCE "
                        "view=3");
    script_close(&s);
}

static void a_rank_that_does_not_answer_the_fence_is_killed_whatever_it_beats(void **state) {
    (void)state;
    answer_all_but_one(true);
    answer_all_but_one(false);
}

static void a_fenced_rank_that_still_says_busy_is_not_blamed_for_waiting(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    script_wait(&s, 10, ALL4, 0x2);
    script_exit(&s, 0);
    script_fenced(&s, 1, 0, -1);
    script_fenced(&s, 2, 0, -1);
    assert_string_equal(script_wait(&s, 19, 0xe, 0x2), "");
    script_fenced(&s, 3, 0, -1);
    assert_string_equal(script_wait(&s, 19, 0xe, 0x2), "");
    script_close(&s);
}

static void if_nobody_is_busy_and_nothing_moves_the_view_is_fenced_again_then_stopped(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    for (int fence = 1; fence <= 2; fence++) {
        char text[60];
        snprintf(text, sizeof text, "FENCE view=%d", fence + 1);
        script_wait(&s, fence == 1 ? 1 : 0, ALL4, 0);
        assert_string_equal(script_wait(&s, 20, ALL4, 0), text);
        script_fence_all(&s, 0, -1);
    }
    assert_string_equal(script_wait(&s, 20, ALL4, 0),
                        "STOP TIMEOUT: nobody is busy and nothing progresses, fence after fence");
    script_close(&s);
}

static void progress_without_a_decision_does_not_allow_idle_fences_for_ever(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    const char *said = "";
    int fences = 0;
    for (uint64_t i = 0; i < 1000 && strstr(said, "STOP") == NULL; i++) {
        for (uint32_t rank = 0; rank < 4; rank++) script_beat(&s, rank, 100 + i / 25, false);
        s.now_ns += SECOND;
        said = script_tick(&s);
        if (strstr(said, "FENCE") != NULL) {
            fences++;
            said = script_fence_all(&s, 0, -1);
        }
    }
    assert_string_equal(said, "STOP TIMEOUT: nobody is busy and nothing progresses, fence after fence");
    assert_int_equal(fences, 2);
    script_close(&s);
}

static void a_decision_forgives_the_idle_fences_before_it(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    script_wait(&s, 1, ALL4, 0);
    for (uint64_t i = 0; i < 5; i++) {
        assert_non_null(strstr(script_wait(&s, 20, ALL4, 0), "FENCE"));
        script_fence_all(&s, i, -1);
        script_iterate(&s, i, 1.0);
    }
    script_close(&s);
}

static void a_last_save_that_never_answers_ends_in_a_stop(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(1, 1, 1));
    script_start(&s);
    script_tick(&s);
    script_iterate(&s, 0, 1.0);
    const char *said = "";
    for (int i = 0; i < 400 && strstr(said, "STOP") == NULL; i++) {
        said = script_wait(&s, 1, 1, 0);
        if (strstr(said, "FENCE") != NULL) script_fence_all(&s, 1, -1);
    }
    assert_string_equal(said, "STOP TIMEOUT: nobody is busy and nothing progresses, fence after fence");
    script_close(&s);
}

static void a_slow_last_save_that_progresses_is_waited_for(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(1, 1, 1));
    script_start(&s);
    script_tick(&s);
    script_iterate(&s, 0, 1.0);
    for (uint64_t i = 2; i < 500; i++) {
        script_beat(&s, 0, i / 15, false);
        assert_string_equal(script_wait(&s, 1, 0, 0), "");
    }
    script_close(&s);
}

static void a_suspect_without_progress_dies_after_suspect_ns(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    script_wait(&s, 1, ALL4, 0);
    assert_string_equal(script_suspect(&s, 0, 1), "");
    assert_string_equal(script_wait(&s, 1, ALL4, 0), "");
    assert_string_equal(script_wait(&s, 1, ALL4, 0),
                        "KILL[1] its peers cannot reach it; DIED[1] its peers cannot reach it; FENCE view=2");
    script_close(&s);
}

static void a_suspect_that_progresses_and_is_not_suspected_anew_is_forgotten(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    script_wait(&s, 1, ALL4, 0);
    script_suspect(&s, 0, 1);
    script_wait(&s, 1, 0xd, 0);
    script_beat(&s, 1, 50, true);
    assert_string_equal(script_wait(&s, 1, 0xd, 0), "");
    script_beat(&s, 1, 51, false);
    assert_string_equal(script_wait(&s, 1, 0xd, 0), "");
    script_suspect(&s, 0, 1); /* the first of a new count */
    script_beat(&s, 1, 52, false);
    s.now_ns += SECOND;
    script_beat(&s, 1, 53, false);
    s.now_ns += SECOND;
    assert_string_equal(script_tick(&s), "");
    script_close(&s);
}

static void a_new_suspicion_confirms_the_first_in_spite_of_progress(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    script_suspect(&s, 0, 1);
    s.now_ns += SECOND;
    script_beat(&s, 1, 50, true);
    script_suspect(&s, 3, 1);
    assert_string_equal(script_tick(&s), "");
    s.now_ns += SECOND;
    assert_string_equal(script_tick(&s),
                        "KILL[1] its peers cannot reach it; DIED[1] its peers cannot reach it; FENCE view=2");
    script_close(&s);
}

static void a_suspect_that_exits_first_is_not_killed(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    script_suspect(&s, 0, 1);
    assert_string_equal(script_exit(&s, 1), "DIED[1] its process ended or its channel closed; FENCE view=2");
    assert_string_equal(script_wait(&s, 4, 0xd, 0), "");
    script_close(&s);
}

static void a_rank_cut_off_from_all_falls_itself_and_not_those_it_accuses(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    script_wait(&s, 1, ALL4, 0);
    for (uint32_t peer = 0; peer < 3; peer++) script_suspect(&s, 3, peer);
    script_suspect(&s, 1, 3);
    script_suspect(&s, 2, 3);
    script_wait(&s, 1, ALL4, 0);
    assert_string_equal(script_wait(&s, 1, ALL4, 0),
                        "KILL[3] its peers cannot reach it; DIED[3] its peers cannot reach it; FENCE view=2");
    script_fence_all(&s, 0, -1);
    assert_string_equal(script_wait(&s, 4, 0x7, 0), "");
    script_close(&s);
}

static void of_two_that_accuse_each_other_the_better_replicated_one_falls(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    script_exit(&s, 2);
    script_fence_all(&s, 0, -1);
    script_wait(&s, 1, 0xb, 0);
    script_suspect(&s, 1, 0); /* rank 0 is the last of its stage */
    script_suspect(&s, 0, 1);
    script_wait(&s, 1, 0xb, 0);
    assert_string_equal(script_wait(&s, 1, 0xb, 0),
                        "KILL[1] its peers cannot reach it; DIED[1] its peers cannot reach it; FENCE view=3");
    script_close(&s);
}

static void a_coordinator_that_was_stopped_itself_blames_nobody_at_first(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    script_wait(&s, 1, ALL4, ALL4);
    s.now_ns += 3600 * SECOND;
    assert_string_equal(script_tick(&s), "");
    assert_string_equal(script_wait(&s, 4, 0x7, 0x7), "");
    assert_string_equal(script_wait(&s, 1, 0x7, 0x7), "KILL[3] no beat; DIED[3] no beat; FENCE view=2");
    script_close(&s);
}

static void a_beat_that_comes_first_after_the_gap_does_not_blame_the_others(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    script_wait(&s, 1, ALL4, 0);
    s.now_ns += 3600 * SECOND;
    script_beat(&s, 2, 9, false);
    assert_string_equal(script_tick(&s), "");
    assert_string_equal(script_wait(&s, 4, ALL4, 0), "");
    script_close(&s);
}

static void ticks_that_are_always_late_still_find_the_dead(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    const char *said = "";
    for (int i = 0; i < 2; i++) {
        assert_string_equal(said, "");
        s.now_ns += 6 * SECOND;
        for (uint32_t rank = 0; rank < 3; rank++) script_beat(&s, rank, 2, false);
        said = script_tick(&s);
    }
    assert_string_equal(said, "KILL[3] no beat; DIED[3] no beat; FENCE view=2");
    script_close(&s);
}

static void ticks_that_are_always_late_still_find_who_is_stuck(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    const char *said = "";
    for (int i = 0; i < 6; i++) { /* five of them judge, the last one 24 s after it said that it is busy */
        assert_string_equal(said, "");
        s.now_ns += 6 * SECOND;
        for (uint32_t rank = 0; rank < 4; rank++)
            script_beat(&s, rank, 2 + (rank != 3) * (uint64_t)i, rank == 3);
        said = script_tick(&s);
    }
    assert_non_null(strstr(said, "KILL[3] busy without progress"));
    script_close(&s);
}

static void a_clock_that_jumps_back_is_ignored(void **state) {
    (void)state;
    struct script s;
    open_running(&s);
    script_wait(&s, 1, ALL4, 0);
    s.now_ns = INT64_MIN;
    assert_string_equal(script_tick(&s), "");
    s.now_ns = 3 * SECOND;
    assert_string_equal(script_tick(&s), "");
    script_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_without_a_beat_is_killed_after_beat_ns),
        cmocka_unit_test(two_silent_ranks_die_before_one_fence),
        cmocka_unit_test(silence_before_ready_is_no_fault),
        cmocka_unit_test(a_rank_that_waits_to_come_in_is_killed_for_silence_once_it_has_beaten),
        cmocka_unit_test(each_phase_of_work_has_its_own_limit),
        cmocka_unit_test(a_phase_that_begins_has_all_of_its_limit),
        cmocka_unit_test(a_rank_at_a_long_phase_may_answer_the_fence_later),
        cmocka_unit_test(waiting_for_the_driver_is_nobodys_stall),
        cmocka_unit_test(a_busy_rank_without_progress_is_killed_after_stall_ns),
        cmocka_unit_test(being_idle_before_being_busy_is_no_stall),
        cmocka_unit_test(progress_keeps_a_busy_rank_alive),
        cmocka_unit_test(a_rank_that_does_not_answer_the_fence_is_killed_whatever_it_beats),
        cmocka_unit_test(a_fenced_rank_that_still_says_busy_is_not_blamed_for_waiting),
        cmocka_unit_test(if_nobody_is_busy_and_nothing_moves_the_view_is_fenced_again_then_stopped),
        cmocka_unit_test(progress_without_a_decision_does_not_allow_idle_fences_for_ever),
        cmocka_unit_test(a_decision_forgives_the_idle_fences_before_it),
        cmocka_unit_test(a_last_save_that_never_answers_ends_in_a_stop),
        cmocka_unit_test(a_slow_last_save_that_progresses_is_waited_for),
        cmocka_unit_test(a_suspect_without_progress_dies_after_suspect_ns),
        cmocka_unit_test(a_suspect_that_progresses_and_is_not_suspected_anew_is_forgotten),
        cmocka_unit_test(a_new_suspicion_confirms_the_first_in_spite_of_progress),
        cmocka_unit_test(a_suspect_that_exits_first_is_not_killed),
        cmocka_unit_test(a_rank_cut_off_from_all_falls_itself_and_not_those_it_accuses),
        cmocka_unit_test(of_two_that_accuse_each_other_the_better_replicated_one_falls),
        cmocka_unit_test(a_coordinator_that_was_stopped_itself_blames_nobody_at_first),
        cmocka_unit_test(a_beat_that_comes_first_after_the_gap_does_not_blame_the_others),
        cmocka_unit_test(ticks_that_are_always_late_still_find_the_dead),
        cmocka_unit_test(ticks_that_are_always_late_still_find_who_is_stuck),
        cmocka_unit_test(a_clock_that_jumps_back_is_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
