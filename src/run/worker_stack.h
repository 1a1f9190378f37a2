/* A worker's own word when it hangs: on SIGUSR2 the stacks of all its threads, and its last instruction, go
 * to a file in the folder that PAWL_EVIDENCE names (run/launch_witness.c asks and collects).
 *
 * The file is PAWL_EVIDENCE/rank-RANK.PID; it appears when it is complete. Everything is done in the signal
 * handler, with calls that are safe there: the main thread may hang anywhere, also with locks held. Without
 * PAWL_EVIDENCE the signal does nothing. Tested in tests/unit/run_worker_stack_test.c. */
#ifndef RUN_WORKER_STACK_H
#define RUN_WORKER_STACK_H

#include "run/worker.h"

/* Once a process; `worker` may be null until it is there. */
void worker_stack_install(void);
void worker_stack_of(const struct worker *worker); /* null: it is going away */

#endif
