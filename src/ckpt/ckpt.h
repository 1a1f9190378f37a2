/* When a save counts: slots, checksums, commit, restore.
 *
 * WRITER. One engine per rank writes into that rank's own store. A save is the rank's part of one version:
 * tensors (boxes of named global ones) written straight from the caller's immutable buffers, or through a
 * bounded staging memory, into a slot, which is a file that is a valid safetensors file, in chunks, several
 * at once, several saves in flight.
 * Order: all chunks and the header (names, shapes, slices, checksum of every chunk, identity, blob) written
 * -> flushed -> commit record, with the header's checksum, durable -> reported ok. Records carry a counter
 * that only grows. A slot is reused only when the save in it can no longer be needed (see ckpt_durable).
 * Flushes are shared between saves that finish together.
 *
 * GROUP. Step k is complete when, for one incarnation and for every unit (pipeline stage) 0..unit_count-1,
 * there is an n such that parts 0..n-1 of n are committed in any of the stores. That is decided from files
 * alone.
 *
 * READER. ckpt_set scans any number of stores (folders), finds complete steps, newest first, and reads
 * tensors, whole or any box of them, from whichever parts hold them, verifying the checksum of every chunk it
 * touches: it returns bytes that match or CORRUPT naming file, tensor and chunk. A missing checksum is a
 * failure, unless the slot says that it has none and the caller accepts that.
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
        resume_step; /* the step this start resumed from (0: none): newer leftovers are no longer needed */
    bool anew; /* with resume_step 0: steps stored by earlier starts go once one of this start is durable,
                  also when their numbers are larger. False: those are kept */
    uint32_t in_flight;   /* N >= 1: saves at once */
    uint32_t keep;        /* K >= 1: durable steps kept */
    uint64_t chunk_bytes; /* multiple of STORE_BLOCK; 0: the default */
    uint32_t writers;     /* operations at the device at once; 0: as the store advises */
    /* Memory for chunks that cannot be written from where they lie (staged, unaligned, of another kind of
     * memory), taken at open and never exceeded, but for one chunk of the size given, or STORE_BLOCK. A
     * chunk left open is what fits here, at most the default. 0: the default, or one chunk where that is
     * larger. */
    uint64_t staging_bytes;
    bool unchecked; /* write no checksums of the data: faster, and readers refuse it unless told otherwise */
    bool background;
};

/* What is saved again and again: names, types, shapes, slices and places of tensors. Made once, a save of it
 * costs no planning. Immutable; any number of saves, engines and threads may use it at once; a save in flight
 * holds it. */
struct ckpt_layout;
/* ARGUMENT names tensor and field. Everything is copied but the data. */
pawl_code ckpt_layout_new(const struct pawl_tensor *tensors, uint32_t count, struct ckpt_layout **out,
                          struct pawl_error *e);
void ckpt_layout_release(struct ckpt_layout *layout); /* accepts null */

/* One rank's share when `part_count` replicas that hold the same tensors write them together: every element
 * of every tensor is in exactly one share, shares differ by little more than a row in bytes. Deterministic:
 * all replicas that pass equal tensors get matching shares. Cut along the first dimension that has several
 * indices. Names and shapes in it are those of the given tensors, which must stay as long. */
struct ckpt_share {
    struct pawl_tensor *tensors;
    uint32_t count;
    uint32_t *source; /* [count], which of the given tensors */
    uint64_t *offset; /* [count], bytes from that tensor's data to this one's */
    uint64_t bytes;
};
pawl_code ckpt_share_init(const struct pawl_tensor *tensors, uint32_t count, uint32_t part,
                          uint32_t part_count, struct ckpt_share *out, struct pawl_error *e);
void ckpt_share_close(struct ckpt_share *share);

struct ckpt_save {
    uint64_t step;                     /* 1 or more */
    uint64_t tag;                      /* the caller's, returned in the events; need not be unique */
    uint32_t unit, unit_count;         /* pipeline stage and number of stages */
    uint32_t part, part_count;         /* of this unit */
    const struct pawl_tensor *tensors; /* copied, with names and shapes; the data is not */
    uint32_t tensor_count;
    const struct ckpt_layout *layout; /* instead of `tensors`; null: those */
    void *const *data; /* with layout: where each tensor lies this time; null: as in the layout */
    const void *blob;  /* copied: what must be frozen with the state (JSON text by convention) */
    size_t blob_bytes;
    /* False: the data stays put and unchanged until CKPT_CAPTURED, or the end where that is not asked for; it
     * is written from where it lies if it can be. True: everything goes through the staging memory, saves
     * begun earlier first, so that the data is the caller's again as soon as possible. */
    bool staged;
    bool want_captured; /* report CKPT_CAPTURED too */
};

enum ckpt_event_kind {
    CKPT_ENDED,   /* the last event of a save */
    CKPT_CAPTURED /* the data is the caller's again: copied, or written. At most once, before CKPT_ENDED; not
                     for a save that failed before (its end says so) */
};

