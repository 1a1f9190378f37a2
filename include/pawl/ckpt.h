/* Checkpoints of training state: save without stopping, several at once; restore exactly.
 *
 *   struct pawl_ckpt_options options = {.path = "runs/a"};
 *   struct pawl_ckpt *c;
 *   pawl_ckpt_open(&options, &c, &e);
 *   pawl_ckpt_declare(c, tensors, count, &state, &e);        names, types, shapes, where they lie
 *   pawl_ckpt_resume(c, state, &step, &e);                   0, or the step whose bytes are now in them
 *   for (; step < steps;) {
 *       compute();
 *       pawl_ckpt_fence(c, PAWL_FOREVER, &e);                wait until what is being saved was captured
 *       update();  step++;
 *       if (pawl_ckpt_due(c, step)) pawl_ckpt_save(c, &(struct pawl_ckpt_save){.state = state, .step = step},
 * NULL, &e);
 *   }
 *   pawl_ckpt_close(c, PAWL_FOREVER, &e);                    waits, for other ranks too, and reports
 *
 * What holds. A step is DURABLE when every part of it, of every rank, was written, flushed and committed; a
 * power cut or kill at any later moment leaves it restorable. A save that does not get so far, whatever the
 * reason, leaves the older ones as they are. A restore returns the bytes that were saved, or an error: every
 * chunk is verified by its checksum. Nothing else touches the memory of the caller.
 *
 * Threads. A pawl_ckpt may be used by one thread at a time, but for pawl_ckpt_status. It has a thread of its
 * own for copying, checksums and the device, so a save goes on while the caller computes or sleeps; no call
 * but those that say so blocks on the device. Errors of background work are returned by the next
 * pawl_ckpt_save or _declare (see `tolerate`), by _wait for that save, by _close, and in any case by events.
 * The thread starts with the first save; a child of fork(2) must not use what its parent opened.
 *
 * Several ranks. Every rank opens the same path with its rank and rank_count and writes only below its own
 * folder, store/rank-NNNN. Which steps are complete is decided from the stored files alone (docs/formats):
 * by any number of ranks, on a copy, without a process of the run. Contract in prose: docs/checkpointing.md.
 * Implemented in src/saver, tested in tests/unit/saver_*, tests/crash/saver_*. */
#ifndef PAWL_CKPT_H
#define PAWL_CKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pawl/error.h>
#include <pawl/tensor.h>

#define PAWL_RUN_ID_BYTES 16
/* A time that never comes; otherwise times are nanoseconds of CLOCK_MONOTONIC (pawl_now() + ...). */
#define PAWL_FOREVER INT64_MAX
int64_t pawl_now(void);
/* pawl_ckpt_close without a deadline waits so long for another rank that shows no sign of life: 30 s. */
#define PAWL_CKPT_PEER_PATIENCE_NS 30000000000ll

enum pawl_ckpt_backend { PAWL_CKPT_AUTO, PAWL_CKPT_URING, PAWL_CKPT_PLAIN, PAWL_CKPT_PMEM };

enum pawl_ckpt_full {                  /* what pawl_ckpt_save does while in_flight saves are under way */
                      PAWL_CKPT_BLOCK, /* wait for one to end */
                      PAWL_CKPT_SKIP   /* return OK with *id 0; counted, and told as event */
};

enum pawl_ckpt_event_kind {
    PAWL_CKPT_BEGUN,
    PAWL_CKPT_CAPTURED,  /* the memory may be changed */
    PAWL_CKPT_COMMITTED, /* this rank's part counts */
    PAWL_CKPT_DURABLE,   /* every rank's does: the step can be resumed from */
    PAWL_CKPT_SKIPPED,
    PAWL_CKPT_CANCELLED, /* given up on request, or overtaken by newer durable steps */
    PAWL_CKPT_FAILED,    /* with id 0: a damaged step or file that resuming passed over */
    PAWL_CKPT_INTERVAL   /* `every` was changed by the cadence; `text` says why */
};
const char *pawl_ckpt_event_name(enum pawl_ckpt_event_kind kind); /* "captured" */

