/* What run/replan.h promises of roles: who plays which, for whoever is there. */
#include "kit/replan_kit.h"

/* ---- who plays which role ---- */

static void at_the_start_every_rank_plays_the_role_of_its_number(void **state) {
    (void)state;
    for (int policy = 0; policy < PAWL_POLICY_COUNT; policy++) {
        enum pawl_policy p = (enum pawl_policy)policy;
        if (p == PAWL_POLICY_INTERLEAVED || p == PAWL_POLICY_ZB_V) continue; /* the spec has none of them */
        struct run r;
        run_open(&r, spec_of(2, 4, 6, p), false);
        const struct replan_plan *plan = fence(&r);
        for (uint32_t i = 0; i < 8; i++) assert_int_equal(plan->rank_of_role[i], i);
        assert_int_equal(plan->moves, 0);
        run_close(&r);
    }
}

static void a_rank_keeps_its_role_when_another_dies(void **state) {
    (void)state;
    struct run r;
    run_open(&r, spec_of(4, 4, 8, PAWL_POLICY_RECYCLE), false);
    fence(&r);
    dies(&r, 5);
    const struct replan_plan *plan = fence(&r);
    for (uint32_t i = 0; i < 16; i++) assert_int_equal(plan->rank_of_role[i], i == 5 ? NONE : i);
    assert_int_equal(plan->moves, 0);
    run_close(&r);
}

/* Three of four workers of a stage are gone: one of another stage moves, and is the only one that does. */
static void what_a_stage_lacks_is_evened_out_by_moves(void **state) {
    (void)state;
    struct run r;
    run_open(&r, spec_of(4, 4, 8, PAWL_POLICY_RECYCLE), false);
    fence(&r);
    for (uint32_t p = 0; p < 3; p++) dies(&r, p * 4 + 1);
    const struct replan_plan *plan = fence(&r);
    uint32_t live = 0, elsewhere = 0;
    for (uint32_t rank = 0; rank < 16; rank++) {
        live += plan->own[rank] == 1;
        elsewhere += plan->own[rank] != NONE && plan->own[rank] != rank % 4;
    }
    assert_in_range(live, 2, 4);
    assert_true(elsewhere > 0);
    assert_int_equal(plan->moves, elsewhere);
    run_close(&r);
}

/* Of the ranks that could move, one has the other chunk already. */
static void who_has_the_chunk_already_is_who_moves(void **state) {
    (void)state;
    struct run plain, r;
    run_open(&plain, spec_of(4, 4, 8, PAWL_POLICY_RECYCLE), false);
    fence(&plain);
    for (uint32_t p = 0; p < 3; p++) dies(&plain, p * 4 + 1);
    const struct replan_plan *usual = fence(&plain);
    uint32_t mover = NONE;
    for (uint32_t rank = 0; rank < 16; rank++)
        if (usual->own[rank] == 1 && rank % 4 != 1) mover = rank;
    assert_true(mover != NONE);
    uint32_t other = mover % 4 + (mover / 4 + 1) % 4 * 4; /* of the same stage */
    run_open(&r, spec_of(4, 4, 8, PAWL_POLICY_RECYCLE), false);
    fence(&r);
    for (uint32_t p = 0; p < 3; p++) dies(&r, p * 4 + 1);
    r.has[other * 4 + 1] = true; /* as a helper has it */
    const struct replan_plan *plan = fence(&r);
    assert_int_equal(plan->own[other], 1);
    assert_int_equal(plan->own[mover], mover % 4);
    assert_int_equal(plan->moves, usual->moves);
    run_close(&r);
    run_close(&plain);
}

