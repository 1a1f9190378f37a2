/* Rate of a store beside the device's own: a raw O_DIRECT io_uring writer at the best piece size and depth
 * that a quick sweep finds, the same with its memory registered, a few pwrite threads, fio where it is
 * installed, and the store by its own functions, with memory registered and not; each into preallocated files
 * that take turns. Then reading. Rounds interleaved, medians, one JSON object on stdout. The flush at the end
 * belongs to every writer's time; making rings and registering memory, done once in a run, to nobody's.
 *
 *   bench_store_write [FOLDER] [MIB] [ROUNDS] [auto|uring|plain|pmem] [huge|small: pages of the memory] */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "store/store.h"

#define ROUNDS_MAX   64u
#define FILES        3u /* as the slots of two saves in flight and one kept */
#define SWEEP_ROUNDS 3u
#define THREADS      2u

struct shape {
    size_t piece;
    uint32_t depth;
};
static const struct shape shapes[] = {{1u << 20, 4}, {1u << 20, 8}, {1u << 20, 16}, {2u << 20, 4},
                                      {2u << 20, 8}, {4u << 20, 2}, {4u << 20, 4},  {4u << 20, 8},
                                      {8u << 20, 4}, {8u << 20, 8}, {16u << 20, 4}};
#define SHAPES (sizeof shapes / sizeof shapes[0])

enum kind {
    RAW_WRITE,
    RAW_WRITE_REGISTERED,
    THREAD_WRITE,
    FIO_WRITE,
    STORE_WRITE,
    STORE_WRITE_REGISTERED,
    RAW_READ,
    FIO_READ,
    STORE_READ,
    STORE_READ_REGISTERED,
    KINDS
};
static const char *const kind_names[KINDS] = {
    "raw_write",   "raw_write_registered",   "pwrite_threads", "fio_write",
    "store_write", "store_write_registered", "raw_read",       "fio_read",
    "store_read",  "store_read_registered"};

struct bench {
    char folder[400];
    size_t bytes;
    uint8_t *data, *out;
    struct store *store;
    struct store_file *files[FILES];
    struct shape best;
    uint32_t turn;
    bool fio;
    double seconds[KINDS][ROUNDS_MAX], cpu[KINDS][ROUNDS_MAX];
};

static _Noreturn void stop(const char *what, const char *why) {
    fprintf(stderr, "store_write: %s: %s\n", what, why);
    exit(1);
}

