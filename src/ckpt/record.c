/* Encoding and decoding of commit records; see ckpt/record.h. */
#include "ckpt/record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "store/store.h"

static const uint8_t record_magic[8] = {'p', 'a', 'w', 'l', 'c', 'm', 't', 0};

static void encode_entry(const struct record_entry *t, struct bytes *out) {
    bytes_put_u32(out, t->slot);
    bytes_put_u32(out, 0);
    bytes_put_u64(out, t->step);
    bytes_put_u64(out, t->incarnation);
    bytes_put_u32(out, t->unit);
    bytes_put_u32(out, t->unit_count);
    bytes_put_u32(out, t->part);
    bytes_put_u32(out, t->part_count);
    bytes_put_u64(out, t->header_bytes);
    bytes_put_u64(out, t->file_bytes);
    bytes_put_u64(out, t->counter);
    bytes_put(out, t->header_sum, sizeof t->header_sum);
}

void record_put_zeros(struct bytes *out, size_t count) {
    static const uint8_t zeros[STORE_BLOCK];
    for (size_t done = 0; done < count; done += sizeof zeros)
        bytes_put(out, zeros, count - done < sizeof zeros ? count - done : sizeof zeros);
}

void record_encode(const struct record *r, struct bytes *out) {
    size_t start = out->size;
    size_t used = RECORD_HEAD_BYTES + (size_t)r->entry_count * RECORD_ENTRY_BYTES + RECORD_SUM_BYTES;
    size_t total = mem_round_up(used, STORE_BLOCK);
    bytes_put(out, record_magic, sizeof record_magic);
    bytes_put_u32(out, RECORD_VERSION);
    bytes_put_u32(out, (uint32_t)total);
    bytes_put_u64(out, r->counter);
    bytes_put(out, r->run_id, sizeof r->run_id);
    bytes_put_u32(out, r->entry_count);
    bytes_put_u32(out, 0);
    for (uint32_t i = 0; i < r->entry_count; i++) encode_entry(&r->entries[i], out);
    record_put_zeros(out, total - RECORD_SUM_BYTES - (out->size - start));
    if (out->failed) return;
    uint8_t sum[RECORD_SUM_BYTES];
    hash128(out->data + start, total - RECORD_SUM_BYTES, sum);
    bytes_put(out, sum, sizeof sum);
}

static bool all_zero(const uint8_t *data, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (data[i] != 0) return false;
    return true;
}

static bool decode_entry(struct reader *r, struct record_entry *t) {
    t->slot = reader_u32(r);
    uint32_t zero = reader_u32(r);
    t->step = reader_u64(r);
    t->incarnation = reader_u64(r);
    t->unit = reader_u32(r);
    t->unit_count = reader_u32(r);
    t->part = reader_u32(r);
    t->part_count = reader_u32(r);
    t->header_bytes = reader_u64(r);
    t->file_bytes = reader_u64(r);
    t->counter = reader_u64(r);
    const uint8_t *sum = reader_take(r, sizeof t->header_sum);
    if (sum != NULL) memcpy(t->header_sum, sum, sizeof t->header_sum);
    return !r->failed && zero == 0 && t->unit < t->unit_count && t->part < t->part_count &&
           t->header_bytes >= STORE_BLOCK && t->header_bytes % STORE_BLOCK == 0 &&
           t->file_bytes >= t->header_bytes && t->file_bytes % STORE_BLOCK == 0 && t->file_bytes <= INT64_MAX;
}

static pawl_code decode_entries(struct reader *r, struct record *out, struct pawl_error *e) {
    out->entry_count = reader_u32(r);
    uint32_t zero = reader_u32(r);
    if (r->failed || zero != 0 || out->entry_count > COMMIT_SLOTS_MAX)
        return error_set(e, PAWL_CORRUPT, 0, "commit record: %u entries, wanted at most %u", out->entry_count,
                         COMMIT_SLOTS_MAX);
    for (uint32_t i = 0; i < out->entry_count; i++)
        if (!decode_entry(r, &out->entries[i]))
            return error_set(e, PAWL_CORRUPT, 0, "commit record: entry %u holds impossible numbers", i);
    if (!all_zero(r->data + r->at, r->size - r->at))
        return error_set(e, PAWL_CORRUPT, 0, "commit record: bytes after the last entry");
    return PAWL_OK;
}

