/* What plan.h promises of routes and of routing among peers. */
#include "plan_case.h"

#include <string.h>

static struct plan_route *peers(const struct plan_case *c, bool free_homes) {
    struct plan_route *route = NULL;
    struct pawl_error e = {0};
    if (plan_route_peers(&c->costs, plan_full(c->microbatches), c->alive, free_homes, &route, &e) != PAWL_OK)
        fail_msg("%s", e.text);
    case_assert_whole(route);
    return route;
}

static void homes_stay_where_they_live(void **state) {
    (void)state;
    struct plan_case c = case_uniform(4, 3, 8);
    case_kill(&c, 1, 2);
    struct plan_route *r = peers(&c, false);
    for (uint32_t h = 0; h < 4; h++)
        for (uint32_t s = 0; s < 3; s++)
            for (uint32_t m = 0; m < 8; m++)
                if (c.alive[h * 3 + s]) assert_int_equal(r->host[plan_route_cell(r, h, s, m)], h * 3 + s);
    plan_route_free(r);
    case_close(&c);
}

static void no_two_equal_peers_differ_by_more_than_one_guest(void **state) {
    (void)state;
    for (uint32_t microbatches = 1; microbatches <= 40; microbatches++) {
        struct plan_case c = case_uniform(5, 2, microbatches);
        case_kill(&c, 0, 1);
        case_kill(&c, 3, 1);
        struct plan_route *r = peers(&c, false);
        uint32_t least = UINT32_MAX, most = 0;
        for (uint32_t p = 0; p < 5; p++) {
            uint32_t n = case_hosted(r, p * 2 + 1, 1);
            if (!c.alive[p * 2 + 1]) continue;
            least = n < least ? n : least;
            most = n > most ? n : most;
        }
        assert_in_range(most - least, 0, 1);
        assert_int_equal(most, (5 * microbatches + 2) / 3);
        plan_route_free(r);
        case_close(&c);
    }
}

/* In any run of numbers each host has its share, to within one. */
static void guests_of_a_host_are_spread_over_the_numbers(void **state) {
    (void)state;
    struct plan_case c = case_uniform(4, 2, 30);
    case_kill(&c, 2, 0);
    struct plan_route *r = peers(&c, false);
    for (uint32_t p = 0; p < 4; p++) {
        uint32_t had = 0;
        for (uint32_t m = 0; m < 30 && p != 2; m++) {
            had += r->host[plan_route_cell(r, 2, 0, m)] == p * 2;
            assert_in_range(had, m / 3, m / 3 + 1);
        }
    }
    plan_route_free(r);
    case_close(&c);
}

static void guests_of_a_host_come_from_all_dead_homes(void **state) {
    (void)state;
    struct plan_case c = case_uniform(4, 2, 12);
    case_kill(&c, 0, 0);
    case_kill(&c, 2, 0);
    struct plan_route *r = peers(&c, false);
    for (uint32_t host = 1; host < 4; host += 2) {
        for (uint32_t home = 0; home < 4; home += 2) {
            uint32_t n = 0;
            for (uint32_t m = 0; m < 12; m++) n += r->host[plan_route_cell(r, home, 0, m)] == host * 2;
            assert_int_equal(n, 6);
        }
    }
    plan_route_free(r);
    case_close(&c);
}

static void a_worker_twice_as_slow_gets_half(void **state) {
    (void)state;
    struct plan_case c = case_uniform(3, 2, 20);
    case_slow(&c, 1, 0, 2);
    struct plan_route *r = peers(&c, true);
    assert_int_equal(case_hosted(r, 1 * 2, 0), 12);
    assert_int_equal(case_hosted(r, 0 * 2, 0), 24);
    assert_int_equal(case_hosted(r, 2 * 2, 0), 24);
    for (uint32_t p = 0; p < 3; p++) assert_int_equal(case_hosted(r, p * 2 + 1, 1), 20);
    plan_route_free(r);
    case_close(&c);
}

static void a_slow_worker_whose_home_stays_gets_fewer_guests(void **state) {
    (void)state;
    struct plan_case c = case_uniform(4, 1, 30);
    c.costs.chunk[0] = (struct sim_chunk){.forward = 100, .input_grad = 100, .weight_grad = 100};
    case_kill(&c, 0, 0);
    case_slow(&c, 1, 0, 1.1);
    struct plan_route *r = peers(&c, false);
    /* 120 micro-batches at speeds 1 / 1.1, 1, 1: 37.5, 41.25, 41.25; whole ones that end first: */
    assert_int_equal(case_hosted(r, 1, 0), 38);
    assert_int_equal(case_hosted(r, 2, 0), 41);
    assert_int_equal(case_hosted(r, 3, 0), 41);
    plan_route_free(r);
    case_slow(&c, 1, 0, 2);
    r = peers(&c, false);
    assert_int_equal(case_hosted(r, 1, 0), 30); /* all its own, no guest */
    plan_route_free(r);
    case_close(&c);
}

