/* pawl_sim_run and what belongs to it: the request checked, scenarios made, every policy run over each.
 * Contract: pawl/plan.h. Tested in tests/unit/fleet_run_test.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fleet/constants.h"
#include "fleet/events.h"
#include "fleet/period.h"
#include "ir/ir.h"

#define HOURS_MAX   (24.0 * 365 * 100)
#define SECONDS_MAX (HOURS_MAX * 3600)

const char *pawl_sim_format_name(enum pawl_sim_format format) {
    static const char *const names[] = {"text", "json", "svg"};
    return (unsigned)format < PAWL_SIM_FORMAT_COUNT ? names[format] : "";
}

/* ---- the request ---- */

static pawl_code check_size(const char *field, uint32_t value, uint32_t most, struct pawl_error *e) {
    if (value >= 1 && value <= most) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0, "%s: %u is not from 1 to %u", field, value, most);
}

static pawl_code check_number(const char *field, double value, double least, double most,
                              struct pawl_error *e) {
    if (value >= least && value <= most) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0, "%s: %.15g is not from %.15g to %.15g", field, value, least, most);
}

/* Of so many workers some are dead and some live, rounded as they are drawn. */
static pawl_code check_share(double share, uint32_t workers, struct pawl_error *e) {
    if (!(share > 0 && share < 1))
        return error_set(e, PAWL_ARGUMENT, 0,
                         "dead share: %.15g%% is not above 0%% and below 100%%: somebody must be dead, and "
                         "somebody must live",
                         share * 100);
    if (fleet_dead_count(share, workers) < workers) return PAWL_OK;
    return error_set(e, PAWL_ARGUMENT, 0,
                     "dead share: %.15g%% of %u worker%s is everybody, but somebody must live", share * 100,
                     workers, workers == 1 ? "" : "s");
}

static pawl_code check_sizes(const struct pawl_sim_request *r, struct pawl_error *e) {
    pawl_code code = check_size("pipelines", r->pipelines, IR_PIPELINES_MAX, e);
    if (code == PAWL_OK) code = check_size("stages", r->stages, IR_STAGES_MAX, e);
    if (code == PAWL_OK) code = check_size("microbatches", r->microbatches, IR_MICROBATCHES_MAX, e);
    if (code != PAWL_OK) return code;
    uint64_t workers = (uint64_t)r->pipelines * r->stages;
    if (workers > IR_WORKERS_MAX)
        return error_set(e, PAWL_ARGUMENT, 0, "pipelines x stages: %llu workers, at most %u",
                         (unsigned long long)workers, IR_WORKERS_MAX);
    if (r->burst > workers)
        return error_set(e, PAWL_ARGUMENT, 0, "burst: %u at once, there are %u workers", r->burst,
                         (uint32_t)workers);
    return PAWL_OK;
}

static pawl_code check_policies(const struct pawl_sim_request *r, struct pawl_error *e) {
    if (r->policy_count == 0) return error_set(e, PAWL_ARGUMENT, 0, "policies: none is named");
    for (uint32_t i = 0; i < r->policy_count; i++)
        if (fleet_policy_find(r->policies[i]) == NULL)
            return error_set(e, PAWL_ARGUMENT, 0,
                             "there is no policy \"%s\": there are fault-scaled, drop-replica, "
                             "checkpoint-restart, oobleck, bamboo, varuna, recycle, pawl",
                             r->policies[i]);
    return PAWL_OK;
}

static pawl_code check_failures(const struct pawl_sim_request *r, struct pawl_error *e) {
    int kinds = (r->trace_path != NULL) + (r->every_count > 0) + (r->mtbf_s != 0) + (r->dead_share_count > 0);
    pawl_code code = PAWL_OK;
    if (kinds != 1)
        return error_set(
            e, PAWL_ARGUMENT, 0,
            "failures: %s; give one of a trace, rates, a mean time between failures, dead shares",
            kinds == 0 ? "nothing says when they come" : "more than one thing says when they come");
    for (uint32_t i = 0; i < r->every_count && code == PAWL_OK; i++)
        code = check_number("rate (seconds)", r->every_s[i], 1e-3, SECONDS_MAX, e);
    if (code == PAWL_OK && r->mtbf_s != 0)
        code = check_number("mean time between failures (seconds)", r->mtbf_s, 1e-3, 1e3 * SECONDS_MAX, e);
    for (uint32_t i = 0; i < r->dead_share_count && code == PAWL_OK; i++)
        code = check_share(r->dead_share[i], r->pipelines * r->stages, e);
    return code;
}

