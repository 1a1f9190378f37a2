/* Train a model across worker processes, save all the time, survive their deaths, resume.
 *
 * pawl_train starts a coordinator and one worker process per (pipeline, stage) of the spec, trains until
 * the wanted step and returns. Called again with the same spec it resumes at the newest durable step. The
 * weights after step k are the same bits whatever failed on the way (docs/promises.md).
 * Blocks; call from one thread per run folder (a second one gets BUSY). Installs no signal handlers except
 * while it runs: SIGINT and SIGTERM end the run cleanly (save, then return). */
#ifndef PAWL_TRAIN_H
#define PAWL_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include <pawl/error.h>

struct pawl_train_options { /* all zero but spec_path is valid */
    const char *spec_path;
    uint64_t steps;          /* optimizer steps of the whole run; 0: as the spec says */
    const char *const *sets; /* "section.key=value", over the spec */
    uint32_t set_count;
    const char *const
        *injects; /* "kill:RANK@STEP[:POINT]" or "kill:all@STEP"; each fires once in a run's life */
    uint32_t inject_count;
    const char *report_path;    /* JSON report, also written to run.dir/report.json; null: only there */
    const char *profile_path;   /* profile of what was measured, for the planner (pawl/plan.h); null: none */
    const char *log_path;       /* JSON lines, also appended to run.dir/log.jsonl; null: only there */
    bool from_scratch;          /* start at step 0 although the folder has lost all it had saved */
    bool quiet;                 /* no progress on the standard error output */
    const char *worker_program; /* run as `worker_program worker FD`; null: the running executable */
};

struct pawl_train_report {
    uint64_t first_step; /* where this call began */
    uint64_t final_step;
    bool resumed;
    uint64_t resumed_from; /* valid when resumed */
    char
        weights_sha256[65]; /* of the final weights: every tensor's name and float32 bytes, canonical order */
    double loss_first, loss_last; /* of the first and last iteration of this call; NaN when none ran */
    double tokens_per_s;          /* of this call, set-up aside */
    uint64_t tokens;
    uint64_t failures;          /* workers lost in this call */
    uint64_t iterations_redone; /* because of failures: broken by one in this call, or lost before a resume */
    uint64_t iterations_undone; /* begun from a step that then was clipped, skipped or summed again */
    uint64_t last_durable_step;
    uint64_t saves, saves_skipped, saves_failed;
    uint64_t restarts; /* from the newest durable step, because a stage lost every replica */
    double seconds;
};

pawl_code pawl_train(const struct pawl_train_options *options, struct pawl_train_report *report,
                     struct pawl_error *e);

/* Body of a worker process; `channel` is the descriptor its launcher passed. Returns the exit code. */
int pawl_train_worker(int channel);

/* The rest returns text from malloc, which the caller frees, or null without memory. */

/* The report as one JSON object by the names of its fields, as in run.dir/report.json, with a newline at its
 * end. resumed_from is null when not resumed, a loss is null when it is not finite. */
char *pawl_train_report_json(const struct pawl_train_report *report);
/* The table of the specification's sections and keys, in Markdown: docs/spec.md. */
char *pawl_train_spec_help(void);
/* run.dir as the spec and its overrides say. Null also when they cannot be read: `e` has the cause. */
char *pawl_train_run_dir(const struct pawl_train_options *options, struct pawl_error *e);

const char *pawl_version(void); /* "0.1.0"; never freed */

#endif
