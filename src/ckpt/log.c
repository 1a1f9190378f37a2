/* Reading the commit logs of a store; see ckpt/log.h. */
#include "ckpt/log.h"

#include "ckpt/ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

/* ---- identity: two lines of text ---- */

#define IDENTITY_FORMAT "pawl store 1\nrun %s\n"
#define IDENTITY_HEAD   "pawl store "
#define RUN_TEXT_BYTES  (2 * RUN_ID_BYTES + 1)

pawl_code log_identity_write(struct store *s, const uint8_t run_id[RUN_ID_BYTES], struct pawl_error *e) {
    char run[RUN_TEXT_BYTES], text[128];
    hash_hex(run_id, RUN_ID_BYTES, run);
    int size = snprintf(text, sizeof text, IDENTITY_FORMAT, run);
    return store_put(s, LOG_IDENTITY_NAME, text, (size_t)size, e);
}

/* The file is small and written at once, so anything but its exact text is damage or another version. */
static bool parse_identity(const char *text, uint8_t run_id[RUN_ID_BYTES]) {
    char digits[RUN_TEXT_BYTES], again[128];
    if (sscanf(text, "pawl store 1\nrun %32[0-9a-f]\n", digits) != 1 ||
        !hash_unhex(digits, run_id, RUN_ID_BYTES))
        return false;
    snprintf(again, sizeof again, IDENTITY_FORMAT, digits);
    return strcmp(again, text) == 0;
}

/* Two lines of text, whatever bytes a file of that name may have. */
#define IDENTITY_BYTES_READ_MAX 4096u

pawl_code log_identity_read(struct store *s, uint8_t run_id[RUN_ID_BYTES], struct pawl_error *e) {
    uint8_t *data = NULL;
    size_t size = 0;
    char text[128] = "";
    pawl_code code = store_get_most(s, LOG_IDENTITY_NAME, IDENTITY_BYTES_READ_MAX, &data, &size, e);
    if (code != PAWL_OK) return code;
    if (size < sizeof text) memcpy(text, data, size);
    free(data);
    if (strlen(text) == size && parse_identity(text, run_id)) return PAWL_OK;
    bool version = strncmp(text, IDENTITY_HEAD, strlen(IDENTITY_HEAD)) == 0 &&
                   strncmp(text, IDENTITY_HEAD "1\n", strlen(IDENTITY_HEAD) + 2) != 0;
    if (version)
        return error_set(e, PAWL_FORMAT, 0, "%s/%s: another version of the store, this program reads 1",
                         store_path(s), LOG_IDENTITY_NAME);
    return error_set(e, PAWL_CORRUPT, 0, "%s/%s: %zu bytes that name no run", store_path(s),
                     LOG_IDENTITY_NAME, size);
}

pawl_code log_identity_check(struct store *s, const uint8_t run_id[RUN_ID_BYTES], struct pawl_error *e) {
    uint8_t stored[RUN_ID_BYTES];
    pawl_code code = log_identity_read(s, stored, e);
    if (code != PAWL_OK || memcmp(stored, run_id, RUN_ID_BYTES) == 0) return code;
    char theirs[RUN_TEXT_BYTES], ours[RUN_TEXT_BYTES];
    hash_hex(stored, RUN_ID_BYTES, theirs);
    hash_hex(run_id, RUN_ID_BYTES, ours);
    return error_set(e, PAWL_FOREIGN, 0, "%s: belongs to run %s, this is run %s", store_path(s), theirs,
                     ours);
}

/* ---- logs ---- */

static void note_problem(struct log_found *out, const struct store *s, const char *name, uint32_t region,
                         const char *cause) {
    if (out->problem[0] != 0) return;
    snprintf(out->problem, sizeof out->problem, "%.120s/%s: region %u: %.120s", store_path(s), name, region,
             cause);
}

/* Of what is damaged in all logs, the highest counter that a record may have had. */
static void note_suspect(uint64_t *suspect, uint64_t counter) {
    if (counter > *suspect) *suspect = counter;
}

struct scan {
    struct log_found *out;
    struct record *room;
    uint64_t suspect; /* 0: nothing that holds a record is damaged */
};

