/* A request's costs in ticks: the profile's stages cut into the chunks that the policy wants, the speed of
 * every worker, and what it may store. See plan.h. Tested in tests/unit/plan_costs_test.c. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/make.h"

uint32_t plan_chunks_per_stage(const struct pawl_plan_request *r) {
    if (r->policy == PAWL_POLICY_ZB_V) return 2;
    if (r->policy != PAWL_POLICY_INTERLEAVED) return 1;
    return r->chunks_per_stage == 0 ? PLAN_CHUNKS : r->chunks_per_stage;
}

void plan_costs_free(struct sim_costs *costs) {
    if (costs == NULL) return;
    free(costs->chunk);
    free(costs->slow);
    free(costs->limit);
    free(costs);
}

/* ---- a profile of as many stages as the plan ---- */

/* What stages [from, to) of the profile, in units of a stage and with fractions, cost together. */
static struct pawl_stage_cost span_cost(const struct pawl_profile *p, double from, double to) {
    struct pawl_stage_cost sum = {0};
    double state = 0, activation = 0, weight = 0;
    for (uint32_t i = (uint32_t)from; i < p->stages && i < to; i++) {
        const struct pawl_stage_cost *s = &p->stage[i];
        double part = fmin(to, i + 1.0) - fmax(from, i);
        sum.forward += part * s->forward;
        sum.input_grad += part * s->input_grad;
        sum.weight_grad += part * s->weight_grad;
        sum.reduce += part * s->reduce;
        sum.step += part * s->step;
        state += part * (double)s->state_bytes;
        activation += part * (double)s->activation_bytes;
        weight += part * (double)(s->weight_grad_bytes == 0 ? s->activation_bytes : s->weight_grad_bytes);
    }
    sum.state_bytes = (uint64_t)llround(state);
    sum.activation_bytes = (uint64_t)llround(activation);
    sum.weight_grad_bytes = (uint64_t)llround(fmin(weight, activation));
    return sum;
}

/* The profile's model in `stages` equal parts. Transfers do not depend on where a model is cut: the largest
 * of the profile's are taken. */
static void recut(const struct pawl_profile *p, uint32_t stages, struct pawl_stage_cost *out) {
    double forward = 0, backward = 0;
    uint64_t input = p->stage[0].input_bytes;
    for (uint32_t i = 0; i < p->stages; i++) {
        forward = fmax(forward, p->stage[i].send_forward);
        backward = fmax(backward, p->stage[i].send_backward);
        if (p->stage[i].input_bytes < input) input = p->stage[i].input_bytes;
    }
    for (uint32_t i = 0; i < stages; i++) {
        double scale = (double)p->stages / stages;
        out[i] = span_cost(p, i * scale, i + 1 == stages ? (double)p->stages : (i + 1) * scale);
        out[i].send_forward = i + 1 < stages ? forward : 0;
        out[i].send_backward = i > 0 ? backward : 0;
        out[i].input_bytes = input <= out[i].activation_bytes ? input : 0;
    }
}

/* The costs of the request's stages: of the profile, of a profile cut anew, or 1. malloc'ed. */
static struct pawl_stage_cost *stage_costs(const struct pawl_plan_request *r) {
    struct pawl_stage_cost *s = calloc(r->stages, sizeof *s);
    if (s == NULL) return NULL;
    for (uint32_t i = 0; i < r->stages && r->profile == NULL; i++)
        s[i] = (struct pawl_stage_cost){.forward = 1, .input_grad = 1, .weight_grad = 1};
    if (r->profile != NULL && r->profile->stages == r->stages)
        memcpy(s, r->profile->stage, r->stages * sizeof *s);
    else if (r->profile != NULL)
        recut(r->profile, r->stages, s);
    return s;
}

/* Memory is counted in bytes where the profile knows the activations of every stage. */
bool plan_costs_in_bytes(const struct pawl_plan_request *r) {
    if (r->profile == NULL) return false;
    for (uint32_t i = 0; i < r->profile->stages; i++)
        if (r->profile->stage[i].activation_bytes == 0) return false;
    return true;
}

