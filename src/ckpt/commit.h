/* The pure core of the checkpoint engine: which slot a save gets, what may be done next, when it counts.
 *
 * No I/O, no clock, no threads, no memory of its own: the struct can be copied. The driver asks commit_next
 * for things to do, does them, and tells the outcome by commit_tell. Rules: R1  a slot is written only while
 * no record that could be read after a crash names it; R2  a record names a save only after all its chunks
 * and its header were written and then a flush of them ended; R3  a save is reported OK only after a record
 * that names it is durable; R4  a record drops a slot only when the save in it can no longer be needed
 * (retire, in commit.c); R5  every save that began is reported exactly once, after its last operation ended;
 * R6  a save is captured, at most once and before its end, when each of its chunks was copied or written.
 * Tested by tests/explore/ckpt_commit_explore_test.c over all event orders. */
#ifndef CKPT_COMMIT_H
#define CKPT_COMMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "ckpt/ckpt.h"

#define COMMIT_SAVES_MAX CKPT_IN_FLIGHT_MAX
#define COMMIT_KEEP_MAX  CKPT_KEEP_MAX
#define COMMIT_SLOTS_MAX                                                                                     \
    256u /* far above in flight + kept + 1: room for parts the group never declares durable */

enum commit_slot_state {
    SLOT_GONE,      /* no file */
    SLOT_FREE,      /* a file nobody needs */
    SLOT_TAKEN,     /* by a save */
    SLOT_COMMITTED, /* needed */
    SLOT_RETIRED,   /* no longer needed; free once no record names it */
    SLOT_DEAD       /* its file failed; removed once no record names it */
};

struct commit_slot {
    uint32_t number; /* in the file name; never used twice */
    uint8_t state;
    bool named;     /* by the record that a reader finds now */
    bool in_record; /* by the one being written */
    bool old;       /* committed before this start of the run */
    uint64_t step;
};

enum commit_phase {
    SAVE_IDLE,
    SAVE_WAITS, /* for a slot; chunks may be copied already */
    SAVE_PREPARE,
    SAVE_PREPARING,
    SAVE_WRITING, /* chunks and header */
    SAVE_FLUSH,
    SAVE_FLUSHING,
    SAVE_RECORD, /* waits for a record to be begun */
    SAVE_RECORDING,
    SAVE_DONE /* to be reported */
};

enum commit_header { HEADER_OPEN, HEADER_WRITING, HEADER_WRITTEN };

/* What is to be saved. Of the chunks, `copy_count` go through copies; the others are written from where they
 * lie. */
struct commit_request {
    uint64_t step, chunk_count, copy_count;
};

struct commit_save {
    uint8_t phase, header;
    bool fresh;    /* its slot has no file yet */
    bool spoiled;  /* its file, or what a record says of it, cannot be trusted */
    bool captured; /* told */
    uint32_t slot;
    uint32_t outstanding; /* operations begun and not told */
    pawl_code code;
    uint64_t order; /* of begin */
    struct commit_request request;
    uint64_t copy_next, copied, write_next, written;
};

struct commit {
    uint32_t in_flight, keep;
    uint64_t resume_step;
    bool anew;               /* set after commit_init: see ckpt_config */
    uint64_t order, counter; /* of saves begun; of the newest record begun */
    uint32_t next_number;
    bool recording, abandoned;
    bool cramped;      /* no room for one more slot: rather wait for a record that frees one */
    uint32_t declared; /* how many of `durable` were declared in this life */
    uint32_t durable_count;
    uint64_t durable[COMMIT_KEEP_MAX]; /* newest first, `keep` at most */
    uint32_t slot_count;
    struct commit_slot slots[COMMIT_SLOTS_MAX];
    struct commit_save saves[COMMIT_SAVES_MAX];
};

void commit_init(struct commit *c, uint32_t in_flight, uint32_t keep, uint64_t resume_step);
/* What was found at open: a slot file, named by the newest record or not. False when there are too many. */
bool commit_load(struct commit *c, uint32_t number, bool named, uint64_t step);
void commit_loaded(struct commit *c, uint64_t counter);

/* After commit_loaded, before the first save: as commit_init with this resume_step. */
void commit_resume(struct commit *c, uint64_t resume_step);

/* BUSY when `in_flight` saves are unreported. */
pawl_code commit_begin(struct commit *c, const struct commit_request *request, uint32_t *save);
/* The save begins nothing new and is reported CANCELLED, unless a record that names it was begun. */
void commit_cancel(struct commit *c, uint32_t save);
void commit_durable(struct commit *c, uint64_t step);
/* `step` will never be declared durable. Of no effect on durable steps and on those of an earlier life. */
void commit_forget(struct commit *c, uint64_t step);
/* No save begins anything new; each is reported with `code` once its operations have ended. */
void commit_abandon(struct commit *c, pawl_code code);
uint32_t commit_unreported(const struct commit *c);

enum commit_do {
    COMMIT_PREPARE, /* open the slot's file with its exact size; a fresh name durable */
    COMMIT_COPY,    /* the save's next chunk that is to be copied, into a buffer */
    COMMIT_WRITE,   /* any chunk of the save that lies in place or was copied, not written yet */
    COMMIT_HEADER,  /* write it: the last write to be begun */
    COMMIT_FLUSH,
    COMMIT_RECORD,   /* write and flush a record of the slots with in_record, numbered `counter` */
    COMMIT_CAPTURED, /* to be told to whoever wants to know */
    COMMIT_REPORT,   /* the save is over; its number may be used again */
    COMMIT_DISCARD   /* remove the slot's file */
};

struct commit_action {
    enum commit_do what;
    uint32_t save, slot;
    pawl_code code; /* REPORT */
};

struct commit_room { /* what the driver could begin now */
    bool copy, write;
};

/* The next thing to do; false: nothing until told something. Every action but CAPTURED, REPORT and DISCARD is
 * answered by exactly one commit_tell with the same what and save. */
bool commit_next(struct commit *c, struct commit_room room, struct commit_action *out);
void commit_tell(struct commit *c, enum commit_do what, uint32_t save, pawl_code code);

#endif
