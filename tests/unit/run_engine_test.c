/* What run/engine.h promises: both engines behind one face, which changes no bit and can be made slow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "model/gradsum.h"
#include "run/engine.h"

static char folder[] = "/tmp/pawl-engine-XXXXXX";

static void write_file(const char *name, const char *text) {
    char path[96];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int make_folder(void **state) {
    (void)state;
    char text[4097];
    if (mkdtemp(folder) == NULL) return -1;
    for (size_t i = 0; i + 1 < sizeof text; i++) text[i] = (char)('a' + i * i % 26);
    text[4096] = 0;
    write_file("data.txt", text);
    write_file("profile.yaml",
               "pawl_profile: 1\nunit_s: 0.001\nmemory_bytes: 1000\nstages:\n"
               "  - {forward: 1, input_grad: 2, weight_grad: 3, state_bytes: 100, activation_bytes: 10}\n"
               "  - {forward: 4, input_grad: 5, weight_grad: 6, state_bytes: 100, activation_bytes: 10}\n"
               "workers:\n  - {pipeline: 1, stage: 0, slow: 3}\n");
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static struct spec spec_of(const char *engine) {
    char text[1024];
    struct spec spec;
    struct pawl_error e = {0};
    snprintf(text, sizeof text,
             "run: {dir: x, engine: %s, seed: 7}\ndata: {path: %s/data.txt}\n"
             "model: {layers: 2, heads: 2, width: 8, context: 16, vocabulary: 256}\n"
             "emulated: {profile: %s/profile.yaml, parameters: 64}\n"
             "parallel: {pipelines: 2, stages: 2, microbatches: 3}\n",
             engine, folder, folder);
    if (spec_parse(text, strlen(text), "t", &spec, &e) != PAWL_OK) fail_msg("%s", e.text);
    return spec;
}

static struct engine *open_engine(const struct spec *spec, uint32_t rank) {
    struct engine *g = NULL;
    struct pawl_error e = {0};
    if (engine_open(spec, rank, &g, &e) != PAWL_OK) fail_msg("%s", e.text);
    return g;
}

static struct stage *stage_of(struct engine *g, uint32_t chunk) {
    struct stage *stage = NULL;
    struct pawl_error e = {0};
    if (engine_stage(g, chunk, &stage, &e) != PAWL_OK) fail_msg("%s", e.text);
    assert_int_equal(stage->index, chunk);
    assert_int_equal(stage->stage_count, 2);
    assert_int_equal(stage->contributions, 6);
    return stage;
}

static struct version first_version(struct engine *g, struct stage *stage) {
    struct version v;
    struct pawl_error e = {0};
    assert_int_equal(version_init(&v, stage, &e), PAWL_OK);
    if (engine_init(g, stage, &v, &e) != PAWL_OK) fail_msg("%s", e.text);
    return v;
}

/* Sums of both chunks after micro-batch 4 of step 9, through `factor`. */
static void sums_of(const struct spec *spec, double factor, int64_t *sums[2]) {
    struct engine *g = open_engine(spec, 0);
    engine_slow(g, factor);
    struct stage *at[2];
    struct version v[2];
    struct stage_slot *slots[2];
    for (uint32_t c = 0; c < 2; c++) {
        at[c] = stage_of(g, c);
        v[c] = first_version(g, at[c]);
        sums[c] = calloc(at[c]->param_count + GRADSUM_FOOTER_WORDS, sizeof **sums);
        assert_non_null(sums[c]);
        assert_int_equal(at[c]->ops->slot_take(at[c], 9, 4, &slots[c], NULL), PAWL_OK);
        assert_true(at[c]->slot_bytes > 0);
        if (c > 0) memcpy(slots[c]->input, slots[0]->output, at[c]->input_bytes);
        assert_int_equal(at[c]->ops->forward(at[c], &v[c], slots[c], NULL), PAWL_OK);
    }
    assert_int_equal(at[1]->ops->input_grad(at[1], &v[1], slots[1], NULL), PAWL_OK);
    memcpy(slots[0]->grad_in, slots[1]->grad_out, at[0]->output_bytes);
    assert_int_equal(at[0]->ops->input_grad(at[0], &v[0], slots[0], NULL), PAWL_OK);
    for (uint32_t c = 0; c < 2; c++) {
        assert_int_equal(at[c]->ops->weight_grad(at[c], &v[c], slots[c], sums[c], 0, NULL), PAWL_OK);
        assert_int_equal(sums[c][at[c]->param_count + GRADSUM_COUNT], (int64_t)at[c]->tensor_count);
        at[c]->ops->pause(at[c], STAGE_PAUSE_STEP);
        at[c]->ops->slot_return(at[c], slots[c]);
        version_close(&v[c]);
        at[c]->ops->close(at[c]);
    }
    engine_close(g);
}

static void being_slow_changes_no_bit(void **state) {
    (void)state;
    static const char *const engines[] = {"gpt", "emulated"};
    for (int i = 0; i < 2; i++) {
        struct spec spec = spec_of(engines[i]);
        int64_t *plain[2], *slow[2];
        sums_of(&spec, 1, plain);
        sums_of(&spec, 1.5, slow);
        for (int c = 0; c < 2; c++) {
            assert_memory_equal(plain[c], slow[c], 64 * sizeof(int64_t));
            free(plain[c]);
            free(slow[c]);
        }
    }
}

