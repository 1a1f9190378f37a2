/* Plans written by every release still load: ir_plan_v1.bin and ir_plan_v1.txt were written once, from
 * 1F1B on 3 pipelines x 4 stages x 6 micro-batches with workers (1, 2) and (2, 0) dead, and never change.
 *
 * The binary file must decode to what the text file says, and both must equal a plan built today. If a
 * builder is improved on purpose, only the last comparison may be changed: it then pins the new order. */
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

static void assert_bytes_equal(const struct bytes *had, const struct bytes *want) {
    assert_int_equal(had->size, want->size);
    assert_memory_equal(had->data, want->data, want->size);
}

static void version_1_binary_and_text_load_and_are_the_same_plan(void **state) {
    (void)state;
    struct bytes binary = {0}, text = {0}, binary_again = {0}, text_again = {0};
    struct ir_plan *from_binary = NULL, *from_text = NULL;
    struct pawl_error e = {0};
    load("ir_plan_v1.bin", &binary);
    load("ir_plan_v1.txt", &text);
    if (ir_decode(binary.data, binary.size, &from_binary, &e) != PAWL_OK) fail_msg("%s", e.text);
    if (ir_parse((const char *)text.data, text.size, &from_text, &e) != PAWL_OK) fail_msg("%s", e.text);
    if (ir_check(from_binary, NULL, NULL, &e) != PAWL_OK) fail_msg("%s", e.text);
    ir_print(from_binary, &text_again);
    ir_encode(from_text, &binary_again);
    assert_bytes_equal(&text_again, &text);
    assert_bytes_equal(&binary_again, &binary);
    ir_plan_free(from_binary);
    ir_plan_free(from_text);
    bytes_close(&binary);
    bytes_close(&text);
    bytes_close(&binary_again);
    bytes_close(&text_again);
}

static void a_plan_built_today_equals_the_stored_one(void **state) {
    (void)state;
    bool alive[12];
    struct bytes stored = {0}, built = {0};
    struct ir_plan *plan = NULL;
    struct pawl_error e = {0};
    memset(alive, 1, sizeof alive);
    alive[1 * 4 + 2] = alive[2 * 4 + 0] = false;
    if (ir_build(IR_1F1B, 3, 4, 6, alive, &plan, &e) != PAWL_OK) fail_msg("%s", e.text);
    ir_encode(plan, &built);
    load("ir_plan_v1.bin", &stored);
    assert_bytes_equal(&built, &stored);
    ir_plan_free(plan);
    bytes_close(&stored);
    bytes_close(&built);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_1_binary_and_text_load_and_are_the_same_plan),
        cmocka_unit_test(a_plan_built_today_equals_the_stored_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
