/* Bytes of GO: written and read field by field in the order of docs/formats/control.md. */
#include "run/go.h"

#include <stdlib.h>
#include <string.h>

#define PAIR_BYTES 13u /* rank 4, chunk 4, flags 1, source 4 */
#define PAIR_FLAGS (COORD_FETCH_STATE | COORD_FETCH_GRAD | COORD_LOAD | COORD_KEEP_WORK)

static uint32_t role_count(const struct ir_plan *plan) { return plan->pipelines * plan->stages; }

static void put_head(const struct go *g, struct bytes *out) {
    uint32_t clip;
    memcpy(&clip, &g->clip, sizeof clip);
    bytes_put_u64(out, g->view);
    bytes_put_u64(out, g->version);
    bytes_put_u8(out, g->settle);
    bytes_put_u8(out, g->optimistic);
    bytes_put_u8(out, g->restore);
    bytes_put_u8(out, (uint8_t)g->verdict);
    bytes_put_u32(out, clip);
    bytes_put_u32(out, (uint32_t)g->shift);
    bytes_put_u64(out, g->incarnation);
    bytes_put_u64(out, g->resume_incarnation);
    bytes_put_u64(out, g->durable);
    bytes_put_u32(out, g->ranks);
    bytes_put_u32(out, g->chunks);
}

static void put_plan(const struct ir_plan *plan, struct bytes *out) {
    struct bytes b = {0};
    ir_encode(plan, &b);
    bytes_put_blob(out, b.data, b.size);
    if (b.failed) out->failed = true;
    bytes_close(&b);
}

static void put_pairs(const struct go *g, struct bytes *out) {
    uint64_t places = (uint64_t)g->ranks * g->chunks;
    uint32_t held = 0;
    for (uint64_t i = 0; i < places; i++) held += g->pairs[i].held;
    bytes_put_u32(out, held);
    for (uint64_t i = 0; i < places; i++) {
        if (!g->pairs[i].held) continue;
        bytes_put_u32(out, (uint32_t)(i / g->chunks));
        bytes_put_u32(out, (uint32_t)(i % g->chunks));
        bytes_put_u8(out, g->pairs[i].flags);
        bytes_put_u32(out, g->pairs[i].source);
    }
}

void go_encode(const struct go *g, struct bytes *out) {
    put_head(g, out);
    put_plan(g->plan, out);
    for (uint32_t w = 0; w < role_count(g->plan); w++) bytes_put_u32(out, g->rank_of_role[w]);
    for (uint32_t r = 0; r < g->ranks; r++) bytes_put_u32(out, g->own[r]);
    put_pairs(g, out);
    bytes_put_u8(out, g->done != NULL);
    if (g->done != NULL) bytes_put(out, g->done, g->chunks * go_done_bytes(g));
}

void go_close(struct go *g) {
    ir_plan_free(g->plan);
    free(g->rank_of_role);
    free(g->pairs);
    free(g->own);
    free(g->done);
    *g = (struct go){0};
}

static pawl_code malformed(struct pawl_error *e, const char *what) {
    return error_set(e, PAWL_FORMAT, 0, "malformed go: %s", what);
}

static pawl_code take_head(struct reader *r, struct go *g, struct pawl_error *e) {
    g->view = reader_u64(r);
    g->version = reader_u64(r);
    g->settle = reader_flag(r);
    g->optimistic = reader_flag(r);
    g->restore = reader_flag(r);
    uint8_t verdict = reader_u8(r);
    g->verdict = (enum coord_verdict)verdict;
    g->clip = reader_f32(r);
    g->shift = (int32_t)reader_u32(r);
    g->incarnation = reader_u64(r);
    g->resume_incarnation = reader_u64(r);
    g->durable = reader_u64(r);
    g->ranks = reader_u32(r);
    g->chunks = reader_u32(r);
    if (r->failed) return malformed(e, "it ends in its head, or a flag is neither 0 nor 1");
    if (g->settle ? verdict == COORD_UNDECIDED || verdict > COORD_SKIP : verdict != COORD_UNDECIDED)
        return error_set(e, PAWL_FORMAT, 0, "malformed go: verdict %u with settle %d", verdict, g->settle);
    if (g->settle && (g->restore || g->version == 0))
        return malformed(e, "it settles an iteration that cannot be");
    if (g->incarnation == 0) return malformed(e, "saves of no incarnation");
    if (!g->restore && g->resume_incarnation != 0)
        return malformed(e, "an incarnation to load from without a return to a durable step");
    if (g->ranks == 0 || g->ranks > IR_WORKERS_MAX || (uint64_t)g->ranks * 4 > r->size - r->at)
        return error_set(e, PAWL_FORMAT, 0, "malformed go: %u ranks, but %zu bytes are left", g->ranks,
                         r->size - r->at);
    return PAWL_OK;
}

