/* What the launcher counts and says about a run: one line an event, the same keys each time. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "model/gradsum.h"
#include "run/go.h"
#include "run/launch_state.h"

static const char *verdict_name(enum coord_verdict verdict) {
    static const char *const names[] = {"undecided", "accept", "clip", "skip"};
    return names[verdict];
}

uint32_t tell_live(const struct launch *l) {
    uint32_t count = 0;
    for (uint32_t r = 0; r < l->ranks; r++) count += l->workers[r].member;
    return count;
}

/* --- steps --- */

static double rate(const struct launch *l, int64_t now_ns) {
    int64_t ns = l->first_go_ns > 0 ? now_ns - l->first_go_ns : 0;
    return ns > 0 ? (double)l->report.tokens * 1e9 / (double)ns : 0;
}

/* What is meant by all: those of the start, or more where the run has grown. */
static uint32_t most_workers(const struct launch *l) {
    uint32_t live = tell_live(l), start = spec_ranks(&l->spec);
    return live > start ? live : start;
}

static void show_state(struct launch *l, const struct coord_action *a, double loss) {
    int64_t now = clock_now_ns();
    uint64_t done = a->iteration + 1, steps = l->spec.run.steps;
    double per_s = rate(l, now);
    double tokens_left = (double)(steps - done) * (double)spec_tokens(&l->spec);
    struct progress_state state = {.step = done,
                                   .steps = steps,
                                   .loss = loss,
                                   .grad_norm = a->norm,
                                   .tokens_per_s = per_s,
                                   .live = tell_live(l),
                                   .workers = most_workers(l),
                                   .has_durable = l->has_durable,
                                   .durable_step = l->report.last_durable_step,
                                   .durable_age_s = l->has_durable ? (double)(now - l->durable_ns) / 1e9 : 0,
                                   .eta_s = per_s > 0 ? tokens_left / per_s : 0};
    progress_state(l->progress, &state);
}

/* When each step of this call was decided last, for what a return to an older one costs. */
static void keep_time(struct launch *l, uint64_t step, int64_t now_ns) {
    if (step < l->report.first_step) return;
    size_t index = (size_t)(step - l->report.first_step);
    if (index >= l->decided_capacity) {
        size_t more = 2 * index + 64;
        int64_t *grown = realloc(l->decided_ns, more * sizeof *grown);
        if (grown == NULL) return; /* costs a number in a line */
        memset(grown + l->decided_capacity, 0, (more - l->decided_capacity) * sizeof *grown);
        l->decided_ns = grown;
        l->decided_capacity = more;
    }
    if (index > 0 && l->decided_ns[index - 1] > 0) l->iteration_ns = now_ns - l->decided_ns[index - 1];
    l->decided_ns[index] = now_ns;
}

static int64_t decided_at(const struct launch *l, uint64_t step) {
    size_t index = (size_t)(step - l->report.first_step);
    return step >= l->report.first_step && index < l->decided_capacity ? l->decided_ns[index] : 0;
}

static void note_decided(struct launch *l, const struct coord_action *a) {
    uint64_t contributions = spec_contributions(&l->spec);
    double loss = gradsum_loss((int64_t[GRADSUM_FOOTER_WORDS]){[GRADSUM_LOSS] = a->loss}, contributions);
    int64_t now = clock_now_ns();
    if (isnan(l->report.loss_first)) l->report.loss_first = loss;
    l->report.loss_last = loss;
    l->report.final_step = a->iteration + 1;
    l->relay.losses = 0;
    l->need_starts = 0;
    l->failure = (struct pawl_error){0}; /* survived */
    if (a->iteration >= l->counted_step) {
        l->counted_step = a->iteration + 1;
        l->report.tokens += spec_tokens(&l->spec);
    }
    keep_time(l, a->iteration + 1, now);
    struct json *j = progress_begin(l->progress, "step");
    json_i64(j, "step", (int64_t)a->iteration + 1);
    json_f64(j, "loss", loss);
    json_f64(j, "grad_norm", a->norm);
    json_text(j, "verdict", verdict_name(a->verdict));
    json_f64(j, "tokens_per_s", rate(l, now));
    json_i64(j, "live", tell_live(l));
    progress_end(l->progress, NULL);
    show_state(l, a, loss);
    faults_at(l, FAULT_LAUNCH_DECIDED);
}

