/* Staged saves: through a bounded pool, so that the caller has its memory back before the device has the
 * bytes. Every test changes the memory as soon as it may. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt/engine.h"
#include "kit/ckpt_kit.h"

#define STEPS 24u

struct stage { /* an engine under test and what is going on in it */
    struct storesim *sim;
    struct store *store;
    struct ckpt_config config;
    struct ckpt *engine;
    struct kit_part *parts[STEPS + 1];
    bool captured[STEPS + 1], ended[STEPS + 1];
    uint64_t last_captured, failed;
};

static void stage_open(struct stage *t, uint64_t seed, struct storesim_faults faults, uint32_t n,
                       uint64_t staging_bytes) {
    *t = (struct stage){.sim = storesim_new(seed), .config = kit_config(1, 0, n, STEPS)};
    struct pawl_error e = {0};
    t->config.staging_bytes = staging_bytes;
    t->config.writers = (uint32_t)(seed % 3); /* few: copied chunks have to wait */
    if (storesim_open(t->sim, "r0", false, &t->store, &e) != PAWL_OK) fail_msg("%s", e.text);
    if (ckpt_open(&t->config, t->store, &t->engine, &e) != PAWL_OK) fail_msg("%s", e.text);
    storesim_set_faults(t->sim, faults);
}

static void stage_close(struct stage *t) {
    struct pawl_error e = {0};
    if (ckpt_close(t->engine, kit_soon(), &e) != PAWL_OK) fail_msg("%s", e.text);
    for (uint32_t i = 0; i <= STEPS; i++) kit_part_free(t->parts[i]);
    store_close(t->store);
    storesim_free(t->sim);
}

static void begin(struct stage *t, uint64_t step, bool staged) {
    t->parts[step] = kit_part_new(step, 0, 1);
    struct ckpt_save save = kit_save(t->parts[step], step, 0, 1);
    save.staged = staged;
    save.tag = 1000 + step;
    save.want_captured = true;
    struct pawl_error e = {0};
    if (ckpt_save_begin(t->engine, &save, &e) != PAWL_OK) fail_msg("%s", e.text);
}

static void spoil(struct kit_part *p) {
    for (uint32_t i = 0; i < p->count; i++) memset(p->tensors[i].data, 0x5a, kit_bytes(&p->tensors[i]));
}

/* One event, which must fit what was seen of its save before. */
static struct ckpt_event follow(struct stage *t) {
    struct ckpt_event event = kit_next(t->engine);
    assert_int_equal(event.tag, 1000 + event.step);
    assert_false(t->ended[event.step]);
    if (event.kind == CKPT_CAPTURED) {
        assert_false(t->captured[event.step]);
        t->captured[event.step] = true;
        t->last_captured = event.step;
        spoil(t->parts[event.step]);
        return event;
    }
    t->ended[event.step] = true;
    if (event.code == PAWL_OK) assert_true(t->captured[event.step]);
    assert_true(event.total_ns >= event.capture_ns);
    t->failed += event.code != PAWL_OK;
    spoil(t->parts[event.step]);
    return event;
}

