/* Iterations of a worker: execute, reduce, step, decide.
 *
 * R and S only mark that their chunk may be reduced, may be stepped; the list goes on. So two chunks whose
 * reductions wait for each other (the ends of a tied embedding) may be on one worker, in any order. */
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "run/worker_state.h"

/* Iterations after which a worker says what it measured: soon, then now and then. */
#define MEASURED_FIRST 4u
#define MEASURED_EVERY 32u

/* What a micro-batch keeps where it is computed again: the first stage's own input comes from nobody, and
 * counts like what it gives (0 would mean that it is not known). */
static uint64_t input_bytes(const struct stage *stage) {
    return stage->input_bytes > 0 ? stage->input_bytes : stage->output_bytes;
}

static pawl_code send_measured(struct worker *w, const struct holding *h, struct pawl_error *e) {
    struct measure_report r = {
        .state_bytes = h->base->bytes + holding_sums_bytes(h) + h->stage->param_count * sizeof *h->grad,
        .activation_bytes = h->stage->slot_bytes,
        .input_bytes = input_bytes(h->stage),
        .peak_microbatches = w->exec.peak,
    };
    struct bytes data = {0};
    measure_times(&h->measure, &r);
    measure_encode(&r, &data);
    struct message m = {
        .kind = MESSAGE_MEASURED, .chunk = holding_chunk(h), .data = data.data, .data_bytes = data.size};
    pawl_code code = data.failed ? error_set(e, PAWL_MEMORY, 0, "no memory for measurements")
                                 : channel_send(w->env.channel, &m, e);
    bytes_close(&data);
    return code;
}

static bool measured_is_due(const struct holding *h) {
    uint64_t n = h->measure.iterations;
    return n >= MEASURED_FIRST && (n % MEASURED_EVERY == 0 || (n < MEASURED_EVERY && (n & (n - 1)) == 0));
}

static pawl_code rest(struct worker *w, bool at_end, struct pawl_error *e) {
    w->phase = WORKER_IDLE;
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; at_end && i < w->planned_count && code == PAWL_OK; i++)
        code = send_measured(w, w->planned[i], e);
    return code;
}

pawl_code worker_begin(struct worker *w, uint64_t iteration, const uint8_t *done, struct pawl_error *e) {
    bool at_end = iteration >= w->spec.run.steps;
    if (at_end || w->planned_count == 0) return rest(w, at_end, e);
    if (w->inject != NULL) inject_self_at(w->inject, iteration);
    fault_arrive(FAULT_ITERATION_BEGIN);
    pawl_code code = PAWL_OK;
    /* A tentative version's iteration is of no redo: the shift is that of the iteration before. */
    int32_t shift = iteration == w->planned[0]->base->number ? w->shift : 0;
    for (uint32_t i = 0; i < w->planned_count && code == PAWL_OK; i++) {
        holding_begin(w->planned[i], shift);
        if (measured_is_due(w->planned[i])) code = send_measured(w, w->planned[i], e);
    }
    exec_begin(&w->exec, iteration, shift, done);
    w->iteration = iteration;
    w->phase = WORKER_RUN;
    return code;
}

pawl_code worker_report(struct worker *w, struct holding *h, struct pawl_error *e) {
    h->reported = true;
    struct message m = {
        .kind = MESSAGE_REDUCED, .view = w->peers.view, .chunk = holding_chunk(h), .report = h->report};
    return channel_send(w->env.channel, &m, e);
}

