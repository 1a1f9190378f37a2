/* What follows from a spec for the coordinator: every limit of time, the places there are.
 *
 * One timeout T is set by people. Silence for T is death. A computation, a load or a save may take longer, as
 * long as the process beats: their limits are multiples of T unless they are given, and no phase has less
 * than a step. Tested in tests/unit/run_spec_follow_test.c. */
#include "ir/ir.h"
#include "run/spec.h"

/* In timeouts: what a step of training may take, and what any other phase may. */
#define STALL_TIMEOUTS 12
#define PHASE_TIMEOUTS 60

/* Silence is looked at now and then (every 20th of a timeout, or 0.05 s: run/link_coordinate.c). It counts
 * from so much below the timeout, at most a tenth, that the verdict stands within the timeout. */
#define JUDGE_NS 100000000

/* Between the first failed write of the last version and the next try; it grows (coord/saves.c). */
#define SAVE_PAUSE_NS 100000000

/* An undecided view is fenced this often without any progress before the run gives up. */
#define IDLE_FENCES_MAX 3u

static double given_of(const struct spec *s, enum coord_work work) {
    switch (work) {
    case COORD_WORK_LOAD:
        return s->failure.load_s;
    case COORD_WORK_SAVE:
        return s->failure.save_s;
    case COORD_WORK_COMPILE:
        return s->failure.compile_s;
    case COORD_WORK_EVAL:
        return s->failure.eval_s;
    default:
        return s->failure.stall_s;
    }
}

static int64_t beat_ns(int64_t timeout_ns) {
    return timeout_ns - (timeout_ns / 10 < JUDGE_NS ? timeout_ns / 10 : JUDGE_NS);
}

static int64_t ns_of(double seconds) { return (int64_t)(seconds * 1e9); }

int64_t spec_stall_ns(const struct spec *s, enum coord_work work) {
    double given = given_of(s, work);
    if (given > 0) return ns_of(given);
    if (work == COORD_WORK_STEP) return STALL_TIMEOUTS * ns_of(s->failure.timeout_s);
    int64_t derived = PHASE_TIMEOUTS * ns_of(s->failure.timeout_s);
    int64_t least = spec_stall_ns(s, COORD_WORK_STEP);
    return derived > least ? derived : least;
}

uint32_t spec_pipelines_max(const struct spec *s) {
    uint32_t most = IR_WORKERS_MAX / s->parallel.stages;
    if (most > IR_PIPELINES_MAX) most = IR_PIPELINES_MAX;
    if (s->parallel.pipelines_max != 0) return s->parallel.pipelines_max;
    return s->parallel.pipelines * 2 < most ? s->parallel.pipelines * 2 : most;
}

const char *spec_plan_profile(const struct spec *s) {
    bool own = s->parallel.profile[0] != 0 || s->run.engine != SPEC_ENGINE_EMULATED;
    return own ? s->parallel.profile : s->emulated.profile;
}

void spec_coord_config(const struct spec *s, struct coord_config *out) {
    int64_t timeout_ns = ns_of(s->failure.timeout_s);
    *out = (struct coord_config){.ranks = spec_capacity(s),
                                 .chunks = s->parallel.stages,
                                 .final_version = s->run.steps,
                                 .save_every = s->save.every,
                                 .saves_max = s->save.in_flight,
                                 .save_retries = s->save.retries,
                                 .save_pause_ns = SAVE_PAUSE_NS,
                                 .clip_norm = s->optimizer.clip_norm,
                                 .barrier = s->parallel.barrier,
                                 .start_ns = spec_stall_ns(s, COORD_WORK_COMPILE),
                                 .beat_ns = beat_ns(timeout_ns),
                                 .suspect_ns = timeout_ns / 2,
                                 .save_ns = spec_stall_ns(s, COORD_WORK_SAVE),
                                 .join_ns = spec_stall_ns(s, COORD_WORK_LOAD),
                                 .need_ns = ns_of(s->failure.wait_s),
                                 .idle_fences_max = IDLE_FENCES_MAX};
    for (int work = 0; work < COORD_WORK_COUNT; work++)
        out->stall_ns[work] = spec_stall_ns(s, (enum coord_work)work);
}
