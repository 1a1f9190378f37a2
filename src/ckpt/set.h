/* A set of stores opened for reading, shared by its files: set.c (scan), set_group.c (which steps are
 * complete), set_read.c (calls), set_cover.c (which stored boxes serve what is wanted), set_fetch.c,
 * set_work.c and set_deliver.c (chunks from devices to their targets). */
#ifndef CKPT_SET_H
#define CKPT_SET_H

#include "ckpt/box.h"
#include "ckpt/log.h"
#include "ckpt/slot.h"

struct set_store {
    struct store *store;
    uint64_t bytes_read; /* of data, from the device or the page cache */
    uint32_t in_flight;  /* reads under way */
};

struct set_part { /* a slot whose record and header agree */
    struct store *store;
    uint32_t store_index;
    struct store_file *file; /* null: not open */
    char name[RECORD_NAME_BYTES];
    struct slot_info info;
    uint64_t counter;
};

struct set_ref { /* a stored box, found by the name of its tensor */
    const char *name;
    uint32_t part, tensor;
    bool preferred;
};

struct set_group { /* the parts of one step, incarnation and number of units */
    struct ckpt_step step;
    uint32_t *parts, part_count;
    struct set_ref *refs; /* by name; of one name the preferred source first */
    uint32_t ref_count;
    struct ckpt_tensor *tensors; /* by unit, then name */
    uint32_t tensor_count;
};

enum line_state { LINE_EMPTY, LINE_READING, LINE_READ, LINE_COPYING, LINE_VERIFIED };

struct set_line { /* a chunk on its way, or kept for what else is in it */
    enum line_state state;
    uint32_t part;
    uint64_t chunk, used; /* `used` orders by age */
    uint8_t *data;        /* owned, aligned */
    size_t room;
    uint8_t *target; /* where the chunk goes: data, or the caller's buffer */
    bool cached;     /* comes from the system's page cache: if it does not match, the device has the word */
    bool streamed;   /* is read by whoever verifies it, a piece at a time, and handed out as it is read */
    size_t job;      /* place of its first use in the fetch */
    uint32_t copies; /* into other kinds of memory, under way */
    pawl_code code;  /* of reading */
    int os_errno;
    /* set_work.c: while a thread has the line, these are the thread's. */
    struct set_line *next;
    bool delivered;
    struct pawl_error why; /* code OK: the chunk is what was saved */
};

/* Chunks under way at once, all stores together. */
#define SET_LINES 64u
/* Memory for those that do not go straight to their targets; at least one chunk whatever its size. */
#define SET_LINE_BYTES ((uint64_t)64 << 20)

struct set_problem {
    char *text;
    struct ckpt_cost cost;
};

struct ckpt_set {
    bool unchecked;
    const struct store *prefer;
    struct set_store *stores;
    uint32_t store_count;
    struct set_part *parts;
    uint32_t part_count, part_room;
    struct set_group *groups;
    uint32_t group_count;
    struct set_problem *problems;
    uint32_t problem_count;
    struct set_line lines[SET_LINES];
    uint64_t line_bytes; /* memory they have */
    uint64_t clock;      /* of line use */
};

void set_problem(struct ckpt_set *set, struct ckpt_cost cost, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
pawl_code set_no_memory(struct pawl_error *e);
/* Blocking read of whole blocks. */
pawl_code set_read_blocks(struct store *s, struct store_file *f, uint64_t offset, void *data, size_t bytes,
                          struct pawl_error *e);
pawl_code set_open_part(struct set_part *part, struct pawl_error *e);

/* set_group.c */
pawl_code set_make_groups(struct ckpt_set *set, struct pawl_error *e);
void set_group_close(struct set_group *g);
/* The refs of one name: [*first, end), end returned. */
uint32_t set_find_name(const struct set_group *g, const char *name, uint32_t *first);

static inline const struct st_tensor *set_tensor_of(const struct ckpt_set *set, const struct set_ref *ref) {
    return &set->parts[ref->part].info.header.tensors[ref->tensor];
}
static inline const struct slot_slice *set_slice_of(const struct ckpt_set *set, const struct set_ref *ref) {
    return &set->parts[ref->part].info.slices[ref->tensor];
}
static inline struct box set_box_of(const struct ckpt_set *set, const struct set_ref *ref) {
    return (struct box){set_slice_of(set, ref)->begin, set_tensor_of(set, ref)->shape};
}

/* ---- a call that reads ---- */

struct set_want { /* a slice wanted */
    const struct pawl_tensor *tensor;
    const uint64_t *begin, *extent; /* never null */
    uint64_t bytes;
    uint32_t first, end; /* refs of its name */
};

struct set_piece { /* a box of what is wanted, from one source */
    uint32_t want, ref;
    const uint64_t *begin, *extent;
};

#define SET_NO_PIECE UINT32_MAX /* the chunk is only verified, and damage of it is an error */

struct set_use { /* a chunk that holds bytes of a piece */
    uint32_t store, part, piece;
    uint64_t chunk, at; /* at: the first of them, in the data */
};

struct set_bad { /* what turned out not to be readable */
    uint32_t part;
    uint64_t chunk; /* UINT64_MAX: the whole part */
    struct pawl_error error;
};

struct set_numbers { /* memory for begins and extents that does not move */
    struct set_numbers *next;
    size_t used, room;
    uint64_t at[];
};

struct set_call {
    struct ckpt_set *set;
    struct set_group *group;
    struct set_want *wants;
    uint32_t want_count;
    struct set_piece *pieces;
    uint32_t piece_count, piece_room;
    struct set_use *uses; /* of this round, in the order in which they are read */
    size_t use_count, use_room;
    uint32_t piece_next; /* pieces from here on are for the next round */
    struct set_bad *bad;
    uint32_t bad_count;
    struct set_numbers *numbers;
};

uint64_t *set_call_numbers(struct set_call *call, size_t count); /* null: no memory */
void set_call_close(struct set_call *call);

/* set_cover.c: appends pieces that make up the box. NOT_FOUND names a hole; the error of the damage where
 * only damaged sources have it; MEMORY. */
pawl_code set_cover(struct set_call *call, uint32_t want, struct box b, struct pawl_error *e);
/* Uses of the pieces from piece_next on, in reading order; piece_next moves behind them. */
pawl_code set_list_uses(struct set_call *call, struct pawl_error *e);
pawl_code set_add_use(struct set_call *call, struct set_use use, struct pawl_error *e);
void set_sort_uses(struct set_call *call); /* into reading order */
/* From now on nothing is taken from this chunk (UINT64_MAX: from this part). */
pawl_code set_add_bad(struct set_call *call, uint32_t part, uint64_t chunk, const struct pawl_error *why,
                      struct pawl_error *e);
const struct set_bad *set_find_bad(const struct set_call *call, uint32_t part, uint64_t chunk);
/* The chunk of piece `piece` is damaged: covers what of the piece is in it from elsewhere. */
pawl_code set_replace(struct set_call *call, uint32_t piece, uint64_t chunk, struct pawl_error *e);
/* Where the piece's bytes lie in its part's data, and where they go in the wanted slice. */
void set_piece_runs(const struct set_call *call, uint32_t piece, struct box_runs *runs);
/* The chunk that holds byte `offset` of the data, which there is. */
uint64_t set_chunk_at(const struct slot_info *s, uint64_t offset);

/* set_fetch.c: reads the chunks of all uses, verifies them and hands their bytes out. Damage is replaced by
 * set_replace, which leaves pieces for another round. */
pawl_code set_fetch(struct set_call *call, struct pawl_error *e);

#endif
