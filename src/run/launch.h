/* The launcher: one process a worker, the coordinator in its loop, resume, restart, report.
 *
 *   spec ─► run folder ─► newest complete step ─► workers ─► conduct ... ─► finished ─► digest ─► report
 *               ▲                                                   │ a stage lost every replica
 *               └───────────────────────────────────────────────────┘
 *
 * A worker's death is seen by its pidfd and its channel; the launcher's own death takes its workers along
 * (parent-death signal). SIGINT and SIGTERM: save, then end; a second one ends at once. */
#ifndef RUN_LAUNCH_H
#define RUN_LAUNCH_H

#include <pawl/train.h>

/* Restarts from the newest durable step without a newer step becoming durable in between. */
#define LAUNCH_RESTARTS_MAX 3

pawl_code launch_train(const struct pawl_train_options *options, struct pawl_train_report *report,
                       struct pawl_error *e);

#endif
