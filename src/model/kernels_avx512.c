/* Kernels for x86-64 with AVX-512 (F, DQ, BW, VL): 64-byte vectors. */
#include "model/kernels_private.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define KERNEL         __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma")))
#define LANES          16
#define TABLE          kernels_avx512
#define TABLE_NAME     "avx512"
#define V_MUL32(a, b)  ((vq)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#define V_FMA(a, b, c) ((vf)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define V_MIN(a, b)    ((vf)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define V_MAX(a, b)    ((vf)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define V_SQRT(a)      ((vf)_mm512_sqrt_ps((__m512)(a)))

#include "model/kernels_table.h"
#endif
