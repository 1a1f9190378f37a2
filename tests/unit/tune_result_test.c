/* dir/tune.json: a file of this version reads back; every field is needed, checked and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <cjson/cJSON.h>

#include "kit/tune_kit.h"
#include "tune/tune.h"

static char *golden(size_t *size) {
    char path[400];
    snprintf(path, sizeof path, "%s/tests/golden/tune_result_v1.json", PAWL_SOURCE_DIR);
    return kit_read(path, size);
}

static void the_golden_file_reads_and_writes_the_same(void **state) {
    (void)state;
    static struct pawl_tune_result r;
    struct pawl_error e = {0};
    size_t size;
    char *text = golden(&size);
    if (tune_parse(text, size, &r, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(r.bytes, 1000000000);
    assert_int_equal(r.point_count, 3);
    assert_int_equal(r.points[2].in_flight, 2);
    assert_near(r.points[2].write_s, 0.5, 0);
    assert_int_equal(r.need.keep, 2);
    assert_true(r.need.staged);
    assert_int_equal(r.choice.point.in_flight, 2);
    assert_int_equal(r.choice.interval.every, 5);
    char *again = pawl_tune_json(&r);
    assert_string_equal(again, text);
    free(again);
    free(text);
}

/* Parses the golden file with `path` ("need.keep") set to `json`, or without it (null). */
static pawl_code parse_with(const char *path, const char *json, struct pawl_error *e) {
    static struct pawl_tune_result r;
    size_t size;
    char *text = golden(&size), object[64] = "";
    cJSON *root = cJSON_Parse(text), *in = root;
    const char *dot = strchr(path, '.'), *field = dot != NULL ? dot + 1 : path;
    if (dot != NULL) {
        snprintf(object, sizeof object, "%.*s", (int)(dot - path), path);
        in = cJSON_GetObjectItemCaseSensitive(root, object);
        if (cJSON_IsArray(in)) in = cJSON_GetArrayItem(in, 1);
    }
    assert_true(cJSON_HasObjectItem(in, field));
    if (json != NULL)
        cJSON_ReplaceItemInObjectCaseSensitive(in, field, cJSON_Parse(json));
    else
        cJSON_DeleteItemFromObjectCaseSensitive(in, field);
    char *changed = cJSON_PrintUnformatted(root);
    pawl_code code = tune_parse(changed, strlen(changed), &r, e);
    cJSON_free(changed);
    cJSON_Delete(root);
    free(text);
    return code;
}

static const char *const fields[] = {"pawl_tune",
                                     "bytes",
                                     "probe_bytes",
                                     "store",
                                     "uring_direct",
                                     "note",
                                     "device",
                                     "device.mode",
                                     "device.depth",
                                     "device.piece_bytes",
                                     "device.write_bps",
                                     "device.read_bps",
                                     "copy_bps",
                                     "need",
                                     "need.bytes",
                                     "need.iteration_s",
                                     "need.overhead",
                                     "need.memory_bytes",
                                     "need.storage_bytes",
                                     "need.keep",
                                     "need.spare_slots",
                                     "need.mtbf_s",
                                     "need.load_s",
                                     "need.staged",
                                     "points",
                                     "points.in_flight",
                                     "points.writers",
                                     "points.chunk_bytes",
                                     "points.write_s",
                                     "points.stall_s"};

static void every_missing_or_mistyped_field_is_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const char *values[] = {NULL, "null", "[1]", "-1", "\"\\u0001\""};
        for (size_t k = 0; k < 4; k++) {
            struct pawl_error e = {0};
            if (parse_with(fields[i], values[k], &e) != PAWL_FORMAT)
                fail_msg("%s = %s is taken", fields[i], values[k] != NULL ? values[k] : "(missing)");
            if (strstr(e.text, fields[i]) == NULL) fail_msg("\"%s\" does not name %s", e.text, fields[i]);
        }
    }
}

static void numbers_out_of_range_are_refused(void **state) {
    (void)state;
    struct pawl_error e = {0};
    assert_int_equal(parse_with("pawl_tune", "2", &e), PAWL_FORMAT);
    assert_int_equal(parse_with("need.keep", "1.5", &e), PAWL_FORMAT);
    assert_int_equal(parse_with("need.keep", "4294967296", &e), PAWL_FORMAT);
    assert_int_equal(parse_with("bytes", "0", &e), PAWL_FORMAT);
    assert_int_equal(parse_with("bytes", "1e300", &e), PAWL_FORMAT);
    assert_int_equal(parse_with("points.in_flight", "0", &e), PAWL_FORMAT);
    assert_int_equal(parse_with("points.write_s", "0", &e), PAWL_ARGUMENT); /* a point nobody measured */
}

static void what_is_no_json_is_corrupt_at_every_length(void **state) {
    (void)state;
    static struct pawl_tune_result r;
    size_t size;
    char *text = golden(&size);
    for (size_t i = 0; i + 2 < size; i++)
        if (tune_parse(text, i, &r, NULL) == PAWL_OK) fail_msg("%zu bytes of %zu are taken", i, size);
    assert_int_equal(tune_parse("[]", 2, &r, NULL), PAWL_CORRUPT);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_golden_file_reads_and_writes_the_same),
        cmocka_unit_test(every_missing_or_mistyped_field_is_named),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(what_is_no_json_is_corrupt_at_every_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
