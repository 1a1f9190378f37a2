/* Recorded failures: how many machines were there, and when some went.
 *
 * base/trace.h reads the lines: counts over time, and additions and removals of named nodes, of which only
 * how many are there matters here. Out of order, or a removal where nobody is, is FORMAT with the line. Text
 * in, arrays out: the caller reads the file. Tested in tests/unit/tune_trace_test.c. */
#ifndef TUNE_TRACE_H
#define TUNE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pawl/error.h>

struct trace_sample {
    double time_s; /* since the first sample */
    uint32_t count;
};

struct trace {
    struct trace_sample *samples; /* times ascending, equal ones possible */
    uint32_t count;
    uint32_t recorded;    /* of them, before the fall to 0 with which a recording ends */
    uint32_t per_machine; /* of what is counted: 4 GPUs (as in the recording at hand), 1 node */
};

pawl_code trace_parse(const char *text, size_t size, struct trace *out, struct pawl_error *e);
void trace_free(struct trace *t);
double trace_seconds(const struct trace *t);

/* Failures as PCcheck's script counts them: at each sample the whole number of machines that came or
 * went, the start from 0 included. */
uint32_t trace_changes(const struct trace *t);

/* Instants at which something went, without the start and without the end of the recording (where the count
 * falls to 0 and stays): each is one failure, however many went together. malloc'ed, ascending; *end_s is
 * where the recording ends. */
pawl_code trace_drops(const struct trace *t, double **times_s, uint32_t *count, double *end_s,
                      struct pawl_error *e);

#endif
