/* Kernels for any processor: 16-byte vectors, which are SSE2 on x86-64 and NEON on arm64. */
#define KERNEL
#define LANES      4
#define TABLE      kernels_generic
#define TABLE_NAME "generic"

#if defined(__x86_64__)
#include <emmintrin.h>
#define V_SQRT(a)     ((vf)_mm_sqrt_ps((__m128)(a)))
#define V_MUL32(a, b) ((vq)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))
#elif defined(__aarch64__)
#include <arm_neon.h>
#define V_SQRT(a)      ((vf)vsqrtq_f32((float32x4_t)(a)))
#define V_FMA(a, b, c) ((vf)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#endif

#include "model/kernels_private.h"
#include "model/kernels_table.h"
