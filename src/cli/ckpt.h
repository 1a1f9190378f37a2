/* What the subcommands of `pawl ckpt` share: their options, their errors, progress, sizes and safe text.
 * Tested in tests/e2e/ckpt_test.py. */
#ifndef CLI_CKPT_H
#define CLI_CKPT_H

#include <stdio.h>

#include <pawl/inspect.h>

#include "cli/cli.h"

/* argv[0] is the subcommand's name; each returns the process's exit code. */
int cli_ckpt_ls(int argc, char **argv);
int cli_ckpt_info(int argc, char **argv);
int cli_ckpt_verify(int argc, char **argv);
int cli_ckpt_export(int argc, char **argv);
int cli_ckpt_diff(int argc, char **argv);
int cli_ckpt_rollback(int argc, char **argv);
int cli_ckpt_gc(int argc, char **argv);
int cli_ckpt_tune(int argc, char **argv);
int cli_ckpt_bench(int argc, char **argv);

/* ---- options ---- */
enum { CKPT_HELP = 1, CKPT_JSON, CKPT_PROGRESS, CKPT_UNCHECKED, CKPT_OWN = 100 };
struct ckpt_flag {
    int key;
    char letter;                     /* 0: none */
    const char *name, *value, *help; /* value null: takes none */
};
struct ckpt_args {
    bool help, json, progress, unchecked;
    char **words; /* what is no option, in order */
    int count;
    char problem[256]; /* the first one; empty: none */
};
struct ckpt_usage {
    const char *name, *words, *text, *examples;
    const struct ckpt_flag *flags; /* besides --help and --json; the last one has no name */
    void (*take)(void *context, int key, const char *value,
                 struct ckpt_args *args); /* keys from CKPT_OWN on */
};
/* True: go on. False: *exit_code is the answer (help was printed, or an error). */
bool ckpt_parse(const struct ckpt_usage *usage, int argc, char **argv, struct ckpt_args *args, void *context,
                int *exit_code);
void ckpt_blame(struct ckpt_args *args, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool ckpt_is_number(const char *text);
/* A whole number from 1; false: blamed. */
bool ckpt_take_number(struct ckpt_args *args, const char *what, const char *text, uint64_t *out);
/* Bytes, as every command takes them (cli/amount.h); false: blamed. */
bool ckpt_take_bytes(struct ckpt_args *args, const char *option, const char *text, uint64_t *out);

/* ---- output ---- */
struct ckpt_progress {
    bool on, terminal, shown;
    int64_t next_ns;
};
/* For pawl_inspect_options; ckpt_progress_end clears the line. */
struct pawl_inspect_options ckpt_inspect_options(const struct ckpt_args *args,
                                                 struct ckpt_progress *progress);
void ckpt_progress_end(struct ckpt_progress *progress);

void ckpt_put(const char *text);                      /* to the standard output, made harmless */
const char *ckpt_size(uint64_t bytes, char out[32]);  /* "1.5 GB" */
const char *ckpt_time(int64_t seconds, char out[32]); /* "2026-01-31 12:00:00", "-" */
/* JSON from the library, freed; null: no memory. */
int ckpt_put_json(char *json);
/* The last line on the screen: the cause. Returns the exit code. */
int ckpt_fail(pawl_code code, const struct pawl_error *e);
/* Measuring was ended by a signal, after which it cleaned up: ends the process as the signal would have. */
int ckpt_stopped(int by_signal);
/* Flushes, then 0 or the error's line. */
int ckpt_end(pawl_code code, const struct pawl_error *e);

#endif
