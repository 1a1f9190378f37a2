/* What coord.h promises of fence, find, plan and go. */
#include "coord_script.h"

#define DIED_OF_EXIT "its process ended or its channel closed"

static void open_running(struct script *s, uint32_t ranks, uint32_t chunks) {
    script_open(s, script_config(ranks, chunks, 9));
    script_start(s);
}

static void a_death_fences_and_the_iteration_starts_again(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 4, 2);
    assert_string_equal(script_exit(&s, 2), "DIED[2] " DIED_OF_EXIT "; FENCE view=2");
    assert_string_equal(script_fenced(&s, 0, 0, 1.0), "");
    assert_string_equal(script_fenced(&s, 1, 0, -1), "");
    assert_string_equal(script_fenced(&s, 3, 0, -1), "PLAN view=2");
    assert_string_equal(script_planned(&s), "GO view=2 v=0 optimistic shift=0");
    assert_string_equal(script_pairs(&s), "0:0; 1:1; 3:1");
    assert_string_equal(script_iterate(&s, 0, 1.0),
                        "DECIDE view=2 i=0 accept 1 optimistic; DECIDED i=0 accept "
                        "norm=1.41421 loss=7");
    script_close(&s);
}

static void with_the_gradient_of_every_chunk_the_iteration_is_settled(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 6, 2);
    script_exit(&s, 2);
    script_fenced(&s, 0, 0, -1);
    script_fenced(&s, 1, 0, -1);
    script_fenced(&s, 3, 0, 8.0);
    script_fenced(&s, 4, 0, 8.0);
    assert_string_equal(script_fenced(&s, 5, 0, 8.0), "PLAN view=2");
    assert_string_equal(script_planned(&s),
                        "GO view=2 v=1 settle accept 1 optimistic shift=0; DECIDED i=0 accept norm=4 loss=7");
    assert_string_equal(script_pairs(&s), "0:0 grad from 4; 1:1 grad from 3; 3:1; 4:0; 5:1");
    script_close(&s);
}

static void a_lost_chunk_sends_everybody_back(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 4, 2);
    script_iterate(&s, 0, 1.0);
    script_exit(&s, 1);
    assert_string_equal(script_exit(&s, 3), "DIED[3] " DIED_OF_EXIT "; FENCE view=3");
    script_fenced(&s, 0, 1, -1);
    assert_string_equal(script_fenced(&s, 2, 1, -1), "FIND view=3");
    assert_string_equal(script_found(&s, 0), "PLAN view=3");
    s.own[2] = 1;
    assert_string_equal(script_planned(&s), "RESTORED v=0 from 1; GO view=3 v=0 restore optimistic shift=0");
    assert_string_equal(script_pairs(&s), "0:0 load; 2:1 load");
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
    assert_string_equal(script_fence_all(&s, 0, 4.0),
                        "GO view=2 v=1 settle accept 1 optimistic shift=0; DECIDED i=0 accept norm=2 "
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
    assert_string_equal(script_fence_all(&s, 0, 4.0),
                        "GO view=2 v=1 settle clip 0.5 careful shift=0; DECIDED i=0 clip norm=2 loss=7");
    script_close(&s);
}

static void with_a_barrier_no_iteration_is_optimistic(void **state) {
    (void)state;
    struct script s;
    struct coord_config config = script_config(1, 1, 9);
    config.barrier = true;
    script_open(&s, config);
    assert_string_equal(script_start(&s), "GO view=1 v=0 restore careful shift=0");
    assert_string_equal(script_iterate(&s, 0, 1.0),
                        "DECIDE view=1 i=0 accept 1 careful; DECIDED i=0 accept norm=1 loss=7");
    script_close(&s);
}

