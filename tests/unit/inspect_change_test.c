/* Rollback and gc: what goes, what stays whatever else is damaged, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kit/inspect_kit.h"

static int end(void **state) {
    kit_run_free(*state);
    return 0;
}

static int two_ranks(void **state) {
    *state = kit_run_new(21, 2, 4, 5); /* steps 2..5, and 1 or what is left of it */
    return 0;
}

static struct pawl_inspect *look(struct kit_run *r, bool read_only) {
    struct pawl_inspect *in = NULL;
    struct pawl_error e = {0};
    kit_run_stores(r, read_only);
    if (kit_run_inspect(r, &in, &e) != PAWL_OK) fail_msg("%s", e.text);
    return in;
}

static void close_look(struct kit_run *r, struct pawl_inspect *in) {
    pawl_inspect_close(in);
    kit_run_close_stores(r);
}

static pawl_code rollback(struct kit_run *r, uint64_t step, bool dry, uint32_t *count, struct pawl_error *e) {
    struct pawl_inspect *in = look(r, dry);
    struct pawl_inspect_changes *changes = calloc(1, sizeof *changes);
    assert_non_null(changes);
    pawl_code code = inspect_rollback(in, step, dry, changes, e);
    *count = pawl_inspect_changes_count(changes);
    pawl_inspect_changes_free(changes);
    close_look(r, in);
    return code;
}

static pawl_code gc(struct kit_run *r, uint32_t keep, bool dry, uint32_t *count, struct pawl_error *e) {
    struct pawl_inspect *in = look(r, dry);
    struct pawl_inspect_changes *changes = calloc(1, sizeof *changes);
    assert_non_null(changes);
    pawl_code code = inspect_gc(in, keep, dry, changes, e);
    *count = pawl_inspect_changes_count(changes);
    pawl_inspect_changes_free(changes);
    close_look(r, in);
    return code;
}

/* "5 4! 3": steps, newest first; ! incomplete. Every complete one must verify. */
static void expect_steps(struct kit_run *r, const char *wanted) {
    struct pawl_inspect *in = look(r, true);
    char text[256] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < pawl_inspect_step_count(in); i++) {
        struct pawl_inspect_step s = pawl_inspect_step(in, i);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%" PRIu64 "%s", i > 0 ? " " : "", s.step,
                               s.complete ? "" : "!");
    }
    close_look(r, in);
    assert_string_equal(text, wanted);
}

static uint32_t slot_files(struct kit_run *r) {
    uint32_t total = 0, number;
    kit_run_stores(r, true);
    for (uint32_t k = 0; k < r->ranks; k++) {
        char **names = NULL;
        uint32_t count = 0;
        assert_int_equal(store_list(r->stores[k], &names, &count, NULL), PAWL_OK);
        for (uint32_t i = 0; i < count; i++) total += record_slot_of_name(names[i], &number);
        store_names_free(names, count);
    }
    kit_run_close_stores(r);
    return total;
}

/* A byte of the slot of (step, part): in the header, or in the data. */
static void damage(struct kit_run *r, uint64_t step, uint32_t part, bool header) {
    struct pawl_inspect *in = look(r, true);
    char folder[8], file[RECORD_NAME_BYTES] = "";
    uint64_t byte = 0;
    for (uint32_t i = 0; i < in->slot_count; i++) {
        if (in->slots[i].entry.step != step || in->slots[i].entry.part != part) continue;
        kit_run_folder(in->slots[i].store, folder);
        memcpy(file, in->slots[i].file, sizeof file);
        byte = header ? 30 : in->slots[i].info.header.data_offset + 100;
    }
    close_look(r, in);
    assert_string_not_equal(file, "");
    storesim_flip(r->sim, folder, file, byte, 4);
}

/* ---- rollback ---- */

static void later_steps_no_longer_count_and_the_run_goes_on_from_there(void **state) {
    struct kit_run *r = *state;
    struct pawl_error e = {0};
    uint32_t count = 0;
    expect_steps(r, "5 4 3 2 1");
    assert_int_equal(rollback(r, 3, true, &count, &e), PAWL_OK);
    assert_int_equal(count, 4);
    expect_steps(r, "5 4 3 2 1"); /* a dry run changes nothing */
    assert_int_equal(rollback(r, 3, false, &count, &e), PAWL_OK);
    assert_int_equal(count, 4);
    expect_steps(r, "3 2 1");
    storesim_crash(r->sim);
    expect_steps(r, "3 2 1");
    r->resume = 3;
    kit_run_start(r);
    kit_run_save(r, 4, UINT32_MAX);
    kit_run_save(r, 5, UINT32_MAX);
    kit_run_stop(r);
    struct pawl_inspect *in = look(r, true);
    assert_int_equal(pawl_inspect_step(in, 0).step, 5);
    assert_int_equal(pawl_inspect_step(in, 0).incarnation, 2);
    assert_true(pawl_inspect_step(in, 0).complete);
    for (uint32_t i = 0; i < r->ranks; i++) assert_int_equal(in->stores[i].logs, 1);
    close_look(r, in);
}

