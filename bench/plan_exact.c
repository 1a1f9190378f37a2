/* Exact planning in numbers: instances x engines, what each proves and in which time, and how far the list
 * scheduler is from it.
 *
 *   bench_plan_exact [SECONDS] [NAME] [COLUMNS]
 *
 * SECONDS (10) is each engine's limit; NAME: only instances whose name begins so; COLUMNS (azc): which
 * engines. Columns: plan_list without and with search (300 rounds); then period/bound and seconds of what
 * plan_exact does with Z3 (pruning, branching, Z3 for the rest), of Z3 without branching, of CBC without
 * branching. `=` between period and bound: proven. All begin with the greedy list of the list scheduler's
 * first pass. Times F/I/W are whole numbers; `cap` micro-batches may be stored by a worker; the failed worker
 * is (1, 2), its orphans go round over its peers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/exact.h"

struct instance {
    const char *name;
    uint32_t pipelines, stages, microbatches, dead;
    uint64_t times[3], cap;
    enum plan_backward backward;
    bool staggered;
};

static const struct instance INSTANCES[] = {
    {"4x8", 1, 4, 8, 0, {1, 1, 1}, 0, PLAN_SPLIT, false},
    {"4x8 cap 4", 1, 4, 8, 0, {1, 1, 1}, 4, PLAN_SPLIT, false},
    {"4x8 2/3/2 cap 5", 1, 4, 8, 0, {2, 3, 2}, 5, PLAN_SPLIT, false},
    {"4x8 2/3/2 cap 4", 1, 4, 8, 0, {2, 3, 2}, 4, PLAN_SPLIT, false},
    {"4x8 2/3/2 cap 3", 1, 4, 8, 0, {2, 3, 2}, 3, PLAN_SPLIT, false},
    {"4x8 137/211/119", 1, 4, 8, 0, {137, 211, 119}, 0, PLAN_SPLIT, false},
    {"4x8 137/211/119 cap 5", 1, 4, 8, 0, {137, 211, 119}, 5, PLAN_SPLIT, false},
    {"4x8 137/211/119 cap 3", 1, 4, 8, 0, {137, 211, 119}, 3, PLAN_SPLIT, false},
    {"4x8 3/1/4 cap 4 staggered", 1, 4, 8, 0, {3, 1, 4}, 4, PLAN_SPLIT, true},
    {"4x8 1/1/1 cap 3 staggered", 1, 4, 8, 0, {1, 1, 1}, 3, PLAN_SPLIT, true},
    {"4x8 2/3/2 fused", 1, 4, 8, 0, {2, 3, 2}, 0, PLAN_FUSED, false},
    {"4x16 cap 5", 1, 4, 16, 0, {1, 1, 1}, 5, PLAN_SPLIT, false},
    {"4x16 2/3/2 cap 5", 1, 4, 16, 0, {2, 3, 2}, 5, PLAN_SPLIT, false},
    {"8x8", 1, 8, 8, 0, {1, 1, 1}, 0, PLAN_SPLIT, false},
    {"8x16 2/3/2 cap 9", 1, 8, 16, 0, {2, 3, 2}, 9, PLAN_SPLIT, false},
    {"2x4x8 one failed", 2, 4, 8, 1, {1, 1, 1}, 0, PLAN_SPLIT, false},
    {"2x4x8 one failed cap 6", 2, 4, 8, 1, {1, 1, 1}, 6, PLAN_SPLIT, false},
    {"3x4x8 one failed", 3, 4, 8, 1, {1, 1, 1}, 0, PLAN_SPLIT, false},
    {"3x4x8 one failed 2/3/2 cap 5", 3, 4, 8, 1, {2, 3, 2}, 5, PLAN_SPLIT, false},
    {"3x4x6 one failed fused", 3, 4, 6, 1, {1, 1, 1}, 0, PLAN_FUSED, false},
    {"3x4x6 one failed staggered", 3, 4, 6, 1, {1, 1, 1}, 0, PLAN_SPLIT, true},
    {"3x4x6 one failed staggered cap 6", 3, 4, 6, 1, {1, 1, 1}, 6, PLAN_SPLIT, true},
    {"3x4x6 one failed staggered cap 5", 3, 4, 6, 1, {1, 1, 1}, 5, PLAN_SPLIT, true},
    {"3x4x6 one failed staggered cap 4", 3, 4, 6, 1, {1, 1, 1}, 4, PLAN_SPLIT, true},
};

struct problem {
    struct plan_route *route;
    struct sim_costs costs;
};

static void stop_on(pawl_code code, const struct pawl_error *e) {
    if (code == PAWL_OK) return;
    fprintf(stderr, "bench_plan_exact: %s\n", e->text);
    exit(1);
}

static void open_problem(const struct instance *x, struct problem *p) {
    struct pawl_error e = {0};
    uint32_t workers = x->pipelines * x->stages;
    p->costs = (struct sim_costs){.pipelines = x->pipelines, .stages = x->stages, .chunks = x->stages};
    p->costs.chunk = calloc(x->stages, sizeof *p->costs.chunk);
    p->costs.limit = x->cap == 0 ? NULL : calloc(workers, sizeof *p->costs.limit);
    for (uint32_t w = 0; x->cap != 0 && w < workers; w++) p->costs.limit[w] = x->cap;
    for (uint32_t c = 0; c < x->stages; c++)
        p->costs.chunk[c] = (struct sim_chunk){.forward = x->times[0],
                                               .input_grad = x->times[1],
                                               .weight_grad = x->times[2],
                                               .full = 1,
                                               .kept = 1,
                                               .after_input = 1};
    stop_on(plan_route_new(x->pipelines, x->stages, x->stages, x->microbatches, &p->route, &e), &e);
    if (x->dead != 0) p->route->alive[1 * x->stages + 2] = false;
    for (uint32_t h = 0; h < x->pipelines; h++) {
        for (uint32_t c = 0; c < x->stages; c++) {
            for (uint32_t i = 0; i < x->microbatches; i++) {
                uint32_t host = h;
                if (!p->route->alive[h * x->stages + c])
                    host = (h + 1 + i % (x->pipelines - 1)) % x->pipelines;
                p->route->host[plan_route_cell(p->route, h, c, i)] = host * x->stages + c;
            }
        }
    }
}

static void close_problem(struct problem *p) {
    plan_route_free(p->route);
    free(p->costs.chunk);
    free(p->costs.limit);
}

static uint64_t list_period(const struct problem *p, const struct plan_list_options *options,
                            struct ir_plan **plan) {
    struct pawl_error e = {0};
    struct sim_result times = {0};
    stop_on(plan_list(p->route, &p->costs, options, plan, &e), &e);
    stop_on(sim_run(*plan, &p->costs, options->staggered, NULL, &times, &e), &e);
    uint64_t period = times.period;
    sim_result_close(&times);
    return period;
}

static void measure_engine(const struct problem *p, const struct ir_plan *seed,
                           const struct plan_exact_options *options, bool alone) {
    struct plan_exact_result r;
    struct pawl_error e = {0};
    pawl_code code = exact_make(p->route, &p->costs, seed, options, alone, &r, &e);
    if (code == PAWL_UNSUPPORTED) {
        printf(" %18s", "not built in");
        return;
    }
    stop_on(code, &e);
    char text[48];
    snprintf(text, sizeof text, "%llu %s %llu %5.2f", (unsigned long long)r.period, r.proven ? "=" : ">",
             (unsigned long long)r.bound, r.seconds);
    printf(" %18s", text);
    fflush(stdout);
    ir_plan_free(r.plan);
}

static void measure(const struct instance *x, double seconds, const char *columns) {
    struct problem p;
    open_problem(x, &p);
    struct plan_exact_options o = {.time_limit_s = seconds,
                                   .list = {.backward = x->backward, .staggered = x->staggered}};
    struct ir_plan *seed = NULL, *searched = NULL;
    o.bound = plan_bound_route(p.route, &p.costs, &o.list);
    uint64_t once = list_period(&p, &o.list, &seed);
    struct plan_list_options search = o.list;
    search.rounds = 300;
    search.search_s = seconds;
    search.bound = o.bound;
    uint64_t many = list_period(&p, &search, &searched);
    printf("%-34s %6llu %6llu %6llu", x->name, (unsigned long long)o.bound, (unsigned long long)once,
           (unsigned long long)many);
    o.engine = PLAN_Z3;
    if (strchr(columns, 'a') != NULL) measure_engine(&p, seed, &o, false);
    if (strchr(columns, 'z') != NULL) measure_engine(&p, seed, &o, true);
    o.engine = PLAN_CBC;
    if (strchr(columns, 'c') != NULL) measure_engine(&p, seed, &o, true);
    printf("\n");
    ir_plan_free(seed);
    ir_plan_free(searched);
    close_problem(&p);
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    const char *only = argc > 2 ? argv[2] : "", *columns = argc > 3 ? argv[3] : "azc";
    if (!(seconds > 0)) {
        fprintf(stderr, "usage: bench_plan_exact [SECONDS] [NAME] [COLUMNS]\n");
        return 64;
    }
    printf("%-34s %6s %6s %6s %18s %18s %18s\n", "instance", "bound", "list", "search", "all, then Z3",
           "Z3 alone", "CBC alone");
    for (size_t i = 0; i < sizeof INSTANCES / sizeof *INSTANCES; i++)
        if (strncmp(INSTANCES[i].name, only, strlen(only)) == 0) measure(&INSTANCES[i], seconds, columns);
    return 0;
}
