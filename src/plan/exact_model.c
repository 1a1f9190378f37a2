/* From a route and its costs to tasks, arcs and groups (exact.h says what they are and why nothing is lost).
 *
 * exact_memory.c adds what the limits mean, exact_pairs.c the pairs that remain to be ordered. Sizes are
 * limited: a solver has no use for more, and the table of pairs grows with the square.
 * Tested in tests/unit/plan_exact_test.c and plan_exact_prune_test.c. */
#include "plan/exact.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* 2,500 squared entries of 4 bytes: 25 MB. 4 stages x 8 micro-batches are about 100 tasks. */
#define EXACT_TASKS_MAX 2500u
/* Units must stay exact in a double (CBC) with room for sums of a few. */
#define EXACT_UNITS_MAX ((int64_t)1 << 50)

pawl_code exact_grow(void **array, uint32_t count, uint32_t *room, size_t size, struct pawl_error *e) {
    if (count < *room) return PAWL_OK;
    uint32_t more = *room < 256 ? 256 : *room * 2;
    void *bigger = realloc(*array, more * size);
    if (bigger == NULL)
        return error_set(e, PAWL_MEMORY, 0, "exact plan: no memory for %u arcs, pairs or limits", more);
    *array = bigger;
    *room = more;
    return PAWL_OK;
}

pawl_code exact_arc_add(struct exact_model *m, struct exact_arc arc, struct pawl_error *e) {
    pawl_code code = exact_grow((void **)&m->arcs, m->arc_count, &m->arc_room, sizeof *m->arcs, e);
    if (code == PAWL_OK) m->arcs[m->arc_count++] = arc;
    return code;
}

static uint64_t gcd(uint64_t a, uint64_t b) {
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static uint32_t chunk_position(const struct plan_route *route, uint32_t chunk) {
    return route->stage_of == NULL ? chunk : route->stage_of[chunk];
}

static bool cell_is_orphan(const struct plan_route *route, uint32_t home, uint32_t chunk) {
    return !route->alive[(uint64_t)home * route->stages + chunk_position(route, chunk)];
}

/* ---- sizes and time ---- */

static pawl_code check_shape(const struct plan_route *route, const struct sim_costs *costs,
                             struct pawl_error *e) {
    if (route->pipelines != costs->pipelines || route->stages != costs->stages ||
        route->chunks != costs->chunks)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "exact plan: costs of %u x %u workers and %u chunks for a route of %u x %u and %u",
                         costs->pipelines, costs->stages, costs->chunks, route->pipelines, route->stages,
                         route->chunks);
    uint64_t cells = (uint64_t)route->pipelines * route->chunks * route->microbatches;
    if (route->total != route->pipelines * route->microbatches)
        return error_set(e, PAWL_UNSUPPORTED, 0,
                         "exact: %u micro-batches do not fill %u pipelines of %u: only full ones are solved",
                         route->total, route->pipelines, route->microbatches);
    if (cells * 3 > EXACT_TASKS_MAX)
        return error_set(e, PAWL_UNSUPPORTED, 0,
                         "exact plan: %llu tasks are too many to prove anything, at most %u",
                         (unsigned long long)(cells * 3), EXACT_TASKS_MAX);
    for (uint64_t i = 0; i < cells; i++) {
        uint32_t host = route->host[i];
        if (host < route->pipelines * route->stages && route->alive[host]) continue;
        return error_set(e, PAWL_ARGUMENT, 0, "exact plan: cell %llu of the route has no live host",
                         (unsigned long long)i);
    }
    return sim_costs_check(costs, route->microbatches, e);
}

static void divide_by(uint64_t *divisor, uint64_t *sum, uint64_t ticks, uint64_t times) {
    *divisor = gcd(*divisor, ticks);
    *sum += ticks * times;
}

