/* Every policy on tiny clusters whose answers can be worked out by hand.
 *
 * Forward, input- and weight-gradient take 1 s each on a stage, so a micro-batch takes 3 s there; P stages
 * and m micro-batches take 1F1B (m + P - 1) * 3 s. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kit/fleet_kit.h"

#define GIB ((uint64_t)1 << 30)

struct play { /* one policy on one job */
    struct fleet_kit kit;
    const struct fleet_policy *policy;
    void *state;
    struct fleet_answer answer;
};

/* `dead`: machines that are missing from the start, ended by FLEET_NONE; or null. */
static void begin(struct play *p, const char *policy, const uint32_t *dead) {
    bool alive[64];
    struct pawl_error e = {0};
    kit_job(&p->kit);
    for (int i = 0; i < 64; i++) alive[i] = true;
    for (; dead != NULL && *dead != FLEET_NONE; dead++) alive[*dead] = false;
    p->policy = fleet_policy_find(policy);
    if (p->policy->start(&p->kit.job, alive, &p->state, &p->answer, &e) != PAWL_OK) fail_msg("%s", e.text);
}

static void end(struct play *p) {
    p->policy->close(p->state);
    kit_close(&p->kit);
}

/* Machines by number, each list ended by -1. */
static void change(struct play *p, const int *lost, const int *joined) {
    uint32_t gone[16], came[16];
    struct pawl_error e = {0};
    struct fleet_change c = {.lost = gone, .joined = came};
    for (; *lost >= 0; lost++) gone[c.lost_count++] = (uint32_t)*lost;
    for (; *joined >= 0; joined++) came[c.joined_count++] = (uint32_t)*joined;
    if (p->policy->change(p->state, &c, &p->answer, &e) != PAWL_OK) fail_msg("%s", e.text);
}
#define LOSE(p, ...) change(p, (const int[]){__VA_ARGS__, -1}, (const int[]){-1})
#define JOIN(p, ...) change(p, (const int[]){-1}, (const int[]){__VA_ARGS__, -1})

#define expect_iteration(p, seconds) kit_near((double)(p)->answer.iteration_ns * 1e-9, seconds, 1e-8)
#define expect_stop(p, seconds)      kit_near((p)->answer.stop_s, seconds, 1e-9)

/* ---- times ---- */

static void pipelines_are_cut_so_that_the_busiest_stage_is_least_busy(void **state) {
    (void)state;
    struct fleet_kit k;
    kit_open(&k, 2, 2, 4, 5); /* ten layers of 0.6 s */
    kit_job(&k);
    static const double slowest[] = {0, 6, 3, 2.4, 1.8, 1.2, 1.2, 1.2, 1.2, 1.2, 0.6};
    for (uint32_t depth = 1; depth <= 10; depth++) {
        kit_near((double)k.job.pipe[depth].slowest * 1e-9, slowest[depth], 1e-8);
        kit_near((double)k.job.pipe[depth].fill * 1e-9, 6, 1e-8);
    }
    kit_near((double)fleet_job_ns(&k.job, 2) * 1e-9, 15, 1e-8); /* (4 + 1) * 3 */
    kit_near((double)fleet_job_ns(&k.job, 1) * 1e-9, 27, 1e-8);
    kit_close(&k);
}

