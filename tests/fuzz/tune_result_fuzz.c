/* Reading dir/tune.json: any text is an error or a result that can be written and read again. */
#include <stdlib.h>
#include <string.h>

#include "tune/tune.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct pawl_tune_result r, again;
    if (tune_parse((const char *)data, size, &r, NULL) != PAWL_OK) return 0;
    char *text = pawl_tune_json(&r);
    if (text == NULL || tune_parse(text, strlen(text), &again, NULL) != PAWL_OK) abort();
    if (again.point_count != r.point_count || again.choice.interval.every != r.choice.interval.every) abort();
    free(text);
    return 0;
}
