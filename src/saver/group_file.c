/* One rank's file: its bytes, and what the files of all ranks say of a step. See saver/group.h. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "saver/group.h"

#define GROUP_VERSION   1u
#define STATE_COMMITTED 1u
#define STATE_NEVER     2u
#define STATE_DURABLE   3u

static const uint8_t group_magic[8] = {'p', 'a', 'w', 'l', 'g', 'r', 'p', 0};

static void put_entry(struct bytes *out, const struct group_entry *t) {
    bytes_put_u64(out, t->step);
    bytes_put_u32(out, t->unit);
    bytes_put_u32(out, t->unit_count);
    bytes_put_u32(out, t->part);
    bytes_put_u32(out, t->part_count);
    bytes_put_u32(out, t->copies);
    bytes_put_u32(out, t->durable ? STATE_DURABLE : t->committed ? STATE_COMMITTED : STATE_NEVER);
}

void group_encode(const struct group_file *f, uint8_t out[GROUP_FILE_BYTES]) {
    uint8_t room[GROUP_FILE_BYTES];
    struct bytes b = {.data = room, .capacity = sizeof room}; /* never grows: the file's size is fixed */
    bytes_put(&b, group_magic, sizeof group_magic);
    bytes_put_u32(&b, GROUP_VERSION);
    bytes_put_u32(&b, f->entry_count);
    bytes_put(&b, f->run_id, sizeof f->run_id);
    bytes_put_u64(&b, f->incarnation);
    bytes_put_u32(&b, f->rank);
    bytes_put_u32(&b, f->rank_count);
    bytes_put_u64(&b, f->durable);
    bytes_put_u64(&b, 0);
    for (uint32_t i = 0; i < f->entry_count; i++) put_entry(&b, &f->entries[i]);
    memset(room + b.size, 0, sizeof room - b.size);
    hash128(room, GROUP_FILE_BYTES - GROUP_SUM_BYTES, room + GROUP_FILE_BYTES - GROUP_SUM_BYTES);
    memcpy(out, room, sizeof room);
}

static bool get_entry(struct reader *r, struct group_entry *t) {
    t->step = reader_u64(r);
    t->unit = reader_u32(r);
    t->unit_count = reader_u32(r);
    t->part = reader_u32(r);
    t->part_count = reader_u32(r);
    t->copies = reader_u32(r);
    uint32_t state = reader_u32(r);
    t->durable = state == STATE_DURABLE;
    t->committed = state == STATE_COMMITTED || t->durable;
    return t->step > 0 && t->unit < t->unit_count && t->part < t->part_count && t->copies >= 1 &&
           t->copies <= t->part_count && state >= STATE_COMMITTED && state <= STATE_DURABLE;
}

pawl_code group_decode(const uint8_t *data, size_t bytes, struct group_file *out, struct pawl_error *e) {
    memset(out, 0, sizeof *out);
    uint8_t sum[GROUP_SUM_BYTES];
    if (bytes != GROUP_FILE_BYTES)
        return error_set(e, PAWL_CORRUPT, 0, "a rank's file has %zu bytes, wanted %u", bytes,
                         GROUP_FILE_BYTES);
    if (memcmp(data, group_magic, sizeof group_magic) != 0)
        return error_set(e, PAWL_CORRUPT, 0, "a rank's file: no magic at its begin");
    hash128(data, GROUP_FILE_BYTES - GROUP_SUM_BYTES, sum);
    if (memcmp(sum, data + GROUP_FILE_BYTES - GROUP_SUM_BYTES, sizeof sum) != 0)
        return error_set(e, PAWL_CORRUPT, 0, "a rank's file: its checksum does not match (torn or damaged)");
    struct reader r = reader_of(data + sizeof group_magic, GROUP_FILE_BYTES - sizeof group_magic);
    uint32_t version = reader_u32(&r);
    if (version != GROUP_VERSION)
        return error_set(e, PAWL_FORMAT, 0, "a rank's file: version %u, this program reads %u", version,
                         GROUP_VERSION);
    out->entry_count = reader_u32(&r);
    memcpy(out->run_id, reader_take(&r, sizeof out->run_id), sizeof out->run_id);
    out->incarnation = reader_u64(&r);
    out->rank = reader_u32(&r);
    out->rank_count = reader_u32(&r);
    out->durable = reader_u64(&r);
    bool good = reader_u64(&r) == 0 && out->entry_count <= GROUP_ENTRIES_MAX && out->rank < out->rank_count;
    for (uint32_t i = 0; good && i < out->entry_count; i++) good = get_entry(&r, &out->entries[i]);
    while (good && r.at < GROUP_FILE_BYTES - sizeof group_magic - GROUP_SUM_BYTES) good = reader_u8(&r) == 0;
    if (good) return PAWL_OK;
    out->entry_count = 0;
    return error_set(e, PAWL_CORRUPT, 0, "a rank's file holds impossible numbers");
}

