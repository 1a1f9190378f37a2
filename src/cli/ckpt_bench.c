/* `pawl ckpt bench`: arguments in, one call of pawl_bench, rates and ratios out. Tested in
 * tests/e2e/ckpt_tune_test.py. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <pawl/tune.h>

#include "cli/amount.h"
#include "cli/ckpt.h"

struct arguments {
    struct pawl_bench_options options;
    bool json, help;
    struct cli_problem problem;
};

enum { KEY_BYTES = 256, KEY_ROUNDS, KEY_IN_FLIGHT, KEY_JSON };

static const struct argp_option option_list[] = {
    {"bytes", KEY_BYTES, "B", 0, "Size of one save (512MiB)", 1},
    {"rounds", KEY_ROUNDS, "R", 0, "Rounds, of which medians are taken (5)", 1},
    {"in-flight", KEY_IN_FLIGHT, "N", 0, "Saves in flight (2)", 1},
    {"json", KEY_JSON, NULL, 0, "Print the result as JSON", 2},
    {"quiet", 'q', NULL, 0, "No progress on the standard error output", 2},
    {"help", 'h', NULL, 0, "Print this text, and stop", 3},
    {0},
};

static const char doc[] =
    "Measure saving to DIR and restoring from there beside a raw writer and reader of the same bytes, in "
    "interleaved rounds. Everything made for that is removed again.\n\n" CLI_BYTES_HELP;

static const char examples[] = "\nExamples:\n"
                               "  pawl ckpt bench /mnt/ckpt\n"
                               "  pawl ckpt bench . --bytes 1GiB --rounds 7 --json\n"
                               "\n";

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct arguments *a = state->input;
    switch (key) {
    case KEY_BYTES:
        cli_take_bytes(&a->problem, "bytes", arg, &a->options.bytes);
        return 0;
    case KEY_ROUNDS:
        cli_take_count(&a->problem, "rounds", arg, 64, &a->options.rounds);
        return 0;
    case KEY_IN_FLIGHT:
        cli_take_count(&a->problem, "in-flight", arg, 32, &a->options.in_flight);
        return 0;
    case KEY_JSON:
        a->json = true;
        return 0;
    case 'q':
        a->options.quiet = true;
        return 0;
    case 'h':
        a->help = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->options.dir != NULL) cli_blame_argument(&a->problem, arg, "folder");
        a->options.dir = arg;
        return 0;
    case ARGP_KEY_ERROR:
        cli_blame_option(&a->problem, state->argv[state->next - 1]);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {option_list, parse, "DIR", doc, NULL, NULL, NULL};

static void print_text(const struct pawl_bench_result *r) {
    char a[PAWL_AMOUNT_TEXT], b[PAWL_AMOUNT_TEXT];
    printf("saves of %s by %s; medians of %u rounds\n\n", pawl_bytes_text(r->bytes, a), r->store, r->rounds);
    printf("  %-34s %9s %9s %9s\n", "", "MB/s", "device", "CPU s/GB");
    printf("  %-34s %9.0f %9s %9.3f\n", "device alone, write", r->device.write_bps * 1e-6, "",
           r->device_cpu_s_per_gb);
    printf("  %-34s %9.0f %9.3f %9.3f\n", "saves, several in flight", r->write_bps * 1e-6, r->write_ratio,
           r->cpu_s_per_gb);
    printf("  %-34s %9.0f %9.3f\n", "saves, one at a time", r->save_bps * 1e-6, r->save_ratio);
    printf("  %-34s %9.0f\n", "device alone, read", r->device.read_bps * 1e-6);
    printf("  %-34s %9.0f %9.3f %9.3f\n", "restore, verified", r->restore_bps * 1e-6, r->restore_ratio,
           r->restore_cpu_s_per_gb);
    printf("\none save alone is durable after %s; beginning a save blocks for %s\n",
           pawl_seconds_text(r->write_s, a), pawl_seconds_text(r->blocked_s, b));
    printf("the device's figures: %s, %u at once of %s\n", r->device.mode, r->device.depth,
           pawl_bytes_text(r->device.piece_bytes, a));
}

static int print_result(const struct arguments *a, const struct pawl_bench_result *r) {
    if (a->json) return ckpt_put_json(pawl_bench_json(r));
    print_text(r);
    return cli_flush();
}

static int run(const struct arguments *a) {
    struct pawl_bench_result result;
    struct pawl_error e = {0};
    if (a->problem.text[0] != 0)
        return cli_error(PAWL_ARGUMENT, "%s; see pawl ckpt bench --help", a->problem.text);
    if (a->help) return cli_argp_help(&parser, "pawl ckpt bench", examples, stdout);
    if (a->options.dir == NULL)
        return cli_error(PAWL_ARGUMENT,
                         "the folder is missing: pawl ckpt bench DIR; see pawl ckpt bench --help");
    pawl_code code = pawl_bench(&a->options, &result, &e);
    if (code != PAWL_OK) return cli_error(code, "%s", e.text);
    return result.stopped_by == 0 ? print_result(a, &result) : ckpt_stopped(result.stopped_by);
}

int cli_ckpt_bench(int argc, char **argv) {
    char name[] = "pawl ckpt bench";
    struct arguments a = {0};
    argv[0] = name;
    error_t err = argp_parse(&parser, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, NULL, &a);
    if (err != 0 && a.problem.text[0] == 0)
        snprintf(a.problem.text, sizeof a.problem.text, "the arguments cannot be read: %s", strerror(err));
    return run(&a);
}
