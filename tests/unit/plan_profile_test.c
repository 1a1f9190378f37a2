/* Profiles: read, refused, written, built in; limits of memory from a file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <math.h>

#include "kit/near.h"
#include "plan/profile.h"
#include "plan/profile_read.h"

static void assert_says(const struct pawl_error *e, const char *wanted) {
    if (strstr(e->text, wanted) == NULL) fail_msg("\"%s\" does not say \"%s\"", e->text, wanted);
}

static struct pawl_profile *parsed(const char *text) {
    struct pawl_profile *p = NULL;
    struct pawl_error e = {0};
    if (profile_parse(text, strlen(text), "p.yaml", &p, &e) != PAWL_OK) fail_msg("%s", e.text);
    return p;
}

static void refused(const char *text, const char *wanted) {
    struct pawl_profile *p = NULL;
    struct pawl_error e = {0};
    pawl_code code = profile_parse(text, strlen(text), "p.yaml", &p, &e);
    if (code != PAWL_FORMAT) fail_msg("%s for:\n%s", pawl_code_name(code), text);
    assert_says(&e, wanted);
    assert_null(strchr(e.text, '\n'));
}

/* One stage with `line` in it, which stands in line 4. */
static void stage_refused(const char *line, const char *wanted) {
    char text[400];
    snprintf(text, sizeof text,
             "pawl_profile: 1\nstages:\n  - {forward: 1, input_grad: 1, weight_grad: 1}\n"
             "  - {forward: 1, input_grad: 1, %s}\n",
             line);
    refused(text, wanted);
}

static const char whole[] = "pawl_profile: 1\n"
                            "name: \"a b\"\n"
                            "unit: ms\n"
                            "unit_s: 0.001\n"
                            "memory_bytes: 80GiB\n"
                            "link_bps: 2.5e10\n"
                            "host_bps: 1e9\n"
                            "stages:\n"
                            "  - forward: 1.5\n"
                            "    input_grad: 2\n"
                            "    weight_grad: .75\n"
                            "    reduce: 3\n"
                            "    step: 0.1\n"
                            "    send_forward: 0.25\n"
                            "    state_bytes: 1000000\n"
                            "    activation_bytes: 34 MiB\n"
                            "    weight_grad_bytes: 32MiB\n"
                            "    input_bytes: 2MiB\n"
                            "    layers: 4\n"
                            "  - {forward: 1, input_grad: 1, weight_grad: 1, send_backward: 0.5, repeat: 2}\n"
                            "workers:\n"
                            "  - {pipeline: 1, stage: 2, slow: 2, memory_bytes: 40GiB}\n";

static void every_field_of_a_profile_is_read(void **state) {
    (void)state;
    struct pawl_profile *p = parsed(whole);
    assert_string_equal(p->name, "a b");
    assert_string_equal(p->unit, "ms");
    assert_double(p->unit_s, 0.001, 0);
    assert_int_equal(p->memory_bytes, 80ull << 30);
    assert_double(p->link_bps, 2.5e10, 0);
    assert_double(p->host_bps, 1e9, 0);
    assert_int_equal(p->stages, 3);
    const struct pawl_stage_cost *s = p->stage;
    assert_double(s->forward, 1.5, 0);
    assert_double(s->input_grad, 2, 0);
    assert_double(s->weight_grad, 0.75, 0);
    assert_double(s->reduce, 3, 0);
    assert_double(s->step, 0.1, 0);
    assert_double(s->send_forward, 0.25, 0);
    assert_double(s->send_backward, 0, 0);
    assert_int_equal(s->state_bytes, 1000000);
    assert_int_equal(s->activation_bytes, 34u << 20);
    assert_int_equal(s->weight_grad_bytes, 32u << 20);
    assert_int_equal(s->input_bytes, 2u << 20);
    assert_int_equal(s->layers, 4);
    assert_double(s[1].send_backward, 0.5, 0);
    assert_memory_equal(&s[1], &s[2], sizeof *s);
    assert_int_equal(p->worker_count, 1);
    assert_int_equal(p->worker[0].pipeline, 1);
    assert_int_equal(p->worker[0].stage, 2);
    assert_double(p->worker[0].slow, 2, 0);
    assert_int_equal(p->worker[0].memory_bytes, 40ull << 30);
    pawl_profile_free(p);
}

