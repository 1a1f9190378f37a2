/* What the files that fetch chunks share: set_fetch.c (reading, damage), set_work.c (threads that verify),
 * set_deliver.c (to the targets). */
#ifndef CKPT_SET_FETCH_H
#define CKPT_SET_FETCH_H

#include <pthread.h>

#include "ckpt/copy.h"
#include "ckpt/set.h"

struct fetch_copy {
    struct pawl_copy base; /* first */
    struct fetch *fetch;
    struct fetch_copy *next;
    uint32_t line;
    const struct pawl_memory *memory;
    pawl_code code;
};

struct lane { /* the uses of one store: a range of call->uses */
    size_t next, end;
};

/* More verify no faster than memory is. */
#define FETCH_THREADS_MAX 4u

struct fetch_work {        /* chunks that threads verify, and hand out where memory is the process's own */
    uint32_t thread_count; /* 0: the owner does it all */
    pthread_t threads[FETCH_THREADS_MAX];
    uint32_t busy; /* handed over and not taken back; the owner's */
    /* Under the mutex. */
    pthread_mutex_t mutex;
    pthread_cond_t todo, done;
    struct set_line *first, **end, *finished; /* first: waiting, the oldest first */
    uint32_t running;
    struct store *sleeper; /* where the owner waits for a device; null: it does not */
    bool stop;
};

struct fetch {
    struct set_call *call;
    struct ckpt_set *set;
    struct lane *lanes;
    uint32_t in_flight, read; /* chunks at the devices; read and not yet looked at */
    uint32_t cached;          /* of those read, from the page cache: they are handed out while they are in the
                                 processor's own */
    struct fetch_copy *copies, *free_copies;
    uint32_t copies_busy;
    pthread_mutex_t mutex; /* of `finished` */
    pthread_cond_t ended;
    struct fetch_copy *finished;
    struct fetch_work work;
    pawl_code code; /* the first error that ends it */
    struct pawl_error error;
};

static inline void fetch_stop(struct fetch *f, pawl_code code) {
    if (f->code == PAWL_OK) f->code = code;
}

/* set_deliver.c */
/* Behind the last use of the chunk that use `first` is of. */
size_t fetch_uses_end(const struct set_call *call, size_t first);
/* Where the whole chunk goes as it is, all its pieces side by side; null: it has to be taken apart. */
uint8_t *fetch_direct_target(const struct fetch *f, size_t first, const struct slot_chunk *chunk);
/* Hands out what is wanted of the line's verified chunk, whose first use is `first`; copies into other memory
 * may still be under way then. */
void fetch_deliver(struct fetch *f, struct set_line *l, size_t first);
/* Does all that is wanted of the chunk of use `first` go into the process's own memory? */
bool fetch_is_plain(const struct set_call *call, size_t first);
/* The same for the line's own job from any thread, where all of it is plain; false: it is not, and nothing
 * was done. */
bool fetch_deliver_plain(const struct set_call *call, const struct set_line *l);
/* Reads, verifies and hands out a chunk of the page cache in one pass, from any thread. What is wanted of it
 * is plain. False: the cache has it no longer or it does not match, and what is wanted has unverified bytes,
 * which the same chunk from the device, or from another source, replaces. */
bool fetch_stream(const struct set_call *call, const struct set_line *l);
/* Takes back copies that have ended; waits for the first when `wait`. */
void fetch_collect_copies(struct fetch *f, bool wait);

/* set_fetch.c: is the chunk what was saved? From any thread. */
pawl_code fetch_verify(const struct ckpt_set *set, const struct set_line *l, struct pawl_error *e);

/* set_work.c */
/* What is done with a chunk that is read, or is streamed: l->why and l->delivered. From any thread. */
void fetch_work_on(const struct fetch *f, struct set_line *l);
/* Threads, where this many bytes and the processors make it worth while. */
void fetch_work_begin(struct fetch *f, uint64_t bytes);
void fetch_work_end(struct fetch *f); /* nothing is busy */
/* False: the owner is to do it. */
bool fetch_work_add(struct fetch *f, struct set_line *l);
/* A line that is done; null: none now. */
struct set_line *fetch_work_take(struct fetch *f);
/* Until no thread reads what the call wants: before that changes. */
void fetch_work_quiesce(struct fetch *f);
/* Sleeps until a line is done, or, where `store` is given, an operation of it, or the time is over. */
void fetch_work_wait(struct fetch *f, struct store *store, int64_t timeout_ns);

#endif
