/* See loop.h. */
#include "kit/loop.h"

#include <cblas.h>
#include <string.h>

#include "base/mem.h"

#define LOOP_MATRIX     384
#define LOOP_MATRIX_ALL ((size_t)LOOP_MATRIX * LOOP_MATRIX)
#define GRADIENT_COUNT  ((size_t)1 << 14) /* 64 KiB: in the cache, so that the traffic is the state's */
#define CALIBRATIONS    9

void loop_open(struct loop *l, const struct state *state, bool in_place) {
    *l = (struct loop){.state = state, .in_place = in_place, .products = 1};
    openblas_set_num_threads(1);
    l->matrices = mem_alloc(3 * LOOP_MATRIX_ALL * sizeof *l->matrices);
    l->gradient = mem_alloc(GRADIENT_COUNT * sizeof *l->gradient);
    if (l->matrices == NULL || l->gradient == NULL) measure_stop("loop", "no memory");
    for (size_t i = 0; i < 3 * LOOP_MATRIX_ALL; i++) l->matrices[i] = (float)(i % 7) * 1e-3f;
    for (size_t i = 0; i < GRADIENT_COUNT; i++) l->gradient[i] = (float)(i % 5) * 1e-4f;
    /* Noise read as floats has denormal and infinite ones, which would be slow: start from plain numbers. */
    for (uint32_t v = 0; v < state->version_count; v++) {
        float *p = state->versions[v];
        for (size_t i = 0; i < state->bytes / sizeof *p; i++) p[i] = (float)(i % 1021) * 1e-2f;
    }
}

static void compute(struct loop *l) {
    float *a = l->matrices, *b = a + LOOP_MATRIX_ALL, *c = b + LOOP_MATRIX_ALL;
    for (uint32_t i = 0; i < l->products; i++)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, LOOP_MATRIX, LOOP_MATRIX, LOOP_MATRIX, 1.0f, a,
                    LOOP_MATRIX, b, LOOP_MATRIX, 0.0f, c, LOOP_MATRIX);
}

/* One pass over the state: as much memory traffic per byte as an optimizer that reads and writes what it
 * keeps. */
static void update(struct loop *l, uint32_t into) {
    const float *from = l->state->versions[l->current];
    float *to = l->state->versions[into];
    size_t count = l->state->bytes / sizeof *to;
    for (size_t at = 0; at < count; at += GRADIENT_COUNT) {
        size_t some = count - at < GRADIENT_COUNT ? count - at : GRADIENT_COUNT;
        for (size_t i = 0; i < some; i++) to[at + i] = from[at + i] * 0.9999f + l->gradient[i];
    }
    l->current = into;
}

static double best_of_updates(struct loop *l) {
    double least = 1e9;
    for (int i = 0; i < CALIBRATIONS; i++) {
        double began = measure_seconds();
        update(l, l->in_place ? l->current : (l->current + 1) % l->state->version_count);
        double took = measure_seconds() - began;
        if (took < least) least = took;
    }
    return least;
}

void loop_calibrate(struct loop *l, double seconds) {
    double updating = best_of_updates(l), least = 1e9;
    l->products = 8;
    for (int i = 0; i < CALIBRATIONS; i++) {
        double began = measure_seconds();
        compute(l);
        double took = (measure_seconds() - began) / l->products;
        if (took < least) least = took;
    }
    double products = (seconds - updating) / least;
    l->products = products < 1 ? 1 : (uint32_t)products;
}

/* One iteration; what the last save's caller waited before its update is added to *blocked. */
static void iterate(struct loop *l, struct way *way, double *blocked) {
    compute(l);
    double began = measure_seconds();
    if (l->in_place) way_fence(way);
    uint32_t into = l->in_place ? l->current : way_free_version(way, l->current);
    *blocked += measure_seconds() - began;
    update(l, into);
}

static void save(struct loop *l, struct way *way, double *blocked) {
    double began = measure_seconds();
    way_save(way, l->current);
    *blocked += measure_seconds() - began;
}

void loop_run(struct loop *l, struct way *way, uint32_t warm, uint32_t iterations, uint32_t interval,
              struct loop_segment *out) {
    double blocked = 0, start = 0;
    *out = (struct loop_segment){.iterations = iterations};
    for (uint32_t i = 0; i < warm + iterations; i++) {
        bool counts = i >= warm, inside = way_is_busy(way);
        double began = measure_seconds();
        if (i == warm) start = began;
        iterate(l, way, &blocked);
        bool is_due = interval > 0 && (i + 1) % interval == 0;
        if (is_due) {
            if (counts && out->saves > 0) samples_add(&out->blocked_s, blocked);
            blocked = 0;
            save(l, way, &blocked);
            out->saves += counts;
        }
        if (!counts) continue;
        samples_add(&out->step_s, measure_seconds() - began);
        samples_add(&out->inside, inside || is_due);
    }
    out->seconds = measure_seconds() - start;
    if (out->saves > 0) samples_add(&out->blocked_s, blocked);
}

void loop_segment_close(struct loop_segment *s) {
    samples_close(&s->step_s);
    samples_close(&s->inside);
    samples_close(&s->blocked_s);
}

void loop_close(struct loop *l) {
    mem_free(l->matrices, 3 * LOOP_MATRIX_ALL * sizeof *l->matrices);
    mem_free(l->gradient, GRADIENT_COUNT * sizeof *l->gradient);
}
