/* Implementation of model/weights.h: the list of tensors, and reading a stage's parameters. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/gpt_private.h"
#include "model/weights_private.h"

pawl_code weights_list(const struct gpt_config *config, struct stage_tensor **tensors, uint32_t *count,
                       struct pawl_error *e) {
    pawl_code code = gpt_config_check(config, 1, e);
    if (code != PAWL_OK) return code;
    struct gpt_part whole = gpt_part_of(config, 0, 1);
    return gpt_tensors_make(config, &whole, tensors, count, NULL, e);
}

void weights_list_free(struct stage_tensor *tensors, uint32_t count) { gpt_tensors_free(tensors, count); }

/* --- config.json beside the weights: what the shapes cannot tell --- */

static pawl_code check_number(const cJSON *tree, const char *path, const char *field, double wanted,
                              struct pawl_error *e) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(tree, field);
    if (item == NULL || cJSON_IsNull(item)) return PAWL_OK;
    if (cJSON_IsNumber(item) && item->valuedouble >= wanted * (1 - 1e-6) &&
        item->valuedouble <= wanted * (1 + 1e-6))
        return PAWL_OK;
    return error_set(e, PAWL_FORMAT, 0, "%s: %s is %g, the model has %g", path, field,
                     cJSON_IsNumber(item) ? item->valuedouble : (double)NAN, wanted);
}

static pawl_code check_fields(const cJSON *tree, const char *path, const struct gpt_config *c,
                              struct pawl_error *e) {
    const struct {
        const char *name;
        double wanted;
    } fields[] = {{"n_head", c->heads},        {"n_layer", c->layers},        {"n_embd", c->width},
                  {"n_inner", 4.0 * c->width}, {"vocab_size", c->vocabulary}, {"layer_norm_epsilon", 1e-5}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        pawl_code code = check_number(tree, path, fields[i].name, fields[i].wanted, e);
        if (code != PAWL_OK) return code;
    }
    const char *gelu = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(tree, "activation_function"));
    if (gelu != NULL && strcmp(gelu, "gelu_new") != 0 && strcmp(gelu, "gelu_pytorch_tanh") != 0)
        return error_set(e, PAWL_FORMAT, 0, "%s: activation_function is \"%.40s\", the model has gelu_new",
                         path, gelu);
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(tree, "scale_attn_by_inverse_layer_idx")))
        return error_set(e, PAWL_FORMAT, 0,
                         "%s: scale_attn_by_inverse_layer_idx is true, the model has it not", path);
    return PAWL_OK;
}

static pawl_code check_config(const char *folder, const struct gpt_config *c, struct pawl_error *e) {
    char *path, *text = NULL;
    if (asprintf(&path, "%s/config.json", folder) < 0)
        return error_set(e, PAWL_MEMORY, 0, "weights: no memory for a path");
    pawl_code code = PAWL_OK;
    if (access(path, F_OK) == 0) {
        code = weights_text_read(path, &text, e);
        if (code == PAWL_OK) {
            cJSON *tree = cJSON_Parse(text);
            code = cJSON_IsObject(tree) ? check_fields(tree, path, c, e)
                                        : error_set(e, PAWL_FORMAT, 0, "%s: wanted a JSON object", path);
            cJSON_Delete(tree);
        }
    }
    free(text);
    free(path);
    return code;
}

/* --- tensors --- */

static void shape_text(uint32_t rank, const uint64_t *shape, char *out, size_t size) {
    size_t used = (size_t)snprintf(out, size, "[");
    for (uint32_t i = 0; i < rank && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%llu", i == 0 ? "" : ", ",
                                 (unsigned long long)shape[i]);
    if (used < size) snprintf(out + used, size - used, "]");
}

static pawl_code find_checked(const struct weights_source *s, const char *path,
                              const struct stage_tensor *wanted, const struct weights_file **file,
                              const struct st_tensor **found, struct pawl_error *e) {
    pawl_code code = weights_source_find(s, wanted->name, file, found, e);
    if (code != PAWL_OK) return code;
    if (*found == NULL)
        return error_set(e, PAWL_NOT_FOUND, 0, "weights: %s has no tensor %s", path, wanted->name);
    const struct st_tensor *t = *found;
    if (t->rank == wanted->rank && memcmp(t->shape, wanted->shape, t->rank * sizeof *t->shape) == 0)
        return PAWL_OK;
    char had[96], want[96];
    shape_text(t->rank, t->shape, had, sizeof had);
    shape_text(wanted->rank, wanted->shape, want, sizeof want);
    return error_set(e, PAWL_FORMAT, 0, "%s: tensor %s has shape %s, the model wants %s", (*file)->path,
                     t->name, had, want);
}

/* A file may carry the head of a tied model as well; it must then be the embedding. */
static pawl_code check_tied_head(const struct weights_source *s, const struct stage_tensor *embedding,
                                 const float *values, struct pawl_error *e) {
    float piece[4096];
    const struct weights_file *file;
    const struct st_tensor *head;
    pawl_code code = weights_source_find(s, "lm_head.weight", &file, &head, e);
    if (code != PAWL_OK || head == NULL) return code;
    bool same = head->rank == 2 && memcmp(head->shape, embedding->shape, 2 * sizeof *head->shape) == 0;
    for (uint64_t at = 0; same && at < embedding->count; at += sizeof piece / sizeof *piece) {
        uint64_t n = embedding->count - at;
        if (n > sizeof piece / sizeof *piece) n = sizeof piece / sizeof *piece;
        code = weights_file_read(file, head, at, n, piece, e);
        if (code != PAWL_OK) return code;
        same = memcmp(piece, values + at, n * sizeof *piece) == 0;
    }
    return same ? PAWL_OK
                : error_set(e, PAWL_FORMAT, 0,
                            "%s: lm_head.weight is not wte.weight: the model is not tied, set tied to false",
                            file->path);
}

static pawl_code read_tensors(const struct weights_source *s, const char *path,
                              const struct gpt_config *config, const struct stage *stage, float *params,
                              struct pawl_error *e) {
    for (uint32_t i = 0; i < stage->tensor_count; i++) {
        const struct stage_tensor *t = &stage->tensors[i];
        const struct weights_file *file;
        const struct st_tensor *found;
        pawl_code code = find_checked(s, path, t, &file, &found, e);
        if (code == PAWL_OK) code = weights_file_read(file, found, 0, t->count, params + t->offset, e);
        if (code == PAWL_OK && config->tied && strcmp(t->name, "wte.weight") == 0)
            code = check_tied_head(s, t, params + t->offset, e);
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

pawl_code weights_read(const char *path, const struct gpt_config *config, const struct stage *stage,
                       float *params, struct pawl_error *e) {
    struct weights_source s;
    pawl_code code = weights_source_open(path, &s, e);
    if (code != PAWL_OK) return code;
    code = check_config(path, config, e);
    if (code == PAWL_OK) code = read_tensors(&s, path, config, stage, params, e);
    weights_source_close(&s);
    return code;
}
