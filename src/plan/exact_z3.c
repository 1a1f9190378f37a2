/* Z3, difference logic: starts are integers, orders and choices Booleans.
 *
 * One solver for the whole run, asked whether a schedule of at most T units exists, by bisection on multiples
 * of the divisor first. T and what pruning knows at T hang on one assumption each time, so that what the
 * solver learns stays. Where memory is a sum (stores), schedules that break it are forbidden by a clause and
 * the question is asked again. A thread watches the clock and the stop flag and interrupts the solver; an
 * interrupted question has no answer and proves nothing.
 * Tested in tests/unit/plan_exact_test.c. */
#include "plan/exact.h"

#ifdef PAWL_Z3

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <z3.h>

#include "base/clock.h"
#include "base/error.h"

#define WATCH_NS   10000000 /* how late a stop may be noticed */
#define CLAUSE_MAX 4        /* literals of a clause that is not memory's */

struct breach {
    uint32_t cell, until; /* the task that would have to come first */
};

struct z3 {
    struct exact_run *run;
    const struct exact_model *m;
    Z3_context context;
    Z3_solver solver;
    Z3_ast *start;  /* [nodes] */
    Z3_ast *order;  /* [literals] */
    Z3_ast *choice; /* [choices] */
    struct exact_state *state;
    struct exact_schedule found;
    struct breach *breach; /* [cells] what is stored at a forward that is too much */
    uint32_t breach_count;
    uint32_t asked; /* questions so far: names of assumptions */
};

struct watch {
    Z3_context context;
    const struct exact_run *run;
    int64_t deadline_ns;
    pthread_mutex_t lock;
    pthread_cond_t done_changed;
    bool done;
};

/* ---- formulas ---- */

static Z3_ast number(const struct z3 *z, int64_t value) {
    return Z3_mk_int64(z->context, value, Z3_mk_int_sort(z->context));
}

/* start[to] - start[from] >= lag */
static Z3_ast apart(const struct z3 *z, uint32_t from, uint32_t to, int64_t lag) {
    Z3_ast both[2] = {z->start[to], z->start[from]};
    return Z3_mk_ge(z->context, Z3_mk_sub(z->context, 2, both), number(z, lag));
}

static Z3_ast named(const struct z3 *z, const char *prefix, uint32_t index, Z3_sort sort) {
    char name[32];
    snprintf(name, sizeof name, "%s%u", prefix, index);
    return Z3_mk_const(z->context, Z3_mk_string_symbol(z->context, name), sort);
}

static Z3_ast negated(const struct z3 *z, Z3_ast literal) { return Z3_mk_not(z->context, literal); }

static void assert_any(const struct z3 *z, uint32_t count, const Z3_ast *literals) {
    Z3_solver_assert(z->context, z->solver, count == 1 ? literals[0] : Z3_mk_or(z->context, count, literals));
}

static uint32_t unless(const struct z3 *z, uint32_t choice, Z3_ast *clause, uint32_t count) {
    if (choice != EXACT_NONE) clause[count++] = negated(z, z->choice[choice]);
    return count;
}

/* "a before b" as a literal; null and *is_true if it is known. */
static Z3_ast before(const struct z3 *z, uint32_t a, uint32_t b, bool *is_true) {
    uint32_t literal = 0;
    enum exact_known known = exact_order(z->m, a, b, &literal);
    *is_true = known == EXACT_YES;
    if (known == EXACT_LITERAL) return z->order[literal];
    if (known == EXACT_NEGATED) return negated(z, z->order[literal]);
    return NULL;
}

/* ---- the model ---- */

static void state_arcs(const struct z3 *z) {
    for (uint32_t i = 0; i < z->m->arc_count; i++) {
        const struct exact_arc *arc = &z->m->arcs[i];
        Z3_ast clause[CLAUSE_MAX];
        uint32_t count = unless(z, arc->if_first, clause, 0);
        count = unless(z, arc->if_second, clause, count);
        clause[count++] = apart(z, arc->from, arc->to, arc->lag);
        assert_any(z, count, clause);
    }
}

