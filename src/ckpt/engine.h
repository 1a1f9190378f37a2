/* The checkpoint engine's state, shared by its files: engine.c (calls and thread), engine_open.c,
 * engine_io.c. */
#ifndef CKPT_ENGINE_H
#define CKPT_ENGINE_H

#include <stdatomic.h>
#include <pthread.h>

#include "ckpt/log.h"
#include "ckpt/slot.h"

/* Chunk size by default: large enough that a device with 8 in flight runs at its full rate, small enough that
 * what a save still has to do after its last byte is handed out stays short. */
#define ENGINE_CHUNK_BYTES ((uint64_t)4 << 20)
/* Memory for gathered chunks; at least one chunk whatever its size. */
#define ENGINE_POOL_BYTES ((uint64_t)64 << 20)
/* While operations are in flight the thread looks this often for new requests. */
#define ENGINE_LOOK_NS 2000000

struct job { /* one save */
    struct slot_plan plan;
    uint8_t *header; /* plan.header_bytes, aligned */
    size_t header_room;
    struct record_entry entry;
    struct ckpt_event event;
    int64_t begin_ns;
};

struct engine_slot {
    struct store_file *file; /* null: not open */
    struct record_entry entry;
};

enum op_stage {
    OP_FREE,
    OP_CHUNK,
    OP_FLUSH,
    OP_HEADER_WRITE,
    OP_HEADER_FLUSH,
    OP_RECORD_WRITE,
    OP_RECORD_FLUSH
};

struct engine_op {
    enum op_stage stage;
    uint32_t save;
    uint32_t buffer; /* of the pool; UINT32_MAX: none */
};

struct engine_log {
    struct store_file *file;      /* null: broken, the next record starts a new file */
    uint32_t number, last_number; /* of the file; the highest ever seen */
    uint32_t region;              /* where the next record goes */
    uint8_t *block;               /* RECORD_REGION_BYTES, aligned */
    struct pawl_error error;      /* why the last record failed */
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
    uint8_t *pool;
    size_t pool_bytes;
    uint32_t *free_buffers, free_buffer_count;
    struct engine_log log;
    struct record record; /* being written */

    /* Shared, under the mutex. */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    struct job *queue[COMMIT_SAVES_MAX];
    uint32_t queue_count;
    uint64_t durable[COMMIT_KEEP_MAX]; /* declared and not yet taken over, ascending */
    uint32_t durable_count;
    uint64_t durable_newest;
    uint64_t forgotten[COMMIT_KEEP_MAX]; /* likewise */
    uint32_t forgotten_count;
    struct ckpt_event events[COMMIT_SAVES_MAX];
    uint32_t event_count;
    uint32_t unpolled; /* begun, and their event not yet fetched: at most in_flight */
    bool stop;
    int64_t deadline_ns;

    _Atomic uint64_t operations; /* completed, for ckpt_progress */
    pthread_t thread;
    bool has_thread;
    int event_fd;
};

/* engine_open.c: reads what the store holds; `c->core` knows the slots afterwards. */
pawl_code engine_load(struct ckpt *c, struct pawl_error *e);

/* engine_io.c: takes what has completed and does what the core asks for now. True when it did something. */
bool engine_pump(struct ckpt *c);
/* engine.c: the save's event, and its job's end. */
void engine_report(struct ckpt *c, struct job *job);
void engine_job_free(struct job *job);

#endif
