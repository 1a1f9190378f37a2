/* io_uring with O_DIRECT: bytes go from the caller's buffer to the device, several operations at once.
 *
 * One ring per store. What does not fit into the ring, or is beyond the depth chosen, waits in a queue; a
 * flush waits for nobody. A short transfer is continued from the last whole block; one that stays stuck is an
 * I/O error, never OK. Waiting sleeps in the kernel, until a completion comes or an eventfd, watched by a
 * poll request in the ring, is written by store_wake. */
#include "store/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "store/uring_memory.h"

/* Transfers up to STORE_DEPTH_MAX, as many flushes of other files, and the poll request fit well. */
#define RING_ENTRIES (2 * STORE_DEPTH_MAX)
/* A smaller ring works, too: what does not fit is submitted in parts. */
#define RING_ENTRIES_LEAST 8u
/* 8 operations of 1 to 4 MiB keep NVMe and network disks busy; more only adds latency. */
#define RING_DEPTH 8u
/* A transfer that made no progress this often in a row is broken, not slow. */
#define STALLS_MAX 16u
/* After the kernel refused to take a request for want of memory, it is asked again this much later. */
#define RETRY_NS 1000000

struct uring_store {
    struct posix_store posix;
    struct io_uring ring;
    bool ring_made;
    int wake_fd;
    bool watched;                /* the poll request is in the ring */
    bool woken;                  /* and was answered since the last wait */
    bool unwatched;              /* the kernel has no such request: waits are cut short instead */
    uint32_t transfers, flushes; /* in the ring */
    struct store_op_list transfer_queue, flush_queue;
    struct uring_memory memory;
};

static struct uring_store *of(struct store *s) { return (struct uring_store *)s; }

static void prepare_transfer(struct uring_store *u, struct io_uring_sqe *sqe, struct store_op *op) {
    int fd = ((struct posix_file *)op->file)->fd;
    unsigned bytes = op->bytes > (1u << 30) ? 1u << 30 : (unsigned)op->bytes; /* the field has 32 bits */
    int entry = uring_memory_find(&u->memory, op->data, bytes);
    if (op->kind == STORE_OP_WRITE && entry >= 0)
        io_uring_prep_write_fixed(sqe, fd, op->data, bytes, op->offset, entry);
    else if (op->kind == STORE_OP_WRITE)
        io_uring_prep_write(sqe, fd, op->data, bytes, op->offset);
    else if (entry >= 0)
        io_uring_prep_read_fixed(sqe, fd, op->data, bytes, op->offset, entry);
    else
        io_uring_prep_read(sqe, fd, op->data, bytes, op->offset);
}

static void prepare(struct uring_store *u, struct io_uring_sqe *sqe, struct store_op *op) {
    if (op->kind == STORE_OP_FLUSH)
        io_uring_prep_fsync(sqe, ((struct posix_file *)op->file)->fd, IORING_FSYNC_DATASYNC);
    else
        prepare_transfer(u, sqe, op);
    /* Some devices (dm-log-writes, dm-crypt of older kernels) take nothing without being waited for: the
     * ring's own attempt ends with EAGAIN however often it is made. A worker of the kernel then does it. */
    if (op->stalls > 0) sqe->flags |= IOSQE_ASYNC;
    io_uring_sqe_set_data(sqe, op);
}

/* Moves what `list` holds into the ring, as long as `*in_ring` stays below `most`. */
static void push_list(struct uring_store *u, struct store_op_list *list, uint32_t *in_ring, uint32_t most) {
    while (list->first != NULL && *in_ring < most) {
        if (list->first->file->dead_code != PAWL_OK) {
            store_op_finish(store_op_pop(list), 0); /* which knows of what the file died */
            continue;
        }
        struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
        if (sqe == NULL) return;
        prepare(u, sqe, store_op_pop(list));
        (*in_ring)++;
    }
}

static void push_out(struct uring_store *u) {
    push_list(u, &u->flush_queue, &u->flushes, STORE_DEPTH_MAX - 1);
    push_list(u, &u->transfer_queue, &u->transfers, u->posix.base.depth);
}

static void uring_submit(struct store *s, struct store_op *op) {
    struct uring_store *u = of(s);
    store_op_push(op->kind == STORE_OP_FLUSH ? &u->flush_queue : &u->transfer_queue, op);
    push_out(u);
    /* What the kernel refuses stays in the ring, and is offered again by the next progress or wait. */
    if (io_uring_sq_ready(&u->ring) > 0) (void)io_uring_submit(&u->ring);
}

/* What a completion means: 0 done, an errno, or -1 to go on. */
static int outcome(struct store_op *op, int result) {
    if (result == -EAGAIN || result == -EINTR) return ++op->stalls > STALLS_MAX ? EIO : -1;
    if (result < 0) return -result;
    if (op->kind == STORE_OP_FLUSH) return 0;
    size_t moved = (size_t)result - (size_t)result % STORE_BLOCK;
    if (moved > op->bytes) return EIO;
    op->stalls = moved == 0 ? op->stalls + 1 : 0;
    if (moved == 0 && (op->kind == STORE_OP_READ || op->stalls > STALLS_MAX)) return EIO;
    op->data += moved;
    op->offset += moved;
    op->bytes -= moved;
    return op->bytes == 0 ? 0 : -1;
}

