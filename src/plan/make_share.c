/* Stages shared beyond their peers: workers that hold a neighbouring chunk as well, as many as pay.
 *
 * Where bubbles are scarce a dead worker costs its own stage 1/D, since only its peers take its work. Helpers
 * spread it over neighbour stages. Their numbers are tried one after the other by the load that they leave on
 * the busiest worker, which is quick; a number counts only if it shortens the load by help_gain over the last
 * that counted. The largest of those are ordered in earnest, under memory that the copied state makes
 * smaller, fewer helpers first: more are taken only if the period, too, is shorter by help_gain than with
 * fewer. */
#include <stdlib.h>
#include <string.h>

#include "plan/make.h"
#include "plan/pool.h"

#define CANDIDATES_MAX 16u
#define ORDERED_MAX    3u /* candidates ordered in earnest */
/* Beyond so many cells of the plan, or of the walk that finds the load, the number of helpers is doubled from
 * try to try. */
#define CELLS_FOR_ALL 20000u
/* The walk takes stages x helpers: of very many stages not all share. Work spread over hundreds of them gains
 * less than help_gain from more. */
#define WALK_MAX (1u << 18)

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

static uint32_t most_helpers(const struct make *m) {
    uint32_t stages = m->request->stages;
    uint32_t most = m->worker_count < 4 * stages ? m->worker_count : 4 * stages;
    return most < WALK_MAX / stages ? most : WALK_MAX / stages;
}

/* Numbers of helpers worth ordering, ascending; the first try, with none, gives the load to beat. */
static pawl_code find_candidates(struct make *m, const uint64_t *room, struct candidates *out) {
    uint64_t cells = (uint64_t)m->request->stages * plan_batch_total(m->batch, m->request->pipelines),
             best = UINT64_MAX;
    uint32_t stages = m->request->stages, most = most_helpers(m), next = 0, useless = 0;
    struct pool all = {m->costs, m->normal.alive, 0, stages};
    uint64_t least = pool_time(&all, m->batch); /* no load is below */
    while (next <= most && out->count < CANDIDATES_MAX && useless <= stages && !make_is_stopped(m) &&
           gains(least, best, m->help_gain)) {
        struct plan_share s = {0};
        pawl_code code = plan_share_route(m->costs, m->batch, m->normal.alive, next, room, &s, m->e);
        if (code != PAWL_OK) return code;
        bool good = best != UINT64_MAX && gains(s.load, best, m->help_gain);
        useless = good ? 0 : useless + 1;
        if (best == UINT64_MAX || good) best = s.load;
        if (good)
            out->share[out->count++] = s;
        else
            plan_share_close(&s);
        bool each = cells <= CELLS_FOR_ALL && (uint64_t)next * stages <= CELLS_FOR_ALL;
        next = next == 0 || each ? next + 1 : 2 * next;
    }
    return PAWL_OK;
}

static bool takes_room(const struct make *m, const uint64_t *room) {
    bool asked = m->request->memory != 0 || m->request->worker_memory != NULL;
    return m->costs->limit != NULL && room != NULL && !asked;
}

