/* pawl_bench: the engine beside the device by itself.
 *
 * A round is: the raw writer, a stream of saves, saves one by one, the raw reader, a restore; every second
 * round in the reverse order, so that nobody always follows the same neighbour. Each writes the same bytes as
 * often as the others, to the same number of files in rotation, all written before. Ratios are taken within a
 * round, then their median: the device changes from minute to minute. Tested in
 * tests/unit/tune_measure_test.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "tune/scratch.h"
#include "tune/stream.h"
#include "tune/tune.h"

#define BYTES_DEFAULT  ((uint64_t)512 << 20)
#define ROUNDS_DEFAULT 5u
#define KEEP           1u
/* To find the raw writer's best way. */
#define YARD_ROUNDS 3u

enum side { RAW_WRITE, STREAM, SAVE, RAW_READ, RESTORE, SIDES };

struct bench {
    struct pawl_bench_options options; /* filled in */
    struct pawl_bench_result *result;
    struct scratch scratch;
    uint8_t *data, *back;
    struct tune_device device;
    struct device_files files;
    struct stream stream;
    uint64_t step;
    uint32_t saves; /* of each writer in a round */
    double seconds[SIDES][STREAM_ROUNDS_MAX], cpu[SIDES][STREAM_ROUNDS_MAX];
    double blocked_s[STREAM_ROUNDS_MAX], durable_s[STREAM_ROUNDS_MAX];
};

static double cpu_now_s(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static pawl_code open_stream(struct bench *b, struct pawl_error *e) {
    struct stream_config config = {.folder = b->scratch.path,
                                   .data = b->data,
                                   .bytes = b->options.bytes,
                                   .in_flight = b->options.in_flight,
                                   .keep = KEEP};
    return stream_open(&config, &b->step, b->result->store, &b->stream, e);
}

static pawl_code raw_writes(struct bench *b, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < b->saves && code == PAWL_OK; i++)
        code = device_write(&b->files, b->device.way, b->data, e);
    return code;
}

static pawl_code saves(struct bench *b, bool stream, uint32_t round, struct pawl_error *e) {
    struct stream_result r = {0};
    pawl_code code = PAWL_OK;
    if (stream) {
        code = stream_burst(&b->stream, b->saves, &r, e);
        b->blocked_s[round] = r.blocked_s;
        return code;
    }
    for (uint32_t i = 0; i < b->saves && code == PAWL_OK; i++) code = stream_burst(&b->stream, 1, &r, e);
    b->durable_s[round] = r.total_s;
    return code;
}

static pawl_code do_side(struct bench *b, enum side side, uint32_t round, struct pawl_error *e) {
    switch (side) {
    case RAW_WRITE:
        return raw_writes(b, e);
    case STREAM:
    case SAVE:
        return saves(b, side == STREAM, round, e);
    case RAW_READ:
        return device_read(&b->files, b->device.way, b->back, e);
    case RESTORE:
        return stream_restore(b->scratch.path, b->options.bytes, b->back, e);
    case SIDES:
        break;
    }
    return PAWL_OK;
}

static pawl_code measure(struct bench *b, enum side side, uint32_t round, struct pawl_error *e) {
    double cpu_s = cpu_now_s(), times = side == RAW_READ || side == RESTORE ? 1 : b->saves;
    int64_t from_ns = clock_now_ns();
    pawl_code code = do_side(b, side, round, e);
    b->seconds[side][round] = (double)(clock_now_ns() - from_ns) * 1e-9 / times;
    b->cpu[side][round] = (cpu_now_s() - cpu_s) / times;
    if (code == PAWL_OK && scratch_stopped() != 0)
        code = error_set(e, PAWL_TIMEOUT, 0, "stopped by signal %d", scratch_stopped());
    if (code == PAWL_OK && side == RESTORE && memcmp(b->data, b->back, b->options.bytes) != 0)
        code = error_set(e, PAWL_CORRUPT, 0, "%s: what was read back is not what was saved", b->scratch.path);
    return code;
}

static pawl_code measure_rounds(struct bench *b, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t round = 0; round < b->options.rounds && code == PAWL_OK; round++) {
        for (int i = 0; i < SIDES && code == PAWL_OK; i++)
            code = measure(b, (enum side)(round % 2 == 0 ? i : SIDES - 1 - i), round, e);
        if (code == PAWL_OK && !b->options.quiet)
            fprintf(stderr, "bench: round %u of %u: device %.0f MB/s, saves %.0f; read %.0f, restore %.0f\n",
                    round + 1, b->options.rounds,
                    (double)b->options.bytes * 1e-6 / b->seconds[RAW_WRITE][round],
                    (double)b->options.bytes * 1e-6 / b->seconds[STREAM][round],
                    (double)b->options.bytes * 1e-6 / b->seconds[RAW_READ][round],
                    (double)b->options.bytes * 1e-6 / b->seconds[RESTORE][round]);
    }
    return code;
}

/* ---- results ---- */

static double ratio(const struct bench *b, enum side side, enum side yard) {
    double ratios[STREAM_ROUNDS_MAX];
    for (uint32_t i = 0; i < b->options.rounds; i++) ratios[i] = b->seconds[yard][i] / b->seconds[side][i];
    return stream_median(ratios, b->options.rounds);
}

