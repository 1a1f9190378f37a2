/* What people read of a plan: the answers first, then a drawing or a table that fits. */
#include "kit/show_plans.h"

static void the_summary_answers_what_people_ask(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    char *text = kit_text(show_plan_text, &k.plan);
    assert_holds(text, "recycle: 3 pipelines x 2 stages x 2 micro-batches, 5 of 6 workers live\n");
    assert_holds(text, "\nempty      1:1  (pipeline:stage)\n");
    assert_holds(text, "\nperiod     9, steps staggered (one iteration alone 10)\n");
    assert_holds(text, "\nbound      9, reached: no plan is shorter\n");
    assert_holds(text, "\nno failure 9: the failures cost nothing, and 16.7 % of the workers are missing\n");
    assert_holds(text, "\nmemory     at most 3 micro-batches at 0:1\n");
    assert_holds(
        text, "\nwork       46 instructions, 2 micro-batches as guests, workers busy 80.0 % of the period\n");
    assert_holds(text, "\nplanned    in 1.25 ms by list, of it 0.25 ms checking\n");
    free(text);
    kit_free(&k);
}

static void pipelines_that_are_not_full_say_how_many_there_are(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    k.plan.ir->total--;
    char *text = kit_text(show_plan_text, &k.plan);
    assert_holds(text, "recycle: 3 pipelines x 2 stages x 2 micro-batches (5 in all), 5 of 6 workers live\n");
    free(text);
    kit_free(&k);
}

static void a_gap_and_a_loss_are_given_in_percent(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    k.plan.summary.fault_free = 7.5;
    kit_plan(&k, 9, 8);
    char *text = kit_text(show_plan_text, &k.plan);
    assert_holds(text, "\nbound      8, the plan is at most 12.5 % longer than need be\n");
    assert_holds(text, "\nno failure 7.5: the failures cost 20.0 % of the time");
    free(text);
    kit_free(&k);
}

static void workers_are_drawn_in_the_order_of_stages_and_guests_in_small_letters(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    char *text = kit_text(show_plan_text, &k.plan);
    assert_holds(text, "\n0:0  F0--F1--....I0--W0--........I1--W1--\n"
                       "1:0  F0--F1--............I0--I1--W0--W1--\n"
                       "2:0  F0--F1--....I0--W0--........I1--W1--\n"
                       "0:1      F0--I0--f0--i0--F1--I1--W0--w0--W1--\n"
                       "1:1  empty\n"
                       "2:1      F0--I0--f1--i1--F1--I1--W0--w1--W1--\n"
                       "4 columns are 1: ");
    free(text);
    kit_free(&k);
}

static void where_numbers_have_no_room_letters_stand_alone(void **state) {
    (void)state;
    struct kit k = kit_new(PAWL_POLICY_1F1B, 1, 1, 1, 3);
    kit_worker(&k, "F0.0@0-1 F0.1@1-2 B0.0@60-62 B0.1@62-64 F0.2@64-65 B0.2@65-68 R@68-68 S@68-68");
    kit_plan(&k, 68, 60);
    char *text = kit_text(show_plan_text, &k.plan);
    assert_holds(text, "1f1b: 1 pipeline x 1 stage x 3 micro-batches, 1 of 1 worker lives\n");
    assert_holds(
        text, "\n0:0  FF..........................................................B0B1FB2-\na column is 1: ");
    free(text);
    kit_free(&k);
}

static void a_drawing_that_does_not_fit_becomes_a_table_of_stages(void **state) {
    (void)state;
    struct kit k = kit_new(PAWL_POLICY_1F1B, 1, 1, 1, 2);
    kit_worker(&k, "F0.0@0-1 B0.0@500-502 F0.1@502-503 B0.1@503-505 R@505-505 S@505-505");
    kit_plan(&k, 505, 500);
    char *text = kit_text(show_plan_text, &k.plan);
    assert_holds(text, "stage  live forwards each");
    assert_holds(text, "\n    0     1      2..2           0");
    assert_lacks(text, "columns are");
    free(text);
    kit_free(&k);
}

static void moves_and_shared_stages_are_told_with_what_they_copy(void **state) {
    (void)state;
    struct kit k = plan_of_a_helper();
    struct plan_move move = {.from = 1, .to = 0};
    k.plan.moves = &move;
    k.plan.move_count = 1;
    char *text = kit_text(show_plan_text, &k.plan);
    assert_holds(text, "\nmoves      0:1 becomes 0:0; copies 1.5 GB\n");
    assert_holds(text, "\nshared     0:1 also holds stage 0; copies 1.5 GB\n");
    assert_holds(text, ", 1 for another stage,");
    assert_holds(text, "\nperiod     5.5, one step for all\n");
    free(text);
    kit_free(&k);
}

static void memory_in_bytes_with_its_limit_and_what_it_forced(void **state) {
    (void)state;
    struct kit k = plan_of_copies();
    k.plan.costs->limit = calloc(1, sizeof(uint64_t));
    k.plan.costs->limit[0] = 3000000000;
    char *text = kit_text(show_plan_text, &k.plan);
    assert_holds(text,
                 "\nmemory     at most 2.5 GB at 0:0, where the limit is 3 GB; 1 recomputed; 1 offloaded\n");
    assert_holds(text, "\nperiod     12 ms, ");
    free(text);
    kit_free(&k);
}

static void many_dead_are_counted_after_the_first(void **state) {
    (void)state;
    struct kit k = kit_new(PAWL_POLICY_RECYCLE, 20, 1, 1, 1);
    kit_worker(&k, "F0.0@0-1 B0.0@1-3 R@3-3 S@3-3");
    for (int i = 1; i < 20; i++) kit_worker(&k, NULL);
    kit_plan(&k, 3, 3);
    char *text = kit_text(show_plan_text, &k.plan);
    assert_holds(
        text,
        "\nempty      1:0 2:0 3:0 4:0 5:0 6:0 7:0 8:0 9:0 10:0 11:0 12:0 and 7 more  (pipeline:stage)\n");
    free(text);
    kit_free(&k);
}

static void warnings_come_line_by_line_and_harmless(void **state) {
    (void)state;
    struct kit k = plan_of_copies();
    k.plan.warnings = (char *)"first\nsecond " SHOW_BAD_NAME;
    char *text = kit_text(show_plan_text, &k.plan);
    assert_holds(text, ", 1 of 1 worker lives\n");
    assert_holds(text, "\nwarning    first\nwarning    second a\"b<c>&'d");
    assert_null(strchr(text, 0x1b));
    free(text);
    kit_free(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_summary_answers_what_people_ask),
        cmocka_unit_test(pipelines_that_are_not_full_say_how_many_there_are),
        cmocka_unit_test(a_gap_and_a_loss_are_given_in_percent),
        cmocka_unit_test(workers_are_drawn_in_the_order_of_stages_and_guests_in_small_letters),
        cmocka_unit_test(where_numbers_have_no_room_letters_stand_alone),
        cmocka_unit_test(a_drawing_that_does_not_fit_becomes_a_table_of_stages),
        cmocka_unit_test(moves_and_shared_stages_are_told_with_what_they_copy),
        cmocka_unit_test(memory_in_bytes_with_its_limit_and_what_it_forced),
        cmocka_unit_test(many_dead_are_counted_after_the_first),
        cmocka_unit_test(warnings_come_line_by_line_and_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