struct ckpt_event {
    enum ckpt_event_kind kind;
    uint64_t step, tag;
    uint32_t part, part_count;
    pawl_code code; /* of ENDED: OK: this part is committed and durable; CANCELLED: see ckpt_cancel */
    struct pawl_error error;
    uint64_t bytes;
    int64_t capture_ns, write_ns, total_ns; /* from begin to captured, to data written, to committed */
};

/* `store` is borrowed until ckpt_close and is then used by the engine alone. */
pawl_code ckpt_open(const struct ckpt_config *config, struct store *store, struct ckpt **out,
                    struct pawl_error *e);
/* For an engine that was opened (with incarnation 0 and resume_step 0) before the start it serves was known:
 * what ckpt_config says of both. Before its first save. */
void ckpt_enter(struct ckpt *c, uint64_t incarnation, uint64_t resume_step);
/* Waits for saves in flight until deadline_ns (CLOCK_MONOTONIC), then abandons them; reports the first error
 * of saves nobody polled. Accepts null. */
pawl_code ckpt_close(struct ckpt *c, int64_t deadline_ns, struct pawl_error *e);

/* Start a save. BUSY when N are in flight: nothing happened. Steps may repeat (another part_count). A save is
 * in flight from here until its event was polled. ARGUMENT names the tensor and the field. */
pawl_code ckpt_save_begin(struct ckpt *c, const struct ckpt_save *save, struct pawl_error *e);
/* Progress (without background) and news; never blocks on the device. */
uint32_t ckpt_poll(struct ckpt *c, struct ckpt_event *out, uint32_t max);
/* Give up the saves with this tag that have not begun to commit: they end with CANCELLED once nothing of them
 * is under way. The same happens by itself to a save that is overtaken: older than the K newest durable
 * steps, so that nobody will ever ask for it. */
void ckpt_cancel(struct ckpt *c, uint64_t tag);
/* Sleep until there may be news for ckpt_poll, ckpt_wake was called from any thread, or the time is over. */
void ckpt_wait(struct ckpt *c, int64_t timeout_ns);
void ckpt_wake(struct ckpt *c);
int ckpt_fd(const struct ckpt *c); /* -1 without background */
uint32_t ckpt_in_flight(const struct ckpt *c);
/* Operations of the device completed so far: grows as long as saves get on. Callable from any thread. */
uint64_t ckpt_progress(const struct ckpt *c);
/* Staging memory: all of it, and the most that was in use at once. By the engine's thread. */
void ckpt_staging(const struct ckpt *c, uint64_t *bytes, uint64_t *used_bytes);

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
struct ckpt_set_options {       /* all zero is valid */
    const uint8_t *run_id;      /* null: any, but all the same */
    bool unchecked;             /* accept slots that were written without checksums */
    const struct store *prefer; /* take from this store what it holds, before others; null: any order */
};
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
pawl_code ckpt_set_open_with(struct store *const *stores, uint32_t count,
                             const struct ckpt_set_options *options, struct ckpt_set **out,
                             struct pawl_error *e);
void ckpt_set_close(struct ckpt_set *set);
/* Newest first, complete and incomplete ones. */
uint32_t ckpt_set_count(const struct ckpt_set *set);
const struct ckpt_step *ckpt_set_at(const struct ckpt_set *set, uint32_t index);
/* Damaged files met by the scan, in words; null past the end. */
const char *ckpt_set_problem(const struct ckpt_set *set, uint32_t index);
/* What that problem may have cost. */
struct ckpt_cost {
    bool any;                   /* a step, or several */
    uint64_t step, incarnation; /* 0: which is not known */
};
struct ckpt_cost ckpt_set_problem_cost(const struct ckpt_set *set, uint32_t index);

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
/* Several at once: in the order in which they lie in the files, several stores at the same time, each chunk
 * read once. The first error ends it; what was written to the targets is then of no meaning. */
pawl_code ckpt_set_read_many(struct ckpt_set *set, uint32_t index, const struct pawl_tensor *want,
                             uint32_t count, struct pawl_error *e);
/* Bytes of data read from the devices so far, in all and from one of the stores. */
uint64_t ckpt_set_bytes_read(const struct ckpt_set *set, const struct store *from); /* null: all */
/* The blob of a unit (from its part 0); points into the set. */
pawl_code ckpt_set_blob(struct ckpt_set *set, uint32_t index, uint32_t unit, const void **blob, size_t *bytes,
                        struct pawl_error *e);
/* The slots of step `index`, for inspection; pointers into the set. */
struct ckpt_part {
    const struct store *store;
    const char *file; /* name in the store's folder */
    uint32_t unit, part, part_count;
    uint64_t file_bytes, data_bytes, counter;
    bool unchecked;
};
uint32_t ckpt_set_part_count(const struct ckpt_set *set, uint32_t index);
struct ckpt_part ckpt_set_part(const struct ckpt_set *set, uint32_t index, uint32_t part);
/* Read and verify every byte of step `index`; the first damage is the error. */
pawl_code ckpt_set_verify(struct ckpt_set *set, uint32_t index, struct pawl_error *e);

#endif
