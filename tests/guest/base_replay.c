/* Replays a log of dm-log-writes, as a disk would have it after a power cut at some entry. The layout is in
 * the kernel's Documentation/admin-guide/device-mapper/log-writes.rst and drivers/md/dm-log-writes.c.
 *
 *   guest_base_replay list LOG                        one line an entry: number, flags, sectors, mark
 *   guest_base_replay apply LOG TARGET FROM TO        entries FROM..TO-1, in order
 *   guest_base_replay tear LOG TARGET FROM TO SEED    of these, what a cache without power keeps: a part of
 *                                                     the writes, some torn at 512 bytes
 *
 * A tear spares what was forced to the medium (FUA); the caller chooses FROM..TO without a flush inside.
 * Every field of the log is checked. Exit 1: damaged log or failed I/O. Tested in tests/e2e/guest_test.py. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/rng.h"

#define LOG_MAGIC   UINT64_C(0x6a736677736872) /* "jsfwshr" as the kernel writes it */
#define LOG_VERSION 1u
#define SECTOR      512u

#define ENTRY_FLUSH    1u
#define ENTRY_FUA      2u
#define ENTRY_DISCARD  4u
#define ENTRY_MARK     8u
#define ENTRY_METADATA 16u
#define ENTRY_KNOWN    31u

/* Superblock, little-endian: magic 0 8, version 8 8, entries 16 8, sector size 24 4. An entry: sector 0 8,
 * sectors 8 8, flags 16 8, bytes of the mark 24 8, then the mark; padded to a sector, the data behind it. */
#define ENTRY_HEAD 32u

struct log_entry {
    uint64_t sector, sectors, flags, mark_bytes;
    uint64_t data; /* byte offset in the log */
    char mark[SECTOR];
};

struct log {
    const char *path;
    int fd;
    uint64_t entries, sector_bytes, at; /* where the next entry begins */
};

static _Noreturn void stop(const char *path, const char *what, uint64_t offset) {
    fprintf(stderr, "%s: offset %" PRIu64 ": %s%s%s\n", path, offset, what, errno ? ": " : "",
            errno ? strerror(errno) : "");
    exit(1);
}

static void read_at(const struct log *log, void *out, size_t bytes, uint64_t offset) {
    errno = 0;
    if (pread(log->fd, out, bytes, (off_t)offset) != (ssize_t)bytes) stop(log->path, "cannot read", offset);
}

