/* See device.h. Deliberately independent of the store module, whose work it is held against. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "tune/device.h"
#include "tune/scratch.h"

struct transfer {
    int fd;
    bool write;
    uint8_t *data; /* a write does not change it */
    uint64_t bytes;
    struct device_way way;
    const char *path;
};

static void path_of(const struct device_files *f, uint32_t number, char path[4200]) {
    snprintf(path, 4200, "%s/%s-%u", f->folder, f->name, number);
}

static pawl_code failed(const struct transfer *t, int os_errno, struct pawl_error *e) {
    return error_set(e, error_code_of_errno(os_errno), os_errno, "%s: %s failed", t->path,
                     t->write ? "writing" : "reading");
}

static pawl_code stopped(struct pawl_error *e) {
    return error_set(e, PAWL_TIMEOUT, 0, "stopped by signal %d", scratch_stopped());
}

/* ---- files ---- */

pawl_code device_files_make(struct device_files *f, struct pawl_error *e) {
    for (uint32_t i = 0; i < f->count; i++) {
        char path[4200];
        path_of(f, i, path);
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) return error_set(e, error_code_of_errno(errno), errno, "%s: cannot be made", path);
        int failure = posix_fallocate(fd, 0, (off_t)f->bytes);
        close(fd);
        if (failure != 0)
            return error_set(e, error_code_of_errno(failure), failure, "%s: no %llu bytes", path,
                             (unsigned long long)f->bytes);
    }
    return PAWL_OK;
}

void device_files_remove(const struct device_files *f) {
    char path[4200];
    for (uint32_t i = 0; i < f->count; i++) {
        path_of(f, i, path);
        (void)unlink(path);
    }
}

/* ---- what there is ---- */

static bool direct_works(const char *folder) {
    char path[4200];
    void *block = mem_alloc(STORE_BLOCK);
    snprintf(path, sizeof path, "%s/direct", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    bool works = fd >= 0 && block != NULL && pwrite(fd, block, STORE_BLOCK, 0) == STORE_BLOCK;
    if (fd >= 0) close(fd);
    (void)unlink(path);
    mem_free(block, STORE_BLOCK);
    return works;
}

struct device_way device_probe(const char *folder) {
    struct io_uring ring;
    struct device_way way = {.direct = direct_works(folder), .depth = 1, .piece_bytes = (uint64_t)8 << 20};
    if (way.direct && io_uring_queue_init(1, &ring, 0) == 0) {
        io_uring_queue_exit(&ring);
        way.uring = true;
        way.depth = 8;
        way.piece_bytes = (uint64_t)4 << 20;
    }
    return way;
}

const char *device_way_name(struct device_way way) {
    return way.uring ? "io_uring+O_DIRECT" : way.direct ? "O_DIRECT" : "page cache";
}

/* ---- transfers ---- */

static void submit(const struct transfer *t, struct io_uring *ring, uint64_t at) {
    uint64_t left = t->bytes - at, piece = left < t->way.piece_bytes ? left : t->way.piece_bytes;
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    if (t->write)
        io_uring_prep_write(sqe, t->fd, t->data + at, (unsigned)piece, at);
    else
        io_uring_prep_read(sqe, t->fd, t->data + at, (unsigned)piece, at);
    io_uring_sqe_set_data64(sqe, piece);
}

/* 0, or the errno of one that ended; a short transfer counts as EIO. */
static int reap(struct io_uring *ring, uint32_t *in_flight, uint64_t *done) {
    struct io_uring_cqe *cqe;
    int failure = 0;
    while (io_uring_peek_cqe(ring, &cqe) == 0) {
        if (cqe->res < 0) failure = -cqe->res;
        if (cqe->res >= 0 && (uint64_t)cqe->res != io_uring_cqe_get_data64(cqe)) failure = EIO;
        if (cqe->res > 0) *done += (uint64_t)cqe->res;
        io_uring_cqe_seen(ring, cqe);
        --*in_flight;
    }
    return failure;
}

static pawl_code transfer_uring(const struct transfer *t, struct pawl_error *e) {
    struct io_uring ring;
    uint64_t next = 0, done = 0;
    uint32_t in_flight = 0;
    int failure = -io_uring_queue_init(t->way.depth, &ring, 0);
    if (failure != 0) return failed(t, failure, e);
    bool stop = scratch_stopped() != 0;
    while (failure != 0 || stop ? in_flight > 0 : done < t->bytes) {
        for (; failure == 0 && !stop && in_flight < t->way.depth && next < t->bytes; in_flight++) {
            submit(t, &ring, next);
            next += t->bytes - next < t->way.piece_bytes ? t->bytes - next : t->way.piece_bytes;
        }
        int code = io_uring_submit_and_wait(&ring, 1);
        if (code < 0 && code != -EINTR && failure == 0) failure = -code;
        if (code < 0 && code != -EINTR) break; /* nothing more will come of this ring */
        int reaped = reap(&ring, &in_flight, &done);
        if (failure == 0) failure = reaped;
        stop = stop || scratch_stopped() != 0;
    }
    io_uring_queue_exit(&ring);
    if (failure != 0) return failed(t, failure, e);
    return stop && done < t->bytes ? stopped(e) : PAWL_OK;
}

static pawl_code transfer_plain(const struct transfer *t, struct pawl_error *e) {
    for (uint64_t at = 0; at < t->bytes;) {
        if (scratch_stopped() != 0) return stopped(e);
        uint64_t left = t->bytes - at, piece = left < t->way.piece_bytes ? left : t->way.piece_bytes;
        ssize_t moved = t->write ? pwrite(t->fd, t->data + at, piece, (off_t)at)
                                 : pread(t->fd, t->data + at, piece, (off_t)at);
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) return failed(t, moved < 0 ? errno : EIO, e);
        at += (uint64_t)moved;
    }
    return PAWL_OK;
}

static pawl_code transfer(const struct device_files *f, uint32_t number, struct transfer t,
                          struct pawl_error *e) {
    char path[4200];
    path_of(f, number, path);
    t.path = path;
    t.bytes = f->bytes;
    t.fd = open(path, (t.write ? O_WRONLY : O_RDONLY) | (t.way.direct ? O_DIRECT : 0) | O_CLOEXEC);
    if (t.fd < 0) return failed(&t, errno, e);
    /* A reader through the page cache must not be given what it has just written. */
    if (!t.write && !t.way.direct) (void)posix_fadvise(t.fd, 0, 0, POSIX_FADV_DONTNEED);
    pawl_code code = t.way.uring ? transfer_uring(&t, e) : transfer_plain(&t, e);
    if (code == PAWL_OK && t.write && fdatasync(t.fd) != 0) code = failed(&t, errno, e);
    close(t.fd);
    return code;
}

pawl_code device_write(struct device_files *f, struct device_way way, const void *data,
                       struct pawl_error *e) {
    f->next = (f->next + 1) % f->count;
    return transfer(f, f->next,
                    (struct transfer){.write = true, .way = way, .data = (uint8_t *)(uintptr_t)data}, e);
}

pawl_code device_read(struct device_files *f, struct device_way way, void *data, struct pawl_error *e) {
    return transfer(f, f->next, (struct transfer){.way = way, .data = data}, e);
}
