/* Which values an instruction's fields may hold, for those that take instructions from outside: append,
 * decode and parse. The checker keeps its own copy of these rules, so that it proves them again. */
#ifndef IR_SHAPE_H
#define IR_SHAPE_H

#include "ir/ir.h"

/* One chunk of every micro-batch of every pipeline with all that can be done to it (F, O, L, I, W), R and S:
 * 5 * 4096 * 16384 + 2 < 2^29. A worker with more to do would need 13 GB of instructions; the bound keeps
 * sizes far from overflow, also when they are doubled. */
#define IR_LIST_MAX (UINT32_C(1) << 29)

/* Null when every field is in range for a plan of these sizes and for its op; otherwise the rule that
 * is broken, in words. */
const char *ir_shape_fault(const struct ir_plan *plan, const struct ir_instruction *instruction);

/* Version 1 of both forms knew one chunk a stage, and named in from and to the pipelines of the neighbouring
 * stages' workers. Makes such an instruction of a worker of `stage` one of today's; null, or the rule that
 * is broken. */
const char *ir_shape_upgrade(const struct ir_plan *plan, uint32_t stage, struct ir_instruction *instruction);

/* F, I and B are what messages follow from; R and S are for a whole chunk. */
static inline bool ir_op_speaks(enum ir_op op) { return op == IR_F || op == IR_I || op == IR_B; }
static inline bool ir_op_is_collective(enum ir_op op) { return op == IR_R || op == IR_S; }

/* Workers of a plan; sizes are within their limits, hence no overflow. */
static inline uint32_t ir_worker_count(const struct ir_plan *plan) { return plan->pipelines * plan->stages; }

#endif
