/* Saves that are given up, on request or because newer ones overtook them; waiting and waking. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>

#include "kit/ckpt_kit.h"
#include "kit/fake_device.h"

#define STEPS 40u

struct rig {
    struct storesim *sim;
    struct store *store;
    struct ckpt_config config;
    struct ckpt *engine;
    struct device *device;
    struct kit_part *parts[STEPS + 1];
};

static void rig_open(struct rig *r, uint64_t seed, uint32_t n, uint32_t k, bool background) {
    *r = (struct rig){.sim = storesim_new(seed), .config = kit_config(1, 0, n, k)};
    struct pawl_error e = {0};
    r->config.background = background;
    if (storesim_open(r->sim, "r0", false, &r->store, &e) != PAWL_OK) fail_msg("%s", e.text);
    if (ckpt_open(&r->config, r->store, &r->engine, &e) != PAWL_OK) fail_msg("%s", e.text);
    r->device = device_new(seed, "card:0");
}

static void rig_close(struct rig *r) {
    struct pawl_error e = {0};
    if (ckpt_close(r->engine, kit_soon(), &e) != PAWL_OK) fail_msg("%s", e.text);
    device_free(r->device);
    for (uint32_t i = 0; i <= STEPS; i++) kit_part_free(r->parts[i]);
    store_close(r->store);
    storesim_free(r->sim);
}

/* A slow save has a tensor on the device, and ends when that is let go. */
static void begin(struct rig *r, uint64_t step, uint64_t tag, bool slow) {
    struct kit_part *p = kit_part_new(step, 0, 1);
    kit_part_free(r->parts[step]);
    r->parts[step] = p;
    if (slow) device_take(r->device, &p->tensors[0], kit_bytes(&p->tensors[0]), 0);
    struct ckpt_save save = kit_save(p, step, 0, 1);
    save.tag = tag;
    struct pawl_error e = {0};
    if (ckpt_save_begin(r->engine, &save, &e) != PAWL_OK) fail_msg("%s", e.text);
}

static void expect_end(struct rig *r, uint64_t step, pawl_code code) {
    struct ckpt_event event = kit_next(r->engine);
    assert_int_equal(event.kind, CKPT_ENDED);
    assert_int_equal(event.step, step);
    if (event.code != code) fail_msg("%d, wanted %d: %s", event.code, code, event.error.text);
}

static uint32_t slot_files(struct store *s) {
    char **names = NULL;
    uint32_t count = 0, slots = 0;
    assert_int_equal(store_list(s, &names, &count, NULL), PAWL_OK);
    for (uint32_t i = 0; i < count; i++) slots += strncmp(names[i], "slot-", 5) == 0;
    store_names_free(names, count);
    return slots;
}

/* By a reader of its own: the engine has its store to itself. */
static uint64_t newest_seen(struct rig *r) {
    struct store *reader = NULL;
    assert_int_equal(storesim_open(r->sim, "r0", true, &reader, NULL), PAWL_OK);
    uint32_t damaged = 0;
    uint64_t newest = kit_newest(&reader, 1, &damaged);
    assert_int_equal(damaged, 0);
    store_close(reader);
    return newest;
}

static void a_save_given_up_leaves_its_slot_to_the_next(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, 1, 1, 1, false);
    begin(&r, 1, 1, false);
    expect_end(&r, 1, PAWL_OK);
    ckpt_durable(r.engine, 1);
    for (uint64_t step = 2; step <= STEPS; step++) {
        begin(&r, step, step, false);
        struct ckpt_event event;
        for (uint64_t i = 0; i < step % 7; i++) /* at some point of its life */
            if (ckpt_poll(r.engine, &event, 1) > 0) fail_msg("step %u is over already", (unsigned)step);
        ckpt_cancel(r.engine, step);
        expect_end(&r, step, PAWL_CANCELLED);
    }
    assert_int_equal(slot_files(r.store), 2);
    assert_int_equal(kit_newest(&r.store, 1, NULL), 1);
    begin(&r, STEPS, 5, false);
    expect_end(&r, STEPS, PAWL_OK);
    assert_int_equal(slot_files(r.store), 2);
    rig_close(&r);
}

