/* What coord.h promises of fence and go. */
#include "coord_script.h"

#define DIED_OF_EXIT "its process ended or its channel closed"

static void open_running(struct script *s, uint32_t pipelines, uint32_t stages) {
    script_open(s, script_config(pipelines, stages, 9));
    script_start(s);
}

static void a_death_fences_all_live_ranks_with_the_next_view(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 2);
    assert_string_equal(script_exit(&s, 2), "DIED[2] " DIED_OF_EXIT "; FENCE[0 1 3] view=2");
    assert_int_equal(coord_view(s.c), 2);
    assert_false(coord_live(s.c)[2]);
    script_close(&s);
}

static void without_the_gradient_of_every_stage_the_iteration_starts_again(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 2);
    script_exit(&s, 2);
    assert_string_equal(script_fenced(&s, 0, 0, 1.0), "");
    assert_string_equal(script_fenced(&s, 1, 0, -1), "");
    assert_string_equal(script_fenced(&s, 3, 0, -1), "GO[0 1 3] view=2 v=0 optimistic shift=0");
    for (uint32_t rank = 0; rank < 4; rank++) assert_false(coord_has_grad(s.c)[rank]);
    assert_string_equal(
        script_iterate(&s, 0, 1.0),
        "DECIDE[0 1 3] view=2 i=0 accept 1 optimistic; DECIDED i=0 accept norm=1.41421 loss=7");
    script_close(&s);
}

static void with_the_gradient_of_every_stage_the_iteration_is_settled(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 3, 2);
    script_exit(&s, 2);
    script_fenced(&s, 0, 0, -1);
    script_fenced(&s, 1, 0, -1);
    script_fenced(&s, 3, 0, 8.0);
    script_fenced(&s, 4, 0, 8.0);
    assert_string_equal(
        script_fenced(&s, 5, 0, 8.0),
        "GO[0 1 3 4 5] view=2 v=1 settle accept 1 optimistic shift=0; DECIDED i=0 accept norm=4 loss=7");
    const bool expected[] = {false, false, false, true, true, true};
    for (uint32_t rank = 0; rank < 6; rank++) assert_int_equal(coord_has_grad(s.c)[rank], expected[rank]);
    assert_int_equal(coord_final(s.c), 1);
    script_close(&s);
}

static void a_settled_version_that_is_due_is_saved_after_go(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(2, 1, 9);
    config.save_every = 1;
    script_open(&s, config);
    script_start(&s);
    script_exit(&s, 0);
    assert_string_equal(script_fenced(&s, 1, 0, 4.0),
                        "GO[1] view=2 v=1 settle accept 1 optimistic shift=0; DECIDED i=0 accept norm=2 "
                        "loss=7; SAVE[1] v=1 0/1");
    script_close(&s);
}

static void a_settled_clip_makes_the_next_iteration_careful(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(2, 1, 9);
    config.clip_norm = 1.0;
    script_open(&s, config);
    script_start(&s);
    script_exit(&s, 0);
    assert_string_equal(script_fenced(&s, 1, 0, 4.0),
                        "GO[1] view=2 v=1 settle clip 0.5 careful shift=0; DECIDED i=0 clip norm=2 loss=7");
    script_close(&s);
}

static void a_death_during_a_fence_starts_it_again_and_old_answers_are_ignored(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 3, 2);
    script_exit(&s, 2);
    script_fenced(&s, 0, 0, 1.0);
    assert_string_equal(script_exit(&s, 3), "DIED[3] " DIED_OF_EXIT "; FENCE[0 1 4 5] view=3");
    const uint32_t late[] = {1, 4, 5};
    for (size_t i = 0; i < 3; i++) {
        struct coord_event old = {.kind = COORD_FENCED, .rank = late[i], .view = 2, .version = 0};
        assert_string_equal(script_step(&s, old), "");
    }
    assert_string_equal(script_fence_all(&s, 0, -1), "GO[0 1 4 5] view=3 v=0 optimistic shift=0");
    script_close(&s);
}

static void reports_of_an_older_view_are_ignored(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 1);
    script_exit(&s, 0);
    struct coord_event old = {.kind = COORD_REDUCED, .rank = 1, .view = 1, .report = {.norm2 = 1.0}};
    assert_string_equal(script_step(&s, old), "");
    assert_string_equal(script_fence_all(&s, 0, -1), "GO[1] view=2 v=0 optimistic shift=0");
    assert_string_equal(script_step(&s, old), "");
    assert_int_equal(coord_final(s.c), 0);
    script_close(&s);
}

static void a_report_before_the_death_does_not_count_without_a_holder(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 2);
    script_reduced(&s, 0, 0, 1.0);
    script_reduced(&s, 1, 0, 1.0);
    script_exit(&s, 1); /* the only one of stage 1 that had it */
    script_fenced(&s, 0, 0, 1.0);
    script_fenced(&s, 2, 0, -1);
    assert_string_equal(script_fenced(&s, 3, 0, -1), "GO[0 2 3] view=2 v=0 optimistic shift=0");
    script_close(&s);
}

