/* ReCycle (SOSP'24) and pawl: the layout stays, live peers do the work of the dead, and the planner says what
 * an iteration takes and who takes over another role.
 *
 * A loss stops the job until it is detected and groups are built anew (pawl: planned anew, too), and until
 * the state of those who change their role is copied; the iteration under way is lost. A machine that comes
 * takes a role of the stage that lacks most, and its state from a peer: recycle's job waits for that at the
 * end of an iteration, pawl's goes on meanwhile. A stage without a live replica takes everybody back to the
 * newest durable checkpoint; with fewer machines than stages the job waits. recycle runs 1F1B as long as
 * nobody is missing and is never taken to be faster than that. Tested in tests/unit/fleet_policy_test.c. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fleet/period.h"

struct rerouting {
    const struct fleet_job *job;
    const char *name;
    enum pawl_policy policy;
    struct fleet_roles roles;
    uint32_t *arrivals; /* [stages] machines that need the stage's state */
    uint32_t *sources;  /* [stages] machines that have it */
    uint64_t iteration_ns;
};

static void rerouting_close(void *state) {
    struct rerouting *r = state;
    if (r == NULL) return;
    fleet_roles_close(&r->roles);
    free(r->arrivals);
    free(r->sources);
    free(r);
}

static double constant(const struct rerouting *r, const char *name) {
    return fleet_job_constant(r->job, r->name, name);
}

static bool is_pawl(const struct rerouting *r) { return r->policy == PAWL_POLICY_PAWL; }

/* An empty role of a stage, and a machine of one: the last pipeline's. */
static uint32_t empty_role(const struct rerouting *r, uint32_t stage) {
    uint32_t role = FLEET_NONE;
    for (uint32_t p = 0; p < r->job->pipelines && role == FLEET_NONE; p++)
        if (r->roles.machine[p * r->job->stages + stage] == FLEET_NONE) role = p * r->job->stages + stage;
    return role;
}
static uint32_t last_machine(const struct rerouting *r, uint32_t stage) {
    uint32_t machine = FLEET_NONE;
    for (uint32_t p = 0; p < r->job->pipelines; p++) {
        uint32_t there = r->roles.machine[p * r->job->stages + stage];
        if (there != FLEET_NONE) machine = there;
    }
    return machine;
}

/* Machines move until every stage has the holes that the plan wants. */
static void make_moves(struct rerouting *r, const uint32_t *wanted) {
    uint32_t from = 0, to = 0, stages = r->job->stages;
    for (;;) {
        while (from < stages && r->roles.holes[from] >= wanted[from]) from++;
        while (to < stages && r->roles.holes[to] <= wanted[to]) to++;
        if (from == stages || to == stages) return;
        uint32_t machine = last_machine(r, from), role = empty_role(r, to);
        (void)fleet_roles_leave(&r->roles, machine);
        fleet_roles_take(&r->roles, machine, role);
        r->arrivals[to]++;
    }
}

/* pawl executes whichever plan is shorter, its own or the one that recycle has. */
static pawl_code ask(const struct rerouting *r, const struct fleet_period **out, struct pawl_error *e) {
    const struct fleet_period *other = NULL;
    pawl_code code = fleet_periods_get(r->job->periods, r->policy, r->roles.holes, out, e);
    if (code != PAWL_OK || !is_pawl(r)) return code;
    code = fleet_periods_get(r->job->periods, PAWL_POLICY_RECYCLE, r->roles.holes, &other, e);
    if (code == PAWL_OK && other->ns > 0 && ((*out)->ns == 0 || other->ns < (*out)->ns)) *out = other;
    return code;
}

/* Asks for the period, moves; the most bytes that a link carries for helpers. */
static pawl_code replan(struct rerouting *r, uint64_t *share_bytes, struct fleet_answer *out,
                        struct pawl_error *e) {
    const struct fleet_period *period = NULL;
    r->iteration_ns = 0;
    *share_bytes = 0;
    if (fleet_roles_alive(&r->roles) < r->job->stages) return PAWL_OK;
    pawl_code code = ask(r, &period, e);
    if (code != PAWL_OK) return code;
    if (period->ns == 0) {
        out->note = r->roles.empty == 0
                        ? "cannot run: a stage and its micro-batches do not fit the device"
                        : "cannot run: those who are left have no room for the work of the missing";
        return PAWL_OK;
    }
    make_moves(r, period->holes);
    *share_bytes = period->share_bytes;
    r->iteration_ns = period->ns;
    uint64_t plain = fleet_job_ns(r->job, r->job->pipelines);
    bool ceiling = !is_pawl(r) && constant(r, "ceiling") > 0;
    if (ceiling && (r->iteration_ns < plain || r->roles.empty == 0)) r->iteration_ns = plain;
    return PAWL_OK;
}

