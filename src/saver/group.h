/* Which steps are durable: every part of them, of every rank, is committed.
 *
 * By files: each rank keeps one small file, group/rank-NNNN, of what it has committed in this start. It is
 * written after the commit record was flushed, so that it can be believed: the commit log itself shows
 * records that are not flushed yet, and a rank that acted on one could drop the older step that a power cut
 * brings back. The file needs no flush of its own: after a crash the commit logs decide (src/ckpt). Rank 0
 * reads all files, the others its verdict, and all files now and then; the time between doubles while there
 * is no news. Nobody waits for anybody: a rank that says nothing only keeps steps from becoming durable.
 *
 * A rank's file appears once it has resumed, and no step is declared durable before all files are there: with
 * copies a step can be whole without a rank, and must not push out the one which that rank still reads.
 *
 * By a coordinator: struct pawl_ckpt_group. Thread: the keeper's. Layout: docs/formats/group.md. Tested in
 * tests/unit/saver_group_test.c. */
#ifndef SAVER_GROUP_H
#define SAVER_GROUP_H

#include <pawl/ckpt.h>

#include "base/bytes.h"
#include "saver/run.h"

/* ---- one rank's file ---- */

#define GROUP_FILE_BYTES  4096u
#define GROUP_HEAD_BYTES  64u
#define GROUP_ENTRY_BYTES 32u
#define GROUP_SUM_BYTES   16u
#define GROUP_ENTRIES_MAX ((GROUP_FILE_BYTES - GROUP_HEAD_BYTES - GROUP_SUM_BYTES) / GROUP_ENTRY_BYTES)
_Static_assert(GROUP_HEAD_BYTES + GROUP_ENTRIES_MAX * GROUP_ENTRY_BYTES + GROUP_SUM_BYTES <= GROUP_FILE_BYTES,
               "entries fit");

struct group_entry {
    uint64_t step;
    uint32_t unit, unit_count, part, part_count;
    uint32_t copies; /* that the step's save makes of every part */
    bool committed;  /* false: this rank never will */
    bool durable;    /* this rank has seen that all of the step is committed */
};

struct group_file {
    uint8_t run_id[PAWL_RUN_ID_BYTES];
    uint64_t incarnation;
    uint32_t rank, rank_count;
    uint64_t durable; /* newest step that this rank knows to be durable; 0: none */
    uint32_t entry_count;
    struct group_entry entries[GROUP_ENTRIES_MAX]; /* oldest first */
};

void group_encode(const struct group_file *f, uint8_t out[GROUP_FILE_BYTES]);
/* CORRUPT (torn, damaged), FORMAT (a newer version). */
pawl_code group_decode(const uint8_t *data, size_t bytes, struct group_file *out, struct pawl_error *e);

/* Has one of the ranks seen that the step is durable? */
bool group_seen_durable(struct group_file *const *files, uint32_t count, uint64_t step);
enum group_verdict { GROUP_OPEN, GROUP_COMPLETE, GROUP_NEVER };
/* What the files of `count` ranks (null: nothing known of that one) say of a step. */
enum group_verdict group_judge(struct group_file *const *files, uint32_t count, uint64_t step);

/* ---- the group ---- */

struct group;
struct group_config {
    const struct saver_run *run;         /* null or without path: one rank alone, no files */
    const struct pawl_ckpt_group *table; /* null: by files */
    uint64_t incarnation;
    uint32_t rank, rank_count;
};
pawl_code group_open(const struct group_config *config, struct group **out, struct pawl_error *e);
void group_close(struct group *g);
/* BUSY: this rank has saved in this start before, in another process. */
pawl_code group_check_fresh(const struct group *g, struct pawl_error *e);

/* This rank has read what it resumes from, and needs it no more. */
pawl_code group_arrive(struct group *g, struct pawl_error *e);
/* This rank's part is committed, or never will be; `last` of those to note at this time. Errors of the file
 * are kept and told by group_poll. */
void group_note(struct group *g, const struct group_entry *entry, bool last);
/* True when there is something to hear about. */
bool group_waits(const struct group *g);
/* Time of the next look at the others; INT64_MAX: none needed. */
int64_t group_next_ns(const struct group *g);

struct group_news {
    uint64_t durable;  /* a step that is; ascending; 0: none */
    uint64_t given_up; /* a step that never will be; 0: none */
    bool overtaken;    /* given up only because a newer step is durable */
    char who[160];     /* given_up: because of whom */
};
/* One piece of news; false: none. An error (IO; BUSY: a later start took over) stays until the next call. */
/* `e` must be given; its code is OK when there is no error. */
bool group_poll(struct group *g, int64_t now_ns, struct group_news *out, struct pawl_error *e);
/* Ranks that `step` (0: the oldest undecided one) waits for, in words. */
void group_missing(const struct group *g, uint64_t step, char *out, size_t size);
/* From now on this rank only waits: looks at all the others, soon. */
void group_close_begins(struct group *g);
/* When a rank that the newest undecided step waits for last showed a sign of coming to it: its file changed,
 * and not by later steps. 0: never, or nothing is known (a coordinator). */
int64_t group_changed_ns(const struct group *g);

#endif
