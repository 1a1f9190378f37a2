/* What model/gpt.h and model/stage.h promise: the loss and every gradient are GPT-2's, and their bits depend
 * neither on the cut into stages nor on who computes what in which order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "model_pipeline.h"
#include "model_reference.h"

static struct gpt_config config_of(uint32_t layers, bool tied, float dropout) {
    return (struct gpt_config){.layers = layers,
                               .heads = 3,
                               .width = 12,
                               .context = 9,
                               .vocabulary = 17,
                               .batch = 2,
                               .tied = tied,
                               .dropout = dropout,
                               .seed = 7};
}

static void load_tokens(const struct pipe *p, uint64_t step, uint64_t microbatch, int32_t *tokens,
                        int32_t *targets) {
    const struct gpt_config *c = &p->config;
    for (uint32_t row = 0; row < c->batch; row++) {
        uint64_t n = step * p->contributions * c->batch + microbatch * c->batch + row;
        assert_int_equal(data_sample(p->data, n, tokens + row * c->context, targets + row * c->context, NULL),
                         PAWL_OK);
    }
}

/* The reference over the parameters of a one-stage pipe. */
struct ref_case {
    struct ref ref;
    double *p, *dp;
    int32_t *tokens, *targets;
};

static struct ref_case ref_of(const struct pipe *pipe, uint64_t step, uint64_t microbatch) {
    uint64_t count = pipe->stages[0]->param_count, rows = (uint64_t)pipe->config.batch * pipe->config.context;
    struct ref_case k = {.p = ref_zeros(count), .dp = ref_zeros(count)};
    k.tokens = calloc(rows, sizeof *k.tokens);
    k.targets = calloc(rows, sizeof *k.targets);
    assert_int_equal(pipe->stage_count, 1);
    for (uint64_t i = 0; i < count; i++) k.p[i] = (double)pipe->versions[0].params[i];
    load_tokens(pipe, step, microbatch, k.tokens, k.targets);
    k.ref = (struct ref){.c = pipe->config,
                         .step = step,
                         .microbatch = microbatch,
                         .tokens = k.tokens,
                         .targets = k.targets,
                         .p = k.p,
                         .dp = k.dp};
    return k;
}

static void ref_case_close(struct ref_case *k) {
    free(k->p);
    free(k->dp);
    free(k->tokens);
    free(k->targets);
}

static void the_reference_agrees_with_finite_differences(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct gpt_config c = config_of(2, kind % 2 == 0, kind < 2 ? 0.0f : 0.3f);
        c.width = 6;
        c.context = 5;
        c.vocabulary = 7;
        struct pipe pipe = pipe_open(c, 1, 3);
        struct ref_case k = ref_of(&pipe, 1, 2);
        ref_run(&k.ref);
        struct ref loss_only = k.ref;
        loss_only.dp = NULL;
        for (uint64_t i = 0; i < pipe.stages[0]->param_count; i++) {
            const double step = 1e-5, at = k.p[i];
            k.p[i] = at + step;
            double above = ref_run(&loss_only);
            k.p[i] = at - step;
            double below = ref_run(&loss_only);
            k.p[i] = at;
            double slope = (above - below) / (2 * step);
            if (fabs(slope - k.dp[i]) > 1e-8 + 1e-6 * fabs(slope))
                fail_msg("kind %d, parameter %llu: slope %.12g, gradient %.12g", kind, (unsigned long long)i,
                         slope, k.dp[i]);
        }
        ref_case_close(&k);
        pipe_close(&pipe);
    }
}

static void assert_close_to_reference(struct pipe *pipe, double loss, const struct ref_case *k,
                                      double wanted) {
    if (fabs(loss - wanted) > 2e-6 * fabs(wanted)) fail_msg("loss %.9g, reference %.9g", loss, wanted);
    const struct stage *stage = pipe->stages[0];
    for (uint32_t t = 0; t < stage->tensor_count; t++) {
        const struct stage_tensor *tensor = &stage->tensors[t];
        double top = 0, error = 0;
        for (uint64_t i = 0; i < tensor->count; i++) {
            double g = ldexp((double)pipe->sums[0][tensor->offset + i], -pipe->versions[0].exponents[t]);
            top = fmax(top, fabs(k->dp[tensor->offset + i]));
            error = fmax(error, fabs(g - k->dp[tensor->offset + i]));
        }
        if (error > 1e-5 * top || top == 0)
            fail_msg("%s: error %.3g, largest gradient %.3g", tensor->name, error, top);
    }
}

