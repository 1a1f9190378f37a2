/* A process of the launcher: how a worker or a coordinator is started, signalled, forgotten. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/launch_state.h"
#include "run/notice.h"
#include "run/start.h"

/* Descriptor that a worker and a coordinator find their channel on. */
#define CHILD_FD      3
#define CHILD_FD_TEXT "3"

static pawl_code no_room(struct pawl_error *e) {
    return error_set(e, PAWL_ARGUMENT, 0, "a program that is to be started has too long a path");
}

/* The program that runs, or the one that the options name instead. Of the one that runs this is the name
 * only: its file may be gone, or another one, when a child is started (image_of). */
static pawl_code find_program(struct launch *l, struct pawl_error *e) {
    const char *given = l->options->worker_program;
    if (given != NULL) {
        int n = snprintf(l->program, sizeof l->program, "%s", given);
        return n >= 0 && (size_t)n < sizeof l->program ? start_check("--worker-program", given, e)
                                                       : no_room(e);
    }
    ssize_t n = readlink(START_SELF, l->program, sizeof l->program - 1);
    if (n <= 0) return error_set(e, PAWL_IO, errno, "cannot tell the running program");
    l->program[n] = 0;
    return PAWL_OK;
}

/* A name without a slash, in PATH: whoever joins may have another one. */
static pawl_code find_in_path(const char *name, const char *source, char *out, size_t size,
                              struct pawl_error *e) {
    const char *path = getenv("PATH");
    for (const char *at = path != NULL ? path : "/usr/bin:/bin"; at != NULL;) {
        size_t length = strcspn(at, ":");
        int n = snprintf(out, size, "%.*s%s%s", (int)length, at, length > 0 ? "/" : "./", name);
        if (n >= 0 && (size_t)n < size && start_check(source, out, NULL) == PAWL_OK) return PAWL_OK;
        at = at[length] == ':' ? at + length + 1 : NULL;
    }
    return error_set(e, PAWL_SPEC, 0,
                     "%s is \"%s\", which is not in PATH: set torch.python or PAWL_PYTHON to an interpreter "
                     "that has the package pawl",
                     source, name);
}

/* The interpreter's name, and who gave it. */
static const char *python_name(const struct launch *l, const char **source) {
    const char *set = getenv("PAWL_PYTHON");
    *source = "torch.python";
    if (l->spec.torch.python[0] != 0) return l->spec.torch.python;
    *source = "PAWL_PYTHON";
    if (set != NULL && set[0] != 0) return set;
    *source = "the interpreter without torch.python and PAWL_PYTHON";
    return "python3";
}

static pawl_code find_python(struct launch *l, struct pawl_error *e) {
    const char *source, *name = python_name(l, &source);
    if (strchr(name, '/') == NULL) return find_in_path(name, source, l->python, sizeof l->python, e);
    int n = snprintf(l->python, sizeof l->python, "%s", name);
    if (n < 0 || (size_t)n >= sizeof l->python) return no_room(e);
    struct pawl_error why = {0};
    if (start_check(source, name, &why) == PAWL_OK) return PAWL_OK;
    return error_set(
        e, PAWL_SPEC, why.os_errno,
        "%s is \"%s\", which cannot be started: set torch.python or PAWL_PYTHON to an interpreter "
        "that has the package pawl",
        source, name);
}

/* Where Python's side finds pawl's: beside the running program, as it is built, or where an installation has
 * it. */
static void name_library(const char *program) {
    static const char *const places[] = {"", PAWL_LIBRARY_FOLDER};
    char path[4096 + 64];
    const char *slash = strrchr(program, '/');
    if (slash == NULL || getenv("PAWL_LIBRARY_TRAIN") != NULL) return;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, sizeof path, "%.*s/%slibpawl_train.so", (int)(slash - program), program, places[i]);
        if (access(path, R_OK) != 0) continue;
        setenv("PAWL_LIBRARY_TRAIN", path, 1);
        return;
    }
}

/* One BLAS thread a worker, also for a library built without the call that says so. */
static void set_threads(const struct launch *l) {
    char threads[16];
    bool torch = l->spec.run.engine == SPEC_ENGINE_TORCH;
    snprintf(threads, sizeof threads, "%u", torch ? l->spec.torch.threads : 1);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    setenv("OMP_NUM_THREADS", threads, 1);
}

