/* Where each tensor goes in a slot. See ckpt/layout.h.
 *
 * safetensors allows no holes, so tensors lie back to back and most of them would be unaligned. Consecutive
 * tensors that also lie back to back in memory form a run. First come the runs that are large and
 * page-aligned, each at the begin of a block and written straight from where it lies, but for what does not
 * fill its last block; filler leads to the next. Then all other tensors, wider types first, so that each
 * tensor's place is a multiple of its element size (readers view it in place). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "ckpt/layout.h"

struct builder {
    const struct ckpt_layout *layout;
    struct layout_order *order;
    uint32_t text_count;   /* tensors in the text */
    uint32_t filler_count; /* of those */
    uint64_t at;           /* end of what is placed */
    struct bytes slices;   /* lines */
};

/* ---- runs ---- */

/* Does tensor i, not the first, continue a run of `bytes` bytes that ends with the tensor before it? */
static bool joins(const struct ckpt_layout *l, void *const *data, uint32_t i, uint64_t bytes) {
    const struct layout_tensor *t = &l->tensors[i], *before = t - 1;
    return t->bytes > 0 && before->bytes > 0 && t->tensor.memory == before->tensor.memory &&
           layout_data(l, data, i - 1) + before->bytes == layout_data(l, data, i) && bytes % t->width == 0;
}

static bool is_direct(const struct ckpt_layout *l, void *const *data, uint32_t first, uint64_t bytes) {
    return bytes >= SLOT_DIRECT_BYTES && l->tensors[first].tensor.memory == NULL &&
           (uintptr_t)layout_data(l, data, first) % STORE_BLOCK == 0;
}

static struct layout_run run_at(const struct ckpt_layout *l, void *const *data, uint32_t first) {
    struct layout_run r = {.first = first, .count = 1, .bytes = l->tensors[first].bytes};
    while (first + r.count < l->count && joins(l, data, first + r.count, r.bytes))
        r.bytes += l->tensors[first + r.count++].bytes;
    r.direct = is_direct(l, data, first, r.bytes);
    return r;
}

bool layout_order_fits(const struct layout_order *order, const struct ckpt_layout *layout,
                       void *const *data) {
    for (uint32_t i = 0; i < order->run_count; i++) {
        struct layout_run r = run_at(layout, data, order->runs[i].first);
        if (r.count != order->runs[i].count || r.direct != order->runs[i].direct) return false;
    }
    return true;
}

static void make_runs(struct builder *b, void *const *data) {
    for (uint32_t i = 0; i < b->layout->count;) {
        struct layout_run r = run_at(b->layout, data, i);
        b->order->runs[b->order->run_count++] = r;
        i += r.count;
    }
}

/* ---- placing ---- */

static void put_text(struct builder *b, const char *name, enum pawl_dtype dtype, uint32_t rank,
                     const uint64_t *shape, uint64_t bytes) {
    struct st_tensor t = {.name = (char *)(uintptr_t)name,
                          .dtype = dtype,
                          .rank = rank,
                          .shape = (uint64_t *)(uintptr_t)shape,
                          .begin = b->at,
                          .bytes = bytes};
    bytes_put_u8(&b->order->tensors, ',');
    st_put_tensor(&b->order->tensors, &t);
    b->text_count++;
    b->at += bytes; /* cannot overflow: tensors stay below 62 bits, filler below a block each */
}

static void place_filler(struct builder *b, uint32_t alignment) {
    uint64_t bytes = mem_round_up(b->at, alignment) - b->at;
    char name[32];
    if (bytes == 0) return;
    snprintf(name, sizeof name, SLOT_OWN_PREFIX "filler_%u__", b->filler_count++);
    put_text(b, name, PAWL_U8, 1, &bytes, bytes);
}

static void put_numbers(struct bytes *out, const uint64_t *numbers, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) bytes_printf(out, "%s%" PRIu64, i > 0 ? "," : "", numbers[i]);
}