/* ---- chunks ---- */

static uint64_t to_ticks(double time) {
    if (time <= 0) return 0;
    uint64_t ticks = (uint64_t)llround(time * SIM_TICKS);
    return ticks == 0 ? 1 : ticks;
}

/* Part `index` of `count` of a whole; the parts add up to it. */
static uint64_t part_of(uint64_t whole, uint32_t index, uint32_t count) {
    return whole / count + (index < whole % count);
}

static void fill_memory(const struct pawl_plan_request *r, const struct pawl_stage_cost *s, uint32_t index,
                        uint32_t count, struct sim_chunk *c) {
    if (!plan_costs_in_bytes(r)) {
        c->full = c->kept = c->after_input = 1;
        return;
    }
    uint64_t weight = s->weight_grad_bytes == 0 ? s->activation_bytes : s->weight_grad_bytes;
    c->full = part_of(s->activation_bytes, index, count);
    c->after_input = part_of(weight, index, count);
    bool may_drop = (r->recompute || (r->offload && r->profile->host_bps > 0)) && s->input_bytes > 0;
    c->kept = may_drop && s->input_bytes < c->full ? s->input_bytes : c->full;
    if (r->offload && r->profile->host_bps > 0 && r->profile->unit_s > 0)
        c->offload = c->load =
            to_ticks((double)(c->full - c->kept) / r->profile->host_bps / r->profile->unit_s);
}

static void fill_chunk(const struct pawl_plan_request *r, const struct pawl_stage_cost *s, uint32_t index,
                       uint32_t count, struct sim_chunk *c) {
    c->forward = part_of(to_ticks(s->forward), index, count);
    c->input_grad = part_of(to_ticks(s->input_grad), index, count);
    c->weight_grad = part_of(to_ticks(s->weight_grad), index, count);
    c->reduce = part_of(to_ticks(s->reduce), index, count);
    c->step = part_of(to_ticks(s->step), index, count);
    c->send_forward = to_ticks(s->send_forward);
    c->send_backward = to_ticks(s->send_backward);
    c->state = part_of(s->state_bytes, index, count);
    fill_memory(r, s, index, count, c);
}

/* Transfers between the chunks of a stage's ends cost as those of the stages beside them: with several chunks
 * a stage the last stage sends on, and the first sends gradients back. */
static void mend_sends(struct sim_costs *c, const uint32_t *stage_of) {
    uint64_t forward = 0, backward = 0;
    for (uint32_t i = 0; i < c->chunks; i++) {
        if (c->chunk[i].send_forward > forward) forward = c->chunk[i].send_forward;
        if (c->chunk[i].send_backward > backward) backward = c->chunk[i].send_backward;
    }
    for (uint32_t i = 0; i < c->chunks && stage_of != NULL; i++) {
        if (i + 1 < c->chunks && c->chunk[i].send_forward == 0) c->chunk[i].send_forward = forward;
        if (i > 0 && c->chunk[i].send_backward == 0) c->chunk[i].send_backward = backward;
    }
}

static pawl_code fill_chunks(const struct pawl_plan_request *r, const struct pawl_stage_cost *stage,
                             struct sim_costs *c, struct pawl_error *e) {
    uint32_t count = c->chunks / c->stages, *stage_of = NULL;
    pawl_code code = count == 1 ? PAWL_OK : plan_placement(r->policy, c->stages, c->chunks, &stage_of, e);
    if (code != PAWL_OK) return code;
    uint32_t *seen = calloc(c->stages, sizeof *seen);
    if (seen == NULL) {
        free(stage_of);
        return error_set(e, PAWL_MEMORY, 0, "no memory for the costs of %u chunks", c->chunks);
    }
    for (uint32_t i = 0; i < c->chunks; i++) {
        uint32_t s = stage_of == NULL ? i : stage_of[i];
        fill_chunk(r, &stage[s], seen[s]++, count, &c->chunk[i]);
    }
    mend_sends(c, stage_of);
    free(seen);
    free(stage_of);
    return PAWL_OK;
}

/* ---- workers ---- */

