/* The inventory of one store: whose it is, both regions of each log, each slot that the standing record
 * names, each slot file that it does not. Damage becomes problems; the scan goes on. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "inspect/inspect.h"

/* ---- records ---- */

struct records { /* what the logs of a store hold; large */
    struct record newest, room;
    bool any;
    uint32_t logs, last_log;
};

static void log_problem(struct pawl_inspect *in, const struct store *s, const char *file, uint32_t region,
                        pawl_code code, const char *text) {
    if (in == NULL) return; /* only the record is asked for */
    struct pawl_inspect_problem like = {
        .kind = PAWL_PROBLEM_LOG, .code = code, .store = store_path(s), .file = file, .region = region};
    inspect_problem_add(in, like, "%s/%s: %s", store_path(s), file, text);
}

/* False: the region cannot be judged, so that none of the store's records can be trusted to be the newest. */
static bool take_region(struct pawl_inspect *in, const struct store *s, const char *file, uint32_t region,
                        const uint8_t *data, size_t size, struct records *out) {
    struct pawl_error why = {0};
    char text[900];
    pawl_code code = record_decode(data, size, &out->room, &why);
    snprintf(text, sizeof text, "region %u: %s%s", region, why.text,
             code == PAWL_CORRUPT ? "; an older record stands, if any" : "");
    if (code == PAWL_CORRUPT || code == PAWL_FORMAT) log_problem(in, s, file, region, code, text);
    if (code == PAWL_OK && (!out->any || out->room.counter > out->newest.counter)) {
        out->newest = out->room;
        out->any = true;
    }
    return code != PAWL_FORMAT;
}

/* No log is longer by much, however many bytes a file of that name may have: then *size is SIZE_MAX. */
#define LOG_BYTES_READ_MAX ((uint64_t)8 * RECORD_LOG_BYTES)

static pawl_code get_log(struct store *s, const char *file, uint8_t **data, size_t *size,
                         struct pawl_error *e) {
    struct store_file *f = NULL;
    uint64_t bytes = 0;
    *data = NULL;
    pawl_code code = store_file_open(s, file, false, 0, &f, e);
    if (code == PAWL_OK) code = store_file_size(f, &bytes, e);
    store_file_close(f);
    *size = 0;
    if (code == PAWL_OK && bytes > LOG_BYTES_READ_MAX) *size = SIZE_MAX;
    if (*size == SIZE_MAX)
        return error_set(e, PAWL_CORRUPT, 0, "%s/%s: %" PRIu64 " bytes long, wanted %u", store_path(s), file,
                         bytes, RECORD_LOG_BYTES);
    return code == PAWL_OK ? store_get(s, file, data, size, e) : code;
}

/* Reads the log until two reads give the same bytes, so that what a writer is writing is not taken for
 * damage. */
static pawl_code get_still_log(struct store *s, const char *file, uint8_t **data, size_t *size,
                               struct pawl_error *e) {
    pawl_code code = get_log(s, file, data, size, e);
    for (int tries = 0; tries < 8 && code == PAWL_OK; tries++) {
        uint8_t *again = NULL;
        size_t again_size = 0;
        code = get_log(s, file, &again, &again_size, e);
        bool same = code == PAWL_OK && again_size == *size && memcmp(again, *data, *size) == 0;
        free(*data);
        *data = again;
        *size = again_size;
        if (same) break;
    }
    return code;
}

static bool take_log(struct pawl_inspect *in, struct store *s, const char *file, struct records *out) {
    struct pawl_error why = {0};
    uint8_t *data = NULL;
    size_t size = 0;
    pawl_code code = get_still_log(s, file, &data, &size, &why);
    if (code != PAWL_OK) {
        log_problem(in, s, file, 0, code == PAWL_NOT_FOUND ? PAWL_IO : code, why.text);
        return size == SIZE_MAX; /* then no record in it can be missed */
    }
    if (size != RECORD_LOG_BYTES) {
        char text[96];
        snprintf(text, sizeof text, "%zu bytes long, wanted %u", size, RECORD_LOG_BYTES);
        log_problem(in, s, file, 0, PAWL_CORRUPT, text);
    }
    bool good = true;
    for (uint32_t region = 0; region < 2; region++) {
        size_t begin = (size_t)region * RECORD_REGION_BYTES, left = size > begin ? size - begin : 0;
        if (left == 0) continue;
        if (left > RECORD_REGION_BYTES) left = RECORD_REGION_BYTES;
        good = take_region(in, s, file, region, data + begin, left, out) && good;
    }
    free(data);
    return good;
}

