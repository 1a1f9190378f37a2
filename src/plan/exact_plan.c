/* From a schedule of the model to the lists of a plan, and from a plan to a schedule.
 *
 * Lists go by start times; of tasks that start together those without length come first, in an order that the
 * arcs respect. What a plan is worth, ir_check and sim_run say, not the solver.
 * Tested in tests/unit/plan_exact_test.c. */
#include "plan/exact.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

pawl_code exact_schedule_new(const struct exact_model *m, struct exact_schedule *out, struct pawl_error *e) {
    out->start = calloc(m->node_count, sizeof *out->start);
    out->worker = calloc(m->cell_count, sizeof *out->worker);
    if (out->start != NULL && out->worker != NULL) {
        memcpy(out->worker, m->route->host, m->cell_count * sizeof *out->worker);
        return PAWL_OK;
    }
    exact_schedule_close(out);
    return error_set(e, PAWL_MEMORY, 0, "exact plan: no memory for %u starts", m->node_count);
}

void exact_schedule_close(struct exact_schedule *s) {
    free(s->start);
    free(s->worker);
    *s = (struct exact_schedule){0};
}

/* ---- to a plan ---- */

struct listed { /* a task, to be sorted */
    int64_t start;
    bool lasts;
    uint32_t rank, task;
};

static int compare_listed(const void *left, const void *right) {
    const struct listed *a = left, *b = right;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    if (a->lasts != b->lasts) return a->lasts ? 1 : -1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static uint32_t worker_of(const struct exact_model *m, const struct exact_schedule *s, uint32_t task) {
    const struct exact_task *t = &m->tasks[task];
    return t->cell == EXACT_NONE ? t->worker : s->worker[t->cell];
}

static pawl_code append_task(const struct exact_model *m, const struct plan_route *route, uint32_t task,
                             uint32_t worker, struct ir_plan *plan, struct pawl_error *e) {
    const struct exact_task *t = &m->tasks[task];
    struct ir_instruction in = {t->op, t->chunk, IR_NONE, IR_NONE, IR_NONE, IR_NONE};
    if (t->cell != EXACT_NONE) in = plan_route_instruction(route, t->op, t->home, t->chunk, t->microbatch);
    return ir_plan_append(plan, worker / route->stages, worker % route->stages, in, e);
}

static pawl_code fill_lists(const struct exact_model *m, const struct exact_schedule *s,
                            const struct plan_route *route, struct ir_plan *plan, struct pawl_error *e) {
    struct listed *list = calloc(m->task_count, sizeof *list);
    if (list == NULL) return error_set(e, PAWL_MEMORY, 0, "exact plan: no memory for its lists");
    for (uint32_t t = 0; t < m->task_count; t++) {
        const struct exact_task *task = &m->tasks[t];
        bool lasts = exact_duration_on(m, worker_of(m, s, t), task->chunk, task->op) > 0;
        list[t] = (struct listed){s->start[t], lasts, m->topology[t], t};
    }
    qsort(list, m->task_count, sizeof *list, compare_listed); /* ranks differ: no equal keys */
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; code == PAWL_OK && i < m->task_count; i++)
        code = append_task(m, route, list[i].task, worker_of(m, s, list[i].task), plan, e);
    free(list);
    return code;
}

static struct ir_memory memory_of(const struct sim_costs *costs, uint64_t *scratch) {
    uint64_t *full = scratch, *kept = full + costs->chunks, *after = kept + costs->chunks;
    for (uint32_t c = 0; c < costs->chunks; c++) {
        full[c] = costs->chunk[c].full;
        kept[c] = costs->chunk[c].kept;
        after[c] = costs->chunk[c].after_input;
    }
    return (struct ir_memory){full, kept, after, costs->limit};
}

pawl_code exact_check(const struct ir_plan *plan, const struct sim_costs *costs, bool staggered,
                      uint64_t *period, struct sim_result *times, struct pawl_error *e) {
    uint64_t *scratch = calloc((size_t)costs->chunks * 3, sizeof *scratch);
    if (scratch == NULL) return error_set(e, PAWL_MEMORY, 0, "exact plan: no memory");
    struct ir_memory memory = memory_of(costs, scratch);
    pawl_code code = ir_check(plan, &memory, NULL, e);
    free(scratch);
    if (code != PAWL_OK) return code;
    struct sim_result own = {0};
    code = sim_run(plan, costs, staggered, NULL, &own, e);
    if (code == PAWL_OK) *period = own.period;
    if (code == PAWL_OK && times != NULL)
        *times = own;
    else
        sim_result_close(&own);
    return code;
}

/* ---- B for I and W that follow each other ---- */

static bool is_pair_at(const struct ir_worker *w, uint32_t at) {
    if (at + 1 >= w->count) return false;
    const struct ir_instruction *a = &w->instructions[at], *b = a + 1;
    return a->op == IR_I && b->op == IR_W && a->chunk == b->chunk && a->home == b->home &&
           a->microbatch == b->microbatch;
}

