/* One worker: computes its stage, reduces, steps, saves, and does what the coordinator says.
 *
 * worker_poll does what can be done without waiting: takes control messages, completions of the network and
 * of saves, and at most one instruction's computation. The process around it (worker_main.c) sleeps when
 * there is nothing to do; the storm runs many workers in one process through the same function.
 *
 *   START ──loaded──► FENCED ──GO──► (FETCH: gradient from a peer) ──► RUN ──► HOLD ──DECIDE──► RUN ...
 *                        ▲                                              │ tentative step, next iteration
 *                        └──────────────── FENCE (any time) ────────────┘              IDLE at the last
 * version
 *
 * Invariants: `base` is final and is the version every live worker has or can make; `tentative`, if any, is
 * base+1, made from base and grad; the sums, grad and tentative of an undecided iteration are never
 * overwritten; nothing of an older view survives a fence. Design section 7a. */
#ifndef RUN_WORKER_H
#define RUN_WORKER_H

#include <stdatomic.h>

#include "ckpt/ckpt.h"
#include "run/exec.h"
#include "run/message.h"
#include "run/reduce.h"
#include "run/spec.h"
#include "run/versions.h"

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
bool worker_finished(const struct worker *w); /* FINISH came */
int worker_save_fd(const struct worker *w);   /* readable when a save has news; -1: none */
/* For the heartbeat thread: grows with every thing done; whether the last poll found work. */
uint64_t worker_progress(const struct worker *w);
bool worker_busy(const struct worker *w);
void worker_set_busy(struct worker *w, bool busy);

/* For tests: the newest final version, null before START. */
const struct version *worker_base(const struct worker *w);
const struct stage *worker_stage(const struct worker *w);

#endif
