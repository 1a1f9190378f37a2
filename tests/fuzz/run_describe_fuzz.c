/* Any bytes as a description: refused, or such that what is printed of it prints the same again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "run/describe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct description d, again;
    struct bytes first = {0}, second = {0};
    struct pawl_error e;
    if (description_parse((const char *)data, size, "fuzz", &d, &e) != PAWL_OK) return 0;
    description_print(&d, &first);
    if (first.failed) abort();
    if (description_parse((const char *)first.data, first.size, "again", &again, &e) != PAWL_OK) abort();
    if (description_compare(&again, &d, &e) != PAWL_OK) abort();
    description_print(&again, &second);
    if (second.failed || first.size != second.size || memcmp(first.data, second.data, first.size) != 0)
        abort();
    description_close(&d);
    description_close(&again);
    bytes_close(&first);
    bytes_close(&second);
    return 0;
}
