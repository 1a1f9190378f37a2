/* What plan.h promises of failure normalization, against all ways to spread the holes of small cases. */
#include "plan_case.h"

#include <stdio.h>
#include <string.h>

/* ---- times ---- */

struct table {
    uint32_t pipelines;
    uint64_t time[64]; /* [stages * pipelines] */
};

static uint64_t by_table(void *context, uint32_t stage, uint32_t holes) {
    const struct table *t = context;
    return t->time[stage * t->pipelines + holes];
}

static uint64_t by_load(void *context, uint32_t stage, uint32_t holes) {
    const struct plan_case *c = context;
    return plan_predict_stage(&c->costs, plan_full(c->microbatches), PAWL_POLICY_RECYCLE, stage, holes);
}

/* ---- asking ---- */

static struct plan_normal normalize(const struct plan_normal_request *request) {
    struct plan_normal n;
    struct pawl_error e = {0};
    if (plan_normalize(request, &n, &e) != PAWL_OK) fail_msg("%s", e.text);
    return n;
}

/* Roles, holes and moves agree: each move turns a live role and an empty one around, one after the other. */
static void assert_consistent(const struct plan_normal_request *r, const struct plan_normal *n) {
    uint32_t workers = r->pipelines * r->stages, changed = 0;
    bool *alive = malloc(workers * sizeof *alive);
    assert_non_null(alive);
    for (uint32_t w = 0; w < workers; w++) alive[w] = r->dead == NULL || !r->dead[w];
    for (uint32_t i = 0; i < n->move_count; i++) {
        assert_true(alive[n->moves[i].from]);
        assert_false(alive[n->moves[i].to]);
        assert_int_not_equal(n->moves[i].from % r->stages, n->moves[i].to % r->stages);
        alive[n->moves[i].from] = false;
        alive[n->moves[i].to] = true;
    }
    for (uint32_t w = 0; w < workers; w++) {
        changed += alive[w] != n->alive[w];
        assert_false(n->alive[w] && !alive[w]);
    }
    assert_int_equal(changed, r->free_failures);
    for (uint32_t s = 0; s < r->stages; s++) {
        uint32_t here = 0;
        for (uint32_t p = 0; p < r->pipelines; p++) here += !n->alive[p * r->stages + s];
        assert_int_equal(here, n->holes[s]);
        assert_in_range(here, 0, r->pipelines - 1);
    }
    free(alive);
}

static struct plan_normal normalize_case(struct plan_case *c, bool no_move) {
    bool dead[64];
    for (uint32_t w = 0; w < case_workers(c); w++) dead[w] = !c->alive[w];
    struct plan_normal_request r = {.pipelines = c->costs.pipelines,
                                    .stages = c->costs.stages,
                                    .dead = dead,
                                    .no_move = no_move,
                                    .min_gain = 0.02,
                                    .time = by_load,
                                    .context = c};
    struct plan_normal n = normalize(&r);
    assert_consistent(&r, &n);
    return n;
}

static uint64_t worst_of(struct plan_case *c, const struct plan_normal *n) {
    uint64_t worst = 0;
    for (uint32_t s = 0; s < c->costs.stages; s++) {
        uint64_t time = by_load(c, s, n->holes[s]);
        if (time > worst) worst = time;
    }
    return worst;
}

/* ---- the cases of the paper's idea ---- */

static void a_single_failure_is_never_moved_when_only_load_counts(void **state) {
    (void)state;
    for (uint32_t s = 0; s < 4; s++) {
        for (uint32_t p = 0; p < 3; p++) {
            struct plan_case c = case_uniform(3, 4, 6);
            case_kill(&c, p, s);
            struct plan_normal n = normalize_case(&c, false);
            assert_int_equal(n.move_count, 0);
            assert_int_equal(n.holes[s], 1);
            plan_normal_close(&n);
            case_close(&c);
        }
    }
}

static void two_failures_of_one_stage_are_spread_by_one_move(void **state) {
    (void)state;
    struct plan_case c = case_uniform(3, 4, 6);
    case_kill(&c, 0, 3);
    case_kill(&c, 2, 3);
    struct plan_normal n = normalize_case(&c, false);
    assert_int_equal(n.move_count, 1);
    assert_int_equal(worst_of(&c, &n), 27);
    assert_int_equal(n.moves[0].to % 4, 3);
    assert_int_equal(n.moves[0].from % 4, 1); /* nearest the middle */
    plan_normal_close(&n);
    case_close(&c);
}

static void without_moves_two_failures_of_one_stage_stay(void **state) {
    (void)state;
    struct plan_case c = case_uniform(3, 4, 6);
    case_kill(&c, 0, 3);
    case_kill(&c, 2, 3);
    struct plan_normal n = normalize_case(&c, true);
    assert_int_equal(n.move_count, 0);
    assert_int_equal(worst_of(&c, &n), 54);
    plan_normal_close(&n);
    case_close(&c);
}

