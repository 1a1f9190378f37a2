/* The signals by which a machine or a person announces the end: a run saves and ends, a worker leaves,
 * without loss. SIGUSR1 is how batch systems announce it ahead of the SIGTERM. Every process of a run answers
 * each of them; who misses one dies of it. Tested in tests/e2e/attend_test.py. */
#ifndef PAWL_RUN_NOTICE_H
#define PAWL_RUN_NOTICE_H

#include <signal.h>
#include <stddef.h>

static const int notice_signals[] = {SIGINT, SIGTERM, SIGUSR1};
#define NOTICE_COUNT (sizeof notice_signals / sizeof notice_signals[0])

static inline sigset_t notice_set(void) {
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < NOTICE_COUNT; i++) sigaddset(&set, notice_signals[i]);
    return set;
}

#endif