static void fuse_at(struct ir_worker *w, uint32_t at) {
    w->instructions[at].op = IR_B;
    memmove(&w->instructions[at + 1], &w->instructions[at + 2],
            (w->count - at - 2) * sizeof *w->instructions);
    w->count--;
}

static void split_at(struct ir_worker *w, uint32_t at) {
    memmove(&w->instructions[at + 2], &w->instructions[at + 1],
            (w->count - at - 1) * sizeof *w->instructions);
    w->count++;
    w->instructions[at + 1] = w->instructions[at];
    w->instructions[at].op = IR_I;
    w->instructions[at + 1].op = IR_W;
    w->instructions[at + 1].from = w->instructions[at + 1].to = IR_NONE;
}

/* Selective: apart only where that helps; from the last to the first, as late ones rarely matter. */
static pawl_code fuse(const struct exact_model *m, struct ir_plan *plan, uint64_t period,
                      struct pawl_error *e) {
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
        struct ir_worker *list = &plan->workers[w];
        for (uint32_t at = list->count; at-- > 0;) {
            if (!is_pair_at(list, at)) continue;
            fuse_at(list, at);
            uint64_t now = 0;
            struct sim_result times = {0};
            pawl_code code = sim_run(plan, m->costs, m->staggered, NULL, &times, e);
            now = times.period;
            sim_result_close(&times);
            if (code != PAWL_OK) return code;
            if (now > period) split_at(list, at);
        }
    }
    return PAWL_OK;
}

pawl_code exact_plan(const struct exact_model *m, const struct exact_schedule *schedule,
                     const struct plan_exact_options *options, struct ir_plan **out, uint64_t *period,
                     struct pawl_error *e) {
    struct plan_route *route = NULL;
    struct ir_plan *plan = NULL;
    *out = NULL;
    pawl_code code = plan_route_copy(m->route, &route, e);
    if (code == PAWL_OK) memcpy(route->host, schedule->worker, m->cell_count * sizeof *route->host);
    if (code == PAWL_OK) code = plan_route_plan(route, &plan, e);
    if (code == PAWL_OK) code = fill_lists(m, schedule, route, plan, e);
    if (code == PAWL_OK) code = exact_check(plan, m->costs, m->staggered, period, NULL, e);
    if (code == PAWL_OK && options->list.backward == PLAN_SELECTIVE) code = fuse(m, plan, *period, e);
    if (code == PAWL_OK && options->list.backward == PLAN_SELECTIVE)
        code = exact_check(plan, m->costs, m->staggered, period, NULL, e);
    plan_route_free(route);
    if (code == PAWL_OK)
        *out = plan;
    else
        ir_plan_free(plan);
    return code;
}

/* ---- from a plan ---- */

struct placed { /* an operation of a class in the seed */
    int64_t start;
    uint32_t worker;
};

static int compare_placed(const void *left, const void *right) {
    const struct placed *a = left, *b = right;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return a->worker < b->worker ? -1 : a->worker > b->worker;
}

static uint32_t task_of(const struct exact_model *m, const struct ir_instruction *in) {
    uint32_t first = m->cells[plan_route_cell(m->route, in->home, in->chunk, in->microbatch)].task;
    return in->op == IR_F ? first : in->op == IR_W ? first + 2 : first + 1;
}

static uint32_t end_task(const struct exact_model *m, uint32_t worker, const struct ir_instruction *in) {
    for (uint32_t t = m->cell_count * exact_ops(m); t < m->task_count; t++)
        if (m->tasks[t].worker == worker && m->tasks[t].op == in->op && m->tasks[t].chunk == in->chunk)
            return t;
    return EXACT_NONE;
}

/* False: the model has no such task. */
static bool place(const struct exact_model *m, uint32_t worker, const struct ir_instruction *in,
                  uint64_t at_ticks, struct exact_schedule *out) {
    int64_t start = exact_units(m, at_ticks);
    uint32_t task;
    switch (in->op) {
    case IR_R:
    case IR_S:
        task = end_task(m, worker, in);
        break;
    case IR_F:
        task = task_of(m, in);
        break;
    case IR_I:
    case IR_W:
        if (m->fused) return false;
        task = task_of(m, in);
        break;
    case IR_B:
        task = task_of(m, in);
        if (!m->fused) out->start[task + 1] = start + exact_duration_on(m, worker, in->chunk, IR_I);
        break;
    default:
        return false;
    }
    if (task == EXACT_NONE) return false;
    out->start[task] = start;
    if (in->op == IR_F) out->worker[m->tasks[task].cell] = worker;
    return true;
}

/* The k-th of every operation to the k-th job of the class; free cells take their worker along, and only
 * their forwards' order is decided, so that a class with free cells is left as it is. */
static void sort_class(const struct exact_model *m, const uint32_t *cells, uint32_t count,
                       struct placed *scratch, struct exact_schedule *s) {
    for (uint32_t k = 0; k < exact_ops(m); k++) {
        for (uint32_t i = 0; i < count; i++)
            scratch[i] = (struct placed){s->start[m->cells[cells[i]].task + k], 0};
        qsort(scratch, count, sizeof *scratch, compare_placed);
        for (uint32_t i = 0; i < count; i++) s->start[m->cells[cells[i]].task + k] = scratch[i].start;
    }
}

