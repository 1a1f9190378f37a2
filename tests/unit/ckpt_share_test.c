/* Replicas share out what they save: every element once, evenly, and the same way on all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kit/box_kit.h"

#define MOST 40u

struct list {
    struct pawl_tensor tensors[MOST];
    uint64_t begin[MOST][BOX_KIT_DIMS], extent[MOST][BOX_KIT_DIMS], bytes[MOST];
    uint8_t *marks[MOST]; /* how often each byte was in a share */
    uint32_t count;
    uint64_t total, largest_row;
};

/* Bytes of one index of the dimension that is cut: the first that has several. */
static uint64_t row_bytes(const struct pawl_tensor *t, uint64_t bytes) {
    for (uint32_t d = 0; d < t->rank; d++) {
        uint64_t grain = box_grain(t->dtype, t->rank, t->shape, d);
        if (t->extent[d] > 1) return t->extent[d] % grain == 0 ? bytes / t->extent[d] * grain + grain : bytes;
    }
    return bytes;
}

static struct list *list_new(struct world *w) {
    struct list *l = calloc(1, sizeof *l);
    assert_non_null(l);
    l->count = (uint32_t)rng_below(&w->random, MOST);
    for (uint32_t i = 0; i < l->count; i++) {
        const struct global *g = &w->globals[rng_below(&w->random, w->global_count)];
        random_box(w, g, l->begin[i], l->extent[i]);
        l->bytes[i] = box_bytes(g, l->extent[i]);
        uint8_t *data = malloc(l->bytes[i] + 1);
        box_take(g, l->begin[i], l->extent[i], data);
        l->tensors[i] = tensor_of(g, l->begin[i], l->extent[i], data);
        l->marks[i] = calloc(l->bytes[i] + 1, 1);
        l->total += l->bytes[i];
        uint64_t row = row_bytes(&l->tensors[i], l->bytes[i]);
        if (row > l->largest_row) l->largest_row = row;
    }
    return l;
}

static void list_free(struct list *l) {
    for (uint32_t i = 0; i < l->count; i++) {
        free(l->tensors[i].data);
        free(l->marks[i]);
    }
    free(l);
}

static const struct global *global_of(const struct world *w, const struct pawl_tensor *t) {
    return &w->globals[strtoul(t->name + 1, NULL, 10)];
}

/* What the share says lies at its addresses is what lies there. */
static void check_share(const struct world *w, struct list *l, const struct ckpt_share *share) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < share->count; i++) {
        const struct pawl_tensor *t = &share->tensors[i], *whole = &l->tensors[share->source[i]];
        uint64_t own = box_bytes(global_of(w, t), t->extent);
        uint8_t *wanted = malloc(own + 1);
        assert_ptr_equal(t->name, whole->name);
        assert_ptr_equal(t->data, (uint8_t *)whole->data + share->offset[i]);
        assert_in_range(share->offset[i] + own, 0, l->bytes[share->source[i]]);
        box_take(global_of(w, t), t->begin, t->extent, wanted);
        assert_memory_equal(t->data, wanted, own);
        for (uint64_t k = 0; k < own; k++) l->marks[share->source[i]][share->offset[i] + k]++;
        if (own == 0) l->marks[share->source[i]][0]++; /* the spare byte of a tensor without any */
        bytes += own;
        free(wanted);
    }
    assert_int_equal(bytes, share->bytes);
}

