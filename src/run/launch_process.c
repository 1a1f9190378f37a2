/* A process of the launcher: how a worker or a coordinator is started, signalled, forgotten. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run/launch_state.h"

/* Descriptor that a worker and a coordinator find their channel on. */
#define CHILD_FD 3

static pawl_code find_program(struct launch *l, struct pawl_error *e) {
    const char *given = l->options->worker_program;
    if (given != NULL && strlen(given) >= sizeof l->program)
        return error_set(e, PAWL_ARGUMENT, 0, "the worker's program has too long a path");
    if (given != NULL) {
        memcpy(l->program, given, strlen(given) + 1);
        return PAWL_OK;
    }
    ssize_t n = readlink("/proc/self/exe", l->program, sizeof l->program - 1);
    if (n <= 0) return error_set(e, PAWL_IO, errno, "cannot tell the running program");
    l->program[n] = 0;
    return PAWL_OK;
}

static void set_worker_environment(const struct launch *l) {
    /* One BLAS thread a worker, also for a library built without the call that says so. */
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    if (l->spec.net.transport[0] != 0) setenv("PAWL_TRANSPORT", l->spec.net.transport, 1);
    if (l->witness.folder[0] != 0) setenv("PAWL_EVIDENCE", l->witness.folder, 1);
}

pawl_code fleet_prepare(struct launch *l, struct pawl_error *e) {
    set_worker_environment(l);
    return find_program(l, e);
}

/* In the child, between fork and exec: only calls that are safe there. */
static void become(const char *program, const char *command, int fd, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(70); /* the launcher died before the line above */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (fd == CHILD_FD) {
        if (fcntl(fd, F_SETFD, 0) < 0) _exit(71);
    } else if (dup2(fd, CHILD_FD) < 0) {
        _exit(71);
    }
    execl(program, program, command, "3", (char *)NULL);
    _exit(127);
}

void fleet_signal(const struct launch_process *p, int signal) {
    if (p->pid > 0 && p->pidfd >= 0) syscall(SYS_pidfd_send_signal, p->pidfd, signal, NULL, 0);
}

void fleet_forget(struct launch_process *p) {
    channel_close(p->channel);
    if (p->pidfd >= 0) close(p->pidfd);
    *p = (struct launch_process){.pidfd = -1};
}

pawl_code fleet_spawn(struct launch *l, const char *command, struct launch_process *out,
                      struct pawl_error *e) {
    int ends[2];
    *out = (struct launch_process){.pidfd = -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return error_set(e, PAWL_IO, errno, "no control channel for a %s", command);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) become(l->program, command, ends[1], parent);
    int err = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return error_set(e, PAWL_IO, err, "cannot start a %s", command);
    }
    out->pid = pid;
    out->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    pawl_code code = out->pidfd < 0 ? error_set(e, PAWL_IO, errno, "cannot watch a %s", command)
                                    : channel_open_fd(ends[0], &out->channel, e);
    if (code == PAWL_OK) return code;
    close(ends[0]);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    fleet_forget(out);
    return code;
}
