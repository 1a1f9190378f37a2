/* Implementation of run/worker_main.h. The loop sleeps on the control channel, the network and the
 * checkpoint engine; a thread of its own beats, so that a long computation is not taken for death, and passes
 * on a SIGTERM or SIGUSR1 to this process as the wish to leave. */
#include "run/worker_main.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/net.h"
#include "run/notice.h"
#include "run/rundir.h"
#include "run/worker.h"
#include "run/worker_stack.h"

/* Beats are far below any sensible timeout and cost next to nothing. */
#define BEAT_NS 100000000

/* The longest sleep: a guard against a wake-up that was missed, not a polling interval. */
#define SLEEP_MS 200

/* Time for saves in flight when the run has ended: they are durable already, or no longer wanted. */
#define CLOSE_NS 5000000000

struct heart {
    struct worker *worker;
    struct channel *channel;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
};

static _Atomic bool told_to_end;

static void on_notice(int signal) {
    (void)signal;
    told_to_end = true;
}

/* Sent while the process started, and held back by whoever started it. */
static void take_held_signals(void) {
    sigset_t set = notice_set();
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* Who is asked for its stacks waits for every thread's answer: the heart has the time, the main thread has
 * not, on a worker whose peer hangs. */
static void let_stacks_be_asked(bool here) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(here ? SIG_UNBLOCK : SIG_BLOCK, &set, NULL);
}

static void *beat(void *argument) {
    struct heart *h = argument;
    let_stacks_be_asked(true);
    pthread_mutex_lock(&h->lock);
    while (!h->stop) {
        struct message m;
        worker_beat(h->worker, &m);
        channel_send(h->channel, &m, NULL);
        if (atomic_exchange(&told_to_end, false))
            channel_send(h->channel, &(struct message){.kind = MESSAGE_LEAVING}, NULL);
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += BEAT_NS;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&h->wake, &h->lock, &until);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static pawl_code heart_start(struct heart *h, pthread_t *thread, struct pawl_error *e) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    int rc = pthread_create(thread, NULL, beat, h);
    return rc == 0 ? PAWL_OK : error_set(e, PAWL_IO, rc, "cannot start the heartbeat");
}

static void heart_stop(struct heart *h, pthread_t thread) {
    pthread_mutex_lock(&h->lock);
    h->stop = true;
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->lock);
    pthread_join(thread, NULL);
    pthread_cond_destroy(&h->wake);
    pthread_mutex_destroy(&h->lock);
}

static pawl_code open_own(void *context, const struct spec *spec, uint32_t rank, struct store **out,
                          char *why, struct pawl_error *e) {
    (void)context;
    char path[SPEC_TEXT_MAX + 32];
    pawl_code code = rundir_store_path(spec, rank, path, sizeof path, e);
    return code == PAWL_OK ? store_open(path, STORE_AUTO, false, out, why, e) : code;
}

static pawl_code open_all(void *context, const struct spec *spec, struct store ***out, uint32_t *count,
                          struct pawl_error *e) {
    (void)context;
    return rundir_open_stores(spec, out, count, e);
}

static void sleep_until_news(struct worker *w, struct channel *channel, struct net *net) {
    if (!net_arm(net)) return;
    worker_set_busy(w, false);
    struct pollfd fds[3] = {{.fd = channel_fd(channel), .events = POLLIN},
                            {.fd = net_fd(net), .events = POLLIN},
                            {.fd = worker_save_fd(w), .events = POLLIN}};
    poll(fds, 3, SLEEP_MS);
}

static pawl_code work(struct worker *w, struct channel *channel, struct net *net, struct pawl_error *e) {
    while (!worker_finished(w)) {
        bool worked;
        pawl_code code = worker_poll(w, &worked, e);
        if (code != PAWL_OK) return code;
        if (!worked) sleep_until_news(w, channel, net);
    }
    return PAWL_OK;
}

static void listen_to_notices(void) {
    for (size_t i = 0; i < NOTICE_COUNT; i++) {
        /* A signal to the whole group (Ctrl-C) is the launcher's to answer: it tells its workers what to do.
         */
        bool of_group = notice_signals[i] == SIGINT;
        struct sigaction action = {.sa_handler = of_group ? SIG_IGN : on_notice, .sa_flags = SA_RESTART};
        sigaction(notice_signals[i], &action, NULL);
    }
}

int worker_main(int fd) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no orphans, whatever kills the launcher */
    listen_to_notices();
    take_held_signals();
    worker_stack_install();
    let_stacks_be_asked(false); /* in no thread but the heart */
    struct channel *channel = NULL;
    struct net *net = NULL;
    struct worker *worker = NULL;
    struct pawl_error e = {0};
    pawl_code code = channel_open_fd(fd, &channel, &e);
    const char *transports = getenv("PAWL_TRANSPORT"); /* net.transport of the spec, set by the launcher */
    if (code == PAWL_OK) code = net_open_ucx(transports, &net, &e);
    if (code != PAWL_OK && channel != NULL && transports != NULL) {
        error_wrap(&e, "net.transport is \"%s\"", transports);
        code = PAWL_SPEC; /* the same on every worker: no failure to survive */
    }
    if (code == PAWL_OK) code = net_progress_start(net, &e);
    struct worker_env env = {
        .net = net, .channel = channel, .background = true, .open_own = open_own, .open_all = open_all};
    if (code == PAWL_OK) code = worker_new(&env, &worker, &e);
    worker_stack_of(worker);
    struct heart heart = {.worker = worker, .channel = channel};
    pthread_t thread;
    bool beating = false;
    if (code == PAWL_OK) code = heart_start(&heart, &thread, &e), beating = code == PAWL_OK;
    if (code == PAWL_OK) {
        code = work(worker, channel, net, &e);
    } else if (channel != NULL) {
        struct message m = {.kind = MESSAGE_FAILED, .code = code, .text = e.text};
        channel_send(channel, &m, NULL);
    }
    if (beating) heart_stop(&heart, thread);
    worker_stack_of(NULL);
    net_close(net); /* before the buffers that its open requests point into are freed */
    worker_free(worker, clock_now_ns() + CLOSE_NS);
    for (int64_t end = clock_now_ns() + CLOSE_NS;
         channel != NULL && !channel_flush(channel) && clock_now_ns() < end;)
        poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, SLEEP_MS);
    channel_close(channel);
    return pawl_code_exit(code);
}
