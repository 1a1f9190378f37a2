/* The simulated network: frames between endpoints of one process, in virtual time, from one seed.
 *
 * A transport like UCX to the core above it. Every frame is copied when it is sent and arrives after a
 * random delay, a short message twice if that is asked for; the sender learns at once or later, by the seed,
 * that it has left. Nothing depends on addresses of memory or on real time, so the same seed and the same
 * calls give the same run.
 * What it leaves out: bandwidth, and connections that break between living endpoints.
 * Tested in tests/unit/net_*_test.c, and used by every storm test. */
#include "net/sim.h"

#include <stdlib.h>
#include <string.h>

#include "net/core.h"

enum event_kind { EVENT_NONE, EVENT_DELIVER, EVENT_SENT, EVENT_LOST };

struct sim_end { /* one endpoint; lives until netsim_free, so that events and links may name it */
    struct sim_end *next;
    struct netsim *sim;
    struct net *net; /* null once closed */
    uint64_t name;
    bool killed;
};

struct sim_link { /* lives until netsim_free, for the same reason */
    struct sim_link *next;
    struct sim_end *from, *to;
    struct net_peer *peer; /* null once closed */
};

struct event {
    int64_t at;
    uint64_t sequence; /* order among equal times */
    enum event_kind kind;
    pawl_code code;
    struct sim_end *from, *to;
    struct sim_link *link;
    struct net_frame *frame; /* SENT: the sender's own */
    uint8_t *bytes;          /* DELIVER: the copy */
    size_t size;
};

struct cut {
    const struct sim_end *a, *b;
};

struct netsim {
    struct rng_stream rng;
    struct netsim_config config;
    int64_t now;
    uint64_t sequence;
    uint64_t names;
    size_t frame_max;
    struct sim_end *ends;
    struct sim_link *links;
    struct event *events; /* binary heap by (at, sequence); NONE ones stay until they surface */
    size_t event_count, event_capacity;
    struct event *held; /* due, waiting for a cut to heal */
    size_t held_count, held_capacity;
    struct cut *cuts;
    size_t cut_count, cut_capacity;
};

static bool coin(struct netsim *sim) { return rng_next(&sim->rng) >> 63; }

static int64_t delay(struct netsim *sim) {
    uint64_t span = sim->config.delay_ns_max - sim->config.delay_ns_min;
    uint64_t extra = span == UINT64_MAX ? rng_next(&sim->rng) : rng_below(&sim->rng, span + 1);
    return (int64_t)(sim->config.delay_ns_min + extra);
}

/* A simulation that runs out of memory has no result worth returning. */
static void *grown(void *array, size_t *capacity, size_t count, size_t size) {
    if (count < *capacity) return array;
    *capacity = *capacity == 0 ? 64 : 2 * *capacity;
    void *wider = realloc(array, *capacity * size);
    if (wider == NULL) abort();
    return wider;
}

/* ---- events ---- */

static bool before(const struct event *a, const struct event *b) {
    return a->at != b->at ? a->at < b->at : a->sequence < b->sequence;
}

