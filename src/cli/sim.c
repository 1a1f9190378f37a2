/* `pawl sim`: arguments in, one call of pawl_sim_run, the rows out in the form that was asked for.
 *
 * What a simulation means, the library says (docs/simulating.md); here options become the fields of its
 * request, each refusal naming the option. Tested in tests/e2e/sim_test.py. */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <pawl/plan.h>
#include <pawl/tune.h>

#include "cli/amount.h"
#include "cli/cli.h"
#include "cli/planning.h"

#define POLICIES_MAX 32u

struct numbers {
    double *value;
    uint32_t count;
};

struct arguments {
    struct pawl_sim_request request;
    struct numbers every, dead;
    const char *policies[POLICIES_MAX];
    char *policy_list; /* its copy, cut at commas */
    const char **sets;
    const char *profile;
    bool print_stops;
    struct cli_planning common;
};

enum {
    KEY_TRACE = 256,
    KEY_RATE,
    KEY_MTBF,
    KEY_DEAD,
    KEY_HOURS,
    KEY_REPAIR,
    KEY_BURST,
    KEY_SEED,
    KEY_POLICIES,
    KEY_PIPELINES,
    KEY_STAGES,
    KEY_MICROBATCHES,
    KEY_PROFILE,
    KEY_CHECKPOINT,
    KEY_STOPS,
    KEY_SET,
    KEY_PRINT_STOPS
};

static const struct argp_option option_list[] = {
    {0, 0, 0, 0, "When machines fail, one of:", 1},
    {"trace", KEY_TRACE, "FILE", 0, "As recorded: three formats (docs/simulating.md)", 1},
    {"rate", KEY_RATE, "T[,T]...", 0, "One every so often, like 6h,2h,30min; each is a scenario", 1},
    {"mtbf", KEY_MTBF, "T", 0, "By chance, each machine once in so long on the average, like 500h", 1},
    {"dead", KEY_DEAD, "SHARE[,SHARE]...", 0, "Throughout, like 1%,5%,10%; each is a scenario", 1},
    {"hours", KEY_HOURS, "T", 0,
     "Simulate so long, like 8h; a number alone is hours (the trace's length, or 24)", 1},
    {"repair", KEY_REPAIR, "T", 0, "A lost machine is back after so long (never)", 1},
    {"burst", KEY_BURST, "N", 0, "So many fail at once (1)", 1},
    {"seed", KEY_SEED, "K", 0, "Of what is drawn (0)", 1},
    {0, 0, 0, 0, "The job:", 2},
    {"pipelines", KEY_PIPELINES, "D", 0, "Data-parallel replicas of the model, to 4096 (4)", 2},
    {"stages", KEY_STAGES, "P", 0, "Stages of each pipeline, to 1024 (8)", 2},
    {"microbatches", KEY_MICROBATCHES, "M", 0,
     "Micro-batches of each pipeline in an iteration, to 16384 (4 P)", 2},
    {"profile", KEY_PROFILE, "FILE", 0,
     "Times and memory: a file (docs/formats/profile.md), or a built-in model (gpt3-6.7b)", 2},
    {0, 0, 0, 0, "What is done about it:", 3},
    {"policies", KEY_POLICIES, "NAME[,NAME]...", 0,
     "fault-scaled, drop-replica, checkpoint-restart, oobleck, bamboo, varuna, recycle, pawl (all)", 3},
    {"checkpoint", KEY_CHECKPOINT, "EVERY[,WRITE[,LOAD]]", 0,
     "Of every policy, like 10min,20s,30s (each policy's own)", 3},
    {"stops", KEY_STOPS, "FILE", 0, "Constants of the policies (docs/formats/stops.md)", 3},
    {"set", KEY_SET, "POLICY.CONSTANT=VALUE", 0, "One of them, after the file; may be given often", 3},
    {"print-stops", KEY_PRINT_STOPS, NULL, 0, "Print the built-in ones with their sources, and stop", 3},
    {0, 0, 0, 0, "Output:", 4},
    {"format", CLI_KEY_FORMAT, "NAME", 0, "text, json or svg (text)", 4},
    {"json", CLI_KEY_JSON, NULL, 0, "The same as --format json", 4},
    {0, 'o', "FILE", 0, "Write there, in one step, instead of the standard output, which is also -", 4},
    {"quiet", 'q', NULL, 0, "No progress on the standard error output", 4},
    {"help", 'h', NULL, 0, "Print this text, and stop", 4},
    {0},
};

