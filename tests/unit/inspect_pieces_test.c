/* Cutting tensors, choosing names, reading small floating-point numbers, and making text harmless. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/box.h"
#include "inspect/inspect.h"
#include "inspect/text.h"

/* ---- pieces ---- */

static void check_cut(enum pawl_dtype dtype, uint32_t rank, const uint64_t *shape, uint64_t most) {
    struct pawl_tensor t = {.name = "t", .dtype = dtype, .rank = rank, .shape = shape};
    struct inspect_piece p;
    uint64_t at = 0, bytes = 0, all = 0;
    assert_int_equal(inspect_tensor_bytes(&t, &all, NULL), PAWL_OK);
    for (; inspect_piece_at(&t, at, most, &p); at += p.elements, bytes += p.bytes) {
        const char *wanted = NULL;
        uint64_t box_bytes = 0, first = 0, elements = 1;
        struct box box = {p.begin, p.extent};
        assert_null(box_check(dtype, rank, shape, box, &box_bytes, &wanted));
        assert_int_equal(box_bytes, p.bytes);
        for (uint32_t d = 0; d < rank; d++) {
            first = first * shape[d] + p.begin[d];
            elements *= p.extent[d];
        }
        assert_int_equal(first, at);
        assert_int_equal(elements, p.elements);
        assert_true(elements > 0);
        if (pawl_dtype_bits(dtype) >= 8) assert_true(p.bytes <= most || p.elements == 1);
    }
    assert_int_equal(bytes, all);
    assert_int_equal(at, inspect_elements(&t));
}

static void pieces_are_the_tensor_in_order_each_a_box_that_fits(void **state) {
    (void)state;
    static const uint64_t shapes[][4] = {{7, 1, 1, 1},  {1, 9, 5, 3}, {4, 6, 2, 5},
                                         {2, 2, 1, 64}, {0, 3, 2, 2}, {3, 8, 8, 2}};
    static const enum pawl_dtype types[] = {PAWL_U8, PAWL_BF16, PAWL_F32, PAWL_C64, PAWL_F4, PAWL_F6_E3M2};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (uint32_t rank = 0; rank <= 4; rank++)
            for (size_t k = 0; k < sizeof types / sizeof types[0]; k++)
                for (uint64_t most = 1; most < 600; most += most < 40 ? 1 : 97) {
                    struct pawl_tensor t = {.name = "t", .dtype = types[k], .rank = rank, .shape = shapes[s]};
                    uint64_t bytes;
                    if (inspect_tensor_bytes(&t, &bytes, NULL) != PAWL_OK) continue; /* ends within a byte */
                    check_cut(types[k], rank, shapes[s], most);
                }
}

static void a_shape_beyond_any_file_is_refused_and_named(void **state) {
    (void)state;
    struct pawl_error e = {0};
    uint64_t shape[] = {UINT64_MAX / 2, 16}, bytes, empty[] = {UINT64_MAX, 0};
    struct pawl_tensor t = {.name = "huge", .dtype = PAWL_F32, .rank = 2, .shape = shape};
    assert_int_equal(inspect_tensor_bytes(&t, &bytes, &e), PAWL_CORRUPT);
    assert_non_null(strstr(e.text, "huge"));
    t.shape = empty;
    assert_int_equal(inspect_tensor_bytes(&t, &bytes, &e), PAWL_OK);
    assert_int_equal(bytes, 0);
}

/* ---- names ---- */

static void patterns_are_prefixes_or_globs(void **state) {
    (void)state;
    const char *prefix[] = {"h.0."}, *glob[] = {"*.bias", "exp_avg?/x"};
    assert_true(inspect_name_matches("h.0.ln.weight", prefix, 1));
    assert_false(inspect_name_matches("h.01.ln.weight", prefix, 1));
    assert_true(inspect_name_matches("h.0/a.bias", glob, 2));
    assert_false(inspect_name_matches("h.0.bias.x", glob, 2));
    assert_true(inspect_name_matches("exp_avg2/x", glob, 2));
    assert_false(inspect_name_matches("x", glob, 0));
}

