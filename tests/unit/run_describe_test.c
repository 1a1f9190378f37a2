/* What run/describe.h promises: what is printed reads back, nothing else does, and another model is told by
 * the first parameter that differs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "model/foreign.h"
#include "run/describe.h"
#include "run/engine.h"
#include "run/message.h"

static const char text[] =
    "{\"format\":1,\"optimizer\":null,\"samples\":7,\"stages\":["
    "{\"input_bytes\":0,\"output_bytes\":64,\"tensors\":[{\"name\":\"a\",\"shape\":[3,4],\"decay\":true},"
    "{\"name\":\"b\",\"shape\":[],\"decay\":false}]},"
    "{\"input_bytes\":64,\"output_bytes\":0,\"tensors\":[{\"name\":\"c\",\"shape\":[5],\"decay\":false}]}]}"
    "\n";

static struct description parsed(const char *from) {
    struct description d;
    struct pawl_error e = {0};
    if (description_parse(from, strlen(from), "t", &d, &e) != PAWL_OK) fail_msg("%s", e.text);
    return d;
}

/* The text with the first `what` replaced. */
static char *changed(const char *what, const char *by) {
    char *out = NULL;
    const char *at = strstr(text, what);
    assert_non_null(at);
    assert_true(asprintf(&out, "%.*s%s%s", (int)(at - text), text, by, at + strlen(what)) > 0);
    return out;
}

static void assert_text(const struct pawl_error *e, const char *wanted) {
    if (strstr(e->text, wanted) == NULL) fail_msg("wanted \"%s\" in \"%s\"", wanted, e->text);
}

/* ---- text ---- */

static void a_description_prints_as_it_was_read(void **state) {
    (void)state;
    struct description d = parsed(text);
    struct bytes out = {0};
    assert_int_equal(d.stage_count, 2);
    assert_int_equal(d.stages[0].tensors[0].count, 12);
    assert_int_equal(d.stages[0].tensors[1].offset, 12);
    assert_int_equal(d.stages[0].tensors[1].rank, 0);
    assert_false(d.has_optimizer);
    assert_int_equal(d.samples, 7);
    description_print(&d, &out);
    assert_int_equal(out.size, sizeof text - 1);
    assert_memory_equal(out.data, text, out.size);
    bytes_close(&out);
    description_close(&d);
    char *with =
        changed("null", "{\"lr\":0.001,\"beta1\":0.9,\"beta2\":0.999,\"eps\":1e-08,\"weight_decay\":0}");
    d = parsed(with);
    assert_true(d.has_optimizer && d.optimizer.lr == 0.001 && d.optimizer.eps == 1e-8);
    description_print(&d, &out);
    assert_memory_equal(out.data, with, out.size);
    bytes_close(&out);
    description_close(&d);
    free(with);
}

