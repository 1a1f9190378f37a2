/* A model cut into stages and run in one process, for tests: text, stages, versions, sums. Include after
 * cmocka.h. */
#ifndef TESTS_MODEL_PIPELINE_H
#define TESTS_MODEL_PIPELINE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "model/gpt.h"
#include "model/gradsum.h"

#define PIPE_STAGES_MAX 8u

struct pipe {
    struct gpt_config config;
    uint32_t stage_count;
    uint64_t contributions;
    struct data *data;
    struct stage *stages[PIPE_STAGES_MAX];
    struct version versions[PIPE_STAGES_MAX];
    int64_t *sums[PIPE_STAGES_MAX];
};

/* Random tokens below `vocabulary` (at most 65536), as uint16, in a file that is gone once it is open. */
static inline struct data *pipe_data(uint32_t vocabulary, uint32_t context, uint64_t seed) {
    char path[] = "/tmp/pawl-text-XXXXXX";
    struct rng_stream rng = {seed};
    uint32_t count = context * 37 + 1;
    uint8_t *raw = malloc(count * 2);
    int fd = mkstemp(path);
    assert_true(raw != NULL && fd >= 0);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t token = rng_below(&rng, vocabulary);
        raw[2 * i] = (uint8_t)token;
        raw[2 * i + 1] = (uint8_t)(token >> 8);
    }
    assert_int_equal(write(fd, raw, count * 2), (ssize_t)(count * 2));
    close(fd);
    free(raw);
    struct data *d;
    struct pawl_error e = {0};
    if (data_open(path, DATA_U16, vocabulary, context, seed, &d, &e) != PAWL_OK) fail_msg("%s", e.text);
    unlink(path);
    return d;
}

/* Initial weights, moved away from the special values of the start (zeros and ones) by some noise. */
static inline void pipe_init(struct pipe *p, uint32_t s) {
    struct stage *stage = p->stages[s];
    assert_int_equal(stage->ops->init_params(stage, p->config.seed, p->versions[s].params, NULL), PAWL_OK);
    for (uint32_t t = 0; t < stage->tensor_count; t++) {
        const struct stage_tensor *tensor = &stage->tensors[t];
        float *noise = malloc(tensor->count * sizeof *noise);
        assert_non_null(noise);
        uint64_t key = 99;
        for (const char *c = tensor->name; *c != 0; c++) key = key * 31 + (uint64_t)*c;
        rng_normal(key, 1, 0.1f, noise, tensor->count);
        for (uint64_t i = 0; i < tensor->count; i++) p->versions[s].params[tensor->offset + i] += noise[i];
        free(noise);
    }
}

static inline struct pipe pipe_open(struct gpt_config config, uint32_t stage_count, uint64_t contributions) {
    struct pipe p = {.config = config, .stage_count = stage_count, .contributions = contributions};
    struct pawl_error e = {0};
    p.data = pipe_data(config.vocabulary, config.context, 42);
    for (uint32_t s = 0; s < stage_count; s++) {
        bool end = s == 0 || s == stage_count - 1;
        if (gpt_stage_open(&config, s, stage_count, end ? p.data : NULL, contributions, &p.stages[s], &e) !=
                PAWL_OK ||
            version_init(&p.versions[s], p.stages[s], &e) != PAWL_OK)
            fail_msg("%s", e.text);
        p.sums[s] = calloc(p.stages[s]->param_count + GRADSUM_FOOTER_WORDS, sizeof(int64_t));
        assert_non_null(p.sums[s]);
        pipe_init(&p, s);
    }
    return p;
}

static inline void pipe_close(struct pipe *p) {
    for (uint32_t s = 0; s < p->stage_count; s++) {
        version_close(&p->versions[s]);
        free(p->sums[s]);
        p->stages[s]->ops->close(p->stages[s]);
    }
    data_close(p->data);
}

static inline void pipe_clear(struct pipe *p) {
    for (uint32_t s = 0; s < p->stage_count; s++)
        memset(p->sums[s], 0, (p->stages[s]->param_count + GRADSUM_FOOTER_WORDS) * sizeof(int64_t));
}