static void json_is_read_as_well(void **state) {
    (void)state;
    struct pawl_profile *p = parsed("{\"pawl_profile\": 1, \"name\": \"j\\u0041\", \"stages\": [\n"
                                    "  {\"forward\": 1, \"input_grad\": 2e0, \"weight_grad\": 0.5}]}\n");
    assert_string_equal(p->name, "jA");
    assert_double(p->stage[0].input_grad, 2, 0);
    pawl_profile_free(p);
}

static void costs_out_of_range_are_refused_with_line_and_field(void **state) {
    (void)state;
    stage_refused("weight_grad: 0", "p.yaml:4:46: stage 1: weight_grad is 0: give a number from 1e-06");
    stage_refused("weight_grad: -1", "stage 1: weight_grad is -1");
    stage_refused("weight_grad: 1e13", "stage 1: weight_grad is 1e+13");
    stage_refused("weight_grad: 1e999", "weight_grad is \"1e999\": write a number");
    stage_refused("weight_grad: nan", "weight_grad is \"nan\": write a number");
    stage_refused("weight_grad: .nan", "weight_grad is \".nan\": write a number");
    stage_refused("weight_grad: .inf", "weight_grad is \".inf\": write a number");
    stage_refused("weight_grad: [1]", "weight_grad is a list or a map");
    stage_refused("weight_grad: \"1\"", "weight_grad is \"1\": write a number");
    stage_refused("weight_grad: , layers: 1", "weight_grad is \"\"");
    stage_refused("layers: 3", "p.yaml:4:5: stage 1: weight_grad is missing");
    stage_refused("weight_grad: 1, step: -0.5", "stage 1: step is -0.5: give 0 or a number");
    stage_refused("weight_grad: 1, layers: 1.5", "layers is \"1.5\": write a whole number");
    stage_refused("weight_grad: 1, layers: -1", "layers is \"-1\"");
    stage_refused("weight_grad: 1, state_bytes: 1e9",
                  "state_bytes is \"1e9\": write a whole number of bytes");
    stage_refused("weight_grad: 1, state_bytes: 1.5", "state_bytes is \"1.5\": write a whole number");
    stage_refused("weight_grad: 1, state_bytes: 3.9", "state_bytes is \"3.9\": write a whole number");
    stage_refused("weight_grad: 1, state_bytes: 4.", "state_bytes is \"4.\": write a whole number");
    stage_refused("weight_grad: 1, state_bytes: 3.9B", "state_bytes is \"3.9B\": write a whole number");
    stage_refused("weight_grad: 1, state_bytes: 010", "state_bytes is \"010\": write a whole number");
    stage_refused("weight_grad: 1, state_bytes: \"4096\"", "state_bytes is \"4096\": write a whole");
    stage_refused("weight_grad: 1, state_bytes: 9007199254740993", "state_bytes is 9007199254740993");
    stage_refused("weight_grad: 1, repeat: 0", "repeat is \"0\"");
    stage_refused("weight_grad: 1, repeat: 1024", "more than 1024 stages");
}

static void amounts_of_bytes_may_have_fractions_of_their_unit_and_quotes(void **state) {
    (void)state;
    struct pawl_profile *p = parsed("{\"pawl_profile\": 1, \"memory_bytes\": \"1.5GB\", \"stages\": [\n"
                                    "  {\"forward\": 1, \"input_grad\": 1, \"weight_grad\": 1,\n"
                                    "   \"state_bytes\": \"0.5 k\", \"activation_bytes\": 24B}]}\n");
    assert_int_equal(p->memory_bytes, 1500000000);
    assert_int_equal(p->stage[0].state_bytes, 512);
    assert_int_equal(p->stage[0].activation_bytes, 24);
    pawl_profile_free(p);
}

static void bytes_that_do_not_fit_together_are_refused(void **state) {
    (void)state;
    stage_refused("weight_grad: 1, activation_bytes: 10, weight_grad_bytes: 11",
                  "weight_grad_bytes is 11, more than activation_bytes, 10");
    stage_refused("weight_grad: 1, activation_bytes: 10, input_bytes: 11",
                  "input_bytes is 11, more than activation_bytes, 10");
}

