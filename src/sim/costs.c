/* What an instruction costs, and which costs can be computed with at all.
 *
 * Times are whole ticks, so that sums are the same in any order and on any machine; only a worker's factor
 * is a floating-point number, and it is applied to one chunk's cost at a time, with one rounding. B is
 * the sum of what I and W would take there, so that fusing them changes order and memory, never work.
 * Tested in tests/unit/sim_costs_test.c. */
#include "sim/sim.h"

#include <math.h>

#include "base/error.h"
#include "base/mem.h"

/* Beyond this a chunk's cost is not exact as a double; it is so long that a tick does not matter. */
static uint64_t slowed(const struct sim_costs *costs, uint32_t worker, uint64_t ticks) {
    if (ticks == 0 || costs->slow == NULL) return ticks;
    double factor = costs->slow[worker];
    if (factor == 1.0) return ticks;
    double scaled = (double)ticks * factor + 0.5;
    return scaled < 1.0 ? 1 : (uint64_t)scaled;
}

uint64_t sim_duration(const struct sim_costs *costs, uint32_t worker, uint32_t chunk, enum ir_op op) {
    const struct sim_chunk *c = &costs->chunk[chunk];
    switch (op) {
    case IR_F:
    case IR_C:
        return slowed(costs, worker, c->forward);
    case IR_I:
        return slowed(costs, worker, c->input_grad);
    case IR_W:
        return slowed(costs, worker, c->weight_grad);
    case IR_B:
        return slowed(costs, worker, c->input_grad) + slowed(costs, worker, c->weight_grad);
    case IR_S:
        return slowed(costs, worker, c->step);
    case IR_R:
        return c->reduce;
    case IR_O:
        return c->offload;
    case IR_L:
        return c->load;
    case IR_OP_COUNT:
        break;
    }
    return 0;
}

/* ---- checking ---- */

struct total {
    const struct sim_costs *costs;
    uint64_t cells;   /* micro-batches of one chunk, of all pipelines */
    uint64_t workers; /* of them one executes R and S of a chunk at most once */
    double slowest;   /* largest factor, at least 1 */
    uint64_t sum;     /* of all times so far; below SIM_TICKS_MAX */
    struct pawl_error *e;
};

/* Add `times` times `ticks`; false when the sum would reach SIM_TICKS_MAX. */
static bool total_add(struct total *t, uint64_t ticks, uint64_t times, double factor) {
    double scaled = (double)ticks * factor;
    if (scaled >= (double)SIM_TICKS_MAX) return false;
    uint64_t once = factor > 1.0 ? (uint64_t)scaled + 1 : ticks;
    uint64_t all;
    if (ticks == 0) return true;
    if (!mem_mul(once, times, &all) || !mem_add(t->sum, all, &all) || all >= SIM_TICKS_MAX) return false;
    t->sum = all;
    return true;
}

static pawl_code check_times(struct total *t, uint32_t chunk) {
    const struct sim_chunk *c = &t->costs->chunk[chunk];
    const struct {
        const char *name;
        uint64_t ticks, times;
        double factor;
    } fields[] = {
        {"forward", c->forward, 2 * t->cells, t->slowest}, /* F and C */
        {"input_grad", c->input_grad, t->cells, t->slowest},
        {"weight_grad", c->weight_grad, t->cells, t->slowest},
        {"send_forward", c->send_forward, t->cells, 1},
        {"send_backward", c->send_backward, t->cells, 1},
        {"offload", c->offload, t->cells, 1},
        {"load", c->load, t->cells, 1},
        {"reduce", c->reduce, t->workers, 1},
        {"step", c->step, t->workers, t->slowest},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!total_add(t, fields[i].ticks, fields[i].times, fields[i].factor))
            return error_set(t->e, PAWL_ARGUMENT, 0,
                             "costs: %s of chunk %u is %g: the times of all micro-batches together must stay "
                             "below %g, in the unit of the costs",
                             fields[i].name, chunk, (double)fields[i].ticks / SIM_TICKS,
                             (double)SIM_TICKS_MAX / SIM_TICKS);
    return PAWL_OK;
}

static pawl_code check_stored(const struct total *t, uint32_t chunk) {
    const struct sim_chunk *c = &t->costs->chunk[chunk];
    const char *field = c->kept > c->full ? "kept" : c->after_input > c->full ? "after_input" : NULL;
    uint64_t all;
    if (field != NULL)
        return error_set(t->e, PAWL_ARGUMENT, 0, "costs: %s of chunk %u is %llu, more than its full, %llu",
                         field, chunk, (unsigned long long)(c->kept > c->full ? c->kept : c->after_input),
                         (unsigned long long)c->full);
    if (!mem_mul(c->full, t->cells * t->costs->chunks, &all) || all > INT64_MAX)
        return error_set(t->e, PAWL_ARGUMENT, 0,
                         "costs: full of chunk %u is %llu; for %llu micro-batches that is beyond 2^63", chunk,
                         (unsigned long long)c->full, (unsigned long long)t->cells);
    return PAWL_OK;
}

static pawl_code check_workers(struct total *t) {
    t->slowest = 1;
    for (uint64_t w = 0; t->costs->slow != NULL && w < t->workers; w++) {
        double slow = t->costs->slow[w];
        if (!isfinite(slow) || slow <= 0)
            return error_set(t->e, PAWL_ARGUMENT, 0, "costs: slow of worker (%u, %u) is %g, not above 0",
                             (uint32_t)(w / t->costs->stages), (uint32_t)(w % t->costs->stages), slow);
        if (slow > t->slowest) t->slowest = slow;
    }
    return PAWL_OK;
}

static pawl_code check_size(const char *name, uint64_t value, uint64_t max, struct pawl_error *e) {
    if (value >= 1 && value <= max) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0, "costs: %s is %llu, not 1 to %llu", name, (unsigned long long)value,
                     (unsigned long long)max);
}

pawl_code sim_costs_check(const struct sim_costs *costs, uint32_t microbatches, struct pawl_error *e) {
    struct total t = {.costs = costs, .e = e};
    pawl_code code = check_size("pipelines", costs->pipelines, IR_PIPELINES_MAX, e);
    if (code == PAWL_OK) code = check_size("stages", costs->stages, IR_STAGES_MAX, e);
    if (code == PAWL_OK) code = check_size("chunks", costs->chunks, IR_CHUNKS_MAX, e);
    if (code == PAWL_OK) code = check_size("microbatches", microbatches, IR_MICROBATCHES_MAX, e);
    if (code != PAWL_OK) return code;
    t.cells = (uint64_t)costs->pipelines * microbatches;
    t.workers = (uint64_t)costs->pipelines * costs->stages;
    code = check_size("pipelines * stages", t.workers, IR_WORKERS_MAX, e);
    if (code == PAWL_OK) code = check_workers(&t);
    for (uint32_t c = 0; c < costs->chunks && code == PAWL_OK; c++) {
        code = check_times(&t, c);
        if (code == PAWL_OK) code = check_stored(&t, c);
    }
    return code;
}
