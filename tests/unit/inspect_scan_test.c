/* What the inspector finds in stores: steps and what they lack, damage with its name, and nothing wrong where
 * nothing is. */
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

static int five_steps(void **state) {
    *state = kit_run_new(7, 1, 5, 5);
    return 0;
}

static int two_ranks(void **state) {
    *state = kit_run_new(9, 2, 2, 3);
    return 0;
}

static struct pawl_inspect *look(struct kit_run *r) {
    struct pawl_inspect *in = NULL;
    struct pawl_error e = {0};
    kit_run_stores(r, true);
    if (kit_run_inspect(r, &in, &e) != PAWL_OK) fail_msg("%s", e.text);
    return in;
}

static void close_look(struct kit_run *r, struct pawl_inspect *in) {
    pawl_inspect_close(in);
    kit_run_close_stores(r);
}

/* The outcome of verifying everything, and the text of the first problem. */
static pawl_code verify_all(struct kit_run *r, char text[768]) {
    struct pawl_inspect *in = NULL;
    struct pawl_inspect_verified done;
    struct pawl_error e = {0};
    kit_run_stores(r, true);
    pawl_code code = kit_run_inspect(r, &in, &e);
    if (code == PAWL_OK) code = pawl_inspect_verify(in, PAWL_INSPECT_ALL, &done, &e);
    memcpy(text, e.text, sizeof e.text);
    close_look(r, in);
    return code;
}

static void sound_stores_are_valid_and_listed_newest_first(void **state) {
    struct kit_run *r = *state;
    char text[768];
    assert_int_equal(verify_all(r, text), PAWL_OK);
    struct pawl_inspect *in = look(r);
    assert_int_equal(pawl_inspect_step_count(in), 5);
    for (uint32_t i = 0; i < 5; i++) {
        struct pawl_inspect_step s = pawl_inspect_step(in, i);
        assert_int_equal(s.step, 5 - i);
        assert_true(s.complete);
        assert_int_equal(s.current, i == 0);
        assert_int_equal(s.parts, 1);
        assert_int_equal(s.damaged, 0);
    }
    assert_int_equal(pawl_inspect_problem_count(in), 0);
    assert_string_equal(pawl_inspect_summary(in).run, "6b69742d72756e2d3132333435363738");
    close_look(r, in);
}

/* Is the byte one that no reader gives a meaning? Behind the records; see docs/formats/store.md. */
static bool is_meaningless(const char *file, uint64_t byte, const uint8_t *data) {
    uint32_t log;
    if (!record_log_of_name(file, &log)) return false;
    uint64_t region = byte / RECORD_REGION_BYTES * RECORD_REGION_BYTES;
    uint32_t length =
        data[region + 12] | (uint32_t)data[region + 13] << 8 | (uint32_t)data[region + 14] << 16;
    return length == 0 ? false : byte - region >= length;
}

static void every_damaged_byte_of_every_file_is_found_and_its_file_named(void **state) {
    struct kit_run *r = *state;
    char **names = NULL, text[768];
    uint32_t count = 0, flips = 0;
    kit_run_stores(r, true);
    assert_int_equal(store_list(r->stores[0], &names, &count, NULL), PAWL_OK);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *data = NULL;
        size_t size = 0;
        assert_int_equal(store_get(r->stores[0], names[i], &data, &size, NULL), PAWL_OK);
        kit_run_close_stores(r);
        /* All of the identity; of the rest a prime stride, which meets every page and field sooner or later.
         */
        for (uint64_t byte = 0; byte < size; byte += size < 100 ? 1 : byte % 4096 < 400 ? 37 : 1009) {
            if (is_meaningless(names[i], byte, data)) continue;
            storesim_flip(r->sim, "r0", names[i], byte, (uint8_t)(1u << byte % 8));
            pawl_code code = verify_all(r, text);
            storesim_flip(r->sim, "r0", names[i], byte, (uint8_t)(1u << byte % 8));
            bool other_run = code == PAWL_FOREIGN && strcmp(names[i], "STORE") == 0; /* another digit */
            if ((!other_run && pawl_code_exit(code) != 65) || strstr(text, names[i]) == NULL)
                fail_msg("%s, byte %" PRIu64 ": %s, \"%s\"", names[i], byte, pawl_code_name(code), text);
            flips++;
        }
        free(data);
        kit_run_stores(r, true);
    }
    store_names_free(names, count);
    kit_run_close_stores(r);
    print_message("%u bytes flipped\n", flips);
    assert_true(flips > 300);
    assert_int_equal(verify_all(r, text), PAWL_OK);
}