static void keys_unknown_repeated_or_missing_are_refused(void **state) {
    (void)state;
    stage_refused("weight_grad: 1, forwrad: 1", "stage 1 has no key \"forwrad\": did you mean forward?");
    stage_refused("weight_grad: 1, banana: 1",
                  "stage 1 has no key \"banana\": there are forward, input_grad");
    stage_refused("weight_grad: 1, weight_grad: 1", "weight_grad of stage 1 is given twice");
    refused("stages: []\n", "p.yaml:1:1: pawl_profile is missing");
    refused("pawl_profile: 2\nstages: []\n", "p.yaml:1:15: pawl_profile is \"2\"");
    refused("pawl_profile: 1\n", "stages is missing");
    refused("pawl_profile: 1\nstages: []\n", "p.yaml:2:9: stages must be a list");
    refused("pawl_profile: 1\nstages: 5\n", "p.yaml:2:9: stages must be a list");
    refused("pawl_profile: 1\nstages: [5]\n", "p.yaml:2:10: stage 0 must be keys with values");
    refused("pawl_profile: 1\nstages:\nstages:\n", "stages of the profile is given twice");
    refused("pawl_profile: 1\nunits: ms\n", "the profile has no key \"units\": did you mean unit");
    refused("", "p.yaml:1:1: the profile is empty");
    refused("[1]\n", "the profile must be keys");
    refused("pawl_profile: 1\nstages: [{forward: 1\n", "not YAML");
    refused("pawl_profile: 1\nname: \"a\\nb\"\nstages: []\n", "name has a control character");
    refused("pawl_profile: 1\nunit_s: -1\nstages: []\n", "p.yaml:2:9: the profile: unit_s is -1");
    refused("pawl_profile: 1\nlink_bps: 0.5\nstages: []\n", "link_bps is 0.5");
    refused("[[[[[[[[[[1]]]]]]]]]]\n", "nested too deeply");
}

static void workers_are_refused_with_entry_and_field(void **state) {
    (void)state;
#define HEAD "pawl_profile: 1\nstages: [{forward: 1, input_grad: 1, weight_grad: 1, repeat: 2}]\nworkers:\n"
    refused(HEAD "  - {pipeline: 0, stage: 2}\n", "workers entry 0: stage is 2, but there are 2 stages");
    refused(HEAD "  - {pipeline: 4096, stage: 0}\n", "pipeline is 4096: give at most 4095");
    refused(HEAD "  - {stage: 0}\n", "workers entry 0: pipeline is missing");
    refused(HEAD "  - {pipeline: 0, stage: 1, slow: 0.0001}\n",
            "slow is 0.0001: give a number from 0.001 to 1000");
    refused(HEAD "  - {pipeline: 0, stage: 1, slow: 0}\n",
            "p.yaml:4:35: slow is \"0\": write a number from 0.001 to 1000");
    refused(HEAD "  - {pipeline: 0, stage: 1, slow: 0.0}\n", "slow is \"0.0\"");
    refused(HEAD "  - {pipeline: 0, stage: 1, slow: -2}\n", "slow is -2");
    refused(HEAD "  - {pipeline: 0, stage: 1}\n  - {pipeline: 0, stage: 1}\n",
            "p.yaml:5:16: workers entry 1: pipeline and stage name worker 0:1, which entry 0 did already");
    refused(HEAD "  - {pipeline: 0, stage: 1, speed: 2}\n", "workers entry 0 has no key \"speed\"");
}

static void assert_same(const struct pawl_profile *a, const struct pawl_profile *b) {
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->unit, b->unit);
    assert_int_equal(a->stages, b->stages);
    assert_memory_equal(a->stage, b->stage, a->stages * sizeof *a->stage);
    assert_int_equal(a->worker_count, b->worker_count);
    if (a->worker_count > 0) assert_memory_equal(a->worker, b->worker, a->worker_count * sizeof *a->worker);
    assert_int_equal(a->memory_bytes, b->memory_bytes);
    assert_memory_equal(&a->unit_s, &b->unit_s, sizeof a->unit_s);
    assert_memory_equal(&a->link_bps, &b->link_bps, sizeof a->link_bps);
    assert_memory_equal(&a->host_bps, &b->host_bps, sizeof a->host_bps);
}

