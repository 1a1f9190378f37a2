/* Fault injection in the process that is struck: a worker, or the coordinator.
 *
 *   MESSAGE_INJECT, LINK_INJECT ──► inject_self_add        keeps the fault
 *   a version is final, an iteration begins ──► inject_self_at    arms the points of the faults that are due
 *   a point is passed, on any thread ──► the text is noted in run.dir/injected, then
 *       kill, term, coord   the signal
 *       stop          a forked child sleeps, and continues the process: a stopped process cannot, and the
 *                     launcher may be gone
 *       disk          store_fail, at once, from any thread
 *       slow, net     by the owner's thread: at once if it is the one that passes, else at its next poll
 *
 * Costs nothing as long as no fault was added. Thread: the owner's, but for the points. A process has one of
 * these at most, since points are process-wide. Tested in tests/unit/run_inject_self_test.c. */
#ifndef RUN_INJECT_SELF_H
#define RUN_INJECT_SELF_H

#include "base/error.h"
#include "run/inject.h"

struct engine;
struct net;
struct store;

/* What faults act on. All may be null: a fault that needs it is noted and does nothing. */
struct inject_targets {
    struct net *net;
    struct engine *engine;
    struct store *store; /* the worker's own */
};

struct inject_self;

/* Both are borrowed. `targets` (null for the coordinator) is looked at when a fault strikes: keep it up to
 * date. */
pawl_code inject_self_new(const char *run_dir, const struct inject_targets *targets, struct inject_self **out,
                          struct pawl_error *e);
void inject_self_free(struct inject_self *s); /* disarms all points; accepts null */
/* FORMAT when `text` is no fault for a single process. */
pawl_code inject_self_add(struct inject_self *s, const char *text, struct pawl_error *e);
/* The newest final version is `version`: arms what is due in the step that begins. A worker: when an
 * iteration begins, before FAULT_ITERATION_BEGIN, and when GO or PREPARE comes, before their points. The
 * coordinator: at its start (0), and whenever a version becomes final. */
void inject_self_at(struct inject_self *s, uint64_t version);
/* Once a poll: strikes what another thread met, ends a silence that is over. Accepts null. */
void inject_self_poll(struct inject_self *s);

#endif