static void rollback_to_a_step_that_is_not_whole_changes_nothing(void **state) {
    struct kit_run *r = *state;
    struct pawl_error e = {0};
    uint32_t count = 0;
    damage(r, 3, 1, false);
    assert_int_equal(rollback(r, 3, false, &count, &e), PAWL_CORRUPT);
    assert_non_null(strstr(e.text, "nothing was changed"));
    assert_int_equal(rollback(r, 9, false, &count, &e), PAWL_NOT_FOUND);
    damage(r, 4, 0, true);
    assert_int_equal(rollback(r, 4, false, &count, &e), PAWL_CORRUPT);
    expect_steps(r, "5 4! 3 2 1");
    assert_int_equal(rollback(r, 2, false, &count, &e), PAWL_OK);
    expect_steps(r, "2 1");
}

static void rollback_is_refused_where_a_log_cannot_be_read(void **state) {
    struct kit_run *r = *state;
    struct pawl_error e = {0};
    uint32_t count = 0;
    for (uint32_t region = 0; region < 2; region++)
        storesim_flip(r->sim, "r1", "commit-000001.log", region * RECORD_REGION_BYTES + 50, 1);
    pawl_code code = rollback(r, 3, false, &count, &e);
    assert_int_equal(code, PAWL_CORRUPT);
    assert_non_null(strstr(e.text, "r1"));
}

static void the_new_log_stands_though_one_of_its_regions_is_damaged(void **state) {
    struct kit_run *r = *state;
    uint32_t count = 0;
    assert_int_equal(rollback(r, 3, false, &count, NULL), PAWL_OK);
    for (uint32_t region = 0; region < 2; region++) {
        storesim_flip(r->sim, "r0", "commit-000002.log", region * RECORD_REGION_BYTES + 50, 1);
        expect_steps(r, "3 2 1");
        storesim_flip(r->sim, "r0", "commit-000002.log", region * RECORD_REGION_BYTES + 50, 1);
    }
}

/* ---- gc ---- */

static void gc_removes_only_what_no_record_names(void **state) {
    struct kit_run *r = *state;
    uint32_t count = 0;
    assert_int_equal(rollback(r, 3, false, &count, NULL), PAWL_OK);
    uint32_t before = slot_files(r);
    assert_int_equal(gc(r, 0, true, &count, NULL), PAWL_OK);
    assert_int_equal(slot_files(r), before);
    assert_int_equal(count, 4);
    assert_int_equal(gc(r, 0, false, &count, NULL), PAWL_OK);
    assert_int_equal(slot_files(r), before - 4);
    expect_steps(r, "3 2 1");
    assert_int_equal(gc(r, 0, false, &count, NULL), PAWL_OK);
    assert_int_equal(count, 0);
}

static void a_full_disk_is_freed_of_what_no_log_names(void **state) {
    struct kit_run *r = *state;
    struct pawl_error e = {0};
    uint32_t count = 0;
    assert_int_equal(rollback(r, 3, false, &count, NULL), PAWL_OK);
    uint32_t before = slot_files(r);
    storesim_set_capacity(r->sim, 1); /* no removal makes room for a log */
    assert_int_equal(gc(r, 0, false, &count, &e), PAWL_OK);
    assert_int_equal(count, 4);
    assert_int_equal(slot_files(r), before - 4);
    storesim_crash(r->sim);
    expect_steps(r, "3 2 1");
}

static void what_went_before_the_disk_was_too_full_for_a_log_is_told(void **state) {
    struct kit_run *r = *state;
    struct pawl_error e = {0};
    uint32_t count = 0;
    assert_int_equal(rollback(r, 3, false, &count, NULL), PAWL_OK);
    uint32_t before = slot_files(r);
    storesim_set_capacity(r->sim, 1);
    assert_int_equal(gc(r, 1, false, &count, &e), PAWL_NO_SPACE);
    assert_non_null(strstr(e.text, "4 files"));
    assert_int_equal(slot_files(r), before - 4);
    expect_steps(r, "3 2 1");
}

static uint64_t used_bytes(struct kit_run *r) {
    uint64_t total = 0;
    kit_run_stores(r, true);
    for (uint32_t k = 0; k < r->ranks; k++) {
        char **names = NULL;
        uint32_t count = 0;
        assert_int_equal(store_list(r->stores[k], &names, &count, NULL), PAWL_OK);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t bytes = 0;
            assert_true(inspect_file_bytes(r->stores[k], names[i], &bytes));
            total += (bytes + 4095) / 4096 * 4096;
        }
        store_names_free(names, count);
    }
    kit_run_close_stores(r);
    return total;
}