/* ---- judging ---- */

struct judged { /* one part of one unit, over all files */
    uint32_t unit, unit_count, part, part_count, copies;
    uint32_t committed, never; /* how many ranks say so */
};

static int by_part(const void *x, const void *y) {
    const struct judged *a = x, *b = y;
    if (a->unit_count != b->unit_count) return a->unit_count < b->unit_count ? -1 : 1;
    if (a->unit != b->unit) return a->unit < b->unit ? -1 : 1;
    if (a->part_count != b->part_count) return a->part_count < b->part_count ? -1 : 1;
    return a->part < b->part ? -1 : a->part > b->part;
}

/* The parts of the step, sorted, equal ones joined. */
static uint32_t collect(struct group_file *const *files, uint32_t count, uint64_t step, struct judged **out) {
    uint32_t used = 0, joined = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; files[i] != NULL && k < files[i]->entry_count; k++)
            used += files[i]->entries[k].step == step;
    struct judged *all = *out = calloc((size_t)used + 1, sizeof *all);
    if (all == NULL) return 0;
    used = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; files[i] != NULL && k < files[i]->entry_count; k++) {
            const struct group_entry *t = &files[i]->entries[k];
            if (t->step != step) continue;
            all[used++] = (struct judged){t->unit,   t->unit_count, t->part,      t->part_count,
                                          t->copies, t->committed,  !t->committed};
        }
    }
    qsort(all, used, sizeof *all, by_part);
    for (uint32_t i = 0; i < used; i++) {
        if (joined > 0 && by_part(&all[joined - 1], &all[i]) == 0) {
            all[joined - 1].committed += all[i].committed;
            all[joined - 1].never += all[i].never;
        } else {
            all[joined++] = all[i];
        }
    }
    return joined;
}

/* The run of one unit's parts of one number from `at` on: all there, or one that nobody will have? */
static enum group_verdict judge_unit(const struct judged *parts, uint32_t count, uint32_t *at) {
    const struct judged *first = &parts[*at];
    uint32_t have = 0;
    bool never = false;
    for (; *at < count && parts[*at].unit == first->unit && parts[*at].unit_count == first->unit_count &&
           parts[*at].part_count == first->part_count;
         ++*at) {
        have += parts[*at].committed > 0;
        never = never || (parts[*at].committed == 0 && parts[*at].never >= parts[*at].copies);
    }
    return have == first->part_count ? GROUP_COMPLETE : never ? GROUP_NEVER : GROUP_OPEN;
}

bool group_seen_durable(struct group_file *const *files, uint32_t count, uint64_t step) {
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; files[i] != NULL && k < files[i]->entry_count; k++)
            if (files[i]->entries[k].step == step && files[i]->entries[k].durable) return true;
    return false;
}

enum group_verdict group_judge(struct group_file *const *files, uint32_t count, uint64_t step) {
    if (group_seen_durable(files, count, step)) return GROUP_COMPLETE;
    struct judged *parts = NULL;
    uint32_t part_count = collect(files, count, step, &parts), complete = 0;
    bool never = false, whole = false;
    for (uint32_t at = 0; at < part_count && !whole;) {
        const struct judged *unit = &parts[at];
        uint32_t unit_count = unit->unit_count;
        bool unit_complete = false, unit_never = false;
        if (at == 0 || parts[at - 1].unit_count != unit_count) complete = 0;
        while (at < part_count && parts[at].unit == unit->unit && parts[at].unit_count == unit_count) {
            enum group_verdict v = judge_unit(parts, part_count, &at);
            unit_complete = unit_complete || v == GROUP_COMPLETE;
            unit_never = unit_never || v == GROUP_NEVER;
        }
        complete += unit_complete;
        never = never || (unit_never && !unit_complete);
        whole = complete == unit_count;
    }
    free(parts);
    return whole ? GROUP_COMPLETE : never ? GROUP_NEVER : GROUP_OPEN;
}
