/* The checkpointer of include/pawl/ckpt.h, shared by its files.
 *
 * One struct pawl_ckpt is a caller and a keeper: the caller's thread hands over tasks (saves) under the
 * mutex, the keeper's thread (keeper.c) owns the engine of src/ckpt, the group and the decisions, and ends
 * the tasks. Whoever waits, waits on a condition variable or in the engine; nothing spins. The thread starts
 * with the first save: until then the caller owns everything, so resuming needs no locks.
 *
 * A task lives from pawl_ckpt_save until it failed, was cancelled, or, being committed, was decided by the
 * group. What became of it stays in a ring of outcomes for pawl_ckpt_wait.
 *
 *   open.c     options, identity, opening and closing       run.c      files of the run's folder
 *   state.c    declared tensors, shares of replicas         starts.c   which start this is, where it resumes
 *   save.c     the caller's calls about saves               group.c    who has committed what, by files
 *   keeper.c   the thread                                   resume.c   restoring, walking back
 *   events.c   the ring, callbacks, status                  reader.c   reading without writing
 *   damage.c   what resuming tells of damaged files
 *   due.c      cadence                                      tuned.c    what was measured for this folder
 *   strided.c, cuda.c  the kinds of include/pawl/memory.h
 *
 * Formats: docs/formats/group.md. Tested in tests/unit/saver_*, tests/crash/saver_*. */
#ifndef SAVER_SAVER_H
#define SAVER_SAVER_H

#include <pthread.h>
#include <stdatomic.h>

#include <pawl/ckpt.h>
#include <pawl/tune.h>

#include "ckpt/ckpt.h"
#include "saver/group.h"
#include "saver/run.h"
#include "saver/starts.h"

#define SAVER_EVENTS   1024u /* kept for pawl_ckpt_poll; a promise of the public header */
#define SAVER_OUTCOMES 128u  /* ended saves that pawl_ckpt_wait still knows */
/* In flight (32 at most), and twice that and two more that are committed and not decided. */
#define SAVER_TASKS_MAX (3 * CKPT_IN_FLIGHT_MAX + 2)
#define SAVER_UNITS_MAX 64u /* units that one rank saves of one step */
#define SAVER_SKIPS_MAX 64u /* skipped saves that the keeper has not passed on yet */

/* A replica's share of a state, planned once. */
struct saver_share {
    struct saver_share *next;
    uint32_t part, part_count;
    struct ckpt_share share; /* empty when part_count is 1: the whole state */
    struct ckpt_layout *layout;
    uint32_t count; /* tensors */
};

struct pawl_ckpt_state {
    struct pawl_ckpt_state *next;
    struct pawl_ckpt *owner;
    struct pawl_tensor *tensors; /* with names and shapes of our own */
    uint32_t count;
    uint64_t *numbers; /* shape, begin, extent of all */
    char *names;
    struct saver_share *shares;
};

enum task_phase {
    TASK_QUEUED,   /* for the keeper */
    TASK_RUNNING,  /* shares of it were given to the engine */
    TASK_COMMITTED /* this rank's part counts; the group has not decided */
};

struct task_share {
    const struct saver_share *plan;
    void **data; /* [plan->count], where each tensor lies; null: as declared */
};

struct task { /* one pawl_ckpt_save; immutable from queueing on down to `phase` */
    struct task *next;
    uint64_t id, step;
    bool immutable;
    uint32_t unit, unit_count, copies;
    uint32_t share_count;
    struct task_share *shares;
    void *blob;
    size_t blob_bytes;
    int64_t begin_ns;
    /* Under the mutex. */
    enum task_phase phase;
    bool captured, cancel;
    int64_t blocked_ns;
    /* The keeper's. */
    bool cancel_passed;
    uint32_t begun, ended, captured_shares;
    pawl_code code;
    struct pawl_error error;
    uint64_t bytes;
    int64_t capture_ns, write_ns, total_ns;
};

struct saver_skip { /* a save that this rank skipped: the group is to know */
    uint64_t step;
    uint32_t unit, unit_count, replica, replica_count, copies;
};

struct saver_blob { /* of one unit of the step resumed from */
    void *data;     /* null: the unit was saved without one */
    size_t bytes;
};

enum saver_reached { REACHED_NOTHING, REACHED_COMMITTED, REACHED_DURABLE };

struct outcome {
    uint64_t id;
    enum saver_reached reached;
    pawl_code code;
    struct pawl_error error;
};

/* Where the bytes are: folders of the file system, or what a test puts in their place. */
struct saver_disk {
    void *context;
    /* This rank's own store, locked, for writing; `why` (160 bytes) as for store_open. */
    pawl_code (*open_own)(void *context, struct store **out, char *why, struct pawl_error *e);
    /* All stores of the run, read-only, to be released by saver_stores_close. */
    pawl_code (*open_all)(void *context, struct saver_stores *out, struct pawl_error *e);
};

struct saver_damage {
    struct ckpt_cost cost;
    pawl_code code;
    bool passed_over; /* a step, by whoever resumes; else a file that a scan met */
    bool told, lost;  /* lost: a step newer than the one gone on from, or it may be */
    char text[700];
};

struct pawl_ckpt {
    struct pawl_ckpt_options options; /* with defaults filled in; `path` is a copy */
    struct saver_disk disk;
    struct saver_run run; /* the run's folder; of no path with a test's disk */
    struct store *store;
    struct ckpt *engine;
    uint32_t engine_in_flight;
    uint64_t engine_resume, engine_staging_bytes; /* as asked for */
    bool anew, engine_anew;                       /* from scratch */
    struct group *group;
    uint64_t incarnation;

