/* A plan as the CSV that torch.distributed.pipelining's schedule runtime loads (format `compute_only`).
 *
 * A row per rank of one pipeline, a cell per instruction: chunk, kind, micro-batch, as in `1F3`; that runtime
 * adds the messages, the reduction and the step itself, and infers from the rows which rank holds which
 * chunk. It knows nothing of other pipelines, so a plan in which any micro-batch is executed away from
 * home, or that recomputes or offloads, cannot be said: UNSUPPORTED names the first such instruction.
 * Without those all pipelines may execute the first one's order, which is what is written. Tested in
 * tests/unit/show_plan_csv_test.c, and with the real runtime in tests/e2e/plan_csv_test.py. */
#include "show/view.h"
#include "show/show.h"

static pawl_code check_worker(const struct view *v, uint32_t w, struct pawl_error *e) {
    const struct ir_worker *worker = &v->ir->workers[w];
    uint32_t p = view_pipeline(v, w), s = view_stage(v, w);
    if (!worker->alive)
        return error_set(e, PAWL_UNSUPPORTED, 0,
                         "csv has no re-routed work, but worker %u:%u (pipeline:stage) is dead", p, s);
    for (uint32_t i = 0; i < worker->count; i++) {
        const struct ir_instruction *in = &worker->instructions[i];
        if (in->op == IR_C || in->op == IR_O || in->op == IR_L)
            return error_set(e, PAWL_UNSUPPORTED, 0, "csv has no %s, which worker %u:%u does",
                             view_op_words(in->op), p, s);
        if (view_is_guest(v, w, in))
            return error_set(
                e, PAWL_UNSUPPORTED, 0,
                "csv has no re-routed work, but worker %u:%u executes micro-batch %u of pipeline %u", p, s,
                in->microbatch, in->home);
        if (view_is_helper(v, w, in->chunk))
            return error_set(e, PAWL_UNSUPPORTED, 0,
                             "csv has no shared stages, but worker %u:%u also executes chunk %u", p, s,
                             in->chunk);
    }
    return PAWL_OK;
}

static void put_row(struct out *o, const struct ir_worker *worker) {
    bool first = true;
    for (uint32_t i = 0; i < worker->count; i++) {
        const struct ir_instruction *in = &worker->instructions[i];
        if (in->op == IR_R || in->op == IR_S) continue;
        if (!first) out_char(o, ',');
        first = false;
        out_u64(o, in->chunk);
        out_text(o, ir_op_name(in->op));
        out_u64(o, in->microbatch);
    }
    out_char(o, '\n');
}

pawl_code show_plan_csv(const struct pawl_plan *plan, FILE *file, struct pawl_error *e) {
    struct view v;
    struct out o;
    pawl_code code = view_open(&v, plan, e);
    if (code != PAWL_OK) return code;
    for (uint32_t w = 0; w < v.workers && code == PAWL_OK; w++) code = check_worker(&v, w, e);
    view_close(&v);
    if (code != PAWL_OK) return code;
    out_begin(&o, file);
    for (uint32_t s = 0; s < plan->ir->stages; s++) put_row(&o, &plan->ir->workers[s]);
    return out_end(&o, "plan as CSV", e);
}
