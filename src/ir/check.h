/* What the parts of the checker share: check.c proves what can be read off the lists, check_run.c executes
 * them, check_memory.c adds up what is stored; check_rest.c marks what is still needed. None includes
 * anything of the builders or of ir/shape.h. */
#ifndef IR_CHECK_H
#define IR_CHECK_H

#include "ir/ir.h"

/* What is known of one (home, chunk, micro-batch). The first six: the lists hold that task (B is I and W). */
enum {
    CHECK_F = 1,
    CHECK_I = 2,
    CHECK_W = 4,
    CHECK_C = 8,
    CHECK_O = 16,
    CHECK_L = 32,
    CHECK_FORWARD_RAN = 64,
    CHECK_INPUT_RAN = 128,
};
#define CHECK_COMPLETE (CHECK_F | CHECK_I | CHECK_W)

/* What is known of a chunk in the list that is being walked. */
enum { CHECK_HELD = 1, CHECK_REDUCED = 2, CHECK_STEPPED = 4 };

struct check {
    const struct ir_plan *plan;
    struct pawl_error *e;
    uint32_t workers;
    uint64_t cells;
    uint32_t *host;         /* [cells] worker that executes it; valid once CHECK_F is set */
    uint8_t *state;         /* [cells] */
    uint8_t *needed;        /* [cells] of CHECK_F, CHECK_I and CHECK_W those that are executed; null: all */
    uint8_t *chunk;         /* [chunks] CHECK_HELD ... */
    uint32_t *first_holder; /* [chunks + 2]: chunk c is held by holder[first_holder[c] .. [c + 1] - 1] */
    uint32_t *holder;       /* workers, ascending within a chunk */
};

/* The tables hold the micro-batches that exist, chunk by chunk: the neighbouring chunk's cell is `total`
 * away. */
static inline uint64_t check_cell(const struct check *c, const struct ir_instruction *in) {
    uint64_t number = (uint64_t)in->home * c->plan->microbatches + in->microbatch;
    return (uint64_t)in->chunk * c->plan->total + number;
}

static inline const struct ir_instruction *check_at(const struct check *c, uint32_t worker,
                                                    uint32_t position) {
    return &c->plan->workers[worker].instructions[position];
}

/* Fails with PLAN and "plan: worker (p, s) position i: ..." */
pawl_code check_fail(const struct check *c, uint32_t worker, uint32_t position, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* All but the memory of a plan: opens `c`, which check_close has to close whatever comes. Errors: PLAN,
 * MEMORY. */
pawl_code check_lists(struct check *c);
void check_close(struct check *c);
/* Whether it is stepped over. */
bool check_skips(const struct check *c, const struct ir_instruction *in);
/* Who holds what: fills holder. Errors: PLAN, MEMORY. */
pawl_code check_holders(struct check *c);
/* Execute the lists; everything else about them is proven already. Errors: PLAN, MEMORY. */
pawl_code check_run(struct check *c);
/* What is stored; the lists are proven. Errors: PLAN. */
pawl_code check_memory(const struct check *c, const struct ir_memory *memory, uint64_t *peak);

#endif
