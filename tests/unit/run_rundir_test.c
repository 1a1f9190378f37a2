/* The folder of a run: made once, kept apart from others, never overwritten when it is damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "run/rundir.h"

static char root[64];

static int make_root(void **state) {
    (void)state;
    strcpy(root, "/tmp/pawl-rundir-XXXXXX");
    if (mkdtemp(root) == NULL) return -1;
    char path[128];
    snprintf(path, sizeof path, "%s/text", root);
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 500; i++) fputs("some text to learn from\n", f);
    return fclose(f);
}

static int remove_root(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static struct spec make_spec(const char *width) {
    char text[1024];
    snprintf(text, sizeof text,
             "run: {dir: %s/deep/run, steps: 3}\n"
             "model: {layers: 2, heads: 2, width: %s, context: 8, vocabulary: 256}\n"
             "data: {path: %s/text, format: bytes}\n",
             root, width, root);
    struct spec spec;
    struct pawl_error e;
    if (spec_parse(text, strlen(text), "test", &spec, &e) != PAWL_OK) fail_msg("%s", e.text);
    return spec;
}

static void a_run_keeps_its_id_counts_its_starts_and_remembers(void **state) {
    (void)state;
    struct spec spec = make_spec("8");
    struct rundir d;
    assert_int_equal(rundir_open(&d, &spec, NULL), PAWL_OK);
    uint8_t id[CKPT_RUN_ID_BYTES];
    memcpy(id, d.run_id, sizeof id);
    assert_int_equal(d.incarnation, 0);
    assert_int_equal(rundir_begin(&d, NULL), PAWL_OK);
    assert_int_equal(rundir_note_durable(&d, NULL), PAWL_OK);
    struct rundir second;
    assert_int_equal(rundir_open(&second, &spec, NULL), PAWL_BUSY);
    rundir_close(&d);
    assert_int_equal(rundir_open(&d, &spec, NULL), PAWL_OK);
    assert_memory_equal(d.run_id, id, sizeof id);
    assert_int_equal(d.incarnation, 1);
    assert_true(d.had_durable);
    rundir_close(&d);
}

static void another_model_in_the_same_folder_is_foreign(void **state) {
    (void)state;
    struct spec spec = make_spec("8"), other = make_spec("16");
    struct rundir d;
    assert_int_equal(rundir_open(&d, &spec, NULL), PAWL_OK);
    rundir_close(&d);
    struct pawl_error e;
    assert_int_equal(rundir_open(&d, &other, &e), PAWL_FOREIGN);
    assert_non_null(strstr(e.text, "model.width"));
    assert_non_null(strstr(e.text, "--from-scratch"));
}

static void what_was_never_durable_may_begin_anew_and_nothing_else(void **state) {
    (void)state;
    struct spec spec = make_spec("8"), other = make_spec("16");
    struct rundir d;
    struct pawl_error e;
    assert_int_equal(rundir_open_anew(&d, &spec, NULL), PAWL_OK);
    assert_int_equal(d.foreign.code, PAWL_OK);
    assert_int_equal(rundir_begin(&d, NULL), PAWL_OK);
    rundir_close(&d);
    assert_int_equal(rundir_open_anew(&d, &other, NULL), PAWL_OK);
    assert_int_equal(d.foreign.code, PAWL_FOREIGN);
    assert_int_equal(rundir_take_over(&d, &other, NULL), PAWL_OK);
    rundir_close(&d);
    assert_int_equal(rundir_open(&d, &other, NULL), PAWL_FOREIGN); /* it had not begun */
    assert_int_equal(rundir_open_anew(&d, &other, NULL), PAWL_OK);
    assert_int_equal(rundir_take_over(&d, &other, NULL), PAWL_OK);
    assert_int_equal(rundir_begin(&d, NULL), PAWL_OK);
    assert_int_equal(d.incarnation, 2);
    assert_int_equal(rundir_note_durable(&d, NULL), PAWL_OK);
    rundir_close(&d);
    assert_int_equal(rundir_open_anew(&d, &spec, &e), PAWL_FOREIGN);
    assert_null(strstr(e.text, "--from-scratch"));
    assert_int_equal(rundir_open(&d, &other, NULL), PAWL_OK);
    rundir_close(&d);
}

static void put(const char *name, const char *text) {
    char path[160];
    snprintf(path, sizeof path, "%s/deep/run/%s", root, name);
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
}

