/* Implementation of base/safetensors.h: the header as a table, its checks, and its text. The reader of
 * that text is in safetensors_parse.c. */
#include "base/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/safetensors_private.h"

static const struct {
    const char *name;
    uint32_t bits;
} dtype_rows[PAWL_DTYPE_COUNT] = {
#define X(name, bits, text) [PAWL_##name] = {text, bits},
#include <pawl/dtype.def>
#undef X
};

uint32_t pawl_dtype_bits(enum pawl_dtype dtype) {
    return (uint32_t)dtype < PAWL_DTYPE_COUNT ? dtype_rows[dtype].bits : 0;
}

const char *pawl_dtype_name(enum pawl_dtype dtype) {
    return (uint32_t)dtype < PAWL_DTYPE_COUNT ? dtype_rows[dtype].name : NULL;
}

const char *st_dtype_name(enum pawl_dtype dtype) {
    return (uint32_t)dtype < PAWL_DTYPE_COUNT ? dtype_rows[dtype].name : "unknown";
}

uint32_t st_dtype_width(enum pawl_dtype dtype) {
    uint32_t bits = pawl_dtype_bits(dtype);
    return bits % 8 == 0 ? bits / 8 : 1;
}

enum pawl_dtype st_dtype_of_name(const char *name) {
    uint32_t i = 0;
    while (i < PAWL_DTYPE_COUNT && strcmp(dtype_rows[i].name, name) != 0) i++;
    return (enum pawl_dtype)i;
}

void st_header_close(struct st_header *h) {
    for (uint32_t i = 0; i < h->tensor_count; i++) {
        free(h->tensors[i].name);
        free(h->tensors[i].shape);
    }
    for (uint32_t i = 0; i < 2 * h->metadata_count; i++) free(h->metadata[i]);
    free(h->tensors);
    free(h->metadata);
    *h = (struct st_header){0};
}

/* Room for one more element; capacity is the next power of two, so it need not be stored. */
static void *grow(void *array, uint32_t count, size_t element_bytes) {
    if (count != 0 && (count & (count - 1)) != 0) return array;
    return realloc(array, (count == 0 ? 1 : (size_t)count * 2) * element_bytes);
}

bool st_utf8_valid(const uint8_t *s, size_t size) {
    for (size_t i = 0; i < size;) {
        uint8_t c = s[i];
        size_t more = c < 0x80                ? 0
                      : c >= 0xC2 && c < 0xE0 ? 1
                      : (c & 0xF0) == 0xE0    ? 2
                      : (c & 0xF8) == 0xF0    ? 3
                                              : 4;
        if (more == 4 || more > size - i - 1) return false;
        uint32_t point = more == 0 ? c : c & (0x3Fu >> more);
        for (size_t k = 1; k <= more; k++) {
            if ((s[i + k] & 0xC0) != 0x80) return false;
            point = point << 6 | (s[i + k] & 0x3Fu);
        }
        if ((more == 2 && point < 0x800) || (more == 3 && (point < 0x10000 || point > 0x10FFFF)))
            return false;
        if (point >= 0xD800 && point < 0xE000) return false;
        i += more + 1;
    }
    return true;
}

static pawl_code tensor_bytes(const char *name, enum pawl_dtype dtype, uint32_t rank, const uint64_t *shape,
                              uint64_t *bytes, struct pawl_error *e) {
    uint64_t bits = pawl_dtype_bits(dtype);
    if (bits == 0)
        return error_set(e, PAWL_FORMAT, 0, "tensor \"%.200s\": unknown dtype %d", name, (int)dtype);
    for (uint32_t i = 0; i < rank; i++)
        if (!mem_mul(bits, shape[i], &bits))
            return error_set(e, PAWL_FORMAT, 0, "tensor \"%.200s\": its size in bits exceeds 64 bits", name);
    *bytes = bits / 8;
    if (bits % 8 == 0) return PAWL_OK;
    return error_set(e, PAWL_FORMAT, 0,
                     "tensor \"%.200s\": dtype %s and shape make %llu bits, wanted whole bytes", name,
                     st_dtype_name(dtype), (unsigned long long)bits);
}

