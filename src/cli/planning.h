/* What `pawl plan` and `pawl sim` share: profiles by name or file, warnings, signals, seeds. */
#ifndef CLI_PLANNING_H
#define CLI_PLANNING_H

#include <pawl/plan.h>

#include "cli/amount.h"

/* A built-in model, letter case aside, cut into so many stages, or a file. */
pawl_code cli_profile_find(const char *name, uint32_t stages, struct pawl_profile **out,
                           struct pawl_error *e);
/* Each line as a warning on the standard error output. */
void cli_print_warnings(const char *lines);
/* True from the first SIGINT or SIGTERM on; the second one ends the process. */
const bool *cli_watch_signals(void);
void cli_take_seed(struct cli_problem *p, const char *option, const char *text, uint64_t *out);

#endif
