/* What run/replan.h promises of costs, speeds and plans made ahead. */
#include "kit/replan_kit.h"

/* ---- memory and costs ---- */

static void a_policy_that_does_not_fit_into_memory_gives_way_to_one_that_does(void **state) {
    (void)state;
    static const enum pawl_policy policies[] = {PAWL_POLICY_GPIPE, PAWL_POLICY_PAWL};
    for (unsigned k = 0; k < sizeof policies / sizeof policies[0]; k++) {
        struct spec spec = spec_of(2, 4, 6, policies[k]);
        struct run r;
        spec.parallel.memory = 3;
        run_open(&r, spec, false);
        const struct replan_plan *p = fence(&r);
        for (uint32_t i = 0; i < 8; i++) assert_in_range(p->peak[i], 1, 3);
        run_close(&r);
    }
}

static void measured_costs_give_seconds_and_are_used_once_all_have_told(void **state) {
    (void)state;
    struct run r;
    run_open(&r, spec_of(2, 4, 8, PAWL_POLICY_RECYCLE), false);
    assert_true(fence(&r)->period_s == 0); /* in units of a forward */
    for (uint32_t i = 0; i < 7; i++) tell(&r, i, 30);
    assert_true(fence(&r)->period_s == 0);
    tell(&r, 7, 30);
    double period_s = fence(&r)->period_s;
    assert_true(period_s > 8 * 0.030 && period_s < 12 * 0.030); /* and R, S, and the way of the first */
    for (uint32_t i = 0; i < 8; i++) tell(&r, i, 31);           /* not worth a change */
    assert_true(fence(&r)->period_s == period_s);
    for (uint32_t i = 0; i < 8; i++) tell(&r, i, 60);
    assert_true(fence(&r)->period_s > 1.9 * period_s);
    run_close(&r);
}

/* Costs that say the same in another unit: the plan in use stays, its period is told anew. */
static void a_plan_is_not_changed_for_a_little(void **state) {
    (void)state;
    struct run r;
    struct bytes before = {0}, after = {0};
    run_open(&r, spec_of(4, 4, 16, PAWL_POLICY_PAWL), false);
    fence(&r);
    dies(&r, 5);
    encode(fence(&r), r.ranks, &before);
    for (uint32_t i = 0; i < 16; i++)
        if (i != 5) tell(&r, i, i % 4 == 3 ? 30 * (1 + REPLAN_GAIN / 3) : 30);
    double period = r.plan->period;
    encode(fence(&r), r.ranks, &after);
    assert_int_equal(before.size, after.size);
    assert_memory_equal(before.data, after.data, after.size);
    assert_true(r.plan->period > 9 * period && r.plan->period < 12 * period); /* ms, of 10 for a forward */
    assert_false(better_within(&r, 2 * REPLAN_PAUSE));
    bytes_close(&before);
    bytes_close(&after);
    run_close(&r);
}

/* A profile as `parallel.profile` names it: ms; rank 6 takes twice as long; rank 1 has room for 2
 * micro-batches. */
static void write_profile(const char *path) {
    struct pawl_profile *p = NULL;
    struct pawl_error e = {0};
    assert_int_equal(pawl_profile_uniform(4, 5, 5, 5, 0, &p, &e), PAWL_OK);
    p->unit_s = 1e-3;
    p->memory_bytes = 1 << 30;
    for (int s = 0; s < 4; s++) p->stage[s].activation_bytes = 1 << 20;
    p->worker = calloc(2, sizeof *p->worker);
    assert_non_null(p->worker);
    p->worker_count = 2;
    p->worker[0] = (struct pawl_worker_cost){1, 2, 2, 0};
    p->worker[1] = (struct pawl_worker_cost){0, 1, 0, 2 << 20};
    if (pawl_profile_write(p, path, &e) != PAWL_OK) fail_msg("%s", e.text);
    pawl_profile_free(p);
}