static uint32_t find_slot(struct pawl_inspect *in, uint64_t step, uint32_t part) {
    for (uint32_t i = 0; i < in->slot_count; i++)
        if (in->slots[i].entry.step == step && in->slots[i].entry.part == part) return i;
    fail_msg("no slot of step %" PRIu64, step);
    return 0;
}

static void flip_in_slot(struct kit_run *r, uint64_t step, uint32_t part, bool header) {
    struct pawl_inspect *in = look(r);
    const struct inspect_slot *s = &in->slots[find_slot(in, step, part)];
    char folder[8], file[RECORD_NAME_BYTES];
    kit_run_folder(s->store, folder);
    memcpy(file, s->file, sizeof file);
    uint64_t byte = header ? 20 : s->info.header.data_offset + 5000;
    close_look(r, in);
    storesim_flip(r->sim, folder, file, byte, 1);
}

static void two_damaged_newest_steps_are_shown_as_bad_and_the_third_is_current(void **state) {
    struct kit_run *r = *state;
    flip_in_slot(r, 5, 0, true);
    flip_in_slot(r, 4, 0, true);
    struct pawl_inspect *in = look(r);
    assert_int_equal(pawl_inspect_step_count(in), 5);
    for (uint32_t i = 0; i < 2; i++) {
        struct pawl_inspect_step s = pawl_inspect_step(in, i);
        assert_int_equal(s.step, 5 - i);
        assert_false(s.complete);
        assert_int_equal(s.damaged, 1);
        assert_int_equal(pawl_inspect_part(in, i, 0).state, PAWL_INSPECT_DAMAGED);
    }
    uint32_t index = 0;
    assert_int_equal(pawl_inspect_find(in, 0, &index, NULL), PAWL_OK);
    assert_int_equal(pawl_inspect_step(in, index).step, 3);
    assert_int_equal(pawl_inspect_problem_count(in), 2);
    assert_int_equal(pawl_inspect_outcome(in, NULL), PAWL_CORRUPT);
    close_look(r, in);
}

static void damaged_data_is_named_by_file_chunk_place_and_tensor(void **state) {
    struct kit_run *r = *state;
    flip_in_slot(r, 3, 0, false);
    struct pawl_inspect *in = look(r);
    struct pawl_inspect_verified done;
    assert_int_equal(pawl_inspect_problem_count(in), 0); /* the headers are good */
    assert_int_equal(pawl_inspect_verify(in, 5, &done, NULL), PAWL_OK);
    assert_int_equal(pawl_inspect_verify(in, 3, &done, NULL), PAWL_CORRUPT);
    assert_int_equal(done.slots, 1);
    assert_int_equal(pawl_inspect_problem_count(in), 1);
    struct pawl_inspect_problem p = pawl_inspect_problem(in, 0);
    const struct slot_info *s = &in->slots[find_slot(in, 3, 0)].info;
    assert_int_equal(p.kind, PAWL_PROBLEM_CHUNK);
    assert_int_equal(p.step, 3);
    assert_int_equal(p.chunk, 0);
    assert_int_equal(p.offset, s->header.data_offset);
    assert_int_equal(p.bytes, s->chunks[0].bytes);
    assert_non_null(p.tensor);
    assert_non_null(strstr(p.text, p.tensor));
    close_look(r, in);
}

