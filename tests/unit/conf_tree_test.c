/* Trees of what people write: positions, keys, what is refused, numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "conf/conf.h"
#include "kit/near.h"

static struct conf *parsed(const char *text) {
    struct conf *conf = NULL;
    struct pawl_error e = {0};
    if (conf_parse(text, strlen(text), "c", PAWL_FORMAT, &conf, &e) != PAWL_OK) fail_msg("%s", e.text);
    return conf;
}

static void refused(const char *text, const char *wanted) {
    struct conf *conf = NULL;
    struct pawl_error e = {0};
    pawl_code code = conf_parse(text, strlen(text), "c", PAWL_FORMAT, &conf, &e);
    if (code != PAWL_FORMAT) fail_msg("%s for %s", pawl_code_name(code), text);
    if (strstr(e.text, wanted) == NULL) fail_msg("\"%s\" does not say \"%s\"", e.text, wanted);
}

static void values_and_keys_know_where_they_stand(void **state) {
    (void)state;
    struct conf *conf = parsed("a: 1\nb:\n  - x\n  - {c: \"y\\0z\"}\n");
    const struct conf_node *a = conf->root->first, *b = a->next;
    assert_int_equal(conf->root->kind, CONF_MAP);
    assert_int_equal(conf->root->count, 2);
    assert_string_equal(a->key, "a");
    assert_string_equal(a->text, "1");
    assert_true(a->plain);
    assert_int_equal(a->line, 1);
    assert_int_equal(a->column, 4);
    assert_int_equal(b->kind, CONF_LIST);
    assert_int_equal(b->key_line, 2);
    assert_int_equal(b->first->line, 3);
    assert_int_equal(b->first->column, 5);
    const struct conf_node *c = b->first->next->first;
    assert_string_equal(c->key, "c");
    assert_int_equal(c->size, 3);
    assert_memory_equal(c->text, "y\0z", 4);
    assert_false(c->plain);
    assert_null(b->next);
    conf_free(conf);
}

static void what_holds_nothing_is_told_from_an_empty_value(void **state) {
    (void)state;
    struct conf *conf = parsed("# nothing\n");
    assert_null(conf->root);
    conf_free(conf);
    conf = parsed("a:\nb: ''\n");
    assert_true(conf_is_empty(conf->root->first));
    assert_false(conf_is_empty(conf->root->first->next));
    conf_free(conf);
}

static void ornaments_and_depth_are_refused_on_sight(void **state) {
    (void)state;
    refused("a: &x 1\n", "c:1:4: an anchor (&)");
    refused("a: &x [1]\n", "an anchor (&)");
    refused("&x a: 1\n", "an anchor (&)");
    refused("a: *x\n", "an alias (*)");
    refused("a: !!int 1\n", "a tag (!)");
    refused("[a]: 1\n", "a key must be a plain name");
    refused("a: 1\n--- \nb: 1\n", "a second document");
    refused("[[[[[[[[[1]]]]]]]]]\n", "nested too deeply");
    conf_free(parsed("[[[[[[[[1]]]]]]]]\n"));
    refused("a: [1\n", "not YAML");
    refused("a: \xff\n", "c:1:4: byte 0xff is not UTF-8");
}

static void maps_take_known_keys_once(void **state) {
    (void)state;
    static const char *const names[] = {"alpha", "beta"};
    struct conf_node *place[2];
    struct pawl_error e = {0};
    struct conf *conf = parsed("beta: 2\n");
    assert_int_equal(conf_map(conf, conf->root, "it", names, 2, place, &e), PAWL_OK);
    assert_null(place[0]);
    assert_string_equal(place[1]->text, "2");
    conf_free(conf);
    static const char *const wrong[][2] = {
        {"betta: 2\n", "c:1:1: it has no key \"betta\": did you mean beta?"},
        {"zzzzz: 2\n", "it has no key \"zzzzz\": there are alpha, beta"},
        {"alpha: 1\nalpha: 1\n", "c:2:1: alpha of it is given twice"},
        {"[1]\n", "c:1:1: it must be keys with values"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        conf = parsed(wrong[i][0]);
        assert_int_equal(conf_map(conf, conf->root, "it", names, 2, place, &e), PAWL_FORMAT);
        if (strstr(e.text, wrong[i][1]) == NULL) fail_msg("\"%s\", wanted \"%s\"", e.text, wrong[i][1]);
        conf_free(conf);
    }
}

static void numbers_are_read_strictly(void **state) {
    (void)state;
    uint64_t whole;
    double real;
    static const char *const no_whole[] = {"",    "-1",  "+1", "01", "1.0",
                                           "1e3", "0x1", " 1", "1 ", "18446744073709551616"};
    for (size_t i = 0; i < sizeof no_whole / sizeof no_whole[0]; i++)
        if (conf_whole(no_whole[i], &whole)) fail_msg("\"%s\" was taken for a whole number", no_whole[i]);
    assert_true(conf_whole("18446744073709551615", &whole));
    assert_true(whole == UINT64_MAX);
    static const char *const no_real[] = {"",   "nan", ".nan", "inf", "1e999", "0x1p3",
                                          "1e", "e1",  ".",    "1,5", "1 "};
    for (size_t i = 0; i < sizeof no_real / sizeof no_real[0]; i++)
        if (conf_real(no_real[i], &real)) fail_msg("\"%s\" was taken for a number", no_real[i]);
    assert_true(conf_real("-1.5e-3", &real));
    assert_double(real, -0.0015, 0);
    assert_true(conf_real(".5", &real));
    assert_double(real, 0.5, 0);
}

static void printed_numbers_are_short_and_read_back_equal(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{600, "600"},
                 {-30, "-30"},
                 {0, "0"},
                 {0.1, "0.1"},
                 {1e14, "100000000000000"},
                 {1e15, "1e+15"},
                 {1.5e-9, "1.5e-09"},
                 {2.5, "2.5"},
                 {1e300, "1e+300"},
                 {123456789.25, "123456789.25"},
                 {999999999999999, "999999999999999"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes out = {0};
        double back = 0;
        conf_print_real(cases[i].value, &out);
        bytes_put_u8(&out, 0);
        assert_string_equal((const char *)out.data, cases[i].text);
        assert_true(conf_real((const char *)out.data, &back));
        assert_double(back, cases[i].value, 0);
        bytes_close(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_keys_know_where_they_stand),
        cmocka_unit_test(what_holds_nothing_is_told_from_an_empty_value),
        cmocka_unit_test(ornaments_and_depth_are_refused_on_sight),
        cmocka_unit_test(maps_take_known_keys_once),
        cmocka_unit_test(numbers_are_read_strictly),
        cmocka_unit_test(printed_numbers_are_short_and_read_back_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