    /* The caller's. */
    struct pawl_ckpt_state *states;
    uint64_t stored_step, stored_incarnation; /* what this start is to resume from; 0: nothing */
    bool settled;                             /* resumed, or from scratch */
    uint64_t resumed_step;
    struct pawl_error
        loss; /* why there is nothing to resume from although there was; code OK: there was not */
    struct saver_damage *damage; /* in the run's files; under the mutex */
    uint32_t damage_count;
    struct saver_blob *blobs;        /* [blob_count], by unit */
    uint32_t blob_count, first_unit; /* first: the unit that holds the state's first tensor */
    uint64_t last_step;              /* of the newest save */
    uint32_t last_units[SAVER_UNITS_MAX], last_unit_count;

    /* Shared, under the mutex. */
    pthread_mutex_t mutex;
    pthread_cond_t for_caller, for_keeper;
    pthread_t thread;
    bool has_thread, nudged, stop, sleeping_in_engine;
    int64_t stop_deadline_ns, stop_begin_ns; /* begin: of the wait for other ranks; 0: not yet */
    int64_t patience_ns;                     /* for other ranks, when closing without a deadline */
    struct task *tasks, **tasks_end;         /* oldest first */
    uint32_t in_flight, undecided;           /* queued and running; committed */
    uint64_t next_id;
    struct outcome *outcomes; /* [SAVER_OUTCOMES], by id */
    struct pawl_ckpt_event *events;
    uint64_t event_head, event_polled, event_told; /* counted since open */
    struct pawl_error pending;                     /* for the next save; code OK: none */
    struct pawl_error untold;                      /* the first failure that no call returned */
    struct pawl_error tolerated; /* the first of the failures in a row that were only told as events */
    uint64_t pending_id, untold_id, tolerated_id;
    uint64_t failed_step;      /* the newest that failed; a larger durable one ends the row of failures */
    struct pawl_error starved; /* the newest save skipped because of other ranks; code OK: none since the */
    uint64_t starved_step;     /* newest durable step */
    char waits_for[256];       /* whom the oldest undecided step waits for */
    struct saver_skip skips[SAVER_SKIPS_MAX];
    uint32_t skip_count;
    struct pawl_error fenced; /* another start took over: every later save is refused */
    struct pawl_cadence *cadence;
    struct pawl_cadence_config tuned;      /* as measured for this folder; zeros: not */
    char tuned_note[128];                  /* why that could not be read; empty: it could, or there is none */
    int64_t due_called_ns, due_stalled_ns; /* since then */
    struct pawl_ckpt_status status;
    int64_t durable_ns;
    bool saved_noted;
    uint64_t progress_seen;
};

/* Like pawl_ckpt_open, with the disk given; `disk` null: the file system. */
pawl_code saver_open(const struct pawl_ckpt_options *options, const struct saver_disk *disk,
                     struct pawl_ckpt **out, struct pawl_error *e);
/* (Re)opens the engine: idle, and no thread yet. */
pawl_code saver_engine(struct pawl_ckpt *c, uint64_t resume_step, uint32_t in_flight, struct pawl_error *e);
/* Room in the engine for saves of so many copies, and of staging memory; idle, and no thread yet. */
pawl_code saver_widen(struct pawl_ckpt *c, uint32_t copies, uint64_t staging_bytes, struct pawl_error *e);
pawl_code saver_no_memory(const struct pawl_ckpt *c, struct pawl_error *e);

/* state.c */
pawl_code saver_share_of(struct pawl_ckpt_state *state, uint32_t part, uint32_t part_count,
                         const struct saver_share **out, struct pawl_error *e);
void saver_blobs_free(struct pawl_ckpt *c);
void saver_states_free(struct pawl_ckpt *c);

/* save.c */
void saver_task_free(struct task *t);
/* damage.c. The last under the mutex, the others not; settle: the step gone on from is known. What is noted
 * before is told with what it cost, and each once. */
void saver_note_problems(struct pawl_ckpt *c, const struct ckpt_set *set);
void saver_note_passed_over(struct pawl_ckpt *c, uint64_t step, uint64_t incarnation,
                            const struct pawl_error *why);
void saver_settle_damage(struct pawl_ckpt *c, uint64_t step);
void saver_tell_damage(struct pawl_ckpt *c);
/* events.c; all but the last under the mutex */
void saver_event(struct pawl_ckpt *c, struct pawl_ckpt_event event);
struct pawl_ckpt_event saver_task_event(const struct pawl_ckpt *c, const struct task *t,
                                        enum pawl_ckpt_event_kind kind);
void saver_tell(struct pawl_ckpt *c); /* callbacks; takes the mutex itself */

/* keeper.c */
pawl_code saver_start(struct pawl_ckpt *c, struct pawl_error *e);
void saver_nudge(struct pawl_ckpt *c); /* under the mutex */
/* After the thread: gives up the rest. *undecided: of the newest step that the group has not decided. */
void saver_drain(struct pawl_ckpt *c, const struct pawl_error *why, struct pawl_error *undecided);
int saver_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t deadline_ns); /* 0 or ETIMEDOUT */

/* resume.c: the newest complete step of the set that is not marked bad, by lineage; UINT32_MAX: none. */
uint32_t saver_newest(const struct ckpt_set *set, const struct ckpt_marks *marks);

/* due.c; under the mutex but for _new and _free */
/* tuned.c: fills in options that were left open. */
void saver_take_tuned(struct pawl_ckpt *c);
pawl_code saver_due_new(struct pawl_ckpt *c, struct pawl_error *e);
void saver_due_free(struct pawl_ckpt *c);
void saver_due_begun(struct pawl_ckpt *c, uint64_t step);
void saver_due_ended(struct pawl_ckpt *c, uint64_t step, bool durable);
void saver_due_stalled(struct pawl_ckpt *c, int64_t blocked_ns);

#endif
