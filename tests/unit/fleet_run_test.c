/* pawl_sim_run with the real planner: requests checked, scenarios named, rows in order, periods as planned.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kit/fleet_kit.h"

static struct pawl_profile *uniform(uint32_t stages) {
    struct pawl_profile *p = NULL;
    struct pawl_error e = {0};
    if (pawl_profile_uniform(stages, 1, 1, 1, 0, &p, &e) != PAWL_OK) fail_msg("%s", e.text);
    p->unit_s = 1;
    for (uint32_t s = 0; s < stages; s++) p->stage[s].layers = 2;
    return p;
}

static struct pawl_sim *run(const struct pawl_sim_request *request) {
    struct pawl_sim *sim = NULL;
    struct pawl_error e = {0};
    if (pawl_sim_run(request, &sim, &e) != PAWL_OK) fail_msg("%s", e.text);
    return sim;
}

/* D=3, P=4, M=6: facts 2.4 and 3. A share of dead machines, no saving. */
static void goodput_is_the_period_s_when_the_dead_are_dead_throughout(void **state) {
    (void)state;
    static const char *const policies[] = {"fault-scaled", "recycle", "pawl", "drop-replica"};
    static const char *const sets[] = {"recycle.checkpoint_every_s=0", "pawl.checkpoint_every_iterations=0",
                                       "drop-replica.checkpoint_every_s=0"};
    static const double shares[] = {1.0 / 12, 3.0 / 12};
    struct pawl_profile *profile = uniform(4);
    struct pawl_sim_request request = {.pipelines = 3,
                                       .stages = 4,
                                       .microbatches = 6,
                                       .profile = profile,
                                       .policies = policies,
                                       .policy_count = 4,
                                       .dead_share = shares,
                                       .dead_share_count = 2,
                                       .hours = 1,
                                       .sets = sets,
                                       .set_count = 3,
                                       .seed = 3};
    struct pawl_sim *sim = run(&request);
    const struct pawl_sim_row *row = pawl_sim_rows(sim);
    assert_int_equal(pawl_sim_row_count(sim), 8);
    kit_near(row[0].goodput, 18 / (27 * 12 / 11.0), 1e-6);
    kit_near(row[1].goodput, 18.0 / 27, 1e-6); /* nothing is lost */
    assert_true(row[2].goodput >= row[1].goodput - 1e-9);
    kit_near(row[3].goodput, 18 / ((9 + 3) * 3.0), 1e-6);
    assert_string_equal(row[0].scenario, "dead 8.33333%");
    assert_string_equal(row[7].scenario, "dead 25%");
    assert_string_equal(row[6].policy, "pawl");
    kit_near(row[5].goodput, 18.0 / 27, 1e-6); /* three, normalized: one in each of three stages */
    pawl_sim_free(sim);
    pawl_profile_free(profile);
}

static void count_progress(void *context, double share, const char *what) {
    double *last = context;
    assert_true(share >= *last && share <= 1);
    assert_true(strlen(what) > 0);
    *last = share;
}

static void scenarios_are_run_in_order_and_progress_is_told(void **state) {
    (void)state;
    static const char *const policies[] = {"oobleck", "recycle"};
    static const double every_s[] = {21600, 1800, 100};
    struct pawl_profile *profile = uniform(3);
    double last = 0;
    struct pawl_sim_request request = {.pipelines = 3,
                                       .stages = 3,
                                       .microbatches = 6,
                                       .profile = profile,
                                       .policies = policies,
                                       .policy_count = 2,
                                       .every_s = every_s,
                                       .every_count = 3,
                                       .hours = 8,
                                       .progress = count_progress,
                                       .context = &last};
    struct pawl_sim *sim = run(&request);
    static const char *const wanted[] = {"every 6h",    "every 6h",   "every 30min",
                                         "every 30min", "every 100s", "every 100s"};
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t samples = 0;
        assert_string_equal(pawl_sim_rows(sim)[i].scenario, wanted[i]);
        assert_string_equal(pawl_sim_rows(sim)[i].policy, policies[i % 2]);
        assert_non_null(pawl_sim_samples(sim, i, &samples));
        assert_true(samples >= 2);
    }
    uint32_t none = 1;
    assert_null(pawl_sim_samples(sim, 6, &none));
    assert_int_equal(none, 0);
    kit_near(last, 1, 0);
    assert_int_equal(pawl_sim_rows(sim)[0].failures, 1);
    assert_int_equal(pawl_sim_rows(sim)[4].failures, 9); /* all of them */
    assert_true(pawl_sim_rows(sim)[5].idle_s > 0);
    pawl_sim_free(sim);
    pawl_profile_free(profile);
}

static void a_built_in_profile_serves_where_none_is_given(void **state) {
    (void)state;
    static const char *const policies[] = {"fault-scaled"};
    static const double every_s[] = {3600};
    struct pawl_sim_request request = {.pipelines = 2,
                                       .stages = 4,
                                       .microbatches = 8,
                                       .policies = policies,
                                       .policy_count = 1,
                                       .every_s = every_s,
                                       .every_count = 1};
    struct pawl_sim *sim = run(&request);
    assert_true(pawl_sim_rows(sim)[0].goodput > 0);
    kit_near(pawl_sim_rows(sim)[0].seconds, 86400, 0);
    pawl_sim_free(sim);
}

