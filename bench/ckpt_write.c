/* Rate of the checkpoint engine beside the device's own: saving against a raw O_DIRECT io_uring writer of the
 * same bytes (raw_device.h), restoring against a raw reader; rounds interleaved, medians, one JSON object on
 * stdout. Sides: one save at a time and a stream of them, from where the data lies; the same without
 * checksums; staged through the pool; and 3,000 small tensors at odd addresses, which all have to be copied.
 *
 *   bench_ckpt_write FOLDER [MIB] [ROUNDS] [CHUNK_KIB] */
#include <sys/resource.h>

#include "base/bytes.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ckpt/ckpt.h"
#include "raw_device.h"

#define ROUNDS_MAX   64u
#define TENSOR_ROWS  64u
#define STREAM_SAVES 4u
#define SMALL_COUNT  3000u
#define SMALL_LEAST  ((uint64_t)1 << 10) /* bytes of a small tensor */
#define SMALL_MOST   ((uint64_t)2 << 20)

enum kind { RAW_WRITE, SAVE, STREAM, UNCHECKED, STAGED, SMALL, RAW_READ, RESTORE, KINDS };
static const char *const kind_names[KINDS] = {"raw_write",   "save",       "save_stream", "save_unchecked",
                                              "save_staged", "save_small", "raw_read",    "restore"};

struct side { /* one engine and what it saves */
    char folder[450];
    struct store *store;
    struct ckpt *engine;
    struct ckpt_config config;
    struct pawl_tensor *tensors;
    uint32_t tensor_count;
    struct ckpt_layout *layout;
    uint64_t step;
    bool staged;
    double begin_seconds; /* the longest ckpt_save_begin since it was set to 0 */
};

struct bench {
    struct raw_device raw;
    size_t bytes;
    uint8_t *data, *out;
    struct side whole, unchecked, small;
    uint64_t shape[2];
    struct pawl_tensor tensor;
    double seconds[KINDS][ROUNDS_MAX], cpu[KINDS][ROUNDS_MAX];
    double begin[KINDS][ROUNDS_MAX];
};

static _Noreturn void stop(const char *what, const char *why) {
    fprintf(stderr, "ckpt_write: %s: %s\n", what, why);
    exit(1);
}

