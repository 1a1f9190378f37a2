/* What docs/formats/plan.md promises of the binary form. */
#include "ir_random.h"

#include <stdio.h>

#include "base/hash.h"

#define HASH_BYTES 8u

/* A little of everything: two chunks a worker, a dead one, a helper, every op. */
static struct ir_plan *sample(void) {
    static const struct random_shape shape = {.pipelines = 2,
                                              .stages = 2,
                                              .chunks = 3,
                                              .microbatches = 2,
                                              .dead = 0x4,
                                              .helpers = 1,
                                              .memory = true};
    return random_plan(5, &shape);
}

/* The same with a pipeline that is not full: version 3. */
static struct ir_plan *limited_sample(void) {
    static const struct random_shape shape = {.pipelines = 2,
                                              .stages = 2,
                                              .chunks = 3,
                                              .microbatches = 2,
                                              .total = 3,
                                              .dead = 0x4,
                                              .helpers = 1,
                                              .memory = true};
    return random_plan(5, &shape);
}

static void the_sample_has_every_op(void **state) {
    (void)state;
    struct ir_plan *plan = sample();
    uint32_t seen = 0;
    for (uint32_t w = 0; w < 4; w++)
        for (uint32_t i = 0; i < plan->workers[w].count; i++)
            seen |= 1u << plan->workers[w].instructions[i].op;
    assert_int_equal(seen, (1u << IR_OP_COUNT) - 1);
    ir_plan_free(plan);
}

static void a_plan_reads_back_as_it_was(void **state) {
    (void)state;
    struct rng_stream rng = {.state = 3};
    static bool alive[64];
    for (int i = 0; i < 100; i++) {
        uint32_t pipelines = 1 + (uint32_t)rng_below(&rng, 8), stages = 1 + (uint32_t)rng_below(&rng, 8);
        struct ir_plan *plan = NULL, *back = NULL;
        struct pawl_error e = {0};
        struct bytes raw = {0};
        alive_at_random(&rng, pipelines, stages, alive);
        assert_int_equal(ir_build((enum ir_schedule)(i % 2), pipelines, stages,
                                  1 + (uint32_t)rng_below(&rng, 9), alive, &plan, &e),
                         PAWL_OK);
        ir_encode(plan, &raw);
        assert_false(raw.failed);
        if (ir_decode(raw.data, raw.size, &back, &e) != PAWL_OK) fail_msg("%s", e.text);
        assert_same_plan(plan, back);
        ir_plan_free(plan);
        ir_plan_free(back);
        bytes_close(&raw);
    }
}

static void plans_of_every_kind_read_back(void **state) {
    (void)state;
    struct rng_stream rng = {.state = 23};
    for (int i = 0; i < 300; i++) {
        struct random_shape shape = random_any_shape(&rng);
        struct ir_plan *plan = random_plan(rng_next(&rng), &shape), *back = NULL;
        struct pawl_error e = {0};
        struct bytes raw = {0};
        ir_encode(plan, &raw);
        assert_false(raw.failed);
        if (ir_decode(raw.data, raw.size, &back, &e) != PAWL_OK) fail_msg("%s", e.text);
        assert_same_plan(plan, back);
        ir_plan_free(plan);
        ir_plan_free(back);
        bytes_close(&raw);
    }
}

static void encoding_appends_to_what_is_there(void **state) {
    (void)state;
    struct ir_plan *plan = sample(), *back = NULL;
    struct pawl_error e = {0};
    struct bytes raw = {0};
    bytes_put_u8(&raw, 0x55);
    ir_encode(plan, &raw);
    assert_int_equal(raw.data[0], 0x55);
    assert_int_equal(ir_decode(raw.data + 1, raw.size - 1, &back, &e), PAWL_OK);
    assert_same_plan(plan, back);
    ir_plan_free(plan);
    ir_plan_free(back);
    bytes_close(&raw);
}