static void refuse(struct pawl_sim_request request, const char *why) {
    struct pawl_sim *sim = NULL;
    struct pawl_error e = {0};
    if (pawl_sim_run(&request, &sim, &e) != PAWL_ARGUMENT)
        fail_msg("taken, or not for: %s (%s)", why, e.text);
    if (strstr(e.text, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", e.text, why);
    assert_null(sim);
}

static void more_refusals(struct pawl_sim_request good) {
    static const double shares[] = {0.25, 0.95};
    struct pawl_sim_request r = good;
    r.hours = 1e9, refuse(r, "hours: 1000000000 is not from 0 to 876000");
    r = good, r.every_count = 0, r.dead_share = shares, r.dead_share_count = 2;
    refuse(r, "dead share: 95% of 6 workers is everybody, but somebody must live");
    r.dead_share_count = 1, pawl_sim_free(run(&r));
    r.repair_s = 3600, refuse(r, "repair: dead shares are dead from the start to the end");
    r.repair_s = 0, r.burst = 2, refuse(r, "burst: dead shares");
    r = good, r.every_count = 0, r.trace_path = "t.csv", r.repair_s = 3600;
    refuse(r, "repair: a trace says itself who fails and comes back when");
}

static void impossible_requests_are_refused_by_name(void **state) {
    (void)state;
    static const char *const policies[] = {"fault-scaled"}, *const unknown[] = {"gpipe"};
    static const double every_s[] = {3600}, zero[] = {0}, more[] = {NAN}, whole[] = {1};
    struct pawl_profile *profile = uniform(3);
    struct pawl_sim_request good = {.pipelines = 2,
                                    .stages = 3,
                                    .microbatches = 8,
                                    .profile = profile,
                                    .policies = policies,
                                    .policy_count = 1,
                                    .every_s = every_s,
                                    .every_count = 1,
                                    .hours = 2},
                            r;
    pawl_sim_free(run(&good));
    r = good, r.pipelines = 0, refuse(r, "pipelines: 0");
    r = good, r.stages = 2000, refuse(r, "stages: 2000");
    r = good, r.microbatches = 0, refuse(r, "microbatches: 0");
    r = good, r.pipelines = 4096, r.stages = 1000, refuse(r, "4096000 workers");
    r = good, r.burst = 7, refuse(r, "burst: 7");
    r = good, r.policy_count = 0, refuse(r, "policies");
    r = good, r.policies = unknown, refuse(r, "there is no policy \"gpipe\"");
    r = good, r.every_count = 0, refuse(r, "nothing says when they come");
    r = good, r.mtbf_s = 5, refuse(r, "more than one thing");
    r = good, r.every_s = zero, refuse(r, "rate (seconds): 0");
    r = good, r.every_s = more, refuse(r, "rate (seconds): nan");
    r = good, r.every_count = 0, r.mtbf_s = -1, refuse(r, "mean time between failures");
    r = good, r.every_count = 0, r.dead_share = whole, r.dead_share_count = 1,
    refuse(r, "dead share: 100% is not above 0%");
    more_refusals(good);
    r = good, r.hours = -1, refuse(r, "hours: -1");
    r = good, r.repair_s = INFINITY, refuse(r, "repair (seconds): inf");
    r = good, r.checkpoint_every_s = -5, refuse(r, "checkpoint every: -5");
    r = good, r.stages = 2, refuse(r, "the profile has 3 stages, the request 2");
    profile->unit_s = 0;
    refuse(good, "unit_s");
    pawl_profile_free(profile);
}

static void a_raised_flag_ends_it(void **state) {
    (void)state;
    static const char *const policies[] = {"pawl"};
    static const double every_s[] = {3600};
    bool stop = true;
    struct pawl_profile *profile = uniform(3);
    struct pawl_sim_request request = {.pipelines = 2,
                                       .stages = 3,
                                       .microbatches = 8,
                                       .profile = profile,
                                       .policies = policies,
                                       .policy_count = 1,
                                       .every_s = every_s,
                                       .every_count = 1,
                                       .stop = &stop};
    struct pawl_sim *sim = NULL;
    assert_int_equal(pawl_sim_run(&request, &sim, NULL), PAWL_CANCELLED);
    assert_null(sim);
    pawl_profile_free(profile);
}

static void who_has_no_room_for_one_micro_batch_cannot_run(void **state) {
    (void)state;
    static const char *const policies[] = {"recycle"};
    static const double shares[] = {0.4};
    static const char *const sets[] = {"recycle.checkpoint_every_s=0"};
    struct pawl_profile *profile = uniform(2);
    for (uint32_t s = 0; s < 2; s++)
        profile->stage[s].state_bytes = 100, profile->stage[s].activation_bytes = 50;
    profile->memory_bytes = 149; /* not even one micro-batch */
    struct pawl_sim_request request = {.pipelines = 2,
                                       .stages = 2,
                                       .microbatches = 4,
                                       .profile = profile,
                                       .policies = policies,
                                       .policy_count = 1,
                                       .dead_share = shares,
                                       .dead_share_count = 1,
                                       .hours = 1,
                                       .sets = sets,
                                       .set_count = 1};
    struct pawl_sim *sim = run(&request);
    kit_near(pawl_sim_rows(sim)[0].goodput, 0, 0);
    assert_non_null(strstr(pawl_sim_rows(sim)[0].note, "cannot run"));
    pawl_sim_free(sim);
    pawl_profile_free(profile);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goodput_is_the_period_s_when_the_dead_are_dead_throughout),
        cmocka_unit_test(scenarios_are_run_in_order_and_progress_is_told),
        cmocka_unit_test(a_built_in_profile_serves_where_none_is_given),
        cmocka_unit_test(impossible_requests_are_refused_by_name),
        cmocka_unit_test(a_raised_flag_ends_it),
        cmocka_unit_test(who_has_no_room_for_one_micro_batch_cannot_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
