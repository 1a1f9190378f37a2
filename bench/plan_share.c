/* What sharing a failure beyond its stage brings where bubbles are few, and what it costs.
 *
 * For D pipelines x P stages x M micro-batches with one failure, two of one stage (spread by normalization
 * first) or two of different stages: the period of the schedule that is found for ReCycle's route and for
 * routes with so many helpers, beside the loads that bound them, the bound of any route, and the fault-free
 * M. Times in micro-batches of one stage (F + I + W, all equal). Excess: share of ReCycle's excess over the
 * fault-free period that is left. Copies: chunks held beyond one's own, each one chunk's state in memory.
 * One JSON object a line on stdout with -j, else a table.
 *
 *   bench_plan_share [-j] [-r ROUNDS] */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "plan/plan.h"

#define UNIT 3u /* ticks of F + I + W */

struct setting {
    bool json;
    uint32_t rounds;
};

struct cluster {
    struct sim_costs costs;
    uint32_t microbatches;
    bool *alive;
    const char *failures;
};

static _Noreturn void stop(const char *what, const char *why) {
    fprintf(stderr, "plan_share: %s: %s\n", what, why);
    exit(1);
}

static void cluster_init(struct cluster *c, uint32_t pipelines, uint32_t stages, uint32_t microbatches) {
    *c = (struct cluster){.costs = {.pipelines = pipelines, .stages = stages, .chunks = stages},
                          .microbatches = microbatches};
    c->costs.chunk = calloc(stages, sizeof *c->costs.chunk);
    if (c->costs.chunk == NULL) stop("memory", "none");
    for (uint32_t s = 0; s < stages; s++)
        c->costs.chunk[s] = (struct sim_chunk){
            .forward = 1, .input_grad = 1, .weight_grad = 1, .full = 1, .kept = 1, .after_input = 1};
}

static void cluster_close(struct cluster *c) {
    free(c->costs.chunk);
    free(c->alive);
}

static uint64_t predict(void *context, uint32_t stage, uint32_t holes) {
    const struct cluster *c = context;
    return plan_predict_stage(&c->costs, plan_full(c->microbatches), PAWL_POLICY_RECYCLE, stage, holes);
}

/* Roles after normalization. */
static void fail(struct cluster *c, const char *failures) {
    uint32_t stages = c->costs.stages, workers = c->costs.pipelines * stages;
    bool *dead = calloc(workers, sizeof *dead);
    if (dead == NULL) stop("memory", "none");
    c->failures = failures;
    dead[stages / 2] = true;
    if (strcmp(failures, "two, same stage") == 0) dead[stages + stages / 2] = true;
    if (strcmp(failures, "two, apart") == 0) dead[stages + 0] = true;
    struct plan_normal_request r = {.pipelines = c->costs.pipelines,
                                    .stages = stages,
                                    .dead = dead,
                                    .min_gain = 0.02,
                                    .time = predict,
                                    .context = c};
    struct plan_normal n;
    struct pawl_error e = {0};
    if (plan_normalize(&r, &n, &e) != PAWL_OK) stop("normalize", e.text);
    c->alive = n.alive;
    n.alive = NULL;
    plan_normal_close(&n);
    free(dead);
}

struct found {
    uint64_t period, bound, peak;
    double route_ms, list_ms;
};

static struct found schedule(const struct cluster *c, const struct plan_route *route,
                             const struct setting *setting) {
    struct plan_list_options o = {.backward = PLAN_SELECTIVE,
                                  .staggered = true,
                                  .rounds = setting->rounds,
                                  .search_s = setting->rounds > 0 ? 10 : 0};
    struct found f = {.bound = plan_bound_route(route, &c->costs, &o)};
    o.bound = f.bound;
    struct ir_plan *plan = NULL;
    struct sim_result times = {0};
    struct pawl_error e = {0};
    int64_t begin = clock_now_ns();
    if (plan_list(route, &c->costs, &o, &plan, &e) != PAWL_OK) stop("list", e.text);
    f.list_ms = (double)(clock_now_ns() - begin) * 1e-6;
    if (ir_check(plan, NULL, NULL, &e) != PAWL_OK) stop("check", e.text);
    if (sim_run(plan, &c->costs, true, NULL, &times, &e) != PAWL_OK) stop("sim", e.text);
    f.period = times.period;
    for (uint32_t w = 0; w < c->costs.pipelines * c->costs.stages; w++)
        if (times.peak[w] > f.peak) f.peak = times.peak[w];
    sim_result_close(&times);
    ir_plan_free(plan);
    return f;
}

