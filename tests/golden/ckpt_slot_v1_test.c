/* Stores written by the first version of the format must load for ever, and be saved into.
 * tests/golden/ckpt_slot_v1 holds the stores of two ranks, steps 1 and 2 in two parts each.
 * PAWL_GOLDEN_WRITE=FOLDER writes such stores anew, for a next version beside this one, never in its place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kit/ckpt_kit.h"

#define PARTS 2u

static void open_both(const char *folder, bool read_only, struct store *stores[PARTS]) {
    for (uint32_t p = 0; p < PARTS; p++) {
        char path[600];
        struct pawl_error e = {0};
        snprintf(path, sizeof path, "%s/r%u", folder, p);
        if (store_open(path, STORE_AUTO, read_only, &stores[p], NULL, &e) != PAWL_OK) fail_msg("%s", e.text);
    }
}

static void save_step(struct store *s, uint32_t part, uint64_t first, uint64_t last) {
    struct ckpt_config config = kit_config(first, first - 1, 1, 2);
    struct ckpt *c = NULL;
    struct pawl_error e = {0};
    if (ckpt_open(&config, s, &c, &e) != PAWL_OK) fail_msg("%s", e.text);
    for (uint64_t step = first; step <= last; step++) {
        struct kit_part *p = kit_part_new(step, part, PARTS);
        struct ckpt_save save = kit_save(p, step, part, PARTS);
        assert_int_equal(ckpt_save_begin(c, &save, NULL), PAWL_OK);
        assert_int_equal(kit_wait(c, s).code, PAWL_OK);
        ckpt_durable(c, step);
        kit_part_free(p);
    }
    assert_int_equal(ckpt_close(c, kit_soon(), NULL), PAWL_OK);
}

static void close_both(struct store *stores[PARTS]) {
    for (uint32_t p = 0; p < PARTS; p++) store_close(stores[p]);
}

static void stores_of_version_1_load(void **state) {
    (void)state;
    struct store *stores[PARTS];
    struct ckpt_set *set = NULL;
    struct pawl_error e = {0};
    open_both(PAWL_SOURCE_DIR "/tests/golden/ckpt_slot_v1", true, stores);
    if (ckpt_set_open(stores, PARTS, NULL, &set, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_null(ckpt_set_problem(set, 0));
    assert_int_equal(ckpt_set_count(set), 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(ckpt_set_at(set, i)->step, 2 - i);
        assert_true(ckpt_set_at(set, i)->complete);
        if (kit_check_step(set, i, &e) != PAWL_OK) fail_msg("%s", e.text);
        assert_int_equal(ckpt_set_verify(set, i, NULL), PAWL_OK);
    }
    ckpt_set_close(set);
    close_both(stores);
}

static void copies_of_them_are_saved_into(void **state) {
    (void)state;
    char folder[256], command[700];
    struct store *stores[PARTS];
    snprintf(folder, sizeof folder, "%s/golden-XXXXXX", PAWL_BINARY_DIR);
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "cp -r '%s/tests/golden/ckpt_slot_v1/.' '%s'", PAWL_SOURCE_DIR, folder);
    assert_int_equal(system(command), 0);
    open_both(folder, false, stores);
    for (uint32_t p = 0; p < PARTS; p++) save_step(stores[p], p, 3, 5);
    assert_int_equal(kit_newest(stores, PARTS, NULL), 5);
    close_both(stores);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const char *folder = getenv("PAWL_GOLDEN_WRITE");
    if (folder != NULL) {
        struct store *stores[PARTS];
        open_both(folder, false, stores);
        for (uint32_t p = 0; p < PARTS; p++) save_step(stores[p], p, 1, 2);
        close_both(stores);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stores_of_version_1_load),
        cmocka_unit_test(copies_of_them_are_saved_into),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
