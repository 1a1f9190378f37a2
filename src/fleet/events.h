/* Private to fleet: a list of events under construction. */
#ifndef FLEET_EVENTS_H
#define FLEET_EVENTS_H

#include "fleet/fleet.h"

/* More are refused: nobody waits for a simulation of them, and a slip in a rate makes them. */
#define FLEET_EVENTS_MAX (1u << 24)

pawl_code fleet_events_put(struct fleet_events *events, double at_s, uint32_t machine, bool joins,
                           struct pawl_error *e);
/* To the nearest, at least 1. */
uint32_t fleet_dead_count(double share, uint32_t machines);
/* One more line of warnings. */
pawl_code fleet_warn(char **warnings, struct pawl_error *e, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
