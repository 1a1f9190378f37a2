/* A run from its start to its end, and what goes on in it all the time: workers compute, beats are sent,
 * delayed things happen. */
#ifndef STORM_LIFE_H
#define STORM_LIFE_H

#include "storm_launcher.h"

/* All processes are gone at once: the run was ended, or the machine was. */
static void end_run(struct cluster *c) {
    for (uint32_t r = 0; r < c->ranks; r++) {
        kill_worker(c, r);
        forget_place(&c->places[r]);
        c->places[r].start_at = 0;
    }
    end_coordinator(c);
    queue_cut(&c->from_coord, 0);
    c->view = c->find_view = 0;
    c->needed = 0;
    c->found = false;
    c->coord_start_at = 0;
    c->cut_count = 0;
    c->doomed = UINT32_MAX;
}

static void start_run(struct cluster *c) {
    uint64_t step, incarnation;
    c->over = c->finished = c->stopping = c->left = false;
    find_newest(c, &step, &incarnation);
    start_coordinator(c);
    for (uint32_t r = 0; r < spec_ranks(&c->spec); r++) start_worker(c, r);
}

static void black_out(struct cluster *c) {
    c->total.power_cuts++;
    SHOW(c, "power cut");
    end_run(c);
    storesim_crash(c->disk);
    start_run(c);
}

/* What FINISH promised survives even a power cut. True: it was the end of the training, too. */
static bool check_finished(struct cluster *c) {
    uint64_t step = 0, incarnation = 0;
    bool stopped = c->stopping || c->left; /* a run that cannot spare who leaves ends with it */
    bool at_found = c->found; /* nobody loaded it, so those who lived have not settled their stores */
    end_run(c);
    storesim_set_faults(c->disk, (struct storesim_faults){0});
    if (at_found) settle_dead(c);
    storesim_crash(c->disk);
    if (!find_newest(c, &step, &incarnation)) fail_seed(c, "nothing is durable after the end");
    if (step == c->spec.run.steps) return true;
    if (!stopped) fail_seed(c, "the last version is not durable after the end");
    return false;
}

/* True: the training has ended. */
static bool take_end(struct cluster *c) {
    if (c->finished) {
        if (check_finished(c)) return true;
        start_run(c);
        return false;
    }
    if (!c->over) return false;
    SHOW(c, "stopped: %s", c->failed.text);
    if (c->failed.code != PAWL_IO && c->failed.code != PAWL_NO_SPACE) {
        fprintf(stderr, "storm: stopped: %s\n", c->failed.text);
        fail_seed(c, "the run stopped");
    }
    c->total.restarts++;
    end_run(c);
    start_run(c);
    return false;
}

/* ---- what goes on ---- */

static bool poll_worker(struct cluster *c, uint32_t rank) {
    struct place *p = &c->places[rank];
    if (p->worker == NULL || p->stopped_until > c->now_ns) return false;
    bool worked;
    struct pawl_error e = {0};
    pawl_code code = worker_poll(p->worker, &worked, &e);
    if (code != PAWL_OK) {
        if (code == PAWL_PEER_LOST) fail_seed(c, "a worker lost its launcher");
        kill_worker(c, rank); /* what it has said of it is still to be heard */
        return true;
    }
    worker_set_busy(p->worker, false);
    check_bits(c, rank);
    if (worker_finished(p->worker) && !c->finished) end_worker(c, rank);
    return worked;
}

static void beat(struct cluster *c) {
    for (uint32_t r = 0; r < c->ranks; r++) {
        struct place *p = &c->places[r];
        if (p->worker == NULL || p->stopped_until > c->now_ns) continue;
        struct message m = {.kind = MESSAGE_BEAT, .text = ""};
        worker_beat(p->worker, &m);
        channel_send(p->theirs, &m, NULL);
    }
    if (c->conduct == NULL || c->coord_stopped_until > c->now_ns) return;
    conduct_tick(c->conduct, c->now_ns);
    say_end(c);
}

static void earlier(int64_t *until, int64_t at) {
    if (at > 0 && at < *until) *until = at;
}

static void heal_cuts(struct cluster *c, bool all) {
    for (size_t i = c->cut_count; i-- > 0;) {
        struct cut *cut = &c->cuts[i];
        if (!all && cut->until > c->now_ns) continue;
        struct place *a = &c->places[cut->a], *b = &c->places[cut->b];
        bool same = a->net != NULL && b->net != NULL && a->born == cut->born_a && b->born == cut->born_b;
        if (same) netsim_cut(c->netsim, a->net, b->net, false);
        *cut = c->cuts[--c->cut_count];
    }
}

static void pass_time(struct cluster *c, bool idle) {
    c->now_ns += (int64_t)rng_below(&c->rng, 200000);
    int64_t until = netsim_advance(c->netsim, c->now_ns);
    if (idle) { /* nothing can happen before the next delivery, beat, or delayed doing of the launcher */
        earlier(&until, c->next_beat_ns > 0 ? c->next_beat_ns : 1); /* the first is due at once */
        if (c->find_view != 0) earlier(&until, c->find_at);
        earlier(&until, c->coord_start_at);
        if (until > c->now_ns) c->now_ns = until;
        netsim_advance(c->netsim, c->now_ns);
    }
    if (c->find_view != 0 && c->find_at <= c->now_ns) find_now(c);
    if (c->coord_start_at != 0 && c->coord_start_at <= c->now_ns) start_coordinator(c);
    for (uint32_t r = 0; r < c->ranks; r++)
        if (c->places[r].start_at != 0 && c->places[r].start_at <= c->now_ns) start_worker(c, r);
    heal_cuts(c, false);
    if (c->now_ns < c->next_beat_ns) return;
    c->next_beat_ns = c->now_ns + BEAT_NS;
    beat(c);
}

#endif
