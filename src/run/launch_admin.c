/* The launcher's end of run/admin.h: requests of pawl join, drain, stop and status, in the loop.
 *
 * Only the run's owner may ask. A connection that says nothing is told so after a while, and closed; what it
 * says is at most a few bytes. Without the socket (a file system that has none) the run goes on, and says so.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "run/admin.h"
#include "run/launch_state.h"
#include "run/launch_status.h"

/* Connections at once; more wait in the socket's queue until one of these ends. */
#define CLIENTS_MAX 32u

/* For a request, or for an answer to be taken. */
#define PATIENCE_NS INT64_C(5000000000)

enum client_state { CLIENT_FREE, CLIENT_ASKING, CLIENT_JOINING, CLIENT_DRAINING, CLIENT_ANSWERED };

struct client {
    enum client_state state;
    struct channel *channel;
    pid_t pid;
    int64_t since_ns;
    uint32_t rank; /* DRAINING */
    bool waiting;  /* JOINING: was told to wait */
};

struct launch_admin {
    int fd;
    struct client clients[CLIENTS_MAX];
};

void admin_open(struct launch *l) {
    struct pawl_error e;
    struct launch_admin *a = calloc(1, sizeof *a);
    pawl_code code =
        a != NULL ? admin_listen(l->spec.run.dir, &a->fd, &e) : error_set(&e, PAWL_MEMORY, 0, "memory");
    if (code == PAWL_OK) {
        l->admin = a;
        code = fleet_watch(l, a->fd, WATCH_ADMIN, 0, &e);
    } else {
        free(a);
    }
    if (code == PAWL_OK) return;
    json_text(progress_begin(l->progress, "no_admin"), "error", e.text);
    progress_end(l->progress, "pawl join, drain, stop and status cannot reach this run: %s", e.text);
}

static void say(struct client *c, const struct admin_frame *f) {
    struct bytes out = {0};
    admin_encode(f, &out);
    if (!out.failed) channel_send_frame(c->channel, out.data, out.size, NULL);
    bytes_close(&out);
}

static void answer(struct client *c, pawl_code code, const char *text) {
    say(c, &(struct admin_frame){.kind = ADMIN_REPLY, .code = code, .text = text});
    c->state = CLIENT_ANSWERED;
    c->since_ns = clock_now_ns();
}

static void drop(struct client *c) {
    channel_close(c->channel); /* the kernel forgets the watch with the descriptor */
    *c = (struct client){.state = CLIENT_FREE};
}

void admin_close(struct launch *l) {
    struct launch_admin *a = l->admin;
    char path[SPEC_TEXT_MAX + 16];
    if (a == NULL) return;
    for (uint32_t i = 0; i < CLIENTS_MAX; i++) {
        struct client *c = &a->clients[i];
        if (c->state == CLIENT_JOINING) answer(c, PAWL_NOT_FOUND, "the run has ended");
        if (c->state == CLIENT_DRAINING) answer(c, PAWL_OK, "the run has ended, and the worker with it");
        if (c->state != CLIENT_FREE) drop(c);
    }
    close(a->fd);
    snprintf(path, sizeof path, "%s/" ADMIN_SOCKET, l->spec.run.dir);
    unlink(path);
    free(a);
    l->admin = NULL;
}

static bool is_owner(int fd, pid_t *pid) {
    struct ucred who;
    socklen_t size = sizeof who;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return false;
    *pid = who.pid;
    return who.uid == geteuid() || who.uid == 0;
}

static struct client *free_client(struct launch_admin *a, uint32_t *index) {
    for (uint32_t i = 0; i < CLIENTS_MAX; i++)
        if (a->clients[i].state == CLIENT_FREE) {
            *index = i;
            return &a->clients[i];
        }
    return NULL;
}

void admin_accept(struct launch *l) {
    struct launch_admin *a = l->admin;
    uint32_t index;
    struct client *c;
    while (a != NULL && (c = free_client(a, &index)) != NULL) {
        int fd = accept4(a->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) return;
        pid_t pid;
        if (!is_owner(fd, &pid) || channel_open_fd(fd, &c->channel, NULL) != PAWL_OK) {
            close(fd);
            continue;
        }
        c->state = CLIENT_ASKING;
        c->pid = pid;
        c->since_ns = clock_now_ns();
        if (fleet_watch(l, fd, WATCH_CLIENT, index, NULL) != PAWL_OK) drop(c);
    }
}

