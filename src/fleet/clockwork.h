/* Private to fleet: where the time of a job goes, exactly.
 *
 *   running ─► useful (counts) ─► lost (it did not count after all)
 *           └► saving
 *   stopped, idle
 *
 * Saving goes in cycles: `every` seconds of work, then a save begins and training stands still for `stall`;
 * the save is durable `write` seconds after its begin. Whole cycles are reckoned at once, so a span between
 * two events costs O(1) however many saves are in it. useful + lost + saving + stopped + idle is the time
 * that passed. A stop does not end a save that is under way. Pure; seconds are doubles. Tested in
 * tests/unit/fleet_clockwork_test.c. */
#ifndef FLEET_CLOCKWORK_H
#define FLEET_CLOCKWORK_H

#include "fleet/policy.h"

struct point { /* how far the job had come */
    double counted, useful_s;
};
struct saves { /* begun at the same distance from each other, within one span */
    double first_s, apart_s, write_s;
    uint64_t count;
    struct point first, step;
};

struct clockwork {
    double now_s;
    double rate; /* micro-batches per second of work */
    struct fleet_saving saving;
    double until_save_s, stall_left_s, stop_left_s;
    struct point at;
    double lost_s, saving_s, stopped_s, idle_s;
    double stretch_s; /* of work since it last stood still */
    struct point durable;
    struct saves *saves; /* that may become durable later than `durable`; oldest first */
    uint32_t save_count, save_room;
};

void clockwork_init(struct clockwork *c);
void clockwork_close(struct clockwork *c);
/* How fast from now on, and how it saves; 0: idle. */
void clockwork_set(struct clockwork *c, double rate, const struct fleet_saving *saving);
/* Time passes; stands still first as long as it must. */
pawl_code clockwork_advance(struct clockwork *c, double to_s, struct pawl_error *e);
/* When it runs again: now_s, or later; infinite where it cannot run. */
double clockwork_runs_at(const struct clockwork *c);
/* Stands still for so long, from now on; a longer stop under way is not cut short. */
void clockwork_stop(struct clockwork *c, double seconds);
/* The last `seconds` of work, at most since it last stood still, did not count. */
void clockwork_lose(struct clockwork *c, double seconds);
/* Back to what is durable by now. */
void clockwork_roll_back(struct clockwork *c);
/* What there is now is durable. */
void clockwork_save(struct clockwork *c);

#endif
