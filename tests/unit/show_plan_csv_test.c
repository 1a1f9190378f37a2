/* The CSV says what torch's runtime can do, and names what it cannot. */
#include "kit/show_plans.h"

static void assert_refused(const struct pawl_plan *plan, const char *why) {
    char *text = NULL;
    size_t size = 0;
    struct pawl_error e = {0};
    FILE *file = open_memstream(&text, &size);
    assert_int_equal(show_plan_csv(plan, file, &e), PAWL_UNSUPPORTED);
    fclose(file);
    assert_int_equal(size, 0);
    assert_string_equal(e.text, why);
    free(text);
}

static void a_row_per_rank_of_one_pipeline_with_chunk_kind_and_number(void **state) {
    (void)state;
    struct kit k = plan_of_a_v();
    char *text = kit_text(show_plan_csv, &k.plan);
    assert_string_equal(text, "0F0,3F0,3I0,3W0,0I0,0W0\n"
                              "1F0,2F0,2I0,1I0,2W0,1W0\n");
    free(text);
    kit_free(&k);
}

static void the_first_pipeline_stands_for_all(void **state) {
    (void)state;
    struct kit k = kit_new(PAWL_POLICY_1F1B, 2, 1, 1, 2);
    kit_worker(&k, "F0.0@0-1 B0.0@1-3 F0.1@3-4 B0.1@4-6 R@6-6 S@6-6");
    kit_worker(&k, "F1.0@0-1 B1.0@1-3 F1.1@3-4 B1.1@4-6 R@6-6 S@6-6");
    kit_plan(&k, 6, 6);
    char *text = kit_text(show_plan_csv, &k.plan);
    assert_string_equal(text, "0F0,0B0,0F1,0B1\n");
    free(text);
    kit_free(&k);
}

static void what_the_format_cannot_say_is_refused_by_name(void **state) {
    (void)state;
    struct kit guests = plan_of_guests(), helper = plan_of_a_helper(), copies = plan_of_copies();
    assert_refused(&guests.plan,
                   "csv has no re-routed work, but worker 0:1 executes micro-batch 0 of pipeline 1");
    assert_refused(&helper.plan, "csv has no shared stages, but worker 0:1 also executes chunk 0");
    assert_refused(&copies.plan, "csv has no offload, which worker 0:0 does");
    kit_free(&guests);
    kit_free(&helper);
    kit_free(&copies);
}

static void a_helper_among_several_chunks_is_known_by_the_plans_list(void **state) {
    (void)state;
    struct kit k = plan_of_a_v();
    struct plan_helper helper = {.worker = 1, .chunk = 2, .copied_from = 0};
    k.plan.helpers = &helper;
    k.plan.helper_count = 1;
    assert_refused(&k.plan, "csv has no shared stages, but worker 0:1 also executes chunk 2");
    kit_free(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_per_rank_of_one_pipeline_with_chunk_kind_and_number),
        cmocka_unit_test(the_first_pipeline_stands_for_all),
        cmocka_unit_test(a_helper_among_several_chunks_is_known_by_the_plans_list),
        cmocka_unit_test(what_the_format_cannot_say_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