static void check_against_reference(struct gpt_config c) {
    struct pipe pipe = pipe_open(c, 1, 3);
    for (uint64_t step = 0; step < 2; step++) {
        struct ref_case k = ref_of(&pipe, step, 1);
        pipe_clear(&pipe);
        double loss = pipe_run(&pipe, step, 1);
        assert_close_to_reference(&pipe, loss, &k, ref_run(&k.ref));
        ref_case_close(&k);
    }
    pipe_close(&pipe);
}

static void loss_and_every_gradient_are_the_references(void **state) {
    (void)state;
    static const char *const sets[] = {"avx512", "avx2", "generic"};
    for (int set = 0; set < 3; set++) {
        setenv("PAWL_KERNELS", sets[set], 1);
        for (int kind = 0; kind < 4; kind++)
            check_against_reference(config_of(2, kind % 2 == 0, kind < 2 ? 0.0f : 0.3f));
        /* More than one block of query rows, and sides that are no multiple of a vector. */
        struct gpt_config c = config_of(1, true, 0.0f);
        c.context = 131;
        c.width = 21;
        c.vocabulary = 301;
        check_against_reference(c);
        c.dropout = 0.1f;
        c.context = 64;
        c.width = 48;
        check_against_reference(c);
    }
    unsetenv("PAWL_KERNELS");
}

static void a_matrix_of_several_slabs_is_whole(void **state) {
    (void)state;
    struct gpt_config c = config_of(1, true, 0.0f);
    c.width = 39;
    c.context = 5;
    c.batch = 1;
    c.vocabulary = 60001; /* 2.3 million floats; 60001 rows are no multiple of three */
    check_against_reference(c);
    c.tied = false;
    check_against_reference(c);
}

/* Sums of a pipe cut into `stages` compared with those of one stage, tensor by tensor, by name. */
static void assert_same_sums(const struct pipe *whole, const struct pipe *cut) {
    int64_t footer[GRADSUM_FOOTER_WORDS] = {0};
    for (uint32_t t = 0; t < whole->stages[0]->tensor_count; t++) {
        const struct stage_tensor *a = &whole->stages[0]->tensors[t];
        uint32_t s, index;
        const struct stage_tensor *b = pipe_find(cut, a->name, &s, &index);
        assert_int_equal(a->count, b->count);
        assert_int_equal(whole->versions[0].exponents[t], cut->versions[s].exponents[index]);
        if (memcmp(whole->sums[0] + a->offset, cut->sums[s] + b->offset, a->count * 8) != 0)
            fail_msg("%s: sums differ between 1 and %u stages", a->name, cut->stage_count);
    }
    for (uint32_t s = 0; s < cut->stage_count; s++)
        gradsum_merge(footer, cut->sums[s] + cut->stages[s]->param_count, GRADSUM_FOOTER_WORDS);
    assert_memory_equal(footer, whole->sums[0] + whole->stages[0]->param_count, sizeof footer);
}

static void the_cut_into_stages_does_not_change_a_bit(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct gpt_config c = config_of(5, kind % 2 == 0, kind < 2 ? 0.0f : 0.2f);
        struct pipe whole = pipe_open(c, 1, 4);
        double losses[4];
        for (uint64_t b = 0; b < 4; b++) losses[b] = pipe_run(&whole, 3, b);
        for (uint32_t stages = 2; stages <= 5; stages++) {
            struct pipe cut = pipe_open(c, stages, 4);
            for (uint64_t b = 0; b < 4; b++) assert_true(pipe_run(&cut, 3, b) == losses[b]);
            pipe_reduce_shared(&cut);
            assert_same_sums(&whole, &cut);
            pipe_close(&cut);
        }
        assert_int_equal(whole.sums[0][whole.stages[0]->param_count + GRADSUM_COUNT],
                         4 * (whole.stages[0]->tensor_count + (c.tied ? 1 : 0)));
        pipe_close(&whole);
    }
}

