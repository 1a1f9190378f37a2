/* What src/saver/run.h and starts.h promise of the small files of a run's folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "kit/saver_kit.h"
#include "saver/starts.h"

static struct saver_run open_run(const char *path) {
    struct saver_run run;
    SKIT_MUST(run_open(path, &(struct run_open){0}, &run, e));
    return run;
}

static void write_text(const struct saver_run *run, const char *folder, const char *name, const char *text) {
    char *path = run_path(run, folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    free(path);
}

struct maker {
    const struct saver_run *run;
    uint32_t number;
    pawl_code code;
};

static void *make(void *arg) {
    struct maker *m = arg;
    char text[32];
    snprintf(text, sizeof text, "maker %u\n", m->number);
    m->code = run_make(m->run, "some", "file", text, NULL);
    return NULL;
}

static void of_several_makers_the_first_wins_and_its_text_stays(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct saver_run run = open_run(path);
    struct maker makers[8];
    pthread_t threads[8];
    for (uint32_t i = 0; i < 8; i++) {
        makers[i] = (struct maker){&run, i, PAWL_INTERNAL};
        assert_int_equal(pthread_create(&threads[i], NULL, make, &makers[i]), 0);
    }
    uint32_t winner = 8;
    for (uint32_t i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        if (makers[i].code == PAWL_OK) {
            assert_int_equal(winner, 8);
            winner = i;
        } else {
            assert_int_equal(makers[i].code, PAWL_BUSY);
        }
    }
    char *text = NULL, wanted[32];
    SKIT_MUST(run_read(&run, "some", "file", &text, e));
    snprintf(wanted, sizeof wanted, "maker %u\n", winner);
    assert_string_equal(text, wanted);
    free(text);
    char **names = NULL;
    uint32_t count = 0;
    SKIT_MUST(run_list(&run, "some", &names, &count, e));
    assert_int_equal(count, 1); /* no temporary file is left, hidden or not */
    store_names_free(names, count);
    run_close(&run);
    skit_remove(path);
}