/* Seconds until all arrivals have their state: sources send in turn. */
static double copy_s(const struct rerouting *r, uint64_t share_bytes) {
    uint64_t most = share_bytes;
    for (uint32_t s = 0; s < r->job->stages; s++) {
        if (r->arrivals[s] == 0 || r->sources[s] == 0) continue;
        uint64_t turns = (r->arrivals[s] + r->sources[s] - 1) / r->sources[s];
        uint64_t bytes = turns * r->job->profile.stage[s].state_bytes;
        if (bytes > most) most = bytes;
    }
    return (double)most / r->job->link_bps;
}

static pawl_code rerouting_start(const struct fleet_job *job, const bool *alive, enum pawl_policy policy,
                                 void **state, struct fleet_answer *out, struct pawl_error *e) {
    struct rerouting *r = calloc(1, sizeof *r);
    uint64_t share_bytes;
    *state = r;
    *out = (struct fleet_answer){0};
    if (r == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a policy");
    r->job = job;
    r->policy = policy;
    r->name = pawl_policy_name(policy);
    r->arrivals = calloc(job->stages, sizeof *r->arrivals);
    r->sources = calloc(job->stages, sizeof *r->sources);
    if (r->arrivals == NULL || r->sources == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for a policy");
    pawl_code code = fleet_roles_init(job, alive, &r->roles, e);
    if (code == PAWL_OK) code = replan(r, &share_bytes, out, e);
    out->iteration_ns = r->iteration_ns;
    return code;
}

/* Leaves and joins; true: a stage had no replica left in between. */
static bool apply_change(struct rerouting *r, const struct fleet_change *change) {
    bool gone = false;
    uint32_t stages = r->job->stages;
    for (uint32_t i = 0; i < change->lost_count; i++) (void)fleet_roles_leave(&r->roles, change->lost[i]);
    for (uint32_t s = 0; s < stages; s++) {
        r->arrivals[s] = 0;
        r->sources[s] = r->job->pipelines - r->roles.holes[s];
        gone = gone || r->sources[s] == 0;
    }
    for (uint32_t i = 0; i < change->joined_count; i++) {
        uint32_t most = 0;
        for (uint32_t s = 1; s < stages; s++)
            if (r->roles.holes[s] > r->roles.holes[most]) most = s;
        fleet_roles_take(&r->roles, change->joined[i], empty_role(r, most));
        if (!is_pawl(r)) r->arrivals[most]++;
    }
    return gone;
}

static double stop_s(const struct rerouting *r, const struct fleet_change *change) {
    double planning_s = is_pawl(r) ? constant(r, "replan_s") : 0;
    if (change->lost_count == 0) return planning_s + constant(r, "join_s");
    return constant(r, "detect_s") + planning_s + constant(r, "rebuild_s");
}

static pawl_code rerouting_change(void *state, const struct fleet_change *change, struct fleet_answer *out,
                                  struct pawl_error *e) {
    struct rerouting *r = state;
    bool ran = r->iteration_ns > 0;
    uint64_t share_bytes;
    *out = (struct fleet_answer){0};
    bool gone = apply_change(r, change);
    pawl_code code = replan(r, &share_bytes, out, e);
    if (code != PAWL_OK) return code;
    out->rollback = ran && (gone || r->iteration_ns == 0);
    out->stop_s = stop_s(r, change);
    if (out->rollback || !ran)
        out->stop_s += constant(r, "restart_s") + fleet_job_saving(r->job, r->name, 0).load_s;
    else
        out->stop_s += copy_s(r, share_bytes);
    if (!out->rollback && change->lost_count > 0) out->lost_iterations = constant(r, "lost_iterations");
    out->iteration_ns = r->iteration_ns;
    return PAWL_OK;
}

static pawl_code recycle_start(const struct fleet_job *job, const bool *alive, void **state,
                               struct fleet_answer *out, struct pawl_error *e) {
    return rerouting_start(job, alive, PAWL_POLICY_RECYCLE, state, out, e);
}
static pawl_code pawl_start(const struct fleet_job *job, const bool *alive, void **state,
                            struct fleet_answer *out, struct pawl_error *e) {
    return rerouting_start(job, alive, PAWL_POLICY_PAWL, state, out, e);
}

const struct fleet_policy fleet_recycle = {"recycle", recycle_start, rerouting_change, rerouting_close, NULL};
const struct fleet_policy fleet_pawl = {"pawl", pawl_start, rerouting_change, rerouting_close, NULL};
