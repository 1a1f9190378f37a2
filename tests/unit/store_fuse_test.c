/* A file system of our own that fails, cuts transfers short and forgets pages as told, under every real back
 * end: the only way to see io_uring meet such a device. Needs libfuse3, /dev/fuse and the right to mount. */
#include <stdio.h>

#ifndef PAWL_FUSE3
int main(void) {
    puts("built without libfuse3");
    return 77;
}
#else

#define FUSE_USE_VERSION 31
#include <fuse.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "kit/store_kit.h"

/* Shared with the process that is the file system. */
struct device {
    atomic_bool direct;                  /* no page cache: what io_uring with O_DIRECT needs */
    atomic_int write_errno, read_errno;  /* for every call while set */
    atomic_int sync_errno;               /* for the next call alone */
    atomic_size_t write_most, read_most; /* bytes a call moves; 0: all */
    char backing[300];
};
static struct device *device;

/* ---- the file system: passes on to a folder ---- */

static int backing_open(const char *path, int flags, mode_t mode) {
    char full[600];
    snprintf(full, sizeof full, "%s%s", device->backing, path);
    int fd = open(full, (flags & ~O_DIRECT) | O_CLOEXEC, mode);
    return fd < 0 ? -errno : fd;
}

static int fs_open_with(const char *path, struct fuse_file_info *info, mode_t mode) {
    int fd = backing_open(path, info->flags, mode);
    if (fd < 0) return fd;
    info->fh = (uint64_t)fd;
    info->direct_io = device->direct;
    return 0;
}

static int fs_open(const char *path, struct fuse_file_info *info) { return fs_open_with(path, info, 0); }
static int fs_create(const char *path, mode_t mode, struct fuse_file_info *info) {
    info->flags |= O_CREAT;
    return fs_open_with(path, info, mode);
}

static int fs_release(const char *path, struct fuse_file_info *info) {
    (void)path;
    return close((int)info->fh) == 0 ? 0 : -errno;
}

static int fs_getattr(const char *path, struct stat *st, struct fuse_file_info *info) {
    char full[600];
    (void)info;
    snprintf(full, sizeof full, "%s%s", device->backing, path);
    return lstat(full, st) == 0 ? 0 : -errno;
}

static int fs_write(const char *path, const char *data, size_t bytes, off_t at, struct fuse_file_info *info) {
    (void)path;
    size_t most = device->write_most;
    if (device->write_errno != 0) return -device->write_errno;
    ssize_t moved = pwrite((int)info->fh, data, most > 0 && most < bytes ? most : bytes, at);
    return moved < 0 ? -errno : (int)moved;
}

static int fs_read(const char *path, char *data, size_t bytes, off_t at, struct fuse_file_info *info) {
    (void)path;
    size_t most = device->read_most;
    if (device->read_errno != 0) return -device->read_errno;
    ssize_t moved = pread((int)info->fh, data, most > 0 && most < bytes ? most : bytes, at);
    return moved < 0 ? -errno : (int)moved;
}

static int fs_fsync(const char *path, int data_only, struct fuse_file_info *info) {
    (void)path, (void)data_only, (void)info;
    return -atomic_exchange(&device->sync_errno, 0);
}

static int fs_fsyncdir(const char *path, int data_only, struct fuse_file_info *info) {
    (void)path, (void)data_only, (void)info;
    return 0;
}

static int fs_fallocate(const char *path, int mode, off_t from, off_t bytes, struct fuse_file_info *info) {
    (void)path;
    return fallocate((int)info->fh, mode, from, bytes) == 0 ? 0 : -errno;
}

static int fs_truncate(const char *path, off_t bytes, struct fuse_file_info *info) {
    char full[600];
    (void)info;
    snprintf(full, sizeof full, "%s%s", device->backing, path);
    return truncate(full, bytes) == 0 ? 0 : -errno;
}

static int fs_unlink(const char *path) {
    char full[600];
    snprintf(full, sizeof full, "%s%s", device->backing, path);
    return unlink(full) == 0 ? 0 : -errno;
}

static int fs_statfs(const char *path, struct statvfs *v) {
    (void)path;
    return statvfs(device->backing, v) == 0 ? 0 : -errno;
}

