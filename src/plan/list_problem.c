/* The list scheduler's problem, flat: which cells a worker executes, how long they take, how much room they
 * need. Checks that every worker's limit can hold one micro-batch of each of its chunks. */
#include "plan/list.h"
#include "plan/ticks.h"

#include <stdlib.h>
#include <string.h>

static void fill_ticks(struct list_problem *p) {
    for (uint32_t c = 0; c < p->chunks; c++) {
        const struct sim_chunk *k = &p->costs->chunk[c];
        uint64_t *t = &p->ticks[c * LIST_OPS];
        t[LIST_F] = t[LIST_C] = k->forward;
        t[LIST_I] = p->split ? k->input_grad : k->input_grad + k->weight_grad;
        t[LIST_W] = p->split ? k->weight_grad : 0;
        t[LIST_O] = t[LIST_L] = 0;
    }
}

uint64_t list_ticks_slow(const struct list_problem *p, uint32_t worker, uint32_t chunk, enum list_op op) {
    switch (op) {
    case LIST_F:
        return sim_duration(p->costs, worker, chunk, IR_F);
    case LIST_I:
        return sim_duration(p->costs, worker, chunk, p->split ? IR_I : IR_B);
    case LIST_W:
        return p->split ? sim_duration(p->costs, worker, chunk, IR_W) : 0;
    case LIST_C:
        return sim_duration(p->costs, worker, chunk, IR_C);
    default:
        return 0;
    }
}

static pawl_code fill_workers(struct list_problem *p, struct pawl_error *e) {
    for (uint32_t w = 0; w < p->workers; w++) p->plain[w] = !p->costs->slow || p->costs->slow[w] == 1.0;
    for (uint32_t cell = 0; cell < p->cells; cell++) {
        uint32_t w = p->route->host[cell];
        if (w == PLAN_ABSENT) continue;
        if (w >= p->workers || !p->route->alive[w])
            return error_set(e, PAWL_PLAN, 0, "home %u, chunk %u, micro-batch %u: no live worker executes it",
                             cell / (p->chunks * p->microbatches), p->chunk_of[cell], cell % p->microbatches);
        p->first[w + 1]++;
    }
    for (uint32_t w = 0; w < p->workers; w++) p->first[w + 1] += p->first[w];
    return PAWL_OK;
}

static void fill_cells(struct list_problem *p) {
    for (uint32_t cell = 0; cell < p->cells; cell++)
        if (list_is_there(p, cell)) p->cells_at[p->first[list_host(p, cell)]++] = cell;
    for (uint32_t w = p->workers; w > 0; w--) p->first[w] = p->first[w - 1];
    p->first[0] = 0;
    for (uint32_t w = 0; w < p->workers; w++)
        for (uint32_t i = p->first[w] + 1; i < p->first[w + 1] && !p->several[w]; i++)
            p->several[w] = p->chunk_of[p->cells_at[i]] != p->chunk_of[p->cells_at[i - 1]];
}

static pawl_code check_limits(const struct list_problem *p, struct pawl_error *e) {
    if (!p->costs->limit) return PAWL_OK;
    for (uint32_t w = 0; w < p->workers; w++)
        for (uint32_t i = p->first[w]; i < p->first[w + 1]; i++) {
            uint64_t need = list_need(list_chunk(p, p->cells_at[i]));
            if (need <= p->costs->limit[w]) continue;
            return error_set(e, PAWL_PLAN, 0,
                             "worker %u:%u: its memory limit %llu is below the %llu that one micro-batch of "
                             "chunk %u needs",
                             w / p->route->stages, w % p->route->stages,
                             (unsigned long long)p->costs->limit[w], (unsigned long long)need,
                             p->chunk_of[p->cells_at[i]]);
        }
    return PAWL_OK;
}

/* An F of a chunk leaves room for one micro-batch of each later chunk of its worker: so the last chunk always
 * goes on, hence the one before it, and so on; no cyclic wait for memory can arise. Where the limit does not
 * allow that much, an F may still start on an empty worker. `later` is scratch, [chunks]. */
static void reserve_of_worker(struct list_problem *p, uint32_t w, uint64_t *later) {
    memset(later, 0, p->chunks * sizeof *later);
    for (uint32_t i = p->first[w]; i < p->first[w + 1]; i++) {
        const struct sim_chunk *c = list_chunk(p, p->cells_at[i]);
        later[p->chunk_of[p->cells_at[i]]] = list_need(c);
    }
    uint64_t sum = 0;
    for (uint32_t c = p->chunks; c-- > 0;) {
        uint64_t own = later[c];
        later[c] = sum;
        sum += own;
    }
    for (uint32_t i = p->first[w]; i < p->first[w + 1]; i++) {
        uint32_t cell = p->cells_at[i];
        uint64_t most = p->costs->limit[w] - list_need(list_chunk(p, cell));
        p->reserve[cell] = later[p->chunk_of[cell]] < most ? later[p->chunk_of[cell]] : most;
    }
}

