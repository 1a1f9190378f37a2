/* Implementation of run/launch.h: one call of pawl_train. */
#include "run/launch.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "run/launch_state.h"
#include "run/persist.h"
#include "run/report.h"

/* Deadlines derived from the one timeout T of the spec: silence T is death; a computation, a load or a save
 * may take longer, as long as the process beats; a peer that cannot be reached is given half of T. */
#define STALL_TIMEOUTS 12
#define START_TIMEOUTS 60

/* How long a killed worker of an earlier launcher may take to be gone: 253 ms were measured for 4 GiB of
 * small pages. */
#define LEAVE_NS 30000000000

/* An undecided view is fenced this often without any progress before the run gives up. */
#define IDLE_FENCES_MAX 3

static struct coord_config coord_config_of(const struct launch *l) {
    const struct spec *s = &l->spec;
    int64_t timeout_ns = (int64_t)(s->failure.timeout_s * 1e9);
    return (struct coord_config){.pipelines = s->parallel.pipelines,
                                 .stages = s->parallel.stages,
                                 .first_version = l->resumed ? l->resume_step : 0,
                                 .final_version = s->run.steps,
                                 .save_every = s->save.every,
                                 .saves_max = s->save.in_flight,
                                 .save_retries = s->save.retries,
                                 .clip_norm = s->optimizer.clip_norm,
                                 .start_ns = START_TIMEOUTS * timeout_ns,
                                 .beat_ns = timeout_ns,
                                 .stall_ns = STALL_TIMEOUTS * timeout_ns,
                                 .suspect_ns = timeout_ns / 2,
                                 .idle_fences_max = IDLE_FENCES_MAX};
}

static void say_skipped(struct launch *l, const struct ckpt_step *s) {
    struct json *j = progress_begin(l->progress, "unfinished");
    json_i64(j, "step", (int64_t)s->step);
    json_text(j, "missing", s->missing);
    progress_end(l->progress, "skipped the unfinished save of step %llu: %s", (unsigned long long)s->step,
                 s->missing);
}

static void say_problems(struct launch *l, const struct ckpt_set *set) {
    const char *problem;
    l->problem[0] = 0;
    for (uint32_t i = 0; (problem = ckpt_set_problem(set, i)) != NULL; i++) {
        if (i == 0) snprintf(l->problem, sizeof l->problem, " (first damage: %.400s)", problem);
        json_text(progress_begin(l->progress, "damaged"), "problem", problem);
        progress_end(l->progress, "damaged: %s", problem);
    }
}

/* A worker that was killed holds its store's lock until its memory is torn down, which takes as long as the
 * kernel likes. The run folder's lock is ours, so nobody else can be meant: wait. */
static pawl_code open_left_store(const char *path, struct store **out, struct pawl_error *e) {
    for (int64_t end = clock_now_ns() + LEAVE_NS;; usleep(1000)) {
        pawl_code code = store_open(path, STORE_PLAIN, false, out, NULL, e);
        if (code != PAWL_BUSY || clock_now_ns() > end) return code;
    }
}

/* What is built on must survive a power cut, also in the store of a rank that does not get to open it. */
static pawl_code settle(const char *path, struct pawl_error *e) {
    struct store *s = NULL;
    pawl_code code = open_left_store(path, &s, e);
    if (code == PAWL_OK) code = ckpt_settle(s, e);
    store_close(s);
    return code;
}

