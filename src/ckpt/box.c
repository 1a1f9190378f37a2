/* Implementation of ckpt/box.h. */
#include "ckpt/box.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void box_of(const struct pawl_tensor *t, uint64_t *begin, uint64_t *extent) {
    for (uint32_t i = 0; i < t->rank; i++) {
        begin[i] = t->begin != NULL ? t->begin[i] : 0;
        /* A begin behind the end is left for box_check to find. */
        extent[i] = t->extent != NULL ? t->extent[i] : begin[i] < t->shape[i] ? t->shape[i] - begin[i] : 0;
    }
}

static bool is_whole(const uint64_t *shape, struct box b, uint32_t d) {
    return b.begin[d] == 0 && b.extent[d] == shape[d];
}

bool box_is_empty(uint32_t rank, struct box b) {
    for (uint32_t i = 0; i < rank; i++)
        if (b.extent[i] == 0) return true;
    return false;
}

uint64_t box_grain(enum pawl_dtype dtype, uint32_t rank, const uint64_t *shape, uint32_t d) {
    uint64_t bits = pawl_dtype_bits(dtype) % 8; /* only what is left of whole bytes counts */
    for (uint32_t i = d + 1; i < rank; i++) bits = bits * (shape[i] % 8) % 8;
    uint64_t grain = 1;
    while (grain * bits % 8 != 0) grain *= 2;
    return grain;
}

/* Cut dimensions are cut where bytes begin. */
static bool is_in_bytes(enum pawl_dtype dtype, uint32_t rank, const uint64_t *shape, struct box b) {
    for (uint32_t d = 0; d < rank; d++) {
        uint64_t grain = box_grain(dtype, rank, shape, d);
        if (is_whole(shape, b, d)) continue;
        if (b.begin[d] % grain != 0 || b.extent[d] % grain != 0 || shape[d] % grain != 0) return false;
    }
    return true;
}

/* False when the number of bits does not fit 63 bits; sizes of 0 count as 1 in `most`, so that steps over
 * outer dimensions fit too. */
static bool count_bits(enum pawl_dtype dtype, uint32_t rank, const uint64_t *shape, uint64_t *bits) {
    uint64_t most = *bits = pawl_dtype_bits(dtype);
    for (uint32_t i = 0; i < rank; i++) {
        if (!mem_mul(most, shape[i] == 0 ? 1 : shape[i], &most) || most > INT64_MAX) return false;
        *bits *= shape[i];
    }
    return true;
}

const char *box_check(enum pawl_dtype dtype, uint32_t rank, const uint64_t *shape, struct box b,
                      uint64_t *bytes, const char **wanted) {
    uint64_t bits = 0;
    *bytes = 0;
    *wanted = "a size in bits that fits 63 bits";
    if (!count_bits(dtype, rank, shape, &bits)) return "shape";
    *wanted = "whole bytes: dtype and shape make a fraction of one";
    if (bits % 8 != 0) return "shape";
    *wanted = "begin + extent <= shape";
    for (uint32_t i = 0; i < rank; i++) {
        if (b.begin[i] > shape[i]) return "begin";
        if (b.extent[i] > shape[i] - b.begin[i]) return "extent";
    }
    bits = pawl_dtype_bits(dtype);
    for (uint32_t i = 0; i < rank; i++) bits *= b.extent[i];
    *bytes = bits / 8;
    *wanted = "runs of whole bytes: elements of this dtype share bytes with others outside of the slice";
    return bits > 0 && !is_in_bytes(dtype, rank, shape, b) ? "begin and extent" : NULL;
}

bool box_meet(uint32_t rank, struct box a, struct box b, uint64_t *begin, uint64_t *extent) {
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t end = a.begin[i] + a.extent[i], other = b.begin[i] + b.extent[i];
        begin[i] = a.begin[i] > b.begin[i] ? a.begin[i] : b.begin[i];
        if (other < end) end = other;
        if (begin[i] >= end) return false;
        extent[i] = end - begin[i];
    }
    return true;
}

/* ---- lists ---- */

void box_list_close(struct box_list *list) {
    free(list->numbers);
    *list = (struct box_list){0};
}

static uint64_t *numbers_at(const struct box_list *list, uint32_t i) {
    return list->numbers + (size_t)i * 2 * list->rank;
}

