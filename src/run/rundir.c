/* Implementation of run/rundir.h. */
#include "run/rundir.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/json.h"

#define RUN_FILE   "run.json"
#define RUN_FORMAT 1
/* A spec's text, some lines: beyond that somebody else wrote the file, and it is not read. */
#define SMALL_BYTES_MAX ((uint64_t)16 << 20)

/* The end of the log that is searched for the last step: some hundred lines. */
#define LOG_TAIL_BYTES (256u << 10)

static pawl_code write_run_file(struct rundir *d, struct pawl_error *e) {
    struct bytes out = {0};
    char id[2 * CKPT_RUN_ID_BYTES + 1];
    hash_hex(d->run_id, sizeof d->run_id, id);
    bytes_put_u8(&d->identity, 0); /* terminated for the writer, then cut again */
    struct json j = json_begin(&out);
    json_object(&j, NULL);
    json_i64(&j, "format", RUN_FORMAT);
    json_text(&j, "run_id", id);
    json_i64(&j, "incarnation", (int64_t)d->incarnation);
    json_bool(&j, "had_durable", d->had_durable);
    json_text(&j, "identity", (const char *)d->identity.data);
    json_end_object(&j);
    d->identity.size--;
    pawl_code code = out.failed ? error_set(e, PAWL_MEMORY, 0, "no memory for %s", RUN_FILE)
                                : store_put(d->store, RUN_FILE, out.data, out.size, e);
    bytes_close(&out);
    return code;
}

static pawl_code parse_run_file(struct rundir *d, const uint8_t *data, size_t bytes, struct pawl_error *e) {
    cJSON *json = cJSON_ParseWithLength((const char *)data, bytes);
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(json, "format");
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(json, "run_id");
    const cJSON *incarnation = cJSON_GetObjectItemCaseSensitive(json, "incarnation");
    const cJSON *durable = cJSON_GetObjectItemCaseSensitive(json, "had_durable");
    const cJSON *identity = cJSON_GetObjectItemCaseSensitive(json, "identity");
    bool good = cJSON_IsNumber(format) && cJSON_IsString(id) && cJSON_IsNumber(incarnation) &&
                cJSON_IsBool(durable) && cJSON_IsString(identity) && format->valuedouble == RUN_FORMAT &&
                incarnation->valuedouble >= 0 && incarnation->valuedouble < 0x1p53 &&
                hash_unhex(id->valuestring, d->run_id, sizeof d->run_id);
    if (good) {
        d->incarnation = (uint64_t)incarnation->valuedouble;
        d->had_durable = cJSON_IsTrue(durable);
        bytes_put(&d->identity, identity->valuestring, strlen(identity->valuestring));
    }
    cJSON_Delete(json);
    return good ? PAWL_OK
                : error_set(e, PAWL_FORMAT, 0,
                            "%s/%s is damaged or of another format than %d: restore it from a "
                            "copy, or use another run.dir",
                            store_path(d->store), RUN_FILE, RUN_FORMAT);
}

static pawl_code create_run(struct rundir *d, const struct spec *spec, struct pawl_error *e) {
    if (getrandom(d->run_id, sizeof d->run_id, 0) != sizeof d->run_id)
        return error_set(e, PAWL_IO, errno, "no random bytes for a run id");
    spec_identity(spec, &d->identity);
    return write_run_file(d, e);
}

pawl_code rundir_take_over(struct rundir *d, const struct spec *spec, struct pawl_error *e) {
    struct bytes identity = {0};
    spec_identity(spec, &identity);
    if (identity.failed) {
        bytes_close(&identity);
        return error_set(e, PAWL_MEMORY, 0, "no memory for the identity of the run");
    }
    bytes_close(&d->identity);
    d->identity = identity;
    d->foreign = (struct pawl_error){0};
    return PAWL_OK;
}