/* The copied state takes room from micro-batches, where room is what limits them. */
static void take_room(struct make *m, const struct plan_share *s, const uint64_t *room) {
    for (uint32_t i = 0; i < s->helper_count && takes_room(m, room); i++) {
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
    free(m->helpers);
    m->helpers = s->helpers;
    m->helper_count = s->helper_count;
    s->route = NULL;
    s->helpers = NULL;
    s->helper_count = 0;
}

/* What a candidate is ordered with: memory per worker, the rounds, and what it must gain. */
struct trial {
    const uint64_t *room, *limit; /* limit: without helpers; null: none */
    uint32_t rounds;
    double min_gain;
};

/* Orders the candidate and takes it if it is shorter, by the least gain, than what there is. */
static pawl_code try_candidate(struct make *m, struct plan_share *s, const struct trial *t) {
    const uint64_t *limit = t->limit;
    struct ordered o = {0};
    size_t size = m->worker_count * sizeof *limit;
    uint64_t *former = limit != NULL ? malloc(size) : NULL;
    if (limit != NULL && former == NULL)
        return error_set(m->e, PAWL_MEMORY, 0, "no memory for %u workers", m->worker_count);
    if (limit != NULL) {
        memcpy(former, m->costs->limit, size);
        memcpy(m->costs->limit, limit, size);
        take_room(m, s, t->room);
    }
    pawl_code code = make_order(m, s->route, t->rounds, &o.ir, &o.times);
    bool good = code == PAWL_OK && o.times.period < m->times.period &&
                gains(o.times.period, m->times.period, t->min_gain);
    if (good) {
        keep(m, s, &o);
    } else {
        ir_plan_free(o.ir);
        sim_result_close(&o.times);
        if (limit != NULL) memcpy(m->costs->limit, former, size);
    }
    free(former);
    return code == PAWL_PLAN ? PAWL_OK : code; /* no room for micro-batches left: not this one */
}

static pawl_code try_candidates(struct make *m, struct candidates *c, const uint64_t *room) {
    uint64_t *limit = NULL; /* without helpers */
    if (m->costs->limit != NULL) {
        limit = malloc(m->worker_count * sizeof *limit);
        if (limit == NULL)
            return error_set(m->e, PAWL_MEMORY, 0, "no memory for %u workers", m->worker_count);
        memcpy(limit, m->costs->limit, m->worker_count * sizeof *limit);
    }
    pawl_code code = PAWL_OK;
    struct trial t = {room, limit, 0, m->help_gain};
    uint32_t first = c->count > ORDERED_MAX ? c->count - ORDERED_MAX : 0;
    for (uint32_t i = first; code == PAWL_OK && i < c->count && !make_is_stopped(m); i++)
        code = try_candidate(m, &c->share[i], &t);
    free(limit);
    return code;
}

pawl_code make_share(struct make *m) {
    uint64_t *room = NULL;
    struct candidates c = {.count = 0};
    if (make_peers_only(m) || !gains(m->bound, m->times.period, m->help_gain)) return PAWL_OK;
    pawl_code code = find_room(m, &room);
    if (code == PAWL_OK) code = find_candidates(m, room, &c);
    if (code == PAWL_OK) code = try_candidates(m, &c, room);
    candidates_close(&c);
    free(room);
    return code;
}

/* ---- with time to search ---- */

/* The limits without the helpers that there are: what take_room took, given back. */
static uint64_t *limits_alone(const struct make *m, const uint64_t *room) {
    size_t size = m->worker_count * sizeof *m->costs->limit;
    uint64_t *limit = malloc(size);
    if (limit == NULL) return NULL;
    memcpy(limit, m->costs->limit, size);
    for (uint32_t i = 0; i < m->helper_count && takes_room(m, room); i++)
        limit[m->helpers[i].worker] += m->costs->chunk[m->helpers[i].chunk].state;
    return limit;
}

/* Limits, where there are any, are those of other helpers: then the load must do. */
static uint64_t least_of(const struct make *m, const struct plan_share *s) {
    return m->costs->limit != NULL ? s->load : plan_bound_route(s->route, m->costs, &m->list);
}

static pawl_code try_number(struct make *m, uint32_t helpers, const struct trial *t, bool *any) {
    struct plan_share s = {0};
    pawl_code code = plan_share_route(m->costs, m->batch, m->normal.alive, helpers, t->room, &s, m->e);
    bool other = code == PAWL_OK && s.helper_count == helpers;
    if (other && least_of(m, &s) < m->times.period) {
        *any = true;
        m->searched = true;
        code = try_candidate(m, &s, t);
    }
    plan_share_close(&s);
    return code;
}

static pawl_code try_numbers(struct make *m, const struct trial *t, int64_t until_ns, bool *any) {
    uint32_t most = most_helpers(m);
    pawl_code code = PAWL_OK;
    for (uint32_t h = 0; code == PAWL_OK && h <= most && make_has_time(m, until_ns); h++)
        if (h != m->helper_count) code = try_number(m, h, t, any);
    return code;
}

pawl_code make_other_routes(struct make *m, uint32_t rounds, int64_t until_ns, bool *any) {
    uint64_t *room = NULL, *limit = NULL;
    pawl_code code = find_room(m, &room);
    if (code == PAWL_OK && m->costs->limit != NULL) {
        limit = limits_alone(m, room);
        if (limit == NULL)
            code = error_set(m->e, PAWL_MEMORY, 0, "no memory for %u workers", m->worker_count);
    }
    struct trial t = {room, limit, rounds, 0};
    if (code == PAWL_OK) code = try_numbers(m, &t, until_ns, any);
    free(limit);
    free(room);
    return code;
}
