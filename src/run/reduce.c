/* Implementation of run/reduce.h. */
#include "run/reduce.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

/* Slices start on a multiple of this many parameters: whole cache lines of floats. */
#define SLICE_ALIGN 16u

#define SHARED 2u /* the segment of the shared tensor */

/* Sub-names of messages: one a segment, and the footer. */
#define NAME_FOOTER REDUCE_SEGMENTS

/* Cookie of a receive: the chunk above, the bytes expected below. */
#define COOKIE_BYTES_BITS 46

static uint64_t slice_begin(const struct reduce_segment *s, uint32_t part) {
    if (part == s->member_count) return s->offset + s->count;
    uint64_t at = (uint64_t)((__uint128_t)s->count * part / s->member_count);
    return s->offset + at / SLICE_ALIGN * SLICE_ALIGN;
}

static uint64_t slice_count(const struct reduce_segment *s, uint32_t part) {
    return slice_begin(s, part + 1) - slice_begin(s, part);
}

void reduce_init(struct reduce *r, const struct stage *stage, struct peers *peers, int64_t *sums,
                 float *grad) {
    *r = (struct reduce){
        .stage = stage, .peers = peers, .sums = sums, .grad = grad, .shared_tensor = UINT32_MAX};
    uint64_t shared_offset = stage->param_count, shared_count = 0;
    for (uint32_t t = 0; t < stage->tensor_count; t++) {
        if (!(stage->tensors[t].flags & STAGE_SHARED)) continue;
        r->shared_tensor = t;
        shared_offset = stage->tensors[t].offset;
        shared_count = stage->tensors[t].count;
    }
    uint64_t behind = shared_offset + shared_count;
    r->segments[0] = (struct reduce_segment){.offset = 0, .count = shared_offset};
    r->segments[1] = (struct reduce_segment){.offset = behind, .count = stage->param_count - behind};
    r->segments[SHARED] = (struct reduce_segment){.offset = shared_offset, .count = shared_count};
}

static void drop_members(struct reduce *r) {
    for (int s = 0; s < REDUCE_SEGMENTS; s++) free(r->segments[s].members), r->segments[s].members = NULL;
    free(r->replicas.members);
    free(r->takers);
    r->replicas.members = r->takers = NULL;
    r->taker_count = 0;
}

void reduce_close(struct reduce *r) {
    drop_members(r);
    free(r->inbox);
    free(r->footers);
    *r = (struct reduce){0};
}

/* The holders of `chunk`, ascending, behind those that are there. */
static bool add_holders(struct reduce_segment *s, const struct reduce *r, const struct reduce_holders *h,
                        uint32_t chunk) {
    struct reduce_member *more = realloc(s->members, (s->member_count + h->ranks) * sizeof *more);
    if (more == NULL) return false;
    s->members = more;
    for (uint32_t rank = 0; rank < h->ranks; rank++) {
        if (!h->pairs[(uint64_t)rank * h->chunks + chunk].held) continue;
        if (rank == r->peers->rank && chunk == r->stage->index) s->self = s->member_count;
        s->members[s->member_count++] = (struct reduce_member){rank, chunk};
    }
    return true;
}

static bool grow(int64_t **words, size_t *have, size_t want) {
    if (want <= *have) return true;
    free(*words);
    *words = malloc(want * sizeof **words);
    *have = *words != NULL ? want : 0;
    return *words != NULL;
}

/* Who gives the shared gradient to the `place`th holder of the end that lacks it: itself, where it holds both
 * ends, else they take turns. */
static uint32_t giver_of(const struct reduce_holders *h, uint32_t end, struct reduce_member to,
                         uint32_t place) {
    if (h->pairs[(uint64_t)to.rank * h->chunks + end].held) return to.rank;
    uint32_t count = 0, seen = 0;
    for (uint32_t rank = 0; rank < h->ranks; rank++) count += h->pairs[(uint64_t)rank * h->chunks + end].held;
    for (uint32_t rank = 0; rank < h->ranks; rank++)
        if (h->pairs[(uint64_t)rank * h->chunks + end].held && seen++ == place % count) return rank;
    return UINT32_MAX;
}

