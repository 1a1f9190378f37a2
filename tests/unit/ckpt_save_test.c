/* What ckpt/ckpt.h promises of saving and reading, on the simulated disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "kit/ckpt_kit.h"

static struct store *open_sim(struct storesim *sim, const char *folder) {
    struct store *s = NULL;
    struct pawl_error e = {0};
    if (storesim_open(sim, folder, false, &s, &e) != PAWL_OK) fail_msg("%s", e.text);
    return s;
}

static struct ckpt *open_engine(const struct ckpt_config *config, struct store *s) {
    struct ckpt *c = NULL;
    struct pawl_error e = {0};
    if (ckpt_open(config, s, &c, &e) != PAWL_OK) fail_msg("%s", e.text);
    return c;
}

static void begin(struct ckpt *c, const struct kit_part *p, uint64_t step, uint32_t part,
                  uint32_t part_count) {
    struct ckpt_save save = kit_save(p, step, part, part_count);
    struct pawl_error e = {0};
    if (ckpt_save_begin(c, &save, &e) != PAWL_OK) fail_msg("%s", e.text);
}

/* One whole save, which must succeed. */
static void save(struct ckpt *c, struct store *s, uint64_t step, uint32_t part, uint32_t part_count) {
    struct kit_part *p = kit_part_new(step, part, part_count);
    begin(c, p, step, part, part_count);
    struct ckpt_event event = kit_wait(c, s);
    if (event.code != PAWL_OK) fail_msg("%s", event.error.text);
    assert_int_equal(event.step, step);
    kit_part_free(p);
}

static void close_engine(struct ckpt *c) {
    struct pawl_error e = {0};
    if (ckpt_close(c, kit_soon(), &e) != PAWL_OK) fail_msg("%s", e.text);
}

/* The save counts now, or newer steps that are durable overtook it. True when it counts. */
static bool counts(const struct ckpt_event *event, uint64_t newest_durable) {
    if (event->code == PAWL_CANCELLED && event->step < newest_durable) return false;
    if (event->code != PAWL_OK) fail_msg("%s", event->error.text);
    return true;
}

static uint32_t count_slots(struct store *s) {
    char **names = NULL;
    uint32_t count = 0, slots = 0;
    assert_int_equal(store_list(s, &names, &count, NULL), PAWL_OK);
    for (uint32_t i = 0; i < count; i++) slots += strncmp(names[i], "slot-", 5) == 0;
    store_names_free(names, count);
    return slots;
}

