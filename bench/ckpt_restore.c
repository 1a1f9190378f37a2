/* Rate of restoring beside the device's own: a set of one store against a raw O_DIRECT io_uring reader of the
 * same bytes, for one large tensor and for many small ones, cold file descriptors each time; rounds
 * interleaved, medians, one JSON object on stdout.
 *
 *   bench_ckpt_restore FOLDER [MIB] [ROUNDS] [TENSORS] */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

#define RAW_DEPTH  8u
#define RAW_PIECE  ((size_t)4 << 20)
#define ROUNDS_MAX 64u

enum kind { RAW, ONE, MANY, KINDS };

struct state { /* one way to cut the same bytes into tensors */
    struct pawl_tensor *tensors;
    uint64_t *shapes;
    char (*names)[24];
    uint32_t count;
    char folder[500];
};

struct bench {
    size_t bytes;
    uint8_t *data, *out;
    struct state states[KINDS];
    char raw_path[500];
    double seconds[KINDS][ROUNDS_MAX], cpu[KINDS][ROUNDS_MAX];
};

static _Noreturn void stop(const char *what, const char *why) {
    fprintf(stderr, "ckpt_restore: %s: %s\n", what, why);
    exit(1);
}

static double cpu_now(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* ---- the device by itself ---- */

static void raw_read(struct bench *b) {
    struct io_uring ring;
    int fd = open(b->raw_path, O_RDONLY | O_DIRECT);
    if (fd < 0) stop(b->raw_path, strerror(errno));
    if (io_uring_queue_init(RAW_DEPTH, &ring, 0) != 0) stop("io_uring", "not permitted");
    size_t next = 0, done = 0;
    uint32_t in_flight = 0;
    while (done < b->bytes) {
        while (in_flight < RAW_DEPTH && next < b->bytes) {
            size_t piece = b->bytes - next < RAW_PIECE ? b->bytes - next : RAW_PIECE;
            io_uring_prep_read(io_uring_get_sqe(&ring), fd, b->out + next, (unsigned)piece, next);
            next += piece;
            in_flight++;
        }
        struct io_uring_cqe *cqe = NULL;
        if (io_uring_submit_and_wait(&ring, 1) < 0 || io_uring_peek_cqe(&ring, &cqe) != 0) continue;
        if (cqe->res <= 0 || cqe->res % (int)STORE_BLOCK != 0) stop(b->raw_path, "short read");
        done += (size_t)cqe->res;
        in_flight--;
        io_uring_cqe_seen(&ring, cqe);
    }
    io_uring_queue_exit(&ring);
    close(fd);
}

static void raw_write(struct bench *b) {
    int fd = open(b->raw_path, O_WRONLY | O_CREAT | O_DIRECT, 0600);
    if (fd < 0) stop(b->raw_path, strerror(errno));
    if (posix_fallocate(fd, 0, (off_t)b->bytes) != 0) stop(b->raw_path, "cannot preallocate");
    for (size_t at = 0; at < b->bytes;) {
        size_t piece = b->bytes - at < RAW_PIECE ? b->bytes - at : RAW_PIECE;
        ssize_t wrote = pwrite(fd, b->data + at, piece, (off_t)at);
        if (wrote <= 0) stop(b->raw_path, strerror(errno));
        at += (size_t)wrote;
    }
    if (fsync(fd) != 0) stop(b->raw_path, strerror(errno));
    close(fd);
}

/* ---- the same bytes as tensors ---- */

static void state_init(struct state *s, const char *folder, const char *name, size_t bytes, uint32_t count) {
    s->count = count;
    s->tensors = calloc(count, sizeof *s->tensors);
    s->shapes = calloc(count, sizeof *s->shapes);
    s->names = calloc(count, sizeof *s->names);
    if (s->tensors == NULL || s->shapes == NULL || s->names == NULL) stop("memory", "none");
    snprintf(s->folder, sizeof s->folder, "%s/%s", folder, name);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(s->names[i], sizeof s->names[i], "tensor.%06u", i);
        s->shapes[i] = bytes / 4 / count + (i < bytes / 4 % count);
        s->tensors[i] =
            (struct pawl_tensor){.name = s->names[i], .dtype = PAWL_F32, .rank = 1, .shape = &s->shapes[i]};
    }
}

static void point_to(struct state *s, uint8_t *memory) {
    for (uint32_t i = 0; i < s->count; i++) {
        s->tensors[i].data = memory;
        memory += s->shapes[i] * 4;
    }
}