static pawl_code fill_slow(const struct pawl_plan_request *r, struct sim_costs *c, struct pawl_error *e) {
    uint32_t workers = r->pipelines * r->stages;
    for (uint32_t i = 0; r->profile != NULL && i < r->profile->worker_count; i++) {
        const struct pawl_worker_cost *w = &r->profile->worker[i];
        if (w->slow == 0 || w->slow == 1 || w->pipeline >= r->pipelines || w->stage >= r->stages) continue;
        if (c->slow == NULL) {
            c->slow = malloc(workers * sizeof *c->slow);
            if (c->slow == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u workers", workers);
            for (uint32_t v = 0; v < workers; v++) c->slow[v] = 1;
        }
        c->slow[w->pipeline * r->stages + w->stage] = w->slow;
    }
    return PAWL_OK;
}

uint64_t *plan_device_bytes(const struct pawl_plan_request *r) {
    uint32_t workers = r->pipelines * r->stages;
    uint64_t *device = calloc(workers, sizeof *device);
    if (device == NULL || r->profile == NULL || !plan_costs_in_bytes(r)) return device;
    for (uint32_t w = 0; w < workers; w++) device[w] = r->profile->memory_bytes;
    for (uint32_t i = 0; i < r->profile->worker_count; i++) {
        const struct pawl_worker_cost *w = &r->profile->worker[i];
        if (w->memory_bytes > 0 && w->pipeline < r->pipelines && w->stage < r->stages)
            device[w->pipeline * r->stages + w->stage] = w->memory_bytes;
    }
    return device;
}

/* What the worker of a stage stores besides micro-batches, and one micro-batch there. */
struct stage_need {
    uint64_t state, full;
};
static void sum_needs(const struct sim_costs *c, const struct pawl_plan_request *r, struct stage_need *out) {
    uint32_t count = c->chunks / c->stages, *stage_of = NULL;
    memset(out, 0, c->stages * sizeof *out);
    if (count > 1 && plan_placement(r->policy, c->stages, c->chunks, &stage_of, NULL) != PAWL_OK) return;
    for (uint32_t i = 0; i < c->chunks; i++) {
        uint32_t s = stage_of == NULL ? i : stage_of[i];
        out[s].state += c->chunk[i].state;
        out[s].full += c->chunk[i].full;
    }
    free(stage_of);
}

/* The limit that the request gives, in the unit of the costs; 0: none. */
static uint64_t asked_limit(const struct pawl_plan_request *r, const struct stage_need *need,
                            uint32_t worker) {
    double asked = r->worker_memory != NULL ? r->worker_memory[worker] : r->memory;
    if (asked == 0) return 0;
    double limit = r->memory_in_bytes ? asked : asked * (double)need->full;
    return limit >= 0x1p63 ? (uint64_t)1 << 63 : (uint64_t)limit;
}

static pawl_code worker_limit(const struct pawl_plan_request *r, const struct stage_need *need,
                              uint64_t device, uint32_t worker, uint64_t *out, struct pawl_error *e) {
    uint32_t p = worker / r->stages, s = worker % r->stages;
    bool asked = r->worker_memory != NULL ? r->worker_memory[worker] != 0 : r->memory != 0;
    *out = asked ? asked_limit(r, need, worker) : UINT64_MAX;
    if (!asked && device > 0) {
        if (device <= need->state)
            return error_set(e, PAWL_PLAN, 0,
                             "worker %u:%u: its weights and optimizer take %" PRIu64
                             " bytes of a memory of %" PRIu64 ": cut the model into more stages",
                             p, s, need->state, device);
        *out = device - need->state;
    }
    if (*out < need->full)
        return error_set(e, PAWL_PLAN, 0,
                         "worker %u:%u: memory for micro-batches is %" PRIu64 "%s, one needs %" PRIu64, p, s,
                         *out, plan_costs_in_bytes(r) ? " bytes" : "", need->full);
    return PAWL_OK;
}

static bool has_limits(const struct pawl_plan_request *r) {
    if (r->memory != 0 || r->worker_memory != NULL) return true;
    if (r->profile == NULL || !plan_costs_in_bytes(r)) return false;
    bool any = r->profile->memory_bytes > 0;
    for (uint32_t i = 0; i < r->profile->worker_count; i++) any |= r->profile->worker[i].memory_bytes > 0;
    return any;
}

static pawl_code fill_limits(const struct pawl_plan_request *r, struct sim_costs *c, struct pawl_error *e) {
    if (!has_limits(r)) return PAWL_OK;
    uint32_t workers = r->pipelines * r->stages;
    struct stage_need *need = calloc(r->stages, sizeof *need);
    uint64_t *device = plan_device_bytes(r);
    c->limit = malloc(workers * sizeof *c->limit);
    pawl_code code = PAWL_OK;
    if (need == NULL || device == NULL || c->limit == NULL)
        code = error_set(e, PAWL_MEMORY, 0, "no memory for %u workers", workers);
    else
        sum_needs(c, r, need);
    for (uint32_t w = 0; code == PAWL_OK && w < workers; w++)
        code = worker_limit(r, &need[w % r->stages], device[w], w, &c->limit[w], e);
    free(device);
    free(need);
    return code;
}

/* ---- joined ---- */

static pawl_code fill(const struct pawl_plan_request *r, struct sim_costs *c, struct pawl_error *e) {
    struct pawl_stage_cost *stage = stage_costs(r);
    c->pipelines = r->pipelines;
    c->stages = r->stages;
    c->chunks = r->stages * plan_chunks_per_stage(r);
    c->chunk = calloc(c->chunks, sizeof *c->chunk);
    if (stage == NULL || c->chunk == NULL) {
        free(stage);
        return error_set(e, PAWL_MEMORY, 0, "no memory for the costs of %u chunks", c->chunks);
    }
    pawl_code code = fill_chunks(r, stage, c, e);
    free(stage);
    if (code == PAWL_OK) code = fill_slow(r, c, e);
    if (code == PAWL_OK) code = fill_limits(r, c, e);
    return code == PAWL_OK ? sim_costs_check(c, r->microbatches, e) : code;
}

pawl_code plan_costs(const struct pawl_plan_request *request, struct sim_costs **out, struct pawl_error *e) {
    struct sim_costs *c = calloc(1, sizeof *c);
    if (c == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for costs");
    pawl_code code = fill(request, c, e);
    if (code == PAWL_OK)
        *out = c;
    else
        plan_costs_free(c);
    return code;
}

/* ---- what costs cannot say ---- */

static bool stages_know_input(const struct pawl_profile *p) {
    for (uint32_t i = 0; i < p->stages; i++)
        if (p->stage[i].input_bytes == 0) return false;
    return true;
}

void plan_costs_warn(struct make *m) {
    const struct pawl_plan_request *r = m->request;
    const struct pawl_profile *p = r->profile;
    bool bytes = plan_costs_in_bytes(r);
    if (p != NULL && p->stages != r->stages)
        make_warn(m, "profile %s has %u stages, the plan %u: it was cut anew into equal parts", p->name,
                  p->stages, r->stages);
    for (uint32_t i = 0; p != NULL && i < p->worker_count; i++)
        if (p->worker[i].pipeline >= r->pipelines || p->worker[i].stage >= r->stages)
            make_warn(m, "profile %s: worker %u:%u is not in the plan: ignored", p->name,
                      p->worker[i].pipeline, p->worker[i].stage);
    if (p != NULL && !bytes && p->memory_bytes > 0)
        make_warn(m, "profile %s lacks activation_bytes: memory is not limited", p->name);
    bool known = bytes && stages_know_input(p);
    if (r->recompute && !known)
        make_warn(m, "recompute is not used: the profile does not give activation_bytes and input_bytes");
    if (r->offload && !(known && p->host_bps > 0 && p->unit_s > 0))
        make_warn(m, "offload is not used: the profile does not give activation_bytes, input_bytes, host_bps "
                     "and unit_s");
    m->list.recompute = r->recompute && known;
    m->list.offload = r->offload && known && p->host_bps > 0 && p->unit_s > 0;
}