/* One end's gradient is there, the other's is not: who gives, who takes. */
static bool share_given(struct reduce *r, const struct reduce_holders *h, uint32_t opposite) {
    uint32_t own = r->stage->index;
    if (h->reduced[own] == h->reduced[opposite]) return true;
    if (h->reduced[opposite]) {
        r->given = true;
        r->giver = giver_of(h, opposite, r->replicas.members[r->replicas.self], r->replicas.self);
        return true;
    }
    struct reduce_segment lacking = {0};
    if (!add_holders(&lacking, r, h, opposite)) return false;
    r->takers = lacking.members;
    for (uint32_t i = 0; i < lacking.member_count; i++) {
        struct reduce_member to = lacking.members[i];
        if (giver_of(h, own, to, i) == r->peers->rank && to.rank != r->peers->rank)
            r->takers[r->taker_count++] = to;
    }
    return true;
}

static bool gather_members(struct reduce *r, const struct reduce_holders *h) {
    uint32_t own = r->stage->index, last = h->chunks - 1;
    bool good = add_holders(&r->replicas, r, h, own);
    for (uint32_t s = 0; s < REDUCE_SEGMENTS && good; s++) {
        if (s == SHARED && r->shared_tensor == UINT32_MAX) continue;
        good = add_holders(&r->segments[s], r, h, s == SHARED ? 0 : own);
        if (good && s == SHARED && last != 0) good = add_holders(&r->segments[s], r, h, last);
    }
    if (good && r->shared_tensor != UINT32_MAX && last != 0) good = share_given(r, h, own == 0 ? last : 0);
    return good;
}

pawl_code reduce_members(struct reduce *r, const struct reduce_holders *h, struct pawl_error *e) {
    drop_members(r);
    r->given = false;
    r->replicas.member_count = 0;
    for (int s = 0; s < REDUCE_SEGMENTS; s++) r->segments[s].member_count = 0;
    bool good = gather_members(r, h);
    size_t inbox = 0;
    for (int s = 0; s < REDUCE_SEGMENTS && good; s++) {
        struct reduce_segment *seg = &r->segments[s];
        if (seg->member_count == 0) continue;
        inbox += slice_count(seg, seg->self) * (seg->member_count - 1);
    }
    free(r->footers);
    r->footers =
        good ? calloc((size_t)r->replicas.member_count * GRADSUM_FOOTER_WORDS, sizeof *r->footers) : NULL;
    if (r->footers == NULL || !grow(&r->inbox, &r->inbox_words, inbox + 1))
        return error_set(e, PAWL_MEMORY, 0, "no memory to reduce %llu parameters",
                         (unsigned long long)r->stage->param_count);
    return PAWL_OK;
}

/* Sender and receiver are pairs; a rank may be two of one segment's members, hence the last bit. */
static struct peers_name name_of(enum net_kind kind, struct reduce_member from, uint32_t to_chunk,
                                 uint32_t sub, uint64_t iteration) {
    return (struct peers_name){iteration, kind, from.rank >> 10, to_chunk,
                               (from.rank & 1023) << 3 | sub << 1 | (from.chunk != to_chunk)};
}

static struct reduce_member self_of(const struct reduce *r) {
    return (struct reduce_member){r->peers->rank, r->stage->index};
}

struct piece {
    void *data;
    uint64_t count; /* of `size` bytes each */
    size_t size;
};

static pawl_code expect(struct reduce *r, enum net_kind kind, struct reduce_member from, uint32_t sub,
                        struct piece in, struct pawl_error *e) {
    if (in.count == 0) return PAWL_OK;
    r->pending++;
    uint64_t bytes = in.count * in.size;
    uint64_t cookie = (uint64_t)r->stage->index << COOKIE_BYTES_BITS | bytes;
    return peers_recv(r->peers, name_of(kind, from, r->stage->index, sub, r->version->number), in.data, bytes,
                      peers_cookie(PEERS_REDUCE, cookie), e);
}

static pawl_code post(struct reduce *r, enum net_kind kind, struct reduce_member to, uint32_t sub,
                      struct piece out, struct pawl_error *e) {
    if (out.count == 0) return PAWL_OK;
    r->pending++;
    return peers_send(r->peers, to.rank, name_of(kind, self_of(r), to.chunk, sub, r->version->number),
                      (struct peers_data){out.data, out.count * out.size}, PEERS_REDUCE_SEND, r->stage->index,
                      e);
}

