/* What model/adamw.h promises: torch.optim.AdamW's update, out of place, the same bits in any cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "model/adamw.h"
#include "model_pipeline.h"

static const struct adamw_config config = {
    .lr = 3e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};

static struct gpt_config model_of(uint32_t layers, bool tied) {
    return (struct gpt_config){.layers = layers,
                               .heads = 3,
                               .width = 21,
                               .context = 9,
                               .vocabulary = 17,
                               .batch = 2,
                               .tied = tied,
                               .seed = 7};
}

static float *random_gradient(const struct stage *stage, uint64_t seed) {
    float *g = malloc(stage->param_count * sizeof *g);
    assert_non_null(g);
    rng_normal(seed, 5, 0.02f, g, stage->param_count);
    return g;
}

struct plain { /* the reference's state, in double */
    double *p, *m, *v;
};

static void plain_step(const struct stage *stage, struct plain *s, const float *g, double clip, uint64_t t) {
    double lr = (double)config.lr, b1 = (double)config.beta1, b2 = (double)config.beta2;
    for (uint32_t i = 0; i < stage->tensor_count; i++) {
        const struct stage_tensor *tensor = &stage->tensors[i];
        bool decay = tensor->rank == 2;
        for (uint64_t k = tensor->offset; k < tensor->offset + tensor->count; k++) {
            double gradient = (double)g[k] * clip;
            s->m[k] = b1 * s->m[k] + (1 - b1) * gradient;
            s->v[k] = b2 * s->v[k] + (1 - b2) * gradient * gradient;
            double mean = s->m[k] / (1 - pow(b1, (double)t)), square = s->v[k] / (1 - pow(b2, (double)t));
            if (decay) s->p[k] -= lr * (double)config.weight_decay * s->p[k];
            s->p[k] -= lr * mean / (sqrt(square) + (double)config.eps);
        }
    }
}

static void five_steps_follow_the_plain_update_in_every_kernel_set(void **state) {
    (void)state;
    static const char *const sets[] = {"avx512", "avx2", "generic"};
    for (int set = 0; set < 3; set++) {
        setenv("PAWL_KERNELS", sets[set], 1);
        struct pipe p = pipe_open(model_of(1, true), 1, 1);
        struct stage *stage = p.stages[0];
        struct version next;
        uint64_t n = stage->param_count;
        assert_int_equal(version_init(&next, stage, NULL), PAWL_OK);
        struct plain plain = {calloc(n, 8), calloc(n, 8), calloc(n, 8)};
        for (uint64_t i = 0; i < n; i++) plain.p[i] = (double)p.versions[0].params[i];
        for (uint64_t t = 1; t <= 5; t++) {
            float *g = random_gradient(stage, t), clip = t == 3 ? 0.25f : 1.0f;
            adamw_step(stage, &config, &p.versions[0], g, clip, &next);
            plain_step(stage, &plain, g, (double)clip, t);
            for (uint64_t i = 0; i < n; i++)
                if (fabs((double)next.params[i] - plain.p[i]) > 3e-7 * (double)t)
                    fail_msg("%s, step %llu, parameter %llu: %.9g, wanted %.9g", sets[set],
                             (unsigned long long)t, (unsigned long long)i, (double)next.params[i],
                             plain.p[i]);
            assert_int_equal(next.number, t);
            assert_int_equal(next.updates, t);
            struct version old = p.versions[0];
            p.versions[0] = next;
            next = old;
            free(g);
        }
        free(plain.p);
        free(plain.m);
        free(plain.v);
        version_close(&next);
        pipe_close(&p);
    }
    unsetenv("PAWL_KERNELS");
}

