/* Rate of long messages and round trip of short ones between two processes: both asleep when idle, or both
 * computing 20 ms between two polls; without and with the progress thread. Then the processor time of eight
 * connected processes in which nothing happens.
 * Peer: `ucx_perftest -t ucp_am_bw` and `-t tag_lat` with the same UCX_TLS. Usage: bench_net_stream
 * [transports] [bytes of a long message]. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/net.h"

#define LONG_COUNT  32u
#define SHORT_COUNT 2000u
#define SHORT_BYTES 64u
#define BUSY_NS     20000000
#define IDLE_COUNT  8u
#define IDLE_S      5u

struct end {
    struct net *net;
    bool busy; /* computes between two polls, instead of sleeping */
    uint8_t *buffer;
    size_t bytes;
};

static void stop(const char *what, const struct pawl_error *e) {
    fprintf(stderr, "%s: %s\n", what, e->text);
    _exit(1);
}

static void swap_addresses(struct net *net, uint32_t peer, int in, int out) {
    struct pawl_error e = {0};
    size_t size = 0;
    const void *mine = net_address(net, &size);
    char theirs[4096];
    if (size > sizeof theirs || write(out, mine, size) != (ssize_t)size) _exit(1);
    ssize_t got = read(in, theirs, sizeof theirs); /* one write below PIPE_BUF arrives in one piece */
    if (got <= 0 || net_connect(net, peer, theirs, (size_t)got, &e) != PAWL_OK) stop("connect", &e);
}

static void compute(void) {
    int64_t until = clock_now_ns() + BUSY_NS;
    while (clock_now_ns() < until) {
    }
}

static void rest(const struct end *end) {
    if (end->busy) {
        compute();
    } else if (net_arm(end->net)) {
        struct pollfd p = {.fd = net_fd(end->net), .events = POLLIN};
        poll(&p, 1, -1);
    }
}

static void wait_for(const struct end *end, uint32_t count) {
    struct net_completion done[16];
    while (count > 0) {
        uint32_t n = net_poll(end->net, done, count < 16 ? count : 16);
        count -= n;
        if (n == 0) rest(end);
    }
}

static void send_one(const struct end *end, uint64_t tag, size_t bytes) {
    struct pawl_error e = {0};
    if (net_send(end->net, 1, tag, end->buffer, bytes, 0, &e) != PAWL_OK) stop("send", &e);
}

static void recv_one(const struct end *end, uint64_t tag, size_t bytes) {
    struct pawl_error e = {0};
    if (net_recv(end->net, tag, end->buffer, bytes, 0, &e) != PAWL_OK) stop("receive", &e);
}

static void answer(const struct end *end, uint32_t trips) {
    for (uint32_t i = 0; i < trips; i++) {
        recv_one(end, i, SHORT_BYTES);
        wait_for(end, 1);
        send_one(end, i, SHORT_BYTES);
        wait_for(end, 1);
    }
    for (uint32_t i = 0; i < LONG_COUNT; i++) recv_one(end, SHORT_COUNT + i, end->bytes);
    wait_for(end, LONG_COUNT);
    send_one(end, 1u << 20, 1);
    wait_for(end, 1);
    pause(); /* killed by the other side */
}

static void measure(const struct end *end, uint32_t trips, const char *title) {
    int64_t start = clock_now_ns();
    for (uint32_t i = 0; i < trips; i++) {
        recv_one(end, i, SHORT_BYTES);
        send_one(end, i, SHORT_BYTES);
        wait_for(end, 2);
    }
    int64_t trip = (clock_now_ns() - start) / trips;
    recv_one(end, 1u << 20, 1);
    start = clock_now_ns();
    for (uint32_t i = 0; i < LONG_COUNT; i++) send_one(end, SHORT_COUNT + i, end->bytes);
    wait_for(end, LONG_COUNT + 1);
    double seconds = (double)(clock_now_ns() - start) / 1e9;
    printf("%-26s %zu-byte messages %.3f GB/s, %u-byte round trip %.1f us\n", title, end->bytes,
           (double)end->bytes * LONG_COUNT / seconds / 1e9, SHORT_BYTES, (double)trip / 1e3);
}

