/* Arbitrary bytes as a frame of the link (first byte even) and of the admin socket (odd). What decodes must
 * encode to the same bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "run/admin.h"
#include "run/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(struct bytes *again, const uint8_t *data, size_t size) {
    if (again->failed || again->size != size || memcmp(again->data, data, size) != 0) abort();
    bytes_close(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct link_frame f;
    struct admin_frame a;
    struct bytes again = {0};
    if (size == 0) return 0;
    if (data[0] % 2 == 0 && link_decode(data + 1, size - 1, &f, NULL) == PAWL_OK) {
        link_encode(&f, &again);
        link_frame_close(&f);
        same(&again, data + 1, size - 1);
    } else if (data[0] % 2 == 1 && admin_decode(data + 1, size - 1, &a, NULL) == PAWL_OK) {
        admin_encode(&a, &again);
        same(&again, data + 1, size - 1);
    }
    return 0;
}