static void a_death_during_a_fence_starts_it_again_and_old_answers_are_ignored(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 6, 2);
    script_exit(&s, 2);
    script_fenced(&s, 0, 0, 1.0);
    assert_string_equal(script_exit(&s, 3), "DIED[3] " DIED_OF_EXIT "; FENCE view=3");
    const uint32_t late[] = {1, 4, 5};
    for (size_t i = 0; i < 3; i++) {
        struct coord_event old = {.kind = COORD_FENCED, .rank = late[i], .view = 2};
        assert_string_equal(script_step(&s, old), "");
    }
    assert_string_equal(script_fence_all(&s, 0, -1), "GO view=3 v=0 optimistic shift=0");
    script_close(&s);
}

static void a_death_while_the_driver_looks_or_plans_starts_the_fence_again(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 6, 2);
    script_exit(&s, 2);
    for (uint32_t rank = 0; rank < 6; rank++)
        if (rank != 2) script_fenced(&s, rank, 0, -1);
    assert_string_equal(script_exit(&s, 4), "DIED[4] " DIED_OF_EXIT "; FENCE view=3");
    struct coord_event old = {.kind = COORD_PLANNED, .view = 2, .ok = true, .holds = s.holds, .own = s.own};
    assert_string_equal(script_step(&s, old), "");
    script_exit(&s, 0); /* the last of chunk 0 */
    for (uint32_t rank = 1; rank < 6; rank += 2) script_fenced(&s, rank, 0, -1);
    assert_string_equal(script_exit(&s, 1), "DIED[1] " DIED_OF_EXIT "; FENCE view=5");
    struct coord_event found = {.kind = COORD_FOUND, .view = 4, .ok = true};
    assert_string_equal(script_step(&s, found), "");
    script_fenced(&s, 3, 0, -1);
    assert_string_equal(script_fenced(&s, 5, 0, -1), "FIND view=5");
    script_close(&s);
}

static void reports_of_an_older_view_are_ignored(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 1);
    script_exit(&s, 0);
    struct coord_event old = {.kind = COORD_REDUCED, .rank = 1, .view = 1, .report = {.norm2 = 1.0}};
    assert_string_equal(script_step(&s, old), "");
    assert_string_equal(script_fence_all(&s, 0, -1), "GO view=2 v=0 optimistic shift=0");
    assert_string_equal(script_step(&s, old), "");
    assert_int_equal(coord_final(s.c), 0);
    script_close(&s);
}

static void a_report_before_the_death_does_not_count_without_a_holder(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 4, 2);
    script_reduced(&s, 0, 0, 1.0);
    script_reduced(&s, 1, 0, 1.0);
    script_exit(&s, 1); /* the only one of chunk 1 that had it */
    script_fenced(&s, 0, 0, 1.0);
    script_fenced(&s, 2, 0, -1);
    assert_string_equal(script_go(&s, script_fenced(&s, 3, 0, -1)), "GO view=2 v=0 optimistic shift=0");
    assert_string_equal(script_pairs(&s), "0:0; 2:0 grad from 0; 3:1"); /* chunk 0 is not made again */
    assert_string_equal(script_iterate(&s, 0, 1.0),
                        "DECIDE view=2 i=0 accept 1 optimistic; DECIDED i=0 accept "
                        "norm=1.41421 loss=7");
    script_close(&s);
}

static void answers_that_disagree_about_a_gradient_stop(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 3, 1);
    script_exit(&s, 0);
    script_fenced(&s, 1, 0, 1.0);
    assert_string_equal(script_fenced(&s, 2, 0, 1.5),
                        "STOP DIVERGED: replicas of a chunk report different gradients");
    script_close(&s);
}

