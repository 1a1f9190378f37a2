/* Slices in any dimension: whatever boxes a tensor was saved in, by however many ranks, any box of it comes
 * back, byte for byte, and what cannot be moved as bytes is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kit/box_kit.h"

#define GUARD 64u

/* Reads boxes with one call, into memory of their own with guards around, and compares. */
static void read_and_compare(struct world *w, struct ckpt_set *set, uint32_t count) {
    enum { MOST = 24 };
    struct pawl_tensor wants[MOST];
    uint64_t begin[MOST][BOX_KIT_DIMS], extent[MOST][BOX_KIT_DIMS], bytes[MOST];
    uint8_t *memory[MOST];
    struct pawl_error e = {0};
    assert_in_range(count, 1, MOST);
    for (uint32_t i = 0; i < count; i++) {
        const struct global *g = &w->globals[rng_below(&w->random, w->global_count)];
        random_box(w, g, begin[i], extent[i]);
        bytes[i] = box_bytes(g, extent[i]);
        memory[i] = malloc(bytes[i] + 2 * GUARD);
        assert_non_null(memory[i]);
        memset(memory[i], 0xA5, bytes[i] + 2 * GUARD);
        wants[i] = tensor_of(g, begin[i], extent[i], memory[i] + GUARD);
    }
    if (ckpt_set_read_many(set, 0, wants, count, &e) != PAWL_OK) fail_msg("%s", e.text);
    for (uint32_t i = 0; i < count; i++) {
        const struct global *g = &w->globals[strtoul(wants[i].name + 1, NULL, 10)];
        uint8_t *wanted = malloc(bytes[i] + 1);
        box_take(g, begin[i], extent[i], wanted);
        assert_memory_equal(memory[i] + GUARD, wanted, bytes[i]);
        for (uint32_t k = 0; k < GUARD; k++) {
            assert_int_equal(memory[i][k], 0xA5);
            assert_int_equal(memory[i][GUARD + bytes[i] + k], 0xA5);
        }
        free(wanted);
        free(memory[i]);
    }
}

static void random_globals(struct world *w) {
    static const enum pawl_dtype dtypes[] = {PAWL_F32, PAWL_U8, PAWL_F4, PAWL_F6_E2M3, PAWL_BF16, PAWL_C64};
    uint64_t count = 1 + rng_below(&w->random, 5);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t shape[BOX_KIT_DIMS];
        enum pawl_dtype dtype = dtypes[rng_below(&w->random, sizeof dtypes / sizeof dtypes[0])];
        uint32_t rank = (uint32_t)rng_below(&w->random, 6);
        uint64_t elements = 1;
        for (uint32_t d = 0; d < rank; d++) elements *= shape[d] = rng_below(&w->random, 10);
        while (elements * pawl_dtype_bits(dtype) % 8 != 0) { /* doubled until the bytes are whole */
            if (rank == 0) shape[rank++] = 1;
            uint32_t d = (uint32_t)rng_below(&w->random, rank);
            shape[d] *= 2;
            elements *= 2;
        }
        add_global(w, dtype, rank, shape);
    }
}

static void any_box_comes_back_from_any_mixture_of_boxes(void **state) {
    (void)state;
    static const uint64_t chunks[] = {4096, 8192, 1u << 20};
    for (uint64_t seed = 1; seed <= 150; seed++) {
        struct world *w = world_new(seed, 1 + (uint32_t)(seed % BOX_KIT_RANKS));
        random_globals(w);
        for (uint32_t i = 0; i < w->global_count; i++)
            scatter(w, i, w->globals[i].zeros, w->globals[i].shape, (uint32_t)rng_below(&w->random, 6));
        save_all(w, chunks[seed % 3]);
        struct ckpt_set *set = NULL;
        struct pawl_error e = {0};
        assert_int_equal(ckpt_set_open(w->stores, w->rank_count, NULL, &set, NULL), PAWL_OK);
        assert_int_equal(ckpt_set_tensor_count(set, 0), w->global_count);
        for (uint32_t i = 0; i < w->global_count; i++) {
            const struct ckpt_tensor *t = ckpt_set_tensor(set, 0, i);
            const struct global *g = &w->globals[strtoul(t->name + 1, NULL, 10)];
            assert_int_equal(t->rank, g->rank);
            assert_memory_equal(t->shape, g->shape, g->rank * sizeof g->shape[0]);
        }
        for (uint32_t i = 0; i < 6; i++) read_and_compare(w, set, 1 + (uint32_t)rng_below(&w->random, 8));
        if (ckpt_set_verify(set, 0, &e) != PAWL_OK) fail_msg("seed %" PRIu64 ": %s", seed, e.text);
        ckpt_set_close(set);
        world_free(w);
    }
}

