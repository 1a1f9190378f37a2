/* Implementation of run/launch_status.h. */
#include "run/launch_status.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

static const char *state_name(const struct launch_worker *w) {
    if (w->gone || w->lost) return "lost";
    if (w->left) return "left";
    if (w->leaving) return "leaving";
    if (!w->ready) return "starting";
    if (!w->member) return "ready";
    return w->stage == LAUNCH_NONE ? "spare" : "training";
}

static double age_s(int64_t then_ns, int64_t now_ns) { return (double)(now_ns - then_ns) / 1e9; }

static void put_worker(const struct launch *l, uint32_t rank, int64_t now, struct json *j) {
    const struct launch_worker *w = &l->workers[rank];
    json_object(j, NULL);
    json_i64(j, "rank", rank);
    json_i64(j, "pid", w->process.pid);
    json_text(j, "state", state_name(w));
    if (w->stage != LAUNCH_NONE) {
        json_i64(j, "pipeline", w->pipeline);
        json_i64(j, "stage", w->stage);
    }
    json_text(j, "phase", coord_work_name(w->work));
    json_bool(j, "busy", w->busy);
    json_u64(j, "progress", w->progress);
    json_f64(j, "progress_age_s", age_s(w->progress_ns, now));
    json_f64(j, "beat_age_s", age_s(w->beat_ns, now));
    json_end_object(j);
}

void status_json(const struct launch *l, struct bytes *out) {
    int64_t now = clock_now_ns();
    struct json j = json_begin(out);
    json_object(&j, NULL);
    json_text(&j, "run_dir", l->spec.run.dir);
    json_u64(&j, "step", l->report.final_step);
    json_u64(&j, "steps", l->spec.run.steps);
    if (l->has_durable) {
        json_u64(&j, "durable", l->report.last_durable_step);
        json_f64(&j, "durable_age_s", age_s(l->durable_ns, now));
    } else {
        json_null(&j, "durable");
    }
    json_u64(&j, "view", l->relay.view);
    json_bool(&j, "stopping", l->stopping);
    json_bool(&j, "waiting", l->filling);
    json_i64(&j, "places", l->ranks);
    json_i64(&j, "live", tell_live(l));
    json_i64(&j, "launcher_pid", getpid());
    json_i64(&j, "coordinator_pid", l->relay.process.pid);
    json_u64(&j, "failures", l->report.failures);
    json_u64(&j, "joins", l->report.joins);
    json_u64(&j, "leaves", l->report.leaves);
    json_u64(&j, "restores", l->report.restores);
    json_u64(&j, "coordinator_restarts", l->report.coordinator_restarts);
    json_array(&j, "workers");
    for (uint32_t r = 0; r < l->ranks; r++)
        if (l->workers[r].process.pid > 0) put_worker(l, r, now, &j);
    json_end_array(&j);
    json_end_object(&j);
    bytes_put_u8(out, '\n');
}

static void put_row(const struct launch *l, uint32_t rank, int64_t now, struct bytes *out) {
    const struct launch_worker *w = &l->workers[rank];
    char role[32] = "-";
    if (w->stage != LAUNCH_NONE) snprintf(role, sizeof role, "%u:%u", w->pipeline, w->stage);
    bytes_printf(out, "%4u  %7d  %-9s %-7s %-8s %-5s %9.1f s\n", rank, (int)w->process.pid, state_name(w),
                 role, coord_work_name(w->work), w->busy ? "busy" : "waits", age_s(w->progress_ns, now));
}

void status_text(const struct launch *l, struct bytes *out) {
    int64_t now = clock_now_ns();
    bytes_printf(out, "step %llu of %llu, ", (unsigned long long)l->report.final_step,
                 (unsigned long long)l->spec.run.steps);
    if (l->has_durable)
        bytes_printf(out, "durable %llu (%.1f s ago), ", (unsigned long long)l->report.last_durable_step,
                     age_s(l->durable_ns, now));
    else
        bytes_printf(out, "nothing durable, ");
    bytes_printf(out, "%u workers in %u places%s%s\n", tell_live(l), l->ranks,
                 l->filling ? ", waiting for workers: too few are left" : "", l->stopping ? ", ending" : "");
    bytes_printf(out, "rank      pid  state     role    phase    what   progress before\n");
    for (uint32_t r = 0; r < l->ranks; r++)
        if (l->workers[r].process.pid > 0) put_row(l, r, now, out);
}