/* 52 micro-batches at 4, 4 and 5 ticks: within 76 two of them could end one more than there are; the one
 * whose last ends at 75 keeps it. */
static void who_does_not_end_last_keeps_what_it_has(void **state) {
    (void)state;
    struct plan_case c = case_uniform(4, 1, 13);
    c.costs.chunk[0] = (struct sim_chunk){.forward = 4};
    case_kill(&c, 0, 0);
    case_slow(&c, 3, 0, 1.25);
    struct plan_route *r = peers(&c, true);
    assert_int_equal(case_hosted(r, 1, 0), 19);
    assert_int_equal(case_hosted(r, 2, 0), 18);
    assert_int_equal(case_hosted(r, 3, 0), 15);
    plan_route_free(r);
    case_close(&c);
}

/* Against all ways to share out the guests of one stage. */
static uint64_t best_by_trial(const struct plan_case *c, uint32_t pipeline, uint32_t guests, uint64_t most) {
    if (pipeline == c->costs.pipelines) return guests == 0 ? most : UINT64_MAX;
    if (!c->alive[pipeline]) return best_by_trial(c, pipeline + 1, guests, most);
    uint64_t best = UINT64_MAX;
    for (uint32_t g = 0; g <= guests; g++) {
        uint64_t load = 0;
        for (int op = IR_F; op <= IR_W; op++)
            load += (c->microbatches + g) * sim_duration(&c->costs, pipeline, 0, (enum ir_op)op);
        uint64_t all = best_by_trial(c, pipeline + 1, guests - g, load > most ? load : most);
        if (all < best) best = all;
    }
    return best;
}

static void the_last_of_the_peers_ends_as_early_as_can_be(void **state) {
    (void)state;
    struct rng_stream rng = {7};
    for (int i = 0; i < 200; i++) {
        struct plan_case c = case_uniform(4, 1, 1 + (uint32_t)rng_below(&rng, 5));
        c.costs.chunk[0].forward = 10;
        case_kill(&c, (uint32_t)rng_below(&rng, 4), 0);
        for (uint32_t p = 0; p < 4; p++) case_slow(&c, p, 0, 1 + (double)rng_below(&rng, 20) / 10);
        struct plan_route *r = peers(&c, false);
        assert_int_equal(case_busiest(&c, r), best_by_trial(&c, 0, c.microbatches, 0));
        plan_route_free(r);
        case_close(&c);
    }
}

static void a_stage_of_two_chunks_shares_out_both(void **state) {
    (void)state;
    uint32_t v_shape[4] = {0, 1, 1, 0};
    struct plan_case c = case_uniform(3, 2, 8);
    struct plan_route *r = NULL;
    struct pawl_error e = {0};
    struct sim_chunk four[4];
    for (int i = 0; i < 4; i++) four[i] = c.costs.chunk[0];
    struct sim_costs costs = {.pipelines = 3, .stages = 2, .chunks = 4, .chunk = four};
    assert_int_equal(plan_route_new(3, 2, 4, 8, &r, &e), PAWL_OK);
    r->stage_of = v_shape;
    r->alive[1 * 2 + 1] = false;
    assert_int_equal(plan_route_fill_peers(r, &costs, false, &e), PAWL_OK);
    case_assert_whole(r);
    for (uint32_t chunk = 0; chunk < 4; chunk++)
        for (uint32_t h = 0; h < 3; h++)
            for (uint32_t m = 0; m < 8; m++)
                assert_int_equal(r->host[plan_route_cell(r, h, chunk, m)] % 2, v_shape[chunk]);
    for (uint32_t p = 0; p < 3; p += 2)
        assert_int_equal(case_hosted(r, p * 2 + 1, 1) + case_hosted(r, p * 2 + 1, 2), 24);
    plan_route_free(r);
    case_close(&c);
}

static void a_stage_without_a_live_worker_is_named(void **state) {
    (void)state;
    struct plan_case c = case_uniform(2, 3, 4);
    case_kill(&c, 0, 1);
    case_kill(&c, 1, 1);
    struct plan_route *r = NULL;
    struct pawl_error e = {0};
    assert_int_equal(plan_route_peers(&c.costs, plan_full(4), c.alive, false, &r, &e), PAWL_STAGE_LOST);
    assert_null(r);
    assert_non_null(strstr(e.text, "stage 1"));
    case_close(&c);
}