/* ---- holes and overlap ---- */

static struct world *quarters(uint32_t but) { /* of a matrix, one a rank, one of them left out */
    struct world *w = world_new(1, 4);
    add_global(w, PAWL_F32, 2, (uint64_t[]){6, 10});
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t begin[2] = {i / 2 * 3, i % 2 * 5}, extent[2] = {3, 5};
        if (i != but) add_box(w, 0, i, begin, extent);
    }
    save_all(w, 4096);
    return w;
}

static void a_box_that_nobody_saved_is_an_error_that_names_it(void **state) {
    (void)state;
    static const char *const places[] = {"row 0, element 0", "row 0, element 5", "row 3, element 0",
                                         "row 3, element 5"};
    for (uint32_t but = 0; but < 4; but++) {
        struct world *w = quarters(but);
        struct ckpt_set *set = NULL;
        struct pawl_error e = {0};
        float out[60] = {0};
        assert_int_equal(ckpt_set_open(w->stores, 4, NULL, &set, NULL), PAWL_OK);
        struct pawl_tensor want = tensor_of(&w->globals[0], NULL, NULL, out);
        assert_int_equal(ckpt_set_read(set, 0, &want, &e), PAWL_NOT_FOUND);
        if (strstr(e.text, places[but]) == NULL) fail_msg("%s, wanted %s", e.text, places[but]);
        assert_non_null(strstr(e.text, "'g0'"));
        assert_int_equal(ckpt_set_verify(set, 0, &e), PAWL_NOT_FOUND);
        for (uint32_t i = 0; i < 4; i++) { /* the others can be had */
            uint64_t begin[2] = {i / 2 * 3, i % 2 * 5}, extent[2] = {3, 5};
            want = tensor_of(&w->globals[0], begin, extent, out);
            assert_int_equal(ckpt_set_read(set, 0, &want, NULL), i == but ? PAWL_NOT_FOUND : PAWL_OK);
        }
        ckpt_set_close(set);
        world_free(w);
    }
}

static pawl_code layout_of(const struct pawl_tensor *tensors, uint32_t count, struct pawl_error *e) {
    struct ckpt_layout *layout = NULL;
    pawl_code code = ckpt_layout_new(tensors, count, &layout, e);
    ckpt_layout_release(layout);
    return code;
}

static void boxes_of_one_save_may_touch_but_not_overlap(void **state) {
    (void)state;
    uint8_t data[64] = {0};
    uint64_t shape[3] = {4, 4, 4};
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct rng_stream random = {seed};
        uint64_t begin[2][3], extent[2][3];
        struct pawl_tensor two[2];
        bool apart = false;
        for (uint32_t i = 0; i < 2; i++) {
            for (uint32_t d = 0; d < 3; d++) {
                begin[i][d] = rng_below(&random, 4);
                extent[i][d] = rng_below(&random, 5 - begin[i][d]);
            }
            two[i] = (struct pawl_tensor){.name = "t",
                                          .dtype = PAWL_U8,
                                          .rank = 3,
                                          .shape = shape,
                                          .begin = begin[i],
                                          .extent = extent[i],
                                          .data = data};
        }
        for (uint32_t d = 0; d < 3; d++)
            apart = apart || begin[0][d] + extent[0][d] <= begin[1][d] ||
                    begin[1][d] + extent[1][d] <= begin[0][d] || extent[0][d] == 0 || extent[1][d] == 0;
        struct pawl_error e = {0};
        pawl_code code = layout_of(two, 2, &e);
        if (code != (apart ? PAWL_OK : PAWL_ARGUMENT)) fail_msg("seed %" PRIu64 ": %s", seed, e.text);
        if (!apart) assert_non_null(strstr(e.text, "'t': begin and extent: wanted no overlap"));
    }
}

