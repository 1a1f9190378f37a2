/* See amount.h. Tested in tests/e2e/ckpt_tune_test.py. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <pawl/tune.h>

#include "cli/amount.h"

void cli_blame(struct cli_problem *p, const char *option, const char *why) {
    if (p->text[0] == 0) snprintf(p->text, sizeof p->text, "option --%s: %s", option, why);
}

void cli_take_bytes(struct cli_problem *p, const char *option, const char *text, uint64_t *out) {
    struct pawl_error e;
    if (pawl_parse_bytes(text, out, &e) != PAWL_OK)
        cli_blame(p, option, e.text);
    else if (*out == 0)
        cli_blame(p, option, "0 is too little");
}

void cli_take_seconds(struct cli_problem *p, const char *option, const char *text, double *out) {
    struct pawl_error e;
    if (pawl_parse_seconds(text, out, &e) != PAWL_OK)
        cli_blame(p, option, e.text);
    else if (*out <= 0)
        cli_blame(p, option, "0 is too little");
}

void cli_take_share(struct cli_problem *p, const char *option, const char *text, double *out) {
    struct pawl_error e;
    if (pawl_parse_share(text, out, &e) != PAWL_OK)
        cli_blame(p, option, e.text);
    else if (*out <= 0)
        cli_blame(p, option, "0 is too little: any save costs something");
}

void cli_take_whole(struct cli_problem *p, const char *option, const char *text, uint32_t least,
                    uint32_t most, uint32_t *out) {
    char *end = NULL, why[96];
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (*text >= '0' && *text <= '9' && *end == 0 && errno == 0 && value >= least && value <= most) {
        *out = (uint32_t)value;
        return;
    }
    snprintf(why, sizeof why, "\"%.40s\": give a whole number from %u to %u", text, least, most);
    cli_blame(p, option, why);
}

void cli_take_count(struct cli_problem *p, const char *option, const char *text, uint32_t most,
                    uint32_t *out) {
    cli_take_whole(p, option, text, 1, most, out);
}

bool cli_next_number(const char **text, double *out) {
    char *end = NULL;
    size_t size = strspn(*text, "0123456789.");
    if (strncasecmp(*text, "0x", 2) == 0) return false; /* strtod takes it */
    if (size == 0 || strcspn(*text, "0123456789") >= size) return false;
    errno = 0;
    *out = strtod(*text, &end); /* the command runs in the C locale */
    *text = end;
    return errno == 0 && isfinite(*out);
}

void cli_take_number(struct cli_problem *p, const char *option, const char *text, double low, double high,
                     double *out) {
    const char *at = text;
    char why[128];
    if (cli_next_number(&at, out) && *at == 0 && *out >= low && *out <= high) return;
    snprintf(why, sizeof why, "\"%.40s\": give a number from %.10g to %.10g", text, low, high);
    cli_blame(p, option, why);
}

void cli_blame_argument(struct cli_problem *p, const char *argument, const char *what) {
    if (p->text[0] == 0)
        snprintf(p->text, sizeof p->text, "\"%.400s\" is one argument too many: give one %s", argument, what);
}

void cli_blame_option(struct cli_problem *p, const char *argument) {
    if (p->text[0] == 0)
        snprintf(p->text, sizeof p->text, "option \"%.400s\" is unknown, or lacks its value, or takes none",
                 argument);
}
