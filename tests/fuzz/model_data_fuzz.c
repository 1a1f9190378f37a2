/* Any bytes as a training text in any format: refused, or every sample read has tokens within the vocabulary.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CONTEXT 3

static void read_samples(const struct data *d, uint32_t vocabulary) {
    int32_t tokens[CONTEXT], targets[CONTEXT];
    for (uint64_t n = 0; n < 8; n++) {
        if (data_sample(d, n * 0x2000000000000001u, tokens, targets, NULL) != PAWL_OK) continue;
        for (int i = 0; i < CONTEXT; i++)
            if ((uint32_t)tokens[i] >= vocabulary || (uint32_t)targets[i] >= vocabulary) abort();
        if (tokens[1] != targets[0]) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        snprintf(path, sizeof path, "/dev/shm/pawl-fuzz-XXXXXX");
        if ((fd = mkstemp(path)) < 0) abort();
        unlink(path);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (size == 0) return 0;
    if (ftruncate(fd, 0) != 0 || pwrite(fd, data + 1, size - 1, 0) != (ssize_t)(size - 1)) abort();
    struct data *d;
    uint32_t vocabulary = data[0] | 1u;
    if (data_open(path, (enum data_format)(data[0] % (DATA_FORMAT_COUNT + 1)), vocabulary, CONTEXT, 1, &d,
                  NULL) != PAWL_OK)
        return 0;
    read_samples(d, vocabulary);
    data_close(d);
    return 0;
}
