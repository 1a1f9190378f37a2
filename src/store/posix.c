/* Folders and files of the operating system: create, lock, preallocate, replace, list, sync.
 *
 * Promises: a new folder's name is durable before it is used; one process at a time has the folder open for
 * writing; a replaced file is the old or the new one after any crash; no room is an error of preallocation,
 * not a signal or a short file later. Ignores: who else deletes files. Errors carry errno, path and sizes. */
#include "store/posix.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

static pawl_code fail(const struct store *s, const char *name, const char *what, int os_errno,
                      struct pawl_error *e) {
    return error_set(e, error_code_of_errno(os_errno), os_errno, "%s%s%s: %s", s->path, name[0] ? "/" : "",
                     name, what);
}

/* ---- the folder ---- */

static int sync_path(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    int result = fsync(fd) == 0 ? 0 : errno;
    close(fd);
    return result;
}

/* mkdir -p, each new name made durable by syncing its parent. Cuts and restores `path` in place. */
static int make_folders(char *path) {
    for (char *at = path + 1;; at++) {
        if (*at != '/' && *at != 0) continue;
        char cut = *at;
        *at = 0;
        int made = mkdir(path, 0777) == 0 ? 0 : errno;
        if (made == 0) {
            char *slash = strrchr(path, '/');
            if (slash == NULL) {
                made = sync_path(".");
            } else {
                *slash = 0;
                made = sync_path(slash == path ? "/" : path);
                *slash = '/';
            }
        }
        *at = cut;
        if (made != 0 && made != EEXIST) return made;
        if (cut == 0) return 0;
    }
}

pawl_code posix_open_folder(struct posix_store *p, struct pawl_error *e) {
    p->folder_fd = p->lock.fd = -1;
    if (!p->base.read_only) {
        int made = make_folders(p->base.path);
        if (made != 0) return fail(&p->base, "", "cannot make the folder", made, e);
    }
    p->folder_fd = open(p->base.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->folder_fd < 0) return fail(&p->base, "", "cannot open the folder", errno, e);
    return p->base.read_only ? PAWL_OK : store_lock_take(&p->lock, p->folder_fd, p->base.path, e);
}

void posix_close_folder(struct posix_store *p) {
    if (p->lock.fd >= 0) store_lock_give(&p->lock);
    if (p->folder_fd >= 0) close(p->folder_fd);
    p->folder_fd = -1;
}

pawl_code posix_sync_folder(struct store *s, struct pawl_error *e) {
    if (fsync(((struct posix_store *)s)->folder_fd) != 0)
        return fail(s, "", "cannot sync the folder", errno, e);
    return PAWL_OK;
}

pawl_code posix_space(struct store *s, uint64_t *free_bytes, struct pawl_error *e) {
    struct statvfs v;
    if (fstatvfs(((struct posix_store *)s)->folder_fd, &v) != 0)
        return fail(s, "", "cannot read the free space", errno, e);
    *free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    return PAWL_OK;
}

/* ---- files written by blocks ---- */

static pawl_code no_space(struct store *s, const char *name, uint64_t bytes, int os_errno,
                          struct pawl_error *e) {
    uint64_t left = 0;
    if (posix_space(s, &left, NULL) != PAWL_OK) return fail(s, name, "cannot preallocate", os_errno, e);
    return error_set(e, error_code_of_errno(os_errno), os_errno,
                     "%s/%s: cannot preallocate: wanted %llu bytes in all, %llu are free", s->path, name,
                     (unsigned long long)bytes, (unsigned long long)left);
}

int posix_preallocate(int fd, uint64_t from, uint64_t to) {
    int result;
    do result = posix_fallocate(fd, (off_t)from, (off_t)(to - from));
    while (result == EINTR);
    return result;
}

static pawl_code grow_file(struct posix_file *f, uint64_t bytes, struct pawl_error *e) {
    struct store *s = f->base.store;
    struct stat st;
    if (fstat(f->fd, &st) != 0) return fail(s, f->base.name, "cannot read the size", errno, e);
    if ((uint64_t)st.st_size >= bytes) return PAWL_OK;
    int result = posix_preallocate(f->fd, (uint64_t)st.st_size, bytes);
    f->grown = true;
    if (result == 0) return PAWL_OK;
    if (ftruncate(f->fd, st.st_size) != 0)
        return fail(s, f->base.name, "cannot undo a preallocation", errno, e);
    return no_space(s, f->base.name, bytes, result, e);
}

/* A pipe or a device in a file's place must not block us, whatever it is doing there. */
#define OPEN_FLAGS (O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