static void damaged_or_newer_identity_is_refused_and_not_replaced(void **unused) {
    (void)unused;
    static const struct {
        const char *text;
        pawl_code code;
    } cases[] = {
        {"", PAWL_CORRUPT},
        {"pawl run 1\nrun 00112233445566778899aabbccddeef\n", PAWL_CORRUPT},
        {"pawl run 1\nrun 00112233445566778899aabbccddeeff", PAWL_CORRUPT},
        {"pawl run 1\nrun 00112233445566778899aabbccddeeff\nmore\n", PAWL_CORRUPT},
        {"pawl run 1\nrun 00112233445566778899AABBCCDDEEFF\n", PAWL_CORRUPT},
        {"pawl run 2\nrun 00112233445566778899aabbccddeeff\n", PAWL_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *path = skit_folder(), *text = NULL;
        struct saver_run run = open_run(path), again;
        struct pawl_error why = {0};
        write_text(&run, "", "RUN", cases[i].text);
        assert_int_equal(run_open(path, &(struct run_open){0}, &again, &why), cases[i].code);
        SKIT_MUST(run_read(&run, "", "RUN", &text, e));
        assert_string_equal(text, cases[i].text);
        free(text);
        run_close(&run);
        skit_remove(path);
    }
}

static void folder_of_pawl_train_is_refused(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct saver_run run = {.path = path}, opened;
    struct pawl_error why = {0};
    write_text(&run, "", "run.json", "{}");
    assert_int_equal(run_open(path, &(struct run_open){0}, &opened, &why), PAWL_FOREIGN);
    assert_non_null(strstr(why.text, "pawl train"));
    skit_remove(path);
}

static void marks_read_back_and_other_names_are_ignored(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct saver_run run = open_run(path);
    struct ckpt_marks marks;
    SKIT_MUST(run_marks(&run, &marks, e));
    assert_int_equal(marks.count, 0);
    ckpt_marks_close(&marks);
    SKIT_MUST(run_mark_bad(&run, 12, 3, "because", e));
    SKIT_MUST(run_mark_bad(&run, 12, 3, "again", e));
    SKIT_MUST(run_mark_scratch(&run, 4, e));
    static const char *const others[] = {"12", "12-", "012-3", "12-3x", "-1-3", "12-03"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) write_text(&run, "bad", others[i], "x");
    write_text(&run, "scratch", "4x", "x");
    SKIT_MUST(run_marks(&run, &marks, e));
    assert_int_equal(marks.count, 2);
    assert_true(ckpt_marks_bad(&marks, 12, 3));
    assert_false(ckpt_marks_bad(&marks, 12, 4));
    assert_false(ckpt_marks_bad(&marks, 3, 12));
    assert_int_equal(marks.items[1].step, 0);
    assert_int_equal(marks.items[1].incarnation, 4);
    ckpt_marks_close(&marks);
    run_close(&run);
    skit_remove(path);
}

/* ---- starts ---- */

struct looked {
    uint32_t times;
    struct start found;
};

static pawl_code look(void *context, struct start *out, struct pawl_error *e) {
    (void)e;
    struct looked *l = context;
    l->times++;
    *out = l->found;
    return PAWL_OK;
}

static struct start join(const struct saver_run *run, const char *token, uint32_t ranks, struct looked *l) {
    struct start s;
    struct starts_look looks = {l, look};
    SKIT_MUST(starts_join(run, token, ranks, &looks, &s, e));
    return s;
}

static void second_rank_takes_the_word_of_the_first_without_looking(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct saver_run run = open_run(path);
    struct looked first = {.found = {.incarnation = 40, .step = 9, .step_incarnation = 38}}, second = {0};
    struct start a = join(&run, "one", 2, &first), b = join(&run, "one", 2, &second);
    assert_int_equal(a.incarnation, 41); /* above what is stored, though no file of a start is there */
    assert_int_equal(a.step, 9);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(second.times, 0);
    struct start c = join(&run, "two", 2, &first);
    assert_int_equal(c.incarnation, 42);
    run_close(&run);
    skit_remove(path);
}

/* The rank that took the number died before it had looked. */
static void start_without_a_decision_is_decided_by_whoever_comes(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct saver_run run = open_run(path);
    SKIT_MUST(run_make(&run, "starts", "5", "pawl start 1\nranks 2\ntoken orphan\n", e));
    struct looked l = {.found = {.step = 3, .step_incarnation = 4}};
    struct start s = join(&run, "orphan", 2, &l);
    assert_int_equal(s.incarnation, 5);
    assert_int_equal(s.step, 3);
    assert_int_equal(l.times, 1);
    run_close(&run);
    skit_remove(path);
}

static void number_that_no_start_can_have_is_refused_naming_the_file(void **unused) {
    (void)unused;
    static const char *const names[][2] = {{"starts", "18446744073709551615"},
                                           {"starts", "1000000000000000001"},
                                           {"starts", "99999999999999999999.resume"},
                                           {"scratch", "18446744073709551615"},
                                           {"bad", "3-18446744073709551615"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *path = skit_folder(), named[128];
        struct saver_run run = open_run(path);
        struct looked l = {0};
        struct pawl_ckpt *c = NULL;
        struct pawl_error why = {0};
        SKIT_MUST(run_make(&run, names[i][0], names[i][1], "pawl start 1\nranks 2\ntoken a\n", e));
        snprintf(named, sizeof named, "%s/%s", names[i][0], names[i][1]);
        pawl_code code = pawl_ckpt_open(&(struct pawl_ckpt_options){.path = path}, &c, &why);
        if (code != PAWL_CORRUPT || strstr(why.text, named) == NULL)
            fail_msg("%s: %s %s", named, pawl_code_name(code), why.text);
        run_remove(&run, names[i][0], names[i][1]);
        assert_int_equal(join(&run, "b", 2, &l).incarnation, 1);
        run_close(&run);
        skit_remove(path);
    }
}

static void damaged_file_of_a_start_is_an_error_that_names_it(void **unused) {
    (void)unused;
    static const char *const texts[] = {"", "pawl start 1\nranks 2\ntoken \n",
                                        "pawl start 1\nranks 2\ntoken a", "pawl start 1\nranks 02\ntoken a\n",
                                        "pawl start 1\nranks 2\ntoken a\nb\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char *path = skit_folder();
        struct saver_run run = open_run(path);
        struct looked l = {0};
        struct starts_look looks = {&l, look};
        struct start s;
        struct pawl_error why = {0};
        (void)join(&run, "a", 2, &l);
        write_text(&run, "starts", "1", texts[i]);
        assert_int_equal(starts_join(&run, "a", 2, &looks, &s, &why), PAWL_CORRUPT);
        assert_non_null(strstr(why.text, "starts/1"));
        assert_null(strchr(why.text, '\n')); /* what it holds is quoted, in one line */
        run_close(&run);
        skit_remove(path);
    }
}

static void later_start_is_seen_by_the_earlier_and_cleaning_keeps_the_newest(void **unused) {
    (void)unused;
    char *path = skit_folder();
    struct saver_run run = open_run(path);
    struct looked l = {0};
    uint64_t later = 99;
    for (uint32_t i = 1; i <= 3; i++) {
        char token[8];
        snprintf(token, sizeof token, "t%u", i);
        assert_int_equal(join(&run, token, 2, &l).incarnation, i);
    }
    SKIT_MUST(starts_overtaken(&run, 3, &later, e));
    assert_int_equal(later, 0);
    SKIT_MUST(starts_overtaken(&run, 2, &later, e));
    assert_int_equal(later, 3);
    starts_clean(&run, 3);
    char **names = NULL;
    uint32_t count = 0;
    SKIT_MUST(run_list(&run, "starts", &names, &count, e));
    assert_int_equal(count, 2);
    assert_string_equal(names[0], "3");
    assert_string_equal(names[1], "3.resume");
    store_names_free(names, count);
    assert_int_equal(join(&run, "t4", 2, &l).incarnation, 4);
    run_close(&run);
    skit_remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_several_makers_the_first_wins_and_its_text_stays),
        cmocka_unit_test(damaged_or_newer_identity_is_refused_and_not_replaced),
        cmocka_unit_test(folder_of_pawl_train_is_refused),
        cmocka_unit_test(marks_read_back_and_other_names_are_ignored),
        cmocka_unit_test(second_rank_takes_the_word_of_the_first_without_looking),
        cmocka_unit_test(start_without_a_decision_is_decided_by_whoever_comes),
        cmocka_unit_test(number_that_no_start_can_have_is_refused_naming_the_file),
        cmocka_unit_test(damaged_file_of_a_start_is_an_error_that_names_it),
        cmocka_unit_test(later_start_is_seen_by_the_earlier_and_cleaning_keeps_the_newest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