static void what_is_written_reads_back_equal(void **state) {
    (void)state;
    char path[] = "/tmp/pawl-profile-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct pawl_error e = {0};
    struct pawl_profile *p[3] = {parsed(whole), NULL, NULL}, *back = NULL;
    assert_int_equal(pawl_profile_builtin("megatron-76.1b", 7, &p[1], &e), PAWL_OK);
    assert_int_equal(pawl_profile_uniform(3, 1.0 / 3, 0.1, 1e-6, 2.0 / 7, &p[2], &e), PAWL_OK);
    for (int i = 0; i < 3; i++) {
        if (pawl_profile_write(p[i], path, &e) != PAWL_OK) fail_msg("%s", e.text);
        if (pawl_profile_read(path, &back, &e) != PAWL_OK) fail_msg("%s", e.text);
        assert_same(p[i], back);
        pawl_profile_free(back);
        pawl_profile_free(p[i]);
    }
    unlink(path);
}

static void a_profile_changed_in_place_is_checked(void **state) {
    (void)state;
    struct pawl_profile *p = NULL;
    struct pawl_error e = {0};
    assert_int_equal(pawl_profile_uniform(2, 1, 1, 1, 0, &p, &e), PAWL_OK);
    p->stage[1].forward = NAN;
    assert_int_equal(pawl_profile_check(p, &e), PAWL_ARGUMENT);
    assert_says(&e, "profile uniform: stage 1: forward is nan");
    p->stage[1].forward = INFINITY;
    assert_int_equal(pawl_profile_check(p, &e), PAWL_ARGUMENT);
    p->stage[1].forward = 1;
    assert_int_equal(pawl_profile_check(p, &e), PAWL_OK);
    pawl_profile_free(p);
    assert_int_equal(pawl_profile_uniform(0, 1, 1, 1, 0, &p, &e), PAWL_ARGUMENT);
    assert_int_equal(pawl_profile_uniform(1025, 1, 1, 1, 0, &p, &e), PAWL_ARGUMENT);
    assert_int_equal(pawl_profile_uniform(2, 1, 1, 1, -1, &p, &e), PAWL_ARGUMENT);
    assert_says(&e, "send_forward is -1");
}

static void built_in_models_have_the_parameters_of_their_names(void **state) {
    (void)state;
    const struct {
        const char *name;
        double parameters, tensor_parallel, layers;
    } want[] = {{"gpt3-medium", 350e6, 1, 24},      {"gpt3-3.35b", 3.35e9, 1, 28},
                {"gpt3-6.7b", 6.7e9, 1, 32},        {"megatron-18.4b", 18.4e9, 8, 40},
                {"megatron-39.1b", 39.1e9, 8, 48},  {"megatron-76.1b", 76.1e9, 8, 60},
                {"megatron-145.6b", 145.6e9, 8, 80}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct pawl_profile *p = NULL;
        struct pawl_error e = {0};
        assert_string_equal(pawl_profile_names()[i], want[i].name);
        assert_int_equal(pawl_profile_builtin(want[i].name, 1, &p, &e), PAWL_OK);
        double got = (double)p->stage[0].state_bytes * want[i].tensor_parallel / 18;
        if (fabs(got / want[i].parameters - 1) > 0.04)
            fail_msg("%s: %g parameters, wanted %g", want[i].name, got, want[i].parameters);
        assert_double(p->stage[0].layers, want[i].layers, 0);
        pawl_profile_free(p);
    }
    assert_null(pawl_profile_names()[sizeof want / sizeof want[0]]);
}

