/* The least period of given lists. Tested in tests/unit/sim_period_test.c. */
#ifndef SIM_PERIOD_H
#define SIM_PERIOD_H

#include "sim/graph.h"

/* The least period at which the graph can be repeated (sim.h), and the ends of all nodes [count] for which it
 * holds. `alone` is how long one iteration takes by itself. Errors: MEMORY, ARGUMENT (times too long). */
pawl_code period_least(const struct graph *g, uint64_t alone, uint64_t *end, uint64_t *period,
                       struct pawl_error *e);

#endif
