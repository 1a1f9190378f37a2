/* See file.h. Tested in tests/unit/run_report_test.c and run_spec_test.c. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pawl_code read_whole(int fd, const char *path, size_t most, const char *what, struct bytes *out,
                            struct pawl_error *e) {
    char chunk[4096];
    for (;;) {
        ssize_t got = read(fd, chunk, sizeof chunk);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return error_set(e, error_code_of_errno(errno), errno, "reading %s %s", what, path);
        if (got == 0) break;
        bytes_put(out, chunk, (size_t)got);
        if (out->size > most)
            return error_set(e, PAWL_ARGUMENT, 0, "%s has more than %zu bytes: is it the %s?", path, most,
                             what);
    }
    return out->failed ? error_set(e, PAWL_MEMORY, 0, "%s: no memory to read it", path) : PAWL_OK;
}

pawl_code file_read(const char *path, size_t most, const char *what, struct bytes *out,
                    struct pawl_error *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return error_set(e, error_code_of_errno(errno), errno, "opening %s %s", what, path);
    pawl_code code = read_whole(fd, path, most, what, out, e);
    close(fd);
    return code;
}

static pawl_code write_all(int fd, const struct bytes *text, const char *path, const char *what,
                           struct pawl_error *e) {
    size_t at = 0;
    while (at < text->size) {
        ssize_t wrote = write(fd, text->data + at, text->size - at);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0)
            return error_set(e, error_code_of_errno(errno), errno, "writing %s %s, %zu bytes of %zu done",
                             what, path, at, text->size);
        at += (size_t)wrote;
    }
    if (fsync(fd) != 0) return error_set(e, error_code_of_errno(errno), errno, "flushing %s %s", what, path);
    return PAWL_OK;
}

/* The rename is durable once its folder is flushed. */
static pawl_code flush_folder(const char *path, const char *what, struct pawl_error *e) {
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
    if (folder == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory to write %s %s", what, path);
    pawl_code code = PAWL_OK;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0)
        code = error_set(e, error_code_of_errno(errno), errno, "flushing folder %s of the %s", folder, what);
    if (fd >= 0) close(fd);
    free(folder);
    return code;
}

static pawl_code write_beside(const struct bytes *text, const char *path, const char *beside,
                              const char *what, struct pawl_error *e) {
    int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return error_set(e, error_code_of_errno(errno), errno, "making %s %s", what, path);
    pawl_code code = write_all(fd, text, path, what, e);
    if (close(fd) != 0 && code == PAWL_OK)
        code = error_set(e, error_code_of_errno(errno), errno, "closing %s %s", what, path);
    if (code == PAWL_OK && rename(beside, path) != 0)
        code = error_set(e, error_code_of_errno(errno), errno, "renaming %s to %s", what, path);
    if (code != PAWL_OK) unlink(beside);
    return code;
}

pawl_code file_replace(const char *path, const struct bytes *text, const char *what, struct pawl_error *e) {
    char *beside = NULL;
    if (text->failed || asprintf(&beside, "%s.%d.tmp", path, (int)gettid()) < 0)
        return error_set(e, PAWL_MEMORY, 0, "no memory to write %s %s", what, path);
    pawl_code code = write_beside(text, path, beside, what, e);
    if (code == PAWL_OK) code = flush_folder(path, what, e);
    free(beside);
    return code;
}