static void all_saves_with_the_tag_are_given_up_and_no_others(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, 1, 4, 4, false);
    begin(&r, 1, 7, false);
    begin(&r, 2, 8, false);
    begin(&r, 3, 7, false);
    begin(&r, 4, 9, false);
    ckpt_cancel(r.engine, 7);
    ckpt_cancel(r.engine, 12345);
    uint32_t codes[5] = {0};
    for (int i = 0; i < 4; i++) {
        struct ckpt_event event = kit_next(r.engine);
        codes[event.step] = event.code;
        if (event.code == PAWL_CANCELLED) assert_non_null(strstr(event.error.text, "given up"));
    }
    assert_int_equal(codes[1], PAWL_CANCELLED);
    assert_int_equal(codes[2], PAWL_OK);
    assert_int_equal(codes[3], PAWL_CANCELLED);
    assert_int_equal(codes[4], PAWL_OK);
    begin(&r, 5, 7, false); /* begun later: another save */
    expect_end(&r, 5, PAWL_OK);
    ckpt_cancel(r.engine, 7); /* of no effect on what has ended */
    rig_close(&r);
}

/* A save that is slow while newer ones commit (the ABA schedule): it replaces nothing, and when nobody can
 * ask for it any more it ends by itself, and its slot serves again. */
static void a_slow_save_is_overtaken(void **state) {
    (void)state;
    for (uint32_t k = 1; k <= 3; k++) {
        struct rig r;
        rig_open(&r, k, 2, k, false);
        device_hold(r.device, true);
        begin(&r, 1, 1, true);
        for (uint64_t step = 2; step < 2 + k; step++) {
            begin(&r, step, step, false);
            expect_end(&r, step, PAWL_OK);
            ckpt_durable(r.engine, step);
        }
        struct ckpt_event event;
        assert_int_equal(ckpt_poll(r.engine, &event, 1), 0); /* a copy is under way */
        device_hold(r.device, false);
        expect_end(&r, 1, PAWL_CANCELLED);
        for (uint64_t step = 2 + k; step < STEPS; step++) {
            begin(&r, step, step, false);
            expect_end(&r, step, PAWL_OK);
            ckpt_durable(r.engine, step);
        }
        assert_in_range(slot_files(r.store), k + 1, 2 + k + 1);
        assert_int_equal(kit_newest(&r.store, 1, NULL), STEPS - 1);
        rig_close(&r);
    }
}

static void a_slow_save_within_the_kept_steps_counts_and_replaces_nothing(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, 1, 4, 8, false);
    device_hold(r.device, true);
    begin(&r, 1, 1, true);
    for (uint64_t step = 2; step <= 7; step++) {
        begin(&r, step, step, false);
        expect_end(&r, step, PAWL_OK);
    }
    device_hold(r.device, false);
    expect_end(&r, 1, PAWL_OK);
    struct ckpt_set *set = NULL;
    assert_int_equal(ckpt_set_open(&r.store, 1, NULL, &set, NULL), PAWL_OK);
    assert_int_equal(ckpt_set_count(set), 7);
    assert_int_equal(ckpt_set_at(set, 0)->step, 7);
    for (uint32_t i = 0; i < 7; i++) assert_int_equal(kit_check_step(set, i, NULL), PAWL_OK);
    ckpt_set_close(set);
    rig_close(&r);
}

static void a_save_that_is_overtaken_before_it_begins_ends_at_once(void **state) {
    (void)state;
    struct rig r;
    rig_open(&r, 1, 1, 1, false);
    begin(&r, 9, 9, false);
    expect_end(&r, 9, PAWL_OK);
    ckpt_durable(r.engine, 9);
    begin(&r, 8, 8, false);
    expect_end(&r, 8, PAWL_CANCELLED);
    assert_int_equal(slot_files(r.store), 1);
    begin(&r, 9, 9, false); /* again, as with another number of parts */
    expect_end(&r, 9, PAWL_OK);
    rig_close(&r);
}

/* Everything at once: saves begun, given up, declared durable at moments drawn from a seed. Whatever ends OK
 * reads back; nothing else is lost; slots stay bounded. */
static void giving_up_at_random_loses_nothing(void **state) {
    (void)state;
    uint32_t good = 0, cancelled = 0;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        struct rig r;
        uint32_t n = 1 + (uint32_t)(seed % 8), k = 1 + (uint32_t)(seed / 8 % 3);
        rig_open(&r, seed, n, k, false);
        storesim_set_faults(r.sim, (struct storesim_faults){.delay = 400000});
        struct rng_stream random = {seed};
        uint64_t durable = 0, next = 1, done = 0;
        while (done < STEPS) {
            for (; next <= STEPS && ckpt_in_flight(r.engine) < n; next++)
                begin(&r, next, next, rng_below(&random, 4) == 0);
            if (rng_below(&random, 5) == 0)
                ckpt_cancel(r.engine, next - 1 - rng_below(&random, n < next ? n : 1));
            struct ckpt_event event;
            if (ckpt_poll(r.engine, &event, 1) == 0) {
                ckpt_wait(r.engine, 1000000);
                continue;
            }
            done++;
            assert_true(event.code == PAWL_OK || event.code == PAWL_CANCELLED);
            good += event.code == PAWL_OK;
            cancelled += event.code == PAWL_CANCELLED;
            if (event.code != PAWL_OK || event.step <= durable) continue;
            durable = event.step;
            ckpt_durable(r.engine, durable);
            assert_true(newest_seen(&r) >= durable);
        }
        assert_in_range(slot_files(r.store), 1, n + k + 1);
        rig_close(&r);
    }
    assert_true(good > 500 && cancelled > 500);
}

