/* `pawl ckpt SUBCOMMAND`: finds the subcommand and hands over. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ckpt.h"

struct subcommand {
    const char *name, *what;
    int (*run)(int argc, char **argv);
};

/* One line a subcommand, in the order of the help; its function is in src/cli/ckpt_*.c. */
static const struct subcommand subcommands[] = {
    {"ls", "list the steps that are stored, newest first", cli_ckpt_ls},
    {"info", "show what is in a step: tensors, files, extra data", cli_ckpt_info},
    {"verify", "read every byte and compare with its checksum", cli_ckpt_verify},
    {"export", "write a step as safetensors files for other programs", cli_ckpt_export},
    {"diff", "compare two steps, of one run or of two", cli_ckpt_diff},
    {"rollback", "go back to a step: later ones no longer count", cli_ckpt_rollback},
    {"gc", "remove files that nobody will ask for again", cli_ckpt_gc},
    {"tune", "measure a disk, and choose how to save and how often", cli_ckpt_tune},
    {"bench", "measure saving and restoring beside the disk alone", cli_ckpt_bench},
};

#define SUBCOMMANDS (sizeof subcommands / sizeof subcommands[0])

static const struct subcommand *find(const char *name) {
    for (size_t i = 0; i < SUBCOMMANDS; i++)
        if (strcmp(subcommands[i].name, name) == 0) return &subcommands[i];
    return NULL;
}

static int print_help(FILE *out) {
    fprintf(out,
            "Usage: pawl ckpt SUBCOMMAND [OPTION...] DIR\n"
            "\n"
            "Look at checkpoints and put them in order, without the program that made them. DIR is a\n"
            "run's folder, its store folder, or the store of one rank; also a copy, read-only, or in use.\n"
            "\n");
    for (size_t i = 0; i < SUBCOMMANDS; i++)
        fprintf(out, "  %-9s %s\n", subcommands[i].name, subcommands[i].what);
    char *codes = cli_exit_codes();
    fprintf(out, "\nEach has --help, with examples, and --json.\n\n%s", codes != NULL ? codes : "");
    free(codes);
    return fflush(out) == 0 ? 0 : cli_error(PAWL_IO, "writing the help: %s", strerror(errno));
}

int cli_ckpt_help(int argc, char **argv) {
    const struct subcommand *s = argc > 1 ? find(argv[1]) : NULL;
    char name[] = "help", option[] = "--help", *arguments[] = {name, option, NULL};
    if (s != NULL) return s->run(2, arguments);
    if (argc > 1) return cli_error(PAWL_ARGUMENT, "there is no \"ckpt %s\": see pawl ckpt --help", argv[1]);
    return print_help(stdout);
}

int cli_ckpt(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return cli_error(PAWL_ARGUMENT, "a subcommand is missing: see pawl ckpt --help");
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
        return cli_ckpt_help(argc - 1, argv + 1);
    const struct subcommand *s = find(argv[1]);
    if (s == NULL) return cli_error(PAWL_ARGUMENT, "there is no \"ckpt %s\": see pawl ckpt --help", argv[1]);
    return s->run(argc - 1, argv + 1);
}
