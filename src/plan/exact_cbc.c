/* CBC: the mixed integer program as published (Zero Bubble's, extended with routing), and what makes it
 * bearable.
 *
 * Columns: starts, one binary for each pair's order, one for each choice of a host, the period. Rows: arcs;
 * two big-M rows for each pair that shares a worker; each limit of memory as a sum over orders. The plain
 * program is hopeless even for a hundred binaries; so every start has the window and every order the value
 * that pruning finds for periods better than the seed's, M is as small as these windows allow, the period
 * starts at the head/load/tail bound, and the seed is given as a first solution.
 *
 * CBC computes in floating point: a row may be broken by some 1e-6 of M. What it calls proven is therefore
 * lowered by 1e-6 of the horizon, and a schedule is made from the orders, not from its starts.
 *
 * It also keeps its own time only between nodes, takes over SIGINT and prints. So it runs in a child process,
 * which ends in time in any case; the answer comes through a pipe.
 * Tested in tests/unit/plan_exact_test.c. */
#include "plan/exact.h"

#ifdef PAWL_CBC

#include <coin/Cbc_C_Interface.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

#define CBC_TOLERANCE  1e-6
#define CBC_TIME_SHARE 0.9 /* of what is left; the rest is for CBC to come to an end */
#define CBC_POLL_MS    20  /* how late a stop may be noticed */
#define CBC_GAP        0.5 /* units that may be left between the best and the bound */

struct row {
    int count, room;
    int *columns;
    double *factors;
    double right; /* sum >= right */
};

struct cbc {
    struct exact_run *run;
    const struct exact_model *m;
    Cbc_Model *model;
    struct exact_state *state;
    struct row row;
    int column_count, row_count;
    int order_first, choice_first, period; /* columns; starts are 0 .. node_count - 1 */
    int64_t top;                           /* longest period that is of interest */
    bool failed;                           /* out of memory while a row was made */
};

/* ---- rows ---- */

static double units(const struct cbc *c, int64_t value) { return (double)value / c->m->scale; }

static void row_begin(struct cbc *c, double right) {
    c->row.count = 0;
    c->row.right = right;
}

static void row_add(struct cbc *c, int column, double factor) {
    struct row *r = &c->row;
    if (r->count == r->room) {
        int room = r->room < 64 ? 64 : r->room * 2;
        int *columns = realloc(r->columns, (size_t)room * sizeof *columns);
        if (columns != NULL) r->columns = columns;
        double *factors = realloc(r->factors, (size_t)room * sizeof *factors);
        if (factors != NULL) r->factors = factors;
        if (columns == NULL || factors == NULL) {
            c->failed = true;
            return;
        }
        r->room = room;
    }
    r->columns[r->count] = column;
    r->factors[r->count++] = factor;
}

static void row_end(struct cbc *c) {
    char name[16];
    snprintf(name, sizeof name, "r%d", c->row_count++);
    if (!c->failed)
        Cbc_addRow(c->model, name, c->row.count, c->row.columns, c->row.factors, 'G', c->row.right);
}

/* Weakens the row by `weight` if the choice is not made. */
static void row_unless(struct cbc *c, uint32_t choice, double weight) {
    if (choice == EXACT_NONE) return;
    row_add(c, c->choice_first + (int)choice, -weight);
    c->row.right -= weight;
}

/* ... if the literal is not as wanted. */
static void row_unless_order(struct cbc *c, uint32_t literal, bool wanted, double weight) {
    row_add(c, c->order_first + (int)literal, wanted ? -weight : weight);
    if (wanted) c->row.right -= weight;
}

static int column_add(struct cbc *c, const char *prefix, uint32_t index, double low, double high,
                      bool whole) {
    char name[24];
    snprintf(name, sizeof name, "%s%u", prefix, index);
    Cbc_addCol(c->model, name, low, high, 0, whole ? 1 : 0, 0, NULL, NULL);
    return c->column_count++;
}

/* ---- the program ---- */

