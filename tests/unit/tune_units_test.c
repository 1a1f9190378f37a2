/* Amounts as people write them, and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <pawl/tune.h>

#include "kit/tune_kit.h"
#include "tune/window.h"

static void sizes_are_read_in_powers_of_1024_and_of_1000(void **state) {
    (void)state;
    const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"512MiB", 536870912},
                {"1.5GB", 1500000000},
                {"4096", 4096},
                {"2k", 2048},
                {"1 TiB", 1099511627776ull},
                {"0.5kb", 500},
                {"3G", 3221225472},
                {"17b", 17},
                {".5kib", 512},
                {"1.0009765625KiB", 1025},
                {"0", 0}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t bytes = 1;
        struct pawl_error e = {0};
        if (pawl_parse_bytes(good[i].text, &bytes, &e) != PAWL_OK) fail_msg("%s: %s", good[i].text, e.text);
        assert_int_equal(bytes, good[i].bytes);
    }
}

static void what_is_no_amount_is_refused(void **state) {
    (void)state;
    const char *bad[] = {"",      " ",     "MiB", "-1",  "+1",     "1e3",        "0x10", "1..2",
                         "1.2.3", "1MiBs", "inf", "nan", "1 M iB", "9999999TiB", " 1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes = 77;
        double seconds = 77;
        struct pawl_error e = {0};
        if (pawl_parse_bytes(bad[i], &bytes, &e) != PAWL_ARGUMENT)
            fail_msg("\"%s\" is taken for bytes", bad[i]);
        assert_int_equal(bytes, 77);
        assert_non_null(strstr(e.text, bad[i]));
        if (i > 11) continue;
        if (pawl_parse_seconds(bad[i], &seconds, &e) != PAWL_ARGUMENT)
            fail_msg("\"%s\" is taken for time", bad[i]);
        assert_true(seconds == 77);
    }
}

static void times_and_shares_are_read(void **state) {
    (void)state;
    double v = 0;
    assert_int_equal(pawl_parse_seconds("60ms", &v, NULL), PAWL_OK);
    assert_near(v, 0.06, 1e-12);
    assert_int_equal(pawl_parse_seconds("8h", &v, NULL), PAWL_OK);
    assert_near(v, 28800, 0);
    assert_int_equal(pawl_parse_seconds("2.5", &v, NULL), PAWL_OK);
    assert_near(v, 2.5, 0);
    assert_int_equal(pawl_parse_seconds("1.5 min", &v, NULL), PAWL_OK);
    assert_near(v, 90, 0);
    assert_int_equal(pawl_parse_share("3%", &v, NULL), PAWL_OK);
    assert_near(v, 0.03, 1e-12);
    assert_int_equal(pawl_parse_share("0.03", &v, NULL), PAWL_OK);
    assert_near(v, 0.03, 1e-12);
    assert_int_equal(pawl_parse_share("3 pct", &v, NULL), PAWL_ARGUMENT);
}

static void amounts_are_shown_with_three_digits(void **state) {
    (void)state;
    char t[PAWL_AMOUNT_TEXT];
    assert_string_equal(pawl_bytes_text(0, t), "0 B");
    assert_string_equal(pawl_bytes_text(1023, t), "1023 B");
    assert_string_equal(pawl_bytes_text(1024, t), "1 KiB");
    assert_string_equal(pawl_bytes_text((uint64_t)512 << 20, t), "512 MiB");
    assert_string_equal(pawl_bytes_text(1500000000, t), "1.40 GiB");
    assert_string_equal(pawl_bytes_text(UINT64_MAX, t), "16777216 TiB");
    assert_string_equal(pawl_seconds_text(0, t), "0 s");
    assert_string_equal(pawl_seconds_text(0.0634, t), "63.4 ms");
    assert_string_equal(pawl_seconds_text(2, t), "2 s");
    assert_string_equal(pawl_seconds_text(28800, t), "8 h");
    assert_string_equal(pawl_seconds_text(1e-9, t), "0.00 us");
}

/* ---- windows ---- */

static void a_median_does_not_mind_a_wild_minority(void **state) {
    (void)state;
    struct window w;
    window_init(&w, 9);
    assert_true(window_median(&w) == 0 && window_error(&w) == 0 && window_trimmed_mean(&w) == 0);
    for (int i = 0; i < 20; i++) window_add(&w, 5);
    for (int i = 0; i < 4; i++) window_add(&w, 1e9);
    assert_true(window_median(&w) == 5);
    window_add(&w, 1e9);
    assert_true(window_median(&w) == 1e9); /* now it is the majority */
}

static void the_error_of_a_median_is_that_of_the_theory(void **state) {
    (void)state;
    struct rng_stream s = {3};
    double sum = 0, square = 0, told = 0;
    for (int round = 0; round < 4000; round++) {
        struct window w;
        window_init(&w, 33);
        for (int i = 0; i < 33; i++) window_add(&w, 10 + kit_normal(&s));
        double m = window_median(&w);
        sum += m;
        square += m * m;
        told += window_error(&w);
    }
    double deviation = sqrt(square / 4000 - sum / 4000 * sum / 4000);
    assert_near(told / 4000, deviation, 0.1);
}

static void a_trimmed_mean_follows_two_levels_and_forgets_the_wildest(void **state) {
    (void)state;
    struct window w;
    window_init(&w, 20);
    for (int i = 0; i < 20; i++) window_add(&w, i % 2 == 0 ? 0 : 10);
    assert_near(window_trimmed_mean(&w), 5, 1e-12);
    window_add(&w, 1e9);
    assert_true(window_trimmed_mean(&w) < 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_read_in_powers_of_1024_and_of_1000),
        cmocka_unit_test(what_is_no_amount_is_refused),
        cmocka_unit_test(times_and_shares_are_read),
        cmocka_unit_test(amounts_are_shown_with_three_digits),
        cmocka_unit_test(a_median_does_not_mind_a_wild_minority),
        cmocka_unit_test(the_error_of_a_median_is_that_of_the_theory),
        cmocka_unit_test(a_trimmed_mean_follows_two_levels_and_forgets_the_wildest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
