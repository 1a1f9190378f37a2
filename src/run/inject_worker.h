/* The worker's half of fault injection: arms what it was told, and makes it happen to this process.
 *
 *   MESSAGE_INJECT ──► inject_worker_add      keeps the fault
 *   an iteration begins ──► inject_worker_begin     arms the points of the faults that are due
 *   a point is passed, on any thread ──► the text is noted in run.dir/injected, then
 *       kill, term    the signal
 *       stop          a forked child sleeps, and continues the process: a stopped process cannot, the
 *                     launcher may be gone
 *       disk          store_fail, at once, from any thread
 *       slow, net     by the owner's thread: at once if it is the one that passes, else at its next poll
 *
 * Nothing here is read or run unless a fault was added. Thread: the owner's, but for the points. A process
 * has one of these at most, since points are process-wide. Tested in tests/unit/run_inject_worker_test.c. */
#ifndef RUN_INJECT_WORKER_H
#define RUN_INJECT_WORKER_H

#include <pthread.h>

#include "base/error.h"
#include "run/inject.h"

struct engine;
struct net;
struct store;

/* What faults act on. All may be null: such a fault is noted and does nothing. */
struct inject_targets {
    struct net *net;
    struct engine *engine;
    struct store *store; /* the worker's own */
};

struct inject_worker;

/* `targets` is borrowed, and looked at when a fault strikes: keep it up to date. run_dir is borrowed. */
pawl_code inject_worker_new(const char *run_dir, const struct inject_targets *targets,
                            struct inject_worker **out, struct pawl_error *e);
void inject_worker_free(struct inject_worker *w); /* disarms all points; accepts null */
/* `text` of MESSAGE_INJECT. FORMAT when it is no fault of a worker. */
pawl_code inject_worker_add(struct inject_worker *w, const char *text, struct pawl_error *e);
/* The iteration that reads version `iteration` begins (FAULT_ITERATION_BEGIN comes after this). Also of use
 * when a version becomes final without one: at a go, before FAULT_GO, so that faults strike there, too. */
void inject_worker_begin(struct inject_worker *w, uint64_t iteration);
/* Once a poll: strikes what another thread met, ends a silence that is over. Accepts null. */
void inject_worker_poll(struct inject_worker *w);

#endif
