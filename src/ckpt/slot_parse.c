/* Reading a slot's header: every field is checked, a missing one is a refusal. See ckpt/slot.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "ckpt/box.h"
#include "ckpt/slot.h"

struct text { /* a cursor over a metadata value */
    const char *at;
};

static bool take_number(struct text *t, uint64_t *out) {
    const char *start = t->at;
    *out = 0;
    for (; *t->at >= '0' && *t->at <= '9'; t->at++)
        if (!mem_mul(*out, 10, out) || !mem_add(*out, (uint64_t)(*t->at - '0'), out)) return false;
    return t->at > start;
}

static bool take_char(struct text *t, char c) {
    if (*t->at != c) return false;
    t->at++;
    return true;
}

static pawl_code missing(const char *key, struct pawl_error *e) {
    return error_set(e, PAWL_FORMAT, 0, "slot header: '%s' is missing", key);
}

static pawl_code bad(const char *key, const char *wanted, struct pawl_error *e) {
    return error_set(e, PAWL_FORMAT, 0, "slot header: '%s': wanted %s", key, wanted);
}

static pawl_code get_number(const struct st_header *h, const char *key, uint64_t max, uint64_t *out,
                            struct pawl_error *e) {
    const char *value = st_header_get(h, key);
    if (value == NULL) return missing(key, e);
    struct text t = {value};
    if (!take_number(&t, out) || *t.at != 0 || *out > max) return bad(key, "a number within its range", e);
    return PAWL_OK;
}

static pawl_code get_u32(const struct st_header *h, const char *key, uint32_t *out, struct pawl_error *e) {
    uint64_t value = 0;
    pawl_code code = get_number(h, key, UINT32_MAX, &value, e);
    *out = (uint32_t)value;
    return code;
}

static pawl_code no_memory(struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "slot header: no memory");
}

/* ---- identity and blob ---- */

static pawl_code parse_identity(struct slot_info *s, struct pawl_error *e) {
    const struct st_header *h = &s->header;
    uint64_t format = 0;
    pawl_code code = get_number(h, "pawl.format", UINT64_MAX, &format, e);
    if (code == PAWL_OK && format != 1)
        return error_set(e, PAWL_FORMAT, 0, "slot header: 'pawl.format' is %" PRIu64 ", this program reads 1",
                         format);
    const char *run_id = st_header_get(h, "pawl.run");
    if (code == PAWL_OK && run_id == NULL) return missing("pawl.run", e);
    if (code == PAWL_OK && !hash_unhex(run_id, s->run_id, sizeof s->run_id))
        return bad("pawl.run", "32 hexadecimal digits", e);
    if (code == PAWL_OK) code = get_number(h, "pawl.incarnation", UINT64_MAX, &s->incarnation, e);
    if (code == PAWL_OK) code = get_number(h, "pawl.step", UINT64_MAX, &s->step, e);
    if (code == PAWL_OK) code = get_u32(h, "pawl.unit", &s->unit, e);
    if (code == PAWL_OK) code = get_u32(h, "pawl.units", &s->unit_count, e);
    if (code == PAWL_OK) code = get_u32(h, "pawl.part", &s->part, e);
    if (code == PAWL_OK) code = get_u32(h, "pawl.parts", &s->part_count, e);
    if (code == PAWL_OK && s->unit >= s->unit_count) return bad("pawl.unit", "a number below pawl.units", e);
    if (code == PAWL_OK && s->part >= s->part_count) return bad("pawl.part", "a number below pawl.parts", e);
    return code;
}

static pawl_code parse_blob(struct slot_info *s, struct pawl_error *e) {
    const char *text = st_header_get(&s->header, "pawl.blob"),
               *hex = st_header_get(&s->header, "pawl.blob_hex");
    if (text == NULL && hex == NULL) return missing("pawl.blob", e);
    if (text != NULL && hex != NULL) return bad("pawl.blob", "no 'pawl.blob_hex' beside it", e);
    s->blob_bytes = text != NULL ? strlen(text) : strlen(hex) / 2;
    s->blob = malloc(s->blob_bytes + 1);
    if (s->blob == NULL) return no_memory(e);
    if (text != NULL)
        memcpy(s->blob, text, s->blob_bytes);
    else if (!hash_unhex(hex, s->blob, s->blob_bytes))
        return bad("pawl.blob_hex", "an even number of hexadecimal digits", e);
    return PAWL_OK;
}

/* ---- chunks ---- */

