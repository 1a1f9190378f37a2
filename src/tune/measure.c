/* pawl_tune: measures this device with real saves and chooses.
 *
 * First the yardstick (device.h), then saves through the engine: with one in flight for some chunk sizes the
 * number of writers, up or down from the usual as long as it gains something; then more in flight, around the
 * best of those.
 * Tw comes from the rate of a full pipe (stream.h). Everything lies in a scratch folder that is removed on
 * every way out. Fewer bytes than asked are saved where memory, disk or time do not allow more; times are
 * then scaled up and the result says so. Tested in tests/unit/tune_measure_test.c. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "tune/device.h"
#include "tune/scratch.h"
#include "tune/stream.h"
#include "tune/tune.h"

#define IN_FLIGHT_DEFAULT 8u
#define ROUNDS_DEFAULT    3u
#define SECONDS_DEFAULT   60.0
/* A step that gains less than this is none; two such steps end a dimension. */
#define GAIN  0.02
#define TRIES 2
/* Times that a winner is measured again. */
#define CONFIRMS 4
/* A sweep makes about this many saves; more than the time allows make the probe smaller. */
#define SWEEP_SAVES 300
#define PROBE_MIN   ((uint64_t)4 << 20)

static const uint64_t chunk_choices[] = {(uint64_t)4 << 20, (uint64_t)1 << 20, (uint64_t)16 << 20};
static const uint32_t writer_choices[] = {2, 4, 8, 16, 32};
#define CHUNKS  (sizeof chunk_choices / sizeof chunk_choices[0])
#define WRITERS (sizeof writer_choices / sizeof writer_choices[0])
/* Where the search for the number of writers begins: 8. */
#define WRITERS_FIRST 2u

struct sweep {
    const struct pawl_tune_options *options;
    struct pawl_tune_result *result;
    struct scratch scratch;
    uint8_t *data;
    uint64_t bytes; /* of the probe */
    uint64_t step;
    uint32_t in_flight_max, rounds;
    int64_t deadline_ns;
    bool late;
};

