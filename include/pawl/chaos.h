/* Run a job under random faults, again and again, and check that every promise of docs/promises.md holds.
 *
 * First the job runs undisturbed, in a temporary folder, for the weights that are to come out. Then run after
 * run gets faults drawn from (seed, number of the run): kills, stops, notices to leave, joins, silences,
 * failing and hanging disks, slow workers, the coordinator's and the launcher's death, power cuts, a stage
 * wiped out, two at once, at named moments; and whatever ended is resumed by the same command until the last
 * step. docs/chaos.md lists what is drawn and what is checked.
 *
 * Training is done by child processes that run `program train ...`, one session each. Blocks; one call at a
 * time in a process. Installs no signal handlers; children die with the caller. */
#ifndef PAWL_CHAOS_H
#define PAWL_CHAOS_H

#include <stdbool.h>
#include <stdint.h>

#include <pawl/error.h>

struct pawl_chaos_run { /* one run, told when it has ended; pointers until the call returns */
    uint32_t number;
    const char *faults;  /* as `pawl train --inject` takes them, separated by spaces */
    const char *sets;    /* "section.key=value" drawn besides; "" */
    const char *problem; /* the promise that was broken, one line; null: none was */
    const char *folder;  /* the run folder that was kept; null: removed */
    uint32_t struck;     /* faults that found their moment */
    uint32_t calls;      /* of pawl train, until the last step was durable */
    uint32_t lost, joined, restored;
    uint32_t aborted; /* of the lost: workers that UCX ended by an assertion of its own (docs/promises.md) */
    double seconds;
};

struct pawl_chaos_options {  /* all zero but spec_path, and minutes or runs, is valid */
    const char *spec_path;   /* its run.dir is not touched */
    const char *const *sets; /* "section.key=value", over the spec */
    uint32_t set_count;
    uint64_t steps; /* optimizer steps of each run; 0: as the spec says */
    uint64_t seed;
    double minutes;      /* no run begins later; 0: no limit */
    uint32_t runs;       /* at most; 0: no limit */
    uint32_t first;      /* number of the first run: the same number, the same faults */
    bool keep;           /* keep all run folders, not only those of broken promises */
    const char *folder;  /* where to put run folders; null: TMPDIR, else /tmp */
    const char *program; /* run as `program train ...`; null: the running executable */
    void *context;
    void (*begun)(void *context, const char *folder, double reference_s); /* may be null */
    void (*told)(void *context, const struct pawl_chaos_run *run);        /* may be null */
};

struct pawl_chaos_report {
    uint32_t runs, broken, struck, calls, lost, joined, restored, aborted;
    char weights_sha256[65]; /* of the undisturbed run, and so of every good one */
    double reference_s, seconds;
    uint32_t first_broken; /* valid when broken > 0 */
};

/* OK when every promise held. INTERNAL: some were broken (the report counts them). Else the job cannot be
 * run even undisturbed: the code it ends with, or why no process or folder could be made. */
pawl_code pawl_chaos(const struct pawl_chaos_options *options, struct pawl_chaos_report *report,
                     struct pawl_error *e);

/* The report as one JSON object by the names of its fields, with a newline; malloc'ed, null without memory.
 */
char *pawl_chaos_report_json(const struct pawl_chaos_report *report);
char *pawl_chaos_run_json(const struct pawl_chaos_run *run);

#endif
