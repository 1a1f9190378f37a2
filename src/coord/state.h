/* The coordinator's state, shared by its files and by nobody else.
 *
 * coord.c makes it and dispatches one event; fence.c collects answers, asks for step and plan; go.c says who
 * holds what and how it comes to it; decide.c holds reports and verdicts; saves.c what is durable; change.c
 * who comes and goes; detect.c who is alive; digest.c what the explorer needs. Each file changes its own part
 * of the state and pushes actions; the order of pushes is the order the driver carries them out.
 * Everything per rank or chunk is sized by the configuration. Times are the driver's, never read here. */
#ifndef COORD_STATE_H
#define COORD_STATE_H

#include "coord/coord.h"

#define COORD_NOBODY UINT32_MAX /* no rank, no chunk */

/* No finite gradient can overflow at this shift. Exponents lie below 62 + 149 (the smallest peak of a float
 * is 2^-149); below 62 - 128 - 64 (values up to 2^128, up to 2^64 contributions) every finite float is in
 * range: 211 + 130 = 341, rounded up to a multiple of 16. */
#define COORD_SHIFT_MAX 352

enum coord_phase {
    PHASE_STARTING, /* waiting for READY */
    PHASE_FENCING,  /* waiting for FENCED */
    PHASE_FINDING,  /* waiting for FOUND */
    PHASE_PLANNING, /* waiting for PLANNED */
    PHASE_NEEDING,  /* fenced, waiting for more workers */
    PHASE_RUNNING,  /* iterations run; or, final == target, the last save is awaited */
    PHASE_OVER      /* FINISH or STOP was said */
};

enum coord_place {
    PLACE_ABSENT,
    PLACE_STARTING,
    PLACE_READY,
    PLACE_MEMBER,
    PLACE_LEFT /* was told LEAVE, its process has not ended yet */
};

/* How far a READY rank has come with the copy it is to enter with. */
enum coord_join_state {
    JOIN_NONE,
    JOIN_ASKED,   /* PREPARE_FOR was said */
    JOIN_TOLD,    /* it will hold a chunk; the next decision starts the copy */
    JOIN_COPYING, /* PREPARE was said */
    JOIN_DONE     /* nothing is left to wait for */
};

struct coord_join {
    enum coord_join_state state;
    uint32_t chunk;
    uint64_t version;
    uint32_t copies; /* begun */
};

struct coord_rank {
    enum coord_place place;
    bool leaving;
    bool entering;  /* became a member at a fence: the GO that follows is its first */
    bool recovered; /* was there at a takeover: its STARTED or READY may still be on the way */
    bool fenced;    /* answered this view's FENCE */
    bool beaten;    /* has beaten since it was started */
    bool busy;
    enum coord_work work;
    uint32_t own;    /* chunk; COORD_NOBODY */
    uint32_t late;   /* parts of saves that ended without its answer: it may still come */
    bool optimistic; /* its answer, for a takeover */
    int32_t shift;
    struct coord_join join;
    uint64_t progress;
    int64_t since;       /* STARTED, then READY */
    int64_t heard_at;    /* last sign of life */
    int64_t progress_at; /* last progress, or start of being busy */
};

struct coord_holding { /* of a pair: what its rank answered to this view's fence, and what it reported since
                        */
    bool answered;     /* it has the chunk */
    bool grad;         /* and the reduced gradient of iteration `final` */
    bool reported;     /* REDUCED of iteration `final` in this view */
    struct coord_fenced_pair answer;
};

struct coord_chunk {
    bool known; /* some pair reported since the last GO or decision */
    bool held;  /* in the last GO: all its pairs have or fetch the gradient of the iteration that starts */
    struct coord_report report;
};

enum coord_part_state { PART_NONE, PART_ASKED, PART_OK, PART_LOST };

struct coord_part { /* of a save, by rank */
    uint32_t chunk, part, parts;
    enum coord_part_state state;
};

struct coord_save {
    uint64_t version;
    uint32_t waiting; /* members that were asked and have not answered */
    bool failed;      /* a part was written wrongly, or not in time */
    bool lost;        /* a part's rank died before it answered */
    int64_t since;
    struct coord_part *part_of_rank;
};

