/* What a run tells: one JSON line per event into its log, and a short line for people.
 *
 * Every event has "time" (UTC), "event", and keys of its own; the human line goes to the standard error
 * output, a progress line that rewrites itself on a terminal and is printed now and then elsewhere. Log
 * files are appended to, a line per write, so that a kill leaves whole lines (a torn last line is skipped by
 * readers). */
#ifndef RUN_PROGRESS_H
#define RUN_PROGRESS_H

#include "base/error.h"
#include "base/json.h"

struct progress;

/* Either path may be null. */
pawl_code progress_open(const char *log_path, const char *log_path2, bool quiet, struct progress **out,
                        struct pawl_error *e);
void progress_close(struct progress *p);

/* progress_begin starts an event; the caller adds keys with json_*; progress_end writes it. `human` null:
 * only the log; else a line of its own on the screen. */
struct json *progress_begin(struct progress *p, const char *event);
void progress_end(struct progress *p, const char *human, ...) __attribute__((format(printf, 2, 3)));

/* The state line: rewritten in place on a terminal, else printed at most every few seconds and at the end. */
struct progress_state {
    uint64_t step, steps;
    double loss, grad_norm, tokens_per_s;
    uint32_t live, workers;
    bool has_durable;
    uint64_t durable_step;
    double durable_age_s;
    double eta_s;
};
void progress_state(struct progress *p, const struct progress_state *state);

#endif
