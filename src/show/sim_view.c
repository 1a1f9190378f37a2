/* Implementation of show/sim_view.h. */
#include "show/sim_view.h"

#include <string.h>

bool sim_view_same_scenario(const struct pawl_sim *sim, uint32_t row, uint32_t other) {
    return strcmp(sim->rows[row].scenario, sim->rows[other].scenario) == 0;
}

bool sim_view_begins(const struct pawl_sim *sim, uint32_t row) {
    for (uint32_t i = 0; i < row; i++)
        if (sim_view_same_scenario(sim, i, row)) return false;
    return true;
}

static bool is_first_of_policy(const struct pawl_sim *sim, uint32_t row) {
    for (uint32_t i = 0; i < row; i++)
        if (strcmp(sim->rows[i].policy, sim->rows[row].policy) == 0) return false;
    return true;
}

uint32_t sim_view_style(const struct pawl_sim *sim, uint32_t row) {
    uint32_t others = 0;
    if (sim_view_is_ours(&sim->rows[row])) return strcmp(sim->rows[row].policy, "recycle") == 0;
    for (uint32_t i = 0; strcmp(sim->rows[i].policy, sim->rows[row].policy) != 0; i++)
        others += is_first_of_policy(sim, i) && !sim_view_is_ours(&sim->rows[i]);
    return 2 + others % (SIM_VIEW_STYLES - 2);
}

bool sim_view_ran(const struct pawl_sim *sim, uint32_t row) { return sim->rows[row].goodput > 0; }

bool sim_view_is_ours(const struct pawl_sim_row *row) {
    return strcmp(row->policy, "pawl") == 0 || strcmp(row->policy, "recycle") == 0;
}