static void state_shared(const struct z3 *z) {
    for (uint32_t i = 0; i < z->m->shared_count; i++) {
        const struct exact_shared *on = &z->m->shared[i];
        const struct exact_pair *pair = &z->m->pairs[on->pair];
        Z3_ast clause[CLAUSE_MAX];
        uint32_t count = unless(z, on->if_a, clause, 0);
        count = unless(z, on->if_b, clause, count);
        clause[count] = negated(z, z->order[pair->literal]);
        clause[count + 1] = apart(z, pair->a, pair->b, on->a_length);
        assert_any(z, count + 2, clause);
        clause[count] = z->order[pair->literal];
        clause[count + 1] = apart(z, pair->b, pair->a, on->b_length);
        assert_any(z, count + 2, clause);
    }
}

static void state_choices(const struct z3 *z) {
    for (uint32_t c = 0; c < z->m->cell_count; c++) {
        const struct exact_cell *cell = &z->m->cells[c];
        if (cell->choice_count == 0) continue;
        assert_any(z, cell->choice_count, z->choice + cell->choice_first);
        for (uint32_t i = cell->choice_first; i < cell->choice_first + cell->choice_count; i++) {
            for (uint32_t k = cell->choice_first; k < i; k++) {
                Z3_ast clause[2] = {negated(z, z->choice[i]), negated(z, z->choice[k])};
                assert_any(z, 2, clause);
            }
        }
    }
}

static void state_either(const struct z3 *z) {
    for (uint32_t i = 0; i < z->m->either_count; i++) {
        const struct exact_either *x = &z->m->either[i];
        Z3_ast clause[2];
        uint32_t count = 0;
        bool first, second;
        Z3_ast a = before(z, x->a, x->b, &first), b = before(z, x->c, x->d, &second);
        if (first || second) continue;
        if (a != NULL) clause[count++] = a;
        if (b != NULL) clause[count++] = b;
        assert_any(z, count, clause);
    }
}

static pawl_code open_solver(struct z3 *z, struct pawl_error *e) {
    const struct exact_model *m = z->m;
    Z3_config config = Z3_mk_config();
    z->context = Z3_mk_context(config);
    Z3_del_config(config);
    Z3_set_error_handler(z->context, NULL);
    z->start = calloc(m->node_count, sizeof(Z3_ast));
    z->order = calloc((size_t)m->literal_count + 1, sizeof(Z3_ast));
    z->choice = calloc((size_t)m->choice_count + 1, sizeof(Z3_ast));
    z->breach = calloc(m->cell_count, sizeof *z->breach);
    if (z->breach == NULL || z->start == NULL || z->order == NULL || z->choice == NULL)
        return error_set(e, PAWL_MEMORY, 0, "exact plan: no memory for %u tasks", m->task_count);
    z->solver = Z3_mk_solver_for_logic(z->context, Z3_mk_string_symbol(z->context, "QF_IDL"));
    Z3_solver_inc_ref(z->context, z->solver);
    Z3_sort truth = Z3_mk_bool_sort(z->context), whole = Z3_mk_int_sort(z->context);
    for (uint32_t n = 0; n < m->node_count; n++) z->start[n] = named(z, "s", n, whole);
    for (uint32_t i = 0; i < m->literal_count; i++) z->order[i] = named(z, "o", i, truth);
    for (uint32_t i = 0; i < m->choice_count; i++) z->choice[i] = named(z, "c", i, truth);
    state_arcs(z);
    state_shared(z);
    state_choices(z);
    state_either(z);
    return PAWL_OK;
}

static void close_solver(struct z3 *z) {
    if (z->solver != NULL) Z3_solver_dec_ref(z->context, z->solver);
    if (z->context != NULL) Z3_del_context(z->context);
    free(z->start);
    free(z->order);
    free(z->choice);
    free(z->breach);
    exact_state_free(z->state);
    exact_schedule_close(&z->found);
}

/* ---- memory that is a sum ---- */