static void the_largest_indices_read_back(void **state) {
    (void)state;
    struct ir_plan *plan = NULL, *back = NULL;
    struct pawl_error e = {0};
    struct bytes raw = {0};
    assert_int_equal(ir_plan_new_chunks(IR_PIPELINES_MAX, 16, IR_CHUNKS_MAX, IR_MICROBATCHES_MAX, &plan, &e),
                     PAWL_OK);
    struct ir_instruction in = {
        IR_I, IR_CHUNKS_MAX - 1, IR_PIPELINES_MAX - 1, IR_MICROBATCHES_MAX - 1, IR_WORKERS_MAX - 1, IR_NONE};
    assert_int_equal(ir_plan_hold(plan, IR_WORKERS_MAX - 1, IR_CHUNKS_MAX - 1, &e), PAWL_OK);
    assert_int_equal(ir_plan_append(plan, IR_PIPELINES_MAX - 1, 15, in, &e), PAWL_OK);
    ir_encode(plan, &raw);
    assert_int_equal(ir_decode(raw.data, raw.size, &back, &e), PAWL_OK);
    assert_same_plan(plan, back);
    ir_plan_free(plan);
    ir_plan_free(back);
    bytes_close(&raw);
}

static void assert_not_encoded(const struct ir_plan *plan) {
    struct bytes raw = {0};
    ir_encode(plan, &raw);
    assert_true(raw.failed);
    bytes_close(&raw);
}

static void a_plan_that_the_form_cannot_hold_fails_to_encode(void **state) {
    (void)state;
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    assert_int_equal(ir_build(IR_1F1B, 2, 3, 2, NULL, &plan, &e), PAWL_OK);
    struct ir_instruction *in = &plan->workers[0].instructions[0];
    uint32_t right = in->to;
    static const uint32_t wrong[] = {6, UINT16_MAX, IR_WORKERS_MAX, IR_NONE - 1}; /* of 6 workers */
    for (size_t i = 0; i < 4; i++) {
        in->to = wrong[i];
        assert_not_encoded(plan);
    }
    in->to = right;
    in->op = IR_OP_COUNT;
    assert_not_encoded(plan);
    in->op = IR_R; /* with a micro-batch */
    assert_not_encoded(plan);
    in->op = IR_F;
    in->chunk = 3;
    assert_not_encoded(plan);
    in->chunk = 0;
    plan->workers[0].holds[0] = 3;
    assert_not_encoded(plan);
    plan->workers[0].holds[0] = 0;
    plan->workers[0].alive = false;
    assert_not_encoded(plan);
    plan->workers[0].count = 0; /* but it still holds a chunk */
    assert_not_encoded(plan);
    ir_plan_free(plan);
    plan = limited_sample();
    plan->total = 5; /* of 2 x 2 */
    assert_not_encoded(plan);
    plan->total = 2; /* the lists have three */
    assert_not_encoded(plan);
    ir_plan_free(plan);
}

static void refuse_truncations(struct ir_plan *plan) {
    struct ir_plan *back = NULL;
    struct pawl_error e = {0};
    struct bytes raw = {0};
    ir_encode(plan, &raw);
    for (size_t size = 0; size < raw.size; size++) {
        uint8_t *exact = malloc(size + 1); /* so that a sanitizer sees a read behind the end */
        assert_non_null(exact);
        memcpy(exact, raw.data, size);
        exact = realloc(exact, size == 0 ? 1 : size);
        if (ir_decode(exact, size, &back, &e) != PAWL_FORMAT) fail_msg("%zu bytes were taken", size);
        assert_null(back);
        free(exact);
    }
    bytes_put_u8(&raw, 0);
    assert_int_equal(ir_decode(raw.data, raw.size, &back, &e), PAWL_FORMAT);
    ir_plan_free(plan);
    bytes_close(&raw);
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    refuse_truncations(sample());
    refuse_truncations(limited_sample());
}

