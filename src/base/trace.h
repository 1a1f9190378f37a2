/* Recorded failures, line by line: text in, checked records out.
 *
 * Three formats, told apart by their first line (bench/traces/README.md):
 *
 *   milliseconds,add,NODE or milliseconds,remove,NODE
 *   index,seconds,count                  below the header `index,Time,GPUs` or `,Time,GPUs`
 *   YYYY-MM-DD, HH:MM:SS, count
 *
 * Only the form of a line is judged here: whoever reads the records says what going back in time or removing
 * who is not there means to him (tune/trace.h, fleet/fleet.h). Nothing is copied: nodes point into the text.
 * Lines may end with CR LF; empty ones count but say nothing; a byte order mark is skipped. Tested in
 * tests/unit/base_trace_test.c and tests/fuzz/base_trace_fuzz.c. */
#ifndef BASE_TRACE_H
#define BASE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pawl/error.h>

enum trace_format { TRACE_NODES, TRACE_COUNTS, TRACE_DATES };
enum trace_kind { TRACE_ADD, TRACE_REMOVE, TRACE_COUNT };

struct trace_line {
    double time_s; /* since the origin of the recording's own clock */
    enum trace_kind kind;
    uint32_t there;   /* after it, if nobody was added or removed twice; TRACE_COUNT: the count */
    const char *node; /* TRACE_ADD, TRACE_REMOVE: in the text, not terminated */
    uint32_t node_size;
    uint32_t number; /* of the line, from 1 */
};
struct trace_lines {
    enum trace_format format;
    struct trace_line *line;
    uint32_t count;
    bool cut;             /* the last line has no end */
    uint32_t per_machine; /* of what is counted: 4 GPUs (as in the recording at hand), 1 node */
};

/* FORMAT names the line and what was wanted. */
pawl_code trace_lines_read(const char *text, size_t size, struct trace_lines *out, struct pawl_error *e);
void trace_lines_close(struct trace_lines *t); /* accepts what is empty */

/* Lines before the fall to 0 with which a recording ends: that is its end, not a failure. For lines whose
 * times ascend. */
uint32_t trace_lines_recorded(const struct trace_lines *t);

#endif
