/* `pawl ckpt tune`: arguments in, one call of pawl_tune, the table, the choice and why out.
 *
 * What the amounts mean and what is measured, the library says. Tested in tests/e2e/ckpt_tune_test.py. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <pawl/tune.h>

#include "cli/amount.h"
#include "cli/ckpt.h"

struct arguments {
    struct pawl_tune_options options;
    bool json, help;
    struct cli_problem problem;
};

enum {
    KEY_BYTES = 256,
    KEY_ITERATION,
    KEY_OVERHEAD,
    KEY_MEMORY,
    KEY_STORAGE,
    KEY_MTBF,
    KEY_LOAD,
    KEY_KEEP,
    KEY_STAGED,
    KEY_PROBE,
    KEY_IN_FLIGHT,
    KEY_ROUNDS,
    KEY_TIME,
    KEY_SAVE,
    KEY_JSON
};

static const struct argp_option option_list[] = {
    {"bytes", KEY_BYTES, "B", 0, "Size of one save on this device, like 512MiB or 1.5GB", 1},
    {"iteration-time", KEY_ITERATION, "T", 0, "Time of an iteration without saving, like 60ms", 1},
    {"overhead", KEY_OVERHEAD, "SHARE", 0, "Slow-down allowed (3%)", 1},
    {"memory", KEY_MEMORY, "M", 0, "Memory for saves in flight, beyond the state itself (no limit)", 1},
    {"storage", KEY_STORAGE, "S", 0, "Disk for saves (what is free)", 1},
    {"keep", KEY_KEEP, "K", 0, "Durable saves kept (1)", 1},
    {"mtbf", KEY_MTBF, "H", 0, "Mean time between failures of the whole job, like 8h", 1},
    {"load", KEY_LOAD, "T", 0, "From a failure to training again (reading at the measured rate)", 1},
    {"staged", KEY_STAGED, NULL, 0,
     "The state is overwritten in place (PyTorch): saves copy it first, instead of holding on to a version",
     1},
    {"probe", KEY_PROBE, "B", 0, "Measure with saves of this size and scale up", 2},
    {"in-flight", KEY_IN_FLIGHT, "N", 0, "Try up to N saves in flight (8)", 2},
    {"rounds", KEY_ROUNDS, "R", 0, "Rounds per measurement (3)", 2},
    {"time", KEY_TIME, "T", 0, "Time for measuring to aim at (60s)", 2},
    {"save", KEY_SAVE, NULL, 0, "Keep the result in DIR/tune.json", 3},
    {"json", KEY_JSON, NULL, 0, "Print the result as JSON", 3},
    {"quiet", 'q', NULL, 0, "No progress on the standard error output", 3},
    {"help", 'h', NULL, 0, "Print this text, and stop", 4},
    {0},
};

static const char doc[] =
    "Measure how DIR takes saves, by real saves in a folder there that is removed again, and choose how many "
    "to have in flight, with how many writers and what chunks, and how often to save. docs/tuning.md has a "
    "worked example.\n\n" CLI_BYTES_HELP;

static const char examples[] =
    "\nExamples:\n"
    "  pawl ckpt tune /mnt/ckpt --bytes 4.2GB --iteration-time 350ms\n"
    "  pawl ckpt tune . --bytes 512MiB --iteration-time 60ms --mtbf 8h --save --json\n"
    "\n";

/* Bounds of the engine (in flight, kept) and of a measurement. */
#define IN_FLIGHT_MAX 32u
#define KEEP_MAX      64u
#define ROUNDS_MAX    64u

