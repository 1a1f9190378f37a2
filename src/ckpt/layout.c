/* Checking what is to be saved, once: fields, names, overlap. See ckpt/layout.h. */
#include "ckpt/layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static pawl_code no_memory(struct pawl_error *e) {
    return error_set(e, PAWL_MEMORY, 0, "save: no memory for the layout of its tensors");
}

static pawl_code bad_tensor(const struct ckpt_layout *l, uint32_t i, struct pawl_error *e, const char *field,
                            const char *wanted) {
    const char *name = l->tensors[i].tensor.name;
    return error_set(e, PAWL_ARGUMENT, 0, "save: tensor %u '%.200s': %s: wanted %s", i,
                     name != NULL ? name : "", field, wanted);
}

/* ---- each tensor ---- */

static bool name_is_good(const char *name) {
    return name != NULL && name[0] != 0 && strlen(name) <= LAYOUT_NAME_BYTES_MAX &&
           strncmp(name, SLOT_OWN_PREFIX, strlen(SLOT_OWN_PREFIX)) != 0 &&
           st_utf8_valid((const uint8_t *)name, strlen(name));
}

/* What must hold before anything is copied. */
static pawl_code check_fields(const struct ckpt_layout *l, uint32_t i, struct pawl_error *e) {
    const struct pawl_tensor *t = &l->tensors[i].tensor;
    if (!name_is_good(t->name))
        return bad_tensor(l, i, e, "name", "UTF-8, 1 to 4096 bytes, not beginning with " SLOT_OWN_PREFIX);
    if (strcmp(t->name, "__metadata__") == 0)
        return bad_tensor(l, i, e, "name", "another one: the safetensors format keeps its own data under it");
    if (pawl_dtype_bits(t->dtype) == 0) return bad_tensor(l, i, e, "dtype", "a known one");
    if (t->rank > BOX_RANK_MAX) return bad_tensor(l, i, e, "rank", "at most 64");
    if (t->rank > 0 && t->shape == NULL) return bad_tensor(l, i, e, "shape", "an address");
    return PAWL_OK;
}

static pawl_code check_box(struct ckpt_layout *l, uint32_t i, struct pawl_error *e) {
    struct layout_tensor *p = &l->tensors[i];
    const struct pawl_tensor *t = &p->tensor;
    const char *wanted, *field = box_check(t->dtype, t->rank, t->shape, (struct box){t->begin, t->extent},
                                           &p->bytes, &wanted);
    if (field != NULL) return bad_tensor(l, i, e, field, wanted);
    p->width = st_dtype_width(t->dtype);
    if (!mem_add(l->bytes, p->bytes, &l->bytes) || l->bytes > INT64_MAX / 2)
        return error_set(e, PAWL_ARGUMENT, 0, "save: all tensors together exceed 62 bits");
    return PAWL_OK;
}

/* Copies names and numbers, so that the caller's may go away. */
static pawl_code own_fields(struct ckpt_layout *l, struct pawl_error *e) {
    size_t name_bytes = 1, numbers = 1;
    for (uint32_t i = 0; i < l->count; i++) {
        name_bytes += strlen(l->tensors[i].tensor.name) + 1;
        numbers += 3 * (size_t)l->tensors[i].tensor.rank;
    }
    char *name = l->names = malloc(name_bytes);
    uint64_t *at = l->numbers = malloc(numbers * sizeof *at);
    if (name == NULL || at == NULL) return no_memory(e);
    for (uint32_t i = 0; i < l->count; i++) {
        struct pawl_tensor *t = &l->tensors[i].tensor;
        size_t bytes = strlen(t->name) + 1;
        memcpy(name, t->name, bytes);
        if (t->rank > 0) memcpy(at, t->shape, t->rank * sizeof *at);
        box_of(t, at + t->rank, at + 2 * (size_t)t->rank);
        t->name = l->tensors[i].file_name = name;
        t->shape = at;
        t->begin = at + t->rank;
        t->extent = at + 2 * (size_t)t->rank;
        name += bytes;
        at += 3 * (size_t)t->rank;
    }
    return PAWL_OK;
}

/* ---- boxes of one tensor ---- */

static int by_name_and_begin(const void *a, const void *b) {
    const struct layout_tensor *x = *(struct layout_tensor *const *)a, *y = *(struct layout_tensor *const *)b;
    int order = strcmp(x->tensor.name, y->tensor.name);
    if (order != 0) return order;
    uint32_t rank = x->tensor.rank < y->tensor.rank ? x->tensor.rank : y->tensor.rank;
    for (uint32_t i = 0; i < rank; i++)
        if (x->tensor.begin[i] != y->tensor.begin[i]) return x->tensor.begin[i] < y->tensor.begin[i] ? -1 : 1;
    return x < y ? -1 : 1;
}

