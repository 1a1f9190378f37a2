/* Go: from what is there to the version that starts, as the GO says for each pair. */
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "run/worker_state.h"

/* ---- the message ---- */

static pawl_code check_sizes(const struct worker *w, const struct go *g, struct pawl_error *e) {
    if (w->phase != WORKER_FENCED || g->view != w->peers.view)
        return error_set(e, PAWL_INTERNAL, 0, "go of view %llu in view %llu, %s", (unsigned long long)g->view,
                         (unsigned long long)w->peers.view,
                         w->phase == WORKER_FENCED ? "fenced" : "which is not fenced");
    if (g->ranks != w->peers.rank_count || g->chunks != w->spec.parallel.stages ||
        g->plan->total != spec_contributions(&w->spec))
        return error_set(e, PAWL_PLAN, 0,
                         "go of %u ranks, %u chunks and %u micro-batches; wanted %u, %u and %llu", g->ranks,
                         g->chunks, g->plan->total, w->peers.rank_count, w->spec.parallel.stages,
                         (unsigned long long)spec_contributions(&w->spec));
    return PAWL_OK;
}

static pawl_code take_go(struct worker *w, const struct message *m, struct go *g, struct pawl_error *e) {
    pawl_code code = go_decode(m->data, m->data_bytes, g, e);
    if (code == PAWL_OK) code = check_sizes(w, g, e);
    if (code == PAWL_OK) code = ir_check_rest(g->plan, NULL, g->done, NULL, e); /* the whole plan too */
    if (code == PAWL_OK) code = exec_runs(g->plan, e);
    return code;
}

/* The chunk's gradient of the iteration that starts is held by all its pairs, or fetched: everything is done,
 * and nobody keeps sums of it. Were it not held, whoever did something would keep its sums. */
static bool is_reduced(const struct go *g, uint32_t chunk) {
    if (g->done == NULL || g->settle) return false;
    for (uint32_t m = 0; m < g->plan->total; m++)
        if (!ir_is_done(g->plan, g->done, chunk, m)) return false;
    for (uint32_t r = 0; r < g->ranks; r++)
        if (g->pairs[(uint64_t)r * g->chunks + chunk].flags & COORD_KEEP_WORK) return false;
    return true;
}

