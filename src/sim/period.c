/* The least period of given lists, by constraint generation.
 *
 * For every group (a stage's workers; a chunk's instructions) let G be its first start. Iterations repeat
 * with period T if there are times at which nothing of a group starts before its G, everything respects
 * lists and messages, and the group's last end is at most G + T. With L(g, h) the longest path from group
 * g's start to an end in h, that is G_h >= G_g + L(g, h) - T for all g, h: it has a solution if and
 * only if no cycle of groups has a mean length above T. So the least T is the largest cycle mean, rounded up
 * to a tick (all lengths are whole, hence so are the G of some solution).
 *
 * All L would cost a pass over the graph for each group. Only few matter: given the G of a solution for the
 * paths known so far, one pass finds every group's last end and the group its path began at, that is the
 * exact L of a path that the solution does not satisfy, if there is one. Known paths never allow less than
 * the true period, so the first solution that satisfies all is the least. Each pass but the last
 * finds a path that was not known, so there are at most groups squared; plans take 2 to 6. */
#include "sim/period.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct path { /* between the starts of two groups, `length` until its end */
    uint32_t from, to;
    uint64_t length;
};

struct search {
    const struct graph *g;
    uint32_t groups;
    uint64_t period; /* no less is possible */
    int64_t *start;  /* [groups] G */
    struct path *path;
    uint32_t path_count, path_room;
    uint32_t *parent;  /* [groups] path that a start follows from, or NONE */
    uint32_t *visited; /* [groups] mark of the walk that came by */
    uint64_t *end;     /* [nodes] */
    uint16_t *origin;  /* [nodes] */
};

#define NONE UINT32_MAX

/* ---- known paths ---- */

static bool add_path(struct search *s, uint32_t from, uint32_t to, uint64_t length) {
    if (s->path_count == s->path_room) {
        uint32_t room = s->path_room * 2 + 64;
        struct path *bigger = realloc(s->path, room * sizeof *bigger);
        if (bigger == NULL) return false;
        s->path = bigger;
        s->path_room = room;
    }
    s->path[s->path_count++] = (struct path){from, to, length};
    return true;
}

/* The mean of the cycle that `at` lies on, rounded up. */
static uint64_t cycle_mean(const struct search *s, uint32_t at) {
    unsigned __int128 sum = 0;
    uint64_t count = 0;
    uint32_t g = at;
    do {
        sum += s->path[s->parent[g]].length;
        count++;
        g = s->path[s->parent[g]].from;
    } while (g != at);
    return (uint64_t)((sum + count - 1) / count);
}

/* The largest mean of the cycles among the parents; 0 if there are none. A cycle there means that starts
 * could be raised for ever. */
static uint64_t parents_cycle(struct search *s) {
    uint64_t mean = 0;
    memset(s->visited, 0xff, s->groups * sizeof *s->visited);
    for (uint32_t walk = 0; walk < s->groups; walk++) {
        uint32_t g = walk;
        while (s->visited[g] == NONE && s->parent[g] != NONE) {
            s->visited[g] = walk;
            g = s->path[s->parent[g]].from;
        }
        if (s->parent[g] == NONE || s->visited[g] != walk) continue;
        uint64_t found = cycle_mean(s, g);
        if (found > mean) mean = found;
    }
    return mean;
}

/* Raise starts by every known path once; false if nothing changed. */
static bool raise_starts(struct search *s) {
    bool changed = false;
    for (uint32_t i = 0; i < s->path_count; i++) {
        const struct path *p = &s->path[i];
        int64_t start = s->start[p->from] + (int64_t)p->length - (int64_t)s->period;
        if (start <= s->start[p->to]) continue;
        s->start[p->to] = start;
        s->parent[p->to] = i;
        changed = true;
    }
    return changed;
}

/* The least period that the known paths allow, and the earliest starts for it. */
static void solve_known(struct search *s) {
    for (;;) {
        memset(s->start, 0, s->groups * sizeof *s->start);
        memset(s->parent, 0xff, s->groups * sizeof *s->parent);
        uint64_t mean = 0;
        while (mean == 0 && raise_starts(s)) mean = parents_cycle(s);
        if (mean == 0) return;
        s->period = mean; /* above the last: a cycle of raises is longer than so many periods */
    }
}