struct box box_list_at(const struct box_list *list, uint32_t i) {
    const uint64_t *at = numbers_at(list, i);
    return (struct box){at, at + list->rank};
}

static bool reserve_one(struct box_list *list) {
    if (list->count < list->room) return true;
    uint32_t room = list->room == 0 ? 8 : 2 * list->room;
    size_t bytes = ((size_t)room * 2 * list->rank + 1) * sizeof *list->numbers; /* rank 0 has no numbers */
    uint64_t *numbers = room > list->room ? realloc(list->numbers, bytes) : NULL;
    list->failed = list->failed || numbers == NULL;
    if (numbers == NULL) return false;
    list->numbers = numbers;
    list->room = room;
    return true;
}

void box_list_add(struct box_list *list, struct box b) {
    if (!reserve_one(list)) return;
    uint64_t *to = numbers_at(list, list->count++);
    if (list->rank == 0) return;
    memcpy(to, b.begin, list->rank * sizeof *to);
    memcpy(to + list->rank, b.extent, list->rank * sizeof *to);
}

void box_list_cut(struct box_list *list, uint32_t i, struct box cut) {
    uint64_t begin[BOX_RANK_MAX], extent[BOX_RANK_MAX];
    uint32_t rank = list->rank;
    struct box rest = {begin, extent}, whole = box_list_at(list, i);
    if (rank > 0) memcpy(begin, whole.begin, rank * sizeof *begin);
    if (rank > 0) memcpy(extent, whole.extent, rank * sizeof *extent);
    list->count--;
    if (i < list->count && rank > 0)
        memcpy(numbers_at(list, i), numbers_at(list, list->count), 2 * rank * sizeof *begin);
    for (uint32_t d = 0; d < rank; d++) { /* the slabs before and behind the cut; then narrow down to it */
        uint64_t from = begin[d], end = begin[d] + extent[d], cut_end = cut.begin[d] + cut.extent[d];
        extent[d] = cut.begin[d] - from;
        if (extent[d] > 0) box_list_add(list, rest);
        begin[d] = cut_end;
        extent[d] = end - cut_end;
        if (extent[d] > 0) box_list_add(list, rest);
        begin[d] = cut.begin[d];
        extent[d] = cut.extent[d];
    }
}

/* ---- runs ---- */

/* In bits first: elements may be smaller than bytes, runs are not. */
void box_runs_make(struct box_runs *r, enum pawl_dtype dtype, uint32_t rank, struct box x, struct box from,
                   struct box to) {
    uint64_t bits = pawl_dtype_bits(dtype), from_step = bits, to_step = bits;
    r->from = r->to = 0;
    r->dims = 0;
    r->count = 1;
    for (uint32_t d = rank; d-- > 0;) {
        r->from += (x.begin[d] - from.begin[d]) * from_step;
        r->to += (x.begin[d] - to.begin[d]) * to_step;
        if (r->dims == 0 && bits == from_step && bits == to_step) {
            bits *= x.extent[d];
        } else if (x.extent[d] > 1) {
            r->size[r->dims] = x.extent[d];
            r->from_step[r->dims] = from_step;
            r->to_step[r->dims++] = to_step;
            r->count *= x.extent[d];
        }
        from_step *= from.extent[d];
        to_step *= to.extent[d];
    }
    assert(bits % 8 == 0 && r->from % 8 == 0 && r->to % 8 == 0);
    r->bytes = bits / 8;
    r->from /= 8;
    r->to /= 8;
    for (uint32_t d = 0; d < r->dims; d++) {
        assert(r->from_step[d] % 8 == 0 && r->to_step[d] % 8 == 0);
        r->from_step[d] /= 8;
        r->to_step[d] /= 8;
    }
}

void box_runs_at(const struct box_runs *r, uint64_t i, uint64_t *from, uint64_t *to) {
    *from = r->from;
    *to = r->to;
    for (uint32_t d = 0; d < r->dims && i > 0; d++) {
        uint64_t index = i % r->size[d];
        i /= r->size[d];
        *from += index * r->from_step[d];
        *to += index * r->to_step[d];
    }
}

uint64_t box_runs_after(const struct box_runs *r, uint64_t at) {
    uint64_t low = 0, high = r->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2, from, to;
        box_runs_at(r, middle, &from, &to);
        if (from + r->bytes <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
