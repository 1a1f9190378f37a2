/* What the launcher counts and says about a run. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "model/gradsum.h"
#include "run/launch_state.h"

static const char *verdict_name(enum coord_verdict verdict) {
    static const char *const names[] = {"undecided", "accept", "clip", "skip"};
    return names[verdict];
}

static uint32_t live_count(const struct launch *l) {
    const bool *live = coord_live(conduct_coord(l->conduct));
    uint32_t count = 0;
    for (uint32_t r = 0; r < l->ranks; r++) count += live[r];
    return count;
}

static void end_by_injection(struct launch *l, uint32_t index) {
    l->inject_fired[index] = true;
    rundir_note_injected(&l->dir, l->injects[index].text, NULL);
    progress_begin(l->progress, "inject");
    progress_end(l->progress, "fault injection %s: every process ends now, as in a power cut",
                 l->injects[index].text);
    for (uint32_t r = 0; r < l->ranks; r++) fleet_kill(l, r);
    kill(getpid(), SIGKILL);
}

/* kill:all strikes when its number of steps is done. */
static void inject_at(struct launch *l, uint64_t steps_done) {
    for (uint32_t i = 0; i < l->inject_count; i++)
        if (l->injects[i].rank == INJECT_ALL && l->injects[i].step == steps_done && !l->inject_fired[i])
            end_by_injection(l, i);
}

static double rate(const struct launch *l, int64_t now_ns) {
    int64_t ns = l->train_ns + (l->first_go_ns > 0 ? now_ns - l->first_go_ns : 0);
    return ns > 0 ? (double)l->report.tokens * 1e9 / (double)ns : 0;
}

static void show_state(struct launch *l, const struct coord_action *a, double loss) {
    int64_t now = clock_now_ns();
    uint64_t done = a->iteration + 1, steps = l->spec.run.steps;
    double per_s = rate(l, now);
    double tokens_left = (double)(steps - done) * (double)spec_contributions(&l->spec) *
                         l->spec.parallel.batch * l->spec.model.context;
    struct progress_state state = {.step = done,
                                   .steps = steps,
                                   .loss = loss,
                                   .grad_norm = a->norm,
                                   .tokens_per_s = per_s,
                                   .live = live_count(l),
                                   .workers = l->ranks,
                                   .has_durable = l->has_durable,
                                   .durable_step = l->report.last_durable_step,
                                   .durable_age_s = l->has_durable ? (double)(now - l->durable_ns) / 1e9 : 0,
                                   .eta_s = per_s > 0 ? tokens_left / per_s : 0};
    progress_state(l->progress, &state);
}

static void note_decided(struct launch *l, const struct coord_action *a) {
    uint64_t contributions = spec_contributions(&l->spec);
    double loss = gradsum_loss((int64_t[GRADSUM_FOOTER_WORDS]){[GRADSUM_LOSS] = a->loss}, contributions);
    if (isnan(l->report.loss_first)) l->report.loss_first = loss;
    l->report.loss_last = loss;
    if (a->iteration >= l->counted_step) {
        l->counted_step = a->iteration + 1;
        l->report.tokens += contributions * l->spec.parallel.batch * l->spec.model.context;
    }
    struct json *j = progress_begin(l->progress, "step");
    json_i64(j, "step", (int64_t)a->iteration + 1);
    json_f64(j, "loss", loss);
    json_f64(j, "grad_norm", a->norm);
    json_text(j, "verdict", verdict_name(a->verdict));
    json_f64(j, "tokens_per_s", rate(l, clock_now_ns()));
    json_i64(j, "live", live_count(l));
    progress_end(l->progress, NULL);
    show_state(l, a, loss);
    inject_at(l, a->iteration + 1);
}