static void what_was_saved_is_read_back(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config config = kit_config(1, 0, 2, 2);
    struct ckpt *c = open_engine(&config, s);
    save(c, s, 10, 0, 1);
    close_engine(c);
    struct ckpt_set *set = NULL;
    assert_int_equal(ckpt_set_open(&s, 1, config.run_id, &set, NULL), PAWL_OK);
    assert_int_equal(ckpt_set_count(set), 1);
    assert_int_equal(ckpt_set_at(set, 0)->step, 10);
    assert_true(ckpt_set_at(set, 0)->complete);
    assert_null(ckpt_set_problem(set, 0));
    assert_int_equal(ckpt_set_tensor_count(set, 0), KIT_TENSORS);
    struct pawl_error e = {0};
    if (kit_check_step(set, 0, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(ckpt_set_verify(set, 0, NULL), PAWL_OK);
    ckpt_set_close(set);
    store_close(s);
    storesim_free(sim);
}

static void any_rows_are_read_from_whichever_parts_hold_them(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *stores[3];
    for (uint32_t part = 0; part < 3; part++) {
        char folder[8];
        snprintf(folder, sizeof folder, "r%u", part);
        stores[part] = open_sim(sim, folder);
        struct ckpt_config config = kit_config(1, 0, 1, 1);
        struct ckpt *c = open_engine(&config, stores[part]);
        save(c, stores[part], 7, part, 3);
        close_engine(c);
    }
    struct ckpt_set *set = NULL;
    assert_int_equal(ckpt_set_open(stores, 3, NULL, &set, NULL), PAWL_OK);
    assert_int_equal(ckpt_set_count(set), 1);
    assert_true(ckpt_set_at(set, 0)->complete);
    uint64_t row_bytes = kit_row_bytes(0);
    uint8_t *out = malloc(37 * row_bytes);
    for (uint64_t from = 0; from < 37; from += 5)
        for (uint64_t to = from; to <= 37; to += 3) {
            struct kit_rows rows;
            struct pawl_tensor want = kit_slice(&rows, kit_tensor(0), from, to, out);
            assert_int_equal(ckpt_set_read(set, 0, &want, NULL), PAWL_OK);
            for (uint64_t i = 0; i < (to - from) * row_bytes; i++)
                assert_int_equal(out[i], kit_byte(7, 0, from * row_bytes + i));
        }
    free(out);
    ckpt_set_close(set);
    for (uint32_t part = 0; part < 3; part++) store_close(stores[part]);
    storesim_free(sim);
}

static void a_missing_part_makes_the_step_incomplete_and_is_named(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    struct ckpt *c = open_engine(&config, s);
    save(c, s, 7, 0, 3);
    save(c, s, 7, 2, 3);
    close_engine(c);
    struct ckpt_set *set = NULL;
    struct pawl_error e = {0};
    assert_int_equal(ckpt_set_open(&s, 1, NULL, &set, NULL), PAWL_OK);
    assert_int_equal(ckpt_set_count(set), 1);
    assert_false(ckpt_set_at(set, 0)->complete);
    assert_string_equal(ckpt_set_at(set, 0)->missing, "unit 0 of 1: part 1 of 3");
    assert_int_equal(kit_check_step(set, 0, &e), PAWL_NOT_FOUND);
    assert_non_null(strstr(e.text, "row 12")); /* 37 rows in three parts */
    assert_int_equal(ckpt_set_verify(set, 0, &e), PAWL_NOT_FOUND);
    ckpt_set_close(set);
    store_close(s);
    storesim_free(sim);
}

static void parts_of_different_incarnations_or_part_counts_are_not_mixed(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *a = open_sim(sim, "a"), *b = open_sim(sim, "b");
    struct ckpt_config one = kit_config(1, 0, 1, 1), two = kit_config(2, 0, 1, 1);
    struct ckpt *c = open_engine(&one, a), *d = open_engine(&two, b);
    save(c, a, 7, 0, 2);
    save(d, b, 7, 1, 2);
    save(d, b, 8, 0, 2);
    save(d, b, 8, 1, 3);
    close_engine(c);
    close_engine(d);
    struct store *stores[2] = {a, b};
    struct ckpt_set *set = NULL;
    assert_int_equal(ckpt_set_open(stores, 2, NULL, &set, NULL), PAWL_OK);
    assert_int_equal(ckpt_set_count(set), 3);
    for (uint32_t i = 0; i < 3; i++) assert_false(ckpt_set_at(set, i)->complete);
    assert_int_equal(ckpt_set_at(set, 0)->step, 8);
    assert_int_equal(ckpt_set_at(set, 1)->incarnation, 2);
    ckpt_set_close(set);
    store_close(a);
    store_close(b);
    storesim_free(sim);
}

static void a_step_saved_again_with_fewer_parts_is_complete(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    struct ckpt *c = open_engine(&config, s);
    save(c, s, 7, 0, 2); /* its peer died before saving part 1 */
    save(c, s, 7, 0, 1);
    close_engine(c);
    assert_int_equal(kit_newest(&s, 1, NULL), 7);
    store_close(s);
    storesim_free(sim);
}

static void slots_stay_at_in_flight_plus_kept_plus_one(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 8; n++)
        for (uint32_t k = 1; k <= 3; k++) {
            struct storesim *sim = storesim_new(n * 10 + k);
            struct store *s = open_sim(sim, "r0");
            struct ckpt_config config = kit_config(1, 0, n, k);
            struct ckpt *c = open_engine(&config, s);
            struct kit_part *parts[64] = {0};
            uint64_t done = 0, durable = 0;
            for (uint64_t step = 1; done < 40;) {
                while (step <= 40 && ckpt_in_flight(c) < n) {
                    parts[step] = kit_part_new(step, 0, 1);
                    begin(c, parts[step], step, 0, 1);
                    step++;
                }
                struct ckpt_event event = kit_wait(c, s);
                if (counts(&event, durable) && event.step > durable) durable = event.step;
                ckpt_durable(c, durable);
                kit_part_free(parts[event.step]);
                parts[event.step] = NULL;
                done++;
            }
            assert_in_range(count_slots(s), k + 1, n + k + 1);
            close_engine(c);
            struct ckpt_set *set = NULL;
            assert_int_equal(ckpt_set_open(&s, 1, NULL, &set, NULL), PAWL_OK);
            assert_int_equal(ckpt_set_at(set, 0)->step, 40);
            assert_in_range(ckpt_set_count(set), k, n + k + 1);
            for (uint32_t i = 0; i < ckpt_set_count(set); i++)
                assert_int_equal(kit_check_step(set, i, NULL), PAWL_OK);
            ckpt_set_close(set);
            store_close(s);
            storesim_free(sim);
        }
}

static void one_save_more_than_allowed_is_busy_and_changes_nothing(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config config = kit_config(1, 0, 2, 1);
    struct ckpt *c = open_engine(&config, s);
    struct kit_part *p = kit_part_new(1, 0, 1);
    begin(c, p, 1, 0, 1);
    begin(c, p, 2, 0, 1);
    struct ckpt_save third = kit_save(p, 3, 0, 1);
    struct pawl_error e = {0};
    assert_int_equal(ckpt_save_begin(c, &third, &e), PAWL_BUSY);
    assert_int_equal(ckpt_in_flight(c), 2);
    assert_int_equal(kit_wait(c, s).code, PAWL_OK);
    assert_true(ckpt_progress(c) > 0);
    assert_int_equal(ckpt_save_begin(c, &third, &e), PAWL_OK);
    close_engine(c);
    kit_part_free(p);
    store_close(s);
    storesim_free(sim);
}

static void bad_saves_are_refused_naming_the_field(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config config = kit_config(1, 0, 2, 1);
    struct ckpt *c = open_engine(&config, s);
    uint64_t shape[2] = {4, 4}, huge[2] = {UINT64_MAX, 8}, late[2] = {5, 0}, tall[2] = {5, 4}, zero[2] = {0};
    uint8_t data[64] = {0};
    struct {
        struct pawl_tensor tensor;
        const char *field;
    } bad[] = {
        {{.name = "", .dtype = PAWL_F32, .rank = 2, .shape = shape, .data = data}, "name"},
        {{.name = "__pawl_x", .dtype = PAWL_F32, .rank = 2, .shape = shape, .data = data}, "name"},
        {{.name = "a", .dtype = PAWL_DTYPE_COUNT, .rank = 2, .shape = shape, .data = data}, "dtype"},
        {{.name = "a", .dtype = PAWL_F32, .rank = 65, .shape = shape, .data = data}, "rank"},
        {{.name = "a", .dtype = PAWL_F32, .rank = 2, .shape = shape, .begin = late, .data = data}, "begin"},
        {{.name = "a",
          .dtype = PAWL_F32,
          .rank = 2,
          .shape = shape,
          .begin = zero,
          .extent = tall,
          .data = data},
         "extent"},
        {{.name = "a", .dtype = PAWL_F32, .rank = 2, .data = data}, "shape"},
        {{.name = "a", .dtype = PAWL_F32, .rank = 2, .shape = huge, .data = data}, "shape"},
        {{.name = "a", .dtype = PAWL_F32, .rank = 2, .shape = shape}, "data"},
        {{.name = "\xff", .dtype = PAWL_F32, .rank = 2, .shape = shape, .data = data}, "UTF-8"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct pawl_error e = {0};
        struct ckpt_save one = {
            .step = 1, .unit_count = 1, .part_count = 1, .tensors = &bad[i].tensor, .tensor_count = 1};
        assert_int_equal(ckpt_save_begin(c, &one, &e), PAWL_ARGUMENT);
        if (strstr(e.text, bad[i].field) == NULL) fail_msg("'%s' does not name %s", e.text, bad[i].field);
        assert_int_equal(ckpt_save_begin(c, &one, NULL), PAWL_ARGUMENT);
    }
    struct pawl_tensor whole = {.name = "a", .dtype = PAWL_F32, .rank = 2, .shape = shape};
    struct kit_rows rows[2];
    struct pawl_tensor twice[2] = {kit_slice(&rows[0], whole, 0, 3, data),
                                   kit_slice(&rows[1], whole, 2, 4, data)};
    struct ckpt_save overlapping = {
        .step = 1, .unit_count = 1, .part_count = 1, .tensors = twice, .tensor_count = 2};
    assert_int_equal(ckpt_save_begin(c, &overlapping, NULL), PAWL_ARGUMENT);
    struct ckpt_save no_step = {.unit_count = 1, .part_count = 1}, no_unit = {.step = 1, .part_count = 1};
    assert_int_equal(ckpt_save_begin(c, &no_step, NULL), PAWL_ARGUMENT);
    assert_int_equal(ckpt_save_begin(c, &no_unit, NULL), PAWL_ARGUMENT);
    assert_int_equal(ckpt_in_flight(c), 0);
    close_engine(c);
    store_close(s);
    storesim_free(sim);
}

static void a_save_without_pieces_counts(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    struct ckpt *c = open_engine(&config, s);
    struct ckpt_save nothing = {
        .step = 3, .unit_count = 1, .part_count = 1, .blob = "\xff\0x", .blob_bytes = 3};
    assert_int_equal(ckpt_save_begin(c, &nothing, NULL), PAWL_OK);
    assert_int_equal(kit_wait(c, s).code, PAWL_OK);
    close_engine(c);
    struct ckpt_set *set = NULL;
    assert_int_equal(ckpt_set_open(&s, 1, NULL, &set, NULL), PAWL_OK);
    assert_true(ckpt_set_at(set, 0)->complete);
    assert_int_equal(ckpt_set_verify(set, 0, NULL), PAWL_OK);
    const void *blob = NULL;
    size_t bytes = 0;
    assert_int_equal(ckpt_set_blob(set, 0, 0, &blob, &bytes, NULL), PAWL_OK);
    assert_int_equal(bytes, 3);
    assert_memory_equal(blob, "\xff\0x", 3);
    assert_int_equal(ckpt_set_blob(set, 0, 1, &blob, &bytes, NULL), PAWL_NOT_FOUND);
    ckpt_set_close(set);
    store_close(s);
    storesim_free(sim);
}

static void a_foreign_run_is_refused_naming_both(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config config = kit_config(1, 0, 1, 1), other = config;
    struct ckpt *c = open_engine(&config, s);
    save(c, s, 1, 0, 1);
    close_engine(c);
    other.run_id[0] ^= 1;
    struct pawl_error e = {0};
    assert_int_equal(ckpt_open(&other, s, &c, &e), PAWL_FOREIGN);
    assert_non_null(strstr(e.text, "6b69742d72756e2d3132333435363738"));
    assert_non_null(strstr(e.text, "6a69742d72756e2d3132333435363738"));
    struct ckpt_set *set = NULL;
    assert_int_equal(ckpt_set_open(&s, 1, other.run_id, &set, &e), PAWL_FOREIGN);
    struct store *t = open_sim(sim, "r1"), *both[2] = {s, t};
    c = open_engine(&other, t);
    save(c, t, 1, 0, 1);
    close_engine(c);
    assert_int_equal(ckpt_set_open(both, 2, NULL, &set, &e), PAWL_FOREIGN);
    assert_int_equal(kit_newest(&s, 1, NULL), 1);
    store_close(s);
    store_close(t);
    storesim_free(sim);
}

static void reading_with_another_shape_or_name_says_so(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    struct ckpt *c = open_engine(&config, s);
    save(c, s, 1, 0, 1);
    close_engine(c);
    struct ckpt_set *set = NULL;
    assert_int_equal(ckpt_set_open(&s, 1, NULL, &set, NULL), PAWL_OK);
    uint64_t shape[2] = {37, 34};
    uint8_t out[8];
    struct pawl_error e = {0};
    struct pawl_tensor want = {
        .name = "wte.weight", .dtype = PAWL_F32, .rank = 2, .shape = shape, .data = out};
    assert_int_equal(ckpt_set_read(set, 0, &want, &e), PAWL_FORMAT);
    assert_non_null(strstr(e.text, "F32[37,33]"));
    assert_non_null(strstr(e.text, "F32[37,34]"));
    want.name = "wpe.weight";
    assert_int_equal(ckpt_set_read(set, 0, &want, &e), PAWL_NOT_FOUND);
    assert_non_null(strstr(e.text, "wpe.weight"));
    ckpt_set_close(set);
    store_close(s);
    storesim_free(sim);
}

static void a_full_disk_fails_that_save_only(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config config = kit_config(1, 0, 2, 1);
    struct ckpt *c = open_engine(&config, s);
    save(c, s, 1, 0, 1);
    ckpt_durable(c, 1);
    uint64_t left = 0;
    storesim_set_capacity(sim, 300000);
    assert_int_equal(store_space(s, &left, NULL), PAWL_OK);
    storesim_set_capacity(sim, 300000 - left + 20480);
    struct kit_part *p = kit_part_new(2, 0, 1);
    begin(c, p, 2, 0, 1);
    struct ckpt_event event = kit_wait(c, s);
    assert_int_equal(event.code, PAWL_NO_SPACE);
    if (strstr(event.error.text, "step 2") == NULL || strstr(event.error.text, "20480 are free") == NULL)
        fail_msg("%s", event.error.text);
    storesim_set_capacity(sim, 0);
    begin(c, p, 2, 0, 1);
    assert_int_equal(kit_wait(c, s).code, PAWL_OK);
    close_engine(c);
    kit_part_free(p);
    assert_int_equal(kit_newest(&s, 1, NULL), 2);
    store_close(s);
    storesim_free(sim);
}

/* Room for two slots only: rather than fail, a save waits for the record that frees a retired one. */
static void a_tight_disk_reuses_retired_slots(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config config = kit_config(1, 0, 4, 1);
    struct ckpt *c = open_engine(&config, s);
    uint64_t before = 0, after = 0;
    storesim_set_capacity(sim, 10000000);
    assert_int_equal(store_space(s, &before, NULL), PAWL_OK);
    save(c, s, 1, 0, 1);
    assert_int_equal(store_space(s, &after, NULL), PAWL_OK);
    storesim_set_capacity(sim, 10000000 - before + 2 * (before - after));
    for (uint64_t step = 2; step < 20; step++) {
        ckpt_durable(c, step - 1);
        save(c, s, step, 0, 1);
    }
    assert_int_equal(count_slots(s), 2);
    close_engine(c);
    assert_int_equal(kit_newest(&s, 1, NULL), 19);
    store_close(s);
    storesim_free(sim);
}

static void a_save_that_waits_for_a_record_fails_with_it(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    struct ckpt *c = open_engine(&config, s);
    for (uint64_t step = 1; step <= 3; step++) save(c, s, step, 0, 1);
    ckpt_durable(c, 3); /* two slots retire, and the newest record names both */
    struct kit_part *p = kit_part_new(4, 0, 1);
    storesim_set_faults(sim, (struct storesim_faults){.flush_eio = 1000000});
    begin(c, p, 4, 0, 1);
    struct ckpt_event event = kit_wait(c, s);
    assert_int_equal(event.code, PAWL_IO);
    if (strstr(event.error.text, "commit record") == NULL) fail_msg("%s", event.error.text);
    storesim_set_faults(sim, (struct storesim_faults){0});
    begin(c, p, 4, 0, 1);
    assert_int_equal(kit_wait(c, s).code, PAWL_OK);
    close_engine(c);
    kit_part_free(p);
    storesim_kill(sim, s);
    storesim_crash(sim);
    s = open_sim(sim, "r0");
    assert_int_equal(kit_newest(&s, 1, NULL), 4);
    store_close(s);
    storesim_free(sim);
}

/* Parts grow and shrink when peers come and go; a safetensors file must end with its data. */
static void a_slot_used_again_has_its_exact_size(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    struct ckpt *c = open_engine(&config, s);
    for (uint64_t step = 1; step <= 12; step++) {
        save(c, s, step, 0, step % 4 < 2 ? 1 : 5);
        ckpt_durable(c, step);
    }
    close_engine(c);
    assert_int_equal(count_slots(s), 3);
    struct ckpt_set *set = NULL;
    assert_int_equal(ckpt_set_open(&s, 1, NULL, &set, NULL), PAWL_OK);
    assert_null(ckpt_set_problem(set, 0));
    assert_int_equal(ckpt_set_count(set), 2);
    assert_int_equal(kit_check_step(set, 0, NULL), PAWL_OK);
    ckpt_set_close(set);
    store_close(s);
    storesim_free(sim);
}

static void a_blob_of_any_bytes_comes_back(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
    } blobs[] = {
        {"", 0}, {"a\0b", 3}, {"\0", 1}, {"{\"euro\": \"\xe2\x82\xac\n\"}", 16}, {"\xed\xa0\x80", 3}};
    for (size_t i = 0; i < sizeof blobs / sizeof blobs[0]; i++) {
        struct storesim *sim = storesim_new(1);
        struct store *s = open_sim(sim, "r0");
        struct ckpt_config config = kit_config(1, 0, 1, 1);
        struct ckpt *c = open_engine(&config, s);
        struct ckpt_save one = {.step = 1, .unit_count = 1, .part_count = 1};
        one.blob = blobs[i].bytes;
        one.blob_bytes = blobs[i].size;
        assert_int_equal(ckpt_save_begin(c, &one, NULL), PAWL_OK);
        assert_int_equal(kit_wait(c, s).code, PAWL_OK);
        close_engine(c);
        struct ckpt_set *set = NULL;
        const void *blob = NULL;
        size_t bytes = 0;
        assert_int_equal(ckpt_set_open(&s, 1, NULL, &set, NULL), PAWL_OK);
        assert_int_equal(ckpt_set_blob(set, 0, 0, &blob, &bytes, NULL), PAWL_OK);
        assert_int_equal(bytes, blobs[i].size);
        assert_memory_equal(blob, blobs[i].bytes, bytes);
        ckpt_set_close(set);
        store_close(s);
        storesim_free(sim);
    }
}

static void errors_of_the_device_fail_saves_and_never_the_engine(void **state) {
    (void)state;
    uint32_t failed = 0, good = 0;
    for (uint64_t seed = 1; seed < 60; seed++) {
        struct storesim *sim = storesim_new(seed);
        struct store *s = open_sim(sim, "r0");
        struct ckpt_config config = kit_config(1, 0, 3, 1);
        struct ckpt *c = open_engine(&config, s);
        save(c, s, 1, 0, 1);
        ckpt_durable(c, 1);
        storesim_set_faults(sim,
                            (struct storesim_faults){
                                .write_eio = 20000, .flush_eio = 60000, .no_space = 50000, .delay = 300000});
        struct kit_part *parts[32] = {0};
        uint64_t newest = 1, done = 1;
        for (uint64_t step = 2; done < 20;) {
            while (step <= 20 && ckpt_in_flight(c) < 3) {
                parts[step] = kit_part_new(step, 0, 1);
                begin(c, parts[step], step, 0, 1);
                step++;
            }
            struct ckpt_event event = kit_wait(c, s);
            kit_part_free(parts[event.step]);
            done++;
            failed += event.code != PAWL_OK;
            good += event.code == PAWL_OK;
            if (event.code != PAWL_OK) assert_non_null(strstr(event.error.text, "save of step"));
            if (event.code == PAWL_OK && event.step > newest) newest = event.step;
            if (event.code == PAWL_OK) ckpt_durable(c, event.step);
        }
        storesim_set_faults(sim, (struct storesim_faults){0});
        save(c, s, 21, 0, 1);
        close_engine(c);
        storesim_kill(sim, s);
        storesim_crash(sim);
        s = open_sim(sim, "r0");
        assert_int_equal(kit_newest(&s, 1, NULL), 21);
        store_close(s);
        storesim_free(sim);
    }
    print_message("%u saves failed, %u good\n", failed, good);
    assert_true(failed > 100);
    assert_true(good > 100);
}

static void what_is_saved_does_not_change_with_the_callers_description(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    struct ckpt *c = open_engine(&config, s);
    struct kit_part *p = kit_part_new(5, 0, 1);
    struct ckpt_save one = kit_save(p, 5, 0, 1);
    assert_int_equal(ckpt_save_begin(c, &one, NULL), PAWL_OK);
    memset(p->tensors, 0xee, sizeof p->tensors); /* pieces and blob are copied; the data is not */
    memset(p->blob, 'x', sizeof p->blob);
    memset(&one, 0xee, sizeof one);
    assert_int_equal(kit_wait(c, s).code, PAWL_OK);
    close_engine(c);
    assert_int_equal(kit_newest(&s, 1, NULL), 5);
    kit_part_free(p);
    store_close(s);
    storesim_free(sim);
}

static void closing_reports_the_failure_nobody_polled(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config config = kit_config(1, 0, 2, 1);
    struct ckpt *c = open_engine(&config, s);
    struct kit_part *p = kit_part_new(1, 0, 1);
    storesim_set_faults(sim, (struct storesim_faults){.flush_eio = 1000000});
    begin(c, p, 1, 0, 1);
    struct pawl_error e = {0};
    assert_int_equal(ckpt_close(c, kit_soon(), &e), PAWL_IO);
    assert_non_null(strstr(e.text, "save of step 1"));
    assert_non_null(strstr(e.text, "EIO"));
    storesim_set_faults(sim, (struct storesim_faults){0});
    c = open_engine(&config, s);
    begin(c, p, 2, 0, 1);
    assert_int_equal(ckpt_close(c, 0, &e), PAWL_TIMEOUT); /* the deadline has passed */
    assert_non_null(strstr(e.text, "abandoned"));
    kit_part_free(p);
    store_close(s);
    storesim_free(sim);
}

/* A store in `folder` that outlives its engine: what an incarnation may reuse. */
static void a_restart_keeps_what_it_resumed_from_until_something_newer_is_durable(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config first = kit_config(1, 0, 1, 2), second = kit_config(2, 20, 1, 1);
    struct ckpt *c = open_engine(&first, s);
    save(c, s, 10, 0, 1);
    save(c, s, 20, 0, 1);
    ckpt_durable(c, 10);
    ckpt_durable(c, 20);
    save(c, s, 30, 0, 2); /* never complete */
    close_engine(c);
    c = open_engine(&second, s);
    for (uint64_t step = 21; step < 25; step++) /* committed, but the group never says durable */
        save(c, s, step, 0, 2);
    close_engine(c);
    assert_int_equal(kit_newest(&s, 1, NULL), 20);
    struct ckpt_set *set = NULL;
    assert_int_equal(ckpt_set_open(&s, 1, NULL, &set, NULL), PAWL_OK);
    bool has[31] = {0};
    for (uint32_t i = 0; i < ckpt_set_count(set); i++) has[ckpt_set_at(set, i)->step] = true;
    ckpt_set_close(set);
    assert_true(has[20]);
    assert_true(has[10]); /* the best alternative */
    assert_false(has[30]);
    c = open_engine(&second, s);
    save(c, s, 25, 0, 1);
    ckpt_durable(c, 25);
    save(c, s, 26, 0, 1);
    close_engine(c);
    assert_int_equal(ckpt_set_open(&s, 1, NULL, &set, NULL), PAWL_OK);
    for (uint32_t i = 0; i < ckpt_set_count(set); i++) assert_in_range(ckpt_set_at(set, i)->step, 25, 26);
    ckpt_set_close(set);
    store_close(s);
    storesim_free(sim);
}

/* Killed after it made a slot's file and before it synced the folder: the machine sees the name, the disk may
 * not. */
static void a_name_left_by_a_killed_process_is_durable_before_it_is_used(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct storesim *sim = storesim_new(seed);
        struct store *s = open_sim(sim, "r0");
        struct ckpt_config config = kit_config(1, 0, 1, 1);
        close_engine(open_engine(&config, s));
        struct store_file *f = NULL;
        assert_int_equal(store_file_open(s, "slot-000000.safetensors", true, STORE_BLOCK, &f, NULL), PAWL_OK);
        store_file_close(f);
        storesim_kill(sim, s);
        s = open_sim(sim, "r0");
        struct ckpt *c = open_engine(&config, s);
        save(c, s, 1, 0, 1);
        assert_int_equal(count_slots(s), 1);
        close_engine(c);
        storesim_kill(sim, s);
        storesim_crash(sim);
        s = open_sim(sim, "r0");
        assert_int_equal(kit_newest(&s, 1, NULL), 1);
        store_close(s);
        storesim_free(sim);
    }
}

