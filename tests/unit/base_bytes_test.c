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

static void a_blob_is_read_in_place_and_lies_inside_the_input(void **state) {
    (void)state;
    struct bytes b = {0};
    bytes_put_blob(&b, "pawl", 4);
    bytes_put_blob(&b, NULL, 0);
    struct reader r = reader_of(b.data, b.size);
    size_t size;
    const uint8_t *blob = reader_blob(&r, &size);
    assert_ptr_equal(blob, b.data + 8);
    assert_int_equal(size, 4);
    assert_non_null(reader_blob(&r, &size));
    assert_int_equal(size, 0);
    assert_true(reader_done(&r));
    for (size_t cut = 0; cut < 12; cut++) {
        r = reader_of(b.data, cut);
        assert_null(reader_blob(&r, &size));
        assert_true(r.failed);
        assert_int_equal(size, 0);
    }
    bytes_clear(&b);
    bytes_put_u64(&b, UINT64_MAX);
    r = reader_of(b.data, b.size);
    assert_null(reader_blob(&r, &size));
    assert_true(r.failed);
    bytes_close(&b);
}

static void a_string_is_read_in_place_and_has_its_only_0_at_the_end(void **state) {
    (void)state;
    struct bytes b = {0};
    bytes_put_string(&b, "pawl");
    bytes_put_string(&b, NULL);
    struct reader r = reader_of(b.data, b.size);
    const char *text = reader_string(&r);
    assert_string_equal(text, "pawl");
    assert_ptr_equal(text, b.data + 4);
    assert_string_equal(reader_string(&r), "");
    assert_true(reader_done(&r));
    b.data[6] = 0; /* a 0 inside */
    r = reader_of(b.data, b.size);
    assert_string_equal(reader_string(&r), "");
    assert_true(r.failed);
    b.data[6] = 'w', b.data[8] = 'x'; /* none at the end */
    r = reader_of(b.data, b.size);
    assert_string_equal(reader_string(&r), "");
    assert_true(r.failed);
    r = reader_of("\0\0\0\0", 4); /* no room for one */
    assert_string_equal(reader_string(&r), "");
    assert_true(r.failed);
    bytes_close(&b);
}

static void numbers_from_their_end_on_are_refused(void **state) {
    (void)state;
    struct bytes b = {0};
    bytes_put_u8(&b, 6);
    bytes_put_u32(&b, 70000);
    bytes_put_u8(&b, 1);
    bytes_put_f32(&b, -0.375f);
    struct reader r = reader_of(b.data, b.size);
    assert_int_equal(reader_u8_below(&r, 7), 6);
    assert_int_equal(reader_u32_below(&r, 70001), 70000);
    assert_true(reader_flag(&r));
    assert_true(reader_f32(&r) == -0.375f);
    assert_true(reader_done(&r));
    r = reader_of(b.data, b.size);
    assert_int_equal(reader_u8_below(&r, 6), 0);
    assert_true(r.failed);
    r = reader_of(b.data + 1, b.size - 1);
    assert_int_equal(reader_u32_below(&r, 70000), 0);
    assert_true(r.failed);
    r = reader_of(b.data, b.size);
    assert_false(reader_flag(&r));
    assert_true(r.failed);
    bytes_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_width_reads_back),
        cmocka_unit_test(a_short_input_fails_and_stays_failed),
        cmocka_unit_test(a_text_longer_than_its_place_is_refused),
        cmocka_unit_test(a_string_is_read_in_place_and_has_its_only_0_at_the_end),
        cmocka_unit_test(a_blob_is_read_in_place_and_lies_inside_the_input),
        cmocka_unit_test(numbers_from_their_end_on_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
