/* The independent checker: who holds which chunk.
 *
 * Every worker's list of chunks must be in range and ascending, the dead hold nothing, and somebody alive
 * holds every chunk. The result is the inverse: for every chunk its holders, in one array.
 * Tested in tests/unit/ir_check_test.c and tests/unit/ir_mutation_test.c. */
#include <stdlib.h>

#include "ir/check.h"

static pawl_code check_holds(struct check *c, uint32_t worker) {
    const struct ir_worker *w = &c->plan->workers[worker];
    if (!w->alive && w->hold_count > 0)
        return check_fail(c, worker, 0, "a dead worker holds %u chunks", w->hold_count);
    if (w->hold_count > 0 && w->holds == NULL)
        return check_fail(c, worker, 0, "holds %u chunks, but there is no list of them", w->hold_count);
    for (uint32_t i = 0; i < w->hold_count; i++) {
        if (w->holds[i] >= c->plan->chunks)
            return check_fail(c, worker, 0, "holds chunk %u, but there are %u", w->holds[i], c->plan->chunks);
        if (i > 0 && w->holds[i] <= w->holds[i - 1])
            return check_fail(c, worker, 0, "holds chunk %u behind chunk %u: not ascending", w->holds[i],
                              w->holds[i - 1]);
    }
    return PAWL_OK;
}

/* Counting sort by chunk. Counts stand two places on; placing then moves them to where they belong. */
static void invert(struct check *c) {
    const struct ir_plan *plan = c->plan;
    for (uint32_t w = 0; w < c->workers; w++)
        for (uint32_t i = 0; i < plan->workers[w].hold_count; i++)
            c->first_holder[plan->workers[w].holds[i] + 2]++;
    for (uint32_t k = 2; k < plan->chunks + 2; k++) c->first_holder[k] += c->first_holder[k - 1];
    for (uint32_t w = 0; w < c->workers; w++)
        for (uint32_t i = 0; i < plan->workers[w].hold_count; i++)
            c->holder[c->first_holder[plan->workers[w].holds[i] + 1]++] = w;
}

pawl_code check_holders(struct check *c) {
    uint64_t total = 0;
    for (uint32_t w = 0; w < c->workers; w++) {
        pawl_code code = check_holds(c, w);
        if (code != PAWL_OK) return code;
        total += c->plan->workers[w].hold_count;
    }
    c->first_holder = calloc((size_t)c->plan->chunks + 2, sizeof *c->first_holder);
    c->holder = calloc(total + 1, sizeof *c->holder);
    if (c->first_holder == NULL || c->holder == NULL)
        return error_set(c->e, PAWL_MEMORY, 0, "plan: no memory to check %llu holders of chunks",
                         (unsigned long long)total);
    invert(c);
    for (uint32_t k = 0; k < c->plan->chunks; k++)
        if (c->first_holder[k] == c->first_holder[k + 1])
            return error_set(c->e, PAWL_PLAN, 0, "plan: chunk %u has no live holder", k);
    return PAWL_OK;
}
