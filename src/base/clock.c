/* Implementation of base/clock.h. */
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>

int64_t clock_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void clock_sleep_until(int64_t ns) {
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

void clock_sleep_exactly(void) { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

void clock_utc(char *out, size_t size) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    struct tm tm;
    gmtime_r(&t.tv_sec, &tm);
    size_t used = strftime(out, size, "%Y-%m-%dT%H:%M:%S", &tm);
    if (used > 0) snprintf(out + used, size - used, ".%03ldZ", t.tv_nsec / 1000000);
}