static pawl_code scan_region(struct store *s, const char *name, uint32_t region, const uint8_t *data,
                             size_t size, struct scan *scan, struct pawl_error *e) {
    struct log_found *out = scan->out;
    struct record *room = scan->room;
    struct pawl_error why = {0};
    pawl_code code = record_decode(data, size, room, &why);
    if (code == PAWL_FORMAT)
        return error_set(e, code, 0, "%s/%s: region %u: %.400s", store_path(s), name, region, why.text);
    if (code == PAWL_CORRUPT) {
        note_problem(out, s, name, region, why.text);
        note_suspect(&scan->suspect, record_counter_named(data, size));
    }
    if (code == PAWL_NOT_FOUND && size < RECORD_REGION_BYTES) note_suspect(&scan->suspect, UINT64_MAX);
    if (code != PAWL_OK || (out->any && room->counter <= out->newest.counter)) return PAWL_OK;
    out->newest = *room;
    out->any = true;
    out->region = region;
    (void)record_log_of_name(name, &out->log);
    return PAWL_OK;
}

/* No log is longer by much, whatever bytes a file of that name may have. */
#define LOG_BYTES_READ_MAX ((uint64_t)8 * RECORD_LOG_BYTES)

static pawl_code check_size(struct store *s, const char *name, bool *absurd, struct pawl_error *e) {
    struct store_file *f = NULL;
    uint64_t bytes = 0;
    pawl_code code = store_file_open(s, name, false, 0, &f, e);
    if (code == PAWL_OK) code = store_file_size(f, &bytes, e);
    store_file_close(f);
    *absurd = bytes > LOG_BYTES_READ_MAX;
    return code;
}

static pawl_code scan_log(struct store *s, const char *name, struct scan *scan, struct pawl_error *e) {
    struct log_found *out = scan->out;
    uint8_t *data = NULL;
    size_t size = 0;
    bool absurd = false;
    pawl_code code = check_size(s, name, &absurd, e);
    if (code == PAWL_OK && absurd) {
        note_problem(out, s, name, 0, "the log is far too long, and was not read");
        note_suspect(&scan->suspect, UINT64_MAX);
        return PAWL_OK;
    }
    if (code == PAWL_OK) code = store_get(s, name, &data, &size, e);
    char cause[80];
    snprintf(cause, sizeof cause, "the log is %zu bytes long, wanted %u", size, RECORD_LOG_BYTES);
    if (code == PAWL_OK && size != RECORD_LOG_BYTES)
        note_problem(out, s, name, size < RECORD_REGION_BYTES ? 0 : 1, cause);
    for (uint32_t region = 0; region < 2 && code == PAWL_OK; region++) {
        size_t begin = (size_t)region * RECORD_REGION_BYTES;
        size_t left = size > begin ? size - begin : 0;
        code = scan_region(s, name, region, data + (left > 0 ? begin : 0),
                           left < RECORD_REGION_BYTES ? left : RECORD_REGION_BYTES, scan, e);
    }
    free(data);
    return code;
}

pawl_code log_scan(struct store *s, struct log_found *out, struct pawl_error *e) {
    memset(out, 0, sizeof *out);
    char **names = NULL;
    uint32_t count = 0;
    struct scan scan = {.out = out, .room = malloc(sizeof *scan.room)};
    pawl_code code = scan.room == NULL ? error_set(e, PAWL_MEMORY, 0, "%s: no memory", store_path(s))
                                       : store_list(s, &names, &count, e);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) {
        uint32_t log = 0;
        if (!record_log_of_name(names[i], &log)) continue;
        out->log_count++;
        if (log > out->last_log) out->last_log = log;
        code = scan_log(s, names[i], &scan, e);
    }
    out->may_lack = scan.suspect > (out->any ? out->newest.counter : 0);
    store_names_free(names, count);
    free(scan.room);
    return code;
}

pawl_code ckpt_settle(struct store *s, struct pawl_error *e) {
    char **names = NULL;
    uint32_t count = 0, log;
    pawl_code code = store_list(s, &names, &count, e);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) {
        if (!record_log_of_name(names[i], &log)) continue;
        uint8_t *data = NULL;
        size_t size = 0;
        bool absurd = false;
        code = check_size(s, names[i], &absurd, e);
        if (code == PAWL_OK && absurd) continue; /* no record is ever read from it */
        if (code == PAWL_OK) code = store_get(s, names[i], &data, &size, e);
        if (code == PAWL_OK) code = store_put(s, names[i], data, size, e);
        free(data);
    }
    store_names_free(names, count);
    return code;
}

void log_image(const struct record *r, struct bytes *out) {
    size_t start = out->size;
    record_encode(r, out);
    if (!out->failed) record_put_zeros(out, RECORD_LOG_BYTES - (out->size - start));
}
