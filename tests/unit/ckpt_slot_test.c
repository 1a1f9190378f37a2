/* Tensors of every size and address go through a slot unharmed, and lie in it as readers of safetensors want
 * them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "ckpt/slot.h"
#include "kit/ckpt_kit.h"

#define MANY 64u

struct tensor { /* of one random save */
    char name[16];
    enum pawl_dtype dtype;
    uint32_t rank;
    uint64_t shape[2];
    uint64_t bytes;
    uint8_t *data;
};

struct model {
    struct tensor tensors[MANY];
    uint32_t count;
    uint8_t *memory;
    size_t memory_bytes;
};

/* Lays the tensors out in one buffer; `gap` decides the address of each: 0 back to back, 1 odd, 2
 * page-aligned. */
static void lay_out(struct model *m, struct rng_stream *random) {
    m->memory_bytes = 1u << 24;
    m->memory = mem_alloc(m->memory_bytes);
    assert_non_null(m->memory);
    for (size_t i = 0; i < m->memory_bytes; i += 8) {
        uint64_t v = rng_next(random);
        memcpy(m->memory + i, &v, 8);
    }
    size_t at = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        uint64_t gap = rng_below(random, 3);
        if (gap == 1) at += 1 + rng_below(random, 5000);
        if (gap == 2) at = mem_round_up(at, STORE_BLOCK);
        m->tensors[i].data = m->memory + at;
        at += m->tensors[i].bytes;
        assert_true(at <= m->memory_bytes);
    }
}

static void add(struct model *m, enum pawl_dtype dtype, uint64_t rows, uint64_t columns, bool scalar) {
    struct tensor *t = &m->tensors[m->count];
    snprintf(t->name, sizeof t->name, "t%u", m->count++);
    t->dtype = dtype;
    t->rank = scalar ? 0 : 2;
    t->shape[0] = rows;
    t->shape[1] = columns;
    t->bytes = pawl_dtype_bits(dtype) * (scalar ? 1 : rows * columns) / 8;
}

