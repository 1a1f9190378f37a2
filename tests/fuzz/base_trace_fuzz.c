/* Lines of recorded failures: any text is an error or lines whose numbers ascend and whose nodes lie in it.
 */
#include <math.h>
#include <stdlib.h>

#include "base/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct trace_lines t = {0};
    const char *text = size > 0 ? (const char *)data : "";
    if (trace_lines_read(text, size, &t, NULL) != PAWL_OK) return 0;
    for (uint32_t i = 0; i < t.count; i++) {
        const struct trace_line *l = &t.line[i];
        if (!isfinite(l->time_s) || l->time_s < 0 || (i > 0 && l->number <= l[-1].number)) abort();
        if (l->kind == TRACE_COUNT) continue;
        if (l->node_size == 0 || l->node < text || l->node + l->node_size > text + size) abort();
    }
    if (trace_lines_recorded(&t) > t.count) abort();
    trace_lines_close(&t);
    return 0;
}
