/* XXH3 with 32-byte vectors, used where the processor has them: see base/hash_xxh3.h. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define XXH_VECTOR 2 /* XXH_AVX2 */
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif
#define HASH_NAME(x) avx2_##x
#include "base/hash_xxh3.h"
#ifdef __clang__
#pragma clang attribute pop
#endif

extern const struct hash_xxh3 hash_xxh3_avx2;
const struct hash_xxh3 hash_xxh3_avx2 = HASH_TABLE;
#endif
