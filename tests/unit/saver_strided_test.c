/* The strided kind: any layout without overlaps is saved as its row-major bytes and restored into any other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pawl/memory.h>

#include "base/rng.h"
#include "ckpt/copy.h"
#include "kit/saver_kit.h"

#define RANK 4u
struct layout { /* of a tensor in a block of memory with room around every element */
    uint64_t shape[RANK];
    int64_t strides[RANK];
    uint32_t rank;
    size_t width, room; /* bytes */
    uint8_t *memory, *first;
};

static struct layout layout_draw(struct rng_stream *r, const uint64_t *shape, uint32_t rank, size_t width) {
    struct layout l = {.rank = rank, .width = width};
    uint32_t order[RANK] = {0, 1, 2, 3};
    for (uint32_t i = rank; i > 1; i--) {
        uint32_t j = (uint32_t)rng_below(r, i), other = order[j];
        order[j] = order[i - 1];
        order[i - 1] = other;
    }
    int64_t reach = 1, first = 0;
    for (uint32_t i = 0; i < rank; i++) {
        uint32_t d = order[i];
        int64_t step = reach + (int64_t)(rng_below(r, 2) * rng_below(r, 3)), all;
        l.shape[d] = shape[d];
        all = step * ((int64_t)shape[d] - 1);
        bool backward = rng_below(r, 4) == 0;
        l.strides[d] = backward ? -step : step;
        if (backward) first += all;
        reach += all;
    }
    l.room = (size_t)reach * width;
    l.memory = malloc(l.room);
    assert_non_null(l.memory);
    memset(l.memory, 0xee, l.room);
    l.first = l.memory + (size_t)first * width;
    return l;
}

static uint8_t *element(const struct layout *l, uint64_t number) {
    int64_t at = 0;
    for (uint32_t d = l->rank; d-- > 0; number /= l->shape[d])
        at += (int64_t)(number % l->shape[d]) * l->strides[d];
    return l->first + at * (int64_t)l->width;
}

static uint64_t elements(const struct layout *l) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < l->rank; d++) n *= l->shape[d];
    return n;
}

static uint8_t byte_of(uint64_t number, size_t byte) { return (uint8_t)(number * 37 + byte * 11 + 5); }

static void fill(const struct layout *l) {
    for (uint64_t i = 0; i < elements(l); i++)
        for (size_t b = 0; b < l->width; b++) element(l, i)[b] = byte_of(i, b);
}

/* Every element is right, and not a byte between them was written. */
static void check_filled(const struct layout *l) {
    uint8_t *expected = malloc(l->room);
    assert_non_null(expected);
    memset(expected, 0xee, l->room);
    for (uint64_t i = 0; i < elements(l); i++)
        for (size_t b = 0; b < l->width; b++)
            expected[(size_t)(element(l, i) - l->memory) + b] = byte_of(i, b);
    assert_memory_equal(l->memory, expected, l->room);
    free(expected);
}

static struct pawl_tensor tensor_of(const struct layout *l, enum pawl_dtype dtype) {
    return (struct pawl_tensor){
        .name = "t", .dtype = dtype, .rank = l->rank, .shape = l->shape, .data = l->first};
}

static const enum pawl_dtype types[] = {PAWL_U8, PAWL_BF16, PAWL_F32, PAWL_F64};

struct done {
    struct pawl_copy base;
    uint32_t calls;
    pawl_code code;
};

static void note(struct pawl_copy *base, pawl_code code) {
    struct done *d = (struct done *)base;
    d->calls++;
    d->code = code;
}

/* Cut anywhere, also within an element. */
static void any_layout_copies_any_range_both_ways(void **unused) {
    (void)unused;
    struct rng_stream r = {.state = 20};
    for (uint32_t round = 0; round < 400; round++) {
        uint64_t shape[RANK];
        uint32_t rank = (uint32_t)rng_below(&r, RANK + 1), type = (uint32_t)rng_below(&r, 4);
        for (uint32_t d = 0; d < rank; d++) shape[d] = 1 + rng_below(&r, 6);
        struct layout from = layout_draw(&r, shape, rank, pawl_dtype_bits(types[type]) / 8);
        struct layout to = layout_draw(&r, shape, rank, from.width);
        fill(&from);
        struct pawl_tensor a = tensor_of(&from, types[type]), b = tensor_of(&to, types[type]);
        struct pawl_strided *sa = NULL, *sb = NULL;
        SKIT_MUST(pawl_strided_new(&a, from.strides, &sa, e));
        SKIT_MUST(pawl_strided_new(&b, to.strides, &sb, e));
        size_t bytes = (size_t)elements(&from) * from.width;
        uint8_t *dense = malloc(bytes);
        assert_non_null(dense);
        for (size_t at = 0, some; at < bytes; at += some) {
            some = 1 + (size_t)rng_below(&r, bytes - at);
            struct done out = {.base.done = note}, in = {.base.done = note};
            SKIT_MUST(a.memory->copy_out(a.memory->context, (uint8_t *)a.data + at, dense + at, some,
                                         &out.base, e));
            SKIT_MUST(
                b.memory->copy_in(b.memory->context, dense + at, (uint8_t *)b.data + at, some, &in.base, e));
            assert_int_equal(out.calls + in.calls, 2);
            assert_int_equal(out.code | in.code, PAWL_OK);
        }
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(dense[i], byte_of(i / from.width, i % from.width));
        check_filled(&from);
        check_filled(&to);
        free(dense);
        pawl_strided_free(sa);
        pawl_strided_free(sb);
        free(from.memory);
        free(to.memory);
    }
}

