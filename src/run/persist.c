/* Implementation of run/persist.h. */
#include "run/persist.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "model/weights.h"

#define SECTIONS 3 /* parameters and the two moments */

static const char *const section_prefix[SECTIONS] = {"", "exp_avg/", "exp_avg_sq/"};

static float *section_of(const struct version *v, int section) {
    return section == 0 ? v->params : section == 1 ? v->exp_avg : v->exp_avg_sq;
}

static uint64_t rows_of(const struct stage_tensor *t) { return t->rank == 0 ? 1 : t->shape[0]; }

/* First row of tensor t whose first element is at or behind parameter `at` of the stage. */
static uint64_t row_at(const struct stage_tensor *t, uint64_t at) {
    if (at <= t->offset || t->count == 0) return 0;
    uint64_t row_elements = t->count / rows_of(t), row = (at - t->offset + row_elements - 1) / row_elements;
    return row < rows_of(t) ? row : rows_of(t);
}

/* To be freed; null without memory. */
static char *stored_name(const char *prefix, const struct stage_tensor *t) {
    char *name;
    return asprintf(&name, "%s%s", prefix, t->name) < 0 ? NULL : name;
}

struct slice {
    uint64_t begin[STAGE_RANK_MAX], extent[STAGE_RANK_MAX];
};

struct rows {
    uint64_t begin, end;
};

struct piece_list {
    struct pawl_tensor *pieces;
    struct slice *slices; /* of each, where the piece's points to */
    char **names;
    uint32_t count;
    bool failed; /* no memory for a name */
};

static void add_piece(struct piece_list *list, const char *prefix, const struct stage_tensor *t,
                      struct pawl_tensor piece, struct rows rows) {
    char *name = stored_name(prefix, t);
    if (name == NULL) list->failed = true;
    struct slice *slice = &list->slices[list->count];
    for (uint32_t i = 0; i < piece.rank; i++) {
        slice->begin[i] = i == 0 ? rows.begin : 0;
        slice->extent[i] = i == 0 ? rows.end - rows.begin : piece.shape[i];
    }
    piece.begin = slice->begin;
    piece.extent = slice->extent;
    piece.name = list->names[list->count] = name;
    list->pieces[list->count++] = piece;
}

static void add_tensor(struct piece_list *list, const struct stage *stage, const struct version *version,
                       uint32_t t, uint64_t lo, uint64_t hi) {
    const struct stage_tensor *tensor = &stage->tensors[t];
    struct rows rows = {row_at(tensor, lo), row_at(tensor, hi)};
    uint64_t row_elements = tensor->count / rows_of(tensor);
    if (rows.begin == rows.end) return;
    for (int s = 0; s < SECTIONS; s++)
        add_piece(
            list, section_prefix[s], tensor,
            (struct pawl_tensor){.dtype = PAWL_F32,
                                 .rank = tensor->rank,
                                 .shape = tensor->shape,
                                 .data = section_of(version, s) + tensor->offset + rows.begin * row_elements},
            rows);
    if (rows.begin == 0)
        add_piece(list, "exponent/", tensor,
                  (struct pawl_tensor){.dtype = PAWL_I32, .data = &version->exponents[t]}, rows);
}

pawl_code persist_save(struct ckpt *c, const struct spec *spec, const struct stage *stage,
                       const struct version *version, uint32_t part, uint32_t parts, struct pawl_error *e) {
    size_t most = (size_t)stage->tensor_count * (SECTIONS + 1);
    struct piece_list list = {.pieces = calloc(most, sizeof *list.pieces),
                              .slices = calloc(most, sizeof *list.slices),
                              .names = calloc(most, sizeof *list.names)};
    struct bytes blob = {0};
    struct json j = json_begin(&blob);
    json_object(&j, NULL);
    json_i64(&j, "step", (int64_t)version->number);
    json_i64(&j, "updates", (int64_t)version->updates);
    json_i64(&j, "samples", (int64_t)(version->number * spec_contributions(spec) * spec->parallel.batch));
    json_end_object(&j);
    pawl_code code = PAWL_MEMORY;
    if (list.pieces == NULL || list.slices == NULL || list.names == NULL || blob.failed) {
        error_set(e, code, 0, "no memory to list %zu pieces of a save", most);
    } else {
        uint64_t lo = (uint64_t)((__uint128_t)stage->param_count * part / parts);
        uint64_t hi = (uint64_t)((__uint128_t)stage->param_count * (part + 1) / parts);
        for (uint32_t t = 0; t < stage->tensor_count; t++)
            if (!(stage->tensors[t].flags & STAGE_SHARED_COPY)) add_tensor(&list, stage, version, t, lo, hi);
        struct ckpt_save save = {.step = version->number,
                                 .unit = stage->index,
                                 .unit_count = stage->stage_count,
                                 .part = part,
                                 .part_count = parts,
                                 .tensors = list.pieces,
                                 .tensor_count = list.count,
                                 .blob = blob.data,
                                 .blob_bytes = blob.size};
        code = list.failed ? error_set(e, PAWL_MEMORY, 0, "no memory for the names of a save")
                           : ckpt_save_begin(c, &save, e);
    }
    for (uint32_t i = 0; i < list.count; i++) free(list.names[i]);
    free(list.pieces);
    free(list.slices);
    free(list.names);
    bytes_close(&blob);
    return code;
}

