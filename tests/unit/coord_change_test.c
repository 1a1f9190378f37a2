/* What coord.h promises of joins, leaves and better plans. */
#include "coord_script.h"

/* Three of `ranks` places are taken and run, one chunk; the others are empty. */
static void open_three(struct script *s, uint32_t ranks, uint64_t final_version) {
    script_open(s, script_config(ranks, 1, final_version));
    for (uint32_t rank = 0; rank < 3; rank++) script_started(s, rank);
    for (uint32_t rank = 0; rank < 3; rank++) script_ready(s, rank);
    for (uint32_t rank = 0; rank < 3; rank++) script_fenced_empty(s, rank);
    script_found(s, 0);
    script_planned(s);
}

static const char *prepare_as(struct script *s, uint32_t rank, uint32_t chunk) {
    return script_step(s, (struct coord_event){.kind = COORD_PREPARE_AS, .rank = rank, .chunk = chunk});
}

static const char *prepared(struct script *s, uint32_t rank, uint32_t chunk, uint64_t version) {
    return script_step(
        s, (struct coord_event){.kind = COORD_PREPARED, .rank = rank, .chunk = chunk, .version = version});
}

static const char *copied(struct script *s, uint32_t rank, uint64_t version) {
    return script_fenced_with(
        s, rank, (struct coord_fenced_pair){.chunk = 0, .version = version, .work = COORD_NO_WORK});
}

static void a_rank_that_comes_copies_first_and_enters_when_the_copy_is_complete(void **state) {
    (void)state;
    struct script s;
    open_three(&s, 4, 9);
    script_started(&s, 3);
    assert_string_equal(script_ready(&s, 3), "PREPARE_FOR[3]");
    assert_string_equal(prepare_as(&s, 3, 0), "");
    assert_string_equal(script_iterate(&s, 0, 1.0),
                        "DECIDE view=1 i=0 accept 1 optimistic; DECIDED i=0 accept "
                        "norm=1 loss=7; PREPARE[3] v=1 chunk 0 from 0");
    assert_false(coord_members(s.c)[3]);
    assert_string_equal(prepared(&s, 3, 0, 1), "FENCE view=2");
    assert_true(coord_members(s.c)[3]);
    for (uint32_t rank = 0; rank < 3; rank++) script_fenced(&s, rank, 1, -1);
    assert_string_equal(copied(&s, 3, 1), "PLAN view=2");
    assert_true(coord_has_state(s.c)[3]);
    assert_string_equal(script_planned(&s), "JOINED[3]; GO view=2 v=1 optimistic shift=0");
    assert_string_equal(script_pairs(&s), "0:0; 1:0; 2:0; 3:0");
    script_close(&s);
}

static void a_copy_that_is_overtaken_is_made_once_more_and_then_the_fence_fetches(void **state) {
    (void)state;
    struct script s;
    open_three(&s, 4, 9);
    script_started(&s, 3);
    script_ready(&s, 3);
    prepare_as(&s, 3, 0);
    script_iterate(&s, 0, 1.0);
    script_iterate(&s, 1, 1.0);
    assert_string_equal(prepared(&s, 3, 0, 1), "PREPARE[3] v=2 chunk 0 from 0");
    script_iterate(&s, 2, 1.0);
    assert_string_equal(prepared(&s, 3, 0, 2), "FENCE view=2");
    for (uint32_t rank = 0; rank < 3; rank++) script_fenced(&s, rank, 3, -1);
    script_go(&s, copied(&s, 3, 2));
    assert_string_equal(script_pairs(&s), "0:0; 1:0; 2:0; 3:0 state from 0");
    script_close(&s);
}

static void a_fence_for_something_else_takes_in_who_is_ready(void **state) {
    (void)state;
    struct script s;
    open_three(&s, 4, 9);
    script_started(&s, 3);
    script_ready(&s, 3);
    prepare_as(&s, 3, 0);
    script_iterate(&s, 0, 1.0);
    script_exit(&s, 0);
    assert_true(coord_members(s.c)[3]);
    script_fenced(&s, 1, 1, -1);
    script_fenced(&s, 2, 1, -1);
    assert_string_equal(script_go(&s, script_fenced_empty(&s, 3)),
                        "JOINED[3]; GO view=2 v=1 optimistic shift=0");
    assert_string_equal(prepared(&s, 3, 0, 1), ""); /* it was on the way */
    script_close(&s);
}

