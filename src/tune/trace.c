/* See trace.h. */
#include <stdlib.h>

#include "base/error.h"
#include "base/trace.h"
#include "tune/trace.h"

static pawl_code take_lines(const struct trace_lines *lines, struct trace *t, struct pawl_error *e) {
    if (lines->count < 2)
        return error_set(e, PAWL_FORMAT, 0, "trace: %u samples, wanted 2 or more", lines->count);
    t->samples = malloc(lines->count * sizeof *t->samples);
    if (t->samples == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a trace");
    for (uint32_t i = 0; i < lines->count; i++) {
        const struct trace_line *l = &lines->line[i];
        if (i > 0 && l->time_s < l[-1].time_s)
            return error_set(e, PAWL_FORMAT, 0, "trace, line %u: goes back in time", l->number);
        if (l->kind == TRACE_REMOVE && (i == 0 || l[-1].there == 0))
            return error_set(e, PAWL_FORMAT, 0, "trace, line %u: nothing is there to be removed", l->number);
        t->samples[t->count++] = (struct trace_sample){l->time_s - lines->line[0].time_s, l->there};
    }
    t->recorded = trace_lines_recorded(lines);
    t->per_machine = lines->per_machine;
    return PAWL_OK;
}

pawl_code trace_parse(const char *text, size_t size, struct trace *out, struct pawl_error *e) {
    struct trace_lines lines = {0};
    struct trace t = {0};
    pawl_code code = trace_lines_read(text, size, &lines, e);
    if (code == PAWL_OK) code = take_lines(&lines, &t, e);
    trace_lines_close(&lines);
    if (code == PAWL_OK)
        *out = t;
    else
        trace_free(&t);
    return code;
}

void trace_free(struct trace *t) {
    free(t->samples);
    *t = (struct trace){0};
}

double trace_seconds(const struct trace *t) { return t->samples[t->count - 1].time_s; }

uint32_t trace_changes(const struct trace *t) {
    uint32_t changes = 0, before = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t now = t->samples[i].count;
        changes += (now > before ? now - before : before - now) / t->per_machine;
        before = now;
    }
    return changes;
}

pawl_code trace_drops(const struct trace *t, double **times_s, uint32_t *count, double *end_s,
                      struct pawl_error *e) {
    uint32_t n = t->recorded, drops = 0;
    double *times = malloc(t->count * sizeof *times);
    if (times == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a trace");
    for (uint32_t i = 1; i < n; i++) {
        if (t->samples[i].count >= t->samples[i - 1].count) continue;
        if (drops == 0 || times[drops - 1] < t->samples[i].time_s) times[drops++] = t->samples[i].time_s;
    }
    *times_s = times;
    *count = drops;
    *end_s = t->samples[n - 1].time_s;
    return PAWL_OK;
}
