/* What run/replan.h promises: who plays which role, for whoever is there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "run/replan.h"
#include "run/replan_state.h"

#define NONE UINT32_MAX

static struct spec spec_of(uint32_t pipelines, uint32_t stages, uint32_t microbatches,
                           enum pawl_policy policy) {
    struct spec s = {0};
    s.parallel.pipelines = pipelines;
    s.parallel.stages = stages;
    s.parallel.microbatches = microbatches;
    s.parallel.schedule = policy;
    s.parallel.replan = true;
    return s;
}

/* A run as the conductor sees it: who is there, and who holds what by the last plan. */
struct run {
    struct spec spec;
    uint32_t ranks, stages;
    struct replan *replan;
    bool there[64], has[64 * 16];
    struct replan_plan *plan; /* in use */
};

static void run_open(struct run *r, struct spec spec, bool background) {
    struct pawl_error e = {0};
    *r = (struct run){.spec = spec, .stages = spec.parallel.stages};
    r->ranks = spec_capacity(&spec);
    assert_true(r->ranks <= 64 && r->stages <= 16);
    for (uint32_t i = 0; i < spec_ranks(&spec); i++) r->there[i] = true;
    if (replan_new(&r->spec, r->ranks, background, &r->replan, &e) != PAWL_OK) fail_msg("%s", e.text);
}

static void run_close(struct run *r) {
    replan_free(r->replan);
    replan_plan_free(r->plan);
}

static struct replan_question question_of(const struct run *r) {
    return (struct replan_question){.candidates = r->there, .has_state = r->has};
}

static void assert_sound(const struct run *r, const struct replan_plan *p);

