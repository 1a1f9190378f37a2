/* What the coordinator notes, as the launcher counts and says it: steps, saves, who came and went, views. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/gradsum.h"
#include "run/launch_state.h"

static const char *verdict_name(enum coord_verdict verdict) {
    static const char *const names[] = {"undecided", "accept", "clip", "skip"};
    return names[verdict];
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

/* The sums of a skipped step lack what was not finite: they are no loss and no norm, and are told as NaN. */
static double loss_of(const struct launch *l, const struct coord_action *a) {
    if (a->verdict == COORD_SKIP) return NAN;
    return gradsum_loss((int64_t[GRADSUM_FOOTER_WORDS]){[GRADSUM_LOSS] = a->loss},
                        spec_contributions(&l->spec));
}

static double norm_of(const struct coord_action *a) { return a->verdict == COORD_SKIP ? NAN : a->norm; }

/* Each step counts once, also one that is done again; the first is told, the rest at the end. */
static void count_step(struct launch *l, const struct coord_action *a) {
    if (a->iteration < l->counted_step) return;
    l->counted_step = a->iteration + 1;
    l->report.tokens += spec_tokens(&l->spec);
    if (a->verdict != COORD_SKIP || l->report.steps_skipped++ > 0) return;
    json_i64(progress_begin(l->progress, "not_finite"), "step", (int64_t)a->iteration + 1);
    progress_end(
        l->progress,
        "warning: step %llu was skipped, as its loss or a gradient is not finite: the weights stay as "
        "they were",
        (unsigned long long)a->iteration + 1);
}

static void log_step(struct launch *l, const struct coord_action *a, int64_t now_ns) {
    struct json *j = progress_begin(l->progress, "step");
    json_i64(j, "step", (int64_t)a->iteration + 1);
    json_f64(j, "loss", loss_of(l, a));
    json_f64(j, "grad_norm", norm_of(a));
    json_text(j, "verdict", verdict_name(a->verdict));
    json_f64(j, "tokens_per_s", rate(l, now_ns));
    json_i64(j, "live", tell_live(l));
    progress_end(l->progress, NULL);
}

static void show_state(struct launch *l, const struct coord_action *a) {
    int64_t now = clock_now_ns();
    uint64_t done = a->iteration + 1, steps = l->spec.run.steps;
    double per_s = rate(l, now);
    double tokens_left = (double)(steps - done) * (double)spec_tokens(&l->spec);
    struct progress_state state = {.step = done,
                                   .steps = steps,
                                   .loss = loss_of(l, a),
                                   .grad_norm = norm_of(a),
                                   .tokens_per_s = per_s,
                                   .live = tell_live(l),
                                   .workers = most_workers(l),
                                   .has_durable = l->has_durable,
                                   .durable_step = l->report.last_durable_step,
                                   .durable_age_s = l->has_durable ? (double)(now - l->durable_ns) / 1e9 : 0,
                                   .eta_s = per_s > 0 ? tokens_left / per_s : 0};
    progress_state(l->progress, &state);
}

static void note_decided(struct launch *l, const struct coord_action *a) {
    int64_t now = clock_now_ns();
    l->report.loss_last = loss_of(l, a);
    if (l->counted_step == l->report.first_step) l->report.loss_first = l->report.loss_last;
    l->report.final_step = a->iteration + 1;
    l->relay.losses = 0;
    l->need_starts = 0;
    l->failure = (struct pawl_error){0}; /* survived */
    count_step(l, a);
    keep_time(l, a->iteration + 1, now);
    log_step(l, a, now);
    show_state(l, a);
    faults_at(l, FAULT_LAUNCH_DECIDED);
}

void tell_durable(struct launch *l, uint64_t step) {
    int64_t now = clock_now_ns(), decided = decided_at(l, step);
    if (l->has_durable && step <= l->report.last_durable_step) return; /* a new coordinator learned it */
    l->report.last_durable_step = step;
    l->report.saves++;
    l->has_durable = true;
    l->durable_ns = now;
    l->find_below = UINT64_MAX;
    if (decided > 0) l->save_ns = now - decided;
    rundir_note_durable(&l->dir, NULL);
    struct json *j = progress_begin(l->progress, "durable");
    json_i64(j, "step", (int64_t)step);
    if (l->saves_failing)
        progress_end(l->progress, "saving works again: step %llu is durable", (unsigned long long)step);
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
    snprintf(l->last_lost, sizeof l->last_lost, "worker %u: %s", rank, why);
    l->report.failures++;
    w->member = w->missed = false;
    if (l->outage.began_ns == 0) l->outage.began_ns = silent ? w->progress_ns : now;
    struct json *j = progress_begin(l->progress, "worker_lost");
    describe(l, rank, j, name, sizeof name);
    json_text(j, "why", why);
    json_i64(j, "live", tell_live(l));
    if (silent) json_f64(j, "detected_ms", (double)(now - w->progress_ns) / 1e6);
    if (!l->going) /* while all start nobody goes on yet */
        progress_end(l->progress, "%s lost at the start: %s", name, why);
    else
        progress_end(l->progress, "%s lost: %s; %u of %u workers go on", name, why, tell_live(l),
                     spec_ranks(&l->spec));
}

static void note_died(struct launch *l, const struct coord_action *a) {
    const struct launch_worker *w = &l->workers[a->rank];
    bool silent = !w->gone && w->process.pid > 0; /* declared dead while its process is there */
    if (w->unknown == 0) l->workers[a->rank].lost = true;
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

/* Once on the screen for as long as it lasts; the log has it with every plan. */
static void tell_instead(struct launch *l, const struct conduct_note *n, struct json *j) {
    bool instead = n->why != NULL && n->why[0] != 0, told = l->planned_instead;
    const char *name = pawl_policy_name(l->spec.parallel.schedule);
    l->planned_instead = instead;
    if (instead) json_text(j, "instead", n->why);
    if (instead && !told)
        progress_end(l->progress, "planned with recycle: schedule %s does not fit the memory now: %s", name,
                     n->why);
    else if (!instead && told)
        progress_end(l->progress, "planned with schedule %s again", name);
    else
        progress_end(l->progress, NULL);
}

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
    tell_instead(l, n, j);
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
        tell_durable(l, a->version);
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
