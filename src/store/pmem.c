/* Persistent memory by libpmem2: a file is mapped, a write is a copy past the caches and one drain.
 *
 * What makes bytes durable depends on the mapping's granularity. Cache line and byte (a DAX file system,
 * mapped so that its metadata is durable too): the drain, after which a flush has nothing left to do. Page
 * (any other file system, for trials): the flush writes back the pages of the ranges written, and only those;
 * through msync, because the library's own persist function drops the error. Reads go through the file, where
 * a bad page is an error; through the mapping it would be a signal.
 *
 * Files are preallocated without holes and every page is asked for before it is written, so that a full disk,
 * a file cut behind our back and a bad page are errors of the write. What is left: a file cut by somebody
 * else in the very moment of the copy still ends the process (SIGBUS). Built without libpmem2, opening says
 * so. Tested in tests/unit/store_files_test.c, store_faults_test.c. */
#include "store/internal.h"

#include <stdio.h>

#ifndef PAWL_PMEM2

bool store_pmem_probe(const char *path, bool only_dax, const char **granularity, char *reason,
                      size_t reason_size) {
    (void)path, (void)only_dax;
    *granularity = "";
    snprintf(reason, reason_size, "this build has no libpmem2");
    return false;
}

pawl_code store_pmem_open(const char *path, bool read_only, struct store **out, struct pawl_error *e) {
    (void)read_only;
    (void)out;
    return error_set(e, PAWL_IO, 0, "%s: persistent memory: this build has no libpmem2", path);
}

#else

#include <errno.h>
#include <fcntl.h>
#include <libpmem2.h>
#include <linux/stat.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/pool.h"
#include "store/posix.h"
#include "store/ranges.h"

/* Two threads copy what this many memory controllers take; more get in each other's way. */
#define PMEM_DEPTH 2u
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct mapping {
    struct mapping *older; /* still used by operations that were submitted before the file grew */
    struct pmem2_map *map;
    uint8_t *address;
    uint64_t bytes;
    bool by_page;
    pmem2_memcpy_fn copy;
    pmem2_drain_fn drain;
};

struct pmem_file {
    struct posix_file posix;
    uint64_t bytes; /* as long as we made it; 0: not looked at yet */
    struct mapping *mapping;
    pthread_mutex_t mutex; /* the ranges */
    bool mutex_made;
    struct ranges dirty;
};

struct pmem_store {
    struct posix_store posix;
    struct pool pool;
    bool pool_made;
};

static struct pool *pool_of(struct store *s) { return &((struct pmem_store *)s)->pool; }

static const char *granularity_name(enum pmem2_granularity granularity) {
    switch (granularity) {
    case PMEM2_GRANULARITY_BYTE:
        return "byte";
    case PMEM2_GRANULARITY_CACHE_LINE:
        return "cache line";
    case PMEM2_GRANULARITY_PAGE:
        return "page";
    }
    return "unknown";
}

/* ---- mappings ---- */

/* The library's codes are errnos, negative, or its own. */
static int errno_of(int pmem2_result) {
    return pmem2_result < 0 && pmem2_result > -4096 ? -pmem2_result : EIO;
}

struct request {
    int fd;
    uint64_t bytes;
    struct pmem2_map *map;
    int result;
};

static void map_here(struct request *r) {
    struct pmem2_source *source = NULL;
    struct pmem2_config *config = NULL;
    int result = pmem2_source_from_fd(&source, r->fd);
    if (result == 0) result = pmem2_config_new(&config);
    if (result == 0) result = pmem2_config_set_required_store_granularity(config, PMEM2_GRANULARITY_PAGE);
    if (result == 0) result = pmem2_config_set_length(config, (size_t)r->bytes);
    if (result == 0) result = pmem2_map_new(&r->map, config, source);
    if (config != NULL) pmem2_config_delete(&config);
    if (source != NULL) pmem2_source_delete(&source);
    r->result = result == 0 ? 0 : errno_of(result);
}

