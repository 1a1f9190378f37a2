/* The stores of a run as folders: found, opened, named. See saver/run.h. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "saver/run.h"

/* Up to so many stores are read with direct I/O; more would each keep a ring and its memory, and are read
 * through the page cache. */
#define FOLDERS_DIRECT_MAX 64u
/* Descriptors that one store, read through the page cache, and the file being read in it need. */
#define FOLDERS_FILES 3u

static pawl_code no_memory(struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "no memory for the run's stores");
}

/* Does `path`/`name` exist? Not being allowed to know is an error, not a no. */
static pawl_code has(const char *path, const char *name, bool *out, struct pawl_error *e) {
    char *full = NULL;
    struct stat st;
    if (asprintf(&full, "%s/%s", path, name) < 0) return no_memory(e);
    *out = stat(full, &st) == 0;
    int why = *out ? 0 : errno;
    free(full);
    if (*out || why == ENOENT || why == ENOTDIR) return PAWL_OK;
    return error_set(e, error_code_of_errno(why), why, "%.600s: cannot look for %s", path, name);
}

static int is_rank(const struct dirent *d) {
    return strncmp(d->d_name, "rank-", 5) == 0 && d->d_name[5] != 0 &&
           d->d_name[5 + strspn(d->d_name + 5, "0123456789")] == 0;
}

static pawl_code list_ranks(const char *folder, char ***names, uint32_t *count, struct pawl_error *e) {
    struct dirent **found = NULL;
    int n = scandir(folder, &found, is_rank, versionsort);
    if (n < 0)
        return error_set(e, error_code_of_errno(errno), errno, "%.600s: cannot list the folder", folder);
    *names = calloc((size_t)n + 1, sizeof **names);
    *count = 0;
    for (int i = 0; i < n; i++) {
        if (*names != NULL && ((*names)[*count] = strdup(found[i]->d_name)) != NULL) ++*count;
        free(found[i]);
    }
    free(found);
    return *count == (uint32_t)n ? PAWL_OK : no_memory(e);
}

/* The soft limit of a shell is often 1024; the hard one is what the administrator means. */
static void raise_limit(uint32_t stores) {
    struct rlimit limit;
    rlim_t wanted = (rlim_t)stores * FOLDERS_FILES + 256;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* without it an open may fail, and says so */
}

static pawl_code open_ranks(const char *folder, struct saver_stores *out, struct pawl_error *e) {
    uint32_t wanted = 0;
    pawl_code code = list_ranks(folder, &out->names, &wanted, e);
    out->stores = calloc((size_t)wanted + 1, sizeof *out->stores);
    if (code == PAWL_OK && out->stores == NULL) code = no_memory(e);
    raise_limit(wanted);
    enum store_kind kind = wanted <= FOLDERS_DIRECT_MAX ? STORE_AUTO : STORE_PLAIN;
    for (uint32_t i = 0; i < wanted && code == PAWL_OK; i++) {
        char *path = NULL;
        if (asprintf(&path, "%s/%s", folder, out->names[i]) < 0) return no_memory(e);
        code = store_open(path, kind, true, &out->stores[i], NULL, e);
        free(path);
        if (code == PAWL_OK) out->count++;
    }
    for (uint32_t i = out->count; i < wanted; i++) free(out->names[i]); /* of those that did not open */
    return code;
}

static pawl_code open_one(const char *path, struct saver_stores *out, struct pawl_error *e) {
    out->stores = calloc(1, sizeof *out->stores);
    out->names = calloc(1, sizeof *out->names);
    const char *slash = strrchr(path, '/');
    if (out->stores == NULL || out->names == NULL ||
        (out->names[0] = strdup(slash != NULL ? slash + 1 : path)) == NULL)
        return no_memory(e);
    pawl_code code = store_open(path, STORE_AUTO, true, &out->stores[0], NULL, e);
    if (code == PAWL_OK)
        out->count = 1;
    else
        free(out->names[0]);
    return code;
}

/* Is it one rank's store? One that was never used has no file; its name still tells. */
static pawl_code is_store(const char *path, bool *out, struct pawl_error *e) {
    pawl_code code = has(path, "STORE", out, e);
    if (code != PAWL_OK || *out) return code;
    code = has(path, "commit-000001.log", out, e);
    if (code != PAWL_OK || *out) return code;
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    unsigned rank;
    *out = sscanf(name, "rank-%u", &rank) == 1;
    return PAWL_OK;
}

static pawl_code open_path(const char *path, bool none_is_ok, struct saver_stores *out,
                           struct pawl_error *e) {
    struct stat st;
    if (stat(path, &st) != 0)
        return error_set(e, error_code_of_errno(errno), errno, "%.600s: cannot open the folder", path);
    bool yes = false;
    pawl_code code = has(path, "store", &yes, e);
    if (code == PAWL_OK && yes) {
        char *folder = NULL;
        if (asprintf(&folder, "%s/store", path) < 0) return no_memory(e);
        out->run = strdup(path);
        code = out->run == NULL ? no_memory(e) : open_ranks(folder, out, e);
        free(folder);
    } else if (code == PAWL_OK && none_is_ok) {
        out->run = strdup(path);
        code = out->run == NULL ? no_memory(e) : PAWL_OK;
    } else if (code == PAWL_OK && (code = is_store(path, &yes, e)) == PAWL_OK && yes) {
        if (asprintf(&out->run, "%s/../..", path) < 0) return no_memory(e);
        code = open_one(path, out, e);
    } else if (code == PAWL_OK) {
        if (asprintf(&out->run, "%s/..", path) < 0) return no_memory(e);
        code = open_ranks(path, out, e);
    }
    if (code == PAWL_OK && out->count == 0 && !none_is_ok)
        return error_set(e, PAWL_NOT_FOUND, 0, "%.600s: no checkpoint store in it (store/rank-NNNN)", path);
    return code;
}

pawl_code saver_stores_open(const char *path, bool none_is_ok, struct saver_stores *out,
                            struct pawl_error *e) {
    *out = (struct saver_stores){0};
    char *clean = strdup(path);
    if (clean == NULL) return no_memory(e);
    for (size_t n = strlen(clean); n > 1 && clean[n - 1] == '/'; n--) clean[n - 1] = 0;
    pawl_code code = open_path(clean, none_is_ok, out, e);
    free(clean);
    if (code != PAWL_OK) saver_stores_close(out);
    return code;
}

void saver_stores_close(struct saver_stores *s) {
    for (uint32_t i = 0; i < s->count; i++) {
        store_close(s->stores[i]);
        free(s->names[i]);
    }
    free(s->stores);
    free(s->names);
    free(s->run);
    *s = (struct saver_stores){0};
}
