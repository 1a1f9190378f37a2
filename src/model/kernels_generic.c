/* Kernels for any processor: 16-byte vectors, which are SSE2 on x86-64 and NEON on arm64. */
#define KERNEL
#define LANES      4
#define TABLE      kernels_generic
#define TABLE_NAME "generic"

#include "model/kernels_private.h"
#include "model/kernels_table.h"