static error_t parse_amount(struct arguments *a, int key, char *arg) {
    struct pawl_tune_options *o = &a->options;
    struct pawl_tune_need *n = &o->need;
    switch (key) {
    case KEY_BYTES:
        return cli_take_bytes(&a->problem, "bytes", arg, &n->bytes), 0;
    case KEY_ITERATION:
        return cli_take_seconds(&a->problem, "iteration-time", arg, &n->iteration_s), 0;
    case KEY_OVERHEAD:
        return cli_take_share(&a->problem, "overhead", arg, &n->overhead), 0;
    case KEY_MEMORY:
        return cli_take_bytes(&a->problem, "memory", arg, &n->memory_bytes), 0;
    case KEY_STORAGE:
        return cli_take_bytes(&a->problem, "storage", arg, &n->storage_bytes), 0;
    case KEY_MTBF:
        return cli_take_seconds(&a->problem, "mtbf", arg, &n->mtbf_s), 0;
    case KEY_LOAD:
        return cli_take_seconds(&a->problem, "load", arg, &n->load_s), 0;
    case KEY_KEEP:
        return cli_take_count(&a->problem, "keep", arg, KEEP_MAX, &n->keep), 0;
    case KEY_PROBE:
        return cli_take_bytes(&a->problem, "probe", arg, &o->probe_bytes), 0;
    case KEY_IN_FLIGHT:
        return cli_take_count(&a->problem, "in-flight", arg, IN_FLIGHT_MAX, &o->in_flight_max), 0;
    case KEY_ROUNDS:
        return cli_take_count(&a->problem, "rounds", arg, ROUNDS_MAX, &o->rounds), 0;
    case KEY_TIME:
        return cli_take_seconds(&a->problem, "time", arg, &o->seconds), 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct arguments *a = state->input;
    switch (key) {
    case KEY_STAGED:
        a->options.need.staged = true;
        return 0;
    case KEY_SAVE:
        a->options.keep_result = true;
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
        return parse_amount(a, key, arg);
    }
}

static const struct argp parser = {option_list, parse, "DIR", doc, NULL, NULL, NULL};

/* ---- output ---- */

static void print_device(const struct pawl_tune_result *r) {
    char a[PAWL_AMOUNT_TEXT], b[PAWL_AMOUNT_TEXT];
    const struct pawl_device *d = &r->device;
    printf("saves of %s by %s%s\n", pawl_bytes_text(r->bytes, a), r->store,
           r->uring_direct ? "" : " (the fast way, io_uring with O_DIRECT, is not to be had here)");
    printf("device alone       write %.0f MB/s, read %.0f MB/s (%s, %u at once of %s)\n", d->write_bps * 1e-6,
           d->read_bps * 1e-6, d->mode, d->depth, pawl_bytes_text(d->piece_bytes, b));
    printf("memory copy        %.0f MB/s\n", r->copy_bps * 1e-6);
    if (r->note[0] != 0) printf("note               %s\n", r->note);
}

static void print_points(const struct pawl_tune_result *r) {
    printf("\n  %9s %8s %9s %11s %11s %9s %9s\n", "in flight", "writers", "chunk", "Tw", "Tw/N", "MB/s",
           "blocked");
    for (uint32_t i = 0; i < r->point_count; i++) {
        char chunk[PAWL_AMOUNT_TEXT], write[PAWL_AMOUNT_TEXT], each[PAWL_AMOUNT_TEXT],
            stall[PAWL_AMOUNT_TEXT];
        const struct pawl_tune_point *p = &r->points[i], *c = &r->choice.point;
        bool chosen =
            p->in_flight == c->in_flight && p->writers == c->writers && p->chunk_bytes == c->chunk_bytes;
        printf("%c %9u %8u %9s %11s %11s %9.0f %9s\n", chosen ? '*' : ' ', p->in_flight, p->writers,
               pawl_bytes_text(p->chunk_bytes, chunk), pawl_seconds_text(p->write_s, write),
               pawl_seconds_text(p->write_s / p->in_flight, each),
               (double)r->bytes * p->in_flight / p->write_s * 1e-6, pawl_seconds_text(p->stall_s, stall));
    }
}

static void print_choice(const struct pawl_tune_result *r) {
    char a[PAWL_AMOUNT_TEXT], b[PAWL_AMOUNT_TEXT];
    const struct pawl_tune_choice *c = &r->choice;
    const struct pawl_tune_interval *i = &c->interval;
    printf("\nchoice             %u in flight, %u writers, %s chunks\n", c->point.in_flight, c->point.writers,
           pawl_bytes_text(c->point.chunk_bytes, a));
    printf("save every         %" PRIu64 " iteration%s, %s\n", i->every, i->every == 1 ? "" : "s",
           pawl_seconds_text((double)i->every * r->need.iteration_s, a));
    printf("slow-down          %.2f %% expected, %.2f %% allowed; a save stalls %s\n",
           100 * (i->slowdown - 1), 100 * r->need.overhead, pawl_seconds_text(c->stall_s, a));
    printf("a failure loses    %s on the average, %s at worst, loading included\n",
           pawl_seconds_text(i->lost_mean_s, a), pawl_seconds_text(i->lost_worst_s, b));
    if (r->need.mtbf_s > 0)
        printf("without a limit    Young %s, Daly %s\n", pawl_seconds_text(i->young_s, a),
               pawl_seconds_text(i->daly_s, b));
    printf("needs              %s of memory beyond the state, %s of disk (%u slots)\n",
           pawl_bytes_text(c->memory_bytes, a), pawl_bytes_text(c->storage_bytes, b),
           c->point.in_flight + r->need.keep + r->need.spare_slots);
    printf("why                %s\n", c->why);
}

static int print_result(const struct arguments *a, const struct pawl_tune_result *r) {
    if (a->json) return ckpt_put_json(pawl_tune_json(r));
    print_device(r);
    print_points(r);
    print_choice(r);
    return cli_flush();
}

static int run(const struct arguments *a) {
    static struct pawl_tune_result result; /* some 10 KB */
    struct pawl_error e = {0};
    if (a->problem.text[0] != 0)
        return cli_error(PAWL_ARGUMENT, "%s; see pawl ckpt tune --help", a->problem.text);
    if (a->help) return cli_argp_help(&parser, "pawl ckpt tune", examples, stdout);
    if (a->options.dir == NULL)
        return cli_error(PAWL_ARGUMENT,
                         "the folder is missing: pawl ckpt tune DIR; see pawl ckpt tune --help");
    if (a->options.need.bytes == 0)
        return cli_error(PAWL_ARGUMENT, "option --bytes is missing: the size of one save, like 512MiB");
    if (a->options.need.iteration_s == 0)
        return cli_error(PAWL_ARGUMENT, "option --iteration-time is missing: of one iteration, like 60ms");
    pawl_code code = pawl_tune(&a->options, &result, &e);
    if (code != PAWL_OK) return cli_error(code, "%s", e.text);
    return result.stopped_by == 0 ? print_result(a, &result) : ckpt_stopped(result.stopped_by);
}

int cli_ckpt_tune(int argc, char **argv) {
    char name[] = "pawl ckpt tune";
    struct arguments a = {0};
    argv[0] = name;
    error_t err = argp_parse(&parser, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, NULL, &a);
    if (err != 0 && a.problem.text[0] == 0)
        snprintf(a.problem.text, sizeof a.problem.text, "the arguments cannot be read: %s", strerror(err));
    return run(&a);
}
