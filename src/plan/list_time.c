/* How good a schedule is: the span of every stage and chunk, or the makespan; and the times of a given order.
 *
 * R and S are counted as running after the last gradient of a chunk, on each of its holders. Staggered,
 * starts are the earliest possible; that a stage could begin later is left to the simulator, which finds the
 * least period of the lists. */
#include "plan/list.h"
#include "plan/ticks.h"

#include <string.h>

struct windows { /* parts of list_pass.scratch */
    uint64_t *worker_begin, *worker_end, *chunk_begin, *chunk_end, *stage_begin, *stage_end;
    uint64_t *reduced; /* [chunks] bool */
};

static struct windows windows_of(struct list_pass *s) {
    const struct list_problem *p = s->problem;
    struct windows v = {.worker_begin = s->scratch};
    v.worker_end = v.worker_begin + p->workers;
    v.chunk_begin = v.worker_end + p->workers;
    v.chunk_end = v.chunk_begin + p->chunks;
    v.stage_begin = v.chunk_end + p->chunks;
    v.stage_end = v.stage_begin + p->route->stages;
    v.reduced = v.stage_end + p->route->stages;
    return v;
}

static inline void widen(uint64_t *begin, uint64_t *end, uint64_t from, uint64_t to) {
    if (from < *begin) *begin = from;
    if (to > *end) *end = to;
}

static struct windows measure(struct list_pass *s, const struct list_schedule *out) {
    const struct list_problem *p = s->problem;
    struct windows v = windows_of(s);
    uint32_t stages = p->route->stages;
    for (uint32_t w = 0; w < p->workers; w++) v.worker_begin[w] = LIST_NEVER, v.worker_end[w] = 0;
    for (uint32_t c = 0; c < p->chunks; c++) v.chunk_begin[c] = LIST_NEVER, v.chunk_end[c] = 0;
    for (uint32_t k = 0; k < stages; k++) v.stage_begin[k] = LIST_NEVER, v.stage_end[k] = 0;
    for (uint32_t i = 0; i < out->count; i++) {
        uint32_t cell = list_cell(out->log[i]), worker = list_host(p, cell), chunk = p->chunk_of[cell];
        uint64_t from = *list_start(p, out, out->log[i]);
        uint64_t to = from + list_ticks(p, cell, list_op_of(out->log[i]));
        widen(&v.worker_begin[worker], &v.worker_end[worker], from, to);
        widen(&v.chunk_begin[chunk], &v.chunk_end[chunk], from, to);
    }
    return v;
}

static bool holds(const struct list_problem *p, uint32_t worker, uint32_t chunk) {
    if (worker % p->route->stages == chunk) return p->route->alive[worker];
    return p->plan->workers[worker].hold_count > 1 && ir_plan_holds(p->plan, worker, chunk);
}

/* The next chunk by the end of its gradients; chunks as many as stages. `done` marks those that were. */
static uint32_t next_ended(const struct list_problem *p, const struct windows *v) {
    uint32_t next = IR_NONE;
    for (uint32_t c = 0; c < p->chunks; c++)
        if (!v->reduced[c] && (next == IR_NONE || v->chunk_end[c] < v->chunk_end[next])) next = c;
    return next;
}

/* Where stages share: chunk after chunk, its R everywhere at once. */
static void add_shared_steps(const struct list_problem *p, struct windows *v) {
    memset(v->reduced, 0, p->chunks * sizeof *v->reduced);
    for (uint32_t k = 0; k < p->chunks; k++) {
        uint32_t c = next_ended(p, v);
        uint64_t begin = v->chunk_end[c];
        for (uint32_t w = 0; w < p->workers; w++)
            if (holds(p, w, c) && v->worker_end[w] > begin) begin = v->worker_end[w];
        begin += p->costs->chunk[c].reduce;
        for (uint32_t w = 0; w < p->workers; w++)
            if (holds(p, w, c)) v->worker_end[w] = begin + sim_duration(p->costs, w, c, IR_S);
        v->chunk_end[c] = begin + p->chunk_tail[c] - p->costs->chunk[c].reduce;
        v->reduced[c] = 1;
    }
    for (uint32_t w = 0; w < p->workers; w++)
        if (p->route->alive[w])
            widen(&v->stage_begin[w % p->route->stages], &v->stage_end[w % p->route->stages],
                  v->worker_begin[w], v->worker_end[w]);
}