static pawl_code fill_reserve(struct list_problem *p, struct pawl_error *e) {
    bool any = false;
    for (uint32_t w = 0; w < p->workers; w++) any = any || p->several[w];
    if (!any || !p->costs->limit) return PAWL_OK;
    uint64_t *later = malloc(p->chunks * sizeof *later);
    p->reserve = calloc(p->cells, sizeof *p->reserve);
    if (!later || !p->reserve) {
        free(later);
        return error_set(e, PAWL_MEMORY, 0, "no memory to schedule %u cells", p->cells);
    }
    for (uint32_t w = 0; w < p->workers; w++)
        if (p->several[w]) reserve_of_worker(p, w, later);
    free(later);
    return PAWL_OK;
}

static void fill_tails(struct list_problem *p) {
    for (uint32_t w = 0; w < p->workers; w++) {
        const struct ir_worker *holder = &p->plan->workers[w];
        for (uint32_t i = 0; i < holder->hold_count; i++) {
            uint32_t c = holder->holds[i];
            uint64_t tail = p->costs->chunk[c].reduce + sim_duration(p->costs, w, c, IR_S);
            p->tail[w] += tail;
            if (tail > p->chunk_tail[c]) p->chunk_tail[c] = tail;
        }
    }
}

/* By how much the work of a chunk is over before the end of the iteration, which is the first stage's: by its
 * distance from there; where stages share, also by R and S and what the route wants it to be early. */
static void fill_over(struct list_problem *p) {
    const uint64_t *early = p->route->early;
    uint64_t reach = 0;
    for (uint32_t c = p->chunks; c-- > 0;) {
        p->over[c] = reach;
        if (early != NULL) p->over[c] = ticks_add(p->over[c], ticks_add(early[c], p->chunk_tail[c]));
        if (c > 0) reach += p->costs->chunk[c - 1].forward + p->costs->chunk[c - 1].send_forward;
    }
}

static pawl_code allocate(struct list_problem *p, struct pawl_error *e) {
    p->chunk_of = malloc(p->cells * sizeof *p->chunk_of);
    p->ticks = malloc((size_t)p->chunks * LIST_OPS * sizeof *p->ticks);
    p->plain = calloc(p->workers, sizeof *p->plain);
    p->several = calloc(p->workers, sizeof *p->several);
    p->first = calloc((size_t)p->workers + 2, sizeof *p->first);
    p->cells_at = malloc(p->cells * sizeof *p->cells_at);
    p->tail = calloc(p->workers, sizeof *p->tail);
    p->chunk_tail = calloc(p->chunks, sizeof *p->chunk_tail);
    p->over = calloc(p->chunks, sizeof *p->over);
    if (p->tail && p->chunk_tail && p->over && p->chunk_of && p->ticks && p->plain && p->several &&
        p->first && p->cells_at)
        return PAWL_OK;
    return error_set(e, PAWL_MEMORY, 0, "no memory to schedule %u cells", p->cells);
}

pawl_code list_problem_open(const struct plan_route *route, const struct sim_costs *costs,
                            const struct plan_list_options *options, struct list_problem *out,
                            struct pawl_error *e) {
    uint64_t cells = (uint64_t)route->pipelines * route->chunks * route->microbatches;
    memset(out, 0, sizeof *out);
    if (cells == 0 || cells > LIST_CELLS_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "%llu micro-batches of chunks: 1 to %u can be scheduled",
                         (unsigned long long)cells, LIST_CELLS_MAX);
    if (costs->chunks != route->chunks || costs->pipelines != route->pipelines ||
        costs->stages != route->stages)
        return error_set(e, PAWL_ARGUMENT, 0, "the costs are of another shape than the route");
    out->route = route, out->costs = costs, out->options = options;
    out->workers = route->pipelines * route->stages, out->chunks = route->chunks;
    out->microbatches = route->microbatches, out->cells = (uint32_t)cells;
    out->split = options->backward != PLAN_FUSED;
    out->kinds = options->recompute || options->offload ? LIST_OPS : 3;
    pawl_code code = allocate(out, e);
    if (code) goto done;
    for (uint32_t cell = 0; cell < out->cells; cell++)
        out->chunk_of[cell] = (uint16_t)(cell / out->microbatches % out->chunks);
    fill_ticks(out);
    code = fill_workers(out, e);
    if (code) goto done;
    fill_cells(out);
    code = check_limits(out, e);
    if (code) goto done;
    code = fill_reserve(out, e);
    if (!code) code = plan_route_plan(route, &out->plan, e);
    if (!code) fill_tails(out);
    if (!code) fill_over(out);
done:
    if (code) list_problem_close(out);
    return code;
}

void list_problem_close(struct list_problem *p) {
    free(p->chunk_of);
    free(p->ticks);
    free(p->plain);
    free(p->several);
    free(p->first);
    free(p->cells_at);
    free(p->reserve);
    free(p->tail);
    free(p->chunk_tail);
    free(p->over);
    ir_plan_free(p->plan);
    memset(p, 0, sizeof *p);
}