static void *map_thread(void *arg) {
    (void)unshare(CLONE_FS);
    map_here(arg);
    return NULL;
}

/* The first `bytes` of the file: 0 or an errno. The library looks for devices by walking a folder of the
 * system, and changes the working directory of whoever calls for that long: a thread that has one to itself
 * does it, so that nobody else's relative path leads elsewhere. */
static int map_file(int fd, uint64_t bytes, struct pmem2_map **out) {
    struct request r = {.fd = fd, .bytes = bytes};
    pthread_t thread;
    int result = pthread_create(&thread, NULL, map_thread, &r);
    if (result != 0) return result;
    pthread_join(thread, NULL);
    *out = r.map;
    return r.result;
}

static void unmap(struct mapping *m) {
    while (m != NULL) {
        struct mapping *older = m->older;
        if (m->map != NULL) pmem2_map_delete(&m->map);
        free(m);
        m = older;
    }
}

/* All whole blocks of the file. */
static int map_add(struct pmem_file *f) {
    struct mapping *m = calloc(1, sizeof *m);
    if (m == NULL) return ENOMEM;
    m->bytes = f->bytes - f->bytes % STORE_BLOCK;
    int result = map_file(f->posix.fd, m->bytes, &m->map);
    if (result != 0) {
        free(m);
        return result;
    }
    m->address = pmem2_map_get_address(m->map);
    m->by_page = pmem2_map_get_store_granularity(m->map) == PMEM2_GRANULARITY_PAGE;
    m->copy = pmem2_get_memcpy_fn(m->map);
    m->drain = pmem2_get_drain_fn(m->map);
    if (f->posix.base.in_flight > 1) /* besides the one that asks */
        m->older = f->mapping;
    else
        unmap(f->mapping);
    f->mapping = m;
    return 0;
}

/* Every byte up to `bytes` has its place on the device, and the device knows: a flush will not say it again.
 */
static int fill_holes(struct pmem_file *f, uint64_t bytes) {
    int fd = f->posix.fd, result = 0;
    struct stat st;
    if (fstat(fd, &st) != 0) return errno;
    bool holes = (uint64_t)st.st_blocks * 512 < bytes || (uint64_t)st.st_size < bytes;
    if (holes) result = posix_preallocate(fd, 0, bytes);
    if (result == 0 && (holes || f->posix.grown) && fsync(fd) != 0) result = errno;
    if (result != 0) return result;
    f->posix.grown = false;
    f->bytes = bytes > (uint64_t)st.st_size ? bytes : (uint64_t)st.st_size;
    return 0;
}

/* A mapping that covers the file up to `end`. */
static int map_up_to(struct pmem_file *f, uint64_t end) {
    if (f->mapping != NULL && end <= f->bytes && end <= f->mapping->bytes) return 0;
    struct stat st;
    if (fstat(f->posix.fd, &st) != 0) return errno;
    int result = fill_holes(f, end > (uint64_t)st.st_size ? end : (uint64_t)st.st_size);
    return result == 0 ? map_add(f) : result;
}

/* ---- operations, on the pool's threads ---- */

