/* What model/data.h promises: each window once an epoch, any sample at once, and bad files named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "model/data.h"

struct file {
    char path[64];
};

static struct file file_of(const struct bytes *b) {
    struct file f = {"/tmp/pawl-data-test-XXXXXX"};
    int fd = mkstemp(f.path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, b->data, b->size), (ssize_t)b->size);
    close(fd);
    return f;
}

/* Tokens 0, 1, 2, ... mod 251, in the width given. */
static struct file counting_file(uint32_t width, uint32_t tokens, bool header, uint32_t claimed) {
    struct bytes b = {0};
    if (header) {
        bytes_put_u32(&b, 20240520);
        bytes_put_u32(&b, 1);
        bytes_put_u32(&b, claimed);
        bytes_pad(&b, 1024, 0);
    }
    for (uint32_t i = 0; i < tokens; i++)
        for (uint32_t k = 0; k < width; k++) bytes_put_u8(&b, k == 0 ? (uint8_t)(i % 251) : 0);
    struct file f = file_of(&b);
    bytes_close(&b);
    return f;
}

static const uint32_t widths[] = {1, 2, 4};

static void every_window_comes_once_an_epoch_in_another_order(void **state) {
    (void)state;
    enum { CONTEXT = 7, TOKENS = 251 };
    for (int format = 0; format < DATA_FORMAT_COUNT; format++) {
        for (int header = 0; header < (format == DATA_BYTES ? 1 : 2); header++) {
            struct file f = counting_file(widths[format], TOKENS, header != 0, TOKENS);
            struct data *d;
            struct pawl_error e = {0};
            if (data_open(f.path, (enum data_format)format, 256, CONTEXT, 5, &d, &e) != PAWL_OK)
                fail_msg("%s", e.text);
            uint64_t windows = data_window_count(d);
            assert_int_equal(data_token_count(d), TOKENS);
            assert_int_equal(windows, (TOKENS - 1) / CONTEXT);
            int32_t order[2][64];
            for (uint64_t epoch = 0; epoch < 2; epoch++) {
                uint64_t seen = 0;
                for (uint64_t i = 0; i < windows; i++) {
                    int32_t tokens[CONTEXT], targets[CONTEXT];
                    assert_int_equal(data_sample(d, epoch * windows + i, tokens, targets, &e), PAWL_OK);
                    assert_int_equal(tokens[0] % CONTEXT, 0);
                    for (int k = 0; k < CONTEXT; k++) {
                        assert_int_equal(tokens[k], tokens[0] + k);
                        assert_int_equal(targets[k], tokens[0] + k + 1);
                    }
                    seen |= (uint64_t)1 << (tokens[0] / CONTEXT);
                    order[epoch][i] = tokens[0];
                }
                assert_true(seen == ((uint64_t)1 << windows) - 1);
            }
            assert_memory_not_equal(order[0], order[1], windows * sizeof order[0][0]);
            data_close(d);
            unlink(f.path);
        }
    }
}

static void a_window_longer_than_a_read_is_whole(void **state) {
    (void)state;
    enum { CONTEXT = 3000 };
    struct file f = counting_file(2, CONTEXT * 2 + 1, false, 0);
    struct data *d;
    struct pawl_error e;
    assert_int_equal(data_open(f.path, DATA_U16, 256, CONTEXT, 1, &d, &e), PAWL_OK);
    int32_t *tokens = calloc(CONTEXT, sizeof *tokens), *targets = calloc(CONTEXT, sizeof *targets);
    assert_int_equal(data_sample(d, 123456789012345, tokens, targets, &e), PAWL_OK);
    for (int k = 0; k < CONTEXT; k++) {
        assert_int_equal(tokens[k], (tokens[0] + k) % 251);
        assert_int_equal(targets[k], (tokens[0] + k + 1) % 251);
    }
    free(tokens);
    free(targets);
    data_close(d);
    unlink(f.path);
}

static void the_same_n_gives_the_same_sample_whatever_was_read_before(void **state) {
    (void)state;
    struct file f = counting_file(1, 2000, false, 0);
    struct data *a, *b;
    struct pawl_error e;
    assert_int_equal(data_open(f.path, DATA_BYTES, 256, 10, 9, &a, &e), PAWL_OK);
    assert_int_equal(data_open(f.path, DATA_BYTES, 256, 10, 9, &b, &e), PAWL_OK);
    assert_true(data_identity(a) == data_identity(b));
    int32_t x[2][10], y[2][10];
    for (uint64_t n = 1000; n-- > 0;) assert_int_equal(data_sample(a, n, x[0], x[1], &e), PAWL_OK);
    assert_int_equal(data_sample(a, 777, x[0], x[1], &e), PAWL_OK);
    assert_int_equal(data_sample(b, 777, y[0], y[1], &e), PAWL_OK);
    assert_memory_equal(x, y, sizeof x);
    data_close(a);
    data_close(b);
    unlink(f.path);
}