static void a_rank_that_is_ready_during_a_fence_waits_for_the_next(void **state) {
    (void)state;
    struct script s;
    open_three(&s, 4, 9);
    script_started(&s, 3);
    script_exit(&s, 0);
    assert_string_equal(script_ready(&s, 3), "");
    script_fenced(&s, 1, 0, -1);
    assert_string_equal(script_go(&s, script_fenced(&s, 2, 0, -1)),
                        "GO view=2 v=0 optimistic shift=0; PREPARE_FOR[3]");
    script_close(&s);
}

static void a_rank_that_would_be_a_spare_enters_without_a_copy_once_all_have_theirs(void **state) {
    (void)state;
    struct script s;
    open_three(&s, 4, 9);
    script_started(&s, 3);
    script_ready(&s, 3);
    assert_string_equal(prepare_as(&s, 3, UINT32_MAX), ""); /* the first view is still loading */
    assert_string_equal(script_tick(&s), "");
    script_iterate(&s, 0, 1.0);
    assert_string_equal(script_tick(&s), "FENCE view=2");
    for (uint32_t rank = 0; rank < 3; rank++) script_fenced(&s, rank, 1, -1);
    assert_string_equal(script_fenced_empty(&s, 3), "PLAN view=2");
    script_make_plan(&s);
    s.own[3] = UINT32_MAX;
    s.holds[3] = false;
    assert_string_equal(script_planned_as(&s), "JOINED[3]; GO view=2 v=1 optimistic shift=0");
    assert_string_equal(script_iterate(&s, 1, 1.0), /* without it */
                        "DECIDE view=2 i=1 accept 1 optimistic; DECIDED i=1 accept norm=1 loss=7");
    script_close(&s);
}

static void a_copy_that_takes_too_long_is_not_waited_for(void **state) {
    (void)state;
    struct script s;
    open_three(&s, 4, 9);
    script_tick(&s);
    script_started(&s, 3);
    script_ready(&s, 3);
    prepare_as(&s, 3, 0);
    script_iterate(&s, 0, 1.0);
    for (uint64_t i = 2; i < 31; i++) {
        script_beat(&s, 0, i, true);
        assert_string_equal(script_wait(&s, 1, 0xe, 0), "");
    }
    script_beat(&s, 0, 99, true);
    assert_string_equal(script_wait(&s, 1, 0xe, 0), "FENCE view=2");
    script_close(&s);
}

static void all_who_come_are_waited_for_and_enter_with_one_fence(void **state) {
    (void)state;
    struct script s;
    open_three(&s, 5, 9);
    for (uint32_t rank = 3; rank < 5; rank++) {
        script_started(&s, rank);
        script_ready(&s, rank);
        prepare_as(&s, rank, 0);
    }
    assert_non_null(strstr(script_iterate(&s, 0, 1.0), "PREPARE[3 4] v=1 chunk 0 from 0"));
    assert_string_equal(prepared(&s, 3, 0, 1), "");
    assert_string_equal(prepared(&s, 4, 0, 1), "FENCE view=2");
    script_close(&s);
}

static void a_rank_that_dies_while_it_copies_disturbs_nobody(void **state) {
    (void)state;
    struct script s;
    open_three(&s, 4, 9);
    script_started(&s, 3);
    script_ready(&s, 3);
    prepare_as(&s, 3, 0);
    script_iterate(&s, 0, 1.0);
    assert_string_equal(script_step(&s, (struct coord_event){.kind = COORD_SUSPECT, .rank = 3, .peer = 0}),
                        "");
    assert_string_equal(script_exit(&s, 3), "DIED[3] its process ended or its channel closed");
    assert_string_equal(script_tick(&s), "");
    assert_int_equal(coord_view(s.c), 1);
    script_close(&s);
}

static void nobody_enters_after_the_last_decision_and_who_waits_is_sent_away(void **state) {
    (void)state;
    struct script s;
    open_three(&s, 5, 1);
    script_iterate(&s, 0, 1.0);
    script_started(&s, 3);
    assert_string_equal(script_ready(&s, 3), "");
    script_started(&s, 4);
    script_saved(&s, 0, 1, 0, 3, true);
    script_saved(&s, 1, 1, 1, 3, true);
    assert_string_equal(script_saved(&s, 2, 1, 2, 3, true),
                        "DURABLE v=1; DURABLE_AT v=1; LEAVE[3 4]; FINISH v=1");
    script_close(&s);
}

/* ---- better plans ---- */