/* gpipe stores a whole batch: with a peer's besides that is more than there is room for. */
static void a_schedule_that_does_not_fit_any_more_gives_way_to_recycle_until_it_does(void **state) {
    (void)state;
    static const enum pawl_policy own_order[] = {PAWL_POLICY_GPIPE, PAWL_POLICY_ZB_H2};
    for (uint32_t i = 0; i < 2; i++) {
        struct spec spec = spec_of(2, 3, 4, own_order[i]);
        struct run r;
        spec.parallel.memory = 4;
        run_open(&r, spec, i == 1);
        assert_string_equal(fence(&r)->instead, "");
        dies(&r, 4);
        const struct replan_plan *plan = fence(&r);
        if (strstr(plan->instead, "the memory limit is 4") == NULL) fail_msg("\"%s\"", plan->instead);
        for (uint32_t w = 0; w < 6; w++) assert_in_range(plan->peak[w], 0, 4);
        plan = fence(&r); /* the same roles: the plan stays, and so does why */
        assert_string_not_equal(plan->instead, "");
        r.there[4] = true;
        assert_string_equal(fence(&r)->instead, "");
        run_close(&r);
    }
}

/* Devices too small for the weights of a stage. */
static void where_no_schedule_fits_the_memory_the_setting_and_the_need_are_named(void **state) {
    (void)state;
    struct spec spec = spec_of(2, 2, 4, PAWL_POLICY_GPIPE);
    struct run r;
    struct pawl_error e = {0};
    struct replan_plan *plan = NULL;
    uint32_t need = 0;
    run_open(&r, spec, false);
    r.replan->costs.profile->memory_bytes = 1000;
    for (uint32_t s = 0; s < 2; s++) r.replan->costs.profile->stage[s].state_bytes = 1001;
    for (uint32_t s = 0; s < 2; s++) r.replan->costs.profile->stage[s].activation_bytes = 1;
    struct replan_question q = question_of(&r);
    assert_int_equal(replan_make(r.replan, &q, &plan, &need, &e), PAWL_PLAN);
    assert_non_null(strstr(e.text, "parallel.memory"));
    assert_non_null(strstr(e.text, "take 1001 bytes of a memory of 1000"));
    run_close(&r);
}

static void a_stage_that_lost_all_gets_somebody(void **state) {
    (void)state;
    for (int policy = 0; policy < PAWL_POLICY_COUNT; policy++) {
        enum pawl_policy p = (enum pawl_policy)policy;
        if (p == PAWL_POLICY_INTERLEAVED || p == PAWL_POLICY_ZB_V) continue;
        struct run r;
        run_open(&r, spec_of(2, 4, 6, p), false);
        fence(&r);
        dies(&r, 2), dies(&r, 6);
        const struct replan_plan *plan = fence(&r);
        assert_true(plan->moves >= 1);
        for (uint32_t i = 0; i < 4; i++) dies(&r, i); /* one pipeline is left, and one of it is gone too */
        r.there[0] = true;
        plan = fence(&r);
        for (uint32_t s = 0; s < 4; s++) {
            uint32_t owners = 0;
            for (uint32_t i = 0; i < r.ranks; i++) owners += plan->own[i] == s;
            assert_int_equal(owners, 1);
        }
        run_close(&r);
    }
}

static void too_few_say_how_many_more_it_takes(void **state) {
    (void)state;
    struct run r;
    struct pawl_error e = {0};
    struct replan_plan *plan = NULL;
    uint32_t need = 0;
    run_open(&r, spec_of(2, 4, 6, PAWL_POLICY_PAWL), false);
    fence(&r);
    for (uint32_t i = 0; i < 6; i++) dies(&r, i);
    struct replan_question q = question_of(&r);
    assert_int_equal(replan_make(r.replan, &q, &plan, &need, &e), PAWL_STAGE_LOST);
    assert_int_equal(need, 2);
    assert_null(plan);
    assert_string_equal(e.text, "2 workers are too few for 4 stages: 2 more are needed");
    run_close(&r);
}

/* Who is missing leaves its own role empty: a rank's number says where it is, as long as it can. */
static void a_rank_that_is_missing_at_the_start_leaves_its_own_role_empty(void **state) {
    (void)state;
    struct run r;
    run_open(&r, spec_of(3, 4, 6, PAWL_POLICY_RECYCLE), false);
    r.there[1] = false;
    const struct replan_plan *plan = fence(&r);
    for (uint32_t i = 0; i < 12; i++) assert_int_equal(plan->rank_of_role[i], i == 1 ? NONE : i);
    run_close(&r);
}

