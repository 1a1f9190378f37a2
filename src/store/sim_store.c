/* The store interface on the simulated disk: operations wait in a list and finish in an order drawn from the
 * seed; faults strike by chance; a stopped disk answers everything with an I/O error. */
#include "store/sim_disk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_store {
    struct store base;
    struct storesim *sim;
    struct sim_folder *folder;
    struct store_op_list queue;
    bool frozen; /* its process is dead */
    bool woken;
    pthread_cond_t wake;
};

struct sim_file {
    struct store_file base;
    struct sim_inode *inode;
};

/* An operation that is held back waits up to this many polls. */
#define DELAY_TICKS_MAX 20u
#define SIM_DEPTH       8u

static struct storesim *sim_of(const struct store *s) { return ((const struct sim_store *)s)->sim; }

static pawl_code fail(const struct store *s, const char *name, const char *what, int os_errno,
                      struct pawl_error *e) {
    return error_set(e, error_code_of_errno(os_errno), os_errno, "%s/%s: %s", s->path, name, what);
}

/* ---- operations by blocks ---- */

static int run_write(struct storesim *sim, struct sim_inode *inode, const struct store_op *op) {
    if (op->offset + op->bytes > inode->size) {
        int result = sim_inode_resize(sim, inode, op->offset + op->bytes);
        if (result != 0) return result;
    }
    bool broken = sim_chance(sim, sim->faults.write_eio);
    sim_inode_write(sim, inode, op->offset, op->data, op->bytes, broken);
    return broken ? EIO : 0;
}

static int run_read(struct storesim *sim, const struct sim_inode *inode, const struct store_op *op) {
    if (sim->stopped || sim_chance(sim, sim->faults.read_eio)) return EIO;
    if (op->offset + op->bytes > inode->size) return EIO; /* the file ends before the wanted bytes */
    memcpy(op->data, inode->memory + op->offset, op->bytes);
    return 0;
}

static int run_flush(struct storesim *sim, struct sim_inode *inode) {
    if (sim_chance(sim, sim->faults.flush_eio)) {
        sim_inode_flush_failed(sim, inode);
        return EIO;
    }
    sim_inode_flush(inode);
    return 0;
}

/* An operation that was on its way when the disk or its process stopped may have arrived, a write in part. */
static void land_partly(struct storesim *sim, struct store_op *op) {
    struct sim_inode *inode = ((struct sim_file *)op->file)->inode;
    if (op->late || op->file->dead_errno != 0 || rng_below(&sim->random, 2) == 0) return;
    op->late = true;
    if (op->kind == STORE_OP_WRITE && op->offset + op->bytes <= inode->size)
        sim_inode_write(sim, inode, op->offset, op->data, op->bytes, true);
    if (op->kind == STORE_OP_FLUSH && !sim->stopped) sim_inode_flush(inode);
}

static int run_op(struct storesim *sim, struct store_op *op) {
    struct sim_inode *inode = ((struct sim_file *)op->file)->inode;
    if (op->file->dead_errno != 0) return op->file->dead_errno;
    if (op->kind == STORE_OP_READ) return run_read(sim, inode, op);
    if (!sim_count(sim)) {
        land_partly(sim, op);
        return EIO;
    }
    return op->kind == STORE_OP_WRITE ? run_write(sim, inode, op) : run_flush(sim, inode);
}

static void sim_submit(struct store *s, struct store_op *op) {
    struct sim_store *p = (struct sim_store *)s;
    pthread_mutex_lock(&p->sim->mutex);
    bool held = sim_chance(p->sim, p->sim->faults.delay);
    op->late = p->sim->stopped || p->frozen;
    op->ready_at = p->sim->tick + (held ? rng_below(&p->sim->random, DELAY_TICKS_MAX) + 1 : 0);
    store_op_push(&p->queue, op);
    pthread_mutex_unlock(&p->sim->mutex);
}

/* Takes one of the ready operations at random out of the queue; null when none is ready. */
static struct store_op *draw(struct sim_store *p) {
    uint32_t ready = 0;
    for (const struct store_op *op = p->queue.first; op != NULL; op = op->next)
        if (op->ready_at <= p->sim->tick) ready++;
    if (ready == 0) return NULL;
    uint64_t wanted = rng_below(&p->sim->random, ready);
    struct store_op_list rest = {0};
    struct store_op *drawn = NULL;
    for (struct store_op *op = store_op_pop(&p->queue); op != NULL; op = store_op_pop(&p->queue)) {
        if (op->ready_at <= p->sim->tick && wanted-- == 0)
            drawn = op;
        else
            store_op_push(&rest, op);
    }
    p->queue = rest;
    return drawn;
}

