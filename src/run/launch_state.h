/* What the launcher holds; shared by launch.c (a run), launch_fleet.c (processes) and launch_tell.c (what it
 * says). */
#ifndef RUN_LAUNCH_STATE_H
#define RUN_LAUNCH_STATE_H

#include <sys/types.h>

#include "run/conduct.h"
#include "run/inject.h"
#include "run/launch.h"
#include "run/progress.h"
#include "run/rundir.h"

struct launch_worker {
    pid_t pid; /* 0: none */
    int pidfd;
    struct channel *channel;
    bool channel_ended;
};

struct launch {
    const struct pawl_train_options *options;
    struct spec spec;
    struct rundir dir;
    struct progress *progress;
    struct inject *injects;
    uint32_t inject_count;
    bool *inject_fired;
    struct launch_worker *workers;
    uint32_t ranks;
    int epoll_fd, signal_fd;
    uint32_t signals;
    int64_t signal_ns; /* of the last one that counted */
    struct conduct *conduct;
    struct pawl_train_report report;
    /* of this incarnation */
    bool resumed;
    uint64_t resume_step, resume_incarnation;
    int64_t first_go_ns;
    uint64_t told_view;
    /* of the call, over restarts */
    uint64_t counted_step; /* iterations below this one have been counted as trained */
    int64_t train_ns;
    bool has_durable;
    int64_t durable_ns;
    char store_mode[160];
    char problem[512];               /* first damage that the last look at the stores met; empty: none */
    struct measure_report *measured; /* [ranks] */
    struct pawl_error failure;       /* first cause heard from a worker */
    bool saves_failing;              /* the last save heard of failed: told once, not at every step */
    struct pawl_error save_failure;
};

/* launch_fleet.c: processes and the loop around them */
pawl_code fleet_init(struct launch *l, struct pawl_error *e);
pawl_code fleet_start(struct launch *l, struct pawl_error *e);
pawl_code fleet_run(struct launch *l, struct pawl_error *e); /* until the conduct has ended */
void fleet_kill(struct launch *l, uint32_t rank);
void fleet_end(struct launch *l, bool wait); /* no process is left */
void fleet_close(struct launch *l);

/* launch_tell.c: hooks of the conduct */
struct conduct_hooks tell_hooks(struct launch *l);
void tell_start(struct launch *l);
/* A worker that left at the end of an incarnation; only a crash is worth a line. */
void tell_leaving(struct launch *l, uint32_t rank, int status);
void tell_exit(struct launch *l, uint32_t rank, int status);
/* What the user should know when the workers are gone: changed data, a run that is not at its last step. */
void tell_after(struct launch *l, bool fine);
void tell_end(struct launch *l, const struct pawl_error *e);

#endif
