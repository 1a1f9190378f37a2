/* Stages shared beyond their peers: workers that hold a neighbouring chunk as well, as many as pay.
 *
 * Where bubbles are scarce a dead worker costs its own stage 1/D, since only its peers take its work. Helpers
 * spread it over neighbour stages. More of them are tried one after the other by the load that they leave on
 * the busiest worker, which is quick; a number counts only if it shortens the load by min_gain over the last
 * that counted. Then the largest that counted is ordered in earnest, under memory that the copied state makes
 * smaller, and kept if the period, too, is shorter by min_gain than without any; else the one before. */
#include <stdlib.h>
#include <string.h>

#include "plan/make.h"

#define CANDIDATES_MAX 16u
#define ORDERED_MAX    3u /* candidates ordered in earnest */
/* Beyond so many cells of the plan the number of helpers is doubled from try to try. */
#define CELLS_FOR_ALL 20000u

struct candidates {
    struct plan_share share[CANDIDATES_MAX];
    uint32_t count;
};

static void candidates_close(struct candidates *c) {
    for (uint32_t i = 0; i < c->count; i++) plan_share_close(&c->share[i]);
    c->count = 0;
}

static bool gains(uint64_t now, uint64_t before, double min_gain) {
    return (double)now <= (double)before * (1 - min_gain);
}

/* What a worker's device has left for one more chunk: beside its own state, and a micro-batch of each. */
static pawl_code find_room(const struct make *m, uint64_t **out) {
    *out = NULL;
    uint64_t *device = plan_device_bytes(m->request);
    if (device == NULL) return error_set(m->e, PAWL_MEMORY, 0, "no memory for %u workers", m->worker_count);
    uint64_t widest = 0;
    for (uint32_t c = 0; c < m->costs->chunks; c++)
        if (m->costs->chunk[c].full > widest) widest = m->costs->chunk[c].full;
    bool known = false;
    for (uint32_t w = 0; w < m->worker_count; w++) {
        const struct sim_chunk *own = &m->costs->chunk[w % m->costs->stages];
        uint64_t used = own->state + own->full + widest;
        known |= device[w] > 0;
        device[w] = device[w] == 0 ? UINT64_MAX : device[w] > used ? device[w] - used : 0;
    }
    if (known)
        *out = device;
    else
        free(device);
    return PAWL_OK;
}

/* Numbers of helpers worth ordering, ascending; the first try, with none, gives the load to beat. */
static pawl_code find_candidates(struct make *m, const uint64_t *room, struct candidates *out) {
    uint64_t cells = (uint64_t)m->worker_count * m->request->microbatches, best = UINT64_MAX;
    uint32_t most = m->worker_count < 4 * m->request->stages ? m->worker_count : 4 * m->request->stages;
    uint32_t next = 0, useless = 0;
    while (next <= most && out->count < CANDIDATES_MAX && useless <= m->request->stages) {
        struct plan_share s = {0};
        pawl_code code =
            plan_share_route(m->costs, m->request->microbatches, m->normal.alive, next, room, &s, m->e);
        if (code != PAWL_OK) return code;
        bool fewer = s.helper_count < next, good = best != UINT64_MAX && gains(s.load, best, m->min_gain);
        useless = good ? 0 : useless + 1;
        if (best == UINT64_MAX || good) best = s.load;
        if (good)
            out->share[out->count++] = s;
        else
            plan_share_close(&s);
        if (fewer) break;
        next = next == 0 || cells <= CELLS_FOR_ALL ? next + 1 : 2 * next;
    }
    return PAWL_OK;
}

/* The copied state takes room from micro-batches, where room is what limits them. */
static void take_room(struct make *m, const struct plan_share *s, const uint64_t *room) {
    bool asked = m->request->memory != 0 || m->request->worker_memory != NULL;
    for (uint32_t i = 0; i < s->helper_count && m->costs->limit != NULL && room != NULL && !asked; i++) {
        uint64_t *limit = &m->costs->limit[s->helpers[i].worker],
                 state = m->costs->chunk[s->helpers[i].chunk].state;
        *limit = *limit > state ? *limit - state : 0;
    }
}

struct ordered {
    struct ir_plan *ir;
    struct sim_result times;
};

static void keep(struct make *m, struct plan_share *s, struct ordered *o) {
    ir_plan_free(m->ir);
    sim_result_close(&m->times);
    plan_route_free(m->route);
    m->ir = o->ir;
    m->times = o->times;
    m->route = s->route;
    m->helpers = s->helpers;
    m->helper_count = s->helper_count;
    s->route = NULL;
    s->helpers = NULL;
    s->helper_count = 0;
}

/* Orders the candidate; *kept if it is better by min_gain than the plan without sharing. */
static pawl_code try_candidate(struct make *m, struct plan_share *s, const uint64_t *room, bool *kept) {
    struct ordered o = {0};
    uint64_t *limit = m->costs->limit, *copy = NULL;
    if (limit != NULL) {
        copy = malloc(m->worker_count * sizeof *copy);
        if (copy == NULL) return error_set(m->e, PAWL_MEMORY, 0, "no memory for %u workers", m->worker_count);
        memcpy(copy, limit, m->worker_count * sizeof *copy);
        take_room(m, s, room);
    }
    pawl_code code = make_order(m, s->route, &o.ir, &o.times);
    *kept = code == PAWL_OK && gains(o.times.period, m->times.period, m->min_gain);
    if (*kept) {
        keep(m, s, &o);
    } else {
        ir_plan_free(o.ir);
        sim_result_close(&o.times);
        if (copy != NULL) memcpy(limit, copy, m->worker_count * sizeof *copy);
    }
    free(copy);
    return code == PAWL_PLAN ? PAWL_OK : code; /* no room for micro-batches left: not this one */
}

pawl_code make_share(struct make *m) {
    if (m->request->policy != PAWL_POLICY_PAWL || m->request->no_move) return PAWL_OK;
    uint64_t *room = NULL;
    struct candidates c = {.count = 0};
    if (!gains(m->bound, m->times.period, m->min_gain)) return PAWL_OK; /* nothing to win */
    pawl_code code = find_room(m, &room);
    if (code == PAWL_OK) code = find_candidates(m, room, &c);
    bool kept = false;
    for (uint32_t i = 0; code == PAWL_OK && !kept && i < ORDERED_MAX && i < c.count; i++)
        code = try_candidate(m, &c.share[c.count - 1 - i], room, &kept);
    candidates_close(&c);
    free(room);
    return code;
}
