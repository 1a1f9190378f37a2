/* Implementation of run/outputs.h. A file takes its name by rename (base/file.h), which does not ask what it
 * replaces. Tested in tests/e2e/train_test.py. */
#include "run/outputs.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

/* docs/formats/run.md: what a run keeps in its folder. */
static const char *const own_names[] = {"run.json",  "engine.json", "injected",       "STOP",  "admin.sock",
                                        "log.jsonl", "report.json", "evidence-*.txt", ".lock", "store"};

struct output {
    const char *option, *path;
    bool appends;     /* the log: where it cannot be opened, the opening says so */
    char *target;     /* what it leads to; null: not a file, or not asked for */
    char *folder;     /* the real one of the target */
    const char *name; /* of the target, in its folder */
};

static pawl_code refuse(const struct output *o, const char *why, struct pawl_error *e) {
    return error_set(e, PAWL_ARGUMENT, 0, "%s %s: %s", o->option, o->path, why);
}

static bool is_own(const char *name) {
    for (size_t i = 0; i < sizeof own_names / sizeof own_names[0]; i++)
        if (fnmatch(own_names[i], name, 0) == 0) return true;
    return false;
}

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool has(const char *folder, const char *name) {
    char path[SPEC_TEXT_MAX + PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* Fills target, folder, name; false with errno. */
static bool follow(struct output *o) {
    o->target = file_followed(o->path);
    if (o->target == NULL) return false;
    const char *slash = strrchr(o->target, '/');
    o->name = slash == NULL ? o->target : slash + 1;
    char *folder = slash == NULL ? strdup(".") : strndup(o->target, (size_t)(slash - o->target) + 1);
    o->folder = folder == NULL ? NULL : realpath(folder, NULL);
    int why = errno;
    free(folder);
    errno = why;
    return o->folder != NULL;
}

/* What is there and is no regular file. */
static pawl_code check_special(const struct output *o, mode_t mode, struct pawl_error *e) {
    if (S_ISDIR(mode)) return refuse(o, "it is a folder: name a file", e);
    if (S_ISSOCK(mode)) return refuse(o, "it is a socket: name a file", e);
    if (access(o->path, W_OK) == 0) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, errno, "%s %s: choose a file that you may write to", o->option,
                     o->path);
}

/* A profile may take the place of the one that planning begins with: it is a better one. */
static pawl_code check_inputs(const struct output *o, const struct spec *s, const char *spec_path,
                              struct pawl_error *e) {
    const struct {
        const char *what, *path;
    } inputs[] = {{"the spec", spec_path},
                  {"data.path", s->data.path},
                  {"model.weights", s->model.weights},
                  {"torch.module", s->torch.module},
                  {"emulated.profile", s->emulated.profile}};
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        if (same_file(o->target, inputs[i].path))
            return error_set(e, PAWL_ARGUMENT, 0, "%s %s: it is %s, which the run reads: name another file",
                             o->option, o->path, inputs[i].what);
    return PAWL_OK;
}

/* Upwards: the files of a run are in its folder, or in a folder of its own there. */
static pawl_code check_runs(const struct output *o, const struct spec *s, struct pawl_error *e) {
    char folder[PATH_MAX], below[PATH_MAX];
    /* Where the report is written in any case. */
    bool own_report = strcmp(o->option, "--report") == 0 && strcmp(o->name, "report.json") == 0;
    if (own_report && same_file(o->folder, s->run.dir)) return PAWL_OK;
    snprintf(folder, sizeof folder, "%s", o->folder);
    snprintf(below, sizeof below, "%s", o->name);
    while (folder[0] != 0) {
        bool run = same_file(folder, s->run.dir) || (has(folder, "run.json") && has(folder, "store"));
        if (run && is_own(below)) return refuse(o, "a run keeps a file of its own there: name another", e);
        char *slash = strrchr(folder, '/');
        if (slash == NULL) break;
        snprintf(below, sizeof below, "%s", slash + 1);
        *slash = 0;
    }
    return PAWL_OK;
}

static pawl_code check(struct output *o, const struct spec *s, const char *spec_path, struct pawl_error *e) {
    struct stat st;
    if (o->path == NULL) return PAWL_OK;
    if (o->path[0] == 0 || o->path[strlen(o->path) - 1] == '/')
        return error_set(e, PAWL_ARGUMENT, 0, "%s \"%s\": name a file", o->option, o->path);
    if (stat(o->path, &st) == 0 && !S_ISREG(st.st_mode)) return check_special(o, st.st_mode, e);
    if (!follow(o) || (!o->appends && access(o->folder, W_OK | X_OK) != 0)) {
        if (o->appends) return PAWL_OK;
        return error_set(e, PAWL_ARGUMENT, errno, "%s %s: choose a folder that you may write to", o->option,
                         o->path);
    }
    pawl_code code = check_inputs(o, s, spec_path, e);
    return code == PAWL_OK ? check_runs(o, s, e) : code;
}

static bool same_place(const struct output *a, const struct output *b) {
    return a->folder != NULL && b->folder != NULL && strcmp(a->name, b->name) == 0 &&
           strcmp(a->folder, b->folder) == 0;
}

static pawl_code check_own_report(const struct spec *s, struct pawl_error *e) {
    char path[SPEC_TEXT_MAX + 16];
    struct stat st;
    snprintf(path, sizeof path, "%s/report.json", s->run.dir);
    if (stat(path, &st) != 0 || S_ISREG(st.st_mode)) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0, "%s is no file, but the report is to be written there: remove it",
                     path);
}

pawl_code outputs_check(const struct spec *spec, const struct pawl_train_options *options,
                        struct pawl_error *e) {
    struct output all[] = {{.option = "--report", .path = options->report_path},
                           {.option = "--profile-out", .path = options->profile_path},
                           {.option = "--log", .path = options->log_path, .appends = true}};
    const size_t count = sizeof all / sizeof all[0];
    pawl_code code = check_own_report(spec, e);
    for (size_t i = 0; i < count && code == PAWL_OK; i++) {
        code = check(&all[i], spec, options->spec_path, e);
        for (size_t k = 0; k < i && code == PAWL_OK; k++)
            if (same_place(&all[k], &all[i]))
                code = error_set(e, PAWL_ARGUMENT, 0, "%s and %s both name %s: name two files", all[k].option,
                                 all[i].option, all[i].path);
    }
    for (size_t i = 0; i < count; i++) {
        free(all[i].target);
        free(all[i].folder);
    }
    return code;
}
