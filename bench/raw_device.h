/* The device by itself, to compare with: O_DIRECT through io_uring, a number of files in rotation as the
 * engine has them, without checksums and without commit; the depth and piece size that turn out best. */
#ifndef BENCH_RAW_DEVICE_H
#define BENCH_RAW_DEVICE_H

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define RAW_FILES 4u

struct raw_device {
    char folder[400];
    size_t bytes;
    uint32_t depth, next;
    size_t piece;
};

static _Noreturn void raw_stop(const char *what, const char *why) {
    fprintf(stderr, "raw device: %s: %s\n", what, why);
    exit(1);
}

/* One file, written and made durable, or read. */
static void raw_transfer(struct raw_device *r, uint8_t *data, bool write_it) {
    struct io_uring ring;
    char path[450];
    uint32_t file = write_it ? r->next++ : r->next + RAW_FILES - 1; /* the last one written */
    snprintf(path, sizeof path, "%s/raw-%u.bin", r->folder, file % RAW_FILES);
    int fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
    if (fd < 0) raw_stop(path, strerror(errno));
    if (posix_fallocate(fd, 0, (off_t)r->bytes) != 0) raw_stop(path, "cannot preallocate");
    if (io_uring_queue_init(r->depth, &ring, 0) != 0) raw_stop("io_uring", "not permitted");
    size_t next = 0, done = 0;
    uint32_t in_flight = 0;
    while (done < r->bytes) {
        while (in_flight < r->depth && next < r->bytes) {
            size_t piece = r->bytes - next < r->piece ? r->bytes - next : r->piece;
            struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
            if (write_it)
                io_uring_prep_write(sqe, fd, data + next, (unsigned)piece, next);
            else
                io_uring_prep_read(sqe, fd, data + next, (unsigned)piece, next);
            next += piece;
            in_flight++;
        }
        struct io_uring_cqe *cqe = NULL;
        if (io_uring_submit_and_wait(&ring, 1) < 0) continue;
        while (io_uring_peek_cqe(&ring, &cqe) == 0) {
            if (cqe->res <= 0 || cqe->res % 4096 != 0) raw_stop(path, "short transfer");
            done += (size_t)cqe->res;
            in_flight--;
            io_uring_cqe_seen(&ring, cqe);
        }
    }
    if (write_it && fdatasync(fd) != 0) raw_stop(path, strerror(errno));
    io_uring_queue_exit(&ring);
    close(fd);
}

/* Tries a few shapes and keeps the fastest. */
static void raw_choose(struct raw_device *r, uint8_t *data) {
    static const struct {
        uint32_t depth, kib;
    } shapes[] = {{4, 4096}, {8, 1024}, {8, 4096}, {16, 1024}, {4, 8192}, {16, 4096}};
    r->depth = 8;
    r->piece = (size_t)4 << 20;
    for (uint32_t i = 0; i < RAW_FILES; i++) raw_transfer(r, data, true);
    int64_t best = INT64_MAX;
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < 3 * sizeof shapes / sizeof shapes[0]; i++) {
        uint32_t shape = i % (sizeof shapes / sizeof shapes[0]);
        r->depth = shapes[shape].depth;
        r->piece = (size_t)shapes[shape].kib << 10;
        int64_t begin = clock_now_ns();
        raw_transfer(r, data, true);
        int64_t took = clock_now_ns() - begin;
        if (took < best) chosen = shape;
        if (took < best) best = took;
    }
    r->depth = shapes[chosen].depth;
    r->piece = (size_t)shapes[chosen].kib << 10;
}

#endif
