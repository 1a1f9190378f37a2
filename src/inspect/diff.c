/* Two steps compared: names, types, shapes, and every element's bits, a bounded piece of each at a time. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/inspect.h"

struct diff_item {
    struct pawl_inspect_difference is;
    char *name; /* owned, with the shapes: they outlive the handles compared */
    uint64_t *shape_a, *shape_b;
};

struct pawl_inspect_diff {
    uint64_t steps[2];
    struct diff_item *items;
    uint32_t count, same;
};

struct side {
    struct pawl_inspect *in;
    uint32_t index;
    struct pawl_tensor *tensors; /* by name, each once */
    uint32_t count;
    struct inspect_room room;
};

struct comparing {
    struct pawl_inspect_diff *diff;
    struct side sides[2];
    uint64_t done, total;
};

/* ---- lists ---- */

static int by_name(const void *x, const void *y) {
    return strcmp(((const struct pawl_tensor *)x)->name, ((const struct pawl_tensor *)y)->name);
}

static pawl_code list_side(struct side *s, struct pawl_error *e) {
    uint32_t count = pawl_inspect_tensor_count(s->in, s->index);
    s->tensors = calloc((size_t)count + 1, sizeof *s->tensors);
    if (s->tensors == NULL) return inspect_no_memory(e);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes;
        s->tensors[i] = pawl_inspect_tensor(s->in, s->index, i);
        pawl_code code = inspect_tensor_bytes(&s->tensors[i], &bytes, e);
        if (code != PAWL_OK) return code;
    }
    qsort(s->tensors, count, sizeof *s->tensors, by_name);
    for (uint32_t i = 0; i < count; i++)
        if (s->count == 0 || strcmp(s->tensors[s->count - 1].name, s->tensors[i].name) != 0)
            s->tensors[s->count++] = s->tensors[i];
    return PAWL_OK;
}

static uint64_t *copy_shape(const struct pawl_tensor *t, struct pawl_tensor *out) {
    uint64_t *shape = calloc((size_t)t->rank + 1, sizeof *shape);
    if (shape != NULL && t->rank > 0) memcpy(shape, t->shape, t->rank * sizeof *shape);
    *out = (struct pawl_tensor){.dtype = t->dtype, .rank = t->rank, .shape = shape};
    return shape;
}

/* Either may be null. */
static struct diff_item *add_item(struct pawl_inspect_diff *d, enum pawl_inspect_difference_kind kind,
                                  const struct pawl_tensor *a, const struct pawl_tensor *b) {
    struct diff_item *more = realloc(d->items, (d->count + 1u) * sizeof *more);
    if (more == NULL) return NULL;
    d->items = more;
    struct diff_item *item = &more[d->count++];
    *item = (struct diff_item){.is = {.kind = kind}, .name = strdup(a != NULL ? a->name : b->name)};
    if (a != NULL) item->shape_a = copy_shape(a, &item->is.a);
    if (b != NULL) item->shape_b = copy_shape(b, &item->is.b);
    if (item->name == NULL || (a != NULL && item->shape_a == NULL) || (b != NULL && item->shape_b == NULL))
        return NULL;
    if (a != NULL) item->is.a.name = item->name;
    if (b != NULL) item->is.b.name = item->name;
    return item;
}

/* ---- elements ---- */

static void note_element(struct pawl_inspect_difference *out, const struct pawl_tensor *t, const uint8_t *a,
                         const uint8_t *b, uint64_t index, uint64_t first) {
    if (out->elements++ == 0) out->first = first + index;
    if (!inspect_dtype_is_float(t->dtype)) return;
    double difference = inspect_distance(t->dtype, a, b, index);
    if (isnan(difference)) {
        out->nans++;
        return;
    }
    if (!out->has_largest || difference > out->largest) out->largest = difference;
    out->has_largest = true;
}

static void compare_piece(struct pawl_inspect_difference *out, const struct pawl_tensor *t, const uint8_t *a,
                          const uint8_t *b, const struct inspect_piece *piece) {
    if (memcmp(a, b, piece->bytes) == 0) return;
    for (uint64_t i = 0; i < piece->elements; i++)
        if (inspect_element_bits(t->dtype, a, i) != inspect_element_bits(t->dtype, b, i))
            note_element(out, t, a, b, i, piece->first);
}

static pawl_code read_piece(struct side *s, struct pawl_tensor want, const struct inspect_piece *piece,
                            struct pawl_error *e) {
    want.begin = piece->begin;
    want.extent = piece->extent;
    if (!inspect_reserve(&s->room, piece->bytes)) return inspect_no_memory(e);
    want.data = s->room.data;
    return ckpt_set_read(s->in->set, s->in->steps[s->index].set_index, &want, e);
}

static pawl_code compare_values(struct comparing *c, const struct pawl_tensor *a, const struct pawl_tensor *b,
                                struct pawl_error *e) {
    struct pawl_inspect_difference found = {.kind = PAWL_DIFFERENCE_VALUES};
    struct inspect_piece piece;
    pawl_code code = PAWL_OK;
    for (uint64_t at = 0; code == PAWL_OK && inspect_piece_at(a, at, INSPECT_PIECE_BYTES, &piece);
         at += piece.elements) {
        code = read_piece(&c->sides[0], *a, &piece, e);
        if (code == PAWL_OK) code = read_piece(&c->sides[1], *b, &piece, e);
        if (code == PAWL_OK) compare_piece(&found, a, c->sides[0].room.data, c->sides[1].room.data, &piece);
        c->done += piece.elements;
        inspect_progress(c->sides[0].in, "diff", c->done, c->total);
    }
    if (code != PAWL_OK) return code;
    if (found.elements == 0) {
        c->diff->same++;
        return PAWL_OK;
    }
    struct diff_item *item = add_item(c->diff, PAWL_DIFFERENCE_VALUES, a, b);
    if (item == NULL) return inspect_no_memory(e);
    found.a = item->is.a;
    found.b = item->is.b;
    item->is = found;
    return PAWL_OK;
}