/* ---- numbers ---- */

static double number(enum pawl_dtype dtype, uint32_t bits) {
    uint8_t data[4] = {(uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16), (uint8_t)(bits >> 24)};
    return inspect_float_at(dtype, data, 0);
}

static void expect_number(enum pawl_dtype dtype, uint32_t bits, double wanted) {
    double found = number(dtype, bits);
    if (found != wanted && !(isnan(found) && isnan(wanted)))
        fail_msg("%s %#x: %.17g, wanted %.17g", pawl_dtype_name(dtype), bits, found, wanted);
}

/* Values of the formats' own tables. */
static void small_floats_are_read_as_their_formats_define_them(void **state) {
    (void)state;
    expect_number(PAWL_F16, 0x3c00, 1.0);
    expect_number(PAWL_F16, 0xc000, -2.0);
    expect_number(PAWL_F16, 0x0001, 0x1p-24);
    expect_number(PAWL_F16, 0x7bff, 65504.0);
    expect_number(PAWL_F16, 0x7c00, (double)INFINITY);
    expect_number(PAWL_F16, 0x7e00, (double)NAN);
    expect_number(PAWL_BF16, 0x3f80, 1.0);
    expect_number(PAWL_BF16, 0xff80, (double)-INFINITY);
    expect_number(PAWL_BF16, 0x0001, 0x1p-133);
    expect_number(PAWL_F8_E4M3, 0x7e, 448.0);
    expect_number(PAWL_F8_E4M3, 0x7f, (double)NAN);
    expect_number(PAWL_F8_E4M3, 0x01, 0x1p-9);
    expect_number(PAWL_F8_E5M2, 0x7b, 57344.0);
    expect_number(PAWL_F8_E5M2, 0x7c, (double)INFINITY);
    expect_number(PAWL_F8_E5M2, 0x01, 0x1p-16);
    expect_number(PAWL_F8_E4M3FNUZ, 0x7f, 240.0);
    expect_number(PAWL_F8_E4M3FNUZ, 0x80, (double)NAN);
    expect_number(PAWL_F8_E5M2FNUZ, 0x7f, 57344.0);
    expect_number(PAWL_F8_E8M0, 127, 1.0);
    expect_number(PAWL_F8_E8M0, 0, 0x1p-127);
    expect_number(PAWL_F8_E8M0, 255, (double)NAN);
    expect_number(PAWL_F4, 0x7, 6.0);
    expect_number(PAWL_F4, 0x1, 0.5);
    expect_number(PAWL_F4, 0xf, -6.0);
    expect_number(PAWL_F6_E2M3, 0x1f, 7.5);
    expect_number(PAWL_F6_E3M2, 0x1f, 28.0);
    expect_number(PAWL_F6_E3M2, 0x01, 0.0625);
}

static void elements_that_share_a_byte_are_told_apart(void **state) {
    (void)state;
    const uint8_t data[] = {0x21, 0x43}; /* 4-bit elements 1, 2, 3, 4 */
    for (uint64_t i = 0; i < 4; i++) assert_int_equal(inspect_element_bits(PAWL_F4, data, i), i + 1);
    const uint8_t six[] = {0x41, 0x30, 0x10}; /* 6-bit elements 1, 1, 3, 4 */
    const uint64_t wanted[] = {1, 1, 3, 4};
    for (uint64_t i = 0; i < 4; i++) assert_int_equal(inspect_element_bits(PAWL_F6_E3M2, six, i), wanted[i]);
}

static void the_distance_of_complex_numbers_is_that_in_the_plane(void **state) {
    (void)state;
    float a[] = {0, 0, 4, 5}, b[] = {9, 9, 1, 1};
    assert_true(inspect_distance(PAWL_C64, (const uint8_t *)a, (const uint8_t *)b, 1) == 5.0);
    float zero[] = {0.0f, INFINITY}, minus[] = {-0.0f, INFINITY};
    assert_true(inspect_distance(PAWL_F32, (const uint8_t *)zero, (const uint8_t *)minus, 0) == 0.0);
    assert_true(inspect_distance(PAWL_F32, (const uint8_t *)zero, (const uint8_t *)minus, 1) == 0.0);
}