static void a_profile_says_who_is_slow_or_small_by_rank(void **state) {
    (void)state;
    char path[] = "/tmp/run_replan_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    write_profile(path);
    struct spec spec = spec_of(4, 4, 16, PAWL_POLICY_PAWL);
    snprintf(spec.parallel.profile, sizeof spec.parallel.profile, "%s", path);
    struct run r;
    run_open(&r, spec, false);
    unlink(path);
    const struct replan_plan *plan = fence(&r);
    assert_true(plan->period_s > 0.2 && plan->period_s < 0.4 && plan->period_s * 1000 == plan->period);
    assert_in_range(load_of(plan, 6), 6, 12);
    assert_in_range(plan->peak[1], 1, 2);
    for (int round = 0; round < 3; round++) /* measured in full, and what is stored is as it was */
        for (uint32_t i = 0; i < 16; i++) tell(&r, i, i == 6 ? 30 : 15);
    dies(&r, 15);
    plan = fence(&r);
    assert_in_range(plan->peak[1], 1, 2);
    assert_true(load_of(plan, 6) < load_of(plan, 2));
    run_close(&r);
}

static void what_is_mere_noise_is_not_measured(void **state) {
    (void)state;
    struct run r;
    run_open(&r, spec_of(2, 2, 4, PAWL_POLICY_PAWL), false);
    fence(&r);
    for (int i = 0; i < 5; i++)
        for (uint32_t rank = 0; rank < 4; rank++) tell(&r, rank, rank == 3 ? 0.015 : 0.001);
    assert_true(fence(&r)->period_s == 0);
    assert_int_equal(load_of(r.plan, 3), 4);
    run_close(&r);
}

static void a_slow_rank_gets_fewer_micro_batches_after_three_reports(void **state) {
    (void)state;
    struct run r;
    run_open(&r, spec_of(4, 4, 16, PAWL_POLICY_PAWL), false);
    fence(&r);
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 16; i++) tell(&r, i, i == 6 ? 60 : 30);
    assert_int_equal(load_of(fence(&r), 6), 16); /* two reports are not enough */
    for (uint32_t i = 0; i < 16; i++) tell(&r, i, i == 6 ? 60 : 30);
    assert_false(better_within(&r, REPLAN_PAUSE - 1));
    assert_true(better_within(&r, 1));
    const struct replan_plan *plan = fence(&r);
    assert_in_range(load_of(plan, 6), 6, 12);
    assert_int_equal(plan->rank_of_role[6], 6);
    assert_false(better_within(&r, 3 * REPLAN_PAUSE)); /* once */
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < 16; i++) tell(&r, i, 30);
    assert_true(better_within(&r, REPLAN_PAUSE));
    assert_int_equal(load_of(fence(&r), 6), 16); /* as fast as the others again */
    run_close(&r);
}

/* A factor between two steps does not go to and fro with every report. */
static void a_slow_rank_is_judged_anew_only_by_a_whole_step(void **state) {
    (void)state;
    struct spec spec = spec_of(3, 1, 2, PAWL_POLICY_PAWL);
    struct pawl_error e = {0};
    struct replan_costs costs;
    static const uint32_t own[3] = {0, 0, 0};
    assert_int_equal(replan_costs_open(&costs, &spec, 3, &e), PAWL_OK);
    struct measure_report m = {.ns = {1000000, 1000000, 1000000}};
    for (uint32_t rank = 0; rank < 2; rank++) replan_costs_told(&costs, own, 3, rank, &m);
    static const uint64_t tenths[] = {16, 16, 16, 17, 16, 17, 17, 17, 16, 17, 15};
    for (size_t i = 0; i < sizeof tenths / sizeof tenths[0]; i++) {
        m.ns[MEASURE_FORWARD] = m.ns[MEASURE_INPUT_GRAD] = m.ns[MEASURE_WEIGHT_GRAD] = tenths[i] * 100000;
        replan_costs_told(&costs, own, 3, 2, &m);
        assert_true(replan_slow(&costs, 2) == (i < 2 ? 1 : 1.5));
    }
    for (int i = 0; i < 3; i++) {
        m.ns[MEASURE_FORWARD] = m.ns[MEASURE_INPUT_GRAD] = m.ns[MEASURE_WEIGHT_GRAD] = 3000000;
        replan_costs_told(&costs, own, 3, 2, &m);
    }
    assert_true(replan_slow(&costs, 2) == 3);
    replan_costs_close(&costs);
}

/* Who is told is not asked again and again, even if more changes. */
static void after_something_better_there_is_a_pause(void **state) {
    (void)state;
    struct run r;
    run_open(&r, spec_of(4, 4, 16, PAWL_POLICY_PAWL), false);
    fence(&r);
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < 16; i++) tell(&r, i, i == 6 ? 60 : 30);
    assert_true(better_within(&r, REPLAN_PAUSE));
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < 16; i++) tell(&r, i, i == 7 || i == 6 ? 90 : 30);
    assert_false(better_within(&r, REPLAN_PAUSE - 1));
    assert_true(better_within(&r, 1));
    run_close(&r);
}