static void an_answer_that_differs_from_the_report_of_a_dead_replica_stops(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 1);
    script_reduced(&s, 0, 0, 1.0);
    script_exit(&s, 0);
    assert_string_equal(script_fenced(&s, 1, 0, 2.0),
                        "STOP DIVERGED: replicas of a stage report different gradients");
    script_close(&s);
}

static void a_rank_at_another_version_stops_the_run(void **state) {
    (void)state;
    const uint64_t wrong[] = {0, 2, UINT64_MAX};
    for (size_t i = 0; i < 3; i++) {
        struct script s;
        open_running(&s, 2, 1);
        script_iterate(&s, 0, 1.0);
        script_exit(&s, 0);
        assert_string_equal(script_fenced(&s, 1, wrong[i], -1),
                            "STOP INTERNAL: a rank's final version is not the coordinator's");
        script_close(&s);
    }
}

static void a_rank_fenced_before_it_got_its_gradient_counts_as_dead(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 2);
    script_exit(&s, 3);
    script_fenced(&s, 0, 0, 1.0);
    script_fenced(&s, 1, 0, 1.0);
    script_fenced(&s, 2, 0, -1); /* gets it from rank 0 */
    assert_int_equal(coord_final(s.c), 1);
    assert_string_equal(script_exit(&s, 0), "DIED[0] " DIED_OF_EXIT "; FENCE[1 2] view=3");
    assert_string_equal(
        script_fenced(&s, 2, 0, -1),
        "KILL[2] fenced before it had the gradient to settle; DIED[2] fenced before it had the "
        "gradient to settle; LOST stage=0");
    script_close(&s);
}

static void a_rank_that_got_its_gradient_in_time_stays(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 2);
    script_exit(&s, 3);
    script_fenced(&s, 0, 0, 1.0);
    script_fenced(&s, 1, 0, 1.0);
    script_fenced(&s, 2, 0, -1);
    script_exit(&s, 0);
    script_fenced(&s, 1, 1, -1);
    assert_string_equal(script_fenced(&s, 2, 1, -1), "GO[1 2] view=3 v=1 optimistic shift=0");
    script_close(&s);
}

static void only_a_rank_that_was_sent_for_its_gradient_may_be_behind(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 2);
    script_exit(&s, 3);
    script_fence_all(&s, 0, 1.0);
    script_exit(&s, 0);
    assert_string_equal(script_fenced(&s, 2, 0, -1),
                        "STOP INTERNAL: a rank's final version is not the coordinator's");
    script_close(&s);
}

static void a_death_after_the_last_decision_fences_but_trains_no_further(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(2, 1, 1));
    script_start(&s);
    script_iterate(&s, 0, 1.0);
    script_exit(&s, 0);
    assert_string_equal(script_fenced(&s, 1, 1, 1.0), "GO[1] view=2 v=1 optimistic shift=0");
    assert_string_equal(script_saved(&s, 1, 1, 1, 2, true),
                        "FORGET[1] v=1; SAVE[1] v=1 0/1"); /* half of it died */
    assert_string_equal(script_reduced(&s, 1, 1, 1.0), "");
    assert_int_equal(coord_final(s.c), 1);
    script_close(&s);
}

static void the_last_replica_of_a_stage_takes_the_run_with_it(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 2);
    script_exit(&s, 1);
    assert_string_equal(script_exit(&s, 3), "DIED[3] " DIED_OF_EXIT "; LOST stage=1");
    assert_string_equal(script_exit(&s, 0), "");
    assert_string_equal(script_tick(&s), "");
    script_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_fences_all_live_ranks_with_the_next_view),
        cmocka_unit_test(without_the_gradient_of_every_stage_the_iteration_starts_again),
        cmocka_unit_test(with_the_gradient_of_every_stage_the_iteration_is_settled),
        cmocka_unit_test(a_settled_version_that_is_due_is_saved_after_go),
        cmocka_unit_test(a_settled_clip_makes_the_next_iteration_careful),
        cmocka_unit_test(a_death_during_a_fence_starts_it_again_and_old_answers_are_ignored),
        cmocka_unit_test(reports_of_an_older_view_are_ignored),
        cmocka_unit_test(a_report_before_the_death_does_not_count_without_a_holder),
        cmocka_unit_test(an_answer_that_differs_from_the_report_of_a_dead_replica_stops),
        cmocka_unit_test(a_rank_at_another_version_stops_the_run),
        cmocka_unit_test(a_rank_fenced_before_it_got_its_gradient_counts_as_dead),
        cmocka_unit_test(a_rank_that_got_its_gradient_in_time_stays),
        cmocka_unit_test(only_a_rank_that_was_sent_for_its_gradient_may_be_behind),
        cmocka_unit_test(a_death_after_the_last_decision_fences_but_trains_no_further),
        cmocka_unit_test(the_last_replica_of_a_stage_takes_the_run_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