static pawl_code find_reduced(struct worker *w, struct pawl_error *e) {
    bool *reduced = realloc(w->reduced, w->go.chunks * sizeof *reduced);
    if (reduced == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u chunks", w->go.chunks);
    w->reduced = reduced;
    for (uint32_t c = 0; c < w->go.chunks; c++) reduced[c] = is_reduced(&w->go, c);
    return PAWL_OK;
}

static struct coord_pair own_pair(const struct worker *w, uint32_t chunk) {
    return w->go.pairs[(uint64_t)w->peers.rank * w->go.chunks + chunk];
}

/* ---- holdings ---- */

/* It stays a source until the first decision. */
static void retire(const struct worker *w, struct holding *h) {
    h->use = HOLDING_RETIRED;
    h->keeps_work = h->reported = false;
    h->reduced = w->reduced[holding_chunk(h)];
    holding_drop_work(h);
    if (!w->go.settle || w->go.verdict != COORD_ACCEPT) holding_drop_tentative(h);
    if (!w->go.settle && !h->reduced) h->has_grad = false;
    if (w->go.restore || h->base == NULL) {
        holding_forget(h);
        h->use = HOLDING_OVER;
    }
}

static pawl_code hold_planned(struct worker *w, struct pawl_error *e) {
    struct holding **planned = realloc(w->planned, w->go.chunks * sizeof *planned);
    if (planned == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u chunks", w->go.chunks);
    w->planned = planned;
    w->planned_count = 0;
    for (uint32_t i = 0; i < w->holding_count; i++) {
        struct holding *h = w->holdings[i];
        if (h->use != HOLDING_OVER && !own_pair(w, holding_chunk(h)).held) retire(w, h);
    }
    pawl_code code = PAWL_OK;
    for (uint32_t c = 0; c < w->go.chunks && code == PAWL_OK; c++) {
        if (!own_pair(w, c).held) continue;
        struct holding *h = worker_find(w, c);
        if (h == NULL) code = worker_make_holding(w, c, &h, e);
        if (code == PAWL_OK) planned[w->planned_count++] = h;
    }
    return code;
}

static pawl_code mismatch(const struct worker *w, const struct holding *h, const char *what,
                          struct pawl_error *e) {
    return error_set(e, PAWL_INTERNAL, 0, "go to version %llu: chunk %u %s (version %llu, sums of %lld)",
                     (unsigned long long)w->go.version, holding_chunk(h), what,
                     h->base != NULL ? (unsigned long long)h->base->number : 0, (long long)h->work);
}

/* What a pair has that does not load: it stays, is dropped, or is fetched. */
static pawl_code take_pair(struct worker *w, struct holding *h, struct pawl_error *e) {
    const struct go *g = &w->go;
    struct coord_pair pair = own_pair(w, holding_chunk(h));
    bool state = (pair.flags & COORD_FETCH_STATE) != 0, grad = (pair.flags & COORD_FETCH_GRAD) != 0;
    if (state) holding_forget(h);
    if (!state && (h->base == NULL || h->base->number != g->version - (g->settle ? 1 : 0)))
        return mismatch(w, h, "is at another version", e);
    if (!g->settle || g->verdict != COORD_ACCEPT) holding_drop_tentative(h);
    if (grad || (!g->settle && !h->reduced)) h->has_grad = false;
    if (!state && !grad && (g->settle || h->reduced) && !h->has_grad)
        return mismatch(w, h, "has no gradient", e);
    if (h->keeps_work && (h->work != g->version || h->work_shift != g->shift))
        return mismatch(w, h, "has no sums to keep", e);
    if (!h->keeps_work) holding_drop_work(h);
    return worker_fetch(w, h, pair, e);
}

static pawl_code take_pairs(struct worker *w, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < w->planned_count && code == PAWL_OK; i++) {
        struct holding *h = w->planned[i];
        uint32_t chunk = holding_chunk(h);
        h->use = HOLDING_PLANNED;
        h->reported = false;
        h->reduced = w->reduced[chunk];
        h->keeps_work = (own_pair(w, chunk).flags & COORD_KEEP_WORK) != 0;
        if (!w->go.restore) code = take_pair(w, h, e);
    }
    return code;
}

static pawl_code list_gives(struct worker *w, struct pawl_error *e) {
    const struct go *g = &w->go;
    uint64_t pairs = (uint64_t)g->ranks * g->chunks;
    uint32_t count = 0;
    for (uint64_t i = 0; i < pairs; i++) count += g->pairs[i].held && g->pairs[i].source == w->peers.rank;
    struct worker_give *gives = realloc(w->gives, (count + 1) * sizeof *gives);
    if (gives == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory to give to %u peers", count);
    w->gives = gives;
    w->give_count = 0;
    for (uint64_t i = 0; i < pairs; i++) {
        const struct coord_pair *p = &g->pairs[i];
        if (!p->held || p->source != w->peers.rank) continue;
        gives[w->give_count++] = (struct worker_give){(uint32_t)(i / g->chunks), (uint32_t)(i % g->chunks),
                                                      p->flags & (COORD_FETCH_STATE | COORD_FETCH_GRAD)};
    }
    return PAWL_OK;
}

/* ---- the executor and the reductions ---- */

static uint32_t own_role(const struct worker *w) {
    uint32_t roles = w->go.plan->pipelines * w->go.plan->stages, role = 0;
    while (role < roles && w->go.rank_of_role[role] != w->peers.rank) role++;
    return role < roles ? role : UINT32_MAX;
}

static pawl_code arm(struct worker *w, struct pawl_error *e) {
    const struct go *g = &w->go;
    struct reduce_holders holders = {g->pairs, g->ranks, g->chunks, w->reduced};
    struct reduce *ends[2] = {NULL, NULL};
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < w->planned_count && code == PAWL_OK; i++) {
        struct reduce *r = &w->planned[i]->reduce;
        code = reduce_members(r, &holders, e);
        r->other = NULL;
        if (r->shared_tensor != UINT32_MAX) ends[r->stage->index != 0] = r;
    }
    if (ends[0] != NULL && ends[1] != NULL) {
        ends[0]->other = ends[1];
        ends[1]->other = ends[0];
    }
    if (code != PAWL_OK || w->planned_count == 0) return code;
    return exec_plan(&w->exec, g->plan, g->rank_of_role, own_role(w), w->planned, e);
}

/* ---- moving in ---- */

static pawl_code give_what_is_there(struct worker *w, unsigned what, struct pawl_error *e) {
    uint64_t version = w->go.version - (what == COORD_FETCH_GRAD && w->go.settle ? 1 : 0);
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < w->give_count && code == PAWL_OK; i++) {
        struct worker_give *give = &w->gives[i];
        const struct holding *h = worker_find(w, give->chunk);
        if ((give->flags & what) == 0 || h == NULL || h->base == NULL || h->base->number != version ||
            (what == COORD_FETCH_GRAD && !h->has_grad))
            continue;
        give->flags &= ~what;
        code = worker_give(w, (struct worker_give){give->rank, give->chunk, what}, e);
    }
    return code;
}

