/* See fleet.h: a recorded trace as losses and returns of the job's own machines.
 *
 * base/trace.h reads the lines. Here they are put in order, names become numbers, counts become nodes that
 * are drawn, and nodes take the job's places: those that find none wait as spares, in the order in which they
 * came, and fill the place that is empty for longest. A place whose node goes while a spare waits is lost and
 * joined at once. Tested in tests/unit/fleet_events_test.c and tests/fuzz/fleet_events_fuzz.c. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/trace.h"
#include "fleet/events.h"
#include "fleet/events_read.h"

#define TRACE_BYTES_MAX ((size_t)64 << 20)
/* More in a count are a slip. */
#define NODES_MAX (1u << 17)

enum { AWAY, WAITING, PLACED };

struct node {
    uint8_t where;
    uint32_t place;
    uint32_t before, after; /* among those who wait; NOBODY at the ends */
};
#define NOBODY UINT32_MAX
struct queue { /* ring of numbers, each at most once */
    uint32_t *item;
    uint32_t room, first, count;
};

struct placing {
    struct node *node;
    uint32_t node_count;
    struct queue empty;             /* places */
    uint32_t wait_first, wait_last; /* a list in the order in which they came, since any may leave it */
    bool started;
    double start_s;
    struct fleet_events events;
    struct pawl_error *e;
};

static bool queue_init(struct queue *q, uint32_t room) {
    q->item = malloc(((size_t)room + 1) * sizeof *q->item);
    q->room = room;
    return q->item != NULL;
}
static void queue_put(struct queue *q, uint32_t item) {
    q->item[((uint64_t)q->first + q->count) % q->room] = item;
    q->count++;
}
static uint32_t queue_take(struct queue *q) {
    uint32_t item = q->item[q->first];
    q->first = (uint32_t)(((uint64_t)q->first + 1) % q->room);
    q->count--;
    return item;
}

static void wait_put(struct placing *p, uint32_t node) {
    struct node *n = &p->node[node];
    *n = (struct node){WAITING, 0, p->wait_last, NOBODY};
    *(p->wait_last != NOBODY ? &p->node[p->wait_last].after : &p->wait_first) = node;
    p->wait_last = node;
}
static void wait_drop(struct placing *p, uint32_t node) {
    const struct node *n = &p->node[node];
    *(n->before != NOBODY ? &p->node[n->before].after : &p->wait_first) = n->after;
    *(n->after != NOBODY ? &p->node[n->after].before : &p->wait_last) = n->before;
}

static pawl_code placing_init(struct placing *p, uint32_t machines, uint32_t nodes, struct pawl_error *e) {
    p->node_count = nodes;
    p->events.machines = machines;
    p->e = e;
    p->wait_first = p->wait_last = NOBODY;
    p->node = calloc((size_t)nodes + 1, sizeof *p->node);
    if (p->node == NULL || !queue_init(&p->empty, machines))
        return error_set(e, PAWL_MEMORY, 0, "no memory for %u nodes", nodes);
    for (uint32_t i = 0; i < machines; i++) queue_put(&p->empty, i);
    return PAWL_OK;
}

static void placing_close(struct placing *p) {
    free(p->node);
    free(p->empty.item);
    fleet_events_close(&p->events);
}

/* Until the start the nodes that come are there from the beginning. */
static pawl_code place(struct placing *p, uint32_t node, double at_s) {
    uint32_t at = queue_take(&p->empty);
    p->node[node] = (struct node){PLACED, at, NOBODY, NOBODY};
    if (p->started) return fleet_events_put(&p->events, at_s - p->start_s, at, true, p->e);
    p->events.present++;
    p->start_s = at_s;
    p->started = p->empty.count == 0;
    return PAWL_OK;
}

/* A node comes that is away. */
static pawl_code come(struct placing *p, uint32_t node, double at_s) {
    if (p->empty.count > 0) return place(p, node, at_s);
    wait_put(p, node);
    return PAWL_OK;
}

/* A node goes that is there. */
static pawl_code go(struct placing *p, uint32_t node, double at_s) {
    struct node was = p->node[node];
    p->node[node].where = AWAY;
    p->started = true;
    if (was.where == WAITING) {
        wait_drop(p, node);
        return PAWL_OK;
    }
    pawl_code code = fleet_events_put(&p->events, at_s - p->start_s, was.place, false, p->e);
    queue_put(&p->empty, was.place);
    uint32_t next = p->wait_first;
    if (code != PAWL_OK || next == NOBODY) return code;
    wait_drop(p, next);
    return place(p, next, at_s);
}

/* ---- in order ---- */