/* ---- waiting ---- */

struct waker {
    struct ckpt *engine;
    pthread_barrier_t ready;
    _Atomic bool said;
};

static void *waker_main(void *arg) {
    struct waker *w = arg;
    for (int i = 0; i < 200; i++) {
        pthread_barrier_wait(&w->ready);
        w->said = true;
        ckpt_wake(w->engine);
    }
    return NULL;
}

/* Only a wake can end this wait: nothing is in flight. A lost one would make the test hang. */
static void a_wake_from_any_thread_ends_the_wait(void **state) {
    (void)state;
    for (int background = 0; background < 2; background++) {
        struct rig r;
        rig_open(&r, 1, 1, 1, background == 1);
        struct waker w = {.engine = r.engine};
        pthread_t thread;
        pthread_barrier_init(&w.ready, NULL, 2);
        assert_int_equal(pthread_create(&thread, NULL, waker_main, &w), 0);
        for (int i = 0; i < 200; i++) {
            pthread_barrier_wait(&w.ready);
            struct ckpt_event event;
            while (!w.said) {
                assert_int_equal(ckpt_poll(r.engine, &event, 1), 0); /* swallows no wake */
                if (!w.said) ckpt_wait(r.engine, INT64_C(3600000000000));
            }
            w.said = false;
        }
        pthread_join(thread, NULL);
        pthread_barrier_destroy(&w.ready);
        rig_close(&r);
    }
}

static void a_wake_is_kept_for_the_next_wait(void **state) {
    (void)state;
    for (int background = 0; background < 2; background++) {
        struct rig r;
        rig_open(&r, 1, 1, 1, background == 1);
        struct ckpt_event event;
        ckpt_wake(r.engine);
        assert_int_equal(ckpt_poll(r.engine, &event, 1), 0);
        ckpt_wait(r.engine, INT64_C(3600000000000)); /* or the test hangs */
        rig_close(&r);
    }
}

static void a_wait_ends_with_news_and_with_its_time(void **state) {
    (void)state;
    for (int background = 0; background < 2; background++) {
        struct rig r;
        rig_open(&r, 1, 1, 1, background == 1);
        ckpt_wait(r.engine, 1); /* nothing is there and nothing comes */
        ckpt_wait(r.engine, 0);
        begin(&r, 1, 1, false);
        struct ckpt_event event;
        while (ckpt_poll(r.engine, &event, 1) == 0) ckpt_wait(r.engine, INT64_C(3600000000000));
        assert_int_equal(event.code, PAWL_OK);
        rig_close(&r);
    }
}

/* The order to end comes at every moment of the engine's thread: as it starts, takes what it was told, or is
 * about to sleep. Slept over, it would make the test hang. */
static void an_engine_hears_that_it_ends_whatever_its_thread_does(void **state) {
    (void)state;
    for (unsigned i = 0; i < 4000; i++) {
        struct rig r;
        rig_open(&r, 1, 1, 1, true);
        ckpt_durable(r.engine, 1);
        for (unsigned spin = 0; spin < i % 64 * 8; spin++) (void)ckpt_progress(r.engine);
        ckpt_wake(r.engine);
        rig_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_given_up_leaves_its_slot_to_the_next),
        cmocka_unit_test(all_saves_with_the_tag_are_given_up_and_no_others),
        cmocka_unit_test(a_slow_save_is_overtaken),
        cmocka_unit_test(a_slow_save_within_the_kept_steps_counts_and_replaces_nothing),
        cmocka_unit_test(a_save_that_is_overtaken_before_it_begins_ends_at_once),
        cmocka_unit_test(giving_up_at_random_loses_nothing),
        cmocka_unit_test(a_wake_from_any_thread_ends_the_wait),
        cmocka_unit_test(a_wake_is_kept_for_the_next_wait),
        cmocka_unit_test(a_wait_ends_with_news_and_with_its_time),
        cmocka_unit_test(an_engine_hears_that_it_ends_whatever_its_thread_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
