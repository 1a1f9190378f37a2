/* The commit log: which slots count. Layout: docs/formats/store.md.
 *
 * A log file has two regions, written in turn. A record in one of them lists every slot that counts at its
 * time; the valid record with the highest counter stands. A torn write damages one region only, so the record
 * before it stands. Decoding checks everything; it is a fuzz target. */
#ifndef CKPT_RECORD_H
#define CKPT_RECORD_H

#include "base/bytes.h"
#include "base/error.h"
#include "ckpt/commit.h"

#define RECORD_REGION_BYTES 65536u
#define RECORD_LOG_BYTES    (2 * RECORD_REGION_BYTES)
#define RECORD_VERSION      1u
#define RECORD_HEAD_BYTES   48u
#define RECORD_ENTRY_BYTES  80u
#define RECORD_SUM_BYTES    16u
_Static_assert(RECORD_HEAD_BYTES + COMMIT_SLOTS_MAX * RECORD_ENTRY_BYTES + RECORD_SUM_BYTES <=
                   RECORD_REGION_BYTES,
               "a record of all slots fits into a region");

#define RUN_ID_BYTES 16u

struct record_entry {
    uint32_t slot; /* number in the file name */
    uint64_t step, incarnation;
    uint32_t unit, unit_count, part, part_count;
    uint64_t header_bytes, file_bytes;
    uint64_t counter; /* of the record that committed it */
    uint8_t header_sum[16];
};

struct record {
    uint64_t counter;
    uint8_t run_id[RUN_ID_BYTES];
    uint32_t entry_count;
    struct record_entry entries[COMMIT_SLOTS_MAX];
};

/* Appends the record, padded to whole blocks. A failed `out` means no memory. */
void record_encode(const struct record *r, struct bytes *out);
void record_put_zeros(struct bytes *out, size_t count);
/* From the bytes of a region, which may be shorter than one. NOT_FOUND: the region was never written (all
 * zero). FORMAT: a newer version. CORRUPT: torn or damaged. */
pawl_code record_decode(const uint8_t *data, size_t size, struct record *out, struct pawl_error *e);

/* The highest counter that a damaged record names, its own or an entry's, as far as its bytes can be
 * believed; UINT64_MAX: they are no record's. */
uint64_t record_counter_named(const uint8_t *data, size_t size);

/* "slot-000012.safetensors" and "commit-000001.log"; and back, false for other names. */
#define RECORD_NAME_BYTES 40u
/* Of commits: no store ever comes near it, so a larger counter is damage; one more is still a number. */
#define RECORD_COUNTER_MAX 1000000000000000000ull
void record_slot_name(uint32_t slot, char out[RECORD_NAME_BYTES]);
void record_log_name(uint32_t log, char out[RECORD_NAME_BYTES]);
bool record_slot_of_name(const char *name, uint32_t *slot);
bool record_log_of_name(const char *name, uint32_t *log);

#endif