/* A poll finishes one operation at most, so that callers see every order. */
static void sim_progress(struct store *s) {
    struct sim_store *p = (struct sim_store *)s;
    pthread_mutex_lock(&p->sim->mutex);
    p->sim->tick++;
    struct store_op *op = s->ready_count == 0 ? draw(p) : NULL;
    int result = op == NULL ? 0 : p->frozen ? EIO : run_op(p->sim, op);
    pthread_mutex_unlock(&p->sim->mutex);
    if (op != NULL) store_op_finish(op, result);
}

/* Time passes at once as long as something is in flight: the next operation held back becomes ready. With
 * nothing in flight only a wake can help, for which the caller sleeps in real time. */
static void sim_wait(struct store *s, int64_t timeout_ns) {
    struct sim_store *p = (struct sim_store *)s;
    pthread_mutex_lock(&p->sim->mutex);
    uint64_t soonest = UINT64_MAX;
    for (const struct store_op *op = p->queue.first; op != NULL; op = op->next)
        if (op->ready_at < soonest) soonest = op->ready_at;
    if (soonest != UINT64_MAX && soonest > p->sim->tick && !p->woken) p->sim->tick = soonest;
    if (soonest == UINT64_MAX && timeout_ns > 0) {
        int64_t deadline_ns = store_deadline(timeout_ns);
        bool before = true;
        while (before && !p->woken) before = store_cond_wait(&p->wake, &p->sim->mutex, deadline_ns);
    }
    p->woken = false;
    pthread_mutex_unlock(&p->sim->mutex);
}

static void sim_wake(struct store *s) {
    struct sim_store *p = (struct sim_store *)s;
    pthread_mutex_lock(&p->sim->mutex);
    p->woken = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->sim->mutex);
}

/* ---- files ---- */

static void sim_file_free(struct store_file *file) {
    struct sim_file *f = (struct sim_file *)file;
    struct storesim *sim = sim_of(file->store);
    pthread_mutex_lock(&sim->mutex);
    sim_inode_drop(sim, f->inode);
    pthread_mutex_unlock(&sim->mutex);
    store_file_deinit(file);
    free(f);
}

/* 0 or an errno; *out is the inode, made if missing and wanted. */
static int find_or_make(struct sim_store *p, const char *name, bool create, struct sim_inode **out) {
    *out = sim_lookup(p->folder, name);
    if (*out != NULL) return 0;
    if (!create) return ENOENT;
    if (!sim_count(p->sim)) return EIO;
    struct sim_inode *inode = sim_inode_new(p->sim);
    if (inode == NULL) return ENOMEM;
    if (!sim_link(p->folder, name, inode)) return ENOMEM;
    *out = inode;
    return 0;
}

static int grow(struct storesim *sim, struct sim_inode *inode, uint64_t bytes) {
    if (bytes <= inode->size) return 0;
    return sim_count(sim) ? sim_inode_resize(sim, inode, bytes) : EIO;
}

static pawl_code no_space(const struct store *s, const char *name, uint64_t bytes, uint64_t left,
                          struct pawl_error *e) {
    return error_set(e, PAWL_NO_SPACE, ENOSPC,
                     "%s/%s: cannot preallocate: wanted %llu bytes in all, %llu are free", s->path, name,
                     (unsigned long long)bytes, (unsigned long long)left);
}

static pawl_code sim_file_open(struct store *s, const char *name, bool create, uint64_t bytes,
                               struct store_file **out, struct pawl_error *e) {
    struct sim_store *p = (struct sim_store *)s;
    struct sim_file *f = calloc(1, sizeof *f);
    if (f == NULL || !store_file_init(&f->base, s, name)) {
        free(f);
        return error_set(e, PAWL_MEMORY, 0, "%s/%s: no memory", s->path, name);
    }
    pthread_mutex_lock(&p->sim->mutex);
    struct sim_inode *inode = NULL;
    int result = p->frozen ? EIO : find_or_make(p, name, create, &inode);
    if (result == 0) {
        inode->links++;
        f->inode = inode;
        result = grow(p->sim, inode, bytes);
    }
    uint64_t left = sim_free_bytes(p->sim);
    pthread_mutex_unlock(&p->sim->mutex);
    if (result == 0) {
        *out = &f->base;
        return PAWL_OK;
    }
    sim_file_free(&f->base);
    return result == ENOSPC ? no_space(s, name, bytes, left, e) : fail(s, name, "cannot open", result, e);
}

static pawl_code sim_file_size(struct store_file *file, uint64_t *bytes, struct pawl_error *e) {
    (void)e;
    *bytes = ((struct sim_file *)file)->inode->size;
    return PAWL_OK;
}

