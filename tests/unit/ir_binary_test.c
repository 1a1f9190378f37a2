/* What docs/formats/plan.md promises of the binary form. */
#include "ir_oracle.h"

#include <stdio.h>

#include "base/hash.h"

#define HASH_BYTES 8u

static struct ir_plan *sample(void) {
    bool alive[6] = {true, false, true, true, true, true};
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    if (ir_build(IR_1F1B, 2, 3, 2, alive, &plan, &e) != PAWL_OK) fail_msg("%s", e.text);
    struct ir_plan *split = plan_split(plan, 1);
    ir_plan_free(plan);
    return split;
}

static void assert_same(const struct ir_plan *a, const struct ir_plan *b) {
    assert_int_equal(a->pipelines, b->pipelines);
    assert_int_equal(a->stages, b->stages);
    assert_int_equal(a->microbatches, b->microbatches);
    for (uint32_t w = 0; w < a->pipelines * a->stages; w++) {
        assert_int_equal(a->workers[w].alive, b->workers[w].alive);
        assert_int_equal(a->workers[w].count, b->workers[w].count);
        for (uint32_t i = 0; i < a->workers[w].count; i++) {
            struct ir_instruction x = a->workers[w].instructions[i], y = b->workers[w].instructions[i];
            assert_int_equal(x.op, y.op);
            assert_int_equal(x.home, y.home);
            assert_int_equal(x.microbatch, y.microbatch);
            assert_int_equal(x.from, y.from);
            assert_int_equal(x.to, y.to);
        }
    }
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
        assert_same(plan, back);
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
    assert_same(plan, back);
    ir_plan_free(plan);
    ir_plan_free(back);
    bytes_close(&raw);
}

static void the_largest_indices_read_back(void **state) {
    (void)state;
    struct ir_plan *plan = NULL, *back = NULL;
    struct pawl_error e = {0};
    struct bytes raw = {0};
    assert_int_equal(ir_plan_new(IR_PIPELINES_MAX, 2, IR_MICROBATCHES_MAX, &plan, &e), PAWL_OK);
    struct ir_instruction in = {IR_F, IR_PIPELINES_MAX - 1, IR_MICROBATCHES_MAX - 1, IR_PIPELINES_MAX - 1,
                                IR_NONE};
    assert_int_equal(ir_plan_append(plan, IR_PIPELINES_MAX - 1, 1, in, &e), PAWL_OK);
    ir_encode(plan, &raw);
    assert_int_equal(ir_decode(raw.data, raw.size, &back, &e), PAWL_OK);
    assert_same(plan, back);
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
    struct ir_plan *plan = sample();
    struct ir_instruction *in = &plan->workers[0].instructions[0];
    uint32_t right = in->to;
    static const uint32_t wrong[] = {2, UINT16_MAX, UINT16_MAX + 2}; /* of 2 pipelines */
    for (size_t i = 0; i < 3; i++) {
        in->to = wrong[i];
        assert_not_encoded(plan);
    }
    in->to = right;
    in->op = IR_OP_COUNT;
    assert_not_encoded(plan);
    in->op = IR_R; /* with a micro-batch */
    assert_not_encoded(plan);
    in->op = IR_F;
    plan->workers[0].alive = false;
    assert_not_encoded(plan);
    ir_plan_free(plan);
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    struct ir_plan *plan = sample(), *back = NULL;
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

static void every_flipped_bit_is_refused(void **state) {
    (void)state;
    struct ir_plan *plan = sample(), *back = NULL;
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

static void seal(struct bytes *raw) {
    uint64_t hash = hash64(raw->data, raw->size - HASH_BYTES);
    raw->size -= HASH_BYTES;
    bytes_put_u64(raw, hash);
}

/* With a checksum made to fit, a changed byte is refused or means another plan whose only form it is: no
 * byte is ignored. */
static void every_byte_means_something_even_under_a_fitting_checksum(void **state) {
    (void)state;
    struct ir_plan *plan = sample();
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
            assert_int_equal(again.size, raw.size);
            assert_memory_equal(again.data, raw.data, raw.size);
            ir_plan_free(back);
        }
        raw.data[at] = right;
    }
    assert_true(taken > 0 && refused > taken);
    ir_plan_free(plan);
    bytes_close(&raw);
    bytes_close(&again);
}

static void put_header(struct bytes *raw, uint32_t version, uint32_t pipelines, uint32_t stages,
                       uint32_t microbatches, uint64_t size) {
    bytes_clear(raw);
    bytes_put(raw, "PAWLPLAN", 8);
    bytes_put_u32(raw, version);
    bytes_put_u32(raw, pipelines);
    bytes_put_u32(raw, stages);
    bytes_put_u32(raw, microbatches);
    bytes_put_u64(raw, size);
}

static void assert_format(struct bytes *raw, const char *words) {
    struct ir_plan *back = NULL;
    struct pawl_error e = {0};
    assert_int_equal(ir_decode(raw->data, raw->size, &back, &e), PAWL_FORMAT);
    if (strstr(e.text, words) == NULL) fail_msg("had \"%s\", wanted \"%s\"", e.text, words);
}

static void sizes_that_the_bytes_cannot_hold_are_refused(void **state) {
    (void)state;
    struct bytes raw = {0};
    put_header(&raw, 1, IR_PIPELINES_MAX, IR_STAGES_MAX, 1, 40);
    bytes_put_u64(&raw, hash64(raw.data, raw.size));
    assert_format(&raw, "offset 12: 4096 x 1024 workers");
    put_header(&raw, 1, UINT32_MAX, UINT32_MAX, UINT32_MAX, 40);
    bytes_put_u64(&raw, hash64(raw.data, raw.size));
    assert_format(&raw, "offset 12");
    put_header(&raw, 1, 0, 5, 1, 40);
    bytes_put_u64(&raw, hash64(raw.data, raw.size));
    assert_format(&raw, "offset 12: sizes 0 x 5 x 1");
    put_header(&raw, 1, 1, 1, 1, 45);
    bytes_put_u8(&raw, 1);
    bytes_put_u32(&raw, UINT32_MAX); /* instructions */
    bytes_put_u64(&raw, hash64(raw.data, raw.size));
    assert_format(&raw, "offset 33: count is 4294967295, but 0");
    bytes_close(&raw);
}

static void another_version_or_magic_is_named(void **state) {
    (void)state;
    struct bytes raw = {0};
    put_header(&raw, 2, 1, 1, 1, 40);
    bytes_put_u64(&raw, hash64(raw.data, raw.size));
    assert_format(&raw, "version is 2, wanted 1");
    raw.data[0] = 'Q';
    assert_format(&raw, "PAWLPLAN");
    bytes_clear(&raw);
    assert_format(&raw, "0 bytes");
    bytes_close(&raw);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_reads_back_as_it_was),
        cmocka_unit_test(encoding_appends_to_what_is_there),
        cmocka_unit_test(the_largest_indices_read_back),
        cmocka_unit_test(a_plan_that_the_form_cannot_hold_fails_to_encode),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(every_byte_means_something_even_under_a_fitting_checksum),
        cmocka_unit_test(sizes_that_the_bytes_cannot_hold_are_refused),
        cmocka_unit_test(another_version_or_magic_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
