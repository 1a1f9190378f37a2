/* A list schedule under a policy's own caps, for costs or dead workers that the published order does not
 * know.
 *
 * Time runs through a heap of ends and arrivals. An idle worker starts the best that it may: an I (or B)
 * whose gradient is there, an F under its cap, else a W. What each one does is appended to its list, and
 * had its inputs from what ended before, so the lists cannot wait in a circle.
 *
 * Nor can the schedule itself get stuck. A worker that holds k chunks starts an F of the j-th of them, 0 to
 * k-1, while it stores less than its cap minus (k-1-j); caps are at least k. Assume that all are idle with
 * something left. No I or W may start, so whatever is stored waits for its way down: of that take what came
 * farthest, through chunk c. The last chunk's I needs nothing, so there is a chunk c+1, and its F may
 * not start: its host stores up to its limit for c+1, by then all of chunks it holds before c+1. But their
 * limits are lower by one at least. If nothing is stored, the first chunk's F may start. GPipe has no caps,
 * and B waits there for the F of its worker, which wait for F only.
 * Tested in tests/golden/plan_baseline_test.c. */
#include "plan/baseline.h"

#include <stdlib.h>

#include "base/error.h"

#define NONE UINT32_MAX

struct task {
    uint64_t order; /* the smallest first; ties by cell */
    uint32_t cell;
};
struct heap { /* room for all that can be in it */
    struct task *task;
    uint32_t count;
};

struct event {
    uint64_t at;
    uint32_t worker; /* whose task ends, or who receives */
    uint32_t cell;   /* received, or NONE */
    uint32_t op;     /* of the received cell: IR_F or IR_I */
};

struct host {
    struct heap *forward; /* [chunks that it holds] */
    struct heap backward;
    uint32_t *weight; /* cells whose W is left, in the order of their I */
    uint32_t weight_first, weight_end;
    uint32_t hosted, forwards_left, stored, cap;
    bool busy, touched;
    enum ir_op op; /* running, of cell */
    uint32_t cell;
};

struct greedy {
    const struct baseline_greedy *options;
    const struct plan_route *route;
    const struct sim_costs *costs;
    struct ir_plan *plan;
    uint32_t workers, per_stage;
    struct host *host;   /* [workers] */
    struct heap *heaps;  /* memory of all forward */
    struct task *tasks;  /* memory of all heaps */
    uint32_t *weights;   /* ... and of all lists of W */
    struct event *event; /* heap */
    uint32_t event_count, event_room;
    uint32_t *touched, touched_count; /* workers that may have something to start */
    struct pawl_error *e;
};

/* ---- cells ---- */

struct name { /* of a cell */
    uint32_t home, chunk, microbatch;
};

static struct name name_of(const struct greedy *g, uint32_t cell) {
    uint32_t microbatch = cell % g->route->microbatches, row = cell / g->route->microbatches;
    return (struct name){row / g->route->chunks, row % g->route->chunks, microbatch};
}

/* Which of the ready F (or I, B) of a worker comes first. */
static uint64_t order_of(const struct greedy *g, const struct name *n, uint32_t worker, enum ir_op op) {
    uint32_t pipelines = g->route->pipelines, stages = g->route->stages;
    uint64_t distance = (n->home + pipelines - worker / stages) % pipelines; /* own before guests */
    uint64_t turn = n->microbatch;
    uint32_t position = n->chunk / stages;
    if (op != IR_F) position = g->per_stage - 1 - position;
    switch (g->options->policy) {
    case PAWL_POLICY_GPIPE: /* backwards from the last micro-batch on */
        if (op != IR_F) turn = g->route->microbatches - 1 - n->microbatch;
        break;
    case PAWL_POLICY_INTERLEAVED: /* rounds, see baseline_order.c */
        turn =
            ((uint64_t)(n->microbatch / stages) * g->per_stage + position) * stages + n->microbatch % stages;
        break;
    case PAWL_POLICY_ZB_V: /* what is nearest to its end, so that memory is free again soon */
        turn += (uint64_t)(g->per_stage - 1 - position) * g->route->microbatches;
        break;
    default:
        break;
    }
    return turn * pipelines + distance;
}

