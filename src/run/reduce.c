/* Implementation of run/reduce.h. */
#include "run/reduce.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

/* Slices start on a multiple of this many parameters: whole cache lines of floats. */
#define SLICE_ALIGN 16u

/* Sub-names of messages, in the tag's micro-batch field: one a segment, and the footer. */
#define NAME_FOOTER REDUCE_SEGMENTS

static uint64_t slice_begin(const struct reduce_segment *s, uint32_t part) {
    if (part == s->member_count) return s->offset + s->count;
    uint64_t at = (uint64_t)((__uint128_t)s->count * part / s->member_count);
    return s->offset + at / SLICE_ALIGN * SLICE_ALIGN;
}

static uint64_t slice_count(const struct reduce_segment *s, uint32_t part) {
    return slice_begin(s, part + 1) - slice_begin(s, part);
}

static pawl_code segment_init(struct reduce_segment *s, uint32_t ranks, uint64_t offset, uint64_t count,
                              struct pawl_error *e) {
    *s = (struct reduce_segment){.offset = offset, .count = count};
    s->members = calloc(ranks, sizeof *s->members);
    return s->members != NULL ? PAWL_OK : error_set(e, PAWL_MEMORY, 0, "no memory for a group of %u", ranks);
}

pawl_code reduce_init(struct reduce *r, const struct stage *stage, struct peers *peers,
                      struct pawl_error *e) {
    *r = (struct reduce){.stage = stage, .peers = peers, .shared_tensor = UINT32_MAX};
    uint64_t shared_offset = stage->param_count, shared_count = 0;
    for (uint32_t t = 0; t < stage->tensor_count; t++) {
        if (!(stage->tensors[t].flags & STAGE_SHARED)) continue;
        r->shared_tensor = t;
        shared_offset = stage->tensors[t].offset;
        shared_count = stage->tensors[t].count;
    }
    uint64_t behind = shared_offset + shared_count;
    pawl_code code = segment_init(&r->segments[0], peers->rank_count, 0, shared_offset, e);
    if (code == PAWL_OK)
        code = segment_init(&r->segments[1], peers->rank_count, behind, stage->param_count - behind, e);
    if (code == PAWL_OK)
        code = segment_init(&r->segments[2], peers->rank_count, shared_offset, shared_count, e);
    if (code == PAWL_OK) code = segment_init(&r->replicas, peers->rank_count, 0, 0, e);
    if (code != PAWL_OK) reduce_close(r);
    return code;
}

void reduce_close(struct reduce *r) {
    for (int s = 0; s < REDUCE_SEGMENTS; s++) free(r->segments[s].members);
    free(r->replicas.members);
    free(r->inbox);
    free(r->own_sum);
    free(r->footers);
    *r = (struct reduce){0};
}

static void gather_members(struct reduce_segment *s, const struct peers *p, uint32_t stage_a,
                           uint32_t stage_b) {
    s->member_count = 0;
    for (uint32_t rank = 0; rank < p->rank_count; rank++) {
        uint32_t stage = rank % p->stages;
        if (!p->live[rank] || (stage != stage_a && stage != stage_b)) continue;
        if (rank == p->rank) s->self = s->member_count;
        s->members[s->member_count++] = rank;
    }
}

static bool grow(int64_t **words, size_t *have, size_t want) {
    if (want <= *have) return true;
    free(*words);
    *words = malloc(want * sizeof **words);
    *have = *words != NULL ? want : 0;
    return *words != NULL;
}

pawl_code reduce_members(struct reduce *r, struct pawl_error *e) {
    const struct peers *p = r->peers;
    gather_members(&r->replicas, p, p->stage, p->stage);
    size_t inbox = 0, own = 0;
    for (int s = 0; s < REDUCE_SEGMENTS; s++) {
        struct reduce_segment *seg = &r->segments[s];
        if (s == 2)
            gather_members(seg, p, 0, p->stages - 1);
        else
            gather_members(seg, p, p->stage, p->stage);
        uint64_t mine = slice_count(seg, seg->self);
        if (mine > own) own = mine; /* they are summed one after the other */
        inbox += mine * (seg->member_count - 1);
    }
    free(r->footers);
    r->footers = calloc((size_t)r->replicas.member_count * GRADSUM_FOOTER_WORDS, sizeof *r->footers);
    if (r->footers == NULL || !grow(&r->inbox, &r->inbox_words, inbox + 1) ||
        !grow(&r->own_sum, &r->own_words, own))
        return error_set(e, PAWL_MEMORY, 0, "no memory to reduce %llu parameters",
                         (unsigned long long)r->stage->param_count);
    return PAWL_OK;
}

static struct peers_name name_of(const struct reduce *r, enum net_kind kind, uint32_t sender, uint32_t sub) {
    return (struct peers_name){r->version->number, kind, sender / r->peers->stages, sender % r->peers->stages,
                               sub};
}

static pawl_code exchange(struct reduce *r, enum net_kind kind, uint32_t peer, uint32_t sub, const void *out,
                          size_t out_bytes, void *in, size_t in_bytes, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    if (in_bytes > 0) {
        r->pending++;
        code = peers_recv(r->peers, name_of(r, kind, peer, sub), in, in_bytes,
                          peers_cookie(PEERS_REDUCE, in_bytes), e);
    }
    if (code == PAWL_OK && out_bytes > 0) {
        r->pending++;
        code = peers_send(r->peers, peer, name_of(r, kind, r->peers->rank, sub),
                          (struct peers_data){out, out_bytes}, PEERS_REDUCE_SEND, 0, e);
    }
    return code;
}