static void add_columns(struct cbc *c) {
    const struct exact_model *m = c->m;
    struct exact_view v = exact_view(m, c->state, m->anchor);
    for (uint32_t n = 0; n < m->node_count; n++)
        column_add(c, "s", n, units(c, v.early[n]), units(c, v.late[n]), false);
    c->order_first = c->column_count;
    for (uint32_t i = 0; i < m->literal_count; i++)
        column_add(c, "o", i, c->state->order[i] > 0, c->state->order[i] >= 0, true);
    c->choice_first = c->column_count;
    for (uint32_t i = 0; i < m->choice_count; i++)
        column_add(c, "c", i, c->state->made[i] > 0, c->state->made[i] >= 0, true);
    c->period = column_add(c, "t", 0, units(c, c->run->low), units(c, c->top), m->scale == 1);
    Cbc_setObjCoeff(c->model, c->period, 1);
}

/* The most by which start[to] - start[from] >= lag can be broken within the windows. */
static double slack_of(const struct cbc *c, uint32_t from, uint32_t to, int64_t lag) {
    int64_t least = INT64_MAX;
    for (uint32_t g = 0; g < c->m->group_count; g++) {
        struct exact_view v = exact_view(c->m, c->state, g);
        if (v.late[from] + lag - v.early[to] < least) least = v.late[from] + lag - v.early[to];
    }
    return least > 0 ? units(c, least) : 0;
}

static void add_arcs(struct cbc *c) {
    for (uint32_t i = 0; i < c->m->arc_count; i++) {
        const struct exact_arc *arc = &c->m->arcs[i];
        double slack = slack_of(c, arc->from, arc->to, arc->lag);
        row_begin(c, units(c, arc->lag));
        row_add(c, (int)arc->to, 1);
        row_add(c, (int)arc->from, -1);
        row_unless(c, arc->if_first, slack);
        row_unless(c, arc->if_second, slack);
        row_end(c);
    }
    for (uint32_t g = 0; g < c->m->group_count; g++) {
        row_begin(c, 0);
        row_add(c, c->period, 1);
        row_add(c, (int)c->m->groups[g].last, -1);
        row_add(c, (int)c->m->groups[g].first, 1);
        row_end(c);
    }
}

static void add_disjunction(struct cbc *c, const struct exact_shared *on, uint32_t from, uint32_t to,
                            int64_t length, bool wanted) {
    uint32_t literal = c->m->pairs[on->pair].literal;
    double slack = slack_of(c, from, to, length);
    row_begin(c, units(c, length));
    row_add(c, (int)to, 1);
    row_add(c, (int)from, -1);
    row_unless_order(c, literal, wanted, slack);
    row_unless(c, on->if_a, slack);
    row_unless(c, on->if_b, slack);
    row_end(c);
}

static void add_shared(struct cbc *c) {
    for (uint32_t i = 0; i < c->m->shared_count; i++) {
        const struct exact_shared *on = &c->m->shared[i];
        const struct exact_pair *pair = &c->m->pairs[on->pair];
        add_disjunction(c, on, pair->a, pair->b, on->a_length, true);
        add_disjunction(c, on, pair->b, pair->a, on->b_length, false);
    }
}

static void add_choices(struct cbc *c) {
    for (uint32_t i = 0; i < c->m->cell_count; i++) {
        const struct exact_cell *cell = &c->m->cells[i];
        if (cell->choice_count == 0) continue;
        for (int sign = 1; sign >= -1; sign -= 2) { /* the sum is 1: both sides */
            row_begin(c, sign);
            for (uint32_t k = 0; k < cell->choice_count; k++)
                row_add(c, c->choice_first + (int)(cell->choice_first + k), sign);
            row_end(c);
        }
    }
}

/* ---- memory ---- */

/* factor * [a before b] into the row; a constant goes to the right side. */
static void row_add_before(struct cbc *c, uint32_t a, uint32_t b, double factor) {
    uint32_t literal = 0;
    enum exact_known known = exact_order(c->m, a, b, &literal);
    if (known == EXACT_YES) c->row.right -= factor;
    if (known == EXACT_LITERAL) row_add(c, c->order_first + (int)literal, factor);
    if (known == EXACT_NEGATED) {
        row_add(c, c->order_first + (int)literal, -factor);
        c->row.right -= factor;
    }
}