/* Through a store of the reader's own: the engine has its to itself. */
static void expect_all(struct stage *t, uint64_t steps) {
    struct ckpt_set *set = NULL;
    struct store *reader = NULL;
    struct pawl_error e = {0};
    pawl_code code = t->sim != NULL ? storesim_open(t->sim, "r0", true, &reader, &e)
                                    : store_open(store_path(t->store), STORE_AUTO, true, &reader, NULL, &e);
    if (code != PAWL_OK) fail_msg("%s", e.text);
    if (ckpt_set_open(&reader, 1, NULL, &set, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(ckpt_set_count(set), steps);
    for (uint32_t i = 0; i < ckpt_set_count(set); i++)
        if (kit_check_step(set, i, &e) != PAWL_OK) fail_msg("%s", e.text);
    ckpt_set_close(set);
    store_close(reader);
}

/* Pools of one chunk, of several, smaller than a chunk; a chunk here has 8 KiB, a save about 6 of them. */
static const uint64_t pools[] = {STORE_BLOCK, 2 * STORE_BLOCK, 6 * STORE_BLOCK, 200 * STORE_BLOCK};
#define POOLS (sizeof pools / sizeof pools[0])

static void captured_memory_is_the_callers_while_the_device_still_writes(void **state) {
    (void)state;
    uint64_t before_end = 0;
    for (uint32_t n = 1; n <= 8; n++)
        for (uint32_t i = 0; i < POOLS; i++) {
            struct stage t;
            stage_open(&t, n * 10 + i, (struct storesim_faults){.delay = 500000}, n, pools[i]);
            uint64_t next = 1, done = 0;
            while (done < STEPS) {
                for (; next <= STEPS && ckpt_in_flight(t.engine) < n; next++) begin(&t, next, true);
                struct ckpt_event event = follow(&t);
                if (event.kind == CKPT_ENDED && event.code != PAWL_OK) fail_msg("%s", event.error.text);
                done += event.kind == CKPT_ENDED;
                before_end += event.kind == CKPT_CAPTURED && ckpt_in_flight(t.engine) > 0;
            }
            expect_all(&t, STEPS);
            stage_close(&t);
        }
    assert_true(before_end > 0);
}

/* Staged or written from its place, in any mixture: each kind is told when its memory is free. */
static void staged_saves_and_others_mix(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 8; n += n < 3 ? 1 : 5)
        for (uint32_t i = 0; i < POOLS; i++) {
            struct stage t;
            stage_open(&t, n * 10 + i, (struct storesim_faults){.delay = 500000}, n, pools[i]);
            uint64_t next = 1, done = 0;
            while (done < STEPS) {
                for (; next <= STEPS && ckpt_in_flight(t.engine) < n; next++) begin(&t, next, next % 3 != 0);
                done += follow(&t).kind == CKPT_ENDED;
            }
            assert_int_equal(t.failed, 0);
            expect_all(&t, STEPS);
            stage_close(&t);
        }
}

static void saves_are_captured_in_the_order_of_their_begin(void **state) {
    (void)state;
    struct stage t;
    stage_open(&t, 1, (struct storesim_faults){.delay = 700000}, 8, 3 * STORE_BLOCK);
    for (uint64_t step = 1; step <= 8; step++) begin(&t, step, true);
    for (uint64_t captured = 0, done = 0; done < 8;) {
        struct ckpt_event event = follow(&t);
        if (event.kind == CKPT_CAPTURED)
            assert_int_equal(event.step, ++captured);
        else
            done++;
    }
    stage_close(&t);
}

/* With room for all of it, capturing waits for nothing that the device does. */
static void a_pool_that_holds_the_save_captures_it_without_the_device(void **state) {
    (void)state;
    struct stage t;
    stage_open(&t, 1, (struct storesim_faults){0}, 2, 200 * STORE_BLOCK);
    begin(&t, 1, true);
    struct ckpt_event event;
    uint64_t before = ckpt_progress(t.engine);
    uint32_t polls = 0;
    while (ckpt_poll(t.engine, &event, 1) == 0) polls++;
    assert_int_equal(event.kind, CKPT_CAPTURED);
    assert_true(polls < 100);
    assert_true(ckpt_progress(t.engine) > before); /* copies count as progress */
    stage_close(&t);
}

static uint32_t free_buffers(const struct ckpt *c) {
    uint32_t count = 0;
    for (uint32_t i = c->pool.free_first; i != ENGINE_NONE; i = c->pool.buffers[i].next) count++;
    return count;
}

/* Also those with chunks that were copied and then not written. */
static void failed_saves_give_their_buffers_back(void **state) {
    (void)state;
    for (uint32_t i = 0; i < POOLS; i++) {
        struct stage t;
        uint64_t good = 0;
        stage_open(&t, 1 + 3 * i,
                   (struct storesim_faults){.write_eio = 60000, .flush_eio = 60000, .delay = 900000}, 3,
                   pools[i]);
        for (uint32_t round = 0; round < 5; round++) {
            uint64_t next = 1, done = 0;
            memset(t.ended, 0, sizeof t.ended);
            memset(t.captured, 0, sizeof t.captured);
            while (done < STEPS) {
                for (; next <= STEPS && ckpt_in_flight(t.engine) < 3; next++) {
                    kit_part_free(t.parts[next]);
                    begin(&t, next, true);
                }
                struct ckpt_event event = follow(&t);
                done += event.kind == CKPT_ENDED;
                good += event.kind == CKPT_ENDED && event.code == PAWL_OK;
            }
        }
        assert_true(t.failed > 20);
        assert_true(good > 20);
        storesim_set_faults(t.sim, (struct storesim_faults){0});
        kit_part_free(t.parts[1]);
        t.ended[1] = t.captured[1] = false;
        begin(&t, 1, true);
        struct ckpt_event event = follow(&t);
        while (event.kind != CKPT_ENDED) event = follow(&t);
        if (event.code != PAWL_OK) fail_msg("%s", event.error.text);
        assert_int_equal(free_buffers(t.engine), t.engine->pool.count);
        stage_close(&t);
    }
}

/* Whole chunks only, and one at least; more than the machine has is refused before anything is saved. */
static void the_pool_stays_within_its_budget_or_is_refused(void **state) {
    (void)state;
    static const uint64_t chunks[] = {1, 2, 3, 7, 64}, budgets[] = {1, 2, 5, 6, 7, 13, 64, 200};
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++)
        for (size_t k = 0; k < sizeof budgets / sizeof budgets[0]; k++) {
            struct storesim *sim = storesim_new(1);
            struct store *s = NULL;
            struct ckpt *c = NULL;
            struct ckpt_config config = kit_config(1, 0, 1, 1);
            config.chunk_bytes = chunks[i] * STORE_BLOCK;
            config.staging_bytes = budgets[k] * STORE_BLOCK;
            uint64_t most = budgets[k] < chunks[i] ? config.chunk_bytes : config.staging_bytes;
            uint64_t bytes = 0, used = 0;
            assert_int_equal(storesim_open(sim, "r0", false, &s, NULL), PAWL_OK);
            assert_int_equal(ckpt_open(&config, s, &c, NULL), PAWL_OK);
            ckpt_staging(c, &bytes, &used);
            assert_in_range(bytes, config.chunk_bytes, most);
            assert_int_equal(ckpt_close(c, kit_soon(), NULL), PAWL_OK);
            store_close(s);
            storesim_free(sim);
        }
    struct storesim *sim = storesim_new(1);
    struct store *s = NULL;
    struct ckpt *c = NULL;
    struct pawl_error e = {0};
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    config.staging_bytes = UINT64_MAX;
    config.chunk_bytes = UINT64_C(1) << 30;
    assert_int_equal(storesim_open(sim, "r0", false, &s, NULL), PAWL_OK);
    assert_int_equal(ckpt_open(&config, s, &c, &e), PAWL_MEMORY);
    if (strstr(e.text, "bytes of staging memory") == NULL) fail_msg("%s", e.text);
    store_close(s);
    storesim_free(sim);
}

