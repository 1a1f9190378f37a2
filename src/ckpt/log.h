/* The commit log as files of a store, and the store's identity. Layouts: docs/formats/store.md. */
#ifndef CKPT_LOG_H
#define CKPT_LOG_H

#include "ckpt/record.h"
#include "store/store.h"

#define LOG_IDENTITY_NAME "STORE"

/* NOT_FOUND: no identity, the store was never used. FOREIGN names both runs; FORMAT, CORRUPT, IO. */
pawl_code log_identity_check(struct store *s, const uint8_t run_id[RUN_ID_BYTES], struct pawl_error *e);
pawl_code log_identity_read(struct store *s, uint8_t run_id[RUN_ID_BYTES], struct pawl_error *e);
pawl_code log_identity_write(struct store *s, const uint8_t run_id[RUN_ID_BYTES], struct pawl_error *e);

struct log_found {
    struct record newest;
    bool any;             /* a valid record */
    uint32_t log, region; /* where the newest stands */
    uint32_t log_count;
    uint32_t last_log; /* highest number in a name */
    char problem[320]; /* a damaged region or log, in words; empty: none */
    bool may_lack;     /* what is damaged may have been a record newer than the newest */
};
/* Reads every log file. Damage is told in `problem`; FORMAT when a record has a newer version; IO, MEMORY. */
pawl_code log_scan(struct store *s, struct log_found *out, struct pawl_error *e);

/* Two regions, the first holding `r`; for store_put. */
void log_image(const struct record *r, struct bytes *out);

#endif
