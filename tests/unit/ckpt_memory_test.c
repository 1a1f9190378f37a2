/* Tensors in memory that the processor cannot read: copied by a device, late, out of order, from its thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>

#include "ckpt/engine.h"
#include "kit/ckpt_kit.h"
#include "kit/fake_device.h"

#define STEPS 12u

struct rig {
    struct storesim *sim;
    struct store *store;
    struct ckpt_config config;
    struct ckpt *engine;
    struct device *devices[2];
    struct kit_part *parts[STEPS + 1];
};

static void rig_open(struct rig *r, uint64_t seed, uint32_t n, uint64_t staging_bytes, bool background) {
    *r = (struct rig){.sim = storesim_new(seed), .config = kit_config(1, 0, n, STEPS)};
    struct pawl_error e = {0};
    r->config.staging_bytes = staging_bytes;
    r->config.background = background;
    storesim_set_faults(r->sim, (struct storesim_faults){.delay = 300000});
    if (storesim_open(r->sim, "r0", false, &r->store, &e) != PAWL_OK) fail_msg("%s", e.text);
    if (ckpt_open(&r->config, r->store, &r->engine, &e) != PAWL_OK) fail_msg("%s", e.text);
    r->devices[0] = device_new(seed, "card:0");
    r->devices[1] = device_new(seed + 1, "card:1");
}

static void rig_close(struct rig *r) {
    struct pawl_error e = {0};
    if (ckpt_close(r->engine, kit_soon(), &e) != PAWL_OK) fail_msg("%s", e.text);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(r->devices[i]->pins, r->devices[i]->unpins);
        assert_int_equal(r->devices[i]->outside, 0);
        device_free(r->devices[i]);
    }
    for (uint32_t i = 0; i <= STEPS; i++) kit_part_free(r->parts[i]);
    store_close(r->store);
    storesim_free(r->sim);
}

/* Tensors turn by turn on one device, on the other, and in the process's own memory. */
static void begin(struct rig *r, uint64_t step, bool staged) {
    struct kit_part *p = r->parts[step] = kit_part_new(step, 0, 1);
    for (uint32_t i = 0; i < p->count; i++)
        if ((i + step) % 3 < 2)
            device_take(r->devices[(i + step) % 3], &p->tensors[i], kit_bytes(&p->tensors[i]), 1 + i % 2);
    struct ckpt_save save = kit_save(p, step, 0, 1);
    save.staged = staged;
    struct pawl_error e = {0};
    if (ckpt_save_begin(r->engine, &save, &e) != PAWL_OK) fail_msg("%s", e.text);
}

/* Steps 1 to STEPS through the engine; how many failed. */
static uint32_t save_all(struct rig *r, bool staged) {
    uint32_t failed = 0, done = 0;
    for (uint64_t next = 1; done < STEPS;) {
        for (; next <= STEPS && ckpt_in_flight(r->engine) < r->config.in_flight; next++)
            begin(r, next, staged);
        struct ckpt_event event = kit_next(r->engine);
        done++;
        if (event.code == PAWL_OK) continue;
        failed++;
        if (strstr(event.error.text, "card:") == NULL || strstr(event.error.text, "copying failed") == NULL)
            fail_msg("'%s' does not say what failed", event.error.text);
    }
    return failed;
}

/* Through a store of the reader's own: the engine has its to itself. */
static struct ckpt_set *read_back(struct rig *r, struct store **reader) {
    struct ckpt_set *set = NULL;
    struct pawl_error e = {0};
    if (storesim_open(r->sim, "r0", true, reader, &e) != PAWL_OK) fail_msg("%s", e.text);
    if (ckpt_set_open(reader, 1, NULL, &set, &e) != PAWL_OK) fail_msg("%s", e.text);
    return set;
}

static void expect_steps(struct rig *r, uint32_t count) {
    struct store *reader = NULL;
    struct ckpt_set *set = read_back(r, &reader);
    struct pawl_error e = {0};
    assert_int_equal(ckpt_set_count(set), count);
    for (uint32_t i = 0; i < count; i++)
        if (kit_check_step(set, i, &e) != PAWL_OK) fail_msg("%s", e.text);
    ckpt_set_close(set);
    store_close(reader);
}

