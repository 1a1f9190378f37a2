/* The pawl command: finds the subcommand and hands over. Tested in tests/e2e/cli_test.py. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cli/cli.h"

static int print_help(FILE *out) {
    fprintf(out, "pawl keeps the training of large neural networks going when machines fail.\n"
                 "\n"
                 "Usage: pawl COMMAND [ARGUMENT...]\n"
                 "\n"
                 "  train SPEC.yaml   train, or resume, the run that a spec describes\n"
                 "  chaos SPEC.yaml   run it under random faults, and check every promise\n"
                 "  join RUN_DIR      give the run that is going on there one more worker\n"
                 "  drain RUN_DIR RANK  let a worker leave it without loss\n"
                 "  stop RUN_DIR      save it and end it\n"
                 "  status RUN_DIR    who is there, which step, who makes no progress\n"
                 "  plan              the best schedule of a cluster, also with machines missing\n"
                 "  sim               what failures over time cost under each policy\n"
                 "  ckpt SUBCOMMAND   look at checkpoints (ls, info, verify, export, diff, rollback, gc),\n"
                 "                    measure a disk and choose how to save (tune, bench)\n"
                 "  help [COMMAND]    this text, or that of a command\n"
                 "  version           print the version\n"
                 "\n"
                 "Examples:\n"
                 "  pawl train examples/text.yaml\n"
                 "  pawl plan --pipelines 3 --stages 4 --microbatches 6 --fail 1:2\n"
                 "  pawl ckpt ls runs/text\n"
                 "\n");
    char *codes = cli_exit_codes();
    if (codes != NULL) fputs(codes, out);
    free(codes);
    return fflush(out) == 0 ? 0 : cli_error(PAWL_IO, "writing the help: %s", strerror(errno));
}

static int print_version(void) {
    printf("pawl %s\n", pawl_version());
    return fflush(stdout) == 0 ? 0 : cli_error(PAWL_IO, "writing the version: %s", strerror(errno));
}

static const char *const attending[] = {"join", "drain", "stop", "status", NULL};

static int help(int argc, char **argv) {
    if (argc < 2) return print_help(stdout);
    if (strcmp(argv[1], "train") == 0) return cli_train_help(stdout);
    if (strcmp(argv[1], "chaos") == 0) return cli_chaos_help(stdout);
    for (const char *const *name = attending; *name != NULL; name++)
        if (strcmp(argv[1], *name) == 0) return cli_attend_help(*name, stdout);
    if (strcmp(argv[1], "plan") == 0) return cli_plan_help(stdout);
    if (strcmp(argv[1], "sim") == 0) return cli_sim_help(stdout);
    if (strcmp(argv[1], "ckpt") == 0) return cli_ckpt_help(argc - 1, argv + 1);
    return cli_error(PAWL_ARGUMENT, "there is no command \"%s\": see pawl help", argv[1]);
}

/* Started by the launcher, not by people: `pawl worker FD`, `pawl coordinate FD`. */
static int child(int argc, char **argv, int (*body)(int channel)) {
    char *end = NULL;
    errno = 0;
    long fd = argc == 2 ? strtol(argv[1], &end, 10) : -1;
    if (argc != 2 || errno != 0 || *argv[1] == 0 || *end != 0 || fd < 0 || fd > 1 << 20)
        return cli_error(PAWL_ARGUMENT, "%s is started by pawl train, with the number of a descriptor",
                         argv[0]);
    return body((int)fd);
}

/* A file that pawl opens must not become its standard output because that was closed. The lowest free number
 * is the closed one. A closed standard output takes no bytes afterwards either: whoever prints a result there
 * is told that it went nowhere. */
static void keep_standard_descriptors(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(pawl_code_exit(PAWL_IO));
}

/* A child is started by /proc/self/exe: `ps` and `pgrep` are not to call it exe. */
static void keep_name(void) { prctl(PR_SET_NAME, program_invocation_short_name); }

static int run(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return cli_error(PAWL_ARGUMENT, "a command is missing: see pawl help");
    }
    const char *command = argv[1];
    if (strcmp(command, "train") == 0) return cli_train(argc - 1, argv + 1);
    if (strcmp(command, "chaos") == 0) return cli_chaos(argc - 1, argv + 1);
    if (strcmp(command, "plan") == 0) return cli_plan(argc - 1, argv + 1);
    if (strcmp(command, "sim") == 0) return cli_sim(argc - 1, argv + 1);
    if (strcmp(command, "ckpt") == 0) return cli_ckpt(argc - 1, argv + 1);
    if (strcmp(command, "join") == 0) return cli_join(argc - 1, argv + 1);
    if (strcmp(command, "drain") == 0) return cli_drain(argc - 1, argv + 1);
    if (strcmp(command, "stop") == 0) return cli_stop(argc - 1, argv + 1);
    if (strcmp(command, "status") == 0) return cli_status(argc - 1, argv + 1);
    if (strcmp(command, "worker") == 0) return child(argc - 1, argv + 1, pawl_train_worker);
    if (strcmp(command, "coordinate") == 0) return child(argc - 1, argv + 1, pawl_train_coordinator);
    if (strcmp(command, "help") == 0) return help(argc - 1, argv + 1);
    if (strcmp(command, "--help") == 0 || strcmp(command, "-h") == 0) return print_help(stdout);
    if (strcmp(command, "version") == 0 || strcmp(command, "--version") == 0 || strcmp(command, "-V") == 0)
        return print_version();
    return cli_error(PAWL_ARGUMENT, "there is no command \"%s\": see pawl help", command);
}

/* Results are flushed, and their errors told, by whoever printed them. A file that grows beyond what the user
 * may have (ulimit -f) is a write that fails, here and in every child, and not a death. */
int main(int argc, char **argv) {
    keep_standard_descriptors();
    keep_name();
    signal(SIGXFSZ, SIG_IGN);
    int code = run(argc, argv);
    fflush(NULL);
#ifdef PAWL_SANITIZED
    return code; /* leaks are looked for at the exit */
#else
    /* Without what libraries do at the exit: OpenBLAS waits there for its threads, for ever where the system
     * had refused to make them (a limit on address space). */
    _exit(code);
#endif
}
