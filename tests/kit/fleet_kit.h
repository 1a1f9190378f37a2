/* A small job for tests of the fleet: uniform stages, forward, input- and weight-gradient of 1 s each, and a
 * planner that answers by closed form. */
#ifndef KIT_FLEET_KIT_H
#define KIT_FLEET_KIT_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/period.h"
#include "fleet/policy.h"

#define KIT_STAGES 8u

struct fleet_kit {
    struct pawl_stage_cost stage[KIT_STAGES];
    struct pawl_profile profile;
    struct fleet_constants constants;
    struct pawl_sim_request request;
    struct fleet_job job;
};

#define kit_near(got, wanted, within)                                                                        \
    do {                                                                                                     \
        double kit_got = (got), kit_wanted = (wanted);                                                       \
        if (!(fabs(kit_got - kit_wanted) <= (within)))                                                       \
            fail_msg("%s is %.17g, wanted %.17g", #got, kit_got, kit_wanted);                                \
    } while (0)

/* Holes are levelled over the stages; the stage with most sets the pace: facts 2.4, staggered. */
static inline pawl_code kit_ask(void *context, enum pawl_policy policy, const uint32_t *holes,
                                struct fleet_period *out, struct pawl_error *e) {
    const struct fleet_job *job = context;
    uint32_t dead = 0, most = 0;
    (void)policy, (void)e;
    for (uint32_t s = 0; s < job->stages; s++) dead += holes[s];
    for (uint32_t s = 0; s < job->stages; s++) {
        out->holes[s] = dead / job->stages + (s < dead % job->stages);
        if (out->holes[s] > most) most = out->holes[s];
    }
    uint64_t live = job->pipelines - most;
    out->ns = (job->batch + live - 1) / live * 3000000000u;
    return PAWL_OK;
}

static inline void kit_set(struct fleet_kit *k, const char *assignment) {
    struct pawl_error e = {0};
    if (fleet_constants_set(&k->constants, assignment, &e) != PAWL_OK) fail_msg("%s", e.text);
}

/* `layers` in every stage; nothing is known of memory. Change profile and constants, then kit_job. */
static inline void kit_open(struct fleet_kit *k, uint32_t pipelines, uint32_t stages, uint32_t microbatches,
                            uint32_t layers) {
    *k = (struct fleet_kit){
        .request = {.pipelines = pipelines, .stages = stages, .microbatches = microbatches}};
    for (uint32_t s = 0; s < stages; s++)
        k->stage[s] =
            (struct pawl_stage_cost){.forward = 1, .input_grad = 1, .weight_grad = 1, .layers = layers};
    k->profile = (struct pawl_profile){.unit_s = 1, .stages = stages, .stage = k->stage};
    if (fleet_constants_default(&k->constants, NULL) != PAWL_OK) fail_msg("no constants");
}

static inline void kit_job(struct fleet_kit *k) {
    struct pawl_error e = {0};
    if (fleet_job_init(&k->request, &k->profile, &k->constants, &k->job, &e) != PAWL_OK)
        fail_msg("%s", e.text);
    if (fleet_periods_open(k->job.stages, kit_ask, &k->job, &k->job.periods, &e) != PAWL_OK)
        fail_msg("%s", e.text);
}

static inline void kit_close(struct fleet_kit *k) {
    fleet_periods_close(k->job.periods);
    fleet_job_close(&k->job);
    fleet_constants_close(&k->constants);
}

#endif
