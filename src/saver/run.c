/* Small files of the run's folder; see saver/run.h. */
#include "saver/run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

#define RUN_FILE   "RUN"
#define SAVED_FILE "SAVED"
#define TRAIN_FILE "run.json" /* of a run that `pawl train` keeps */
/* Such a file is some lines of text. */
#define RUN_TEXT_BYTES_MAX 8192u

static pawl_code fail(const char *path, const char *what, int os_errno, struct pawl_error *e) {
    return error_set(e, error_code_of_errno(os_errno), os_errno, "%.600s: %s", path, what);
}

static pawl_code no_memory(struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "no memory for the run's folder");
}

char *run_path(const struct saver_run *run, const char *folder, const char *name) {
    char *out;
    const char *slash = folder[0] != 0 && name[0] != 0 ? "/" : "";
    return asprintf(&out, "%s/%s%s%s", run->path, folder, slash, name) < 0 ? NULL : out;
}

/* ---- folders ---- */

static int sync_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    int result = fsync(fd) == 0 ? 0 : errno;
    close(fd);
    return result;
}

/* The folder that holds the name `path`. */
static int sync_parent(const char *path) {
    char *parent = strdup(path), *slash = parent != NULL ? strrchr(parent, '/') : NULL;
    if (parent == NULL) return ENOMEM;
    if (slash != NULL) slash[slash == parent] = 0;
    int result = sync_folder(slash != NULL ? parent : ".");
    free(parent);
    return result;
}

/* mkdir -p, each new name made durable. */
static pawl_code make_folders(const char *path, struct pawl_error *e) {
    char *part = strdup(path);
    if (part == NULL) return no_memory(e);
    int result = 0;
    for (char *at = part + 1; result == 0; at++) {
        if (*at != '/' && *at != 0) continue;
        char cut = *at;
        *at = 0;
        if (mkdir(part, 0777) == 0)
            result = sync_parent(part);
        else if (errno != EEXIST)
            result = errno;
        *at = cut;
        if (cut == 0) break;
    }
    free(part);
    return result == 0 ? PAWL_OK : fail(path, "cannot make the folder", result, e);
}

pawl_code run_folder(const struct saver_run *run, const char *folder, struct pawl_error *e) {
    char *path = run_path(run, folder, "");
    pawl_code code = path == NULL ? no_memory(e) : make_folders(path, e);
    free(path);
    return code;
}

/* ---- files ---- */

static int write_all(int fd, const char *text, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t moved = write(fd, text + done, bytes - done);
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0) return errno;
        done += (size_t)moved;
    }
    return fdatasync(fd) == 0 ? 0 : errno;
}

/* Over a network an answer may get lost: that link(2) failed does not say that the link was not made. */
static int link_exclusively(int fd, const char *temporary, const char *path) {
    if (link(temporary, path) == 0) return 0;
    int why = errno;
    struct stat st;
    return why == EEXIST && fstat(fd, &st) == 0 && st.st_nlink == 2 ? 0 : why;
}

static pawl_code make_at(const char *path, const char *temporary, const char *text, struct pawl_error *e) {
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return fail(temporary, "cannot create", errno, e);
    int result = write_all(fd, text, strlen(text));
    if (result == 0) result = link_exclusively(fd, temporary, path);
    close(fd);
    unlink(temporary);
    if (result == EEXIST) return error_set(e, PAWL_BUSY, 0, "%.600s exists", path);
    if (result == 0) result = sync_parent(path);
    return result == 0 ? PAWL_OK : fail(path, "cannot make", result, e);
}

pawl_code run_make(const struct saver_run *run, const char *folder, const char *name, const char *text,
                   struct pawl_error *e) {
    uint64_t random = 0;
    char hidden[96], *path = run_path(run, folder, name), *temporary = NULL;
    pawl_code code = path == NULL ? no_memory(e) : PAWL_OK;
    if (code == PAWL_OK && getrandom(&random, sizeof random, 0) != sizeof random)
        code = error_set(e, PAWL_IO, errno, "no random bytes for a name");
    snprintf(hidden, sizeof hidden, ".new-%.40s-%016" PRIx64, name, random);
    if (code == PAWL_OK && (temporary = run_path(run, folder, hidden)) == NULL) code = no_memory(e);
    if (code == PAWL_OK) code = run_folder(run, folder, e);
    if (code == PAWL_OK) code = make_at(path, temporary, text, e);
    free(path);
    free(temporary);
    return code;
}

static pawl_code read_at(const char *path, char **out, struct pawl_error *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return fail(path, "cannot open", errno, e);
    char *text = malloc(RUN_TEXT_BYTES_MAX + 1);
    size_t size = 0;
    int result = text == NULL ? ENOMEM : 0;
    while (result == 0 && size < RUN_TEXT_BYTES_MAX) {
        ssize_t moved = read(fd, text + size, RUN_TEXT_BYTES_MAX - size);
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0) result = errno;
        if (moved <= 0) break;
        size += (size_t)moved;
    }
    close(fd);
    if (result == 0 && size == RUN_TEXT_BYTES_MAX) {
        free(text);
        return error_set(e, PAWL_CORRUPT, 0, "%.600s: wanted less than %u bytes of text", path,
                         RUN_TEXT_BYTES_MAX);
    }
    if (result != 0) {
        free(text);
        return fail(path, "cannot read", result, e);
    }
    text[size] = 0;
    *out = text;
    return PAWL_OK;
}

