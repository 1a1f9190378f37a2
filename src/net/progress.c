/* The thread that moves messages while the owner of the endpoint computes, and the lock between the two.
 *
 * The thread does rounds of progress as long as something moves, then sleeps on the transport's descriptor:
 * an idle endpoint costs nothing. The owner goes on making progress itself when it polls. It is woken
 * through a descriptor of ours, and only when it sleeps. Before the thread sleeps, and whenever the owner has
 * used the transport under a sleeping thread, the transport is armed: it either promises to make its
 * descriptor readable when there is work, or there is some now.
 * Whoever wants the lock takes a turn first and holds it while he waits: so the other, however quickly it
 * comes back, stands behind him. A mutex alone would let a thread that streams keep the owner out.
 * Tested in tests/unit/net_common_test.c, which runs with and without it, and net_ucx_test.c. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "net/core.h"

struct net_progress {
    pthread_t thread;
    pthread_mutex_t turn, lock;
    int owner_fd; /* readable: the owner has completions to poll */
    int thread_fd;
    bool stop;
    bool asleep;       /* the thread, on an armed transport */
    bool owner_asleep; /* or about to be */
    bool owner_called; /* owner_fd is readable */
};

void net_lock(struct net *net) {
    struct net_progress *p = net->progress;
    if (p == NULL) return;
    pthread_mutex_lock(&p->turn);
    pthread_mutex_lock(&p->lock);
    pthread_mutex_unlock(&p->turn);
}

void net_unlock(struct net *net) {
    if (net->progress != NULL) pthread_mutex_unlock(&net->progress->lock);
}

/* Neither can fail: the count stays far below its limit, and one that is 0 is not waited for. */
static void raise_event(int fd) { (void)!write(fd, &(uint64_t){1}, sizeof(uint64_t)); }
static void clear_event(int fd) { (void)!read(fd, &(uint64_t){0}, sizeof(uint64_t)); }

/* ---- the owner's side ---- */

static void wake_thread(struct net_progress *p) {
    if (p->asleep) raise_event(p->thread_fd);
    p->asleep = false;
}

void progress_notice(struct net *net) {
    struct net_progress *p = net->progress;
    if (p == NULL || !p->asleep) return;
    if (net_has_frames(net) || !net->transport->arm(net)) wake_thread(p);
}

void progress_owner_polls(struct net *net) {
    struct net_progress *p = net->progress;
    if (p == NULL) return;
    if (p->owner_called) clear_event(p->owner_fd);
    p->owner_asleep = p->owner_called = false;
}

bool progress_owner_sleeps(struct net *net) {
    if (net->progress == NULL) return false;
    net->progress->owner_asleep = true;
    return true;
}

int progress_fd(const struct net *net) { return net->progress != NULL ? net->progress->owner_fd : -1; }

/* ---- the thread ---- */

static void call_owner(struct net *net) {
    struct net_progress *p = net->progress;
    if (!p->owner_asleep || (net->done_count == 0 && !net->broken)) return;
    raise_event(p->owner_fd);
    p->owner_asleep = false;
    p->owner_called = true;
}

/* Called with the lock, which it lets go of meanwhile. */
static void sleep_until_work(struct net *net, uint32_t nap_us) {
    struct net_progress *p = net->progress;
    struct pollfd fds[2] = {{.fd = net->transport->fd(net), .events = POLLIN},
                            {.fd = p->thread_fd, .events = POLLIN}};
    p->asleep = true;
    net_unlock(net);
    if (nap_us > 0) usleep(nap_us);
    poll(fds, 2, -1);
    if (fds[1].revents != 0) clear_event(p->thread_fd);
    net_lock(net);
    p->asleep = false;
}

static void *keep_moving(void *argument) {
    struct net *net = argument;
    struct net_progress *p = net->progress;
    net_lock(net);
    while (!p->stop) {
        bool moved = net_move(net);
        call_owner(net);
        uint32_t nap_us = 0;
        if (!moved && !net_has_frames(net) && net_arm_transport(net, &nap_us)) {
            sleep_until_work(net, nap_us);
        } else {
            net_unlock(net);
            net_lock(net);
        }
    }
    net_unlock(net);
    return NULL;
}

/* ---- its life ---- */

static void progress_free(struct net_progress *p) {
    if (p->owner_fd >= 0) close(p->owner_fd);
    if (p->thread_fd >= 0) close(p->thread_fd);
    pthread_mutex_destroy(&p->turn);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static pawl_code start_thread(struct net *net, struct pawl_error *e) {
    struct net_progress *p = net->progress;
    if (p->owner_fd < 0 || p->thread_fd < 0)
        return error_set(e, PAWL_IO, errno, "progress thread: no descriptor");
    sigset_t all, before; /* the program's signals are for its own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&p->thread, NULL, keep_moving, net);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? PAWL_OK : error_set(e, PAWL_IO, rc, "cannot start the progress thread");
}

pawl_code net_progress_start(struct net *net, struct pawl_error *e) {
    if (net->progress != NULL || net->transport->fd(net) < 0) return PAWL_OK;
    struct net_progress *p = calloc(1, sizeof *p);
    if (p == NULL) return error_set(e, PAWL_MEMORY, 0, "progress thread");
    pthread_mutex_init(&p->turn, NULL);
    pthread_mutex_init(&p->lock, NULL);
    p->owner_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    p->thread_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    net->progress = p;
    pawl_code code = start_thread(net, e);
    if (code == PAWL_OK) return PAWL_OK;
    net->progress = NULL;
    progress_free(p);
    return code;
}

void progress_stop(struct net *net) {
    struct net_progress *p = net->progress;
    if (p == NULL) return;
    net_lock(net);
    p->stop = true;
    wake_thread(p);
    net_unlock(net);
    pthread_join(p->thread, NULL);
    net->progress = NULL;
    progress_free(p);
}