/* Nobody polls: what was begun is copied, written and committed by closing alone. */
static void closing_finishes_what_was_begun(void **state) {
    (void)state;
    for (uint32_t variant = 0; variant < 24; variant++) {
        struct stage t;
        stage_open(&t, 1 + variant, (struct storesim_faults){.delay = 500000}, 4, pools[variant % POOLS]);
        t.config.background = variant % 2 == 1;
        struct pawl_error e = {0};
        assert_int_equal(ckpt_close(t.engine, kit_soon(), &e), PAWL_OK);
        if (ckpt_open(&t.config, t.store, &t.engine, &e) != PAWL_OK) fail_msg("%s", e.text);
        for (uint64_t step = 1; step <= 4; step++) begin(&t, step, (variant + step) % 3 > 0);
        if (ckpt_close(t.engine, kit_soon(), &e) != PAWL_OK) fail_msg("%s", e.text);
        t.engine = NULL;
        expect_all(&t, 4);
        stage_close(&t);
    }
}

static void a_save_without_data_is_captured_too(void **state) {
    (void)state;
    struct stage t;
    stage_open(&t, 1, (struct storesim_faults){0}, 1, 0);
    struct ckpt_save save = {
        .step = 1, .unit_count = 1, .part_count = 1, .staged = true, .want_captured = true};
    assert_int_equal(ckpt_save_begin(t.engine, &save, NULL), PAWL_OK);
    assert_int_equal(kit_next(t.engine).kind, CKPT_CAPTURED);
    struct ckpt_event event = kit_next(t.engine);
    assert_int_equal(event.kind, CKPT_ENDED);
    assert_int_equal(event.code, PAWL_OK);
    stage_close(&t);
}

static void captured_is_told_only_to_those_who_ask(void **state) {
    (void)state;
    struct stage t;
    stage_open(&t, 1, (struct storesim_faults){0}, 1, 0);
    t.parts[1] = kit_part_new(1, 0, 1);
    struct ckpt_save save = kit_save(t.parts[1], 1, 0, 1);
    save.staged = true;
    assert_int_equal(ckpt_save_begin(t.engine, &save, NULL), PAWL_OK);
    struct ckpt_event event = kit_next(t.engine);
    assert_int_equal(event.kind, CKPT_ENDED);
    assert_true(event.capture_ns > 0 && event.write_ns >= event.capture_ns);
    stage_close(&t);
}

