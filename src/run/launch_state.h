/* What the launcher holds, shared by its files:
 *   launch.c        a call: set up, run, digest, reports
 *   launch_fleet.c  processes and the loop around them
 *   launch_process.c how one is started
 *   launch_describe.c what an engine of the user's consists of
 *   launch_relay.c  the coordinator's process, and the frames between it and the workers
 *   launch_places.c which places are taken: respawn, need, joins, flapping
 *   launch_find.c   the newest durable step
 *   launch_stop.c   signals, the stop file, the grace
 *   launch_admin.c  the socket of pawl join, drain, stop, status
 *   launch_witness.c the evidence file when a worker hangs
 *   launch_hear.c   what workers say, as far as it is logged
 *   launch_faults.c faults that are injected
 *   launch_note.c   what the coordinator notes: counted and said
 *   launch_view.c   what is learned from messages passed on
 *   launch_tell.c   what else is said
 * One thread owns all of it. */
#ifndef RUN_LAUNCH_STATE_H
#define RUN_LAUNCH_STATE_H

#include <sys/types.h>

#include "run/conduct.h"
#include "run/describe.h"
#include "run/inject.h"
#include "run/launch.h"
#include "run/link.h"
#include "run/progress.h"
#include "run/rundir.h"

#define LAUNCH_NONE UINT32_MAX

/* Words of a program's command line before its command and descriptor, and the module that is Python's. */
#define LAUNCH_WORDS         3u
#define LAUNCH_PYTHON_MODULE "pawl.worker"

/* What an epoll event is about; the lower half of its key says which. */
enum launch_watch {
    WATCH_CHANNEL, /* of a worker */
    WATCH_PID,
    WATCH_SIGNAL,
    WATCH_LINK, /* of the coordinator */
    WATCH_COORDINATOR,
    WATCH_FOUND,
    WATCH_ADMIN,
    WATCH_CLIENT
};

struct launch_process {
    pid_t pid; /* 0: none */
    int pidfd;
    struct channel *channel;
};

struct launch_worker {
    struct launch_process process;
    bool child;  /* of ours; else it came with pawl join */
    bool gone;   /* the coordinator has been told EXIT; the process may not be quite over */
    bool ready;  /* READY was passed on */
    bool member; /* of the last GO */
    bool leaving;
    bool left;                /* was sent LEAVE: its end is none that matters */
    bool finishing;           /* was sent FINISH */
    bool lost;                /* the coordinator has given it up; the process may still be there */
    bool replaced;            /* lost, and another one was started for it while its process was there */
    bool missed;              /* was a member when it ended, and no coordinator has noticed */
    bool spoiled;             /* failed because of what it was to load, not by itself */
    int64_t linger_ns;        /* gone: is ended by force from then on */
    struct bytes hello;       /* its ADDRESS frame, for a coordinator that takes over */
    struct bytes readied;     /* its READY frame, likewise */
    uint32_t pipeline, stage; /* its role by the last GO; LAUNCH_NONE: none */
    /* by its beats */
    uint64_t progress;
    bool busy;
    enum coord_work work;
    struct message_at at;
    int64_t beat_ns, progress_ns;
    /* of the place, over processes */
    int64_t came_ns;
    uint32_t unknown;   /* processes the coordinator was told of and has not confirmed: it means one before */
    uint32_t respawned; /* times it was started again because failure.respawn says so */
    uint32_t flaps;     /* deaths soon after coming, in a row */
    int64_t hold_ns;    /* nobody takes the place before */
    bool due;           /* is to be started at hold_ns */
};

struct launch_relay {
    struct launch_process process;
    int64_t heard_ns;
    int64_t looked_ns; /* silence was last judged */
    uint64_t view;     /* newest passed on, of FENCE and GO */
    uint32_t losses;   /* coordinators since the last decided step */
    bool begun;        /* has said something */
    bool broken;       /* its link has ended, or was not to be understood */
    bool finished;     /* FINISH was passed on, or the coordinator said so */
};

struct launch_find; /* launch_find.c */
struct launch_admin;

struct witness_work; /* launch_witness.c */

struct launch_witness {
    char folder[SPEC_TEXT_MAX + 64]; /* absolute; workers leave their stacks there. "": none can be made */
    struct witness_work *work;       /* the file that is being made; null: none */
    bool *victims;                   /* [ranks] to be killed when it is done */
};

/* Since a worker's death, until the others work again. */
struct launch_outage {
    int64_t began_ns;   /* 0: none */
    int64_t go_ns;      /* 0: not yet */
    uint64_t *progress; /* [ranks] of the members at the GO */
};

