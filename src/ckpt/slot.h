/* A slot file: a safetensors file with checksums. Layout: docs/formats/slot.md.
 *
 * Making one: a plan orders the tensors so that large page-aligned memory is written straight from where it
 * lies and the rest is gathered, fixes the header's size, and cuts the data into chunks. What of that does
 * not change from save to save is kept in the layout. Reading one: every field is checked; a missing checksum
 * is a refusal. Both without I/O; parsing is a fuzz target. Tested in
 * tests/unit/ckpt_slot_test.c, ckpt_layout_test.c and ckpt_damage_test.c. */
#ifndef CKPT_SLOT_H
#define CKPT_SLOT_H

#include "ckpt/ckpt.h"

#define SLOT_SUM_BYTES 16u
/* Tensor names with this prefix are filler: U8 tensors of zeros that align or pad. */
#define SLOT_OWN_PREFIX "__pawl_"
/* Memory runs from this size on are worth chunks of their own; smaller ones are cheaper to gather. */
#define SLOT_DIRECT_BYTES    (256u << 10)
#define SLOT_CHUNK_BYTES_MAX (1u << 30)
/* As many chunks as checksums find room in a header. */
#define SLOT_CHUNKS_MAX (ST_HEADER_BYTES_MAX / (2 * SLOT_SUM_BYTES))

struct slot_chunk {
    uint64_t offset, bytes; /* in the data; multiples of STORE_BLOCK */
    const uint8_t *direct;  /* the bytes, aligned to STORE_BLOCK; null: to be gathered */
};

struct slot_span { /* where bytes of the data lie in memory */
    uint64_t begin, bytes;
    const uint8_t *data;
    const struct pawl_memory *memory; /* of which kind; null: the process's own */
};

struct layout_order;

struct slot_plan {
    struct layout_order *order; /* held: the text of the tensors in the header is its */
    struct slot_span *spans;    /* ascending; what no span covers is filler, zero */
    uint32_t span_count;
    struct slot_chunk *chunks;
    uint64_t chunk_count;
    uint8_t *sums; /* SLOT_SUM_BYTES per chunk, filled in as chunks are written; null: unchecked */
    uint64_t header_bytes, data_bytes;
    struct bytes metadata; /* text of the header up to the checksums */
};

/* Errors: ARGUMENT naming the tensor and field, MEMORY. The plan owns or holds everything but the tensors'
 * data. With save->layout whose data lies as before (same neighbours, same alignment) nothing is planned. */
pawl_code slot_plan_make(const struct ckpt_config *config, const struct ckpt_save *save,
                         struct slot_plan *out, struct pawl_error *e);
void slot_plan_close(struct slot_plan *plan);
/* Copies chunk bytes into `out`, which holds chunk->bytes; what lies in other kinds of memory is left out. */
void slot_plan_gather(const struct slot_plan *plan, const struct slot_chunk *chunk, uint8_t *out);
/* The first span that ends behind byte `offset` of the data; span_count when there is none. */
uint32_t slot_plan_span(const struct slot_plan *plan, uint64_t offset);
/* Appends the header of header_bytes with the sums as they are now. */
pawl_code slot_plan_header(struct slot_plan *plan, struct bytes *out, struct pawl_error *e);

struct slot_slice {        /* what a stored tensor is of which whole one; in the order of header.tensors */
    const char *name;      /* of the whole tensor; null for filler */
    const uint64_t *shape; /* [rank] of the whole tensor */
    const uint64_t *begin; /* [rank] of the stored box in it, whose extent is the stored shape */
    void *own;             /* memory for these where they are not the header's */
};

struct slot_info { /* all zero is empty */
    struct st_header header;
    struct slot_slice *slices;
    struct slot_chunk *chunks; /* direct is null */
    uint64_t chunk_count;
    uint8_t *sums; /* null: unchecked */
    uint8_t run_id[CKPT_RUN_ID_BYTES];
    uint64_t incarnation, step;
    uint32_t unit, unit_count, part, part_count;
    uint8_t *blob;
    size_t blob_bytes;
};

/* From the first bytes of a slot file, the header whole. FORMAT naming the field: not a slot, a newer
 * version, no checksums, inconsistent; MEMORY. On failure `out` is empty. */
pawl_code slot_parse(const uint8_t *data, size_t size, uint64_t file_bytes, struct slot_info *out,
                     struct pawl_error *e);
void slot_info_close(struct slot_info *info);

#endif
