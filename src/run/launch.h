/* The launcher: one process a worker, one for the coordinator, and what joins them for the life of a run.
 *
 *   spec ─► run folder ─► newest durable step ─► coordinator, workers ─► ... ─► finished ─► digest ─► report
 *
 * It passes frames between the coordinator and the workers (run/link.h), starts another coordinator when one
 * dies, starts and takes in workers, looks for the step to go back to when a stage has lost every replica,
 * and is the one place that logs and counts. A worker's death is seen by its channel and its pidfd at once;
 * the launcher's own death takes its processes along (parent-death signal). SIGINT, SIGTERM, a file named
 * STOP in the run folder, pawl stop: save, then end; a second signal ends at once. */
#ifndef RUN_LAUNCH_H
#define RUN_LAUNCH_H

#include <pawl/train.h>

#include "run/measure.h"

/* What the workers measured in the call, by role (pipeline * stages + stage); iterations 0: unknown. */
struct launch_measured {
    char name[64]; /* of the model: its sizes */
    uint32_t pipelines, stages, layers;
    struct measure_report *reports; /* [pipelines * stages]; null: no iteration ran */
};

/* `measured` (may be null) is filled when all went well; free its reports. */
pawl_code launch_train(const struct pawl_train_options *options, struct pawl_train_report *report,
                       struct launch_measured *measured, struct pawl_error *e);

#endif