static void log_open(struct log *log, const char *path) {
    uint8_t head[SECTOR];
    *log = (struct log){.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (log->fd < 0) stop(path, "cannot open", 0);
    read_at(log, head, sizeof head, 0);
    struct reader r = reader_of(head, sizeof head);
    if (reader_u64(&r) != LOG_MAGIC) stop(path, "no log of dm-log-writes", 0);
    if (reader_u64(&r) != LOG_VERSION) stop(path, "a version of the log that is not 1", 8);
    log->entries = reader_u64(&r);
    log->sector_bytes = reader_u32(&r);
    if (log->sector_bytes < SECTOR || log->sector_bytes > 4096 ||
        (log->sector_bytes & (log->sector_bytes - 1)) != 0)
        stop(path, "a sector size that is no power of two from 512 to 4096", 24);
    log->at = log->sector_bytes;
}

static void log_next(struct log *log, struct log_entry *out) {
    uint8_t head[4096];
    read_at(log, head, log->sector_bytes, log->at);
    struct reader r = reader_of(head, log->sector_bytes);
    out->sector = reader_u64(&r);
    out->sectors = reader_u64(&r);
    out->flags = reader_u64(&r);
    out->mark_bytes = reader_u64(&r);
    errno = 0;
    if ((out->flags & ~(uint64_t)ENTRY_KNOWN) != 0) stop(log->path, "unknown flags", log->at + 16);
    if (out->mark_bytes >= SECTOR - ENTRY_HEAD) stop(log->path, "a mark that is too long", log->at + 24);
    if (out->sectors > UINT32_MAX) stop(log->path, "too many sectors", log->at + 8);
    memcpy(out->mark, head + ENTRY_HEAD, out->mark_bytes);
    out->mark[out->mark_bytes] = 0;
    out->data = log->at + log->sector_bytes;
    bool has_data = (out->flags & ENTRY_DISCARD) == 0;
    log->at = out->data + (has_data ? out->sectors * log->sector_bytes : 0);
}

static int list(const char *path) {
    struct log log;
    struct log_entry entry;
    log_open(&log, path);
    for (uint64_t i = 0; i < log.entries; i++) {
        log_next(&log, &entry);
        printf("%" PRIu64 " %s%s%s%s%s %" PRIu64 " %s\n", i, entry.flags & ENTRY_FLUSH ? "F" : "",
               entry.flags & ENTRY_FUA ? "U" : "", entry.flags & ENTRY_DISCARD ? "D" : "",
               entry.flags & ENTRY_MARK ? "M" : "", entry.flags & 7u || entry.flags & ENTRY_MARK ? "" : "-",
               entry.sectors, entry.mark_bytes > 0 ? entry.mark : "-");
    }
    return 0;
}

struct chance { /* which sectors of a torn cache survive; whole: all do */
    bool whole;
    struct rng_stream random;
    uint32_t kept_percent;
};

/* A write survives whole, or not, or (one in four) sector by sector. */
static bool survives(struct chance *c, bool *torn) {
    *torn = rng_below(&c->random, 4) == 0;
    return *torn || rng_below(&c->random, 100) < c->kept_percent;
}

static void write_at(const char *path, int fd, const uint8_t *data, size_t bytes, uint64_t offset) {
    errno = 0;
    if (pwrite(fd, data, bytes, (off_t)offset) != (ssize_t)bytes) stop(path, "cannot write", offset);
}

static void apply_data(const struct log *log, const struct log_entry *entry, const char *path, int fd,
                       struct chance *c) {
    bool whole = c->whole || (entry->flags & ENTRY_FUA) != 0, torn = false;
    if (!whole && !survives(c, &torn)) return;
    size_t bytes = entry->sectors * log->sector_bytes;
    uint64_t to = entry->sector * log->sector_bytes;
    uint8_t *data = malloc(bytes + 1);
    if (data == NULL) stop(path, "no memory", to);
    if ((entry->flags & ENTRY_DISCARD) != 0)
        memset(data, 0, bytes);
    else
        read_at(log, data, bytes, entry->data);
    if (whole || !torn) {
        write_at(path, fd, data, bytes, to);
    } else {
        for (size_t i = 0; i < bytes; i += SECTOR)
            if (rng_below(&c->random, 2) == 0) write_at(path, fd, data + i, SECTOR, to + i);
    }
    free(data);
}

static int apply(const char *path, const char *target, uint64_t from, uint64_t to, struct chance c) {
    struct log log;
    struct log_entry entry;
    log_open(&log, path);
    int fd = open(target, O_WRONLY | O_CLOEXEC);
    if (fd < 0) stop(target, "cannot open", 0);
    errno = 0;
    if (from > to || to > log.entries) stop(path, "has fewer entries", 16);
    for (uint64_t i = 0; i < to; i++) {
        log_next(&log, &entry);
        if (i >= from && entry.sectors > 0 && (entry.flags & ENTRY_MARK) == 0)
            apply_data(&log, &entry, target, fd, &c);
    }
    close(log.fd);
    return close(fd) == 0 ? 0 : 1;
}

int main(int count, char **words) {
    if (count == 3 && strcmp(words[1], "list") == 0) return list(words[2]);
    bool tear = count == 7 && strcmp(words[1], "tear") == 0;
    if (!tear && (count != 6 || strcmp(words[1], "apply") != 0)) {
        fprintf(stderr, "wanted: list LOG | apply LOG TARGET FROM TO | tear LOG TARGET FROM TO SEED\n");
        return 2;
    }
    struct chance c = {.whole = !tear};
    if (tear) {
        c.random.state = strtoull(words[6], NULL, 10);
        c.kept_percent = (uint32_t)rng_below(&c.random, 101);
    }
    return apply(words[2], words[3], strtoull(words[4], NULL, 10), strtoull(words[5], NULL, 10), c);
}
