/* The texts of include/pawl/train.h are those of the modules behind it, terminated and the caller's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pawl/train.h>

static void the_report_is_one_json_object_and_a_newline(void **state) {
    (void)state;
    struct pawl_train_report r = {.final_step = 12};
    char *text = pawl_train_report_json(&r);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"final_step\":12,"));
    assert_non_null(strstr(text, "\"resumed_from\":null,"));
    assert_string_equal(text + strlen(text) - 2, "}\n");
    free(text);
}

static void the_help_of_the_spec_names_its_fields(void **state) {
    (void)state;
    char *text = pawl_train_spec_help();
    assert_non_null(text);
    assert_non_null(strstr(text, "`parallel.stages`: a whole number from 1 to 1024"));
    free(text);
}

static void the_folder_of_a_run_follows_the_overrides(void **state) {
    (void)state;
    char path[] = "/tmp/pawl-api-XXXXXX", set[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    dprintf(fd,
            "run: {dir: /tmp/none}\nmodel: {layers: 1, heads: 1, width: 4, context: 4, vocabulary: 256}\n");
    for (int i = 0; i < 64; i++) dprintf(fd, "# text to train on\n");
    close(fd);
    snprintf(set, sizeof set, "data.path=%s", path);
    const char *sets[] = {set, "run.dir=/tmp/other"};
    struct pawl_train_options o = {.spec_path = path, .sets = sets, .set_count = 2};
    struct pawl_error e = {0};
    char *dir = pawl_train_run_dir(&o, &e);
    if (dir == NULL) fail_msg("%s", e.text);
    assert_string_equal(dir, "/tmp/other");
    free(dir);
    o.spec_path = "/proc/nonexistent.yaml";
    assert_null(pawl_train_run_dir(&o, &e));
    assert_int_equal(e.code, PAWL_NOT_FOUND);
    unlink(path);
}

static void the_version_has_three_numbers(void **state) {
    (void)state;
    unsigned a, b, c;
    char rest;
    assert_int_equal(sscanf(pawl_version(), "%u.%u.%u%c", &a, &b, &c, &rest), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_report_is_one_json_object_and_a_newline),
        cmocka_unit_test(the_help_of_the_spec_names_its_fields),
        cmocka_unit_test(the_folder_of_a_run_follows_the_overrides),
        cmocka_unit_test(the_version_has_three_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
