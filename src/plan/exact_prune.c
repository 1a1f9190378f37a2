/* What must hold in every schedule of at most a given period: the windows in which tasks start, and orders.
 *
 * Sweeps until nothing changes: arcs whose choices are made (longest paths; more sweeps than nodes mean a
 * cycle of positive length, hence no schedule), pairs of which only one order fits, edge finding on every
 * worker (a set of tasks that must end by D leaves no room for another before its end, so that one comes
 * after the set; and the mirror image), and memory. Every conclusion is valid for all schedules; some that
 * could be drawn are not.
 * Source: Carlier and Pinson; Vilim, O(n log n) filtering for unary resources (the rule, here in O(n^2)).
 * Tested in tests/unit/plan_exact_prune_test.c. */
#include "plan/exact.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct slot {                    /* a task on a worker, as edge finding sees it */
    int64_t early, late, length; /* start not before, end not after */
    int64_t raised;              /* new early */
    uint32_t task;
};

struct exact_prune {
    const struct exact_model *m;
    struct slot *slots;  /* [tasks] of one worker at a time */
    int64_t *rest, *top; /* [tasks] sums of edge finding */
    uint32_t *first;     /* [workers + 1] into `tasks` */
    uint32_t *tasks;     /* that may run on the worker */
    int64_t period;
    bool changed;
};

pawl_code exact_state_new(const struct exact_model *m, struct exact_state **out, struct pawl_error *e) {
    struct exact_state *s = calloc(1, sizeof *s);
    *out = s;
    if (s != NULL) {
        s->early = calloc((size_t)m->group_count * m->node_count, sizeof *s->early);
        s->late = calloc((size_t)m->group_count * m->node_count, sizeof *s->late);
        s->order = calloc((size_t)m->literal_count + 1, 1);
        s->made = calloc((size_t)m->choice_count + 1, 1);
    }
    if (s == NULL || s->early == NULL || s->late == NULL || s->order == NULL || s->made == NULL) {
        exact_state_free(s);
        *out = NULL;
        return error_set(e, PAWL_MEMORY, 0, "exact plan: no memory for the state of %u tasks", m->task_count);
    }
    for (uint32_t g = 0; g < m->group_count; g++) {
        struct exact_view v = exact_view(m, s, g);
        for (uint32_t n = 0; n < m->node_count; n++) {
            v.early[n] = g == m->anchor ? 0 : -m->horizon;
            v.late[n] = m->horizon;
        }
        v.early[m->groups[g].first] = v.late[m->groups[g].first] = 0;
    }
    return PAWL_OK;
}

void exact_state_copy(const struct exact_model *m, struct exact_state *to, const struct exact_state *from) {
    size_t times = (size_t)m->group_count * m->node_count;
    memcpy(to->early, from->early, times * sizeof *to->early);
    memcpy(to->late, from->late, times * sizeof *to->late);
    memcpy(to->order, from->order, m->literal_count);
    memcpy(to->made, from->made, m->choice_count);
}

void exact_state_free(struct exact_state *s) {
    if (s == NULL) return;
    free(s->early);
    free(s->late);
    free(s->order);
    free(s->made);
    free(s);
}

pawl_code exact_prune_new(const struct exact_model *m, struct exact_prune **out, struct pawl_error *e) {
    struct exact_prune *p = calloc(1, sizeof *p);
    uint32_t workers = m->route->pipelines * m->route->stages;
    *out = p;
    if (p != NULL) {
        p->m = m;
        p->slots = calloc(m->task_count, sizeof *p->slots);
        p->rest = calloc((size_t)m->task_count + 1, sizeof *p->rest);
        p->top = calloc(m->task_count, sizeof *p->top);
        p->first = calloc((size_t)workers + 1, sizeof *p->first);
        p->tasks = calloc((size_t)m->task_count + (size_t)m->choice_count * 3, sizeof *p->tasks);
    }
    if (p == NULL || p->slots == NULL || p->rest == NULL || p->top == NULL || p->first == NULL ||
        p->tasks == NULL) {
        exact_prune_free(p);
        *out = NULL;
        return error_set(e, PAWL_MEMORY, 0, "exact plan: no memory to prune %u tasks", m->task_count);
    }
    uint32_t count = 0, choice;
    for (uint32_t w = 0; w < workers; w++) {
        p->first[w] = count;
        for (uint32_t t = 0; t < m->task_count; t++)
            if (exact_may_run_on(m, t, w, &choice)) p->tasks[count++] = t;
    }
    p->first[workers] = count;
    return PAWL_OK;
}