static void the_head_and_the_embedding_stay_whole(void **state) {
    (void)state;
    struct fleet_kit k;
    kit_open(&k, 2, 3, 4, 2);
    k.stage[0].forward = 1.5;
    k.stage[2].forward = 7; /* layers of 2 1.5 1.5 1.5 1.5 7.5 s */
    k.stage[2].reduce = 3;
    kit_job(&k);
    static const double wanted[] = {2, 1.5, 1.5, 1.5, 1.5, 7.5};
    for (uint32_t l = 0; l < 6; l++) kit_near((double)k.job.layer[l].compute * 1e-9, wanted[l], 1e-8);
    kit_near((double)k.job.layer[5].forward * 1e-9, 6.5, 1e-8);
    kit_near((double)k.job.layer[5].tail * 1e-9, 3, 1e-8);
    kit_near((double)k.job.pipe[4].slowest * 1e-9, 7.5, 1e-8);
    kit_near((double)k.job.pipe[2].slowest * 1e-9, 8, 1e-8);
    kit_near((double)k.job.pipe[3].slowest * 1e-9, 9, 1e-8); /* the profile's own cut */
    kit_near((double)fleet_job_ns(&k.job, 2) * 1e-9, 15.5 + 3 * 9 + 3, 1e-8);
    kit_close(&k);
}

static void costs_of_a_stage_add_up_over_its_layers(void **state) {
    (void)state;
    for (uint32_t layers = 1; layers < 9; layers++) {
        struct fleet_kit k;
        kit_open(&k, 2, 3, 4, layers);
        for (uint32_t s = 0; s < 3; s++) {
            k.stage[s].forward = 1 + 0.37 * (double)((s * 2 + layers) % 3);
            k.stage[s].state_bytes = 1000 + s * 777, k.stage[s].activation_bytes = 100 + s;
            k.stage[s].step = 0.1 * s;
        }
        kit_job(&k);
        for (uint32_t s = 0; s < 3; s++) {
            struct fleet_layer sum = {0};
            for (uint32_t l = k.job.own_cut[s]; l < k.job.own_cut[s + 1]; l++) {
                const struct fleet_layer *x = &k.job.layer[l];
                sum.compute += x->compute, sum.forward += x->forward, sum.tail += x->tail;
                sum.state += x->state, sum.activation += x->activation;
                assert_true(x->forward <= x->compute);
            }
            kit_near((double)sum.compute * 1e-9, k.stage[s].forward + 2, 1e-8);
            kit_near((double)sum.forward * 1e-9, k.stage[s].forward, 1e-8);
            kit_near((double)sum.tail * 1e-9, k.stage[s].step, 1e-8);
            assert_int_equal(sum.state, k.stage[s].state_bytes);
            assert_int_equal(sum.activation, k.stage[s].activation_bytes);
        }
        kit_close(&k);
    }
}

static void later_stages_hold_fewer_micro_batches(void **state) {
    (void)state;
    for (uint64_t memory = 10; memory <= 11; memory++) {
        struct fleet_kit k;
        kit_open(&k, 2, 2, 4, 2);
        k.profile.memory_bytes = memory;
        k.stage[0].state_bytes = k.stage[1].state_bytes = 3;
        k.stage[0].activation_bytes = 4, k.stage[1].activation_bytes = 8; /* twice 4, once 8 */
        kit_job(&k);
        assert_int_equal(k.job.pipe[2].fits, memory == 11);
        assert_false(k.job.pipe[1].fits);
        kit_close(&k);
    }
}

static void transfers_are_in_the_fill(void **state) {
    (void)state;
    struct fleet_kit k;
    kit_open(&k, 1, 3, 2, 2);
    for (int s = 0; s < 3; s++) k.stage[s].send_forward = k.stage[s].send_backward = 0.5;
    kit_job(&k);
    kit_near((double)fleet_job_ns(&k.job, 1) * 1e-9, 9 + 2 * 1 + 3, 1e-8);
    kit_close(&k);
}

