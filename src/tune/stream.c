/* See stream.h. Tested through tests/unit/tune_measure_test.c. */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "tune/scratch.h"
#include "tune/stream.h"

/* How soon a signal is noticed while nothing happens. */
#define LOOK_MS 100

#define SAMPLES_MAX 4096u

struct samples {
    uint32_t total_count, blocked_count;
    double total_s[SAMPLES_MAX], blocked_s[SAMPLES_MAX];
};

pawl_code stream_open(const struct stream_config *config, uint64_t *step, char why[160], struct stream *out,
                      struct pawl_error *e) {
    struct stream s = {.config = *config, .step = step, .durable = *step};
    struct ckpt_config engine = {.run_id = "pawl tune",
                                 .incarnation = *step + 1,
                                 .resume_step = *step,
                                 .in_flight = config->in_flight,
                                 .keep = config->keep,
                                 .chunk_bytes = config->chunk_bytes,
                                 .writers = config->writers,
                                 .background = true};
    pawl_code code = store_open(config->folder, STORE_AUTO, false, &s.store, why, e);
    if (code != PAWL_OK) return code;
    if (config->writers != 0) store_depth_set(s.store, config->writers);
    s.writers = store_depth(s.store);
    code = ckpt_open(&engine, s.store, &s.engine, e);
    if (code != PAWL_OK) {
        store_close(s.store);
        return code;
    }
    *out = s;
    return PAWL_OK;
}

void stream_close(struct stream *s) {
    if (s->engine != NULL) (void)ckpt_close(s->engine, clock_now_ns(), NULL);
    store_close(s->store);
    *s = (struct stream){0};
}

static struct pawl_tensor tensor_of(const void *data, const uint64_t *bytes) {
    return (struct pawl_tensor){
        .name = "state", .dtype = PAWL_U8, .rank = 1, .shape = bytes, .data = (void *)(uintptr_t)data};
}

static pawl_code begin(struct stream *s, struct samples *samples, struct pawl_error *e) {
    struct pawl_tensor tensor = tensor_of(s->config.data, &s->config.bytes);
    struct ckpt_save save = {
        .step = ++*s->step, .unit_count = 1, .part_count = 1, .tensors = &tensor, .tensor_count = 1};
    int64_t from_ns = clock_now_ns();
    pawl_code code = ckpt_save_begin(s->engine, &save, e);
    double blocked_s = (double)(clock_now_ns() - from_ns) * 1e-9;
    if (samples->blocked_count < SAMPLES_MAX) samples->blocked_s[samples->blocked_count++] = blocked_s;
    return code;
}

/* Declares in order: a step declared durable makes the engine give up older ones that are still in flight. */
static pawl_code declare(struct stream *s, uint64_t step, struct pawl_error *e) {
    uint64_t before = s->durable;
    if (step - before > 64)
        return error_set(e, PAWL_INTERNAL, 0, "64 saves ended before step %" PRIu64 " did", before + 1);
    s->ended |= (uint64_t)1 << (step - s->durable - 1);
    for (; (s->ended & 1) != 0; s->ended >>= 1) s->durable++;
    if (s->durable > before) ckpt_durable(s->engine, s->durable);
    return PAWL_OK;
}

/* Waits for the end of one save. */
static pawl_code end(struct stream *s, struct samples *samples, struct pawl_error *e) {
    struct ckpt_event event;
    while (ckpt_poll(s->engine, &event, 1) == 0) {
        struct pollfd fd = {.fd = ckpt_fd(s->engine), .events = POLLIN};
        (void)poll(&fd, 1, LOOK_MS);
        if (scratch_stopped() != 0)
            return error_set(e, PAWL_TIMEOUT, 0, "stopped by signal %d", scratch_stopped());
    }
    if (event.code != PAWL_OK) {
        if (e != NULL) *e = event.error;
        return event.code;
    }
    if (samples->total_count < SAMPLES_MAX)
        samples->total_s[samples->total_count++] = (double)event.total_ns * 1e-9;
    return declare(s, event.step, e);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double stream_median(double *values, uint32_t count) {
    if (count == 0) return 0;
    qsort(values, count, sizeof *values, by_value);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* `count` saves end while as many as there were stay in flight. */
static pawl_code turn(struct stream *s, uint32_t count, struct samples *samples, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) {
        code = end(s, samples, e);
        if (code == PAWL_OK) code = begin(s, samples, e);
    }
    return code;
}

static pawl_code fill(struct stream *s, uint32_t count, struct samples *samples, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) code = begin(s, samples, e);
    return code;
}

