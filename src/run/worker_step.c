/* Iterations of a worker: fence and go, run, reduce, step, decide. */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "model/adamw.h"
#include "run/worker_state.h"

/* At the last version: the launcher has it before this worker's last save. */
static pawl_code send_measured(struct worker *w) {
    struct measure_report r = {
        .state_bytes = w->base->bytes + (w->stage->param_count + GRADSUM_FOOTER_WORDS) * sizeof *w->sums +
                       w->stage->param_count * sizeof *w->grad,
        .activation_bytes = w->stage->slot_bytes,
        .input_bytes = w->stage->activation_bytes,
    };
    struct bytes data = {0};
    measure_times(&w->exec.measure, &r);
    measure_encode(&r, &data);
    struct message m = {.kind = MESSAGE_MEASURED, .data = data.data, .data_bytes = data.size};
    pawl_code code = data.failed ? PAWL_OK : channel_send(w->env.channel, &m, NULL);
    bytes_close(&data);
    return code;
}

static pawl_code begin_iteration(struct worker *w) {
    const struct version *current = w->tentative != NULL ? w->tentative : w->base;
    if (current->number >= w->spec.run.steps) {
        w->phase = w->tentative != NULL ? WORKER_HOLD : WORKER_IDLE;
        return send_measured(w);
    }
    measure_iteration(&w->exec.measure);
    for (uint32_t i = 0; i < w->injection_count; i++)
        if (w->injections[i].iteration == current->number) {
            fault_arm((enum fault_point)w->injections[i].point, 1);
            w->injections[i] = w->injections[--w->injection_count];
            break;
        }
    fault_arrive(FAULT_ITERATION_BEGIN);
    memset(w->sums, 0, (w->stage->param_count + GRADSUM_FOOTER_WORDS) * sizeof *w->sums);
    exec_begin(&w->exec, current, w->sums, w->shift);
    w->phase = WORKER_RUN;
    return PAWL_OK;
}

pawl_code worker_fence(struct worker *w, const struct message *m, struct pawl_error *e) {
    if (w->phase == WORKER_START || m->view <= w->peers.view)
        return error_set(e, PAWL_INTERNAL, 0, "fence of view %llu in view %llu", (unsigned long long)m->view,
                         (unsigned long long)w->peers.view);
    net_fence(w->env.net, m->view);
    exec_drop(&w->exec);
    reduce_drop(&w->reduce);
    versions_drop(&w->versions, w->tentative);
    w->tentative = NULL;
    w->state_pending = 0;
    w->early_save = (struct message){0};
    w->peers.view = m->view;
    w->phase = WORKER_FENCED;
    struct message answer = {.kind = MESSAGE_FENCED,
                             .view = m->view,
                             .version = w->base->number,
                             .has_report = w->has_grad,
                             .report = w->report};
    return channel_send(w->env.channel, &answer, e);
}

static void take_step(struct worker *w, float clip, struct version *next) {
    int64_t begin = clock_now_ns();
    adamw_step(w->stage, &w->adamw, w->base, w->grad, clip, next);
    measure_add(&w->exec.measure, MEASURE_STEP, clock_now_ns() - begin);
}

/* base becomes base+1, made from the reduced gradient as the verdict says. */
static pawl_code settle(struct worker *w, enum coord_verdict verdict, float clip, struct pawl_error *e) {
    struct version *next = w->tentative;
    if (next == NULL) {
        next = versions_take(&w->versions);
        if (next == NULL) return error_set(e, PAWL_INTERNAL, 0, "no version buffer is free");
        if (verdict == COORD_SKIP)
            adamw_skip(w->stage, w->base, next);
        else
            take_step(w, verdict == COORD_CLIP ? clip : 1.0f, next);
    } else if (verdict != COORD_ACCEPT) {
        return error_set(e, PAWL_INTERNAL, 0, "a tentative step was decided otherwise without a fence");
    }
    fault_arrive(FAULT_STEP_DECIDED);
    versions_drop(&w->versions, w->base);
    w->base = next;
    w->tentative = NULL;
    w->has_grad = false;
    w->shift = 0;
    return PAWL_OK;
}