void exact_prune_free(struct exact_prune *p) {
    if (p == NULL) return;
    free(p->slots);
    free(p->rest);
    free(p->top);
    free(p->first);
    free(p->tasks);
    free(p);
}

/* ---- arcs ---- */

static bool is_made(const struct exact_state *s, uint32_t choice) {
    return choice == EXACT_NONE || s->made[choice] > 0;
}

static bool narrow(const struct exact_view *v, uint32_t from, uint32_t to, int64_t lag, bool *changed) {
    if (v->early[to] < v->early[from] + lag) {
        v->early[to] = v->early[from] + lag;
        *changed = true;
    }
    if (v->late[from] > v->late[to] - lag) {
        v->late[from] = v->late[to] - lag;
        *changed = true;
    }
    return v->early[to] <= v->late[to] && v->early[from] <= v->late[from];
}

static bool sweep_arc(const struct exact_state *s, const struct exact_view *v, const struct exact_arc *arc,
                      bool *changed) {
    if (!is_made(s, arc->if_first) || !is_made(s, arc->if_second)) return true;
    return narrow(v, arc->from, arc->to, arc->lag, changed);
}

/* Orders that are known, where both tasks are on one worker. */
static bool sweep_shared(const struct exact_model *m, const struct exact_state *s, const struct exact_view *v,
                         bool *changed) {
    for (uint32_t i = 0; i < m->shared_count; i++) {
        const struct exact_shared *on = &m->shared[i];
        const struct exact_pair *pair = &m->pairs[on->pair];
        int8_t order = s->order[pair->literal];
        if (order == 0 || !is_made(s, on->if_a) || !is_made(s, on->if_b)) continue;
        bool fits = order > 0 ? narrow(v, pair->a, pair->b, on->a_length, changed)
                              : narrow(v, pair->b, pair->a, on->b_length, changed);
        if (!fits) return false;
    }
    return true;
}

static bool run_arcs(struct exact_prune *p, const struct exact_state *s, const struct exact_view *v) {
    const struct exact_model *m = p->m;
    bool changed = true;
    for (uint32_t sweep = 0; changed; sweep++) {
        if (sweep > m->node_count) return false;
        changed = false;
        for (uint32_t i = 0; i < m->arc_count; i++)
            if (!sweep_arc(s, v, &m->arcs[i], &changed)) return false;
        if (!sweep_shared(m, s, v, &changed)) return false;
        for (uint32_t i = m->arc_count; i-- > 0;)
            if (!sweep_arc(s, v, &m->arcs[i], &changed)) return false;
        for (uint32_t g = 0; g < m->group_count; g++)
            if (!narrow(v, m->groups[g].last, m->groups[g].first, -p->period, &changed)) return false;
        p->changed |= changed;
    }
    return true;
}

/* ---- pairs ---- */

static bool set_order(struct exact_prune *p, struct exact_state *s, uint32_t literal, int8_t order) {
    if (s->order[literal] == order) return true;
    if (s->order[literal] != 0) return false;
    s->order[literal] = order;
    p->changed = true;
    return true;
}

static bool run_pairs(struct exact_prune *p, struct exact_state *s, const struct exact_view *v) {
    for (uint32_t i = 0; i < p->m->shared_count; i++) {
        const struct exact_shared *on = &p->m->shared[i];
        const struct exact_pair *pair = &p->m->pairs[on->pair];
        if (!is_made(s, on->if_a) || !is_made(s, on->if_b)) continue;
        bool a_fits = v->early[pair->a] + on->a_length <= v->late[pair->b];
        bool b_fits = v->early[pair->b] + on->b_length <= v->late[pair->a];
        if (a_fits && b_fits) continue;
        if (!a_fits && !b_fits) return false;
        if (!set_order(p, s, pair->literal, a_fits ? 1 : -1)) return false;
    }
    return true;
}

/* ---- edge finding ---- */

static void sort_slots(struct slot *slots, uint32_t count) { /* nearly sorted already */
    for (uint32_t i = 1; i < count; i++) {
        struct slot moving = slots[i];
        uint32_t at = i;
        for (; at > 0 && slots[at - 1].early > moving.early; at--) slots[at] = slots[at - 1];
        slots[at] = moving;
    }
}

