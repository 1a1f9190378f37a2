/* UCX between processes: death, stops, wake-ups, leaks, and what UCX does to its host process.
 *
 * The other process is this program again (exec, so that it starts without UCX's state), told by its
 * arguments what to do; a pair of pipes carries the addresses and one-byte signs. */
#include "net_world.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#define HUGE_BYTES ((size_t)64 << 20)
#define EXIT_SKIP  77

/* Set: both processes have progress threads. */
#define THREAD_VARIABLE "NET_TEST_THREAD"

/* ---- two processes ---- */

struct peer_process {
    pid_t pid;
    int in, out; /* from it, to it */
};

static void write_all(int fd, const void *data, size_t size) {
    for (size_t at = 0; at < size;) {
        ssize_t n = write(fd, (const char *)data + at, size - at);
        if (n <= 0) _exit(3);
        at += (size_t)n;
    }
}

static void read_all(int fd, void *data, size_t size) {
    for (size_t at = 0; at < size;) {
        ssize_t n = read(fd, (char *)data + at, size - at);
        if (n <= 0) _exit(4);
        at += (size_t)n;
    }
}

static void wave(int fd) { write_all(fd, "!", 1); }
static void await(int fd) {
    char c;
    read_all(fd, &c, 1);
}

/* Swap addresses over the pipes and connect the other side as peer 1. */
static void meet(struct net *net, int in, int out) {
    size_t size = 0, theirs = 0;
    const void *mine = net_address(net, &size);
    write_all(out, &size, sizeof size);
    write_all(out, mine, size);
    read_all(in, &theirs, sizeof theirs);
    char *address = malloc(theirs);
    read_all(in, address, theirs);
    struct pawl_error e = {0};
    pawl_code code = net_connect(net, 1, address, theirs, &e);
    if (code != PAWL_OK) fprintf(stderr, "%s\n", e.text), _exit(5);
    free(address);
}

static struct peer_process start(const char *role, const char *transports) {
    int to[2], from[2];
    assert_int_equal(pipe2(to, O_CLOEXEC), 0);
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(to[0], 10);
        dup2(from[1], 11);
        execl("/proc/self/exe", "peer", role, transports, (char *)NULL);
        _exit(6);
    }
    close(to[0]);
    close(from[1]);
    return (struct peer_process){.pid = pid, .in = from[0], .out = to[1]};
}

static void end(struct peer_process *p) {
    kill(p->pid, SIGKILL);
    waitpid(p->pid, NULL, 0);
    close(p->in);
    close(p->out);
}

static struct net *open_net(const char *transports) {
    struct net *net = NULL;
    struct pawl_error e = {0};
    pawl_code code = net_open_ucx(transports, &net, &e);
    assert_ok(code, e);
    if (getenv(THREAD_VARIABLE) != NULL) code = net_progress_start(net, &e);
    assert_ok(code, e);
    alarm(WORLD_HANG_S);
    return net;
}

static void send_to_peer(struct net *net, uint64_t tag, const void *data, size_t bytes, uint64_t cookie) {
    struct pawl_error e = {0};
    pawl_code code = net_send(net, 1, tag, data, bytes, cookie, &e);
    assert_ok(code, e);
}

static void post(struct net *net, uint64_t tag, void *data, size_t bytes, uint64_t cookie) {
    struct pawl_error e = {0};
    pawl_code code = net_recv(net, tag, data, bytes, cookie, &e);
    assert_ok(code, e);
}

/* Wait for a completion asleep; returns how often it woke. */
static uint32_t sleep_for(struct net *net, struct net_completion *done) {
    uint32_t wakes = 0;
    while (net_poll(net, done, 1) == 0) {
        if (!net_arm(net)) continue;
        struct pollfd p = {.fd = net_fd(net), .events = POLLIN};
        poll(&p, 1, -1);
        wakes++;
    }
    return wakes;
}

static struct net_completion next(struct net *net) {
    struct net_completion done;
    sleep_for(net, &done);
    return done;
}