static pawl_code settle_all(struct worker *w, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; w->go.settle && i < w->holding_count && code == PAWL_OK; i++) {
        struct holding *h = w->holdings[i];
        bool here = h->use == HOLDING_PLANNED || h->use == HOLDING_RETIRED;
        if (!here || !h->has_grad || h->base == NULL || h->base->number + 1 != w->go.version) continue;
        fault_arrive(FAULT_SETTLE);
        code = holding_settle(h, &w->adamw, w->go.verdict, w->go.clip, e);
    }
    return code;
}

static bool is_ready(const struct worker *w, const struct holding *h) {
    return h->base != NULL && h->base->number == w->go.version && !h->fetches_state && !h->fetches_grad &&
           (!h->reduced || h->has_grad);
}

static pawl_code report_reduced(struct worker *w, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < w->planned_count && code == PAWL_OK; i++) {
        struct holding *h = w->planned[i];
        if (!h->reduced || h->reported || !is_ready(w, h)) continue;
        code = worker_report(w, h, e);
        if (code == PAWL_OK) code = reduce_give(&h->reduce, w->go.version, e);
    }
    return code;
}

pawl_code worker_move_in(struct worker *w, struct pawl_error *e) {
    if (w->phase != WORKER_FETCH) return PAWL_OK;
    pawl_code code = give_what_is_there(w, COORD_FETCH_GRAD, e); /* before it is used up */
    if (code == PAWL_OK) code = settle_all(w, e);
    if (code == PAWL_OK) code = give_what_is_there(w, COORD_FETCH_STATE, e);
    if (code == PAWL_OK) code = report_reduced(w, e);
    for (uint32_t i = 0; i < w->planned_count && code == PAWL_OK; i++)
        if (!is_ready(w, w->planned[i])) return PAWL_OK;
    for (uint32_t i = 0; i < w->give_count && code == PAWL_OK; i++)
        if (w->gives[i].flags != 0)
            return error_set(e, PAWL_INTERNAL, 0, "rank %u is to be given what is not there of chunk %u",
                             w->gives[i].rank, w->gives[i].chunk);
    return code == PAWL_OK ? worker_begin(w, w->go.version, w->go.done, e) : code;
}

pawl_code worker_go(struct worker *w, const struct message *m, struct pawl_error *e) {
    if (w->phase == WORKER_LEAVING) return PAWL_OK;
    struct go go;
    pawl_code code = take_go(w, m, &go, e);
    if (code != PAWL_OK) {
        go_close(&go);
        return code;
    }
    go_close(&w->go);
    w->go = go;
    if (w->inject != NULL) inject_self_at(w->inject, go.version);
    fault_arrive(FAULT_GO);
    w->final = go.version;
    w->optimistic = go.optimistic;
    w->shift = go.shift;
    w->phase = WORKER_FETCH;
    code = worker_enter_ckpt(w, e);
    if (code == PAWL_OK) code = find_reduced(w, e);
    if (code == PAWL_OK) code = hold_planned(w, e);
    if (code == PAWL_OK) code = list_gives(w, e);
    if (code == PAWL_OK) code = take_pairs(w, e);
    if (code == PAWL_OK && go.restore) code = worker_load(w, e);
    if (code == PAWL_OK) code = arm(w, e);
    if (code == PAWL_OK) code = worker_greet(w, e);
    return code == PAWL_OK ? worker_move_in(w, e) : code;
}
