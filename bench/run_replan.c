/* How long the coordinator waits for a plan at a failure: who plays which role, the planner, its checker, and
 * the copy for the message, for every single worker that may die; cold, and when the thread has planned it
 * before. Usage: bench_run_replan. The aims stand in docs/planning.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "run/replan_state.h"

struct shape {
    uint32_t pipelines, stages, microbatches;
};
static const struct shape shapes[] = {{2, 4, 8}, {4, 8, 16}, {4, 8, 32}, {8, 4, 32}, {16, 2, 64}, {8, 8, 32}};

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct bench {
    struct spec spec;
    uint32_t ranks;
    struct replan *replan;
    bool *candidates, *has_state;
};

static int failed(const struct pawl_error *e) {
    fprintf(stderr, "%s\n", e->text);
    return 1;
}

/* The first plan is in use, and with a thread the next ones are made. */
static int start(struct bench *b, bool background) {
    struct pawl_error e = {0};
    struct replan_plan *plan = NULL;
    struct replan_question q = {b->candidates, b->has_state};
    uint32_t need;
    size_t pairs = (size_t)b->ranks * b->spec.parallel.stages;
    memset(b->has_state, 0, pairs);
    if (replan_new(&b->spec, b->ranks, background, &b->replan, &e) != PAWL_OK) return failed(&e);
    if (replan_make(b->replan, &q, &plan, &need, &e) != PAWL_OK) return failed(&e);
    replan_used(b->replan, plan);
    memcpy(b->has_state, plan->holds, pairs);
    replan_plan_free(plan);
    replan_settle(b->replan);
    return 0;
}

static int measure(struct bench *b, bool background, double *ms, uint32_t *hits) {
    struct pawl_error e = {0};
    struct replan_question q = {b->candidates, b->has_state};
    uint32_t workers = spec_ranks(&b->spec), need;
    if (start(b, background) != 0) return 1;
    for (uint32_t i = 0; i < workers; i++) {
        struct replan_plan *plan = NULL;
        b->candidates[i] = false;
        double begin = now_ms();
        if (replan_make(b->replan, &q, &plan, &need, &e) != PAWL_OK) return failed(&e);
        ms[i] = now_ms() - begin;
        *hits += plan->ahead;
        replan_plan_free(plan);
        b->candidates[i] = true;
    }
    replan_free(b->replan);
    return 0;
}

static int run(const struct shape *s, enum pawl_policy policy) {
    struct bench b = {0};
    b.spec.parallel.pipelines = s->pipelines;
    b.spec.parallel.stages = s->stages;
    b.spec.parallel.microbatches = s->microbatches;
    b.spec.parallel.schedule = policy;
    b.ranks = spec_capacity(&b.spec);
    uint32_t workers = spec_ranks(&b.spec), hits = 0;
    b.candidates = calloc(b.ranks, sizeof *b.candidates);
    b.has_state = calloc((size_t)b.ranks * s->stages, sizeof *b.has_state);
    double *ms = calloc(2 * (size_t)workers, sizeof *ms);
    if (b.candidates == NULL || b.has_state == NULL || ms == NULL) return 1;
    memset(b.candidates, 1, workers);
    int code = measure(&b, false, ms, &hits);
    if (code == 0) code = measure(&b, true, ms + workers, &hits);
    qsort(ms, workers, sizeof *ms, by_value);
    qsort(ms + workers, workers, sizeof *ms, by_value);
    if (code == 0)
        printf("| %ux%ux%u | %s | %.2f | %.2f | %.2f | %.2f | %u of %u |\n", s->pipelines, s->stages,
               s->microbatches, pawl_policy_name(policy), ms[workers / 2], ms[workers - 1],
               ms[workers + workers / 2], ms[2 * workers - 1], hits, workers);
    fflush(stdout);
    free(b.candidates);
    free(b.has_state);
    free(ms);
    return code;
}

int main(void) {
    static const enum pawl_policy policies[] = {PAWL_POLICY_1F1B, PAWL_POLICY_RECYCLE, PAWL_POLICY_PAWL};
    printf("| D x P x M | schedule | cold p50, ms | max | ahead p50, ms | max | ahead "
           "|\n|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++)
            if (run(&shapes[i], policies[p]) != 0) return 1;
    return 0;
}