static const struct net_request *only_request(const struct net *net) {
    uint32_t i = 0;
    while (i + 1 < net->slot_count && net->slots[i]->state == REQUEST_FREE) i++;
    return net->slots[i];
}

/* ---- what the other process does ---- */

static void serve_forever(struct net *net) {
    struct net_completion done;
    for (;;) sleep_for(net, &done);
}

/* Take the beginning of a huge message, then stop; after SIGCONT answer in the next view. */
static void stop_within_a_message(struct net *net) {
    uint8_t *in = malloc(HUGE_BYTES), byte = 0;
    post(net, tag_of(1, 0), in, HUGE_BYTES, 1);
    while (PEEK(net, only_request(net)->moved) == 0) net_poll(net, NULL, 0);
    raise(SIGSTOP);
    net_fence(net, 2);
    post(net, tag_of(2, 0), &byte, 1, 2);
    assert_int_equal(next(net).cookie, 2);
    byte++;
    send_to_peer(net, tag_of(2, 1), &byte, 1, 3);
    serve_forever(net);
}

/* One message each way: from then on both directions are connected. */
static void greet(struct net *net) {
    uint8_t out = 0, in;
    post(net, tag_of(1, 99), &in, 1, 1);
    send_to_peer(net, tag_of(1, 99), &out, 1, 2);
    uint64_t seen = next(net).cookie + next(net).cookie;
    if (seen != 3) _exit(7);
}

static void send_when_told(struct net *net) {
    uint8_t byte = 5;
    greet(net);
    await(10);
    send_to_peer(net, tag_of(1, 0), &byte, 1, 1);
    serve_forever(net);
}

static void set_up_loopback(void) {
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) != 0) _exit(EXIT_SKIP);
    close(fd);
}

/* In a network namespace of its own, where nothing but `lo` is up. */
static int talk_without_a_network(void) {
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return EXIT_SKIP;
    set_up_loopback();
    struct world *w = world_open(WORLD_TCP, 1);
    uint8_t out = 3, in = 0;
    world_recv(w, 1, tag_of(1, 0), &in, 1, 1);
    world_send(w, 0, 1, tag_of(1, 0), &out, 1, 2);
    assert_done(world_wait(w, 1), 1, PAWL_OK, 1);
    world_close(w);
    return in == 3 ? 0 : 1;
}

static bool segv_is_handled_by_ucx(void) {
    struct sigaction action;
    Dl_info where = {0};
    sigaction(SIGSEGV, NULL, &action);
    if (dladdr((void *)(uintptr_t)action.sa_sigaction, &where) == 0) return false;
    return where.dli_fname != NULL && strstr(where.dli_fname, "libucs") != NULL;
}

static int report_signals(void) {
    struct net *net = open_net(NULL);
    bool handled = segv_is_handled_by_ucx();
    net_close(net);
    return handled ? 1 : 0;
}

static int play(const char *role, const char *transports) {
    if (strcmp(role, "alone") == 0) return talk_without_a_network();
    if (strcmp(role, "signals") == 0) return report_signals();
    if (strcmp(role, "hung") == 0) unsetenv(THREAD_VARIABLE); /* or it would answer */
    struct net *net = open_net(transports);
    meet(net, 10, 11);
    if (strcmp(role, "deaf") == 0) serve_forever(net);
    if (strcmp(role, "stop") == 0) stop_within_a_message(net);
    if (strcmp(role, "send") == 0) send_when_told(net);
    if (strcmp(role, "hung") == 0) await(10);
    return 2;
}

