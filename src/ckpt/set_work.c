/* Threads that verify chunks and copy them to their targets, beside the owner, who reads. Checksums, copies
 * and above all the first touch of fresh memory cost more time than a fast device needs to read.
 *
 * A line that was handed over belongs to the threads until it is taken back. What they read besides (the
 * call, the set's parts) the owner changes only after fetch_work_quiesce. */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "ckpt/set_fetch.h"

/* Less is read before threads have started. */
#define WORK_BYTES_MIN ((uint64_t)32 << 20)
/* Lines that threads have or wait for, a thread: more would only spread over memory. */
#define LINES_EACH 2u

void fetch_work_on(const struct fetch *f, struct set_line *l) {
    l->delivered = false;
    if (!l->streamed) {
        if (fetch_verify(f->set, l, &l->why) == PAWL_OK && l->target == l->data)
            l->delivered = fetch_deliver_plain(f->call, l);
        return;
    }
    l->delivered = fetch_stream(f->call, l);
    l->why = (struct pawl_error){.code = l->delivered ? PAWL_OK : PAWL_CORRUPT}; /* the device will tell */
}

static void *thread_main(void *context) {
    struct fetch *f = context;
    struct fetch_work *w = &f->work;
    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (w->first == NULL && !w->stop) pthread_cond_wait(&w->todo, &w->mutex);
        struct set_line *l = w->first;
        if (l == NULL) break;
        w->first = l->next;
        if (w->first == NULL) w->end = &w->first;
        w->running++;
        pthread_mutex_unlock(&w->mutex);
        fetch_work_on(f, l);
        pthread_mutex_lock(&w->mutex);
        w->running--;
        l->next = w->finished;
        w->finished = l;
        pthread_cond_signal(&w->done);
        if (w->sleeper != NULL) store_wake(w->sleeper);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

static uint32_t processors(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

/* Signals are left to the threads that the program itself made. */
static void start(struct fetch *f, uint32_t count) {
    struct fetch_work *w = &f->work;
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
    while (w->thread_count < count && pthread_create(&w->threads[w->thread_count], NULL, thread_main, f) == 0)
        w->thread_count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void fetch_work_begin(struct fetch *f, uint64_t bytes) {
    struct fetch_work *w = &f->work;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->todo, &attributes);
    pthread_cond_init(&w->done, &attributes);
    pthread_condattr_destroy(&attributes);
    w->end = &w->first;
    uint32_t count = processors();
    if (count > 1 && bytes >= WORK_BYTES_MIN) start(f, count < FETCH_THREADS_MAX ? count : FETCH_THREADS_MAX);
}

void fetch_work_end(struct fetch *f) {
    struct fetch_work *w = &f->work;
    pthread_mutex_lock(&w->mutex);
    w->stop = true;
    pthread_cond_broadcast(&w->todo);
    pthread_mutex_unlock(&w->mutex);
    for (uint32_t i = 0; i < w->thread_count; i++) pthread_join(w->threads[i], NULL);
    pthread_cond_destroy(&w->done);
    pthread_cond_destroy(&w->todo);
    pthread_mutex_destroy(&w->mutex);
}

bool fetch_work_add(struct fetch *f, struct set_line *l) {
    struct fetch_work *w = &f->work;
    if (w->busy >= LINES_EACH * w->thread_count) return false;
    l->next = NULL;
    w->busy++;
    pthread_mutex_lock(&w->mutex);
    *w->end = l;
    w->end = &l->next;
    pthread_cond_signal(&w->todo);
    pthread_mutex_unlock(&w->mutex);
    return true;
}

struct set_line *fetch_work_take(struct fetch *f) {
    struct fetch_work *w = &f->work;
    if (w->busy == 0) return NULL;
    pthread_mutex_lock(&w->mutex);
    struct set_line *l = w->finished;
    if (l != NULL) w->finished = l->next;
    pthread_mutex_unlock(&w->mutex);
    if (l != NULL) w->busy--;
    return l;
}

void fetch_work_quiesce(struct fetch *f) {
    struct fetch_work *w = &f->work;
    pthread_mutex_lock(&w->mutex);
    while (w->first != NULL || w->running > 0) pthread_cond_wait(&w->done, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
}

void fetch_work_wait(struct fetch *f, struct store *store, int64_t timeout_ns) {
    struct fetch_work *w = &f->work;
    int64_t until = clock_now_ns() + timeout_ns;
    struct timespec t = {until / 1000000000, until % 1000000000};
    pthread_mutex_lock(&w->mutex);
    bool any = w->finished != NULL;
    w->sleeper = any ? NULL : store;
    if (!any && store == NULL) (void)pthread_cond_timedwait(&w->done, &w->mutex, &t);
    pthread_mutex_unlock(&w->mutex);
    if (any || store == NULL) return;
    store_wait(store, timeout_ns);
    pthread_mutex_lock(&w->mutex);
    w->sleeper = NULL;
    pthread_mutex_unlock(&w->mutex);
}
