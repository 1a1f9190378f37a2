/* The last values of a measurement, and what is typical of them whatever a few of them say.
 *
 * Median and median absolute deviation: up to half of the values may be wild. Pure; no memory of its own.
 * Tested in tests/unit/tune_units_test.c. */
#ifndef TUNE_WINDOW_H
#define TUNE_WINDOW_H

#include <stdint.h>

#define WINDOW_MAX 65u

struct window { /* `size` set by window_init, the rest is the window's own */
    uint32_t size, count, next;
    double values[WINDOW_MAX];
};

void window_init(struct window *w, uint32_t size); /* 1 to WINDOW_MAX */
void window_add(struct window *w, double value);
double window_median(const struct window *w); /* 0 when empty */
/* Mean without the tenth of the values at each end, at least one of three and more: what many small and a few
 * large ones come to, without the wildest. 0 when empty. */
double window_trimmed_mean(const struct window *w);
/* Standard error of the median, for values spread like a normal distribution about it; 0 below two values. */
#define WINDOW_MEDIAN_ERROR (1.4826 * 1.2533) /* times the median deviation, over the root of the count */
double window_error(const struct window *w);

#endif
