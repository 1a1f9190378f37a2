/* What the two halves of the checker share: check.c proves what can be read off the lists, check_run.c
 * executes them. Neither includes anything of the builders or of ir/shape.h. */
#ifndef IR_CHECK_H
#define IR_CHECK_H

#include "ir/ir.h"

/* What is known of one (home, stage, micro-batch). */
enum {
    CHECK_HAS_F = 1, /* the lists hold its forward */
    CHECK_HAS_I = 2, /* ... its input-gradient (I or B) */
    CHECK_HAS_W = 4, /* ... its weight-gradient (W or B) */
    CHECK_FORWARD_RAN = 8,
    CHECK_INPUT_RAN = 16,
};
#define CHECK_COMPLETE (CHECK_HAS_F | CHECK_HAS_I | CHECK_HAS_W)

struct check {
    const struct ir_plan *plan;
    struct pawl_error *e;
    uint64_t workers;
    uint64_t cells;
    uint16_t *host; /* [cells] pipeline that executes it; valid once CHECK_HAS_F is set */
    uint8_t *state; /* [cells] CHECK_ bits */
};

static inline uint64_t check_cell(const struct check *c, uint32_t home, uint32_t stage, uint32_t microbatch) {
    return ((uint64_t)home * c->plan->stages + stage) * c->plan->microbatches + microbatch;
}

/* Fails with PLAN and "plan: worker (p, s) position i: ..." */
pawl_code check_fail(const struct check *c, uint64_t worker, uint32_t position, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Execute the lists; everything else about them is proven already. Errors: PLAN, MEMORY. */
pawl_code check_run(struct check *c);

#endif
