/* Where bytes live: one folder of files, written asynchronously, behind one table of functions.
 *
 * Back ends: io_uring with O_DIRECT; plain files (page cache, pwrite by several threads, fdatasync) where
 * that is not to be had; persistent memory (libpmem2: non-temporal stores, one drain a write); a simulated
 * disk with torn and lost writes for tests. store_open probes and falls back. This is the
 * one place that opens, writes, syncs and renames checkpoint files. A failed flush is final for its file:
 * every operation on it that ends later fails with the same error, because the kernel may have dropped the
 * pages. Completions come in any order. A partner's memory fits as one more back end: submit, poll, flush,
 * put and list are all that is asked of it, offsets and names are all it is told, and nothing here needs a
 * mapping or a descriptor. Thread: one owner at a time per store. Tested in tests/unit/store_*. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/rng.h"

/* Offsets, lengths and addresses of submitted writes and reads are multiples of this. It is a constant of
 * the on-disk layout, larger than or equal to the block size of devices with 512 B or 4 KiB sectors; a
 * device that wants more is refused O_DIRECT by the probe. */
#define STORE_BLOCK 4096u

enum store_kind { STORE_AUTO, STORE_URING, STORE_PLAIN, STORE_SIM, STORE_PMEM };
const char *store_kind_name(enum store_kind kind); /* "io_uring+O_DIRECT", "plain files", ... */

struct store;
struct store_file;

struct store_completion {
    uint64_t cookie;
    pawl_code code; /* OK, NO_SPACE, IO; a short write is never OK */
    int os_errno;
};

/* Folder `path` is made if missing (and its parent synced) and locked: BUSY when another process holds it,
 * naming its pid where known. read_only neither makes nor locks, and still may flush. `why` (may be null, 160
 * bytes) says in one line which mode was chosen and, after a fallback, why. STORE_URING or STORE_PMEM where
 * it cannot be had is an error (IO); STORE_AUTO follows PAWL_STORE=plain|uring|pmem in the environment (for
 * tests and support), and takes persistent memory only where the processor's stores really reach it (DAX);
 * elsewhere STORE_PMEM works with the granularity that the library reports, which `why` names.
 *
 * Persistent memory is written through a mapping. A full disk, a file cut shorter, and a bad page are errors
 * of the operation; not covered is somebody else's cutting the file in the very moment of the copy, which
 * ends the process by SIGBUS, as any mapping would. */
pawl_code store_open(const char *path, enum store_kind kind, bool read_only, struct store **out, char *why,
                     struct pawl_error *e);
void store_close(struct store *s); /* waits for what is in flight; accepts null */
enum store_kind store_kind_of(const struct store *s);
const char *store_path(const struct store *s);

/* Files are named inside the folder; a name has no '/' . create makes it if missing; bytes > 0 preallocates
 * that size (NO_SPACE is found here, not in the middle of a save) and never shrinks. */
pawl_code store_file_open(struct store *s, const char *name, bool create, uint64_t bytes,
                          struct store_file **out, struct pawl_error *e);
void store_file_close(struct store_file *f);
pawl_code store_file_size(struct store_file *f, uint64_t *bytes, struct pawl_error *e);
pawl_code store_file_truncate(struct store_file *f, uint64_t bytes, struct pawl_error *e);

/* Submit; buffers stay put until the completion is polled. A flush covers every write of that file whose
 * completion was polled before it was submitted. Errors here: ARGUMENT (alignment), MEMORY. */
pawl_code store_write(struct store_file *f, uint64_t offset, const void *data, size_t bytes, uint64_t cookie,
                      struct pawl_error *e);
pawl_code store_read(struct store_file *f, uint64_t offset, void *data, size_t bytes, uint64_t cookie,
                     struct pawl_error *e);
/* Are all of these bytes in the system's page cache? False too where this back end has none. Reads nothing.
 */
bool store_is_cached(struct store_file *f, uint64_t offset, size_t bytes);
/* Copies bytes that store_is_cached() found out of the page cache; waits for nothing, on any thread. False:
 * some are gone, and `data` is of no meaning: store_read. What another machine wrote since may be missing:
 * verify it, and read again what does not match. `data` need not be aligned. */
bool store_read_cached(struct store_file *f, uint64_t offset, void *data, size_t bytes);
pawl_code store_flush(struct store_file *f, uint64_t cookie, struct pawl_error *e);
/* How many operations the device takes at once with profit; and another choice (0: the default again), which
 * counts from the next submission on: "writers" of the configuration tool. At most STORE_DEPTH_MAX. */
