/* Recorded failures: formats told apart, every bad line named, drops counted as the report says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kit/tune_kit.h"
#include "tune/trace.h"

static struct trace parse(const char *text) {
    struct trace t = {0};
    struct pawl_error e = {0};
    if (trace_parse(text, strlen(text), &t, &e) != PAWL_OK) fail_msg("%s", e.text);
    return t;
}

static void refuse(const char *text, const char *line) {
    struct trace t = {0};
    struct pawl_error e = {0};
    if (trace_parse(text, strlen(text), &t, &e) != PAWL_FORMAT) fail_msg("taken: %s", text);
    if (strstr(e.text, line) == NULL) fail_msg("\"%s\" does not name %s", e.text, line);
    assert_null(t.samples);
}

static void expect_drops(const char *text, uint32_t wanted, double end_s) {
    struct trace t = parse(text);
    double *times = NULL, end = 0;
    uint32_t count = 0;
    assert_int_equal(trace_drops(&t, &times, &count, &end, NULL), PAWL_OK);
    assert_int_equal(count, wanted);
    assert_near(end, end_s, 1e-9);
    free(times);
    trace_free(&t);
}

static void both_formats_are_read(void **state) {
    (void)state;
    struct trace t = parse(",Time,GPUs\r\n0,1000.5,8\r\n1,1063.5,4\n2,1126.5,6");
    assert_int_equal(t.count, 3);
    assert_near(t.samples[2].time_s, 126, 1e-9);
    assert_int_equal(t.samples[1].count, 4);
    trace_free(&t);
    t = parse("0,add,a\n0,add,b\n5000,remove,a\n9000,add,c\n");
    assert_int_equal(t.count, 4);
    assert_int_equal(t.samples[2].count, 1);
    assert_near(t.samples[3].time_s, 9, 1e-9);
    trace_free(&t);
}

static void bad_lines_are_named(void **state) {
    (void)state;
    refuse("", "0 samples");
    refuse(",Time,GPUs\n0,1,8\n", "1 samples");
    refuse(",Time,GPUs\n0,1,8\n1,2\n", "line 3");
    refuse(",Time,GPUs\n0,1,8\n1,2,8.5\n", "line 3");
    refuse(",Time,GPUs\n0,1,8\n1,2,-3\n", "line 3");
    refuse(",Time,GPUs\n0,1,8\n1,2,3,4\n", "line 3");
    refuse(",Time,GPUs\n0,1,8\n1,2,99999999999\n", "line 3");
    refuse(",Time,GPUs\n0,5,8\n1,4,8\n", "line 3");
    refuse("0,add,a\n1,move,a\n", "line 2");
    refuse("0,remove,a\n1,add,a\n", "line 1"); /* nothing is there to be removed */
    refuse("0,add,a\n1,add,\n", "line 2");
}

static void changes_are_counted_by_whole_machines_from_none(void **state) {
    (void)state;
    struct trace t = parse(",Time,GPUs\n0,0,8\n1,1,5\n2,2,9\n3,3,1\n");
    assert_int_equal(trace_changes(&t), 2 + 0 + 1 + 2);
    trace_free(&t);
}

static void drops_leave_out_start_and_end_and_are_one_an_instant(void **state) {
    (void)state;
    expect_drops("0,add,a\n0,add,b\n0,add,c\n1000,remove,a\n1000,remove,b\n2000,add,d\n", 1, 2);
    expect_drops(",Time,GPUs\n0,0,8\n1,1,4\n2,2,6\n3,3,5\n", 2, 3);
    expect_drops(",Time,GPUs\n0,0,8\n1,1,4\n2,2,6\n3,3,5\n4,4,0\n5,5,0\n", 1, 2);
    expect_drops(",Time,GPUs\n0,0,8\n1,1,0\n2,2,8\n3,3,8\n", 1, 3); /* comes back: it was a failure */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_formats_are_read),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(changes_are_counted_by_whole_machines_from_none),
        cmocka_unit_test(drops_leave_out_start_and_end_and_are_one_an_instant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
