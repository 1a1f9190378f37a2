/* See planning.h. Tested in tests/e2e/plan_test.py and tests/e2e/sim_test.py. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/cli.h"
#include "cli/planning.h"

/* ---- options ---- */

static void take_format(struct cli_planning *c, const char *text) {
    char why[160];
    for (int i = 0; i < c->format_count; i++)
        if (strcmp(c->format_name(i), text) == 0) {
            c->format = i;
            return;
        }
    size_t size = (size_t)snprintf(why, sizeof why, "\"%.40s\": there are %s", text, c->format_name(0));
    for (int i = 1; i < c->format_count && size < sizeof why; i++)
        size += (size_t)snprintf(why + size, sizeof why - size, "%s%s",
                                 i + 1 < c->format_count ? ", " : " and ", c->format_name(i));
    cli_blame(&c->problem, "format", why);
}

error_t cli_parse_planning(struct cli_planning *c, int key, const char *arg, const struct argp_state *state) {
    switch (key) {
    case CLI_KEY_FORMAT:
        return take_format(c, arg), 0;
    case CLI_KEY_JSON:
        return take_format(c, "json"), 0;
    case 'o':
        return c->out = arg, 0;
    case 'q':
        return c->quiet = true, 0;
    case 'h':
        return c->help = true, 0;
    case ARGP_KEY_ARG:
        if (c->problem.text[0] == 0)
            snprintf(c->problem.text, sizeof c->problem.text,
                     "\"%.60s\" is no option: %s takes options alone", arg, c->command);
        return 0;
    case ARGP_KEY_ERROR:
        return cli_blame_option(&c->problem, state->argv[state->next - 1]), 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void cli_read_planning(struct cli_planning *c, const struct argp *parser, int argc, char **argv,
                       void *arguments) {
    char name[32], *former = argv[0];
    snprintf(name, sizeof name, "pawl %s", c->command);
    argv[0] = name;
    error_t err = argp_parse(parser, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, NULL, arguments);
    argv[0] = former;
    if (err != 0 && c->problem.text[0] == 0)
        snprintf(c->problem.text, sizeof c->problem.text, "the arguments cannot be read: %s", strerror(err));
}

bool cli_planning_ends(const struct cli_planning *c, int (*help)(FILE *), int *exit_code) {
    bool blamed = c->problem.text[0] != 0;
    if (blamed)
        *exit_code = cli_error(PAWL_ARGUMENT, "%s; see pawl %s --help", c->problem.text, c->command);
    else if (c->help)
        *exit_code = help(stdout);
    return blamed || c->help;
}

int cli_write_planning(const struct cli_planning *c,
                       pawl_code (*write)(const void *result, int format, FILE *out, struct pawl_error *e),
                       const void *result) {
    struct cli_file file;
    struct pawl_error e = {0};
    int exit_code = cli_file_open(&file, c->out);
    if (exit_code != 0) return exit_code;
    pawl_code code = write(result, c->format, file.out, &e);
    exit_code = cli_file_close(&file, code == PAWL_OK);
    return code != PAWL_OK ? cli_error(code, "%s", e.text) : exit_code;
}

/* ---- values ---- */

static bool is_built_in(const char *name) {
    for (const char *const *n = pawl_profile_names(); *n != NULL; n++)
        if (strcasecmp(*n, name) == 0) return true;
    return false;
}

pawl_code cli_profile_find(const char *name, uint32_t stages, struct pawl_profile **out,
                           struct pawl_error *e) {
    struct pawl_error unknown = {0};
    if (is_built_in(name)) return pawl_profile_builtin(name, stages, out, e);
    pawl_code code = pawl_profile_read(name, out, e);
    if (code != PAWL_NOT_FOUND || strchr(name, '/') != NULL) return code;
    /* Without a folder it may have been meant for a model: name those. */
    if (pawl_profile_builtin(name, stages, out, &unknown) == PAWL_NOT_FOUND)
        snprintf(e->text, sizeof e->text, "%.700s, and no file of that name", unknown.text);
    return code;
}

void cli_print_warnings(const char *lines) {
    for (const char *at = lines; *at != 0;) {
        size_t size = strcspn(at, "\n");
        fprintf(stderr, "pawl: warning: %.*s\n", (int)size, at);
        at += size + (at[size] == '\n');
    }
}

static bool stop; /* the handler can reach nothing else */

static void on_signal(int number) {
    (void)number;
    stop = true;
}

const bool *cli_watch_signals(void) {
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    return &stop;
}

void cli_take_seed(struct cli_problem *p, const char *option, const char *text, uint64_t *out) {
    char *end = NULL, why[96];
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (*text >= '0' && *text <= '9' && *end == 0 && errno == 0) return;
    snprintf(why, sizeof why, "\"%.40s\": give a whole number from 0", text);
    cli_blame(p, option, why);
}
