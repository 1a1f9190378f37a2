/* What a worker measures of itself while it trains, for a profile (docs/formats/profile.md): how long its
 * instructions take, its sums, its steps, its sends, and what it stores.
 *
 * A measurement is the time of one call on the monotonic clock, tens of nanoseconds of overhead. Of every
 * kind the newest MEASURE_WINDOW are kept; the first iterations, in which memory is touched for the first
 * time and connections are made, are forgotten. Tested in tests/unit/run_measure_test.c,
 * tests/e2e/profile_test.py. */
#ifndef RUN_MEASURE_H
#define RUN_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"

enum measure_kind {
    MEASURE_FORWARD,
    MEASURE_INPUT_GRAD,
    MEASURE_WEIGHT_GRAD,
    MEASURE_REDUCE, /* waiting for slower replicas included: see measure_least */
    MEASURE_STEP,
    MEASURE_SEND_FORWARD, /* from the call until the network says that it has left */
    MEASURE_SEND_BACKWARD,
    MEASURE_KIND_COUNT
};

#define MEASURE_WINDOW     512u
#define MEASURE_ITERATIONS 2u /* that are forgotten */

struct measure {
    uint64_t iterations; /* begun */
    uint64_t count[MEASURE_KIND_COUNT];
    int64_t ns[MEASURE_KIND_COUNT][MEASURE_WINDOW];
};

/* A worker's word of one chunk that it holds; times in ns, 0: nothing of the kind happened. */
struct measure_report {
    uint64_t iterations;
    uint64_t ns[MEASURE_KIND_COUNT]; /* median; of sums and sends the least */
    uint64_t state_bytes;            /* weights, moments and gradients */
    uint64_t activation_bytes;       /* of one micro-batch in flight */
    uint64_t input_bytes;            /* of them, what came from the stage before */
    uint64_t peak_microbatches;      /* most that the worker stored at once, of all its chunks together */
};

void measure_iteration(struct measure *m); /* an iteration begins */
void measure_add(struct measure *m, enum measure_kind kind, int64_t ns);
/* Median of what is kept (the lower one of two), and the least; 0: nothing is. */
uint64_t measure_median(const struct measure *m, enum measure_kind kind);
uint64_t measure_least(const struct measure *m, enum measure_kind kind);
/* The times of a report: sums and sends by the least, since whoever computes or waits meanwhile sees their
 * end late; all others by the median. */
void measure_times(const struct measure *m, struct measure_report *out);

/* Bytes of a report, as MESSAGE_MEASURED carries them (docs/formats/control.md). Errors: FORMAT. */
void measure_encode(const struct measure_report *r, struct bytes *out);
pawl_code measure_decode(const void *data, size_t size, struct measure_report *out, struct pawl_error *e);

#endif
