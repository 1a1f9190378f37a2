/* XXH3 once for each instruction set it is compiled for: included by files that define HASH_NAME(x). The
 * vectors only change the speed (by a factor of three where data is in the cache), never the value. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/hash.h"

/* Whole blobs, and the steps of a stream; `state` is that of struct hash_stream. */
struct hash_xxh3 {
    void (*whole)(const void *data, size_t size, uint8_t out[16]);
    void (*begin)(void *state);
    void (*add)(void *state, const void *data, size_t size);
    void (*end)(void *state, uint8_t out[16]);
};

_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct hash_stream), "hash_stream has room for the state");
_Static_assert(_Alignof(XXH3_state_t) <= _Alignof(struct hash_stream), "hash_stream is aligned for it");

static void HASH_NAME(put)(XXH128_hash_t hash, uint8_t out[16]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    for (int i = 0; i < 16; i++) out[i] = canonical.digest[i];
}

static void HASH_NAME(whole)(const void *data, size_t size, uint8_t out[16]) {
    HASH_NAME(put)(XXH3_128bits(data, size), out);
}

static void HASH_NAME(begin)(void *state) {
    XXH3_INITSTATE((XXH3_state_t *)state);
    (void)XXH3_128bits_reset(state);
}

static void HASH_NAME(add)(void *state, const void *data, size_t size) {
    (void)XXH3_128bits_update(state, data, size); /* fails for a null address only */
}

static void HASH_NAME(end)(void *state, uint8_t out[16]) { HASH_NAME(put)(XXH3_128bits_digest(state), out); }

#define HASH_TABLE                                                                                           \
    { HASH_NAME(whole), HASH_NAME(begin), HASH_NAME(add), HASH_NAME(end) }
