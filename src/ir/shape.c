/* Implementation of ir/shape.h. Tested through plan.c, binary.c and text_parse.c. */
#include "ir/shape.h"

const char *ir_shape_fault(const struct ir_plan *plan, const struct ir_instruction *in) {
    if ((unsigned)in->op >= IR_OP_COUNT) return "unknown op";
    if (in->chunk >= plan->chunks) return "chunk out of range";
    bool collective = ir_op_is_collective(in->op);
    if (collective && (in->home != IR_NONE || in->microbatch != IR_NONE))
        return "R and S have no micro-batch";
    if (!collective && in->home >= plan->pipelines) return "home pipeline out of range";
    if (!collective && in->microbatch >= plan->microbatches) return "micro-batch out of range";
    if (!collective && in->home * plan->microbatches + in->microbatch >= plan->total)
        return "micro-batch beyond the total";
    if (!ir_op_speaks(in->op) && (in->from != IR_NONE || in->to != IR_NONE))
        return "only F, I and B have from and to";
    if (in->from != IR_NONE && in->from >= ir_worker_count(plan)) return "from out of range";
    if (in->to != IR_NONE && in->to >= ir_worker_count(plan)) return "to out of range";
    return NULL;
}

static bool upgrade_neighbour(const struct ir_plan *plan, uint32_t stage, uint32_t *neighbour) {
    if (*neighbour == IR_NONE) return true;
    if (*neighbour >= plan->pipelines || stage >= plan->stages) return false;
    *neighbour = *neighbour * plan->stages + stage;
    return true;
}

const char *ir_shape_upgrade(const struct ir_plan *plan, uint32_t stage, struct ir_instruction *in) {
    if ((unsigned)in->op > IR_S) return "unknown op";
    bool forward = in->op == IR_F;
    uint32_t before = stage - 1, after = stage + 1; /* before the first: beyond every stage */
    in->chunk = stage;
    if (!upgrade_neighbour(plan, forward ? before : after, &in->from)) return "from out of range";
    if (!upgrade_neighbour(plan, forward ? after : before, &in->to)) return "to out of range";
    return ir_shape_fault(plan, in);
}