static void a_newcomer_goes_where_most_are_missing(void **state) {
    (void)state;
    struct run r;
    run_open(&r, spec_of(3, 4, 6, PAWL_POLICY_RECYCLE), false);
    fence(&r);
    dies(&r, 0), dies(&r, 1), dies(&r, 5), dies(&r, 7);
    r.there[12] = true;
    assert_int_equal(fence(&r)->own[12], 1);
    run_close(&r);
}

static void a_lost_stage_gets_whoever_has_its_chunk(void **state) {
    (void)state;
    for (uint32_t rank = 0; rank < 8; rank += 4) {
        struct run r;
        run_open(&r, spec_of(2, 4, 6, PAWL_POLICY_RECYCLE), false);
        fence(&r);
        dies(&r, 2), dies(&r, 6);
        r.has[rank * 4 + 2] = true;
        const struct replan_plan *plan = fence(&r);
        assert_int_equal(plan->own[rank], 2);
        assert_int_equal(plan->moves, 1);
        run_close(&r);
    }
}

/* Two pipelines of two stages; role 0 helps with chunk 1, which only rank 2, of its stage, has too. */
static void a_helpers_role_goes_to_who_has_the_chunk(void **state) {
    (void)state;
    struct spec spec = spec_of(2, 2, 2, PAWL_POLICY_PAWL);
    struct pawl_error e = {0};
    struct ir_plan *ir = NULL;
    struct replan_costs costs;
    bool has[8] = {[0] = true, [3] = true, [4] = true, [5] = true, [7] = true};
    struct replan_question q = {.has_state = has};
    assert_int_equal(replan_costs_open(&costs, &spec, 4, &e), PAWL_OK);
    assert_int_equal(ir_plan_new(2, 2, 2, &ir, &e), PAWL_OK);
    assert_int_equal(ir_plan_hold(ir, 0, 1, &e), PAWL_OK);
    uint32_t ranks[4] = {0, 1, 2, 3};
    struct replan_cast cast = {.pipelines = 2, .stages = 2, .rank_of_role = ranks};
    costs.rank[2].slow = 2; /* the plan was made for who is as fast */
    replan_cast_keep_helpers(&cast, ir, &q, &costs);
    assert_int_equal(ranks[0], 0);
    costs.rank[2].slow = 1;
    costs.rank[2].memory = 1; /* ... and has as much room */
    replan_cast_keep_helpers(&cast, ir, &q, &costs);
    assert_int_equal(ranks[0], 0);
    costs.rank[2].memory = 0;
    replan_cast_keep_helpers(&cast, ir, &q, &costs);
    assert_int_equal(ranks[0], 2);
    assert_int_equal(ranks[2], 0);
    assert_int_equal(ranks[1], 1);
    assert_int_equal(ranks[3], 3);
    ranks[0] = 0, ranks[2] = 2;
    assert_int_equal(ir_plan_hold(ir, 2, 1, &e), PAWL_OK); /* it is needed where it is */
    replan_cast_keep_helpers(&cast, ir, &q, &costs);
    assert_int_equal(ranks[0], 0);
    ir_plan_free(ir);
    replan_costs_close(&costs);
}

/* A coordinator that takes over knows no roles, only what the ranks hold. */
static void who_holds_what_tells_the_roles_to_one_who_knows_none(void **state) {
    (void)state;
    struct run r, after;
    run_open(&r, spec_of(3, 4, 6, PAWL_POLICY_RECYCLE), false);
    fence(&r);
    dies(&r, 1), dies(&r, 5), dies(&r, 8);
    const struct replan_plan *plan = fence(&r);
    run_open(&after, r.spec, false);
    memcpy(after.there, r.there, sizeof r.there);
    memcpy(after.has, r.has, sizeof r.has);
    const struct replan_plan *again = fence(&after);
    for (uint32_t rank = 0; rank < r.ranks; rank++) {
        assert_int_equal(again->own[rank], plan->own[rank]);
        bool at_home = role_of(plan, rank) == rank;
        if (at_home) assert_int_equal(role_of(again, rank), rank);
    }
    run_close(&after);
    run_close(&r);
}

/* ---- spares, growth and shrinking ---- */