static bool same_tensor(const struct pawl_tensor *a, const struct pawl_tensor *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}

static bool overlap(const struct pawl_tensor *a, const struct pawl_tensor *b) {
    uint64_t begin[BOX_RANK_MAX], extent[BOX_RANK_MAX];
    return box_meet(a->rank, (struct box){a->begin, a->extent}, (struct box){b->begin, b->extent}, begin,
                    extent);
}

/* Tensors sorted[0..count-1] are of one name, ascending by their begins: only those that begin before the end
 * of one in the first dimension can overlap it. */
static pawl_code check_overlap(const struct ckpt_layout *l, struct layout_tensor *const *sorted,
                               uint32_t count, struct pawl_error *e) {
    for (uint32_t i = 0; i < count; i++) {
        const struct pawl_tensor *a = &sorted[i]->tensor;
        for (uint32_t k = i + 1; k < count; k++) {
            const struct pawl_tensor *b = &sorted[k]->tensor;
            uint32_t index = (uint32_t)(sorted[k] - l->tensors);
            if (!same_tensor(a, b))
                return bad_tensor(l, index, e, "dtype and shape",
                                  "the same as in another tensor of this name");
            if (a->rank > 0 && b->begin[0] >= a->begin[0] + a->extent[0]) break;
            if (overlap(a, b))
                return bad_tensor(l, index, e, "begin and extent",
                                  "no overlap with another tensor of this name");
        }
    }
    return PAWL_OK;
}

/* NAME@BEGIN,BEGIN,...: one number where only the first dimension is cut. Boxes without elements may begin
 * where others do: they get a mark each. */
static char *name_of_box(const struct pawl_tensor *t, uint32_t same_begin) {
    struct bytes text = {0};
    uint32_t numbers = 0;
    for (uint32_t i = 0; i < t->rank; i++)
        if (t->begin[i] != 0 || t->extent[i] != t->shape[i]) numbers = i + 1;
    if (numbers > 1) numbers = t->rank;
    bytes_printf(&text, "%s@", t->name);
    for (uint32_t i = 0; i < numbers || i == 0; i++)
        bytes_printf(&text, "%s%" PRIu64, i > 0 ? "," : "", t->rank > 0 ? t->begin[i] : 0);
    if (same_begin > 0) bytes_printf(&text, "+%u", same_begin);
    bytes_put_u8(&text, 0);
    if (text.failed) bytes_close(&text);
    return (char *)text.data;
}

static pawl_code name_boxes(struct ckpt_layout *l, struct layout_tensor *const *sorted, uint32_t count,
                            struct pawl_error *e) {
    uint32_t same = 0;
    for (uint32_t i = 1; i < count; i++) {
        const struct pawl_tensor *t = &sorted[i]->tensor, *before = &sorted[i - 1]->tensor;
        bool again = t->rank == 0 || memcmp(t->begin, before->begin, t->rank * sizeof *t->begin) == 0;
        same = again ? same + 1 : 0;
        char *name = name_of_box(t, same);
        if (name == NULL) return no_memory(e);
        l->renamed[sorted[i] - l->tensors] = name;
        sorted[i]->file_name = name;
    }
    return PAWL_OK;
}

static int by_file_name(const void *a, const void *b) {
    return strcmp((*(struct layout_tensor *const *)a)->file_name,
                  (*(struct layout_tensor *const *)b)->file_name);
}

/* A made name may be that of another tensor. */
static pawl_code check_file_names(const struct ckpt_layout *l, struct layout_tensor **sorted,
                                  struct pawl_error *e) {
    qsort(sorted, l->count, sizeof(struct layout_tensor *), by_file_name);
    for (uint32_t i = 1; i < l->count; i++)
        if (by_file_name(&sorted[i - 1], &sorted[i]) == 0)
            return bad_tensor(l, (uint32_t)(sorted[i] - l->tensors), e, "name",
                              "another one: it is what a second slice of a tensor is called in the file");
    return PAWL_OK;
}

static pawl_code check_names(struct ckpt_layout *l, struct pawl_error *e) {
    struct layout_tensor **sorted = calloc((size_t)l->count + 1, sizeof(struct layout_tensor *));
    if (sorted == NULL) return no_memory(e);
    for (uint32_t i = 0; i < l->count; i++) sorted[i] = &l->tensors[i];
    qsort(sorted, l->count, sizeof(struct layout_tensor *), by_name_and_begin);
    pawl_code code = PAWL_OK;
    bool renamed = false;
    for (uint32_t i = 0, count; i < l->count && code == PAWL_OK; i += count) {
        count = 1;
        while (i + count < l->count && strcmp(sorted[i]->tensor.name, sorted[i + count]->tensor.name) == 0)
            count++;
        if (count == 1) continue;
        renamed = true;
        code = check_overlap(l, sorted + i, count, e);
        if (code == PAWL_OK) code = name_boxes(l, sorted + i, count, e);
    }
    if (code == PAWL_OK && renamed) code = check_file_names(l, sorted, e);
    free(sorted);
    return code;
}

