/* Chooses the back end of a folder by trying, never by guessing from versions or file system names alone. */
#include "store/posix.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/mem.h"

static bool say(char *out, size_t size, const char *what, int os_errno) {
    const char *name = os_errno != 0 ? strerrorname_np(os_errno) : NULL;
    snprintf(out, size, "%s%s%s%s", what, name ? " (" : "", name ? name : "", name ? ")" : "");
    return false;
}

/* What the file system itself says of direct transfers, where the kernel can tell (6.1). Where it cannot, or
 * has no opinion, trying decides. */
static bool probe_alignment(int fd, char *reason, size_t reason_size) {
#ifdef STATX_DIOALIGN
    struct statx x;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &x) != 0 || (x.stx_mask & STATX_DIOALIGN) == 0)
        return true;
    if (x.stx_dio_offset_align == 0) return say(reason, reason_size, "the file system has no direct I/O", 0);
    if (x.stx_dio_offset_align > STORE_BLOCK || x.stx_dio_mem_align > STORE_BLOCK) {
        snprintf(reason, reason_size, "direct I/O wants multiples of %u bytes at addresses of %u",
                 x.stx_dio_offset_align, x.stx_dio_mem_align);
        return false;
    }
#else
    (void)fd, (void)reason, (void)reason_size;
#endif
    return true;
}

/* One block written and read back through a ring on `fd`. */
static bool try_block(int fd, bool write_first, char *reason, size_t reason_size) {
    struct io_uring ring;
    int result = io_uring_queue_init(2, &ring, 0);
    if (result != 0) return say(reason, reason_size, "io_uring is not permitted here", -result);
    uint8_t *block = mem_alloc(STORE_BLOCK);
    bool good = block != NULL;
    if (!good) say(reason, reason_size, "no memory", 0);
    for (int pass = write_first ? 0 : 1; pass < 2 && good; pass++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
        if (pass == 0)
            io_uring_prep_write(sqe, fd, block, STORE_BLOCK, 0);
        else
            io_uring_prep_read(sqe, fd, block, STORE_BLOCK, 0);
        struct io_uring_cqe *cqe = NULL;
        int got = io_uring_submit_and_wait(&ring, 1) < 0 ? -EIO : io_uring_wait_cqe(&ring, &cqe);
        if (got == 0) {
            got = cqe->res;
            io_uring_cqe_seen(&ring, cqe);
        }
        good = got == (int)STORE_BLOCK;
        if (!good)
            say(reason, reason_size,
                pass == 0 ? "an aligned O_DIRECT write failed" : "an aligned O_DIRECT read failed",
                got < 0 ? -got : 0);
    }
    mem_free(block, STORE_BLOCK);
    io_uring_queue_exit(&ring);
    return good;
}

/* Some file of at least one block in the folder, opened for direct reading; -1: none; -2: refused. */
static int open_any_file(const char *path) {
    DIR *folder = opendir(path);
    if (folder == NULL) return -1;
    int fd = -1;
    for (const struct dirent *entry; fd == -1 && (entry = readdir(folder)) != NULL;) {
        struct stat st;
        if (fstatat(dirfd(folder), entry->d_name, &st, 0) != 0 || !S_ISREG(st.st_mode)) continue;
        if (st.st_size < (off_t)STORE_BLOCK) continue;
        fd = openat(dirfd(folder), entry->d_name, O_RDONLY | O_CLOEXEC | O_DIRECT);
        if (fd < 0 && errno == EINVAL) fd = -2;
    }
    closedir(folder);
    return fd;
}

static bool probe_reading(const char *path, char *reason, size_t reason_size) {
    int fd = open_any_file(path);
    if (fd == -2) return say(reason, reason_size, "O_DIRECT is refused", EINVAL);
    if (fd < 0) return say(reason, reason_size, "no file to try O_DIRECT on", 0);
    bool good = probe_alignment(fd, reason, reason_size) && try_block(fd, false, reason, reason_size);
    close(fd);
    return good;
}

static bool probe_writing(const char *path, char *reason, size_t reason_size) {
    int fd = posix_probe_file(path, O_DIRECT);
    if (fd < 0) return say(reason, reason_size, "O_DIRECT is refused", errno);
    bool good = probe_alignment(fd, reason, reason_size) && try_block(fd, true, reason, reason_size);
    close(fd);
    return good;
}

