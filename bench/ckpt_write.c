/* Rate of the checkpoint engine beside the device's own: saving against a raw O_DIRECT io_uring writer of the
 * same bytes into a preallocated file, restoring against a raw reader; rounds interleaved, medians, one JSON
 * object on stdout.
 *
 *   bench_ckpt_write FOLDER [MIB] [ROUNDS] [CHUNK_KIB] */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "ckpt/ckpt.h"

#define RAW_DEPTH   8u
#define RAW_PIECE   ((size_t)4 << 20)
#define ROUNDS_MAX  64u
#define TENSOR_ROWS 64u

#define STREAM_SAVES 4u

enum kind { RAW_WRITE, SAVE, SAVE_STREAM, RAW_READ, RESTORE, KINDS };

struct bench {
    char folder[400], raw_path[450];
    size_t bytes;
    uint8_t *data, *out;
    struct store *store;
    struct ckpt *engine;
    uint64_t step;
    double seconds[KINDS][ROUNDS_MAX], cpu[KINDS][ROUNDS_MAX];
    struct ckpt_config config;
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

/* ---- the device by itself ---- */

static void raw_transfer(struct bench *b, bool write_it) {
    struct io_uring ring;
    int fd = open(b->raw_path, O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (fd < 0) stop(b->raw_path, strerror(errno));
    if (posix_fallocate(fd, 0, (off_t)b->bytes) != 0) stop(b->raw_path, "cannot preallocate");
    if (io_uring_queue_init(RAW_DEPTH, &ring, 0) != 0) stop("io_uring", "not permitted");
    size_t next = 0, done = 0;
    uint32_t in_flight = 0;
    while (done < b->bytes) {
        while (in_flight < RAW_DEPTH && next < b->bytes) {
            size_t piece = b->bytes - next < RAW_PIECE ? b->bytes - next : RAW_PIECE;
            struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
            if (write_it)
                io_uring_prep_write(sqe, fd, b->data + next, (unsigned)piece, next);
            else
                io_uring_prep_read(sqe, fd, b->out + next, (unsigned)piece, next);
            next += piece;
            in_flight++;
        }
        struct io_uring_cqe *cqe = NULL;
        if (io_uring_submit_and_wait(&ring, 1) < 0 || io_uring_peek_cqe(&ring, &cqe) != 0) continue;
        if (cqe->res <= 0 || cqe->res % (int)STORE_BLOCK != 0) stop(b->raw_path, "short transfer");
        done += (size_t)cqe->res;
        in_flight--;
        io_uring_cqe_seen(&ring, cqe);
    }
    if (write_it && fdatasync(fd) != 0) stop(b->raw_path, strerror(errno));
    io_uring_queue_exit(&ring);
    close(fd);
}

/* ---- the engine ---- */

static struct pawl_tensor tensor_of(void *data, const uint64_t shape[2]) {
    return (struct pawl_tensor){
        .name = "weights", .dtype = PAWL_F32, .rank = 2, .shape = shape, .data = data};
}

static void begin_save(struct bench *b) {
    const uint64_t shape[2] = {TENSOR_ROWS, b->bytes / TENSOR_ROWS / 4};
    struct pawl_tensor piece = tensor_of(b->data, shape);
    struct ckpt_save save = {
        .step = ++b->step, .unit_count = 1, .part_count = 1, .tensors = &piece, .tensor_count = 1};
    struct pawl_error e = {0};
    if (ckpt_save_begin(b->engine, &save, &e) != PAWL_OK) stop("save", e.text);
}

/* `count` saves, `depth` in flight. */
static void save_some(struct bench *b, uint32_t count, uint32_t depth) {
    for (uint32_t begun = 0, done = 0; done < count;) {
        for (; begun < count && begun - done < depth; begun++) begin_save(b);
        struct ckpt_event event;
        if (ckpt_poll(b->engine, &event, 1) == 0) {
            store_wait(b->store, 100000000);
            continue;
        }
        if (event.code != PAWL_OK) stop("save", event.error.text);
        ckpt_durable(b->engine, event.step);
        done++;
    }
}

static void restore_once(struct bench *b) {
    const uint64_t shape[2] = {TENSOR_ROWS, b->bytes / TENSOR_ROWS / 4};
    struct pawl_tensor piece = tensor_of(b->out, shape);
    struct pawl_error e = {0};
    struct store *s = NULL;
    struct ckpt_set *set = NULL;
    if (store_open(b->folder, STORE_AUTO, true, &s, NULL, &e) != PAWL_OK) stop("open", e.text);
    if (ckpt_set_open(&s, 1, b->config.run_id, &set, &e) != PAWL_OK) stop("scan", e.text);
    if (ckpt_set_read(set, 0, &piece, &e) != PAWL_OK) stop("restore", e.text);
    ckpt_set_close(set);
    store_close(s);
}

static void open_engine(struct bench *b, uint64_t chunk_bytes, char why[160]) {
    struct pawl_error e = {0};
    b->config = (struct ckpt_config){.incarnation = 1, .in_flight = 2, .keep = 1, .chunk_bytes = chunk_bytes};
    if (store_open(b->folder, STORE_AUTO, false, &b->store, why, &e) != PAWL_OK) stop("open", e.text);
    if (ckpt_open(&b->config, b->store, &b->engine, &e) != PAWL_OK) stop("engine", e.text);
}

/* ---- rounds ---- */

static void measure(struct bench *b, enum kind kind, uint32_t round) {
    double cpu = cpu_now();
    int64_t begin = clock_now_ns();
    switch (kind) {
    case RAW_WRITE:
    case RAW_READ:
        raw_transfer(b, kind == RAW_WRITE);
        break;
    case SAVE:
        save_some(b, 1, 1);
        break;
    case SAVE_STREAM:
        save_some(b, STREAM_SAVES, 2);
        break;
    case RESTORE:
        restore_once(b);
        break;
    case KINDS:
        break;
    }
    double times = kind == SAVE_STREAM ? STREAM_SAVES : 1;
    b->seconds[kind][round] = (double)(clock_now_ns() - begin) * 1e-9 / times;
    b->cpu[kind][round] = (cpu_now() - cpu) / times;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, uint32_t count) {
    qsort(values, count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void print_results(struct bench *b, uint32_t rounds, const char *why) {
    static const char *const names[KINDS] = {"raw_write", "save", "save_stream", "raw_read", "restore"};
    double rate[KINDS], gigabytes = (double)b->bytes * 1e-9;
    struct bytes text = {0};
    struct json j = json_begin(&text);
    json_object(&j, NULL);
    json_text(&j, "store", why);
    json_i64(&j, "bytes", (int64_t)b->bytes);
    json_i64(&j, "rounds", rounds);
    for (int kind = 0; kind < KINDS; kind++) {
        rate[kind] = gigabytes / median(b->seconds[kind], rounds);
        json_object(&j, names[kind]);
        json_f64(&j, "gb_per_s", rate[kind]);
        json_f64(&j, "gb_per_s_min", gigabytes / b->seconds[kind][rounds - 1]);
        json_f64(&j, "gb_per_s_max", gigabytes / b->seconds[kind][0]);
        json_f64(&j, "cpu_s_per_gb", median(b->cpu[kind], rounds) / gigabytes);
        json_end_object(&j);
    }
    json_f64(&j, "save_to_raw", rate[SAVE] / rate[RAW_WRITE]);
    json_f64(&j, "save_stream_to_raw", rate[SAVE_STREAM] / rate[RAW_WRITE]);
    json_f64(&j, "restore_to_raw", rate[RESTORE] / rate[RAW_READ]);
    json_end_object(&j);
    bytes_put_u8(&text, 0);
    if (!text.failed) puts((const char *)text.data);
    bytes_close(&text);
}

static size_t number(int argc, char **argv, int at, size_t otherwise) {
    return argc > at ? (size_t)strtoull(argv[at], NULL, 10) : otherwise;
}

int main(int argc, char **argv) {
    static struct bench b;
    char why[160] = "";
    if (argc < 2) stop("usage", "bench_ckpt_write FOLDER [MIB] [ROUNDS] [CHUNK_KIB]");
    b.bytes = number(argc, argv, 2, 512) << 20;
    uint32_t rounds = (uint32_t)number(argc, argv, 3, 5);
    if (rounds < 1 || rounds > ROUNDS_MAX || b.bytes == 0) stop("arguments", "MIB >= 1, ROUNDS 1 to 64");
    snprintf(b.folder, sizeof b.folder, "%s", argv[1]);
    snprintf(b.raw_path, sizeof b.raw_path, "%s/raw.bin", b.folder);
    b.data = mem_alloc(b.bytes);
    b.out = mem_alloc(b.bytes);
    if (b.data == NULL || b.out == NULL) stop("memory", "none");
    for (size_t i = 0; i < b.bytes; i += 8) {
        uint64_t v = i * 0x9e3779b97f4a7c15u;
        memcpy(b.data + i, &v, 8);
    }
    memset(b.out, 1, b.bytes);
    open_engine(&b, number(argc, argv, 4, 0) << 10, why);
    save_some(&b, 8, 2); /* every slot once, as in a run that has gone on for a while */
    raw_transfer(&b, true);
    for (uint32_t round = 0; round < rounds; round++)
        for (int kind = 0; kind < KINDS; kind++) measure(&b, (enum kind)kind, round);
    if (memcmp(b.data, b.out, b.bytes) != 0) stop("restore", "wrong bytes");
    print_results(&b, rounds, why);
    (void)ckpt_close(b.engine, clock_now_ns(), NULL);
    store_close(b.store);
    mem_free(b.data, b.bytes);
    mem_free(b.out, b.bytes);
    return 0;
}
