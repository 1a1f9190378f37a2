/* Scanning stores: which slots count, which steps are complete. Bytes are read by set_read.c.
 *
 * A slot counts when the newest valid record of its store names it and the checksum of its header is the
 * record's. Anything less is listed as a problem and left out, and so is a slot without checksums unless the
 * caller accepts those. */
#include "ckpt/set.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

/* The same damage met by tensor after tensor is told once; a device that fails everywhere must not make
 * telling it slow. */
#define PROBLEMS_COMPARED 64u

pawl_code set_no_memory(struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "reading checkpoints: no memory");
}

void set_problem(struct ckpt_set *set, struct ckpt_cost cost, const char *format, ...) {
    char text[768];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    uint32_t recent = set->problem_count > PROBLEMS_COMPARED ? set->problem_count - PROBLEMS_COMPARED : 0;
    for (uint32_t i = recent; i < set->problem_count; i++)
        if (strcmp(set->problems[i].text, text) == 0) return;
    struct set_problem *problems = realloc(set->problems, (set->problem_count + 1) * sizeof *problems);
    if (problems == NULL) return;
    set->problems = problems;
    problems[set->problem_count] = (struct set_problem){strdup(text), cost};
    if (problems[set->problem_count].text != NULL) set->problem_count++;
}

/* ---- slots ---- */

static pawl_code read_header(struct set_part *part, const struct record_entry *t, uint8_t *room,
                             struct pawl_error *e) {
    uint64_t bytes = 0;
    pawl_code code = set_open_part(part, e);
    if (code == PAWL_OK) code = store_file_size(part->file, &bytes, e);
    if (code == PAWL_OK && bytes != t->file_bytes)
        return error_set(e, PAWL_CORRUPT, 0, "%" PRIu64 " bytes long, its commit record says %" PRIu64, bytes,
                         t->file_bytes);
    if (code == PAWL_OK) code = set_read_blocks(part->store, part->file, 0, room, t->header_bytes, e);
    if (code != PAWL_OK) return code;
    uint8_t sum[SLOT_SUM_BYTES];
    hash128(room, t->header_bytes, sum);
    if (memcmp(sum, t->header_sum, sizeof sum) != 0)
        return error_set(e, PAWL_CORRUPT, 0, "the header does not match the checksum in its commit record");
    return slot_parse(room, t->header_bytes, t->file_bytes, &part->info, e);
}

static pawl_code check_identity(const struct set_part *part, const struct record *r,
                                const struct record_entry *t, struct pawl_error *e) {
    const struct slot_info *s = &part->info;
    if (memcmp(s->run_id, r->run_id, sizeof s->run_id) == 0 && s->step == t->step &&
        s->incarnation == t->incarnation && s->unit == t->unit && s->unit_count == t->unit_count &&
        s->part == t->part && s->part_count == t->part_count && s->header.data_offset == t->header_bytes)
        return PAWL_OK;
    return error_set(e, PAWL_CORRUPT, 0, "header and commit record name different saves");
}

/* Fails closed: nothing would tell damage of such a slot from what was saved. */
static pawl_code check_checksums(const struct ckpt_set *set, const struct set_part *part,
                                 struct pawl_error *e) {
    if (part->info.sums != NULL || set->unchecked) return PAWL_OK;
    return error_set(e, PAWL_FORMAT, 0,
                     "it was saved without checksums; the option 'unchecked' accepts such slots");
}

static void part_close(struct set_part *part) {
    store_file_close(part->file);
    slot_info_close(&part->info);
    *part = (struct set_part){0};
}