/* Newest complete step strictly below `below`; sets l->resumed and where from. */
static pawl_code find_resume(struct launch *l, uint64_t below, struct pawl_error *e) {
    struct store **stores = NULL;
    uint32_t count = 0;
    struct ckpt_set *set = NULL;
    l->resumed = false;
    pawl_code code = rundir_open_stores(&l->spec, &stores, &count, e);
    for (uint32_t i = 0; i < count && code == PAWL_OK; i++) code = settle(store_path(stores[i]), e);
    if (code == PAWL_OK && count > 0) code = ckpt_set_open(stores, count, l->dir.run_id, &set, e);
    if (code == PAWL_OK && set != NULL) {
        say_problems(l, set);
        for (uint32_t i = 0; i < ckpt_set_count(set) && !l->resumed; i++) {
            const struct ckpt_step *s = ckpt_set_at(set, i);
            if (s->step >= below) continue;
            if (!s->complete) {
                say_skipped(l, s);
                continue;
            }
            l->resumed = true;
            l->resume_step = s->step;
            l->resume_incarnation = s->incarnation;
        }
    }
    ckpt_set_close(set);
    rundir_close_stores(stores, count);
    if (code != PAWL_OK || l->resumed || !l->dir.had_durable || l->options->from_scratch) return code;
    return error_set(
        e, PAWL_CORRUPT, 0,
        "%s had durable steps, but none can be read now%s: bring them back, or start again from step 0 with "
        "--from-scratch",
        l->spec.run.dir, l->problem);
}

/* Why an incarnation ended without finishing, with the cause that lies behind it. */
static pawl_code say_end(const struct launch *l, enum conduct_end end, struct pawl_error *e) {
    const struct pawl_error *why = conduct_error(l->conduct);
    if (end == CONDUCT_RUNNING)
        return l->has_durable
                   ? error_set(e, PAWL_USER, 0, "ended by a second signal; the newest durable step is %llu",
                               (unsigned long long)l->report.last_durable_step)
                   : error_set(e, PAWL_USER, 0, "ended by a second signal; nothing is durable yet");
    if (why->code == PAWL_IO && l->saves_failing)
        return error_set(e, l->save_failure.code, 0, "%s: %s", why->text, l->save_failure.text);
    return error_set(e, why->code, 0, "%s", why->text);
}

/* Runs one incarnation to its end: finished, lost, or stopped. */
static pawl_code run_incarnation(struct launch *l, enum conduct_end *end, struct pawl_error *e) {
    struct coord_config config = coord_config_of(l);
    pawl_code code = rundir_begin(&l->dir, e);
    if (code == PAWL_OK) code = conduct_new(&l->spec, &config, tell_hooks(l), &l->conduct, e);
    if (code != PAWL_OK) return code;
    l->first_go_ns = 0;
    l->failure = (struct pawl_error){0};
    tell_start(l);
    code = fleet_start(l, e);
    if (code == PAWL_OK) code = fleet_run(l, e);
    *end = conduct_state(l->conduct);
    fleet_end(l, code == PAWL_OK && *end == CONDUCT_FINISHED);
    if (l->first_go_ns > 0) l->train_ns += clock_now_ns() - l->first_go_ns;
    l->report.final_step = coord_final(conduct_coord(l->conduct));
    l->report.iterations_redone += conduct_redone(l->conduct);
    l->report.iterations_undone += conduct_undone(l->conduct);
    if (code == PAWL_OK && *end != CONDUCT_FINISHED) code = say_end(l, *end, e);
    conduct_free(l->conduct);
    l->conduct = NULL;
    return code;
}

/* Lost and damaged: what to do about the end of an incarnation. True: again, from what find_resume found. */
static bool restart(struct launch *l, enum conduct_end end, pawl_code code, uint64_t *below, uint32_t *tries,
                    uint64_t durable_before) {
    if (l->signals > 0 || *tries >= LAUNCH_RESTARTS_MAX) return false;
    if (code == PAWL_CORRUPT && end == CONDUCT_STOPPED && l->resumed) {
        *below = l->resume_step; /* walk back to an older one */
        progress_begin(l->progress, "walk_back");
        progress_end(l->progress, "step %llu cannot be restored; trying an older one",
                     (unsigned long long)l->resume_step);
        return true;
    }
    if (end != CONDUCT_LOST) return false;
    *tries = l->report.last_durable_step > durable_before ? 1 : *tries + 1;
    *below = UINT64_MAX;
    l->report.restarts++;
    progress_begin(l->progress, "restart");
    progress_end(l->progress,
                 "a stage has lost every replica: everybody goes back to the newest durable step");
    return true;
}

