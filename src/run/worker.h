/* One worker: computes the chunks it holds, reduces, steps, saves, and does what the coordinator says.
 *
 * worker_poll does what can be done without waiting: takes control messages, completions of the network and
 * of saves, and at most one instruction's computation. The process around it (worker_main.c) sleeps when
 * there is nothing to do; the storm runs many workers in one process through the same function.
 *
 *   START ──engine──► FENCED ──GO──► FETCH (load, fetch, settle) ──► RUN ──last version──► IDLE
 *                        ▲                        │                   │ step, DECIDE, next iteration ...
 *                        └─────────────────── FENCE (any time) ───────┴──────────────────────┘
 *   LEAVE, at any time: LEAVING until its saves and sends have ended, then ENDED. FINISH: ENDED.
 *
 * What a worker has of each chunk is a holding (run/holding.h); GO says which it has and how it comes to
 * them. The state machine is in coord/coord.h. Invariants: nothing of an older view survives a fence but
 * holdings; the iteration under way, if any, reads every planned holding's current version.
 *
 *   worker.c       life, control messages, polling        worker_go.c    fence, go, what is fetched and given
 *   worker_step.c  iterations, decisions                  worker_save.c  saves, the checkpoint engine
 *   worker_load.c  returning to a durable step            worker_main.c  the process */
#ifndef RUN_WORKER_H
#define RUN_WORKER_H

#include <stdatomic.h>

#include "ckpt/ckpt.h"
#include "run/message.h"
#include "run/spec.h"

/* What the outside gives a worker. All borrowed; the functions get `context`. */
struct worker_env {
    struct net *net;
    struct channel *channel;
    void *context;
    bool background; /* the checkpoint engine gets a thread of its own */
    /* The worker's own store, for writing, closed by the worker; `why` has 160 bytes. */
    pawl_code (*open_own)(void *context, const struct spec *spec, uint32_t rank, struct store **out,
                          char *why, struct pawl_error *e);
    /* Every rank's store, read-only: an array to be freed, its stores to be closed by the worker. */
    pawl_code (*open_all)(void *context, const struct spec *spec, struct store ***out, uint32_t *count,
                          struct pawl_error *e);
};

struct worker;

pawl_code worker_new(const struct worker_env *env, struct worker **out, struct pawl_error *e);
/* Saves in flight get until deadline_ns (CLOCK_MONOTONIC). Accepts null. */
void worker_free(struct worker *w, int64_t deadline_ns);
/* *worked: something was done, call again before sleeping. An error is final; it was sent as FAILED. */
pawl_code worker_poll(struct worker *w, bool *worked, struct pawl_error *e);
bool worker_finished(const struct worker *w); /* FINISH came, or LEAVE and everything has ended */
int worker_save_fd(const struct worker *w);   /* readable when a save has news; -1: none */

/* From any thread. What a beat says: progress grows with every thing done; busy: the last poll found work;
 * `at` is what was last done, for people. */
void worker_beat(const struct worker *w, struct message *beat);
void worker_set_busy(struct worker *w, bool busy);
/* The run's names of this worker, for evidence: UINT32_MAX before START. Async-signal-safe, as worker_at. */
uint32_t worker_rank(const struct worker *w);
struct message_at worker_at(const struct worker *w);

/* For tests: the newest final version that it has of a chunk, and the stage; null where it has none. */
const struct version *worker_version(const struct worker *w, uint32_t chunk);
const struct stage *worker_stage(const struct worker *w, uint32_t chunk);

#endif
