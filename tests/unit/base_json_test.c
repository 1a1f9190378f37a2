/* JSON out: parses with another library, numbers read back equal; hashes and fault points of base/. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cjson/cJSON.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"

static void what_is_written_parses_back(void **state) {
    (void)state;
    struct bytes b = {0};
    struct json j = json_begin(&b);
    json_object(&j, NULL);
    json_text(&j, "quote \"\\\n\x01", "tab\there \xc3\xa9");
    json_array(&j, "list");
    json_i64(&j, NULL, INT64_MIN);
    json_null(&j, NULL);
    json_object(&j, NULL);
    json_end_object(&j);
    json_bool(&j, NULL, true);
    json_end_array(&j);
    json_f64(&j, "nan", NAN);
    json_end_object(&j);
    cJSON *json = cJSON_ParseWithLength((char *)b.data, b.size);
    assert_non_null(json);
    assert_string_equal(cJSON_GetObjectItemCaseSensitive(json, "quote \"\\\n\x01")->valuestring,
                        "tab\there \xc3\xa9");
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "list")), 4);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "nan")));
    cJSON_Delete(json);
    bytes_close(&b);
}

static void every_double_reads_back_equal(void **state) {
    (void)state;
    struct rng_stream rng = {5};
    for (int i = 0; i < 20000; i++) {
        uint64_t raw = rng_next(&rng);
        double v;
        memcpy(&v, &raw, sizeof v);
        if (!isfinite(v)) continue;
        struct bytes b = {0};
        struct json j = json_begin(&b);
        json_f64(&j, NULL, v);
        bytes_put_u8(&b, 0);
        double back = strtod((char *)b.data, NULL);
        assert_memory_equal(&back, &v, sizeof v);
        bytes_close(&b);
    }
}

static void sha256_is_the_standard_one(void **state) {
    (void)state;
    struct hash_sha256 *h = hash_sha256_new();
    hash_sha256_add(h, "a", 1);
    hash_sha256_add(h, "bc", 2);
    char text[65];
    hash_sha256_finish(h, text);
    /* FIPS 180-4 example: "abc" */
    assert_string_equal(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void checksums_tell_one_bit(void **state) {
    (void)state;
    uint8_t raw[1000] = {0}, a[16], b[16];
    uint64_t before = hash64(raw, sizeof raw);
    hash128(raw, sizeof raw, a);
    raw[999] = 1;
    hash128(raw, sizeof raw, b);
    assert_true(hash64(raw, sizeof raw) != before);
    assert_memory_not_equal(a, b, 16);
    assert_true(hash64("", 0) == 0x2d06800538d394c2); /* XXH3_64bits of nothing, seed 0 */
}

static void memory_is_aligned_zeroed_and_refused_when_absurd(void **state) {
    (void)state;
    uint8_t *p = mem_alloc(5);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % MEM_ALIGN, 0);
    for (size_t i = 0; i < MEM_ALIGN; i++) assert_int_equal(p[i], 0);
    mem_free(p, 5);
    assert_null(mem_alloc(0));
    assert_null(mem_alloc(SIZE_MAX));
    uint64_t out;
    assert_false(mem_mul(UINT64_MAX, 2, &out));
    assert_false(mem_add(UINT64_MAX, 1, &out));
    assert_true(mem_mul(3, 5, &out) && out == 15);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_parses_back),
        cmocka_unit_test(every_double_reads_back_equal),
        cmocka_unit_test(sha256_is_the_standard_one),
        cmocka_unit_test(checksums_tell_one_bit),
        cmocka_unit_test(memory_is_aligned_zeroed_and_refused_when_absurd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