static pawl_code train(struct launch *l, struct pawl_error *e) {
    uint64_t below = UINT64_MAX;
    uint32_t tries = 0;
    for (bool first = true;; first = false) {
        pawl_code code = find_resume(l, below, e);
        if (code != PAWL_OK) return code;
        uint64_t start = l->resumed ? l->resume_step : 0, durable_before = start;
        uint64_t known = first ? rundir_last_step(&l->dir) : l->report.final_step;
        if (known > start) l->report.iterations_redone += known - start;
        if (first) l->report.first_step = l->counted_step = start;
        if (l->resumed) {
            l->report.last_durable_step = start;
            l->has_durable = true;
            l->durable_ns = clock_now_ns();
        }
        if (first && l->resumed) l->report.resumed = true, l->report.resumed_from = start;
        l->report.final_step = start;
        if (start >= l->spec.run.steps) return PAWL_OK;
        enum conduct_end end = CONDUCT_RUNNING;
        code = run_incarnation(l, &end, e);
        if (code == PAWL_OK || !restart(l, end, code, &below, &tries, durable_before)) return code;
    }
}

static pawl_code digest(struct launch *l, struct pawl_error *e) {
    struct store **stores = NULL;
    uint32_t count = 0;
    struct ckpt_set *set = NULL;
    struct gpt_config gpt = spec_gpt(&l->spec);
    pawl_code code = rundir_open_stores(&l->spec, &stores, &count, e);
    if (code == PAWL_OK) code = ckpt_set_open(stores, count, l->dir.run_id, &set, e);
    if (code == PAWL_OK) {
        uint32_t index = UINT32_MAX;
        for (uint32_t i = 0; i < ckpt_set_count(set) && index == UINT32_MAX; i++)
            if (ckpt_set_at(set, i)->complete && ckpt_set_at(set, i)->step == l->report.final_step) index = i;
        code = index == UINT32_MAX
                   ? error_set(e, PAWL_CORRUPT, 0,
                               "%s/store: the final step %llu was saved but is not complete there any more: "
                               "bring back "
                               "what was removed, or run again to go on from an older step",
                               l->spec.run.dir, (unsigned long long)l->report.final_step)
                   : persist_digest(set, index, &gpt, l->spec.save.export_dir, l->report.weights_sha256, e);
    }
    ckpt_set_close(set);
    rundir_close_stores(stores, count);
    return code;
}

