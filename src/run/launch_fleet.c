/* Processes: start, watch, kill, reap, and the loop around them.
 *
 * A death is passed on as soon as anything shows it: the end of the channel, which a dying process closes, or
 * its pidfd. What the worker had said before goes first. The place is free when the process is gone. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "run/launch_state.h"
#include "run/notice.h"

/* How often deadlines are looked at. */
#define TICK_NS 50000000

/* How soon what a full socket did not take is tried again. */
#define RETRY_NS 1000000

/* Grace for a worker that was told to finish. */
#define END_NS 10000000000

pawl_code fleet_watch(struct launch *l, int fd, enum launch_watch what, uint32_t which,
                      struct pawl_error *e) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)what << 32 | which};
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0) return PAWL_OK;
    return error_set(e, PAWL_IO, errno, "cannot watch descriptor %d", fd);
}

static void block_signals(bool block) {
    sigset_t set = notice_set();
    sigprocmask(block ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

pawl_code fleet_listen(struct launch *l, struct pawl_error *e) {
    sigset_t set = notice_set();
    block_signals(true);
    l->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return l->signal_fd >= 0 ? PAWL_OK : error_set(e, PAWL_IO, errno, "cannot watch for signals");
}

/* One that comes behind the one that ended the run means the same, and one that comes while the run ends by
 * itself asks for what is being done: none of them is to end the process before it has said how it went. */
static void drop_signals(const struct launch *l) {
    struct signalfd_siginfo info;
    while (read(l->signal_fd, &info, sizeof info) == sizeof info) {
    }
}

pawl_code fleet_init(struct launch *l, struct pawl_error *e) {
    l->workers = calloc(l->ranks, sizeof *l->workers);
    if (l->workers == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %u workers", l->ranks);
    for (uint32_t r = 0; r < l->ranks; r++) l->workers[r].process.pidfd = -1;
    l->relay.process.pidfd = -1;
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (l->epoll_fd < 0) return error_set(e, PAWL_IO, errno, "cannot watch for events");
    pawl_code code = fleet_watch(l, l->signal_fd, WATCH_SIGNAL, 0, e);
    witness_open(l);
    if (code != PAWL_OK) return code;
    fleet_environment(l);
    spec_print(&l->spec, &l->spec_text);
    bytes_put_u8(&l->spec_text, 0);
    return l->spec_text.failed ? error_set(e, PAWL_MEMORY, 0, "no memory for the spec") : PAWL_OK;
}

void fleet_close(struct launch *l) {
    admin_close(l);
    if (l->workers != NULL && l->progress != NULL) witness_close(l);
    if (l->workers != NULL) fleet_end(l, false);
    find_close(l);
    if (l->epoll_fd >= 0) close(l->epoll_fd);
    if (l->signal_fd >= 0) {
        drop_signals(l);
        close(l->signal_fd);
    }
    for (uint32_t r = 0; l->workers != NULL && r < l->ranks; r++) {
        bytes_close(&l->workers[r].hello);
        bytes_close(&l->workers[r].readied);
    }
    bytes_close(&l->spec_text);
    free(l->workers);
    l->workers = NULL;
    block_signals(false);
}

/* --- taking a place --- */

static pawl_code send_faults(struct launch *l, uint32_t rank, struct pawl_error *e) {
    const struct inject *fault;
    uint32_t at = 0;
    pawl_code code = inject_set_read(&l->injects, l->spec.run.dir, e);
    while (code == PAWL_OK && (fault = inject_for_rank(&l->injects, rank, &at)) != NULL) {
        struct message m = {.kind = MESSAGE_INJECT, .iteration = fault->step - 1, .text = fault->text};
        code = channel_send(l->workers[rank].process.channel, &m, e);
    }
    return code;
}

static pawl_code send_start(struct launch *l, uint32_t rank, struct pawl_error *e) {
    struct message m = {
        .kind = MESSAGE_START, .rank = rank, .ranks = l->ranks, .text = (const char *)l->spec_text.data};
    memcpy(m.run_id, l->dir.run_id, sizeof m.run_id);
    pawl_code code = channel_send(l->workers[rank].process.channel, &m, e);
    if (code == PAWL_OK) code = send_faults(l, rank, e);
    return code == PAWL_PEER_LOST ? PAWL_OK : code; /* its exit tells more */
}

/* A process takes an empty place: what is kept of the place over processes stays. */
static pawl_code settle_in(struct launch *l, uint32_t rank, const struct launch_process *p, bool child,
                           struct pawl_error *e) {
    struct launch_worker *w = &l->workers[rank], old = *w;
    int64_t now = clock_now_ns();
    bytes_clear(&old.hello);
    bytes_clear(&old.readied);
    *w = (struct launch_worker){.process = *p,
                                .child = child,
                                .hello = old.hello,
                                .readied = old.readied,
                                .pipeline = LAUNCH_NONE,
                                .stage = LAUNCH_NONE,
                                .at = {.op = UINT8_MAX},
                                .beat_ns = now,
                                .progress_ns = now,
                                .came_ns = now,
                                .unknown = old.unknown,
                                .respawned = old.respawned,
                                .flaps = old.flaps,
                                .hold_ns = old.hold_ns};
    pawl_code code = fleet_watch(l, w->process.pidfd, WATCH_PID, rank, e);
    if (code == PAWL_OK) code = fleet_watch(l, channel_fd(w->process.channel), WATCH_CHANNEL, rank, e);
    if (code == PAWL_OK) code = send_start(l, rank, e);
    if (code != PAWL_OK) {
        fleet_signal(&w->process, SIGKILL);
        if (child) waitpid(w->process.pid, NULL, 0);
        fleet_forget(&w->process);
        return code;
    }
    relay_started(l, rank);
    return PAWL_OK;
}

pawl_code fleet_start_worker(struct launch *l, uint32_t rank, struct pawl_error *e) {
    struct launch_process p;
    /* What code of the user's prints is not to mix with our own standard output. */
    int prints = l->spec.run.engine == SPEC_ENGINE_TORCH ? STDERR_FILENO : -1;
    pawl_code code = fleet_spawn(l, l->worker, "worker", prints, &p, e);
    return code == PAWL_OK ? settle_in(l, rank, &p, true, e) : error_wrap(e, "worker %u", rank);
}

pawl_code fleet_adopt(struct launch *l, uint32_t rank, const struct launch_process *p, struct pawl_error *e) {
    return settle_in(l, rank, p, false, e);
}

void fleet_kill(struct launch *l, uint32_t rank, const char *why) {
    struct json *j = progress_begin(l->progress, "kill");
    json_i64(j, "rank", rank);
    json_text(j, "why", why);
    progress_end(l->progress, "worker %u is ended: %s", rank, why);
    fleet_signal(&l->workers[rank].process, SIGKILL);
}

void fleet_give_up(struct launch *l, pawl_code code, const char *format, ...) {
    if (l->over) return;
    char text[sizeof l->cause.text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    l->over = true;
    error_set(&l->cause, code, 0, "%s", text);
}

/* --- what happens to workers --- */

/* The coordinator hears of an end once. */
static void tell_gone(struct launch *l, uint32_t rank) {
    struct launch_worker *w = &l->workers[rank];
    if (w->gone) return;
    bool worked = w->member && l->going && !w->left;
    w->gone = true;
    w->missed = w->member && !w->left;
    w->member = false;
    epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, channel_fd(w->process.channel), NULL);
    if (l->outage.began_ns == 0 && worked) l->outage.began_ns = clock_now_ns();
    relay_say(l, &(struct link_frame){.kind = LINK_EXIT, .rank = rank});
}

static void end_lingering(struct launch *l, uint32_t rank, int64_t now_ns) {
    struct launch_worker *w = &l->workers[rank];
    if (w->gone && w->process.pid > 0 && now_ns >= w->linger_ns) fleet_signal(&w->process, SIGKILL);
}

static void receive(struct launch *l, uint32_t rank) {
    struct launch_worker *w = &l->workers[rank];
    while (w->process.channel != NULL && !w->gone) {
        const uint8_t *frame;
        size_t size;
        bool got;
        pawl_code code = channel_receive_frame(w->process.channel, &frame, &size, &got, NULL);
        if (code == PAWL_OK && !got) return;
        if (code == PAWL_OK) {
            struct link_frame said = {.kind = LINK_FROM, .rank = rank, .data = frame, .data_bytes = size};
            if (hear_worker(l, rank, frame, size)) relay_say(l, &said);
            continue;
        }
        if (code != PAWL_PEER_LOST) fleet_kill(l, rank, "sent malformed bytes");
        tell_gone(l, rank);
        /* Closed, though the process may linger: it cannot be told anything any more. One that was told to
         * leave gets its time. */
        w->linger_ns = clock_now_ns() + (w->left ? END_NS : 0);
        end_lingering(l, rank, clock_now_ns());
    }
}

static bool has_ended(const struct launch_process *p) {
    struct pollfd fd = {.fd = p->pidfd, .events = POLLIN};
    return p->pid > 0 && poll(&fd, 1, 0) == 1;
}

/* -1: not a child's. The process has ended: this does not block. */
static int status_of(const struct launch_worker *w) {
    int status = -1;
    while (w->child && waitpid(w->process.pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

/* The process has ended: take its last words, its exit status and its descriptors. */
static void reap(struct launch *l, uint32_t rank, bool tell) {
    struct launch_worker *w = &l->workers[rank];
    if (tell) receive(l, rank);
    if (tell) tell_gone(l, rank);
    int status = status_of(w);
    if (tell)
        tell_exit(l, rank, status);
    else
        tell_leaving(l, rank, status);
    witness_exited(l, rank);
    fleet_forget(&w->process);
    if (tell) places_exited(l, rank);
}

/* --- the loop --- */

static void handle_event(struct launch *l, uint64_t key) {
    uint32_t which = (uint32_t)key;
    switch ((enum launch_watch)(key >> 32)) {
    case WATCH_CHANNEL:
        receive(l, which);
        break;
    case WATCH_PID:
        /* The place may have been taken by another process since the event was fetched. */
        if (has_ended(&l->workers[which].process)) reap(l, which, true);
        break;
    case WATCH_SIGNAL:
        stop_signals(l);
        break;
    case WATCH_LINK:
        relay_receive(l);
        break;
    case WATCH_COORDINATOR:
        if (has_ended(&l->relay.process)) relay_exited(l);
        break;
    case WATCH_FOUND:
        find_done(l);
        break;
    case WATCH_ADMIN:
        admin_accept(l);
        break;
    case WATCH_CLIENT:
        admin_receive(l, which);
        break;
    }
}

/* True when all sockets took all. */
static bool flush(struct launch *l) {
    bool all = l->relay.process.channel == NULL || channel_flush(l->relay.process.channel);
    for (uint32_t r = 0; r < l->ranks; r++)
        if (l->workers[r].process.channel != NULL) all &= channel_flush(l->workers[r].process.channel);
    return all;
}

static void tick(struct launch *l) {
    int64_t now = clock_now_ns();
    for (uint32_t r = 0; r < l->ranks; r++) end_lingering(l, r, now);
    relay_tick(l, now);
    places_tick(l, now);
    stop_tick(l, now);
    witness_tick(l, now);
    admin_tick(l, now);
}

static pawl_code start_all(struct launch *l, struct pawl_error *e) {
    pawl_code code = relay_start(l, e);
    for (uint32_t r = 0; r < spec_ranks(&l->spec) && code == PAWL_OK; r++) code = fleet_start_worker(l, r, e);
    if (code == PAWL_OK) admin_open(l);
    return code;
}

pawl_code fleet_run(struct launch *l, struct pawl_error *e) {
    pawl_code code = start_all(l, e);
    if (code != PAWL_OK) return code;
    int64_t next_tick = clock_now_ns() + TICK_NS;
    while (!l->over) {
        struct epoll_event events[64];
        int64_t now = clock_now_ns(), until = flush(l) ? next_tick : now + RETRY_NS;
        if (l->stopping && l->stop_end_ns < until) until = next_tick = l->stop_end_ns;
        int n = epoll_wait(l->epoll_fd, events, 64, until > now ? (int)((until - now) / 1000000) + 1 : 0);
        if (n < 0 && errno != EINTR) return error_set(e, PAWL_IO, errno, "waiting for events");
        for (int i = 0; i < n && !l->over; i++) handle_event(l, events[i].data.u64);
        if (clock_now_ns() < next_tick || l->over) continue;
        tick(l);
        next_tick = clock_now_ns() + TICK_NS;
    }
    if (l->cause.code == PAWL_OK) return PAWL_OK;
    if (e != NULL) *e = l->cause;
    return l->cause.code;
}

/* Until its own end if `wait`, or until END_NS from the start of the waiting. */
static void end_process(struct launch *l, struct launch_process *p, bool wait, int64_t end_ns) {
    while (wait && !has_ended(p) && clock_now_ns() < end_ns) {
        flush(l);
        poll(&(struct pollfd){.fd = p->pidfd, .events = POLLIN}, 1, 1);
    }
    fleet_signal(p, SIGKILL); /* no effect on one that has ended and is still to be reaped */
}

void fleet_end(struct launch *l, bool wait) {
    int64_t end_ns = clock_now_ns() + END_NS;
    for (uint32_t r = 0; r < l->ranks; r++) {
        struct launch_worker *w = &l->workers[r];
        if (w->process.pid <= 0) continue;
        /* A child that is still starting has nothing to end with, and may take as long as it takes. */
        bool told = (w->ready || !w->child) && (w->finishing || w->left);
        end_process(l, &w->process, wait && told, end_ns);
        reap(l, r, false);
    }
    struct launch_process *c = &l->relay.process;
    if (c->pid <= 0) return;
    end_process(l, c, wait, end_ns);
    while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    fleet_forget(c);
}
