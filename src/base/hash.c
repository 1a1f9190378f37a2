/* Implementation of base/hash.h over xxhash and OpenSSL. */
#include "base/hash.h"

#include <openssl/evp.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t hash64(const void *data, size_t size) { return XXH3_64bits(data, size); }

void hash128(const void *data, size_t size, uint8_t out[16]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, size));
    for (int i = 0; i < 16; i++) out[i] = canonical.digest[i];
}

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
