/* A device that fails or hangs on purpose, on every back end: what the promises of a store mean then. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "kit/store_kit.h"

#define FOREVER_NS (INT64_C(3600) * 1000000000)

static void fill_file(struct store *s, struct store_file *f, uint8_t *data, uint8_t value) {
    memset(data, value, STORE_BLOCK);
    assert_int_equal(store_write(f, 0, data, STORE_BLOCK, 1, NULL), PAWL_OK);
    assert_int_equal(kit_next_good(s), 1);
    assert_int_equal(store_flush(f, 2, NULL), PAWL_OK);
    assert_int_equal(kit_next_good(s), 2);
}

static uint8_t first_byte(struct store *s, struct store_file *f) {
    uint8_t *data = mem_alloc(STORE_BLOCK);
    assert_int_equal(store_read(f, 0, data, STORE_BLOCK, 99, NULL), PAWL_OK);
    assert_int_equal(kit_next_good(s), 99);
    uint8_t byte = data[0];
    mem_free(data, STORE_BLOCK);
    return byte;
}

static void writes_fail_with_the_error_that_was_asked_for_and_work_again_when_it_is_over(void **state) {
    struct store *s = kit_open(*state, false);
    struct store_file *f = kit_file(s, "a", STORE_BLOCK), *none = NULL;
    uint8_t *data = mem_alloc(STORE_BLOCK);
    struct pawl_error e;
    fill_file(s, f, data, 1);
    store_fail(s, ENOSPC, 0);
    memset(data, 2, STORE_BLOCK);
    assert_int_equal(store_write(f, 0, data, STORE_BLOCK, 3, NULL), PAWL_OK);
    struct store_completion c = kit_next(s);
    assert_int_equal(c.cookie, 3);
    assert_int_equal(c.code, PAWL_NO_SPACE);
    assert_int_equal(c.os_errno, ENOSPC);
    assert_int_equal(store_put(s, "small", "x", 1, &e), PAWL_NO_SPACE);
    assert_non_null(strstr(e.text, "small"));
    assert_int_equal(store_file_open(s, "b", true, 0, &none, NULL), PAWL_NO_SPACE);
    store_fail(s, EIO, 0);
    assert_int_equal(store_remove(s, "a", NULL), PAWL_IO);
    assert_int_equal(store_sync_folder(s, NULL), PAWL_IO);
    assert_int_equal(store_file_truncate(f, 0, NULL), PAWL_IO);
    assert_int_equal(first_byte(s, f), 1);
    store_fail(s, EIO, 1); /* over at once */
    fill_file(s, f, data, 3);
    assert_int_equal(first_byte(s, f), 3);
    assert_int_equal(store_put(s, "small", "x", 1, NULL), PAWL_OK);
    store_file_close(f);
    store_close(s);
    mem_free(data, STORE_BLOCK);
}

static void a_flush_that_fails_is_final_for_its_file_also_when_it_was_asked_for(void **state) {
    struct store *s = kit_open(*state, false);
    struct store_file *f = kit_file(s, "a", STORE_BLOCK);
    store_fail(s, EIO, 0);
    for (uint64_t i = 0; i < 3; i++) assert_int_equal(store_flush(f, i, NULL), PAWL_OK);
    for (uint64_t i = 0; i < 3; i++) assert_int_equal(kit_next(s).code, PAWL_IO);
    store_fail(s, EIO, 1);
    assert_int_equal(store_flush(f, 3, NULL), PAWL_OK);
    assert_int_equal(kit_next(s).code, PAWL_IO);
    store_file_close(f);
    store_close(s);
}