static void conclude(struct bench *b) {
    struct pawl_bench_result *r = b->result;
    uint32_t rounds = b->options.rounds;
    double bytes = (double)b->options.bytes, gb = bytes * 1e-9;
    r->write_ratio = ratio(b, STREAM, RAW_WRITE);
    r->save_ratio = ratio(b, SAVE, RAW_WRITE);
    r->restore_ratio = ratio(b, RESTORE, RAW_READ);
    b->device.write_bps = bytes / stream_median(b->seconds[RAW_WRITE], rounds);
    b->device.read_bps = bytes / stream_median(b->seconds[RAW_READ], rounds);
    tune_device_tell(&b->device, &r->device);
    r->write_bps = bytes / stream_median(b->seconds[STREAM], rounds);
    r->save_bps = bytes / stream_median(b->seconds[SAVE], rounds);
    r->restore_bps = bytes / stream_median(b->seconds[RESTORE], rounds);
    r->cpu_s_per_gb = stream_median(b->cpu[STREAM], rounds) / gb;
    r->restore_cpu_s_per_gb = stream_median(b->cpu[RESTORE], rounds) / gb;
    r->device_cpu_s_per_gb = stream_median(b->cpu[RAW_WRITE], rounds) / gb;
    r->blocked_s = stream_median(b->blocked_s, rounds);
    r->write_s = stream_median(b->durable_s, rounds);
    r->bytes = b->options.bytes;
    r->rounds = rounds;
    r->in_flight = b->options.in_flight;
}

/* ---- set-up ---- */

static pawl_code check(struct bench *b, struct pawl_error *e) {
    struct pawl_bench_options *o = &b->options;
    if (o->bytes == 0) o->bytes = BYTES_DEFAULT;
    if (o->rounds == 0) o->rounds = ROUNDS_DEFAULT;
    if (o->in_flight == 0) o->in_flight = 2;
    if (o->bytes < STORE_BLOCK || o->bytes % STORE_BLOCK != 0)
        return error_set(e, PAWL_ARGUMENT, 0, "bytes is %" PRIu64 ", wanted a multiple of %u", o->bytes,
                         STORE_BLOCK);
    if (o->rounds > STREAM_ROUNDS_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "rounds is %u, wanted 1 to %u", o->rounds, STREAM_ROUNDS_MAX);
    if (o->in_flight > CKPT_IN_FLIGHT_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "in_flight is %u, wanted 1 to %u", o->in_flight,
                         CKPT_IN_FLIGHT_MAX);
    return PAWL_OK;
}

static uint32_t slots(const struct bench *b) { return b->options.in_flight + KEEP + PAWL_TUNE_SPARE_SLOTS; }

static pawl_code check_space(const struct bench *b, struct pawl_error *e) {
    char need_text[PAWL_AMOUNT_TEXT], have_text[PAWL_AMOUNT_TEXT];
    uint64_t have = 0, need;
    pawl_code code = tune_space(b->options.dir, &have, e);
    if (code != PAWL_OK) return code;
    /* Slots, as many raw files, and one for headers and the file system. */
    if (mem_mul(b->options.bytes, 2 * (uint64_t)slots(b) + 1, &need) && need <= have) return PAWL_OK;
    return error_set(e, PAWL_NO_SPACE, 0, "%s: measuring needs %s (%" PRIu64 " bytes), %s are free",
                     b->options.dir, pawl_bytes_text(need, need_text), need,
                     pawl_bytes_text(have, have_text));
}

static pawl_code prepare(struct bench *b, struct pawl_error *e) {
    pawl_code code = check_space(b, e);
    if (code != PAWL_OK) return code;
    b->data = mem_alloc(b->options.bytes);
    b->back = mem_alloc(b->options.bytes);
    if (b->data == NULL || b->back == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for twice %" PRIu64 " bytes", b->options.bytes);
    tune_fill(b->data, b->options.bytes);
    memset(b->back, 1, b->options.bytes);
    b->saves = 2 * b->options.in_flight;
    return PAWL_OK;
}

static pawl_code run(struct bench *b, struct pawl_error *e) {
    struct stream_result ignored;
    b->files = (struct device_files){
        .folder = b->scratch.path, .name = "raw", .count = slots(b), .bytes = b->options.bytes};
    pawl_code code = tune_device_measure(&b->files, YARD_ROUNDS, b->data, &b->device, e);
    if (code == PAWL_OK) code = open_stream(b, e);
    /* Every slot is written before anything counts. */
    if (code == PAWL_OK) code = stream_burst(&b->stream, 2 * slots(b), &ignored, e);
    if (code == PAWL_OK) code = measure_rounds(b, e);
    if (code == PAWL_OK) conclude(b);
    stream_close(&b->stream);
    return code;
}

pawl_code pawl_bench(const struct pawl_bench_options *options, struct pawl_bench_result *out,
                     struct pawl_error *e) {
    struct bench b = {.options = *options, .result = out};
    *out = (struct pawl_bench_result){.rounds = 0};
    pawl_code code = check(&b, e);
    if (code != PAWL_OK) return code;
    code = prepare(&b, e);
    if (code == PAWL_OK) code = scratch_open(options->dir, &b.scratch, e);
    bool began = code == PAWL_OK;
    if (began) code = run(&b, e);
    scratch_close(&b.scratch);
    mem_free(b.data, b.options.bytes);
    mem_free(b.back, b.options.bytes);
    if (began && code == PAWL_TIMEOUT && scratch_stopped() != 0) {
        out->stopped_by = scratch_stopped();
        return PAWL_OK;
    }
    return code;
}
