/* A few threads that do the operations of a store whose device has no queue of its own: the page cache, and
 * mapped memory. The owner submits, polls and sleeps; it never does a transfer itself, unless no thread can
 * be started at all. Started when first needed. Tested through the plain and the pmem store. */
#ifndef STORE_POOL_H
#define STORE_POOL_H

#include <pthread.h>

#include "store/internal.h"

struct pool {
    struct store *store;
    int (*run)(struct store_op *op); /* 0 or an errno; on any thread of the pool */
    pthread_mutex_t mutex;           /* all below */
    pthread_cond_t work, event;      /* for the threads; for the owner */
    struct store_op_list queue, finished;
    uint32_t running; /* operations that threads are doing; at most `wanted` */
    uint32_t wanted, started;
    bool stop, woken;
    pthread_t threads[STORE_DEPTH_MAX];
};

bool pool_init(struct pool *p, struct store *s, int (*run)(struct store_op *op));
void pool_close(struct pool *p); /* nothing is in flight */
void pool_submit(struct pool *p, struct store_op *op);
void pool_progress(struct pool *p);
void pool_wait(struct pool *p, int64_t timeout_ns);
void pool_wake(struct pool *p);
void pool_resize(struct pool *p, uint32_t wanted);

#endif