static void a_device_that_hangs_completes_nothing_then_everything(void **state) {
    struct store *s = kit_open(*state, false);
    struct store_file *f = kit_file(s, "a", STORE_BLOCK);
    uint8_t *data = mem_alloc(STORE_BLOCK), *newer = mem_alloc(STORE_BLOCK);
    fill_file(s, f, data, 1);
    store_stick(s, 0);
    memset(data, 2, STORE_BLOCK);
    memset(newer, 3, STORE_BLOCK);
    assert_int_equal(store_write(f, 0, data, STORE_BLOCK, 10, NULL), PAWL_OK);
    assert_int_equal(store_flush(f, 11, NULL), PAWL_OK);
    struct store_completion c;
    store_wait(s, 1000000);
    assert_int_equal(store_poll(s, &c, 1), 0);
    assert_int_equal(first_byte(s, f), 1); /* nothing has happened, and reads go on */
    store_stick(s, 1);
    uint64_t first = kit_next_good(s); /* a flush that does not wait for its write promises no order */
    assert_in_range(first, 10, 11);
    assert_int_equal(kit_next_good(s), 21 - first);
    assert_int_equal(first_byte(s, f), 2);
    store_stick(s, 0);
    assert_int_equal(store_write(f, 0, newer, STORE_BLOCK, 12, NULL), PAWL_OK);
    store_fail(s, EIO, 0); /* what hung fails now */
    assert_int_equal(kit_next(s).code, PAWL_IO);
    assert_int_equal(first_byte(s, f), 2);
    store_file_close(f);
    store_close(s);
    mem_free(data, STORE_BLOCK);
    mem_free(newer, STORE_BLOCK);
}

static void a_wait_ends_by_itself_when_the_device_moves_again(void **state) {
    struct store *s = kit_open(*state, false);
    struct store_file *f = kit_file(s, "a", STORE_BLOCK);
    uint8_t *data = mem_alloc(STORE_BLOCK);
    memset(data, 7, STORE_BLOCK);
    store_stick(s, 20000000);
    assert_int_equal(store_write(f, 0, data, STORE_BLOCK, 1, NULL), PAWL_OK);
    struct store_completion c;
    while (store_poll(s, &c, 1) == 0) store_wait(s, FOREVER_NS);
    assert_int_equal(c.code, PAWL_OK);
    store_stick(s, 20000000);
    assert_int_equal(store_write(f, 0, data, STORE_BLOCK, 2, NULL), PAWL_OK);
    store_file_close(f);
    store_close(s); /* waits, and the write has happened */
    s = kit_open(*state, true);
    assert_int_equal(store_file_open(s, "a", false, 0, &f, NULL), PAWL_OK);
    assert_int_equal(first_byte(s, f), 7);
    store_file_close(f);
    store_close(s);
    mem_free(data, STORE_BLOCK);
}

struct put {
    struct store *s;
    _Atomic bool returned;
};

static void *put_new(void *arg) {
    struct put *p = arg;
    pawl_code code = store_put(p->s, "small", "new", 3, NULL);
    atomic_store(&p->returned, true);
    return code == PAWL_OK ? p : NULL;
}

static void a_call_that_hangs_returns_when_the_device_moves_again(void **state) {
    struct put p = {.s = kit_open(*state, false)};
    pthread_t thread;
    void *good;
    assert_int_equal(store_put(p.s, "small", "old", 3, NULL), PAWL_OK);
    store_stick(p.s, 0);
    assert_int_equal(pthread_create(&thread, NULL, put_new, &p), 0);
    uint8_t *data = NULL;
    size_t bytes;
    assert_int_equal(store_get(p.s, "small", &data, &bytes, NULL), PAWL_OK);
    assert_memory_equal(data, "old", 3);
    assert_false(atomic_load(&p.returned));
    free(data);
    store_stick(p.s, 1);
    pthread_join(thread, &good);
    assert_non_null(good);
    assert_int_equal(store_get(p.s, "small", &data, &bytes, NULL), PAWL_OK);
    assert_memory_equal(data, "new", 3);
    free(data);
    store_close(p.s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        KIT_EVERYWHERE(writes_fail_with_the_error_that_was_asked_for_and_work_again_when_it_is_over),
        KIT_EVERYWHERE(a_flush_that_fails_is_final_for_its_file_also_when_it_was_asked_for),
        KIT_EVERYWHERE(a_device_that_hangs_completes_nothing_then_everything),
        KIT_EVERYWHERE(a_wait_ends_by_itself_when_the_device_moves_again),
        KIT_EVERYWHERE(a_call_that_hangs_returns_when_the_device_moves_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