static void the_version_read_stays_as_it_is(void **state) {
    (void)state;
    struct pipe p = pipe_open(model_of(1, false), 1, 1);
    struct version a, b;
    struct stage *stage = p.stages[0];
    size_t bytes = p.versions[0].bytes;
    assert_int_equal(version_init(&a, stage, NULL), PAWL_OK);
    assert_int_equal(version_init(&b, stage, NULL), PAWL_OK);
    void *before = malloc(bytes);
    memcpy(before, p.versions[0].region, bytes);
    float *g = random_gradient(stage, 1);
    adamw_step(stage, &config, &p.versions[0], g, 1.0f, &a);
    assert_memory_equal(before, p.versions[0].region, bytes);
    adamw_step(stage, &config, &p.versions[0], g, 1.0f, &b); /* undone and done again: the same bits */
    assert_memory_equal(a.region, b.region, bytes);
    assert_memory_not_equal(a.params, p.versions[0].params, stage->param_count * 4);
    adamw_skip(stage, &a, &b);
    assert_memory_equal(a.region, b.region, bytes);
    assert_int_equal(b.number, a.number + 1);
    assert_int_equal(b.updates, a.updates);
    free(before);
    free(g);
    version_close(&a);
    version_close(&b);
    pipe_close(&p);
}

static void exponents_follow_the_largest_gradient_of_each_tensor(void **state) {
    (void)state;
    struct pipe p = pipe_open(model_of(1, true), 1, 8);
    struct stage *stage = p.stages[0];
    struct version next;
    assert_int_equal(version_init(&next, stage, NULL), PAWL_OK);
    float *g = random_gradient(stage, 1);
    for (uint32_t t = 0; t < stage->tensor_count; t++) {
        const struct stage_tensor *tensor = &stage->tensors[t];
        for (uint64_t i = 0; i < tensor->count; i++) g[tensor->offset + i] *= ldexpf(1, -(int)t);
        if (t == 3) memset(g + tensor->offset, 0, tensor->count * 4);
    }
    adamw_step(stage, &config, &p.versions[0], g, 0.001f, &next);
    for (uint32_t t = 0; t < stage->tensor_count; t++) {
        const struct stage_tensor *tensor = &stage->tensors[t];
        float peak = 0;
        for (uint64_t i = 0; i < tensor->count; i++) peak = fmaxf(peak, fabsf(g[tensor->offset + i]));
        assert_int_equal(next.exponents[t], gradsum_exponent(peak, t == 0 ? 16 : 8)); /* wte is used twice */
    }
    free(g);
    version_close(&next);
    pipe_close(&p);
}

static void the_norm_counts_every_tensor_once(void **state) {
    (void)state;
    struct gpt_config c = model_of(3, true);
    struct pipe whole = pipe_open(c, 1, 1), cut = pipe_open(c, 3, 1);
    double wanted = 0, had = 0, plain = 0;
    float *g = random_gradient(whole.stages[0], 1);
    for (uint64_t i = 0; i < whole.stages[0]->param_count; i++) plain += (double)g[i] * (double)g[i];
    wanted = adamw_norm2(whole.stages[0], g);
    for (uint32_t s = 0; s < 3; s++) {
        float *part = calloc(cut.stages[s]->param_count, sizeof *part);
        for (uint32_t t = 0; t < cut.stages[s]->tensor_count; t++) {
            uint32_t stage, index;
            const struct stage_tensor *to = &cut.stages[s]->tensors[t];
            const struct stage_tensor *from = pipe_find(&whole, to->name, &stage, &index);
            memcpy(part + to->offset, g + from->offset, to->count * 4);
        }
        had += adamw_norm2(cut.stages[s], part);
        free(part);
    }
    assert_true(fabs(wanted - plain) <= 1e-12 * plain);
    assert_true(fabs(wanted - had) <= 1e-12 * plain);
    free(g);
    pipe_close(&whole);
    pipe_close(&cut);
}

/* Two optimizer steps of two micro-batches each. */
static void train(struct pipe *p) {
    for (uint64_t step = 0; step < 2; step++) {
        pipe_clear(p);
        for (uint64_t b = 0; b < p->contributions; b++) pipe_run(p, step, b);
        pipe_reduce_shared(p);
        for (uint32_t s = 0; s < p->stage_count; s++) {
            struct stage *stage = p->stages[s];
            struct version next;
            assert_int_equal(version_init(&next, stage, NULL), PAWL_OK);
            float *g = malloc(stage->param_count * sizeof *g);
            for (uint32_t t = 0; t < stage->tensor_count; t++) {
                const struct stage_tensor *tensor = &stage->tensors[t];
                gradsum_mean(p->sums[s] + tensor->offset, g + tensor->offset, tensor->count,
                             p->versions[s].exponents[t], p->contributions);
            }
            adamw_step(stage, &config, &p->versions[s], g, 1.0f, &next);
            version_close(&p->versions[s]);
            p->versions[s] = next;
            free(g);
        }
    }
}

