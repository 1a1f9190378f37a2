/* Any bytes as a commit record: no crash, and what is accepted encodes back to the same bytes. The checksum
 * is set right half of the time, so that what lies behind it is reached. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ckpt/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct record r;
    if (size == 0) return 0;
    uint8_t *copy = malloc(size);
    if (copy == NULL) return 0;
    memcpy(copy, data, size);
    if (copy[size - 1] % 2 == 0 && size >= 4096 && size % 4096 == 0)
        hash128(copy, size - RECORD_SUM_BYTES, copy + size - RECORD_SUM_BYTES);
    if (record_decode(copy, size, &r, NULL) == PAWL_OK) {
        struct bytes again = {0};
        record_encode(&r, &again);
        if (!again.failed && (again.size > size || memcmp(again.data, copy, again.size) != 0)) abort();
        bytes_close(&again);
    }
    free(copy);
    return 0;
}
