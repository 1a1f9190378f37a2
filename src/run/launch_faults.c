/* Fault injection in the launcher: which faults there are, and what those do that strike here. */
#include <signal.h>

#include "run/launch_state.h"

pawl_code faults_open(struct launch *l, struct pawl_error *e) {
    struct inject_limits limits = {.ranks = l->ranks,
                                   .stages = l->spec.parallel.stages,
                                   .pipelines = l->spec.parallel.pipelines,
                                   .steps = l->spec.run.steps};
    return inject_set_open(l->options->injects, l->options->inject_count, &limits, &l->injects, e);
}

static void kill_all(void *context, const char *text) {
    struct launch *l = context;
    progress_begin(l->progress, "inject");
    progress_end(l->progress, "fault injection %s: every process ends now, as in a power cut", text);
    for (uint32_t r = 0; r < l->ranks; r++) fleet_signal(&l->workers[r].process, SIGKILL);
    fleet_signal(&l->relay.process, SIGKILL);
}

static void join(void *context, const char *text) {
    struct launch *l = context;
    int64_t hold_ns;
    struct pawl_error e;
    uint32_t rank = places_free(l, INT64_MAX, &hold_ns);
    bool full = rank == LAUNCH_NONE;
    pawl_code code = full ? PAWL_BUSY : fleet_start_worker(l, rank, &e);
    json_text(progress_begin(l->progress, "inject"), "fault", text);
    if (full)
        progress_end(l->progress, "fault injection %s: there is no empty place", text);
    else if (code != PAWL_OK)
        progress_end(l->progress, "fault injection %s: %s", text, e.text);
    else
        progress_end(l->progress, "fault injection %s: worker %u is started", text, rank);
}

void faults_at(struct launch *l, enum fault_point point) {
    struct inject_launch does = {
        .context = l, .kill_all = kill_all, .join = join, .run_dir = l->spec.run.dir};
    inject_launch(&l->injects, point, l->report.final_step, &does);
}

/* A test that hoped for a fault and got none must not pass for one that survived it. */
void faults_tell_missed(struct launch *l) {
    if (inject_set_read(&l->injects, l->spec.run.dir, NULL) != PAWL_OK) return;
    for (uint32_t i = 0; i < l->injects.count; i++) {
        const struct inject *f = &l->injects.items[i];
        if (f->fired) continue;
        json_text(progress_begin(l->progress, "inject_missed"), "fault", f->text);
        progress_end(l->progress, "fault injection %s never struck: whom it was for did not pass that point",
                     f->text);
    }
}