static pawl_code advance_reduce(struct worker *w, struct holding *h, bool *worked, struct pawl_error *e) {
    if (!h->reduce_due || h->reported) return PAWL_OK;
    enum reduce_phase before = h->reduce.phase;
    if (before == REDUCE_IDLE) {
        /* The gradient buffer is needed while the last step is undecided or a peer is being sent it. */
        if (h->tentative != NULL || h->grad_sends > 0 || h->reduce.giving > 0) return PAWL_OK;
        h->has_grad = false;
        *worked = true;
        h->reduce_ns = clock_now_ns();
        return reduce_begin(&h->reduce, h->base, w->shift, e);
    }
    pawl_code code = reduce_tick(&h->reduce, e);
    *worked = *worked || h->reduce.phase != before;
    if (code != PAWL_OK || h->reduce.phase != REDUCE_DONE) return code;
    stage_pause(h->stage, STAGE_PAUSE_REDUCE);
    measure_add(&h->measure, MEASURE_REDUCE, clock_now_ns() - h->reduce_ns);
    reduce_end(&h->reduce);
    code = holding_reduced(h, e);
    return code == PAWL_OK ? worker_report(w, h, e) : code; /* before its decision can arrive */
}

static pawl_code advance_step(struct worker *w, struct holding *h, bool *worked, struct pawl_error *e) {
    bool due = h->step_due && h->reported && h->tentative == NULL && h->base->number == w->iteration;
    if (!due || !w->optimistic || h->report.nonfinite > 0 || h->report.overflow > 0) return PAWL_OK;
    pawl_code code = holding_step(h, &w->adamw, e);
    *worked = *worked || h->tentative != NULL; /* else: when a buffer is free */
    return code;
}

static bool all_stepped(const struct worker *w) {
    for (uint32_t i = 0; i < w->planned_count; i++)
        if (holding_current(w->planned[i])->number != w->iteration + 1) return false;
    return true;
}

static pawl_code next_iteration(struct worker *w, struct pawl_error *e) {
    for (uint32_t i = 0; i < w->planned_count; i++) w->planned[i]->reduced = w->planned[i]->reported = false;
    return worker_begin(w, w->iteration + 1, NULL, e);
}

pawl_code worker_advance(struct worker *w, bool *worked, struct pawl_error *e) {
    if (w->phase != WORKER_RUN) return PAWL_OK;
    enum exec_state state;
    pawl_code code = exec_tick(&w->exec, &state, e);
    if (code == PAWL_OK && (state == EXEC_AT_REDUCE || state == EXEC_AT_STEP)) {
        struct holding *h = exec_holding(&w->exec);
        *(state == EXEC_AT_REDUCE ? &h->reduce_due : &h->step_due) = true;
        exec_pass(&w->exec);
    }
    worker_note_at(w);
    *worked = *worked || (state != EXEC_WAITING && state != EXEC_ENDED);
    for (uint32_t i = 0; i < w->planned_count && code == PAWL_OK; i++) {
        code = advance_reduce(w, w->planned[i], worked, e);
        if (code == PAWL_OK) code = advance_step(w, w->planned[i], worked, e);
    }
    if (code != PAWL_OK || state != EXEC_ENDED || !all_stepped(w)) return code;
    *worked = true;
    return next_iteration(w, e);
}

pawl_code worker_decide(struct worker *w, const struct message *m, struct pawl_error *e) {
    if (w->phase == WORKER_LEAVING) return PAWL_OK;
    if (m->view != w->peers.view || (w->phase != WORKER_RUN && w->phase != WORKER_IDLE))
        return error_set(e, PAWL_INTERNAL, 0, "decision of view %llu in view %llu",
                         (unsigned long long)m->view, (unsigned long long)w->peers.view);
    pawl_code code = PAWL_OK;
    for (uint32_t i = 0; i < w->planned_count && code == PAWL_OK; i++) {
        struct holding *h = w->planned[i];
        if (h->base->number != m->iteration)
            return error_set(e, PAWL_INTERNAL, 0, "decision of iteration %llu at version %llu",
                             (unsigned long long)m->iteration, (unsigned long long)h->base->number);
        code = holding_settle(h, &w->adamw, m->verdict, m->clip, e);
    }
    for (uint32_t i = 0; i < w->holding_count; i++) {
        struct holding *h = w->holdings[i];
        if (h->use != HOLDING_RETIRED) continue;
        holding_forget(h);
        h->use = HOLDING_OVER;
    }
    w->final = m->iteration + 1;
    w->optimistic = m->optimistic;
    w->shift = 0;
    return code;
}
