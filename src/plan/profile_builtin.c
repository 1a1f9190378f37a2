/* Built-in profiles: the models of the papers on pipelines and failures, by stated formulas and constants,
 * not by measurement. docs/planning.md derives them; nothing here is tuned to a result.
 *
 * Per layer and token, with h the width and s the sequence (Zero Bubble, ICLR'24, table of FLOPs;
 * Megatron-LM, SC'21): forward 24 h^2 + 4 s h, input-gradient 24 h^2 + 8 s h, weight-gradient 24 h^2; the
 * head 2 h v each. Everything is of one GPU of a tensor-parallel group of t, which shares layers, head and
 * activations evenly. Tested in tests/unit/plan_profile_test.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "plan/profile.h"

/* An A100 of 80 GB: 312 TFLOP/s in bf16, of which large transformers sustain 44 to 52 % (SC'21, table of weak
 * scaling); 2.0 TB/s of memory, of which an optimizer that only streams gets three quarters. */
#define GPU_FLOPS        312e12
#define GPU_UTILIZATION  0.45
#define GPU_MEMORY_BPS   1.5e12
#define GPU_MEMORY_BYTES ((uint64_t)80 << 30)
/* Eight 200 Gb/s adapters for the eight GPUs of a server; PCIe 4.0 x16 shared by two. */
#define LINK_BPS 25e9
#define HOST_BPS 12e9
/* Mixed precision with Adam: bf16 weights and fp32 gradients, weights, two moments. */
#define STATE_BYTES 18.0
#define GRAD_BYTES  4.0
/* The step reads 16 of the 18 bytes (not the bf16 weights) and writes 14 (not the gradients). */
#define STEP_BYTES 30.0
/* Bytes per token and unit of width that a layer keeps for its backward pass with fused attention
 * (Korthikanti et al., MLSys'23: 34, without the term in s), and the part of them that weight-gradients need.
 */
#define LAYER_ACTIVATION  34.0
#define LAYER_WEIGHT_PART 32.0
/* Activations between stages are bf16. */
#define ELEMENT_BYTES 2.0

#define SEQUENCE   2048.0
#define VOCABULARY 51200.0
#define MICROBATCH 1.0 /* sequences */

struct model {
    const char *name;
    double width;
    uint32_t layers;
    double tensor_parallel;
};
/* Width and depth of 350M and 6.7B as in the GPT-3 paper, of 18.4B and above as in Megatron-LM (SC'21); 3.35B
 * is no published shape: 28 layers of 3072 have that many parameters. */
static const struct model models[] = {
    {"gpt3-medium", 1024, 24, 1},      {"gpt3-3.35b", 3072, 28, 1},     {"gpt3-6.7b", 4096, 32, 1},
    {"megatron-18.4b", 6144, 40, 8},   {"megatron-39.1b", 8192, 48, 8}, {"megatron-76.1b", 10240, 60, 8},
    {"megatron-145.6b", 12288, 80, 8},
};
#define MODEL_COUNT (sizeof models / sizeof models[0])

static const char *const model_names[MODEL_COUNT + 1] = {
    "gpt3-medium",    "gpt3-3.35b",     "gpt3-6.7b",       "megatron-18.4b",
    "megatron-39.1b", "megatron-76.1b", "megatron-145.6b", NULL,
};

const char *const *pawl_profile_names(void) { return model_names; }

static uint64_t to_bytes(double value) { return (uint64_t)llround(value); }
static double to_ms(double seconds) { return seconds * 1e3; }

/* Layers of a stage: evenly, and what is left over goes to inner stages first, since the first holds the
 * embedding and the last computes the head. */
static uint32_t layers_of(const struct model *m, uint32_t stages, uint32_t stage) {
    uint32_t left = m->layers % stages, inner = stages > 2 ? stages - 2 : 0;
    bool extra;
    if (stage == 0)
        extra = left > inner;
    else if (stage + 1 == stages)
        extra = left > inner + 1;
    else
        extra = stage - 1 < left;
    return m->layers / stages + extra;
}

static void fill_stage(const struct model *m, uint32_t stages, uint32_t index, struct pawl_stage_cost *s) {
    double h = m->width, tokens = MICROBATCH * SEQUENCE, t = m->tensor_parallel;
    bool first = index == 0, last = index + 1 == stages;
    s->layers = layers_of(m, stages, index);
    double layers = s->layers, head = last ? 2 * h * VOCABULARY : 0;
    double rate = t * GPU_FLOPS * GPU_UTILIZATION;
    s->forward = to_ms(tokens * (layers * (24 * h * h + 4 * SEQUENCE * h) + head) / rate);
    s->input_grad = to_ms(tokens * (layers * (24 * h * h + 8 * SEQUENCE * h) + head) / rate);
    s->weight_grad = to_ms(tokens * (layers * 24 * h * h + head) / rate);

    /* The embedding is tied to the head: both ends hold it; with one stage it is there once. */
    double parameters =
        layers * (12 * h * h + 13 * h) + (first || last ? VOCABULARY * h : 0) + (first ? SEQUENCE * h : 0);
    s->state_bytes = to_bytes(STATE_BYTES * parameters / t);
    s->step = to_ms(STEP_BYTES * parameters / t / GPU_MEMORY_BPS);
    /* A ring moves up to twice the gradients, whatever the number of replicas. */
    s->reduce = to_ms(2 * GRAD_BYTES * parameters / t / LINK_BPS);

    double boundary = ELEMENT_BYTES * tokens * h / t;
    s->send_forward = last ? 0 : to_ms(boundary / LINK_BPS);
    s->send_backward = first ? 0 : to_ms(boundary / LINK_BPS);
    /* The head keeps its input and, in fp32, the logits; its weight-gradient needs both. */
    double logits = last ? boundary + 4 * tokens * VOCABULARY / t : 0;
    s->activation_bytes = to_bytes(layers * LAYER_ACTIVATION * tokens * h / t + logits);
    s->weight_grad_bytes = to_bytes(layers * LAYER_WEIGHT_PART * tokens * h / t + logits);
    s->input_bytes = to_bytes(boundary);
}

static pawl_code unknown(const char *name, struct pawl_error *e) {
    char list[256];
    size_t used = 0;
    for (size_t i = 0; i < MODEL_COUNT && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i == 0 ? "" : ", ", model_names[i]);
    return error_set(e, PAWL_NOT_FOUND, 0, "there is no built-in profile \"%.60s\": there are %s", name,
                     list);
}

pawl_code pawl_profile_builtin(const char *name, uint32_t stages, struct pawl_profile **out,
                               struct pawl_error *e) {
    const struct model *m = NULL;
    for (size_t i = 0; i < MODEL_COUNT; i++)
        if (strcasecmp(models[i].name, name) == 0) m = &models[i];
    if (m == NULL) return unknown(name, e);
    if (stages == 0 || stages > m->layers)
        return error_set(e, PAWL_ARGUMENT, 0, "profile %s: %u stages: it has %u layers: give 1 to %u", name,
                         stages, m->layers, m->layers);
    struct pawl_profile *p = NULL;
    pawl_code code = profile_new(m->name, "ms", stages, &p, e);
    if (code != PAWL_OK) return code;
    p->unit_s = 1e-3;
    p->memory_bytes = GPU_MEMORY_BYTES;
    p->link_bps = LINK_BPS;
    p->host_bps = HOST_BPS;
    for (uint32_t i = 0; i < stages; i++) fill_stage(m, stages, i, &p->stage[i]);
    *out = p;
    return PAWL_OK;
}
