/* Runs one policy over the events: asks it at every change, keeps the time, writes down what was.
 *
 * A machine that comes is usable some time later; one that is lost before was never there. Changes at one
 * time are one change. What is missing at time 0 is how the job starts and costs nothing. Tested in
 * tests/unit/fleet_engine_test.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fleet/clockwork.h"

struct engine {
    const struct fleet_job *job;
    const struct fleet_policy *policy;
    void *state;
    bool *alive; /* [machines] usable */
    uint32_t alive_count;
    struct fleet_event *event; /* usable from, lost at; ascending */
    uint32_t event_count;
    uint32_t *lost, *joined; /* [machines] of the change at hand */
    double iteration_s;
    double fastest_rate; /* that it ever had */
    const char *note;    /* why it cannot run now, if the policy says it */
    struct clockwork clock;
    double machine_s;
    struct fleet_run *run;
    uint32_t sample_room;
    struct fleet_watch watch;
    struct pawl_error *e;
};

/* Changes between two calls of progress: some milliseconds. */
#define CHANGES_SHOWN 4096u

static pawl_code check_stop(const struct engine *g) {
    if (g->watch.stop == NULL || !*(const volatile bool *)g->watch.stop) return PAWL_OK;
    return error_set(g->e, PAWL_CANCELLED, 0, "the simulation was stopped");
}

static int by_time(const void *a, const void *b) {
    const struct fleet_event *x = a, *y = b;
    if (x->at_s != y->at_s) return x->at_s < y->at_s ? -1 : 1;
    if (x->joins != y->joins) return x->joins ? 1 : -1; /* who is replaced goes first */
    return x->machine < y->machine ? -1 : x->machine > y->machine;
}

/* Those with the given `joins`, appended to `out`. */
static uint32_t pick(const struct fleet_event *from, uint32_t count, bool joins, struct fleet_event *out) {
    uint32_t picked = 0;
    for (uint32_t i = 0; i < count; i++)
        if (from[i].machine != FLEET_NONE && from[i].joins == joins) out[picked++] = from[i];
    return picked;
}

/* Losses ascend, and so do joins, all of which are equally late: they are merged, since sorting millions
 * would take seconds in which nobody can be heard. Who changes at one time is put in order of number. */
static void merge(struct engine *g, const struct fleet_event *lost, uint32_t losses,
                  const struct fleet_event *come, uint32_t joins) {
    uint32_t i = 0, k = 0, n = 0;
    while (i < losses || k < joins)
        g->event[n++] = k == joins || (i < losses && lost[i].at_s <= come[k].at_s) ? lost[i++] : come[k++];
    g->event_count = n;
    for (uint32_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && g->event[end].at_s == g->event[first].at_s;) end++;
        if (end - first > 1) qsort(&g->event[first], end - first, sizeof *g->event, by_time);
    }
}

/* Events with the time that a coming machine needs; those that are lost before come not at all. */
static void shift_joins(struct engine *g, const struct fleet_events *events, uint32_t *coming) {
    double ready_s = fleet_job_constant(g->job, "common", "node_ready_s");
    for (uint32_t m = 0; m < events->machines; m++) coming[m] = FLEET_NONE;
    for (uint32_t i = 0; i < events->count; i++) {
        struct fleet_event x = events->event[i];
        if (x.joins) {
            x.at_s += ready_s;
            coming[x.machine] = g->event_count;
        } else if (coming[x.machine] != FLEET_NONE) {
            uint32_t join = coming[x.machine];
            coming[x.machine] = FLEET_NONE;
            if (g->event[join].at_s >= x.at_s) { /* both leave no trace */
                g->event[join].machine = FLEET_NONE;
                continue;
            }
        }
        g->event[g->event_count++] = x;
    }
}

static pawl_code make_events(struct engine *g, const struct fleet_events *events) {
    size_t bytes = ((size_t)events->count + 1) * sizeof *g->event;
    uint32_t *coming = malloc(((size_t)events->machines + 1) * sizeof *coming);
    struct fleet_event *apart = malloc(bytes);
    g->event = malloc(bytes);
    pawl_code code = PAWL_OK;
    if (coming != NULL && apart != NULL && g->event != NULL) {
        shift_joins(g, events, coming);
        code = check_stop(g);
        uint32_t losses = pick(g->event, g->event_count, false, apart);
        uint32_t joins = pick(g->event, g->event_count, true, apart + losses);
        if (code == PAWL_OK) merge(g, apart, losses, apart + losses, joins);
    } else {
        code = error_set(g->e, PAWL_MEMORY, 0, "no memory for %u events", events->count);
    }
    free(coming);
    free(apart);
    return code;
}

