/* What people read of a simulation: a table per scenario, and the ratios in words. */
#include "kit/show_sims.h"
#include "kit/show_plans.h"

#include <errno.h>
#include <math.h>

static void a_table_per_scenario_with_the_ratio_to_the_first_policy(void **state) {
    (void)state;
    char *text = sim_kit_text(show_sim_text, sim_of_two_scenarios());
    assert_holds(text, "16 pipelines x 2 stages x 8 micro-batches, seed 7\n");
    assert_holds(text, "\nevery 6 h: 1 h, 1 failure, 0 joins\n");
    assert_holds(text, "\nevery 2 h: 1 h, 2 failures, 1 join\n");
    assert_holds(text, "\nfault-scaled       9.84    0.984   1.000");
    assert_holds(text,
                 "\noobleck             7.4    0.820   0.752  0.9800  0.970     0.02    0.01     0.00    0.00"
                 "      1      1.25\n");
    free(text);
}

static void our_policies_are_compared_with_each_of_the_others(void **state) {
    (void)state;
    char *text = sim_kit_text(show_sim_text, sim_of_two_scenarios());
    assert_holds(text, "\npawl: 1.006 x fault-scaled, 1.338 x oobleck\n");
    assert_holds(text, "\npawl: 1.032 x fault-scaled, bamboo did nothing\n");
    free(text);
}

static void why_a_policy_cannot_run_stands_beside_it(void **state) {
    (void)state;
    char *text = sim_kit_text(show_sim_text, sim_of_two_scenarios());
    assert_holds(text, "cannot run: 2 copies of 40 GB do not fit 64 GB\n");
    free(text);
}

static void numbers_that_are_none_and_bad_names_are_harmless(void **state) {
    (void)state;
    struct pawl_sim *sim = sim_of_two_scenarios();
    struct pawl_sim_row rows[6];
    memcpy(rows, sim->rows, sizeof rows);
    rows[1].scenario = rows[0].scenario = SHOW_BAD_NAME;
    rows[1].relative = NAN;
    sim->rows = rows;
    sim->warnings = (char *)"odd \x1b[31m";
    char *text = sim_kit_text(show_sim_text, sim);
    assert_holds(text, "a\"b<c>&'d");
    assert_holds(text, "warning: odd ");
    assert_lacks(text, "nan");
    assert_null(strchr(text, 0x1b));
    free(text);
}

static void every_writer_tells_that_the_device_is_full(void **state) {
    (void)state;
    pawl_code (*const writers[])(const struct pawl_sim *, FILE *,
                                 struct pawl_error *) = {show_sim_text, show_sim_json, show_sim_svg};
    for (size_t i = 0; i < 3; i++) {
        struct pawl_error e = {0};
        FILE *file = fopen("/dev/full", "w");
        assert_non_null(file);
        assert_int_equal(writers[i](sim_of_two_scenarios(), file, &e), PAWL_IO);
        assert_int_equal(e.os_errno, ENOSPC);
        assert_holds(e.text, "cannot write the simulation");
        fclose(file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_per_scenario_with_the_ratio_to_the_first_policy),
        cmocka_unit_test(our_policies_are_compared_with_each_of_the_others),
        cmocka_unit_test(why_a_policy_cannot_run_stands_beside_it),
        cmocka_unit_test(numbers_that_are_none_and_bad_names_are_harmless),
        cmocka_unit_test(every_writer_tells_that_the_device_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
