/* Sums and products of ticks that stay at the largest number instead of wrapping around: what is predicted
 * for impossible loads compares as "too long". */
#ifndef PLAN_TICKS_H
#define PLAN_TICKS_H

#include <stdint.h>

#define TICKS_NEVER UINT64_MAX

static inline uint64_t ticks_add(uint64_t a, uint64_t b) { return a > TICKS_NEVER - b ? TICKS_NEVER : a + b; }

static inline uint64_t ticks_mul(uint64_t a, uint64_t b) {
    return b != 0 && a > TICKS_NEVER / b ? TICKS_NEVER : a * b;
}

static inline uint64_t ticks_less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

#endif
