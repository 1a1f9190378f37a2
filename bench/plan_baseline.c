/* The baselines in numbers: period, bubble and memory beside their formulas, and what planning and simulating
 * them takes on one core.
 *
 *   bench_plan_baseline PIPELINES STAGES MICROBATCHES [DEAD]
 *
 * F = I = W = 1 of a stage; stages are halves where a worker has two chunks. DEAD workers (of pipeline 1,
 * from its last stage up) give their micro-batches to their peers. Times are of the processor, the least of
 * three runs. Speeds are for comparing on one machine; docs/schedules.md has the table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plan/plan.h"

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* of one thread; others may use the machine */
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void stop_on(pawl_code code, const struct pawl_error *e) {
    if (code == PAWL_OK) return;
    fprintf(stderr, "bench_plan_baseline: %s\n", e->text);
    exit(1);
}

struct shape {
    uint32_t pipelines, stages, microbatches, dead;
};

struct problem {
    struct plan_route *route;
    uint32_t *stage_of;
    struct sim_costs costs;
};

static bool lives(const struct shape *s, uint32_t pipeline, uint32_t stage) {
    return pipeline != 1 || stage + s->dead < s->stages;
}

static void open_problem(const struct shape *s, enum pawl_policy policy, struct problem *p) {
    uint32_t per_stage = policy == PAWL_POLICY_INTERLEAVED || policy == PAWL_POLICY_ZB_V ? 2 : 1;
    uint32_t chunks = s->stages * per_stage, turn = 0;
    struct pawl_error e = {0};
    stop_on(plan_placement(policy, s->stages, chunks, &p->stage_of, &e), &e);
    stop_on(plan_route_new(s->pipelines, s->stages, chunks, s->microbatches, &p->route, &e), &e);
    p->route->stage_of = p->stage_of;
    for (uint32_t w = 0; w < s->pipelines * s->stages; w++)
        p->route->alive[w] = lives(s, w / s->stages, w % s->stages);
    for (uint64_t i = 0; i < (uint64_t)s->pipelines * chunks * s->microbatches; i++) {
        uint32_t stage = p->stage_of[i / s->microbatches % chunks];
        uint32_t host = (uint32_t)(i / s->microbatches / chunks);
        while (!lives(s, host, stage)) host = turn++ % s->pipelines;
        p->route->host[i] = host * s->stages + stage;
    }
    p->costs = (struct sim_costs){s->pipelines, s->stages, chunks, calloc(chunks, sizeof *p->costs.chunk),
                                  NULL,         NULL};
    for (uint32_t c = 0; c < chunks; c++)
        p->costs.chunk[c] = (struct sim_chunk){.forward = SIM_TICKS / per_stage,
                                               .input_grad = SIM_TICKS / per_stage,
                                               .weight_grad = SIM_TICKS / per_stage,
                                               .full = SIM_TICKS / per_stage,
                                               .kept = SIM_TICKS / per_stage,
                                               .after_input = SIM_TICKS / per_stage};
}

static void close_problem(struct problem *p) {
    plan_route_free(p->route);
    free(p->stage_of);
    free(p->costs.chunk);
}

static double least(double a, double b) { return a < b ? a : b; }

static void measure(const struct shape *s, enum pawl_policy policy, const char *name) {
    struct problem p;
    struct pawl_error e = {0};
    open_problem(s, policy, &p);
    double plan_ms = 1e9, check_ms = 1e9, run_ms = 1e9;
    uint64_t period = 0, peak = 0, bubble, most, instructions = 0;
    for (int turn = 0; turn < 3; turn++) {
        struct ir_plan *plan = NULL;
        struct sim_result times;
        double began = now_ms();
        stop_on(plan_baseline(policy, p.route, &p.costs, &plan, &e), &e);
        double planned = now_ms();
        stop_on(ir_check(plan, NULL, NULL, &e), &e);
        double checked = now_ms();
        stop_on(sim_run(plan, &p.costs, plan_policy_staggered(policy), NULL, &times, &e), &e);
        double ran = now_ms();
        plan_ms = least(plan_ms, planned - began);
        check_ms = least(check_ms, checked - planned);
        run_ms = least(run_ms, ran - checked);
        period = times.period;
        instructions = times.first[s->pipelines * s->stages];
        for (uint32_t w = 0; w < s->pipelines * s->stages; w++)
            if (times.peak[w] > peak) peak = times.peak[w];
        sim_result_close(&times);
        ir_plan_free(plan);
    }
    plan_baseline_formula(policy, &p.costs, s->microbatches, &bubble, &most);
    printf("%-12s %8.2f %8.2f %8.2f %8.2f %8.2f %9llu %8.1f %8.1f %8.1f\n", name, (double)period / SIM_TICKS,
           (double)period / SIM_TICKS - 3.0 * s->microbatches, (double)bubble / SIM_TICKS,
           (double)peak / SIM_TICKS, (double)most / SIM_TICKS, (unsigned long long)instructions, plan_ms,
           check_ms, run_ms);
    close_problem(&p);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"};
    if (argc < 4) {
        fprintf(stderr, "usage: bench_plan_baseline PIPELINES STAGES MICROBATCHES [DEAD]\n");
        return 64;
    }
    struct shape s = {(uint32_t)strtoul(argv[1], NULL, 10), (uint32_t)strtoul(argv[2], NULL, 10),
                      (uint32_t)strtoul(argv[3], NULL, 10),
                      argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 0};
    if (s.dead > 0 && (s.pipelines < 2 || s.dead > s.stages)) {
        fprintf(stderr, "bench_plan_baseline: %u dead need two pipelines of as many stages\n", s.dead);
        return 64;
    }
    printf("%-12s %8s %8s %8s %8s %8s %9s %8s %8s %8s\n", "policy", "period", "bubble", "formula", "stored",
           "formula", "instr", "plan ms", "check ms", "sim ms");
    for (int policy = 0; policy < 6; policy++) measure(&s, (enum pawl_policy)policy, names[policy]);
    return 0;
}