static void saves_take_what_the_constants_or_the_bytes_say(void **state) {
    (void)state;
    struct fleet_kit k;
    kit_open(&k, 2, 2, 4, 2);
    k.stage[1].state_bytes = 20000000000;
    kit_job(&k);
    struct fleet_saving s = fleet_job_saving(&k.job, "oobleck", 15);
    kit_near(s.every_s, 600, 0);
    kit_near(s.write_s, 20, 1e-9); /* at 1 GB/s */
    kit_near(s.load_s, 20, 1e-9);
    kit_near(s.stall_s, 20, 1e-9);
    s = fleet_job_saving(&k.job, "pawl", 15);
    kit_near(s.every_s, 150, 1e-9);
    kit_near(s.stall_s, 1.5, 1e-9);
    s = fleet_job_saving(&k.job, "pawl", 0.5);
    kit_near(s.every_s, 10, 1e-9); /* no more than two under way */
    kit_set(&k, "pawl.checkpoint_write_s=4");
    kit_near(fleet_job_saving(&k.job, "pawl", 0.5).every_s, 5, 1e-9);
    kit_near(fleet_job_saving(&k.job, "fault-scaled", 15).every_s, 0, 0);
    kit_close(&k);
}

/* ---- fault-scaled, drop-replica, checkpoint-restart ---- */

static void fault_scaled_does_the_share_of_those_who_live(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 2, 2, 4, 2);
    begin(&p, "fault-scaled", NULL);
    expect_iteration(&p, 15);
    LOSE(&p, 2);
    expect_iteration(&p, 20);
    expect_stop(&p, 0);
    LOSE(&p, 0, 1);
    expect_iteration(&p, 60);
    JOIN(&p, 0);
    expect_iteration(&p, 30);
    LOSE(&p, 0, 3);
    assert_int_equal(p.answer.iteration_ns, 0);
    end(&p);
}

static void a_broken_replica_is_dropped_and_healed(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 2, 2, 4, 2);
    p.kit.stage[0].state_bytes = 25000000000; /* two seconds of a link */
    begin(&p, "drop-replica", NULL);
    expect_iteration(&p, 15);
    LOSE(&p, 1);
    expect_iteration(&p, 27); /* the other does all eight */
    expect_stop(&p, 10);
    kit_near(p.answer.lost_iterations, 0.5, 0);
    LOSE(&p, 0); /* nothing more is lost with it */
    expect_iteration(&p, 27);
    expect_stop(&p, 0);
    JOIN(&p, 1);
    expect_iteration(&p, 27);
    expect_stop(&p, 0);
    JOIN(&p, 0);
    expect_iteration(&p, 15);
    expect_stop(&p, 5 + 2);
    assert_false(p.answer.rollback);
    end(&p);
}

static void who_comes_heals_the_replica_that_lacks_least(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 3, 2, 4, 2);
    begin(&p, "drop-replica", NULL);
    LOSE(&p, 0, 1, 4);
    expect_iteration(&p, (12 + 1) * 3);
    JOIN(&p, 0);
    expect_iteration(&p, (6 + 1) * 3);
    end(&p);
}

static void without_a_whole_replica_the_rest_restarts_from_a_checkpoint(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 2, 2, 4, 2);
    begin(&p, "drop-replica", NULL);
    LOSE(&p, 1);
    LOSE(&p, 2);
    assert_true(p.answer.rollback);
    expect_iteration(&p, 27); /* 0 and 3 together */
    expect_stop(&p, 5 + 294);
    LOSE(&p, 0);
    assert_true(p.answer.rollback);
    assert_int_equal(p.answer.iteration_ns, 0);
    JOIN(&p, 0);
    assert_false(p.answer.rollback); /* that was reckoned */
    expect_iteration(&p, 27);
    end(&p);
}

static void broken_replicas_may_form_whole_ones(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 3, 2, 4, 2);
    kit_set(&p.kit, "drop-replica.regroup=1");
    begin(&p, "drop-replica", NULL);
    LOSE(&p, 0, 3);
    expect_iteration(&p, (6 + 1) * 3); /* two of three, 12 micro-batches */
    end(&p);
}