static double cpu_now(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* ---- the device by itself ---- */

static int raw_open(const struct bench *b, uint32_t turn, int flags) {
    char path[450];
    snprintf(path, sizeof path, "%s/raw-%u.bin", b->folder, turn % FILES);
    int fd = open(path, O_RDWR | O_CREAT | flags, 0600);
    if (fd < 0) stop(path, strerror(errno));
    if (posix_fallocate(fd, 0, (off_t)b->bytes) != 0) stop(path, "cannot preallocate");
    return fd;
}

static void raw_prepare(struct bench *b, struct io_uring_sqe *sqe, int fd, size_t at, size_t piece,
                        bool write_it, bool fixed) {
    if (write_it && fixed)
        io_uring_prep_write_fixed(sqe, fd, b->data + at, (unsigned)piece, at, 0);
    else if (write_it)
        io_uring_prep_write(sqe, fd, b->data + at, (unsigned)piece, at);
    else
        io_uring_prep_read(sqe, fd, b->out + at, (unsigned)piece, at);
}

static double raw_transfer(struct bench *b, struct shape shape, bool write_it, bool fixed) {
    struct io_uring ring;
    int fd = raw_open(b, b->turn++, O_DIRECT);
    if (io_uring_queue_init(64, &ring, 0) != 0) stop("io_uring", "not permitted");
    struct iovec whole = {b->data, b->bytes};
    if (fixed && io_uring_register_buffers(&ring, &whole, 1) != 0) stop("io_uring", "cannot register memory");
    size_t next = 0, done = 0;
    uint32_t in_flight = 0;
    int64_t begin = clock_now_ns();
    while (done < b->bytes) {
        for (; in_flight < shape.depth && next < b->bytes; in_flight++) {
            size_t piece = b->bytes - next < shape.piece ? b->bytes - next : shape.piece;
            raw_prepare(b, io_uring_get_sqe(&ring), fd, next, piece, write_it, fixed);
            next += piece;
        }
        struct io_uring_cqe *cqe = NULL;
        if (io_uring_submit_and_wait(&ring, 1) < 0) continue;
        while (io_uring_peek_cqe(&ring, &cqe) == 0) {
            if (cqe->res <= 0 || cqe->res % (int)STORE_BLOCK != 0) stop("raw", "short transfer");
            done += (size_t)cqe->res;
            in_flight--;
            io_uring_cqe_seen(&ring, cqe);
        }
    }
    if (write_it && fdatasync(fd) != 0) stop("raw", strerror(errno));
    double seconds = (double)(clock_now_ns() - begin) * 1e-9;
    io_uring_queue_exit(&ring);
    close(fd);
    return seconds;
}

struct thread_part {
    const struct bench *b;
    int fd;
    uint32_t index;
};

static void *thread_main(void *arg) {
    const struct thread_part *p = arg;
    size_t piece = p->b->best.piece;
    for (size_t at = p->index * piece; at < p->b->bytes; at += THREADS * piece) {
        size_t bytes = p->b->bytes - at < piece ? p->b->bytes - at : piece;
        if (pwrite(p->fd, p->b->data + at, bytes, (off_t)at) != (ssize_t)bytes)
            stop("pwrite", strerror(errno));
    }
    return NULL;
}

static double thread_transfer(struct bench *b) {
    struct thread_part parts[THREADS];
    pthread_t threads[THREADS];
    int fd = raw_open(b, b->turn++, O_DIRECT);
    int64_t begin = clock_now_ns();
    for (uint32_t i = 0; i < THREADS; i++) {
        parts[i] = (struct thread_part){b, fd, i};
        if (pthread_create(&threads[i], NULL, thread_main, &parts[i]) != 0) stop("threads", "none");
    }
    for (uint32_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    if (fdatasync(fd) != 0) stop("fdatasync", strerror(errno));
    double seconds = (double)(clock_now_ns() - begin) * 1e-9;
    close(fd);
    return seconds;
}

/* fio's own figure, or 0: its processor time is not ours to see. */
static double fio_transfer(struct bench *b, bool write_it) {
    char command[1200], text[65536];
    snprintf(
        command, sizeof command,
        "fio --name=x --filename='%s/raw-%u.bin' --rw=%s --bs=%zu --iodepth=%u --ioengine=io_uring --direct=1"
        " --size=%zu --overwrite=1 --end_fsync=1 --output-format=json 2>/dev/null",
        b->folder, b->turn++ % FILES, write_it ? "write" : "read", b->best.piece, b->best.depth, b->bytes);
    FILE *pipe = popen(command, "r");
    if (pipe == NULL) return 0;
    size_t size = fread(text, 1, sizeof text - 1, pipe);
    text[size] = 0;
    if (pclose(pipe) != 0) return 0;
    const char *begin = strchr(text, '{');
    cJSON *all = begin != NULL ? cJSON_Parse(begin) : NULL;
    const cJSON *job = cJSON_GetArrayItem(cJSON_GetObjectItem(all, "jobs"), 0);
    const cJSON *rate =
        cJSON_GetObjectItem(cJSON_GetObjectItem(job, write_it ? "write" : "read"), "bw_bytes");
    double seconds = cJSON_IsNumber(rate) && rate->valuedouble > 0 ? (double)b->bytes / rate->valuedouble : 0;
    cJSON_Delete(all);
    return seconds;
}

static void sweep(struct bench *b) {
    double best = 1e9;
    for (size_t i = 0; i < SHAPES; i++) {
        double least = 1e9;
        for (uint32_t round = 0; round < SWEEP_ROUNDS; round++) {
            double s = raw_transfer(b, shapes[i], true, false);
            if (s < least) least = s;
        }
        fprintf(stderr, "raw: pieces of %zu KiB, %u in flight: %.2f GB/s\n", shapes[i].piece >> 10,
                shapes[i].depth, (double)b->bytes * 1e-9 / least);
        if (least < best) best = least, b->best = shapes[i];
    }
}

/* ---- the store ---- */

static uint32_t reap(struct bench *b) {
    struct store_completion done[16];
    uint32_t count;
    while ((count = store_poll(b->store, done, 16)) == 0) store_wait(b->store, 1000000000);
    for (uint32_t i = 0; i < count; i++)
        if (done[i].code != PAWL_OK) stop("store", strerror(done[i].os_errno));
    return count;
}

static double store_transfer(struct bench *b, bool write_it) {
    struct store_file *f = b->files[b->turn++ % FILES];
    struct pawl_error e = {0};
    size_t next = 0;
    uint32_t in_flight = 0;
    int64_t begin = clock_now_ns();
    while (next < b->bytes || in_flight > 0) {
        for (; in_flight < store_depth(b->store) && next < b->bytes; in_flight++) {
            size_t piece = b->bytes - next < b->best.piece ? b->bytes - next : b->best.piece;
            pawl_code code = write_it ? store_write(f, next, b->data + next, piece, 0, &e)
                                      : store_read(f, next, b->out + next, piece, 0, &e);
            if (code != PAWL_OK) stop("store", e.text);
            next += piece;
        }
        in_flight -= reap(b);
    }
    if (write_it) {
        if (store_flush(f, 1, &e) != PAWL_OK) stop("store", e.text);
        (void)reap(b);
    }
    return (double)(clock_now_ns() - begin) * 1e-9;
}

/* ---- rounds ---- */

static double run(struct bench *b, enum kind kind) {
    switch (kind) {
    case RAW_WRITE:
        return raw_transfer(b, b->best, true, false);
    case RAW_WRITE_REGISTERED:
        return raw_transfer(b, b->best, true, true);
    case THREAD_WRITE:
        return thread_transfer(b);
    case FIO_WRITE:
    case FIO_READ:
        return fio_transfer(b, kind == FIO_WRITE);
    case RAW_READ:
        return raw_transfer(b, b->best, false, false);
    case STORE_WRITE:
    case STORE_WRITE_REGISTERED:
        return store_transfer(b, true);
    case STORE_READ:
    case STORE_READ_REGISTERED:
        return store_transfer(b, false);
    case KINDS:
        break;
    }
    return 0;
}

static void measure(struct bench *b, enum kind kind, uint32_t round) {
    bool registered = kind == STORE_WRITE_REGISTERED || kind == STORE_READ_REGISTERED;
    uint8_t *memory = kind == STORE_WRITE_REGISTERED ? b->data : b->out;
    if (registered) store_register(b->store, memory, b->bytes);
    double cpu = cpu_now();
    b->seconds[kind][round] = run(b, kind);
    b->cpu[kind][round] = cpu_now() - cpu;
    if (registered) store_unregister(b->store, memory);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, uint32_t count) {
    qsort(values, count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static double largest(double a, double b) { return a > b ? a : b; }

static void print_results(struct bench *b, uint32_t rounds, const char *why) {
    double rate[KINDS], gigabytes = (double)b->bytes * 1e-9;
    struct bytes text = {0};
    struct json j = json_begin(&text);
    json_object(&j, NULL);
    json_text(&j, "store", why);
    json_i64(&j, "bytes", (int64_t)b->bytes);
    json_i64(&j, "rounds", rounds);
    json_i64(&j, "piece_bytes", (int64_t)b->best.piece);
    json_i64(&j, "raw_depth", b->best.depth);
    json_i64(&j, "store_depth", store_depth(b->store));
    for (int kind = 0; kind < KINDS; kind++) {
        bool fio = kind == FIO_WRITE || kind == FIO_READ;
        rate[kind] = fio && !b->fio ? 0 : gigabytes / median(b->seconds[kind], rounds);
        if (fio && !b->fio) continue;
        json_object(&j, kind_names[kind]);
        json_f64(&j, "gb_per_s", rate[kind]);
        json_f64(&j, "gb_per_s_min", gigabytes / b->seconds[kind][rounds - 1]);
        json_f64(&j, "gb_per_s_max", gigabytes / b->seconds[kind][0]);
        if (!fio) json_f64(&j, "cpu_s_per_gb", median(b->cpu[kind], rounds) / gigabytes);
        json_end_object(&j);
    }
    double write = largest(rate[RAW_WRITE], largest(rate[RAW_WRITE_REGISTERED], rate[FIO_WRITE]));
    double read = largest(rate[RAW_READ], rate[FIO_READ]);
    json_f64(&j, "write_to_best_raw", rate[STORE_WRITE] / write);
    json_f64(&j, "write_registered_to_best_raw", rate[STORE_WRITE_REGISTERED] / write);
    json_f64(&j, "read_to_best_raw", rate[STORE_READ] / read);
    json_f64(&j, "read_registered_to_best_raw", rate[STORE_READ_REGISTERED] / read);
    json_end_object(&j);
    bytes_put_u8(&text, 0);
    if (!text.failed) puts((const char *)text.data);
    bytes_close(&text);
}

static size_t number(int argc, char **argv, int at, size_t otherwise) {
    return argc > at ? (size_t)strtoull(argv[at], NULL, 10) : otherwise;
}

static enum store_kind kind_of(const char *text) {
    if (strcmp(text, "uring") == 0) return STORE_URING;
    if (strcmp(text, "plain") == 0) return STORE_PLAIN;
    if (strcmp(text, "pmem") == 0) return STORE_PMEM;
    return STORE_AUTO;
}

static uint8_t *memory_of(size_t bytes, bool small_pages) {
    if (!small_pages) return mem_alloc(bytes);
    uint8_t *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    return madvise(base, bytes, MADV_NOHUGEPAGE) == 0 ? base : NULL;
}

static void begin(struct bench *b, enum store_kind kind, bool small_pages, char why[160]) {
    struct pawl_error e = {0};
    b->data = memory_of(b->bytes, small_pages);
    b->out = memory_of(b->bytes, small_pages);
    if (b->data == NULL || b->out == NULL) stop("memory", "none");
    for (size_t i = 0; i < b->bytes; i += 8) {
        uint64_t v = i * 0x9e3779b97f4a7c15u;
        memcpy(b->data + i, &v, 8);
    }
    memset(b->out, 1, b->bytes);
    if (store_open(b->folder, kind, false, &b->store, why, &e) != PAWL_OK) stop("open", e.text);
    for (uint32_t i = 0; i < FILES; i++) {
        char name[32];
        snprintf(name, sizeof name, "file-%u", i);
        if (store_file_open(b->store, name, true, b->bytes, &b->files[i], &e) != PAWL_OK)
            stop("open", e.text);
    }
}

static void end(struct bench *b) {
    for (uint32_t i = 0; i < FILES; i++) {
        char name[32];
        snprintf(name, sizeof name, "file-%u", i);
        store_file_close(b->files[i]);
        (void)store_remove(b->store, name, NULL);
        snprintf(name, sizeof name, "raw-%u.bin", i);
        (void)store_remove(b->store, name, NULL);
    }
    store_close(b->store);
}

int main(int argc, char **argv) {
    static struct bench b;
    char why[160] = "";
    b.bytes = number(argc, argv, 2, 512) << 20;
    uint32_t rounds = (uint32_t)number(argc, argv, 3, 8);
    if (rounds < 1 || rounds > ROUNDS_MAX || b.bytes == 0) stop("arguments", "MIB >= 1, ROUNDS 1 to 64");
    snprintf(b.folder, sizeof b.folder, "%s", argc > 1 ? argv[1] : "build/bench-store");
    begin(&b, kind_of(argc > 4 ? argv[4] : "auto"), argc > 5 && strcmp(argv[5], "small") == 0, why);
    sweep(&b);
    b.fio = fio_transfer(&b, true) > 0;
    for (uint32_t i = 0; i < FILES; i++)
        (void)store_transfer(&b, true); /* every file once, like the raw ones */
    for (uint32_t round = 0; round < rounds;
         round++) /* there and back: each has either neighbour before it */
        for (int i = 0; i < KINDS; i++) measure(&b, (enum kind)(round % 2 == 0 ? i : KINDS - 1 - i), round);
    if (memcmp(b.data, b.out, b.bytes) != 0) stop("read", "wrong bytes");
    print_results(&b, rounds, why);
    end(&b);
    return 0;
}
