/* Errors: the innermost cause travels, the table is whole, nothing overflows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"

static void the_cause_names_the_errno_and_what_was_done(void **state) {
    (void)state;
    struct pawl_error e = {0};
    assert_int_equal(error_set(&e, PAWL_NO_SPACE, ENOSPC, "slot-1: wanted %d bytes", 42), PAWL_NO_SPACE);
    assert_string_equal(e.text, "slot-1: wanted 42 bytes: No space left on device (ENOSPC)");
    assert_int_equal(e.os_errno, ENOSPC);
    assert_int_equal(error_wrap(&e, "save of step %d", 7), PAWL_NO_SPACE);
    assert_string_equal(e.text, "save of step 7: slot-1: wanted 42 bytes: No space left on device (ENOSPC)");
}

static void a_null_error_is_allowed(void **state) {
    (void)state;
    assert_int_equal(error_set(NULL, PAWL_IO, EIO, "x"), PAWL_IO);
    error_wrap(NULL, "y");
}

static void a_cause_longer_than_its_place_is_cut_and_terminated(void **state) {
    (void)state;
    struct pawl_error e;
    char text[2000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    error_set(&e, PAWL_IO, EIO, "%s", text);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    error_wrap(&e, "%s", text);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    error_set(&e, PAWL_IO, 0, "short");
    error_wrap(&e, "around");
    assert_string_equal(e.text, "around: short");
}

static void control_characters_are_escaped_so_that_a_cause_is_one_line(void **state) {
    (void)state;
    struct pawl_error e;
    error_set(&e, PAWL_CORRUPT, 0, "file: '%s'", "two\nlines\x1b[2J\x7f \xc3\xa9");
    assert_string_equal(e.text, "file: 'two\\nlines\\x1b[2J\\x7f \xc3\xa9'");
    error_wrap(&e, "a\tb");
    assert_string_equal(e.text, "a\\x09b: file: 'two\\nlines\\x1b[2J\\x7f \xc3\xa9'");
    char many[2 * sizeof e.text];
    memset(many, '\n', sizeof many - 1);
    many[sizeof many - 1] = 0;
    error_set(&e, PAWL_CORRUPT, 0, "%s", many);
    assert_null(strchr(e.text, '\n'));
    assert_true(strlen(e.text) > sizeof e.text / 2 && strlen(e.text) < sizeof e.text);
}

static void every_code_has_a_name_a_text_and_an_exit_code_of_its_class(void **state) {
    (void)state;
    for (int code = PAWL_OK; code <= PAWL_INTERNAL; code++) {
        assert_true(strlen(pawl_code_name((pawl_code)code)) > 1);
        assert_true(strlen(pawl_code_text((pawl_code)code)) > 1);
        assert_int_equal(pawl_code_exit((pawl_code)code) == 0, code == PAWL_OK);
        assert_int_equal(pawl_code_next((pawl_code)code) == PAWL_NEXT_NONE, code == PAWL_OK);
    }
    assert_string_equal(pawl_code_name((pawl_code)1000), "INTERNAL");
    assert_int_equal(error_code_of_errno(EDQUOT), PAWL_NO_SPACE);
    assert_int_equal(error_code_of_errno(ENOENT), PAWL_NOT_FOUND);
    assert_int_equal(error_code_of_errno(ENOMEM), PAWL_MEMORY);
    assert_int_equal(error_code_of_errno(EROFS), PAWL_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cause_names_the_errno_and_what_was_done),
        cmocka_unit_test(a_null_error_is_allowed),
        cmocka_unit_test(a_cause_longer_than_its_place_is_cut_and_terminated),
        cmocka_unit_test(control_characters_are_escaped_so_that_a_cause_is_one_line),
        cmocka_unit_test(every_code_has_a_name_a_text_and_an_exit_code_of_its_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