static void what_is_at_an_older_version_counts_as_not_there(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 4, 2);
    script_exit(&s, 3);
    script_fenced(&s, 0, 0, 1.0);
    script_fenced(&s, 1, 0, 1.0);
    script_go(&s, script_fenced(&s, 2, 0, -1)); /* settles; rank 2 gets the gradient from rank 0 */
    assert_string_equal(script_pairs(&s), "0:0; 1:1; 2:0 grad from 0");
    assert_int_equal(coord_final(s.c), 1);
    script_step(&s, (struct coord_event){.kind = COORD_LEAVING, .rank = 1});
    script_fenced(&s, 0, 1, -1);
    script_fenced(&s, 1, 1, -1);
    assert_string_equal(script_fenced(&s, 2, 0, -1), "PLAN view=3");
    assert_false(coord_has_state(s.c)[2 * 2 + 0]);
    assert_true(coord_has_state(s.c)[0]);
    s.own[2] = 1;
    assert_string_equal(script_planned(&s), "GO view=3 v=1 optimistic shift=0");
    assert_string_equal(script_pairs(&s), "0:0; 2:1 state from 1");
    script_close(&s);
}

static void a_settled_gradient_that_died_with_its_only_holder_sends_everybody_back(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 4, 2);
    script_exit(&s, 3);
    script_fenced(&s, 0, 0, 1.0);
    script_fenced(&s, 1, 0, 1.0);
    script_go(&s, script_fenced(&s, 2, 0, -1));
    script_exit(&s, 0);
    script_fenced(&s, 1, 1, -1);
    assert_string_equal(script_fenced(&s, 2, 0, -1), "FIND view=3");
    script_close(&s);
}

static void a_newer_version_than_the_final_one_stops_the_run(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 1);
    script_exit(&s, 0);
    assert_string_equal(script_fenced(&s, 1, 1, -1),
                        "STOP INTERNAL: a rank's final version is newer than the coordinator's");
    script_close(&s);
}

static void a_death_after_the_last_decision_fences_but_trains_no_further(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(2, 1, 1));
    script_start(&s);
    script_iterate(&s, 0, 1.0);
    script_exit(&s, 0);
    assert_string_equal(script_fence_all(&s, 1, 1.0), "GO view=2 v=1 optimistic shift=0");
    assert_string_equal(script_saved(&s, 1, 1, 1, 2, true),
                        "FORGET v=1; SAVE[1] v=1 0/1"); /* half of it died */
    assert_string_equal(script_reduced(&s, 1, 1, 1.0), "");
    assert_int_equal(coord_final(s.c), 1);
    script_close(&s);
}

static void gradients_beyond_the_last_version_are_not_fetched(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(3, 1, 1));
    script_start(&s);
    script_iterate(&s, 0, 1.0);
    script_exit(&s, 0);
    script_fenced(&s, 1, 1, 1.0);
    assert_string_equal(script_go(&s, script_fenced(&s, 2, 1, -1)), "GO view=2 v=1 optimistic shift=0");
    assert_string_equal(script_pairs(&s), "1:0; 2:0");
    script_close(&s);
}

/* ---- contributions ---- */

static struct coord_fenced_pair working(const struct script *s, uint32_t rank, uint64_t version,
                                        uint64_t work, int32_t shift) {
    return (struct coord_fenced_pair){
        .chunk = s->own[rank], .version = version, .work = work, .work_shift = shift};
}

static void contributions_to_the_iteration_that_starts_are_kept(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 4, 1);
    script_exit(&s, 3);
    script_fenced_with(&s, 0, working(&s, 0, 0, 0, 0));
    script_fenced_with(&s, 1, working(&s, 1, 0, COORD_NO_WORK, 0));
    script_go(&s, script_fenced_with(&s, 2, working(&s, 2, 0, 1, 0))); /* of an iteration that is not there */
    assert_string_equal(script_pairs(&s), "0:0 work; 1:0; 2:0");
    script_close(&s);
}

static void contributions_with_other_exponents_are_not(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 1);
    struct coord_report over = {.norm2 = 1.0, .loss = 7, .overflow = 1};
    script_reduced_as(&s, 0, over);
    script_reduced_as(&s, 1, over);
    script_fenced_as(&s, 0, over);
    assert_string_equal(script_go(&s, script_fenced_as(&s, 1, over)), "GO view=2 v=0 optimistic shift=16");
    script_exit(&s, 1);
    script_go(&s, script_fenced_with(&s, 0, working(&s, 0, 0, 0, 0)));
    assert_string_equal(script_pairs(&s), "0:0");
    script_of(&s, COORD_TICK, 0);
    script_close(&s);
}

