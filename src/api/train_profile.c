/* A stage's time is the median of its workers'; of sums and sends it is the least, which is what is left when
 * nobody had to wait. A worker whose computing takes TRAIN_SLOW times its stage's or more is named as slow:
 * less is the noise of machines that are shared. Memory is that of one micro-batch; the device's is not
 * known, so that plans from such a profile limit it only when asked. Tested in tests/unit/api_profile_test.c
 * and tests/e2e/profile_test.py. */
#include "api/train_profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define TRAIN_SLOW 1.25
/* Times below are not told from 0 by the clock; a profile's must be above. */
#define NS_MIN 1e3

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Over the live workers of a stage: median, or the least. 0: nobody measured any. */
static double stage_ms(const struct launch_measured *m, uint32_t stage, enum measure_kind kind, bool least,
                       double *room) {
    uint32_t count = 0;
    for (uint32_t p = 0; p < m->pipelines; p++) {
        uint64_t ns = m->reports[p * m->stages + stage].ns[kind];
        if (ns > 0) room[count++] = (double)ns;
    }
    if (count == 0) return 0;
    qsort(room, count, sizeof *room, by_value);
    return (least ? room[0] : room[(count - 1) / 2]) / 1e6; /* reads as written by hand, unlike times 1e-6 */
}

static uint32_t layers_of(const struct launch_measured *m, uint32_t stage) {
    return m->layers / m->stages + (stage < m->layers % m->stages);
}

static void fill_stage(const struct launch_measured *m, uint32_t stage, struct pawl_stage_cost *s,
                       double *room) {
    const double least = NS_MIN * 1e-6;
    s->forward = fmax(least, stage_ms(m, stage, MEASURE_FORWARD, false, room));
    s->input_grad = fmax(least, stage_ms(m, stage, MEASURE_INPUT_GRAD, false, room));
    s->weight_grad = fmax(least, stage_ms(m, stage, MEASURE_WEIGHT_GRAD, false, room));
    s->reduce = stage_ms(m, stage, MEASURE_REDUCE, true, room);
    s->step = stage_ms(m, stage, MEASURE_STEP, false, room);
    s->send_forward = stage_ms(m, stage, MEASURE_SEND_FORWARD, true, room);
    s->send_backward = stage_ms(m, stage, MEASURE_SEND_BACKWARD, true, room);
    s->layers = layers_of(m, stage);
    for (uint32_t p = 0; p < m->pipelines; p++) {
        const struct measure_report *r = &m->reports[p * m->stages + stage];
        if (r->state_bytes > s->state_bytes) s->state_bytes = r->state_bytes;
        if (r->activation_bytes > s->activation_bytes) s->activation_bytes = r->activation_bytes;
        if (r->input_bytes > s->input_bytes) s->input_bytes = r->input_bytes;
    }
}

/* How much longer a worker computes than its stage; 0: it was lost. */
static double slowness(const struct launch_measured *m, const struct pawl_stage_cost *s, uint32_t rank) {
    const uint64_t *ns = m->reports[rank].ns;
    double own = (double)(ns[MEASURE_FORWARD] + ns[MEASURE_INPUT_GRAD] + ns[MEASURE_WEIGHT_GRAD]) * 1e-6;
    return own / (s->forward + s->input_grad + s->weight_grad);
}

static pawl_code name_slow(const struct launch_measured *m, struct pawl_profile *p, struct pawl_error *e) {
    p->worker = calloc((size_t)m->pipelines * m->stages, sizeof *p->worker);
    if (p->worker == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for the profile's workers");
    for (uint32_t r = 0; r < m->pipelines * m->stages; r++) {
        double slow = slowness(m, &p->stage[r % m->stages], r);
        if (slow < TRAIN_SLOW) continue;
        p->worker[p->worker_count++] =
            (struct pawl_worker_cost){.pipeline = r / m->stages, .stage = r % m->stages, .slow = slow};
    }
    return PAWL_OK;
}

static pawl_code set_names(struct pawl_profile *p, const char *name, struct pawl_error *e) {
    char *copy = strdup(name), *unit = strdup("ms");
    if (copy == NULL || unit == NULL) {
        free(copy);
        free(unit);
        return error_set(e, PAWL_MEMORY, 0, "no memory for the profile's name");
    }
    free(p->name);
    free(p->unit);
    p->name = copy;
    p->unit = unit;
    p->unit_s = 1e-3;
    return PAWL_OK;
}

pawl_code train_profile_make(const struct launch_measured *m, struct pawl_profile **out,
                             struct pawl_error *e) {
    if (m->reports == NULL)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "nothing was measured: the run was at its last step, or was ended "
                         "before it");
    struct pawl_profile *p = NULL;
    double *room = malloc(m->pipelines * sizeof *room);
    if (room == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a profile");
    pawl_code code = pawl_profile_uniform(m->stages, 1, 1, 1, 0, &p, e);
    for (uint32_t s = 0; code == PAWL_OK && s < m->stages; s++) fill_stage(m, s, &p->stage[s], room);
    free(room);
    if (code == PAWL_OK) code = name_slow(m, p, e);
    if (code == PAWL_OK) code = set_names(p, m->name, e);
    if (code == PAWL_OK)
        *out = p;
    else
        pawl_profile_free(p);
    return code;
}

pawl_code train_profile_write(const struct launch_measured *measured, const char *path,
                              struct pawl_error *e) {
    struct pawl_profile *p = NULL;
    pawl_code code = train_profile_make(measured, &p, e);
    if (code == PAWL_OK) code = pawl_profile_write(p, path, e);
    pawl_profile_free(p);
    if (code != PAWL_OK && e != NULL) error_wrap(e, "--profile-out");
    return code;
}
