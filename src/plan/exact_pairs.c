/* Which tasks arcs leave unordered, and who of them can meet on a worker.
 *
 * Tested in tests/unit/plan_exact_test.c and plan_exact_prune_test.c. */
#include "plan/exact.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* More pairs than this are not looked at: no solver here orders them. */
#define EXACT_PAIRS_MAX 400000u

/* R of a chunk's holders start together: two arcs without length, which order nothing. */
static bool is_tie(const struct exact_model *m, const struct exact_arc *arc) {
    return m->tasks[arc->from].op == IR_R && m->tasks[arc->to].op == IR_R;
}

static bool orders(const struct exact_model *m, const struct exact_arc *arc) {
    return arc->from < m->task_count && arc->to < m->task_count && arc->if_first == EXACT_NONE &&
           !is_tie(m, arc);
}

/* Kahn's order; `queue` becomes the tasks in it. */
static bool sort_tasks(const struct exact_model *m, uint32_t *queue, uint32_t *waits) {
    uint32_t head = 0, tail = 0;
    for (uint32_t i = 0; i < m->arc_count; i++)
        if (orders(m, &m->arcs[i])) waits[m->arcs[i].to]++;
    for (uint32_t t = 0; t < m->task_count; t++)
        if (waits[t] == 0) queue[tail++] = t;
    while (head < tail) {
        uint32_t t = queue[head];
        m->topology[t] = head++;
        for (uint32_t i = 0; i < m->arc_count; i++)
            if (orders(m, &m->arcs[i]) && m->arcs[i].from == t && --waits[m->arcs[i].to] == 0)
                queue[tail++] = m->arcs[i].to;
    }
    return tail == m->task_count;
}

static void mark_reach(const struct exact_model *m, const uint32_t *queue) {
    for (uint32_t k = m->task_count; k-- > 0;) {
        uint64_t *row = &m->reach[(uint64_t)queue[k] * m->reach_words];
        for (uint32_t i = 0; i < m->arc_count; i++) {
            const struct exact_arc *arc = &m->arcs[i];
            if (!orders(m, arc) || arc->from != queue[k]) continue;
            row[arc->to / 64] |= (uint64_t)1 << (arc->to % 64);
            for (uint32_t w = 0; w < m->reach_words; w++)
                row[w] |= m->reach[(uint64_t)arc->to * m->reach_words + w];
        }
    }
}

/* Groups' first marks, then the tasks by rank, then the last marks. */
static uint32_t rank_of(const struct exact_model *m, uint32_t node) {
    if (node < m->task_count) return 1 + m->topology[node];
    return (node - m->task_count) % 2 == 0 ? 0 : m->task_count + 1;
}

/* By the rank of where they begin, so that one sweep over them mostly suffices. A stable counting sort. */
static pawl_code sort_arcs(struct exact_model *m, struct pawl_error *e) {
    uint32_t *place = calloc((size_t)m->task_count + 3, sizeof *place);
    struct exact_arc *sorted = malloc((size_t)m->arc_count * sizeof *sorted + 1);
    if (place == NULL || sorted == NULL) {
        free(place);
        free(sorted);
        return error_set(e, PAWL_MEMORY, 0, "exact plan: no memory for %u arcs", m->arc_count);
    }
    for (uint32_t i = 0; i < m->arc_count; i++) place[rank_of(m, m->arcs[i].from) + 1]++;
    for (uint32_t r = 0; r < m->task_count + 2; r++) place[r + 1] += place[r];
    for (uint32_t i = 0; i < m->arc_count; i++) sorted[place[rank_of(m, m->arcs[i].from)]++] = m->arcs[i];
    free(place);
    free(m->arcs);
    m->arcs = sorted;
    m->arc_room = m->arc_count;
    return PAWL_OK;
}

/* ---- pairs ---- */

static pawl_code grow(void **array, uint32_t count, uint32_t *room, size_t size, struct pawl_error *e) {
    if (count >= *room && count >= EXACT_PAIRS_MAX)
        return error_set(e, PAWL_UNSUPPORTED, 0,
                         "exact plan: more than %u pairs of tasks to order are too many to prove anything",
                         EXACT_PAIRS_MAX);
    return exact_grow(array, count, room, size, e);
}

/* W of equal cells go in the order of their I: the pair of the I, if there is one. */
static uint32_t pair_of_inputs(const struct exact_model *m, uint32_t a, uint32_t b) {
    if (m->tasks[a].op != IR_W || m->tasks[b].op != IR_W || m->tasks[a].chunk != m->tasks[b].chunk)
        return EXACT_NONE;
    return m->pair_of[(uint64_t)(a - 1) * m->task_count + b - 1];
}

