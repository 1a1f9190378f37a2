/* What is saved again and again is planned once, and the plan is right for whatever memory it is used with.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"
#include "ckpt/layout.h"
#include "kit/box_kit.h"

#define COUNT 60u

struct state { /* tensors of one buffer, their places given by a pattern */
    struct pawl_tensor tensors[COUNT];
    char names[COUNT][8];
    uint64_t shapes[COUNT][2], bytes[COUNT];
    size_t offsets[COUNT], room;
};

/* Every eighth is large; `pattern` decides which ones follow the one before without a gap, which are aligned.
 */
static struct state *state_new(uint64_t pattern) {
    struct state *s = calloc(1, sizeof *s);
    assert_non_null(s);
    struct rng_stream random = {pattern}, sizes = {7};
    size_t at = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(s->names[i], sizeof s->names[i], "t%u", i);
        s->shapes[i][0] = i % 8 == 0 ? 80 : rng_below(&sizes, 5);
        s->shapes[i][1] = i % 8 == 0 ? 1024 + rng_below(&sizes, 2) : rng_below(&sizes, 300);
        s->bytes[i] = s->shapes[i][0] * s->shapes[i][1] * 4;
        uint64_t gap = rng_below(&random, 3);
        if (gap == 1) at += 4;
        if (gap == 2) at = mem_round_up(at, STORE_BLOCK);
        s->offsets[i] = at;
        at += s->bytes[i];
        s->tensors[i] =
            (struct pawl_tensor){.name = s->names[i], .dtype = PAWL_F32, .rank = 2, .shape = s->shapes[i]};
    }
    s->room = mem_round_up(at + 1, STORE_BLOCK);
    return s;
}

struct version { /* a buffer, and where each tensor is in it */
    uint8_t *memory;
    size_t room;
    void *data[COUNT];
};

static struct version version_new(const struct state *s, uint64_t seed) {
    struct version v = {.memory = mem_alloc(s->room), .room = s->room};
    struct rng_stream random = {seed};
    assert_non_null(v.memory);
    for (size_t i = 0; i < s->room; i += 8) {
        uint64_t word = rng_next(&random);
        memcpy(v.memory + i, &word, 8);
    }
    for (uint32_t i = 0; i < COUNT; i++) v.data[i] = v.memory + s->offsets[i];
    return v;
}

static struct ckpt_config config_of(uint64_t chunk_bytes) {
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    config.chunk_bytes = chunk_bytes;
    return config;
}

/* The file that a plan makes, as the engine writes it. */
static struct bytes file_of(struct slot_plan *plan) {
    uint8_t *data = malloc(plan->data_bytes + 1);
    struct bytes file = {0};
    assert_non_null(data);
    for (uint64_t i = 0; i < plan->chunk_count; i++) {
        const struct slot_chunk *c = &plan->chunks[i];
        if (c->direct != NULL)
            memcpy(data + c->offset, c->direct, c->bytes);
        else
            slot_plan_gather(plan, c, data + c->offset);
        if (plan->sums != NULL) hash128(data + c->offset, c->bytes, plan->sums + i * SLOT_SUM_BYTES);
    }
    assert_int_equal(slot_plan_header(plan, &file, NULL), PAWL_OK);
    assert_int_equal(file.size, plan->header_bytes);
    bytes_put(&file, data, plan->data_bytes);
    free(data);
    return file;
}

static void check_file(const struct state *s, const struct version *v, const struct bytes *file) {
    struct slot_info info;
    struct pawl_error e = {0};
    if (slot_parse(file->data, file->size, file->size, &info, &e) != PAWL_OK) fail_msg("%s", e.text);
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct st_tensor *t = st_header_find(&info.header, s->names[i]);
        assert_non_null(t);
        assert_int_equal(t->bytes, s->bytes[i]);
        assert_memory_equal(file->data + info.header.data_offset + t->begin, v->data[i], t->bytes);
    }
    slot_info_close(&info);
}

static struct slot_plan plan_of(const struct ckpt_layout *layout, const struct version *v, uint64_t step,
                                uint64_t chunk_bytes) {
    struct ckpt_config config = config_of(chunk_bytes);
    struct ckpt_save save = {.step = step,
                             .unit_count = 1,
                             .part_count = 1,
                             .layout = layout,
                             .data = v != NULL ? (void *const *)v->data : NULL};
    struct slot_plan plan;
    struct pawl_error e = {0};
    if (slot_plan_make(&config, &save, &plan, &e) != PAWL_OK) fail_msg("%s", e.text);
    return plan;
}