static void schedule(struct netsim *sim, struct event event) {
    event.sequence = sim->sequence++;
    sim->events = grown(sim->events, &sim->event_capacity, sim->event_count, sizeof *sim->events);
    size_t at = sim->event_count++;
    while (at > 0 && before(&event, &sim->events[(at - 1) / 2])) {
        sim->events[at] = sim->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim->events[at] = event;
}

static struct event take_first(struct netsim *sim) {
    struct event first = sim->events[0];
    struct event last = sim->events[--sim->event_count];
    size_t at = 0;
    for (size_t child = 1; child < sim->event_count; child = 2 * at + 1) {
        if (child + 1 < sim->event_count && before(&sim->events[child + 1], &sim->events[child])) child++;
        if (!before(&sim->events[child], &last)) break;
        sim->events[at] = sim->events[child];
        at = child;
    }
    if (sim->event_count > 0) sim->events[at] = last;
    return first;
}

static bool is_cut(const struct netsim *sim, const struct sim_end *a, const struct sim_end *b) {
    for (size_t i = 0; i < sim->cut_count; i++) {
        const struct cut *c = &sim->cuts[i];
        if ((c->a == a && c->b == b) || (c->a == b && c->b == a)) return true;
    }
    return false;
}

static void hold(struct netsim *sim, struct event event) {
    sim->held = grown(sim->held, &sim->held_capacity, sim->held_count, sizeof *sim->held);
    sim->held[sim->held_count++] = event;
}

static void deliver(struct netsim *sim, struct event event) {
    struct net *net = event.to->net;
    if (is_cut(sim, event.from, event.to)) {
        hold(sim, event);
        return;
    }
    if (net != NULL && !event.to->killed) {
        net_frame_arrived(net, event.bytes, event.size);
        net_pump(net);
    }
    free(event.bytes);
}

static void happen(struct netsim *sim, struct event event) {
    struct net *net = event.from->net;
    switch (event.kind) {
    case EVENT_DELIVER:
        deliver(sim, event);
        break;
    case EVENT_SENT: /* an endpoint that closes turns these into NONE, so net is there */
        net_frame_sent(net, event.frame, event.code);
        net_pump(net);
        break;
    case EVENT_LOST:
        if (event.link->peer != NULL) net_peer_lost(net, event.link->peer);
        break;
    case EVENT_NONE:
        break;
    }
}

/* ---- the transport ---- */

static pawl_code sim_link_open(struct net *net, struct net_peer *peer, const void *address, size_t size,
                               struct pawl_error *e) {
    struct sim_end *from = net->transport_state;
    uint64_t name = 0;
    if (size != sizeof name)
        return error_set(e, PAWL_FORMAT, 0, "simulated address: wanted %zu bytes, had %zu", sizeof name,
                         size);
    memcpy(&name, address, sizeof name);
    struct sim_end *to = from->sim->ends;
    while (to != NULL && to->name != name) to = to->next;
    if (to == NULL)
        return error_set(e, PAWL_NOT_FOUND, 0, "simulated address: no endpoint %llu",
                         (unsigned long long)name);
    struct sim_link *link = malloc(sizeof *link);
    if (link == NULL) return error_set(e, PAWL_MEMORY, 0, "simulated link");
    *link = (struct sim_link){.next = from->sim->links, .from = from, .to = to, .peer = peer};
    from->sim->links = link;
    peer->link = link;
    return PAWL_OK;
}

static void sim_link_close(struct net *net, void *link) {
    (void)net;
    ((struct sim_link *)link)->peer = NULL;
}

static void send_copy(struct netsim *sim, struct sim_link *link, const struct net_frame *frame) {
    uint8_t *copy = malloc(frame->size);
    if (copy == NULL) abort();
    memcpy(copy, frame->bytes, frame->size);
    schedule(sim, (struct event){.at = sim->now + delay(sim),
                                 .kind = EVENT_DELIVER,
                                 .from = link->from,
                                 .to = link->to,
                                 .bytes = copy,
                                 .size = frame->size});
}

/* Frames of a longer message are counted by both ends, which no transport but a broken one would repeat. */
static bool comes_twice(struct netsim *sim, const struct net_frame *frame) {
    struct frame f;
    if (sim->config.twice_in == 0 || !frame_decode(frame->bytes, frame->size, &f)) return false;
    return f.kind == FRAME_EAGER && rng_below(&sim->rng, sim->config.twice_in) == 0;
}

static void sim_frame_send(struct net *net, void *link_of, struct net_frame *frame) {
    struct sim_link *link = link_of;
    struct sim_end *from = link->from;
    struct netsim *sim = from->sim;
    bool dead = link->to->killed || link->to->net == NULL;
    pawl_code code = dead && coin(sim) ? PAWL_PEER_LOST : PAWL_OK;
    if (!dead && !from->killed) {
        send_copy(sim, link, frame);
        if (comes_twice(sim, frame)) send_copy(sim, link, frame);
    }
    if (code == PAWL_OK && coin(sim)) {
        net_frame_sent(net, frame, PAWL_OK);
        return;
    }
    schedule(sim, (struct event){.at = sim->now + delay(sim),
                                 .kind = EVENT_SENT,
                                 .code = code,
                                 .from = from,
                                 .to = link->to,
                                 .frame = frame});
}

static bool sim_progress(struct net *net) {
    (void)net;
    return false; /* only netsim_advance moves anything */
}

static int sim_fd(const struct net *net) {
    (void)net;
    return -1;
}

static bool sim_arm(struct net *net) {
    (void)net;
    return true;
}

static void sim_close(struct net *net) {
    struct sim_end *end = net->transport_state;
    struct netsim *sim = end->sim;
    for (size_t i = 0; i < sim->event_count; i++) {
        struct event *event = &sim->events[i];
        if (event->from != end || event->kind == EVENT_DELIVER || event->kind == EVENT_NONE) continue;
        if (event->kind == EVENT_SENT) net_frame_sent(net, event->frame, PAWL_OK);
        event->kind = EVENT_NONE;
    }
    end->net = NULL;
}

static const struct transport sim_transport = {
    .link_open = sim_link_open,
    .link_close = sim_link_close,
    .frame_send = sim_frame_send,
    .progress = sim_progress,
    .fd = sim_fd,
    .arm = sim_arm,
    .close = sim_close,
};

/* ---- the simulation ---- */

struct netsim *netsim_new(uint64_t seed, struct netsim_config config) {
    struct netsim *sim = calloc(1, sizeof *sim);
    if (sim == NULL) return NULL;
    if (config.delay_ns_max < config.delay_ns_min) config.delay_ns_max = config.delay_ns_min;
    sim->rng.state = seed;
    sim->config = config;
    sim->frame_max = SIZE_MAX;
    return sim;
}

void netsim_limit_frames(struct netsim *sim, size_t frame_bytes) { sim->frame_max = frame_bytes; }

void netsim_free(struct netsim *sim) {
    if (sim == NULL) return;
    for (struct sim_end *end = sim->ends; end != NULL; end = end->next)
        if (end->net != NULL) net_close(end->net);
    for (size_t i = 0; i < sim->event_count; i++) free(sim->events[i].bytes);
    for (size_t i = 0; i < sim->held_count; i++) free(sim->held[i].bytes);
    for (struct sim_end *end = sim->ends, *next; end != NULL; end = next) {
        next = end->next;
        free(end);
    }
    for (struct sim_link *link = sim->links, *next; link != NULL; link = next) {
        next = link->next;
        free(link);
    }
    free(sim->events);
    free(sim->held);
    free(sim->cuts);
    free(sim);
}

struct net *netsim_open(struct netsim *sim, struct pawl_error *e) {
    struct sim_end *end = calloc(1, sizeof *end);
    if (end == NULL) {
        error_set(e, PAWL_MEMORY, 0, "simulated endpoint");
        return NULL;
    }
    end->sim = sim;
    end->name = ++sim->names;
    end->net = net_new(&sim_transport, sim->frame_max, end->name, &end->name, sizeof end->name);
    if (end->net == NULL) {
        free(end);
        error_set(e, PAWL_MEMORY, 0, "simulated endpoint");
        return NULL;
    }
    end->net->transport_state = end;
    end->next = sim->ends;
    sim->ends = end;
    return end->net;
}

static void lose_by_coin(struct netsim *sim, const struct sim_end *from, struct event *event) {
    if (event->kind != EVENT_DELIVER || event->from != from || coin(sim)) return;
    free(event->bytes);
    event->bytes = NULL;
    event->kind = EVENT_NONE;
}

void netsim_kill(struct netsim *sim, struct net *net) {
    struct sim_end *end = net->transport_state;
    if (end->killed) return;
    end->killed = true;
    for (size_t i = 0; i < sim->event_count; i++) lose_by_coin(sim, end, &sim->events[i]);
    for (size_t i = 0; i < sim->held_count; i++) lose_by_coin(sim, end, &sim->held[i]);
    for (struct sim_link *link = sim->links; link != NULL; link = link->next) {
        if (link->to != end || link->peer == NULL || link->from == end || !coin(sim)) continue;
        schedule(sim, (struct event){
                          .at = sim->now + delay(sim), .kind = EVENT_LOST, .from = link->from, .link = link});
    }
}

static void heal(struct netsim *sim) {
    size_t kept = 0;
    for (size_t i = 0; i < sim->held_count; i++) {
        struct event event = sim->held[i];
        if (event.kind == EVENT_NONE) continue;
        if (is_cut(sim, event.from, event.to)) {
            sim->held[kept++] = event;
        } else {
            event.at = sim->now + delay(sim);
            schedule(sim, event);
        }
    }
    sim->held_count = kept;
}

void netsim_cut(struct netsim *sim, struct net *a, struct net *b, bool cut) {
    const struct sim_end *x = a->transport_state, *y = b->transport_state;
    if (cut == is_cut(sim, x, y)) return;
    if (cut) {
        sim->cuts = grown(sim->cuts, &sim->cut_capacity, sim->cut_count, sizeof *sim->cuts);
        sim->cuts[sim->cut_count++] = (struct cut){x, y};
        return;
    }
    for (size_t i = 0; i < sim->cut_count; i++) {
        const struct cut *c = &sim->cuts[i];
        if ((c->a != x || c->b != y) && (c->a != y || c->b != x)) continue;
        sim->cuts[i] = sim->cuts[--sim->cut_count];
        break;
    }
    heal(sim);
}

int64_t netsim_advance(struct netsim *sim, int64_t now_ns) {
    while (sim->event_count > 0 && sim->events[0].at <= now_ns) {
        struct event event = take_first(sim);
        if (event.at > sim->now) sim->now = event.at;
        happen(sim, event);
    }
    if (now_ns > sim->now) sim->now = now_ns;
    while (sim->event_count > 0 && sim->events[0].kind == EVENT_NONE) take_first(sim);
    return sim->event_count > 0 ? sim->events[0].at : INT64_MAX;
}