static void add_either(struct cbc *c) {
    for (uint32_t i = 0; i < c->m->either_count; i++) {
        const struct exact_either *x = &c->m->either[i];
        row_begin(c, 1);
        row_add_before(c, x->a, x->b, 1);
        row_add_before(c, x->c, x->d, 1);
        row_end(c);
    }
}

/* A column for `factor` * [a before b and the choice is made]: at least that if it adds to what is stored, at
 * most if it gives back. */
static int product(struct cbc *c, uint32_t a, uint32_t b, uint32_t choice, bool adds) {
    int column = column_add(c, "z", (uint32_t)c->column_count, 0, 1, false);
    if (adds) { /* z >= before + made - 1 */
        row_begin(c, -1);
        row_add(c, column, 1);
        row_add_before(c, a, b, -1);
        row_add(c, c->choice_first + (int)choice, -1);
        row_end(c);
        return column;
    }
    row_begin(c, 0);
    row_add(c, column, -1);
    row_add_before(c, a, b, 1);
    row_end(c);
    row_begin(c, 0);
    row_add(c, column, -1);
    row_add(c, c->choice_first + (int)choice, 1);
    row_end(c);
    return column;
}

/* limit - full of this cell >= what others store at its forward; void if the cell is elsewhere. */
static void add_forward(struct cbc *c, const struct exact_store *store, uint32_t cell, struct row *own) {
    const struct exact_model *m = c->m;
    uint32_t forward = m->cells[cell].task, last = exact_ops(m) - 1, choice;
    double most = 0, room = (double)store->limit - (double)m->cells[cell].full;
    struct row *sum = &c->row;
    own->count = 0;
    own->right = -room;
    for (uint32_t i = 0; i < store->cell_count; i++) {
        const struct exact_cell *other = &m->cells[store->cells[i]];
        const double factors[3] = {(double)other->full, -(double)(other->full - other->after),
                                   -(double)other->after};
        const uint32_t tasks[3] = {other->task, other->task + 1, other->task + last};
        if (store->cells[i] == cell) continue;
        most += factors[0];
        exact_may_run_on(m, other->task, store->worker, &choice);
        for (int k = 0; k < 3; k++) {
            int column = -1;
            if (factors[k] == 0 || (m->fused && k == 1)) continue;
            if (choice != EXACT_NONE) column = product(c, tasks[k], forward, choice, k == 0);
            struct row made = *sum; /* the sum under way is kept in `own` */
            *sum = *own;
            if (column >= 0)
                row_add(c, column, -factors[k]);
            else
                row_add_before(c, tasks[k], forward, -factors[k]);
            *own = *sum;
            *sum = made;
        }
    }
    struct row made = *sum;
    *sum = *own;
    exact_may_run_on(m, forward, store->worker, &choice);
    row_unless(c, choice, most);
    row_end(c);
    *own = *sum;
    *sum = made;
}

static void add_stores(struct cbc *c) {
    struct row own = {0};
    for (uint32_t k = 0; k < c->m->store_count; k++)
        for (uint32_t i = 0; i < c->m->stores[k].cell_count; i++)
            add_forward(c, &c->m->stores[k], c->m->stores[k].cells[i], &own);
    free(own.columns);
    free(own.factors);
}

/* ---- the seed ---- */

static bool seed_is_before(const struct cbc *c, uint32_t a, uint32_t b) {
    const int64_t *start = c->run->seed.start;
    if (start[a] != start[b]) return start[a] < start[b];
    bool lasts_a = c->m->tasks[a].duration > 0, lasts_b = c->m->tasks[b].duration > 0;
    return lasts_a != lasts_b ? lasts_b : c->m->topology[a] < c->m->topology[b];
}

static void give_seed(struct cbc *c) {
    size_t count = (size_t)c->m->literal_count + c->m->choice_count;
    int *columns = calloc(count + 1, sizeof *columns);
    double *values = calloc(count + 1, sizeof *values);
    int used = 0;
    if (columns == NULL || values == NULL) {
        c->failed = true;
    } else {
        for (uint32_t i = 0; i < c->m->pair_count; i++) {
            const struct exact_pair *pair = &c->m->pairs[i];
            if (c->m->tasks[pair->a].op == IR_W && c->m->tasks[pair->b].op == IR_W) continue; /* as their I */
            columns[used] = c->order_first + (int)pair->literal;
            values[used++] = seed_is_before(c, pair->a, pair->b);
        }
        for (uint32_t i = 0; i < c->m->choice_count; i++) {
            columns[used] = c->choice_first + (int)i;
            values[used++] = c->run->seed.worker[c->m->choices[i].cell] == c->m->choices[i].worker;
        }
        Cbc_setMIPStartI(c->model, used, columns, values);
    }
    free(columns);
    free(values);
}

