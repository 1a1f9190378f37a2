/* A digest and a copy of the whole state, so that an explorer can walk every order of events.
 *
 * The digest leaves out times and the growth of lists; two states with equal digests behave alike as long
 * as no TICK passes a limit. */
#include "coord/state.h"

#include <stdlib.h>
#include <string.h>

static void add(uint64_t *digest, uint64_t word) {
    uint64_t h = *digest ^ word; /* the finisher of splitmix64: every bit of a word reaches every bit */
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    *digest = (h ^ (h >> 31)) + 0x9e3779b97f4a7c15u;
}

static uint64_t bits_of(const bool *flags, size_t count) {
    uint64_t bits = 0;
    for (size_t i = 0; i < count; i++) bits = bits << 1 | (uint64_t)flags[i];
    return bits;
}

static void add_rank(uint64_t *digest, const struct coord *c, uint32_t rank) {
    const struct coord_rank *r = &c->ranks[rank];
    const bool flags[] = {c->members[rank], c->candidates[rank], r->leaving, r->entering,  r->recovered,
                          r->fenced,        r->beaten,           r->busy,    r->optimistic};
    add(digest, bits_of(flags, sizeof flags / sizeof flags[0]));
    add(digest, (uint64_t)r->place << 32 | (uint64_t)r->work);
    add(digest, (uint64_t)r->own << 32 | (uint32_t)r->shift);
    add(digest, r->late);
    add(digest, (uint64_t)r->join.state << 32 | r->join.chunk);
    add(digest, r->join.version << 8 | r->join.copies);
    add(digest, r->progress);
}

static void add_report(uint64_t *digest, const struct coord_report *report) {
    uint64_t norm2_bits;
    memcpy(&norm2_bits, &report->norm2, sizeof norm2_bits);
    add(digest, report->iteration);
    add(digest, norm2_bits);
    add(digest, (uint64_t)report->loss);
    add(digest, report->nonfinite);
    add(digest, report->overflow);
}

static void add_pair(uint64_t *digest, const struct coord *c, size_t pair) {
    const struct coord_holding *h = &c->holdings[pair];
    const struct coord_pair *p = &c->pairs[pair];
    const bool flags[] = {p->held,     h->answered,          h->grad,
                          h->reported, h->answer.has_report, c->has_state[pair]};
    add(digest, bits_of(flags, sizeof flags / sizeof flags[0]));
    add(digest, (uint64_t)p->flags << 32 | p->source);
    if (!h->answered) return;
    add(digest, h->answer.version);
    add(digest, h->answer.work);
    add(digest, (uint64_t)h->answer.work_shift);
    if (h->answer.has_report) add_report(digest, &h->answer.report);
}

static void add_save(uint64_t *digest, const struct coord *c, const struct coord_save *s) {
    add(digest, s->version);
    add(digest, (uint64_t)s->failed << 1 | (uint64_t)s->lost);
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) {
        const struct coord_part *part = &s->part_of_rank[rank];
        add(digest, (uint64_t)part->part << 32 | part->parts);
        add(digest, (uint64_t)part->chunk << 32 | (uint64_t)part->state);
    }
}

uint64_t coord_digest(const struct coord *c) {
    uint64_t digest = 0;
    const bool flags[] = {c->has_durable,  c->optimistic, c->recovering, c->ever_started, c->begin,
                          c->running_once, c->restoring,  c->stopping,   c->with_leaving, c->whole,
                          c->replan,       c->needing,    c->begun,      c->forgiven,     c->late,
                          c->idle,         c->idle_fence, c->save_pauses};
    const uint64_t words[] = {(uint64_t)c->phase, c->view,
                              c->final,           c->target,
                              c->found,           c->durable,
                              (uint64_t)c->shift, c->save_failures,
                              c->idle_fences,     c->save_count,
                              c->suspicion_count, bits_of(flags, sizeof flags / sizeof flags[0])};
    size_t pairs = (size_t)c->config.ranks * c->config.chunks;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) add(&digest, words[i]);
    for (uint32_t rank = 0; rank < c->config.ranks; rank++) add_rank(&digest, c, rank);
    for (size_t pair = 0; pair < pairs; pair++) add_pair(&digest, c, pair);
    for (uint32_t chunk = 0; chunk < c->config.chunks; chunk++) {
        add(&digest, (uint64_t)c->chunks[chunk].held << 1 | (uint64_t)c->chunks[chunk].known);
        add_report(&digest, &c->chunks[chunk].report);
    }
    for (size_t i = 0; i < c->save_count; i++) add_save(&digest, c, &c->saves[i]);
    for (size_t i = 0; i < c->suspicion_count; i++) {
        add(&digest, (uint64_t)c->suspicions[i].rank << 32 | c->suspicions[i].peer);
        add(&digest, c->suspicions[i].again);
    }
    return digest;
}

static void *copy_bytes(const void *from, size_t count, size_t room, size_t entry_bytes, bool *failed) {
    if (room == 0) return NULL;
    void *to = calloc(room, entry_bytes);
    if (to == NULL)
        *failed = true;
    else
        memcpy(to, from, count * entry_bytes);
    return to;
}

static bool copy_saves(struct coord *to, const struct coord *from) {
    bool failed = false;
    size_t ranks = from->config.ranks;
    to->save_count = 0;
    to->saves = copy_bytes(from->saves, from->save_count, from->save_room, sizeof *from->saves, &failed);
    for (size_t i = 0; i < from->save_count && !failed; i++) {
        const struct coord_part *parts = from->saves[i].part_of_rank;
        to->saves[i].part_of_rank = copy_bytes(parts, ranks, ranks, sizeof *parts, &failed);
        to->save_count += !failed;
    }
    return !failed;
}

struct coord *coord_copy(const struct coord *from) {
    struct coord *to = malloc(sizeof *to);
    if (to == NULL) return NULL;
    *to = *from;
    bool failed = false;
    size_t ranks = from->config.ranks, chunks = from->config.chunks, pairs = ranks * chunks;
    to->members = copy_bytes(from->members, ranks, ranks, sizeof *from->members, &failed);
    to->candidates = copy_bytes(from->candidates, ranks, ranks, sizeof *from->candidates, &failed);
    to->ranks = copy_bytes(from->ranks, ranks, ranks, sizeof *from->ranks, &failed);
    to->has_state = copy_bytes(from->has_state, pairs, pairs, sizeof *from->has_state, &failed);
    to->pairs = copy_bytes(from->pairs, pairs, pairs, sizeof *from->pairs, &failed);
    to->holdings = copy_bytes(from->holdings, pairs, pairs, sizeof *from->holdings, &failed);
    to->chunks = copy_bytes(from->chunks, chunks, chunks, sizeof *from->chunks, &failed);
    to->suspicions = copy_bytes(from->suspicions, from->suspicion_count, from->suspicion_room,
                                sizeof *from->suspicions, &failed);
    to->actions = NULL; /* the last step's belong to the original */
    to->action_count = to->action_room = 0;
    failed = !copy_saves(to, from) || failed;
    if (!failed) return to;
    coord_free(to);
    return NULL;
}