static void save_and_read(struct model *m, uint64_t chunk_bytes, struct rng_stream *random) {
    struct storesim *sim = storesim_new(rng_next(random));
    struct store *s = NULL;
    struct ckpt *c = NULL;
    struct pawl_tensor pieces[MANY];
    for (uint32_t i = 0; i < m->count; i++) {
        struct tensor *t = &m->tensors[i];
        pieces[i] = (struct pawl_tensor){
            .name = t->name, .dtype = t->dtype, .rank = t->rank, .shape = t->shape, .data = t->data};
    }
    assert_int_equal(storesim_open(sim, "d", false, &s, NULL), PAWL_OK);
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    config.chunk_bytes = chunk_bytes;
    assert_int_equal(ckpt_open(&config, s, &c, NULL), PAWL_OK);
    struct ckpt_save save = {
        .step = 1, .unit_count = 1, .part_count = 1, .tensors = pieces, .tensor_count = m->count};
    struct pawl_error e = {0};
    if (ckpt_save_begin(c, &save, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(kit_wait(c, s).code, PAWL_OK);
    assert_int_equal(ckpt_close(c, kit_soon(), NULL), PAWL_OK);

    uint8_t *file = NULL;
    size_t size = 0;
    struct slot_info info;
    assert_int_equal(store_get(s, "slot-000000.safetensors", &file, &size, NULL), PAWL_OK);
    if (slot_parse(file, size, size, &info, &e) != PAWL_OK) fail_msg("%s", e.text);
    for (uint32_t i = 0; i < info.header.tensor_count; i++) /* viewed in place by readers */
        assert_int_equal(info.header.tensors[i].begin % st_dtype_width(info.header.tensors[i].dtype), 0);
    uint32_t fillers = 0, large = 1; /* at most one behind each large tensor, and one at the end */
    for (uint32_t i = 0; i < m->count; i++) large += m->tensors[i].bytes >= SLOT_DIRECT_BYTES;
    for (uint32_t i = 0; i < info.header.tensor_count; i++) fillers += info.slices[i].name == NULL;
    assert_in_range(fillers, 0, large);
    assert_int_equal(info.header.tensor_count, m->count + fillers);
    for (uint32_t i = 0; i < info.header.tensor_count; i++) { /* nothing of other memory leaks into filler */
        const struct st_tensor *t = &info.header.tensors[i];
        for (uint64_t k = 0; k < t->bytes && info.slices[i].name == NULL; k++)
            assert_int_equal(file[info.header.data_offset + t->begin + k], 0);
    }
    slot_info_close(&info);
    free(file);

    struct ckpt_set *set = NULL;
    assert_int_equal(ckpt_set_open(&s, 1, NULL, &set, NULL), PAWL_OK);
    uint8_t *out = mem_alloc(1u << 24);
    for (uint32_t i = 0; i < m->count; i++) {
        struct pawl_tensor want = pieces[i];
        uint8_t *to = out + (i % 2) * 13; /* aligned and not */
        want.data = to;
        if (ckpt_set_read(set, 0, &want, &e) != PAWL_OK) fail_msg("%s", e.text);
        assert_memory_equal(to, m->tensors[i].data, m->tensors[i].bytes);
        if (m->tensors[i].rank == 0) continue;
        uint64_t from = rng_below(random, want.shape[0] + 1);
        uint64_t until = from + rng_below(random, want.shape[0] - from + 1);
        uint64_t row = pawl_dtype_bits(want.dtype) * want.shape[1] / 8;
        struct kit_rows rows;
        want = kit_slice(&rows, want, from, until, to);
        assert_int_equal(ckpt_set_read(set, 0, &want, NULL), PAWL_OK);
        assert_memory_equal(to, m->tensors[i].data + from * row, (until - from) * row);
    }
    assert_int_equal(ckpt_set_verify(set, 0, NULL), PAWL_OK);
    ckpt_set_close(set);
    mem_free(out, 1u << 24);
    store_close(s);
    storesim_free(sim);
}

static void sizes_around_every_boundary_come_back(void **state) {
    (void)state;
    static const uint64_t sizes[] = {0,      1,      2,      127,    129,    511,     512,     513,    4095,
                                     4096,   4097,   8191,   16383,  16384,  16385,   65535,   65536,  65537,
                                     262143, 262144, 262145, 266240, 524288, 1048575, 1048576, 1048577};
    static const uint64_t chunks[] = {4096, 16384, 65536, 1u << 20, 64u << 20};
    for (size_t chunk = 0; chunk < sizeof chunks / sizeof chunks[0]; chunk++) {
        struct rng_stream random = {chunk + 1};
        for (int alone = 0; alone < 2; alone++) {
            static struct model m;
            memset(&m, 0, sizeof m);
            for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                add(&m, PAWL_U8, sizes[i], 1, false);
                if (!alone) continue;
                lay_out(&m, &random);
                save_and_read(&m, chunks[chunk], &random);
                mem_free(m.memory, m.memory_bytes);
                m.count = 0;
            }
            if (alone) continue;
            lay_out(&m, &random);
            save_and_read(&m, chunks[chunk], &random);
            mem_free(m.memory, m.memory_bytes);
        }
    }
}

static void any_mixture_of_types_shapes_and_addresses_comes_back(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        struct rng_stream random = {seed};
        static struct model m;
        memset(&m, 0, sizeof m);
        uint64_t count = rng_below(&random, MANY), large = rng_below(&random, 4);
        for (uint64_t i = 0; i < count; i++) {
            enum pawl_dtype dtype = (enum pawl_dtype)rng_below(&random, PAWL_DTYPE_COUNT);
            bool is_large = large > 0 && rng_below(&random, 8) == 0;
            uint64_t rows = is_large ? 64u * (1 + rng_below(&random, 8)) : rng_below(&random, 20);
            uint64_t columns = is_large ? 512 + 60 * rng_below(&random, 2) : rng_below(&random, 300);
            large -= is_large;
            if (pawl_dtype_bits(dtype) < 8) columns = (columns + 3) / 4 * 4;
            add(&m, dtype, rows, columns,
                !is_large && pawl_dtype_bits(dtype) >= 8 && rng_below(&random, 6) == 0);
        }
        lay_out(&m, &random);
        static const uint64_t chunks[] = {4096, 12288, 65536, 1u << 20};
        save_and_read(&m, chunks[rng_below(&random, 4)], &random);
        mem_free(m.memory, m.memory_bytes);
    }
}

