/* One rank's share of what several replicas save together: see struct ckpt_share in ckpt/ckpt.h.
 *
 * All tensors are laid on one line of bytes, which is cut into equal parts. A row (an index of the first
 * dimension that has several) goes to the part that its middle lies in, so shares differ from the ideal by
 * half a row at each end, and small tensors are dealt out by their bytes like all others. Tested in
 * tests/unit/ckpt_share_test.c. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/box.h"
#include "ckpt/ckpt.h"

struct rows {              /* of one tensor, and which of them are taken */
    uint32_t dimension;    /* UINT32_MAX: it is not cut */
    uint64_t count, bytes; /* count: in grains; bytes of one */
    uint64_t grain;
    uint64_t from, to;
};

static pawl_code bad_tensor(uint32_t i, const char *name, const char *field, const char *wanted,
                            struct pawl_error *e) {
    return error_set(e, PAWL_ARGUMENT, 0, "share: tensor %u '%.200s': %s: wanted %s", i,
                     name != NULL ? name : "", field, wanted);
}

static pawl_code check(const struct pawl_tensor *t, uint32_t i, uint64_t *numbers, uint64_t *bytes,
                       struct pawl_error *e) {
    if (pawl_dtype_bits(t->dtype) == 0) return bad_tensor(i, t->name, "dtype", "a known one", e);
    if (t->rank > BOX_RANK_MAX) return bad_tensor(i, t->name, "rank", "at most 64", e);
    if (t->rank > 0 && t->shape == NULL) return bad_tensor(i, t->name, "shape", "an address", e);
    box_of(t, numbers, numbers + t->rank);
    const char *wanted = NULL;
    const char *field =
        box_check(t->dtype, t->rank, t->shape, (struct box){numbers, numbers + t->rank}, bytes, &wanted);
    return field != NULL ? bad_tensor(i, t->name, field, wanted, e) : PAWL_OK;
}

static struct rows rows_of(const struct pawl_tensor *t, const uint64_t *extent, uint64_t bytes) {
    struct rows r = {.dimension = UINT32_MAX, .count = 1, .bytes = bytes, .grain = 1};
    for (uint32_t d = 0; d < t->rank && bytes > 0; d++) {
        if (extent[d] == 1) continue;
        uint64_t grain = box_grain(t->dtype, t->rank, t->shape, d);
        /* All of the box is whole bytes, and it has one index in each dimension before this. */
        assert(extent[d] % grain == 0 && t->shape[d] % grain == 0);
        r.dimension = d;
        r.grain = grain;
        r.count = extent[d] / grain;
        r.bytes = bytes / r.count;
        return r;
    }
    return r;
}

/* The first row of the tensor at `at` whose middle is not before `line`. */
static uint64_t row_at(const struct rows *r, uint64_t at, uint64_t line) {
    if (line <= at + r->bytes / 2) return 0;
    if (r->bytes == 0) return r->count;
    uint64_t row = (line - at - r->bytes / 2 + r->bytes - 1) / r->bytes;
    return row < r->count ? row : r->count;
}

/* Where part `part` of the line begins. */
static uint64_t cut_at(uint64_t bytes, uint32_t part, uint32_t part_count) {
    return (uint64_t)((__uint128_t)bytes * part / part_count);
}

static void take(struct ckpt_share *out, const struct pawl_tensor *t, uint32_t source, const struct rows *r,
                 uint64_t *numbers) {
    uint32_t i = out->count++;
    uint64_t *begin = numbers, *extent = numbers + t->rank;
    uint64_t offset = r->from * r->bytes;
    if (r->dimension != UINT32_MAX) {
        begin[r->dimension] += r->from * r->grain;
        extent[r->dimension] = (r->to - r->from) * r->grain;
    }
    out->tensors[i] = *t;
    out->tensors[i].begin = begin;
    out->tensors[i].extent = extent;
    if (t->data != NULL) out->tensors[i].data = (uint8_t *)t->data + offset;
    out->source[i] = source;
    out->offset[i] = offset;
    out->bytes += (r->to - r->from) * r->bytes;
}

static pawl_code fill(const struct pawl_tensor *tensors, uint32_t count, uint32_t part, uint32_t part_count,
                      uint64_t *numbers, struct ckpt_share *out, struct pawl_error *e) {
    uint64_t total = 0, at = 0, bytes = 0;
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) {
        code = check(&tensors[i], i, numbers, &bytes, e);
        if (code == PAWL_OK && (!mem_add(total, bytes, &total) || total > INT64_MAX / 2))
            code = error_set(e, PAWL_ARGUMENT, 0, "share: all tensors together exceed 62 bits");
    }
    uint64_t from = cut_at(total, part, part_count), to = cut_at(total, part + 1, part_count);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) {
        code = check(&tensors[i], i, numbers, &bytes, e);
        struct rows r = rows_of(&tensors[i], numbers + tensors[i].rank, bytes);
        /* The ends of the line belong to the first and the last part whatever lies there. */
        r.from = part == 0 ? 0 : row_at(&r, at, from);
        r.to = part + 1 == part_count ? r.count : row_at(&r, at, to);
        if (r.from < r.to) {
            take(out, &tensors[i], i, &r, numbers);
            numbers += 2 * (size_t)tensors[i].rank;
        }
        at += bytes;
    }
    return code;
}

pawl_code ckpt_share_init(const struct pawl_tensor *tensors, uint32_t count, uint32_t part,
                          uint32_t part_count, struct ckpt_share *out, struct pawl_error *e) {
    *out = (struct ckpt_share){0};
    if (part >= part_count)
        return error_set(e, PAWL_ARGUMENT, 0, "share: part %u of %u: wanted one below the count", part,
                         part_count);
    size_t numbers = 2 * (size_t)BOX_RANK_MAX;
    for (uint32_t i = 0; i < count; i++) {
        if (tensors[i].rank > BOX_RANK_MAX) return bad_tensor(i, tensors[i].name, "rank", "at most 64", e);
        numbers += 2 * (size_t)tensors[i].rank;
    }
    /* The numbers lie behind the tensors, freed with them. */
    out->tensors = malloc(((size_t)count + 1) * sizeof *out->tensors + numbers * sizeof(uint64_t));
    out->source = calloc((size_t)count + 1, sizeof *out->source);
    out->offset = calloc((size_t)count + 1, sizeof *out->offset);
    pawl_code code = PAWL_OK;
    if (out->tensors == NULL || out->source == NULL || out->offset == NULL)
        code = error_set(e, PAWL_MEMORY, 0, "share: no memory for %u tensors", count);
    if (code == PAWL_OK)
        code = fill(tensors, count, part, part_count, (uint64_t *)(void *)(out->tensors + count + 1), out, e);
    if (code != PAWL_OK) ckpt_share_close(out);
    return code;
}

void ckpt_share_close(struct ckpt_share *share) {
    free(share->tensors);
    free(share->source);
    free(share->offset);
    *share = (struct ckpt_share){0};
}
