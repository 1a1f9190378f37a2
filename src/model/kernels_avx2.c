/* Kernels for x86-64 with AVX2 and FMA: 32-byte vectors. */
#include "model/kernels_private.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define KERNEL         __attribute__((target("avx2,fma")))
#define LANES          8
#define TABLE          kernels_avx2
#define TABLE_NAME     "avx2"
#define V_MUL32(a, b)  ((vq)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define V_FMA(a, b, c) ((vf)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define V_MIN(a, b)    ((vf)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define V_MAX(a, b)    ((vf)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define V_SQRT(a)      ((vf)_mm256_sqrt_ps((__m256)(a)))

#include "model/kernels_table.h"
#endif