static void assert_not_opened(const struct file *f, enum data_format format, pawl_code wanted,
                              const char *cause) {
    struct data *d;
    struct pawl_error e = {0};
    pawl_code code = data_open(f->path, format, 256, 16, 1, &d, &e);
    if (code != wanted || strstr(e.text, cause) == NULL)
        fail_msg("%s \"%s\", wanted %s \"%s\"", pawl_code_name(code), e.text, pawl_code_name(wanted), cause);
    assert_null(d);
    unlink(f->path);
}

static void a_file_that_does_not_fit_is_named(void **state) {
    (void)state;
    struct file f = counting_file(1, 16, false, 0);
    assert_not_opened(&f, DATA_BYTES, PAWL_SPEC, "has 16 tokens, one sample takes context + 1 = 17");
    f = counting_file(1, 0, false, 0);
    assert_not_opened(&f, DATA_BYTES, PAWL_SPEC, "has 0 tokens");
    f = counting_file(1, 101, false, 0);
    assert_not_opened(&f, DATA_U16, PAWL_FORMAT, "101 bytes are no whole number of uint16");
    f = counting_file(2, 1000, true, 999);
    assert_not_opened(&f, DATA_U16, PAWL_FORMAT, "tells of 999 tokens");
    f = counting_file(2, 1000, true, 1000);
    assert_not_opened(&f, DATA_U32, PAWL_FORMAT, "tells of 1000 tokens");
    struct file none = {"/tmp/pawl-data-test-none"};
    assert_not_opened(&none, DATA_BYTES, PAWL_NOT_FOUND, "ENOENT");
    struct file folder = {"/tmp"};
    assert_not_opened(&folder, DATA_BYTES, PAWL_FORMAT, "not a regular file");
}

static void an_unknown_version_of_a_known_header_is_refused(void **state) {
    (void)state;
    struct bytes b = {0};
    bytes_put_u32(&b, 20240520);
    bytes_put_u32(&b, 3);
    bytes_pad(&b, 4096, 0);
    struct file f = file_of(&b);
    bytes_close(&b);
    assert_not_opened(&f, DATA_U16, PAWL_FORMAT, "version 3");
}

static void a_token_beyond_the_vocabulary_is_named_by_its_offset(void **state) {
    (void)state;
    struct bytes b = {0};
    for (uint16_t i = 0; i < 17; i++) bytes_put_u16(&b, i == 16 ? 256 : i);
    struct file f = file_of(&b);
    bytes_close(&b);
    struct data *d;
    struct pawl_error e;
    assert_int_equal(data_open(f.path, DATA_U16, 256, 16, 1, &d, &e), PAWL_OK);
    int32_t tokens[16], targets[16];
    assert_int_equal(data_sample(d, 0, tokens, targets, &e), PAWL_FORMAT);
    assert_non_null(strstr(e.text, "offset 32: token 256, the vocabulary has 256"));
    data_close(d);
    unlink(f.path);
}

static void a_file_that_is_cut_while_it_is_open_is_an_error(void **state) {
    (void)state;
    struct file f = counting_file(1, 17, false, 0);
    struct data *d;
    struct pawl_error e;
    assert_int_equal(data_open(f.path, DATA_BYTES, 256, 16, 1, &d, &e), PAWL_OK);
    assert_int_equal(truncate(f.path, 5), 0);
    int32_t tokens[16], targets[16];
    assert_int_equal(data_sample(d, 0, tokens, targets, &e), PAWL_IO);
    assert_non_null(strstr(e.text, "ends at offset 5"));
    data_close(d);
    unlink(f.path);
}

static void another_text_has_another_identity(void **state) {
    (void)state;
    uint64_t seen[3];
    for (uint32_t i = 0; i < 3; i++) {
        struct bytes b = {0};
        for (uint32_t k = 0; k < 300000; k++) bytes_put_u8(&b, 'a');
        if (i == 1) b.data[0] = 'b';
        if (i == 2) b.data[b.size - 1] = 'b';
        struct file f = file_of(&b);
        bytes_close(&b);
        struct data *d;
        assert_int_equal(data_open(f.path, DATA_BYTES, 256, 16, 1, &d, NULL), PAWL_OK);
        seen[i] = data_identity(d);
        data_close(d);
        unlink(f.path);
    }
    assert_true(seen[0] != seen[1] && seen[0] != seen[2] && seen[1] != seen[2]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_window_comes_once_an_epoch_in_another_order),
        cmocka_unit_test(a_window_longer_than_a_read_is_whole),
        cmocka_unit_test(the_same_n_gives_the_same_sample_whatever_was_read_before),
        cmocka_unit_test(a_file_that_does_not_fit_is_named),
        cmocka_unit_test(an_unknown_version_of_a_known_header_is_refused),
        cmocka_unit_test(a_token_beyond_the_vocabulary_is_named_by_its_offset),
        cmocka_unit_test(a_file_that_is_cut_while_it_is_open_is_an_error),
        cmocka_unit_test(another_text_has_another_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
