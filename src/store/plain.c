/* Plain files: page cache, pwrite, fdatasync. For tmpfs, overlay file systems and places without io_uring.
 *
 * One thread: an operation waits in a queue and is done by the next poll, one per poll, so that a caller who
 * polls never blocks longer than one operation. Write-back starts with each write, so that the flush at the
 * end finds little left to do. */
#include "store/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct plain_store {
    struct posix_store posix;
    struct store_op_list queue;
};

static int write_out(int fd, struct store_op *op) {
    off_t begin = (off_t)op->offset;
    off_t total = (off_t)op->bytes;
    while (op->bytes > 0) {
        ssize_t moved = pwrite(fd, op->data, op->bytes, (off_t)op->offset);
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0) return errno;
        op->data += moved;
        op->offset += (uint64_t)moved;
        op->bytes -= (size_t)moved;
    }
    /* Only a hint: durability is the flush's business, and some file systems lack it. */
    (void)sync_file_range(fd, begin, total, SYNC_FILE_RANGE_WRITE);
    return 0;
}

static int read_in(int fd, struct store_op *op) {
    while (op->bytes > 0) {
        ssize_t moved = pread(fd, op->data, op->bytes, (off_t)op->offset);
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0) return errno;
        if (moved == 0) return EIO; /* the file ends before the wanted bytes */
        op->data += moved;
        op->offset += (uint64_t)moved;
        op->bytes -= (size_t)moved;
    }
    return 0;
}

static void plain_progress(struct store *s) {
    if (s->ready_count > 0) return;
    struct store_op *op = store_op_pop(&((struct plain_store *)s)->queue);
    if (op == NULL) return;
    int fd = ((struct posix_file *)op->file)->fd;
    int result = op->file->dead_errno;
    if (result == 0) switch (op->kind) {
        case STORE_OP_WRITE:
            result = write_out(fd, op);
            break;
        case STORE_OP_READ:
            result = read_in(fd, op);
            break;
        case STORE_OP_FLUSH:
            result = fdatasync(fd) == 0 ? 0 : errno;
            break;
        }
    store_op_finish(op, result);
}

static void plain_submit(struct store *s, struct store_op *op) {
    store_op_push(&((struct plain_store *)s)->queue, op);
}

static void plain_wait(struct store *s, int64_t timeout_ns) {
    if (s->in_flight == 0) posix_sleep(timeout_ns);
}

static uint32_t plain_depth(const struct store *s) {
    (void)s;
    return 2; /* one in the kernel, one being prepared */
}

static void plain_close(struct store *s) {
    posix_close_folder((struct posix_store *)s);
    store_deinit(s);
    free(s);
}

static const struct store_table plain_table = {
    .close = plain_close,
    .file_open = posix_file_open,
    .file_free = posix_file_free,
    .file_size = posix_file_size,
    .file_truncate = posix_file_truncate,
    .submit = plain_submit,
    .progress = plain_progress,
    .wait = plain_wait,
    .depth = plain_depth,
    .get = posix_get,
    .put = posix_put,
    .remove = posix_remove,
    .list = posix_list,
    .sync_folder = posix_sync_folder,
    .space = posix_space,
};

pawl_code store_plain_open(const char *path, bool read_only, struct store **out, struct pawl_error *e) {
    struct plain_store *p = calloc(1, sizeof *p);
    if (p == NULL) return error_set(e, PAWL_MEMORY, 0, "%s: no memory", path);
    p->posix.folder_fd = p->posix.lock_fd = -1;
    pawl_code code = store_init(&p->posix.base, &plain_table, STORE_PLAIN, path, read_only)
                         ? posix_open_folder(&p->posix, e)
                         : error_set(e, PAWL_MEMORY, 0, "%s: no memory", path);
    if (code == PAWL_OK)
        *out = &p->posix.base;
    else
        plain_close(&p->posix.base);
    return code;
}