static void print_row(const struct cluster *c, const struct setting *setting, uint32_t copies,
                      const struct found *f, uint64_t recycle, uint64_t free_bound) {
    uint64_t fault_free = (uint64_t)c->microbatches * UNIT;
    double left =
        recycle > fault_free ? ((double)f->period - (double)fault_free) / (double)(recycle - fault_free) : 0;
    const char *format =
        setting->json ? "{\"pipelines\":%u,\"stages\":%u,\"microbatches\":%u,\"failures\":\"%s\",\"copies\":%"
                        "u,\"period\":%.2f,"
                        "\"load\":%.2f,\"any_route\":%.2f,\"recycle\":%.2f,\"excess\":%.3f,\"peak\":%" PRIu64
                        ",\"route_ms\":%.2f,\"list_ms\":%.2f}\n"
                      : "| %u x %u x %u | %s | %u | %.2f | %.2f | %.2f | %.2f | %.3f | %" PRIu64
                        " | %.2f | %.2f |\n";
    printf(format, c->costs.pipelines, c->costs.stages, c->microbatches, c->failures, copies,
           (double)f->period / UNIT, (double)f->bound / UNIT, (double)free_bound / UNIT,
           (double)recycle / UNIT, left, f->peak, f->route_ms, f->list_ms);
    fflush(stdout);
}

/* A route with so many helpers, if that many are of use. */
static void try_helpers(const struct cluster *c, const struct setting *setting, uint32_t helpers,
                        uint64_t recycle, uint64_t free_bound) {
    struct plan_share share;
    struct pawl_error e = {0};
    int64_t begin = clock_now_ns();
    if (plan_share_route(&c->costs, plan_full(c->microbatches), c->alive, helpers, NULL, &share, &e) !=
        PAWL_OK)
        stop("share", e.text);
    double route_ms = (double)(clock_now_ns() - begin) * 1e-6;
    if (share.helper_count == helpers) {
        struct found f = schedule(c, share.route, setting);
        f.route_ms = route_ms;
        print_row(c, setting, helpers, &f, recycle, free_bound);
    }
    plan_share_close(&share);
}

static void one_case(const struct setting *setting, uint32_t pipelines, uint32_t stages,
                     uint32_t microbatches, const char *failures) {
    struct cluster c;
    cluster_init(&c, pipelines, stages, microbatches);
    fail(&c, failures);
    struct plan_route *route = NULL;
    struct pawl_error e = {0};
    if (plan_route_peers(&c.costs, plan_full(microbatches), c.alive, false, &route, &e) != PAWL_OK)
        stop("route", e.text);
    struct found f = schedule(&c, route, setting);
    plan_route_free(route);
    uint64_t free_bound = plan_bound_free(&c.costs, plan_full(microbatches), c.alive, true),
             recycle = f.period;
    print_row(&c, setting, 0, &f, recycle, free_bound);
    static const uint32_t helpers[] = {1, 2, 3, 4, 6, 8, 12, 16};
    for (size_t i = 0; i < sizeof helpers / sizeof helpers[0]; i++)
        try_helpers(&c, setting, helpers[i], recycle, free_bound);
    cluster_close(&c);
}

int main(int argc, char **argv) {
    struct setting setting = {0};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-j") == 0)
            setting.json = true;
        else if (strcmp(argv[i], "-r") == 0 && i + 1 < argc)
            setting.rounds = (uint32_t)strtoul(argv[++i], NULL, 10);
        else
            stop(argv[i], "usage: bench_plan_share [-j] [-r ROUNDS]");
    }
    static const char *const failures[] = {"one", "two, same stage", "two, apart"};
    if (!setting.json)
        printf("| D x P x M | failures | copies | period | its load | any route | ReCycle | excess left | "
               "peak | "
               "route ms | list ms |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t pipelines = 2; pipelines <= 8; pipelines *= 2)
        for (uint32_t stages = 4; stages <= 8; stages *= 2)
            for (uint32_t each = 8; each <= 16; each *= 2)
                for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++)
                    one_case(&setting, pipelines, stages, each * stages, failures[i]);
    return 0;
}
