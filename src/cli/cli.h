/* What the command's files share. The command includes the public headers alone: it proves that they suffice.
 * It parses arguments, calls the library, prints; it decides nothing about training. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <argp.h>
#include <stdbool.h>
#include <stdio.h>

#include <pawl/train.h>

/* Subcommands: argv[0] is the subcommand's name. Each returns the process's exit code. */
int cli_train(int argc, char **argv);
int cli_train_help(FILE *out);
int cli_chaos(int argc, char **argv);
int cli_chaos_help(FILE *out);
int cli_join(int argc, char **argv);
int cli_drain(int argc, char **argv);
int cli_stop(int argc, char **argv);
int cli_status(int argc, char **argv);
int cli_attend_help(const char *command, FILE *out); /* of those four */
int cli_plan(int argc, char **argv);
int cli_plan_help(FILE *out);
int cli_sim(int argc, char **argv);
int cli_sim_help(FILE *out);
int cli_ckpt(int argc, char **argv);
int cli_ckpt_help(int argc, char **argv); /* argv[1], if any: of which subcommand */

/* `pawl: error: ...`, one line, the last one on the standard error output; returns the exit code of `code`.
 */
int cli_error(pawl_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Text for --help: every exit code with its meanings. malloc'ed; null without memory. */
char *cli_exit_codes(void);

/* The help that argp makes, examples, exit codes; `name` is what people type. Returns the exit code. */
int cli_argp_help(const struct argp *parser, const char *name, const char *examples, FILE *out);
/* The result was printed: 0, or the exit code of a failed write, which is one, unlike that of progress. */
int cli_flush(void);

/* A result that goes to a file, which takes the former one's place whole, or to the standard output. */
struct cli_file {
    const char *path; /* as given; null: the standard output */
    char *target;     /* the file that is replaced: where path leads; null: path is written to as it is */
    char *beside;     /* name in the target's folder until it has its own */
    bool nameless;    /* ... which the file has not got yet */
    FILE *out;        /* write here */
};
/* `path` null or "-": the standard output. 0, or the exit code of an error that was printed. */
int cli_file_open(struct cli_file *f, const char *path);
/* `written`: all of the result was; else the file is left as it was. 0 or an exit code. */
int cli_file_close(struct cli_file *f, bool written);

void cli_summary(const struct pawl_train_report *report, const char *report_path, FILE *out);

#endif
