/* The chart of a plan is well-formed, tells kinds and guests apart without colour, and holds itself back. */
#include "kit/show_plans.h"
#include "kit/xml_kit.h"

#include <math.h>

static uint64_t count_of(const char *text, const char *part) {
    uint64_t count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) count++;
    return count;
}

static void every_plan_gives_well_formed_xml(void **state) {
    (void)state;
    struct kit plans[] = {plan_of_guests(), plan_of_a_helper(), plan_of_copies(), plan_of_a_v()};
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++) {
        char *text = kit_text(show_plan_svg, &plans[i].plan);
        assert_true(xml_check(text) > 40);
        assert_lacks(text, "<script");
        assert_holds(text, "prefers-color-scheme:dark");
        free(text);
        kit_free(&plans[i]);
    }
}

static void one_worker_is_not_called_workers(void **state) {
    (void)state;
    struct kit k = kit_new(PAWL_POLICY_1F1B, 1, 1, 1, 1);
    kit_worker(&k, "F0.0@0-1 B0.0@1-3 R@3-3 S@3-3");
    kit_plan(&k, 3, 3);
    char *text = kit_text(show_plan_svg, &k.plan);
    assert_holds(text, ", 1 of 1 worker lives</desc>");
    assert_holds(text, "1 of 1 worker lives</text>");
    free(text);
    kit_free(&k);
}

static void every_instruction_that_takes_time_has_a_tooltip(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    char *text = kit_text(show_plan_svg, &k.plan);
    assert_holds(text, "<title>forward of 1:0, 3\xe2\x80\x93"
                       "4</title>");
    assert_int_equal(count_of(text, "<title>forward of"), 12 - 2 * 0);
    assert_int_equal(count_of(text, "<title>step,"), 5);
    assert_int_equal(count_of(text, "<title>reduce"), 0); /* takes none here */
    free(text);
    kit_free(&k);
}

static void guests_have_an_outline_and_their_home(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    char *text = kit_text(show_plan_svg, &k.plan);
    assert_int_equal(count_of(text, "<rect class=\"F g\""), 2 + 1); /* and the legend */
    assert_int_equal(count_of(text, "<rect class=\"W g\""), 2);
    assert_holds(text, ">F1:0</text>");
    assert_holds(text, ">W1:1</text>");
    assert_holds(text, "guest (home : number)");
    free(text);
    kit_free(&k);
}

static void kinds_differ_by_hatch_and_letter(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    char *text = kit_text(show_plan_svg, &k.plan);
    assert_holds(text, ".I{fill:url(#hI)}.W{fill:url(#hW)}.B{fill:url(#hB)}");
    assert_holds(text, ">I0</text>");
    assert_holds(text, ">W1</text>");
    free(text);
    kit_free(&k);
}

static void a_dead_worker_is_a_struck_row_and_named_in_the_head(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    char *text = kit_text(show_plan_svg, &k.plan);
    assert_holds(text, ">dead</text>");
    assert_holds(text, "nobody plays 1:1");
    assert_int_equal(count_of(text, "class=\"wi\""), 5 + 1); /* live rows, and the legend */
    free(text);
    kit_free(&k);
}

static void shared_work_is_dashed_and_chunks_of_a_v_are_paler(void **state) {
    (void)state;
    struct kit helper = plan_of_a_helper(), v = plan_of_a_v();
    char *text = kit_text(show_plan_svg, &helper.plan);
    assert_int_equal(count_of(text, "<rect class=\"F h\""), 1 + 1);
    assert_int_equal(count_of(text, "<rect class=\"B h\""), 1);
    assert_holds(text, "0:1 also holds stage 0");
    free(text);
    text = kit_text(show_plan_svg, &v.plan);
    assert_int_equal(count_of(text, " h\""), 0);
    assert_int_equal(count_of(text, "<rect class=\"I k\""), 2);
    free(text);
    kit_free(&helper);
    kit_free(&v);
}

static void copies_are_bars_beside_the_work(void **state) {
    (void)state;
    struct kit k = plan_of_copies();
    char *text = kit_text(show_plan_svg, &k.plan);
    assert_holds(text, "<title>offload of 0:2, 3\xe2\x80\x93"
                       "3.5</title>");
    assert_holds(text, "<title>load of 0:2, 5.5\xe2\x80\x93"
                       "6</title>");
    assert_holds(text, "<title>recompute of 0:1, 5.5\xe2\x80\x93"
                       "6.5</title>");
    assert_holds(text, "<title>reduce, 10.5\xe2\x80\x93"
                       "11</title>");
    free(text);
    kit_free(&k);
}

