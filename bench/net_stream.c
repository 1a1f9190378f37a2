/* Rate of long messages and round trip of short ones between two processes, both asleep when idle.
 * Peer: `ucx_perftest -t ucp_am_bw` and `-t tag_lat` with the same UCX_TLS. Usage: bench_net_stream
 * [transports] [bytes of a long message]. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/net.h"

#define LONG_COUNT  32u
#define SHORT_COUNT 2000u
#define SHORT_BYTES 64u

static void stop(const char *what, const struct pawl_error *e) {
    fprintf(stderr, "%s: %s\n", what, e->text);
    _exit(1);
}

static void swap_addresses(struct net *net, int in, int out) {
    struct pawl_error e = {0};
    size_t size = 0;
    const void *mine = net_address(net, &size);
    char theirs[4096];
    if (size > sizeof theirs || write(out, mine, size) != (ssize_t)size) _exit(1);
    ssize_t got = read(in, theirs, sizeof theirs); /* one write below PIPE_BUF arrives in one piece */
    if (got <= 0 || net_connect(net, 1, theirs, (size_t)got, &e) != PAWL_OK) stop("connect", &e);
}

static void wait_for(struct net *net, uint32_t count) {
    struct net_completion done[16];
    while (count > 0) {
        uint32_t n = net_poll(net, done, count < 16 ? count : 16);
        count -= n;
        if (n > 0 || !net_arm(net)) continue;
        struct pollfd p = {.fd = net_fd(net), .events = POLLIN};
        poll(&p, 1, -1);
    }
}

static void send_one(struct net *net, uint64_t tag, const void *data, size_t bytes) {
    struct pawl_error e = {0};
    if (net_send(net, 1, tag, data, bytes, 0, &e) != PAWL_OK) stop("send", &e);
}

static void recv_one(struct net *net, uint64_t tag, void *data, size_t bytes) {
    struct pawl_error e = {0};
    if (net_recv(net, tag, data, bytes, 0, &e) != PAWL_OK) stop("receive", &e);
}

static void answer(struct net *net, uint8_t *buffer, size_t bytes) {
    for (uint32_t i = 0; i < SHORT_COUNT; i++) {
        recv_one(net, i, buffer, SHORT_BYTES);
        wait_for(net, 1);
        send_one(net, i, buffer, SHORT_BYTES);
        wait_for(net, 1);
    }
    for (uint32_t i = 0; i < LONG_COUNT; i++) recv_one(net, SHORT_COUNT + i, buffer, bytes);
    wait_for(net, LONG_COUNT);
    send_one(net, 1u << 20, buffer, 1);
    wait_for(net, 1);
    pause(); /* killed by the other side */
}

static void measure(struct net *net, const char *transports, uint8_t *buffer, size_t bytes) {
    int64_t start = clock_now_ns();
    for (uint32_t i = 0; i < SHORT_COUNT; i++) {
        recv_one(net, i, buffer, SHORT_BYTES);
        send_one(net, i, buffer, SHORT_BYTES);
        wait_for(net, 2);
    }
    int64_t trip = (clock_now_ns() - start) / SHORT_COUNT;
    recv_one(net, 1u << 20, buffer, 1);
    start = clock_now_ns();
    for (uint32_t i = 0; i < LONG_COUNT; i++) send_one(net, SHORT_COUNT + i, buffer, bytes);
    wait_for(net, LONG_COUNT + 1);
    double seconds = (double)(clock_now_ns() - start) / 1e9;
    printf("%s: %zu-byte messages %.2f GB/s, %u-byte round trip %.1f us\n", transports, bytes,
           (double)bytes * LONG_COUNT / seconds / 1e9, SHORT_BYTES, (double)trip / 1e3);
}

int main(int argc, char **argv) {
    const char *transports = argc > 1 ? argv[1] : "tcp,self";
    size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : (size_t)16 << 20;
    int to[2], from[2];
    if (bytes < SHORT_BYTES || pipe(to) != 0 || pipe(from) != 0) return 1;
    pid_t child = fork(); /* before UCX starts */
    struct net *net = NULL;
    struct pawl_error e = {0};
    if (net_open_ucx(transports, &net, &e) != PAWL_OK) stop("open", &e);
    uint8_t *buffer = mem_alloc(bytes);
    if (buffer == NULL) return 1;
    swap_addresses(net, child == 0 ? to[0] : from[0], child == 0 ? from[1] : to[1]);
    if (child == 0)
        answer(net, buffer, bytes);
    else
        measure(net, transports, buffer, bytes);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    net_close(net);
    mem_free(buffer, bytes);
    return 0;
}