/* Over many chunks: saved from one layout, resumed into another, read by a third program as dense. */
static void saved_from_one_layout_it_is_resumed_into_another_and_read_as_dense(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct rng_stream r = {.state = 7};
    static const uint64_t shape[] = {31, 7, 53, 5};
    struct layout layouts[2] = {layout_draw(&r, shape, RANK, 4), layout_draw(&r, shape, RANK, 4)};
    fill(&layouts[0]);
    for (uint32_t start = 0; start < 2; start++) {
        struct pawl_tensor t = tensor_of(&layouts[start], PAWL_F32);
        struct pawl_strided *s = NULL;
        struct pawl_ckpt *c = NULL;
        struct pawl_ckpt_state *state = NULL;
        struct pawl_ckpt_options o = {.path = path, .chunk_bytes = 4096, .staging_bytes = 16384};
        uint64_t step = 0, id = 0;
        SKIT_MUST(pawl_strided_new(&t, layouts[start].strides, &s, e));
        SKIT_MUST(pawl_ckpt_open(&o, &c, e));
        SKIT_MUST(pawl_ckpt_declare(c, &t, 1, &state, e));
        SKIT_MUST(pawl_ckpt_resume(c, state, &step, e));
        assert_int_equal(step, start * 3);
        struct pawl_ckpt_save save = {.state = state, .step = 3 + start, .immutable = start == 1};
        SKIT_MUST(pawl_ckpt_save(c, &save, &id, e));
        SKIT_MUST(pawl_ckpt_wait(c, id, PAWL_CKPT_UNTIL_DURABLE, skit_soon(), e));
        SKIT_MUST(pawl_ckpt_close(c, skit_soon(), e));
        pawl_strided_free(s);
        check_filled(&layouts[start]);
    }
    struct pawl_ckpt_reader *reader = NULL;
    struct pawl_tensor dense;
    void *memory = NULL;
    SKIT_MUST(pawl_ckpt_reader_open(path, NULL, &reader, e));
    assert_int_equal(pawl_ckpt_reader_step(reader, 0).step, 4);
    SKIT_MUST(pawl_ckpt_reader_load(reader, 0, "t", &dense, &memory, e));
    for (size_t i = 0; i < (size_t)elements(&layouts[0]) * 4; i++)
        assert_int_equal(((uint8_t *)memory)[i], byte_of(i / 4, i % 4));
    pawl_ckpt_reader_close(reader);
    free(memory);
    for (uint32_t i = 0; i < 2; i++) free(layouts[i].memory);
    skit_remove(path);
}

static void refused(struct pawl_tensor t, const int64_t *strides, const char *word) {
    struct pawl_strided *s = NULL;
    struct pawl_error e = {0};
    void *data = t.data;
    assert_int_equal(pawl_strided_new(&t, strides, &s, &e), PAWL_ARGUMENT);
    assert_null(s);
    assert_ptr_equal(t.data, data);
    if (strstr(e.text, word) == NULL) fail_msg("no '%s' in: %s", word, e.text);
}

static void overlaps_and_kinds_and_foreign_addresses_are_refused(void **unused) {
    (void)unused;
    float memory[64] = {0};
    static const uint64_t shape[] = {4, 3};
    struct pawl_tensor t = {.name = "t", .dtype = PAWL_F32, .rank = 2, .shape = shape, .data = memory};
    refused(t, (int64_t[]){0, 1}, "overlap");
    refused(t, (int64_t[]){2, 1}, "overlap");
    refused(t, (int64_t[]){INT64_MAX / 2, 1}, "beyond");
    struct pawl_tensor nowhere = t, cut = t;
    nowhere.data = NULL;
    refused(nowhere, (int64_t[]){3, 1}, "no address");
    cut.begin = (uint64_t[]){5, 0};
    refused(cut, (int64_t[]){3, 1}, "beyond");
    struct pawl_strided *s = NULL;
    SKIT_MUST(pawl_strided_new(&t, (int64_t[]){1, 4}, &s, e));
    refused(t, (int64_t[]){1, 4}, "strided");
    struct done d = {.base.done = note};
    struct pawl_error e = {0};
    uint8_t target[64];
    assert_int_equal(t.memory->copy_out(t.memory->context, (uint8_t *)t.data + 44, target, 5, &d.base, &e),
                     PAWL_ARGUMENT);
    assert_int_equal(t.memory->copy_out(t.memory->context, memory, target, 4, &d.base, &e), PAWL_ARGUMENT);
    assert_int_equal(d.calls, 0);
    pawl_strided_free(s);
    pawl_strided_free(NULL);
}

static void empty_and_single_elements_may_have_any_strides(void **unused) {
    (void)unused;
    float one = 1;
    struct pawl_strided *s = NULL;
    struct pawl_tensor t = {
        .name = "t", .dtype = PAWL_F32, .rank = 2, .shape = (uint64_t[]){1, 1}, .data = &one};
    SKIT_MUST(pawl_strided_new(&t, (int64_t[]){0, INT64_MIN}, &s, e));
    struct done d = {.base.done = note};
    float copy = 0;
    SKIT_MUST(t.memory->copy_out(t.memory->context, t.data, &copy, sizeof copy, &d.base, e));
    assert_memory_equal(&copy, &one, sizeof copy);
    pawl_strided_free(s);
    struct pawl_tensor none = {.name = "t", .dtype = PAWL_F32, .rank = 2, .shape = (uint64_t[]){0, 9}};
    SKIT_MUST(pawl_strided_new(&none, (int64_t[]){0, 0}, &s, e));
    assert_null(none.data);
    pawl_strided_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_layout_copies_any_range_both_ways),
        cmocka_unit_test(saved_from_one_layout_it_is_resumed_into_another_and_read_as_dense),
        cmocka_unit_test(overlaps_and_kinds_and_foreign_addresses_are_refused),
        cmocka_unit_test(empty_and_single_elements_may_have_any_strides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
