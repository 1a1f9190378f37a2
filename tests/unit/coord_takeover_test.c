/* What coord.h promises of a coordinator that takes over: the answers to its first fence tell it all. */
#include "coord_script.h"

/* Another coordinator takes over from s->c; `there`: bit per rank. Its first step is a tick. */
static const char *take_over(struct script *s, uint64_t there) {
    struct coord_config config = s->config;
    bool ranks[SCRIPT_PAIRS];
    struct pawl_error e = {0};
    for (uint32_t rank = 0; rank < s->config.ranks; rank++) ranks[rank] = there >> rank & 1;
    config.recover = true;
    config.view = coord_view(s->c);
    config.there = ranks;
    coord_free(s->c);
    if (coord_new(&config, &s->c, &e) != PAWL_OK) fail_msg("coord_new: %s", e.text);
    return script_tick(s);
}

static void open_running(struct script *s, uint32_t ranks, uint32_t chunks, double clip_norm) {
    struct coord_config config = script_config(ranks, chunks, 9);
    config.save_every = 1;
    config.clip_norm = clip_norm;
    script_open(s, config);
    script_start(s);
}

static const char *answer(struct script *s, uint32_t rank, struct coord_fenced_pair pair,
                          const struct coord_fenced_save *saves, uint32_t save_count) {
    pair.chunk = s->own[rank];
    if (pair.has_report) pair.report = script_report(s, pair.chunk, pair.version, 1.0);
    pair.work = COORD_NO_WORK;
    return script_fenced_all(
        s, rank,
        (struct coord_fenced){.pairs = &pair, .pair_count = 1, .saves = saves, .save_count = save_count});
}

static void it_fences_at_once_with_the_next_view_and_ignores_what_was_on_the_way(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 4, 2, 0);
    struct coord_event old = {.kind = COORD_REDUCED, .rank = 1, .view = 1, .chunk = 1};
    assert_string_equal(take_over(&s, 0x7), "FENCE view=2");
    assert_false(coord_members(s.c)[3]);
    assert_string_equal(script_step(&s, old), "");
    assert_string_equal(script_ready(&s, 2), ""); /* it was being started */
    assert_string_equal(script_started(&s, 3), "");
    script_close(&s);
}

static void the_final_version_is_the_newest_that_is_told(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 3, 1, 0);
    take_over(&s, 0x7);
    answer(&s, 0, (struct coord_fenced_pair){.version = 4}, NULL, 0);
    answer(&s, 1, (struct coord_fenced_pair){.version = 5}, NULL, 0);
    assert_string_equal(answer(&s, 2, (struct coord_fenced_pair){.version = 5}, NULL, 0), "PLAN view=2");
    assert_int_equal(coord_final(s.c), 5);
    script_planned(&s);
    assert_string_equal(script_pairs(&s), "0:0 state from 1; 1:0; 2:0");
    script_close(&s);
}

static void gradients_that_all_chunks_hold_are_settled(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 2, 0);
    take_over(&s, 0x3);
    answer(&s, 0, (struct coord_fenced_pair){.version = 4, .has_report = true}, NULL, 0);
    assert_string_equal(
        script_go(&s, answer(&s, 1, (struct coord_fenced_pair){.version = 4, .has_report = true}, NULL, 0)),
        "GO view=2 v=5 settle accept 1 optimistic shift=0; DECIDED i=4 accept norm=1.41421 loss=7; "
        "SAVE[0 1] v=5 0/1");
    script_close(&s);
}

static void shift_and_optimism_are_those_of_who_is_at_the_final_version(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 3, 1, 2.0);
    take_over(&s, 0x7);
    struct coord_fenced_pair final = {.version = 5, .work = COORD_NO_WORK}, older = final;
    older.version = 4;
    script_fenced_all(&s, 0, (struct coord_fenced){.pairs = &older, .pair_count = 1, .shift = 32});
    script_fenced_all(&s, 1, (struct coord_fenced){.pairs = &final, .pair_count = 1, .optimistic = true});
    struct coord_fenced last = {.pairs = &final, .pair_count = 1, .shift = 16};
    assert_string_equal(script_go(&s, script_fenced_all(&s, 2, last)), "GO view=2 v=5 optimistic shift=16");
    script_close(&s);
}