static void a_short_or_missing_slot_is_told_with_the_size_it_should_have(void **state) {
    struct kit_run *r = *state;
    kit_run_stores(r, false);
    struct pawl_inspect *in = NULL;
    assert_int_equal(kit_run_inspect(r, &in, NULL), PAWL_OK);
    char shorter[RECORD_NAME_BYTES], gone[RECORD_NAME_BYTES];
    memcpy(shorter, in->slots[find_slot(in, 5, 0)].file, sizeof shorter);
    memcpy(gone, in->slots[find_slot(in, 4, 0)].file, sizeof gone);
    pawl_inspect_close(in);
    struct store_file *f = NULL;
    uint64_t bytes = 0;
    assert_int_equal(store_file_open(r->stores[0], shorter, false, 0, &f, NULL), PAWL_OK);
    assert_int_equal(store_file_size(f, &bytes, NULL), PAWL_OK);
    assert_int_equal(store_file_truncate(f, bytes - 1, NULL), PAWL_OK);
    store_file_close(f);
    assert_int_equal(store_remove(r->stores[0], gone, NULL), PAWL_OK);
    assert_int_equal(kit_run_inspect(r, &in, NULL), PAWL_OK);
    assert_int_equal(pawl_inspect_problem_count(in), 2);
    assert_int_equal(pawl_inspect_part(in, 0, 0).state, PAWL_INSPECT_DAMAGED);
    assert_int_equal(pawl_inspect_part(in, 1, 0).state, PAWL_INSPECT_MISSING);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%" PRIu64 " bytes long, its commit record says %" PRIu64, bytes - 1,
             bytes);
    bool found = false;
    for (uint32_t i = 0; i < 2; i++)
        found = found || strstr(pawl_inspect_problem(in, i).text, wanted) != NULL;
    assert_true(found);
    assert_int_equal(pawl_inspect_outcome(in, NULL), PAWL_CORRUPT);
    pawl_inspect_close(in);
}

static void an_incomplete_step_says_which_part_it_lacks(void **state) {
    struct kit_run *r = *state;
    kit_run_start(r);
    kit_run_save(r, 4, 1);
    kit_run_stop(r);
    struct pawl_inspect *in = look(r);
    struct pawl_inspect_verified done;
    struct pawl_error e = {0};
    struct pawl_inspect_step s = pawl_inspect_step(in, 0);
    assert_int_equal(s.step, 4);
    assert_false(s.complete);
    assert_string_equal(s.missing, "unit 0 of 1: part 1 of 2");
    /* It may be on its way: the run is as good as its newest complete step. Asked for, it is not valid. */
    assert_int_equal(pawl_inspect_verify(in, 0, &done, &e), PAWL_OK);
    assert_int_equal(pawl_inspect_verify(in, 4, &done, &e), PAWL_CORRUPT);
    assert_non_null(strstr(e.text, "part 1 of 2"));
    close_look(r, in);
}

static void a_lost_rank_is_named_as_the_missing_part(void **state) {
    struct kit_run *r = *state;
    struct pawl_inspect *in = NULL;
    struct pawl_inspect_verified done;
    struct pawl_error e = {0};
    kit_run_stores(r, true);
    assert_int_equal(inspect_new("run", r->stores, 1, false, NULL, &in, NULL), PAWL_OK);
    assert_int_equal(inspect_scan(in, NULL), PAWL_OK);
    uint32_t index;
    assert_int_equal(pawl_inspect_find(in, 0, &index, &e), PAWL_CORRUPT);
    assert_int_equal(pawl_inspect_verify(in, 0, &done, &e), PAWL_CORRUPT);
    assert_non_null(strstr(e.text, "unit 0 of 1: part 1 of 2"));
    close_look(r, in);
}

static void what_cannot_be_read_is_an_error_and_not_an_empty_folder(void **state) {
    struct kit_run *r = *state;
    kit_run_stores(r, true);
    storesim_set_faults(r->sim, (struct storesim_faults){.read_eio = 1000000});
    struct pawl_inspect *in = NULL;
    struct pawl_error e = {0};
    pawl_code code = kit_run_inspect(r, &in, &e);
    if (code == PAWL_OK) {
        uint32_t index;
        assert_int_equal(pawl_inspect_outcome(in, &e), PAWL_IO);
        assert_int_equal(pawl_inspect_find(in, 0, &index, &e), PAWL_IO);
        pawl_inspect_close(in);
    } else {
        assert_int_equal(code, PAWL_IO);
    }
}

