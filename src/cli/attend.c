/* `pawl join`, `drain`, `stop`, `status`: a word with the launcher of a run that is going on.
 *
 * A join is a process of its own for each worker, a child of this one, which passes notices (SIGTERM and
 * others) on (the workers then leave without loss) and ends with the last of them. Tested in
 * tests/e2e/attend_test.py. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

/* More workers of one call are more than one machine has. */
#define JOIN_MAX 1024

struct arguments {
    const char *name; /* of the command */
    const char *words[2];
    int word_count, words_wanted;
    long count;
    bool json, help;
    char problem[256]; /* with the arguments; empty: none */
};

static const struct argp_option help_only[] = {{"help", 'h', NULL, 0, "Print this text, and stop", 9}, {0}};
static const struct argp_option join_options[] = {
    {"workers", 'n', "N", 0, "Give N workers, each a process and a place (default 1)", 1},
    {"help", 'h', NULL, 0, "Print this text, and stop", 9},
    {0}};
static const struct argp_option status_options[] = {
    {"json", 'j', NULL, 0, "Print it as JSON (docs/formats/run.md)", 1},
    {"help", 'h', NULL, 0, "Print this text, and stop", 9},
    {0}};

static void blame(struct arguments *a, const char *what, const char *which) {
    if (a->problem[0] == 0) snprintf(a->problem, sizeof a->problem, what, which);
}