static void empty_boxes_that_begin_where_others_do_get_names_of_their_own(void **state) {
    (void)state;
    struct world *w = world_new(3, 1);
    add_global(w, PAWL_U8, 2, (uint64_t[]){4, 4});
    add_box(w, 0, 0, (uint64_t[]){0, 0}, (uint64_t[]){4, 0});
    add_box(w, 0, 0, (uint64_t[]){0, 0}, (uint64_t[]){0, 4});
    add_box(w, 0, 0, (uint64_t[]){0, 0}, (uint64_t[]){4, 4});
    save_all(w, 4096);
    struct ckpt_set *set = NULL;
    assert_int_equal(ckpt_set_open(w->stores, 1, NULL, &set, NULL), PAWL_OK);
    assert_int_equal(ckpt_set_tensor_count(set, 0), 1);
    assert_int_equal(ckpt_set_verify(set, 0, NULL), PAWL_OK);
    ckpt_set_close(set);
    world_free(w);
}

static void a_name_that_a_second_slice_needs_is_refused(void **state) {
    (void)state;
    uint8_t data[8] = {0};
    uint64_t shape[1] = {4}, begin[1] = {2}, extent[1] = {2}, first[1] = {0};
    struct pawl_tensor three[] = {
        {.name = "t",
         .dtype = PAWL_U8,
         .rank = 1,
         .shape = shape,
         .begin = first,
         .extent = extent,
         .data = data},
        {.name = "t",
         .dtype = PAWL_U8,
         .rank = 1,
         .shape = shape,
         .begin = begin,
         .extent = extent,
         .data = data},
        {.name = "t@2", .dtype = PAWL_U8, .rank = 1, .shape = extent, .data = data}};
    struct pawl_error e = {0};
    assert_int_equal(layout_of(three, 2, &e), PAWL_OK);
    assert_int_equal(layout_of(three, 3, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "name"));
}

/* ---- elements smaller than bytes ---- */

static void slices_that_cut_bytes_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        enum pawl_dtype dtype;
        uint64_t shape[2], begin[2], extent[2];
        const char *why; /* null: good */
    } cases[] = {
        {PAWL_F4, {4, 6}, {1, 0}, {2, 6}, NULL},
        {PAWL_F4, {4, 6}, {0, 2}, {4, 2}, NULL},
        {PAWL_F4, {4, 6}, {0, 1}, {4, 2}, "runs of whole bytes"},
        {PAWL_F4, {4, 6}, {0, 0}, {4, 3}, "runs of whole bytes"},
        {PAWL_F4, {4, 3}, {2, 0}, {2, 3}, NULL},
        {PAWL_F4, {4, 3}, {1, 0}, {2, 3}, "runs of whole bytes"},
        {PAWL_F4, {4, 3}, {0, 0}, {4, 2}, "runs of whole bytes"}, /* its rows begin inside of bytes */
        {PAWL_F4, {3, 3}, {0, 0}, {3, 3}, "fraction"},
        {PAWL_F6_E2M3, {2, 8}, {0, 4}, {2, 4}, NULL},
        {PAWL_F6_E3M2, {2, 8}, {0, 2}, {2, 4}, "runs of whole bytes"},
        {PAWL_F4, {4, 6}, {2, 1}, {0, 1}, NULL}, /* no elements, nothing to cut */
    };
    uint8_t data[64] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pawl_tensor t = {.name = "quantised",
                                .dtype = cases[i].dtype,
                                .rank = 2,
                                .shape = cases[i].shape,
                                .begin = cases[i].begin,
                                .extent = cases[i].extent,
                                .data = data};
        struct pawl_error e = {0};
        pawl_code code = layout_of(&t, 1, &e);
        if (code != (cases[i].why == NULL ? PAWL_OK : PAWL_ARGUMENT)) fail_msg("case %zu: %s", i, e.text);
        if (cases[i].why == NULL) continue;
        if (strstr(e.text, cases[i].why) == NULL || strstr(e.text, "'quantised'") == NULL)
            fail_msg("case %zu: %s", i, e.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_box_comes_back_from_any_mixture_of_boxes),
        cmocka_unit_test(a_box_that_nobody_saved_is_an_error_that_names_it),
        cmocka_unit_test(boxes_of_one_save_may_touch_but_not_overlap),
        cmocka_unit_test(empty_boxes_that_begin_where_others_do_get_names_of_their_own),
        cmocka_unit_test(a_name_that_a_second_slice_needs_is_refused),
        cmocka_unit_test(slices_that_cut_bytes_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
