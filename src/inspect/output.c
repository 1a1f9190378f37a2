/* Files that are there whole or not at all: written under a temporary name beside the final one, flushed,
 * renamed, their folder flushed. Without force an existing file is never replaced, not even one that appears
 * while we write; with it, only what inspect_target_check allows. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inspect/inspect.h"

static pawl_code failed(const char *what, const char *path, int os_errno, struct pawl_error *e) {
    return error_set(e, error_code_of_errno(os_errno), os_errno, "%s: %s", path, what);
}

static pawl_code exists(const char *path, struct pawl_error *e) {
    return error_set(e, PAWL_BUSY, 0,
                     "%s exists: remove it, or have it replaced (--force; in C the option force)", path);
}

pawl_code inspect_output_open(struct inspect_output *o, const char *path, bool force, struct pawl_error *e) {
    *o = (struct inspect_output){.fd = -1, .force = force};
    pawl_code code = inspect_target_check(path, e);
    if (code != PAWL_OK) return code;
    if (!force && faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0) return exists(path, e);
    o->final = strdup(path);
    if (o->final == NULL || asprintf(&o->temporary, "%s.%ld.tmp", path, (long)getpid()) < 0) {
        o->temporary = NULL;
        return inspect_no_memory(e);
    }
    o->fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    return o->fd >= 0 ? PAWL_OK : failed("cannot create", o->temporary, errno, e);
}

pawl_code inspect_output_write(struct inspect_output *o, const void *data, size_t size,
                               struct pawl_error *e) {
    for (size_t done = 0; done < size;) {
        ssize_t n = write(o->fd, (const uint8_t *)data + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed("cannot write", o->temporary, errno, e);
        done += (size_t)n;
    }
    return PAWL_OK;
}

pawl_code inspect_output_finish(struct inspect_output *o, struct pawl_error *e) {
    int result = fsync(o->fd) == 0 ? 0 : errno;
    if (close(o->fd) != 0 && result == 0) result = errno;
    o->fd = -1;
    return result == 0 ? PAWL_OK : failed("cannot flush", o->temporary, result, e);
}

pawl_code inspect_output_publish(struct inspect_output *o, struct pawl_error *e) {
    pawl_code code = o->force ? inspect_target_check(o->final, e) : PAWL_OK;
    if (code != PAWL_OK) return code;
    unsigned flags = o->force ? 0 : RENAME_NOREPLACE;
    int result = renameat2(AT_FDCWD, o->temporary, AT_FDCWD, o->final, flags) == 0 ? 0 : errno;
    if (result == EINVAL && !o->force) /* a file system that cannot refuse: link can */
        result = link(o->temporary, o->final) != 0 || unlink(o->temporary) != 0 ? errno : 0;
    if (result == EEXIST) return exists(o->final, e);
    if (result != 0) return failed("cannot take its name", o->final, result, e);
    free(o->temporary);
    o->temporary = NULL;
    return PAWL_OK;
}

void inspect_output_close(struct inspect_output *o) {
    if (o->fd >= 0) close(o->fd);
    if (o->temporary != NULL && o->final != NULL) unlink(o->temporary);
    free(o->temporary);
    free(o->final);
    *o = (struct inspect_output){.fd = -1};
}

pawl_code inspect_sync_folder_of(const char *path, struct pawl_error *e) {
    char *copy = strdup(path);
    if (copy == NULL) return inspect_no_memory(e);
    const char *folder = dirname(copy);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int result = fd < 0 || fsync(fd) != 0 ? errno : 0;
    if (fd >= 0) close(fd);
    pawl_code code = result == 0 ? PAWL_OK : failed("cannot sync the folder", folder, result, e);
    free(copy);
    return code;
}