struct pipe_batch { /* one micro-batch's slots */
    struct stage_slot *slots[PIPE_STAGES_MAX];
};

static inline struct pipe_batch pipe_take(struct pipe *p, uint64_t step, uint64_t microbatch) {
    struct pipe_batch b;
    struct pawl_error e = {0};
    for (uint32_t s = 0; s < p->stage_count; s++)
        if (p->stages[s]->ops->slot_take(p->stages[s], step, microbatch, &b.slots[s], &e) != PAWL_OK)
            fail_msg("%s", e.text);
    return b;
}

static inline void pipe_return(struct pipe *p, struct pipe_batch *b) {
    for (uint32_t s = 0; s < p->stage_count; s++) p->stages[s]->ops->slot_return(p->stages[s], b->slots[s]);
}

static inline void pipe_forward(struct pipe *p, struct pipe_batch *b) {
    for (uint32_t s = 0; s < p->stage_count; s++) {
        size_t bytes = p->stages[s]->input_bytes;
        if (s > 0) memcpy(b->slots[s]->input, b->slots[s - 1]->output, bytes);
        assert_int_equal(p->stages[s]->ops->forward(p->stages[s], &p->versions[s], b->slots[s], NULL),
                         PAWL_OK);
    }
}

static inline void pipe_input_grad(struct pipe *p, struct pipe_batch *b) {
    for (uint32_t s = p->stage_count; s-- > 0;) {
        size_t bytes = p->stages[s]->output_bytes;
        if (s + 1 < p->stage_count) memcpy(b->slots[s]->grad_in, b->slots[s + 1]->grad_out, bytes);
        assert_int_equal(p->stages[s]->ops->input_grad(p->stages[s], &p->versions[s], b->slots[s], NULL),
                         PAWL_OK);
    }
}

static inline void pipe_weight_grad(struct pipe *p, struct pipe_batch *b) {
    for (uint32_t s = 0; s < p->stage_count; s++)
        assert_int_equal(
            p->stages[s]->ops->weight_grad(p->stages[s], &p->versions[s], b->slots[s], p->sums[s], 0, NULL),
            PAWL_OK);
}

/* One micro-batch all the way; returns its loss. */
static inline double pipe_run(struct pipe *p, uint64_t step, uint64_t microbatch) {
    struct pipe_batch b = pipe_take(p, step, microbatch);
    pipe_forward(p, &b);
    pipe_input_grad(p, &b);
    pipe_weight_grad(p, &b);
    double loss = b.slots[p->stage_count - 1]->loss;
    pipe_return(p, &b);
    return loss;
}

/* Adds the two ends' sums of a tied embedding, on both. */
static inline void pipe_reduce_shared(struct pipe *p) {
    uint32_t last = p->stage_count - 1;
    if (last == 0 || !p->config.tied) return;
    const struct stage_tensor *a = &p->stages[0]->tensors[0];
    const struct stage_tensor *b = &p->stages[last]->tensors[p->stages[last]->tensor_count - 1];
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->flags & STAGE_SHARED, STAGE_SHARED);
    assert_int_equal(b->flags & STAGE_SHARED_COPY, STAGE_SHARED_COPY);
    gradsum_merge(p->sums[0] + a->offset, p->sums[last] + b->offset, a->count);
    memcpy(p->sums[last] + b->offset, p->sums[0] + a->offset, a->count * sizeof(int64_t));
}

/* The stage and index of a tensor of the whole model; the first of a shared pair. */
static inline const struct stage_tensor *pipe_find(const struct pipe *p, const char *name, uint32_t *stage,
                                                   uint32_t *index) {
    for (*stage = 0; *stage < p->stage_count; ++*stage)
        for (*index = 0; *index < p->stages[*stage]->tensor_count; ++*index)
            if (strcmp(p->stages[*stage]->tensors[*index].name, name) == 0)
                return &p->stages[*stage]->tensors[*index];
    fail_msg("no tensor %s", name);
    return NULL;
}

#endif