/* ---- the layout ---- */

static pawl_code fill(struct ckpt_layout *l, const struct pawl_tensor *tensors, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < l->count && code == PAWL_OK; i++) {
        l->tensors[i].tensor = tensors[i];
        code = check_fields(l, i, e);
    }
    if (code == PAWL_OK) code = own_fields(l, e);
    for (uint32_t i = 0; i < l->count && code == PAWL_OK; i++) code = check_box(l, i, e);
    return code == PAWL_OK ? check_names(l, e) : code;
}

/* Planned at once for the memory it names, if it names any. */
static pawl_code plan_first(struct ckpt_layout *l, struct pawl_error *e) {
    for (uint32_t i = 0; i < l->count; i++)
        if (l->tensors[i].bytes > 0 && l->tensors[i].tensor.data == NULL) return PAWL_OK;
    struct layout_order *order = NULL;
    pawl_code code = layout_order_get(l, NULL, &order, e);
    layout_order_release(order);
    return code;
}

pawl_code ckpt_layout_new(const struct pawl_tensor *tensors, uint32_t count, struct ckpt_layout **out,
                          struct pawl_error *e) {
    *out = NULL;
    struct ckpt_layout *l = calloc(1, sizeof *l);
    if (l == NULL) return no_memory(e);
    l->holders = 1;
    pthread_mutex_init(&l->mutex, NULL);
    l->tensors = calloc((size_t)count + 1, sizeof *l->tensors);
    l->renamed = calloc((size_t)count + 1, sizeof *l->renamed);
    pawl_code code = l->tensors == NULL || l->renamed == NULL ? no_memory(e) : PAWL_OK;
    if (code == PAWL_OK) l->count = count;
    if (code == PAWL_OK) code = fill(l, tensors, e);
    if (code == PAWL_OK) code = plan_first(l, e);
    if (code == PAWL_OK)
        *out = l;
    else
        ckpt_layout_release(l);
    return code;
}

void layout_hold(struct ckpt_layout *layout) { atomic_fetch_add(&layout->holders, 1); }

void ckpt_layout_release(struct ckpt_layout *layout) {
    if (layout == NULL || atomic_fetch_sub(&layout->holders, 1) > 1) return;
    for (uint32_t i = 0; i < layout->order_count; i++) layout_order_release(layout->orders[i]);
    for (uint32_t i = 0; i < layout->count; i++) free(layout->renamed[i]);
    pthread_mutex_destroy(&layout->mutex);
    free(layout->renamed);
    free(layout->names);
    free(layout->numbers);
    free(layout->tensors);
    free(layout);
}

static struct layout_order *find_order(struct ckpt_layout *l, void *const *data) {
    for (uint32_t i = 0; i < l->order_count; i++) {
        if (!layout_order_fits(l->orders[i], l, data)) continue;
        atomic_fetch_add(&l->orders[i]->holders, 1);
        return l->orders[i];
    }
    return NULL;
}

/* Keeps it for the next save; the oldest one makes room. */
static void keep_order(struct ckpt_layout *l, struct layout_order *order) {
    l->orders_made++;
    if (l->order_count == LAYOUT_ORDERS_MAX) {
        layout_order_release(l->orders[0]);
        memmove(l->orders, l->orders + 1, --l->order_count * sizeof l->orders[0]);
    }
    atomic_fetch_add(&order->holders, 1);
    l->orders[l->order_count++] = order;
}

pawl_code layout_order_get(struct ckpt_layout *layout, void *const *data, struct layout_order **out,
                           struct pawl_error *e) {
    *out = NULL;
    for (uint32_t i = 0; i < layout->count; i++)
        if (layout->tensors[i].bytes > 0 && layout_data(layout, data, i) == NULL)
            return bad_tensor(layout, i, e, "data", "an address");
    pthread_mutex_lock(&layout->mutex);
    *out = find_order(layout, data);
    struct pawl_error own = {0};
    struct pawl_error *why = e != NULL ? e : &own;
    if (*out == NULL) {
        *out = layout_order_new(layout, data, why);
        if (*out != NULL) keep_order(layout, *out);
    }
    pthread_mutex_unlock(&layout->mutex);
    return *out != NULL ? PAWL_OK : why->code;
}
