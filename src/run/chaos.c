/* Implementation of pawl/chaos.h: the undisturbed run, then run after run, and the judgement of each call. */
#include "run/chaos.h"
#include "run/start.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"

/* A call is stuck when it lasts longer than all its deadlines together: a start and an end; so many times the
 * undisturbed run, for slow workers and work done again; for each fault the longest way out that the spec's
 * timeout leads to (silence, a fence that nobody answers, a restore, an idle view fenced three times). */
#define LIMIT_BASE_S      60.0
#define LIMIT_REFERENCES  20.0
#define LIMIT_TIMEOUTS    60.0
#define REFERENCE_LIMIT_S (24 * 3600.0)

/* How long the kernel may take to tear down what has been killed, loaded machines and sanitizers included. */
#define GONE_S 30.0

/* Calls beyond those that a fault may have ended: the first, and the resumes after it. */
#define CALLS_MORE 4u

struct chaos {
    const struct pawl_chaos_options *options;
    struct spec spec;
    char program[4096];
    char root[SPEC_TEXT_MAX]; /* holds the run folders */
    struct chaos_reference reference;
    struct pawl_chaos_report *report;
    int64_t begin_ns;
};

static double seconds_since(int64_t begin_ns) { return (double)(clock_now_ns() - begin_ns) / 1e9; }

/* ---- folders ---- */

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at) {
    (void)s, (void)kind, (void)at;
    return remove(path);
}