static pawl_code add_sample(struct engine *g) {
    struct fleet_run *run = g->run;
    if (run->sample_count == g->sample_room) {
        uint32_t room = g->sample_room == 0 ? 64 : 2 * g->sample_room;
        struct pawl_sim_sample *more = realloc(run->samples, room * sizeof *more);
        if (more == NULL) return error_set(g->e, PAWL_MEMORY, 0, "no memory for %u samples", room);
        run->samples = more, g->sample_room = room;
    }
    const struct clockwork *c = &g->clock;
    run->samples[run->sample_count++] = (struct pawl_sim_sample){
        .at_s = c->now_s,
        .alive = g->alive_count,
        .rate = c->stop_left_s > 0 ? 0 : c->rate,
        .counted = (uint64_t)c->at.counted,
    };
    return PAWL_OK;
}

static pawl_code advance(struct engine *g, double to_s) {
    double runs_s = clockwork_runs_at(&g->clock);
    pawl_code code = PAWL_OK;
    g->machine_s += (to_s - g->clock.now_s) * g->alive_count;
    if (g->clock.stop_left_s > 0 && runs_s < to_s) {
        code = clockwork_advance(&g->clock, runs_s, g->e);
        g->clock.stop_left_s = 0; /* whatever rounding left */
        if (code == PAWL_OK) code = add_sample(g);
    }
    return code == PAWL_OK ? clockwork_advance(&g->clock, to_s, g->e) : code;
}

static void set_rate(struct engine *g, const struct fleet_answer *answer) {
    g->iteration_s = (double)answer->iteration_ns * FLEET_NS;
    double rate = answer->iteration_ns > 0 ? (double)g->job->batch / g->iteration_s : 0;
    struct fleet_saving saving = fleet_job_saving(g->job, g->policy->name, g->iteration_s);
    clockwork_set(&g->clock, rate, &saving);
    g->fastest_rate = fmax(g->fastest_rate, rate);
    g->note = answer->note;
}

static void apply(struct engine *g, const struct fleet_answer *answer) {
    struct pawl_sim_row *row = &g->run->row;
    clockwork_lose(&g->clock, answer->lost_iterations * g->iteration_s);
    if (answer->rollback) clockwork_roll_back(&g->clock), row->rollbacks++;
    if (answer->saved) clockwork_save(&g->clock);
    if (answer->stop_s > 0 && answer->iteration_ns > 0)
        clockwork_stop(&g->clock, answer->stop_s), row->stops++;
    if (answer->iteration_ns == 0) g->clock.stop_left_s = 0;
    set_rate(g, answer);
}

/* All events of the time of event `i`; returns the first after them. */
static uint32_t gather(struct engine *g, uint32_t i, struct fleet_change *change) {
    double at_s = g->event[i].at_s;
    *change = (struct fleet_change){.lost = g->lost, .joined = g->joined};
    for (; i < g->event_count && g->event[i].at_s == at_s; i++) {
        const struct fleet_event *x = &g->event[i];
        g->alive[x->machine] = x->joins;
        if (x->joins)
            g->joined[change->joined_count++] = x->machine;
        else
            g->lost[change->lost_count++] = x->machine;
    }
    g->alive_count = g->alive_count + change->joined_count - change->lost_count;
    return i;
}

static pawl_code start(struct engine *g, const struct fleet_events *events, uint32_t *next) {
    struct fleet_answer answer = {0};
    struct fleet_change change;
    for (uint32_t m = 0; m < events->machines; m++) g->alive[m] = m < events->present;
    g->alive_count = events->present;
    if (g->event_count > 0 && g->event[0].at_s <= 0) *next = gather(g, 0, &change);
    pawl_code code = g->policy->start(g->job, g->alive, &g->state, &answer, g->e);
    if (code != PAWL_OK) return code;
    set_rate(g, &answer);
    return add_sample(g);
}

static pawl_code run_events(struct engine *g, const struct fleet_events *events, double seconds) {
    struct pawl_sim_row *row = &g->run->row;
    uint32_t i = 0, changes = 0;
    pawl_code code = start(g, events, &i);
    while (code == PAWL_OK && i < g->event_count &&
           g->event[i].at_s <= seconds) { /* the last of a trace is at its end */
        struct fleet_change change;
        struct fleet_answer answer = {0};
        if (g->watch.progress != NULL && changes++ % CHANGES_SHOWN == 0)
            g->watch.progress(g->watch.context, g->event[i].at_s / seconds);
        code = check_stop(g);
        if (code == PAWL_OK) code = advance(g, g->event[i].at_s);
        i = gather(g, i, &change);
        row->failures += change.lost_count;
        row->joins += change.joined_count;
        if (code == PAWL_OK) code = g->policy->change(g->state, &change, &answer, g->e);
        if (code != PAWL_OK) return code;
        apply(g, &answer);
        code = add_sample(g);
    }
    if (code == PAWL_OK) code = advance(g, seconds);
    return code == PAWL_OK ? add_sample(g) : code;
}

