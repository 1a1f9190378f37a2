/* Who is in, who holds what, and what counts: the coordinator as a pure function of (state, event).
 *
 * No I/O, no clock, no threads: the driver (run/conduct) feeds events with the time they happened and
 * carries out the actions in order. Actions that go to many ranks reach all of them or none (run/link.h),
 * also when the coordinator's process dies in between. The same code runs in the product, under the explorer
 * and in the storm. Design section 7a; ReCycle section 5.
 *
 * Words. `version` v: state after v optimizer updates. `iteration` i reads version i and makes i+1.
 * `view`: generation of messages; it grows at every fence. `rank`: a place for a worker process; it may be
 * empty, and be taken again by another process. `chunk`: a part of the model. A `pair` is a (rank, chunk)
 * such that the rank holds the chunk; `holds` is indexed rank * chunks + chunk. A rank's `own` chunk is the
 * one it saves parts of; others it holds to help.
 *
 * Life of a rank.  ABSENT --STARTED--> STARTING --READY--> READY --go--> MEMBER (--LEAVING--> leaving)
 *                    ^------------------------- EXIT -------------------------------'
 * A MEMBER takes part in fences; it holds what the last GO said, possibly nothing (a spare). READY ranks
 * become members at the next fence. The start is the first fence (after start_ns also one of nobody, where no
 * rank was ever STARTED: those before may all be gone): everybody READY, nobody holds anything, so
 * everything is loaded from the step that FIND found.
 *
 * Life of an iteration. Every pair reduces its chunk's gradients to G_i and reports REDUCED. When ALL pairs
 * have reported, iteration i is decided:
 *   accept    norm within the clip limit (or no limit): version i+1 is final
 *   clip      scale by limit / (norm + 1e-6), as torch.nn.utils.clip_grad_norm_
 *   skip      a contribution was not finite: version i+1 = version i, without update
 *   redo      a contribution overflowed: iteration i again with the exponents lowered by 16 more
 * Precedence: skip, redo, clip, accept. The norm is sqrt of the sum over chunks, in chunk order, of the
 * squared norms, in double: the same bits for any set of live ranks. A redo is no DECIDED. After it the
 * iteration is careful under a limit; no finite gradient overflows at a shift above 352, so a redo beyond
 * ends in STOP.
 *
 * Optimism. In an optimistic iteration a worker steps tentatively with clip 1 as soon as it has G_i and
 * goes on to i+1; a decision other than accept then needs a fence and a GO that settles it. In a careful
 * iteration it waits for the decision, and DECIDE alone carries clip or skip. An iteration is optimistic if
 * `barrier` is not set and there is no clip limit or the decision before it was accept (the first one is
 * careful under a limit).
 *
 * Fence, plan and go: the one way to change anything, for a start, a failure, an undo, a redo, a join, a
 * leave, a better plan and a return to a durable step alike.
 *   FENCE(view+1) to every member and every READY rank. Each stops, drops messages in flight, and answers
 *     FENCED with, for each chunk it has: its final version, whether it holds the reduced gradient G of it
 *     (with the report), and for which iteration its sums hold contributions (the driver keeps which ones).
 *     Equal versions at all pairs is an invariant (a decision goes to all before a fence); what is at another
 *     version (a join under way) counts as not there.
 *   When all have answered: a chunk that no live rank has at the final version is lost: FIND asks the driver
 *     for the newest durable step; FOUND gives it, and everybody loads (restore).
 *   PLAN asks the driver for a plan for the ranks that take part; PLANNED says who is to hold what, or that
 *     it cannot be: then NEED asks for more workers, and after need_ns without them STOP.
 *   If for every chunk some live rank holds G_v, iteration v is settled from their reports and GO starts
 *     version v+1, else GO starts version v. GO says for each pair how it comes to its version:
 *       nothing      has it (settle: and its gradient: it steps itself)
 *       FETCH_STATE  the version that starts, from a rank that has or makes it: moves, joins, helpers
 *       FETCH_GRAD   the reduced gradient of iteration v, from a rank that has it; settle: then steps
 *       LOAD         from the durable step (or made anew at step 0)
 *       KEEP_WORK    besides: the contributions in its sums are of the iteration that starts and count
 *     A chunk whose G_v is held, in a GO that does not settle, needs no contribution any more: all its pairs
 *     have or fetch G_v and report it again; none of them has KEEP_WORK. A redo, and a fence at the last
 *     version with G_v of all chunks held, drop every G_v instead.
 * A source need not be a pair of the new view: who moves away or leaves keeps what it has (and settles it),
 * to be fetched from, until all pairs have reported. A gradient of another shift than GO's is dropped (redo).
 * A rank that dies meanwhile starts the fence again with the next view; answers of older views are ignored.
 *
 * Join. A READY rank comes in with the next fence, whatever it is for. If none comes: the driver is asked
 * (PREPARE_FOR) which chunk it would hold; after the next decision, PREPARE tells the rank to take that
 * chunk's version from a live holder, while all go on; PREPARED (or join_ns without it, or a rank that would
 * be a spare) starts the fence. A copy that is overtaken by a decision is made again once; then the fence
 * fetches.
 *
 * Leave. A LEAVING rank is left out of the next plan (a fence is made for it at once). It stays a member, to
 * be fetched from, until all pairs have reported in the new view and its saves have ended; then LEAVE. If no
 * plan can do without it, the run is stopped as by STOPPING, with it.
 *
 * Saves. After the decision that makes version v final, if v is a multiple of save_every or the last one,
 * and fewer than saves_max are outstanding, every rank with an own chunk gets SAVE(v, chunk, part j of n): n
 * = ranks whose own it is, j its place among them. v is durable when every (chunk, part) has reported ok; a
 * part that failed or died, or took save_ns, makes v never durable; FORGET says so once everybody has
 * answered or its time is over. durable only grows; a save that completes after a newer durable one changes
 * nothing. The last version is saved whatever saves_max says as soon as there is room, and again (new parts)
 * if it was lost to a failure; a failed write of it is tried save_retries times, then STOP,
 * with save_pause_ns before the first of them, and twice the pause before each further one: what fails at
 * once (a full disk, a store that comes back) needs time, not tries. FINISH follows its durability. Every
 * SAVE is answered once, also after FORGET, but none of those before a GO that restores: the same versions
 * are saved again after it. One whose version GO does not bring to its rank fails at that GO. SAVE follows
 * DECIDE or GO and is never sent during a fence. At the last version the ranks get no more decisions, and GO
 * for it after a death only.
 *
 * Failure detection. EXIT (process ended or channel closed) is certain. SUSPECT (a rank cannot reach a
 * peer) makes the peer dead if it is still a member suspect_ns later and any new suspicion or lack of
 * progress holds. No BEAT for beat_ns, or a busy rank without progress for the limit of the phase it says it
 * is in: dead. Whoever is declared dead without EXIT gets KILL first. If nobody is busy and nothing
 * progressed for stall_ns the view is fenced again, at most idle_fences_max times in a row, then STOP. `busy`
 * means working, not waiting for others; the progress counter must move while parts of a save are written or
 * a version is loaded, too. A rank that does not answer FENCE within stall_ns is dead whatever it beats,
 * unless it beats that it is in a phase with a longer limit. Limits are judged at TICK only; the TICK after a
 * gap of more than beat_ns between two steps starts all clocks anew, once in a row (this process was stopped
 * itself). Suspicion kills one rank per view: the most accused; what
 * members say as they answer a fence of an idle view (whom they have not heard in it) counts at once, before
 * a plan is asked for.
 *
 * A coordinator that takes over (config.recover) knows nothing but who is there, the last view sent and the
 * goal. It fences at once; the answers tell the rest: versions, reports, saves (FENCED carries them).
 *
 * Tested in tests/unit/coord_*, tests/explore/coord_*, tests/storm. */