static void stores_of_two_runs_are_foreign_and_both_are_named(void **state) {
    struct kit_run *r = *state;
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    memset(config.run_id, 0xab, sizeof config.run_id);
    struct store *other = NULL;
    struct ckpt *c = NULL;
    assert_int_equal(storesim_open(r->sim, "x", false, &other, NULL), PAWL_OK);
    assert_int_equal(ckpt_open(&config, other, &c, NULL), PAWL_OK);
    assert_int_equal(ckpt_close(c, kit_soon(), NULL), PAWL_OK);
    kit_run_stores(r, true);
    struct store *both[] = {r->stores[0], other};
    struct pawl_inspect *in = NULL;
    struct pawl_error e = {0};
    assert_int_equal(inspect_new("run", both, 2, false, NULL, &in, NULL), PAWL_OK);
    assert_int_equal(inspect_scan(in, &e), PAWL_FOREIGN);
    assert_non_null(strstr(e.text, "abababababababababababababababab"));
    assert_non_null(strstr(e.text, "6b69742d72756e2d3132333435363738"));
    pawl_inspect_close(in);
    store_close(other);
}

/* The reader's file is open, then a writer uses the slot again: what was asked for is looked for anew. */
static void a_slot_that_is_used_again_while_it_is_read_is_no_damage(void **state) {
    struct kit_run *r = *state;
    struct kit_run reader = {.sim = r->sim, .ranks = 2};
    struct pawl_inspect *in = look(&reader);
    struct pawl_inspect_verified done;
    struct pawl_error e = {0};
    r->resume = 3;
    kit_run_start(r);
    for (uint64_t step = 4; step <= 9; step++) kit_run_save(r, step, UINT32_MAX);
    pawl_code code = pawl_inspect_verify(in, 0, &done, &e);
    if (code != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(pawl_inspect_problem_count(in), 0);
    assert_int_equal(pawl_inspect_step(in, 0).step, 9);
    assert_int_equal(done.gone, 0);
    /* A step that is no longer there is not found, and not damaged either. */
    for (uint64_t step = 10; step <= 16; step++) kit_run_save(r, step, UINT32_MAX);
    assert_int_equal(pawl_inspect_verify(in, 9, &done, &e), PAWL_NOT_FOUND);
    kit_run_stop(r);
    close_look(&reader, in);
}

static void tensors_and_slices_are_those_that_were_saved(void **state) {
    struct kit_run *r = *state;
    struct pawl_inspect *in = look(r);
    assert_int_equal(pawl_inspect_tensor_count(in, 0), KIT_TENSORS);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < KIT_TENSORS; i++) {
        struct pawl_tensor t = pawl_inspect_tensor(in, 0, i);
        if (strcmp(t.name, "wte.weight") != 0) continue;
        seen++;
        assert_int_equal(t.rank, 2);
        assert_int_equal(t.shape[0], 37);
        assert_int_equal(pawl_inspect_slice_count(in, 0, i), 2);
        struct pawl_inspect_slice a = pawl_inspect_slice(in, 0, i, 0), b = pawl_inspect_slice(in, 0, i, 1);
        assert_int_equal(a.begin[0], 0);
        assert_int_equal(a.extent[0], 18);
        assert_int_equal(b.begin[0], 18);
        assert_int_equal(b.extent[0], 19);
        assert_int_equal(b.extent[1], 33);
        assert_int_not_equal(a.part, b.part);
    }
    assert_int_equal(seen, 1);
    close_look(r, in);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sound_stores_are_valid_and_listed_newest_first, five_steps, end),
        cmocka_unit_test_setup_teardown(every_damaged_byte_of_every_file_is_found_and_its_file_named,
                                        five_steps, end),
        cmocka_unit_test_setup_teardown(two_damaged_newest_steps_are_shown_as_bad_and_the_third_is_current,
                                        five_steps, end),
        cmocka_unit_test_setup_teardown(damaged_data_is_named_by_file_chunk_place_and_tensor, five_steps,
                                        end),
        cmocka_unit_test_setup_teardown(a_short_or_missing_slot_is_told_with_the_size_it_should_have,
                                        five_steps, end),
        cmocka_unit_test_setup_teardown(an_incomplete_step_says_which_part_it_lacks, two_ranks, end),
        cmocka_unit_test_setup_teardown(a_lost_rank_is_named_as_the_missing_part, two_ranks, end),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_is_an_error_and_not_an_empty_folder, two_ranks,
                                        end),
        cmocka_unit_test_setup_teardown(stores_of_two_runs_are_foreign_and_both_are_named, two_ranks, end),
        cmocka_unit_test_setup_teardown(a_slot_that_is_used_again_while_it_is_read_is_no_damage, two_ranks,
                                        end),
        cmocka_unit_test_setup_teardown(tensors_and_slices_are_those_that_were_saved, two_ranks, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