static void a_restart_uses_as_many_whole_pipelines_as_there_are_machines_for(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 3, 2, 4, 2);
    begin(&p, "checkpoint-restart", NULL);
    expect_iteration(&p, 15);
    LOSE(&p, 0);
    assert_true(p.answer.rollback);
    expect_iteration(&p, 21); /* 12 micro-batches over two */
    expect_stop(&p, 5 + 294);
    LOSE(&p, 5); /* the fifth machine is idle */
    expect_stop(&p, 0);
    assert_false(p.answer.rollback);
    JOIN(&p, 0);
    expect_stop(&p, 0);
    JOIN(&p, 5);
    expect_iteration(&p, 15);
    expect_stop(&p, 294);
    assert_true(p.answer.saved);
    assert_false(p.answer.rollback);
    end(&p);
}

/* ---- Varuna ---- */

static void varuna_chooses_the_fastest_depth_that_divides_and_fits(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 2, 2, 4, 2); /* four layers: 1.5 s each, 2 s with a second forward */
    begin(&p, "varuna", NULL);
    expect_iteration(&p, 8 + 1 * 8); /* four pipelines of one stage, two micro-batches each */
    end(&p);

    p = (struct play){0};
    kit_open(&p.kit, 2, 2, 4, 2);
    p.kit.profile.memory_bytes = 10 * GIB;
    p.kit.stage[0].state_bytes = p.kit.stage[1].state_bytes = 6 * GIB; /* one stage alone does not fit */
    begin(&p, "varuna", NULL);
    expect_iteration(&p, 8 + 3 * 4); /* two of two */
    LOSE(&p, 3);
    expect_iteration(&p, 8 + 7 * 4); /* 3 is no divisor: one of two; one machine is idle */
    assert_true(p.answer.rollback);
    expect_stop(&p, 120 + 6.0 * (double)GIB / 1e9);
    LOSE(&p, 2); /* the idle one */
    expect_stop(&p, 0);
    LOSE(&p, 1);
    assert_int_equal(p.answer.iteration_ns, 0);
    assert_true(p.answer.rollback);
    JOIN(&p, 1);
    expect_iteration(&p, 8 + 7 * 4);
    assert_false(p.answer.rollback);
    end(&p);
}

static void varuna_cuts_only_into_stages_of_as_many_layers(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 2, 2, 4, 4); /* eight layers of 0.75 s, a second with the second forward, and 1 GiB */
    p.kit.profile.memory_bytes = 5 * GIB;
    p.kit.stage[0].state_bytes = p.kit.stage[1].state_bytes = 4 * GIB;
    begin(&p, "varuna", NULL);
    LOSE(&p, 0);
    expect_iteration(&p, 8 + 7 * 4); /* one of two stages; one of three would take 8 + 7 * 3 */
    end(&p);
}

static void varuna_saves_first_where_there_is_notice(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 2, 2, 4, 2);
    p.kit.stage[0].state_bytes = 30000000000;
    kit_set(&p.kit, "common.notice_s=30");
    begin(&p, "varuna", NULL);
    LOSE(&p, 0);
    assert_false(p.answer.rollback);
    assert_true(p.answer.saved);
    expect_stop(&p, 120 + 30 + 30);
    kit_set(&p.kit, "common.notice_s=29");
    LOSE(&p, 1);
    assert_true(p.answer.rollback);
    end(&p);
}

/* ---- Bamboo ---- */

static void bamboo_is_deeper_slower_and_lets_the_rest_wait(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 2, 2, 4, 2);
    begin(&p, "bamboo", NULL); /* depth 3: stages of 3, 1.5 and 1.5 s; one of four waits */
    expect_iteration(&p, (6 + 7 * 3) * 1.15);
    LOSE(&p, 0);
    expect_iteration(&p, (6 + 7 * 3) * 1.15); /* the waiting one comes in */
    expect_stop(&p, 5 + 20);
    assert_false(p.answer.rollback);
    LOSE(&p, 1);
    assert_int_equal(p.answer.iteration_ns, 0);
    assert_true(p.answer.rollback);
    JOIN(&p, 0);
    expect_iteration(&p, (6 + 7 * 3) * 1.15);
    expect_stop(&p, 30);
    end(&p);
}