static pawl_code check_regular(struct store *s, const char *name, int fd, struct pawl_error *e) {
    struct stat st;
    if (fstat(fd, &st) != 0) return fail(s, name, "cannot look at", errno, e);
    if (S_ISREG(st.st_mode)) return PAWL_OK;
    return error_set(e, PAWL_CORRUPT, 0, "%s/%s is not a file: remove it", s->path, name);
}

pawl_code posix_file_open(struct store *s, const char *name, bool create, uint64_t bytes,
                          struct store_file **out, struct pawl_error *e) {
    struct posix_store *p = (struct posix_store *)s;
    struct posix_file *f = calloc(1, p->file_bytes > sizeof *f ? p->file_bytes : sizeof *f);
    if (f == NULL) return error_set(e, PAWL_MEMORY, 0, "%s/%s: no memory", s->path, name);
    f->fd = f->cached_fd = -1;
    if (!store_file_init(&f->base, s, name)) {
        posix_file_free(&f->base);
        return error_set(e, PAWL_MEMORY, 0, "%s/%s: no memory", s->path, name);
    }
    int mode = s->read_only ? O_RDONLY : O_RDWR;
    f->fd = openat(p->folder_fd, name, mode | (create ? O_CREAT : 0) | OPEN_FLAGS | p->open_flags, 0666);
    pawl_code code = f->fd < 0 ? fail(s, name, "cannot open", errno, e) : check_regular(s, name, f->fd, e);
    if (code == PAWL_OK && bytes > 0) code = grow_file(f, bytes, e);
    if (code == PAWL_OK)
        *out = &f->base;
    else
        posix_file_free(&f->base);
    return code;
}

static void close_cached(struct posix_file *f) {
    if (f->map != NULL) munmap(f->map, f->map_bytes);
    if (f->cached_fd >= 0) close(f->cached_fd);
}

void posix_file_free(struct store_file *file) {
    struct posix_file *f = (struct posix_file *)file;
    if (f->fd >= 0) close(f->fd);
    close_cached(f);
    store_file_deinit(&f->base);
    free(f);
}

/* ---- the page cache ---- */

/* -2 where the name has another file by now. The mapping is never looked into. */
static void open_cached(struct posix_file *f) {
    struct stat own, other;
    const struct posix_store *p = (const struct posix_store *)f->base.store;
    int fd = openat(p->folder_fd, f->base.name, O_RDONLY | OPEN_FLAGS);
    bool same = fd >= 0 && fstat(f->fd, &own) == 0 && fstat(fd, &other) == 0 && own.st_dev == other.st_dev &&
                own.st_ino == other.st_ino;
    void *map =
        same && own.st_size > 0 ? mmap(NULL, (size_t)own.st_size, PROT_NONE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (map == MAP_FAILED && fd >= 0) close(fd);
    f->cached_fd = map != MAP_FAILED ? fd : -2;
    f->map = map != MAP_FAILED ? map : NULL;
    f->map_bytes = map != MAP_FAILED ? (size_t)own.st_size : 0;
}

/* Asking the cache by reading would have the system begin to read what is missing: a mapping tells. Where the
 * system does not want to tell, it says that all is there, and then the read finds out. */
bool posix_is_cached(struct store_file *file, uint64_t offset, size_t bytes) {
    struct posix_file *f = (struct posix_file *)file;
    unsigned char here[256]; /* of so many pages at a time */
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (f->cached_fd == -1) open_cached(f);
    if (f->map == NULL || offset > f->map_bytes || bytes > f->map_bytes - offset) return false;
    uint64_t begin = offset - offset % page, end = offset + bytes;
    while (begin < end) {
        size_t piece = end - begin < page * sizeof here ? (size_t)(end - begin) : page * sizeof here;
        size_t pages = (piece + page - 1) / page, found = 0;
        if (mincore(f->map + begin, piece, here) != 0) return false;
        while (found < pages && (here[found] & 1) != 0) found++;
        if (found < pages) return false;
        begin += piece;
    }
    return true;
}

bool posix_read_cached(struct store_file *file, uint64_t offset, void *data, size_t bytes) {
    const struct posix_file *f = (const struct posix_file *)file;
    if (f->cached_fd < 0) return false;
    for (size_t at = 0; at < bytes;) {
        struct iovec to = {(uint8_t *)data + at, bytes - at};
        ssize_t got = preadv2(f->cached_fd, &to, 1, (off_t)(offset + at), RWF_NOWAIT);
        if (got <= 0) return false;
        at += (size_t)got;
    }
    return true;
}

pawl_code posix_file_size(struct store_file *file, uint64_t *bytes, struct pawl_error *e) {
    struct stat st;
    if (fstat(((struct posix_file *)file)->fd, &st) != 0)
        return fail(file->store, file->name, "cannot read the size", errno, e);
    *bytes = (uint64_t)st.st_size;
    return PAWL_OK;
}

pawl_code posix_file_truncate(struct store_file *file, uint64_t bytes, struct pawl_error *e) {
    if (ftruncate(((struct posix_file *)file)->fd, (off_t)bytes) != 0)
        return fail(file->store, file->name, "cannot truncate", errno, e);
    return PAWL_OK;
}

int posix_probe_file(const char *path, int flags) {
    size_t size = strlen(path) + 64;
    char *name = malloc(size);
    if (name == NULL) return -1;
    snprintf(name, size, "%s/.probe-%ld", path, (long)getpid());
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | flags, 0600);
    int result = errno;
    unlink(name); /* also where O_DIRECT was refused after the file had been made */
    free(name);
    errno = result;
    return fd;
}