pawl_code st_header_add(struct st_header *h, const char *name, enum pawl_dtype dtype, uint32_t rank,
                        const uint64_t *shape, uint64_t begin, struct pawl_error *e) {
    struct st_tensor t = {.dtype = dtype, .rank = rank, .begin = begin};
    pawl_code code = tensor_bytes(name, dtype, rank, shape, &t.bytes, e);
    if (code != PAWL_OK) return code;
    if (strcmp(name, "__metadata__") == 0 || !st_utf8_valid((const uint8_t *)name, strlen(name)))
        return error_set(e, PAWL_FORMAT, 0, "tensor \"%.200s\": the name is reserved or no UTF-8", name);
    struct st_tensor *tensors =
        h->tensor_count == UINT32_MAX ? NULL : grow(h->tensors, h->tensor_count, sizeof t);
    if (tensors != NULL) h->tensors = tensors;
    t.name = strdup(name);
    t.shape = calloc(rank == 0 ? 1 : rank, sizeof *t.shape);
    if (tensors == NULL || t.name == NULL || t.shape == NULL) {
        free(t.name);
        free(t.shape);
        return error_set(e, PAWL_MEMORY, 0, "safetensors header: no memory for tensor \"%.200s\"", name);
    }
    if (rank > 0) memcpy(t.shape, shape, rank * sizeof *shape);
    h->tensors[h->tensor_count++] = t;
    return PAWL_OK;
}

static uint32_t metadata_find(const struct st_header *h, const char *key) {
    uint32_t i = 0;
    while (i < h->metadata_count && strcmp(h->metadata[2 * i], key) != 0) i++;
    return i;
}

pawl_code st_header_append_metadata(struct st_header *h, const char *key, const char *value,
                                    struct pawl_error *e) {
    char **metadata = h->metadata_count >= UINT32_MAX / 2
                          ? NULL
                          : grow(h->metadata, h->metadata_count, 2 * sizeof *metadata);
    if (metadata != NULL) h->metadata = metadata;
    char *k = strdup(key), *v = strdup(value);
    if (metadata == NULL || k == NULL || v == NULL) {
        free(k);
        free(v);
        return error_set(e, PAWL_MEMORY, 0, "safetensors header: no memory for metadata \"%.200s\"", key);
    }
    h->metadata[2 * h->metadata_count] = k;
    h->metadata[2 * h->metadata_count + 1] = v;
    h->metadata_count++;
    return PAWL_OK;
}

pawl_code st_header_set(struct st_header *h, const char *key, const char *value, struct pawl_error *e) {
    if (!st_utf8_valid((const uint8_t *)key, strlen(key)) ||
        !st_utf8_valid((const uint8_t *)value, strlen(value)))
        return error_set(e, PAWL_FORMAT, 0, "safetensors metadata \"%.200s\": key or value is no UTF-8", key);
    uint32_t at = metadata_find(h, key);
    if (at == h->metadata_count) return st_header_append_metadata(h, key, value, e);
    char *v = strdup(value);
    if (v == NULL)
        return error_set(e, PAWL_MEMORY, 0, "safetensors header: no memory for metadata \"%.200s\"", key);
    free(h->metadata[2 * at + 1]);
    h->metadata[2 * at + 1] = v;
    return PAWL_OK;
}

const char *st_header_get(const struct st_header *h, const char *key) {
    uint32_t at = metadata_find(h, key);
    return at < h->metadata_count ? h->metadata[2 * at + 1] : NULL;
}

const struct st_tensor *st_header_find(const struct st_header *h, const char *name) {
    for (uint32_t i = 0; i < h->tensor_count; i++)
        if (strcmp(h->tensors[i].name, name) == 0) return &h->tensors[i];
    return NULL;
}

/* --- checks over the whole table --- */