/* ---- heaps ---- */

static bool task_before(const struct task *a, const struct task *b) {
    return a->order != b->order ? a->order < b->order : a->cell < b->cell;
}

static void heap_push(struct heap *h, struct task task) {
    uint32_t i = h->count++;
    for (; i > 0 && task_before(&task, &h->task[(i - 1) / 2]); i = (i - 1) / 2)
        h->task[i] = h->task[(i - 1) / 2];
    h->task[i] = task;
}

static uint32_t heap_pop(struct heap *h) {
    uint32_t top = h->task[0].cell, i = 0;
    struct task task = h->task[--h->count];
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= h->count) break;
        if (child + 1 < h->count && task_before(&h->task[child + 1], &h->task[child])) child++;
        if (!task_before(&h->task[child], &task)) break;
        h->task[i] = h->task[child];
        i = child;
    }
    h->task[i] = task;
    return top;
}

static bool event_before(const struct event *a, const struct event *b) {
    if (a->at != b->at) return a->at < b->at;
    if (a->worker != b->worker) return a->worker < b->worker;
    return a->cell < b->cell;
}

static pawl_code event_push(struct greedy *g, struct event event) {
    if (g->event_count == g->event_room) {
        uint32_t room = g->event_room * 2 + 256;
        struct event *bigger = realloc(g->event, room * sizeof *bigger);
        if (bigger == NULL) return error_set(g->e, PAWL_MEMORY, 0, "schedule: no memory for %u events", room);
        g->event = bigger;
        g->event_room = room;
    }
    uint32_t i = g->event_count++;
    for (; i > 0 && event_before(&event, &g->event[(i - 1) / 2]); i = (i - 1) / 2)
        g->event[i] = g->event[(i - 1) / 2];
    g->event[i] = event;
    return PAWL_OK;
}

static struct event event_pop(struct greedy *g) {
    struct event top = g->event[0], last = g->event[--g->event_count];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= g->event_count) break;
        if (child + 1 < g->event_count && event_before(&g->event[child + 1], &g->event[child])) child++;
        if (!event_before(&g->event[child], &last)) break;
        g->event[i] = g->event[child];
        i = child;
    }
    g->event[i] = last;
    return top;
}

/* ---- starting ---- */

static void touch(struct greedy *g, uint32_t worker) {
    if (g->host[worker].touched) return;
    g->host[worker].touched = true;
    g->touched[g->touched_count++] = worker;
}

/* The place of a chunk among those that the worker holds. */
static uint32_t hold_of(const struct greedy *g, uint32_t worker, uint32_t chunk) {
    uint32_t i = 0;
    while (g->plan->workers[worker].holds[i] != chunk) i++;
    return i;
}

static void make_ready(struct greedy *g, uint32_t worker, uint32_t cell, enum ir_op op) {
    struct name n = name_of(g, cell);
    struct host *h = &g->host[worker];
    struct heap *heap = op == IR_F ? &h->forward[hold_of(g, worker, n.chunk)] : &h->backward;
    heap_push(heap, (struct task){order_of(g, &n, worker, op), cell});
    touch(g, worker);
}

/* The first F for which there is room: of which held chunk, or NONE. For each held chunk that comes after its
 * own in the model one place is left. */
static uint32_t best_forward(const struct greedy *g, uint32_t worker) {
    const struct host *h = &g->host[worker];
    uint32_t holds = g->plan->workers[worker].hold_count, best = NONE;
    for (uint32_t i = 0; i < holds; i++) {
        if (h->forward[i].count == 0 || (uint64_t)h->stored + (holds - 1 - i) >= h->cap) continue;
        if (best == NONE || task_before(&h->forward[i].task[0], &h->forward[best].task[0])) best = i;
    }
    return best;
}

static bool backward_may_start(const struct greedy *g, const struct host *h) {
    if (h->backward.count == 0) return false;
    return g->options->policy != PAWL_POLICY_GPIPE || h->forwards_left == 0;
}

