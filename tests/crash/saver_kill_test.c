/* Real processes, killed at random moments: the next start resumes at, or after, every step that any rank was
 * told to be durable, with its exact bytes; all ranks at the same one.
 *
 * The parent is never killed. Children write what they learn into a pipe, which outlives them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/rng.h"
#include "kit/saver_kit.h"

#define RANKS_MAX 3u

struct word {               /* one write to a pipe, whole or not at all */
    uint32_t rank, resumed; /* resumed: the step at the begin; else a durable one */
    uint64_t step;
};

static void say(int fd, uint32_t rank, bool resumed, uint64_t step) {
    struct word w = {rank, resumed, step};
    if (write(fd, &w, sizeof w) != (ssize_t)sizeof w) _exit(9);
}

struct teller {
    int fd;
    uint32_t rank;
};

static void tell(void *context, const struct pawl_ckpt_event *event) {
    const struct teller *t = context;
    if (event->kind == PAWL_CKPT_DURABLE) say(t->fd, t->rank, false, event->step);
}

/* Saves for ever. Replicas of one state, which they share, each part twice. */
static void child(const char *path, const char *start, uint32_t rank, uint32_t count, int fd) {
    struct teller teller = {fd, rank};
    struct pawl_ckpt_options o = {.path = path,
                                  .start = start,
                                  .rank = rank,
                                  .rank_count = count,
                                  .in_flight = 2,
                                  .chunk_bytes = 8192,
                                  .staging_bytes = 65536,
                                  .full = PAWL_CKPT_SKIP,
                                  .tolerate = UINT32_MAX,
                                  .on_event = tell,
                                  .on_event_context = &teller};
    struct pawl_error why = {0};
    struct skit_rank r = {.memory = skit_state_new(0, 1, 0)};
    uint64_t step = 0;
    if (pawl_ckpt_open(&o, &r.c, &why) != PAWL_OK ||
        pawl_ckpt_declare(r.c, r.memory->tensors, r.memory->count, &r.state, &why) != PAWL_OK ||
        pawl_ckpt_resume(r.c, r.state, &step, &why) != PAWL_OK) {
        fprintf(stderr, "rank %u: %s\n", rank, why.text);
        _exit(8);
    }
    if (step != 0 && !skit_is(r.memory, step)) _exit(7);
    say(fd, rank, true, step);
    for (;;) {
        if (pawl_ckpt_fence(r.c, PAWL_FOREVER, &why) != PAWL_OK) _exit(6);
        skit_fill(r.memory, ++step);
        struct pawl_ckpt_save save = {.state = r.state,
                                      .step = step,
                                      .replica = rank,
                                      .replica_count = count,
                                      .copies = count > 1 ? 2 : 1};
        uint64_t id = 0;
        if (pawl_ckpt_save(r.c, &save, &id, &why) != PAWL_OK) {
            fprintf(stderr, "rank %u, step %" PRIu64 ": %s\n", rank, step, why.text);
            _exit(5);
        }
        /* Ranks of a training go together. */
        if (id != 0) (void)pawl_ckpt_wait(r.c, id, PAWL_CKPT_UNTIL_COMMITTED, PAWL_FOREVER, &why);
    }
}

struct heard {
    uint64_t resumed[RANKS_MAX];
    bool has_resumed[RANKS_MAX];
    uint64_t durable; /* the newest told by anybody */
};

static void hear(int fd, struct heard *h) {
    struct word w;
    while (read(fd, &w, sizeof w) == (ssize_t)sizeof w) {
        if (w.resumed) {
            h->resumed[w.rank] = w.step;
            h->has_resumed[w.rank] = true;
        } else if (w.step > h->durable) {
            h->durable = w.step;
        }
    }
}

/* Starts all ranks, kills one after the other at random moments; what they said. */
static struct heard one_life(const char *path, uint32_t round, uint32_t count, struct rng_stream *rng) {
    int fds[2];
    pid_t pids[RANKS_MAX];
    char start[32];
    struct heard h = {0};
    snprintf(start, sizeof start, "round %u", round);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    for (uint32_t i = 0; i < count; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) child(path, start, i, count, fds[1]);
    }
    close(fds[1]);
    assert_int_equal(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
    /* Half of the lives get past the start, however slow the machine is. */
    if (round % 2 == 1) (void)poll(&(struct pollfd){.fd = fds[0], .events = POLLIN}, 1, 60000);
    for (uint32_t i = 0; i < count; i++) {
        /* An empty set: the moment is random, not measured. */
        (void)poll(NULL, 0, (int)rng_below(rng, i == 0 ? 60 : 8));
        hear(fds[0], &h);
        assert_int_equal(kill(pids[i], SIGKILL), 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        int status = 0;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        if (!WIFSIGNALED(status)) fail_msg("rank %u left by itself with %d", i, WEXITSTATUS(status));
    }
    hear(fds[0], &h);
    close(fds[0]);
    return h;
}

static void lives(uint32_t count, uint32_t rounds, uint64_t seed) {
    struct rng_stream rng = {seed};
    char *path = skit_folder();
    uint64_t durable = 0, resumes = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        struct heard h = one_life(path, round, count, &rng);
        for (uint32_t i = 0; i < count; i++) {
            if (!h.has_resumed[i]) continue;
            resumes++;
            for (uint32_t k = 0; k < i; k++)
                if (h.has_resumed[k]) assert_int_equal(h.resumed[i], h.resumed[k]);
            if (h.resumed[i] < durable)
                fail_msg("round %u: rank %u resumed at %" PRIu64 ", but %" PRIu64 " was durable", round, i,
                         h.resumed[i], durable);
            if (h.resumed[i] > durable) durable = h.resumed[i]; /* durable, though nobody lived to tell */
        }
        if (h.durable > durable) durable = h.durable;
    }
    print_message("%u ranks: %" PRIu64 " resumes, %" PRIu64 " steps\n", count, resumes, durable);
    assert_true(resumes > rounds / 8);
    assert_true(durable > 10);
    skit_remove(path);
}

