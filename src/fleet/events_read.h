/* Private to fleet: fleet_events_read of a text that is in memory already. */
#ifndef FLEET_EVENTS_READ_H
#define FLEET_EVENTS_READ_H

#include "fleet/fleet.h"

pawl_code fleet_events_parse(const char *text, size_t size, uint32_t machines, uint64_t seed,
                             struct fleet_events *out, struct pawl_error *e);

#endif