static void bamboo_is_slower_until_it_is_reconfigured(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 3, 2, 4, 2); /* two pipelines of three */
    kit_set(&p.kit, "bamboo.reconfigure_share=1");
    begin(&p, "bamboo", NULL);
    expect_iteration(&p, (6 + 5 * 3) * 1.15);
    LOSE(&p, 4);
    expect_iteration(&p, (6 + 5 * 3) * 1.15 * 1.5);
    expect_stop(&p, 5);
    JOIN(&p, 4);
    expect_iteration(&p, (6 + 5 * 3) * 1.15);
    expect_stop(&p, 20);
    end(&p);

    p = (struct play){0};
    kit_open(&p.kit, 3, 2, 4, 2);
    begin(&p, "bamboo", NULL);
    LOSE(&p, 4); /* two of five: above 5 % */
    expect_iteration(&p, (6 + 11 * 3) * 1.15);
    expect_stop(&p, 25);
    JOIN(&p, 4); /* nobody is overloaded, but one more pipeline fits */
    expect_iteration(&p, (6 + 5 * 3) * 1.15);
    expect_stop(&p, 20);
    end(&p);
}

static void two_losses_side_by_side_are_fatal_to_bamboo(void **state) {
    (void)state;
    static const struct {
        int first, second;
        bool fatal;
    } cases[] = {{0, 1, true}, {1, 0, true}, {0, 3, true}, {3, 0, true}, {0, 2, false}, {3, 4, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct play p = {0};
        kit_open(&p.kit, 4, 2, 4, 2);
        kit_set(&p.kit, "bamboo.depth=2"); /* two pipelines of four */
        kit_set(&p.kit, "bamboo.reconfigure_share=1");
        begin(&p, "bamboo", NULL);
        LOSE(&p, cases[i].first);
        assert_false(p.answer.rollback);
        LOSE(&p, cases[i].second);
        assert_int_equal(p.answer.rollback, cases[i].fatal);
        expect_stop(&p, cases[i].fatal ? 30 : 5);
        end(&p);
    }
}

static void bamboo_needs_room_for_twice_the_state(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 2, 2, 4, 2);
    p.kit.profile.memory_bytes = 10 * GIB;
    p.kit.stage[0].state_bytes = p.kit.stage[1].state_bytes = 5 * GIB;
    begin(&p, "bamboo", NULL); /* two layers of four in its fullest stage: 5 GiB, twice */
    assert_true(p.answer.iteration_ns > 0);
    end(&p);
    p = (struct play){0};
    kit_open(&p.kit, 2, 2, 4, 2);
    p.kit.profile.memory_bytes = 10 * GIB - 1;
    p.kit.stage[0].state_bytes = p.kit.stage[1].state_bytes = 5 * GIB;
    begin(&p, "bamboo", NULL);
    assert_int_equal(p.answer.iteration_ns, 0);
    assert_non_null(strstr(p.answer.note, "cannot run: out of memory"));
    end(&p);
}

/* ---- Oobleck ---- */

static void oobleck_shrinks_a_pipeline_and_gives_it_fewer_micro_batches(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 2, 2, 4, 2);
    p.kit.stage[0].state_bytes = 12500000000;
    p.kit.stage[1].state_bytes = 25000000000;
    begin(&p, "oobleck", NULL);
    expect_iteration(&p, 15);
    LOSE(&p, 1);
    /* One stage of 6 s and two of 3 s: three micro-batches take 6 + 2 * 6, five take 6 + 4 * 3. */
    expect_iteration(&p, 18);
    expect_stop(&p, 30 + 2); /* machine 0 lacks the second stage */
    kit_near(p.answer.lost_iterations, 0.5, 0);
    JOIN(&p, 1);
    expect_iteration(&p, 15);
    assert_true(p.answer.stop_s >= 30);
    assert_false(p.answer.rollback);
    end(&p);
}

