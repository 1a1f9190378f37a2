/* `pawl plan`: arguments in, one call of pawl_plan_make, the plan out in the form that was asked for.
 *
 * What a request means and whether it is possible, the library says; here options become its fields, each
 * refusal naming the option. Tested in tests/e2e/plan_test.py. */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <pawl/plan.h>
#include <pawl/tune.h>

#include "cli/amount.h"
#include "cli/cli.h"
#include "cli/planning.h"

struct arguments {
    struct pawl_plan_request request;
    struct pawl_worker_at *dead;
    uint32_t dead_room;
    const char *profile, *memory_file;
    double cost[3], comm;
    bool cost_given, comm_given;
    struct cli_planning common;
};

enum {
    KEY_PIPELINES = 256,
    KEY_STAGES,
    KEY_MICROBATCHES,
    KEY_TOTAL,
    KEY_PROFILE,
    KEY_COST,
    KEY_COMM,
    KEY_FAIL,
    KEY_FAILURES,
    KEY_POLICY,
    KEY_CHUNKS,
    KEY_MEMORY,
    KEY_MEMORY_FILE,
    KEY_RECOMPUTE,
    KEY_OFFLOAD,
    KEY_NO_MOVE,
    KEY_MIN_GAIN,
    KEY_SEARCH,
    KEY_SEED,
    KEY_EXACT,
    KEY_ENGINE,
    KEY_TIME_LIMIT
};

static const struct argp_option option_list[] = {
    {0, 0, 0, 0, "The cluster:", 1},
    {"pipelines", KEY_PIPELINES, "D", 0, "Data-parallel replicas of the model, to 4096", 1},
    {"stages", KEY_STAGES, "P", 0, "Stages of each pipeline, to 1024", 1},
    {"microbatches", KEY_MICROBATCHES, "M", 0, "Micro-batches of each pipeline in an iteration, to 16384", 1},
    {"total", KEY_TOTAL, "N", 0, "Micro-batches of the iteration in all: the last pipelines have fewer", 1},
    {"profile", KEY_PROFILE, "FILE", 0,
     "Times and memory: a file (docs/formats/profile.md), or a built-in model, like gpt3-6.7b", 1},
    {"cost", KEY_COST, "F,I,W", 0,
     "Instead: time of forward, input-gradient and weight-gradient on every stage, 1e-6 to 1e12 (1,1,1)", 1},
    {"comm", KEY_COMM, "C", 0, "With --cost: time of a transfer between stages (0)", 1},
    {0, 0, 0, 0, "What is lost:", 2},
    {"fail", KEY_FAIL, "p:s[,p:s]...", 0, "Dead workers, pipeline:stage, from 0; may be given often", 2},
    {"failures", KEY_FAILURES, "COUNT", 0, "So many more, placed where they cost least", 2},
    {"no-move", KEY_NO_MOVE, NULL, 0, "Nobody takes over another stage, or helps one", 2},
    {"min-gain", KEY_MIN_GAIN, "SHARE", 0,
     "A move, or more helpers, must shorten the period by this share (2%; 0.5%)", 2},
    {0, 0, 0, 0, "How to schedule:", 3},
    {"policy", KEY_POLICY, "NAME", 0,
     "gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, adaptive, decoupled, recycle or pawl (pawl)", 3},
    {"chunks", KEY_CHUNKS, "K", 0, "Chunks of the model a stage, to 64, interleaved (2)", 3},
    {"memory", KEY_MEMORY, "X", 0,
     "Limit of every worker on what it stores for micro-batches: 5 is micro-batches (at least 1), 24GiB "
     "bytes",
     3},
    {"memory-file", KEY_MEMORY_FILE, "FILE", 0, "Limits by stage or worker (docs/formats/profile.md)", 3},
    {"recompute", KEY_RECOMPUTE, NULL, 0, "Where memory is short, activations may be computed again", 3},
    {"offload", KEY_OFFLOAD, NULL, 0, "Where memory is short, activations may go to the host", 3},
    {"search", KEY_SEARCH, "T", 0, "Time for local search, like 2s; 0: none (short, by the size)", 3},
    {"seed", KEY_SEED, "N", 0, "Of the search's choices (0)", 3},
    {"exact", KEY_EXACT, NULL, 0, "Look for the optimum and a proof with a solver; for small cases", 3},
    {"engine", KEY_ENGINE, "NAME", 0, "The solver: z3 or cbc (z3)", 3},
    {"time-limit", KEY_TIME_LIMIT, "T", 0, "Of the solver (60s)", 3},
    {0, 0, 0, 0, "Output:", 4},
    {"format", CLI_KEY_FORMAT, "NAME", 0, "text, json, svg, chrome, csv or ir (text)", 4},
    {"json", CLI_KEY_JSON, NULL, 0, "The same as --format json", 4},
    {0, 'o', "FILE", 0, "Write there, in one step, instead of the standard output, which is also -", 4},
    {"quiet", 'q', NULL, 0, "No progress on the standard error output", 4},
    {"help", 'h', NULL, 0, "Print this text, and stop", 4},
    {0},
};