static void the_role_filled_is_of_the_pipeline_with_most_holes(void **state) {
    (void)state;
    struct plan_case c = case_uniform(3, 4, 6);
    case_kill(&c, 0, 3);
    case_kill(&c, 2, 3);
    case_kill(&c, 2, 0);
    struct plan_normal n = normalize_case(&c, false);
    assert_int_equal(n.move_count, 1);
    assert_int_equal(n.moves[0].to, 2 * 4 + 3);
    assert_int_equal(n.moves[0].from / 4, 1); /* which has none */
    plan_normal_close(&n);
    case_close(&c);
}

static void a_lost_stage_is_filled_again(void **state) {
    (void)state;
    struct plan_case c = case_uniform(2, 3, 4);
    case_kill(&c, 0, 1);
    case_kill(&c, 1, 1);
    struct plan_normal n = normalize_case(&c, false);
    assert_int_equal(n.move_count, 1);
    assert_int_equal(n.holes[1], 1);
    plan_normal_close(&n);
    case_close(&c);
}

/* ---- the rules, against trial ---- */

struct trial {
    const struct plan_normal_request *request;
    uint32_t dead[8], holes[8];
    uint64_t least, without;    /* best time with any moves; with as few as can be */
    uint64_t fewest;            /* moves */
    uint64_t limit;             /* below this a time is as good as the least */
    uint64_t moves, worst, sum; /* the best found under the rule */
    void (*look)(struct trial *t, uint64_t worst, uint64_t moves, uint64_t sum);
};

static void look_least(struct trial *t, uint64_t worst, uint64_t moves, uint64_t sum) {
    (void)sum;
    if (worst < t->least) t->least = worst;
    if (moves < t->fewest || (moves == t->fewest && worst < t->without)) {
        t->fewest = moves;
        t->without = worst;
    }
}

static void look_rule(struct trial *t, uint64_t worst, uint64_t moves, uint64_t sum) {
    if (worst != t->least && worst >= t->limit) return;
    bool better = moves != t->moves ? moves < t->moves : worst != t->worst ? worst < t->worst : sum < t->sum;
    if (!better) return;
    t->moves = moves;
    t->worst = worst;
    t->sum = sum;
}

static void try_stage(struct trial *t, uint32_t stage, uint32_t left) {
    const struct plan_normal_request *r = t->request;
    if (stage < r->stages) {
        for (uint32_t j = 0; j < r->pipelines && j <= left; j++) {
            if (r->no_move && j < t->dead[stage]) continue;
            t->holes[stage] = j;
            try_stage(t, stage + 1, left - j);
        }
        return;
    }
    if (left > 0) return;
    uint64_t worst = 0, moves = 0, sum = 0;
    for (uint32_t s = 0; s < r->stages; s++) {
        uint64_t time = r->time(r->context, s, t->holes[s]);
        worst = time > worst ? time : worst;
        sum += time;
        moves += t->holes[s] < t->dead[s] ? t->dead[s] - t->holes[s] : 0;
    }
    t->look(t, worst, moves, sum);
}

static struct trial try_all(const struct plan_normal_request *r) {
    struct trial t = {.request = r, .least = UINT64_MAX, .fewest = UINT64_MAX, .moves = UINT64_MAX};
    uint32_t failures = r->free_failures;
    for (uint32_t w = 0; w < r->pipelines * r->stages; w++) {
        t.dead[w % r->stages] += r->dead[w];
        failures += r->dead[w];
    }
    t.look = look_least;
    try_stage(&t, 0, failures);
    double margin = r->min_gain * (double)t.without;
    t.limit = t.least;
    while ((double)t.limit < (double)t.least + margin) t.limit++; /* the first that is not near enough */
    t.look = look_rule;
    try_stage(&t, 0, failures);
    return t;
}

static void assert_as_trial(const struct plan_normal_request *r) {
    struct trial t = try_all(r);
    struct plan_normal n = normalize(r);
    assert_consistent(r, &n);
    uint64_t worst = 0, sum = 0;
    for (uint32_t s = 0; s < r->stages; s++) {
        uint64_t time = r->time(r->context, s, n.holes[s]);
        worst = time > worst ? time : worst;
        sum += time;
    }
    if (n.move_count != t.moves || worst != t.worst || sum != t.sum)
        fail_msg("moves %u, worst %llu, sum %llu; by trial %llu, %llu, %llu", n.move_count,
                 (unsigned long long)worst, (unsigned long long)sum, (unsigned long long)t.moves,
                 (unsigned long long)t.worst, (unsigned long long)t.sum);
    plan_normal_close(&n);
}

