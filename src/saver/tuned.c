/* What was measured for this folder (`pawl ckpt tune DIR --save`) stands where the options leave the choice.
 *
 * It is advice: without it, or when it cannot be read, saving works with defaults, and the status says so. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pawl/tune.h>

#include "ckpt/slot.h"
#include "saver/saver.h"

static void take(struct pawl_ckpt *c, const struct pawl_tune_result *result) {
    struct pawl_ckpt_options *o = &c->options;
    const struct pawl_tune_point *point = &result->choice.point;
    bool fits = point->in_flight <= CKPT_IN_FLIGHT_MAX && point->writers <= STORE_DEPTH_MAX &&
                point->chunk_bytes % STORE_BLOCK == 0 && point->chunk_bytes <= SLOT_CHUNK_BYTES_MAX;
    if (!fits) return; /* measured by another version with other bounds */
    if (o->in_flight == 0) o->in_flight = point->in_flight;
    if (o->writers == 0) o->writers = point->writers;
    bool staged = o->staging_bytes == 0 || o->staging_bytes >= point->chunk_bytes;
    if (o->chunk_bytes == 0 && staged) o->chunk_bytes = point->chunk_bytes;
    c->tuned = pawl_cadence_of(&result->need, &result->choice);
}

void saver_take_tuned(struct pawl_ckpt *c) {
    struct pawl_tune_result *result = malloc(sizeof *result);
    if (result == NULL) return;
    struct pawl_error e = {0};
    pawl_code code = pawl_tune_load(c->options.path, result, &e);
    if (code == PAWL_OK)
        take(c, result);
    else if (code != PAWL_NOT_FOUND)
        snprintf(c->tuned_note, sizeof c->tuned_note, "; tune.json ignored: %.100s", e.text);
    free(result);
}
