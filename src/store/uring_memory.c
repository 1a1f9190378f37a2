/* Implementation of store/uring_memory.h. */
#include "store/uring_memory.h"

/* One entry of the kernel's table: this memory, or none. */
static bool update(struct io_uring *ring, uint32_t at, void *base, size_t bytes) {
    struct iovec memory = {base, bytes};
    __u64 no_tag = 0;
    return io_uring_register_buffers_update_tag(ring, at, &memory, &no_tag, 1) == 1;
}

static bool make_table(struct uring_memory *m, struct io_uring *ring) {
    if (!m->made && !m->refused) {
        m->made = io_uring_register_buffers_sparse(ring, URING_MEMORY_COUNT) == 0;
        m->refused = !m->made;
    }
    return m->made;
}

void uring_memory_add(struct uring_memory *m, struct io_uring *ring, void *base, size_t bytes) {
    if (!make_table(m, ring)) return;
    uint32_t at = 0;
    for (size_t done = 0; done < bytes;) {
        size_t piece = bytes - done < URING_MEMORY_BYTES_MAX ? bytes - done : URING_MEMORY_BYTES_MAX;
        while (at < URING_MEMORY_COUNT && m->entries[at].bytes != 0) at++;
        if (at == URING_MEMORY_COUNT) return;
        uint8_t *begin = (uint8_t *)base + done;
        if (!update(ring, at, begin, piece)) return; /* the limit of locked memory holds for the rest, too */
        m->entries[at] = (struct uring_memory_entry){begin, piece, base};
        if (m->used <= at) m->used = at + 1;
        done += piece;
    }
}

void uring_memory_remove(struct uring_memory *m, struct io_uring *ring, const void *base) {
    for (uint32_t at = 0; at < m->used; at++) {
        if (m->entries[at].bytes == 0 || m->entries[at].region != base) continue;
        (void)update(ring, at, NULL, 0); /* if it fails the pages stay pinned until the ring is closed */
        m->entries[at] = (struct uring_memory_entry){0};
    }
    while (m->used > 0 && m->entries[m->used - 1].bytes == 0) m->used--;
}

int uring_memory_find(const struct uring_memory *m, const uint8_t *data, size_t bytes) {
    for (uint32_t at = 0; at < m->used; at++) {
        const struct uring_memory_entry *entry = &m->entries[at];
        if (data < entry->base || bytes > entry->bytes) continue;
        if ((size_t)(data - entry->base) <= entry->bytes - bytes) return (int)at;
    }
    return -1;
}