static void who_is_one_too_many_is_a_spare_and_fills_the_next_hole(void **state) {
    (void)state;
    struct run r;
    run_open(&r, spec_of(2, 4, 6, PAWL_POLICY_PAWL), false);
    r.there[9] = true;
    const struct replan_plan *plan = fence(&r);
    assert_int_equal(plan->own[9], NONE);
    assert_int_equal(role_of(plan, 9), NONE);
    dies(&r, 6);
    plan = fence(&r);
    for (uint32_t i = 0; i < 8; i++) assert_int_equal(plan->rank_of_role[i], i == 6 ? 9 : i);
    assert_int_equal(plan->moves, 0); /* it had no chunk before */
    run_close(&r);
}

static void a_newcomer_takes_the_role_whose_chunk_it_has(void **state) {
    (void)state;
    struct run r;
    run_open(&r, spec_of(2, 4, 6, PAWL_POLICY_RECYCLE), false);
    fence(&r);
    dies(&r, 1), dies(&r, 7);
    fence(&r);
    r.there[9] = true;
    r.has[9 * 4 + 3] = true; /* was told to take it meanwhile */
    const struct replan_plan *plan = fence(&r);
    assert_int_equal(plan->own[9], 3);
    run_close(&r);
}

static void a_pipeline_grows_when_there_are_enough_for_one_more_and_goes_again(void **state) {
    (void)state;
    struct run r;
    run_open(&r, spec_of(2, 4, 8, PAWL_POLICY_PAWL), false);
    fence(&r);
    for (uint32_t i = 8; i < 11; i++) r.there[i] = true;
    const struct replan_plan *plan = fence(&r);
    assert_int_equal(plan->ir->pipelines, 2);
    double period = plan->period;
    r.there[11] = true;
    plan = fence(&r);
    assert_int_equal(plan->ir->pipelines, 3);
    assert_int_equal(plan->ir->microbatches, 6); /* 16 over 3 */
    assert_int_equal(plan->ir->total, 16);
    for (uint32_t i = 0; i < 12; i++) assert_int_equal(plan->rank_of_role[i], i);
    assert_true(plan->period < period);
    dies(&r, 2);
    plan = fence(&r);
    assert_int_equal(plan->ir->pipelines, 2);
    assert_int_equal(plan->rank_of_role[2], 10); /* it has that chunk: nothing moves */
    assert_int_equal(plan->moves, 0);
    for (uint32_t i = 0; i < 8; i++)
        if (i != 2) assert_int_equal(plan->rank_of_role[i], i);
    run_close(&r);
}

static void growth_ends_where_the_spec_says(void **state) {
    (void)state;
    struct spec spec = spec_of(1, 2, 3, PAWL_POLICY_RECYCLE);
    spec.parallel.pipelines_max = 3;
    struct run r;
    run_open(&r, spec, false);
    assert_int_equal(r.ranks, 6);
    memset(r.there, 1, 6);
    assert_int_equal(fence(&r)->ir->pipelines, 3);
    run_close(&r);
    spec.parallel.microbatches = 2; /* a pipeline has one at least */
    run_open(&r, spec, false);
    memset(r.there, 1, 6);
    assert_int_equal(fence(&r)->ir->pipelines, 2);
    run_close(&r);
    assert_int_equal(replan_pipelines(&spec, 1), 1); /* never below the spec's */
    spec.parallel.microbatches = 100;
    assert_int_equal(replan_pipelines(&spec, 100), 3); /* never above */
}

static void a_join_is_told_beforehand_which_chunk_it_will_hold(void **state) {
    (void)state;
    struct run r;
    struct pawl_error e = {0};
    uint32_t chunk = 0;
    run_open(&r, spec_of(2, 4, 6, PAWL_POLICY_PAWL), false);
    fence(&r);
    struct replan_question q = question_of(&r);
    assert_int_equal(replan_join(r.replan, 12, &q, &chunk, &e), PAWL_OK);
    assert_int_equal(chunk, NONE); /* a spare */
    dies(&r, 7);
    fence(&r);
    q = question_of(&r);
    assert_int_equal(replan_join(r.replan, 12, &q, &chunk, &e), PAWL_OK);
    assert_int_equal(chunk, 3);
    r.there[12] = true;
    r.has[12 * 4 + 3] = true;
    assert_int_equal(fence(&r)->own[12], chunk);
    run_close(&r);
}

