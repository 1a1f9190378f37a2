/* io_uring with O_DIRECT: bytes go from the caller's buffer to the device, several operations at once.
 *
 * One ring per store. What does not fit into the ring waits in a queue. A short transfer is continued from
 * the last whole block; one that stays stuck is an I/O error, never OK. Waiting sleeps in the kernel. */
#include "store/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>

/* Twice the depth below, so that flushes of several files never wait behind writes. */
#define RING_ENTRIES 32u
/* 8 operations of 1 to 4 MiB keep NVMe and network disks busy; more only adds latency. */
#define RING_DEPTH 8u
/* A transfer that made no progress this often in a row is broken, not slow. */
#define STALLS_MAX 16u

struct uring_store {
    struct posix_store posix;
    struct io_uring ring;
    bool ring_made;
    uint32_t in_ring;
    struct store_op_list queue;
};

static void prepare(struct io_uring_sqe *sqe, struct store_op *op) {
    int fd = ((struct posix_file *)op->file)->fd;
    unsigned bytes = op->bytes > (1u << 30) ? 1u << 30 : (unsigned)op->bytes; /* the field has 32 bits */
    switch (op->kind) {
    case STORE_OP_WRITE:
        io_uring_prep_write(sqe, fd, op->data, bytes, op->offset);
        break;
    case STORE_OP_READ:
        io_uring_prep_read(sqe, fd, op->data, bytes, op->offset);
        break;
    case STORE_OP_FLUSH:
        io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
        break;
    }
    /* Some devices (dm-log-writes, dm-crypt of older kernels) take nothing without being waited for: the
     * ring's own attempt ends with EAGAIN however often it is made. A worker of the kernel then does it. */
    if (op->stalls > 0) sqe->flags |= IOSQE_ASYNC;
    io_uring_sqe_set_data(sqe, op);
}

/* Move queued operations into the ring and tell the kernel. A refused submission leaves them in the ring, to
 * be told again at the next call. */
static void push_out(struct uring_store *u) {
    while (u->queue.first != NULL && u->in_ring < RING_ENTRIES) {
        if (u->queue.first->file->dead_code != PAWL_OK) {
            struct store_op *op = store_op_pop(&u->queue);
            store_op_finish(op, op->file->dead_errno);
            continue;
        }
        struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
        if (sqe == NULL) break;
        prepare(sqe, store_op_pop(&u->queue));
        u->in_ring++;
    }
    if (io_uring_sq_ready(&u->ring) > 0) (void)io_uring_submit(&u->ring);
}

static void uring_submit(struct store *s, struct store_op *op) {
    struct uring_store *u = (struct uring_store *)s;
    store_op_push(&u->queue, op);
    push_out(u);
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

static void uring_progress(struct store *s) {
    struct uring_store *u = (struct uring_store *)s;
    push_out(u);
    struct io_uring_cqe *cqe = NULL;
    while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
        struct store_op *op = io_uring_cqe_get_data(cqe);
        int result = op != NULL ? outcome(op, cqe->res) : 0;
        io_uring_cqe_seen(&u->ring, cqe);
        if (op == NULL) continue; /* the timeout of an older kernel's wait */
        u->in_ring--;
        if (result == -1)
            store_op_push(&u->queue, op);
        else
            store_op_finish(op, result);
    }
    push_out(u);
}

static void uring_wait(struct store *s, int64_t timeout_ns) {
    struct uring_store *u = (struct uring_store *)s;
    if (u->in_ring == 0) {
        if (s->in_flight == 0) posix_sleep(timeout_ns);
        return;
    }
    if (timeout_ns <= 0) return;
    struct __kernel_timespec t = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    struct io_uring_cqe *cqe = NULL;
    (void)io_uring_wait_cqe_timeout(&u->ring, &cqe, &t);
}

static uint32_t uring_depth(const struct store *s) {
    (void)s;
    return RING_DEPTH;
}

static void uring_close(struct store *s) {
    struct uring_store *u = (struct uring_store *)s;
    if (u->ring_made) io_uring_queue_exit(&u->ring);
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
    .submit = uring_submit,
    .progress = uring_progress,
    .wait = uring_wait,
    .depth = uring_depth,
    .get = posix_get,
    .put = posix_put,
    .remove = posix_remove,
    .list = posix_list,
    .sync_folder = posix_sync_folder,
    .space = posix_space,
};

pawl_code store_uring_open(const char *path, bool read_only, struct store **out, struct pawl_error *e) {
    struct uring_store *u = calloc(1, sizeof *u);
    if (u == NULL) return error_set(e, PAWL_MEMORY, 0, "%s: no memory", path);
    u->posix.folder_fd = u->posix.lock_fd = -1;
    u->posix.open_flags = O_DIRECT;
    pawl_code code = PAWL_OK;
    if (!store_init(&u->posix.base, &uring_table, STORE_URING, path, read_only))
        code = error_set(e, PAWL_MEMORY, 0, "%s: no memory", path);
    if (code == PAWL_OK) code = posix_open_folder(&u->posix, e);
    if (code == PAWL_OK) {
        int result = io_uring_queue_init(RING_ENTRIES, &u->ring, 0);
        u->ring_made = result == 0;
        if (result != 0) code = error_set(e, PAWL_IO, -result, "%s: cannot make an io_uring", path);
    }
    if (code == PAWL_OK)
        *out = &u->posix.base;
    else
        uring_close(&u->posix.base);
    return code;
}
