/* One chunk of the model as a worker holds it: its versions, the gradient sums of the iteration under way,
 * and the last reduced gradient. A worker normally has one; more while it moves or helps.
 *
 * Invariants: `base` is final; `tentative`, if any, is base+1, made from base and `grad` by a step that was
 * not decided yet; `grad` is of iteration base->number if has_grad; the sums are of iteration `work`, with
 * exactly the contributions in `bits`, each once; without any their words may be anything (gradsum_empty).
 * Sums survive a fence (salvage).
 *
 * Life: PLANNED by a GO, RETIRED by one that gives the chunk to others: it is still a source then and is
 * still reported; OVER at the first decision after it. PREPARED: copied ahead of a join. A holding that is
 * over goes once no save reads it. Thread: the worker's. Tested in tests/unit/run_holding_test.c. */
#ifndef RUN_HOLDING_H
#define RUN_HOLDING_H

#include "coord/coord.h"
#include "model/adamw.h"
#include "run/engine.h"
#include "run/measure.h"
#include "run/reduce.h"
#include "run/versions.h"

enum holding_use { HOLDING_PLANNED, HOLDING_RETIRED, HOLDING_PREPARED, HOLDING_OVER };

struct holding {
    struct stage *stage; /* owned; stage->index is the chunk */
    enum holding_use use;
    struct versions versions;
    struct version *base; /* null: not there yet */
    struct version *tentative;
    int64_t *sums; /* of all parameters, and the footer (model/gradsum.h) */
    uint64_t work; /* COORD_NO_WORK: the sums are of no iteration */
    int32_t work_shift;
    uint64_t total; /* micro-batches of an iteration */
    uint8_t *bits;  /* [(total + 7) / 8] */
    float *grad;
    bool has_grad;
    struct coord_report report; /* with has_grad */
    uint32_t grad_sends;        /* copies of grad under way: it must stay as it is */
    struct reduce reduce;
    int64_t reduce_ns; /* when the sum under way began */
    struct measure measure;
    /* of the iteration under way */
    bool reduce_due, step_due; /* the list is past R, S */
    bool reported;             /* its reduced gradient, in this view */
    /* of the GO under way */
    bool fetches_state, fetches_grad; /* and has not got it yet */
    bool reduced; /* the chunk's gradient of the iteration that starts exists already: nothing to add */
    bool keeps_work;
};

/* saves: how many may read versions at once. */
pawl_code holding_new(struct stage *stage, uint32_t saves, struct peers *peers, struct holding **out,
                      struct pawl_error *e); /* takes over the stage, also on error */
void holding_free(struct holding *h);        /* accepts null */
static inline uint32_t holding_chunk(const struct holding *h) { return h->stage->index; }
/* What an iteration reads that starts now. */
static inline const struct version *holding_current(const struct holding *h) {
    return h->tentative != NULL ? h->tentative : h->base;
}
size_t holding_sums_bytes(const struct holding *h);
/* The version is over, and what was made from it: nothing is held but the memory. */
void holding_forget(struct holding *h);
void holding_drop_tentative(struct holding *h);
void holding_drop_work(struct holding *h);
/* An iteration begins: its sums are empty, or kept as they are. */
void holding_begin(struct holding *h, int32_t shift);
/* Enters a contribution in the bitmap. INTERNAL: it was there. */
pawl_code holding_enter(struct holding *h, uint64_t microbatch, struct pawl_error *e);
/* `base` is now this version, which the caller has held. */
void holding_adopt(struct holding *h, struct version *version);
/* base+1 from base and grad, beside base. OK without one: every buffer is read by somebody, later. */
pawl_code holding_step(struct holding *h, const struct adamw_config *adamw, struct pawl_error *e);
/* Iteration base->number is decided: base becomes base+1. INTERNAL without a gradient, or where a tentative
 * step was taken and is not accepted. */
pawl_code holding_settle(struct holding *h, const struct adamw_config *adamw, enum coord_verdict verdict,
                         float clip, struct pawl_error *e);
/* The reduction is done: what is to be reported of it. INTERNAL: a contribution is missing or came twice. */
pawl_code holding_reduced(struct holding *h, struct pawl_error *e);

#endif
