/* Scanning stores: which slots count, which steps are complete. Bytes are read by set_read.c.
 *
 * A slot counts when the newest valid record of its store names it and the checksum of its header is the
 * record's. Anything less is listed as a problem and left out. A step is complete by the files alone; see
 * ckpt/ckpt.h. */
#include "ckpt/set.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

static pawl_code no_memory(struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "reading checkpoints: no memory");
}

void set_problem(struct ckpt_set *set, const char *format, ...) {
    char text[768];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char **problems = realloc(set->problems, (set->problem_count + 1) * sizeof *problems);
    if (problems == NULL) return;
    set->problems = problems;
    problems[set->problem_count] = strdup(text);
    if (problems[set->problem_count] != NULL) set->problem_count++;
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

static void part_close(struct set_part *part) {
    store_file_close(part->file);
    slot_info_close(&part->info);
    *part = (struct set_part){0};
}

/* MEMORY is the only failure; a slot that does not count becomes a problem. */
static pawl_code add_part(struct ckpt_set *set, struct store *store, const struct record *r,
                          const struct record_entry *t, struct pawl_error *e) {
    if (set->part_count == set->part_room) {
        uint32_t room = set->part_room == 0 ? 16 : 2 * set->part_room;
        struct set_part *parts = realloc(set->parts, room * sizeof *parts);
        if (parts == NULL) return no_memory(e);
        set->parts = parts;
        set->part_room = room;
    }
    struct set_part part = {.store = store, .counter = t->counter};
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
    if (code == PAWL_OK) {
        set->parts[set->part_count++] = part;
        return PAWL_OK;
    }
    set_problem(set, "%s/%s: step %" PRIu64 ", unit %u, part %u of %u does not count: %.500s",
                store_path(store), part.name, t->step, t->unit, t->part, t->part_count, why.text);
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

static pawl_code scan_record(struct ckpt_set *set, struct store *s, const struct log_found *found,
                             struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < found->newest.entry_count && code == PAWL_OK; i++)
        code = add_part(set, s, &found->newest, &found->newest.entries[i], e);
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
static pawl_code scan_store(struct ckpt_set *set, struct store *s, uint8_t *run, bool *has_run,
                            struct log_found *found, struct pawl_error *e) {
    uint8_t identity[RUN_ID_BYTES];
    struct pawl_error why = {0};
    pawl_code code = log_identity_read(s, identity, &why);
    if (code == PAWL_NOT_FOUND && has_slots(s)) /* an empty folder is a store that was never used */
        set_problem(set, "%s: no file %s that says whose it is", store_path(s), LOG_IDENTITY_NAME);
    if (code != PAWL_OK && code != PAWL_NOT_FOUND) set_problem(set, "%s", why.text);
    if (code == PAWL_OK) {
        code = check_run(s, *has_run ? run : NULL, identity, e);
        if (code != PAWL_OK) return code;
        if (!*has_run) memcpy(run, identity, RUN_ID_BYTES);
        *has_run = true;
    }
    code = log_scan(s, found, &why);
    if (code == PAWL_MEMORY) return no_memory(e);
    if (found->problem[0] != 0) set_problem(set, "%s", found->problem);
    if (code != PAWL_OK) {
        set_problem(set, "%s", why.text);
        return PAWL_OK;
    }
    if (!found->any && found->log_count > 0) set_problem(set, "%s: no valid commit record", store_path(s));
    if (found->log_count == 0 && has_slots(s))
        set_problem(set, "%s: no commit log, so none of its slots counts", store_path(s));
    if (!found->any) return PAWL_OK;
    code = check_run(s, *has_run ? run : NULL, found->newest.run_id, e);
    if (code != PAWL_OK) return code;
    if (!*has_run) memcpy(run, found->newest.run_id, RUN_ID_BYTES);
    *has_run = true;
    return scan_record(set, s, found, e);
}

/* ---- groups ---- */

static int by_group(const struct slot_info *a, const struct slot_info *b) {
    if (a->step != b->step) return a->step > b->step ? -1 : 1; /* newest first */
    if (a->incarnation != b->incarnation) return a->incarnation > b->incarnation ? -1 : 1;
    if (a->unit_count != b->unit_count) return a->unit_count < b->unit_count ? -1 : 1;
    return 0;
}

/* Within a group: unit, then fewest parts, then part, then the latest commit. */
static int by_part(const void *x, const void *y) {
    const struct set_part *p = x, *q = y;
    const struct slot_info *a = &p->info, *b = &q->info;
    int order = by_group(a, b);
    if (order != 0) return order;
    if (a->unit != b->unit) return a->unit < b->unit ? -1 : 1;
    if (a->part_count != b->part_count) return a->part_count < b->part_count ? -1 : 1;
    if (a->part != b->part) return a->part < b->part ? -1 : 1;
    return p->counter > q->counter ? -1 : p->counter < q->counter;
}

/* Is there an n with all parts 0..n-1 of n? The parts from `at` on are those of `unit` if it has any; moves
 * `at` behind them. `missing` says what the most complete try lacks. */
static bool unit_is_complete(const struct ckpt_set *set, const struct set_group *g, uint32_t unit,
                             uint32_t *at, char *missing, size_t missing_size) {
    bool complete = false;
    snprintf(missing, missing_size, "unit %u of %u: no part", unit, g->step.unit_count);
    while (*at < g->part_count && set->parts[g->parts[*at]].info.unit == unit) {
        uint32_t n = set->parts[g->parts[*at]].info.part_count, next = 0;
        for (; *at < g->part_count; ++*at) {
            const struct slot_info *s = &set->parts[g->parts[*at]].info;
            if (s->unit != unit || s->part_count != n) break;
            if (s->part == next) next++;
        }
        if (next == n) complete = true;
        if (next != n && !complete)
            snprintf(missing, missing_size, "unit %u of %u: part %u of %u", unit, g->step.unit_count, next,
                     n);
    }
    return complete;
}

static void judge_group(const struct ckpt_set *set, struct set_group *g) {
    uint32_t at = 0;
    g->step.complete = true;
    for (uint32_t unit = 0; unit < g->step.unit_count && g->step.complete; unit++) {
        char missing[sizeof g->step.missing];
        if (unit_is_complete(set, g, unit, &at, missing, sizeof missing)) continue;
        g->step.complete = false;
        memcpy(g->step.missing, missing, sizeof missing);
    }
}

/* ---- tensors of a group ---- */

static int by_name(const void *x, const void *y) {
    const struct set_ref *a = x, *b = y;
    int order = strcmp(a->name, b->name);
    return order != 0          ? order
           : a->part < b->part ? -1
                               : a->part > b->part; /* parts are in order of preference */
}

static pawl_code index_refs(const struct ckpt_set *set, struct set_group *g, struct pawl_error *e) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < g->part_count; i++) count += set->parts[g->parts[i]].info.header.tensor_count;
    g->refs = calloc(count + 1, sizeof *g->refs);
    if (g->refs == NULL || count > UINT32_MAX) return no_memory(e);
    for (uint32_t i = 0; i < g->part_count; i++) {
        const struct slot_info *s = &set->parts[g->parts[i]].info;
        for (uint32_t k = 0; k < s->header.tensor_count; k++)
            if (s->slices[k].name != NULL)
                g->refs[g->ref_count++] = (struct set_ref){s->slices[k].name, g->parts[i], k};
    }
    qsort(g->refs, g->ref_count, sizeof *g->refs, by_name);
    return PAWL_OK;
}