/* 6.7B on one GPU, by hand: tokens 2048, h 4096, L 32, v 51200; 140.4 TFLOP/s. */
static void a_built_in_model_follows_its_formulas(void **state) {
    (void)state;
    struct pawl_profile *p = NULL;
    struct pawl_error e = {0};
    assert_int_equal(pawl_profile_builtin("gpt3-6.7b", 1, &p, &e), PAWL_OK);
    const struct pawl_stage_cost *s = p->stage;
    double h = 4096, head = 2 * h * 51200, rate = 0.45 * 312e12;
    assert_double(s->forward, 2048 * (32 * (24 * h * h + 4 * 2048 * h) + head) / rate * 1e3, 1e-9);
    assert_double(s->input_grad, 2048 * (32 * (24 * h * h + 8 * 2048 * h) + head) / rate * 1e3, 1e-9);
    assert_double(s->weight_grad, 2048 * (32 * 24 * h * h + head) / rate * 1e3, 1e-9);
    assert_int_equal(s->activation_bytes,
                     (uint64_t)32 * 34 * 2048 * 4096 + 2u * 2048 * 4096 + 4ull * 2048 * 51200);
    assert_int_equal(s->input_bytes, 2u * 2048 * 4096);
    pawl_profile_free(p);
}

static void cutting_a_built_in_model_neither_loses_nor_invents_layers(void **state) {
    (void)state;
    for (const char *const *name = pawl_profile_names(); *name != NULL; name++)
        for (uint32_t stages = 1; stages <= 24; stages++) {
            struct pawl_profile *p = NULL, *one = NULL;
            struct pawl_error e = {0};
            assert_int_equal(pawl_profile_builtin(*name, stages, &p, &e), PAWL_OK);
            assert_int_equal(pawl_profile_builtin(*name, 1, &one, &e), PAWL_OK);
            double forward = 0;
            uint32_t layers = 0;
            for (uint32_t i = 0; i < stages; i++) {
                forward += p->stage[i].forward;
                layers += p->stage[i].layers;
                assert_true(p->stage[i].layers <= p->stage[stages > 2].layers); /* the first inner one */
            }
            assert_int_equal(layers, one->stage[0].layers);
            assert_double(forward, one->stage[0].forward, 1e-9 * forward);
            if (pawl_profile_check(p, &e) != PAWL_OK) fail_msg("%s", e.text);
            pawl_profile_free(p);
            pawl_profile_free(one);
        }
}

static void names_and_cuts_that_are_not_there_are_refused(void **state) {
    (void)state;
    struct pawl_profile *p = NULL;
    struct pawl_error e = {0};
    assert_int_equal(pawl_profile_builtin("gpt5", 4, &p, &e), PAWL_NOT_FOUND);
    assert_says(&e, "gpt3-medium, gpt3-3.35b");
    assert_int_equal(pawl_profile_builtin("GPT3-6.7B", 4, &p, &e), PAWL_OK);
    assert_string_equal(p->name, "gpt3-6.7b");
    pawl_profile_free(p);
    assert_int_equal(pawl_profile_builtin("gpt3-medium", 25, &p, &e), PAWL_ARGUMENT);
    assert_says(&e, "25 stages: it has 24 layers");
    assert_int_equal(pawl_profile_builtin("gpt3-medium", 0, &p, &e), PAWL_ARGUMENT);
    assert_int_equal(pawl_profile_read("/nowhere/p.yaml", &p, &e), PAWL_NOT_FOUND);
    assert_says(&e, "/nowhere/p.yaml");
    assert_int_equal(pawl_profile_read("/dev/zero", &p, &e), PAWL_FORMAT);
}

/* ---- limits ---- */

static void limits_are(const char *text, const double want[6], bool bytes) {
    double *got = NULL;
    bool in_bytes = !bytes;
    struct pawl_error e = {0};
    struct limits_size size = {2, 3};
    if (limits_parse(text, strlen(text), "m.yaml", size, &got, &in_bytes, &e) != PAWL_OK)
        fail_msg("%s\n%s", e.text, text);
    for (int i = 0; i < 6; i++) assert_double(got[i], want[i], 0);
    assert_int_equal(in_bytes, bytes);
    free(got);
}

static void limits_refused(const char *text, const char *wanted) {
    double *got = NULL;
    bool in_bytes = false;
    struct pawl_error e = {0};
    struct limits_size size = {2, 3};
    assert_int_equal(limits_parse(text, strlen(text), "m.yaml", size, &got, &in_bytes, &e), PAWL_FORMAT);
    assert_says(&e, wanted);
}

