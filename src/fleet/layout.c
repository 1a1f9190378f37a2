/* Policies that keep whole pipelines of the given depth: fault-scaled, drop-replica, checkpoint-restart.
 *
 * fault-scaled is no system but a line to compare with: what is left of the machines does its share of the
 * work. drop-replica is torchft's: a pipeline that lacks a machine does nothing, the others share the batch;
 * a machine that comes heals the pipeline that lacks least. checkpoint-restart starts anew, from the newest
 * checkpoint, with as many whole pipelines as there are machines for. Facts: torchft's lighthouse; the
 * batch is always that of the whole cluster. Tested in tests/unit/fleet_policy_test.c. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fleet/policy.h"

static const char no_room[] = "cannot run: a stage and its micro-batches do not fit the device";

/* ---- fault-scaled ---- */

struct scaled {
    const struct fleet_job *job;
    uint32_t alive;
};

static void scaled_answer(const struct scaled *s, struct fleet_answer *out) {
    uint64_t all = (uint64_t)s->job->pipelines * s->job->stages;
    uint64_t whole = fleet_job_ns(s->job, s->job->pipelines);
    *out = (struct fleet_answer){0};
    if (s->alive > 0) out->iteration_ns = (uint64_t)((double)whole * (double)all / s->alive + 0.5);
}