/* ---- all paths ---- */

static void run_pass(struct search *s) {
    const struct graph *g = s->g;
    uint32_t stages = g->plan->stages;
    for (uint32_t w = 0; w < g->workers; w++) {
        s->end[w] = (uint64_t)s->start[w % stages];
        s->origin[w] = (uint16_t)(w % stages);
    }
    for (uint32_t v = g->workers; v < g->source_count; v++) {
        s->end[v] = (uint64_t)s->start[stages + v - g->workers];
        s->origin[v] = (uint16_t)(stages + v - g->workers);
    }
    graph_pass_origin(g, s->end, s->origin);
}

/* Of every group the mark with the last end; NONE where it has none. */
static void last_ends(const struct search *s, uint32_t *last) {
    memset(last, 0xff, s->groups * sizeof *last);
    for (uint32_t i = 0; i < s->g->mark_count; i++) {
        const struct graph_mark *m = &s->g->mark[i];
        if (last[m->group] == NONE || s->end[m->node] > s->end[last[m->group]]) last[m->group] = m->node;
    }
}

/* One pass with the present starts; adds the paths that they do not satisfy. */
static pawl_code find_paths(struct search *s, bool *satisfied) {
    uint32_t *last = s->visited;
    *satisfied = true;
    run_pass(s);
    last_ends(s, last);
    for (uint32_t h = 0; h < s->groups; h++) {
        if (last[h] == NONE) continue;
        uint64_t end = s->end[last[h]];
        if (end <= (uint64_t)s->start[h] + s->period) continue;
        uint32_t from = s->origin[last[h]];
        if (!add_path(s, from, h, end - (uint64_t)s->start[from])) return PAWL_MEMORY;
        *satisfied = false;
    }
    return PAWL_OK;
}

/* What is known without a pass: a worker's own work. */
static uint64_t busiest_list(const struct graph *g) {
    uint64_t most = 0;
    for (uint32_t w = 0; w < g->workers; w++) {
        const struct ir_worker *list = &g->plan->workers[w];
        uint64_t sum = 0;
        for (uint32_t i = 0; i < list->count; i++) {
            enum ir_op op = list->instructions[i].op;
            if (op != IR_O && op != IR_L) sum += g->node[g->of[g->first[w] + i]].duration;
        }
        if (sum > most) most = sum;
    }
    return most;
}

static bool search_open(struct search *s) {
    s->start = calloc(s->groups, sizeof *s->start);
    s->parent = calloc(s->groups, sizeof *s->parent);
    s->visited = calloc(s->groups, sizeof *s->visited);
    s->origin = malloc((uint64_t)s->g->count * sizeof *s->origin);
    return s->start != NULL && s->parent != NULL && s->visited != NULL && s->origin != NULL;
}

static void search_close(struct search *s) {
    free(s->start);
    free(s->parent);
    free(s->visited);
    free(s->origin);
    free(s->path);
}

pawl_code period_least(const struct graph *g, uint64_t alone, uint64_t *end, uint64_t *period,
                       struct pawl_error *e) {
    struct search s = {.g = g, .end = end};
    s.groups = g->plan->stages + (g->chunk_sources ? g->plan->chunks : 0);
    /* A start is at most one path's length later than another group's, of which no path is above `alone`. */
    if (alone > (uint64_t)INT64_MAX / (2 * ((uint64_t)s.groups + 1)))
        return error_set(e, PAWL_ARGUMENT, 0, "simulation: %llu ticks are too long for %u groups of workers",
                         (unsigned long long)alone, s.groups);
    pawl_code code = search_open(&s) ? PAWL_OK : PAWL_MEMORY;
    bool satisfied = false;
    s.period = busiest_list(g);
    while (code == PAWL_OK && !satisfied) {
        code = find_paths(&s, &satisfied);
        if (code == PAWL_OK && !satisfied) solve_known(&s);
    }
    if (code == PAWL_MEMORY) error_set(e, code, 0, "simulation: no memory for %u nodes", g->count);
    *period = s.period;
    search_close(&s);
    return code;
}
