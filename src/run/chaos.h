/* Parts of pawl_chaos (pawl/chaos.h): what is drawn, one call of pawl train, what is checked. */
#ifndef RUN_CHAOS_H
#define RUN_CHAOS_H

#include <pawl/chaos.h>

#include "base/bytes.h"
#include "run/inject.h"
#include "run/spec.h"

/* ---- chaos_draw.c: the faults of a run, from (seed, number) alone ---- */

#define CHAOS_FAULTS_MAX 12u

struct chaos_plan {
    struct inject_set faults;
    uint32_t respawn; /* failure.respawn of the run */
    bool barrier;     /* parallel.barrier of the run */
    double fault_s;   /* how long all that is not for ever lasts, together */
    uint32_t ends;    /* faults that may end a call: power cuts, notices to the launcher, lasting disks */
    uint32_t mortal;  /* faults that may cost a worker its life */
    struct bytes text, sets; /* terminated */
};
/* Free with chaos_plan_close, also after a failure (MEMORY). */
pawl_code chaos_draw(const struct spec *spec, uint64_t seed, uint32_t number, struct chaos_plan *out,
                     struct pawl_error *e);
void chaos_plan_close(struct chaos_plan *plan);

/* ---- chaos_call.c: a child process ---- */

struct chaos_call {
    const char *program, *image; /* its name, and what is executed; null: that */
    const char *spec_path;
    const char *const *sets; /* the caller's */
    uint32_t set_count;
    uint64_t steps;
    const char *run_dir;
    const struct chaos_plan *plan; /* null: undisturbed */
    double limit_s;                /* a call that lasts longer is stuck */
    double gone_s;                 /* a process that is still there so long after its end is left behind */
};
struct chaos_end {
    bool stuck;              /* was ended by us */
    int status;              /* of waitpid */
    bool orphan;             /* a process of its session was still there */
    char last[256];          /* last line on its standard error output */
    uint32_t ucx_assertions; /* that failed in UCX, by what was printed: each ends a worker */
};
/* Runs it to its end, and until no process of its session is left. */
pawl_code chaos_call(const struct chaos_call *call, struct chaos_end *end, struct pawl_error *e);

/* ---- chaos_check.c: what the run folder says ---- */

struct chaos_step {
    double loss, norm;
    bool known;
};
struct chaos_reference {
    struct chaos_step *steps; /* [count], of the step after index */
    uint64_t count;
    char weights_sha256[65];
    double seconds;
};
void chaos_reference_close(struct chaos_reference *r);

struct chaos_seen {   /* of a run, over its calls */
    long log_at;      /* how far the log has been read */
    uint64_t durable; /* newest step that was acknowledged */
    bool finished;    /* the last step is there and durable */
    uint32_t lost, joined, restored;
    uint32_t aborts;   /* workers that ended by SIGABRT in the call under way */
    char problem[512]; /* first promise broken; empty: none */
};
void chaos_problem(struct chaos_seen *seen, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Reads what the log got since, checks every line; `reference` null: of the reference itself, which is
 * filled. */
pawl_code chaos_read_log(const char *run_dir, struct chaos_seen *seen,
                         const struct chaos_reference *reference, struct chaos_reference *fill,
                         struct pawl_error *e);
/* The report of a finished call: weights and last step. `weights` has 65 bytes. */
pawl_code chaos_read_report(const char *run_dir, uint64_t *final_step, char *weights, struct pawl_error *e);

/* ---- chaos_judge.c ---- */

struct chaos_run { /* one run under way */
    const struct spec *spec;
    const struct chaos_reference *reference;
    char dir[SPEC_TEXT_MAX + 32];
    struct chaos_plan plan;        /* its faults know what has fired */
    bool before[CHAOS_FAULTS_MAX]; /* had fired before the last call */
    struct chaos_seen seen;
    uint32_t aborted; /* workers that UCX ended */
    struct pawl_chaos_run *told;
};
/* The log and the notes were read: is the end of the call what the faults allow? Sets seen.finished. */
void chaos_judge(struct chaos_run *r, const struct chaos_call *call, const struct chaos_end *end);

#endif
