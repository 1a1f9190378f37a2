/* The text files of a run's folder that a resume insists on: RUN, which says whose it is, and the starts.
 * Without them the stores may be whole, and nothing resumes all the same. Layout and checks are those of
 * docs/formats/group.md. Only in the folder of a program that saves through pawl/ckpt.h: `pawl train` keeps
 * a run.json instead (run_json.c). A copy of the stores alone has none of these files, and lacks nothing. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "inspect/inspect.h"

/* Such a file is some lines of text. */
#define TEXT_BYTES_MAX 8192u

static bool has(const char *run, const char *name) {
    char *path = NULL;
    struct stat st;
    if (asprintf(&path, "%s/%s", run, name) < 0) return false;
    bool found = lstat(path, &st) == 0;
    free(path);
    return found;
}

static int read_all(int fd, char text[TEXT_BYTES_MAX + 1]) {
    size_t size = 0;
    while (size < TEXT_BYTES_MAX) {
        ssize_t moved = read(fd, text + size, TEXT_BYTES_MAX - size);
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0) return errno;
        if (moved == 0) break;
        size += (size_t)moved;
    }
    text[size] = 0; /* one that is longer is like no text of ours */
    return 0;
}

static pawl_code read_text(const char *path, char text[TEXT_BYTES_MAX + 1], struct pawl_error *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int result = fd < 0 ? errno : read_all(fd, text);
    if (fd >= 0) close(fd);
    return result == 0 ? PAWL_OK
                       : error_set(e, error_code_of_errno(result), result, "%.600s: cannot read", path);
}

/* ---- RUN ---- */

static pawl_code parse_run(const char *path, const char *text, uint8_t id[RUN_ID_BYTES],
                           struct pawl_error *e) {
    char digits[2 * RUN_ID_BYTES + 1] = "", again[128];
    bool good =
        sscanf(text, "pawl run 1\nrun %32[0-9a-f]\n", digits) == 1 && hash_unhex(digits, id, RUN_ID_BYTES);
    snprintf(again, sizeof again, "pawl run 1\nrun %s\n", digits);
    if (good && strcmp(again, text) == 0) return PAWL_OK;
    if (strncmp(text, "pawl run ", 9) == 0 && strncmp(text, "pawl run 1\n", 11) != 0)
        return error_set(e, PAWL_FORMAT, 0, "%.600s: another version of the run's folder, wanted 1", path);
    return error_set(e, PAWL_CORRUPT, 0, "%.600s: names no run, so that nothing can resume", path);
}

static pawl_code check_run(struct pawl_inspect *in, const char *path, char *text, struct pawl_error *e) {
    struct pawl_error why = {0};
    uint8_t id[RUN_ID_BYTES];
    pawl_code code = read_text(path, text, &why);
    if (code == PAWL_OK) code = parse_run(path, text, id, &why);
    if (code == PAWL_OK) return inspect_take_run(in, path, id, e);
    if (code == PAWL_NOT_FOUND)
        code = error_set(&why, PAWL_CORRUPT, 0,
                         "%.600s: missing beside what a run keeps, so that nothing can resume", path);
    struct pawl_inspect_problem like = {
        .kind = PAWL_PROBLEM_IDENTITY, .code = code, .store = in->run, .file = "RUN"};
    inspect_problem_add(in, like, "%s", why.text);
    return PAWL_OK;
}

/* ---- starts ---- */

static bool is_claim(const char *text) {
    uint32_t ranks = 0;
    char token[256] = "", again[sizeof token + 64];
    int got = sscanf(text, "pawl start 1\nranks %" SCNu32 "\ntoken %255[^\n]\n", &ranks, token);
    snprintf(again, sizeof again, "pawl start 1\nranks %" PRIu32 "\ntoken %s\n", ranks, token);
    return got == 2 && strcmp(again, text) == 0;
}

static bool is_resume(const char *text) {
    uint64_t step = 0, incarnation = 0;
    char again[128];
    int got = sscanf(text, "pawl resume 1\nstep %" SCNu64 "\nincarnation %" SCNu64 "\n", &step, &incarnation);
    snprintf(again, sizeof again, "pawl resume 1\nstep %" PRIu64 "\nincarnation %" PRIu64 "\n", step,
             incarnation);
    return got == 2 && strcmp(again, text) == 0;
}

/* "12" or "12.resume"; other names are ignored. */
static bool is_start_name(const char *name, bool *resume) {
    size_t digits = strspn(name, "0123456789");
    *resume = strcmp(name + digits, ".resume") == 0;
    return digits > 0 && digits <= 20 && name[0] != '0' && (name[digits] == 0 || *resume);
}

static void check_start(struct pawl_inspect *in, const char *folder, const char *name, bool resume,
                        char *text) {
    struct pawl_error why = {0};
    char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, name) < 0) {
        in->problem_lost = true;
        return;
    }
    pawl_code code = read_text(path, text, &why);
    if (code == PAWL_OK && !(resume ? is_resume(text) : is_claim(text)))
        code = error_set(&why, PAWL_CORRUPT, 0,
                         "%.600s: not a file of a start; remove it when no process of the run lives", path);
    struct pawl_inspect_problem like = {
        .kind = PAWL_PROBLEM_START, .code = code, .store = folder, .file = name};
    if (code != PAWL_OK && code != PAWL_NOT_FOUND) /* a later start removes those before it */
        inspect_problem_add(in, like, "%s", why.text);
    free(path);
}

static pawl_code check_starts(struct pawl_inspect *in, char *text, struct pawl_error *e) {
    char *path = NULL;
    bool resume;
    if (asprintf(&path, "%s/starts", in->run) < 0) return inspect_no_memory(e);
    DIR *folder = opendir(path);
    int why = folder != NULL ? 0 : errno;
    struct pawl_inspect_problem like = {
        .kind = PAWL_PROBLEM_START, .code = PAWL_IO, .store = in->run, .file = "starts"};
    if (why != 0 && why != ENOENT)
        inspect_problem_add(in, like, "%s: cannot open the folder: %s", path, strerror(why));
    for (const struct dirent *d; folder != NULL && (d = readdir(folder)) != NULL;)
        if (is_start_name(d->d_name, &resume)) check_start(in, path, d->d_name, resume, text);
    if (folder != NULL) closedir(folder);
    free(path);
    return PAWL_OK;
}

pawl_code inspect_group_check(struct pawl_inspect *in, struct pawl_error *e) {
    static const char *const signs[] = {"RUN", "SAVED", "starts", "group"};
    bool ours = false;
    for (size_t i = 0; in->run != NULL && i < sizeof signs / sizeof signs[0]; i++)
        ours = ours || has(in->run, signs[i]);
    if (!ours || has(in->run, "run.json")) return inspect_run_json_check(in, e);
    char *path = NULL, *text = malloc(TEXT_BYTES_MAX + 1);
    if (asprintf(&path, "%s/RUN", in->run) < 0) path = NULL;
    pawl_code code = path == NULL || text == NULL ? inspect_no_memory(e) : check_run(in, path, text, e);
    if (code == PAWL_OK) code = check_starts(in, text, e);
    free(path);
    free(text);
    return code;
}