static pawl_code drain(struct stream *s, struct samples *samples, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    while (code == PAWL_OK && ckpt_in_flight(s->engine) > 0) code = end(s, samples, e);
    return code;
}

static void summarise(struct samples *samples, struct stream_result *out) {
    out->total_s = stream_median(samples->total_s, samples->total_count);
    out->blocked_s = stream_median(samples->blocked_s, samples->blocked_count);
}

static pawl_code run_rounds(struct stream *s, uint32_t rounds, struct samples *samples,
                            struct stream_result *out, struct pawl_error *e) {
    uint32_t n = s->config.in_flight;
    double round_s[STREAM_ROUNDS_MAX];
    pawl_code code = fill(s, n, samples, e);
    if (code == PAWL_OK) code = turn(s, n, samples, e);
    samples->total_count = samples->blocked_count = 0;
    int64_t first_ns = clock_now_ns(), from_ns = first_ns;
    for (uint32_t round = 0; round < rounds && code == PAWL_OK; round++) {
        code = turn(s, n, samples, e);
        int64_t now_ns = clock_now_ns();
        round_s[round] = (double)(now_ns - from_ns) * 1e-9;
        from_ns = now_ns;
    }
    if (code != PAWL_OK) return code;
    out->seconds = (double)(from_ns - first_ns) * 1e-9;
    out->write_s = stream_median(round_s, rounds); /* n saves per round, n in flight: each takes a round */
    summarise(samples, out);
    return drain(s, samples, e);
}

pawl_code stream_run(struct stream *s, uint32_t rounds, struct stream_result *out, struct pawl_error *e) {
    struct samples *samples = calloc(1, sizeof *samples);
    if (samples == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for measuring");
    pawl_code code = run_rounds(s, rounds, samples, out, e);
    free(samples);
    return code;
}

pawl_code stream_burst(struct stream *s, uint32_t count, struct stream_result *out, struct pawl_error *e) {
    struct samples *samples = calloc(1, sizeof *samples);
    if (samples == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for measuring");
    uint32_t first = count < s->config.in_flight ? count : s->config.in_flight;
    int64_t from_ns = clock_now_ns();
    pawl_code code = fill(s, first, samples, e);
    if (code == PAWL_OK) code = turn(s, count - first, samples, e);
    if (code == PAWL_OK) code = drain(s, samples, e);
    out->seconds = (double)(clock_now_ns() - from_ns) * 1e-9;
    summarise(samples, out);
    free(samples);
    return code;
}

static pawl_code read_newest(struct store *store, uint64_t bytes, void *data, struct pawl_error *e) {
    struct ckpt_set *set = NULL;
    struct pawl_tensor want = tensor_of(data, &bytes);
    pawl_code code = ckpt_set_open(&store, 1, NULL, &set, e);
    if (code == PAWL_OK) code = ckpt_set_read(set, 0, &want, e);
    ckpt_set_close(set);
    return code;
}

pawl_code stream_restore(const char *folder, uint64_t bytes, void *data, struct pawl_error *e) {
    struct store *store = NULL;
    pawl_code code = store_open(folder, STORE_AUTO, true, &store, NULL, e);
    if (code != PAWL_OK) return code;
    code = read_newest(store, bytes, data, e);
    store_close(store);
    return code;
}
