/* Workers without control: a few ranks on a simulated network, each with peers and holdings of emulated
 * stages, which refuse whatever is not what their neighbour must have made. Include after cmocka.h. */
#ifndef TESTS_RUN_WORLD_H
#define TESTS_RUN_WORLD_H

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/emulated.h"
#include "run/exec.h"

#define WORLD_PARAMETERS 50u

struct world_rank {
    struct net *net;
    struct peers peers;
    struct emulated_device device;
    struct holding **holdings; /* [chunks]: one of each, used or not */
};

struct world {
    struct netsim *sim;
    uint32_t ranks, chunks;
    uint64_t contributions;
    uint64_t version;
    int64_t now_ns;
    struct world_rank *rank;
};

/* `call` names its error world_e. */
static struct pawl_error world_error;
#define WORLD_OK(call)                                                                                       \
    do {                                                                                                     \
        struct pawl_error *world_e = &world_error;                                                           \
        if ((call) != PAWL_OK) fail_msg("%s", world_e->text);                                                \
    } while (0)

static inline struct holding *world_holding(struct world *w, struct world_rank *r, uint32_t chunk) {
    struct emulated_config config = {.seed = 7,
                                     .stage_count = w->chunks,
                                     .parameters = WORLD_PARAMETERS,
                                     .contributions = w->contributions};
    struct emulated_cost cost = {.forward = 1};
    struct stage *stage;
    struct holding *h;
    WORLD_OK(emulated_stage_open(&config, &cost, &r->device, chunk, &stage, world_e));
    WORLD_OK(holding_new(stage, 1, &r->peers, &h, world_e));
    WORLD_OK(versions_take(&h->versions, false, &h->base, world_e));
    assert_int_equal(stage->ops->init_params(stage, config.seed, h->base->params, NULL), PAWL_OK);
    h->base->number = h->base->updates = w->version;
    return h;
}

static inline struct world world_open(uint64_t seed, uint32_t ranks, uint32_t chunks,
                                      uint64_t contributions) {
    struct world w = {.sim = netsim_new(seed, (struct netsim_config){1, 1000, 16}),
                      .ranks = ranks,
                      .chunks = chunks,
                      .contributions = contributions,
                      .version = 3,
                      .rank = calloc(ranks, sizeof *w.rank)};
    struct bytes list = {0};
    for (uint32_t r = 0; r < ranks; r++) {
        struct world_rank *rank = &w.rank[r];
        size_t size;
        rank->device.slow = 1;
        rank->net = netsim_open(w.sim, NULL);
        const void *address = net_address(rank->net, &size);
        bytes_put_u32(&list, r);
        bytes_put_u32(&list, (uint32_t)size);
        bytes_put(&list, address, size);
    }
    struct message m = {.kind = MESSAGE_PEERS, .data = list.data, .data_bytes = list.size};
    for (uint32_t r = 0; r < ranks; r++) {
        struct world_rank *rank = &w.rank[r];
        WORLD_OK(peers_init(&rank->peers, rank->net, ranks, r, world_e));
        WORLD_OK(peers_learn(&rank->peers, &m, world_e));
        rank->holdings = calloc(chunks, sizeof *rank->holdings);
        for (uint32_t c = 0; c < chunks; c++) rank->holdings[c] = world_holding(&w, rank, c);
    }
    bytes_close(&list);
    return w;
}

static inline void world_close(struct world *w) {
    for (uint32_t r = 0; r < w->ranks; r++) {
        struct world_rank *rank = &w->rank[r];
        for (uint32_t c = 0; c < w->chunks; c++) holding_free(rank->holdings[c]);
        free(rank->holdings);
        peers_close(&rank->peers);
        net_close(rank->net);
    }
    free(w->rank);
    netsim_free(w->sim);
}

static inline void world_fence(struct world *w, uint64_t view) {
    for (uint32_t r = 0; r < w->ranks; r++) peers_fence(&w->rank[r].peers, view);
}

/* Time passes up to the next delivery, if there is one. */
static inline void world_advance(struct world *w) {
    int64_t next = netsim_advance(w->sim, w->now_ns);
    if (next != INT64_MAX && next > w->now_ns) w->now_ns = next;
}

#endif
