/* Any bytes as a slot's header: no crash, and what is accepted is consistent. The first 8 bytes are the
 * file's size. */
#include <stdlib.h>
#include <string.h>

#include "ckpt/slot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct slot_info *s) {
    uint64_t at = 0;
    for (uint64_t i = 0; i < s->chunk_count; i++) {
        if (s->chunks[i].offset != at) abort();
        at += s->chunks[i].bytes;
    }
    if (at != s->header.data_bytes) abort();
    for (uint32_t i = 0; i < s->header.tensor_count; i++) {
        const struct st_tensor *t = &s->header.tensors[i];
        const struct slot_slice *slice = &s->slices[i];
        for (uint32_t d = 0; d < t->rank && slice->name != NULL; d++)
            if (slice->begin[d] > slice->shape[d] || t->shape[d] > slice->shape[d] - slice->begin[d]) abort();
        if (t->begin + t->bytes > at) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t file_bytes = 0;
    struct slot_info info;
    if (size < 8) return 0;
    memcpy(&file_bytes, data, 8);
    if (slot_parse(data + 8, size - 8, file_bytes, &info, NULL) != PAWL_OK) return 0;
    check(&info);
    slot_info_close(&info);
    return 0;
}