static void who_computes_a_microbatch_and_when_does_not_change_a_bit(void **state) {
    (void)state;
    struct gpt_config c = config_of(3, true, 0.2f);
    struct pipe alone = pipe_open(c, 1, 4), left = pipe_open(c, 2, 4), right = pipe_open(c, 3, 4);
    for (uint64_t b = 0; b < 4; b++) pipe_run(&alone, 1, b);
    /* Three in flight on one pipeline, weight gradients put off and in another order; one on the other. */
    static const uint64_t order[3] = {3, 0, 2};
    struct pipe_batch batches[3];
    for (int i = 0; i < 3; i++) batches[i] = pipe_take(&left, 1, order[i]);
    for (int i = 0; i < 3; i++) pipe_forward(&left, &batches[i]);
    for (int i = 3; i-- > 0;) pipe_input_grad(&left, &batches[i]);
    for (int i = 0; i < 3; i++) pipe_weight_grad(&left, &batches[(i + 1) % 3]);
    for (int i = 0; i < 3; i++) pipe_return(&left, &batches[i]);
    pipe_run(&right, 1, 1);
    pipe_reduce_shared(&left);
    pipe_reduce_shared(&right);
    for (uint32_t t = 0; t < alone.stages[0]->tensor_count; t++) {
        const struct stage_tensor *a = &alone.stages[0]->tensors[t];
        uint32_t ls, li, rs, ri;
        const struct stage_tensor *l = pipe_find(&left, a->name, &ls, &li),
                                  *r = pipe_find(&right, a->name, &rs, &ri);
        gradsum_merge(left.sums[ls] + l->offset, right.sums[rs] + r->offset, a->count);
        if (memcmp(alone.sums[0] + a->offset, left.sums[ls] + l->offset, a->count * 8) != 0)
            fail_msg("%s differs", a->name);
    }
    pipe_close(&alone);
    pipe_close(&left);
    pipe_close(&right);
}

static void a_slot_that_is_used_again_leaves_no_trace(void **state) {
    (void)state;
    struct gpt_config c = config_of(2, true, 0.2f);
    struct pipe fresh = pipe_open(c, 2, 4), used = pipe_open(c, 2, 4);
    for (uint64_t b = 0; b < 3; b++) pipe_run(&used, 9, b);
    struct pipe_batch half = pipe_take(&used, 9, 3); /* given up after its forward pass, then done again */
    pipe_forward(&used, &half);
    pipe_input_grad(&used, &half);
    pipe_return(&used, &half);
    pipe_clear(&used);
    assert_true(pipe_run(&fresh, 0, 2) == pipe_run(&used, 0, 2));
    for (uint32_t s = 0; s < 2; s++)
        assert_memory_equal(fresh.sums[s], used.sums[s],
                            (fresh.stages[s]->param_count + GRADSUM_FOOTER_WORDS) * 8);
    pipe_close(&fresh);
    pipe_close(&used);
}

static void slots_are_taken_once_and_used_again(void **state) {
    (void)state;
    struct pipe p = pipe_open(config_of(2, false, 0.0f), 1, 4);
    const struct stage_ops *ops = p.stages[0]->ops;
    struct stage_slot *a, *b, *again;
    assert_int_equal(ops->slot_take(p.stages[0], 0, 0, &a, NULL), PAWL_OK);
    assert_int_equal(ops->slot_take(p.stages[0], 0, 1, &b, NULL), PAWL_OK);
    assert_ptr_not_equal(a, b);
    assert_null(a->input);
    assert_null(a->output);
    ops->slot_return(p.stages[0], a);
    assert_int_equal(ops->slot_take(p.stages[0], 5, 3, &again, NULL), PAWL_OK);
    assert_ptr_equal(again, a);
    assert_int_equal(again->step, 5);
    assert_int_equal(again->microbatch, 3);
    pipe_close(&p);
}