/* In a schedule: `a` before `b`, as the lists will have it. */
static bool is_before(const struct z3 *z, uint32_t a, uint32_t b) {
    int64_t at_a = z->found.start[a], at_b = z->found.start[b];
    if (at_a != at_b) return at_a < at_b;
    bool lasts_a = z->m->tasks[a].duration > 0, lasts_b = z->m->tasks[b].duration > 0;
    if (lasts_a != lasts_b) return lasts_b;
    return z->m->topology[a] < z->m->topology[b];
}

/* What the cell stores at the forward, in this schedule; *until: the task that would have to come first. */
static uint64_t stored_at(const struct z3 *z, uint32_t cell, uint32_t forward, uint32_t *until) {
    const struct exact_cell *c = &z->m->cells[cell];
    uint32_t last = c->task + exact_ops(z->m) - 1;
    *until = last;
    if (!is_before(z, c->task, forward) || is_before(z, last, forward)) return 0;
    if (is_before(z, c->task + 1, forward)) return c->after;
    *until = c->task + 1;
    return c->full;
}

/* Does another of the breach's cells of the same class say it already? Of forwards the last to come, of what
 * gives back the first. */
static bool is_said(const struct z3 *z, uint32_t at, bool is_forward) {
    const struct exact_model *m = z->m;
    const struct exact_cell *one = &m->cells[z->breach[at].cell];
    for (uint32_t i = 0; i < z->breach_count && one->choice_count == 0; i++) {
        const struct exact_cell *other = &m->cells[z->breach[i].cell];
        if (i == at || other->class != one->class || other->choice_count > 0) continue;
        if (m->tasks[other->task].chunk != m->tasks[one->task].chunk) continue;
        if (is_forward && other->number > one->number) return true;
        bool same = z->breach[i].until - other->task == z->breach[at].until - one->task;
        if (!is_forward && same && other->number < one->number) return true;
    }
    return false;
}

/* The clause that forbids what is stored at `forward`: some of those cells start later or give back sooner,
 * or are elsewhere. Only as many cells as are too much. */
static void forbid(struct z3 *z, const struct exact_store *store, uint32_t cell, Z3_ast *clause) {
    const struct exact_model *m = z->m;
    uint32_t forward = m->cells[cell].task, count = 0, choice, until;
    uint64_t sum = m->cells[cell].full;
    z->breach_count = 0;
    for (uint32_t i = 0; i < store->cell_count && sum <= store->limit; i++) {
        uint32_t other = store->cells[i];
        if (other == cell || z->found.worker[other] != store->worker) continue;
        uint64_t stored = stored_at(z, other, forward, &until);
        sum += stored;
        if (stored > 0) z->breach[z->breach_count++] = (struct breach){other, until};
    }
    if (exact_may_run_on(m, forward, store->worker, &choice)) count = unless(z, choice, clause, count);
    for (uint32_t i = 0; i < z->breach_count; i++) {
        uint32_t other = m->cells[z->breach[i].cell].task;
        bool known;
        if (exact_may_run_on(m, other, store->worker, &choice)) count = unless(z, choice, clause, count);
        Z3_ast later = is_said(z, i, true) ? NULL : before(z, forward, other, &known);
        if (later != NULL) clause[count++] = later;
        Z3_ast sooner = is_said(z, i, false) ? NULL : before(z, z->breach[i].until, forward, &known);
        if (sooner != NULL) clause[count++] = sooner;
    }
    assert_any(z, count, clause);
}

/* Forbids every breach of a limit in the schedule found; how many. */
static uint32_t forbid_breaches(struct z3 *z, Z3_ast *clause) {
    uint32_t breaches = 0, until;
    for (uint32_t k = 0; k < z->m->store_count; k++) {
        const struct exact_store *store = &z->m->stores[k];
        for (uint32_t i = 0; i < store->cell_count; i++) {
            uint32_t cell = store->cells[i];
            if (z->found.worker[cell] != store->worker) continue;
            uint64_t sum = z->m->cells[cell].full;
            for (uint32_t j = 0; j < store->cell_count; j++)
                if (j != i && z->found.worker[store->cells[j]] == store->worker)
                    sum += stored_at(z, store->cells[j], z->m->cells[cell].task, &until);
            if (sum <= store->limit) continue;
            forbid(z, store, cell, clause);
            breaches++;
        }
    }
    return breaches;
}