static void every_kind_of_memory_is_saved_exactly(void **state) {
    (void)state;
    static const uint64_t pools[] = {STORE_BLOCK, 6 * STORE_BLOCK, 200 * STORE_BLOCK};
    uint32_t most = 0;
    for (uint32_t variant = 0; variant < 24; variant++) {
        struct rig r;
        rig_open(&r, variant, 1 + variant % 4, pools[variant % 3], variant % 2 == 1);
        for (int i = 0; i < 2; i++) r.devices[i]->inline_ppm = variant % 3 == 0 ? 0 : 200000;
        assert_int_equal(save_all(&r, variant % 5 < 3), 0);
        expect_steps(&r, STEPS);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(r.devices[i]->pins, 1);
            assert_true(
                r.devices[i]->pinned_bytes <=
                (pools[variant % 3] > r.config.chunk_bytes ? pools[variant % 3] : r.config.chunk_bytes));
            if (r.devices[i]->most > most) most = r.devices[i]->most;
        }
        rig_close(&r);
    }
    assert_true(most > 1); /* several copies at once */
}

static void a_copy_that_fails_fails_its_save_only(void **state) {
    (void)state;
    for (uint32_t variant = 0; variant < 16; variant++) {
        struct rig r;
        rig_open(&r, 100 + variant, 1 + variant % 4, 4 * STORE_BLOCK, variant % 2 == 1);
        for (int i = 0; i < 2; i++) {
            r.devices[i]->refuse_ppm = variant % 4 < 2 ? 40000 : 0;
            r.devices[i]->fail_ppm = variant % 4 < 2 ? 0 : 40000;
            r.devices[i]->inline_ppm = 100000;
        }
        uint32_t failed = save_all(&r, variant % 3 == 0);
        assert_true(failed <= STEPS);
        assert_int_equal(failed > 0, r.devices[0]->failed + r.devices[1]->failed > 0);
        expect_steps(&r, STEPS - failed);
        rig_close(&r);
    }
}

#define SMALL_COUNT 3000u

struct small { /* a chunk of it holds thousands of tensors: more copies than there may be at once */
    struct pawl_tensor tensors[SMALL_COUNT];
    char names[SMALL_COUNT][12];
    uint32_t values[SMALL_COUNT];
};

static void begin_small(struct rig *r, struct small *s) {
    for (uint32_t i = 0; i < SMALL_COUNT; i++) {
        s->values[i] = i * 2654435761u;
        snprintf(s->names[i], sizeof s->names[i], "t%u", i);
        s->tensors[i] = (struct pawl_tensor){.name = s->names[i], .dtype = PAWL_U32, .data = &s->values[i]};
        device_take(r->devices[0], &s->tensors[i], 4, 4);
    }
    struct ckpt_save save = {
        .step = 1, .unit_count = 1, .part_count = 1, .tensors = s->tensors, .tensor_count = SMALL_COUNT};
    assert_int_equal(ckpt_save_begin(r->engine, &save, NULL), PAWL_OK);
    struct ckpt_event event;
    for (uint32_t i = 0; i < 10; i++) assert_int_equal(ckpt_poll(r->engine, &event, 1), 0);
    assert_in_range(device_under_way(r->devices[0]), 2, 1000);
}

static void many_small_tensors_take_turns(void **state) {
    (void)state;
    static struct small small;
    struct rig r;
    rig_open(&r, 1, 1, 8 * STORE_BLOCK, false);
    device_hold(r.devices[0], true);
    begin_small(&r, &small);
    device_hold(r.devices[0], false);
    struct ckpt_event event = kit_next(r.engine);
    if (event.code != PAWL_OK) fail_msg("%s", event.error.text);
    assert_int_equal(r.devices[0]->copies, SMALL_COUNT);
    struct store *reader = NULL;
    struct ckpt_set *set = read_back(&r, &reader);
    for (uint32_t i = 0; i < SMALL_COUNT; i++) {
        uint32_t value = 0;
        struct pawl_tensor want = {.name = small.names[i], .dtype = PAWL_U32, .data = &value};
        assert_int_equal(ckpt_set_read(set, 0, &want, NULL), PAWL_OK);
        assert_int_equal(value, small.values[i]);
    }
    ckpt_set_close(set);
    store_close(reader);
    rig_close(&r);
}

