/* Which contributions of a broken iteration exist already.
 *
 * A contribution is the gradient of one micro-batch for one chunk. It counts when a pair that goes on has it
 * in its sums, or when its chunk's reduced gradient is held. Nobody may claim what another one has: the sums
 * would hold it twice. If two do, all work of that GO is dropped and everything is computed again, which is
 * always right; it is told, since it is a mistake of ours. */
#include <stdlib.h>
#include <string.h>

#include "run/conduct_state.h"

void conduct_claims_clear(struct conduct *c) {
    for (uint64_t i = 0; i < (uint64_t)c->ranks * c->chunks; i++) {
        c->claims[i].known = false;
        bytes_clear(&c->claims[i].bits);
    }
    for (uint32_t r = 0; r < c->ranks; r++) c->rank[r].answered = false;
    c->entered = 0;
}

void conduct_claim_enter(struct conduct *c, uint32_t rank, const struct fenced *f, struct pawl_error *e) {
    c->rank[rank].answered = true;
    for (uint32_t i = 0; i < f->pair_count; i++) {
        const struct fenced_pair *p = &f->pairs[i];
        if (p->pair.chunk >= c->chunks) continue; /* the coordinator refuses it */
        struct conduct_claim *claim = &c->claims[(uint64_t)rank * c->chunks + p->pair.chunk];
        claim->known = true;
        claim->work = p->pair.work;
        claim->total = p->total;
        bytes_clear(&claim->bits);
        bytes_put(&claim->bits, p->bits, (size_t)((p->total + 7) / 8));
        if (claim->bits.failed) {
            error_set(e, PAWL_MEMORY, 0, "no memory for the contributions of rank %u", rank);
            conduct_end_with(c, CONDUCT_STOPPED, PAWL_MEMORY, "no memory for the contributions of a rank");
        }
    }
}

static uint64_t count_bits(const uint8_t *bits, size_t size) {
    uint64_t count = 0;
    for (size_t i = 0; i < size; i++)
        for (unsigned v = bits[i]; v != 0; v &= v - 1) count++;
    return count;
}

/* Adds what a pair has to its chunk's row; false: another pair has some of it too. */
static bool add_claim(const struct conduct_claim *claim, uint8_t *row) {
    bool apart = true;
    for (size_t i = 0; i < claim->bits.size; i++) {
        apart = apart && (row[i] & claim->bits.data[i]) == 0;
        row[i] |= claim->bits.data[i];
    }
    return apart;
}

/* Null, or why the work of a GO cannot be kept. */
static const char *add_claims(const struct conduct *c, const struct go *go, const bool *held) {
    size_t row = go_done_bytes(go);
    for (uint64_t i = 0; i < (uint64_t)c->ranks * c->chunks; i++) {
        const struct conduct_claim *claim = &c->claims[i];
        uint32_t chunk = (uint32_t)(i % c->chunks);
        if (!go->pairs[i].held || (go->pairs[i].flags & COORD_KEEP_WORK) == 0 || held[chunk]) continue;
        if (!claim->known || claim->work != go->version || claim->total != go->plan->total)
            return "a worker is to keep contributions that are not of the iteration that starts";
        if (!add_claim(claim, go->done + chunk * row)) return "two workers claim the same contribution";
    }
    return NULL;
}

static void fill_row(const struct go *go, uint32_t chunk) {
    uint8_t *row = go->done + chunk * go_done_bytes(go);
    for (uint32_t m = 0; m < go->plan->total; m++) row[m / 8] = (uint8_t)(row[m / 8] | 1u << (m % 8));
}

static void drop_work(struct go *go) {
    memset(go->done, 0, go->chunks * go_done_bytes(go));
    for (uint64_t i = 0; i < (uint64_t)go->ranks * go->chunks; i++)
        go->pairs[i].flags &= (uint8_t)~COORD_KEEP_WORK;
}

/* What the rank that plays role `worker` had done of the last GO when it was last heard of. */
static uint64_t done_when_last_heard(const struct conduct *c, uint32_t rank, uint32_t worker) {
    const struct ir_plan *plan = c->used->ir;
    const struct message_at *at = &c->rank[rank].at;
    const struct ir_worker *w = &plan->workers[worker];
    uint64_t count = 0;
    for (uint32_t i = 0; i < w->count && i < at->position; i++) {
        const struct ir_instruction *in = &w->instructions[i];
        uint64_t m = (uint64_t)in->home * plan->microbatches + in->microbatch;
        bool made = in->op == IR_W || in->op == IR_B;
        const uint8_t *done = at->iteration == c->used_version ? c->used_done : NULL;
        if (made && !ir_is_done(plan, done, in->chunk, m)) count++;
    }
    return count;
}

/* What was computed of the iteration that starts, or of later ones, and is not kept: of those that answered
 * exactly, of the dead as far as they were heard. */
static uint64_t count_redone(const struct conduct *c, const struct go *go, const bool *held) {
    uint64_t redone = 0;
    for (uint64_t i = 0; i < (uint64_t)c->ranks * c->chunks; i++) {
        const struct conduct_claim *claim = &c->claims[i];
        if (!claim->known || claim->work == COORD_NO_WORK || claim->work < go->version) continue;
        bool kept = go->pairs[i].held && (go->pairs[i].flags & COORD_KEEP_WORK) != 0;
        if (!kept && !(held[i % c->chunks] && claim->work == go->version))
            redone += count_bits(claim->bits.data, claim->bits.size);
    }
    if (c->used == NULL) return redone;
    for (uint32_t w = 0; w < c->used->ir->pipelines * c->used->ir->stages; w++) {
        uint32_t rank = c->used->rank_of_role[w];
        if (rank == UINT32_MAX || c->rank[rank].answered || c->rank[rank].at.iteration < go->version)
            continue;
        redone += done_when_last_heard(c, rank, w);
    }
    return redone;
}

pawl_code conduct_salvage(struct conduct *c, struct go *go, struct conduct_salvage *out,
                          struct pawl_error *e) {
    *out = (struct conduct_salvage){0};
    size_t size = go->chunks * go_done_bytes(go);
    bool *held = calloc(c->chunks, sizeof *held);
    go->done = calloc(1, size + 1);
    if (held == NULL || go->done == NULL) {
        free(held);
        return error_set(e, PAWL_MEMORY, 0, "no memory for what is done of %u chunks", go->chunks);
    }
    /* The coordinator says which gradients are held: where it dropped them they are made again, though
     * somebody answered that it had them. */
    for (uint32_t k = 0; k < c->chunks; k++) held[k] = coord_is_held(c->coord, k);
    out->refused = add_claims(c, go, held);
    if (out->refused != NULL) drop_work(go);
    for (uint32_t k = 0; k < c->chunks; k++)
        if (held[k]) fill_row(go, k);
    out->kept = count_bits(go->done, size);
    out->redone = count_redone(c, go, held);
    free(held);
    if (out->kept > 0) return PAWL_OK;
    free(go->done);
    go->done = NULL;
    return PAWL_OK;
}
