/* Files that appear whole or not at all, in a folder of the file system. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inspect/inspect.h"

static char folder[64], path[128];

static int begin(void **state) {
    (void)state;
    strcpy(folder, "/tmp/pawl-output-XXXXXX");
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(path, sizeof path, "%s/x", folder);
    return 0;
}

static int end(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails where a temporary file is left */
}

static void put(const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void expect(const char *wanted) {
    char text[32] = "";
    FILE *f = fopen(path, "r");
    if (wanted == NULL) {
        assert_null(f);
        return;
    }
    assert_non_null(f);
    size_t size = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[size] = 0;
    assert_string_equal(text, wanted);
}

static void write_new(struct inspect_output *o, bool force) {
    struct pawl_error e = {0};
    pawl_code code = inspect_output_open(o, path, force, &e);
    if (code == PAWL_OK) code = inspect_output_write(o, "new", 3, &e);
    if (code == PAWL_OK) code = inspect_output_finish(o, &e);
    if (code != PAWL_OK) fail_msg("%s", e.text);
}

static void a_file_has_its_name_only_when_it_is_whole(void **state) {
    (void)state;
    struct inspect_output o;
    write_new(&o, false);
    expect(NULL);
    assert_int_equal(inspect_output_publish(&o, NULL), PAWL_OK);
    expect("new");
    inspect_output_close(&o);
    expect("new");
}

static void what_is_not_published_leaves_nothing(void **state) {
    (void)state;
    struct inspect_output o;
    write_new(&o, false);
    inspect_output_close(&o);
    expect(NULL);
}

static void a_file_that_appears_meanwhile_is_not_replaced(void **state) {
    (void)state;
    struct inspect_output o;
    struct pawl_error e = {0};
    write_new(&o, false);
    put("theirs");
    assert_int_equal(inspect_output_publish(&o, &e), PAWL_BUSY);
    assert_non_null(strstr(e.text, path));
    inspect_output_close(&o);
    expect("theirs");
}

static void force_replaces_and_nothing_else_does(void **state) {
    (void)state;
    struct inspect_output o;
    put("old");
    assert_int_equal(inspect_output_open(&o, path, false, NULL), PAWL_BUSY);
    inspect_output_close(&o);
    write_new(&o, true);
    expect("old");
    assert_int_equal(inspect_output_publish(&o, NULL), PAWL_OK);
    inspect_output_close(&o);
    expect("new");
}

static void a_link_is_not_followed(void **state) {
    (void)state;
    struct inspect_output o;
    assert_int_equal(symlink("/proc/nonexistent", path), 0);
    for (int force = 0; force < 2; force++) {
        assert_int_equal(inspect_output_open(&o, path, force, NULL), PAWL_ARGUMENT);
        inspect_output_close(&o);
    }
}

static void a_link_that_appears_meanwhile_is_not_replaced_even_by_force(void **state) {
    (void)state;
    struct inspect_output o;
    write_new(&o, true);
    assert_int_equal(symlink("/proc/nonexistent", path), 0);
    assert_int_equal(inspect_output_publish(&o, NULL), PAWL_ARGUMENT);
    inspect_output_close(&o);
    char target[32] = "";
    assert_true(readlink(path, target, sizeof target - 1) > 0);
    assert_string_equal(target, "/proc/nonexistent");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_has_its_name_only_when_it_is_whole, begin, end),
        cmocka_unit_test_setup_teardown(what_is_not_published_leaves_nothing, begin, end),
        cmocka_unit_test_setup_teardown(a_file_that_appears_meanwhile_is_not_replaced, begin, end),
        cmocka_unit_test_setup_teardown(force_replaces_and_nothing_else_does, begin, end),
        cmocka_unit_test_setup_teardown(a_link_is_not_followed, begin, end),
        cmocka_unit_test_setup_teardown(a_link_that_appears_meanwhile_is_not_replaced_even_by_force, begin,
                                        end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