static const struct fuse_operations operations = {
    .open = fs_open,
    .create = fs_create,
    .release = fs_release,
    .getattr = fs_getattr,
    .write = fs_write,
    .read = fs_read,
    .fsync = fs_fsync,
    .fsyncdir = fs_fsyncdir,
    .fallocate = fs_fallocate,
    .truncate = fs_truncate,
    .unlink = fs_unlink,
    .statfs = fs_statfs,
};

/* ---- the place ---- */

struct scene {
    struct place place; /* first: the kit's */
    char path[300];     /* of the mounted file system */
    pid_t server;
};

static int serve(struct fuse *fuse, int ready) {
    char yes = 1;
    if (write(ready, &yes, 1) != 1) return 1;
    return fuse_loop(fuse);
}

static pid_t start_server(const char *path) {
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *arguments[] = {(char[]){"pawl-test"}, NULL};
        struct fuse_args args = FUSE_ARGS_INIT(1, arguments);
        struct fuse *fuse = fuse_new(&args, &operations, sizeof operations, NULL);
        close(ready[0]);
        if (fuse == NULL || fuse_mount(fuse, path) != 0) _exit(77);
        _exit(serve(fuse, ready[1]));
    }
    close(ready[1]);
    char yes = 0;
    ssize_t got = pid < 0 ? 0 : read(ready[0], &yes, 1);
    close(ready[0]);
    if (got == 1) return pid;
    if (pid > 0) waitpid(pid, NULL, 0);
    return -1;
}

static int scene_begin(void **state, enum store_kind kind) {
    struct scene *c = calloc(1, sizeof *c);
    assert_non_null(c);
    struct place *made = NULL;
    assert_int_equal(kit_begin((void **)&made, kind), 0);
    c->place = *made;
    free(made);
    memset(device, 0, sizeof *device);
    device->direct = kind == STORE_URING;
    snprintf(device->backing, sizeof device->backing, "%s/backing", c->place.path);
    snprintf(c->path, sizeof c->path, "%s/mounted", c->place.path);
    assert_int_equal(mkdir(device->backing, 0777), 0);
    assert_int_equal(mkdir(c->path, 0777), 0);
    c->server = start_server(c->path);
    *state = c;
    return 0;
}
static int begin_plain(void **state) { return scene_begin(state, STORE_PLAIN); }
static int begin_uring(void **state) { return scene_begin(state, STORE_URING); }
static int begin_pmem(void **state) { return scene_begin(state, STORE_PMEM); }

static int scene_end(void **state) {
    struct scene *c = *state;
    if (c->server > 0) {
        umount2(c->path, MNT_DETACH);
        kill(c->server, SIGTERM);
        waitpid(c->server, NULL, 0);
    }
    return kit_end(state);
}

#define BLOCKS 24u
#define BYTES  (BLOCKS * STORE_BLOCK)

struct work {
    struct store *s;
    struct store_file *f;
    uint8_t *out, *in;
};

static struct work work_begin(struct scene *c) {
    struct work w = {0};
    struct pawl_error e = {0};
    if (c->server < 0) {
        print_message("no right to mount\n");
        skip();
    }
    if (store_open(c->path, c->place.kind, false, &w.s, NULL, &e) != PAWL_OK) {
        if (c->place.kind != STORE_PMEM) fail_msg("%s", e.text);
        print_message("%s\n", e.text);
        skip();
    }
    w.f = kit_file(w.s, "a", BYTES);
    w.out = mem_alloc(BYTES);
    w.in = mem_alloc(BYTES);
    for (size_t i = 0; i < BYTES; i++) w.out[i] = (uint8_t)(i * 7 + i / 4096 + 1);
    return w;
}

static void work_end(struct work *w) {
    store_file_close(w->f);
    store_close(w->s);
    mem_free(w->out, BYTES);
    mem_free(w->in, BYTES);
}

static struct store_completion transfer(struct work *w, bool write_it) {
    pawl_code code =
        write_it ? store_write(w->f, 0, w->out, BYTES, 1, NULL) : store_read(w->f, 0, w->in, BYTES, 2, NULL);
    assert_int_equal(code, PAWL_OK);
    return kit_next(w->s);
}

static struct store_completion flush(struct work *w) {
    assert_int_equal(store_flush(w->f, 3, NULL), PAWL_OK);
    return kit_next(w->s);
}