static const char doc[] = "Simulate a training job on machines that fail and come back, under several "
                          "policies, and say how much of "
                          "its time each makes count. docs/simulating.md is a tour.";

static const char examples[] =
    "\nExamples:\n"
    "  pawl sim --trace bench/traces/p3-trace.csv --policies oobleck,bamboo,recycle,pawl\n"
    "  pawl sim --rate 6h,2h,30min --hours 8h --pipelines 8 --stages 4 --profile gpt3-3.35b --json\n"
    "  pawl sim --mtbf 200h --repair 2h --set oobleck.rendezvous_s=60 --format svg -o week.svg --hours 168\n"
    "\n";

/* ---- values ---- */

/* Parts of "A,B,C", each into `value` by `parse`. */
static bool take_list(struct arguments *a, const char *option, char *text, struct numbers *out,
                      pawl_code (*parse)(const char *, double *, struct pawl_error *)) {
    uint32_t count = 1;
    struct pawl_error e;
    for (const char *c = text; *c != 0; c++) count += *c == ',';
    free(out->value);
    *out = (struct numbers){.value = calloc(count, sizeof *out->value)};
    if (out->value == NULL) return cli_blame(&a->common.problem, option, "no memory for its values"), false;
    while (text != NULL) {
        char *comma = strchr(text, ','), why[200];
        if (comma != NULL) *comma = 0;
        double *value = &out->value[out->count++];
        pawl_code code = parse(text, value, &e);
        if (code != PAWL_OK) cli_blame(&a->common.problem, option, e.text);
        snprintf(why, sizeof why, "\"%.60s\": 0 is too little", text);
        if (code == PAWL_OK && !(*value > 0)) cli_blame(&a->common.problem, option, why);
        text = comma != NULL ? comma + 1 : NULL;
    }
    return true;
}

/* In the words of the option: the library's bounds are shares of 1. */
static pawl_code parse_dead(const char *text, double *out, struct pawl_error *e) {
    pawl_code code = pawl_parse_share(text, out, e);
    if (code != PAWL_OK || (*out > 0 && *out < 1)) return code;
    snprintf(
        e->text, sizeof e->text,
        "\"%.60s\": somebody must live, and somebody must be dead: give shares above 0%% and below 100%%",
        text);
    return PAWL_ARGUMENT;
}

static void take_policies(struct arguments *a, const char *text) {
    free(a->policy_list);
    a->policy_list = strdup(text);
    a->request.policy_count = 0;
    if (a->policy_list == NULL) return cli_blame(&a->common.problem, "policies", "no memory for their names");
    for (char *at = a->policy_list; at != NULL;) {
        char *comma = strchr(at, ',');
        if (comma != NULL) *comma = 0;
        if (a->request.policy_count == POLICIES_MAX)
            return cli_blame(&a->common.problem, "policies", "more than 32 are named");
        a->policies[a->request.policy_count++] = at;
        at = comma != NULL ? comma + 1 : NULL;
    }
}