#ifndef COORD_COORD_H
#define COORD_COORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* What a worker's main thread is doing, as its beats say: some phases may be long. */
enum coord_work {
    COORD_WORK_STEP,
    COORD_WORK_LOAD,
    COORD_WORK_SAVE,
    COORD_WORK_COMPILE,
    COORD_WORK_EVAL,
    COORD_WORK_COUNT
};
const char *coord_work_name(enum coord_work work); /* "step", "load", ... */

struct coord_config {
    uint32_t ranks;  /* places: the most workers there can ever be */
    uint32_t chunks; /* of the model */
    uint64_t final_version;
    uint64_t save_every; /* 0: only the last version */
    uint32_t saves_max;  /* outstanding saves, >= 1 */
    uint32_t save_retries;
    int64_t
        save_pause_ns; /* before the first retry; twice as long before each further one, at most 50 times */
    double clip_norm;  /* 0: no clipping */
    bool barrier;      /* never step before the decision */
    int64_t start_ns;  /* READY must come within this from STARTED */
    int64_t beat_ns, suspect_ns;
    int64_t stall_ns[COORD_WORK_COUNT]; /* busy without progress; [STEP] also: a fence, an idle view */
    int64_t save_ns;                    /* a part not reported by then counts as failed; 0: no limit */
    int64_t join_ns;                    /* a prepared join enters without its copy after this */
    int64_t need_ns;                    /* how long to wait for workers when there are too few */
    uint32_t idle_fences_max;
    bool recover;      /* take over: the ranks in `there` are members with processes */
    uint64_t view;     /* recover: newest view that was ever sent */
    const bool *there; /* recover: [ranks]; borrowed during coord_new */
};