static struct ckpt_layout *layout_of(const struct state *s, const struct version *v) {
    struct pawl_tensor tensors[COUNT];
    struct ckpt_layout *layout = NULL;
    memcpy(tensors, s->tensors, sizeof tensors);
    for (uint32_t i = 0; i < COUNT && v != NULL; i++) tensors[i].data = v->data[i];
    assert_int_equal(ckpt_layout_new(tensors, COUNT, &layout, NULL), PAWL_OK);
    return layout;
}

/* ---- planning once ---- */

static void versions_laid_out_alike_are_planned_once(void **state) {
    (void)state;
    struct state *s = state_new(11);
    struct version a = version_new(s, 1), b = version_new(s, 2);
    struct ckpt_layout *layout = layout_of(s, &a);
    assert_int_equal(layout->orders_made, 1); /* by declaring it */
    for (uint64_t step = 1; step <= 20; step++) {
        const struct version *v = step % 2 == 0 ? &a : &b;
        struct slot_plan plan = plan_of(layout, v, step, 1u << 20);
        struct bytes file = file_of(&plan);
        check_file(s, v, &file);
        bytes_close(&file);
        slot_plan_close(&plan);
    }
    assert_int_equal(layout->orders_made, 1);
    ckpt_layout_release(layout);
    mem_free(a.memory, a.room);
    mem_free(b.memory, b.room);
    free(s);
}

static void memory_laid_out_otherwise_is_planned_anew_and_still_right(void **state) {
    (void)state;
    struct state *s[4];
    struct version v[4];
    for (uint64_t i = 0; i < 4; i++) {
        s[i] = state_new(i + 1);
        v[i] = version_new(s[i], i);
    }
    struct ckpt_layout *layout = layout_of(s[0], NULL); /* no addresses yet */
    assert_int_equal(layout->orders_made, 0);
    for (uint64_t round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < 4; i++) {
            struct slot_plan plan = plan_of(layout, &v[i], 1 + round, 65536);
            struct bytes file = file_of(&plan);
            check_file(s[i], &v[i], &file);
            bytes_close(&file);
            slot_plan_close(&plan);
        }
        assert_int_equal(layout->orders_made, 4); /* as many patterns as there are, each kept */
    }
    ckpt_layout_release(layout);
    for (uint64_t i = 0; i < 4; i++) {
        mem_free(v[i].memory, v[i].room);
        free(s[i]);
    }
}

static void a_layout_makes_the_file_that_its_tensors_make(void **state) {
    (void)state;
    for (uint64_t pattern = 1; pattern <= 20; pattern++) {
        struct state *s = state_new(pattern);
        struct version v = version_new(s, pattern);
        struct ckpt_layout *layout = layout_of(s, &v);
        struct pawl_tensor tensors[COUNT];
        memcpy(tensors, s->tensors, sizeof tensors);
        for (uint32_t i = 0; i < COUNT; i++) tensors[i].data = v.data[i];
        struct ckpt_config config = config_of(32768);
        struct ckpt_save save = {
            .step = 5, .unit_count = 1, .part_count = 1, .tensors = tensors, .tensor_count = COUNT};
        struct slot_plan with = plan_of(layout, NULL, 5, 32768), without;
        assert_int_equal(slot_plan_make(&config, &save, &without, NULL), PAWL_OK);
        ckpt_layout_release(layout); /* a save in flight holds what it needs */
        struct bytes a = file_of(&with), b = file_of(&without);
        assert_int_equal(a.size, b.size);
        assert_memory_equal(a.data, b.data, a.size);
        bytes_close(&a);
        bytes_close(&b);
        slot_plan_close(&with);
        slot_plan_close(&without);
        mem_free(v.memory, v.room);
        free(s);
    }
}

/* ---- what is direct ---- */

