/* What workers give each other: versions and reduced gradients, on a GO and ahead of a join. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "run/worker_state.h"

static void words_of_report(const struct coord_report *r, uint64_t *words) {
    words[0] = r->iteration;
    memcpy(&words[1], &r->norm2, sizeof words[1]);
    words[2] = (uint64_t)r->loss;
    words[3] = r->nonfinite;
    words[4] = r->overflow;
}

static struct coord_report report_of_words(const uint64_t *words) {
    struct coord_report r = {
        .iteration = words[0], .loss = (int64_t)words[2], .nonfinite = words[3], .overflow = words[4]};
    memcpy(&r.norm2, &words[1], sizeof r.norm2);
    return r;
}

/* ---- asking ---- */

static pawl_code fetch_state(struct worker *w, struct holding *h, uint32_t from, uint64_t version,
                             struct pawl_error *e) {
    struct version *buffer;
    pawl_code code = versions_take(&h->versions, true, &buffer, e);
    if (code != PAWL_OK) return code;
    struct transfer t = {.kind = TRANSFER_STATE,
                         .peer = from,
                         .chunk = holding_chunk(h),
                         .version = version,
                         .data = buffer->region,
                         .bytes = buffer->bytes,
                         .context = h,
                         .buffer = buffer};
    return transfers_begin(&w->transfers, &w->peers, &t, e);
}

static pawl_code fetch_grad(struct worker *w, struct holding *h, uint32_t from, uint64_t iteration,
                            struct pawl_error *e) {
    struct transfer t = {.kind = TRANSFER_GRAD,
                         .peer = from,
                         .chunk = holding_chunk(h),
                         .version = iteration,
                         .data = (uint8_t *)h->grad,
                         .bytes = h->stage->param_count * sizeof *h->grad,
                         .context = h};
    return transfers_begin(&w->transfers, &w->peers, &t, e);
}

pawl_code worker_fetch(struct worker *w, struct holding *h, struct coord_pair pair, struct pawl_error *e) {
    h->fetches_state = (pair.flags & COORD_FETCH_STATE) != 0;
    h->fetches_grad = (pair.flags & COORD_FETCH_GRAD) != 0;
    uint64_t iteration = w->go.version - (w->go.settle ? 1 : 0);
    pawl_code code = PAWL_OK;
    if (h->fetches_state) code = fetch_state(w, h, pair.source, w->go.version, e);
    if (code == PAWL_OK && h->fetches_grad) code = fetch_grad(w, h, pair.source, iteration, e);
    if (h->fetches_state || h->fetches_grad) fault_arrive(FAULT_FETCH);
    return code;
}

/* ---- giving ---- */

static pawl_code give_state(struct worker *w, struct holding *h, uint32_t to, struct pawl_error *e) {
    versions_hold(h->base);
    struct transfer t = {.sends = true,
                         .kind = TRANSFER_STATE,
                         .peer = to,
                         .chunk = holding_chunk(h),
                         .version = h->base->number,
                         .data = h->base->region,
                         .bytes = h->base->bytes,
                         .words = {h->base->number, h->base->updates},
                         .context = h,
                         .buffer = h->base};
    return transfers_begin(&w->transfers, &w->peers, &t, e);
}

static pawl_code give_grad(struct worker *w, struct holding *h, uint32_t to, struct pawl_error *e) {
    h->grad_sends++;
    struct transfer t = {.sends = true,
                         .kind = TRANSFER_GRAD,
                         .peer = to,
                         .chunk = holding_chunk(h),
                         .version = h->base->number,
                         .data = (uint8_t *)h->grad,
                         .bytes = h->stage->param_count * sizeof *h->grad,
                         .context = h};
    words_of_report(&h->report, t.words);
    return transfers_begin(&w->transfers, &w->peers, &t, e);
}

pawl_code worker_give(struct worker *w, struct worker_give give, struct pawl_error *e) {
    struct holding *h = worker_find(w, give.chunk);
    pawl_code code =
        give.flags == COORD_FETCH_STATE ? give_state(w, h, give.rank, e) : give_grad(w, h, give.rank, e);
    fault_arrive(FAULT_GIVE);
    return code;
}

