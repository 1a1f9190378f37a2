/* Train a model across worker processes, save all the time, survive their deaths, resume.
 *
 * pawl_train starts a coordinator and one worker process per (pipeline, stage) of the spec, trains until
 * the wanted step and returns. Called again with the same spec it resumes at the newest durable step. The
 * weights after step k are the same bits whatever failed on the way (docs/promises.md): workers, the
 * coordinator, all replicas of a stage; workers may come and leave meanwhile (docs/resilience.md).
 * Blocks; call from one thread per run folder (a second one gets BUSY). Installs no signal handlers except
 * while it runs: those of pawl_train_notices end the run cleanly (save, then return; CANCELLED when
 * failure.grace_s was too short for that, or at once where no step is done or durable yet). */
#ifndef PAWL_TRAIN_H
#define PAWL_TRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pawl/error.h>

/* The three paths below are refused before anything starts (ARGUMENT) where they name a folder, a file of a
 * run, what the run reads, or one another's file. A symbolic link stays one; a device or pipe is written to.
 */
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
    bool from_scratch;          /* start at step 0 although the folder has lost all it had saved, or was
                                   begun with another spec and never had a durable step */
    bool quiet;                 /* no progress on the standard error output */
    const char *worker_program; /* run as `worker_program worker FD` and `... coordinate FD`, and with the
                                   engine torch `... describe FD` (pawl/engine.h); null: the running
                                   executable (also where its file has been removed or replaced since), and
                                   with the engine torch Python for all but the coordinator */
};

struct pawl_train_report {
    uint64_t first_step; /* where this call began */
    uint64_t final_step;
    bool resumed;
    uint64_t resumed_from; /* valid when resumed */
    char
        weights_sha256[65]; /* of the final weights: every tensor's name and float32 bytes, canonical order */
    double loss_first, loss_last; /* of the first and last iteration of this call; NaN when none ran, or when
                                     that step was skipped */
    double tokens_per_s;          /* of this call, set-up aside */
    uint64_t tokens;
    uint64_t failures;          /* workers lost in this call */
    uint64_t joins, leaves;     /* workers that came in, and that left without loss */
    uint64_t iterations_redone; /* because of failures: broken by one in this call, or lost */
    uint64_t iterations_undone; /* begun from a step that then was clipped, skipped or summed again */
    uint64_t steps_skipped;     /* whose loss or gradient was not finite: the weights stayed as they were */
    uint64_t last_durable_step;
    uint64_t saves, saves_skipped, saves_failed;
    uint64_t restores;        /* returns to the newest durable step, because a stage lost every replica */
    uint64_t lost_iterations; /* that were final, and had to be done again after a restore or this resume */
    double lost_seconds;      /* of work in them */
    uint64_t contributions_kept, contributions_redone; /* of iterations that failures broke (micro-batch x
                                                          chunk): saved, and computed again */
    uint64_t coordinator_restarts;
    uint64_t replans; /* for a better plan, without a failure */
    double seconds;
};

pawl_code pawl_train(const struct pawl_train_options *options, struct pawl_train_report *report,
                     struct pawl_error *e);

/* Body of a worker process; `channel` is the descriptor its launcher passed. Returns the exit code. */
int pawl_train_worker(int channel);

/* Body of the coordinator's process, likewise. */
int pawl_train_coordinator(int channel);

/* The signals, *count of them, that ask a run or a worker to end without loss: SIGINT, SIGTERM, SIGUSR1. A
 * process that stands between them and its workers passes each on, as SIGTERM. */
const int *pawl_train_notices(size_t *count);

/* ---- a run that is going on in `run_dir`, from another process of the same user and machine ----
 * NOT_FOUND when none is. `text` (from malloc, the caller frees it) is what the launcher says. */

/* Save the next step, then end (at once before the first one), as SIGTERM to the launcher does; returns at
 * once. */
pawl_code pawl_train_stop(const char *run_dir, char **text, struct pawl_error *e);
/* The worker's work is planned anew, then it leaves without loss; returns when it has. If the run cannot do
 * without it, the run is saved and ends. ARGUMENT: there is no such worker. */
pawl_code pawl_train_drain(const char *run_dir, uint32_t rank, char **text, struct pawl_error *e);
/* Who is there, which step, in which phase, since when without progress: a table, or JSON
 * (docs/formats/run.md). */
pawl_code pawl_train_status(const char *run_dir, bool json, char **text, struct pawl_error *e);
/* Take an empty place as a worker: then call pawl_train_worker(*channel) in this process, which is in the
 * launcher's working folder from here on, or, where *argv is not null, execv it with *channel left open: the
 * run's stages are that program's (pawl/engine.h). *argv is one block from malloc and ends with a null.
 * `tell` (may be null) hears what there is to wait for. BUSY: all places are taken. */
pawl_code pawl_train_join(const char *run_dir, void (*tell)(const char *text), uint32_t *rank, int *channel,
                          char ***argv, struct pawl_error *e);

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
