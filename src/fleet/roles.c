/* See policy.h: which machine plays which worker. */
#include <stdlib.h>

#include "base/error.h"
#include "fleet/policy.h"

pawl_code fleet_roles_init(const struct fleet_job *job, const bool *alive, struct fleet_roles *out,
                           struct pawl_error *e) {
    uint32_t count = job->pipelines * job->stages;
    struct fleet_roles r = {.pipelines = job->pipelines, .stages = job->stages};
    r.machine = malloc(count * sizeof *r.machine);
    r.role = malloc(count * sizeof *r.role);
    r.holes = calloc(job->stages, sizeof *r.holes);
    *out = r;
    if (r.machine == NULL || r.role == NULL || r.holes == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for %u workers", count);
    for (uint32_t i = 0; i < count; i++) {
        out->machine[i] = out->role[i] = alive[i] ? i : FLEET_NONE;
        if (alive[i]) continue;
        out->holes[i % job->stages]++;
        out->empty++;
    }
    return PAWL_OK;
}

void fleet_roles_close(struct fleet_roles *r) {
    free(r->machine);
    free(r->role);
    free(r->holes);
    *r = (struct fleet_roles){0};
}

bool fleet_roles_leave(struct fleet_roles *r, uint32_t machine) {
    uint32_t role = r->role[machine];
    if (role == FLEET_NONE) return false;
    r->role[machine] = r->machine[role] = FLEET_NONE;
    r->holes[role % r->stages]++;
    r->empty++;
    return true;
}

void fleet_roles_take(struct fleet_roles *r, uint32_t machine, uint32_t role) {
    r->role[machine] = role;
    r->machine[role] = machine;
    r->holes[role % r->stages]--;
    r->empty--;
}

uint32_t fleet_roles_alive(const struct fleet_roles *r) { return r->pipelines * r->stages - r->empty; }
