/* What measuring needs besides saves: the device's own rates, room, bytes to write. For measure.c and
 * bench.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "tune/stream.h"
#include "tune/tune.h"

pawl_code tune_space(const char *dir, uint64_t *bytes, struct pawl_error *e) {
    struct store *s = NULL;
    pawl_code code = store_open(dir, STORE_PLAIN, true, &s, NULL, e);
    if (code != PAWL_OK) return code;
    code = store_space(s, bytes, e);
    store_close(s);
    return code;
}

void tune_fill(uint8_t *data, uint64_t bytes) {
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word = (i + 1) * 0x9e3779b97f4a7c15u;
        memcpy(data + i, &word, 8);
    }
}

static pawl_code timed(struct device_files *f, struct device_way way, void *data, bool write, double *seconds,
                       struct pawl_error *e) {
    int64_t from_ns = clock_now_ns();
    pawl_code code = write ? device_write(f, way, data, e) : device_read(f, way, data, e);
    *seconds = (double)(clock_now_ns() - from_ns) * 1e-9;
    return code;
}

static uint32_t ways_of(struct device_way probed, struct device_way ways[TUNE_WAYS]) {
    static const struct {
        uint32_t depth, piece_mib;
    } choices[TUNE_WAYS] = {{4, 4}, {8, 4}, {16, 1}, {8, 1}, {4, 8}, {16, 4}};
    ways[0] = probed;
    if (!probed.uring) return 1;
    for (uint32_t i = 0; i < TUNE_WAYS; i++) {
        ways[i] = probed;
        ways[i].depth = choices[i].depth;
        ways[i].piece_bytes = (uint64_t)choices[i].piece_mib << 20;
    }
    return TUNE_WAYS;
}

static pawl_code try_ways(struct device_files *f, struct device_way probed, uint32_t rounds, uint8_t *data,
                          struct tune_device *out, struct pawl_error *e) {
    struct device_way ways[TUNE_WAYS];
    uint32_t count = ways_of(probed, ways);
    double write_s[TUNE_WAYS][STREAM_ROUNDS_MAX], read_s[STREAM_ROUNDS_MAX], least_s = INFINITY;
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < f->count && code == PAWL_OK; i++) code = device_write(f, probed, data, e);
    for (uint32_t round = 0; round < rounds && code == PAWL_OK; round++)
        for (uint32_t i = 0; i < count && code == PAWL_OK; i++)
            code = timed(f, ways[i], data, true, &write_s[i][round], e);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) {
        double median_s = stream_median(write_s[i], rounds);
        if (median_s < least_s) {
            least_s = median_s;
            out->way = ways[i];
        }
    }
    for (uint32_t round = 0; round < rounds && code == PAWL_OK; round++)
        code = timed(f, out->way, data, false, &read_s[round], e);
    if (code != PAWL_OK) return code;
    out->write_bps = (double)f->bytes / least_s;
    out->read_bps = (double)f->bytes / stream_median(read_s, rounds);
    return PAWL_OK;
}

pawl_code tune_device_measure(struct device_files *f, uint32_t rounds, uint8_t *data, struct tune_device *out,
                              struct pawl_error *e) {
    pawl_code code = device_files_make(f, e);
    if (code == PAWL_OK) code = try_ways(f, device_probe(f->folder), rounds, data, out, e);
    return code;
}

void tune_device_tell(const struct tune_device *d, struct pawl_device *out) {
    snprintf(out->mode, sizeof out->mode, "%s", device_way_name(d->way));
    out->depth = d->way.depth;
    out->piece_bytes = d->way.piece_bytes;
    out->write_bps = d->write_bps;
    out->read_bps = d->read_bps;
}