struct coord_suspicion {
    uint32_t rank, peer;
    int64_t first_at;
    bool again;
};

struct coord {
    struct coord_config config;
    enum coord_phase phase;
    uint64_t view;
    uint64_t final;
    uint64_t target; /* version to finish at */
    uint64_t found;  /* durable step that everybody loads or loaded; 0: none */
    uint64_t durable;
    bool has_durable;
    bool optimistic;        /* iteration `final` */
    int32_t shift;          /* of iteration `final` */
    uint32_t save_failures; /* failed writes of the last version */
    bool save_pauses;       /* before the next try, counted from ... */
    int64_t save_failed_at; /* ... the failed one */
    uint32_t idle_fences;   /* in a row */
    bool idle;              /* the next fence is because nothing moved ... */
    bool idle_fence;        /* ... and so is the one under way */

    bool recovering;   /* a takeover whose first fence has not been answered by all */
    bool ever_started; /* some rank */
    bool begin;        /* BEGIN was said */
    bool running_once; /* a GO was sent, or some rank had a version at a takeover */
    bool restoring;    /* the fence under way ends in a return to `found` */
    bool stopping;     /* the user asked, or a rank that cannot be spared leaves */
    bool with_leaving; /* no plan can do without those that leave */
    bool whole;        /* all pairs have reported in this view: all have what GO promised them */
    bool replan;       /* a better plan waits */
    bool needing;      /* NEED was said since the last GO */
    int64_t need_at;

    bool *members, *candidates;
    bool *has_state;
    struct coord_pair *pairs;
    struct coord_rank *ranks;
    struct coord_holding *holdings; /* [ranks * chunks] */
    struct coord_chunk *chunks;
    struct coord_save *saves; /* outstanding, oldest first */
    size_t save_count, save_room;
    struct coord_suspicion *suspicions; /* of this view, first heard first */
    size_t suspicion_count, suspicion_room;

    bool begun; /* an event has set the clock */
    int64_t begun_at;
    bool late;      /* since the last TICK a step came more than beat_ns after the one before it */
    bool forgiven;  /* the last TICK was late and gave everybody a new start */
    bool fence_now; /* something in this step needs a fence */
    bool went_back; /* this step returned to a durable step */
    bool no_memory;
    int64_t now_ns;
    int64_t fence_at;
    int64_t progress_at; /* of anybody */
    uint32_t event_rank; /* whom a STOP in this step is about; COORD_NOBODY */

    struct coord_action *actions;
    size_t action_count, action_room;
    struct coord_action scratch;        /* where actions go without memory, and the STOP that tells of it */
    char stalled[COORD_WORK_COUNT][80]; /* why a rank that is busy without progress dies: by which limit */
    char why[sizeof((struct pawl_error *)0)->text]; /* of an event, kept for the action it causes */
};

/* Programmer errors: checked in every build, since a coordinator that broke its own rules must not go on. */
#define COORD_MUST(condition) ((condition) ? (void)0 : coord_broken(#condition, __FILE__, __LINE__))
_Noreturn void coord_broken(const char *condition, const char *file, int line);

static inline size_t coord_pair_at(const struct coord *c, uint32_t rank, uint32_t chunk) {
    return (size_t)rank * c->config.chunks + chunk;
}

static inline bool coord_over(const struct coord *c) { return c->phase == PHASE_OVER; }

/* Nanoseconds from `since` to now, saturated: times are external values. */
int64_t coord_elapsed(const struct coord *c, int64_t since);

/* Room for one more entry of a growing list; false (and no_memory) without memory. */
bool coord_grow(struct coord *c, void **list, size_t *room, size_t count, size_t entry_bytes);

/* The next action, empty but for its kind and view; never null (without memory it is scratch and the step
 * ends in STOP MEMORY). Valid until the next push. */
struct coord_action *coord_push(struct coord *c, enum coord_action_kind kind);
void coord_stop(struct coord *c, pawl_code code, const char *why);
/* An event's text, kept until the next one; `otherwise` if there is none. */
const char *coord_keep(struct coord *c, const char *why, const char *otherwise);
/* Everything is durable: FINISH, and LEAVE for who waits to come in. */
void coord_finish(struct coord *c);

