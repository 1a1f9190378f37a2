/* The simulated disk: what survives a crash.
 *
 * A sector has a volatile and a durable side. A flush copies one to the other; a crash does so for a random
 * subset of the sectors that were not flushed, and when an unflushed sector is written again its older bytes
 * may have reached the platter first. Names change in order; a crash keeps either a prefix of the pending
 * changes or a random subset in which no change survives without those it builds on. Deterministic in seed
 * and calls. */
#include "store/sim_disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool sim_count(struct storesim *sim) {
    if (sim->stopped) return false;
    sim->ops++;
    if (sim->stop_after != 0 && sim->ops > sim->stop_after) {
        sim->ops--;
        sim->stopped = true;
        return false;
    }
    return true;
}

bool sim_chance(struct storesim *sim, uint32_t ppm) {
    return ppm > 0 && rng_below(&sim->random, 1000000) < ppm;
}

/* ---- inodes ---- */

struct sim_inode *sim_inode_new(struct storesim *sim) {
    struct sim_inode *inode = calloc(1, sizeof *inode);
    if (inode == NULL) return NULL;
    inode->next = sim->inodes;
    sim->inodes = inode;
    return inode;
}

void sim_inode_drop(struct storesim *sim, struct sim_inode *inode) {
    if (inode == NULL || --inode->links > 0) return;
    for (struct sim_inode **at = &sim->inodes; *at != NULL; at = &(*at)->next)
        if (*at == inode) {
            *at = inode->next;
            break;
        }
    free(inode->memory);
    free(inode->disk);
    free(inode->dirty);
    free(inode);
}

static uint64_t sectors_of(uint64_t bytes) { return (bytes + SIM_SECTOR - 1) / SIM_SECTOR; }

static bool reserve(struct sim_inode *inode, uint64_t size) {
    if (size <= inode->capacity) return true;
    uint64_t capacity = sectors_of(size) * SIM_SECTOR;
    uint8_t *memory = realloc(inode->memory, capacity);
    if (memory != NULL) inode->memory = memory;
    uint8_t *disk = realloc(inode->disk, capacity);
    if (disk != NULL) inode->disk = disk;
    uint8_t *dirty = realloc(inode->dirty, capacity / SIM_SECTOR);
    if (dirty != NULL) inode->dirty = dirty;
    if (memory == NULL || disk == NULL || dirty == NULL) return false;
    memset(memory + inode->capacity, 0, capacity - inode->capacity);
    memset(disk + inode->capacity, 0, capacity - inode->capacity);
    memset(dirty + inode->capacity / SIM_SECTOR, 0, (capacity - inode->capacity) / SIM_SECTOR);
    inode->capacity = capacity;
    return true;
}

uint64_t sim_free_bytes(const struct storesim *sim) {
    if (sim->capacity == 0) return INT64_MAX;
    uint64_t used = 0;
    for (const struct sim_inode *i = sim->inodes; i != NULL; i = i->next)
        used += sectors_of(i->size > i->disk_size ? i->size : i->disk_size) * SIM_SECTOR;
    return used >= sim->capacity ? 0 : sim->capacity - used;
}

int sim_inode_resize(struct storesim *sim, struct sim_inode *inode, uint64_t size) {
    if (size > inode->size) {
        uint64_t more = (sectors_of(size) - sectors_of(inode->size)) * SIM_SECTOR;
        if (more > sim_free_bytes(sim) || sim_chance(sim, sim->faults.no_space)) return ENOSPC;
        if (!reserve(inode, size)) return ENOMEM;
    } else if (size < inode->size) {
        /* What is cut off reads as zero when the file grows again. */
        memset(inode->memory + size, 0, inode->size - size);
        for (uint64_t k = size / SIM_SECTOR; k < sectors_of(inode->size); k++) inode->dirty[k] = 1;
    }
    inode->size = size;
    return 0;
}

static void settle(struct sim_inode *inode, uint64_t sector) {
    memcpy(inode->disk + sector * SIM_SECTOR, inode->memory + sector * SIM_SECTOR, SIM_SECTOR);
    inode->dirty[sector] = 0;
}

void sim_inode_write(struct storesim *sim, struct sim_inode *inode, uint64_t offset, const uint8_t *data,
                     uint64_t bytes, bool torn) {
    for (uint64_t at = 0; at < bytes; at += SIM_SECTOR) {
        if (torn && rng_below(&sim->random, 2) == 0) continue;
        uint64_t sector = (offset + at) / SIM_SECTOR;
        if (inode->dirty[sector] && rng_below(&sim->random, 2) == 0) settle(inode, sector);
        memcpy(inode->memory + offset + at, data + at, SIM_SECTOR);
        inode->dirty[sector] = 1;
    }
}

void sim_inode_flush(struct sim_inode *inode) {
    for (uint64_t k = 0; k < inode->capacity / SIM_SECTOR; k++)
        if (inode->dirty[k]) settle(inode, k);
    inode->disk_size = inode->size;
}