static pawl_code check_identity(struct rundir *d, const struct spec *spec, bool anew, struct pawl_error *e) {
    struct pawl_error why = {0};
    pawl_code code = spec_identity_check(spec, (const char *)d->identity.data, d->identity.size, &why);
    if (code == PAWL_OK) return PAWL_OK;
    if (code == PAWL_FOREIGN && !d->had_durable && anew) {
        d->foreign = why;
        return PAWL_OK;
    }
    if (code == PAWL_FOREIGN && !d->had_durable)
        return error_set(e, code, 0,
                         "%.600s; or begin this one anew with --from-scratch: no step of it was durable",
                         why.text);
    if (e != NULL) *e = why;
    return code;
}

static bool has_stores(const char *dir) {
    char path[SPEC_TEXT_MAX + 16];
    snprintf(path, sizeof path, "%s/store", dir);
    struct stat st;
    return stat(path, &st) == 0;
}

static pawl_code load_run(struct rundir *d, const struct spec *spec, bool anew, struct pawl_error *e) {
    uint8_t *data = NULL;
    size_t bytes = 0;
    struct pawl_error why;
    pawl_code code = store_get_most(d->store, RUN_FILE, SMALL_BYTES_MAX, &data, &bytes, &why);
    if (code == PAWL_NOT_FOUND && !has_stores(spec->run.dir)) return create_run(d, spec, e);
    if (code == PAWL_NOT_FOUND)
        return error_set(e, PAWL_FOREIGN, 0,
                         "%s holds checkpoints but no %s that says whose: use another run.dir", spec->run.dir,
                         RUN_FILE);
    if (code != PAWL_OK) {
        if (e != NULL) *e = why;
        return code;
    }
    code = parse_run_file(d, data, bytes, e);
    free(data);
    return code == PAWL_OK ? check_identity(d, spec, anew, e) : code;
}

static pawl_code make_parents(const char *path, struct pawl_error *e) {
    char part[SPEC_TEXT_MAX];
    for (size_t i = 1; path[i] != 0 && i < sizeof part; i++) {
        if (path[i] != '/') continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return error_set(e, error_code_of_errno(errno), errno, "cannot make folder %s", part);
    }
    return PAWL_OK;
}

static pawl_code open_run(struct rundir *d, const struct spec *spec, bool anew, struct pawl_error *e) {
    *d = (struct rundir){0};
    pawl_code code = make_parents(spec->run.dir, e);
    if (code == PAWL_OK) {
        code = store_open(spec->run.dir, STORE_PLAIN, false, &d->store, NULL, e);
        if (code == PAWL_BUSY) error_wrap(e, "a run is going on there");
    }
    if (code == PAWL_OK) code = load_run(d, spec, anew, e);
    if (code != PAWL_OK) rundir_close(d);
    return code;
}

pawl_code rundir_open(struct rundir *d, const struct spec *spec, struct pawl_error *e) {
    return open_run(d, spec, false, e);
}

pawl_code rundir_open_anew(struct rundir *d, const struct spec *spec, struct pawl_error *e) {
    return open_run(d, spec, true, e);
}

void rundir_close(struct rundir *d) {
    store_close(d->store);
    bytes_close(&d->identity);
    *d = (struct rundir){0};
}

pawl_code rundir_begin(struct rundir *d, struct pawl_error *e) {
    d->incarnation++;
    return write_run_file(d, e);
}

pawl_code rundir_note_durable(struct rundir *d, struct pawl_error *e) {
    if (d->had_durable) return PAWL_OK;
    d->had_durable = true;
    return write_run_file(d, e);
}

/* What the tail of the log says of steps. */
struct history {
    uint64_t last; /* 0: none */
    double last_s; /* when it was decided */
    uint64_t from; /* asked for */
    double from_s; /* when it was decided, or the training began; 0: not in the tail */
    bool starting; /* a start was read, and no GO since */
};

/* "2026-01-31T12:00:00.123Z" in seconds; 0: it is none. */
static double seconds_of(const cJSON *time) {
    struct tm tm = {0};
    int ms = 0, end = 0;
    if (!cJSON_IsString(time) ||
        sscanf(time->valuestring, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &ms, &end) != 7 ||
        end == 0)
        return 0;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    return (double)timegm(&tm) + (double)ms / 1e3;
}