static void refuse_flips(struct ir_plan *plan) {
    struct ir_plan *back = NULL;
    struct pawl_error e = {0};
    struct bytes raw = {0};
    ir_encode(plan, &raw);
    for (size_t bit = 0; bit < raw.size * 8; bit++) {
        raw.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (ir_decode(raw.data, raw.size, &back, &e) != PAWL_FORMAT)
            fail_msg("flipped bit %zu was taken", bit);
        raw.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    ir_plan_free(plan);
    bytes_close(&raw);
}

static void every_flipped_bit_is_refused(void **state) {
    (void)state;
    refuse_flips(sample());
    refuse_flips(limited_sample());
}

static void seal(struct bytes *raw) {
    uint64_t hash = hash64(raw->data, raw->size - HASH_BYTES);
    raw->size -= HASH_BYTES;
    bytes_put_u64(raw, hash);
}

/* With a checksum made to fit, a changed byte is refused or means another plan whose only form it is: no
 * byte is ignored. */
static void change_every_byte(struct ir_plan *plan) {
    struct pawl_error e = {0};
    struct bytes raw = {0}, again = {0};
    uint32_t taken = 0, refused = 0;
    ir_encode(plan, &raw);
    for (size_t at = 0; at < raw.size - HASH_BYTES; at++) {
        uint8_t right = raw.data[at];
        for (int value = 0; value < 256; value++) {
            struct ir_plan *back = NULL;
            if (value == right) continue;
            raw.data[at] = (uint8_t)value;
            seal(&raw);
            pawl_code code = ir_decode(raw.data, raw.size, &back, &e);
            if (code == PAWL_FORMAT && strstr(e.text, "offset") == NULL) fail_msg("%s", e.text);
            if (code != PAWL_FORMAT) assert_int_equal(code, PAWL_OK);
            *(code == PAWL_OK ? &taken : &refused) += 1;
            if (code != PAWL_OK) continue;
            bytes_clear(&again);
            ir_encode(back, &again);
            if (again.size != raw.size || memcmp(again.data, raw.data, raw.size) != 0)
                fail_msg("byte %zu as %d is ignored", at, value);
            ir_plan_free(back);
        }
        raw.data[at] = right;
    }
    assert_true(taken > 0 && refused > taken);
    ir_plan_free(plan);
    bytes_close(&raw);
    bytes_close(&again);
}

static void every_byte_means_something_even_under_a_fitting_checksum(void **state) {
    (void)state;
    change_every_byte(sample());
    change_every_byte(limited_sample());
}

/* Version 2 with as many chunks as stages, unless more is put behind. */
static void put_header(struct bytes *raw, uint32_t version, uint32_t pipelines, uint32_t stages,
                       uint32_t microbatches, uint64_t size) {
    bytes_clear(raw);
    bytes_put(raw, "PAWLPLAN", 8);
    bytes_put_u32(raw, version);
    bytes_put_u32(raw, pipelines);
    bytes_put_u32(raw, stages);
    bytes_put_u32(raw, microbatches);
    bytes_put_u64(raw, size);
    if (version > 1) bytes_put_u32(raw, stages);
}

static void put_hash(struct bytes *raw) { bytes_put_u64(raw, hash64(raw->data, raw->size)); }

static void assert_format(struct bytes *raw, const char *words) {
    struct ir_plan *back = NULL;
    struct pawl_error e = {0};
    assert_int_equal(ir_decode(raw->data, raw->size, &back, &e), PAWL_FORMAT);
    if (strstr(e.text, words) == NULL) fail_msg("had \"%s\", wanted \"%s\"", e.text, words);
}

static void sizes_that_the_bytes_cannot_hold_are_refused(void **state) {
    (void)state;
    struct bytes raw = {0};
    for (uint32_t version = 1; version <= 2; version++) {
        uint64_t size = version == 1 ? 40 : 44;
        put_header(&raw, version, IR_PIPELINES_MAX, IR_STAGES_MAX, 1, size);
        put_hash(&raw);
        assert_format(&raw, "offset 12: 4096 x 1024 workers");
        put_header(&raw, version, UINT32_MAX, UINT32_MAX, UINT32_MAX, size);
        put_hash(&raw);
        assert_format(&raw, "offset 12");
        put_header(&raw, version, 0, 5, 1, size);
        put_hash(&raw);
        assert_format(&raw, "offset 12: sizes 0 x 5 x 1");
        put_header(&raw, version, 1, 1, 1, size + (version == 1 ? 5 : 7));
        bytes_put_u8(&raw, 1);
        if (version > 1) bytes_put_u16(&raw, 0);
        bytes_put_u32(&raw, UINT32_MAX); /* instructions */
        put_hash(&raw);
        assert_format(&raw, version == 1 ? "offset 33: count is 4294967295, but 0"
                                         : "offset 39: count is 4294967295, but 0");
    }
    bytes_close(&raw);
}

/* One worker of 1 x 1 x 1 with 3 chunks that holds what is given. */
static void put_holder(struct bytes *raw, const uint16_t *holds, uint16_t count, uint16_t said) {
    bytes_clear(raw);
    put_header(raw, 2, 1, 1, 1, 36 + 7 + 2u * count + 8);
    raw->data[32] = 3;
    bytes_put_u8(raw, 1);
    bytes_put_u16(raw, said);
    bytes_put_u32(raw, 0);
    for (uint16_t i = 0; i < count; i++) bytes_put_u16(raw, holds[i]);
    put_hash(raw);
}

static void chunks_of_a_worker_that_are_not_ascending_are_refused(void **state) {
    (void)state;
    struct bytes raw = {0};
    struct ir_plan *back = NULL;
    struct pawl_error e = {0};
    put_holder(&raw, (uint16_t[]){0, 2}, 2, 2);
    assert_int_equal(ir_decode(raw.data, raw.size, &back, &e), PAWL_OK);
    assert_true(ir_plan_holds(back, 0, 0) && !ir_plan_holds(back, 0, 1) && ir_plan_holds(back, 0, 2));
    ir_plan_free(back);
    put_holder(&raw, (uint16_t[]){2, 0}, 2, 2);
    assert_format(&raw, "offset 45: chunk is 0, wanted one from 3 and below 3");
    put_holder(&raw, (uint16_t[]){1, 1}, 2, 2);
    assert_format(&raw, "offset 45: chunk is 1, wanted one from 2 and below 3");
    put_holder(&raw, (uint16_t[]){3}, 1, 1);
    assert_format(&raw, "offset 43: chunk is 3, wanted one from 0 and below 3");
    put_holder(&raw, (uint16_t[]){0, 1}, 2, 3);
    assert_format(&raw, "offset 37: 3 chunks, but 4 bytes are left");
    bytes_close(&raw);
}

/* Worker (0, 1) of 1 x 2 x 1, version 1: one instruction with `from` and `to` as given. */
static void put_version_1(struct bytes *raw, uint8_t op, uint16_t from, uint16_t to) {
    put_header(raw, 1, 1, 2, 1, 32 + 5 + 5 + 9 + 8);
    bytes_put_u8(raw, 1);
    bytes_put_u32(raw, 0);
    bytes_put_u8(raw, 1);
    bytes_put_u32(raw, 1);
    bytes_put_u8(raw, op);
    bytes_put_u16(raw, 0);
    bytes_put_u16(raw, 0);
    bytes_put_u16(raw, from);
    bytes_put_u16(raw, to);
    put_hash(raw);
}

static void pipelines_in_version_1_become_workers(void **state) {
    (void)state;
    static const struct {
        uint8_t op;
        uint16_t from, to;
        uint32_t want_from, want_to;
    } cases[] = {{IR_F, 0, UINT16_MAX, 0, IR_NONE}, {IR_I, UINT16_MAX, 0, IR_NONE, 0}};
    struct bytes raw = {0};
    struct pawl_error e = {0};
    for (size_t i = 0; i < 2; i++) {
        struct ir_plan *back = NULL;
        put_version_1(&raw, cases[i].op, cases[i].from, cases[i].to);
        if (ir_decode(raw.data, raw.size, &back, &e) != PAWL_OK) fail_msg("%s", e.text);
        struct ir_instruction in = back->workers[1].instructions[0];
        assert_int_equal(in.chunk, 1);
        assert_int_equal(in.from, cases[i].want_from);
        assert_int_equal(in.to, cases[i].want_to);
        assert_true(ir_plan_holds(back, 1, 1) && !ir_plan_holds(back, 1, 0));
        ir_plan_free(back);
    }
    put_version_1(&raw, IR_F, 0, 0); /* behind the last stage there is none */
    assert_format(&raw, "offset 42: to out of range");
    put_version_1(&raw, IR_B, 1, UINT16_MAX);
    assert_format(&raw, "offset 42: from out of range");
    put_version_1(&raw, IR_C, UINT16_MAX, UINT16_MAX);
    assert_format(&raw, "offset 42: unknown op");
    bytes_close(&raw);
}

/* Version 3 of 2 x 1 x 2, both workers idle. */
static void put_total(struct bytes *raw, uint32_t total) {
    put_header(raw, 3, 2, 1, 2, 36 + 4 + 2 * 7 + 8);
    bytes_put_u32(raw, total);
    for (int i = 0; i < 2; i++) {
        bytes_put_u8(raw, 1);
        bytes_put_u16(raw, 0);
        bytes_put_u32(raw, 0);
    }
    put_hash(raw);
}

static void version_3_has_fewer_micro_batches_than_full_pipelines(void **state) {
    (void)state;
    struct bytes raw = {0};
    struct ir_plan *back = NULL;
    struct pawl_error e = {0};
    put_total(&raw, 3);
    if (ir_decode(raw.data, raw.size, &back, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(back->total, 3);
    ir_plan_free(back);
    put_total(&raw, 0);
    assert_format(&raw, "offset 36: micro-batches in all are 0, wanted one from 1 and below 4");
    put_total(&raw, 4);
    assert_format(&raw, "offset 36: micro-batches in all are 4, wanted one from 1 and below 4");
    bytes_close(&raw);
}

static void another_version_or_magic_is_named(void **state) {
    (void)state;
    struct bytes raw = {0};
    put_header(&raw, 4, 1, 1, 1, 44);
    put_hash(&raw);
    assert_format(&raw, "offset 8: version is 4, wanted 1..3");
    raw.data[8] = 0;
    assert_format(&raw, "offset 8: version is 0, wanted 1..3");
    raw.data[0] = 'Q';
    assert_format(&raw, "PAWLPLAN");
    bytes_clear(&raw);
    assert_format(&raw, "0 bytes");
    put_header(&raw, 1, 1, 1, 1, 40);
    raw.data[8] = 2;
    put_hash(&raw); /* a header of version 2 has 4 bytes more */
    assert_format(&raw, "ends inside the header");
    bytes_close(&raw);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sample_has_every_op),
        cmocka_unit_test(a_plan_reads_back_as_it_was),
        cmocka_unit_test(plans_of_every_kind_read_back),
        cmocka_unit_test(encoding_appends_to_what_is_there),
        cmocka_unit_test(the_largest_indices_read_back),
        cmocka_unit_test(a_plan_that_the_form_cannot_hold_fails_to_encode),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(every_byte_means_something_even_under_a_fitting_checksum),
        cmocka_unit_test(sizes_that_the_bytes_cannot_hold_are_refused),
        cmocka_unit_test(chunks_of_a_worker_that_are_not_ascending_are_refused),
        cmocka_unit_test(pipelines_in_version_1_become_workers),
        cmocka_unit_test(version_3_has_fewer_micro_batches_than_full_pipelines),
        cmocka_unit_test(another_version_or_magic_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
