/* Shared by the tests of tune: files of the source tree, comparisons that print both sides, seeded noise. */
#ifndef KIT_TUNE_KIT_H
#define KIT_TUNE_KIT_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"

/* The whole file, terminated; aborts the test program without it. */
static inline char *kit_read(const char *path, size_t *size) {
    FILE *in = fopen(path, "rb");
    char *text = malloc(1 << 20);
    if (in == NULL || text == NULL) {
        fprintf(stderr, "%s: cannot be read\n", path);
        abort();
    }
    *size = fread(text, 1, (1 << 20) - 1, in);
    text[*size] = 0;
    fclose(in);
    return text;
}

#define assert_near(got, wanted, relative) kit_near(got, wanted, relative, #got, __FILE__, __LINE__)
static inline void kit_near(double got, double wanted, double relative, const char *what, const char *file,
                            int line) {
    if (fabs(got - wanted) <= relative * fabs(wanted)) return;
    print_error("%s is %.17g, wanted %.17g within %g\n", what, got, wanted, relative);
    _fail(file, line);
}

/* About normal, deviation 1: the sum of twelve. */
static inline double kit_normal(struct rng_stream *s) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += (double)rng_below(s, 1u << 30) / (1u << 30);
    return sum;
}

#endif
