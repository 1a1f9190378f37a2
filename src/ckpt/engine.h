/* The checkpoint engine's state, shared by its files: engine.c (opening, thread, closing), engine_save.c (the
 * owner's calls), engine_open.c (what the store holds), engine_io.c (the device), engine_copy.c (the staging
 * pool and copies into it). */
#ifndef CKPT_ENGINE_H
#define CKPT_ENGINE_H

#include <stdatomic.h>
#include <pthread.h>

#include "ckpt/commit.h"
#include "ckpt/copy.h"
#include "ckpt/log.h"
#include "ckpt/slot.h"

/* Chunk size by default: large enough that a device with 8 in flight runs at its full rate, small enough that
 * what a save still has to do after its last byte is handed out stays short. */
#define ENGINE_CHUNK_BYTES ((uint64_t)4 << 20)
/* Staging memory by default. */
#define ENGINE_STAGING_BYTES ((uint64_t)64 << 20)
/* Copies by other kinds of memory under way at once: a chunk may hold thousands of small tensors. */
#define ENGINE_COPIES_MAX 64u
/* Kinds of memory for which the staging pool is pinned; copies from more kinds are only slower. */
#define ENGINE_KINDS_MAX 16u
#define ENGINE_NONE      UINT32_MAX

struct engine_list { /* of buffers, first in, first out */
    uint32_t first, last;
};

struct job { /* one save */
    struct slot_plan plan;
    uint8_t *header; /* plan.header_bytes, aligned */
    size_t header_room;
    struct record_entry entry;
    struct ckpt_event event;
    int64_t begin_ns;
    uint32_t flight; /* place in ckpt.flights */
    bool staged, want_captured;
    bool mixed;                  /* some of it lies in another kind of memory */
    uint64_t copy_at, direct_at; /* where to look for the next chunk to copy, to write from its place */
    uint64_t sum_at;             /* chunks from here to direct_at that lie in place lack their checksums */
    struct engine_list ready;    /* buffers copied and not yet written */
};

struct engine_slot {
    struct store_file *file; /* null: not open */
    struct record_entry entry;
};

enum op_stage { OP_FREE, OP_CHUNK, OP_HEADER, OP_FLUSH, OP_RECORD_WRITE, OP_RECORD_FLUSH };

struct engine_op {
    enum op_stage stage;
    uint32_t save;
    uint32_t buffer; /* of the pool; ENGINE_NONE: none */
};

struct engine_buffer { /* of the pool: one chunk being copied, copied, or being written */
    uint32_t next;     /* of its list */
    uint32_t save;
    uint64_t chunk;
    uint32_t span;    /* the next one that may be of another kind of memory, while copies are begun */
    uint32_t pending; /* copies under way */
    bool begun;       /* all of them */
    pawl_code code;
};

struct engine_copy { /* one copy by another kind of memory */
    struct pawl_copy base;
    struct ckpt *engine;
    struct engine_copy *next; /* in the list of free or of finished ones */
    const struct pawl_memory *memory;
    uint32_t buffer;
    pawl_code code;
};

struct engine_pool {
    uint8_t *memory;
    size_t bytes;
    struct engine_buffer *buffers;
    uint32_t count;
    uint32_t used; /* most at once */
    uint32_t
        free_first; /* the one used last comes first: it is in the cache, and memory never used stays so */
    struct engine_list stalled; /* chunks with copies to begin when some have ended */
    struct engine_copy copies[ENGINE_COPIES_MAX];
    struct engine_copy *free_copies;
    struct pawl_memory kinds[ENGINE_KINDS_MAX]; /* the pool is pinned for */
    uint32_t kind_count;
};

struct engine_log {
    struct store_file *file;      /* null: broken, the next record starts a new file */
    uint32_t number, last_number; /* of the file; the highest ever seen */
    uint32_t region;              /* where the next record goes */
    uint8_t *block;               /* RECORD_REGION_BYTES, aligned */
    struct pawl_error error;      /* why the last record failed */
};