static void whatever_is_no_description_is_refused_by_its_field(void **state) {
    (void)state;
    static const struct {
        const char *what, *by, *wanted;
    } cases[] = {
        {"{", "", "that are no JSON object"},
        {"\"format\":1", "\"format\":2", "format: wanted"},
        {"\"format\":1,", "", "format: wanted"},
        {"null", "3", "optimizer: wanted an object, or null"},
        {"null", "{\"lr\":1}", "beta1: wanted a number"},
        {"\"optimizer\":null,", "", "optimizer: wanted"},
        {"\"samples\":7", "\"samples\":0", "samples: wanted a number from 1, or null"},
        {"\"samples\":7", "\"samples\":-1", "samples: wanted a whole number"},
        {"\"samples\":7", "\"samples\":1e16", "samples: wanted a whole number"},
        {"\"samples\":7", "\"samples\":\"7\"", "samples: wanted a whole number"},
        {"\"stages\":[", "\"stages\":[],\"x\":[", "stages: wanted a list of stages"},
        {"\"output_bytes\":64", "\"output_bytes\":-64", "output_bytes: wanted a whole number"},
        {"\"output_bytes\":64", "\"output_bytes\":6.5", "output_bytes: wanted a whole number"},
        {"\"output_bytes\":64", "\"output_bytes\":1e300", "output_bytes: wanted a whole number"},
        {"\"output_bytes\":64", "\"output_bytes\":60",
         "stage 0 gives 60 bytes of a micro-batch, but stage 1 takes 64"},
        {"\"input_bytes\":0", "\"input_bytes\":1", "wanted 0 for input_bytes"},
        {"[3,4]", "[3,0]", "tensor 0 'a': it has no elements"},
        {"[3,4]", "[1,1,1,1,1,1,1,1,1]", "tensor.shape: wanted a list of at most 8 numbers"},
        {"[3,4]", "[3,\"4\"]", "tensor.shape: wanted a whole number"},
        {"[3,4]", "[4294967296,4294967296]", "more than 2^48 elements"},
        {"[3,4]", "3", "tensor.shape: wanted"},
        {"\"decay\":true", "\"decay\":1", "tensor.decay: wanted true or false"},
        {"\"name\":\"a\"", "\"name\":4", "tensor.name: wanted a text"},
        {"\"name\":\"a\"", "\"name\":\"c\"", "two stages have a parameter called 'c'"},
        {"\"name\":\"a\"", "\"name\":\"b\"", "another tensor of the stage has this name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct description d;
        struct pawl_error e = {0};
        char *bad = changed(cases[i].what, cases[i].by);
        if (description_parse(bad, strlen(bad), "here", &d, &e) != PAWL_FORMAT) fail_msg("%s", bad);
        assert_text(&e, "here");
        assert_text(&e, cases[i].wanted);
        assert_null(d.stages);
        free(bad);
    }
}

/* ---- comparing ---- */

static void compare(const char *what, const char *by, const char *wanted) {
    char *other = changed(what, by);
    struct description now = parsed(other), then = parsed(text);
    struct pawl_error e = {0};
    pawl_code code = description_compare(&now, &then, &e);
    assert_int_equal(code, wanted == NULL ? PAWL_OK : PAWL_FOREIGN);
    if (wanted != NULL) assert_text(&e, wanted);
    description_close(&now);
    description_close(&then);
    free(other);
}

static void another_model_is_told_by_its_first_difference(void **state) {
    (void)state;
    compare("a", "a", NULL);
    compare("[3,4]", "[3,5]", "parameter 'a' is [3, 5] but this run began with [3, 4]");
    compare("[3,4]", "[12]", "parameter 'a' is [12] but");
    compare("\"name\":\"a\"", "\"name\":\"z\"", "parameter 'z' [3, 4] was not there when this run began");
    compare("\"decay\":true", "\"decay\":false", "weight decay does not apply to parameter 'a', as it did");
    compare(",{\"name\":\"b\",\"shape\":[],\"decay\":false}", "", "parameter 'b' [] is gone");
    compare("{\"name\":\"a\",\"shape\":[3,4],\"decay\":true},{\"name\":\"b\",\"shape\":[],\"decay\":false}",
            "{\"name\":\"b\",\"shape\":[],\"decay\":false},{\"name\":\"a\",\"shape\":[3,4],\"decay\":true}",
            "parameter 'b' is where 'a' was");
    compare("\"samples\":7", "\"samples\":8", "the data has 8 samples but this run began with 7");
    compare("\"samples\":7", "\"samples\":null", NULL);
    compare("\"samples\":7,", "", NULL);
}

static void another_cut_is_the_same_model(void **state) {
    (void)state;
    compare(",{\"name\":\"b\",\"shape\":[],\"decay\":false}]},"
            "{\"input_bytes\":64,\"output_bytes\":0,\"tensors\":[",
            "]},{\"input_bytes\":64,\"output_bytes\":0,\"tensors\":[{\"name\":\"b\",\"shape\":[],\"decay\":"
            "false},",
            NULL);
}

static void a_stage_that_is_opened_is_compared_with_its_own(void **state) {
    (void)state;
    struct description d = parsed(text);
    struct pawl_error e = {0};
    struct stage stage = {
        .index = 1, .stage_count = 2, .tensors = d.stages[1].tensors, .tensor_count = 1, .input_bytes = 64};
    assert_int_equal(description_compare_stage(&d, &stage, &e), PAWL_OK);
    stage.input_bytes = 60;
    assert_int_equal(description_compare_stage(&d, &stage, &e), PAWL_FOREIGN);
    assert_text(&e, "stage 1 takes 60 and gives 0 bytes, but said 64 and 0");
    stage.input_bytes = 64;
    stage.tensors = d.stages[0].tensors;
    assert_int_equal(description_compare_stage(&d, &stage, &e), PAWL_FOREIGN);
    assert_text(&e, "parameter 'a' [3, 4] was not there");
    stage.index = 2;
    assert_int_equal(description_compare_stage(&d, &stage, &e), PAWL_FOREIGN);
    description_close(&d);
}

/* ---- the file, the process ---- */

static void the_file_holds_what_the_digest_reads(void **state) {
    (void)state;
    char dir[] = "/tmp/pawl-describe-XXXXXX";
    struct spec spec = {0};
    struct description d = parsed(text), again;
    struct stage_tensor *all;
    uint32_t count;
    struct pawl_error e = {0};
    assert_non_null(mkdtemp(dir));
    strcpy(spec.run.dir, dir);
    spec.run.engine = SPEC_ENGINE_TORCH;
    assert_int_equal(description_load(&spec, &again, &e), PAWL_NOT_FOUND);
    assert_int_equal(engine_tensors(&spec, &all, &count, &e), PAWL_NOT_FOUND);
    assert_int_equal(description_keep(&spec, &d, &e), PAWL_OK);
    assert_int_equal(description_load(&spec, &again, &e), PAWL_OK);
    assert_int_equal(description_compare(&again, &d, &e), PAWL_OK);
    assert_int_equal(engine_tensors(&spec, &all, &count, &e), PAWL_OK);
    assert_int_equal(count, 3);
    for (uint32_t i = 0; i < 3; i++) assert_string_equal(all[i].name, ((const char *[]){"a", "b", "c"})[i]);
    engine_tensors_free(all, count);
    description_close(&d);
    description_close(&again);
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

/* What a program without an engine, or with a message that is no job, answers. */
static void answers(const struct message *job, int wanted_exit, const char *wanted) {
    int ends[2];
    struct channel *c;
    struct message m;
    bool got = false;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(channel_open_fd(ends[0], &c, NULL), PAWL_OK);
    assert_int_equal(channel_send(c, job, NULL), PAWL_OK);
    assert_int_equal(describe_main(ends[1]), wanted_exit);
    assert_int_equal(channel_receive(c, &m, &got, NULL), PAWL_OK);
    assert_true(got);
    assert_int_equal(m.kind, MESSAGE_FAILED);
    if (strstr(m.text, wanted) == NULL) fail_msg("wanted \"%s\" in \"%s\"", wanted, m.text);
    channel_close(c);
}

static void a_job_that_cannot_be_done_is_answered_with_why(void **state) {
    (void)state;
    answers(&(struct message){.kind = MESSAGE_FINISH}, 65, "is no job");
    answers(&(struct message){.kind = MESSAGE_DESCRIBE, .text = "run: 3"}, 64, "job:1:");
    answers(&(struct message){.kind = MESSAGE_DESCRIBE,
                              .text = "run: {dir: x, engine: torch}\ntorch: {module: m}"},
            64, "this program has registered no engine");
}

static void a_channel_takes_no_frame_over_its_limit(void **state) {
    (void)state;
    int ends[2];
    struct channel *a, *b;
    struct message m;
    bool got;
    struct pawl_error e = {0};
    static uint8_t data[5000];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(channel_open_fd(ends[0], &a, NULL), PAWL_OK);
    assert_int_equal(channel_open_fd(ends[1], &b, NULL), PAWL_OK);
    channel_limit(b, 5000);
    struct message large = {.kind = MESSAGE_DESCRIBED, .data = data, .data_bytes = 4000};
    assert_int_equal(channel_send(a, &large, NULL), PAWL_OK);
    assert_int_equal(channel_receive(b, &m, &got, &e), PAWL_OK);
    assert_true(got && m.data_bytes == 4000);
    const uint8_t head[] = {0x89, 0x13, 0, 0}; /* 5001: not waited for */
    assert_int_equal(write(channel_fd(a), head, sizeof head), sizeof head);
    assert_int_equal(channel_receive(b, &m, &got, &e), PAWL_FORMAT);
    assert_text(&e, "over the limit");
    channel_close(a);
    channel_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_description_prints_as_it_was_read),
        cmocka_unit_test(whatever_is_no_description_is_refused_by_its_field),
        cmocka_unit_test(another_model_is_told_by_its_first_difference),
        cmocka_unit_test(another_cut_is_the_same_model),
        cmocka_unit_test(a_stage_that_is_opened_is_compared_with_its_own),
        cmocka_unit_test(the_file_holds_what_the_digest_reads),
        cmocka_unit_test(a_job_that_cannot_be_done_is_answered_with_why),
        cmocka_unit_test(a_channel_takes_no_frame_over_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