struct pawl_ckpt_event {
    enum pawl_ckpt_event_kind kind;
    uint64_t id, step;
    pawl_code code;     /* FAILED, CANCELLED: why */
    char text[768];     /* likewise, in words, with file and errno */
    uint64_t bytes;     /* of this rank's part */
    int64_t blocked_ns; /* the caller stood still in pawl_ckpt_save and _fence because of this save */
    int64_t capture_ns, write_ns, total_ns; /* from begin to captured, to data written, to committed */
    uint32_t in_flight;                     /* saves under way when this was told */
    uint64_t every;                         /* INTERVAL */
};

/* How ranks agree which step is durable. The built-in one (a null pointer in the options) needs nothing but
 * the files: each rank looks at what the others say they have committed. A coordinator can do it faster. It
 * declares nothing durable before all ranks have resumed, since it is then that the step resumed from may be
 * overwritten. Called by the engine's thread; none may block. */
struct pawl_ckpt_group {
    void *context;
    /* This rank's part of `step` is committed; or it never will be (cancelled, failed or skipped). Once per
     * save: twice for a step of which this rank saves two units. */
    void (*committed)(void *context, uint64_t step);
    void (*failed)(void *context, uint64_t step);
    /* News since the last call: *durable, the newest step that all ranks committed (0: none yet), and
     * *given_up, a step that never will be durable (0: none). True when there may be more to fetch. */
    bool (*poll)(void *context, uint64_t *durable, uint64_t *given_up);
    /* What all ranks of this start agree on before any of them opens. */
    uint64_t incarnation; /* larger than that of all earlier starts of the run */
    uint64_t resume_step; /* the step they resume from; 0: none */
};

struct pawl_ckpt_options {             /* all zero but `path` is valid */
    const char *path;                  /* the run's folder; made when missing */
    bool must_exist, must_be_new;      /* NOT_FOUND, BUSY otherwise */
    uint8_t run_id[PAWL_RUN_ID_BYTES]; /* whose folder it must be (FOREIGN); zeros: as found, or fresh */
    uint32_t rank, rank_count;         /* 0 of 0 is 0 of 1 */
    /* Several ranks without a group: names this start, the same text on all ranks and never used before in
     * this run (a job id with its restart count, say). Null: from the environment, where torchrun, Slurm or
     * PAWL_START name it, else ARGUMENT. */
    const char *start;
    const struct pawl_ckpt_group *group; /* copied; null: by files */
    uint32_t in_flight;                  /* N, 1 to 32; 0: tune.json, else 2 */
    uint32_t keep;                       /* K, durable steps kept, 1 to 64; 0: 1 */
    enum pawl_ckpt_full full;
    /* Failed saves in a row that are only told as events; one more is an error. Those at the very end are
     * returned by pawl_ckpt_close: who ends well has its last step. */
    uint32_t tolerate;
    enum pawl_ckpt_backend backend;
    uint32_t writers;     /* operations at the device at once; 0: tune.json, else the store's default */
    uint64_t chunk_bytes; /* multiple of 4096; 0: tune.json, else 4 MiB; less where staging_bytes is less */
    /* Memory for capture, taken at open, never exceeded: 4096 or more, and no less than chunk_bytes
     * (ARGUMENT). 0: 64 MiB, or one chunk where that is larger. */
    uint64_t staging_bytes;
    /* Larger than that: the first save, if it copies, takes what its state needs to be copied whole, at
     * most so much, so that a fence waits for copies alone and not for the device; what cannot be had is done
     * without. 0: as much as was taken at open. */
    uint64_t staging_max_bytes;
    bool unchecked; /* no checksums: every restore then has to ask for it too */
    /* Cadence, for pawl_ckpt_due: a fixed interval, or (0) the shortest that keeps the slowdown under
     * `overhead` (0: 0.03), stretched towards the optimum for `mtbf_s` seconds between failures when given.
     * Several ranks measure different things: give `every`, or let one rank ask and tell the others. */
    uint64_t every;
    double overhead, mtbf_s;
    /* Told of every event, by the engine's thread; must not call back into pawl but pawl_ckpt_status. */
    void (*on_event)(void *context, const struct pawl_ckpt_event *event);
    void *on_event_context;
};

