/* Which tensors a stage of the GPT has, in which order and shape, and the limits on their sizes. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/gpt_private.h"

/* Sides in units of the width; 0 in `rows` is a vector. */
static const struct {
    const char *name;
    uint32_t rows, columns;
} layer_tensors[GPT_LAYER_TENSORS] = {
    [GPT_NORM1_GAMMA] = {"ln_1.weight", 0, 1}, [GPT_NORM1_BETA] = {"ln_1.bias", 0, 1},
    [GPT_QKV] = {"attn.c_attn.weight", 1, 3},  [GPT_QKV_BIAS] = {"attn.c_attn.bias", 0, 3},
    [GPT_OUT] = {"attn.c_proj.weight", 1, 1},  [GPT_OUT_BIAS] = {"attn.c_proj.bias", 0, 1},
    [GPT_NORM2_GAMMA] = {"ln_2.weight", 0, 1}, [GPT_NORM2_BETA] = {"ln_2.bias", 0, 1},
    [GPT_FC] = {"mlp.c_fc.weight", 1, 4},      [GPT_FC_BIAS] = {"mlp.c_fc.bias", 0, 4},
    [GPT_PROJ] = {"mlp.c_proj.weight", 4, 1},  [GPT_PROJ_BIAS] = {"mlp.c_proj.bias", 0, 1},
};

static pawl_code check_fields(const struct gpt_config *c, uint32_t stage_count, struct pawl_error *e) {
    const struct {
        const char *name;
        uint32_t value;
    } fields[] = {{"layers", c->layers},           {"heads", c->heads},           {"width", c->width},
                  {"context", c->context},         {"vocabulary", c->vocabulary}, {"batch", c->batch},
                  {"pipeline stages", stage_count}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].value == 0)
            return error_set(e, PAWL_SPEC, 0, "model: %s is 0, it must be at least 1", fields[i].name);
    if (c->width % c->heads != 0)
        return error_set(e, PAWL_SPEC, 0, "model: width %u is not divisible by heads %u", c->width, c->heads);
    if (stage_count > c->layers)
        return error_set(e, PAWL_SPEC, 0,
                         "model: %u pipeline stages but only %u layers; use at most one stage a layer",
                         stage_count, c->layers);
    if (!(c->dropout >= 0.0f && c->dropout < 1.0f))
        return error_set(e, PAWL_SPEC, 0, "model: dropout %g must be at least 0 and below 1",
                         (double)c->dropout);
    return PAWL_OK;
}

/* The largest side of any matrix must be a BLAS integer; then no product of two sides exceeds 62 bits. */
static pawl_code check_products(const struct gpt_config *c, struct pawl_error *e) {
    uint64_t rows = (uint64_t)c->batch * c->context;
    const struct {
        const char *name;
        uint64_t value;
    } sides[] = {{"batch * context", rows},
                 {"4 * width", 4 * (uint64_t)c->width},
                 {"vocabulary", c->vocabulary},
                 {"context", (uint64_t)c->context + KERNELS_STRIDE}};
    for (size_t i = 0; i < sizeof sides / sizeof sides[0]; i++)
        if (sides[i].value > INT_MAX)
            return error_set(e, PAWL_SPEC, 0, "model: %s is %llu, a matrix side can be at most %d",
                             sides[i].name, (unsigned long long)sides[i].value, INT_MAX);
    uint64_t layer, all, embeddings;
    if (!mem_mul((uint64_t)c->width * c->width, 16, &layer) || !mem_mul(layer, c->layers, &all) ||
        !mem_mul((uint64_t)c->vocabulary * 2 + c->context, c->width, &embeddings) ||
        !mem_add(all, embeddings, &all) || !mem_mul(all, 16, &all))
        return error_set(e, PAWL_SPEC, 0, "model: layers %u of width %u make more bytes than 64 bits count",
                         c->layers, c->width);
    return PAWL_OK;
}

pawl_code gpt_config_check(const struct gpt_config *config, uint32_t stage_count, struct pawl_error *e) {
    pawl_code code = check_fields(config, stage_count, e);
    return code == PAWL_OK ? check_products(config, e) : code;
}

uint64_t gpt_param_count(const struct gpt_config *c) {
    uint64_t width = c->width, layer = 0;
    for (int i = 0; i < GPT_LAYER_TENSORS; i++)
        layer += layer_tensors[i].columns * width *
                 (layer_tensors[i].rows == 0 ? 1 : layer_tensors[i].rows * width);
    uint64_t ends = (uint64_t)c->vocabulary * (c->tied ? 1 : 2) + c->context + 2;
    return layer * c->layers + ends * width;
}