/* ---- ahead of a join ---- */

static pawl_code take_ahead(struct worker *w, const struct message *m, struct pawl_error *e) {
    struct holding *h = worker_find(w, m->chunk);
    pawl_code code = PAWL_OK;
    if (h == NULL) {
        code = worker_make_holding(w, m->chunk, &h, e);
        if (code == PAWL_OK) h->use = HOLDING_PREPARED;
    }
    return code == PAWL_OK ? fetch_state(w, h, m->peer, m->version, e) : code;
}

pawl_code worker_prepare(struct worker *w, const struct message *m, struct pawl_error *e) {
    bool takes = m->rank == w->peers.rank;
    if ((!takes && m->peer != w->peers.rank) || m->rank >= w->peers.rank_count ||
        m->peer >= w->peers.rank_count || m->rank == m->peer || m->chunk >= w->spec.parallel.stages)
        return error_set(e, PAWL_FORMAT, 0, "told to prepare chunk %u of rank %u from rank %u", m->chunk,
                         m->rank, m->peer);
    if (m->view < w->peers.view) return PAWL_OK; /* a fence was first */
    /* Who was never fenced hears of the view here. */
    if (m->view > w->peers.view && w->phase == WORKER_FENCED && w->go.plan == NULL)
        peers_fence(&w->peers, m->view);
    if (m->view != w->peers.view)
        return error_set(e, PAWL_INTERNAL, 0, "told to prepare in view %llu, but it is view %llu",
                         (unsigned long long)m->view, (unsigned long long)w->peers.view);
    if (w->inject != NULL) inject_self_at(w->inject, m->version); /* who joins begins nothing before this */
    struct holding *h = worker_find(w, m->chunk);
    pawl_code code = PAWL_OK;
    if (takes) {
        code = take_ahead(w, m, e);
    } else {
        /* What is not there now is fetched at the fence. */
        if (h == NULL || h->base == NULL || h->base->number != m->version) return PAWL_OK;
        code = give_state(w, h, m->rank, e);
    }
    fault_arrive(FAULT_PREPARE);
    return code;
}

/* ---- completions ---- */

static pawl_code take_state(struct worker *w, struct holding *h, const struct transfer *t,
                            struct pawl_error *e) {
    t->buffer->number = t->words[0];
    t->buffer->updates = t->words[1];
    if (t->words[1] > t->words[0]) {
        versions_drop(t->buffer);
        return error_set(e, PAWL_FORMAT, 0, "version %llu from rank %u is of %llu updates",
                         (unsigned long long)t->words[0], t->peer, (unsigned long long)t->words[1]);
    }
    holding_adopt(h, t->buffer);
    if (h->fetches_state) {
        h->fetches_state = false;
        return worker_move_in(w, e);
    }
    struct message m = {.kind = MESSAGE_PREPARED, .chunk = t->chunk, .version = t->version};
    return channel_send(w->env.channel, &m, e);
}

static pawl_code take_grad(struct worker *w, struct holding *h, const struct transfer *t,
                           struct pawl_error *e) {
    h->report = report_of_words(t->words);
    h->fetches_grad = false;
    h->has_grad = true;
    return worker_move_in(w, e);
}

pawl_code worker_transfer_completion(struct worker *w, const struct net_completion *c, struct pawl_error *e) {
    struct transfer *t;
    pawl_code code = transfers_completion(&w->transfers, &w->peers, c, &t, e);
    if (code != PAWL_OK || t == NULL) return code;
    struct holding *h = t->context;
    if (t->sends && t->kind == TRANSFER_STATE) versions_drop(t->buffer);
    if (t->sends && t->kind == TRANSFER_GRAD) h->grad_sends--;
    if (!t->sends) code = t->kind == TRANSFER_STATE ? take_state(w, h, t, e) : take_grad(w, h, t, e);
    free(t);
    return code;
}

void worker_cancel_transfers(struct worker *w) {
    for (struct transfer *t; (t = transfers_take(&w->transfers)) != NULL;) {
        versions_drop(t->buffer); /* a GRAD has none */
        free(t);
    }
}