static int by_time(const void *a, const void *b) {
    const struct trace_line *x = a, *y = b;
    if (x->time_s != y->time_s) return x->time_s < y->time_s ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static pawl_code sort_lines(struct trace_lines *t, char **warnings, struct pawl_error *e) {
    uint32_t back = 0, first = 0;
    for (uint32_t i = 1; i < t->count; i++) {
        if (t->line[i].time_s >= t->line[i - 1].time_s) continue;
        if (back++ == 0) first = t->line[i].number;
    }
    if (back == 0) return PAWL_OK;
    qsort(t->line, t->count, sizeof *t->line, by_time);
    return fleet_warn(warnings, e, "trace, line %u: goes back in time%s; the lines were sorted", first,
                      back > 1 ? ", as others do" : "");
}

/* ---- names ---- */

struct named {
    const struct trace_line *line;
    uint32_t index;
};

static int by_name(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    const struct trace_line *m = x->line, *n = y->line;
    uint32_t size = m->node_size < n->node_size ? m->node_size : n->node_size;
    int order = memcmp(m->node, n->node, size);
    if (order != 0) return order;
    if (m->node_size != n->node_size) return m->node_size < n->node_size ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* ids[line] = number of its node; the same name is the same number. */
static pawl_code number_nodes(const struct trace_lines *t, uint32_t **ids, uint32_t *nodes,
                              struct pawl_error *e) {
    struct named *sorted = malloc(t->count * sizeof *sorted);
    *ids = malloc(t->count * sizeof **ids);
    if (sorted == NULL || *ids == NULL) {
        free(sorted);
        return error_set(e, PAWL_MEMORY, 0, "no memory for %u lines", t->count);
    }
    for (uint32_t i = 0; i < t->count; i++) sorted[i] = (struct named){&t->line[i], i};
    qsort(sorted, t->count, sizeof *sorted, by_name);
    *nodes = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct trace_line *x = sorted[i].line, *y = i > 0 ? sorted[i - 1].line : NULL;
        if (y == NULL || x->node_size != y->node_size || memcmp(x->node, y->node, x->node_size) != 0)
            ++*nodes;
        (*ids)[sorted[i].index] = *nodes - 1;
    }
    free(sorted);
    return PAWL_OK;
}

struct oddities {
    uint32_t twice_added, twice_removed;
    const struct trace_line *first_added, *first_removed;
};

static pawl_code warn_twice(char **warnings, const struct trace_line *l, uint32_t count, const char *what,
                            struct pawl_error *e) {
    if (count == 0) return PAWL_OK;
    return fleet_warn(warnings, e, "trace, line %u: node %.*s %s%s; ignored", l->number,
                      l->node_size < 60 ? (int)l->node_size : 60, l->node, what,
                      count > 1 ? ", as others are" : "");
}

static pawl_code place_named(struct placing *p, const struct trace_lines *t, const uint32_t *ids) {
    struct oddities odd = {0};
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < t->count && code == PAWL_OK; i++) {
        const struct trace_line *l = &t->line[i];
        bool there = p->node[ids[i]].where != AWAY;
        if (l->kind == TRACE_ADD && there) {
            if (odd.twice_added++ == 0) odd.first_added = l;
        } else if (l->kind == TRACE_REMOVE && !there) {
            if (odd.twice_removed++ == 0) odd.first_removed = l;
        } else {
            code = l->kind == TRACE_ADD ? come(p, ids[i], l->time_s) : go(p, ids[i], l->time_s);
        }
    }
    char **warnings = &p->events.warnings;
    if (code == PAWL_OK)
        code = warn_twice(warnings, odd.first_added, odd.twice_added, "is added twice", p->e);
    if (code == PAWL_OK)
        code = warn_twice(warnings, odd.first_removed, odd.twice_removed, "is removed and not there", p->e);
    return code;
}

/* A removal of somebody who never came, in a last line without an end: a name that was cut. */
static pawl_code check_cut(const struct trace_lines *t, const uint32_t *ids, struct pawl_error *e) {
    uint32_t last = 0;
    for (uint32_t i = 1; i < t->count; i++)
        if (t->line[i].number > t->line[last].number) last = i;
    if (!t->cut || t->line[last].kind != TRACE_REMOVE) return PAWL_OK;
    for (uint32_t i = 0; i < t->count; i++)
        if (i != last && ids[i] == ids[last]) return PAWL_OK;
    const struct trace_line *l = &t->line[last];
    return error_set(e, PAWL_FORMAT, 0,
                     "trace, line %u: node %.*s never came: the file seems to be cut off there", l->number,
                     l->node_size < 60 ? (int)l->node_size : 60, l->node);
}

static pawl_code read_named(const struct trace_lines *t, uint32_t machines, struct placing *p,
                            struct pawl_error *e) {
    uint32_t *ids = NULL, nodes = 0;
    pawl_code code = number_nodes(t, &ids, &nodes, e);
    if (code == PAWL_OK) code = check_cut(t, ids, e);
    if (code == PAWL_OK) code = placing_init(p, machines, nodes, e);
    if (code == PAWL_OK) code = place_named(p, t, ids);
    free(ids);
    return code;
}

