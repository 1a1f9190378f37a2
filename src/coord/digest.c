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

static void add_member(uint64_t *digest, const struct coord *c, uint32_t rank) {
    const struct coord_member *m = &c->members[rank];
    const bool flags[] = {c->live[rank], c->has_grad[rank], m->ready,    m->reported,
                          m->fenced,     m->holds,          m->fetching, m->busy};
    uint64_t bits = 0;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) bits = bits << 1 | (uint64_t)flags[i];
    add(digest, bits);
    add(digest, m->progress);
}

static void add_stage(uint64_t *digest, const struct coord_stage *s) {
    uint64_t norm2_bits;
    memcpy(&norm2_bits, &s->report.norm2, sizeof norm2_bits);
    add(digest, s->known);
    add(digest, s->report.iteration);
    add(digest, norm2_bits);
    add(digest, (uint64_t)s->report.loss);
    add(digest, s->report.nonfinite);
    add(digest, s->report.overflow);
}

static void add_save(uint64_t *digest, const struct coord *c, const struct coord_save *s) {
    add(digest, s->version);
    add(digest, (uint64_t)s->failed << 1 | (uint64_t)s->lost);
    for (uint32_t rank = 0; rank < c->rank_count; rank++) {
        add(digest, (uint64_t)s->part_of_rank[rank].part << 32 | s->part_of_rank[rank].parts);
        add(digest, (uint64_t)s->part_of_rank[rank].state);
    }
}

uint64_t coord_digest(const struct coord *c) {
    uint64_t digest = 0;
    const uint64_t words[] = {(uint64_t)c->phase, c->view,        c->final,      c->target,
                              c->durable,         c->has_durable, c->optimistic, (uint64_t)c->shift,
                              c->save_failures,   c->idle_fences, c->save_count, c->suspicion_count,
                              c->begun,           c->forgiven,    c->late};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) add(&digest, words[i]);
    for (uint32_t rank = 0; rank < c->rank_count; rank++) add_member(&digest, c, rank);
    for (uint32_t stage = 0; stage < c->config.stages; stage++) add_stage(&digest, &c->stages[stage]);
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
    to->save_count = 0;
    to->saves = copy_bytes(from->saves, from->save_count, from->save_room, sizeof *from->saves, &failed);
    for (size_t i = 0; i < from->save_count && !failed; i++) {
        size_t ranks = from->rank_count;
        to->saves[i].part_of_rank = copy_bytes(from->saves[i].part_of_rank, ranks, ranks,
                                               sizeof *from->saves[i].part_of_rank, &failed);
        to->save_count += !failed;
    }
    return !failed;
}

struct coord *coord_copy(const struct coord *from) {
    struct coord *to = malloc(sizeof *to);
    if (to == NULL) return NULL;
    *to = *from;
    bool failed = false;
    size_t ranks = from->rank_count, stages = from->config.stages;
    to->live = copy_bytes(from->live, ranks, ranks, sizeof *from->live, &failed);
    to->has_grad = copy_bytes(from->has_grad, ranks, ranks, sizeof *from->has_grad, &failed);
    to->members = copy_bytes(from->members, ranks, ranks, sizeof *from->members, &failed);
    to->stages = copy_bytes(from->stages, stages, stages, sizeof *from->stages, &failed);
    to->suspicions = copy_bytes(from->suspicions, from->suspicion_count, from->suspicion_room,
                                sizeof *from->suspicions, &failed);
    to->actions = NULL; /* the last step's belong to the original */
    to->action_count = to->action_room = 0;
    failed = !copy_saves(to, from) || failed;
    if (!failed) return to;
    coord_free(to);
    return NULL;
}
