/* `pawl train`: arguments in, one call of pawl_train, a summary or the report out.
 *
 * argp parses and formats the help; its own error messages are silenced, because an error here is one line
 * that names the option, and that silences its own --help, too, hence ours. What an override or a fault
 * means, the library says. Tested in tests/e2e/cli_test.py. */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

struct arguments {
    struct pawl_train_options options;
    const char **sets, **injects; /* room for argc each */
    bool json, help, usage, spec_help;
    char problem[256]; /* with the arguments; empty: none */
};

enum {
    KEY_USAGE = 256,
    KEY_STEPS,
    KEY_SET,
    KEY_INJECT,
    KEY_REPORT,
    KEY_LOG,
    KEY_PROFILE_OUT,
    KEY_SCRATCH,
    KEY_WORKER_PROGRAM,
    KEY_JSON,
    KEY_SPEC_HELP
};

static const struct argp_option option_list[] = {
    {"steps", KEY_STEPS, "N", 0, "Optimizer steps of the whole run, instead of run.steps", 1},
    {"set", KEY_SET, "SECTION.KEY=VALUE", 0, "Override a field of the spec; may be given often", 1},
    {"from-scratch", KEY_SCRATCH, NULL, 0,
     "Start at step 0 although the folder has lost all it had saved, or was begun with another spec and "
     "never "
     "had a durable step",
     1},
    {"worker-program", KEY_WORKER_PROGRAM, "PROGRAM", 0,
     "Start PROGRAM in place of pawl's own workers and coordinator: one that brings an engine "
     "(docs/engines.md)",
     1},
    {"inject", KEY_INJECT, "FAULT", 0,
     "Kill on purpose: kill:RANK@STEP[:POINT] while that step is computed, kill:all@STEP when it is taken; "
     "each "
     "fires once in a run's life; may be given often (docs/faults.md)",
     1},
    {"report", KEY_REPORT, "FILE.json", 0, "Write the report here, too (always in run.dir/report.json)", 2},
    {"profile-out", KEY_PROFILE_OUT, "FILE.yaml", 0,
     "Write what the workers measured, for pawl plan --profile (docs/planning.md)", 2},
    {"log", KEY_LOG, "FILE.jsonl", 0, "Append events here, too (always to run.dir/log.jsonl)", 2},
    {"quiet", 'q', NULL, 0, "No progress on the standard error output", 2},
    {"json", KEY_JSON, NULL, 0, "Print the report as JSON on the standard output, instead of the summary", 2},
    {"help", 'h', NULL, 0, "Print this text, and stop", 3},
    {"usage", KEY_USAGE, NULL, 0, "Print the options in short, and stop", 3},
    {"spec-help", KEY_SPEC_HELP, NULL, 0, "Print all sections and keys of a spec, and stop", 3},
    {0},
};

static const char doc[] =
    "Train the run that SPEC.yaml describes, saving all the time. The same command resumes it at the newest "
    "durable step; workers that die are done without; the weights are the same bits either way. "
    "A step whose loss or gradient is not finite is skipped: its loss is shown as nan, and the report counts "
    "it "
    "(steps_skipped).";

/* After the options; argp would wrap these lines. */
static const char examples[] =
    "\nExamples:\n"
    "  pawl train examples/text.yaml\n"
    "  pawl train examples/text.yaml --steps 200 --set optimizer.lr=5e-4 --set run.dir=runs/b\n"
    "  pawl train examples/text.yaml --inject kill:3@50 --json --quiet\n"
    "\n";

static bool parse_steps(const char *text, uint64_t *out) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != 0 || errno != 0 || value == 0) return false;
    *out = value;
    return true;
}

static void blame(struct arguments *a, const char *format, const char *what) {
    char text[sizeof a->problem];
    snprintf(text, sizeof text, format, what);
    if (a->problem[0] == 0) memcpy(a->problem, text, sizeof text);
}

/* The option that "--name" or "--name=value" means: its whole name, or the only one that begins so. */
static const struct argp_option *option_of(const char *argument) {
    const struct argp_option *found = NULL;
    size_t size = strcspn(argument, "=");
    if (size < 3 || strncmp(argument, "--", 2) != 0) return NULL;
    for (const struct argp_option *o = option_list; o->name != NULL; o++) {
        if (strncmp(o->name, argument + 2, size - 2) != 0) continue;
        if (strlen(o->name) == size - 2) return o;
        if (found != NULL) return NULL;
        found = o;
    }
    return found;
}

