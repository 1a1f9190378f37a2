/* Shared by the tests of the list scheduler: cases of uniform or given costs, their plans checked by ir_check
 * and timed by sim_run. */
#ifndef KIT_PLAN_LIST_KIT_H
#define KIT_PLAN_LIST_KIT_H

#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

enum kit_caps { KIT_UNCAPPED, KIT_EVEN, KIT_1F1B, KIT_FIXED }; /* P + x, P - s + x, x */

struct kit_case {
    uint32_t pipelines, stages, microbatches;
    uint64_t forward, input_grad, weight_grad; /* units; all 0: 1, 1, 1 */
    uint64_t comm;
    uint32_t dead_count, dead_stage[4]; /* of pipelines 0, 1, ... */
    enum kit_caps caps;
    uint64_t x;
    struct plan_list_options options;
};

struct kit_setup {
    struct sim_costs costs;
    bool *alive;
    struct plan_route *route;
};

static inline void *kit_zero(size_t count, size_t size) {
    void *p = calloc(count, size);
    assert_non_null(p);
    return p;
}

static inline struct sim_chunk kit_chunk(const struct kit_case *c) {
    bool unit = c->forward + c->input_grad + c->weight_grad == 0;
    struct sim_chunk k = {.full = 1, .kept = 1, .after_input = 1};
    k.forward = SIM_TICKS * (unit ? 1 : c->forward);
    k.input_grad = SIM_TICKS * (unit ? 1 : c->input_grad);
    k.weight_grad = SIM_TICKS * (unit ? 1 : c->weight_grad);
    k.send_forward = k.send_backward = SIM_TICKS * c->comm;
    return k;
}

static inline uint64_t kit_cap(const struct kit_case *c, uint32_t stage) {
    if (c->caps == KIT_FIXED) return c->x;
    return c->caps == KIT_EVEN ? c->stages + c->x : c->stages - stage + c->x;
}

/* The route is left to the caller where it is not that of the peers. */
static inline void kit_costs(const struct kit_case *c, struct kit_setup *out) {
    uint32_t workers = c->pipelines * c->stages;
    memset(out, 0, sizeof *out);
    out->costs.pipelines = c->pipelines, out->costs.stages = out->costs.chunks = c->stages;
    out->costs.chunk = kit_zero(c->stages, sizeof *out->costs.chunk);
    for (uint32_t s = 0; s < c->stages; s++) out->costs.chunk[s] = kit_chunk(c);
    if (c->caps != KIT_UNCAPPED) {
        out->costs.limit = kit_zero(workers, sizeof *out->costs.limit);
        for (uint32_t w = 0; w < workers; w++) out->costs.limit[w] = kit_cap(c, w % c->stages);
    }
    out->alive = kit_zero(workers, sizeof *out->alive);
    for (uint32_t w = 0; w < workers; w++) out->alive[w] = true;
    for (uint32_t i = 0; i < c->dead_count; i++) out->alive[i * c->stages + c->dead_stage[i]] = false;
}

static inline void kit_open(const struct kit_case *c, struct kit_setup *out) {
    struct pawl_error e = {0};
    kit_costs(c, out);
    if (plan_route_peers(&out->costs, plan_full(c->microbatches), out->alive, false, &out->route, &e) !=
        PAWL_OK)
        fail_msg("route: %s", e.text);
}

static inline void kit_close(struct kit_setup *s) {
    free(s->costs.chunk);
    free(s->costs.limit);
    free(s->costs.slow);
    free(s->alive);
    plan_route_free(s->route);
}

/* The checker's opinion, then the simulator's period, which must bear its own second look. Ticks. */
static inline uint64_t kit_judge(const struct kit_setup *s, const struct ir_plan *plan, bool staggered) {
    struct pawl_error e = {0};
    struct sim_result times;
    uint32_t chunks = s->costs.chunks;
    uint64_t *size[3];
    for (int i = 0; i < 3; i++) size[i] = kit_zero(chunks, sizeof *size[i]);
    for (uint32_t c = 0; c < chunks; c++) {
        size[0][c] = s->costs.chunk[c].full;
        size[1][c] = s->costs.chunk[c].kept;
        size[2][c] = s->costs.chunk[c].after_input;
    }
    struct ir_memory memory = {size[0], size[1], size[2], s->costs.limit};
    if (ir_check(plan, &memory, NULL, &e) != PAWL_OK) fail_msg("check: %s", e.text);
    if (sim_run(plan, &s->costs, staggered, NULL, &times, &e) != PAWL_OK) fail_msg("simulate: %s", e.text);
    if (sim_check(plan, &s->costs, staggered, &times, &e) != PAWL_OK) fail_msg("times: %s", e.text);
    uint64_t period = times.period;
    sim_result_close(&times);
    for (int i = 0; i < 3; i++) free(size[i]);
    return period;
}

static inline struct ir_plan *kit_plan(const struct kit_setup *s, const struct plan_list_options *options) {
    struct pawl_error e = {0};
    struct ir_plan *plan = NULL;
    if (plan_list(s->route, &s->costs, options, &plan, &e) != PAWL_OK) fail_msg("list: %s", e.text);
    return plan;
}

/* The period of a case's plan, in ticks. */
static inline uint64_t kit_period(const struct kit_case *c) {
    struct kit_setup s;
    kit_open(c, &s);
    struct ir_plan *plan = kit_plan(&s, &c->options);
    uint64_t period = kit_judge(&s, plan, c->options.staggered);
    ir_plan_free(plan);
    kit_close(&s);
    return period;
}

#define kit_exactly(c, units) kit_compare(c, units, true, __FILE__, __LINE__)
#define kit_at_most(c, units) kit_compare(c, units, false, __FILE__, __LINE__)
static inline void kit_compare(const struct kit_case *c, uint64_t units, bool exactly, const char *file,
                               int line) {
    uint64_t had = kit_period(c), wanted = units * SIM_TICKS;
    if (exactly ? had == wanted : had <= wanted) return;
    print_error("%u x %u x %u, %u dead (stage %u), caps %d + %llu: period %g, wanted %s%llu\n", c->pipelines,
                c->stages, c->microbatches, c->dead_count, c->dead_stage[0], (int)c->caps,
                (unsigned long long)c->x, (double)had / SIM_TICKS,
                exactly ? "" : "<= ", (unsigned long long)units);
    _fail(file, line);
}

#endif