static void oobleck_takes_a_micro_batch_s_whole_way_at_least(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 2, 2, 1, 2);
    begin(&p, "oobleck", NULL);
    expect_iteration(&p, 6);
    end(&p);
}

static void oobleck_borrows_from_the_biggest_and_merges_where_none_can_give(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 2, 3, 4, 2); /* six layers; two nodes are needed for 18 GiB */
    p.kit.profile.memory_bytes = 9 * GIB;
    for (int s = 0; s < 3; s++) p.kit.stage[s].state_bytes = 6 * GIB;
    begin(&p, "oobleck", NULL);
    expect_iteration(&p, (4 + 2) * 3);
    LOSE(&p, 1, 2); /* 1 and 3: one is lent, two of two stages of 4.5 s */
    expect_iteration(&p, 9 + 3 * 4.5);
    assert_false(p.answer.rollback);
    LOSE(&p, 4); /* 1 and 2: merged */
    expect_iteration(&p, 9 + 7 * 3);
    end(&p);
}

static void oobleck_loads_layers_that_nobody_has(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 2, 2, 4, 2);
    begin(&p, "oobleck", NULL);
    LOSE(&p, 0, 3); /* different stages */
    assert_false(p.answer.rollback);
    end(&p);
    p = (struct play){0};
    kit_open(&p.kit, 2, 2, 4, 2);
    begin(&p, "oobleck", NULL);
    LOSE(&p, 0, 2); /* the same stage */
    assert_true(p.answer.rollback);
    expect_stop(&p, 30);
    expect_iteration(&p, 6 + 3 * 6); /* two of one node, four micro-batches each */
    end(&p);
}

static void oobleck_makes_new_pipelines_of_those_who_come(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 3, 2, 4, 3); /* six layers of 1 s */
    begin(&p, "oobleck", NULL);
    LOSE(&p, 0, 1, 2, 3); /* one pipeline of two is left */
    expect_iteration(&p, 6 + 11 * 3);
    JOIN(&p, 0); /* three of one: four micro-batches each, as the threshold wants */
    expect_iteration(&p, 6 + 3 * 6);
    JOIN(&p, 1); /* 2, 1, 1: six and twice three take 6 + 5 * 3 and 6 + 2 * 6 */
    expect_iteration(&p, 21);
    end(&p);
    p = (struct play){0};
    kit_open(&p.kit, 3, 2, 4, 3);
    kit_set(&p.kit, "oobleck.fault_threshold=1");
    begin(&p, "oobleck", NULL);
    LOSE(&p, 0, 1, 2, 3);
    JOIN(&p, 0, 1, 2); /* 3 and 2 take 6 + 6 * 2 and 6 + 4 * 3; 2, 2 and 1 take 6 + 4 * 3 and 6 + 6 */
    expect_iteration(&p, 18);
    end(&p);
}

static void oobleck_keeps_one_pipeline_more_than_its_fault_threshold(void **state) {
    (void)state;
    static const struct {
        const char *threshold;
        double seconds; /* seven nodes, seven layers of 3 s, eight micro-batches */
    } cases[] = {{"oobleck.fault_threshold=1", 21 + 4 * 6}, {"oobleck.fault_threshold=0", 21 + 7 * 3}};
    for (int i = 0; i < 2; i++) {
        struct play p = {0};
        kit_open(&p.kit, 2, 7, 4, 1);
        kit_set(&p.kit, cases[i].threshold);
        begin(&p, "oobleck", NULL);
        LOSE(&p, 0, 1, 2, 3, 4, 6, 11, 12);
        JOIN(&p, 0);
        expect_iteration(&p, cases[i].seconds);
        end(&p);
    }
}