static pawl_code read_injections(struct launch *l, struct pawl_error *e) {
    l->inject_count = l->options->inject_count;
    l->injects = calloc(l->inject_count + 1, sizeof *l->injects);
    l->inject_fired = calloc(l->inject_count + 1, sizeof *l->inject_fired);
    if (l->injects == NULL || l->inject_fired == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for injections");
    for (uint32_t i = 0; i < l->inject_count; i++) {
        pawl_code code = inject_parse(l->options->injects[i], l->ranks, l->spec.run.steps, &l->injects[i], e);
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

/* Now, not after hours of training. */
static pawl_code check_path(const char *option, const char *path, struct pawl_error *e) {
    if (path == NULL) return PAWL_OK;
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL)
        strcpy(folder, ".");
    else
        slash[slash == folder] = 0;
    if (path[0] == 0 || path[strlen(path) - 1] == '/')
        return error_set(e, PAWL_ARGUMENT, 0, "%s \"%s\": name a file", option, path);
    if (access(folder, W_OK | X_OK) != 0)
        return error_set(e, PAWL_ARGUMENT, errno, "%s %s: choose a folder that you may write to", option,
                         path);
    return PAWL_OK;
}

static pawl_code set_up(struct launch *l, struct pawl_error *e) {
    const struct pawl_train_options *o = l->options;
    pawl_code code = spec_load(o->spec_path, o->sets, o->set_count, &l->spec, e);
    if (code != PAWL_OK) return code;
    if (o->steps > 0) l->spec.run.steps = o->steps;
    l->ranks = spec_ranks(&l->spec);
    l->measured = calloc(l->ranks, sizeof *l->measured);
    if (l->measured == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u workers", l->ranks);
    code = check_path("--report", o->report_path, e);
    if (code == PAWL_OK) code = check_path("--profile-out", o->profile_path, e);
    if (code == PAWL_OK) code = read_injections(l, e);
    if (code == PAWL_OK) code = rundir_open(&l->dir, &l->spec, e);
    if (code != PAWL_OK) return code;
    for (uint32_t i = 0; i < l->inject_count; i++)
        l->inject_fired[i] = rundir_was_injected(&l->dir, l->injects[i].text);
    char log[SPEC_TEXT_MAX + 16];
    snprintf(log, sizeof log, "%s/log.jsonl", l->spec.run.dir);
    code = progress_open(log, o->log_path, o->quiet, &l->progress, e);
    return code == PAWL_OK ? fleet_init(l, e) : code;
}

static pawl_code write_reports(struct launch *l, struct pawl_error *e) {
    char path[SPEC_TEXT_MAX + 16];
    snprintf(path, sizeof path, "%s/report.json", l->spec.run.dir);
    pawl_code code = report_write(&l->report, path, e);
    if (code == PAWL_OK && l->options->report_path != NULL)
        code = report_write(&l->report, l->options->report_path, e);
    return code;
}

static void hand_over(struct launch *l, struct launch_measured *out) {
    const struct spec *s = &l->spec;
    *out = (struct launch_measured){
        .pipelines = s->parallel.pipelines, .stages = s->parallel.stages, .layers = s->model.layers};
    snprintf(out->name, sizeof out->name, "gpt %ux%u, context %u", s->model.layers, s->model.width,
             s->model.context);
    bool any = false;
    for (uint32_t r = 0; r < l->ranks; r++) any |= l->measured[r].iterations > 0;
    if (!any) return;
    out->reports = l->measured;
    l->measured = NULL;
}

pawl_code launch_train(const struct pawl_train_options *options, struct pawl_train_report *report,
                       struct launch_measured *measured, struct pawl_error *e) {
    struct launch l = {.options = options, .epoll_fd = -1, .signal_fd = -1};
    struct pawl_error cause = {0};
    int64_t begin = clock_now_ns();
    l.report.loss_first = l.report.loss_last = NAN;
    pawl_code code = set_up(&l, &cause);
    bool ready = code == PAWL_OK;
    if (ready) code = train(&l, &cause);
    if (code == PAWL_OK) code = digest(&l, &cause);
    if (ready) tell_after(&l, code == PAWL_OK);
    l.report.tokens_per_s = l.train_ns > 0 ? (double)l.report.tokens * 1e9 / (double)l.train_ns : 0;
    l.report.seconds = (double)(clock_now_ns() - begin) / 1e9;
    if (ready) {
        pawl_code written = write_reports(&l, code == PAWL_OK ? &cause : NULL);
        if (code == PAWL_OK) code = written;
        tell_end(&l, code == PAWL_OK ? NULL : &cause);
    }
    /* The first cause a worker named tells more than what followed from it. */
    if (code != PAWL_OK && l.failure.code != PAWL_OK && code != PAWL_CORRUPT)
        cause = l.failure, code = l.failure.code;
    if (code == PAWL_OK && measured != NULL) hand_over(&l, measured);
    fleet_close(&l);
    free(l.measured);
    progress_close(l.progress);
    rundir_close(&l.dir);
    free(l.injects);
    free(l.inject_fired);
    if (report != NULL) *report = l.report;
    if (code != PAWL_OK && e != NULL) *e = cause;
    return code;
}
