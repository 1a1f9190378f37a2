/* What the back ends share: the table of functions, the queue of finished operations, dead names.
 *
 * A back end embeds `struct store` and `struct store_file` as first members. Memory for a completion is
 * reserved when its operation is submitted, so that finishing one never fails. A file whose flush failed is
 * dead: its code is kept in the handle, its name in the store, and every later operation is answered with it
 * until the name is removed or replaced. A back end sees at most one flush of a file at a time: the system
 * tells a failure to one caller only, so that a second flush beside the first could wrongly succeed. Flushes
 * that come meanwhile share the next one. Tested through store/store.h. */
#ifndef STORE_INTERNAL_H
#define STORE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/store.h"

enum store_op_kind { STORE_OP_WRITE, STORE_OP_READ, STORE_OP_FLUSH };

struct store_op {
    struct store_op *next;
    struct store_file *file;
    enum store_op_kind kind;
    uint64_t offset;
    uint8_t *data; /* a write does not change it */
    size_t bytes;  /* still to move */
    uint64_t cookie;
    int result;        /* 0 or an errno, where a thread did the operation */
    void *place;       /* persistent memory: the mapping; null: none */
    uint32_t stalls;   /* times in a row that nothing moved */
    uint64_t ready_at; /* simulated disk: the tick from which it may finish */
    bool late;         /* simulated disk: submitted after it had stopped */
};

struct store_op_list { /* first in, first out */
    struct store_op *first, *last;
    uint32_t count;
};
void store_op_push(struct store_op_list *list, struct store_op *op);
struct store_op *store_op_pop(struct store_op_list *list);

struct store_table {
    void (*close)(struct store *s);
    pawl_code (*file_open)(struct store *s, const char *name, bool create, uint64_t bytes,
                           struct store_file **out, struct pawl_error *e);
    void (*file_free)(struct store_file *f);
    pawl_code (*file_size)(struct store_file *f, uint64_t *bytes, struct pawl_error *e);
    pawl_code (*file_truncate)(struct store_file *f, uint64_t bytes, struct pawl_error *e);
    /* null: there is no page cache */
    bool (*is_cached)(struct store_file *f, uint64_t offset, size_t bytes);
    bool (*read_cached)(struct store_file *f, uint64_t offset, void *data, size_t bytes);
    void (*submit)(struct store *s, struct store_op *op);
    void (*progress)(struct store *s);                 /* move what can be moved without waiting */
    void (*wait)(struct store *s, int64_t timeout_ns); /* asleep; until something can finish, or a wake */
    void (*wake)(struct store *s);                     /* from any thread */
    void (*depth_changed)(struct store *s);            /* null: s->depth is read as it is needed */
    void (*memory_add)(struct store *s, void *base, size_t bytes); /* null: of no use here */
    void (*memory_remove)(struct store *s, void *base);
    pawl_code (*get)(struct store *s, const char *name, uint8_t **data, size_t *bytes, struct pawl_error *e);
    pawl_code (*put)(struct store *s, const char *name, const void *data, size_t bytes, struct pawl_error *e);
    pawl_code (*remove)(struct store *s, const char *name, struct pawl_error *e);
    pawl_code (*list)(struct store *s, char ***names, uint32_t *count, struct pawl_error *e);
    pawl_code (*sync_folder)(struct store *s, struct pawl_error *e);
    pawl_code (*space)(struct store *s, uint64_t *free_bytes, struct pawl_error *e);
};

struct store_dead {
    struct store_dead *next;
    pawl_code code;
    int os_errno;
    char name[];
};

struct store {
    const struct store_table *table;
    enum store_kind kind;
    bool read_only;
    char *path;
    struct store_completion *ready; /* ring */
    uint32_t ready_head, ready_count, ready_capacity;
    uint32_t in_flight; /* submitted and not yet ready */
    uint32_t depth, depth_default;
    struct store_dead *dead;
    _Atomic int fault; /* store/fault.c */
    _Atomic int64_t fault_until_ns;
    struct store_op_list held; /* by a device that hangs */
};

struct store_file {
    struct store *store;
    char *name;
    pawl_code dead_code;    /* OK while alive */
    _Atomic int dead_errno; /* also read by threads that do operations */
    uint32_t in_flight;
    bool closing;                 /* freed when the last operation ends */
    bool flushing;                /* the back end has a flush of this file */
    struct store_op_list riders;  /* flushes that end with it */
    struct store_op_list waiting; /* flushes that came later */
};

/* `depth` is the default number of operations at once. */
bool store_init(struct store *s, const struct store_table *table, enum store_kind kind, const char *path,
                bool read_only, uint32_t depth);
void store_deinit(struct store *s);
bool store_file_init(struct store_file *f, struct store *s, const char *name);
void store_file_deinit(struct store_file *f);

/* Hands `op` over to the back end, or ends it at once when its file is dead. */
void store_op_start(struct store_op *op);
/* Ends `op` with `os_errno` (0: ok), frees it, and kills its file when it was a flush that failed. May call
 * the back end's submit. */
void store_op_finish(struct store_op *op, int os_errno);
/* store/fault.c: gives `op` to the back end, or fails or keeps it on purpose. */
void store_hand_over(struct store *s, struct store_op *op);
/* What was kept goes on, if it may. */
void store_release(struct store *s);
/* How long to sleep at most, so that what is kept goes on in time. */
int64_t store_held_ns(struct store *s, int64_t timeout_ns);
/* For calls that change the folder or a file at once: hangs, or fails. */
pawl_code store_fault_check(struct store *s, const char *name, struct pawl_error *e);
/* Room for one more operation in flight to become ready. */
bool store_ready_reserve(struct store *s);
const struct store_dead *store_dead_find(const struct store *s, const char *name);
void store_dead_remove(struct store *s, const char *name);

/* Sleep until somebody signals `cond`, made by the first, or the monotonic clock reaches the deadline (then
 * false). Both a signal and nothing at all may end it early: ask again what was waited for. */
bool store_cond_init(pthread_cond_t *cond);
bool store_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline_ns);
int64_t store_deadline(int64_t timeout_ns);

/* Where there is a temporary name for store_put. Names that begin with a dot are the store's own. */
#define STORE_TEMPORARY_PREFIX ".new-"
#define STORE_NAME_BYTES_MAX   200u

/* A name list under construction; sorted by store_list. */
struct store_names {
    char **items;
    uint32_t count, capacity;
};
bool store_names_add(struct store_names *names, const char *name);

/* store/posix.c and its users */
pawl_code store_uring_open(const char *path, bool read_only, struct store **out, struct pawl_error *e);
pawl_code store_plain_open(const char *path, bool read_only, struct store **out, struct pawl_error *e);
pawl_code store_pmem_open(const char *path, bool read_only, struct store **out, struct pawl_error *e);
/* Can this folder be used with io_uring and O_DIRECT? OK, or the reason in `reason`. The folder exists. */
/* Can files of this folder be mapped, and, if that is asked, do the processor's stores into a mapping really
 * reach persistent memory? False, and the reason. `*granularity` is what the library says ("cache line",
 * "page"). */
bool store_pmem_probe(const char *path, bool only_dax, const char **granularity, char *reason,
                      size_t reason_size);
bool store_probe(const char *path, bool read_only, char *reason, size_t reason_size);

#endif