/* getopt has refused `argument`: say why. */
static void blame_option(struct arguments *a, const char *argument) {
    const struct argp_option *o = option_of(argument);
    char what[128];
    if (o == NULL) {
        blame(a, "there is no option \"%s\", or more than one that begins so", argument);
    } else if (o->arg == NULL) {
        blame(a, "option --%s takes no value", o->name);
    } else {
        snprintf(what, sizeof what, "%s needs a value (%s)", o->name, o->arg);
        blame(a, "option --%s", what);
    }
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct arguments *a = state->input;
    struct pawl_train_options *o = &a->options;
    switch (key) {
    case KEY_STEPS:
        if (!parse_steps(arg, &o->steps))
            blame(a, "option --steps is \"%s\": give a whole number from 1", arg);
        return 0;
    case KEY_SET:
        a->sets[o->set_count++] = arg;
        return 0;
    case KEY_INJECT:
        a->injects[o->inject_count++] = arg;
        return 0;
    case KEY_REPORT:
        o->report_path = arg;
        return 0;
    case KEY_PROFILE_OUT:
        o->profile_path = arg;
        return 0;
    case KEY_LOG:
        o->log_path = arg;
        return 0;
    case KEY_WORKER_PROGRAM:
        o->worker_program = arg;
        return 0;
    case KEY_SCRATCH:
        o->from_scratch = true;
        return 0;
    case 'q':
        o->quiet = true;
        return 0;
    case KEY_JSON:
        a->json = true;
        return 0;
    case 'h':
        a->help = true;
        return 0;
    case KEY_USAGE:
        a->usage = true;
        return 0;
    case KEY_SPEC_HELP:
        a->spec_help = true;
        return 0;
    case ARGP_KEY_ARG:
        if (o->spec_path != NULL) blame(a, "\"%s\" is one argument too many: give one spec", arg);
        o->spec_path = arg;
        return 0;
    case ARGP_KEY_ERROR:
        blame_option(a, state->argv[state->next - 1]);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {option_list, parse, "SPEC.yaml", doc, NULL, NULL, NULL};

static int print_usage(void) {
    char name[] = "pawl train";
    argp_help(&parser, stdout, ARGP_HELP_USAGE, name);
    return fflush(stdout) == 0 ? 0 : cli_error(PAWL_IO, "writing the help: %s", strerror(errno));
}

int cli_train_help(FILE *out) { return cli_argp_help(&parser, "pawl train", examples, out); }

static int print_text(char *text) {
    if (text == NULL) return cli_error(PAWL_MEMORY, "no memory to print");
    fputs(text, stdout);
    free(text);
    return cli_flush();
}

static int print_summary(const struct arguments *a, const struct pawl_train_report *report) {
    char *path = NULL, *dir = NULL;
    const char *shown = a->options.report_path;
    if (shown == NULL) dir = pawl_train_run_dir(&a->options, NULL);
    if (dir != NULL && asprintf(&path, "%s/report.json", dir) >= 0) shown = path;
    cli_summary(report, shown, stdout);
    free(path);
    free(dir);
    return cli_flush();
}

static int run(const struct arguments *a) {
    struct pawl_train_report report = {0};
    struct pawl_error e = {0};
    if (a->problem[0] != 0) return cli_error(PAWL_ARGUMENT, "%s; see pawl train --help", a->problem);
    if (a->help) return cli_train_help(stdout);
    if (a->usage) return print_usage();
    if (a->spec_help) return print_text(pawl_train_spec_help());
    if (a->options.spec_path == NULL)
        return cli_error(PAWL_ARGUMENT, "the spec is missing: pawl train SPEC.yaml; see pawl train --help");
    pawl_code code = pawl_train(&a->options, &report, &e);
    if (code != PAWL_OK) return cli_error(code, "%s", e.text);
    return a->json ? print_text(pawl_train_report_json(&report)) : print_summary(a, &report);
}

int cli_train(int argc, char **argv) {
    char name[] = "pawl train";
    struct arguments a = {0};
    argv[0] = name;
    a.sets = calloc((size_t)argc, sizeof *a.sets);
    a.injects = calloc((size_t)argc, sizeof *a.injects);
    int exit_code;
    if (a.sets == NULL || a.injects == NULL) {
        exit_code = cli_error(PAWL_MEMORY, "no memory for the arguments");
    } else {
        a.options.sets = a.sets;
        a.options.injects = a.injects;
        error_t err = argp_parse(&parser, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, NULL, &a);
        if (err != 0) blame(&a, "the arguments cannot be read: %s", strerror(err));
        exit_code = run(&a);
    }
    free(a.sets);
    free(a.injects);
    return exit_code;
}