static pawl_code scatter_segment(struct reduce *r, uint32_t s, int64_t **inbox, struct pawl_error *e) {
    struct reduce_segment *seg = &r->segments[s];
    uint64_t mine = slice_count(seg, seg->self);
    for (uint32_t j = 0; j < seg->member_count; j++) {
        if (j == seg->self) continue;
        pawl_code code = exchange(r, NET_SUMS, seg->members[j], s, r->sums + slice_begin(seg, j),
                                  slice_count(seg, j) * sizeof(int64_t), *inbox, mine * sizeof(int64_t), e);
        if (code != PAWL_OK) return code;
        *inbox += mine;
    }
    return PAWL_OK;
}

static pawl_code scatter_footer(struct reduce *r, struct pawl_error *e) {
    const int64_t *own = r->sums + r->stage->param_count;
    size_t bytes = GRADSUM_FOOTER_WORDS * sizeof(int64_t);
    for (uint32_t j = 0; j < r->replicas.member_count; j++) {
        int64_t *in = r->footers + (size_t)j * GRADSUM_FOOTER_WORDS;
        if (j == r->replicas.self) {
            memcpy(in, own, bytes);
            continue;
        }
        pawl_code code = exchange(r, NET_SUMS, r->replicas.members[j], NAME_FOOTER, own, bytes, in, bytes, e);
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

pawl_code reduce_begin(struct reduce *r, const struct version *version, const int64_t *sums, int32_t shift,
                       float *grad, struct pawl_error *e) {
    r->version = version;
    r->sums = sums;
    r->shift = shift;
    r->grad = grad;
    r->pending = 0;
    r->phase = REDUCE_SCATTER;
    int64_t *inbox = r->inbox;
    pawl_code code = scatter_footer(r, e);
    for (uint32_t s = 0; s < REDUCE_SEGMENTS && code == PAWL_OK; s++) code = scatter_segment(r, s, &inbox, e);
    fault_arrive(FAULT_REDUCE_SENT);
    return code;
}

/* Mean gradient of parameters begin..begin+count-1 from their sums: tensor by tensor, each has an exponent.
 */
static void mean_of_slice(struct reduce *r, const int64_t *sum, uint64_t begin, uint64_t count) {
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

static pawl_code start_gather(struct reduce *r, struct pawl_error *e) {
    r->phase = REDUCE_GATHER;
    memset(r->footer, 0, sizeof r->footer);
    for (uint32_t j = 0; j < r->replicas.member_count; j++)
        gradsum_merge(r->footer, r->footers + (size_t)j * GRADSUM_FOOTER_WORDS, GRADSUM_FOOTER_WORDS);
    const int64_t *inbox = r->inbox;
    for (uint32_t s = 0; s < REDUCE_SEGMENTS; s++) {
        struct reduce_segment *seg = &r->segments[s];
        uint64_t begin = slice_begin(seg, seg->self), mine = slice_count(seg, seg->self);
        if (mine > 0) memcpy(r->own_sum, r->sums + begin, mine * sizeof(int64_t));
        for (uint32_t j = 1; j < seg->member_count; j++, inbox += mine)
            gradsum_merge(r->own_sum, inbox, mine);
        mean_of_slice(r, r->own_sum, begin, mine);
        for (uint32_t j = 0; j < seg->member_count; j++) {
            if (j == seg->self) continue;
            pawl_code code =
                exchange(r, NET_REDUCED, seg->members[j], s, r->grad + begin, mine * sizeof(float),
                         r->grad + slice_begin(seg, j), slice_count(seg, j) * sizeof(float), e);
            if (code != PAWL_OK) return code;
        }
    }
    return PAWL_OK;
}

pawl_code reduce_tick(struct reduce *r, struct pawl_error *e) {
    if (r->phase == REDUCE_SCATTER && r->pending == 0) {
        pawl_code code = start_gather(r, e);
        if (code != PAWL_OK) return code;
    }
    if (r->phase == REDUCE_GATHER && r->pending == 0) {
        r->phase = REDUCE_DONE;
        fault_arrive(FAULT_REDUCE_GATHERED);
    }
    return PAWL_OK;
}

pawl_code reduce_completion(struct reduce *r, const struct net_completion *c, struct pawl_error *e) {
    uint64_t expected = peers_own(c->cookie);
    if (r->pending == 0) return error_set(e, PAWL_INTERNAL, 0, "completion without a reduction");
    if (peers_owner_of(c->cookie) == PEERS_REDUCE_SEND) { /* a send: lost with its peer, the view is about to
                                                             be fenced and stays pending */
        if (c->code == PAWL_OK) r->pending--;
        return PAWL_OK;
    }
    if (c->code != PAWL_OK || c->bytes != expected)
        return error_set(e, PAWL_FORMAT, 0, "reduction message of %zu bytes: expected %llu", c->bytes,
                         (unsigned long long)expected);
    r->pending--;
    return PAWL_OK;
}

void reduce_drop(struct reduce *r) {
    r->phase = REDUCE_IDLE;
    r->pending = 0;
}
