/* Does the schedule of a spec fit its memory, with everybody there? Asked of the planner before anything
 * starts. With failures a run goes on by other means (run/replan.h); without any it is the spec that has to
 * change. Tested in tests/unit/run_spec_test.c. */
#include "run/spec_field.h"

static pawl_code make(const struct spec *s, const struct pawl_profile *profile, uint32_t memory,
                      struct pawl_plan **out, struct pawl_error *e) {
    static const bool at_once = true; /* whether there is a plan, not how short it can be */
    const struct pawl_plan_request r = {.pipelines = s->parallel.pipelines,
                                        .stages = s->parallel.stages,
                                        .microbatches = s->parallel.microbatches,
                                        .profile = profile,
                                        .policy = s->parallel.schedule,
                                        .memory = memory,
                                        .stop = &at_once};
    return pawl_plan_make(&r, out, e);
}

/* What an order of its own stores at most, where that does not depend on the limit; 0: it is not known. */
static uint32_t need_of(const struct spec *s) {
    struct pawl_plan *plan = NULL;
    double most = 0;
    if (s->parallel.schedule >= PAWL_POLICY_ADAPTIVE || make(s, NULL, 0, &plan, NULL) != PAWL_OK) return 0;
    for (uint32_t w = 0; w < s->parallel.pipelines * s->parallel.stages; w++) {
        struct pawl_plan_worker worker;
        struct pawl_error e;
        pawl_code code = pawl_plan_worker(plan, w / s->parallel.stages, w % s->parallel.stages, &worker, &e);
        if (code == PAWL_OK && worker.peak_memory > most) most = worker.peak_memory;
    }
    pawl_plan_free(plan);
    return (uint32_t)most;
}

static pawl_code refuse(const struct spec *s, const char *why, struct pawl_error *e) {
    const char *schedule = pawl_policy_name(s->parallel.schedule);
    uint32_t need = need_of(s);
    if (s->parallel.memory == 0)
        return error_set(e, PAWL_SPEC, 0,
                         "parallel.schedule is %s, which does not fit the memory of the profile: %s: use "
                         "another schedule",
                         schedule, why);
    if (need > s->parallel.memory)
        return error_set(e, PAWL_SPEC, 0,
                         "parallel.memory is %u, but parallel.schedule %s stores up to %u micro-batches: use "
                         "at least %u, or 0, or schedule pawl",
                         s->parallel.memory, schedule, need, need);
    return error_set(e, PAWL_SPEC, 0, "parallel.memory is %u: %s: use more, or 0", s->parallel.memory, why);
}

pawl_code spec_check_plan(const struct spec *s, struct pawl_error *e) {
    const char *path = spec_plan_profile(s);
    struct pawl_profile *profile = NULL;
    struct pawl_plan *plan = NULL;
    struct pawl_error why = {0};
    if (s->parallel.memory == 0 && *path == 0) return PAWL_OK;
    pawl_code code = *path != 0 ? pawl_profile_read(path, &profile, &why) : PAWL_OK;
    if (code == PAWL_OK) code = make(s, profile, s->parallel.memory, &plan, &why);
    pawl_plan_free(plan);
    pawl_profile_free(profile);
    if (code == PAWL_PLAN) return refuse(s, why.text, e);
    return code == PAWL_OK ? code : error_set(e, code, 0, "parallel: %s", why.text);
}
