/* Arbitrary bytes as a binary plan. The checksum would stop almost every input, so it is made to fit; what
 * decodes must encode to the same bytes (of version 1: to bytes that decode to the same plan), and the
 * checker and the printer must stand it; any rest of a valid plan is one. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ir/ir.h"

#define VERSION_OFFSET 8u
#define SIZE_OFFSET    24u
#define HASH_BYTES     8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_u64(uint8_t *at, uint64_t v) {
    for (int i = 0; i < 8; i++) at[i] = (uint8_t)(v >> 8 * i);
}

/* With sizes that overflow and with none. */
static void check(const struct ir_plan *plan) {
    struct pawl_error e;
    uint64_t *size = malloc(plan->chunks * sizeof *size);
    uint64_t *peak = malloc((size_t)plan->pipelines * plan->stages * sizeof *peak);
    if (size == NULL || peak == NULL) abort();
    for (uint32_t k = 0; k < plan->chunks; k++) size[k] = UINT64_MAX / (k + 2);
    struct ir_memory memory = {.full = size, .after_input = size};
    pawl_code plain = ir_check(plan, NULL, peak, &e);
    pawl_code sized = ir_check(plan, &memory, peak, &e);
    if (plain != PAWL_OK && sized == PAWL_OK) abort();
    free(size);
    free(peak);
}

/* `bits` say what is done. */
static void check_rest(const struct ir_plan *plan, const uint8_t *bits, size_t size) {
    struct pawl_error e;
    if (ir_check(plan, NULL, NULL, &e) != PAWL_OK) return;
    size_t room = (size_t)plan->chunks * ((plan->total + 7) / 8);
    uint8_t *done = malloc(room);
    uint32_t *first_missing = malloc(plan->total * sizeof *first_missing);
    if (done == NULL || first_missing == NULL) abort();
    for (size_t i = 0; i < room; i++) done[i] = bits[i % size];
    ir_first_missing(plan, done, first_missing);
    if (ir_check_rest(plan, NULL, done, NULL, &e) != PAWL_OK) abort();
    free(done);
    free(first_missing);
}

static void decode(const uint8_t *data, size_t size) {
    struct ir_plan *plan = NULL, *printed = NULL;
    struct pawl_error e;
    struct bytes again = {0}, text = {0}, back = {0};
    if (ir_decode(data, size, &plan, &e) != PAWL_OK) return;
    ir_encode(plan, &again);
    if (again.failed) abort();
    bool newest = data[VERSION_OFFSET] > 1;
    if (newest && (again.size != size || memcmp(again.data, data, size) != 0)) abort();
    check(plan);
    check_rest(plan, data, size);
    ir_print(plan, &text);
    if (ir_parse((const char *)text.data, text.size, &printed, &e) != PAWL_OK) abort();
    ir_encode(printed, &back);
    if (back.size != again.size || memcmp(back.data, again.data, back.size) != 0) abort();
    ir_plan_free(printed);
    ir_plan_free(plan);
    bytes_close(&again);
    bytes_close(&text);
    bytes_close(&back);
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