static int by_place(const void *a, const void *b) {
    const struct st_tensor *x = *(const struct st_tensor *const *)a, *y = *(const struct st_tensor *const *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* an empty tensor stands before its neighbour */
}

static int by_name(const void *a, const void *b) {
    const struct st_tensor *x = *(const struct st_tensor *const *)a, *y = *(const struct st_tensor *const *)b;
    return strcmp(x->name, y->name);
}

static int by_key(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static pawl_code check_names(const struct st_tensor **sorted, uint32_t count, struct pawl_error *e) {
    qsort(sorted, count, sizeof *sorted, by_name);
    for (uint32_t i = 1; i < count; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            return error_set(e, PAWL_FORMAT, 0, "two tensors are named \"%.200s\"", sorted[i]->name);
    return PAWL_OK;
}

static pawl_code check_places(const struct st_tensor **sorted, uint32_t count, uint64_t *end,
                              struct pawl_error *e) {
    qsort(sorted, count, sizeof *sorted, by_place);
    *end = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct st_tensor *t = sorted[i];
        if (t->begin != *end)
            return error_set(e, PAWL_FORMAT, 0,
                             "tensor \"%.200s\": %s, it begins at byte %llu of the data, wanted %llu",
                             t->name, t->begin < *end ? "overlap" : "hole", (unsigned long long)t->begin,
                             (unsigned long long)*end);
        if (!mem_add(*end, t->bytes, end) || *end > INT64_MAX)
            return error_set(e, PAWL_FORMAT, 0, "tensor \"%.200s\": its end exceeds 63 bits", t->name);
    }
    return PAWL_OK;
}

static pawl_code check_metadata(const struct st_header *h, struct pawl_error *e) {
    char **keys = calloc((size_t)h->metadata_count + 1, sizeof *keys);
    if (keys == NULL) return error_set(e, PAWL_MEMORY, 0, "safetensors header: no memory to check it");
    for (uint32_t i = 0; i < h->metadata_count; i++) keys[i] = h->metadata[2 * i];
    qsort(keys, h->metadata_count, sizeof *keys, by_key);
    pawl_code code = PAWL_OK;
    for (uint32_t i = 1; i < h->metadata_count && code == PAWL_OK; i++)
        if (strcmp(keys[i - 1], keys[i]) == 0)
            code = error_set(e, PAWL_FORMAT, 0, "two metadata keys are named \"%.200s\"", keys[i]);
    free(keys);
    return code;
}

pawl_code st_header_check(const struct st_header *h, uint64_t *data_bytes, struct pawl_error *e) {
    const struct st_tensor **sorted = calloc((size_t)h->tensor_count + 1, sizeof *sorted);
    if (sorted == NULL) return error_set(e, PAWL_MEMORY, 0, "safetensors header: no memory to check it");
    for (uint32_t i = 0; i < h->tensor_count; i++) sorted[i] = &h->tensors[i];
    pawl_code code = check_names(sorted, h->tensor_count, e);
    if (code == PAWL_OK) code = check_places(sorted, h->tensor_count, data_bytes, e);
    if (code == PAWL_OK) code = check_metadata(h, e);
    free(sorted);
    return code;
}

/* --- text --- */

static void put_tensor(struct json *j, const struct st_tensor *t) {
    json_object(j, t->name);
    json_text(j, "dtype", st_dtype_name(t->dtype));
    json_array(j, "shape");
    for (uint32_t i = 0; i < t->rank; i++) json_u64(j, NULL, t->shape[i]);
    json_end_array(j);
    json_array(j, "data_offsets");
    json_u64(j, NULL, t->begin);
    json_u64(j, NULL, t->begin + t->bytes);
    json_end_array(j);
    json_end_object(j);
}

void st_put_tensor(struct bytes *out, const struct st_tensor *t) {
    struct json j = json_begin(out);
    put_tensor(&j, t);
}

static void put_header(struct json *j, const struct st_header *h) {
    json_object(j, NULL);
    if (h->metadata_count > 0) {
        json_object(j, "__metadata__");
        for (uint32_t i = 0; i < h->metadata_count; i++)
            json_text(j, h->metadata[2 * i], h->metadata[2 * i + 1]);
        json_end_object(j);
    }
    for (uint32_t i = 0; i < h->tensor_count; i++) put_tensor(j, &h->tensors[i]);
    json_end_object(j);
}

static void put_length(uint8_t out[8], uint64_t length) {
    for (int i = 0; i < 8; i++) out[i] = (uint8_t)(length >> (8 * i));
}

pawl_code st_header_write(struct st_header *h, uint32_t alignment, struct bytes *out, struct pawl_error *e) {
    if (alignment < 8) alignment = 8;
    uint64_t data_bytes;
    pawl_code code = st_header_check(h, &data_bytes, e);
    if (code != PAWL_OK) return code;
    size_t start = out->size;
    bytes_put_u64(out, 0);
    struct json j = json_begin(out);
    put_header(&j, h);
    while (!out->failed && (out->size - start) % alignment != 0) bytes_put_u8(out, ' ');
    if (out->failed) return error_set(e, PAWL_MEMORY, 0, "safetensors header: no memory for its text");
    uint64_t length = out->size - start - 8;
    if (length > ST_HEADER_BYTES_MAX)
        return error_set(e, PAWL_FORMAT, 0, "safetensors header: %llu bytes, readers accept at most %u",
                         (unsigned long long)length, ST_HEADER_BYTES_MAX);
    put_length(out->data + start, length);
    h->data_offset = length + 8;
    h->data_bytes = data_bytes;
    return PAWL_OK;
}
