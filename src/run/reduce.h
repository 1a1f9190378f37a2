/* The sum of a stage's gradients over its live replicas, out of place: local sums stay as they are.
 *
 * Reduce-scatter of the 64-bit sums, then all-gather of the float mean gradients, each as direct messages:
 * every member owns one slice, gets that slice of the sums from everybody, adds (integers: any order gives
 * the same bits), divides, and sends the mean to everybody. Bytes a member sends: (8 + 4) * parameters *
 * (n-1)/n. A tied embedding is reduced over the live ranks of the first and the last stage together. The
 * footer (loss, counts) goes to every replica of the own stage. Completes when all has come and all own sends
 * have left, so that sums and gradient may be reused. Tested in tests/unit/run_reduce_test.c and tests/storm.
 */
#ifndef RUN_REDUCE_H
#define RUN_REDUCE_H

#include "model/gradsum.h"
#include "model/stage.h"
#include "run/peers.h"

/* Before, behind, and the shared tensor itself. */
#define REDUCE_SEGMENTS 3

struct reduce_segment {
    uint64_t offset, count; /* in parameters */
    uint32_t *members;      /* ranks, ascending */
    uint32_t member_count;
    uint32_t self; /* place of this worker among the members */
};

enum reduce_phase { REDUCE_IDLE, REDUCE_SCATTER, REDUCE_GATHER, REDUCE_DONE };

struct reduce {
    const struct stage *stage; /* borrowed */
    struct peers *peers;       /* borrowed */
    struct reduce_segment segments[REDUCE_SEGMENTS];
    struct reduce_segment replicas; /* the own stage's live ranks, for footers */
    uint32_t shared_tensor;         /* or UINT32_MAX */
    int64_t *inbox;                 /* slices of the sums from the other members */
    size_t inbox_words;
    int64_t *own_sum; /* one own slice, summed */
    size_t own_words;
    int64_t *footers; /* [ranks of the stage][GRADSUM_FOOTER_WORDS], by place */
    int64_t footer[GRADSUM_FOOTER_WORDS];
    enum reduce_phase phase;
    uint32_t pending;
    const struct version *version;
    const int64_t *sums;
    int32_t shift;
    float *grad;
};

pawl_code reduce_init(struct reduce *r, const struct stage *stage, struct peers *peers, struct pawl_error *e);
void reduce_close(struct reduce *r);
/* New membership (peers->live); nothing is under way. */
pawl_code reduce_members(struct reduce *r, struct pawl_error *e);
/* sums: [param_count] and the footer; grad: [param_count] out. Both stay put until done. */
pawl_code reduce_begin(struct reduce *r, const struct version *version, const int64_t *sums, int32_t shift,
                       float *grad, struct pawl_error *e);
pawl_code reduce_tick(struct reduce *r, struct pawl_error *e); /* phase tells when it is done */
pawl_code reduce_completion(struct reduce *r, const struct net_completion *c, struct pawl_error *e);
void reduce_drop(struct reduce *r);

#endif
