/* The last step of a child, and what its parent hears of it: a program that cannot be executed is told with
 * its path and the cause, and not as a process that ended with 127.
 *
 * fork between start_open and start_await; the child ends in start_become. Tested in
 * tests/e2e/foreign_test.py and tests/e2e/attend_test.py. */
#ifndef RUN_START_H
#define RUN_START_H

#include <sys/types.h>

#include "base/error.h"

/* The program that runs, also when its file has been removed or replaced since. */
#define START_SELF "/proc/self/exe"

/* ends[1]: for the child, above the descriptors that children are given. Both are -1 after a failure. */
pawl_code start_open(int ends[2], struct pawl_error *e);
/* In the child: `image` with the arguments `words`. Only calls that are safe between fork and exec. */
void start_become(const char *image, char *const *words, int report) __attribute__((noreturn));
/* In the parent, `child` -1 when there is none: closes both ends. Waits, a second at most, until the child
 * has become what it was to be. On a failure the child has been reaped. Errors: NOT_FOUND; ARGUMENT: it is no
 * program, or not for us; what the system lacks. */
pawl_code start_await(int ends[2], pid_t child, const char *name, struct pawl_error *e);

/* Whether `path`, of the option or field `what`, may be a program at all. NOT_FOUND, or ARGUMENT. */
pawl_code start_check(const char *what, const char *path, struct pawl_error *e);

#endif