/* "EVERY[,WRITE[,LOAD]]" */
static void take_checkpoint(struct arguments *a, char *text) {
    struct numbers parts = {0};
    if (!take_list(a, "checkpoint", text, &parts, pawl_parse_seconds)) return;
    if (parts.count > 3)
        cli_blame(&a->common.problem, "checkpoint",
                  "more than three amounts: give EVERY[,WRITE[,LOAD]], like 10min,20s,30s");
    a->request.checkpoint_every_s = parts.value[0];
    if (parts.count > 1) a->request.checkpoint_write_s = parts.value[1];
    if (parts.count > 2) a->request.checkpoint_load_s = parts.value[2];
    free(parts.value);
}

static void take_set(struct arguments *a, const char *text) {
    const char **more = realloc(a->sets, (a->request.set_count + 1) * sizeof *more);
    if (more == NULL) return cli_blame(&a->common.problem, "set", "no memory for it");
    a->sets = more;
    a->sets[a->request.set_count++] = text;
}

/* A number alone is hours: --hours 8. */
static void take_hours(struct arguments *a, const char *text) {
    const char *at = text;
    double seconds;
    if (cli_next_number(&at, &seconds) && *at == 0) {
        if (!(seconds > 0)) cli_blame(&a->common.problem, "hours", "0 is too little");
        a->request.hours = seconds;
        return;
    }
    cli_take_seconds(&a->common.problem, "hours", text, &seconds);
    if (a->common.problem.text[0] == 0) a->request.hours = seconds / 3600;
}

/* ---- options ---- */