static void what_the_group_gave_up_makes_room(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    struct ckpt *c = open_engine(&config, s);
    save(c, s, 1, 0, 2);
    ckpt_durable(c, 1);
    for (uint64_t step = 2; step < 20; step++) { /* the other part is never saved */
        save(c, s, step, 0, 2);
        ckpt_forget(c, step);
        ckpt_forget(c, 1); /* is durable, so of no effect */
    }
    close_engine(c);
    assert_int_equal(count_slots(s), 3);
    struct ckpt_set *set = NULL;
    assert_int_equal(ckpt_set_open(&s, 1, NULL, &set, NULL), PAWL_OK);
    assert_int_equal(ckpt_set_at(set, ckpt_set_count(set) - 1)->step, 1);
    ckpt_set_close(set);
    store_close(s);
    storesim_free(sim);
}

static void starting_from_zero_deletes_nothing_that_was_complete(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(1);
    struct store *s = open_sim(sim, "r0");
    struct ckpt_config first = kit_config(1, 0, 1, 1), second = kit_config(2, 0, 1, 1);
    struct ckpt *c = open_engine(&first, s);
    save(c, s, 1000, 0, 1);
    ckpt_durable(c, 1000);
    close_engine(c);
    c = open_engine(&second, s);
    for (uint64_t step = 10; step < 16; step++) {
        save(c, s, step, 0, 1);
        ckpt_durable(c, step);
    }
    close_engine(c);
    assert_int_equal(kit_newest(&s, 1, NULL), 1000);
    store_close(s);
    storesim_free(sim);
}

