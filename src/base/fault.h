/* Named fault points: where a test, or `pawl train --inject`, makes something go wrong on purpose.
 *
 * Something is a signal to the own process (SIGKILL, SIGSTOP, SIGTERM) or a call. It is the one piece of
 * process-wide state in pawl: a point must be reachable from any depth without a handle. Unarmed, a point
 * costs one relaxed load. Armed from any thread; strikes on whichever thread arrives, once. Points are armed
 * independently, one effect each: arming a point again replaces its effect. Tested in
 * tests/unit/base_fault_test.c and tests/crash. */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

enum fault_point {
    FAULT_NONE,
#define X(name, text, who) FAULT_##name,
#include "base/fault.def"
#undef X
    FAULT_COUNT
};

/* Which process passes a point. */
enum fault_who { FAULT_WHO_WORKER, FAULT_WHO_COORD, FAULT_WHO_LAUNCH };

const char *fault_name(enum fault_point point);
enum fault_who fault_who(enum fault_point point); /* not of FAULT_NONE */
/* FAULT_NONE when no point has this name. */
enum fault_point fault_of_name(const char *name);

/* At the nth (1 = next) arrival at `point` the process kills itself. FAULT_NONE disarms all points. */
void fault_arm(enum fault_point point, uint32_t nth);
/* ... sends itself this signal. */
void fault_arm_signal(enum fault_point point, uint32_t nth, int signal);
/* ... calls this function, on the thread that arrives, with the point already disarmed. */
typedef void fault_call(enum fault_point point, void *context);
void fault_arm_call(enum fault_point point, uint32_t nth, fault_call *call, void *context);

void fault_arrive(enum fault_point point);

#endif