static error_t parse_failures(struct arguments *a, int key, char *arg) {
    struct pawl_sim_request *r = &a->request;
    switch (key) {
    case KEY_TRACE:
        return r->trace_path = arg, 0;
    case KEY_RATE:
        return (void)take_list(a, "rate", arg, &a->every, pawl_parse_seconds), 0;
    case KEY_MTBF:
        return cli_take_seconds(&a->common.problem, "mtbf", arg, &r->mtbf_s), 0;
    case KEY_DEAD:
        return (void)take_list(a, "dead", arg, &a->dead, parse_dead), 0;
    case KEY_HOURS:
        return take_hours(a, arg), 0;
    case KEY_REPAIR:
        return cli_take_seconds(&a->common.problem, "repair", arg, &r->repair_s), 0;
    case KEY_BURST:
        return cli_take_count(&a->common.problem, "burst", arg, PAWL_WORKERS_MAX, &r->burst), 0;
    case KEY_SEED:
        return cli_take_seed(&a->common.problem, "seed", arg, &r->seed), 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_job(struct arguments *a, int key, char *arg) {
    struct pawl_sim_request *r = &a->request;
    switch (key) {
    case KEY_PIPELINES:
        return cli_take_count(&a->common.problem, "pipelines", arg, PAWL_PIPELINES_MAX, &r->pipelines), 0;
    case KEY_STAGES:
        return cli_take_count(&a->common.problem, "stages", arg, PAWL_STAGES_MAX, &r->stages), 0;
    case KEY_MICROBATCHES:
        return cli_take_count(&a->common.problem, "microbatches", arg, PAWL_MICROBATCHES_MAX,
                              &r->microbatches),
               0;
    case KEY_PROFILE:
        return a->profile = arg, 0;
    case KEY_POLICIES:
        return take_policies(a, arg), 0;
    case KEY_CHECKPOINT:
        return take_checkpoint(a, arg), 0;
    case KEY_STOPS:
        return r->stops_path = arg, 0;
    case KEY_SET:
        return take_set(a, arg), 0;
    default:
        return parse_failures(a, key, arg);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct arguments *a = state->input;
    if (key == KEY_PRINT_STOPS) return a->print_stops = true, 0;
    error_t err = cli_parse_planning(&a->common, key, arg, state);
    return err == ARGP_ERR_UNKNOWN ? parse_job(a, key, arg) : err;
}

static const struct argp parser = {option_list, parse, NULL, doc, NULL, NULL, NULL};

int cli_sim_help(FILE *out) { return cli_argp_help(&parser, "pawl sim", examples, out); }

/* ---- running ---- */

/* What is not given, and what must not be given together. */
static void complete(struct arguments *a) {
    struct pawl_sim_request *r = &a->request;
    int kinds = (r->trace_path != NULL) + (a->every.count > 0) + (r->mtbf_s > 0) + (a->dead.count > 0);
    if (a->common.problem.text[0] == 0 && kinds != 1 && !a->print_stops && !a->common.help)
        snprintf(a->common.problem.text, sizeof a->common.problem.text,
                 "%s of the options --trace, --rate, --mtbf, --dead",
                 kinds == 0 ? "give one" : "give only one");
    if (r->pipelines == 0) r->pipelines = 4;
    if (r->stages == 0) r->stages = 8;
    if (r->microbatches == 0) r->microbatches = 4 * r->stages;
    r->every_s = a->every.value, r->every_count = a->every.count;
    r->dead_share = a->dead.value, r->dead_share_count = a->dead.count;
    r->sets = a->sets;
    for (const char *const *name = pawl_sim_policies(); r->policy_count < POLICIES_MAX && *name != NULL;
         name++) {
        if (a->policy_list != NULL) break;
        a->policies[r->policy_count++] = *name;
    }
    r->policies = a->policies;
}

struct progress { /* what was last shown, and when */
    int percent;
    double at_s;
};

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Every tenth, and whatever there is to say after a quarter of a second. */
static void show_progress(void *context, double share, const char *what) {
    struct progress *p = context;
    int percent = (int)(share * 100);
    bool tenth = percent / 10 > p->percent / 10;
    if (percent <= p->percent || (!tenth && now_s() - p->at_s < 0.25)) return;
    *p = (struct progress){percent, now_s()};
    fprintf(stderr, "pawl: sim: %d %%: %s\n", percent, what);
}

static const char *format_name(int format) { return pawl_sim_format_name((enum pawl_sim_format)format); }

static pawl_code write_sim(const void *sim, int format, FILE *out, struct pawl_error *e) {
    return pawl_sim_write(sim, (enum pawl_sim_format)format, out, e);
}

static pawl_code write_stops(const void *nothing, int format, FILE *out, struct pawl_error *e) {
    (void)nothing;
    (void)format; /* stops are YAML */
    return pawl_sim_stops(out, e);
}

static int simulate(struct arguments *a) {
    struct pawl_sim_request *r = &a->request;
    struct pawl_profile *profile = NULL;
    struct pawl_sim *sim = NULL;
    struct pawl_error e = {0};
    struct progress progress = {.at_s = now_s()};
    pawl_code code = cli_profile_find(a->profile != NULL ? a->profile : "gpt3-6.7b", r->stages, &profile, &e);
    if (code != PAWL_OK) return cli_error(code, "%s", e.text);
    r->profile = profile;
    r->stop = cli_watch_signals();
    r->progress = a->common.quiet ? NULL : show_progress;
    r->context = &progress;
    code = pawl_sim_run(r, &sim, &e);
    pawl_profile_free(profile);
    if (code != PAWL_OK) return cli_error(code, "%s", e.text);
    if (a->common.format != PAWL_SIM_TEXT) cli_print_warnings(pawl_sim_warnings(sim)); /* the text has them */
    int exit_code = cli_write_planning(&a->common, write_sim, sim);
    pawl_sim_free(sim);
    return exit_code;
}

int cli_sim(int argc, char **argv) {
    struct arguments a = {
        .common = {.command = "sim", .format_name = format_name, .format_count = PAWL_SIM_FORMAT_COUNT}};
    int exit_code;
    cli_read_planning(&a.common, &parser, argc, argv, &a);
    complete(&a);
    if (!cli_planning_ends(&a.common, cli_sim_help, &exit_code))
        exit_code = a.print_stops ? cli_write_planning(&a.common, write_stops, NULL) : simulate(&a);
    free(a.every.value);
    free(a.dead.value);
    free(a.policy_list);
    free(a.sets);
    return exit_code;
}
