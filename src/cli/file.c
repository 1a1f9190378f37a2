/* Results in files: written aside, flushed, put in place in one step, so that a reader never meets half of
 * one.
 *
 * Where the system can, the file has no name until it is whole, so that a killed command leaves nothing;
 * elsewhere it is FILE.PID.tmp until then. A symbolic link stays one: what it leads to is replaced, in its
 * own folder. Tested in tests/e2e/plan_test.py. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

#define LINKS_MAX 40 /* as many as Linux follows */

static int refuse(const struct cli_file *f, const char *what, int os_errno) {
    pawl_code code = os_errno == ENOENT ? PAWL_NOT_FOUND : os_errno == ENOSPC ? PAWL_NO_SPACE : PAWL_IO;
    return cli_error(code, "option -o: %s %s: %s", what, f->path, strerror(os_errno));
}

/* A device or a pipe cannot be replaced, and /dev/stdout is asked for: it is written to. */
static bool is_special(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

/* Bytes of `path` up to its last slash, with it. */
static size_t folder_size(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (size_t)(slash - path) + 1;
}

/* Where the link at `path` leads, seen from where we are. Null with errno. */
static char *next_of(const char *path, size_t size) {
    char *to = malloc(size + 1), *joined = NULL;
    ssize_t got = to == NULL ? -1 : readlink(path, to, size + 1);
    if (got > (ssize_t)size) errno = EAGAIN; /* it was changed meanwhile */
    if (got < 0 || got > (ssize_t)size) return free(to), NULL;
    to[got] = 0;
    if (*to == '/') return to;
    if (asprintf(&joined, "%.*s%s", (int)folder_size(path), path, to) < 0) joined = NULL;
    free(to);
    return joined;
}

/* What `path` names when all links at its end are followed; it need not be there. Null with errno. */
static char *followed(const char *path) {
    struct stat st;
    char *at = strdup(path);
    for (int links = 0; at != NULL && lstat(at, &st) == 0 && S_ISLNK(st.st_mode); links++) {
        /* The size is 0 for links of /proc. */
        char *next = links == LINKS_MAX ? (errno = ELOOP, NULL)
                                        : next_of(at, st.st_size > 0 ? (size_t)st.st_size : 4096);
        free(at);
        at = next;
    }
    return at;
}

/* A file without a name in the folder of the target; -1: not here. It gets its name through /proc. */
static int open_nameless(const char *target) {
    char *folder = strndup(target, folder_size(target));
    if (folder == NULL || access("/proc/self/fd", X_OK) != 0) return free(folder), -1;
    int fd = open(*folder != 0 ? folder : ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    free(folder);
    return fd;
}

static int open_aside(struct cli_file *f) {
    f->target = followed(f->path);
    if (f->target == NULL) return refuse(f, "following", errno);
    if (asprintf(&f->beside, "%s.%d.tmp", f->target, (int)getpid()) < 0) {
        f->beside = NULL;
        return cli_error(PAWL_MEMORY, "no memory to write %s", f->path);
    }
    int fd = open_nameless(f->target);
    f->nameless = fd >= 0;
    if (fd < 0) fd = open(f->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    f->out = fd < 0 ? NULL : fdopen(fd, "w");
    if (f->out != NULL) return 0;
    int code = refuse(f, "making", errno);
    if (fd >= 0) close(fd);
    if (fd >= 0 && !f->nameless) unlink(f->beside);
    return code;
}

static void forget(struct cli_file *f) {
    free(f->target);
    free(f->beside);
    f->target = f->beside = NULL;
}

int cli_file_open(struct cli_file *f, const char *path) {
    *f = (struct cli_file){.path = path, .out = stdout};
    if (path == NULL || strcmp(path, "-") == 0) return f->path = NULL, 0;
    if (is_special(path)) {
        f->out = fopen(path, "we");
        return f->out != NULL ? 0 : refuse(f, "making", errno);
    }
    int code = open_aside(f);
    if (code != 0) forget(f);
    return code;
}

/* linkat replaces nothing, so that the name comes in two steps; between them nothing takes time. */
static bool give_name(const struct cli_file *f) {
    char open_file[40];
    snprintf(open_file, sizeof open_file, "/proc/self/fd/%d", fileno(f->out));
    return linkat(AT_FDCWD, open_file, AT_FDCWD, f->beside, AT_SYMLINK_FOLLOW) == 0;
}

/* The file's content is whole: make it durable and give it its name. */
static int settle(struct cli_file *f) {
    if (fflush(f->out) != 0 || (f->beside != NULL && fsync(fileno(f->out)) != 0))
        return refuse(f, "writing", errno);
    if (f->nameless && !give_name(f)) return refuse(f, "naming", errno);
    f->nameless = false;
    if (f->beside != NULL && rename(f->beside, f->target) != 0) return refuse(f, "renaming to", errno);
    return 0;
}

int cli_file_close(struct cli_file *f, bool written) {
    if (f->path == NULL) return written ? cli_flush() : 0;
    int code = written ? settle(f) : 0;
    bool left = f->beside != NULL && !f->nameless && (!written || code != 0);
    if (fclose(f->out) != 0 && code == 0 && written) code = refuse(f, "closing", errno);
    if (left) unlink(f->beside);
    forget(f);
    return code;
}