/* ---- asking ---- */

static void *watch_solver(void *argument) {
    struct watch *w = argument;
    pthread_mutex_lock(&w->lock);
    while (!w->done) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += WATCH_NS;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&w->done_changed, &w->lock, &until);
        if (!w->done && (exact_run_stopped(w->run) || clock_now_ns() >= w->deadline_ns))
            Z3_interrupt(w->context);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static pawl_code check(struct z3 *z, Z3_ast assumption, int64_t deadline_ns, Z3_lbool *answer,
                       struct pawl_error *e) {
    struct watch w = {.context = z->context, .run = z->run, .deadline_ns = deadline_ns};
    pthread_t thread;
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.done_changed, NULL);
    int failed = pthread_create(&thread, NULL, watch_solver, &w);
    if (failed != 0) return error_set(e, PAWL_MEMORY, failed, "exact plan: no thread to watch the solver");
    *answer = Z3_solver_check_assumptions(z->context, z->solver, 1, &assumption);
    pthread_mutex_lock(&w.lock);
    w.done = true;
    pthread_cond_signal(&w.done_changed);
    pthread_mutex_unlock(&w.lock);
    pthread_join(thread, NULL);
    pthread_cond_destroy(&w.done_changed);
    pthread_mutex_destroy(&w.lock);
    return PAWL_OK;
}

/* The windows that a group's view knows, relative to the group's first start. */
static void state_view(const struct z3 *z, Z3_ast assumption, uint32_t group) {
    const struct exact_model *m = z->m;
    uint32_t zero = m->groups[group].first;
    struct exact_view v = exact_view(m, z->state, group);
    Z3_ast clause[2] = {negated(z, assumption), NULL};
    for (uint32_t n = 0; n < m->node_count; n++) {
        clause[1] = apart(z, zero, n, v.early[n]);
        assert_any(z, 2, clause);
        clause[1] = apart(z, n, zero, -v.late[n]);
        assert_any(z, 2, clause);
    }
}

/* The period, and what pruning knows at it, under the assumption. */
static void state_known(const struct z3 *z, Z3_ast assumption, int64_t period) {
    const struct exact_model *m = z->m;
    Z3_ast clause[2] = {negated(z, assumption), NULL};
    for (uint32_t g = 0; g < m->group_count; g++) {
        clause[1] = apart(z, m->groups[g].last, m->groups[g].first, -period);
        assert_any(z, 2, clause);
        state_view(z, assumption, g);
    }
    for (uint32_t i = 0; i < m->literal_count; i++) {
        if (z->state->order[i] == 0) continue;
        clause[1] = z->state->order[i] > 0 ? z->order[i] : negated(z, z->order[i]);
        assert_any(z, 2, clause);
    }
}

static pawl_code read_model(struct z3 *z, struct pawl_error *e) {
    Z3_model model = Z3_solver_get_model(z->context, z->solver);
    if (model == NULL) return error_set(e, PAWL_INTERNAL, 0, "exact plan: z3 has a schedule but no model");
    Z3_model_inc_ref(z->context, model);
    pawl_code code = PAWL_OK;
    for (uint32_t n = 0; code == PAWL_OK && n < z->m->node_count; n++) {
        Z3_ast value = NULL;
        if (!Z3_model_eval(z->context, model, z->start[n], true, &value) ||
            !Z3_get_numeral_int64(z->context, value, &z->found.start[n]))
            code = error_set(e, PAWL_INTERNAL, 0, "exact plan: z3's model has no start of task %u", n);
    }
    for (uint32_t i = 0; code == PAWL_OK && i < z->m->choice_count; i++) {
        Z3_ast value = NULL;
        if (Z3_model_eval(z->context, model, z->choice[i], true, &value) &&
            Z3_get_bool_value(z->context, value) == Z3_L_TRUE)
            z->found.worker[z->m->choices[i].cell] = z->m->choices[i].worker;
    }
    Z3_model_dec_ref(z->context, model);
    return code;
}

