/* Varuna (EuroSys'22): morphing. On a change of the machines in use the job is stopped, and launched anew
 * from a checkpoint with the pipeline depth and number of pipelines that its simulator finds fastest.
 *
 * Depths are the divisors of the number of cut points (layers) that fit the device; D = floor(machines /
 * depth), the rest is idle; every forward is computed a second time before its backward. A loss without
 * notice goes back to the newest checkpoint; with a notice as long as a save, one is written first. Coming
 * machines are taken where that is faster. Facts: Varuna's repository. Tested in
 * tests/unit/fleet_policy_test.c. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fleet/policy.h"

struct varuna {
    const struct fleet_job *job;
    bool *alive, *used; /* [machines] */
    uint32_t alive_count, depth, pipelines;
    uint64_t iteration_ns;
};

static void varuna_close(void *state) {
    struct varuna *v = state;
    if (v == NULL) return;
    free(v->alive);
    free(v->used);
    free(v);
}

static uint64_t again_ns(const struct fleet_job *job, uint32_t depth, uint32_t pipelines) {
    const struct fleet_pipe *pipe = &job->pipe[depth];
    struct fleet_pipe again = {.fill = pipe->fill_again, .slowest = pipe->slowest_again, .tail = pipe->tail};
    return fleet_pipe_ns(&again, (job->batch + pipelines - 1) / pipelines);
}

/* The fastest configuration of so many machines; among equals the shallowest. 0: none. */
static uint64_t choose(const struct fleet_job *job, uint32_t machines, uint32_t *depth, uint32_t *pipelines) {
    uint64_t best = 0;
    for (uint32_t p = 1; p <= job->layer_count && p <= machines; p++) {
        if (job->layer_count % p != 0 || !job->pipe[p].fits_again) continue;
        uint32_t d = machines / p;
        uint64_t ns = again_ns(job, p, d < job->batch ? d : (uint32_t)job->batch);
        if (best != 0 && ns >= best) continue;
        best = ns, *depth = p, *pipelines = d;
    }
    return best;
}

static void morph(struct varuna *v) {
    uint32_t machines = v->job->pipelines * v->job->stages;
    v->depth = v->pipelines = 0;
    v->iteration_ns = choose(v->job, v->alive_count, &v->depth, &v->pipelines);
    uint32_t wanted = v->depth * v->pipelines;
    for (uint32_t m = 0; m < machines; m++) {
        v->used[m] = v->alive[m] && wanted > 0;
        wanted -= v->used[m];
    }
}

static void varuna_rate(const struct varuna *v, struct fleet_answer *out) {
    out->iteration_ns = v->iteration_ns;
    if (v->iteration_ns == 0 && v->alive_count == v->job->pipelines * v->job->stages)
        out->note = "cannot run: no pipeline depth fits the device";
}

static pawl_code varuna_start(const struct fleet_job *job, const bool *alive, void **state,
                              struct fleet_answer *out, struct pawl_error *e) {
    uint32_t machines = job->pipelines * job->stages;
    struct varuna *v = calloc(1, sizeof *v);
    *state = v;
    if (v == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a policy");
    v->job = job;
    v->alive = (bool *)malloc(machines);
    v->used = (bool *)calloc(machines, 1);
    if (v->alive == NULL || v->used == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a policy");
    memcpy(v->alive, alive, machines);
    for (uint32_t m = 0; m < machines; m++) v->alive_count += alive[m];
    morph(v);
    *out = (struct fleet_answer){0};
    varuna_rate(v, out);
    return PAWL_OK;
}

static pawl_code varuna_change(void *state, const struct fleet_change *change, struct fleet_answer *out,
                               struct pawl_error *e) {
    struct varuna *v = state;
    bool hit = false, ran = v->iteration_ns > 0;
    uint32_t depth = 0, pipelines = 0;
    (void)e;
    *out = (struct fleet_answer){0};
    for (uint32_t i = 0; i < change->lost_count; i++) {
        hit = hit || v->used[change->lost[i]];
        v->alive[change->lost[i]] = false;
    }
    for (uint32_t i = 0; i < change->joined_count; i++) v->alive[change->joined[i]] = true;
    v->alive_count = v->alive_count - change->lost_count + change->joined_count;
    uint64_t best = choose(v->job, v->alive_count, &depth, &pipelines);
    if (hit || (best > 0 && (!ran || best < v->iteration_ns))) {
        struct fleet_saving saving = fleet_job_saving(v->job, "varuna", 0);
        bool noticed = fleet_job_constant(v->job, "common", "notice_s") >= saving.write_s &&
                       fleet_job_constant(v->job, "common", "notice_s") > 0;
        morph(v);
        out->rollback = hit && !noticed;
        out->saved = ran && !out->rollback;
        out->stop_s = fleet_job_constant(v->job, "varuna", "stop_s") + saving.load_s;
        if (out->saved) out->stop_s += saving.write_s;
    }
    varuna_rate(v, out);
    return PAWL_OK;
}

const struct fleet_policy fleet_varuna = {"varuna", varuna_start, varuna_change, varuna_close, NULL};