static void training_gives_the_same_bits_in_any_cut(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct gpt_config c = model_of(5, tied != 0);
        struct pipe whole = pipe_open(c, 1, 2);
        train(&whole);
        for (uint32_t stages = 2; stages <= 4; stages++) {
            struct pipe cut = pipe_open(c, stages, 2);
            train(&cut);
            for (uint32_t s = 0; s < stages; s++)
                for (uint32_t t = 0; t < cut.stages[s]->tensor_count; t++) {
                    uint32_t stage, index;
                    const struct stage_tensor *b = &cut.stages[s]->tensors[t];
                    const struct stage_tensor *a = pipe_find(&whole, b->name, &stage, &index);
                    const struct version *va = &whole.versions[0], *vb = &cut.versions[s];
                    if (memcmp(va->params + a->offset, vb->params + b->offset, a->count * 4) != 0 ||
                        memcmp(va->exp_avg + a->offset, vb->exp_avg + b->offset, a->count * 4) != 0 ||
                        memcmp(va->exp_avg_sq + a->offset, vb->exp_avg_sq + b->offset, a->count * 4) != 0 ||
                        va->exponents[index] != vb->exponents[t])
                        fail_msg("%s differs between 1 and %u stages", a->name, stages);
                }
            pipe_close(&cut);
        }
        pipe_close(&whole);
    }
}

static void the_learning_rate_warms_up_and_decays(void **state) {
    (void)state;
    struct adamw_config c = {.lr = 1.0f, .lr_min = 0.1f, .warmup_steps = 10, .decay_steps = 110};
    assert_true(adamw_lr(&c, 0) == 0.1f);
    assert_true(adamw_lr(&c, 4) == 0.5f);
    assert_true(adamw_lr(&c, 9) == 1.0f);
    assert_true(adamw_lr(&c, 10) == 1.0f);
    assert_true(fabsf(adamw_lr(&c, 60) - 0.55f) < 1e-6f);
    assert_true(adamw_lr(&c, 110) == 0.1f);
    assert_true(adamw_lr(&c, UINT64_MAX) == 0.1f);
    for (uint64_t n = 10; n < 110; n++) assert_true(adamw_lr(&c, n + 1) < adamw_lr(&c, n));
    c.decay_steps = 0;
    assert_true(adamw_lr(&c, 1000000) == 1.0f);
    c.warmup_steps = 0;
    assert_true(adamw_lr(&c, 0) == 1.0f);
}

static void version_sections_are_aligned_and_apart(void **state) {
    (void)state;
    struct pipe p = pipe_open(model_of(1, true), 1, 4);
    struct version *v = &p.versions[0];
    size_t section = p.stages[0]->param_count * sizeof(float);
    const char *parts[4] = {(char *)v->params, (char *)v->exp_avg, (char *)v->exp_avg_sq,
                            (char *)v->exponents};
    for (int i = 0; i < 4; i++) {
        assert_int_equal((uintptr_t)parts[i] % 4096, 0);
        if (i > 0) assert_true(parts[i] >= parts[i - 1] + section);
    }
    assert_true(parts[3] + p.stages[0]->tensor_count * 4 <= (char *)v->region + v->bytes);
    assert_int_equal(v->exponents[0], gradsum_exponent_first(8));
    assert_int_equal(v->exponents[1], gradsum_exponent_first(4));
    struct stage huge = *p.stages[0];
    struct version none;
    struct pawl_error e;
    huge.param_count = UINT64_MAX / 8;
    assert_int_equal(version_init(&none, &huge, &e), PAWL_MEMORY);
    assert_null(none.region);
    pipe_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_steps_follow_the_plain_update_in_every_kernel_set),
        cmocka_unit_test(the_version_read_stays_as_it_is),
        cmocka_unit_test(exponents_follow_the_largest_gradient_of_each_tensor),
        cmocka_unit_test(the_norm_counts_every_tensor_once),
        cmocka_unit_test(training_gives_the_same_bits_in_any_cut),
        cmocka_unit_test(the_learning_rate_warms_up_and_decays),
        cmocka_unit_test(version_sections_are_aligned_and_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