static void a_redo_keeps_neither_gradients_nor_contributions(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 1);
    struct coord_report over = {.norm2 = 1.0, .loss = 7, .overflow = 1};
    script_reduced_as(&s, 0, over);
    script_reduced_as(&s, 1, over);
    script_fenced_as(&s, 0, over);
    script_go(&s, script_fenced_with(&s, 1, working(&s, 1, 0, 0, 0)));
    assert_string_equal(script_pairs(&s), "0:0; 1:0");
    script_close(&s);
}

/* Both ranks are fenced having gone on from what the verdict of iteration 0 may accept. */
static const char *settled_with(struct script *s, double norm2, uint64_t nonfinite, const char *go) {
    struct coord_config config = script_config(2, 1, 9);
    config.clip_norm = 2.0;
    script_open(s, config);
    script_start(s);
    script_iterate(s, 0, 1.0); /* so that iteration 1 is optimistic */
    script_exit(s, 1);
    struct coord_fenced_pair pair = working(s, 0, 1, 2, 0);
    pair.has_report = true;
    pair.report = script_report(s, 0, 1, norm2);
    pair.report.nonfinite = nonfinite;
    const char *said = script_go(s, script_fenced_with(s, 0, pair));
    if (strstr(said, go) == NULL) fail_msg("wanted %s, had %s", go, said);
    return script_pairs(s);
}

static void contributions_beyond_a_settled_iteration_count_if_it_was_accepted(void **state) {
    (void)state;
    struct script s;
    assert_string_equal(settled_with(&s, 1.0, 0, "v=2 settle accept"), "0:0 work");
    script_close(&s);
    assert_string_equal(settled_with(&s, 100.0, 0, "v=2 settle clip"), "0:0");
    script_close(&s);
    assert_string_equal(settled_with(&s, 1.0, 1, "v=2 settle skip"), "0:0");
    script_close(&s);
}

static void who_comes_by_its_version_from_elsewhere_keeps_no_contributions(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 3, 1);
    script_iterate(&s, 0, 1.0);
    script_exit(&s, 2);
    script_fenced_with(&s, 0, working(&s, 0, 1, 1, 0));
    script_go(&s, script_fenced_with(&s, 1, working(&s, 1, 0, 1, 0))); /* a version behind */
    assert_string_equal(script_pairs(&s), "0:0 work; 1:0 state from 0");
    script_close(&s);
}

/* ---- plans ---- */

static void a_source_that_keeps_its_chunk_is_preferred_and_none_is_its_own(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 6, 2);
    script_exit(&s, 5);
    for (uint32_t rank = 0; rank < 5; rank++) script_fenced(&s, rank, 0, -1);
    script_make_plan(&s);
    memset(s.holds, 0, sizeof s.holds);
    const uint32_t own[] = {1, 1, 0, 1, 1, UINT32_MAX}; /* ranks 0 and 4 move to chunk 1 */
    for (uint32_t rank = 0; rank < 6; rank++) {
        s.own[rank] = own[rank];
        if (own[rank] != UINT32_MAX) s.holds[rank * 2 + own[rank]] = true;
    }
    script_planned_as(&s);
    assert_string_equal(script_pairs(&s), "0:1 state from 1; 1:1; 2:0; 3:1; 4:1 state from 1");
    script_close(&s);
}

