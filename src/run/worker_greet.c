/* Greetings: whether those with whom a view's messages are exchanged can be heard at all.
 *
 * At each GO a worker sends an empty message to everybody it will exchange messages with, and expects one
 * from each. Nothing waits for them. When the view is fenced, a worker tells whom it has not heard: after a
 * view in which nothing moved, that tells a silent worker (heard by nobody, hears nobody) from those that
 * wait for it, which what they wait for does not. The coordinator asks for no proof that is younger than
 * that (coord/detect.c). Both ends find the same neighbours, from the GO: holders of one chunk, of the first
 * and the last (a tied embedding), and the two ends of every transfer of the plan. */
#include <stdlib.h>
#include <string.h>

#include "run/worker_state.h"

static struct peers_name greeting_of(uint32_t rank) {
    return (struct peers_name){.kind = NET_GREETING, .pipeline = rank >> 10, .stage = rank & 1023};
}

static bool holds(const struct go *g, uint32_t rank, uint32_t chunk) {
    return g->pairs[(uint64_t)rank * g->chunks + chunk].held;
}

static bool share_a_chunk(const struct go *g, uint32_t a, uint32_t b) {
    uint32_t last = g->chunks - 1;
    for (uint32_t c = 0; c < g->chunks; c++)
        if (holds(g, a, c) && holds(g, b, c)) return true;
    return (holds(g, a, 0) && holds(g, b, last)) || (holds(g, a, last) && holds(g, b, 0));
}

static void note_role(struct worker *w, uint32_t role) {
    uint32_t rank = role != IR_NONE ? w->go.rank_of_role[role] : UINT32_MAX;
    if (rank < w->peers.rank_count) w->unheard[rank] = true;
}

static void find_neighbours(struct worker *w) {
    const struct ir_worker *list = w->exec.list;
    memset(w->unheard, 0, w->peers.rank_count * sizeof *w->unheard);
    /* At the end nobody is to be connected to any more: everybody may go. */
    if (w->planned_count == 0 || w->go.version >= w->spec.run.steps) return;
    for (uint32_t rank = 0; rank < w->peers.rank_count; rank++)
        w->unheard[rank] = share_a_chunk(&w->go, w->peers.rank, rank);
    for (uint32_t i = 0; list != NULL && i < list->count; i++) {
        note_role(w, list->instructions[i].from);
        note_role(w, list->instructions[i].to);
    }
    w->unheard[w->peers.rank] = false;
}

pawl_code worker_greet(struct worker *w, struct pawl_error *e) {
    if (w->unheard == NULL) w->unheard = calloc(w->peers.rank_count, sizeof *w->unheard);
    if (w->unheard == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for %u peers", w->peers.rank_count);
    find_neighbours(w);
    pawl_code code = PAWL_OK;
    for (uint32_t rank = 0; rank < w->peers.rank_count && code == PAWL_OK; rank++) {
        if (!w->unheard[rank]) continue;
        struct peers_data nothing = {NULL, 0};
        code = peers_recv(&w->peers, greeting_of(rank), NULL, 0, peers_cookie(PEERS_GREETING, rank), e);
        if (code == PAWL_OK)
            code =
                peers_send(&w->peers, rank, greeting_of(w->peers.rank), nothing, PEERS_GREETING_SEND, 0, e);
    }
    return code;
}

void worker_greeted(struct worker *w, const struct net_completion *c) {
    uint64_t rank = peers_own(c->cookie);
    if (peers_owner_of(c->cookie) == PEERS_GREETING && rank < w->peers.rank_count) w->unheard[rank] = false;
}

pawl_code worker_accuse(struct worker *w, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (uint32_t rank = 0; w->unheard != NULL && rank < w->peers.rank_count && code == PAWL_OK; rank++) {
        if (!w->unheard[rank]) continue;
        w->unheard[rank] = false;
        code = channel_send(w->env.channel, &(struct message){.kind = MESSAGE_SUSPECT, .peer = rank}, e);
    }
    return code;
}
