/* Compute times that vary. Tested in tests/unit/sim_noise_test.c. */
#ifndef SIM_NOISE_H
#define SIM_NOISE_H

#include "sim/graph.h"

bool noise_is_none(const struct sim_noise *noise); /* accepts null */

/* The error names the field: ARGUMENT. */
pawl_code noise_check(const struct sim_noise *noise, uint32_t workers, struct pawl_error *e);

/* Set the durations of all computing in the graph for one iteration. ARGUMENT: they sum up to SIM_TICKS_MAX.
 */
pawl_code noise_apply(const struct sim_noise *noise, uint32_t iteration, struct graph *g,
                      struct pawl_error *e);

/* Is it work of the worker itself: F I W B C S? */
static inline bool op_computes(enum ir_op op) { return op != IR_R && op != IR_O && op != IR_L; }

#endif
