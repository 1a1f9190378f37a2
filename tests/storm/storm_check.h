/* What must hold at any time: every final version has the bits of the undisturbed run, and nobody who goes on
 * loses work that counts. */
#ifndef STORM_CHECK_H
#define STORM_CHECK_H

#include "storm_cluster.h"

static void check_version(const struct cluster *c, const struct stage *stage, const struct version *have) {
    const struct version *want = reference_version(&c->reference, stage->index, have->number);
    size_t bytes = stage->param_count * sizeof(float);
    if (memcmp(have->params, want->params, bytes) != 0) fail_seed(c, "parameters differ from the reference");
    if (memcmp(have->exp_avg, want->exp_avg, bytes) != 0 ||
        memcmp(have->exp_avg_sq, want->exp_avg_sq, bytes) != 0)
        fail_seed(c, "moments differ from the reference");
    if (memcmp(have->exponents, want->exponents, stage->tensor_count * sizeof(int32_t)) != 0 ||
        have->updates != want->updates)
        fail_seed(c, "exponents or update count differ from the reference");
}

static void check_bits(struct cluster *c, uint32_t rank) {
    struct place *p = &c->places[rank];
    if (p->worker->go.restore && p->worker->go.view != p->restored) { /* only such a GO leads back */
        p->restored = p->worker->go.view;
        memset(p->compared, 0, c->chunks * sizeof *p->compared);
    }
    for (uint32_t k = 0; k < c->chunks; k++) {
        const struct version *base = worker_version(p->worker, k);
        if (base == NULL || base->number + 1 == p->compared[k]) continue;
        if (base->number > c->spec.run.steps) fail_seed(c, "a version beyond the last one");
        if (base->number + 1 < p->compared[k]) fail_seed(c, "a worker went back behind a final version");
        check_version(c, worker_stage(p->worker, k), base);
        p->compared[k] = base->number + 1;
    }
}

/* Those that go on keep all they have done of the iteration that starts, and nothing is claimed twice. */
static void check_kept(struct cluster *c, const struct go *go, uint32_t rank, uint32_t chunk, uint8_t *row) {
    const struct place *p = &c->places[rank];
    const struct coord_pair *pair = &go->pairs[rank * go->chunks + chunk];
    const struct holding *h = p->worker != NULL ? worker_find(p->worker, chunk) : NULL;
    if (!pair->held || h == NULL || h->work != go->version || h->work_shift != go->shift) return;
    bool made_of_another = go->settle && go->verdict != COORD_ACCEPT;
    bool keeps = (pair->flags & COORD_KEEP_WORK) != 0;
    for (uint32_t m = 0; m < go->plan->total && !made_of_another; m++) {
        bool has = (h->bits[m / 8] >> (m % 8) & 1) != 0;
        if (!has) continue;
        if (!ir_is_done(go->plan, go->done, chunk, m))
            fail_seed(c, "a finished contribution is to be redone");
        if (!keeps) continue;
        if ((row[m / 8] >> (m % 8) & 1) != 0) fail_seed(c, "a contribution counts twice");
        row[m / 8] = (uint8_t)(row[m / 8] | 1u << (m % 8));
    }
}

/* What has come up, for the totals. */
static void count_go(struct cluster *c, const struct go *go) {
    struct totals *t = &c->total;
    t->grown += go->plan->pipelines > c->spec.parallel.pipelines;
    t->uneven += go->plan->total < go->plan->pipelines * go->plan->microbatches;
    t->undone += go->settle && go->verdict != COORD_ACCEPT;
    for (uint32_t r = 0; r < go->ranks; r++) {
        uint32_t held = 0;
        for (uint32_t k = 0; k < go->chunks; k++) {
            const struct coord_pair *pair = &go->pairs[r * go->chunks + k];
            if (!pair->held) continue;
            held++;
            t->states += (pair->flags & COORD_FETCH_STATE) != 0;
            t->grads += (pair->flags & COORD_FETCH_GRAD) != 0;
            t->keeps += (pair->flags & COORD_KEEP_WORK) != 0;
            t->settled_keeps += go->settle && (pair->flags & COORD_KEEP_WORK) != 0;
        }
        t->helpers += held > 1;
        t->spares += held == 0 && c->places[r].worker != NULL;
    }
}

static void check_go(struct cluster *c, const struct message *m) {
    struct go go;
    struct pawl_error e;
    if (go_decode(m->data, m->data_bytes, &go, &e) != PAWL_OK) fail_seed(c, e.text);
    if (ir_check(go.plan, NULL, NULL, &e) != PAWL_OK) fail_seed(c, e.text);
    if (go.plan->total != spec_contributions(&c->spec)) fail_seed(c, "a plan of another global batch");
    uint8_t *row = calloc(1, go_done_bytes(&go));
    for (uint32_t k = 0; k < go.chunks && !go.restore; k++) {
        memset(row, 0, go_done_bytes(&go));
        for (uint32_t r = 0; r < go.ranks; r++) check_kept(c, &go, r, k, row);
    }
    count_go(c, &go);
    SHOW(c, "go of view %llu: version %llu%s%s, %u pipelines, shift %d", (unsigned long long)go.view,
         (unsigned long long)go.version, go.settle ? ", settles" : "", go.restore ? ", restores" : "",
         go.plan->pipelines, go.shift);
    for (uint32_t i = 0; i < go.ranks * go.chunks && c->show; i++)
        if (go.pairs[i].held)
            SHOW(c, "    rank %u chunk %u: flags %u source %d", i / go.chunks, i % go.chunks,
                 go.pairs[i].flags, (int)go.pairs[i].source);
    free(row);
    go_close(&go);
}

#endif