static bool take_logs(struct pawl_inspect *in, struct store *s, char **names, uint32_t count,
                      struct records *out) {
    bool good = true;
    uint32_t log;
    for (uint32_t i = 0; i < count; i++) {
        if (!record_log_of_name(names[i], &log)) continue;
        out->logs++;
        if (log > out->last_log) out->last_log = log;
        good = take_log(in, s, names[i], out) && good;
    }
    return good;
}

bool inspect_record_now(struct store *s, struct record *out) {
    char **names = NULL;
    uint32_t count = 0;
    struct records *r = calloc(1, sizeof *r);
    bool good = r != NULL && store_list(s, &names, &count, NULL) == PAWL_OK;
    good = good && take_logs(NULL, s, names, count, r) && r->any;
    if (good) *out = r->newest;
    store_names_free(names, count);
    free(r);
    return good;
}

/* One log's regions; a torn or empty one names nothing, since it can never stand. */
static bool log_leaves_free(struct store *s, const char *file, uint32_t slot, struct record *room) {
    uint8_t *data = NULL;
    size_t size = 0;
    pawl_code code = get_log(s, file, &data, &size, NULL);
    if (code != PAWL_OK) return size == SIZE_MAX;
    bool leaves = true;
    for (size_t begin = 0; leaves && begin < size && begin < RECORD_LOG_BYTES; begin += RECORD_REGION_BYTES) {
        size_t left = size - begin < RECORD_REGION_BYTES ? size - begin : RECORD_REGION_BYTES;
        code = record_decode(data + begin, left, room, NULL);
        leaves = code != PAWL_FORMAT && code != PAWL_MEMORY;
        for (uint32_t i = 0; code == PAWL_OK && i < room->entry_count; i++)
            leaves = leaves && room->entries[i].slot != slot;
    }
    free(data);
    return leaves;
}

bool inspect_slot_is_free(struct store *s, uint32_t slot) {
    char **names = NULL;
    uint32_t count = 0, log;
    struct record *room = malloc(sizeof *room);
    bool leaves = room != NULL && store_list(s, &names, &count, NULL) == PAWL_OK;
    for (uint32_t i = 0; i < count && leaves; i++)
        leaves = !record_log_of_name(names[i], &log) || log_leaves_free(s, names[i], slot, room);
    store_names_free(names, count);
    free(room);
    return leaves;
}

bool inspect_record_names(const struct record *r, const struct record_entry *entry) {
    for (uint32_t i = 0; i < r->entry_count; i++)
        if (r->entries[i].slot == entry->slot && r->entries[i].counter == entry->counter &&
            memcmp(r->entries[i].header_sum, entry->header_sum, sizeof entry->header_sum) == 0)
            return true;
    return false;
}

bool inspect_slot_is_gone(struct pawl_inspect *in, struct inspect_slot *slot) {
    struct record *now = malloc(sizeof *now);
    if (now != NULL && inspect_record_now(in->stores[slot->store].store, now) &&
        !inspect_record_names(now, &slot->entry))
        slot->gone = true;
    free(now);
    return slot->gone;
}

/* ---- identity ---- */

pawl_code inspect_take_run(struct pawl_inspect *in, const char *path, const uint8_t *run_id,
                           struct pawl_error *e) {
    if (!in->has_run) {
        memcpy(in->run_id, run_id, RUN_ID_BYTES);
        snprintf(in->run_source, sizeof in->run_source, "%.250s", path);
    }
    in->has_run = true;
    if (memcmp(in->run_id, run_id, RUN_ID_BYTES) == 0) return PAWL_OK;
    char first[2 * RUN_ID_BYTES + 1], second[2 * RUN_ID_BYTES + 1];
    hash_hex(in->run_id, RUN_ID_BYTES, first);
    hash_hex(run_id, RUN_ID_BYTES, second);
    return error_set(e, PAWL_FOREIGN, 0, "%.300s: names run %s, but %s run %s", path, second, in->run_source,
                     first);
}

static pawl_code take_run(struct pawl_inspect *in, const struct store *s, const char *file,
                          const uint8_t *run_id, struct pawl_error *e) {
    char path[256];
    snprintf(path, sizeof path, "%.200s/%s", store_path(s), file);
    return inspect_take_run(in, path, run_id, e);
}

static bool has_slots(char **names, uint32_t count) {
    uint32_t slot;
    for (uint32_t i = 0; i < count; i++)
        if (record_slot_of_name(names[i], &slot)) return true;
    return false;
}