/* The divisor of all times, and a horizon: no path is longer than all durations and transfers in a row. */
static pawl_code measure_time(struct exact_model *m, const struct ir_plan *holders, struct pawl_error *e) {
    const enum ir_op ops[] = {IR_F, IR_I, IR_W, IR_B, IR_R, IR_S};
    uint64_t divisor = 0, sum = 0;
    uint64_t jobs = (uint64_t)m->route->pipelines * m->route->microbatches;
    for (uint32_t w = 0; w < m->route->pipelines * m->route->stages; w++) {
        for (uint32_t i = 0; i < holders->workers[w].hold_count; i++)
            for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
                divide_by(&divisor, &sum, sim_duration(m->costs, w, holders->workers[w].holds[i], ops[o]),
                          jobs);
    }
    for (uint32_t c = 0; c < m->route->chunks; c++) {
        divide_by(&divisor, &sum, m->costs->chunk[c].send_forward, jobs);
        divide_by(&divisor, &sum, m->costs->chunk[c].send_backward, jobs);
    }
    m->divisor = divisor == 0 ? 1 : divisor;
    uint64_t units = sum / m->divisor + 1;
    if (units >= (uint64_t)EXACT_UNITS_MAX / m->scale)
        return error_set(e, PAWL_UNSUPPORTED, 0,
                         "exact plan: times sum up to %llu units, at most %lld; give rounder numbers",
                         (unsigned long long)units, (long long)(EXACT_UNITS_MAX / m->scale));
    m->horizon = (int64_t)units * m->scale;
    return PAWL_OK;
}

int64_t exact_duration_on(const struct exact_model *m, uint32_t worker, uint32_t chunk, enum ir_op op) {
    return (int64_t)(sim_duration(m->costs, worker, chunk, op) / m->divisor * m->scale);
}

bool exact_may_run_on(const struct exact_model *m, uint32_t task, uint32_t worker, uint32_t *choice) {
    *choice = EXACT_NONE;
    if (m->tasks[task].worker != EXACT_NONE) return m->tasks[task].worker == worker;
    const struct exact_cell *cell = &m->cells[m->tasks[task].cell];
    for (uint32_t i = cell->choice_first; i < cell->choice_first + cell->choice_count; i++) {
        if (m->choices[i].worker != worker) continue;
        *choice = i;
        return true;
    }
    return false;
}

static int64_t lag_of(const struct exact_model *m, uint64_t ticks) {
    return (int64_t)(ticks / m->divisor * m->scale);
}

/* ---- cells and tasks ---- */

static enum ir_op cell_op(const struct exact_model *m, uint32_t k) {
    static const enum ir_op split[] = {IR_F, IR_I, IR_W};
    return m->fused && k == 1 ? IR_B : split[k];
}

/* Live workers of the position where the orphan's home would be. */
static void add_choices(struct exact_model *m, uint32_t cell, uint32_t chunk) {
    const struct plan_route *r = m->route;
    m->cells[cell].choice_first = m->choice_count;
    for (uint32_t p = 0; p < r->pipelines; p++) {
        uint32_t worker = p * r->stages + chunk_position(r, chunk);
        if (!r->alive[worker]) continue;
        m->choices[m->choice_count++] = (struct exact_choice){cell, worker};
    }
    m->cells[cell].choice_count = m->choice_count - m->cells[cell].choice_first;
    if (m->cells[cell].choice_count == 1) { /* nothing to choose */
        m->choice_count--;
        m->cells[cell].choice_count = 0;
    }
}

static void add_cell(struct exact_model *m, uint32_t home, uint32_t chunk, uint32_t microbatch) {
    uint32_t cell = (uint32_t)plan_route_cell(m->route, home, chunk, microbatch);
    const struct sim_chunk *costs = &m->costs->chunk[chunk];
    m->cells[cell] =
        (struct exact_cell){.task = m->task_count, .full = costs->full, .after = costs->after_input};
    if (m->fused) m->cells[cell].after = costs->full;
    if (m->free_route && cell_is_orphan(m->route, home, chunk)) add_choices(m, cell, chunk);
    bool is_free = m->cells[cell].choice_count > 0;
    for (uint32_t k = 0; k < exact_ops(m); k++) {
        struct exact_task task = {.op = cell_op(m, k),
                                  .chunk = chunk,
                                  .home = home,
                                  .microbatch = microbatch,
                                  .worker = is_free ? EXACT_NONE : m->route->host[cell],
                                  .cell = cell};
        task.duration = INT64_MAX;
        for (uint32_t i = 0; i < m->cells[cell].choice_count; i++) {
            uint32_t worker = m->choices[m->cells[cell].choice_first + i].worker;
            int64_t duration = exact_duration_on(m, worker, chunk, task.op);
            if (duration < task.duration) task.duration = duration;
        }
        if (!is_free) task.duration = exact_duration_on(m, task.worker, chunk, task.op);
        m->tasks[m->task_count++] = task;
    }
}

