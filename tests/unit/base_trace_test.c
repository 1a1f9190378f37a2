/* Recorded failures line by line: three formats told apart, every bad line named, the end of a recording
 * found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/trace.h"

static struct trace_lines read_text(const char *text) {
    struct trace_lines t = {0};
    struct pawl_error e = {0};
    if (trace_lines_read(text, strlen(text), &t, &e) != PAWL_OK) fail_msg("%s", e.text);
    return t;
}

static void refuse(const char *text, const char *why) {
    struct trace_lines t = {0};
    struct pawl_error e = {0};
    if (trace_lines_read(text, strlen(text), &t, &e) != PAWL_FORMAT) fail_msg("taken: %s", text);
    if (strstr(e.text, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", e.text, why);
    assert_null(t.line);
}

static void nodes_are_added_and_removed(void **state) {
    (void)state;
    struct trace_lines t = read_text("0,add,a\r\n500,add,b\r\n\r\n2000.5,remove,a\r\n");
    assert_int_equal(t.format, TRACE_NODES);
    assert_int_equal(t.count, 3);
    assert_int_equal(t.line[1].there, 2);
    assert_true(t.line[1].time_s == 0.5);
    assert_int_equal(t.line[2].kind, TRACE_REMOVE);
    assert_int_equal(t.line[2].number, 4);
    assert_int_equal(t.line[2].there, 1);
    assert_memory_equal(t.line[2].node, "a", t.line[2].node_size);
    assert_false(t.cut);
    trace_lines_close(&t);
}

static void counts_are_read_below_either_header(void **state) {
    (void)state;
    static const char *const headers[] = {",Time,GPUs\n", "index,Time,GPUs\n"};
    for (int i = 0; i < 2; i++) {
        char text[80];
        snprintf(text, sizeof text, "%s0,100.25,8\n1,163.25,5", headers[i]);
        struct trace_lines t = read_text(text);
        assert_int_equal(t.format, TRACE_COUNTS);
        assert_int_equal(t.per_machine, 4);
        assert_true(t.line[1].time_s - t.line[0].time_s == 63);
        assert_int_equal(t.line[1].there, 5);
        assert_true(t.cut);
        trace_lines_close(&t);
    }
}

static void dates_become_seconds_over_leap_days_and_years(void **state) {
    (void)state;
    struct trace_lines t =
        read_text("2024-02-28, 23:59:58, 7\n2024-02-29, 00:00:00, 6\n"
                  "2024-03-01, 00:00:01, 5\n2024-12-31, 23:59:59, 4\n2025-01-01, 00:00:00, 3\n");
    assert_int_equal(t.format, TRACE_DATES);
    assert_int_equal(t.per_machine, 1);
    assert_true(t.line[1].time_s - t.line[0].time_s == 2);
    assert_true(t.line[2].time_s - t.line[1].time_s == 86401);
    assert_true(t.line[4].time_s - t.line[3].time_s == 1);
    assert_true(t.line[4].time_s - t.line[1].time_s == 307 * 86400.0);
    assert_int_equal(t.line[0].there, 7);
    trace_lines_close(&t);
}

static void a_mark_before_utf_8_is_no_part_of_the_first_line(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum trace_format format;
    } cases[] = {{"\xef\xbb\xbf"
                  "0,add,a\n",
                  TRACE_NODES},
                 {"\xef\xbb\xbf"
                  "index,Time,GPUs\n0,100.25,8\n",
                  TRACE_COUNTS},
                 {"\xef\xbb\xbf"
                  "2024-02-28, 23:59:58, 7\n",
                  TRACE_DATES}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct trace_lines t = read_text(cases[i].text);
        assert_int_equal(t.format, cases[i].format);
        assert_int_equal(t.count, 1);
        assert_int_equal(t.line[0].number, i == 1 ? 2 : 1);
        trace_lines_close(&t);
    }
    refuse("\xef\xbb\xbf\xef\xbb\xbf"
           "0,add,a\n",
           "line 1");
    refuse("\xef\xbb"
           "0,add,a\n",
           "line 1");
}

static void bad_lines_are_named(void **state) {
    (void)state;
    refuse("0,add,a\n1,move,a\n", "line 2: wanted \"milliseconds,add or remove,node\"");
    refuse("0,add,a\n1,add,\n", "line 2");
    refuse("0,add,a\nx,add,b\n", "line 2");
    refuse("0,add,a\n-1,add,b\n", "line 2");
    refuse(",Time,GPUs\n0,1,8\n1,2\n", "line 3: wanted \"index,seconds,count\"");
    refuse(",Time,GPUs\n0,1,8.5\n", "line 2");
    refuse(",Time,GPUs\n0,1,4294967296\n", "line 2");
    refuse(",Time,GPUs\n0,1,8,9\n", "line 2");
    refuse("2024-02-30, 00:00:00, 1\n", "line 1: wanted \"YYYY-MM-DD, HH:MM:SS, count\"");
    refuse("2023-02-29, 00:00:00, 1\n", "line 1");
    refuse("2023-13-01, 00:00:00, 1\n", "line 1");
    refuse("2023-12-01, 24:00:00, 1\n", "line 1");
    refuse("2023-12-01, 23:60:00, 1\n", "line 1");
    refuse("2023-12-01, 23:00:00\n", "line 1");
}

static void a_last_line_that_stops_in_the_middle_is_said_to_be_cut(void **state) {
    (void)state;
    refuse("0,add,a\n1000,rem",
           "line 2: wanted \"milliseconds,add or remove,node\"; the file seems to be cut off there");
    refuse(",Time,GPUs\n0,1,8\n1,2,", "cut off");
    struct trace_lines t = {0};
    struct pawl_error e = {0};
    assert_int_equal(trace_lines_read("0,add,a\n1,rem\n", 14, &t, &e), PAWL_FORMAT);
    assert_null(strstr(e.text, "cut"));
}

static void the_fall_to_none_at_the_end_is_not_recorded(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint32_t recorded;
    } cases[] = {
        {",Time,GPUs\n0,0,8\n1,1,4\n2,2,6\n", 3},
        {",Time,GPUs\n0,0,8\n1,1,4\n2,2,6\n3,3,5\n4,4,0\n5,5,0\n", 3},
        {",Time,GPUs\n0,0,8\n1,1,0\n2,2,8\n", 3},
        {"0,add,a\n0,add,b\n9,remove,a\n", 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct trace_lines t = read_text(cases[i].text);
        assert_int_equal(trace_lines_recorded(&t), cases[i].recorded);
        trace_lines_close(&t);
    }
}

static struct trace_lines load(const char *name, char **text) {
    char path[400];
    snprintf(path, sizeof path, "%s/bench/traces/%s", PAWL_SOURCE_DIR, name);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    *text = malloc(1 << 20);
    size_t size = fread(*text, 1, 1 << 20, in);
    fclose(in);
    struct trace_lines t = {0};
    struct pawl_error e = {0};
    if (trace_lines_read(*text, size, &t, &e) != PAWL_OK) fail_msg("%s: %s", name, e.text);
    return t;
}

static void bamboo_s_trace_has_177_additions_and_167_removals_in_79_bursts(void **state) {
    (void)state;
    char *text;
    struct trace_lines t = load("p3-trace.csv", &text);
    uint32_t added = 0, removed = 0, bursts = 0, most = 0, at_once = 0;
    for (uint32_t i = 0; i < t.count; i++) {
        const struct trace_line *l = &t.line[i];
        added += l->kind == TRACE_ADD;
        removed += l->kind == TRACE_REMOVE;
        bool goes_on = i > 0 && l[-1].time_s == l->time_s && l[-1].kind == TRACE_REMOVE;
        at_once = l->kind != TRACE_REMOVE ? 0 : goes_on ? at_once + 1 : 1;
        bursts += at_once == 1;
        if (at_once > most) most = at_once;
    }
    assert_int_equal(added, 177);
    assert_int_equal(removed, 167);
    assert_int_equal(bursts, 79);
    assert_int_equal(most, 6);
    assert_true(t.line[t.count - 1].time_s == 40920);
    trace_lines_close(&t);
    free(text);
}

static void pccheck_s_trace_has_215_samples_of_which_the_last_7_are_its_end(void **state) {
    (void)state;
    char *text;
    struct trace_lines t = load("gpus_trace.csv", &text);
    assert_int_equal(t.count, 215);
    assert_int_equal(trace_lines_recorded(&t), 208);
    trace_lines_close(&t);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_are_added_and_removed),
        cmocka_unit_test(counts_are_read_below_either_header),
        cmocka_unit_test(dates_become_seconds_over_leap_days_and_years),
        cmocka_unit_test(a_mark_before_utf_8_is_no_part_of_the_first_line),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(a_last_line_that_stops_in_the_middle_is_said_to_be_cut),
        cmocka_unit_test(the_fall_to_none_at_the_end_is_not_recorded),
        cmocka_unit_test(bamboo_s_trace_has_177_additions_and_167_removals_in_79_bursts),
        cmocka_unit_test(pccheck_s_trace_has_215_samples_of_which_the_last_7_are_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