static void every_large_aligned_run_is_written_from_where_it_lies_and_nothing_else(void **state) {
    (void)state;
    for (uint64_t pattern = 1; pattern <= 40; pattern++) {
        struct state *s = state_new(pattern);
        struct version v = version_new(s, pattern);
        struct ckpt_layout *layout = layout_of(s, &v);
        struct slot_plan plan = plan_of(layout, NULL, 1, 1u << 20);
        uint64_t direct = 0, wanted = 0, fillers = 0;
        for (uint64_t i = 0; i < plan.chunk_count; i++) {
            const uint8_t *at = plan.chunks[i].direct;
            if (at == NULL) continue;
            direct += plan.chunks[i].bytes;
            assert_int_equal((uintptr_t)at % STORE_BLOCK, 0);
            assert_true(at >= v.memory && at + plan.chunks[i].bytes <= v.memory + v.room);
        }
        for (uint32_t i = 0, next; i < COUNT; i = next) { /* runs, found anew */
            uint64_t bytes = s->bytes[i];
            for (next = i + 1;
                 next < COUNT && bytes > 0 && s->bytes[next] > 0 && s->offsets[next] == s->offsets[i] + bytes;
                 next++)
                bytes += s->bytes[next];
            if (bytes >= SLOT_DIRECT_BYTES && s->offsets[i] % STORE_BLOCK == 0)
                wanted += bytes / STORE_BLOCK * STORE_BLOCK;
        }
        assert_int_equal(direct, wanted);
        struct bytes file = file_of(&plan);
        struct slot_info info;
        assert_int_equal(slot_parse(file.data, file.size, file.size, &info, NULL), PAWL_OK);
        for (uint32_t i = 0; i < info.header.tensor_count; i++) fillers += info.slices[i].name == NULL;
        assert_in_range(fillers, 0, plan.order->direct_count + 1);
        slot_info_close(&info);
        bytes_close(&file);
        slot_plan_close(&plan);
        ckpt_layout_release(layout);
        mem_free(v.memory, v.room);
        free(s);
    }
}

static void memory_of_another_kind_is_never_direct_and_told_by_its_spans(void **state) {
    (void)state;
    static const struct pawl_memory device = {.name = "device"};
    uint64_t shape[1] = {1u << 20};
    uint8_t *memory = mem_alloc(3u << 20);
    struct pawl_tensor tensors[3];
    static const char *const names[] = {"a", "b", "c"};
    for (uint32_t i = 0; i < 3; i++)
        tensors[i] = (struct pawl_tensor){.name = names[i],
                                          .dtype = PAWL_U8,
                                          .rank = 1,
                                          .shape = shape,
                                          .data = memory + ((size_t)i << 20),
                                          .memory = i == 0 ? NULL : &device};
    struct ckpt_config config = config_of(1u << 18);
    struct ckpt_save save = {
        .step = 1, .unit_count = 1, .part_count = 1, .tensors = tensors, .tensor_count = 3};
    struct slot_plan plan;
    assert_int_equal(slot_plan_make(&config, &save, &plan, NULL), PAWL_OK);
    for (uint64_t i = 0; i < plan.chunk_count; i++)
        assert_int_equal(plan.chunks[i].direct != NULL, plan.chunks[i].offset < 1u << 20);
    assert_int_equal(plan.span_count, 2); /* neighbours of one kind are one span */
    assert_null(plan.spans[0].memory);
    assert_ptr_equal(plan.spans[1].memory, &device);
    assert_int_equal(plan.spans[1].bytes, 2u << 20);
    uint8_t out[64]; /* a gathered chunk leaves it alone: its copies bring it */
    memset(out, 0xA5, sizeof out);
    slot_plan_gather(&plan, &(struct slot_chunk){(1u << 20) - 32, 64, NULL}, out);
    for (uint32_t i = 0; i < 64; i++) assert_int_equal(out[i], i < 32 ? 0 : 0xA5);
    slot_plan_close(&plan);
    mem_free(memory, 3u << 20);
}

/* ---- refusals, threads, unchecked ---- */