static void sizes_out_of_range_are_refused(void **state) {
    (void)state;
    struct plan_route *r = NULL;
    struct pawl_error e = {0};
    assert_int_equal(plan_route_new(0, 1, 1, 1, &r, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "pipelines"));
    assert_int_equal(plan_route_new(1, IR_STAGES_MAX + 1, 1, 1, &r, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "stages"));
    assert_int_equal(plan_route_new(1, 1, 0, 1, &r, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "chunks"));
    assert_int_equal(plan_route_new(1, 1, 1, IR_MICROBATCHES_MAX + 1, &r, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "microbatches"));
    assert_int_equal(plan_route_new(IR_PIPELINES_MAX, IR_STAGES_MAX, 1, 1, &r, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "workers"));
}

static void a_plan_of_a_route_has_its_dead_and_its_holders(void **state) {
    (void)state;
    struct plan_case c = case_uniform(2, 3, 4);
    case_kill(&c, 0, 1);
    struct plan_route *r = peers(&c, false);
    r->host[plan_route_cell(r, 0, 1, 2)] = 0 * 3 + 2; /* a neighbour helps */
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    assert_int_equal(plan_route_plan(r, &plan, &e), PAWL_OK);
    for (uint32_t w = 0; w < 6; w++) {
        assert_int_equal(plan->workers[w].alive, w != 1);
        assert_int_equal(plan->workers[w].count, 0);
        for (uint32_t chunk = 0; chunk < 3; chunk++) {
            bool holds = w != 1 && (w % 3 == chunk || (w == 2 && chunk == 1));
            assert_int_equal(ir_plan_holds(plan, w, chunk), holds);
        }
    }
    ir_plan_free(plan);
    r->host[plan_route_cell(r, 0, 1, 2)] = 1; /* dead */
    assert_int_equal(plan_route_plan(r, &plan, &e), PAWL_PLAN);
    assert_null(plan);
    assert_non_null(strstr(e.text, "chunk 1 of micro-batch 2 of pipeline 0"));
    plan_route_free(r);
    case_close(&c);
}

static void instructions_name_the_hosts_of_their_neighbours(void **state) {
    (void)state;
    struct plan_case c = case_uniform(2, 3, 4);
    case_kill(&c, 0, 1);
    struct plan_route *r = peers(&c, false);
    struct ir_instruction f = plan_route_instruction(r, IR_F, 0, 1, 3);
    assert_int_equal(f.from, 0);
    assert_int_equal(f.to, 2);
    struct ir_instruction b = plan_route_instruction(r, IR_B, 0, 2, 3);
    assert_int_equal(b.from, IR_NONE);
    assert_int_equal(b.to, 1 * 3 + 1);
    struct ir_instruction i = plan_route_instruction(r, IR_I, 0, 0, 3);
    assert_int_equal(i.from, 1 * 3 + 1);
    assert_int_equal(i.to, IR_NONE);
    struct ir_instruction w = plan_route_instruction(r, IR_W, 0, 1, 3);
    assert_int_equal(w.from, IR_NONE);
    assert_int_equal(w.to, IR_NONE);
    assert_int_equal(w.chunk, 1);
    assert_int_equal(w.microbatch, 3);
    plan_route_free(r);
    case_close(&c);
}

static void a_copy_is_the_same_and_separate(void **state) {
    (void)state;
    struct plan_case c = case_uniform(3, 2, 5);
    case_kill(&c, 2, 1);
    struct plan_route *r = peers(&c, false), *copy = NULL;
    struct pawl_error e = {0};
    assert_int_equal(plan_route_copy(r, &copy, &e), PAWL_OK);
    assert_memory_equal(copy->host, r->host, 3 * 2 * 5 * sizeof *r->host);
    assert_memory_equal(copy->alive, r->alive, 6 * sizeof *r->alive);
    copy->host[0] = 4;
    copy->alive[0] = false;
    assert_int_equal(r->host[0], 0);
    assert_true(r->alive[0]);
    plan_route_free(copy);
    plan_route_free(r);
    case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(homes_stay_where_they_live),
        cmocka_unit_test(no_two_equal_peers_differ_by_more_than_one_guest),
        cmocka_unit_test(guests_of_a_host_are_spread_over_the_numbers),
        cmocka_unit_test(guests_of_a_host_come_from_all_dead_homes),
        cmocka_unit_test(a_worker_twice_as_slow_gets_half),
        cmocka_unit_test(a_slow_worker_whose_home_stays_gets_fewer_guests),
        cmocka_unit_test(who_does_not_end_last_keeps_what_it_has),
        cmocka_unit_test(the_last_of_the_peers_ends_as_early_as_can_be),
        cmocka_unit_test(a_stage_of_two_chunks_shares_out_both),
        cmocka_unit_test(a_stage_without_a_live_worker_is_named),
        cmocka_unit_test(sizes_out_of_range_are_refused),
        cmocka_unit_test(a_plan_of_a_route_has_its_dead_and_its_holders),
        cmocka_unit_test(instructions_name_the_hosts_of_their_neighbours),
        cmocka_unit_test(a_copy_is_the_same_and_separate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
