/* From a path to the folders of stores, by what is in it and never by its name alone: a run's folder (it has
 * store/rank-NNNN), the folder of its stores (it has rank-NNNN), or one store (it has a file STORE, a log or
 * a slot). A copy may be any of these. Also the dot files, which the store keeps for itself. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inspect/inspect.h"
#include "store/store.h"

#define RANK_PREFIX "rank-"

static pawl_code failed(const char *what, const char *path, int os_errno, struct pawl_error *e) {
    return error_set(e, error_code_of_errno(os_errno), os_errno, "%s: %s", path, what);
}

/* "rank-0003", "rank-12345": the number, and nothing else behind the prefix. */
static bool rank_of_name(const char *name, uint64_t *rank) {
    size_t prefix = strlen(RANK_PREFIX), size = strlen(name);
    if (strncmp(name, RANK_PREFIX, prefix) != 0 || size < prefix + 4 || size > prefix + 10) return false;
    if (strspn(name + prefix, "0123456789") != size - prefix) return false;
    *rank = strtoull(name + prefix, NULL, 10);
    return true;
}

static bool is_store_file(const char *name) {
    uint32_t number;
    return strcmp(name, LOG_IDENTITY_NAME) == 0 || record_slot_of_name(name, &number) ||
           record_log_of_name(name, &number);
}

struct look { /* what a folder holds */
    bool store_files, store_folder;
    char **ranks;
    uint32_t rank_count;
};

static void look_close(struct look *l) {
    for (uint32_t i = 0; i < l->rank_count; i++) free(l->ranks[i]);
    free(l->ranks);
    *l = (struct look){0};
}

static bool add_text(char ***list, uint32_t *count, char *text) {
    char **more = text == NULL ? NULL : realloc(*list, (*count + 1u) * sizeof **list);
    if (more == NULL) {
        free(text);
        return false;
    }
    *list = more;
    more[(*count)++] = text;
    return true;
}

static pawl_code look_at(const char *path, struct look *out, struct pawl_error *e) {
    *out = (struct look){0};
    DIR *folder = opendir(path);
    if (folder == NULL) return failed("cannot open the folder", path, errno, e);
    pawl_code code = PAWL_OK;
    uint64_t rank;
    while (code == PAWL_OK) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (entry == NULL && errno != 0) code = failed("cannot list the folder", path, errno, e);
        if (entry == NULL) break;
        if (is_store_file(entry->d_name)) out->store_files = true;
        if (strcmp(entry->d_name, "store") == 0) out->store_folder = true;
        if (rank_of_name(entry->d_name, &rank) &&
            !add_text(&out->ranks, &out->rank_count, strdup(entry->d_name)))
            code = inspect_no_memory(e);
    }
    closedir(folder);
    if (code != PAWL_OK) look_close(out);
    return code;
}

static int by_rank(const void *x, const void *y) {
    uint64_t a = 0, b = 0;
    (void)rank_of_name(*(char *const *)x, &a);
    (void)rank_of_name(*(char *const *)y, &b);
    return a != b ? (a < b ? -1 : 1) : strcmp(*(char *const *)x, *(char *const *)y);
}

static pawl_code take_ranks(const char *path, struct look *l, struct inspect_folders *out,
                            struct pawl_error *e) {
    if (l->rank_count > 1) qsort(l->ranks, l->rank_count, sizeof *l->ranks, by_rank);
    for (uint32_t i = 0; i < l->rank_count; i++) {
        char *full = NULL;
        if (asprintf(&full, "%s/%s", path, l->ranks[i]) < 0) full = NULL;
        if (!add_text(&out->paths, &out->count, full)) return inspect_no_memory(e);
    }
    return PAWL_OK;
}

static pawl_code find_in_run(const char *path, struct inspect_folders *out, struct pawl_error *e) {
    struct look l;
    char *below = NULL;
    if (asprintf(&below, "%s/store", path) < 0) return inspect_no_memory(e);
    pawl_code code = look_at(below, &l, e);
    if (code == PAWL_OK) code = take_ranks(below, &l, out, e);
    if (code == PAWL_OK && (out->run = strdup(path)) == NULL) code = inspect_no_memory(e);
    look_close(&l);
    free(below);
    return code;
}

static bool has_file(const char *folder, const char *name) {
    char *path = NULL;
    struct stat st;
    if (asprintf(&path, "%s/%s", folder, name) < 0) return false;
    bool found = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    free(path);
    return found;
}

static bool has_ranks(const char *run) {
    struct look l;
    char *below = NULL;
    if (asprintf(&below, "%s/store", run) < 0) return false;
    bool found = look_at(below, &l, NULL) == PAWL_OK && l.rank_count > 0;
    look_close(&l);
    free(below);
    return found;
}

enum inspect_folder_kind inspect_folder_kind(const char *path) {
    struct look l;
    if (look_at(path, &l, NULL) != PAWL_OK) return INSPECT_FOLDER_OTHER;
    bool store = l.store_files; /* an empty one is known by the run's folder above it */
    bool run = has_file(path, "RUN") || has_file(path, "run.json") || (l.store_folder && has_ranks(path));
    look_close(&l);
    return store ? INSPECT_FOLDER_STORE : run ? INSPECT_FOLDER_RUN : INSPECT_FOLDER_OTHER;
}