static void large_aligned_memory_is_written_from_where_it_lies(void **state) {
    (void)state;
    uint64_t shape[2] = {256, 1024}, odd_shape[2] = {300, 1023};
    uint8_t *a = mem_alloc(2u << 20), *b = mem_alloc(2u << 20), *c = mem_alloc(2u << 20), small[100] = {0};
    struct pawl_tensor pieces[] = {
        {.name = "small", .dtype = PAWL_U8, .rank = 1, .shape = (uint64_t[]){100}, .data = small},
        {.name = "odd", .dtype = PAWL_F32, .rank = 2, .shape = odd_shape, .data = b},
        {.name = "odd too", .dtype = PAWL_F32, .rank = 2, .shape = odd_shape, .data = c},
        {.name = "first", .dtype = PAWL_F32, .rank = 2, .shape = shape, .data = a},
        {.name = "second", /* back to back with the first */
         .dtype = PAWL_F16,
         .rank = 2,
         .shape = shape,
         .data = a + (1u << 20)},
    };
    struct ckpt_save save = {
        .step = 1, .unit_count = 1, .part_count = 1, .tensors = pieces, .tensor_count = 5};
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    config.chunk_bytes = 1u << 20;
    struct slot_plan plan;
    assert_int_equal(slot_plan_make(&config, &save, &plan, NULL), PAWL_OK);
    uint64_t direct = 0, gathered = 0, at = 0;
    for (uint64_t i = 0; i < plan.chunk_count; i++) {
        assert_int_equal(plan.chunks[i].offset, at);
        assert_int_equal(plan.chunks[i].bytes % STORE_BLOCK, 0);
        at += plan.chunks[i].bytes;
        if (plan.chunks[i].direct != NULL)
            direct += plan.chunks[i].bytes;
        else
            gathered += plan.chunks[i].bytes;
    }
    assert_int_equal(at, plan.data_bytes);
    assert_int_equal(direct, (1u << 20) + (1u << 19) + 2 * (1200 * 1023 / 4096 * 4096));
    assert_int_equal(gathered, 3 * 4096); /* the broken last blocks of both odd ones; the small one */
    assert_ptr_equal(plan.chunks[0].direct, b);
    slot_plan_close(&plan);
    mem_free(a, 2u << 20);
    mem_free(b, 2u << 20);
    mem_free(c, 2u << 20);
}

static void many_tiny_tensors_share_chunks_that_are_read_once(void **state) {
    (void)state;
    enum { COUNT = 3000 };
    struct storesim *sim = storesim_new(3);
    struct store *s = NULL;
    struct ckpt *c = NULL;
    static struct pawl_tensor pieces[COUNT];
    static char names[COUNT][16];
    static uint32_t values[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "t%05u", i);
        values[i] = i * 2654435761u;
        pieces[i] = (struct pawl_tensor){.name = names[i], .dtype = PAWL_U32, .data = &values[i]};
    }
    assert_int_equal(storesim_open(sim, "d", false, &s, NULL), PAWL_OK);
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    assert_int_equal(ckpt_open(&config, s, &c, NULL), PAWL_OK);
    struct ckpt_save save = {
        .step = 1, .unit_count = 1, .part_count = 1, .tensors = pieces, .tensor_count = COUNT};
    assert_int_equal(ckpt_save_begin(c, &save, NULL), PAWL_OK);
    assert_int_equal(kit_wait(c, s).code, PAWL_OK);
    assert_int_equal(ckpt_close(c, kit_soon(), NULL), PAWL_OK);
    struct ckpt_set *set = NULL;
    assert_int_equal(ckpt_set_open(&s, 1, NULL, &set, NULL), PAWL_OK);
    uint32_t value = 0;
    for (uint32_t i = 0; i < COUNT; i++) pieces[i].data = &value;
    assert_int_equal(ckpt_set_read(set, 0, &pieces[0], NULL), PAWL_OK);
    /* From now on the device refuses to read: what is in the chunk already must do. */
    storesim_set_faults(sim, (struct storesim_faults){.read_eio = 1000000});
    for (uint32_t i = 0; i < 2048; i++) {
        assert_int_equal(ckpt_set_read(set, 0, &pieces[i], NULL), PAWL_OK);
        assert_int_equal(value, values[i]);
    }
    struct pawl_error e = {0};
    assert_int_equal(ckpt_set_read(set, 0, &pieces[COUNT - 1], &e), PAWL_IO);
    assert_non_null(strstr(e.text, "EIO"));
    ckpt_set_close(set);
    store_close(s);
    storesim_free(sim);
}