pawl_code worker_decide(struct worker *w, const struct message *m, struct pawl_error *e) {
    bool started = w->tentative != NULL && w->phase == WORKER_RUN;
    if (!w->has_grad || m->view != w->peers.view || m->iteration != w->base->number)
        return error_set(e, PAWL_INTERNAL, 0, "decision of iteration %llu at version %llu",
                         (unsigned long long)m->iteration, (unsigned long long)w->base->number);
    pawl_code code = settle(w, m->verdict, m->clip, e);
    if (code != PAWL_OK) return code;
    w->optimistic = m->optimistic;
    return started ? PAWL_OK : begin_iteration(w);
}

static uint32_t lowest_with_grad(const struct worker *w) {
    for (uint32_t r = w->peers.stage; r < w->peers.rank_count; r += w->peers.stages)
        if (w->peers.live[r] && w->peer_has_grad[r]) return r;
    return UINT32_MAX;
}

static struct peers_name state_name(const struct worker *w, uint32_t receiver) {
    return (struct peers_name){w->base->number, NET_STATE, receiver / w->peers.stages, w->peers.stage, 0};
}

/* The lowest rank of the stage that holds the gradient gives it to those that do not. */
static pawl_code give_grad(struct worker *w, struct pawl_error *e) {
    if (lowest_with_grad(w) != w->peers.rank) return PAWL_OK;
    for (uint32_t r = w->peers.stage; r < w->peers.rank_count; r += w->peers.stages) {
        if (!w->peers.live[r] || w->peer_has_grad[r]) continue;
        w->state_pending++;
        struct peers_data grad = {w->grad, w->stage->param_count * sizeof(float)};
        pawl_code code = peers_send(&w->peers, r, state_name(w, r), grad, PEERS_STATE_SEND, 0, e);
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

static pawl_code fetch_grad(struct worker *w, struct pawl_error *e) {
    if (lowest_with_grad(w) == UINT32_MAX)
        return error_set(e, PAWL_INTERNAL, 0, "told to settle an iteration whose gradient nobody holds");
    w->phase = WORKER_FETCH;
    w->state_pending = 1;
    return peers_recv(&w->peers, state_name(w, w->peers.rank), w->grad, w->stage->param_count * sizeof(float),
                      peers_cookie(PEERS_STATE, 0), e);
}

static pawl_code take_membership(struct worker *w, const struct message *m, struct pawl_error *e) {
    struct reader r = reader_of(m->data, m->data_bytes);
    for (uint32_t i = 0; i < w->peers.rank_count; i++) w->peers.live[i] = reader_u8(&r) != 0;
    for (uint32_t i = 0; i < w->peers.rank_count; i++) w->peer_has_grad[i] = reader_u8(&r) != 0;
    if (!reader_done(&r) || !w->peers.live[w->peers.rank])
        return error_set(e, PAWL_FORMAT, 0, "malformed membership of view %llu", (unsigned long long)m->view);
    pawl_code code = reduce_members(&w->reduce, e);
    if (code == PAWL_OK) exec_plan(&w->exec, w->plan);
    return code;
}

pawl_code worker_go(struct worker *w, const struct message *m, struct pawl_error *e) {
    bool first = w->peers.view == 0;
    if (w->phase != WORKER_FENCED || w->plan == NULL || w->plan_view != m->view ||
        (!first && m->view != w->peers.view) || m->version != w->base->number + (m->settle ? 1 : 0))
        return error_set(e, PAWL_INTERNAL, 0, "go of view %llu, version %llu at version %llu",
                         (unsigned long long)m->view, (unsigned long long)m->version,
                         (unsigned long long)w->base->number);
    if (first) net_fence(w->env.net, m->view);
    w->peers.view = m->view;
    pawl_code code = take_membership(w, m, e);
    if (code != PAWL_OK) return code;
    w->optimistic = m->optimistic;
    w->shift = m->shift;
    w->verdict = m->verdict;
    w->clip = m->clip;
    if (!m->settle) {
        w->has_grad = false;
        return begin_iteration(w);
    }
    if (!w->has_grad) return fetch_grad(w, e);
    code = give_grad(w, e);
    if (code == PAWL_OK) code = settle(w, m->verdict, m->clip, e);
    w->shift = m->shift;
    return code == PAWL_OK ? begin_iteration(w) : code;
}

pawl_code worker_state_completion(struct worker *w, const struct net_completion *c, struct pawl_error *e) {
    assert(w->state_pending > 0);
    w->state_pending--;
    if (peers_owner_of(c->cookie) == PEERS_STATE_SEND)
        return PAWL_OK; /* a send: if it was lost a fence is coming */
    if (c->code != PAWL_OK || c->bytes != w->stage->param_count * sizeof(float))
        return error_set(e, PAWL_FORMAT, 0, "gradient of %zu bytes from a peer: expected %llu", c->bytes,
                         (unsigned long long)(w->stage->param_count * sizeof(float)));
    w->has_grad = true;
    int32_t shift = w->shift;
    pawl_code code = settle(w, w->verdict, w->clip, e);
    w->shift = shift;
    if (code == PAWL_OK) code = begin_iteration(w);
    struct message save = w->early_save;
    w->early_save = (struct message){0};
    return code == PAWL_OK && save.parts > 0 ? worker_save(w, &save, e) : code;
}

static pawl_code report_reduced(struct worker *w, struct pawl_error *e) {
    const int64_t *footer = w->reduce.footer;
    uint64_t count = (uint64_t)footer[GRADSUM_COUNT], contributions = w->stage->contributions;
    if (count % contributions != 0 || count / contributions < w->stage->tensor_count)
        return error_set(
            e, PAWL_INTERNAL, 0, "%llu gradient contributions of %u tensors and %llu micro-batches",
            (unsigned long long)count, w->stage->tensor_count, (unsigned long long)contributions);
    w->report = (struct coord_report){.iteration = w->base->number,
                                      .norm2 = adamw_norm2(w->stage, w->grad),
                                      .loss = footer[GRADSUM_LOSS],
                                      .nonfinite = (uint64_t)footer[GRADSUM_NONFINITE],
                                      .overflow = (uint64_t)footer[GRADSUM_OVERFLOW]};
    w->has_grad = true;
    struct message m = {.kind = MESSAGE_REDUCED, .view = w->peers.view, .report = w->report};
    return channel_send(w->env.channel, &m, e);
}

static pawl_code advance_step(struct worker *w, bool *worked, struct pawl_error *e) {
    (void)e;
    if (!w->optimistic || w->report.nonfinite > 0 || w->report.overflow > 0) {
        w->phase = WORKER_HOLD;
        *worked = true;
        return PAWL_OK;
    }
    struct version *next = versions_take(&w->versions);
    if (next == NULL) return PAWL_OK; /* every buffer is being saved: go on when one is free */
    *worked = true;
    take_step(w, 1.0f, next);
    w->tentative = next;
    w->shift = 0; /* it was the redone iteration's; a fence that restarts that one brings it back */
    fault_arrive(FAULT_STEP_TENTATIVE);
    exec_pass(&w->exec);
    return begin_iteration(w);
}

static pawl_code advance_reduce(struct worker *w, bool *worked, struct pawl_error *e) {
    /* The gradient buffer is still needed while the last step is undecided or a peer is being sent it. */
    if (w->reduce.phase == REDUCE_IDLE) {
        if (w->tentative != NULL || w->state_pending > 0) return PAWL_OK;
        w->has_grad = false;
        *worked = true;
        w->reduce_ns = clock_now_ns();
        return reduce_begin(&w->reduce, w->base, w->sums, w->shift, w->grad, e);
    }
    pawl_code code = reduce_tick(&w->reduce, e);
    if (code != PAWL_OK || w->reduce.phase != REDUCE_DONE) return code;
    *worked = true;
    measure_add(&w->exec.measure, MEASURE_REDUCE, clock_now_ns() - w->reduce_ns);
    reduce_drop(&w->reduce);
    exec_pass(&w->exec);
    code = report_reduced(w, e);
    return code == PAWL_OK ? advance_step(w, worked, e) : code; /* before its decision can arrive */
}

pawl_code worker_advance(struct worker *w, bool *worked, struct pawl_error *e) {
    if (w->phase != WORKER_RUN) return PAWL_OK;
    enum exec_state state;
    pawl_code code = exec_tick(&w->exec, &state, e);
    if (code != PAWL_OK) return code;
    if (state == EXEC_WORKED) *worked = true;
    if (state == EXEC_AT_REDUCE) return advance_reduce(w, worked, e);
    if (state == EXEC_AT_STEP) return advance_step(w, worked, e);
    return PAWL_OK;
}
