/* Options, progress and output of the subcommands of `pawl ckpt`; see cli/ckpt.h. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/amount.h"
#include "cli/ckpt.h"

/* ---- options ---- */

static const struct ckpt_flag common_flags[] = {
    {CKPT_JSON, 0, "json", NULL, "Print one JSON object on the standard output (docs/ckpt-command.md)"},
    {CKPT_HELP, 'h', "help", NULL, "Print this text, and stop"},
    {0, 0, NULL, NULL, NULL},
};

#define FLAGS_MAX 32

void ckpt_blame(struct ckpt_args *args, const char *format, ...) {
    if (args->problem[0] != 0) return;
    va_list list;
    va_start(list, format);
    vsnprintf(args->problem, sizeof args->problem, format, list);
    va_end(list);
}

static void print_flag(const struct ckpt_flag *f) {
    char left[64];
    snprintf(left, sizeof left, "%c%c%s --%s%s%s", f->letter ? '-' : ' ', f->letter ? f->letter : ' ',
             f->letter ? "," : " ", f->name, f->value != NULL ? "=" : "", f->value != NULL ? f->value : "");
    printf("  %-30s %s\n", left, f->help);
}

static int print_usage(const struct ckpt_usage *u) {
    printf("Usage: pawl ckpt %s [OPTION...] %s\n\n%s\n\n", u->name, u->words, u->text);
    for (const struct ckpt_flag *f = u->flags; f->name != NULL; f++) print_flag(f);
    for (const struct ckpt_flag *f = common_flags; f->name != NULL; f++) print_flag(f);
    char *codes = cli_exit_codes();
    printf("\nExamples:\n%s\n%s", u->examples, codes != NULL ? codes : "");
    free(codes);
    return cli_flush();
}

struct table { /* for getopt_long */
    struct option options[FLAGS_MAX + 1];
    char letters[2 * FLAGS_MAX + 2];
    int count;
};

static void add_flags(struct table *t, const struct ckpt_flag *flags) {
    for (; flags->name != NULL && t->count < FLAGS_MAX; flags++) {
        int has = flags->value != NULL ? required_argument : no_argument;
        t->options[t->count++] = (struct option){flags->name, has, NULL, flags->key + 256};
        size_t at = strlen(t->letters);
        if (flags->letter != 0) snprintf(t->letters + at, 3, "%c%s", flags->letter, has ? ":" : "");
    }
}

static int key_of_letter(const struct ckpt_usage *u, int letter) {
    for (const struct ckpt_flag *f = u->flags; f->name != NULL; f++)
        if (f->letter == letter) return f->key;
    for (const struct ckpt_flag *f = common_flags; f->name != NULL; f++)
        if (f->letter == letter) return f->key;
    return 0;
}

static void take(const struct ckpt_usage *u, struct ckpt_args *a, void *context, int key) {
    if (key == CKPT_HELP) a->help = true;
    if (key == CKPT_JSON) a->json = true;
    if (key == CKPT_PROGRESS) a->progress = true;
    if (key == CKPT_UNCHECKED) a->unchecked = true;
    if (key >= CKPT_OWN) u->take(context, key, optarg, a);
}

bool ckpt_parse(const struct ckpt_usage *u, int argc, char **argv, struct ckpt_args *args, void *context,
                int *exit_code) {
    struct table t = {.letters = ":"};
    add_flags(&t, u->flags);
    add_flags(&t, common_flags);
    *args = (struct ckpt_args){0};
    optind = 0; /* begin anew, as glibc has it */
    for (int found; (found = getopt_long(argc, argv, t.letters, t.options, NULL)) != -1;) {
        if (found == ':')
            ckpt_blame(args, "option %s needs a value", argv[optind - 1]);
        else if (found == '?')
            ckpt_blame(args, "option \"%s\" is unknown, ambiguous or takes no value", argv[optind - 1]);
        else
            take(u, args, context, found >= 256 ? found - 256 : key_of_letter(u, found));
    }
    args->words = argv + optind;
    args->count = argc - optind;
    if (args->help && args->problem[0] == 0) {
        *exit_code = print_usage(u);
        return false;
    }
    if (args->problem[0] == 0) return true;
    *exit_code = cli_error(PAWL_ARGUMENT, "%s; see pawl ckpt %s --help", args->problem, u->name);
    return false;
}

