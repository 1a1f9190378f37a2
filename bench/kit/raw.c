/* See raw.h. */
#include "kit/raw.h"

#include "base/mem.h"
#include "raw_device.h"

#include "kit/measure.h"

struct raw_device *raw_open(const char *folder, size_t bytes, bool choose) {
    struct raw_device *r = calloc(1, sizeof *r);
    if (r == NULL) measure_stop("raw device", "no memory");
    r->bytes = mem_round_up(bytes, MEM_ALIGN);
    r->depth = 8;
    r->piece = (size_t)4 << 20;
    if ((size_t)snprintf(r->folder, sizeof r->folder, "%s", folder) >= sizeof r->folder)
        measure_stop(folder, "too long a path");
    if (!choose) return r;
    uint8_t *data = mem_alloc(r->bytes);
    if (data == NULL) measure_stop("raw device", "no memory");
    measure_fill(data, r->bytes, 3);
    raw_choose(r, data);
    mem_free(data, r->bytes);
    return r;
}

void raw_write(struct raw_device *r, const void *data) {
    raw_transfer(r, (uint8_t *)(uintptr_t)data, true); /* io_uring takes no const; it only reads */
}

void raw_close(struct raw_device *r) {
    char path[450];
    for (uint32_t i = 0; i < RAW_FILES; i++) {
        snprintf(path, sizeof path, "%s/raw-%u.bin", r->folder, i);
        unlink(path);
    }
    free(r);
}