struct gpt_part gpt_part_of(const struct gpt_config *c, uint32_t index, uint32_t stage_count) {
    uint32_t each = c->layers / stage_count, extra = c->layers % stage_count;
    bool last = index == stage_count - 1;
    return (struct gpt_part){
        .first_layer = index * each + (index < extra ? index : extra),
        .layer_count = each + (index < extra),
        .has_embedding = index == 0,
        .has_head = last,
        .head_weight = last && (!c->tied || stage_count > 1),
    };
}

/* --- the list --- */

struct list {
    struct stage_tensor *tensors;
    uint32_t count;
    uint64_t floats;
    bool failed;
};

static uint32_t append(struct list *list, const char *name, uint64_t rows, uint64_t columns, uint32_t flags) {
    struct stage_tensor *t = &list->tensors[list->count];
    *t = (struct stage_tensor){.offset = list->floats, .flags = flags};
    t->name = strdup(name);
    list->failed |= t->name == NULL;
    if (rows > 0) t->shape[t->rank++] = rows;
    t->shape[t->rank++] = columns;
    t->count = (rows > 0 ? rows : 1) * columns;
    t->flags |= rows > 0 ? STAGE_DECAY : 0;
    list->floats += t->count;
    return list->count++;
}

static void append_layer(struct list *list, const struct gpt_config *c, uint32_t layer) {
    for (int i = 0; i < GPT_LAYER_TENSORS; i++) {
        char name[64];
        snprintf(name, sizeof name, "h.%u.%s", layer, layer_tensors[i].name);
        append(list, name, (uint64_t)layer_tensors[i].rows * c->width,
               (uint64_t)layer_tensors[i].columns * c->width, 0);
    }
}

static void append_all(struct list *list, const struct gpt_config *c, const struct gpt_part *part,
                       struct gpt_places *places) {
    /* Shared: the other end stage has the matrix as well. */
    bool whole = part->layer_count == c->layers;
    uint32_t tied = c->tied ? STAGE_TWICE | (whole ? 0 : STAGE_SHARED) : 0;
    *places = (struct gpt_places){0};
    if (part->has_embedding) {
        places->token_embedding = append(list, "wte.weight", c->vocabulary, c->width, tied);
        places->position_embedding = append(list, "wpe.weight", c->context, c->width, 0);
    }
    places->layer_base = list->count;
    for (uint32_t l = 0; l < part->layer_count; l++) append_layer(list, c, part->first_layer + l);
    if (!part->has_head) return;
    places->final_gamma = append(list, "ln_f.weight", 0, c->width, 0);
    places->final_beta = append(list, "ln_f.bias", 0, c->width, 0);
    if (!part->head_weight) return;
    places->head = append(list, c->tied ? "wte.weight" : "lm_head.weight", c->vocabulary, c->width,
                          c->tied ? tied | STAGE_SHARED_COPY : 0);
}

pawl_code gpt_tensors_make(const struct gpt_config *c, const struct gpt_part *part,
                           struct stage_tensor **tensors, uint32_t *count, struct gpt_places *places,
                           struct pawl_error *e) {
    struct gpt_places unused;
    uint64_t most = (uint64_t)part->layer_count * GPT_LAYER_TENSORS + 5;
    struct list list = {.tensors = most < UINT32_MAX ? calloc(most, sizeof *list.tensors) : NULL};
    if (list.tensors != NULL) append_all(&list, c, part, places != NULL ? places : &unused);
    if (list.tensors == NULL || list.failed) {
        gpt_tensors_free(list.tensors, list.count);
        return error_set(e, PAWL_MEMORY, 0, "model: no memory for the list of %llu tensors",
                         (unsigned long long)most);
    }
    *tensors = list.tensors;
    *count = list.count;
    return PAWL_OK;
}

void gpt_tensors_free(struct stage_tensor *tensors, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) free(tensors[i].name);
    free(tensors);
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

float gpt_init_deviation(const struct gpt_config *c, const struct stage_tensor *t) {
    if (t->rank == 1) return ends_with(t->name, ".bias") ? 0.0f : -1.0f;
    /* What adds to the residual stream is scaled down by the number of such additions. */
    if (ends_with(t->name, ".c_proj.weight")) return 0.02f / sqrtf(2.0f * (float)c->layers);
    return 0.02f;
}
