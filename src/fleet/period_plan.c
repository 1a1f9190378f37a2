/* See period.h: asks the planner for the period of a list of holes.
 *
 * No local search, so that the answer does not depend on the clock. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "fleet/period.h"

/* The dead: the holes of one stage follow on those of the stage before, pipeline by pipeline. */
static uint32_t place_holes(const struct fleet_job *job, const uint32_t *holes, struct pawl_worker_at *dead) {
    uint32_t count = 0;
    for (uint32_t s = 0; s < job->stages; s++)
        for (uint32_t i = 0; i < holes[s]; i++, count++)
            dead[count] = (struct pawl_worker_at){count % job->pipelines, s};
    return count;
}

/* Copies of a chunk's state go out from its live holders in turn. */
static uint64_t share_bytes(const struct fleet_job *job, struct pawl_plan *plan, const uint32_t *holes) {
    const struct pawl_plan_summary *summary = pawl_plan_summary(plan);
    const struct pawl_plan_shared *shared = pawl_plan_shares(plan);
    uint64_t most = 0;
    for (uint32_t i = 0; i < summary->shared_count; i++) {
        uint32_t copies = 0, stage = shared[i].chunk % job->stages;
        for (uint32_t k = 0; k < summary->shared_count; k++) copies += shared[k].chunk == shared[i].chunk;
        uint32_t sources = job->pipelines > holes[stage] ? job->pipelines - holes[stage] : 1;
        uint64_t bytes = (uint64_t)((copies + sources - 1) / sources) * shared[i].bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

static pawl_code take_plan(const struct fleet_job *job, struct pawl_plan *plan, struct fleet_period *out,
                           struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    out->ns = (uint64_t)llround(pawl_plan_summary(plan)->period * job->profile.unit_s / FLEET_NS);
    for (uint32_t s = 0; s < job->stages; s++)
        for (uint32_t p = 0; p < job->pipelines && code == PAWL_OK; p++) {
            struct pawl_plan_worker worker;
            code = pawl_plan_worker(plan, p, s, &worker, e);
            if (code == PAWL_OK) out->holes[s] += !worker.alive;
        }
    out->share_bytes = share_bytes(job, plan, out->holes);
    return code;
}

pawl_code fleet_period_plan(void *planner, enum pawl_policy policy, const uint32_t *holes,
                            struct fleet_period *out, struct pawl_error *e) {
    const struct fleet_planner *p = planner;
    const struct fleet_job *job = p->job;
    struct pawl_plan *plan = NULL;
    struct pawl_error inner = {0};
    struct pawl_worker_at *dead = calloc((size_t)job->pipelines * job->stages, sizeof *dead);
    if (dead == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for the dead");
    double gain = fleet_job_constant(job, pawl_policy_name(policy), "min_gain");
    struct pawl_plan_request request = {
        .pipelines = job->pipelines,
        .stages = job->stages,
        .microbatches = job->microbatches,
        .profile = &job->profile,
        .policy = policy,
        .dead = dead,
        .dead_count = place_holes(job, holes, dead),
        .min_gain = gain > 0 ? gain : 1e-9, /* 0 would be the default */
        .recompute = policy == PAWL_POLICY_PAWL,
        .offload = policy == PAWL_POLICY_PAWL,
        .search_s = -1,
        .seed = p->seed,
        .stop = p->stop,
    };
    pawl_code code = pawl_plan_make(&request, &plan, &inner);
    if (code == PAWL_OK)
        code = take_plan(job, plan, out, e);
    else if (code == PAWL_PLAN || code == PAWL_STAGE_LOST)
        code = PAWL_OK; /* it cannot run: no room for one micro-batch, or too few workers */
    else
        code = error_set(e, code, 0, "planning %u failures: %s", request.dead_count, inner.text);
    pawl_plan_free(plan);
    free(dead);
    return code;
}
