/* What base/safetensors.h promises: what is written reads back, and whatever breaks the format is
 * refused with a cause, whichever byte of it is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/safetensors.h"

/* A file image: length, text, and as many data bytes as told. */
static pawl_code parse_text(const char *text, uint64_t data_bytes, struct st_header *h,
                            struct pawl_error *e) {
    struct bytes b = {0};
    bytes_put_u64(&b, strlen(text));
    bytes_put(&b, text, strlen(text));
    pawl_code code = st_header_parse(b.data, b.size, b.size + data_bytes, h, e);
    bytes_close(&b);
    return code;
}

static void assert_refused(const char *text, uint64_t data_bytes, const char *cause) {
    struct st_header h;
    struct pawl_error e = {0};
    pawl_code code = parse_text(text, data_bytes, &h, &e);
    if (code != PAWL_FORMAT || strstr(e.text, cause) == NULL)
        fail_msg("%s\n  gave %s \"%s\", wanted FORMAT with \"%s\"", text, pawl_code_name(code), e.text,
                 cause);
    assert_null(h.tensors);
    assert_null(h.metadata);
}

static void assert_accepted(const char *text, uint64_t data_bytes, struct st_header *h) {
    struct pawl_error e = {0};
    pawl_code code = parse_text(text, data_bytes, h, &e);
    if (code != PAWL_OK) fail_msg("%s\n  gave %s \"%s\"", text, pawl_code_name(code), e.text);
}

static void a_header_that_was_written_reads_back(void **state) {
    (void)state;
    struct st_header h = {0}, back;
    struct pawl_error e;
    const uint64_t shape[3] = {2, 3, 4}, empty[2] = {0, 5};
    assert_int_equal(st_header_add(&h, "b \"q\" \\ \n \xc3\xa9", PAWL_F32, 3, shape, 8, &e), PAWL_OK);
    assert_int_equal(st_header_add(&h, "scalar", PAWL_I64, 0, NULL, 0, &e), PAWL_OK);
    assert_int_equal(st_header_add(&h, "empty", PAWL_BF16, 2, empty, 8, &e), PAWL_OK);
    assert_int_equal(st_header_set(&h, "step", "1", &e), PAWL_OK);
    assert_int_equal(st_header_set(&h, "format", "pt", &e), PAWL_OK);
    assert_int_equal(st_header_set(&h, "step", "2", &e), PAWL_OK);
    struct bytes b = {0};
    assert_int_equal(st_header_write(&h, 4096, &b, &e), PAWL_OK);
    assert_int_equal(b.size, 4096);
    assert_int_equal(st_header_size(b.data), 4096);
    assert_int_equal(st_header_parse(b.data, b.size, 4096 + 8 + 96, &back, &e), PAWL_OK);
    assert_int_equal(back.tensor_count, 3);
    assert_int_equal(back.data_offset, 4096);
    assert_int_equal(back.data_bytes, 104);
    const struct st_tensor *t = st_header_find(&back, "b \"q\" \\ \n \xc3\xa9");
    assert_non_null(t);
    assert_int_equal(t->dtype, PAWL_F32);
    assert_int_equal(t->rank, 3);
    assert_memory_equal(t->shape, shape, sizeof shape);
    assert_int_equal(t->begin, 8);
    assert_int_equal(t->bytes, 96);
    assert_int_equal(st_header_find(&back, "scalar")->rank, 0);
    assert_int_equal(back.metadata_count, 2);
    assert_string_equal(st_header_get(&back, "step"), "2");
    assert_null(st_header_get(&back, "absent"));
    assert_null(st_header_find(&back, "absent"));
    bytes_close(&b);
    st_header_close(&back);
    st_header_close(&h);
}