static void two_ranges_of_one_tensor_in_one_save_are_joined(void **state) {
    (void)state;
    struct storesim *sim = storesim_new(3);
    struct store *s = NULL;
    struct ckpt *c = NULL;
    uint64_t shape[2] = {10, 3};
    uint8_t data[30], out[30] = {0};
    for (uint8_t i = 0; i < 30; i++) data[i] = i;
    struct kit_rows rows[2];
    struct pawl_tensor want = {.name = "a", .dtype = PAWL_U8, .rank = 2, .shape = shape, .data = out};
    struct pawl_tensor pieces[] = {kit_slice(&rows[0], want, 6, 10, data + 18),
                                   kit_slice(&rows[1], want, 0, 6, data)};
    struct ckpt_save save = {
        .step = 1, .unit_count = 1, .part_count = 1, .tensors = pieces, .tensor_count = 2};
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    assert_int_equal(storesim_open(sim, "d", false, &s, NULL), PAWL_OK);
    assert_int_equal(ckpt_open(&config, s, &c, NULL), PAWL_OK);
    assert_int_equal(ckpt_save_begin(c, &save, NULL), PAWL_OK);
    assert_int_equal(kit_wait(c, s).code, PAWL_OK);
    assert_int_equal(ckpt_close(c, kit_soon(), NULL), PAWL_OK);
    struct ckpt_set *set = NULL;
    assert_int_equal(ckpt_set_open(&s, 1, NULL, &set, NULL), PAWL_OK);
    assert_int_equal(ckpt_set_tensor_count(set, 0), 1);
    assert_string_equal(ckpt_set_tensor(set, 0, 0)->name, "a");
    assert_int_equal(ckpt_set_tensor(set, 0, 0)->shape[0], 10);
    assert_int_equal(ckpt_set_read(set, 0, &want, NULL), PAWL_OK);
    assert_memory_equal(out, data, 30);
    ckpt_set_close(set);
    store_close(s);
    storesim_free(sim);
}

/* Nothing is read: the addresses are all that a plan wants. Offsets of 32 bits would fold onto the beginning.
 */
static void places_beyond_4_gib_are_told_exactly(void **state) {
    (void)state;
    uint64_t large = (UINT64_C(5) << 30) + 17, odd = 1000003, wide[2] = {3, UINT64_C(1) << 31};
    uint8_t *anywhere = (uint8_t *)(uintptr_t)(UINT64_C(1) << 40);
    struct pawl_tensor tensors[] = {
        {.name = "large", .dtype = PAWL_U8, .rank = 1, .shape = &large, .data = anywhere},
        {.name = "odd", .dtype = PAWL_F32, .rank = 1, .shape = &odd, .data = anywhere + 3},
        {.name = "wide",
         .dtype = PAWL_BF16,
         .rank = 2,
         .shape = wide,
         .data = anywhere + (UINT64_C(1) << 36)},
    };
    const uint64_t sizes[] = {large, 4 * odd, 2 * wide[0] * wide[1]};
    struct ckpt_save save = {
        .step = 1, .unit_count = 1, .part_count = 1, .tensors = tensors, .tensor_count = 3};
    struct ckpt_config config = kit_config(1, 0, 1, 1);
    config.chunk_bytes = 64u << 20;
    struct slot_plan plan;
    struct slot_info info;
    struct bytes text = {0};
    struct pawl_error e = {0};
    if (slot_plan_make(&config, &save, &plan, &e) != PAWL_OK) fail_msg("%s", e.text);
    uint64_t at = 0;
    for (uint64_t i = 0; i < plan.chunk_count; at += plan.chunks[i++].bytes)
        assert_int_equal(plan.chunks[i].offset, at);
    assert_int_equal(at, plan.data_bytes);
    assert_true(plan.data_bytes >= sizes[0] + sizes[1] + sizes[2]);
    assert_int_equal(slot_plan_header(&plan, &text, &e), PAWL_OK);
    if (slot_parse(text.data, text.size, plan.header_bytes + plan.data_bytes, &info, &e) != PAWL_OK)
        fail_msg("%s", e.text);
    uint64_t begin[3], found = 0;
    for (uint32_t i = 0; i < info.header.tensor_count; i++)
        for (uint32_t k = 0; k < 3; k++) {
            if (strcmp(info.header.tensors[i].name, tensors[k].name) != 0) continue;
            assert_int_equal(info.header.tensors[i].bytes, sizes[k]);
            begin[k] = info.header.tensors[i].begin;
            found++;
        }
    assert_int_equal(found, 3);
    for (uint32_t k = 0; k < 3; k++) { /* where the plan takes the bytes from is where the header says */
        const struct slot_span *span = &plan.spans[slot_plan_span(&plan, begin[k] + sizes[k] - 1)];
        assert_ptr_equal(span->data + (begin[k] - span->begin), tensors[k].data);
        for (uint32_t j = 0; j < k; j++)
            assert_true(begin[j] + sizes[j] <= begin[k] || begin[k] + sizes[k] <= begin[j]);
    }
    assert_int_equal(info.chunk_count, plan.chunk_count);
    slot_info_close(&info);
    bytes_close(&text);
    slot_plan_close(&plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_around_every_boundary_come_back),
        cmocka_unit_test(any_mixture_of_types_shapes_and_addresses_comes_back),
        cmocka_unit_test(large_aligned_memory_is_written_from_where_it_lies),
        cmocka_unit_test(many_tiny_tensors_share_chunks_that_are_read_once),
        cmocka_unit_test(two_ranges_of_one_tensor_in_one_save_are_joined),
        cmocka_unit_test(places_beyond_4_gib_are_told_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
