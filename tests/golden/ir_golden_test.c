/* Plans written by every release still load. ir_plan_v1.bin and ir_plan_v1.txt were written once, from
 * 1F1B on 3 pipelines x 4 stages x 6 micro-batches with workers (1, 2) and (2, 0) dead; ir_plan_v2.bin and
 * ir_plan_v2.txt hold a plan with two chunks a worker, a helper that holds one more, a dead worker, every op
 * and messages to oneself; ir_plan_v3.bin and ir_plan_v3.txt one whose last pipelines are not full. None of
 * them ever changes.
 *
 * A binary file must decode to what its text file says. Versions 2 and 3 must be written again byte by byte,
 * until there is another; version 1 must equal a plan built today. If a builder is improved on purpose, only
 * that last comparison may be changed: it then pins the new order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "ir/ir.h"

static void load(const char *name, struct bytes *out) {
    char path[1024], block[4096];
    snprintf(path, sizeof path, "%s/tests/golden/%s", PAWL_SOURCE_DIR, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail_msg("cannot open %s", path);
    for (size_t size; (size = fread(block, 1, sizeof block, file)) > 0;) bytes_put(out, block, size);
    fclose(file);
}

static struct ir_plan *decode(const char *name) {
    struct bytes raw = {0};
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    load(name, &raw);
    if (ir_decode(raw.data, raw.size, &plan, &e) != PAWL_OK) fail_msg("%s: %s", name, e.text);
    if (ir_check(plan, NULL, NULL, &e) != PAWL_OK) fail_msg("%s: %s", name, e.text);
    bytes_close(&raw);
    return plan;
}

static struct ir_plan *parse(const char *name) {
    struct bytes text = {0};
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    load(name, &text);
    if (ir_parse((const char *)text.data, text.size, &plan, &e) != PAWL_OK) fail_msg("%s: %s", name, e.text);
    bytes_close(&text);
    return plan;
}

static void assert_bytes_equal(const struct bytes *had, const struct bytes *want) {
    assert_int_equal(had->size, want->size);
    assert_memory_equal(had->data, want->data, want->size);
}

/* The binary form says all there is to say of a plan. */
static void assert_same(const struct ir_plan *had, const struct ir_plan *want) {
    struct bytes a = {0}, b = {0};
    ir_encode(had, &a);
    ir_encode(want, &b);
    assert_bytes_equal(&a, &b);
    bytes_close(&a);
    bytes_close(&b);
}

static void binary_and_text_of_each_version_load_and_are_the_same_plan(void **state) {
    (void)state;
    static const char *const names[][2] = {{"ir_plan_v1.bin", "ir_plan_v1.txt"},
                                           {"ir_plan_v2.bin", "ir_plan_v2.txt"},
                                           {"ir_plan_v3.bin", "ir_plan_v3.txt"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct ir_plan *from_binary = decode(names[i][0]), *from_text = parse(names[i][1]);
        assert_same(from_binary, from_text);
        ir_plan_free(from_binary);
        ir_plan_free(from_text);
    }
}

static void assert_written_again(const char *binary_name, const char *text_name) {
    struct bytes binary = {0}, text = {0}, binary_again = {0}, text_again = {0};
    struct ir_plan *plan = decode(binary_name);
    load(binary_name, &binary);
    load(text_name, &text);
    ir_encode(plan, &binary_again);
    ir_print(plan, &text_again);
    assert_bytes_equal(&binary_again, &binary);
    assert_bytes_equal(&text_again, &text);
    ir_plan_free(plan);
    bytes_close(&binary);
    bytes_close(&text);
    bytes_close(&binary_again);
    bytes_close(&text_again);
}

static void versions_2_and_3_are_written_as_they_were(void **state) {
    (void)state;
    assert_written_again("ir_plan_v2.bin", "ir_plan_v2.txt");
    assert_written_again("ir_plan_v3.bin", "ir_plan_v3.txt");
}

static void version_3_has_a_pipeline_in_part_and_an_empty_one(void **state) {
    (void)state;
    struct ir_plan *plan = decode("ir_plan_v3.bin");
    uint32_t of_home[3] = {0};
    assert_int_equal(plan->pipelines, 3);
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++)
        for (uint32_t i = 0; i < plan->workers[w].count; i++)
            if (plan->workers[w].instructions[i].op == IR_F) of_home[plan->workers[w].instructions[i].home]++;
    assert_int_equal(of_home[0], plan->microbatches * plan->chunks);
    assert_int_equal(of_home[1], (plan->total - plan->microbatches) * plan->chunks);
    assert_true(of_home[1] > 0 && of_home[1] < of_home[0]);
    assert_int_equal(of_home[2], 0);
    ir_plan_free(plan);
}

static void version_2_shows_all_that_a_plan_can_say(void **state) {
    (void)state;
    struct ir_plan *plan = decode("ir_plan_v2.bin");
    uint32_t ops = 0, own_messages = 0, dead = 0, most_held = 0;
    for (uint32_t w = 0; w < plan->pipelines * plan->stages; w++) {
        const struct ir_worker *worker = &plan->workers[w];
        if (!worker->alive) dead++;
        if (worker->hold_count > most_held) most_held = worker->hold_count;
        for (uint32_t i = 0; i < worker->count; i++) {
            ops |= 1u << worker->instructions[i].op;
            if (worker->instructions[i].to == w) own_messages++;
        }
    }
    assert_int_equal(ops, (1u << IR_OP_COUNT) - 1);
    assert_int_equal(plan->chunks, 2 * plan->stages);
    assert_true(dead > 0 && own_messages > 0 && most_held == 3);
    ir_plan_free(plan);
}

static void a_plan_built_today_equals_the_stored_one(void **state) {
    (void)state;
    bool alive[12];
    struct ir_plan *built = NULL, *stored = decode("ir_plan_v1.bin");
    struct pawl_error e = {0};
    memset(alive, 1, sizeof alive);
    alive[1 * 4 + 2] = alive[2 * 4 + 0] = false;
    if (ir_build(IR_1F1B, 3, 4, 6, alive, &built, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_same(built, stored);
    ir_plan_free(built);
    ir_plan_free(stored);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binary_and_text_of_each_version_load_and_are_the_same_plan),
        cmocka_unit_test(versions_2_and_3_are_written_as_they_were),
        cmocka_unit_test(version_3_has_a_pipeline_in_part_and_an_empty_one),
        cmocka_unit_test(version_2_shows_all_that_a_plan_can_say),
        cmocka_unit_test(a_plan_built_today_equals_the_stored_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
