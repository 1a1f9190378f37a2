/* What run/report.h promises: every field by its name, and a file that is whole or as before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cjson/cJSON.h>
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
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

/* What `path` holds is the sample, at step 2, and it is still a `kind`. */
static void assert_sample(int fd, const char *path, mode_t kind) {
    char text[4096];
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode & S_IFMT, kind);
    ssize_t size = read(fd, text, sizeof text);
    assert_true(size > 0);
    cJSON *object = cJSON_ParseWithLength(text, (size_t)size);
    assert_number(object, "final_step", 2);
    cJSON_Delete(object);
}

static void a_link_stays_and_what_it_leads_to_is_replaced(void **state) {
    (void)state;
    char sub[64], link[64], link2[64], path[64];
    struct pawl_error e = {0};
    struct pawl_train_report r = sample();
    snprintf(sub, sizeof sub, "%s/sub", folder);
    snprintf(path, sizeof path, "%s/sub/r.json", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    snprintf(link2, sizeof link2, "%s/link2", folder);
    assert_int_equal(mkdir(sub, 0777), 0);
    assert_int_equal(symlink("sub/r.json", link), 0); /* not there yet */
    assert_int_equal(symlink(link, link2), 0);
    for (int i = 0; i < 2; i++)
        if (report_write(&r, link2, &e) != PAWL_OK) fail_msg("%s", e.text);
    int fd = open(path, O_RDONLY);
    assert_sample(fd, link2, S_IFLNK);
    close(fd);
    assert_int_equal(files_in_folder(), 3);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink(link2, link), 0); /* a ring */
    assert_int_equal(report_write(&r, link, &e), PAWL_IO);
    assert_true(unlink(link) == 0 && unlink(link2) == 0 && rmdir(sub) == 0);
}

static void a_pipe_is_written_to_and_waits_for_nobody(void **state) {
    (void)state;
    char path[64];
    struct pawl_error e = {0};
    struct pawl_train_report r = sample();
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0666), 0);
    alarm(60); /* it would wait for ever */
    assert_int_equal(report_write(&r, path, &e), PAWL_IO);
    assert_non_null(strstr(e.text, "nobody reads"));
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    if (report_write(&r, path, &e) != PAWL_OK) fail_msg("%s", e.text);
    alarm(0);
    assert_sample(fd, path, S_IFIFO);
    close(fd);
    assert_int_equal(files_in_folder(), 1);
    assert_int_equal(unlink(path), 0);
}

static void a_device_stays_one(void **state) {
    (void)state;
    char path[64];
    struct stat st;
    struct pawl_error e = {0};
    struct pawl_train_report r = sample();
    snprintf(path, sizeof path, "%s/full", folder);
    if (mknod(path, S_IFCHR | 0666, makedev(1, 7)) != 0) skip();
    int fd = open(path, O_WRONLY);
    if (fd < 0) { /* this file system has none */
        assert_int_equal(unlink(path), 0);
        skip();
    }
    close(fd);
    assert_int_equal(report_write(&r, path, &e), PAWL_NO_SPACE);
    assert_true(lstat(path, &st) == 0 && S_ISCHR(st.st_mode));
    assert_int_equal(files_in_folder(), 1);
    assert_int_equal(unlink(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_has_its_name),
        cmocka_unit_test(what_did_not_happen_is_null),
        cmocka_unit_test(a_count_above_the_signed_range_is_not_negative),
        cmocka_unit_test(a_report_replaces_the_former_one_and_leaves_nothing_else),
        cmocka_unit_test(a_report_beside_the_working_folder_needs_no_slash),
        cmocka_unit_test(a_report_that_cannot_be_written_is_an_error_and_leaves_nothing),
        cmocka_unit_test(a_link_stays_and_what_it_leads_to_is_replaced),
        cmocka_unit_test(a_pipe_is_written_to_and_waits_for_nobody),
        cmocka_unit_test(a_device_stays_one),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
