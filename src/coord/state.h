/* The coordinator's state, shared by its files and by nobody else.
 *
 * coord.c dispatches one event; decide.c holds reports and verdicts; fence.c the way back and the start;
 * saves.c what is durable; detect.c who is alive; digest.c what the explorer needs. Each file changes
 * its own part of the state and pushes actions; the order of pushes is the order the driver sends them.
 * Everything per rank or stage is sized by the configuration. Times are the driver's, never read here. */
#ifndef COORD_STATE_H
#define COORD_STATE_H

#include "coord/coord.h"

enum coord_phase {
    PHASE_STARTING, /* waiting for READY */
    PHASE_RUNNING,  /* iterations run; or, final == target, the last save is awaited */
    PHASE_FENCING,  /* waiting for FENCED */
    PHASE_OVER      /* FINISH, LOST or STOP was said */
};

struct coord_member {
    bool ready;
    bool reported; /* REDUCED of iteration `final` in this view */
    bool fenced;   /* answered this view's FENCE */
    bool holds;    /* and holds the reduced gradient of iteration `final` */
    bool fetching; /* the last GO made it get the gradient of iteration final-1 from a peer */
    bool busy;
    uint64_t progress;
    int64_t heard_at;    /* last sign of life */
    int64_t progress_at; /* last progress, or start of being busy */
};

struct coord_stage {
    uint32_t live;
    bool known; /* some replica reported since the last GO or decision */
    struct coord_report report;
};

enum coord_part_state { PART_NONE, PART_ASKED, PART_OK, PART_LOST };

struct coord_part {
    uint32_t part, parts;
    enum coord_part_state state;
};

struct coord_save {
    uint64_t version;
    uint32_t waiting; /* live ranks that were asked and have not answered */
    bool failed;      /* a part was written wrongly */
    bool lost;        /* a part's rank died before it answered */
    struct coord_part *part_of_rank;
};

struct coord_suspicion {
    uint32_t rank, peer;
    int64_t first_at;
    bool again;
};

struct coord {
    struct coord_config config;
    uint32_t rank_count;
    enum coord_phase phase;
    uint64_t view;
    uint64_t final;
    uint64_t target; /* version to finish at */
    uint64_t durable;
    bool has_durable;
    bool optimistic;        /* iteration `final` */
    int32_t shift;          /* of iteration `final` */
    uint32_t save_failures; /* failed writes of the last version */
    uint32_t idle_fences;   /* in a row */

    bool *live;
    bool *has_grad; /* as published by the last GO */
    struct coord_member *members;
    struct coord_stage *stages;
    struct coord_save *saves; /* outstanding, oldest first */
    size_t save_count, save_room;
    struct coord_suspicion *suspicions; /* of this view, first heard first */
    size_t suspicion_count, suspicion_room;

    bool begun;    /* an event has set the clock */
    bool late;     /* since the last TICK a step came more than beat_ns after the one before it */
    bool forgiven; /* the last TICK was late and gave everybody a new start */
    bool died;     /* somebody did, in this step */
    bool no_memory;
    int64_t now_ns;
    int64_t start_at;
    int64_t fence_at;
    int64_t progress_at; /* of anybody */
    uint32_t event_rank; /* whom a STOP in this step is about; UINT32_MAX: nobody */

    struct coord_action *actions;
    size_t action_count, action_room;
    struct coord_action scratch; /* where actions go without memory, and the STOP that tells of it */
};

/* Programmer errors: checked in every build, since a coordinator that broke its own rules must not go on. */
#define COORD_MUST(condition) ((condition) ? (void)0 : coord_broken(#condition, __FILE__, __LINE__))
_Noreturn void coord_broken(const char *condition, const char *file, int line);

static inline uint32_t coord_stage_of(const struct coord *c, uint32_t rank) {
    return rank % c->config.stages;
}

static inline bool coord_over(const struct coord *c) { return c->phase == PHASE_OVER; }

/* Nanoseconds from `since` to now, saturated: times are external values. */
int64_t coord_elapsed(const struct coord *c, int64_t since);

/* Room for one more entry of a growing list; false (and no_memory) without memory. */
bool coord_grow(struct coord *c, void **list, size_t *room, size_t count, size_t entry_bytes);

/* The next action, zeroed but for its kind; never null (without memory it is scratch and the step ends in
 * STOP MEMORY). Valid until the next push. */
struct coord_action *coord_push(struct coord *c, enum coord_action_kind kind);
/* The same action to every live rank, in rank order. */
void coord_push_live(struct coord *c, struct coord_action action);
void coord_stop(struct coord *c, pawl_code code, const char *why);

/* ---- decide.c ---- */
struct coord_outcome {
    bool redo;
    enum coord_verdict verdict;
    float clip;
    double norm;
    int64_t loss;
};
void coord_on_reduced(struct coord *c, const struct coord_event *event);
/* Check a report of iteration `final` and hold it against its stage's; false after STOP. */
bool coord_report_enter(struct coord *c, uint32_t rank, const struct coord_report *report);
void coord_reports_clear(struct coord *c);
/* What the reports of all stages say; all are known. */
struct coord_outcome coord_judge(const struct coord *c);
/* The same for the iteration that follows `outcome`. */
bool coord_next_optimistic(const struct coord *c, const struct coord_outcome *outcome);
/* Iteration `final` has its outcome (no redo), and the ranks were told: count it. */
void coord_make_final(struct coord *c, const struct coord_outcome *outcome);

/* ---- fence.c ---- */
void coord_on_ready(struct coord *c, const struct coord_event *event);
void coord_on_fenced(struct coord *c, const struct coord_event *event);
void coord_fence_start(struct coord *c);
/* Leave STARTING or FENCING if everybody awaited has answered. */
void coord_fence_advance(struct coord *c);

/* ---- saves.c ---- */
void coord_on_saved(struct coord *c, const struct coord_event *event);
void coord_on_stopping(struct coord *c);
/* `final` just grew: is a save of it due? */
void coord_saves_due(struct coord *c);
void coord_saves_died(struct coord *c, uint32_t rank);
/* The last version: save it when there is room, finish when it is durable. */
void coord_saves_advance(struct coord *c);
void coord_save_close(struct coord_save *save);

/* ---- detect.c ---- */
void coord_on_exit(struct coord *c, const struct coord_event *event);
void coord_on_suspect(struct coord *c, const struct coord_event *event);
void coord_on_beat(struct coord *c, const struct coord_event *event);
void coord_on_tick(struct coord *c);
/* Declare a live rank dead; its process is killed unless it has exited. The fence follows in coord_step. */
void coord_death(struct coord *c, uint32_t rank, bool exited, const char *why);
void coord_progress(struct coord *c, uint32_t rank);
/* Everybody's clocks start now. */
void coord_clocks_restart(struct coord *c);

#endif
