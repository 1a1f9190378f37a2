/* Implementation of run/report.h. A report replaces the former one whole or not at all: it is written beside
 * it, flushed and renamed. Tested in tests/unit/run_report_test.c. */
#include "run/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json.h"

static void put_u64(struct json *j, const char *key, uint64_t value) {
    if (value <= INT64_MAX)
        json_i64(j, key, (int64_t)value);
    else
        json_f64(j, key, (double)value);
}

void report_json(const struct pawl_train_report *r, struct bytes *out) {
    struct json j = json_begin(out);
    json_object(&j, NULL);
    put_u64(&j, "first_step", r->first_step);
    put_u64(&j, "final_step", r->final_step);
    json_bool(&j, "resumed", r->resumed);
    if (r->resumed)
        put_u64(&j, "resumed_from", r->resumed_from);
    else
        json_null(&j, "resumed_from");
    json_text(&j, "weights_sha256", r->weights_sha256);
    json_f64(&j, "loss_first", r->loss_first);
    json_f64(&j, "loss_last", r->loss_last);
    json_f64(&j, "tokens_per_s", r->tokens_per_s);
    put_u64(&j, "tokens", r->tokens);
    put_u64(&j, "failures", r->failures);
    put_u64(&j, "iterations_redone", r->iterations_redone);
    put_u64(&j, "iterations_undone", r->iterations_undone);
    put_u64(&j, "last_durable_step", r->last_durable_step);
    put_u64(&j, "saves", r->saves);
    put_u64(&j, "saves_skipped", r->saves_skipped);
    put_u64(&j, "saves_failed", r->saves_failed);
    put_u64(&j, "restarts", r->restarts);
    json_f64(&j, "seconds", r->seconds);
    json_end_object(&j);
    bytes_put_u8(out, '\n');
}

static pawl_code write_all(int fd, const struct bytes *text, const char *path, struct pawl_error *e) {
    size_t at = 0;
    while (at < text->size) {
        ssize_t wrote = write(fd, text->data + at, text->size - at);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0)
            return error_set(e, error_code_of_errno(errno), errno, "writing report %s, %zu bytes of %zu done",
                             path, at, text->size);
        at += (size_t)wrote;
    }
    if (fsync(fd) != 0) return error_set(e, error_code_of_errno(errno), errno, "flushing report %s", path);
    return PAWL_OK;
}

/* The rename is durable once its folder is flushed. */
static pawl_code flush_folder(const char *path, struct pawl_error *e) {
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
    if (folder == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory to write report %s", path);
    pawl_code code = PAWL_OK;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        code = error_set(e, error_code_of_errno(errno), errno, "flushing folder %s of the report", folder);
    if (fd >= 0) close(fd);
    free(folder);
    return code;
}

static pawl_code write_beside(const struct bytes *text, const char *path, const char *beside,
                              struct pawl_error *e) {
    int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return error_set(e, error_code_of_errno(errno), errno, "making report %s", path);
    pawl_code code = write_all(fd, text, path, e);
    if (close(fd) != 0 && code == PAWL_OK)
        code = error_set(e, error_code_of_errno(errno), errno, "closing report %s", path);
    if (code == PAWL_OK && rename(beside, path) != 0)
        code = error_set(e, error_code_of_errno(errno), errno, "renaming report to %s", path);
    if (code != PAWL_OK) unlink(beside);
    return code;
}

pawl_code report_write(const struct pawl_train_report *report, const char *path, struct pawl_error *e) {
    struct bytes text = {0};
    char *beside = NULL;
    report_json(report, &text);
    if (text.failed || asprintf(&beside, "%s.%d.tmp", path, (int)gettid()) < 0) {
        bytes_close(&text);
        return error_set(e, PAWL_MEMORY, 0, "no memory to write report %s", path);
    }
    pawl_code code = write_beside(&text, path, beside, e);
    if (code == PAWL_OK) code = flush_folder(path, e);
    free(beside);
    bytes_close(&text);
    return code;
}