/* A cluster that never fails and never saves. */
struct ideal {
    double rate;
    const char *note; /* why even it cannot run, or null */
};

static pawl_code fault_free(struct engine *g, uint32_t machines, struct ideal *out) {
    struct fleet_answer answer = {0};
    void *state = NULL;
    bool *all = (bool *)malloc(machines);
    if (all == NULL) return error_set(g->e, PAWL_MEMORY, 0, "no memory for %u machines", machines);
    memset(all, true, machines);
    pawl_code code = g->policy->start(g->job, all, &state, &answer, g->e);
    uint64_t ns = answer.iteration_ns, best = 0;
    if (code == PAWL_OK && g->policy->best_ns != NULL) best = g->policy->best_ns(state);
    if (best > 0 && (ns == 0 || best < ns)) ns = best;
    out->rate = ns > 0 ? (double)g->job->batch / ((double)ns * FLEET_NS) : 0;
    out->note = answer.note;
    g->policy->close(state);
    free(all);
    return code;
}

/* Why nothing counted. What it could not do for a while is no reason. */
static const char *note_of(const struct engine *g, const struct ideal *ideal) {
    if (g->clock.at.counted > 0) return "";
    if (ideal->rate == 0) return ideal->note != NULL ? ideal->note : "cannot run: not even with all machines";
    if (g->alive_count == 0) return "cannot run: no machine is left";
    if (g->clock.rate > 0) return "nothing counts: it stood still or lost all that it did";
    return g->note != NULL ? g->note : "cannot run: too few machines";
}

static void finish_row(struct engine *g, double seconds, const struct ideal *ideal) {
    struct pawl_sim_row *row = &g->run->row;
    const struct clockwork *c = &g->clock;
    /* What it did with fewer machines it could do with all, whatever a planner's heuristic finds for all. */
    double best_rate = fmax(ideal->rate, g->fastest_rate);
    row->policy = g->policy->name;
    row->seconds = seconds;
    row->goodput = c->at.counted / seconds;
    row->relative = best_rate > 0 ? fmin(row->goodput / best_rate, 1) : 0; /* above it by rounding alone */
    row->throughput = c->at.useful_s > 0 ? c->at.counted / c->at.useful_s : 0;
    row->availability = (c->at.useful_s + c->lost_s + c->saving_s) / seconds;
    row->ettr = c->at.useful_s / seconds;
    row->lost_s = c->lost_s, row->stopped_s = c->stopped_s;
    row->saving_s = c->saving_s, row->idle_s = c->idle_s;
    row->worker_hours = g->machine_s / 3600;
    double price = row->worker_hours * fleet_job_constant(g->job, "common", "price_per_hour");
    row->cost = c->at.counted > 0 ? price / c->at.counted * 1e6 : 0;
    row->note = note_of(g, ideal);
}

static void engine_close(struct engine *g) {
    g->policy->close(g->state);
    clockwork_close(&g->clock);
    free(g->alive);
    free(g->event);
    free(g->lost);
    free(g->joined);
}

pawl_code fleet_engine_run(const struct fleet_job *job, const struct fleet_policy *policy,
                           const struct fleet_events *events, double seconds, const struct fleet_watch *watch,
                           struct fleet_run *out, struct pawl_error *e) {
    uint32_t machines = events->machines;
    struct engine g = {.job = job, .policy = policy, .run = out, .e = e};
    if (watch != NULL) g.watch = *watch;
    struct ideal ideal = {0};
    *out = (struct fleet_run){0};
    clockwork_init(&g.clock);
    g.alive = (bool *)calloc(machines, sizeof *g.alive);
    g.lost = calloc(machines, sizeof *g.lost);
    g.joined = calloc(machines, sizeof *g.joined);
    pawl_code code = PAWL_OK;
    if (g.alive == NULL || g.lost == NULL || g.joined == NULL)
        code = error_set(e, PAWL_MEMORY, 0, "no memory for %u machines", machines);
    if (code == PAWL_OK) code = make_events(&g, events);
    if (code == PAWL_OK) code = run_events(&g, events, seconds);
    if (code == PAWL_OK) code = fault_free(&g, machines, &ideal);
    if (code == PAWL_OK) finish_row(&g, seconds, &ideal);
    engine_close(&g);
    if (code != PAWL_OK) {
        free(out->samples);
        *out = (struct fleet_run){0};
    }
    return code;
}
