/* A plan as JSON, for programs: every key is in docs/formats/plan-json.md.
 *
 * Streamed, a line per worker, numbers exact: whoever reads it back can check the plan without us, so the
 * costs it was made with are in it too. Fails only when writing does. Tested in
 * tests/unit/show_plan_json_test.c and tests/golden/show_plan_test.c. */
#include "show/view.h"
#include "show/show.h"

#define VERSION 1u

static void put_worker_at(struct out *o, const struct view *v, uint32_t worker) {
    out_text(o, "{\"pipeline\":");
    out_u64(o, view_pipeline(v, worker));
    out_key_u64(o, "stage", view_stage(v, worker));
    out_char(o, '}');
}

static void put_shape(struct out *o, const struct view *v) {
    const struct pawl_plan *plan = v->plan;
    out_text(o, "{\"pawl_plan\":");
    out_u64(o, VERSION);
    out_key_text(o, "policy", pawl_policy_name(plan->summary.policy));
    out_key_u64(o, "pipelines", v->ir->pipelines);
    out_key_u64(o, "stages", v->ir->stages);
    out_key_u64(o, "chunks", v->ir->chunks);
    out_key_u64(o, "microbatches", v->ir->microbatches);
    if (!view_is_full(v)) out_key_u64(o, "total_microbatches", v->ir->total);
    out_key_u64(o, "alive", v->workers - v->dead);
    out_key_text(o, "unit", plan->summary.unit);
    out_key_text(o, "memory_unit", plan->memory_in_bytes ? "bytes" : "microbatches");
    out_key_bool(o, "staggered", plan->staggered);
}

static void put_result(struct out *o, const struct view *v) {
    const struct pawl_plan_summary *s = &v->plan->summary;
    out_text(o, "\n ");
    out_key_time(o, "period", v->plan->times.period);
    out_key_time(o, "makespan", v->plan->times.makespan);
    out_key_f64(o, "lower_bound", s->lower_bound);
    out_key_f64(o, "gap", s->gap);
    out_key_f64(o, "fault_free", s->fault_free);
    out_key_bool(o, "proven", s->proven);
    out_key_text(o, "engine", s->engine);
    out_key(o, "exact");
    if (s->exact) {
        out_text(o, "{\"seconds\":");
        out_f64(o, s->exact_s);
        out_key_f64(o, "bound", s->exact_bound);
        out_char(o, '}');
    } else {
        out_text(o, "null");
    }
    out_key_f64(o, "planning_ms", s->planning_ms);
    out_key_f64(o, "check_ms", s->check_ms);
    out_key_u64(o, "instructions", v->instructions);
    out_key_u64(o, "recomputed", v->recomputed);
    out_key_u64(o, "offloaded", v->offloaded);
}

static void put_moves(struct out *o, const struct view *v) {
    out_text(o, "\n ");
    out_key(o, "moves");
    out_char(o, '[');
    for (uint32_t i = 0; i < v->plan->move_count; i++) {
        const struct plan_move *move = &v->plan->moves[i];
        out_text(o, i > 0 ? ",{\"from\":" : "{\"from\":");
        put_worker_at(o, v, move->from);
        out_key(o, "to");
        put_worker_at(o, v, move->to);
        out_key_u64(o, "bytes", view_state(v, move->to));
        out_char(o, '}');
    }
    out_char(o, ']');
    out_key(o, "shared");
    out_char(o, '[');
    for (uint32_t i = 0; i < v->plan->helper_count; i++) {
        const struct plan_helper *helper = &v->plan->helpers[i];
        out_text(o, i > 0 ? ",{\"worker\":" : "{\"worker\":");
        put_worker_at(o, v, helper->worker);
        out_key_u64(o, "chunk", helper->chunk);
        out_key(o, "copied_from");
        put_worker_at(o, v, helper->copied_from);
        out_key_u64(o, "bytes", view_chunk_state(v, helper->chunk));
        out_char(o, '}');
    }
    out_char(o, ']');
}

static void put_chunk_cost(struct out *o, const struct sim_chunk *c) {
    const struct {
        const char *name;
        uint64_t ticks;
    } times[] = {
        {"forward", c->forward},
        {"input_grad", c->input_grad},
        {"weight_grad", c->weight_grad},
        {"reduce", c->reduce},
        {"step", c->step},
        {"send_forward", c->send_forward},
        {"send_backward", c->send_backward},
        {"offload", c->offload},
        {"load", c->load},
    };
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        out_text(o, i > 0 ? ",\"" : "{\"");
        out_text(o, times[i].name);
        out_text(o, "\":");
        out_time(o, times[i].ticks);
    }
}

