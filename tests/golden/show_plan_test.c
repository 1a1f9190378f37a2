/* What is printed of a small plan, letter by letter: show_plan_v1.json .txt .svg .csv and show_sim_v1.json
 * .svg .txt.
 *
 * The JSON is a format: its keys and their meaning may be added to, never changed (docs/formats/plan-json.md,
 * docs/formats/sim-json.md). The others are for people: when one is improved on purpose, PAWL_GOLDEN_WRITE=1
 * makes this test write all of them anew, to be looked at before they are committed. */
#include "kit/show_plans.h"
#include "kit/show_sims.h"

static char *path_of(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/tests/golden/%s", PAWL_SOURCE_DIR, name);
    return path;
}

static char *load(const char *name) {
    char *text = NULL, block[4096];
    size_t size = 0;
    FILE *file = fopen(path_of(name), "rb"), *copy = open_memstream(&text, &size);
    if (file == NULL) fail_msg("cannot open %s", path_of(name));
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;) fwrite(block, 1, n, copy);
    fclose(file);
    fclose(copy);
    return text;
}

/* Frees `had`. */
static void assert_golden(const char *name, char *had) {
    if (getenv("PAWL_GOLDEN_WRITE") != NULL) {
        FILE *file = fopen(path_of(name), "wb");
        assert_non_null(file);
        fputs(had, file);
        assert_int_equal(fclose(file), 0);
    }
    char *wanted = load(name);
    size_t line = 1;
    for (size_t i = 0; had[i] == wanted[i] && had[i] != 0; i++) line += had[i] == '\n';
    if (strcmp(had, wanted) != 0) fail_msg("%s: differs in line %zu", name, line);
    free(wanted);
    free(had);
}

static void a_plan_with_guests_prints_as_it_always_did(void **state) {
    (void)state;
    struct kit k = plan_of_guests();
    assert_golden("show_plan_v1.json", kit_text(show_plan_json, &k.plan));
    assert_golden("show_plan_v1.txt", kit_text(show_plan_text, &k.plan));
    assert_golden("show_plan_v1.svg", kit_text(show_plan_svg, &k.plan));
    kit_free(&k);
}

static void a_plan_in_a_v_prints_as_it_always_did(void **state) {
    (void)state;
    struct kit k = plan_of_a_v();
    assert_golden("show_plan_v1.csv", kit_text(show_plan_csv, &k.plan));
    kit_free(&k);
}

static void a_simulation_prints_as_it_always_did(void **state) {
    (void)state;
    assert_golden("show_sim_v1.json", sim_kit_text(show_sim_json, sim_of_two_scenarios()));
    assert_golden("show_sim_v1.txt", sim_kit_text(show_sim_text, sim_of_two_scenarios()));
    assert_golden("show_sim_v1.svg", sim_kit_text(show_sim_svg, sim_of_two_scenarios()));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_with_guests_prints_as_it_always_did),
        cmocka_unit_test(a_plan_in_a_v_prints_as_it_always_did),
        cmocka_unit_test(a_simulation_prints_as_it_always_did),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