/* MEMORY is the only failure; a slot that does not count becomes a problem. */
static pawl_code add_part(struct ckpt_set *set, uint32_t store_index, const struct record *r,
                          const struct record_entry *t, struct pawl_error *e) {
    struct store *store = set->stores[store_index].store;
    if (set->part_count == set->part_room) {
        uint32_t room = set->part_room == 0 ? 16 : 2 * set->part_room;
        struct set_part *parts = realloc(set->parts, room * sizeof *parts);
        if (parts == NULL) return set_no_memory(e);
        set->parts = parts;
        set->part_room = room;
    }
    struct set_part part = {.store = store, .store_index = store_index, .counter = t->counter};
    record_slot_name(t->slot, part.name);
    struct pawl_error why = {0};
    pawl_code code = PAWL_CORRUPT;
    uint8_t *room = t->header_bytes <= ST_HEADER_BYTES_MAX + STORE_BLOCK ? mem_alloc(t->header_bytes) : NULL;
    if (room == NULL)
        error_set(&why, PAWL_CORRUPT, 0, "no memory for a header of %" PRIu64 " bytes", t->header_bytes);
    else
        code = read_header(&part, t, room, &why);
    mem_free(room, t->header_bytes);
    if (code == PAWL_OK) code = check_identity(&part, r, t, &why);
    if (code == PAWL_OK) code = check_checksums(set, &part, &why);
    if (code == PAWL_OK) {
        set->parts[set->part_count++] = part;
        return PAWL_OK;
    }
    set_problem(set, (struct ckpt_cost){true, t->step, t->incarnation},
                "%s/%s: step %" PRIu64 ", unit %u, part %u of %u does not count: %.500s", store_path(store),
                part.name, t->step, t->unit, t->part, t->part_count, why.text);
    part_close(&part);
    return PAWL_OK;
}

/* ---- stores ---- */

static pawl_code check_run(const struct store *s, const uint8_t *ours, const uint8_t *theirs,
                           struct pawl_error *e) {
    if (ours == NULL || memcmp(ours, theirs, RUN_ID_BYTES) == 0) return PAWL_OK;
    char a[2 * RUN_ID_BYTES + 1], b[2 * RUN_ID_BYTES + 1];
    hash_hex(theirs, RUN_ID_BYTES, a);
    hash_hex(ours, RUN_ID_BYTES, b);
    return error_set(e, PAWL_FOREIGN, 0, "%s: belongs to run %s, wanted run %s", store_path(s), a, b);
}

static pawl_code scan_record(struct ckpt_set *set, uint32_t store, const struct log_found *found,
                             struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < found->newest.entry_count && code == PAWL_OK; i++)
        code = add_part(set, store, &found->newest, &found->newest.entries[i], e);
    return code;
}

static bool has_slots(struct store *s) {
    char **names = NULL;
    uint32_t count = 0, slot;
    bool found = false;
    if (store_list(s, &names, &count, NULL) != PAWL_OK) return false;
    for (uint32_t i = 0; i < count; i++) found = found || record_slot_of_name(names[i], &slot);
    store_names_free(names, count);
    return found;
}

/* `run` is the run wanted so far, of which there may be none; it is set by the first store that has one. */
static pawl_code scan_store(struct ckpt_set *set, uint32_t store, uint8_t *run, bool *has_run,
                            struct log_found *found, struct pawl_error *e) {
    static const struct ckpt_cost no_step = {0}, a_step = {.any = true};
    struct store *s = set->stores[store].store;
    uint8_t identity[RUN_ID_BYTES];
    struct pawl_error why = {0};
    pawl_code code = log_identity_read(s, identity, &why);
    if (code == PAWL_NOT_FOUND && has_slots(s)) /* an empty folder is a store that was never used */
        set_problem(set, no_step, "%s: no file %s that says whose it is", store_path(s), LOG_IDENTITY_NAME);
    if (code != PAWL_OK && code != PAWL_NOT_FOUND) set_problem(set, no_step, "%s", why.text);
    if (code == PAWL_OK) {
        code = check_run(s, *has_run ? run : NULL, identity, e);
        if (code != PAWL_OK) return code;
        if (!*has_run) memcpy(run, identity, RUN_ID_BYTES);
        *has_run = true;
    }
    code = log_scan(s, found, &why);
    if (code == PAWL_MEMORY) return set_no_memory(e);
    if (found->problem[0] != 0) set_problem(set, found->may_lack ? a_step : no_step, "%s", found->problem);
    if (code != PAWL_OK) {
        set_problem(set, a_step, "%s", why.text);
        return PAWL_OK;
    }
    if (!found->any && found->log_count > 0)
        set_problem(set, a_step, "%s: no valid commit record", store_path(s));
    if (found->log_count == 0 && has_slots(s))
        set_problem(set, a_step, "%s: no commit log, so none of its slots counts", store_path(s));
    if (!found->any) return PAWL_OK;
    code = check_run(s, *has_run ? run : NULL, found->newest.run_id, e);
    if (code != PAWL_OK) return code;
    if (!*has_run) memcpy(run, found->newest.run_id, RUN_ID_BYTES);
    *has_run = true;
    return scan_record(set, store, found, e);
}

