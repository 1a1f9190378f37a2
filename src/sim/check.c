/* The second opinion on times: every rule of sim.h, checked at each instruction from the given times alone.
 *
 * Shares nothing with what computes them but the durations. Three walks over the lists: where every cell's
 * instructions are; each worker's own rules, noting when it comes to its R; then messages and R across
 * workers, and the spans of stages and chunks. O(instructions). Tested in tests/unit/sim_check_test.c. */
#include "sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

#define NO_INDEX UINT64_MAX

struct cell { /* of one (home, chunk, micro-batch): indexes in the times */
    uint64_t forward, backward, offload, load;
};

struct span {
    uint64_t first, last; /* empty: first above last */
};

struct opinion {
    const struct ir_plan *plan;
    const struct sim_costs *costs;
    const struct sim_result *times;
    uint32_t workers;
    struct cell *cells;
    uint64_t *arrival;  /* [chunks] when the last holder came to its R */
    struct span *stage; /* [stages] */
    struct span *chunk; /* [chunks] */
    struct pawl_error *e;
};

struct walker { /* one worker's list */
    uint32_t worker, position;
    const struct ir_instruction *in;
    uint64_t start, end;
    uint64_t ready;             /* the list before has let go */
    uint64_t out_free, in_free; /* the copies before have ended */
};