static void impossible_exponents_are_refused(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 1, 1, 0);
    take_over(&s, 0x1);
    assert_string_equal(script_fenced_all(&s, 0, (struct coord_fenced){.shift = -1}),
                        "STOP INTERNAL: an answer to a fence with impossible exponents");
    script_close(&s);
}

static void if_nobody_has_anything_everybody_loads(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 2, 0);
    take_over(&s, 0x3);
    script_fenced_empty(&s, 0);
    assert_string_equal(script_fenced_empty(&s, 1), "FIND view=2");
    script_found(&s, 3);
    assert_string_equal(script_planned(&s), "GO view=2 v=3 restore optimistic shift=0");
    script_close(&s);
}

static void a_chunk_that_was_lost_meanwhile_sends_everybody_back(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 3, 2, 0);
    take_over(&s, 0x5);
    answer(&s, 0, (struct coord_fenced_pair){.version = 7}, NULL, 0);
    assert_string_equal(answer(&s, 2, (struct coord_fenced_pair){.version = 7}, NULL, 0), "FIND view=2");
    script_found(&s, 3);
    s.own[2] = 1;
    assert_string_equal(script_planned(&s), "RESTORED v=3 from 7; GO view=2 v=3 restore optimistic shift=0");
    script_close(&s);
}

static void a_death_before_all_have_answered_starts_the_takeover_again(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 3, 1, 0);
    take_over(&s, 0x7);
    const struct coord_fenced_save part = {.version = 5, .part = 0, .parts = 1};
    answer(&s, 0, (struct coord_fenced_pair){.version = 5}, &part, 1);
    answer(&s, 1, (struct coord_fenced_pair){.version = 4}, NULL, 0);
    assert_non_null(strstr(script_exit(&s, 0), "FENCE view=3"));
    answer(&s, 1, (struct coord_fenced_pair){.version = 4}, NULL, 0);
    assert_string_equal(script_go(&s, answer(&s, 2, (struct coord_fenced_pair){.version = 4}, NULL, 0)),
                        "GO view=3 v=4 optimistic shift=0");
    script_close(&s);
}

static void the_newest_durable_step_is_the_newest_that_anybody_was_told(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 1, 0);
    take_over(&s, 0x3);
    struct coord_fenced_pair pair = {.version = 5, .work = COORD_NO_WORK};
    struct coord_fenced told = {.pairs = &pair, .pair_count = 1, .has_durable = true, .durable = 3};
    script_fenced_all(&s, 0, told);
    told.durable = 2;
    script_fenced_all(&s, 1, told);
    uint64_t version = 0;
    assert_true(coord_durable(s.c, &version));
    assert_int_equal(version, 3);
    script_close(&s);
}

static void a_durable_step_beyond_the_final_version_was_damaged_and_does_not_count(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 1, 1, 0);
    take_over(&s, 0x1);
    struct coord_fenced_pair pair = {.version = 5, .work = COORD_NO_WORK};
    struct coord_fenced told = {.pairs = &pair, .pair_count = 1, .has_durable = true, .durable = 9};
    assert_string_equal(script_fenced_all(&s, 0, told), "PLAN view=2");
    uint64_t version;
    assert_false(coord_durable(s.c, &version));
    script_planned(&s);
    script_iterate(&s, 5, 1.0);
    assert_string_equal(script_saved(&s, 0, 6, 0, 1, true), "DURABLE v=6; DURABLE_AT v=6");
    script_close(&s);
}

static void saves_under_way_go_on(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 1, 0);
    take_over(&s, 0x3);
    const struct coord_fenced_save done = {.version = 5, .part = 0, .parts = 2, .answered = true, .ok = true},
                                   open = {.version = 5, .part = 1, .parts = 2};
    answer(&s, 0, (struct coord_fenced_pair){.version = 5}, &done, 1);
    assert_string_equal(script_go(&s, answer(&s, 1, (struct coord_fenced_pair){.version = 5}, &open, 1)),
                        "GO view=2 v=5 optimistic shift=0");
    assert_string_equal(script_saved(&s, 1, 5, 1, 2, true), "DURABLE v=5; DURABLE_AT v=5");
    script_close(&s);
}

