/* plan_list: from a route to the order in which every worker executes its share.
 *
 * One pass (list_pass.c) gives a schedule in O(n log n); with rounds or time left, search.c runs many. The
 * result is emitted as a plan that ir_check accepts: dependencies and memory are respected by construction,
 * and nothing is trusted to have been: the planner checks it all the same.
 * Tested in tests/unit/plan_list_test.c, tests/unit/plan_list_pass_test.c and tests/golden/plan_list_test.c.
 */
#include "plan/list.h"

#include <string.h>

/* Never stuck: one micro-batch after the other has all its chunks executed. */
pawl_code list_serial(struct list_pass *s, struct list_schedule *out, struct pawl_error *e) {
    const struct list_problem *p = s->problem;
    static const struct list_rule none;
    list_begin(s, &none, out);
    for (uint32_t i = 0; i < p->route->pipelines * p->microbatches; i++) {
        uint32_t first = i / p->microbatches * p->chunks * p->microbatches + i % p->microbatches;
        if (!list_is_there(p, first)) continue;
        for (uint32_t c = 0; c < p->chunks; c++) {
            uint32_t cell = first + c * p->microbatches, worker = list_host(p, cell);
            s->worker[worker].used += list_need(list_chunk(p, cell));
            out->log[out->count++] = list_code(cell, LIST_F);
            if (s->worker[worker].used <= list_limit(p, worker)) continue;
            return error_set(e, PAWL_PLAN, 0,
                             "worker %u:%u: its memory limit %llu is below the %llu that micro-batch %u of "
                             "pipeline %u needs in the chunks it executes",
                             worker / p->route->stages, worker % p->route->stages,
                             (unsigned long long)list_limit(p, worker),
                             (unsigned long long)s->worker[worker].used, i % p->microbatches,
                             i / p->microbatches);
        }
        for (uint32_t c = p->chunks; c-- > 0;) {
            uint32_t cell = first + c * p->microbatches;
            s->worker[list_host(p, cell)].used -= list_need(list_chunk(p, cell));
            out->log[out->count++] = list_code(cell, LIST_I);
            if (p->split) out->log[out->count++] = list_code(cell, LIST_W);
        }
    }
    list_retime(s, out);
    list_evaluate(s, out);
    return PAWL_OK;
}

pawl_code plan_list(const struct plan_route *route, const struct sim_costs *costs,
                    const struct plan_list_options *options, struct ir_plan **out, struct pawl_error *e) {
    struct list_problem problem;
    struct list_pass pass = {0};
    struct list_schedule best = {0};
    pawl_code code = list_problem_open(route, costs, options, &problem, e);
    if (code) return code;
    code = list_pass_open(&problem, &pass, e);
    if (!code) code = list_schedule_open(&problem, &best, e);
    if (!code) code = list_search(&pass, &best, e);
    if (!code) code = list_emit(&problem, &best, out, e);
    list_schedule_close(&best);
    list_pass_close(&pass);
    list_problem_close(&problem);
    return code;
}
