/* Numbers print exactly, foreign text prints harmlessly, and a failed write is told. */
#include "kit/show_kit.h"
#include "kit/show_plans.h"

#include <errno.h>

#include "show/out.h"

/* What `put` prints of `in`. */
static void assert_prints(void (*put)(struct out *, const char *), const char *in, const char *wanted) {
    struct out o;
    char *text = NULL;
    size_t size = 0;
    struct pawl_error e = {0};
    FILE *file = open_memstream(&text, &size);
    out_begin(&o, file);
    put(&o, in);
    assert_int_equal(out_end(&o, "text", &e), PAWL_OK);
    fclose(file);
    assert_string_equal(text, wanted);
    free(text);
}

static void times_print_exactly_and_as_short_as_they_are(void **state) {
    (void)state;
    const struct {
        uint64_t ticks;
        const char *text;
    } cases[] = {
        {0, "0"},
        {27 * (uint64_t)SIM_TICKS, "27"},
        {500000, "0.5"},
        {1, "0.000001"},
        {26999999, "26.999999"},
        {1000100, "1.0001"},
        {10 * (uint64_t)SIM_TICKS, "10"},
        {SIM_TICKS_MAX, "1152921504606.846976"},
        {UINT64_MAX, "18446744073709.551615"},
    };
    char text[SHOW_TIME];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(show_time(cases[i].ticks, text), cases[i].text);
}

static void a_time_reads_back_as_the_same_ticks(void **state) {
    (void)state;
    char text[SHOW_TIME];
    for (uint64_t ticks = 1; ticks < (uint64_t)1 << 50; ticks = ticks * 3 + 1)
        assert_int_equal((uint64_t)(strtod(show_time(ticks, text), NULL) * SIM_TICKS + 0.5), ticks);
}

static void put_f64(struct out *o, const char *text) { out_f64(o, strtod(text, NULL)); }
static void put_pixels(struct out *o, const char *text) { out_pixels(o, strtod(text, NULL)); }

static void numbers_print_as_short_as_they_read_back(void **state) {
    (void)state;
    assert_prints(put_f64, "27", "27");
    assert_prints(put_f64, "0.1", "0.1");
    assert_prints(put_f64, "66.13333333333334", "66.13333333333334");
    assert_prints(put_f64, "nan", "null");
    assert_prints(put_f64, "-inf", "null");
    assert_prints(put_pixels, "3", "3");
    assert_prints(put_pixels, "3.10", "3.1");
    assert_prints(put_pixels, "3.14159", "3.14");
    assert_prints(put_pixels, "3.999", "4");
    assert_prints(put_pixels, "-0.05", "-0.05");
}

static void foreign_text_is_harmless_in_xml(void **state) {
    (void)state;
    assert_prints(out_xml, SHOW_BAD_NAME,
                  "a&quot;b&lt;c&gt;&amp;&#39;d\xef\xbf\xbd\xef\xbf\xbd[31m\xef\xbf\xbd\xc3\xa9");
    assert_prints(out_xml, "\xc0\x80 \xed\xa0\x80 \xef\xbf\xbf \xf4\x90\x80\x80 \xe2\x82",
                  "\xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd "
                  "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd");
}

static void foreign_text_is_harmless_in_json(void **state) {
    (void)state;
    assert_prints(out_json, SHOW_BAD_NAME, "\"a\\\"b<c>&'d\\u0001\\u001b[31m\\ufffd\xc3\xa9\"");
    assert_prints(out_json, "back\\slash\n", "\"back\\\\slash\\u000a\"");
    assert_prints(out_json, NULL, "null");
}

static void foreign_text_is_harmless_on_a_terminal(void **state) {
    (void)state;
    assert_prints(out_plain, SHOW_BAD_NAME, "a\"b<c>&'d\xef\xbf\xbd\xef\xbf\xbd[31m\xef\xbf\xbd\xc3\xa9");
    assert_prints(out_plain,
                  "\xc2\x9b"
                  "31m",
                  "\xef\xbf\xbd"
                  "31m"); /* the one-character escape */
    assert_int_equal(out_columns("\xc3\xa9t\xc3\xa9"), 3);
}

static void put_lines(struct out *o, const char *text) { out_key_lines(o, "k", text); }

static void lines_become_an_array(void **state) {
    (void)state;
    assert_prints(put_lines, "one\ntwo\n", ",\"k\":[\"one\",\"two\"]");
    assert_prints(put_lines, "one\n\ntwo", ",\"k\":[\"one\",\"\",\"two\"]");
    assert_prints(put_lines, "", ",\"k\":[]");
    assert_prints(put_lines, NULL, ",\"k\":[]");
}

static void more_than_the_buffer_goes_out_whole(void **state) {
    (void)state;
    struct out o;
    char *text = NULL;
    size_t size = 0;
    struct pawl_error e = {0};
    FILE *file = open_memstream(&text, &size);
    out_begin(&o, file);
    for (uint64_t i = 0; i < OUT_ROOM; i++) {
        out_u64(&o, i % 10);
        out_raw(&o, "abc", 3);
    }
    assert_int_equal(out_end(&o, "text", &e), PAWL_OK);
    fclose(file);
    assert_int_equal(size, 4 * OUT_ROOM);
    for (uint64_t i = 0; i < OUT_ROOM; i++) {
        assert_int_equal(text[4 * i], '0' + (char)(i % 10));
        assert_memory_equal(text + 4 * i + 1, "abc", 3);
    }
    free(text);
}

static void every_writer_of_a_plan_tells_that_the_device_is_full(void **state) {
    (void)state;
    pawl_code (*const writers[])(const struct pawl_plan *, FILE *, struct pawl_error *) = {
        show_plan_text, show_plan_json, show_plan_svg, show_plan_chrome, show_plan_csv, show_plan_ir};
    struct kit k = plan_of_a_v();
    for (size_t i = 0; i < sizeof writers / sizeof writers[0]; i++) {
        struct pawl_error e = {0};
        FILE *file = fopen("/dev/full", "w");
        assert_non_null(file);
        assert_int_equal(writers[i](&k.plan, file, &e), PAWL_IO);
        assert_int_equal(e.os_errno, ENOSPC);
        assert_holds(e.text, "cannot write the plan");
        fclose(file);
    }
    kit_free(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_print_exactly_and_as_short_as_they_are),
        cmocka_unit_test(a_time_reads_back_as_the_same_ticks),
        cmocka_unit_test(numbers_print_as_short_as_they_read_back),
        cmocka_unit_test(foreign_text_is_harmless_in_xml),
        cmocka_unit_test(foreign_text_is_harmless_in_json),
        cmocka_unit_test(foreign_text_is_harmless_on_a_terminal),
        cmocka_unit_test(lines_become_an_array),
        cmocka_unit_test(more_than_the_buffer_goes_out_whole),
        cmocka_unit_test(every_writer_of_a_plan_tells_that_the_device_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