/* The newest word counts: a run that went back counts from there. */
static void read_line(struct history *h, const char *line, size_t size) {
    cJSON *json = cJSON_ParseWithLength(line, size);
    const cJSON *event = cJSON_GetObjectItemCaseSensitive(json, "event");
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(json, "step");
    double now = seconds_of(cJSON_GetObjectItemCaseSensitive(json, "time"));
    const char *name = cJSON_IsString(event) ? event->valuestring : "";
    if (strcmp(name, "start") == 0) h->starting = true;
    if (strcmp(name, "go") == 0 && h->starting) {
        h->starting = false;
        if (h->from == 0) h->from_s = now;
    }
    if (strcmp(name, "step") == 0 && cJSON_IsNumber(step) && step->valuedouble > 0 &&
        step->valuedouble < 0x1p53) {
        h->last = (uint64_t)step->valuedouble;
        h->last_s = now;
        if (h->last == h->from) h->from_s = now;
    }
    cJSON_Delete(json);
}

static struct history read_history(const struct rundir *d, uint64_t from) {
    struct history h = {.from = from};
    char path[SPEC_TEXT_MAX + 16];
    snprintf(path, sizeof path, "%s/log.jsonl", store_path(d->store));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    FILE *f = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
    if (f == NULL) { /* none, or a pipe, which would be waited for */
        if (fd >= 0) close(fd);
        return h;
    }
    if (fseek(f, 0, SEEK_END) == 0 && ftell(f) > (long)LOG_TAIL_BYTES)
        fseek(f, -(long)LOG_TAIL_BYTES, SEEK_END);
    else
        rewind(f);
    char *line = NULL;
    size_t capacity = 0;
    ssize_t size;
    while ((size = getline(&line, &capacity, f)) > 0) read_line(&h, line, (size_t)size);
    free(line);
    fclose(f);
    return h;
}

uint64_t rundir_last_step(const struct rundir *d) { return read_history(d, UINT64_MAX).last; }

double rundir_lost_seconds(const struct rundir *d, uint64_t step) {
    struct history h = read_history(d, step);
    return h.from_s > 0 && h.last > step && h.last_s > h.from_s ? h.last_s - h.from_s : 0;
}

pawl_code rundir_store_path(const struct spec *spec, uint32_t rank, char *out, size_t size,
                            struct pawl_error *e) {
    int n = snprintf(out, size, "%s/store/rank-%04u", spec->run.dir, rank);
    return n > 0 && (size_t)n < size ? PAWL_OK : error_set(e, PAWL_SPEC, 0, "run.dir is too long a path");
}

static int is_rank_folder(const struct dirent *d) { return strncmp(d->d_name, "rank-", 5) == 0; }

pawl_code rundir_open_stores(const struct spec *spec, struct store ***out, uint32_t *count,
                             struct pawl_error *e) {
    char path[SPEC_TEXT_MAX + 512];
    *out = NULL;
    *count = 0;
    snprintf(path, sizeof path, "%s/store", spec->run.dir);
    struct dirent **names = NULL;
    int found = scandir(path, &names, is_rank_folder, alphasort);
    if (found < 0 && errno == ENOENT) return PAWL_OK;
    if (found < 0) return error_set(e, error_code_of_errno(errno), errno, "cannot list %s", path);
    struct store **stores = calloc((size_t)found + 1, sizeof *stores);
    pawl_code code =
        stores != NULL ? PAWL_OK : error_set(e, PAWL_MEMORY, 0, "no memory for %d stores", found);
    uint32_t opened = 0;
    for (int i = 0; i < found; i++) {
        snprintf(path, sizeof path, "%s/store/%s", spec->run.dir, names[i]->d_name);
        if (code == PAWL_OK) code = store_open(path, STORE_AUTO, true, &stores[opened], NULL, e);
        if (code == PAWL_OK) opened++;
        free(names[i]);
    }
    free(names);
    if (code != PAWL_OK) {
        rundir_close_stores(stores, opened);
        return code;
    }
    *out = stores;
    *count = opened;
    return PAWL_OK;
}

void rundir_close_stores(struct store **stores, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) store_close(stores[i]);
    free(stores);
}