enum coord_event_kind {
    COORD_STARTED, /* rank: a process takes this place */
    COORD_READY,   /* rank: it can be reached, and told what to hold */
    COORD_BEGIN,   /* make the first fence now, with whoever is READY (else: once all STARTED are) */
    COORD_EXIT,    /* rank's process ended or its channel closed */
    COORD_SUSPECT, /* rank cannot reach `peer` */
    COORD_BEAT,    /* progress counter, busy flag, work */
    COORD_REDUCED, /* view, chunk, report */
    COORD_FENCED,  /* view, answer */
    COORD_FOUND, /* view, version: newest durable step, or 0 to begin anew; ok false: there is none: code, why
                  */
    COORD_PLANNED,    /* view, ok, holds, own; or code, why */
    COORD_PREPARE_AS, /* rank, chunk (UINT32_MAX: it would be a spare): answer to PREPARE_FOR */
    COORD_PREPARED,   /* rank, chunk, version: the copy is complete */
    COORD_SAVED,      /* version, chunk, part, parts, ok */
    COORD_LEAVING,    /* rank wants to leave, or is told to */
    COORD_REPLAN,     /* the driver has a better plan: fence when nothing else is under way */
    COORD_STOPPING,   /* user asked to end: save the next final version and finish there; or, if a return to a
                         durable step is needed, finish at that one */
    COORD_TICK,       /* time passed */
    COORD_EVENT_COUNT
};

/* What a pair knows of its chunk's reduced gradient of one iteration; equal bits on every replica. */
struct coord_report {
    uint64_t iteration;
    double norm2; /* of the tensors the chunk owns */
    int64_t loss; /* fixed point, last chunk only; others 0 */
    uint64_t nonfinite;
    uint64_t overflow;
};

#define COORD_NO_WORK UINT64_MAX

/* FENCED: what a rank has. Arrays are borrowed during the step. */
struct coord_fenced_pair {
    uint32_t chunk;
    uint64_t version;   /* final here */
    bool has_report;    /* of iteration `version` */
    uint64_t work;      /* iteration its sums are of, COORD_NO_WORK: none */
    int32_t work_shift; /* the exponents they were added with */
    struct coord_report report;
};
struct coord_fenced_save { /* a part it was asked for and has not been told the end of */
    uint64_t version;
    uint32_t chunk, part, parts;
    bool answered, ok;
};
struct coord_fenced {
    const struct coord_fenced_pair *pairs;
    uint32_t pair_count;
    const struct coord_fenced_save *saves;
    uint32_t save_count;
    bool has_durable;
    uint64_t durable;
    bool optimistic; /* iteration `version` of its newest pairs, and its shift: for a coordinator that takes
                        over. Not known, since others went on from a newer version: careful, and 0 */
    int32_t shift;
};

struct coord_event {
    enum coord_event_kind kind;
    int64_t now_ns;
    uint32_t rank;
    uint32_t peer;
    uint32_t chunk;
    uint64_t view;
    uint64_t version;
    uint64_t progress;
    enum coord_work work;
    uint32_t part, parts;
    bool busy;
    bool ok;
    struct coord_report report;
    const struct coord_fenced *fenced;
    const bool *holds;   /* PLANNED: [ranks * chunks] */
    const uint32_t *own; /* PLANNED: [ranks], UINT32_MAX: none; each chunk is somebody's own */
    pawl_code code;
    const char *why; /* copied when kept */
};

enum coord_verdict { COORD_UNDECIDED, COORD_ACCEPT, COORD_CLIP, COORD_SKIP };

enum coord_pair_flags { COORD_FETCH_STATE = 1, COORD_FETCH_GRAD = 2, COORD_LOAD = 4, COORD_KEEP_WORK = 8 };

