/* A set of stores opened for reading, shared by set.c (scan, groups) and set_read.c (bytes). */
#ifndef CKPT_SET_H
#define CKPT_SET_H

#include "ckpt/log.h"
#include "ckpt/slot.h"

struct set_part { /* a slot whose record and header agree */
    struct store *store;
    struct store_file *file; /* null: not open */
    char name[RECORD_NAME_BYTES];
    struct slot_info info;
    uint64_t counter;
};

struct set_ref { /* a stored slice, found by the name of its tensor */
    const char *name;
    uint32_t part, tensor;
};

struct set_group { /* the parts of one step, incarnation and number of units */
    struct ckpt_step step;
    uint32_t *parts, part_count;
    struct set_ref *refs; /* by name; of one name the preferred source first */
    uint32_t ref_count;
    struct ckpt_tensor *tensors; /* by unit, then name; shapes are owned */
    uint32_t tensor_count;
};

enum line_state { LINE_EMPTY, LINE_READING, LINE_READ, LINE_VERIFIED };

struct set_line { /* a chunk being read, or kept for the next tensor in it */
    enum line_state state;
    uint32_t part;
    uint64_t chunk, used; /* `used` orders by age */
    uint8_t *data;        /* owned, aligned */
    size_t room;
    uint8_t *target; /* where the chunk goes: data, or the caller's buffer */
    pawl_code code;
    int os_errno;
};

/* Chunks in flight at once; enough for the device, few enough to stay small. */
#define SET_LINES 8u
/* Memory for them; at least one chunk whatever its size. */
#define SET_LINE_BYTES ((uint64_t)64 << 20)

struct ckpt_set {
    struct set_part *parts;
    uint32_t part_count, part_room;
    struct set_group *groups;
    uint32_t group_count;
    char **problems;
    uint32_t problem_count;
    struct set_line lines[SET_LINES];
    uint64_t clock; /* of line use */
};

void set_problem(struct ckpt_set *set, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Blocking read of whole blocks. */
pawl_code set_read_blocks(struct store *s, struct store_file *f, uint64_t offset, void *data, size_t bytes,
                          struct pawl_error *e);
/* Any range of a part's data, each chunk it touches verified. */
pawl_code set_read_range(struct ckpt_set *set, uint32_t part, uint64_t begin, uint64_t bytes, uint8_t *out,
                         struct pawl_error *e);
pawl_code set_open_part(struct set_part *part, struct pawl_error *e);
uint64_t set_row_bytes(const struct st_tensor *t);

#endif
