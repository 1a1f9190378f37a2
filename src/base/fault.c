/* Implementation of base/fault.h. */
#include "base/fault.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static _Atomic uint32_t armed_point;
static _Atomic uint32_t arrivals_left;
static void (*fault_handler)(enum fault_point, void *);
static void *handler_context;

static const char *const fault_names[FAULT_COUNT] = {
    "none",
#define X(name, text) text,
#include "base/fault.def"
#undef X
};

const char *fault_name(enum fault_point point) {
    return point < FAULT_COUNT ? fault_names[point] : "unknown";
}

enum fault_point fault_of_name(const char *name) {
    for (uint32_t i = 1; i < FAULT_COUNT; i++)
        if (strcmp(fault_names[i], name) == 0) return (enum fault_point)i;
    return FAULT_NONE;
}

void fault_arm(enum fault_point point, uint32_t nth) {
    atomic_store(&arrivals_left, nth);
    atomic_store(&armed_point, (uint32_t)point);
}

void fault_set_handler(void (*handler)(enum fault_point, void *), void *context) {
    fault_handler = handler;
    handler_context = context;
}

void fault_arrive(enum fault_point point) {
    if (atomic_load_explicit(&armed_point, memory_order_relaxed) != (uint32_t)point) return;
    if (atomic_fetch_sub(&arrivals_left, 1) != 1) return;
    fault_arm(FAULT_NONE, 0);
    if (fault_handler != NULL)
        fault_handler(point, handler_context);
    else
        kill(getpid(), SIGKILL);
}