/* ---- decide.c ---- */
struct coord_outcome {
    bool redo;
    enum coord_verdict verdict;
    float clip;
    double norm;
    int64_t loss;
};
void coord_on_reduced(struct coord *c, const struct coord_event *event);
/* Check a report of iteration `final` and hold it against its chunk's; false after STOP. */
bool coord_report_enter(struct coord *c, uint32_t chunk, const struct coord_report *report);
void coord_reports_clear(struct coord *c);
/* What the reports of all chunks say; all are known. */
struct coord_outcome coord_judge(const struct coord *c);
/* Is the iteration after `outcome` optimistic? */
bool coord_next_optimistic(const struct coord *c, const struct coord_outcome *outcome);
/* The same for one that follows none: the first, or the first after a return. */
bool coord_first_optimistic(const struct coord *c);
/* Iteration `final` has its outcome (no redo), and the ranks were told: count it. */
void coord_make_final(struct coord *c, const struct coord_outcome *outcome);

/* ---- fence.c ---- */
void coord_on_fenced(struct coord *c, const struct coord_event *event);
void coord_on_found(struct coord *c, const struct coord_event *event);
void coord_on_planned(struct coord *c, const struct coord_event *event);
void coord_fence_start(struct coord *c);
/* Leave a phase of waiting if everybody awaited has answered. */
void coord_fence_advance(struct coord *c);

/* ---- go.c ---- */
/* All is known: say where and how everybody goes on. */
void coord_go(struct coord *c, const bool *holds, const uint32_t *own);
/* `found` is where everything stands now, whatever was final. */
void coord_go_back(struct coord *c);

/* ---- change.c ---- */
void coord_on_started(struct coord *c, const struct coord_event *event);
void coord_on_ready(struct coord *c, const struct coord_event *event);
void coord_on_prepare_as(struct coord *c, const struct coord_event *event);
void coord_on_prepared(struct coord *c, const struct coord_event *event);
void coord_on_leaving(struct coord *c, const struct coord_event *event);
/* All members have version `final`: those that come in can copy it. */
void coord_joins_copy(struct coord *c);
/* TICK: a rank that waited too long for its copy enters without. */
void coord_joins_judge(struct coord *c);
/* Ask for who comes, let go who leaves, fence for a change that is due. */
void coord_changes_advance(struct coord *c);

/* ---- saves.c ---- */
void coord_on_saved(struct coord *c, const struct coord_event *event);
void coord_on_stopping(struct coord *c);
/* `final` just grew: is a save of it due? */
void coord_saves_due(struct coord *c);
void coord_saves_died(struct coord *c, uint32_t rank);
bool coord_saves_awaited(const struct coord *c, uint32_t rank);
/* TICK: parts that took too long, a pause that has lasted long enough. */
void coord_saves_judge(struct coord *c);
/* Nothing of what was asked counts any more. */
void coord_saves_drop(struct coord *c);
/* Takeover: a part that `rank` was asked for; then, when all have told theirs, what is whole ends. */
void coord_saves_recover(struct coord *c, uint32_t rank, const struct coord_fenced_save *part);
void coord_saves_recovered(struct coord *c);
/* The last version: save it when there is room, finish when it is durable. */
void coord_saves_advance(struct coord *c);
void coord_save_close(struct coord_save *save);

/* ---- detect.c ---- */
void coord_on_exit(struct coord *c, const struct coord_event *event);
void coord_on_suspect(struct coord *c, const struct coord_event *event);
bool coord_silent_dies(struct coord *c); /* all have answered a fence: true: another one is needed */
void coord_on_beat(struct coord *c, const struct coord_event *event);
void coord_on_tick(struct coord *c);
/* Declare a rank that is there dead; its process is killed unless it has exited. The fence follows in
 * coord_step. */
void coord_death(struct coord *c, uint32_t rank, bool exited, const char *why);
/* Nobody is at this place any more. */
void coord_rank_clear(struct coord *c, uint32_t rank);
void coord_progress(struct coord *c, uint32_t rank);
/* Everybody's clocks start now. */
void coord_clocks_restart(struct coord *c);

#endif
