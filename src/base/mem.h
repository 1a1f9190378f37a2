/* Memory for tensors: page-aligned, huge pages where the kernel gives them, size arithmetic checked.
 * The alignment suits O_DIRECT from the buffer itself; huge pages make a killed process's sockets close
 * in milliseconds instead of hundreds (the kernel frees memory first). */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Alignment of mem_alloc, in bytes: the largest block size O_DIRECT asks for on common devices. */
#define MEM_ALIGN 4096u

/* Zeroed memory aligned to MEM_ALIGN and usable up to the next multiple of it; null when there is none
 * or size is 0. Free with mem_free. */
void *mem_alloc(size_t size);
void mem_free(void *p, size_t size);

/* a*b and a+b into *out; false on overflow. */
bool mem_mul(uint64_t a, uint64_t b, uint64_t *out);
bool mem_add(uint64_t a, uint64_t b, uint64_t *out);

/* v rounded up to a multiple of `to` (a power of two); the caller knows that it fits. */
static inline uint64_t mem_round_up(uint64_t v, uint64_t to) { return (v + to - 1) & ~(to - 1); }

#endif
