/* Who is in, and what counts: the coordinator as a pure function of (state, event).
 *
 * No I/O, no clock, no threads: the driver (run/launch) feeds events with the time they happened and
 * carries out the actions in order, each rank's over one first-in-first-out channel. The same code runs in
 * the product, under the explorer and in the storm. Design section 7a; ReCycle section 5.
 *
 * Words. `version` v: state after v optimizer updates. `iteration` i reads version i and makes i+1.
 * `view`: generation of messages; it grows at every fence. rank = pipeline * stages + stage.
 *
 * Life of an iteration. Every live worker reduces its stage's gradients to G_i and reports REDUCED.
 * When ALL live ranks have reported, iteration i is decided:
 *   accept    norm within the clip limit (or no limit): version i+1 is final
 *   clip      scale by limit / (norm + 1e-6), as torch.nn.utils.clip_grad_norm_
 *   skip      a contribution was not finite: version i+1 = version i, without update
 *   redo      a contribution overflowed: iteration i again with the exponents lowered by 16 more
 * Precedence: skip, redo, clip, accept. The norm is sqrt of the sum over stages, in stage order, of the
 * squared norms, in double: the same bits for any set of live ranks.
 * A redo is no DECIDED. After it the iteration is careful under a limit; no finite gradient overflows at a
 * shift above 352, so a redo beyond ends in STOP.
 *
 * Optimism. In an optimistic iteration a worker steps tentatively with clip 1 as soon as it has G_i and
 * goes on to i+1; a decision other than accept then needs a fence and a GO that settles it. In a careful
 * iteration it waits for the decision, and DECIDE alone carries clip or skip. An iteration is optimistic if
 * there is no clip limit or the decision before it was accept (the first one is careful under a limit).
 *
 * Fence and go: the one way back, for a failure, an undo and a redo alike. FENCE(view+1) to every live
 * rank; each stops, drops what is in flight and answers FENCED with its final version v and whether it
 * holds G_v. Equal v at all live ranks is an invariant (a decision goes to all before a fence). When all
 * have answered: if for every stage some live rank holds G_v, iteration v is decided from their reports and
 * GO starts version v+1 (ranks without G_v get it from the lowest live rank of their stage that has it);
 * else GO starts version v. A rank that dies meanwhile starts the fence again with the next view;
 * answers of older views are ignored.
 * A rank that GO sent to a peer for G_v and that is fenced before it got it answers FENCED with its version v
 * and no report: it is a version behind and counts as dead (KILL), so that all live ranks hold the final
 * version.
 *
 * Saves. After the decision that makes version v final, if v is a multiple of save_every or the last one,
 * and fewer than saves_max are outstanding, every live rank gets SAVE(v, part j of n): n = live ranks of its
 * stage, j its place among them. v is durable when every (stage, part) has reported ok; a part that failed
 * or died makes v never durable; FORGET says so once everybody has answered. A save stays outstanding until
 * each live rank that was asked has answered. durable only grows; a save that completes after a newer durable
 * one changes nothing. The last version is saved whatever saves_max says as soon as there is room, and again
 * (new parts) if it was lost to a failure; a failed write of it is tried save_retries times, then STOP.
 * FINISH follows its durability. SAVE follows DECIDE or GO and is never sent during a fence. At the last
 * version the ranks get no more decisions, and GO for it after a death only; so with first_version ==
 * final_version none at the start.
 *
 * Failure detection. EXIT (process ended or channel closed) is certain. SUSPECT (a rank cannot reach a
 * peer) makes the peer dead if it is still a member suspect_ns later and any new suspicion or lack of
 * progress holds. No BEAT for beat_ns, or a busy rank without progress for stall_ns: dead. Whoever is
 * declared dead without EXIT gets KILL first. If nobody is busy and nothing progressed for stall_ns the
 * view is fenced again, at most idle_fences_max times in a row, then STOP. A stage without a live rank: LOST.
 * `busy` means working, not waiting for others; the progress counter must move while parts of a save are
 * written, too. A rank that does not answer FENCE within stall_ns is dead whatever it beats. Limits are
 * judged at TICK only; the TICK after a gap of more than beat_ns between two steps starts all clocks
 * anew, once in a row (this process was stopped itself). Suspicion kills one rank per view: the most accused.
 *
 * Tested in tests/unit/coord_*, tests/explore/coord_*, tests/storm. */
