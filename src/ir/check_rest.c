/* What is left of a plan when some contributions exist already (salvage), and the check of it.
 *
 * ir_first_missing is what an executor works by. The checker does not use it: it marks the missing
 * weight-gradients and then, from the last chunk's back and forth, whatever a marked task needs: W its I, I
 * the I behind it and its own F, F the F before it. Then it executes and adds up what is marked, with the
 * code that does it for whole plans. Tested in tests/unit/ir_rest_test.c. */
#include <stdlib.h>
#include <string.h>

#include "ir/check.h"

void ir_first_missing(const struct ir_plan *plan, const uint8_t *done, uint32_t *first_missing) {
    for (uint32_t m = 0; m < plan->total; m++) {
        uint32_t chunk = 0;
        while (chunk < plan->chunks && ir_is_done(plan, done, chunk, m)) chunk++;
        first_missing[m] = chunk < plan->chunks ? chunk : IR_NONE;
    }
}

bool check_skips(const struct check *c, const struct ir_instruction *in) {
    static const uint8_t part_of[IR_OP_COUNT] = {
        [IR_F] = CHECK_F, [IR_I] = CHECK_I, [IR_W] = CHECK_W, [IR_B] = CHECK_I | CHECK_W,
        [IR_C] = CHECK_F, [IR_O] = CHECK_F, [IR_L] = CHECK_F};
    if (c->needed == NULL || part_of[in->op] == 0) return false;
    return !(c->needed[check_cell(c, in)] & part_of[in->op]);
}

static void mark_missing(struct check *c, const uint8_t *done) {
    for (uint64_t cell = 0; cell < c->cells; cell++) {
        uint64_t row = cell / c->plan->total * ((c->plan->total + 7) / 8), m = cell % c->plan->total;
        if (!(done[row + m / 8] & 1u << m % 8)) c->needed[cell] = CHECK_W;
    }
}

/* Gradients flow from the last chunk down, so one walk up finds all that W and I need; activations flow up,
 * so one walk down finds all that I and F need. */
static void mark_needed(struct check *c) {
    uint64_t total = c->plan->total;
    for (uint64_t cell = 0; cell < c->cells; cell++) {
        if (c->needed[cell] & CHECK_W) c->needed[cell] |= CHECK_I;
        if (!(c->needed[cell] & CHECK_I)) continue;
        c->needed[cell] |= CHECK_F;
        if (cell + total < c->cells) c->needed[cell + total] |= CHECK_I;
    }
    for (uint64_t cell = c->cells; cell > total; cell--)
        if (c->needed[cell - 1] & CHECK_F) c->needed[cell - 1 - total] |= CHECK_F;
}

pawl_code ir_check_rest(const struct ir_plan *plan, const struct ir_memory *memory, const uint8_t *done,
                        uint64_t *peak, struct pawl_error *e) {
    if (done == NULL) return ir_check(plan, memory, peak, e);
    struct check c = {.plan = plan, .e = e};
    pawl_code code = check_lists(&c);
    if (code == PAWL_OK && (c.needed = calloc(c.cells, 1)) == NULL)
        code = error_set(e, PAWL_MEMORY, 0, "plan: no memory to check the rest of %llu micro-batches",
                         (unsigned long long)c.cells);
    if (code == PAWL_OK) {
        mark_missing(&c, done);
        mark_needed(&c);
        for (uint64_t cell = 0; cell < c.cells; cell++)
            c.state[cell] &= (uint8_t) ~(CHECK_FORWARD_RAN | CHECK_INPUT_RAN);
        code = check_run(&c);
    }
    if (code == PAWL_OK) code = check_memory(&c, memory, peak);
    check_close(&c);
    return code;
}
