/* Monotonic time and the calendar; the only place that asks the system for either, or waits by it. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

int64_t clock_now_ns(void);         /* CLOCK_MONOTONIC */
void clock_sleep_until(int64_t ns); /* by CLOCK_MONOTONIC; signals do not shorten it */
void clock_sleep_exactly(void);     /* this thread's sleeps end within microseconds of their time, not 50 */
void clock_utc(char *out, size_t size); /* "2026-01-31T12:00:00.123Z" */

#endif