/* The set that must end by `end`: does it, and who comes after it? */
static bool find_edges(struct exact_prune *p, uint32_t count, int64_t end) {
    struct slot *slots = p->slots;
    int64_t done = INT64_MIN / 2; /* earliest end of the set */
    p->rest[count] = 0;
    for (uint32_t i = count; i-- > 0;)
        p->rest[i] = p->rest[i + 1] + (slots[i].late <= end ? slots[i].length : 0);
    for (uint32_t i = 0; i < count; i++) {
        if (slots[i].late <= end && slots[i].early + p->rest[i] > done) done = slots[i].early + p->rest[i];
        p->top[i] = done;
    }
    if (done > end) return false;
    for (uint32_t i = 0; i < count; i++) {
        if (slots[i].late <= end) continue;
        int64_t with = slots[i].early + p->rest[i];
        if (p->top[i] > with) with = p->top[i];
        if (with + slots[i].length > end && done > slots[i].raised) slots[i].raised = done;
    }
    return true;
}

static bool raise_slots(struct exact_prune *p, uint32_t count) {
    sort_slots(p->slots, count);
    for (uint32_t i = 0; i < count; i++) p->slots[i].raised = p->slots[i].early;
    for (uint32_t i = 0; i < count; i++)
        if (!find_edges(p, count, p->slots[i].late)) return false;
    return true;
}

/* Tasks that are certainly on the worker; `mirror`: time runs backwards. */
static uint32_t fill_slots(struct exact_prune *p, const struct exact_state *s, const struct exact_view *v,
                           uint32_t worker, bool mirror) {
    const struct exact_model *m = p->m;
    uint32_t count = 0, choice;
    for (uint32_t i = p->first[worker]; i < p->first[worker + 1]; i++) {
        uint32_t t = p->tasks[i];
        if (!exact_may_run_on(m, t, worker, &choice) || !is_made(s, choice)) continue;
        int64_t length = choice == EXACT_NONE
                             ? m->tasks[t].duration
                             : exact_duration_on(m, worker, m->tasks[t].chunk, m->tasks[t].op);
        int64_t early = v->early[t], late = v->late[t] + length;
        p->slots[count++] = (struct slot){
            .early = mirror ? -late : early, .late = mirror ? -early : late, .length = length, .task = t};
    }
    return count;
}

static bool run_edges(struct exact_prune *p, const struct exact_state *s, const struct exact_view *v,
                      uint32_t worker) {
    for (int mirror = 0; mirror < 2; mirror++) {
        uint32_t count = fill_slots(p, s, v, worker, mirror != 0);
        if (!raise_slots(p, count)) return false;
        for (uint32_t i = 0; i < count; i++) {
            const struct slot *slot = &p->slots[i];
            if (slot->raised == slot->early) continue;
            p->changed = true;
            if (mirror == 0)
                v->early[slot->task] = slot->raised;
            else
                v->late[slot->task] = -slot->raised - slot->length;
            if (v->early[slot->task] > v->late[slot->task]) return false;
        }
    }
    return true;
}

/* ---- memory ---- */

/* 1: a before b, -1: after, 0: open. */
static int known_order(const struct exact_model *m, const struct exact_state *s, uint32_t a, uint32_t b) {
    uint32_t literal;
    switch (exact_order(m, a, b, &literal)) {
    case EXACT_YES:
        return 1;
    case EXACT_NO:
        return -1;
    case EXACT_LITERAL:
        return s->order[literal];
    case EXACT_NEGATED:
        return -s->order[literal];
    default:
        return 0;
    }
}

static bool put_before(struct exact_prune *p, struct exact_state *s, uint32_t a, uint32_t b) {
    uint32_t literal;
    switch (exact_order(p->m, a, b, &literal)) {
    case EXACT_NO:
        return false;
    case EXACT_LITERAL:
        return set_order(p, s, literal, 1);
    case EXACT_NEGATED:
        return set_order(p, s, literal, -1);
    default:
        return true;
    }
}

static bool run_either(struct exact_prune *p, struct exact_state *s) {
    for (uint32_t i = 0; i < p->m->either_count; i++) {
        const struct exact_either *x = &p->m->either[i];
        if (known_order(p->m, s, x->a, x->b) < 0 && !put_before(p, s, x->c, x->d)) return false;
        if (known_order(p->m, s, x->c, x->d) < 0 && !put_before(p, s, x->a, x->b)) return false;
    }
    return true;
}

static bool is_here(const struct exact_model *m, const struct exact_state *s, uint32_t cell,
                    uint32_t worker) {
    uint32_t choice;
    return exact_may_run_on(m, m->cells[cell].task, worker, &choice) && is_made(s, choice);
}