static void add_ends(struct exact_model *m, const struct ir_plan *holders) {
    for (uint32_t w = 0; w < m->route->pipelines * m->route->stages; w++) {
        for (uint32_t i = 0; i < holders->workers[w].hold_count; i++) {
            uint32_t chunk = holders->workers[w].holds[i];
            for (enum ir_op op = IR_R; op <= IR_S; op++)
                m->tasks[m->task_count++] =
                    (struct exact_task){.op = op,
                                        .chunk = chunk,
                                        .home = EXACT_NONE,
                                        .microbatch = EXACT_NONE,
                                        .worker = w,
                                        .cell = EXACT_NONE,
                                        .duration = exact_duration_on(m, w, chunk, op)};
        }
    }
}

/* ---- arcs ---- */

/* From a task to another at `lag` beyond its duration, whoever executes them. Free cells: one arc for each
 * choice; two free cells: for each two. */
static pawl_code add_link(struct exact_model *m, uint32_t from, uint32_t to, uint64_t lag,
                          struct pawl_error *e) {
    const struct exact_task *a = &m->tasks[from], *b = &m->tasks[to];
    bool a_free = a->worker == EXACT_NONE, b_free = b->worker == EXACT_NONE;
    const struct exact_cell *ca = a_free ? &m->cells[a->cell] : NULL,
                            *cb = b_free ? &m->cells[b->cell] : NULL;
    /* The least that holds for all choices, so that the arc orders the tasks in any case. */
    pawl_code code = PAWL_OK;
    if (a_free || b_free)
        code = exact_arc_add(m, (struct exact_arc){from, to, a->duration, EXACT_NONE, EXACT_NONE}, e);
    for (uint32_t i = 0; code == PAWL_OK && i < (a_free ? ca->choice_count : 1); i++) {
        for (uint32_t k = 0; code == PAWL_OK && k < (b_free ? cb->choice_count : 1); k++) {
            uint32_t ia = a_free ? ca->choice_first + i : EXACT_NONE;
            uint32_t ib = b_free && a->cell != b->cell ? cb->choice_first + k : EXACT_NONE;
            if (a->cell == b->cell && k > 0) continue;
            uint32_t wa = a_free ? m->choices[ia].worker : a->worker;
            uint32_t wb = ib != EXACT_NONE ? m->choices[ib].worker : b_free ? wa : b->worker;
            int64_t length = exact_duration_on(m, wa, a->chunk, a->op) + (wa == wb ? 0 : lag_of(m, lag));
            code = exact_arc_add(m, (struct exact_arc){from, to, length, ia, ib}, e);
        }
    }
    return code;
}

static pawl_code link_cell(struct exact_model *m, uint32_t cell, struct pawl_error *e) {
    const struct exact_task *f = &m->tasks[m->cells[cell].task];
    uint32_t first = m->cells[cell].task;
    pawl_code code = PAWL_OK;
    if (f->chunk + 1 < m->route->chunks) {
        uint32_t next = m->cells[plan_route_cell(m->route, f->home, f->chunk + 1, f->microbatch)].task;
        code = add_link(m, first, next, m->costs->chunk[f->chunk].send_forward, e);
        if (code == PAWL_OK)
            code = add_link(m, next + 1, first + 1, m->costs->chunk[f->chunk + 1].send_backward, e);
    } else {
        code = add_link(m, first, first + 1, 0, e);
    }
    if (code == PAWL_OK && !m->fused) code = add_link(m, first + 1, first + 2, 0, e);
    return code;
}

/* The last of a cell's tasks precedes R of whoever executes it. */
static pawl_code link_end(struct exact_model *m, uint32_t r, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t cell = 0; code == PAWL_OK && cell < m->cell_count; cell++) {
        uint32_t last = m->cells[cell].task + exact_ops(m) - 1;
        if (m->tasks[last].chunk != m->tasks[r].chunk) continue;
        if (m->tasks[last].worker == m->tasks[r].worker)
            code = exact_arc_add(
                m, (struct exact_arc){last, r, m->tasks[last].duration, EXACT_NONE, EXACT_NONE}, e);
        for (uint32_t i = 0; code == PAWL_OK && i < m->cells[cell].choice_count; i++) {
            uint32_t choice = m->cells[cell].choice_first + i, worker = m->choices[choice].worker;
            /* R starts at the same time on all holders, so that it waits for all cells of the chunk. */
            int64_t length = exact_duration_on(m, worker, m->tasks[last].chunk, m->tasks[last].op);
            if (worker == m->tasks[r].worker)
                code = exact_arc_add(m, (struct exact_arc){last, r, length, choice, EXACT_NONE}, e);
        }
    }
    return code;
}