pawl_code record_decode(const uint8_t *data, size_t size, struct record *out, struct pawl_error *e) {
    memset(out, 0, sizeof *out);
    if (all_zero(data, size)) return error_set(e, PAWL_NOT_FOUND, 0, "commit record: never written");
    struct reader r = reader_of(data, size);
    const uint8_t *magic = reader_take(&r, sizeof record_magic);
    if (magic == NULL || memcmp(magic, record_magic, sizeof record_magic) != 0)
        return error_set(e, PAWL_CORRUPT, 0, "commit record: no magic at its begin");
    uint32_t version = reader_u32(&r), total = reader_u32(&r);
    if (r.failed || total < STORE_BLOCK || total % STORE_BLOCK != 0 || total > RECORD_REGION_BYTES ||
        total > size)
        return error_set(e, PAWL_CORRUPT, 0, "commit record: length %u, wanted %u to %zu", total, STORE_BLOCK,
                         size);
    uint8_t sum[RECORD_SUM_BYTES];
    hash128(data, total - RECORD_SUM_BYTES, sum);
    if (memcmp(sum, data + total - RECORD_SUM_BYTES, sizeof sum) != 0)
        return error_set(e, PAWL_CORRUPT, 0, "commit record: its checksum does not match (torn or damaged)");
    if (version != RECORD_VERSION)
        return error_set(e, PAWL_FORMAT, 0, "commit record: version %u, this program reads %u", version,
                         RECORD_VERSION);
    r.size = total - RECORD_SUM_BYTES;
    out->counter = reader_u64(&r);
    const uint8_t *run_id = reader_take(&r, sizeof out->run_id);
    if (run_id != NULL) memcpy(out->run_id, run_id, sizeof out->run_id);
    if (out->counter > RECORD_COUNTER_MAX)
        return error_set(e, PAWL_CORRUPT, 0, "commit record: counter %" PRIu64 ", wanted at most %llu",
                         out->counter, RECORD_COUNTER_MAX);
    return decode_entries(&r, out, e);
}

uint64_t record_counter_named(const uint8_t *data, size_t size) {
    struct reader r = reader_of(data, size);
    const uint8_t *magic = reader_take(&r, sizeof record_magic);
    if (magic == NULL || memcmp(magic, record_magic, sizeof record_magic) != 0) return UINT64_MAX;
    (void)reader_u64(&r); /* version and length */
    uint64_t highest = reader_u64(&r);
    (void)reader_take(&r, RUN_ID_BYTES);
    uint32_t count = reader_u32(&r);
    (void)reader_u32(&r);
    if (r.failed || count > COMMIT_SLOTS_MAX) return UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        struct record_entry t = {0};
        (void)decode_entry(&r, &t);
        if (t.counter > highest) highest = t.counter;
    }
    return r.failed ? UINT64_MAX : highest;
}

/* ---- names ---- */

void record_slot_name(uint32_t slot, char out[RECORD_NAME_BYTES]) {
    snprintf(out, RECORD_NAME_BYTES, "slot-%06u.safetensors", slot);
}

void record_log_name(uint32_t log, char out[RECORD_NAME_BYTES]) {
    snprintf(out, RECORD_NAME_BYTES, "commit-%06u.log", log);
}

/* The number is only taken when it makes exactly this name, so that no two names mean one file. */
bool record_slot_of_name(const char *name, uint32_t *slot) {
    char again[RECORD_NAME_BYTES];
    if (sscanf(name, "slot-%9u", slot) != 1) return false;
    record_slot_name(*slot, again);
    return strcmp(again, name) == 0;
}

bool record_log_of_name(const char *name, uint32_t *log) {
    char again[RECORD_NAME_BYTES];
    if (sscanf(name, "commit-%9u", log) != 1) return false;
    record_log_name(*log, again);
    return strcmp(again, name) == 0;
}