/* What would be left unused is refused: whoever gives it expects something of it. */
static pawl_code check_returns(const struct pawl_sim_request *r, struct pawl_error *e) {
    pawl_code code = check_number("repair (seconds)", r->repair_s, 0, SECONDS_MAX, e);
    bool trace = r->trace_path != NULL, dead = r->dead_share_count > 0;
    const char *why = trace ? "a trace says itself who fails and comes back when"
                            : "dead shares are dead from the start to the end";
    if (code != PAWL_OK || (!trace && !dead)) return code;
    if (r->repair_s > 0)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "repair: %s; it goes with rates and with a mean time between failures", why);
    if (r->burst > 1)
        return error_set(e, PAWL_ARGUMENT, 0,
                         "burst: %s; it goes with rates and with a mean time between failures", why);
    return PAWL_OK;
}

static pawl_code check_request(const struct pawl_sim_request *r, struct pawl_error *e) {
    pawl_code code = check_sizes(r, e);
    if (code == PAWL_OK) code = check_policies(r, e);
    if (code == PAWL_OK) code = check_failures(r, e);
    if (code == PAWL_OK) code = check_number("hours", r->hours, 0, HOURS_MAX, e);
    if (code == PAWL_OK) code = check_returns(r, e);
    if (code == PAWL_OK) code = check_number("checkpoint every", r->checkpoint_every_s, 0, SECONDS_MAX, e);
    if (code == PAWL_OK) code = check_number("checkpoint write", r->checkpoint_write_s, 0, SECONDS_MAX, e);
    if (code == PAWL_OK) code = check_number("checkpoint load", r->checkpoint_load_s, 0, SECONDS_MAX, e);
    return code;
}

/* What the request says of saving, for every policy that saves. */
static void set_saving(struct fleet_constants *c, const char *name, double value) {
    for (uint32_t i = 0; i < c->count && value > 0; i++) {
        if (strcmp(c->constant[i].name, name) != 0) continue;
        c->constant[i].value = value;
        c->constant[i].source = "as given";
    }
}

static pawl_code make_constants(const struct pawl_sim_request *r, struct fleet_constants *out,
                                struct pawl_error *e) {
    pawl_code code = fleet_constants_default(out, e);
    if (code == PAWL_OK && r->stops_path != NULL) code = fleet_constants_read(out, r->stops_path, e);
    if (code == PAWL_OK) {
        set_saving(out, "checkpoint_every_s", r->checkpoint_every_s);
        set_saving(out, "checkpoint_write_s", r->checkpoint_write_s);
        set_saving(out, "checkpoint_load_s", r->checkpoint_load_s);
    }
    for (uint32_t i = 0; i < r->set_count && code == PAWL_OK; i++)
        code = fleet_constants_set(out, r->sets[i], e);
    return code;
}

/* ---- scenarios ---- */

struct running {
    const struct pawl_sim_request *request;
    struct pawl_profile *built_in; /* where the request has none */
    const struct pawl_profile *profile;
    struct fleet_job job;
    struct fleet_planner planner;
    struct pawl_sim *sim;
    uint32_t scenarios, done; /* done: rows */
    struct pawl_error *e;
};

/* "6h", "30min", "90s" */
static void duration_text(double seconds, char out[40]) {
    if (fmod(seconds, 3600) == 0)
        snprintf(out, 40, "%.15gh", seconds / 3600);
    else if (fmod(seconds, 60) == 0)
        snprintf(out, 40, "%.15gmin", seconds / 60);
    else
        snprintf(out, 40, "%.15gs", seconds);
}

static void name_scenario(const struct running *g, uint32_t scenario, char *out, size_t size) {
    const struct pawl_sim_request *r = g->request;
    char text[40];
    if (r->trace_path != NULL) {
        const char *slash = strrchr(r->trace_path, '/');
        snprintf(out, size, "trace %s", slash != NULL ? slash + 1 : r->trace_path);
    } else if (r->every_count > 0) {
        duration_text(r->every_s[scenario], text);
        snprintf(out, size, "every %s", text);
    } else if (r->mtbf_s > 0) {
        duration_text(r->mtbf_s, text);
        snprintf(out, size, "mtbf %s", text);
    } else {
        snprintf(out, size, "dead %.6g%%", r->dead_share[scenario] * 100);
    }
}