static void note_died(struct launch *l, const struct coord_action *a) {
    l->report.failures++;
    struct json *j = progress_begin(l->progress, "worker_lost");
    uint32_t stage = a->rank % l->spec.parallel.stages, pipeline = a->rank / l->spec.parallel.stages;
    json_i64(j, "rank", a->rank);
    json_i64(j, "pipeline", pipeline);
    json_i64(j, "stage", stage);
    json_text(j, "why", a->why != NULL ? a->why : "");
    json_i64(j, "live", live_count(l));
    progress_end(l->progress, "worker %u (pipeline %u, stage %u) lost: %s; %u of %u workers go on", a->rank,
                 pipeline, stage, a->why != NULL ? a->why : "no reason known", live_count(l), l->ranks);
}

static void note_durable(struct launch *l, const struct coord_action *a) {
    l->report.last_durable_step = a->version;
    l->report.saves++;
    l->has_durable = true;
    l->durable_ns = clock_now_ns();
    rundir_note_durable(&l->dir, NULL);
    struct json *j = progress_begin(l->progress, "durable");
    json_i64(j, "step", (int64_t)a->version);
    if (l->saves_failing)
        progress_end(l->progress, "saving works again: step %llu is durable", (unsigned long long)a->version);
    else
        progress_end(l->progress, NULL);
    l->saves_failing = false;
}

/* One GO a rank is sent; one line a view is told. */
static void note_go(struct launch *l, const struct coord_action *a) {
    if (l->first_go_ns == 0) {
        l->first_go_ns = clock_now_ns();
        l->told_view = 0;
        inject_at(l, a->version);
    }
    if (a->view == l->told_view) return;
    l->told_view = a->view;
    struct json *j = progress_begin(l->progress, "go");
    json_i64(j, "view", (int64_t)a->view);
    json_i64(j, "step", (int64_t)a->version);
    json_i64(j, "live", live_count(l));
    progress_end(l->progress, NULL);
}

static void note(void *context, const struct coord_action *a) {
    struct launch *l = context;
    switch (a->kind) {
    case COORD_DECIDED:
        note_decided(l, a);
        break;
    case COORD_DIED:
        note_died(l, a);
        break;
    case COORD_DURABLE_AT:
        note_durable(l, a);
        break;
    case COORD_GO:
        note_go(l, a);
        break;
    case COORD_SKIPPED:
        l->report.saves_skipped++;
        json_i64(progress_begin(l->progress, "save_skipped"), "step", (int64_t)a->version);
        progress_end(l->progress, NULL);
        break;
    default:
        break;
    }
}

static void heard_saved(struct launch *l, uint32_t rank, const struct message *m) {
    bool overtaken = m->code == PAWL_CANCELLED; /* by newer durable steps: nobody needs it */
    struct json *j = progress_begin(l->progress, m->code == PAWL_OK ? "saved"
                                                 : overtaken        ? "save_overtaken"
                                                                    : "save_failed");
    json_i64(j, "rank", rank);
    json_i64(j, "step", (int64_t)m->version);
    json_i64(j, "bytes", (int64_t)m->bytes);
    json_f64(j, "seconds", (double)m->write_ns / 1e9);
    if (m->code == PAWL_OK || overtaken) {
        progress_end(l->progress, NULL);
        return;
    }
    l->report.saves_failed++;
    json_text(j, "error", m->text);
    error_set(&l->save_failure, m->code, 0, "rank %u: %s", rank, m->text);
    if (l->saves_failing) {
        progress_end(l->progress, NULL);
        return;
    }
    l->saves_failing = true;
    if (l->has_durable)
        progress_end(l->progress,
                     "cannot save: rank %u: %s; training goes on, the newest durable step stays %llu", rank,
                     m->text, (unsigned long long)l->report.last_durable_step);
    else
        progress_end(l->progress, "cannot save: rank %u: %s; training goes on, nothing is durable yet", rank,
                     m->text);
}

