/* Reads an instance of the exact planner from standard input, solves it, prints period, bound and proof.
 *
 * For tests/e2e/plan_exact_test.py, which solves the same instance with another solver. One field a line:
 *   shape D P M                       first; chunk c is at stage c
 *   engine z3|cbc   seconds S   backward split|selective|fused   staggered 0|1   free 0|1   alone 0|1
 *   cost C F I W SEND_F SEND_B REDUCE STEP FULL AFTER
 *   dead WORKER   slow WORKER FACTOR   limit WORKER AMOUNT   host HOME CHUNK NUMBER WORKER
 * Prints: period P bound B proven 0|1 seconds S */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kit/exact_kit.h"
#include "plan/exact.h"

static int fail(const char *what) {
    fprintf(stderr, "plan_exact_run: %s\n", what);
    return 2;
}

static bool read_cost(struct exact_world *w, const char *line) {
    struct sim_chunk c = {0};
    unsigned chunk;
    unsigned long long v[9];
    if (sscanf(line, "cost %u %llu %llu %llu %llu %llu %llu %llu %llu %llu", &chunk, v, v + 1, v + 2, v + 3,
               v + 4, v + 5, v + 6, v + 7, v + 8) != 10 ||
        chunk >= w->costs.chunks)
        return false;
    c = (struct sim_chunk){.forward = v[0],
                           .input_grad = v[1],
                           .weight_grad = v[2],
                           .send_forward = v[3],
                           .send_backward = v[4],
                           .reduce = v[5],
                           .step = v[6],
                           .full = v[7],
                           .kept = v[7],
                           .after_input = v[8]};
    w->costs.chunk[chunk] = c;
    return true;
}

static bool read_worker(struct exact_world *w, const char *line) {
    uint32_t workers = w->costs.pipelines * w->costs.stages;
    unsigned worker;
    double factor;
    unsigned long long amount;
    if (sscanf(line, "dead %u", &worker) == 1 && worker < workers) {
        w->route->alive[worker] = false;
        return true;
    }
    if (sscanf(line, "slow %u %lf", &worker, &factor) == 2 && worker < workers) {
        if (w->costs.slow == NULL) {
            w->costs.slow = calloc(workers, sizeof *w->costs.slow);
            for (uint32_t i = 0; i < workers; i++) w->costs.slow[i] = 1;
        }
        w->costs.slow[worker] = factor;
        return true;
    }
    if (sscanf(line, "limit %u %llu", &worker, &amount) != 2 || worker >= workers) return false;
    if (w->costs.limit == NULL) exact_world_limit(w, UINT64_MAX);
    w->costs.limit[worker] = amount;
    return true;
}

static bool read_host(struct exact_world *w, const char *line) {
    unsigned home, chunk, number, worker;
    const struct plan_route *r = w->route;
    if (sscanf(line, "host %u %u %u %u", &home, &chunk, &number, &worker) != 4 || home >= r->pipelines ||
        chunk >= r->chunks || number >= r->microbatches || worker >= r->pipelines * r->stages)
        return false;
    r->host[plan_route_cell(r, home, chunk, number)] = worker;
    return true;
}

static bool read_option(struct plan_exact_options *o, bool *alone, const char *line) {
    char word[16];
    int flag;
    if (sscanf(line, "engine %15s", word) == 1)
        o->engine = strcmp(word, "cbc") == 0 ? PLAN_CBC : PLAN_Z3;
    else if (sscanf(line, "backward %15s", word) == 1)
        o->list.backward = strcmp(word, "fused") == 0   ? PLAN_FUSED
                           : strcmp(word, "split") == 0 ? PLAN_SPLIT
                                                        : PLAN_SELECTIVE;
    else if (sscanf(line, "staggered %d", &flag) == 1)
        o->list.staggered = flag != 0;
    else if (sscanf(line, "alone %d", &flag) == 1)
        *alone = flag != 0;
    else if (sscanf(line, "free %d", &flag) == 1)
        o->free_route = flag != 0;
    else
        return sscanf(line, "seconds %lf", &o->time_limit_s) == 1;
    return true;
}

int main(void) {
    struct exact_world w = {0};
    struct plan_exact_options options = {.time_limit_s = 10};
    char line[160];
    bool alone = false;
    unsigned d, p, m;
    static const uint64_t ones[3] = {1, 1, 1};
    if (fgets(line, sizeof line, stdin) == NULL || sscanf(line, "shape %u %u %u", &d, &p, &m) != 3)
        return fail("the first line is not `shape D P M`");
    w = exact_world_new(d, p, m, ones);
    while (fgets(line, sizeof line, stdin) != NULL)
        if (!read_cost(&w, line) && !read_worker(&w, line) && !read_host(&w, line) &&
            !read_option(&options, &alone, line))
            return fail(line);
    struct ir_plan *seed = exact_some_plan(&w, options.list.backward == PLAN_FUSED);
    struct plan_exact_result result;
    struct pawl_error e;
    pawl_code code = exact_make(w.route, &w.costs, seed, &options, alone, &result, &e);
    if (code == PAWL_OK)
        printf("period %llu bound %llu proven %d seconds %.2f\n", (unsigned long long)result.period,
               (unsigned long long)result.bound, result.proven, result.seconds);
    else
        fprintf(stderr, "plan_exact_run: %s: %s\n", pawl_code_name(code), e.text);
    if (code == PAWL_OK) ir_plan_free(result.plan);
    ir_plan_free(seed);
    exact_world_close(&w);
    return code == PAWL_OK ? 0 : code == PAWL_UNSUPPORTED ? 77 : 1;
}