/* The log of the first rank as a commit leaves it that dropped step 1: the record before is in the other
 * region, and stands again when the power fails before the flush. */
static void drop_step_1_by_the_last_record(struct kit_run *r) {
    struct pawl_inspect *in = look(r, false);
    struct record now = in->stores[0].record;
    struct bytes image = {0};
    record_encode(&now, &image);
    record_put_zeros(&image, RECORD_REGION_BYTES - image.size);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < now.entry_count; i++)
        if (now.entries[i].step != 1) now.entries[kept++] = now.entries[i];
    assert_int_equal(kept, now.entry_count - 1);
    now.entry_count = kept;
    now.counter++;
    record_encode(&now, &image);
    record_put_zeros(&image, 2 * RECORD_REGION_BYTES - image.size);
    assert_int_equal(store_put(in->stores[0].store, "commit-000001.log", image.data, image.size, NULL),
                     PAWL_OK);
    bytes_close(&image);
    close_look(r, in);
}

static void a_full_disk_keeps_what_the_record_before_names(void **state) {
    struct kit_run *r = *state;
    uint32_t count = 0;
    drop_step_1_by_the_last_record(r);
    uint32_t before = slot_files(r);
    storesim_set_capacity(r->sim, 1);
    assert_int_equal(gc(r, 0, false, &count, NULL), PAWL_NO_SPACE);
    assert_int_equal(slot_files(r), before);
    storesim_set_capacity(r->sim, 0);
    assert_int_equal(gc(r, 0, false, &count, NULL), PAWL_OK);
    assert_int_equal(slot_files(r),
                     before - 2); /* with the part of the other rank, which nothing completes */
    expect_steps(r, "5 4 3 2");
}