static void a_better_plan_waits_until_all_have_what_they_were_promised(void **state) {
    (void)state;
    struct script s;
    open_three(&s, 3, 9);
    assert_string_equal(script_of(&s, COORD_REPLAN, 0), "");
    assert_null(strstr(script_iterate(&s, 0, 1.0), "FENCE"));
    assert_string_equal(script_tick(&s), "FENCE view=2");
    script_fence_all(&s, 1, -1);
    script_iterate(&s, 1, 1.0);
    assert_string_equal(script_tick(&s), ""); /* once */
    assert_string_equal(script_of(&s, COORD_REPLAN, 0), "FENCE view=3");
    assert_string_equal(script_of(&s, COORD_REPLAN, 0), "");
    script_fence_all(&s, 2, -1);
    script_iterate(&s, 2, 1.0);
    assert_string_equal(script_tick(&s), "FENCE view=4"); /* a still better one */
    script_close(&s);
}

static void a_better_plan_waits_for_who_is_coming_in(void **state) {
    (void)state;
    struct script s;
    open_three(&s, 4, 9);
    script_started(&s, 3);
    script_ready(&s, 3);
    prepare_as(&s, 3, 0);
    script_iterate(&s, 0, 1.0);
    assert_string_equal(script_of(&s, COORD_REPLAN, 0), "");
    assert_string_equal(prepared(&s, 3, 0, 1), "FENCE view=2");
    script_close(&s);
}

/* ---- leaves ---- */

static void who_leaves_is_left_out_of_the_next_plan_and_goes_when_all_have_reported(void **state) {
    (void)state;
    struct script s;
    open_three(&s, 3, 9);
    assert_string_equal(script_leaving(&s, 1), "FENCE view=2");
    assert_string_equal(script_leaving(&s, 1), "");
    for (uint32_t rank = 0; rank < 2; rank++) script_fenced(&s, rank, 0, -1);
    assert_string_equal(script_fenced(&s, 2, 0, -1), "PLAN view=2");
    assert_false(coord_candidates(s.c)[1]);
    assert_string_equal(script_planned(&s), "GO view=2 v=0 optimistic shift=0");
    assert_true(coord_members(s.c)[1]);
    assert_string_equal(script_reduced(&s, 0, 0, 1.0), "");
    assert_string_equal(script_reduced(&s, 2, 0, 1.0),
                        "DECIDE view=2 i=0 accept 1 optimistic; DECIDED i=0 accept norm=1 loss=7");
    assert_string_equal(script_tick(&s), "LEAVE[1]");
    assert_false(coord_members(s.c)[1]);
    assert_string_equal(script_exit(&s, 1), "LEFT[1]");
    assert_string_equal(script_iterate(&s, 1, 1.0),
                        "DECIDE view=2 i=1 accept 1 optimistic; DECIDED i=1 accept "
                        "norm=1 loss=7");
    script_close(&s);
}

static void who_leaves_ends_its_saves_first(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(2, 1, 9);
    config.save_every = 1;
    script_open(&s, config);
    script_start(&s);
    script_iterate(&s, 0, 1.0);
    script_leaving(&s, 1);
    script_fence_all(&s, 1, -1);
    script_iterate(&s, 1, 1.0);
    assert_string_equal(script_tick(&s), "");
    struct coord_event saved = {
        .kind = COORD_SAVED, .rank = 1, .version = 1, .part = 1, .parts = 2, .ok = true};
    assert_string_equal(script_step(&s, saved), "LEAVE[1]");
    script_close(&s);
}

static void who_leaves_may_die_before_it_goes(void **state) {
    (void)state;
    struct script s;
    open_three(&s, 3, 9);
    script_leaving(&s, 1);
    assert_string_equal(script_exit(&s, 1), "DIED[1] its process ended or its channel closed; FENCE view=3");
    script_close(&s);
}

static void a_leave_while_the_plan_is_made_starts_the_fence_again(void **state) {
    (void)state;
    struct script s;
    open_three(&s, 3, 9);
    script_exit(&s, 0);
    script_fenced(&s, 1, 0, -1);
    script_fenced(&s, 2, 0, -1);
    assert_string_equal(script_leaving(&s, 1), "FENCE view=3");
    script_fenced(&s, 1, 0, -1);
    assert_string_equal(script_fenced(&s, 2, 0, -1), "PLAN view=3");
    assert_false(coord_candidates(s.c)[1]);
    script_close(&s);
}

