/* Which of the measured ways to save, within memory and storage, and why: a pure function.
 *
 * Storage: N + K (+ spare) slots of m bytes, so N <= S/m - K. Memory: N versions are held, or, when the state
 * is overwritten in place, what of N saves is not yet written: with the device shared evenly and one save
 * begun every Tw/N, the i-th newest of the N - 1 older ones has 1 - i/N of its bytes left, m (N - 1)/2
 * together, and m of the new one: m (N + 1)/2. A smaller staging pool is allowed; capturing then waits for
 * the device, which counts as a stall. Tested in tests/unit/tune_choose_test.c. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "tune/tune.h"

static uint32_t keep_of(const struct pawl_tune_need *n) { return n->keep > 0 ? n->keep : 1; }

static double need_overhead(const struct pawl_tune_need *n) {
    return n->overhead > 0 ? n->overhead : PAWL_TUNE_OVERHEAD;
}

uint64_t tune_storage_bytes(const struct pawl_tune_need *n, uint32_t in_flight) {
    uint64_t bytes, slots = (uint64_t)in_flight + keep_of(n) + n->spare_slots;
    return mem_mul(slots, n->bytes, &bytes) ? bytes : UINT64_MAX;
}

/* Memory without which training would wait. */
static uint64_t memory_wanted(const struct pawl_tune_need *n, uint32_t in_flight) {
    double copies = n->staged ? (in_flight + 1.0) / 2 : in_flight;
    double bytes = copies * (double)n->bytes;
    return bytes < 0x1p63 ? (uint64_t)bytes : UINT64_MAX;
}

static bool memory_suffices(const struct pawl_tune_need *n, uint32_t in_flight) {
    return n->memory_bytes == 0 || memory_wanted(n, in_flight) <= n->memory_bytes;
}

static bool storage_suffices(const struct pawl_tune_need *n, uint32_t in_flight) {
    return n->storage_bytes == 0 || tune_storage_bytes(n, in_flight) <= n->storage_bytes;
}

/* Staging one save alone may wait; more at once may not, they would only wait for each other. */
static bool fits(const struct pawl_tune_need *n, const struct pawl_tune_point *p) {
    if (!storage_suffices(n, p->in_flight)) return false;
    if (memory_suffices(n, p->in_flight)) return true;
    return n->staged && p->in_flight == 1 && n->memory_bytes >= p->chunk_bytes;
}

static double stall_of(const struct pawl_tune_need *n, const struct pawl_tune_point *p) {
    if (memory_suffices(n, p->in_flight)) return p->stall_s;
    double missing = (double)(memory_wanted(n, p->in_flight) - n->memory_bytes);
    return p->stall_s + missing * p->write_s / (p->in_flight * (double)n->bytes);
}

static double per_save_s(const struct pawl_tune_point *p) { return p->write_s / p->in_flight; }

/* Is `a` to be preferred where both take about the same time? */
static bool humbler(const struct pawl_tune_point *a, const struct pawl_tune_point *b) {
    if (a->in_flight != b->in_flight) return a->in_flight < b->in_flight;
    if (a->writers != b->writers) return a->writers < b->writers;
    return a->chunk_bytes > b->chunk_bytes;
}

static const struct pawl_tune_point *best_of(const struct pawl_tune_need *n,
                                             const struct pawl_tune_point *points, uint32_t count) {
    double least_s = INFINITY;
    const struct pawl_tune_point *best = NULL;
    for (uint32_t i = 0; i < count; i++)
        if (fits(n, &points[i])) least_s = fmin(least_s, per_save_s(&points[i]));
    for (uint32_t i = 0; i < count; i++) {
        const struct pawl_tune_point *p = &points[i];
        if (!fits(n, p) || per_save_s(p) > least_s * (1 + PAWL_TUNE_TIE)) continue;
        if (best == NULL || humbler(p, best)) best = p;
    }
    return best;
}

static double speedup_of(const struct pawl_tune_point *best, const struct pawl_tune_point *points,
                         uint32_t count) {
    double alone_s = INFINITY;
    for (uint32_t i = 0; i < count; i++)
        if (points[i].in_flight == 1) alone_s = fmin(alone_s, points[i].write_s);
    double speedup = isfinite(alone_s) ? alone_s / per_save_s(best) : 1;
    return fmax(1, fmin(speedup, best->in_flight));
}