/* ---- counts ---- */

struct drawing {
    struct rng_stream rng;
    uint32_t *there, there_count; /* nodes, in any order */
    uint32_t *away, away_count;   /* a stack */
};

static pawl_code follow_count(struct placing *p, struct drawing *d, uint32_t count, double at_s) {
    pawl_code code = PAWL_OK;
    while (code == PAWL_OK && d->there_count < count) {
        uint32_t node = d->away[--d->away_count];
        d->there[d->there_count++] = node;
        code = come(p, node, at_s);
    }
    while (code == PAWL_OK && d->there_count > count) {
        uint32_t i = (uint32_t)rng_below(&d->rng, d->there_count), node = d->there[i];
        d->there[i] = d->there[--d->there_count];
        d->away[d->away_count++] = node;
        code = go(p, node, at_s);
    }
    return code;
}

static pawl_code read_counts(const struct trace_lines *t, uint32_t machines, uint64_t seed, struct placing *p,
                             struct pawl_error *e) {
    struct drawing d = {.rng.state = seed};
    uint32_t most = 0, recorded = trace_lines_recorded(t);
    for (uint32_t i = 0; i < recorded; i++) {
        uint32_t count = t->line[i].there / t->per_machine;
        if (count > NODES_MAX)
            return error_set(e, PAWL_FORMAT, 0, "trace, line %u: %u at once, at most %u can be simulated",
                             t->line[i].number, t->line[i].there, NODES_MAX * t->per_machine);
        if (count > most) most = count;
    }
    pawl_code code = placing_init(p, machines, most, e);
    d.there = malloc(((size_t)most + 1) * sizeof *d.there);
    d.away = malloc(((size_t)most + 1) * sizeof *d.away);
    if (code == PAWL_OK && (d.there == NULL || d.away == NULL))
        code = error_set(e, PAWL_MEMORY, 0, "no memory for %u nodes", most);
    if (code == PAWL_OK)
        for (uint32_t i = 0; i < most; i++) d.away[d.away_count++] = most - 1 - i;
    for (uint32_t i = 0; i < recorded && code == PAWL_OK; i++) {
        uint32_t count = t->line[i].there / t->per_machine;
        /* The first sample that is not above the one before ends the additions at the start. */
        if (i > 0 && count <= t->line[i - 1].there / t->per_machine && p->events.present > 0)
            p->started = true;
        code = follow_count(p, &d, count, t->line[i].time_s);
    }
    free(d.there);
    free(d.away);
    return code;
}

/* ---- all of it ---- */

static pawl_code read_lines(struct trace_lines *t, uint32_t machines, uint64_t seed, struct placing *p,
                            struct pawl_error *e) {
    if (t->count == 0) return error_set(e, PAWL_FORMAT, 0, "trace: nothing is recorded in it");
    pawl_code code = sort_lines(t, &p->events.warnings, e);
    if (code != PAWL_OK) return code;
    return t->format == TRACE_NODES ? read_named(t, machines, p, e) : read_counts(t, machines, seed, p, e);
}

pawl_code fleet_events_parse(const char *text, size_t size, uint32_t machines, uint64_t seed,
                             struct fleet_events *out, struct pawl_error *e) {
    struct trace_lines lines = {0};
    struct placing p = {0};
    pawl_code code = trace_lines_read(text, size, &lines, e);
    if (code == PAWL_OK) code = read_lines(&lines, machines, seed, &p, e);
    if (code == PAWL_OK && p.events.present == 0)
        code = error_set(e, PAWL_FORMAT, 0, "trace: no machine is ever there");
    if (code == PAWL_OK) {
        uint32_t last = lines.format == TRACE_NODES ? lines.count : trace_lines_recorded(&lines);
        p.events.seconds = lines.line[last - 1].time_s - p.start_s;
        *out = p.events;
        p.events = (struct fleet_events){0};
    }
    placing_close(&p);
    trace_lines_close(&lines);
    return code;
}

pawl_code fleet_events_read(const char *path, uint32_t machines, uint64_t seed, struct fleet_events *out,
                            struct pawl_error *e) {
    struct bytes text = {0};
    pawl_code code = file_read(path, TRACE_BYTES_MAX, "trace", &text, e);
    if (code == PAWL_OK) {
        const char *data = text.size > 0 ? (const char *)text.data : "";
        code = fleet_events_parse(data, text.size, machines, seed, out, e);
        if (code != PAWL_OK) error_wrap(e, "%s", path);
    }
    bytes_close(&text);
    return code;
}
