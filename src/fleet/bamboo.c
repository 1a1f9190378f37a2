/* Bamboo (NSDI'23): redundant computation. Every worker also keeps its successor's weights and computes its
 * forward; when the successor goes, it takes over.
 *
 * Pipelines are 1.5 times as deep as on demand, and what of the redundant forward is not hidden makes every
 * micro-batch longer. After a loss the whole job is slower until it is reconfigured from the machines that
 * wait. Two losses next to each other are fatal: back to the newest checkpoint. Twice the state must fit the
 * device. Rules and constants of its simulator: reconfigure when as many wait as are overloaded, when the
 * overloaded are too many, or when one more pipeline fits. Tested in tests/unit/fleet_policy_test.c. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "fleet/policy.h"

struct bamboo {
    const struct fleet_job *job;
    uint32_t machines, depth;
    uint32_t pipelines;           /* that run; 0: none */
    uint32_t overloaded;          /* workers that do two stages */
    uint32_t alive_count, placed; /* machines in pipelines */
    bool *alive;
    uint32_t *place;  /* [machines] pipeline * depth + stage, or FLEET_NONE: waits */
    bool *lost;       /* [machines] places whose machine is gone */
    double per_batch; /* factor of redundant forwards */
};

static void bamboo_close(void *state) {
    struct bamboo *b = state;
    if (b == NULL) return;
    free(b->alive);
    free(b->place);
    free(b->lost);
    free(b);
}

static double constant(const struct bamboo *b, const char *name) {
    return fleet_job_constant(b->job, "bamboo", name);
}

/* As many whole pipelines as there are machines for; the others wait. */
static void reconfigure(struct bamboo *b) {
    uint32_t next = 0;
    b->pipelines = b->alive_count / b->depth;
    b->placed = b->pipelines * b->depth;
    b->overloaded = 0;
    for (uint32_t m = 0; m < b->machines; m++) {
        b->place[m] = b->alive[m] && next < b->placed ? next++ : FLEET_NONE;
        b->lost[m] = false;
    }
}

static void bamboo_rate(const struct bamboo *b, struct fleet_answer *out) {
    const struct fleet_pipe *pipe = &b->job->pipe[b->depth];
    if (!pipe->fits_twice) {
        out->note = "cannot run: out of memory: twice the state of a stage does not fit the device";
        return;
    }
    if (b->machines < b->depth) out->note = "cannot run: fewer machines than its deeper pipeline has stages";
    if (b->pipelines == 0) return;
    uint64_t each = (b->job->batch + b->pipelines - 1) / b->pipelines;
    double compute = (double)(fleet_pipe_ns(pipe, each) - pipe->tail) * b->per_batch;
    if (b->overloaded > 0) compute *= constant(b, "slow_after_loss");
    out->iteration_ns = (uint64_t)(compute + 0.5) + pipe->tail;
}

static pawl_code bamboo_start(const struct fleet_job *job, const bool *alive, void **state,
                              struct fleet_answer *out, struct pawl_error *e) {
    struct bamboo *b = calloc(1, sizeof *b);
    *state = b;
    if (b == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a policy");
    b->job = job;
    b->machines = job->pipelines * job->stages;
    double depth = ceil(constant(b, "depth") * job->stages);
    b->depth = depth < job->layer_count ? (uint32_t)depth : job->layer_count;
    b->per_batch = 1 + constant(b, "redundant_forward");
    b->alive = (bool *)calloc(b->machines, sizeof *b->alive);
    b->lost = (bool *)calloc(b->machines, sizeof *b->lost);
    b->place = calloc(b->machines, sizeof *b->place);
    if (b->alive == NULL || b->lost == NULL || b->place == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for a policy");
    for (uint32_t m = 0; m < b->machines; m++) b->alive[m] = alive[m], b->alive_count += alive[m];
    reconfigure(b);
    *out = (struct fleet_answer){0};
    bamboo_rate(b, out);
    return PAWL_OK;
}

/* False: nobody is left who can do its stage. */
static bool shadow_takes_over(struct bamboo *b, uint32_t place) {
    uint32_t first = place / b->depth * b->depth, stage = place % b->depth;
    uint32_t before = first + (stage + b->depth - 1) % b->depth, after = first + (stage + 1) % b->depth;
    bool fatal = b->depth == 1 || b->lost[before] || b->lost[after];
    b->lost[place] = true;
    b->placed--;
    b->overloaded++;
    return !fatal;
}

static bool should_reconfigure(const struct bamboo *b) {
    uint32_t waiting = b->alive_count - b->placed;
    if (b->alive_count / b->depth > b->pipelines) return true;
    if (b->overloaded == 0) return false;
    return waiting >= b->overloaded || 2.0 * b->overloaded / b->placed > constant(b, "reconfigure_share");
}

static pawl_code bamboo_change(void *state, const struct fleet_change *change, struct fleet_answer *out,
                               struct pawl_error *e) {
    struct bamboo *b = state;
    bool fatal = false, ran = b->pipelines > 0;
    uint32_t overloaded = b->overloaded;
    (void)e;
    *out = (struct fleet_answer){0};
    for (uint32_t i = 0; i < change->lost_count; i++) {
        uint32_t m = change->lost[i], place = b->place[m];
        b->alive[m] = false;
        b->place[m] = FLEET_NONE;
        b->alive_count--;
        if (place != FLEET_NONE && !shadow_takes_over(b, place)) fatal = true;
    }
    for (uint32_t i = 0; i < change->joined_count; i++) b->alive[change->joined[i]] = true;
    b->alive_count += change->joined_count;
    if (b->overloaded > overloaded) {
        out->stop_s += constant(b, "pause_s");
        out->lost_iterations = constant(b, "lost_iterations");
    }
    if (fatal || !ran) {
        reconfigure(b);
        out->stop_s = constant(b, "restart_s") + fleet_job_saving(b->job, "bamboo", 0).load_s;
    } else if (should_reconfigure(b)) {
        reconfigure(b);
        out->stop_s += constant(b, "rendezvous_s");
    }
    out->rollback = fatal || (ran && b->pipelines == 0);
    bamboo_rate(b, out);
    return PAWL_OK;
}

const struct fleet_policy fleet_bamboo = {"bamboo", bamboo_start, bamboo_change, bamboo_close, NULL};