void sim_inode_flush_failed(struct storesim *sim, struct sim_inode *inode) {
    for (uint64_t k = 0; k < inode->capacity / SIM_SECTOR; k++) {
        if (!inode->dirty[k]) continue;
        if (rng_below(&sim->random, 2) == 0) settle(inode, k);
        inode->dirty[k] = 0;
    }
}

/* After the crash memory is what the platter holds. */
static void crash_inode(struct storesim *sim, struct sim_inode *inode) {
    uint64_t mode = rng_below(&sim->random, 4); /* 0: nothing arrived, 1: everything, else: a subset */
    for (uint64_t k = 0; k < inode->capacity / SIM_SECTOR; k++) {
        if (!inode->dirty[k]) continue;
        if (mode == 1 || (mode > 1 && rng_below(&sim->random, 2) == 0)) settle(inode, k);
        inode->dirty[k] = 0;
    }
    if (inode->size != inode->disk_size && rng_below(&sim->random, 2) == 0) inode->disk_size = inode->size;
    inode->size = inode->disk_size;
    if (inode->capacity == 0) return;
    memset(inode->disk + inode->size, 0, inode->capacity - inode->size);
    memcpy(inode->memory, inode->disk, inode->capacity);
}

/* ---- names ---- */

static struct sim_name **name_place(struct sim_name **list, const char *name) {
    while (*list != NULL && strcmp((*list)->name, name) != 0) list = &(*list)->next;
    return list;
}

static void name_remove(struct storesim *sim, struct sim_name **list, const char *name) {
    struct sim_name **at = name_place(list, name);
    struct sim_name *gone = *at;
    if (gone == NULL) return;
    *at = gone->next;
    sim_inode_drop(sim, gone->inode);
    free(gone->name);
    free(gone);
}

static bool name_set(struct sim_name **list, const char *name, struct sim_inode *inode) {
    struct sim_name *n = calloc(1, sizeof *n);
    char *copy = strdup(name);
    if (n == NULL || copy == NULL) {
        free(n);
        free(copy);
        return false;
    }
    *n = (struct sim_name){*list, copy, inode};
    *list = n;
    inode->links++;
    return true;
}

static bool name_move(struct storesim *sim, struct sim_name **list, const char *from, const char *to) {
    struct sim_name *source = *name_place(list, from);
    if (source == NULL) return true; /* its creation did not survive */
    char *copy = strdup(to);
    if (copy == NULL) return false;
    name_remove(sim, list, to);
    free(source->name);
    source->name = copy;
    return true;
}

struct sim_inode *sim_lookup(const struct sim_folder *folder, const char *name) {
    for (const struct sim_name *n = folder->names; n != NULL; n = n->next)
        if (strcmp(n->name, name) == 0) return n->inode;
    return NULL;
}

struct sim_folder *sim_folder_get(struct storesim *sim, const char *path, bool make) {
    for (struct sim_folder *f = sim->folders; f != NULL; f = f->next)
        if (strcmp(f->path, path) == 0) return f;
    struct sim_folder *f = make ? calloc(1, sizeof *f) : NULL;
    char *copy = f != NULL ? strdup(path) : NULL;
    if (copy == NULL) {
        free(f);
        return NULL;
    }
    f->path = copy;
    f->next = sim->folders;
    sim->folders = f;
    return f;
}

static bool change_add(struct sim_folder *folder, enum sim_change_kind kind, const char *from, const char *to,
                       struct sim_inode *inode) {
    struct sim_change *c = calloc(1, sizeof *c);
    if (c == NULL) return false;
    *c = (struct sim_change){NULL, kind, strdup(from), to != NULL ? strdup(to) : NULL, inode};
    if (c->from == NULL || (to != NULL && c->to == NULL)) {
        free(c->from);
        free(c->to);
        free(c);
        return false;
    }
    if (inode != NULL) inode->links++;
    if (folder->last_change != NULL)
        folder->last_change->next = c;
    else
        folder->first_change = c;
    folder->last_change = c;
    return true;
}

bool sim_link(struct sim_folder *folder, const char *name, struct sim_inode *inode) {
    return change_add(folder, SIM_LINK, name, NULL, inode) && name_set(&folder->names, name, inode);
}

bool sim_rename(struct storesim *sim, struct sim_folder *folder, const char *from, const char *to) {
    return change_add(folder, SIM_RENAME, from, to, NULL) && name_move(sim, &folder->names, from, to);
}

bool sim_unlink(struct storesim *sim, struct sim_folder *folder, const char *name) {
    if (!change_add(folder, SIM_UNLINK, name, NULL, NULL)) return false;
    name_remove(sim, &folder->names, name);
    return true;
}

static void change_apply(struct storesim *sim, struct sim_folder *folder, const struct sim_change *c) {
    if (c->kind == SIM_LINK) {
        name_remove(sim, &folder->disk_names, c->from);
        (void)name_set(&folder->disk_names, c->from, c->inode);
    } else if (c->kind == SIM_RENAME) {
        (void)name_move(sim, &folder->disk_names, c->from, c->to);
    } else {
        name_remove(sim, &folder->disk_names, c->from);
    }
}

