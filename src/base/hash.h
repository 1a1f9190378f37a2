/* Checksums (XXH3, 64 and 128 bits) and SHA-256. Tested in tests/unit/base_hash_test.c. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t hash64(const void *data, size_t size);
/* 16 bytes in canonical (big-endian) order. */
void hash128(const void *data, size_t size, uint8_t out[16]);

/* The same of bytes that come in pieces. */
struct hash_stream {
    _Alignas(64) uint8_t opaque[640];
};
void hash_stream_begin(struct hash_stream *s);
void hash_stream_add(struct hash_stream *s, const void *data, size_t size);
void hash_stream_end(struct hash_stream *s, uint8_t out[16]);

struct hash_sha256;                        /* opaque */
struct hash_sha256 *hash_sha256_new(void); /* null without memory */
void hash_sha256_add(struct hash_sha256 *h, const void *data, size_t size);
/* 64 hexadecimal digits and a 0; frees h. */
void hash_sha256_finish(struct hash_sha256 *h, char out[65]);

void hash_hex(const uint8_t *data, size_t size, char *out); /* 2*size digits and a 0 */
/* What hash_hex wrote; false: `text` is anything else than 2*size lower-case digits. */
bool hash_unhex(const char *text, uint8_t *out, size_t size);

#endif