pawl_code run_read(const struct saver_run *run, const char *folder, const char *name, char **out,
                   struct pawl_error *e) {
    *out = NULL;
    char *path = run_path(run, folder, name);
    if (path == NULL) return no_memory(e);
    pawl_code code = read_at(path, out, e);
    free(path);
    return code;
}

pawl_code run_check_number(const struct saver_run *run, const char *folder, const char *name, uint64_t number,
                           struct pawl_error *e) {
    if (number <= CKPT_START_MAX) return PAWL_OK;
    return error_set(e, PAWL_CORRUPT, 0,
                     "%.500s/%s/%.100s: no start has a number above %llu; remove the file when no process of "
                     "the run lives",
                     run->path, folder, name, CKPT_START_MAX);
}

void run_remove(const struct saver_run *run, const char *folder, const char *name) {
    char *path = run_path(run, folder, name);
    if (path != NULL) unlink(path); /* left over, it would only be looked at again */
    free(path);
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int read_names(DIR *dir, char ***names, uint32_t *count) {
    uint32_t room = 0;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL) return errno;
        if (entry->d_name[0] == '.') continue;
        if (*count == room) {
            room = room == 0 ? 16 : 2 * room;
            char **more = realloc(*names, room * sizeof *more);
            if (more == NULL) return ENOMEM;
            *names = more;
        }
        char *name = strdup(entry->d_name);
        if (name == NULL) return ENOMEM;
        (*names)[(*count)++] = name;
    }
}

static pawl_code list_at(const char *path, char ***names, uint32_t *count, struct pawl_error *e) {
    *names = NULL;
    *count = 0;
    DIR *dir = opendir(path);
    if (dir == NULL && errno == ENOENT) return PAWL_OK;
    if (dir == NULL) return fail(path, "cannot list the folder", errno, e);
    int result = read_names(dir, names, count);
    closedir(dir);
    if (result == 0) {
        if (*count > 0) qsort(*names, *count, sizeof **names, by_text);
        return PAWL_OK;
    }
    store_names_free(*names, *count);
    *names = NULL;
    *count = 0;
    return fail(path, "cannot list the folder", result, e);
}

pawl_code run_list(const struct saver_run *run, const char *folder, char ***names, uint32_t *count,
                   struct pawl_error *e) {
    *names = NULL;
    *count = 0;
    char *path = run_path(run, folder, "");
    if (path == NULL) return no_memory(e);
    pawl_code code = list_at(path, names, count, e);
    free(path);
    return code;
}

/* ---- whose run it is ---- */

static bool is_zero(const uint8_t id[PAWL_RUN_ID_BYTES]) {
    static const uint8_t zeros[PAWL_RUN_ID_BYTES];
    return memcmp(id, zeros, sizeof zeros) == 0;
}

static void print_run(const uint8_t id[PAWL_RUN_ID_BYTES], char *out, size_t size) {
    char hex[2 * PAWL_RUN_ID_BYTES + 1];
    hash_hex(id, PAWL_RUN_ID_BYTES, hex);
    snprintf(out, size, "pawl run 1\nrun %s\n", hex);
}

static pawl_code read_identity(struct saver_run *run, struct pawl_error *e) {
    char *text = NULL, digits[2 * PAWL_RUN_ID_BYTES + 1] = "", again[128];
    pawl_code code = run_read(run, "", RUN_FILE, &text, e);
    if (code != PAWL_OK) return code;
    bool good = sscanf(text, "pawl run 1\nrun %32[0-9a-f]\n", digits) == 1 &&
                hash_unhex(digits, run->id, sizeof run->id);
    print_run(run->id, again, sizeof again);
    good = good && strcmp(again, text) == 0;
    bool newer = strncmp(text, "pawl run ", 9) == 0 && strncmp(text, "pawl run 1\n", 11) != 0;
    free(text);
    if (good) return PAWL_OK;
    return error_set(e, newer ? PAWL_FORMAT : PAWL_CORRUPT, 0, "%.600s/%s: %s", run->path, RUN_FILE,
                     newer ? "another version of the run's folder, this program reads 1"
                           : "damaged: names no run; restore it from a copy");
}

static bool exists(const struct saver_run *run, const char *name) {
    char *path = run_path(run, "", name);
    struct stat st;
    bool there = path != NULL && lstat(path, &st) == 0;
    free(path);
    return there;
}

