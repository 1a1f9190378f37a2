/* The two large control messages: GO (what everybody does from now on) and FENCED (what a rank has).
 *
 * GO is the same for all: the plan, who plays which role of it, who holds what and how it comes to it, and
 * which contributions of the iteration exist already. A worker finds itself by its rank.
 *
 * Contributions. An iteration has plan->total micro-batches, numbered home * plan->microbatches + number, for
 * each chunk. `done` has a bit for each (chunk, micro-batch) whose contribution to the chunk's sum is held by
 * some pair that goes on (COORD_KEEP_WORK), or whose chunk's reduced gradient is held. What is left to do:
 *   F of (chunk, m)   if any chunk misses m
 *   I of (chunk, m)   if this chunk or one before it misses m
 *   W of (chunk, m)   if this chunk misses m
 * ir_need says so (ir/ir.h); executors step over instructions that are not needed, and do of a B what is.
 *
 * Formats: docs/formats/control.md. Every byte is checked: counts, ranks, chunks, flags, sources that hold.
 * Tested in tests/unit/run_go_test.c, tests/fuzz/run_go_fuzz.c. */
#ifndef RUN_GO_H
#define RUN_GO_H

#include "base/bytes.h"
#include "coord/coord.h"
#include "ir/ir.h"

struct go {
    uint64_t view;
    uint64_t version; /* that starts */
    bool settle, optimistic, restore;
    enum coord_verdict verdict; /* settle: of iteration version - 1 */
    float clip;
    int32_t shift;
    uint64_t incarnation;        /* of saves from now on; only a restore changes it */
    uint64_t resume_incarnation; /* restore: of the step to load; 0: none, begin anew at version 0 */
    uint64_t durable;            /* newest durable step, 0: none: for whoever opens its store now */
    uint32_t ranks, chunks;
    struct ir_plan *plan;
    uint32_t *rank_of_role;   /* [plan workers]; UINT32_MAX: a dead role */
    struct coord_pair *pairs; /* [ranks * chunks] */
    uint32_t *own;            /* [ranks] chunk that the rank saves; UINT32_MAX: none */
    uint8_t *done;            /* [chunks][go_done_bytes], little-endian bits; null: nothing is done yet */
};
static inline size_t go_done_bytes(const struct go *g) { return ((size_t)g->plan->total + 7) / 8; }

void go_encode(const struct go *g, struct bytes *out);
/* FORMAT; the plan has been decoded but not yet proven by ir_check. go_close also after a failure. */
pawl_code go_decode(const void *data, size_t size, struct go *out, struct pawl_error *e);
void go_close(struct go *g);

struct fenced_pair {
    struct coord_fenced_pair pair;
    uint64_t total;      /* micro-batches of that iteration; 0 with COORD_NO_WORK */
    const uint8_t *bits; /* [(total + 7) / 8] contributions in the sums; points into the message */
};
struct fenced {
    struct fenced_pair *pairs;
    uint32_t pair_count;
    struct coord_fenced_save *saves;
    uint32_t save_count;
    bool has_durable, optimistic;
    uint64_t durable;
    uint64_t incarnation; /* that it saves for; 0: it has had no GO */
    int32_t shift;
};
void fenced_encode(const struct fenced *f, struct bytes *out);
pawl_code fenced_decode(const void *data, size_t size, struct fenced *out, struct pawl_error *e);
void fenced_close(struct fenced *f);

#endif