static void put_costs(struct out *o, const struct view *v) {
    const struct sim_costs *costs = v->plan->costs;
    out_text(o, "\n ");
    out_key(o, "costs");
    if (costs == NULL) {
        out_text(o, "null");
        return;
    }
    out_text(o, "{\"chunks\":[");
    for (uint32_t c = 0; c < costs->chunks; c++) {
        out_text(o, c > 0 ? ",\n  " : "\n  ");
        put_chunk_cost(o, &costs->chunk[c]);
        out_key_f64(o, "full", view_memory(v, costs->chunk[c].full));
        out_key_f64(o, "kept", view_memory(v, costs->chunk[c].kept));
        out_key_f64(o, "after_input", view_memory(v, costs->chunk[c].after_input));
        out_key_u64(o, "state_bytes", costs->chunk[c].state);
        out_char(o, '}');
    }
    out_text(o, "]");
    out_key(o, "slow");
    out_text(o, costs->slow != NULL ? "[" : "null");
    for (uint32_t w = 0; costs->slow != NULL && w < v->workers; w++) {
        if (w > 0) out_char(o, ',');
        out_f64(o, costs->slow[w]);
    }
    if (costs->slow != NULL) out_char(o, ']');
    out_key(o, "memory_limit");
    out_text(o, costs->limit != NULL ? "[" : "null");
    for (uint32_t w = 0; costs->limit != NULL && w < v->workers; w++) {
        if (w > 0) out_char(o, ',');
        out_f64(o, view_memory(v, costs->limit[w]));
    }
    out_text(o, costs->limit != NULL ? "]}" : "}");
}

static void put_peaks(struct out *o, const struct view *v) {
    out_text(o, "\n ");
    out_key(o, "peak_memory");
    out_char(o, '[');
    for (uint32_t w = 0; w < v->workers; w++) {
        if (w > 0) out_char(o, ',');
        out_f64(o, view_memory(v, v->plan->times.peak[w]));
    }
    out_char(o, ']');
}

static void put_number(struct out *o, uint32_t number) {
    if (number == IR_NONE)
        out_text(o, "null");
    else
        out_u64(o, number);
}

static void put_instruction(struct out *o, const struct view *v, uint32_t worker, uint32_t i) {
    const struct ir_instruction *in = &v->ir->workers[worker].instructions[i];
    out_text(o, i > 0 ? ",{\"op\":\"" : "{\"op\":\"");
    out_text(o, ir_op_name(in->op));
    out_text(o, "\",\"home\":");
    put_number(o, in->home);
    out_text(o, ",\"microbatch\":");
    put_number(o, in->microbatch);
    out_key_time(o, "start", view_start(v, worker, i));
    out_key_time(o, "end", view_end(v, worker, i));
    if (in->chunk != view_stage(v, worker)) out_key_u64(o, "chunk", in->chunk);
    if (in->from != IR_NONE) out_key_u64(o, "from", in->from);
    if (in->to != IR_NONE) out_key_u64(o, "to", in->to);
    out_char(o, '}');
}

static void put_worker(struct out *o, const struct view *v, uint32_t w) {
    const struct ir_worker *worker = &v->ir->workers[w];
    out_text(o, w > 0 ? ",\n  {\"pipeline\":" : "\n  {\"pipeline\":");
    out_u64(o, view_pipeline(v, w));
    out_key_u64(o, "stage", view_stage(v, w));
    out_key_bool(o, "alive", worker->alive);
    out_key(o, "holds");
    out_char(o, '[');
    for (uint32_t i = 0; i < worker->hold_count; i++) {
        if (i > 0) out_char(o, ',');
        out_u64(o, worker->holds[i]);
    }
    out_char(o, ']');
    out_key_time(o, "busy", v->plan->times.busy[w]);
    out_key(o, "instructions");
    out_char(o, '[');
    for (uint32_t i = 0; i < worker->count; i++) put_instruction(o, v, w, i);
    out_text(o, "]}");
}

pawl_code show_plan_json(const struct pawl_plan *plan, FILE *file, struct pawl_error *e) {
    struct view v;
    struct out o;
    pawl_code code = view_open(&v, plan, e);
    if (code != PAWL_OK) return code;
    out_begin(&o, file);
    put_shape(&o, &v);
    put_result(&o, &v);
    out_text(&o, "\n ");
    out_key_lines(&o, "warnings", plan->warnings);
    put_moves(&o, &v);
    put_peaks(&o, &v);
    put_costs(&o, &v);
    out_text(&o, "\n ");
    out_key(&o, "workers");
    out_char(&o, '[');
    for (uint32_t w = 0; w < v.workers; w++) put_worker(&o, &v, w);
    out_text(&o, "]}\n");
    view_close(&v);
    return out_end(&o, "plan as JSON", e);
}
