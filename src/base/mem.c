/* Implementation of base/mem.h. */
#include "base/mem.h"

#include <sys/mman.h>

/* From this size on a region is worth a huge page (2 MiB on x86-64 and arm64). */
#define HUGE_BYTES ((size_t)2 << 20)

void *mem_alloc(size_t size) {
    if (size == 0 || size > SIZE_MAX - MEM_ALIGN) return NULL;
    size_t bytes = mem_round_up(size, MEM_ALIGN);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (bytes >= HUGE_BYTES) (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

void mem_free(void *p, size_t size) {
    if (p != NULL) munmap(p, mem_round_up(size, MEM_ALIGN));
}

bool mem_mul(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_mul_overflow(a, b, out); }
bool mem_add(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_add_overflow(a, b, out); }