/* ---- errors ---- */

static pawl_code check_point(const struct pawl_tune_point *p, uint32_t index, struct pawl_error *e) {
    const char *field = NULL;
    if (p->in_flight < 1) field = "in_flight";
    if (p->writers < 1) field = "writers";
    if (p->chunk_bytes < 1) field = "chunk_bytes";
    if (!isfinite(p->write_s) || p->write_s <= 0) field = "write_s";
    if (!isfinite(p->stall_s) || p->stall_s < 0) field = "stall_s";
    if (field == NULL) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0, "point %u: %s is not a measured value", index, field);
}

static pawl_code check(const struct pawl_tune_need *n, const struct pawl_tune_point *points, uint32_t count,
                       struct pawl_error *e) {
    struct pawl_tune_rates rates = {.iteration_s = n->iteration_s,
                                    .write_s = 1,
                                    .in_flight = 1,
                                    .overhead = n->overhead,
                                    .mtbf_s = n->mtbf_s,
                                    .load_s = n->load_s};
    if (n->bytes == 0) return error_set(e, PAWL_ARGUMENT, 0, "bytes is 0, wanted the size of a save");
    if (count == 0) return error_set(e, PAWL_ARGUMENT, 0, "no points: nothing was measured");
    pawl_code code = tune_rates_check(&rates, e);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) code = check_point(&points[i], i, e);
    return code;
}

/* No point fits: the first limit that even one save in flight breaks, or that no such was measured. */
pawl_code tune_need_check(const struct pawl_tune_need *n, struct pawl_error *e) {
    char need[PAWL_AMOUNT_TEXT], have[PAWL_AMOUNT_TEXT];
    if (!storage_suffices(n, 1))
        return error_set(e, PAWL_NO_SPACE, 0,
                         "storage: one save in flight and %u kept need %s (%" PRIu64 " bytes), there are %s "
                         "(%" PRIu64 " bytes)",
                         keep_of(n), pawl_bytes_text(tune_storage_bytes(n, 1), need),
                         tune_storage_bytes(n, 1), pawl_bytes_text(n->storage_bytes, have), n->storage_bytes);
    if (!memory_suffices(n, 1) && !n->staged)
        return error_set(e, PAWL_MEMORY, 0,
                         "memory: one save in flight holds a version of %s, the limit is %s; a state that is "
                         "staged needs less",
                         pawl_bytes_text(n->bytes, need), pawl_bytes_text(n->memory_bytes, have));
    return PAWL_OK;
}

static pawl_code none_fits(const struct pawl_tune_need *n, struct pawl_error *e) {
    char have[PAWL_AMOUNT_TEXT];
    pawl_code code = tune_need_check(n, e);
    if (code != PAWL_OK) return code;
    return error_set(
        e, PAWL_MEMORY, 0,
        "memory: %s is less than a chunk, or no point with few enough saves in flight was measured",
        pawl_bytes_text(n->memory_bytes, have));
}

/* ---- words ---- */

struct text {
    char *at;
    size_t left;
};

static void say(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int size = vsnprintf(t->at, t->left, format, args);
    va_end(args);
    size_t moved = size < 0 ? 0 : (size_t)size < t->left ? (size_t)size : t->left - 1;
    t->at += moved;
    t->left -= moved;
}

static void explain_point(struct text *t, const struct pawl_tune_need *n, const struct pawl_tune_choice *c) {
    char per_save[PAWL_AMOUNT_TEXT], write[PAWL_AMOUNT_TEXT], chunk[PAWL_AMOUNT_TEXT];
    const struct pawl_tune_point *p = &c->point;
    say(t, "%u in flight, %u writers, %s chunks: least Tw/N, %s (Tw %s)", p->in_flight, p->writers,
        pawl_bytes_text(p->chunk_bytes, chunk), pawl_seconds_text(per_save_s(p), per_save),
        pawl_seconds_text(p->write_s, write));
    if (!storage_suffices(n, p->in_flight + 1)) say(t, "; storage allows no more in flight");
    if (!memory_suffices(n, p->in_flight + 1)) say(t, "; memory allows no more in flight");
    say(t, ". ");
}

