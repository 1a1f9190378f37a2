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
#include "run/outputs.h"
#include "run/persist.h"
#include "run/report.h"

/* What a worker's process takes, at least: 17 MB each were measured of 32 emulated ones. */
#define WORKER_BYTES ((uint64_t)16 << 20)

/* Why it ended without finishing, with the cause that lies behind it. */
static pawl_code explain(const struct launch *l, struct pawl_error *e) {
    if (e->code == PAWL_IO && l->saves_failing) {
        struct pawl_error why = *e;
        return error_set(e, l->save_failure.code, 0, "%s: %s", why.text, l->save_failure.text);
    }
    return e->code;
}

static pawl_code train(struct launch *l, struct pawl_error *e) {
    pawl_code code = find_first(l, UINT64_MAX, e);
    if (code != PAWL_OK) return code;
    uint64_t start = l->resumed ? l->resume_step : 0, known = rundir_last_step(&l->dir);
    struct pawl_train_report *r = &l->report;
    r->first_step = r->final_step = l->counted_step = start;
    if (l->resumed) {
        r->resumed = true;
        r->resumed_from = r->last_durable_step = start;
        l->has_durable = true;
        l->durable_ns = clock_now_ns();
    }
    if (known > start) {
        r->iterations_redone += known - start;
        r->lost_iterations += known - start;
        r->lost_seconds += rundir_lost_seconds(&l->dir, start);
    }
    code = describe_settle(l, e);
    if (code != PAWL_OK) return code;
    if (start >= l->spec.run.steps) return tell_nothing(l), code;
    tell_start(l);
    code = fleet_run(l, e);
    witness_wait(l);
    fleet_end(l, l->relay.finished);
    if (code == PAWL_OK) code = find_settle(l, e);
    if (l->first_go_ns > 0) l->train_ns = clock_now_ns() - l->first_go_ns;
    return code == PAWL_OK ? code : explain(l, e);
}

static pawl_code digest(struct launch *l, struct pawl_error *e) {
    struct store **stores = NULL;
    uint32_t count = 0;
    struct ckpt_set *set = NULL;
    pawl_code code = rundir_open_stores(&l->spec, &stores, &count, e);
    if (code == PAWL_OK) code = ckpt_set_open(stores, count, l->dir.run_id, &set, e);
    if (code == PAWL_OK) {
        uint32_t index = UINT32_MAX;
        for (uint32_t i = 0; i < ckpt_set_count(set) && index == UINT32_MAX; i++)
            if (ckpt_set_at(set, i)->complete && ckpt_set_at(set, i)->step == l->report.final_step) index = i;
        code =
            index == UINT32_MAX
                ? error_set(e, PAWL_CORRUPT, 0,
                            "%s/store: the final step %llu was saved but is not complete there any more: "
                            "bring back "
                            "what was removed, or run again to go on from an older step",
                            l->spec.run.dir, (unsigned long long)l->report.final_step)
                : persist_digest(set, index, &l->spec, l->spec.save.export_dir, l->report.weights_sha256, e);
    }
    ckpt_set_close(set);
    rundir_close_stores(stores, count);
    return code;
}

/* A slip of the pen that asks for thousands of processes is to be told, not tried. */
static pawl_code check_room(const struct spec *s, struct pawl_error *e) {
    uint64_t need = spec_ranks(s) * WORKER_BYTES;
    uint64_t have = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (need <= have) return PAWL_OK;
    return error_set(
        e, PAWL_ARGUMENT, 0,
        "%u pipelines x %u stages are %u worker processes: they take %.1f GiB of memory before they "
        "hold any state, and this machine has %.1f: use fewer pipelines or stages",
        s->parallel.pipelines, s->parallel.stages, spec_ranks(s), (double)need / (1 << 30),
        (double)have / (1 << 30));
}

