/* What the files of this module share besides the public header.
 *
 * The pure part (units.c, interval.c, choose.c, window.c, cadence.c, trace.c, goodput.c, replay.c) uses none
 * of the I/O. */
#ifndef TUNE_TUNE_H
#define TUNE_TUNE_H

#include <pawl/tune.h>

#include "base/json.h"
#include "tune/device.h"

/* ARGUMENT names the field. */
pawl_code tune_rates_check(const struct pawl_tune_rates *rates, struct pawl_error *e);
/* NO_SPACE, MEMORY: not even one save in flight is within the limits. */
pawl_code tune_need_check(const struct pawl_tune_need *need, struct pawl_error *e);
/* (N + K + spare) m, or UINT64_MAX. */
uint64_t tune_storage_bytes(const struct pawl_tune_need *need, uint32_t in_flight);

/* ---- the yardstick, for measure.c and bench.c ---- */

#define TUNE_WAYS 6u

struct tune_device {
    struct device_way way; /* the fastest writer's */
    double write_bps, read_bps;
};
/* Makes the files and tries some depths and piece sizes on them, rounds interleaved; leaves them there. */
pawl_code tune_device_measure(struct device_files *files, uint32_t rounds, uint8_t *data,
                              struct tune_device *out, struct pawl_error *e);
void tune_device_tell(const struct tune_device *device, struct pawl_device *out);

/* Free bytes of the file system. */
pawl_code tune_space(const char *dir, uint64_t *bytes, struct pawl_error *e);
/* Bytes that no device finds easy. */
void tune_fill(uint8_t *data, uint64_t bytes);

/* ---- dir/tune.json ---- */

#define TUNE_FILE "tune.json"
pawl_code tune_keep(const char *dir, const struct pawl_tune_result *result, struct pawl_error *e);
/* The text of such a file; everything but the choice, which is made anew. FORMAT, CORRUPT name the field. */
pawl_code tune_parse(const char *text, size_t size, struct pawl_tune_result *out, struct pawl_error *e);

#endif