static bool is_here(const struct reduce *r, struct reduce_member m) { return m.rank == r->peers->rank; }

static pawl_code scatter_segment(struct reduce *r, uint32_t s, int64_t **inbox, struct pawl_error *e) {
    struct reduce_segment *seg = &r->segments[s];
    if (s == SHARED && r->given) return PAWL_OK;
    for (uint32_t j = 0; j < seg->member_count; j++) {
        struct reduce_member m = seg->members[j];
        if (is_here(r, m)) continue;
        uint64_t mine = slice_count(seg, seg->self);
        size_t size = gradsum_bytes(r->stage->sums);
        void *out = gradsum_at(r->stage->sums, r->sums, slice_begin(seg, j));
        pawl_code code = expect(r, NET_SUMS, m, s, (struct piece){*inbox, mine, size}, e);
        if (code == PAWL_OK)
            code = post(r, NET_SUMS, m, s, (struct piece){out, slice_count(seg, j), size}, e);
        if (code != PAWL_OK) return code;
        *inbox += gradsum_words(r->stage->sums, mine);
    }
    return PAWL_OK;
}

static pawl_code scatter_footer(struct reduce *r, struct pawl_error *e) {
    uint64_t words = gradsum_words(r->stage->sums, r->stage->param_count);
    int64_t *own = r->sums + words;
    for (uint32_t j = 0; j < r->replicas.member_count; j++) {
        int64_t *in = r->footers + (size_t)j * GRADSUM_FOOTER_WORDS;
        struct reduce_member m = r->replicas.members[j];
        if (is_here(r, m)) {
            memcpy(in, own, GRADSUM_FOOTER_WORDS * sizeof *own);
            continue;
        }
        struct piece out = {own, GRADSUM_FOOTER_WORDS, sizeof *own};
        pawl_code code = post(r, NET_SUMS, m, NAME_FOOTER, out, e);
        out.data = in;
        if (code == PAWL_OK) code = expect(r, NET_SUMS, m, NAME_FOOTER, out, e);
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

static pawl_code expect_given(struct reduce *r, struct pawl_error *e) {
    if (!r->given || r->giver == r->peers->rank) return PAWL_OK;
    struct reduce_segment *seg = &r->segments[SHARED];
    struct reduce_member from = {r->giver, r->stage->index == 0 ? r->stage->stage_count - 1 : 0};
    return expect(r, NET_REDUCED, from, SHARED,
                  (struct piece){r->grad + seg->offset, seg->count, sizeof(float)}, e);
}

pawl_code reduce_begin(struct reduce *r, const struct version *version, int32_t shift, struct pawl_error *e) {
    r->version = version;
    r->shift = shift;
    r->pending = 0;
    r->phase = REDUCE_SCATTER;
    r->begun = version->number + 1;
    gradsum_clear_empty(r->stage->sums, r->sums, r->stage->param_count);
    int64_t *inbox = r->inbox;
    pawl_code code = scatter_footer(r, e);
    for (uint32_t s = 0; s < REDUCE_SEGMENTS && code == PAWL_OK; s++) code = scatter_segment(r, s, &inbox, e);
    if (code == PAWL_OK) code = expect_given(r, e);
    fault_arrive(FAULT_REDUCE_SENT);
    return code;
}

/* Mean gradient of parameters begin..begin+count-1 from their sums: tensor by tensor, each has an exponent.
 */
static void mean_of_slice(struct reduce *r, const int64_t *sum, uint64_t begin, uint64_t count) {
    if (r->stage->sums == GRADSUM_FLOAT) {
        gradsum_mean_float(gradsum_at(GRADSUM_FLOAT, sum, 0), r->grad + begin, count,
                           r->stage->contributions);
        return;
    }
    for (uint32_t t = 0; t < r->stage->tensor_count; t++) {
        const struct stage_tensor *tensor = &r->stage->tensors[t];
        uint64_t lo = tensor->offset > begin ? tensor->offset : begin;
        uint64_t tensor_end = tensor->offset + tensor->count, end = begin + count;
        uint64_t hi = tensor_end < end ? tensor_end : end;
        if (lo >= hi) continue;
        gradsum_mean(sum + (lo - begin), r->grad + lo, hi - lo, r->version->exponents[t] - r->shift,
                     r->stage->contributions);
    }
}

/* Where the other end's embedding lies, at this one's `offset` parameters of it. */
static uint64_t offset_there(const struct reduce *r, uint64_t offset) {
    return r->other->segments[SHARED].offset + (offset - r->segments[SHARED].offset);
}

/* The sums of own slice by member `j`. */
static const void *sums_by(const struct reduce *r, uint32_t s, uint32_t j, const int64_t **inbox) {
    const struct reduce_segment *seg = &r->segments[s];
    uint64_t begin = slice_begin(seg, seg->self);
    if (j == seg->self) return gradsum_at(r->stage->sums, r->sums, begin);
    if (is_here(r, seg->members[j]))
        return gradsum_at(r->stage->sums, r->other->sums, offset_there(r, begin));
    const int64_t *in = *inbox;
    *inbox += gradsum_words(r->stage->sums, slice_count(seg, seg->self));
    return in;
}

/* Into `block`, `count` sums of the own slice from place `at` on: in the order of members, which decides the
 * bits of float sums. */
static void sum_block(struct reduce *r, uint32_t s, uint64_t at, uint64_t count, const int64_t **inbox) {
    enum gradsum_kind kind = r->stage->sums;
    for (uint32_t j = 0; j < r->segments[s].member_count; j++) {
        const void *by = gradsum_at(kind, sums_by(r, s, j, inbox), at);
        if (j == 0)
            memcpy(r->block, by, count * gradsum_bytes(kind));
        else if (kind == GRADSUM_FLOAT)
            gradsum_add_float(gradsum_at(kind, r->block, 0), by, count);
        else
            gradsum_merge(r->block, by, count);
    }
}

static void sum_slice(struct reduce *r, uint32_t s, const int64_t **inbox) {
    struct reduce_segment *seg = &r->segments[s];
    uint64_t begin = slice_begin(seg, seg->self), mine = slice_count(seg, seg->self);
    const int64_t *next = *inbox;
    for (uint64_t at = 0; at < mine; at += REDUCE_BLOCK) {
        uint64_t count = mine - at < REDUCE_BLOCK ? mine - at : REDUCE_BLOCK;
        next = *inbox;
        sum_block(r, s, at, count, &next);
        mean_of_slice(r, r->block, begin + at, count);
    }
    *inbox = next;
}

static pawl_code gather_segment(struct reduce *r, uint32_t s, struct pawl_error *e) {
    struct reduce_segment *seg = &r->segments[s];
    uint64_t begin = slice_begin(seg, seg->self), mine = slice_count(seg, seg->self);
    for (uint32_t j = 0; j < seg->member_count; j++) {
        struct reduce_member m = seg->members[j];
        if (is_here(r, m)) continue;
        struct piece in = {r->grad + slice_begin(seg, j), slice_count(seg, j), sizeof(float)};
        pawl_code code = post(r, NET_REDUCED, m, s, (struct piece){r->grad + begin, mine, sizeof(float)}, e);
        if (code == PAWL_OK) code = expect(r, NET_REDUCED, m, s, in, e);
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

static pawl_code start_gather(struct reduce *r, struct pawl_error *e) {
    r->phase = REDUCE_GATHER;
    memset(r->footer, 0, sizeof r->footer);
    for (uint32_t j = 0; j < r->replicas.member_count; j++)
        gradsum_merge(r->footer, r->footers + (size_t)j * GRADSUM_FOOTER_WORDS, GRADSUM_FOOTER_WORDS);
    const int64_t *inbox = r->inbox;
    pawl_code code = PAWL_OK;
    for (uint32_t s = 0; s < REDUCE_SEGMENTS && code == PAWL_OK; s++) {
        if (r->segments[s].member_count == 0 || (s == SHARED && r->given)) continue;
        sum_slice(r, s, &inbox);
        code = gather_segment(r, s, e);
    }
    r->made = r->version->number + 1;
    return code;
}

/* The other end's part of the gradient, from this worker's memory; false: it is not there yet. */
static bool take_from_other(struct reduce *r) {
    struct reduce_segment *seg = &r->segments[SHARED];
    if (r->other == NULL || (r->given && r->giver != r->peers->rank)) return true;
    if (r->given) {
        memcpy(r->grad + seg->offset, r->other->grad + offset_there(r, seg->offset),
               seg->count * sizeof(float));
        return true;
    }
    if (r->other->made != r->version->number + 1) return false;
    for (uint32_t j = 0; j < seg->member_count; j++)
        if (j != seg->self && is_here(r, seg->members[j]))
            memcpy(r->grad + slice_begin(seg, j), r->other->grad + offset_there(r, slice_begin(seg, j)),
                   slice_count(seg, j) * sizeof(float));
    return true;
}

static bool other_has_summed(const struct reduce *r) {
    return r->other == NULL || r->given || r->other->begun == r->version->number + 1;
}

/* Exact sums leave out what is not finite and count it; in float ones it is found now. */
static void count_nonfinite(struct reduce *r) {
    if (r->stage->sums == GRADSUM_EXACT || gradsum_finite(r->grad, r->stage->param_count)) return;
    r->footer[GRADSUM_NONFINITE]++;
    memset(r->grad, 0, r->stage->param_count * sizeof *r->grad);
}

pawl_code reduce_tick(struct reduce *r, struct pawl_error *e) {
    if (r->phase == REDUCE_SCATTER && r->pending == 0 && other_has_summed(r)) {
        pawl_code code = start_gather(r, e);
        if (code != PAWL_OK) return code;
    }
    if (r->phase == REDUCE_GATHER && r->pending == 0 && take_from_other(r)) {
        r->phase = REDUCE_DONE;
        count_nonfinite(r);
        fault_arrive(FAULT_REDUCE_GATHERED);
    }
    return PAWL_OK;
}

void reduce_end(struct reduce *r) {
    r->phase = REDUCE_IDLE;
    r->given = false; /* that was for the iteration that the GO began with */
}

pawl_code reduce_give(struct reduce *r, uint64_t iteration, struct pawl_error *e) {
    const struct reduce_segment *seg = &r->segments[SHARED];
    for (uint32_t i = 0; i < r->taker_count; i++) {
        struct reduce_member to = r->takers[i];
        r->giving++;
        pawl_code code =
            peers_send(r->peers, to.rank, name_of(NET_REDUCED, self_of(r), to.chunk, SHARED, iteration),
                       (struct peers_data){r->grad + seg->offset, seg->count * sizeof(float)},
                       PEERS_REDUCE_SEND, r->stage->index, e);
        if (code != PAWL_OK) return code;
    }
    r->taker_count = 0;
    return PAWL_OK;
}

uint32_t reduce_chunk_of(uint64_t cookie) {
    return peers_owner_of(cookie) == PEERS_REDUCE_SEND ? peers_sent(cookie)
                                                       : (uint32_t)(peers_own(cookie) >> COOKIE_BYTES_BITS);
}

pawl_code reduce_completion(struct reduce *r, const struct net_completion *c, struct pawl_error *e) {
    if (peers_owner_of(c->cookie) == PEERS_REDUCE_SEND) {
        /* A send lost with its peer stays pending: the view is about to be fenced. */
        uint32_t *open = r->giving > 0 ? &r->giving : &r->pending;
        if (*open == 0) return error_set(e, PAWL_INTERNAL, 0, "a reduction sent more than it had to");
        if (c->code == PAWL_OK) --*open;
        return PAWL_OK;
    }
    uint64_t expected = peers_own(c->cookie) & (((uint64_t)1 << COOKIE_BYTES_BITS) - 1);
    if (r->pending == 0) return error_set(e, PAWL_INTERNAL, 0, "completion without a reduction");
    if (c->code != PAWL_OK || c->bytes != expected)
        return error_set(e, PAWL_FORMAT, 0, "reduction message of %zu bytes: expected %llu", c->bytes,
                         (unsigned long long)expected);
    r->pending--;
    return PAWL_OK;
}

void reduce_drop(struct reduce *r) {
    r->phase = REDUCE_IDLE;
    r->pending = r->giving = 0;
    r->given = false;
    r->taker_count = 0;
    r->begun = r->made = 0;
}
