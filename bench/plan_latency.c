/* How long planning takes, everything included (bound, check, what users see), on one core; medians of an odd
 * number of runs. Beside it the processor time, which other programs on the machine do not lengthen. Usage:
 * bench_plan_latency [RUNS]. The aims stand in docs/planning.md. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <pawl/plan.h>

struct shape {
    uint32_t pipelines, stages, microbatches, failures;
};

static const struct shape shapes[] = {
    {3, 4, 6, 1},    {4, 4, 8, 1},    {4, 8, 16, 1},   {4, 8, 64, 1},    {8, 8, 32, 0},
    {8, 8, 32, 1},   {8, 8, 32, 2},   {8, 8, 32, 4},   {24, 8, 96, 1},   {16, 2, 64, 1},
    {64, 24, 96, 0}, {64, 24, 96, 1}, {64, 24, 96, 8}, {64, 24, 96, 64},
};
static const enum pawl_policy policies[] = {PAWL_POLICY_RECYCLE, PAWL_POLICY_PAWL};

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int measure(const struct shape *s, enum pawl_policy policy, int runs) {
    double planning[64], check[64], cpu[64];
    struct pawl_plan_summary last = {0};
    for (int i = 0; i < runs; i++) {
        struct pawl_plan_request r = {.pipelines = s->pipelines,
                                      .stages = s->stages,
                                      .microbatches = s->microbatches,
                                      .failures = s->failures,
                                      .policy = policy};
        struct pawl_plan *plan = NULL;
        struct pawl_error e = {0};
        double begin = cpu_ms();
        if (pawl_plan_make(&r, &plan, &e) != PAWL_OK) {
            fprintf(stderr, "%s\n", e.text);
            return 1;
        }
        cpu[i] = cpu_ms() - begin;
        last = *pawl_plan_summary(plan);
        planning[i] = last.planning_ms;
        check[i] = last.check_ms;
        pawl_plan_free(plan);
    }
    qsort(planning, (size_t)runs, sizeof *planning, by_value);
    qsort(check, (size_t)runs, sizeof *check, by_value);
    qsort(cpu, (size_t)runs, sizeof *cpu, by_value);
    printf("| %ux%ux%u | %u | %s | %llu | %.2f | %.2f | %.2f | %g | %g | %.2f %% | %u |\n", s->pipelines,
           s->stages, s->microbatches, s->failures, pawl_policy_name(policy),
           (unsigned long long)last.instructions, planning[runs / 2], cpu[runs / 2], check[runs / 2],
           last.period, last.lower_bound, 100 * last.gap, last.shared_count);
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv) {
    int runs = argc > 1 ? atoi(argv[1]) : 5;
    if (runs < 1 || runs > 63) runs = 5;
    printf("| D x P x M | failures | policy | instructions | planning_ms | cpu_ms | check_ms | period | "
           "bound | gap | "
           "helpers |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++)
            if (measure(&shapes[i], policies[p], runs) != 0) return 1;
    return 0;
}
