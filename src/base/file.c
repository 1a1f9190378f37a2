/* See file.h. Tested in tests/unit/run_report_test.c and run_spec_test.c. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINKS_MAX 40    /* as many as Linux follows */
#define READER_MS 10000 /* for a pipe's reader to go on */

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

/* The signal is held back and, if ours, taken away. */
ssize_t file_write_unsignalled(int fd, const void *data, size_t size) {
    sigset_t pipe_set, old, pending;
    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    sigpending(&pending);
    bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_set, &old);
    ssize_t wrote;
    do wrote = write(fd, data, size);
    while (wrote < 0 && errno == EINTR);
    int err = errno;
    if (wrote < 0 && err == EPIPE && !was_pending) sigtimedwait(&pipe_set, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = err;
    return wrote;
}

/* The next of a chain of links. Null with errno. */
static char *next_of(const char *link) {
    char to[PATH_MAX + 1], *joined = NULL;
    const char *slash = strrchr(link, '/');
    ssize_t got = readlink(link, to, sizeof to);
    if (got == (ssize_t)sizeof to) errno = ENAMETOOLONG;
    if (got < 0 || got == (ssize_t)sizeof to) return NULL;
    to[got] = 0;
    if (*to == '/' || slash == NULL) return strdup(to);
    return asprintf(&joined, "%.*s/%s", (int)(slash - link), link, to) < 0 ? NULL : joined;
}

char *file_followed(const char *path) {
    struct stat st;
    char *at = strdup(path);
    for (int links = 0; at != NULL && lstat(at, &st) == 0 && S_ISLNK(st.st_mode); links++) {
        char *next = links == LINKS_MAX ? (errno = ELOOP, NULL) : next_of(at);
        int why = errno;
        free(at);
        errno = why;
        at = next;
    }
    return at;
}

/* All of it, by writes that do not block. */
static pawl_code feed(int fd, const struct bytes *text, const char *path, const char *what,
                      struct pawl_error *e) {
    for (size_t at = 0; at < text->size;) {
        struct pollfd out = {.fd = fd, .events = POLLOUT};
        if (poll(&out, 1, READER_MS) == 0)
            return error_set(e, PAWL_IO, 0, "writing %s %s: nobody has read there for %d s", what, path,
                             READER_MS / 1000);
        ssize_t wrote = file_write_unsignalled(fd, text->data + at, text->size - at);
        if (wrote < 0 && errno != EAGAIN)
            return error_set(e, error_code_of_errno(errno), errno, "writing %s %s, %zu bytes of %zu done",
                             what, path, at, text->size);
        if (wrote > 0) at += (size_t)wrote;
    }
    return PAWL_OK;
}

/* Nobody can hold up a run by not reading. */
static pawl_code write_into(const char *path, const struct bytes *text, const char *what,
                            struct pawl_error *e) {
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 && errno == ENXIO)
        return error_set(e, PAWL_IO, ENXIO, "writing %s %s: nobody reads there", what, path);
    if (fd < 0) return error_set(e, error_code_of_errno(errno), errno, "opening %s %s", what, path);
    pawl_code code = feed(fd, text, path, what, e);
    if (close(fd) != 0 && code == PAWL_OK)
        code = error_set(e, error_code_of_errno(errno), errno, "closing %s %s", what, path);
    return code;
}

pawl_code file_replace(const char *path, const struct bytes *text, const char *what, struct pawl_error *e) {
    struct stat st;
    char *beside = NULL;
    if (text->failed) return error_set(e, PAWL_MEMORY, 0, "no memory to write %s %s", what, path);
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) return write_into(path, text, what, e);
    char *target = file_followed(path);
    if (target == NULL) return error_set(e, error_code_of_errno(errno), errno, "following %s %s", what, path);
    if (asprintf(&beside, "%s.%d.tmp", target, (int)gettid()) < 0) {
        free(target);
        return error_set(e, PAWL_MEMORY, 0, "no memory to write %s %s", what, path);
    }
    pawl_code code = write_beside(text, target, beside, what, e);
    if (code == PAWL_OK) code = flush_folder(target, what, e);
    free(beside);
    free(target);
    return code;
}