struct pawl_ckpt;
struct pawl_ckpt_state;

/* Open the run's folder for this rank: makes it, or goes on with what is there. Several ranks: the first one
 * looks for the step to resume from, the others wait for its word, some seconds at most. Errors: BUSY
 * (another process writes there, named), FOREIGN, CORRUPT, NO_SPACE, ARGUMENT, NOT_FOUND, IO (a store that
 * cannot be read is an error, not the absence of steps). Changes nothing that was saved.
 * `why` of the back end: pawl_ckpt_status. */
pawl_code pawl_ckpt_open(const struct pawl_ckpt_options *options, struct pawl_ckpt **out,
                         struct pawl_error *e);

/* What this rank holds: copied, with names and shapes, not the data, which stays the caller's and must live
 * as long as saves of it. Costs of planning are paid here, once. The state is freed by pawl_ckpt_close. */
pawl_code pawl_ckpt_declare(struct pawl_ckpt *c, const struct pawl_tensor *tensors, uint32_t count,
                            struct pawl_ckpt_state **out, struct pawl_error *e);

/* Fill the state's memory from the newest durable step and go on from there: *step is it, or 0 when nothing
 * was ever saved. A damaged step is passed over for the next older one (one rank), or marked bad in the
 * run's folder and CORRUPT is returned, so that the next start takes an older one (several ranks). Blocks for
 * the time of the read. Once, before the first save. Errors: CORRUPT (no good step is left; the files stay),
 * NOT_FOUND (a tensor, named), FORMAT (other type or shape, both named), IO. */
pawl_code pawl_ckpt_resume(struct pawl_ckpt *c, struct pawl_ckpt_state *state, uint64_t *step,
                           struct pawl_error *e);
/* The blob that was saved with the step resumed from, by replica 0 of the unit that holds the first tensor
 * declared; valid until close; null and 0 when there is none. */
void pawl_ckpt_blob(const struct pawl_ckpt *c, const void **blob, size_t *bytes);
/* Likewise of each unit: how many the step resumed from has (0: nothing was resumed from), and what was saved
 * with one of them, on whatever rank that was; null and 0 when it had none. Valid until close. ARGUMENT:
 * there is no such unit. */
uint32_t pawl_ckpt_unit_count(const struct pawl_ckpt *c);
pawl_code pawl_ckpt_unit_blob(const struct pawl_ckpt *c, uint32_t unit, const void **blob, size_t *bytes,
                              struct pawl_error *e);
/* The step that pawl_ckpt_resume sets out from, as found or agreed at open; 0: none, or what there was is
 * lost (resuming says so). Alone, it goes back to an older one where that one is damaged. To look at what is
 * stored before memory is declared for it: pawl_ckpt_reader_open. */
uint64_t pawl_ckpt_stored_step(const struct pawl_ckpt *c);
/* Instead of pawl_ckpt_resume, for callers that learn from what is stored which memory they need: they read a
 * step with a reader (below), and then go on from it: `step` of start `incarnation`, as the reader lists it.
 * Several ranks: all of them from the same step, and none before all have read it, since it may be
 * overwritten then. 0: nothing was ever saved; CORRUPT when something was. NOT_FOUND: the step is not
 * complete, or marked bad. ARGUMENT: step 0 although steps are stored. */
pawl_code pawl_ckpt_resume_from(struct pawl_ckpt *c, uint64_t step, uint64_t incarnation,
                                struct pawl_error *e);
/* After resuming: files found damaged, first of all when the run was opened, because of which a step newer
 * than the one gone on from was lost or may have been; with how many are computed again. Null past the end.
 * All that was damaged is told as events FAILED. Texts are valid until close. */
const char *pawl_ckpt_problem(const struct pawl_ckpt *c, uint32_t index);
/* What a reader found damaged: told as event FAILED, and marked in the run's folder, so that no resume takes
 * it again. ARGUMENT: after resuming; IO. */
pawl_code pawl_ckpt_mark_bad(struct pawl_ckpt *c, uint64_t step, uint64_t incarnation, const char *why,
                             struct pawl_error *e);
