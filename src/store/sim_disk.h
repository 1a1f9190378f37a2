/* The simulated disk's own state: files in sectors with a volatile and a durable side, names, pending name
 * changes. See store/store.h for what it promises; store/sim_store.c puts the store interface on top. */
#ifndef STORE_SIM_DISK_H
#define STORE_SIM_DISK_H

#include <pthread.h>

#include "store/internal.h"

#define SIM_SECTOR 512u

struct sim_inode {
    struct sim_inode *next; /* all of the disk */
    uint32_t links;         /* names and open handles and pending name changes */
    uint8_t *memory;        /* what the living machine sees: size bytes, room for `capacity` */
    uint8_t *disk;          /* what is on the platter */
    uint8_t *dirty;         /* one per sector: memory is newer than disk */
    uint64_t size, disk_size;
    uint64_t capacity;
};

struct sim_name {
    struct sim_name *next;
    char *name;
    struct sim_inode *inode;
};

enum sim_change_kind { SIM_LINK, SIM_RENAME, SIM_UNLINK };
struct sim_change { /* of the names, not yet durable; in order */
    struct sim_change *next;
    enum sim_change_kind kind;
    char *from, *to;
    struct sim_inode *inode; /* SIM_LINK */
};

struct sim_folder {
    struct sim_folder *next;
    char *path;
    bool locked;
    struct sim_name *names;      /* as the living machine sees them */
    struct sim_name *disk_names; /* on the platter */
    struct sim_change *first_change, *last_change;
};

struct storesim {
    pthread_mutex_t mutex; /* engines of several ranks may live in threads */
    struct rng_stream random;
    struct storesim_faults faults;
    uint64_t capacity, ops, stop_after;
    bool stopped;
    uint64_t tick;
    uint32_t open_stores;
    struct sim_folder *folders;
    struct sim_inode *inodes;
};

/* Counts a mutating operation; false once the disk has stopped. */
bool sim_count(struct storesim *sim);
/* True with `ppm` in a million. */
bool sim_chance(struct storesim *sim, uint32_t ppm);

struct sim_inode *sim_inode_new(struct storesim *sim);
void sim_inode_drop(struct storesim *sim, struct sim_inode *inode);
/* 0 or an errno: ENOSPC, ENOMEM. New bytes are zero. */
int sim_inode_resize(struct storesim *sim, struct sim_inode *inode, uint64_t size);
/* The range lies inside the file. Torn: only some of its sectors arrive. */
void sim_inode_write(struct storesim *sim, struct sim_inode *inode, uint64_t offset, const uint8_t *data,
                     uint64_t bytes, bool torn);
void sim_inode_flush(struct sim_inode *inode);
/* A flush that failed: some sectors arrived, the rest are forgotten as if they had. */
void sim_inode_flush_failed(struct storesim *sim, struct sim_inode *inode);
uint64_t sim_free_bytes(const struct storesim *sim);

struct sim_folder *sim_folder_get(struct storesim *sim, const char *path, bool make);
struct sim_inode *sim_lookup(const struct sim_folder *folder, const char *name);
/* Change the living names and remember the change as pending. False without memory. */
bool sim_link(struct sim_folder *folder, const char *name, struct sim_inode *inode);
bool sim_rename(struct storesim *sim, struct sim_folder *folder, const char *from, const char *to);
bool sim_unlink(struct storesim *sim, struct sim_folder *folder, const char *name);
void sim_folder_sync(struct storesim *sim, struct sim_folder *folder);

#endif
