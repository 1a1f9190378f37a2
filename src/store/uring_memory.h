/* Memory that the kernel keeps pinned for a ring, so that an operation in it need not look up and hold every
 * page: half the processor time and a tenth more speed where pages are small (bench/README.md). Where the
 * kernel has no such table (before 5.19) or the limit of locked memory forbids it, operations go the usual
 * way. */
#ifndef STORE_URING_MEMORY_H
#define STORE_URING_MEMORY_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The kernel's limit for one entry is 1 GiB; larger memory takes several. */
#define URING_MEMORY_BYTES_MAX ((size_t)1 << 30)
/* Entries: 256 GiB of memory in one piece, or that many pieces. */
#define URING_MEMORY_COUNT 256u

struct uring_memory { /* all zero: nothing registered */
    bool made, refused;
    struct uring_memory_entry {
        uint8_t *base;
        size_t bytes; /* 0: free */
        const void *region;
    } entries[URING_MEMORY_COUNT];
    uint32_t used; /* entries from here on are free */
};

/* What cannot be registered is left out, in whole or in part. */
void uring_memory_add(struct uring_memory *m, struct io_uring *ring, void *base, size_t bytes);
void uring_memory_remove(struct uring_memory *m, struct io_uring *ring, const void *base);
/* The entry in which all these bytes lie; -1: none. */
int uring_memory_find(const struct uring_memory *m, const uint8_t *data, size_t bytes);

#endif