bool ckpt_is_number(const char *text) { return *text != 0 && strspn(text, "0123456789") == strlen(text); }

bool ckpt_take_number(struct ckpt_args *args, const char *what, const char *text, uint64_t *out) {
    errno = 0;
    unsigned long long value = ckpt_is_number(text) ? strtoull(text, NULL, 10) : 0;
    *out = value;
    if (value > 0 && errno == 0 && value < UINT64_MAX) return true;
    ckpt_blame(args, "%s is \"%s\": give a whole number from 1", what, text);
    return false;
}

bool ckpt_take_bytes(struct ckpt_args *args, const char *option, const char *text, uint64_t *out) {
    struct cli_problem problem = {.text = ""};
    cli_take_bytes(&problem, option, text, out);
    if (problem.text[0] != 0) ckpt_blame(args, "%s", problem.text);
    return problem.text[0] == 0;
}

/* ---- progress ---- */

#define PROGRESS_EVERY_NS INT64_C(200000000)

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void show_progress(void *context, const char *what, uint64_t done, uint64_t total) {
    struct ckpt_progress *p = context;
    int64_t now = now_ns();
    if (!p->on || (now < p->next_ns && done < total)) return;
    p->next_ns = now + PROGRESS_EVERY_NS;
    double share = total > 0 ? 100.0 * (double)done / (double)total : 100.0;
    fprintf(stderr, p->terminal ? "\r\033[K%s %.0f %%" : "%s %.0f %%\n", what, share);
    p->shown = true;
}

struct pawl_inspect_options ckpt_inspect_options(const struct ckpt_args *args,
                                                 struct ckpt_progress *progress) {
    bool terminal = isatty(STDERR_FILENO) == 1;
    *progress = (struct ckpt_progress){.on = terminal || args->progress, .terminal = terminal};
    return (struct pawl_inspect_options){
        .unchecked = args->unchecked, .progress = show_progress, .progress_context = progress};
}

void ckpt_progress_end(struct ckpt_progress *progress) {
    if (progress->terminal && progress->shown) fputs("\r\033[K", stderr);
    progress->shown = false;
}

/* ---- output ---- */

void ckpt_put(const char *text) {
    char *safe = pawl_inspect_safe_text(text, strlen(text));
    fputs(safe != NULL ? safe : "?", stdout);
    free(safe);
}

const char *ckpt_size(uint64_t bytes, char out[32]) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 999.5 && unit + 1 < sizeof units / sizeof units[0]; unit++) value /= 1000;
    snprintf(out, 32,
             unit == 0 || value >= 99.5 ? "%.0f %s"
             : value >= 9.95            ? "%.1f %s"
                                        : "%.2f %s",
             value, units[unit]);
    return out;
}

const char *ckpt_time(int64_t seconds, char out[32]) {
    time_t t = (time_t)seconds;
    struct tm parts;
    if (seconds == 0 || localtime_r(&t, &parts) == NULL ||
        strftime(out, 32, "%Y-%m-%d %H:%M:%S", &parts) == 0)
        snprintf(out, 32, "-");
    return out;
}

int ckpt_put_json(char *json) {
    if (json == NULL) return cli_error(PAWL_MEMORY, "no memory to print");
    fputs(json, stdout);
    free(json);
    return cli_flush();
}

int ckpt_stopped(int by_signal) {
    fprintf(stderr, "pawl: stopped by a signal; what was made for measuring is removed\n");
    raise(by_signal);
    return 128 + by_signal;
}

int ckpt_fail(pawl_code code, const struct pawl_error *e) {
    char *safe = pawl_inspect_safe_text(e->text, strlen(e->text));
    int exit_code = cli_error(code, "%s", safe != NULL ? safe : "");
    free(safe);
    return exit_code;
}

int ckpt_end(pawl_code code, const struct pawl_error *e) {
    int failed = cli_flush();
    if (failed != 0) return failed;
    return code == PAWL_OK ? 0 : ckpt_fail(code, e);
}
