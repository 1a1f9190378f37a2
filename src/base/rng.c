/* Implementation of base/rng.h. */
#include "base/rng.h"

#include <math.h>

/* Multipliers and key increments of Philox4x32 as published. */
#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

struct rng_block rng_philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter_low, c1 = (uint32_t)(counter_low >> 32);
    uint32_t c2 = (uint32_t)counter_high, c3 = (uint32_t)(counter_high >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * c0, p1 = (uint64_t)PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    return (struct rng_block){{c0, c1, c2, c3}};
}

void rng_normal(uint64_t key, uint64_t stream, float deviation, float *out, uint64_t count) {
    for (uint64_t i = 0; i < count; i += 4) {
        struct rng_block b = rng_philox(key, i / 4, stream);
        float n[4];
        for (int pair = 0; pair < 2; pair++) {
            /* Box-Muller; the half step keeps the logarithm finite. */
            double u = ((double)b.v[2 * pair] + 0.5) * 0x1p-32;
            double angle = 6.283185307179586 * (double)b.v[2 * pair + 1] * 0x1p-32;
            double radius = sqrt(-2.0 * log(u));
            n[2 * pair] = (float)(radius * cos(angle)) * deviation;
            n[2 * pair + 1] = (float)(radius * sin(angle)) * deviation;
        }
        for (uint64_t j = 0; j < 4 && i + j < count; j++) out[i + j] = n[j];
    }
}

static uint64_t philox_64(uint64_t key, uint64_t low, uint64_t high) {
    struct rng_block b = rng_philox(key, low, high);
    return (uint64_t)b.v[1] << 32 | b.v[0];
}

uint64_t rng_permute(uint64_t key, uint64_t index, uint64_t count) {
    /* A balanced Feistel network over the next even number of bits; values outside the range walk the
     * cycle until they fall inside (at most 4 steps on average). */
    unsigned bits = 2;
    while (bits < 64 && (count - 1) >> bits != 0) bits += 2;
    unsigned half = bits / 2;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = index >> half, right = index & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t mixed = left ^ (philox_64(key, right, round) & mask);
            left = right;
            right = mixed;
        }
        index = left << half | right;
    } while (index >= count);
    return index;
}

uint64_t rng_next(struct rng_stream *s) {
    uint64_t z = s->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t rng_below(struct rng_stream *s, uint64_t bound) {
    return (uint64_t)(((__uint128_t)rng_next(s) * bound) >> 64);
}
