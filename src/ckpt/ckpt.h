/* When a save counts: slots, checksums, commit, restore.
 *
 * WRITER. One engine per rank writes into that rank's own store. A save is the rank's part of one version:
 * pieces (row ranges of named tensors) written straight from the caller's immutable buffers into a slot,
 * which is a file that is a valid safetensors file, in chunks, several at once, several saves in flight.
 * Order: all chunks complete -> data flushed -> header (names, shapes, slices, checksum of every chunk,
 * identity, blob) durable -> commit record durable -> reported ok. Records carry a counter that only grows. A
 * slot is reused only when the save in it can no longer be needed (see ckpt_durable). Flushes are shared
 * between saves that finish together.
 *
 * GROUP. Step k is complete when, for one incarnation and for every unit (pipeline stage) 0..unit_count-1,
 * there is an n such that parts 0..n-1 of n are committed in any of the stores. That is decided from files
 * alone.
 *
 * READER. ckpt_set scans any number of stores (folders), finds complete steps, newest first, and reads
 * tensors whole or by rows from whichever parts hold them, verifying the checksum of every chunk it touches:
 * it returns bytes that match or CORRUPT naming file, tensor and chunk. A missing checksum is a failure.
 *
 * Threads: an engine belongs to one thread; with `background` it has a thread of its own that does the I/O
 * and the checksums, and ckpt_fd becomes readable when ckpt_poll has news. Without, the owner drives it by
 * ckpt_poll (tests: deterministic). Fault points: SAVE_*. Formats: docs/formats/slot.md. Tested in
 * tests/unit/ckpt_*, tests/explore/ckpt_*, tests/crash/ckpt_*, tests/golden/ckpt_*, tests/fuzz/ckpt_*. */
#ifndef CKPT_CKPT_H
#define CKPT_CKPT_H

#include "base/safetensors.h"
#include "store/store.h"

#define CKPT_RUN_ID_BYTES 16
/* Bounds of in_flight and keep: what a commit record, one region of 64 KiB, holds with room to spare. */
#define CKPT_IN_FLIGHT_MAX 32u
#define CKPT_KEEP_MAX      64u

struct ckpt;

struct ckpt_config {
    uint8_t run_id[CKPT_RUN_ID_BYTES]; /* of the run; a store of another run is FOREIGN (both ids named) */
    uint64_t incarnation; /* grows with every start of the run; parts of different ones are never mixed */
    uint64_t
        resume_step;    /* the step this start resumed from (0: none): newer leftovers are no longer needed */
    uint32_t in_flight; /* N >= 1: saves at once */
    uint32_t keep;      /* K >= 1: durable steps kept */
    uint64_t chunk_bytes; /* multiple of STORE_BLOCK; 0: the default */
    bool background;
};

struct ckpt_save {
    uint64_t step;                     /* 1 or more */
    uint32_t unit, unit_count;         /* pipeline stage and number of stages */
    uint32_t part, part_count;         /* of this unit */
    const struct pawl_tensor *tensors; /* copied, with names and shapes; the data is not */
    uint32_t tensor_count;
    const void *blob; /* copied: what must be frozen with the state (JSON text by convention) */
    size_t blob_bytes;
};

struct ckpt_event {
    uint64_t step;
    uint32_t part, part_count;
    pawl_code code; /* OK: this part is committed and durable */
    struct pawl_error error;
    uint64_t bytes;
    int64_t write_ns, total_ns; /* begin to data written, begin to committed */
};

/* `store` is borrowed until ckpt_close and is then used by the engine alone. */
pawl_code ckpt_open(const struct ckpt_config *config, struct store *store, struct ckpt **out,
                    struct pawl_error *e);
/* Waits for saves in flight until deadline_ns (CLOCK_MONOTONIC), then abandons them; reports the first error
 * of saves nobody polled. Accepts null. */
pawl_code ckpt_close(struct ckpt *c, int64_t deadline_ns, struct pawl_error *e);

