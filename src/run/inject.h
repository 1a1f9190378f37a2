/* Fault injections as the user writes them, and which of them are due: docs/faults.md has the table.
 *
 *   kill:RANK@STEP[:POINT]      kill:all@STEP[:POINT]     kill:launcher@STEP[:POINT]
 *   term:RANK@STEP[:POINT]      term:launcher@STEP[:POINT]
 *   stop:RANK@STEP:SECONDS[:POINT]    slow:RANK@STEP:FACTOR[:POINT]    net:RANK@STEP:SECONDS[:POINT]
 *   disk:RANK@STEP:ERRNO[:SECONDS][:POINT]   (ERRNO a name, or "stuck")
 *   coord@STEP[:POINT]          join@STEP[:POINT]         random:SEED:RATE
 *
 * STEP is an optimizer step, from 1 to the run's last (0 is taken for the first). A fault is armed when that
 * step begins, that is when version STEP-1 is final, and strikes at the next passing of POINT by the process
 * it is for: a worker, the coordinator, or the launcher (base/fault.def). Left out, POINT is "forward",
 * "coord-decided" or "launch-decided": in the middle of the step, or when it has been taken.
 *
 * Each fires once in a run's life: whoever is struck first appends the fault's text to run.dir/injected, so
 * that the same command resumes. random is drawn from its seed and the shape of the run into faults of the
 * other forms, the same ones each time (run/inject_random.c).
 *
 * Who does what: the launcher owns a struct inject_set; it hands a worker's faults to each process it starts
 * for that rank (MESSAGE_INJECT), the coordinator's to each coordinator (LINK_INJECT), and keeps its own
 * (inject_launch). Workers and the coordinator are struck by run/inject_self.h. Tested in
 * tests/unit/run_inject_test.c. */
#ifndef RUN_INJECT_H
#define RUN_INJECT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/fault.h"

enum inject_kind {
    INJECT_KILL,
    INJECT_TERM,
    INJECT_STOP,
    INJECT_SLOW,
    INJECT_NET,
    INJECT_DISK,
    INJECT_COORD,
    INJECT_JOIN,
    INJECT_KIND_COUNT
};

#define INJECT_ALL      UINT32_MAX       /* as rank: every process */
#define INJECT_LAUNCHER (UINT32_MAX - 1) /* as rank: the launcher; the others follow it */

#define INJECT_TEXT_BYTES 96 /* longest text, terminated */

struct inject {
    char text[INJECT_TEXT_BYTES]; /* as given */
    enum inject_kind kind;
    uint32_t rank; /* or INJECT_ALL, INJECT_LAUNCHER; not for COORD, JOIN */
    uint64_t step; /* from 1 */
    enum fault_point point;
    double amount; /* STOP, NET, DISK: seconds, 0: for ever; SLOW: factor */
    int os_errno;  /* DISK; 0: stuck */
    bool fired;
};

struct inject_limits { /* what a fault must fit */
    uint32_t ranks;    /* places */
    uint32_t stages, pipelines;
    uint64_t steps;
};

/* One fault, not random. ARGUMENT says in one line what was written and what may be. limits null: not
 * checked. */
pawl_code inject_parse(const char *text, const struct inject_limits *limits, struct inject *out,
                       struct pawl_error *e);

struct inject_set {
    struct inject *items;
    uint32_t count;
};
/* Texts in any of the forms. inject_set_close also after a failure. */
pawl_code inject_set_open(const char *const *texts, uint32_t count, const struct inject_limits *limits,
                          struct inject_set *out, struct pawl_error *e);
void inject_set_close(struct inject_set *set);

/* ---- the note of what has fired: run.dir/injected, a line each, appended by whoever is struck ---- */

/* Marks what has fired already; to be called before faults are handed out, also again. */
pawl_code inject_set_read(struct inject_set *set, const char *run_dir, struct pawl_error *e);
/* Async-signal-safe but for errors being ignored: the process is about to be struck. */
void inject_note(const char *run_dir, const char *text);

/* ---- the launcher ---- */

/* The next fault that has not fired and is for this process: start with *at = 0; null: no more. */
const struct inject *inject_for_rank(const struct inject_set *set, uint32_t rank, uint32_t *at);
const struct inject *inject_for_coord(const struct inject_set *set, uint32_t *at);

/* What the launcher's own faults do; each gets `context`. */
struct inject_launch {
    void *context;
    void (*kill_all)(void *context, const char *text); /* SIGKILL to every worker and the coordinator */
    void (*join)(void *context, const char *text);     /* start one more worker, or say why not */
    const char *run_dir;
};
/* The launcher has passed a point: FAULT_LAUNCH_*. `version` is the newest final one (LAUNCH_DECIDED: with
 * the step just taken). May not return: kill and term are sent to this process. */
void inject_launch(struct inject_set *set, enum fault_point point, uint64_t version,
                   const struct inject_launch *does);

/* ---- drawing ---- */

/* Faults of random:SEED:RATE, appended to the set: RATE a hundred steps on average. */
pawl_code inject_draw(struct inject_set *set, uint64_t seed, double rate, const struct inject_limits *limits,
                      struct pawl_error *e);
/* Append one parsed fault. */
pawl_code inject_set_add(struct inject_set *set, const struct inject *one, struct pawl_error *e);

#endif