static void dropout_masks_follow_step_microbatch_and_seed(void **state) {
    (void)state;
    struct gpt_config c = config_of(2, true, 0.5f);
    struct pipe p = pipe_open(c, 1, 1);
    /* The text has 37 windows: 37 steps later the epoch changes, so compare by the same tokens instead. */
    struct pipe_batch b = pipe_take(&p, 0, 0);
    double losses[4];
    for (int i = 0; i < 4; i++) {
        b.slots[0]->step = i == 1;
        b.slots[0]->microbatch = i == 2;
        pipe_forward(&p, &b);
        losses[i] = b.slots[0]->loss;
    }
    assert_true(losses[0] == losses[3]);
    assert_true(losses[0] != losses[1] && losses[0] != losses[2] && losses[1] != losses[2]);
    pipe_close(&p);
}

static void a_nan_in_a_weight_is_counted_and_never_summed(void **state) {
    (void)state;
    struct pipe p = pipe_open(config_of(2, true, 0.0f), 1, 1);
    p.versions[0].params[p.stages[0]->tensors[5].offset] = NAN;
    double loss = pipe_run(&p, 0, 0);
    const int64_t *footer = p.sums[0] + p.stages[0]->param_count;
    assert_true(isnan(loss));
    assert_int_equal(footer[GRADSUM_NONFINITE],
                     p.stages[0]->tensor_count + 2); /* every tensor, twice wte, the loss */
    assert_int_equal(footer[GRADSUM_OVERFLOW], 0);
    pipe_close(&p);
}

static void an_exponent_shift_halves_the_sums(void **state) {
    (void)state;
    struct pipe p = pipe_open(config_of(1, false, 0.0f), 1, 1);
    struct pipe_batch b = pipe_take(&p, 0, 0);
    struct stage *stage = p.stages[0];
    pipe_forward(&p, &b);
    pipe_input_grad(&p, &b);
    pipe_weight_grad(&p, &b);
    int64_t *shifted = calloc(stage->param_count + GRADSUM_FOOTER_WORDS, 8);
    assert_int_equal(stage->ops->weight_grad(stage, &p.versions[0], b.slots[0], shifted, 4, NULL), PAWL_OK);
    for (uint64_t i = 0; i < stage->param_count; i++) {
        int64_t wanted = p.sums[0][i], had = shifted[i] * 16;
        assert_true(llabs(wanted - had) <= 8);
    }
    free(shifted);
    pipe_close(&p);
}

static void float_sums_are_those_of_the_exact_kind_but_for_rounding(void **state) {
    (void)state;
    struct pipe p = pipe_open(config_of(2, true, 0.0f), 1, 1);
    struct pipe_batch b = pipe_take(&p, 0, 0);
    struct stage *stage = p.stages[0];
    pipe_forward(&p, &b);
    pipe_input_grad(&p, &b);
    pipe_weight_grad(&p, &b);
    uint64_t words = gradsum_words(GRADSUM_FLOAT, stage->param_count);
    int64_t *sums = calloc(words + GRADSUM_FOOTER_WORDS, 8);
    stage->sums = GRADSUM_FLOAT;
    assert_int_equal(stage->ops->weight_grad(stage, &p.versions[0], b.slots[0], sums, 0, NULL), PAWL_OK);
    assert_memory_equal(sums + words, p.sums[0] + stage->param_count, GRADSUM_FOOTER_WORDS * 8);
    const float *had = gradsum_at(GRADSUM_FLOAT, sums, 0);
    for (uint32_t t = 0; t < stage->tensor_count; t++) {
        const struct stage_tensor *tensor = &stage->tensors[t];
        for (uint64_t i = tensor->offset; i < tensor->offset + tensor->count; i++) {
            double wanted = ldexp((double)p.sums[0][i], -p.versions[0].exponents[t]);
            if (fabs(wanted - (double)had[i]) > 1e-6 * fabs(wanted) + 1e-9)
                fail_msg("%s: wanted %g, had %g", tensor->name, wanted, (double)had[i]);
        }
    }
    free(sums);
    pipe_close(&p);
}