static pawl_code scaled_start(const struct fleet_job *job, const bool *alive, void **state,
                              struct fleet_answer *out, struct pawl_error *e) {
    struct scaled *s = calloc(1, sizeof *s);
    if (s == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a policy");
    s->job = job;
    for (uint32_t i = 0; i < job->pipelines * job->stages; i++) s->alive += alive[i];
    *state = s;
    scaled_answer(s, out);
    return PAWL_OK;
}

static pawl_code scaled_change(void *state, const struct fleet_change *change, struct fleet_answer *out,
                               struct pawl_error *e) {
    struct scaled *s = state;
    (void)e;
    s->alive = s->alive - change->lost_count + change->joined_count;
    scaled_answer(s, out);
    return PAWL_OK;
}

const struct fleet_policy fleet_fault_scaled = {"fault-scaled", scaled_start, scaled_change, free, NULL};

/* ---- drop-replica ---- */

struct replicas {
    const struct fleet_job *job;
    struct fleet_roles roles;
    uint32_t *lacks; /* [pipelines] machines */
    uint32_t whole;  /* pipelines that run */
    bool lost;       /* no pipeline is left that has the state */
};

static void replicas_close(void *state) {
    struct replicas *r = state;
    if (r == NULL) return;
    fleet_roles_close(&r->roles);
    free(r->lacks);
    free(r);
}

/* Fills the pipelines anew, whole ones first: who lives takes any role. */
static void regroup(struct replicas *r) {
    struct fleet_roles *o = &r->roles;
    uint32_t machines = o->pipelines * o->stages, next = 0;
    bool *there = (bool *)calloc(machines, sizeof *there);
    if (there == NULL) return; /* they stay as they are */
    for (uint32_t m = 0; m < machines; m++) there[m] = fleet_roles_leave(o, m);
    for (uint32_t m = 0; m < machines; m++)
        if (there[m]) fleet_roles_take(o, m, next++);
    free(there);
}

static void count_replicas(struct replicas *r) {
    r->whole = 0;
    for (uint32_t p = 0; p < r->job->pipelines; p++) {
        r->lacks[p] = 0;
        for (uint32_t s = 0; s < r->job->stages; s++)
            r->lacks[p] += r->roles.machine[p * r->job->stages + s] == FLEET_NONE;
        r->whole += r->lacks[p] == 0;
    }
}

/* An empty role of the broken pipeline that lacks least, so that it is whole again soonest. */
static uint32_t role_to_heal(const struct replicas *r) {
    uint32_t best = FLEET_NONE;
    for (uint32_t p = 0; p < r->job->pipelines; p++)
        if (r->lacks[p] > 0 && (best == FLEET_NONE || r->lacks[p] < r->lacks[best])) best = p;
    for (uint32_t s = 0; s < r->job->stages; s++)
        if (r->roles.machine[best * r->job->stages + s] == FLEET_NONE) return best * r->job->stages + s;
    return FLEET_NONE; /* not reached: it lacks one */
}

static void replicas_rate(const struct replicas *r, struct fleet_answer *out) {
    bool fits = r->job->pipe[r->job->stages].fits;
    if (!fits) out->note = no_room;
    out->iteration_ns = r->whole > 0 && fits ? fleet_job_ns(r->job, r->whole) : 0;
}

static pawl_code replicas_start(const struct fleet_job *job, const bool *alive, void **state,
                                struct fleet_answer *out, struct pawl_error *e) {
    struct replicas *r = calloc(1, sizeof *r);
    *state = r;
    if (r == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a policy");
    r->job = job;
    r->lacks = calloc(job->pipelines, sizeof *r->lacks);
    if (r->lacks == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a policy");
    pawl_code code = fleet_roles_init(job, alive, &r->roles, e);
    if (code != PAWL_OK) return code;
    if (fleet_job_constant(job, "drop-replica", "regroup") > 0) regroup(r);
    count_replicas(r);
    if (r->whole == 0) regroup(r), count_replicas(r);
    r->lost = r->whole == 0;
    *out = (struct fleet_answer){0};
    replicas_rate(r, out);
    return PAWL_OK;
}

static double constant(const struct replicas *r, const char *name) {
    return fleet_job_constant(r->job, "drop-replica", name);
}

/* No pipeline was whole: the machines of the broken ones start from the newest checkpoint. */
static void restart_replicas(struct replicas *r, struct fleet_answer *out) {
    out->rollback = !r->lost;
    regroup(r);
    count_replicas(r);
    r->lost = r->whole == 0;
    out->stop_s = constant(r, "detect_s") + constant(r, "restart_s") +
                  fleet_job_saving(r->job, "drop-replica", 0).load_s;
}

static pawl_code replicas_change(void *state, const struct fleet_change *change, struct fleet_answer *out,
                                 struct pawl_error *e) {
    struct replicas *r = state;
    uint32_t before = r->whole;
    (void)e;
    *out = (struct fleet_answer){0};
    for (uint32_t i = 0; i < change->lost_count; i++) (void)fleet_roles_leave(&r->roles, change->lost[i]);
    count_replicas(r);
    uint32_t left = r->whole; /* those that go on */
    bool can_regroup = constant(r, "regroup") > 0;
    for (uint32_t i = 0; i < change->joined_count; i++) {
        fleet_roles_take(&r->roles, change->joined[i], role_to_heal(r));
        count_replicas(r);
    }
    if (left == 0) {
        restart_replicas(r, out);
    } else {
        if (can_regroup) regroup(r), count_replicas(r);
        if (left < before) {
            out->lost_iterations = constant(r, "lost_iterations");
            out->stop_s = constant(r, "detect_s") + constant(r, "quorum_s");
        } else if (r->whole > left) {
            out->stop_s = constant(r, "quorum_s");
        }
        if (r->whole > left) /* healed by peers, stage by stage at once */
            out->stop_s += (double)r->job->pipe[r->job->stages].state / r->job->link_bps;
    }
    replicas_rate(r, out);
    return PAWL_OK;
}

const struct fleet_policy fleet_drop_replica = {"drop-replica", replicas_start, replicas_change,
                                                replicas_close, NULL};

/* ---- checkpoint-restart ---- */

struct restarts {
    const struct fleet_job *job;
    bool *alive, *used; /* [machines] */
    uint32_t alive_count, pipelines;
};

static void restarts_close(void *state) {
    struct restarts *r = state;
    if (r == NULL) return;
    free(r->alive);
    free(r->used);
    free(r);
}

/* The first machines that live form the pipelines. */
static void assign(struct restarts *r) {
    uint32_t machines = r->job->pipelines * r->job->stages;
    r->pipelines = r->alive_count / r->job->stages;
    uint32_t wanted = r->pipelines * r->job->stages;
    for (uint32_t m = 0; m < machines; m++) {
        r->used[m] = r->alive[m] && wanted > 0;
        wanted -= r->used[m];
    }
}

static void restarts_rate(const struct restarts *r, struct fleet_answer *out) {
    bool fits = r->job->pipe[r->job->stages].fits;
    if (!fits) out->note = no_room;
    out->iteration_ns = r->pipelines > 0 && fits ? fleet_job_ns(r->job, r->pipelines) : 0;
}

static pawl_code restarts_start(const struct fleet_job *job, const bool *alive, void **state,
                                struct fleet_answer *out, struct pawl_error *e) {
    uint32_t machines = job->pipelines * job->stages;
    struct restarts *r = calloc(1, sizeof *r);
    *state = r;
    if (r == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a policy");
    r->job = job;
    r->alive = (bool *)malloc(machines);
    r->used = (bool *)calloc(machines, 1);
    if (r->alive == NULL || r->used == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a policy");
    memcpy(r->alive, alive, machines);
    for (uint32_t m = 0; m < machines; m++) r->alive_count += alive[m];
    assign(r);
    *out = (struct fleet_answer){0};
    restarts_rate(r, out);
    return PAWL_OK;
}

static pawl_code restarts_change(void *state, const struct fleet_change *change, struct fleet_answer *out,
                                 struct pawl_error *e) {
    struct restarts *r = state;
    bool hit = false;
    uint32_t before = r->pipelines;
    (void)e;
    *out = (struct fleet_answer){0};
    for (uint32_t i = 0; i < change->lost_count; i++) {
        hit = hit || r->used[change->lost[i]];
        r->alive[change->lost[i]] = false;
    }
    for (uint32_t i = 0; i < change->joined_count; i++) r->alive[change->joined[i]] = true;
    r->alive_count = r->alive_count - change->lost_count + change->joined_count;
    bool grows = r->alive_count / r->job->stages > before;
    if (hit || grows) {
        struct fleet_saving saving = fleet_job_saving(r->job, "checkpoint-restart", 0);
        assign(r);
        out->rollback = hit;
        out->saved = !hit && before > 0;
        out->stop_s = fleet_job_constant(r->job, "checkpoint-restart", "restart_s") + saving.load_s;
        if (hit) out->stop_s += fleet_job_constant(r->job, "checkpoint-restart", "detect_s");
        if (out->saved) out->stop_s += saving.write_s;
    }
    restarts_rate(r, out);
    return PAWL_OK;
}

const struct fleet_policy fleet_checkpoint_restart = {"checkpoint-restart", restarts_start, restarts_change,
                                                      restarts_close, NULL};
