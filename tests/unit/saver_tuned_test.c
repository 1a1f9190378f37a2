/* `pawl ckpt tune DIR --save` leaves a file; who opens DIR afterwards and leaves the choice open saves like
 * that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "kit/saver_kit.h"
#include "saver/saver.h"

/* Measured by hand: three in flight, 5 writers, chunks of 64 KiB; the result is that of a real machine else.
 */
static void write_result(const char *folder) {
    struct pawl_tune_result r = {.bytes = 1 << 20,
                                 .probe_bytes = 1 << 20,
                                 .store = "plain files",
                                 .device = {.mode = "page cache", .depth = 1, .piece_bytes = 4096},
                                 .need = {.bytes = 1 << 20, .iteration_s = 0.01, .overhead = 0.05, .keep = 1},
                                 .point_count = 1,
                                 .points = {{3, 5, 64 << 10, 0.5, 0.001}}};
    struct pawl_error e = {0};
    if (pawl_tune_choose(&r.need, r.points, 1, &r.choice, &e) != PAWL_OK) fail_msg("%s", e.text);
    char *text = pawl_tune_json(&r), path[600];
    skit_join(path, sizeof path, folder, "tune.json");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    free(text);
}

static struct pawl_ckpt *open_with(const struct pawl_ckpt_options *options) {
    struct pawl_ckpt *c = NULL;
    struct pawl_error e = {0};
    if (pawl_ckpt_open(options, &c, &e) != PAWL_OK) fail_msg("%s", e.text);
    return c;
}

static void what_was_measured_stands_where_options_leave_the_choice(void **state) {
    (void)state;
    char *folder = skit_folder();
    write_result(folder);
    struct pawl_ckpt *c = open_with(&(struct pawl_ckpt_options){.path = folder});
    assert_int_equal(c->options.in_flight, 3);
    assert_int_equal(c->options.writers, 5);
    assert_int_equal(c->options.chunk_bytes, 64 << 10);
    /* Tw/(N q t) = 0.5 / (3 * 1.05 * 0.01): the interval that is begun with. */
    assert_int_equal(c->status.every, 16);
    assert_int_equal(pawl_ckpt_close(c, skit_soon(), NULL), PAWL_OK);
    skit_remove(folder);
}

static void options_given_by_hand_stand_above_what_was_measured(void **state) {
    (void)state;
    char *folder = skit_folder();
    write_result(folder);
    struct pawl_ckpt *c = open_with(&(struct pawl_ckpt_options){
        .path = folder, .in_flight = 1, .writers = 2, .chunk_bytes = 8192, .every = 7});
    assert_int_equal(c->options.in_flight, 1);
    assert_int_equal(c->options.writers, 2);
    assert_int_equal(c->options.chunk_bytes, 8192);
    assert_int_equal(c->status.every, 7);
    assert_int_equal(pawl_ckpt_close(c, skit_soon(), NULL), PAWL_OK);
    skit_remove(folder);
}

static void advice_that_cannot_be_read_stops_nobody_and_is_told(void **state) {
    (void)state;
    char *folder = skit_folder(), path[600];
    skit_join(path, sizeof path, folder, "tune.json");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"pawl_tune\": 1, \"bytes\": -3}\n", f);
    assert_int_equal(fclose(f), 0);
    struct pawl_ckpt *c = open_with(&(struct pawl_ckpt_options){.path = folder});
    struct pawl_ckpt_status s;
    pawl_ckpt_status(c, &s);
    assert_int_equal(c->options.in_flight, 2);
    if (strstr(s.backend, "tune.json ignored") == NULL) fail_msg("'%s' does not tell", s.backend);
    assert_int_equal(pawl_ckpt_close(c, skit_soon(), NULL), PAWL_OK);
    skit_remove(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_measured_stands_where_options_leave_the_choice),
        cmocka_unit_test(options_given_by_hand_stand_above_what_was_measured),
        cmocka_unit_test(advice_that_cannot_be_read_stops_nobody_and_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
