/* Waiting and waking: every back end sleeps when there is nothing to do and misses no call from another
 * thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kit/store_kit.h"

/* Longer than any test may last: a lost wake-up ends in the test's time limit. */
#define FOREVER_NS (INT64_C(3600) * 1000000000)
#define ROUNDS     2000u

static void a_wake_before_the_wait_is_not_lost(void **state) {
    struct store *s = kit_open(*state, false);
    for (uint32_t i = 0; i < 100; i++) {
        store_wake(s);
        if (i % 2 == 0) store_wake(s);
        store_wait(s, FOREVER_NS);
    }
    store_close(s);
}

static void a_longest_wait_is_still_ended_by_a_wake(void **state) {
    struct store *s = kit_open(*state, false);
    store_wake(s);
    store_wait(s, INT64_MAX);
    store_close(s);
}

struct pair {
    struct store *s;
    atomic_uint asked, answered;
    uint32_t rounds;
};

static void *ask(void *arg) {
    struct pair *p = arg;
    for (uint32_t i = 1; i <= p->rounds; i++) {
        atomic_store(&p->asked, i);
        store_wake(p->s);
        while (atomic_load(&p->answered) < i) sched_yield();
    }
    return NULL;
}

static void answer_all(struct pair *p) {
    for (uint32_t i = 1; i <= p->rounds; i++) {
        while (atomic_load(&p->asked) < i) store_wait(p->s, FOREVER_NS);
        atomic_store(&p->answered, i);
    }
}

static void each_of_many_wakes_from_another_thread_ends_a_wait(void **state) {
    struct pair p = {.s = kit_open(*state, false), .rounds = ROUNDS};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ask, &p), 0);
    answer_all(&p);
    pthread_join(thread, NULL);
    store_close(p.s);
}

static void *wait_a_moment(void *arg) {
    store_wait(arg, 1000000);
    return NULL;
}

static void a_wake_arrives_after_the_thread_that_waited_before_has_ended(void **state) {
    struct pair p = {.s = kit_open(*state, false), .rounds = 20};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_a_moment, p.s), 0);
    pthread_join(thread, NULL);
    assert_int_equal(pthread_create(&thread, NULL, ask, &p), 0);
    answer_all(&p);
    pthread_join(thread, NULL);
    store_close(p.s);
}

static void *wake_again_and_again(void *arg) {
    for (uint32_t i = 0; i < ROUNDS; i++) store_wake(arg);
    return NULL;
}

static void wakes_among_transfers_lose_no_completion(void **state) {
    enum { BLOCKS = 64 };
    struct store *s = kit_open(*state, false);
    struct store_file *f = kit_file(s, "a", BLOCKS * STORE_BLOCK);
    uint8_t *data = mem_alloc(BLOCKS * STORE_BLOCK);
    pthread_t threads[2];
    for (size_t t = 0; t < 2; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, wake_again_and_again, s), 0);
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < BLOCKS; i++)
            assert_int_equal(store_write(f, i * STORE_BLOCK, data + i * STORE_BLOCK, STORE_BLOCK, i, NULL),
                             PAWL_OK);
        uint64_t sum = 0;
        for (uint32_t i = 0; i < BLOCKS; i++) sum += kit_next_good(s);
        assert_int_equal(sum, BLOCKS * (BLOCKS - 1) / 2);
        assert_int_equal(store_flush(f, 7, NULL), PAWL_OK);
        assert_int_equal(kit_next_good(s), 7);
    }
    for (size_t t = 0; t < 2; t++) pthread_join(threads[t], NULL);
    store_file_close(f);
    store_close(s);
    mem_free(data, BLOCKS * STORE_BLOCK);
}