static pawl_code sim_file_truncate(struct store_file *file, uint64_t bytes, struct pawl_error *e) {
    struct storesim *sim = sim_of(file->store);
    bool frozen = ((struct sim_store *)file->store)->frozen;
    pthread_mutex_lock(&sim->mutex);
    int result =
        !frozen && sim_count(sim) ? sim_inode_resize(sim, ((struct sim_file *)file)->inode, bytes) : EIO;
    pthread_mutex_unlock(&sim->mutex);
    return result == 0 ? PAWL_OK : fail(file->store, file->name, "cannot truncate", result, e);
}

/* ---- small files and the folder ---- */

static pawl_code sim_get(struct store *s, const char *name, uint8_t **data, size_t *bytes,
                         struct pawl_error *e) {
    struct sim_store *p = (struct sim_store *)s;
    pthread_mutex_lock(&p->sim->mutex);
    const struct sim_inode *inode = sim_lookup(p->folder, name);
    int result = inode == NULL                                                    ? ENOENT
                 : p->sim->stopped || sim_chance(p->sim, p->sim->faults.read_eio) ? EIO
                                                                                  : 0;
    uint8_t *copy = result == 0 ? malloc(inode->size + 1) : NULL;
    if (result == 0 && copy == NULL) result = ENOMEM;
    if (result == 0) {
        if (inode->size > 0) memcpy(copy, inode->memory, inode->size);
        *data = copy;
        *bytes = inode->size;
    }
    pthread_mutex_unlock(&p->sim->mutex);
    return result == 0 ? PAWL_OK : fail(s, name, "cannot read", result, e);
}

/* The sectors of a small file, the last one padded with what the sector holds in memory: zeros. */
static int write_whole(struct storesim *sim, struct sim_inode *inode, const uint8_t *data, size_t bytes) {
    int result = sim_count(sim) ? sim_inode_resize(sim, inode, bytes) : EIO;
    if (result != 0 || bytes == 0) return result;
    if (!sim_count(sim)) return EIO;
    size_t whole = (bytes + SIM_SECTOR - 1) / SIM_SECTOR * SIM_SECTOR;
    uint8_t *padded = calloc(1, whole);
    if (padded == NULL) return ENOMEM;
    memcpy(padded, data, bytes);
    bool broken = sim_chance(sim, sim->faults.write_eio);
    sim_inode_write(sim, inode, 0, padded, whole, broken);
    free(padded);
    return broken ? EIO : 0;
}

/* The same steps as on a real folder, each of which the disk may stop at. */
static int replace(struct sim_store *p, const char *temporary, const char *name, const void *data,
                   size_t bytes) {
    struct storesim *sim = p->sim;
    struct sim_inode *inode = NULL;
    int result = find_or_make(p, temporary, true, &inode);
    if (result == 0) result = write_whole(sim, inode, data, bytes);
    if (result == 0) result = sim_count(sim) ? run_flush(sim, inode) : EIO;
    if (result != 0) {
        if (inode != NULL && sim_count(sim)) (void)sim_unlink(sim, p->folder, temporary);
        return result;
    }
    if (!sim_count(sim)) return EIO;
    if (!sim_rename(sim, p->folder, temporary, name)) return ENOMEM;
    if (!sim_count(sim)) return EIO;
    sim_folder_sync(sim, p->folder);
    return 0;
}

static pawl_code sim_put(struct store *s, const char *name, const void *data, size_t bytes,
                         struct pawl_error *e) {
    struct sim_store *p = (struct sim_store *)s;
    char temporary[STORE_NAME_BYTES_MAX + sizeof STORE_TEMPORARY_PREFIX];
    snprintf(temporary, sizeof temporary, "%s%s", STORE_TEMPORARY_PREFIX, name);
    pthread_mutex_lock(&p->sim->mutex);
    int result = p->frozen ? EIO : replace(p, temporary, name, data, bytes);
    pthread_mutex_unlock(&p->sim->mutex);
    return result == 0 ? PAWL_OK : fail(s, name, "cannot replace", result, e);
}

static pawl_code sim_remove(struct store *s, const char *name, struct pawl_error *e) {
    struct sim_store *p = (struct sim_store *)s;
    pthread_mutex_lock(&p->sim->mutex);
    int result = sim_lookup(p->folder, name) == NULL ? ENOENT : !p->frozen && sim_count(p->sim) ? 0 : EIO;
    if (result == 0 && !sim_unlink(p->sim, p->folder, name)) result = ENOMEM;
    pthread_mutex_unlock(&p->sim->mutex);
    return result == 0 ? PAWL_OK : fail(s, name, "cannot remove", result, e);
}

