/* The safetensors container: u64 little-endian header length, JSON header, tensor bytes.
 *
 * Used by the checkpoint slots and by weight files, so it lives on the ground floor. Parsing checks
 * everything the format promises: UTF-8 JSON object, known dtypes, begin <= end, byte size equal to
 * shape times dtype size (in bits, which make whole bytes), no overlap, no holes, all inside the file. A
 * header may be padded with spaces so that the data starts on a block boundary. Source: the safetensors
 * format text, version 0.4 to 0.8. Thread: caller's. Tested in tests/unit/base_safetensors_test.c. */
#ifndef BASE_SAFETENSORS_H
#define BASE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include <pawl/tensor.h>

#include "base/bytes.h"
#include "base/error.h"

const char *st_dtype_name(enum pawl_dtype dtype); /* "F32" */
/* Bytes to which an element's address is aligned: its size, or 1 where several share a byte. */
uint32_t st_dtype_width(enum pawl_dtype dtype);
/* No overlong forms, no surrogates, nothing above U+10FFFF. */
bool st_utf8_valid(const uint8_t *s, size_t size);

/* Largest header accepted, in bytes; the reference reader refuses more. */
#define ST_HEADER_BYTES_MAX 100000000u

struct st_tensor {
    char *name;
    enum pawl_dtype dtype;
    uint32_t rank;   /* 0 is a scalar */
    uint64_t *shape; /* [rank]; dimensions may be 0 */
    uint64_t begin;  /* bytes from the start of the data */
    uint64_t bytes;
};

struct st_header { /* all zero is empty; owned, st_header_close frees */
    struct st_tensor *tensors;
    uint32_t tensor_count;
    uint64_t data_offset; /* from the start of the file; set by parse and write */
    uint64_t data_bytes;
    char **metadata;         /* key, value, key, value, ... : "__metadata__" */
    uint32_t metadata_count; /* pairs */
};

void st_header_close(struct st_header *h);

/* Append a tensor (its name and shape are copied) placed at `begin`. */
pawl_code st_header_add(struct st_header *h, const char *name, enum pawl_dtype dtype, uint32_t rank,
                        const uint64_t *shape, uint64_t begin, struct pawl_error *e);
pawl_code st_header_set(struct st_header *h, const char *key, const char *value, struct pawl_error *e);
const char *st_header_get(const struct st_header *h, const char *key); /* null if absent */
const struct st_tensor *st_header_find(const struct st_header *h, const char *name);

/* Write length and JSON into `out`, padded with spaces so that length + JSON is a multiple of
 * `alignment` (8 at least); sets data_offset and data_bytes. Errors: FORMAT (holes, overlap, two
 * tensors of one name), MEMORY. */
pawl_code st_header_write(struct st_header *h, uint32_t alignment, struct bytes *out, struct pawl_error *e);

/* The text of one tensor in a header: "name":{"dtype":...}, without commas around it. For writers that make
 * the text of their header themselves. */
void st_put_tensor(struct bytes *out, const struct st_tensor *t);

/* Parse from the first bytes of a file. `size` must cover 8 + header length, else FORMAT names the
 * size wanted; st_header_size tells that size from the first 8 bytes (0 when they are no header).
 * `file_bytes` is the whole file's size. Errors: FORMAT, MEMORY. */
uint64_t st_header_size(const uint8_t first[8]);
pawl_code st_header_parse(const void *data, size_t size, uint64_t file_bytes, struct st_header *h,
                          struct pawl_error *e);

#endif