/* The first gradient of a stage: stored where there are no sums, and added to sums of 0. */
static void assert_stored_as_added(struct stage *stage, const struct version *v, struct stage_slot *slot) {
    uint64_t words = gradsum_words(stage->sums, stage->param_count);
    int64_t *stored = malloc((words + GRADSUM_FOOTER_WORDS) * 8);
    int64_t *added = calloc(words + GRADSUM_FOOTER_WORDS, 8);
    memset(stored, 0xa5, words * 8);
    memset(stored + words, 0, GRADSUM_FOOTER_WORDS * 8);
    added[words + GRADSUM_COUNT] = 1;
    assert_int_equal(stage->ops->weight_grad(stage, v, slot, stored, 0, NULL), PAWL_OK);
    assert_int_equal(stage->ops->weight_grad(stage, v, slot, added, 0, NULL), PAWL_OK);
    added[words + GRADSUM_COUNT]--;
    assert_memory_equal(stored, added, stage->param_count * gradsum_bytes(stage->sums));
    assert_memory_equal(stored + words, added + words, GRADSUM_FOOTER_WORDS * 8);
    free(stored);
    free(added);
}

static void what_lies_in_empty_sums_does_not_matter(void **state) {
    (void)state;
    for (uint32_t stages = 1; stages <= 3; stages++)
        for (int tied = 0; tied < 2; tied++) {
            struct pipe p = pipe_open(config_of(3, tied, 0.0f), stages, 1);
            struct pipe_batch b = pipe_take(&p, 0, 0);
            pipe_forward(&p, &b);
            pipe_input_grad(&p, &b);
            for (uint32_t s = 0; s < stages; s++)
                for (int kind = 0; kind < GRADSUM_KIND_COUNT; kind++) {
                    p.stages[s]->sums = (enum gradsum_kind)kind;
                    assert_stored_as_added(p.stages[s], &p.versions[s], b.slots[s]);
                }
            pipe_return(&p, &b);
            pipe_close(&p);
        }
}

static void initial_weights_are_gpt2s_in_any_cut(void **state) {
    (void)state;
    struct gpt_config c = {.layers = 4,
                           .heads = 4,
                           .width = 128,
                           .context = 64,
                           .vocabulary = 256,
                           .batch = 1,
                           .tied = false,
                           .seed = 3};
    struct data *data = pipe_data(256, 64, 1);
    float *whole = NULL;
    struct stage *one;
    assert_int_equal(gpt_stage_open(&c, 0, 1, data, 1, &one, NULL), PAWL_OK);
    assert_int_equal(one->param_count, gpt_param_count(&c));
    whole = calloc(one->param_count, sizeof *whole);
    assert_int_equal(one->ops->init_params(one, c.seed, whole, NULL), PAWL_OK);
    for (uint32_t t = 0; t < one->tensor_count; t++) {
        const struct stage_tensor *tensor = &one->tensors[t];
        double squares = 0, wanted = tensor->rank == 1 ? 0 : 0.02;
        if (strstr(tensor->name, "c_proj.weight") != NULL) wanted = 0.02 / sqrt(2.0 * 4);
        if (strstr(tensor->name, "ln_") != NULL && strstr(tensor->name, ".weight") != NULL) wanted = 1;
        for (uint64_t i = 0; i < tensor->count; i++) squares += pow((double)whole[tensor->offset + i], 2);
        double deviation = sqrt(squares / (double)tensor->count);
        if (fabs(deviation - wanted) > 0.03 * wanted)
            fail_msg("%s: %g, wanted %g", tensor->name, deviation, wanted);
        assert_int_equal((tensor->flags & STAGE_DECAY) != 0, tensor->rank == 2);
    }
    for (uint32_t s = 0; s < 3; s++) {
        struct stage *part;
        assert_int_equal(gpt_stage_open(&c, s, 3, data, 1, &part, NULL), PAWL_OK);
        float *params = calloc(part->param_count, sizeof *params);
        assert_int_equal(part->ops->init_params(part, c.seed, params, NULL), PAWL_OK);
        for (uint32_t t = 0; t < part->tensor_count; t++)
            for (uint32_t u = 0; u < one->tensor_count; u++)
                if (strcmp(part->tensors[t].name, one->tensors[u].name) == 0)
                    assert_memory_equal(params + part->tensors[t].offset, whole + one->tensors[u].offset,
                                        one->tensors[u].count * sizeof *params);
        free(params);
        part->ops->close(part);
    }
    free(whole);
    one->ops->close(one);
    data_close(data);
}