/* ---- text ---- */

static void expect_safe(const char *text, size_t size, const char *wanted) {
    char *found = pawl_inspect_safe_text(text, size);
    assert_non_null(found);
    assert_string_equal(found, wanted);
    free(found);
}

static void text_for_a_terminal_cannot_move_its_cursor(void **state) {
    (void)state;
    expect_safe("plain \xc3\xa9 \xe4\xb8\xad", 12, "plain \xc3\xa9 \xe4\xb8\xad");
    expect_safe("\x1b[2J\n\r\t\x7f", 8, "\\x1b[2J\\x0a\\x0d\\x09\\x7f");
    expect_safe("\xc2\x9b"
                "2J",
                4, "\\u{009b}2J"); /* CSI in one character */
    expect_safe("\xe2\x80\xae"
                "cod",
                6, "\\u{202e}cod"); /* from right to left */
    expect_safe("\xff\xc3(\xed\xa0\x80\xc0\xaf", 8, "\\xff\\xc3(\\xed\\xa0\\x80\\xc0\\xaf");
    expect_safe("\xf0\x9f\x98", 3, "\\xf0\\x9f\\x98"); /* cut */
}

static void expect_json(const char *text, const char *wanted) {
    struct bytes out = {0};
    struct json j = json_begin(&out);
    text_put_json(&j, NULL, text);
    bytes_put_u8(&out, 0);
    assert_false(out.failed);
    assert_string_equal((const char *)out.data, wanted);
    bytes_close(&out);
}

static void text_in_json_is_valid_whatever_it_holds(void **state) {
    (void)state;
    expect_json("a\"b\\c", "\"a\\\"b\\\\c\"");
    expect_json("\x1b\n\x7f\xc2\x9b", "\"\\u001b\\u000a\\u007f\\u009b\"");
    expect_json("\xff", "\"\\\\xff\"");
    expect_json(NULL, "null");
}

static void only_json_is_taken_for_json(void **state) {
    (void)state;
    static const char *const good[] = {"{}", " [1, -2.5e+3, \"\\u00e9\\n\", null, true] ", "0", "\"\"",
                                       "{\"a\": {\"b\": [[]]}}"};
    static const char *const bad[] = {
        "",        " ",   "{",   "[1,]", "{\"a\"}",     "{a: 1}",   "01", "1.", "+1",        "\"\n\"",
        "\"\\x\"", "nul", "1 2", "[1}",  "\"\\u12g4\"", "\"\xff\"", "-",  "1e", "{\"a\":1,}"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!text_is_json(good[i], strlen(good[i]))) fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (text_is_json(bad[i], strlen(bad[i]))) fail_msg("accepted: %s", bad[i]);
    char deep[2 * TEXT_JSON_DEPTH + 3];
    for (int depth = TEXT_JSON_DEPTH; depth <= TEXT_JSON_DEPTH + 1; depth++) {
        memset(deep, '[', (size_t)depth);
        memset(deep + depth, ']', (size_t)depth);
        assert_int_equal(text_is_json(deep, 2 * (size_t)depth), depth == TEXT_JSON_DEPTH);
    }
    assert_false(text_is_json("[1]\0", 4));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_the_tensor_in_order_each_a_box_that_fits),
        cmocka_unit_test(a_shape_beyond_any_file_is_refused_and_named),
        cmocka_unit_test(patterns_are_prefixes_or_globs),
        cmocka_unit_test(small_floats_are_read_as_their_formats_define_them),
        cmocka_unit_test(elements_that_share_a_byte_are_told_apart),
        cmocka_unit_test(the_distance_of_complex_numbers_is_that_in_the_plane),
        cmocka_unit_test(text_for_a_terminal_cannot_move_its_cursor),
        cmocka_unit_test(text_in_json_is_valid_whatever_it_holds),
        cmocka_unit_test(only_json_is_taken_for_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
