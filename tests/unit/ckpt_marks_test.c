/* Which complete step a resume takes: marks by their names, and the rule that reads them. */
#include "ckpt/marks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static pawl_code add(struct ckpt_marks *m, const char *folder, const char *name, struct pawl_error *why) {
    return ckpt_marks_add_name(m, "runs/a", folder, name, why);
}

static void only_names_that_pawl_writes_are_marks(void **unused) {
    (void)unused;
    static const char *const no_pair[] = {"12",   "12-",   "012-3", "12-3x", "-1-3", "12-03", "+1-3",
                                          " 1-3", "12 -3", "0-3",   "12-0",  ".",    "..",    "12-3.tmp"};
    static const char *const no_start[] = {"0", "4x", "04", "+4", " 4", "-4", "4-1", "", "4.resume"};
    struct ckpt_marks m = {0};
    struct pawl_error why = {0};
    for (size_t i = 0; i < sizeof no_pair / sizeof no_pair[0]; i++)
        assert_int_equal(add(&m, CKPT_MARK_BAD, no_pair[i], &why), PAWL_OK);
    for (size_t i = 0; i < sizeof no_start / sizeof no_start[0]; i++)
        assert_int_equal(add(&m, CKPT_MARK_SCRATCH, no_start[i], &why), PAWL_OK);
    assert_int_equal(m.count, 0);
    assert_int_equal(add(&m, CKPT_MARK_BAD, "12-3", &why), PAWL_OK);
    assert_int_equal(add(&m, CKPT_MARK_SCRATCH, "4", &why), PAWL_OK);
    assert_int_equal(m.count, 2);
    assert_true(ckpt_marks_bad(&m, 12, 3));
    assert_false(ckpt_marks_bad(&m, 3, 12));
    assert_false(ckpt_marks_bad(&m, 0, 4));
    ckpt_marks_close(&m);
}

static void a_number_that_no_start_has_is_named_not_believed(void **unused) {
    (void)unused;
    struct ckpt_marks m = {0};
    struct pawl_error why = {0};
    assert_int_equal(add(&m, CKPT_MARK_SCRATCH, "1000000000000000000", &why), PAWL_OK);
    assert_int_equal(add(&m, CKPT_MARK_SCRATCH, "1000000000000000001", &why), PAWL_CORRUPT);
    assert_non_null(strstr(why.text, "runs/a/scratch/1000000000000000001"));
    assert_int_equal(add(&m, CKPT_MARK_BAD, "7-18446744073709551615", &why), PAWL_CORRUPT);
    assert_non_null(strstr(why.text, "runs/a/bad/7-18446744073709551615"));
    assert_int_equal(m.count, 1);
    ckpt_marks_close(&m);
}

static struct ckpt_candidate at(const void *context, uint32_t index) {
    return ((const struct ckpt_candidate *)context)[index];
}

/* Newest first, as a scan lists them: by step. */
static const struct ckpt_candidate steps[] = {
    {50, 1, true}, {40, 2, false}, {40, 1, true}, {8, 3, true}, {5, 3, true}, {3, 4, false},
};
#define STEPS ((uint32_t)(sizeof steps / sizeof steps[0]))

static uint32_t newest(const struct ckpt_marks *m, uint64_t most) {
    return ckpt_newest(m, STEPS, at, steps, most);
}

static void the_newest_complete_step_that_is_not_bad_is_taken(void **unused) {
    (void)unused;
    struct ckpt_marks m = {0};
    assert_int_equal(newest(&m, UINT64_MAX), 0);
    assert_int_equal(newest(&m, 49), 2); /* step 40 of start 2 is not complete */
    assert_int_equal(newest(&m, 4), UINT32_MAX);
    assert_int_equal(ckpt_marks_add(&m, (struct ckpt_mark){50, 1}, NULL), PAWL_OK);
    assert_int_equal(ckpt_marks_add(&m, (struct ckpt_mark){8, 1}, NULL), PAWL_OK); /* of another start */
    assert_int_equal(newest(&m, UINT64_MAX), 2);
    assert_int_equal(ckpt_marks_add(&m, (struct ckpt_mark){40, 1}, NULL), PAWL_OK);
    assert_int_equal(newest(&m, UINT64_MAX), 3);
    ckpt_marks_close(&m);
}

static void what_began_anew_comes_first_once_it_has_saved(void **unused) {
    (void)unused;
    struct ckpt_marks m = {0};
    assert_int_equal(add(&m, CKPT_MARK_SCRATCH, "3", NULL), PAWL_OK);
    assert_int_equal(newest(&m, UINT64_MAX), 3);
    assert_int_equal(newest(&m, 7), 4);
    assert_int_equal(add(&m, CKPT_MARK_SCRATCH, "4", NULL), PAWL_OK);
    assert_int_equal(newest(&m, UINT64_MAX), 3); /* start 4 has nothing complete */
    assert_int_equal(ckpt_marks_add(&m, (struct ckpt_mark){8, 3}, NULL), PAWL_OK);
    assert_int_equal(ckpt_marks_add(&m, (struct ckpt_mark){5, 3}, NULL), PAWL_OK);
    assert_int_equal(newest(&m, UINT64_MAX), 0); /* neither has start 3 then: the old steps */
    ckpt_marks_close(&m);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_names_that_pawl_writes_are_marks),
        cmocka_unit_test(a_number_that_no_start_has_is_named_not_believed),
        cmocka_unit_test(the_newest_complete_step_that_is_not_bad_is_taken),
        cmocka_unit_test(what_began_anew_comes_first_once_it_has_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
