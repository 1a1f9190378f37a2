/* The chart of a simulation: well-formed, a line per policy that ran, names that do not overlap. */
#include "kit/show_sims.h"
#include "kit/show_plans.h"
#include "kit/xml_kit.h"

static uint64_t count_of(const char *text, const char *part) {
    uint64_t count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) count++;
    return count;
}

static void a_panel_per_scenario_and_a_line_per_policy_that_ran(void **state) {
    (void)state;
    char *text = sim_kit_text(show_sim_svg, sim_of_two_scenarios());
    xml_check(text);
    assert_holds(text, "prefers-color-scheme:dark");
    assert_int_equal(count_of(text, "<title>live workers</title>"), 2);
    assert_int_equal(count_of(text, ": goodput "), 2 * 5);
    assert_holds(text, ">every 6 h <tspan");
    assert_holds(text, ">every 2 h <tspan");
    assert_holds(text, ">bamboo did nothing (cannot run: 2 copies of 40 GB do not fit 64 GB)</text>");
    free(text);
}

static void a_policy_keeps_its_dashes_in_every_panel(void **state) {
    (void)state;
    char *text = sim_kit_text(show_sim_svg, sim_of_two_scenarios());
    /* two lines and a sample beside its name in either panel; oobleck in the first alone */
    assert_int_equal(count_of(text, "class=\"ln c0\""), 6); /* pawl */
    assert_int_equal(count_of(text, "class=\"ln c1\""), 0); /* recycle, which is not there */
    assert_int_equal(count_of(text, "class=\"ln c2\""), 6);
    assert_int_equal(count_of(text, "class=\"ln c3\""), 3);
    free(text);
}

static void names_stand_apart_and_inside_the_panel(void **state) {
    (void)state;
    enum { ROWS = 24 };
    struct pawl_sim *sim = sim_of_two_scenarios();
    struct pawl_sim_row rows[ROWS];
    struct pawl_sim_sample *samples[ROWS];
    uint32_t counts[ROWS];
    char names[ROWS][8];
    for (uint32_t i = 0; i < ROWS; i++) {
        snprintf(names[i], sizeof names[i], "p%u", i);
        rows[i] = sim->rows[0];
        rows[i].policy = names[i];
        samples[i] = sim->samples[i % 2 == 0 ? 0 : 2]; /* all end within a pixel or two */
        counts[i] = sim->sample_counts[i % 2 == 0 ? 0 : 2];
    }
    sim->rows = rows;
    sim->samples = samples;
    sim->sample_counts = counts;
    sim->row_count = ROWS;
    char *text = sim_kit_text(show_sim_svg, sim);
    double last = 0, height = 0, y;
    uint64_t labels = 0;
    xml_check(text);
    assert_int_equal(sscanf(text + strcspn(text, "\n"),
                            "\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%*f\" "
                            "height=\"%lf\"",
                            &height),
                     1);
    for (const char *at = text; (at = strstr(at, "<text x=\"864\" y=\"")) != NULL; at++) {
        assert_int_equal(sscanf(at, "<text x=\"864\" y=\"%lf\"", &y), 1);
        if (y - last < 15) fail_msg("a name at %.1f after one at %.1f", y, last);
        assert_true(y < height);
        last = y;
        labels++;
    }
    assert_int_equal(labels, ROWS);
    free(text);
}

static void no_rows_and_no_time_are_still_a_drawing(void **state) {
    (void)state;
    struct pawl_sim *sim = sim_of_two_scenarios();
    struct pawl_sim_row rows[6];
    memcpy(rows, sim->rows, sizeof rows);
    rows[0].seconds = 0;
    sim->rows = rows;
    char *text = sim_kit_text(show_sim_svg, sim);
    xml_check(text);
    assert_lacks(text, "nan");
    free(text);
    sim->row_count = 0;
    text = sim_kit_text(show_sim_svg, sim);
    xml_check(text);
    free(text);
}

static void foreign_names_stay_text(void **state) {
    (void)state;
    struct pawl_sim *sim = sim_of_two_scenarios();
    struct pawl_sim_row rows[6];
    memcpy(rows, sim->rows, sizeof rows);
    for (int i = 0; i < 6; i++) rows[i].scenario = rows[i].policy = rows[i].note = SHOW_BAD_NAME;
    sim->rows = rows;
    char *text = sim_kit_text(show_sim_svg, sim);
    xml_check(text);
    assert_holds(text, "a&quot;b&lt;c&gt;&amp;&#39;d");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_panel_per_scenario_and_a_line_per_policy_that_ran),
        cmocka_unit_test(a_policy_keeps_its_dashes_in_every_panel),
        cmocka_unit_test(names_stand_apart_and_inside_the_panel),
        cmocka_unit_test(no_rows_and_no_time_are_still_a_drawing),
        cmocka_unit_test(foreign_names_stay_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
