/* A trace as events of a job's machines: any text is an error or events in order, in which nobody is lost who
 * is away and nobody joins who is there. The first byte is the number of machines. */
#include <math.h>
#include <stdlib.h>

#include "fleet/events_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fleet_events events = {0};
    bool there[256] = {false};
    if (size == 0) return 0;
    uint32_t machines = 1u + data[0];
    if (fleet_events_parse((const char *)data + 1, size - 1, machines, size, &events, NULL) != PAWL_OK)
        return 0;
    if (events.machines != machines || events.present == 0 || events.present > machines) abort();
    if (!(events.seconds >= 0)) abort();
    for (uint32_t m = 0; m < events.present; m++) there[m] = true;
    for (uint32_t i = 0; i < events.count; i++) {
        const struct fleet_event *x = &events.event[i];
        if (x->machine >= machines || there[x->machine] == x->joins) abort();
        if (!(x->at_s >= 0) || (i > 0 && x->at_s < x[-1].at_s)) abort();
        there[x->machine] = x->joins;
    }
    fleet_events_close(&events);
    return 0;
}
