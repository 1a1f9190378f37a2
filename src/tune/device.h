/* The yardstick: what the device does by itself, with several requests in flight, whole blocks, no page
 * cache, no checksums and no commits. A file at a time, each flushed at its end.
 *
 * io_uring with O_DIRECT; where there is no io_uring O_DIRECT alone, one request at a time; where that is not
 * to be had either, the page cache. Buffers are aligned to MEM_ALIGN, sizes multiples of STORE_BLOCK. */
#ifndef TUNE_DEVICE_H
#define TUNE_DEVICE_H

#include <pawl/tune.h>

#include "base/mem.h"
#include "store/store.h"

struct device_files {
    const char *folder;
    const char *name; /* files name-0, name-1, ... */
    uint32_t count;   /* in rotation */
    uint32_t next;
    uint64_t bytes; /* of each */
};

/* Files of their full size. */
pawl_code device_files_make(struct device_files *f, struct pawl_error *e);
void device_files_remove(const struct device_files *f);

struct device_way {
    bool uring, direct;
    uint32_t depth;
    uint64_t piece_bytes;
};
/* What `folder` allows. */
struct device_way device_probe(const char *folder);
const char *device_way_name(struct device_way way);

/* The next file in rotation, whole; from `data`, flushed. TIMEOUT: a signal asked to stop. */
pawl_code device_write(struct device_files *f, struct device_way way, const void *data, struct pawl_error *e);
/* The file written last, whole. */
pawl_code device_read(struct device_files *f, struct device_way way, void *data, struct pawl_error *e);

#endif