static int run_alone(const char *role) {
    struct peer_process p = start(role, "");
    int status = 0;
    waitpid(p.pid, &status, 0);
    close(p.in);
    close(p.out);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* ---- the cases ---- */

/* Polls without any effect after which a transport has nothing left to do. */
#define POLLS_UNTIL_IDLE 20000u

/* A peer stopped within a huge message, and as many frames handed over as it will ever take. */
static uint8_t *fill_stopped_peer(struct net *net, const struct peer_process *p) {
    uint8_t *out = malloc(HUGE_BYTES);
    fill(out, HUGE_BYTES, 1);
    send_to_peer(net, tag_of(1, 0), out, HUGE_BYTES, 1);
    int status = 0;
    while (waitpid(p->pid, &status, WUNTRACED | WNOHANG) == 0) net_poll(net, NULL, 0);
    assert_true(WIFSTOPPED(status));
    /* Usually the window; fewer where it was stopped with room in its own queue and nothing asked for. */
    uint32_t taken = 0;
    for (uint32_t unchanged = 0; taken < NET_PEER_WINDOW && unchanged < POLLS_UNTIL_IDLE; unchanged++) {
        net_poll(net, NULL, 0);
        uint32_t now = PEEK(net, peer_of_number(net, 1)->frames_window);
        if (now != taken) unchanged = 0;
        taken = now;
    }
    return out;
}

static void sends_to_a_killed_process_end(void **state) {
    const char *transports = (const char *)*state;
    struct peer_process p = start("stop", transports);
    struct net *net = open_net(transports);
    meet(net, p.in, p.out);
    uint8_t in, *out = fill_stopped_peer(net, &p);
    post(net, tag_of(1, 5), &in, 1, 50);
    for (uint64_t i = 2; i < 10; i++) send_to_peer(net, tag_of(1, (uint32_t)i), out, 100, i);
    end(&p);
    for (uint32_t i = 1; i < 10; i++) {
        struct net_completion done = next(net);
        assert_in_range(done.cookie, 1, 9);
        if (done.cookie == 1 || done.code != PAWL_OK) assert_int_equal(done.code, PAWL_PEER_LOST);
    }
    send_to_peer(net, tag_of(1, 20), out, 1, 20);
    assert_done(next(net), 20, PAWL_PEER_LOST, 0);
    assert_int_equal(PEEK(net, net->posted.count), 1); /* the receive just stays open */
    net_fence(net, 2);
    assert_int_equal(PEEK(net, net->posted.count), 0);
    free(out);
    net_close(net);
}

static void a_send_that_waits_for_its_receive_ends_when_the_process_dies(void **state) {
    const char *transports = (const char *)*state;
    struct peer_process p = start("deaf", transports);
    struct net *net = open_net(transports);
    meet(net, p.in, p.out);
    uint8_t *out = malloc(HUGE_BYTES);
    fill(out, HUGE_BYTES, 2);
    send_to_peer(net, tag_of(1, 0), out, HUGE_BYTES, 1);
    while (PEEK(net, only_request(net)->state != REQUEST_ANNOUNCED || only_request(net)->frames_open > 0))
        net_poll(net, NULL, 0);
    end(&p);
    assert_done(next(net), 1, PAWL_PEER_LOST, 0);
    free(out);
    net_close(net);
}

static void *refuse_link(void) {
    fail_msg("a fence must not touch the transport");
    return NULL;
}
static pawl_code no_open(struct net *n, struct net_peer *p, const void *a, size_t s, struct pawl_error *e) {
    (void)n, (void)p, (void)a, (void)s, (void)e;
    refuse_link();
    return PAWL_OK;
}
static void no_close(struct net *n, void *link) { (void)n, (void)link, refuse_link(); }
static void no_send(struct net *n, void *link, struct net_frame *f) {
    (void)n, (void)link, (void)f, refuse_link();
}
static bool no_progress(struct net *n) { return (void)n, refuse_link() != NULL; }

/* The fence waits for nobody, because it calls nothing that could wait. */
static void fence_without_transport(struct net *net, uint64_t view) {
    const struct transport none = {
        .link_open = no_open, .link_close = no_close, .frame_send = no_send, .progress = no_progress};
    if (net->progress != NULL) { /* the thread may not find it gone */
        net_fence(net, view);
        return;
    }
    const struct transport *real = net->transport;
    net->transport = &none;
    net_fence(net, view);
    net->transport = real;
}

static void a_fence_waits_for_no_stopped_process_and_the_link_survives(void **state) {
    const char *transports = (const char *)*state;
    struct peer_process p = start("stop", transports);
    struct net *net = open_net(transports);
    meet(net, p.in, p.out);
    uint8_t byte = 41, *out = fill_stopped_peer(net, &p);
    fence_without_transport(net, 2);
    assert_true(PEEK(net, net->slots_free_count == net->slot_count));
    assert_in_range(PEEK(net, peer_of_number(net, 1)->frames_owned), 0, NET_PEER_WINDOW);
    memset(out, 0, HUGE_BYTES);
    free(out); /* nothing may read it any more: address sanitizer watches */
    post(net, tag_of(2, 1), &byte, 1, 2);
    send_to_peer(net, tag_of(2, 0), &byte, 1, 3);
    kill(p.pid, SIGCONT);
    uint64_t seen = next(net).cookie + next(net).cookie;
    assert_int_equal(seen, 5);
    assert_int_equal(byte, 42);
    end(&p);
    net_close(net);
}

static void closing_while_a_peer_is_stopped_ends(void **state) {
    const char *transports = (const char *)*state;
    struct peer_process p = start("stop", transports);
    struct net *net = open_net(transports);
    meet(net, p.in, p.out);
    uint8_t *out = fill_stopped_peer(net, &p);
    net_close(net);
    free(out);
    end(&p);
}

static void a_sleeper_is_woken_by_a_message(void **state) {
    const char *transports = (const char *)*state;
    struct peer_process p = start("send", transports);
    struct net *net = open_net(transports);
    meet(net, p.in, p.out);
    greet(net);
    uint8_t byte = 0;
    post(net, tag_of(1, 0), &byte, 1, 1);
    struct net_completion done;
    uint32_t tries = 0;
    do net_poll(net, NULL, 0), tries++;
    while (!net_arm(net));
    assert_in_range(tries, 1, 1000); /* with nothing to do, arming succeeds soon */
    wave(p.out);
    uint32_t wakes = sleep_for(net, &done);
    assert_done(done, 1, PAWL_OK, 1);
    assert_int_equal(byte, 5);
    assert_in_range(wakes, 0, 100);
    assert_int_equal(net_poll(net, &done, 1), 0);
    end(&p);
    net_close(net);
}

static int64_t time_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void waiting_for_a_peer_that_does_not_answer_costs_little(void **state) {
    const char *transports = (const char *)*state;
    struct peer_process p = start("hung", transports);
    struct net *net = open_net(transports);
    meet(net, p.in, p.out);
    uint8_t byte = 0;
    send_to_peer(net, tag_of(1, 0), &byte, 1, 1);
    int64_t wall = time_of(CLOCK_MONOTONIC), cpu = time_of(CLOCK_PROCESS_CPUTIME_ID);
    for (uint32_t wakes = 0, quiet = 0; wakes < 500 && quiet < 10;) {
        struct net_completion done;
        net_poll(net, &done, 1);
        if (!net_arm(net)) continue;
        struct pollfd descriptor = {.fd = net_fd(net), .events = POLLIN};
        if (poll(&descriptor, 1, 20) == 0)
            quiet++;
        else
            wakes++;
    }
    wall = time_of(CLOCK_MONOTONIC) - wall;
    cpu = time_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    if (cpu > wall / 2) fail_msg("slept with %ld of %ld ns busy", (long)cpu, (long)wall);
    end(&p);
    net_close(net);
}

static uint32_t open_descriptors(void) {
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    uint32_t count = 0;
    while (readdir(d) != NULL) count++;
    closedir(d);
    return count;
}

/* One peer is started, talked to, killed, and noticed to be dead. What may take WORLD_HANG_S is one life: UCX
 * 1.18 with all its modules takes 0.2 s to load on a busy machine, and a test has hundreds. */
static void one_life(struct net *net) {
    alarm(WORLD_HANG_S);
    struct peer_process p = start("send", "tcp,self");
    meet(net, p.in, p.out);
    greet(net);
    uint8_t byte = 0;
    post(net, tag_of(1, 0), &byte, 1, 1);
    wave(p.out);
    assert_done(next(net), 1, PAWL_OK, 1);
    end(&p);
    while (!peer_of_number(net, 1)->lost) net_poll(net, NULL, 0);
    while (net->transport->progress(net)) {
    }
}

/* UCX itself remembers something about every endpoint it ever met (170 bytes in version 1.13). */
#define GROWTH_BYTES_MAX 512

static void peers_that_come_and_go_leave_nothing_behind(void **state) {
    (void)state;
    enum { WARM = 50, LIVES = 200 };
    struct net *net = open_net(NULL);
    uint32_t descriptors = 0;
    size_t memory = 0;
    for (uint32_t i = 0; i < LIVES; i++) {
        if (i == WARM) {
            descriptors = open_descriptors();
            memory = mallinfo2().uordblks;
        }
        one_life(net);
    }
    size_t grown = mallinfo2().uordblks - memory; /* 0 where a sanitizer has its own heap */
    if ((int64_t)grown > (LIVES - WARM) * GROWTH_BYTES_MAX) fail_msg("%zu bytes more on the heap", grown);
    assert_int_equal(open_descriptors(), descriptors);
    net_close(net);
}

static void a_disconnected_living_peer_is_let_go_of(void **state) {
    (void)state;
    struct world *w = world_open(WORLD_TCP, 1);
    uint32_t descriptors = 0;
    for (uint32_t i = 0; i < 20; i++) {
        uint8_t out = 1, in = 0;
        world_recv(w, 1, tag_of(1, i), &in, 1, 1);
        world_send(w, 0, 1, tag_of(1, i), &out, 1, 2);
        assert_done(world_wait(w, 1), 1, PAWL_OK, 1);
        assert_done(world_wait(w, 0), 2, PAWL_OK, 1);
        net_disconnect(w->ends[0], 1);
        net_disconnect(w->ends[1], 0);
        for (uint32_t round = 0; round < 200; round++) world_step(w);
        if (i == 2) descriptors = open_descriptors();
        if (i > 2) assert_in_range(open_descriptors(), 1, descriptors);
        world_connect(w, 0, 1);
        world_connect(w, 1, 0);
    }
    world_close(w);
}

static void a_disconnected_peer_is_let_go_of_while_the_owner_computes(void **state) {
    (void)state;
    struct world *w = world_open(WORLD_TCP_THREAD, 1);
    uint8_t out = 1, in = 0;
    world_recv(w, 1, tag_of(1, 0), &in, 1, 1);
    world_send(w, 0, 1, tag_of(1, 0), &out, 1, 2);
    assert_done(world_wait(w, 1), 1, PAWL_OK, 1);
    assert_done(world_wait(w, 0), 2, PAWL_OK, 1);
    for (uint32_t round = 0; round < 200; round++) world_step(w);
    uint32_t before = open_descriptors();
    net_disconnect(w->ends[0], 1);
    net_disconnect(w->ends[1], 0);
    while (open_descriptors() >= before) sched_yield(); /* nobody polls */
    world_close(w);
}

static void one_program_opens_and_closes_many_times(void **state) {
    (void)state;
    net_close(open_net(NULL));
    uint32_t descriptors = open_descriptors();
    for (uint32_t i = 0; i < 20; i++) net_close(open_net(NULL));
    assert_int_equal(open_descriptors(), descriptors);
}

static void a_machine_without_a_network_will_do(void **state) {
    (void)state;
    int status = run_alone("alone");
    if (status == EXIT_SKIP) skip();
    assert_int_equal(status, 0);
}

static void the_programs_signals_are_left_alone_unless_the_user_wants_otherwise(void **state) {
    (void)state;
    assert_int_equal(run_alone("signals"), 0);
    setenv("UCX_ERROR_SIGNALS", "SEGV", 1);
    int status = run_alone("signals");
    unsetenv("UCX_ERROR_SIGNALS");
    assert_int_equal(status, 1);
}

static void an_unknown_transport_is_an_error_in_words(void **state) {
    (void)state;
    struct net *net = NULL;
    struct pawl_error e = {0};
    assert_int_equal(net_open_ucx("pigeon", &net, &e), PAWL_IO);
    assert_null(net);
    assert_non_null(strstr(e.text, "UCX"));
    net_close(NULL);
}

static void shared_memory_is_refused_because_deaths_go_unnoticed_there(void **state) {
    (void)state;
    static const char *const refused[] = {"posix", "tcp,sysv", "shm,self", "all"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct net *net = NULL;
        struct pawl_error e = {0};
        assert_int_equal(net_open_ucx(refused[i], &net, &e), PAWL_ARGUMENT);
        assert_null(net);
        assert_non_null(strstr(e.text, "shared memory"));
    }
}

/* Both sleep: what the owner and its thread cost together while nothing happens. */
static void an_idle_thread_does_not_wake(void **state) {
    const char *transports = (const char *)*state;
    struct peer_process p = start("send", transports);
    struct net *net = open_net(transports);
    meet(net, p.in, p.out);
    greet(net);
    struct net_completion done;
    do net_poll(net, &done, 1);
    while (!net_arm(net));
    int64_t cpu = time_of(CLOCK_PROCESS_CPUTIME_ID);
    struct pollfd descriptor = {.fd = net_fd(net), .events = POLLIN};
    assert_int_equal(poll(&descriptor, 1, 300), 0);
    cpu = time_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    if (cpu > 30000000) fail_msg("%ld ns of 300 ms asleep were busy", (long)cpu);
    end(&p);
    net_close(net);
}

static int thread_on(void **state) {
    (void)state;
    return setenv(THREAD_VARIABLE, "1", 1);
}

static int thread_off(void **state) {
    (void)state;
    return unsetenv(THREAD_VARIABLE);
}

#define THREADED(test)                                                                                       \
    { #test " (thread)", test, thread_on, thread_off, tcp }
#define OVER_TCP(test)                                                                                       \
    { #test, test, NULL, NULL, tcp }

int main(int argc, char **argv) {
    world_survive_thread_sanitizer(argv);
    if (argc == 3) return play(argv[1], argv[2]);
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    static char tcp[] = "tcp,self";
    const struct CMUnitTest tests[] = {
        OVER_TCP(sends_to_a_killed_process_end),
        OVER_TCP(a_send_that_waits_for_its_receive_ends_when_the_process_dies),
        OVER_TCP(a_fence_waits_for_no_stopped_process_and_the_link_survives),
        OVER_TCP(closing_while_a_peer_is_stopped_ends),
        OVER_TCP(a_sleeper_is_woken_by_a_message),
        OVER_TCP(waiting_for_a_peer_that_does_not_answer_costs_little),
        THREADED(sends_to_a_killed_process_end),
        THREADED(a_send_that_waits_for_its_receive_ends_when_the_process_dies),
        THREADED(a_fence_waits_for_no_stopped_process_and_the_link_survives),
        THREADED(closing_while_a_peer_is_stopped_ends),
        THREADED(a_sleeper_is_woken_by_a_message),
        THREADED(waiting_for_a_peer_that_does_not_answer_costs_little),
        THREADED(an_idle_thread_does_not_wake),
        THREADED(one_program_opens_and_closes_many_times),
        cmocka_unit_test(peers_that_come_and_go_leave_nothing_behind),
        cmocka_unit_test(a_disconnected_living_peer_is_let_go_of),
        cmocka_unit_test(a_disconnected_peer_is_let_go_of_while_the_owner_computes),
        cmocka_unit_test(one_program_opens_and_closes_many_times),
        cmocka_unit_test(a_machine_without_a_network_will_do),
        cmocka_unit_test(the_programs_signals_are_left_alone_unless_the_user_wants_otherwise),
        cmocka_unit_test(an_unknown_transport_is_an_error_in_words),
        cmocka_unit_test(shared_memory_is_refused_because_deaths_go_unnoticed_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
