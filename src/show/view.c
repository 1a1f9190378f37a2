/* Implementation of show/view.h. */
#include "show/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* In micro-batches the raw unit is whatever makes the chunks of one stage hold one micro-batch together. */
static double memory_one(const struct pawl_plan *plan) {
    double all = 0;
    if (plan->memory_in_bytes || plan->costs == NULL) return 1;
    for (uint32_t c = 0; c < plan->costs->chunks; c++) all += (double)plan->costs->chunk[c].full;
    return all > 0 && plan->ir->stages > 0 ? all / plan->ir->stages : 1;
}

static void count_instruction(struct view *v, uint32_t worker, const struct ir_instruction *in,
                              uint64_t ticks) {
    v->counts[in->op]++;
    v->recomputed += in->op == IR_C;
    v->offloaded += in->op == IR_O;
    v->timed_reduces += in->op == IR_R && ticks > 0;
    v->timed_steps += in->op == IR_S && ticks > 0;
    if (in->op == IR_F && view_is_guest(v, worker, in)) v->guests++;
    if (in->op == IR_F && view_is_helper(v, worker, in->chunk)) v->helped++;
    if (in->op <= IR_B && ticks > 0 && (v->shortest == 0 || ticks < v->shortest)) v->shortest = ticks;
}

static void count_worker(struct view *v, uint32_t w, bool *stage_seen) {
    const struct ir_worker *worker = &v->ir->workers[w];
    uint32_t s = view_stage(v, w);
    v->dead += !worker->alive;
    for (uint32_t i = 0; i < worker->count; i++) {
        uint64_t start = view_start(v, w, i), end = view_end(v, w, i);
        count_instruction(v, w, &worker->instructions[i], end - start);
        if (!stage_seen[s] || start < v->stage_first[s]) v->stage_first[s] = start;
        if (!stage_seen[s] || end > v->stage_last[s]) v->stage_last[s] = end;
        if (v->instructions == 0 || start < v->origin) v->origin = start;
        if (end > v->end) v->end = end;
        stage_seen[s] = true;
        v->instructions++;
    }
}

pawl_code view_open(struct view *v, const struct pawl_plan *plan, struct pawl_error *e) {
    *v = (struct view){.plan = plan, .ir = plan->ir, .memory_one = memory_one(plan)};
    v->workers = plan->ir->pipelines * plan->ir->stages;
    v->stage_first = calloc(plan->ir->stages, sizeof *v->stage_first);
    v->stage_last = calloc(plan->ir->stages, sizeof *v->stage_last);
    bool *seen = calloc(plan->ir->stages, sizeof *seen);
    if (v->stage_first == NULL || v->stage_last == NULL || seen == NULL) {
        free(seen);
        view_close(v);
        return error_set(e, PAWL_MEMORY, 0, "no memory to show %u stages", plan->ir->stages);
    }
    for (uint32_t w = 0; w < v->workers; w++) count_worker(v, w, seen);
    free(seen);
    return PAWL_OK;
}

void view_close(struct view *v) {
    free(v->stage_first);
    free(v->stage_last);
    *v = (struct view){0};
}

bool view_is_helper(const struct view *v, uint32_t worker, uint32_t chunk) {
    if (v->ir->chunks == v->ir->stages) return chunk != view_stage(v, worker);
    for (uint32_t i = 0; i < v->plan->helper_count; i++)
        if (v->plan->helpers[i].worker == worker && v->plan->helpers[i].chunk == chunk) return true;
    return false;
}

double view_memory(const struct view *v, uint64_t raw) { return (double)raw / v->memory_one; }

uint64_t view_chunk_state(const struct view *v, uint32_t chunk) {
    return v->plan->costs != NULL && chunk < v->plan->costs->chunks ? v->plan->costs->chunk[chunk].state : 0;
}

uint64_t view_state(const struct view *v, uint32_t worker) {
    const struct ir_worker *held = &v->ir->workers[worker];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < held->hold_count; i++)
        if (!view_is_helper(v, worker, held->holds[i])) bytes += view_chunk_state(v, held->holds[i]);
    return bytes;
}

uint64_t view_end_of_window(const struct view *v, uint32_t stage) {
    if (!v->plan->staggered) return v->origin + v->plan->times.period;
    return v->stage_first[stage] + v->plan->times.period;
}

const char *view_op_words(enum ir_op op) {
    switch (op) {
    case IR_F:
        return "forward";
    case IR_I:
        return "input-gradient";
    case IR_W:
        return "weight-gradient";
    case IR_B:
        return "backward";
    case IR_R:
        return "reduce";
    case IR_S:
        return "step";
    case IR_C:
        return "recompute";
    case IR_O:
        return "offload";
    case IR_L:
        return "load";
    case IR_OP_COUNT:
        break;
    }
    return "?";
}

void out_percent(struct out *o, double share) {
    double percent = share * 100;
    if (percent != 0 && fabs(percent) < 0.01)
        out_text(o, percent > 0 ? "under 0.01" : "over -0.01");
    else if (fabs(percent) < 10)
        out_pixels(o, percent);
    else
        out_printf(o, "%.1f", percent);
}

void out_bytes(struct out *o, double bytes) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    while (bytes >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1000;
        unit++;
    }
    out_printf(o, "%.3g %s", bytes, units[unit]);
}

void out_memory(struct out *o, const struct view *v, uint64_t raw) {
    if (v->plan->memory_in_bytes) {
        out_bytes(o, (double)raw);
        return;
    }
    out_pixels(o, view_memory(v, raw));
    out_text(o, view_memory(v, raw) == 1 ? " micro-batch" : " micro-batches");
}

void out_milliseconds(struct out *o, double ms) {
    out_printf(o, ms < 10 ? "%.2f ms" : ms < 10000 ? "%.0f ms" : "%.3g ms", ms);
}

void out_unit_time(struct out *o, const struct view *v, double time) {
    out_f64(o, time);
    const char *unit = v->plan->summary.unit;
    if (unit == NULL || *unit == 0) return;
    out_char(o, ' ');
    out_plain(o, unit);
}