static void a_disk_that_removal_makes_room_on_is_collected_whole(void **state) {
    struct kit_run *r = *state;
    struct pawl_error e = {0};
    uint32_t count = 0;
    assert_int_equal(rollback(r, 3, false, &count, NULL), PAWL_OK);
    storesim_set_capacity(r->sim, used_bytes(r) + RECORD_LOG_BYTES - STORE_BLOCK);
    assert_int_equal(gc(r, 0, true, &count, &e), PAWL_OK);
    pawl_code code = gc(r, 1, false, &count, &e);
    if (code != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(slot_files(r), 2);
    expect_steps(r, "3");
    storesim_crash(r->sim);
    expect_steps(r, "3");
}

static void gc_drops_incomplete_steps_that_nothing_can_complete_and_no_other(void **state) {
    struct kit_run *r = *state;
    struct pawl_error e = {0};
    uint32_t count = 0;
    r->resume = 5;
    kit_run_start(r);
    kit_run_save(r, 6, 1); /* older than 8 */
    kit_run_save(r, 8, UINT32_MAX);
    kit_run_save(r, 9, 0); /* newer, but of an earlier start than the next */
    kit_run_stop(r);
    assert_int_equal(gc(r, 0, false, &count, &e), PAWL_OK);
    struct pawl_inspect *in = look(r, true);
    assert_int_equal(pawl_inspect_step(in, 0).step, 9); /* of the newest start: somebody may go on with it */
    for (uint32_t i = 1; i < pawl_inspect_step_count(in); i++) assert_true(pawl_inspect_step(in, i).complete);
    close_look(r, in);
    r->resume = 8;
    kit_run_start(r);
    kit_run_save(r, 10, 1);
    kit_run_stop(r);
    assert_int_equal(gc(r, 0, false, &count, &e), PAWL_OK);
    in = look(r, true);
    assert_int_equal(pawl_inspect_step(in, 0).step, 10);
    assert_int_equal(pawl_inspect_step(in, 1).step, 8);
    assert_true(pawl_inspect_step(in, 1).complete);
    close_look(r, in);
}

static void an_unfinished_save_that_is_the_only_copy_is_never_removed(void **state) {
    (void)state;
    struct kit_run *r = kit_run_new(3, 2, 1, 0);
    struct pawl_error e = {0};
    uint32_t count = 0;
    kit_run_start(r);
    kit_run_save(r, 1, 1);
    kit_run_stop(r);
    uint32_t before = slot_files(r);
    assert_int_equal(before, 1);
    assert_int_equal(gc(r, 1, false, &count, &e), PAWL_CORRUPT);
    assert_non_null(strstr(e.text, "no step is complete"));
    assert_int_equal(slot_files(r), before);
    kit_run_free(r);
}

static void keep_counts_only_steps_that_verify(void **state) {
    struct kit_run *r = *state;
    uint32_t count = 0;
    damage(r, 5, 0, false); /* its header is good, so it is listed as complete */
    assert_int_equal(gc(r, 2, false, &count, NULL), PAWL_OK);
    expect_steps(r, "5 4 3");
    assert_int_equal(gc(r, 1, false, &count, NULL), PAWL_OK);
    expect_steps(r, "5 4");
    assert_int_equal(slot_files(r), 4);
}

static void nothing_goes_from_steps_while_a_store_cannot_be_read(void **state) {
    struct kit_run *r = *state;
    uint32_t count = 0;
    kit_run_start(r);
    kit_run_save(r, 6, UINT32_MAX);
    kit_run_stop(r);
    struct pawl_inspect *in = look(r, true);
    uint32_t wanted = pawl_inspect_step_count(in);
    close_look(r, in);
    uint32_t before = slot_files(r);
    struct kit_run three = {.sim = r->sim, .ranks = 3}; /* a third rank whose log is damaged, all of it */
    kit_run_stores(&three, false);
    uint8_t junk[RECORD_LOG_BYTES];
    memset(junk, 0x5a, sizeof junk);
    assert_int_equal(store_put(three.stores[2], "commit-000001.log", junk, sizeof junk, NULL), PAWL_OK);
    kit_run_close_stores(&three);
    assert_int_equal(gc(&three, 1, false, &count, NULL), PAWL_OK);
    in = look(r, true);
    assert_int_equal(pawl_inspect_step_count(in), wanted);
    close_look(r, in);
    assert_true(slot_files(r) <= before);
}

static void damage_around_it_does_not_cost_the_newest_complete_step(void **state) {
    struct kit_run *r = *state;
    uint32_t count = 0;
    for (uint64_t step = 2; step <= 4; step++) damage(r, step, (uint32_t)(step % 2), true);
    assert_int_equal(gc(r, 1, false, &count, NULL), PAWL_OK);
    struct pawl_inspect *in = look(r, true);
    struct pawl_inspect_verified done;
    assert_int_equal(pawl_inspect_step(in, 0).step, 5);
    assert_int_equal(pawl_inspect_verify(in, 5, &done, NULL), PAWL_OK);
    close_look(r, in);
}

static void a_log_number_that_has_no_successor_is_refused(void **state) {
    struct kit_run *r = *state;
    struct pawl_error e = {0};
    uint32_t count = 0;
    kit_run_stores(r, false);
    uint8_t *data = NULL;
    size_t size = 0;
    assert_int_equal(store_get(r->stores[0], "commit-000001.log", &data, &size, NULL), PAWL_OK);
    assert_int_equal(store_put(r->stores[0], "commit-999999999.log", data, size, NULL), PAWL_OK);
    free(data);
    kit_run_close_stores(r);
    assert_int_equal(rollback(r, 3, false, &count, &e), PAWL_CORRUPT);
    expect_steps(r, "5 4 3 2 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(later_steps_no_longer_count_and_the_run_goes_on_from_there, two_ranks,
                                        end),
        cmocka_unit_test_setup_teardown(rollback_to_a_step_that_is_not_whole_changes_nothing, two_ranks, end),
        cmocka_unit_test_setup_teardown(rollback_is_refused_where_a_log_cannot_be_read, two_ranks, end),
        cmocka_unit_test_setup_teardown(the_new_log_stands_though_one_of_its_regions_is_damaged, two_ranks,
                                        end),
        cmocka_unit_test_setup_teardown(gc_removes_only_what_no_record_names, two_ranks, end),
        cmocka_unit_test_setup_teardown(a_full_disk_is_freed_of_what_no_log_names, two_ranks, end),
        cmocka_unit_test_setup_teardown(what_went_before_the_disk_was_too_full_for_a_log_is_told, two_ranks,
                                        end),
        cmocka_unit_test_setup_teardown(a_full_disk_keeps_what_the_record_before_names, two_ranks, end),
        cmocka_unit_test_setup_teardown(a_disk_that_removal_makes_room_on_is_collected_whole, two_ranks, end),
        cmocka_unit_test_setup_teardown(gc_drops_incomplete_steps_that_nothing_can_complete_and_no_other,
                                        two_ranks, end),
        cmocka_unit_test(an_unfinished_save_that_is_the_only_copy_is_never_removed),
        cmocka_unit_test_setup_teardown(keep_counts_only_steps_that_verify, two_ranks, end),
        cmocka_unit_test_setup_teardown(nothing_goes_from_steps_while_a_store_cannot_be_read, two_ranks, end),
        cmocka_unit_test_setup_teardown(damage_around_it_does_not_cost_the_newest_complete_step, two_ranks,
                                        end),
        cmocka_unit_test_setup_teardown(a_log_number_that_has_no_successor_is_refused, two_ranks, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