static bool parse_number(const char *text, long least, long most, long *out) {
    char *end = NULL;
    errno = 0;
    *out = strtol(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == 0 && errno == 0 && *out >= least && *out <= most;
}

static error_t parse(int key, char *arg, struct argp_state *state) {
    struct arguments *a = state->input;
    switch (key) {
    case 'n':
        if (!parse_number(arg, 1, JOIN_MAX, &a->count))
            blame(a, "option --workers is \"%s\": give a whole number from 1 to 1024", arg);
        return 0;
    case 'j':
        a->json = true;
        return 0;
    case 'h':
        a->help = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->word_count < a->words_wanted)
            a->words[a->word_count++] = arg;
        else
            blame(a, "\"%s\" is one argument too many", arg);
        return 0;
    case ARGP_KEY_ERROR:
        blame(a, "option \"%s\" is none of this command, or lacks its value", state->argv[state->next - 1]);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct command {
    const char *name, *usage;
    int words;
    struct argp parser;
    const char *examples;
} commands[] = {
    {"join",
     "pawl join",
     1,
     {join_options, parse, "RUN_DIR",
      "Give the run that is going on in RUN_DIR one more worker: in the place of a lost one, or as part of "
      "one "
      "more pipeline. The others go on while it takes its state from them. The weights stay the same bits. "
      "SIGTERM or SIGUSR1 lets it leave again without loss.",
      NULL, NULL, NULL},
     "\nExamples:\n  pawl join runs/text\n  pawl join runs/text -n 4\n\n"},
    {"drain",
     "pawl drain",
     2,
     {help_only, parse, "RUN_DIR RANK",
      "Let worker RANK (see pawl status) leave the run that is going on in RUN_DIR: its work is planned "
      "anew, its "
      "saves end, then it goes. Returns when it has. If the run cannot do without it, the run is saved and "
      "ends.",
      NULL, NULL, NULL},
     "\nExample:\n  pawl drain runs/text 3\n\n"},
    {"stop",
     "pawl stop",
     1,
     {help_only, parse, "RUN_DIR",
      "Save the next step of the run that is going on in RUN_DIR, then end it. The same command resumes it.",
      NULL, NULL, NULL},
     "\nExample:\n  pawl stop runs/text\n\n"},
    {"status",
     "pawl status",
     1,
     {status_options, parse, "RUN_DIR",
      "Who takes part in the run that is going on in RUN_DIR: step, newest durable step, and for each worker "
      "its "
      "role, its phase, and how long ago it made progress.",
      NULL, NULL, NULL},
     "\nExamples:\n  pawl status runs/text\n  pawl status runs/text --json\n\n"},
};

static const struct command *command_of(const char *name) {
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

int cli_attend_help(const char *name, FILE *out) {
    const struct command *c = command_of(name);
    return cli_argp_help(&c->parser, c->usage, c->examples, out);
}

/* True: go on. False: *exit_code is the answer. */
static bool understand(const char *name, int argc, char **argv, struct arguments *a, int *exit_code) {
    const struct command *c = command_of(name);
    char own[32];
    *a = (struct arguments){.name = c->usage, .words_wanted = c->words, .count = 1};
    snprintf(own, sizeof own, "%s", c->usage);
    argv[0] = own;
    error_t err = argp_parse(&c->parser, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, NULL, a);
    if (err != 0) blame(a, "the arguments cannot be read: %s", strerror(err));
    if (a->word_count < a->words_wanted) blame(a, "arguments are missing: %s", c->parser.args_doc);
    if (a->help)
        *exit_code = cli_attend_help(name, stdout);
    else if (a->problem[0] != 0)
        *exit_code = cli_error(PAWL_ARGUMENT, "%s; see %s --help", a->problem, c->usage);
    else
        return true;
    return false;
}

/* Prints what the launcher said. */
static int finish(pawl_code code, char *text, const struct pawl_error *e) {
    if (code != PAWL_OK) return cli_error(code, "%s", e->text);
    size_t size = strlen(text);
    printf(size > 0 && text[size - 1] == '\n' ? "%s" : "%s\n", text);
    free(text);
    return cli_flush();
}

int cli_stop(int argc, char **argv) {
    struct arguments a;
    struct pawl_error e;
    char *text = NULL;
    int exit_code;
    if (!understand("stop", argc, argv, &a, &exit_code)) return exit_code;
    pawl_code code = pawl_train_stop(a.words[0], &text, &e);
    return finish(code, text, &e);
}

int cli_drain(int argc, char **argv) {
    struct arguments a;
    struct pawl_error e;
    char *text = NULL;
    int exit_code;
    long rank;
    if (!understand("drain", argc, argv, &a, &exit_code)) return exit_code;
    if (!parse_number(a.words[1], 0, UINT32_MAX - 1, &rank))
        return cli_error(PAWL_ARGUMENT, "RANK is \"%s\": give the number of a worker, see pawl status",
                         a.words[1]);
    pawl_code code = pawl_train_drain(a.words[0], (uint32_t)rank, &text, &e);
    return finish(code, text, &e);
}

int cli_status(int argc, char **argv) {
    struct arguments a;
    struct pawl_error e;
    char *text = NULL;
    int exit_code;
    if (!understand("status", argc, argv, &a, &exit_code)) return exit_code;
    pawl_code code = pawl_train_status(a.words[0], a.json, &text, &e);
    return finish(code, text, &e);
}

/* --- join --- */

static void tell_wait(const char *text) { fprintf(stderr, "%s\n", text); }

static int become_worker(const char *run_dir) {
    uint32_t rank;
    int channel;
    char **program;
    struct pawl_error e;
    pawl_code code = pawl_train_join(run_dir, tell_wait, &rank, &channel, &program, &e);
    if (code != PAWL_OK) return cli_error(code, "%s", e.text);
    fprintf(stderr, "joined as worker %u\n", rank);
    if (program == NULL) return pawl_train_worker(channel);
    fcntl(channel, F_SETFD, 0);
    fflush(NULL);
    execv(program[0], program);
    return cli_error(PAWL_IO, "%s cannot be started: %s", program[0], strerror(errno));
}

/* Those of children, and notices. */
static void signals_of_parent(sigset_t *out) {
    size_t count;
    const int *notices = pawl_train_notices(&count);
    sigemptyset(out);
    sigaddset(out, SIGCHLD);
    for (size_t i = 0; i < count; i++) sigaddset(out, notices[i]);
}

/* Exit code of the first child that failed. */
static int await_children(const pid_t *children, long count, const sigset_t *signals) {
    int first_failure = 0;
    for (long left = count; left > 0;) {
        int status, signal = sigwaitinfo(signals, NULL);
        for (long i = 0; signal > 0 && signal != SIGCHLD && i < count; i++)
            if (kill(children[i], 0) == 0) kill(children[i], SIGTERM);
        while (left > 0 && waitpid(-1, &status, WNOHANG) > 0) {
            int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            if (first_failure == 0) first_failure = code;
            left--;
        }
    }
    return first_failure;
}

static int start_children(const char *run_dir, pid_t *children, long count, const sigset_t *signals) {
    for (long i = 0; i < count; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            sigprocmask(SIG_UNBLOCK, signals, NULL);
            fflush(NULL);
            _exit(become_worker(run_dir));
        }
        if (children[i] < 0) {
            int err = errno;
            for (long k = 0; k < i; k++) kill(children[k], SIGKILL);
            return cli_error(PAWL_IO, "cannot start a worker: %s", strerror(err));
        }
    }
    return await_children(children, count, signals);
}

int cli_join(int argc, char **argv) {
    struct arguments a;
    int exit_code;
    sigset_t signals;
    if (!understand("join", argc, argv, &a, &exit_code)) return exit_code;
    pid_t *children = calloc((size_t)a.count, sizeof *children);
    if (children == NULL) return cli_error(PAWL_MEMORY, "no memory for %ld workers", a.count);
    signals_of_parent(&signals);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    exit_code = start_children(a.words[0], children, a.count, &signals);
    free(children);
    return exit_code;
}