/* The store folder or a rank's may stand in a run's folder, which says so by a file of its own. */
static pawl_code find_run_above(const char *path, const char *up, struct inspect_folders *out,
                                struct pawl_error *e) {
    if (asprintf(&out->run, "%s/%s", path, up) < 0) {
        out->run = NULL;
        return inspect_no_memory(e);
    }
    if (has_file(out->run, "RUN") || has_file(out->run, "SAVED") || has_file(out->run, "run.json"))
        return PAWL_OK;
    free(out->run);
    out->run = NULL;
    return PAWL_OK;
}

pawl_code inspect_folders_find(const char *path, struct inspect_folders *out, struct pawl_error *e) {
    *out = (struct inspect_folders){0};
    struct look l;
    pawl_code code = look_at(path, &l, e);
    if (code != PAWL_OK) return code;
    if (l.store_files) {
        if (!add_text(&out->paths, &out->count, strdup(path))) code = inspect_no_memory(e);
        if (code == PAWL_OK) code = find_run_above(path, "../..", out, e);
    } else if (l.rank_count > 0) {
        code = take_ranks(path, &l, out, e);
        if (code == PAWL_OK) code = find_run_above(path, "..", out, e);
    } else if (l.store_folder) {
        code = find_in_run(path, out, e);
    } else {
        code =
            error_set(e, PAWL_NOT_FOUND, 0,
                      "%s: no checkpoints: wanted a run's folder (with store/rank-0000 and so on), its store "
                      "folder, or one rank's",
                      path);
    }
    look_close(&l);
    if (code != PAWL_OK) inspect_folders_close(out);
    return code;
}

void inspect_folders_close(struct inspect_folders *folders) {
    for (uint32_t i = 0; i < folders->count; i++) free(folders->paths[i]);
    free(folders->paths);
    free(folders->run);
    *folders = (struct inspect_folders){0};
}

/* ---- files of a store ---- */

static bool stat_in(const struct store *s, const char *file, struct stat *out) {
    char *path = NULL;
    if (store_kind_of(s) == STORE_SIM || asprintf(&path, "%s/%s", store_path(s), file) < 0) return false;
    bool found = lstat(path, out) == 0;
    free(path);
    return found;
}

int64_t inspect_file_time(const struct store *s, const char *file) {
    struct stat st;
    return stat_in(s, file, &st) ? (int64_t)st.st_mtime : 0;
}

bool inspect_file_bytes(struct store *s, const char *file, uint64_t *bytes) {
    struct stat st;
    struct store_file *f = NULL;
    *bytes = 0;
    if (store_kind_of(s) != STORE_SIM) {
        bool regular = stat_in(s, file, &st) && S_ISREG(st.st_mode);
        if (regular) *bytes = (uint64_t)st.st_size;
        return regular;
    }
    bool found =
        store_file_open(s, file, false, 0, &f, NULL) == PAWL_OK && store_file_size(f, bytes, NULL) == PAWL_OK;
    store_file_close(f);
    return found;
}

/* ".new-NAME" and ".probe-PID"; see docs/formats/store.md. Only files: a folder or a device of that name is
 * somebody's idea, and stays. */
static bool is_temporary(const struct store *s, const char *name) {
    struct stat st;
    bool named = strncmp(name, ".new-", 5) == 0 || (strncmp(name, ".probe-", 7) == 0 && name[7] != 0 &&
                                                    strspn(name + 7, "0123456789") == strlen(name + 7));
    return named && stat_in(s, name, &st) && S_ISREG(st.st_mode);
}

static int by_text(const void *x, const void *y) { return strcmp(*(char *const *)x, *(char *const *)y); }

pawl_code inspect_temporaries(const struct store *s, char ***names, uint32_t *count, struct pawl_error *e) {
    *names = NULL;
    *count = 0;
    if (store_kind_of(s) == STORE_SIM) return PAWL_OK; /* it has no folder to look into */
    DIR *folder = opendir(store_path(s));
    if (folder == NULL) return failed("cannot open the folder", store_path(s), errno, e);
    bool room = true;
    for (const struct dirent *entry; room && (entry = readdir(folder)) != NULL;)
        if (is_temporary(s, entry->d_name)) room = add_text(names, count, strdup(entry->d_name));
    closedir(folder);
    if (!room) {
        store_names_free(*names, *count);
        *names = NULL;
        *count = 0;
        return inspect_no_memory(e);
    }
    if (*count > 1) qsort(*names, *count, sizeof **names, by_text);
    return PAWL_OK;
}

pawl_code inspect_temporary_remove(const struct store *s, const char *name, struct pawl_error *e) {
    int fd = open(store_path(s), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int result = fd < 0 || unlinkat(fd, name, 0) != 0 ? errno : 0;
    if (fd >= 0) close(fd);
    /* Replacing a log or STORE takes the name of what an earlier replacement left over, and then renames it.
     */
    if (result == 0 || (fd >= 0 && result == ENOENT)) return PAWL_OK;
    return error_set(e, error_code_of_errno(result), result, "%s/%s: cannot remove", store_path(s), name);
}
