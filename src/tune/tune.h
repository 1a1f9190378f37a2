/* What the files of this module share besides the public header: checks and the sweep's scratch folder.
 *
 * The pure part (units.c, interval.c, choose.c, window.c, cadence.c, trace.c, goodput.c, replay.c) uses none
 * of the I/O below. */
#ifndef TUNE_TUNE_H
#define TUNE_TUNE_H

#include <pawl/tune.h>

/* ARGUMENT names the field. */
pawl_code tune_rates_check(const struct pawl_tune_rates *rates, struct pawl_error *e);
/* NO_SPACE, MEMORY: not even one save in flight is within the limits. */
pawl_code tune_need_check(const struct pawl_tune_need *need, struct pawl_error *e);
/* (N + K + spare) m, or UINT64_MAX. */
uint64_t tune_storage_bytes(const struct pawl_tune_need *need, uint32_t in_flight);

#endif
