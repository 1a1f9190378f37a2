/* What every benchmark of saving measures beside time: processor seconds, resident memory and its peak.
 * Samples are printed as they are, as JSON; medians and ratios are taken by the Python beside it
 * (bench/kit/report.py), so that one place decides what a median is. */
#ifndef KIT_MEASURE_H
#define KIT_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"

/* Ends the program: PROGRAM: what: why. A benchmark that cannot measure has nothing to go on with. */
_Noreturn void measure_stop(const char *what, const char *why);

double measure_seconds(void); /* CLOCK_MONOTONIC */
/* Of this process with all its threads, user and system. What the kernel does for it in threads of its own
 * (write-back of the page cache) is in nobody's figure: it flatters those who write through the page cache.
 */
double measure_cpu_s(void);

uint64_t measure_rss_bytes(void);
/* Peak since the last reset; where the kernel does not let it be reset, since the start. */
uint64_t measure_rss_peak_bytes(void);
void measure_rss_peak_reset(void);

/* Bytes that no file system, disk or memory manager can shrink. */
void measure_fill(void *data, size_t bytes, uint64_t seed);

struct samples {
    double *values;
    uint32_t count, room;
};
void samples_add(struct samples *s, double value);
void samples_print(struct json *j, const char *key, const struct samples *s);
void samples_close(struct samples *s);

/* Prints what was written to `text` as one line and flushes it. */
void measure_print(struct bytes *text);

/* The value after `--name` among the arguments, else null; ends the program when it is the last word. */
const char *measure_option(int argc, char **argv, const char *name);
uint64_t measure_number(int argc, char **argv, const char *name, uint64_t otherwise);

#endif
