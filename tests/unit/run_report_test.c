/* What run/report.h promises: every field by its name, and a file that is whole or as before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cjson/cJSON.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "run/report.h"

static char folder[] = "/tmp/pawl-report-XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder); /* fails if a test leaves a file */
}

static struct pawl_train_report sample(void) {
    return (struct pawl_train_report){
        .first_step = 1,
        .final_step = 2,
        .resumed = true,
        .resumed_from = 3,
        .weights_sha256 = "abc",
        .loss_first = 5.5,
        .loss_last = 0.1,
        .tokens_per_s = 1e6,
        .tokens = 4,
        .failures = 5,
        .iterations_redone = 6,
        .iterations_undone = 16,
        .steps_skipped = 24,
        .last_durable_step = 7,
        .saves = 8,
        .saves_skipped = 9,
        .saves_failed = 10,
        .joins = 17,
        .leaves = 18,
        .restores = 11,
        .lost_iterations = 19,
        .lost_seconds = 1.5,
        .contributions_kept = 20,
        .contributions_redone = 21,
        .coordinator_restarts = 22,
        .replans = 23,
        .seconds = 12.25,
    };
}

static cJSON *parsed(const struct pawl_train_report *report) {
    struct bytes text = {0};
    report_json(report, &text);
    assert_false(text.failed);
    assert_int_equal(text.data[text.size - 1], '\n');
    cJSON *object = cJSON_ParseWithLength((char *)text.data, text.size);
    assert_non_null(object);
    bytes_close(&text);
    return object;
}

static void assert_number(const cJSON *object, const char *key, double wanted) {
    double had = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(object, key));
    if (had != wanted) fail_msg("%s is %.17g, wanted %.17g", key, had, wanted);
}

static void every_field_has_its_name(void **state) {
    (void)state;
    struct pawl_train_report r = sample();
    cJSON *object = parsed(&r);
    assert_number(object, "first_step", 1);
    assert_number(object, "final_step", 2);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(object, "resumed")));
    assert_number(object, "resumed_from", 3);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(object, "weights_sha256")), "abc");
    assert_number(object, "loss_first", 5.5);
    assert_number(object, "loss_last", 0.1);
    assert_number(object, "tokens_per_s", 1e6);
    assert_number(object, "tokens", 4);
    assert_number(object, "failures", 5);
    assert_number(object, "iterations_redone", 6);
    assert_number(object, "iterations_undone", 16);
    assert_number(object, "steps_skipped", 24);
    assert_number(object, "last_durable_step", 7);
    assert_number(object, "saves", 8);
    assert_number(object, "saves_skipped", 9);
    assert_number(object, "saves_failed", 10);
    assert_number(object, "joins", 17);
    assert_number(object, "leaves", 18);
    assert_number(object, "restores", 11);
    assert_number(object, "lost_iterations", 19);
    assert_number(object, "lost_seconds", 1.5);
    assert_number(object, "contributions_kept", 20);
    assert_number(object, "contributions_redone", 21);
    assert_number(object, "coordinator_restarts", 22);
    assert_number(object, "replans", 23);
    assert_number(object, "seconds", 12.25);
    assert_int_equal(cJSON_GetArraySize(object), 27);
    cJSON_Delete(object);
}

static void what_did_not_happen_is_null(void **state) {
    (void)state;
    struct pawl_train_report r = sample();
    r.resumed = false;
    r.loss_first = r.loss_last = NAN;
    cJSON *object = parsed(&r);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(object, "resumed")));
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(object, "resumed_from")));
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(object, "loss_first")));
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(object, "loss_last")));
    cJSON_Delete(object);
}

static void a_count_above_the_signed_range_is_not_negative(void **state) {
    (void)state;
    struct pawl_train_report r = sample();
    r.tokens = UINT64_MAX;
    cJSON *object = parsed(&r);
    assert_number(object, "tokens", 0x1p64);
    cJSON_Delete(object);
}

static int files_in_folder(void) {
    int count = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d) != NULL) count++;
    closedir(d);
    return count - 2;
}

static void a_report_replaces_the_former_one_and_leaves_nothing_else(void **state) {
    (void)state;
    char path[64], text[4096];
    struct pawl_error e = {0};
    struct pawl_train_report r = sample();
    snprintf(path, sizeof path, "%s/report.json", folder);
    for (uint64_t step = 100; step < 102; step++) {
        r.final_step = step;
        if (report_write(&r, path, &e) != PAWL_OK) fail_msg("%s", e.text);
        assert_int_equal(files_in_folder(), 1);
    }
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    cJSON *object = cJSON_Parse(text);
    assert_non_null(object);
    assert_number(object, "final_step", 101);
    cJSON_Delete(object);
    assert_int_equal(unlink(path), 0);
}

static void a_report_beside_the_working_folder_needs_no_slash(void **state) {
    (void)state;
    char cwd[256];
    struct pawl_error e = {0};
    struct pawl_train_report r = sample();
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(chdir(folder), 0);
    if (report_write(&r, "r.json", &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(unlink("r.json"), 0);
    assert_int_equal(chdir(cwd), 0);
}

static void a_report_that_cannot_be_written_is_an_error_and_leaves_nothing(void **state) {
    (void)state;
    char path[64];
    struct pawl_error e = {0};
    struct pawl_train_report r = sample();
    assert_int_equal(report_write(&r, "/proc/nonexistent/r.json", &e), PAWL_NOT_FOUND);
    assert_non_null(strstr(e.text, "/proc/nonexistent/r.json"));
    snprintf(path, sizeof path, "%s/sub", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(report_write(&r, path, &e), PAWL_IO); /* a folder is in the way */
    assert_non_null(strstr(e.text, path));
    assert_int_equal(files_in_folder(), 1);
    assert_int_equal(rmdir(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_has_its_name),
        cmocka_unit_test(what_did_not_happen_is_null),
        cmocka_unit_test(a_count_above_the_signed_range_is_not_negative),
        cmocka_unit_test(a_report_replaces_the_former_one_and_leaves_nothing_else),
        cmocka_unit_test(a_report_beside_the_working_folder_needs_no_slash),
        cmocka_unit_test(a_report_that_cannot_be_written_is_an_error_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