static pawl_code start(struct greedy *g, uint32_t worker, enum ir_op op, uint32_t cell, uint64_t now) {
    struct host *h = &g->host[worker];
    struct name n = name_of(g, cell);
    uint64_t end = now + sim_duration(g->costs, worker, n.chunk, op);
    struct ir_instruction in = plan_route_instruction(g->route, op, n.home, n.chunk, n.microbatch);
    h->busy = true;
    h->op = op;
    h->cell = cell;
    if (op == IR_F) h->stored++;
    if (op == IR_F) h->forwards_left--;
    pawl_code code = ir_plan_append(g->plan, worker / g->route->stages, worker % g->route->stages, in, g->e);
    if (code != PAWL_OK) return code;
    return event_push(g, (struct event){end, worker, NONE, op});
}

static pawl_code start_best(struct greedy *g, uint32_t worker, uint64_t now) {
    struct host *h = &g->host[worker];
    bool fused = baseline_is_fused(g->options->policy);
    uint32_t forward = best_forward(g, worker);
    if (backward_may_start(g, h) && (forward == NONE || !g->options->forward_first))
        return start(g, worker, fused ? IR_B : IR_I, heap_pop(&h->backward), now);
    if (forward != NONE) return start(g, worker, IR_F, heap_pop(&h->forward[forward]), now);
    if (h->weight_first < h->weight_end) return start(g, worker, IR_W, h->weight[h->weight_first++], now);
    return PAWL_OK;
}

static pawl_code start_touched(struct greedy *g, uint64_t now) {
    pawl_code code = PAWL_OK;
    while (g->touched_count > 0 && code == PAWL_OK) {
        uint32_t worker = g->touched[--g->touched_count];
        g->host[worker].touched = false;
        if (!g->host[worker].busy) code = start_best(g, worker, now);
    }
    return code;
}

/* ---- ending ---- */

/* What `worker` has made of a cell goes to the host of the next or the previous chunk. */
static pawl_code send(struct greedy *g, uint32_t worker, uint32_t cell, enum ir_op op, uint64_t now) {
    struct name n = name_of(g, cell);
    bool forward = op == IR_F;
    if (forward && n.chunk + 1 == g->route->chunks) { /* the loss: backward begins */
        make_ready(g, worker, cell, IR_I);
        return PAWL_OK;
    }
    if (!forward && n.chunk == 0) return PAWL_OK;
    uint32_t to_chunk = forward ? n.chunk + 1 : n.chunk - 1;
    uint32_t to_cell = (uint32_t)plan_route_cell(g->route, n.home, to_chunk, n.microbatch);
    uint32_t to = g->route->host[to_cell];
    const struct sim_chunk *chunk = &g->costs->chunk[n.chunk];
    uint64_t lag = to == worker ? 0 : forward ? chunk->send_forward : chunk->send_backward;
    if (lag > 0) return event_push(g, (struct event){now + lag, to, to_cell, forward ? IR_F : IR_I});
    make_ready(g, to, to_cell, forward ? IR_F : IR_I);
    return PAWL_OK;
}

static pawl_code end(struct greedy *g, uint32_t worker, uint64_t now) {
    struct host *h = &g->host[worker];
    h->busy = false;
    touch(g, worker);
    if (h->op == IR_W || h->op == IR_B) h->stored--;
    if (h->op == IR_I) h->weight[h->weight_end++] = h->cell;
    return h->op == IR_W ? PAWL_OK : send(g, worker, h->cell, h->op, now);
}

static pawl_code run(struct greedy *g) {
    pawl_code code = PAWL_OK;
    for (uint32_t home = 0; home < g->route->pipelines; home++)
        for (uint32_t m = 0; m < plan_route_count(g->route, home); m++) {
            uint32_t cell = (uint32_t)plan_route_cell(g->route, home, 0, m);
            make_ready(g, g->route->host[cell], cell, IR_F);
        }
    code = start_touched(g, 0);
    while (g->event_count > 0 && code == PAWL_OK) {
        uint64_t now = g->event[0].at;
        while (g->event_count > 0 && g->event[0].at == now && code == PAWL_OK) {
            struct event event = event_pop(g);
            if (event.cell == NONE)
                code = end(g, event.worker, now);
            else
                make_ready(g, event.worker, event.cell, (enum ir_op)event.op);
        }
        if (code == PAWL_OK) code = start_touched(g, now);
    }
    return code;
}

