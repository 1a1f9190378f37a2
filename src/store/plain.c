/* Plain files: page cache, pwrite, fdatasync. For tmpfs, overlay file systems and places without io_uring.
 *
 * A few threads do the operations, so that the owner never sleeps in a transfer. Write-back starts with each
 * write, so that the flush at the end finds little left to do. */
#include "store/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/pool.h"

/* One copies while the other waits for the device. */
#define PLAIN_DEPTH 2u

struct plain_store {
    struct posix_store posix;
    struct pool pool;
    bool pool_made;
};

static struct pool *pool_of(struct store *s) { return &((struct plain_store *)s)->pool; }

static int write_out(int fd, struct store_op *op) {
    off_t begin = (off_t)op->offset, total = (off_t)op->bytes;
    int result = posix_write_at(fd, op);
    /* Only a hint: durability is the flush's business, and some file systems lack it. */
    if (result == 0) (void)sync_file_range(fd, begin, total, SYNC_FILE_RANGE_WRITE);
    return result;
}

static int plain_run(struct store_op *op) {
    int fd = ((struct posix_file *)op->file)->fd;
    switch (op->kind) {
    case STORE_OP_WRITE:
        return write_out(fd, op);
    case STORE_OP_READ:
        return posix_read_at(fd, op);
    case STORE_OP_FLUSH:
        return fdatasync(fd) == 0 ? 0 : errno;
    }
    return EINVAL;
}

static void plain_submit(struct store *s, struct store_op *op) { pool_submit(pool_of(s), op); }
static void plain_progress(struct store *s) { pool_progress(pool_of(s)); }
static void plain_wait(struct store *s, int64_t timeout_ns) { pool_wait(pool_of(s), timeout_ns); }
static void plain_wake(struct store *s) { pool_wake(pool_of(s)); }
static void plain_depth_changed(struct store *s) { pool_resize(pool_of(s), s->depth); }

static void plain_close(struct store *s) {
    struct plain_store *p = (struct plain_store *)s;
    if (p->pool_made) pool_close(&p->pool);
    posix_close_folder(&p->posix);
    store_deinit(s);
    free(p);
}

static const struct store_table plain_table = {
    .close = plain_close,
    .file_open = posix_file_open,
    .file_free = posix_file_free,
    .file_size = posix_file_size,
    .file_truncate = posix_file_truncate,
    .is_cached = posix_is_cached,
    .read_cached = posix_read_cached,
    .submit = plain_submit,
    .progress = plain_progress,
    .wait = plain_wait,
    .wake = plain_wake,
    .depth_changed = plain_depth_changed,
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
    struct store *s = &p->posix.base;
    p->posix.folder_fd = p->posix.lock.fd = -1;
    bool made = store_init(s, &plain_table, STORE_PLAIN, path, read_only, PLAIN_DEPTH);
    made = made && (p->pool_made = pool_init(&p->pool, s, plain_run));
    pawl_code code =
        made ? posix_open_folder(&p->posix, e) : error_set(e, PAWL_MEMORY, 0, "%s: no memory", path);
    if (code == PAWL_OK)
        *out = s;
    else
        plain_close(s);
    return code;
}