static pawl_code take_plan(struct reader *r, struct go *g, struct pawl_error *e) {
    size_t size;
    const uint8_t *bytes = reader_blob(r, &size);
    if (bytes == NULL) return malformed(e, "it ends in its plan");
    pawl_code code = ir_decode(bytes, size, &g->plan, e);
    if (code != PAWL_OK) return code;
    if (g->plan->chunks != g->chunks)
        return error_set(e, PAWL_FORMAT, 0, "malformed go: a plan of %u chunks, wanted %u", g->plan->chunks,
                         g->chunks);
    return PAWL_OK;
}

/* Every live role has a rank of its own, a dead one none. */
static pawl_code take_roles(struct reader *r, struct go *g, struct pawl_error *e) {
    uint32_t roles = role_count(g->plan);
    g->rank_of_role = calloc(roles, sizeof *g->rank_of_role);
    bool *taken = calloc(g->ranks, sizeof *taken);
    pawl_code code = PAWL_OK;
    if (g->rank_of_role == NULL || taken == NULL)
        code = error_set(e, PAWL_MEMORY, 0, "no memory for %u roles of %u ranks", roles, g->ranks);
    for (uint32_t w = 0; code == PAWL_OK && w < roles; w++) {
        uint32_t rank = g->rank_of_role[w] = reader_u32(r);
        bool none = rank == UINT32_MAX;
        if (none != !g->plan->workers[w].alive || (!none && (rank >= g->ranks || taken[rank])))
            code = error_set(e, PAWL_FORMAT, 0, "malformed go: role %u (%s) is played by rank %u of %u", w,
                             g->plan->workers[w].alive ? "live" : "dead", rank, g->ranks);
        else if (!none)
            taken[rank] = true;
    }
    free(taken);
    return code;
}