static void every_dtype_has_a_name_that_reads_back_and_its_size(void **state) {
    (void)state;
    /* As release 0.8.0 of the reference reader has them. */
    static const struct {
        const char *name;
        uint32_t bits;
    } known[] = {{"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
                 {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
                 {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
                 {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
                 {"I64", 64},        {"U64", 64}};
    bool seen[PAWL_DTYPE_COUNT] = {false};
    assert_int_equal(sizeof known / sizeof known[0], PAWL_DTYPE_COUNT);
    for (size_t i = 0; i < PAWL_DTYPE_COUNT; i++) {
        char text[128];
        struct st_header h;
        uint32_t bytes = 12 * known[i].bits / 8;
        snprintf(text, sizeof text, "{\"x\":{\"dtype\":\"%s\",\"shape\":[3,4],\"data_offsets\":[0,%u]}}",
                 known[i].name, bytes);
        assert_accepted(text, bytes, &h);
        enum pawl_dtype dtype = h.tensors[0].dtype;
        assert_int_equal(h.tensors[0].bytes, bytes);
        assert_int_equal(pawl_dtype_bits(dtype), known[i].bits);
        assert_string_equal(st_dtype_name(dtype), known[i].name);
        assert_int_equal(st_dtype_width(dtype), known[i].bits < 8 ? 1 : known[i].bits / 8);
        assert_false(seen[dtype]);
        seen[dtype] = true;
        st_header_close(&h);
    }
}

static void order_and_spaces_are_free_but_the_first_byte(void **state) {
    (void)state;
    struct st_header h;
    assert_accepted("{ \"a\" : { \"data_offsets\" : [ 1 , 3 ] ,\n\"shape\":[2],\t\"dtype\":\"U8\"},"
                    "\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}   ",
                    3, &h);
    st_header_close(&h);
    assert_accepted("{}", 0, &h);
    st_header_close(&h);
    assert_accepted("{\"__metadata__\":{}}", 0, &h);
    st_header_close(&h);
    assert_refused(" {}", 0, "wanted {");
    assert_refused("{} x", 0, "nothing but spaces");
}

static void escapes_become_utf8(void **state) {
    (void)state;
    struct st_header h;
    assert_accepted(
        "{\"__metadata__\":{\"k\":\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\/\\b\\f\\n\\r\\t\\\"\\\\\"}}", 0,
        &h);
    assert_string_equal(st_header_get(&h, "k"), "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80/\b\f\n\r\t\"\\");
    st_header_close(&h);
}

#define U8_1(name, from, to)                                                                                 \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" #to "],\"data_offsets\":[" #from "," #to "]}"

static void what_breaks_the_format_is_refused(void **state) {
    (void)state;
    assert_refused("{" U8_1("a", 0, 1) "," U8_1("a", 0, 1) "}", 1, "two tensors are named \"a\"");
    assert_refused("{" U8_1("a", 0, 2) "," U8_1("b", 0, 2) "}", 2, "overlap");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2, "hole");
    assert_refused("{" U8_1("a", 0, 1) "}", 2, "the file has 2");
    assert_refused("{" U8_1("a", 0, 2) "}", 1, "the file has 1");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "make 3 bytes");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,2]}}", 1, "make 1 bytes");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}}", 1, "1..0");
    assert_refused("{\"a\":{\"dtype\":\"U7\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
                   "unknown dtype \"U7\"");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "no data_offsets");
    assert_refused("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "no dtype");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
                   "repeated key");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1,
                   "unknown key \"x\"");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, "too many");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1]}}", 1, "two data_offsets");
    assert_refused("{\"a\":[]}", 0, "wanted {");
    assert_refused("{\"a\":{}}", 0, "wanted a string");
    assert_refused("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "two metadata keys are named \"k\"");
    assert_refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "comes twice");
    assert_refused("{\"__metadata__\":{\"k\":1}}", 0, "wanted a string");
    assert_refused("{\"__metadata__\":{\"k\":{\"k\":\"\"}}}", 0, "wanted a string");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[[[[1]]]],\"data_offsets\":[0,1]}}", 1,
                   "whole number");
    assert_refused("{\"a\":", 0, "header ends");
    assert_refused("{\"a", 0, "end of a string");
    assert_refused("{,}", 0, "wanted a string");
}

static void numbers_are_whole_unsigned_and_fit(void **state) {
    (void)state;
    static const char *const bad[] = {
        "-1",  "1.0",  "1e3",  "01", "+1", "18446744073709551616", "99999999999999999999999999",
        "0x1", "null", "\"1\""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"a\":{\"dtype\":\"U8\",\"shape\":[%s],\"data_offsets\":[0,1]}}",
                 bad[i]);
        assert_refused(text, 1, "wanted");
    }
    assert_refused("{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0,
                   "64 bits");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
                   "64 bits");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551615],"
                   "\"data_offsets\":[0,18446744073709551615]}}",
                   0, "64 bits");
    struct bytes text = {0}; /* each fits, all together do not */
    const uint64_t most = UINT64_MAX / 8;
    for (uint64_t i = 0; i < 5; i++)
        bytes_printf(&text, "%s\"%llu\":{\"dtype\":\"U8\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]}",
                     i == 0 ? "{" : ",", (unsigned long long)i, (unsigned long long)most,
                     (unsigned long long)(i * most), (unsigned long long)((i + 1) * most));
    bytes_printf(&text, "}");
    bytes_put_u8(&text, 0);
    assert_refused((const char *)text.data, 0, "63 bits");
    bytes_close(&text);
}

static void elements_that_do_not_fill_their_last_byte_are_refused_by_name(void **state) {
    (void)state;
    static const char *const good[] = {"F4", "[2]", "F4", "[0]", "F6_E2M3", "[4]", "F6_E3M2", "[2,2]"},
                             *const bad[] = {"F4", "[]", "F4", "[3,5]", "F6_E2M3", "[2]", "F6_E3M2", "[7]"};
    static const uint32_t sizes[] = {1, 0, 3, 3};
    for (size_t i = 0; i < 4; i++) {
        char text[128];
        struct st_header h;
        snprintf(text, sizeof text, "{\"x\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[0,%u]}}",
                 good[2 * i], good[2 * i + 1], sizes[i]);
        assert_accepted(text, sizes[i], &h);
        st_header_close(&h);
        snprintf(text, sizeof text, "{\"x\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[0,4]}}",
                 bad[2 * i], bad[2 * i + 1]);
        assert_refused(text, 4, "tensor \"x\"");
        assert_refused(text, 4, "wanted whole bytes");
    }
}