static void every_element_is_in_one_share_and_shares_are_even(void **state) {
    (void)state;
    static const enum pawl_dtype dtypes[] = {PAWL_F32, PAWL_U8, PAWL_F4, PAWL_F6_E3M2};
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct world *w = world_new(seed, 1);
        for (uint32_t i = 0; i < 8; i++) {
            uint64_t shape[4];
            uint32_t rank = (uint32_t)rng_below(&w->random, 5);
            for (uint32_t d = 0; d < rank; d++) shape[d] = rng_below(&w->random, 9);
            if (rank > 0) shape[rank - 1] *= 4;
            add_global(w, dtypes[rank == 0 ? 0 : i % 4], rank, shape);
        }
        struct list *l = list_new(w);
        uint32_t parts = 1 + (uint32_t)rng_below(&w->random, 9);
        for (uint32_t p = 0; p < parts; p++) {
            struct ckpt_share share, again;
            struct pawl_error e = {0};
            if (ckpt_share_init(l->tensors, l->count, p, parts, &share, &e) != PAWL_OK)
                fail_msg("%s", e.text);
            assert_int_equal(ckpt_share_init(l->tensors, l->count, p, parts, &again, NULL), PAWL_OK);
            assert_int_equal(share.count, again.count);
            assert_memory_equal(share.source, again.source, share.count * sizeof *share.source);
            assert_memory_equal(share.offset, again.offset, share.count * sizeof *share.offset);
            check_share(w, l, &share);
            uint64_t ideal = l->total / parts;
            assert_in_range(share.bytes, ideal > l->largest_row ? ideal - l->largest_row : 0,
                            ideal + l->largest_row + 1);
            ckpt_share_close(&share);
            ckpt_share_close(&again);
        }
        for (uint32_t i = 0; i < l->count; i++)
            for (uint64_t k = 0; k < l->bytes[i] || k == 0; k++)
                if (l->marks[i][k] != 1)
                    fail_msg("seed %" PRIu64 ": tensor %u, byte %" PRIu64 " is in %u shares", seed, i, k,
                             l->marks[i][k]);
        list_free(l);
        world_free(w);
    }
}

static void scalars_are_dealt_out_evenly(void **state) {
    (void)state;
    enum { COUNT = 800, PARTS = 8 };
    static struct pawl_tensor tensors[COUNT];
    static uint32_t values[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        tensors[i] = (struct pawl_tensor){.name = "s", .dtype = PAWL_U32, .data = &values[i]};
    for (uint32_t p = 0; p < PARTS; p++) {
        struct ckpt_share share;
        assert_int_equal(ckpt_share_init(tensors, COUNT, p, PARTS, &share, NULL), PAWL_OK);
        assert_int_equal(share.count, COUNT / PARTS);
        assert_int_equal(share.source[0], p * COUNT / PARTS);
        ckpt_share_close(&share);
    }
}

static void one_row_tensors_are_cut_in_the_next_dimension(void **state) {
    (void)state;
    uint64_t shape[3] = {1, 1, 1000};
    struct pawl_tensor t = {.name = "bias", .dtype = PAWL_F32, .rank = 3, .shape = shape};
    for (uint32_t p = 0; p < 4; p++) {
        struct ckpt_share share;
        assert_int_equal(ckpt_share_init(&t, 1, p, 4, &share, NULL), PAWL_OK);
        assert_int_equal(share.count, 1);
        assert_int_equal(share.tensors[0].begin[2], 250 * p);
        assert_int_equal(share.tensors[0].extent[2], 250);
        assert_int_equal(share.offset[0], 1000 * p);
        assert_null(share.tensors[0].data); /* without data there is nothing to point to */
        ckpt_share_close(&share);
    }
}

static void what_cannot_be_shared_is_refused_by_name(void **state) {
    (void)state;
    uint64_t shape[1] = {4}, begin[1] = {3}, extent[1] = {2};
    struct pawl_tensor t = {
        .name = "w", .dtype = PAWL_F32, .rank = 1, .shape = shape, .begin = begin, .extent = extent};
    struct ckpt_share share;
    struct pawl_error e = {0};
    assert_int_equal(ckpt_share_init(&t, 1, 0, 2, &share, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "'w': extent"));
    t.dtype = PAWL_DTYPE_COUNT;
    assert_int_equal(ckpt_share_init(&t, 1, 0, 2, &share, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "'w': dtype"));
    assert_int_equal(ckpt_share_init(&t, 1, 2, 2, &share, &e), PAWL_ARGUMENT);
    assert_non_null(strstr(e.text, "part 2 of 2"));
    assert_null(share.tensors);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_is_in_one_share_and_shares_are_even),
        cmocka_unit_test(scalars_are_dealt_out_evenly),
        cmocka_unit_test(one_row_tensors_are_cut_in_the_next_dimension),
        cmocka_unit_test(what_cannot_be_shared_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