static pawl_code make_scenario(const struct running *g, uint32_t scenario, struct fleet_events *out) {
    const struct pawl_sim_request *r = g->request;
    uint32_t machines = r->pipelines * r->stages;
    if (r->trace_path != NULL) return fleet_events_read(r->trace_path, machines, r->seed, out, g->e);
    struct fleet_rates rates = {
        .machines = machines,
        .seconds = (r->hours > 0 ? r->hours : 24) * 3600,
        .every_s = r->every_count > 0 ? r->every_s[scenario] : 0,
        .mtbf_s = r->mtbf_s,
        .dead_share = r->dead_share_count > 0 ? r->dead_share[scenario] : 0,
        .repair_s = r->repair_s,
        .burst = r->burst,
        .seed = r->seed,
        .stop = r->stop,
    };
    return fleet_events_draw(&rates, out, g->e);
}

struct shown { /* a run among all of them */
    const struct running *g;
    const char *what;
};

static void show_run(void *context, double share) {
    const struct shown *s = context;
    const struct pawl_sim_request *r = s->g->request;
    double rows = (double)s->g->scenarios * r->policy_count;
    r->progress(r->context, fmin((s->g->done + share) / rows, 1), s->what);
}

static pawl_code run_policy(struct running *g, const char *scenario, const struct fleet_policy *policy,
                            const struct fleet_events *events, double seconds) {
    const struct pawl_sim_request *r = g->request;
    struct fleet_run run;
    char what[160];
    snprintf(what, sizeof what, "%s, %s", scenario, policy->name);
    uint32_t at = g->done;
    struct shown shown = {g, what};
    struct fleet_watch watch = {
        .stop = r->stop, .progress = r->progress != NULL ? show_run : NULL, .context = &shown};
    if (r->progress != NULL) show_run(&shown, 0);
    if (r->stop != NULL && *(const volatile bool *)r->stop)
        return error_set(g->e, PAWL_CANCELLED, 0, "the simulation was stopped");
    pawl_code code = fleet_engine_run(&g->job, policy, events, seconds, &watch, &run, g->e);
    if (code != PAWL_OK) return code;
    run.row.scenario = strdup(scenario);
    g->sim->rows[at] = run.row;
    g->sim->samples[at] = run.samples;
    g->sim->sample_counts[at] = run.sample_count;
    g->sim->row_count = ++g->done;
    if (run.row.scenario == NULL) return error_set(g->e, PAWL_MEMORY, 0, "no memory for a name");
    return PAWL_OK;
}

static pawl_code warn_lines(struct running *g, const char *lines) {
    pawl_code code = PAWL_OK;
    while (lines != NULL && *lines != 0 && code == PAWL_OK) {
        size_t size = strcspn(lines, "\n");
        code = fleet_warn(&g->sim->warnings, g->e, "%.*s", (int)size, lines);
        lines += size + (lines[size] == '\n');
    }
    return code;
}

static pawl_code run_scenario(struct running *g, uint32_t scenario) {
    const struct pawl_sim_request *r = g->request;
    struct fleet_events events = {0};
    char name[96];
    name_scenario(g, scenario, name, sizeof name);
    pawl_code code = make_scenario(g, scenario, &events);
    double seconds = r->hours > 0 ? r->hours * 3600 : events.seconds;
    if (code == PAWL_OK) code = warn_lines(g, events.warnings);
    if (code == PAWL_OK && !(seconds > 0))
        code = error_set(g->e, PAWL_FORMAT, 0, "%s: nothing happens after its start; say for how many hours",
                         r->trace_path != NULL ? r->trace_path : name);
    for (uint32_t i = 0; i < r->policy_count && code == PAWL_OK; i++)
        code = run_policy(g, name, fleet_policy_find(r->policies[i]), &events, seconds);
    fleet_events_close(&events);
    return code;
}

/* ---- all of it ---- */