/* R and S of what the stage's workers hold, after the last gradient anywhere. */
static void add_steps(const struct list_problem *p, struct windows *v) {
    if (p->route->early != NULL) {
        add_shared_steps(p, v);
        return;
    }
    for (uint32_t w = 0; w < p->workers; w++) {
        uint32_t stage = w % p->route->stages;
        if (!p->route->alive[w]) continue;
        const struct ir_worker *holder = &p->plan->workers[w];
        for (uint32_t i = 0; i < holder->hold_count; i++)
            if (v->chunk_end[holder->holds[i]] > v->worker_end[w])
                v->worker_end[w] = v->chunk_end[holder->holds[i]];
        v->worker_end[w] += p->tail[w];
        widen(&v->stage_begin[stage], &v->stage_end[stage], v->worker_begin[w], v->worker_end[w]);
    }
    for (uint32_t c = 0; c < p->chunks; c++) v->chunk_end[c] += p->chunk_tail[c];
}

static inline uint64_t over(uint64_t from, uint64_t to, uint64_t bound) {
    return from <= to && to - from > bound ? to - from - bound : 0;
}

static void judge(const struct list_pass *s, const struct windows *v, struct list_schedule *out) {
    const struct list_problem *p = s->problem;
    uint64_t bound = s->target, most = 0;
    bool staggered = p->options->staggered;
    out->excess = 0;
    for (uint32_t w = 0; w < p->workers; w++) {
        uint32_t stage = w % p->route->stages;
        if (!p->route->alive[w]) continue;
        uint64_t late = over(staggered ? v->stage_begin[stage] : 0, v->worker_end[w], bound);
        uint64_t early = staggered ? over(v->worker_begin[w], v->stage_end[stage], bound) : 0;
        out->excess = ticks_add(out->excess, ticks_add(late, early));
    }
    for (uint32_t k = 0; k < p->route->stages; k++) {
        uint64_t t = over(staggered ? v->stage_begin[k] : 0, v->stage_end[k], 0);
        if (t > most) most = t;
    }
    for (uint32_t c = 0; c < p->chunks && staggered; c++)
        if (over(v->chunk_begin[c], v->chunk_end[c], 0) > most) most = v->chunk_end[c] - v->chunk_begin[c];
    out->period = most;
}

/* Every operation that there must be is in the log. */
static bool is_whole(const struct list_problem *p, const struct list_schedule *out) {
    uint64_t there = (uint64_t)p->chunks * p->route->total, extra = 0, wanted = there * (p->split ? 3 : 2);
    for (uint32_t i = 0; i < out->count && p->kinds > 3; i++) extra += list_op_of(out->log[i]) > LIST_W;
    return out->count - extra == wanted;
}

void list_evaluate(struct list_pass *s, struct list_schedule *out) {
    const struct list_problem *p = s->problem;
    out->period = LIST_NEVER;
    if (!is_whole(p, out)) return;
    struct windows v = measure(s, out);
    add_steps(p, &v);
    judge(s, &v, out);
}

static uint64_t earliest_start(const struct list_problem *p, const struct list_schedule *out, uint32_t code) {
    uint32_t cell = list_cell(code), from;
    switch (list_op_of(code)) {
    case LIST_F:
        if (p->chunk_of[cell] == 0) return 0;
        from = cell - p->microbatches;
        return list_end(p, out, list_code(from, LIST_F)) + list_delay_forward(p, from);
    case LIST_I:
        if (list_last_chunk(p, cell)) return 0;
        from = cell + p->microbatches;
        return list_end(p, out, list_code(from, LIST_I)) + list_delay_back(p, from);
    default:
        return 0; /* follows on the same worker */
    }
}

void list_retime(struct list_pass *s, struct list_schedule *out) {
    const struct list_problem *p = s->problem;
    uint64_t *free_at = s->scratch;
    memset(free_at, 0, p->workers * sizeof *free_at);
    for (uint32_t i = 0; i < out->count; i++) {
        uint32_t code = out->log[i], worker = list_host(p, list_cell(code));
        uint64_t at = earliest_start(p, out, code);
        if (free_at[worker] > at) at = free_at[worker];
        *list_start(p, out, code) = at;
        free_at[worker] = at + list_ticks(p, list_cell(code), list_op_of(code));
    }
}