static const char doc[] =
    "Plan one iteration of pipeline-parallel training: who executes what in which order, with any workers "
    "dead, how long it takes, and a bound that shows how good that is. docs/planning.md is a "
    "tour.\n\n" CLI_BYTES_HELP;

static const char examples[] =
    "\nExamples:\n"
    "  pawl plan --pipelines 3 --stages 4 --microbatches 6 --fail 1:2\n"
    "  pawl plan --pipelines 4 --stages 8 --microbatches 64 --failures 2 --profile gpt3-6.7b --format svg\n"
    "  pawl plan --pipelines 1 --stages 4 --microbatches 8 --cost 1,1.2,0.9 --memory 5 --exact --json\n"
    "\n";

/* ---- values ---- */

/* "F,I,W". */
static void take_cost(struct arguments *a, const char *text) {
    const char *at = text;
    char why[128];
    a->cost_given = true;
    for (int i = 0; i < 3; i++) {
        bool good = cli_next_number(&at, &a->cost[i]) && a->cost[i] >= 1e-6 && a->cost[i] <= 1e12 &&
                    *at == (i < 2 ? ',' : 0);
        if (good) {
            at++;
            continue;
        }
        snprintf(why, sizeof why, "\"%.60s\": give three numbers from 1e-06 to 1e+12, like 1,1.2,0.9", text);
        cli_blame(&a->common.problem, "cost", why);
        return;
    }
}

static bool next_index(const char **at, uint32_t *out) {
    char *end = NULL;
    errno = 0;
    if (**at < '0' || **at > '9') return false;
    unsigned long value = strtoul(*at, &end, 10);
    *at = end;
    *out = (uint32_t)value;
    return errno == 0 && value <= UINT32_MAX;
}

static bool add_dead(struct arguments *a, struct pawl_worker_at at) {
    if (a->request.dead_count == a->dead_room) {
        uint32_t room = a->dead_room * 2 + 16;
        struct pawl_worker_at *more = realloc(a->dead, room * sizeof *more);
        if (more == NULL) return false;
        a->dead = more;
        a->dead_room = room;
    }
    a->dead[a->request.dead_count++] = at;
    a->request.dead = a->dead;
    return true;
}

/* "p:s[,p:s]..." */
static void take_fail(struct arguments *a, const char *text) {
    const char *at = text;
    char why[128];
    for (;;) {
        struct pawl_worker_at w;
        bool good = next_index(&at, &w.pipeline) && *at == ':';
        if (good) at++;
        if (!good || !next_index(&at, &w.stage) || (*at != 0 && *at != ',')) break;
        if (!add_dead(a, w)) return cli_blame(&a->common.problem, "fail", "no memory for them");
        if (*at++ == 0) return;
    }
    snprintf(why, sizeof why, "\"%.60s\": give pipeline:stage, both from 0, like 1:2 or 1:2,2:0", text);
    cli_blame(&a->common.problem, "fail", why);
}

/* "5": micro-batches; "24GiB": bytes. */
static void take_memory(struct arguments *a, const char *text) {
    const char *at = text;
    uint64_t bytes = 0;
    char why[160];
    double *memory = &a->request.memory;
    if (cli_next_number(&at, memory) && *at == 0 && *memory > 0) return;
    if (pawl_parse_bytes(text, &bytes, NULL) == PAWL_OK && bytes > 0) {
        *memory = (double)bytes;
        a->request.memory_in_bytes = true;
        return;
    }
    snprintf(why, sizeof why, "\"%.60s\": give micro-batches, like 5, or bytes, like 24GiB", text);
    cli_blame(&a->common.problem, "memory", why);
}

