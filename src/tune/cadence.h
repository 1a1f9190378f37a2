/* The cadence's state, for cadence.c and its tests; the contract is in include/pawl/tune.h. */
#ifndef TUNE_CADENCE_H
#define TUNE_CADENCE_H

#include <pawl/tune.h>

#include "tune/window.h"

#define CADENCE_SAVES_MAX 32u

struct cadence_save { /* in flight */
    uint64_t step;
    double begun_s;
    double area; /* of `in_flight` over time, at its begin */
};

struct pawl_cadence {
    struct pawl_cadence_config config; /* defaults filled in */
    uint64_t every;                    /* now */
    bool any_begun;
    uint64_t last_step; /* of the newest save */

    struct cadence_save saves[CADENCE_SAVES_MAX];
    uint32_t in_flight;
    double now_s, area; /* latest time told; integral of in_flight over it */
    double ended_s;     /* when the newest save ended; -inf: none did */

    uint64_t iterations;            /* told so far */
    struct window all, quiet, busy; /* iteration times: all, without and beside saves in flight */
    struct window quiet_at;         /* numbers of the quiet ones */
    struct window service;          /* device time per save, as with N in flight */
    struct window spread;           /* of those about their median then, relative */
    double usual_s;                 /* median of `service` */
    struct window stalls;           /* per save */
    struct window beside;           /* iterations beside saves, per save */
    double stall_s;                 /* of the newest save so far */
    uint32_t beside_count;

    int confirm; /* evaluations in a row that want a longer (> 0) or a shorter (< 0) interval */
    bool stalled, has_change;
    struct pawl_cadence_change change;
};

#endif
