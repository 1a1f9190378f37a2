/* What `pawl plan` and `pawl sim` share: options for the output, profiles by name or file, warnings, signals,
 * seeds. */
#ifndef CLI_PLANNING_H
#define CLI_PLANNING_H

#include <argp.h>

#include <pawl/plan.h>

#include "cli/amount.h"

/* --format, --json, -o, -q and -h, and what is wrong with any option. */
struct cli_planning {
    const char *command; /* "plan" */
    const char *(*format_name)(int format);
    int format_count;
    struct cli_problem problem;
    int format;
    const char *out;
    bool quiet, help;
};
enum { CLI_KEY_FORMAT = 1024, CLI_KEY_JSON }; /* of options; -o, -q and -h are their own */
/* One of those options, a word that is none, or one that argp does not know; else ARGP_ERR_UNKNOWN. */
error_t cli_parse_planning(struct cli_planning *c, int key, const char *arg, const struct argp_state *state);
/* Reads the arguments for `parser`, whose input is `arguments`. */
void cli_read_planning(struct cli_planning *c, const struct argp *parser, int argc, char **argv,
                       void *arguments);
/* There is nothing to do but to blame, or to help: *exit_code says how that went. */
bool cli_planning_ends(const struct cli_planning *c, int (*help)(FILE *), int *exit_code);
/* The result goes where -o says; returns the exit code. */
int cli_write_planning(const struct cli_planning *c,
                       pawl_code (*write)(const void *result, int format, FILE *out, struct pawl_error *e),
                       const void *result);

/* A built-in model, letter case aside, cut into so many stages, or a file. */
pawl_code cli_profile_find(const char *name, uint32_t stages, struct pawl_profile **out,
                           struct pawl_error *e);
/* Each line as a warning on the standard error output. */
void cli_print_warnings(const char *lines);
/* True from the first SIGINT or SIGTERM on; the second one ends the process. */
const bool *cli_watch_signals(void);
void cli_take_seed(struct cli_problem *p, const char *option, const char *text, uint64_t *out);

#endif