static void remove_folder(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static pawl_code make_root(struct chaos *c, struct pawl_error *e) {
    const char *parent = c->options->folder;
    if (parent == NULL) parent = getenv("TMPDIR");
    if (parent == NULL || parent[0] == 0) parent = "/tmp";
    int n = snprintf(c->root, sizeof c->root, "%s/pawl-chaos-XXXXXX", parent);
    if (n < 0 || (size_t)n >= sizeof c->root - 32)
        return error_set(e, PAWL_ARGUMENT, 0, "%s is too long a path for run folders", parent);
    if (mkdtemp(c->root) != NULL) return PAWL_OK;
    return error_set(e, error_code_of_errno(errno), errno, "cannot make a folder for runs in %s", parent);
}

/* ---- one call ---- */

static struct chaos_call call_of(const struct chaos *c, const char *run_dir, const struct chaos_plan *plan) {
    struct chaos_call call = {.program = c->program,
                              .image = c->options->program == NULL ? START_SELF : NULL,
                              .spec_path = c->options->spec_path,
                              .sets = c->options->sets,
                              .set_count = c->options->set_count,
                              .steps = c->spec.run.steps,
                              .run_dir = run_dir,
                              .plan = plan,
                              .limit_s = REFERENCE_LIMIT_S,
                              .gone_s = GONE_S};
    if (plan != NULL)
        call.limit_s = LIMIT_BASE_S + LIMIT_REFERENCES * c->reference.seconds + 2 * plan->fault_s +
                       LIMIT_TIMEOUTS * c->spec.failure.timeout_s * (1 + plan->faults.count);
    return call;
}

static pawl_code run_reference(struct chaos *c, struct pawl_error *e) {
    char dir[SPEC_TEXT_MAX + 32];
    struct chaos_end end;
    struct chaos_seen seen = {.log_at = 0};
    uint64_t final_step = 0;
    c->reference.count = c->spec.run.steps;
    c->reference.steps = calloc(c->reference.count, sizeof *c->reference.steps);
    if (c->reference.steps == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for %llu steps",
                         (unsigned long long)c->reference.count);
    snprintf(dir, sizeof dir, "%s/undisturbed", c->root);
    struct chaos_call call = call_of(c, dir, NULL);
    int64_t begin = clock_now_ns();
    pawl_code code = chaos_call(&call, &end, e);
    if (code != PAWL_OK) return code;
    c->reference.seconds = seconds_since(begin);
    if (!WIFEXITED(end.status) || WEXITSTATUS(end.status) != 0)
        return error_set(e, PAWL_USER, 0, "the undisturbed run fails: %s",
                         end.last[0] != 0 ? end.last : "it was killed");
    code = chaos_read_log(dir, &seen, NULL, &c->reference, e);
    if (code == PAWL_OK) code = chaos_read_report(dir, &final_step, c->reference.weights_sha256, e);
    if (code == PAWL_OK && (seen.problem[0] != 0 || final_step != c->spec.run.steps || end.orphan))
        code =
            error_set(e, PAWL_INTERNAL, 0, "the undisturbed run is not as promised: %s",
                      seen.problem[0] != 0 ? seen.problem : "it ended before its last step, or not at all");
    remove_folder(dir);
    return code;
}

/* ---- a run ---- */

static pawl_code call_once(const struct chaos *c, struct chaos_run *r, struct pawl_error *e) {
    struct chaos_call call = call_of(c, r->dir, &r->plan);
    struct chaos_end end;
    for (uint32_t i = 0; i < r->plan.faults.count; i++) r->before[i] = r->plan.faults.items[i].fired;
    r->told->calls++;
    pawl_code code = chaos_call(&call, &end, e);
    if (code == PAWL_OK) code = chaos_read_log(r->dir, &r->seen, r->reference, NULL, e);
    if (code == PAWL_OK) code = inject_set_read(&r->plan.faults, r->dir, e);
    if (code == PAWL_OK) chaos_judge(r, &call, &end);
    return code;
}

/* ---- runs ---- */

static void tell_run(struct chaos *c, struct chaos_run *r) {
    struct pawl_chaos_run *told = r->told;
    bool broken = r->seen.problem[0] != 0, keep = broken || c->options->keep;
    if (!keep) remove_folder(r->dir);
    told->problem = broken ? r->seen.problem : NULL;
    told->folder = keep ? r->dir : NULL;
    told->faults = (const char *)r->plan.text.data;
    told->sets = (const char *)r->plan.sets.data;
    told->lost = r->seen.lost;
    told->joined = r->seen.joined;
    told->restored = r->seen.restored;
    told->aborted = r->aborted;
    for (uint32_t i = 0; i < r->plan.faults.count; i++) told->struck += r->plan.faults.items[i].fired;
    if (c->options->told != NULL) c->options->told(c->options->context, told);
}

static void count_run(struct pawl_chaos_report *report, const struct pawl_chaos_run *run) {
    if (run->problem != NULL && report->broken++ == 0) report->first_broken = run->number;
    report->runs++;
    report->struck += run->struck;
    report->calls += run->calls;
    report->lost += run->lost;
    report->joined += run->joined;
    report->restored += run->restored;
    report->aborted += run->aborted;
}

static pawl_code run_once(struct chaos *c, uint32_t number, struct pawl_error *e) {
    struct pawl_chaos_run told = {.number = number};
    struct chaos_run r = {.spec = &c->spec, .reference = &c->reference, .told = &told};
    int64_t begin = clock_now_ns();
    snprintf(r.dir, sizeof r.dir, "%s/run-%u", c->root, number);
    pawl_code code = chaos_draw(&c->spec, c->options->seed, number, &r.plan, e);
    uint32_t most = r.plan.ends + r.plan.mortal + CALLS_MORE;
    while (code == PAWL_OK && !r.seen.finished && r.seen.problem[0] == 0) {
        if (told.calls == most)
            chaos_problem(&r.seen, "%u calls did not reach step %llu", most,
                          (unsigned long long)c->spec.run.steps);
        else
            code = call_once(c, &r, e);
    }
    told.seconds = seconds_since(begin);
    if (code == PAWL_OK) {
        tell_run(c, &r);
        count_run(c->report, &told);
    }
    chaos_plan_close(&r.plan);
    return code;
}

static bool goes_on(const struct chaos *c, uint32_t done) {
    if (c->options->runs > 0 && done >= c->options->runs) return false;
    return c->options->minutes <= 0 || seconds_since(c->begin_ns) < c->options->minutes * 60;
}

static pawl_code prepare(struct chaos *c, struct pawl_error *e) {
    const struct pawl_chaos_options *o = c->options;
    if (o->minutes <= 0 && o->runs == 0)
        return error_set(e, PAWL_ARGUMENT, 0, "say how long: minutes, or a number of runs");
    pawl_code code = spec_load(o->spec_path, o->sets, o->set_count, &c->spec, e);
    if (code != PAWL_OK) return code;
    if (o->steps > 0) c->spec.run.steps = o->steps;
    if (o->program != NULL) {
        snprintf(c->program, sizeof c->program, "%s", o->program);
    } else {
        ssize_t n = readlink(START_SELF, c->program, sizeof c->program - 1);
        if (n <= 0) return error_set(e, PAWL_IO, errno, "cannot tell the running program");
        c->program[n] = 0;
    }
    return make_root(c, e);
}

pawl_code pawl_chaos(const struct pawl_chaos_options *options, struct pawl_chaos_report *report,
                     struct pawl_error *e) {
    struct chaos c = {.options = options, .report = report, .begin_ns = clock_now_ns()};
    *report = (struct pawl_chaos_report){.runs = 0};
    pawl_code code = prepare(&c, e);
    if (code == PAWL_OK) code = run_reference(&c, e);
    if (code == PAWL_OK) {
        memcpy(report->weights_sha256, c.reference.weights_sha256, sizeof report->weights_sha256);
        report->reference_s = c.reference.seconds;
        if (options->begun != NULL) options->begun(options->context, c.root, c.reference.seconds);
    }
    for (uint32_t done = 0; code == PAWL_OK && goes_on(&c, done); done++)
        code = run_once(&c, options->first + done, e);
    if (code != PAWL_OK && c.root[0] != 0 && report->runs == 0) remove_folder(c.root);
    if (c.root[0] != 0) rmdir(c.root); /* stays when something in it does */
    chaos_reference_close(&c.reference);
    report->seconds = seconds_since(c.begin_ns);
    if (code == PAWL_OK && report->broken > 0)
        code = error_set(e, PAWL_INTERNAL, 0, "%u of %u runs broke a promise, the first one is run %u",
                         report->broken, report->runs, report->first_broken);
    return code;
}

/* ---- JSON ---- */

static char *text_of(struct bytes *out) {
    bytes_put_u8(out, '\n');
    bytes_put_u8(out, 0);
    if (!out->failed) return (char *)out->data;
    bytes_close(out);
    return NULL;
}

static void put_text(struct json *j, const char *key, const char *value) {
    if (value != NULL)
        json_text(j, key, value);
    else
        json_null(j, key);
}

char *pawl_chaos_run_json(const struct pawl_chaos_run *r) {
    struct bytes out = {0};
    struct json j = json_begin(&out);
    json_object(&j, NULL);
    json_u64(&j, "number", r->number);
    json_text(&j, "faults", r->faults);
    json_text(&j, "sets", r->sets);
    put_text(&j, "problem", r->problem);
    put_text(&j, "folder", r->folder);
    json_u64(&j, "struck", r->struck);
    json_u64(&j, "calls", r->calls);
    json_u64(&j, "lost", r->lost);
    json_u64(&j, "joined", r->joined);
    json_u64(&j, "restored", r->restored);
    json_u64(&j, "aborted", r->aborted);
    json_f64(&j, "seconds", r->seconds);
    json_end_object(&j);
    return text_of(&out);
}

char *pawl_chaos_report_json(const struct pawl_chaos_report *r) {
    struct bytes out = {0};
    struct json j = json_begin(&out);
    json_object(&j, NULL);
    json_u64(&j, "runs", r->runs);
    json_u64(&j, "broken", r->broken);
    if (r->broken > 0)
        json_u64(&j, "first_broken", r->first_broken);
    else
        json_null(&j, "first_broken");
    json_u64(&j, "struck", r->struck);
    json_u64(&j, "calls", r->calls);
    json_u64(&j, "lost", r->lost);
    json_u64(&j, "joined", r->joined);
    json_u64(&j, "restored", r->restored);
    json_u64(&j, "aborted", r->aborted);
    json_text(&j, "weights_sha256", r->weights_sha256);
    json_f64(&j, "reference_s", r->reference_s);
    json_f64(&j, "seconds", r->seconds);
    json_end_object(&j);
    return text_of(&out);
}
