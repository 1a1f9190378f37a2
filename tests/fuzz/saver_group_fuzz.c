/* A rank's file as it may come from a disk that lies: never read past, and what is accepted encodes back to
 * itself. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "saver/group.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct group_file f;
    uint8_t bytes[GROUP_FILE_BYTES] = {0}, again[GROUP_FILE_BYTES];
    (void)group_decode(data, size, &f, NULL);
    /* Past the checksum, which chance does not meet. */
    memcpy(bytes, data, size < sizeof bytes ? size : sizeof bytes);
    hash128(bytes, sizeof bytes - GROUP_SUM_BYTES, bytes + sizeof bytes - GROUP_SUM_BYTES);
    if (group_decode(bytes, sizeof bytes, &f, NULL) != PAWL_OK) return 0;
    struct group_file *one[] = {&f};
    for (uint32_t i = 0; i < f.entry_count; i++) (void)group_judge(one, 1, f.entries[i].step);
    group_encode(&f, again);
    if (memcmp(bytes, again, sizeof bytes) != 0) abort();
    return 0;
}
