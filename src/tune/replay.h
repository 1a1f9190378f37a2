/* A training job in simulated time: iterations, saves in flight on a device they share, failures.
 *
 * What a save policy is worth where failures come from a recorded trace, and the yardstick for the closed
 * forms of interval.c. At a failure the job goes back to the newest save that was durable by then and pays
 * load_s; what was in flight is lost. The device serves c saves at once at 1 + (speedup - 1)(c - 1)/(N - 1)
 * times the rate of one, shared evenly. Pure and deterministic. Tested in tests/unit/tune_interval_test.c and
 * tests/golden/tune_goodput_test.c. */
#ifndef TUNE_REPLAY_H
#define TUNE_REPLAY_H

#include <pawl/tune.h>

#define REPLAY_SAVES_MAX 32u

struct replay_config {
    double seconds;     /* of simulated time */
    double iteration_s; /* t */
    double service_s;   /* the device's time for one save alone */
    double speedup;     /* with in_flight at once, 1 to in_flight; 0: 1 */
    double stall_s;     /* training stands still at each begin: copying */
    double load_s;      /* from a failure to training again */
    uint32_t in_flight; /* N; a save that is due while N are in flight waits for one to end */
    bool synchronous;   /* training stands still until the save is durable */
    uint64_t every;
    struct pawl_cadence *cadence;                     /* instead of every; null: none */
    double (*iteration)(void *context, double now_s); /* factors; null: 1 */
    double (*device)(void *context, double now_s);    /* of the rate; 0: it hangs */
    double (*noise)(void *context);                   /* factor of a save's size */
    void *context;
    const double *failures; /* ascending, in [0, seconds) */
    uint32_t failure_count;
};

struct replay_result {
    uint64_t iterations; /* that counted at the end */
    uint64_t redone;     /* computed and lost */
    uint64_t saves, durable, failures;
    uint32_t in_flight_max;
    double goodput;            /* iterations that counted per second */
    double slowdown;           /* seconds over those of the iterations computed; includes loading */
    double held_s;             /* training stood still for saves */
    double lost_s, lost_s_max; /* from the newest durable state to a failure, and loading: sum, largest */
};

pawl_code replay_run(const struct replay_config *config, struct replay_result *out, struct pawl_error *e);

#endif
