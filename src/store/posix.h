/* Folders and files of the operating system, shared by the stores on real files. */
#ifndef STORE_POSIX_H
#define STORE_POSIX_H

#include "store/internal.h"

struct store_lock {
    int fd; /* -1: not held */
    struct store_lock *next;
};
/* BUSY names the process that holds it. The lock stays where it is in memory until it is given back. */
pawl_code store_lock_take(struct store_lock *l, int folder_fd, const char *path, struct pawl_error *e);
void store_lock_give(struct store_lock *l);

struct posix_store {
    struct store base;
    int folder_fd;
    struct store_lock lock; /* not held when read-only */
    int open_flags;         /* O_DIRECT for io_uring */
    size_t file_bytes;      /* of the back end's struct, which begins with a posix_file; 0: that alone */
};

struct posix_file {
    struct store_file base;
    int fd;
    bool grown; /* at open; what was added is not durable before the next flush */
    /* The same file by way of the page cache: opened when first asked for; -1: not yet, -2: not to be had. */
    int cached_fd;
    uint8_t *map; /* of it, to ask what the page cache has; null: none */
    size_t map_bytes;
};

/* Make, open and lock the folder. On failure posix_close_folder cleans up. */
pawl_code posix_open_folder(struct posix_store *p, struct pawl_error *e);
void posix_close_folder(struct posix_store *p);

pawl_code posix_file_open(struct store *s, const char *name, bool create, uint64_t bytes,
                          struct store_file **out, struct pawl_error *e);
void posix_file_free(struct store_file *f);
pawl_code posix_file_size(struct store_file *f, uint64_t *bytes, struct pawl_error *e);
pawl_code posix_file_truncate(struct store_file *f, uint64_t bytes, struct pawl_error *e);
bool posix_is_cached(struct store_file *f, uint64_t offset, size_t bytes);
bool posix_read_cached(struct store_file *f, uint64_t offset, void *data, size_t bytes);
pawl_code posix_get(struct store *s, const char *name, uint8_t **data, size_t *bytes, struct pawl_error *e);
pawl_code posix_put(struct store *s, const char *name, const void *data, size_t bytes, struct pawl_error *e);
pawl_code posix_remove(struct store *s, const char *name, struct pawl_error *e);
pawl_code posix_list(struct store *s, char ***names, uint32_t *count, struct pawl_error *e);
pawl_code posix_sync_folder(struct store *s, struct pawl_error *e);
pawl_code posix_space(struct store *s, uint64_t *free_bytes, struct pawl_error *e);
/* Room for [from, to) on the device: 0 or an errno. */
int posix_preallocate(int fd, uint64_t from, uint64_t to);
/* An empty file without a name, made in the folder to try things on: -1 and errno. */
int posix_probe_file(const char *path, int flags);
/* All bytes of the operation, by as many calls as it takes: 0 or an errno. */
int posix_write_at(int fd, struct store_op *op);
int posix_read_at(int fd, struct store_op *op);

#endif
