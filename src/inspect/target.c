/* Where an export may write. A file takes its name by rename, which asks nothing: not what it replaces, nor
 * whose folder that is. So before anything is written, and again before a name is taken: what is there is a
 * regular file or nothing, and it is not part of a checkpoint. Whose folder it is, is told by what is in it,
 * so that any run's and any copy's are kept, not only those of the run that is exported. Links in the
 * path are followed to the real folder; a link in the file's own place is refused. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inspect/inspect.h"

/* docs/formats/group.md and run.md: what a run keeps in its folder, and folders that are all its own. */
static const char *const own_files[] = {"RUN",       "SAVED",       "run.json",  "injected",
                                        "log.jsonl", "report.json", "tune.json", ".lock"};
static const char *const own_folders[] = {"store", "starts", "group", "bad", "scratch"};

static bool is_in(const char *name, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, list[i]) == 0) return true;
    return false;
}

#define IS_IN(name, list) is_in(name, list, sizeof(list) / sizeof(list)[0])

static const char *last_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The real path of the folder that holds the name `path`; null with errno. */
static char *real_folder_of(const char *path) {
    const char *name = last_of(path);
    char *copy = name == path ? strdup(".") : strndup(path, (size_t)(name - path));
    char *real = copy != NULL ? realpath(copy, NULL) : NULL;
    int why = errno;
    free(copy);
    errno = why;
    return real;
}

/* What export writes: the length of a JSON header, and its begin. Else it is somebody else's file. */
static bool looks_exported(const char *path) {
    uint8_t begin[9];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool good = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && read(fd, begin, sizeof begin) == 9;
    if (fd >= 0) close(fd);
    if (!good || st.st_size < 10 || begin[8] != '{') return false;
    uint64_t header = 0;
    for (size_t i = 8; i > 0; i--) header = header << 8 | begin[i - 1];
    return header <= (uint64_t)st.st_size - 8;
}

static pawl_code refuse(const char *path, const char *why, const char *folder, struct pawl_error *e) {
    return error_set(e, PAWL_ARGUMENT, 0, "%.300s: not written there: %s (%.300s)", path, why, folder);
}

/* One folder on the way to the target; `below`: the name in it that the way goes on with. */
static pawl_code check_folder(const char *path, const char *folder, const char *below, bool last,
                              struct pawl_error *e) {
    enum inspect_folder_kind kind = inspect_folder_kind(folder);
    if (kind == INSPECT_FOLDER_STORE) return refuse(path, "it is in a checkpoint store", folder, e);
    if (kind != INSPECT_FOLDER_RUN) return PAWL_OK;
    if (IS_IN(below, own_folders)) return refuse(path, "it is in the files of a run", folder, e);
    if (!last) return PAWL_OK;
    if (IS_IN(below, own_files)) return refuse(path, "a run has a file of that name", folder, e);
    struct stat st;
    if (lstat(path, &st) != 0 || strcmp(below, INSPECT_INDEX_NAME) == 0 || looks_exported(path))
        return PAWL_OK;
    return refuse(path, "a file that export has not written is there, in a run's folder", folder, e);
}

pawl_code inspect_target_check(const char *path, struct pawl_error *e) {
    struct stat st;
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return error_set(e, PAWL_ARGUMENT, 0, "%s: there is something that is no regular file", path);
    char *folder = real_folder_of(path);
    if (folder == NULL) {
        int why = errno;
        return error_set(e, error_code_of_errno(why), why, "%s: cannot write there", path);
    }
    char below[NAME_MAX + 1];
    snprintf(below, sizeof below, "%s", last_of(path));
    pawl_code code = PAWL_OK;
    for (bool last = true; code == PAWL_OK && folder[0] != 0; last = false) {
        code = check_folder(path, folder, below, last, e);
        char *slash = strrchr(folder, '/');
        if (slash == NULL) break;
        snprintf(below, sizeof below, "%s", slash + 1);
        *slash = 0;
    }
    free(folder);
    return code;
}