/* R of all holders of a chunk starts when the last is there; S follows. */
static pawl_code link_ends(struct exact_model *m, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    uint32_t first = m->cell_count * exact_ops(m);
    for (uint32_t r = first; code == PAWL_OK && r < m->task_count; r += 2) {
        code = link_end(m, r, e);
        if (code == PAWL_OK)
            code = exact_arc_add(
                m, (struct exact_arc){r, r + 1, m->tasks[r].duration, EXACT_NONE, EXACT_NONE}, e);
        uint32_t other = first;
        while (m->tasks[other].chunk != m->tasks[r].chunk) other += 2;
        if (other == r) continue;
        if (code == PAWL_OK)
            code = exact_arc_add(m, (struct exact_arc){other, r, 0, EXACT_NONE, EXACT_NONE}, e);
        if (code == PAWL_OK)
            code = exact_arc_add(m, (struct exact_arc){r, other, 0, EXACT_NONE, EXACT_NONE}, e);
    }
    return code;
}

/* ---- classes ---- */

/* The same workers at every chunk; free cells count as the same. */
static bool same_hosts(const struct exact_model *m, uint32_t home, uint32_t number, uint32_t home2,
                       uint32_t number2) {
    for (uint32_t c = 0; c < m->route->chunks; c++) {
        uint32_t a = (uint32_t)plan_route_cell(m->route, home, c, number);
        uint32_t b = (uint32_t)plan_route_cell(m->route, home2, c, number2);
        bool is_free = m->cells[a].choice_count > 0;
        if (is_free != (m->cells[b].choice_count > 0)) return false;
        if (is_free && chunk_position(m->route, c) == EXACT_NONE) return false;
        if (!is_free && m->route->host[a] != m->route->host[b]) return false;
    }
    return true;
}

static void set_class(struct exact_model *m, uint32_t job, uint32_t class, uint32_t number) {
    for (uint32_t c = 0; c < m->route->chunks; c++) {
        uint64_t cell =
            plan_route_cell(m->route, job / m->route->microbatches, c, job % m->route->microbatches);
        m->cells[cell].class = class;
        m->cells[cell].number = number;
    }
}

static uint32_t job_cell(const struct exact_model *m, uint32_t job, uint32_t chunk) {
    return (uint32_t)plan_route_cell(m->route, job / m->route->microbatches, chunk,
                                     job % m->route->microbatches);
}

/* Everything of `before` comes before the same of `after`. Where chunks are free: forwards up to the first of
 * them in any case; the rest if the hosts are the same, which is said for one free chunk (more: not needed
 * for the result, and not said). Number the jobs by the last forward before the free chunk: that leaves
 * both statements without loss, by the argument of exact.h within jobs of the same choice. */
static pawl_code link_jobs(struct exact_model *m, uint32_t before, uint32_t after, bool adjacent,
                           struct pawl_error *e) {
    uint32_t free_count = 0, free_chunk = m->route->chunks;
    for (uint32_t c = m->route->chunks; c-- > 0;) {
        if (m->cells[job_cell(m, before, c)].choice_count == 0) continue;
        free_chunk = c;
        free_count++;
    }
    if (!adjacent && free_count != 1) return PAWL_OK;
    pawl_code code = PAWL_OK;
    for (uint32_t c = 0; code == PAWL_OK && c < m->route->chunks; c++) {
        const struct exact_cell *a = &m->cells[job_cell(m, before, c)], *b = &m->cells[job_cell(m, after, c)];
        for (uint32_t k = 0; code == PAWL_OK && k < exact_ops(m); k++) {
            uint32_t from = a->task + k, to = b->task + k;
            int64_t length = m->tasks[from].duration;
            if (free_count == 0 || (k == 0 && c < free_chunk)) {
                if (adjacent)
                    code = exact_arc_add(m, (struct exact_arc){from, to, length, EXACT_NONE, EXACT_NONE}, e);
                continue;
            }
            if (free_count != 1) continue;
            const struct exact_cell *fa = &m->cells[job_cell(m, before, free_chunk)];
            const struct exact_cell *fb = &m->cells[job_cell(m, after, free_chunk)];
            for (uint32_t i = 0; code == PAWL_OK && i < fa->choice_count; i++) {
                int64_t on = c == free_chunk ? exact_duration_on(m, m->choices[fa->choice_first + i].worker,
                                                                 c, m->tasks[from].op)
                                             : length;
                code = exact_arc_add(
                    m, (struct exact_arc){from, to, on, fa->choice_first + i, fb->choice_first + i}, e);
            }
        }
    }
    return code;
}