/* Large and page-aligned: written from where it lies, with the checksum taken on the way. */
static void memory_written_from_its_place_may_change_once_captured(void **state) {
    (void)state;
    enum { BYTES = 300 * 4096 + 77 }; /* chunks do not divide it */
    uint8_t *data = mem_alloc(BYTES), *out = malloc(BYTES), *wanted = malloc(BYTES);
    const uint64_t shape[1] = {BYTES};
    struct pawl_tensor tensor = {.name = "big", .dtype = PAWL_U8, .rank = 1, .shape = shape, .data = data};
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct stage t;
        stage_open(&t, seed, (struct storesim_faults){.delay = 500000}, 1, pools[seed % POOLS]);
        struct ckpt_save save = {.step = 1 + seed,
                                 .unit_count = 1,
                                 .part_count = 1,
                                 .tensors = &tensor,
                                 .tensor_count = 1,
                                 .want_captured = true};
        kit_fill(data, save.step, 0, 0, BYTES);
        assert_int_equal(ckpt_save_begin(t.engine, &save, NULL), PAWL_OK);
        assert_int_equal(kit_next(t.engine).kind, CKPT_CAPTURED);
        memset(data, 0x5a, BYTES);
        struct ckpt_event event = kit_next(t.engine);
        if (event.code != PAWL_OK) fail_msg("%s", event.error.text);
        struct ckpt_set *set = NULL;
        struct pawl_error e = {0};
        tensor.data = out;
        assert_int_equal(ckpt_set_open(&t.store, 1, NULL, &set, NULL), PAWL_OK);
        if (ckpt_set_read(set, 0, &tensor, &e) != PAWL_OK) fail_msg("%s", e.text);
        tensor.data = data;
        kit_fill(wanted, save.step, 0, 0, BYTES);
        assert_memory_equal(out, wanted, BYTES);
        ckpt_set_close(set);
        stage_close(&t);
    }
    mem_free(data, BYTES);
    free(out);
    free(wanted);
}

/* On a real folder with a thread of its own: memory changes the moment it may. */
static void staged_in_background(enum store_kind kind) {
    char path[256], command[300];
    snprintf(path, sizeof path, "%s/stage-XXXXXX", PAWL_BINARY_DIR);
    assert_non_null(mkdtemp(path));
    struct stage t = {.config = kit_config(1, 0, 4, STEPS)};
    struct pawl_error e = {0};
    if (store_open(path, kind, false, &t.store, NULL, &e) != PAWL_OK) {
        print_message("%s\n", e.text);
        skip();
    }
    t.config.background = true;
    t.config.staging_bytes = 5 * STORE_BLOCK;
    if (ckpt_open(&t.config, t.store, &t.engine, &e) != PAWL_OK) fail_msg("%s", e.text);
    uint64_t next = 1, done = 0;
    while (done < STEPS) {
        for (; next <= STEPS && ckpt_in_flight(t.engine) < 4; next++) begin(&t, next, next % 4 != 0);
        done += follow(&t).kind == CKPT_ENDED;
    }
    assert_int_equal(t.failed, 0);
    expect_all(&t, STEPS);
    assert_int_equal(ckpt_close(t.engine, kit_soon(), NULL), PAWL_OK);
    for (uint32_t i = 0; i <= STEPS; i++) kit_part_free(t.parts[i]);
    store_close(t.store);
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
}

static void staged_on_plain_files(void **state) { (void)state, staged_in_background(STORE_PLAIN); }
static void staged_on_io_uring(void **state) { (void)state, staged_in_background(STORE_URING); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captured_memory_is_the_callers_while_the_device_still_writes),
        cmocka_unit_test(staged_saves_and_others_mix),
        cmocka_unit_test(saves_are_captured_in_the_order_of_their_begin),
        cmocka_unit_test(a_pool_that_holds_the_save_captures_it_without_the_device),
        cmocka_unit_test(failed_saves_give_their_buffers_back),
        cmocka_unit_test(the_pool_stays_within_its_budget_or_is_refused),
        cmocka_unit_test(closing_finishes_what_was_begun),
        cmocka_unit_test(a_save_without_data_is_captured_too),
        cmocka_unit_test(captured_is_told_only_to_those_who_ask),
        cmocka_unit_test(memory_written_from_its_place_may_change_once_captured),
        cmocka_unit_test(staged_on_plain_files),
        cmocka_unit_test(staged_on_io_uring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
