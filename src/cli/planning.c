/* See planning.h. Tested in tests/e2e/plan_test.py and tests/e2e/sim_test.py. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/planning.h"

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