static void oobleck_waits_below_the_least_number_of_nodes(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 1, 3, 4, 2);
    p.kit.profile.memory_bytes = 9 * GIB;
    for (int s = 0; s < 3; s++) p.kit.stage[s].state_bytes = 6 * GIB;
    begin(&p, "oobleck", NULL);
    LOSE(&p, 0, 1);
    assert_int_equal(p.answer.iteration_ns, 0);
    assert_true(p.answer.rollback);
    JOIN(&p, 0);
    expect_iteration(&p, 9 + 3 * 4.5);
    expect_stop(&p, 30 + 6.0 * (double)GIB / 1e9);
    end(&p);
}

/* ---- ReCycle and pawl, with periods by closed form ---- */

static void recycle_asks_the_planner_and_stays_at_its_own_ceiling(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 3, 4, 6, 2); /* fault-free 27; with one loss L = 9, so 27 again */
    begin(&p, "recycle", NULL);
    expect_iteration(&p, 27);
    LOSE(&p, 2);
    expect_iteration(&p, 27);
    LOSE(&p, 6, 9); /* three losses: three stages, one each */
    expect_iteration(&p, 27);
    LOSE(&p, 0, 4); /* five: one stage has two */
    expect_iteration(&p, 54);
    end(&p);
    p = (struct play){0};
    kit_open(&p.kit, 3, 4, 6, 2);
    begin(&p, "pawl", NULL);
    expect_iteration(&p, 18); /* no ceiling */
    end(&p);
}

static void rerouting_stops_for_detection_groups_and_copies(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 3, 2, 6, 2);
    p.kit.stage[0].state_bytes = 12500000000; /* a second of a link */
    begin(&p, "recycle", NULL);
    LOSE(&p, 0);
    expect_stop(&p, 5 + 5); /* the hole is where it should be */
    kit_near(p.answer.lost_iterations, 0.5, 0);
    LOSE(&p, 2); /* two in stage 0: one machine of stage 1 goes there, from one source */
    expect_stop(&p, 5 + 5 + 1);
    JOIN(&p, 0);
    expect_stop(&p, 5 + 1); /* at the end of an iteration, with its state */
    kit_near(p.answer.lost_iterations, 0, 0);
    end(&p);
    p = (struct play){0};
    kit_open(&p.kit, 3, 2, 6, 2);
    p.kit.stage[0].state_bytes = 12500000000;
    begin(&p, "pawl", NULL);
    LOSE(&p, 0);
    expect_stop(&p, 10 + 1 + 1);
    JOIN(&p, 0);
    expect_stop(&p, 1 + 1); /* state is sent meanwhile */
    end(&p);
}

static void one_source_sends_to_one_after_the_other(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 5, 2, 6, 2);
    p.kit.stage[0].state_bytes = 12500000000;
    begin(&p, "recycle", NULL);
    LOSE(&p, 0, 2, 4, 6); /* two of stage 1 come to the one that is left of stage 0 */
    expect_stop(&p, 5 + 5 + 2);
    end(&p);
}

static void a_stage_without_a_replica_goes_back_to_the_checkpoint(void **state) {
    (void)state;
    static const char *const policies[] = {"recycle", "pawl"};
    for (int i = 0; i < 2; i++) {
        struct play p = {0};
        kit_open(&p.kit, 2, 2, 4, 2);
        kit_set(&p.kit, "recycle.checkpoint_load_s=7");
        kit_set(&p.kit, "pawl.checkpoint_load_s=7");
        begin(&p, policies[i], NULL);
        LOSE(&p, 0, 2);
        assert_true(p.answer.rollback);
        expect_iteration(&p, 24); /* one in each stage */
        expect_stop(&p, (i == 0 ? 10 : 12) + 30 + 7);
        LOSE(&p, 1);
        assert_true(p.answer.rollback);
        assert_int_equal(p.answer.iteration_ns, 0); /* fewer machines than stages: it waits */
        JOIN(&p, 1);
        assert_false(p.answer.rollback);
        expect_iteration(&p, 24);
        expect_stop(&p, (i == 0 ? 5 : 2) + 30 + 7);
        end(&p);
    }
}

