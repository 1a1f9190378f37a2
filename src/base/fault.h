/* Named fault points: where a test, or `pawl train --inject`, ends this process with SIGKILL.
 *
 * The one piece of process-wide state in pawl: a point must be reachable from any depth without a
 * handle. Unarmed, a point costs one relaxed load. Armed from any thread; fires on whichever thread
 * arrives. Tested in tests/crash. */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

enum fault_point {
    FAULT_NONE,
#define X(name, text) FAULT_##name,
#include "base/fault.def"
#undef X
    FAULT_COUNT
};

const char *fault_name(enum fault_point point);
/* FAULT_NONE when no point has this name. */
enum fault_point fault_of_name(const char *name);

/* The process kills itself at the nth (1 = next) arrival at `point`. FAULT_NONE disarms. */
void fault_arm(enum fault_point point, uint32_t nth);

/* Tests in one process set a function that is called instead of the kill; null restores the kill. */
void fault_set_handler(void (*handler)(enum fault_point point, void *context), void *context);

void fault_arrive(enum fault_point point);

#endif