static void what_cannot_be_saved_is_refused_naming_tensor_and_field(void **state) {
    (void)state;
    uint8_t data[64] = {0};
    uint64_t shape[2] = {4, 4}, huge[2] = {UINT64_MAX, 2}, two[2] = {2, 2}, four[2] = {4, 4},
             five[2] = {5, 0};
    char *long_name = malloc(5000);
    memset(long_name, 'n', 4999);
    long_name[4999] = 0;
    const struct pawl_tensor good = {.name = "w", .dtype = PAWL_U8, .rank = 2, .shape = shape, .data = data};
    struct {
        struct pawl_tensor tensor;
        const char *field;
    } cases[14];
    for (size_t i = 0; i < 14; i++) cases[i].tensor = good;
    cases[0].tensor.name = NULL, cases[0].field = "name";
    cases[1].tensor.name = "", cases[1].field = "name";
    cases[2].tensor.name = "__pawl_x", cases[2].field = "name";
    cases[3].tensor.name = long_name, cases[3].field = "name";
    cases[4].tensor.name = "\xff", cases[4].field = "name";
    cases[5].tensor.name = "__metadata__", cases[5].field = "name";
    cases[6].tensor.dtype = PAWL_DTYPE_COUNT, cases[6].field = "dtype";
    cases[7].tensor.rank = 65, cases[7].field = "rank";
    cases[8].tensor.shape = NULL, cases[8].field = "shape";
    cases[9].tensor.shape = huge, cases[9].field = "shape";
    cases[10].tensor.begin = five, cases[10].field = "begin";
    cases[11].tensor.begin = two, cases[11].tensor.extent = four, cases[11].field = "extent";
    cases[12].tensor.begin = four, cases[12].tensor.extent = two, cases[12].field = "extent";
    cases[13].tensor.data = NULL, cases[13].field = "data";
    struct ckpt_config config = config_of(4096);
    for (size_t i = 0; i < 14; i++) {
        struct pawl_error e = {0};
        struct slot_plan plan;
        struct ckpt_save save = {
            .step = 1, .unit_count = 1, .part_count = 1, .tensors = &cases[i].tensor, .tensor_count = 1};
        assert_int_equal(slot_plan_make(&config, &save, &plan, &e), PAWL_ARGUMENT);
        if (strstr(e.text, cases[i].field) == NULL || strstr(e.text, "tensor 0") == NULL)
            fail_msg("case %zu: %s", i, e.text);
        assert_null(plan.order);
    }
    free(long_name);
}

struct worker {
    const struct ckpt_layout *layout;
    const struct state *s;
    const struct version *v;
};

static void *plan_often(void *arg) {
    const struct worker *w = arg;
    for (uint64_t step = 1; step <= 50; step++) {
        struct slot_plan plan = plan_of(w->layout, w->v, step, 1u << 18);
        if (step % 10 == 0) {
            struct bytes file = file_of(&plan);
            check_file(w->s, w->v, &file);
            bytes_close(&file);
        }
        slot_plan_close(&plan);
    }
    return NULL;
}

static void threads_may_plan_from_one_layout_at_once(void **state) {
    (void)state;
    enum { THREADS = 4 };
    struct state *s[THREADS];
    struct version v[THREADS];
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    for (uint64_t i = 0; i < THREADS; i++) {
        s[i] = state_new(1 + i / 2); /* two of each pattern */
        v[i] = version_new(s[i], i);
    }
    struct ckpt_layout *layout = layout_of(s[0], &v[0]);
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){layout, s[i], &v[i]};
        assert_int_equal(pthread_create(&threads[i], NULL, plan_often, &workers[i]), 0);
    }
    for (uint64_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(layout->orders_made, 2);
    ckpt_layout_release(layout);
    for (uint64_t i = 0; i < THREADS; i++) {
        mem_free(v[i].memory, v[i].room);
        free(s[i]);
    }
}

static void a_save_without_checksums_says_so_and_has_none(void **state) {
    (void)state;
    struct state *s = state_new(3);
    struct version v = version_new(s, 3);
    struct ckpt_layout *layout = layout_of(s, &v);
    struct ckpt_config config = config_of(65536);
    config.unchecked = true;
    struct ckpt_save save = {.step = 1, .unit_count = 1, .part_count = 1, .layout = layout};
    struct slot_plan plan;
    assert_int_equal(slot_plan_make(&config, &save, &plan, NULL), PAWL_OK);
    assert_null(plan.sums);
    struct bytes file = file_of(&plan);
    check_file(s, &v, &file);
    struct slot_info info;
    assert_int_equal(slot_parse(file.data, file.size, file.size, &info, NULL), PAWL_OK);
    assert_null(info.sums);
    assert_string_equal(st_header_get(&info.header, "pawl.checksum"), "none");
    assert_null(st_header_get(&info.header, "pawl.sums"));
    slot_info_close(&info);
    bytes_close(&file);
    slot_plan_close(&plan);
    ckpt_layout_release(layout);
    mem_free(v.memory, v.room);
    free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_laid_out_alike_are_planned_once),
        cmocka_unit_test(memory_laid_out_otherwise_is_planned_anew_and_still_right),
        cmocka_unit_test(a_layout_makes_the_file_that_its_tensors_make),
        cmocka_unit_test(every_large_aligned_run_is_written_from_where_it_lies_and_nothing_else),
        cmocka_unit_test(memory_of_another_kind_is_never_direct_and_told_by_its_spans),
        cmocka_unit_test(what_cannot_be_saved_is_refused_naming_tensor_and_field),
        cmocka_unit_test(threads_may_plan_from_one_layout_at_once),
        cmocka_unit_test(a_save_without_checksums_says_so_and_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
