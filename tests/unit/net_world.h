/* Endpoints of one kind in one process, for the cases that every kind must pass. */
#ifndef NET_WORLD_H
#define NET_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/core.h"
#include "net/sim.h"

/* A case that hangs is ended by SIGALRM instead of blocking the suite; one that is only slow, or was stopped
 * for a while, is not. */
#define WORLD_HANG_S 300u
#define WORLD_ENDS   4u

enum world_kind { WORLD_SIM, WORLD_SIM_PIECES, WORLD_TCP, WORLD_TCP_THREAD };

struct world {
    enum world_kind kind;
    struct netsim *sim;
    struct net *ends[WORLD_ENDS];
    int64_t now;
};

/* UCX patches the code of mmap and madvise in memory, which thread sanitizer does not survive. UCX reads
 * the variable that forbids it when it is loaded, so it must be there before: start again with it. */
static inline void world_survive_thread_sanitizer(char **argv) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WORLD_THREAD_SANITIZER
#endif
#endif
#if defined(__SANITIZE_THREAD__) || defined(WORLD_THREAD_SANITIZER)
    if (getenv("UCX_MEM_MMAP_HOOK_MODE") == NULL) {
        setenv("UCX_MEM_MMAP_HOOK_MODE", "none", 1);
        execv("/proc/self/exe", argv);
    }
#endif
    (void)argv;
}

#define assert_ok(code, e)                                                                                   \
    do {                                                                                                     \
        if ((code) != PAWL_OK) fail_msg("%s: %s", pawl_code_name((e).code), (e).text);                       \
    } while (0)

static inline struct net *world_open_end(struct world *w) {
    struct pawl_error e = {0};
    struct net *net = NULL;
    if (w->sim != NULL) {
        net = netsim_open(w->sim, &e);
        assert_non_null(net);
        return net;
    }
    pawl_code code = net_open_ucx(NULL, &net, &e);
    assert_ok(code, e);
    if (w->kind == WORLD_TCP_THREAD) code = net_progress_start(net, &e);
    assert_ok(code, e);
    return net;
}

/* A value that the progress thread may be changing. */
#define PEEK(net, expression)                                                                                \
    ({                                                                                                       \
        net_lock(net);                                                                                       \
        __typeof__(expression) peeked = (expression);                                                        \
        net_unlock(net);                                                                                     \
        peeked;                                                                                              \
    })

static inline void world_connect(struct world *w, uint32_t from, uint32_t to) {
    struct pawl_error e = {0};
    size_t size = 0;
    const void *address = net_address(w->ends[to], &size);
    pawl_code code = net_connect(w->ends[from], to, address, size, &e);
    assert_ok(code, e);
}

static inline struct world *world_open(enum world_kind kind, uint64_t seed) {
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->kind = kind;
    if (kind == WORLD_SIM || kind == WORLD_SIM_PIECES) {
        w->sim = netsim_new(seed, (struct netsim_config){.delay_ns_min = 10, .delay_ns_max = 5000});
        assert_non_null(w->sim);
        if (kind == WORLD_SIM_PIECES) netsim_limit_frames(w->sim, 100);
    }
    for (uint32_t i = 0; i < WORLD_ENDS; i++) w->ends[i] = world_open_end(w);
    for (uint32_t i = 0; i < WORLD_ENDS; i++)
        for (uint32_t j = 0; j < WORLD_ENDS; j++)
            if (i != j) world_connect(w, i, j);
    alarm(WORLD_HANG_S);
    return w;
}

static inline void world_close(struct world *w) {
    for (uint32_t i = 0; i < WORLD_ENDS; i++) net_close(w->ends[i]);
    netsim_free(w->sim);
    free(w);
    alarm(0);
}

/* Let time pass: one event of the simulation, or one round of progress everywhere (completions stay). */
static inline void world_step(struct world *w) {
    if (w->sim != NULL) {
        int64_t next = netsim_advance(w->sim, w->now);
        if (next != INT64_MAX) w->now = next;
        netsim_advance(w->sim, w->now);
    }
    for (uint32_t i = 0; i < WORLD_ENDS; i++)
        if (w->ends[i] != NULL) net_poll(w->ends[i], NULL, 0);
}

/* The next completion of endpoint `at`. */
static inline struct net_completion world_wait(struct world *w, uint32_t at) {
    struct net_completion done;
    while (net_poll(w->ends[at], &done, 1) == 0) world_step(w);
    return done;
}

static inline void world_send(struct world *w, uint32_t from, uint32_t to, uint64_t tag, const void *data,
                              size_t bytes, uint64_t cookie) {
    struct pawl_error e = {0};
    pawl_code code = net_send(w->ends[from], to, tag, data, bytes, cookie, &e);
    assert_ok(code, e);
}

static inline void world_recv(struct world *w, uint32_t at, uint64_t tag, void *data, size_t bytes,
                              uint64_t cookie) {
    struct pawl_error e = {0};
    pawl_code code = net_recv(w->ends[at], tag, data, bytes, cookie, &e);
    assert_ok(code, e);
}

static inline void assert_done(struct net_completion done, uint64_t cookie, pawl_code code, size_t bytes) {
    assert_int_equal(done.cookie, cookie);
    assert_string_equal(pawl_code_name(done.code), pawl_code_name(code));
    assert_int_equal(done.bytes, bytes);
}

static inline uint64_t tag_of(uint64_t view, uint32_t microbatch) {
    return net_tag_encode((struct net_tag){
        .view = view, .step = 7, .kind = NET_ACTIVATION, .stage = 3, .microbatch = microbatch});
}

/* Bytes that differ from message to message and from place to place. */
static inline void fill(uint8_t *data, size_t bytes, uint64_t key) {
    struct rng_stream s = {key};
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t v = rng_next(&s);
        memcpy(data + at, &v, bytes - at < 8 ? bytes - at : 8);
    }
}

static inline bool holds(const uint8_t *data, size_t bytes, uint64_t key) {
    uint8_t *want = malloc(bytes + 1);
    assert_non_null(want);
    fill(want, bytes, key);
    bool same = memcmp(want, data, bytes) == 0;
    free(want);
    return same;
}

#endif