static pawl_code read_whole(struct ckpt_set *set, uint32_t index, const char *prefix,
                            const struct stage_tensor *t, struct pawl_tensor want, void *out,
                            struct pawl_error *e) {
    char *name = stored_name(prefix, t);
    if (name == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory to read %s", t->name);
    want.name = name;
    want.data = out;
    pawl_code code = ckpt_set_read(set, index, &want, e);
    free(name);
    return code;
}

static pawl_code load_tensor(struct ckpt_set *set, uint32_t index, const struct stage_tensor *t,
                             struct version *version, int32_t *exponent, struct pawl_error *e) {
    pawl_code code = PAWL_OK;
    for (int s = 0; s < SECTIONS && code == PAWL_OK; s++)
        code = read_whole(set, index, section_prefix[s], t,
                          (struct pawl_tensor){.dtype = PAWL_F32, .rank = t->rank, .shape = t->shape},
                          section_of(version, s) + t->offset, e);
    if (code == PAWL_OK)
        code = read_whole(set, index, "exponent/", t, (struct pawl_tensor){.dtype = PAWL_I32}, exponent, e);
    return code;
}

static pawl_code load_blob(struct ckpt_set *set, uint32_t index, struct version *version,
                           struct pawl_error *e) {
    const void *blob;
    size_t bytes;
    pawl_code code = ckpt_set_blob(set, index, 0, &blob, &bytes, e);
    if (code != PAWL_OK) return code;
    cJSON *json = cJSON_ParseWithLength(blob, bytes);
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(json, "step");
    const cJSON *updates = cJSON_GetObjectItemCaseSensitive(json, "updates");
    uint64_t stored = ckpt_set_at(set, index)->step;
    bool good = cJSON_IsNumber(step) && cJSON_IsNumber(updates) && step->valuedouble == (double)stored &&
                updates->valuedouble >= 0 && updates->valuedouble <= (double)stored;
    if (good) version->updates = (uint64_t)updates->valuedouble;
    cJSON_Delete(json);
    version->number = stored;
    return good ? PAWL_OK
                : error_set(e, PAWL_FORMAT, 0, "step %llu: its extra data holds no step and updates that fit",
                            (unsigned long long)stored);
}

pawl_code persist_load(struct ckpt_set *set, uint32_t index, const struct stage *stage,
                       struct version *version, struct pawl_error *e) {
    pawl_code code = load_blob(set, index, version, e);
    for (uint32_t t = 0; t < stage->tensor_count && code == PAWL_OK; t++)
        code = load_tensor(set, index, &stage->tensors[t], version, &version->exponents[t], e);
    return code;
}

uint32_t persist_find(const struct ckpt_set *set, uint64_t step, uint64_t incarnation) {
    for (uint32_t i = 0; i < ckpt_set_count(set); i++) {
        const struct ckpt_step *s = ckpt_set_at(set, i);
        if (s->complete && s->step == step && s->incarnation == incarnation) return i;
    }
    return UINT32_MAX;
}

static pawl_code read_all(struct ckpt_set *set, uint32_t index, const struct stage_tensor *tensors,
                          uint32_t count, float **values, struct pawl_error *e) {
    for (uint32_t t = 0; t < count; t++) {
        values[t] = mem_alloc(tensors[t].count * sizeof(float));
        if (values[t] == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for %s", tensors[t].name);
        struct pawl_tensor want = {.dtype = PAWL_F32, .rank = tensors[t].rank, .shape = tensors[t].shape};
        pawl_code code = read_whole(set, index, "", &tensors[t], want, values[t], e);
        if (code != PAWL_OK) return code;
    }
    return PAWL_OK;
}

pawl_code persist_digest(struct ckpt_set *set, uint32_t index, const struct gpt_config *config,
                         const char *export_dir, char digest[65], struct pawl_error *e) {
    struct stage_tensor *tensors = NULL;
    uint32_t count = 0;
    pawl_code code = weights_list(config, &tensors, &count, e);
    if (code != PAWL_OK) return code;
    float **values = calloc(count, sizeof *values);
    struct hash_sha256 *h = hash_sha256_new();
    if (values == NULL || h == NULL)
        code = error_set(e, PAWL_MEMORY, 0, "no memory for the digest of the weights");
    else
        code = read_all(set, index, tensors, count, values, e);
    if (code == PAWL_OK) {
        for (uint32_t t = 0; t < count; t++) {
            hash_sha256_add(h, tensors[t].name, strlen(tensors[t].name) + 1);
            hash_sha256_add(h, values[t], tensors[t].count * sizeof(float));
        }
        if (export_dir[0] != 0) code = weights_write(export_dir, config, (const float *const *)values, e);
    }
    char unused[65];
    if (h != NULL) hash_sha256_finish(h, code == PAWL_OK ? digest : unused);
    for (uint32_t t = 0; values != NULL && t < count; t++)
        mem_free(values[t], tensors[t].count * sizeof(float));
    free(values);
    weights_list_free(tensors, count);
    return code;
}
