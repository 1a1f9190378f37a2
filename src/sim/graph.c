/* Opening the graph of graph.h, with the indexes that building it needs, and the pass over it. */
#include "sim/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "sim/graph_build.h"

/* ---- indexes ---- */

/* What an instruction adds to the number of nodes, besides itself. */
static void index_list(struct graph_build *b, uint32_t worker, uint32_t *offloads, uint32_t *reduces) {
    const struct ir_worker *list = &b->plan->workers[worker];
    for (uint32_t i = 0; i < list->count; i++) {
        const struct ir_instruction *in = &list->instructions[i];
        uint32_t index = b->g->first[worker] + i;
        if (in->op == IR_F)
            b->forward[graph_cell(b->plan, in->home, in->chunk, in->microbatch)] = index;
        else if (in->op == IR_I || in->op == IR_B)
            b->backward[graph_cell(b->plan, in->home, in->chunk, in->microbatch)] = index;
        else if (in->op == IR_O)
            ++*offloads;
        else if (in->op == IR_R)
            ++*reduces;
    }
}

static uint32_t *table_new(uint64_t count) {
    uint32_t *table = malloc((count > 0 ? count : 1) * sizeof *table);
    if (table != NULL) memset(table, 0xff, count * sizeof *table); /* all GRAPH_NONE */
    return table;
}

static bool index_offloads(struct graph_build *b, uint64_t cells) {
    b->offload = table_new(cells);
    b->load = table_new(cells);
    if (b->offload == NULL || b->load == NULL) return false;
    for (uint32_t w = 0; w < b->g->workers; w++) {
        const struct ir_worker *list = &b->plan->workers[w];
        for (uint32_t i = 0; i < list->count; i++) {
            const struct ir_instruction *in = &list->instructions[i];
            if (in->op != IR_O) continue;
            b->offload[graph_cell(b->plan, in->home, in->chunk, in->microbatch)] = b->g->first[w] + i;
        }
    }
    return true;
}

/* A chunk that workers of one stage hold lies within the spans of that stage; only the others need a source
 * and a span of their own. */
static void find_spread(struct graph_build *b) {
    for (uint32_t w = 0; w < b->g->workers; w++) {
        const struct ir_worker *list = &b->plan->workers[w];
        for (uint32_t i = 0; i < list->hold_count; i++) {
            struct graph_chunk *c = &b->chunk[list->holds[i]];
            if (c->stage == GRAPH_NONE) c->stage = w % b->plan->stages;
            if (c->stage != w % b->plan->stages) c->spread = b->g->chunk_sources = true;
        }
    }
}

static bool index_holders(struct graph_build *b) {
    uint32_t holds = 0;
    for (uint32_t c = 0; c < b->plan->chunks; c++)
        b->chunk[c] = (struct graph_chunk){0, GRAPH_NONE, GRAPH_NONE, GRAPH_NONE, false};
    for (uint32_t w = 0; w < b->g->workers; w++) {
        const struct ir_worker *list = &b->plan->workers[w];
        b->worker[w] = (struct graph_worker){.last = w,
                                             .waits_for = GRAPH_NONE,
                                             .copy_out = GRAPH_NONE,
                                             .copy_in = GRAPH_NONE,
                                             .touched = holds};
        holds += list->hold_count;
        for (uint32_t i = 0; i < list->hold_count; i++) b->chunk[list->holds[i]].missing++;
    }
    b->touched = table_new(holds);
    b->g->mark = calloc((uint64_t)b->g->workers + holds, sizeof *b->g->mark);
    return b->touched != NULL && b->g->mark != NULL;
}

static bool open_tables(struct graph_build *b) {
    struct graph *g = b->g;
    uint64_t cells = (uint64_t)b->plan->pipelines * b->plan->chunks * b->plan->microbatches;
    uint32_t offloads = 0, reduces = 0;
    b->forward = table_new(cells);
    b->backward = table_new(cells);
    b->worker = calloc(g->workers, sizeof *b->worker);
    b->chunk = calloc(b->plan->chunks, sizeof *b->chunk);
    b->stack = calloc(g->workers, sizeof *b->stack);
    g->of = table_new(g->instructions);
    if (b->forward == NULL || b->backward == NULL || b->worker == NULL || b->chunk == NULL ||
        b->stack == NULL || g->of == NULL || !index_holders(b))
        return false;
    find_spread(b);
    g->source_count = g->workers + (g->chunk_sources ? b->plan->chunks : 0);
    for (uint32_t w = 0; w < g->workers; w++) index_list(b, w, &offloads, &reduces);
    if (offloads > 0 && !index_offloads(b, cells)) return false;
    uint64_t touches = 0;
    for (uint32_t w = 0; g->chunk_sources && w < g->workers; w++) touches += b->plan->workers[w].hold_count;
    g->node =
        malloc((g->source_count + (uint64_t)g->instructions + 2 * (uint64_t)offloads + reduces + touches) *
               sizeof *g->node);
    g->count = g->source_count; /* they have no predecessors, hence no content */
    return g->node != NULL;
}

