/* Prints the text form of a plan, for people and diffs; docs/formats/plan.md gives the grammar.
 *
 *   pawl-plan 2 pipelines=2 stages=2 chunks=2 microbatches=1
 *   0.0 [0]: F0:0.0>0.1 B0:0.0<0.1 R0 S0
 *   0.1 [1]: F1:0.0<0.0 B1:0.0>0.0 R1 S1
 *   1.0: dead
 *   ...
 *
 * If the pipelines are not all full the version is 3, and behind microbatches stands total. text_parse.c
 * reads both. Tested in tests/unit/ir_text_test.c and tests/fuzz/ir_parse_fuzz.c. */
#include "ir/shape.h"

static void print_worker_name(const struct ir_plan *plan, uint32_t worker, struct bytes *out) {
    bytes_printf(out, "%u.%u", worker / plan->stages, worker % plan->stages);
}

static void print_instruction(const struct ir_plan *plan, const struct ir_instruction *in,
                              struct bytes *out) {
    bytes_printf(out, " %s%u", ir_op_name(in->op), in->chunk);
    if (in->home != IR_NONE || in->microbatch != IR_NONE)
        bytes_printf(out, ":%u.%u", in->home, in->microbatch);
    if (in->from != IR_NONE) {
        bytes_put_u8(out, '<');
        print_worker_name(plan, in->from, out);
    }
    if (in->to != IR_NONE) {
        bytes_put_u8(out, '>');
        print_worker_name(plan, in->to, out);
    }
}

static void print_worker(const struct ir_plan *plan, uint32_t worker, struct bytes *out) {
    const struct ir_worker *w = &plan->workers[worker];
    print_worker_name(plan, worker, out);
    if (!w->alive) {
        bytes_printf(out, ": dead\n");
        return;
    }
    bytes_printf(out, " [");
    for (uint32_t i = 0; i < w->hold_count; i++) bytes_printf(out, i > 0 ? ",%u" : "%u", w->holds[i]);
    bytes_printf(out, "]:");
    for (uint32_t i = 0; i < w->count; i++) print_instruction(plan, &w->instructions[i], out);
    bytes_printf(out, "\n");
}

void ir_print(const struct ir_plan *plan, struct bytes *out) {
    bool full = plan->total == plan->pipelines * plan->microbatches;
    bytes_printf(out, "pawl-plan %d pipelines=%u stages=%u chunks=%u microbatches=%u", full ? 2 : 3,
                 plan->pipelines, plan->stages, plan->chunks, plan->microbatches);
    if (!full) bytes_printf(out, " total=%u", plan->total);
    bytes_printf(out, "\n");
    for (uint32_t w = 0; w < ir_worker_count(plan); w++) print_worker(plan, w, out);
}