static bool take_run(struct text *t, uint64_t *count, uint64_t *bytes) {
    return take_number(t, count) && take_char(t, '*') && take_number(t, bytes) && *count > 0 && *bytes > 0 &&
           *bytes % STORE_BLOCK == 0 && *bytes <= SLOT_CHUNK_BYTES_MAX;
}

/* Counts the chunks, checking that they make up the data. */
static bool count_chunks(const char *value, uint64_t data_bytes, uint64_t *total) {
    struct text t = {value};
    uint64_t sum = 0, count, bytes, run;
    *total = 0;
    while (*t.at != 0) {
        if (!take_run(&t, &count, &bytes) || !mem_mul(count, bytes, &run) || !mem_add(sum, run, &sum))
            return false;
        if (sum > data_bytes) return false; /* keeps the count bounded by the file */
        *total += count;
        if (*t.at != 0 && (!take_char(&t, ',') || *t.at == 0)) return false;
    }
    return sum == data_bytes;
}

static pawl_code parse_sums(struct slot_info *s, const char *sums, struct pawl_error *e) {
    if (strlen(sums) != s->chunk_count * SLOT_SUM_BYTES * 2)
        return bad("pawl.sums", "one checksum per chunk", e);
    s->sums = malloc(s->chunk_count * SLOT_SUM_BYTES + 1);
    if (s->sums == NULL) return no_memory(e);
    if (!hash_unhex(sums, s->sums, s->chunk_count * SLOT_SUM_BYTES))
        return bad("pawl.sums", "hexadecimal digits", e);
    return PAWL_OK;
}

/* Only a slot that says so has no checksums. */
static pawl_code parse_checksum(struct slot_info *s, struct pawl_error *e) {
    const char *kind = st_header_get(&s->header, "pawl.checksum"),
               *sums = st_header_get(&s->header, "pawl.sums");
    if (kind != NULL && strcmp(kind, "none") != 0) return bad("pawl.checksum", "'none', or no such key", e);
    if (kind != NULL && sums != NULL) return bad("pawl.sums", "none beside 'pawl.checksum'", e);
    if (kind != NULL) return PAWL_OK;
    return sums == NULL ? missing("pawl.sums", e) : parse_sums(s, sums, e);
}

static pawl_code parse_chunks(struct slot_info *s, struct pawl_error *e) {
    const char *value = st_header_get(&s->header, "pawl.chunks");
    if (value == NULL) return missing("pawl.chunks", e);
    if (!count_chunks(value, s->header.data_bytes, &s->chunk_count))
        return bad("pawl.chunks", "COUNT*BYTES,... that make up the data", e);
    if (s->chunk_count > SLOT_CHUNKS_MAX) return bad("pawl.chunks", "at most 3125000 chunks", e);
    pawl_code code = parse_checksum(s, e);
    if (code != PAWL_OK) return code;
    s->chunks = calloc(s->chunk_count + 1, sizeof *s->chunks);
    if (s->chunks == NULL) return no_memory(e);
    struct text t = {value};
    uint64_t at = 0, offset = 0, count, bytes;
    while (*t.at != 0 && take_run(&t, &count, &bytes)) {
        for (; count > 0; count--, offset += bytes)
            s->chunks[at++] = (struct slot_chunk){offset, bytes, NULL};
        (void)take_char(&t, ',');
    }
    return PAWL_OK;
}

/* ---- slices ---- */

static const uint64_t zeros[BOX_RANK_MAX];

static pawl_code default_slices(struct slot_info *s, struct pawl_error *e) {
    s->slices = calloc((size_t)s->header.tensor_count + 1, sizeof *s->slices);
    if (s->slices == NULL) return no_memory(e);
    for (uint32_t i = 0; i < s->header.tensor_count; i++) {
        const struct st_tensor *t = &s->header.tensors[i];
        if (strncmp(t->name, SLOT_OWN_PREFIX, strlen(SLOT_OWN_PREFIX)) != 0)
            s->slices[i] = (struct slot_slice){t->name, t->shape, zeros, NULL};
    }
    return PAWL_OK;
}

/* One number, or `rank` of them with commas between; how many in *count. */
static bool take_numbers(struct text *t, uint32_t rank, uint64_t *out, uint32_t *count) {
    *count = 0;
    do {
        if (*count == rank || !take_number(t, &out[(*count)++])) return false;
    } while (take_char(t, ','));
    return *count == 1 || *count == rank;
}

