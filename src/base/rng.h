/* Counter-based random numbers (Philox4x32-10; Salmon et al., SC'11): the same (key, counter) gives the
 * same numbers on any worker, in any order, after any failure, and nothing has to be saved. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct rng_block {
    uint32_t v[4];
};

struct rng_block rng_philox(uint64_t key, uint64_t counter_low, uint64_t counter_high);

/* [0, 1) with 24 random bits. */
static inline float rng_unit(uint32_t v) { return (float)(v >> 8) * 0x1p-24f; }

/* Fill out[count] with normal numbers of the given deviation; the stream is named by (key, stream). */
void rng_normal(uint64_t key, uint64_t stream, float deviation, float *out, uint64_t count);

/* A position in 0..count-1 that is a permutation of `index` in 0..count-1 for each key: a keyed
 * bijection in O(1), so that a shuffled data order has random access. count >= 1. */
uint64_t rng_permute(uint64_t key, uint64_t index, uint64_t count);

/* A sequential stream for tests and simulations (splitmix64). */
struct rng_stream {
    uint64_t state;
};
uint64_t rng_next(struct rng_stream *s);
uint64_t rng_below(struct rng_stream *s, uint64_t bound); /* 0..bound-1; bound >= 1 */

#endif
