/* The folder a run lives in: its identity, its lock, its stores.
 *
 *   run.dir/run.json            run id, incarnation, whether a step was ever durable, what a resume must keep
 *   run.dir/store/rank-NNNN     one checkpoint store a rank
 *   run.dir/injected            fault injections that have fired (run/inject.h)
 *   run.dir/log.jsonl, report.json, evidence-N.txt, admin.sock, STOP
 *
 * One launcher at a time (BUSY otherwise). Everything is replaced atomically. Layout: docs/formats/run.md. */
#ifndef RUN_RUNDIR_H
#define RUN_RUNDIR_H

#include "ckpt/ckpt.h"
#include "run/spec.h"

struct rundir {
    struct store *store; /* of run.dir itself: lock and small files */
    uint8_t run_id[CKPT_RUN_ID_BYTES];
    uint64_t incarnation; /* of the last start; 0: never started */
    bool had_durable;
    struct bytes identity;
    struct pawl_error foreign; /* rundir_open_anew: what the spec has otherwise; code OK: nothing */
};

/* Makes the folder at the first start; afterwards checks that it is this spec's run (FOREIGN names the
 * field). */
pawl_code rundir_open(struct rundir *d, const struct spec *spec, struct pawl_error *e);
/* As rundir_open; but where no step was ever noted as durable another spec's run is opened, too, with
 * `foreign` set: to be refused with that, unless its stores hold nothing whole and nothing damaged, and then
 * to be taken over. */
pawl_code rundir_open_anew(struct rundir *d, const struct spec *spec, struct pawl_error *e);
/* It is this spec's run from the next rundir_begin on, under the same id. */
pawl_code rundir_take_over(struct rundir *d, const struct spec *spec, struct pawl_error *e);
void rundir_close(struct rundir *d);
/* Durably begin the next incarnation. */
pawl_code rundir_begin(struct rundir *d, struct pawl_error *e);
/* Durably note that a step was durable; once. */
pawl_code rundir_note_durable(struct rundir *d, struct pawl_error *e);
/* Highest step the log knows of as decided, 0 if none. */
uint64_t rundir_last_step(const struct rundir *d);
/* Seconds from the decision of `step` (0: the beginning) to that of the last one, as the log has them; 0:
 * unknown. */
double rundir_lost_seconds(const struct rundir *d, uint64_t step);

pawl_code rundir_store_path(const struct spec *spec, uint32_t rank, char *out, size_t size,
                            struct pawl_error *e);
/* Every rank's store there is, read-only; also those of ranks the spec no longer has. */
pawl_code rundir_open_stores(const struct spec *spec, struct store ***out, uint32_t *count,
                             struct pawl_error *e);
void rundir_close_stores(struct store **stores, uint32_t count);

#endif