static pawl_code set_up(struct launch *l, struct pawl_error *e) {
    const struct pawl_train_options *o = l->options;
    pawl_code code = spec_load(o->spec_path, o->sets, o->set_count, &l->spec, e);
    if (code == PAWL_OK) code = check_room(&l->spec, e);
    if (code != PAWL_OK) return code;
    if (o->steps > 0) l->spec.run.steps = o->steps;
    l->ranks = spec_capacity(&l->spec);
    l->find_below = UINT64_MAX;
    l->measured = calloc(l->ranks, sizeof *l->measured);
    if (l->measured == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u workers", l->ranks);
    code = outputs_check(&l->spec, o, e); /* now, not after hours of training */
    if (code == PAWL_OK) code = faults_open(l, e);
    if (code == PAWL_OK) code = fleet_programs(l, e);
    if (code == PAWL_OK) code = fleet_listen(l, e);
    if (code == PAWL_OK) code = describe_engine(l, e);
    if (code == PAWL_OK) code = (o->from_scratch ? rundir_open_anew : rundir_open)(&l->dir, &l->spec, e);
    if (code == PAWL_OK) code = outputs_check(&l->spec, o, e); /* a log in the folder that was made */
    if (code == PAWL_OK) code = inject_set_read(&l->injects, l->spec.run.dir, e);
    if (code != PAWL_OK) return code;
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

/* By role: a rank may have played any. */
static void hand_over(struct launch *l, struct launch_measured *out) {
    const struct spec *s = &l->spec;
    *out = (struct launch_measured){
        .pipelines = s->parallel.pipelines, .stages = s->parallel.stages, .layers = s->model.layers};
    if (s->run.engine == SPEC_ENGINE_TORCH)
        snprintf(out->name, sizeof out->name, "%.40s in %u stages", s->torch.module, s->parallel.stages);
    else
        snprintf(out->name, sizeof out->name, "gpt %ux%u, context %u", s->model.layers, s->model.width,
                 s->model.context);
    struct measure_report *by_role = calloc(spec_ranks(s), sizeof *by_role);
    bool any = false;
    for (uint32_t r = 0; r < l->ranks && by_role != NULL; r++) {
        const struct launch_worker *w = &l->workers[r];
        if (l->measured[r].iterations == 0 || w->stage >= out->stages || w->pipeline >= out->pipelines)
            continue;
        by_role[w->pipeline * out->stages + w->stage] = l->measured[r];
        any = true;
    }
    if (any)
        out->reports = by_role;
    else
        free(by_role);
}

/* The first cause that a worker named tells more than what followed from it. */
static bool named(const struct launch *l, pawl_code code) {
    bool asked = l->stopping && (code == PAWL_USER || code == PAWL_CANCELLED);
    return code != PAWL_OK && code != PAWL_CORRUPT && l->failure.code != PAWL_OK && !asked;
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
    if (code == PAWL_OK && l.at_found) tell_durable(&l, l.report.final_step); /* settled, and read just now */
    if (ready) tell_after(&l, code == PAWL_OK);
    if (ready && code == PAWL_OK) faults_tell_missed(&l);
    l.report.tokens_per_s = l.train_ns > 0 ? (double)l.report.tokens * 1e9 / (double)l.train_ns : 0;
    l.report.seconds = (double)(clock_now_ns() - begin) / 1e9;
    if (ready) {
        pawl_code written = write_reports(&l, code == PAWL_OK ? &cause : NULL);
        if (code == PAWL_OK) code = written;
        tell_end(&l, code == PAWL_OK ? NULL : &cause);
    }
    if (named(&l, code)) cause = l.failure, code = l.failure.code;
    if (code == PAWL_OK && measured != NULL) hand_over(&l, measured);
    fleet_close(&l);
    free(l.measured);
    free(l.decided_ns);
    free(l.outage.progress);
    progress_close(l.progress);
    rundir_close(&l.dir);
    inject_set_close(&l.injects);
    description_close(&l.described);
    if (report != NULL) *report = l.report;
    if (code != PAWL_OK && e != NULL) *e = cause;
    return code;
}