/* Where the name ends that the slice is called by; 0: nowhere. */
static size_t cut_name(const char *name) {
    const char *cut = strrchr(name, '@');
    return cut != NULL ? (size_t)(cut - name) : 0;
}

/* Memory for the numbers, then the name. */
static bool own_slice(struct slot_slice *slice, const struct st_tensor *t, size_t name_bytes,
                      const uint64_t *begin, const uint64_t *shape) {
    size_t numbers = t->rank * sizeof *shape;
    uint8_t *own = malloc(2 * numbers + name_bytes + 1);
    if (own == NULL) return false;
    memcpy(own, begin, numbers);
    memcpy(own + numbers, shape, numbers);
    memcpy(own + 2 * numbers, t->name, name_bytes);
    own[2 * numbers + name_bytes] = 0;
    *slice = (struct slot_slice){.name = (const char *)own + 2 * numbers,
                                 .begin = (const uint64_t *)(const void *)own,
                                 .shape = (const uint64_t *)(const void *)(own + numbers),
                                 .own = own};
    return true;
}

/* "INDEX BEGIN SHAPE[ @]\n": numbers of the first dimension, the others being whole, or of each. */
static pawl_code apply_slice(struct slot_info *s, struct text *text, struct pawl_error *e) {
    static const char wanted[] = "lines INDEX BEGIN SHAPE that fit their tensors, one for each at most";
    uint64_t index, begin[BOX_RANK_MAX] = {0}, shape[BOX_RANK_MAX], bytes;
    uint32_t begins, shapes;
    if (!take_number(text, &index) || !take_char(text, ' ') || index >= s->header.tensor_count)
        return bad("pawl.slices", wanted, e);
    const struct st_tensor *t = &s->header.tensors[index];
    struct slot_slice *slice = &s->slices[index];
    if (slice->name == NULL || slice->own != NULL || t->rank == 0) return bad("pawl.slices", wanted, e);
    memcpy(shape, t->shape, t->rank * sizeof *shape);
    if (!take_numbers(text, t->rank, begin, &begins) || !take_char(text, ' ') ||
        !take_numbers(text, t->rank, shape, &shapes) || begins != shapes)
        return bad("pawl.slices", wanted, e);
    size_t name_bytes = strlen(t->name);
    if (take_char(text, ' ')) name_bytes = take_char(text, '@') ? cut_name(t->name) : 0;
    if (name_bytes == 0 || !take_char(text, '\n')) return bad("pawl.slices", wanted, e);
    const char *why;
    if (box_check(t->dtype, t->rank, shape, (struct box){begin, t->shape}, &bytes, &why) != NULL)
        return error_set(e, PAWL_FORMAT, 0, "slot header: 'pawl.slices', tensor '%.200s': wanted %s", t->name,
                         why);
    return own_slice(slice, t, name_bytes, begin, shape) ? PAWL_OK : no_memory(e);
}

static pawl_code parse_slices(struct slot_info *s, struct pawl_error *e) {
    const char *value = st_header_get(&s->header, "pawl.slices");
    if (value == NULL) return missing("pawl.slices", e);
    pawl_code code = default_slices(s, e);
    struct text t = {value};
    while (code == PAWL_OK && *t.at != 0) code = apply_slice(s, &t, e);
    return code;
}

pawl_code slot_parse(const uint8_t *data, size_t size, uint64_t file_bytes, struct slot_info *out,
                     struct pawl_error *e) {
    *out = (struct slot_info){0};
    pawl_code code = st_header_parse(data, size, file_bytes, &out->header, e);
    if (code == PAWL_OK &&
        (out->header.data_offset % STORE_BLOCK != 0 || out->header.data_bytes % STORE_BLOCK != 0))
        code = error_set(e, PAWL_FORMAT, 0, "slot header: header and data are no multiples of %u bytes",
                         STORE_BLOCK);
    if (code == PAWL_OK) code = parse_identity(out, e);
    if (code == PAWL_OK) code = parse_chunks(out, e);
    if (code == PAWL_OK) code = parse_slices(out, e);
    if (code == PAWL_OK) code = parse_blob(out, e);
    if (code != PAWL_OK) slot_info_close(out);
    return code;
}

void slot_info_close(struct slot_info *info) {
    if (info->slices != NULL)
        for (uint32_t i = 0; i < info->header.tensor_count; i++) free(info->slices[i].own);
    st_header_close(&info->header);
    free(info->slices);
    free(info->chunks);
    free(info->sums);
    free(info->blob);
    *info = (struct slot_info){0};
}
