/* What is saved again and again, prepared once: see struct ckpt_layout in ckpt/ckpt.h.
 *
 * A layout holds the checked tensors with the names they get in the file. An order is their arrangement in a
 * slot: places, the tensors' text of the header, what can be written straight from memory. It depends on the
 * addresses only by which neighbours lie back to back and which memory is page-aligned, so one order serves
 * every version buffer laid out alike; a layout keeps the orders it made, and makes another when none fits.
 * Threads: any; orders are counted and immutable. Tested in tests/unit/ckpt_layout_test.c. */
#ifndef CKPT_LAYOUT_H
#define CKPT_LAYOUT_H

#include <pthread.h>
#include <stdatomic.h>

#include "ckpt/box.h"
#include "ckpt/slot.h"

#define LAYOUT_NAME_BYTES_MAX 4096u
/* As many different arrangements of memory as a state is saved from; more are made anew each time. */
#define LAYOUT_ORDERS_MAX 4u

struct layout_tensor {
    struct pawl_tensor tensor; /* its name, shape, begin and extent are the layout's; none is null */
    uint64_t bytes;
    uint32_t width;        /* its place in the data is a multiple of this */
    const char *file_name; /* other than tensor.name when it is another box of the same tensor */
};

struct ckpt_layout {
    _Atomic uint32_t holders;
    struct layout_tensor *tensors;
    uint32_t count;
    uint64_t bytes; /* of all tensors */
    void *numbers;  /* memory for begin, extent and shape */
    char *names;    /* memory for names */
    char **renamed; /* [count], names made for the file, null for most */
    pthread_mutex_t mutex;
    struct layout_order *orders[LAYOUT_ORDERS_MAX];
    uint32_t order_count, orders_made; /* kept; ever */
};

struct layout_place {
    uint32_t tensor;
    uint64_t begin; /* in the data */
};

struct layout_run { /* tensors one after the other in the list and in memory */
    uint32_t first, count;
    uint64_t bytes, begin; /* begin: in the data, of direct ones */
    bool direct;           /* whole blocks of it are written from where they lie */
};

struct layout_order {
    _Atomic uint32_t holders;
    struct layout_run *runs; /* in the order of the list */
    uint32_t run_count;
    struct layout_place *places; /* of tensors that have bytes, ascending */
    uint32_t place_count;
    uint32_t *direct; /* runs written from where they lie, ascending */
    uint32_t direct_count;
    uint64_t data_bytes;
    struct bytes tensors; /* their text in the header, each after a comma */
    struct bytes slices;  /* the text of "pawl.slices" in the header, key and value, after a comma */
};

void layout_hold(struct ckpt_layout *layout);
/* The order for tensors that lie at `data` (null: as the layout's), held. ARGUMENT names a tensor without
 * data. */
pawl_code layout_order_get(struct ckpt_layout *layout, void *const *data, struct layout_order **out,
                           struct pawl_error *e);
void layout_order_release(struct layout_order *order); /* accepts null */

/* layout_order.c */
struct layout_order *layout_order_new(const struct ckpt_layout *layout, void *const *data,
                                      struct pawl_error *e);
bool layout_order_fits(const struct layout_order *order, const struct ckpt_layout *layout, void *const *data);

static inline const uint8_t *layout_data(const struct ckpt_layout *layout, void *const *data, uint32_t i) {
    return data != NULL ? data[i] : layout->tensors[i].tensor.data;
}

#endif
