/* Implementation of base/hash.h over xxhash and OpenSSL. */
#include "base/hash.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#define HASH_NAME(x) plain_##x
#include "base/hash_xxh3.h"

static const struct hash_xxh3 *xxh3(void) {
    static const struct hash_xxh3 plain = HASH_TABLE;
#if defined(__x86_64__)
    extern const struct hash_xxh3 hash_xxh3_avx2;
    if (__builtin_cpu_supports("avx2")) return &hash_xxh3_avx2;
#endif
    return &plain;
}

uint64_t hash64(const void *data, size_t size) { return XXH3_64bits(data, size); }

void hash128(const void *data, size_t size, uint8_t out[16]) { xxh3()->whole(data, size, out); }

void hash_stream_begin(struct hash_stream *s) { xxh3()->begin(s); }
void hash_stream_add(struct hash_stream *s, const void *data, size_t size) { xxh3()->add(s, data, size); }
void hash_stream_end(struct hash_stream *s, uint8_t out[16]) { xxh3()->end(s, out); }

struct hash_sha256 {
    EVP_MD_CTX *context;
};

struct hash_sha256 *hash_sha256_new(void) {
    struct hash_sha256 *h = malloc(sizeof *h);
    if (h == NULL) return NULL;
    h->context = EVP_MD_CTX_new();
    if (h->context == NULL || EVP_DigestInit_ex(h->context, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(h->context);
        free(h);
        return NULL;
    }
    return h;
}

void hash_sha256_add(struct hash_sha256 *h, const void *data, size_t size) {
    EVP_DigestUpdate(h->context, data, size);
}

void hash_sha256_finish(struct hash_sha256 *h, char out[65]) {
    uint8_t digest[32] = {0};
    EVP_DigestFinal_ex(h->context, digest, NULL);
    hash_hex(digest, sizeof digest, out);
    EVP_MD_CTX_free(h->context);
    free(h);
}

void hash_hex(const uint8_t *data, size_t size, char *out) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < size; i++) {
        out[2 * i] = digits[data[i] >> 4];
        out[2 * i + 1] = digits[data[i] & 15];
    }
    out[2 * size] = 0;
}

static int digit_of(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool hash_unhex(const char *text, uint8_t *out, size_t size) {
    if (strlen(text) != 2 * size) return false;
    for (size_t i = 0; i < size; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