#ifndef COORD_COORD_H
#define COORD_COORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct coord_config {
    uint32_t pipelines, stages;
    uint64_t first_version; /* 0, or the step resumed from */
    uint64_t final_version;
    uint64_t save_every; /* 0: only the last version */
    uint32_t saves_max;  /* outstanding saves, >= 1 */
    uint32_t save_retries;
    double clip_norm; /* 0: no clipping */
    int64_t start_ns; /* READY must come within this */
    int64_t beat_ns, stall_ns, suspect_ns;
    uint32_t idle_fences_max;
};

enum coord_event_kind {
    COORD_READY,    /* rank is loaded at first_version and can be reached */
    COORD_EXIT,     /* rank's process ended or its channel closed */
    COORD_SUSPECT,  /* rank cannot reach `peer` */
    COORD_BEAT,     /* progress counter, busy flag */
    COORD_REDUCED,  /* view, report */
    COORD_FENCED,   /* view, version, has_report (of iteration = version), report */
    COORD_SAVED,    /* version, part, parts, ok */
    COORD_STOPPING, /* user asked to end: save the next final version and finish there */
    COORD_TICK,     /* time passed */
    COORD_EVENT_COUNT
};

/* What a rank knows of its stage's reduced gradient of one iteration; equal bits on every replica. */
struct coord_report {
    uint64_t iteration;
    double norm2; /* of the tensors the stage owns */
    int64_t loss; /* fixed point, last stage only; others 0 */
    uint64_t nonfinite;
    uint64_t overflow;
};

struct coord_event {
    enum coord_event_kind kind;
    int64_t now_ns;
    uint32_t rank;
    uint32_t peer;
    uint64_t view;
    uint64_t version;
    uint64_t progress;
    uint32_t part, parts;
    bool busy;
    bool ok;
    bool has_report;
    struct coord_report report;
};

enum coord_verdict { COORD_UNDECIDED, COORD_ACCEPT, COORD_CLIP, COORD_SKIP };

enum coord_action_kind {
    COORD_FENCE, /* rank, view */
    COORD_GO,    /* rank, view, version, verdict (of iteration version-1, if it is settled here), clip, shift,
                    optimistic; settle: whether version-1 must be settled from G */
    COORD_DECIDE,     /* rank, view, iteration, verdict, clip, optimistic (for the next iteration) */
    COORD_SAVE,       /* rank, version, part, parts */
    COORD_DURABLE,    /* rank, version */
    COORD_FORGET,     /* rank, version: it will never be durable, its parts may go */
    COORD_KILL,       /* rank: make sure its process is gone; `why` */
    COORD_FINISH,     /* rank: everything is durable, leave */
    COORD_LOST,       /* stage: no live replica; the driver restarts from the newest durable step */
    COORD_STOP,       /* code, why: the run cannot go on; rank: at fault, or UINT32_MAX */
    COORD_DECIDED,    /* once per decision, for the driver's log: iteration, verdict, clip, norm, loss */
    COORD_DIED,       /* once per death: rank, why */
    COORD_SKIPPED,    /* a due save was skipped: version */
    COORD_DURABLE_AT, /* once per durable version, for the driver's log: version */
    COORD_ACTION_COUNT
};

struct coord_action {
    enum coord_action_kind kind;
    uint32_t rank;
    uint32_t stage;
    uint64_t view;
    uint64_t version;
    uint64_t iteration;
    enum coord_verdict verdict;
    float clip;
    int32_t shift;
    bool optimistic;
    bool settle;
    uint32_t part, parts;
    double norm;
    int64_t loss;
    pawl_code code;
    const char *why; /* static text */
};

struct coord;
pawl_code coord_new(const struct coord_config *config, struct coord **out, struct pawl_error *e);
void coord_free(struct coord *c);

/* One event in, actions out: *actions points into c until the next call; returns how many. Events of dead
 * ranks, of older views and after FINISH, LOST or STOP are ignored. Malformed ones (rank out of range,
 * report of an impossible iteration, replicas that disagree) end in STOP with INTERNAL or DIVERGED. */
size_t coord_step(struct coord *c, const struct coord_event *event, const struct coord_action **actions);

/* For GO: which ranks are live, and which of them hold the reduced gradient to settle ([ranks] each). */
const bool *coord_live(const struct coord *c);
const bool *coord_has_grad(const struct coord *c);
uint64_t coord_view(const struct coord *c);
uint64_t coord_final(const struct coord *c);                  /* newest final version */
bool coord_durable(const struct coord *c, uint64_t *version); /* false: none in this run of the process */

/* For the explorer: a canonical digest of the state without times, and a deep copy. */
uint64_t coord_digest(const struct coord *c);
struct coord *coord_copy(const struct coord *c);

#endif