static void no_way_to_spread_the_holes_is_better(void **state) {
    (void)state;
    struct rng_stream rng = {3};
    const double gains[] = {0, 0.02, 0.3};
    for (int i = 0; i < 2000; i++) {
        struct plan_normal_request r = {.pipelines = 2 + (uint32_t)rng_below(&rng, 3),
                                        .stages = 1 + (uint32_t)rng_below(&rng, 4),
                                        .no_move = rng_below(&rng, 4) == 0,
                                        .min_gain = gains[rng_below(&rng, 3)],
                                        .time = by_table};
        struct table table = {.pipelines = r.pipelines};
        bool dead[16] = {0};
        for (uint32_t k = 0; k < r.stages * r.pipelines; k++) table.time[k] = 20 + rng_below(&rng, 30);
        uint32_t most = r.stages * (r.pipelines - 1), count = (uint32_t)rng_below(&rng, most + 1);
        for (uint32_t k = 0; k < count; k++) {
            uint32_t w = (uint32_t)rng_below(&rng, r.pipelines * r.stages);
            bool only_one = true; /* with no_move a stage must not be lost */
            for (uint32_t p = 0; p < r.pipelines; p++)
                only_one = only_one && (p == w / r.stages || dead[p * r.stages + w % r.stages]);
            if (dead[w] || (r.no_move && only_one)) continue;
            dead[w] = true;
            most--;
        }
        r.dead = dead;
        r.free_failures = (uint32_t)rng_below(&rng, most + 1);
        r.context = &table;
        assert_as_trial(&r);
    }
}

static void free_failures_go_where_they_cost_least(void **state) {
    (void)state;
    struct table table = {.pipelines = 3, .time = {9, 15, 30, 9, 12, 30, 9, 14, 30}};
    struct plan_normal_request r = {
        .pipelines = 3, .stages = 3, .free_failures = 2, .time = by_table, .context = &table};
    struct plan_normal n = normalize(&r);
    assert_consistent(&r, &n);
    assert_int_equal(n.move_count, 0);
    assert_int_equal(n.holes[0], 0);
    assert_int_equal(n.holes[1], 1);
    assert_int_equal(n.holes[2], 1);
    assert_false(n.alive[0 * 3 + 1]);
    assert_false(n.alive[1 * 3 + 2]); /* another pipeline */
    plan_normal_close(&n);
}

static void equal_times_put_holes_near_the_middle(void **state) {
    (void)state;
    struct plan_case c = case_uniform(4, 5, 8);
    struct plan_normal_request r = {
        .pipelines = 4, .stages = 5, .free_failures = 1, .time = by_load, .context = &c};
    struct plan_normal n = normalize(&r);
    assert_int_equal(n.holes[2], 1);
    plan_normal_close(&n);
    case_close(&c);
}

static void a_gain_below_the_least_moves_nobody(void **state) {
    (void)state;
    struct table table = {.pipelines = 2, .time = {50, 100, 50, 98}};
    bool dead[4] = {true, false, false, false};
    struct plan_normal_request r = {
        .pipelines = 2, .stages = 2, .dead = dead, .time = by_table, .context = &table};
    const double gains[] = {0, 0.02, 0.0201};
    const uint32_t moves[] = {1, 1, 0};
    for (int i = 0; i < 3; i++) {
        r.min_gain = gains[i];
        struct plan_normal n = normalize(&r);
        assert_int_equal(n.move_count, moves[i]);
        plan_normal_close(&n);
    }
}

static void too_many_failures_are_refused_with_the_numbers(void **state) {
    (void)state;
    struct plan_case c = case_uniform(2, 3, 4);
    struct plan_normal_request r = {
        .pipelines = 2, .stages = 3, .free_failures = 4, .time = by_load, .context = &c};
    struct plan_normal n;
    struct pawl_error e = {0};
    assert_int_equal(plan_normalize(&r, &n, &e), PAWL_STAGE_LOST);
    assert_non_null(strstr(e.text, "4 failures"));
    assert_non_null(strstr(e.text, "bear 3"));
    assert_null(n.alive);
    r.free_failures = 3;
    assert_int_equal(plan_normalize(&r, &n, &e), PAWL_OK);
    plan_normal_close(&n);
    bool dead[6] = {false, false, true, false, false, true};
    r.free_failures = 0;
    r.dead = dead;
    r.no_move = true;
    assert_int_equal(plan_normalize(&r, &n, &e), PAWL_STAGE_LOST);
    assert_non_null(strstr(e.text, "stage 2"));
    r.min_gain = -1;
    assert_int_equal(plan_normalize(&r, &n, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "min_gain"));
    case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_single_failure_is_never_moved_when_only_load_counts),
        cmocka_unit_test(two_failures_of_one_stage_are_spread_by_one_move),
        cmocka_unit_test(without_moves_two_failures_of_one_stage_stay),
        cmocka_unit_test(the_role_filled_is_of_the_pipeline_with_most_holes),
        cmocka_unit_test(a_lost_stage_is_filled_again),
        cmocka_unit_test(no_way_to_spread_the_holes_is_better),
        cmocka_unit_test(free_failures_go_where_they_cost_least),
        cmocka_unit_test(equal_times_put_holes_near_the_middle),
        cmocka_unit_test(a_gain_below_the_least_moves_nobody),
        cmocka_unit_test(too_many_failures_are_refused_with_the_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