static int by_unit(const void *x, const void *y) {
    const struct ckpt_tensor *a = x, *b = y;
    if (a->unit != b->unit) return a->unit < b->unit ? -1 : 1;
    return strcmp(a->name, b->name);
}

static pawl_code add_tensor(const struct ckpt_set *set, struct set_group *g, const struct set_ref *ref,
                            struct pawl_error *e) {
    const struct slot_info *s = &set->parts[ref->part].info;
    const struct st_tensor *t = &s->header.tensors[ref->tensor];
    uint64_t *shape = calloc((size_t)t->rank + 1, sizeof *shape);
    if (shape == NULL) return no_memory(e);
    if (t->rank > 0) memcpy(shape, t->shape, t->rank * sizeof *shape);
    if (t->rank > 0) shape[0] = s->slices[ref->tensor].row_count;
    g->tensors[g->tensor_count++] = (struct ckpt_tensor){ref->name, t->dtype, t->rank, shape, s->unit};
    return PAWL_OK;
}

static pawl_code index_tensors(const struct ckpt_set *set, struct set_group *g, struct pawl_error *e) {
    g->tensors = calloc((size_t)g->ref_count + 1, sizeof *g->tensors);
    if (g->tensors == NULL) return no_memory(e);
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < g->ref_count && code == PAWL_OK; i++) {
        const struct set_ref *ref = &g->refs[i], *before = i > 0 ? &g->refs[i - 1] : NULL;
        bool same = before != NULL && strcmp(before->name, ref->name) == 0 &&
                    set->parts[before->part].info.unit == set->parts[ref->part].info.unit;
        if (!same) code = add_tensor(set, g, ref, e);
    }
    qsort(g->tensors, g->tensor_count, sizeof *g->tensors, by_unit);
    return code;
}