static void limits_come_by_stage_or_by_worker_in_either_unit(void **state) {
    (void)state;
    const double by_stage[] = {4, 3, 2.5, 4, 3, 2.5}, by_worker[] = {1, 2, 3, 4, 5, 6};
    const double bytes[] = {0x1p30, 0x1p31, 0x1p20, 0x1p30, 0x1p31, 0x1p20};
    limits_are("[4, 3, 2.5]", by_stage, false);
    limits_are("- 4\n- 3\n- 2.5\n", by_stage, false);
    limits_are("stages: [4, 3, 2.5]", by_stage, false);
    limits_are("[1, 2, 3, 4, 5, 6]", by_worker, false);
    limits_are("[[1, 2, 3], [4, 5, 6]]", by_worker, false);
    limits_are("{\"workers\": [[1, 2, 3], [4, 5, 6]]}", by_worker, false);
    limits_are("workers: [1, 2, 3, 4, 5, 6]", by_worker, false);
    limits_are("[1GiB, 2GiB, 1MiB]", bytes, true);
    limits_are("[\"1GiB\", \"2GiB\", \"1MiB\"]", bytes, true);
}

static void limits_of_the_wrong_shape_or_unit_are_refused(void **state) {
    (void)state;
    limits_refused("", "m.yaml:1:1: the file holds no limits");
    limits_refused("[4, 3]", "m.yaml:1:1: 2 limits: give 3, one a stage, or 6, one a worker");
    limits_refused("[[1, 2, 3]]", "1 lists of limits: give 2");
    limits_refused("[[1, 2, 3], [4, 5]]", "m.yaml:1:13: give a list of 3 limits");
    limits_refused("[[1, 2, 3], 4]", "m.yaml:1:13: give a list of 3 limits");
    limits_refused("[4, 3, 0]", "m.yaml:1:8: a limit is \"0\"");
    limits_refused("[4, 3, 0.5]", "m.yaml:1:8: a limit is \"0.5\": write at least 1, micro-batch or byte");
    limits_refused("[4, 3, \"5\"]", "m.yaml:1:8: a limit is \"5\": write a number of micro-batches, without");
    limits_refused("[3GB, 3GB, 1.5B]", "m.yaml:1:12: a limit is \"1.5B\"");
    limits_refused("[4, 3, -1]", "a limit is \"-1\"");
    limits_refused("[4, 3, nan]", "a limit is \"nan\"");
    limits_refused("[4, 3, [1]]", "a limit is a list or a map");
    limits_refused("[4, 3, 1GiB]", "m.yaml:1:8: some limits are micro-batches, and this one is bytes");
    limits_refused("stages: [1, 2, 3, 4, 5, 6]", "stages must be a list of 3 limits");
    limits_refused("{}", "give the limits of either stages or workers");
    limits_refused("{stages: [1, 2, 3], workers: [1, 2, 3]}", "give the limits of either");
    limits_refused("{stage: [1, 2, 3]}", "did you mean stages?");
    limits_refused("7", "give a list of limits");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_of_a_profile_is_read),
        cmocka_unit_test(json_is_read_as_well),
        cmocka_unit_test(costs_out_of_range_are_refused_with_line_and_field),
        cmocka_unit_test(amounts_of_bytes_may_have_fractions_of_their_unit_and_quotes),
        cmocka_unit_test(bytes_that_do_not_fit_together_are_refused),
        cmocka_unit_test(keys_unknown_repeated_or_missing_are_refused),
        cmocka_unit_test(workers_are_refused_with_entry_and_field),
        cmocka_unit_test(what_is_written_reads_back_equal),
        cmocka_unit_test(a_profile_changed_in_place_is_checked),
        cmocka_unit_test(built_in_models_have_the_parameters_of_their_names),
        cmocka_unit_test(a_built_in_model_follows_its_formulas),
        cmocka_unit_test(cutting_a_built_in_model_neither_loses_nor_invents_layers),
        cmocka_unit_test(names_and_cuts_that_are_not_there_are_refused),
        cmocka_unit_test(limits_come_by_stage_or_by_worker_in_either_unit),
        cmocka_unit_test(limits_of_the_wrong_shape_or_unit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