#define STORE_DEPTH_MAX 64u
uint32_t store_depth(const struct store *s);
void store_depth_set(struct store *s, uint32_t depth);
/* Memory that many operations will use (a staging pool, version buffers): a back end that can pins it once
 * instead of at every operation. Only a hint: never fails, works for any submitted buffer with or without.
 * The memory stays mapped until store_unregister(base) or store_close; no operation in it is in flight then.
 * It pays where pages are small; fork() copies pinned pages at once instead of sharing them, so that programs
 * which fork while they train had better leave it out, or mark the memory MADV_DONTFORK. */
void store_register(struct store *s, void *base, size_t bytes);
void store_unregister(struct store *s, void *base);
uint32_t store_poll(struct store *s, struct store_completion *out, uint32_t max);
/* Wait until at least one completion can be polled or the time is over. Asleep, also with nothing in flight.
 */
void store_wait(struct store *s, int64_t timeout_ns);
/* Makes the store_wait that is under way, or else the next one, return at once; several before one wait count
 * as one. From any thread, the only call of which that holds, as long as the store is open. */
void store_wake(struct store *s);

/* Whole small files, synchronously: read; and replace (temporary name, flush, rename, flush the folder),
 * which either leaves the old content or the new one after any crash. */
pawl_code store_get(struct store *s, const char *name, uint8_t **data, size_t *bytes, struct pawl_error *e);
/* Before a byte is read: CORRUPT, naming both sizes, when the file is longer than `most`. */
pawl_code store_get_most(struct store *s, const char *name, uint64_t most, uint8_t **data, size_t *bytes,
                         struct pawl_error *e);
pawl_code store_put(struct store *s, const char *name, const void *data, size_t bytes, struct pawl_error *e);
pawl_code store_remove(struct store *s, const char *name, struct pawl_error *e);
/* Names in the folder, sorted; free with store_names_free. */
pawl_code store_list(struct store *s, char ***names, uint32_t *count, struct pawl_error *e);
void store_names_free(char **names, uint32_t count);
pawl_code store_sync_folder(struct store *s, struct pawl_error *e);
pawl_code store_space(struct store *s, uint64_t *free_bytes, struct pawl_error *e);

/* ---- Fault injection ---- */
/* From now on, for ns (0: for ever), everything that changes a file or the folder fails with this error, or
 * hangs: operations do not complete, calls do not return, and store_close waits, as with a device that does
 * so. Reads go on. From any thread. */
void store_fail(struct store *s, int os_errno, int64_t ns);
void store_stick(struct store *s, int64_t ns);

/* ---- Simulated disk ---- */
/* Holds any number of folders. Writes land in a volatile layer in units of 512 B; a flush makes durable what
 * it covers; a crash keeps what was flushed and, of the rest, a subset drawn from the seed (torn at 512 B),
 * likewise for file creation, size and rename until the folder is synced. */
struct storesim;
struct storesim_faults { /* each per operation, in parts per million; 0: never */
    uint32_t write_eio, flush_eio, read_eio, no_space, delay;
};
struct storesim *storesim_new(uint64_t seed);
void storesim_free(struct storesim *sim);
void storesim_set_faults(struct storesim *sim, struct storesim_faults faults);
void storesim_set_capacity(struct storesim *sim, uint64_t bytes); /* 0: unlimited */
pawl_code storesim_open(struct storesim *sim, const char *folder, bool read_only, struct store **out,
                        struct pawl_error *e);
/* The process that had `s` open died: its unpolled operations may or may not have happened; memory is freed
 * and the lock released. Written but unflushed bytes stay (the machine lives). */
void storesim_kill(struct storesim *sim, struct store *s);
/* The first half of that, for a store that an engine still holds: the process stops here. What is in flight
 * may or may not have happened, everything later fails with IO. Then close the engine, then storesim_kill. */
void storesim_freeze(struct storesim *sim, struct store *s);
/* Power loss: every store must have been killed or closed before. */
void storesim_crash(struct storesim *sim);
/* For exhaustive crash tests: number of mutating operations so far, and crash exactly after the nth (every
 * later one fails with IO until storesim_crash). */
uint64_t storesim_ops(const struct storesim *sim);
void storesim_stop_after(struct storesim *sim, uint64_t op);
void storesim_flip(struct storesim *sim, const char *folder, const char *name, uint64_t byte, uint8_t mask);

#endif