static pawl_code create_identity(struct saver_run *run, const struct run_open *how, struct pawl_error *e) {
    if (how->must_exist)
        return error_set(e, PAWL_NOT_FOUND, 0, "%.600s: there is no run (no file %s in it)", run->path,
                         RUN_FILE);
    if (exists(run, "store"))
        return error_set(e, PAWL_FOREIGN, 0, "%.600s holds stores, but no file %s that says whose", run->path,
                         RUN_FILE);
    memcpy(run->id, how->id, sizeof run->id);
    if (is_zero(run->id) && getrandom(run->id, sizeof run->id, 0) != sizeof run->id)
        return error_set(e, PAWL_IO, errno, "no random bytes for a run id");
    char text[128];
    print_run(run->id, text, sizeof text);
    pawl_code code = run_make(run, "", RUN_FILE, text, e);
    return code == PAWL_BUSY ? read_identity(run, e) : code; /* another rank was first */
}

pawl_code run_open(const char *path, const struct run_open *how, struct saver_run *out,
                   struct pawl_error *e) {
    *out = (struct saver_run){.path = strdup(path)};
    if (out->path == NULL) return no_memory(e);
    for (size_t n = strlen(out->path); n > 1 && out->path[n - 1] == '/'; n--) out->path[n - 1] = 0;
    struct pawl_error why = {0};
    pawl_code code;
    if (exists(out, TRAIN_FILE))
        code = error_set(&why, PAWL_FOREIGN, 0, "%.600s is a folder of `pawl train` (it has a file %s)", path,
                         TRAIN_FILE);
    else
        code = read_identity(out, &why);
    if (code == PAWL_NOT_FOUND) code = create_identity(out, how, &why);
    if (code == PAWL_OK && !is_zero(how->id) && memcmp(how->id, out->id, sizeof out->id) != 0) {
        char theirs[2 * PAWL_RUN_ID_BYTES + 1], ours[2 * PAWL_RUN_ID_BYTES + 1];
        hash_hex(out->id, sizeof out->id, theirs);
        hash_hex(how->id, sizeof how->id, ours);
        code =
            error_set(&why, PAWL_FOREIGN, 0, "%.600s: belongs to run %s, this is run %s", path, theirs, ours);
    }
    if (code == PAWL_OK) return code;
    if (e != NULL) *e = why;
    run_close(out);
    return code;
}

void run_close(struct saver_run *run) {
    free(run->path);
    *run = (struct saver_run){0};
}

pawl_code run_note_saved(const struct saver_run *run, struct pawl_error *e) {
    if (run->path == NULL) return PAWL_OK;
    pawl_code code = run_make(run, "", SAVED_FILE, "pawl saved 1\n", e);
    return code == PAWL_BUSY ? PAWL_OK : code;
}

pawl_code run_was_saved(const struct saver_run *run, bool *saved, struct pawl_error *e) {
    *saved = false;
    if (run->path == NULL) return PAWL_OK;
    char *text = NULL;
    struct pawl_error why = {0};
    pawl_code code = run_read(run, "", SAVED_FILE, &text, &why);
    free(text);
    *saved = code != PAWL_NOT_FOUND;
    if (code == PAWL_OK || code == PAWL_NOT_FOUND) return PAWL_OK;
    if (e != NULL) *e = why;
    return code;
}

/* ---- marks ---- */

static pawl_code read_marks(const struct saver_run *run, const char *folder, struct ckpt_marks *out,
                            struct pawl_error *e) {
    char **names = NULL;
    uint32_t count = 0;
    pawl_code code = run_list(run, folder, &names, &count, e);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++)
        code = ckpt_marks_add_name(out, run->path, folder, names[i], e);
    store_names_free(names, count);
    return code;
}

pawl_code run_marks(const struct saver_run *run, struct ckpt_marks *out, struct pawl_error *e) {
    *out = (struct ckpt_marks){0};
    if (run->path == NULL) return PAWL_OK;
    pawl_code code = read_marks(run, CKPT_MARK_BAD, out, e);
    if (code == PAWL_OK) code = read_marks(run, CKPT_MARK_SCRATCH, out, e);
    if (code != PAWL_OK) ckpt_marks_close(out);
    return code;
}

pawl_code run_mark_bad(const struct saver_run *run, uint64_t step, uint64_t incarnation, const char *why,
                       struct pawl_error *e) {
    if (run->path == NULL) return PAWL_OK;
    char name[RUN_NUMBER_BYTES], text[1024];
    snprintf(name, sizeof name, "%" PRIu64 "-%" PRIu64, step, incarnation);
    snprintf(text, sizeof text, "pawl bad 1\n%.900s\n", why);
    pawl_code code = run_make(run, CKPT_MARK_BAD, name, text, e);
    return code == PAWL_BUSY ? PAWL_OK : code;
}

pawl_code run_mark_scratch(const struct saver_run *run, uint64_t incarnation, struct pawl_error *e) {
    if (run->path == NULL) return PAWL_OK;
    char name[RUN_NUMBER_BYTES];
    snprintf(name, sizeof name, "%" PRIu64, incarnation);
    pawl_code code = run_make(run, CKPT_MARK_SCRATCH, name, "pawl scratch 1\n", e);
    return code == PAWL_BUSY ? PAWL_OK : code;
}
