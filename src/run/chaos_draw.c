/* The faults of one chaotic run.
 *
 * Drawn in groups, since failures come together: one fault; two at the same step; a worker that dies and
 * another that joins; a stage that loses every replica; the end of the launcher, of everything, or a notice
 * to it. Half of the points are the default of their fault, half any point of the process. What lasts, lasts
 * between a tenth of the timeout and three timeouts, so that some of it is noticed and some is not. */
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "run/chaos.h"

/* What a spec says of waiting for workers, at most, in timeouts: chaos waits for nobody who may come. */
#define WAIT_TIMEOUTS 5

#define GROUPS_MAX 3u

struct drawer {
    struct rng_stream rng;
    const struct spec *spec;
    struct chaos_plan *plan;
    struct inject_limits limits;
    bool in_recovery; /* points of fences, goes, moves and loads, rather than those of a step */
    struct pawl_error *error;
    pawl_code code;
};

static uint32_t below(struct drawer *d, uint32_t bound) { return (uint32_t)rng_below(&d->rng, bound); }

/* ---- parts of a text ---- */

/* Passed when something has happened already. */
static bool is_of_recovery(enum fault_point point) {
    return (point >= FAULT_LOAD && point <= FAULT_SETTLE) || point == FAULT_COORD_FENCE ||
           point == FAULT_COORD_PLAN || point == FAULT_COORD_GO || point == FAULT_LAUNCH_FENCE ||
           point == FAULT_LAUNCH_GO;
}

static void append_point(struct drawer *d, char *text, enum fault_who who) {
    enum fault_point point;
    if (!d->in_recovery && below(d, 2) == 0) return;
    do point = (enum fault_point)(1 + below(d, FAULT_COUNT - 1));
    while (fault_who(point) != who || is_of_recovery(point) != d->in_recovery);
    size_t used = strlen(text);
    snprintf(text + used, INJECT_TEXT_BYTES - used, ":%s", fault_name(point));
}

static double draw_seconds(struct drawer *d) { return d->spec->failure.timeout_s * (1 + below(d, 30)) / 10; }

/* Mostly a worker that there is from the start; sometimes a place that only a join fills. */
static uint32_t draw_rank(struct drawer *d) {
    return below(d, 8) == 0 ? below(d, d->limits.ranks) : below(d, spec_ranks(d->spec));
}

static uint64_t draw_step(struct drawer *d) { return 1 + rng_below(&d->rng, d->limits.steps); }

/* The same step, or soon after. */
static uint64_t soon(struct drawer *d, uint64_t step) {
    uint64_t later = step + below(d, 3);
    return later < d->limits.steps ? later : d->limits.steps;
}

static void add(struct drawer *d, const char *text) {
    struct inject one;
    if (d->code != PAWL_OK || d->plan->faults.count >= CHAOS_FAULTS_MAX) return;
    for (uint32_t i = 0; i < d->plan->faults.count; i++)
        if (strcmp(d->plan->faults.items[i].text, text) == 0) return; /* one text fires once */
    d->code = inject_parse(text, &d->limits, &one, d->error);
    if (d->code == PAWL_OK) d->code = inject_set_add(&d->plan->faults, &one, d->error);
}

/* ---- faults ---- */

static void add_kill(struct drawer *d, const char *kind, uint32_t rank, uint64_t step) {
    char text[INJECT_TEXT_BYTES];
    snprintf(text, sizeof text, "%s:%u@%llu", kind, rank, (unsigned long long)step);
    append_point(d, text, FAULT_WHO_WORKER);
    d->plan->mortal++;
    add(d, text);
}

static void add_pause(struct drawer *d, const char *kind, uint32_t rank, uint64_t step) {
    char text[INJECT_TEXT_BYTES];
    double seconds = draw_seconds(d);
    snprintf(text, sizeof text, "%s:%u@%llu:%.2f", kind, rank, (unsigned long long)step, seconds);
    append_point(d, text, FAULT_WHO_WORKER);
    d->plan->fault_s += seconds;
    d->plan->mortal++;
    add(d, text);
}

static void add_slow(struct drawer *d, uint32_t rank, uint64_t step) {
    char text[INJECT_TEXT_BYTES];
    snprintf(text, sizeof text, "slow:%u@%llu:%u", rank, (unsigned long long)step, 2 + below(d, 4));
    add(d, text);
}

static void add_disk(struct drawer *d, uint32_t rank, uint64_t step) {
    static const char *const names[] = {"ENOSPC", "EIO", "stuck"};
    char text[INJECT_TEXT_BYTES];
    uint32_t name = below(d, 3);
    double seconds = draw_seconds(d);
    if (name < 2 && below(d, 4) == 0) { /* for ever: the run may have to end with it */
        snprintf(text, sizeof text, "disk:%u@%llu:%s", rank, (unsigned long long)step, names[name]);
        d->plan->ends++;
    } else {
        snprintf(text, sizeof text, "disk:%u@%llu:%s:%.2f", rank, (unsigned long long)step, names[name],
                 seconds);
        d->plan->fault_s += seconds;
    }
    append_point(d, text, FAULT_WHO_WORKER);
    add(d, text);
}