static void note_durable(struct launch *l, const struct coord_action *a) {
    int64_t now = clock_now_ns(), decided = decided_at(l, a->version);
    if (l->has_durable && a->version <= l->report.last_durable_step)
        return; /* a new coordinator learned it */
    l->report.last_durable_step = a->version;
    l->report.saves++;
    l->has_durable = true;
    l->durable_ns = now;
    l->find_below = UINT64_MAX;
    if (decided > 0) l->save_ns = now - decided;
    rundir_note_durable(&l->dir, NULL);
    struct json *j = progress_begin(l->progress, "durable");
    json_i64(j, "step", (int64_t)a->version);
    if (l->saves_failing)
        progress_end(l->progress, "saving works again: step %llu is durable", (unsigned long long)a->version);
    else
        progress_end(l->progress, NULL);
    l->saves_failing = false;
    stop_measured(l);
    faults_at(l, FAULT_LAUNCH_DURABLE);
}

/* --- who is there --- */

static void describe(const struct launch *l, uint32_t rank, struct json *j, char *out, size_t size) {
    const struct launch_worker *w = &l->workers[rank];
    json_i64(j, "rank", rank);
    if (w->stage == LAUNCH_NONE) {
        snprintf(out, size, "worker %u", rank);
        return;
    }
    json_i64(j, "pipeline", w->pipeline);
    json_i64(j, "stage", w->stage);
    snprintf(out, size, "worker %u (pipeline %u, stage %u)", rank, w->pipeline, w->stage);
}

static void tell_lost(struct launch *l, uint32_t rank, const char *why, bool silent) {
    struct launch_worker *w = &l->workers[rank];
    int64_t now = clock_now_ns();
    char name[64];
    l->report.failures++;
    w->member = w->missed = false;
    if (l->outage.began_ns == 0) l->outage.began_ns = silent ? w->progress_ns : now;
    struct json *j = progress_begin(l->progress, "worker_lost");
    describe(l, rank, j, name, sizeof name);
    json_text(j, "why", why);
    json_i64(j, "live", tell_live(l));
    if (silent) json_f64(j, "detected_ms", (double)(now - w->progress_ns) / 1e6);
    progress_end(l->progress, "%s lost: %s; %u of %u workers go on", name, why, tell_live(l),
                 spec_ranks(&l->spec));
}

static void note_died(struct launch *l, const struct coord_action *a) {
    const struct launch_worker *w = &l->workers[a->rank];
    bool silent = !w->gone && w->process.pid > 0; /* declared dead while its process is there */
    tell_lost(l, a->rank, a->why != NULL && a->why[0] != 0 ? a->why : "no reason known", silent);
}

void tell_missed(struct launch *l) {
    for (uint32_t r = 0; r < l->ranks; r++)
        if (l->workers[r].missed) tell_lost(l, r, "its process ended together with the coordinator's", false);
}

static void note_joined(struct launch *l, uint32_t rank) {
    l->report.joins++;
    if (l->fence == LAUNCH_UNDO) l->fence = LAUNCH_CHANGE; /* it took the opportunity */
    struct json *j = progress_begin(l->progress, "joined");
    json_i64(j, "rank", rank);
    progress_end(l->progress, "worker %u has joined", rank);
}

static void note_left(struct launch *l, uint32_t rank) {
    struct launch_worker *w = &l->workers[rank];
    char name[64];
    l->report.leaves++;
    w->member = w->missed = false;
    w->left = true;
    struct json *j = progress_begin(l->progress, "left");
    describe(l, rank, j, name, sizeof name);
    json_i64(j, "live", tell_live(l));
    progress_end(l->progress, "%s has left, without loss; %u workers go on", name, tell_live(l));
}

static double lost_seconds(const struct launch *l, uint64_t from, uint64_t to) {
    int64_t end = decided_at(l, from), begin = to > l->report.first_step ? decided_at(l, to) : l->first_go_ns;
    if (begin < l->since_ns) begin = l->since_ns; /* what came before the last return is not lost twice */
    return end > begin && begin > 0 ? (double)(end - begin) / 1e9 : 0;
}