static double cpu_now(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* ---- the engine ---- */

static void begin_save(struct side *s) {
    struct ckpt_save save = {
        .step = ++s->step, .unit_count = 1, .part_count = 1, .layout = s->layout, .staged = s->staged};
    struct pawl_error e = {0};
    int64_t begin = clock_now_ns();
    if (ckpt_save_begin(s->engine, &save, &e) != PAWL_OK) stop("save", e.text);
    double took = (double)(clock_now_ns() - begin) * 1e-9;
    if (took > s->begin_seconds) s->begin_seconds = took;
}

/* `count` saves, `depth` in flight. */
static void save_some(struct side *s, uint32_t count, uint32_t depth) {
    for (uint32_t begun = 0, done = 0; done < count;) {
        for (; begun < count && begun - done < depth; begun++) begin_save(s);
        struct ckpt_event event;
        if (ckpt_poll(s->engine, &event, 1) == 0) {
            ckpt_wait(s->engine, 100000000);
            continue;
        }
        if (event.code != PAWL_OK && event.code != PAWL_CANCELLED) stop("save", event.error.text);
        if (event.code == PAWL_OK) ckpt_durable(s->engine, event.step);
        done++;
    }
}

static void restore_once(struct bench *b) {
    struct pawl_tensor want = b->tensor;
    want.data = b->out;
    struct pawl_error e = {0};
    struct store *s = NULL;
    struct ckpt_set *set = NULL;
    if (store_open(b->whole.folder, STORE_AUTO, true, &s, NULL, &e) != PAWL_OK) stop("open", e.text);
    if (ckpt_set_open(&s, 1, b->whole.config.run_id, &set, &e) != PAWL_OK) stop("scan", e.text);
    if (ckpt_set_read(set, 0, &want, &e) != PAWL_OK) stop("restore", e.text);
    ckpt_set_close(set);
    store_close(s);
}

static void side_open(struct bench *b, struct side *s, const char *name, uint64_t chunk_bytes,
                      char why[160]) {
    struct pawl_error e = {0};
    snprintf(s->folder, sizeof s->folder, "%s/%s", b->raw.folder, name);
    s->config.incarnation = 1;
    s->config.in_flight = 2;
    s->config.keep = 1;
    s->config.chunk_bytes = chunk_bytes;
    s->config.background = true;
    if (getenv("W")) s->config.writers = (uint32_t)atoi(getenv("W"));
    if (store_open(s->folder, STORE_AUTO, false, &s->store, why, &e) != PAWL_OK) stop("open", e.text);
    if (ckpt_open(&s->config, s->store, &s->engine, &e) != PAWL_OK) stop("engine", e.text);
    if (ckpt_layout_new(s->tensors, s->tensor_count, &s->layout, &e) != PAWL_OK) stop("layout", e.text);
    save_some(s, 8, 2); /* every slot once, as in a run that has gone on for a while */
}

static void side_close(struct side *s) {
    (void)ckpt_close(s->engine, clock_now_ns(), NULL);
    store_close(s->store);
    ckpt_layout_release(s->layout);
}

/* Sizes spread evenly on a logarithmic scale, scaled to the wanted total; every address is odd. */
static void make_small(struct bench *b) {
    static char names[SMALL_COUNT][16];
    static uint64_t counts[SMALL_COUNT];
    struct rng_stream random = {1};
    struct side *s = &b->small;
    uint64_t total = 0, at = 1;
    for (uint32_t i = 0; i < SMALL_COUNT; i++) {
        uint64_t doubled = rng_below(&random, 11); /* 1 KiB to 1 MiB, and up to once more */
        counts[i] = (SMALL_LEAST << doubled) + rng_below(&random, SMALL_LEAST << doubled);
        total += counts[i];
    }
    s->tensors = calloc(SMALL_COUNT, sizeof *s->tensors);
    if (s->tensors == NULL) stop("memory", "none");
    for (uint32_t i = 0; i < SMALL_COUNT; i++, s->tensor_count++) {
        uint64_t room = (uint64_t)((__uint128_t)counts[i] * (b->bytes - 2 * SMALL_COUNT) / total);
        counts[i] = room < SMALL_MOST ? room : SMALL_MOST;
        snprintf(names[i], sizeof names[i], "t%u", i);
        s->tensors[i] = (struct pawl_tensor){
            .name = names[i], .dtype = PAWL_U8, .rank = 1, .shape = &counts[i], .data = b->data + at};
        at = (at + counts[i] + 1) | 1;
    }
}

/* ---- rounds ---- */

static void run(struct bench *b, enum kind kind) {
    switch (kind) {
    case RAW_WRITE:
        raw_transfer(&b->raw, b->data, true);
        break;
    case RAW_READ:
        raw_transfer(&b->raw, b->out, false);
        break;
    case SAVE:
    case STAGED:
        b->whole.staged = kind == STAGED;
        save_some(&b->whole, 1, 1);
        b->whole.staged = false;
        break;
    case STREAM:
        save_some(&b->whole, STREAM_SAVES, 2);
        break;
    case UNCHECKED:
        save_some(&b->unchecked, 1, 1);
        break;
    case SMALL:
        save_some(&b->small, 1, 1);
        break;
    case RESTORE:
        restore_once(b);
        break;
    case KINDS:
        break;
    }
}

static void measure(struct bench *b, enum kind kind, uint32_t round) {
    double times = kind == STREAM ? STREAM_SAVES : 1, cpu = cpu_now();
    struct side *sides[] = {&b->whole, &b->unchecked, &b->small};
    for (int i = 0; i < 3; i++) sides[i]->begin_seconds = 0;
    int64_t begin = clock_now_ns();
    run(b, kind);
    b->seconds[kind][round] = (double)(clock_now_ns() - begin) * 1e-9 / times;
    b->cpu[kind][round] = (cpu_now() - cpu) / times;
    b->begin[kind][round] = 0;
    for (int i = 0; i < 3; i++) b->begin[kind][round] += sides[i]->begin_seconds;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, uint32_t count) {
    qsort(values, count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static double bytes_of(const struct bench *b, enum kind kind) {
    if (kind != SMALL) return (double)b->bytes;
    double bytes = 0;
    for (uint32_t i = 0; i < b->small.tensor_count; i++) bytes += (double)b->small.tensors[i].shape[0];
    return bytes;
}

static void print_kind(struct json *j, struct bench *b, enum kind kind, uint32_t rounds, double raw_rate) {
    double gigabytes = bytes_of(b, kind) * 1e-9, rate = gigabytes / median(b->seconds[kind], rounds);
    json_object(j, kind_names[kind]);
    json_f64(j, "gb_per_s", rate);
    json_f64(j, "gb_per_s_min", gigabytes / b->seconds[kind][rounds - 1]);
    json_f64(j, "gb_per_s_max", gigabytes / b->seconds[kind][0]);
    json_f64(j, "to_raw", rate / raw_rate);
    json_f64(j, "cpu_s_per_gb", median(b->cpu[kind], rounds) / gigabytes);
    if (kind != RAW_WRITE && kind < RAW_READ) {
        json_f64(j, "begin_ms", median(b->begin[kind], rounds) * 1e3);
        json_f64(j, "begin_ms_max", b->begin[kind][rounds - 1] * 1e3);
    }
    json_end_object(j);
}

static void print_results(struct bench *b, uint32_t rounds, const char *why) {
    double gigabytes = (double)b->bytes * 1e-9;
    double write_rate = gigabytes / median(b->seconds[RAW_WRITE], rounds);
    double read_rate = gigabytes / median(b->seconds[RAW_READ], rounds);
    struct bytes text = {0};
    struct json j = json_begin(&text);
    json_object(&j, NULL);
    json_text(&j, "store", why);
    json_i64(&j, "bytes", (int64_t)b->bytes);
    json_i64(&j, "rounds", rounds);
    json_i64(&j, "raw_depth", b->raw.depth);
    json_i64(&j, "raw_piece_bytes", (int64_t)b->raw.piece);
    for (int kind = 0; kind < KINDS; kind++)
        print_kind(&j, b, (enum kind)kind, rounds, kind < RAW_READ ? write_rate : read_rate);
    json_end_object(&j);
    bytes_put_u8(&text, 0);
    if (!text.failed) puts((const char *)text.data);
    bytes_close(&text);
}

static size_t number(int argc, char **argv, int at, size_t otherwise) {
    return argc > at ? (size_t)strtoull(argv[at], NULL, 10) : otherwise;
}

static void prepare(struct bench *b, uint64_t chunk_bytes, char why[160]) {
    b->data = mem_alloc(b->bytes);
    b->out = mem_alloc(b->bytes);
    if (b->data == NULL || b->out == NULL) stop("memory", "none");
    for (size_t i = 0; i < b->bytes; i += 8) {
        uint64_t v = i * 0x9e3779b97f4a7c15u;
        memcpy(b->data + i, &v, 8);
    }
    memset(b->out, 1, b->bytes);
    b->shape[0] = TENSOR_ROWS;
    b->shape[1] = b->bytes / TENSOR_ROWS / 4;
    b->tensor = (struct pawl_tensor){
        .name = "weights", .dtype = PAWL_F32, .rank = 2, .shape = b->shape, .data = b->data};
    b->whole.tensors = b->unchecked.tensors = &b->tensor;
    b->whole.tensor_count = b->unchecked.tensor_count = 1;
    b->unchecked.config.unchecked = true;
    make_small(b);
    side_open(b, &b->whole, "whole", chunk_bytes, why);
    side_open(b, &b->unchecked, "unchecked", chunk_bytes, why);
    side_open(b, &b->small, "small", chunk_bytes, why);
    b->raw.bytes = b->bytes;
    raw_choose(&b->raw, b->data);
}

int main(int argc, char **argv) {
    static struct bench b;
    char why[160] = "";
    if (argc < 2) stop("usage", "bench_ckpt_write FOLDER [MIB] [ROUNDS] [CHUNK_KIB]");
    b.bytes = number(argc, argv, 2, 512) << 20;
    uint32_t rounds = (uint32_t)number(argc, argv, 3, 5);
    if (rounds < 1 || rounds > ROUNDS_MAX || b.bytes < (size_t)16 << 20)
        stop("arguments", "MIB >= 16, ROUNDS 1 to 64");
    snprintf(b.raw.folder, sizeof b.raw.folder, "%s", argv[1]);
    prepare(&b, number(argc, argv, 4, 0) << 10, why);
    for (uint32_t round = 0; round < rounds; round++)
        for (int kind = 0; kind < KINDS; kind++) measure(&b, (enum kind)((kind + (int)round) % KINDS), round);
    if (memcmp(b.data, b.out, b.bytes) != 0) stop("restore", "wrong bytes");
    print_results(&b, rounds, why);
    side_close(&b.whole);
    side_close(&b.unchecked);
    side_close(&b.small);
    free(b.small.tensors);
    mem_free(b.data, b.bytes);
    mem_free(b.out, b.bytes);
    return 0;
}