static void who_moves_away_is_a_source_if_there_is_no_other(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 4, 2);
    script_exit(&s, 2);
    for (uint32_t rank = 0; rank < 4; rank++)
        if (rank != 2) script_fenced(&s, rank, 0, -1);
    script_make_plan(&s);
    memset(s.holds, 0, sizeof s.holds);
    const uint32_t own[] = {1, 0, UINT32_MAX, 1};
    for (uint32_t rank = 0; rank < 4; rank++) {
        s.own[rank] = own[rank];
        if (own[rank] != UINT32_MAX) s.holds[rank * 2 + own[rank]] = true;
    }
    script_planned_as(&s);
    assert_string_equal(script_pairs(&s), "0:1 state from 3; 1:0 state from 0; 3:1");
    script_close(&s);
}

static void who_moves_to_a_chunk_that_is_reduced_fetches_both(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 4, 2);
    script_exit(&s, 3);
    script_fenced(&s, 0, 0, -1);
    script_fenced(&s, 1, 0, 1.0); /* chunk 1 is reduced, chunk 0 is not */
    script_fenced(&s, 2, 0, -1);
    s.own[2] = 1;
    assert_string_equal(script_planned(&s), "GO view=2 v=0 optimistic shift=0");
    assert_string_equal(script_pairs(&s), "0:0; 1:1; 2:1 state grad from 1");
    script_close(&s);
}

static void a_plan_that_is_not_whole_stops_the_run(void **state) {
    (void)state;
    const char *stop = "STOP INTERNAL: a plan with a chunk that nobody saves, or a rank that is not there";
    for (int broken = 0; broken < 6; broken++) {
        struct script s;
        open_running(&s, 4, 2);
        script_exit(&s, 3);
        for (uint32_t rank = 0; rank < 3; rank++) script_fenced(&s, rank, 0, -1);
        script_make_plan(&s);
        if (broken == 0) s.own[1] = UINT32_MAX;               /* chunk 1 is nobody's own */
        if (broken == 1) s.own[0] = 1;                        /* own, and not held */
        if (broken == 2) s.own[0] = 2;                        /* no such chunk */
        if (broken == 3) s.holds[3 * 2] = true;               /* a dead rank holds */
        if (broken == 4) s.own[3] = 0, s.holds[3 * 2] = true; /* and owns */
        struct coord_event event = {.kind = COORD_PLANNED, .view = 2, .ok = true, .own = s.own};
        if (broken < 5) event.holds = s.holds;
        assert_string_equal(script_step(&s, event), stop);
        script_close(&s);
    }
}

static void a_planner_that_fails_stops_the_run(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 1);
    script_exit(&s, 1);
    script_fenced(&s, 0, 0, -1);
    struct coord_event event = {.kind = COORD_PLANNED, .view = 2, .code = PAWL_MEMORY, .why = "no memory"};
    assert_string_equal(script_step(&s, event), "STOP MEMORY: no memory");
    script_close(&s);
}

/* ---- too few ---- */

/* As one that takes over before the first fence finds it, when all who had been started are gone. */
static void a_coordinator_that_hears_of_nobody_asks_for_workers(void **state) {
    (void)state;
    struct script s;
    script_open(&s, script_config(4, 2, 10));
    script_tick(&s);
    assert_string_equal(script_wait(&s, 59, 0, 0), "");
    assert_string_equal(script_wait(&s, 1, 0, 0), "FENCE view=1; FIND view=1");
    script_found(&s, 0);
    assert_string_equal(script_no_plan(&s), "NEED 2: too few");
    script_started(&s, 3);
    assert_string_equal(script_ready(&s, 3), "FENCE view=2");
    script_close(&s);
}