static void close_tables(struct graph_build *b) {
    free(b->forward);
    free(b->backward);
    free(b->offload);
    free(b->load);
    free(b->worker);
    free(b->chunk);
    free(b->touched);
    free(b->stack);
}

static void mark_ends(struct graph_build *b) {
    struct graph *g = b->g;
    for (uint32_t w = 0; w < g->workers; w++) {
        const struct ir_worker *list = &b->plan->workers[w];
        if (list->count == 0) continue;
        g->mark[g->mark_count++] = (struct graph_mark){b->worker[w].last, w % b->plan->stages, w};
        for (uint32_t i = 0; g->chunk_sources && i < list->hold_count; i++) {
            uint32_t node = b->touched[b->worker[w].touched + i];
            if (node != GRAPH_NONE)
                g->mark[g->mark_count++] = (struct graph_mark){node, b->plan->stages + list->holds[i], w};
        }
    }
}

/* ---- the graph ---- */

static pawl_code count_instructions(struct graph *g, struct pawl_error *e) {
    const struct ir_plan *plan = g->plan;
    if (plan->pipelines != g->costs->pipelines || plan->stages != g->costs->stages ||
        plan->chunks != g->costs->chunks)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "simulation: the plan has %u x %u workers and %u chunks, the costs %u x %u and %u",
                         plan->pipelines, plan->stages, plan->chunks, g->costs->pipelines, g->costs->stages,
                         g->costs->chunks);
    g->workers = plan->pipelines * plan->stages;
    g->first = calloc((uint64_t)g->workers + 1, sizeof *g->first);
    if (g->first == NULL)
        return error_set(e, PAWL_MEMORY, 0, "simulation: no memory for %u workers", g->workers);
    uint64_t sum = 0;
    for (uint32_t w = 0; w < g->workers; w++) {
        sum += plan->workers[w].count;
        if (sum > UINT32_MAX / 4) /* with their waits the nodes stay below GRAPH_NONE */
            return error_set(e, PAWL_ARGUMENT, 0, "simulation: more than %u instructions", UINT32_MAX / 4);
        g->first[w + 1] = (uint32_t)sum;
    }
    g->instructions = (uint32_t)sum;
    return PAWL_OK;
}

pawl_code graph_open(const struct ir_plan *plan, const struct sim_costs *costs, struct graph *out,
                     struct pawl_error *e) {
    *out = (struct graph){.plan = plan, .costs = costs};
    struct graph_build b = {.g = out, .plan = plan};
    pawl_code code = count_instructions(out, e);
    if (code != PAWL_OK) goto done;
    if (!open_tables(&b)) {
        code = error_set(e, PAWL_MEMORY, 0, "simulation: no memory for %u instructions", out->instructions);
        goto done;
    }
    code = graph_build(&b, e);
    if (code == PAWL_OK) mark_ends(&b);
done:
    close_tables(&b);
    if (code != PAWL_OK) graph_close(out);
    return code;
}

void graph_close(struct graph *g) {
    free(g->first);
    free(g->of);
    free(g->node);
    free(g->mark);
    *g = (struct graph){0};
}

/* ---- passes ---- */

void graph_pass(const struct graph *g, uint64_t *end) {
    for (uint32_t v = g->source_count; v < g->count; v++) {
        const struct graph_node *n = &g->node[v];
        uint64_t before = end[n->before], message = end[n->message] + n->lag;
        end[v] = (before > message ? before : message) + n->duration;
    }
}

void graph_pass_origin(const struct graph *g, uint64_t *end, uint16_t *origin) {
    for (uint32_t v = g->source_count; v < g->count; v++) {
        const struct graph_node *n = &g->node[v];
        uint64_t before = end[n->before], message = end[n->message] + n->lag;
        bool later = message > before;
        end[v] = (later ? message : before) + n->duration;
        origin[v] = origin[later ? n->message : n->before];
    }
}