struct coord_pair { /* of the GO under way, or the last one */
    bool held;
    uint8_t flags;   /* enum coord_pair_flags */
    uint32_t source; /* rank fetched from; UINT32_MAX */
};

/* An action to all members is one action (rank UINT32_MAX): it goes to coord_members as they are after the
 * step. One that names a rank goes to that rank. */
enum coord_action_kind {
    COORD_FENCE,   /* all members, READY ranks having become some: view */
    COORD_FIND,    /* driver: newest durable step, for `view`; answered by FOUND */
    COORD_PLAN,    /* driver: a plan for `view`, of coord_candidates; answered by PLANNED */
    COORD_GO,      /* all members: view, version, settle (then verdict, clip of iteration version-1), shift,
                      optimistic, restore; the rest by coord_pairs */
    COORD_DECIDE,  /* all members: view, iteration, verdict, clip, optimistic (for the next iteration) */
    COORD_SAVE,    /* rank, version, chunk, part, parts */
    COORD_DURABLE, /* all members: version */
    COORD_FORGET,  /* all members: version: it will never be durable, its parts may go */
    COORD_PREPARE_FOR, /* driver: which chunk would `rank` hold? */
    COORD_PREPARE,     /* rank takes `chunk` at `version` from `peer`; both are told */
    COORD_KILL,        /* rank: make sure its process is gone; `why` */
    COORD_LEAVE,       /* rank: nothing is left for it to do */
    COORD_FINISH,      /* all members: everything is durable, leave */
    COORD_NEED,        /* driver: at least `need` more workers are needed to go on; `why`. Stands until GO: a
                          place that becomes empty later is to be filled, too */
    COORD_STOP,        /* code, why: the run cannot go on; rank: at fault, or UINT32_MAX */
    /* for the driver's log and counters, once each: */
    COORD_DECIDED,    /* iteration, verdict, clip, norm, loss */
    COORD_DIED,       /* rank, why */
    COORD_JOINED,     /* rank: in the GO that follows, after the start */
    COORD_LEFT,       /* rank */
    COORD_RESTORED,   /* version: everybody goes back to it; `from`: what had been final */
    COORD_SKIPPED,    /* a due save was skipped: version */
    COORD_LATE,       /* rank: its part of version was not reported within save_ns, and counts as failed */
    COORD_DURABLE_AT, /* version */
    COORD_ACTION_COUNT
};

struct coord_action {
    enum coord_action_kind kind;
    uint32_t rank, peer;
    uint32_t chunk;
    uint64_t view;
    uint64_t version, from;
    uint64_t iteration;
    enum coord_verdict verdict;
    float clip;
    int32_t shift;
    bool optimistic;
    bool settle;
    bool restore;
    uint32_t part, parts;
    uint32_t need;
    double norm;
    int64_t loss;
    pawl_code code;
    const char *why; /* static text, or the coordinator's until the next step */
};

struct coord;
pawl_code coord_new(const struct coord_config *config, struct coord **out, struct pawl_error *e);
void coord_free(struct coord *c);

/* One event in, actions out: *actions points into c until the next call; returns how many. Events of absent
 * ranks (but STARTED), of older views and after FINISH or STOP are ignored. Malformed ones (rank out of
 * range, report of an impossible iteration, replicas that disagree) end in STOP with INTERNAL or DIVERGED. */
size_t coord_step(struct coord *c, const struct coord_event *event, const struct coord_action **actions);

const bool *coord_members(const struct coord *c); /* [ranks] who takes part in the view */
const bool *
coord_candidates(const struct coord *c); /* [ranks] for PLAN: members that answered, less those that leave */
const bool *coord_has_state(const struct coord *c); /* [ranks * chunks] for PLAN: has the final version */
const struct coord_pair *coord_pairs(const struct coord *c); /* [ranks * chunks] of the last GO */
/* Of the last GO: it does not settle, and all pairs of the chunk have or fetch the gradient of the iteration
 * that starts. Answers to the fence do not say so: held gradients may have been dropped (redo, the end). */
bool coord_is_held(const struct coord *c, uint32_t chunk);
uint64_t coord_view(const struct coord *c);
uint64_t coord_final(const struct coord *c);                  /* newest final version */
bool coord_durable(const struct coord *c, uint64_t *version); /* false: none in this run of the process */

/* For the explorer: a canonical digest of the state without times, and a deep copy. */
uint64_t coord_digest(const struct coord *c);
struct coord *coord_copy(const struct coord *c);

#endif
