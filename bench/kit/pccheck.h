/* The shape of PCcheck's storage core (ASPLOS'25, doi 10.1145/3669940.3707255), written anew from a
 * description of it: a yardstick to run where the original is not at hand. NOT its code.
 *
 * Kept, because it decides the speed: one preallocated file mapped shared, N + 1 slots; N checkpoints at
 * once, each in p chunks; a chunk is copied into a pool of DRAM buffers, the next one may start then, and T
 * threads of its own copy it into the mapped slot in steps of 512 bytes; when the last chunk is in, one msync
 * of the slot, one of its 64 bytes of metadata, and a compare-and-swap on the root, ordered by a counter.
 * Left out: its defects. All chunks are joined before the msync, the msync covers the whole slot, sizes that
 * are no multiple of 512 are copied to the byte, a superseded checkpoint gives its slot back. None of that
 * makes it slower by more than the last pages. As there, the root itself is not flushed. No spinning: threads
 * wait on a condition. */
#ifndef KIT_PCCHECK_H
#define KIT_PCCHECK_H

#include <pthread.h>
#include <stdint.h>

#include "kit/measure.h"

#define PCCHECK_SLOTS_MAX 9u

struct pccheck {
    uint32_t in_flight, threads, chunk_count; /* N, T, p */
    size_t bytes, chunk_bytes;
    const uint8_t *source;
    uint8_t *map;
    size_t map_bytes, slot_bytes;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint8_t **pool; /* buffers of chunk_bytes; the free ones first */
    uint32_t pool_count, pool_free;
    uint32_t free_slots[PCCHECK_SLOTS_MAX], free_slot_count;
    uint64_t counter, committed; /* the root: the counter of what it names; its slot beside */
    uint32_t root_slot;
    uint64_t wanted, begun; /* checkpoints of this batch */
};

/* `path`: made and given its blocks, large enough for any N up to `slots_max` - 1, so that all settings share
 * it. */
void pccheck_prepare(const char *path, size_t bytes, uint32_t slots_max);
void pccheck_open(struct pccheck *p, const char *path, const void *source, size_t bytes, uint32_t in_flight,
                  uint32_t threads, uint32_t chunk_count);
/* That many checkpoints back to back by N drivers; ends when all are committed (or superseded by a newer
 * one). */
void pccheck_run(struct pccheck *p, uint64_t count);
/* Compares the committed slot with the source: a yardstick that loses bytes is none. */
bool pccheck_matches(const struct pccheck *p);
void pccheck_close(struct pccheck *p);

#endif