static void too_few_workers_are_waited_for_and_each_that_is_ready_is_tried(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 4, 2);
    script_tick(&s);
    script_exit(&s, 1);
    script_exit(&s, 2);
    script_exit(&s, 3);
    assert_string_equal(script_fenced(&s, 0, 0, -1), "FIND view=4");
    script_found(&s, 0);
    assert_string_equal(script_no_plan(&s), "NEED 1: too few");
    assert_string_equal(script_wait(&s, 39, 1, 0), "");
    script_started(&s, 3);
    assert_string_equal(script_ready(&s, 3), "FENCE view=5");
    script_fenced(&s, 0, 0, -1);
    assert_string_equal(script_fenced_empty(&s, 3), "FIND view=5");
    script_found(&s, 0);
    s.own[0] = 0;
    s.own[3] = 1;
    assert_string_equal(script_planned(&s),
                        "RESTORED v=0 from 0; JOINED[3]; GO view=5 v=0 restore optimistic shift=0");
    script_close(&s);
}

static void too_few_workers_for_too_long_stop_the_run(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 4, 2);
    script_tick(&s);
    for (uint32_t rank = 1; rank < 4; rank++) script_exit(&s, rank);
    script_fenced(&s, 0, 0, -1);
    script_found(&s, 0);
    script_no_plan(&s);
    assert_string_equal(script_wait(&s, 39, 1, 0), "");
    assert_string_equal(script_wait(&s, 1, 1, 0),
                        "STOP STAGE_LOST: too few workers are left, and none joined in failure.wait_s; the "
                        "same command goes on from the newest durable step");
    script_close(&s);
}

static void one_more_that_is_not_enough_does_not_begin_the_wait_anew(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 6, 3);
    script_tick(&s);
    for (uint32_t rank = 1; rank < 6; rank++) script_exit(&s, rank);
    script_fenced(&s, 0, 0, -1);
    script_found(&s, 0);
    assert_string_equal(script_no_plan(&s), "NEED 2: too few");
    script_wait(&s, 20, 1, 0);
    script_started(&s, 1);
    script_ready(&s, 1);
    script_fenced(&s, 0, 0, -1);
    script_fenced_empty(&s, 1);
    script_found(&s, 0);
    assert_string_equal(script_no_plan(&s), "NEED 1: too few");
    assert_string_equal(script_wait(&s, 19, 3, 0), "");
    assert_string_equal(script_wait(&s, 1, 3, 0),
                        "STOP STAGE_LOST: too few workers are left, and none joined in failure.wait_s; the "
                        "same command goes on from the newest durable step");
    script_close(&s);
}

static void when_all_are_dead_new_ones_are_waited_for(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 1, 1);
    assert_string_equal(script_exit(&s, 0), "DIED[0] " DIED_OF_EXIT "; FENCE view=2; FIND view=2");
    assert_string_equal(script_found(&s, 0), "PLAN view=2");
    assert_string_equal(script_no_plan(&s), "NEED 1: too few");
    script_started(&s, 0);
    assert_string_equal(script_ready(&s, 0), "FENCE view=3");
    script_fenced_empty(&s, 0);
    script_found(&s, 0);
    assert_string_equal(script_planned(&s),
                        "RESTORED v=0 from 0; JOINED[0]; GO view=3 v=0 restore optimistic shift=0");
    script_close(&s);
}

static void one_that_leaves_instead_of_filling_a_gap_is_asked_for_again(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 2);
    script_exit(&s, 1);
    script_fenced(&s, 0, 0, -1);
    script_found(&s, 0);
    assert_string_equal(script_no_plan(&s), "NEED 1: too few");
    script_started(&s, 1);
    assert_string_equal(script_leaving(&s, 1), "LEAVE[1]");
    assert_string_equal(script_exit(&s, 1), "LEFT[1]; FENCE view=3");
    assert_string_equal(script_fenced(&s, 0, 0, -1), "FIND view=3");
    script_found(&s, 0);
    assert_string_equal(script_no_plan(&s), "NEED 1: too few");
    script_close(&s);
}

