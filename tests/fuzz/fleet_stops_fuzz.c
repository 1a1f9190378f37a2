/* A stops file: any text is an error or constants that are printed, read again, and the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/constants.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fleet_constants a = {0}, b = {0};
    char *text = NULL;
    size_t text_size = 0;
    if (fleet_constants_default(&a, NULL) != PAWL_OK || fleet_constants_default(&b, NULL) != PAWL_OK) abort();
    if (fleet_constants_parse(&a, (const char *)data, size, "f", NULL) == PAWL_OK) {
        FILE *out = open_memstream(&text, &text_size);
        if (out == NULL || fleet_constants_print(&a, out, NULL) != PAWL_OK) abort();
        fclose(out);
        if (fleet_constants_parse(&b, text, text_size, "f", NULL) != PAWL_OK) abort();
        for (uint32_t i = 0; i < a.count; i++)
            if (a.constant[i].value != b.constant[i].value) abort();
        free(text);
    }
    fleet_constants_close(&a);
    fleet_constants_close(&b);
    return 0;
}