/* The pages to be written are there: what would be a signal during the copy is an errno here. */
static int ask_for_pages(uint8_t *address, size_t bytes) {
    static atomic_bool unknown; /* to this kernel, before 5.14 */
    if (atomic_load(&unknown)) return 0;
    int result;
    do result = madvise(address, bytes, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
    while (result == EINTR || result == EAGAIN);
    if (result == EINVAL) atomic_store(&unknown, true);
    return result == 0 || result == EINVAL ? 0 : result == ENOMEM ? ENOMEM : EIO;
}

static int write_mapped(struct pmem_file *f, struct store_op *op) {
    const struct mapping *m = op->place;
    struct stat st;
    if (m == NULL) return op->result; /* it could not be mapped */
    if (fstat(f->posix.fd, &st) != 0) return errno;
    if ((uint64_t)st.st_size < op->offset + op->bytes) return EIO; /* somebody cut it */
    uint8_t *to = m->address + op->offset;
    int result = ask_for_pages(to, op->bytes);
    if (result != 0) return result;
    if (m->by_page) {
        memcpy(to, op->data, op->bytes);
        pthread_mutex_lock(&f->mutex);
        ranges_add(&f->dirty, op->offset, op->offset + op->bytes);
        pthread_mutex_unlock(&f->mutex);
        return 0;
    }
    m->copy(to, op->data, op->bytes, PMEM2_F_MEM_NONTEMPORAL | PMEM2_F_MEM_NODRAIN);
    m->drain();
    return 0;
}

static int flush_mapped(struct pmem_file *f, const struct mapping *m) {
    /* Nothing written here: what another process left in the page cache or in a processor's cache. */
    if (m == NULL) return fdatasync(f->posix.fd) == 0 ? 0 : errno;
    pthread_mutex_lock(&f->mutex);
    struct ranges dirty = f->dirty;
    f->dirty.count = 0;
    pthread_mutex_unlock(&f->mutex);
    int result = 0; /* every range is tried: a failure ends the file anyway */
    for (uint32_t i = 0; i < dirty.count; i++) {
        const struct range *r = &dirty.items[i];
        uint64_t end = r->end < m->bytes ? r->end : m->bytes; /* what was cut off needs no flush */
        if (r->begin < end && msync(m->address + r->begin, end - r->begin, MS_SYNC) != 0) result = errno;
    }
    return result;
}

static int pmem_run(struct store_op *op) {
    struct pmem_file *f = (struct pmem_file *)op->file;
    switch (op->kind) {
    case STORE_OP_WRITE:
        return write_mapped(f, op);
    case STORE_OP_READ:
        return posix_read_at(f->posix.fd, op);
    case STORE_OP_FLUSH:
        return flush_mapped(f, op->place);
    }
    return EINVAL;
}

/* The owner maps, so that threads find what they need in the operation. */
static void pmem_submit(struct store *s, struct store_op *op) {
    struct pmem_file *f = (struct pmem_file *)op->file;
    if (op->kind == STORE_OP_WRITE) {
        op->result = map_up_to(f, op->offset + op->bytes);
        if (op->result == 0) op->place = f->mapping;
    }
    if (op->kind == STORE_OP_FLUSH) op->place = f->mapping;
    pool_submit(pool_of(s), op);
}

static void pmem_progress(struct store *s) { pool_progress(pool_of(s)); }
static void pmem_wait(struct store *s, int64_t timeout_ns) { pool_wait(pool_of(s), timeout_ns); }
static void pmem_wake(struct store *s) { pool_wake(pool_of(s)); }
static void pmem_depth_changed(struct store *s) { pool_resize(pool_of(s), s->depth); }

/* ---- files and the store ---- */

static void pmem_file_free(struct store_file *file) {
    struct pmem_file *f = (struct pmem_file *)file;
    unmap(f->mapping);
    if (f->mutex_made) pthread_mutex_destroy(&f->mutex);
    posix_file_free(file);
}

static pawl_code pmem_file_open(struct store *s, const char *name, bool create, uint64_t bytes,
                                struct store_file **out, struct pawl_error *e) {
    pawl_code code = posix_file_open(s, name, create, bytes, out, e);
    if (code != PAWL_OK) return code;
    struct pmem_file *f = (struct pmem_file *)*out;
    f->mutex_made = pthread_mutex_init(&f->mutex, NULL) == 0;
    int result = !f->mutex_made ? ENOMEM : bytes == 0 ? 0 : fill_holes(f, bytes);
    if (result == 0) return PAWL_OK;
    pmem_file_free(*out);
    *out = NULL;
    return error_set(e, error_code_of_errno(result), result, "%s/%s: cannot preallocate %llu bytes", s->path,
                     name, (unsigned long long)bytes);
}

/* The new length is durable at once, since no flush will care. */
static pawl_code pmem_file_truncate(struct store_file *file, uint64_t bytes, struct pawl_error *e) {
    struct pmem_file *f = (struct pmem_file *)file;
    pawl_code code = posix_file_truncate(file, bytes, e);
    if (code != PAWL_OK) return code;
    f->bytes = 0; /* to be looked at again */
    if (fsync(f->posix.fd) == 0) return PAWL_OK;
    return error_set(e, PAWL_IO, errno, "%s/%s: cannot sync after truncating", file->store->path, file->name);
}

static void pmem_close(struct store *s) {
    struct pmem_store *p = (struct pmem_store *)s;
    if (p->pool_made) pool_close(&p->pool);
    posix_close_folder(&p->posix);
    store_deinit(s);
    free(p);
}

static const struct store_table pmem_table = {
    .close = pmem_close,
    .file_open = pmem_file_open,
    .file_free = pmem_file_free,
    .file_size = posix_file_size,
    .file_truncate = pmem_file_truncate,
    .submit = pmem_submit,
    .progress = pmem_progress,
    .wait = pmem_wait,
    .wake = pmem_wake,
    .depth_changed = pmem_depth_changed,
    .get = posix_get,
    .put = posix_put,
    .remove = posix_remove,
    .list = posix_list,
    .sync_folder = posix_sync_folder,
    .space = posix_space,
};

pawl_code store_pmem_open(const char *path, bool read_only, struct store **out, struct pawl_error *e) {
    struct pmem_store *p = calloc(1, sizeof *p);
    if (p == NULL) return error_set(e, PAWL_MEMORY, 0, "%s: no memory", path);
    struct store *s = &p->posix.base;
    p->posix.folder_fd = p->posix.lock.fd = -1;
    p->posix.file_bytes = sizeof(struct pmem_file);
    bool made = store_init(s, &pmem_table, STORE_PMEM, path, read_only, PMEM_DEPTH);
    made = made && (p->pool_made = pool_init(&p->pool, s, pmem_run));
    pawl_code code =
        made ? posix_open_folder(&p->posix, e) : error_set(e, PAWL_MEMORY, 0, "%s: no memory", path);
    if (code == PAWL_OK)
        *out = s;
    else
        pmem_close(s);
    return code;
}

/* ---- probing ---- */

/* True also where the kernel cannot say (before 5.10): then the library's word must do. */
static bool may_be_dax(int fd) {
    struct statx x;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x) != 0) return false;
    return (x.stx_attributes_mask & STATX_ATTR_DAX) == 0 || (x.stx_attributes & STATX_ATTR_DAX) != 0;
}

bool store_pmem_probe(const char *path, bool only_dax, const char **granularity, char *reason,
                      size_t reason_size) {
    *granularity = "";
    int fd = posix_probe_file(path, 0);
    if (fd >= 0 && only_dax && !may_be_dax(fd)) {
        close(fd);
        return false;
    }
    int result = fd < 0 ? errno : posix_preallocate(fd, 0, STORE_BLOCK);
    struct pmem2_map *map = NULL;
    if (result == 0) result = map_file(fd, STORE_BLOCK, &map);
    if (result == 0) {
        enum pmem2_granularity found = pmem2_map_get_store_granularity(map);
        *granularity = granularity_name(found);
        if (only_dax && found == PMEM2_GRANULARITY_PAGE) result = ENODEV;
        pmem2_map_delete(&map);
    } else {
        const char *name = strerrorname_np(result);
        snprintf(reason, reason_size, "a file cannot be mapped (%s)", name != NULL ? name : "unknown error");
    }
    if (fd >= 0) close(fd);
    return result == 0;
}

#endif
