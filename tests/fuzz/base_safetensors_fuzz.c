/* Any bytes as the head of a safetensors file: refused or read. What was read must write and read back
 * as the same table. */
#include <stdlib.h>
#include <string.h>

#include "base/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int held) {
    if (!held) abort();
}

static void compare(const struct st_header *a, const struct st_header *b) {
    require(a->tensor_count == b->tensor_count && a->metadata_count == b->metadata_count);
    require(a->data_bytes == b->data_bytes);
    for (uint32_t i = 0; i < a->tensor_count; i++) {
        const struct st_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        require(strcmp(x->name, y->name) == 0 && x->dtype == y->dtype && x->rank == y->rank);
        require(x->begin == y->begin && x->bytes == y->bytes);
        require(memcmp(x->shape, y->shape, x->rank * sizeof *x->shape) == 0);
    }
    for (uint32_t i = 0; i < 2 * a->metadata_count; i++) require(strcmp(a->metadata[i], b->metadata[i]) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 8) return 0;
    /* The first 8 bytes give the size of the data; the length of the text is made to fit, so that the
     * fuzzer spends its time on the text. */
    uint64_t data_bytes = 0;
    for (int i = 0; i < 8; i++) data_bytes |= (uint64_t)data[i] << (8 * i);
    struct bytes file = {0};
    bytes_put_u64(&file, size - 8);
    bytes_put(&file, data + 8, size - 8);
    struct st_header h, back;
    struct pawl_error e;
    if (data_bytes < UINT64_MAX / 2 &&
        st_header_parse(file.data, file.size, file.size + data_bytes, &h, &e) == PAWL_OK) {
        struct bytes out = {0};
        require(st_header_write(&h, 64, &out, &e) == PAWL_OK);
        require(st_header_parse(out.data, out.size, out.size + data_bytes, &back, &e) == PAWL_OK);
        compare(&h, &back);
        st_header_close(&back);
        st_header_close(&h);
        bytes_close(&out);
    }
    if (st_header_parse(data, size, size, &h, &e) == PAWL_OK) st_header_close(&h);
    bytes_close(&file);
    return 0;
}