static void assert_config_refused(struct gpt_config c, uint32_t stages, const char *cause) {
    struct pawl_error e = {0};
    pawl_code code = gpt_config_check(&c, stages, &e);
    if (code != PAWL_SPEC || strstr(e.text, cause) == NULL)
        fail_msg("%s \"%s\", wanted SPEC \"%s\"", pawl_code_name(code), e.text, cause);
}

static void sizes_that_cannot_be_are_refused_by_name(void **state) {
    (void)state;
    const struct gpt_config good = config_of(4, true, 0.0f);
    assert_int_equal(gpt_config_check(&good, 4, NULL), PAWL_OK);
    struct gpt_config c = good;
    assert_config_refused(good, 5, "5 pipeline stages but only 4 layers");
    assert_config_refused(good, 0, "pipeline stages is 0");
    c.heads = 5;
    assert_config_refused(c, 1, "width 12 is not divisible by heads 5");
    c = good;
    c.vocabulary = 0;
    assert_config_refused(c, 1, "vocabulary is 0");
    c = good;
    c.dropout = 1.0f;
    assert_config_refused(c, 1, "dropout 1");
    c.dropout = NAN;
    assert_config_refused(c, 1, "dropout");
    c = good;
    c.batch = 1u << 31;
    assert_config_refused(c, 1, "batch * context");
    c = good;
    c.width = 1u << 30;
    c.heads = 1;
    assert_config_refused(c, 1, "4 * width");
    c = good;
    c.width = 1u << 28;
    c.heads = 1;
    c.layers = 1u << 31;
    assert_config_refused(c, 1, "64 bits");
}

static void a_text_of_another_shape_is_refused(void **state) {
    (void)state;
    struct gpt_config c = config_of(2, true, 0.0f);
    struct data *data = pipe_data(c.vocabulary + 1, c.context, 1);
    struct stage *stage;
    struct pawl_error e;
    assert_int_equal(gpt_stage_open(&c, 0, 2, data, 1, &stage, &e), PAWL_SPEC);
    assert_int_equal(gpt_stage_open(&c, 0, 2, NULL, 1, &stage, &e), PAWL_ARGUMENT);
    assert_null(stage);
    data_close(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_agrees_with_finite_differences),
        cmocka_unit_test(loss_and_every_gradient_are_the_references),
        cmocka_unit_test(a_matrix_of_several_slabs_is_whole),
        cmocka_unit_test(the_cut_into_stages_does_not_change_a_bit),
        cmocka_unit_test(who_computes_a_microbatch_and_when_does_not_change_a_bit),
        cmocka_unit_test(a_slot_that_is_used_again_leaves_no_trace),
        cmocka_unit_test(slots_are_taken_once_and_used_again),
        cmocka_unit_test(dropout_masks_follow_step_microbatch_and_seed),
        cmocka_unit_test(a_nan_in_a_weight_is_counted_and_never_summed),
        cmocka_unit_test(an_exponent_shift_halves_the_sums),
        cmocka_unit_test(float_sums_are_those_of_the_exact_kind_but_for_rounding),
        cmocka_unit_test(what_lies_in_empty_sums_does_not_matter),
        cmocka_unit_test(initial_weights_are_gpt2s_in_any_cut),
        cmocka_unit_test(sizes_that_cannot_be_are_refused_by_name),
        cmocka_unit_test(a_text_of_another_shape_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
