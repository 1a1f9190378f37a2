/* Opening a store for saving: whose is it, which slots count, and is all of that durable.
 *
 * A process that was killed may have left a record or a name that the machine sees but the device does not
 * hold yet; both are made durable before anything builds on them. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/engine.h"

static pawl_code open_log(struct ckpt *c, struct pawl_error *e) {
    char name[RECORD_NAME_BYTES];
    record_log_name(c->log.number, name);
    return store_file_open(c->store, name, false, RECORD_LOG_BYTES, &c->log.file, e);
}

/* A store always holds at least one record, so that "none" can only mean damage. */
static pawl_code make_log(struct ckpt *c, struct pawl_error *e) {
    struct bytes image = {0};
    char name[RECORD_NAME_BYTES];
    c->log.number = c->log.last_number = 1;
    c->log.region = 1;
    record_log_name(c->log.number, name);
    c->record = (struct record){.counter = 1};
    memcpy(c->record.run_id, c->config.run_id, sizeof c->record.run_id);
    log_image(&c->record, &image);
    pawl_code code = image.failed ? error_set(e, PAWL_MEMORY, 0, "%s: no memory", store_path(c->store))
                                  : store_put(c->store, name, image.data, image.size, e);
    bytes_close(&image);
    return code;
}

static bool has_slot(const struct ckpt *c, uint32_t number) {
    for (uint32_t i = 0; i < c->core.slot_count; i++)
        if (c->core.slots[i].number == number) return true;
    return false;
}

/* Slot files that no record names: free, and counted so that their numbers are not used again. */
static pawl_code load_free_slots(struct ckpt *c, uint32_t *slot_files, struct pawl_error *e) {
    char **names = NULL;
    uint32_t count = 0, number = 0;
    pawl_code code = store_list(c->store, &names, &count, e);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) {
        if (!record_slot_of_name(names[i], &number)) continue;
        ++*slot_files;
        if (!has_slot(c, number)) (void)commit_load(&c->core, number, false, 0);
    }
    store_names_free(names, count);
    return code;
}

static pawl_code check_record(struct ckpt *c, const struct log_found *found, uint32_t slot_files,
                              struct pawl_error *e) {
    if (found->log_count == 0 && slot_files == 0) return PAWL_OK;
    if (!found->any)
        return error_set(e, PAWL_CORRUPT, 0,
                         "%s: %u slot files, but no valid commit record%s%s; nothing was changed",
                         store_path(c->store), slot_files, found->problem[0] ? ": " : "", found->problem);
    if (memcmp(found->newest.run_id, c->config.run_id, RUN_ID_BYTES) != 0)
        return error_set(e, PAWL_FOREIGN, 0, "%s: its commit log belongs to another run",
                         store_path(c->store));
    return PAWL_OK;
}

static pawl_code load(struct ckpt *c, struct log_found *found, struct pawl_error *e) {
    pawl_code code = log_identity_check(c->store, c->config.run_id, e);
    bool is_new = code == PAWL_NOT_FOUND;
    if (code != PAWL_OK && !is_new) return code;
    code = log_scan(c->store, found, e);
    if (code != PAWL_OK) return code;
    for (uint32_t i = 0; i < found->newest.entry_count; i++) {
        const struct record_entry *t = &found->newest.entries[i];
        c->slots[c->core.slot_count].entry = *t;
        (void)commit_load(&c->core, t->slot, true, t->step);
    }
    uint32_t slot_files = 0;
    code = load_free_slots(c, &slot_files, e);
    if (code == PAWL_OK) code = check_record(c, found, slot_files, e);
    if (code == PAWL_OK && found->any) code = ckpt_settle(c->store, e); /* after the last reason to refuse */
    if (code == PAWL_OK && is_new) code = log_identity_write(c->store, c->config.run_id, e);
    if (code != PAWL_OK) return code;
    if (!found->any) {
        code = make_log(c, e);
    } else {
        c->log.number = found->log;
        c->log.last_number = found->last_log;
        c->log.region = 1 - found->region;
    }
    if (code == PAWL_OK) code = open_log(c, e);
    commit_loaded(&c->core, found->any ? found->newest.counter : 1);
    return code;
}

pawl_code engine_load(struct ckpt *c, struct pawl_error *e) {
    struct log_found *found = malloc(sizeof *found);
    if (found == NULL) return error_set(e, PAWL_MEMORY, 0, "%s: no memory", store_path(c->store));
    pawl_code code = load(c, found, e);
    free(found);
    return code;
}