/* Index of the pair a < b; made when it is new. */
static pawl_code find_pair(struct exact_model *m, uint32_t a, uint32_t b, uint32_t *out,
                           struct pawl_error *e) {
    uint32_t *at = &m->pair_of[(uint64_t)a * m->task_count + b];
    if (*at == EXACT_NONE) {
        pawl_code code = grow((void **)&m->pairs, m->pair_count, &m->pair_room, sizeof *m->pairs, e);
        if (code != PAWL_OK) return code;
        uint32_t inputs = pair_of_inputs(m, a, b);
        uint32_t literal = inputs == EXACT_NONE ? m->literal_count++ : m->pairs[inputs].literal;
        m->pairs[m->pair_count] = (struct exact_pair){a, b, literal};
        *at = m->pair_count++;
    }
    *out = *at;
    return PAWL_OK;
}

static pawl_code meet(struct exact_model *m, uint32_t worker, uint32_t a, uint32_t b, struct pawl_error *e) {
    struct exact_shared s = {0};
    if (!exact_may_run_on(m, a, worker, &s.if_a) || !exact_may_run_on(m, b, worker, &s.if_b)) return PAWL_OK;
    if (exact_before(m, a, b) || exact_before(m, b, a)) return PAWL_OK;
    pawl_code code = find_pair(m, a, b, &s.pair, e);
    if (code == PAWL_OK)
        code = grow((void **)&m->shared, m->shared_count, &m->shared_room, sizeof *m->shared, e);
    if (code != PAWL_OK) return code;
    s.a_length = exact_duration_on(m, worker, m->tasks[a].chunk, m->tasks[a].op);
    s.b_length = exact_duration_on(m, worker, m->tasks[b].chunk, m->tasks[b].op);
    m->shared[m->shared_count++] = s;
    return PAWL_OK;
}

static pawl_code find_pairs(struct exact_model *m, struct pawl_error *e) {
    for (uint32_t w = 0; w < m->route->pipelines * m->route->stages; w++) {
        for (uint32_t a = 0; a < m->task_count; a++) {
            uint32_t choice;
            if (!exact_may_run_on(m, a, w, &choice)) continue;
            for (uint32_t b = a + 1; b < m->task_count; b++) {
                pawl_code code = meet(m, w, a, b, e);
                if (code != PAWL_OK) return code;
            }
        }
    }
    return PAWL_OK;
}

enum exact_known exact_order(const struct exact_model *m, uint32_t a, uint32_t b, uint32_t *literal) {
    if (exact_before(m, a, b)) return EXACT_YES;
    if (exact_before(m, b, a)) return EXACT_NO;
    uint32_t low = a < b ? a : b, high = a < b ? b : a;
    uint32_t pair = m->pair_of[(uint64_t)low * m->task_count + high];
    if (pair == EXACT_NONE) return EXACT_UNKNOWN;
    *literal = m->pairs[pair].literal;
    return a < b ? EXACT_LITERAL : EXACT_NEGATED;
}

pawl_code exact_pairs(struct exact_model *m, struct pawl_error *e) {
    size_t square = (size_t)m->task_count * m->task_count;
    m->reach_words = (m->task_count + 63) / 64;
    m->topology = calloc(m->task_count, sizeof *m->topology);
    m->reach = calloc((size_t)m->task_count * m->reach_words, sizeof *m->reach);
    m->pair_of = malloc(square * sizeof *m->pair_of);
    uint32_t *queue = calloc(m->task_count, sizeof *queue), *waits = calloc(m->task_count, sizeof *waits);
    pawl_code code = PAWL_OK;
    if (m->topology == NULL || m->reach == NULL || m->pair_of == NULL || queue == NULL || waits == NULL)
        code = error_set(e, PAWL_MEMORY, 0, "exact plan: no memory for the pairs of %u tasks", m->task_count);
    else if (!sort_tasks(m, queue, waits))
        code = error_set(e, PAWL_INTERNAL, 0, "exact plan: the arcs of the model are cyclic");
    if (code == PAWL_OK) {
        mark_reach(m, queue);
        memset(m->pair_of, 0xff, square * sizeof *m->pair_of);
        code = find_pairs(m, e);
    }
    if (code == PAWL_OK) code = sort_arcs(m, e);
    free(queue);
    free(waits);
    return code;
}