bool store_probe(const char *path, bool read_only, char *reason, size_t reason_size) {
    struct statfs fs;
    if (statfs(path, &fs) != 0) return say(reason, reason_size, "statfs failed", errno);
    /* Newer kernels accept O_DIRECT on tmpfs, but it has no device to bypass the cache for. */
    if (fs.f_type == TMPFS_MAGIC) return say(reason, reason_size, "tmpfs has no direct I/O", 0);
    return read_only ? probe_reading(path, reason, reason_size) : probe_writing(path, reason, reason_size);
}

static enum store_kind forced_kind(enum store_kind kind) {
    const char *text = getenv("PAWL_STORE");
    if (kind != STORE_AUTO || text == NULL) return kind;
    if (strcmp(text, "plain") == 0) return STORE_PLAIN;
    if (strcmp(text, "uring") == 0) return STORE_URING;
    if (strcmp(text, "pmem") == 0) return STORE_PMEM;
    return kind;
}

#define WHY_BYTES    160u
#define REASON_BYTES 96u

/* What was chosen, and a word about it: after a fallback the reason, else what else there is to know. */
struct choice {
    enum store_kind kind;
    bool failed; /* what was asked for cannot be had */
    char reason[REASON_BYTES];
};

/* Persistent memory where it was asked for, or where it really is. */
static bool choose_pmem(struct choice *c, const char *path, enum store_kind asked, bool read_only) {
    const char *granularity = "";
    if (asked != STORE_PMEM && (asked != STORE_AUTO || read_only)) return false;
    if (read_only) {
        say(c->reason, sizeof c->reason, "read through the file, nothing is mapped", 0);
        c->kind = STORE_PMEM;
        return true;
    }
    bool found = store_pmem_probe(path, asked == STORE_AUTO, &granularity, c->reason, sizeof c->reason);
    if (asked == STORE_AUTO && !found) { /* nothing to report: few machines have it */
        c->reason[0] = 0;
        return false;
    }
    c->kind = STORE_PMEM;
    c->failed = !found;
    if (found) snprintf(c->reason, sizeof c->reason, "granularity %s", granularity);
    return true;
}

static struct choice choose(const char *path, enum store_kind asked, bool read_only) {
    struct choice c = {.kind = STORE_PLAIN};
    if (asked == STORE_PLAIN || choose_pmem(&c, path, asked, read_only)) return c;
    bool direct = store_probe(path, read_only, c.reason, sizeof c.reason);
    if (direct) c.kind = STORE_URING;
    /* A reader of a folder with nothing to try on loses nothing by the plain path. */
    c.failed = asked == STORE_URING && !direct && !read_only;
    return c;
}

static pawl_code open_chosen(const char *path, const struct choice *c, bool read_only, struct store **s,
                             struct pawl_error *e) {
    if (c->failed)
        return error_set(e, PAWL_IO, 0, "%s: %s was asked for: %s", path,
                         c->kind == STORE_PMEM ? "persistent memory" : "io_uring with O_DIRECT", c->reason);
    if (c->kind == STORE_PMEM) return store_pmem_open(path, read_only, s, e);
    return store_uring_open(path, read_only, s, e);
}

pawl_code store_open(const char *path, enum store_kind kind, bool read_only, struct store **out, char *why,
                     struct pawl_error *e) {
    *out = NULL;
    if (path[0] == 0) return error_set(e, PAWL_ARGUMENT, 0, "store path is empty");
    if (kind == STORE_SIM)
        return error_set(e, PAWL_ARGUMENT, 0, "%s: a simulated disk is opened by storesim_open", path);
    enum store_kind asked = forced_kind(kind);
    /* Open plainly first: that makes the folder, and tells BUSY before anything is tried in it. */
    struct store *s = NULL;
    pawl_code code = store_plain_open(path, read_only, &s, e);
    if (code != PAWL_OK) return code;
    struct choice choice = choose(path, asked, read_only);
    if (choice.failed || choice.kind != STORE_PLAIN) {
        store_close(s);
        code = open_chosen(path, &choice, read_only, &s, e);
        if (code == PAWL_IO && asked == STORE_AUTO) { /* it was no more than a guess */
            say(choice.reason, sizeof choice.reason, "what was tried could not be opened", 0);
            code = store_plain_open(path, read_only, &s, e);
        }
        if (code != PAWL_OK) return code;
    }
    if (why != NULL)
        snprintf(why, WHY_BYTES, "%s%s%s%s", store_kind_name(s->kind), asked != kind ? " (PAWL_STORE)" : "",
                 choice.reason[0] ? ": " : "", choice.reason);
    *out = s;
    return PAWL_OK;
}
