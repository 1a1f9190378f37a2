/* What happens to a run in the storm: a seed has some kinds of trouble more than others. */
#ifndef STORM_TROUBLE_H
#define STORM_TROUBLE_H

#include "storm_life.h"

#define FOR_EVER INT64_MAX

static int64_t some_beats(struct cluster *c, uint64_t most) {
    return (int64_t)rng_below(&c->rng, most * BEAT_NS);
}

static void strike(struct cluster *c, uint32_t rank) {
    struct place *p = &c->places[rank];
    if (p->worker == NULL) return;
    c->total.kills++;
    kill_worker(c, rank);
    if (chance(c, 2)) p->start_at = c->now_ns + 1 + some_beats(c, 60);
}

static void cut_off(struct cluster *c, uint32_t a, uint32_t b) {
    struct place *pa = &c->places[a], *pb = &c->places[b];
    if (a == b || pa->net == NULL || pb->net == NULL) return;
    if (c->cut_count == c->cut_room) {
        c->cut_room = c->cut_room * 2 + 8;
        c->cuts = realloc(c->cuts, c->cut_room * sizeof *c->cuts);
        assert_non_null(c->cuts);
    }
    c->cuts[c->cut_count++] =
        (struct cut){a, b, pa->born, pb->born, chance(c, 3) ? FOR_EVER : c->now_ns + some_beats(c, 100)};
    netsim_cut(c->netsim, pa->net, pb->net, true);
    c->total.cuts++;
}

static void leave(struct cluster *c, uint32_t rank) {
    struct place *p = &c->places[rank];
    if (p->worker == NULL || !p->ready || p->leaving) return;
    c->left = true;
    if (chance(c, 2)) {
        struct message m = {.kind = MESSAGE_LEAVING, .text = ""};
        channel_send(p->theirs, &m, NULL); /* as a worker that was sent SIGTERM */
        return;
    }
    p->leaving = true;
    if (c->conduct != NULL) queue_put(&c->to_coord, &(struct link_frame){.kind = LINK_LEAVE, .rank = rank});
}

static void trouble_disk(struct cluster *c) {
    bool stuck = chance(c, 4);
    c->total.disks++;
    storesim_set_faults(c->disk, (struct storesim_faults){.write_eio = chance(c, 2) ? 20000 : 0,
                                                          .flush_eio = chance(c, 2) ? 20000 : 0,
                                                          .no_space = chance(c, 2) ? 20000 : 0,
                                                          .delay = stuck          ? 999000
                                                                   : chance(c, 2) ? 300000
                                                                                  : 0});
}

static void ask_to_stop(struct cluster *c) {
    if (c->conduct == NULL || c->view == 0 || !chance(c, 4)) return;
    c->stopping = true;
    c->total.stopped++;
    queue_put(&c->to_coord, &(struct link_frame){.kind = LINK_STOP});
}

static void do_trouble(struct cluster *c, enum trouble kind) {
    uint32_t rank = any_rank(c);
    switch (kind) {
    case TROUBLE_KILL:
        strike(c, rank);
        if (chance(c, 4)) strike(c, any_rank(c));
        break;
    case TROUBLE_STOP:
        c->total.stops++;
        c->places[rank].stopped_until = c->now_ns + some_beats(c, 60);
        break;
    case TROUBLE_CUT:
        cut_off(c, rank, any_rank(c));
        break;
    case TROUBLE_POWER:
        black_out(c);
        break;
    case TROUBLE_DISK:
        trouble_disk(c);
        break;
    case TROUBLE_COORDINATOR:
        kill_coordinator(c);
        break;
    case TROUBLE_COORDINATOR_STOPS:
        c->coord_stopped_until = c->now_ns + some_beats(c, 60);
        break;
    case TROUBLE_JOIN:
        start_worker(c, rank);
        break;
    case TROUBLE_LEAVE:
        leave(c, rank);
        break;
    default:
        ask_to_stop(c);
    }
}

static void make_trouble(struct cluster *c) {
    uint64_t pick = rng_below(&c->rng, c->weight_sum);
    uint32_t kind = 0;
    while (pick >= c->weights[kind]) pick -= c->weights[kind++];
    do_trouble(c, (enum trouble)kind);
}

/* A seed has some kinds of trouble more than others, and some not at all. */
static void choose_weights(struct cluster *c) {
    static const uint32_t usual[TROUBLE_COUNT] = {5, 2, 2, 1, 2, 2, 1, 4, 1, 1};
    c->weight_sum = 0;
    for (uint32_t k = 0; k < TROUBLE_COUNT; k++) {
        c->weights[k] = usual[k] * (uint32_t)rng_below(&c->rng, 4);
        c->weight_sum += c->weights[k];
    }
    if (c->weight_sum == 0) c->weight_sum = c->weights[TROUBLE_KILL] = 1;
}

static void calm_down(struct cluster *c) {
    c->calm = true;
    c->doomed = UINT32_MAX;
    SHOW(c, "--- quiet");
    storesim_set_faults(c->disk, (struct storesim_faults){0});
    heal_cuts(c, true);
}

/* Those that were to die in the middle of something. */
static void take_doom(struct cluster *c) {
    if (c->doomed == UINT32_MAX || --c->doom_in > 0) return;
    uint32_t rank = c->doomed;
    c->doomed = UINT32_MAX;
    if (chance(c, 4))
        kill_coordinator(c);
    else
        strike(c, rank);
}

#endif