static void changes_free(struct storesim *sim, struct sim_folder *folder) {
    while (folder->first_change != NULL) {
        struct sim_change *c = folder->first_change;
        folder->first_change = c->next;
        if (c->inode != NULL) sim_inode_drop(sim, c->inode);
        free(c->from);
        free(c->to);
        free(c);
    }
    folder->last_change = NULL;
}

void sim_folder_sync(struct storesim *sim, struct sim_folder *folder) {
    for (struct sim_change *c = folder->first_change; c != NULL; c = c->next) change_apply(sim, folder, c);
    changes_free(sim, folder);
}

static bool same_name(const char *a, const char *b) { return a != NULL && b != NULL && strcmp(a, b) == 0; }

static bool touches(const struct sim_change *a, const struct sim_change *b) {
    return same_name(a->from, b->from) || same_name(a->from, b->to) || same_name(a->to, b->from) ||
           same_name(a->to, b->to);
}

/* Does an earlier change of the same names, itself lost, stand in the way of `c`? */
static bool blocked(const struct sim_change *const *lost, uint32_t lost_count, const struct sim_change *c) {
    for (uint32_t i = 0; i < lost_count; i++)
        if (touches(lost[i], c)) return true;
    return false;
}

static uint32_t count_changes(const struct sim_folder *folder) {
    uint32_t count = 0;
    for (const struct sim_change *c = folder->first_change; c != NULL; c = c->next) count++;
    return count;
}

static void keep_some_changes(struct storesim *sim, struct sim_folder *folder) {
    uint32_t count = count_changes(folder), lost_count = 0;
    const struct sim_change **lost = calloc(count + 1, sizeof *lost);
    uint64_t prefix = rng_below(&sim->random, count + 1);
    bool subset = lost != NULL && rng_below(&sim->random, 2) == 0;
    uint64_t at = 0;
    for (const struct sim_change *c = folder->first_change; c != NULL; c = c->next, at++) {
        bool keep = subset ? rng_below(&sim->random, 2) == 0 && !blocked(lost, lost_count, c) : at < prefix;
        if (keep)
            change_apply(sim, folder, c);
        else if (subset)
            lost[lost_count++] = c;
    }
    free(lost);
}

static void crash_folder(struct storesim *sim, struct sim_folder *folder) {
    keep_some_changes(sim, folder);
    changes_free(sim, folder);
    while (folder->names != NULL) name_remove(sim, &folder->names, folder->names->name);
    for (const struct sim_name *n = folder->disk_names; n != NULL; n = n->next)
        (void)name_set(&folder->names, n->name, n->inode);
}

void storesim_crash(struct storesim *sim) {
    pthread_mutex_lock(&sim->mutex);
    for (struct sim_inode *i = sim->inodes; i != NULL; i = i->next) crash_inode(sim, i);
    for (struct sim_folder *f = sim->folders; f != NULL; f = f->next) crash_folder(sim, f);
    sim->stopped = false;
    sim->stop_after = 0;
    pthread_mutex_unlock(&sim->mutex);
}

/* ---- the disk ---- */

struct storesim *storesim_new(uint64_t seed) {
    struct storesim *sim = calloc(1, sizeof *sim);
    if (sim == NULL) return NULL;
    pthread_mutex_init(&sim->mutex, NULL);
    sim->random.state = seed;
    return sim;
}

void storesim_free(struct storesim *sim) {
    if (sim == NULL) return;
    while (sim->folders != NULL) {
        struct sim_folder *f = sim->folders;
        sim->folders = f->next;
        changes_free(sim, f);
        while (f->names != NULL) name_remove(sim, &f->names, f->names->name);
        while (f->disk_names != NULL) name_remove(sim, &f->disk_names, f->disk_names->name);
        free(f->path);
        free(f);
    }
    pthread_mutex_destroy(&sim->mutex);
    free(sim);
}

void storesim_set_faults(struct storesim *sim, struct storesim_faults faults) {
    pthread_mutex_lock(&sim->mutex);
    sim->faults = faults;
    pthread_mutex_unlock(&sim->mutex);
}

void storesim_set_capacity(struct storesim *sim, uint64_t bytes) {
    pthread_mutex_lock(&sim->mutex);
    sim->capacity = bytes;
    pthread_mutex_unlock(&sim->mutex);
}

uint64_t storesim_ops(const struct storesim *sim) { return sim->ops; }

void storesim_stop_after(struct storesim *sim, uint64_t op) {
    pthread_mutex_lock(&sim->mutex);
    sim->stop_after = op;
    if (op != 0 && sim->ops >= op) sim->stopped = true;
    pthread_mutex_unlock(&sim->mutex);
}

void storesim_flip(struct storesim *sim, const char *folder, const char *name, uint64_t byte, uint8_t mask) {
    pthread_mutex_lock(&sim->mutex);
    struct sim_folder *f = sim_folder_get(sim, folder, false);
    struct sim_inode *inode = f != NULL ? sim_lookup(f, name) : NULL;
    if (inode != NULL && byte < inode->size) {
        inode->memory[byte] ^= mask;
        inode->disk[byte] ^= mask;
    }
    pthread_mutex_unlock(&sim->mutex);
}