static void take_completion(struct uring_store *u, struct store_op *op, int result) {
    bool flush = op->kind == STORE_OP_FLUSH;
    *(flush ? &u->flushes : &u->transfers) -= 1;
    int ended = outcome(op, result);
    if (ended == -1)
        store_op_push(flush ? &u->flush_queue : &u->transfer_queue, op);
    else
        store_op_finish(op, ended);
}

/* The poll request ends when it was answered, and also when the thread that made it ends: made anew by the
 * next wait, it sees what was written meanwhile. */
static void take_wake(struct uring_store *u, int result) {
    uint64_t count;
    u->watched = false;
    if (result < 0 && result != -ECANCELED) u->unwatched = true;
    if (result > 0 && read(u->wake_fd, &count, sizeof count) == (ssize_t)sizeof count) u->woken = true;
}

static void uring_progress(struct store *s) {
    struct uring_store *u = of(s);
    struct io_uring_cqe *cqe = NULL;
    while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
        void *what = io_uring_cqe_get_data(cqe);
        int result = cqe->res;
        io_uring_cqe_seen(&u->ring, cqe);
        if (what == &u->wake_fd)
            take_wake(u, result);
        else
            take_completion(u, what, result);
    }
    push_out(u);
    if (io_uring_sq_ready(&u->ring) > 0) (void)io_uring_submit(&u->ring);
}

static void watch_wake(struct uring_store *u) {
    struct io_uring_sqe *sqe = u->watched || u->unwatched ? NULL : io_uring_get_sqe(&u->ring);
    if (sqe == NULL) return;
    io_uring_prep_poll_add(sqe, u->wake_fd, POLLIN);
    io_uring_sqe_set_data(sqe, &u->wake_fd);
    u->watched = true;
}

static void sleep_in_ring(struct uring_store *u, int64_t timeout_ns) {
    struct __kernel_timespec t = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    struct io_uring_cqe *cqe = NULL;
    int result = io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, &t, NULL);
    if (result >= 0 || result == -ETIME || result == -EINTR) return;
    struct timespec pause = {0, RETRY_NS};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

static void uring_wait(struct store *s, int64_t timeout_ns) {
    struct uring_store *u = of(s);
    uring_progress(s);
    if (timeout_ns > 0 && s->ready_count == 0 && !u->woken) {
        watch_wake(u);
        sleep_in_ring(u, u->watched || timeout_ns < RETRY_NS ? timeout_ns : RETRY_NS);
        uring_progress(s);
    }
    u->woken = false;
}

static void uring_wake(struct store *s) {
    uint64_t one = 1;
    (void)!write(of(s)->wake_fd, &one, sizeof one); /* fails only where it is full, and then it is awake */
}

static void uring_memory_added(struct store *s, void *base, size_t bytes) {
    uring_memory_add(&of(s)->memory, &of(s)->ring, base, bytes);
}

static void uring_memory_removed(struct store *s, void *base) {
    uring_memory_remove(&of(s)->memory, &of(s)->ring, base);
}

static void uring_close(struct store *s) {
    struct uring_store *u = of(s);
    if (u->ring_made) io_uring_queue_exit(&u->ring);
    if (u->wake_fd >= 0) close(u->wake_fd);
    posix_close_folder(&u->posix);
    store_deinit(s);
    free(u);
}

static const struct store_table uring_table = {
    .close = uring_close,
    .file_open = posix_file_open,
    .file_free = posix_file_free,
    .file_size = posix_file_size,
    .file_truncate = posix_file_truncate,
    .is_cached = posix_is_cached,
    .read_cached = posix_read_cached,
    .submit = uring_submit,
    .progress = uring_progress,
    .wait = uring_wait,
    .wake = uring_wake,
    .memory_add = uring_memory_added,
    .memory_remove = uring_memory_removed,
    .get = posix_get,
    .put = posix_put,
    .remove = posix_remove,
    .list = posix_list,
    .sync_folder = posix_sync_folder,
    .space = posix_space,
};

static pawl_code make_ring(struct uring_store *u, struct pawl_error *e) {
    const char *path = u->posix.base.path;
    u->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (u->wake_fd < 0) return error_set(e, PAWL_IO, errno, "%s: cannot make an eventfd", path);
    int result = -ENOMEM; /* the ring counts as locked memory, of which a user may have little left */
    for (unsigned entries = RING_ENTRIES; result == -ENOMEM && entries >= RING_ENTRIES_LEAST; entries /= 2)
        result = io_uring_queue_init(entries, &u->ring, 0);
    if (result != 0) return error_set(e, PAWL_IO, -result, "%s: cannot make an io_uring", path);
    u->ring_made = true;
    return PAWL_OK;
}

pawl_code store_uring_open(const char *path, bool read_only, struct store **out, struct pawl_error *e) {
    struct uring_store *u = calloc(1, sizeof *u);
    if (u == NULL) return error_set(e, PAWL_MEMORY, 0, "%s: no memory", path);
    u->posix.folder_fd = u->posix.lock.fd = u->wake_fd = -1;
    u->posix.open_flags = O_DIRECT;
    pawl_code code = PAWL_OK;
    if (!store_init(&u->posix.base, &uring_table, STORE_URING, path, read_only, RING_DEPTH))
        code = error_set(e, PAWL_MEMORY, 0, "%s: no memory", path);
    if (code == PAWL_OK) code = posix_open_folder(&u->posix, e);
    if (code == PAWL_OK) code = make_ring(u, e);
    if (code == PAWL_OK)
        *out = &u->posix.base;
    else
        uring_close(&u->posix.base);
    return code;
}