static void a_save_all_of_whose_parts_were_answered_ends(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 1, 0);
    take_over(&s, 0x3);
    struct coord_fenced_save part = {.version = 5, .part = 0, .parts = 2, .answered = true, .ok = true};
    answer(&s, 0, (struct coord_fenced_pair){.version = 5}, &part, 1);
    part.part = 1;
    assert_string_equal(answer(&s, 1, (struct coord_fenced_pair){.version = 5}, &part, 1),
                        "DURABLE v=5; DURABLE_AT v=5; PLAN view=2");
    script_close(&s);
}

static void a_save_with_a_part_that_nobody_has_is_forgotten(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 1, 0);
    take_over(&s, 0x3);
    const struct coord_fenced_save part = {.version = 5, .part = 0, .parts = 2, .answered = true, .ok = true};
    answer(&s, 0, (struct coord_fenced_pair){.version = 5}, &part, 1);
    assert_string_equal(answer(&s, 1, (struct coord_fenced_pair){.version = 5}, NULL, 0),
                        "FORGET v=5; PLAN view=2");
    script_close(&s);
}

static void a_save_of_a_version_that_nobody_got_to_is_forgotten_at_once(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 1, 1, 0);
    take_over(&s, 0x1);
    const struct coord_fenced_save part = {.version = 6, .part = 0, .parts = 1}; /* settled, not yet made */
    assert_string_equal(answer(&s, 0, (struct coord_fenced_pair){.version = 5}, &part, 1),
                        "FORGET v=6; PLAN view=2");
    script_planned(&s);
    assert_string_equal(script_saved(&s, 0, 6, 0, 1, false), ""); /* GO did not bring it */
    assert_string_equal(strstr(script_iterate(&s, 5, 1.0), "SAVE"), "SAVE[0] v=6 0/1");
    assert_string_equal(script_saved(&s, 0, 6, 0, 1, true), "DURABLE v=6; DURABLE_AT v=6");
    script_close(&s);
}

static void a_chunk_that_nobody_was_asked_for_is_not_written(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 2, 0);
    take_over(&s, 0x3);
    const struct coord_fenced_save part = {.version = 5, .part = 0, .parts = 1, .answered = true, .ok = true};
    answer(&s, 0, (struct coord_fenced_pair){.version = 5}, &part, 1);
    assert_string_equal(answer(&s, 1, (struct coord_fenced_pair){.version = 5}, NULL, 0),
                        "FORGET v=5; PLAN view=2");
    script_close(&s);
}

static void a_part_answered_between_the_answers_to_the_fence_counts(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 1, 0);
    take_over(&s, 0x3);
    assert_string_equal(script_saved(&s, 1, 5, 1, 2, true), ""); /* before its answer, which tells it, too */
    const struct coord_fenced_save open = {.version = 5, .part = 0, .parts = 2};
    const struct coord_fenced_save done = {.version = 5, .part = 1, .parts = 2, .answered = true, .ok = true};
    answer(&s, 0, (struct coord_fenced_pair){.version = 5}, &open, 1);
    assert_string_equal(script_saved(&s, 0, 5, 0, 2, true), "");
    assert_string_equal(answer(&s, 1, (struct coord_fenced_pair){.version = 5}, &done, 1),
                        "DURABLE v=5; DURABLE_AT v=5; PLAN view=2");
    script_close(&s);
}

static void at_a_lost_chunk_no_save_counts_any_more(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 1, 0);
    take_over(&s, 0x3);
    struct coord_fenced_save part = {.version = 5, .part = 0, .parts = 2, .answered = true, .ok = true};
    script_fenced_all(&s, 0, (struct coord_fenced){.saves = &part, .save_count = 1});
    part.part = 1;
    assert_string_equal(script_fenced_all(&s, 1, (struct coord_fenced){.saves = &part, .save_count = 1}),
                        "FIND view=2");
    uint64_t version;
    assert_false(coord_durable(s.c, &version));
    script_close(&s);
}