/* Ranks that change roles bring their speed and their memory with them. */
static void requests_differ_by_who_is_slow_or_small_in_which_role(void **state) {
    (void)state;
    struct spec spec = spec_of(2, 1, 2, PAWL_POLICY_PAWL);
    struct pawl_error e = {0};
    struct replan_costs costs;
    struct replan_request a, b;
    uint32_t ranks[2] = {0, 1};
    struct replan_cast cast = {.pipelines = 2, .stages = 1, .rank_of_role = ranks};
    assert_int_equal(replan_costs_open(&costs, &spec, 2, &e), PAWL_OK);
    for (int kind = 0; kind < 3; kind++) {
        costs.rank[0].slow = kind == 1 ? 2 : 1;
        costs.rank[0].memory = kind == 2 ? 1000 : 0;
        ranks[0] = 0, ranks[1] = 1;
        assert_int_equal(replan_request_make(&cast, &costs, &a, &e), PAWL_OK);
        ranks[0] = 1, ranks[1] = 0;
        assert_int_equal(replan_request_make(&cast, &costs, &b, &e), PAWL_OK);
        assert_int_equal(replan_request_same(&a, &b), kind == 0);
        assert_int_equal(a.profile->worker_count, kind == 0 ? 0 : 1);
        replan_request_close(&a);
        replan_request_close(&b);
    }
    replan_costs_close(&costs);
}

static void without_leave_to_replan_nothing_is_better(void **state) {
    (void)state;
    struct spec spec = spec_of(4, 4, 16, PAWL_POLICY_PAWL);
    struct run r;
    spec.parallel.replan = false;
    run_open(&r, spec, false);
    fence(&r);
    for (int round = 0; round < 4; round++)
        for (uint32_t i = 0; i < 16; i++) tell(&r, i, i == 6 ? 60 : 30);
    assert_false(better_within(&r, 2 * REPLAN_PAUSE));
    assert_int_equal(load_of(fence(&r), 6), 16); /* nor where there is a fence for something else */
    dies(&r, 1);
    assert_int_not_equal(load_of(fence(&r), 6), 16); /* a plan that must be made knows what was measured */
    run_close(&r);
}

/* A busy machine: every report is off by up to an eighth, some by half as much again. */
static void noise_changes_no_plan(void **state) {
    (void)state;
    struct rng_stream rng = {.state = 9};
    struct run r;
    run_open(&r, spec_of(4, 4, 16, PAWL_POLICY_PAWL), false);
    fence(&r);
    for (int round = 0; round < 100; round++) {
        for (uint32_t i = 0; i < 16; i++) {
            double off = rng_below(&rng, 30) == 0 ? 1.5 : 1 + 0.01 * (double)rng_below(&rng, 12);
            tell(&r, i, 30 * off);
        }
        assert_false(better_within(&r, 5));
    }
    run_close(&r);
}

/* Of a stage one is left, so that others move there; all others of pipeline `slow` are slow. */
static void lose_a_stage_but_one(struct run *r, uint32_t slow) {
    run_open(r, spec_of(4, 4, 8, PAWL_POLICY_RECYCLE), false);
    fence(r);
    for (int round = 0; round < 4; round++) /* the first to tell is its own median */
        for (uint32_t i = 0; i < 16; i++) tell(r, i, i / 4 == slow ? 60 : 30);
    for (uint32_t p = 0; p < 3; p++) dies(r, p * 4 + 1);
    fence(r);
}

static void a_rank_that_moves_takes_its_speed_with_it(void **state) {
    (void)state;
    uint32_t moved = 0;
    for (uint32_t slow = 0; slow < 3; slow++) {
        struct run r;
        lose_a_stage_but_one(&r, slow);
        for (uint32_t rank = slow * 4; rank < slow * 4 + 4; rank++) {
            if (rank % 4 == 1) continue;
            /* What a rank that moves has told was of another chunk. */
            assert_int_equal(r.replan->costs.rank[rank].told, r.plan->own[rank] == rank % 4);
            if (r.plan->own[rank] != 1) continue;
            assert_true(load_of(r.plan, rank) + 2 < load_of(r.plan, 13)); /* who is left there */
            moved++;
        }
        run_close(&r);
    }
    assert_true(moved > 0);
}

