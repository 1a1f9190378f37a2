/* See policy.h: the profile as layers, and pipelines of any depth cut from them. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/mem.h"
#include "fleet/events.h"
#include "fleet/policy.h"

/* A stage's sizes stay below it, so that a thousand stages' sum up: 1 PiB. */
#define BYTES_MAX ((uint64_t)1 << 50)

double fleet_job_constant(const struct fleet_job *job, const char *policy, const char *name) {
    return fleet_constant(job->constants, policy, name);
}

static uint64_t ns_of(const struct pawl_profile *profile, double units) {
    return (uint64_t)llround(units * profile->unit_s / FLEET_NS);
}

/* part i of `total` cut into `count` whole parts that sum up. */
static uint64_t part(uint64_t total, uint32_t i, uint32_t count) {
    return total / count + (i < total % count);
}

static void spread_stage(struct fleet_job *job, const struct pawl_stage_cost *c, uint32_t first,
                         uint32_t layers) {
    const struct pawl_profile *p = &job->profile;
    uint64_t forward = ns_of(p, c->forward);
    uint64_t compute = forward + ns_of(p, c->input_grad) + ns_of(p, c->weight_grad);
    uint64_t tail = ns_of(p, c->reduce) + ns_of(p, c->step);
    for (uint32_t i = 0; i < layers; i++)
        job->layer[first + i] = (struct fleet_layer){
            .forward = part(forward, i, layers),
            .compute = part(compute, i, layers),
            .tail = part(tail, i, layers),
            .state = part(c->state_bytes, i, layers),
            .activation = part(c->activation_bytes, i, layers),
            .input = c->input_bytes, /* every stage keeps its own input, however deep it is */
        };
}

/* What the last layer of the model does beyond a plain one, the head, and the first layer's embedding, cannot
 * be cut: of all the stage's times and sizes only what its plain layers would have stays spread. `plain` is a
 * layer of the stage whose layers are quickest. */
static void gather_end(struct fleet_job *job, uint32_t first, uint32_t layers, uint32_t end,
                       const struct fleet_layer *plain) {
    struct fleet_layer sum = {0}, *at = &job->layer[first];
    for (uint32_t i = 0; i < layers; i++) {
        sum.forward += at[i].forward, sum.compute += at[i].compute, sum.tail += at[i].tail;
        sum.state += at[i].state, sum.activation += at[i].activation;
    }
    if (sum.compute <= plain->compute * layers) return;
    struct fleet_layer rest = sum, each = *plain;
#define KEEP(field)                                                                                          \
    if (each.field * (layers - 1) > sum.field) each.field = sum.field / layers;                              \
    rest.field -= each.field * (layers - 1)
    KEEP(forward);
    KEEP(compute);
    KEEP(tail);
    KEEP(state);
    KEEP(activation);
#undef KEEP
    each.input = rest.input = at[0].input;
    for (uint32_t i = 0; i < layers; i++) at[i] = first + i == end ? rest : each;
}

static void gather_ends(struct fleet_job *job) {
    struct fleet_layer plain = job->layer[0];
    uint32_t stages = job->stages, count = job->layer_count;
    for (uint32_t s = 0; s < stages; s++) {
        /* The last of a stage has no remainder of a division in it. */
        const struct fleet_layer *l = &job->layer[job->own_cut[s + 1] - 1];
        if (l->compute < plain.compute) plain = *l;
    }
    gather_end(job, 0, job->own_cut[1], 0, &plain);
    if (stages > 1)
        gather_end(job, job->own_cut[stages - 1], count - job->own_cut[stages - 1], count - 1, &plain);
}

/* Both transfers across a boundary: the mean over those that there are. */
static uint64_t hop_of(const struct pawl_profile *p) {
    double sum = 0;
    for (uint32_t s = 0; s + 1 < p->stages; s++)
        sum += p->stage[s].send_forward + p->stage[s + 1].send_backward;
    if (p->stages < 2) return ns_of(p, p->stage[0].send_forward + p->stage[0].send_backward);
    return ns_of(p, sum / (p->stages - 1));
}

static pawl_code check_times(const struct fleet_job *job, struct pawl_error *e) {
    const struct pawl_profile *p = &job->profile;
    double most = 0;
    for (uint32_t s = 0; s < p->stages; s++) {
        const struct pawl_stage_cost *c = &p->stage[s];
        most += c->forward * 2 + c->input_grad + c->weight_grad + c->reduce + c->step + c->send_forward +
                c->send_backward;
    }
    for (uint32_t s = 0; s < p->stages; s++)
        if (p->stage[s].state_bytes > BYTES_MAX || p->stage[s].activation_bytes > BYTES_MAX)
            return error_set(e, PAWL_ARGUMENT, 0, "stage %u of the profile: more than %llu bytes", s,
                             (unsigned long long)BYTES_MAX);
    double ns = most * p->unit_s / FLEET_NS * (double)(job->batch + job->stages);
    if (!(p->unit_s > 0) || !isfinite(p->unit_s))
        return error_set(e, PAWL_ARGUMENT, 0,
                         "the profile does not say how long its unit of time is (unit_s): "
                         "a simulation needs seconds");
    if (!(ns < (double)FLEET_NS_MAX))
        return error_set(e, PAWL_ARGUMENT, 0, "the profile's times are too long: an iteration of %.3g s",
                         ns * FLEET_NS);
    return PAWL_OK;
}