/* ---- running ---- */

enum verdict { VERDICT_NOTHING, VERDICT_FOUND, VERDICT_OPTIMAL, VERDICT_INFEASIBLE };

struct answer { /* begins what the child writes; then a byte for each order and each choice */
    int32_t verdict;
    double bound; /* divisors; of OPTIMAL */
};

static bool write_all(int fd, const void *data, size_t size) {
    const char *at = data;
    while (size > 0) {
        ssize_t done = write(fd, at, size);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        at += done;
        size -= (size_t)done;
    }
    return true;
}

/* Out of time CBC may say infeasible of what it has not looked at. And where the seed fits, nothing is. */
static enum verdict verdict_of(const struct cbc *c, bool in_time) {
    in_time = in_time && !Cbc_isSecondsLimitReached(c->model) && !Cbc_isAbandoned(c->model);
    if (Cbc_isProvenInfeasible(c->model))
        return in_time && !c->run->seed_usable ? VERDICT_INFEASIBLE : VERDICT_NOTHING;
    if (Cbc_bestSolution(c->model) == NULL) return VERDICT_NOTHING;
    return in_time && Cbc_isProvenOptimal(c->model) ? VERDICT_OPTIMAL : VERDICT_FOUND;
}

/* In the child: never returns. */
static void solve_and_exit(struct cbc *c, double seconds, int fd) {
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }
    char limit[32];
    snprintf(limit, sizeof limit, "%.2f", seconds);
    Cbc_setObjSense(c->model, 1);
    Cbc_setLogLevel(c->model, 0);
    Cbc_setParameter(c->model, "timeMode", "elapsed");
    Cbc_setParameter(c->model, "sec", limit);
    Cbc_setAllowableGap(c->model, CBC_GAP / c->m->scale);
    int64_t began = clock_now_ns();
    Cbc_solve(c->model);
    double took = (double)(clock_now_ns() - began) * 1e-9;
    struct answer answer = {.verdict = (int32_t)verdict_of(c, took < seconds * CBC_TIME_SHARE)};
    if (answer.verdict == VERDICT_OPTIMAL) answer.bound = Cbc_getObjValue(c->model);
    bool done = write_all(fd, &answer, sizeof answer);
    bool found = answer.verdict == VERDICT_OPTIMAL || answer.verdict == VERDICT_FOUND;
    const double *values = found ? Cbc_bestSolution(c->model) : NULL;
    int count = (int)(c->m->literal_count + c->m->choice_count);
    for (int i = 0; done && values != NULL && i < count; i++) {
        char bit = values[c->order_first + i] > 0.5;
        done = write_all(fd, &bit, 1);
    }
    _exit(done ? 0 : 1);
}

/* Everything the child writes, until it ends or the run is over; how many bytes. */
static size_t read_answer(const struct cbc *c, int fd, char *buffer, size_t size) {
    size_t have = 0;
    while (have < size && !exact_run_over(c->run)) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, CBC_POLL_MS) <= 0) continue;
        ssize_t got = read(fd, buffer + have, size - have);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        have += (size_t)got;
    }
    return have;
}

/* The orders that CBC found, as a schedule without its rounding. */
static pawl_code keep_solution(struct cbc *c, const char *bits, struct pawl_error *e) {
    const struct exact_model *m = c->m;
    struct exact_schedule found;
    struct exact_state *begin = NULL;
    pawl_code code = exact_state_new(m, &begin, e);
    if (code != PAWL_OK) return code;
    exact_state_copy(m, c->state, begin);
    exact_state_free(begin);
    for (uint32_t i = 0; i < m->literal_count; i++) c->state->order[i] = bits[i] ? 1 : -1;
    for (uint32_t i = 0; i < m->choice_count; i++) c->state->made[i] = bits[m->literal_count + i] ? 1 : -1;
    if (!exact_prune_run(c->run->prune, c->top, c->state)) return PAWL_OK; /* held by rounding only */
    code = exact_schedule_new(m, &found, e);
    if (code != PAWL_OK) return code;
    memcpy(found.start, exact_view(m, c->state, m->anchor).early, m->node_count * sizeof *found.start);
    for (uint32_t i = 0; i < m->choice_count; i++)
        if (c->state->made[i] > 0) found.worker[m->choices[i].cell] = m->choices[i].worker;
    code = exact_run_found(c->run, &found, c->top, e);
    exact_schedule_close(&found);
    return code;
}