static void a_new_process_in_a_place_is_judged_anew(void **state) {
    (void)state;
    struct run r;
    run_open(&r, spec_of(4, 4, 16, PAWL_POLICY_PAWL), false);
    fence(&r);
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < 16; i++) tell(&r, i, i == 6 ? 60 : 30);
    assert_true(load_of(fence(&r), 6) < 16);
    dies(&r, 6);
    fence(&r);
    r.there[6] = true;
    assert_int_equal(load_of(fence(&r), 6), 16);
    run_close(&r);
}

/* ---- answers kept ---- */

/* A request that differs by its generation, and an answer that differs by its period. */
static void put_answer(struct replan_cache *cache, uint64_t generation, double period) {
    struct spec spec = spec_of(1, 1, 1, PAWL_POLICY_RECYCLE);
    struct pawl_error e = {0};
    struct replan_costs costs;
    uint32_t rank = 0;
    struct replan_cast cast = {.pipelines = 1, .stages = 1, .rank_of_role = &rank};
    struct replan_request q;
    struct replan_answer a;
    struct replan_budget budget = {0};
    assert_int_equal(replan_costs_open(&costs, &spec, 1, &e), PAWL_OK);
    costs.generation = generation;
    assert_int_equal(replan_request_make(&cast, &costs, &q, &e), PAWL_OK);
    assert_int_equal(replan_ask(&spec, &q, &budget, &a, &e), PAWL_OK);
    a.period = period;
    replan_cache_put(cache, &q, &a, false);
    replan_costs_close(&costs);
}

static double find_answer(struct replan_cache *cache, uint64_t generation) {
    struct pawl_error e = {0};
    struct replan_answer a = {0};
    bool ahead, dead = false;
    double slow = 1;
    uint64_t memory = 0;
    struct replan_request q = {.pipelines = 1,
                               .roles = 1,
                               .generation = generation,
                               .dead = &dead,
                               .slow = &slow,
                               .memory = &memory};
    pawl_code code = replan_cache_find(cache, &q, &a, &ahead, &e);
    double period = code == PAWL_OK ? a.period : 0;
    replan_answer_close(&a);
    return period;
}

static void the_newest_answer_counts_and_the_longest_unused_go_first(void **state) {
    (void)state;
    struct replan_cache cache = {.count = 0};
    put_answer(&cache, 1, 10);
    put_answer(&cache, 1, 9);
    assert_int_equal(cache.count, 1);
    assert_true(find_answer(&cache, 1) == 9);
    for (uint64_t g = 2; g <= REPLAN_KEPT_MAX; g++) put_answer(&cache, g, (double)g);
    assert_int_equal(cache.count, REPLAN_KEPT_MAX);
    assert_true(find_answer(&cache, 1) == 9); /* now 2 is the longest unused */
    put_answer(&cache, 1000, 5);
    assert_int_equal(cache.count, REPLAN_KEPT_MAX);
    assert_true(find_answer(&cache, 1) == 9 && find_answer(&cache, 1000) == 5);
    assert_true(find_answer(&cache, 2) == 0 && find_answer(&cache, 3) == 3);
    replan_cache_close(&cache);
    assert_int_equal(cache.instructions, 0);
}

/* ---- ahead ---- */

static void what_was_made_ahead_is_what_is_made_now(void **state) {
    (void)state;
    for (uint32_t victim = 0; victim < 16; victim += 3) {
        struct run now, ahead;
        struct bytes a = {0}, b = {0};
        struct spec spec = spec_of(4, 4, 8, PAWL_POLICY_PAWL);
        spec.parallel.replan = false; /* no long search */
        run_open(&now, spec, false);
        run_open(&ahead, spec, true);
        fence(&now);
        assert_false(fence(&ahead)->ahead);
        replan_settle(ahead.replan);
        dies(&now, victim);
        dies(&ahead, victim);
        assert_false(fence(&now)->ahead);
        assert_true(fence(&ahead)->ahead);
        encode(now.plan, now.ranks, &a);
        encode(ahead.plan, ahead.ranks, &b);
        assert_int_equal(a.size, b.size);
        assert_memory_equal(a.data, b.data, a.size);
        bytes_close(&a);
        bytes_close(&b);
        run_close(&now);
        run_close(&ahead);
    }
}