static struct net *open_net(const char *transports, bool thread) {
    struct net *net = NULL;
    struct pawl_error e = {0};
    if (net_open_ucx(transports, &net, &e) != PAWL_OK) stop("open", &e);
    if (thread && net_progress_start(net, &e) != PAWL_OK) stop("thread", &e);
    return net;
}

/* In a process of its own, as UCX must not be forked. */
static int stream(const char *transports, size_t bytes, bool busy, bool thread) {
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) return 1;
    pid_t child = fork();
    struct end end = {
        .net = open_net(transports, thread), .busy = busy, .buffer = mem_alloc(bytes), .bytes = bytes};
    if (end.buffer == NULL) return 1;
    swap_addresses(end.net, 1, child == 0 ? to[0] : from[0], child == 0 ? from[1] : to[1]);
    uint32_t trips = busy ? SHORT_COUNT / 100 : SHORT_COUNT;
    char title[64];
    snprintf(title, sizeof title, "%s, %s thread:", busy ? "computing" : "asleep", thread ? "with" : "no");
    if (child == 0)
        answer(&end, trips);
    else
        measure(&end, trips, title);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    net_close(end.net);
    mem_free(end.buffer, bytes);
    return 0;
}

/* One of IDLE_COUNT, each connected with the next; writes the processor time of its idle phase. */
static int idle(const char *transports, bool thread, const int (*pipes)[2], uint32_t at) {
    struct end end = {.net = open_net(transports, thread)};
    uint8_t byte[2] = {0};
    struct pawl_error e = {0};
    swap_addresses(end.net, 1, pipes[at][0], pipes[(at + 1) % IDLE_COUNT][1]);
    if (net_recv(end.net, 1, &byte[0], 1, 0, &e) != PAWL_OK) stop("receive", &e);
    if (net_send(end.net, 1, 1, &byte[1], 1, 0, &e) != PAWL_OK) stop("send", &e);
    wait_for(&end, 2);
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    int64_t until = clock_now_ns() + (int64_t)IDLE_S * 1000000000;
    for (int64_t left; (left = until - clock_now_ns()) > 0;) {
        struct net_completion done;
        if (net_poll(end.net, &done, 1) == 0 && net_arm(end.net))
            poll(&(struct pollfd){.fd = net_fd(end.net), .events = POLLIN}, 1, (int)(left / 1000000) + 1);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    double busy = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
    printf("idle, %s thread: process %u used %.3f ms of %u s\n", thread ? "with" : "no", at, busy * 1e3,
           IDLE_S);
    net_close(end.net);
    return 0;
}

static int idle_all(const char *transports, bool thread) {
    int pipes[IDLE_COUNT][2];
    for (uint32_t i = 0; i < IDLE_COUNT; i++)
        if (pipe(pipes[i]) != 0) return 1;
    for (uint32_t i = 0; i < IDLE_COUNT; i++) {
        if (fork() != 0) continue;
        int rc = idle(transports, thread, pipes, i);
        fflush(stdout);
        _exit(rc);
    }
    for (uint32_t i = 0; i < IDLE_COUNT; i++) wait(NULL);
    return 0;
}

int main(int argc, char **argv) {
    const char *transports = argc > 1 ? argv[1] : "tcp,self";
    size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : (size_t)16 << 20;
    if (bytes < SHORT_BYTES) return 1;
    for (uint32_t i = 0; i < 4; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            int rc = stream(transports, bytes, i / 2 == 1, i % 2 == 1);
            fflush(stdout);
            _exit(rc);
        }
        waitpid(pid, NULL, 0);
    }
    for (uint32_t i = 0; i < 2; i++)
        if (idle_all(transports, i == 1) != 0) return 1;
    return 0;
}