static void who_is_no_member_leaves_at_once(void **state) {
    (void)state;
    struct script s;
    open_three(&s, 5, 9);
    script_started(&s, 3);
    assert_string_equal(script_leaving(&s, 3), "LEAVE[3]");
    script_started(&s, 4);
    script_ready(&s, 4);
    assert_string_equal(script_leaving(&s, 4), "LEAVE[4]");
    assert_string_equal(script_step(&s, (struct coord_event){.kind = COORD_READY, .rank = 3}), "");
    assert_string_equal(script_exit(&s, 3), "LEFT[3]");
    assert_string_equal(script_exit(&s, 4), "LEFT[4]");
    assert_string_equal(script_started(&s, 3), ""); /* and the place is free */
    script_close(&s);
}

static void if_no_plan_can_do_without_who_leaves_the_run_ends_with_it(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(2, 2, 9));
    script_start(&s);
    script_leaving(&s, 1);
    script_fenced(&s, 0, 0, -1);
    assert_string_equal(script_fenced(&s, 1, 0, -1), "PLAN view=2");
    assert_false(coord_candidates(s.c)[1]);
    assert_string_equal(script_no_plan(&s), "PLAN view=2");
    assert_true(coord_candidates(s.c)[1]);
    assert_string_equal(script_planned(&s), "GO view=2 v=0 optimistic shift=0");
    assert_string_equal(script_iterate(&s, 0, 2.0),
                        "DECIDE view=2 i=0 accept 1 optimistic; DECIDED i=0 accept "
                        "norm=2 loss=7; SAVE[0 1] v=1 0/1");
    script_saved(&s, 0, 1, 0, 1, true);
    assert_string_equal(script_saved(&s, 1, 1, 0, 1, true), "DURABLE v=1; DURABLE_AT v=1; FINISH v=1");
    script_close(&s);
}

static void who_is_ready_takes_the_place_of_who_leaves(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(3, 2, 9));
    for (uint32_t rank = 0; rank < 2; rank++) script_started(&s, rank);
    for (uint32_t rank = 0; rank < 2; rank++) script_ready(&s, rank);
    for (uint32_t rank = 0; rank < 2; rank++) script_fenced_empty(&s, rank);
    script_found(&s, 0);
    script_planned(&s);
    script_leaving(&s, 1);
    script_started(&s, 2);
    script_ready(&s, 2); /* too late for this fence */
    script_fenced(&s, 0, 0, -1);
    script_fenced(&s, 1, 0, -1);
    assert_string_equal(script_no_plan(&s), "FENCE view=3");
    script_fenced(&s, 0, 0, -1);
    script_fenced(&s, 1, 0, -1);
    assert_string_equal(script_go(&s, script_fenced_empty(&s, 2)),
                        "JOINED[2]; GO view=3 v=0 optimistic shift=0");
    assert_string_equal(script_pairs(&s), "0:0; 2:1 state from 1");
    script_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_comes_copies_first_and_enters_when_the_copy_is_complete),
        cmocka_unit_test(a_copy_that_is_overtaken_is_made_once_more_and_then_the_fence_fetches),
        cmocka_unit_test(a_fence_for_something_else_takes_in_who_is_ready),
        cmocka_unit_test(a_rank_that_is_ready_during_a_fence_waits_for_the_next),
        cmocka_unit_test(a_rank_that_would_be_a_spare_enters_without_a_copy_once_all_have_theirs),
        cmocka_unit_test(a_copy_that_takes_too_long_is_not_waited_for),
        cmocka_unit_test(all_who_come_are_waited_for_and_enter_with_one_fence),
        cmocka_unit_test(a_rank_that_dies_while_it_copies_disturbs_nobody),
        cmocka_unit_test(nobody_enters_after_the_last_decision_and_who_waits_is_sent_away),
        cmocka_unit_test(a_better_plan_waits_until_all_have_what_they_were_promised),
        cmocka_unit_test(a_better_plan_waits_for_who_is_coming_in),
        cmocka_unit_test(who_leaves_is_left_out_of_the_next_plan_and_goes_when_all_have_reported),
        cmocka_unit_test(who_leaves_ends_its_saves_first),
        cmocka_unit_test(who_leaves_may_die_before_it_goes),
        cmocka_unit_test(a_leave_while_the_plan_is_made_starts_the_fence_again),
        cmocka_unit_test(who_is_no_member_leaves_at_once),
        cmocka_unit_test(if_no_plan_can_do_without_who_leaves_the_run_ends_with_it),
        cmocka_unit_test(who_is_ready_takes_the_place_of_who_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
