/* Reading recorded failures: any text is an error or samples in order, whose drops lie within them. */
#include <stdlib.h>

#include "tune/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct trace t = {0};
    double *times = NULL, end_s = 0;
    uint32_t count = 0;
    if (trace_parse((const char *)data, size, &t, NULL) != PAWL_OK) return 0;
    for (uint32_t i = 1; i < t.count; i++)
        if (t.samples[i].time_s < t.samples[i - 1].time_s) abort();
    if (trace_drops(&t, &times, &count, &end_s, NULL) != PAWL_OK || end_s > trace_seconds(&t)) abort();
    for (uint32_t i = 0; i < count; i++)
        if (times[i] > end_s || (i > 0 && times[i] <= times[i - 1])) abort();
    (void)trace_changes(&t);
    free(times);
    trace_free(&t);
    return 0;
}