static void one_that_dies_instead_of_filling_a_gap_is_asked_for_again(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 2);
    script_exit(&s, 1);
    script_fenced(&s, 0, 0, -1);
    script_found(&s, 0);
    assert_string_equal(script_no_plan(&s), "NEED 1: too few");
    script_started(&s, 1);
    assert_string_equal(script_exit(&s, 1), "DIED[1] " DIED_OF_EXIT "; FENCE view=3");
    assert_string_equal(script_fenced(&s, 0, 0, -1), "FIND view=3");
    script_found(&s, 0);
    assert_string_equal(script_no_plan(&s), "NEED 1: too few");
    script_close(&s);
}

static void stopping_while_too_few_are_there_ends_at_the_durable_step(void **state) {
    (void)state;
    struct script s;
    open_running(&s, 2, 2);
    script_iterate(&s, 0, 1.0);
    script_exit(&s, 1);
    script_fenced(&s, 0, 1, -1);
    script_found(&s, 1);
    script_no_plan(&s);
    assert_string_equal(script_stopping(&s), "RESTORED v=1 from 1; FINISH v=1");
    script_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_fences_and_the_iteration_starts_again),
        cmocka_unit_test(with_the_gradient_of_every_chunk_the_iteration_is_settled),
        cmocka_unit_test(a_lost_chunk_sends_everybody_back),
        cmocka_unit_test(a_settled_version_that_is_due_is_saved_after_go),
        cmocka_unit_test(a_settled_clip_makes_the_next_iteration_careful),
        cmocka_unit_test(with_a_barrier_no_iteration_is_optimistic),
        cmocka_unit_test(a_death_during_a_fence_starts_it_again_and_old_answers_are_ignored),
        cmocka_unit_test(a_death_while_the_driver_looks_or_plans_starts_the_fence_again),
        cmocka_unit_test(reports_of_an_older_view_are_ignored),
        cmocka_unit_test(a_report_before_the_death_does_not_count_without_a_holder),
        cmocka_unit_test(answers_that_disagree_about_a_gradient_stop),
        cmocka_unit_test(what_is_at_an_older_version_counts_as_not_there),
        cmocka_unit_test(a_settled_gradient_that_died_with_its_only_holder_sends_everybody_back),
        cmocka_unit_test(a_newer_version_than_the_final_one_stops_the_run),
        cmocka_unit_test(a_death_after_the_last_decision_fences_but_trains_no_further),
        cmocka_unit_test(gradients_beyond_the_last_version_are_not_fetched),
        cmocka_unit_test(contributions_to_the_iteration_that_starts_are_kept),
        cmocka_unit_test(contributions_with_other_exponents_are_not),
        cmocka_unit_test(a_redo_keeps_neither_gradients_nor_contributions),
        cmocka_unit_test(contributions_beyond_a_settled_iteration_count_if_it_was_accepted),
        cmocka_unit_test(who_comes_by_its_version_from_elsewhere_keeps_no_contributions),
        cmocka_unit_test(a_source_that_keeps_its_chunk_is_preferred_and_none_is_its_own),
        cmocka_unit_test(who_moves_away_is_a_source_if_there_is_no_other),
        cmocka_unit_test(who_moves_to_a_chunk_that_is_reduced_fetches_both),
        cmocka_unit_test(a_plan_that_is_not_whole_stops_the_run),
        cmocka_unit_test(a_planner_that_fails_stops_the_run),
        cmocka_unit_test(a_coordinator_that_hears_of_nobody_asks_for_workers),
        cmocka_unit_test(too_few_workers_are_waited_for_and_each_that_is_ready_is_tried),
        cmocka_unit_test(too_few_workers_for_too_long_stop_the_run),
        cmocka_unit_test(one_more_that_is_not_enough_does_not_begin_the_wait_anew),
        cmocka_unit_test(when_all_are_dead_new_ones_are_waited_for),
        cmocka_unit_test(one_that_leaves_instead_of_filling_a_gap_is_asked_for_again),
        cmocka_unit_test(one_that_dies_instead_of_filling_a_gap_is_asked_for_again),
        cmocka_unit_test(stopping_while_too_few_are_there_ends_at_the_durable_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