/* What the cell certainly stores at a forward that comes after the cell's own. */
static uint64_t stored_for_sure(const struct exact_model *m, const struct exact_state *s, uint32_t cell,
                                uint32_t forward) {
    uint32_t input = m->cells[cell].task + 1, last = m->cells[cell].task + exact_ops(m) - 1;
    if (known_order(m, s, last, forward) >= 0) return 0;
    return known_order(m, s, input, forward) < 0 ? m->cells[cell].full : m->cells[cell].after;
}

/* At the forward of one cell of the store: too much in any case? Who must be later, who must be done? */
static bool run_forward(struct exact_prune *p, struct exact_state *s, const struct exact_store *store,
                        uint32_t cell) {
    const struct exact_model *m = p->m;
    uint32_t f = m->cells[cell].task, last = exact_ops(m) - 1;
    uint64_t sure = m->cells[cell].full;
    for (uint32_t i = 0; i < store->cell_count; i++) {
        uint32_t other = store->cells[i];
        if (other == cell || !is_here(m, s, other, store->worker)) continue;
        if (known_order(m, s, m->cells[other].task, f) > 0) sure += stored_for_sure(m, s, other, f);
    }
    if (sure > store->limit) return false;
    for (uint32_t i = 0; i < store->cell_count; i++) {
        uint32_t other = store->cells[i], start = m->cells[other].task;
        if (other == cell || !is_here(m, s, other, store->worker)) continue;
        int order = known_order(m, s, start, f);
        uint64_t would = stored_for_sure(m, s, other, f);
        if (order == 0 && sure + would > store->limit && !put_before(p, s, f, start)) return false;
        /* Not released though it could be: if keeping it is too much, its W comes first. */
        if (order > 0 && would == 0 && known_order(m, s, start + last, f) == 0 &&
            sure + m->cells[other].after > store->limit && !put_before(p, s, start + last, f))
            return false;
    }
    return true;
}

static bool run_stores(struct exact_prune *p, struct exact_state *s) {
    for (uint32_t k = 0; k < p->m->store_count; k++) {
        const struct exact_store *store = &p->m->stores[k];
        for (uint32_t i = 0; i < store->cell_count; i++)
            if (is_here(p->m, s, store->cells[i], store->worker) &&
                !run_forward(p, s, store, store->cells[i]))
                return false;
    }
    return true;
}

/* ---- choices ---- */

static bool run_choices(struct exact_prune *p, struct exact_state *s) {
    for (uint32_t c = 0; c < p->m->cell_count; c++) {
        const struct exact_cell *cell = &p->m->cells[c];
        uint32_t made = 0, open = 0, last = 0;
        for (uint32_t i = cell->choice_first; i < cell->choice_first + cell->choice_count; i++) {
            made += s->made[i] > 0;
            open += s->made[i] == 0;
            if (s->made[i] == 0) last = i;
        }
        if (cell->choice_count == 0 || (made == 1 && open == 0)) continue;
        if (made > 1 || (made == 0 && open == 0)) return false;
        for (uint32_t i = cell->choice_first; made == 1 && i < cell->choice_first + cell->choice_count; i++)
            if (s->made[i] == 0) s->made[i] = -1;
        if (made == 0 && open == 1) s->made[last] = 1;
        p->changed |= made == 1 || open == 1;
    }
    return true;
}

/* Windows of a stage's tasks are narrow in the view of that stage, and seldom elsewhere. */
static bool is_near(const struct exact_model *m, uint32_t group, uint32_t worker) {
    uint32_t stage = m->groups[group].stage;
    return stage == EXACT_NONE || stage == worker % m->route->stages || group == m->anchor;
}

bool exact_prune_run(struct exact_prune *p, int64_t period, struct exact_state *s) {
    const struct exact_model *m = p->m;
    uint32_t workers = m->route->pipelines * m->route->stages;
    p->period = period;
    p->changed = true;
    while (p->changed) {
        p->changed = false;
        if (!run_choices(p, s)) return false;
        for (uint32_t g = 0; g < m->group_count; g++) {
            struct exact_view v = exact_view(m, s, g);
            if (!run_arcs(p, s, &v) || !run_pairs(p, s, &v)) return false;
        }
        if (!run_either(p, s) || !run_stores(p, s)) return false;
        for (uint32_t i = 0; !p->changed && i < m->group_count * workers; i++) {
            struct exact_view v = exact_view(m, s, i / workers);
            if (is_near(m, i / workers, i % workers) && !run_edges(p, s, &v, i % workers)) return false;
        }
    }
    return true;
}