static void a_damaged_run_file_is_refused_and_left_alone(void **state) {
    (void)state;
    static const char *const damaged[] = {
        "",
        "{",
        "[]",
        "{\"format\":1}",
        "{\"format\":2,\"run_id\":\"00\",\"incarnation\":1,\"had_durable\":true,"
        "\"identity\":\"\"}",
        "{\"format\":1,\"run_id\":\"zz\",\"incarnation\":-1,\"had_durable\":true,"
        "\"identity\":\"\"}"};
    struct spec spec = make_spec("8");
    struct rundir d;
    assert_int_equal(rundir_open(&d, &spec, NULL), PAWL_OK);
    rundir_close(&d);
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        put("run.json", damaged[i]);
        struct pawl_error e;
        assert_int_equal(rundir_open(&d, &spec, &e), PAWL_FORMAT);
        assert_non_null(strstr(e.text, "run.json"));
        char path[160], back[512] = "";
        snprintf(path, sizeof path, "%s/deep/run/run.json", root);
        FILE *f = fopen(path, "r");
        size_t n = fread(back, 1, sizeof back - 1, f);
        fclose(f);
        assert_int_equal(n, strlen(damaged[i]));
        assert_string_equal(back, damaged[i]);
    }
}

static void stores_without_a_run_file_belong_to_nobody(void **state) {
    (void)state;
    struct spec spec = make_spec("8");
    char path[160];
    struct rundir d;
    assert_int_equal(rundir_open(&d, &spec, NULL), PAWL_OK);
    rundir_close(&d);
    snprintf(path, sizeof path, "%s/deep/run/store", root);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/deep/run/run.json", root);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rundir_open(&d, &spec, NULL), PAWL_FOREIGN);
}

static void the_last_step_is_read_from_a_log_with_a_torn_end(void **state) {
    (void)state;
    struct spec spec = make_spec("8");
    struct rundir d;
    assert_int_equal(rundir_open(&d, &spec, NULL), PAWL_OK);
    assert_int_equal(rundir_last_step(&d), 0);
    put("log.jsonl", "{\"event\":\"step\",\"step\":4}\n{\"event\":\"durable\",\"step\":9}\nnonsense\n"
                     "{\"event\":\"step\",\"step\":5}\n{\"event\":\"step\",\"st");
    assert_int_equal(rundir_last_step(&d), 5);
    rundir_close(&d);
}

static void what_was_lost_is_the_time_from_the_step_that_remains_to_the_last_one(void **state) {
    (void)state;
    struct spec spec = make_spec("8");
    struct rundir d;
    assert_int_equal(rundir_open(&d, &spec, NULL), PAWL_OK);
    put("log.jsonl", "{\"time\":\"2026-01-31T12:00:00.000Z\",\"event\":\"start\"}\n"
                     "{\"time\":\"2026-01-31T12:00:01.000Z\",\"event\":\"go\"}\n"
                     "{\"time\":\"2026-01-31T12:00:02.500Z\",\"event\":\"step\",\"step\":1}\n"
                     "{\"time\":\"2026-01-31T23:59:59.000Z\",\"event\":\"step\",\"step\":2}\n"
                     "{\"time\":\"yesterday\",\"event\":\"go\"}\n"
                     "{\"time\":\"2026-02-01T00:00:01.250Z\",\"event\":\"step\",\"step\":3}\n");
    assert_true(rundir_lost_seconds(&d, 2) == 2.25);
    assert_true(rundir_lost_seconds(&d, 0) == 43200.25); /* since the first go after the start */
    assert_true(rundir_lost_seconds(&d, 3) == 0);
    assert_true(rundir_lost_seconds(&d, 7) == 0);
    rundir_close(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_run_keeps_its_id_counts_its_starts_and_remembers, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(another_model_in_the_same_folder_is_foreign, make_root, remove_root),
        cmocka_unit_test_setup_teardown(what_was_never_durable_may_begin_anew_and_nothing_else, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(a_damaged_run_file_is_refused_and_left_alone, make_root, remove_root),
        cmocka_unit_test_setup_teardown(stores_without_a_run_file_belong_to_nobody, make_root, remove_root),
        cmocka_unit_test_setup_teardown(what_was_lost_is_the_time_from_the_step_that_remains_to_the_last_one,
                                        make_root, remove_root),
        cmocka_unit_test_setup_teardown(the_last_step_is_read_from_a_log_with_a_torn_end, make_root,
                                        remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