static pawl_code sort_classes(const struct exact_model *m, struct exact_schedule *s, struct pawl_error *e) {
    uint32_t *cells = calloc(m->cell_count, sizeof *cells);
    struct placed *scratch = calloc(m->cell_count, sizeof *scratch);
    pawl_code code = PAWL_OK;
    if (cells == NULL || scratch == NULL) code = error_set(e, PAWL_MEMORY, 0, "exact plan: no memory");
    for (uint32_t lead = 0; code == PAWL_OK && lead < m->cell_count; lead++) {
        if (m->cells[lead].number != 0) continue;
        uint32_t count = 0;
        for (uint32_t other = 0; other < m->cell_count; other++) {
            const struct exact_cell *a = &m->cells[lead], *b = &m->cells[other];
            if (a->class != b->class || m->tasks[a->task].chunk != m->tasks[b->task].chunk) continue;
            cells[b->number] = other;
            count++;
        }
        sort_class(m, cells, count, scratch, s);
    }
    free(cells);
    free(scratch);
    return code;
}

struct release { /* a cell's I and W on one worker */
    int64_t input;
    uint32_t task;
};

static int compare_release(const void *left, const void *right) {
    const struct release *a = left, *b = right;
    if (a->input != b->input) return a->input < b->input ? -1 : 1;
    return a->task < b->task ? -1 : a->task > b->task;
}

/* W of a worker's cells of one chunk in the order of their I. */
static void sort_releases(const struct exact_model *m, uint32_t worker, uint32_t chunk, struct release *list,
                          struct placed *weights, struct exact_schedule *s) {
    uint32_t count = 0;
    for (uint32_t cell = 0; cell < m->cell_count; cell++) {
        uint32_t task = m->cells[cell].task + 1;
        if (s->worker[cell] != worker || m->tasks[task].chunk != chunk) continue;
        list[count] = (struct release){s->start[task], task};
        weights[count++] = (struct placed){s->start[task + 1], 0};
    }
    qsort(list, count, sizeof *list, compare_release);
    qsort(weights, count, sizeof *weights, compare_placed);
    for (uint32_t i = 0; i < count; i++) s->start[list[i].task + 1] = weights[i].start;
}

static pawl_code sort_weights(const struct exact_model *m, struct exact_schedule *s, struct pawl_error *e) {
    struct release *list = calloc(m->cell_count, sizeof *list);
    struct placed *weights = calloc(m->cell_count, sizeof *weights);
    pawl_code code = PAWL_OK;
    if (list == NULL || weights == NULL) code = error_set(e, PAWL_MEMORY, 0, "exact plan: no memory");
    for (uint32_t w = 0; code == PAWL_OK && w < m->route->pipelines * m->route->stages; w++)
        for (uint32_t c = 0; c < m->route->chunks; c++) sort_releases(m, w, c, list, weights, s);
    free(list);
    free(weights);
    return code;
}

/* Marks at the first start and the last end of their groups; times from the anchor's begin. */
static void set_marks(const struct exact_model *m, struct exact_schedule *s) {
    int64_t zero = INT64_MAX;
    for (uint32_t t = 0; t < m->task_count; t++)
        if (s->start[t] < zero) zero = s->start[t];
    for (uint32_t t = 0; t < m->task_count; t++) s->start[t] -= zero;
    for (uint32_t g = 0; g < m->group_count; g++) {
        s->start[m->groups[g].first] = INT64_MAX;
        s->start[m->groups[g].last] = 0;
    }
    for (uint32_t i = 0; i < m->arc_count; i++) {
        const struct exact_arc *arc = &m->arcs[i];
        if (arc->from >= m->task_count && s->start[arc->to] < s->start[arc->from])
            s->start[arc->from] = s->start[arc->to];
        if (arc->to >= m->task_count && arc->from < m->task_count) {
            uint32_t worker = worker_of(m, s, arc->from);
            int64_t end = s->start[arc->from] +
                          exact_duration_on(m, worker, m->tasks[arc->from].chunk, m->tasks[arc->from].op);
            if (end > s->start[arc->to]) s->start[arc->to] = end;
        }
    }
}

pawl_code exact_seed(const struct exact_model *m, const struct ir_plan *seed, const struct sim_result *times,
                     struct exact_schedule *out, bool *usable, struct pawl_error *e) {
    pawl_code code = exact_schedule_new(m, out, e);
    if (code != PAWL_OK) return code;
    *usable = true;
    for (uint32_t w = 0; w < seed->pipelines * seed->stages; w++)
        for (uint32_t i = 0; i < seed->workers[w].count; i++)
            *usable = *usable &&
                      place(m, w, &seed->workers[w].instructions[i], times->start[times->first[w] + i], out);
    if (*usable && m->choice_count == 0) code = sort_classes(m, out, e);
    if (code == PAWL_OK && *usable && !m->fused) code = sort_weights(m, out, e);
    if (*usable) set_marks(m, out);
    return code;
}