struct launch {
    const struct pawl_train_options *options;
    struct spec spec;
    struct rundir dir;
    struct progress *progress;
    struct inject_set injects;
    char program[4096], python[4096];
    const char *worker[LAUNCH_WORDS], *coordinator[LAUNCH_WORDS]; /* ending with nulls where shorter */
    struct description described;                                 /* of an engine of the user's */
    struct bytes spec_text;                                       /* terminated */
    struct launch_worker *workers;                                /* [ranks] */
    uint32_t ranks;                                               /* places */
    int epoll_fd, signal_fd;
    struct launch_relay relay;
    struct launch_find *find;
    struct launch_admin *admin;
    struct launch_witness witness;
    struct pawl_train_report report;
    /* the end */
    bool over;               /* the loop is to be left */
    struct pawl_error cause; /* why; OK: finished */
    uint32_t signals;
    int64_t signal_ns;   /* of the last one that counted */
    bool stopping;       /* the coordinator was told STOP */
    int64_t stop_end_ns; /* the grace ends */
    /* restoring */
    bool resumed; /* this call, or since the last return: something was there to load */
    uint64_t resume_step, resume_incarnation;
    uint64_t find_below;  /* only steps below: this one could not be loaded; UINT64_MAX: any */
    bool found_first;     /* what the start found still answers FIND */
    bool going;           /* a GO was passed on */
    bool restoring;       /* a step was asked for, and no GO passed on since */
    bool at_found;        /* the stores were looked at, and no GO passed on since */
    uint32_t restores;    /* returns to a durable step without a newer one in between */
    uint64_t restores_at; /* newest durable step at the last of them */
    bool filling; /* the coordinator has too few, until a GO: places up to the number of the start are filled
                   */
    uint32_t need_starts; /* started for that since the last decided step */
    /* counting */
    int64_t first_go_ns, train_ns;
    int64_t since_ns;      /* the GO after the start, or after the last return to a durable step */
    uint64_t counted_step; /* iterations below this one have been counted as trained */
    int64_t *decided_ns;   /* [report.first_step + ...] when each step of this call was last decided */
    size_t decided_capacity;
    int64_t iteration_ns, save_ns; /* as last measured; 0: not yet */
    bool grace_told;
    enum launch_fence { LAUNCH_CHANGE, LAUNCH_DEATH, LAUNCH_UNDO } fence; /* what the last one was for */
    struct launch_outage outage;
    bool has_durable;
    int64_t durable_ns;
    char store_mode[160];
    char problem[512];               /* first damage that the last look at the stores met; empty: none */
    struct measure_report *measured; /* [ranks] */
    struct pawl_error failure;       /* first cause heard from a worker */
    bool planned_instead;            /* by recycle, as the spec's schedule does not fit the memory */
    char last_lost[192];             /* who died last, and why */
    bool saves_failing;              /* the last save heard of failed: told once, not at every step */
    struct pawl_error save_failure;
};

/* launch_process.c */
pawl_code fleet_programs(struct launch *l, struct pawl_error *e); /* what children are, and their libraries */
void fleet_environment(const struct launch *l);                   /* what else their environment says */
/* `output`: where it prints; -1: where we do. A program that cannot be executed is an error that names it. */
pawl_code fleet_spawn(const struct launch *l, const char *const program[LAUNCH_WORDS], const char *command,
                      int output, struct launch_process *out, struct pawl_error *e);
void fleet_signal(const struct launch_process *p, int signal); /* nothing when there is no process */
void fleet_forget(struct launch_process *p);                   /* closes its descriptors */

/* launch_describe.c: nothing where the engine is pawl's own */
pawl_code describe_engine(struct launch *l, struct pawl_error *e); /* nothing is kept yet */
pawl_code describe_settle(struct launch *l, struct pawl_error *e); /* the step to resume from is known */

