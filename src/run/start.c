/* Implementation of run/start.h: a pipe that exec closes, and that carries errno when exec fails. */
#include "run/start.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Descriptors below are given to children. */
#define REPORT_FD_MIN 4

/* A child that takes longer is taken for started: whoever waits has a run to serve. */
#define AWAIT_MS 1000

pawl_code start_open(int ends[2], struct pawl_error *e) {
    if (pipe2(ends, O_CLOEXEC) == 0) {
        int moved = fcntl(ends[1], F_DUPFD_CLOEXEC, REPORT_FD_MIN), err = errno;
        close(ends[1]);
        if (moved >= 0) {
            ends[1] = moved;
            return PAWL_OK;
        }
        close(ends[0]);
        errno = err;
    }
    ends[0] = ends[1] = -1;
    return error_set(e, PAWL_IO, errno, "no pipe to a process that is to be started");
}

void start_become(const char *image, char *const *words, int report) {
    execv(image, words);
    int err = errno;
    ssize_t n = write(report, &err, sizeof err);
    (void)n; /* 127 is left to tell it */
    _exit(127);
}

static pawl_code refuse(const char *name, int err, struct pawl_error *e) {
    bool no_program = err == EACCES || err == ENOEXEC || err == ENOTDIR || err == EISDIR || err == ELOOP;
    if (err == ENOENT && access(name, F_OK) == 0)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "%s cannot be started: the interpreter that it names is not there", name);
    return error_set(e, no_program ? PAWL_ARGUMENT : error_code_of_errno(err), err, "%s cannot be started",
                     name);
}

pawl_code start_await(int ends[2], pid_t child, const char *name, struct pawl_error *e) {
    int err = 0;
    bool failed = false;
    close(ends[1]);
    if (child > 0 && poll(&(struct pollfd){.fd = ends[0], .events = POLLIN}, 1, AWAIT_MS) == 1)
        failed = read(ends[0], &err, sizeof err) == sizeof err;
    close(ends[0]);
    if (!failed) return PAWL_OK;
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    return refuse(name, err, e);
}

pawl_code start_check(const char *what, const char *path, struct pawl_error *e) {
    struct stat info;
    if (stat(path, &info) != 0)
        return error_set(e, errno == ENOENT ? PAWL_NOT_FOUND : PAWL_ARGUMENT, errno,
                         "%s \"%s\": name a program that is there", what, path);
    if (!S_ISREG(info.st_mode))
        return error_set(e, PAWL_ARGUMENT, 0, "%s \"%s\" is %s: name a program", what, path,
                         S_ISDIR(info.st_mode) ? "a folder" : "not a file");
    if (access(path, X_OK) == 0) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, errno, "%s \"%s\": name a program that may be executed (chmod +x)",
                     what, path);
}
