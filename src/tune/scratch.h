/* A folder for measuring in, which is gone afterwards whatever ends the measuring.
 *
 * `dir`/.pawl-scratch-PID. SIGINT and SIGTERM only set a flag while one is open, so that the caller stops and
 * closes; what a killed process left behind is removed by the next one that opens a scratch in the same `dir`
 * (its lock tells whether anybody is at work there). One at a time in a process. */
#ifndef TUNE_SCRATCH_H
#define TUNE_SCRATCH_H

#include <pawl/error.h>

#include "store/store.h"

struct scratch {
    char path[4096];
    bool made;
};

pawl_code scratch_open(const char *dir, struct scratch *out, struct pawl_error *e);
void scratch_close(struct scratch *s); /* removes it; accepts one that was never opened */
/* The signal that asked to stop, or 0. */
int scratch_stopped(void);

#endif