/* Start a save. BUSY when N are in flight: nothing happened. Steps may repeat (another part_count). A save is
 * in flight from here until its event was polled. ARGUMENT names the piece and the field. */
pawl_code ckpt_save_begin(struct ckpt *c, const struct ckpt_save *save, struct pawl_error *e);
/* Progress (without background) and news; never blocks on the device. */
uint32_t ckpt_poll(struct ckpt *c, struct ckpt_event *out, uint32_t max);
int ckpt_fd(const struct ckpt *c); /* -1 without background */
uint32_t ckpt_in_flight(const struct ckpt *c);
/* Operations of the device completed so far: grows as long as saves get on. Callable from any thread. */
uint64_t ckpt_progress(const struct ckpt *c);

/* The group declared `step` durable: slots of steps older than the K newest durable ones may be reused, and
 * committed parts of steps below `step` that never became durable too. Only grows. */
void ckpt_durable(struct ckpt *c, uint64_t step);
/* The group gave `step` up: it will never be declared durable (some rank could not save it). Its committed
 * part may be reused. Without this such parts pile up until a newer step is durable, in the worst case until
 * the disk is full. */
void ckpt_forget(struct ckpt *c, uint64_t step);

/* Make durable what a reader of `store` (opened for writing) sees committed. A killed process may have
 * written a commit record without flushing it, or after a flush that failed: a machine that lives shows it,
 * and a power cut would take it back. The logs are replaced by copies, since a second flush of the same file
 * proves nothing. The data needs nothing: no record is written before its data is flushed. ckpt_open does
 * this for its own store; whoever resumes a group does it for every store first. */
pawl_code ckpt_settle(struct store *store, struct pawl_error *e);

/* ---- reading ---- */
struct ckpt_set;
struct ckpt_step {
    uint64_t step;
    uint64_t incarnation;
    uint32_t unit_count;
    bool complete;
    char missing[160]; /* for an incomplete one: which unit and part, in words */
};

/* Scan `count` stores (opened read-only or not). Unreadable or damaged slots are no error: they are listed in
 * ckpt_set_problem. FOREIGN when a slot belongs to another run than run_id (null: any, but all the same). */
pawl_code ckpt_set_open(struct store *const *stores, uint32_t count, const uint8_t *run_id,
                        struct ckpt_set **out, struct pawl_error *e);
void ckpt_set_close(struct ckpt_set *set);
/* Newest first, complete and incomplete ones. */
uint32_t ckpt_set_count(const struct ckpt_set *set);
const struct ckpt_step *ckpt_set_at(const struct ckpt_set *set, uint32_t index);
/* Damaged files met by the scan, in words; null past the end. */
const char *ckpt_set_problem(const struct ckpt_set *set, uint32_t index);

struct ckpt_tensor {
    const char *name;
    enum pawl_dtype dtype;
    uint32_t rank;
    const uint64_t *shape;
    uint32_t unit;
};
uint32_t ckpt_set_tensor_count(const struct ckpt_set *set, uint32_t index);
const struct ckpt_tensor *ckpt_set_tensor(const struct ckpt_set *set, uint32_t index, uint32_t tensor);

/* A slice of a tensor of step `index` (place in the list) into want->data; dtype and shape must match what is
 * stored. Errors: NOT_FOUND (no such tensor or a hole, named), FORMAT (shape or dtype differ, both named),
 * CORRUPT, IO. */
pawl_code ckpt_set_read(struct ckpt_set *set, uint32_t index, const struct pawl_tensor *want,
                        struct pawl_error *e);
/* The blob of a unit (from its part 0); points into the set. */
pawl_code ckpt_set_blob(struct ckpt_set *set, uint32_t index, uint32_t unit, const void **blob, size_t *bytes,
                        struct pawl_error *e);
/* Read and verify every byte of step `index`; the first damage is the error. */
pawl_code ckpt_set_verify(struct ckpt_set *set, uint32_t index, struct pawl_error *e);

#endif