static void progress(const struct sweep *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void progress(const struct sweep *s, const char *format, ...) {
    va_list args;
    if (s->options->quiet) return;
    fputs("tune: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

static void note(struct pawl_tune_result *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(struct pawl_tune_result *r, const char *format, ...) {
    size_t size = strlen(r->note);
    va_list args;
    if (size > 0 && size + 2 < sizeof r->note) {
        memcpy(r->note + size, "; ", 3);
        size += 2;
    }
    va_start(args, format);
    vsnprintf(r->note + size, sizeof r->note - size, format, args);
    va_end(args);
}

/* ---- how much to save ---- */

/* Memory that the machine can spare; 0: not known. */
static uint64_t memory_available(void) {
    unsigned long long kib = 0;
    char line[128];
    FILE *in = fopen("/proc/meminfo", "r");
    if (in == NULL) return 0;
    while (fgets(line, sizeof line, in) != NULL)
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1) break;
    fclose(in);
    return (uint64_t)kib * 1024;
}

static bool allows(const struct pawl_tune_need *n, uint32_t in_flight) {
    if (tune_storage_bytes(n, in_flight) > n->storage_bytes) return false;
    double copies = n->staged ? (in_flight + 1.0) / 2 : in_flight;
    return in_flight == 1 || n->memory_bytes == 0 || copies * (double)n->bytes <= (double)n->memory_bytes;
}

static uint32_t most_in_flight(const struct pawl_tune_options *o, const struct pawl_tune_need *n) {
    uint32_t most = o->in_flight_max > 0 ? o->in_flight_max : IN_FLIGHT_DEFAULT, found = 1;
    if (most > CKPT_IN_FLIGHT_MAX) most = CKPT_IN_FLIGHT_MAX;
    while (found < most && allows(n, found + 1)) found++;
    return found;
}

/* Files of the probe at once: slots, and those of the yardstick before them. */
static uint64_t slots_of(const struct sweep *s, uint32_t in_flight) {
    const struct pawl_tune_need *n = &s->result->need;
    return in_flight + n->keep + n->spare_slots;
}

static void shrink(struct sweep *s, uint64_t limit, const char *why) {
    char text[PAWL_AMOUNT_TEXT];
    if (s->bytes <= limit) return;
    s->bytes = limit / STORE_BLOCK * STORE_BLOCK;
    note(s->result, "measured with saves of %s and scaled up: %s", pawl_bytes_text(s->bytes, text), why);
}

static pawl_code size_probe(struct sweep *s, uint64_t free_bytes, struct pawl_error *e) {
    char need[PAWL_AMOUNT_TEXT], have[PAWL_AMOUNT_TEXT];
    const struct pawl_tune_need *n = &s->result->need;
    uint64_t memory = memory_available(), least;
    s->bytes = n->bytes;
    if (s->options->probe_bytes > 0) shrink(s, s->options->probe_bytes, "as asked");
    least = s->bytes < PROBE_MIN ? s->bytes : PROBE_MIN;
    /* A slot is its data and a header, and the file system wants a little itself. */
    shrink(s, free_bytes / (slots_of(s, s->in_flight_max) + 1), "the folder has not room for more");
    if (memory > 0) shrink(s, memory / 2, "memory");
    if (s->bytes < least)
        return error_set(e, PAWL_NO_SPACE, 0, "%s: measuring needs %s (%" PRIu64 " bytes), %s are free",
                         s->options->dir, pawl_bytes_text(least * (slots_of(s, s->in_flight_max) + 1), need),
                         least * (slots_of(s, s->in_flight_max) + 1), pawl_bytes_text(free_bytes, have));
    return PAWL_OK;
}

/* ---- the yardstick ---- */

static pawl_code measure_device(struct sweep *s, struct pawl_error *e) {
    struct tune_device d = {.write_bps = 0};
    struct device_files f = {
        .folder = s->scratch.path, .name = "raw", .count = s->result->need.keep + 2, .bytes = s->bytes};
    f.bytes = s->bytes / STORE_BLOCK * STORE_BLOCK;
    if (f.bytes == 0) f.bytes = STORE_BLOCK;
    pawl_code code = tune_device_measure(&f, s->rounds, s->data, &d, e);
    device_files_remove(&f);
    if (code != PAWL_OK) return code;
    tune_device_tell(&d, &s->result->device);
    progress(s, "the device alone: %.0f MB/s written, %.0f MB/s read (%s, %u at once of %" PRIu64 " KiB)",
             d.write_bps * 1e-6, d.read_bps * 1e-6, device_way_name(d.way), d.way.depth,
             d.way.piece_bytes >> 10);
    return PAWL_OK;
}

/* Staging is a copy by one thread. */
static void measure_copy(struct sweep *s) {
    size_t bytes = s->bytes / 2 < ((size_t)64 << 20) ? (size_t)s->bytes / 2 : (size_t)64 << 20;
    double seconds[5];
    if (bytes == 0) return;
    for (uint32_t i = 0; i < 5; i++) {
        int64_t from_ns = clock_now_ns();
        memcpy(s->data, s->data + s->bytes - bytes, bytes);
        seconds[i] = (double)(clock_now_ns() - from_ns) * 1e-9;
    }
    s->result->copy_bps = (double)bytes / fmax(1e-9, stream_median(seconds, 5));
}

/* ---- the sweep ---- */

static struct pawl_tune_point *point_like(struct sweep *s, uint32_t in_flight, uint32_t writers,
                                          uint64_t chunk_bytes) {
    for (uint32_t i = 0; i < s->result->point_count; i++) {
        struct pawl_tune_point *p = &s->result->points[i];
        if (p->in_flight == in_flight && p->writers == writers && p->chunk_bytes == chunk_bytes) return p;
    }
    return NULL;
}

/* What training waits for: the call, and a copy as far as the next iteration does not hide it. */
static double stall_of(const struct sweep *s, double blocked_s) {
    const struct pawl_tune_need *n = &s->result->need;
    if (!n->staged || s->result->copy_bps <= 0) return blocked_s;
    return blocked_s + fmax(0, (double)n->bytes / s->result->copy_bps - n->iteration_s);
}

static void tell_point(const struct sweep *s, const struct pawl_tune_point *p) {
    char chunk[PAWL_AMOUNT_TEXT], write[PAWL_AMOUNT_TEXT], each[PAWL_AMOUNT_TEXT];
    progress(s, "%u in flight, %u writers, %s chunks: Tw %s, a save every %s", p->in_flight, p->writers,
             pawl_bytes_text(p->chunk_bytes, chunk), pawl_seconds_text(p->write_s, write),
             pawl_seconds_text(p->write_s / p->in_flight, each));
}

/* Saves by `way` until it is measured; *writers is what the store took. Skipped when that is known already.
 */
static pawl_code measure_way(struct sweep *s, const struct pawl_tune_point *way, bool again,
                             uint32_t *writers, struct stream_result *r, struct pawl_error *e) {
    struct stream stream = {0};
    struct stream_config config = {.folder = s->scratch.path,
                                   .data = s->data,
                                   .bytes = s->bytes,
                                   .in_flight = way->in_flight,
                                   .keep = s->result->need.keep,
                                   .writers = way->writers,
                                   .chunk_bytes = way->chunk_bytes};
    pawl_code code = stream_open(&config, &s->step, s->result->store, &stream, e);
    if (code != PAWL_OK) return code;
    *writers = stream.writers;
    if (again || point_like(s, way->in_flight, stream.writers, way->chunk_bytes) == NULL)
        code = stream_run(&stream, s->rounds, r, e);
    stream_close(&stream);
    return code;
}

static double scaled(const struct sweep *s, double seconds) {
    return seconds * (double)s->result->need.bytes / (double)s->bytes;
}

/* Measures a point unless it is known; *seconds per save then is what it was or is. */
static pawl_code measure_point(struct sweep *s, uint32_t in_flight, uint32_t writers, uint64_t chunk_bytes,
                               double *seconds, struct pawl_error *e) {
    struct stream_result r = {0};
    struct pawl_tune_point way = {.in_flight = in_flight, .writers = writers, .chunk_bytes = chunk_bytes};
    pawl_code code = measure_way(s, &way, false, &way.writers, &r, e);
    if (code != PAWL_OK) return code;
    struct pawl_tune_point *point = point_like(s, in_flight, way.writers, chunk_bytes);
    if (point == NULL && s->result->point_count < PAWL_TUNE_POINTS_MAX) {
        point = &s->result->points[s->result->point_count++];
        way.write_s = scaled(s, r.write_s);
        way.stall_s = stall_of(s, r.blocked_s);
        *point = way;
        tell_point(s, point);
    }
    if (point != NULL) *seconds = point->write_s / in_flight;
    return PAWL_OK;
}

static bool time_is_over(struct sweep *s) {
    /* The first point is always measured: without one there is no choice. */
    s->late = s->late || (s->result->point_count > 0 && clock_now_ns() > s->deadline_ns);
    return s->late;
}

/* From place `from` of the writers one way until TRIES steps gained nothing; *best is the best place so far.
 */
static pawl_code climb(struct sweep *s, uint64_t chunk_bytes, int from, int way, double *best_s,
                       uint32_t *best, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (int i = from, tries = 0; i >= 0 && i < (int)WRITERS && tries < TRIES && code == PAWL_OK; i += way) {
        double seconds = INFINITY;
        if (time_is_over(s)) break;
        code = measure_point(s, 1, writer_choices[i], chunk_bytes, &seconds, e);
        tries = seconds < *best_s * (1 - GAIN) ? 0 : tries + 1;
        if (seconds >= *best_s) continue;
        *best_s = seconds;
        *best = (uint32_t)i;
    }
    return code;
}

/* Writers for this chunk size: from *best up, and down where that gained nothing. */
static pawl_code sweep_writers(struct sweep *s, uint64_t chunk_bytes, double *best_s, uint32_t *best,
                               struct pawl_error *e) {
    uint32_t from = *best;
    *best_s = INFINITY;
    pawl_code code = climb(s, chunk_bytes, (int)from, 1, best_s, best, e);
    if (code == PAWL_OK && *best == from) code = climb(s, chunk_bytes, (int)from - 1, -1, best_s, best, e);
    return code;
}

static uint64_t chunk_at(const struct sweep *s, size_t at) {
    uint64_t whole = mem_round_up(s->bytes, STORE_BLOCK);
    return chunk_choices[at] < whole ? chunk_choices[at] : whole;
}

static pawl_code sweep_more(struct sweep *s, uint64_t chunk_bytes, uint32_t writers, double best_s,
                            struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    uint32_t tries = 0;
    for (uint32_t n = 2; n <= s->in_flight_max && tries < TRIES && code == PAWL_OK; n++) {
        double least_s = INFINITY;
        for (uint32_t i = writers; i < WRITERS && i < writers + 2 && code == PAWL_OK; i++) {
            double seconds = INFINITY;
            if (time_is_over(s)) return PAWL_OK;
            code = measure_point(s, n, writer_choices[i], chunk_bytes, &seconds, e);
            least_s = fmin(least_s, seconds);
        }
        tries = least_s < best_s * (1 - GAIN) ? 0 : tries + 1;
        best_s = fmin(best_s, least_s);
    }
    return code;
}

static struct pawl_tune_point *fastest(struct sweep *s) {
    struct pawl_tune_point *best = &s->result->points[0];
    for (uint32_t i = 1; i < s->result->point_count; i++) {
        struct pawl_tune_point *p = &s->result->points[i];
        if (p->write_s / p->in_flight < best->write_s / best->in_flight) best = p;
    }
    return best;
}

/* The least of many noisy figures was lucky: the fastest is measured again, and counts with the mean, until
 * the fastest is one that was measured again. */
static pawl_code confirm(struct sweep *s, struct pawl_error *e) {
    const struct pawl_tune_point *confirmed[CONFIRMS];
    for (uint32_t count = 0; count < CONFIRMS && !time_is_over(s); count++) {
        struct pawl_tune_point *best = fastest(s);
        struct stream_result r = {0};
        uint32_t writers;
        for (uint32_t i = 0; i < count; i++)
            if (confirmed[i] == best) return PAWL_OK;
        pawl_code code = measure_way(s, best, true, &writers, &r, e);
        if (code != PAWL_OK) return code;
        best->write_s = (best->write_s + scaled(s, r.write_s)) / 2;
        progress(s, "once more:");
        tell_point(s, best);
        confirmed[count] = best;
    }
    return PAWL_OK;
}

static pawl_code sweep_all(struct sweep *s, struct pawl_error *e) {
    double best_s = INFINITY;
    uint64_t chunk_bytes = chunk_at(s, 0);
    uint32_t writers = WRITERS_FIRST;
    pawl_code code = PAWL_OK;
    for (size_t i = 0; i < CHUNKS && code == PAWL_OK && !time_is_over(s); i++) {
        double seconds;
        uint32_t at = writers;
        code = sweep_writers(s, chunk_at(s, i), &seconds, &at, e);
        if (seconds >= best_s) continue;
        best_s = seconds;
        chunk_bytes = chunk_at(s, i);
        writers = at;
    }
    if (code == PAWL_OK) code = sweep_more(s, chunk_bytes, writers, best_s, e);
    if (code == PAWL_OK) code = confirm(s, e);
    if (s->late) note(s->result, "the time was over before all was tried");
    return code;
}

/* ---- all together ---- */

static pawl_code check(const struct pawl_tune_options *o, struct pawl_error *e) {
    struct pawl_tune_rates rates = {.iteration_s = o->need.iteration_s,
                                    .write_s = 1,
                                    .in_flight = 1,
                                    .overhead = o->need.overhead,
                                    .mtbf_s = o->need.mtbf_s,
                                    .load_s = o->need.load_s};
    if (o->need.bytes == 0) return error_set(e, PAWL_ARGUMENT, 0, "bytes is 0, wanted the size of a save");
    if (o->rounds > STREAM_ROUNDS_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "rounds is %u, wanted 1 to %u", o->rounds, STREAM_ROUNDS_MAX);
    if (o->need.keep > CKPT_KEEP_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "keep is %u, wanted 1 to %u", o->need.keep, CKPT_KEEP_MAX);
    if (o->probe_bytes > 0 && o->probe_bytes < STORE_BLOCK)
        return error_set(e, PAWL_ARGUMENT, 0, "probe_bytes is %" PRIu64 ", wanted %u or more", o->probe_bytes,
                         STORE_BLOCK);
    return tune_rates_check(&rates, e);
}

static pawl_code prepare(struct sweep *s, struct pawl_error *e) {
    uint64_t free_bytes = 0;
    struct pawl_tune_need *n = &s->result->need;
    pawl_code code = tune_space(s->options->dir, &free_bytes, e);
    if (code != PAWL_OK) return code;
    if (n->storage_bytes == 0) n->storage_bytes = free_bytes;
    code = tune_need_check(n, e);
    if (code != PAWL_OK) return code;
    s->in_flight_max = most_in_flight(s->options, n);
    code = size_probe(s, free_bytes, e);
    if (code != PAWL_OK) return code;
    s->data = mem_alloc(s->bytes);
    if (s->data == NULL) return error_set(e, PAWL_MEMORY, 0, "no %" PRIu64 " bytes to save from", s->bytes);
    tune_fill(s->data, s->bytes);
    return PAWL_OK;
}

/* After the yardstick's first figures: fewer bytes where the sweep would take too long. */
static void fit_time(struct sweep *s, double seconds) {
    double bytes = s->result->device.write_bps * seconds / SWEEP_SAVES;
    uint64_t least = s->bytes < PROBE_MIN ? s->bytes : PROBE_MIN;
    shrink(s, bytes > (double)least ? bytes < 0x1p62 ? (uint64_t)bytes : UINT64_MAX : least, "time");
}

static pawl_code run(struct sweep *s, struct pawl_error *e) {
    double seconds = s->options->seconds > 0 ? s->options->seconds : SECONDS_DEFAULT;
    uint64_t allocated, whole;
    pawl_code code = prepare(s, e);
    if (code != PAWL_OK) return code;
    allocated = whole = s->bytes;
    /* The yardstick alone writes some twenty files: of a big state a part must do. */
    if (s->bytes > ((uint64_t)256 << 20)) s->bytes = (uint64_t)256 << 20;
    code = scratch_open(s->options->dir, &s->scratch, e);
    if (code == PAWL_OK) code = measure_device(s, e);
    s->bytes = whole;
    if (code == PAWL_OK) {
        fit_time(s, seconds);
        measure_copy(s);
        s->deadline_ns = clock_now_ns() + (int64_t)(seconds * 1e9);
        code = sweep_all(s, e);
    }
    s->result->probe_bytes = s->bytes;
    scratch_close(&s->scratch);
    mem_free(s->data, allocated);
    return code;
}

pawl_code pawl_tune(const struct pawl_tune_options *options, struct pawl_tune_result *out,
                    struct pawl_error *e) {
    struct sweep s = {
        .options = options, .result = out, .rounds = options->rounds > 0 ? options->rounds : ROUNDS_DEFAULT};
    struct pawl_tune_need *n = &out->need;
    pawl_code code = check(options, e);
    if (code != PAWL_OK) return code;
    *out = (struct pawl_tune_result){.need = options->need, .bytes = options->need.bytes};
    if (n->overhead == 0) n->overhead = PAWL_TUNE_OVERHEAD;
    if (n->keep == 0) n->keep = 1;
    if (n->spare_slots == 0) n->spare_slots = PAWL_TUNE_SPARE_SLOTS;
    code = run(&s, e);
    if (scratch_stopped() != 0 && code == PAWL_TIMEOUT) {
        out->stopped_by = scratch_stopped();
        return PAWL_OK;
    }
    if (code != PAWL_OK) return code;
    if (n->load_s == 0) n->load_s = (double)n->bytes / out->device.read_bps;
    out->uring_direct = strcmp(out->device.mode, "io_uring+O_DIRECT") == 0;
    code = pawl_tune_choose(n, out->points, out->point_count, &out->choice, e);
    if (code == PAWL_OK && options->keep_result) code = tune_keep(options->dir, out, e);
    return code;
}
