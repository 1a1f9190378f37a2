/* What the simulated disk keeps and loses: it must lose everything a real one may lose, and nothing more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "store/store.h"

#define SEEDS 200u

static struct store *open_sim(struct storesim *sim) {
    struct store *s = NULL;
    assert_int_equal(storesim_open(sim, "d", false, &s, NULL), PAWL_OK);
    return s;
}

static struct store_completion next(struct store *s) {
    struct store_completion c = {0};
    while (store_poll(s, &c, 1) == 0) store_wait(s, 1);
    return c;
}

/* Writes `blocks` blocks of `value` and polls them; flushes if wanted. */
static void fill(struct store *s, struct store_file *f, uint32_t blocks, uint8_t value, bool flush) {
    size_t bytes = blocks * STORE_BLOCK;
    uint8_t *data = mem_alloc(bytes);
    memset(data, value, bytes);
    assert_int_equal(store_write(f, 0, data, bytes, 1, NULL), PAWL_OK);
    assert_int_equal(next(s).code, PAWL_OK);
    if (flush) {
        assert_int_equal(store_flush(f, 2, NULL), PAWL_OK);
        assert_int_equal(next(s).code, PAWL_OK);
    }
    mem_free(data, bytes);
}

static void what_was_flushed_with_its_name_survives_every_crash(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct storesim *sim = storesim_new(seed);
        struct store *s = open_sim(sim);
        struct store_file *f = NULL;
        assert_int_equal(store_file_open(s, "a", true, 2 * STORE_BLOCK, &f, NULL), PAWL_OK);
        fill(s, f, 2, 9, true);
        assert_int_equal(store_sync_folder(s, NULL), PAWL_OK);
        store_file_close(f);
        storesim_kill(sim, s);
        storesim_crash(sim);
        s = open_sim(sim);
        uint8_t *data = NULL;
        size_t bytes = 0;
        assert_int_equal(store_get(s, "a", &data, &bytes, NULL), PAWL_OK);
        assert_int_equal(bytes, 2 * STORE_BLOCK);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(data[i], 9);
        free(data);
        store_close(s);
        storesim_free(sim);
    }
}

/* Over the seeds each outcome must appear, else crash tests prove nothing. */
static void unflushed_bytes_are_kept_lost_and_torn_at_512(void **state) {
    (void)state;
    uint32_t kept = 0, lost = 0, torn = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct storesim *sim = storesim_new(seed);
        struct store *s = open_sim(sim);
        struct store_file *f = NULL;
        assert_int_equal(store_file_open(s, "a", true, STORE_BLOCK, &f, NULL), PAWL_OK);
        fill(s, f, 1, 1, true);
        assert_int_equal(store_sync_folder(s, NULL), PAWL_OK);
        fill(s, f, 1, 2, false);
        store_file_close(f);
        storesim_kill(sim, s);
        storesim_crash(sim);
        s = open_sim(sim);
        uint8_t *data = NULL;
        size_t bytes = 0, newer = 0;
        assert_int_equal(store_get(s, "a", &data, &bytes, NULL), PAWL_OK);
        assert_int_equal(bytes, STORE_BLOCK);
        for (size_t i = 0; i < bytes; i++) {
            assert_true(data[i] == 1 || data[i] == 2);
            assert_int_equal(data[i], data[i - i % 512]);
            newer += data[i] == 2;
        }
        kept += newer == bytes;
        lost += newer == 0;
        torn += newer > 0 && newer < bytes;
        free(data);
        store_close(s);
        storesim_free(sim);
    }
    assert_true(kept > 0);
    assert_true(lost > 0);
    assert_true(torn > 0);
}