/* Is there a schedule of at most `period`? Z3_L_TRUE: it was kept. */
static pawl_code ask(struct z3 *z, int64_t period, int64_t deadline_ns, Z3_lbool *answer,
                     struct pawl_error *e) {
    struct exact_state *begin = NULL;
    pawl_code code = exact_state_new(z->m, &begin, e);
    if (code != PAWL_OK) return code;
    exact_state_copy(z->m, z->state, begin);
    exact_state_free(begin);
    *answer = Z3_L_FALSE;
    if (!exact_prune_run(z->run->prune, period, z->state)) return PAWL_OK;
    Z3_ast *clause = calloc((size_t)z->m->cell_count * 3 + 2, sizeof *clause);
    if (clause == NULL) return error_set(e, PAWL_MEMORY, 0, "exact plan: no memory for a clause");
    Z3_ast assumption = named(z, "t", z->asked++, Z3_mk_bool_sort(z->context));
    state_known(z, assumption, period);
    do {
        code = check(z, assumption, deadline_ns, answer, e);
        if (code == PAWL_OK && *answer == Z3_L_TRUE) code = read_model(z, e);
    } while (code == PAWL_OK && *answer == Z3_L_TRUE && forbid_breaches(z, clause) > 0);
    free(clause);
    Z3_solver_assert(z->context, z->solver, negated(z, assumption));
    if (code == PAWL_OK && *answer == Z3_L_TRUE) code = exact_run_found(z->run, &z->found, period, e);
    return code;
}

/* The multiple of the divisor nearest to the middle, if there is one; else the top. */
static int64_t next_period(const struct exact_model *m, int64_t floor, int64_t high) {
    int64_t middle = (floor + (high - floor) / 2) / m->scale * m->scale;
    if (middle < floor) middle += m->scale;
    return middle <= high ? middle : high;
}

static pawl_code search(struct z3 *z, struct pawl_error *e) {
    struct exact_run *run = z->run;
    int64_t floor = run->low; /* what is below was refuted, or put off */
    while (run->low <= exact_run_high(run) && !exact_run_over(run)) {
        if (floor > exact_run_high(run)) floor = run->low;
        int64_t high = exact_run_high(run), period = next_period(z->m, floor, high);
        int64_t now = clock_now_ns(), left = run->deadline_ns - now;
        bool low_is_all = run->low == high; /* no other question is left */
        Z3_lbool answer = Z3_L_UNDEF;
        pawl_code code = ask(z, period, now + (low_is_all ? left : left / 2), &answer, e);
        if (code != PAWL_OK) return code;
        if (answer == Z3_L_FALSE) exact_run_raise(run, period + 1);
        if (answer != Z3_L_TRUE) floor = period + 1;
    }
    return PAWL_OK;
}

pawl_code exact_z3(struct exact_run *run, struct pawl_error *e) {
    struct z3 z = {.run = run, .m = run->model};
    pawl_code code = exact_state_new(z.m, &z.state, e);
    if (code == PAWL_OK) code = exact_schedule_new(z.m, &z.found, e);
    if (code == PAWL_OK) code = open_solver(&z, e);
    if (code == PAWL_OK) code = search(&z, e);
    if (code == PAWL_OK && Z3_get_error_code(z.context) != Z3_OK)
        code = error_set(e, PAWL_INTERNAL, 0, "exact plan: z3: %s",
                         Z3_get_error_msg(z.context, Z3_get_error_code(z.context)));
    close_solver(&z);
    return code;
}

#else

pawl_code exact_z3(struct exact_run *run, struct pawl_error *e) {
    (void)run;
    return plan_exact_built(PLAN_Z3, e);
}

#endif