static void the_last_version_is_saved_and_finished_by_who_takes_over(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 1, 1, 0);
    take_over(&s, 0x1);
    assert_string_equal(script_go(&s, answer(&s, 0, (struct coord_fenced_pair){.version = 9}, NULL, 0)),
                        "GO view=2 v=9 optimistic shift=0; SAVE[0] v=9 0/1");
    assert_string_equal(script_saved(&s, 0, 9, 0, 1, true), "DURABLE v=9; DURABLE_AT v=9; FINISH v=9");
    script_close(&s);
}

static void stopping_is_told_again_and_ends_at_the_next_version(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 1, 1, 0);
    take_over(&s, 0x1);
    script_stopping(&s);
    script_go(&s, answer(&s, 0, (struct coord_fenced_pair){.version = 5}, NULL, 0));
    assert_non_null(strstr(script_iterate(&s, 5, 1.0), "SAVE[0] v=6 0/1"));
    assert_string_equal(script_saved(&s, 0, 6, 0, 1, true), "DURABLE v=6; DURABLE_AT v=6; FINISH v=6");
    script_close(&s);
}

static void impossible_saves_are_refused(void **state) {
    (void)state;
    const struct coord_fenced_save bad[] = {{.version = 5, .chunk = 1, .parts = 1},
                                            {.version = 5, .part = 1, .parts = 1}};
    for (size_t i = 0; i < 2; i++) {
        struct script s;
        open_running(&s, 1, 1, 0);
        take_over(&s, 0x1);
        assert_string_equal(
            script_fenced_all(&s, 0, (struct coord_fenced){.saves = &bad[i], .save_count = 1}),
            "STOP INTERNAL: an answer to a fence with an impossible part of a save");
        script_close(&s);
    }
    struct script s;
    open_running(&s, 1, 1, 0);
    take_over(&s, 0x1);
    const struct coord_fenced_save many[] = {
        {.version = 3, .parts = 1}, {.version = 4, .parts = 1}, {.version = 5, .parts = 1}};
    assert_string_equal(script_fenced_all(&s, 0, (struct coord_fenced){.saves = many, .save_count = 3}),
                        "STOP INTERNAL: an answer to a fence with more saves than are ever outstanding");
    script_close(&s);
}

static void a_takeover_needs_to_know_who_is_there(void **state) {
    (void)state;
    struct coord_config config = script_config(2, 1, 9);
    struct coord *c;
    struct pawl_error e = {0};
    config.recover = true;
    assert_int_equal(coord_new(&config, &c, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "there"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_fences_at_once_with_the_next_view_and_ignores_what_was_on_the_way),
        cmocka_unit_test(the_final_version_is_the_newest_that_is_told),
        cmocka_unit_test(gradients_that_all_chunks_hold_are_settled),
        cmocka_unit_test(shift_and_optimism_are_those_of_who_is_at_the_final_version),
        cmocka_unit_test(impossible_exponents_are_refused),
        cmocka_unit_test(if_nobody_has_anything_everybody_loads),
        cmocka_unit_test(a_chunk_that_was_lost_meanwhile_sends_everybody_back),
        cmocka_unit_test(a_death_before_all_have_answered_starts_the_takeover_again),
        cmocka_unit_test(the_newest_durable_step_is_the_newest_that_anybody_was_told),
        cmocka_unit_test(a_durable_step_beyond_the_final_version_was_damaged_and_does_not_count),
        cmocka_unit_test(saves_under_way_go_on),
        cmocka_unit_test(a_save_all_of_whose_parts_were_answered_ends),
        cmocka_unit_test(a_save_with_a_part_that_nobody_has_is_forgotten),
        cmocka_unit_test(a_save_of_a_version_that_nobody_got_to_is_forgotten_at_once),
        cmocka_unit_test(a_chunk_that_nobody_was_asked_for_is_not_written),
        cmocka_unit_test(a_part_answered_between_the_answers_to_the_fence_counts),
        cmocka_unit_test(at_a_lost_chunk_no_save_counts_any_more),
        cmocka_unit_test(the_last_version_is_saved_and_finished_by_who_takes_over),
        cmocka_unit_test(stopping_is_told_again_and_ends_at_the_next_version),
        cmocka_unit_test(impossible_saves_are_refused),
        cmocka_unit_test(a_takeover_needs_to_know_who_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
