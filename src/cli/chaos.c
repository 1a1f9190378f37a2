/* `pawl chaos`: arguments in, one call of pawl_chaos, a line a run and a summary out.
 *
 * What is drawn and what is promised, the library knows (docs/chaos.md). A broken promise gets the command
 * that repeats it. Tested in tests/e2e/chaos_test.py. */
#include <argp.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <pawl/chaos.h>

#include "cli/amount.h"
#include "cli/cli.h"
#include "cli/planning.h"

struct arguments {
    struct pawl_chaos_options options;
    const char **sets; /* room for argc */
    bool json, help;
    struct cli_problem problem;
};

enum { KEY_SEED = 256, KEY_MINUTES, KEY_RUNS, KEY_FIRST, KEY_STEPS, KEY_SET, KEY_KEEP, KEY_FOLDER, KEY_JSON };

static const struct argp_option option_list[] = {
    {"seed", KEY_SEED, "K", 0, "Of what is drawn (0)", 1},
    {"minutes", KEY_MINUTES, "M", 0, "Begin no run after so long (10, unless --runs is given)", 1},
    {"runs", KEY_RUNS, "N", 0, "At most so many", 1},
    {"first", KEY_FIRST, "I", 0, "Number of the first run; the same number has the same faults (0)", 1},
    {"steps", KEY_STEPS, "N", 0, "Optimizer steps of each run, instead of run.steps", 2},
    {"set", KEY_SET, "SECTION.KEY=VALUE", 0, "Override a field of the spec; may be given often", 2},
    {"folder", KEY_FOLDER, "DIR", 0, "Put the run folders there (TMPDIR, else /tmp)", 3},
    {"keep", KEY_KEEP, NULL, 0, "Keep the folders of good runs, too", 3},
    {"json", KEY_JSON, NULL, 0, "One JSON object a run, then one of all, on the standard output", 3},
    {"help", 'h', NULL, 0, "Print this text, and stop", 4},
    {0},
};

static const char doc[] =
    "Run the job that SPEC.yaml describes again and again under random faults, resume it whenever it ends, "
    "and "
    "check every promise: the same weights, no durable step lost, nothing stuck, nothing left behind.";

static const char examples[] =
    "\nExamples:\n"
    "  pawl chaos examples/text.yaml --steps 20 --seed 1 --minutes 10\n"
    "  pawl chaos examples/text.yaml --steps 20 --seed 1 --first 17 --runs 1 --keep\n"
    "\n";

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct arguments *a = state->input;
    struct pawl_chaos_options *o = &a->options;
    struct cli_problem *p = &a->problem;
    uint32_t steps = 0;
    switch (key) {
    case KEY_SEED:
        return cli_take_seed(p, "seed", arg, &o->seed), 0;
    case KEY_MINUTES:
        return cli_take_number(p, "minutes", arg, 0.001, 1e6, &o->minutes), 0;
    case KEY_RUNS:
        return cli_take_count(p, "runs", arg, 1000000, &o->runs), 0;
    case KEY_FIRST:
        return cli_take_whole(p, "first", arg, 0, 1000000000, &o->first), 0;
    case KEY_STEPS:
        cli_take_count(p, "steps", arg, UINT32_MAX, &steps);
        return o->steps = steps, 0;
    case KEY_SET:
        return a->sets[o->set_count++] = arg, 0;
    case KEY_FOLDER:
        return o->folder = arg, 0;
    case KEY_KEEP:
        return o->keep = true, 0;
    case KEY_JSON:
        return a->json = true, 0;
    case 'h':
        return a->help = true, 0;
    case ARGP_KEY_ARG:
        if (o->spec_path != NULL) cli_blame_argument(p, arg, "spec");
        return o->spec_path = arg, 0;
    case ARGP_KEY_ERROR:
        return cli_blame_option(p, state->argv[state->next - 1]), 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {option_list, parse, "SPEC.yaml", doc, NULL, NULL, NULL};

int cli_chaos_help(FILE *out) { return cli_argp_help(&parser, "pawl chaos", examples, out); }

/* ---- what is said ---- */

static void say_begun(void *context, const char *folder, double reference_s) {
    const struct arguments *a = context;
    if (a->json) return;
    printf("undisturbed in %.1f s; run folders in %s\n", reference_s, folder);
    fflush(stdout);
}

/* A word of the shell: quoted where it must be. */
static void print_word(const char *text) {
    if (text[0] != 0 && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                     "_./:=,@%+-") == strlen(text)) {
        printf(" %s", text);
        return;
    }
    printf(" '");
    for (; *text != 0; text++) *text == '\'' ? (void)printf("'\\''") : (void)putchar(*text);
    putchar('\'');
}