struct engine_flight { /* a save from its begin until its end was polled, as the owner sees it */
    bool used, cancelled;
    uint64_t tag;
};

struct engine_event {
    struct ckpt_event event;
    uint32_t flight;
};

struct ckpt {
    struct ckpt_config config;
    struct store *store;

    /* Of the engine's thread, or of the owner's without one. */
    struct commit core;
    struct engine_slot slots[COMMIT_SLOTS_MAX];
    struct job *jobs[COMMIT_SAVES_MAX]; /* by the core's number of the save */
    struct engine_op *ops;
    uint32_t op_count, ops_busy, chunks_busy, chunks_max;
    bool more; /* engine_pump has more to do at once */
    struct engine_pool pool;
    struct engine_log log;
    struct record record; /* being written */

    /* Shared, under the mutex. */
    pthread_mutex_t mutex;
    bool resumes; /* ckpt_enter was called: from resume_step, below */
    uint64_t resume_step;
    bool news;    /* something below changed that the engine has not looked at */
    bool waiting; /* the engine sleeps in store_wait, or is about to */
    struct job *queue[COMMIT_SAVES_MAX];
    uint32_t queue_count;
    struct engine_flight flights[COMMIT_SAVES_MAX];
    uint64_t durable[COMMIT_KEEP_MAX]; /* declared and not yet taken over, ascending */
    uint32_t durable_count;
    uint64_t durable_newest;
    uint64_t forgotten[COMMIT_KEEP_MAX]; /* likewise */
    uint32_t forgotten_count;
    struct engine_copy *finished;                     /* copies whose end the engine has not seen */
    struct engine_event events[2 * COMMIT_SAVES_MAX]; /* captured and ended, of at most in_flight saves */
    uint32_t event_count;
    uint32_t unpolled; /* begun, and their end not yet fetched: at most in_flight */
    bool stop;
    int64_t deadline_ns;

    _Atomic uint64_t operations; /* completed, for ckpt_progress */
    _Atomic bool woken;          /* ckpt_wake was called, and no ckpt_wait returned since */
    pthread_t thread;
    bool has_thread;
    int event_fd;
};

/* engine.c. Under the mutex: there is something new for the engine. */
void engine_call(struct ckpt *c);
/* Takes over what the owner asked for. */
void engine_take_requests(struct ckpt *c);
/* Until an operation ends, there is something new, or the time is over. */
void engine_sleep(struct ckpt *c, int64_t timeout_ns);

/* engine_open.c: reads what the store holds; `c->core` knows the slots afterwards. */
pawl_code engine_load(struct ckpt *c, struct pawl_error *e);

/* engine_io.c: takes what has completed and does what the core asks for now. True when it did something. */
bool engine_pump(struct ckpt *c);
/* Why the save fails, unless something else was first. */
void engine_note(struct job *job, const struct pawl_error *e);

/* engine_copy.c */
pawl_code staging_open(struct ckpt *c, struct pawl_error *e);
void staging_close(struct ckpt *c);
/* Copies the save's next chunk into a buffer, of which one is free; told to the core when it is there. */
void staging_copy(struct ckpt *c, uint32_t save);
/* Looks after copies that have ended, and begins those that wait. True when it did something. */
bool staging_progress(struct ckpt *c);
/* A buffer of the save with a copied chunk, which it then no longer counts as ready; ENGINE_NONE: none. */
uint32_t staging_take_ready(struct ckpt *c, uint32_t save);
uint8_t *staging_data(struct ckpt *c, uint32_t buffer);
void staging_free(struct ckpt *c, uint32_t buffer);
/* Gives back what was copied for a save that is over and never written. */
void staging_drop(struct ckpt *c, uint32_t save);

/* engine_save.c */
void engine_event(struct ckpt *c, const struct job *job, enum ckpt_event_kind kind);
void job_free(struct job *job);

#endif
