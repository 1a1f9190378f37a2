/* Monotonic time and the calendar; the only place that asks the system for either. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

int64_t clock_now_ns(void);             /* CLOCK_MONOTONIC */
void clock_utc(char *out, size_t size); /* "2026-01-31T12:00:00.123Z" */

#endif
