/* See policy.h: all policies by name. */
#include <string.h>

#include "fleet/policy.h"

static const struct fleet_policy *const policies[] = {
    &fleet_fault_scaled, &fleet_drop_replica, &fleet_checkpoint_restart,
    &fleet_oobleck,      &fleet_bamboo,       &fleet_varuna,
    &fleet_recycle,      &fleet_pawl,
};
#define POLICIES (sizeof policies / sizeof policies[0])

const char *const *pawl_sim_policies(void) {
    static const char *const names[] = {"fault-scaled", "drop-replica", "checkpoint-restart",
                                        "oobleck",      "bamboo",       "varuna",
                                        "recycle",      "pawl",         NULL};
    return names;
}

const struct fleet_policy *fleet_policy_find(const char *name) {
    for (size_t i = 0; i < POLICIES; i++)
        if (strcmp(policies[i]->name, name) == 0) return policies[i];
    return NULL;
}