static void a_replacement_in_the_same_moment_does_not_bring_the_state_back(void **state) {
    (void)state;
    struct play p = {0};
    kit_open(&p.kit, 2, 2, 4, 2);
    begin(&p, "recycle", NULL);
    change(&p, (const int[]){0, 2, -1}, (const int[]){0, 2, -1});
    assert_true(p.answer.rollback);
    expect_iteration(&p, 15);
    end(&p);
}

/* ---- all of them ---- */

static void the_dead_of_the_start_cost_no_stop_but_speed(void **state) {
    (void)state;
    static const uint32_t dead[] = {1, FLEET_NONE};
    for (const char *const *name = pawl_sim_policies(); *name != NULL; name++) {
        struct play all = {0}, some = {0};
        kit_open(&all.kit, 3, 2, 4, 2);
        begin(&all, *name, NULL);
        kit_open(&some.kit, 3, 2, 4, 2);
        begin(&some, *name, dead);
        assert_true(some.answer.iteration_ns >= all.answer.iteration_ns);
        assert_true(all.answer.iteration_ns > 0);
        expect_stop(&some, 0);
        end(&all);
        end(&some);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelines_are_cut_so_that_the_busiest_stage_is_least_busy),
        cmocka_unit_test(the_head_and_the_embedding_stay_whole),
        cmocka_unit_test(costs_of_a_stage_add_up_over_its_layers),
        cmocka_unit_test(later_stages_hold_fewer_micro_batches),
        cmocka_unit_test(transfers_are_in_the_fill),
        cmocka_unit_test(saves_take_what_the_constants_or_the_bytes_say),
        cmocka_unit_test(fault_scaled_does_the_share_of_those_who_live),
        cmocka_unit_test(a_broken_replica_is_dropped_and_healed),
        cmocka_unit_test(who_comes_heals_the_replica_that_lacks_least),
        cmocka_unit_test(without_a_whole_replica_the_rest_restarts_from_a_checkpoint),
        cmocka_unit_test(broken_replicas_may_form_whole_ones),
        cmocka_unit_test(a_restart_uses_as_many_whole_pipelines_as_there_are_machines_for),
        cmocka_unit_test(varuna_chooses_the_fastest_depth_that_divides_and_fits),
        cmocka_unit_test(varuna_cuts_only_into_stages_of_as_many_layers),
        cmocka_unit_test(varuna_saves_first_where_there_is_notice),
        cmocka_unit_test(bamboo_is_deeper_slower_and_lets_the_rest_wait),
        cmocka_unit_test(bamboo_is_slower_until_it_is_reconfigured),
        cmocka_unit_test(two_losses_side_by_side_are_fatal_to_bamboo),
        cmocka_unit_test(bamboo_needs_room_for_twice_the_state),
        cmocka_unit_test(oobleck_shrinks_a_pipeline_and_gives_it_fewer_micro_batches),
        cmocka_unit_test(oobleck_takes_a_micro_batch_s_whole_way_at_least),
        cmocka_unit_test(oobleck_borrows_from_the_biggest_and_merges_where_none_can_give),
        cmocka_unit_test(oobleck_loads_layers_that_nobody_has),
        cmocka_unit_test(oobleck_makes_new_pipelines_of_those_who_come),
        cmocka_unit_test(oobleck_keeps_one_pipeline_more_than_its_fault_threshold),
        cmocka_unit_test(oobleck_waits_below_the_least_number_of_nodes),
        cmocka_unit_test(recycle_asks_the_planner_and_stays_at_its_own_ceiling),
        cmocka_unit_test(rerouting_stops_for_detection_groups_and_copies),
        cmocka_unit_test(one_source_sends_to_one_after_the_other),
        cmocka_unit_test(a_stage_without_a_replica_goes_back_to_the_checkpoint),
        cmocka_unit_test(a_replacement_in_the_same_moment_does_not_bring_the_state_back),
        cmocka_unit_test(the_dead_of_the_start_cost_no_stop_but_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