/* Instead of resuming: begin anew although durable steps exist. They are kept until new ones replace them. A
 * save without either call, while durable steps exist, is refused with ARGUMENT. */
pawl_code pawl_ckpt_from_scratch(struct pawl_ckpt *c, struct pawl_error *e);

struct pawl_ckpt_save { /* all zero but state and step is valid */
    const struct pawl_ckpt_state *state;
    uint64_t step;     /* 1 or more, larger than that of the save before, or that step's next unit */
    void *const *data; /* one address per tensor declared; null: as declared. Tells of versions (buffers).
                          A tensor with elements and without an address: ARGUMENT, named */
    bool immutable; /* the memory will not change until CAPTURED: nothing is copied. False: staging copies */
    uint32_t unit, unit_count;       /* pipeline stage or state group, of how many; 0 of 0 is 0 of 1 */
    uint32_t replica, replica_count; /* of ranks that hold this very state: they share the writing */
    uint32_t copies;                 /* of every byte, on different ranks; at most replica_count; 0: 1 */
    const void *blob; /* frozen with the step: position in the data, RNG, schedule ... ; copied */
    size_t blob_bytes;
};
/* Begin a save. *id (may be null) names it in events; 0: skipped. Returns at once, but for `full`; the time
 * until the memory may change is up to pawl_ckpt_fence. The error of an earlier save, when there were more
 * than `tolerate` in a row, is returned here once: then nothing was begun. BUSY: a later start of the run has
 * begun, this one saves no more. When 2 in_flight + 2 steps are committed here and wait for other ranks, the
 * save is skipped whatever `full` says: nobody waits for a rank that may be gone. A step that another rank
 * could not save, or skipped, is a failure here too (PEER_LOST, see `tolerate`). */
pawl_code pawl_ckpt_save(struct pawl_ckpt *c, const struct pawl_ckpt_save *save, uint64_t *id,
                         struct pawl_error *e);
/* Wait until all memory given to saves is the caller's again (PAWL_CKPT_CAPTURED). TIMEOUT. */
pawl_code pawl_ckpt_fence(struct pawl_ckpt *c, int64_t deadline_ns, struct pawl_error *e);
enum pawl_ckpt_until { PAWL_CKPT_UNTIL_CAPTURED, PAWL_CKPT_UNTIL_COMMITTED, PAWL_CKPT_UNTIL_DURABLE };
/* Wait for one save. TIMEOUT, or the save's own error: CANCELLED, PEER_LOST (committed here, and another rank
 * could not), what the device said. NOT_FOUND: never begun, or more than 128 saves ago. */
pawl_code pawl_ckpt_wait(struct pawl_ckpt *c, uint64_t id, enum pawl_ckpt_until until, int64_t deadline_ns,
                         struct pawl_error *e);
/* Give up a save that has not begun to commit; ends with CANCELLED. No effect on one that has ended. */
void pawl_ckpt_cancel(struct pawl_ckpt *c, uint64_t id);
/* Events not yet fetched, oldest first; at most 1024 are kept (then the oldest are dropped). */
uint32_t pawl_ckpt_poll(struct pawl_ckpt *c, struct pawl_ckpt_event *out, uint32_t max);

/* Called once per iteration: is it time to save? Measures the iterations by its own calls. With `every` it is
 * time at its multiples. */
bool pawl_ckpt_due(struct pawl_ckpt *c, uint64_t step);

struct pawl_ckpt_status {
    uint64_t durable_step; /* newest; 0: none */
    double durable_age_s;
    uint32_t in_flight;
    uint64_t saves, committed, skipped, failed, cancelled; /* since open */
    uint32_t failed_in_row;
    uint64_t bytes_written;
    int64_t blocked_ns;                         /* in all */
    uint64_t staging_bytes, staging_used_bytes; /* budget; most in use at once */
    uint64_t every;
    double iteration_s, save_s; /* measured; 0: not yet */
    int64_t progress_ns;        /* time of the last operation of the device that ended */
    char backend[160];          /* which one, and why */
    uint8_t run_id[PAWL_RUN_ID_BYTES];
};
/* From any thread. */
void pawl_ckpt_status(const struct pawl_ckpt *c, struct pawl_ckpt_status *out);