/* Everybody went back: not told of the first start, where everybody loads, too. */
static void note_restored(struct launch *l, const struct coord_action *a) {
    if (!l->going) return;
    uint64_t lost = a->from > a->version ? a->from - a->version : 0;
    double seconds = lost_seconds(l, a->from, a->version);
    l->report.restores++;
    l->report.lost_iterations += lost;
    l->report.lost_seconds += seconds;
    l->report.iterations_redone += lost;
    l->report.final_step = a->version;
    if (l->report.last_durable_step > a->version) l->report.last_durable_step = a->version;
    struct json *j = progress_begin(l->progress, "restored");
    json_i64(j, "step", (int64_t)a->version);
    json_i64(j, "lost_iterations", (int64_t)lost);
    json_f64(j, "lost_seconds", seconds);
    progress_end(
        l->progress,
        "a stage had lost every replica: restored step %llu: %llu iteration%s (%.1f s of work) are done "
        "again",
        (unsigned long long)a->version, (unsigned long long)lost, lost == 1 ? "" : "s", seconds);
}

/* --- views --- */

static void note_plan(struct launch *l, const struct conduct_note *n) {
    if (l->fence == LAUNCH_UNDO) return;
    struct json *j = progress_begin(l->progress, "plan");
    json_i64(j, "view", (int64_t)n->view);
    json_i64(j, "live", n->live);
    json_i64(j, "spares", n->spares);
    json_i64(j, "moves", n->moves);
    json_f64(j, "period", n->period);
    json_f64(j, "period_s", n->period_s);
    json_f64(j, "planning_ms", n->planning_ms);
    json_bool(j, "ahead", n->ahead);
    progress_end(l->progress, NULL);
}

static void note_fence(struct launch *l, const struct conduct_note *n) {
    const char *why = n->why != NULL ? n->why : "";
    bool undone = strcmp(why, "undo") == 0 || strcmp(why, "redo") == 0;
    if (undone) l->report.iterations_undone++;
    if (strcmp(why, "better plan") == 0) l->report.replans++;
    if (strcmp(why, "nobody got on") == 0) witness_look(l, "nobody makes progress");
    l->fence = undone ? LAUNCH_UNDO : strcmp(why, "a worker died") == 0 ? LAUNCH_DEATH : LAUNCH_CHANGE;
    if (undone) return; /* the GO tells it: a clipped run has many */
    struct json *j = progress_begin(l->progress, "fence");
    json_i64(j, "view", (int64_t)n->view);
    json_text(j, "why", why);
    progress_end(l->progress, NULL);
}

/* What a step that was undone had begun is no failure's doing. */
static void note_salvage(struct launch *l, const struct conduct_note *n) {
    if (l->fence == LAUNCH_UNDO) return;
    l->report.contributions_kept += n->kept;
    l->report.contributions_redone += n->redone;
    if (n->redone > 0 && l->fence == LAUNCH_DEATH) l->report.iterations_redone++;
    struct json *j = progress_begin(l->progress, "salvage");
    json_i64(j, "kept", (int64_t)n->kept);
    json_i64(j, "redone", (int64_t)n->redone);
    if (n->why != NULL && n->why[0] != 0) json_text(j, "refused", n->why);
    progress_end(l->progress, NULL);
}

static void note_late(struct launch *l, const struct coord_action *a) {
    char why[128];
    snprintf(why, sizeof why, "save of step %llu: its disk has not done its part within %.3g s",
             (unsigned long long)a->version, (double)spec_stall_ns(&l->spec, COORD_WORK_SAVE) / 1e9);
    struct json *j = progress_begin(l->progress, "save_failed");
    json_i64(j, "rank", a->rank);
    json_i64(j, "step", (int64_t)a->version);
    json_text(j, "error", why);
    tell_save_failed(l, a->rank, PAWL_IO, why);
}