static int64_t own_cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A wake that was used up does not end the next wait, and the processor is left alone meanwhile. */
static void a_wait_for_nothing_lasts_its_time_asleep(void **state) {
    enum { WAIT_NS = 200000000 };
    struct store *s = kit_open(*state, false);
    struct store_file *f = kit_file(s, "a", STORE_BLOCK);
    uint8_t *data = mem_alloc(STORE_BLOCK);
    assert_int_equal(store_write(f, 0, data, STORE_BLOCK, 1, NULL), PAWL_OK); /* threads exist from here on */
    assert_int_equal(kit_next_good(s), 1);
    pthread_t thread; /* which leaves what it asked of the kernel behind */
    assert_int_equal(pthread_create(&thread, NULL, wait_a_moment, s), 0);
    pthread_join(thread, NULL);
    store_wake(s);
    store_wait(s, FOREVER_NS);
    int64_t begin = clock_now_ns(), cpu = own_cpu_ns(), left;
    /* A wait may end early for reasons of its own (a request renewed), but not over and over. */
    uint32_t waits = 0;
    while ((left = begin + WAIT_NS - clock_now_ns()) > 0) store_wait(s, left), waits++;
    cpu = own_cpu_ns() - cpu;
    assert_in_range(waits, 1, 5);
    if (cpu > WAIT_NS / 4) fail_msg("%lld ns of processor time in a wait of %d ns", (long long)cpu, WAIT_NS);
    store_file_close(f);
    store_close(s);
    mem_free(data, STORE_BLOCK);
}

static void the_depth_follows_the_choice_within_its_limits(void **state) {
    struct store *s = kit_open(*state, false);
    uint32_t usual = store_depth(s);
    assert_in_range(usual, 1, STORE_DEPTH_MAX);
    store_depth_set(s, 3);
    assert_int_equal(store_depth(s), 3);
    store_depth_set(s, UINT32_MAX);
    assert_int_equal(store_depth(s), STORE_DEPTH_MAX);
    store_depth_set(s, 0);
    assert_int_equal(store_depth(s), usual);
    store_close(s);
}

static void every_depth_moves_every_byte(void **state) {
    enum { BLOCKS = 150 };
    struct store *s = kit_open(*state, false);
    struct store_file *f = kit_file(s, "a", BLOCKS * STORE_BLOCK);
    uint8_t *out = mem_alloc(BLOCKS * STORE_BLOCK), *in = mem_alloc(BLOCKS * STORE_BLOCK);
    const uint32_t depths[] = {1, STORE_DEPTH_MAX, 2, 0, 7};
    for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++) {
        store_depth_set(s, depths[d]);
        for (size_t i = 0; i < BLOCKS * STORE_BLOCK; i++) out[i] = (uint8_t)(i * 7 + i / 4096 + d);
        for (uint32_t i = 0; i < BLOCKS; i++)
            assert_int_equal(store_write(f, i * STORE_BLOCK, out + i * STORE_BLOCK, STORE_BLOCK, i, NULL),
                             PAWL_OK);
        for (uint32_t i = 0; i < BLOCKS; i++) (void)kit_next_good(s);
        for (uint32_t i = 0; i < BLOCKS; i++)
            assert_int_equal(store_read(f, i * STORE_BLOCK, in + i * STORE_BLOCK, STORE_BLOCK, i, NULL),
                             PAWL_OK);
        for (uint32_t i = 0; i < BLOCKS; i++) (void)kit_next_good(s);
        assert_memory_equal(in, out, BLOCKS * STORE_BLOCK);
    }
    store_file_close(f);
    store_close(s);
    mem_free(out, BLOCKS * STORE_BLOCK);
    mem_free(in, BLOCKS * STORE_BLOCK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        KIT_EVERYWHERE(a_wake_before_the_wait_is_not_lost),
        KIT_EVERYWHERE(a_longest_wait_is_still_ended_by_a_wake),
        KIT_EVERYWHERE(each_of_many_wakes_from_another_thread_ends_a_wait),
        KIT_EVERYWHERE(a_wake_arrives_after_the_thread_that_waited_before_has_ended),
        KIT_EVERYWHERE(wakes_among_transfers_lose_no_completion),
        KIT_EVERYWHERE(a_wait_for_nothing_lasts_its_time_asleep),
        KIT_EVERYWHERE(the_depth_follows_the_choice_within_its_limits),
        KIT_EVERYWHERE(every_depth_moves_every_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