static void the_bound_has_a_bracket_of_its_own_only_where_it_is_not_reached(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    char *text = kit_text(show_plan_svg, &k.plan);
    assert_holds(text, ">period 9 = bound</text>");
    assert_int_equal(count_of(text, "class=\"bo\""), 0);
    free(text);
    kit_plan(&k, 9, 8);
    text = kit_text(show_plan_svg, &k.plan);
    assert_holds(text, ">period 9</text>");
    assert_holds(text, ">bound 8</text>");
    assert_int_equal(count_of(text, "class=\"bo\""), 3 + 2); /* a bracket, and a mark at either stage */
    free(text);
    kit_free(&k);
}

/* Boxes of a row: the numbers of its rects of work, by their y. */
static void boxes_of_one_row_do_not_overlap(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    char *text = kit_text(show_plan_svg, &k.plan);
    double right = 0, row = -1;
    uint64_t boxes = 0;
    for (const char *at = text; (at = strstr(at, "<rect class=\"")) != NULL; at++) {
        char classes[16];
        double x, y, width;
        if (sscanf(at, "<rect class=\"%15[^\"]\" x=\"%lf\" y=\"%lf\" width=\"%lf\"", classes, &x, &y,
                   &width) != 4)
            continue;
        if (strchr("FIW", classes[0]) == NULL || strstr(at, "<title>") == NULL) continue;
        if (fabs(y - row) > 2) right = 0;
        if (x < right) fail_msg("box at %.2f begins before %.2f in row %.2f", x, right, y);
        right = x + width;
        row = y;
        boxes++;
    }
    assert_true(boxes >= 36);
    free(text);
    kit_free(&k);
}

static void what_is_too_large_is_drawn_as_a_row_per_stage(void **state) {
    (void)state;
    enum { PIPELINES = 600, MICROBATCHES = 2 };
    struct kit k = kit_new(PAWL_POLICY_1F1B, PIPELINES, 2, 2, MICROBATCHES);
    for (uint32_t w = 0; w < PIPELINES * 2; w++) {
        char line[200];
        snprintf(line, sizeof line, "F%u.0@%u-%u B%u.0@%u-%u R@7-7 S@7-7", w / 2, w % 2, w % 2 + 1, w / 2,
                 4 - w % 2, 6 - w % 2);
        kit_worker(&k, line);
    }
    kit_plan(&k, 7, 7);
    char *text = kit_text(show_plan_svg, &k.plan);
    assert_in_range(xml_check(text), 30, 200);
    assert_holds(text, "4800 instructions: too many to draw each");
    assert_int_equal(count_of(text, "<path class=\"F\""), 2);
    assert_int_equal(count_of(text, "<path class=\"B\""), 2);
    assert_holds(text, ">600 live</text>");
    double row = 0, top = 0; /* all of the first stage begin with forwards: they fill its row */
    assert_int_equal(
        sscanf(strstr(text, "<rect class=\"wi\""), "<rect class=\"wi\" x=\"%*f\" y=\"%lf\"", &row), 1);
    assert_int_equal(sscanf(strstr(text, "<path class=\"F\""), "<path class=\"F\" d=\"M %*f %lf", &top), 1);
    assert_true(row == top);
    free(text);
    kit_free(&k);
}

static void foreign_names_stay_text(void **state) {
    (void)state;
    struct kit k = plan_of_copies();
    k.plan.summary.unit = SHOW_BAD_NAME;
    char *text = kit_text(show_plan_svg, &k.plan);
    xml_check(text);
    assert_holds(text, "a&quot;b&lt;c&gt;&amp;&#39;d");
    free(text);
    kit_free(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_gives_well_formed_xml),
        cmocka_unit_test(one_worker_is_not_called_workers),
        cmocka_unit_test(every_instruction_that_takes_time_has_a_tooltip),
        cmocka_unit_test(guests_have_an_outline_and_their_home),
        cmocka_unit_test(kinds_differ_by_hatch_and_letter),
        cmocka_unit_test(a_dead_worker_is_a_struck_row_and_named_in_the_head),
        cmocka_unit_test(shared_work_is_dashed_and_chunks_of_a_v_are_paler),
        cmocka_unit_test(copies_are_bars_beside_the_work),
        cmocka_unit_test(the_bound_has_a_bracket_of_its_own_only_where_it_is_not_reached),
        cmocka_unit_test(boxes_of_one_row_do_not_overlap),
        cmocka_unit_test(what_is_too_large_is_drawn_as_a_row_per_stage),
        cmocka_unit_test(foreign_names_stay_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
