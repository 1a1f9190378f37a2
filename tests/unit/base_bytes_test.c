/* What base/bytes.h promises: what is written reads back, and a reader never leaves its input. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bytes.h"

static void every_width_reads_back(void **state) {
    (void)state;
    struct bytes b = {0};
    bytes_put_u8(&b, 0xab);
    bytes_put_u16(&b, 0x1234);
    bytes_put_u32(&b, 0xdeadbeef);
    bytes_put_u64(&b, 0x0123456789abcdef);
    bytes_put_i64(&b, -5);
    bytes_put_f64(&b, -0.1);
    bytes_put_text(&b, "pawl");
    assert_false(b.failed);
    assert_int_equal(b.data[1], 0x34); /* little-endian */
    struct reader r = reader_of(b.data, b.size);
    assert_int_equal(reader_u8(&r), 0xab);
    assert_int_equal(reader_u16(&r), 0x1234);
    assert_int_equal(reader_u32(&r), 0xdeadbeef);
    assert_true(reader_u64(&r) == 0x0123456789abcdef);
    assert_true(reader_i64(&r) == -5);
    assert_true(reader_f64(&r) == -0.1);
    char text[5];
    reader_text(&r, text, sizeof text);
    assert_string_equal(text, "pawl");
    assert_true(reader_done(&r));
    bytes_close(&b);
}

static void a_short_input_fails_and_stays_failed(void **state) {
    (void)state;
    uint8_t raw[3] = {1, 2, 3};
    struct reader r = reader_of(raw, sizeof raw);
    assert_int_equal(reader_u32(&r), 0);
    assert_int_equal(reader_u8(&r), 0);
    assert_false(reader_done(&r));
}

static void a_text_longer_than_its_place_is_refused(void **state) {
    (void)state;
    struct bytes b = {0};
    bytes_put_text(&b, "pawl");
    struct reader r = reader_of(b.data, b.size);
    char text[4];
    reader_text(&r, text, sizeof text);
    assert_string_equal(text, "");
    assert_true(r.failed);
    bytes_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_width_reads_back),
        cmocka_unit_test(a_short_input_fails_and_stays_failed),
        cmocka_unit_test(a_text_longer_than_its_place_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