static void one_rank_killed_at_random_resumes_at_what_was_durable(void **unused) {
    (void)unused;
    lives(1, 120, 1);
}

static void three_ranks_with_two_copies_killed_at_random_resume_at_what_was_durable(void **unused) {
    (void)unused;
    lives(3, 80, 2);
}

/* The last call of the process is the save; it then does nothing until it is killed. */
static void step_becomes_durable_without_any_further_call(void **unused) {
    (void)unused;
    char *path = skit_folder();
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct teller teller = {fds[1], 0};
        struct pawl_ckpt_options o = {.path = path, .on_event = tell, .on_event_context = &teller};
        struct skit_rank r = skit_open(&o, skit_state_new(0, 1, 0));
        (void)skit_save(&r, 1);
        for (;;) pause();
    }
    struct word w = {0};
    assert_int_equal(read(fds[0], &w, sizeof w), sizeof w);
    assert_int_equal(w.step, 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    struct skit_rank r = skit_open(&(struct pawl_ckpt_options){.path = path}, skit_state_new(0, 1, 0));
    uint64_t step = 0;
    SKIT_MUST(pawl_ckpt_resume(r.c, r.state, &step, e));
    assert_int_equal(step, 1);
    assert_true(skit_is(r.memory, 1));
    skit_close(&r);
    close(fds[0]);
    close(fds[1]);
    skit_remove(path);
}

#define MANY 128u
static int one_of_many(const char *path, uint32_t rank, struct rng_stream rng) {
    struct pawl_ckpt_options o = {.path = path,
                                  .start = "many",
                                  .rank = rank,
                                  .rank_count = MANY,
                                  .backend = PAWL_CKPT_PLAIN,
                                  .staging_bytes = 65536,
                                  .chunk_bytes = 65536};
    struct skit_rank r = skit_open(&o, skit_state_new(0, 1, 0));
    struct pawl_error why = {0};
    for (uint64_t step = 1; step <= 2; step++) {
        (void)poll(NULL, 0, (int)rng_below(&rng, 100));
        skit_fill(r.memory, step);
        uint64_t id = 0;
        struct pawl_ckpt_save save = {.state = r.state, .step = step, .replica = rank, .replica_count = MANY};
        if (pawl_ckpt_save(r.c, &save, &id, &why) == PAWL_OK &&
            pawl_ckpt_wait(r.c, id, PAWL_CKPT_UNTIL_DURABLE, pawl_now() + 300 * SECOND, &why) == PAWL_OK)
            continue;
        fprintf(stderr, "rank %u: %s\n", rank, why.text);
        return 1;
    }
    skit_close(&r);
    return 0;
}

static void all_of_128_writers_see_every_step_durable(void **unused) {
    (void)unused;
    char *path = skit_folder();
    pid_t pids[MANY];
    uint32_t good = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) _exit(one_of_many(path, i, (struct rng_stream){i}));
    }
    for (uint32_t i = 0; i < MANY; i++) {
        int status = 0;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    assert_int_equal(good, MANY);
    struct pawl_ckpt_reader *reader = NULL;
    struct skit_state *whole = skit_state_new(0, 1, 0);
    SKIT_MUST(pawl_ckpt_reader_open(path, NULL, &reader, e));
    uint32_t newest = pawl_ckpt_reader_newest(reader);
    assert_int_equal(pawl_ckpt_reader_step(reader, newest).step, 2);
    SKIT_MUST(pawl_ckpt_reader_read(reader, newest, whole->tensors, whole->count, e));
    assert_true(skit_is(whole, 2));
    pawl_ckpt_reader_close(reader);
    skit_state_free(whole);
    skit_remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_killed_at_random_resumes_at_what_was_durable),
        cmocka_unit_test(three_ranks_with_two_copies_killed_at_random_resume_at_what_was_durable),
        cmocka_unit_test(step_becomes_durable_without_any_further_call),
        cmocka_unit_test(all_of_128_writers_see_every_step_durable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