static pawl_code compare_pair(struct comparing *c, const struct pawl_tensor *a, const struct pawl_tensor *b,
                              struct pawl_error *e) {
    enum pawl_inspect_difference_kind kind = b == NULL   ? PAWL_DIFFERENCE_ONLY_A
                                             : a == NULL ? PAWL_DIFFERENCE_ONLY_B
                                                         : PAWL_DIFFERENCE_TYPE;
    if (a != NULL && b != NULL && inspect_same_type(a, b)) return compare_values(c, a, b, e);
    return add_item(c->diff, kind, a, b) != NULL ? PAWL_OK : inspect_no_memory(e);
}

static pawl_code compare_all(struct comparing *c, struct pawl_error *e) {
    const struct side *a = &c->sides[0], *b = &c->sides[1];
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < a->count; i++) c->total += inspect_elements(&a->tensors[i]);
    for (uint32_t i = 0, k = 0; (i < a->count || k < b->count) && code == PAWL_OK;) {
        int order = i == a->count ? 1 : k == b->count ? -1 : strcmp(a->tensors[i].name, b->tensors[k].name);
        code = compare_pair(c, order <= 0 ? &a->tensors[i] : NULL, order >= 0 ? &b->tensors[k] : NULL, e);
        if (order <= 0) i++;
        if (order >= 0) k++;
    }
    return code;
}

/* ---- calls ---- */

static pawl_code find_side(struct side *s, uint64_t step, struct pawl_error *e) {
    pawl_code code = pawl_inspect_find(s->in, step, &s->index, e);
    if (code != PAWL_OK || s->in->steps[s->index].is.complete) return code;
    return error_set(e, PAWL_CORRUPT, 0, "%s: step %" PRIu64 " is incomplete: %s", s->in->path,
                     s->in->steps[s->index].is.step, s->in->steps[s->index].is.missing);
}

static pawl_code compare_once(struct pawl_inspect *ins[2], const uint64_t steps[2],
                              struct pawl_inspect_diff **out, bool *gone, struct pawl_error *e) {
    struct comparing c = {.diff = calloc(1, sizeof *c.diff)};
    *out = c.diff;
    pawl_code code = c.diff != NULL ? PAWL_OK : inspect_no_memory(e);
    bool found = true;
    for (int i = 0; i < 2 && code == PAWL_OK; i++) {
        c.sides[i].in = ins[i];
        code = find_side(&c.sides[i], steps[i], e);
        found = code == PAWL_OK;
        if (code == PAWL_OK) c.diff->steps[i] = ins[i]->steps[c.sides[i].index].is.step;
        if (code == PAWL_OK) code = list_side(&c.sides[i], e);
    }
    if (code == PAWL_OK) code = compare_all(&c, e);
    for (int i = 0; i < 2; i++) {
        if (found && c.sides[i].in != NULL) *gone = inspect_is_gone(ins[i], c.sides[i].index, code) || *gone;
        free(c.sides[i].tensors);
        inspect_room_close(&c.sides[i].room);
    }
    if (code != PAWL_OK) {
        pawl_inspect_diff_free(c.diff);
        *out = NULL;
    }
    return code;
}

pawl_code pawl_inspect_diff_new(struct pawl_inspect *a, uint64_t step_a, struct pawl_inspect *b,
                                uint64_t step_b, struct pawl_inspect_diff **out, struct pawl_error *e) {
    struct pawl_inspect *ins[2] = {a, b};
    const uint64_t steps[2] = {step_a, step_b};
    for (int tries = 1;; tries++) {
        bool gone = false;
        pawl_code code = compare_once(ins, steps, out, &gone, e);
        if (!gone) return code;
        if (tries == 2) return inspect_gone(a, e);
        code = inspect_scan(a, e); /* once more, on what is there now */
        if (code == PAWL_OK && b != a) code = inspect_scan(b, e);
        if (code != PAWL_OK) return code;
    }
}

void pawl_inspect_diff_free(struct pawl_inspect_diff *diff) {
    if (diff == NULL) return;
    for (uint32_t i = 0; i < diff->count; i++) {
        free(diff->items[i].name);
        free(diff->items[i].shape_a);
        free(diff->items[i].shape_b);
    }
    free(diff->items);
    free(diff);
}

uint64_t pawl_inspect_diff_step(const struct pawl_inspect_diff *diff, uint32_t side) {
    return diff->steps[side > 0];
}
uint32_t pawl_inspect_diff_same(const struct pawl_inspect_diff *diff) { return diff->same; }
uint32_t pawl_inspect_diff_count(const struct pawl_inspect_diff *diff) { return diff->count; }

struct pawl_inspect_difference pawl_inspect_diff_at(const struct pawl_inspect_diff *diff, uint32_t i) {
    return i < diff->count ? diff->items[i].is : (struct pawl_inspect_difference){0};
}

const char *pawl_inspect_difference_name(enum pawl_inspect_difference_kind kind) {
    static const char *const names[] = {"only_a", "only_b", "type", "values"};
    return (size_t)kind < sizeof names / sizeof names[0] ? names[kind] : "unknown";
}
