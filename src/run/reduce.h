/* The sum of a chunk's gradients over its live holders, out of place: local sums stay as they are.
 *
 * Reduce-scatter of the sums, 64-bit or float, then all-gather of the float mean gradients, each as direct
 * messages: every member owns one slice, gets that slice of the sums from everybody, adds (integers: any
 * order gives the same bits; floats: in the order of members), divides, and sends the mean to everybody.
 * Bytes a member sends: (8 + 4) * parameters * (n-1)/n, with floats (4 + 4). Members are pairs (rank, chunk).
 * The footer (loss, counts) goes to every holder of the chunk. Completes when all has come and all own sends
 * have left, so that sums and gradient may be reused.
 *
 * A tied embedding is reduced over the holders of the first and the last chunk together. A rank may hold both
 * ends: what one has, the other takes from its memory (`other`). And one end's gradient may be there already
 * from before a fence, while the other end's is not (run/go.h): then nothing of the embedding is summed; a
 * holder of the end that has it gives its gradient to each of the other end (reduce_give).
 *
 * Thread: the worker's. Tested in tests/unit/run_reduce_test.c and tests/storm. */
#ifndef RUN_REDUCE_H
#define RUN_REDUCE_H

#include "model/gradsum.h"
#include "model/stage.h"
#include "run/peers.h"

/* Before, behind, and the shared tensor itself. */
#define REDUCE_SEGMENTS 3

/* Parameters summed at a time, so that what is added up stays in the cache: 32 KiB of sums. */
#define REDUCE_BLOCK 4096u

struct reduce_member {
    uint32_t rank, chunk;
};

struct reduce_segment {
    uint64_t offset, count; /* in parameters */
    struct reduce_member *members;
    uint32_t member_count;
    uint32_t self; /* place of this pair among the members */
};

enum reduce_phase { REDUCE_IDLE, REDUCE_SCATTER, REDUCE_GATHER, REDUCE_DONE };

/* Who holds what, and whose gradient is there already. */
struct reduce_holders {
    const struct coord_pair *pairs; /* [ranks * chunks] */
    uint32_t ranks, chunks;
    const bool *reduced; /* [chunks] */
};

struct reduce {
    const struct stage *stage; /* borrowed, as all but the memory below */
    struct peers *peers;
    int64_t *sums;        /* [param_count] and the footer; may be empty when a reduction begins */
    float *grad;          /* [param_count] */
    struct reduce *other; /* of the other end of a tied embedding, where this worker holds it too; or null */
    struct reduce_segment segments[REDUCE_SEGMENTS];
    struct reduce_segment replicas; /* the chunk's holders, for footers */
    uint32_t shared_tensor;         /* or UINT32_MAX */
    bool given;                     /* in the next reduction the shared tensor's gradient is given ... */
    uint32_t giver;                 /* ... by this rank */
    struct reduce_member *takers;   /* whom to give it to */
    uint32_t taker_count;
    uint32_t giving; /* such sends that have not left */
    int64_t *inbox;  /* slices of the sums from the other members */
    size_t inbox_words;
    int64_t block[REDUCE_BLOCK]; /* a block of an own slice, summed */
    int64_t *footers;            /* [holders][GRADSUM_FOOTER_WORDS], by place */
    int64_t footer[GRADSUM_FOOTER_WORDS];
    enum reduce_phase phase;
    uint32_t pending;
    const struct version *version;
    int32_t shift;
    uint64_t begun, made; /* iteration + 1 whose sums are complete, whose own slices are in grad; 0: none */
};

void reduce_init(struct reduce *r, const struct stage *stage, struct peers *peers, int64_t *sums,
                 float *grad);
void reduce_close(struct reduce *r);
/* New holders; nothing is under way. `other` is set by the caller. */
pawl_code reduce_members(struct reduce *r, const struct reduce_holders *holders, struct pawl_error *e);
/* Sums and gradient stay put until done, and the gradient while `giving`. */
pawl_code reduce_begin(struct reduce *r, const struct version *version, int32_t shift, struct pawl_error *e);
pawl_code reduce_tick(struct reduce *r, struct pawl_error *e); /* phase tells when it is done */
void reduce_end(struct reduce *r);                             /* after REDUCE_DONE */
/* The gradient of iteration `version` is there: give its shared tensor to the takers. */
pawl_code reduce_give(struct reduce *r, uint64_t iteration, struct pawl_error *e);
pawl_code reduce_completion(struct reduce *r, const struct net_completion *c, struct pawl_error *e);
/* Whose completion it is: the chunk of the reduction. */
uint32_t reduce_chunk_of(uint64_t cookie);
void reduce_drop(struct reduce *r); /* whatever is under way; the network was fenced before */

#endif