static pawl_code make_group(struct ckpt_set *set, uint32_t first, uint32_t count, struct pawl_error *e) {
    const struct slot_info *s = &set->parts[first].info;
    struct set_group *g = &set->groups[set->group_count++];
    g->step = (struct ckpt_step){.step = s->step, .incarnation = s->incarnation, .unit_count = s->unit_count};
    g->parts = calloc(count, sizeof *g->parts);
    if (g->parts == NULL) return no_memory(e);
    g->part_count = count;
    for (uint32_t i = 0; i < count; i++) g->parts[i] = first + i;
    judge_group(set, g);
    pawl_code code = index_refs(set, g, e);
    return code == PAWL_OK ? index_tensors(set, g, e) : code;
}

static pawl_code make_groups(struct ckpt_set *set, struct pawl_error *e) {
    if (set->part_count > 1) qsort(set->parts, set->part_count, sizeof *set->parts, by_part);
    set->groups = calloc((size_t)set->part_count + 1, sizeof *set->groups);
    if (set->groups == NULL) return no_memory(e);
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0, count; i < set->part_count && code == PAWL_OK; i += count) {
        count = 1;
        while (i + count < set->part_count && by_group(&set->parts[i].info, &set->parts[i + count].info) == 0)
            count++;
        code = make_group(set, i, count, e);
    }
    return code;
}

/* ---- calls ---- */

pawl_code ckpt_set_open(struct store *const *stores, uint32_t count, const uint8_t *run_id,
                        struct ckpt_set **out, struct pawl_error *e) {
    *out = NULL;
    struct ckpt_set *set = calloc(1, sizeof *set);
    struct log_found *found = malloc(sizeof *found);
    pawl_code code = set == NULL || found == NULL ? no_memory(e) : PAWL_OK;
    uint8_t run[RUN_ID_BYTES] = {0};
    bool has_run = run_id != NULL;
    if (has_run) memcpy(run, run_id, sizeof run);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++)
        code = scan_store(set, stores[i], run, &has_run, found, e);
    if (code == PAWL_OK) code = make_groups(set, e);
    free(found);
    if (code == PAWL_OK)
        *out = set;
    else
        ckpt_set_close(set);
    return code;
}

static void group_close(struct set_group *g) {
    for (uint32_t i = 0; i < g->tensor_count; i++) free((void *)(uintptr_t)g->tensors[i].shape);
    free(g->tensors);
    free(g->refs);
    free(g->parts);
}

void ckpt_set_close(struct ckpt_set *set) {
    if (set == NULL) return;
    for (uint32_t i = 0; i < set->group_count; i++) group_close(&set->groups[i]);
    for (uint32_t i = 0; i < set->part_count; i++) part_close(&set->parts[i]);
    for (uint32_t i = 0; i < set->problem_count; i++) free(set->problems[i]);
    for (uint32_t i = 0; i < SET_LINES; i++) mem_free(set->lines[i].data, set->lines[i].room);
    free(set->groups);
    free(set->parts);
    free(set->problems);
    free(set);
}

uint32_t ckpt_set_count(const struct ckpt_set *set) { return set->group_count; }

const struct ckpt_step *ckpt_set_at(const struct ckpt_set *set, uint32_t index) {
    return index < set->group_count ? &set->groups[index].step : NULL;
}

const char *ckpt_set_problem(const struct ckpt_set *set, uint32_t index) {
    return index < set->problem_count ? set->problems[index] : NULL;
}

uint32_t ckpt_set_tensor_count(const struct ckpt_set *set, uint32_t index) {
    return index < set->group_count ? set->groups[index].tensor_count : 0;
}

const struct ckpt_tensor *ckpt_set_tensor(const struct ckpt_set *set, uint32_t index, uint32_t tensor) {
    if (tensor >= ckpt_set_tensor_count(set, index)) return NULL;
    return &set->groups[index].tensors[tensor];
}
