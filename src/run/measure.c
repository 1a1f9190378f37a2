/* See measure.h. */
#include "run/measure.h"

#include <stdlib.h>
#include <string.h>

void measure_iteration(struct measure *m) {
    if (m->iterations++ == MEASURE_ITERATIONS) memset(m->count, 0, sizeof m->count);
}

void measure_add(struct measure *m, enum measure_kind kind, int64_t ns) {
    m->ns[kind][m->count[kind]++ % MEASURE_WINDOW] = ns;
}

static size_t kept(const struct measure *m, enum measure_kind kind) {
    return m->count[kind] < MEASURE_WINDOW ? (size_t)m->count[kind] : MEASURE_WINDOW;
}

static int by_value(const void *a, const void *b) {
    int64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

uint64_t measure_median(const struct measure *m, enum measure_kind kind) {
    int64_t sorted[MEASURE_WINDOW];
    size_t count = kept(m, kind);
    if (count == 0) return 0;
    memcpy(sorted, m->ns[kind], count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_value);
    return (uint64_t)sorted[(count - 1) / 2];
}

uint64_t measure_least(const struct measure *m, enum measure_kind kind) {
    size_t count = kept(m, kind);
    int64_t least = count > 0 ? m->ns[kind][0] : 0;
    for (size_t i = 1; i < count; i++)
        if (m->ns[kind][i] < least) least = m->ns[kind][i];
    return (uint64_t)least;
}

void measure_times(const struct measure *m, struct measure_report *out) {
    out->iterations = m->iterations;
    for (int k = 0; k < MEASURE_KIND_COUNT; k++) {
        enum measure_kind kind = (enum measure_kind)k;
        bool least = kind == MEASURE_REDUCE || kind == MEASURE_SEND_FORWARD || kind == MEASURE_SEND_BACKWARD;
        out->ns[k] = least ? measure_least(m, kind) : measure_median(m, kind);
    }
}

void measure_encode(const struct measure_report *r, struct bytes *out) {
    bytes_put_u64(out, r->iterations);
    for (int k = 0; k < MEASURE_KIND_COUNT; k++) bytes_put_u64(out, r->ns[k]);
    bytes_put_u64(out, r->state_bytes);
    bytes_put_u64(out, r->activation_bytes);
    bytes_put_u64(out, r->input_bytes);
    bytes_put_u64(out, r->peak_microbatches);
}

pawl_code measure_decode(const void *data, size_t size, struct measure_report *out, struct pawl_error *e) {
    struct reader r = reader_of(data, size);
    out->iterations = reader_u64(&r);
    for (int k = 0; k < MEASURE_KIND_COUNT; k++) out->ns[k] = reader_u64(&r);
    out->state_bytes = reader_u64(&r);
    out->activation_bytes = reader_u64(&r);
    out->input_bytes = reader_u64(&r);
    out->peak_microbatches = reader_u64(&r);
    if (reader_done(&r)) return PAWL_OK;
    return error_set(e, PAWL_FORMAT, 0, "measurements of %zu bytes", size);
}
