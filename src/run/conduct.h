/* The coordinator's half of the protocol: feeds the pure coordinator, carries out what it decides.
 *
 * Between coord and the outside: translates control messages to events and actions to control messages, asks
 * for plans (run/replan.h), keeps which contributions everybody has (salvage), passes on addresses, counts.
 * Knows no process, no file and no clock, so that the storm drives it too, and a new one can take over at any
 * time (conduct_config.recover): it fences, and the answers tell it all. */
#ifndef RUN_CONDUCT_H
#define RUN_CONDUCT_H

#include "coord/coord.h"
#include "run/message.h"
#include "run/replan.h"
#include "run/spec.h"

enum conduct_end { CONDUCT_RUNNING, CONDUCT_FINISHED, CONDUCT_STOPPED };

/* Notes besides coord's actions: what the driver knows and coord does not. KNOWN: one conduct_started of
 * action.rank was heard. What was sent to that rank (or said of it) before is meant for whoever was there
 * before, and must not reach the process that is there now. */
enum conduct_note_kind {
    CONDUCT_NOTE_ACTION,
    CONDUCT_NOTE_PLAN,
    CONDUCT_NOTE_SALVAGE,
    CONDUCT_NOTE_FENCE,
    CONDUCT_NOTE_KNOWN
};
struct conduct_note {
    enum conduct_note_kind kind;
    struct coord_action action; /* ACTION; its `why` lives until the hook returns */
    /* PLAN: of the GO being sent */
    uint64_t view;
    uint32_t live, spares, moves;
    double period, period_s, planning_ms;
    bool ahead;
    /* SALVAGE: contributions (micro-batch of a chunk) of the broken iteration: kept, and to be done again */
    uint64_t kept, redone;
    /* FENCE: what it is for: "start", "takeover", "a worker died", "undo", "redo", "join", "leave", "better
     * plan", "nobody got on". PLAN: why it is recycle's, not of the spec's schedule; else empty. SALVAGE: why
     * nothing was kept though it should have been (a mistake of ours that cost time and no bits), else null.
     */
    const char *why;
};

struct conduct_hooks {
    void *context;
    /* One message to these ranks: all of them or none, whatever happens to this process meanwhile. */
    void (*send)(void *context, const uint32_t *ranks, uint32_t count, const struct message *m);
    /* Make sure the process of `rank` is gone; its exit is reported by conduct_exit. */
    void (*kill)(void *context, uint32_t rank, const char *why);
    /* Look for the newest durable step and begin an incarnation for what follows: conduct_found. */
    void (*find)(void *context, uint64_t view);
    /* Workers are missing: start some if you can (conduct_started). */
    void (*need)(void *context, uint32_t count, const char *why);
    void (*note)(void *context, const struct conduct_note *note);
};

struct conduct;

struct conduct_config {
    const struct spec *spec;   /* borrowed */
    uint32_t ranks;            /* places */
    struct coord_config coord; /* ranks, chunks and recovery are set by conduct_new */
    bool background;           /* plan ahead in a thread */
    bool recover;
    uint64_t view;        /* recover: newest that was sent */
    const bool *there;    /* recover: [ranks] with a process; borrowed during conduct_new */
    uint64_t incarnation; /* recover: the newest begun */
};

pawl_code conduct_new(const struct conduct_config *config, struct conduct_hooks hooks, struct conduct **out,
                      struct pawl_error *e);
void conduct_free(struct conduct *c);
void conduct_started(struct conduct *c, uint32_t rank, int64_t now_ns);
void conduct_begin(struct conduct *c, int64_t now_ns); /* do not wait for ranks that are not READY */
/* What `rank` has sent. */
void conduct_message(struct conduct *c, uint32_t rank, const struct message *m, int64_t now_ns);
void conduct_exit(struct conduct *c, uint32_t rank, int64_t now_ns);
/* Answer to find, not from within a hook. `incarnation` is durably begun. resume_incarnation 0: nothing was
 * saved, begin anew. code not OK: there is no way on, `why`. */
void conduct_found(struct conduct *c, uint64_t view, uint64_t version, uint64_t resume_incarnation,
                   uint64_t incarnation, pawl_code code, const char *why, int64_t now_ns);
void conduct_tick(struct conduct *c, int64_t now_ns);
void conduct_leave(struct conduct *c, uint32_t rank, int64_t now_ns); /* drain it */
void conduct_stop(struct conduct *c, int64_t now_ns); /* the user wants to end: save and finish */

enum conduct_end conduct_state(const struct conduct *c);
const struct pawl_error *conduct_error(const struct conduct *c); /* for CONDUCT_STOPPED */
const struct coord *conduct_coord(const struct conduct *c);

#endif
