/* Fault injections: what is understood, and what is refused with which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "run/inject.h"

static void every_form_is_understood(void **state) {
    (void)state;
    struct inject i;
    assert_int_equal(inject_parse("kill:3@20", 8, 100, &i, NULL), PAWL_OK);
    assert_int_equal(i.rank, 3);
    assert_int_equal(i.step, 20);
    assert_int_equal(i.point, FAULT_AFTER_FORWARD);
    assert_int_equal(inject_parse("kill:all@0", 8, 100, &i, NULL), PAWL_OK);
    assert_int_equal(i.rank, INJECT_ALL);
    for (uint32_t p = 1; p < FAULT_COUNT; p++) {
        char text[64] = "kill:7@1:";
        strcat(text, fault_name((enum fault_point)p));
        assert_int_equal(inject_parse(text, 8, 100, &i, NULL), PAWL_OK);
        assert_int_equal(i.point, p);
    }
}

static void everything_else_is_refused_and_named(void **state) {
    (void)state;
    static const char *const wrong[] = {"",
                                        "kill",
                                        "kill:",
                                        "kill:3",
                                        "kill:3@",
                                        "kill:@3",
                                        "kill:8@1",
                                        "kill:-1@1",
                                        "kill:1@-1",
                                        "kill:1@1x",
                                        "kill:1@1:",
                                        "kill:1@1:no",
                                        "stop:1@1",
                                        "kill:all@1:reduce",
                                        "kill:1@99999999999999999999",
                                        "kill:4294967295@1",
                                        "kill:1@101"};
    for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
        struct inject i;
        struct pawl_error e = {0};
        assert_int_equal(inject_parse(wrong[k], 8, 100, &i, &e), PAWL_ARGUMENT);
        assert_non_null(strstr(e.text, "--inject"));
        assert_non_null(strstr(e.text, wrong[k]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_understood),
        cmocka_unit_test(everything_else_is_refused_and_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
