/* See fleet.h: failures at a rate, by chance, or from the start on.
 *
 * Victims are drawn among those who are there. The repair time is the same for all, so that who was lost
 * first is back first and a queue suffices. Tested in tests/unit/fleet_events_test.c. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/rng.h"
#include "fleet/events.h"

struct drawing {
    const struct fleet_rates *rates;
    struct rng_stream rng;
    uint32_t *alive, alive_count; /* in any order */
    uint32_t returned;            /* events before it were looked at for their return */
    struct fleet_events events;
};

/* [0, 1) with 53 random bits. */
static double unit(struct rng_stream *rng) { return (double)(rng_next(rng) >> 11) * 0x1p-53; }

static uint32_t draw_victim(struct drawing *d) {
    uint32_t i = (uint32_t)rng_below(&d->rng, d->alive_count), machine = d->alive[i];
    d->alive[i] = d->alive[--d->alive_count];
    return machine;
}

/* Everybody who is back by then joins. */
static pawl_code return_until(struct drawing *d, double at_s, struct pawl_error *e) {
    double repair_s = d->rates->repair_s;
    while (repair_s > 0 && d->returned < d->events.count) {
        struct fleet_event lost = d->events.event[d->returned];
        if (!lost.joins) {
            double back_s = lost.at_s + repair_s;
            if (back_s > at_s || back_s >= d->rates->seconds) return PAWL_OK;
            pawl_code code = fleet_events_put(&d->events, back_s, lost.machine, true, e);
            if (code != PAWL_OK) return code;
            d->alive[d->alive_count++] = lost.machine;
        }
        d->returned++;
    }
    return PAWL_OK;
}

static pawl_code check_stop(const struct drawing *d, struct pawl_error *e) {
    if (d->rates->stop == NULL || !*(const volatile bool *)d->rates->stop) return PAWL_OK;
    return error_set(e, PAWL_CANCELLED, 0, "the simulation was stopped");
}

static pawl_code lose(struct drawing *d, double at_s, uint32_t count, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (; count > 0 && d->alive_count > 0 && code == PAWL_OK; count--)
        code = fleet_events_put(&d->events, at_s, draw_victim(d), false, e);
    return code;
}

static uint32_t burst_of(const struct fleet_rates *r) { return r->burst == 0 ? 1 : r->burst; }

static pawl_code draw_evenly(struct drawing *d, struct pawl_error *e) {
    const struct fleet_rates *r = d->rates;
    pawl_code code = PAWL_OK;
    if (r->seconds / r->every_s > FLEET_EVENTS_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "a failure every %g s in %g s: more than %u events", r->every_s,
                         r->seconds, FLEET_EVENTS_MAX);
    for (uint32_t i = 1; i * r->every_s < r->seconds && code == PAWL_OK; i++) {
        code = check_stop(d, e);
        if (code == PAWL_OK) code = return_until(d, i * r->every_s, e);
        if (code == PAWL_OK) code = lose(d, i * r->every_s, burst_of(r), e);
    }
    return code;
}

/* Every machine fails once in mtbf_s on the average: the next burst of the alive ones comes after a time that
 * is exponential with the mean mtbf_s * burst / alive. A return changes that mean; since the law has no
 * memory, the time is drawn anew from there. */
static pawl_code draw_by_chance(struct drawing *d, struct pawl_error *e) {
    const struct fleet_rates *r = d->rates;
    double now_s = 0;
    pawl_code code = PAWL_OK;
    while (code == PAWL_OK) {
        bool comes = r->repair_s > 0 && d->returned < d->events.count;
        while (comes && d->events.event[d->returned].joins) comes = ++d->returned < d->events.count;
        double back_s = comes ? d->events.event[d->returned].at_s + r->repair_s : INFINITY;
        double gap_s = -log1p(-unit(&d->rng)) * r->mtbf_s * burst_of(r) / d->alive_count;
        double next_s = d->alive_count > 0 ? now_s + gap_s : INFINITY;
        if (fmin(back_s, next_s) >= r->seconds) break;
        now_s = fmin(back_s, next_s);
        code = check_stop(d, e);
        if (code != PAWL_OK) break;
        code = back_s <= next_s ? return_until(d, now_s, e) : lose(d, now_s, burst_of(r), e);
    }
    return code;
}

uint32_t fleet_dead_count(double share, uint32_t machines) {
    uint32_t count = (uint32_t)llround(share * machines);
    return count > 0 ? count : 1;
}

/* One after the other from one stream: with the same seed a larger share has everybody of a smaller one. */
static pawl_code draw_dead(struct drawing *d, struct pawl_error *e) {
    return lose(d, 0, fleet_dead_count(d->rates->dead_share, d->rates->machines), e);
}

pawl_code fleet_events_draw(const struct fleet_rates *rates, struct fleet_events *out, struct pawl_error *e) {
    struct drawing d = {.rates = rates, .rng.state = rates->seed};
    d.events = (struct fleet_events){
        .machines = rates->machines, .present = rates->machines, .seconds = rates->seconds};
    d.alive = malloc(((size_t)rates->machines + 1) * sizeof *d.alive);
    if (d.alive == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u machines", rates->machines);
    for (uint32_t i = 0; i < rates->machines; i++) d.alive[d.alive_count++] = i;
    pawl_code code = PAWL_OK;
    if (rates->every_s > 0)
        code = draw_evenly(&d, e);
    else if (rates->mtbf_s > 0)
        code = draw_by_chance(&d, e);
    else if (rates->dead_share > 0)
        code = draw_dead(&d, e);
    if (code == PAWL_OK) code = return_until(&d, rates->seconds, e);
    free(d.alive);
    if (code == PAWL_OK)
        *out = d.events;
    else
        fleet_events_close(&d.events);
    return code;
}