static pawl_code link_classes(struct exact_model *m, struct pawl_error *e) {
    uint32_t jobs = m->route->pipelines * m->route->microbatches, classes = 0;
    uint32_t *members = calloc(jobs, sizeof *members);
    bool *done = calloc(jobs, sizeof *done);
    pawl_code code =
        members == NULL || done == NULL ? error_set(e, PAWL_MEMORY, 0, "exact plan: no memory") : PAWL_OK;
    for (uint32_t job = 0; code == PAWL_OK && job < jobs; job++) {
        if (done[job]) continue;
        uint32_t count = 0, micro = m->route->microbatches;
        for (uint32_t other = job; code == PAWL_OK && other < jobs; other++) {
            if (done[other] || !same_hosts(m, job / micro, job % micro, other / micro, other % micro))
                continue;
            done[other] = true;
            set_class(m, other, classes, count);
            for (uint32_t i = 0; code == PAWL_OK && i < count; i++)
                code = link_jobs(m, members[i], other, i + 1 == count, e);
            members[count++] = other;
        }
        classes++;
    }
    free(members);
    free(done);
    return code;
}

/* ---- groups ---- */

/* The stage all of whose workers hold the chunk alone, or EXACT_NONE: workers of several stages do. */
static uint32_t stage_that_holds(const struct ir_plan *holders, uint32_t chunk) {
    uint32_t stage = EXACT_NONE;
    for (uint32_t w = 0; w < holders->pipelines * holders->stages; w++) {
        if (!ir_plan_holds(holders, w, chunk)) continue;
        if (stage != EXACT_NONE && stage != w % holders->stages) return EXACT_NONE;
        stage = w % holders->stages;
    }
    return stage;
}

/* A barrier: everything. Staggered: every stage's workers, and every chunk that several stages hold. */
static void find_groups(struct exact_model *m, const struct ir_plan *holders) {
    if (!m->staggered) {
        m->groups[m->group_count++] = (struct exact_group){.stage = EXACT_NONE, .chunk = EXACT_NONE};
        return;
    }
    for (uint32_t s = 0; s < m->route->stages; s++)
        m->groups[m->group_count++] = (struct exact_group){.stage = s, .chunk = EXACT_NONE};
    m->anchor = stage_that_holds(holders, 0);
    for (uint32_t c = 0; c < m->route->chunks; c++) {
        if (stage_that_holds(holders, c) != EXACT_NONE) continue;
        if (c == 0) m->anchor = m->group_count;
        m->groups[m->group_count++] = (struct exact_group){.stage = EXACT_NONE, .chunk = c};
    }
}

static bool in_group(const struct exact_model *m, const struct exact_group *group, uint32_t task) {
    const struct exact_task *t = &m->tasks[task];
    if (group->chunk != EXACT_NONE) return t->chunk == group->chunk;
    if (group->stage == EXACT_NONE) return true;
    uint32_t worker = t->worker != EXACT_NONE ? t->worker : m->choices[m->cells[t->cell].choice_first].worker;
    return worker % m->route->stages == group->stage; /* all choices are of one stage */
}

static pawl_code link_groups(struct exact_model *m, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t g = 0; code == PAWL_OK && g < m->group_count; g++) {
        m->groups[g].first = m->node_count;
        m->groups[g].last = m->node_count + 1;
        m->node_count += 2;
        for (uint32_t t = 0; code == PAWL_OK && t < m->task_count; t++) {
            if (!in_group(m, &m->groups[g], t)) continue;
            code = exact_arc_add(m, (struct exact_arc){m->groups[g].first, t, 0, EXACT_NONE, EXACT_NONE}, e);
            if (code == PAWL_OK)
                code = exact_arc_add(
                    m, (struct exact_arc){t, m->groups[g].last, m->tasks[t].duration, EXACT_NONE, EXACT_NONE},
                    e);
            const struct exact_cell *cell =
                m->tasks[t].worker == EXACT_NONE ? &m->cells[m->tasks[t].cell] : NULL;
            for (uint32_t i = 0; code == PAWL_OK && cell != NULL && i < cell->choice_count; i++) {
                uint32_t worker = m->choices[cell->choice_first + i].worker;
                int64_t length = exact_duration_on(m, worker, m->tasks[t].chunk, m->tasks[t].op);
                if (length > m->tasks[t].duration)
                    code = exact_arc_add(
                        m,
                        (struct exact_arc){t, m->groups[g].last, length, cell->choice_first + i, EXACT_NONE},
                        e);
            }
        }
    }
    return code;
}