pawl_code fleet_programs(struct launch *l, struct pawl_error *e) {
    pawl_code code = find_program(l, e);
    bool own = l->spec.run.engine != SPEC_ENGINE_TORCH || l->options->worker_program != NULL;
    if (code == PAWL_OK && !own) code = find_python(l, e);
    if (code != PAWL_OK) return code;
    l->coordinator[0] = l->program;
    l->worker[0] = own ? l->program : l->python;
    if (!own) l->worker[1] = "-m", l->worker[2] = LAUNCH_PYTHON_MODULE;
    if (!own) name_library(l->program);
    if (!own) setenv("PYTHONHASHSEED", "0", 1); /* the order of sets is that of every process */
    set_threads(l);
    return PAWL_OK;
}

void fleet_environment(const struct launch *l) {
    if (l->spec.net.transport[0] != 0) setenv("PAWL_TRANSPORT", l->spec.net.transport, 1);
    if (l->witness.folder[0] != 0) setenv("PAWL_EVIDENCE", l->witness.folder, 1);
}

/* A worker that is told to end while it starts (Python loads its libraries for seconds) hears of it when it
 * can answer: it takes these signals from then on (worker_main.c). */
static sigset_t held_back(const char *command) {
    sigset_t none;
    sigemptyset(&none);
    return strcmp(command, "worker") == 0 ? notice_set() : none;
}

/* In the child, between fork and exec: only calls that are safe there. */
static void become(const char *image, char *const *words, const sigset_t *mask, const int fds[3],
                   pid_t parent) {
    int fd = fds[0], output = fds[1];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(70); /* the launcher died before the line above */
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (output >= 0 && (dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0)) _exit(71);
    if (fd == CHILD_FD) {
        if (fcntl(fd, F_SETFD, 0) < 0) _exit(71);
    } else if (dup2(fd, CHILD_FD) < 0) {
        _exit(71);
    }
    start_become(image, words, fds[2]);
}

static const char *image_of(const struct launch *l, const char *program) {
    return program == l->program && l->options->worker_program == NULL ? START_SELF : program;
}

void fleet_signal(const struct launch_process *p, int signal) {
    if (p->pid > 0 && p->pidfd >= 0) syscall(SYS_pidfd_send_signal, p->pidfd, signal, NULL, 0);
}

void fleet_forget(struct launch_process *p) {
    channel_close(p->channel);
    if (p->pidfd >= 0) close(p->pidfd);
    *p = (struct launch_process){.pidfd = -1};
}

/* Starts it and sees it become what it is to be; *out: its pid, 0 when it cannot. Takes nothing over. */
static pawl_code fork_child(const struct launch *l, char *const *words, const char *command, int fd,
                            int output, pid_t *out, struct pawl_error *e) {
    int report[2];
    pawl_code code = start_open(report, e);
    if (code != PAWL_OK) return code;
    sigset_t mask = held_back(command);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) become(image_of(l, words[0]), words, &mask, (int[3]){fd, output, report[1]}, parent);
    int err = errno;
    code = start_await(report, pid, words[0], e);
    if (pid < 0) return error_set(e, PAWL_IO, err, "cannot start a %s", command);
    if (code == PAWL_OK) *out = pid;
    return code;
}

pawl_code fleet_spawn(const struct launch *l, const char *const program[LAUNCH_WORDS], const char *command,
                      int output, struct launch_process *out, struct pawl_error *e) {
    int ends[2];
    char *words[LAUNCH_WORDS + 3] = {NULL}, fd_text[] = CHILD_FD_TEXT;
    size_t count = 0;
    while (count < LAUNCH_WORDS && program[count] != NULL)
        words[count] = (char *)(uintptr_t)program[count], count++;
    words[count] = (char *)(uintptr_t)command;
    words[count + 1] = fd_text;
    *out = (struct launch_process){.pidfd = -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return error_set(e, PAWL_IO, errno, "no control channel for a %s", command);
    pawl_code code = fork_child(l, words, command, ends[1], output, &out->pid, e);
    close(ends[1]);
    if (code != PAWL_OK) {
        close(ends[0]);
        return code;
    }
    out->pidfd = (int)syscall(SYS_pidfd_open, out->pid, 0);
    code = out->pidfd < 0 ? error_set(e, PAWL_IO, errno, "cannot watch a %s", command)
                          : channel_open_fd(ends[0], &out->channel, e);
    if (code == PAWL_OK) return code;
    close(ends[0]);
    kill(out->pid, SIGKILL);
    waitpid(out->pid, NULL, 0);
    fleet_forget(out);
    return code;
}