static pawl_code sim_list(struct store *s, char ***names, uint32_t *count, struct pawl_error *e) {
    struct sim_store *p = (struct sim_store *)s;
    struct store_names found = {0};
    bool good = true;
    pthread_mutex_lock(&p->sim->mutex);
    for (const struct sim_name *n = p->folder->names; n != NULL && good; n = n->next)
        if (n->name[0] != '.') good = store_names_add(&found, n->name);
    pthread_mutex_unlock(&p->sim->mutex);
    if (!good) {
        store_names_free(found.items, found.count);
        return error_set(e, PAWL_MEMORY, 0, "%s: no memory", s->path);
    }
    *names = found.items;
    *count = found.count;
    return PAWL_OK;
}

static pawl_code sim_sync_folder(struct store *s, struct pawl_error *e) {
    struct sim_store *p = (struct sim_store *)s;
    pthread_mutex_lock(&p->sim->mutex);
    int result = !p->frozen && sim_count(p->sim) && !sim_chance(p->sim, p->sim->faults.flush_eio) ? 0 : EIO;
    if (result == 0) sim_folder_sync(p->sim, p->folder);
    pthread_mutex_unlock(&p->sim->mutex);
    return result == 0 ? PAWL_OK : fail(s, "", "cannot sync the folder", result, e);
}

static pawl_code sim_space(struct store *s, uint64_t *free_bytes, struct pawl_error *e) {
    (void)e;
    struct storesim *sim = sim_of(s);
    pthread_mutex_lock(&sim->mutex);
    *free_bytes = sim_free_bytes(sim);
    pthread_mutex_unlock(&sim->mutex);
    return PAWL_OK;
}

static void sim_close(struct store *s) {
    struct sim_store *p = (struct sim_store *)s;
    pthread_mutex_lock(&p->sim->mutex);
    if (!s->read_only) p->folder->locked = false;
    p->sim->open_stores--;
    pthread_mutex_unlock(&p->sim->mutex);
    pthread_cond_destroy(&p->wake);
    store_deinit(s);
    free(p);
}

static const struct store_table sim_table = {
    .close = sim_close,
    .file_open = sim_file_open,
    .file_free = sim_file_free,
    .file_size = sim_file_size,
    .file_truncate = sim_file_truncate,
    .submit = sim_submit,
    .progress = sim_progress,
    .wait = sim_wait,
    .wake = sim_wake,
    .get = sim_get,
    .put = sim_put,
    .remove = sim_remove,
    .list = sim_list,
    .sync_folder = sim_sync_folder,
    .space = sim_space,
};

static pawl_code enter_folder(struct sim_store *p, const char *path, struct pawl_error *e) {
    p->folder = sim_folder_get(p->sim, path, !p->base.read_only);
    if (p->folder == NULL && p->base.read_only)
        return error_set(e, PAWL_NOT_FOUND, ENOENT, "%s: cannot open the folder", path);
    if (p->folder == NULL) return error_set(e, PAWL_MEMORY, 0, "%s: no memory", path);
    if (p->base.read_only) return PAWL_OK;
    if (p->folder->locked) return error_set(e, PAWL_BUSY, 0, "%s: another process has this store open", path);
    p->folder->locked = true;
    return PAWL_OK;
}

pawl_code storesim_open(struct storesim *sim, const char *folder, bool read_only, struct store **out,
                        struct pawl_error *e) {
    *out = NULL;
    struct sim_store *p = calloc(1, sizeof *p);
    if (p == NULL || !store_cond_init(&p->wake)) {
        free(p);
        return error_set(e, PAWL_MEMORY, 0, "%s: no memory", folder);
    }
    p->sim = sim;
    pawl_code code = PAWL_OK;
    if (!store_init(&p->base, &sim_table, STORE_SIM, folder, read_only, SIM_DEPTH))
        code = error_set(e, PAWL_MEMORY, 0, "%s: no memory", folder);
    pthread_mutex_lock(&sim->mutex);
    if (code == PAWL_OK) code = enter_folder(p, folder, e);
    if (code == PAWL_OK) sim->open_stores++;
    pthread_mutex_unlock(&sim->mutex);
    if (code == PAWL_OK) {
        *out = &p->base;
        return PAWL_OK;
    }
    pthread_cond_destroy(&p->wake);
    store_deinit(&p->base);
    free(p);
    return code;
}

void storesim_freeze(struct storesim *sim, struct store *s) {
    struct sim_store *p = (struct sim_store *)s;
    pthread_mutex_lock(&sim->mutex);
    if (!p->frozen)
        for (struct store_op *op = p->queue.first; op != NULL; op = op->next) land_partly(sim, op);
    p->frozen = true;
    pthread_mutex_unlock(&sim->mutex);
}

void storesim_kill(struct storesim *sim, struct store *s) {
    struct sim_store *p = (struct sim_store *)s;
    storesim_freeze(sim, s);
    for (struct store_op *op = store_op_pop(&p->queue); op != NULL; op = store_op_pop(&p->queue))
        store_op_finish(op, EIO);
    sim_close(s);
}
