/* What the files that fetch chunks share: set_fetch.c (reading, damage), set_deliver.c (to the targets). */
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
/* Hands out what is wanted of a verified chunk; copies into other memory may still be under way then. */
void fetch_deliver(struct fetch *f, struct set_line *l, size_t first, const struct slot_chunk *chunk);
/* Takes back copies that have ended; waits for the first when `wait`. */
void fetch_collect_copies(struct fetch *f, bool wait);

#endif
