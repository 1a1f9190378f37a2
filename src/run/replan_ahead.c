/* The thread that plans while the run goes on: the plan in use under new costs, each likely next failure,
 * then a longer search for who is there.
 *
 * It works on requests and keeps answers in the cache; nothing it does changes what the run does, but that an
 * answer is there already, or better. When somebody asks meanwhile, what it is at is stopped and dropped:
 * half a search would give another plan than the one that is made inline. Tested in
 * tests/unit/run_replan_test.c. */
#include <stdlib.h>
#include <sys/resource.h>

#include "run/replan_state.h"

/* How long to search for who is there now: after that little is found (docs/planning.md). */
#define LONG_SEARCH_S 10.0
/* What trains comes first. */
#define NICE 19

struct replan_ahead {
    const struct spec *spec;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    /* Under the lock: */
    bool ends, works, better;
    uint64_t round; /* of work; what was begun in an older one is dropped */
    struct replan_job *jobs;
    uint32_t count, at;
    struct replan_cache cache;
    bool stop; /* read by the planner without the lock */
};

void replan_job_close(struct replan_job *j) {
    replan_request_close(&j->request);
    ir_plan_free(j->in_use);
    j->in_use = NULL;
}

/* ---- the thread ---- */

/* Without the lock. */
static pawl_code ask(struct replan_ahead *a, const struct replan_job *job, struct replan_answer *out) {
    struct replan_budget budget = {.stop = &a->stop, .in_use = job->in_use};
    struct pawl_error e = {0};
    if (job->kind == REPLAN_JOB_SEARCH) budget.search_s = LONG_SEARCH_S;
    return replan_ask(a->spec, &job->request, &budget, out, &e);
}

/* A plan that nobody would change to is kept for who asks, unless it was searched for long: then another,
 * made inline, is in use. */
static void keep(struct replan_ahead *a, struct replan_job *job, struct replan_answer *answer) {
    bool better = replan_answer_better(answer);
    if (job->kind != REPLAN_JOB_SEARCH || better)
        replan_cache_put(&a->cache, &job->request, answer, true);
    else
        replan_answer_close(answer);
    if (better && job->kind != REPLAN_JOB_NEXT) a->better = true;
}

/* With the lock, but while it plans. */
static void work(struct replan_ahead *a) {
    struct replan_job job = a->jobs[a->at];
    struct replan_answer answer = {0};
    uint64_t round = a->round;
    a->jobs[a->at++] = (struct replan_job){.kind = REPLAN_JOB_NEXT}; /* it is ours now */
    bool known = job.kind != REPLAN_JOB_SEARCH && replan_cache_has(&a->cache, &job.request);
    if (!known) {
        __atomic_store_n(&a->stop, false, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&a->lock);
        pawl_code code = ask(a, &job, &answer);
        pthread_mutex_lock(&a->lock);
        if (code == PAWL_OK && round == a->round && !a->ends)
            keep(a, &job, &answer);
        else
            replan_answer_close(&answer);
    }
    replan_job_close(&job);
}

static void *run(void *context) {
    struct replan_ahead *a = context;
    setpriority(PRIO_PROCESS, 0, NICE); /* of this thread alone; where it fails, no harm is done */
    pthread_mutex_lock(&a->lock);
    while (!a->ends) {
        if (a->at < a->count) {
            a->works = true;
            work(a);
            a->works = false;
        } else {
            pthread_cond_broadcast(&a->idle);
            pthread_cond_wait(&a->wake, &a->lock);
        }
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* ---- for the others ---- */

/* With the lock. */
static void drop_jobs(struct replan_ahead *a) {
    for (uint32_t i = a->at; i < a->count; i++) replan_job_close(&a->jobs[i]);
    free(a->jobs);
    a->jobs = NULL;
    a->count = a->at = 0;
    a->better = false;
    a->round++;
    __atomic_store_n(&a->stop, true, __ATOMIC_RELAXED);
}

pawl_code replan_ahead_start(const struct spec *spec, struct replan_ahead **out, struct pawl_error *e) {
    struct replan_ahead *a = calloc(1, sizeof *a);
    if (a == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory to plan ahead");
    a->spec = spec;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->wake, NULL);
    pthread_cond_init(&a->idle, NULL);
    int failed = pthread_create(&a->thread, NULL, run, a);
    if (failed == 0) {
        *out = a;
        return PAWL_OK;
    }
    free(a);
    return error_set(e, PAWL_BUSY, failed, "cannot start a thread to plan ahead");
}

void replan_ahead_stop(struct replan_ahead *a) {
    if (a == NULL) return;
    pthread_mutex_lock(&a->lock);
    a->ends = true;
    drop_jobs(a);
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    replan_cache_close(&a->cache);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->wake);
    pthread_cond_destroy(&a->idle);
    free(a);
}

void replan_ahead_pause(struct replan_ahead *a) {
    pthread_mutex_lock(&a->lock);
    drop_jobs(a);
    pthread_mutex_unlock(&a->lock);
}

void replan_ahead_work(struct replan_ahead *a, struct replan_job *jobs, uint32_t count) {
    pthread_mutex_lock(&a->lock);
    drop_jobs(a);
    a->jobs = jobs;
    a->count = count;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}

bool replan_ahead_better(struct replan_ahead *a) {
    pthread_mutex_lock(&a->lock);
    bool better = a->better;
    a->better = false;
    pthread_mutex_unlock(&a->lock);
    return better;
}

void replan_ahead_settle(struct replan_ahead *a) {
    pthread_mutex_lock(&a->lock);
    while (a->works || a->at < a->count) pthread_cond_wait(&a->idle, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

pawl_code replan_ahead_find(struct replan_ahead *a, const struct replan_request *q, struct replan_answer *out,
                            bool *ahead, struct pawl_error *e) {
    pthread_mutex_lock(&a->lock);
    pawl_code code = replan_cache_find(&a->cache, q, out, ahead, e);
    pthread_mutex_unlock(&a->lock);
    return code;
}

void replan_ahead_keep(struct replan_ahead *a, struct replan_request *q, struct replan_answer *answer) {
    pthread_mutex_lock(&a->lock);
    replan_cache_put(&a->cache, q, answer, false);
    pthread_mutex_unlock(&a->lock);
}
