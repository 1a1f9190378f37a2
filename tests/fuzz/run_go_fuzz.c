/* Arbitrary bytes as GO (first byte even) and as FENCED (odd). What decodes must encode to the same bytes.
 * The plan inside a GO carries a checksum, which would stop almost every input: it is made to fit. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "run/go.h"

#define HEAD_BYTES     60u /* of a GO, before the size of its plan */
#define VERSION_OFFSET 8u  /* in a plan */
#define SIZE_OFFSET    24u
#define HASH_BYTES     8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_u64(uint8_t *at, uint64_t v) {
    for (int i = 0; i < 8; i++) at[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get_u64(const uint8_t *at) {
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) v |= (uint64_t)at[i] << 8 * i;
    return v;
}

static void same(const struct bytes *again, const uint8_t *data, size_t size) {
    if (again->failed || again->size != size || memcmp(again->data, data, size) != 0) abort();
}

static void as_go(const uint8_t *data, size_t size) {
    struct go go;
    struct pawl_error e;
    struct bytes again = {0};
    if (go_decode(data, size, &go, &e) == PAWL_OK) {
        go_encode(&go, &again);
        uint32_t version = HEAD_BYTES + 8 + VERSION_OFFSET;
        if (again.failed || data[version] == again.data[version]) /* a plan of an older one grows */
            same(&again, data, size);
    }
    go_close(&go);
    bytes_close(&again);
}

static void seal_plan(uint8_t *data, size_t size) {
    if (size < HEAD_BYTES + 8) return;
    uint64_t plan = get_u64(data + HEAD_BYTES);
    if (plan < SIZE_OFFSET + 8 + HASH_BYTES || plan > size - HEAD_BYTES - 8) return;
    uint8_t *at = data + HEAD_BYTES + 8;
    put_u64(at + SIZE_OFFSET, plan);
    put_u64(at + plan - HASH_BYTES, hash64(at, (size_t)plan - HASH_BYTES));
}

static void as_fenced(const uint8_t *data, size_t size) {
    struct fenced f;
    struct pawl_error e;
    struct bytes again = {0};
    if (fenced_decode(data, size, &f, &e) == PAWL_OK) {
        fenced_encode(&f, &again);
        same(&again, data, size);
    }
    fenced_close(&f);
    bytes_close(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    uint8_t *copy = malloc(size); /* exact size, so that address sanitizer sees every byte too far */
    if (copy == NULL) return 0;
    memcpy(copy, data + 1, size - 1);
    if (data[0] % 2 == 0) {
        seal_plan(copy, size - 1);
        as_go(copy, size - 1);
    } else {
        as_fenced(copy, size - 1);
    }
    free(copy);
    return 0;
}
