/* What base/hash.h promises: values that do not depend on the processor, on how the bytes are cut, or on
 * where they lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/hash.h"
#include "base/rng.h"

static void fill(uint8_t *data, size_t size) {
    struct rng_stream random = {5};
    for (size_t i = 0; i < size; i++) data[i] = (uint8_t)rng_below(&random, 256);
}

static void known_values_come_out(void **state) {
    (void)state;
    static const struct {
        const char *text, *sum;
    } known[] = {{"", "99aa06d3014798d86001c324468d497f"}, /* of the xxHash specification's test vectors */
                 {"a", "a96faf705af16834e6c632b61e964e1f"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint8_t sum[16];
        char text[33];
        hash128(known[i].text, strlen(known[i].text), sum);
        hash_hex(sum, sizeof sum, text);
        assert_string_equal(text, known[i].sum);
    }
}

/* Long enough for the vector loops; a changed bit anywhere changes the value. */
static void the_whole_and_the_pieces_agree(void **state) {
    (void)state;
    static uint8_t data[20000];
    struct rng_stream random = {9};
    fill(data, sizeof data);
    for (int round = 0; round < 300; round++) {
        size_t begin = rng_below(&random, 64), size = rng_below(&random, sizeof data - begin);
        uint8_t whole[16], pieces[16];
        hash128(data + begin, size, whole);
        struct hash_stream s;
        hash_stream_begin(&s);
        for (size_t at = 0; at < size;) {
            size_t piece = 1 + rng_below(&random, 3000);
            if (piece > size - at) piece = size - at;
            hash_stream_add(&s, data + begin + at, piece);
            at += piece;
        }
        hash_stream_end(&s, pieces);
        assert_memory_equal(whole, pieces, sizeof whole);
        if (size == 0) continue;
        data[begin + rng_below(&random, size)] ^= (uint8_t)(1u << rng_below(&random, 8));
        hash128(data + begin, size, pieces);
        assert_memory_not_equal(whole, pieces, sizeof whole);
    }
}

/* 64 KiB of 251 repeated bytes, as computed without vectors. */
static void the_value_does_not_depend_on_the_processor(void **state) {
    (void)state;
    static uint8_t data[65536];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i % 251);
    uint8_t sum[16];
    char text[33];
    hash128(data, sizeof data, sum);
    hash_hex(sum, sizeof sum, text);
    assert_string_equal(text, "f5e7bc5d3d8675bfaaae63800707a868");
}

static void digits_are_read_as_they_are_written_and_no_others(void **state) {
    (void)state;
    static const char *const bad[] = {"00a7f", "00a7f900", "00A7f9", "00a7g9", "00 7f9", "", "0x00a7"};
    const uint8_t bytes[3] = {0x00, 0xa7, 0xf9};
    uint8_t back[3] = {1, 1, 1};
    char text[7];
    hash_hex(bytes, sizeof bytes, text);
    assert_true(hash_unhex(text, back, sizeof back));
    assert_memory_equal(back, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(hash_unhex(bad[i], back, sizeof back));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values_come_out),
        cmocka_unit_test(the_whole_and_the_pieces_agree),
        cmocka_unit_test(the_value_does_not_depend_on_the_processor),
        cmocka_unit_test(digits_are_read_as_they_are_written_and_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
