/* The threads of store/pool.h: one queue in, one list out, both under one mutex. An operation moves
 * megabytes, so that the lock costs nothing beside it. A pool made smaller keeps its threads asleep. */
#include "store/pool.h"

#include <signal.h>

bool pool_init(struct pool *p, struct store *s, int (*run)(struct store_op *op)) {
    p->store = s;
    p->run = run;
    p->wanted = s->depth;
    if (pthread_mutex_init(&p->mutex, NULL) != 0) return false;
    if (pthread_cond_init(&p->work, NULL) != 0) {
        pthread_mutex_destroy(&p->mutex);
        return false;
    }
    if (store_cond_init(&p->event)) return true;
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->mutex);
    return false;
}

/* An operation this thread may do now; null when it shall end. Holds the mutex. */
static struct store_op *take(struct pool *p) {
    while (!p->stop && (p->queue.first == NULL || p->running >= p->wanted))
        pthread_cond_wait(&p->work, &p->mutex);
    if (p->stop) return NULL;
    p->running++;
    return store_op_pop(&p->queue);
}

static int run(struct pool *p, struct store_op *op) {
    int dead = op->file->dead_errno; /* nothing more goes to a file whose flush failed */
    return dead != 0 ? dead : p->run(op);
}

static void *thread_main(void *arg) {
    struct pool *p = arg;
    pthread_mutex_lock(&p->mutex);
    for (struct store_op *op = take(p); op != NULL; op = take(p)) {
        pthread_mutex_unlock(&p->mutex);
        op->result = run(p, op);
        pthread_mutex_lock(&p->mutex);
        p->running--;
        store_op_push(&p->finished, op);
        pthread_cond_signal(&p->event);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

/* As many threads as there is work for. Signals are left to the threads that the program itself made. Holds
 * the mutex. */
static void start_missing(struct pool *p) {
    sigset_t all, before;
    if (p->started >= p->wanted || p->running + p->queue.count <= p->started) return;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
    while (p->started < p->wanted && p->running + p->queue.count > p->started &&
           pthread_create(&p->threads[p->started], NULL, thread_main, p) == 0)
        p->started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void pool_submit(struct pool *p, struct store_op *op) {
    pthread_mutex_lock(&p->mutex);
    store_op_push(&p->queue, op);
    start_missing(p);
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->mutex);
}

void pool_progress(struct pool *p) {
    pthread_mutex_lock(&p->mutex);
    struct store_op *own = p->started == 0 ? store_op_pop(&p->queue) : NULL;
    struct store_op_list finished = p->finished;
    p->finished = (struct store_op_list){0};
    pthread_mutex_unlock(&p->mutex);
    if (own != NULL) { /* the system gave no thread: better slow than not at all */
        own->result = run(p, own);
        store_op_push(&finished, own);
    }
    for (struct store_op *op = store_op_pop(&finished); op != NULL; op = store_op_pop(&finished))
        store_op_finish(op, op->result);
}

void pool_wait(struct pool *p, int64_t timeout_ns) {
    if (timeout_ns <= 0) return;
    int64_t deadline_ns = store_deadline(timeout_ns);
    pthread_mutex_lock(&p->mutex);
    bool before = true;
    while (before && !p->woken && p->finished.first == NULL && (p->started > 0 || p->queue.first == NULL))
        before = store_cond_wait(&p->event, &p->mutex, deadline_ns);
    p->woken = false;
    pthread_mutex_unlock(&p->mutex);
}

void pool_wake(struct pool *p) {
    pthread_mutex_lock(&p->mutex);
    p->woken = true;
    pthread_cond_signal(&p->event);
    pthread_mutex_unlock(&p->mutex);
}

void pool_resize(struct pool *p, uint32_t wanted) {
    pthread_mutex_lock(&p->mutex);
    p->wanted = wanted;
    start_missing(p);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->mutex);
}

void pool_close(struct pool *p) {
    pthread_mutex_lock(&p->mutex);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->mutex);
    for (uint32_t i = 0; i < p->started; i++) pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->event);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->mutex);
}
