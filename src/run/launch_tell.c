/* What the launcher says of its own: start, end, processes. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "run/launch_state.h"

uint32_t tell_live(const struct launch *l) {
    uint32_t count = 0;
    for (uint32_t r = 0; r < l->ranks; r++) count += l->workers[r].member;
    return count;
}

void tell_exit(struct launch *l, uint32_t rank, int status) {
    struct json *j = progress_begin(l->progress, "worker_exit");
    json_i64(j, "rank", rank);
    if (status != -1)
        json_i64(j, WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    progress_end(l->progress, NULL);
}

void tell_leaving(struct launch *l, uint32_t rank, int status) {
    if (l->progress == NULL || status == -1 || !WIFSIGNALED(status) || WTERMSIG(status) == SIGKILL) return;
    struct json *j = progress_begin(l->progress, "worker_crashed");
    json_i64(j, "rank", rank);
    json_i64(j, "signal", WTERMSIG(status));
    progress_end(l->progress, "worker %u crashed while it left (%s); what is durable is not touched by that",
                 rank, strsignal(WTERMSIG(status)));
}

void tell_start(struct launch *l) {
    const struct spec *s = &l->spec;
    uint32_t workers = spec_ranks(s);
    struct json *j = progress_begin(l->progress, "start");
    json_i64(j, "workers", workers);
    json_i64(j, "places", l->ranks);
    json_i64(j, "steps", (int64_t)s->run.steps);
    if (l->resumed)
        json_i64(j, "resumed_from", (int64_t)l->resume_step);
    else
        json_null(j, "resumed_from");
    if (l->resumed)
        progress_end(l->progress, "resuming from step %llu of %llu: %u pipelines x %u stages, %u workers",
                     (unsigned long long)l->resume_step, (unsigned long long)s->run.steps,
                     s->parallel.pipelines, s->parallel.stages, workers);
    else
        progress_end(l->progress, "training %llu steps: %u pipelines x %u stages, %u workers, run folder %s",
                     (unsigned long long)s->run.steps, s->parallel.pipelines, s->parallel.stages, workers,
                     s->run.dir);
}

void tell_nothing(struct launch *l) {
    uint64_t steps = l->spec.run.steps;
    struct json *j = progress_begin(l->progress, "nothing_to_do");
    json_u64(j, "step", l->resume_step);
    json_u64(j, "steps", steps);
    progress_end(l->progress,
                 "nothing was done: the run is at step %llu already, and %llu step%s all that %s asked for",
                 (unsigned long long)l->resume_step, (unsigned long long)steps, steps == 1 ? " is" : "s are",
                 steps == 1 ? "is" : "are");
}

static void tell_skipped(struct launch *l) {
    uint64_t skipped = l->report.steps_skipped;
    if (skipped == 0) return;
    json_u64(progress_begin(l->progress, "steps_skipped"), "count", skipped);
    progress_end(l->progress, "warning: %llu step%s skipped, as the loss or a gradient was not finite",
                 (unsigned long long)skipped, skipped == 1 ? " was" : "s were");
}

void tell_after(struct launch *l, bool fine) {
    struct pawl_error why;
    tell_skipped(l);
    if (spec_identity_check(&l->spec, (const char *)l->dir.identity.data, l->dir.identity.size, &why) ==
        PAWL_FOREIGN) {
        json_text(progress_begin(l->progress, "data_changed"), "error", why.text);
        progress_end(l->progress,
                     "the training data changed during the run: the weights are not those of either data");
    }
    if (!fine || l->report.final_step >= l->spec.run.steps) return;
    json_i64(progress_begin(l->progress, "stopped"), "step", (int64_t)l->report.final_step);
    progress_end(l->progress, "stopped at step %llu of %llu, which is durable; the same command goes on",
                 (unsigned long long)l->report.final_step, (unsigned long long)l->spec.run.steps);
}

void tell_end(struct launch *l, const struct pawl_error *e) {
    struct json *j = progress_begin(l->progress, e == NULL ? "end" : "failed");
    json_i64(j, "step", (int64_t)l->report.final_step);
    json_i64(j, "durable", (int64_t)l->report.last_durable_step);
    if (e != NULL) json_text(j, "error", e->text);
    progress_end(l->progress, NULL);
}