static void strings_that_are_no_utf8_or_hide_a_nul_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"\xff",           "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "\xe2\x82",       "\\u0000",  "\\ud800",      "\\udc00",
                                      "\\ud800\\u0041", "\\x",      "\\u12g4",      "\t"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[100];
        snprintf(text, sizeof text, "{\"__metadata__\":{\"k\":\"%s\"}}", bad[i]);
        assert_refused(text, 0, "wanted");
    }
}

static void lengths_that_do_not_fit_are_refused(void **state) {
    (void)state;
    struct st_header h;
    struct pawl_error e;
    uint8_t raw[16] = {8, 0, 0, 0, 0, 0, 0, 0, '{', '}', ' ', ' ', ' ', ' ', ' ', ' '};
    assert_int_equal(st_header_parse(raw, 16, 16, &h, &e), PAWL_OK);
    for (size_t size = 0; size < 16; size++)
        assert_int_equal(st_header_parse(raw, size, 16, &h, &e), PAWL_FORMAT);
    assert_non_null(strstr(e.text, "16 bytes wanted, had 15"));
    assert_int_equal(st_header_parse(raw, 16, 15, &h, &e), PAWL_FORMAT);
    memset(raw, 0xff, 8);
    assert_int_equal(st_header_size(raw), 0);
    assert_int_equal(st_header_parse(raw, 16, 16, &h, &e), PAWL_FORMAT);
    memset(raw, 0, 8);
    assert_int_equal(st_header_parse(raw, 16, 16, &h, &e), PAWL_FORMAT);
}

static void a_table_with_holes_or_twins_is_not_written(void **state) {
    (void)state;
    struct st_header h = {0};
    struct pawl_error e;
    struct bytes b = {0};
    const uint64_t one = 1;
    assert_int_equal(st_header_add(&h, "a", PAWL_U8, 1, &one, 1, &e), PAWL_OK);
    assert_int_equal(st_header_write(&h, 8, &b, &e), PAWL_FORMAT);
    assert_int_equal(b.size, 0);
    assert_int_equal(st_header_add(&h, "a", PAWL_U8, 1, &one, 0, &e), PAWL_OK);
    assert_int_equal(st_header_write(&h, 8, &b, &e), PAWL_FORMAT);
    assert_non_null(strstr(e.text, "two tensors"));
    assert_int_equal(st_header_add(&h, "__metadata__", PAWL_U8, 1, &one, 2, &e), PAWL_FORMAT);
    assert_int_equal(st_header_add(&h, "\xff", PAWL_U8, 1, &one, 2, &e), PAWL_FORMAT);
    assert_int_equal(st_header_set(&h, "k", "\xff", &e), PAWL_FORMAT);
    st_header_close(&h);
    bytes_close(&b);
}

/* Any one byte changed or cut: refused or read, never out of bounds (the sanitizers watch). */
static void no_single_changed_byte_leaves_the_input(void **state) {
    (void)state;
    static const char text[] = "{\"__metadata__\":{\"k\":\"\\u0041\\ud83d\\ude00\"}," U8_1("a", 0, 12) "}";
    size_t size = sizeof text - 1;
    for (size_t at = 0; at < size; at++) {
        for (int value = 0; value < 256; value++) {
            uint8_t *raw = malloc(size + 8);
            assert_non_null(raw);
            memset(raw, 0, 8);
            raw[0] = (uint8_t)size;
            memcpy(raw + 8, text, size);
            raw[8 + at] = (uint8_t)value;
            struct st_header h;
            struct pawl_error e;
            if (st_header_parse(raw, size + 8, size + 8 + 12, &h, &e) == PAWL_OK) st_header_close(&h);
            free(raw);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_that_was_written_reads_back),
        cmocka_unit_test(every_dtype_has_a_name_that_reads_back_and_its_size),
        cmocka_unit_test(order_and_spaces_are_free_but_the_first_byte),
        cmocka_unit_test(escapes_become_utf8),
        cmocka_unit_test(what_breaks_the_format_is_refused),
        cmocka_unit_test(numbers_are_whole_unsigned_and_fit),
        cmocka_unit_test(elements_that_do_not_fill_their_last_byte_are_refused_by_name),
        cmocka_unit_test(strings_that_are_no_utf8_or_hide_a_nul_are_refused),
        cmocka_unit_test(lengths_that_do_not_fit_are_refused),
        cmocka_unit_test(a_table_with_holes_or_twins_is_not_written),
        cmocka_unit_test(no_single_changed_byte_leaves_the_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
