/* What all forms of a simulation's result ask of it. Tested through its users, tests/unit/show_sim_*. */
#ifndef SHOW_SIM_VIEW_H
#define SHOW_SIM_VIEW_H

#include "fleet/fleet.h"
#include "show/out.h"

/* The row is the first of its scenario. Rows of one scenario need not stand together. */
bool sim_view_begins(const struct pawl_sim *sim, uint32_t row);
bool sim_view_same_scenario(const struct pawl_sim *sim, uint32_t row, uint32_t other);
/* Which line a policy has in all panels: 0 pawl, 1 recycle, 2 .. SIM_VIEW_STYLES-1 the others as they come
 * up. */
#define SIM_VIEW_STYLES 8u
uint32_t sim_view_style(const struct pawl_sim *sim, uint32_t row);
/* The policy did something that can be compared. */
bool sim_view_ran(const struct pawl_sim *sim, uint32_t row);
/* One of the two policies that are compared with all others in words. */
bool sim_view_is_ours(const struct pawl_sim_row *row);

#endif