/* ---- transfers ---- */

int posix_write_at(int fd, struct store_op *op) {
    while (op->bytes > 0) {
        ssize_t moved = pwrite(fd, op->data, op->bytes, (off_t)op->offset);
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0) return errno;
        if (moved == 0) return EIO; /* nothing wrong, and yet no progress */
        op->data += moved;
        op->offset += (uint64_t)moved;
        op->bytes -= (size_t)moved;
    }
    return 0;
}

int posix_read_at(int fd, struct store_op *op) {
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

/* ---- small files as a whole ---- */

static int read_all(int fd, uint8_t *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t moved = read(fd, data + done, bytes - done);
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0) return errno;
        if (moved == 0) return EIO; /* shorter than its size said a moment ago */
        done += (size_t)moved;
    }
    return 0;
}

pawl_code posix_get(struct store *s, const char *name, uint8_t **data, size_t *bytes, struct pawl_error *e) {
    int fd = openat(((struct posix_store *)s)->folder_fd, name, O_RDONLY | OPEN_FLAGS);
    if (fd < 0) return fail(s, name, "cannot open", errno, e);
    pawl_code code = check_regular(s, name, fd, e);
    if (code != PAWL_OK) {
        close(fd);
        return code;
    }
    struct stat st;
    uint8_t *out = NULL;
    int result = fstat(fd, &st) == 0 ? 0 : errno;
    if (result == 0) {
        out = malloc((size_t)st.st_size + 1);
        result = out == NULL ? ENOMEM : read_all(fd, out, (size_t)st.st_size);
    }
    close(fd);
    if (result != 0) {
        free(out);
        return fail(s, name, "cannot read", result, e);
    }
    *data = out;
    *bytes = (size_t)st.st_size;
    return PAWL_OK;
}

static int write_all(int fd, const uint8_t *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t moved = write(fd, data + done, bytes - done);
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0) return errno;
        if (moved == 0) return EIO;
        done += (size_t)moved;
    }
    return 0;
}

pawl_code posix_put(struct store *s, const char *name, const void *data, size_t bytes, struct pawl_error *e) {
    struct posix_store *p = (struct posix_store *)s;
    char temporary[STORE_NAME_BYTES_MAX + sizeof STORE_TEMPORARY_PREFIX];
    snprintf(temporary, sizeof temporary, "%s%s", STORE_TEMPORARY_PREFIX, name);
    int fd = openat(p->folder_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return fail(s, temporary, "cannot create", errno, e);
    int result = write_all(fd, data, bytes);
    if (result == 0 && fdatasync(fd) != 0) result = errno;
    if (close(fd) != 0 && result == 0) result = errno;
    if (result == 0 && renameat(p->folder_fd, temporary, p->folder_fd, name) != 0) result = errno;
    if (result == 0) return posix_sync_folder(s, e);
    unlinkat(p->folder_fd, temporary, 0);
    return fail(s, name, "cannot replace", result, e);
}

pawl_code posix_remove(struct store *s, const char *name, struct pawl_error *e) {
    if (unlinkat(((struct posix_store *)s)->folder_fd, name, 0) != 0)
        return fail(s, name, "cannot remove", errno, e);
    return PAWL_OK;
}

pawl_code posix_list(struct store *s, char ***names, uint32_t *count, struct pawl_error *e) {
    int fd = openat(((struct posix_store *)s)->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (folder == NULL) {
        int result = errno;
        if (fd >= 0) close(fd);
        return fail(s, "", "cannot list the folder", result, e);
    }
    struct store_names found = {0};
    int result = 0;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (entry == NULL) {
            result = errno;
            break;
        }
        if (entry->d_name[0] == '.') continue;
        if (!store_names_add(&found, entry->d_name)) {
            result = ENOMEM;
            break;
        }
    }
    closedir(folder);
    if (result != 0) {
        store_names_free(found.items, found.count);
        return fail(s, "", "cannot list the folder", result, e);
    }
    *names = found.items;
    *count = found.count;
    return PAWL_OK;
}