/* "INDEX BEGIN SHAPE[ @]": one number each where only the first dimension is cut, else one per dimension. */
static void put_slice(struct builder *b, const struct layout_tensor *p) {
    const struct pawl_tensor *t = &p->tensor;
    uint32_t numbers = 0;
    for (uint32_t i = 0; i < t->rank; i++)
        if (t->begin[i] != 0 || t->extent[i] != t->shape[i]) numbers = i + 1;
    bool renamed = p->file_name != t->name;
    if (numbers == 0 && !renamed) return;
    if (numbers > 1) numbers = t->rank;
    if (numbers == 0 && t->rank > 0) numbers = 1;
    bytes_printf(&b->slices, "%u ", b->text_count);
    put_numbers(&b->slices, t->begin, numbers);
    bytes_put_u8(&b->slices, ' ');
    put_numbers(&b->slices, t->shape, numbers);
    bytes_printf(&b->slices, "%s\n", renamed ? " @" : "");
}

static void place(struct builder *b, uint32_t tensor) {
    const struct layout_tensor *p = &b->layout->tensors[tensor];
    if (p->bytes > 0) b->order->places[b->order->place_count++] = (struct layout_place){tensor, b->at};
    put_slice(b, p);
    put_text(b, p->file_name, p->tensor.dtype, p->tensor.rank, p->tensor.extent, p->bytes);
}

static void place_direct(struct builder *b) {
    for (uint32_t i = 0; i < b->order->run_count; i++) {
        struct layout_run *r = &b->order->runs[i];
        if (!r->direct) continue;
        r->begin = b->at;
        b->order->direct[b->order->direct_count++] = i;
        for (uint32_t k = 0; k < r->count; k++) place(b, r->first + k);
        place_filler(b, STORE_BLOCK);
    }
}

static int by_width(const void *a, const void *b) {
    const struct layout_tensor *x = *(const struct layout_tensor *const *)a,
                               *y = *(const struct layout_tensor *const *)b;
    if (x->width != y->width) return x->width > y->width ? -1 : 1;
    return x < y ? -1 : x > y;
}

static bool place_rest(struct builder *b) {
    const struct layout_tensor **rest = calloc((size_t)b->layout->count + 1, sizeof *rest);
    if (rest == NULL) return false;
    uint32_t count = 0;
    for (uint32_t i = 0; i < b->order->run_count; i++) {
        const struct layout_run *r = &b->order->runs[i];
        for (uint32_t k = 0; k < r->count && !r->direct; k++)
            rest[count++] = &b->layout->tensors[r->first + k];
    }
    qsort(rest, count, sizeof *rest, by_width);
    for (uint32_t i = 0; i < count; i++) place(b, (uint32_t)(rest[i] - b->layout->tensors));
    free(rest);
    place_filler(b, STORE_BLOCK);
    return true;
}

static bool put_slices(struct builder *b) {
    struct json j = {.out = &b->order->slices, .need_comma = true};
    bytes_put_u8(&b->slices, 0);
    if (b->slices.failed) return false;
    json_text(&j, "pawl.slices", (const char *)b->slices.data);
    return true;
}

struct layout_order *layout_order_new(const struct ckpt_layout *layout, void *const *data,
                                      struct pawl_error *e) {
    struct layout_order *order = calloc(1, sizeof *order);
    struct builder b = {.layout = layout, .order = order};
    size_t room = (size_t)layout->count + 1;
    if (order != NULL) {
        order->holders = 1;
        order->runs = calloc(room, sizeof *order->runs);
        order->direct = calloc(room, sizeof *order->direct);
        order->places = calloc(room, sizeof *order->places);
    }
    bool good = order != NULL && order->runs != NULL && order->direct != NULL && order->places != NULL;
    if (good) make_runs(&b, data);
    if (good) place_direct(&b);
    good = good && place_rest(&b);
    good = good && put_slices(&b);
    bytes_close(&b.slices);
    if (good && !order->tensors.failed && !order->slices.failed) {
        order->data_bytes = b.at;
        return order;
    }
    layout_order_release(order);
    error_set(e, PAWL_MEMORY, 0, "save: no memory for the order of its tensors");
    return NULL;
}

void layout_order_release(struct layout_order *order) {
    if (order == NULL || atomic_fetch_sub(&order->holders, 1) > 1) return;
    free(order->runs);
    free(order->direct);
    free(order->places);
    bytes_close(&order->tensors);
    bytes_close(&order->slices);
    free(order);
}