/* Wait until all saves are committed here and the group has decided on them (durable, or never), or the
 * deadline; give up the rest, close. OK: the last step saved is durable, on all ranks. Else the first error
 * of saves that no call has returned (events do not count as told; tolerated ones at the very end do); or
 * TIMEOUT, naming the step and the ranks waited for. Without a deadline (PAWL_FOREVER) it still ends:
 * PEER_LOST when for PAWL_CKPT_PEER_PATIENCE_NS no rank that is waited for has come nearer to the step (in
 * its file of the group; a coordinator: has not decided). Give a deadline where ranks may be later than that.
 * PEER_LOST also when the last saves were skipped because of other ranks, not when by `full`. All is freed in
 * any case. Accepts null. */
pawl_code pawl_ckpt_close(struct pawl_ckpt *c, int64_t deadline_ns, struct pawl_error *e);

/* ---- Reading without writing: another program, another number of ranks, a copy ---- */

struct pawl_ckpt_reader;
struct pawl_ckpt_reader_options {      /* all zero is valid */
    uint8_t run_id[PAWL_RUN_ID_BYTES]; /* zeros: any */
    bool unchecked;                    /* accept what was written without checksums */
    const char *prefer; /* name of a store's folder to read from first ("rank-0003"); null: any */
};
struct pawl_ckpt_step {
    uint64_t step, incarnation;
    uint32_t unit_count;
    bool complete;
    bool bad;          /* marked by a failed resume */
    uint64_t bytes;    /* of data in all its parts */
    char missing[160]; /* of an incomplete one: what, in words */
};
/* `path`: a run's folder, its store folder, or one rank's store. May be read-only and in use. */
pawl_code pawl_ckpt_reader_open(const char *path, const struct pawl_ckpt_reader_options *options,
                                struct pawl_ckpt_reader **out, struct pawl_error *e);
void pawl_ckpt_reader_close(struct pawl_ckpt_reader *r);
uint32_t pawl_ckpt_reader_step_count(const struct pawl_ckpt_reader *r);
struct pawl_ckpt_step pawl_ckpt_reader_step(const struct pawl_ckpt_reader *r,
                                            uint32_t index); /* newest first */
const char *pawl_ckpt_reader_problem(const struct pawl_ckpt_reader *r,
                                     uint32_t index); /* null past the end */
/* Place of the newest complete step that is not marked bad; UINT32_MAX: none. */
uint32_t pawl_ckpt_reader_newest(const struct pawl_ckpt_reader *r);
/* From now on this reader takes the step for one that is marked bad. ARGUMENT: there is no such step; MEMORY.
 */
pawl_code pawl_ckpt_reader_pass_over(struct pawl_ckpt_reader *r, uint32_t index, struct pawl_error *e);
/* The tensors of a step: name, type and global shape; pointers into the reader. */
uint32_t pawl_ckpt_reader_tensor_count(const struct pawl_ckpt_reader *r, uint32_t index);
struct pawl_tensor pawl_ckpt_reader_tensor(const struct pawl_ckpt_reader *r, uint32_t index, uint32_t tensor);
/* Slices (whole tensors, or any box of them) into tensors[i].data, verified; type and shape must match what
 * is stored. However they were saved: any number of ranks, any cut. Reads only what it needs. On an error
 * some of them may have been written to, also with bytes that do not match their checksums. */
pawl_code pawl_ckpt_reader_read(struct pawl_ckpt_reader *r, uint32_t index, const struct pawl_tensor *tensors,
                                uint32_t count, struct pawl_error *e);
/* One tensor into fresh memory, for free(). */
pawl_code pawl_ckpt_reader_load(struct pawl_ckpt_reader *r, uint32_t index, const char *name,
                                struct pawl_tensor *out, void **memory, struct pawl_error *e);
pawl_code pawl_ckpt_reader_blob(struct pawl_ckpt_reader *r, uint32_t index, uint32_t unit, const void **blob,
                                size_t *bytes, struct pawl_error *e);
uint64_t pawl_ckpt_reader_bytes_read(const struct pawl_ckpt_reader *r); /* from devices, so far */

#endif