static pawl_code fail(const struct opinion *o, const struct walker *w, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static pawl_code fail(const struct opinion *o, const struct walker *w, const char *format, ...) {
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return error_set(o->e, PAWL_PLAN, 0, "times: worker (%u, %u), position %u, %s of chunk %u: %s",
                     w->worker / o->plan->stages, w->worker % o->plan->stages, w->position,
                     ir_op_name(w->in->op), w->in->chunk, text);
}

static pawl_code fail_early(const struct opinion *o, const struct walker *w, const char *what,
                            uint64_t allowed) {
    return fail(o, w, "starts at %llu, before %s at %llu", (unsigned long long)w->start, what,
                (unsigned long long)allowed);
}

static struct cell *cell_at(const struct opinion *o, uint32_t home, uint32_t chunk, uint32_t microbatch) {
    return &o->cells[((uint64_t)home * o->plan->chunks + chunk) * o->plan->microbatches + microbatch];
}

static bool walker_next(const struct opinion *o, struct walker *w) {
    const struct ir_worker *list = &o->plan->workers[w->worker];
    w->position++; /* from UINT32_MAX to 0 at first */
    if (w->position >= list->count) return false;
    w->in = &list->instructions[w->position];
    w->start = o->times->start[o->times->first[w->worker] + w->position];
    w->end = o->times->end[o->times->first[w->worker] + w->position];
    return true;
}

static struct walker walker_at(uint32_t worker) {
    return (struct walker){.worker = worker, .position = UINT32_MAX};
}

/* ---- where everything is ---- */

static void note_cells(struct opinion *o, uint32_t worker) {
    struct walker w = walker_at(worker);
    while (walker_next(o, &w)) {
        if (w.in->op == IR_R || w.in->op == IR_S) continue;
        struct cell *cell = cell_at(o, w.in->home, w.in->chunk, w.in->microbatch);
        uint64_t index = o->times->first[worker] + w.position;
        if (w.in->op == IR_F) cell->forward = index;
        if (w.in->op == IR_I || w.in->op == IR_B) cell->backward = index;
        if (w.in->op == IR_O) cell->offload = index;
        if (w.in->op == IR_L) cell->load = index;
    }
}

/* ---- a worker by itself ---- */

static pawl_code check_duration(const struct opinion *o, const struct walker *w) {
    uint64_t want = sim_duration(o->costs, w->worker, w->in->chunk, w->in->op);
    if (w->end >= w->start && w->end - w->start == want) return PAWL_OK;
    return fail(o, w, "from %llu to %llu, but it takes %llu", (unsigned long long)w->start,
                (unsigned long long)w->end, (unsigned long long)want);
}

/* The copy out of what an F stored, if there is one: after F, and after the copy before. */
static pawl_code check_copy_out(const struct opinion *o, struct walker *w) {
    uint64_t index = cell_at(o, w->in->home, w->in->chunk, w->in->microbatch)->offload;
    if (index == NO_INDEX) return PAWL_OK;
    uint64_t start = o->times->start[index];
    if (start < w->end) return fail(o, w, "its copy to the host starts before it ends");
    if (start < w->out_free) return fail(o, w, "two copies to the host at once");
    w->out_free = o->times->end[index];
    return PAWL_OK;
}

static pawl_code check_copy_in(const struct opinion *o, struct walker *w) {
    if (w->start < w->ready) return fail_early(o, w, "the list comes to it", w->ready);
    if (w->start < w->in_free) return fail_early(o, w, "the copy before ends", w->in_free);
    w->in_free = w->end;
    return PAWL_OK;
}

static pawl_code check_in_list(struct opinion *o, struct walker *w) {
    pawl_code code = check_duration(o, w);
    if (code != PAWL_OK) return code;
    if (w->in->op == IR_L) return check_copy_in(o, w);
    if (w->in->op == IR_O) { /* its start was checked at the F */
        if (w->end > w->ready) w->ready = w->end;
        return PAWL_OK;
    }
    if (w->start < w->ready) return fail_early(o, w, "the list comes to it", w->ready);
    if (w->in->op == IR_R && w->ready > o->arrival[w->in->chunk]) o->arrival[w->in->chunk] = w->ready;
    w->ready = w->end;
    return w->in->op == IR_F ? check_copy_out(o, w) : PAWL_OK;
}

static pawl_code check_worker(struct opinion *o, uint32_t worker) {
    struct walker w = walker_at(worker);
    pawl_code code = PAWL_OK;
    while (code == PAWL_OK && walker_next(o, &w)) code = check_in_list(o, &w);
    return code;
}

/* ---- workers together ---- */

static void widen(struct span *s, const struct walker *w) {
    if (w->start < s->first) s->first = w->start;
    if (w->end > s->last) s->last = w->end;
}

/* When the message that F, I or B needs is there. */
static uint64_t message_at(const struct opinion *o, const struct walker *w) {
    const struct ir_instruction *in = w->in;
    bool forward = in->op == IR_F;
    uint32_t chunk = forward ? in->chunk - 1 : in->chunk + 1;
    const struct cell *cell = cell_at(o, in->home, chunk, in->microbatch);
    uint64_t sent = o->times->end[forward ? cell->forward : cell->backward];
    if (in->from == w->worker) return sent;
    return sent + (forward ? o->costs->chunk[chunk].send_forward : o->costs->chunk[chunk].send_backward);
}

static pawl_code check_across(struct opinion *o, const struct walker *w) {
    const struct ir_instruction *in = w->in;
    bool backward = in->op == IR_I || in->op == IR_B;
    if (in->op == IR_R && w->start < o->arrival[in->chunk])
        return fail_early(o, w, "the last holder comes", o->arrival[in->chunk]);
    if ((in->op == IR_F || backward) && in->from != IR_NONE && w->start < message_at(o, w))
        return fail_early(o, w, "its message is there", message_at(o, w));
    if (!backward) return PAWL_OK;
    uint64_t load = cell_at(o, in->home, in->chunk, in->microbatch)->load;
    if (load != NO_INDEX && w->start < o->times->end[load])
        return fail_early(o, w, "what it needs is loaded", o->times->end[load]);
    return PAWL_OK;
}

static pawl_code check_worker_across(struct opinion *o, uint32_t worker) {
    struct walker w = walker_at(worker);
    pawl_code code = PAWL_OK;
    while (code == PAWL_OK && walker_next(o, &w)) {
        code = check_across(o, &w);
        if (w.in->op == IR_O || w.in->op == IR_L) continue; /* within what waits for them */
        widen(&o->stage[worker % o->plan->stages], &w);
        widen(&o->chunk[w.in->chunk], &w);
    }
    return code;
}

/* ---- the period ---- */

static uint64_t span_length(const struct span *s) { return s->last > s->first ? s->last - s->first : 0; }

static pawl_code check_staggered(const struct opinion *o) {
    uint64_t longest = 0;
    for (uint32_t i = 0; i < o->plan->stages + o->plan->chunks; i++) {
        bool is_stage = i < o->plan->stages;
        uint32_t number = is_stage ? i : i - o->plan->stages;
        uint64_t length = span_length(is_stage ? &o->stage[number] : &o->chunk[number]);
        if (length > longest) longest = length;
        if (length > o->times->period)
            return error_set(o->e, PAWL_PLAN, 0, "times: %s %u takes %llu, more than the period, %llu",
                             is_stage ? "stage" : "chunk", number, (unsigned long long)length,
                             (unsigned long long)o->times->period);
    }
    if (longest == o->times->period) return PAWL_OK;
    return error_set(o->e, PAWL_PLAN, 0, "times: the period is %llu, but no stage takes more than %llu",
                     (unsigned long long)o->times->period, (unsigned long long)longest);
}

static pawl_code check_barrier(const struct opinion *o) {
    struct span all = {UINT64_MAX, 0};
    for (uint32_t s = 0; s < o->plan->stages; s++) {
        if (o->stage[s].first < all.first) all.first = o->stage[s].first;
        if (o->stage[s].last > all.last) all.last = o->stage[s].last;
    }
    if (span_length(&all) == o->times->period && o->times->makespan == o->times->period) return PAWL_OK;
    return error_set(o->e, PAWL_PLAN, 0, "times: period %llu and makespan %llu, but it takes %llu",
                     (unsigned long long)o->times->period, (unsigned long long)o->times->makespan,
                     (unsigned long long)span_length(&all));
}

/* ---- all of it ---- */

static pawl_code check_sizes(const struct opinion *o) {
    if (o->plan->pipelines != o->costs->pipelines || o->plan->stages != o->costs->stages ||
        o->plan->chunks != o->costs->chunks)
        return error_set(o->e, PAWL_ARGUMENT, 0, "times: plan and costs are of different sizes");
    for (uint32_t w = 0; w < o->workers; w++)
        if (o->times->first[w + 1] - o->times->first[w] != o->plan->workers[w].count)
            return error_set(o->e, PAWL_PLAN, 0, "times: worker (%u, %u) has %u instructions, but %llu times",
                             w / o->plan->stages, w % o->plan->stages, o->plan->workers[w].count,
                             (unsigned long long)(o->times->first[w + 1] - o->times->first[w]));
    return PAWL_OK;
}

static bool opinion_open(struct opinion *o) {
    uint64_t cells = (uint64_t)o->plan->pipelines * o->plan->chunks * o->plan->microbatches;
    o->cells = malloc(cells * sizeof *o->cells);
    o->arrival = calloc(o->plan->chunks, sizeof *o->arrival);
    o->stage = malloc(o->plan->stages * sizeof *o->stage);
    o->chunk = malloc(o->plan->chunks * sizeof *o->chunk);
    if (o->cells == NULL || o->arrival == NULL || o->stage == NULL || o->chunk == NULL) return false;
    for (uint64_t c = 0; c < cells; c++) o->cells[c] = (struct cell){NO_INDEX, NO_INDEX, NO_INDEX, NO_INDEX};
    for (uint32_t s = 0; s < o->plan->stages; s++) o->stage[s] = (struct span){UINT64_MAX, 0};
    for (uint32_t c = 0; c < o->plan->chunks; c++) o->chunk[c] = (struct span){UINT64_MAX, 0};
    return true;
}

static pawl_code check_all(struct opinion *o, bool staggered) {
    pawl_code code = PAWL_OK;
    for (uint32_t w = 0; w < o->workers; w++) note_cells(o, w);
    for (uint32_t w = 0; code == PAWL_OK && w < o->workers; w++) code = check_worker(o, w);
    for (uint32_t w = 0; code == PAWL_OK && w < o->workers; w++) code = check_worker_across(o, w);
    if (code != PAWL_OK) return code;
    return staggered ? check_staggered(o) : check_barrier(o);
}

pawl_code sim_check(const struct ir_plan *plan, const struct sim_costs *costs, bool staggered,
                    const struct sim_result *times, struct pawl_error *e) {
    struct opinion o = {.plan = plan, .costs = costs, .times = times, .e = e};
    o.workers = plan->pipelines * plan->stages;
    pawl_code code = check_sizes(&o);
    if (code != PAWL_OK) return code;
    if (opinion_open(&o))
        code = check_all(&o, staggered);
    else
        code = error_set(e, PAWL_MEMORY, 0, "times: no memory to check %u workers", o.workers);
    free(o.cells);
    free(o.arrival);
    free(o.stage);
    free(o.chunk);
    return code;
}