static void heard(void *context, uint32_t rank, const struct message *m) {
    struct launch *l = context;
    if (m->kind == MESSAGE_SAVED) heard_saved(l, rank, m);
    if (m->kind == MESSAGE_MEASURED &&
        measure_decode(m->data, m->data_bytes, &l->measured[rank], NULL) != PAWL_OK)
        l->measured[rank] = (struct measure_report){0};
    if (m->kind == MESSAGE_READY && l->store_mode[0] == 0) {
        strncpy(l->store_mode, m->text, sizeof l->store_mode - 1);
        json_text(progress_begin(l->progress, "store"), "mode", m->text);
        progress_end(l->progress, "checkpoints: %s", m->text);
    }
    if (m->kind != MESSAGE_FAILED) return;
    if (l->failure.code == PAWL_OK) error_set(&l->failure, m->code, 0, "rank %u: %s", rank, m->text);
    struct json *j = progress_begin(l->progress, "worker_failed");
    json_i64(j, "rank", rank);
    json_text(j, "code", pawl_code_name(m->code));
    json_text(j, "error", m->text);
    progress_end(l->progress, "worker %u failed: %s", rank, m->text);
}

static void kill_rank(void *context, uint32_t rank, const char *why) {
    struct launch *l = context;
    json_i64(progress_begin(l->progress, "kill"), "rank", rank);
    progress_end(l->progress, "worker %u is ended: %s", rank, why != NULL ? why : "it was declared dead");
    fleet_kill(l, rank);
}

struct conduct_hooks tell_hooks(struct launch *l) {
    return (struct conduct_hooks){.context = l, .kill = kill_rank, .note = note, .heard = heard};
}

void tell_exit(struct launch *l, uint32_t rank, int status) {
    if (conduct_state(l->conduct) != CONDUCT_RUNNING) return;
    struct json *j = progress_begin(l->progress, "worker_exit");
    json_i64(j, "rank", rank);
    json_i64(j, WIFSIGNALED(status) ? "signal" : "status",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    progress_end(l->progress, NULL);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) return;
    /* Its armed injection, if any, is the reason: it must not fire again when the run is resumed. */
    uint64_t version = coord_final(conduct_coord(l->conduct));
    for (uint32_t i = 0; i < l->inject_count; i++) {
        if (l->injects[i].rank != rank || l->inject_fired[i] || l->injects[i].step > version + 2) continue;
        l->inject_fired[i] = true;
        rundir_note_injected(&l->dir, l->injects[i].text, NULL);
    }
}

void tell_leaving(struct launch *l, uint32_t rank, int status) {
    if (l->progress == NULL || !WIFSIGNALED(status) || WTERMSIG(status) == SIGKILL) return;
    struct json *j = progress_begin(l->progress, "worker_crashed");
    json_i64(j, "rank", rank);
    json_i64(j, "signal", WTERMSIG(status));
    progress_end(l->progress, "worker %u crashed while it left (%s); what is durable is not touched by that",
                 rank, strsignal(WTERMSIG(status)));
}

void tell_start(struct launch *l) {
    const struct spec *s = &l->spec;
    struct json *j = progress_begin(l->progress, "start");
    json_i64(j, "incarnation", (int64_t)l->dir.incarnation);
    json_i64(j, "workers", l->ranks);
    json_i64(j, "steps", (int64_t)s->run.steps);
    if (l->resumed)
        json_i64(j, "resumed_from", (int64_t)l->resume_step);
    else
        json_null(j, "resumed_from");
    if (l->resumed)
        progress_end(l->progress, "resuming from step %llu of %llu: %u pipelines x %u stages, %u workers",
                     (unsigned long long)l->resume_step, (unsigned long long)s->run.steps,
                     s->parallel.pipelines, s->parallel.stages, l->ranks);
    else
        progress_end(l->progress, "training %llu steps: %u pipelines x %u stages, %u workers, run folder %s",
                     (unsigned long long)s->run.steps, s->parallel.pipelines, s->parallel.stages, l->ranks,
                     s->run.dir);
}

void tell_after(struct launch *l, bool fine) {
    struct pawl_error why;
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
