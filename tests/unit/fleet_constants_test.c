/* The constants: each with unit and source, printed and read back, changed only to what makes sense. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fleet/constants.h"

static struct fleet_constants open_defaults(void) {
    struct fleet_constants c = {0};
    assert_int_equal(fleet_constants_default(&c, NULL), PAWL_OK);
    return c;
}

static void every_constant_has_a_unit_a_source_and_a_name_of_its_own(void **state) {
    (void)state;
    struct fleet_constants c = open_defaults();
    assert_true(c.count > 50);
    for (uint32_t i = 0; i < c.count; i++) {
        assert_true(strlen(c.constant[i].unit) > 0);
        assert_true(strlen(c.constant[i].source) > 5);
        assert_ptr_equal(fleet_constant_find(&c, c.constant[i].policy, c.constant[i].name), &c.constant[i]);
    }
    fleet_constants_close(&c);
}

static char *print(const struct fleet_constants *c) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(fleet_constants_print(c, out, NULL), PAWL_OK);
    fclose(out);
    return text;
}

static void what_is_printed_reads_back_equal(void **state) {
    (void)state;
    struct fleet_constants a = open_defaults(), b = open_defaults();
    for (uint32_t i = 0; i < a.count; i++)
        if (strcmp(a.constant[i].name + strlen(a.constant[i].name) - 2, "_s") == 0)
            a.constant[i].value = 0.1 * (i + 1);
    char *text = print(&a);
    struct pawl_error e = {0};
    if (fleet_constants_parse(&b, text, strlen(text), "stops.yaml", &e) != PAWL_OK) fail_msg("%s", e.text);
    for (uint32_t i = 0; i < a.count; i++)
        if (a.constant[i].value != b.constant[i].value)
            fail_msg("%s.%s is %.17g, wanted %.17g", a.constant[i].policy, a.constant[i].name,
                     b.constant[i].value, a.constant[i].value);
    free(text);
    fleet_constants_close(&a);
    fleet_constants_close(&b);
}

static void numbers_are_printed_as_people_write_them(void **state) {
    (void)state;
    struct fleet_constants c = open_defaults();
    char *text = print(&c);
    static const char *const wanted[] = {"rendezvous_s: 30 #", "checkpoint_every_s: 600 #",
                                         "price_per_hour: 3.06 #", "storage_bps: 1000000000 #",
                                         "min_gain: 0.02 #"};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (strstr(text, wanted[i]) == NULL) fail_msg("no \"%s\" in:\n%s", wanted[i], text);
    if (strstr(text, "e+") != NULL) fail_msg("an exponent in:\n%s", text);
    free(text);
    fleet_constants_close(&c);
}

static void a_file_changes_what_it_names_alone(void **state) {
    (void)state;
    struct fleet_constants c = open_defaults();
    static const char text[] = "# mine\noobleck:\n  detect_s: 7\n  rendezvous_s: 1e2 # slow\n";
    assert_int_equal(fleet_constants_parse(&c, text, strlen(text), "f", NULL), PAWL_OK);
    assert_true(fleet_constant(&c, "oobleck", "detect_s") == 7);
    assert_true(fleet_constant(&c, "oobleck", "rendezvous_s") == 100);
    assert_true(fleet_constant(&c, "recycle", "detect_s") == 5);
    assert_string_equal(fleet_constant_find(&c, "oobleck", "detect_s")->source, "as given");
    assert_int_equal(fleet_constants_parse(&c, "", 0, "f", NULL), PAWL_OK);
    assert_int_equal(fleet_constants_parse(&c, "# nothing\n", 10, "f", NULL), PAWL_OK);
    fleet_constants_close(&c);
}

static void refuse_file(const char *text, const char *why) {
    struct fleet_constants c = open_defaults();
    struct pawl_error e = {0};
    if (fleet_constants_parse(&c, text, strlen(text), "f.yaml", &e) != PAWL_FORMAT)
        fail_msg("taken: %s", text);
    if (strstr(e.text, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", e.text, why);
    fleet_constants_close(&c);
}

static void a_bad_file_is_refused_with_its_place(void **state) {
    (void)state;
    refuse_file("oobleck:\n  detect_s: fast\n", "f.yaml:2:13: oobleck.detect_s: \"fast\" is not a number");
    refuse_file("oobleck:\n  detect_s: -1\n", "f.yaml:2:13: oobleck.detect_s: -1 must not be negative");
    refuse_file("oobleck:\n  detect: 1\n", "oobleck has no constant \"detect\": it has detect_s");
    refuse_file("ooblek:\n  detect_s: 1\n", "there is no policy \"ooblek\"");
    refuse_file("oobleck: 5\n", "f.yaml:1:10: a policy needs its constants below it");
    refuse_file("oobleck:\n  detect_s: [1, 2]\n", "f.yaml:2:13: oobleck.detect_s: wanted one number");
    refuse_file("oobleck:\n  detect_s: 1\n  detect_s: 2\n", "f.yaml:3:13: detect_s is there twice");
    refuse_file("oobleck:\n  detect_s: &x 1\n", "f.yaml:2:");
    refuse_file("oobleck:\n  detect_s: 1\noobleck:\n  detect_s: 1\n", "f.yaml:4:3: oobleck is there twice");
    refuse_file("- 5\n", "f.yaml:1:1: wanted policies");
    refuse_file("oobleck:\n\tdetect_s: 1\n", "not YAML");
    refuse_file("oobleck:\n  detect_s: 1\n---\nbamboo:\n  pause_s: 1\n", "a second document");
    refuse_file("oobleck: {detect_s: 1", "not YAML");
}

static void refuse_set(const char *assignment, const char *why) {
    struct fleet_constants c = open_defaults();
    struct pawl_error e = {0};
    if (fleet_constants_set(&c, assignment, &e) != PAWL_ARGUMENT) fail_msg("taken: %s", assignment);
    if (strstr(e.text, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", e.text, why);
    fleet_constants_close(&c);
}

static void an_assignment_changes_one_constant_to_what_makes_sense(void **state) {
    (void)state;
    struct fleet_constants c = open_defaults();
    assert_int_equal(fleet_constants_set(&c, "bamboo.depth=2", NULL), PAWL_OK);
    assert_true(fleet_constant(&c, "bamboo", "depth") == 2);
    fleet_constants_close(&c);
    refuse_set("bamboo.depth", "wanted policy.constant=value");
    refuse_set("depth=2", "wanted policy.constant=value");
    refuse_set("bamboo=2.5", "wanted policy.constant=value");
    refuse_set("bamboo.depth=", "is not a number");
    refuse_set("bamboo.depth=2x", "\"2x\" is not a number");
    refuse_set("bamboo.depth=nan", "is not a number");
    refuse_set("bamboo.depth=0x2", "is not a number");
    refuse_set("bamboo.depth=1e999", "is not a number");
    refuse_set("bamboo.depth=0.5", "must be from 1 to 16");
    refuse_set("bamboo.slow_after_loss=0.5", "must be 1 or more");
    refuse_set("oobleck.lost_iterations=2", "must be from 0 to 1");
    refuse_set("oobleck.detect_s=1e16", "too large");
    refuse_set("recycle.ceiling=2", "must be 0 or 1");
    refuse_set("common.layers_per_stage=1.5", "must be a whole number");
    refuse_set("common.storage_bps=0", "must be 1 or more");
    refuse_set("pawl.checkpoint_in_flight=0", "must be 1 or more");
    refuse_set("gpipe.detect_s=1", "there is no policy \"gpipe\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_constant_has_a_unit_a_source_and_a_name_of_its_own),
        cmocka_unit_test(what_is_printed_reads_back_equal),
        cmocka_unit_test(numbers_are_printed_as_people_write_them),
        cmocka_unit_test(a_file_changes_what_it_names_alone),
        cmocka_unit_test(a_bad_file_is_refused_with_its_place),
        cmocka_unit_test(an_assignment_changes_one_constant_to_what_makes_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