static struct pawl_tune_rates rates_of(const struct pawl_tune_need *n, const struct pawl_tune_point *p) {
    return (struct pawl_tune_rates){.iteration_s = n->iteration_s,
                                    .write_s = p->write_s,
                                    .in_flight = p->in_flight,
                                    .stall_s = stall_of(n, p),
                                    .overhead = n->overhead,
                                    .mtbf_s = n->mtbf_s,
                                    .load_s = n->load_s};
}

/* Says when fewer saves in flight would be as good for this job: what they need is then better spent. */
static void explain_fewer(struct text *t, const struct pawl_tune_need *n, const struct pawl_tune_choice *c,
                          const struct pawl_tune_point *points, uint32_t count) {
    uint32_t fewest = c->point.in_flight;
    for (uint32_t i = 0; i < count; i++) {
        struct pawl_tune_rates rates = rates_of(n, &points[i]);
        struct pawl_tune_interval interval;
        if (points[i].in_flight >= fewest || !fits(n, &points[i])) continue;
        if (pawl_tune_interval(&rates, &interval, NULL) != PAWL_OK) continue;
        if (interval.every <= c->interval.every) fewest = points[i].in_flight;
    }
    if (fewest < c->point.in_flight) say(t, " This interval could also be had with %u in flight.", fewest);
}

static void explain_interval(struct text *t, const struct pawl_tune_need *n,
                             const struct pawl_tune_choice *c) {
    char a[PAWL_AMOUNT_TEXT], b[PAWL_AMOUNT_TEXT];
    const struct pawl_tune_interval *i = &c->interval;
    double percent = 100 * need_overhead(n);
    say(t, "Every %" PRIu64 " iteration%s: ", i->every, i->every == 1 ? "" : "s");
    switch (i->bound) {
    case PAWL_BOUND_NONE:
        say(t, "the device takes a save every %.3g iterations and one stalls %.2g %% of an iteration",
            i->bandwidth_min, 100 * c->stall_s / n->iteration_s);
        break;
    case PAWL_BOUND_BANDWIDTH:
        say(t, "the device takes a save every %.4g iterations at %.3g %% slow-down", i->bandwidth_min,
            percent);
        break;
    case PAWL_BOUND_STALL:
        say(t, "a save stalls %s, %.3g %% of %.4g iterations", pawl_seconds_text(c->stall_s, a), percent,
            i->stall_min);
        break;
    case PAWL_BOUND_FAILURES:
        say(t, "with a failure every %s saving more often costs more than it rescues (least allowed %.4g)",
            pawl_seconds_text(n->mtbf_s, a), fmax(1, fmax(i->bandwidth_min, i->stall_min)));
        break;
    }
    say(t, ". A failure loses %s on the average, %s at worst.", pawl_seconds_text(i->lost_mean_s, a),
        pawl_seconds_text(i->lost_worst_s, b));
}

pawl_code pawl_tune_choose(const struct pawl_tune_need *n, const struct pawl_tune_point *points,
                           uint32_t count, struct pawl_tune_choice *out, struct pawl_error *e) {
    pawl_code code = check(n, points, count, e);
    if (code != PAWL_OK) return code;
    const struct pawl_tune_point *best = best_of(n, points, count);
    if (best == NULL) return none_fits(n, e);
    struct pawl_tune_choice c = {.point = *best, .stall_s = stall_of(n, best)};
    c.speedup = speedup_of(best, points, count);
    c.storage_bytes = tune_storage_bytes(n, best->in_flight);
    c.memory_bytes =
        memory_suffices(n, best->in_flight) ? memory_wanted(n, best->in_flight) : n->memory_bytes;
    struct pawl_tune_rates rates = rates_of(n, best);
    code = pawl_tune_interval(&rates, &c.interval, e);
    if (code != PAWL_OK) return code;
    struct text t = {c.why, sizeof c.why};
    explain_point(&t, n, &c);
    explain_interval(&t, n, &c);
    explain_fewer(&t, n, &c, points, count);
    *out = c;
    return PAWL_OK;
}

struct pawl_cadence_config pawl_cadence_of(const struct pawl_tune_need *need,
                                           const struct pawl_tune_choice *choice) {
    return (struct pawl_cadence_config){.overhead = need->overhead,
                                        .in_flight = choice->point.in_flight,
                                        .speedup = choice->speedup,
                                        .first = choice->interval.every,
                                        .mtbf_s = need->mtbf_s,
                                        .load_s = need->load_s};
}