static void a_name_survives_only_by_luck_until_the_folder_is_synced(void **state) {
    (void)state;
    uint32_t there = 0, gone = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct storesim *sim = storesim_new(seed);
        struct store *s = open_sim(sim);
        struct store_file *f = NULL;
        assert_int_equal(store_file_open(s, "a", true, STORE_BLOCK, &f, NULL), PAWL_OK);
        fill(s, f, 1, 1, true);
        store_file_close(f);
        storesim_kill(sim, s);
        storesim_crash(sim);
        s = open_sim(sim);
        uint8_t *data = NULL;
        size_t bytes = 0;
        pawl_code code = store_get(s, "a", &data, &bytes, NULL);
        there += code == PAWL_OK;
        gone += code == PAWL_NOT_FOUND;
        free(data);
        store_close(s);
        storesim_free(sim);
    }
    assert_int_equal(there + gone, SEEDS);
    assert_true(there > 0);
    assert_true(gone > 0);
}

/* Cuts a replacement at every operation: old or new, never anything else. */
static void a_replaced_file_is_the_old_or_the_new_one_at_every_cut(void **state) {
    (void)state;
    uint32_t cuts = 0, old_seen = 0, new_seen = 0;
    for (uint64_t seed = 0; seed < 50; seed++) {
        for (uint64_t cut = 0;; cut++) {
            struct storesim *sim = storesim_new(seed);
            struct store *s = open_sim(sim);
            assert_int_equal(store_put(s, "m", "old", 3, NULL), PAWL_OK);
            storesim_stop_after(sim, storesim_ops(sim) + cut);
            pawl_code code = store_put(s, "m", "newer", 5, NULL);
            storesim_kill(sim, s);
            storesim_crash(sim);
            s = open_sim(sim);
            uint8_t *data = NULL;
            size_t bytes = 0;
            assert_int_equal(store_get(s, "m", &data, &bytes, NULL), PAWL_OK);
            bool is_old = bytes == 3 && memcmp(data, "old", 3) == 0;
            bool is_new = bytes == 5 && memcmp(data, "newer", 5) == 0;
            assert_true(is_old || is_new);
            if (code == PAWL_OK) assert_true(is_new);
            old_seen += is_old;
            new_seen += is_new;
            cuts++;
            free(data);
            store_close(s);
            storesim_free(sim);
            if (code == PAWL_OK) break;
        }
    }
    print_message("%u cuts, old %u, new %u\n", cuts, old_seen, new_seen);
    assert_true(old_seen > 0);
    assert_true(new_seen > 50);
}

static void a_failed_flush_is_final_for_its_file_and_its_name(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(3);
    struct store *s = open_sim(sim);
    struct store_file *f = NULL, *again = NULL;
    assert_int_equal(store_file_open(s, "a", true, STORE_BLOCK, &f, NULL), PAWL_OK);
    fill(s, f, 1, 1, false);
    storesim_set_faults(sim, (struct storesim_faults){.flush_eio = 1000000});
    assert_int_equal(store_flush(f, 1, NULL), PAWL_OK);
    struct store_completion c = next(s);
    assert_int_equal(c.code, PAWL_IO);
    assert_int_equal(c.os_errno, EIO);
    storesim_set_faults(sim, (struct storesim_faults){0});
    assert_int_equal(store_flush(f, 2, NULL), PAWL_OK);
    assert_int_equal(next(s).code, PAWL_IO);
    uint8_t *data = mem_alloc(STORE_BLOCK);
    assert_int_equal(store_write(f, 0, data, STORE_BLOCK, 3, NULL), PAWL_OK);
    assert_int_equal(next(s).code, PAWL_IO);
    assert_int_equal(store_file_truncate(f, 0, NULL), PAWL_IO);
    assert_int_equal(store_file_open(s, "a", true, 0, &again, NULL), PAWL_IO);
    store_file_close(f);
    assert_int_equal(store_file_open(s, "a", true, 0, &again, NULL), PAWL_IO);
    assert_int_equal(store_remove(s, "a", NULL), PAWL_OK);
    assert_int_equal(store_file_open(s, "a", true, 0, &again, NULL), PAWL_OK);
    store_file_close(again);
    store_close(s);
    storesim_free(sim);
    mem_free(data, STORE_BLOCK);
}