static void take_policy(struct arguments *a, const char *text) {
    struct pawl_error e;
    if (pawl_policy_parse(text, &a->request.policy, &e) != PAWL_OK)
        cli_blame(&a->common.problem, "policy", e.text);
}

static void take_search(struct arguments *a, const char *text) {
    struct pawl_error e;
    if (pawl_parse_seconds(text, &a->request.search_s, &e) != PAWL_OK)
        cli_blame(&a->common.problem, "search", e.text);
    else if (a->request.search_s == 0)
        a->request.search_s = -1; /* none */
}

static void take_min_gain(struct arguments *a, const char *text) {
    struct pawl_error e;
    if (pawl_parse_share(text, &a->request.min_gain, &e) != PAWL_OK)
        cli_blame(&a->common.problem, "min-gain", e.text);
    else if (a->request.min_gain == 0)
        a->request.min_gain = 1e-9; /* any */
}

/* ---- options ---- */

static error_t parse_cluster(struct arguments *a, int key, char *arg) {
    struct pawl_plan_request *r = &a->request;
    switch (key) {
    case KEY_PIPELINES:
        return cli_take_count(&a->common.problem, "pipelines", arg, PAWL_PIPELINES_MAX, &r->pipelines), 0;
    case KEY_STAGES:
        return cli_take_count(&a->common.problem, "stages", arg, PAWL_STAGES_MAX, &r->stages), 0;
    case KEY_MICROBATCHES:
        return cli_take_count(&a->common.problem, "microbatches", arg, PAWL_MICROBATCHES_MAX,
                              &r->microbatches),
               0;
    case KEY_TOTAL:
        return cli_take_count(&a->common.problem, "total", arg, PAWL_PIPELINES_MAX * PAWL_MICROBATCHES_MAX,
                              &r->total_microbatches),
               0;
    case KEY_FAILURES:
        return cli_take_count(&a->common.problem, "failures", arg, PAWL_WORKERS_MAX, &r->failures), 0;
    case KEY_CHUNKS:
        return cli_take_count(&a->common.problem, "chunks", arg, PAWL_CHUNKS_MAX, &r->chunks_per_stage), 0;
    case KEY_PROFILE:
        return a->profile = arg, 0;
    case KEY_COST:
        return take_cost(a, arg), 0;
    case KEY_COMM:
        a->comm_given = true;
        return cli_take_number(&a->common.problem, "comm", arg, 0, 1e12, &a->comm), 0;
    case KEY_FAIL:
        return take_fail(a, arg), 0;
    case KEY_MEMORY:
        return take_memory(a, arg), 0;
    case KEY_MEMORY_FILE:
        return a->memory_file = arg, 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_way(struct arguments *a, int key, char *arg) {
    struct pawl_plan_request *r = &a->request;
    switch (key) {
    case KEY_POLICY:
        return take_policy(a, arg), 0;
    case KEY_NO_MOVE:
        return r->no_move = true, 0;
    case KEY_MIN_GAIN:
        return take_min_gain(a, arg), 0;
    case KEY_RECOMPUTE:
        return r->recompute = true, 0;
    case KEY_OFFLOAD:
        return r->offload = true, 0;
    case KEY_SEARCH:
        return take_search(a, arg), 0;
    case KEY_SEED:
        return cli_take_seed(&a->common.problem, "seed", arg, &r->seed), 0;
    case KEY_EXACT:
        return r->exact = true, 0;
    case KEY_ENGINE:
        return r->engine = arg, 0;
    case KEY_TIME_LIMIT:
        return cli_take_seconds(&a->common.problem, "time-limit", arg, &r->time_limit_s), 0;
    default:
        return parse_cluster(a, key, arg);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct arguments *a = state->input;
    error_t err = cli_parse_planning(&a->common, key, arg, state);
    return err == ARGP_ERR_UNKNOWN ? parse_way(a, key, arg) : err;
}

static const struct argp parser = {option_list, parse, NULL, doc, NULL, NULL, NULL};

int cli_plan_help(FILE *out) { return cli_argp_help(&parser, "pawl plan", examples, out); }

/* ---- the request ---- */

static const char *missing_option(const struct pawl_plan_request *r) {
    if (r->pipelines == 0) return "pipelines";
    if (r->stages == 0) return "stages";
    return r->microbatches == 0 ? "microbatches" : NULL;
}

static pawl_code check_together(const struct arguments *a, struct pawl_error *e) {
    const char *why = NULL, *missing = missing_option(&a->request);
    if (a->profile != NULL && a->cost_given) why = "options --profile and --cost exclude each other";
    if (a->profile != NULL && a->comm_given) why = "option --comm goes with --cost, not with --profile";
    if (a->memory_file != NULL && a->request.memory != 0)
        why = "options --memory and --memory-file exclude each other";
    if (why != NULL)
        snprintf(e->text, sizeof e->text, "%s", why);
    else if (missing != NULL)
        snprintf(e->text, sizeof e->text, "option --%s is missing", missing);
    return why != NULL || missing != NULL ? PAWL_ARGUMENT : PAWL_OK;
}

static pawl_code find_profile(const struct arguments *a, struct pawl_profile **out, struct pawl_error *e) {
    const double one[3] = {1, 1, 1}, *cost = a->cost_given ? a->cost : one;
    uint32_t stages = a->request.stages;
    if (a->profile == NULL) return pawl_profile_uniform(stages, cost[0], cost[1], cost[2], a->comm, out, e);
    return cli_profile_find(a->profile, stages, out, e);
}

/* ---- running ---- */

static void show_progress(void *context, double period, double bound, double seconds) {
    double *next = context;
    if (seconds < *next) return;
    *next = seconds + 1;
    fprintf(stderr, "pawl: plan: %.0f s: best period %g, bound %g\n", seconds, period, bound);
}

static const char *format_name(int format) { return pawl_plan_format_name((enum pawl_plan_format)format); }

static pawl_code write_plan(const void *plan, int format, FILE *out, struct pawl_error *e) {
    return pawl_plan_write(plan, (enum pawl_plan_format)format, out, e);
}

static int plan_request(struct arguments *a, struct pawl_profile **profile, double **limits) {
    struct pawl_error e = {0};
    struct pawl_plan_request *r = &a->request;
    struct pawl_plan *plan = NULL;
    double next_line = 1;
    pawl_code code = check_together(a, &e);
    if (code != PAWL_OK) return cli_error(code, "%s; see pawl plan --help", e.text);
    code = find_profile(a, profile, &e);
    if (code == PAWL_OK && a->memory_file != NULL)
        code =
            pawl_plan_limits_read(a->memory_file, r->pipelines, r->stages, limits, &r->memory_in_bytes, &e);
    if (code != PAWL_OK) return cli_error(code, "%s", e.text);
    r->profile = *profile;
    r->worker_memory = *limits;
    r->stop = cli_watch_signals(); /* the planner ends soon, with its best so far */
    r->progress = a->common.quiet ? NULL : show_progress;
    r->context = &next_line;
    code = pawl_plan_make(r, &plan, &e);
    if (code != PAWL_OK) return cli_error(code, "%s", e.text);
    if (a->common.format != PAWL_PLAN_TEXT)
        cli_print_warnings(pawl_plan_warnings(plan)); /* the text has them */
    if (*r->stop) fprintf(stderr, "pawl: warning: stopped by a signal: this is the best plan so far\n");
    int exit_code = cli_write_planning(&a->common, write_plan, plan);
    pawl_plan_free(plan);
    return exit_code;
}

int cli_plan(int argc, char **argv) {
    struct arguments a = {
        .request = {.policy = PAWL_POLICY_PAWL},
        .common = {.command = "plan", .format_name = format_name, .format_count = PAWL_PLAN_FORMAT_COUNT}};
    struct pawl_profile *profile = NULL;
    double *limits = NULL;
    int exit_code;
    cli_read_planning(&a.common, &parser, argc, argv, &a);
    if (!cli_planning_ends(&a.common, cli_plan_help, &exit_code))
        exit_code = plan_request(&a, &profile, &limits);
    pawl_profile_free(profile);
    free(limits);
    free(a.dead);
    return exit_code;
}