static pawl_code take_identity(struct pawl_inspect *in, struct store *s, bool used, struct pawl_error *e) {
    uint8_t run_id[RUN_ID_BYTES];
    struct pawl_error why = {0};
    pawl_code code = log_identity_read(s, run_id, &why);
    if (code == PAWL_MEMORY) return inspect_no_memory(e);
    if (code == PAWL_OK) return take_run(in, s, LOG_IDENTITY_NAME, run_id, e);
    if (code == PAWL_NOT_FOUND && !used) return PAWL_OK; /* a store that was never used */
    struct pawl_inspect_problem like = {.kind = PAWL_PROBLEM_IDENTITY,
                                        .code = code == PAWL_NOT_FOUND ? PAWL_CORRUPT : code,
                                        .store = store_path(s),
                                        .file = LOG_IDENTITY_NAME};
    if (code == PAWL_NOT_FOUND)
        inspect_problem_add(in, like, "%s: no file %s that says whose it is", store_path(s),
                            LOG_IDENTITY_NAME);
    else
        inspect_problem_add(in, like, "%s", why.text);
    return PAWL_OK;
}

/* ---- slots ---- */

/* The header's bytes, checked against the record, into slot->info. */
static pawl_code read_header(struct pawl_inspect *in, struct inspect_slot *slot, struct store_file *f,
                             struct pawl_error *e) {
    const struct record_entry *t = &slot->entry;
    if (t->header_bytes > ST_HEADER_BYTES_MAX + STORE_BLOCK)
        return error_set(e, PAWL_CORRUPT, 0, "its commit record wants a header of %" PRIu64 " bytes",
                         t->header_bytes);
    uint8_t *room = mem_alloc(t->header_bytes);
    if (room == NULL) return inspect_no_memory(e);
    pawl_code code = inspect_read(in->stores[slot->store].store, f, 0, room, t->header_bytes, e);
    uint8_t sum[SLOT_SUM_BYTES];
    hash128(room, t->header_bytes, sum);
    if (code == PAWL_OK && memcmp(sum, t->header_sum, sizeof sum) != 0)
        code = error_set(e, PAWL_CORRUPT, 0, "the header does not match the checksum in its commit record");
    if (code == PAWL_OK) code = slot_parse(room, t->header_bytes, t->file_bytes, &slot->info, e);
    mem_free(room, t->header_bytes);
    return code;
}

static pawl_code check_header(const struct record *r, const struct inspect_slot *slot, struct pawl_error *e) {
    const struct slot_info *s = &slot->info;
    const struct record_entry *t = &slot->entry;
    if (memcmp(s->run_id, r->run_id, sizeof s->run_id) == 0 && s->step == t->step &&
        s->incarnation == t->incarnation && s->unit == t->unit && s->unit_count == t->unit_count &&
        s->part == t->part && s->part_count == t->part_count && s->header.data_offset == t->header_bytes)
        return PAWL_OK;
    return error_set(e, PAWL_CORRUPT, 0, "header and commit record name different saves");
}

static pawl_code look_into(struct pawl_inspect *in, struct inspect_slot *slot, struct pawl_error *e) {
    struct inspect_store *s = &in->stores[slot->store];
    struct store_file *f = NULL;
    pawl_code code = store_file_open(s->store, slot->file, false, 0, &f, e);
    if (code == PAWL_OK) code = store_file_size(f, &slot->file_bytes, e);
    if (code == PAWL_OK && slot->file_bytes != slot->entry.file_bytes)
        code = error_set(e, PAWL_CORRUPT, 0, "%" PRIu64 " bytes long, its commit record says %" PRIu64,
                         slot->file_bytes, slot->entry.file_bytes);
    if (code == PAWL_OK) code = read_header(in, slot, f, e);
    if (code == PAWL_OK) code = check_header(&s->record, slot, e);
    if (code == PAWL_OK && slot->info.sums == NULL && !in->options.unchecked)
        code = error_set(e, PAWL_FORMAT, 0,
                         "it was saved without checksums, which only the option unchecked accepts");
    store_file_close(f);
    if (code != PAWL_OK) slot_info_close(&slot->info);
    return code;
}

static void judge(struct inspect_slot *slot, pawl_code code, const struct pawl_error *why) {
    slot->code = code;
    if (code == PAWL_OK) return;
    slot->state = code == PAWL_NOT_FOUND                        ? PAWL_INSPECT_MISSING
                  : code == PAWL_CORRUPT || code == PAWL_FORMAT ? PAWL_INSPECT_DAMAGED
                                                                : PAWL_INSPECT_UNREADABLE;
    if (code == PAWL_NOT_FOUND) slot->code = PAWL_CORRUPT; /* a record names it, so it was there */
    snprintf(slot->why, sizeof slot->why, "%.300s",
             code == PAWL_NOT_FOUND ? "the file is missing" : why->text);
}

