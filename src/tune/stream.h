/* Real saves through the real engine, N in flight all the time, and what they take.
 *
 * One tensor of `bytes` bytes, saved again and again from the same memory. The engine runs in the background,
 * as in a training process. Tw follows from the rate (N saves in flight, each done once per Tw): that needs
 * no assumption about the order in which the engine serves them. */
#ifndef TUNE_STREAM_H
#define TUNE_STREAM_H

#include "ckpt/ckpt.h"
#include "store/store.h"

#define STREAM_ROUNDS_MAX 64u

struct stream_config {
    const char *folder;
    const void *data; /* aligned to MEM_ALIGN */
    uint64_t bytes;
    uint32_t in_flight, keep;
    uint32_t writers;     /* 0: the store's default */
    uint64_t chunk_bytes; /* 0: the engine's default */
};

struct stream {
    struct stream_config config;
    struct store *store;
    struct ckpt *engine;
    uint32_t writers; /* as the store took it */
    uint64_t *step; /* of the newest save in the folder, whoever made it; the caller's, for all its streams */
    uint64_t durable; /* this step and all before it have ended */
    uint64_t ended;   /* bit i: so has step durable + 1 + i */
};

struct stream_result {
    double write_s;   /* Tw: median of rounds, a round being in_flight saves */
    double total_s;   /* begin to durable, median, as the engine tells it */
    double blocked_s; /* the caller, per save: median */
    double seconds;   /* wall time of the rounds */
};

pawl_code stream_open(const struct stream_config *config, uint64_t *step, char why[160], struct stream *out,
                      struct pawl_error *e);
void stream_close(struct stream *s); /* abandons what is in flight; accepts zeros */

/* `rounds` rounds (1 to STREAM_ROUNDS_MAX) with in_flight saves always in flight; one more first, to fill the
 * pipe, which does not count. TIMEOUT: a signal asked to stop. */
pawl_code stream_run(struct stream *s, uint32_t rounds, struct stream_result *out, struct pawl_error *e);
/* `count` saves, from an idle engine to an idle engine; only `seconds`, `total_s` and `blocked_s` are told.
 */
pawl_code stream_burst(struct stream *s, uint32_t count, struct stream_result *out, struct pawl_error *e);
/* The newest save in `folder`, verified, into `data`. */
pawl_code stream_restore(const char *folder, uint64_t bytes, void *data, struct pawl_error *e);

double stream_median(double *values, uint32_t count); /* sorts them */

#endif
