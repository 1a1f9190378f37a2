/* Implementation of base/fault.h. The counters are all that an unarmed point reads; what is to happen is
 * kept under a lock, so that a point can be armed anew while another thread arrives at it. */
#include "base/fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

struct effect {
    fault_call *call; /* null: the signal */
    void *context;
    int signal;
};

static _Atomic uint32_t arrivals_left[FAULT_COUNT]; /* 0: not armed */
static struct effect effects[FAULT_COUNT];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *const names[FAULT_COUNT] = {
    "none",
#define X(name, text, who) text,
#include "base/fault.def"
#undef X
};

static const enum fault_who passed_by[FAULT_COUNT] = {
    FAULT_WHO_WORKER,
#define X(name, text, who) FAULT_WHO_##who,
#include "base/fault.def"
#undef X
};

const char *fault_name(enum fault_point point) { return point < FAULT_COUNT ? names[point] : "unknown"; }

enum fault_who fault_who(enum fault_point point) { return passed_by[point]; }

enum fault_point fault_of_name(const char *name) {
    for (uint32_t i = 1; i < FAULT_COUNT; i++)
        if (strcmp(names[i], name) == 0) return (enum fault_point)i;
    return FAULT_NONE;
}

static void arm(enum fault_point point, uint32_t nth, struct effect effect) {
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < FAULT_COUNT; i++)
        if (point == FAULT_NONE || i == (uint32_t)point) {
            effects[i] = effect;
            atomic_store_explicit(&arrivals_left[i], point == FAULT_NONE ? 0 : nth, memory_order_relaxed);
        }
    pthread_mutex_unlock(&lock);
}

void fault_arm(enum fault_point point, uint32_t nth) { fault_arm_signal(point, nth, SIGKILL); }

void fault_arm_signal(enum fault_point point, uint32_t nth, int signal) {
    arm(point, nth, (struct effect){.signal = signal});
}

void fault_arm_call(enum fault_point point, uint32_t nth, fault_call *call, void *context) {
    arm(point, nth, (struct effect){.call = call, .context = context});
}

static bool is_last_arrival(enum fault_point point, struct effect *effect) {
    pthread_mutex_lock(&lock);
    uint32_t left = atomic_load_explicit(&arrivals_left[point], memory_order_relaxed);
    *effect = effects[point];
    if (left > 0) atomic_store_explicit(&arrivals_left[point], left - 1, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
    return left == 1;
}

void fault_arrive(enum fault_point point) {
    struct effect effect;
    if (atomic_load_explicit(&arrivals_left[point], memory_order_relaxed) == 0) return;
    if (!is_last_arrival(point, &effect)) return;
    if (effect.call != NULL)
        effect.call(point, effect.context);
    else
        kill(getpid(), effect.signal);
}