static void save(struct bench *b, struct state *s) {
    struct pawl_error e = {0};
    struct store *store = NULL;
    struct ckpt *c = NULL;
    struct ckpt_config config = {.incarnation = 1, .in_flight = 1, .keep = 1};
    point_to(s, b->data);
    struct ckpt_save save = {
        .step = 1, .unit_count = 1, .part_count = 1, .tensors = s->tensors, .tensor_count = s->count};
    if (store_open(s->folder, STORE_AUTO, false, &store, NULL, &e) != PAWL_OK) stop("open", e.text);
    if (ckpt_open(&config, store, &c, &e) != PAWL_OK) stop("engine", e.text);
    if (ckpt_save_begin(c, &save, &e) != PAWL_OK) stop("save", e.text);
    struct ckpt_event event;
    while (ckpt_poll(c, &event, 1) == 0) store_wait(store, 100000000);
    if (event.code != PAWL_OK) stop("save", event.error.text);
    if (ckpt_close(c, clock_now_ns(), &e) != PAWL_OK) stop("close", e.text);
    store_close(store);
}

static void restore(struct bench *b, struct state *s) {
    struct pawl_error e = {0};
    struct store *store = NULL;
    struct ckpt_set *set = NULL;
    point_to(s, b->out);
    if (store_open(s->folder, STORE_AUTO, true, &store, NULL, &e) != PAWL_OK) stop("open", e.text);
    if (ckpt_set_open(&store, 1, NULL, &set, &e) != PAWL_OK) stop("scan", e.text);
    if (ckpt_set_count(set) == 0) stop("scan", "nothing was saved");
    if (ckpt_set_read_many(set, 0, s->tensors, s->count, &e) != PAWL_OK) stop("restore", e.text);
    ckpt_set_close(set);
    store_close(store);
}

/* ---- rounds ---- */

static void measure(struct bench *b, enum kind kind, uint32_t round) {
    double cpu = cpu_now();
    int64_t begin = clock_now_ns();
    if (kind == RAW)
        raw_read(b);
    else
        restore(b, &b->states[kind]);
    b->seconds[kind][round] = (double)(clock_now_ns() - begin) * 1e-9;
    b->cpu[kind][round] = cpu_now() - cpu;
    if (memcmp(b->data, b->out, b->bytes) != 0) stop("restore", "wrong bytes");
    memset(b->out, 1, b->bytes);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, uint32_t count) {
    qsort(values, count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void print_results(struct bench *b, uint32_t rounds) {
    static const char *const names[KINDS] = {"raw_read", "one_tensor", "many_tensors"};
    double rate[KINDS], gigabytes = (double)b->bytes * 1e-9;
    struct bytes text = {0};
    struct json j = json_begin(&text);
    json_object(&j, NULL);
    json_i64(&j, "bytes", (int64_t)b->bytes);
    json_i64(&j, "rounds", rounds);
    json_i64(&j, "tensors", b->states[MANY].count);
    for (int kind = 0; kind < KINDS; kind++) {
        rate[kind] = gigabytes / median(b->seconds[kind], rounds);
        json_object(&j, names[kind]);
        json_f64(&j, "gb_per_s", rate[kind]);
        json_f64(&j, "cpu_s_per_gb", median(b->cpu[kind], rounds) / gigabytes);
        json_end_object(&j);
    }
    json_f64(&j, "one_to_raw", rate[ONE] / rate[RAW]);
    json_f64(&j, "many_to_raw", rate[MANY] / rate[RAW]);
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
    if (argc < 2) stop("usage", "bench_ckpt_restore FOLDER [MIB] [ROUNDS] [TENSORS]");
    b.bytes = number(argc, argv, 2, 512) << 20;
    uint32_t rounds = (uint32_t)number(argc, argv, 3, 5);
    uint32_t many = (uint32_t)number(argc, argv, 4, 3000);
    if (rounds < 1 || rounds > ROUNDS_MAX || b.bytes == 0 || many < 1)
        stop("arguments", "MIB >= 1, ROUNDS 1 to 64, TENSORS >= 1");
    snprintf(b.raw_path, sizeof b.raw_path, "%s/raw.bin", argv[1]);
    state_init(&b.states[ONE], argv[1], "one", b.bytes, 1);
    state_init(&b.states[MANY], argv[1], "many", b.bytes, many);
    b.data = mem_alloc(b.bytes);
    b.out = mem_alloc(b.bytes);
    if (b.data == NULL || b.out == NULL) stop("memory", "none");
    for (size_t i = 0; i < b.bytes; i += 8) {
        uint64_t v = i * 0x9e3779b97f4a7c15u;
        memcpy(b.data + i, &v, 8);
    }
    memset(b.out, 1, b.bytes);
    raw_write(&b);
    save(&b, &b.states[ONE]);
    save(&b, &b.states[MANY]);
    for (uint32_t round = 0; round < rounds; round++)
        for (int kind = 0; kind < KINDS; kind++) measure(&b, (enum kind)kind, round);
    print_results(&b, rounds);
    for (int kind = 0; kind < KINDS; kind++) {
        free(b.states[kind].tensors);
        free(b.states[kind].shapes);
        free(b.states[kind].names);
    }
    mem_free(b.data, b.bytes);
    mem_free(b.out, b.bytes);
    return 0;
}