/* Copies that another rank of the same stage would spare, since it has the chunk and no use for it. */
static uint32_t needless_copies(const struct run *r, const struct replan_plan *plan, const bool *before) {
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < r->ranks; rank++)
        for (uint32_t s = 0; s < r->stages; s++) {
            if (!plan->holds[rank * r->stages + s] || before[rank * r->stages + s]) continue;
            for (uint32_t other = 0; other < r->ranks; other++) {
                bool useful = false; /* it helps with something that it has */
                for (uint32_t k = 0; k < r->stages; k++)
                    useful = useful || (k != plan->own[other] && plan->holds[other * r->stages + k] &&
                                        before[other * r->stages + k]);
                count += plan->own[other] == plan->own[rank] && before[other * r->stages + s] && !useful;
            }
        }
    return count;
}

/* Whose state is where it was is not copied: the helpers of before help again, in whatever role. */
static void helpers_keep_their_second_chunks(void **state) {
    (void)state;
    uint32_t helpers = 0, other_roles = 0;
    for (uint32_t victim = 0; victim < 16; victim++) {
        struct run r;
        bool before[64 * 16];
        if (victim == 5) continue;
        run_open(&r, spec_of(4, 4, 32, PAWL_POLICY_PAWL), false);
        fence(&r);
        dies(&r, 5);
        const struct replan_plan *plan = fence(&r);
        for (uint32_t i = 0; i < 16 * 4; i++) helpers += plan->holds[i] && i % 4 != i / 4 % 4;
        dies(&r, victim);
        memcpy(before, r.has, sizeof before);
        plan = fence(&r);
        assert_int_equal(needless_copies(&r, plan, before), 0);
        for (uint32_t rank = 0; rank < 16; rank++)
            other_roles += r.there[rank] && role_of(plan, rank) != rank && plan->own[rank] == rank % 4;
        run_close(&r);
    }
    assert_true(helpers > 0);
    assert_true(other_roles > 0);
}

/* ---- any history ---- */

static void every_history_has_sound_plans_and_always_the_same(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 150; seed++) {
        struct bytes first = {0}, second = {0};
        a_history(seed, false, &first);
        a_history(seed, false, &second);
        assert_int_equal(first.size, second.size);
        assert_memory_equal(first.data, second.data, first.size);
        bytes_close(&first);
        bytes_close(&second);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_the_start_every_rank_plays_the_role_of_its_number),
        cmocka_unit_test(a_rank_keeps_its_role_when_another_dies),
        cmocka_unit_test(what_a_stage_lacks_is_evened_out_by_moves),
        cmocka_unit_test(who_has_the_chunk_already_is_who_moves),
        cmocka_unit_test(a_schedule_that_does_not_fit_any_more_gives_way_to_recycle_until_it_does),
        cmocka_unit_test(where_no_schedule_fits_the_memory_the_setting_and_the_need_are_named),
        cmocka_unit_test(a_stage_that_lost_all_gets_somebody),
        cmocka_unit_test(too_few_say_how_many_more_it_takes),
        cmocka_unit_test(a_rank_that_is_missing_at_the_start_leaves_its_own_role_empty),
        cmocka_unit_test(a_newcomer_goes_where_most_are_missing),
        cmocka_unit_test(a_lost_stage_gets_whoever_has_its_chunk),
        cmocka_unit_test(a_helpers_role_goes_to_who_has_the_chunk),
        cmocka_unit_test(who_holds_what_tells_the_roles_to_one_who_knows_none),
        cmocka_unit_test(who_is_one_too_many_is_a_spare_and_fills_the_next_hole),
        cmocka_unit_test(a_newcomer_takes_the_role_whose_chunk_it_has),
        cmocka_unit_test(a_pipeline_grows_when_there_are_enough_for_one_more_and_goes_again),
        cmocka_unit_test(growth_ends_where_the_spec_says),
        cmocka_unit_test(a_join_is_told_beforehand_which_chunk_it_will_hold),
        cmocka_unit_test(helpers_keep_their_second_chunks),
        cmocka_unit_test(every_history_has_sound_plans_and_always_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