static void expect(struct store_completion c, pawl_code code, int os_errno) {
    assert_string_equal(pawl_code_name(c.code), pawl_code_name(code));
    assert_int_equal(c.os_errno, os_errno);
}

static void a_sound_device_returns_what_it_was_given(void **state) {
    struct work w = work_begin(*state);
    expect(transfer(&w, true), PAWL_OK, 0);
    expect(flush(&w), PAWL_OK, 0);
    expect(transfer(&w, false), PAWL_OK, 0);
    assert_memory_equal(w.in, w.out, BYTES);
    work_end(&w);
}

/* The kernel itself goes on after a short transfer, or calls it an error, before we see it. */
static void a_transfer_cut_short_is_whole_in_the_end_or_an_error(void **state) {
    struct work w = work_begin(*state);
    device->write_most = 2 * STORE_BLOCK + 100;
    struct store_completion c = transfer(&w, true);
    device->write_most = 0;
    if (c.code == PAWL_OK) expect(transfer(&w, false), PAWL_OK, 0);
    if (c.code == PAWL_OK) assert_memory_equal(w.in, w.out, BYTES);
    if (c.code != PAWL_OK) expect(c, PAWL_IO, EIO);
    expect(transfer(&w, true), PAWL_OK, 0);
    device->read_most = STORE_BLOCK + 1;
    c = transfer(&w, false);
    if (c.code != PAWL_OK) expect(c, PAWL_IO, EIO);
    if (c.code == PAWL_OK) assert_memory_equal(w.in, w.out, BYTES);
    device->read_most = 0;
    expect(transfer(&w, false), PAWL_OK, 0);
    assert_memory_equal(w.in, w.out, BYTES);
    work_end(&w);
}

static void an_error_of_the_device_reaches_the_completion(void **state) {
    struct work w = work_begin(*state);
    if (store_kind_of(w.s) != STORE_PMEM) { /* which writes to memory first */
        device->write_errno = EIO;
        expect(transfer(&w, true), PAWL_IO, EIO);
        device->write_errno = ENOSPC;
        expect(transfer(&w, true), PAWL_NO_SPACE, ENOSPC);
        device->write_errno = 0;
    }
    device->read_errno = EIO;
    expect(transfer(&w, false), PAWL_IO, EIO);
    device->read_errno = 0;
    expect(transfer(&w, true), PAWL_OK, 0);
    work_end(&w);
}

static void what_fails_on_its_way_from_memory_to_the_device_fails_the_flush(void **state) {
    struct work w = work_begin(*state);
    expect(transfer(&w, true), PAWL_OK, 0);
    device->write_errno = EIO;
    expect(transfer(&w, true), PAWL_OK, 0);
    expect(flush(&w), PAWL_IO, EIO);
    device->write_errno = 0;
    expect(flush(&w), PAWL_IO, EIO); /* final */
    work_end(&w);
}

static void a_failed_flush_is_final_though_the_device_recovers(void **state) {
    struct work w = work_begin(*state);
    expect(transfer(&w, true), PAWL_OK, 0);
    device->sync_errno = EIO;
    for (uint64_t i = 0; i < 4; i++) assert_int_equal(store_flush(w.f, i, NULL), PAWL_OK);
    for (uint64_t i = 0; i < 4; i++) expect(kit_next(w.s), PAWL_IO, EIO);
    expect(transfer(&w, true), PAWL_IO, EIO);
    expect(flush(&w), PAWL_IO, EIO);
    work_end(&w);
}

#define ON(test, begin, where)                                                                               \
    { #test " (" where ")", test, begin, scene_end, NULL }
#define ANYWHERE(test)                                                                                       \
    ON(test, begin_plain, "plain"), ON(test, begin_uring, "io_uring"),                                       \
        ON(test, begin_pmem, "persistent memory")

int main(void) {
    device = mmap(NULL, sizeof *device, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (device == MAP_FAILED) return 1;
    const struct CMUnitTest tests[] = {
        ANYWHERE(a_sound_device_returns_what_it_was_given),
        ON(a_transfer_cut_short_is_whole_in_the_end_or_an_error, begin_uring, "io_uring"),
        ANYWHERE(an_error_of_the_device_reaches_the_completion),
        ON(what_fails_on_its_way_from_memory_to_the_device_fails_the_flush, begin_pmem, "persistent memory"),
        ANYWHERE(a_failed_flush_is_final_though_the_device_recovers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