static pawl_code spread_layers(struct fleet_job *job, struct pawl_error *e) {
    const struct pawl_profile *p = &job->profile;
    uint64_t total = 0;
    bool known = true;
    for (uint32_t s = 0; s < p->stages; s++) known = known && p->stage[s].layers > 0;
    uint32_t assumed = (uint32_t)fleet_job_constant(job, "common", "layers_per_stage");
    for (uint32_t s = 0; s < p->stages; s++) total += known ? p->stage[s].layers : assumed;
    if (total > FLEET_LAYERS_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "the profile has %llu layers, at most %u can be simulated",
                         (unsigned long long)total, FLEET_LAYERS_MAX);
    job->layer_count = (uint32_t)total;
    job->layer = calloc(job->layer_count, sizeof *job->layer);
    job->own_cut = calloc((size_t)p->stages + 1, sizeof *job->own_cut);
    job->pipe = calloc((size_t)job->layer_count + 1, sizeof *job->pipe);
    if (job->layer == NULL || job->own_cut == NULL || job->pipe == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for %u layers", job->layer_count);
    pawl_code code = PAWL_OK;
    if (!known)
        code = fleet_warn(&job->warnings, e,
                          "the profile does not say how many layers its stages have: %u each are "
                          "assumed, for the policies that cut pipelines anew",
                          assumed);
    if (code != PAWL_OK) return code;
    for (uint32_t s = 0, first = 0; s < p->stages; s++) {
        uint32_t layers = known ? p->stage[s].layers : assumed;
        spread_stage(job, &p->stage[s], first, layers);
        first += layers;
        job->own_cut[s + 1] = first;
    }
    gather_ends(job);
    return PAWL_OK;
}

/* ---- cutting ---- */

/* Fills stages from the left up to `most` ns, leaving a layer at least for each of those behind; the number
 * of layers that are left over is 0 if it fits. A layer above it has a stage of its own. */
static uint32_t fill_stages(const struct fleet_job *job, uint32_t depth, uint64_t most, uint32_t *cut) {
    uint32_t at = 0;
    for (uint32_t s = 0; s < depth; s++) {
        uint64_t sum = 0;
        cut[s] = at;
        uint32_t last = job->layer_count - (depth - 1 - s); /* the others need one each */
        while (at < last && (at == cut[s] || sum + job->layer[at].compute <= most))
            sum += job->layer[at++].compute;
    }
    cut[depth] = at;
    return job->layer_count - at;
}

void fleet_job_cut(const struct fleet_job *job, uint32_t depth, uint32_t *cut) {
    uint64_t low = 0, high = 0;
    if (depth == job->stages) {
        for (uint32_t s = 0; s <= depth; s++) cut[s] = job->own_cut[s];
        return;
    }
    for (uint32_t l = 0; l < job->layer_count; l++) high += job->layer[l].compute;
    while (low < high) { /* the least `most` that fits is in low .. high */
        uint64_t middle = low + (high - low) / 2;
        if (fill_stages(job, depth, middle, cut) == 0)
            high = middle;
        else
            low = middle + 1;
    }
    (void)fill_stages(job, depth, low, cut);
}

/* Do `fixed` bytes and `held` times `each` fit? */
static bool within(const struct fleet_job *job, uint64_t fixed, uint64_t held, uint64_t each) {
    uint64_t stored, bytes;
    if (job->profile.memory_bytes == 0) return true;
    return mem_mul(held, each, &stored) && mem_add(fixed, stored, &bytes) &&
           bytes <= job->profile.memory_bytes;
}

/* Stage `s` of a pipeline enters it; 1F1B holds depth - s micro-batches there. */
static void add_stage(const struct fleet_job *job, uint32_t depth, uint32_t s, const uint32_t *cut,
                      struct fleet_pipe *pipe) {
    struct fleet_layer sum = {0};
    for (uint32_t l = cut[s]; l < cut[s + 1]; l++) {
        const struct fleet_layer *x = &job->layer[l];
        sum.forward += x->forward, sum.compute += x->compute, sum.tail += x->tail;
        sum.state += x->state, sum.activation += x->activation;
    }
    uint64_t held = depth - s < job->batch ? depth - s : job->batch;
    pipe->fill += sum.compute;
    pipe->fill_again += sum.compute + sum.forward;
    if (sum.compute > pipe->slowest) pipe->slowest = sum.compute;
    if (sum.compute + sum.forward > pipe->slowest_again) pipe->slowest_again = sum.compute + sum.forward;
    if (sum.tail > pipe->tail) pipe->tail = sum.tail;
    if (sum.state > pipe->state) pipe->state = sum.state;
    pipe->fits = pipe->fits && within(job, sum.state, held, sum.activation);
    pipe->fits_twice = pipe->fits_twice && within(job, 2 * sum.state, held, sum.activation);
    pipe->fits_again =
        pipe->fits_again && within(job, sum.state + sum.activation, held, job->layer[cut[s]].input);
}

static pawl_code make_pipes(struct fleet_job *job, struct pawl_error *e) {
    uint32_t *cut = calloc((size_t)job->layer_count + 1, sizeof *cut);
    if (cut == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u layers", job->layer_count);
    for (uint32_t depth = 1; depth <= job->layer_count; depth++) {
        struct fleet_pipe pipe = {.fits = true, .fits_twice = true, .fits_again = true};
        pipe.fill = pipe.fill_again = (depth - 1) * job->hop;
        fleet_job_cut(job, depth, cut);
        for (uint32_t s = 0; s < depth; s++) add_stage(job, depth, s, cut, &pipe);
        job->pipe[depth] = pipe;
    }
    free(cut);
    return PAWL_OK;
}

pawl_code fleet_job_init(const struct pawl_sim_request *request, const struct pawl_profile *profile,
                         const struct fleet_constants *constants, struct fleet_job *out,
                         struct pawl_error *e) {
    struct fleet_job job = {.pipelines = request->pipelines,
                            .stages = request->stages,
                            .microbatches = request->microbatches,
                            .batch = (uint64_t)request->pipelines * request->microbatches,
                            .profile = *profile,
                            .constants = constants};
    job.profile.worker_count = 0;
    job.profile.worker = NULL;
    if (profile->stages != request->stages)
        return error_set(e, PAWL_ARGUMENT, 0, "the profile has %u stages, the request %u", profile->stages,
                         request->stages);
    job.link_bps =
        profile->link_bps > 0 ? profile->link_bps : fleet_constant(constants, "common", "link_bps");
    job.storage_bps = fleet_constant(constants, "common", "storage_bps");
    pawl_code code = check_times(&job, e);
    if (code == PAWL_OK) {
        job.hop = hop_of(&job.profile);
        code = spread_layers(&job, e);
    }
    if (code == PAWL_OK && profile->worker_count > 0)
        code = fleet_warn(&job.warnings, e,
                          "the profile has %u workers that differ: here all are taken to be alike",
                          profile->worker_count);
    if (code == PAWL_OK) code = make_pipes(&job, e);
    if (code == PAWL_OK)
        *out = job;
    else
        fleet_job_close(&job);
    return code;
}

void fleet_job_close(struct fleet_job *job) {
    free(job->layer);
    free(job->own_cut);
    free(job->pipe);
    free(job->warnings);
    *job = (struct fleet_job){0};
}

/* ---- times ---- */

uint64_t fleet_pipe_ns(const struct fleet_pipe *pipe, uint64_t microbatches) {
    if (microbatches == 0) return pipe->tail;
    return pipe->fill + (microbatches - 1) * pipe->slowest + pipe->tail;
}

uint64_t fleet_job_ns(const struct fleet_job *job, uint32_t pipelines) {
    return fleet_pipe_ns(&job->pipe[job->stages], (job->batch + pipelines - 1) / pipelines);
}

/* Bytes of the fullest worker over a rate, unless the constant says how long. */
static double transfer_s(const struct fleet_job *job, const char *policy, const char *name) {
    double said = fleet_job_constant(job, policy, name);
    return said > 0 ? said : (double)job->pipe[job->stages].state / job->storage_bps;
}

struct fleet_saving fleet_job_saving(const struct fleet_job *job, const char *policy, double iteration_s) {
    struct fleet_saving s = {.every_s = fleet_job_constant(job, policy, "checkpoint_every_s")};
    double iterations = fleet_job_constant(job, policy, "checkpoint_every_iterations");
    s.write_s = transfer_s(job, policy, "checkpoint_write_s");
    s.load_s = transfer_s(job, policy, "checkpoint_load_s");
    if (s.every_s == 0) s.every_s = iterations * iteration_s;
    if (s.every_s == 0) return s;
    double least = s.write_s / fleet_job_constant(job, policy, "checkpoint_in_flight");
    if (s.every_s < least) s.every_s = least;
    s.stall_s = s.write_s * fleet_job_constant(job, policy, "checkpoint_stall") +
                s.every_s * fleet_job_constant(job, policy, "checkpoint_slowdown");
    return s;
}