/* launch_fleet.c */
pawl_code fleet_listen(struct launch *l, struct pawl_error *e); /* signals wait in l->signal_fd from now on */
pawl_code fleet_init(struct launch *l, struct pawl_error *e);
pawl_code fleet_run(struct launch *l, struct pawl_error *e); /* from start to l->over or a failure */
void fleet_end(struct launch *l, bool wait);                 /* no process is left */
void fleet_close(struct launch *l);
pawl_code fleet_watch(struct launch *l, int fd, enum launch_watch what, uint32_t which, struct pawl_error *e);
pawl_code fleet_start_worker(struct launch *l, uint32_t rank, struct pawl_error *e);
/* A process that is not a child takes a place. Takes over pidfd and channel, also on failure. */
pawl_code fleet_adopt(struct launch *l, uint32_t rank, const struct launch_process *p, struct pawl_error *e);
void fleet_kill(struct launch *l, uint32_t rank, const char *why);
/* The run ends now with this cause; the first one counts. */
void fleet_give_up(struct launch *l, pawl_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* launch_relay.c */
pawl_code relay_start(struct launch *l, struct pawl_error *e);
void relay_say(struct launch *l, const struct link_frame *f);
void relay_started(struct launch *l, uint32_t rank); /* a process took the place */
void relay_receive(struct launch *l);
void relay_exited(struct launch *l); /* its process has ended */
void relay_tick(struct launch *l, int64_t now_ns);

/* launch_places.c */
void places_exited(struct launch *l, uint32_t rank); /* a place became empty */
void places_need(struct launch *l, uint32_t count, const char *why);
void places_tick(struct launch *l, int64_t now_ns);
bool places_awaited(const struct launch *l); /* somebody who takes no part yet will */
/* An empty place for somebody who joins; LAUNCH_NONE: none, or held off until *hold_ns (0: none at all;
 * not later than now_ns: until the stores have been looked at). */
uint32_t places_free(const struct launch *l, int64_t now_ns, int64_t *hold_ns);

/* launch_find.c */
pawl_code find_first(struct launch *l, uint64_t below, struct pawl_error *e); /* blocks; nobody runs yet */
void find_begin(struct launch *l, uint64_t view);                             /* answers with LINK_FOUND */
void find_done(struct launch *l);
/* Everybody has ended. A run that ends at a step that was found has had nobody load it: those who lived have
 * not made their stores durable. Does nothing after any other end. */
pawl_code find_settle(struct launch *l, struct pawl_error *e);
/* A look under way settles the store of this place: whoever took it now would find it locked, or lock it. */
bool find_holds(const struct launch *l, uint32_t rank);
void find_close(struct launch *l);

/* launch_stop.c */
void stop_signals(struct launch *l);
void stop_tick(struct launch *l, int64_t now_ns);
void stop_begin(struct launch *l, const char *why); /* save, then end, within the grace */
void stop_measured(struct launch *l);               /* an iteration or a save was measured */

/* launch_witness.c */
void witness_open(struct launch *l);
void witness_close(struct launch *l);
/* Kills a worker that hangs, after a look at everybody (a bounded time). */
void witness_kill(struct launch *l, uint32_t rank, const char *why);
void witness_look(struct launch *l, const char *why); /* without killing anybody */
void witness_wait(struct launch *l);                  /* until the file under way is written */
void witness_exited(struct launch *l, uint32_t rank);
void witness_tick(struct launch *l, int64_t now_ns);

/* launch_hear.c */
bool hear_worker(struct launch *l, uint32_t rank, const void *frame, size_t size); /* it is to be passed on */
/* Ends an event that was begun: the first of failing saves is told, and kept as the cause. */
void tell_save_failed(struct launch *l, uint32_t rank, pawl_code code, const char *why);

/* launch_admin.c */
void admin_open(struct launch *l); /* without it the run goes on, and says so */
void admin_close(struct launch *l);
void admin_accept(struct launch *l);
void admin_receive(struct launch *l, uint32_t client);
void admin_tick(struct launch *l, int64_t now_ns);

/* launch_faults.c: fault injection */
pawl_code faults_open(struct launch *l, struct pawl_error *e);
void faults_at(struct launch *l, enum fault_point point);
/* After a run that went well: names what never struck. */
void faults_tell_missed(struct launch *l);

/* launch_note.c */
void tell_note(struct launch *l, const struct conduct_note *n);
void tell_durable(struct launch *l, uint64_t step);
void tell_missed(struct launch *l); /* deaths that no coordinator lived to notice */

/* launch_view.c */
void tell_passed(struct launch *l, const struct message *m, const uint32_t *ranks, uint32_t count);
/* After a GO: the first beat that shows work, or (`surely`) a message that comes of it. */
void tell_progress(struct launch *l, uint32_t rank, bool surely);

/* launch_tell.c */
uint32_t tell_live(const struct launch *l);
void tell_start(struct launch *l);
void tell_nothing(struct launch *l); /* is to be done: the run is at its last step, or beyond it */
void tell_exit(struct launch *l, uint32_t rank, int status); /* status -1: unknown */
/* A worker that left at the end; only a crash is worth a line. */
void tell_leaving(struct launch *l, uint32_t rank, int status);
/* What the user should know when the workers are gone: changed data, a run that is not at its last step. */
void tell_after(struct launch *l, bool fine);
void tell_end(struct launch *l, const struct pawl_error *e);

#endif
