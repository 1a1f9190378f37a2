/* What the limits of memory mean for the order of tasks.
 *
 * Stored at a forward: `full` of every cell whose F came before or is this one, less what I and W before it
 * gave back. Where a worker executes one class of one chunk, everything goes by number: F number j is the
 * j-th, and the limit says which W and I must precede it: a plain arc, or one of two. Elsewhere a store keeps
 * the cells, and engines look at the sums.
 * Tested in tests/unit/plan_exact_test.c and plan_exact_prune_test.c. */
#include "plan/exact.h"

#include <stdlib.h>

#include "base/error.h"

static pawl_code add_either(struct exact_model *m, struct exact_either either, struct pawl_error *e) {
    pawl_code code = exact_grow((void **)&m->either, m->either_count, &m->either_room, sizeof *m->either, e);
    if (code == PAWL_OK) m->either[m->either_count++] = either;
    return code;
}

static pawl_code add_before(struct exact_model *m, uint32_t a, uint32_t b, struct pawl_error *e) {
    return exact_arc_add(m, (struct exact_arc){a, b, m->tasks[a].duration, EXACT_NONE, EXACT_NONE}, e);
}

/* Forwards and backwards by number: with b of the W before F number j, at least how many I must be? */
static uint64_t inputs_needed(const struct exact_cell *cell, uint64_t limit, uint64_t j, uint64_t b) {
    uint64_t stored = j * cell->full - b * cell->after; /* b W without the I of others */
    uint64_t each = cell->full - cell->after;
    if (stored <= limit) return 0;
    return each == 0 ? UINT64_MAX : (stored - limit + each - 1) / each;
}

/* cells[] in the order of their numbers; F of the last of `j` of them. If W number b+1 is not before it, then
 * exactly b or fewer are, and so many I must be. */
static pawl_code limit_forward(struct exact_model *m, const uint32_t *cells, uint32_t j, uint64_t limit,
                               struct pawl_error *e) {
    uint32_t f = m->cells[cells[j - 1]].task, last = exact_ops(m) - 1;
    for (uint32_t b = 0; b < j; b++) {
        const struct exact_cell *cell = &m->cells[cells[0]];
        uint64_t inputs = inputs_needed(cell, limit, j, b);
        if (inputs <= b) return PAWL_OK; /* W number b comes after I number b */
        uint32_t w = m->cells[cells[b]].task + last;
        pawl_code code;
        if (inputs > j - 1) {
            code = add_before(m, w, f, e);
        } else {
            uint32_t i = m->cells[cells[inputs - 1]].task + 1;
            code = add_either(m, (struct exact_either){w, f, i, f}, e);
        }
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

static bool is_sequence(const struct exact_model *m, const struct exact_store *s) {
    for (uint32_t i = 0; i < s->cell_count; i++) {
        const struct exact_cell *cell = &m->cells[s->cells[i]], *first = &m->cells[s->cells[0]];
        if (cell->choice_count > 0 || cell->class != first->class || cell->number != i) return false;
        if (m->tasks[cell->task].chunk != m->tasks[first->task].chunk) return false;
    }
    return true;
}

static pawl_code fill_store(const struct exact_model *m, struct exact_store *s, struct pawl_error *e) {
    uint64_t sum = 0;
    s->cells = calloc(m->cell_count, sizeof *s->cells);
    if (s->cells == NULL) return error_set(e, PAWL_MEMORY, 0, "exact plan: no memory");
    for (uint32_t cell = 0; cell < m->cell_count; cell++) {
        uint32_t choice;
        const struct exact_cell *at = &m->cells[cell];
        if (!exact_may_run_on(m, at->task, s->worker, &choice)) continue;
        if (at->full > s->limit && at->choice_count == 0)
            return error_set(e, PAWL_PLAN, 0,
                             "worker (%u, %u) stores %llu for one micro-batch of chunk %u, its limit is %llu",
                             s->worker / m->route->stages, s->worker % m->route->stages,
                             (unsigned long long)at->full, m->tasks[at->task].chunk,
                             (unsigned long long)s->limit);
        if (at->after > at->full)
            return error_set(e, PAWL_ARGUMENT, 0, "exact plan: chunk %u stores more after its input-gradient",
                             m->tasks[at->task].chunk);
        s->cells[s->cell_count++] = cell;
        sum = sum + at->full < sum ? UINT64_MAX : sum + at->full;
    }
    if (sum <= s->limit) s->cell_count = 0; /* no order needs more than there is */
    return PAWL_OK;
}

pawl_code exact_memory(struct exact_model *m, struct pawl_error *e) {
    uint32_t workers = m->route->pipelines * m->route->stages;
    for (uint32_t w = 0; m->costs->limit != NULL && w < workers; w++) {
        if (!m->route->alive[w] || m->costs->limit[w] == UINT64_MAX) continue;
        struct exact_store *s = &m->stores[m->store_count];
        *s = (struct exact_store){.worker = w, .limit = m->costs->limit[w]};
        pawl_code code = fill_store(m, s, e);
        bool keep = code == PAWL_OK && s->cell_count > 0 && !is_sequence(m, s);
        for (uint32_t j = 1; code == PAWL_OK && !keep && j <= s->cell_count; j++)
            code = limit_forward(m, s->cells, j, s->limit, e);
        if (keep) {
            m->store_count++;
        } else {
            free(s->cells);
            *s = (struct exact_store){0};
        }
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}