/* ---- calls ---- */

pawl_code ckpt_set_open_with(struct store *const *stores, uint32_t count,
                             const struct ckpt_set_options *options, struct ckpt_set **out,
                             struct pawl_error *e) {
    *out = NULL;
    struct ckpt_set *set = calloc(1, sizeof *set);
    struct log_found *found = malloc(sizeof *found);
    if (set != NULL) set->stores = calloc((size_t)count + 1, sizeof *set->stores);
    bool good = set != NULL && found != NULL && set->stores != NULL;
    pawl_code code = good ? PAWL_OK : set_no_memory(e);
    uint8_t run[RUN_ID_BYTES] = {0};
    bool has_run = options->run_id != NULL;
    if (has_run) memcpy(run, options->run_id, sizeof run);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) {
        set->unchecked = options->unchecked;
        set->prefer = options->prefer;
        set->stores[set->store_count++].store = stores[i];
        code = scan_store(set, i, run, &has_run, found, e);
    }
    if (code == PAWL_OK) code = set_make_groups(set, e);
    free(found);
    if (code == PAWL_OK)
        *out = set;
    else
        ckpt_set_close(set);
    return code;
}

pawl_code ckpt_set_open(struct store *const *stores, uint32_t count, const uint8_t *run_id,
                        struct ckpt_set **out, struct pawl_error *e) {
    return ckpt_set_open_with(stores, count, &(struct ckpt_set_options){.run_id = run_id}, out, e);
}

void ckpt_set_close(struct ckpt_set *set) {
    if (set == NULL) return;
    for (uint32_t i = 0; i < set->group_count; i++) set_group_close(&set->groups[i]);
    for (uint32_t i = 0; i < set->part_count; i++) part_close(&set->parts[i]);
    for (uint32_t i = 0; i < set->problem_count; i++) free(set->problems[i].text);
    for (uint32_t i = 0; i < SET_LINES; i++) mem_free(set->lines[i].data, set->lines[i].room);
    free(set->groups);
    free(set->stores);
    free(set->parts);
    free(set->problems);
    free(set);
}

uint32_t ckpt_set_count(const struct ckpt_set *set) { return set->group_count; }

const struct ckpt_step *ckpt_set_at(const struct ckpt_set *set, uint32_t index) {
    return index < set->group_count ? &set->groups[index].step : NULL;
}

const char *ckpt_set_problem(const struct ckpt_set *set, uint32_t index) {
    return index < set->problem_count ? set->problems[index].text : NULL;
}

struct ckpt_cost ckpt_set_problem_cost(const struct ckpt_set *set, uint32_t index) {
    return index < set->problem_count ? set->problems[index].cost : (struct ckpt_cost){0};
}

uint32_t ckpt_set_tensor_count(const struct ckpt_set *set, uint32_t index) {
    return index < set->group_count ? set->groups[index].tensor_count : 0;
}

const struct ckpt_tensor *ckpt_set_tensor(const struct ckpt_set *set, uint32_t index, uint32_t tensor) {
    if (tensor >= ckpt_set_tensor_count(set, index)) return NULL;
    return &set->groups[index].tensors[tensor];
}

uint64_t ckpt_set_bytes_read(const struct ckpt_set *set, const struct store *from) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < set->store_count; i++)
        if (from == NULL || set->stores[i].store == from) bytes += set->stores[i].bytes_read;
    return bytes;
}

uint32_t ckpt_set_part_count(const struct ckpt_set *set, uint32_t index) {
    return index < set->group_count ? set->groups[index].part_count : 0;
}

struct ckpt_part ckpt_set_part(const struct ckpt_set *set, uint32_t index, uint32_t part) {
    if (part >= ckpt_set_part_count(set, index)) return (struct ckpt_part){0};
    const struct set_part *p = &set->parts[set->groups[index].parts[part]];
    const struct slot_info *s = &p->info;
    return (struct ckpt_part){.store = p->store,
                              .file = p->name,
                              .unit = s->unit,
                              .part = s->part,
                              .part_count = s->part_count,
                              .file_bytes = s->header.data_offset + s->header.data_bytes,
                              .data_bytes = s->header.data_bytes,
                              .counter = p->counter,
                              .unchecked = s->sums == NULL};
}
