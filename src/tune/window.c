/* See window.h. Windows are small: they are sorted when asked, which happens a few times per save. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/window.h"

void window_init(struct window *w, uint32_t size) {
    assert(size >= 1 && size <= WINDOW_MAX);
    *w = (struct window){.size = size};
}

void window_add(struct window *w, double value) {
    w->values[w->next] = value;
    w->next = (w->next + 1) % w->size;
    if (w->count < w->size) w->count++;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts `values`. */
static double median_of(double *values, uint32_t count) {
    if (count == 0) return 0;
    qsort(values, count, sizeof *values, by_value);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

double window_median(const struct window *w) {
    double values[WINDOW_MAX];
    memcpy(values, w->values, w->count * sizeof *values);
    return median_of(values, w->count);
}

double window_trimmed_mean(const struct window *w) {
    double values[WINDOW_MAX], sum = 0;
    memcpy(values, w->values, w->count * sizeof *values);
    qsort(values, w->count, sizeof *values, by_value);
    uint32_t cut = w->count < 3 ? 0 : (w->count + 9) / 10;
    for (uint32_t i = cut; i < w->count - cut; i++) sum += values[i];
    return w->count > 0 ? sum / (w->count - 2 * cut) : 0;
}

double window_error(const struct window *w) {
    double values[WINDOW_MAX], middle = window_median(w);
    if (w->count < 2) return 0;
    for (uint32_t i = 0; i < w->count; i++) values[i] = fabs(w->values[i] - middle);
    /* 1.4826 MAD estimates the deviation; the median's own is sqrt(pi/2) of it over the root of the count. */
    return WINDOW_MEDIAN_ERROR * median_of(values, w->count) / sqrt(w->count);
}