/* ---- memory ---- */

/* How much each worker executes of each chunk that it holds, in the counts of its heaps. */
static void count_hosted(struct greedy *g, uint32_t cells) {
    struct heap *next = g->heaps;
    for (uint32_t w = 0; w < g->workers; w++) {
        g->host[w].forward = next;
        next += g->plan->workers[w].hold_count;
    }
    for (uint32_t c = 0; c < cells; c++) {
        uint32_t w = g->route->host[c];
        if (w == PLAN_ABSENT) continue;
        g->host[w].forward[hold_of(g, w, name_of(g, c).chunk)].count++;
        g->host[w].hosted++;
    }
}

/* Give every heap and list its memory. */
static void slice(struct greedy *g) {
    struct task *task = g->tasks;
    uint32_t *weight = g->weights;
    for (uint32_t w = 0; w < g->workers; w++) {
        struct host *h = &g->host[w];
        for (uint32_t i = 0; i < g->plan->workers[w].hold_count; i++) {
            h->forward[i].task = task;
            task += h->forward[i].count;
            h->forward[i].count = 0;
        }
        h->backward.task = task;
        task += h->hosted;
        h->weight = weight;
        weight += h->hosted;
    }
}

static pawl_code open_hosts(struct greedy *g, uint32_t cells) {
    count_hosted(g, cells);
    slice(g);
    for (uint32_t w = 0; w < g->workers; w++) {
        struct host *h = &g->host[w];
        uint32_t stage = g->options->even ? 0 : w % g->route->stages, holds = g->plan->workers[w].hold_count;
        uint32_t cap = baseline_cap(g->options->policy, g->route->stages, stage, g->per_stage);
        h->cap = cap > holds ? cap : holds;
        h->forwards_left = h->hosted;
        pawl_code code = ir_plan_reserve(g->plan, w, 3 * h->hosted, g->e);
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

static bool greedy_open(struct greedy *g, uint64_t cells) {
    uint64_t holds = 0;
    for (uint32_t w = 0; w < g->workers; w++) holds += g->plan->workers[w].hold_count;
    g->host = calloc(g->workers, sizeof *g->host);
    g->touched = calloc(g->workers, sizeof *g->touched);
    g->heaps = calloc(holds, sizeof *g->heaps);
    g->tasks = malloc(2 * cells * sizeof *g->tasks);
    g->weights = malloc(cells * sizeof *g->weights);
    return g->host != NULL && g->touched != NULL && g->heaps != NULL && g->tasks != NULL &&
           g->weights != NULL;
}

static void greedy_close(struct greedy *g) {
    free(g->host);
    free(g->touched);
    free(g->heaps);
    free(g->tasks);
    free(g->weights);
    free(g->event);
}

pawl_code baseline_greedy(const struct baseline_greedy *options, const struct plan_route *route,
                          const struct sim_costs *costs, struct ir_plan *plan, struct pawl_error *e) {
    uint64_t cells = (uint64_t)route->pipelines * route->chunks * route->microbatches;
    if (cells >= NONE / 4)
        return error_set(e, PAWL_ARGUMENT, 0, "schedule: %llu micro-batches of chunks are more than %u",
                         (unsigned long long)cells, NONE / 4);
    struct greedy g = {.options = options, .route = route, .costs = costs, .plan = plan, .e = e};
    g.workers = route->pipelines * route->stages;
    g.per_stage = route->chunks / route->stages;
    pawl_code code;
    if (greedy_open(&g, cells))
        code = open_hosts(&g, (uint32_t)cells);
    else
        code = error_set(e, PAWL_MEMORY, 0, "schedule: no memory for %llu micro-batches of chunks",
                         (unsigned long long)cells);
    if (code == PAWL_OK) code = run(&g);
    greedy_close(&g);
    return code;
}