static void add_coord(struct drawer *d, uint64_t step) {
    char text[INJECT_TEXT_BYTES];
    snprintf(text, sizeof text, "coord@%llu", (unsigned long long)step);
    append_point(d, text, FAULT_WHO_COORD);
    add(d, text);
}

static void add_join(struct drawer *d, uint64_t step) {
    char text[INJECT_TEXT_BYTES];
    snprintf(text, sizeof text, "join@%llu", (unsigned long long)step);
    append_point(d, text, FAULT_WHO_LAUNCH);
    add(d, text);
}

static void add_end(struct drawer *d, uint64_t step) {
    static const char *const heads[] = {"kill:all", "kill:launcher", "term:launcher"};
    char text[INJECT_TEXT_BYTES];
    snprintf(text, sizeof text, "%s@%llu", heads[below(d, 3)], (unsigned long long)step);
    append_point(d, text, FAULT_WHO_LAUNCH);
    d->plan->ends++;
    add(d, text);
}

static void add_any(struct drawer *d, uint32_t rank, uint64_t step) {
    uint32_t at = below(d, 16);
    if (at < 5)
        add_kill(d, "kill", rank, step);
    else if (at < 7)
        add_pause(d, "stop", rank, step);
    else if (at < 9)
        add_kill(d, "term", rank, step);
    else if (at < 11)
        add_coord(d, step);
    else if (at < 12)
        add_join(d, step);
    else if (at < 13)
        add_slow(d, rank, step);
    else if (at < 14)
        add_pause(d, "net", rank, step);
    else
        add_disk(d, rank, step);
}

/* ---- groups ---- */

static void add_two_at_once(struct drawer *d) {
    uint64_t step = draw_step(d);
    uint32_t rank = draw_rank(d);
    add_any(d, rank, step);
    d->in_recovery = below(d, 2) == 0;
    add_any(d, (rank + 1 + below(d, spec_ranks(d->spec))) % d->limits.ranks, step);
    d->in_recovery = false;
}

static void add_stage_lost(struct drawer *d) {
    uint64_t step = draw_step(d);
    uint32_t stages = d->spec->parallel.stages, stage = below(d, stages);
    for (uint32_t p = 0; p < d->spec->parallel.pipelines; p++) add_kill(d, "kill", p * stages + stage, step);
}

static void add_return(struct drawer *d) {
    uint64_t step = draw_step(d);
    add_kill(d, below(d, 3) == 0 ? "term" : "kill", draw_rank(d), step);
    add_join(d, soon(d, step));
    if (below(d, 2) == 0) return;
    d->in_recovery = true; /* while it joins */
    add_any(d, draw_rank(d), soon(d, step));
    d->in_recovery = false;
}

static void add_group(struct drawer *d) {
    uint32_t at = below(d, 14);
    if (at < 5)
        add_any(d, draw_rank(d), draw_step(d));
    else if (at < 8)
        add_two_at_once(d);
    else if (at < 11)
        add_return(d);
    else if (at < 12)
        add_stage_lost(d);
    else
        add_end(d, draw_step(d));
}

/* ---- a run ---- */

static void draw_sets(struct drawer *d) {
    struct chaos_plan *p = d->plan;
    double wait = d->spec->failure.wait_s, most = WAIT_TIMEOUTS * d->spec->failure.timeout_s;
    p->respawn = below(d, 3) == 0 ? 1 + below(d, 2) : 0;
    p->barrier = below(d, 4) == 0;
    bytes_printf(&p->sets, "failure.wait_s=%g failure.respawn=%u%s", wait < most ? wait : most, p->respawn,
                 p->barrier ? " parallel.barrier=true" : "");
}

pawl_code chaos_draw(const struct spec *spec, uint64_t seed, uint32_t number, struct chaos_plan *out,
                     struct pawl_error *e) {
    struct drawer d = {.spec = spec, .plan = out, .error = e, .code = PAWL_OK};
    struct rng_block start = rng_philox(seed, number, 0);
    *out = (struct chaos_plan){.respawn = 0};
    d.rng.state = (uint64_t)start.v[0] << 32 | start.v[1];
    d.limits = (struct inject_limits){.ranks = spec_capacity(spec),
                                      .stages = spec->parallel.stages,
                                      .pipelines = spec->parallel.pipelines,
                                      .steps = spec->run.steps};
    draw_sets(&d);
    for (uint32_t groups = 1 + below(&d, GROUPS_MAX); groups > 0; groups--) add_group(&d);
    for (uint32_t i = 0; i < out->faults.count; i++)
        bytes_printf(&out->text, "%s%s", i > 0 ? " " : "", out->faults.items[i].text);
    bytes_put_u8(&out->text, 0);
    bytes_put_u8(&out->sets, 0);
    if (d.code == PAWL_OK && (out->text.failed || out->sets.failed))
        d.code = error_set(e, PAWL_MEMORY, 0, "no memory for the faults of a run");
    return d.code;
}

void chaos_plan_close(struct chaos_plan *plan) {
    inject_set_close(&plan->faults);
    bytes_close(&plan->text);
    bytes_close(&plan->sets);
}
