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

#include "run/measure.h"

/* Restarts from the newest durable step without a newer step becoming durable in between. */
#define LAUNCH_RESTARTS_MAX 3

/* What the workers measured in the call, by rank; a rank that was lost has iterations 0. */
struct launch_measured {
    char name[64]; /* of the model: its sizes */
    uint32_t pipelines, stages, layers;
    struct measure_report *reports; /* [pipelines * stages]; null: no iteration ran */
};

/* `measured` (may be null) is filled when all went well; free its reports. */
pawl_code launch_train(const struct pawl_train_options *options, struct pawl_train_report *report,
                       struct launch_measured *measured, struct pawl_error *e);

#endif