/* --- join --- */

static pawl_code adopt(struct launch *l, struct client *c, uint32_t rank, struct pawl_error *e) {
    struct launch_process p = {.pid = c->pid, .channel = c->channel};
    char folder[4096];
    p.pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
    if (p.pidfd < 0) return error_set(e, PAWL_PEER_LOST, errno, "the process that joins");
    if (getcwd(folder, sizeof folder) == NULL) folder[0] = 0;
    bool other = l->spec.run.engine == SPEC_ENGINE_TORCH;
    say(c, &(struct admin_frame){.kind = ADMIN_WELCOME,
                                 .rank = rank,
                                 .text = folder[0] != 0 ? folder : "/",
                                 .transport = l->spec.net.transport,
                                 .evidence = l->witness.folder,
                                 .library = other ? getenv("PAWL_LIBRARY_TRAIN") : "",
                                 .threads = getenv("OMP_NUM_THREADS"),
                                 .program = other ? l->worker[0] : "",
                                 .module = other && l->worker[1] != NULL ? l->worker[2] : ""});
    epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, channel_fd(c->channel), NULL);
    *c = (struct client){.state = CLIENT_FREE}; /* the channel is the worker's now */
    return fleet_adopt(l, rank, &p, e);
}

static void tell_wait(struct client *c, int64_t hold_ns, int64_t now_ns) {
    char text[160];
    if (c->waiting) return;
    c->waiting = true;
    if (hold_ns > now_ns)
        snprintf(
            text, sizeof text,
            "every empty place is held off, because workers died there soon after they came: waiting %.1f s",
            (double)(hold_ns - now_ns) / 1e9);
    else
        snprintf(text, sizeof text, "the run looks for the step to go back to: waiting until it is found");
    say(c, &(struct admin_frame){.kind = ADMIN_WAIT, .text = text});
}

static void join(struct launch *l, struct client *c, int64_t now_ns) {
    int64_t hold_ns;
    struct pawl_error e;
    char text[160];
    uint32_t rank = places_free(l, now_ns, &hold_ns);
    c->state = CLIENT_JOINING;
    if (l->stopping || l->over) {
        answer(c, PAWL_NOT_FOUND, "the run is ending");
    } else if (rank != LAUNCH_NONE) {
        pid_t pid = c->pid;
        pawl_code code = adopt(l, c, rank, &e);
        if (code != PAWL_OK && c->state == CLIENT_JOINING) answer(c, code, e.text);
        struct json *j = progress_begin(l->progress, "joining");
        json_i64(j, "rank", rank);
        json_i64(j, "pid", pid);
        if (code == PAWL_OK)
            progress_end(l->progress, "process %d takes the place of worker %u", (int)pid, rank);
        else
            progress_end(l->progress, "process %d could not join: %s", (int)pid, e.text);
    } else if (hold_ns > 0) {
        tell_wait(c, hold_ns, now_ns);
    } else {
        snprintf(text, sizeof text, "all %u places are taken (parallel.pipelines_max %u x %u stages)",
                 l->ranks, l->ranks / l->spec.parallel.stages, l->spec.parallel.stages);
        answer(c, PAWL_BUSY, text);
    }
}

/* --- drain, stop, status --- */

static void drain(struct launch *l, struct client *c, uint32_t rank) {
    char text[128];
    struct launch_worker *w = rank < l->ranks ? &l->workers[rank] : NULL;
    if (w == NULL || w->process.pid <= 0 || w->gone) {
        snprintf(text, sizeof text, "there is no worker %u: see pawl status", rank);
        answer(c, PAWL_ARGUMENT, text);
        return;
    }
    c->state = CLIENT_DRAINING;
    c->rank = rank;
    snprintf(text, sizeof text, "worker %u is drained: its work is planned anew, then it leaves", rank);
    say(c, &(struct admin_frame){.kind = ADMIN_WAIT, .text = text});
    if (w->leaving) return;
    w->leaving = true;
    json_i64(progress_begin(l->progress, "drain"), "rank", rank);
    progress_end(l->progress, "%s", text);
    relay_say(l, &(struct link_frame){.kind = LINK_LEAVE, .rank = rank});
}