static void note_action(struct launch *l, const struct coord_action *a) {
    switch (a->kind) {
    case COORD_DECIDED:
        note_decided(l, a);
        break;
    case COORD_DIED:
        note_died(l, a);
        break;
    case COORD_JOINED:
        note_joined(l, a->rank);
        break;
    case COORD_LEFT:
        note_left(l, a->rank);
        break;
    case COORD_RESTORED:
        note_restored(l, a);
        break;
    case COORD_DURABLE_AT:
        note_durable(l, a);
        break;
    case COORD_LATE:
        note_late(l, a);
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

void tell_note(struct launch *l, const struct conduct_note *n) {
    if (n->action.rank >= l->ranks && n->action.rank != LAUNCH_NONE) return;
    switch (n->kind) {
    case CONDUCT_NOTE_ACTION:
        note_action(l, &n->action);
        break;
    case CONDUCT_NOTE_PLAN:
        note_plan(l, n);
        break;
    case CONDUCT_NOTE_SALVAGE:
        note_salvage(l, n);
        break;
    case CONDUCT_NOTE_FENCE:
        note_fence(l, n);
        break;
    case CONDUCT_NOTE_KNOWN: /* the relay's */
        break;
    }
}

/* Everybody's role by a GO. Without memory for it the roles are not known, and not said. */
static void learn_roles(struct launch *l, const struct message *m) {
    struct go go;
    for (uint32_t r = 0; r < l->ranks; r++) l->workers[r].pipeline = l->workers[r].stage = LAUNCH_NONE;
    if (go_decode(m->data, m->data_bytes, &go, NULL) == PAWL_OK && go.ranks == l->ranks)
        for (uint32_t role = 0; role < go.plan->pipelines * go.plan->stages; role++) {
            uint32_t rank = go.rank_of_role[role];
            if (rank >= l->ranks) continue;
            l->workers[rank].pipeline = role / go.plan->stages;
            l->workers[rank].stage = role % go.plan->stages;
        }
    go_close(&go);
}

static void outage_goes(struct launch *l) {
    struct launch_outage *o = &l->outage;
    if (o->began_ns == 0) return;
    if (o->progress == NULL) o->progress = calloc(l->ranks, sizeof *o->progress);
    for (uint32_t r = 0; r < l->ranks && o->progress != NULL; r++) o->progress[r] = l->workers[r].progress;
    o->go_ns = clock_now_ns();
}

static void passed_go(struct launch *l, const struct message *m, const uint32_t *ranks, uint32_t count) {
    for (uint32_t r = 0; r < l->ranks; r++) l->workers[r].member = false;
    for (uint32_t i = 0; i < count; i++)
        if (ranks[i] < l->ranks) l->workers[ranks[i]].member = !l->workers[ranks[i]].gone;
    learn_roles(l, m);
    if (l->first_go_ns == 0) l->first_go_ns = clock_now_ns();
    if (!l->going || l->restoring) l->since_ns = clock_now_ns();
    l->going = true;
    l->restoring = false;
    l->needed = 0;
    outage_goes(l);
    struct json *j = progress_begin(l->progress, "go");
    json_i64(j, "view", (int64_t)m->view);
    json_i64(j, "live", tell_live(l));
    if (l->fence == LAUNCH_UNDO) json_bool(j, "undo", true);
    progress_end(l->progress, NULL);
}

static void passed_prepare(struct launch *l, const struct message *m) {
    struct json *j = progress_begin(l->progress, "prepare");
    json_i64(j, "rank", m->rank);
    json_i64(j, "from", m->peer);
    json_i64(j, "chunk", m->chunk);
    json_i64(j, "step", (int64_t)m->version);
    progress_end(l->progress, NULL);
}

void tell_passed(struct launch *l, const struct message *m, const uint32_t *ranks, uint32_t count) {
    if (m->kind == MESSAGE_GO) passed_go(l, m, ranks, count);
    if (m->kind == MESSAGE_PREPARE) passed_prepare(l, m);
    for (uint32_t i = 0; m->kind == MESSAGE_FINISH && i < count; i++)
        if (ranks[i] < l->ranks) l->workers[ranks[i]].finishing = true;
}

void tell_progress(struct launch *l, uint32_t rank) {
    struct launch_outage *o = &l->outage;
    const struct launch_worker *w = &l->workers[rank];
    if (o->go_ns == 0 || !w->member || o->progress == NULL || w->progress == o->progress[rank]) return;
    int64_t now = clock_now_ns();
    struct json *j = progress_begin(l->progress, "resumed");
    json_f64(j, "go_ms", (double)(o->go_ns - o->began_ns) / 1e6);
    json_f64(j, "progress_ms", (double)(now - o->began_ns) / 1e6);
    progress_end(l->progress, NULL);
    o->began_ns = o->go_ns = 0;
}

/* --- processes --- */

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
