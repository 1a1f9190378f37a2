/* Which values an instruction's fields may hold, for those that take instructions from outside: append,
 * decode and parse. The checker keeps its own copy of these rules, so that it proves them again. */
#ifndef IR_SHAPE_H
#define IR_SHAPE_H

#include "ir/ir.h"

/* Null when every field is in range for a plan of these sizes and for its op; otherwise the rule that
 * is broken, in words. */
const char *ir_shape_fault(const struct ir_plan *plan, const struct ir_instruction *instruction);

/* Workers of a plan; sizes are within their limits, hence no overflow. */
static inline uint64_t ir_worker_count(const struct ir_plan *plan) {
    return (uint64_t)plan->pipelines * plan->stages;
}

#endif
