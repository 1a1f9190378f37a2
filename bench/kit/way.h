/* Four ways to save a state from a training loop, behind one set of calls, so that a benchmark differs in
 * nothing but the way:
 *
 *   none       saves nothing
 *   sync       stops, writes straight from the state with O_DIRECT, flushes, goes on
 *   checkfreq  one in flight: a thread copies the whole state, which the next update waits for, then writes
 * and flushes the copy; the next save waits for the last one pawl       through <pawl/ckpt.h> alone:
 * in_flight saves, from immutable version buffers staged     the same from memory that is updated in place,
 * through the bounded staging memory
 *
 * sync and checkfreq write with the fastest writer there is (bench/kit/raw.h), without checksums, names or a
 * commit record, into files in turn: what they take is a lower bound of what any tool of their kind does. */
#ifndef KIT_WAY_H
#define KIT_WAY_H

#include <pthread.h>

#include <pawl/ckpt.h>

#include "kit/measure.h"
#include "kit/raw.h"
#include "kit/state.h"

enum way_kind { WAY_NONE, WAY_SYNC, WAY_CHECKFREQ, WAY_PAWL, WAY_STAGED, WAY_KINDS };
enum way_kind way_kind_named(const char *name); /* ends the program when there is none */
const char *way_kind_name(enum way_kind kind);

struct way_options {
    enum way_kind kind;
    const char *folder;
    uint32_t in_flight, writers;
    uint64_t chunk_bytes, staging_bytes;
    bool unchecked;
};

struct way_background { /* checkfreq's thread */
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    void *copy;
    const void *source; /* null: nothing to capture */
    bool writing, stop;
};

#define WAY_BEGUN_MAX 64u

struct way {
    struct way_options options;
    const struct state *state;
    struct raw_device *raw;
    struct way_background background;
    struct pawl_ckpt *ckpt;
    struct pawl_ckpt_state *declared;
    void **data;
    uint64_t step;
    struct {
        uint64_t id;
        uint32_t version;   /* still read by it; UINT32_MAX: none any more */
    } begun[WAY_BEGUN_MAX]; /* saves that have not ended, as far as was heard */
    uint32_t begun_count;
    _Atomic uint64_t plain_count; /* saves that ended, of the ways that are not pawl's */
};

void way_open(struct way *w, const struct way_options *options, const struct state *state);
/* Save this version of the state; blocks as long as its kind does. */
void way_save(struct way *w, uint32_t version);
/* Before memory that was saved is changed in place. */
void way_fence(struct way *w);
/* A version that no save reads and that is not `current`; waits for one. */
uint32_t way_free_version(struct way *w, uint32_t current);
bool way_is_busy(struct way *s); /* a save is under way */
void way_drain(struct way *s);   /* until everything begun is durable */
/* Saves that became durable since the opening. pawl gives up one that a newer durable step has overtaken:
 * what was asked for may be more than what was done, and rates count what was done. */
uint64_t way_durable_count(const struct way *w);
/* Budget and most ever used of the staging memory. */
void way_staging(const struct way *w, uint64_t *budget, uint64_t *used);
void way_close(struct way *w);

#endif