/* ---- making ---- */

static pawl_code allocate(struct exact_model *m, const struct ir_plan *holders, struct pawl_error *e) {
    const struct plan_route *r = m->route;
    uint64_t tasks = (uint64_t)m->cell_count * exact_ops(m);
    for (uint32_t w = 0; w < r->pipelines * r->stages; w++)
        tasks += 2 * (uint64_t)holders->workers[w].hold_count;
    m->tasks = calloc(tasks, sizeof *m->tasks);
    m->cells = calloc(m->cell_count, sizeof *m->cells);
    m->choices = calloc((uint64_t)m->cell_count * r->pipelines, sizeof *m->choices);
    m->stores = calloc((uint64_t)r->pipelines * r->stages, sizeof *m->stores);
    if (m->tasks == NULL || m->cells == NULL || m->choices == NULL || m->stores == NULL)
        return error_set(e, PAWL_MEMORY, 0, "exact plan: no memory for %llu tasks",
                         (unsigned long long)tasks);
    return PAWL_OK;
}

static pawl_code build(struct exact_model *m, const struct ir_plan *holders, struct pawl_error *e) {
    const struct plan_route *r = m->route;
    m->cell_count = r->pipelines * r->chunks * r->microbatches;
    m->groups = calloc((size_t)r->stages + r->chunks, sizeof *m->groups);
    if (m->groups == NULL) return error_set(e, PAWL_MEMORY, 0, "exact plan: no memory");
    find_groups(m, holders);
    m->scale = 1;
    for (uint32_t q = 2; q <= m->group_count && q <= EXACT_RATIO_MAX; q++)
        m->scale *= q / (uint32_t)gcd(m->scale, q);
    pawl_code code = measure_time(m, holders, e);
    if (code == PAWL_OK) code = allocate(m, holders, e);
    if (code != PAWL_OK) return code;
    for (uint32_t h = 0; h < r->pipelines; h++)
        for (uint32_t c = 0; c < r->chunks; c++)
            for (uint32_t i = 0; i < r->microbatches; i++) add_cell(m, h, c, i);
    add_ends(m, holders);
    m->node_count = m->task_count;
    for (uint32_t cell = 0; code == PAWL_OK && cell < m->cell_count; cell++) code = link_cell(m, cell, e);
    if (code == PAWL_OK) code = link_ends(m, e);
    if (code == PAWL_OK) code = link_classes(m, e);
    if (code == PAWL_OK) code = link_groups(m, e);
    if (code == PAWL_OK) code = exact_memory(m, e);
    if (code == PAWL_OK) code = exact_pairs(m, e);
    return code;
}

pawl_code exact_model_new(const struct plan_route *route, const struct sim_costs *costs,
                          const struct plan_exact_options *options, struct exact_model **out,
                          struct pawl_error *e) {
    *out = NULL;
    pawl_code code = check_shape(route, costs, e);
    if (code != PAWL_OK) return code;
    struct ir_plan *holders = NULL;
    struct exact_model *m = calloc(1, sizeof *m);
    if (m == NULL) return error_set(e, PAWL_MEMORY, 0, "exact plan: no memory");
    *m = (struct exact_model){.route = route,
                              .costs = costs,
                              .staggered = options->list.staggered,
                              .fused = options->list.backward == PLAN_FUSED,
                              .free_route = options->free_route};
    code = plan_route_plan(route, &holders, e);
    if (code == PAWL_OK) code = build(m, holders, e);
    ir_plan_free(holders);
    if (code == PAWL_OK)
        *out = m;
    else
        exact_model_free(m);
    return code;
}

void exact_model_free(struct exact_model *m) {
    if (m == NULL) return;
    for (uint32_t i = 0; m->stores != NULL && i < m->store_count; i++) free(m->stores[i].cells);
    free(m->tasks);
    free(m->cells);
    free(m->arcs);
    free(m->pairs);
    free(m->shared);
    free(m->choices);
    free(m->groups);
    free(m->stores);
    free(m->either);
    free(m->pair_of);
    free(m->reach);
    free(m->topology);
    free(m);
}
