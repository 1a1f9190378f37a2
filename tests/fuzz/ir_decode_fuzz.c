/* Arbitrary bytes as a binary plan. The checksum would stop almost every input, so it is made to fit; what
 * decodes must encode to the same bytes, and the checker and the printer must stand it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ir/ir.h"

#define SIZE_OFFSET 24u
#define HASH_BYTES  8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_u64(uint8_t *at, uint64_t v) {
    for (int i = 0; i < 8; i++) at[i] = (uint8_t)(v >> 8 * i);
}

static void decode(const uint8_t *data, size_t size) {
    struct ir_plan *plan = NULL, *printed = NULL;
    struct pawl_error e;
    struct bytes again = {0}, text = {0};
    if (ir_decode(data, size, &plan, &e) != PAWL_OK) return;
    ir_encode(plan, &again);
    if (again.failed || again.size != size || memcmp(again.data, data, size) != 0) abort();
    (void)ir_check(plan, NULL, NULL, &e);
    ir_print(plan, &text);
    if (ir_parse((const char *)text.data, text.size, &printed, &e) != PAWL_OK) abort();
    ir_plan_free(printed);
    ir_plan_free(plan);
    bytes_close(&again);
    bytes_close(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    decode(data, size);
    if (size < SIZE_OFFSET + 8 + HASH_BYTES) return 0;
    uint8_t *sealed = malloc(size);
    if (sealed == NULL) return 0;
    memcpy(sealed, data, size);
    put_u64(sealed + SIZE_OFFSET, size);
    put_u64(sealed + size - HASH_BYTES, hash64(sealed, size - HASH_BYTES));
    decode(sealed, size);
    free(sealed);
    return 0;
}
