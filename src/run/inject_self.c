/* Implementation of run/inject_self.h. */
#include "run/inject_self.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/net.h"
#include "run/engine.h"
#include "store/store.h"

struct item {
    struct inject fault;
    bool armed;
    bool met; /* by a thread that may not do it: the owner does at its next poll */
};

struct inject_self {
    const char *run_dir;
    const struct inject_targets *targets; /* null: none */
    pthread_t owner;
    pthread_mutex_t lock; /* of items; never held while something is done */
    struct item *items;
    uint32_t count;
    _Atomic bool any_met;
    int64_t muted_until_ns; /* 0: not muted */
};

static int64_t ns_of(double seconds) { return (int64_t)(seconds * 1e9); }

pawl_code inject_self_new(const char *run_dir, const struct inject_targets *targets, struct inject_self **out,
                          struct pawl_error *e) {
    struct inject_self *s = calloc(1, sizeof *s);
    if (s == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for fault injection");
    s->run_dir = run_dir;
    s->targets = targets;
    s->owner = pthread_self();
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return PAWL_OK;
}

void inject_self_free(struct inject_self *s) {
    if (s == NULL) return;
    fault_arm(FAULT_NONE, 0);
    pthread_mutex_destroy(&s->lock);
    free(s->items);
    free(s);
}

pawl_code inject_self_add(struct inject_self *s, const char *text, struct pawl_error *e) {
    struct inject one;
    struct pawl_error why;
    if (inject_parse(text, NULL, &one, &why) != PAWL_OK)
        return error_set(e, PAWL_FORMAT, 0, "told of a fault that is none: %s", why.text);
    if (fault_who(one.point) == FAULT_WHO_LAUNCH)
        return error_set(e, PAWL_FORMAT, 0, "told of a fault of the launcher: %s", text);
    pthread_mutex_lock(&s->lock);
    struct item *more = realloc(s->items, (s->count + 1) * sizeof *more);
    if (more != NULL) {
        s->items = more;
        s->items[s->count++] = (struct item){.fault = one};
    }
    pthread_mutex_unlock(&s->lock);
    return more != NULL ? PAWL_OK : error_set(e, PAWL_MEMORY, 0, "no memory for the fault %s", text);
}

/* ---- what happens ---- */

/* In a child of one thread that may hold nothing: system calls alone. It keeps no descriptor (a lock, a
 * channel) of the process alive, and dies with it. */
static void continue_later(pid_t stopped, int64_t ns) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != stopped) _exit(0);
    syscall(SYS_close_range, 0u, ~0u, 0u);
    struct timespec left = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
    kill(stopped, SIGCONT);
    _exit(0);
}

/* Fault points of workers lie outside of locks, so that this thread may fork among others. The child is
 * reaped with the process: one that is stopped a hundred times leaves a hundred entries of no weight. */
static void stop_self(double seconds) {
    pid_t self = getpid();
    pid_t child = fork();
    if (child == 0) continue_later(self, ns_of(seconds));
    if (child > 0) kill(self, SIGSTOP);
}

static void mute(struct inject_self *s, double seconds) {
    net_mute(s->targets->net, true);
    s->muted_until_ns = clock_now_ns() + ns_of(seconds);
}

/* Slow and net: the owner's thread only. */
static void strike_owned(struct inject_self *s, const struct inject *f) {
    if (s->targets == NULL) return;
    if (f->kind == INJECT_SLOW && s->targets->engine != NULL) engine_slow(s->targets->engine, f->amount);
    if (f->kind == INJECT_NET && s->targets->net != NULL) mute(s, f->amount);
}

static void fail_disk(struct inject_self *s, const struct inject *f) {
    if (s->targets == NULL || s->targets->store == NULL) return;
    int64_t ns = f->amount > 0 ? ns_of(f->amount) : 0;
    if (f->os_errno == 0)
        store_stick(s->targets->store, ns);
    else
        store_fail(s->targets->store, f->os_errno, ns);
}

static void strike(struct inject_self *s, const struct inject *f) {
    switch (f->kind) {
    case INJECT_STOP:
        stop_self(f->amount);
        break;
    case INJECT_TERM:
        kill(getpid(), SIGTERM);
        break;
    case INJECT_DISK:
        fail_disk(s, f);
        break;
    case INJECT_SLOW:
    case INJECT_NET:
        strike_owned(s, f);
        break;
    default:
        kill(getpid(), SIGKILL);
    }
}

static bool is_owned(enum inject_kind kind) { return kind == INJECT_SLOW || kind == INJECT_NET; }

/* The next fault of this kind that is armed at `point`; it has fired then, or been left to the owner. */
static bool take(struct inject_self *s, enum inject_kind kind, enum fault_point point, struct inject *out) {
    bool found = false, mine = pthread_equal(s->owner, pthread_self()) != 0;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->count && !found; i++) {
        struct item *item = &s->items[i];
        if (!item->armed || item->fault.kind != kind || item->fault.point != point) continue;
        item->armed = false;
        item->fault.fired = true;
        item->met = is_owned(kind) && !mine;
        *out = item->fault;
        found = true;
        if (item->met) atomic_store(&s->any_met, true);
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

/* What ends the process comes last, what stops it before. */
static const enum inject_kind order[] = {INJECT_SLOW, INJECT_NET,  INJECT_DISK, INJECT_TERM,
                                         INJECT_STOP, INJECT_KILL, INJECT_COORD};

static void passed(enum fault_point point, void *context) {
    struct inject_self *s = context;
    struct inject f;
    for (size_t k = 0; k < sizeof order / sizeof order[0]; k++)
        while (take(s, order[k], point, &f)) {
            inject_note(s->run_dir, f.text);
            if (!is_owned(f.kind) || pthread_equal(s->owner, pthread_self())) strike(s, &f);
        }
}

/* ---- the owner's calls ---- */

void inject_self_at(struct inject_self *s, uint64_t version) {
    for (uint32_t i = 0; i < s->count; i++) { /* only the owner changes count and items */
        struct item *item = &s->items[i];
        pthread_mutex_lock(&s->lock);
        bool due = !item->armed && !item->fault.fired && item->fault.step <= version + 1;
        if (due) item->armed = true;
        pthread_mutex_unlock(&s->lock);
        if (due) fault_arm_call(item->fault.point, 1, passed, s);
    }
}

static bool take_met(struct inject_self *s, struct inject *out) {
    pthread_mutex_lock(&s->lock);
    bool found = false;
    for (uint32_t i = 0; i < s->count && !found; i++)
        if (s->items[i].met) {
            s->items[i].met = false;
            *out = s->items[i].fault;
            found = true;
        }
    pthread_mutex_unlock(&s->lock);
    return found;
}

void inject_self_poll(struct inject_self *s) {
    if (s == NULL) return;
    struct inject f;
    if (atomic_exchange(&s->any_met, false))
        while (take_met(s, &f)) strike(s, &f);
    if (s->muted_until_ns == 0 || clock_now_ns() < s->muted_until_ns) return;
    net_mute(s->targets->net, false);
    s->muted_until_ns = 0;
}
