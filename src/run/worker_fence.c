/* Fence: stop, drop what is in flight, say what is there. */
#include <stdlib.h>

#include "base/fault.h"
#include "run/worker_state.h"

static struct fenced_pair pair_of(const struct holding *h) {
    struct fenced_pair f = {.pair = {.chunk = holding_chunk(h),
                                     .version = h->base->number,
                                     .has_report = h->has_grad,
                                     .work = h->work}};
    if (h->has_grad) f.pair.report = h->report;
    if (h->work == COORD_NO_WORK) return f;
    f.pair.work_shift = h->work_shift;
    f.total = h->total;
    f.bits = h->bits;
    return f;
}

static int by_chunk(const void *a, const void *b) {
    const struct fenced_pair *x = a, *y = b;
    return (x->pair.chunk > y->pair.chunk) - (x->pair.chunk < y->pair.chunk);
}

static void list(const struct worker *w, struct fenced *f) {
    for (uint32_t i = 0; i < w->holding_count; i++) {
        const struct holding *h = w->holdings[i];
        if (h->use != HOLDING_OVER && h->base != NULL) f->pairs[f->pair_count++] = pair_of(h);
    }
    qsort(f->pairs, f->pair_count, sizeof *f->pairs, by_chunk); /* a holding is where there was room for it */
    for (uint32_t i = 0; i < w->save_count; i++) {
        const struct worker_save *s = &w->saves[i];
        if (s->told_end) continue;
        f->saves[f->save_count++] = (struct coord_fenced_save){.version = s->version,
                                                               .chunk = s->chunk,
                                                               .part = s->part,
                                                               .parts = s->parts,
                                                               .answered = s->state == SAVE_ANSWERED,
                                                               .ok = s->ok};
    }
}

/* Of which iteration optimism and shift are. A holding without a role stays where it is until the next
 * decision: who has nothing newer knows neither. */
static bool has_final(const struct worker *w) {
    for (uint32_t i = 0; i < w->holding_count; i++) {
        const struct holding *h = w->holdings[i];
        if (h->use != HOLDING_OVER && h->base != NULL && h->base->number == w->final) return true;
    }
    return false;
}

static pawl_code answer(struct worker *w, struct pawl_error *e) {
    bool knows = has_final(w);
    struct fenced f = {.has_durable = w->has_durable,
                       .durable = w->durable,
                       .incarnation = w->incarnation,
                       .optimistic = knows && w->optimistic,
                       .shift = knows ? w->shift : 0};
    struct bytes data = {0};
    f.pairs = calloc((size_t)w->holding_count + 1, sizeof *f.pairs);
    f.saves = calloc((size_t)w->save_count + 1, sizeof *f.saves);
    pawl_code code = PAWL_OK;
    if (f.pairs != NULL && f.saves != NULL) list(w, &f), fenced_encode(&f, &data);
    if (f.pairs == NULL || f.saves == NULL || data.failed)
        code = error_set(e, PAWL_MEMORY, 0, "no memory to answer a fence");
    struct message m = {
        .kind = MESSAGE_FENCED, .view = w->peers.view, .data = data.data, .data_bytes = data.size};
    if (code == PAWL_OK) code = channel_send(w->env.channel, &m, e);
    free(f.pairs);
    free(f.saves);
    bytes_close(&data);
    return code;
}

pawl_code worker_fence(struct worker *w, const struct message *m, struct pawl_error *e) {
    if (w->phase == WORKER_LEAVING) return PAWL_OK; /* it takes part in nothing any more */
    if (m->view <= w->peers.view)
        return error_set(e, PAWL_INTERNAL, 0, "fence of view %llu in view %llu", (unsigned long long)m->view,
                         (unsigned long long)w->peers.view);
    peers_fence(&w->peers, m->view);
    exec_drop(&w->exec);
    worker_cancel_transfers(w);
    w->give_count = 0;
    for (uint32_t i = 0; i < w->holding_count; i++) {
        struct holding *h = w->holdings[i];
        reduce_drop(&h->reduce);
        h->grad_sends = 0;
        h->fetches_state = h->fetches_grad = false;
    }
    w->phase = WORKER_FENCED;
    worker_note_at(w);
    fault_arrive(FAULT_FENCED);
    pawl_code code = worker_accuse(w, e);
    return code == PAWL_OK ? answer(w, e) : code;
}