static void print_repeat(const struct arguments *a, uint32_t number) {
    const struct pawl_chaos_options *o = &a->options;
    printf("     again: pawl chaos");
    print_word(o->spec_path);
    printf(" --seed %" PRIu64 " --first %u --runs 1 --keep", o->seed, number);
    if (o->steps > 0) printf(" --steps %" PRIu64, o->steps);
    for (uint32_t i = 0; i < o->set_count; i++) {
        printf(" --set");
        print_word(o->sets[i]);
    }
    putchar('\n');
}

static void say_run(void *context, const struct pawl_chaos_run *r) {
    const struct arguments *a = context;
    if (a->json) {
        char *text = pawl_chaos_run_json(r);
        if (text != NULL) fputs(text, stdout);
        free(text);
    } else {
        printf("run %u %s: %u struck, %u calls, lost %u, joined %u, restored %u, %.1f s: %s\n", r->number,
               r->problem == NULL ? "good" : "BROKEN", r->struck, r->calls, r->lost, r->joined, r->restored,
               r->seconds, r->faults);
        if (r->aborted > 0) printf("     UCX ended %u worker%s\n", r->aborted, r->aborted == 1 ? "" : "s");
        if (r->problem != NULL) {
            printf("     %s\n     with %s; kept in %s\n", r->problem, r->sets, r->folder);
            print_repeat(a, r->number);
        }
    }
    fflush(stdout);
}

static int say_report(const struct arguments *a, const struct pawl_chaos_report *r) {
    if (a->json) {
        char *text = pawl_chaos_report_json(r);
        if (text == NULL) return cli_error(PAWL_MEMORY, "no memory to print");
        fputs(text, stdout);
        free(text);
    } else {
        printf("%u of %u runs kept every promise, in %.0f s: %u faults struck, %u workers lost, %u joined, "
               "%u returns to a durable step, %u calls\nweights sha256 %s\n",
               r->runs - r->broken, r->runs, r->seconds, r->struck, r->lost, r->joined, r->restored, r->calls,
               r->weights_sha256);
    }
    return cli_flush();
}

static int run(struct arguments *a) {
    struct pawl_chaos_options *o = &a->options;
    struct pawl_chaos_report report;
    struct pawl_error e = {0};
    if (a->problem.text[0] != 0)
        return cli_error(PAWL_ARGUMENT, "%s; see pawl chaos --help", a->problem.text);
    if (a->help) return cli_chaos_help(stdout);
    if (o->spec_path == NULL)
        return cli_error(PAWL_ARGUMENT, "the spec is missing: pawl chaos SPEC.yaml; see pawl chaos --help");
    if (o->minutes <= 0 && o->runs == 0) o->minutes = 10;
    o->context = a;
    o->begun = say_begun;
    o->told = say_run;
    pawl_code code = pawl_chaos(o, &report, &e);
    int printed = report.runs > 0 ? say_report(a, &report) : 0;
    return code != PAWL_OK ? cli_error(code, "%s", e.text) : printed;
}

int cli_chaos(int argc, char **argv) {
    char name[] = "pawl chaos";
    struct arguments a = {.sets = calloc((size_t)argc, sizeof *a.sets)};
    if (a.sets == NULL) return cli_error(PAWL_MEMORY, "no memory for the arguments");
    a.options.sets = a.sets;
    argv[0] = name;
    error_t err = argp_parse(&parser, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, NULL, &a);
    if (err != 0) cli_blame(&a.problem, "SPEC.yaml", strerror(err));
    int exit_code = run(&a);
    free(a.sets);
    return exit_code;
}
