/* The conductor's state, shared by its files and by nobody else: conduct.c (life, actions to messages),
 * conduct_hear.c (messages to events), conduct_go.c (plans and GO), conduct_salvage.c (what exists already of
 * a broken iteration). */
#ifndef RUN_CONDUCT_STATE_H
#define RUN_CONDUCT_STATE_H

#include "run/conduct.h"
#include "run/go.h"

/* What a pair said in its answer to the fence under way. */
struct conduct_claim {
    bool known;
    uint64_t work;  /* iteration its sums are of; COORD_NO_WORK */
    uint64_t total; /* micro-batches of that iteration */
    struct bytes bits;
};

/* A place for a worker. */
struct conduct_rank {
    struct bytes address;
    uint64_t address_stamp; /* of the newest address; 0: none is known */
    uint64_t told_stamp;    /* newest address that this rank has been told */
    struct message_at at;   /* what it last did, as its last beat said */
    bool answered;          /* FENCED in this view */
    bool asked_join;        /* PREPARE_FOR is to be answered */
    bool had_go;            /* is of those that the last GO went to */
};

struct conduct_since { /* the last GO: what a fence may be for */
    bool died, leaving, better;
    bool overflow; /* since the last decision */
};

struct conduct {
    const struct spec *spec;
    struct conduct_hooks hooks;
    struct coord *coord;
    struct replan *replan;
    uint32_t ranks, chunks;
    struct conduct_rank *rank;
    uint64_t stamp;               /* of the newest address */
    uint32_t *list;               /* [ranks] room for whom a message goes to */
    struct conduct_claim *claims; /* [ranks * chunks] */
    struct replan_plan *plan;     /* made, and not in use yet */
    struct replan_plan *used;     /* of the last GO */
    uint8_t *used_done;           /* of the last GO; null: nothing was done */
    uint64_t used_version;
    uint32_t need;                            /* workers that the last attempt to plan was short of */
    uint64_t incarnation, resume_incarnation; /* of a GO that restores */
    uint64_t entered; /* what those who answered the fence save for: of a GO that does not; 0: no one has */
    bool plan_asked, better; /* events to come after the step under way */
    bool recovered;
    enum coord_event_kind event; /* of the step under way */
    struct conduct_since since;
    uint64_t failed_at[PAWL_INTERNAL + 1]; /* final version + 1 at the last failure of that code; 0: none */
    enum conduct_end end;
    struct pawl_error error;
};

/* One event, and those that follow from it. */
void conduct_step(struct conduct *c, struct coord_event event);
void conduct_end_with(struct conduct *c, enum conduct_end end, pawl_code code, const char *why);
/* One message to these ranks. */
void conduct_tell(struct conduct *c, const uint32_t *ranks, uint32_t count, const struct message *m);

/* ---- conduct_go.c ---- */
/* Everybody in the list knows everybody's address afterwards. */
void conduct_introduce(struct conduct *c, const uint32_t *ranks, uint32_t count);
/* Asks for a plan and fills the event that answers the coordinator; arrays are those of c->plan. */
void conduct_plan(struct conduct *c, struct coord_event *planned, struct pawl_error *e);
void conduct_go(struct conduct *c, const struct coord_action *a, const uint32_t *ranks, uint32_t count);

/* ---- conduct_salvage.c ---- */
void conduct_claims_clear(struct conduct *c);
void conduct_claim_enter(struct conduct *c, uint32_t rank, const struct fenced *f, struct pawl_error *e);
struct conduct_salvage {
    uint64_t kept, redone;
    const char
        *refused; /* why nothing is kept, against what the coordinator wanted; null: nothing is wrong */
};
/* Fills go->done and, where work cannot be kept, takes KEEP_WORK out of go->pairs. */
pawl_code conduct_salvage(struct conduct *c, struct go *go, struct conduct_salvage *out,
                          struct pawl_error *e);

#endif