static pawl_code find_profile(struct running *g) {
    const struct pawl_sim_request *r = g->request;
    g->profile = r->profile;
    if (r->profile != NULL) return pawl_profile_check(r->profile, g->e);
    pawl_code code = pawl_profile_builtin(pawl_profile_names()[0], r->stages, &g->built_in, g->e);
    g->profile = g->built_in;
    return code;
}

static pawl_code make_rows(struct running *g) {
    const struct pawl_sim_request *r = g->request;
    g->scenarios = r->every_count > 0 ? r->every_count : r->dead_share_count > 0 ? r->dead_share_count : 1;
    size_t rows = (size_t)g->scenarios * r->policy_count;
    g->sim->rows = calloc(rows, sizeof *g->sim->rows);
    g->sim->samples = calloc(rows, sizeof *g->sim->samples);
    g->sim->sample_counts = calloc(rows, sizeof *g->sim->sample_counts);
    if (g->sim->rows == NULL || g->sim->samples == NULL || g->sim->sample_counts == NULL)
        return error_set(g->e, PAWL_MEMORY, 0, "no memory for %zu rows", rows);
    return PAWL_OK;
}

static pawl_code run_all(struct running *g) {
    const struct pawl_sim_request *r = g->request;
    pawl_code code = make_constants(r, &g->sim->constants, g->e);
    if (code == PAWL_OK) code = find_profile(g);
    if (code == PAWL_OK) code = fleet_job_init(r, g->profile, &g->sim->constants, &g->job, g->e);
    if (code != PAWL_OK) return code;
    g->planner = (struct fleet_planner){&g->job, r->seed, r->stop};
    code = fleet_periods_open(r->stages, fleet_period_plan, &g->planner, &g->job.periods, g->e);
    if (code == PAWL_OK) code = make_rows(g);
    if (code == PAWL_OK) code = warn_lines(g, g->job.warnings);
    for (uint32_t i = 0; i < g->scenarios && code == PAWL_OK; i++) code = run_scenario(g, i);
    fleet_periods_close(g->job.periods);
    fleet_job_close(&g->job);
    return code;
}

/* Sizes only: what it points to is the caller's. */
static void keep_request(struct pawl_sim_request *r) {
    r->profile = NULL, r->policies = NULL, r->trace_path = NULL, r->every_s = NULL, r->dead_share = NULL;
    r->stops_path = NULL, r->sets = NULL, r->progress = NULL, r->context = NULL, r->stop = NULL;
}

pawl_code pawl_sim_run(const struct pawl_sim_request *request, struct pawl_sim **out, struct pawl_error *e) {
    *out = NULL;
    pawl_code code = check_request(request, e);
    if (code != PAWL_OK) return code;
    struct running g = {.request = request, .e = e};
    g.sim = calloc(1, sizeof *g.sim);
    if (g.sim == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a simulation");
    g.sim->request = *request;
    keep_request(&g.sim->request);
    code = run_all(&g);
    pawl_profile_free(g.built_in);
    if (code == PAWL_OK)
        *out = g.sim;
    else
        pawl_sim_free(g.sim);
    if (code == PAWL_OK && request->progress != NULL) request->progress(request->context, 1, "done");
    return code;
}

void pawl_sim_free(struct pawl_sim *sim) {
    if (sim == NULL) return;
    for (uint32_t i = 0; i < sim->row_count; i++) {
        free((char *)sim->rows[i].scenario);
        free(sim->samples[i]);
    }
    free(sim->rows);
    free(sim->samples);
    free(sim->sample_counts);
    fleet_constants_close(&sim->constants);
    free(sim->warnings);
    free(sim);
}

uint32_t pawl_sim_row_count(const struct pawl_sim *sim) { return sim->row_count; }
const struct pawl_sim_row *pawl_sim_rows(const struct pawl_sim *sim) { return sim->rows; }
const char *pawl_sim_warnings(const struct pawl_sim *sim) {
    return sim->warnings != NULL ? sim->warnings : "";
}
const struct pawl_sim_sample *pawl_sim_samples(const struct pawl_sim *sim, uint32_t row, uint32_t *count) {
    *count = row < sim->row_count ? sim->sample_counts[row] : 0;
    return row < sim->row_count ? sim->samples[row] : NULL;
}