static void an_older_save_that_ends_later_replaces_nothing(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct storesim *sim = storesim_new(seed);
        storesim_set_faults(sim, (struct storesim_faults){.delay = 600000});
        struct store *s = open_sim(sim, "r0");
        struct ckpt_config config = kit_config(1, 0, 3, 1);
        struct ckpt *c = open_engine(&config, s);
        struct kit_part *parts[4] = {0};
        for (uint64_t step = 1; step <= 3; step++) {
            parts[step] = kit_part_new(step, 0, 1);
            begin(c, parts[step], step, 0, 1);
        }
        uint64_t newest = 0;
        for (int i = 0; i < 3; i++) {
            struct ckpt_event event = kit_wait(c, s);
            if (counts(&event, newest) && event.step > newest) newest = event.step;
            ckpt_durable(c, newest);
            struct store *reader = NULL; /* the engine has the other one to itself */
            assert_int_equal(storesim_open(sim, "r0", true, &reader, NULL), PAWL_OK);
            assert_true(kit_newest(&reader, 1, NULL) >= newest);
            store_close(reader);
        }
        close_engine(c);
        for (uint64_t step = 1; step <= 3; step++) kit_part_free(parts[step]);
        store_close(s);
        storesim_free(sim);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_saved_is_read_back),
        cmocka_unit_test(any_rows_are_read_from_whichever_parts_hold_them),
        cmocka_unit_test(a_missing_part_makes_the_step_incomplete_and_is_named),
        cmocka_unit_test(parts_of_different_incarnations_or_part_counts_are_not_mixed),
        cmocka_unit_test(a_step_saved_again_with_fewer_parts_is_complete),
        cmocka_unit_test(slots_stay_at_in_flight_plus_kept_plus_one),
        cmocka_unit_test(one_save_more_than_allowed_is_busy_and_changes_nothing),
        cmocka_unit_test(bad_saves_are_refused_naming_the_field),
        cmocka_unit_test(a_save_without_pieces_counts),
        cmocka_unit_test(a_foreign_run_is_refused_naming_both),
        cmocka_unit_test(reading_with_another_shape_or_name_says_so),
        cmocka_unit_test(a_full_disk_fails_that_save_only),
        cmocka_unit_test(a_tight_disk_reuses_retired_slots),
        cmocka_unit_test(a_save_that_waits_for_a_record_fails_with_it),
        cmocka_unit_test(a_slot_used_again_has_its_exact_size),
        cmocka_unit_test(a_blob_of_any_bytes_comes_back),
        cmocka_unit_test(errors_of_the_device_fail_saves_and_never_the_engine),
        cmocka_unit_test(what_is_saved_does_not_change_with_the_callers_description),
        cmocka_unit_test(closing_reports_the_failure_nobody_polled),
        cmocka_unit_test(a_restart_keeps_what_it_resumed_from_until_something_newer_is_durable),
        cmocka_unit_test(a_name_left_by_a_killed_process_is_durable_before_it_is_used),
        cmocka_unit_test(what_the_group_gave_up_makes_room),
        cmocka_unit_test(starting_from_zero_deletes_nothing_that_was_complete),
        cmocka_unit_test(an_older_save_that_ends_later_replaces_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