static void a_save_given_up_begins_no_more_copies(void **state) {
    (void)state;
    static struct small small;
    struct rig r;
    rig_open(&r, 1, 1, 8 * STORE_BLOCK, false);
    device_hold(r.devices[0], true);
    begin_small(&r, &small);
    uint64_t copies = r.devices[0]->copies;
    ckpt_cancel(r.engine, 0);
    struct ckpt_event event;
    assert_int_equal(ckpt_poll(r.engine, &event, 1), 0);
    device_hold(r.devices[0], false);
    assert_int_equal(kit_next(r.engine).code, PAWL_CANCELLED);
    assert_int_equal(r.devices[0]->copies, copies);
    rig_close(&r);
}

struct release { /* lets a device go once the engine is being closed */
    struct device *device;
    struct ckpt *engine; /* stays while the device holds a copy of its */
    pthread_t thread;
};

static void *release_main(void *arg) {
    struct release *r = arg;
    for (bool closing = false; !closing;) {
        pthread_mutex_lock(&r->engine->mutex);
        closing = r->engine->stop;
        pthread_mutex_unlock(&r->engine->mutex);
        sched_yield();
    }
    device_hold(r->device, false);
    return NULL;
}

/* The deadline is long over, but a device may still write into the pool: it must stay until then. */
static void closing_waits_for_copies_under_way(void **state) {
    (void)state;
    for (int background = 0; background < 2; background++) {
        struct rig r;
        rig_open(&r, 7, 1, 0, background == 1);
        device_hold(r.devices[0], true);
        begin(&r, 1, true);
        struct ckpt_event event;
        while (device_under_way(r.devices[0]) == 0) {
            assert_int_equal(ckpt_poll(r.engine, &event, 1), 0);
            ckpt_wait(r.engine, 1000000);
        }
        struct release release = {.device = r.devices[0], .engine = r.engine};
        assert_int_equal(pthread_create(&release.thread, NULL, release_main, &release), 0);
        struct pawl_error e = {0};
        assert_int_equal(ckpt_close(r.engine, 0, &e), PAWL_TIMEOUT);
        assert_int_equal(device_under_way(r.devices[0]), 0);
        pthread_join(release.thread, NULL);
        r.engine = NULL;
        rig_close(&r);
    }
}

static void a_save_given_up_ends_once_its_copies_have(void **state) {
    (void)state;
    for (int background = 0; background < 2; background++) {
        struct rig r;
        rig_open(&r, 9, 2, 0, background == 1);
        device_hold(r.devices[0], true);
        begin(&r, 1, true);
        struct ckpt_event event;
        while (device_under_way(r.devices[0]) == 0) {
            assert_int_equal(ckpt_poll(r.engine, &event, 1), 0);
            ckpt_wait(r.engine, 1000000);
        }
        ckpt_cancel(r.engine, 0);
        for (uint32_t i = 0; i < 10; i++) assert_int_equal(ckpt_poll(r.engine, &event, 1), 0);
        device_hold(r.devices[0], false);
        assert_int_equal(kit_next(r.engine).code, PAWL_CANCELLED);
        begin(&r, 2, true);
        assert_int_equal(kit_next(r.engine).code, PAWL_OK);
        expect_steps(&r, 1);
        rig_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_memory_is_saved_exactly),
        cmocka_unit_test(a_copy_that_fails_fails_its_save_only),
        cmocka_unit_test(many_small_tensors_take_turns),
        cmocka_unit_test(a_save_given_up_begins_no_more_copies),
        cmocka_unit_test(closing_waits_for_copies_under_way),
        cmocka_unit_test(a_save_given_up_ends_once_its_copies_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