static void no_space_names_what_was_wanted_and_what_is_free(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(3);
    struct store *s = open_sim(sim);
    storesim_set_capacity(sim, 4 * STORE_BLOCK);
    struct store_file *f = NULL;
    struct pawl_error e = {0};
    assert_int_equal(store_file_open(s, "a", true, 5 * STORE_BLOCK, &f, &e), PAWL_NO_SPACE);
    assert_non_null(strstr(e.text, "20480"));
    assert_non_null(strstr(e.text, "16384"));
    assert_int_equal(store_file_open(s, "a", true, 4 * STORE_BLOCK, &f, &e), PAWL_OK);
    store_file_close(f);
    store_close(s);
    storesim_free(sim);
}

static void the_same_seed_gives_the_same_disk(void **state) {
    (void)state;
    uint8_t *runs[2] = {0};
    size_t bytes[2] = {0};
    for (int run = 0; run < 2; run++) {
        struct storesim *sim = storesim_new(77);
        storesim_set_faults(sim, (struct storesim_faults){.delay = 500000});
        struct store *s = open_sim(sim);
        struct store_file *f = NULL;
        assert_int_equal(store_file_open(s, "a", true, 8 * STORE_BLOCK, &f, NULL), PAWL_OK);
        fill(s, f, 8, 1, true);
        assert_int_equal(store_sync_folder(s, NULL), PAWL_OK);
        fill(s, f, 8, 2, false);
        store_file_close(f);
        storesim_kill(sim, s);
        storesim_crash(sim);
        s = open_sim(sim);
        assert_int_equal(store_get(s, "a", &runs[run], &bytes[run], NULL), PAWL_OK);
        store_close(s);
        storesim_free(sim);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(runs[0], runs[1], bytes[0]);
    free(runs[0]);
    free(runs[1]);
}

static void completions_come_in_any_order(void **state) {
    (void)state;
    bool out_of_order = false;
    struct storesim *sim = storesim_new(5);
    struct store *s = open_sim(sim);
    struct store_file *f = NULL;
    uint8_t *data = mem_alloc(STORE_BLOCK);
    assert_int_equal(store_file_open(s, "a", true, 16 * STORE_BLOCK, &f, NULL), PAWL_OK);
    for (uint32_t i = 0; i < 16; i++)
        assert_int_equal(store_write(f, i * STORE_BLOCK, data, STORE_BLOCK, i, NULL), PAWL_OK);
    for (uint32_t i = 0; i < 16; i++) out_of_order |= next(s).cookie != i;
    assert_true(out_of_order);
    store_file_close(f);
    store_close(s);
    storesim_free(sim);
    mem_free(data, STORE_BLOCK);
}

static void a_killed_process_leaves_its_writes_and_frees_its_lock(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(5);
    struct store *s = open_sim(sim), *second = NULL;
    struct store_file *f = NULL;
    assert_int_equal(store_file_open(s, "a", true, STORE_BLOCK, &f, NULL), PAWL_OK);
    fill(s, f, 1, 4, false);
    assert_int_equal(storesim_open(sim, "d", false, &second, NULL), PAWL_BUSY);
    store_file_close(f);
    storesim_kill(sim, s);
    s = open_sim(sim);
    uint8_t *data = NULL;
    size_t bytes = 0;
    assert_int_equal(store_get(s, "a", &data, &bytes, NULL), PAWL_OK); /* the machine lives */
    assert_int_equal(bytes, STORE_BLOCK);
    assert_int_equal(data[17], 4);
    free(data);
    store_close(s);
    storesim_free(sim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_flushed_with_its_name_survives_every_crash),
        cmocka_unit_test(unflushed_bytes_are_kept_lost_and_torn_at_512),
        cmocka_unit_test(a_name_survives_only_by_luck_until_the_folder_is_synced),
        cmocka_unit_test(a_replaced_file_is_the_old_or_the_new_one_at_every_cut),
        cmocka_unit_test(a_failed_flush_is_final_for_its_file_and_its_name),
        cmocka_unit_test(no_space_names_what_was_wanted_and_what_is_free),
        cmocka_unit_test(the_same_seed_gives_the_same_disk),
        cmocka_unit_test(completions_come_in_any_order),
        cmocka_unit_test(a_killed_process_leaves_its_writes_and_frees_its_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