static void drained(struct launch *l, struct client *c) {
    const struct launch_worker *w = &l->workers[c->rank];
    char text[96];
    if (w->process.pid > 0 && !w->gone) return;
    snprintf(text, sizeof text,
             w->left ? "worker %u has left, without loss" : "worker %u died before it left", c->rank);
    answer(c, w->left ? PAWL_OK : PAWL_PEER_LOST, text);
}

static void status(struct launch *l, struct client *c, bool json) {
    struct bytes text = {0};
    if (json)
        status_json(l, &text);
    else
        status_text(l, &text);
    bytes_put_u8(&text, 0);
    if (text.failed)
        answer(c, PAWL_MEMORY, "no memory for the status");
    else
        answer(c, PAWL_OK, (const char *)text.data);
    bytes_close(&text);
}

static void serve(struct launch *l, struct client *c, const struct admin_frame *f) {
    switch (f->kind) {
    case ADMIN_JOIN:
        join(l, c, clock_now_ns());
        break;
    case ADMIN_DRAIN:
        drain(l, c, f->rank);
        break;
    case ADMIN_STOP:
        stop_begin(l, "pawl stop");
        answer(c, PAWL_OK,
               l->over ? "the run ends at once, as no step is done yet"
                       : "the next step is saved, then the run ends");
        break;
    case ADMIN_STATUS:
        status(l, c, f->json);
        break;
    default:
        answer(c, PAWL_FORMAT, "not a request");
    }
}

void admin_receive(struct launch *l, uint32_t client) {
    if (l->admin == NULL || client >= CLIENTS_MAX) return;
    struct client *c = &l->admin->clients[client];
    const uint8_t *data;
    size_t size;
    bool got = true;
    while (c->state != CLIENT_FREE && got) {
        struct admin_frame f;
        struct pawl_error e;
        pawl_code code = channel_receive_frame(c->channel, &data, &size, &got, &e);
        if (code != PAWL_OK) {
            drop(c); /* gone: a drain goes on, a join is over */
            return;
        }
        if (!got) return;
        if (c->state != CLIENT_ASKING || size > ADMIN_REQUEST_MAX)
            code = error_set(&e, PAWL_FORMAT, 0, "one request of at most %u bytes", ADMIN_REQUEST_MAX);
        if (code == PAWL_OK) code = admin_decode(data, size, &f, &e);
        if (code == PAWL_OK)
            serve(l, c, &f);
        else
            answer(c, code, e.text);
    }
}

/* Both sides may have stood still: what has come is served, and who is still silent is told to ask again, as
 * a connection that just closes says that the run has ended. */
static void lose_patience(struct launch *l, uint32_t client) {
    struct client *c = &l->admin->clients[client];
    bool asking = c->state == CLIENT_ASKING;
    if (asking) admin_receive(l, client);
    if (c->state == CLIENT_ASKING)
        answer(c, PAWL_TIMEOUT, "nothing was asked for 5 s after connecting: ask again");
    else if (!asking)
        drop(c);
}

void admin_tick(struct launch *l, int64_t now_ns) {
    for (uint32_t i = 0; l->admin != NULL && i < CLIENTS_MAX; i++) {
        struct client *c = &l->admin->clients[i];
        if (c->state == CLIENT_FREE) continue;
        bool flushed = channel_flush(c->channel);
        if (c->state == CLIENT_JOINING)
            join(l, c, now_ns);
        else if (c->state == CLIENT_DRAINING)
            drained(l, c);
        else if (c->state == CLIENT_ANSWERED && flushed)
            drop(c);
        else if (now_ns - c->since_ns > PATIENCE_NS)
            lose_patience(l, i);
    }
    if (l->admin != NULL) admin_accept(l);
}