/* Whatever the thread is at when it is interrupted, the plans are the same. */
static void a_thread_changes_no_plan(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct bytes first = {0}, second = {0};
        a_history(seed, false, &first);
        a_history(seed, true, &second);
        assert_int_equal(first.size, second.size);
        assert_memory_equal(first.data, second.data, first.size);
        bytes_close(&first);
        bytes_close(&second);
    }
}

/* Interrupted at any point, the thread keeps what is whole and drops the rest. */
static void what_the_thread_was_at_when_it_was_interrupted_is_dropped(void **state) {
    (void)state;
    struct run now, ahead;
    struct pawl_error e = {0};
    struct spec spec = spec_of(4, 8, 32, PAWL_POLICY_PAWL);
    spec.parallel.replan = false;
    run_open(&now, spec, false);
    fence(&now);
    dies(&now, 0);
    fence(&now);
    for (int trial = 0; trial < 20; trial++) {
        struct replan_cast cast = {0};
        struct replan_request q = {0};
        struct replan_answer a = {0};
        bool made_ahead;
        run_open(&ahead, spec, true);
        fence(&ahead);
        for (int i = 0; i < trial * 5; i++) { /* it gets that far: the first job is for rank 0 */
            struct bytes raw = {0};
            encode(ahead.plan, ahead.ranks, &raw);
            bytes_close(&raw);
        }
        replan_ahead_pause(ahead.replan->ahead);
        replan_settle(ahead.replan);
        dies(&ahead, 0);
        struct replan_question question = question_of(&ahead);
        assert_int_equal(replan_cast_for(ahead.replan, &question, &cast, &e), PAWL_OK);
        assert_int_equal(replan_request_make(&cast, &ahead.replan->costs, &q, &e), PAWL_OK);
        if (replan_ahead_find(ahead.replan->ahead, &q, &a, &made_ahead, &e) == PAWL_OK) {
            struct bytes had = {0}, want = {0};
            ir_encode(a.ir, &had);
            ir_encode(now.plan->ir, &want);
            assert_int_equal(had.size, want.size);
            assert_memory_equal(had.data, want.data, want.size);
            bytes_close(&had);
            bytes_close(&want);
        }
        replan_answer_close(&a);
        replan_request_close(&q);
        replan_cast_close(&cast);
        run_close(&ahead);
    }
    run_close(&now);
}

static void a_speed_that_changed_is_found_by_the_thread(void **state) {
    (void)state;
    struct run r;
    run_open(&r, spec_of(4, 4, 16, PAWL_POLICY_PAWL), true);
    fence(&r);
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < 16; i++) tell(&r, i, i == 6 ? 60 : 30);
    assert_false(better_within(&r, REPLAN_PAUSE)); /* from here on the thread knows */
    replan_settle(r.replan);
    assert_true(better_within(&r, 1));
    assert_in_range(load_of(fence(&r), 6), 6, 12);
    assert_true(r.plan->ahead);
    run_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_policy_that_does_not_fit_into_memory_gives_way_to_one_that_does),
        cmocka_unit_test(measured_costs_give_seconds_and_are_used_once_all_have_told),
        cmocka_unit_test(a_plan_is_not_changed_for_a_little),
        cmocka_unit_test(a_profile_says_who_is_slow_or_small_by_rank),
        cmocka_unit_test(what_is_mere_noise_is_not_measured),
        cmocka_unit_test(a_slow_rank_gets_fewer_micro_batches_after_three_reports),
        cmocka_unit_test(a_slow_rank_is_judged_anew_only_by_a_whole_step),
        cmocka_unit_test(after_something_better_there_is_a_pause),
        cmocka_unit_test(requests_differ_by_who_is_slow_or_small_in_which_role),
        cmocka_unit_test(without_leave_to_replan_nothing_is_better),
        cmocka_unit_test(noise_changes_no_plan),
        cmocka_unit_test(a_rank_that_moves_takes_its_speed_with_it),
        cmocka_unit_test(a_new_process_in_a_place_is_judged_anew),
        cmocka_unit_test(the_newest_answer_counts_and_the_longest_unused_go_first),
        cmocka_unit_test(what_was_made_ahead_is_what_is_made_now),
        cmocka_unit_test(a_thread_changes_no_plan),
        cmocka_unit_test(what_the_thread_was_at_when_it_was_interrupted_is_dropped),
        cmocka_unit_test(a_speed_that_changed_is_found_by_the_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
