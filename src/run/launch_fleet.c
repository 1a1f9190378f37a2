/* Worker processes: start, watch, kill, reap. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "run/launch_state.h"

/* How often the coordinator looks at its deadlines: a fraction of the shortest of them. */
#define TICK_NS 100000000

/* Grace for a worker that was told to finish. */
#define END_NS 10000000000

/* Signals closer together than this are one. */
#define SIGNAL_ONCE_NS 1000000000

/* Descriptor that a worker finds its channel on. */
#define WORKER_FD 3

/* What an epoll event is about: rank, and which of its descriptors. */
enum watch { WATCH_CHANNEL, WATCH_PID, WATCH_SIGNAL };

static pawl_code watch(struct launch *l, int fd, enum watch what, uint32_t rank, struct pawl_error *e) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)what << 32 | rank};
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0) return PAWL_OK;
    return error_set(e, PAWL_IO, errno, "cannot watch descriptor %d", fd);
}

pawl_code fleet_init(struct launch *l, struct pawl_error *e) {
    l->workers = calloc(l->ranks, sizeof *l->workers);
    if (l->workers == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u workers", l->ranks);
    for (uint32_t r = 0; r < l->ranks; r++) l->workers[r].pidfd = -1;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (l->epoll_fd < 0 || l->signal_fd < 0) return error_set(e, PAWL_IO, errno, "cannot watch for events");
    return watch(l, l->signal_fd, WATCH_SIGNAL, 0, e);
}

void fleet_close(struct launch *l) {
    fleet_end(l, false);
    if (l->epoll_fd >= 0) close(l->epoll_fd);
    if (l->signal_fd >= 0) close(l->signal_fd);
    free(l->workers);
    l->workers = NULL;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* In the child, between fork and exec: only calls that are safe there. */
static void become_worker(const char *program, int fd, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(70); /* the launcher died before the line above */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (fd == WORKER_FD) {
        if (fcntl(fd, F_SETFD, 0) < 0) _exit(71);
    } else if (dup2(fd, WORKER_FD) < 0) {
        _exit(71);
    }
    execl(program, program, "worker", "3", (char *)NULL);
    _exit(127);
}

static pawl_code start_worker(struct launch *l, uint32_t rank, const char *program, struct pawl_error *e) {
    struct launch_worker *w = &l->workers[rank];
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return error_set(e, PAWL_IO, errno, "no control channel for rank %u", rank);
    pid_t parent = getpid();
    w->pid = fork();
    if (w->pid == 0) become_worker(program, ends[1], parent);
    close(ends[1]);
    if (w->pid < 0) {
        w->pid = 0;
        close(ends[0]);
        return error_set(e, PAWL_IO, errno, "cannot start the worker of rank %u", rank);
    }
    w->channel_ended = false;
    w->pidfd = (int)syscall(SYS_pidfd_open, w->pid, 0);
    if (w->pidfd < 0) {
        close(ends[0]);
        return error_set(e, PAWL_IO, errno, "cannot watch the worker of rank %u", rank);
    }
    pawl_code code = channel_open_fd(ends[0], &w->channel, e);
    if (code == PAWL_OK) code = watch(l, w->pidfd, WATCH_PID, rank, e);
    if (code == PAWL_OK) code = watch(l, channel_fd(w->channel), WATCH_CHANNEL, rank, e);
    if (code == PAWL_OK) conduct_attach(l->conduct, rank, w->channel);
    return code;
}

static pawl_code send_start(struct launch *l, uint32_t rank, const char *spec_text, struct pawl_error *e) {
    struct message m = {.kind = MESSAGE_START,
                        .rank = rank,
                        .version = l->resumed ? l->resume_step : 0,
                        .incarnation = l->dir.incarnation,
                        .resume_incarnation = l->resumed ? l->resume_incarnation : 0,
                        .text = spec_text};
    memcpy(m.run_id, l->dir.run_id, sizeof m.run_id);
    pawl_code code = channel_send(l->workers[rank].channel, &m, e);
    for (uint32_t i = 0; i < l->inject_count && code == PAWL_OK; i++) {
        if (l->injects[i].rank != rank || l->inject_fired[i]) continue;
        struct message inject = {.kind = MESSAGE_INJECT,
                                 .iteration = l->injects[i].step > 0 ? l->injects[i].step - 1 : 0,
                                 .text = fault_name(l->injects[i].point)};
        code = channel_send(l->workers[rank].channel, &inject, e);
    }
    return code == PAWL_PEER_LOST ? PAWL_OK : code; /* its exit tells more */
}

static void set_worker_environment(const struct spec *spec) {
    /* One BLAS thread a worker, also for a library built without the call that says so. */
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    if (spec->net.transport[0] != 0) setenv("PAWL_TRANSPORT", spec->net.transport, 1);
}

pawl_code fleet_start(struct launch *l, struct pawl_error *e) {
    char self[4096];
    const char *program = l->options->worker_program;
    if (program == NULL) {
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        if (n <= 0) return error_set(e, PAWL_IO, errno, "cannot tell the running program");
        self[n] = 0;
        program = self;
    }
    set_worker_environment(&l->spec);
    struct bytes text = {0};
    spec_print(&l->spec, &text);
    bytes_put_u8(&text, 0);
    pawl_code code = text.failed ? error_set(e, PAWL_MEMORY, 0, "no memory for the spec") : PAWL_OK;
    for (uint32_t r = 0; r < l->ranks && code == PAWL_OK; r++) {
        code = start_worker(l, r, program, e);
        if (code == PAWL_OK) code = send_start(l, r, (const char *)text.data, e);
    }
    bytes_close(&text);
    return code;
}

void fleet_kill(struct launch *l, uint32_t rank) {
    if (l->workers[rank].pid > 0) kill(l->workers[rank].pid, SIGKILL);
}

/* The process has ended: take its exit status and its descriptors. */
static void reap(struct launch *l, uint32_t rank, bool tell) {
    struct launch_worker *w = &l->workers[rank];
    if (w->pid <= 0) return;
    int status = 0;
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR) {
    }
    w->pid = 0;
    if (!tell) tell_leaving(l, rank, status);
    if (tell) {
        tell_exit(l, rank, status);
        conduct_exit(l->conduct, rank, clock_now_ns());
    }
    channel_close(w->channel);
    w->channel = NULL;
    if (w->pidfd >= 0) close(w->pidfd);
    w->pidfd = -1;
}

static void take_signals(struct launch *l) {
    struct signalfd_siginfo info;
    while (read(l->signal_fd, &info, sizeof info) == sizeof info) {
        /* Tools that signal a process and then its group mean it once. */
        int64_t now = clock_now_ns();
        if (l->signals > 0 && now - l->signal_ns < SIGNAL_ONCE_NS) continue;
        l->signal_ns = now;
        l->signals++;
        progress_begin(l->progress, "signal");
        progress_end(l->progress,
                     l->signals == 1 ? "%s: saving the next step, then ending (again: end at once)"
                                     : "%s again: ending at once",
                     strsignal((int)info.ssi_signo));
        conduct_stop(l->conduct, clock_now_ns());
    }
}

static void receive(struct launch *l, uint32_t rank) {
    struct launch_worker *w = &l->workers[rank];
    if (w->channel == NULL || w->channel_ended) return;
    conduct_receive(l->conduct, rank, clock_now_ns());
    char byte;
    ssize_t n = recv(channel_fd(w->channel), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return;
    /* Closed, though the process may linger: it cannot be told anything any more. */
    w->channel_ended = true;
    epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, channel_fd(w->channel), NULL);
    fleet_kill(l, rank);
}

static void handle_event(struct launch *l, uint64_t key) {
    uint32_t rank = (uint32_t)key;
    switch ((enum watch)(key >> 32)) {
    case WATCH_CHANNEL:
        receive(l, rank);
        break;
    case WATCH_PID:
        reap(l, rank, true);
        break;
    case WATCH_SIGNAL:
        take_signals(l);
        break;
    }
}

pawl_code fleet_run(struct launch *l, struct pawl_error *e) {
    int64_t next_tick = clock_now_ns();
    while (conduct_state(l->conduct) == CONDUCT_RUNNING && l->signals < 2) {
        struct epoll_event events[64];
        int64_t left = next_tick - clock_now_ns();
        int n = epoll_wait(l->epoll_fd, events, 64, left > 0 ? (int)(left / 1000000) + 1 : 0);
        if (n < 0 && errno != EINTR) return error_set(e, PAWL_IO, errno, "waiting for events");
        for (int i = 0; i < n; i++) handle_event(l, events[i].data.u64);
        for (uint32_t r = 0; r < l->ranks; r++)
            if (l->workers[r].channel != NULL) channel_flush(l->workers[r].channel);
        if (clock_now_ns() < next_tick) continue;
        conduct_tick(l->conduct, clock_now_ns());
        next_tick = clock_now_ns() + TICK_NS;
    }
    return PAWL_OK;
}

void fleet_end(struct launch *l, bool wait) {
    int64_t end = clock_now_ns() + END_NS;
    for (uint32_t r = 0; l->workers != NULL && r < l->ranks; r++) {
        struct launch_worker *w = &l->workers[r];
        if (w->pid <= 0) continue;
        while (wait && clock_now_ns() < end) {
            if (w->channel != NULL) channel_flush(w->channel);
            siginfo_t info = {0};
            if (waitid(P_PID, (id_t)w->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0)
                break;
            usleep(1000);
        }
        kill(w->pid, SIGKILL); /* no effect on one that has ended and is still to be reaped */
        reap(l, r, false);
    }
}