static pawl_code take_own(struct reader *r, struct go *g, struct pawl_error *e) {
    g->own = calloc(g->ranks, sizeof *g->own);
    if (g->own == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u ranks", g->ranks);
    for (uint32_t i = 0; i < g->ranks; i++) {
        g->own[i] = reader_u32(r);
        if (g->own[i] != UINT32_MAX && g->own[i] >= g->chunks)
            return error_set(e, PAWL_FORMAT, 0, "malformed go: rank %u has chunk %u of %u as its own", i,
                             g->own[i], g->chunks);
    }
    return PAWL_OK;
}

/* Null, or what is wrong with the flags and source of a pair, as far as they can be judged alone. */
static const char *pair_fault(const struct go *g, uint32_t rank, const struct coord_pair *p) {
    bool fetches = (p->flags & (COORD_FETCH_STATE | COORD_FETCH_GRAD)) != 0;
    if ((p->flags & ~PAIR_FLAGS) != 0) return "has unknown flags";
    if ((p->flags & COORD_LOAD) != 0 && (p->flags != COORD_LOAD || !g->restore))
        return "loads, and something else";
    if (g->restore && (p->flags & COORD_LOAD) == 0) return "does not load when everybody does";
    if ((p->flags & COORD_KEEP_WORK) != 0 && (p->flags & COORD_FETCH_STATE) != 0)
        return "keeps work of a version that it has to fetch";
    if (g->settle && (p->flags & COORD_FETCH_STATE) != 0 && (p->flags & COORD_FETCH_GRAD) != 0)
        return "fetches both the settled version and what makes it";
    if (fetches ? p->source >= g->ranks || p->source == rank : p->source != UINT32_MAX)
        return "names a source that cannot be";
    return NULL;
}

static pawl_code take_pairs(struct reader *r, struct go *g, struct pawl_error *e) {
    uint32_t count = reader_u32(r);
    if (r->failed || (uint64_t)count * PAIR_BYTES > r->size - r->at || count < g->chunks)
        return error_set(e, PAWL_FORMAT, 0, "malformed go: %u pairs, but %u chunks and %zu bytes", count,
                         g->chunks, r->size - r->at);
    g->pairs = calloc((size_t)g->ranks * g->chunks, sizeof *g->pairs);
    if (g->pairs == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for %u ranks and %u chunks", g->ranks, g->chunks);
    for (uint64_t i = 0; i < (uint64_t)g->ranks * g->chunks; i++) g->pairs[i].source = UINT32_MAX;
    uint64_t least = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t rank = reader_u32(r), chunk = reader_u32(r);
        struct coord_pair pair = {.held = true, .flags = reader_u8(r), .source = reader_u32(r)};
        uint64_t at = (uint64_t)rank * g->chunks + chunk;
        const char *fault = rank >= g->ranks || chunk >= g->chunks || at < least ? "is out of order"
                                                                                 : pair_fault(g, rank, &pair);
        if (fault != NULL)
            return error_set(e, PAWL_FORMAT, 0, "malformed go: chunk %u of rank %u %s (flags %u, source %u)",
                             chunk, rank, fault, pair.flags, pair.source);
        least = at + 1;
        g->pairs[at] = pair;
    }
    return PAWL_OK;
}

/* A source has or makes what it gives; it does not fetch the same itself. A rank that gives a chunk away need
 * not hold it any more. */
static pawl_code check_sources(const struct go *g, struct pawl_error *e) {
    for (uint64_t i = 0; i < (uint64_t)g->ranks * g->chunks; i++) {
        const struct coord_pair *p = &g->pairs[i];
        if (!p->held || p->source == UINT32_MAX) continue;
        uint32_t chunk = (uint32_t)(i % g->chunks);
        const struct coord_pair *source = &g->pairs[(uint64_t)p->source * g->chunks + chunk];
        if (!source->held) continue;
        bool grad = (p->flags & COORD_FETCH_GRAD) != 0 && (source->flags & COORD_FETCH_GRAD) != 0;
        if (grad || (source->flags & COORD_FETCH_STATE) != 0)
            return error_set(e, PAWL_FORMAT, 0,
                             "malformed go: rank %u fetches chunk %u from rank %u, which fetches it",
                             (uint32_t)(i / g->chunks), chunk, p->source);
    }
    return PAWL_OK;
}

/* Roles and pairs say the same: a rank holds what its role holds, and saves what it holds. */
static pawl_code check_holds(const struct go *g, struct pawl_error *e) {
    uint64_t of_roles = 0, held = 0;
    for (uint32_t w = 0; w < role_count(g->plan); w++) {
        const struct ir_worker *worker = &g->plan->workers[w];
        of_roles += worker->hold_count;
        for (uint32_t i = 0; i < worker->hold_count; i++)
            if (!g->pairs[(uint64_t)g->rank_of_role[w] * g->chunks + worker->holds[i]].held)
                return error_set(e, PAWL_FORMAT, 0, "malformed go: rank %u does not hold chunk %u of role %u",
                                 g->rank_of_role[w], worker->holds[i], w);
    }
    for (uint64_t i = 0; i < (uint64_t)g->ranks * g->chunks; i++) held += g->pairs[i].held;
    if (held != of_roles)
        return error_set(e, PAWL_FORMAT, 0,
                         "malformed go: %llu pairs, but the roles of the plan hold %llu chunks",
                         (unsigned long long)held, (unsigned long long)of_roles);
    for (uint32_t r = 0; r < g->ranks; r++)
        if (g->own[r] != UINT32_MAX && !g->pairs[(uint64_t)r * g->chunks + g->own[r]].held)
            return error_set(e, PAWL_FORMAT, 0, "malformed go: rank %u does not hold its own chunk %u", r,
                             g->own[r]);
    return PAWL_OK;
}

static pawl_code take_done(struct reader *r, struct go *g, struct pawl_error *e) {
    if (!reader_flag(r)) return PAWL_OK;
    size_t row = go_done_bytes(g), tail = g->plan->total % 8;
    const uint8_t *bits = reader_take(r, row * g->chunks);
    if (bits == NULL || row == 0) return malformed(e, "it ends in what is done");
    for (uint32_t c = 0; tail != 0 && c < g->chunks; c++)
        if (bits[(c + 1) * row - 1] >> tail != 0)
            return malformed(e, "a contribution that no iteration has is done");
    g->done = malloc(row * g->chunks);
    if (g->done == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for what is done");
    memcpy(g->done, bits, row * g->chunks);
    return PAWL_OK;
}

pawl_code go_decode(const void *data, size_t size, struct go *out, struct pawl_error *e) {
    *out = (struct go){0};
    struct reader r = reader_of(data, size);
    pawl_code code = take_head(&r, out, e);
    if (code == PAWL_OK) code = take_plan(&r, out, e);
    if (code == PAWL_OK) code = take_roles(&r, out, e);
    if (code == PAWL_OK) code = take_own(&r, out, e);
    if (code == PAWL_OK) code = take_pairs(&r, out, e);
    if (code == PAWL_OK) code = check_sources(out, e);
    if (code == PAWL_OK) code = check_holds(out, e);
    if (code == PAWL_OK) code = take_done(&r, out, e);
    if (code == PAWL_OK && !reader_done(&r)) code = malformed(e, "its length does not fit its content");
    return code;
}