static pawl_code add_slot(struct pawl_inspect *in, uint32_t store, uint32_t place, struct pawl_error *e) {
    if (in->slot_count == in->slot_room) {
        uint32_t room = in->slot_room == 0 ? 16 : 2 * in->slot_room;
        struct inspect_slot *more = realloc(in->slots, room * sizeof *more);
        if (more == NULL) return inspect_no_memory(e);
        in->slots = more;
        in->slot_room = room;
    }
    struct inspect_store *s = &in->stores[store];
    struct inspect_slot *slot = &in->slots[in->slot_count];
    *slot = (struct inspect_slot){.entry = s->record.entries[place], .store = store};
    record_slot_name(slot->entry.slot, slot->file);
    struct pawl_error why = {0};
    pawl_code code = look_into(in, slot, &why);
    if (code == PAWL_MEMORY) return inspect_no_memory(e);
    in->slot_count++;
    judge(slot, code, &why);
    slot->committed_s = inspect_file_time(s->store, slot->file);
    if (code == PAWL_OK) {
        s->used++;
        s->used_bytes += slot->file_bytes;
        return PAWL_OK;
    }
    if (inspect_slot_is_gone(in, slot)) return PAWL_OK;
    s->damaged++;
    const struct record_entry *t = &slot->entry;
    inspect_problem_add(in, inspect_problem_of_slot(in, slot, PAWL_PROBLEM_SLOT, slot->code),
                        "%s/%s: step %" PRIu64 ", unit %u, part %u of %u does not count: %s",
                        store_path(s->store), slot->file, t->step, t->unit, t->part, t->part_count,
                        slot->why);
    return PAWL_OK;
}

/* ---- the store ---- */

static void count_unused(struct inspect_store *s, char **names, uint32_t count) {
    uint32_t number;
    for (uint32_t i = 0; i < count; i++) {
        if (!record_slot_of_name(names[i], &number)) continue;
        bool named = false;
        for (uint32_t k = 0; k < s->record.entry_count && !named; k++)
            named = s->record.entries[k].slot == number;
        uint64_t bytes;
        if (named || !inspect_file_bytes(s->store, names[i], &bytes)) continue;
        s->unused++;
        s->unused_bytes += bytes;
    }
}

static void store_problem(struct pawl_inspect *in, const struct store *s, pawl_code code, const char *text) {
    struct pawl_inspect_problem like = {.kind = PAWL_PROBLEM_STORE, .code = code, .store = store_path(s)};
    inspect_problem_add(in, like, "%s", text);
}

static pawl_code scan_names(struct pawl_inspect *in, uint32_t store, char **names, uint32_t count,
                            struct records *found, struct pawl_error *e) {
    struct inspect_store *s = &in->stores[store];
    bool slots = has_slots(names, count);
    s->readable = take_logs(in, s->store, names, count, found);
    pawl_code code = take_identity(in, s->store, slots || found->logs > 0, e);
    s->logs = found->logs;
    s->last_log = found->last_log;
    s->any = s->readable && found->any;
    if (s->any) s->record = found->newest;
    if (code == PAWL_OK && s->readable && !s->any && (slots || found->logs > 0)) {
        char text[700];
        snprintf(text, sizeof text, "%.600s: %s, so none of its slots counts", store_path(s->store),
                 found->logs == 0 ? "no commit log" : "no valid commit record");
        store_problem(in, s->store, PAWL_CORRUPT, text);
        s->readable = false;
    }
    if (code == PAWL_OK && s->any) code = take_run(in, s->store, "commit-*.log", s->record.run_id, e);
    for (uint32_t i = 0; i < s->record.entry_count && code == PAWL_OK; i++) code = add_slot(in, store, i, e);
    if (code == PAWL_OK) count_unused(s, names, count);
    return code;
}

pawl_code inspect_scan_store(struct pawl_inspect *in, uint32_t store, struct pawl_error *e) {
    struct inspect_store *s = &in->stores[store];
    *s = (struct inspect_store){.store = s->store};
    char **names = NULL;
    uint32_t count = 0;
    struct pawl_error why = {0};
    pawl_code code = store_list(s->store, &names, &count, &why);
    if (code != PAWL_OK) {
        store_problem(in, s->store, code, why.text);
        return code == PAWL_MEMORY ? inspect_no_memory(e) : PAWL_OK;
    }
    struct records *found = calloc(1, sizeof *found);
    code = found == NULL ? inspect_no_memory(e) : scan_names(in, store, names, count, found, e);
    free(found);
    store_names_free(names, count);
    return code;
}