/* Fence, plan, go: everybody has what it holds from now on. */
static const struct replan_plan *fence(struct run *r) {
    struct pawl_error e = {0};
    struct replan_plan *plan = NULL;
    struct replan_question q = question_of(r);
    uint32_t need = NONE;
    if (replan_make(r->replan, &q, &plan, &need, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(need, 0);
    assert_sound(r, plan);
    replan_used(r->replan, plan);
    replan_plan_free(r->plan);
    r->plan = plan;
    memcpy(r->has, plan->holds, (size_t)r->ranks * r->stages * sizeof *r->has);
    return plan;
}

static void dies(struct run *r, uint32_t rank) {
    r->there[rank] = false;
    for (uint32_t s = 0; s < r->stages; s++) r->has[rank * r->stages + s] = false;
    replan_exited(r->replan, rank);
}

static uint32_t role_of(const struct replan_plan *p, uint32_t rank) {
    for (uint32_t i = 0; i < p->ir->pipelines * p->ir->stages; i++)
        if (p->rank_of_role[i] == rank) return i;
    return NONE;
}

/* What any plan must be, whatever the question. */
static void assert_sound(const struct run *r, const struct replan_plan *p) {
    struct pawl_error e = {0};
    uint32_t roles = p->ir->pipelines * p->ir->stages;
    if (ir_check(p->ir, NULL, NULL, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(p->ir->total, spec_contributions(&r->spec));
    for (uint32_t i = 0; i < roles; i++) {
        uint32_t rank = p->rank_of_role[i];
        assert_int_equal(p->ir->workers[i].alive, rank != NONE);
        if (rank == NONE) continue;
        assert_true(rank < r->ranks && r->there[rank]);
        assert_int_equal(role_of(p, rank), i); /* nobody plays two */
        assert_int_equal(p->own[rank], i % r->stages);
        for (uint32_t s = 0; s < r->stages; s++)
            assert_int_equal(p->holds[rank * r->stages + s], ir_plan_holds(p->ir, i, s));
    }
    for (uint32_t rank = 0; rank < r->ranks; rank++)
        if (role_of(p, rank) == NONE) assert_int_equal(p->own[rank], NONE);
    for (uint32_t s = 0; s < r->stages; s++) {
        bool owned = false;
        for (uint32_t rank = 0; rank < r->ranks; rank++) owned = owned || p->own[rank] == s;
        assert_true(owned);
    }
}

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

/* Whose state is where it was is not copied: the helper of before helps again. */
static void a_helper_keeps_its_second_chunk(void **state) {
    (void)state;
    struct run r;
    run_open(&r, spec_of(4, 4, 32, PAWL_POLICY_PAWL), false);
    fence(&r);
    dies(&r, 5);
    uint32_t copies = 0, second = 0;
    bool before[64 * 16];
    memcpy(before, r.has, sizeof before);
    const struct replan_plan *plan = fence(&r);
    for (uint32_t i = 0; i < 16 * 4; i++) copies += plan->holds[i] && !before[i];
    assert_true(copies > 0); /* there are helpers */
    dies(&r, 15);
    memcpy(before, r.has, sizeof before);
    plan = fence(&r);
    for (uint32_t rank = 0; rank < 16; rank++)
        for (uint32_t s = 0; s < 4; s++) {
            if (!plan->holds[rank * 4 + s] || before[rank * 4 + s]) continue;
            for (uint32_t other = 0; other < 16; other++) { /* of the same stage, with it and without need */
                bool idle = plan->own[other] == plan->own[rank] && before[other * 4 + s] &&
                            !plan->holds[other * 4 + s];
                bool needed = false;
                for (uint32_t k = 0; k < 4; k++)
                    needed = needed ||
                             (k != plan->own[other] && plan->holds[other * 4 + k] && before[other * 4 + k]);
                second += idle && !needed;
            }
        }
    assert_int_equal(second, 0);
    run_close(&r);
}

/* ---- any history ---- */

static void change_somebody(struct run *r, struct rng_stream *rng) {
    uint32_t rank = (uint32_t)rng_below(rng, r->ranks), live = 0;
    for (uint32_t i = 0; i < r->ranks; i++) live += r->there[i];
    if (!r->there[rank])
        r->there[rank] = true;
    else if (live > r->stages)
        dies(r, rank);
    if (rng_below(rng, 10) == 0) memset(r->has, 0, sizeof r->has); /* everybody goes back to a durable step */
}

static void encode(const struct replan_plan *p, uint32_t ranks, struct bytes *out) {
    ir_encode(p->ir, out);
    bytes_put(out, p->rank_of_role, (size_t)p->ir->pipelines * p->ir->stages * sizeof *p->rank_of_role);
    bytes_put(out, p->own, ranks * sizeof *p->own);
    bytes_put(out, p->peak, (size_t)p->ir->pipelines * p->ir->stages * sizeof *p->peak);
}

static void a_history(uint64_t seed, bool background, struct bytes *out) {
    struct rng_stream rng = {.state = seed};
    enum pawl_policy policies[] = {PAWL_POLICY_PAWL,  PAWL_POLICY_RECYCLE, PAWL_POLICY_1F1B,
                                   PAWL_POLICY_GPIPE, PAWL_POLICY_ZB_H1,   PAWL_POLICY_ADAPTIVE,
                                   PAWL_POLICY_PAWL};
    struct spec spec = spec_of(1 + (uint32_t)rng_below(&rng, 4), 1 + (uint32_t)rng_below(&rng, 4),
                               1 + (uint32_t)rng_below(&rng, 8), policies[rng_below(&rng, 7)]);
    struct run r;
    spec.parallel.replan = false; /* no long search, which might find better ones */
    run_open(&r, spec, background);
    for (int i = 0; i < 12; i++) {
        encode(fence(&r), r.ranks, out);
        for (uint64_t n = rng_below(&rng, 3); n > 0; n--) change_somebody(&r, &rng);
    }
    run_close(&r);
}

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

/* ---- memory and costs ---- */

static void a_policy_that_does_not_fit_into_memory_is_an_error(void **state) {
    (void)state;
    struct spec spec = spec_of(2, 4, 6, PAWL_POLICY_GPIPE);
    struct run r;
    struct pawl_error e = {0};
    struct replan_plan *plan = NULL;
    uint32_t need;
    spec.parallel.memory = 3;
    run_open(&r, spec, false);
    struct replan_question q = question_of(&r);
    assert_int_equal(replan_make(r.replan, &q, &plan, &need, &e), PAWL_PLAN);
    assert_non_null(strstr(e.text, "policy gpipe"));
    run_close(&r);
    spec.parallel.schedule = PAWL_POLICY_PAWL;
    run_open(&r, spec, false);
    const struct replan_plan *p = fence(&r);
    for (uint32_t i = 0; i < 8; i++) assert_in_range(p->peak[i], 1, 3);
    run_close(&r);
}

/* All have told `ms` for F, I and W together, in the shares 1:1:1. */
static void tell(struct run *r, uint32_t rank, double ms) {
    struct measure_report m = {.iterations = 20};
    m.ns[MEASURE_FORWARD] = m.ns[MEASURE_INPUT_GRAD] = m.ns[MEASURE_WEIGHT_GRAD] = (uint64_t)(ms * 1e6 / 3);
    m.ns[MEASURE_STEP] = 1000;
    replan_measured(r->replan, rank, &m);
}

static uint32_t load_of(const struct replan_plan *p, uint32_t rank) {
    uint32_t forwards = 0, role = role_of(p, rank);
    for (uint32_t i = 0; i < p->ir->workers[role].count; i++)
        forwards += p->ir->workers[role].instructions[i].op == IR_F;
    return forwards;
}

static bool better_within(struct run *r, uint32_t iterations) {
    for (uint32_t i = 0; i < iterations; i++)
        if (replan_better(r->replan)) return true;
    return false;
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
        cmocka_unit_test(at_the_start_every_rank_plays_the_role_of_its_number),
        cmocka_unit_test(a_rank_keeps_its_role_when_another_dies),
        cmocka_unit_test(what_a_stage_lacks_is_evened_out_by_moves),
        cmocka_unit_test(who_has_the_chunk_already_is_who_moves),
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
        cmocka_unit_test(a_helper_keeps_its_second_chunk),
        cmocka_unit_test(every_history_has_sound_plans_and_always_the_same),
        cmocka_unit_test(a_policy_that_does_not_fit_into_memory_is_an_error),
        cmocka_unit_test(measured_costs_give_seconds_and_are_used_once_all_have_told),
        cmocka_unit_test(what_is_mere_noise_is_not_measured),
        cmocka_unit_test(a_slow_rank_gets_fewer_micro_batches_after_three_reports),
        cmocka_unit_test(a_slow_rank_is_judged_anew_only_by_a_whole_step),
        cmocka_unit_test(without_leave_to_replan_nothing_is_better),
        cmocka_unit_test(noise_changes_no_plan),
        cmocka_unit_test(a_new_process_in_a_place_is_judged_anew),
        cmocka_unit_test(what_was_made_ahead_is_what_is_made_now),
        cmocka_unit_test(a_thread_changes_no_plan),
        cmocka_unit_test(a_speed_that_changed_is_found_by_the_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