/* What CBC proved, in units: within the gap that it may leave, and its rounding. */
static void raise_bound(struct cbc *c, const struct answer *answer) {
    double slack = CBC_TOLERANCE * (double)c->m->horizon;
    if (answer->verdict == VERDICT_INFEASIBLE && slack < 1) exact_run_raise(c->run, c->top + 1);
    if (answer->verdict != VERDICT_OPTIMAL) return;
    double bound = answer->bound * c->m->scale - slack - CBC_GAP;
    if (bound > (double)c->run->low && bound <= (double)c->top) exact_run_raise(c->run, (int64_t)ceil(bound));
}

static pawl_code take_answer(struct cbc *c, const char *buffer, size_t have, size_t bits,
                             struct pawl_error *e) {
    struct answer answer;
    if (have < sizeof answer) return PAWL_OK; /* time was up, or CBC died: nothing is proven */
    memcpy(&answer, buffer, sizeof answer);
    pawl_code code = PAWL_OK;
    if (have == sizeof answer + bits && answer.verdict != VERDICT_INFEASIBLE)
        code = keep_solution(c, buffer + sizeof answer, e);
    if (code == PAWL_OK) raise_bound(c, &answer);
    return code;
}

static pawl_code run_solver(struct cbc *c, struct pawl_error *e) {
    size_t bits = (size_t)c->m->literal_count + c->m->choice_count, size = sizeof(struct answer) + bits;
    double left = (double)(c->run->deadline_ns - clock_now_ns()) * 1e-9;
    int ends[2] = {-1, -1};
    char *buffer = malloc(size);
    if (buffer == NULL) return error_set(e, PAWL_MEMORY, 0, "exact plan: no memory for an answer");
    pid_t child = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
    if (child == 0) solve_and_exit(c, left * CBC_TIME_SHARE, ends[1]);
    pawl_code code = PAWL_OK;
    if (child < 0) code = error_set(e, PAWL_MEMORY, errno, "exact plan: no process for the solver");
    if (ends[1] >= 0) close(ends[1]);
    if (child > 0) {
        size_t have = read_answer(c, ends[0], buffer, size);
        kill(child, SIGKILL);
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
        }
        code = take_answer(c, buffer, have, bits, e);
    }
    if (ends[0] >= 0) close(ends[0]);
    free(buffer);
    return code;
}

pawl_code exact_cbc(struct exact_run *run, struct pawl_error *e) {
    struct cbc c = {.run = run, .m = run->model};
    pawl_code code = exact_state_new(c.m, &c.state, e);
    c.top = exact_run_high(run) + (run->seed_usable ? 1 : 0); /* the seed must fit to be a first solution */
    if (code == PAWL_OK && !exact_prune_run(run->prune, c.top, c.state))
        exact_run_raise(run, c.top + 1);
    else if (code == PAWL_OK) {
        c.model = Cbc_newModel();
        add_columns(&c);
        add_arcs(&c);
        add_shared(&c);
        add_choices(&c);
        add_either(&c);
        add_stores(&c);
        if (run->seed_usable) give_seed(&c);
        code =
            c.failed ? error_set(e, PAWL_MEMORY, 0, "exact plan: no memory for its rows") : run_solver(&c, e);
        Cbc_deleteModel(c.model);
    }
    exact_state_free(c.state);
    free(c.row.columns);
    free(c.row.factors);
    return code;
}

#else

pawl_code exact_cbc(struct exact_run *run, struct pawl_error *e) {
    (void)run;
    return plan_exact_built(PLAN_CBC, e);
}

#endif
