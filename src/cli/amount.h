/* Options that are amounts: taken, or refused with one line that names the option. */
#ifndef CLI_AMOUNT_H
#define CLI_AMOUNT_H

#include <stdbool.h>
#include <stdint.h>

/* For the help of commands that take amounts of bytes: what pawl_parse_bytes reads. */
#define CLI_BYTES_HELP                                                                                       \
    "Amounts of bytes are a number and a unit, letter case aside: 100kB, 512MiB.\n"                          \
    "K, M, G, T alone or with iB are powers of 1024, with B powers of 1000."

struct cli_problem { /* the first with the arguments; empty: none */
    char text[1024];
};

void cli_blame(struct cli_problem *p, const char *option, const char *why);
/* Above 0. */
void cli_take_bytes(struct cli_problem *p, const char *option, const char *text, uint64_t *out);
void cli_take_seconds(struct cli_problem *p, const char *option, const char *text, double *out);
void cli_take_share(struct cli_problem *p, const char *option, const char *text, double *out);
/* A whole decimal number in range; a count is 1 at least. */
void cli_take_whole(struct cli_problem *p, const char *option, const char *text, uint32_t least,
                    uint32_t most, uint32_t *out);
void cli_take_count(struct cli_problem *p, const char *option, const char *text, uint32_t most,
                    uint32_t *out);
/* A plain decimal number in range. */
void cli_take_number(struct cli_problem *p, const char *option, const char *text, double low, double high,
                     double *out);
/* The decimal number at *text, which moves past it; false: there is none. No signs, no names, no hexadecimal.
 */
bool cli_next_number(const char **text, double *out);
/* A second argument, where one of `what` is taken; an option that getopt refused. */
void cli_blame_argument(struct cli_problem *p, const char *argument, const char *what);
void cli_blame_option(struct cli_problem *p, const char *argument);

#endif