/* What the slot of chunk 1 is sent by chunk 0, on a worker that takes no time for it. */
static void bring_input(struct stage_slot *slot) {
    struct spec spec = spec_of("emulated");
    spec.emulated.unit_s = 1e-9;
    struct engine *g = open_engine(&spec, 0);
    struct stage *stage = stage_of(g, 0);
    struct version v = first_version(g, stage);
    struct stage_slot *before;
    assert_int_equal(stage->ops->slot_take(stage, 0, 0, &before, NULL), PAWL_OK);
    assert_int_equal(stage->ops->forward(stage, &v, before, NULL), PAWL_OK);
    memcpy(slot->input, before->output, stage->output_bytes);
    version_close(&v);
    stage->ops->close(stage);
    engine_close(g);
}

static int64_t forward_ns(struct engine *g, uint32_t chunk) {
    struct stage *stage = stage_of(g, chunk);
    struct version v = first_version(g, stage);
    struct stage_slot *slot;
    assert_int_equal(stage->ops->slot_take(stage, 0, 0, &slot, NULL), PAWL_OK);
    if (chunk > 0) bring_input(slot);
    int64_t begin = clock_now_ns();
    assert_int_equal(stage->ops->forward(stage, &v, slot, NULL), PAWL_OK);
    int64_t took = clock_now_ns() - begin;
    version_close(&v);
    stage->ops->close(stage);
    return took;
}

static void assert_at_least(int64_t ns, int64_t least_us) {
    if (ns < least_us * 1000)
        fail_msg("took %lld ns, at least %lld us are right", (long long)ns, (long long)least_us);
}

static void a_worker_is_as_slow_as_the_profile_and_the_injection_say(void **state) {
    (void)state;
    struct spec spec = spec_of("emulated");
    struct engine *plain = open_engine(&spec, 0), *slow = open_engine(&spec, 2);
    assert_at_least(forward_ns(plain, 0), 1000);
    assert_at_least(forward_ns(slow, 0), 3000);
    assert_at_least(forward_ns(slow, 1), 12000); /* its own speed, at the cost of the chunk it computes */
    engine_slow(slow, 2);
    assert_at_least(forward_ns(slow, 0), 6000);
    spec.emulated.unit_s = 0.002;
    struct engine *longer = open_engine(&spec, 0);
    assert_at_least(forward_ns(longer, 0), 2000);
    engine_close(plain);
    engine_close(slow);
    engine_close(longer);
}

static void the_memory_of_the_profile_is_a_limit(void **state) {
    (void)state;
    struct spec spec = spec_of("emulated");
    spec.emulated.unit_s = 1e-9;
    struct engine *g = open_engine(&spec, 0);
    struct stage *stage = stage_of(g, 0);
    struct version v = first_version(g, stage);
    struct pawl_error e = {0};
    struct stage_slot *slot;
    uint32_t stored = 0;
    /* 1000 bytes less 100 of state: 90 micro-batches of 10 */
    pawl_code code = PAWL_OK;
    while (code == PAWL_OK) {
        assert_int_equal(stage->ops->slot_take(stage, 0, stored, &slot, NULL), PAWL_OK);
        code = stage->ops->forward(stage, &v, slot, &e);
        assert_true(++stored < 1000);
    }
    assert_int_equal(stored, 91);
    assert_int_equal(code, PAWL_INTERNAL);
    version_close(&v);
    stage->ops->close(stage);
    engine_close(g);
}

static void the_tensors_of_the_run_are_those_of_all_chunks(void **state) {
    (void)state;
    static const char *const engines[] = {"gpt", "emulated"};
    for (int i = 0; i < 2; i++) {
        struct spec spec = spec_of(engines[i]);
        spec.model.tied = false;
        struct engine *g = open_engine(&spec, 0);
        struct stage_tensor *all;
        uint32_t count, at = 0;
        assert_int_equal(engine_tensors(&spec, &all, &count, NULL), PAWL_OK);
        for (uint32_t c = 0; c < 2; c++) {
            struct stage *stage = stage_of(g, c);
            for (uint32_t t = 0; t < stage->tensor_count; t++, at++) {
                assert_true(at < count);
                assert_string_equal(all[at].name, stage->tensors[t].name);
                assert_int_equal(all[at].count, stage->tensors[t].count);
            }
            stage->ops->close(stage);
        }
        assert_int_equal(at, count);
        engine_tensors_free(all, count);
        engine_close(g);
    }
}

static void what_is_wrong_is_said_at_opening(void **state) {
    (void)state;
    struct engine *g;
    struct stage *stage;
    struct pawl_error e = {0};
    struct spec spec = spec_of("gpt");
    strcpy(spec.data.path, "/proc/nonexistent/text");
    assert_int_equal(engine_open(&spec, 0, &g, &e), PAWL_NOT_FOUND);
    assert_null(g);
    spec = spec_of("emulated");
    spec.parallel.stages = 3;
    assert_int_equal(engine_open(&spec, 0, &g, &e), PAWL_SPEC);
    assert_non_null(strstr(e.text, "emulated.profile has 2 stages, but parallel.stages is 3"));
    spec = spec_of("emulated");
    g = open_engine(&spec, 0);
    assert_int_equal(engine_stage(g, 2, &stage, &e), PAWL_ARGUMENT);
    engine_close(g);
    engine_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(being_slow_changes_no_bit),
        cmocka_unit_test(a_worker_is_as_slow_as_the_profile_and_the_injection_say),
        cmocka_unit_test(the_memory_of_the_profile_is_a_limit),
        cmocka_unit_test(the_tensors_of_the_run_are_those_of_all_chunks),
        cmocka_unit_test(what_is_wrong_is_said_at_opening),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
